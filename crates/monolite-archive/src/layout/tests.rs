//! Keys as Litestream has them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use monolite_ltx::{Txid, TxidRange};

use super::{Layout, Level, LevelKeys};

#[test]
fn keys_are_those_of_litestream() {
    let txids = TxidRange::new(Txid::FIRST, Txid::new(0x1a).unwrap()).unwrap();
    let decimal = Layout::new("ledger/main", LevelKeys::Decimal).unwrap();
    assert_eq!(
        decimal.file(Level::SNAPSHOTS, txids),
        "ledger/main/ltx/9/0000000000000001-000000000000001a.ltx"
    );
    let hexadecimal = Layout::new("ledger", LevelKeys::Hexadecimal).unwrap();
    let two = Txid::new(2).unwrap();
    assert_eq!(hexadecimal.slot(two), "ledger/0000/0000000000000002-0000000000000002.ltx");
    assert_eq!(Layout::directory().leader(), "monolite/leader");
    assert_eq!(Layout::txids(&decimal.file(Level::SNAPSHOTS, txids)), Some(txids));
    assert_eq!(Layout::txids("ledger/monolite/leader"), None);
}

#[test]
fn prefix_stays_below_its_bucket() {
    for prefix in ["/", "a//b", "../a", "a/.", "a/"] {
        assert!(Layout::new(prefix, LevelKeys::Decimal).is_err(), "{prefix}");
    }
}

#[test]
fn only_compacted_levels_are_made_of_the_one_below() {
    assert_eq!(Level::SLOTS.below(), None);
    assert_eq!(Level::FIRST.below(), Some(Level::SLOTS));
    assert_eq!(Level::SNAPSHOTS.below(), None);
    assert_eq!(Level::new(10), None);
    assert_eq!(Level::all().count(), 10);
}
