//! Owns streams: reads whose rows the caller takes one by one, at its own pace.
//!
//! # Algorithm
//! 1. A stream runs its query on a thread and a connection that only streams use, as many as there
//!    are readers. So a stream whose rows are not taken can hold up other streams only.
//! 2. Rows go through a buffer ([`Buffer`]). When it is full, the query rests.
//! 3. A consumer that has taken nothing for the option `stream_stall_limit` loses the stream: the
//!    query ends, and connection and snapshot are free for the next one.
//! 4. Its snapshot is revoked like that of any read, and a query that rests is woken for it: it is
//!    in the middle of a statement, so only its own thread can end the snapshot.
//! 5. A stream that is dropped ends its query, whether it runs, rests or waits for a thread.
//!
//! # Invariants
//! - A stream ends with `None` only when every row of its snapshot was taken; whatever ends it
//!   earlier is its last item, an error.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_core::Stream;
use monolite_sqlite::{Interruption, rusqlite};
use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::activity::{CallKind, Caller};
use crate::call::blocked::wait_until;
use crate::call::completion::Outcome;
use crate::call::inside::Place;
use crate::call::work::Work;
use crate::clock::Patience;
use crate::error::{Error, ErrorKind, Result};
use crate::parameters::{Bind as _, Parameters};
use crate::read::handle::ReadSide;

/// Rows that are read ahead: enough that query and consumer seldom wait for each other.
const MOST_ROWS: usize = 256;

/// Bytes of rows that are read ahead, about; a single row may have more.
const MOST_BYTES: usize = 1 << 20;

/// What is asked for, and for how long.
pub(crate) struct Query {
    pub(crate) caller: Caller,
    pub(crate) sql: String,
    pub(crate) parameters: Result<Parameters>,
    /// Where it is less than the option.
    pub(crate) time_limit: Option<Duration>,
    pub(crate) stall_limit: Duration,
}

type Body = Box<dyn FnOnce(&ReadSide) -> Result<()> + Send>;

/// The rows of a query, from [`Database::read_stream`](crate::Database::read_stream): a
/// [`Stream`] of them, and with [`RowStream::wait`] an iterator for a thread.
///
/// Nothing happens before it is polled. All rows are of one snapshot.
///
/// # Cancellation
/// Dropping it ends the query and gives its connection to the next stream.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// use smol::stream::StreamExt as _;
/// # let db = monolite::Database::open(":memory:")?;
/// let sql = "SELECT value FROM generate_series(1, 3)";
/// let mut rows = db.read_stream(sql, (), |row| row.get::<_, i64>(0));
/// smol::block_on(async {
///     assert_eq!(rows.next().await.transpose()?, Some(1));
///     drop(rows); // the query ends, the rest is not read
///     Ok(())
/// })
/// # }
/// ```
#[must_use = "a stream does nothing until it is polled"]
pub struct RowStream<T> {
    side: Arc<ReadSide>,
    buffer: Arc<Buffer<T>>,
    work: Work<Body, (), Error>,
    is_over: bool,
    /// The last item, when the rows before it were taken.
    failure: Option<Error>,
}

// No field is ever pinned.
impl<T> Unpin for RowStream<T> {}

impl<T: Send + 'static> RowStream<T> {
    pub(crate) fn new<F>(side: &Arc<ReadSide>, query: Query, mut map: F) -> RowStream<T>
    where
        F: FnMut(&Row<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let buffer = Arc::new(Buffer::new(query.stall_limit));
        let filled = Arc::clone(&buffer);
        let Query { caller, sql, parameters, time_limit, .. } = query;
        let body = move |side: &ReadSide| {
            let parameters = parameters.map_err(|error| error.in_statement(&sql))?;
            side.readers.run(caller, time_limit, |tx| {
                tx.with_statement(&sql, |statement| {
                    let told = |error| tx.explain(&sql, error);
                    let mut rows = (&parameters).query(statement).map_err(told)?;
                    while let Some(row) = rows.next().map_err(told)? {
                        let (value, bytes) = (map(row).map_err(told)?, bytes_of(row));
                        filled.put(value, bytes.map_err(told)?, tx.interruption())?;
                    }
                    Ok(())
                })
            })
        };
        let work = Work::new(Box::new(body) as Body);
        RowStream { side: Arc::clone(side), buffer, work, is_over: false, failure: None }
    }

    /// The rows for a thread, which blocks while there is none yet.
    pub fn wait(self) -> RowIterator<T> {
        RowIterator { stream: self }
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let side = &self.side;
        side.database.check_process()?;
        if side.database.is_inside(Place::Write) {
            return Poll::Ready(Err(inside_a_write()));
        }
        let bind = |body: Body| {
            let side = Arc::clone(side);
            move || body(&side)
        };
        // The caller is in the closure.
        let caller = Caller::default().of(CallKind::Stream);
        self.work.poll(&side.threads.queue, context, caller, bind).map(Outcome::unwrap_for_caller)
    }
}

impl<T: Send + 'static> Stream for RowStream<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        if let Some(row) = self.buffer.take(context.waker()) {
            return Poll::Ready(Some(Ok(row)));
        }
        if !self.is_over {
            let Poll::Ready(end) = self.poll_end(context) else { return Poll::Pending };
            (self.is_over, self.failure) = (true, end.err());
            // It may have put some since this was looked at.
            if let Some(row) = self.buffer.take(context.waker()) {
                return Poll::Ready(Some(Ok(row)));
            }
        }
        Poll::Ready(self.failure.take().map(Err))
    }
}

impl<T> Drop for RowStream<T> {
    fn drop(&mut self) {
        self.buffer.close();
        self.work.leave(&self.side.threads.queue);
    }
}

impl<T> fmt::Debug for RowStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowStream").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

/// The rows of a [`RowStream`] for a thread, from [`RowStream::wait`].
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// let sql = "SELECT value FROM generate_series(1, 3)";
/// let rows = db.read_stream(sql, (), |row| row.get::<_, i64>(0)).wait();
/// assert_eq!(rows.collect::<monolite::Result<Vec<_>>>()?, [1, 2, 3]);
/// # db.close()
/// # }
/// ```
#[derive(Debug)]
pub struct RowIterator<T> {
    stream: RowStream<T>,
}

impl<T: Send + 'static> Iterator for RowIterator<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        wait_until(|waker| Pin::new(&mut self.stream).poll_next(&mut Context::from_waker(waker)))
    }
}

/// Rows between the query and the consumer.
struct Buffer<T> {
    held: Mutex<HeldRows<T>>,
    /// Rows were taken, the taker is gone, or the query has to end.
    taken: Condvar,
    stall_limit: Duration,
}

struct HeldRows<T> {
    rows: VecDeque<(T, usize)>,
    bytes: usize,
    /// The time there is for the next one to be taken, while the query rests.
    patience: Option<Patience>,
    is_closed: bool,
    consumer: Option<Waker>,
}

impl<T> HeldRows<T> {
    fn is_full(&self) -> bool {
        self.rows.len() >= MOST_ROWS || self.bytes >= MOST_BYTES
    }

    /// Whether there is room that it is worth to go on for.
    fn has_room(&self) -> bool {
        self.rows.len() <= MOST_ROWS / 2 && self.bytes <= MOST_BYTES / 2
    }
}

impl<T> Buffer<T> {
    fn new(stall_limit: Duration) -> Buffer<T> {
        let rows = VecDeque::new();
        let held = HeldRows { rows, bytes: 0, patience: None, is_closed: false, consumer: None };
        Buffer { held: Mutex::new(held), taken: Condvar::new(), stall_limit }
    }

    fn held(&self) -> MutexGuard<'_, HeldRows<T>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room, see [`Buffer::put`].
    fn rest(&self, interruption: &Interruption) -> Result<()> {
        let mut patience = Patience::of(self.stall_limit);
        let mut held = self.held();
        while !held.has_room() && !held.is_closed {
            if interruption.is_revoked() {
                return Err(revoked());
            }
            let left = patience.left();
            if left.is_zero() {
                return Err(stalled(self.stall_limit));
            }
            held.patience = Some(patience);
            let waited = self.taken.wait_timeout(held, left);
            held = waited.unwrap_or_else(PoisonError::into_inner).0;
            patience = held.patience.take().unwrap_or(patience);
        }
        if held.is_closed { Err(dropped()) } else { Ok(()) }
    }

    /// The next row; without one, `waker` is woken when there is one.
    fn take(&self, waker: &Waker) -> Option<T> {
        let mut held = self.held();
        let Some((row, bytes)) = held.rows.pop_front() else {
            held.consumer = Some(waker.clone());
            return None;
        };
        assert!(held.bytes >= bytes, "the bytes of rows that wait are counted");
        held.bytes -= bytes;
        if let Some(patience) = &mut held.patience {
            *patience = Patience::of(self.stall_limit);
        }
        let has_room = held.has_room();
        drop(held);
        if has_room {
            self.taken.notify_one();
        }
        Some(row)
    }

    fn close(&self) {
        let mut held = self.held();
        held.is_closed = true;
        let left = std::mem::take(&mut held.rows);
        drop(held);
        self.taken.notify_one();
        drop(left);
    }
}

impl<T: Send + 'static> Buffer<T> {
    /// Puts a row behind the others, and waits for room.
    ///
    /// # Errors
    /// `Timeout` when none was taken for the limit; `Aborted` when the taker is gone, or the
    /// snapshot was revoked, which `interruption` show and the query's thread reports.
    fn put(self: &Arc<Self>, row: T, bytes: usize, interruption: &Interruption) -> Result<()> {
        let mut held = self.held();
        held.rows.push_back((row, bytes));
        held.bytes += bytes;
        assert!(held.rows.len() <= MOST_ROWS, "a query rests while its buffer is full");
        let consumer = held.consumer.take();
        if consumer.is_some() {
            drop(held);
            consumer.into_iter().for_each(Waker::wake);
            held = self.held();
        }
        if !held.is_full() && !held.is_closed {
            return Ok(());
        }
        drop(held);
        interruption.wake_when_revoked(Some(Waker::from(Arc::clone(self))));
        let rested = self.rest(interruption);
        interruption.wake_when_revoked(None);
        rested
    }
}

impl<T: Send> Wake for Buffer<T> {
    fn wake(self: Arc<Self>) {
        // The query looks, and rests, under the lock: it does not miss this in between.
        drop(self.held());
        self.taken.notify_one();
    }
}

/// About how many bytes a row has.
fn bytes_of(row: &Row<'_>) -> rusqlite::Result<usize> {
    let columns = AsRef::<rusqlite::Statement<'_>>::as_ref(row).column_count();
    let mut bytes = 0;
    for i in 0..columns {
        bytes += size_of::<ValueRef<'_>>()
            + match row.get_ref(i)? {
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
                ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 0,
            };
    }
    Ok(bytes)
}

fn stalled(limit: Duration) -> Error {
    let message = format!(
        "the stream was ended: no row of it was taken for {limit:.1?} (option \
         stream_stall_limit); take rows sooner, or ask for them in pieces (WHERE id > ?1 ORDER BY \
         id LIMIT 1000)"
    );
    Error::new(ErrorKind::Timeout, message)
}

fn dropped() -> Error {
    Error::aborted("the stream was dropped")
}

fn revoked() -> Error {
    Error::aborted("the snapshot of the stream was ended")
}

fn inside_a_write() -> Error {
    let message = "a write closure polled a stream of the same database, and would hold up its \
                   writer; use the closure's own transaction";
    Error::new(ErrorKind::Invalid, message)
}
