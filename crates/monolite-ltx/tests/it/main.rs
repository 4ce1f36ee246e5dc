//! The format as a whole: files that the original wrote and read, properties over files drawn at
//! random, and files that were damaged.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod compaction;
mod damage;
mod fuzzed;
mod golden;
mod original;
mod round_trip;
mod support;
