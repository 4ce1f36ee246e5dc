//! How a benchmark says how far it is, and how it is told to stop.
//!
//! This crate prints nothing: the command implements [`Progress`]. [`Interrupt`] is checked between
//! batches of work, so that what was started (a server, a half-loaded file) is cleaned up by the
//! usual drops on the way out.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Receives what a long run is doing.
pub trait Progress: Send + Sync {
    /// A piece of work begins; `total` is its length in steps when that is known.
    fn begin(&self, what: &str, total: Option<u64>);
    /// The piece of work has done `done` steps.
    fn advance_to(&self, done: u64);
    /// The piece of work is over.
    fn finish(&self);
    /// The whole run has this long to go, about.
    fn time_left(&self, _left: Duration) {}
    /// Something the user should read in passing.
    fn note(&self, text: &str);
}

/// Says nothing.
#[derive(Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _: &str, _: Option<u64>) {}
    fn advance_to(&self, _: u64) {}
    fn finish(&self) {}
    fn note(&self, _: &str) {}
}

/// A request to stop, set from a signal handler and seen by every loop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Asks the run to stop.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was requested.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails when it was requested.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.requested() { Err(Interrupted) } else { Ok(()) }
    }
}

/// The run was stopped by its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}
