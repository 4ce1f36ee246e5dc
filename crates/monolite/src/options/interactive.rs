//! Owns the options of interactive transactions.

use std::time::Duration;

use crate::error::{Result, within};

/// Limits of interactive transactions, for [`Options::interactive`](crate::Options::interactive).
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// use monolite::{InteractiveOptions, Options};
///
/// let interactive = InteractiveOptions::default().connections(8).attempts(20);
/// let db = Options::new().interactive(interactive).open(":memory:")?;
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InteractiveOptions {
    pub(crate) max_open: usize,
    pub(crate) connections: usize,
    pub(crate) time_limit: Duration,
    pub(crate) snapshot_age: Duration,
    pub(crate) max_statements: usize,
    pub(crate) max_bytes: usize,
    pub(crate) max_total_bytes: usize,
    pub(crate) attempts: u32,
    pub(crate) idempotency_lifetime: Duration,
    pub(crate) ids_given_out_ahead: bool,
}

impl Default for InteractiveOptions {
    fn default() -> InteractiveOptions {
        InteractiveOptions {
            max_open: 10_000,
            connections: 64,
            time_limit: Duration::from_secs(60),
            snapshot_age: Duration::from_secs(1),
            max_statements: 10_000,
            max_bytes: 64 << 20,
            max_total_bytes: 1 << 30,
            attempts: 10,
            idempotency_lifetime: Duration::from_secs(24 * 3_600),
            ids_given_out_ahead: true,
        }
    }
}

impl InteractiveOptions {
    /// Most interactive transactions that are open at once: 1 to 1,000,000. Default: 10,000. An
    /// open one costs memory for its steps, and a connection only while it runs a statement.
    #[must_use]
    pub fn max_open(mut self, transactions: usize) -> InteractiveOptions {
        self.max_open = transactions;
        self
    }

    /// Most pairs of connections on which interactive transactions run: 1 to 4,096. Default: 64.
    /// They are opened as needed, with up to 2 MiB of page cache each. A transaction whose
    /// connection was taken is replayed on the next one, which costs time and never changes its
    /// result. Long transactions may use as many pairs again, so that their replays stay rare.
    #[must_use]
    pub fn connections(mut self, pairs: usize) -> InteractiveOptions {
        self.connections = pairs;
        self
    }

    /// Longest time an interactive transaction may be open: 1 ms to 24 h. Default: 60 s. It is
    /// rolled back when that time is over.
    #[must_use]
    pub fn time_limit(mut self, time: Duration) -> InteractiveOptions {
        self.time_limit = time;
        self
    }

    /// How old the snapshot of an interactive transaction may become between statements: 1 ms to 1
    /// h. Default: 1 s. Its next statement then moves to a new snapshot. Near the limit of the WAL
    /// a snapshot ends earlier.
    #[must_use]
    pub fn snapshot_age(mut self, age: Duration) -> InteractiveOptions {
        self.snapshot_age = age;
        self
    }

    /// Most statements of one interactive transaction, all of which are kept in memory until its
    /// end: 1 to 1,000,000. Default: 10,000. A batch
    /// ([`Transaction::execute_batch`](crate::Transaction::execute_batch)) counts as one.
    #[must_use]
    pub fn max_statements(mut self, statements: usize) -> InteractiveOptions {
        self.max_statements = statements;
        self
    }

    /// Most bytes that an interactive transaction may keep, of its statements and their parameters,
    /// and that the result of one of its statements may have: 1 KiB to 64 GiB. Default: 64 MiB.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> InteractiveOptions {
        self.max_bytes = bytes;
        self
    }

    /// Most bytes that all open interactive transactions together may keep, of their statements and
    /// parameters, until the writer has run them: 1 KiB to 16 TiB. Default: 1 GiB. Beyond it a
    /// statement fails with `Overloaded`, and its transaction is over, which frees its part. A
    /// result is not kept. One statement alone cannot go beyond it by more than some hundred bytes
    /// (a fixed part that each has); those that run at once count when they have run, so together
    /// they may, each by its text and parameters.
    #[must_use]
    pub fn max_total_bytes(mut self, bytes: usize) -> InteractiveOptions {
        self.max_total_bytes = bytes;
        self
    }

    /// How often `transact` tries before it fails with `Conflict`: 1 to 1,000. Default: 10. The
    /// last third of the attempts goes before all others that collide with it.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> InteractiveOptions {
        self.attempts = attempts;
        self
    }

    /// How long the key of [`Transaction::commit_once`](crate::Transaction::commit_once) and its
    /// outcome are kept: 1 s to 10 years. Default: 24 h. It counts time on the engine's
    /// [`Clock`](crate::Clock) while keys are used, across openings, never the wall clock. Time
    /// without a process that has the database open does not count.
    #[must_use]
    pub fn idempotency_lifetime(mut self, time: Duration) -> InteractiveOptions {
        self.idempotency_lifetime = time;
        self
    }

    /// Whether a row that an interactive transaction inserts without a rowid gets a unique number,
    /// as from a sequence. Two transactions that read the ids of their rows then do not conflict.
    /// Default: `true`. Failed transactions leave gaps, and inserts by `Database::write` skip
    /// numbers in use. Without the option the next number is always the table's largest plus one.
    #[must_use]
    pub fn ids_given_out_ahead(mut self, are_given_out: bool) -> InteractiveOptions {
        self.ids_given_out_ahead = are_given_out;
        self
    }

    /// # Errors
    /// `Invalid` for an option out of its range.
    pub(super) fn check(&self) -> Result<()> {
        const MS: Duration = Duration::from_millis(1);
        const HOUR: Duration = Duration::from_secs(3_600);
        within("InteractiveOptions::max_open", self.max_open, 1, 1_000_000)?;
        within("InteractiveOptions::connections", self.connections, 1, 4_096)?;
        within("InteractiveOptions::time_limit", self.time_limit, MS, 24 * HOUR)?;
        within("InteractiveOptions::snapshot_age", self.snapshot_age, MS, HOUR)?;
        within("InteractiveOptions::max_statements", self.max_statements, 1, 1_000_000)?;
        within("InteractiveOptions::max_bytes", self.max_bytes, 1 << 10, 64 << 30)?;
        let most = 16 << 40;
        within("InteractiveOptions::max_total_bytes", self.max_total_bytes, 1 << 10, most)?;
        within("InteractiveOptions::attempts", self.attempts, 1, 1_000)?;
        let lifetime = self.idempotency_lifetime;
        within("InteractiveOptions::idempotency_lifetime", lifetime, 1_000 * MS, 87_600 * HOUR)
    }
}
