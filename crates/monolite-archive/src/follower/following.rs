//! Owns what the thread `monolite-follow` does: look for what comes next in the archive, and apply
//! it.
//!
//! # Algorithm
//! 1. Ask for the slot behind what is applied by its name. A group is applied once the leader
//!    record, read behind that, says that history has no gap there. A fence that the record lists
//!    is passed: the slot behind it is asked for from then on, and what is applied stays the same,
//!    as a copy of the database may still belong to it.
//! 2. Where the slot stays absent, look now and then whether there are later ones.
//! 3. Then, and at the beginning, list everything, and plan what leads on: levels bridge what was
//!    merged and deleted, or is damaged.
//! 4. Where nothing leads on, restore the newest state to a file beside the database, and commit
//!    all of its pages over what is there.
//!
//! # Invariants
//! - What is applied never goes back: `from` only rises, and no state before `to` is put in place.
//! - The record of the place covers what is about to be committed before it is ([`Place`]).

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use monolite::archive::Pages;
use monolite_ltx::{PageSize, Txid, TxidRange};

use super::marker::{Marker, Notes};
use super::pages::{Changed, IN_MEMORY, Whole};
use super::place::{Place, scratch_of};
use super::streamed::{Standing, Streamed, pause};
use super::{Shared, nothing_at};
use crate::archiver::position::directory_of;
use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::file::ArchivedFile;
use crate::layout::{Layout, Level};
use crate::plan::{Plan, Target};
use crate::record::{Fence, Record};
use crate::requests::leader;
use crate::restore::restore;
use crate::slot::Slot;
use crate::store::{Part, Store};
use crate::streaming::Peer;

/// After so many intervals without a new slot it is looked whether there are later ones.
const LOOK_PARTS: u32 = 30;

/// How many files are applied between two records of the place: as many are applied again, at once,
/// after a kill.
const AT_ONCE: usize = 64;

/// How often everything is listed again before a file that is listed and gone is taken for lost.
const LISTS: u32 = 2;

/// The longest rest between two attempts that fail.
const REST: Duration = Duration::from_secs(10);

/// What the thread works with.
pub(super) struct Following {
    pub(super) shared: Arc<Shared>,
    pub(super) path: PathBuf,
    pub(super) place: Place,
    /// As it was read last.
    pub(super) record: Option<Record>,
    pub(super) notes: Arc<Notes>,
    /// What was streamed since the last slot that was applied, if all of it is in the file.
    pub(super) streamed: Option<Streamed>,
    /// The slot to ask for. All between this and what is applied are fences.
    pub(super) next: Txid,
    /// When something came, or everything was listed; `None` before.
    pub(super) looked: Option<Instant>,
    /// How often everything was listed again since a file vanished.
    pub(super) lists: u32,
}

impl Following {
    /// Follows until it is told to end, or cannot go on.
    pub(super) fn run(mut self) -> Following {
        let interval = self.shared.archive.interval;
        let mut rest = interval;
        let (mut again, mut pausing) = (Instant::now(), interval);
        while !self.shared.is_ending() {
            let then = Instant::now();
            self.tells_who();
            match self.turn() {
                Ok(true) => rest = Duration::ZERO,
                Ok(false) => {
                    self.shared.had_all(then);
                    rest = interval;
                    let Some(peer) = self.peer().filter(|_| again <= Instant::now()) else {
                        self.shared.rest(rest);
                        continue;
                    };
                    match self.stream(&peer) {
                        Ok(true) => (rest, pausing) = (Duration::ZERO, interval),
                        Ok(false) => pausing = interval,
                        Err(error) => {
                            self.shared.streams(Some(&error));
                            again = Instant::now() + pausing;
                            pausing = pause(pausing, interval);
                        }
                    }
                }
                Err(error) => {
                    rest = (rest.max(interval) * 2).min(REST.max(interval));
                    // Until it is mended, each look is at everything.
                    self.looked = self.looked.filter(|_| self.streamed.is_some());
                    if self.shared.failed(&error) {
                        break;
                    }
                }
            }
            self.shared.rest(rest);
        }
        self
    }

    /// Applies what comes next, if something does.
    pub(super) fn turn(&mut self) -> Result<bool> {
        let is_first = self.looked.is_none();
        if is_first && self.streamed.is_some() && self.is_known() {
            // As before a kill: a list would lose what was streamed.
            self.look_at_record()?;
            self.looked = Some(Instant::now());
        }
        let Some(looked) = self.looked.filter(|_| self.is_known()) else {
            return self.catch_up();
        };
        let turned = match self.next_slot() {
            Err(error) if error.lost_file().is_some() => return self.catch_up(),
            turned => turned?,
        };
        if turned {
            self.looked = Some(Instant::now());
        } else if is_first || looked.elapsed() > self.shared.archive.interval * LOOK_PARTS {
            // An archive that is gone has no next slot either.
            self.look_at_record()?;
            self.looked = Some(Instant::now());
            if self.is_passed()? {
                return self.catch_up();
            }
        }
        self.shared.succeeded();
        Ok(turned)
    }

    fn applied(&self) -> Option<Txid> {
        Txid::new(self.place.from)
    }

    /// Whether the file is that of `from`.
    pub(super) fn is_certain(&self) -> bool {
        self.place.from == self.place.to && !self.place.is_spoiled
    }

    fn archive(&self) -> (Arc<dyn Store>, Layout) {
        (Arc::clone(&self.shared.archive.store), self.shared.archive.layout.clone())
    }

    /// The leader record, which is of the history that the file has.
    fn look_at_record(&mut self) -> Result<()> {
        let (store, layout) = self.archive();
        let record = leader(&*store, &layout)?;
        match (&record, self.place.lineage) {
            (Some(record), Some(lineage)) if record.lineage != lineage => {
                let message = format!(
                    "it has the history of another database, {}, and the file that of {lineage}: \
                     follow that to a new file",
                    record.lineage
                );
                return Err(Error::new(ErrorKind::Fenced, message));
            }
            (None, Some(_)) => return Err(nothing_at(&self.shared.archive.name, &self.path)),
            (Some(record), None) => self.place.lineage = Some(record.lineage),
            _ => {}
        }
        self.shared.note_record(record.as_ref());
        self.record = record;
        Ok(())
    }

    /// Looks at the next slot.
    fn next_slot(&mut self) -> Result<bool> {
        let (store, layout) = self.archive();
        let Some(applied) = self.applied() else { return self.catch_up() };
        let next = self.next;
        let Some(end) = store.get(&layout.slot(next), Part::End(Slot::FENCE_LEN))? else {
            return Ok(false);
        };
        self.look_at_record()?;
        let record = self.record.as_ref();
        let file =
            ArchivedFile { level: Level::SLOTS, txids: TxidRange::single(next), len: end.len };
        if file.len == Slot::FENCE_LEN {
            let counts = record.is_none_or(|record| {
                record.owner(next).is_none() || record.fences.iter().any(|it| it.slot == next)
            });
            if counts {
                self.passes_to(next);
            }
            return Ok(counts);
        }
        self.shared.note_newest(next, file.len);
        if record.is_some_and(|record| record.needs_copy(applied, next)) {
            return self.catch_up();
        }
        if self.streamed.is_some() && !self.is_certain() {
            match self.standing(file)? {
                Standing::IsAmong { is_all } => {
                    self.has_slot(next, is_all);
                    return Ok(true);
                }
                Standing::LeadsOn => self.place.to = next.get(),
                Standing::Unknown => return self.catch_up(),
            }
        }
        self.apply(&[file])?;
        self.passes_to(next);
        Ok(true)
    }

    /// Everything up to `txid` is applied, or a fence.
    pub(super) fn passes_to(&mut self, txid: Txid) {
        self.next = txid.next().unwrap_or(txid);
        self.shared.reached(self.place.from, txid);
    }

    /// Whether there are slots behind the next one.
    fn is_passed(&self) -> Result<bool> {
        let (store, layout) = self.archive();
        let later = store.list(&layout.level(Level::SLOTS), Some(&layout.slot(self.next)))?;
        Ok(later.objects.iter().any(|object| Layout::txids(&object.key).is_some()))
    }

    /// Applies all that is there.
    fn catch_up(&mut self) -> Result<bool> {
        let (store, layout) = self.archive();
        let catalog = Catalog::read(&*store, &layout)?;
        // Behind the list: it says where tokens are that what is listed has.
        self.look_at_record()?;
        let nothing = || Error::new(ErrorKind::NotFound, "no files are there");
        let newest = catalog.newest().ok_or_else(nothing)?;
        let bound = self.bound()?;
        Following::must_reach(newest, bound.unwrap_or(0))?;
        // What it has of a stream is told by slots from here on.
        self.streamed = None;
        let mut why = "another program has written to the file, or removed its WAL";
        if bound.is_none() {
            why = "what the primary had streamed was lost with it";
            if !self.is_succeeded(newest) {
                self.must_not_be_needed()?;
                self.place.replica = None;
            }
            self.place.is_spoiled = true;
        }
        // From here on slots have all of it, or a copy undoes it.
        let from = self.place.from;
        (self.place.to, self.place.epoch) = (bound.unwrap_or(from).max(from), None);
        let (mut lost, mut vanished, mut has_come) = (Vec::new(), None, false);
        while let Some(applied) = self.applied().filter(|_| !self.place.is_spoiled) {
            let files = match Plan::onward(&catalog.without(&lost), applied, newest) {
                Err(error) if matches!(error.kind(), ErrorKind::Gap | ErrorKind::NotFound) => {
                    if vanished.is_some() && self.lists < LISTS {
                        self.lists += 1;
                        self.looked = None;
                        return vanished.map_or(Ok(true), Err);
                    }
                    return self.replace(&error.to_string(), &catalog, newest);
                }
                files => files?,
            };
            has_come |= !files.is_empty();
            self.shared.note_newest(newest, files.iter().map(|file| file.len).sum());
            match self.apply(&files) {
                Err(error) if error.lost_file().is_some_and(|file| !lost.contains(&file)) => {
                    lost.extend(error.lost_file());
                    // It may have been merged since, which another list has.
                    vanished = Some(error).filter(|error| error.kind() == ErrorKind::NotFound);
                }
                Err(error) if error.kind() == ErrorKind::Conflict => break,
                applied => {
                    applied?;
                    self.lists = 0;
                    self.looked = Some(Instant::now());
                    self.passes_to(newest);
                    self.shared.succeeded();
                    return Ok(has_come);
                }
            }
        }
        self.replace(why, &catalog, newest)
    }

    /// Whether the archive up to `newest` has content of a later primary than the one that has
    /// streamed. That had all which was acknowledged: it was a replica itself, or an operator has
    /// said that it may lack some.
    fn is_succeeded(&self, newest: Txid) -> bool {
        let (Some(record), Some(epoch)) = (&self.record, self.place.epoch) else { return false };
        let has_copy = |fence: &Fence| fence.epoch > epoch && fence.copied_at.is_some();
        record.fences.iter().any(has_copy)
            || record.owner(record.below_fences(newest)).is_some_and(|owner| owner > epoch)
    }

    /// Whether others have what this file has acknowledged as a replica: it keeps that until a
    /// successor has archived its own.
    fn must_not_be_needed(&self) -> Result<()> {
        let mut listed = self.record.iter().flat_map(|record| &record.replicas);
        if !listed.any(|listed| Some(*listed) == self.place.replica) {
            return Ok(());
        }
        let message = "no successor of the primary has archived yet what this file has as a \
                       replica; this waits until one has";
        Err(Error::new(ErrorKind::Gap, message))
    }

    /// Where it is to stream from.
    fn peer(&self) -> Option<Peer> {
        let peer = self.shared.archive.stream_from.as_ref()?;
        if !peer.address.is_empty() {
            return Some(peer.clone());
        }
        let address = self.record.as_ref().map_or("", |record| &record.stream);
        (!address.is_empty()).then(|| peer.at(address))
    }

    /// Says which replica this is, while it is known what the file has.
    pub(super) fn tells_who(&self) {
        let replica = self.place.replica.filter(|_| self.is_known());
        let mut progress = self.shared.progress();
        progress.replica = replica;
        progress.look_for_bars();
    }

    /// Whether a file that may have everything up to `to` has nothing from behind `newest`.
    fn must_reach(newest: Txid, to: u64) -> Result<()> {
        if to <= newest.get() {
            return Ok(());
        }
        let message =
            format!("it ends at TXID {newest}, and the file has more; this waits until it goes on");
        Err(Error::new(ErrorKind::Gap, message))
    }

    /// Applies files that lead on: each as a commit, or all as one where it is not known how far
    /// the file is.
    fn apply(&mut self, files: &[ArchivedFile]) -> Result<()> {
        let Some(last) = files.last().map(|file| file.txids.max().get()) else {
            return Ok(());
        };
        self.streamed = None;
        if !self.is_certain() {
            self.place.begin(last, &self.path)?;
            self.commit(files)?;
            self.place.to = self.place.from;
            return Ok(());
        }
        for files in files.chunks(AT_ONCE) {
            let last = files.last().map_or(last, |file| file.txids.max().get());
            self.place.begin(last, &self.path)?;
            for file in files {
                if let Err(error) = self.commit(&[*file]) {
                    if error.kind() != ErrorKind::Io {
                        // Nothing of it was committed.
                        self.place.to = self.place.from;
                    }
                    return Err(error);
                }
            }
            self.place.to = self.place.from;
        }
        Ok(())
    }

    /// Applies files as one commit.
    fn commit(&mut self, files: &[ArchivedFile]) -> Result<()> {
        let (store, layout) = self.archive();
        let beside = directory_of(&self.path);
        let (mut groups, mut size) = (Vec::<Box<dyn Pages>>::new(), 0);
        for file in files {
            let most = IN_MEMORY / files.len();
            let changed = Changed::read(&*store, &layout, *file, most, &beside)?;
            self.must_fit(changed.header.page_size)?;
            // A fence among them says the size again that it had before.
            if changed.has_pages() {
                size = changed.header.commit;
                groups.push(Box::new(changed));
            }
        }
        let Some(last) = files.last().map(|last| last.txids.max()) else { return Ok(()) };
        // A copy may come that belongs to a fence at its end.
        let at = self.record.as_ref().map_or(last, |record| record.below_fences(last));
        if !groups.is_empty() {
            self.repeat(groups, size, &Marker::of_slot(self.place.from.max(at.get())))?;
        }
        self.shared.note_applied(files);
        self.is_at(at);
        Ok(())
    }

    /// What a commit has beside its pages, where the file has parts or may get some.
    fn marked(&self, marker: &Marker) -> Result<Option<Vec<u8>>> {
        let has = self.shared.archive.stream_from.is_some() || self.place.has_parts();
        has.then(|| marker.encode(self.shared.page_size)).transpose()
    }

    /// Commits pages. A file that another program has written to is spoiled.
    pub(super) fn repeat(
        &mut self,
        groups: Vec<Box<dyn Pages>>,
        size: u32,
        marker: &Marker,
    ) -> Result<()> {
        let marker = self.marked(marker)?;
        let Err(error) = self.shared.replica.repeat(groups, size, marker) else { return Ok(()) };
        if error.kind() != monolite::ErrorKind::Conflict {
            return Err(local(error));
        }
        (self.place.is_spoiled, self.place.replica) = (true, None);
        self.place.write(&self.path)?;
        Err(Error::new(ErrorKind::Conflict, error.to_string()))
    }

    /// The file is that of `txid`, and on disk.
    fn is_at(&mut self, txid: Txid) {
        self.place.from = self.place.from.max(txid.get());
        self.shared.reached(self.place.from, txid);
    }

    pub(super) fn must_fit(&self, page_size: PageSize) -> Result<()> {
        let is = self.shared.page_size;
        if page_size == is {
            return Ok(());
        }
        let message = format!(
            "its database has pages of {page_size} bytes now, and the file of {is}: follow it to a \
             new file"
        );
        Err(Error::new(ErrorKind::Fenced, message))
    }

    /// Puts the newest state in place of what the file has, as one commit.
    fn replace(&mut self, why: &str, catalog: &Catalog, newest: Txid) -> Result<bool> {
        let (store, layout) = self.archive();
        let scratch = scratch_of(&self.path);
        let (target, at) = newest_of(catalog, self.record.as_ref())?;
        Following::must_reach(target, self.place.to)?;
        self.shared.copies(why);
        match fs::remove_file(&scratch) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::of_io(format!("remove {}", scratch.display()), error));
            }
            _ => {}
        }
        let restored = restore(&*store, &layout, Target::Txid(target), &scratch)?;
        self.must_fit(restored.page_size)?;
        let whole = Whole::open(&scratch, restored.pages, restored.page_size)?;
        self.place.begin(target.get(), &self.path)?;
        let marker = self.marked(&Marker::of_slot(at.get()))?;
        self.shared.replica.replace(Box::new(whole), restored.pages, marker).map_err(local)?;
        self.lists = 0;
        self.place.is_spoiled = false;
        (self.place.from, self.place.to) = (at.get(), at.get());
        self.place.write(&self.path)?;
        // It is in the way of nothing.
        let _ = fs::remove_file(scratch);
        self.looked = Some(Instant::now());
        self.shared.note_applied(&[]);
        self.passes_to(newest);
        self.shared.succeeded();
        Ok(true)
    }
}

/// The newest state of an archive, and the TXID whose files lead on from it: fences at its end are
/// left out, unless it is a copy that belongs to them.
pub(super) fn newest_of(catalog: &Catalog, record: Option<&Record>) -> Result<(Txid, Txid)> {
    let nothing = || Error::new(ErrorKind::NotFound, "no files are there");
    let newest = catalog.newest().ok_or_else(nothing)?;
    let files = Plan::to(catalog, newest)?;
    let last = files.last().ok_or_else(nothing)?.txids;
    let record = record.filter(|_| !last.is_snapshot());
    Ok((last.max(), record.map_or(last.max(), |record| record.below_fences(last.max()))))
}

/// An error of the database that follows.
fn local(error: monolite::Error) -> Error {
    Error::new(ErrorKind::Io, format!("the file: {error}"))
}
