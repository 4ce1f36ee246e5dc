//! Headers and trailers against bytes, and what is refused of them.

use super::*;

fn header() -> Header {
    Header {
        page_size: PageSize::new(4096).unwrap(),
        commit: 0x0102_0304,
        txids: TxidRange::new(Txid::new(5).unwrap(), Txid::new(6).unwrap()).unwrap(),
        timestamp: Timestamp::from_millis(-2),
        base: BaseChecksum::Database(Checksum::from_bits(0x8000_0000_0000_0007).unwrap()),
        wal: Some(WalSpan { offset: 32, size: 0x2000, salts: [0xAABB_CCDD, 8] }),
        node_id: 9,
    }
}

#[test]
fn header_is_these_bytes() {
    let mut bytes = b"LTX1".to_vec();
    bytes.extend([0, 0, 0, 0, 0, 0, 0x10, 0, 1, 2, 3, 4]);
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6]);
    bytes.extend([0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFE]);
    bytes.extend([0x80, 0, 0, 0, 0, 0, 0, 7]);
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0x20, 0]);
    bytes.extend([0xAA, 0xBB, 0xCC, 0xDD, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9]);
    bytes.extend([0; 20]);
    assert_eq!(header().encode().unwrap()[..], bytes);
    assert_eq!(Header::decode(bytes[..].first_chunk().unwrap()).unwrap(), header());
    // The last 20 are passed over.
    bytes[99] = 1;
    assert_eq!(Header::decode(bytes[..].first_chunk().unwrap()).unwrap(), header());
}

#[test]
fn header_without_checksums_and_wal_is_read_back() {
    let header = Header { base: BaseChecksum::Untracked, wal: None, ..header() };
    let bytes = header.encode().unwrap();
    assert_eq!(bytes[4..8], [0, 0, 0, 2]);
    assert_eq!(bytes[40..72], [0; 32]);
    assert_eq!(Header::decode(&bytes).unwrap(), header);
}

#[test]
fn parts_that_contradict_each_other_are_refused() {
    let snapshot = TxidRange::single(Txid::FIRST);
    let wal = |offset, size| Some(WalSpan { offset, size, salts: [0; 2] });
    for (bad, text) in [
        (Header { base: BaseChecksum::Snapshot, ..header() }, "is no snapshot"),
        (Header { txids: snapshot, ..header() }, "is a snapshot; nothing was before it"),
        (Header { commit: u32::MAX, ..header() }, "a size of 4294967295 pages"),
        (Header { wal: wal(0, 0), ..header() }, "0 bytes of a WAL at its byte 0"),
        (Header { wal: wal(1 << 63, 0), ..header() }, "of a WAL at its byte 92233"),
        (Header { wal: wal(1, 1 << 63), ..header() }, "bytes of a WAL at its byte 1"),
    ] {
        let error = bad.encode().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn trailer_is_these_bytes() {
    let sum = |low: u64| Checksum::from_bits(1 << 63 | low).unwrap();
    let trailer = Trailer { database: Some(sum(1)), file: sum(2) };
    let bytes = [0x80, 0, 0, 0, 0, 0, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 2];
    assert_eq!(trailer.encode(), bytes);
    assert_eq!(Trailer::decode(bytes, &header(), 0).unwrap(), trailer);
    let untracked = Header { base: BaseChecksum::Untracked, ..header() };
    let trailer = Trailer { database: None, file: sum(2) };
    assert_eq!(trailer.encode()[..8], [0; 8]);
    assert_eq!(Trailer::decode(trailer.encode(), &untracked, 0).unwrap(), trailer);
    // Each is refused in a file of the other kind.
    assert_eq!(Trailer::decode(trailer.encode(), &header(), 7).unwrap_err().offset(), Some(7));
    assert_eq!(Trailer::decode(bytes, &untracked, 7).unwrap_err().offset(), Some(7));
}

#[test]
fn empty_database_has_the_checksum_of_nothing() {
    let empty = Header { commit: 0, ..header() };
    let with = |database| Trailer { database, file: Checksum::EMPTY_DATABASE }.encode();
    assert!(Trailer::decode(with(Some(Checksum::EMPTY_DATABASE)), &empty, 0).is_ok());
    let other = Checksum::from_bits(1 << 63 | 1);
    assert!(Trailer::decode(with(other), &empty, 0).is_err());
}
