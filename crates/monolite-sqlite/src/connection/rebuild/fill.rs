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
    targets: Vec<String>,
    /// Gives the values, as `c0`, `c1` ….
    source: String,
    /// Which of the targets say which row it is.
    key: Vec<usize>,
    /// Which of them may have got another value than the source gives.
    converted: Vec<usize>,
    /// Whether a value may be another one than in the old table.
    pub(super) may_differ: bool,
}

impl Fill {
    /// That of `select`, or of the columns with the same names.
    ///
    /// # Errors
    /// `SQLITE_AUTH` when the SELECT gives other columns than it has to.
    pub(super) fn new(rebuild: &Rebuild<'_>, new: &Shape, select: Option<&str>) -> Result<Fill> {
        // By that name a full-text table asks for its contents, and most SQL for rowids.
        let hides_rowid = |it: &&Column| {
            it.name.eq_ignore_ascii_case("rowid")
                && new.rowid.as_ref() != Some(&it.name)
                && rebuild.old.column("rowid").is_none()
        };
        if let Some(Column { name, .. }) = new.columns.iter().find(hides_rowid) {
            let text = format!(
                "{} is not rebuilt: a column {name} would hide the rowid; give it another name",
                rebuild.table
            );
            return Err(failure(ffi::SQLITE_AUTH, text));
        }
        let numbers = "row_number() OVER ()".to_owned();
        let mut pairs: Vec<(String, String)> = Vec::new();
        let from = match select {
            None => {
                let is_stored = |it: &&Column| {
                    rebuild.old.column(&it.name).is_some_and(|old| !old.is_generated)
                };
                let computed = new.columns.iter().filter(|it| it.is_generated).find(is_stored);
                if let Some(Column { name, .. }) = computed {
                    let text = format!(
                        "{} is not rebuilt: {name} has values, and would be computed; if these may \
                         go, leave it out in a SELECT behind the CREATE TABLE",
                        rebuild.table
                    );
                    return Err(failure(ffi::SQLITE_AUTH, text));
                }
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
                format!("({}\n)", select.trim_end().trim_end_matches(';'))
            }
        };
        let has = |name: &str| pairs.iter().any(|(it, _)| it.eq_ignore_ascii_case(name));
        if let Some(rowid) = new.rowid.as_ref().filter(|it| !has(it)) {
            let old = rebuild.old.rowid.as_deref().filter(|_| select.is_none()).map(quoted);
            pairs.insert(0, (rowid.clone(), old.unwrap_or(numbers)));
        }
        let at = |name: &str| pairs.iter().position(|(it, _)| it.eq_ignore_ascii_case(name));
        let key = match &new.rowid {
            Some(rowid) => at(rowid).into_iter().collect(),
            None => new.primary_key().iter().filter_map(|it| at(it)).collect(),
        };
        let is_converted = |it: &&Column| {
            let old = rebuild.old.column(&it.name).filter(|_| select.is_none());
            old.is_none_or(|old| old.form != it.form)
        };
        let converted = new.columns.iter().filter(is_converted).filter_map(|it| at(&it.name));
        let converted: Vec<_> = converted.collect();
        let values = pairs.iter().enumerate().map(|(at, (_, value))| format!("{value} AS c{at}"));
        let source = format!("SELECT {} FROM {from}", values.collect::<Vec<_>>().join(", "));
        let is_same_key = new
            .rowid
            .as_ref()
            .is_none_or(|it| new.column(it).is_none() || Some(it) == rebuild.old.rowid.as_ref());
        let may_differ = select.is_some() || !converted.is_empty() || !is_same_key;
        let targets = pairs.into_iter().map(|(target, _)| target).collect();
        Ok(Fill { targets, source, key, converted, may_differ })
    }

    /// The statement that fills the table. `OR ABORT` has no conflict clause of the table drop
    /// rows.
    pub(super) fn insert(&self) -> String {
        format!("{} {}", self.into(), self.source)
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
    pub(super) fn find_lost(&self, connection: &Connection) -> Result<Option<String>> {
        if !self.may_differ || self.key.is_empty() {
            return Ok(None);
        }
        let of_new = |at: &usize| format!("new.{}", quoted(&self.targets[*at]));
        // A NULL as the key becomes a number, and no row of the source has that one.
        let first = self.targets[self.key[0]].replace('\'', "''");
        let none = format!(
            " WHEN {} IS NULL THEN '{first} would become another number'",
            of_new(&self.key[0])
        );
        let lost = self.converted.iter().fold(none, |mut text, at| {
            let (old, new) = (format!("old.c{at}"), of_new(at));
            let name = self.targets[*at].replace('\'', "''");
            let _ = write!(
                text,
                " WHEN typeof({old}) <> typeof({new}) AND (+{old}) IS NOT (CASE WHEN \
                 typeof({new}) IN ('integer', 'real') AND typeof({old}) <> 'text' THEN +{new} WHEN \
                 typeof({old}) = 'integer' THEN CAST({new} AS INTEGER) WHEN typeof({old}) = 'real' \
                 THEN CAST({new} AS REAL) ELSE CAST({new} AS TEXT) END) COLLATE BINARY THEN \
                 '{name}: ' || substr(quote({old}), 1, {SHOWN}) || ' would become ' || \
                 substr(quote({new}), 1, {SHOWN})"
            );
            text
        });
        let same = self.key.iter().map(|at| format!("{} = old.c{at}", of_new(at)));
        let sql = format!(
            "SELECT * FROM (SELECT old.*, CASE{lost} END AS lost FROM ({}) AS old LEFT JOIN \
             main.{SHADOW} AS new ON {}) WHERE lost IS NOT NULL",
            self.source,
            same.collect::<Vec<_>>().join(" AND ")
        );
        let (mut find, mut found) = (connection.prepare(&sql)?, Found::default());
        let mut rows = find.query(())?;
        while let Some(row) = rows.next()? {
            found.add(|| Ok(format!("{}: {}", self.name(row)?, row.get::<_, String>("lost")?)))?;
        }
        Ok(found.told("would lose a part of a value"))
    }

    /// Says which rows the new table does not take; those that it takes are in it.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(super) fn find_refused(&self, connection: &Connection) -> Result<Option<String>> {
        let places: Vec<_> = (1..=self.targets.len()).map(|at| format!("?{at}")).collect();
        let insert = format!("{} VALUES ({})", self.into(), places.join(", "));
        let (mut insert, mut found) = (connection.prepare(&insert)?, Found::default());
        let mut select = connection.prepare(&self.source)?;
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
        Ok(found.told("cannot be in the new table"))
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

    fn told(self, what: &str) -> Option<String> {
        let more = self.count - self.named.len() as u64;
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let rows = if self.count == 1 { "1 row" } else { &format!("{} rows", self.count) };
        (self.count > 0).then(|| {
            format!(
                "{rows} {what} ({}{more}): correct them in a statement before the CREATE TABLE, or \
                 convert them by a SELECT behind it",
                self.named.join("; ")
            )
        })
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
