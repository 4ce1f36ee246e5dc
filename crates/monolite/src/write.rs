//! Owns the way of a batch to the disk: [`writer`], the heart, makes and commits it, [`sync`] puts
//! it on disk, and [`answers`] tells its members.

pub(crate) mod answers;
pub(crate) mod sync;
pub(crate) mod writer;
