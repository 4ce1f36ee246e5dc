//! Merged files say what the files said, one after the other.

use monolite_ltx::{BaseChecksum, ErrorKind, Header, TxidRange, compact, verify};

use crate::support::{Content, History, cases, golden, txid};

/// What files say when they are applied one after the other: the newest page wins, none is beyond
/// the last size.
fn model(contents: &[Content]) -> Content {
    let (first, last) = (contents.first().unwrap(), contents.last().unwrap());
    let mut pages = std::collections::BTreeMap::new();
    for content in contents {
        pages.extend(content.pages.clone());
    }
    pages.retain(|number, _| *number <= last.header.commit);
    let header = Header {
        txids: TxidRange::new(first.header.txids.min(), last.header.txids.max()).unwrap(),
        base: first.header.base,
        wal: None,
        node_id: 0,
        ..last.header
    };
    Content { header, pages, database: last.database }
}

#[test]
fn merged_file_is_that_of_the_model() {
    cases(100, |rng| {
        let mut history = History::new(rng);
        let contents: Vec<Content> = (0..rng.u8(1..8)).map(|_| history.commit(rng)).collect();
        let files: Vec<Vec<u8>> = contents.iter().map(|content| content.file().0).collect();
        let merged = compact(files.iter().map(Vec::as_slice), Vec::new()).unwrap();
        assert_eq!(Content::of(&merged.output).unwrap(), model(&contents));
        assert_eq!(verify(&merged.output[..]).unwrap().trailer, merged.trailer);
        // In two steps it is the same file, byte for byte.
        let cut = rng.usize(..files.len());
        let (early, late) = files.split_at(cut);
        let steps = [early, late].map(|part| {
            let part = part.iter().map(Vec::as_slice);
            compact(part, Vec::new()).map(|written| written.output)
        });
        let steps: Vec<Vec<u8>> = steps.into_iter().flatten().collect();
        let again = compact(steps.iter().map(Vec::as_slice), Vec::new()).unwrap();
        assert_eq!(again.output, merged.output);
    });
}

#[test]
fn newest_page_of_overlapping_files_wins() {
    let golden = golden();
    for kind in ["tracked", "untracked"] {
        let file = |part: &str| &golden[&format!("{kind}-{part}.ltx")][..];
        let inputs = [file("1"), file("2"), file("2-3"), file("4")];
        assert_eq!(compact(inputs, Vec::new()).unwrap().output, file("1-4"), "{kind}");
    }
}

#[test]
fn files_that_do_not_follow_are_refused() {
    let golden = golden();
    let file = |part: &str| &golden[&format!("{part}.ltx")][..];
    for (inputs, text) in [
        (vec![], "no files to merge"),
        (vec!["tracked-1", "tracked-3"], "input 1: 0000000000000003-0000000000000003 does not"),
        (vec!["tracked-2", "tracked-1"], "input 1"),
        (vec!["tracked-1", "tracked-1"], "input 1"),
        (vec!["tracked-1-4", "tracked-2"], "input 1"),
        (vec!["tracked-1", "sparse"], "input 1: a page size of 512 after 1024"),
    ] {
        let error = compact(inputs.iter().map(|name| file(name)), Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(text), "{error}, and not {text:?}");
    }
}

#[test]
fn damage_is_told_with_the_input_it_is_in() {
    let golden = golden();
    let mut files = ["tracked-1.ltx", "tracked-2.ltx"].map(|name| golden[name].clone());
    let last = files[1].len() - 1;
    files[1][last] ^= 1;
    let error = compact(files.iter().map(Vec::as_slice), Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().starts_with("input 1: the checksum"), "{error}");
    assert_eq!(error.offset(), Some(last as u64 - 7));
}

#[test]
fn chain_whose_checksums_do_not_join_is_refused() {
    let golden = golden();
    let [first, mut second] =
        ["tracked-1.ltx", "tracked-2.ltx"].map(|name| Content::of(&golden[name]).unwrap());
    // A change of another database with the same numbers: each file is whole by itself.
    second.header.base = BaseChecksum::Database(second.database.unwrap());
    let files = [first, second].map(|content| content.file().0);
    let error = compact(files.iter().map(Vec::as_slice), Vec::new()).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupt, Some(40)), "{error}");
    assert!(error.to_string().starts_with("input 1: made for a database"), "{error}");
}

#[test]
fn snapshot_whose_pages_are_not_those_of_the_last_sum_is_refused() {
    let golden = golden();
    let mut contents =
        ["tracked-1.ltx", "tracked-2.ltx"].map(|name| Content::of(&golden[name]).unwrap());
    contents[1].pages.values_mut().next().unwrap()[0] ^= 1;
    let files = contents.map(|content| content.file().0);
    let error = compact(files.iter().map(Vec::as_slice), Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("of a database that has"), "{error}");
}

#[test]
fn snapshot_lacking_pages_of_a_growth_is_refused() {
    let golden = golden();
    let mut contents =
        ["untracked-1.ltx", "untracked-2.ltx"].map(|name| Content::of(&golden[name]).unwrap());
    contents[1].pages.remove(&6);
    let files = contents.map(|content| content.file().0);
    let error = compact(files.iter().map(Vec::as_slice), Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("page 7 after page 5 of a snapshot"), "{error}");
}

#[test]
fn files_with_and_without_checksums_make_one_without() {
    let golden = golden();
    let mixed = [&golden["tracked-1.ltx"][..], &golden["untracked-2.ltx"][..]];
    let merged = compact(mixed, Vec::new()).unwrap();
    assert_eq!(merged.header.base, BaseChecksum::Untracked);
    assert_eq!(verify(&merged.output[..]).unwrap().trailer.database, None);
    let mixed = [&golden["untracked-2.ltx"][..], &golden["tracked-3.ltx"][..]];
    let merged = compact(mixed, Vec::new()).unwrap();
    assert_eq!(merged.output, golden["untracked-2-3.ltx"]);
    assert_eq!(merged.header.txids.max(), txid(3));
}
