//! The server as its clients see it, over HTTP.

#![allow(clippy::unwrap_used, reason = "tests")]

mod auth;
mod pipeline;
mod served;
mod tls;
