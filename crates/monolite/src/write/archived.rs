//! Owns the answers to members whose commits are on this disk, and that wait until they are in the
//! archive, too ([`Durability::Archived`](crate::Durability)), and the waits of reads for what they
//! have seen.
//!
//! # Invariants
//! - Nobody is answered `Ok` before the archive has said that it has everything up to the end of
//!   the member's batch.
//! - Once acknowledgements have stopped, whoever waits gets the reason.
//!
//! # Threads and locks
//! `monolite-archived` answers members; reads wait on their own threads. The lock is held for a few
//! instructions, never for an answer.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use monolite_sqlite::vfs::{WalControl, WalPosition};

use crate::archive::Archiving;
use crate::call::entry::Entry;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;

/// How often a read looks whether acknowledgements have stopped, for a reason that nobody tells
/// here.
const LOOK: Duration = Duration::from_secs(1);

/// Those who wait for the archive.
pub(crate) struct Archived {
    state: Mutex<State>,
    changed: Condvar,
    /// For reads.
    advanced: Condvar,
    progress: Arc<Progress>,
    wal: Weak<WalControl>,
    /// It keeps what has this.
    archiving: Weak<dyn Archiving>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(WalPosition, Vec<Entry>)>,
    /// Reads that wait.
    reads: usize,
    /// What the archive has, once it has what an earlier process had left.
    to: Option<WalPosition>,
    is_closed: bool,
    /// Whether the commits of those who wait may be in history, though it is another's now.
    is_unknown: bool,
}

impl State {
    fn has(&self, position: WalPosition) -> bool {
        self.to.is_some_and(|to| position <= to)
    }

    /// Those whose commits are archived.
    fn done(&mut self) -> Vec<Entry> {
        let done = self.waiting.iter().take_while(|(at, _)| self.has(*at)).count();
        self.waiting.drain(..done).flat_map(|(_, members)| members).collect()
    }

    /// What those are told who still wait when acknowledgements have stopped.
    fn verdict(&self, stopped: Error) -> Error {
        let is_unknown = self.is_unknown && stopped.kind() == ErrorKind::Fenced;
        if is_unknown {
            return Error::new(ErrorKind::CommitUnknown, stopped.to_string());
        }
        stopped
    }

    fn rest(&mut self) -> Vec<Entry> {
        self.waiting.drain(..).flat_map(|(_, members)| members).collect()
    }
}

impl Archived {
    pub(crate) fn new(
        progress: Arc<Progress>,
        wal: Weak<WalControl>,
        archiving: Weak<dyn Archiving>,
    ) -> Archived {
        Archived {
            state: Mutex::default(),
            changed: Condvar::new(),
            advanced: Condvar::new(),
            progress,
            wal,
            archiving,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `members`, whose batch ends at `position` and is on this disk, wait. Batches come in
    /// their order.
    pub(crate) fn wait(&self, position: WalPosition, members: Vec<Entry>) {
        self.state().waiting.push_back((position, members));
        self.changed.notify_one();
        self.hurry();
    }

    fn hurry(&self) {
        if let Some(archiving) = self.archiving.upgrade() {
            archiving.awaited();
        }
    }

    /// Blocks until everything is archived that anybody can have seen so far.
    ///
    /// # Errors
    /// Why that will not happen.
    pub(crate) fn wait_for_all(&self) -> Result<()> {
        self.progress.wait_durable(self.progress.exposed())?;
        // Whatever is durable was noted there before.
        let position = self.wal.upgrade().map(|wal| wal.committed());
        let Some(position) = position else { return Err(closed()) };
        self.state().reads += 1;
        self.hurry();
        let mut state = self.state();
        let verdict = loop {
            if state.has(position) {
                break Ok(());
            }
            if let Err(error) = self.progress.check_poison() {
                break Err(error);
            }
            if state.is_closed {
                break Err(closed());
            }
            let waited = self.advanced.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.reads -= 1;
        verdict
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        let state = self.state();
        // What is archived is about to be answered.
        let waiting = state.waiting.iter().filter(|(position, _)| !state.has(*position));
        waiting.map(|(_, members)| members.len()).sum::<usize>() + state.reads
    }

    /// The archive has everything up to `to`.
    pub(crate) fn note(&self, to: WalPosition) {
        let mut state = self.state();
        state.to = state.to.max(Some(to));
        drop(state);
        self.notify();
    }

    /// Acknowledgements have stopped. Whether it `is_certain` that what was not archived is not in
    /// history.
    pub(crate) fn stop(&self, is_certain: bool) {
        self.state().is_unknown = !is_certain;
        self.notify();
    }

    /// Nobody waits any more: whoever does is told that it is not known.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.notify();
    }

    fn notify(&self) {
        self.changed.notify_one();
        self.advanced.notify_all();
    }

    /// Answers until it is closed, and says `told` how many each time.
    pub(crate) fn run(&self, told: impl Fn(usize)) {
        while let Some((members, verdict)) = self.next() {
            let count = members.len();
            for mut entry in members {
                if let Err(error) = &verdict {
                    entry.overrule(error.repeated());
                }
                entry.answer();
            }
            told(count);
        }
    }

    /// Those who are to be answered next, and with what if not with their own outcome.
    fn next(&self) -> Option<(Vec<Entry>, Result<()>)> {
        let mut state = self.state();
        loop {
            let done = state.done();
            if !done.is_empty() {
                return Some((done, Ok(())));
            }
            let end = self.progress.check_poison().err().map(|error| state.verdict(error));
            let end = end.or_else(|| state.is_closed.then(not_archived));
            if let Some(error) = end {
                let rest = state.rest();
                if !rest.is_empty() {
                    return Some((rest, Err(error)));
                }
                if state.is_closed {
                    return None;
                }
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn not_archived() -> Error {
    let message = "the write is on this disk, and the database was closed before it was archived; \
                   it is archived when the database is opened again";
    Error::new(ErrorKind::CommitUnknown, message)
}

fn closed() -> Error {
    let message = "the database was closed before what was read was archived; read it again when \
                   it is open";
    Error::new(ErrorKind::Closed, message)
}
