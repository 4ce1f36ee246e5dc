//! The archive as a whole: the protocol under every interleaving that was thought of and thousands
//! that were not, with the controls that must be noticed; and what is restored.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod archive;
#[cfg(feature = "s3")]
mod buckets;
mod controls;
mod interleavings;
mod originals;
mod restoring;
mod schedules;
mod stores;
mod world;
