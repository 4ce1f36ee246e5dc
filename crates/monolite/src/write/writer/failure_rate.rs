//! Owns the estimate of how often members fail after they wrote, and what that means for the size
//! of the groups that share a savepoint.
//!
//! # Algorithm
//! A group of `g` members costs one savepoint, and a failure in it costs the rerun of half of it.
//! With `s` the cost of a savepoint in units of a member and `p` the rate of failures, a member
//! pays `s / g + p * g / 2` on average, least at `g = sqrt(2 * s / p)`.
//!
//! The rate is a pair of counters halved every so often, so that old failures are forgotten.

/// Members after which the counters are halved: a few batches of a loaded writer.
const MEMORY: f64 = 20_000.0;

/// Failures below which no group is guarded: the last failure is several memories ago.
const FORGOTTEN: f64 = 0.25;

/// Cost of a savepoint in units of a typical member's run.
const SAVEPOINT_COST: f64 = 1.0;

#[derive(Debug, Default)]
pub(crate) struct FailureRate {
    members: f64,
    failures: f64,
}

impl FailureRate {
    /// Counts a member that failed after it wrote.
    pub(crate) fn count_failure(&mut self) {
        self.failures += 1.0;
    }

    /// Counts the members of a batch.
    #[expect(clippy::cast_precision_loss, reason = "batches are far smaller than 2^52")]
    pub(crate) fn count_members(&mut self, members: usize) {
        self.members += members as f64;
        while self.members > MEMORY {
            self.members /= 2.0;
            self.failures /= 2.0;
        }
    }

    /// Members that should share a savepoint; `None` while failures are so rare that a batch is
    /// better run without any.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to MEMORY")]
    pub(crate) fn group_size(&self) -> Option<usize> {
        if self.failures < FORGOTTEN {
            return None;
        }
        let rate = (self.failures / self.members.max(self.failures)).clamp(0.0, 1.0);
        Some((2.0 * SAVEPOINT_COST / rate).sqrt().clamp(1.0, MEMORY) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_everything_fails_each_member_has_its_savepoint() {
        let mut rate = FailureRate::default();
        (0..100).for_each(|_| rate.count_failure());
        rate.count_members(100);
        assert_eq!(rate.group_size(), Some(1));
    }
}
