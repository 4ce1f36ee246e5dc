//! Owns the way of a batch to the disk: [`writer`], the heart, makes and commits it, and [`sync`]
//! syncs and answers.

pub(crate) mod sync;
pub(crate) mod writer;
