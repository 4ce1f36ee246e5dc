//! Owns the bounds of interactive transactions.

use std::ops::Deref;
use std::time::Duration;

use crate::options::{InteractiveOptions, Options, Validation};

/// Bounds of interactive transactions: their options, and limits of single statements.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) options: InteractiveOptions,
    pub(crate) read_time_limit: Duration,
    /// Of a statement, by [`Database::with_time_limit`](crate::Database::with_time_limit).
    pub(crate) call_time_limit: Option<Duration>,
    pub(crate) validation: Validation,
}

impl Deref for Limits {
    type Target = InteractiveOptions;

    fn deref(&self) -> &InteractiveOptions {
        &self.options
    }
}

impl Limits {
    pub(crate) fn of(options: &Options) -> Limits {
        Limits {
            options: options.interactive.clone(),
            read_time_limit: options.read_time_limit,
            call_time_limit: None,
            validation: options.validation,
        }
    }
}
