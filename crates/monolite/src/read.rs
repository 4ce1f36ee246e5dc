//! Owns reads: [`handle`] is what a caller has of one, [`readers`] the connections, [`threads`]
//! what runs awaited ones, and [`holders`] whose snapshots can keep the WAL.

pub(crate) mod handle;
pub(crate) mod holders;
pub(crate) mod readers;
pub(crate) mod stream;
pub(crate) mod threads;
