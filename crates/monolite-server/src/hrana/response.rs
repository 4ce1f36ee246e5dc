//! Owns what clients are answered: the responses of all versions and transports, and how they are
//! written.
//!
//! # Format
//! That of `serde` is how they are kept with an idempotency key (`stream::keyed`). No client reads
//! it.

mod rows;
mod writer;

pub use rows::{EncodedRow, InvalidText, Rows};
use serde::{Deserialize, Serialize};
use writer::Writer;

use super::Encoding;

/// An error as clients read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The declared type of the table's column that it shows; `None` of an expression.
    pub decltype: Option<String>,
}

/// What a statement did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchResult {
    /// Of those that ran.
    pub step_results: Vec<Option<StmtResult>>,
    /// Of those that failed.
    pub step_errors: Vec<Option<ProtocolError>>,
}

/// What a statement would be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// The token is good.
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

impl PipelineResponse {
    /// The body of the answer.
    ///
    /// # Panics
    /// If rows are in another encoding.
    pub fn encode(&self, encoding: Encoding) -> Vec<u8> {
        encode(encoding, |it| {
            head(it, self.baton.as_deref());
            it.list("results", &self.results, |it, result| match result {
                Ok(response) => it.variant(3, "ok", |it| {
                    it.name("response");
                    it.wrapped(1, |it| response.write(it, Transport::Http));
                }),
                Err(error) => it.variant(3, "error", |it| error.write(it, 2)),
            });
        })
    }
}

impl ServerMessage {
    /// The content of a text frame for JSON, of a binary one for Protobuf.
    ///
    /// # Panics
    /// If rows are in another encoding.
    pub fn encode(&self, encoding: Encoding) -> Vec<u8> {
        let mut out = Vec::new();
        let it = &mut Writer { out: &mut out, encoding };
        match self {
            ServerMessage::HelloOk => it.variant(1, "hello_ok", |_| {}),
            ServerMessage::HelloError(error) => {
                it.variant(2, "hello_error", |it| error.write(it, 1));
            }
            ServerMessage::ResponseOk { request_id, response } => {
                it.variant(3, "response_ok", |it| {
                    it.number(1, "request_id", *request_id);
                    it.name("response");
                    response.write(it);
                });
            }
            ServerMessage::ResponseError { request_id, error } => {
                it.variant(4, "response_error", |it| {
                    it.number(1, "request_id", *request_id);
                    error.write(it, 2);
                });
            }
        }
        out
    }
}

/// Adds the beginning of the answer of `/v3/cursor`, before the batch runs.
pub fn encode_cursor_head(baton: Option<&str>, encoding: Encoding, out: &mut Vec<u8>) {
    let mut writer = Writer { out, encoding };
    writer.delimited(|it| it.fields(|it| head(it, baton)));
    writer.json("\n");
}

impl CursorEntry {
    /// Adds the entry to the answer of `/v3/cursor`: a line of JSON, or a message of Protobuf
    /// behind its length.
    ///
    /// # Panics
    /// If it is a row in another encoding.
    pub fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) {
        if encoding == Encoding::Json || *self != CursorEntry::ReplicationIndex {
            let mut writer = Writer { out, encoding };
            writer.delimited(|it| self.write(it, ""));
            writer.json("\n");
        }
    }

    /// Writes it with the rowid between two `quote`.
    fn write(&self, it: &mut Writer<'_>, quote: &str) {
        match self {
            CursorEntry::StepBegin { step, cols } => it.variant(1, "step_begin", |it| {
                it.number(1, "step", *step);
                columns(it, 2, cols);
            }),
            CursorEntry::StepEnd { affected_row_count, last_insert_rowid } => {
                it.variant(2, "step_end", |it| {
                    it.number(1, "affected_row_count", *affected_row_count);
                    it.rowid(2, "last_insert_rowid", quote, *last_insert_rowid);
                });
            }
            CursorEntry::StepError { step, error } => it.variant(3, "step_error", |it| {
                it.number(1, "step", *step);
                error.write(it, 2);
            }),
            CursorEntry::Row(row) => it.variant(4, "row", |it| {
                it.name("row");
                it.out.extend_from_slice(row.encoded(it.encoding));
            }),
            CursorEntry::Error { error } => it.fields(|it| {
                it.kind("error");
                error.write(it, 5);
            }),
            CursorEntry::ReplicationIndex => it.fields(|it| {
                it.kind("replication_index");
                it.text(6, "replication_index", None);
            }),
        }
    }
}

impl StmtResult {
    /// The body of the answer of `/v1/execute`, of JSON.
    ///
    /// # Panics
    /// If the rows are not JSON.
    pub fn encode_v1(&self) -> Vec<u8> {
        encode(Encoding::Json, |it| {
            it.name("result");
            self.write(it, 1);
        })
    }

    fn write(&self, it: &mut Writer<'_>, tag: u8) {
        it.message(tag, |it| {
            columns(it, 1, &self.cols);
            // In Protobuf each has its tag, which is 2.
            it.name("rows");
            it.json("[");
            it.out.extend_from_slice(self.rows.encoded(it.encoding));
            it.json("]");
            it.number(3, "affected_row_count", self.affected_row_count);
            it.rowid(4, "last_insert_rowid", "\"", self.last_insert_rowid);
            it.text(5, "replication_index", None);
            it.number(6, "rows_read", self.rows_read);
            it.number(7, "rows_written", self.rows_written);
            it.name("query_duration_ms");
            it.float(8, self.query_duration_ms);
        });
    }
}

impl BatchResult {
    /// The body of the answer of `/v1/batch`, of JSON.
    ///
    /// # Panics
    /// If rows are not JSON.
    pub fn encode_v1(&self) -> Vec<u8> {
        encode(Encoding::Json, |it| {
            it.name("result");
            self.write(it, 1);
        })
    }

    fn write(&self, it: &mut Writer<'_>, tag: u8) {
        it.message(tag, |it| {
            it.sparse(1, "step_results", &self.step_results, |it, step| step.write(it, 2));
            it.sparse(2, "step_errors", &self.step_errors, |it, step| {
                it.message(2, |it| step.fields(it));
            });
            it.text(3, "replication_index", None);
        });
    }
}

/// What carries a response, whose tag in Protobuf depends on it.
#[derive(Clone, Copy)]
enum Transport {
    Http,
    Socket,
}

impl StreamResponse {
    fn write(&self, it: &mut Writer<'_>, transport: Transport) {
        let (kind, http, socket) = match self {
            StreamResponse::Close => ("close", 1, 3),
            StreamResponse::Execute(_) => ("execute", 2, 4),
            StreamResponse::Batch(_) => ("batch", 3, 5),
            StreamResponse::Sequence => ("sequence", 4, 9),
            StreamResponse::Describe(_) => ("describe", 5, 10),
            StreamResponse::StoreSql => ("store_sql", 6, 11),
            StreamResponse::CloseSql => ("close_sql", 7, 12),
            StreamResponse::GetAutocommit { .. } => ("get_autocommit", 8, 13),
        };
        let tag = if matches!(transport, Transport::Http) { http } else { socket };
        it.variant(tag, kind, |it| match self {
            StreamResponse::Execute(result) => {
                it.name("result");
                result.write(it, 1);
            }
            StreamResponse::Batch(result) => {
                it.name("result");
                result.write(it, 1);
            }
            StreamResponse::Describe(result) => {
                it.name("result");
                result.write(it, 1);
            }
            StreamResponse::GetAutocommit { is_autocommit } => {
                it.number(1, "is_autocommit", *is_autocommit);
            }
            _ => {}
        });
    }
}

impl SocketResponse {
    fn write(&self, it: &mut Writer<'_>) {
        match self {
            SocketResponse::OpenStream => it.variant(2, "open_stream", |_| {}),
            SocketResponse::CloseStream => it.variant(3, "close_stream", |_| {}),
            SocketResponse::Stream(response) => response.write(it, Transport::Socket),
            SocketResponse::OpenCursor => it.variant(6, "open_cursor", |_| {}),
            SocketResponse::CloseCursor => it.variant(7, "close_cursor", |_| {}),
            SocketResponse::FetchCursor { entries, done } => it.variant(8, "fetch_cursor", |it| {
                let is_told = |it: &&CursorEntry| **it != CursorEntry::ReplicationIndex;
                it.list("entries", entries.iter().filter(is_told), |it, entry| {
                    it.wrapped(1, |it| entry.write(it, "\""));
                });
                it.number(2, "done", *done);
            }),
        }
    }
}

impl DescribeResult {
    fn write(&self, it: &mut Writer<'_>, tag: u8) {
        it.message(tag, |it| {
            it.list("params", &self.params, |it, name| {
                it.message(1, |it| it.text(1, "name", name.as_deref()));
            });
            columns(it, 2, &self.cols);
            it.number(3, "is_explain", self.is_explain);
            it.number(4, "is_readonly", self.is_readonly);
        });
    }
}

impl ProtocolError {
    /// An error with neither a finer code nor a place.
    pub fn new(code: &str, message: impl Into<String>) -> ProtocolError {
        let (message, code) = (message.into(), code.to_owned());
        ProtocolError { message, code, extended_code: None, offset: None }
    }

    /// The body of a response that is not 200, of JSON in all versions. Clients look for its words
    /// in `error` or `message`, or show all of it.
    pub fn body(&self) -> Vec<u8> {
        encode(Encoding::Json, |it| {
            it.text(0, "error", Some(&self.message));
            self.fields(it);
        })
    }

    fn write(&self, it: &mut Writer<'_>, tag: u8) {
        it.name("error");
        it.message(tag, |it| self.fields(it));
    }

    fn fields(&self, it: &mut Writer<'_>) {
        it.text(1, "message", Some(&self.message));
        it.text(2, "code", Some(&self.code));
        if it.encoding == Encoding::Json {
            if let Some(code) = &self.extended_code {
                it.text(0, "extended_code", Some(code));
            }
            if let Some(offset) = self.offset {
                it.number(0, "offset", offset as u64);
            }
        }
    }
}

/// Writes a message that is whole.
fn encode(encoding: Encoding, fields: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    Writer { out: &mut out, encoding }.fields(fields);
    out
}

fn head(it: &mut Writer<'_>, baton: Option<&str>) {
    it.text(1, "baton", baton);
    it.text(2, "base_url", None);
}

fn columns(it: &mut Writer<'_>, tag: u8, columns: &[Column]) {
    it.list("cols", columns, |it, column| {
        it.message(tag, |it| {
            it.text(1, "name", Some(&column.name));
            it.text(2, "decltype", column.decltype.as_deref());
        });
    });
}
