//! Owns the differences between the engine and plain SQLite that are documented on purpose, each
//! with its reason. Nothing else is excused.
//!
//! - [`REFUSED`] is `Invalid`, and the transaction goes on: transactions, files and the settings of
//!   connections are the engine's.
//! - [`is_engines_own`]: `commit_once` keeps its keys in a table that plain SQLite does not have.
//! - [`is_shadow`]: full-text search writes its tables at savepoints, which the engine sets as it
//!   likes. What the virtual table itself answers is compared.
//! - [`is_false_alarm`]: an integrity check compares full-text search with what its connection knew
//!   before. Plain SQLite with two connections says the same, and a new one that all is well.
//! - What `EXPLAIN` tells an interactive transaction: its commit does not ask again.
//! - `REINDEX` in a read: it is refused if there is an index, and the table of the keys has one.
//! - The rows of `EXPLAIN`: a program may have other numbers on another connection. Plans are
//!   compared, but for `notused`, which SQLite's documentation calls so.
//! - `total_changes()`, `PRAGMA data_version`: they tell about the connection. So do `changes()`
//!   and `last_insert_rowid()` before the transaction's own change, and the number of changes of a
//!   statement that is no `INSERT`, `UPDATE` or `DELETE`.
//! - `Invalid` at the commit of an interactive transaction that asks for `total_changes()` while
//!   there are virtual tables: what these write of their own, and when, is counted in it, too.
//! - The text of the error for a savepoint that is not there: the engine gives them names.
//! - Which of two errors answers a change of a view whose query names an index that is gone:
//!   [`is_of_view`].
//! - A conflict of a transaction that says `REINDEX`, for all indexes: the first key that anybody
//!   keeps makes the table of the keys, which has one.
//! - Which error follows once a statement has rolled the transaction back: any but `Conflict`.
//! - What a closure saw that has panicked, where numbers were given out ahead: its neighbours are
//!   run again without it, and their rows get new numbers. Nothing of it is kept.
//! - A transaction that changes more pages than the WAL may hold ends the history, where the
//!   database is larger than half of that.
//! - A row with the largest rowid there is ends the history, but in the tables for random values:
//!   SQLite draws the rowids behind it at random, for each side others.
//! - What an interactive transaction that changed nothing saw, at its commit: it is as if it had
//!   run before. Its answers must hold in one state since it began.

/// Statements that no transaction may run: `ARCHITECTURE.md`, invariants of `rules`, and
/// `docs/guides/interactive-transactions.md`.
pub(super) const REFUSED: &[&str] = &[
    "BEGIN",
    "BEGIN IMMEDIATE",
    "COMMIT",
    "END",
    "ROLLBACK",
    "SAVEPOINT s1",
    "RELEASE s1",
    "ROLLBACK TO s1",
    "VACUUM",
    "ATTACH ':memory:' AS other",
    "DETACH other",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA foreign_keys = OFF",
    "PRAGMA synchronous = OFF",
    "PRAGMA writable_schema = ON",
    "PRAGMA recursive_triggers = ON",
    "PRAGMA ignore_check_constraints = ON",
    "PRAGMA defer_foreign_keys = OFF",
    "PRAGMA case_sensitive_like = ON",
    "PRAGMA reverse_unordered_selects = ON",
    "PRAGMA query_only = ON",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA locking_mode = NORMAL",
    "PRAGMA schema_version = 7",
    "CREATE TEMP TABLE t9(a)",
    "CREATE TABLE temp.t9(a)",
    "CREATE TEMP VIEW v9 AS SELECT 1",
    "SELECT load_extension('nothing')",
];

/// Whether a name belongs to the engine.
pub(super) fn is_engines_own(name: &str) -> bool {
    name.starts_with("monolite_") || name.starts_with("sqlite_autoindex_monolite_")
}

/// Whether a statement has to do with all indexes, those of the engine's tables among them.
pub(super) fn is_about_all_indexes(sql: &str) -> bool {
    sql == "REINDEX"
}

/// Whether a table belongs to one of these virtual tables.
pub(super) fn is_shadow(name: &str, virtual_tables: &[String]) -> bool {
    let below = |table: &String| {
        name.strip_prefix(table.as_str()).is_some_and(|rest| rest.starts_with('_'))
    };
    virtual_tables.iter().any(below)
}

/// What an integrity check says when nothing is wrong.
pub(super) const SOUND: &str = "sound";

/// Whether an integrity check accuses full-text search alone.
pub(super) fn is_false_alarm(sql: &str, text: &str) -> bool {
    let is_check =
        sql.starts_with("PRAGMA integrity_check") || sql.starts_with("PRAGMA quick_check");
    let accuses = |row: &str| {
        row.contains("fts5: checksum mismatch") || row.contains("fts5: corruption found")
    };
    is_check && (text.ends_with("('ok')") || text.split(" ('").skip(1).all(accuses))
}

/// Whether an error is one of the two with which SQLite refuses to change a view without triggers.
/// It reads the view's query, and fails when there is no index that `INDEXED BY` names there, only
/// while the connection has not read it before; dropping the index does not make it forget.
pub(super) fn is_of_view(sql: &str, text: &str) -> bool {
    let is_change = ["DELETE", "UPDATE", "INSERT", "REPLACE", "WITH"];
    let is_index = text.starts_with("Invalid 1: no such index: ") && !sql.contains("INDEXED BY");
    let is_view =
        text.starts_with("Invalid 1: cannot modify ") && text.ends_with(" because it is a view");
    is_change.iter().any(|verb| sql.starts_with(verb)) && (is_index || is_view)
}
