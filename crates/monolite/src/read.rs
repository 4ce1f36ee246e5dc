//! Owns the handle of a read: run on the caller's thread by [`Read::wait`], or handed to a reader
//! thread when it is awaited.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::clock::Clock;
use crate::completion::Outcome;
use crate::error::{Error, ErrorKind, Result};
use crate::inside::{DatabaseId, Place};
use crate::progress::Progress;
use crate::read_threads::ReadThreads;
use crate::readers::Readers;
use crate::stats::Recorder;
use crate::transaction::Sessions;
use crate::tx::Tx;
use crate::watch::Watch;
use crate::work::Work;

/// When the result of a read may be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// As soon as it is there.
    AtOnce,
    /// When everything it may have seen is on disk.
    OnceDurable,
}

/// What a read needs of the engine.
pub(crate) struct ReadSide {
    pub(crate) database: DatabaseId,
    pub(crate) readers: Readers,
    pub(crate) sessions: Sessions,
    pub(crate) progress: Arc<Progress>,
    /// For awaited reads.
    pub(crate) threads: Arc<ReadThreads>,
    /// For awaited statements of interactive transactions.
    pub(crate) statement_threads: Arc<ReadThreads>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) recorder: Arc<Recorder>,
}

impl ReadSide {
    /// All threads that run awaited work.
    pub(crate) fn all_threads(&self) -> [&Arc<ReadThreads>; 2] {
        [&self.threads, &self.statement_threads]
    }

    /// Ends the snapshots that nobody is using: those that idle connections keep, and those of
    /// interactive transactions that have rested for longer than `age`. Tells what still pins the
    /// WAL.
    pub(crate) fn release_idle(&self, age: Duration) -> Option<Pinned> {
        let reads = self.readers.release_idle();
        let statements = self.sessions.release_parked(age);
        reads.max(statements).map(|oldest| Pinned { oldest })
    }

    /// Revokes the snapshots of reads and statements that have been going on for longer than `age`
    /// and are not the latest: they keep the WAL from being copied. A batch outdates them as soon
    /// as it may be seen.
    pub(crate) fn revoke_outdated(&self, age: Duration) {
        let exposed = self.progress.exposed();
        self.revoke(age, |watch, began_by| watch.revoke_outdated(exposed, began_by));
    }

    /// Revokes snapshots that were taken before `moment`, of reads and statements that have been
    /// going on for longer than `age`: when the WAL has been copied whole since then, they alone
    /// keep it from starting anew. Later snapshots read the database file.
    pub(crate) fn revoke_taken_before(&self, moment: Duration, age: Duration) {
        self.revoke(age, |watch, began_by| watch.revoke_taken_before(moment, began_by));
    }

    fn revoke(&self, age: Duration, revoke: impl Fn(&Watch, Duration) -> bool) {
        let began_by = self.clock.now().saturating_sub(age);
        let reads = self.readers.watches().filter(|watch| revoke(watch, began_by)).count();
        let statements =
            self.sessions.watches().iter().filter(|watch| revoke(watch, began_by)).count();
        self.recorder.revoked_readers.add((reads + statements) as u64);
    }

    /// Waits for reads and statements to end, closes their connections, and refuses more.
    pub(crate) fn close(&self) {
        self.readers.close();
        self.sessions.close();
    }
}

/// How reads stand in the way of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pinned {
    /// How long the oldest use of an outdated snapshot has been going on.
    pub(crate) oldest: Duration,
}

/// A read that has not run yet: call [`Read::wait`], or await it.
///
/// # Cancellation
/// Dropping an awaited read ends it: it is not run if it has not begun, and if it has, its next
/// statement, or the next step of the one that runs, fails. Its closure goes on until it returns.
#[must_use = "a read does nothing until it is waited for or awaited"]
pub struct Read<'d, F, T, E = Error> {
    side: &'d Arc<ReadSide>,
    answer: Answer,
    work: Work<F, T, E>,
}

// No field is ever pinned: a poll moves the closure out.
impl<F, T, E> Unpin for Read<'_, F, T, E> {}

impl<'d, F, T, E> Read<'d, F, T, E>
where
    F: FnOnce(&Tx<'_>) -> Result<T, E>,
    E: From<Error>,
{
    pub(crate) fn new(side: &'d Arc<ReadSide>, answer: Answer, body: F) -> Read<'d, F, T, E> {
        Read { side, answer, work: Work::new(body) }
    }

    /// Runs the read on the calling thread and returns its result.
    ///
    /// Blocks while every reader connection is in use.
    ///
    /// # Errors
    /// The closure's own error; or, converted from [`Error`], the engine's: `Timeout` when the
    /// read, its closure's own time included, took longer than the option `read_time_limit`, or no
    /// connection was free for as long; `Closed`; `Poisoned` (a durable read only); `Invalid` when
    /// reads of one thread are nested deeper than there are readers.
    ///
    /// # Panics
    /// With the closure's panic; and when the read was polled before.
    pub fn wait(mut self) -> Result<T, E> {
        perform(self.side, self.answer, self.work.take("read"))
    }
}

fn perform<T, E, F>(side: &ReadSide, answer: Answer, body: F) -> Result<T, E>
where
    F: FnOnce(&Tx<'_>) -> Result<T, E>,
    E: From<Error>,
{
    if answer == Answer::OnceDurable && side.database.is_inside(Place::Write) {
        let message = "a durable read was waited for inside of a write closure, whose own batch it \
                       would wait for; use the closure's transaction, or read()";
        return Err(Error::new(ErrorKind::Invalid, message).into());
    }
    let result = side.readers.run(body);
    if answer == Answer::OnceDurable {
        side.progress.wait_durable(side.progress.exposed())?;
    }
    result
}

impl<F, T, E> Future for Read<'_, F, T, E>
where
    F: FnOnce(&Tx<'_>) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (side, answer) = (self.side, self.answer);
        side.database.check_process()?;
        // The reader threads may all be waiting for the writer.
        if side.database.is_inside(Place::Write)
            && let Some(body) = self.work.take_new()
        {
            return Poll::Ready(perform(side, answer, body));
        }
        let bind = |body| {
            let side = Arc::clone(side);
            move || perform(&side, answer, body)
        };
        self.work.poll(&side.threads.queue, context, bind).map(Outcome::unwrap_for_caller)
    }
}

impl<F, T, E> Drop for Read<'_, F, T, E> {
    fn drop(&mut self) {
        self.work.leave(&self.side.threads.queue);
    }
}
