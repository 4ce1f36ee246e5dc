//! The ledger over real HTTP: its answers, and its money under load, hand-over and `kill -9`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a failed test shows its seed and its counts")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod client;
mod failover;
mod money;
mod patroni;
mod postgresql;
mod server;
mod skew;
mod turns;
