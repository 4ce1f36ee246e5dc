//! A small HTTP service on Monolite, or on PostgreSQL: accounts, transfers between them, and
//! statements.
//!
//! The program is `main.rs`; the service is a library so that its tests can also run it in their
//! own process.
//!
//! # Not here
//! Authentication: this is an example, and it listens on the loopback interface unless told
//! otherwise.

#![forbid(unsafe_code)]

mod error;
mod http;
mod store;

pub use error::LedgerError;
pub use http::{figures, router, standby};
pub use store::{SCHEMA, SCHEMA_ON_POSTGRESQL, create_schema};

/// The guide to web services, whose programs need what this crate needs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/web.md")]
struct Web;
