//! Owns the comparison of contents: schema, every table with its rowids, sequences, statistics,
//! `user_version`, integrity.

use monolite::rusqlite::Statement;
use monolite::{Error, rusqlite};

use super::answer::Rows;
use super::excuses::{SOUND, is_engines_own, is_false_alarm, is_shadow};

/// A part of the content with its name: the schema, or a table.
pub(super) type Part = (String, String);

const SCHEMA: &str = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name, type";

/// Everything there is, as `prepare` sees it.
pub(super) fn dump<'c>(
    prepare: impl Fn(&str) -> Result<Statement<'c>, Error>,
) -> Result<Vec<Part>, Error> {
    let mut parts = Vec::new();
    let mut schema = String::new();
    let (mut tables, mut virtual_tables) = (Vec::new(), Vec::new());
    let mut statement = prepare(SCHEMA)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (kind, name, table): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let sql: Option<String> = row.get(3)?;
        let sql = sql.unwrap_or_default();
        if is_engines_own(&name) || is_engines_own(&table) {
            continue;
        }
        if kind == "table" {
            if sql.starts_with("CREATE VIRTUAL") {
                virtual_tables.push(name.clone());
            }
            tables.push((name.clone(), sql.contains("WITHOUT ROWID")));
        }
        schema.push_str(&format!("{kind} {name} on {table}: {sql}\n"));
    }
    drop(rows);
    parts.push(("the schema".into(), schema));
    for (name, is_keyed) in tables {
        if !is_shadow(&name, &virtual_tables) {
            let sql = query_of(&name, is_keyed, &virtual_tables);
            parts.push((name, content(&prepare, &sql)));
        }
    }
    for pragma in ["user_version", "application_id", "integrity_check", "foreign_key_check"] {
        parts.push((pragma.into(), content(&prepare, &format!("PRAGMA {pragma}"))));
    }
    Ok(parts)
}

fn query_of(name: &str, is_keyed: bool, virtual_tables: &[String]) -> String {
    if name.starts_with("sqlite_stat") {
        // Nor are those of tables that are not compared.
        let below = virtual_tables.iter().map(String::as_str).chain(["monolite"]);
        let left_out = below.map(|table| format!("tbl NOT LIKE '{table}!_%' ESCAPE '!'"));
        let left_out: Vec<_> = left_out.collect();
        format!("SELECT * FROM {name} WHERE {} ORDER BY 1, 2, 3", left_out.join(" AND "))
    } else if is_keyed {
        format!("SELECT * FROM \"{name}\"")
    } else if virtual_tables.iter().any(|table| table == name) {
        format!("SELECT rowid, * FROM \"{name}\" ORDER BY rowid")
    } else {
        format!("SELECT rowid, * FROM \"{name}\"")
    }
}

fn content<'c>(prepare: &impl Fn(&str) -> Result<Statement<'c>, Error>, sql: &str) -> String {
    let read = || -> Result<String, Error> {
        let mut seen = Rows::default();
        let mut statement = prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            seen.add(row)?;
        }
        Ok(seen.said())
    };
    let text = read().unwrap_or_else(|error: Error| error.message().to_owned());
    if is_false_alarm(sql, &text) { SOUND.into() } else { text }
}

/// The first part that differs: its name, ours and theirs.
pub(super) fn difference(ours: &[Part], theirs: &[Part]) -> Option<(String, String, String)> {
    let find = |parts: &[Part], name: &str| {
        let part = parts.iter().find(|part| part.0 == name);
        part.map_or_else(|| "nothing".to_owned(), |part| part.1.clone())
    };
    let names = ours.iter().chain(theirs).map(|part| &part.0);
    names
        .map(|name| (name.clone(), find(ours, name), find(theirs, name)))
        .find(|(_, ours, theirs)| ours != theirs)
}

/// As `dump`, of a plain connection.
pub(super) fn dump_plain(plain: &rusqlite::Connection) -> Result<Vec<Part>, Error> {
    dump(|sql| Ok(plain.prepare(sql)?))
}
