//! Ctrl-C: the first asks a run to stop, the second ends the process.

use anyhow::{Context, Result};
use std::io::{self, Write};
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
