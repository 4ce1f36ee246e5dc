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

    /// The names of its columns that `other` does not have.
    pub(super) fn without(&self, other: &Shape) -> Vec<String> {
        let names = self.columns.iter().map(|it| &it.name);
        names.filter(|it| other.column(it).is_none()).cloned().collect()
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
        let sql = "SELECT seq FROM main.sqlite_sequence WHERE name = ?1";
        let last_rowid = match connection.prepare(sql) {
            Ok(mut find) => find.query_row([table], |row| row.get(0)).optional()?,
            // No table of the file has AUTOINCREMENT.
            Err(_) => None,
        };
        Ok(Attached {
            indexes: of_kind(connection, "index", table)?,
            triggers: of_kind(connection, "trigger", table)?,
            full_text: full_text(connection, table)?,
            last_rowid,
        })
    }
}

/// What there is of `kind` on `table` with a definition, in the order in which it was created.
fn of_kind(connection: &Connection, kind: &str, table: &str) -> Result<Vec<Defined>> {
    let sql = "SELECT name, sql FROM main.sqlite_schema WHERE type = ?1 AND tbl_name = ?2 \
               COLLATE NOCASE AND sql IS NOT NULL ORDER BY rowid";
    all(connection, sql, [kind, table], defined)
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
    /// That of what there is, with the queries of full-text tables. For what is broken a name in
    /// double quotes stands for no text: one whose column is gone would become one.
    ///
    /// # Errors
    /// Those of SQLite, but for what it cannot compile.
    pub(super) fn of(
        of: &super::Connection,
        table: &str,
        full_text: &[(String, String)],
    ) -> Result<Compiled> {
        let (connection, authorizer) = (of.raw(), &of.authorizer);
        let mut compiled = Compiled::default();
        let views = "SELECT name, sql FROM main.sqlite_schema WHERE type = 'view'";
        for Defined { name, sql } in all(connection, views, (), defined)? {
            let all = format!("SELECT * FROM main.{}", quoted(&name));
            let columns = |it: Statement<'_>| {
                let names = (0..it.column_count()).map(|at| it.column_name(at).map(str::to_owned));
                names.collect::<Result<_>>()
            };
            let what = format!("the view {name}");
            if let Some(columns) =
                compiled.add(of, what, sql, || connection.prepare(&all).and_then(columns))?
            {
                compiled.views.insert(name, columns);
            }
        }
        for (name, query) in full_text {
            let what = format!("the full-text table {name}");
            compiled.add(of, what, query.clone(), || connection.prepare(query).map(drop))?;
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
        let hosts = "SELECT DISTINCT tbl_name FROM main.sqlite_schema WHERE type = 'trigger'";
        for host in all(connection, hosts, (), |row| row.get::<_, String>(0))? {
            let (failed, reads) = authorizer.reads_of(|| fired(connection, &host));
            let mut broken = Vec::new();
            if failed?.is_some() {
                broken = broken_triggers(connection, &host)?;
            } else {
                let triggers = of_kind(connection, "trigger", &host)?.into_iter();
                let read =
                    |it: Defined| (format!("the trigger {}", it.name), (reads.clone(), it.sql));
                compiled.reads.extend(triggers.map(read));
            }
            let _quotes = Quotes::are_names(connection)?;
            if fired(connection, &host)?.is_some() {
                compiled.broken.extend(broken_triggers(connection, &host)?);
            }
            compiled.broken.extend(broken);
        }
        Ok(compiled)
    }

    /// Adds `what`, which `compile` compiles; gives what that does.
    fn add<T>(
        &mut self,
        of: &super::Connection,
        what: String,
        sql: String,
        compile: impl Fn() -> Result<T>,
    ) -> Result<Option<T>> {
        let (compiled, reads) = of.authorizer.reads_of(&compile);
        let _quotes = Quotes::are_names(of.raw())?;
        if let Err(error) = compile() {
            self.broken.insert(what.clone(), fault(error)?);
        }
        match compiled {
            Ok(compiled) => {
                self.reads.insert(what, (reads, sql));
                Ok(Some(compiled))
            }
            Err(error) => {
                self.broken.insert(what, fault(error)?);
                Ok(None)
            }
        }
    }

    /// Of what works, as `before`: where a name in a text has another meaning, for `table` or a
    /// view of it has other columns. SQLite looks for a column in a subquery first, then outside,
    /// and makes an alias or a text of what is none. What `*` stands for no text names.
    pub(super) fn read_anew(&self, before: &Compiled, table: &str) -> Vec<String> {
        let mut anew = Vec::new();
        for (what, (was, sql)) in &before.reads {
            let is_told = self.broken.contains_key(what) && !before.broken.contains_key(what);
            if is_told {
                continue;
            }
            let Some((is, _)) = self.reads.get(what) else {
                // With a text in double quotes it was told as broken before.
                let why = self.broken.get(what).into_iter();
                anew.extend(why.map(|why| format!("{what} ({why})")));
                continue;
            };
            // A module that is connected anew reads its own tables.
            let is_of = |(of, _): &&(String, String)| {
                of.eq_ignore_ascii_case(table)
                    || self.views.keys().any(|it| it.eq_ignore_ascii_case(of))
            };
            let lost = was.difference(is).map(|it| (it, "no longer "));
            let changed = is.difference(was).filter(is_of).map(|it| (it, "")).chain(lost);
            for ((of, column), not) in changed.filter(|((_, column), _)| names_one(sql, column)) {
                if !what.eq_ignore_ascii_case(&format!("the view {of}")) {
                    anew.push(format!("{what} ({column} in it would {not}mean {of}.{column})"));
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
    let triggers = of_kind(connection, "trigger", host)?;
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
