//! Owns the write connection and the algorithm that turns queued closures into batches: one SQLite
//! transaction each, in which every member is isolated from the failures of the others.
//!
//! # Algorithm
//! [`Writer::step`] commits one batch, or one member alone:
//! 1. `BEGIN IMMEDIATE`. Members run one after another until the batch is full (count or time) or
//!    the queue is empty.
//! 2. A **group** of members shares one savepoint, or none: the group at the start of a batch can
//!    be undone by `ROLLBACK`. While no member fails the whole batch is that group, and isolation
//!    costs nothing. [`FailureRate`] shrinks the groups as failures become frequent.
//! 3. A member that **failed before it wrote** has nothing to undo.
//! 4. A member that **failed after it wrote**: its group is undone and run again without it; then
//!    it runs once more in a savepoint of its own, in its place, and that run is its answer (the
//!    first one saw neighbours whose second run may differ). After a panic or a time limit the
//!    first run is its answer.
//! 5. A member that **rolled back the outer transaction** (`OR ROLLBACK`, `RAISE(ROLLBACK)`, disk
//!    full, I/O error, an interrupted write): the members before it are run again and committed,
//!    then it runs alone in a transaction of its own.
//! 6. Should a second run fail where the first did not (a closure that is not deterministic), the
//!    members of the batch are run **one by one**, each in its own transaction.
//! 7. A closure that may run **once only** gets its savepoint, and the batch is committed right
//!    after it, so that no later neighbour can undo it.
//! 8. `COMMIT` without a sync. Should it fail, the batch is rolled back and run one by one.
//! 9. A commit for which the **WAL had too little room left** is rolled back, the WAL restarts
//!    ([`Room`]), and its members are run one by one, with room made whenever it runs out. Only
//!    a transaction that an empty WAL cannot hold is `Invalid`. A closure that runs once cannot run
//!    again: it is refused with `Overloaded`, unless it was alone in an empty WAL. A disk that is
//!    full is met in the same way, once: where earlier commits are there is room. Pages that do
//!    not fit in the cache find that out before the commit, and lose the transaction (5).
//! 10. A batch that was **taken** while a closure did not return ([`crate::call::in_flight`]) is
//!     rolled back, and that closure has overrun its time.
//!
//! Members that are to run again go back to the front of the inbox, marked with how
//! ([`Again`]); the same step, or the next one, finds them there.
//!
//! No member is answered here: [`Writer::step`] returns the members with their outcomes, and the
//! sync thread answers them when their batch is on disk.
//!
//! # Invariants
//! - A member's outcome is that of the run whose changes were committed, or of its latest run if
//!   nothing of it was.
//! - When `step` returns, no transaction is open, and what it returns was committed together or
//!   needs no commit.
//! - A deferred foreign key that a member violates is that member's failure, found before the next
//!   member runs, so the batch's commit cannot fail for it. So is one that it has deferred itself
//!   (`PRAGMA defer_foreign_keys`), which ends with it.
//! - A member finds no trace of those before it on the connection: figures about changed rows, the
//!   schema in memory after a change that failed or was undone.
//!
//! # Not here
//! Threads and queues: `engine`. When the WAL is checkpointed: `checkpoint`.

mod failure_rate;
mod refusals;
mod repeat;
#[cfg(test)]
mod tests;
mod vacuum;

use std::sync::Arc;
use std::time::Duration;

use monolite_sqlite::rusqlite;
use monolite_sqlite::vfs::{LimitHit, WalControl};
use monolite_sqlite::{Connection, Savepoint};

use crate::activity::Slowest;
use crate::activity::slow::SlowTransaction;
use crate::call::entry::{Again, Entry};
use crate::call::in_flight::{Batch, Closure, Collected, HeldBatch};
use crate::call::member::{Around, ForeignKeys, Ran};
use crate::call::queue::lanes::Spent;
use crate::clock::{self, Clock, Deadline, Stopwatch};
use crate::error::{Error, ErrorKind, Result};
use crate::options::Options;
use crate::progress::Progress;
use crate::stats::{Recorder, names};
use crate::tx::Tx;
use failure_rate::FailureRate;
pub(crate) use refusals::not_captured;
use refusals::{
    Uncommitted, deferred_violation, disk_full, late, no_room_left, swallowed_rollback,
};

/// How many members ahead one is brought into the cache: the time of a few members' runs is longer
/// than a transfer between cores, and a run takes longer than that to evict it again.
const FETCH_AHEAD: usize = 2;

/// How long a reader may keep the write lock that it took in passing. It needs microseconds once it
/// runs, and only gets no core for longer.
const READER_MOMENT: Duration = Duration::from_secs(5);

/// How long is looked for the tables of a foreign key that a member violates. Everybody waits.
const NAMING: Duration = Duration::from_millis(20);

/// What a run left behind in the open transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// What it did stays: it succeeded, or it failed without having written.
    Stays,
    /// It failed after it wrote.
    MustBeUndone,
    /// It rolled back the outer transaction; everything before it is undone, too.
    TransactionLost,
    /// It did not return in time, and its batch was taken.
    BatchTaken,
}

/// How one run of a member ended.
#[derive(Clone, Copy, Debug)]
struct Run {
    effect: Effect,
    /// Another run would not tell more (a panic, a limit of time or memory).
    is_final: bool,
    /// Why the WAL refused pages that did not fit in the cache, by which the transaction was lost.
    hit: Option<LimitHit>,
}

/// The open transaction.
#[derive(Default)]
struct OpenBatch {
    /// Where the current group begins among those that are done.
    group_start: usize,
    /// Whether the current group has a savepoint; without one it begins at 0.
    group_guarded: bool,
    /// Members that have failed for good, and have no part in the transaction.
    out: Vec<Entry>,
}

/// How the filling of a batch ended.
enum Filled {
    /// The transaction is open and complete.
    Complete,
    /// The transaction was lost to this member.
    Lost { culprit: Entry, is_final: bool },
    /// A rerun went differently, or a savepoint failed; nothing can be assumed.
    Unclear { culprit: Option<Entry> },
    /// The batch was taken while this member ran.
    Taken { culprit: Entry },
}

/// Who makes room in the WAL, between two transactions of the writer.
pub(crate) trait Room {
    /// Waits until the next commit can overwrite the WAL from its start.
    ///
    /// # Errors
    /// `Overloaded` when readers prevent it for too long, even after their snapshots were revoked,
    /// or an archive does;
    /// those of a checkpoint, of which a failed sync poisons the database.
    fn restart_wal(&self, writer: &Connection) -> Result<()>;
}

/// Runs of one member for which the WAL may restart. The second finds it empty, unless another
/// process wrote to it in between.
const MAX_RUNS_ALONE: u32 = 3;

pub(crate) struct Writer {
    connection: Connection,
    max_batch: usize,
    max_batch_time: Duration,
    time_limit: Duration,
    slow: Duration,
    clock: Arc<dyn Clock>,
    deadline: Arc<Deadline>,
    recorder: Arc<Recorder>,
    progress: Arc<Progress>,
    wal: Arc<WalControl>,
    failures: FailureRate,
    /// The runs of this step that were slow, and when they ended.
    slow_runs: Vec<(Duration, SlowTransaction)>,
    /// The clock when the last member ended, which is when the next one starts.
    now: Duration,
    lost_write: Option<String>,
    /// What members have taken of the writer's time in this step by running.
    runs: Spent,
    /// What they have taken altogether since their turn began.
    spent: Spent,
}

impl Writer {
    pub(crate) fn new(
        connection: Connection,
        deadline: Arc<Deadline>,
        options: &Options,
        recorder: Arc<Recorder>,
        progress: Arc<Progress>,
        wal: Arc<WalControl>,
    ) -> Writer {
        Writer {
            connection,
            max_batch: options.max_batch,
            max_batch_time: options.max_batch_time,
            time_limit: options.write_time_limit,
            slow: options.slow_transaction,
            clock: Arc::clone(&options.clock),
            deadline,
            recorder,
            progress,
            wal,
            failures: FailureRate::default(),
            slow_runs: Vec::new(),
            now: Duration::ZERO,
            lost_write: None,
            runs: Spent::default(),
            spent: Spent::default(),
        }
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Gives back what makes the next transactions faster: statements, pages and frames.
    pub(crate) fn release_memory(&self) {
        self.connection.maintenance().release_memory();
        self.wal.release_memory();
    }

    /// Why nothing may be acknowledged any more, after a sync failed inside of a commit.
    pub(crate) fn lost_write(&self) -> Option<&str> {
        self.lost_write.as_deref()
    }

    /// The slow runs since the last call, with the moments when they ended.
    pub(crate) fn take_slow_runs(&mut self) -> Vec<(Duration, SlowTransaction)> {
        std::mem::take(&mut self.slow_runs)
    }

    /// What members have taken of the writer's time since the queue was told.
    pub(crate) fn spent(&mut self) -> &mut Spent {
        &mut self.spent
    }

    /// Runs and commits what is at the front of the inbox, as one transaction, and returns its
    /// members with their outcomes, none of them answered. Those that have to run once more are at
    /// the front of the inbox then, so it may return none.
    pub(crate) fn step(&mut self, batch: &mut HeldBatch<'_>, room: &dyn Room) -> Vec<Entry> {
        let started = self.clock.now();
        self.now = started;
        let is_alone = |entry: &Entry| entry.again == Some(Again::Alone);
        let members = if batch.inbox.front().is_some_and(is_alone) {
            self.step_alone(batch, room)
        } else {
            self.step_together(batch, room)
        };
        assert!(batch.done.is_empty(), "a member that has run is committed, undone or put back");
        self.record(&members, started);
        self.spent.add_whole(&mut self.runs, self.clock.now() - started);
        members
    }

    fn step_together(&mut self, batch: &mut HeldBatch<'_>, room: &dyn Room) -> Vec<Entry> {
        if let Err(error) = self.begin() {
            return self.refuse_batch(batch, Error::from(error));
        }
        // No member's time runs while another process has the lock.
        self.now = self.clock.now();
        let mut open = OpenBatch::default();
        let filled = self.fill(&mut open, batch);
        let mut members = open.out;
        match filled {
            Filled::Complete => members.extend(self.commit_batch(batch, room)),
            Filled::Lost { culprit, is_final } => {
                self.abandon();
                self.failures.count_failure();
                if is_final || !culprit.member.is_repeatable() {
                    members.push(culprit);
                } else {
                    batch.put_back(culprit, Some(Again::Alone));
                }
                let done = std::mem::take(&mut batch.done);
                done.into_iter().rev().for_each(|entry| batch.put_back(entry, None));
            }
            Filled::Unclear { culprit } => {
                self.abandon();
                batch.done.extend(culprit);
                let done = std::mem::take(&mut batch.done);
                members.extend(batch.put_back_alone(done));
            }
            Filled::Taken { culprit } => {
                self.abandon();
                members.push(culprit);
            }
        }
        members
    }

    /// Begins a transaction. A reader that meets SQLite while it publishes a commit takes the write
    /// lock for a moment, to read what was published again, and can lose the core while it holds
    /// it; that is waited for, up to [`READER_MOMENT`].
    fn begin(&self) -> rusqlite::Result<()> {
        let start = Stopwatch::start();
        loop {
            match self.connection.begin_immediate() {
                Err(error) if is_busy(&error) && start.elapsed() < READER_MOMENT => {
                    clock::rest(Duration::from_micros(50));
                }
                begun => return begun,
            }
        }
    }

    fn fill(&mut self, open: &mut OpenBatch, batch: &mut HeldBatch<'_>) -> Filled {
        let started = self.now;
        while batch.done.len() < self.max_batch && self.now - started < self.max_batch_time {
            let Some(mut entry) = batch.next() else { break };
            let again = entry.again.take();
            if !entry.member.is_repeatable() {
                return self.run_once(batch, entry);
            }
            if again == Some(Again::InPlace) {
                match self.run_in_place(open, batch, entry) {
                    None => continue,
                    Some(end) => return end,
                }
            }
            if self.guard_group(open, batch.done.len()).is_err() {
                return Filled::Unclear { culprit: Some(entry) };
            }
            let run = self.run(&mut entry, batch);
            match run.effect {
                Effect::Stays => batch.done.push(entry),
                Effect::BatchTaken => return Filled::Taken { culprit: entry },
                _ if again.is_some() => return Filled::Unclear { culprit: Some(entry) },
                Effect::TransactionLost => {
                    return Filled::Lost { culprit: entry, is_final: run.is_final };
                }
                Effect::MustBeUndone => {
                    self.failures.count_failure();
                    if let Err(end) = self.undo_for(open, batch, entry, run.is_final) {
                        return end;
                    }
                }
            }
        }
        Filled::Complete
    }

    /// Runs a member that may run once only, as the last of its batch.
    fn run_once(&mut self, batch: &mut HeldBatch<'_>, mut entry: Entry) -> Filled {
        match self.run_in_savepoint(&mut entry, batch) {
            Ok(run) => match run.effect {
                Effect::TransactionLost => {
                    if let Some(hit) = run.hit {
                        entry.overrule(self.refused(hit, batch.done.is_empty()));
                    }
                    Filled::Lost { culprit: entry, is_final: true }
                }
                Effect::BatchTaken => Filled::Taken { culprit: entry },
                Effect::Stays | Effect::MustBeUndone => {
                    batch.done.push(entry);
                    Filled::Complete
                }
            },
            Err(error) => {
                entry.overrule(error.into());
                Filled::Lost { culprit: entry, is_final: true }
            }
        }
    }

    /// Ends the current group when it is long enough, and opens the next one's savepoint.
    fn guard_group(&self, open: &mut OpenBatch, done: usize) -> rusqlite::Result<()> {
        assert!(open.group_start <= done, "a group begins behind the one before");
        let size = self.failures.group_size();
        if open.group_guarded && size.is_some_and(|size| done - open.group_start >= size) {
            self.close_group(open, done)?;
        }
        let starts = done == open.group_start && !open.group_guarded;
        if starts && (open.group_start > 0 || size.is_some()) {
            self.connection.savepoint(Savepoint::Group)?;
            self.recorder.savepoints.add(1);
            open.group_guarded = true;
        }
        Ok(())
    }

    fn close_group(&self, open: &mut OpenBatch, done: usize) -> rusqlite::Result<()> {
        if open.group_guarded {
            self.connection.release(Savepoint::Group)?;
        }
        open.group_guarded = false;
        open.group_start = done;
        Ok(())
    }

    /// Undoes the current group because of `culprit`, and has it run again without; `culprit`
    /// follows in its place, unless another run would not tell more.
    fn undo_for(
        &mut self,
        open: &mut OpenBatch,
        batch: &mut HeldBatch<'_>,
        culprit: Entry,
        is_final: bool,
    ) -> Result<(), Filled> {
        if self.undo_group(open).is_err() {
            return Err(Filled::Unclear { culprit: Some(culprit) });
        }
        if is_final {
            open.out.push(culprit);
        } else {
            batch.put_back(culprit, Some(Again::InPlace));
        }
        let group = batch.done.split_off(open.group_start);
        group.into_iter().rev().for_each(|entry| batch.put_back(entry, Some(Again::InGroup)));
        Ok(())
    }

    fn undo_group(&self, open: &OpenBatch) -> rusqlite::Result<()> {
        if open.group_guarded {
            return self.connection.rollback_to(Savepoint::Group);
        }
        self.connection.rollback()?;
        self.begin()
    }

    /// Runs a member in a savepoint of its own behind its group, which ends with it. Tells how the
    /// batch ends, if it does.
    fn run_in_place(
        &mut self,
        open: &mut OpenBatch,
        batch: &mut HeldBatch<'_>,
        mut entry: Entry,
    ) -> Option<Filled> {
        match self.run_in_savepoint(&mut entry, batch).map(|run| run.effect) {
            Ok(Effect::TransactionLost) => Some(Filled::Lost { culprit: entry, is_final: false }),
            Ok(Effect::BatchTaken) => Some(Filled::Taken { culprit: entry }),
            Ok(Effect::Stays | Effect::MustBeUndone) => {
                batch.done.push(entry);
                let closed = self.close_group(open, batch.done.len());
                closed.err().map(|_| Filled::Unclear { culprit: None })
            }
            Err(_) => Some(Filled::Unclear { culprit: Some(entry) }),
        }
    }

    /// Runs `entry` so that it can be undone alone, and undoes it when it failed.
    fn run_in_savepoint(
        &mut self,
        entry: &mut Entry,
        batch: &mut HeldBatch<'_>,
    ) -> rusqlite::Result<Run> {
        self.connection.savepoint(Savepoint::Member)?;
        self.recorder.savepoints.add(1);
        let run = self.run(entry, batch);
        if matches!(run.effect, Effect::TransactionLost | Effect::BatchTaken) {
            return Ok(run);
        }
        if run.effect == Effect::MustBeUndone {
            self.connection.rollback_to(Savepoint::Member)?;
        }
        self.connection.release(Savepoint::Member)?;
        Ok(run)
    }

    /// Runs a member's closure once, and finds out what it left behind.
    fn run(&mut self, entry: &mut Entry, batch: &mut HeldBatch<'_>) -> Run {
        entry.attempts += 1;
        self.recorder.reruns.add(u64::from(entry.attempts > 1));
        let alone = entry.member.alone();
        let own_limit = entry.member.time_limit().filter(|own| *own < self.time_limit);
        let limit = alone.map(|it| it.limit).or(own_limit).unwrap_or(self.time_limit);
        self.deadline.set(self.now, limit);
        self.connection.start_counts();
        let tx = Tx::new(&self.connection, entry.attempts, batch.trace());
        let tx = if batch.done.is_empty() { tx.first() } else { tx };
        let caller = entry.member.terms().caller;
        let closure = Closure { since: self.now, limit, caller };
        let (ran, collected) = batch.leave_while(closure, || entry.member.run(&tx));
        let settled = tx.settle_at_end();
        let changed_rows = self.connection.counts().total_changes();
        let wrote = tx.may_have_written() || changed_rows != 0;
        let settled = settled.and_then(|()| self.flush_virtual_tables(ran, wrote));
        self.deadline.clear();
        let started = std::mem::replace(&mut self.now, self.clock.now());
        let time = self.now - started;
        self.runs.add(entry.member.terms().principal, time);
        let slowest =
            if time > self.slow || time >= limit { tx.slowest() } else { Slowest::default() };
        if time > self.slow {
            let wait = entry.member.submitted().elapsed().saturating_sub(time);
            let slow = SlowTransaction::ended(caller, wait, time, slowest.clone());
            self.slow_runs.push((self.now, slow));
        }
        entry.failed = ran != Ran::Succeeded;
        let is_late = self.connection.interruption().take_late()
            || time > limit
            || collected == Collected::Taken;
        let lost = !self.connection.is_in_transaction();
        if is_late && ran != Ran::Panicked {
            self.recorder.timed_out_transactions.add(1);
            entry.overrule(match own_limit {
                Some(_) => late(time, limit, "Database::with_time_limit", &slowest),
                None if alone.is_some() => late(time, limit, "its own", &slowest),
                None => late(time, limit, "option write_time_limit", &slowest),
            });
        } else if let Err(error) = settled
            && ran == Ran::Succeeded
        {
            entry.overrule(error);
        } else if lost && ran == Ran::Succeeded {
            entry.overrule(swallowed_rollback());
        } else if wrote && !entry.failed && self.connection.foreign_keys().have_deferred_violation()
        {
            let is_last_run =
                entry.attempts > 1 || alone.is_some() || !entry.member.is_repeatable();
            let keys = if is_last_run { self.violated_keys(limit) } else { Vec::new() };
            entry.overrule(deferred_violation(&keys));
        }
        let lost = lost || self.end_deferral(entry).is_err();
        let must_be_undone = entry.failed && wrote;
        let effect = match (collected, lost, must_be_undone) {
            (Collected::Taken, _, _) => Effect::BatchTaken,
            (_, true, _) => Effect::TransactionLost,
            (_, false, true) => Effect::MustBeUndone,
            (_, false, false) => Effect::Stays,
        };
        names::of(caller).into_iter().for_each(|named| named.record_run(entry, time, changed_rows));
        let hit = if lost { self.wal.take_limit_hit() } else { None };
        Run { effect, is_final: is_late || ran == Ran::Panicked, hit }
    }

    /// Has virtual tables write what they hold back of a member, so that it is not written as part
    /// of the next one's work.
    fn flush_virtual_tables(&self, ran: Ran, wrote: bool) -> Result<()> {
        let is_due = ran == Ran::Succeeded && wrote && self.connection.is_in_transaction();
        if is_due { Ok(self.connection.flush_virtual_tables()?) } else { Ok(()) }
    }

    /// Ends what the member has deferred. Should that fail, its transaction is lost.
    fn end_deferral(&self, entry: &mut Entry) -> rusqlite::Result<()> {
        let ended = self.connection.foreign_keys().end_deferral();
        if let Err(error) = &ended
            && !entry.failed
        {
            let message = format!("deferred foreign keys could not be enforced again: {error}");
            entry.overrule(Error::new(ErrorKind::Storage, message));
        }
        ended
    }

    /// What foreign keys a member violates; looks for as long as it may take, and for [`NAMING`] at
    /// most. That is no member's time: the batch has it in common ([`Spent::add_whole`]).
    fn violated_keys(&mut self, limit: Duration) -> Vec<String> {
        self.deadline.set(self.now, limit.min(NAMING));
        let keys = self.connection.foreign_keys().violated();
        self.deadline.clear();
        self.now = self.clock.now();
        keys
    }

    /// Commits the open transaction, and returns its members.
    fn commit_batch(&mut self, batch: &mut HeldBatch<'_>, room: &dyn Room) -> Vec<Entry> {
        let mut done = std::mem::take(&mut batch.done);
        let Err(uncommitted) = self.commit() else { return done };
        self.abandon();
        let lacks_room = uncommitted.lacks_room();
        let is_alone = done.len() == 1;
        // Only the last member can be one that runs once: it ends its batch.
        let ran_once = |last: &&mut Entry| !last.member.is_repeatable() && !last.failed;
        if let Some(once) = done.last_mut().filter(ran_once) {
            once.overrule(match uncommitted {
                Uncommitted::Full(hit) => self.refused(hit, is_alone),
                Uncommitted::DiskFull(error) | Uncommitted::Failed(error) => error.of_commit(),
            });
        }
        if lacks_room && let Err(error) = self.make_room(|writer| room.restart_wal(writer)) {
            refuse(&mut done, &error);
            return done;
        }
        batch.put_back_alone(done)
    }

    fn commit(&mut self) -> Result<(), Uncommitted> {
        let start = self.clock.now();
        self.progress.expose();
        let result = self.connection.commit().map_err(Error::from);
        self.recorder.commit_seconds.record_time(self.clock.now() - start);
        self.recorder.commits.add(1);
        let Err(error) = result else {
            self.wal.note_committed();
            return Ok(());
        };
        self.wal.note_failed();
        self.note_lost_write(&error, "a commit");
        Err(match self.wal.take_limit_hit() {
            Some(LimitHit::DiskFull) => Uncommitted::DiskFull(error),
            Some(hit) => Uncommitted::of(hit),
            None => Uncommitted::Failed(error),
        })
    }

    /// The answer to a member that cannot run again, and that the WAL has refused.
    fn refused(&self, hit: LimitHit, is_alone: bool) -> Error {
        match hit {
            LimitHit::GateShut => not_captured(),
            LimitHit::DiskFull => disk_full(),
            LimitHit::TooLarge if is_alone => self.too_large(),
            // It may be its neighbours that are too large.
            LimitHit::TooLarge | LimitHit::NoRoomLeft => no_room_left(),
        }
    }

    fn too_large(&self) -> Error {
        let message = format!(
            "the commit failed: the transaction changes more than fits in the WAL ({} bytes, \
             option wal_limit_bytes); do less in one transaction or raise the limit",
            self.wal.limit_bytes()
        );
        Error::new(ErrorKind::Invalid, message)
    }

    fn note_lost_write(&mut self, error: &Error, inside_of: &str) {
        if error.is_lost_write() {
            self.lost_write = Some(format!("{inside_of} failed in the files ({error})"));
        }
    }

    /// Has `make` wait for room in the WAL. No member's time limit runs meanwhile.
    fn make_room(&mut self, make: impl FnOnce(&Connection) -> Result<()>) -> Result<()> {
        let made = make(&self.connection);
        self.now = self.clock.now();
        if let Err(error) = &made {
            self.note_lost_write(error, "a checkpoint");
        }
        made
    }

    /// Rolls back whatever is open.
    fn abandon(&self) {
        // A failure leaves the transaction open, and the next BEGIN reports it.
        let _ = self.connection.rollback();
    }

    /// Runs the first member in a transaction of its own, with as much room in the WAL as it needs.
    /// When there is none to be had, it and those behind it that are to run alone are refused.
    fn step_alone(&mut self, batch: &mut HeldBatch<'_>, room: &dyn Room) -> Vec<Entry> {
        let Some(mut entry) = batch.inbox.pop_front() else { return Vec::new() };
        let around = entry.member.alone().map_or(Around::Nothing, |alone| alone.around);
        let ran = match (entry.member.terms().foreign_keys, around) {
            (ForeignKeys::Off, _) => self.run_without_foreign_keys(&mut entry, batch, room),
            (ForeignKeys::On, Around::Vacuum) => self.run_and_vacuum(&mut entry, batch, room),
            (ForeignKeys::On, Around::Repeat) => self.run_and_repeat(&mut entry, batch, room),
            (ForeignKeys::On, Around::Nothing) => self.run_alone(&mut entry, batch, room),
        };
        let mut members = vec![entry];
        if let Err(error) = ran {
            let next_alone = || batch.pop_if(|entry| entry.again == Some(Again::Alone));
            members.extend(std::iter::from_fn(next_alone));
            refuse(&mut members, &error);
        }
        members
    }

    /// As [`Writer::run_alone`], with foreign keys off until its transaction has ended.
    fn run_without_foreign_keys(
        &mut self,
        entry: &mut Entry,
        batch: &mut HeldBatch<'_>,
        room: &dyn Room,
    ) -> Result<()> {
        if let Err(error) = self.connection.foreign_keys().suspend() {
            entry.overrule(error.into());
            return Ok(());
        }
        // Its closure cannot unwind out of this, nor return while its transaction is open.
        let ran = self.run_alone(entry, batch, room);
        self.connection.foreign_keys().resume();
        ran
    }

    /// # Errors
    /// When there is no room to be had. Nothing of it is committed, and it has no answer yet.
    fn run_alone(
        &mut self,
        entry: &mut Entry,
        batch: &mut HeldBatch<'_>,
        room: &dyn Room,
    ) -> Result<()> {
        let mut is_restarted = false;
        for _ in 0..MAX_RUNS_ALONE {
            if let Err(error) = self.begin() {
                entry.overrule(error.into());
                return Ok(());
            }
            self.now = self.clock.now();
            let run = self.run(entry, batch);
            let commits = run.effect == Effect::Stays && !entry.failed;
            let committed = match run.hit {
                Some(hit) => Err(Uncommitted::of(hit)),
                None if commits => self.commit(),
                None => Ok(()),
            };
            self.abandon();
            match committed {
                Err(Uncommitted::DiskFull(error)) if is_restarted => {
                    entry.overrule(error.of_commit());
                }
                Err(uncommitted) if uncommitted.lacks_room() => {
                    let is_over = !entry.member.is_repeatable();
                    if is_over {
                        entry.overrule(uncommitted.of_once());
                    }
                    self.make_room(|writer| room.restart_wal(writer))?;
                    is_restarted = true;
                    if !is_over {
                        continue;
                    }
                }
                Err(Uncommitted::Full(_)) => entry.overrule(self.too_large()),
                Err(Uncommitted::DiskFull(error) | Uncommitted::Failed(error)) => {
                    entry.overrule(error.of_commit());
                }
                Ok(()) => {}
            }
            return Ok(());
        }
        Err(no_room_left())
    }

    /// No transaction could be begun: answers as many members as a batch would have had.
    fn refuse_batch(&self, batch: &mut HeldBatch<'_>, error: Error) -> Vec<Entry> {
        let (kind, text) = (error.kind(), error.context("no write transaction can begin"));
        let count = batch.inbox.len().min(self.max_batch);
        let mut refused: Vec<Entry> = batch.inbox.drain(..count).collect();
        refuse(&mut refused, &Error::new(kind, text.to_string()));
        self.recorder.failed_transactions.add(refused.len() as u64);
        refused
    }

    fn record(&mut self, members: &[Entry], started: Duration) {
        if members.is_empty() {
            return;
        }
        let failed = members.iter().filter(|entry| entry.failed).count();
        self.failures.count_members(members.len());
        self.recorder.transactions.add(members.len() as u64);
        self.recorder.failed_transactions.add(failed as u64);
        self.recorder.batch_size.record(members.len() as u64);
        self.recorder.batch_seconds.record_time(self.clock.now() - started);
    }
}

impl Batch {
    /// The next member for the open transaction; none when it is to run alone.
    fn next(&mut self) -> Option<Entry> {
        let entry = self.pop_if(|entry| entry.again != Some(Again::Alone))?;
        if let Some(ahead) = self.inbox.get(FETCH_AHEAD) {
            ahead.member.fetch();
        }
        Some(entry)
    }

    fn pop_if(&mut self, is_wanted: impl Fn(&Entry) -> bool) -> Option<Entry> {
        if self.inbox.front().is_some_and(is_wanted) { self.inbox.pop_front() } else { None }
    }

    /// Has `entry` run before all others.
    fn put_back(&mut self, mut entry: Entry, again: Option<Again>) {
        entry.again = again;
        self.inbox.push_front(entry);
    }

    /// Has those of `done` run alone that can be repeated, and returns the others.
    fn put_back_alone(&mut self, done: Vec<Entry>) -> Vec<Entry> {
        let (again, over): (Vec<_>, Vec<_>) =
            done.into_iter().partition(|entry| entry.member.is_repeatable());
        again.into_iter().rev().for_each(|entry| self.put_back(entry, Some(Again::Alone)));
        over
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
}

/// Answers members that are not to run, or that ran and were rolled back; one that runs once and
/// did so keeps its answer.
fn refuse(entries: &mut [Entry], error: &Error) {
    for entry in
        entries.iter_mut().filter(|entry| entry.attempts == 0 || entry.member.is_repeatable())
    {
        entry.overrule(error.repeated());
    }
}
