//! The text of a record, and what is none.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use monolite::archive::ArchiveToken;
use monolite_ltx::Txid;

use super::{Epoch, Fence, Holder, Lineage, Record, State};
use crate::ErrorKind;
use crate::seen::Seeing;

fn txid(number: u64) -> Txid {
    Txid::new(number).unwrap()
}

fn record() -> Record {
    let (lineage, holder) = (Lineage::from_bits(0xab), Holder::from_bits(1 << 127));
    let ttl = Duration::from_secs(10);
    let mut record = Record::first(Epoch(0), lineage, holder, ttl).unwrap();
    let fence =
        |epoch, slot, carried_to| Fence { carried_to, ..Fence::new(Epoch(epoch), txid(slot)) };
    record.add_fences([fence(4, 40, Some(txid(44))), fence(1, 2, None)]);
    record
}

#[test]
fn record_is_read_as_it_was_written() {
    let record = record();
    let text = record.encode().unwrap();
    assert_eq!(Record::decode(&text).unwrap(), record);
    let text = String::from_utf8(text).unwrap();
    assert_eq!(
        text,
        r#"{"format":1,"lineage":"000000000000000000000000000000ab","epoch":1,"#.to_owned()
            + r#""holder":"80000000000000000000000000000000","state":"taking","address":"","#
            + r#""ttl_ms":10000,"counter":0,"fences":[{"epoch":1,"slot":"0000000000000002"},"#
            + r#"{"epoch":4,"slot":"0000000000000028","carried_to":"000000000000002c"}]}"#
    );
}

#[test]
fn record_says_where_a_copy_is_that_closes_a_gap() {
    let mut record = record();
    record.add_fences([Fence { copied_at: Some(txid(51)), ..Fence::new(Epoch(5), txid(50)) }]);
    let text = String::from_utf8(record.encode().unwrap()).unwrap();
    let fence = r#"{"epoch":5,"slot":"0000000000000032","copied_at":"0000000000000033"}]}"#;
    assert!(text.ends_with(fence), "{text}");
    assert_eq!(Record::decode(text.as_bytes()).unwrap(), record);
    let before = text.replace("0000000000000033", "0000000000000031");
    assert_eq!(Record::decode(before.as_bytes()).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn owner_is_whose_fence_was_last() {
    let record = record();
    let owners = [1, 2, 39, 40, 41].map(|number| record.owner(txid(number)));
    let (one, four) = (Some(Epoch(1)), Some(Epoch(4)));
    assert_eq!(owners, [None, one, one, four, four]);
    assert!(record.lists(Epoch(4), txid(40)) && !record.lists(Epoch(4), txid(2)));
}

/// The record of a history whose terms begin at these slots, by epoch, slot and what is carried.
fn history(fences: &[(u64, u64, Option<u64>)]) -> Record {
    let fence = |&(epoch, slot, carried): &(u64, u64, Option<u64>)| Fence {
        carried_to: carried.map(txid),
        ..Fence::new(Epoch(epoch), txid(slot))
    };
    let mut record = record();
    record.fences.clear();
    record.add_fences(fences.iter().map(fence));
    record
}

/// Where a token of an epoch is, or the kind of the error.
fn located(record: &Record, epoch: u64, txid: u64) -> Result<u64, ErrorKind> {
    let token = ArchiveToken { lineage: record.lineage.bits(), epoch, txid };
    record.locate(token).map(Txid::get).map_err(|error| error.kind())
}

#[test]
fn a_token_of_the_present_epoch_is_where_it_says() {
    let record = history(&[(1, 2, Some(2)), (2, 10, Some(10))]);
    assert_eq!(located(&record, 1, 9), Ok(9), "it was archived before the epoch ended");
    assert_eq!(located(&record, 2, 11), Ok(11));
    assert_eq!(located(&record, 2, 900), Ok(900), "it may come");
    assert_eq!(located(&record, 3, 900), Err(ErrorKind::Invalid), "nobody had that epoch");
    assert_eq!(located(&record, 2, u64::MAX), Ok(u64::MAX));
    assert_eq!(located(&record, 2, 0), Err(ErrorKind::Invalid));
    let token = ArchiveToken { lineage: 7, epoch: 2, txid: 11 };
    assert_eq!(record.locate(token).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn what_was_not_archived_is_where_the_next_epochs_carried_it() {
    let record = history(&[(1, 2, Some(2)), (2, 10, Some(13)), (5, 20, Some(20))]);
    assert_eq!(located(&record, 1, 10), Ok(13));
    assert_eq!(located(&record, 1, 15), Ok(13), "it was reckoned too high");
    assert_eq!(located(&record, 2, 25), Ok(20), "nothing was left of it");
    // The second epoch ended with a part of it, too.
    let record = history(&[(1, 2, Some(2)), (2, 10, Some(13)), (3, 12, Some(14))]);
    assert_eq!(located(&record, 1, 10), Ok(14));
    // One in between never served.
    let record = history(&[(1, 2, Some(2)), (2, 10, None), (3, 11, Some(12))]);
    assert_eq!(located(&record, 1, 10), Ok(12));
    assert_eq!(located(&record, 1, 9), Ok(9));
    let record = history(&[(1, 2, Some(2)), (2, 10, None)]);
    assert_eq!(located(&record, 1, 10), Err(ErrorKind::NotFound), "not yet");
}

#[test]
fn what_a_take_over_left_behind_is_nowhere() {
    let record = history(&[(1, 2, Some(2)), (2, 10, Some(9)), (3, 20, Some(20))]);
    assert_eq!(located(&record, 1, 9), Ok(9));
    assert_eq!(located(&record, 1, 10), Err(ErrorKind::NotFound));
    assert_eq!(located(&record, 2, 20), Ok(20));
    // Neither by one who never served, behind it or before it.
    let record = history(&[(1, 2, Some(2)), (2, 10, None), (3, 11, Some(10)), (4, 12, Some(15))]);
    assert_eq!(located(&record, 1, 10), Err(ErrorKind::NotFound));
}

#[test]
fn a_fence_of_who_gave_up_moves_what_lies_behind_it() {
    let record = history(&[(1, 2, Some(2)), (3, 10, Some(10)), (2, 12, None)]);
    assert_eq!(located(&record, 3, 11), Ok(11));
    assert_eq!(located(&record, 3, 12), Ok(13));
    assert_eq!(located(&record, 1, 11), Ok(10), "of all that comes behind it the tail is first");
}

#[test]
fn next_epoch_keeps_lineage_and_fences() {
    let before = Record { state: State::Released, counter: 9, ..record() };
    let taken = before.taken_by(Holder::from_bits(3), Duration::from_secs(3)).unwrap();
    assert_eq!((taken.epoch, taken.counter, taken.state), (Epoch(2), 0, State::Taking));
    assert_eq!((taken.lineage, &taken.fences), (before.lineage, &before.fences));
    let last = Record { epoch: Epoch(u64::MAX), ..before };
    assert!(last.taken_by(Holder::from_bits(3), Duration::ZERO).is_none());
    assert!(Record::first(last.epoch, last.lineage, last.holder, Duration::ZERO).is_none());
}

#[test]
fn lease_is_of_its_holder_alone() {
    let leased = Record { has_lease: true, ..record() };
    let text = String::from_utf8(leased.encode().unwrap()).unwrap();
    assert!(text.contains(r#""ttl_ms":10000,"has_lease":true,"#), "{text}");
    assert_eq!(Record::decode(text.as_bytes()).unwrap(), leased);
    let taken = leased.taken_by(Holder::from_bits(3), Duration::from_secs(3)).unwrap();
    assert!(!taken.has_lease);
}

#[test]
fn time_that_was_seen_is_kept_by_the_next_epoch() {
    let mut seeing = Seeing::begin(record().seen, Duration::ZERO);
    for (number, seconds) in [(40, 1), (44, 90)] {
        seeing.note(txid(number), Duration::from_secs(seconds));
    }
    let before = Record { seen: seeing.seen().clone(), ..record() };
    let text = String::from_utf8(before.encode().unwrap()).unwrap();
    let marks = r#","seen":[{"txid":"0000000000000028","ms":1000},"#.to_owned()
        + r#"{"txid":"000000000000002c","ms":90000}]}"#;
    assert!(text.ends_with(&marks), "{text}");
    assert_eq!(Record::decode(text.as_bytes()).unwrap(), before);
    let taken = before.taken_by(Holder::from_bits(3), Duration::from_secs(3)).unwrap();
    assert_eq!(taken.seen, before.seen);
    let falls = text.replace("90000", "900");
    assert_eq!(Record::decode(falls.as_bytes()).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn newest_fences_are_kept_and_the_text_stays_within_its_limit() {
    let mut record = Record { address: "x".repeat(Record::ADDRESS), ..record() };
    let fences = (0..Record::FENCES as u64 + 5).map(|at| Fence {
        epoch: Epoch(u64::MAX),
        slot: txid(u64::MAX - at),
        carried_to: Some(txid(u64::MAX)),
        copied_at: Some(txid(u64::MAX)),
    });
    record.add_fences(fences);
    assert_eq!(record.fences.len(), Record::FENCES);
    assert_eq!(record.fences.last().unwrap().slot, txid(u64::MAX));
    let text = record.encode().unwrap();
    assert!(text.len() as u64 * 2 <= Record::LIMIT, "{}", text.len());
    assert_eq!(Record::decode(&text).unwrap(), record);
}

#[test]
fn a_gap_is_crossed_by_the_copy_that_belongs_to_its_fence_alone() {
    let mut record = history(&[(1, 2, None), (2, 10, None), (3, 11, None), (4, 20, None)]);
    let below = |record: &Record, at| record.below_fences(txid(at)).get();
    assert_eq!([9, 10, 11, 12].map(|at| below(&record, at)), [9, 9, 9, 12]);
    assert!(!record.needs_copy(txid(9), txid(30)), "no fence has a copy");
    // A snapshot alone has it.
    record.fences[2].copied_at = Some(txid(11));
    let needs = |record: &Record, from, to| record.needs_copy(txid(from), txid(to));
    assert!(needs(&record, 9, 12) && needs(&record, 9, 11) && needs(&record, 10, 12));
    assert!(!needs(&record, 11, 30), "it was applied");
    assert!(!needs(&record, 8, 9), "it is not reached");
    // The slot behind the fence has all pages.
    record.fences[2].copied_at = Some(txid(12));
    assert!(needs(&record, 9, 11) && !needs(&record, 9, 12) && !needs(&record, 9, 30));
}

#[test]
fn what_is_no_record_is_refused_by_kind() {
    let text = String::from_utf8(record().encode().unwrap()).unwrap();
    let kind = |text: &str| Record::decode(text.as_bytes()).unwrap_err().kind();
    assert_eq!(kind(""), ErrorKind::Corrupt);
    assert_eq!(kind(&text[..text.len() - 1]), ErrorKind::Corrupt);
    assert_eq!(kind(&text.replace("\"format\":1", "\"format\":3")), ErrorKind::Unsupported);
    // Of replicas, and there are none.
    assert_eq!(kind(&text.replace("\"format\":1", "\"format\":2")), ErrorKind::Corrupt);
    assert_eq!(kind(&text.replace("\"epoch\":1,", "\"epoch\":0,")), ErrorKind::Corrupt);
    assert_eq!(kind(&text.replace("0000000000000028", "0000000000000002")), ErrorKind::Corrupt);
    assert_eq!(kind(&text.replace("0000000000000028", "0000000000000000")), ErrorKind::Corrupt);
    assert_eq!(kind(&text.replace("taking", "TAKING")), ErrorKind::Corrupt);
    assert_eq!(kind(&"[".repeat(100_000)), ErrorKind::Corrupt);
    let long = Record { address: "x".repeat(Record::ADDRESS + 1), ..record() };
    assert_eq!(long.encode().unwrap_err().kind(), ErrorKind::Invalid);
    let newer = text.replace("\"counter\"", "\"zone\":\"b\",\"counter\"");
    assert_eq!(Record::decode(newer.as_bytes()).unwrap(), record());
}
