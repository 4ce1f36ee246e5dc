//! The ledger over real HTTP: its answers, and its money under load, hand-over and `kill -9`.

#![forbid(unsafe_code)]

mod answers;
mod client;
mod money;
mod server;
