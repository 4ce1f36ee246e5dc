//! Owns the flags through which a connection's hooks and its user talk to each other.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A flag that hooks and the user of one connection share.
///
/// Nothing swaps it, which costs ten times as much: the connection's user alone is there.
#[derive(Debug, Default)]
pub struct Flag(AtomicBool);

impl Flag {
    /// Whether it is up.
    #[inline]
    pub fn is_up(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Whether it is up, and lowers it.
    #[inline]
    pub fn take(&self) -> bool {
        let is_up = self.is_up();
        if is_up {
            self.set(false);
        }
        is_up
    }

    #[inline]
    pub(crate) fn set(&self, is_up: bool) {
        self.0.store(is_up, Relaxed);
    }

    /// It is up until the switch is dropped.
    pub(crate) fn switch(&self) -> Switch<'_> {
        let before = self.is_up();
        self.set(true);
        Switch { flag: self, before }
    }

    /// It is up while `run` runs, also when that panics.
    pub(crate) fn during<T>(&self, run: impl FnOnce() -> T) -> T {
        let _switch = self.switch();
        run()
    }
}

/// A flag that is as it was before when this is dropped.
pub(crate) struct Switch<'f> {
    flag: &'f Flag,
    before: bool,
}

impl Drop for Switch<'_> {
    fn drop(&mut self) {
        self.flag.set(self.before);
    }
}
