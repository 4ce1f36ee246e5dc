//! Owns the weighing of a schema's definitions by how long `ALTER TABLE`, and the planner with what
//! indexes are made of, take with them, where SQL is not trusted.
//!
//! # Why
//! `ALTER TABLE … RENAME` and `DROP COLUMN` parse every definition of the schema again, several
//! times, each within one call of a function in which SQLite asks nobody. It keeps the names of a
//! definition in a list meanwhile, in which each qualified one is looked for: the time grows with
//! the square of their number. Measured with SQLite 3.54.1 (x86-64, 2.1 GHz), for a trigger with so
//! many names `t.c`: 4,000 in 0.25 s, 10,000 in 2.4 s, 20,000 in 13 s.
//!
//! # Algorithm
//! The time is foreseen from the number of names of each definition
//! ([`text::pairs_of_definition`]). A statement that adds to the schema is refused when it is
//! longer afterwards than it may be, and `ALTER TABLE` before it runs, for a file may come from
//! elsewhere.

use std::time::Duration;

use rusqlite::{Result, ffi};

use crate::text::{self, Views};
use crate::untrusted;

/// Picoseconds for each name and each that is looked for, of which a qualified one counts as two.
/// Measured 8,100 for the longest list above.
const PAIR_PICOS: f64 = 9_000.0;

/// Picoseconds for each name and each column of each table around it. Measured 21 µs for 30,000.
const LOOK_PICOS: f64 = 700.0;

/// The most tables around a name, and the most columns of a table.
const MAX_TABLES: usize = 64;
const MAX_COLUMNS: usize = 500;

/// The longest that `ALTER TABLE` may take with all definitions, as far as that is foreseen: 5,200
/// names in one, or 520 in each of 100.
const MAX_ALTER: Duration = Duration::from_millis(250);

/// Each second byte of a text begins a name at most, which is more than there can be, and quickly
/// asked; and whether there are views, which are not in there.
const MOST: &str = "SELECT total(octet_length(sql) * octet_length(sql) / 4), total(type = 'view')
    FROM main.sqlite_schema";

const TEXTS: &str = "SELECT type, name, sql FROM main.sqlite_schema WHERE sql IS NOT NULL";

/// The definitions of a schema.
struct Weighed {
    time: Duration,
    /// That which takes longest.
    heaviest: String,
}

fn time_of(picos: f64) -> Duration {
    Duration::from_nanos((picos / 1_000.0) as u64)
}

fn weigh(connection: &rusqlite::Connection) -> Result<Weighed> {
    let most = |row: &rusqlite::Row<'_>| Ok((row.get::<_, f64>(0)?, row.get::<_, f64>(1)?));
    let (pairs, views) = connection.query_row(MOST, [], most)?;
    let mut weighed = Weighed { time: time_of(pairs * PAIR_PICOS), heaviest: Default::default() };
    if views == 0.0 && weighed.time <= MAX_ALTER {
        return Ok(weighed);
    }
    let mut texts = connection.prepare(TEXTS)?;
    let (mut rows, mut all) = (texts.query([])?, Vec::new());
    while let Some(row) = rows.next()? {
        let sql = String::from_utf8_lossy(row.get_ref(2)?.as_bytes()?).into_owned();
        all.push((row.get::<_, String>(0)?, row.get::<_, String>(1)?, sql));
    }
    let views = all.iter().filter(|(kind, ..)| kind == "view");
    let named = |(_, name, sql): &(String, String, String)| {
        (name.to_ascii_lowercase().into_boxed_str(), sql.clone())
    };
    let views = Views::of(&views.map(named).collect());
    let tables = all.iter().filter(|(kind, ..)| kind == "table");
    let columns = tables.map(|(.., sql)| text::columns(sql)).max().unwrap_or(0).min(MAX_COLUMNS);
    let (mut picos, mut most) = (0.0, 0.0);
    for (kind, name, sql) in &all {
        let is_table = kind == "table";
        let mut own = text::pairs_of_definition(sql, is_table, &views) * PAIR_PICOS;
        if kind == "view" || kind == "trigger" {
            let around = text::tables(sql).min(MAX_TABLES) * columns;
            own += text::names(sql, &views) as f64 * around as f64 * LOOK_PICOS;
        }
        picos += own;
        if own > most {
            (most, weighed.heaviest) = (own, format!("{kind} {name}"));
        }
    }
    weighed.time = time_of(picos);
    Ok(weighed)
}

fn too_long(connection: &rusqlite::Connection, what: &str) -> Result<Option<String>> {
    let Weighed { time, heaviest } = weigh(connection)?;
    Ok((time > MAX_ALTER).then(|| {
        format!(
            "{what}: it parses every definition again, which takes time with the square of the \
             names in each, {} ms here, of {} ms that are allowed to untrusted SQL; the {heaviest} \
             takes longest: make several smaller ones of it, or drop it",
            time.as_millis(),
            MAX_ALTER.as_millis()
        )
    }))
}

/// How many expressions, and conditions of partial ones, the indexes of a schema have together.
pub(crate) fn index_terms(connection: &rusqlite::Connection) -> Result<u32> {
    const INDEXES: &str =
        "SELECT sql FROM main.sqlite_schema WHERE type = 'index' AND sql IS NOT NULL";
    let mut indexes = connection.prepare(INDEXES)?;
    let (mut rows, mut terms) = (indexes.query([])?, 0);
    while let Some(row) = rows.next()? {
        terms += text::terms_of_index(&String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?));
    }
    Ok(u32::try_from(terms).unwrap_or(u32::MAX))
}

/// Why the schema, to which something was added, is refused, if it is.
pub(crate) fn refusal(connection: &rusqlite::Connection) -> Result<Option<String>> {
    let alike = alike(connection)?;
    alike.map_or_else(
        || too_long(connection, "the schema would make ALTER TABLE take too long"),
        |refusal| Ok(Some(refusal)),
    )
}

/// Why the schema is refused for the names in one of its definitions, if it is: `ALTER TABLE` adds
/// columns one by one.
fn alike(connection: &rusqlite::Connection) -> Result<Option<String>> {
    const LONG: &str = "SELECT sql FROM main.sqlite_schema WHERE octet_length(sql) > ?1";
    let mut texts = connection.prepare(LONG)?;
    let mut rows = texts.query([text::MAX_ALIKE as i64])?;
    while let Some(row) = rows.next()? {
        let sql = String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?);
        if let Some(refusal) = untrusted::refusal_of_alike(&sql) {
            return Ok(Some(refusal));
        }
    }
    Ok(None)
}

/// Refuses an `ALTER TABLE` that would take too long.
///
/// # Errors
/// `SQLITE_AUTH`; those of SQLite.
pub(crate) fn check_before_alter(connection: &rusqlite::Connection) -> Result<()> {
    let refusal = match alike(connection)? {
        None => too_long(connection, "ALTER TABLE is refused for the time that it would take")?,
        refusal => refusal,
    };
    let code = ffi::Error::new(ffi::SQLITE_AUTH);
    refusal.map_or(Ok(()), |text| Err(rusqlite::Error::SqliteFailure(code, Some(text))))
}
