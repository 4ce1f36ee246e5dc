//! Tests of how differences are recognised.
