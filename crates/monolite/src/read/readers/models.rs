//! Schedules of reads beside the writer's commits, and of whoever has readers end their snapshots.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuttle::thread;

use super::Readers;
use crate::activity::Caller;
use crate::activity::slow::SlowLog;
use crate::call::inside::DatabaseId;
use crate::error::{ErrorKind, Result};
use crate::files::open::Opened;
use crate::models::{SCHEDULES_WITH_SQL, check, commit, database, maybe, reset};
use crate::options::Options;
use crate::progress::Progress;
use crate::read::holders::SnapshotHolder as _;

const HOUR: Duration = Duration::from_secs(3_600);

/// What the threads of a schedule have.
struct Bench {
    readers: Readers,
    /// The greatest number that somebody may have seen.
    seen: AtomicU64,
}

impl Bench {
    fn new(database: &Mutex<Opened>, connections: usize, progress: &Arc<Progress>) -> Arc<Bench> {
        let database = database.lock().unwrap();
        reset(&database.writer);
        let open = Arc::clone(&database.open_reader);
        let options = Options::new().readers(connections).read_time_limit(HOUR);
        let (id, progress) = (DatabaseId::new(), Arc::clone(progress));
        let (awake, slow) = (Arc::default(), SlowLog::default());
        let readers = Readers::new(open, id, true, &options, progress, awake, slow);
        Arc::new(Bench { readers, seen: AtomicU64::new(0) })
    }

    /// Reads the number: no less than what somebody may have seen before.
    fn read(&self) -> Result<()> {
        let seen = self.seen.load(Ordering::Relaxed);
        let number: i64 = self.readers.run(Caller::default(), None, |tx| {
            thread::yield_now();
            tx.query_row("SELECT v FROM t", [], |row| row.get(0))
        })?;
        assert!(seen <= number.try_into().unwrap(), "{number} was read behind {seen}");
        Ok(())
    }
}

#[test]
fn a_read_sees_all_that_anybody_has_seen_before_it() {
    let database = database();
    check(SCHEDULES_WITH_SQL, move || {
        let progress = Arc::<Progress>::default();
        let bench = Bench::new(&database, 2, &progress);
        let mut threads: Vec<_> = [(); 2]
            .map(|()| {
                let bench = Arc::clone(&bench);
                thread::spawn(move || (0..3).for_each(|_| bench.read().unwrap()))
            })
            .into();
        if maybe() {
            let bench = Arc::clone(&bench);
            threads.push(thread::spawn(move || {
                bench.readers.release_idle(Duration::ZERO);
            }));
        }
        for _ in 0..2 {
            commit(&database.lock().unwrap().writer, &progress, &bench.seen);
        }
        threads.into_iter().for_each(|it| it.join().unwrap());
        bench.readers.close();
    });
}

#[test]
fn reads_that_wait_for_the_only_connection_all_get_it_or_are_told_of_the_close() {
    let database = database();
    check(SCHEDULES_WITH_SQL, move || {
        let bench = Bench::new(&database, 1, &Arc::default());
        let closes = maybe();
        let threads = [(); 4].map(|()| {
            let bench = Arc::clone(&bench);
            thread::spawn(move || match bench.read() {
                Ok(()) => true,
                Err(error) => {
                    assert!(closes && error.kind() == ErrorKind::Closed, "{error}");
                    false
                }
            })
        });
        if closes {
            bench.readers.close();
        } else {
            bench.readers.release_idle(Duration::ZERO);
        }
        let read = threads.into_iter().map(|it| it.join().unwrap()).filter(|read| *read).count();
        assert_eq!(bench.readers.counts().0, read as u64);
    });
}
