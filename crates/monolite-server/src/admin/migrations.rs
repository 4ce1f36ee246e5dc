//! Owns what an operator asks of a database's migrations, whose texts each request brings.
//!
//! # Cancellation
//! `up` is a job of its request. When the client leaves, and when the server stops or hands over,
//! nothing more is applied, and an online rebuild is paused: the next `up` goes on.

use std::collections::BTreeMap;

use hyper::body::Incoming;
use hyper::{Request, Response};
use monolite::{Database, Error, ErrorKind, Job, Migrations};
use serde::Serialize;

use super::{body_of, invalid, json};
use crate::Shared;
use crate::answers::{Body, Failure};
use crate::databases::blocking;
use crate::hrana::ProtocolError;
use crate::life::{Life, Phase, draining};

/// Most bytes of the texts: those of a client's request.
const TEXT_BYTES: usize = 16 << 20;

/// Answers a request whose body has the text of each file by its name.
pub(super) async fn answer(
    shared: &Shared,
    database: &str,
    verb: &str,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let body = body_of(request, TEXT_BYTES).await?;
    let texts = match &*body {
        b"" => Ok(BTreeMap::new()),
        body => serde_json::from_slice::<BTreeMap<String, String>>(body),
    };
    let expected = r#"{"0001_shop.sql": "CREATE TABLE …"}"#;
    let texts = texts.map_err(|error| {
        invalid(format!("the body has no migrations: {error}; send {expected}"))
    })?;
    let with = |all: Migrations, (name, sql): (&String, &String)| all.with(name, sql);
    let all = texts.iter().try_fold(Migrations::new(), with).map_err(|it| told(&it))?;
    let used = shared.database(Some(database), Phase::Stops).await?;
    let (db, life) = (used.database(), &shared.life);
    match verb {
        "status" => looked(db, move |db| all.status(db)).await,
        "plan" => looked(db, move |db| all.plan(db)).await,
        "verify" => looked(db, move |db| all.verify(db)).await,
        "up" => ended(life, all.up(db)).await,
        "dry-run" => ended(life, all.dry_run(db)).await,
        "abort" => ended(life, Migrations::abort(db)).await,
        _ => {
            let verbs = "status, plan, verify, up, dry-run or abort";
            let message = format!("there is no {verb} of migrations; ask for {verbs}");
            Err(ProtocolError::new("NOT_FOUND", message).into())
        }
    }
}

/// Answers with what `look` finds, which blocks.
async fn looked<T: Serialize + Send + 'static>(
    db: &Database,
    look: impl FnOnce(&Database) -> Result<T, Error> + Send + 'static,
) -> Result<Response<Body>, Failure> {
    let db = db.clone();
    json(&blocking(move || look(&db).map_err(|it| told(&it))).await?)
}

/// Answers with what `job` gives.
async fn ended<T: Serialize>(life: &Life, mut job: Job<T>) -> Result<Response<Body>, Failure> {
    let mut phases = life.phases();
    let ends = async {
        tokio::select! {
            biased;
            done = &mut job => return done,
            _ = phases.wait_for(|phase| *phase != Phase::Serving) => job.cancel(),
        }
        job.await
    };
    match life.unless_cut(ends).await? {
        Ok(value) => json(&value),
        Err(error) if error.kind() == ErrorKind::Aborted && life.phase() != Phase::Serving => {
            Err(draining().into())
        }
        Err(error) => Err(told(&error).into()),
    }
}

/// An operator may know all of it.
fn told(error: &Error) -> ProtocolError {
    ProtocolError::new("MIGRATION_FAILED", error.to_string())
}
