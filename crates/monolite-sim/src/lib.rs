//! Simulated storage, faults, checkers and the torture harness behind `monolite torture`.
//!
//! The parts stand alone, so that a test of any later part (archive, failover, server) can use one
//! without the others; [`torture`] puts them together into the checks of the command.
//!
//! `anyhow` is used although this is a library: its users are the command and tests, and every
//! error is for a person to read.
//!
//! # Not here
//! Anything that a user of the engine needs: this crate is for those who want to break it.
#![forbid(unsafe_code)]

mod blocking;
pub mod checkers;
pub mod child;
pub mod clock;
pub mod conform;
pub mod fuzz;
pub mod load;
pub mod markers;
pub mod mounts;
pub mod random;
pub mod schedule;
pub mod storage;
pub mod torture;
