//! Owns the bounds of interactive transactions.

use std::time::Duration;

use crate::options::{Options, Validation};

/// Bounds of interactive transactions; most fields are options of the same names.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) max_transactions: usize,
    pub(crate) transaction_max_statements: usize,
    pub(crate) transaction_max_bytes: usize,
    pub(crate) transaction_time_limit: Duration,
    pub(crate) read_time_limit: Duration,
    /// Of a statement, by [`Database::with_time_limit`](crate::Database::with_time_limit).
    pub(crate) call_time_limit: Option<Duration>,
    pub(crate) transaction_attempts: u32,
    pub(crate) idempotency_lifetime: Duration,
    pub(crate) validation: Validation,
}

impl Limits {
    pub(crate) fn of(options: &Options) -> Limits {
        Limits {
            max_transactions: options.max_transactions,
            transaction_max_statements: options.transaction_max_statements,
            transaction_max_bytes: options.transaction_max_bytes,
            transaction_time_limit: options.transaction_time_limit,
            read_time_limit: options.read_time_limit,
            call_time_limit: None,
            transaction_attempts: options.transaction_attempts,
            idempotency_lifetime: options.idempotency_lifetime,
            validation: options.validation,
        }
    }
}
