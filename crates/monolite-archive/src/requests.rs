//! Owns how the requests of the protocol are done with a store, and the loop that runs a machine.

use std::time::Duration;

use monolite_ltx::{Header, Txid};

use crate::error::{Error, Result};
use crate::layout::{Layout, Level};
use crate::protocol::{Machine, Reply, Request, Step};
use crate::record::Record;
use crate::slot::{Found, Slot};
use crate::store::{Part, Store};

/// How long the rest after the first failure in a row is, and the longest.
const RESTS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(10)];

/// Time, as a machine is run in it.
pub trait Pace {
    /// The time of a clock that no one sets and that counts while the machine sleeps
    /// (`CLOCK_BOOTTIME`).
    fn now(&self) -> Duration;

    /// Returns when that clock says `until`; false when whoever runs this wants no more of it.
    fn wait(&mut self, until: Duration) -> bool;
}

/// Runs `machine` to its end: after failures in a row it rests for longer and longer, up to ten
/// seconds. `None` when `pace` wants no more of it, in which case a request may be under way.
pub fn run<M: Machine>(
    machine: &mut M,
    store: &dyn Store,
    layout: &Layout,
    pace: &mut dyn Pace,
) -> Option<M::Outcome> {
    let mut step = machine.step(None, pace.now());
    let mut rest = RESTS[0];
    loop {
        let reply = match step {
            Step::Ended(outcome) => return Some(outcome),
            Step::Wait(until) => {
                if !pace.wait(until) {
                    return None;
                }
                None
            }
            Step::Ask(request) => {
                let reply = carry_out(store, layout, &request);
                if matches!(reply, Reply::Failed(_)) {
                    if !pace.wait(pace.now().saturating_add(rest)) {
                        return None;
                    }
                    rest = (rest * 2).min(RESTS[1]);
                } else {
                    rest = RESTS[0];
                }
                Some(reply)
            }
        };
        step = machine.step(reply, pace.now());
    }
}

/// Does a request.
pub fn carry_out(store: &dyn Store, layout: &Layout, request: &Request) -> Reply {
    let reply = match request {
        Request::ReadRecord => read_record(store, layout).map(Reply::Record),
        Request::WriteRecord(record, over) => record.encode().and_then(|text| {
            let key = layout.leader();
            let written = match over {
                Some(tag) => store.swap(&key, &text, tag),
                None => store.create(&key, &text, None),
            };
            written.map(Reply::Written)
        }),
        Request::FindNewest => newest(store, layout).map(Reply::Newest),
        Request::Look(slot) => look(store, layout, *slot).map(Reply::Slot),
        Request::Put(slot) => {
            let (key, time) = (layout.slot(slot.txid()), slot.header().timestamp);
            store.create(&key, slot.bytes(), Some(time)).map(|_| Reply::Done)
        }
        Request::Delete(slot) => store.delete(&layout.slot(*slot)).map(|()| Reply::Done),
    };
    reply.unwrap_or_else(Reply::Failed)
}

/// The leader record of an archive; `None` when it has none, as Litestream's.
///
/// # Errors
/// Those of the store and of [`Record::decode`].
pub fn leader(store: &dyn Store, layout: &Layout) -> Result<Option<Record>> {
    Ok(read_record(store, layout)?.map(|(record, _)| *record))
}

fn read_record(
    store: &dyn Store,
    layout: &Layout,
) -> Result<Option<(Box<Record>, crate::store::Tag)>> {
    let Some(object) = store.get(&layout.leader(), Part::Whole(Record::LIMIT))? else {
        return Ok(None);
    };
    Ok(Some((Box::new(Record::decode(&object.bytes)?), object.tag)))
}

fn newest(store: &dyn Store, layout: &Layout) -> Result<Option<Txid>> {
    let (prefix, mut newest, mut after) = (layout.level(Level::SLOTS), None, None);
    loop {
        let listing = store.list(&prefix, after.as_deref())?;
        let slots = listing.objects.iter().filter_map(|object| Layout::txids(&object.key));
        newest = newest.max(slots.map(|txids| txids.max()).max());
        after = match listing.objects.last() {
            Some(last) if listing.is_cut => Some(last.key.clone()),
            _ => return Ok(newest),
        };
    }
}

/// Looks into a slot: a fence takes one request, a group two.
fn look(store: &dyn Store, layout: &Layout, txid: Txid) -> Result<Option<Found>> {
    let key = layout.slot(txid);
    loop {
        let Some(end) = store.get(&key, Part::End(Slot::FENCE_LEN))? else { return Ok(None) };
        let found = if end.len <= Slot::FENCE_LEN {
            Found::read(&end.bytes, &end.bytes, end.len)?
        } else {
            let first = store.get(&key, Part::Range(0..Header::LEN as u64))?;
            // Between the two requests the slot was deleted, or is another: once more.
            let Some(first) = first.filter(|first| (first.len, &first.tag) == (end.len, &end.tag))
            else {
                continue;
            };
            Found::read(&first.bytes, &end.bytes, end.len)?
        };
        let txids = found.header.txids;
        if txids != monolite_ltx::TxidRange::single(txid) {
            return Err(Error::corrupt(format!("slot {txid} has the file {txids}")));
        }
        return Ok(Some(found));
    }
}
