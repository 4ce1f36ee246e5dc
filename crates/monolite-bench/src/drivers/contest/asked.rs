//! Owns how a workload asks PostgreSQL: in SQLite's words, so that both databases get one text.

use crate::drivers::script::Reading;
use anyhow::{Context, Result};
use deadpool_postgres::Transaction;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// A transaction that is asked in SQLite's words: parameters are `?1`, all of them whole numbers.
pub struct Asked<'c> {
    pub(in crate::drivers) transaction: Transaction<'c>,
    pub(in crate::drivers) reading: Reading,
}

impl Asked<'_> {
    /// Returns all rows.
    pub async fn query(&self, sql: &str, parameters: &[i64]) -> Result<Vec<Row>> {
        let statement = self.transaction.prepare_cached(&sql.replace('?', "$")).await?;
        Ok(self.transaction.query(&statement, &values(parameters)).await?)
    }

    /// Returns how many rows were changed.
    pub async fn execute(&self, sql: &str, parameters: &[i64]) -> Result<u64> {
        let statement = self.transaction.prepare_cached(&sql.replace('?', "$")).await?;
        Ok(self.transaction.execute(&statement, &values(parameters)).await?)
    }

    /// Returns the one number of a query of one row.
    pub async fn number(&self, sql: &str, parameters: &[i64]) -> Result<i64> {
        let rows = self.query(sql, parameters).await?;
        Ok(rows.first().context("there is no such row")?.get(0))
    }

    /// Returns a number that the application decides on, read as it must be in this isolation.
    pub async fn number_to_decide_on(&self, sql: &str, parameters: &[i64]) -> Result<i64> {
        match self.reading {
            Reading::Plain => self.number(sql, parameters).await,
            Reading::ForUpdate => self.number(&format!("{sql} FOR UPDATE"), parameters).await,
        }
    }
}

fn values(parameters: &[i64]) -> Vec<&(dyn ToSql + Sync)> {
    parameters.iter().map(|parameter| parameter as &(dyn ToSql + Sync)).collect()
}
