//! Ctrl-C: the first asks a run to stop, the second ends the process.

use anyhow::{Context, Result};
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Calls `ask` at the first signal.
pub(crate) fn on_signal(ask: impl Fn() + Send + 'static) -> Result<()> {
    let seen = AtomicBool::new(false);
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        ask();
        let _ = writeln!(io::stderr(), "\nstopping; once more to stop at once");
    })
    .context("cannot listen for Ctrl-C")
}

/// A flag that the first signal sets.
pub(crate) fn flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let requested = Arc::clone(&stop);
    on_signal(move || requested.store(true, Ordering::Relaxed))?;
    Ok(stop)
}

/// The user stopped the run; what that means for what was done.
#[derive(Debug)]
pub(crate) struct Stopped(pub(crate) &'static str);

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stopped; {}", self.0)
    }
}

impl std::error::Error for Stopped {}
