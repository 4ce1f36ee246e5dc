//! Owns the errors of SQLite that this crate makes, and what its result codes stand for.

use std::ffi::c_int;

use rusqlite::{Error, Result, ffi};

/// # Errors
/// That of `code`, if it is one.
pub(crate) fn check(code: c_int) -> Result<()> {
    if code == ffi::SQLITE_OK {
        return Ok(());
    }
    Err(Error::SqliteFailure(ffi::Error::new(code), None))
}

/// The error of SQLite with this `code`, for the `reason` given.
pub(crate) fn failure(code: c_int, reason: impl Into<String>) -> Error {
    Error::SqliteFailure(ffi::Error::new(code), Some(reason.into()))
}

/// Refuses a statement, if there is a `reason` to.
///
/// # Errors
/// `SQLITE_AUTH` if there is.
pub(crate) fn refuse(reason: Option<String>) -> Result<()> {
    reason.map_or(Ok(()), |reason| Err(failure(ffi::SQLITE_AUTH, reason)))
}
