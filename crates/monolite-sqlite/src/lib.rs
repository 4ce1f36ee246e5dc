//! SQLite made safe for Monolite: connections opened for a role, the rules their SQL must keep,
//! checkpoints, and the VFS seam. All `unsafe` of the project lives in this crate.
//!
//! The crate re-exports [`rusqlite`], so that a program holds one SQLite only (`links = "sqlite3"`
//! allows no second one) and uses the same types inside and outside of Monolite.
//!
//! # Not here
//! Threads, batches, acknowledgements: crate `monolite`. This crate knows connections and files,
//! never a transaction's life.

mod added;
mod additions;
pub mod allocations;
mod authorizer;
mod blocks;
mod codes;
mod connection;
pub mod copy;
mod counts;
mod depth;
mod drops;
mod flag;
mod fletcher;
mod forks;
mod format;
mod functions;
mod header;
mod holder;
mod interruption;
mod locked;
mod memory;
mod names;
mod no_rows;
mod noting;
mod pages;
mod pcache;
mod revoke;
mod rowids;
mod rules;
mod scan;
mod stack;
mod statements;
mod surroundings;
#[cfg(test)]
mod testing;
mod traits;
mod untrusted;
mod verb;
mod version;
pub mod vfs;
mod virtual_tables;
pub mod wal;

pub use added::Function;
pub use additions::{ConnectionSetup, Setup};
pub use authorizer::Authorizer;
pub use blocks::return_large_blocks;
pub use connection::{
    AppliedMigration, AutoVacuum, Checkpoint, CheckpointMode, Connection, FailedStatement,
    ForeignKeys, KeyTime, Keys, MAX_VALUE_BYTES, Maintenance, Migrations, Online, OnlinePlan,
    Overdue, Pages, RebuildPhase, Rebuilding, Role, Room, Savepoint, Settings, Step, Unfit,
    UserSavepoint, Violation, test_overlay, trim_memory,
};
pub use counts::Counts;
pub use flag::Flag;
pub use forks::forks;
pub use holder::{holds_lock, lock_holder};
pub use interruption::Interruption;
pub use memory::Budget;
pub use noting::{is_before_update, noting_triggers};
pub use pages::PageSet;
pub use pcache::{allow_page_caches, limit_page_caches, page_cache_bytes};
pub use revoke::{Revocation, Revoker};
pub use rowids::plain::{PlainNumbers, inserted_into};
pub use rowids::{GivenRowids, Numbering, Rowids};
pub use rusqlite;
pub use scan::{Scan, Statements, Token, TokenKind, first as first_token, statements};
pub use surroundings::Surroundings;
pub use traits::Traits;
pub use untrusted::QUERY_INSTRUCTIONS;
pub use verb::inserts_rows;
pub use version::{
    MIN_VERSION, MIN_VERSION_UNTRUSTED, accept, accept_untrusted, initialize, sees_pages,
};
