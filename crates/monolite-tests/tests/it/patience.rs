//! Waiting for conditions, and asking for a number. Every wait has a deadline, so that a deadlock
//! is a failure with a name.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use monolite::{Database, Error, Write};

/// Far beyond what any step of a test takes, on a busy machine, too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How often a condition is looked at again.
const GLANCE: Duration = Duration::from_millis(1);

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        thread::park_timeout(GLANCE);
    }
}

/// Runs `body` on a thread of its own and fails when it does not end.
pub(crate) fn ends<T: Send + 'static>(what: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    let thread = thread::spawn(move || {
        let _ = sender.send(body());
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("did not end within {PATIENCE:?}: {what}"),
        Err(RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it sent nothing, so it panicked"))
        }
    }
}

/// Polls once with a waker that wakes nobody.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A future in the hands of an executor that polls only when it was woken.
pub(crate) struct Driven<F: Future> {
    future: F,
    woken: Arc<Woken>,
    output: Option<F::Output>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl<F: Future + Unpin> Driven<F> {
    /// Polls once, so that the future knows whom to wake.
    pub(crate) fn start(future: F) -> Driven<F> {
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let mut driven = Driven { future, woken, output: None };
        driven.poll();
        driven
    }

    /// Polls whether it was woken or not, as a `select` over several futures does.
    pub(crate) fn poll(&mut self) {
        let waker = Waker::from(Arc::clone(&self.woken));
        if self.output.is_some() {
            return;
        }
        match Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => self.output = Some(output),
            Poll::Pending => {}
        }
    }

    /// Polls if it was woken; whether there is a result.
    pub(crate) fn is_done(&mut self) -> bool {
        if self.woken.0.swap(false, Ordering::SeqCst) {
            self.poll();
        }
        self.output.is_some()
    }

    /// The result.
    pub(crate) fn output(self) -> F::Output {
        self.output.unwrap()
    }
}

/// Something to stop threads at.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<(bool, u32)>,
    changed: Condvar,
}

impl Gate {
    /// Waits until the gate is open.
    pub(crate) fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        let start = Instant::now();
        while !state.0 {
            assert!(start.elapsed() < PATIENCE, "nobody opened the gate");
            state = self.changed.wait_timeout(state, PATIENCE).unwrap().0;
        }
    }

    pub(crate) fn open(&self) {
        self.state.lock().unwrap().0 = true;
        self.changed.notify_all();
    }

    /// How many have come so far.
    pub(crate) fn arrivals(&self) -> u32 {
        self.state.lock().unwrap().1
    }
}

/// The number that a new read answers.
pub(crate) fn one(db: &Database, sql: impl AsRef<str> + Send + 'static) -> i64 {
    db.read(move |tx| tx.query_row(sql.as_ref(), (), |row| row.get(0))).wait().unwrap()
}

/// Runs `submit` while the writer is held up, so that what it submits becomes one batch.
pub(crate) fn as_one_batch<R>(db: &Database, submit: impl FnOnce() -> R) -> R {
    let gate = Arc::new(Gate::default());
    let stop = Arc::clone(&gate);
    let holding: Write<(), Error> = db.write(move |_| {
        stop.pass();
        Ok(())
    });
    eventually("the writer arrives at the gate", || gate.arrivals() > 0);
    let submitted = submit();
    gate.open();
    holding.wait().unwrap();
    submitted
}
