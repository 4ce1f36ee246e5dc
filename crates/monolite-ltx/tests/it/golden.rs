//! Files that the original wrote, in `tests/golden`: what they say, and what is made of them.
//!
//! `tests/reference` has the program that wrote them and the text beside them:
//! `go run . golden "" ../golden`, `go run -modfile=old.mod . golden old- ../golden`, and
//! `go run . dump ../golden/*.ltx >../golden/dump.txt`.

use monolite_ltx::{Encoder, ErrorKind, compact, verify};

use crate::support::{Content, beside, dump, golden, pgno};

#[test]
fn files_of_the_original_say_what_it_says_of_them() {
    let text = std::fs::read_to_string(beside("golden/dump.txt")).unwrap();
    let ours: String = golden().iter().map(|(name, file)| dump(name, file).unwrap()).collect();
    for (ours, theirs) in ours.lines().zip(text.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours, text);
    assert_eq!(golden().len(), 36);
}

#[test]
fn pinned_sums_are_found() {
    let golden = golden();
    for (name, length, sum) in [
        ("two-pages.ltx", 462, "9072106a5cfc5717"),
        ("no-pages.ltx", 131, "c9bca1d85fc47379"),
        ("sparse.ltx", 310, "e27f4c18f0da2c10"),
    ] {
        let file = verify(&golden[name][..]).unwrap();
        assert_eq!((file.len, file.trailer.file.to_string()), (length, sum.into()), "{name}");
    }
}

#[test]
fn file_without_pages_is_written_byte_for_byte() {
    let golden = golden();
    let file = &golden["no-pages.ltx"];
    let content = Content::of(file).unwrap();
    assert_eq!(content.file().0, *file);
    assert_eq!(golden["old-no-pages.ltx"], *file);
}

#[test]
fn files_are_merged_as_by_the_original_byte_for_byte() {
    let golden = golden();
    for kind in ["tracked", "untracked"] {
        let file = |part: &str| &golden[&format!("{kind}-{part}.ltx")][..];
        let all = [file("1"), file("2"), file("3"), file("4")];
        assert_eq!(compact(all, Vec::new()).unwrap().output, file("1-4"), "{kind}");
        assert_eq!(compact(all[1..3].to_vec(), Vec::new()).unwrap().output, file("2-3"), "{kind}");
        let stepwise = [file("1"), file("2-3"), file("4")];
        assert_eq!(compact(stepwise, Vec::new()).unwrap().output, file("1-4"), "{kind}");
    }
}

#[test]
fn old_files_become_new_ones_with_the_same_content() {
    let golden = golden();
    let old: Vec<_> = golden.iter().filter(|(name, _)| name.starts_with("old-")).collect();
    assert_eq!(old.len(), 18);
    for (name, file) in old {
        let merged = compact([&file[..]], Vec::new()).unwrap();
        let (old, new) = (Content::of(file).unwrap(), Content::of(&merged.output).unwrap());
        assert_eq!((&old.pages, old.database), (&new.pages, new.database), "{name}");
        let twin = Content::of(&golden[name.strip_prefix("old-").unwrap()]).unwrap();
        assert_eq!((old.header, &old.pages), (twin.header, &twin.pages), "{name}");
    }
}

#[test]
fn snapshot_that_says_another_checksum_than_its_pages_have_is_not_written() {
    let golden = golden();
    let (mut content, other) =
        ["tracked-1.ltx", "tracked-2.ltx"].map(|name| Content::of(&golden[name]).unwrap()).into();
    let right = content.database;
    content.database = other.database;
    let mut encoder = Encoder::new(Vec::new(), content.header).unwrap();
    for (number, page) in &content.pages {
        encoder.page(pgno(*number), page).unwrap();
    }
    let error = encoder.finish(content.database).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains(&right.unwrap().to_string()), "{error}");
}
