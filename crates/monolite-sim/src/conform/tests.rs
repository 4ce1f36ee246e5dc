//! Tests of the runner as a whole.
