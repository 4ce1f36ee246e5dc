//! Owns the traits' implementation by Monolite, which has all of it, in other types.

use std::future::Future;
use std::sync::Arc;

use monolite::rusqlite;
use monolite::{Committed, Error, IntoParameters, Result, Value};

use crate::engine::{Engine, EngineTransaction};
use crate::row::Row;

impl<E: From<Error> + Send + 'static> Engine for monolite::Database<E> {
    type Error = E;
    type Transaction = monolite::Transaction;

    fn transaction(&self) -> Result<monolite::Transaction> {
        self.transaction()
    }

    fn transact<T, F, Fut>(&self, body: F) -> impl Future<Output = Result<T, E>> + Send
    where
        F: FnMut(monolite::Transaction) -> Fut + Send,
        Fut: Future<Output = Result<T, E>> + Send,
        T: Send,
    {
        self.transact(body)
    }

    fn transact_once<T, O, F, Fut>(
        &self,
        key: impl Into<String>,
        body: F,
    ) -> impl Future<Output = Result<Committed<T>, E>> + Send
    where
        F: FnMut(monolite::Transaction) -> Fut + Send,
        Fut: Future<Output = Result<(T, O), E>> + Send,
        O: Into<Vec<u8>> + Send,
        T: Send,
    {
        self.transact_once(key.into(), body)
    }

    fn read<T, F, Fut>(&self, body: F) -> impl Future<Output = Result<T, E>> + Send
    where
        F: FnMut(monolite::Transaction) -> Fut + Send,
        Fut: Future<Output = Result<T, E>> + Send,
        T: Send,
    {
        let db = self.read_only();
        async move { db.transact(body).await }
    }
}

impl EngineTransaction for monolite::Transaction {
    fn attempt(&self) -> u32 {
        self.attempt()
    }

    fn execute(
        &self,
        sql: &str,
        parameters: impl IntoParameters,
    ) -> impl Future<Output = Result<usize>> + Send {
        self.execute(sql, parameters)
    }

    fn execute_batch(&self, sql: &str) -> impl Future<Output = Result<()>> + Send {
        self.execute_batch(sql)
    }

    fn query(
        &self,
        sql: &str,
        parameters: impl IntoParameters,
    ) -> impl Future<Output = Result<Vec<Row>>> + Send {
        let empty = (None::<Arc<[String]>>, Vec::new());
        let run = self.run(sql, parameters, empty, |(names, rows), row| {
            let names = names.get_or_insert_with(|| {
                let statement = row.as_ref();
                let name = |at| statement.column_name(at).unwrap_or_default().to_owned();
                (0..statement.column_count()).map(name).collect()
            });
            let values = (0..names.len()).map(|at| row.get::<_, Value>(at));
            rows.push(Row::new(names, values.collect::<rusqlite::Result<_>>()?));
            Ok(())
        });
        async move { Ok(run.await?.rows.1) }
    }

    fn commit(self) -> impl Future<Output = Result<Committed>> + Send {
        self.commit()
    }

    fn commit_once(
        self,
        key: impl Into<String>,
        outcome: impl Into<Vec<u8>>,
    ) -> impl Future<Output = Result<Committed>> + Send {
        self.commit_once(key, outcome)
    }

    fn rollback(self) {
        self.rollback();
    }
}
