//! Owns what is done on the writer's thread between two batches, when no transaction is open and no
//! commit runs.
//!
//! # Invariants
//! - Each request gets an answer: the end of the writer drops open requests, and later ones are
//!   refused.
//!
//! # Threads and locks
//! The lock is held for a few instructions, by requests and by the writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use monolite_sqlite::Connection;

use crate::call::write_queue::WriteQueue;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;

/// How often one who waits for an answer looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(20);

/// What is run with the writer's connection; tells what it was if a sync failed.
type Ask = Box<dyn FnOnce(&Connection) -> Option<String> + Send>;

/// What is to be done between two batches.
pub(crate) struct BetweenBatches {
    queue: Arc<WriteQueue>,
    progress: Arc<Progress>,
    state: Mutex<Requests>,
    is_asked: AtomicBool,
}

#[derive(Default)]
struct Requests {
    asked: Vec<Ask>,
    is_closed: bool,
}

impl BetweenBatches {
    pub(crate) fn new(queue: Arc<WriteQueue>, progress: Arc<Progress>) -> BetweenBatches {
        let (state, is_asked) = (Mutex::default(), AtomicBool::new(false));
        BetweenBatches { queue, progress, state, is_asked }
    }

    fn state(&self) -> MutexGuard<'_, Requests> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the writer's thread run `ask`, waits for the result, and looks now and then whether
    /// `goes_on` still wants it.
    ///
    /// # Errors
    /// Those of `ask` and `goes_on`; `Closed` or `Poisoned` when the writer has ended.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        goes_on: impl Fn() -> Result<()>,
        ask: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        let ask = move |writer: &Connection| {
            let result = ask(writer);
            let lost = result.as_ref().err().filter(|error| error.is_lost_write());
            let lost = lost.map(Error::to_string);
            // The receiver may be gone.
            let _ = answer.send(result);
            lost
        };
        let mut state = self.state();
        if state.is_closed {
            return Err(self.ended());
        }
        state.asked.push(Box::new(ask));
        self.is_asked.store(true, Ordering::Release);
        drop(state);
        self.queue.kick();
        loop {
            match answered.recv_timeout(LOOK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => {
                    goes_on()?;
                    // The writer's thread may be one that could not be started.
                    self.queue.kick();
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            }
        }
    }

    /// Does what was asked, on the writer's thread, and tells `lost` of every failed sync.
    pub(crate) fn serve(&self, writer: &Connection, lost: impl Fn(String)) {
        if !self.is_asked.swap(false, Ordering::Acquire) {
            return;
        }
        let asked = std::mem::take(&mut self.state().asked);
        for ask in asked {
            if let Some(error) = ask(writer) {
                lost(error);
            }
        }
    }

    /// Stops all acknowledgements for good.
    pub(crate) fn poison(&self, reason: String) {
        self.progress.poison(reason);
        self.queue.close();
    }

    /// The writer ends: nothing is done any more.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let asked = std::mem::take(&mut state.asked);
        drop(state);
        drop(asked);
    }

    fn ended(&self) -> Error {
        let closed = || Error::new(ErrorKind::Closed, "the database was closed meanwhile");
        self.progress.check_poison().err().unwrap_or_else(closed)
    }
}
