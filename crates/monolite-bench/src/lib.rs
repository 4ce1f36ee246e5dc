//! Workloads, drivers, statistics and reports behind `monolite bench`.
//!
//! A benchmark here is a list of *candidates* (one driver, one way to use it) that are measured in
//! turn, round after round, on the same data with the same pre-drawn work; what comes out is one
//! [`report::record::Record`], from which every table is generated. The command in
//! `monolite-cli` only parses arguments and prints what this crate returns.
//!
//! `anyhow` is used although this is a library: its one user is the command, and every error is
//! for a person to read.
//!
//! # Not here
//! Anything a user of the engine needs: competitors and their clients live in this crate alone.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "its one user is the command; names that say it all need no more")]

pub mod workload;

pub mod raw_connection;

pub mod dataset;
pub mod ledger;

pub mod drivers;

pub mod device;
pub mod machine;
pub mod progress;
pub mod statistics;

pub mod harness;
pub mod plan;
pub mod report;
pub mod suites;
pub mod tps;
