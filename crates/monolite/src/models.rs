//! Owns how the schedules of the engine's concurrent modules are checked: each model, a `models`
//! module beside the code that it is of, runs some threads on that code while shuttle decides at
//! every lock, atomic and parking who goes on ([`crate::primitives`]).
//!
//! # Algorithm
//! Half of the schedules are uniformly random; the other half has priorities and few changes of
//! them, which finds what needs a rare order of few steps (PCT: Burckhardt and others, 2010). A
//! schedule in which nobody can go on is a failure, so a wake-up that is lost is found. What fails
//! prints a seed; `SHUTTLE_RANDOM_SEED=seed cargo xtask models NAME` repeats it.
//!
//! # Not here
//! Orders of memory: every atomic is sequentially consistent here. Limits of time: nobody who waits
//! with a limit reaches it, which would hide a wake-up that is lost. Threads and locks that no
//! model needs are those of `std`.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use monolite_sqlite::{CheckpointMode, Connection};
use shuttle::rand::{Rng as _, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

use crate::files::open::{Opened, open};
use crate::options::Options;
use crate::progress::Progress;

/// Schedules of a model that has no database: a second or two.
pub(crate) const SCHEDULES: usize = 6_000;

/// Schedules of a model that has one.
pub(crate) const SCHEDULES_WITH_SQL: usize = 1_500;

/// Changes of priority in one schedule: most defects need one or two.
const CHANGES: usize = 3;

/// SQLite, in a debug build, on the stack of a thread that the scheduler made.
const STACK_BYTES: usize = 512 << 10;

/// Runs `model` on so many schedules; it panics in one that breaks a rule.
pub(crate) fn check(schedules: usize, model: impl Fn() + Clone + Send + Sync + 'static) {
    let mut config = Config::new();
    (config.stack_size, config.silence_warnings) = (STACK_BYTES, true);
    let random = RandomScheduler::new(schedules / 2);
    Runner::new(random, config.clone()).run(model.clone());
    let pct = PctScheduler::new(CHANGES, schedules / 2);
    Runner::new(pct, config).run(model);
}

/// Whether something happens that may or may not.
pub(crate) fn maybe() -> bool {
    thread_rng().gen_bool(0.5)
}

/// What a stopwatch shows in place of the time that there was: nobody knows how long a thread is
/// kept.
pub(crate) fn any_time_for(_time: Duration) -> Duration {
    if maybe() { Duration::ZERO } else { Duration::MAX }
}

/// The files of a database with a number in it, for all schedules of a model. Only one thread of
/// each may have it.
pub(crate) fn database() -> Arc<Mutex<Opened>> {
    let options = Options::new().readers(2);
    let opened = open(&options, Path::new(":memory:"), Duration::ZERO).unwrap();
    write(&opened.writer, "CREATE TABLE t(v); INSERT INTO t VALUES (0)", || ());
    Arc::new(Mutex::new(opened))
}

/// Begins at zero, and at the beginning of the WAL.
pub(crate) fn reset(writer: &Connection) {
    write(writer, "UPDATE t SET v = 0", || ());
    writer.checkpoint(CheckpointMode::Restart).unwrap();
}

/// Commits the next number, as the writer does, and notes in `seen` that somebody may have seen it,
/// who has not asked `progress`.
pub(crate) fn commit(writer: &Connection, progress: &Progress, seen: &AtomicU64) {
    let number = progress.start_commit();
    write(writer, "UPDATE t SET v = v + 1", || progress.expose());
    seen.fetch_add(1, Ordering::Relaxed);
    progress.finish_commit(number);
}

fn write(writer: &Connection, sql: &str, before_commit: impl FnOnce()) {
    writer.begin_immediate().unwrap();
    writer.execute_batch(sql).unwrap();
    before_commit();
    writer.commit().unwrap();
}

/// The number that a connection sees.
pub(crate) fn number(connection: &Connection) -> u64 {
    let number: i64 = connection.raw().query_row("SELECT v FROM t", [], |row| row.get(0)).unwrap();
    number.try_into().unwrap()
}
