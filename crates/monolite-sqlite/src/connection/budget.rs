//! Owns what a transaction on a connection with the profile for untrusted SQL may take: memory, and
//! stack.

use std::cell::Cell;

use super::Connection;
use crate::memory::Budget;
use crate::untrusted::Untrusted;

/// What transactions on a connection may allocate.
pub(super) struct MemoryLimit {
    /// Within one transaction, its page cache included.
    bytes: u64,
    /// What statements may keep from one transaction to the next.
    kept_bytes: i64,
    /// What transactions have left behind since statements were last forgotten.
    kept: Cell<i64>,
    /// What the statements so far of an overlay's transaction have taken.
    taken: Cell<i64>,
}

impl MemoryLimit {
    pub(super) fn new(profile: &Untrusted, cache_kib: u64) -> MemoryLimit {
        let bytes = profile.memory_bytes.saturating_add(cache_kib.saturating_mul(1_024));
        let kept_bytes = i64::try_from(profile.memory_bytes / 4).unwrap_or(i64::MAX);
        MemoryLimit { bytes, kept_bytes, kept: Cell::new(0), taken: Cell::new(0) }
    }

    /// A transaction begins.
    pub(super) fn begin(&self) {
        self.taken.set(0);
    }

    /// What its next statement, or all of it, may take.
    fn left(&self) -> u64 {
        self.bytes.saturating_sub(u64::try_from(self.taken.get()).unwrap_or(0))
    }
}

impl Connection {
    /// Runs `body`, which may hand SQL to this connection, where it finds as much stack as the SQL
    /// of the connection's profile can need.
    ///
    /// # Panics
    /// With the panic of `body`.
    pub fn on_stack<R>(&self, body: impl FnOnce() -> R) -> R {
        match &self.stack {
            Some(stack) => stack.run(body),
            None => body(),
        }
    }

    /// Whether it can only be a program longer than the profile allows when SQLite says that it was
    /// refused memory.
    pub fn has_memory_left(&self) -> bool {
        self.memory.is_some() && !Budget::was_exceeded()
    }

    /// Limits what the transaction that begins now may allocate on this thread, if the connection
    /// has such a limit.
    pub fn start_budget(&self) -> Option<Budget> {
        self.memory.as_ref().map(|limit| Budget::start(limit.left()))
    }

    /// Ends what [`Connection::start_budget`] began, and tells whether an allocation was refused.
    /// Prepared statements are forgotten when what was left behind has become too much.
    pub fn end_budget(&self, budget: Option<Budget>) -> bool {
        let (Some(budget), Some(limit)) = (budget, &self.memory) else { return false };
        let kept = limit.kept.get().saturating_add(budget.in_use()).max(0);
        let is_exceeded = budget.is_exceeded();
        if self.overlay.is_some() {
            // Its transaction has a budget for each statement, and what it changes stays in memory.
            limit.taken.set(limit.taken.get().saturating_add(budget.in_use()));
        }
        drop(budget);
        let is_much = kept > limit.kept_bytes;
        if is_much {
            self.prepared.forget_users();
        }
        limit.kept.set(if is_much { 0 } else { kept });
        is_exceeded
    }
}
