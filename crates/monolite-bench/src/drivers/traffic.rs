//! What a candidate read and wrote while the clock ran: pages, the WAL, checkpoints.
//!
//! # Algorithm
//! The kernel counts what this process reads and writes by system calls. What went into the WAL is
//! counted apart: of raw SQLite exactly, by its frames after each commit; of the engine from looks
//! at its statistics every few milliseconds, so that what was written between the last look and a
//! restart of the WAL, about a hundredth of it, is missing. All else that was written is a
//! checkpoint's, and a checkpoint has read as much from the WAL; all else that was read are pages
//! that were not in SQLite's cache, whether they came from the disk or from the kernel's.

use monolite::Database;
use serde::{Deserialize, Serialize};
use std::fs;
use std::sync::mpsc;
use std::time::Duration;

/// Time between two looks at the engine.
const LOOK: Duration = Duration::from_millis(5);

const PAGE_BYTES: u64 = 4096;

/// What was read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Operations that it was for.
    pub operations: u64,
    /// Bytes written to the WAL.
    pub wal_bytes: u64,
    /// Bytes that checkpoints wrote to the database, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_bytes: Option<u64>,
    /// Pages read because they were not in the cache, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages_read: Option<u64>,
}

impl Traffic {
    /// Adds another round's.
    pub fn plus(self, other: Traffic) -> Traffic {
        let both = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        Traffic {
            operations: self.operations + other.operations,
            wal_bytes: self.wal_bytes + other.wal_bytes,
            checkpoint_bytes: both(self.checkpoint_bytes, other.checkpoint_bytes),
            pages_read: both(self.pages_read, other.pages_read),
        }
    }

    /// What an operation took of a figure.
    pub fn each(&self, figure: u64) -> f64 {
        figure as f64 / self.operations.max(1) as f64
    }
}

/// Bytes that this process has read and written by system calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Io {
    read: u64,
    written: u64,
}

impl Io {
    /// Looks, where the kernel counts.
    pub fn look() -> Option<Io> {
        Io::parse(&fs::read_to_string("/proc/self/io").ok()?)
    }

    fn parse(text: &str) -> Option<Io> {
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        Some(Io { read: field("rchar:")?, written: field("wchar:")? })
    }

    /// Returns what was done since this look, of which so much went into the WAL.
    pub fn since(self, operations: u64, wal_bytes: u64) -> Option<Traffic> {
        Some(self.until(Io::look()?, operations, wal_bytes))
    }

    fn until(self, later: Io, operations: u64, wal_bytes: u64) -> Traffic {
        let checkpoint = (later.written - self.written).saturating_sub(wal_bytes);
        let read = (later.read - self.read).saturating_sub(checkpoint);
        Traffic {
            operations,
            wal_bytes,
            checkpoint_bytes: Some(checkpoint),
            pages_read: Some(read / PAGE_BYTES),
        }
    }
}

/// Adds up what goes into a WAL, from how much is in use and how often it was restarted.
#[derive(Clone, Copy, Debug)]
pub struct WalMeter {
    in_use: u64,
    restarts: u64,
    total: u64,
}

impl WalMeter {
    /// Begins with what is there.
    pub fn new(in_use: u64, restarts: u64) -> WalMeter {
        WalMeter { in_use, restarts, total: 0 }
    }

    /// Looks again.
    pub fn look(&mut self, in_use: u64, restarts: u64) {
        let begun_anew = restarts != self.restarts || in_use < self.in_use;
        self.total += if begun_anew { in_use } else { in_use - self.in_use };
        (self.in_use, self.restarts) = (in_use, restarts);
    }

    /// Returns what was written since the beginning.
    pub fn total(self) -> u64 {
        self.total
    }
}

/// Has `work` done while the engine's WAL is looked at, and returns what went into it, too.
pub fn watching<T>(db: &Database, work: impl FnOnce() -> T) -> (T, u64) {
    let (end, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let look = || {
            let stats = db.stats();
            (stats.wal_bytes, stats.checkpoints_completed)
        };
        let (in_use, restarts) = look();
        let watch = scope.spawn(move || {
            let mut meter = WalMeter::new(in_use, restarts);
            // The sender is dropped when the work is over.
            while ended.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
                let (in_use, restarts) = look();
                meter.look(in_use, restarts);
            }
            let (in_use, restarts) = look();
            meter.look(in_use, restarts);
            meter.total()
        });
        let done = work();
        drop(end);
        (done, watch.join().expect("a look does not panic"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wal_that_begins_anew_counts_from_nothing() {
        let mut meter = WalMeter::new(100, 0);
        meter.look(150, 0);
        meter.look(20, 1);
        // A restart in between, after which it has grown beyond where it was.
        meter.look(30, 2);
        assert_eq!(meter.total(), 50 + 20 + 30);
    }

    #[test]
    fn what_is_not_the_wal_is_a_checkpoint_or_a_page() {
        let text = "rchar: 4096\nwchar: 100\nsyscr: 1\n";
        let before = Io::parse(text).unwrap();
        let later = Io { read: 4096 + 3 * PAGE_BYTES + 8192, written: 100 + 10_000 + 8192 };
        let traffic = before.until(later, 2, 10_000);
        assert_eq!((traffic.checkpoint_bytes, traffic.pages_read), (Some(8192), Some(3)));
        assert_eq!(traffic.each(traffic.wal_bytes), 5_000.0);
        let unknown = Traffic { checkpoint_bytes: None, ..traffic };
        assert_eq!(traffic.plus(unknown).checkpoint_bytes, None);
        assert_eq!(traffic.plus(unknown).pages_read, Some(6));
        assert!(Io::parse("rchar: x").is_none());
    }
}
