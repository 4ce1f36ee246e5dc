//! Ctrl-C: the first asks a run to stop, the second ends the process.
//!
//! A launcher (`npx`) passes on what a terminal or a service manager sends to this process as well,
//! so what follows within [`SAME`] is no second one.

use anyhow::{Context, Result};
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Longer than a launcher takes to pass a signal on, on a busy machine.
const SAME: Duration = Duration::from_secs(1);

/// What is said where nothing more is to be known.
pub(crate) const STOPPING: &str = "stopping; once more to stop at once";

/// Says at the first signal what comes then, and calls `ask`.
pub(crate) fn on_signal(says: &'static str, ask: impl Fn() + Send + 'static) -> Result<()> {
    let first = OnceLock::<Instant>::new();
    ctrlc::set_handler(move || match first.get() {
        Some(first) if first.elapsed() < SAME => {}
        Some(_) => std::process::exit(130),
        None => {
            let _ = first.set(Instant::now());
            let _ = writeln!(io::stderr(), "\n{says}");
            ask();
        }
    })
    .context("cannot listen for Ctrl-C")
}

/// A flag that the first signal sets.
pub(crate) fn flag() -> Result<Arc<AtomicBool>> {
    flag_saying(STOPPING)
}

/// The same, with words of its own for what comes then.
pub(crate) fn flag_saying(says: &'static str) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let requested = Arc::clone(&stop);
    on_signal(says, move || requested.store(true, Ordering::Relaxed))?;
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
