//! What the engine and the WAL files of one database tell each other.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU8, AtomicU64};

use super::Changes;
use super::moment::Moments;
use super::recent::RecentFrames;

/// Why the limit refused a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitHit {
    /// Earlier commits had left too little room: the transaction may fit when the WAL restarts.
    NoRoomLeft,
    /// The WAL had restarted with this transaction, which is larger than the limit.
    TooLarge,
}

const NO_HIT: u8 = u8::MAX;

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
    /// What [`LimitHit`] says, or [`NO_HIT`].
    limit_hit: AtomicU8,
    wal_bytes: AtomicU64,
    /// See [`WalPosition::generation`].
    generation: AtomicU64,
    wal_bytes_max: AtomicU64,
    database_bytes: AtomicU64,
    changes: Changes,
    recent: Option<RecentFrames>,
    moments: Moments,
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
            limit_hit: AtomicU8::new(NO_HIT),
            wal_bytes: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            wal_bytes_max: AtomicU64::new(0),
            database_bytes: AtomicU64::new(0),
            changes: Changes::default(),
            recent: None,
            moments: Moments::default(),
        }
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
        match self.limit_hit.swap(NO_HIT, Relaxed) {
            NO_HIT => None,
            hit if hit == LimitHit::TooLarge as u8 => Some(LimitHit::TooLarge),
            _ => Some(LimitHit::NoRoomLeft),
        }
    }

    /// Where the last committed frame of the current WAL generation ends.
    ///
    /// Zero until this process has committed: frames left by an earlier process are not counted.
    pub fn wal_bytes(&self) -> u64 {
        self.wal_bytes.load(Relaxed)
    }

    /// Where the latest commit of this process ends. To be asked on the thread that commits.
    pub fn position(&self) -> WalPosition {
        WalPosition { generation: self.generation.load(Relaxed), offset: self.wal_bytes() }
    }

    /// The largest size the WAL file has had.
    pub fn wal_bytes_max(&self) -> u64 {
        self.wal_bytes_max.load(Relaxed)
    }

    /// How long the database file is at least, if nobody else cuts it: it is said before the file
    /// is made shorter, and after it was made longer.
    pub fn database_bytes(&self) -> u64 {
        self.database_bytes.load(SeqCst)
    }

    /// The database file is this long now, and nobody writes to it.
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

    pub(super) fn note_limit_hit(&self, hit: LimitHit) {
        self.limit_hit.store(hit as u8, Relaxed);
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
    }

    pub(super) fn note_file_end(&self, end: u64) {
        if end > self.wal_bytes_max.load(Relaxed) {
            self.wal_bytes_max.fetch_max(end, Relaxed);
        }
    }
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
