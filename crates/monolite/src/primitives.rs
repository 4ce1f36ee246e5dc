//! Owns which locks, atomics and parked threads a module is built on: those of the standard
//! library, and when its schedules are checked (`cfg(shuttle)`, the test-only module `models`)
//! those of shuttle, whose scheduler then chooses who goes on at each of them.
//!
//! A module that has a model takes them from here, whatever else it takes from `std`.

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::{hint, sync, thread, thread_local};
#[cfg(not(all(test, shuttle)))]
pub(crate) use std::{hint, sync, thread, thread_local};
