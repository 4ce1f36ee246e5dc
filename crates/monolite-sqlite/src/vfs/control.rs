//! What the engine and the WAL files of one database tell each other.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, OnceLock};

use rustix::fs::statvfs;
use rustix::process::{Resource, getrlimit};

use super::Changes;
use super::moment::Moments;
use super::recent::RecentFrames;
use super::{IoError, LowerFile, Result};
use crate::locked::locked;

/// Why the limit refused a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitHit {
    /// Earlier commits had left too little room: the transaction may fit when the WAL restarts.
    NoRoomLeft,
    /// The WAL had restarted with this transaction, which is larger than the limit.
    TooLarge,
    /// The [gate](WalControl::set_gate) was shut when the WAL began anew.
    GateShut,
    /// It was no limit: the disk has no room for a longer WAL. The transaction may fit where
    /// earlier commits are, when the WAL restarts.
    DiskFull,
}

/// How much a file system must have free for zeros to be written ahead: a checkpoint needs room,
/// too, and zeros are given back only when the WAL is cut.
const ROOM_BYTES: u64 = 64 << 20;

/// How much more than a database needs is set aside for it at least and at most, so that it is not
/// asked for with each commit; in between it is an eighth of the database.
const AHEAD_BYTES: [u64; 2] = [64 << 10, 4 << 20];

/// What is about to become of what a WAL holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anew {
    /// SQLite looks whether the WAL may begin anew. Where it may not, commits are appended to it,
    /// as while a reader is in the way.
    Asked,
    /// It is overwritten by a generation with these salts.
    Begins([u32; 2]),
    /// It is cut off.
    Cut,
}

/// Whether that may happen now.
struct Gate(Box<dyn Fn(Anew) -> bool + Send + Sync>);

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate(..)")
    }
}

/// The place of a commit in the WAL; places are in the order of the commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WalPosition {
    /// Goes up whenever the WAL restarts or is cut, as far as this process sees that.
    pub generation: u64,
    /// Where the commit's last frame ends, in bytes from the beginning of the file.
    pub offset: u64,
}

/// The WAL's limit and figures, shared by the engine and every WAL file of a database.
///
/// All figures are in bytes. Those of the WAL are hints between threads and order nothing else
/// (`Relaxed`); that of the database is compared with the file by others (`SeqCst`); [`Changes`]
/// and the recent frames have rules of their own.
#[derive(Debug)]
pub struct WalControl {
    limit_bytes: AtomicU64,
    limit_hit: Mutex<Option<LimitHit>>,
    wal_bytes: AtomicU64,
    /// See [`WalPosition::generation`].
    generation: AtomicU64,
    wal_bytes_max: AtomicU64,
    database_bytes: AtomicU64,
    /// Up to where space is set aside for the database file.
    set_aside: AtomicU64,
    changes: Changes,
    recent: Option<RecentFrames>,
    /// Memory for the frames that a [`Gather`](super::Gather) holds, while none does.
    spare: Mutex<Vec<u8>>,
    moments: Moments,
    /// Whether a growing WAL is made longer ahead of its commits.
    writes_ahead: Option<PathBuf>,
    gate: OnceLock<Gate>,
    /// Whether it said no when it was [asked](Anew::Asked) last.
    is_gate_shut: AtomicBool,
    committed: Mutex<WalPosition>,
    /// Whether a commit was written of which nothing was said yet.
    has_ended: AtomicBool,
}

impl Default for WalControl {
    fn default() -> WalControl {
        WalControl::new(u64::MAX)
    }
}

impl WalControl {
    /// A control whose WAL may grow to `limit_bytes`; `u64::MAX` is no limit.
    pub fn new(limit_bytes: u64) -> WalControl {
        WalControl {
            limit_bytes: AtomicU64::new(limit_bytes),
            limit_hit: Mutex::default(),
            wal_bytes: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            wal_bytes_max: AtomicU64::new(0),
            database_bytes: AtomicU64::new(0),
            set_aside: AtomicU64::new(0),
            changes: Changes::default(),
            recent: None,
            spare: Mutex::default(),
            moments: Moments::default(),
            writes_ahead: None,
            gate: OnceLock::new(),
            is_gate_shut: AtomicBool::new(false),
            committed: Mutex::default(),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Has `gate` be asked before anything that the WAL holds is overwritten or cut off, on the
    /// thread that is about to do it: first whether it may ([`Anew::Asked`]), and then when it is;
    /// that fails with `SQLITE_FULL` when it says no. The WAL stays as it is. The first gate stays.
    pub fn set_gate(&self, gate: impl Fn(Anew) -> bool + Send + Sync + 'static) {
        // A second one has no effect, as documented.
        let _ = self.gate.set(Gate(Box::new(gate)));
    }

    /// # Errors
    /// `SQLITE_BUSY` when the gate does not let the WAL begin anew.
    pub(super) fn ask_gate(&self) -> Result {
        let Some(Gate(gate)) = self.gate.get() else { return Ok(()) };
        let is_shut = !gate(Anew::Asked);
        self.is_gate_shut.store(is_shut, Relaxed);
        if is_shut { Err(IoError::BUSY) } else { Ok(()) }
    }

    /// Whether the gate was shut when a connection last wanted the WAL to begin anew.
    pub fn is_gate_shut(&self) -> bool {
        self.is_gate_shut.load(Relaxed)
    }

    /// # Errors
    /// `SQLITE_FULL` when the gate is shut.
    pub(super) fn pass_gate(&self, next: Anew) -> Result {
        let is_open = self.gate.get().is_none_or(|gate| (gate.0)(next));
        if is_open {
            return Ok(());
        }
        self.note_limit_hit(LimitHit::GateShut);
        Err(IoError::FULL)
    }

    /// Has a WAL file that grows by small commits be filled with zeros ahead of them, within its
    /// limit: a sync that makes no file longer is cheaper, by half on some file systems. Not while
    /// the file system of `directory` is nearly full, nor beyond the size that this process may
    /// give a file. Space for the database is set aside with the commit that makes it larger, so
    /// that a checkpoint never lacks any, and the WAL can restart on a full disk.
    #[must_use]
    pub fn writing_ahead(self, directory: &Path) -> WalControl {
        WalControl { writes_ahead: Some(directory.to_owned()), ..self }
    }

    /// As [`WalControl::new`], for a WAL that no other process writes to: up to 8 MiB of the frames
    /// written last are kept in memory, and reading one of them is no system call.
    pub fn keeping_frames(limit_bytes: u64) -> WalControl {
        WalControl { recent: Some(RecentFrames::default()), ..WalControl::new(limit_bytes) }
    }

    /// The size beyond which no frame is written.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed)
    }

    /// Sets the limit; it holds from the next write on.
    pub fn set_limit_bytes(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Relaxed);
    }

    /// Why the limit refused a write since this was last asked, if it did.
    ///
    /// Tells an `SQLITE_FULL` of the limit from one of the disk.
    pub fn take_limit_hit(&self) -> Option<LimitHit> {
        locked(&self.limit_hit).take()
    }

    /// Where the last committed frame of the current WAL generation ends.
    ///
    /// Zero until this process has committed: frames left by an earlier process are not counted.
    pub fn wal_bytes(&self) -> u64 {
        self.wal_bytes.load(Relaxed)
    }

    /// Where the frames of the latest commit of this process end. To be asked on the thread that
    /// commits.
    fn position(&self) -> WalPosition {
        WalPosition { generation: self.generation.load(Relaxed), offset: self.wal_bytes() }
    }

    /// SQLite has said that a commit succeeded. To be called on the thread that commits, before the
    /// next one. A transaction without changes has no place of its own, and leaves the latest as it
    /// is: the WAL may have begun anew for one that failed.
    pub fn note_committed(&self) {
        if self.has_ended.swap(false, Relaxed) {
            let here = self.position();
            let mut committed = locked(&self.committed);
            assert!(*committed <= here, "{here:?} is committed behind {committed:?}");
            *committed = here;
        }
    }

    /// SQLite has said that a commit failed, of which frames may be written. Likewise.
    pub fn note_failed(&self) {
        self.has_ended.store(false, Relaxed);
    }

    /// Where the latest commit ends of which [`WalControl::note_committed`] was told.
    pub fn committed(&self) -> WalPosition {
        *locked(&self.committed)
    }

    /// The largest size the WAL file has had.
    pub fn wal_bytes_max(&self) -> u64 {
        self.wal_bytes_max.load(Relaxed)
    }

    /// How long the database file is at least, unless another process cuts it. It is set before the
    /// file gets shorter, and after it got longer.
    pub fn database_bytes(&self) -> u64 {
        self.database_bytes.load(SeqCst)
    }

    /// Notes how long the database file is, while no connection writes to it.
    pub fn note_database_bytes(&self, bytes: u64) {
        self.database_bytes.store(bytes, SeqCst);
    }

    /// Which commit changed which page last.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The moments of the database that are being copied.
    pub(super) fn moments(&self) -> &Moments {
        &self.moments
    }

    /// The frames that were written last, if they are kept.
    pub(super) fn recent(&self) -> Option<&RecentFrames> {
        self.recent.as_ref()
    }

    /// Empty memory for frames.
    pub(super) fn take_spare(&self) -> Vec<u8> {
        std::mem::take(&mut *locked(&self.spare))
    }

    /// Keeps memory for the next frames.
    pub(super) fn keep_spare(&self, mut memory: Vec<u8>) {
        memory.clear();
        *locked(&self.spare) = memory;
    }

    /// Gives back the memory that makes commits, and reads of what they wrote, faster. It grows
    /// again with the next ones.
    pub fn release_memory(&self) {
        self.recent().inspect(|recent| recent.clear());
        drop(self.take_spare());
    }

    /// Whether zeros are to be written ahead, up to `end` of the file.
    pub(super) fn writes_ahead(&self, end: u64) -> bool {
        let Some(directory) = &self.writes_ahead else { return false };
        let room = statvfs(directory).map_or(0, |it| it.f_bavail.saturating_mul(it.f_frsize));
        room >= ROOM_BYTES && may_be_so_long(end)
    }

    /// Sets space aside for a database of so many bytes, which a commit in the WAL of `lower` is
    /// about to make of it.
    ///
    /// # Errors
    /// [`IoError::FULL`] when the disk has none.
    pub(super) fn set_aside(&self, lower: &LowerFile, bytes: u64) -> Result {
        let from = self.set_aside.load(SeqCst).max(self.database_bytes());
        let [least, most] = AHEAD_BYTES;
        let to = bytes + (bytes / 8).clamp(least, most);
        if self.writes_ahead.is_none() || bytes <= from || !may_be_so_long(to) {
            return Ok(());
        }
        let to = match lower.set_aside_for_database(from, to) {
            Ok(()) => to,
            Err(_) => lower.set_aside_for_database(from, bytes).map(|()| bytes)?,
        };
        self.set_aside.store(to, SeqCst);
        Ok(())
    }

    pub(super) fn note_limit_hit(&self, hit: LimitHit) {
        *locked(&self.limit_hit) = Some(hit);
    }

    pub(super) fn note_restart(&self, end_of_header: u64) {
        self.generation.fetch_add(1, Relaxed);
        self.wal_bytes.store(end_of_header, Relaxed);
    }

    pub(super) fn note_commit_end(&self, end: u64) {
        if end < self.wal_bytes() {
            // Another process has had it restart.
            self.generation.fetch_add(1, Relaxed);
        }
        self.wal_bytes.store(end, Relaxed);
        self.has_ended.store(true, Relaxed);
    }

    pub(super) fn note_truncate(&self, size: u64) {
        if self.wal_bytes.fetch_min(size, Relaxed) > size {
            self.generation.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn note_database_end(&self, end: u64) {
        self.database_bytes.fetch_max(end, SeqCst);
    }

    pub(super) fn note_database_cut(&self, size: u64) {
        self.database_bytes.fetch_min(size, SeqCst);
        // What was set aside behind it goes with it.
        self.set_aside.fetch_min(size, SeqCst);
    }

    pub(super) fn note_file_end(&self, end: u64) {
        if end > self.wal_bytes_max.load(Relaxed) {
            self.wal_bytes_max.fetch_max(end, Relaxed);
        }
    }
}

/// Whether this process may give a file that size.
fn may_be_so_long(end: u64) -> bool {
    getrlimit(Resource::Fsize).current.is_none_or(|limit| end <= limit)
}

#[test]
fn a_later_commit_is_at_a_later_place() {
    let control = WalControl::default();
    let mut places = vec![control.position()];
    let mut next = |note: &dyn Fn(&WalControl)| {
        note(&control);
        places.push(control.position());
    };
    next(&|it| it.note_restart(32));
    next(&|it| it.note_commit_end(4_152));
    next(&|it| it.note_commit_end(8_272));
    next(&|it| it.note_restart(32));
    next(&|it| it.note_commit_end(4_152));
    // By another process, and unseen by this one.
    next(&|it| it.note_commit_end(4_100));
    next(&|it| it.note_truncate(0));
    next(&|it| it.note_commit_end(4_152));
    assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
    control.note_truncate(8_272);
    assert_eq!(control.position(), places[8], "nothing was cut");
}

#[test]
fn transaction_without_changes_has_no_place_of_its_own() {
    let control = WalControl::default();
    control.note_restart(32);
    control.note_commit_end(4_152);
    control.note_committed();
    let latest = control.committed();
    assert_eq!(latest, control.position());
    // One that was too large, and one that failed behind its last frame.
    control.note_restart(32);
    control.note_failed();
    control.note_committed();
    assert_eq!(control.committed(), latest);
    control.note_commit_end(4_152);
    control.note_failed();
    control.note_committed();
    assert_eq!(control.committed(), latest);
    control.note_commit_end(4_152);
    control.note_committed();
    assert_eq!(control.committed(), control.position());
}
