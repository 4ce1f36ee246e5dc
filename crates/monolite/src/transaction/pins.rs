//! Owns the snapshots on which overlays run: each is pinned by a connection that does nothing else,
//! and shared by all transactions that can use it.
//!
//! # Algorithm
//! The latest pin is kept, and given to all for which it is new enough; otherwise a new one is
//! taken. A transaction's first statement has to see all that was committed before. A later one may
//! see an older state, as if the transaction had kept its snapshot, which is why no pin is older
//! than one that was handed out before it. So a snapshot is taken once for each commit at most, and
//! not for each statement, and overlays that go on with the snapshot they had find their page cache
//! as they left it. A pin ends with the last transaction that uses it, once it is not the latest
//! any more.
//!
//! # Threads and locks
//! `latest` is held while a snapshot is taken, some microseconds: another transaction that needs
//! one waits for that very snapshot. All other locks are held for a few instructions, `vacant` also
//! under `latest`, none under another of them.

#[cfg(all(test, shuttle))]
mod models;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use monolite_sqlite::vfs::Snapshot;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::primitives::sync::{Mutex, MutexGuard, PoisonError};
use crate::progress::{BatchNumber, Progress};
use crate::read::readers::{OpenReader, Reader};

/// A snapshot that stays until this is dropped.
pub(crate) struct Pin {
    pub(crate) snapshot: Snapshot,
    /// Batches that it contains.
    pub(crate) committed: BatchNumber,
    /// The latest batch that it may contain.
    pub(crate) seen: BatchNumber,
    pub(crate) taken: Duration,
    /// The connection in whose read transaction it is; taken out by the drop.
    reader: Mutex<Option<Reader>>,
    home: Arc<Vacant>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let reader = self.reader.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reader) = reader {
            // Fails only on a broken connection, whose next statement reports it.
            let _ = reader.connection.rollback();
            self.home.put(reader);
        }
    }
}

/// Connections without a snapshot.
#[derive(Default)]
struct Vacant(Mutex<Connections>);

#[derive(Default)]
struct Connections {
    idle: Vec<Reader>,
    is_closed: bool,
}

impl Vacant {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, reader: Reader) {
        let mut connections = self.connections();
        if !connections.is_closed {
            connections.idle.push(reader);
        }
    }
}

/// All pinned snapshots of a database.
pub(crate) struct Pins {
    latest: Mutex<Option<Arc<Pin>>>,
    vacant: Arc<Vacant>,
    open: OpenReader,
    clock: Arc<dyn Clock>,
    progress: Arc<Progress>,
}

impl Pins {
    pub(crate) fn new(open: OpenReader, clock: Arc<dyn Clock>, progress: Arc<Progress>) -> Pins {
        Pins { latest: Mutex::new(None), vacant: Arc::default(), open, clock, progress }
    }

    fn latest(&self) -> MutexGuard<'_, Option<Arc<Pin>>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A snapshot for a transaction: for its first statement one that contains everything committed
    /// and everything that anybody may have seen; for a later one any that is no older than those
    /// handed out before, and no older than `age`.
    ///
    /// # Errors
    /// `Closed`; those of opening a connection and of beginning.
    pub(crate) fn pin(&self, is_first: bool, age: Duration) -> Result<Arc<Pin>> {
        let mut latest = self.latest();
        if let Some(pin) = &*latest {
            let newest = self.progress.committed().max(self.progress.exposed());
            let is_young = self.clock.now().saturating_sub(pin.taken) <= age;
            if pin.committed >= newest || (!is_first && is_young) {
                return Ok(Arc::clone(pin));
            }
        }
        let pin = Arc::new(self.take()?);
        let is_newer = latest.as_ref().is_none_or(|before| before.committed <= pin.committed);
        assert!(is_newer, "no pin is older than one that was handed out before");
        let outdated = latest.replace(Arc::clone(&pin));
        drop(latest);
        drop(outdated);
        Ok(pin)
    }

    fn take(&self) -> Result<Pin> {
        let idle = {
            let mut connections = self.vacant.connections();
            if connections.is_closed {
                return Err(Error::closed());
            }
            connections.idle.pop()
        };
        let reader = idle.map_or_else(|| (self.open)(), Ok)?;
        let committed = self.progress.committed();
        reader.connection.begin_read()?;
        let seen = self.progress.exposed();
        let snapshot = reader.connection.snapshot().ok_or_else(no_snapshot)?;
        let (taken, home) = (self.clock.now(), Arc::clone(&self.vacant));
        let reader = Mutex::new(Some(reader));
        Ok(Pin { snapshot, committed, seen, taken, reader, home })
    }

    /// Lets go of the latest snapshot, which ends with its last use.
    pub(crate) fn release(&self) {
        drop(self.latest().take());
    }

    /// Closes the connections that have no snapshot any more.
    pub(crate) fn close_idle(&self) {
        self.release();
        let idle = std::mem::take(&mut self.vacant.connections().idle);
        drop(idle);
    }

    /// As [`Pins::close_idle`], and refuses new ones.
    pub(crate) fn close(&self) {
        self.vacant.connections().is_closed = true;
        self.close_idle();
    }
}

fn no_snapshot() -> Error {
    Error::new(ErrorKind::Internal, "a reader does not know which snapshot it has")
}
