//! Owns what clients are answered: the responses of all versions and transports.

use super::{EncodedRow, Rows};

/// An error as clients read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError {
    /// In words; SQLite's own where it failed.
    pub message: String,
    /// What programs compare, such as `SQLITE_CONSTRAINT`; always there.
    pub code: String,
    /// The finer one, such as `SQLITE_CONSTRAINT_UNIQUE`. Only JSON has a place for it.
    pub extended_code: Option<String>,
    /// Where in the SQL, in bytes of UTF-8. Only JSON has a place for it.
    pub offset: Option<usize>,
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The declared type of the table's column that it shows; `None` of an expression.
    pub decltype: Option<String>,
}

/// What a statement did.
#[derive(Clone, Debug, PartialEq)]
pub struct StmtResult {
    /// Also without rows.
    pub cols: Vec<Column>,
    /// Encoded, as the response is.
    pub rows: Rows,
    /// Rows that an `INSERT`, `UPDATE` or `DELETE` changed; 0 of any other statement.
    pub affected_row_count: u64,
    /// The rowid of the last row inserted, of a statement that inserted.
    pub last_insert_rowid: Option<i64>,
    /// Rows read.
    pub rows_read: u64,
    /// Rows changed.
    pub rows_written: u64,
    /// How long it took, in milliseconds.
    pub query_duration_ms: f64,
}

/// What the steps of a batch did, an entry for each in both lists; both `None` if it was skipped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchResult {
    /// Of those that ran.
    pub step_results: Vec<Option<StmtResult>>,
    /// Of those that failed.
    pub step_errors: Vec<Option<ProtocolError>>,
}

/// What a statement would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeResult {
    /// The name of each parameter with its sigil; `None` of `?`.
    pub params: Vec<Option<String>>,
    /// Its columns.
    pub cols: Vec<Column>,
    /// Whether it is an `EXPLAIN`.
    pub is_explain: bool,
    /// Whether it changes nothing.
    pub is_readonly: bool,
}

/// The answer to a [`StreamRequest`](super::StreamRequest), of the same type.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamResponse {
    /// To `close`.
    Close,
    /// To `execute`.
    Execute(StmtResult),
    /// To `batch`.
    Batch(BatchResult),
    /// To `sequence`.
    Sequence,
    /// To `describe`.
    Describe(DescribeResult),
    /// To `store_sql`.
    StoreSql,
    /// To `close_sql`.
    CloseSql,
    /// To `get_autocommit`.
    GetAutocommit {
        /// Whether the stream has no transaction.
        is_autocommit: bool,
    },
}

/// The answer to a pipeline. Its `base_url` is always null.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineResponse {
    /// For the next request; `None` if the stream is closed.
    pub baton: Option<String>,
    /// One for each request.
    pub results: Vec<Result<StreamResponse, ProtocolError>>,
}

/// What a cursor gives.
#[derive(Clone, Debug, PartialEq)]
pub enum CursorEntry {
    /// A step begins.
    StepBegin {
        /// Which one.
        step: u32,
        /// Also without rows.
        cols: Vec<Column>,
    },
    /// A row of the step that has begun.
    Row(EncodedRow),
    /// The step that has begun is over.
    StepEnd {
        /// As in [`StmtResult`].
        affected_row_count: u64,
        /// As in [`StmtResult`].
        last_insert_rowid: Option<i64>,
    },
    /// A step failed, whether it had begun or not.
    StepError {
        /// Which one.
        step: u32,
        /// Why.
        error: ProtocolError,
    },
    /// The batch failed: the last entry.
    Error {
        /// Why.
        error: ProtocolError,
    },
    /// The batch is over. Only the JSON lines of `/v3/cursor` have it, as some clients take its
    /// absence for a failure and others fail on it; elsewhere it is written as nothing.
    ReplicationIndex,
}

/// The answer to a [`SocketRequest`](super::SocketRequest), of the same type.
#[derive(Clone, Debug, PartialEq)]
pub enum SocketResponse {
    /// To `open_stream`.
    OpenStream,
    /// To `close_stream`.
    CloseStream,
    /// To `execute`, `batch`, `sequence`, `describe`, `store_sql`, `close_sql`, `get_autocommit`.
    Stream(StreamResponse),
    /// To `open_cursor`.
    OpenCursor,
    /// To `close_cursor`.
    CloseCursor,
    /// To `fetch_cursor`.
    FetchCursor {
        /// At most as many as asked for.
        entries: Vec<CursorEntry>,
        /// Whether none will follow.
        done: bool,
    },
}

/// A message that the server sends over WebSocket.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerMessage {
    /// The token is good. Only for the first `hello`: the JavaScript client fails on a second one.
    HelloOk,
    /// The token is not; the connection ends.
    HelloError(ProtocolError),
    /// A request was done.
    ResponseOk {
        /// The request's.
        request_id: i32,
        /// The answer.
        response: SocketResponse,
    },
    /// A request failed.
    ResponseError {
        /// The request's.
        request_id: i32,
        /// Why.
        error: ProtocolError,
    },
}
