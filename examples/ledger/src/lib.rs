//! A small HTTP service on Monolite: accounts, transfers between them, and statements.
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

pub use http::router;
pub use store::create_schema;

/// The guide to web services, whose programs need what this crate needs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/web.md")]
struct Web;
