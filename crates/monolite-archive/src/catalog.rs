//! Owns the list of an archive's files: which are there, and which of them count.
//!
//! # Algorithm
//! Levels are listed from the slots upwards, and the record after the slots. A file that is merged
//! and deleted meanwhile was listed before, or its successor is; a group that was listed is behind
//! fences that the record lists by then.
//!
//! A fence that the record does not list is passed over: a claimant that gave up left it, perhaps
//! where a slot had been compacted and deleted. Whether it is one, and not a slot that was cut to
//! that length, is seen by reading it; there are few. A slot that was cut is a file like others:
//! its reader finds the damage.
//!
//! Times rise with TXIDs from the first fence on that the record lists: claims and primaries see to
//! that. Below it other programs wrote, as Litestream, whose times are those of a clock that may
//! have been set back. So there headers are read one after the other, and above by bisection.
//!
//! # Not here
//! Lists in steady state: a writer notes in its catalog what it creates and deletes, and lists only
//! before it deletes.

use std::io;
use std::thread::{self, Builder, ScopedJoinHandle};

use monolite_ltx::{Timestamp, Txid, verify};

use crate::error::{Error, ErrorKind, Result};
use crate::file::{ArchivedFile, each_file};
use crate::layout::{Layout, Level};
use crate::record::{Fence, Record};
use crate::requests::leader;
use crate::slot::Slot;
use crate::store::{Part, Store};

/// The most files of an archive that are listed: some hundred bytes each in memory.
const FILES: usize = 4 << 20;

/// How many headers are read at the same time, where many are.
const AT_ONCE: usize = 16;

/// The files of an archive that count.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// By level, then by TXIDs.
    files: Vec<ArchivedFile>,
    /// The slots of the fences that the record lists, in order. Their files may be lost.
    fences: Vec<Txid>,
    /// Those of them that history goes on from with a copy of the whole database, and the TXID of
    /// the last file that has all of it ([`Fence::copied_at`](crate::record::Fence::copied_at)).
    copies: Vec<(Txid, Txid)>,
}

impl Catalog {
    /// Lists an archive.
    ///
    /// # Errors
    /// Those of the store; those of [`Record::decode`]; [`Corrupt`](crate::ErrorKind::Corrupt)
    /// when there are too many files.
    pub fn read(store: &dyn Store, layout: &Layout) -> Result<Catalog> {
        let (mut files, mut fences, mut copies) = (Vec::new(), Vec::new(), Vec::new());
        for level in Level::all() {
            each_file(store, layout, level, |file| {
                if files.len() == FILES {
                    let message = format!(
                        "more than {FILES} files in the archive; merge them, and delete what is \
                         merged"
                    );
                    return Err(Error::corrupt(message));
                }
                files.push(file);
                Ok(())
            })?;
            if level == Level::SLOTS
                && let Some(record) = leader(store, layout)?
            {
                let unlisted: Vec<_> =
                    files.extract_if(.., |file| !counts(&record, file)).collect();
                for slot in unlisted {
                    if !is_fence(store, layout, &slot)? {
                        files.push(slot);
                    }
                }
                fences = record.fences.iter().map(|fence| fence.slot).collect();
                let copy = |fence: &Fence| Some((fence.slot, fence.copied_at?));
                copies = record.fences.iter().filter_map(copy).collect();
            }
        }
        Ok(Catalog { fences, copies, ..Catalog::of(files) })
    }

    /// Of files that are known.
    pub(crate) fn of(mut files: Vec<ArchivedFile>) -> Catalog {
        files.sort_by_key(place);
        Catalog { files, fences: Vec::new(), copies: Vec::new() }
    }

    /// The same archive with these files alone.
    pub(crate) fn with(&self, files: Vec<ArchivedFile>) -> Catalog {
        let (fences, copies) = (self.fences.clone(), self.copies.clone());
        Catalog { fences, copies, ..Catalog::of(files) }
    }

    /// The same with these files alone; of copies of the database those that this one has may be
    /// missing.
    pub(crate) fn with_but_copies(&self, files: Vec<ArchivedFile>) -> Catalog {
        let snapshots = self.level(Level::SNAPSHOTS);
        let is_there = |fence| snapshots.iter().any(|file| file.txids.max() == fence);
        let lost = self.copies.iter().filter(|(fence, _)| !is_there(*fence));
        Catalog { copies: lost.copied().collect(), ..self.with(files) }
    }

    /// Takes note of a file that was created, such as a slot that was filled
    /// ([`Slot::file`](crate::internals::Slot::file)).
    pub fn insert(&mut self, file: ArchivedFile) {
        match self.files.binary_search_by_key(&place(&file), place) {
            Ok(at) => self.files[at] = file,
            Err(at) => self.files.insert(at, file),
        }
    }

    /// Takes note of files that were deleted.
    pub fn remove(&mut self, gone: &[ArchivedFile]) {
        let mut gone: Vec<_> = gone.iter().map(place).collect();
        gone.sort_unstable();
        self.files.retain(|file| gone.binary_search(&place(file)).is_err());
    }

    /// The same without files that are damaged or gone. Nothing leads across the fence of a lost
    /// copy of the database: what was before it must not be applied behind it.
    pub(crate) fn without(&self, lost: &[ArchivedFile]) -> Catalog {
        let copies = lost.iter().filter(|file| self.is_copy(file));
        let fences: Vec<Txid> = copies.map(|copy| copy.txids.max()).collect();
        let has_fence = |file: &ArchivedFile| {
            !file.txids.is_snapshot() && fences.iter().any(|fence| file.txids.contains(*fence))
        };
        let stays = |file: &&ArchivedFile| !lost.contains(file) && !has_fence(file);
        self.with(self.files.iter().filter(stays).copied().collect())
    }

    /// All, by level and then by TXIDs.
    pub fn files(&self) -> &[ArchivedFile] {
        &self.files
    }

    /// Those of one level, by TXIDs.
    pub fn level(&self, level: Level) -> &[ArchivedFile] {
        let start = self.files.partition_point(|file| file.level < level);
        let end = self.files.partition_point(|file| file.level <= level);
        &self.files[start..end]
    }

    /// The newest TXID; `None` when there are no files.
    pub fn newest(&self) -> Option<Txid> {
        self.files.iter().map(|file| file.txids.max()).max()
    }

    /// The states that are kept, oldest first, each by the file that has its time. A TXID within a
    /// merged file that leads on is none; one that only a hole keeps from being restored is.
    pub(crate) fn states(&self) -> Vec<ArchivedFile> {
        // Of files that end at one TXID, the slot: a snapshot can have been made later. But of a
        // fence the snapshot: it can be a primary's copy, with commits of after the fence.
        let mut ends = self.files.clone();
        ends.sort_by_key(|file| (file.txids.max(), !self.is_copy(file), file.level));
        let (mut states, mut reached) = (Vec::<(ArchivedFile, bool)>::new(), None);
        for files in ends.chunk_by(|one, other| one.txids.max() == other.txids.max()) {
            let leads = |file: &&ArchivedFile| {
                let below = Txid::new(file.txids.min().get() - 1);
                below.is_none_or(|below| reached.is_some_and(|reached| below <= reached))
            };
            // What a file passes over is within it. A snapshot passes over holes, too, unless it is
            // the first.
            let hides = |min: &Txid| *min > Txid::FIRST || reached.is_none();
            let from = files.iter().filter(leads).map(|file| file.txids.min()).filter(hides).min();
            if let Some(from) = from {
                let at = states.partition_point(|(state, _)| state.txids.max() < from);
                let within = states.split_off(at);
                states.extend(within.into_iter().filter(|(_, is_reached)| *is_reached));
            }
            let is_reached = files.iter().any(|file| leads(&file));
            states.extend(files.first().map(|file| (*file, is_reached)));
            reached = files.first().map(|file| file.txids.max()).filter(|_| is_reached).or(reached);
        }
        states.into_iter().map(|(state, _)| state).collect()
    }

    /// How many of `states` are before `time` or before one that is: the last of them has an
    /// earlier time, as Litestream takes it. Some headers are read; many, sixteen at a time, where
    /// Litestream wrote and all that it wrote lately is later.
    ///
    /// # Errors
    /// Those of [`ArchivedFile::header`].
    pub(crate) fn count_before(
        &self,
        states: &[ArchivedFile],
        time: Timestamp,
        store: &dyn Store,
        layout: &Layout,
    ) -> Result<usize> {
        let (falling, rising) = states.split_at(self.count_falling(states));
        let earlier = count_before(rising, time, store, layout)?;
        if earlier > 0 {
            return Ok(falling.len() + earlier);
        }
        for (at, files) in falling.chunks(AT_ONCE).enumerate().rev() {
            let times = times(files, store, layout)?;
            if let Some(last) = times.iter().rposition(|is| *is < time) {
                return Ok(at * AT_ONCE + last + 1);
            }
        }
        Ok(0)
    }

    /// Whether a file can be a primary's copy of the database, before which history has a gap.
    pub(crate) fn is_copy(&self, file: &ArchivedFile) -> bool {
        file.txids.is_snapshot() && self.has_fence(file.txids.max())
    }

    /// Whether the state at this fence is a copy of the whole database, by the record.
    pub(crate) fn has_copy(&self, fence: Txid) -> bool {
        self.copies.binary_search_by_key(&fence, |(fence, _)| *fence).is_ok()
    }

    /// The fence of a copy that must be there when a state is made of the snapshot of `base` and
    /// what follows it up to `txid`. `None` when what follows has the whole of each copy.
    pub(crate) fn copy_between(&self, base: Txid, txid: Txid) -> Option<Txid> {
        let is_within = |fence: Txid| base < fence && fence <= txid;
        let is_needed = |(fence, at): &&(Txid, Txid)| at == fence || *at > txid;
        let mut within = self.copies.iter().filter(|(fence, _)| is_within(*fence));
        within.find(is_needed).map(|(fence, _)| *fence)
    }

    /// Whether this TXID is that of a fence. The record says so, also of one whose slot is lost; of
    /// those before all that it lists, the length of the slot does.
    pub(crate) fn has_fence(&self, txid: Txid) -> bool {
        if self.fences.first().is_some_and(|first| *first <= txid) {
            return self.fences.binary_search(&txid).is_ok();
        }
        let slots = self.level(Level::SLOTS);
        let found = slots.binary_search_by_key(&txid, |slot| slot.txids.min());
        found.is_ok_and(|at| slots[at].len == Slot::FENCE_LEN)
    }

    /// How many of `files`, which are in the order of their ends, may have times that fall.
    fn count_falling(&self, files: &[ArchivedFile]) -> usize {
        let Some(rising) = self.fences.first() else { return files.len() };
        files.partition_point(|file| file.txids.max() < *rising)
    }
}

/// Where a file is in the list.
fn place(file: &ArchivedFile) -> (Level, Txid, Txid) {
    (file.level, file.txids.min(), file.txids.max())
}

/// The times of files, whose headers are read at the same time.
fn times(files: &[ArchivedFile], store: &dyn Store, layout: &Layout) -> Result<Vec<Timestamp>> {
    let time = |file: &ArchivedFile| file.header(store, layout).map(|header| header.timestamp);
    let panicked = |_| Err(Error::new(ErrorKind::Lost, "a header was not read: a panic"));
    thread::scope(|scope| {
        let begin = |file| (file, Builder::new().spawn_scoped(scope, move || time(file)));
        let threads: Vec<_> = files.iter().map(begin).collect();
        let join = |(file, thread): (_, io::Result<ScopedJoinHandle<'_, _>>)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(panicked),
            Err(_) => time(file),
        };
        threads.into_iter().map(join).collect()
    })
}

/// How many of `files`, whose times rise, have one before `time`.
fn count_before(
    files: &[ArchivedFile],
    time: Timestamp,
    store: &dyn Store,
    layout: &Layout,
) -> Result<usize> {
    let (mut low, mut high) = (0, files.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if files[middle].header(store, layout)?.timestamp < time {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// Whether a slot that is as short as a fence is one, and not cut to that length. One that was
/// deleted since was covered.
fn is_fence(store: &dyn Store, layout: &Layout, slot: &ArchivedFile) -> Result<bool> {
    let found = store.get(&slot.key(layout), Part::Whole(Slot::FENCE_LEN))?;
    Ok(found.is_none_or(|found| verify(&found.bytes[..]).is_ok()))
}

/// Whether a slot is no fence, or one that is history. Fences older than every known one count:
/// they are old, and garbage among them has been covered since. A shorter file was cut, which its
/// reader reports.
fn counts(record: &Record, slot: &ArchivedFile) -> bool {
    let txid = slot.txids.min();
    slot.len != Slot::FENCE_LEN
        || record.owner(txid).is_none()
        || record.fences.iter().any(|fence| fence.slot == txid)
}
