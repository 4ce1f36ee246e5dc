//! Owns the threads and connections on which untrusted queries run. Nothing else uses them.
//!
//! # Algorithm
//! 1. A few threads run queries, each with a connection of its own, and one watches the time. A
//!    query starts those that it lacks; one that has no work ends after a while
//!    ([`crate::threads`]).
//! 2. A query is let in while fewer run than there may be threads, and refused with `Overloaded`
//!    otherwise.
//! 3. Its thread reads the newest schema, and prepares the statement outside of any transaction:
//!    the planner can take long, and must not keep a snapshot meanwhile.
//! 4. The first step takes the snapshot. From then on the query can be revoked as any reader
//!    ([`SnapshotHolder`]), without waiting for the call of SQLite that it is in.
//! 5. At its deadline, or when its handle is dropped, the query is interrupted and its caller
//!    answered. A call of SQLite that does not return keeps its thread, and nothing else.
//!
//! # Invariants
//! - A thread has one query at most, and there are as many queries as threads at most: a thread
//!   leaves under the lock under which queries come.
//! - A query whose caller was answered takes no step any more once SQLite returns.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use monolite_sqlite::rusqlite::types::{Value, ValueRef};
use monolite_sqlite::rusqlite::{self, Statement};
use monolite_sqlite::{Budget, Connection, QUERY_INSTRUCTIONS, accept_untrusted, trim_memory};

use super::{UntrustedLimits, UntrustedRows};
use crate::activity::events::{self, Call};
use crate::activity::{Caller, Statements};
use crate::call::completion::{Completion, Outcome};
use crate::call::inside::{DatabaseId, Inside, Place};
use crate::call::watch::Watch;
use crate::clock::{self, Clock, Patience};
use crate::error::{Error, ErrorKind, Result};
use crate::files::open::UNTRUSTED_CACHE_KIB;
use crate::parameters::{Bind as _, Parameters};
use crate::progress::Progress;
use crate::read::holders::SnapshotHolder;
use crate::read::readers::{OpenReader, Reader};
use crate::threads::{linger, spawn};
use crate::tx::collation_panicked;

/// A query and what it may take.
pub(super) struct Query {
    pub(super) caller: Caller,
    pub(super) call: Call,
    pub(super) sql: String,
    pub(super) parameters: Parameters,
    pub(super) limits: UntrustedLimits,
}

/// A query that was let in.
struct Entered {
    query: Query,
    caller: Arc<Completion<UntrustedRows, Error>>,
    deadline: Patience,
    /// Its caller was answered, or does not wait any more.
    is_over: AtomicBool,
    /// That of the connection on which it takes steps, as long as it does.
    watch: Mutex<Option<Arc<Watch>>>,
}

impl Entered {
    /// Ends the query, and answers its caller with `error`.
    fn end(&self, error: Error) {
        // Before the interrupt: a query that begins its first step now looks at it afterwards.
        self.is_over.store(true, Ordering::SeqCst);
        // Under the lock: the connection is not in the next query's hands meanwhile.
        if let Some(watch) = &*self.watch() {
            watch.stop();
        }
        self.caller.deliver(Outcome::Refused(error));
    }

    fn watch(&self) -> MutexGuard<'_, Option<Arc<Watch>>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

/// A caller's side of a query.
pub(super) struct Ticket(Arc<Entered>);

impl Ticket {
    pub(super) fn wait(self) -> Result<UntrustedRows> {
        self.0.caller.wait().unwrap_for_caller()
    }

    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<Outcome<UntrustedRows, Error>> {
        self.0.caller.poll(context)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.end(Error::aborted("the untrusted query was dropped"));
    }
}

#[derive(Default)]
struct RoomState {
    /// Queries that no thread has taken yet.
    entered: VecDeque<Arc<Entered>>,
    /// Queries that are entered or run.
    running: Vec<Arc<Entered>>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that run queries, and have not left.
    serving: usize,
    /// Whether one watches the time, and has not left.
    is_timed: bool,
    is_closed: bool,
}

/// The threads and connections of untrusted queries.
pub(crate) struct UntrustedRoom {
    database: DatabaseId,
    open: OpenReader,
    count: usize,
    clock: Arc<dyn Clock>,
    progress: Arc<Progress>,
    state: Mutex<RoomState>,
    /// A query came in, or the room is closed.
    came: Condvar,
    /// As `came`, for the thread that watches the time.
    changed: Condvar,
    watches: Mutex<Vec<Arc<Watch>>>,
}

impl UntrustedRoom {
    /// One for `count` queries at a time, on connections that `open` opens.
    pub(crate) fn new(
        database: DatabaseId,
        open: OpenReader,
        count: usize,
        clock: Arc<dyn Clock>,
        progress: Arc<Progress>,
    ) -> UntrustedRoom {
        UntrustedRoom {
            database,
            open,
            count,
            clock,
            progress,
            state: Mutex::default(),
            came: Condvar::new(),
            changed: Condvar::new(),
            watches: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, RoomState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_watches(&self) -> MutexGuard<'_, Vec<Arc<Watch>>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a query in.
    ///
    /// # Errors
    /// `Overloaded` when no thread is free; `Closed`; `Invalid` when this SQLite cannot limit it.
    pub(super) fn start(self: &Arc<Self>, query: Query) -> Result<Ticket> {
        self.database.check_process()?;
        accept_untrusted().map_err(|refusal| Error::new(ErrorKind::Invalid, refusal))?;
        let mut state = self.state();
        if state.is_closed {
            return Err(Error::closed());
        }
        if state.running.len() >= self.count {
            return Err(all_busy(self.count));
        }
        self.start_what_lacks(&mut state)?;
        let entered = Arc::new(Entered {
            deadline: Patience::of(query.limits.time),
            query,
            caller: Completion::new(),
            is_over: AtomicBool::new(false),
            watch: Mutex::default(),
        });
        state.running.push(Arc::clone(&entered));
        assert!(state.running.len() <= state.serving, "each query has a thread");
        state.entered.push_back(Arc::clone(&entered));
        drop(state);
        self.came.notify_one();
        self.changed.notify_one();
        Ok(Ticket(entered))
    }

    /// Starts the threads that one more query needs.
    fn start_what_lacks(self: &Arc<Self>, state: &mut RoomState) -> Result<()> {
        state.threads.retain(|thread| !thread.is_finished());
        if !state.is_timed {
            let room = Arc::clone(self);
            state.threads.push(spawn("monolite-untrusted-time", move || room.watch_time())?);
            state.is_timed = true;
        }
        if state.serving == state.running.len() {
            let (room, name) = (Arc::clone(self), format!("monolite-untrusted-{}", state.serving));
            state.threads.push(spawn(&name, move || room.serve())?);
            state.serving += 1;
        }
        Ok(())
    }

    /// Ends each query at its deadline, until there have been none for a while.
    fn watch_time(&self) {
        let _inside = Inside::enter(self.database, Place::Write);
        let mut state = self.state();
        while !state.is_closed {
            let waiting = state.running.iter().filter(|query| !query.is_over());
            let left = waiting.map(|query| query.deadline.left()).min();
            if left != Some(Duration::ZERO) {
                let waited = self.changed.wait_timeout(state, left.unwrap_or_else(linger));
                let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                state = woken;
                if timeout.timed_out() && state.running.is_empty() {
                    break;
                }
                continue;
            }
            let is_late = |query: &&Arc<Entered>| query.deadline.left().is_zero();
            let late: Vec<_> = state.running.iter().filter(is_late).cloned().collect();
            drop(state);
            for query in late.iter().filter(|query| !query.is_over()) {
                query.end(too_late(query.query.limits.time));
            }
            state = self.state();
        }
        state.is_timed = false;
    }

    /// Runs queries until the room is closed, or there have been none for a while.
    fn serve(&self) {
        // A close waits for this thread: a waker or a function that closes is refused.
        let _inside = Inside::enter(self.database, Place::Write);
        let mut seat = None;
        let mut state = self.state();
        let mut is_late = false;
        loop {
            let Some(entered) = state.entered.pop_front() else {
                if state.is_closed || is_late {
                    break;
                }
                let waited = self.came.wait_timeout(state, linger());
                let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                (state, is_late) = (woken, timeout.timed_out());
                continue;
            };
            drop(state);
            is_late = false;
            let outcome = entered.query.call.in_span(|| self.answer(&mut seat, &entered));
            state = self.state();
            // Before its caller is answered, who may have the next query.
            let before = state.running.len();
            state.running.retain(|running| !Arc::ptr_eq(running, &entered));
            assert_eq!(state.running.len() + 1, before, "a query ends once");
            drop(state);
            entered.caller.deliver(outcome);
            state = self.state();
        }
        assert!(state.serving > state.running.len(), "a thread without a query leaves");
        state.serving -= 1;
        drop(state);
        if let Some(Seat { watch, .. }) = &seat {
            self.lock_watches().retain(|other| !Arc::ptr_eq(other, watch));
        }
        drop(seat);
        trim_memory();
    }

    fn answer(&self, seat: &mut Option<Seat>, entered: &Entered) -> Outcome<UntrustedRows, Error> {
        let seated = match seat {
            Some(seat) => Ok(seat),
            None => self.sit_down().map(|it| seat.insert(it)),
        };
        let seat = match seated {
            Ok(seat) => seat,
            Err(error) => {
                return Outcome::Returned(Err(events::refused(entered.query.caller, error)));
            }
        };
        let run = || seat.reader.connection.on_stack(|| seat.run(self, entered));
        let ran = catch_unwind(AssertUnwindSafe(run));
        let outcome = match (seat.leave(entered), ran) {
            (_, Err(payload)) => Outcome::Panicked(payload),
            (Err(error), _) => Outcome::Returned(Err(error)),
            (Ok(()), Ok(ran)) => Outcome::Returned(ran),
        };
        let Query { caller, limits, .. } = &entered.query;
        let run = || limits.time.saturating_sub(entered.deadline.left());
        let times = || [Duration::ZERO, run(), Duration::ZERO];
        events::call(*caller, times, None, || outcome.word());
        outcome
    }

    fn sit_down(&self) -> Result<Seat> {
        let reader = (self.open)()?;
        let watch = Arc::new(Watch::new(reader.connection.revoker(), Arc::clone(&self.clock)));
        self.lock_watches().push(Arc::clone(&watch));
        Ok(Seat { reader, watch })
    }

    /// Lets no more queries in, and ends those that run.
    pub(crate) fn shut(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let running = state.running.clone();
        drop(state);
        self.came.notify_all();
        self.changed.notify_all();
        running.iter().for_each(|query| query.end(Error::closed()));
    }

    /// Waits up to `patience` for all threads and their connections to end, after
    /// [`UntrustedRoom::shut`].
    pub(crate) fn wait_for_end(&self, patience: Duration) {
        let patience = Patience::of(patience);
        while !self.state().threads.iter().all(JoinHandle::is_finished) {
            if patience.left().is_zero() {
                return;
            }
            clock::rest(Duration::from_millis(1));
        }
    }

    /// Waits for all threads and their connections to end, after [`UntrustedRoom::shut`].
    pub(crate) fn join(&self) {
        let threads = std::mem::take(&mut self.state().threads);
        for thread in threads {
            // A panic was that of a query, which is answered by the drop of its result.
            let _ = thread.join();
        }
    }

    #[cfg(test)]
    pub(crate) fn is_attended(&self) -> bool {
        let state = self.state();
        state.serving > 0 || state.is_timed
    }

    /// Whether a query was ended, and its thread has not come back.
    pub(crate) fn is_stuck(&self) -> bool {
        self.state().running.iter().any(|query| query.is_over())
    }
}

impl SnapshotHolder for UntrustedRoom {
    /// A connection keeps no snapshot from one query to the next.
    fn release_idle(&self, _age: Duration) -> Option<Duration> {
        let (exposed, now) = (self.progress.exposed(), self.clock.now());
        self.watches().iter().filter_map(|watch| watch.outdated_for(exposed, now)).max()
    }

    fn watches(&self) -> Vec<Arc<Watch>> {
        self.lock_watches().clone()
    }

    /// The room ends its queries by itself.
    fn has_time_limit(&self) -> bool {
        false
    }

    fn wake_waiters(&self) {}
}

/// A thread's connection.
struct Seat {
    reader: Reader,
    watch: Arc<Watch>,
}

impl Seat {
    fn run(&self, room: &UntrustedRoom, entered: &Entered) -> Result<UntrustedRows> {
        let (connection, query) = (&self.reader.connection, &entered.query);
        let limits = &query.limits;
        // Reads the newest schema. The snapshot is let go before the statement is planned.
        connection.begin_query(limits.tables.clone(), limits.bytes)?;
        connection.rollback()?;
        self.watch.trace().begin(query.caller);
        self.watch.begin(room.clock.now());
        let statements = Statements::new(self.watch.trace());
        let _running = statements.enter(&query.sql);
        *entered.watch() = Some(Arc::clone(&self.watch));
        // An end that came before did not find the connection.
        if entered.is_over() {
            return Err(Error::aborted("the untrusted query was ended"));
        }
        let budget = Budget::start(limits.memory_bytes.saturating_add(UNTRUSTED_CACHE_KIB << 10));
        let explain = |error: rusqlite::Error| explain(error, connection, &budget, limits);
        let mut statement = connection.prepare_query(&query.sql).map_err(explain)?;
        check(&statement)?;
        self.watch.take_snapshot(room.progress.committed(), room.clock.now());
        collect(&mut statement, query, explain)
    }

    /// Gets ready for the next query.
    ///
    /// # Errors
    /// Why the one before has no answer, whatever it has found.
    fn leave(&mut self, entered: &Entered) -> Result<()> {
        *entered.watch() = None;
        let is_revoked = self.watch.end();
        self.watch.end_snapshot();
        let connection = &mut self.reader.connection;
        let has_panicked = connection.panics().take();
        if is_revoked {
            // Fails only on a broken connection, whose next statement reports it.
            let _ = connection.restore_after_revocation();
            return Err(revoked());
        }
        if has_panicked { Err(collation_panicked()) } else { Ok(()) }
    }
}

fn check(statement: &Statement<'_>) -> Result<()> {
    if statement.column_count() > 0 && statement.readonly() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, "untrusted SQL is one query: use SELECT or VALUES"))
}

/// Takes all rows.
fn collect(
    statement: &mut Statement<'_>,
    query: &Query,
    explain: impl Fn(rusqlite::Error) -> Error,
) -> Result<UntrustedRows> {
    let (width, limits) = (statement.column_count(), &query.limits);
    let name = |index| statement.column_name(index).map(String::from);
    let columns = (0..width).map(name).collect::<rusqlite::Result<_>>().map_err(&explain)?;
    let mut result = UntrustedRows { columns, rows: Vec::new() };
    let mut bytes = 0_u64;
    let mut rows = (&query.parameters).query(statement).map_err(&explain)?;
    while let Some(row) = rows.next().map_err(&explain)? {
        if result.rows.len() == limits.rows {
            return Err(beyond("rows", limits.rows as u64));
        }
        let mut values = Vec::with_capacity(width);
        for i in 0..width {
            let value = row.get_ref(i).map_err(&explain)?;
            bytes += bytes_of(value);
            if bytes > limits.bytes {
                return Err(beyond("bytes", limits.bytes));
            }
            values.push(owned(value));
        }
        result.rows.push(values);
    }
    Ok(result)
}

/// Also an empty value takes memory.
fn bytes_of(value: ValueRef<'_>) -> u64 {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => 8 + bytes.len() as u64,
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 8,
    }
}

/// A text that is no UTF-8 has replacement characters.
fn owned(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
    }
}

/// The error of a statement, with the engine's reason where there is one.
fn explain(
    error: rusqlite::Error,
    connection: &Connection,
    budget: &Budget,
    limits: &UntrustedLimits,
) -> Error {
    let error = Error::from(error).denied(connection.authorizer().take_denial());
    match error.extended_code() {
        Some(rusqlite::ffi::SQLITE_NOMEM) if budget.is_exceeded() => {
            beyond("memory_bytes", limits.memory_bytes)
        }
        // No allocation failed: the other limit that SQLite reports so.
        Some(rusqlite::ffi::SQLITE_NOMEM) if !budget.is_system_short() => too_long(),
        Some(rusqlite::ffi::SQLITE_TOOBIG) => beyond("bytes", limits.bytes),
        _ => error,
    }
}

fn beyond(limit: &str, most: u64) -> Error {
    let message = format!(
        "the untrusted query needs more than {most} (UntrustedLimits::{limit}): ask for less, or \
         raise the limit"
    );
    Error::new(ErrorKind::Invalid, message)
}

fn too_long() -> Error {
    let message = format!(
        "the untrusted query is compiled to more than {QUERY_INSTRUCTIONS} instructions of SQLite: \
         write it shorter"
    );
    Error::new(ErrorKind::Invalid, message)
}

fn too_late(limit: Duration) -> Error {
    let message = format!(
        "the untrusted query was ended after {limit:.1?} (UntrustedLimits::time): ask for less, or \
         raise the limit"
    );
    Error::new(ErrorKind::Timeout, message)
}

fn revoked() -> Error {
    let message = "the untrusted query was ended: its snapshot kept the WAL from restarting near \
                   its limit; ask for less, or raise the option wal_limit_bytes";
    Error::new(ErrorKind::Timeout, message)
}

fn all_busy(count: usize) -> Error {
    let message = format!(
        "all {count} threads for untrusted queries are busy (option untrusted_threads): try again \
         later"
    );
    Error::new(ErrorKind::Overloaded, message)
}
