//! Owns how the new table gets its rows: by one statement, and one by one to find those that it
//! does not take.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, Result, Row, Statement, ffi};

use super::attached::{Column, Shape};
use super::text::ROWID;
use super::{Rebuild, SHADOW};
use crate::codes::failure;
use crate::names::quoted;

/// Rows that are named; a log shows them on one screen.
const NAMED: usize = 10;

/// Keys of such rows that are kept: more than a step of an online rebuild has rows.
const KEPT: usize = 100_000;

/// Bytes of a value that are shown.
const SHOWN: usize = 40;

/// What the new table is filled with.
#[derive(Debug)]
pub(super) struct Fill {
    /// The columns that get a value.
    pub(super) targets: Vec<String>,
    /// What they get.
    values: Vec<String>,
    /// The columns of [`GIVEN`].
    given: Vec<String>,
    /// Gives the values, as `c0`, `c1` …: this, which rows, and `tail`.
    head: String,
    tail: String,
    /// Which of the targets say which row it is.
    pub(super) key: Vec<usize>,
    /// Whether a value may be another one than in the old table.
    pub(super) may_differ: bool,
}

/// What the key of the old table is called in a SELECT that an online rebuild limits to some rows.
const OLD_KEY: &str = "monolite_key";

/// What the rows of a SELECT are called. Its columns are `n0`, `n1` …: a subquery may call them
/// otherwise than the SELECT alone.
const GIVEN: &str = "monolite_given";

/// What to do about rows that the new table does not take.
pub(super) const REMEDY: &str = "correct them in a statement before the CREATE TABLE, or convert \
                                 them by a SELECT behind it";

impl Fill {
    /// That of `select`, or of the columns with the same names.
    ///
    /// # Errors
    /// `SQLITE_AUTH` when the SELECT gives other columns than it has to.
    pub(super) fn new(rebuild: &Rebuild<'_>, new: &Shape, select: Option<&str>) -> Result<Fill> {
        refuse_columns(rebuild, new, select)?;
        let numbers = "row_number() OVER ()".to_owned();
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut given: Vec<String> = Vec::new();
        let from = match select {
            None => {
                let both = new.columns.iter().filter(|it| !it.is_generated);
                let both = both.filter_map(|it| Some((it, rebuild.old.column(&it.name)?)));
                pairs.extend(both.map(|(new, old)| (new.name.clone(), quoted(&old.name))));
                format!("main.{}", quoted(&rebuild.table))
            }
            Some(select) => {
                let statement = rebuild.connection.raw().prepare(select)?;
                for (at, column) in std::iter::zip(0.., statement.columns()) {
                    pairs.push((target(new, column.name()), format!("n{at}")));
                }
                refuse_select(rebuild, new, &pairs)?;
                given = (0..pairs.len()).map(|at| format!("n{at}")).collect();
                GIVEN.to_owned()
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
        let is_any_converted =
            new.columns.iter().filter(is_converted).any(|it| at(&it.name).is_some());
        let is_same_key = new
            .rowid
            .as_ref()
            .is_none_or(|it| new.column(it).is_none() || Some(it) == rebuild.old.rowid.as_ref());
        let may_differ = select.is_some() || is_any_converted || !is_same_key;
        let (targets, values): (_, Vec<_>) = pairs.into_iter().unzip();
        let values_from = format!("{} FROM {from}", named(&values));
        let (head, tail) = match select {
            None => (format!("SELECT {values_from}"), String::new()),
            Some(select) => (head_of(&given, own(select)), format!(") SELECT {values_from}")),
        };
        Ok(Fill { targets, values, given, head, tail, key, may_differ })
    }

    /// Has the SELECT, which can be limited to some rows by what comes behind it, give the old
    /// `key` of each row too, and takes that for the new one. `from` is where its FROM is. Gives
    /// what is before and behind that limit in a query for the old keys of rows whose key it
    /// changes.
    pub(super) fn keep_key(&mut self, select: &str, from: usize, key: &str) -> (String, String) {
        let (items, table) = own(select).split_at(from);
        self.given.push(OLD_KEY.into());
        self.head = head_of(&self.given, &format!("{items}, {} AS {OLD_KEY} {table}", quoted(key)));
        let own = std::mem::replace(&mut self.values[self.key[0]], OLD_KEY.into());
        self.tail = format!(") SELECT {} FROM {GIVEN}", named(&self.values));
        let changed = format!(") SELECT {OLD_KEY} FROM {GIVEN} WHERE {own} IS NOT {OLD_KEY}");
        (self.head.clone(), changed)
    }

    /// Gives the values of the rows that the clause `only` lets through.
    pub(super) fn source(&self, only: &str) -> String {
        format!("{}{only}{}", self.head, self.tail)
    }

    fn into(&self) -> String {
        let targets: Vec<_> = self.targets.iter().map(|it| quoted(it)).collect();
        format!("INSERT OR ABORT INTO main.{SHADOW}({})", targets.join(", "))
    }

    /// Fills the table with the rows that `only` lets through. Gives how many there are, and which
    /// of them have got a value that is another one as the type of its column. `OR ABORT` has no
    /// conflict clause of the table drop rows.
    ///
    /// # Errors
    /// Those of SQLite; of a row that the new table does not take, with some of the others in it.
    pub(super) fn copy(&self, connection: &Connection, only: &str) -> Result<(u64, Found)> {
        if self.may_differ {
            return self.copy_each(connection, only, |_| false);
        }
        let insert = format!("{} {}", self.into(), self.source(only));
        Ok((connection.execute(&insert, ())? as u64, Found::default()))
    }

    /// The same, without the rows that the new table does not take: they are found, too.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(super) fn copy_what_fits(
        &self,
        connection: &Connection,
        only: &str,
    ) -> Result<(u64, Found)> {
        self.copy_each(connection, only, is_of_row)
    }

    fn copy_each(
        &self,
        connection: &Connection,
        only: &str,
        is_left_out: fn(&rusqlite::Error) -> bool,
    ) -> Result<(u64, Found)> {
        let returned: Vec<_> = self.targets.iter().map(|it| quoted(it)).collect();
        let insert = format!("{} RETURNING {}", self.insert_one(), returned.join(", "));
        let (mut insert, mut found) = (connection.prepare(&insert)?, Found::default());
        let mut as_text = connection.prepare("SELECT CAST(?1 AS TEXT)")?;
        let (mut select, mut count) = (connection.prepare(&self.source(only))?, 0);
        let mut rows = select.query(())?;
        while let Some(row) = rows.next()? {
            count += 1;
            self.bind(&mut insert, row)?;
            let mut inserted = insert.raw_query();
            let new = match inserted.next() {
                Err(error) if is_left_out(&error) => {
                    found.is_refused = true;
                    self.note(row, &super::reason(&error), &mut found)?;
                    continue;
                }
                new => new?,
            };
            let Some(new) = new else { continue };
            for (at, target) in self.targets.iter().enumerate() {
                let (old, new) = (row.get_ref(at)?, new.get_ref(at)?);
                if !is_kept(old, new, &mut as_text)? {
                    let lost = format!("{target}: {} would become {}", shown(old), shown(new));
                    self.note(row, &lost, &mut found)?;
                    break;
                }
            }
            while inserted.next()?.is_some() {}
        }
        Ok((count, found))
    }

    /// Inserts one row, with its values as parameters.
    fn insert_one(&self) -> String {
        let places: Vec<_> = (1..=self.targets.len()).map(|at| format!("?{at}")).collect();
        format!("{} VALUES ({})", self.into(), places.join(", "))
    }

    fn bind(&self, insert: &mut Statement<'_>, row: &Row<'_>) -> Result<()> {
        (0..self.targets.len()).try_for_each(|at| {
            insert.raw_bind_parameter(at + 1, ToSqlOutput::Borrowed(row.get_ref(at)?))
        })
    }

    fn note(&self, row: &Row<'_>, why: &str, found: &mut Found) -> Result<()> {
        found.count += 1;
        if found.named.len() < NAMED {
            found.named.push(self.name(row)? + why);
        }
        if let (true, [at]) = (found.keys.len() < KEPT, &self.key[..]) {
            found.keys.extend(row.get_ref(*at)?.as_i64());
        }
        Ok(())
    }

    /// What tells a row from others, before what is said of it; nothing where the key is new.
    fn name(&self, row: &Row<'_>) -> Result<String> {
        let value = |at: &usize| Ok(format!("{} {}", self.targets[*at], shown(row.get_ref(*at)?)));
        let name = self.key.iter().map(value).collect::<Result<Vec<_>>>()?.join(", ");
        Ok(if name.is_empty() { name } else { name + ": " })
    }
}

/// Rows that cannot be in the new table as they are.
#[derive(Default)]
pub(super) struct Found {
    pub(super) count: u64,
    /// Whether it has not taken one of them; otherwise they would lose something in it.
    is_refused: bool,
    named: Vec<String>,
    /// Their keys, if these are numbers; of so many at most as a step may have.
    pub(super) keys: Vec<i64>,
}

impl Found {
    pub(super) fn told(self, remedy: &str) -> Option<String> {
        let what = match self.is_refused {
            true => "cannot be in the new table",
            false => "would lose a part of a value",
        };
        let more = self.count - self.named.len() as u64;
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let rows = if self.count == 1 { "1 row" } else { &format!("{} rows", self.count) };
        (self.count > 0)
            .then(|| format!("{rows} {what} ({}{more}): {remedy}", self.named.join("; ")))
    }
}

/// `values`, called `c0`, `c1` ….
fn named(values: &[String]) -> String {
    let named = values.iter().enumerate().map(|(at, value)| format!("{value} AS c{at}"));
    named.collect::<Vec<_>>().join(", ")
}

/// `select` without its end.
fn own(select: &str) -> &str {
    select.trim_end().trim_end_matches(';')
}

/// What is before the clause that limits `select`. A comment in the end of its text ends there.
fn head_of(columns: &[String], select: &str) -> String {
    format!("WITH {GIVEN}({}) AS ({select}\n", columns.join(", "))
}

/// Whether `old` is stored as `new` so that it can be had back.
fn is_kept(old: ValueRef<'_>, new: ValueRef<'_>, as_text: &mut Statement<'_>) -> Result<bool> {
    use ValueRef::{Blob, Integer, Null, Real, Text};
    let said = |text| std::str::from_utf8(text).unwrap_or_default();
    let is_exact = |number: i64, real: f64| {
        // 2^63 as a real is none of the integers, and Rust would take it for the last one.
        number as f64 == real && real < i64::MAX as f64 && real as i64 == number
    };
    Ok(match (old, new) {
        (Null, Null) => true,
        (Integer(old), Integer(new)) => old == new,
        (Real(old), Real(new)) => old == new,
        (Text(old), Text(new)) | (Blob(old), Blob(new)) => old == new,
        (Integer(number), Real(real)) | (Real(real), Integer(number)) => is_exact(number, real),
        (Integer(number), Text(text)) | (Text(text), Integer(number)) => {
            said(text) == number.to_string()
        }
        (Real(real), Text(text)) => said(text).parse().is_ok_and(|it: f64| it == real),
        (Text(text), Real(real)) => {
            as_text.query_row([real], |row| Ok(row.get_ref(0)? == Text(text)))?
        }
        _ => false,
    })
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
/// `SQLITE_AUTH` when a column of the new table would hide the rowid, or have computed values in
/// the place of those that it has.
fn refuse_columns(rebuild: &Rebuild<'_>, new: &Shape, select: Option<&str>) -> Result<()> {
    let refuse = |why: String| {
        Err(failure(ffi::SQLITE_AUTH, format!("{} is not rebuilt: {why}", rebuild.table)))
    };
    // By that name a full-text table asks for its contents, and most SQL for rowids. By the others
    // a trigger can write them.
    let hides_rowid = |it: &&Column| {
        ROWID.iter().any(|name| it.name.eq_ignore_ascii_case(name))
            && new.rowid.as_ref() != Some(&it.name)
            && rebuild.old.column(&it.name).is_none()
    };
    if let Some(Column { name, .. }) = new.columns.iter().find(hides_rowid) {
        return refuse(format!("a column {name} would hide the rowid; give it another name"));
    }
    let is_stored =
        |it: &&Column| rebuild.old.column(&it.name).is_some_and(|old| !old.is_generated);
    let computed = new.columns.iter().filter(|it| it.is_generated).find(is_stored);
    if let Some(Column { name, .. }) = computed.filter(|_| select.is_none()) {
        return refuse(format!(
            "{name} has values, and would be computed; if these may go, leave it out in a SELECT \
             behind the CREATE TABLE"
        ));
    }
    Ok(())
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
        ValueRef::Real(number) => format!("{number:?}"),
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
