//! Tests of the server by what it is to others.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a test tells its seed")]

mod hrana;
