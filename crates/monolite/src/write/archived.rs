//! Owns the answers to members whose commits are on this disk, and that wait until they are in the
//! archive, too ([`Durability::Archived`](crate::Durability)), or on the disks of followers
//! ([`Durability::Replicated`](crate::Durability)), and the waits of reads for what they have seen.
//!
//! # Invariants
//! - No member gets `Ok` before the archive has said that it has everything up to the end of the
//!   member's batch, or that so many followers have that as the member asks for.
//! - Each of them has a [place](crate::call::places), so their number is bounded, and a time, after
//!   which it is told that the archive has not answered.
//! - Once acknowledgements have stopped, waiting members get the reason.
//!
//! # Threads and locks
//! `monolite-archived` answers. The lock is held while those who wait are looked through, never for
//! an answer.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use monolite_sqlite::vfs::{WalControl, WalPosition};

use crate::call::completion::{Completion, Outcome};
use crate::call::entry::Entry;
use crate::call::member::ArchiveWait;
use crate::call::places::{Place, Places};
use crate::clock::Patience;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;

/// The shortest time between two looks for overdue waits: those of some milliseconds are answered
/// together.
const REST: Duration = Duration::from_millis(5);

/// How often a look is taken, while a member waits, whether acknowledgements have stopped for a
/// reason that is not reported here.
const LOOK: Duration = Duration::from_secs(1);

/// Those who wait for the archive.
pub(crate) struct Archived {
    state: Mutex<WaitingState>,
    changed: Condvar,
    pub(crate) places: Places,
    /// The longest wait.
    limit: Duration,
    progress: Arc<Progress>,
    wal: Weak<WalControl>,
    hurry: Hurry,
}

/// Tells the archive that a write waits for it, or (`true`) for followers. Must be quick.
pub(crate) type Hurry = Box<dyn Fn(bool) + Send + Sync>;

#[derive(Default)]
struct WaitingState {
    waiting: Vec<Waiting>,
    /// When they are looked through, if nothing happens before.
    look: Option<Patience>,
    /// What the archive has, once it has what an earlier process had left.
    to: Option<WalPosition>,
    /// What followers have, and how many of them.
    replicated: Option<(WalPosition, usize)>,
    is_closed: bool,
    /// Whether the commits of those who wait may be in history, though it is another's now.
    is_unknown: bool,
}

/// One who waits.
struct Waiting {
    position: WalPosition,
    until: Patience,
    wait: ArchiveWait,
    who: Who,
}

enum Who {
    Member(Entry),
    Read(Arc<Completion<(), Error>>, Place),
}

impl Who {
    fn tell(self, verdict: Result<()>) {
        match self {
            Who::Member(mut entry) => {
                if let Err(error) = verdict {
                    entry.overrule(error);
                }
                entry.answer();
            }
            Who::Read(caller, place) => {
                drop(place);
                deliver(&caller, verdict);
            }
        }
    }

    fn closed(&self) -> Error {
        match self {
            Who::Member(_) => not_archived(),
            Who::Read(..) => closed(),
        }
    }

    fn late(&self, wait: ArchiveWait) -> Error {
        match self {
            Who::Member(_) => write_is_late(wait),
            Who::Read(..) => read_is_late(wait.limit),
        }
    }
}

fn deliver(caller: &Completion<(), Error>, verdict: Result<()>) {
    caller.deliver(match verdict {
        Ok(()) => Outcome::Returned(Ok(())),
        Err(error) => Outcome::Refused(error),
    });
}

impl WaitingState {
    fn has(&self, position: WalPosition, replicas: Option<u8>) -> bool {
        let has =
            |(to, count)| position <= to && replicas.is_some_and(|it| usize::from(it) <= count);
        self.to.is_some_and(|to| position <= to) || self.replicated.is_some_and(has)
    }

    /// Those who are to be told now, in the order in which they came, and what.
    fn settle(&mut self, stopped: Option<&Error>) -> Vec<(Who, Result<()>)> {
        let now = Patience::of(Duration::ZERO);
        let (is_closed, is_unknown) = (self.is_closed, self.is_unknown);
        let mut waiting = std::mem::take(&mut self.waiting);
        let is_kept = |it: &Waiting| self.has(it.position, it.wait.replicas);
        let ends = |waiting: &mut Waiting| {
            is_kept(waiting) || stopped.is_some() || is_closed || waiting.until <= now
        };
        let over = waiting.extract_if(.., ends);
        let told = over.map(|waiting| {
            let verdict = match stopped {
                _ if is_kept(&waiting) => Ok(()),
                Some(error) if is_unknown && error.kind() == ErrorKind::Fenced => {
                    Err(Error::new(ErrorKind::CommitUnknown, error.to_string()))
                }
                Some(error) => Err(error.repeated()),
                None if is_closed => Err(waiting.who.closed()),
                None => Err(waiting.who.late(waiting.wait)),
            };
            (waiting.who, verdict)
        });
        let told = told.collect();
        self.waiting = waiting;
        told
    }
}

impl Archived {
    /// For as many as `capacity`, each of which waits for `limit` at most.
    pub(crate) fn new(
        capacity: usize,
        limit: Duration,
        progress: Arc<Progress>,
        wal: Weak<WalControl>,
        hurry: Hurry,
    ) -> Archived {
        Archived {
            state: Mutex::default(),
            changed: Condvar::new(),
            places: Places::new(capacity),
            limit,
            progress,
            wal,
            hurry,
        }
    }

    fn state(&self) -> MutexGuard<'_, WaitingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `members`, whose batch ends at `position` and is on this disk, wait. Batches come in
    /// their order.
    pub(crate) fn wait(&self, position: WalPosition, members: Vec<(ArchiveWait, Entry)>) {
        let members = members.into_iter().map(|(wait, entry)| (wait, Who::Member(entry)));
        self.enter(self.state(), position, members);
    }

    fn enter(
        &self,
        mut state: MutexGuard<'_, WaitingState>,
        position: WalPosition,
        them: impl IntoIterator<Item = (ArchiveWait, Who)>,
    ) {
        let (mut is_due, mut kinds) = (self.progress.is_poisoned(), [false; 2]);
        for (wait, who) in them {
            let until = Patience::of(wait.limit);
            is_due |= state.has(position, wait.replicas);
            is_due |= state.look.is_none_or(|look| until < look);
            kinds[usize::from(wait.replicas.is_some())] = true;
            state.waiting.push(Waiting { position, until, wait, who });
        }
        assert!(state.waiting.len() <= self.places.capacity(), "each who waits has a place");
        drop(state);
        if is_due {
            self.changed.notify_one();
        }
        for (replicated, _) in [false, true].into_iter().zip(kinds).filter(|(_, any)| *any) {
            (self.hurry)(replicated);
        }
    }

    /// What is delivered when everything that can have been seen so far is archived, or on so many
    /// `replicas`, or the reason why that is not so after `limit`, or the longest wait, if that is
    /// shorter.
    pub(crate) fn when_all(
        &self,
        replicas: Option<u8>,
        limit: Option<Duration>,
    ) -> Arc<Completion<(), Error>> {
        let caller = Completion::new();
        let limit = limit.map_or(self.limit, |limit| limit.min(self.limit));
        if let Err(error) = self.wait_for_all(ArchiveWait { replicas, limit }, &caller) {
            deliver(&caller, Err(error));
        }
        caller
    }

    fn wait_for_all(&self, wait: ArchiveWait, caller: &Arc<Completion<(), Error>>) -> Result<()> {
        self.progress.wait_durable(self.progress.exposed())?;
        // Whatever is durable was noted there before.
        let position = self.wal.upgrade().map(|wal| wal.committed()).ok_or_else(closed)?;
        let state = self.state();
        if state.has(position, wait.replicas) {
            drop(state);
            deliver(caller, Ok(()));
            return Ok(());
        }
        self.progress.check_poison()?;
        if state.is_closed {
            return Err(closed());
        }
        let who = Who::Read(Arc::clone(caller), self.places.take()?);
        self.enter(state, position, [(wait, who)]);
        Ok(())
    }

    /// How many wait for the archive.
    pub(crate) fn waiting(&self) -> usize {
        let state = self.state();
        // What is archived is about to be answered.
        let waits = |it: &&Waiting| it.wait.replicas.is_none() && !state.has(it.position, None);
        state.waiting.iter().filter(waits).count()
    }

    /// How many members wait.
    pub(crate) fn members(&self) -> usize {
        let is_member = |waiting: &&Waiting| matches!(waiting.who, Who::Member(_));
        self.state().waiting.iter().filter(is_member).count()
    }

    /// The archive has everything up to `to`.
    pub(crate) fn note(&self, to: WalPosition) {
        let mut state = self.state();
        state.to = state.to.max(Some(to));
        drop(state);
        self.changed.notify_one();
    }

    /// So many followers have everything up to `to`.
    pub(crate) fn note_replicated(&self, to: WalPosition, count: usize) {
        self.state().replicated = Some((to, count));
        self.changed.notify_one();
    }

    /// Acknowledgements are about to stop. Whether it `is_unknown` if what was not archived is in
    /// history.
    pub(crate) fn note_unknown(&self, is_unknown: bool) {
        self.state().is_unknown = is_unknown;
    }

    /// Has those who wait be looked through, as acknowledgements have stopped.
    pub(crate) fn look(&self) {
        drop(self.state());
        self.changed.notify_one();
    }

    /// Ends all waiting: waiting members get an unknown outcome.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_one();
    }

    /// Answers until it is closed.
    pub(crate) fn run(&self) {
        while let Some(told) = self.next() {
            told.into_iter().for_each(|(who, verdict)| who.tell(verdict));
        }
    }

    /// The members to be answered next; `None` when it is closed and none is left.
    fn next(&self) -> Option<Vec<(Who, Result<()>)>> {
        let mut state = self.state();
        loop {
            let told = state.settle(self.progress.check_poison().err().as_ref());
            if !told.is_empty() {
                return Some(told);
            }
            if state.is_closed {
                return None;
            }
            state.look = state.waiting.iter().map(|waiting| waiting.until).min();
            state = match state.look {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(look) => {
                    let waited = self.changed.wait_timeout(state, look.left().clamp(REST, LOOK));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
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

fn write_is_late(ArchiveWait { replicas, limit }: ArchiveWait) -> Error {
    if let Some(replicas) = replicas {
        let message = format!(
            "the write is committed and on this disk, and {replicas} followers did not have it \
             within {limit:.1?} (Archive::time_limit, or Database::with_time_limit): see that they \
             run and stream, with the same secret; before a retry, check whether it is there"
        );
        return Error::new(ErrorKind::CommitUnknown, message);
    }
    let message = format!(
        "the write is committed and on this disk, and was not archived within {limit:.1?} \
         (Archive::time_limit, or Database::with_time_limit); it is archived when the store \
         answers again: before a retry, check whether it is there"
    );
    Error::new(ErrorKind::CommitUnknown, message)
}

fn read_is_late(limit: Duration) -> Error {
    let message = format!(
        "what was read was not archived within {limit:.1?} (Archive::time_limit, or \
         Database::with_time_limit); read it again when the store answers (Stats::archive)"
    );
    Error::new(ErrorKind::Timeout, message)
}

#[cfg(test)]
pub(super) mod tests;
