//! Owns how a statement is put to a connection: the same call of the same name to plain SQLite
//! (`rusqlite::Connection`) and to a transaction of Monolite ([`Tx`]).

use monolite::rusqlite::{self, CachedStatement, Connection, Row, Statement};
use monolite::{Error, ReadTx, Tx};

use super::said::{Said, names};
use super::statement;

/// The calls by which a statement can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// `execute`, or `prepare` for one that shows rows.
    Execute,
    /// `execute`, or `query_row` for one that shows rows: the first of them.
    FirstRow,
    /// `prepare` for all.
    Prepared,
    /// `prepare_cached` for all.
    Cached,
    /// `execute_batch`: neither rows nor numbers are told.
    Batch,
}

/// What runs statements.
pub(crate) trait Asked {
    fn prepare(&self, sql: &str) -> Result<Statement<'_>, Error>;
    fn prepare_cached(&self, sql: &str) -> Result<CachedStatement<'_>, Error>;
    fn execute(&self, sql: &str) -> Result<usize, Error>;
    fn execute_batch(&self, sql: &str) -> Result<(), Error>;
    fn query_row(
        &self,
        sql: &str,
        take: &mut dyn FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), Error>;
}

impl Asked for Connection {
    fn prepare(&self, sql: &str) -> Result<Statement<'_>, Error> {
        Ok(Connection::prepare(self, sql)?)
    }

    fn prepare_cached(&self, sql: &str) -> Result<CachedStatement<'_>, Error> {
        Ok(Connection::prepare_cached(self, sql)?)
    }

    fn execute(&self, sql: &str) -> Result<usize, Error> {
        Ok(Connection::execute(self, sql, ())?)
    }

    fn execute_batch(&self, sql: &str) -> Result<(), Error> {
        Ok(Connection::execute_batch(self, sql)?)
    }

    fn query_row(
        &self,
        sql: &str,
        take: &mut dyn FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        Ok(Connection::query_row(self, sql, (), |row| take(row))?)
    }
}

impl Asked for Tx<'_> {
    fn prepare(&self, sql: &str) -> Result<Statement<'_>, Error> {
        ReadTx::prepare(self, sql)
    }

    fn prepare_cached(&self, sql: &str) -> Result<CachedStatement<'_>, Error> {
        ReadTx::prepare_cached(self, sql)
    }

    fn execute(&self, sql: &str) -> Result<usize, Error> {
        Tx::execute(self, sql, ())
    }

    fn execute_batch(&self, sql: &str) -> Result<(), Error> {
        Tx::execute_batch(self, sql)
    }

    fn query_row(
        &self,
        sql: &str,
        take: &mut dyn FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        ReadTx::query_row(self, sql, (), |row| take(row))
    }
}

/// A read runs statements that show no rows, as some pragmas, by `prepare`.
impl Asked for ReadTx<'_> {
    fn prepare(&self, sql: &str) -> Result<Statement<'_>, Error> {
        ReadTx::prepare(self, sql)
    }

    fn prepare_cached(&self, sql: &str) -> Result<CachedStatement<'_>, Error> {
        ReadTx::prepare_cached(self, sql)
    }

    fn execute(&self, sql: &str) -> Result<usize, Error> {
        Ok(ReadTx::prepare(self, sql)?.execute(())?)
    }

    fn execute_batch(&self, sql: &str) -> Result<(), Error> {
        Asked::execute(self, sql).map(drop)
    }

    fn query_row(
        &self,
        sql: &str,
        take: &mut dyn FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        ReadTx::query_row(self, sql, (), |row| take(row))
    }
}

/// Runs `statement` and gathers what it says.
pub(crate) fn ask(of: &dyn Asked, statement: &statement::Statement, way: Way) -> Said {
    let (sql, has_rows) = (&*statement.sql, statement.has_rows);
    let mut said = Said::default();
    let result = match way {
        Way::Batch => of.execute_batch(sql),
        Way::FirstRow if has_rows => of.query_row(sql, &mut |row| said.take(row)),
        Way::Execute | Way::FirstRow if !has_rows => {
            of.execute(sql).map(|number| said.changes = Some(number as u64))
        }
        Way::Cached => of.prepare_cached(sql).and_then(|mut it| run(&mut it, has_rows, &mut said)),
        _ => of.prepare(sql).and_then(|mut it| run(&mut it, has_rows, &mut said)),
    };
    said.ended(result)
}

fn run(prepared: &mut Statement<'_>, has_rows: bool, said: &mut Said) -> Result<(), Error> {
    if !has_rows {
        said.changes = Some(prepared.execute(())? as u64);
        return Ok(());
    }
    let mut rows = prepared.query(())?;
    while let Some(row) = rows.next()? {
        said.take(row)?;
    }
    drop(rows);
    // Without a row, the names as they are once the statement has been run: a change of the schema
    // shows only then.
    said.columns.get_or_insert_with(|| names(prepared));
    Ok(())
}

/// Runs a query and gathers its answer.
pub(crate) fn query(of: &dyn Asked, sql: &str) -> Said {
    ask(of, &statement::Statement::new(0, sql), Way::Prepared)
}
