//! Owns a stream: what a client says one after the other, and the transaction that it has open.
//!
//! ```text
//!          BEGIN             first statement
//!  Idle ──────────► Begun ──────────────────► Open ── conflict, timeout ──► (Open, and over)
//!   ▲ ◄─ COMMIT, ROLLBACK ─┘                   │                                  │
//!   └───────────── COMMIT, ROLLBACK ───────────┴──────────── COMMIT, ROLLBACK ────┘
//! ```
//!
//! # Invariants
//! - A statement meant for a transaction never runs in autocommit. A transaction that has ended by
//!   an error stays the stream's, and the engine answers each of its statements with that error,
//!   until the client says `COMMIT`, which fails with it, or `ROLLBACK`.
//! - `BEGIN` takes no snapshot: JavaScript sends it with the first statement, and that waits for
//!   its turn before it looks.
//! - A stream whose right is to read runs on connections that cannot write. Its statements are not
//!   judged by their words.

mod answer;
mod batch;
pub(crate) mod cursor;
pub(crate) mod keyed;

use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, Instant};

use monolite::rusqlite::{self, Row};
use monolite::{Database, ErrorKind, Parameters, Ran, ReadTx, Transaction, Tx};
use monolite_sqlite::Scan;
use serde::{Deserialize, Serialize};

use crate::auth::{Principal, Right};
use crate::control::Control;
use crate::databases::InUse;
use crate::errors::{Own, own_error, protocol_error, read_only, sqlite_error};
use crate::hrana::{
    Column, DescribeResult, Encoding, ProtocolError, Rows, Sql, Stmt, StmtResult, StreamRequest,
    StreamResponse, Value, script_weight,
};
use crate::memory::{Memory, Taken};
use crate::names;
use crate::replicas::not_primary;
use answer::column_bytes;
pub(crate) use answer::{ANSWER_BYTES, Answer};
use keyed::{Once, Outcome, Record};

/// Texts that a stream or a connection may store, and the length of one.
const STORED: usize = 256;
const STORED_BYTES: usize = 64 << 10;

/// Most bytes of stored texts in one request.
const RESOLVED_BYTES: usize = 1 << 20;

/// How long a statement may take; a write has the engine's own limit besides.
const STATEMENT_TIME: Duration = Duration::from_secs(30);

/// Longest text of SQL.
const SQL_BYTES: usize = 1 << 20;

/// Texts that a client has stored, by its numbers: those of a stream over HTTP, and of a connection
/// over WebSocket.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    texts: HashMap<i32, (Arc<str>, Taken)>,
    /// Where they are allowed.
    memory: Option<Memory>,
}

impl Stored {
    /// None yet; those that come take of `memory`.
    pub(crate) fn new(memory: &Memory) -> Stored {
        Stored { texts: HashMap::new(), memory: Some(memory.clone()) }
    }

    /// Keeps `sql`; a number in use is given the new text.
    pub(crate) fn store(&mut self, number: i32, sql: String) -> Result<(), ProtocolError> {
        let full = |message: String| ProtocolError::new("SQL_STORE_FULL", message);
        if sql.len() > STORED_BYTES {
            return Err(full(format!(
                "the text has {} bytes; {STORED_BYTES} can be stored",
                sql.len()
            )));
        }
        if self.texts.len() >= STORED && !self.texts.contains_key(&number) {
            return Err(full(format!("{STORED} texts are stored; close some by close_sql")));
        }
        let taken = self.memory.as_ref().and_then(|memory| memory.take_now(sql.len()));
        let taken = taken.ok_or_else(|| full("no memory is left; send the SQL itself".into()))?;
        self.texts.insert(number, (sql.into(), taken));
        Ok(())
    }

    pub(crate) fn close(&mut self, number: i32) {
        self.texts.remove(&number);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Puts the texts in place of their numbers in `request`.
    pub(crate) fn resolve(&self, request: &mut StreamRequest) -> Result<(), ProtocolError> {
        let mut bytes = 0;
        let mut put = |sql: &mut Option<String>, number: &mut Option<i32>| {
            if sql.is_none() && number.is_some() {
                let text = self.text(None, number.take())?;
                bytes += text.len();
                if bytes > RESOLVED_BYTES {
                    let message = format!("its stored texts have over {RESOLVED_BYTES} bytes");
                    return Err(ProtocolError::new("SQLITE_TOOBIG", message));
                }
                *sql = Some(text.to_string());
            }
            Ok(())
        };
        match request {
            StreamRequest::Execute(stmt) => put(&mut stmt.sql, &mut stmt.sql_id),
            StreamRequest::Batch(batch) => {
                let mut steps = batch.steps.iter_mut();
                steps.try_for_each(|step| put(&mut step.stmt.sql, &mut step.stmt.sql_id))
            }
            StreamRequest::Sequence(sql) | StreamRequest::Describe(sql) => {
                put(&mut sql.sql, &mut sql.sql_id)
            }
            _ => Ok(()),
        }
    }

    /// The text that is given or stored.
    fn text(&self, sql: Option<&str>, number: Option<i32>) -> Result<Arc<str>, ProtocolError> {
        let text: Arc<str> = match (sql, number) {
            (Some(sql), None) => sql.into(),
            (None, Some(number)) => {
                self.texts.get(&number).map(|(text, _)| text.clone()).ok_or_else(|| {
                    ProtocolError::new(
                        "SQL_NOT_STORED",
                        format!("no SQL is stored with the number {number}"),
                    )
                })?
            }
            _ => return Err(ProtocolError::new("ARGS_INVALID", "give either sql or sql_id")),
        };
        if text.len() > SQL_BYTES {
            let message = format!("the SQL has {} bytes; {SQL_BYTES} are allowed", text.len());
            return Err(ProtocolError::new("SQLITE_TOOBIG", message));
        }
        if let Some(at) = text.bytes().position(|byte| byte == 0) {
            let message = format!("the SQL has a NUL at byte {at}, where SQLite stops reading");
            return Err(ProtocolError::new("SQL_INPUT_ERROR", message));
        }
        Ok(text)
    }
}

/// A statement that is ready to run.
#[derive(Debug)]
struct Prepared {
    sql: Arc<str>,
    parameters: Parameters,
    wants_rows: bool,
    encoding: Encoding,
    answer: Answer,
    control: Option<Control>,
    /// Whether it asks for what the statements before have done.
    asks: bool,
}

/// What SQL's `last_insert_rowid()` and `changes()` tell on the stream, which is a session for its
/// clients; the engine's transactions know of themselves only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Last {
    rowid: i64,
    changes: u64,
}

impl Last {
    /// Behind `what`, which gave `result`.
    fn behind(self, what: &Prepared, result: &StmtResult) -> Last {
        Last {
            // A table WITHOUT ROWID leaves 0.
            rowid: result.last_insert_rowid.filter(|rowid| *rowid != 0).unwrap_or(self.rowid),
            changes: if changes_rows(&what.sql) { result.affected_row_count } else { self.changes },
        }
    }
}

/// A stream of requests, on one database with one right.
pub(crate) struct Stream {
    db: Database,
    /// The same without foreign keys, while the client has set them off.
    without_keys: Option<Database>,
    /// What a write is answered, if the stream only reads.
    refusal: Option<ProtocolError>,
    state: State,
    /// The savepoints that are open, if the first of them began the transaction.
    savepoints: Vec<String>,
    last: Last,
    /// Whether the open transaction has done something of which `last` tells.
    has_changed: bool,
    /// What the pipeline under way has answered.
    record: Record,
    /// Its idempotency key.
    once: Option<Once>,
    /// Whether it may have written since that was asked.
    has_written: bool,
}

enum State {
    Idle,
    Begun { is_read_only: bool },
    Open { tx: Transaction, is_read_only: bool },
}

impl Stream {
    /// A stream of `principal`, whose calls the engine shows under its name.
    pub(crate) fn new(database: &InUse, principal: &Principal, right: Right) -> Stream {
        let db =
            database.database().with_principal(principal.id).named(names::kept(&principal.name));
        let follower = database.follower();
        let right = if follower.is_some() { Right::ReadOnly } else { right };
        let refusal = match (right, follower) {
            // Also where the token would give the right to read only: elsewhere that is told.
            (_, Some(follower)) => Some(not_primary(&follower.stats().primary)),
            (Right::ReadOnly, None) => Some(read_only(principal.why_read_only())),
            (Right::ReadWrite, None) => None,
        };
        Stream { refusal, ..Stream::of(db.with_time_limit(STATEMENT_TIME), right) }
    }

    /// A stream whose calls are those of the handle `db`.
    pub(crate) fn of(db: Database, right: Right) -> Stream {
        let (db, refusal) = match right {
            Right::ReadWrite => (db, None),
            Right::ReadOnly => {
                (db.read_only(), Some(read_only("the database was opened to be read only")))
            }
        };
        Stream {
            db,
            without_keys: None,
            refusal,
            state: State::Idle,
            savepoints: Vec::new(),
            last: Last::default(),
            has_changed: false,
            record: Record::default(),
            once: None,
            has_written: false,
        }
    }

    /// Whether it may have written since this was asked.
    pub(crate) fn take_written(&mut self) -> bool {
        take(&mut self.has_written)
    }

    /// The handle for what begins now.
    fn db(&self) -> &Database {
        self.without_keys.as_ref().unwrap_or(&self.db)
    }

    /// Whether it has what its next request must find.
    pub(crate) fn has_state(&self) -> bool {
        !self.is_autocommit() || self.without_keys.is_some()
    }

    pub(crate) fn is_autocommit(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Runs the requests of a pipeline, and says whether one closed the stream.
    pub(crate) async fn run_all(
        &mut self,
        requests: Vec<StreamRequest>,
        stored: &mut Stored,
        encoding: Encoding,
        answer: &Answer,
    ) -> (Vec<Result<StreamResponse, ProtocolError>>, bool) {
        let (kept, mut is_closed) = (self.record.results.len(), false);
        for (number, request) in requests.into_iter().enumerate() {
            is_closed |= matches!(request, StreamRequest::Close);
            // Answered by the pipeline that this one repeats. The texts are for this stream.
            let is_kept = number < kept;
            if is_kept && !matches!(request, StreamRequest::StoreSql { .. }) {
                continue;
            }
            let result = self.run(request, stored, encoding, answer).await;
            if !is_kept {
                self.record.results.push(result);
            }
        }
        self.once = None;
        (take(&mut self.record).results, is_closed)
    }

    /// Runs one request; `stored` is what its numbers of texts mean, and `answer` what is in the
    /// same answer already.
    pub(crate) async fn run(
        &mut self,
        request: StreamRequest,
        stored: &mut Stored,
        encoding: Encoding,
        answer: &Answer,
    ) -> Result<StreamResponse, ProtocolError> {
        let done = match request {
            StreamRequest::Close => {
                self.close();
                Ok(StreamResponse::Close)
            }
            StreamRequest::Execute(stmt) => {
                if let Some(kept) = self.record.steps.pop() {
                    return kept.result().map(StreamResponse::Execute);
                }
                let prepared = prepare(stmt, stored, encoding, answer)?;
                self.execute(Arc::new(prepared)).await.map(StreamResponse::Execute)
            }
            StreamRequest::Batch(batch) => {
                self.batch(batch, stored, encoding, answer).await.map(StreamResponse::Batch)
            }
            StreamRequest::Sequence(sql) => {
                let Sql { sql, sql_id } = sql;
                let script = stored.text(sql.as_deref(), sql_id)?;
                if sql.is_none() {
                    // Its request did not weigh it.
                    answer.charge(script.len() + script_weight(&script))?;
                }
                self.sequence(&script, &answer.apart()).await.map(|()| StreamResponse::Sequence)
            }
            StreamRequest::Describe(sql) => {
                let Sql { sql, sql_id } = sql;
                let text = stored.text(sql.as_deref(), sql_id)?;
                self.describe(text).await.map(StreamResponse::Describe)
            }
            StreamRequest::StoreSql { sql_id, sql } => {
                stored.store(sql_id, sql).map(|()| StreamResponse::StoreSql)
            }
            StreamRequest::CloseSql { sql_id } => {
                stored.close(sql_id);
                Ok(StreamResponse::CloseSql)
            }
            StreamRequest::GetAutocommit => {
                Ok(StreamResponse::GetAutocommit { is_autocommit: self.is_autocommit() })
            }
            StreamRequest::Invalid(error) => Err(error),
        };
        done.map_err(|error| self.explained(error))
    }

    /// `error`, with the remedy if the stream only reads and that is why.
    fn explained(&self, error: ProtocolError) -> ProtocolError {
        let refusal = self.refusal.as_ref().filter(|_| error.code == "SQLITE_READONLY");
        refusal.cloned().unwrap_or(error)
    }

    /// Ends the stream's transaction, if it has one open.
    fn close(&mut self) {
        self.state = State::Idle;
        self.savepoints.clear();
    }

    async fn execute(&mut self, what: Arc<Prepared>) -> Result<StmtResult, ProtocolError> {
        let began = Instant::now();
        let encoding = what.encoding;
        let done = match &what.control {
            None => return self.statement(&what).await,
            Some(Control::Instead(sql)) => return self.instead(&what, sql).await,
            Some(Control::ForeignKeys(None)) => {
                let is_on = i32::from(self.without_keys.is_none());
                return self.instead(&what, &format!("SELECT {is_on} AS foreign_keys")).await;
            }
            Some(Control::ForeignKeys(Some(is_on))) => {
                self.set_foreign_keys(*is_on).await;
                Ok(())
            }
            Some(Control::Nothing) => Ok(()),
            Some(Control::Blocked(why)) => Err(ProtocolError::new("BLOCKED", *why)),
            Some(Control::Begin { is_read_only }) => self.begin(*is_read_only),
            Some(Control::Commit) => self.commit(encoding).await,
            Some(Control::Rollback) => self.roll_back(),
            Some(Control::Savepoint(name)) => self.savepoint(name).await,
            Some(Control::Release(name)) => self.release(name, encoding).await,
            Some(Control::RollbackTo(name)) => self.roll_back_to(name).await,
        };
        done.map(|()| nothing(encoding, began))
    }

    /// Runs the query `sql` in the place of `what`.
    async fn instead(&mut self, what: &Prepared, sql: &str) -> Result<StmtResult, ProtocolError> {
        let parameters = Parameters::Positional(Vec::new());
        let (sql, answer) = (sql.into(), what.answer.clone());
        let instead = Prepared { sql, parameters, answer, control: None, ..*what };
        self.statement(&Arc::new(instead)).await
    }

    /// In a transaction it has no effect, as in SQLite. The engine then refuses to replace rows
    /// that others reference: a client that rebuilds a table counts on foreign keys being off.
    async fn set_foreign_keys(&mut self, is_on: bool) {
        if self.is_autocommit() {
            self.without_keys = (!is_on).then(|| self.db.without_foreign_keys());
        } else if self.without_keys.is_none()
            && let Ok(tx) = self.open().await
        {
            let sql = format!("PRAGMA foreign_keys = {}", if is_on { "ON" } else { "OFF" });
            let _refused = tx.execute(&sql, ()).await;
        }
    }

    async fn statement(&mut self, what: &Arc<Prepared>) -> Result<StmtResult, ProtocolError> {
        let result = match self.is_autocommit() {
            true => self.autocommit(what).await,
            false => self.in_transaction(what).await,
        }?;
        let last = self.last.behind(what, &result);
        self.has_changed |= last != self.last;
        self.last = last;
        Ok(result)
    }

    async fn in_transaction(&mut self, what: &Prepared) -> Result<StmtResult, ProtocolError> {
        if what.asks && !self.has_changed && self.last != Last::default() {
            let message = "last_insert_rowid() and changes() tell of this transaction, which has \
                           changed nothing yet; use what the statement before has answered";
            return Err(ProtocolError::new("BLOCKED", message));
        }
        let began = Instant::now();
        let tx = self.open().await?;
        let (rows, parameters) = (Rows::new(what.encoding), what.parameters.clone());
        let ran = tx.run(&what.sql, parameters, rows, gather(what)).await;
        let result = ran.map(|ran| result(ran, began)).map_err(|error| protocol_error(&error))?;
        what.answer.add(&result)?;
        Ok(result)
    }

    /// Runs a statement as a transaction of its own.
    async fn autocommit(&mut self, what: &Arc<Prepared>) -> Result<StmtResult, ProtocolError> {
        let (reading, last) = (Reading::of(&what.sql), self.last);
        if reading != Reading::No || self.refusal.is_some() {
            let what = Arc::clone(what);
            let read = self.db.read_durable(move |tx| {
                if reading != Reading::Yes && !tx.describe(&what.sql)?.is_read_only {
                    return Ok(None);
                }
                run(tx, &what, last).map(Some)
            });
            if let Some(result) = read.await.map_err(|error| protocol_error(&error))? {
                return Ok(result);
            }
            self.may_write()?;
        }
        let keyed = self.keyed()?;
        let (is_keyed, of_body) = (keyed.is_some(), Arc::clone(what));
        let body = move |tx: &Tx<'_>| match run(tx, &of_body, last) {
            Ok(result) => Ok(Ok(result)),
            // `OR ROLLBACK`: nothing is left to be kept. With a key nothing is kept of a failure.
            Err(error) if is_keyed || tx.is_rolled_back() => Err(error),
            Err(error) => told(error).map(Err),
        };
        let what = Arc::clone(what);
        let answered = move |done: &Result<StmtResult, ProtocolError>| {
            let behind = done.as_ref().map_or(last, |result| last.behind(&what, result));
            (vec![Outcome::of(done.clone())], behind)
        };
        let written = self.write(keyed, body, answered).await;
        written.unwrap_or_else(|error| Err(protocol_error(&error)))
    }

    fn may_write(&self) -> Result<(), ProtocolError> {
        self.refusal.clone().map_or(Ok(()), Err)
    }

    /// The stream's transaction, begun now if it was not before.
    async fn open(&mut self) -> Result<&Transaction, ProtocolError> {
        if let State::Begun { is_read_only } = self.state {
            let read_only = is_read_only.then(|| self.db.read_only());
            let tx = read_only.as_ref().unwrap_or_else(|| self.db()).transaction();
            let tx = tx.map_err(|error| protocol_error(&error))?;
            self.state = State::Open { tx, is_read_only };
        }
        match &self.state {
            State::Open { tx, .. } => Ok(tx),
            _ => unreachable!("a transaction was begun"),
        }
    }

    fn begin(&mut self, is_read_only: bool) -> Result<(), ProtocolError> {
        if !self.is_autocommit() {
            return Err(sqlite_error("cannot start a transaction within a transaction"));
        }
        self.state = State::Begun { is_read_only };
        self.has_changed = false;
        Ok(())
    }

    async fn commit(&mut self, encoding: Encoding) -> Result<(), ProtocolError> {
        self.savepoints.clear();
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => Err(sqlite_error("cannot commit - no transaction is active")),
            State::Begun { .. } => Ok(()),
            State::Open { tx, is_read_only } => {
                let keyed = if is_read_only { None } else { self.keyed()? };
                self.has_written |= !is_read_only;
                let answered = Outcome::Done(nothing(encoding, Instant::now()));
                let ended = self.commit_with(keyed, tx, answered).await;
                ended.map_err(|error| protocol_error(&error))
            }
        }
    }

    fn roll_back(&mut self) -> Result<(), ProtocolError> {
        if self.is_autocommit() {
            return Err(sqlite_error("cannot rollback - no transaction is active"));
        }
        self.close();
        Ok(())
    }

    /// Outside of a transaction it begins one, as in SQLite.
    async fn savepoint(&mut self, name: &str) -> Result<(), ProtocolError> {
        let is_first = self.is_autocommit();
        if is_first {
            self.begin(false)?;
        }
        let opened = match self.open().await {
            Ok(tx) => tx.savepoint(name).await.map_err(|error| protocol_error(&error)),
            Err(error) => Err(error),
        };
        if let Err(error) = opened {
            if is_first {
                // Nothing was begun, and what follows is in autocommit.
                self.close();
            }
            return Err(error);
        }
        if is_first || !self.savepoints.is_empty() {
            self.savepoints.push(name.to_owned());
        }
        Ok(())
    }

    /// Where the outermost savepoint began the transaction, releasing it commits.
    async fn release(&mut self, name: &str, encoding: Encoding) -> Result<(), ProtocolError> {
        if self.is_autocommit() {
            return Err(no_such_savepoint(name));
        }
        let at = self.savepoints.iter().rposition(|open| open.eq_ignore_ascii_case(name));
        if at == Some(0) {
            return self.commit(encoding).await;
        }
        self.open().await?.release(name).await.map_err(|error| protocol_error(&error))?;
        self.savepoints.truncate(at.unwrap_or(0));
        Ok(())
    }

    async fn roll_back_to(&mut self, name: &str) -> Result<(), ProtocolError> {
        if self.is_autocommit() {
            return Err(no_such_savepoint(name));
        }
        self.open().await?.rollback_to(name).await.map_err(|error| protocol_error(&error))?;
        let at = self.savepoints.iter().rposition(|open| open.eq_ignore_ascii_case(name));
        self.savepoints.truncate(at.map_or(0, |at| at + 1));
        Ok(())
    }

    async fn describe(&mut self, sql: Arc<str>) -> Result<DescribeResult, ProtocolError> {
        one_statement(&sql)?;
        if Control::of(&sql).is_some() {
            let (params, cols) = (Vec::new(), Vec::new());
            return Ok(DescribeResult { params, cols, is_explain: false, is_readonly: true });
        }
        let described = if self.is_autocommit() {
            self.db.read(move |tx| tx.describe(&sql)).await
        } else {
            self.open().await?.describe(&sql).await
        };
        let described = described.map_err(|error| protocol_error(&error))?;
        Ok(DescribeResult {
            params: described.parameters,
            cols: described.columns.into_iter().map(column).collect(),
            is_explain: described.is_explain,
            is_readonly: described.is_read_only,
        })
    }
}

fn no_such_savepoint(name: &str) -> ProtocolError {
    sqlite_error(&format!("no such savepoint: {name}"))
}

/// Whether a statement reads, by its first word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    Yes,
    /// SQLite knows.
    Perhaps,
    No,
}

impl Reading {
    fn of(sql: &str) -> Reading {
        let first = monolite_sqlite::first_token(sql);
        let is = |words: &[&str]| {
            first.is_some_and(|first| words.iter().any(|word| first.is_word(word)))
        };
        match () {
            () if is(&["SELECT", "VALUES"]) => Reading::Yes,
            () if is(&["WITH", "EXPLAIN", "PRAGMA"]) => Reading::Perhaps,
            () => Reading::No,
        }
    }
}

/// Makes a statement of a client ready to run.
fn prepare(
    stmt: Stmt,
    stored: &Stored,
    encoding: Encoding,
    answer: &Answer,
) -> Result<Prepared, ProtocolError> {
    let Stmt { sql, sql_id, args, named_args, want_rows: wants_rows } = stmt;
    let sql = stored.text(sql.as_deref(), sql_id)?;
    one_statement(&sql)?;
    let parameters = match (args.is_empty(), named_args.is_empty()) {
        (_, true) => Parameters::Positional(args.into_iter().map(value).collect()),
        (true, false) => {
            let named = named_args.into_iter().map(|(name, given)| (name, value(given)));
            Parameters::Named(named.collect())
        }
        (false, false) => {
            return Err(ProtocolError::new(
                "ARGS_INVALID",
                "give either args or named_args, not both",
            ));
        }
    };
    let control = Control::of(&sql);
    let (answer, asks) = (answer.clone(), asks_for_counts(&sql));
    Ok(Prepared { sql, parameters, wants_rows, encoding, answer, control, asks })
}

fn value(given: Value) -> monolite::Value {
    match given {
        Value::Null => monolite::Value::Null,
        Value::Integer(number) => monolite::Value::Integer(number),
        Value::Float(number) => monolite::Value::Real(number),
        Value::Text(text) => monolite::Value::Text(text),
        Value::Blob(blob) => monolite::Value::Blob(blob),
    }
}

fn one_statement(sql: &str) -> Result<(), ProtocolError> {
    let mut statements = monolite::statements(sql);
    if statements.next().is_none() {
        return Err(ProtocolError::new("SQL_NO_STATEMENT", "the SQL has no statement"));
    }
    if statements.next().is_some() {
        let message = "the SQL has more than one statement; send a batch or a sequence";
        return Err(ProtocolError::new("SQL_MANY_STATEMENTS", message));
    }
    Ok(())
}

/// Whether the figures of the statements before are in `sql`.
fn asks_for_counts(sql: &str) -> bool {
    Scan::of(sql).any(|token| token.is_word("last_insert_rowid") || token.is_word("changes"))
}

/// Whether `changes()` tells of `sql` behind it.
fn changes_rows(sql: &str) -> bool {
    let changes = ["INSERT", "REPLACE", "UPDATE", "DELETE"];
    let first = monolite_sqlite::first_token(sql);
    first.is_some_and(|first| changes.iter().any(|word| first.is_word(word)))
        || monolite_sqlite::inserts_rows(sql)
}

/// Runs a statement in a closure of the engine, `last` of the statements before on the stream.
fn run(tx: &ReadTx<'_>, what: &Prepared, last: Last) -> monolite::Result<StmtResult> {
    if what.asks {
        tx.resume_counts(last.rowid, last.changes);
    }
    let began = Instant::now();
    let rows = Rows::new(what.encoding);
    let ran = tx.run(&what.sql, &what.parameters, rows, gather(what))?;
    let result = result(ran, began);
    // A statement whose answer is too large has changed nothing.
    what.answer.add(&result).map_err(Own::as_sqlite)?;
    Ok(result)
}

/// Encodes each row as it comes, or takes no notice of it.
///
/// What would be too much fails here, where the engine still undoes the statement. A statement that
/// has changed something and returns columns returns a row.
fn gather(
    what: &Prepared,
) -> impl FnMut(&mut Rows, &Row<'_>) -> rusqlite::Result<()> + Send + 'static {
    let (wants_rows, before, mut of_columns) = (what.wants_rows, what.answer.bytes(), None);
    let answer = what.answer.clone();
    move |rows, row| {
        let of_columns = *of_columns.get_or_insert_with(|| column_bytes(&columns_of(row)));
        if wants_rows {
            let columns = row.as_ref().column_count();
            rows.push(row, columns).map_err(|invalid| Own::as_sqlite(invalid.into()))?;
        }
        answer.reserve(before + of_columns + rows.bytes()).map_err(Own::as_sqlite)
    }
}

fn columns_of(row: &Row<'_>) -> Vec<Column> {
    let mut all = Vec::new();
    // Some versions of `rusqlite` give a vector, and some an iterator.
    for column in row.as_ref().columns() {
        let decltype = column.decl_type().map(str::to_owned);
        all.push(Column { name: column.name().to_owned(), decltype });
    }
    all
}

fn column(column: monolite::Column) -> Column {
    Column { name: column.name, decltype: column.declared_type }
}

fn result(ran: Ran<Rows>, began: Instant) -> StmtResult {
    let Ran { rows, columns, changes, last_insert_rowid, .. } = ran;
    StmtResult {
        rows_read: rows.len() as u64,
        rows,
        cols: columns.into_iter().map(column).collect(),
        affected_row_count: changes,
        last_insert_rowid,
        rows_written: changes,
        query_duration_ms: began.elapsed().as_secs_f64() * 1e3,
    }
}

/// The result of a statement that the server has answered.
fn nothing(encoding: Encoding, began: Instant) -> StmtResult {
    StmtResult {
        cols: Vec::new(),
        rows: Rows::new(encoding),
        affected_row_count: 0,
        last_insert_rowid: None,
        rows_read: 0,
        rows_written: 0,
        query_duration_ms: began.elapsed().as_secs_f64() * 1e3,
    }
}

/// What a client is told of a statement that failed with `error` in a closure, if the closure goes
/// on as SQLite would: what the statement left is kept, as by `INSERT OR FAIL`.
fn told(error: monolite::Error) -> monolite::Result<ProtocolError> {
    // An answer that could not be given is no failure of the statement, which has done all it does.
    let is_of_statement = own_error(&error).is_none()
        && matches!(error.kind(), ErrorKind::Constraint | ErrorKind::Invalid | ErrorKind::NoRows);
    if is_of_statement { Ok(protocol_error(&error)) } else { Err(error) }
}
