//! Owns how responses are written as Protocol Buffers.
//!
//! # Format
//! The messages of the specification of Hrana 3. A message stands behind its length, which is known
//! when it is written: [`message`] makes room for the length in advance, by the bytes of the rows,
//! so that they are seldom moved.

use monolite::rusqlite::types::ValueRef;

use crate::hrana::{
    BatchResult, Column, CursorEntry, DescribeResult, Encoding, PipelineResponse, ProtocolError,
    ServerMessage, SocketResponse, StmtResult, StreamResponse,
};

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

pub(in crate::hrana) fn value(out: &mut Vec<u8>, value: ValueRef<'_>) -> Result<(), ()> {
    match value {
        ValueRef::Null => message(out, 1, 0, |_| {}),
        ValueRef::Integer(integer) => sint(out, 2, Some(integer)),
        ValueRef::Real(float) => double(out, 3, float),
        ValueRef::Text(text) => bytes(out, 4, str::from_utf8(text).map_err(|_| ())?.as_bytes()),
        ValueRef::Blob(blob) => bytes(out, 5, blob),
    }
    Ok(())
}

/// The content of a message in a field whose tag is one byte.
pub(in crate::hrana) fn content(field: &[u8]) -> &[u8] {
    let length = field[1..].iter().take_while(|byte| **byte >= 0x80).count() + 1;
    &field[1 + length..]
}

pub(in crate::hrana) fn pipeline(out: &mut Vec<u8>, response: &PipelineResponse) {
    text(out, 1, response.baton.as_deref());
    for result in &response.results {
        match result {
            Ok(response) => {
                let hint = response.row_bytes();
                message(out, 3, hint, |out| {
                    message(out, 1, hint, |out| stream_response(out, tags(response).0, response));
                });
            }
            Err(failure) => message(out, 3, 0, |out| error(out, 2, failure)),
        }
    }
}

/// The first message of a cursor's response.
pub(in crate::hrana) fn head(out: &mut Vec<u8>, baton: Option<&str>) {
    text(out, 1, baton);
}

pub(in crate::hrana) fn server_message(out: &mut Vec<u8>, server_message: &ServerMessage) {
    match server_message {
        ServerMessage::HelloOk => message(out, 1, 0, |_| {}),
        ServerMessage::HelloError(failure) => message(out, 2, 0, |out| error(out, 1, failure)),
        ServerMessage::ResponseOk { request_id, response } => {
            let hint = match response {
                SocketResponse::Stream(response) => response.row_bytes(),
                _ => 0,
            };
            message(out, 3, hint, |out| {
                int(out, 1, *request_id);
                socket_response(out, response);
            });
        }
        ServerMessage::ResponseError { request_id, error: failure } => {
            message(out, 4, 0, |out| {
                int(out, 1, *request_id);
                error(out, 2, failure);
            });
        }
    }
}

fn socket_response(out: &mut Vec<u8>, response: &SocketResponse) {
    match response {
        SocketResponse::OpenStream => message(out, 2, 0, |_| {}),
        SocketResponse::CloseStream => message(out, 3, 0, |_| {}),
        SocketResponse::Stream(response) => stream_response(out, tags(response).1, response),
        SocketResponse::OpenCursor => message(out, 6, 0, |_| {}),
        SocketResponse::CloseCursor => message(out, 7, 0, |_| {}),
        SocketResponse::FetchCursor { entries, done } => message(out, 8, 0, |out| {
            for entry in entries.iter().filter(|it| **it != CursorEntry::ReplicationIndex) {
                message(out, 1, 0, |out| cursor_entry(out, entry));
            }
            uint(out, 2, u64::from(*done));
        }),
    }
}

/// The tag of a response over HTTP, and over WebSocket.
fn tags(response: &StreamResponse) -> (u32, u32) {
    match response {
        StreamResponse::Close => (1, 3),
        StreamResponse::Execute(_) => (2, 4),
        StreamResponse::Batch(_) => (3, 5),
        StreamResponse::Sequence => (4, 9),
        StreamResponse::Describe(_) => (5, 10),
        StreamResponse::StoreSql => (6, 11),
        StreamResponse::CloseSql => (7, 12),
        StreamResponse::GetAutocommit { .. } => (8, 13),
    }
}

fn stream_response(out: &mut Vec<u8>, tag: u32, response: &StreamResponse) {
    let hint = response.row_bytes();
    message(out, tag, hint, |out| match response {
        StreamResponse::Execute(result) => {
            message(out, 1, hint, |out| stmt_result(out, result));
        }
        StreamResponse::Batch(result) => message(out, 1, hint, |out| batch_result(out, result)),
        StreamResponse::Describe(result) => message(out, 1, 0, |out| describe_result(out, result)),
        StreamResponse::GetAutocommit { is_autocommit } => uint(out, 1, u64::from(*is_autocommit)),
        StreamResponse::Close
        | StreamResponse::Sequence
        | StreamResponse::StoreSql
        | StreamResponse::CloseSql => {}
    });
}

fn stmt_result(out: &mut Vec<u8>, result: &StmtResult) {
    columns(out, 1, &result.cols);
    // Each has its tag, which is 2.
    out.extend_from_slice(result.rows.encoded(Encoding::Protobuf));
    uint(out, 3, result.affected_row_count);
    sint(out, 4, result.last_insert_rowid);
    uint(out, 6, result.rows_read);
    uint(out, 7, result.rows_written);
    if result.query_duration_ms != 0.0 {
        double(out, 8, result.query_duration_ms);
    }
}

/// Two maps, from the numbers of steps.
fn batch_result(out: &mut Vec<u8>, result: &BatchResult) {
    for (step, result) in result.step_results.iter().enumerate() {
        let Some(result) = result else { continue };
        let hint = result.rows.bytes();
        message(out, 1, hint, |out| {
            key(out, 1, VARINT);
            varint(out, step as u64);
            message(out, 2, hint, |out| stmt_result(out, result));
        });
    }
    for (step, failure) in result.step_errors.iter().enumerate() {
        let Some(failure) = failure else { continue };
        message(out, 2, 0, |out| {
            key(out, 1, VARINT);
            varint(out, step as u64);
            error(out, 2, failure);
        });
    }
}

fn describe_result(out: &mut Vec<u8>, result: &DescribeResult) {
    for name in &result.params {
        message(out, 1, 0, |out| text(out, 1, name.as_deref()));
    }
    columns(out, 2, &result.cols);
    uint(out, 3, u64::from(result.is_explain));
    uint(out, 4, u64::from(result.is_readonly));
}

pub(in crate::hrana) fn cursor_entry(out: &mut Vec<u8>, entry: &CursorEntry) {
    match entry {
        CursorEntry::StepBegin { step, cols } => message(out, 1, 0, |out| {
            uint(out, 1, u64::from(*step));
            columns(out, 2, cols);
        }),
        CursorEntry::StepEnd { affected_row_count, last_insert_rowid } => {
            message(out, 2, 0, |out| {
                uint(out, 1, *affected_row_count);
                sint(out, 2, *last_insert_rowid);
            });
        }
        CursorEntry::StepError { step, error: failure } => message(out, 3, 0, |out| {
            uint(out, 1, u64::from(*step));
            error(out, 2, failure);
        }),
        CursorEntry::Row(row) => bytes(out, 4, row.encoded(Encoding::Protobuf)),
        CursorEntry::Error { error: failure } => error(out, 5, failure),
        CursorEntry::ReplicationIndex => {}
    }
}

fn columns(out: &mut Vec<u8>, tag: u32, columns: &[Column]) {
    for column in columns {
        message(out, tag, 0, |out| {
            text(out, 1, Some(&column.name));
            text(out, 2, column.decltype.as_deref());
        });
    }
}

fn error(out: &mut Vec<u8>, tag: u32, error: &ProtocolError) {
    message(out, tag, error.message.len(), |out| {
        text(out, 1, Some(&error.message));
        text(out, 2, Some(&error.code));
    });
}

/// Writes a message, for whose length there is room enough if it has `hint` bytes.
pub(in crate::hrana) fn message<T>(
    out: &mut Vec<u8>,
    tag: u32,
    hint: usize,
    write: impl FnOnce(&mut Vec<u8>) -> T,
) -> T {
    key(out, tag, BYTES);
    delimited(out, hint, write)
}

/// Writes what `write` does behind its length.
pub(in crate::hrana) fn delimited<T>(
    out: &mut Vec<u8>,
    hint: usize,
    write: impl FnOnce(&mut Vec<u8>) -> T,
) -> T {
    let start = out.len();
    varint(out, hint as u64);
    let behind = out.len();
    let written = write(out);
    let end = out.len();
    varint(out, (end - behind) as u64);
    let len = out.len() - end;
    if start + len == behind {
        out.copy_within(end.., start);
        out.truncate(end);
    } else {
        // Behind itself the length is the last thing; before, it must be the first.
        out[behind..].rotate_right(len);
        out.drain(start..behind);
    }
    written
}

fn key(out: &mut Vec<u8>, tag: u32, wire_type: u64) {
    varint(out, u64::from(tag) << 3 | wire_type);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn bytes(out: &mut Vec<u8>, tag: u32, bytes: &[u8]) {
    key(out, tag, BYTES);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn text(out: &mut Vec<u8>, tag: u32, text: Option<&str>) {
    if let Some(text) = text {
        bytes(out, tag, text.as_bytes());
    }
}

/// A number that is left out if it is 0.
fn uint(out: &mut Vec<u8>, tag: u32, value: u64) {
    if value != 0 {
        key(out, tag, VARINT);
        varint(out, value);
    }
}

/// A number that is left out if it is 0, and takes ten bytes below.
fn int(out: &mut Vec<u8>, tag: u32, value: i32) {
    uint(out, tag, i64::from(value) as u64);
}

fn sint(out: &mut Vec<u8>, tag: u32, value: Option<i64>) {
    if let Some(value) = value {
        key(out, tag, VARINT);
        varint(out, (value << 1 ^ value >> 63) as u64);
    }
}

fn double(out: &mut Vec<u8>, tag: u32, value: f64) {
    key(out, tag, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}
