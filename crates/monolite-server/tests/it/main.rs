//! The server as its clients see it, over HTTP.

#![allow(clippy::unwrap_used, reason = "tests")]

mod admin;
mod browser;
mod dashboard;
mod pipeline;
mod served;
