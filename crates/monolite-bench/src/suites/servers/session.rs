//! What an application has of a database server: a connection of its own, by which it sends
//! statements, one or several together, and waits for what they answer.
//!
//! # Invariants
//! Both servers get the same texts in the same number of round trips, one connection for each
//! client, and parameters apart from the text. PostgreSQL's statements are prepared at their first
//! use, which is before the clock starts.

use anyhow::{Context, Result};
use monolite::Value;
use monolite_client::{Client, Error, Stream};
use std::collections::HashMap;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, NoTls, Statement};

/// A statement with its parameters, `$1` and so on, in the order of their first use.
pub(super) type Said<'s> = (&'static str, &'s [i64]);

/// A connection.
pub(super) enum Session {
    Ours(Client, Stream),
    Postgres(tokio_postgres::Client, HashMap<&'static str, Statement>),
}

impl Session {
    /// Connects to the database of `monolite serve` at `url`.
    pub(super) async fn ours(url: &str) -> Result<Session> {
        let client = Client::new(url, None)?;
        let mut session = Session::Ours(client.clone(), client.stream());
        session.send(&[("SELECT 1", &[])]).await?;
        Ok(session)
    }

    pub(super) async fn postgres(config: &Config) -> Result<Session> {
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(Session::Postgres(client, HashMap::new()))
    }

    /// The one of two texts that this server understands.
    pub(super) fn text(&self, ours: &'static str, postgres: &'static str) -> &'static str {
        match self {
            Session::Ours(..) => ours,
            Session::Postgres(..) => postgres,
        }
    }

    /// Sends statements together. Returns the first number of the last one's first row, or the
    /// rowid of what it has inserted.
    pub(super) async fn send(&mut self, statements: &[Said<'_>]) -> Result<Option<i64>> {
        match self {
            Session::Ours(_, stream) => {
                let values = values(statements);
                let mut last = None;
                for answer in stream.run(&texts(statements, &values)).await? {
                    last = Some(answer?);
                }
                let last = last.context("no statement was sent")?;
                let found = last.rows.first().and_then(|row| row.first());
                Ok(found.map_or(last.last_rowid, |value| match value {
                    Value::Integer(number) => Some(*number),
                    _ => None,
                }))
            }
            Session::Postgres(client, prepared) => pipelined(client, prepared, statements).await,
        }
    }

    /// Runs statements in one transaction, sent together with its begin and its commit.
    pub(super) async fn batch(&mut self, statements: &[Said<'_>]) -> Result<()> {
        match self {
            Session::Ours(client, _) => {
                let values = values(statements);
                client.batch(&texts(statements, &values)).await?;
                Ok(())
            }
            Session::Postgres(client, prepared) => {
                let all = [&[("BEGIN", &[][..])], statements, &[("COMMIT", &[])]].concat();
                pipelined(client, prepared, &all).await.map(drop)
            }
        }
    }
}

fn values(statements: &[Said<'_>]) -> Vec<Vec<Value>> {
    let of = |(_, numbers): &Said<'_>| numbers.iter().map(|it| Value::Integer(*it)).collect();
    statements.iter().map(of).collect()
}

fn texts<'v>(
    statements: &[Said<'_>],
    values: &'v [Vec<Value>],
) -> Vec<(&'static str, &'v [Value])> {
    statements.iter().zip(values).map(|((sql, _), values)| (*sql, &values[..])).collect()
}

/// Sends all statements before it waits for an answer.
async fn pipelined(
    client: &tokio_postgres::Client,
    prepared: &mut HashMap<&'static str, Statement>,
    statements: &[Said<'_>],
) -> Result<Option<i64>> {
    for (sql, _) in statements {
        if !prepared.contains_key(sql) {
            prepared.insert(sql, client.prepare(sql).await?);
        }
    }
    let all = statements.iter().map(|(sql, numbers)| {
        let statement = &prepared[sql];
        async move {
            let numbers: Vec<&(dyn ToSql + Sync)> = numbers.iter().map(|it| it as _).collect();
            client.query(statement, &numbers).await
        }
    });
    let rows = futures::future::try_join_all(all).await?;
    let row = rows.last().and_then(|rows| rows.first());
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// Whether a transaction changed nothing, and is to be run again.
pub(super) fn is_retryable(error: &anyhow::Error) -> bool {
    if let Some(error) = error.downcast_ref::<Error>() {
        return error.is_busy();
    }
    let error = error.downcast_ref::<tokio_postgres::Error>();
    let state = error.and_then(|error| error.code());
    state.is_some_and(|state| {
        [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(state)
    })
}
