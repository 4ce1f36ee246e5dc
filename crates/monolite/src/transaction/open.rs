//! Owns an open interactive transaction: what it did, where its next statement runs, and how it
//! ends.
//!
//! # Algorithm
//! 1. A statement takes a session ([`Sessions`]). If that is not the one the transaction left, the
//!    steps so far are replayed on it first: the transaction moves to a newer snapshot, on which
//!    everything it saw still holds, or it learns of its conflict early.
//! 2. Where the session is no overlay, statements run in the writer from the first write on, behind
//!    the replayed steps and in a savepoint that is rolled back ([`Open::try_in_writer`]).
//! 3. What was done and seen becomes a step, and the session is parked. A change that uses no page
//!    that its transaction has changed needs none of the steps replayed ([`Open::change_without`]).
//! 4. [`Open::commit`] hands the steps to the writer, which replays and compares them in its batch
//!    ([`Replay`]). If no page that the transaction has read was changed since its snapshot, steps
//!    that only read are left out: their answers are the same. A transaction that wrote nothing is
//!    at its serial place already: that of its snapshot.
//! 5. A transaction with a [`Lease`] has the writer to itself instead: its statements run there,
//!    and nothing needs to be replayed.
//!
//! # Threads and locks
//! `state` is the transaction's own and is held while its statement runs: statements of one
//! transaction are serial. The sessions' lock is taken under it, never the other way round.
//!
//! [`Sessions`]: super::sessions::Sessions

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use monolite_sqlite::rusqlite::Row;

use super::keys::{Committed, Key, find};
use super::lease::Lease;
use super::sessions::{Held, Left, Memory, Parked, ReadSet, Start};
use super::steps::{Action, Done, Extent, More, Reader, Request, Steps, Validation, perform};
use crate::clock::Clock;
use crate::completion::{Completion, Outcome};
use crate::error::{Error, ErrorKind, Result};
use crate::member::{Body, Job, Once, Repeatable};
use crate::queue::Queue;
use crate::read::ReadSide;
use crate::stats::Recorder;
use crate::tx::Tx;
use crate::work;
use crate::write::Write;
use crate::writer::WriteQueue;

/// Bounds of interactive transactions; most fields are options of the same names.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) max_transactions: usize,
    pub(crate) transaction_max_statements: usize,
    pub(crate) transaction_max_bytes: usize,
    pub(crate) transaction_time_limit: Duration,
    pub(crate) read_time_limit: Duration,
    pub(crate) transaction_attempts: u32,
    pub(crate) lease_time_limit: Duration,
    pub(crate) idempotency_lifetime: Duration,
    pub(crate) validation: Validation,
}

/// What interactive transactions need of the engine.
pub(crate) struct Transactions {
    pub(crate) reads: Arc<ReadSide>,
    pub(crate) writes: Arc<WriteQueue>,
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) open: AtomicUsize,
}

/// An open transaction, shared by its handle and the statements under way.
pub(crate) struct Open {
    engine: Arc<Transactions>,
    /// Where awaited statements go when there is a lease.
    leased: Option<Arc<Queue<work::Job>>>,
    began: Duration,
    state: Mutex<State>,
    /// A statement's handle was dropped before the statement was done.
    is_abandoned: AtomicBool,
}

struct State {
    /// Why nothing more can run.
    over: Option<(ErrorKind, String)>,
    steps: Steps,
    wrote: bool,
    /// It wrote where there is no overlay.
    is_in_writer: bool,
    /// It read behind its own writes.
    has_read_own: bool,
    /// The pages it has read do not say everything about its answers.
    is_opaque: bool,
    /// A change of it could not do without those before it.
    has_dependent_changes: bool,
    left: Left,
    /// A statement is running; seen by the next one only when it panicked.
    running: bool,
    lease: Option<Lease>,
}

impl State {
    /// Where its session is, if it has left it somewhere.
    fn unpark(&mut self) -> Option<Parked> {
        match std::mem::replace(&mut self.left, Left::Gone(None)) {
            Left::Parked(parked) => Some(parked),
            Left::Gone(_) | Left::Wrote(_) => None,
        }
    }

    fn end(&mut self, error: &Error) {
        self.over.get_or_insert_with(|| (error.kind(), error.to_string()));
    }
}

impl Open {
    /// Begins a transaction; takes no snapshot yet.
    ///
    /// # Errors
    /// `Overloaded` when as many are open as may be.
    pub(crate) fn begin(engine: &Arc<Transactions>, lease: Option<Lease>) -> Result<Arc<Open>> {
        let most = engine.limits.max_transactions;
        if engine.open.fetch_add(1, Ordering::Relaxed) >= most {
            engine.open.fetch_sub(1, Ordering::Relaxed);
            let message = format!(
                "{most} interactive transactions are open (option max_transactions); end some, or \
                 raise the option"
            );
            return Err(Error::new(ErrorKind::Overloaded, message));
        }
        let leased = lease.as_ref().map(|lease| Arc::clone(lease.awaited()));
        let state = State {
            over: None,
            steps: Steps::default(),
            wrote: false,
            is_in_writer: false,
            has_read_own: false,
            is_opaque: false,
            has_dependent_changes: false,
            left: Left::Gone(None),
            running: false,
            lease,
        };
        Ok(Arc::new(Open {
            engine: Arc::clone(engine),
            leased,
            began: engine.clock.now(),
            state: Mutex::new(state),
            is_abandoned: AtomicBool::new(false),
        }))
    }

    pub(crate) fn engine(&self) -> &Transactions {
        &self.engine
    }

    /// Where awaited statements go.
    pub(crate) fn awaited(&self) -> &Queue<work::Job> {
        self.leased.as_deref().unwrap_or(&self.engine.reads.queue)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody will know whether a statement was done, so nothing may follow it.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
    }

    /// Why the transaction is over, if it is.
    pub(crate) fn over(&self) -> Option<ErrorKind> {
        self.state().over.as_ref().map(|(kind, _)| *kind)
    }

    fn check(&self, state: &mut State) -> Result<()> {
        if std::mem::take(&mut state.running) {
            state.end(&Error::aborted("a closure of an earlier statement panicked"));
        }
        if self.is_abandoned.load(Ordering::Acquire) {
            state.end(&abandoned());
        }
        let limit = self.engine.limits.transaction_time_limit;
        if self.age() > limit {
            let message = format!(
                "the transaction has been open for longer than {limit:.1?} (option \
                 transaction_time_limit)"
            );
            state.end(&Error::new(ErrorKind::Timeout, message));
        }
        match &state.over {
            None => Ok(()),
            Some((kind, why)) => {
                let error = Error::new(*kind, format!("the transaction is over: {why}"));
                self.let_go(state);
                Err(error)
            }
        }
    }

    fn age(&self) -> Duration {
        self.engine.clock.now().saturating_sub(self.began)
    }

    fn check_limits(&self, state: &State, request: &Request) -> Result<()> {
        let limits = &self.engine.limits;
        if state.steps.len() >= limits.transaction_max_statements {
            let message = format!(
                "the transaction has run {} statements (option transaction_max_statements); do \
                 less in one transaction, use Database::write, or raise the option",
                state.steps.len()
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let bytes = state.steps.bytes() + request.text.len() + request.parameters.bytes();
        if bytes > limits.transaction_max_bytes {
            let message = format!(
                "the statements and parameters of the transaction take {bytes} bytes, and it may \
                 keep {} (option transaction_max_bytes); do less in one transaction, use \
                 Database::write, or raise the option",
                limits.transaction_max_bytes
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(())
    }

    /// Runs one statement and shows its rows to `reader`; gives the number of changed rows, or the
    /// rowid, and the reader back.
    pub(crate) fn execute<R>(&self, request: Request, reader: R) -> Result<(i64, R)>
    where
        R: Reader + Send + 'static,
    {
        let mut state = self.state();
        self.check(&mut state)?;
        self.check_limits(&state, &request)?;
        state.running = true;
        let result = self.dispatch(&mut state, request, reader);
        state.running = false;
        let (done, reader) = match result {
            Ok(done) => done,
            Err(error) => {
                state.end(&error);
                return Err(error);
            }
        };
        match (done.step, done.number) {
            (Some(step), number) => {
                state.steps.push(step);
                Ok((number?, reader))
            }
            (None, number) => {
                let error = number.err().unwrap_or_else(|| Error::aborted("nothing was done"));
                state.end(&error);
                Err(error)
            }
        }
    }

    fn dispatch<R>(&self, state: &mut State, request: Request, mut reader: R) -> Result<(Done, R)>
    where
        R: Reader + Send + 'static,
    {
        let most_bytes = self.engine.limits.transaction_max_bytes;
        if let Some(lease) = &state.lease {
            state.wrote = true;
            return lease.run(move |tx| {
                let done = perform(tx, request, most_bytes, &mut reader);
                (done, reader)
            });
        }
        if state.is_in_writer {
            return self.try_in_writer(state, request, reader);
        }
        if let Some(done) = self.change_without(state, &request)? {
            return Ok((done, reader));
        }
        let held = self.resume(state)?;
        let is_read = match request.action {
            Action::Change | Action::Query => held.session().only_reads(&request.text),
            Action::LastInsertRowid => true,
            _ => false,
        };
        if !is_read && !held.session().is_overlay() {
            drop(held);
            return self.try_in_writer(state, request, reader);
        }
        if !is_read && !state.wrote && state.steps.have_reads() {
            held.session().note_first_write();
        }
        let limit = self.statement_limit();
        let done = held.run(limit, |tx| perform(tx, request, most_bytes, &mut reader))?;
        state.has_read_own |= state.wrote && is_read;
        state.wrote |= !is_read;
        if let Some(step) = &done.step {
            state.is_opaque |= step.is_opaque();
            let memory = if !state.wrote || state.is_opaque {
                Memory::Nothing
            } else if is_read || state.steps.have_reads() {
                Memory::ReadSet { own_writes: state.has_read_own }
            } else if state.steps.are_changes() && step.is_change() && !state.has_dependent_changes
            {
                Memory::WriteSet
            } else {
                Memory::Nothing
            };
            state.left = held.leave(self.engine.open.load(Ordering::Relaxed), memory);
        }
        Ok((done, reader))
    }

    /// Runs a statement that changes rows on the snapshot of those before it, but without them.
    /// `None`, and nothing is done, when it could tell the difference, because it uses pages that
    /// they have changed; when it was not run to its end; or when the snapshot is gone.
    fn change_without(&self, state: &mut State, request: &Request) -> Result<Option<Done>> {
        let wrote = match (&mut state.left, &request.action) {
            (left @ Left::Wrote(_), Action::Change) => std::mem::replace(left, Left::Gone(None)),
            _ => return Ok(None),
        };
        let Left::Wrote(wrote) = wrote else { return Ok(None) };
        let Some(held) = self.engine.reads.sessions.take_without(&wrote)? else { return Ok(None) };
        if held.session().only_reads(&request.text) {
            return Ok(None);
        }
        // Until it has succeeded.
        state.has_dependent_changes = true;
        let no_rows = &mut |_: &Row<'_>| Ok(More::Enough);
        let most_bytes = self.engine.limits.transaction_max_bytes;
        let body = |tx: &Tx<'_>| perform(tx, request.clone(), most_bytes, no_rows);
        let done = held.run(self.statement_limit(), body);
        let Ok(done) = done else { return Ok(None) };
        let Some(left) = held.leave_without(wrote) else { return Ok(None) };
        self.engine.recorder.independent_statements.add(1);
        (state.left, state.has_dependent_changes) = (left, false);
        Ok(Some(done))
    }

    /// A session on which everything that the transaction did is done.
    fn resume(&self, state: &mut State) -> Result<Held<'_>> {
        let is_first = state.steps.len() == 0;
        let start = if is_first { Start::First } else { Start::Later };
        let held = self.engine.reads.sessions.take(state.unpark(), start)?;
        if !held.is_warm && !is_first {
            self.engine.recorder.transactions_resumed.add(1);
            let validation = self.engine.limits.validation;
            let limit = self.statement_limit();
            let session = held.session();
            let has_reads = state.steps.have_reads();
            let replayed = held.run(limit, |tx| {
                let before_write = &mut || {
                    if has_reads {
                        session.note_first_write();
                    }
                };
                state.steps.replay_and_note(tx, Extent::All, validation, before_write)
            })?;
            replayed.inspect_err(|error| self.count_conflict(error))?;
        }
        Ok(held)
    }

    fn statement_limit(&self) -> Duration {
        let limits = &self.engine.limits;
        limits.read_time_limit.min(limits.transaction_time_limit.saturating_sub(self.age()))
    }

    fn count_conflict(&self, error: &Error) {
        if error.kind() == ErrorKind::Conflict {
            self.engine.recorder.transaction_conflicts.add(1);
        }
    }

    /// Runs a statement in the writer, behind all that came before it, and has all of it rolled
    /// back.
    fn try_in_writer<R>(
        &self,
        state: &mut State,
        request: Request,
        mut reader: R,
    ) -> Result<(Done, R)>
    where
        R: Reader + Send + 'static,
    {
        (state.wrote, state.is_in_writer) = (true, true);
        let steps = std::mem::take(&mut state.steps);
        let most_bytes = self.engine.limits.transaction_max_bytes;
        let validation = self.engine.limits.validation;
        let (reply, answer) = sync_channel(1);
        let body = move |tx: &Tx<'_>| -> Result<()> {
            tx.forget_last_insert();
            let replayed = steps.replay(tx, Extent::All, validation);
            let done = replayed.map(|()| perform(tx, request, most_bytes, &mut reader));
            // The statement waits for this answer on another thread.
            let _ = reply.send((steps, done, reader));
            Err(Error::aborted("a statement of an interactive transaction was tried"))
        };
        self.engine.recorder.statements_tried_in_writer.add(1);
        let tried = self.submit(Once(Some(body))).wait();
        let (steps, done, reader) = answer.try_recv().map_err(|_| {
            tried.err().unwrap_or_else(|| Error::new(ErrorKind::Internal, "a trial had no answer"))
        })?;
        state.steps = steps;
        Ok((done.inspect_err(|error| self.count_conflict(error))?, reader))
    }

    fn submit<B, T>(&self, body: B) -> Write<T>
    where
        B: Body<T, Error> + 'static,
        T: Send + 'static,
    {
        let caller = Completion::new();
        let member = Box::new(Job::new(body, Arc::clone(&caller)));
        Write::submit(member, caller, &self.engine.writes)
    }

    /// Ends the transaction: hands what it did to the writer. With a key, nothing is done when the
    /// key was committed before.
    pub(crate) fn commit(&self, key: Option<Key>) -> Write<Committed> {
        if let Some(error) = key.as_ref().and_then(|key| key.check().err()) {
            return answered(Err(error));
        }
        if self.is_abandoned.load(Ordering::Acquire) {
            return answered(Err(abandoned()));
        }
        let mut state = self.state();
        if let Err(error) = self.check(&mut state) {
            return answered(Err(error));
        }
        let read_set = self.read_set(&mut state);
        let ended = "it was committed or rolled back before";
        state.over = Some((ErrorKind::Invalid, ended.into()));
        if let Some(lease) = state.lease.take() {
            self.engine.recorder.transactions_leased.add(1);
            let aborted = || Error::aborted("the transaction was committed before");
            return lease.commit().unwrap_or_else(|| answered(Err(aborted())));
        }
        if !state.wrote && key.is_none() {
            self.engine.recorder.transactions_read_only.add(1);
            return answered(Ok(Committed::default()));
        }
        let mut replay = Replay {
            steps: std::mem::take(&mut state.steps),
            read_set,
            engine: Arc::clone(&self.engine),
            is_counted: false,
        };
        self.submit(Repeatable(move |tx: &Tx<'_>| -> Result<Committed> {
            if let Some(key) = &key
                && let Some(outcome) = find(tx, &key.text)?
            {
                return Ok(Committed { outcome, is_repeated: true });
            }
            replay.run(tx)?;
            let Some(key) = &key else { return Ok(Committed::default()) };
            key.store(tx)?;
            Ok(Committed { outcome: key.outcome.clone(), is_repeated: false })
        }))
    }

    /// Ends the snapshot, and tells which pages were read if that spares the writer reading them.
    fn read_set(&self, state: &mut State) -> Option<ReadSet> {
        let is_useful = state.wrote && state.steps.have_reads() && !state.is_opaque;
        match std::mem::replace(&mut state.left, Left::Gone(None)) {
            Left::Parked(parked) if is_useful => {
                self.engine.reads.sessions.read_set(parked, state.has_read_own)
            }
            Left::Parked(parked) => {
                self.engine.reads.sessions.give_up(parked);
                None
            }
            Left::Gone(read_set) => read_set.filter(|_| is_useful),
            Left::Wrote(_) => None,
        }
    }

    /// Remembers why the transaction, which was handed to the writer, came to nothing.
    pub(crate) fn note_end(&self, error: &Error) {
        self.state().over = Some((error.kind(), error.to_string()));
    }

    /// Ends the transaction without a trace. When a statement of it is still under way on another
    /// thread, its end does that.
    pub(crate) fn roll_back(&self) {
        self.abandon();
        if let Ok(mut state) = self.state.try_lock() {
            state.end(&Error::new(ErrorKind::Invalid, "it was rolled back before"));
            self.let_go(&mut state);
            state.lease = None;
            state.steps = Steps::default();
        }
    }

    fn let_go(&self, state: &mut State) {
        if let Some(parked) = state.unpark() {
            self.engine.reads.sessions.give_up(parked);
        }
    }
}

/// What a transaction did, on its way through the writer.
struct Replay {
    steps: Steps,
    read_set: Option<ReadSet>,
    engine: Arc<Transactions>,
    is_counted: bool,
}

impl Replay {
    /// Does it again and compares; leaves out what only read if no page of that has changed.
    fn run(&mut self, tx: &Tx<'_>) -> Result<()> {
        tx.forget_last_insert();
        let changes = self.engine.reads.sessions.changes();
        let is_unchanged = self.read_set.as_ref().is_some_and(|it| !it.has_changed(changes, tx));
        let extent = if is_unchanged { Extent::Writes } else { Extent::All };
        let replay = || self.steps.replay(tx, extent, self.engine.limits.validation);
        // The next member of the batch must not find a savepoint of this one.
        let has_savepoints = self.steps.have_savepoints();
        let replayed = if has_savepoints { tx.closing_user_savepoints(replay) } else { replay() };
        if !std::mem::replace(&mut self.is_counted, true) {
            let recorder = &self.engine.recorder;
            let path = match extent {
                Extent::All => &recorder.transactions_replayed,
                Extent::Writes => &recorder.transactions_unchanged,
            };
            path.add(1);
            if replayed.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict) {
                recorder.transaction_conflicts.add(1);
            }
        }
        replayed
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.roll_back();
        self.engine.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn abandoned() -> Error {
    Error::aborted("a statement was dropped before it was done, so what it did is not known")
}

/// The handle of a commit that is over before the writer saw it.
pub(crate) fn answered(result: Result<Committed>) -> Write<Committed> {
    let caller = Completion::new();
    caller.deliver(Outcome::Returned(result));
    Write::sent(caller)
}
