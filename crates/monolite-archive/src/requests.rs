//! Owns how the requests of the protocol are done with a store, and the loop that runs a machine.

use std::time::Duration;

use monolite_ltx::{Header, Txid};
use rustix::time::{ClockId, clock_gettime};

use crate::error::{Error, ErrorKind, Result};
use crate::file::{ArchivedFile, beginning, each_file};
use crate::layout::{Layout, Level};
use crate::protocol::{Machine, Reply, Request, Step};
use crate::record::Record;
use crate::slot::{Found, Slot};
use crate::store::{Part, Store};

/// How long the rest after the first failure in a row is, and the longest.
const RESTS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(10)];

/// How long the rest is where something is there already: a claim climbs over all that a busy
/// primary has filled until that one has seen the claim, a slot at a time.
const CLIMB: Duration = Duration::from_millis(1);

/// How often a slot is looked at that is another one each time.
const LOOKS: u32 = 10;

/// Time, as a machine is run in it.
pub trait Pace {
    /// The time of a clock that no one sets and that counts while the machine sleeps
    /// (`CLOCK_BOOTTIME`).
    fn now(&self) -> Duration;

    /// Returns when that clock says `until`; false when the caller wants to stop.
    fn wait(&mut self, until: Duration) -> bool;

    /// Does a request; `None` when the caller wants to stop before it is answered.
    fn ask(&mut self, store: &dyn Store, layout: &Layout, request: &Request) -> Option<Reply> {
        Some(carry_out(store, layout, request))
    }

    /// A request has failed, and is not the last one.
    fn failed(&mut self, error: &Error) {
        let _ = error;
    }
}

/// The time of `CLOCK_BOOTTIME`.
pub(crate) fn boottime() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Runs `machine` to its end: after failures in a row it rests for longer and longer, up to ten
/// seconds. It does not when another process was faster, as a claim meets slots of a primary that
/// goes on to fill them. A read that succeeds ends no row, as one lies between any two attempts to
/// write. `None` when `pace` wants to stop; a request may be under way then.
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
                rest = RESTS[0];
                None
            }
            Step::Ask(request) => {
                let reply = pace.ask(store, layout, &request)?;
                if let Reply::Failed(error) = &reply {
                    pace.failed(error);
                    // Another process was faster: a longer rest would keep this one behind for
                    // good.
                    let is_answer = matches!(error.kind(), ErrorKind::Exists | ErrorKind::Conflict);
                    rest = if is_answer { RESTS[0] } else { rest };
                    let now = if error.kind() == ErrorKind::Exists { CLIMB } else { rest };
                    if !pace.wait(pace.now().saturating_add(now)) {
                        return None;
                    }
                    rest = if is_answer { rest } else { (rest * 2).min(RESTS[1]) };
                } else if !request.is_read() {
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
        Request::FindMerged => newest_merged(store, layout).map(Reply::Merged),
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
    let Some(newest) = newest_file(store, layout, Level::SLOTS)? else { return Ok(None) };
    // There is no slot of its last TXID, and a claim would look for it for ever.
    if newest.txids.min() != newest.txids.max() {
        let key = newest.key(layout);
        let message = format!("{key:?} has several TXIDs, and is where slots are; move it away");
        return Err(Error::corrupt(message));
    }
    Ok(Some(newest.txids.max()))
}

/// What the newest file begins with that is not a slot.
fn newest_merged(store: &dyn Store, layout: &Layout) -> Result<Option<Header>> {
    let mut newest: Option<ArchivedFile> = None;
    for level in Level::all().filter(|level| *level > Level::SLOTS) {
        let files = newest.into_iter().chain(newest_file(store, layout, level)?);
        newest = files.max_by_key(|file| file.txids.max());
    }
    newest.map(|file| file.header(store, layout)).transpose()
}

/// The file of a level that ends last; of several the one that begins last.
fn newest_file(store: &dyn Store, layout: &Layout, level: Level) -> Result<Option<ArchivedFile>> {
    let mut newest: Option<ArchivedFile> = None;
    each_file(store, layout, level, |file| {
        let end = |file: &ArchivedFile| (file.txids.max(), file.txids.min());
        newest = newest.into_iter().chain([file]).max_by_key(end);
        Ok(())
    })?;
    Ok(newest)
}

/// Looks into a slot: a fence takes one request, a group two.
fn look(store: &dyn Store, layout: &Layout, txid: Txid) -> Result<Option<Found>> {
    let key = layout.slot(txid);
    for _ in 0..LOOKS {
        let Some(end) = store.get(&key, Part::End(Slot::FENCE_LEN))? else { return Ok(None) };
        let found = if end.len <= Slot::FENCE_LEN {
            Found::read(&key, &end.bytes, &end.bytes, end.len)?
        } else {
            let first = beginning(store, &key)?;
            // Between the two requests the slot was deleted, or is another: once more.
            let Some(first) = first.filter(|first| (first.len, &first.tag) == (end.len, &end.tag))
            else {
                continue;
            };
            Found::read(&key, &first.bytes, &end.bytes, end.len)?
        };
        let txids = found.header.txids;
        if txids != monolite_ltx::TxidRange::single(txid) {
            return Err(Error::corrupt(format!("slot {txid} has the file {txids}")));
        }
        return Ok(Some(found));
    }
    let message = format!(
        "{key:?} has another tag at each read; remove any cache or replica in front of the bucket"
    );
    Err(Error::new(ErrorKind::Lost, message))
}
