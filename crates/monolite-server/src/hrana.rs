//! Owns the messages of the protocol Hrana, versions 1, 2 and 3, and their two encodings.
//!
//! # Invariants
//! - What a client sends never panics and never overflows the stack. It takes memory for at most
//!   some ten times its bytes.
//! - An error names the field: `requests[1].stmt.args[0]: an integer is a string of digits`.
//!
//! # Not here
//! Streams, stored SQL, batons and transports: nothing here does I/O or knows the engine, but for
//! the values of SQLite, which [`Rows`] writes.

mod request;
mod response;

pub(crate) use request::script_weight;
pub use request::{
    Batch, ClientMessage, Condition, CursorRequest, PipelineRequest, SocketRequest, Sql, Step,
    Stmt, StreamRequest, Value,
};
pub use response::{
    BatchResult, Column, CursorEntry, DescribeResult, EncodedRow, InvalidText, PipelineResponse,
    ProtocolError, Rows, ServerMessage, SocketResponse, StmtResult, StreamResponse,
    encode_cursor_head,
};
use serde::{Deserialize, Serialize};

/// How a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Encoding {
    /// JSON, in all versions.
    Json,
    /// Protocol Buffers, in version 3.
    Protobuf,
}
