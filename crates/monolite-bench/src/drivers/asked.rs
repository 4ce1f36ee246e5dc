//! Owns how a workload asks a database: each statement awaited, in SQLite's words, with whole
//! numbers as parameters (`?1`), so that both databases get one text.

use anyhow::{Context, Result};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Statement};

/// How PostgreSQL is asked for what the application decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// `SELECT`; safe in SERIALIZABLE alone.
    Plain,
    /// `SELECT … FOR UPDATE`: no other transaction changes it until the commit.
    ForUpdate,
}

/// A transaction that is under way.
pub trait Asked: Sync {
    /// Returns the first column of all rows.
    fn rows(
        &self,
        sql: &str,
        parameters: &[i64],
    ) -> impl Future<Output = Result<Vec<Option<i64>>>> + Send;

    /// Returns the first column of the one row.
    fn row(
        &self,
        sql: &str,
        parameters: &[i64],
    ) -> impl Future<Output = Result<Option<i64>>> + Send;

    /// Returns how many rows were changed.
    fn execute(&self, sql: &str, parameters: &[i64]) -> impl Future<Output = Result<i64>> + Send;

    /// Returns a number that the application decides on, read as it must be in this isolation.
    fn to_decide_on(
        &self,
        sql: &str,
        parameters: &[i64],
    ) -> impl Future<Output = Result<i64>> + Send;
}

impl Asked for monolite::Transaction {
    async fn rows(&self, sql: &str, parameters: &[i64]) -> Result<Vec<Option<i64>>> {
        Ok(self.query_map(sql, parameters.to_vec(), |row| row.get(0)).await?)
    }

    async fn row(&self, sql: &str, parameters: &[i64]) -> Result<Option<i64>> {
        Ok(self.query_row(sql, parameters.to_vec(), |row| row.get(0)).await?)
    }

    async fn execute(&self, sql: &str, parameters: &[i64]) -> Result<i64> {
        Ok(monolite::Transaction::execute(self, sql, parameters.to_vec()).await? as i64)
    }

    async fn to_decide_on(&self, sql: &str, parameters: &[i64]) -> Result<i64> {
        self.row(sql, parameters).await?.context("there is no such row")
    }
}

/// A transaction of PostgreSQL.
pub struct OnPostgres<'c> {
    pub(in crate::drivers) transaction: deadpool_postgres::Transaction<'c>,
    pub(in crate::drivers) reading: Reading,
}

impl Asked for OnPostgres<'_> {
    async fn rows(&self, sql: &str, parameters: &[i64]) -> Result<Vec<Option<i64>>> {
        let statement = self.transaction.prepare_cached(&sql.replace('?', "$")).await?;
        let values = values(&statement, parameters)?;
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(Value::as_sql).collect();
        let rows = self.transaction.query(&statement, &values).await?;
        Ok(rows.iter().map(number).collect())
    }

    async fn row(&self, sql: &str, parameters: &[i64]) -> Result<Option<i64>> {
        let rows = self.rows(sql, parameters).await?;
        rows.first().copied().context("there is no such row")
    }

    async fn execute(&self, sql: &str, parameters: &[i64]) -> Result<i64> {
        let statement = self.transaction.prepare_cached(&sql.replace('?', "$")).await?;
        let values = values(&statement, parameters)?;
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(Value::as_sql).collect();
        Ok(self.transaction.execute(&statement, &values).await? as i64)
    }

    async fn to_decide_on(&self, sql: &str, parameters: &[i64]) -> Result<i64> {
        let lock = match self.reading {
            Reading::Plain => "",
            Reading::ForUpdate => " FOR UPDATE",
        };
        let found = self.row(&format!("{sql}{lock}"), parameters).await?;
        found.context("there is no such row")
    }
}

/// A parameter, as wide as the statement wants it.
enum Value {
    Int(i32),
    BigInt(i64),
}

impl Value {
    fn as_sql(&self) -> &(dyn ToSql + Sync) {
        match self {
            Value::Int(number) => number,
            Value::BigInt(number) => number,
        }
    }
}

fn values(statement: &Statement, parameters: &[i64]) -> Result<Vec<Value>> {
    let value = |(number, kind): (&i64, &Type)| match *kind {
        Type::INT4 => Ok(Value::Int(i32::try_from(*number)?)),
        _ => Ok(Value::BigInt(*number)),
    };
    parameters.iter().zip(statement.params()).map(value).collect()
}

fn number(row: &Row) -> Option<i64> {
    match *row.columns()[0].type_() {
        Type::INT4 => row.get::<_, Option<i32>>(0).map(i64::from),
        _ => row.get(0),
    }
}
