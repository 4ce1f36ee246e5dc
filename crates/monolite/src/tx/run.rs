//! Owns what is told of a statement whose text was not known in advance: all that it did, or what
//! it would be.

use monolite_sqlite::{Traits, is_insert, rusqlite};
use rusqlite::{Row, Statement};

use super::ReadTx;
use crate::error::Result;
use crate::parameters::Bind;

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The type in the definition of the table's column that it shows; `None` for an expression,
    /// and where the definition has none.
    pub declared_type: Option<String>,
}

/// What a statement has done, from [`ReadTx::run`] or
/// [`Transaction::run`](crate::Transaction::run).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ran<S> {
    /// What its rows were gathered in.
    pub rows: S,
    /// Its columns, also without rows; none of a statement that returns no rows.
    pub columns: Vec<Column>,
    /// Rows that it changed.
    pub changes: u64,
    /// The rowid of the last row inserted, as [`Tx::last_insert_rowid`](crate::Tx) tells it behind
    /// a statement that inserts; `None` if this one does not, or has changed no row. (In SQLite an
    /// upsert that updates leaves the rowid of an earlier insert.)
    pub last_insert_rowid: Option<i64>,
}

impl Ran<()> {
    pub(crate) fn with<S>(self, rows: S) -> Ran<S> {
        let Ran { rows: (), columns, changes, last_insert_rowid } = self;
        Ran { rows, columns, changes, last_insert_rowid }
    }
}

/// What a statement would be, from [`ReadTx::describe`] or
/// [`Transaction::describe`](crate::Transaction::describe).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The name of each parameter with its sigil (`:id`, `?1`); `None` for `?`.
    pub parameters: Vec<Option<String>>,
    /// Its columns; none of a statement that returns no rows.
    pub columns: Vec<Column>,
    /// Whether it is an `EXPLAIN` or `EXPLAIN QUERY PLAN`.
    pub is_explain: bool,
    /// Whether it changes nothing, so that a read can run it.
    pub is_read_only: bool,
}

impl Description {
    fn of(statement: &Statement<'_>, traits: Traits) -> Description {
        let name = |index| statement.parameter_name(index).map(str::to_owned);
        // SQLite says of an explained change that it writes.
        let is_explain = statement.is_explain() != 0;
        let only_reads = statement.readonly() && !traits.has(Traits::MAY_CHANGE);
        Description {
            parameters: (1..=statement.parameter_count()).map(name).collect(),
            columns: columns(statement),
            is_explain,
            is_read_only: is_explain || only_reads,
        }
    }
}

fn columns(statement: &Statement<'_>) -> Vec<Column> {
    let mut columns = Vec::with_capacity(statement.column_count());
    // Some versions of `rusqlite` give a vector, and some an iterator.
    for column in statement.columns() {
        let declared_type = column.decl_type().map(str::to_owned);
        columns.push(Column { name: column.name().to_owned(), declared_type });
    }
    columns
}

impl ReadTx<'_> {
    /// Runs one statement of any kind to its end, has `gather` add each row to `rows`, and tells
    /// what it did.
    ///
    /// ```
    /// # fn main() -> monolite::Result<()> {
    /// # let db = monolite::Database::open(":memory:")?;
    /// # let schema = "CREATE TABLE user(id INTEGER PRIMARY KEY, name TEXT)";
    /// # db.write(move |tx| tx.execute(schema, ())).wait()?;
    /// let sql = "INSERT INTO user(name) VALUES (?1), ('bob') RETURNING name";
    /// let write = db.write(move |tx| {
    ///     tx.run(sql, ["ann"], String::new(), |names, row| {
    ///         names.push_str(row.get_ref(0)?.as_str()?);
    ///         Ok(())
    ///     })
    /// });
    /// let ran = write.wait()?;
    /// assert_eq!((&*ran.rows, ran.changes, ran.last_insert_rowid), ("annbob", 2, Some(2)));
    /// assert_eq!(ran.columns[0].declared_type.as_deref(), Some("TEXT"));
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`ReadTx::query_map`].
    pub fn run<S, P, F>(&self, sql: &str, params: P, mut rows: S, mut gather: F) -> Result<Ran<S>>
    where
        P: Bind,
        F: FnMut(&mut S, &Row<'_>) -> rusqlite::Result<()>,
    {
        let ran = self.with_statement_and_traits(sql, |statement, traits| {
            self.note_run(sql, statement, traits, |statement| {
                let gather_all = || {
                    let mut found = params.query(statement)?;
                    while let Some(row) = found.next()? {
                        gather(&mut rows, row)?;
                    }
                    Ok(())
                };
                gather_all().map_err(|error| self.explain(sql, error))
            })
        })?;
        Ok(ran.with(rows))
    }

    /// Tells what `statement` does while `run` runs it.
    pub(crate) fn note_run(
        &self,
        sql: &str,
        statement: &mut Statement<'_>,
        traits: Traits,
        run: impl FnOnce(&mut Statement<'_>) -> Result<()>,
    ) -> Result<Ran<()>> {
        let connection = self.connection.raw();
        let before = connection.last_insert_rowid();
        let changes =
            self.count_changes(traits, || run(statement).map(|()| connection.changes()))?;
        let rowid = connection.last_insert_rowid();
        let has_inserted = changes > 0 && (is_insert(sql) || rowid != before);
        let last_insert_rowid = has_inserted.then_some(rowid);
        // Now: SQLite may have prepared it again for a new schema when it began.
        Ok(Ran { rows: (), columns: columns(statement), changes, last_insert_rowid })
    }

    /// Tells what a statement would be, without running it.
    ///
    /// ```
    /// # fn main() -> monolite::Result<()> {
    /// # let db = monolite::Database::open(":memory:")?;
    /// let described = db.read(|tx| tx.describe("SELECT :a + ? AS sum")).wait()?;
    /// assert_eq!(described.parameters, [Some(":a".into()), None]);
    /// assert_eq!(described.columns[0].name, "sum");
    /// assert!(described.is_read_only && !described.is_explain);
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`ReadTx::prepare`].
    pub fn describe(&self, sql: &str) -> Result<Description> {
        self.describe_with_traits(sql).map(|(description, _)| description)
    }

    /// As [`ReadTx::describe`]; says also what the statement is like.
    pub(crate) fn describe_with_traits(&self, sql: &str) -> Result<(Description, Traits)> {
        let _running = self.enter(sql)?;
        let describe =
            |statement: &mut Statement<'_>, traits| (Description::of(statement, traits), traits);
        let described = self.connection.with_statement_and_traits(sql, describe);
        // As one that is explained: it was prepared, and does not run.
        self.connection.note_failure();
        described.map_err(|error| self.explain(sql, error))
    }
}
