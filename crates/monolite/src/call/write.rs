//! Owns the handle of a write: a future that also has a blocking [`Write::wait`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::call::completion::{Completion, Outcome};
use crate::call::inside::DatabaseId;
use crate::call::member::Member;
use crate::call::queue::Entered;
use crate::call::queue::lanes::Ticket;
use crate::call::write_queue::WriteQueue;
use crate::error::{Error, ErrorKind};

/// A write on its way: a [`Future`] of its result, which can also be waited for.
///
/// The transaction went to the writer when this handle was made. If the queue was full, it waits
/// for its turn, whether the handle is polled or not.
///
/// # Cancellation
/// Dropping the handle does not stop the transaction, even in front of a full queue: it runs to
/// completion, and its result is dropped. So a loop that makes handles and drops them has no
/// backpressure: use [`Database::try_write`](crate::Database::try_write) there.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// # db.write(|tx| tx.execute_batch("CREATE TABLE t(x)")).wait()?;
/// let add = |n: i64| db.write(move |tx| tx.execute("INSERT INTO t VALUES (?1)", [n]));
/// // A thousand are handed over, then each is waited for: they share commits.
/// let writes: Vec<monolite::Write<usize>> = (0..1_000).map(add).collect();
/// for write in writes {
///     assert_eq!(write.wait()?, 1);
/// }
/// smol::block_on(async { add(7).await })?; // or awaited
/// # db.close()
/// # }
/// ```
#[must_use = "a write that is neither waited for nor awaited has an unknown result"]
pub struct Write<T, E = Error> {
    caller: Arc<Completion<T, E>>,
    /// The database whose writer delivers the result.
    database: Option<DatabaseId>,
    place: Where,
}

/// Where the transaction is.
enum Where {
    /// In the queue, or past it.
    Sent,
    /// Before the queue, at least when this was noted.
    Waits(Arc<WriteQueue>, Ticket),
    /// Here: the handle was made inside of a write closure of the same database, where waiting for
    /// it is refused. It is sent when the handle is dropped, or waited for somewhere else.
    Here(Arc<WriteQueue>, Box<dyn Member>),
}

impl<T, E> Write<T, E> {
    pub(crate) fn submit(
        member: Box<dyn Member>,
        caller: Arc<Completion<T, E>>,
        queue: &Arc<WriteQueue>,
    ) -> Write<T, E> {
        let database = queue.database();
        let place = if database.has_writer() {
            Where::Here(Arc::clone(queue), member)
        } else {
            Where::send(member, queue)
        };
        Write { caller, database: Some(database), place }
    }

    /// The handle of a write that is in `queue`.
    pub(crate) fn in_queue(caller: Arc<Completion<T, E>>, queue: &WriteQueue) -> Write<T, E> {
        Write { caller, database: Some(queue.database()), place: Where::Sent }
    }

    /// The handle of a result that does not come from the writer.
    pub(crate) fn past(caller: Arc<Completion<T, E>>) -> Write<T, E> {
        Write { caller, database: None, place: Where::Sent }
    }

    /// Makes sure that the transaction is sent before a thread waits for it.
    ///
    /// # Errors
    /// Inside of a write closure of the same database, which would wait for itself: `Invalid` when
    /// the transaction is not run, and `CommitUnknown` when it was sent before and its result is
    /// not there.
    fn before_wait(&mut self) -> Result<(), Error> {
        let waits_for_itself = self.database.is_some_and(DatabaseId::has_writer);
        match std::mem::replace(&mut self.place, Where::Sent) {
            Where::Here(queue, member) if !waits_for_itself => {
                self.place = Where::send(member, &queue);
            }
            Where::Here(..) => return Err(not_run()),
            Where::Waits(queue, ticket) if waits_for_itself => match queue.withdraw(ticket) {
                Some(_) => return Err(not_run()),
                None => return self.there_already(),
            },
            Where::Sent if waits_for_itself => return self.there_already(),
            place => self.place = place,
        }
        Ok(())
    }

    fn there_already(&self) -> Result<(), Error> {
        if self.caller.is_delivered() { Ok(()) } else { Err(result_lost()) }
    }
}

impl Where {
    fn send(member: Box<dyn Member>, queue: &Arc<WriteQueue>) -> Where {
        match queue.submit(member) {
            Entered::In => Where::Sent,
            Entered::Waits(ticket) => Where::Waits(Arc::clone(queue), ticket),
        }
    }
}

impl<T, E: From<Error>> Write<T, E> {
    /// Blocks the calling thread until the write is acknowledged, and returns its result.
    ///
    /// # Errors
    /// The closure's own error; or, converted from [`Error`], the engine's: `Timeout`,
    /// `Overloaded` (the WAL got no room, or the closure of another write does not return),
    /// `Constraint`, `Storage`, `Poisoned`, `Closed`, and `Invalid` when it changes more than fits
    /// in the WAL. A write closure that waits for another write of the same database would wait
    /// for itself: `Invalid`, and the inner write is not run; `CommitUnknown` if that write was
    /// made outside of the closure, and it goes on.
    ///
    /// # Panics
    /// With the closure's panic, when it panicked.
    ///
    /// # Durability
    /// With [`Durability::Synced`](crate::Durability::Synced), `Ok` means that this transaction
    /// and every one acknowledged before it are on disk.
    pub fn wait(mut self) -> Result<T, E> {
        self.before_wait()?;
        self.caller.wait().unwrap_for_caller()
    }
}

impl<T, E: From<Error>> Future for Write<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.before_wait()?;
        self.caller.poll(context).map(Outcome::unwrap_for_caller)
    }
}

impl<T, E> fmt::Debug for Write<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_queued = matches!(self.place, Where::Sent);
        f.debug_struct("Write").field("is_queued", &is_queued).finish_non_exhaustive()
    }
}

impl<T, E> Drop for Write<T, E> {
    fn drop(&mut self) {
        if let Where::Here(queue, member) = std::mem::replace(&mut self.place, Where::Sent) {
            queue.submit(member);
        }
    }
}

fn not_run() -> Error {
    let message = "a write closure (or a drop or a waker that the engine calls) waited for \
                   another write of the same database, which would wait for itself: the inner \
                   write was not run; use the closure's own transaction";
    Error::new(ErrorKind::Invalid, message)
}

fn result_lost() -> Error {
    let message = "a write closure waited for an earlier write of the same database, which would \
                   wait for itself: that write goes on, and its result is not known here; wait \
                   for it elsewhere";
    Error::new(ErrorKind::CommitUnknown, message)
}
