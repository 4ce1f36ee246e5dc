//! Owns one transaction on its way through the writer: the closure, the outcome of its latest run,
//! and the caller who waits.
//!
//! # Invariants
//! - The caller gets exactly one outcome: the latest run's, or the engine's verdict in its place.
//! - A member that is dropped unanswered says so (`Closed`, `CommitUnknown`), never its outcome. So
//!   no caller waits for ever, and none hears of a commit that may not be one.
//! - The closure and its outcomes are values of the application: a panic of their drop goes no
//!   further, and outcomes that are not taken are dropped on another thread.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use crate::activity::Caller;
use crate::activity::events::Call;
use crate::archive::Pages;
use crate::call::completion::{Completion, Outcome};
use crate::call::discards::drop_quietly;
use crate::call::queue::lanes::{Principal, Queued};
use crate::clock::Tick;
use crate::error::{Error, ErrorKind};
use crate::markers::Last;
use crate::tx::Tx;

/// How one run of a closure ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    Succeeded,
    Failed,
    Panicked,
}

/// How a member runs that has a transaction of SQLite to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alone {
    /// How long it may take, whatever others may.
    pub(crate) limit: Duration,
    pub(crate) around: Around,
}

/// What is done around the transaction of a member that has one to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Around {
    Nothing,
    /// When it has succeeded, the file is rewritten without its free pages.
    Vacuum,
    /// Its [`Group`] is committed before it.
    Repeat,
}

/// What another database has committed, to be committed here as one transaction.
pub(crate) struct Group {
    /// Oldest first.
    pub(crate) pages: Vec<Box<dyn Pages>>,
    /// The size of the database behind it, in pages.
    pub(crate) size: u32,
    /// What is on disk with it.
    pub(crate) marker: Option<Vec<u8>>,
    /// How many commits the wal-index must have counted before, if it matters.
    pub(crate) after: Option<u32>,
    /// Is told of it.
    pub(crate) last: Arc<Last>,
}

/// Whether foreign keys are enforced, and act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ForeignKeys {
    #[default]
    On,
    /// What is run so has a transaction of SQLite to itself.
    Off,
}

/// For what an answer waits once the commit is on this disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArchiveWait {
    /// For the archive; or, where that is sooner, for so many replicas.
    pub(crate) replicas: Option<u8>,
    /// How long.
    pub(crate) limit: Duration,
}

/// The terms under which a member is submitted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    /// Who is answerable for it.
    pub(crate) principal: Principal,
    /// Where its commit must be besides before it is answered; `None`: nowhere.
    pub(crate) archive_wait: Option<ArchiveWait>,
    /// Who has made it, and what it is.
    pub(crate) caller: Caller,
    pub(crate) foreign_keys: ForeignKeys,
}

impl Terms {
    /// Those of work that keeps the database in order, such as a migration; `name` is for a handle
    /// without one. It does not wait for the archive: what is acknowledged behind it and is
    /// archived has it, too. It says itself whether it needs foreign keys to be off.
    pub(crate) fn of_upkeep(self, name: &'static str) -> Terms {
        let caller = Caller { name: self.caller.name.or(Some(name)), ..self.caller };
        Terms { archive_wait: None, caller, foreign_keys: ForeignKeys::On, ..self }
    }

    /// Those of what `caller` has made.
    pub(crate) fn of(self, caller: Caller) -> Terms {
        Terms { caller, ..self }
    }
}

/// A member of a batch, whatever its types.
pub(crate) trait Member: Send {
    /// Whether the closure may be run more than once.
    fn is_repeatable(&self) -> bool;
    /// How long the closure may take, where it is less than any other may.
    fn time_limit(&self) -> Option<Duration>;
    /// How it runs when it has a transaction to itself; `None` for one whose terms alone say so.
    fn alone(&self) -> Option<Alone>;
    /// What is committed before it.
    fn group(&mut self) -> Option<&mut Group>;
    /// Those of its submission.
    fn terms(&self) -> &Terms;
    /// When it was submitted.
    fn submitted(&self) -> Tick;
    /// Brings the member from its producer's core into this one's cache, ahead of its run.
    fn fetch(&self);
    /// Runs the closure and keeps its outcome; catches its panic.
    fn run(&mut self, tx: &Tx<'_>) -> Ran;
    /// Puts the engine's verdict in place of the closure's outcome.
    fn overrule(&mut self, error: Error);
    /// Delivers the outcome to the caller.
    fn answer(self: Box<Self>);
}

impl Queued for Box<dyn Member> {
    fn principal(&self) -> Principal {
        self.terms().principal
    }
}

/// A closure that may run again.
pub(crate) struct Repeatable<F>(pub(crate) F);

/// A closure that runs once.
pub(crate) struct Once<F>(pub(crate) Option<F>);

/// The two kinds of closures behind one face.
pub(crate) trait Body<T, E>: Send {
    const REPEATABLE: bool;
    fn call(&mut self, tx: &Tx<'_>) -> Result<T, E>;
    fn group(&mut self) -> Option<&mut Group> {
        None
    }
}

impl<T, E, F: FnMut(&Tx<'_>) -> Result<T, E> + Send> Body<T, E> for Repeatable<F> {
    const REPEATABLE: bool = true;
    fn call(&mut self, tx: &Tx<'_>) -> Result<T, E> {
        (self.0)(tx)
    }
}

impl<T, E, F: FnOnce(&Tx<'_>) -> Result<T, E> + Send> Body<T, E> for Once<F> {
    const REPEATABLE: bool = false;
    fn call(&mut self, tx: &Tx<'_>) -> Result<T, E> {
        let body = self.0.take().expect("a closure that runs once was run once");
        body(tx)
    }
}

impl Body<(), Error> for Group {
    const REPEATABLE: bool = true;
    fn call(&mut self, _: &Tx<'_>) -> Result<(), Error> {
        Ok(())
    }
    fn group(&mut self) -> Option<&mut Group> {
        Some(self)
    }
}

/// A closure, its outcome and its caller.
pub(crate) struct Submission<B, T, E> {
    /// Taken out by the drop.
    body: Option<B>,
    outcome: Option<Outcome<T, E>>,
    answered: bool,
    time_limit: Option<Duration>,
    alone: Option<Alone>,
    terms: Terms,
    submitted: Tick,
    caller: Arc<Completion<T, E>>,
    call: Call,
}

impl<B, T, E> Submission<B, T, E> {
    pub(crate) fn new(body: B, terms: Terms, caller: Arc<Completion<T, E>>) -> Submission<B, T, E> {
        Submission {
            body: Some(body),
            outcome: None,
            answered: false,
            time_limit: None,
            alone: None,
            terms,
            submitted: Tick::now(),
            caller,
            call: Call::new(terms.caller),
        }
    }

    /// With a time limit of its own.
    pub(crate) fn within(mut self, limit: Duration) -> Submission<B, T, E> {
        self.time_limit = Some(limit);
        self
    }

    /// Has a transaction of SQLite to itself.
    pub(crate) fn alone(mut self, alone: Alone) -> Submission<B, T, E> {
        self.alone = Some(alone);
        self
    }

    fn replace(&mut self, outcome: Outcome<T, E>) {
        if let Some(outcome) = self.outcome.replace(outcome) {
            self.caller.discard(outcome);
        }
    }
}

impl<B, T, E> Member for Submission<B, T, E>
where
    B: Body<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    fn is_repeatable(&self) -> bool {
        B::REPEATABLE
    }

    fn time_limit(&self) -> Option<Duration> {
        self.time_limit
    }

    fn alone(&self) -> Option<Alone> {
        self.alone
    }

    fn group(&mut self) -> Option<&mut Group> {
        self.body.as_mut().and_then(Body::group)
    }

    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn submitted(&self) -> Tick {
        self.submitted
    }

    fn fetch(&self) {
        // Loads that nothing waits for, of all the cache lines that the fields may lie in.
        let is_limited = self.time_limit.is_some();
        let waits = self.terms.archive_wait.is_some();
        let place = self.terms.caller.place;
        black_box((self.answered, self.outcome.is_none(), is_limited, waits, place));
    }

    fn run(&mut self, tx: &Tx<'_>) -> Ran {
        let body = self.body.as_mut().expect("a member has its closure until it is dropped");
        let (ran, outcome) = match self.call.run(|| body.call(tx), || tx.total_changes()) {
            Ok(Ok(value)) => (Ran::Succeeded, Outcome::Returned(Ok(value))),
            Ok(Err(error)) => (Ran::Failed, Outcome::Returned(Err(error))),
            Err(payload) => (Ran::Panicked, Outcome::Panicked(payload)),
        };
        self.replace(outcome);
        ran
    }

    fn overrule(&mut self, error: Error) {
        self.replace(Outcome::Refused(error));
    }

    fn answer(mut self: Box<Self>) {
        if let Some(outcome) = self.outcome.take() {
            self.answered = true;
            self.call.end(|| outcome.word());
            self.caller.deliver(outcome);
        }
    }
}

impl<B, T, E> Drop for Submission<B, T, E> {
    fn drop(&mut self) {
        drop_quietly(self.body.take());
        let outcome = self.outcome.take();
        let has_run = outcome.is_some();
        outcome.into_iter().for_each(|outcome| self.caller.discard(outcome));
        if self.answered {
            return;
        }
        let error = if !has_run {
            Error::new(ErrorKind::Closed, "the database was closed before the transaction was run")
        } else {
            let message = "the engine stopped between running the transaction and acknowledging \
                           it, so whether it committed is not known";
            Error::new(ErrorKind::CommitUnknown, message)
        };
        self.caller.deliver(Outcome::Refused(error));
    }
}
