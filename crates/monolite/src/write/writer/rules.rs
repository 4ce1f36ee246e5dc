//! Owns the names of the writer's safety rules, so that a test can break one on purpose and show
//! that its absence is noticed.
//!
//! In a production build every rule is kept and the question costs nothing.

/// A safety rule of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// What a failed member wrote is undone.
    FailedMemberIsUndone,
    /// After each member it is checked that the transaction still exists.
    LostTransactionIsNoticed,
    /// Deferred foreign keys are checked after each member.
    DeferredViolationIsItsMembers,
    /// Foreign keys that a member has deferred are deferred no longer than it runs.
    DeferralEndsWithItsMember,
    /// A closure that runs once is the last of its batch.
    OnceEndsItsBatch,
    /// A failed member's answer comes from a run in its final place.
    FailureIsConfirmedInPlace,
    /// A member over its time limit fails.
    TimeLimitHolds,
    /// Only what an empty WAL cannot hold is too large.
    RoomIsMade,
}

/// Which rule is broken, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    #[cfg(test)]
    pub(super) broken: Option<Rule>,
}

impl Rules {
    #[cfg(test)]
    pub(super) fn keep(self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "in tests it says which rule is broken")]
    pub(super) const fn keep(self, _: Rule) -> bool {
        true
    }
}
