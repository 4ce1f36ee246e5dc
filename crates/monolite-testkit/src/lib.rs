//! What tests of the engine, and of all that is built around it, break things with: simulated
//! storage, faults, loads, recorded schedules, and checkers of what clients saw.
//!
//! The parts stand alone, so that a test can use one without the others.
//!
//! `anyhow` is used although this is a library: its users are tests and checks, and every error is
//! for a person to read. So no item lists its errors: each says what is wrong or was refused.
//!
//! # Not here
//! Anything that a user of the engine needs: this crate is for those who want to break it. What
//! `monolite torture` does with these parts is in `monolite-torture`.
#![forbid(unsafe_code)]

pub mod blocking;
pub mod checkers;
pub mod child;
pub mod clock;
pub mod functions;
pub mod load;
pub mod markers;
pub mod mounts;
pub mod postgres;
pub mod postgres_proxy;
pub mod random;
pub mod schedule;
pub mod scratch;
pub mod storage;
