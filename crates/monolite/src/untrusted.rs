//! Owns queries from an untrusted source: what one may take, its handle and its rows.
//!
//! # Not here
//! Where they run: [`room`]. What they may name: [`monolite_sqlite::Role::Untrusted`].

mod room;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use monolite_sqlite::rusqlite::types::Value;

use crate::activity::Caller;
use crate::activity::events::{self, Call};
use crate::call::completion::Outcome;
use crate::error::{Error, Result, within};
use crate::parameters::Parameters;
pub(crate) use room::UntrustedRoom;
use room::{Query, Ticket};

/// What one query from an untrusted source may take, see
/// [`Database::query_untrusted`](crate::Database::query_untrusted).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntrustedLimits {
    time: Duration,
    rows: usize,
    bytes: u64,
    memory_bytes: u64,
    tables: Option<Vec<String>>,
}

impl Default for UntrustedLimits {
    fn default() -> UntrustedLimits {
        UntrustedLimits {
            time: Duration::from_secs(1),
            rows: 10_000,
            bytes: 1 << 20,
            memory_bytes: 64 << 20,
            tables: None,
        }
    }
}

impl UntrustedLimits {
    /// The defaults.
    pub fn new() -> UntrustedLimits {
        UntrustedLimits::default()
    }

    /// How long the caller waits: 1 ms to 1 hour. Default: 1 s. Beyond it the query fails with
    /// `Timeout`, and is interrupted. SQLite looks for that in most loops; one in which it does not
    /// (some of the planner's, a function of one value) keeps its thread until it ends.
    #[must_use]
    pub fn time(mut self, limit: Duration) -> UntrustedLimits {
        self.time = limit;
        self
    }

    /// The most rows: 1 to 1 billion. Default: 10,000. A query with more fails with `Invalid`.
    #[must_use]
    pub fn rows(mut self, most: usize) -> UntrustedLimits {
        self.rows = most;
        self
    }

    /// The most bytes of all values together, and of a single value or stored row that the query
    /// touches: 1 KiB to 1 GiB. Default: 1 MiB. Each value counts 8 bytes and those of its text or
    /// BLOB. A query with more fails with `Invalid`.
    #[must_use]
    pub fn bytes(mut self, most: u64) -> UntrustedLimits {
        self.bytes = most;
        self
    }

    /// Bytes that SQLite may allocate for the query beside its page cache: 1 MiB to 64 GiB.
    /// Default: 64 MiB. A query that needs more fails with `Invalid`.
    #[must_use]
    pub fn memory_bytes(mut self, most: u64) -> UntrustedLimits {
        self.memory_bytes = most;
        self
    }

    /// The tables that the query may read. Default: all of the application's. A view needs its own
    /// name and those of the tables that it reads. With a list, `USING` and `NATURAL`, also in
    /// these views, the schema and the pragmas that describe it are refused.
    #[must_use]
    pub fn tables<I>(mut self, names: I) -> UntrustedLimits
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.tables = Some(names.into_iter().map(Into::into).collect());
        self
    }

    fn check(&self) -> Result<()> {
        let (least, most) = (Duration::from_millis(1), Duration::from_secs(3_600));
        within("UntrustedLimits::time", self.time, least, most)?;
        within("UntrustedLimits::rows", self.rows, 1, 1_000_000_000)?;
        within("UntrustedLimits::bytes", self.bytes, 1 << 10, 1 << 30)?;
        within("UntrustedLimits::memory_bytes", self.memory_bytes, 1 << 20, 64 << 30)
    }
}

/// The rows of an untrusted query.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct UntrustedRows {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows, each with a value for each column.
    pub rows: Vec<Vec<Value>>,
}

/// An untrusted query that runs: call [`UntrustedQuery::wait`], or await it.
///
/// # Cancellation
/// Dropping it ends the query at SQLite's next look.
#[must_use = "the query ends when its handle is dropped"]
pub struct UntrustedQuery {
    stage: Stage,
}

enum Stage {
    Refused(Error),
    Running(Ticket),
    Taken,
}

impl UntrustedQuery {
    pub(crate) fn start(
        room: &Arc<UntrustedRoom>,
        caller: Caller,
        sql: String,
        parameters: Result<Parameters>,
        limits: UntrustedLimits,
    ) -> UntrustedQuery {
        let start = || {
            limits.check()?;
            let (parameters, call) = (parameters?, Call::new(caller));
            room.start(Query { caller, call, sql, parameters, limits })
        };
        let refused = |error| Stage::Refused(events::refused(caller, error));
        let stage = start().map_or_else(refused, Stage::Running);
        UntrustedQuery { stage }
    }

    /// Blocks until the rows are there.
    ///
    /// # Errors
    /// `Invalid` for SQL that is wrong or refused, and beyond a limit of [`UntrustedLimits`];
    /// `Timeout` beyond its time; `Overloaded` when all threads for untrusted queries (option
    /// `untrusted_threads`) are busy; `Closed`; `Storage` and `Corrupt` as any read.
    pub fn wait(mut self) -> Result<UntrustedRows> {
        match std::mem::replace(&mut self.stage, Stage::Taken) {
            Stage::Running(ticket) => ticket.wait(),
            Stage::Refused(error) => Err(error),
            Stage::Taken => panic!("an untrusted query was waited for after it was polled"),
        }
    }
}

impl Future for UntrustedQuery {
    type Output = Result<UntrustedRows>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Stage::Running(ticket) = &self.stage {
            let Poll::Ready(outcome) = ticket.poll(context) else { return Poll::Pending };
            self.stage = Stage::Taken;
            return Poll::Ready(Outcome::unwrap_for_caller(outcome));
        }
        match std::mem::replace(&mut self.stage, Stage::Taken) {
            Stage::Refused(error) => Poll::Ready(Err(error)),
            _ => panic!("an untrusted query was polled again after its result was returned"),
        }
    }
}

impl fmt::Debug for UntrustedQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntrustedQuery").finish_non_exhaustive()
    }
}
