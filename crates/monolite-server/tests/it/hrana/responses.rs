//! What clients trip over in responses, one claim each.

use monolite::rusqlite::types::Value as Sqlite;
use monolite_server::hrana::{
    BatchResult, Column, CursorEntry, DescribeResult, EncodedRow, Encoding, PipelineResponse,
    ProtocolError, Rows, ServerMessage, SocketResponse, StmtResult, StreamResponse,
    encode_cursor_head,
};

use super::{BOTH, query, rows};

fn result(rows: Rows) -> StmtResult {
    StmtResult {
        cols: vec![],
        rows,
        affected_row_count: 0,
        last_insert_rowid: None,
        rows_read: 0,
        rows_written: 0,
        query_duration_ms: 0.5,
    }
}

fn json(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// The values of `SELECT …` in JSON.
fn values(select: &str) -> String {
    let body = json(result(rows(select, (), Encoding::Json).0).encode_v1());
    let begin = r#"{"result":{"cols":[],"rows":"#;
    let end = r#","affected_row_count":0,"last_insert_rowid":null,"replication_index":null,"#;
    let rest = body.strip_prefix(begin).unwrap_or_else(|| panic!("{body}"));
    rest.split_once(end).unwrap_or_else(|| panic!("{body}")).0.to_owned()
}

fn socket(response: SocketResponse) -> String {
    let message = ServerMessage::ResponseOk { request_id: -2, response };
    let message = json(message.encode(Encoding::Json));
    let begin = r#"{"type":"response_ok","request_id":-2,"response":"#;
    message.strip_prefix(begin).unwrap().strip_suffix('}').unwrap().to_owned()
}

fn line(entry: &CursorEntry) -> String {
    let mut out = Vec::new();
    entry.encode(Encoding::Json, &mut out);
    json(out)
}

fn error() -> ProtocolError {
    ProtocolError::new("SQLITE_ERROR", "near \"x\"")
}

#[test]
fn integers_are_strings() {
    assert_eq!(
        values("SELECT -9223372036854775808, 9007199254740993"),
        concat!(
            r#"[[{"type":"integer","value":"-9223372036854775808"},{"type":"integer","#,
            r#""value":"9007199254740993"}]]"#
        )
    );
}

#[test]
fn float_that_is_not_finite_is_null_in_json_alone() {
    assert_eq!(
        values("SELECT 9e999, -9e999, 0.1, 1.0, 1e300"),
        concat!(
            r#"[[{"type":"float","value":null},{"type":"float","value":null},"#,
            r#"{"type":"float","value":0.1},{"type":"float","value":1.0},{"type":"float","#,
            r#""value":1e+300}]]"#
        )
    );
    let (rows, _) = rows("SELECT 9e999", (), Encoding::Protobuf);
    let response = Ok(StreamResponse::Execute(result(rows)));
    let response = PipelineResponse { baton: None, results: vec![response] };
    let bytes = response.encode(Encoding::Protobuf);
    let infinity = [&[0x12, 11, 0x0a, 9, 0x19][..], &f64::INFINITY.to_le_bytes()].concat();
    assert!(bytes.windows(infinity.len()).any(|part| part == infinity), "{bytes:x?}");
}

#[test]
fn blobs_have_neither_padding_nor_escapes() {
    assert_eq!(
        values("SELECT x'', x'fb', x'fbff', x'fbffff'"),
        concat!(
            r#"[[{"type":"blob","base64":""},{"type":"blob","base64":"+w"},{"type":"blob","#,
            r#""base64":"+/8"},{"type":"blob","base64":"+///"}]]"#
        )
    );
}

#[test]
fn texts_are_escaped() {
    assert_eq!(values("SELECT 'a/ß😀'"), r#"[[{"type":"text","value":"a/ß😀"}]]"#);
    let all: String = (0..0x250).filter_map(char::from_u32).collect();
    for text in [&*all, "\"", "\\", "\0", "\u{7f}", "\u{2028}", "", "long enough for many bytes \n"]
    {
        let (rows, _) = rows("SELECT ?1", [text], Encoding::Json);
        let body = json(result(rows).encode_v1());
        let read: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(read["result"]["rows"][0][0]["value"], text);
    }
}

#[test]
fn text_that_is_not_utf8_fails_with_its_column() {
    let select = "SELECT 1 AS one, CAST(x'61ff' AS TEXT) AS name UNION ALL SELECT 2, 'b'";
    for encoding in BOTH {
        let (all, invalid) = rows(select, (), encoding);
        let invalid = invalid.unwrap();
        assert_eq!((invalid.column, &*invalid.name), (1, "name"));
        let error = ProtocolError::from(invalid);
        assert_eq!(error.code, "TEXT_NOT_UTF8");
        assert!(error.message.contains("name") && error.message.contains("AS BLOB"), "{error:?}");
        // Nothing is left of the row.
        let (good, _) = rows("SELECT 2, 'b'", (), encoding);
        assert_eq!((all.len(), all.bytes(), &all), (1, good.bytes(), &good));
        query(select, (), |row, columns| {
            assert_eq!(
                EncodedRow::new(encoding, row, columns).is_ok(),
                row.get_unwrap::<_, i64>(0) == 2
            );
        });
    }
}

#[test]
fn columns_are_there_without_rows_and_always_have_a_type() {
    let cols = vec![
        Column { name: "at".into(), decltype: Some("timestamp".into()) },
        Column { name: "1 + \"1\"".into(), decltype: None },
    ];
    let body = json(StmtResult { cols, ..result(Rows::new(Encoding::Json)) }.encode_v1());
    let expected = concat!(
        r#"{"result":{"cols":[{"name":"at","decltype":"timestamp"},{"name":"1 + \"1\"","#,
        r#""decltype":null}],"rows":[],"affected_row_count":0,"#
    );
    assert!(body.starts_with(expected), "{body}");
}

#[test]
fn figures_are_numbers_and_the_rowid_is_a_string() {
    let result = StmtResult {
        affected_row_count: u64::MAX,
        last_insert_rowid: Some(i64::MIN),
        rows_read: 3,
        rows_written: 4,
        query_duration_ms: 0.25,
        ..result(Rows::new(Encoding::Json))
    };
    let expected = concat!(
        r#"{"result":{"cols":[],"rows":[],"affected_row_count":18446744073709551615,"#,
        r#""last_insert_rowid":"-9223372036854775808","replication_index":null,"#,
        r#""rows_read":3,"rows_written":4,"query_duration_ms":0.25}}"#
    );
    assert_eq!(json(result.encode_v1()), expected);
}

#[test]
fn rowid_is_a_number_in_lines_and_a_string_over_websocket() {
    let entry =
        |last_insert_rowid| CursorEntry::StepEnd { affected_row_count: 2, last_insert_rowid };
    let begin = r#"{"type":"step_end","affected_row_count":2,"last_insert_rowid":"#;
    assert_eq!(line(&entry(Some(-1))), format!("{begin}-1}}\n"));
    assert_eq!(line(&entry(None)), format!("{begin}null}}\n"));
    let fetched = |rowid| SocketResponse::FetchCursor { entries: vec![entry(rowid)], done: true };
    let around = |rowid: &str| {
        format!(r#"{{"type":"fetch_cursor","entries":[{begin}{rowid}}}],"done":true}}"#)
    };
    assert_eq!(socket(fetched(Some(-1))), around(r#""-1""#));
    assert_eq!(socket(fetched(None)), around("null"));
    // Zigzag: -1 is 1.
    let mut out = Vec::new();
    entry(Some(-1)).encode(Encoding::Protobuf, &mut out);
    assert_eq!(out, [6, 0x12, 4, 0x08, 2, 0x10, 1]);
}

#[test]
fn cursor_ends_with_replication_index_in_lines_alone() {
    let end = CursorEntry::ReplicationIndex;
    let expected = "{\"type\":\"replication_index\",\"replication_index\":null}\n";
    assert_eq!(line(&end), expected);
    let mut out = Vec::new();
    end.encode(Encoding::Protobuf, &mut out);
    assert!(out.is_empty());
    let fetched = SocketResponse::FetchCursor { entries: vec![end], done: true };
    assert_eq!(socket(fetched.clone()), r#"{"type":"fetch_cursor","entries":[],"done":true}"#);
    let message = ServerMessage::ResponseOk { request_id: 0, response: fetched };
    assert_eq!(message.encode(Encoding::Protobuf), [0x1a, 4, 0x42, 2, 0x10, 1]);
}

#[test]
fn cursor_is_written_in_lines_or_behind_lengths() {
    let mut out = Vec::new();
    encode_cursor_head(Some("b"), Encoding::Json, &mut out);
    encode_cursor_head(None, Encoding::Json, &mut out);
    let cols = vec![Column { name: "a".into(), decltype: None }];
    let (failure, mut entries) = (error(), vec![CursorEntry::StepBegin { step: 0, cols }]);
    query("SELECT 'a' || char(10), 2", (), |row, columns| {
        entries.push(CursorEntry::Row(EncodedRow::new(Encoding::Json, row, columns).unwrap()));
    });
    entries.push(CursorEntry::StepError { step: 3, error: failure.clone() });
    entries.push(CursorEntry::Error { error: failure });
    entries.iter().for_each(|entry| entry.encode(Encoding::Json, &mut out));
    let expected = r#"{"baton":"b","base_url":null}
{"baton":null,"base_url":null}
{"type":"step_begin","step":0,"cols":[{"name":"a","decltype":null}]}
{"type":"row","row":[{"type":"text","value":"a\n"},{"type":"integer","value":"2"}]}
{"type":"step_error","step":3,"error":{"message":"near \"x\"","code":"SQLITE_ERROR"}}
{"type":"error","error":{"message":"near \"x\"","code":"SQLITE_ERROR"}}
"#;
    assert_eq!(json(out), expected);
    let mut out = Vec::new();
    encode_cursor_head(Some("b"), Encoding::Protobuf, &mut out);
    encode_cursor_head(None, Encoding::Protobuf, &mut out);
    assert_eq!(out, [3, 0x0a, 1, b'b', 0]);
}

#[test]
fn pipeline_has_a_result_of_the_same_type_for_each_request() {
    let results = vec![
        Ok(StreamResponse::Close),
        Ok(StreamResponse::Sequence),
        Err(error()),
        Ok(StreamResponse::StoreSql),
        Ok(StreamResponse::CloseSql),
        Ok(StreamResponse::GetAutocommit { is_autocommit: false }),
    ];
    let response = PipelineResponse { baton: Some("b\"".into()), results };
    let expected = [
        r#"{"baton":"b\"","base_url":null,"results":[{"type":"ok","response":{"type":"close"}},"#,
        r#"{"type":"ok","response":{"type":"sequence"}},"#,
        r#"{"type":"error","error":{"message":"near \"x\"","code":"SQLITE_ERROR"}},"#,
        r#"{"type":"ok","response":{"type":"store_sql"}},"#,
        r#"{"type":"ok","response":{"type":"close_sql"}},"#,
        r#"{"type":"ok","response":{"type":"get_autocommit","is_autocommit":false}}]}"#,
    ];
    assert_eq!(json(response.encode(Encoding::Json)), expected.concat());
    let none = PipelineResponse { baton: None, results: vec![] };
    assert_eq!(json(none.encode(Encoding::Json)), r#"{"baton":null,"base_url":null,"results":[]}"#);
    assert!(none.encode(Encoding::Protobuf).is_empty());
}

#[test]
fn batch_has_an_entry_for_each_step_in_both_lists() {
    let batch = BatchResult {
        step_results: vec![Some(result(Rows::new(Encoding::Json))), None, None],
        step_errors: vec![None, Some(error()), None],
    };
    let body = json(batch.encode_v1());
    let begin = r#"{"result":{"step_results":[{"cols":[],"rows":[],"#;
    let end = concat!(
        r#"},null,null],"step_errors":[null,{"message":"near \"x\"","code":"SQLITE_ERROR"},"#,
        r#"null],"replication_index":null}}"#
    );
    assert!(body.starts_with(begin) && body.ends_with(end), "{body}");
}

#[test]
fn description_is_told() {
    let described = DescribeResult {
        params: vec![Some(":a".into()), None],
        cols: vec![Column { name: "a".into(), decltype: Some("INT".into()) }],
        is_explain: true,
        is_readonly: false,
    };
    assert_eq!(
        socket(SocketResponse::Stream(StreamResponse::Describe(described))),
        concat!(
            r#"{"type":"describe","result":{"params":[{"name":":a"},{"name":null}],"#,
            r#""cols":[{"name":"a","decltype":"INT"}],"#,
            r#""is_explain":true,"is_readonly":false}}"#
        )
    );
}

#[test]
fn error_always_has_a_code_and_its_body_all_that_clients_look_for() {
    let error = ProtocolError {
        message: "UNIQUE constraint failed: t.a".into(),
        code: "SQLITE_CONSTRAINT".into(),
        extended_code: Some("SQLITE_CONSTRAINT_UNIQUE".into()),
        offset: Some(14),
    };
    let fields = concat!(
        r#""message":"UNIQUE constraint failed: t.a","code":"SQLITE_CONSTRAINT","#,
        r#""extended_code":"SQLITE_CONSTRAINT_UNIQUE","offset":14}"#
    );
    let body = format!(r#"{{"error":"UNIQUE constraint failed: t.a",{fields}"#);
    assert_eq!(json(error.body()), body);
    let response = PipelineResponse { baton: None, results: vec![Err(error)] };
    let response = json(response.encode(Encoding::Json));
    assert!(response.contains(&format!(r#""error":{{{fields}"#)), "{response}");
    // The specification's field 2; none for what Protobuf has no place for.
    let message =
        ServerMessage::ResponseError { request_id: 1, error: ProtocolError::new("C", "M") };
    assert_eq!(
        message.encode(Encoding::Protobuf),
        [0x22, 10, 8, 1, 0x12, 6, 0x0a, 1, b'M', 0x12, 1, b'C']
    );
}

#[test]
fn messages_over_websocket_are_written() {
    let written = |message: ServerMessage| json(message.encode(Encoding::Json));
    assert_eq!(written(ServerMessage::HelloOk), r#"{"type":"hello_ok"}"#);
    let failed = r#""error":{"message":"near \"x\"","code":"SQLITE_ERROR"}}"#;
    let hello = ServerMessage::HelloError(error());
    assert_eq!(written(hello), format!(r#"{{"type":"hello_error",{failed}"#));
    let response = ServerMessage::ResponseError { request_id: 0, error: error() };
    assert_eq!(written(response), format!(r#"{{"type":"response_error","request_id":0,{failed}"#));
    for (response, kind, tag) in [
        (SocketResponse::OpenStream, "open_stream", 2),
        (SocketResponse::CloseStream, "close_stream", 3),
        (SocketResponse::OpenCursor, "open_cursor", 6),
        (SocketResponse::CloseCursor, "close_cursor", 7),
        (SocketResponse::Stream(StreamResponse::Sequence), "sequence", 9),
        (SocketResponse::Stream(StreamResponse::StoreSql), "store_sql", 11),
        (SocketResponse::Stream(StreamResponse::CloseSql), "close_sql", 12),
    ] {
        assert_eq!(socket(response.clone()), format!(r#"{{"type":"{kind}"}}"#));
        let message = ServerMessage::ResponseOk { request_id: 5, response };
        let bytes = [0x1a, 4, 8, 5, tag << 3 | 2, 0];
        assert_eq!(message.encode(Encoding::Protobuf), bytes, "{kind}");
    }
    assert_eq!(ServerMessage::HelloOk.encode(Encoding::Protobuf), [0x0a, 0]);
}

#[test]
fn rows_are_counted_and_dropped() {
    for encoding in BOTH {
        let (mut rows, _) = rows("VALUES (1, 'a'), (2, NULL)", (), encoding);
        assert_eq!((rows.len(), rows.is_empty()), (2, false));
        assert!(rows.bytes() > 10);
        rows.clear();
        assert_eq!(rows, Rows::new(encoding));
        assert!(rows.is_empty() && rows.bytes() == 0);
    }
}

#[test]
#[should_panic(expected = "the rows are encoded as their response is")]
fn rows_in_another_encoding_are_refused() {
    result(Rows::new(Encoding::Protobuf)).encode_v1();
}

#[test]
fn large_values_are_written_whole() {
    for len in [126, 127, 128, 16_383, 16_384, 3_000_000] {
        let value = Sqlite::Blob(vec![7; len]);
        let (rows, _) = rows("SELECT ?1, 1 UNION ALL SELECT 2, 3", [value], Encoding::Protobuf);
        let results = vec![Ok(StreamResponse::Execute(result(rows)))];
        let bytes = PipelineResponse { baton: None, results }.encode(Encoding::Protobuf);
        let read: super::others::Pipeline = prost::Message::decode(&*bytes).unwrap();
        let rows = &read.results[0].ok.as_ref().unwrap().execute.as_ref().unwrap().result.rows;
        assert_eq!(rows.len(), 2);
        let libsql_hrana::proto::Value::Blob { value } = &rows[0].values[0] else { panic!() };
        assert!(value.len() == len && value.iter().all(|byte| *byte == 7));
    }
}
