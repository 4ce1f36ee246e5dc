//! Owns how responses are written in their two encodings, by hand: the rows are there already.

pub(super) mod json;
pub(super) mod protobuf;
