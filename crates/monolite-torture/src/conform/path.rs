//! Owns the list of Monolite's ways to run SQL, each of which every script takes.
//!
//! # Not here
//! Neighbours in a batch that fail, connections and snapshots that are lost, and several readers:
//! `monolite torture --differential` has them beside statements of all kinds.

use super::ask::Way;
use super::script::Savepoints;

/// What carries the statements of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// `Database::write`.
    Write,
    /// `Database::write_once`.
    Once,
    /// Queries as `Database::read`, waited for and awaited; the rest as `Write`.
    Reads,
    /// `Database::transaction`.
    Interactive,
    /// `Database::transaction` where other processes may write.
    Shared,
    /// `Database::transact`, waited for.
    Blocking,
    /// `Database::transact`, with each statement awaited.
    Awaited,
}

/// What a closure does with a statement's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errors {
    /// It goes on and commits, as a script does in the shell.
    Kept,
    /// It returns the first one, which undoes the transaction: the `?` of most programs.
    Returned,
}

/// One of Monolite's ways to run SQL.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    pub(crate) carrier: Carrier,
    pub(crate) way: Way,
    pub(crate) errors: Errors,
    /// Statements that stand alone are put into transactions of this many, in plain SQLite, too.
    pub(crate) grouped: Option<usize>,
}

impl Path {
    /// Whether its transactions are interactive.
    pub(crate) fn is_interactive(&self) -> bool {
        !matches!(self.carrier, Carrier::Write | Carrier::Once | Carrier::Reads)
    }

    pub(crate) fn savepoints(&self) -> Savepoints {
        if self.is_interactive() { Savepoints::Methods } else { Savepoints::None }
    }

    /// The path with this name.
    pub fn named(name: &str) -> Option<&'static Path> {
        PATHS.iter().find(|path| path.name == name)
    }
}

/// Statements to a group: enough for a transaction whose first statements are replayed often.
const GROUP: usize = 8;

const fn path(name: &'static str, carrier: Carrier, way: Way, about: &'static str) -> Path {
    Path { name, about, carrier, way, errors: Errors::Kept, grouped: None }
}

const fn grouped(path: Path) -> Path {
    Path { grouped: Some(GROUP), ..path }
}

const fn returning(path: Path) -> Path {
    Path { errors: Errors::Returned, ..path }
}

/// All of them.
pub const PATHS: [Path; 17] = [
    path("write", Carrier::Write, Way::Execute, "each statement or block a closure of `write`"),
    path("write_once", Carrier::Once, Way::Execute, "the same with `write_once`"),
    path("execute_batch", Carrier::Write, Way::Batch, "`Tx::execute_batch` in a write"),
    path("prepare", Carrier::Write, Way::Prepared, "`ReadTx::prepare` in a write"),
    path("prepare_cached", Carrier::Write, Way::Cached, "`ReadTx::prepare_cached` in a write"),
    path("query_row", Carrier::Write, Way::FirstRow, "`ReadTx::query_row` in a write"),
    returning(path("returned", Carrier::Write, Way::Execute, "a closure that returns an error")),
    returning(grouped(path(
        "returned_grouped",
        Carrier::Write,
        Way::Cached,
        "the same, 8 statements long",
    ))),
    grouped(path("grouped", Carrier::Write, Way::Execute, "8 statements to a closure of `write`")),
    path("read", Carrier::Reads, Way::Execute, "queries as `read`, waited for and awaited"),
    path("transaction", Carrier::Interactive, Way::Execute, "`Database::transaction`"),
    path("transaction_row", Carrier::Interactive, Way::FirstRow, "the same with `query_row`"),
    path("transaction_batch", Carrier::Interactive, Way::Batch, "the same with `execute_batch`"),
    path("shared", Carrier::Shared, Way::Execute, "a transaction with `Sharing::Shared`"),
    grouped(path("shared_grouped", Carrier::Shared, Way::Execute, "the same, 8 statements long")),
    path("transact_waited", Carrier::Blocking, Way::Execute, "`Database::transact`, waited for"),
    path("transact", Carrier::Awaited, Way::Execute, "`Database::transact`, awaited"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = PATHS.iter().map(|path| path.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PATHS.len());
        assert!(Path::named("shared").is_some_and(Path::is_interactive));
        assert!(Path::named("nothing").is_none());
    }
}
