//! Every bit that is not as it was written is noticed, or changes nothing that is read.

use std::ops::Range;

use monolite_ltx::{Decoder, ErrorKind, Footer, verify};

use crate::support::{Content, golden};

/// Where the compressed bytes of a file are: all that no sum covers, and in old frames the lengths
/// of blocks.
fn compressed(file: &[u8]) -> Vec<Range<usize>> {
    let mut decoder = Decoder::new(file).unwrap();
    let (mut ranges, mut start) = (Vec::new(), decoder.offset() as usize);
    while decoder.next_page().unwrap().is_some() {
        let end = decoder.offset() as usize;
        ranges.push(start + if file[start + 5] == 1 { 10 } else { 6 }..end);
        start = end;
    }
    ranges
}

#[test]
fn flipped_bit_is_noticed_or_changes_nothing() {
    let golden = golden();
    let (mut harmless, mut flips) = (0, 0);
    for name in ["two-pages", "no-pages", "tracked-2", "tracked-2-3", "old-tracked-2", "lock-page"]
    {
        let file = &golden[&format!("{name}.ltx")];
        let (before, compressed) = (Content::of(file).unwrap(), compressed(file));
        let mut flipped = file.clone();
        for bit in 0..file.len() * 8 {
            let at = bit / 8;
            flipped[at] ^= 1 << (bit % 8);
            flips += 1;
            match Content::of(&flipped) {
                Err(error) => assert_ne!(error.kind(), ErrorKind::Io, "{name}, bit {bit}: {error}"),
                Ok(after) => {
                    assert!(
                        compressed.iter().any(|range| range.contains(&at)),
                        "{name}, bit {bit}"
                    );
                    assert_eq!(after, before, "{name}, bit {bit}");
                    harmless += 1;
                }
            }
            flipped[at] = file[at];
        }
    }
    // Some there are, or this could not tell that they are harmless.
    assert!(harmless > 0 && harmless < flips / 100, "{harmless} of {flips}");
}

#[test]
fn file_that_ends_too_early_is_truncated_at_every_length() {
    let golden = golden();
    for name in ["two-pages", "no-pages", "tracked-2", "old-tracked-2", "lock-page"] {
        let file = &golden[&format!("{name}.ltx")];
        for length in 0..file.len() {
            let error = verify(&file[..length]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Truncated, "{name}, {length}: {error}");
            assert_eq!(error.offset(), Some(length as u64), "{name}: {error}");
        }
    }
}

#[test]
fn two_files_in_one_are_refused() {
    let golden = golden();
    let file = [&golden["two-pages.ltx"][..], &golden["no-pages.ltx"][..]].concat();
    let error = verify(&file[..]).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupt, Some(462)), "{error}");
}

/// A file of `golden` with some bytes in place of others.
fn with(name: &str, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = golden()[name].clone();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

#[test]
fn error_says_what_is_wrong_and_where() {
    let two = "two-pages.ltx";
    let (corrupt, unsupported) = (ErrorKind::Corrupt, ErrorKind::Unsupported);
    for (at, bytes, kind, offset, text) in [
        (0, &b"LTX4"[..], unsupported, 0, "LTX version 4, which may be encrypted"),
        (0, b"SQLi", corrupt, 0, "no LTX file: it begins with SQLi"),
        (4, &[0, 0, 0, 6], unsupported, 4, "an encrypted file"),
        (4, &[0, 0, 0, 3], unsupported, 4, "the flags 0x1"),
        (8, &[0, 0, 2, 1], corrupt, 8, "a page size of 513"),
        (12, &[255; 4], corrupt, 0, "a size of 4294967295 pages"),
        (12, &[0, 0, 0, 1], corrupt, 389, "page 2 of a database of 1 pages"),
        (12, &[0, 0, 0, 3], corrupt, 429, "a snapshot of 3 pages without page 3"),
        (16, &[0; 8], corrupt, 16, "TXIDs from 0000000000000000 to 0000000000000001"),
        (40, &[128], corrupt, 40, "in a file that keeps none"),
        (48, &[128], corrupt, 0, "0 bytes of a WAL at its byte 9223372036854775840"),
        (55, &[0, 1], corrupt, 48, "without a place"),
        (100, &[255; 4], corrupt, 100, "the page number 4294967295"),
        (103, &[2], corrupt, 100, "page 2 after page 0 of a snapshot"),
        (104, &[0, 9], unsupported, 104, "page 1 with the flags 0x0009"),
        (106, &[255; 4], corrupt, 106, "in 4294967295 compressed bytes, of 1 to 530"),
        (106, &[0; 4], corrupt, 106, "in 0 compressed bytes"),
        (110, &[0x1F], corrupt, 110, "page 1: no LZ4 block of 512 bytes"),
        (430, &[1], corrupt, 429, "the index is not that of the pages"),
        (446, &[128], corrupt, 446, "in a file that keeps none"),
        (454, &[0], corrupt, 454, "whose bit 63 is not set"),
        (
            461,
            &[0],
            corrupt,
            454,
            "the checksum 9072106a5cfc5700 of a file that has 9072106a5cfc5717",
        ),
    ] {
        let error = verify(&with(two, at, bytes)[..]).unwrap_err();
        assert_eq!((error.kind(), error.offset()), (kind, Some(offset)), "{error}");
        assert!(error.to_string().contains(text), "{error}, and not {text:?}");
        assert!(error.to_string().ends_with(&format!("at byte {offset}")), "{error}");
    }
}

#[test]
fn footer_with_an_index_that_cannot_be_is_refused() {
    let (file, end) = (&golden()["two-pages.ltx"], 462 - Footer::LEN);
    let header = *Decoder::new(&file[..]).unwrap().header();
    let footer = |at: usize, bytes: &[u8]| {
        let file = with("two-pages.ltx", at, bytes);
        Footer::decode(file.last_chunk().unwrap(), &header, 462)
    };
    assert_eq!(footer(0, b"").unwrap().trailer(), verify(&file[..]).unwrap().trailer);
    for (at, bytes, text) in [
        (end, &[255; 8][..], "an index of 18446744073709551615 bytes; at most"),
        (end + 7, &[0], "an index of 0 bytes"),
        (end + 7, &[38], "an index of 38 bytes; at most 37 are possible"),
    ] {
        let error = footer(at, bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(text), "{error}, and not {text:?}");
    }
}
