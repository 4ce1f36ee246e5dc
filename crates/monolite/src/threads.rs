//! Owns the starting of the engine's threads, and when they end for lack of work.
//!
//! # Algorithm
//! A database that is not used has no thread: each is started by the first work for it, and ends
//! when it has had none for [`LINGER`]. Where a process has more than [`CROWD`], as with many
//! databases, they end after [`BRIEF`].
//!
//! What one thread at a time does is a [`Duty`].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clock;
use crate::error::{Error, ErrorKind, Result};

/// How long a thread without work stays. To start one takes 30 to 50 µs more than to wake one.
const LINGER: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 5_000 });

/// How long it stays where there are many.
const BRIEF: Duration = Duration::from_millis(20);

/// So many threads of one process are not many.
const CROWD: usize = 32;

/// How long a store on one core may take to be seen on all, with ample room: it is nanoseconds.
const LOOK: Duration = Duration::from_millis(5);

/// Threads of the engine in this process.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// How long a thread waits for work before it ends.
pub(crate) fn linger() -> Duration {
    if RUNNING.load(Ordering::Relaxed) > CROWD { BRIEF } else { LINGER }
}

/// Counts the thread until this is dropped.
struct Counted;

impl Counted {
    fn new() -> Counted {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a [`Duty`] does.
pub(crate) trait Work: Sized + Send + 'static {
    const THREAD: &'static str;

    /// Does what there is to do. Comes back when there has been nothing for a while, and whoever
    /// brings more starts the duty again; or when all is done for good.
    fn run(self) -> Self;
}

/// Work that one thread at a time does, and that has one while there is something to do.
///
/// The thread holds the lock, so another one that was started meanwhile, or the
/// [end](Duty::end), waits for it.
pub(crate) struct Duty<W>(Mutex<Option<W>>);

impl<W: Work> Duty<W> {
    pub(crate) fn new(work: W) -> Arc<Duty<W>> {
        Arc::new(Duty(Mutex::new(Some(work))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread do it.
    ///
    /// # Errors
    /// `Storage` when the system has none to give.
    pub(crate) fn start(self: &Arc<Self>) -> Result<()> {
        let duty = Arc::clone(self);
        spawn(W::THREAD, move || duty.run()).map(drop)
    }

    fn run(&self) {
        let mut work = self.lock();
        *work = work.take().map(Work::run);
    }

    /// Does what is left, after all who bring work have been told, and gives the work back; `None`
    /// when a defect has unwound its thread.
    pub(crate) fn end(&self) -> Option<W> {
        self.run();
        self.lock().take()
    }
}

/// How those who bring work start the duty that does it. Until it is told of one, there is a thread
/// by other means.
#[derive(Default)]
pub(crate) struct Starter(OnceLock<Box<dyn Fn() -> Result<()> + Send + Sync>>);

impl Starter {
    pub(crate) fn set<W: Work>(&self, duty: &Arc<Duty<W>>) {
        let duty = Arc::downgrade(duty);
        let start = move || duty.upgrade().map_or(Ok(()), |duty| duty.start());
        assert!(self.0.set(Box::new(start)).is_ok(), "one duty does this work");
    }

    /// Whether work has to start what does it.
    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// # Errors
    /// As [`Duty::start`].
    pub(crate) fn start(&self) -> Result<()> {
        self.0.get().map_or(Ok(()), |start| start())
    }
}

/// Whether the [watchdog](crate::watchdog)'s thread runs, and how it is started.
#[derive(Default)]
pub(crate) struct Awake {
    is_attended: AtomicBool,
    pub(crate) starter: Starter,
}

impl Awake {
    /// A use has begun that may overrun its time.
    #[inline]
    pub(crate) fn note(&self) {
        // Without a thread to be had, the next use tries again.
        let _ = self.ensure();
    }

    /// As [`Awake::note`], of a use that must not be without the thread.
    ///
    /// # Errors
    /// As [`Duty::start`].
    #[inline]
    pub(crate) fn ensure(&self) -> Result<()> {
        // Without an instruction: see `leave`.
        compiler_fence(Ordering::SeqCst);
        if self.is_attended.load(Ordering::Relaxed) { Ok(()) } else { self.attend() }
    }

    #[cfg(test)]
    pub(crate) fn is_attended(&self) -> bool {
        self.is_attended.load(Ordering::SeqCst)
    }

    #[cold]
    fn attend(&self) -> Result<()> {
        if !self.starter.is_set() || self.is_attended.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.starter.start().inspect_err(|_| self.is_attended.store(false, Ordering::SeqCst))
    }

    /// The thread leaves, unless the database `is_in_use`; tells whether it does.
    pub(crate) fn leave(&self, is_in_use: impl Fn() -> bool) -> bool {
        self.is_attended.store(false, Ordering::SeqCst);
        // A use that did not see this yet is seen afterwards: it was begun before it looked, and no
        // core keeps a store to itself for so long.
        clock::rest(LOOK);
        // A thread that was started meanwhile takes over.
        !is_in_use() || self.is_attended.swap(true, Ordering::SeqCst)
    }
}

/// Starts a thread.
///
/// # Errors
/// `Storage` when the system has none to give.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let counted = Counted::new();
    let body = move || {
        let _counted = counted;
        body()
    };
    #[cfg(test)]
    let body = shortage::meet(body);
    #[cfg(not(test))]
    let body = Ok(body);
    let thread = body.and_then(|body| thread::Builder::new().name(name.into()).spawn(body));
    thread.map_err(|error| {
        let message = format!(
            "the thread {name} cannot be started: {error}; raise the limit of threads (ulimit -u, \
             TasksMax= of systemd)"
        );
        Error::new(ErrorKind::Storage, message)
    })
}

#[cfg(test)]
pub(crate) mod shortage {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        /// How many threads this one can still start.
        static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// Has this thread start `count` more, and no other, until it is told otherwise.
    pub(crate) fn after(count: usize) {
        LEFT.set(count);
    }

    pub(super) fn meet<B>(body: B) -> io::Result<B> {
        let left = LEFT.get();
        if left == 0 {
            return Err(io::Error::from(io::ErrorKind::WouldBlock));
        }
        LEFT.set(left - 1);
        Ok(body)
    }
}
