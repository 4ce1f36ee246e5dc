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

mod batch;
pub(crate) mod cursor;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use monolite::rusqlite::{self, Row};
use monolite::{Database, ErrorKind, Parameters, Ran, ReadTx, Transaction};

use crate::auth::Right;
use crate::control::Control;
use crate::errors::{Own, protocol_error, read_only, sqlite_error};
use crate::hrana::{
    Column, DescribeResult, Encoding, ProtocolError, Rows, Sql, Stmt, StmtResult, StreamRequest,
    StreamResponse, Value,
};

/// Texts that a stream or a connection may store, and the length of one.
const STORED: usize = 256;
const STORED_BYTES: usize = 64 << 10;

/// Longest text of SQL.
const SQL_BYTES: usize = 1 << 20;

/// Most bytes of the rows of one statement.
pub(crate) const ROWS_BYTES: usize = 10 << 20;

/// Texts that a client has stored, by its numbers: those of a stream over HTTP, and of a connection
/// over WebSocket.
#[derive(Debug, Default)]
pub(crate) struct Stored(HashMap<i32, Arc<str>>);

impl Stored {
    /// Keeps `sql`; a number in use is given the new text.
    pub(crate) fn store(&mut self, number: i32, sql: String) -> Result<(), ProtocolError> {
        if sql.len() > STORED_BYTES {
            let message = format!("the text has {} bytes; {STORED_BYTES} can be stored", sql.len());
            return Err(ProtocolError::new("SQL_STORE_FULL", message));
        }
        if self.0.len() >= STORED && !self.0.contains_key(&number) {
            let message = format!("{STORED} texts are stored; close some by close_sql");
            return Err(ProtocolError::new("SQL_STORE_FULL", message));
        }
        self.0.insert(number, sql.into());
        Ok(())
    }

    pub(crate) fn close(&mut self, number: i32) {
        self.0.remove(&number);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts the texts in place of their numbers in `request`.
    pub(crate) fn resolve(&self, request: &mut StreamRequest) -> Result<(), ProtocolError> {
        let put = |sql: &mut Option<String>, number: &mut Option<i32>| {
            if sql.is_none() && number.is_some() {
                *sql = Some(self.text(None, number.take())?.to_string());
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
            (None, Some(number)) => self.0.get(&number).cloned().ok_or_else(|| {
                ProtocolError::new(
                    "SQL_NOT_STORED",
                    format!("no SQL is stored with the number {number}"),
                )
            })?,
            _ => return Err(ProtocolError::new("ARGS_INVALID", "give either sql or sql_id")),
        };
        if text.len() > SQL_BYTES {
            let message = format!("the SQL has {} bytes; {SQL_BYTES} are allowed", text.len());
            return Err(ProtocolError::new("SQLITE_TOOBIG", message));
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
    control: Option<Control>,
}

/// A stream of requests, on one database with one right.
pub(crate) struct Stream {
    db: Database,
    right: Right,
    state: State,
    /// The savepoints that are open, if the first of them began the transaction.
    savepoints: Vec<String>,
}

enum State {
    Idle,
    Begun { is_read_only: bool },
    Open(Transaction),
}

impl Stream {
    pub(crate) fn new(db: &Database, right: Right) -> Stream {
        let db = if right == Right::ReadWrite { db.clone() } else { db.read_only() };
        Stream { db, right, state: State::Idle, savepoints: Vec::new() }
    }

    pub(crate) fn is_autocommit(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Runs one request; `stored` is what its numbers of texts mean.
    pub(crate) async fn run(
        &mut self,
        request: StreamRequest,
        stored: &mut Stored,
        encoding: Encoding,
    ) -> Result<StreamResponse, ProtocolError> {
        match request {
            StreamRequest::Close => {
                self.close();
                Ok(StreamResponse::Close)
            }
            StreamRequest::Execute(stmt) => {
                let prepared = prepare(stmt, stored, encoding)?;
                self.execute(Arc::new(prepared)).await.map(StreamResponse::Execute)
            }
            StreamRequest::Batch(batch) => {
                self.batch(batch, stored, encoding).await.map(StreamResponse::Batch)
            }
            StreamRequest::Sequence(sql) => {
                let Sql { sql, sql_id } = sql;
                let script = stored.text(sql.as_deref(), sql_id)?;
                self.sequence(&script).await.map(|()| StreamResponse::Sequence)
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
        }
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
            Some(Control::Instead(sql)) => {
                let instead = Prepared {
                    sql: sql.as_str().into(),
                    parameters: Parameters::Positional(Vec::new()),
                    control: None,
                    ..*what
                };
                return self.statement(&Arc::new(instead)).await;
            }
            Some(Control::Nothing) => Ok(()),
            Some(Control::Blocked(why)) => Err(ProtocolError::new("BLOCKED", *why)),
            Some(Control::Begin { is_read_only }) => self.begin(*is_read_only),
            Some(Control::Commit) => self.commit().await,
            Some(Control::Rollback) => self.roll_back(),
            Some(Control::Savepoint(name)) => self.savepoint(name).await,
            Some(Control::Release(name)) => self.release(name).await,
            Some(Control::RollbackTo(name)) => self.roll_back_to(name).await,
        };
        done.map(|()| nothing(encoding, began))
    }

    async fn statement(&mut self, what: &Arc<Prepared>) -> Result<StmtResult, ProtocolError> {
        if self.is_autocommit() {
            return self.autocommit(what).await;
        }
        let began = Instant::now();
        let tx = self.open()?;
        let (rows, parameters) = (Rows::new(what.encoding), what.parameters.clone());
        let ran = tx.run(&what.sql, parameters, rows, gather(what.wants_rows)).await;
        ran.map(|ran| result(ran, began)).map_err(|error| protocol_error(&error))
    }

    /// Runs a statement as a transaction of its own.
    async fn autocommit(&self, what: &Arc<Prepared>) -> Result<StmtResult, ProtocolError> {
        let reading = Reading::of(&what.sql);
        if reading != Reading::No || self.right == Right::ReadOnly {
            let what = Arc::clone(what);
            let read = self.db.read_durable(move |tx| {
                if reading != Reading::Yes && !tx.describe(&what.sql)?.is_read_only {
                    return Ok(None);
                }
                run(tx, &what).map(Some)
            });
            if let Some(result) = read.await.map_err(|error| protocol_error(&error))? {
                return Ok(result);
            }
            self.may_write()?;
        }
        let what = Arc::clone(what);
        let write = self.db.write(move |tx| run(tx, &what));
        write.await.map_err(|error| protocol_error(&error))
    }

    fn may_write(&self) -> Result<(), ProtocolError> {
        match self.right {
            Right::ReadWrite => Ok(()),
            Right::ReadOnly => Err(read_only("the token gives the right to read only")),
        }
    }

    /// The stream's transaction, begun now if it was not before.
    fn open(&mut self) -> Result<&Transaction, ProtocolError> {
        if let State::Begun { is_read_only } = self.state {
            let read_only = is_read_only.then(|| self.db.read_only());
            let tx = read_only.as_ref().unwrap_or(&self.db).transaction();
            self.state = State::Open(tx.map_err(|error| protocol_error(&error))?);
        }
        match &self.state {
            State::Open(tx) => Ok(tx),
            _ => unreachable!("a transaction was begun"),
        }
    }

    fn begin(&mut self, is_read_only: bool) -> Result<(), ProtocolError> {
        if !self.is_autocommit() {
            return Err(sqlite_error("cannot start a transaction within a transaction"));
        }
        self.state = State::Begun { is_read_only };
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), ProtocolError> {
        self.savepoints.clear();
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => Err(sqlite_error("cannot commit - no transaction is active")),
            State::Begun { .. } => Ok(()),
            State::Open(tx) => tx.commit().await.map(drop).map_err(|error| protocol_error(&error)),
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
            self.state = State::Begun { is_read_only: false };
        }
        self.open()?.savepoint(name).await.map_err(|error| protocol_error(&error))?;
        if is_first || !self.savepoints.is_empty() {
            self.savepoints.push(name.to_owned());
        }
        Ok(())
    }

    /// Where the outermost savepoint began the transaction, releasing it commits.
    async fn release(&mut self, name: &str) -> Result<(), ProtocolError> {
        if self.is_autocommit() {
            return Err(no_such_savepoint(name));
        }
        let at = self.savepoints.iter().rposition(|open| open.eq_ignore_ascii_case(name));
        if at == Some(0) {
            return self.commit().await;
        }
        self.open()?.release(name).await.map_err(|error| protocol_error(&error))?;
        self.savepoints.truncate(at.unwrap_or(0));
        Ok(())
    }

    async fn roll_back_to(&mut self, name: &str) -> Result<(), ProtocolError> {
        if self.is_autocommit() {
            return Err(no_such_savepoint(name));
        }
        self.open()?.rollback_to(name).await.map_err(|error| protocol_error(&error))?;
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
            self.open()?.describe(&sql).await
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
fn prepare(stmt: Stmt, stored: &Stored, encoding: Encoding) -> Result<Prepared, ProtocolError> {
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
    Ok(Prepared { sql, parameters, wants_rows, encoding, control })
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

/// Runs a statement in a closure of the engine.
fn run(tx: &ReadTx<'_>, what: &Prepared) -> monolite::Result<StmtResult> {
    let began = Instant::now();
    let rows = Rows::new(what.encoding);
    let ran = tx.run(&what.sql, &what.parameters, rows, gather(what.wants_rows))?;
    Ok(result(ran, began))
}

/// Encodes each row as it comes, or takes no notice of it.
fn gather(wants_rows: bool) -> impl FnMut(&mut Rows, &Row<'_>) -> rusqlite::Result<()> {
    move |rows, row| {
        if !wants_rows {
            return Ok(());
        }
        let columns = row.as_ref().column_count();
        rows.push(row, columns).map_err(|invalid| Own::as_sqlite(invalid.into()))?;
        if rows.bytes() > ROWS_BYTES {
            let message = format!("the result has over {ROWS_BYTES} bytes; select less at once");
            return Err(Own::as_sqlite(ProtocolError::new("RESPONSE_TOO_LARGE", message)));
        }
        Ok(())
    }
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

/// Whether the writer has undone nothing of the statements before one that failed with `error`.
fn leaves_transaction(error: &monolite::Error) -> bool {
    matches!(error.kind(), ErrorKind::Constraint | ErrorKind::Invalid | ErrorKind::NoRows)
}
