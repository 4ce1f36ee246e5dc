//! The server as its clients see it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a test tells its seed")]

mod admin;
mod archive;
mod auth;
mod browser;
mod client;
mod dashboard;
mod drain;
mod failover;
mod hrana;
mod keys;
mod model;
mod pipeline;
mod replica;
mod served;
mod tls;
mod websocket;
