//! Tests of the writer, driven without threads.
