//! A simulated disk under a database: it counts every I/O call, makes any of them fail, and knows
//! what a power cut at any moment could leave.
//!
//! # Algorithm
//! 1. [`Disk::under`] puts the disk below the engine, below the gathering of WAL frames too: it
//!    sees the calls that go to the files. Each is counted and shown to the [`Hook`] before it is
//!    done; the hook may wait, or answer with a [`Fault`].
//! 2. What is not made to fail is done on real files, and noted in a model of the disk (`inode`).
//! 3. [`Disk::capture`] takes a [`Crash`] of the model, from which any number of [`Image`]s are
//!    made (`crash`).
//!
//! The model follows POSIX: a sync that began after a write makes it durable; a name is durable
//! when the directory was synced, by the engine or by SQLite's first sync of a new journal or WAL.
//! Temporary files are counted and may fail, and a power cut leaves nothing of them.
//!
//! # Threads and locks
//! One mutex around the model, which is not held while a hook runs or real I/O is done.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use monolite::Options;
use monolite::vfs::FileKind;

mod content;
mod crash;
mod fault;
mod file;
mod inode;
#[cfg(test)]
mod tests;

pub use crash::{Crash, Image, Left, Place, remove, wal_beside};
pub use fault::{Call, Fault, Hook, Operation, Plan, Times};

use crate::blocking::locked;
use crash::NAMES;
use inode::{Inode, What};

/// Calls that are remembered when a disk records them.
const REMEMBERED_CALLS: usize = 20_000;

/// Whether syncs of the real files are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RealSyncs {
    /// They are: their time is part of what is tested.
    Made,
    /// They are not: what is durable is the model's business alone, and images cost less.
    Skipped,
}

/// A simulated disk with one database on it. Cloning it gives another handle.
#[derive(Clone)]
pub struct Disk(Arc<Inner>);

struct Inner {
    real_syncs: RealSyncs,
    model: Mutex<Model>,
    hook: Mutex<Option<Hook>>,
    calls: AtomicU64,
    log: Mutex<Option<VecDeque<String>>>,
}

struct Model {
    inodes: BTreeMap<u64, Inode>,
    names: [Vec<Option<u64>>; NAMES],
    next_inode: u64,
}

fn name_of(kind: FileKind) -> Option<usize> {
    match kind {
        FileKind::Database => Some(0),
        FileKind::Wal => Some(1),
        FileKind::Journal => Some(2),
        FileKind::Temp => None,
    }
}

impl Model {
    fn holding(image: Image) -> Model {
        let mut model = Model { inodes: BTreeMap::new(), names: Default::default(), next_inode: 0 };
        for (name, content) in image.into_files().into_iter().enumerate() {
            let inode = content.map(|content| model.create(Inode::on_disk(content)));
            model.names[name] = vec![inode];
        }
        model
    }

    fn create(&mut self, inode: Inode) -> u64 {
        let id = self.next_inode;
        self.inodes.insert(id, inode);
        self.next_inode += 1;
        id
    }

    /// The file that a name leads to now.
    fn current(&self, name: usize) -> Option<u64> {
        self.names[name].last().copied().flatten()
    }

    /// The file that a name leads to; created if it leads to none.
    fn open(&mut self, name: usize) -> u64 {
        self.current(name).unwrap_or_else(|| {
            let id = self.create(Inode::default());
            self.names[name].push(Some(id));
            id
        })
    }

    fn delete(&mut self, name: usize) {
        if self.current(name).is_some() {
            self.names[name].push(None);
        }
    }

    /// What a sync of the directory that begins now will settle.
    fn directory_mark(&self) -> [usize; NAMES] {
        std::array::from_fn(|name| self.names[name].len())
    }

    /// A sync of the directory that began at `mark` succeeded.
    fn settle_directory(&mut self, mark: [usize; NAMES]) {
        for (entries, mark) in self.names.iter_mut().zip(mark) {
            let settled = mark.min(entries.len());
            entries.drain(..settled.saturating_sub(1));
        }
        let names = &self.names;
        self.inodes.retain(|id, _| names.iter().flatten().any(|entry| *entry == Some(*id)));
    }

    /// An inode and what a sync of it that begins now will settle.
    fn begin_sync(&self, inode: u64) -> Option<(u64, u64)> {
        Some((inode, self.inodes.get(&inode)?.mark()))
    }

    fn begin_sync_of_wal(&self) -> Option<(u64, u64)> {
        self.begin_sync(self.current(name_of(FileKind::Wal)?)?)
    }

    fn note(&mut self, inode: Option<u64>, what: What) {
        if let Some(inode) = inode.and_then(|id| self.inodes.get_mut(&id)) {
            inode.note(what);
        }
    }
}

impl Disk {
    /// A disk with nothing on it.
    pub fn empty(real_syncs: RealSyncs) -> Disk {
        Disk::with(Image::default(), real_syncs)
    }

    /// A disk that holds, durably, the files of the database at `path`, which nobody has open.
    pub fn holding(path: &Path, real_syncs: RealSyncs) -> io::Result<Disk> {
        Ok(Disk::with(Image::read_from(path)?, real_syncs))
    }

    /// A disk that holds, durably, the files of `image`.
    pub fn with(image: Image, real_syncs: RealSyncs) -> Disk {
        Disk(Arc::new(Inner {
            real_syncs,
            model: Mutex::new(Model::holding(image)),
            hook: Mutex::default(),
            calls: AtomicU64::new(0),
            log: Mutex::default(),
        }))
    }

    /// Puts this disk under the database that `options` will open.
    pub fn under(&self, options: Options) -> Options {
        let disk = self.clone();
        options.storage(move |direct| file::simulated(direct, disk.clone()))
    }

    /// From now on `hook` is asked about every call.
    pub fn set_hook(&self, hook: impl Fn(&Call) -> Option<Fault> + Send + Sync + 'static) {
        *locked(&self.0.hook) = Some(Arc::new(hook));
    }

    /// From now on no call fails.
    pub fn clear_hook(&self) {
        *locked(&self.0.hook) = None;
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::SeqCst)
    }

    /// This moment, for crash images.
    pub fn capture(&self) -> Crash {
        let model = self.model();
        Crash { inodes: model.inodes.clone(), names: model.names.clone() }
    }

    /// Remembers the calls from now on, the last 20,000 of them.
    pub fn record(&self) {
        *locked(&self.0.log) = Some(VecDeque::new());
    }

    /// The remembered calls with their results, a line each.
    pub fn recorded(&self) -> Vec<String> {
        locked(&self.0.log).iter().flatten().cloned().collect()
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        locked(&self.0.model)
    }

    /// Counts a call and asks what is to happen to it.
    fn ask(&self, operation: Operation, kind: FileKind, at: u64, bytes: u64) -> Asked {
        let number = self.0.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let grown = if operation == Operation::Write { at + bytes } else { 0 };
        let extends = grown > 0 && name_of(kind).is_none_or(|name| self.size(name) < grown);
        let call = Call { number, operation, kind, at, bytes, extends };
        let hook = locked(&self.0.hook).clone();
        let fault = hook.and_then(|hook| hook(&call));
        Asked { call, fault }
    }

    fn size(&self, name: usize) -> u64 {
        let model = self.model();
        let inode = model.current(name).and_then(|id| model.inodes.get(&id));
        inode.map_or(0, |inode| inode.size() as u64)
    }

    fn log(&self, call: &Call, result: &dyn std::fmt::Debug) {
        if let Some(log) = locked(&self.0.log).as_mut() {
            if log.len() == REMEMBERED_CALLS {
                log.pop_front();
            }
            log.push_back(format!("{call}: {result:?}"));
        }
    }
}

/// A call and what is to happen to it.
struct Asked {
    call: Call,
    fault: Option<Fault>,
}
