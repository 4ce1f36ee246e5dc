//! Ranges, and which names are names of files.

use super::*;

fn range(min: u64, max: u64) -> TxidRange {
    TxidRange::new(Txid::new(min).unwrap(), Txid::new(max).unwrap()).unwrap()
}

#[test]
fn names_are_read_back() {
    for (min, max) in [(1, 1), (1, 9), (2, 2), (0xabc, 0xdef), (u64::MAX, u64::MAX)] {
        let name = range(min, max).file_name();
        assert_eq!(TxidRange::from_file_name(&name).unwrap(), range(min, max));
        assert_eq!(name.len(), 37);
    }
}

#[test]
fn other_names_are_refused() {
    for name in [
        "",
        "0000000000000001-0000000000000001",
        "0000000000000001-0000000000000001.ltx.tmp",
        "x/0000000000000001-0000000000000001.ltx",
        "0000000000000001_0000000000000001.ltx",
        "000000000000001-0000000000000001.ltx",
        "+000000000000001-0000000000000001.ltx",
        "00000000000000AB-00000000000000AB.ltx",
        "0000000000000000-0000000000000001.ltx",
        "0000000000000002-0000000000000001.ltx",
        "000000000000000é-0000000000000001.ltx",
    ] {
        let error = TxidRange::from_file_name(name).unwrap_err();
        assert!(error.to_string().contains("is no name of an LTX file"), "{error}");
    }
}

#[test]
fn range_continues_where_nothing_lacks() {
    let earlier = range(3, 5);
    for (min, max) in [(6, 6), (6, 9), (5, 6), (2, 6), (1, 6)] {
        assert!(range(min, max).continues(earlier), "{min}-{max}");
    }
    for (min, max) in [(7, 7), (3, 5), (4, 4), (1, 5)] {
        assert!(!range(min, max).continues(earlier), "{min}-{max}");
    }
    assert!(!range(u64::MAX, u64::MAX).continues(range(1, u64::MAX)));
}

#[test]
fn numbers_begin_at_one() {
    assert_eq!(Txid::new(0), None);
    assert_eq!(Txid::new(u64::MAX).unwrap().next(), None);
    assert_eq!(Txid::FIRST.next().unwrap().get(), 2);
    assert!(TxidRange::new(Txid::new(2).unwrap(), Txid::FIRST).is_err());
    assert!(range(1, 2).is_snapshot() && !range(2, 2).is_snapshot());
    assert!(range(2, 4).contains(Txid::new(4).unwrap()));
}
