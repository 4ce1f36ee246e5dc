//! Owns the thread that prepares large statements of untrusted SQL before anybody else does, who
//! could not end that when it takes too long ([`monolite_sqlite::DryRuns`]).
//!
//! # Algorithm
//! There is one thread, with a connection of its own, from the first such statement on. Whoever has
//! one puts it into a queue and waits for the answer until its own deadline. How long it took is
//! remembered, by a hash of the text and of the schema's cookie, and it is not prepared again.
//!
//! A statement that takes long to prepare has the thread until SQLite returns: a minute, for the
//! slowest that the profile lets through. Who comes with another large one meanwhile is late, too,
//! and nobody else notices.
//!
//! # Threads and locks
//! `monolite-dry-run`. The lock is held to look at the queue and to answer.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use monolite_sqlite::{Connection, DryRun, DryRuns, Form, Overdue, rusqlite};

use crate::error::{Error, Result};
use crate::threads::spawn;

/// How often who waits looks whether its deadline is over.
const LOOK: Duration = Duration::from_millis(2);

/// Statements that are remembered; when there are more they are forgotten together.
const REMEMBERED: usize = 4_096;

type Open = Box<dyn Fn() -> Result<Connection> + Send + Sync>;

/// The thread, and what it has to do.
pub(crate) struct DryRunner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    open: OnceLock<Open>,
    state: Mutex<State>,
    /// Something was put into the queue, or answered, or the thread is to end.
    changed: Condvar,
    hasher: RandomState,
    /// Whether the statement that is being prepared is waited for by nobody.
    is_given_up: AtomicBool,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Request>,
    answers: Vec<(u64, DryRun)>,
    /// The number of the one that is being prepared.
    running: Option<u64>,
    next: u64,
    /// How long it took to prepare those that are remembered.
    times: HashMap<u64, Duration>,
    /// How often the programs of those that are remembered pass over a value.
    passes: HashMap<u64, u32>,
    is_closed: bool,
}

struct Request {
    number: u64,
    sql: Box<str>,
    cookie: u32,
    form: Form,
}

impl State {
    fn remembered(&self, hash: u64) -> Option<DryRun> {
        let time = self.times.get(&hash).map(|time| DryRun::Prepared(*time));
        time.or_else(|| self.passes.get(&hash).map(|passes| DryRun::Explained(*passes)))
    }

    fn remember(&mut self, hash: u64, ended: &DryRun) {
        if self.times.len() + self.passes.len() >= REMEMBERED {
            self.times.clear();
            self.passes.clear();
        }
        match ended {
            DryRun::Prepared(time) => drop(self.times.insert(hash, *time)),
            DryRun::Explained(passes) => drop(self.passes.insert(hash, *passes)),
            _ => {}
        }
    }
}

impl DryRunner {
    pub(crate) fn new() -> DryRunner {
        let shared = Shared {
            open: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
            hasher: RandomState::new(),
            is_given_up: AtomicBool::new(false),
        };
        DryRunner { shared: Arc::new(shared), thread: Mutex::default() }
    }

    /// Has the thread open its connection so.
    pub(crate) fn open_with(&self, open: Open) {
        // The opener of a database is made once.
        let _ = self.shared.open.set(open);
    }

    /// Whether the statement that is being prepared may have to end: asked by its connection.
    pub(crate) fn overdue(&self) -> Overdue {
        let shared = Arc::downgrade(&self.shared);
        Arc::new(move |_| shared.upgrade().is_none_or(|shared| shared.is_given_up()))
    }

    /// Whether a statement is being prepared that nobody waits for any more.
    pub(crate) fn is_stuck(&self) -> bool {
        self.shared.is_given_up()
    }

    /// Prepares nothing more, and waits for the thread to end, which closes its connection.
    pub(crate) fn close(&self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        self.shared.is_given_up.store(state.running.is_some(), Ordering::Relaxed);
        drop(state);
        self.shared.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It does not panic.
        let _ = thread.map(JoinHandle::join);
    }

    /// Starts the thread, unless that was done before.
    fn start(&self) -> Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            *thread = Some(spawn("monolite-dry-run", move || shared.serve())?);
        }
        Ok(())
    }
}

impl DryRuns for DryRunner {
    fn run(&self, sql: &str, cookie: u32, form: Form, goes_on: &dyn Fn() -> bool) -> DryRun {
        let hash = self.shared.hasher.hash_one((sql, cookie, form));
        if let Some(known) = self.shared.lock().remembered(hash) {
            return known;
        }
        if let Err(error) = self.start() {
            return not_done(&error);
        }
        let ended = self.shared.ask(Request { number: 0, sql: sql.into(), cookie, form }, goes_on);
        self.shared.lock().remember(hash, &ended);
        ended
    }
}

impl Shared {
    fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread carry out `request`, and waits for the answer as long as `goes_on`.
    fn ask(&self, mut request: Request, goes_on: &dyn Fn() -> bool) -> DryRun {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        request.number = number;
        state.queue.push_back(request);
        self.changed.notify_all();
        while !state.is_closed {
            if let Some(at) = state.answers.iter().position(|(of, _)| *of == number) {
                return state.answers.swap_remove(at).1;
            }
            drop(state);
            let may_wait = goes_on();
            state = self.lock();
            if !may_wait {
                break;
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.queue.retain(|queued| queued.number != number);
        state.answers.retain(|(of, _)| *of != number);
        if state.running == Some(number) {
            self.is_given_up.store(true, Ordering::Relaxed);
        }
        DryRun::GivenUp
    }

    /// What the thread does.
    fn serve(&self) {
        let mut connection = None;
        while let Some(request) = self.next() {
            let ended = self.carry_out(&request, &mut connection);
            let mut state = self.lock();
            state.running = None;
            if !self.is_given_up.swap(false, Ordering::Relaxed) {
                state.answers.push((request.number, ended));
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits for a request; `None` when there will be no more.
    fn next(&self) -> Option<Request> {
        let mut state = self.lock();
        while !state.is_closed {
            if let Some(request) = state.queue.pop_front() {
                state.running = Some(request.number);
                return Some(request);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    fn carry_out(&self, request: &Request, kept: &mut Option<Connection>) -> DryRun {
        // Whoever has a connection that asks is behind the opening, which says how.
        let Some(open) = self.open.get() else { return DryRun::GivenUp };
        let connection = match kept.take().map_or_else(open, Ok) {
            Ok(connection) => kept.insert(connection),
            Err(error) => return not_done(&error),
        };
        connection.dry_run(&request.sql, request.cookie, request.form)
    }
}

/// What a statement ends with that cannot be prepared elsewhere.
fn not_done(error: &Error) -> DryRun {
    let text = format!(
        "a statement of this size is prepared elsewhere first where SQL is not trusted, and that \
         cannot be done now: {error}"
    );
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
    DryRun::Refused(rusqlite::Error::SqliteFailure(code, Some(text)), None)
}
