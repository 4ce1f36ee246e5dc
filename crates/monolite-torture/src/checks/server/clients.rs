//! Owns the clients: what a task asks, and what its client has seen of it.

pub(super) mod keyed;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use monolite::Value;
use monolite_client::{Client, Error, Stream};

use super::KEYS;

/// A client does what it should, or what a control is to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    /// It does what it should.
    Good,
    /// It runs a statement of a failed transaction outside of one.
    GoesOn,
    /// It takes an answer that it did not get for an acknowledgement.
    Believes,
    /// It sends a request again with another key.
    Renews,
}

/// What keeps a client from doing a task twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// The note that a task is done has a primary key.
    Row,
    /// Each request has an idempotency key ([`keyed`]).
    Key,
}

/// One attempt, as its client has seen it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) task: i64,
    pub(super) attempt: i64,
    /// Keys, and the versions that were read.
    pub(super) reads: Vec<(i64, i64)>,
    pub(super) end: End,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The server has acknowledged it.
    Committed,
    /// The server has refused it: nothing may be left of it.
    Refused,
    /// An earlier attempt was committed, so this one was refused.
    WasDone,
    /// The answer is lost.
    Unknown,
}

/// Tells the clients to rest.
#[derive(Clone, Default)]
pub(super) struct Rest(Arc<AtomicBool>);

impl Rest {
    pub(super) fn begin(&self) {
        self.0.store(true, Relaxed);
    }

    fn has_begun(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// How long a client waits for an answer: while no server is there, it gets none.
const PATIENCE: Duration = Duration::from_millis(500);

/// Does one task after the other, the first of which has this number, until it may rest.
pub(super) async fn work(
    client: Client,
    rest: Rest,
    (habit, guard): (Habit, Guard),
    first: i64,
    mut rng: fastrand::Rng,
) -> Vec<Seen> {
    let mut seen = Vec::new();
    for task in first.. {
        for attempt in 1.. {
            if rest.has_begun() {
                return seen;
            }
            let (mut of_attempt, mut stream) = (Vec::new(), client.stream());
            let done = done(guard, (task, attempt));
            // With a key, each request ends by itself.
            let patience = if guard == Guard::Row { PATIENCE } else { Duration::MAX };
            let asked = if guard == Guard::Key && rng.u8(..3) == 0 {
                let talk = client.execute(done.0, &done.1);
                tokio::time::timeout(patience, talk).await.map(|answer| answer.map(drop))
            } else if rng.bool() {
                let name = (task, attempt);
                let talk = one_by_one(&mut stream, name, done, &mut of_attempt, &mut rng);
                tokio::time::timeout(patience, talk).await
            } else {
                let talk = at_once(&client, (task, attempt), done, &mut of_attempt, &mut rng);
                tokio::time::timeout(patience, talk).await
            };
            let asked = asked.unwrap_or_else(|_| Err(Error::Unreachable("no answer".into())));
            let end = match asked {
                Ok(()) => End::Committed,
                Err(Error::Refused { message, .. }) if message.contains("done.task") => {
                    End::WasDone
                }
                // With a key, what was committed has an answer.
                Err(Error::Refused { code, .. }) if guard == Guard::Row && is_unknown(&code) => {
                    End::Unknown
                }
                Err(Error::Refused { .. }) => End::Refused,
                Err(_) if habit == Habit::Believes => End::Committed,
                Err(_) => End::Unknown,
            };
            seen.push(Seen { task, attempt, reads: of_attempt, end });
            if end == End::Refused && habit == Habit::GoesOn {
                // Whether it arrives is the same to a control.
                let _ = tokio::time::timeout(PATIENCE, go_on(&client, (task, attempt))).await;
            }
            // The server ends one that it cannot be told of.
            let _ = tokio::time::timeout(PATIENCE, stream.close()).await;
            let is_over = guard == Guard::Key && end == End::Unknown;
            if is_over || matches!(end, End::Committed | End::WasDone) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(rng.u64(..10))).await;
        }
    }
    seen
}

/// Does something of a refused attempt outside of its transaction.
async fn go_on(client: &Client, name: (i64, i64)) {
    for (sql, values) in raise(0, name) {
        let _ = client.execute(sql, &values).await;
    }
}

/// Refusals behind which the transaction may have been committed: by this request when it came a
/// first time, by way of a proxy that sent it twice, or by a server whose disk failed.
fn is_unknown(code: &str) -> bool {
    ["BATON_REUSED", "STREAM_EXPIRED", "COMMIT_UNKNOWN"].contains(&code)
}

/// Asks a statement and waits for its answer before the next.
async fn one_by_one(
    stream: &mut Stream,
    name: (i64, i64),
    done: Asked,
    reads: &mut Vec<(i64, i64)>,
    rng: &mut fastrand::Rng,
) -> Result<(), Error> {
    stream.execute("BEGIN", &[]).await?;
    let mut statements = Vec::new();
    for _ in 0..rng.u8(1..=3) {
        let key = rng.i64(0..KEYS);
        if rng.bool() {
            read(stream, key, reads).await?;
        }
        statements.extend(raise(key, name));
    }
    statements.push(done);
    statements.push(("COMMIT", Vec::new()));
    let fails = (rng.u8(..8) == 0).then(|| rng.usize(..statements.len()));
    let mut failed = Ok(());
    for (nth, (sql, values)) in statements.into_iter().enumerate() {
        if fails == Some(nth) {
            failed = stream.execute(ENDS_IT, &[]).await.map(drop);
        }
        match stream.execute(sql, &values).await {
            // It goes on: the server is to refuse all that is behind the failure.
            Err(Error::Refused { .. }) if failed.is_err() => {}
            answer => drop(answer?),
        }
        tokio::time::sleep(Duration::from_micros(rng.u64(..2_000))).await;
    }
    failed
}

/// Fails, and ends the transaction.
const ENDS_IT: &str = "INSERT OR ROLLBACK INTO item VALUES (0, 0)";

/// Asks for everything in one request.
async fn at_once(
    client: &Client,
    name: (i64, i64),
    done: Asked,
    reads: &mut Vec<(i64, i64)>,
    rng: &mut fastrand::Rng,
) -> Result<(), Error> {
    let read_key = rng.i64(0..KEYS);
    let key = [Value::Integer(read_key)];
    let [raise, note] = raise(rng.i64(0..KEYS), name);
    let statements: [(&str, &[Value]); 4] =
        [(READ, &key), (raise.0, &raise.1), (note.0, &note.1), (done.0, &done.1)];
    let answers = client.batch(&statements).await?;
    reads.extend(answers.first().and_then(version).map(|version| (read_key, version)));
    Ok(())
}

const READ: &str = "SELECT version FROM item WHERE key = ?";

async fn read(stream: &mut Stream, key: i64, reads: &mut Vec<(i64, i64)>) -> Result<(), Error> {
    let answer = stream.execute(READ, &[Value::Integer(key)]).await?;
    reads.extend(version(&answer).map(|version| (key, version)));
    Ok(())
}

fn version(answer: &monolite_client::Answer) -> Option<i64> {
    match answer.rows.first()?.first()? {
        Value::Integer(version) => Some(*version),
        _ => None,
    }
}

type Asked = (&'static str, Vec<Value>);

/// Raises the version of a key, and notes which task has done it.
fn raise(key: i64, (task, attempt): (i64, i64)) -> [Asked; 2] {
    let note = "INSERT INTO raised SELECT key, version, ?, ? FROM item WHERE key = ?";
    let [task, attempt, key] = [task, attempt, key].map(Value::Integer);
    [
        ("UPDATE item SET version = version + 1 WHERE key = ?", vec![key.clone()]),
        (note, vec![task, attempt, key]),
    ]
}

fn done(guard: Guard, (task, attempt): (i64, i64)) -> Asked {
    let sql = match guard {
        Guard::Row => "INSERT INTO done VALUES (?, ?)",
        Guard::Key => "INSERT INTO once VALUES (?, ?)",
    };
    (sql, [task, attempt].map(Value::Integer).to_vec())
}
