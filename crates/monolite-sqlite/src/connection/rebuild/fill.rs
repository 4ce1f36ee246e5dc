//! Owns how the new table gets its rows: by one statement, and one by one to find those that it
//! does not take.

use std::fmt::Write as _;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, Result, Row, ffi};

use super::attached::{Column, Shape};
use super::{Rebuild, SHADOW};
use crate::codes::failure;
use crate::names::quoted;

/// Rows that are named; a log shows them on one screen.
const NAMED: usize = 10;

/// Bytes of a value that are shown.
const SHOWN: usize = 40;

/// The names of a rowid that has none.
const ROWID: [&str; 3] = ["rowid", "_rowid_", "oid"];

/// What the new table is filled with.
#[derive(Debug)]
pub(super) struct Fill {
    /// The columns that get a value.
    pub(super) targets: Vec<String>,
    /// What they get.
    values: Vec<String>,
    /// Gives the values, as `c0`, `c1` …: this, which rows, and `tail`.
    head: String,
    tail: &'static str,
    /// Which of the targets say which row it is.
    pub(super) key: Vec<usize>,
    /// Which of them may have got another value than the source gives.
    converted: Vec<usize>,
    /// Whether a value may be another one than in the old table.
    pub(super) may_differ: bool,
    /// What to do about rows that the new table does not take.
    pub(super) remedy: &'static str,
}

/// What the key of the old table is called in a SELECT that an online rebuild limits to some rows.
const OLD_KEY: &str = "monolite_key";

const REMEDY: &str = "correct them in a statement before the CREATE TABLE, or convert them by a \
                      SELECT behind it";

impl Fill {
    /// That of `select`, or of the columns with the same names.
    ///
    /// # Errors
    /// `SQLITE_AUTH` when the SELECT gives other columns than it has to.
    pub(super) fn new(rebuild: &Rebuild<'_>, new: &Shape, select: Option<&str>) -> Result<Fill> {
        let numbers = "row_number() OVER ()".to_owned();
        let mut pairs: Vec<(String, String)> = Vec::new();
        let from = match select {
            None => {
                let both = new.columns.iter().filter(|it| !it.is_generated);
                let both = both.filter_map(|it| Some((it, rebuild.old.column(&it.name)?)));
                pairs.extend(both.map(|(new, old)| (new.name.clone(), quoted(&old.name))));
                format!("main.{}", quoted(&rebuild.table))
            }
            Some(select) => {
                let statement = rebuild.connection.raw().prepare(select)?;
                for column in statement.columns() {
                    pairs.push((target(new, column.name()), quoted(column.name())));
                }
                refuse_select(rebuild, new, &pairs)?;
                format!("({}\n", select.trim_end().trim_end_matches(';'))
            }
        };
        let tail = if select.is_some() { ")" } else { "" };
        let has = |name: &str| pairs.iter().any(|(it, _)| it.eq_ignore_ascii_case(name));
        if let Some(rowid) = new.rowid.as_ref().filter(|it| !has(it)) {
            let old = rebuild.old.rowid.as_deref().filter(|_| select.is_none()).map(quoted);
            pairs.insert(0, (rowid.clone(), old.unwrap_or(numbers)));
        }
        let at = |name: &str| pairs.iter().position(|(it, _)| it.eq_ignore_ascii_case(name));
        let key = match &new.rowid {
            Some(rowid) => at(rowid).into_iter().collect(),
            None => {
                let mut key: Vec<_> = new.columns.iter().filter(|it| it.place_in_key > 0).collect();
                key.sort_by_key(|it| it.place_in_key);
                key.into_iter().filter_map(|it| at(&it.name)).collect()
            }
        };
        let is_converted = |it: &&Column| {
            let old = rebuild.old.column(&it.name).filter(|_| select.is_none());
            old.is_none_or(|old| old.form != it.form)
        };
        let converted = new.columns.iter().filter(is_converted).filter_map(|it| at(&it.name));
        let converted: Vec<_> = converted.collect();
        let values = pairs.iter().enumerate().map(|(at, (_, value))| format!("{value} AS c{at}"));
        let head = format!("SELECT {} FROM {from}", values.collect::<Vec<_>>().join(", "));
        let may_differ = select.is_some() || !converted.is_empty();
        let (targets, values) = pairs.into_iter().unzip();
        Ok(Fill { targets, values, head, tail, key, converted, may_differ, remedy: REMEDY })
    }

    /// Has the SELECT, which can be limited to some rows by what comes behind it, give the old
    /// `key`
    /// of each row too, and takes that for the new one. `from` is where its FROM is. Gives what is
    /// before and behind that limit in a query for the old keys of rows whose key it changes.
    pub(super) fn keep_key(&mut self, select: &str, from: usize, key: &str) -> (String, String) {
        let select = select.trim_end().trim_end_matches(';');
        let (items, table) = select.split_at(from);
        let inner = format!("({items}, {} AS {OLD_KEY} {table}\n", quoted(key));
        let own = std::mem::replace(&mut self.values[self.key[0]], OLD_KEY.into());
        let values = self.values.iter().enumerate().map(|(at, value)| format!("{value} AS c{at}"));
        self.head = format!("SELECT {} FROM {inner}", values.collect::<Vec<_>>().join(", "));
        (format!("SELECT {OLD_KEY} FROM {inner}"), format!(") WHERE {own} IS NOT {OLD_KEY}"))
    }

    /// Gives the values of the rows that the clause `only` lets through.
    pub(super) fn source(&self, only: &str) -> String {
        format!("{}{only}{}", self.head, self.tail)
    }

    /// The statement that fills the table with them. `OR ABORT` has no conflict clause of the table
    /// drop rows.
    pub(super) fn insert(&self, only: &str) -> String {
        format!("{} {}", self.into(), self.source(only))
    }

    fn into(&self) -> String {
        let targets: Vec<_> = self.targets.iter().map(|it| quoted(it)).collect();
        format!("INSERT OR ABORT INTO main.{SHADOW}({})", targets.join(", "))
    }

    /// Says which rows have a value that is another one as the type of its new column: that cannot
    /// be converted back.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(super) fn find_lost(&self, connection: &Connection, only: &str) -> Result<Option<String>> {
        if self.converted.is_empty() || self.key.is_empty() {
            return Ok(None);
        }
        let of_new = |at: &usize| format!("new.{}", quoted(&self.targets[*at]));
        let lost = self.converted.iter().fold(String::new(), |mut text, at| {
            let (old, new) = (format!("old.c{at}"), of_new(at));
            let name = self.targets[*at].replace('\'', "''");
            let _ = write!(
                text,
                " WHEN typeof({old}) <> typeof({new}) AND (+{old}) IS NOT (CASE typeof({old}) WHEN \
                 'integer' THEN CAST({new} AS INTEGER) WHEN 'real' THEN CAST({new} AS REAL) ELSE \
                 CAST({new} AS TEXT) END) COLLATE BINARY THEN '{name}: ' || \
                 substr(quote({old}), 1, {SHOWN}) || ' would become ' || \
                 substr(quote({new}), 1, {SHOWN})"
            );
            text
        });
        let same = self.key.iter().map(|at| format!("{} = old.c{at}", of_new(at)));
        let sql = format!(
            "SELECT * FROM (SELECT old.*, CASE{lost} END AS lost FROM ({}) AS old JOIN \
             main.{SHADOW} AS new ON {}) WHERE lost IS NOT NULL",
            self.source(only),
            same.collect::<Vec<_>>().join(" AND ")
        );
        let (mut find, mut found) = (connection.prepare(&sql)?, Found::default());
        let mut rows = find.query(())?;
        while let Some(row) = rows.next()? {
            found.add(|| Ok(format!("{}: {}", self.name(row)?, row.get::<_, String>("lost")?)))?;
        }
        Ok(found.told("would lose a part of a value", self.remedy))
    }

    /// Says which rows the new table does not take; those that it takes are in it.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(super) fn find_refused(
        &self,
        connection: &Connection,
        only: &str,
    ) -> Result<Option<String>> {
        let places: Vec<_> = (1..=self.targets.len()).map(|at| format!("?{at}")).collect();
        let insert = format!("{} VALUES ({})", self.into(), places.join(", "));
        let (mut insert, mut found) = (connection.prepare(&insert)?, Found::default());
        let mut select = connection.prepare(&self.source(only))?;
        let mut rows = select.query(())?;
        while let Some(row) = rows.next()? {
            for at in 0..self.targets.len() {
                insert.raw_bind_parameter(at + 1, ToSqlOutput::Borrowed(row.get_ref(at)?))?;
            }
            match insert.raw_execute() {
                Err(error) if is_of_row(&error) => {
                    let why = super::reason(&error);
                    found.add(|| Ok(format!("{}: {why}", self.name(row)?)))?;
                }
                done => drop(done?),
            }
        }
        Ok(found.told("cannot be in the new table", self.remedy))
    }

    /// What tells a row from others.
    fn name(&self, row: &Row<'_>) -> Result<String> {
        let value = |at: &usize| Ok(format!("{} {}", self.targets[*at], shown(row.get_ref(*at)?)));
        Ok(self.key.iter().map(value).collect::<Result<Vec<_>>>()?.join(", "))
    }
}

/// Rows that were found.
#[derive(Default)]
struct Found {
    count: u64,
    named: Vec<String>,
}

impl Found {
    fn add(&mut self, name: impl FnOnce() -> Result<String>) -> Result<()> {
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push(name()?);
        }
        Ok(())
    }

    fn told(self, what: &str, remedy: &str) -> Option<String> {
        let more = self.count - self.named.len() as u64;
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let rows = if self.count == 1 { "1 row" } else { &format!("{} rows", self.count) };
        (self.count > 0)
            .then(|| format!("{rows} {what} ({}{more}): {remedy}", self.named.join("; ")))
    }
}

/// The column of `new` that the column `name` of a SELECT is for.
fn target(new: &Shape, name: &str) -> String {
    let is_rowid = ROWID.iter().any(|it| it.eq_ignore_ascii_case(name));
    match &new.rowid {
        Some(rowid) if is_rowid && new.column(name).is_none() => rowid.clone(),
        _ => name.to_owned(),
    }
}

/// # Errors
/// `SQLITE_AUTH` when the columns that a SELECT gives are not those of the new table, or one that
/// both tables have is not among them.
fn refuse_select(rebuild: &Rebuild<'_>, new: &Shape, pairs: &[(String, String)]) -> Result<()> {
    let has = |name: &str| pairs.iter().any(|(it, _)| it.eq_ignore_ascii_case(name));
    let mut refusals = Vec::new();
    for (at, (name, _)) in pairs.iter().enumerate() {
        let is_rowid = new.rowid.as_ref() == Some(name);
        match new.column(name) {
            Some(column) if column.is_generated => {
                refusals.push(format!("{name} is computed: leave it out"));
            }
            None if !is_rowid => refusals.push(format!(
                "{name} is no column of the new table: leave it out, or give it a name with AS"
            )),
            _ => {}
        }
        if pairs[..at].iter().any(|(it, _)| it.eq_ignore_ascii_case(name)) {
            refusals.push(format!("{name} is there twice"));
        }
    }
    for column in new.columns.iter().filter(|it| !it.is_generated && !has(&it.name)) {
        if rebuild.old.column(&column.name).is_some() {
            refusals.push(format!("{0} is missing: add it, or NULL AS {0}", column.name));
        }
    }
    if let Some(rowid) = new.rowid.as_deref().filter(|it| !has(it) && rebuild.old.rowid.is_some()) {
        refusals.push(format!("{rowid}, which tells a row from others, is missing: add it"));
    }
    refusals.sort();
    refusals.dedup();
    if refusals.is_empty() {
        return Ok(());
    }
    let text = format!("the SELECT for {} is refused: {}", rebuild.table, refusals.join("; "));
    Err(failure(ffi::SQLITE_AUTH, text))
}

/// Whether `error` is that of one row.
pub(super) fn is_of_row(error: &rusqlite::Error) -> bool {
    let of_row = [ErrorCode::ConstraintViolation, ErrorCode::TypeMismatch];
    error.sqlite_error_code().is_some_and(|code| of_row.contains(&code))
}

fn shown(value: ValueRef<'_>) -> String {
    let text = match value {
        ValueRef::Null => "NULL".into(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => format!("'{}'", String::from_utf8_lossy(text)),
        ValueRef::Blob(blob) => {
            blob.iter()
                .take(SHOWN)
                .fold(String::from("x'"), |text, byte| format!("{text}{byte:02x}"))
                + "'"
        }
    };
    text.chars().take(SHOWN).collect()
}
