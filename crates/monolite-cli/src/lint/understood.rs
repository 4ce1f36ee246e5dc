//! Owns which statements of a run SQLite does not understand.
//!
//! # Algorithm
//! 1. In an empty database in memory each statement is prepared, in order. Those that define
//!    something also run.
//! 2. Those that failed are tried once more: what they need may be defined behind them.
//! 3. An error of syntax is told in any case. Others are told if the schema is there: it has
//!    tables, all that defines something ran, and nothing is attached.

use super::has;
use anyhow::Result;
use monolite::rusqlite::{self, Connection, vtab::series};
use monolite_sqlite::first_token;
use std::collections::HashMap;

/// What only the application's database knows: functions, modules, collations, other databases, and
/// tables of SQLite's own, such as statistics.
const ITS_OWN: [&str; 5] = [
    "no such function",
    "no such module",
    "no such collation",
    "unknown database",
    "no such table: sqlite_",
];

/// What SQLite says of a statement, and at which of its bytes.
pub(super) struct Fault {
    pub(super) text: String,
    pub(super) at: usize,
}

/// The faults of statements, by the addresses of these.
pub(super) fn faults(statements: &[&str]) -> Result<HashMap<*const u8, Fault>> {
    let connection = Connection::open_in_memory()?;
    // The engine has it.
    series::load_module(&connection)?;
    let attempt = |sql: &str| {
        let mut statement = connection.prepare(sql)?;
        if begins(sql, "create alter drop") {
            statement.execute(())?;
        }
        Ok::<_, rusqlite::Error>(())
    };
    let mut failed = statements.to_vec();
    failed.retain(|sql| attempt(sql).is_err());
    let failed: Vec<_> =
        failed.into_iter().filter_map(|sql| Some((sql, attempt(sql).err()?))).collect();
    let find = "SELECT EXISTS(SELECT 1 FROM main.sqlite_schema WHERE type = 'table')";
    let has_schema = connection.query_row(find, (), |row| row.get(0))?
        && !statements.iter().any(|sql| begins(sql, "attach"))
        && !failed.iter().any(|(sql, _)| begins(sql, "create alter drop"));
    let fault = |(sql, error): (&str, rusqlite::Error)| {
        let (text, at) = match error {
            rusqlite::Error::SqlInputError { msg, offset, .. } => (msg, offset),
            other => (other.to_string(), 0),
        };
        let is_syntax = ["syntax error", "incomplete input", "unrecognized token"]
            .iter()
            .any(|part| text.contains(part));
        let is_told = is_syntax || has_schema && !ITS_OWN.iter().any(|part| text.contains(part));
        is_told.then(|| (sql.as_ptr(), Fault { text, at: usize::try_from(at).unwrap_or(0) }))
    };
    Ok(failed.into_iter().filter_map(fault).collect())
}

/// Whether the first word of a statement is one of `words`.
fn begins(sql: &str, words: &str) -> bool {
    first_token(sql).is_some_and(|token| has(words, token.text))
}
