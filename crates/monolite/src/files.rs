//! Owns the files: [`open`] opens them in the right order, [`registry`] refuses a second opening in
//! this process and [`hold`] one by others, [`identity`] knows a file by device and inode, and
//! [`wal`] is the engine's own descriptor. [`closed`] reads a file that is not open, without
//! changing it.

pub(crate) mod closed;
pub(crate) mod hold;
pub(crate) mod identity;
pub(crate) mod open;
pub(crate) mod registry;
pub(crate) mod wal;
