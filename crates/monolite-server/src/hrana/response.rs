//! Owns what clients are answered: the responses of all versions and transports.

use super::encode::json::Rowid;
use super::encode::{json, protobuf};
use super::{EncodedRow, Encoding, Rows};

/// What a response takes beside its rows, mostly.
const ROOM: usize = 512;

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

impl ProtocolError {
    /// An error with neither a finer code nor a place.
    pub fn new(code: &str, message: impl Into<String>) -> ProtocolError {
        let (message, code) = (message.into(), code.to_owned());
        ProtocolError { message, code, extended_code: None, offset: None }
    }

    /// The body of a response that is not 200: JSON in all versions, which clients read in four
    /// ways, as `error`, as `message` or as text.
    pub fn body(&self) -> Vec<u8> {
        let mut out = Vec::new();
        json::error_body(&mut out, self);
        out
    }
}

impl StmtResult {
    /// The body of the answer to `/v1/execute`, of JSON.
    ///
    /// # Panics
    /// If the rows are not JSON.
    pub fn v1_body(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.rows.bytes() + ROOM);
        json::v1(&mut out, |out| json::stmt_result(out, self));
        out
    }
}

impl BatchResult {
    /// The body of the answer to `/v1/batch`, of JSON.
    ///
    /// # Panics
    /// If rows are not JSON.
    pub fn v1_body(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.row_bytes() + ROOM);
        json::v1(&mut out, |out| json::batch_result(out, self));
        out
    }

    fn row_bytes(&self) -> usize {
        self.step_results.iter().flatten().map(|step| step.rows.bytes()).sum()
    }
}

impl StreamResponse {
    /// The bytes of all rows, most of the response if it is large.
    pub(super) fn row_bytes(&self) -> usize {
        match self {
            StreamResponse::Execute(result) => result.rows.bytes(),
            StreamResponse::Batch(result) => result.row_bytes(),
            _ => 0,
        }
    }
}

impl PipelineResponse {
    /// The body of the answer.
    ///
    /// # Panics
    /// If rows are in another encoding.
    pub fn encode(&self, encoding: Encoding) -> Vec<u8> {
        let rows: usize = self.results.iter().flatten().map(StreamResponse::row_bytes).sum();
        let mut out = Vec::with_capacity(rows + ROOM * (1 + self.results.len()));
        match encoding {
            Encoding::Json => json::pipeline(&mut out, self),
            Encoding::Protobuf => protobuf::pipeline(&mut out, self),
        }
        out
    }
}

impl ServerMessage {
    /// The content of a text frame for JSON, of a binary one for Protobuf.
    ///
    /// # Panics
    /// If rows are in another encoding.
    pub fn encode(&self, encoding: Encoding) -> Vec<u8> {
        let rows = match self {
            ServerMessage::ResponseOk { response: SocketResponse::Stream(response), .. } => {
                response.row_bytes()
            }
            _ => 0,
        };
        let mut out = Vec::with_capacity(rows + ROOM);
        match encoding {
            Encoding::Json => json::server_message(&mut out, self),
            Encoding::Protobuf => protobuf::server_message(&mut out, self),
        }
        out
    }
}

/// Adds the beginning of the answer of `/v3/cursor`, before the batch runs.
pub fn encode_cursor_head(baton: Option<&str>, encoding: Encoding, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Json => {
            json::head(out, baton);
            json::put(out, "}\n");
        }
        Encoding::Protobuf => protobuf::delimited(out, 0, |out| protobuf::head(out, baton)),
    }
}

impl CursorEntry {
    /// Adds the entry to the answer of `/v3/cursor`: a line of JSON, or a message of Protobuf behind
    /// its length.
    ///
    /// # Panics
    /// If it is a row in another encoding.
    pub fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) {
        match encoding {
            Encoding::Json => {
                json::cursor_entry(out, self, Rowid::Number);
                json::put(out, "\n");
            }
            Encoding::Protobuf if *self == CursorEntry::ReplicationIndex => {}
            Encoding::Protobuf => {
                protobuf::delimited(out, 0, |out| protobuf::cursor_entry(out, self));
            }
        }
    }
}
