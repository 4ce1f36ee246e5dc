//! Owns how responses are written as JSON.
//!
//! # Format
//! - Integers are strings, and so are rowids but in the JSON lines of a cursor.
//! - `base64` has no padding, and neither it nor an integer has an escape: some clients read just
//!   that.
//! - A column always has its `decltype`, and an error its `code`.
//! - A float that is not finite is null.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use monolite::rusqlite::types::ValueRef;
use serde::Serialize;

use crate::hrana::{
    BatchResult, Column, CursorEntry, DescribeResult, Encoding, PipelineResponse, ProtocolError,
    ServerMessage, SocketResponse, StmtResult, StreamResponse,
};

/// How a rowid is written in the entries of a cursor.
#[derive(Clone, Copy)]
pub(in crate::hrana) enum Rowid {
    /// As a number, as the lines of `/v3/cursor` have it.
    Number,
    /// As a string, as everywhere else.
    Text,
}

pub(in crate::hrana) fn value(out: &mut Vec<u8>, value: ValueRef<'_>) -> Result<(), ()> {
    match value {
        ValueRef::Null => put(out, r#"{"type":"null"}"#),
        ValueRef::Integer(integer) => {
            put(out, r#"{"type":"integer","value":""#);
            scalar(out, integer);
            put(out, "\"}");
        }
        ValueRef::Real(float) => {
            put(out, r#"{"type":"float","value":"#);
            scalar(out, float);
            put(out, "}");
        }
        ValueRef::Text(bytes) => {
            put(out, r#"{"type":"text","value":"#);
            text(out, str::from_utf8(bytes).map_err(|_| ())?);
            put(out, "}");
        }
        ValueRef::Blob(bytes) => {
            put(out, r#"{"type":"blob","base64":""#);
            base64(out, bytes);
            put(out, "\"}");
        }
    }
    Ok(())
}

fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    let len = base64::encoded_len(bytes.len(), false).expect("a blob is below 2 GiB");
    out.resize(start + len, 0);
    STANDARD_NO_PAD.encode_slice(bytes, &mut out[start..]).expect("the room was measured");
}

pub(in crate::hrana) fn pipeline(out: &mut Vec<u8>, response: &PipelineResponse) {
    head(out, response.baton.as_deref());
    put(out, r#","results":"#);
    list(out, &response.results, |out, result| match result {
        Ok(response) => {
            put(out, r#"{"type":"ok","response":"#);
            stream_response(out, response);
            put(out, "}");
        }
        Err(failure) => typed_error(out, "error", failure),
    });
    put(out, "}");
}

/// The beginning of a response over HTTP.
pub(in crate::hrana) fn head(out: &mut Vec<u8>, baton: Option<&str>) {
    put(out, r#"{"baton":"#);
    optional(out, baton, text);
    put(out, r#","base_url":null"#);
}

pub(in crate::hrana) fn server_message(out: &mut Vec<u8>, message: &ServerMessage) {
    match message {
        ServerMessage::HelloOk => put(out, r#"{"type":"hello_ok"}"#),
        ServerMessage::HelloError(failure) => typed_error(out, "hello_error", failure),
        ServerMessage::ResponseOk { request_id, response } => {
            put(out, r#"{"type":"response_ok","request_id":"#);
            scalar(out, *request_id);
            put(out, r#","response":"#);
            socket_response(out, response);
            put(out, "}");
        }
        ServerMessage::ResponseError { request_id, error: failure } => {
            put(out, r#"{"type":"response_error","request_id":"#);
            scalar(out, *request_id);
            put(out, r#","error":"#);
            error(out, failure);
            put(out, "}");
        }
    }
}

fn socket_response(out: &mut Vec<u8>, response: &SocketResponse) {
    match response {
        SocketResponse::OpenStream => put(out, r#"{"type":"open_stream"}"#),
        SocketResponse::CloseStream => put(out, r#"{"type":"close_stream"}"#),
        SocketResponse::Stream(response) => stream_response(out, response),
        SocketResponse::OpenCursor => put(out, r#"{"type":"open_cursor"}"#),
        SocketResponse::CloseCursor => put(out, r#"{"type":"close_cursor"}"#),
        SocketResponse::FetchCursor { entries, done } => {
            put(out, r#"{"type":"fetch_cursor","entries":"#);
            let entries = entries.iter().filter(|it| **it != CursorEntry::ReplicationIndex);
            list(out, entries, |out, entry| cursor_entry(out, entry, Rowid::Text));
            put(out, r#","done":"#);
            scalar(out, *done);
            put(out, "}");
        }
    }
}

fn stream_response(out: &mut Vec<u8>, response: &StreamResponse) {
    match response {
        StreamResponse::Close => put(out, r#"{"type":"close"}"#),
        StreamResponse::Execute(result) => {
            put(out, r#"{"type":"execute","result":"#);
            stmt_result(out, result);
            put(out, "}");
        }
        StreamResponse::Batch(result) => {
            put(out, r#"{"type":"batch","result":"#);
            batch_result(out, result);
            put(out, "}");
        }
        StreamResponse::Sequence => put(out, r#"{"type":"sequence"}"#),
        StreamResponse::Describe(result) => {
            put(out, r#"{"type":"describe","result":"#);
            describe_result(out, result);
            put(out, "}");
        }
        StreamResponse::StoreSql => put(out, r#"{"type":"store_sql"}"#),
        StreamResponse::CloseSql => put(out, r#"{"type":"close_sql"}"#),
        StreamResponse::GetAutocommit { is_autocommit } => {
            put(out, r#"{"type":"get_autocommit","is_autocommit":"#);
            scalar(out, *is_autocommit);
            put(out, "}");
        }
    }
}

pub(in crate::hrana) fn stmt_result(out: &mut Vec<u8>, result: &StmtResult) {
    put(out, r#"{"cols":"#);
    list(out, &result.cols, column);
    put(out, r#","rows":["#);
    out.extend_from_slice(result.rows.encoded(Encoding::Json));
    put(out, r#"],"affected_row_count":"#);
    scalar(out, result.affected_row_count);
    put(out, r#","last_insert_rowid":"#);
    rowid(out, result.last_insert_rowid, Rowid::Text);
    put(out, r#","replication_index":null,"rows_read":"#);
    scalar(out, result.rows_read);
    put(out, r#","rows_written":"#);
    scalar(out, result.rows_written);
    put(out, r#","query_duration_ms":"#);
    scalar(out, result.query_duration_ms);
    put(out, "}");
}

pub(in crate::hrana) fn batch_result(out: &mut Vec<u8>, result: &BatchResult) {
    put(out, r#"{"step_results":"#);
    list(out, &result.step_results, |out, step| optional(out, step.as_ref(), stmt_result));
    put(out, r#","step_errors":"#);
    list(out, &result.step_errors, |out, step| optional(out, step.as_ref(), error));
    put(out, r#","replication_index":null}"#);
}

fn describe_result(out: &mut Vec<u8>, result: &DescribeResult) {
    put(out, r#"{"params":"#);
    list(out, &result.params, |out, name| {
        put(out, r#"{"name":"#);
        optional(out, name.as_deref(), text);
        put(out, "}");
    });
    put(out, r#","cols":"#);
    list(out, &result.cols, column);
    put(out, r#","is_explain":"#);
    scalar(out, result.is_explain);
    put(out, r#","is_readonly":"#);
    scalar(out, result.is_readonly);
    put(out, "}");
}

pub(in crate::hrana) fn cursor_entry(out: &mut Vec<u8>, entry: &CursorEntry, form: Rowid) {
    match entry {
        CursorEntry::StepBegin { step, cols } => {
            put(out, r#"{"type":"step_begin","step":"#);
            scalar(out, *step);
            put(out, r#","cols":"#);
            list(out, cols, column);
            put(out, "}");
        }
        CursorEntry::Row(row) => {
            put(out, r#"{"type":"row","row":"#);
            out.extend_from_slice(row.encoded(Encoding::Json));
            put(out, "}");
        }
        CursorEntry::StepEnd { affected_row_count, last_insert_rowid } => {
            put(out, r#"{"type":"step_end","affected_row_count":"#);
            scalar(out, *affected_row_count);
            put(out, r#","last_insert_rowid":"#);
            rowid(out, *last_insert_rowid, form);
            put(out, "}");
        }
        CursorEntry::StepError { step, error: failure } => {
            put(out, r#"{"type":"step_error","step":"#);
            scalar(out, *step);
            put(out, r#","error":"#);
            error(out, failure);
            put(out, "}");
        }
        CursorEntry::Error { error } => typed_error(out, "error", error),
        CursorEntry::ReplicationIndex => {
            put(out, r#"{"type":"replication_index","replication_index":null}"#);
        }
    }
}

fn column(out: &mut Vec<u8>, column: &Column) {
    put(out, r#"{"name":"#);
    text(out, &column.name);
    put(out, r#","decltype":"#);
    optional(out, column.decltype.as_deref(), text);
    put(out, "}");
}

fn rowid(out: &mut Vec<u8>, rowid: Option<i64>, form: Rowid) {
    let quote = if rowid.is_some() && matches!(form, Rowid::Text) { "\"" } else { "" };
    put(out, quote);
    optional(out, rowid, scalar);
    put(out, quote);
}

fn typed_error(out: &mut Vec<u8>, kind: &str, failure: &ProtocolError) {
    put(out, r#"{"type":"#);
    text(out, kind);
    put(out, r#","error":"#);
    error(out, failure);
    put(out, "}");
}

fn error(out: &mut Vec<u8>, error: &ProtocolError) {
    put(out, "{");
    error_fields(out, error);
    put(out, "}");
}

fn error_fields(out: &mut Vec<u8>, error: &ProtocolError) {
    put(out, r#""message":"#);
    text(out, &error.message);
    put(out, r#","code":"#);
    text(out, &error.code);
    if let Some(code) = &error.extended_code {
        put(out, r#","extended_code":"#);
        text(out, code);
    }
    if let Some(offset) = error.offset {
        put(out, r#","offset":"#);
        scalar(out, offset);
    }
}

/// The answer of the stateless endpoints.
pub(in crate::hrana) fn v1(out: &mut Vec<u8>, result: impl FnOnce(&mut Vec<u8>)) {
    put(out, r#"{"result":"#);
    result(out);
    put(out, "}");
}

/// The body of a response that is not 200.
pub(in crate::hrana) fn error_body(out: &mut Vec<u8>, error: &ProtocolError) {
    put(out, r#"{"error":"#);
    text(out, &error.message);
    put(out, ",");
    error_fields(out, error);
    put(out, "}");
}

pub(in crate::hrana) fn put(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    // Without an early end, so that the compiler makes it look at many bytes at once.
    let is_special = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    if text.bytes().fold(false, |found, byte| found | is_special(byte)) {
        return scalar(out, text);
    }
    out.push(b'"');
    put(out, text);
    out.push(b'"');
}

/// Writes what JSON has a form of its own for.
fn scalar(out: &mut Vec<u8>, value: impl Serialize) {
    serde_json::to_writer(out, &value).expect("a vector takes all");
}

fn optional<T>(out: &mut Vec<u8>, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        Some(value) => write(out, value),
        None => put(out, "null"),
    }
}

fn list<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, write: impl Fn(&mut Vec<u8>, T)) {
    put(out, "[");
    for (index, item) in items.into_iter().enumerate() {
        put(out, if index == 0 { "" } else { "," });
        write(out, item);
    }
    put(out, "]");
}
