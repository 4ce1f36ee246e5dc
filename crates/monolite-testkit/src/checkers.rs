//! Checkers: given what clients saw, could it have happened as promised?
//!
//! - [`serial`]: every result is the one of a plain model that runs the transactions one by one.
//!
//! # Invariants
//! - A checker looks at recorded values only. It knows neither engine nor SQLite, so that it can
//!   judge anything that answers the same questions.
//! - Each is shown known-bad histories and must accuse them before its silence means anything.

pub mod serial;
