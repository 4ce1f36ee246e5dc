//! Any options, any path: `open` gives a database that works, or an error that says why.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use arbitrary::Unstructured;
use monolite::{Database, Durability, Error, ErrorKind, Options, Sharing};

/// Whether a database can be opened with what was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Can {
    Open,
    Not,
    Either,
}

/// Opens with the options and at the path that `data` stands for.
///
/// # Errors
/// What was wrong about the outcome.
pub fn options(data: &[u8]) -> Result<()> {
    let mut bytes = Unstructured::new(data);
    let Ok((options, wrong)) = draw(&mut bytes) else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let Ok(place) = bytes.int_in_range(0..=11) else { return Ok(()) };
    let name = name(&mut bytes);
    let (path, can) = prepare(directory.path(), place, &name, bytes.take_rest())?;
    let told = format!("{options:?} at {}", path.display());
    judge(options.open(&path), &wrong, can).with_context(|| told)
}

fn judge(opened: Result<Database, Error>, wrong: &[&str], can: Can) -> Result<()> {
    match opened {
        Ok(db) => {
            ensure!(wrong.is_empty(), "{wrong:?} out of range, and it was opened");
            ensure!(can != Can::Not, "it was opened");
            let create = "CREATE TABLE IF NOT EXISTS fuzzed(x)";
            let used = db.write(move |tx| {
                tx.execute_batch(create)?;
                tx.execute("INSERT INTO fuzzed VALUES (1)", ())
            });
            // A limit of a millisecond may be over before a transaction is.
            let used = used.wait().and_then(|_| {
                db.read(|tx| tx.query_row("SELECT count(*) FROM fuzzed", (), |_| Ok(()))).wait()
            });
            match used {
                Err(error) if can == Can::Open && error.kind() != ErrorKind::Timeout => {
                    Err(error).context("it was opened and cannot be used")
                }
                _ => Ok(db.close()?),
            }
        }
        Err(error) => {
            let text = error.to_string();
            ensure!(!text.is_empty() && error.kind() != ErrorKind::Internal, "{error:?}");
            if wrong.is_empty() {
                ensure!(can != Can::Open, "it was not opened: {error:?}");
                return Ok(());
            }
            let is_named = wrong.iter().any(|name| text.contains(name));
            ensure!(error.kind() == ErrorKind::Invalid && is_named, "{wrong:?}: {error:?}");
            Ok(())
        }
    }
}

/// Options, and which of them are out of their ranges.
fn draw(bytes: &mut Unstructured<'_>) -> arbitrary::Result<(Options, Vec<&'static str>)> {
    let mut wrong = Vec::new();
    let mut number = |name, low: u64, high: u64, most: u64| {
        let value = match bytes.int_in_range(0..=15)? {
            0 => bytes.arbitrary()?,
            1 => low.wrapping_sub(1),
            2 => high.saturating_add(1),
            3 => low,
            _ => bytes.int_in_range(low..=most)?,
        };
        if !(low..=high).contains(&value) {
            wrong.push(name);
        }
        Ok::<u64, arbitrary::Error>(value)
    };
    let count = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let mut options = Options::new()
        .readers(count(number("readers", 1, 1_024, 4)?))
        .reader_cache_bytes(number("reader_cache_bytes", 64 << 10, 64 << 30, 1 << 22)?)
        .writer_cache_bytes(number("writer_cache_bytes", 64 << 10, 64 << 30, 1 << 40)?)
        .max_batch(count(number("max_batch", 1, 1_000_000, 1_000_000)?))
        .queue_capacity(count(number("queue_capacity", 1, 10_000_000, 10_000_000)?))
        .wal_limit_bytes(number("wal_limit_bytes", 8 << 20, 1 << 40, 1 << 40)?);
    let hour = 3_600_000_000;
    let micros = Duration::from_micros;
    options = options
        .max_batch_time(micros(number("max_batch_time", 1, 60_000_000, 60_000_000)?))
        .write_time_limit(micros(number("write_time_limit", 1_000, hour, hour)?))
        .read_time_limit(micros(number("read_time_limit", 1_000, 24 * hour, hour)?))
        .slow_transaction(micros(number("slow_transaction", 1, hour, hour)?))
        .on_slow(micros(number("on_slow", 1_000, hour, hour)?), |_| ());
    if bytes.arbitrary()? {
        options = options.sharing(Sharing::Shared);
    }
    if bytes.arbitrary()? {
        options = options.durability(Durability::Buffered);
    }
    Ok((options, wrong))
}

/// A name that stays in its directory.
fn name(bytes: &mut Unstructured<'_>) -> String {
    let text: &str = bytes.arbitrary().unwrap_or_default();
    let name: String = text.chars().filter(|sign| *sign != '/').take(300).collect();
    if name.trim_matches('.').is_empty() { "db".into() } else { name }
}

/// Makes the place, and says whether a database can be opened there.
fn prepare(directory: &Path, place: u8, name: &str, rest: &[u8]) -> Result<(PathBuf, Can)> {
    let path = directory.join(name);
    // What other databases' files end with.
    let taken = ["-wal", "-shm", "-journal", ".monolite-part", "-archive"];
    let is_taken = taken.iter().any(|ending| name.ends_with(ending));
    // Room for the longest companion's ending.
    let is_usable = name.len() < 240 && !name.contains('\0');
    let plain = directory.join("db");
    Ok(match place {
        0 => (":memory:".into(), Can::Open),
        1 => (directory.to_owned(), Can::Not),
        2 => (directory.join("missing").join("db"), Can::Not),
        3 => {
            fs::write(&plain, rest)?;
            (plain, if rest.is_empty() { Can::Open } else { Can::Either })
        }
        4 => {
            std::os::unix::fs::symlink(&plain, directory.join("link"))?;
            (directory.join("link"), Can::Either)
        }
        5 => {
            std::os::unix::fs::symlink("loop", directory.join("loop"))?;
            (directory.join("loop"), Can::Not)
        }
        6 => {
            fs::write(&plain, "")?;
            fs::hard_link(&plain, directory.join("other"))?;
            (plain, Can::Not)
        }
        7 => {
            fs::write(directory.join("db-wal"), rest)?;
            (plain, Can::Either)
        }
        8 => {
            fs::create_dir(directory.join("db-wal"))?;
            (plain, Can::Not)
        }
        9 => {
            fs::write(directory.join("db-journal"), rest)?;
            (plain, Can::Either)
        }
        10 => {
            fs::write(directory.join("db-shm"), rest)?;
            (plain, Can::Open)
        }
        _ if is_taken => (path, Can::Not),
        _ => (path, if is_usable { Can::Open } else { Can::Either }),
    })
}
