//! Breaks the engine on purpose, and compares it with plain SQLite: `monolite torture`,
//! `monolite conform` and the fuzz targets.
//!
//! A [`Check`] hurts the engine in one way, many times, and counts what came of it.
//!
//! `anyhow` is used although this is a library: its users are the command and tests, and every
//! error is for a person to read.
//!
//! # Algorithm
//! 1. A [`Check`] is run on its own scratch directory with a number of cases. Each case draws from
//!    its own seed ([`Setting::case_seed`]), so that it can be repeated alone.
//! 2. What a check finds goes into its [`Outcome`]: counts, findings with kept evidence and the
//!    command that repeats them, and its negative controls: known-bad arrangements that it must
//!    notice, each time it runs.
//! 3. The [`Verdict`] over all outcomes is "kept" only when nothing was lost, partial or wrong and
//!    every control was noticed.
//!
//! # Not here
//! What any test may use (disks, clocks, loads, checkers): `monolite-testkit`.
#![forbid(unsafe_code)]

mod check;
mod checks;
mod outcome;
mod run;

pub mod conform;
pub mod fuzz;

pub use check::{Amount, Check, Event, Setting, Watch};
pub use checks::CHECKS;
pub use monolite_testkit::child::Program;
pub use outcome::{Control, Finding, Outcome, Verdict};
pub use run::{Plan, play_role, replay, run, sqlite_version};
