//! Owns what is known of a call while it runs, and of a slow one afterwards: who made it, which of
//! its statements runs, and since when. The texts of statements are kept, their parameters never.
//!
//! # Threads and locks
//! A [`Trace`] is written by the thread that runs the call, and may be looked at by any other. Its
//! lock is held for the copy of one text.

pub(crate) mod events;
pub(crate) mod slow;

use std::cell::Cell;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, nanos};
use crate::error::excerpt;
use crate::primitives::sync::atomic::{AtomicU64, Ordering};
use crate::primitives::sync::{Mutex, MutexGuard, PoisonError};

/// A time of a statement below this says only that it was short: the coarse clock has steps of
/// 4 ms.
const COARSE: Duration = Duration::from_millis(10);

/// Longest piece of a statement that is kept, in bytes.
const KEPT_SQL: usize = 512;

/// What kind of work a [`Caller`] asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum CallKind {
    /// The closure of a write, in the writer.
    #[default]
    Write,
    /// The commit of an interactive transaction, in the writer.
    Commit,
    /// A statement of an interactive transaction, on a connection of its own.
    Statement,
    /// The closure of a read.
    Read,
    /// A stream, with the time that its consumer takes.
    Stream,
    /// An untrusted query.
    Untrusted,
    /// A backup, or a check.
    Copy,
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CallKind::Write => "a write",
            CallKind::Commit => "the commit of a transaction",
            CallKind::Statement => "a statement of a transaction",
            CallKind::Read => "a read",
            CallKind::Stream => "a stream",
            CallKind::Untrusted => "an untrusted query",
            CallKind::Copy => "a backup or check",
        })
    }
}

/// Who made a call: `checkout (src/shop.rs:41)` as text.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// let db = monolite::Options::new().slow_transaction(std::time::Duration::from_micros(1));
/// let db = db.open(":memory:")?;
/// db.named("schema").write(|tx| tx.execute("CREATE TABLE t(x)", ())).wait()?;
/// let slow = &db.stats().slow_transactions[0];
/// assert_eq!(slow.caller.name, Some("schema"));
/// assert!(slow.caller.to_string().starts_with("schema ("));
/// # db.close()
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Caller {
    /// What it asked for.
    pub kind: CallKind,
    /// The name of the handle, from [`Database::named`](crate::Database::named).
    pub name: Option<&'static str>,
    /// The line that called the handle, of an interactive transaction the one that began it. `None`
    /// for work of the engine's own.
    #[cfg_attr(feature = "serde", serde(serialize_with = "serialize_place"))]
    pub place: Option<&'static Location<'static>>,
}

impl Caller {
    /// The same party, for `kind` of work, at the line `place`.
    pub(crate) fn at(self, kind: CallKind, place: &'static Location<'static>) -> Caller {
        Caller { kind, place: Some(place), ..self }
    }

    /// The same party, for another `kind` of work.
    pub(crate) fn of(self, kind: CallKind) -> Caller {
        Caller { kind, ..self }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name, self.place) {
            (Some(name), Some(at)) => write!(f, "{name} ({}:{})", at.file(), at.line()),
            (Some(name), None) => f.write_str(name),
            (None, Some(at)) => write!(f, "{} at {}:{}", self.kind, at.file(), at.line()),
            (None, None) => self.kind.fmt(f),
        }
    }
}

#[cfg(feature = "serde")]
fn serialize_place<S: serde::Serializer>(
    place: &Option<&'static Location<'static>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match place {
        Some(at) => serializer.collect_str(&format_args!("{}:{}", at.file(), at.line())),
        None => serializer.serialize_none(),
    }
}

/// A call that runs now, from [`Database::running`](crate::Database::running). As text:
/// ``checkout (src/shop.rs:41), running `UPDATE …` ``.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// for activity in db.running() {
///     println!("{:?} {activity}, {} wait", activity.time, activity.waiting);
/// }
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Activity {
    /// Who made it.
    pub caller: Caller,
    /// How long it has been running; the time in a queue before does not count.
    pub time: Duration,
    /// The statement that runs, cut to 512 bytes, without its parameters; one that was prepared and
    /// handed out, until the next. `None` while the closure runs code of its own.
    pub statement: Option<String>,
    /// How long that statement has been running.
    pub statement_time: Duration,
    /// Whether it has the writer, for which all other writes wait.
    pub has_writer: bool,
    /// Whether its snapshot keeps the WAL from being copied and restarted.
    pub keeps_wal: bool,
    /// Calls that wait for the writer, a reader, a stream or a connection for statements, whichever
    /// this call has.
    pub waiting: u64,
    /// When it began, on the engine's clock.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) began: Duration,
}

impl Activity {
    /// What a call of `caller` does `now`, which began at that moment.
    pub(crate) fn new(caller: Caller, began: Duration, trace: &Trace, now: Duration) -> Activity {
        let (statement, statement_time) = trace.statement(now).unzip();
        Activity {
            caller,
            time: now.saturating_sub(began),
            statement,
            statement_time: statement_time.unwrap_or_default(),
            has_writer: false,
            keeps_wal: false,
            waiting: 0,
            began,
        }
    }
}

impl Activity {
    /// For how long, and by whom, something is held.
    pub(crate) fn held(&self) -> String {
        format!("for {:.1?} by {self}", self.time)
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.statement {
            Some(sql) => write!(f, "{}, running `{}`", self.caller, excerpt(sql, 0)),
            None => write!(f, "{}, in its own code", self.caller),
        }
    }
}

/// An interactive transaction that is open, from
/// [`Database::open_transactions`](crate::Database::open_transactions).
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// let tx = db.named("checkout").transaction()?;
/// tx.query_row("SELECT 1", (), |row| row.get::<_, i64>(0)).wait()?;
/// let open = db.open_transactions();
/// assert_eq!((open[0].caller.name, open[0].statements), (Some("checkout"), 1));
/// # drop(tx);
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TransactionActivity {
    /// Who began it, and where.
    pub caller: Caller,
    /// How long it has been open.
    pub time: Duration,
    /// Statements that it has run.
    pub statements: usize,
    /// Whether one runs now, which [`Database::running`](crate::Database::running) then has.
    pub is_running: bool,
    /// Whether it has a snapshot. A resting transaction keeps the WAL with it until the snapshot is
    /// as old as `InteractiveOptions::snapshot_age`, or the WAL is half full.
    pub keeps_snapshot: bool,
}

/// The call that a connection serves, as all threads may see it.
pub(crate) struct Trace {
    clock: Arc<dyn Clock>,
    /// When the statement began that runs, in nanoseconds of the clock; 0 while none does.
    since: AtomicU64,
    shown: Mutex<Shown>,
}

#[derive(Default)]
struct Shown {
    caller: Caller,
    /// The latest statement.
    text: String,
    /// The slowest one before it.
    slowest: String,
}

impl Trace {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Trace {
        Trace { clock, since: AtomicU64::new(0), shown: Mutex::default() }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call of `caller` begins.
    pub(crate) fn begin(&self, caller: Caller) {
        self.shown().caller = caller;
        self.since.store(0, Ordering::Release);
    }

    pub(crate) fn caller(&self) -> Caller {
        self.shown().caller
    }

    /// The statement that runs, and how long it has been running.
    fn statement(&self, now: Duration) -> Option<(String, Duration)> {
        let shown = self.shown();
        let since = self.since.load(Ordering::Acquire);
        let time = || Duration::from_nanos(nanos(now).saturating_sub(since));
        (since != 0).then(|| (shown.text.clone(), time()))
    }
}

/// The statements of one call, for the thread that runs it.
pub(crate) struct Statements<'t> {
    trace: &'t Trace,
    stage: Cell<Stage>,
    /// Time of the slowest one that has ended, if one has.
    slowest: Cell<Option<Duration>>,
    /// Whether that is the latest.
    is_latest_slowest: Cell<bool>,
}

#[derive(Clone, Copy)]
enum Stage {
    Between,
    /// One runs since that moment.
    Running(Duration),
    /// One was handed out then, and may run until the next.
    HandedOut(Duration),
}

/// The slowest statement of a call: what it was, and how long it took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slowest {
    /// Empty if there was none.
    pub(crate) text: String,
    pub(crate) time: Duration,
}

impl fmt::Display for Slowest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text.as_str() {
            "" => f.write_str("it ran no statement"),
            sql if self.time < COARSE => {
                write!(
                    f,
                    "no slow statement was measured (the rows of a prepared one only until the \
                     next statement), the slowest: {sql}"
                )
            }
            sql => write!(f, "its slowest statement took {:.1?}: {sql}", self.time),
        }
    }
}

impl<'t> Statements<'t> {
    pub(crate) fn new(trace: &'t Trace) -> Statements<'t> {
        trace.since.store(0, Ordering::Release);
        Statements {
            trace,
            stage: Cell::new(Stage::Between),
            slowest: Cell::default(),
            is_latest_slowest: Cell::default(),
        }
    }

    /// A statement runs for as long as the result lives. One inside of another one's mapping
    /// closure is part of that.
    pub(crate) fn enter(&self, sql: &str) -> RunningStatement<'_> {
        if let Stage::Running(_) = self.stage.get() {
            return RunningStatement(None);
        }
        let now = self.trace.clock.coarse();
        self.end_latest(now);
        let mut shown = self.trace.shown();
        if self.is_latest_slowest.take() {
            let Shown { text, slowest, .. } = &mut *shown;
            std::mem::swap(text, slowest);
        }
        shown.text.clear();
        shown.text.push_str(truncated(sql));
        self.trace.since.store(nanos(now).max(1), Ordering::Release);
        drop(shown);
        self.stage.set(Stage::Running(now));
        RunningStatement(Some(self))
    }

    fn end_latest(&self, now: Duration) {
        let (Stage::Running(since) | Stage::HandedOut(since)) = self.stage.replace(Stage::Between)
        else {
            return;
        };
        self.trace.since.store(0, Ordering::Release);
        let time = now.saturating_sub(since);
        if self.slowest.get().is_none_or(|slowest| slowest < time) {
            self.slowest.set(Some(time));
            self.is_latest_slowest.set(true);
        }
    }

    /// The slowest one; one that was handed out ends with this.
    pub(crate) fn slowest(&self) -> Slowest {
        self.end_latest(self.trace.clock.coarse());
        let Some(time) = self.slowest.get() else { return Slowest::default() };
        let shown = self.trace.shown();
        let text = if self.is_latest_slowest.get() { &shown.text } else { &shown.slowest };
        Slowest { text: text.clone(), time }
    }
}

/// A statement that runs until this is dropped.
#[must_use = "the statement has run when this is dropped"]
pub(crate) struct RunningStatement<'s>(Option<&'s Statements<'s>>);

impl RunningStatement<'_> {
    /// It was only prepared: the closure may run it until the next one.
    pub(crate) fn hand_out(mut self) {
        if let Some(statements) = self.0.take()
            && let Stage::Running(since) = statements.stage.get()
        {
            statements.stage.set(Stage::HandedOut(since));
        }
    }
}

impl Drop for RunningStatement<'_> {
    fn drop(&mut self) {
        if let Some(statements) = self.0 {
            statements.end_latest(statements.trace.clock.coarse());
        }
    }
}

fn truncated(sql: &str) -> &str {
    let mut end = sql.len().min(KEPT_SQL);
    while !sql.is_char_boundary(end) {
        end -= 1;
    }
    &sql[..end]
}

#[cfg(test)]
mod tests;
