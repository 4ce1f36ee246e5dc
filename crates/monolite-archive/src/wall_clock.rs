//! Owns the look at the wall clock, which jumps both ways. It says what a user restores by, what
//! the times of files are compared with, and how old the command reports the newest file to be. It
//! decides nothing else (`cargo xtask tidy` looks
//! that no other module reads it).

use std::time::{SystemTime, UNIX_EPOCH};

use monolite_ltx::Timestamp;

/// The wall clock, as files have their times of it.
pub(crate) fn system_time() -> SystemTime {
    SystemTime::now()
}

/// The wall clock, as headers have their times of it.
pub fn now() -> Timestamp {
    let since = system_time().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
