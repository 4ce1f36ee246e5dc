//! What must hold for any bytes at all: the target of `fuzz/fuzz_targets/ltx.rs`, which has this
//! file as its own, and here with changed files of the original.

use monolite_ltx::{Decoder, Encoder, Error, ErrorKind, compact};

/// How often a sum is put right.
const REPAIRS: usize = 4;

/// Reads `data` in every way. A sum that is wrong is put right and the file read again, so that
/// changes get behind it.
///
/// # Errors
/// What disagrees.
pub(crate) fn any_bytes(data: &[u8]) -> Result<(), String> {
    let mut file = data.to_vec();
    for _ in 0..REPAIRS {
        match all_pages(&file) {
            Ok(pages) => return whole(&file, &pages),
            Err(error) if error.kind() == ErrorKind::Io => return Err(format!("{error:?}")),
            Err(error) => match right_sum(&error) {
                Some((at, sum)) => file[at..at + 8].copy_from_slice(&sum.to_be_bytes()),
                None => return Ok(()),
            },
        }
    }
    Ok(())
}

/// The sum that an error says is the right one, and where it belongs.
fn right_sum(error: &Error) -> Option<(usize, u64)> {
    let text = error.to_string();
    let at = ["of a file that has ", "of a database that has "]
        .iter()
        .find_map(|words| Some(text.find(words)? + words.len()))?;
    let sum = u64::from_str_radix(text.get(at..at + 16)?, 16).ok()?;
    Some((usize::try_from(error.offset()?).ok()?, sum))
}

type Pages = Vec<(monolite_ltx::Pgno, Vec<u8>)>;

fn all_pages(file: &[u8]) -> Result<Pages, Error> {
    let mut decoder = Decoder::new(file)?;
    let mut pages = Pages::new();
    loop {
        match decoder.next_page() {
            Ok(Some(page)) => pages.push((page.pgno, page.data.to_vec())),
            Ok(None) => return Ok(pages),
            Err(error) => {
                assert!(decoder.next_page().is_err() && decoder.trailer().is_none());
                return Err(error);
            }
        }
    }
}

/// A file that was read to its end is written and merged alike.
fn whole(file: &[u8], pages: &Pages) -> Result<(), String> {
    let decoder = Decoder::new(file).map_err(|error| error.to_string())?;
    let header = *decoder.header();
    let trailer = decoder.verify().map_err(|error| error.to_string())?.trailer;
    if header.commit == 0 && !header.is_tracked() {
        // It can be read, and not be written.
        return if pages.is_empty() { Ok(()) } else { Err("pages of an empty database".into()) };
    }
    let mut encoder = Encoder::new(Vec::new(), header).map_err(|error| error.to_string())?;
    for (pgno, page) in pages {
        encoder.page(*pgno, page).map_err(|error| error.to_string())?;
    }
    let again = encoder.finish(trailer.database).map_err(|error| error.to_string())?;
    let merged = compact([file], Vec::new()).map_err(|error| error.to_string())?;
    for other in [again.output, merged.output] {
        if all_pages(&other).map_err(|error| error.to_string())? != *pages {
            return Err("other pages in a file that was written anew".into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::support::{beside, cases, golden};

    #[test]
    fn corpus_of_the_fuzz_target_holds() {
        let corpus = beside("../../../fuzz/corpus/ltx");
        let mut count = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            super::any_bytes(&std::fs::read(entry.unwrap().path()).unwrap()).unwrap();
            count += 1;
        }
        assert!(count >= 5, "{count} files");
    }

    #[test]
    fn changed_files_hold() {
        let files: Vec<Vec<u8>> = golden().into_values().filter(|file| file.len() < 1000).collect();
        cases(2000, |rng| {
            let mut file = files[rng.usize(..files.len())].clone();
            for _ in 0..rng.u8(1..4) {
                let at = rng.usize(..file.len());
                match rng.u8(..6) {
                    0 => file.truncate(at + 1),
                    1 => file.insert(at, rng.u8(..)),
                    2 => file[at..].rotate_left(1),
                    3 => file[at] ^= 1 << rng.u8(..8),
                    4 => file[at] = [0, 1, 127, 128, 255][rng.usize(..5)],
                    _ => file[at] = rng.u8(..),
                }
            }
            super::any_bytes(&file).unwrap();
        });
    }
}
