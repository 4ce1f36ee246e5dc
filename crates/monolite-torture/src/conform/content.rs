//! Owns what a database holds, as a list of questions and answers that must be the same in plain
//! SQLite: its schema, all rows of all tables, and what its checks say.

use super::ask::{Asked, query};
use super::said::{Cell, Said};

const SCHEMA: &str = "SELECT type, name, tbl_name, sql FROM sqlite_schema";

/// Tables of the application and of SQLite; what virtual tables keep in tables of their own hangs
/// on where transactions end, see the difference `fts-segments`.
const TABLES: &str = "SELECT name FROM pragma_table_list WHERE schema = 'main' \
     AND type IN ('table', 'virtual') AND name <> 'sqlite_schema' ORDER BY name";

/// A question, and the answer.
pub(crate) type Content = Vec<(String, Said)>;

/// Asks everything.
pub(crate) fn content(of: &dyn Asked) -> Content {
    let mut found = Vec::new();
    let mut add = |sql: String| {
        let said = query(of, &sql);
        found.push((sql, said.clone()));
        said
    };
    add(SCHEMA.into());
    for pragma in ["integrity_check", "foreign_key_check", "user_version", "application_id"] {
        add(format!("PRAGMA {pragma}"));
    }
    for table in names(&add(TABLES.into())) {
        let table = format!("\"{}\"", table.replace('"', "\"\""));
        if table.starts_with("\"sqlite_stat") {
            // In which order ANALYZE takes the tables hangs on how the schema was read.
            add(format!("SELECT * FROM {table} ORDER BY 1, 2, 3"));
            continue;
        }
        // Tables without a rowid, and some that are virtual, have none.
        if add(format!("SELECT rowid, * FROM {table}")).fault.is_some() {
            add(format!("SELECT * FROM {table}"));
        }
    }
    found
}

fn names(said: &Said) -> Vec<String> {
    let name = |row: &Vec<Cell>| match row.first() {
        Some(Cell::Text(name)) => String::from_utf8(name.clone()).ok(),
        _ => None,
    };
    said.rows.iter().filter_map(name).collect()
}

/// The first question that is answered otherwise, or not asked of both.
pub(crate) fn first_difference<'c>(
    plain: &'c Content,
    ours: &'c Content,
) -> Option<(&'c str, Said, Said)> {
    let most = plain.len().max(ours.len());
    (0..most).find_map(|at| match (plain.get(at), ours.get(at)) {
        (Some((sql, theirs)), Some((same, own))) if sql == same => {
            theirs.differs(own).map(|_| (sql.as_str(), theirs.clone(), own.clone()))
        }
        (Some((sql, theirs)), _) => Some((sql, theirs.clone(), Said::default())),
        (None, Some((sql, own))) => Some((sql, Said::default(), own.clone())),
        (None, None) => None,
    })
}
