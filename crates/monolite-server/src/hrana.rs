//! Owns the messages of the protocol Hrana, versions 1, 2 and 3, and their two encodings.
//!
//! # Invariants
//! - What a client sends never panics and never overflows the stack; memory is at most some ten
//!   times the bytes, by the limits in [`request`].
//! - An error names the field: `requests[1].stmt.args[0]: an integer is a string of digits`.
//!
//! # Not here
//! Streams, stored SQL, batons and transports: nothing here does I/O or knows the engine, but for
//! the values of SQLite, which [`Rows`] writes.

mod decode;
mod encode;
pub mod request;
pub mod response;
pub mod rows;

pub use request::{
    Batch, ClientMessage, Condition, CursorRequest, PipelineRequest, SocketRequest, Sql, Step,
    Stmt, StreamRequest, Value,
};
pub use response::{
    BatchResult, Column, CursorEntry, DescribeResult, PipelineResponse, ProtocolError,
    ServerMessage, SocketResponse, StmtResult, StreamResponse,
};
pub use rows::{EncodedRow, InvalidText, Rows};

/// How a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JSON, in all versions.
    Json,
    /// Protocol Buffers, in version 3.
    Protobuf,
}
