//! The engine's promises, each as a test that can fail.
//!
//! A test's name is its claim. Nothing here sleeps: a test waits for a condition, with a deadline.
//! What is random comes from a seed that is printed when the test fails. A checker that guards a
//! promise is first shown a broken arrangement and must notice it.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

// What the tests stand on.
mod child;
mod names;
mod patience;

// The promises.
mod accidents;
mod activity;
mod any_sql;
mod awaited;
mod backup;
mod caches;
mod corners;
mod durability;
mod errors;
mod fairness;
mod files;
mod functions;
mod interactive;
mod isolation;
mod limits;
mod locks;
mod maintenance;
mod memory;
mod migrations;
mod monitoring;
mod nested;
mod rot;
mod rules;
mod sharing;
mod shutdown;
mod stack;
mod streams;
mod types;
mod untrusted;
