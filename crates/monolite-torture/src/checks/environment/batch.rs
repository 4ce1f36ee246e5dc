//! Owns how several writes become one batch.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use anyhow::Result;
use monolite::{Database, Write};
use monolite_testkit::blocking::locked;

/// Something to hold the writer at.
#[derive(Default)]
struct Gate {
    /// Whether somebody has arrived, and whether the gate is open.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, change: impl FnOnce(&mut (bool, bool))) {
        change(&mut locked(&self.state));
        self.changed.notify_all();
    }

    fn wait(&self, until: impl Fn(&(bool, bool)) -> bool) {
        let mut state = locked(&self.state);
        while !until(&state) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Runs `submit` while the writer is held up, so that what it submits becomes one batch.
pub(super) fn as_one_batch<R>(db: &Database, submit: impl FnOnce() -> R) -> Result<R> {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let holding: Write<()> = db.write(move |_| {
        held.set(|state| state.0 = true);
        held.wait(|state| state.1);
        Ok(())
    });
    gate.wait(|state| state.0);
    let submitted = submit();
    gate.set(|state| state.1 = true);
    holding.wait()?;
    Ok(submitted)
}
