//! Owns how an online rebuild copies rows, which tables it can be done to, and the triggers that
//! note what changes.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension as _, Result, Row, ffi};

use super::super::attached::{Column, Shape, all, fault};
use super::super::fill::{Fill, is_of_row};
use super::super::{Rebuild, SHADOW, text};
use crate::codes::{failure, refuse};
use crate::connection::Connection;
use crate::names::{DIRTY, quoted};
use crate::noting::{is_before_update, noting_triggers};

/// What to do about rows that the new table does not take.
const REMEDY: &str = "nothing was lost, and the table is as it was; correct them, and apply the \
                      migration again (a rebuild that has begun goes on where it was; to correct \
                      the migration, abort that first; it stops at some 1,000 such rows, and a dry \
                      run before it begins counts all)";

/// What to do where the online form cannot do it.
const OFFLINE: &str = "leave the word online out, and it is rebuilt in one transaction";

/// Keys in one statement: its text stays far below SQLite's limit.
pub(super) const KEYS: usize = 10_000;

/// What becomes of rows that cannot be in the new table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    Refused,
    Left,
}

/// How an online rebuild copies rows, from [`Online::begin`](super::Online::begin).
#[derive(Debug)]
pub struct OnlinePlan {
    pub(super) table: String,
    /// The key of both.
    pub(super) key: String,
    pub(super) fill: Fill,
    forbidden: Vec<Forbidden>,
    /// Rows that the copy stores otherwise: looked for behind a copy. An update compares each row.
    converted: Vec<Forbidden>,
    /// The names that the indexes shall have.
    indexes: Vec<String>,
}

/// A query for rows that must not be converted so; which rows comes behind `head`.
#[derive(Debug)]
struct Forbidden {
    head: String,
    /// The key, as it is called in there.
    key: String,
    tail: String,
    why: String,
}

impl OnlinePlan {
    /// The largest of the `most` first keys from `from` on, or the largest of all.
    pub(super) fn nth(&self, raw: &rusqlite::Connection, from: i64, most: u32) -> Result<i64> {
        let (table, key) = (quoted(&self.table), quoted(&self.key));
        let sql = format!(
            "SELECT coalesce((SELECT {key} FROM main.{table} WHERE {key} >= {from} ORDER BY {key} \
             LIMIT 1 OFFSET {most} - 1), (SELECT max({key}) FROM main.{table}), {})",
            i64::MAX
        );
        raw.query_row(&sql, (), |row| row.get(0))
    }

    /// Has the rows that `only` lets through be in the new table as they shall be; gives how many
    /// those are, and the keys of those that cannot be in it.
    ///
    /// # Errors
    /// `SQLITE_CONSTRAINT` with such rows, if they are refused.
    pub(super) fn copy(
        &self,
        connection: &Connection,
        only: &dyn Fn(&str) -> String,
        unfit: Unfit,
    ) -> Result<(u64, Vec<i64>)> {
        let (raw, key) = (connection.raw(), quoted(&self.key));
        let of_old = format!(" WHERE {}", only(&key));
        let empty = format!("DELETE FROM main.{SHADOW} WHERE {}", only(&key));
        let copy = || {
            raw.execute(&empty, ())?;
            self.fill.copy(raw, &of_old)
        };
        let (copied, mut found) = match copy() {
            Err(error) if is_of_row(&error) => {
                // What is in the way may be there no more.
                let stale = format!(
                    "DELETE FROM main.{SHADOW} WHERE {key} IN (SELECT key FROM main.{DIRTY})"
                );
                raw.execute(&stale, ())?;
                raw.execute(&empty, ())?;
                self.fill.copy_what_fits(raw, &of_old)?
            }
            copied => copied?,
        };
        let keys = std::mem::take(&mut found.keys);
        let are_refused = unfit == Unfit::Refused || found.count > keys.len() as u64;
        if let Some(rows) = found.told(REMEDY).filter(|_| are_refused) {
            let text = format!("of {}, {}", self.table, self.with_names(rows));
            return Err(failure(ffi::SQLITE_CONSTRAINT, text));
        }
        self.refuse_forbidden(raw, only)?;
        self.converted.iter().try_for_each(|it| self.refuse_one(raw, it, only))?;
        Ok((copied, keys))
    }

    /// Gives rows of `only` that both tables have the values that differ, which leaves the indexes
    /// of other columns alone: most changes are of few columns. Gives the keys of those that are as
    /// they shall be now, by a second look. The others need [`OnlinePlan::copy`]: those that are
    /// converted, and those that another row may be in the way of.
    pub(super) fn update(&self, raw: &rusqlite::Connection, only: &str) -> Result<Vec<i64>> {
        let (fill, key) = (&self.fill, quoted(&self.key));
        let mut alike: BTreeMap<Vec<usize>, Vec<i64>> = BTreeMap::new();
        for (row, columns) in self.differing(raw, only, true)? {
            alike.entry(columns).or_default().push(row);
        }
        let mut done = Vec::new();
        for (columns, keys) in &alike {
            let set =
                columns.iter().map(|at| format!("{} = old.c{at}", quoted(&fill.targets[*at])));
            let set = set.collect::<Vec<_>>().join(", ");
            for keys in keys.chunks(KEYS) {
                let only = format!("{key} IN ({})", list(keys));
                let update = format!(
                    "UPDATE OR ABORT main.{SHADOW} AS new SET {set} FROM ({}) AS old WHERE \
                     new.{key} = old.c{}",
                    fill.source(&format!(" WHERE {only}")),
                    fill.key[0]
                );
                match (!set.is_empty()).then(|| raw.execute(&update, ())).transpose() {
                    Err(error) if is_of_row(&error) => continue,
                    updated => updated?,
                };
                self.refuse_forbidden(raw, &|key| format!("{key} IN ({})", list(keys)))?;
                let same = self.differing(raw, &only, false)?.into_iter();
                done.extend(same.filter(|it| it.1.is_empty()).map(|it| it.0));
            }
        }
        Ok(done)
    }

    /// The rows of `only` that both tables have, with the columns that differ; with those that
    /// `may_differ`, too: zeros are equal and may have another sign.
    fn differing(
        &self,
        raw: &rusqlite::Connection,
        only: &str,
        may_differ: bool,
    ) -> Result<Vec<(i64, Vec<usize>)>> {
        let (fill, key) = (&self.fill, quoted(&self.key));
        let differs = fill.targets.iter().enumerate().map(|(at, target)| {
            let new = format!("new.{}", quoted(target));
            // What is equal may be of another type, as 1 and 1.0.
            let differs = format!(
                "{new} COLLATE BINARY IS NOT +old.c{at} OR typeof({new}) IS NOT typeof(old.c{at})"
            );
            if may_differ { format!("{differs} OR {new} IS 0.0") } else { differs }
        });
        let sql = format!(
            "SELECT new.{key}, {} FROM ({}) AS old JOIN main.{SHADOW} AS new ON new.{key} = \
             old.c{}",
            differs.collect::<Vec<_>>().join(", "),
            fill.source(&format!(" WHERE {only}")),
            fill.key[0]
        );
        all(raw, &sql, (), |row| {
            let columns = 0..fill.targets.len();
            let columns = columns.filter_map(|at| match row.get::<_, bool>(at + 1) {
                Ok(differs) => differs.then_some(Ok(at)),
                Err(error) => Some(Err(error)),
            });
            Ok((row.get(0)?, columns.collect::<Result<_>>()?))
        })
    }

    /// # Errors
    /// `SQLITE_AUTH` with a row that `only` lets through and the SELECT may not convert so.
    fn refuse_forbidden(
        &self,
        raw: &rusqlite::Connection,
        only: &dyn Fn(&str) -> String,
    ) -> Result<()> {
        self.forbidden.iter().try_for_each(|it| self.refuse_one(raw, it, only))
    }

    fn refuse_one(
        &self,
        raw: &rusqlite::Connection,
        it: &Forbidden,
        only: &dyn Fn(&str) -> String,
    ) -> Result<()> {
        let sql = format!("{} WHERE {}{}", it.head, only(&it.key), it.tail);
        let row = raw.query_row(&sql, (), |row| row.get::<_, i64>(0)).optional()?;
        let why =
            || format!("the row {} of {}: {}; {OFFLINE}", row.unwrap_or(0), self.table, it.why);
        refuse(row.map(|_| why()))
    }

    fn with_names(&self, mut text: String) -> String {
        for (at, index) in self.indexes.iter().enumerate().rev() {
            text = text.replace(&format!("{SHADOW}_{at}"), index);
        }
        text.replace(SHADOW, &self.table)
    }
}

/// `keys` as SQL has them behind `IN`.
pub(super) fn list(keys: &[i64]) -> String {
    keys.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}

impl Rebuild<'_> {
    /// How rows are copied, with the refusals of what cannot be done online.
    pub(super) fn plan(&mut self, new: &Shape, select: Option<&str>) -> Result<OnlinePlan> {
        let raw = self.connection.raw();
        let is_column = |shape: &Shape, name: &str| shape.column(name).is_some();
        let key = self.old.rowid.clone().filter(|it| is_column(&self.old, it));
        let is_kept = |key: &String| {
            new.rowid.as_ref().is_some_and(|it| it.eq_ignore_ascii_case(key) && is_column(new, it))
        };
        let Some(key) = key.filter(is_kept) else {
            return Err(without_key(&self.table));
        };
        let mut fill = Fill::new(self, new, select)?;
        let (table, same) = (quoted(&self.table), quoted(&key));
        let (mut forbidden, stored) = (Vec::new(), self.same_columns(new, select));
        let is_stored = |name: &str| stored.iter().any(|it| it.eq_ignore_ascii_case(name));
        if let Some(select) = select {
            let Some(from) = text::from_alone(select, &self.table) else {
                self.refuse(format!("a SELECT that is not just SELECT … FROM {}", self.table));
                self.faults_online()?;
                unreachable!("it is refused");
            };
            let head = fill.keep_key(select, from, &key);
            let why = "the SELECT gives it another key".into();
            let changed = Forbidden { head: head.0, key: same.clone(), tail: head.1, why };
            forbidden.extend((!is_stored(&key)).then_some(changed));
            if !is_row_by_row(raw, &fill.source(&format!(" WHERE {same} > 1")))? {
                self.refuse("a SELECT that groups rows, or reads another table".into());
            }
        }
        if fill.may_differ && !self.attached.full_text.is_empty() {
            self.refuse("values that change in a table with full-text search".into());
        }
        let both = format!(
            "SELECT old.{same} FROM main.{table} AS old JOIN main.{SHADOW} AS new ON new.{same} = \
             old.{same}"
        );
        for column in self.columns_of_keys()? {
            let [Some(was), Some(is)] = [&self.old, new].map(|it| it.column(&column)) else {
                continue;
            };
            let form = |shape: &Column, table: &str| {
                let collation = raw.column_metadata(Some("main"), table, column.as_str())?.1;
                // Without STRICT, ANY compares as a number does.
                let is_any = shape.form.0 == "ANY" && shape.form.1;
                Ok::<_, rusqlite::Error>((
                    (shape.form.0.clone(), is_any),
                    shape.is_generated,
                    collation.map(std::ffi::CStr::to_owned),
                ))
            };
            let may_differ = !is_stored(&column) && (select.is_some() || was.form != is.form);
            if form(was, &self.table)? != form(is, SHADOW)? {
                self.refuse(format!("{column}, which a foreign key uses, as another type"));
            }
            let why = format!("the new table gets another {column}, which a foreign key uses");
            let column = quoted(&column);
            let tail = format!(" AND new.{column} COLLATE BINARY IS NOT old.{column}");
            let (head, key) = (both.clone(), format!("old.{same}"));
            forbidden.extend(may_differ.then_some(Forbidden { head, key, tail, why }));
        }
        // By groups: SQLite takes no more than 1,000 in a row.
        let converted = stored.chunks(100).map(|some| otherwise(&both, &same, some)).collect();
        let indexes = self.attached.indexes.iter().map(|it| it.name.clone()).collect();
        Ok(OnlinePlan { table: self.table.clone(), key, fill, forbidden, converted, indexes })
    }

    /// The columns that get the old one's values as they are, and store them alike: what is not is
    /// refused row by row.
    pub(super) fn same_columns(&self, new: &Shape, select: Option<&str>) -> Vec<String> {
        let taken = select.map(text::columns_alone);
        let is_taken = |name: &str| {
            let is_it = |it: &String| it.eq_ignore_ascii_case(name);
            taken.as_ref().is_none_or(|taken| taken.iter().any(is_it))
        };
        let is_same = |old: &&Column| {
            let new = new.column(&old.name).filter(|new| !new.is_generated);
            !old.is_generated && new.is_some_and(|new| new.form == old.form) && is_taken(&old.name)
        };
        self.old.columns.iter().filter(is_same).map(|it| it.name.clone()).collect()
    }

    /// The columns of the table that its foreign keys have, or those to it.
    pub(super) fn columns_of_keys(&self) -> Result<Vec<String>> {
        let sql = "SELECT DISTINCT iif(child.name = ?1 COLLATE NOCASE, key.\"from\", NULL) AS it \
                   FROM main.sqlite_schema AS child, \
                   pragma_foreign_key_list(child.name, 'main') AS key \
                   WHERE child.type = 'table' AND it IS NOT NULL UNION SELECT key.\"to\" \
                   FROM main.sqlite_schema AS child, \
                   pragma_foreign_key_list(child.name, 'main') AS key \
                   WHERE child.type = 'table' AND key.\"table\" = ?1 COLLATE NOCASE \
                   AND key.\"to\" IS NOT NULL";
        all(self.connection.raw(), sql, [&self.table], |row| row.get(0))
    }

    /// The columns of each unique index, with their collations. Refused are indexes in which a
    /// trigger before a write cannot tell what the row will have: of expressions and generated
    /// columns, and where a default takes the place of NULL; and triggers that may change the row.
    pub(super) fn uniques(&mut self) -> Result<Vec<Vec<(String, String)>>> {
        let raw = self.connection.raw();
        let sql = "SELECT name, partial FROM pragma_index_list(?1, 'main') WHERE \"unique\"";
        let of = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?));
        let (mut uniques, mut unforeseen) = (Vec::new(), Vec::new());
        for (index, is_partial) in all(raw, sql, [&self.table], of)? {
            let sql = "SELECT it.name, part.coll FROM pragma_index_xinfo(?1, 'main') AS part \
                       LEFT JOIN pragma_table_xinfo(?2, 'main') AS it ON it.cid = part.cid AND \
                       it.hidden = 0 AND (it.dflt_value IS NULL OR NOT it.\"notnull\") \
                       WHERE part.key";
            let of = |row: &Row<'_>| Ok(row.get::<_, Option<String>>(0)?.zip(row.get(1)?));
            let columns = all(raw, sql, [&index, &self.table], of)?;
            match columns.into_iter().collect::<Option<Vec<_>>>().filter(|_| !is_partial) {
                Some(columns) => uniques.push(columns),
                None => unforeseen.push(index),
            }
        }
        if !unforeseen.is_empty() {
            self.refuse(format!(
                "the unique index {} (partial, or with an expression, a generated column, or one \
                 that is NOT NULL with a DEFAULT)",
                unforeseen.join(", ")
            ));
        }
        let before = self.attached.triggers.iter().find(|it| is_before_update(&it.sql));
        if let Some(name) = before.map(|it| &it.name).filter(|_| !uniques.is_empty()) {
            let name = name.clone();
            self.refuse(format!(
                "the trigger {name} before an UPDATE, beside a unique index: it may change what \
                 the row has there"
            ));
        }
        Ok(uniques)
    }

    /// # Errors
    /// `SQLITE_AUTH` with all that was refused.
    pub(super) fn faults_online(&mut self) -> Result<()> {
        let refusals = std::mem::take(&mut self.faults.refusals).join("; ");
        let text = format!(
            "{} cannot be rebuilt online with {refusals}: drop each of these in a migration before \
             it, or {OFFLINE}",
            self.table
        );
        refuse((!refusals.is_empty()).then_some(text))
    }
}

pub(super) fn without_key(table: &str) -> rusqlite::Error {
    let why = "it has no INTEGER PRIMARY KEY, or another one behind it";
    failure(ffi::SQLITE_AUTH, format!("{table} is not rebuilt online: {why}; {OFFLINE}"))
}

/// The foreign keys of `table`: the parent and the columns of each.
pub(super) fn keys_of(connection: &Connection, table: &str) -> Result<Vec<(String, String)>> {
    let sql = "SELECT lower(max(\"table\")), \
               lower(group_concat(\"from\" || ' ' || coalesce(\"to\", ''))) FROM \
               (SELECT * FROM pragma_foreign_key_list(?1, 'main') ORDER BY id, seq) GROUP BY id";
    all(connection.raw(), sql, [table], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Rows of which the new table has one of these columns otherwise. An affinity is not always
/// applied when a value is written first: a number in a text with a zero byte may be a text in the
/// old table, and becomes a number in a copy.
fn otherwise(both: &str, key: &str, columns: &[String]) -> Forbidden {
    let differs = columns.iter().map(|it| {
        let [old, new] = ["old", "new"].map(|table| format!("{table}.{}", quoted(it)));
        format!("typeof({old}) <> typeof({new}) OR {old} COLLATE BINARY IS NOT {new}")
    });
    let tail = format!(" AND ({})", differs.collect::<Vec<_>>().join(" OR "));
    let why = "the new table stores a value of it otherwise".into();
    Forbidden { head: both.to_owned(), key: format!("old.{key}"), tail, why }
}

/// Whether the program of `query` reads one table, and makes of each row another one.
fn is_row_by_row(raw: &rusqlite::Connection, query: &str) -> Result<bool> {
    let mut explain = match raw.prepare(&format!("EXPLAIN {query}")) {
        Err(error) => return Err(failure(ffi::SQLITE_AUTH, fault(error)?)),
        Ok(explain) => explain,
    };
    let codes: Vec<String> = explain.query_map((), |row| row.get(1))?.collect::<Result<_>>()?;
    let opened: Vec<_> = codes.iter().filter(|it| it.contains("Open")).collect();
    Ok(opened == ["OpenRead"] && !codes.iter().any(|it| it.starts_with("Agg") || it == "Count"))
}

/// Those that write which rows have changed. `uniques` are the columns, with their collations, that
/// `REPLACE` compares: it deletes the rows that are equal there, and fires no trigger for them.
///
/// `ON CONFLICT DO NOTHING`, unlike `OR IGNORE`, holds whatever the statement says that fires them.
pub(super) fn triggers(plan: &OnlinePlan, uniques: &[Vec<(String, String)>]) -> Vec<String> {
    let (table, key) = (quoted(&plan.table), quoted(&plan.key));
    let log =
        |which: &str| format!("INSERT INTO {DIRTY} VALUES ({which}.{key}) ON CONFLICT DO NOTHING;");
    let replaced: String = uniques
        .iter()
        .map(|columns| {
            let equal = columns.iter().map(|(column, collation)| {
                format!("{0} COLLATE {1} = NEW.{0}", quoted(column), quoted(collation))
            });
            let equal: Vec<_> = equal.collect();
            format!(
                "INSERT INTO {DIRTY} SELECT {key} FROM {table} WHERE {} ON CONFLICT DO NOTHING; ",
                equal.join(" AND ")
            )
        })
        .collect();
    noting_triggers(&format!("{SHADOW}_"), &plan.table, log, &replaced)
}
