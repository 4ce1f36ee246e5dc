//! Owns the handle of a read: run on the caller's thread by [`Read::wait`], or handed to a reader
//! thread when it is awaited.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::activity::Caller;
use crate::call::blocked::runs_here;
use crate::call::completion::{Completion, Outcome};
use crate::call::inside::{DatabaseId, Place};
use crate::call::work::Work;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::read::readers::Readers;
use crate::read::threads::ReadThreads;
use crate::tx::ReadTx;

/// When the result of a read may be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// As soon as it is there.
    AtOnce,
    /// When everything it may have seen is on disk.
    OnceDurable,
    /// When that is in the archive, too, or on so many replicas; for which it waits so long, or as
    /// long as any.
    OnceArchived { replicas: Option<u8>, limit: Option<Duration> },
}

/// What was asked for of one read.
#[derive(Clone, Copy)]
struct Terms {
    answer: Answer,
    /// Where it is less than the option.
    time_limit: Option<Duration>,
    caller: Caller,
}

/// What is delivered when everything that is committed is archived, or with the reason why it is
/// not, after this time at the latest if it is less than the option.
pub(crate) type WaitForArchive =
    Arc<dyn Fn(Option<u8>, Option<Duration>) -> Arc<Completion<(), Error>> + Send + Sync>;

/// A read that has run, and what is to happen before it is told.
struct Ran<T, E> {
    result: Result<T, E>,
    /// Delivered when what it may have seen is on disk, or archived.
    kept: Option<Arc<Completion<(), Error>>>,
}

impl<T, E: From<Error>> Ran<T, E> {
    fn wait(self) -> Result<T, E> {
        if let Some(kept) = self.kept {
            kept.wait().unwrap_for_caller()?;
        }
        self.result
    }
}

/// What a read needs of the engine.
pub(crate) struct ReadSide {
    pub(crate) database: DatabaseId,
    pub(crate) readers: Arc<Readers>,
    pub(crate) progress: Arc<Progress>,
    /// Tells when all that a read may have seen is archived, if there is an archive.
    pub(crate) archived: Option<WaitForArchive>,
    /// For awaited reads.
    pub(crate) threads: Arc<ReadThreads>,
}

/// A read that has not run yet: call [`Read::wait`], or await it.
///
/// # Cancellation
/// Dropping an awaited read ends it. One that has not begun does not run; in one that has, the
/// running statement and the next ones fail. Its closure goes on until it returns.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// let name = String::from("ann");
/// let read = db.read(|tx| tx.query_row("SELECT length(?1)", [&name], |row| row.get(0)));
/// let length: i64 = read.wait()?; // on this thread, so it may borrow
/// assert_eq!(length, 3);
/// let read = db.read(move |tx| tx.query_row("SELECT length(?1)", [name], |row| row.get(0)));
/// let length: i64 = smol::block_on(async { read.await })?; // on another one
/// assert_eq!(length, 3);
/// # db.close()
/// # }
/// ```
#[must_use = "a read does nothing until it is waited for or awaited"]
pub struct Read<'d, F, T, E = Error> {
    side: &'d Arc<ReadSide>,
    terms: Terms,
    work: Work<F, Ran<T, E>, E>,
    /// While it waits for the disk or the archive: on no thread, as others have reads for those.
    ran: Option<Ran<T, E>>,
}

// No field is ever pinned: a poll moves the closure out.
impl<F, T, E> Unpin for Read<'_, F, T, E> {}

impl<'d, F, T, E> Read<'d, F, T, E>
where
    F: FnOnce(&ReadTx<'_>) -> Result<T, E>,
    E: From<Error>,
{
    pub(crate) fn new(
        side: &'d Arc<ReadSide>,
        caller: Caller,
        time_limit: Option<Duration>,
        answer: Answer,
        body: F,
    ) -> Read<'d, F, T, E> {
        let terms = Terms { answer, time_limit, caller };
        Read { side, terms, work: Work::new(body), ran: None }
    }

    /// Runs the read on the calling thread and returns its result.
    ///
    /// Blocks while every reader connection is in use.
    ///
    /// # Errors
    /// The closure's own error; or, converted from [`Error`], the engine's: `Timeout` when the
    /// read, its closure's own time included, took longer than the option `read_time_limit`, or no
    /// connection was free for as long; `Closed`; `Poisoned` (a durable read only); of one that
    /// waits for the archive also `Fenced`, `Timeout` when that did not answer in time, and
    /// `Overloaded` when too many wait; `Invalid` when reads of one thread are nested deeper
    /// than there are readers.
    ///
    /// # Panics
    /// With the closure's panic; and when the read was polled before.
    pub fn wait(mut self) -> Result<T, E> {
        perform(self.side, self.terms, self.work.take("read"))?.wait()
    }
}

fn perform<T, E, F>(side: &ReadSide, terms: Terms, body: F) -> Result<Ran<T, E>, E>
where
    F: FnOnce(&ReadTx<'_>) -> Result<T, E>,
    E: From<Error>,
{
    let Terms { answer, time_limit, caller } = terms;
    if answer != Answer::AtOnce && side.database.is_inside(Place::Write) {
        let message = "a write closure waited for a durable read, which would wait for the \
                       closure's own batch; use the closure's transaction, or read()";
        return Err(Error::new(ErrorKind::Invalid, message).into());
    }
    let archived = match (answer, &side.archived) {
        (Answer::OnceArchived { .. }, None) => {
            return Err(Error::without_archive("read_archived").into());
        }
        (_, archived) => archived,
    };
    let result = side.readers.run(caller, time_limit, body);
    let kept = match (answer, archived) {
        (Answer::AtOnce, _) => None,
        (Answer::OnceArchived { replicas, limit }, Some(wait)) => Some(wait(replicas, limit)),
        _ => Some(once_durable(&side.progress)),
    };
    Ok(Ran { result, kept })
}

/// Delivered when everything that a read may have seen is on disk.
fn once_durable(progress: &Progress) -> Arc<Completion<(), Error>> {
    let durable = Completion::new();
    let told = Arc::clone(&durable);
    progress.when_durable(progress.exposed(), move |verdict| {
        told.deliver(Outcome::Returned(verdict));
    });
    durable
}

impl<F, T, E> Future for Read<'_, F, T, E>
where
    F: FnOnce(&ReadTx<'_>) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (side, terms) = (self.side, self.terms);
        side.database.check_process()?;
        // The reader threads may all be waiting for the writer, or for this one and its like.
        let is_inside = side.database.is_inside(Place::Write) || side.database.reads_around() > 0;
        if (is_inside || runs_here())
            && let Some(body) = self.work.take_new()
        {
            return Poll::Ready(perform(side, terms, body)?.wait());
        }
        let bind = |body| {
            let side = Arc::clone(side);
            move || perform(&side, terms, body)
        };
        if self.ran.is_none() {
            let outcome = ready!(self.work.poll(&side.threads.queue, context, terms.caller, bind));
            self.ran = Some(outcome.unwrap_for_caller()?);
        }
        if let Some(kept) = self.ran.as_ref().and_then(|ran| ran.kept.as_ref()) {
            ready!(kept.poll(context)).unwrap_for_caller()?;
        }
        let ran = self.ran.take().expect("it has run");
        Poll::Ready(ran.result)
    }
}

impl<F, T, E> Drop for Read<'_, F, T, E> {
    fn drop(&mut self) {
        self.work.leave(&self.side.threads.queue);
    }
}
