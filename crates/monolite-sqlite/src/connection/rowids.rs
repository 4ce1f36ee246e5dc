//! Owns how a connection runs an `INSERT` whose key is left to SQLite: which second form it has
//! with the schema of the open transaction, and with which numbers that runs.
//!
//! # Invariants
//! - A form that is kept belongs to the text and to a committed schema, which its cookie names.
//!   Behind a change of the schema none is kept: the cookie can come again with another schema.
//! - Both texts can be prepared, and have the same parameters and columns.

use std::sync::Arc;

use rusqlite::{Result, Statement};

use super::Connection;
use crate::rowids::table::Second;
use crate::rowids::{Form, GivenRowids, Giver, Numbering, Numbers, Rowids};
use crate::statements::Text;
use crate::traits::Traits;
use crate::verb::is_insert;

/// Rows of an `INSERT` that get numbers; more would make its program large, since SQLite handles
/// rows with a function one after another.
const MAX_ROWS: u32 = 1_000;

/// Longest text of a statement that gets numbers: what is known of each text is kept.
const MAX_BYTES: usize = 1 << 16;

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
        let form =
            giver.and_then(|giver| Some((giver, self.form_of(giver.rowids(), sql, numbering)?)));
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
                let numbers = Numbers::Again(given);
                let ran = giver.during(&form.counter, numbers, || self.run_form(&form, run)).0;
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
        // A number that SQLite chooses is taken as well: it may be promised at the same moment.
        let is_wanted = numbering == Numbering::New || form.counter.has_given();
        let least = if is_wanted { self.next_of_sqlite(form) } else { None };
        let Some(least) = least else {
            return Ok((self.with_statement_and_traits(sql, run)?, None));
        };
        let numbers = Numbers::New { least, rows: form.second.rows };
        let (ran, given) = giver.during(&form.counter, numbers, || self.run_form(form, run));
        if numbering == Numbering::New {
            giver.rowids().count(given);
        }
        Ok((ran?, given))
    }

    fn run_form<R>(
        &self,
        form: &Form,
        run: impl FnOnce(&mut Statement<'_>, Traits) -> R,
    ) -> Result<R> {
        self.refuse_if_revoked()?;
        let run = || self.prepared.with(Text::Second(&form.second.text), run);
        self.authorizer.numbering.during(run)
    }

    /// The number that SQLite would choose next; `None` when that is none, or cannot be asked.
    fn next_of_sqlite(&self, form: &Form) -> Option<i64> {
        let ask = |it: &mut Statement<'_>| it.query_row([], |row| row.get::<_, Option<i64>>(0));
        let largest = self.as_engine(|| self.prepared.with_own_text(&form.second.largest, ask));
        largest.ok()?.map_or(Some(1), |largest| largest.checked_add(1))
    }

    /// Whether no row has the numbers that were `given`, nor ever had one in a table that never
    /// reuses them.
    fn is_free(&self, form: &Form, given: GivenRowids) -> bool {
        if form.counter.has_lost(given) {
            return false;
        }
        let (first, last) = (given.first(), given.last());
        let ask = |it: &mut Statement<'_>| it.query_row([first, last], |row| row.get::<_, bool>(0));
        let is_taken = self.as_engine(|| self.prepared.with_own_text(&form.second.is_taken, ask));
        is_taken == Ok(false)
    }

    /// Does `what` with what the open transaction has taken of promised numbers.
    #[inline]
    pub(super) fn note_taken(&self, what: impl FnOnce(&Giver)) {
        if let Some(giver) = self.giver.as_deref().filter(|giver| giver.rowids().is_used()) {
            what(giver);
        }
    }

    /// Before a commit: forgets what failed statements had taken.
    pub(super) fn settle_taken(&self, giver: &Giver) {
        if !giver.has_pending() {
            return;
        }
        const LAST: &str =
            "SELECT max(CAST(seq AS INTEGER)) FROM main.sqlite_sequence WHERE name = ?1";
        let last_of = |table: &str| {
            let ask = |it: &mut Statement<'_>| it.query_row([table], |row| row.get(0));
            self.as_engine(|| self.prepared.with_own_text(LAST, ask)).ok()?
        };
        giver.settle(last_of);
    }

    /// The second form of `sql`, if it has one. Behind a change of the schema that is not committed
    /// it is found anew, and only for numbers that were given before.
    fn form_of(&self, rowids: &Rowids, sql: &str, numbering: Numbering) -> Option<Arc<Form>> {
        if !is_insert(sql) || sql.len() > MAX_BYTES {
            return None;
        }
        if self.may_have_changed_schema() {
            let is_wanted = matches!(numbering, Numbering::Again(_));
            return is_wanted.then(|| self.find_form(rowids, sql)).flatten();
        }
        let cookie = self.pages().open_cookie()?;
        if let Some(known) = rowids.known(sql, cookie) {
            return known;
        }
        let form = self.find_form(rowids, sql);
        rowids.remember(sql, cookie, form.clone());
        form
    }

    fn find_form(&self, rowids: &Rowids, sql: &str) -> Option<Arc<Form>> {
        let form = self.make_form(rowids, sql).unwrap_or_else(|_| {
            // Neither the failure nor its reason is reported.
            self.authorizer.take_denial();
            None
        });
        form.map(Arc::new)
    }

    fn make_form(&self, rowids: &Rowids, sql: &str) -> Result<Option<Form>> {
        let second = self.as_engine(|| Second::of(self.raw(), sql))?;
        let Some(second) = second.filter(|second| second.rows <= MAX_ROWS) else {
            return Ok(None);
        };
        if !self.is_alike(sql, &second.text)? {
            return Ok(None);
        }
        let counter = rowids.counter(&second.table, second.never_reuses);
        Ok(counter.map(|counter| Form { second, counter }))
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
            let one = self.prepared.prepare(sql, || self.raw().prepare(sql))?;
            let numbering = || self.prepared.prepare(form, || self.raw().prepare(form));
            let other = self.authorizer.numbering.during(numbering)?;
            Ok(shape(&one) == shape(&other))
        })
    }
}

#[cfg(test)]
mod tests;
