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
//! - What is applied never goes back.
//! - The record of the place covers what is about to be committed before it is ([`Place`]).

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use monolite::archive::Pages;
use monolite_ltx::{PageSize, Txid, TxidRange};

use super::Shared;
use super::pages::{Changed, IN_MEMORY, Whole};
use super::place::{Place, scratch_of};
use crate::archiver::position::directory_of;
use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::file::ArchivedFile;
use crate::layout::{Layout, Level};
use crate::plan::{Plan, Target};
use crate::record::Record;
use crate::requests::leader;
use crate::restore::restore;
use crate::slot::Slot;
use crate::store::{Part, Store};

/// After so many intervals without a new slot it is looked whether there are later ones.
const LOOK_PARTS: u32 = 30;

/// How many files are applied between two records of the place: as many are applied again, at once,
/// after a kill.
const AT_ONCE: usize = 64;

/// The longest rest between two attempts that fail.
const REST: Duration = Duration::from_secs(10);

/// What the thread works with.
pub(super) struct Following {
    pub(super) shared: Arc<Shared>,
    pub(super) path: PathBuf,
    pub(super) page_size: PageSize,
    pub(super) place: Place,
    /// The slot to ask for. All between this and what is applied are fences.
    pub(super) next: Txid,
    /// When something came, or everything was listed; `None` before.
    pub(super) looked: Option<Instant>,
}

impl Following {
    /// Follows until it is told to end, or cannot go on.
    pub(super) fn run(mut self) -> Following {
        let interval = self.shared.archive.interval;
        let mut rest = interval;
        while !self.shared.is_ending() {
            match self.turn() {
                Ok(true) => rest = Duration::ZERO,
                Ok(false) => rest = interval,
                Err(error) => {
                    rest = (rest.max(interval) * 2).min(REST.max(interval));
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
        let Some(looked) = self.looked.filter(|_| self.is_certain()) else {
            return self.catch_up();
        };
        let turned = match self.next_slot() {
            Err(error) if error.lost_file().is_some() => return self.catch_up(),
            turned => turned?,
        };
        if turned {
            self.looked = Some(Instant::now());
        } else if looked.elapsed() > self.shared.archive.interval * LOOK_PARTS {
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
    fn is_certain(&self) -> bool {
        self.place.from == self.place.to && !self.place.is_spoiled
    }

    fn archive(&self) -> (Arc<dyn Store>, Layout) {
        (Arc::clone(&self.shared.archive.store), self.shared.archive.layout.clone())
    }

    /// The leader record, which is of the history that the file has.
    fn record(&mut self) -> Result<Option<Record>> {
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
            (None, Some(lineage)) => {
                let message = format!("the leader record of {lineage} is gone; put it back");
                return Err(Error::new(ErrorKind::NotFound, message));
            }
            (Some(record), None) => self.place.lineage = Some(record.lineage),
            _ => {}
        }
        self.shared.note_record(record.as_ref());
        Ok(record)
    }

    /// Looks at the next slot.
    fn next_slot(&mut self) -> Result<bool> {
        let (store, layout) = self.archive();
        let Some(applied) = self.applied() else { return self.catch_up() };
        let next = self.next;
        let Some(end) = store.get(&layout.slot(next), Part::End(Slot::FENCE_LEN))? else {
            return Ok(false);
        };
        let record = self.record()?;
        let file =
            ArchivedFile { level: Level::SLOTS, txids: TxidRange::single(next), len: end.len };
        if file.len == Slot::FENCE_LEN {
            let counts = record.as_ref().is_none_or(|record| {
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
        self.apply(&[file])?;
        self.passes_to(next);
        Ok(true)
    }

    /// Everything up to `txid` is applied, or a fence.
    fn passes_to(&mut self, txid: Txid) {
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
        self.record()?;
        let catalog = Catalog::read(&*store, &layout)?;
        let nothing = || Error::new(ErrorKind::NotFound, "no files are there");
        let newest = catalog.newest().ok_or_else(nothing)?;
        if newest.get() < self.place.to {
            let message = format!(
                "it ends at TXID {newest}, and the file has more; this waits until it goes on"
            );
            return Err(Error::new(ErrorKind::Gap, message));
        }
        let (mut lost, mut has_come) = (Vec::new(), false);
        while let Some(applied) = self.applied().filter(|_| !self.place.is_spoiled) {
            let files = match Plan::onward(&catalog.without(&lost), applied, newest) {
                Err(error) if matches!(error.kind(), ErrorKind::Gap | ErrorKind::NotFound) => {
                    return self.replace(&error.to_string(), &catalog, newest);
                }
                files => files?,
            };
            has_come |= !files.is_empty();
            self.shared.note_newest(newest, files.iter().map(|file| file.len).sum());
            match self.apply(&files) {
                Err(error) if error.lost_file().is_some_and(|file| !lost.contains(&file)) => {
                    lost.extend(error.lost_file());
                }
                Err(error) if error.kind() == ErrorKind::Conflict => break,
                applied => {
                    applied?;
                    self.looked = Some(Instant::now());
                    self.passes_to(newest);
                    self.shared.succeeded();
                    return Ok(has_come);
                }
            }
        }
        self.replace("another program has written to the file", &catalog, newest)
    }

    /// Applies files that lead on: each as a commit, or all as one where it is not known how far
    /// the file is.
    fn apply(&mut self, files: &[ArchivedFile]) -> Result<()> {
        let Some(last) = files.last().map(|file| file.txids.max().get()) else {
            return Ok(());
        };
        if !self.is_certain() {
            self.place.begin(last, &self.path)?;
            return self.commit(files);
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
            size = changed.header.commit;
            // A fence among them has none.
            if file.len > Slot::FENCE_LEN {
                groups.push(Box::new(changed));
            }
        }
        if let Err(error) = self.shared.replica.repeat(groups, size) {
            if error.kind() != monolite::ErrorKind::Conflict {
                return Err(local(error));
            }
            self.place.is_spoiled = true;
            self.place.write(&self.path)?;
            return Err(Error::new(ErrorKind::Conflict, error.to_string()));
        }
        self.shared.note_applied(files);
        files.last().into_iter().for_each(|last| self.is_at(last.txids.max()));
        Ok(())
    }

    /// The file is that of `txid`, and on disk.
    fn is_at(&mut self, txid: Txid) {
        assert!(self.place.from <= txid.get(), "what is applied never goes back");
        self.place.from = txid.get();
        self.place.to = self.place.to.max(txid.get());
        self.shared.reached(txid.get(), txid);
    }

    fn must_fit(&self, page_size: PageSize) -> Result<()> {
        if page_size == self.page_size {
            return Ok(());
        }
        let message = format!(
            "its database has pages of {page_size} bytes now, and the file of {}: follow it to a \
             new file",
            self.page_size
        );
        Err(Error::new(ErrorKind::Fenced, message))
    }

    /// Puts the newest state in place of what the file has, as one commit.
    fn replace(&mut self, why: &str, catalog: &Catalog, newest: Txid) -> Result<bool> {
        let (store, layout) = self.archive();
        let scratch = scratch_of(&self.path);
        let files = Plan::to(catalog, newest)?;
        let target = files.last().map_or(newest, |file| file.txids.max());
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
        self.shared.replica.replace(Box::new(whole), restored.pages).map_err(local)?;
        self.place.is_spoiled = false;
        (self.place.from, self.place.to) = (target.get(), target.get());
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

/// An error of the database that follows.
fn local(error: monolite::Error) -> Error {
    Error::new(ErrorKind::Io, format!("the file: {error}"))
}
