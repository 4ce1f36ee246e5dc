//! Owns what an archive needs beside uploads: slots merged into fewer files, a snapshot a day, and
//! what need not be kept deleted.
//!
//! # Algorithm
//! 1. The archive is listed when a term begins, and again behind each copy of the database; from
//!    then on the uploads say which slots are new. A list must lead to the newest TXID without
//!    files that were found damaged, or a copy of the whole database is next.
//! 2. When a span of a level is over, merge what is of earlier spans by the times of the files, and
//!    what was there already when the span before was over ([`compact_span`]); every day make a
//!    snapshot of files that are there; every hour list again, and plan what may go
//!    ([`Retention`]): a snapshot that another process made since must go together with the files
//!    behind it, or a restore to a later time would begin and end there.
//! 3. Slots are deleted as the protocol says: the plan goes to the thread that uploads, which
//!    renews the record and gives a [`Deletion`] back. The record then says how much time was seen,
//!    also when there are no slots to be deleted.
//! 4. When something fails, the rest is done all the same, and what failed is tried again in the
//!    next turn. When it fails because of the content of files, all that it has read is read, and
//!    what is damaged is left out from then on. A level goes on behind a hole when a snapshot ends
//!    there: within a day.
//! 5. When everything is merged, rest until something is uploaded: an idle database makes no
//!    requests.
//!
//! Spans, days and hours are of the time that primaries have seen pass ([`Seeing`]). The time of
//! day has no part in this.
//!
//! # Threads and locks
//! `monolite-upkeep`, so that no upload waits for it. The lock is held for a few instructions.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use monolite_ltx::{Timestamp, Txid};

use super::failures::Activity;
use super::{Archive, Shared};
use crate::catalog::Catalog;
use crate::compaction::{SPANS, compact_span, inputs, snapshot, snapshot_at};
use crate::error::{Error, ErrorKind, Result};
use crate::file::ArchivedFile;
use crate::layout::{Layout, Level};
use crate::plan::Plan;
use crate::protocol::{Covered, Deletion};
use crate::requests::{Pace, boottime, run as run_machine};
use crate::retention::{Horizon, Keep, Retention};
use crate::seen::Seeing;
use crate::store::{Fetched, Listing, Part, Store, Tag};
use crate::verify::verify_file;

impl Archive {
    /// For how long what is archived is kept, counted in time during which a database was open with
    /// this archive; `None`: for ever. Default: each TXID by itself for an
    /// hour, and for 30 days what follows the snapshots of those days; of that a moment is kept
    /// about every 30 seconds for the first hours and every hour later.
    #[must_use]
    pub fn keep(mut self, keep: Option<Keep>) -> Archive {
        self.keep = keep;
        self
    }
}

/// How many new slots wait to be merged before they are forgotten and the archive is listed again:
/// more than a day of one a second.
const MOST_NEW: usize = 100_000;

/// How often something is looked through, in milliseconds of the time that was seen.
const HOUR: u32 = 3_600_000;
const DAY: u32 = 86_400_000;

/// What the thread that uploads and this one tell each other.
#[derive(Debug, Default)]
pub(super) struct Noticeboard {
    state: Mutex<Notices>,
}

#[derive(Debug, Default)]
struct Notices {
    new: Vec<ArchivedFile>,
    /// Whether the archive has to be listed, because not everything new is known.
    is_unknown: bool,
    asked: Option<Vec<Covered>>,
    allowed: Option<Deletion>,
    /// How many terms have begun.
    terms: u64,
    /// The time that was seen.
    seeing: Seeing,
}

/// Requests of an earlier term get no answer.
#[derive(Debug)]
struct AnotherTerm;

impl Noticeboard {
    fn state(&self) -> MutexGuard<'_, Notices> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot was filled.
    pub(super) fn filled(&self, slot: ArchivedFile) {
        let mut state = self.state();
        if state.new.len() >= MOST_NEW {
            state.new.clear();
            state.is_unknown = true;
        }
        state.new.push(slot);
    }

    /// A new term has begun, and others may have written before; its time is counted by `seeing`.
    pub(super) fn begun(&self, seeing: Seeing) {
        let mut state = self.state();
        state.is_unknown = true;
        (state.asked, state.allowed) = (None, None);
        state.terms += 1;
        state.seeing = seeing;
    }

    /// The time that was seen; everything up to `txid` is there.
    pub(super) fn seen(&self, txid: Txid, clock: Duration) -> Seeing {
        let mut state = self.state();
        state.seeing.note(txid, clock);
        state.seeing.clone()
    }

    /// A copy of the database has come behind the fence. What was listed before lacks it, and would
    /// be merged with what follows it.
    pub(super) fn copied(&self) {
        self.state().is_unknown = true;
    }

    /// Asks whether slots may be deleted; the result is the term in which it is asked.
    fn ask(&self, slots: Vec<Covered>) -> u64 {
        let mut state = self.state();
        state.asked = Some(slots);
        state.terms
    }

    /// What was asked in a term, once it is allowed.
    fn answered(&self, term: u64) -> Result<Option<Deletion>, AnotherTerm> {
        let mut state = self.state();
        if state.terms != term {
            return Err(AnotherTerm);
        }
        Ok(state.allowed.take())
    }

    /// Slots that are to be deleted, if a deletion was requested.
    pub(super) fn asked(&self) -> Option<Vec<Covered>> {
        self.state().asked.take()
    }

    /// Whether something came since the archive was listed that a list must have.
    pub(super) fn is_unknown(&self) -> bool {
        self.state().is_unknown
    }

    pub(super) fn is_asked(&self) -> bool {
        self.state().asked.is_some()
    }

    /// They may be deleted so.
    pub(super) fn allow(&self, deletion: Deletion) {
        self.state().allowed = Some(deletion);
    }
}

/// Runs until the database is closed or fenced.
pub(super) fn run(shared: &Shared) {
    let mut upkeep = Upkeep::new(shared.archive.keep);
    let every = shared.archive.upkeep;
    while shared.rest_until(Instant::now() + every) {
        let store = Stoppable { store: shared.archive.store.as_ref(), shared };
        let slots = upkeep.turn(shared, &store, shared.passed());
        if shared.is_ending() {
            return;
        }
        if let Some(lost) = upkeep.lost.take() {
            shared.is_lost(&lost);
        }
        if let Some(slots) = slots {
            upkeep.delete(shared, &store, slots);
        }
    }
}

/// What is known of the archive.
struct Upkeep {
    keep: Option<Keep>,
    catalog: Option<Catalog>,
    /// Whether everything is merged that there is.
    is_done: bool,
    /// The term whose time is counted.
    term: u64,
    /// The span of each level when it was merged last, and the newest TXID then.
    merged: [(u64, Option<Txid>); SPANS.len()],
    /// The day of the last snapshot.
    day: u64,
    /// The hour in which it was planned last what may go.
    planned: Option<u64>,
    /// Whether something has failed in this turn.
    has_failed: bool,
    /// Why the newest state cannot be restored, until that is told.
    lost: Option<Error>,
    /// Files that are not what was written. All goes on as if they were not there.
    damaged: Vec<ArchivedFile>,
    /// The newest TXID that was uploaded in this term.
    filled: Option<Txid>,
}

/// What is never the number of a span: it is over.
const OVER: u64 = u64::MAX;

impl Upkeep {
    fn new(keep: Option<Keep>) -> Upkeep {
        Upkeep {
            keep,
            catalog: None,
            is_done: true,
            term: 0,
            merged: [(0, None); SPANS.len()],
            day: 0,
            planned: None,
            has_failed: false,
            lost: None,
            damaged: Vec::new(),
            filled: None,
        }
    }

    /// Does what is due when the monotonic clock says `clock`: what fails keeps nothing else
    /// from being done. The result are slots to be deleted, or none, so that the record is renewed.
    fn turn(
        &mut self,
        shared: &Shared,
        store: &dyn Store,
        clock: Duration,
    ) -> Option<Vec<Covered>> {
        let (new, is_unknown, term, seeing) = {
            let mut state = shared.notices.state();
            let new = std::mem::take(&mut state.new);
            if let Some(slot) = new.last() {
                state.seeing.note(slot.txids.max(), clock);
            }
            (new, std::mem::take(&mut state.is_unknown), state.terms, state.seeing.clone())
        };
        if std::mem::replace(&mut self.term, term) != term {
            self.begin_term(shared, &seeing);
        }
        self.filled = self.filled.max(new.last().map(|slot| slot.txids.max()));
        if is_unknown {
            self.catalog = None;
        }
        if new.is_empty() && self.is_done && !is_unknown {
            return None;
        }
        (self.is_done, self.has_failed) = (false, false);
        let mut catalog = match self.catalog.take() {
            Some(catalog) => catalog,
            None => {
                let listed = self.list(store, &shared.archive.layout);
                self.note(shared, Activity::Listing, listed)?
            }
        };
        new.into_iter().for_each(|slot| catalog.insert(slot));
        let now = seeing.at(clock);
        self.merge(shared, store, &mut catalog, now);
        self.snapshot(shared, store, &mut catalog, now);
        let slots = self.expire(shared, store, &mut catalog, &seeing, clock);
        self.is_done = slots.is_none() && !self.has_failed && is_merged(&catalog);
        // What fails half-way is listed again.
        self.catalog = (!self.has_failed).then_some(catalog);
        slots
    }

    /// The term before was in the middle of a span of each level, and of a day. What has failed in
    /// it is due.
    fn begin_term(&mut self, shared: &Shared, seeing: &Seeing) {
        let has_failed = |activity| shared.failures().has(activity);
        let number = |activity, span| {
            if has_failed(activity) { OVER } else { number(seeing.before(), span) }
        };
        self.filled = None;
        self.merged = SPANS.map(|(level, span)| (number(Activity::Merging(level), span), None));
        self.day = number(Activity::Snapshot, DAY);
    }

    /// Merges into each level what is of spans that are over.
    fn merge(&mut self, shared: &Shared, store: &dyn Store, catalog: &mut Catalog, now: Duration) {
        let layout = &shared.archive.layout;
        for (at, (level, span)) in SPANS.into_iter().enumerate() {
            let (last, over) = self.merged[at];
            if last == number(now, span) {
                continue;
            }
            let merged = loop {
                match compact_span(store, layout, catalog, level, span, over) {
                    Ok(Some(_)) => {}
                    ended => break ended,
                }
            };
            let merged = merged.map_err(|error| {
                let newest = catalog.files().iter().max_by_key(|file| file.txids.max()).copied();
                let read = inputs(catalog, level)
                    .map(|inputs| inputs.into_iter().chain(newest).collect::<Vec<_>>());
                self.find_damage(store, layout, catalog, read, error)
            });
            if self.note(shared, Activity::Merging(level), merged).is_some() {
                self.merged[at] = (number(now, span), catalog.newest());
            }
        }
    }

    /// Makes a snapshot each day, if there is something new.
    fn snapshot(
        &mut self,
        shared: &Shared,
        store: &dyn Store,
        catalog: &mut Catalog,
        now: Duration,
    ) {
        let layout = &shared.archive.layout;
        if self.day == number(now, DAY) {
            return;
        }
        let made = match behind_snapshots(catalog) {
            Some(newest) => snapshot(store, layout, catalog, newest).map(drop).map_err(|error| {
                let read = Plan::to(catalog, snapshot_at(catalog, newest));
                self.find_damage(store, layout, catalog, read, error)
            }),
            None => Ok(()),
        };
        if self.note(shared, Activity::Snapshot, made).is_some() {
            self.day = number(now, DAY);
        }
    }

    /// Deletes each hour files that have expired. The result are the slots that have, once an hour.
    fn expire(
        &mut self,
        shared: &Shared,
        store: &dyn Store,
        catalog: &mut Catalog,
        seeing: &Seeing,
        clock: Duration,
    ) -> Option<Vec<Covered>> {
        let hour = Some(number(seeing.at(clock), HOUR));
        if self.planned == hour {
            return None;
        }
        let older_than = |age| seeing.older_than(age, clock);
        let horizon = |keep: Keep| Horizon {
            slots: older_than(keep.slots),
            snapshots: older_than(keep.snapshots),
        };
        let expired = match self.keep.map(horizon) {
            Some(horizon) => self.delete_files(store, &shared.archive.layout, catalog, horizon),
            None => Ok(Vec::new()),
        };
        let slots = self.note(shared, Activity::Expiry, expired)?;
        self.planned = hour;
        Some(slots)
    }

    /// Deletes files that are older than `horizon`. The result are the slots that are.
    fn delete_files(
        &mut self,
        store: &dyn Store,
        layout: &Layout,
        catalog: &mut Catalog,
        horizon: Horizon,
    ) -> Result<Vec<Covered>> {
        // What is damaged and not behind the oldest snapshot goes as all that is not.
        let oldest = catalog.level(Level::SNAPSHOTS).first().map(|file| file.txids.max());
        self.damaged.retain(|file| oldest.is_none_or(|oldest| file.txids.max() > oldest));
        *catalog = self.list(store, layout)?;
        let retention = Retention::new(catalog, horizon)?;
        retention.delete_files(store, layout)?;
        catalog.remove(&retention.files);
        Ok(retention.slots)
    }

    /// Lists the archive, whose newest state must be there.
    fn list(&mut self, store: &dyn Store, layout: &Layout) -> Result<Catalog> {
        let catalog = Catalog::read(store, layout)?;
        let newest = catalog.newest().max(self.filled);
        let catalog = catalog.without(&self.damaged);
        if let Some(newest) = newest {
            Plan::to(&catalog, newest).inspect_err(|error| self.lost = Some(error.clone()))?;
        }
        Ok(catalog)
    }

    /// When an activity has failed because some file that it has `read` is not what was written,
    /// finds those, and goes on without them. The result names the first of them.
    fn find_damage(
        &mut self,
        store: &dyn Store,
        layout: &Layout,
        catalog: &mut Catalog,
        read: Result<Vec<ArchivedFile>>,
        failed: Error,
    ) -> Error {
        let mut first = None;
        let files = read.ok().filter(|_| failed.is_about_content()).unwrap_or_default();
        for file in files {
            match verify_file(store, layout, file) {
                Err(error) if error.is_about_content() => {
                    self.damaged.push(file);
                    first.get_or_insert(error);
                }
                // It is searched again when the activity has failed again.
                _ => {}
            }
        }
        *catalog = catalog.without(&self.damaged);
        first.unwrap_or(failed)
    }

    /// Takes note of what came of an activity; a close that ends it is no failure.
    fn note<T>(&mut self, shared: &Shared, activity: Activity, came: Result<T>) -> Option<T> {
        self.has_failed |= came.is_err();
        if came.is_err() && shared.is_ending() {
            return None;
        }
        shared.note(activity, came)
    }

    /// Deletes slots, once the thread that uploads has said that they may go.
    fn delete(&mut self, shared: &Shared, store: &dyn Store, slots: Vec<Covered>) {
        let files: Vec<ArchivedFile> = slots.iter().map(Covered::file).collect();
        let term = shared.notices.ask(slots);
        shared.changed.notify_one();
        let mut deletion = loop {
            match shared.notices.answered(term) {
                Ok(Some(deletion)) => break deletion,
                // It is waiting for the store, or has a large group under way.
                Ok(None) if shared.rest_until(Instant::now() + Duration::from_millis(100)) => {}
                Ok(None) => return,
                Err(AnotherTerm) => {
                    // What may go is planned anew.
                    (self.catalog, self.planned, self.is_done) = (None, None, false);
                    return;
                }
            }
        };
        let mut pace = Patience { shared };
        if let Some(ran) = run_machine(&mut deletion, store, &shared.archive.layout, &mut pace) {
            match shared.note(Activity::Deletion, ran) {
                Some(_) => self.catalog.iter_mut().for_each(|catalog| catalog.remove(&files)),
                None => self.catalog = None,
            }
        }
    }
}

/// How many spans of so many milliseconds were over.
fn number(seen: Duration, span: u32) -> u64 {
    u64::try_from(seen.as_millis() / u128::from(span)).unwrap_or(u64::MAX)
}

/// Whether each level has everything of the one below that will ever be merged into it.
fn is_merged(catalog: &Catalog) -> bool {
    let has_all = |(level, _)| inputs(catalog, level).is_ok_and(|files| files.is_empty());
    SPANS.into_iter().all(has_all)
}

/// The newest TXID, if the newest snapshot has not all that a snapshot would have.
fn behind_snapshots(catalog: &Catalog) -> Option<Txid> {
    let last = catalog.level(Level::SNAPSHOTS).last()?;
    catalog.newest().filter(|newest| snapshot_at(catalog, *newest) > last.txids.max())
}

/// A store that nothing is asked of any more once the database is being closed.
struct Stoppable<'a> {
    store: &'a dyn Store,
    shared: &'a Shared,
}

impl Stoppable<'_> {
    fn check(&self) -> Result<()> {
        if self.shared.is_ending() {
            return Err(Error::new(ErrorKind::Lost, "the database is being closed"));
        }
        Ok(())
    }
}

impl Store for Stoppable<'_> {
    fn create(&self, key: &str, body: &[u8], time: Option<Timestamp>) -> Result<Tag> {
        self.check()?;
        self.store.create(key, body, time)
    }

    fn create_from(
        &self,
        key: &str,
        about: u64,
        time: Option<Timestamp>,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<Tag> {
        self.check()?;
        self.store.create_from(key, about, time, write)
    }

    fn swap(&self, key: &str, body: &[u8], expected: &Tag) -> Result<Tag> {
        self.check()?;
        self.store.swap(key, body, expected)
    }

    fn get(&self, key: &str, part: Part) -> Result<Option<Fetched>> {
        self.check()?;
        self.store.get(key, part)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Listing> {
        self.check()?;
        self.store.list(prefix, after)
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.check()?;
        self.store.delete(key)
    }
}

/// The time in which a deletion runs.
struct Patience<'a> {
    shared: &'a Shared,
}

impl Pace for Patience<'_> {
    fn now(&self) -> Duration {
        boottime()
    }

    fn wait(&mut self, until: Duration) -> bool {
        let rest = until.saturating_sub(boottime());
        self.shared.rest_until(Instant::now() + rest)
    }

    fn failed(&mut self, error: &Error) {
        if !self.shared.is_ending() {
            self.shared.failed(Activity::Deletion, error);
        }
    }
}
