//! The verbs for those who work on the engine: measure it, try to break it, compare it with plain
//! SQLite. They are in builds with the feature `developer`; `absent.rs` stands for them otherwise.

pub(crate) mod arguments;
mod bench;
mod conform;
mod torture;

pub(crate) use bench::run as bench;
pub(crate) use conform::run as conform;
pub(crate) use torture::run as torture;

use crate::bar::Bar;
use monolite_bench::progress::Progress;
use std::time::Duration;

/// A torturing run starts this program again as its children.
pub(crate) fn play_role() {
    monolite_torture::play_role();
}

/// None of them is.
pub(crate) fn is_absent(_: &anyhow::Error) -> bool {
    false
}

impl Progress for Bar {
    fn begin(&self, what: &str, total: Option<u64>) {
        Bar::begin(self, what, total);
    }

    fn advance_to(&self, done: u64) {
        Bar::advance_to(self, done);
    }

    fn finish(&self) {
        Bar::finish(self);
    }

    fn time_left(&self, left: Duration) {
        Bar::time_left(self, left);
    }

    fn note(&self, text: &str) {
        Bar::note(self, text);
    }
}
