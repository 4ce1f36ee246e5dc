//! Owns how a connection runs an `INSERT` whose key is left to SQLite: which second form it has
//! with the schema of the open transaction, and with which numbers that runs.
//!
//! # Invariants
//! - A form belongs to the text and to a committed schema, which its cookie names. A transaction
//!   that has changed the schema itself uses none: its cookie can come again with another schema.
//! - Both texts can be prepared, and have the same parameters and columns.

use std::sync::Arc;

use rusqlite::{OptionalExtension as _, Result, Statement};

use super::Connection;
use crate::names;
use crate::rowids::insert::{self, Insert, Key, quote};
use crate::rowids::{Counter, Form, GivenRowids, Giver, Numbering, Rowids};
use crate::signals::Traits;
use crate::verb::is_insert;

/// Rows of an `INSERT` that get numbers; more would make its program large, since SQLite handles
/// rows with a function one after another.
const MAX_ROWS: usize = 1_000;

/// Longest text of a statement that gets numbers: what is known of each text is kept.
const MAX_BYTES: usize = 1 << 16;

/// The names of a key that has none, where no column has them.
const HIDDEN: [&str; 3] = ["rowid", "_rowid_", "oid"];

impl Connection {
    /// As [`Connection::with_statement_and_traits`], for a statement whose rows are numbered so;
    /// gives the numbers that it was given, if it was given any.
    ///
    /// # Errors
    /// As [`Connection::with_statement_and_traits`].
    #[inline]
    pub fn with_numbered_statement<R>(
        &self,
        sql: &str,
        numbering: Numbering,
        run: impl FnOnce(&mut Statement<'_>, Traits) -> R,
    ) -> Result<(R, Option<GivenRowids>)> {
        let giver = self.giver.as_deref().filter(|giver| match numbering {
            Numbering::Plain => giver.rowids().is_used(),
            Numbering::New => true,
            Numbering::Again(given) => given.is_some(),
        });
        let form = giver.and_then(|giver| Some((giver, self.form_of(giver.rowids(), sql)?)));
        let Some((giver, form)) = form else {
            return Ok((self.with_statement_and_traits(sql, run)?, None));
        };
        match numbering {
            Numbering::Plain | Numbering::New => self.run_new(giver, &form, sql, numbering, run),
            Numbering::Again(given) => {
                let free = given.filter(|given| self.is_free(&form, *given));
                let Some(given) = free else {
                    return Ok((self.with_statement_and_traits(sql, run)?, None));
                };
                let ran = giver.during_again(given, || self.run_form(&form, run));
                Ok((ran?, Some(given)))
            }
        }
    }

    fn run_new<R>(
        &self,
        giver: &Giver,
        form: &Form,
        sql: &str,
        numbering: Numbering,
        run: impl FnOnce(&mut Statement<'_>, Traits) -> R,
    ) -> Result<(R, Option<GivenRowids>)> {
        let is_asked = numbering == Numbering::New || form.counter.has_given();
        let next = if is_asked { self.next_of_sqlite(form) } else { None };
        let is_wanted =
            |next: &i64| numbering == Numbering::New || form.counter.may_have_given(*next);
        let Some(least) = next.filter(is_wanted) else {
            return Ok((self.with_statement_and_traits(sql, run)?, None));
        };
        let (ran, given) = giver.during_new(form, least, || self.run_form(form, run));
        Ok((ran?, given))
    }

    fn run_form<R>(
        &self,
        form: &Form,
        run: impl FnOnce(&mut Statement<'_>, Traits) -> R,
    ) -> Result<R> {
        self.refuse_if_revoked()?;
        let run = || self.prepared.with_form(&form.text, (&self.signals, &self.counts), run);
        self.signals.numbering(run)
    }

    /// The number that SQLite would choose next; `None` when that is none, or cannot be asked.
    fn next_of_sqlite(&self, form: &Form) -> Option<i64> {
        let ask = |it: &mut Statement<'_>| it.query_row([], |row| row.get::<_, Option<i64>>(0));
        let largest = self.signals.as_engine(|| self.prepared.with_own_text(&form.largest, ask));
        largest.ok()?.map_or(Some(1), |largest| largest.checked_add(1))
    }

    /// Whether nobody has the numbers that were `given`.
    fn is_free(&self, form: &Form, given: GivenRowids) -> bool {
        let (first, last) = (given.first, given.last());
        let ask = |it: &mut Statement<'_>| it.query_row([first, last], |row| row.get::<_, bool>(0));
        let is_taken = self.signals.as_engine(|| self.prepared.with_own_text(&form.is_taken, ask));
        is_taken == Ok(false)
    }

    fn form_of(&self, rowids: &Rowids, sql: &str) -> Option<Arc<Form>> {
        if !is_insert(sql) || sql.len() > MAX_BYTES || self.may_have_changed_schema() {
            return None;
        }
        let cookie = self.open_cookie()?;
        if let Some(known) = rowids.known(sql, cookie) {
            return known;
        }
        let form = self.make_form(rowids, sql).unwrap_or_else(|_| {
            // Nobody is told of it, nor is of the reason.
            self.signals.take_denial();
            None
        });
        let form = form.map(Arc::new);
        rowids.remember(sql, cookie, form.clone());
        form
    }

    fn make_form(&self, rowids: &Rowids, sql: &str) -> Result<Option<Form>> {
        let Some(insert) = Insert::read(sql).filter(|insert| insert.rows() <= MAX_ROWS) else {
            return Ok(None);
        };
        let Some(table) = self.signals.as_engine(|| Table::of(self.raw(), &insert.table))? else {
            return Ok(None);
        };
        if !table.lets_keys_be_given(&insert) {
            return Ok(None);
        }
        let names: Vec<&str> = table.key.iter().map(String::as_str).collect();
        let key = Key { names: &names, columns: &table.columns };
        let Some(text) = insert.with_key(sql, key) else { return Ok(None) };
        if !self.is_alike(sql, &text)? {
            return Ok(None);
        }
        let rows = u32::try_from(insert.rows()).unwrap_or(u32::MAX);
        let counter = rowids.counter(&table.name);
        Ok(counter.map(|counter| table.form(text, rows, counter)))
    }

    /// Whether both texts can be prepared, and have the same parameters and columns.
    fn is_alike(&self, sql: &str, form: &str) -> Result<bool> {
        let shape = |statement: &Statement<'_>| {
            let parameters: Vec<Option<String>> = (1..=statement.parameter_count())
                .map(|index| statement.parameter_name(index).map(str::to_owned))
                .collect();
            let columns: Vec<Option<String>> = (0..statement.column_count())
                .map(|index| statement.column_name(index).ok().map(str::to_owned))
                .collect();
            (parameters, columns)
        };
        // What preparing them notes is none of what the transaction has done.
        self.unnoted(|| {
            let one = self.preparing(sql, || self.raw().prepare(sql))?;
            let numbering = || self.preparing(form, || self.raw().prepare(form));
            let other = self.signals.numbering(numbering)?;
            Ok(shape(&one) == shape(&other))
        })
    }
}

/// What is to be known of a table.
struct Table {
    name: String,
    /// The columns that get a value where none is named.
    columns: Vec<String>,
    /// The names of its key.
    key: Vec<String>,
    is_autoincrement: bool,
    /// Definitions of its triggers.
    triggers: Vec<String>,
    /// Whether there are triggers in the schema.
    has_triggers_somewhere: bool,
}

impl Table {
    /// The table `name`; `None` when it is none with rowids of its own.
    fn of(connection: &rusqlite::Connection, name: &str) -> Result<Option<Table>> {
        let sql = "SELECT name FROM pragma_table_list(?1) WHERE schema = 'main' AND type = 'table' \
                   AND NOT wr";
        let name = connection.query_row(sql, [name], |row| row.get::<_, String>(0)).optional()?;
        let Some(name) = name else { return Ok(None) };
        if names::is_ours(&name) || names::begins(&name, "sqlite_") {
            return Ok(None);
        }
        let mut ask = connection.prepare(
            "SELECT name, type, pk, hidden FROM pragma_table_xinfo(?1, 'main') ORDER BY cid",
        )?;
        let columns = ask
            .query_map([&name], |row| {
                Ok(Column {
                    name: row.get(0)?,
                    is_integer: row.get::<_, String>(1)?.eq_ignore_ascii_case("INTEGER"),
                    is_key: row.get(2)?,
                    is_hidden: row.get::<_, i64>(3)? != 0,
                })
            })?
            .collect::<Result<Vec<Column>>>()?;
        // `INTEGER PRIMARY KEY DESC` is no rowid and has an index.
        let sql = "SELECT EXISTS(SELECT 1 FROM pragma_index_list(?1, 'main') WHERE origin = 'pk')";
        let has_key_index: bool = connection.query_row(sql, [&name], |row| row.get(0))?;
        let mut keys = columns.iter().filter(|column| column.is_key);
        let alias = match (keys.next(), keys.next()) {
            (Some(key), None) if key.is_integer && !has_key_index => Some(key.name.clone()),
            _ => None,
        };
        let is_autoincrement = match &alias {
            Some(column) => {
                connection.column_metadata(Some("main"), name.as_str(), column.as_str())?.4
            }
            None => false,
        };
        let is_column = |name: &&str| columns.iter().any(|it| it.name.eq_ignore_ascii_case(name));
        let hidden = HIDDEN.into_iter().filter(|name| !is_column(name)).map(str::to_owned);
        let key = alias.into_iter().chain(hidden).collect();
        let mut ask = connection.prepare(
            "SELECT sql FROM main.sqlite_schema WHERE type = 'trigger' AND lower(tbl_name) = \
             lower(?1)",
        )?;
        let triggers = ask.query_map([&name], |row| row.get(0))?.collect::<Result<_>>()?;
        let sql = "SELECT EXISTS(SELECT 1 FROM main.sqlite_schema WHERE type = 'trigger')";
        let has_triggers_somewhere = connection.query_row(sql, [], |row| row.get(0))?;
        let columns = columns.into_iter().filter(|it| !it.is_hidden).map(|it| it.name).collect();
        let table =
            Table { name, columns, key, is_autoincrement, triggers, has_triggers_somewhere };
        Ok(Some(table))
    }

    /// Whether nothing but the chosen numbers is another thing when `insert` gets them from here.
    ///
    /// A trigger that runs before sees the number, and -1 where SQLite is to choose. One that
    /// inserts into the table itself has SQLite choose a number that the next row of the statement
    /// may have been given, or takes the place of what a `REPLACE` has found.
    fn lets_keys_be_given(&self, insert: &Insert) -> bool {
        let is_safe_with_triggers = insert.rows() == 1 || self.triggers.is_empty();
        let is_safe_with_others = !insert.may_change_others || !self.has_triggers_somewhere;
        self.triggers.iter().all(|it| insert::leaves_new_rows_alone(it))
            && is_safe_with_triggers
            && is_safe_with_others
            && !self.key.is_empty()
    }

    fn form(&self, text: String, rows: u32, counter: Arc<Counter>) -> Form {
        let (table, key) = (quote(&self.name), quote(&self.key[0]));
        let largest = if self.is_autoincrement {
            let name = self.name.replace('\'', "''");
            format!(
                "SELECT max(coalesce((SELECT max({key}) FROM main.{table}), 0), coalesce((SELECT \
                 max(CAST(seq AS INTEGER)) FROM main.sqlite_sequence WHERE name = '{name}'), 0))"
            )
        } else {
            format!("SELECT max({key}) FROM main.{table}")
        };
        let is_taken =
            format!("SELECT EXISTS(SELECT 1 FROM main.{table} WHERE {key} BETWEEN ?1 AND ?2)");
        let (text, largest, is_taken) = (text.into(), largest.into(), is_taken.into());
        Form { text, rows, largest, is_taken, counter }
    }
}

/// A column of a table.
struct Column {
    name: String,
    is_integer: bool,
    is_key: bool,
    is_hidden: bool,
}

#[cfg(test)]
mod tests;
