//! Owns what a table is, what hangs on it, and which of that does not work: asked of SQLite, which
//! compiles what it can, and not read in texts.

use std::collections::BTreeMap;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Params, Result, Row, Statement};

use super::text::names_one;
use crate::authorizer::Reads;
use crate::connection::full_text::External;
use crate::names::quoted;
use crate::rowids::table::Table;

/// A column of a table.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    /// The type, and whether it is that of a STRICT table: where both are the same, values are.
    pub(super) form: (String, bool),
    /// Its place in the primary key, from 1 on; 0 if it has none.
    pub(super) place_in_key: u32,
    /// Whether it is computed from others.
    pub(super) is_generated: bool,
}

/// What a table is.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) columns: Vec<Column>,
    /// The column that is the rowid, or a name of the hidden one; `None` without rowids.
    pub(super) rowid: Option<String>,
    pub(super) is_autoincrement: bool,
}

impl Shape {
    /// That of the table `name`.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(super) fn of(connection: &Connection, name: &str) -> Result<Shape> {
        let sql = "SELECT one.name, one.type, list.strict, one.pk, one.hidden FROM \
                   pragma_table_xinfo(?1, 'main') AS one, pragma_table_list(?1) AS list WHERE \
                   list.schema = 'main' ORDER BY one.cid";
        let column = |row: &Row<'_>| {
            Ok(Column {
                name: row.get(0)?,
                form: (row.get::<_, String>(1)?.to_ascii_uppercase(), row.get(2)?),
                place_in_key: row.get(3)?,
                is_generated: row.get::<_, u32>(4)? > 1,
            })
        };
        let columns = all(connection, sql, [name], column)?;
        let table = Table::of(connection, name)?;
        let is_autoincrement = table.as_ref().is_some_and(|it| it.is_autoincrement);
        let rowid = table.and_then(|table| table.key.into_iter().next());
        Ok(Shape { columns, rowid, is_autoincrement })
    }

    /// The names of the columns of its primary key, in order.
    pub(super) fn primary_key(&self) -> Vec<String> {
        let mut key: Vec<_> = self.columns.iter().filter(|it| it.place_in_key > 0).collect();
        key.sort_by_key(|it| it.place_in_key);
        key.into_iter().map(|it| it.name.to_ascii_lowercase()).collect()
    }

    /// The column with this name.
    pub(super) fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|it| it.name.eq_ignore_ascii_case(name))
    }
}

/// Something in the schema, with its definition.
#[derive(Debug)]
pub(super) struct Defined {
    pub(super) name: String,
    pub(super) sql: String,
}

/// What hangs on a table.
#[derive(Debug)]
pub(super) struct Attached {
    /// Its indexes with a definition, in the order in which they were created.
    pub(super) indexes: Vec<Defined>,
    /// Its triggers, in that order, in which they fire.
    pub(super) triggers: Vec<Defined>,
    /// The full-text tables whose texts are in it, also through a view, and the query that gives
    /// these.
    pub(super) full_text: Vec<(String, String)>,
    /// The largest rowid that it ever had, where it has `AUTOINCREMENT`.
    pub(super) last_rowid: Option<i64>,
}

impl Attached {
    /// What hangs on `table`, spelled as in the schema.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(super) fn of(connection: &Connection, table: &str) -> Result<Attached> {
        let of_kind = |kind: &str| {
            let sql = "SELECT name, sql FROM main.sqlite_schema WHERE type = ?1 AND tbl_name = ?2 \
                       COLLATE NOCASE AND sql IS NOT NULL ORDER BY rowid";
            all(connection, sql, [kind, table], defined)
        };
        let sql = "SELECT seq FROM main.sqlite_sequence WHERE name = ?1";
        let last_rowid = match connection.prepare(sql) {
            Ok(mut find) => find.query_row([table], |row| row.get(0)).optional()?,
            // No table of the file has AUTOINCREMENT.
            Err(_) => None,
        };
        Ok(Attached {
            indexes: of_kind("index")?,
            triggers: of_kind("trigger")?,
            full_text: full_text(connection, table)?,
            last_rowid,
        })
    }
}

/// See [`Attached::full_text`].
fn full_text(connection: &Connection, table: &str) -> Result<Vec<(String, String)>> {
    let sql = "SELECT rootpage FROM main.sqlite_schema WHERE tbl_name = ?1 COLLATE NOCASE";
    let roots = all(connection, sql, [table], |row| row.get::<_, i64>(0))?;
    let sql = "SELECT name, sql FROM main.sqlite_schema WHERE type = 'table' AND rootpage = 0";
    let mut found = Vec::new();
    for Defined { name, sql } in all(connection, sql, (), defined)? {
        let Some(external) = External::of(&sql, &["fts3", "fts4", "fts5"]) else { continue };
        let sql = "SELECT name FROM pragma_table_xinfo(?1, 'main') WHERE hidden = 0";
        let mut columns = all(connection, sql, [&name], |row| row.get::<_, String>(0))?;
        columns.push(external.key.unwrap_or_else(|| "rowid".into()));
        let columns: Vec<_> = columns.iter().map(|it| format!("content.{}", quoted(it))).collect();
        let (columns, content) = (columns.join(", "), quoted(&external.content));
        let query = format!("SELECT {columns} FROM main.{content} AS content");
        // One that cannot be compiled does not work before, either.
        let Ok(mut explain) = connection.prepare(&format!("EXPLAIN {query}")) else { continue };
        let reads = |row: &Row<'_>| {
            Ok(row.get_ref(1)?.as_str()? == "OpenRead" && roots.contains(&row.get(3)?))
        };
        if explain.query_map((), reads)?.any(|it| it == Ok(true)) {
            found.push((name, query));
        }
    }
    Ok(found)
}

/// All triggers there are.
///
/// # Errors
/// Those of SQLite.
pub(super) fn triggers(connection: &Connection) -> Result<Vec<Defined>> {
    let sql = "SELECT name, sql FROM main.sqlite_schema WHERE type = 'trigger'";
    all(connection, sql, (), defined)
}

/// What SQLite finds when it compiles the views, the triggers, and the foreign keys of and to a
/// table.
#[derive(Debug, Default)]
pub(super) struct Compiled {
    /// What it cannot compile, with its reason.
    pub(super) broken: BTreeMap<String, String>,
    /// What each view, and the triggers of each table, read; with their texts.
    pub(super) reads: BTreeMap<String, (Reads, String)>,
    /// The columns of each view.
    pub(super) views: BTreeMap<String, Vec<String>>,
}

impl Compiled {
    /// That of what there is. A name in double quotes stands for no text here: one whose column is
    /// gone would become one.
    ///
    /// # Errors
    /// Those of SQLite, but for what it cannot compile.
    pub(super) fn of(of: &super::Connection, table: &str) -> Result<Compiled> {
        let (connection, authorizer) = (of.raw(), &of.authorizer);
        let _quotes = Quotes::are_names(connection)?;
        let mut compiled = Compiled::default();
        let views = "SELECT name, sql FROM main.sqlite_schema WHERE type = 'view'";
        for Defined { name, sql } in all(connection, views, (), defined)? {
            let (what, all) =
                (format!("the view {name}"), format!("SELECT * FROM main.{}", quoted(&name)));
            let columns = |it: Statement<'_>| {
                let names = (0..it.column_count()).map(|at| it.column_name(at).map(str::to_owned));
                names.collect::<Result<_>>()
            };
            match authorizer.reads_of(|| connection.prepare(&all).and_then(columns)) {
                (Err(error), _) => drop(compiled.broken.insert(what, fault(error)?)),
                (Ok(columns), reads) => {
                    compiled.reads.insert(what, (reads, sql));
                    compiled.views.insert(name, columns);
                }
            }
        }
        let children = "SELECT DISTINCT child.name FROM main.sqlite_schema AS child, \
             pragma_foreign_key_list(child.name, 'main') AS key WHERE child.type = 'table' AND \
             (key.\"table\" = ?1 COLLATE NOCASE OR child.name = ?1 COLLATE NOCASE)";
        for child in all(connection, children, [table], |row| row.get::<_, String>(0))? {
            let check = format!("EXPLAIN PRAGMA main.foreign_key_check({})", quoted(&child));
            if let Err(error) = connection.prepare(&check) {
                compiled.broken.insert(format!("a foreign key of {child}"), fault(error)?);
            }
        }
        let hosts = "SELECT tbl_name, group_concat(sql, ' ') FROM main.sqlite_schema WHERE type = \
                     'trigger' GROUP BY tbl_name";
        for Defined { name: host, sql } in all(connection, hosts, (), defined)? {
            let (failed, reads) = authorizer.reads_of(|| fired(connection, &host));
            match failed? {
                Some(_) => compiled.broken.extend(broken_triggers(connection, &host)?),
                None => drop(compiled.reads.insert(format!("a trigger of {host}"), (reads, sql))),
            }
        }
        Ok(compiled)
    }

    /// Of what works, as `before`: what reads other columns than it did, for `table` has lost the
    /// columns `gone`. SQLite looks for a name outside of a subquery where it is not inside.
    pub(super) fn read_anew(&self, before: &Compiled, table: &str, gone: &[String]) -> Vec<String> {
        let has = |columns: &[String], column: &str| {
            columns.iter().any(|it| it.eq_ignore_ascii_case(column))
        };
        // Of the table, or of a view of all its columns.
        let is_gone = |(of, column): &(String, String)| {
            of.eq_ignore_ascii_case(table) && has(gone, column)
                || self.views.get(of).is_some_and(|columns| !has(columns, column))
        };
        let mut anew = Vec::new();
        for (what, (was, sql)) in &before.reads {
            let Some((is, _)) = self.reads.get(what) else { continue };
            // What `*` stands for may go, and no text names it.
            let is_lost = |it: &&(String, String)| match is_gone(it) {
                true => names_one(sql, &it.1),
                false => !is.contains(it) && !it.1.is_empty(),
            };
            for (_, column) in was.iter().filter(is_lost) {
                let lost =
                    format!("{what} (in a subquery, {column} would be another table's column)");
                if anew.last() != Some(&lost) {
                    anew.push(lost);
                }
            }
        }
        anew
    }
}

/// The tables with a foreign key to `table` that names no column, and so means its primary key.
///
/// # Errors
/// Those of SQLite.
pub(super) fn children_of_primary_key(connection: &Connection, table: &str) -> Result<Vec<String>> {
    let sql = "SELECT DISTINCT child.name FROM main.sqlite_schema AS child, \
         pragma_foreign_key_list(child.name, 'main') AS key WHERE child.type = 'table' AND \
         key.\"table\" = ?1 COLLATE NOCASE AND key.\"to\" IS NULL";
    all(connection, sql, [table], |row| row.get(0))
}

/// Why SQLite cannot compile what fires the triggers of `host`.
fn fired(connection: &Connection, host: &str) -> Result<Option<String>> {
    // A view that is broken is named itself.
    let Ok(Shape { columns, .. }) = Shape::of(connection, host) else { return Ok(None) };
    let set = |column: &Column| format!("{} = NULL", quoted(&column.name));
    let set: Vec<_> = columns.iter().filter(|it| !it.is_generated).map(set).collect();
    let (host, set) = (quoted(host), set.join(", "));
    for event in [
        format!("INSERT INTO main.{host} DEFAULT VALUES"),
        format!("UPDATE main.{host} SET {set}"),
        format!("DELETE FROM main.{host}"),
    ] {
        match connection.prepare(&event).map_err(fault) {
            // A view without such a trigger.
            Err(Ok(why)) if why.starts_with("cannot modify") => {}
            Err(why) => return why.map(Some),
            Ok(_) => {}
        }
    }
    Ok(None)
}

/// Those of the triggers of `host` that do not work where there is no other one. All is undone.
fn broken_triggers(connection: &Connection, host: &str) -> Result<Vec<(String, String)>> {
    let triggers = Attached::of(connection, host)?.triggers;
    let drop =
        |it: &Defined| connection.execute_batch(&format!("DROP TRIGGER main.{}", quoted(&it.name)));
    connection.execute_batch("SAVEPOINT monolite_alone")?;
    let look = || {
        triggers.iter().try_for_each(drop)?;
        let mut broken = Vec::new();
        for it in &triggers {
            connection.execute_batch(&it.sql)?;
            let failed = fired(connection, host)?;
            broken.extend(failed.map(|why| (format!("the trigger {}", it.name), why)));
            drop(it)?;
        }
        Ok(broken)
    };
    let broken = look();
    connection.execute_batch("ROLLBACK TO monolite_alone; RELEASE monolite_alone")?;
    broken
}

/// Has names in double quotes be no texts, until it is dropped.
pub(in crate::connection) struct Quotes<'c>(&'c Connection, [bool; 2]);

const QUOTES: [DbConfig; 2] =
    [DbConfig::SQLITE_DBCONFIG_DQS_DML, DbConfig::SQLITE_DBCONFIG_DQS_DDL];

impl Quotes<'_> {
    pub(in crate::connection) fn are_names(connection: &Connection) -> Result<Quotes<'_>> {
        let [dml, ddl] = QUOTES.map(|it| connection.db_config(it));
        let quotes = Quotes(connection, [dml?, ddl?]);
        QUOTES.into_iter().try_for_each(|it| connection.set_db_config(it, false).map(drop))?;
        Ok(quotes)
    }
}

impl Drop for Quotes<'_> {
    fn drop(&mut self) {
        for (which, is_on) in QUOTES.into_iter().zip(self.1) {
            // It fails on a closed connection only.
            let _ = self.0.set_db_config(which, is_on);
        }
    }
}

/// What is wrong with a statement that cannot be compiled.
///
/// # Errors
/// `error`, if it is one of another kind.
pub(super) fn fault(error: rusqlite::Error) -> Result<String> {
    let has_place = matches!(error, rusqlite::Error::SqlInputError { .. });
    let is_fault = has_place || error.sqlite_error_code() == Some(ErrorCode::Unknown);
    if is_fault { Ok(reason(&error)) } else { Err(error) }
}

/// What SQLite says, without its code and its statement.
pub(super) fn reason(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(text)) => text.clone(),
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

fn defined(row: &Row<'_>) -> Result<Defined> {
    Ok(Defined { name: row.get(0)?, sql: row.get(1)? })
}

pub(super) fn all<T>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    of: impl FnMut(&Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    connection.prepare(sql)?.query_map(parameters, of)?.collect()
}
