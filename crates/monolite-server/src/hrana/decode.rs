//! Owns how requests are read from their two encodings.

pub(super) mod json;
pub(super) mod protobuf;
