//! Varints and index entries against bytes.

use super::*;

#[test]
fn varints_are_those_of_go() {
    // From `binary.AppendUvarint`.
    for (value, bytes) in [
        (0, &[0][..]),
        (1, &[1]),
        (127, &[127]),
        (128, &[0x80, 1]),
        (300, &[0xAC, 2]),
        (16_384, &[0x80, 0x80, 1]),
        (u64::MAX, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
    ] {
        let mut written = Vec::new();
        put_varint(value, &mut written);
        assert_eq!(written, bytes);
    }
}

#[test]
fn index_is_these_bytes_and_the_expected_one_its_sum() {
    let pages =
        [(1, 100, 289), (200, 389, 34)].map(|(n, at, len)| (Pgno::new(n).unwrap(), at, len));
    let (mut writer, mut expected) = (IndexWriter::default(), ExpectedIndex::new());
    for (pgno, offset, length) in pages {
        writer.add(pgno, offset, length);
        expected.add(pgno, offset, length);
    }
    let bytes = writer.finish();
    let entries = [1, 100, 0xA1, 2, 0xC8, 1, 0x85, 3, 34, 0];
    assert_eq!(bytes, [&entries[..], &[0, 0, 0, 0, 0, 0, 0, 10]].concat());
    let mut digest = Digest::new();
    digest.update(&bytes);
    assert_eq!(expected.finish(), (bytes.len() as u64, digest.sum()));
}

#[test]
fn index_without_pages_is_a_zero() {
    assert_eq!(IndexWriter::default().finish(), [0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(ExpectedIndex::new().finish().0, 9);
}

#[test]
fn entries_are_no_longer_than_the_limit_says() {
    let longest = u64::from(u32::try_from(frame::max_len(crate::PageSize::MAX)).unwrap());
    let mut bytes = Vec::new();
    put_entry(Pgno::MAX, u64::MAX, longest, &mut bytes);
    assert_eq!(bytes.len() as u64, MAX_ENTRY_LEN);
}
