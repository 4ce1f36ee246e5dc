//! Owns the profile for SQL that comes from somebody who is not trusted.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::error::{Error, ErrorKind, Result, within};

/// The profile of a database that runs SQL from an untrusted source, see [`Options::untrusted`].
///
/// It holds for everything that runs in the database, the program's own closures included: SQL
/// leaves things behind (triggers, views, generated columns) that run inside later statements.
/// What it does not do is to hide tables: untrusted SQL may read and write all of them.
///
/// - Refused with `Invalid`: everything that is refused to all closures (`ATTACH`, `BEGIN`,
///   `COMMIT`, `SAVEPOINT`, temporary tables, `load_extension()`), and `ANALYZE`; `PRAGMA`, except
///   those that describe the schema, `user_version` and `application_id`; `pragma_table_list` as
///   a table; changes of `sqlite_sequence` and the statistics; virtual table modules that were not
///   named with [`Untrusted::module`], and their functions; `json_patch()`, `jsonb_patch()`,
///   `fts3_tokenizer()`, `sqlite_log()`, `unhex()` with two arguments; more than 1,000 bytes as
///   second argument of `instr()`, `replace()` and `trim()`; identifiers in double quotes that name
///   nothing.
/// - Limited, and refused with `Invalid` beyond: values and rows
///   ([`Untrusted::value_limit_bytes`]), memory ([`Untrusted::memory_limit_bytes`]), SQL text
///   (1,000,000 bytes), names in a statement (12,000, each counted once for each `SELECT` around
///   it; a `NATURAL` join counts as 2,500), names that are made of the same characters and begin
///   alike (1,500 characters in common), columns (500), depth of an expression and of views in
///   views (100), compound selects (100), program (250,000 instructions), `SELECT`s (400) and uses
///   of columns (2,000) of a statement, arguments of a function (100), length of a `LIKE` or
///   `GLOB` pattern (100), parameters (32,766), nested triggers (50), the schema's memory (a
///   quarter of that of a transaction) and text (a sixteenth), and what it has of tables, indexes,
///   views and triggers (4,000).
/// - Refused with `Invalid`: a statement that is large or names much, behind a change of the schema
///   in the same transaction. Any other such statement is prepared by another thread first, because
///   SQLite asks nobody while it plans.
/// - Ended with `Timeout`: what takes longer than [`Options::write_time_limit`] or
///   [`Options::read_time_limit`], soon after it (the guide says by how much); also what sorts so
///   much, or passes over values so often, that it might take longer.
///
/// ```
/// use std::time::Duration;
/// use monolite::{Database, ErrorKind, Options, Result, Untrusted, Value};
///
/// /// Runs a query that somebody sent, and returns the first column of its rows.
/// fn answer(db: &Database, sql: &str) -> Result<Vec<Value>> {
///     db.read(|tx| {
///         let mut query = tx.prepare(sql)?;
///         let values = query.query_map((), |row| row.get(0))?.take(1_000);
///         Ok(values.collect::<Result<_, _>>()?)
///     })
///     .wait()
/// }
///
/// # fn main() -> Result<()> {
/// # if monolite::rusqlite::version_number() < 3_054_000 { return Ok(()) }
/// let db = Options::new()
///     .untrusted(Untrusted::new())
///     .read_time_limit(Duration::from_millis(200))
///     .write_time_limit(Duration::from_millis(200))
///     .open(":memory:")?;
///
/// assert_eq!(answer(&db, "SELECT 6 * 7")?, [Value::Integer(42)]);
/// let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
///                SELECT max(i) FROM n";
/// assert_eq!(answer(&db, endless).unwrap_err().kind(), ErrorKind::Timeout);
/// let other = "ATTACH '/etc/passwd' AS secret";
/// assert_eq!(answer(&db, other).unwrap_err().kind(), ErrorKind::Invalid);
/// # db.close()
/// # }
/// ```
///
/// [`Options::read_time_limit`]: crate::Options::read_time_limit
/// [`Options::untrusted`]: crate::Options::untrusted
/// [`Options::write_time_limit`]: crate::Options::write_time_limit
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untrusted {
    value_limit_bytes: u32,
    memory_limit_bytes: u64,
    modules: Vec<String>,
}

impl Default for Untrusted {
    fn default() -> Untrusted {
        Untrusted { value_limit_bytes: 1 << 20, memory_limit_bytes: 64 << 20, modules: Vec::new() }
    }
}

impl Untrusted {
    /// The profile with its defaults.
    pub fn new() -> Untrusted {
        Untrusted::default()
    }

    /// Longest value, and longest row, in bytes: 1 KiB to 64 MiB. Default: 1 MiB. The time of the
    /// slowest single call of a function grows with it, and with that the time by which a deadline
    /// may be exceeded. Rows that are longer already cannot be read.
    #[must_use]
    pub fn value_limit_bytes(mut self, bytes: u32) -> Untrusted {
        self.value_limit_bytes = bytes;
        self
    }

    /// What SQLite may allocate for one transaction beyond the page cache of its connection, in
    /// bytes: 1 MiB to 64 GiB. Default: 64 MiB. Pages that a transaction has changed stay in memory
    /// until it is committed, so it can change as many as fit into the page cache and this: some
    /// 77,000 pages of 4 KiB in a `write`, with the defaults. The process uses at most all page
    /// caches ([`Options::writer_cache_bytes`], and [`Options::reader_cache_bytes`] for each
    /// reader), and this for each connection.
    ///
    /// [`Options::reader_cache_bytes`]: crate::Options::reader_cache_bytes
    /// [`Options::writer_cache_bytes`]: crate::Options::writer_cache_bytes
    #[must_use]
    pub fn memory_limit_bytes(mut self, bytes: u64) -> Untrusted {
        self.memory_limit_bytes = bytes;
        self
    }

    /// Allows a virtual table module by its exact name, such as `fts5` or `rtree`. Default: none;
    /// `json_each` and `json_tree` are always there. A module's own commands and queries cannot be
    /// interrupted within, so large tables may make a deadline late.
    #[must_use]
    pub fn module(mut self, name: impl Into<String>) -> Untrusted {
        self.modules.push(name.into());
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        within("value_limit_bytes", self.value_limit_bytes, 1 << 10, 64 << 20)?;
        within("memory_limit_bytes", self.memory_limit_bytes, 1 << 20, 64 << 30)
    }

    pub(crate) fn profile(&self) -> monolite_sqlite::Untrusted {
        monolite_sqlite::Untrusted {
            value_bytes: self.value_limit_bytes,
            memory_bytes: self.memory_limit_bytes,
            modules: self.modules.clone(),
        }
    }
}

/// The failure of a transaction that was refused memory.
pub(crate) fn starved() -> Error {
    let message = "the transaction needs more memory than the option memory_limit_bytes of \
                   monolite::Untrusted allows, or changes more pages than fit into that and the \
                   page cache of its connection (writer_cache_bytes of monolite::Options); do \
                   less in one transaction or raise the limit";
    Error::new(ErrorKind::Invalid, message)
}

/// Whether a closure has panicked because `rusqlite` found no text, or no blob, where SQLite was
/// refused the memory for it.
pub(crate) fn is_lack_of_memory(payload: &(dyn Any + Send)) -> bool {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.is_some_and(|text| text.contains("SQLITE_") && text.ends_with("type with NULL data"))
}

/// Runs a closure of the application; where memory `is_limited`, SQL cannot have it panic.
///
/// # Errors
/// `Invalid` in place of a panic for which [`is_lack_of_memory`].
///
/// # Panics
/// With any other panic of `run`.
pub(crate) fn catching_lack_of_memory<R>(is_limited: bool, run: impl FnOnce() -> R) -> Result<R> {
    if !is_limited {
        return Ok(run());
    }
    catch_unwind(AssertUnwindSafe(run)).or_else(|payload| {
        if is_lack_of_memory(&*payload) { Err(starved()) } else { resume_unwind(payload) }
    })
}
