//! Fences to the byte, and what is no slot.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use monolite_ltx::{
    BaseChecksum, Encoder, Header, PageSize, Timestamp, Txid, TxidRange, WalSpan, verify,
};

use super::{Found, Place, Slot};
use crate::record::Epoch;

fn txid(number: u64) -> Txid {
    Txid::new(number).unwrap()
}

fn place() -> Place {
    Place {
        page_size: PageSize::new(512).unwrap(),
        commit: 2,
        time: Timestamp::from_millis(1_700_000_000_000),
    }
}

#[test]
fn fence_is_the_file_that_others_take_for_one_without_pages() {
    let fence = Slot::fence(Epoch(7), txid(4), place()).unwrap();
    // The sum is that of a file that `superfly/ltx` wrote of the same header.
    assert_eq!(fence.bytes().len() as u64, Slot::FENCE_LEN);
    assert_eq!(fence.id().sum.to_string(), "c9bca1d85fc47379");
    let verified = verify(fence.bytes()).unwrap();
    assert_eq!(
        (verified.pages, verified.header.commit, verified.header.wal),
        (0, 2, Some(WalSpan { offset: 32, size: 0, salts: [0; 2] }))
    );
    let found = Found::read("a slot", fence.bytes(), fence.bytes(), Slot::FENCE_LEN).unwrap();
    assert!(found.is_fence());
    assert_eq!((found.epoch(), found.id), (Epoch(7), fence.id()));
}

#[test]
fn fence_of_an_empty_database_cannot_be() {
    assert!(Slot::fence(Epoch(1), txid(2), Place { commit: 0, ..place() }).is_err());
}

#[test]
fn slot_has_one_txid_and_is_no_snapshot() {
    for (min, max) in [(1, 1), (2, 3)] {
        let header = Header {
            page_size: place().page_size,
            commit: 1,
            txids: TxidRange::new(txid(min), txid(max)).unwrap(),
            timestamp: place().time,
            base: BaseChecksum::Untracked,
            wal: None,
            node_id: 1,
        };
        let mut encoder = Encoder::new(Vec::new(), header).unwrap();
        encoder.page(monolite_ltx::Pgno::new(1).unwrap(), &[1; 512]).unwrap();
        assert!(Slot::new(encoder.finish(None).unwrap().output).is_err());
    }
}

#[test]
fn what_is_too_short_is_no_slot() {
    let fence = Slot::fence(Epoch(7), txid(4), place()).unwrap();
    for len in [0, 24, 99, 130] {
        let cut = &fence.bytes()[..len];
        assert!(Found::read("a slot", cut, cut, len as u64).is_err(), "{len}");
    }
}
