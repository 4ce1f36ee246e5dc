//! Owns the way of a batch to the disk: [`writer`], the heart, makes and commits it, [`sync`] puts
//! it on disk, and [`answers`] tells its members, or [`archived`] when they wait for that, too.

pub(crate) mod answers;
pub(crate) mod archived;
pub(crate) mod sync;
pub(crate) mod writer;
