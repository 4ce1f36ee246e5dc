//! A storage that knows what a power cut would leave: it keeps, beside the real files, what of the
//! database and the WAL was there when the last successful sync of each began.
//!
//! # Algorithm
//! 1. A write or truncation is noted as *pending* once it was done.
//! 2. A sync takes note of how many are pending when it begins. When it has succeeded, those are
//!    applied to the *durable* image.
//! 3. A power cut leaves the durable images. It may also leave some of what was pending: of the WAL
//!    a random number of the writes that came next, the last of them torn; of the database any.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use monolite::Options;
use monolite::vfs::{
    Direct, File, FileKind, IoError, LockLevel, LowerFile, Result, ShmLock, ShmRegion, ShmRequest,
    Storage, SyncFlags,
};

use crate::patience::Gate;

/// Bytes that a disk writes whole.
const SECTOR: usize = 512;

enum Change {
    Write { at: usize, data: Vec<u8> },
    Truncate { size: usize },
}

/// One file, as it is on disk.
#[derive(Default)]
struct Image {
    durable: Vec<u8>,
    pending: Vec<Change>,
    /// Changes that were pending once and are in `durable`.
    settled: usize,
}

impl Image {
    /// How many changes there were so far: what a sync that begins now will settle.
    fn changes(&self) -> usize {
        self.settled + self.pending.len()
    }

    /// A sync succeeded that began after this many changes. Syncs may overlap.
    fn settle(&mut self, changes: usize) {
        let count = changes.saturating_sub(self.settled);
        self.settled += count;
        for change in self.pending.drain(..count) {
            apply(&mut self.durable, &change);
        }
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { at, data } => {
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[*at..at + data.len()].copy_from_slice(data);
        }
        Change::Truncate { size } => bytes.resize(*size, 0),
    }
}

/// How the next syncs behave.
#[derive(Default)]
pub(crate) struct Syncs {
    /// Every sync of the WAL for an acknowledgement stops here before it begins.
    pub(crate) gate: Mutex<Option<Arc<Gate>>>,
    pub(crate) fail: AtomicBool,
    /// How many were asked for.
    pub(crate) count: AtomicU32,
}

/// The images of one database, shared with the storage that keeps them.
#[derive(Default)]
pub(crate) struct Disk {
    database: Mutex<Image>,
    wal: Mutex<Image>,
    pub(crate) syncs: Syncs,
}

impl Disk {
    /// A disk that holds the closed database at `path`.
    pub(crate) fn of(path: &Path) -> Arc<Disk> {
        let disk = Disk::default();
        disk.database.lock().unwrap().durable = std::fs::read(path).unwrap();
        Arc::new(disk)
    }

    /// Puts this disk under the database that `options` will open.
    pub(crate) fn under(self: &Arc<Disk>, options: Options) -> Options {
        let disk = Arc::clone(self);
        options.storage(move |direct| Arc::new(Shadow { direct, disk: Arc::clone(&disk) }))
    }

    /// Writes to `path` what a power cut now would leave.
    pub(crate) fn cut_to(&self, path: &Path, left: Left<'_>) {
        // The WAL first: a checkpoint that ends in between syncs the database before the WAL is
        // written anew, so a newer database with an older WAL is what some cut would leave.
        let wal = self.wal.lock().unwrap();
        let database = self.database.lock().unwrap();
        let (mut wal_bytes, mut database_bytes) = (wal.durable.clone(), database.durable.clone());
        if let Left::Some(rng) = left {
            let count = rng.usize(..=wal.pending.len());
            wal.pending[..count].iter().for_each(|change| apply(&mut wal_bytes, change));
            if let Some(Change::Write { at, data }) = wal.pending.get(count) {
                let torn = data[..rng.usize(..=data.len() / SECTOR) * SECTOR].to_vec();
                apply(&mut wal_bytes, &Change::Write { at: *at, data: torn });
            }
            for change in database.pending.iter().filter(|_| rng.bool()) {
                apply(&mut database_bytes, change);
            }
        }
        std::fs::write(path, database_bytes).unwrap();
        std::fs::write(wal_beside(path), wal_bytes).unwrap();
    }

    fn image(&self, kind: FileKind) -> Option<&Mutex<Image>> {
        match kind {
            FileKind::Database => Some(&self.database),
            FileKind::Wal => Some(&self.wal),
            FileKind::Journal | FileKind::Temp => None,
        }
    }
}

/// What a power cut leaves of what was not synced.
pub(crate) enum Left<'r> {
    Nothing,
    Some(&'r mut fastrand::Rng),
}

/// The name of the WAL of the database at `path`.
pub(crate) fn wal_beside(path: &Path) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

struct Shadow {
    direct: Direct,
    disk: Arc<Disk>,
}

impl Storage for Shadow {
    fn open(
        &self,
        kind: FileKind,
        path: Option<&Path>,
        lower: &mut LowerFile,
    ) -> Result<Box<dyn File>> {
        let inner = self.direct.open(kind, path, lower)?;
        if self.disk.image(kind).is_none() {
            return Ok(inner);
        }
        Ok(Box::new(Watched { inner, kind, disk: Arc::clone(&self.disk) }))
    }

    fn delete(&self, deletion: &monolite::vfs::Deletion<'_>) -> Result {
        self.direct.delete(deletion)
    }

    fn sync_wal(&self, wal: &std::fs::File) -> std::io::Result<()> {
        let syncs = &self.disk.syncs;
        syncs.count.fetch_add(1, Ordering::SeqCst);
        let changes = self.disk.wal.lock().unwrap().changes();
        let gate = syncs.gate.lock().unwrap().clone();
        if let Some(gate) = gate {
            gate.pass();
        }
        if syncs.fail.load(Ordering::SeqCst) {
            return Err(std::io::Error::other("the disk is on fire"));
        }
        // The real sync, too, so that real timing is what is tested.
        self.direct.sync_wal(wal)?;
        self.disk.wal.lock().unwrap().settle(changes);
        Ok(())
    }
}

struct Watched {
    inner: Box<dyn File>,
    kind: FileKind,
    disk: Arc<Disk>,
}

impl Watched {
    fn image(&self) -> &Mutex<Image> {
        self.disk.image(self.kind).expect("only files with an image are watched")
    }

    fn note(&self, change: Change) {
        self.image().lock().unwrap().pending.push(change);
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("the files of a test are small")
}

impl File for Watched {
    fn read(&mut self, lower: &mut LowerFile, buf: &mut [u8], at: u64) -> Result {
        self.inner.read(lower, buf, at)
    }

    fn write(&mut self, lower: &mut LowerFile, data: &[u8], at: u64) -> Result {
        self.inner.write(lower, data, at)?;
        self.note(Change::Write { at: index(at), data: data.to_vec() });
        Ok(())
    }

    fn truncate(&mut self, lower: &mut LowerFile, size: u64) -> Result {
        self.inner.truncate(lower, size)?;
        self.note(Change::Truncate { size: index(size) });
        Ok(())
    }

    fn sync(&mut self, lower: &mut LowerFile, flags: SyncFlags) -> Result {
        if self.disk.syncs.fail.load(Ordering::SeqCst) {
            return Err(IoError::SYNC);
        }
        let changes = self.image().lock().unwrap().changes();
        self.inner.sync(lower, flags)?;
        self.image().lock().unwrap().settle(changes);
        Ok(())
    }

    fn size(&mut self, lower: &mut LowerFile) -> Result<u64> {
        self.inner.size(lower)
    }

    fn lock(&mut self, lower: &mut LowerFile, level: LockLevel) -> Result {
        self.inner.lock(lower, level)
    }

    fn unlock(&mut self, lower: &mut LowerFile, level: LockLevel) -> Result {
        self.inner.unlock(lower, level)
    }

    fn shm_map(&mut self, lower: &mut LowerFile, request: ShmRequest) -> Result<ShmRegion> {
        self.inner.shm_map(lower, request)
    }

    fn shm_lock(&mut self, lower: &mut LowerFile, lock: ShmLock) -> Result {
        self.inner.shm_lock(lower, lock)
    }

    fn shm_barrier(&mut self, lower: &mut LowerFile) {
        self.inner.shm_barrier(lower);
    }

    fn shm_unmap(&mut self, lower: &mut LowerFile, delete_flag: std::ffi::c_int) -> Result {
        self.inner.shm_unmap(lower, delete_flag)
    }
}
