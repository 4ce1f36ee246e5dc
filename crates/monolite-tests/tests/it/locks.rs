//! The write lock that a reader takes in passing: SQLite's readers do when they look at the
//! wal-index in the moment in which a commit is published there.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use monolite::rusqlite::ffi;
use monolite::vfs::{Direct, File, FileKind, Forward, LowerFile, Result, ShmLock, Storage};
use monolite::{Database, Options};

use crate::patience::{PATIENCE, one};

const READER: &str = "the reader";

/// How far the writer and the reader are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Nobody is stopped.
    Free,
    /// The first write is on its way.
    Begun,
    /// The writer is about to commit it.
    Committing,
    /// The writer stands still between the two copies of the header that it publishes.
    Publishing,
    /// The reader has seen that they differ, and asks for the write lock.
    Asking,
    /// The writer has released the write lock.
    Released,
    /// The reader has it.
    Holding,
    /// The writer was refused it.
    Refused,
}

/// Stops the writer and the reader where a busy machine may stop them.
struct Stages {
    stage: Mutex<Stage>,
    changed: Condvar,
}

impl Stages {
    /// Goes from one stage to the next, if that is where it is.
    fn step(&self, from: Stage, to: Stage) -> bool {
        let mut stage = self.stage.lock().unwrap();
        let is_there = *stage == from;
        if is_there {
            *stage = to;
            self.changed.notify_all();
        }
        is_there
    }

    /// Waits for a stage, or for the end of it all; whether it was the stage.
    fn reach(&self, wanted: Stage) -> bool {
        let stage = self.stage.lock().unwrap();
        let is_early = |stage: &mut Stage| *stage != Stage::Free && *stage < wanted;
        let (stage, waited) = self.changed.wait_timeout_while(stage, PATIENCE, is_early).unwrap();
        assert!(!waited.timed_out(), "still {stage:?} and not {wanted:?}");
        *stage >= wanted
    }
}

struct Stopping(Direct, Arc<Stages>);

impl Storage for Stopping {
    fn open(
        &self,
        kind: FileKind,
        _path: Option<&Path>,
        _lower: &mut LowerFile,
    ) -> Result<Box<dyn File>> {
        Ok(match kind {
            FileKind::Database => self.0.around(kind, Stopped(Arc::clone(&self.1))),
            _ => self.0.around(kind, Forward),
        })
    }
}

struct Stopped(Arc<Stages>);

fn is_on(name: &str) -> bool {
    thread::current().name() == Some(name)
}

impl File for Stopped {
    fn shm_barrier(&mut self, lower: &mut LowerFile) {
        lower.shm_barrier();
        if is_on("monolite-write") && self.0.step(Stage::Committing, Stage::Publishing) {
            self.0.reach(Stage::Asking);
        }
    }

    fn shm_lock(&mut self, lower: &mut LowerFile, lock: ShmLock) -> Result {
        let is_write_lock = lock.offset == 0 && lock.flags & ffi::SQLITE_SHM_LOCK != 0;
        if is_on(READER) && is_write_lock && self.0.step(Stage::Publishing, Stage::Asking) {
            self.0.reach(Stage::Released);
            let locked = lower.shm_lock(lock);
            self.0.step(Stage::Released, Stage::Holding);
            self.0.reach(Stage::Refused);
            return locked;
        }
        let outcome = lower.shm_lock(lock);
        if is_on("monolite-write") && lock.releases_write_lock() {
            self.0.step(Stage::Asking, Stage::Released);
        } else if is_on("monolite-write") && is_write_lock && outcome.is_err() {
            self.0.step(Stage::Holding, Stage::Refused);
        }
        outcome
    }
}

/// Whether the reader was made to take the write lock, and the next write met it.
fn meets_a_reader(db: &Database, stages: &Arc<Stages>) -> bool {
    thread::scope(|scope| {
        let committing = Arc::clone(stages);
        assert!(stages.step(Stage::Free, Stage::Begun));
        let first = db.write(move |tx| {
            tx.execute("INSERT INTO t VALUES (1)", ())?;
            committing.step(Stage::Begun, Stage::Committing);
            Ok::<_, monolite::Error>(())
        });
        assert!(stages.reach(Stage::Publishing));
        let read = || {
            let count = "SELECT COUNT(*) FROM t";
            one(db, count);
            // It saw nothing: the writer stood elsewhere.
            stages.step(Stage::Publishing, Stage::Free);
        };
        let reader = thread::Builder::new().name(READER.into()).spawn_scoped(scope, read).unwrap();
        let is_met = stages.reach(Stage::Holding);
        let second = db.write(|tx| tx.execute("INSERT INTO t VALUES (2)", ()));
        assert_eq!(second.wait().unwrap(), 1);
        first.wait().unwrap();
        reader.join().unwrap();
        is_met && stages.step(Stage::Refused, Stage::Free)
    })
}

#[test]
fn a_reader_that_holds_the_write_lock_in_passing_fails_no_write() {
    let directory = tempfile::tempdir().unwrap();
    let stages = Arc::new(Stages { stage: Mutex::new(Stage::Free), changed: Condvar::new() });
    let stopping = Arc::clone(&stages);
    let db = Options::new()
        .readers(1)
        .storage(move |direct| Arc::new(Stopping(direct, Arc::clone(&stopping))))
        .open(directory.path().join("db"))
        .unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(x)")).wait().unwrap();
    let is_met = (0..50).any(|_| meets_a_reader(&db, &stages));
    assert!(is_met, "no reader took the write lock");
}
