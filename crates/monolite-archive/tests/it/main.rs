//! The archive as a whole: the protocol under every interleaving that was thought of and thousands
//! that were not, with the controls that must be noticed; and what is restored.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod accidents;
mod archive;
mod archiving;
mod awaiting;
mod away;
#[cfg(feature = "s3")]
mod buckets;
mod catalogs;
mod controls;
mod following;
mod gaps;
#[cfg(feature = "s3")]
mod gateway;
mod interleavings;
mod leaving;
mod litestream;
mod owners;
mod programs;
#[cfg(feature = "s3")]
mod proxies;
mod readers;
mod replicas;
mod restoring;
mod resuming;
mod schedules;
mod stores;
mod story;
mod streams;
mod takeover;
mod takeovers;
mod upkeep;
mod wire;
mod world;
