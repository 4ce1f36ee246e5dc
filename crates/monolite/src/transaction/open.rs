//! Owns an open interactive transaction: what it did, where its next statement runs, and how it
//! ends.
//!
//! # Algorithm
//! 1. A statement takes a connection ([`Pool`]). If that is not the one the transaction left, the
//!    steps so far are replayed on it first: the transaction moves to a newer snapshot, on which
//!    everything it saw still holds, or it learns of its conflict early.
//! 2. Where the connection is no overlay, statements run in the writer from the first write on,
//!    behind the replayed steps and in a savepoint that is rolled back
//!    ([`OpenTransaction::try_in_writer`]).
//! 3. What was done and seen becomes a step, and the connection is parked.
//! 4. [`OpenTransaction::commit`] hands the steps to the writer, which replays and compares them in
//!    its batch ([`Replay`]). The queries before the first step of another kind are left out if no
//!    page that they have read was changed since the snapshot: their answers are the same. A
//!    transaction that wrote nothing is at its serial place already, that of its snapshot, and is
//!    answered when that is on disk.
//!
//! # Threads and locks
//! A statement takes the transaction's state out of its slot and puts it back, so statements of one
//! transaction are serial, and no lock is held while the application's code runs. Who finds the
//! slot empty waits, for as long as a statement may take; a statement inside of another one's
//! mapping closure, on the same thread, is refused.
//!
//! # Invariants
//! - A transaction goes on after an error of a statement only if the application knows what the
//!   statement did, and the commit does the same: [`ErrorKind::leaves_transaction`] has the kinds.
//!   SQLite's own errors are steps, which the commit compares. What is refused here before it runs
//!   is `Invalid`, did nothing, and hangs on nothing but the transaction itself. After every other
//!   error, also where the statement never came here, [`OpenTransaction::end_after`] ends the
//!   transaction.
//!
//! [`Pool`]: super::pool::Pool

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use monolite_sqlite::GivenRowids;

use super::connection::{PooledConnection, ReadSet};
use super::contention::schedule::End;
use super::contention::{Contention, Visit};
use super::keys::{Committed, Key};
use super::limits::Limits;
use super::pool::{HeldConnection, Left, Pool, Start};
use super::refusals::{
    abandoned, busy, inside_itself, open_for_too_long, rolled_back_in_closure, too_many_open,
    too_much_together,
};
use super::registry::Registry;
use super::replay::{Replay, not_repeatable, note_conflict};
use super::state::{Ending, InteractiveState, Place, Snapshot};
use super::steps::{
    Action, Answer, Done, Extent, Request, RowReader, Shape, Steps, fingerprint, perform,
};
use crate::activity::{CallKind, Caller, TransactionActivity, events};
use crate::call::completion::{Completion, Outcome};
use crate::call::inside::{self, DatabaseId, Inside};
use crate::call::member::{Body, Once, Repeatable, Submission};
use crate::call::write::Write;
use crate::call::write_queue::{WriteQueue, read_only};
use crate::clock::{Clock, Patience};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{BatchNumber, Progress};
use crate::read::threads::ReadThreads;
use crate::stats::{Recorder, names};
use crate::tx::Tx;

/// What interactive transactions need of the engine.
#[derive(Clone)]
pub(crate) struct Transactions {
    pub(crate) database: DatabaseId,
    pub(crate) pool: Arc<Pool>,
    pub(crate) progress: Arc<Progress>,
    /// For awaited statements.
    pub(crate) threads: Arc<ReadThreads>,
    pub(crate) writes: Arc<WriteQueue>,
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) contention: Arc<Contention>,
    /// How many are open, of all handles.
    pub(crate) open: Arc<AtomicUsize>,
    /// Those.
    pub(crate) all: Arc<Registry<OpenTransaction>>,
    /// Bytes that their steps take together.
    pub(crate) bytes: Arc<AtomicUsize>,
}

impl Transactions {
    /// The same for statements that take no longer than `limit`.
    pub(crate) fn within(&self, limit: Duration) -> Transactions {
        let limits = Limits { call_time_limit: Some(limit), ..self.limits.clone() };
        Transactions { limits, ..self.clone() }
    }
}

/// A wait for the turns that a statement needs.
pub(crate) type BoxedWait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An open transaction, shared by its handle and the statements under way.
pub(crate) struct OpenTransaction {
    engine: Arc<Transactions>,
    began: Duration,
    caller: Caller,
    /// Among those with which it collides.
    visit: Arc<Visit>,
    slot: Mutex<Slot>,
    is_back: Condvar,
}

/// A conflict is looked for before the commit when the application has taken that long since the
/// snapshot: what it has yet to do may be as long.
const EARLY: Duration = Duration::from_millis(20);

/// And that many times as long as the search takes.
const WORTH: u32 = 8;

/// Where the state is while it is not in use.
struct Slot {
    state: Option<Box<InteractiveState>>,
    /// Why nothing more may run, if a handle has told that. The state is ended for it as soon as it
    /// is here.
    told: Option<Ending>,
    /// Who has taken it.
    user: Option<ThreadId>,
    /// How many steps it had then.
    steps: usize,
    /// Threads that wait for it. (A signal is a system call, also without waiters.)
    waiting: usize,
}

/// The state in the hands of one statement.
struct Taken<'o> {
    open: &'o OpenTransaction,
    state: Option<Box<InteractiveState>>,
}

impl std::ops::Deref for Taken<'_> {
    type Target = InteractiveState;

    fn deref(&self) -> &InteractiveState {
        self.state.as_ref().expect("the state is put back when this is dropped")
    }
}

impl std::ops::DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut InteractiveState {
        self.state.as_mut().expect("the state is put back when this is dropped")
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        if thread::panicking() {
            self.open
                .end(&mut state, &Error::aborted("a closure of an earlier statement panicked"));
        }
        self.open.put_back(state);
    }
}

impl OpenTransaction {
    /// Begins a transaction of `caller`; takes no snapshot yet.
    ///
    /// # Errors
    /// `Overloaded` when as many are open as may be.
    pub(crate) fn begin(
        engine: &Arc<Transactions>,
        caller: Caller,
    ) -> Result<Arc<OpenTransaction>> {
        OpenTransaction::begin_as(engine, caller, Visit::new(&engine.contention, None))
    }

    /// As [`OpenTransaction::begin`], for the attempt of `transact` that has this `visit`.
    ///
    /// # Errors
    /// As [`OpenTransaction::begin`].
    pub(crate) fn begin_as(
        engine: &Arc<Transactions>,
        caller: Caller,
        visit: Arc<Visit>,
    ) -> Result<Arc<OpenTransaction>> {
        engine.writes.check_use()?;
        let most = engine.limits.max_open;
        let is_full = || {
            let is_full = engine.open.fetch_add(1, Ordering::Relaxed) >= most;
            if is_full {
                engine.open.fetch_sub(1, Ordering::Relaxed);
            }
            is_full
        };
        // One that has ended counts for as long as it is looked at.
        if is_full() && {
            engine.all.settle();
            is_full()
        } {
            return Err(events::refused(caller, too_many_open(most)));
        }
        let mut state = Box::new(InteractiveState::new());
        state.steps = Steps::counted_in(&engine.bytes);
        let open = Arc::new(OpenTransaction {
            engine: Arc::clone(engine),
            began: engine.clock.now(),
            caller,
            visit,
            slot: Mutex::new(Slot {
                state: Some(state),
                told: None,
                user: None,
                steps: 0,
                waiting: 0,
            }),
            is_back: Condvar::new(),
        });
        engine.all.insert(&open);
        Ok(open)
    }

    pub(crate) fn engine(&self) -> &Transactions {
        &self.engine
    }

    /// What has to happen before `request` can run: others may be before it where it would collide.
    pub(crate) fn turn_for(&self, request: &Request) -> Option<BoxedWait> {
        self.engine.database.check_process().ok()?;
        let family = || fingerprint(&request.text);
        let spots = self.visit.spots_at(|| request.fingerprint(), family);
        let may_wait = !spots.is_empty() && !self.engine.database.has_writer();
        may_wait.then(|| -> BoxedWait { Box::pin(Arc::clone(&self.visit).pass(spots)) })
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the state, and waits for it while another statement has it.
    ///
    /// # Errors
    /// `Invalid` inside of a closure of that other statement, or in a forked process; `Timeout`
    /// when it goes on for too long. What a handle has told.
    fn take(&self) -> Result<Taken<'_>> {
        self.engine.database.check_process()?;
        let mut slot = self.slot();
        let limit = self.engine.limits.read_time_limit;
        let mut patience = None;
        loop {
            if let Some(ending) = &slot.told {
                return Err(ending.error());
            }
            if let Some(state) = slot.state.take() {
                (slot.user, slot.steps) = (Some(thread::current().id()), state.steps.len());
                return Ok(Taken { open: self, state: Some(state) });
            }
            if slot.user == Some(thread::current().id()) {
                return Err(inside_itself());
            }
            let left = patience.get_or_insert_with(|| Patience::of(limit)).left();
            if left.is_zero() {
                return Err(busy(limit));
            }
            slot.waiting += 1;
            let waited = self.is_back.wait_timeout(slot, left);
            slot = waited.unwrap_or_else(PoisonError::into_inner).0;
            slot.waiting -= 1;
        }
    }

    /// Tells those who wait that the state is there, or gone.
    fn signal(&self, slot: MutexGuard<'_, Slot>) {
        let is_awaited = slot.waiting > 0;
        drop(slot);
        if is_awaited {
            self.is_back.notify_all();
        }
    }

    /// Puts the state back, ended if a handle has told so meanwhile.
    fn put_back(&self, mut state: Box<InteractiveState>) {
        let mut slot = self.slot();
        if let Some(ending) = slot.told.clone()
            && state.ending().is_none()
        {
            drop(slot);
            self.end(&mut state, ending);
            slot = self.slot();
        }
        (slot.state, slot.user) = (Some(state), None);
        self.signal(slot);
    }

    /// Ends the transaction for `ending`, unless a handle has ended it before. When a statement of
    /// it is still under way on another thread, its end does that.
    fn tell(&self, ending: Ending) {
        let mut slot = self.slot();
        let ending = slot.told.get_or_insert(ending).clone();
        let Some(mut state) = slot.state.take() else { return };
        drop(slot);
        self.end(&mut state, ending);
        state.steps = Steps::default();
        self.put_back(state);
    }

    /// Ends the transaction after `error` of a statement, unless it can go on: the application may
    /// have taken the statement for done, or for not done, and what is committed be another thing.
    pub(crate) fn end_after(&self, error: &Error) {
        if !error.kind().leaves_transaction() {
            self.tell(error.into());
        }
    }

    /// Whether a statement was done stays unknown, so nothing may follow it.
    pub(crate) fn abandon(&self) {
        self.tell((&abandoned()).into());
    }

    pub(crate) fn caller(&self) -> Caller {
        self.caller
    }

    /// Why the transaction is over, if it is.
    pub(crate) fn over(&self) -> Option<ErrorKind> {
        let slot = self.slot();
        let ending = slot.told.as_ref().or_else(|| slot.state.as_ref()?.ending());
        ending.map(Ending::kind)
    }

    /// What others may know of it; `None` when it is over.
    pub(crate) fn activity(&self) -> Option<TransactionActivity> {
        let slot = self.slot();
        let (statements, parked) = match &slot.state {
            None => (slot.steps, None),
            Some(state) => match state.place() {
                Place::Over(_) => return None,
                Place::Pool(Left::Parked(parked)) => (state.steps.len(), Some(*parked)),
                Place::Pool(Left::Gone(_)) | Place::Writer => (state.steps.len(), None),
            },
        };
        let is_running = slot.state.is_none();
        drop(slot);
        let keeps_snapshot = is_running || parked.is_some_and(|it| self.engine.pool.has(it));
        let (caller, time) = (self.caller, self.age());
        Some(TransactionActivity { caller, time, statements, is_running, keeps_snapshot })
    }

    /// The numbers that rows of the latest statement were given.
    pub(crate) fn given_rowids(&self) -> Option<GivenRowids> {
        self.slot().state.as_ref()?.given
    }

    fn check(&self, state: &mut InteractiveState) -> Result<()> {
        let limit = self.engine.limits.time_limit;
        if self.age() > limit {
            self.end(state, &open_for_too_long(limit));
        }
        state.ending().map_or(Ok(()), |ending| Err(ending.error()))
    }

    fn end(&self, state: &mut InteractiveState, ending: impl Into<Ending>) {
        if let Some(left) = state.end(ending) {
            self.let_go(left);
            self.visit.finish(End::Other);
        }
    }

    fn let_go(&self, place: Place) {
        if let Place::Pool(Left::Parked(parked)) = place {
            self.engine.pool.give_up(parked);
        }
    }

    fn age(&self) -> Duration {
        self.engine.clock.now().saturating_sub(self.began)
    }

    /// # Errors
    /// `Invalid` for what a transaction that only reads has no use for.
    fn check_access(&self, request: &Request) -> Result<()> {
        let reads = !matches!(request.action, Action::Batch | Action::Savepoint(..));
        match &request.read_only {
            Some(why) if !reads => Err(read_only(why)),
            _ => Ok(()),
        }
    }

    fn check_limits(&self, state: &InteractiveState, request: &Request) -> Result<()> {
        let limits = &self.engine.limits;
        if state.steps.len() >= limits.max_statements {
            let message = format!(
                "the transaction has run {} statements (InteractiveOptions::max_statements); do \
                 less in one transaction, use Database::write, or raise the option",
                state.steps.len()
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let more = request.text.len() + request.parameters.bytes();
        let bytes = state.steps.bytes() + more;
        if bytes > limits.max_bytes {
            let message = format!(
                "the statements and parameters of the transaction take {bytes} bytes, and it may \
                 keep {} (InteractiveOptions::max_bytes); do less in one transaction, use \
                 Database::write, or raise the option",
                limits.max_bytes
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let together = self.engine.bytes.load(Ordering::Relaxed) + more;
        if together > limits.max_total_bytes {
            return Err(too_much_together(together, limits.max_total_bytes));
        }
        Ok(())
    }

    /// Runs one statement and shows its rows to `reader`; gives what it answers beside them, and
    /// the reader back.
    pub(crate) fn execute<R>(&self, mut request: Request, reader: R) -> Result<(Answer, R)>
    where
        R: RowReader + Send + 'static,
    {
        let mut state = self.take()?;
        let _inside = Inside::enter(self.engine.database, inside::Place::Statement);
        state.given = None;
        self.check(&mut state)?;
        request.read_only = self.engine.writes.why_read_only().cloned();
        self.check_access(&request)?;
        self.check_limits(&state, &request)?;
        let savepoint = match &mut request.action {
            Action::Savepoint(what, depth) => {
                *depth = state.savepoints.depth(*what, &request.text)?;
                Some((*what, *depth, Arc::clone(&request.text)))
            }
            _ => None,
        };
        let (done, reader) = match self.dispatch(&mut state, request, reader) {
            Ok(done) => done,
            Err(error) => {
                self.end(&mut state, &error);
                return Err(error);
            }
        };
        let Some(step) = done.step else {
            let error = done.answer.err().unwrap_or_else(|| Error::aborted("nothing was done"));
            self.end(&mut state, &error);
            return Err(error);
        };
        self.visit.note_answer(|| step.fingerprint(), step.digest());
        state.given = step.rowids();
        state.steps.push(step);
        let answer = done.answer?;
        if let Some((what, depth, name)) = savepoint {
            state.savepoints.note(what, depth, &name);
        }
        Ok((answer, reader))
    }

    fn dispatch<R>(
        &self,
        state: &mut InteractiveState,
        request: Request,
        reader: R,
    ) -> Result<(Done, R)>
    where
        R: RowReader + Send + 'static,
    {
        match state.place() {
            Place::Writer => self.try_in_writer(state, request, reader),
            Place::Over(ending) => Err(ending.error()),
            Place::Pool(_) => {
                let start = self.start_of(state);
                self.run_behind(state, start, request, reader)
            }
        }
    }

    /// Where the next statement begins: on a new snapshot, if it has waited for others whose
    /// changes it is to see.
    fn start_of(&self, state: &mut InteractiveState) -> Start {
        let needs_newer = self.visit.take_needs_newer();
        if state.steps.len() == 0 {
            return Start::First;
        }
        if !needs_newer {
            let patience = state.cost.work.saturating_mul(WORTH).max(EARLY);
            // One that may only read meets nothing at its commit.
            let may_write = self.engine.writes.why_read_only().is_none();
            let may_meet = may_write && state.steps.have_leading_reads();
            return if may_meet { Start::Unless(patience) } else { Start::Later };
        }
        if let Left::Parked(parked) = state.take_left() {
            self.engine.pool.give_up(parked);
        }
        Start::First
    }

    /// Runs a statement on a connection that has everything before it, and leaves the connection;
    /// in the writer, if it changes something and cannot do so there.
    fn run_behind<R>(
        &self,
        state: &mut InteractiveState,
        start: Start,
        request: Request,
        mut reader: R,
    ) -> Result<(Done, R)>
    where
        R: RowReader + Send + 'static,
    {
        let held = self.resume(state, start)?;
        let connection = held.connection();
        let most_bytes = self.engine.limits.max_bytes;
        let steps = &state.steps;
        let perform = |tx: &Tx<'_>| {
            let only_reads = match request.action {
                Action::Change | Action::Query | Action::Run => {
                    connection.only_reads(&request.text)
                }
                Action::Describe => Some(true),
                Action::LastInsertRowid => None,
                Action::Batch | Action::Savepoint(..) => Some(false),
            };
            let is_for_writer = !connection.is_overlay() && request.read_only.is_none();
            if only_reads == Some(false) && is_for_writer {
                connection.note_not_run();
                return Err(request);
            }
            // One that cannot be prepared is told so here as well as in the writer.
            if only_reads != Some(true) {
                end_leading_reads(steps, connection);
            }
            Ok(perform(tx, request, most_bytes, &mut reader))
        };
        let limit = self.statement_limit();
        match held.run(limit, perform, |ran| ran.as_ref().ok()?.answer.as_ref().err())? {
            Ok(done) => {
                self.leave(state, held, &done);
                Ok((done, reader))
            }
            Err(request) => {
                drop(held);
                self.try_in_writer(state, request, reader)
            }
        }
    }

    /// Leaves the connection on which a statement was `done` behind all before it.
    fn leave(&self, state: &mut InteractiveState, held: HeldConnection<'_>, done: &Done) {
        let Some(step) = &done.step else { return };
        if state.steps.shape_with(step) != Shape::Queries {
            end_leading_reads(&state.steps, held.connection());
        }
        state.cost.work += held.connection().took();
        let open = self.engine.open.load(Ordering::Relaxed);
        let left = held.leave(open, state.memory_after(step), &state.cost);
        state.leave(left);
    }

    /// A connection on which everything that the transaction did is done.
    fn resume(&self, state: &mut InteractiveState, start: Start) -> Result<HeldConnection<'_>> {
        let is_first = state.steps.len() == 0;
        let limit = self.statement_limit();
        let parked = match state.take_left() {
            Left::Parked(parked) => Some(parked),
            Left::Gone(_) => None,
        };
        let refused = |error| events::refused(self.caller.of(CallKind::Statement), error);
        let terms = self.engine.writes.terms().of(self.caller);
        let taken = self.engine.pool.take(terms, parked, start, limit);
        let held = taken.map_err(refused)?;
        let connection = held.connection();
        let before = std::mem::replace(&mut state.snapshot, Snapshot::of(connection));
        if !held.is_warm && !is_first {
            self.engine.recorder.transactions_resumed.add(1);
            let validation = self.engine.limits.validation;
            let has_leading_reads = state.steps.have_leading_reads();
            let replay = |tx: &Tx<'_>| {
                let after_leading_reads = &mut || {
                    if has_leading_reads {
                        connection.end_leading_reads();
                    }
                };
                state.steps.replay_and_note(tx, Extent::All, validation, after_leading_reads)
            };
            let limit = self.statement_limit();
            let replayed = held.run(limit, replay, |replayed| replayed.as_ref().err())?;
            let is_same = before.is_same_as(&state.snapshot);
            replayed.map_err(|error| {
                self.note_conflict(&error, &state.steps);
                let is_alone = is_same && error.kind() == ErrorKind::Conflict;
                if is_alone { not_repeatable(&error) } else { error }
            })?;
            state.cost.note_replay(connection.took());
        }
        Ok(held)
    }

    fn statement_limit(&self) -> Duration {
        let limits = &self.engine.limits;
        let left = limits.time_limit.saturating_sub(self.age());
        let least = limits.read_time_limit.min(left);
        limits.call_time_limit.map_or(least, |limit| limit.min(least))
    }

    fn note_conflict(&self, error: &Error, steps: &Steps) {
        if error.kind() == ErrorKind::Conflict {
            let recorder = &self.engine.recorder;
            recorder.transaction_conflicts.add(1);
            recorder.conflicts_told_early.add(1);
            names::of(self.caller).into_iter().for_each(|named| named.conflicts.add(1));
            recorder.events().conflict(self.caller, error);
            note_conflict(&self.visit, error, steps);
        }
    }

    /// Runs a statement in the writer, behind all that came before it, and has all of it rolled
    /// back.
    fn try_in_writer<R>(
        &self,
        state: &mut InteractiveState,
        request: Request,
        mut reader: R,
    ) -> Result<(Done, R)>
    where
        R: RowReader + Send + 'static,
    {
        state.move_to_writer();
        let steps = std::mem::take(&mut state.steps);
        let most_bytes = self.engine.limits.max_bytes;
        let validation = self.engine.limits.validation;
        let (reply, answer) = sync_channel(1);
        let body = move |tx: &Tx<'_>| -> Result<()> {
            let replayed = steps.replay(tx, Extent::All, validation);
            let done = replayed.map(|()| perform(tx, request, most_bytes, &mut reader));
            // The statement waits for this answer on another thread.
            let _ = reply.send((steps, done, reader));
            Err(Error::aborted("a statement of an interactive transaction was tried"))
        };
        self.engine.recorder.statements_tried_in_writer.add(1);
        let tried = self.submit(CallKind::Statement, Once(Some(body))).wait();
        let (steps, done, reader) = answer.try_recv().map_err(|_| {
            tried.err().unwrap_or_else(|| Error::new(ErrorKind::Internal, "a trial had no answer"))
        })?;
        state.steps = steps;
        Ok((done.inspect_err(|error| self.note_conflict(error, &state.steps))?, reader))
    }

    fn submit<B, T>(&self, kind: CallKind, body: B) -> Write<T>
    where
        B: Body<T, Error> + 'static,
        T: Send + 'static,
    {
        let answer = Completion::new();
        let terms = self.engine.writes.terms().of(self.caller.of(kind));
        let member = Box::new(Submission::new(body, terms, Arc::clone(&answer)));
        Write::submit(member, answer, &self.engine.writes)
    }

    /// Ends the transaction: hands what it did to the writer. With a key, nothing is done when the
    /// key was committed before.
    pub(crate) fn commit(&self, key: Option<Key>) -> Write<Committed> {
        if let Some(error) = key.as_ref().and_then(|key| key.check().err()) {
            return answered(Err(error));
        }
        let checked = self.take().and_then(|mut state| self.check(&mut state).map(|()| state));
        let mut state = match checked {
            Ok(state) => state,
            Err(error) => return answered(Err(error)),
        };
        let ended = Error::new(ErrorKind::Invalid, "it was committed or rolled back before");
        let left = match state.finish(&ended) {
            Place::Pool(left) => left,
            Place::Writer | Place::Over(_) => Left::Gone(None),
        };
        let read_set = self.read_set(&state.steps, left);
        if !state.steps.may_have_changed() && key.is_none() {
            self.engine.recorder.transactions_read_only.add(1);
            self.visit.finish(End::Committed);
            let seen = state.snapshot.seen;
            return self.answer_when_durable(seen);
        }
        let mut replay = Replay {
            steps: std::mem::take(&mut state.steps),
            read_set,
            sequence: state.snapshot.sequence,
            pool: Arc::clone(&self.engine.pool),
            recorder: Arc::clone(&self.engine.recorder),
            validation: self.engine.limits.validation,
            visit: Arc::clone(&self.visit),
            caller: self.caller,
            is_counted: false,
        };
        self.submit(
            CallKind::Commit,
            Repeatable(move |tx: &Tx<'_>| -> Result<Committed> {
                if let Some(key) = &key
                    && let Some(outcome) = tx.outcome_of(&key.text)?
                {
                    return Ok(Committed::Before { outcome });
                }
                replay.run(tx)?;
                Key::commit(key.as_ref(), tx)
            }),
        )
    }

    /// The answer of a transaction that changed nothing: what it saw may still be on its way to the
    /// disk.
    fn answer_when_durable(&self, seen: BatchNumber) -> Write<Committed> {
        let caller = Completion::new();
        let told = Arc::clone(&caller);
        self.engine.progress.when_durable(seen, move |durable| {
            told.deliver(match durable {
                Ok(()) => Outcome::Returned(Ok(Committed::now(Vec::new()))),
                Err(error) => Outcome::Refused(error),
            });
        });
        Write::past(caller)
    }

    /// Ends the snapshot, and tells which pages were read if that spares the writer reading them.
    fn read_set(&self, steps: &Steps, left: Left) -> Option<ReadSet> {
        let is_useful = steps.have_leading_reads() && steps.may_have_changed();
        match left {
            Left::Parked(parked) if is_useful => self.engine.pool.read_set(parked),
            Left::Parked(parked) => {
                self.engine.pool.give_up(parked);
                None
            }
            Left::Gone(read_set) => read_set.filter(|_| is_useful),
        }
    }

    /// Remembers why the transaction, which was handed to the writer, came to nothing.
    pub(crate) fn note_end(&self, error: &Error) {
        if let Some(state) = &mut self.slot().state {
            // Its commit has taken what was left.
            state.finish(error);
        }
        self.visit.finish(End::Other);
    }

    /// As [`OpenTransaction::roll_back`], on behalf of a closure whose result is still to come.
    pub(crate) fn roll_back_in_closure(&self) {
        let ending = Ending::from(&rolled_back_in_closure());
        self.slot().told = Some(ending.clone());
        self.tell(ending);
    }

    /// Ends the transaction without a trace. When a statement of it is still under way on another
    /// thread, its end does that.
    pub(crate) fn roll_back(&self) {
        // As a rule it was committed. In a forked process, what had it locked may be gone.
        if self.engine.database.check_process().is_ok() && self.over().is_none() {
            self.tell((&Error::new(ErrorKind::Invalid, "it was rolled back before")).into());
        }
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        self.roll_back();
        self.engine.all.remove(self);
        // Behind the count of its steps, see `Rowids::dropped`.
        let open = self.engine.open.fetch_sub(1, Ordering::Release);
        assert!(open > 0, "a transaction that ends was counted");
    }
}

/// Keeps apart what the leading reads have read when a step of another kind follows.
fn end_leading_reads(steps: &Steps, connection: &PooledConnection) {
    if steps.shape() == Shape::Queries {
        connection.end_leading_reads();
    }
}

/// The handle of a commit that is over before the writer saw it.
pub(crate) fn answered(result: Result<Committed>) -> Write<Committed> {
    let caller = Completion::new();
    caller.deliver(Outcome::Returned(result));
    Write::past(caller)
}
