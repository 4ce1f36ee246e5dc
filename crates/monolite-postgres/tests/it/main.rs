//! The crate before a real PostgreSQL: values, errors, ends of transactions, and what is left of
//! each acknowledged one when conflicts, lost answers and `kill -9` come in between.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a failed test shows its counts")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod faults;
mod ground;
mod transactions;
