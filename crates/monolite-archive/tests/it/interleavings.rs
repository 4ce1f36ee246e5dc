//! The interleavings.
