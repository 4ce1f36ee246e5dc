//! What clients trip over in requests, one claim each.

use monolite_server::hrana::{
    Batch, ClientMessage, Condition, CursorRequest, Encoding, PipelineRequest, ProtocolError,
    SocketRequest, Sql, Stmt, StreamRequest, Value,
};

fn pipeline(json: &str) -> Result<PipelineRequest, ProtocolError> {
    PipelineRequest::decode(json.as_bytes(), Encoding::Json)
}

fn socket(json: &str) -> Result<SocketRequest, ProtocolError> {
    let json = format!(r#"{{"type":"request","request_id":-7,"request":{json}}}"#);
    match ClientMessage::decode(json.as_bytes(), Encoding::Json)? {
        ClientMessage::Request { request_id: -7, request } => Ok(request),
        other => panic!("{other:?}"),
    }
}

fn stmt(fields: &str) -> Result<Stmt, ProtocolError> {
    Stmt::decode_v1(format!(r#"{{"stmt":{{"sql":"SELECT ?"{fields}}}}}"#).as_bytes())
}

fn value(json: &str) -> Result<Value, ProtocolError> {
    stmt(&format!(r#","args":[{json}]"#)).map(|mut stmt| stmt.args.remove(0))
}

/// A batch whose last step has the condition.
fn batch_of(steps: usize, condition: &str) -> String {
    let others = r#"{"stmt":{"sql":""}},"#.repeat(steps - 1);
    format!(r#"{{"steps":[{others}{{"condition":{condition},"stmt":{{"sql":""}}}}]}}"#)
}

fn condition(steps: usize, json: &str) -> Result<Condition, ProtocolError> {
    let body = format!(r#"{{"batch":{}}}"#, batch_of(steps, json));
    let mut batch = Batch::decode_v1(body.as_bytes())?;
    Ok(batch.steps.pop().unwrap().condition.unwrap())
}

fn message(result: Result<impl std::fmt::Debug, ProtocolError>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.code, "PROTOCOL_ERROR");
    error.message
}

#[test]
fn integers_are_strings_alone() {
    for integer in [i64::MIN, -1, 0, 9_007_199_254_740_993, i64::MAX] {
        let json = format!(r#"{{"type":"integer","value":"{integer}"}}"#);
        assert_eq!(value(&json), Ok(Value::Integer(integer)));
    }
    for wrong in ["1", "1.0", "null", r#""""#, r#""1.0""#, r#""9223372036854775808""#, r#"" 1""#] {
        let json = format!(r#"{{"type":"integer","value":{wrong}}}"#);
        assert!(message(value(&json)).starts_with("stmt.args[0]: the `value`"), "{wrong}");
    }
    assert!(value(r#"{"type":"integer"}"#).is_err());
}

#[test]
fn floats_are_numbers_and_exact() {
    let float = |json: &str| value(&format!(r#"{{"value":{json},"type":"float"}}"#));
    // JavaScript writes 1.0 as 1.
    assert_eq!(float("1"), Ok(Value::Float(1.0)));
    assert_eq!(float("-18446744073709551617"), Ok(Value::Float(-18_446_744_073_709_551_617.0)));
    for wrong in ["null", "\"1\"", "1e999", "NaN", "[1]", "true"] {
        message(float(wrong));
    }
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..20_000 {
        let number = f64::from_bits(random.u64(..));
        if number.is_finite() {
            let Ok(Value::Float(read)) = float(&format!("{number:?}")) else { panic!("{number}") };
            assert_eq!(read.to_bits(), number.to_bits(), "{number:?}");
        }
    }
}

#[test]
fn blobs_are_read_with_padding_and_without() {
    let blob = |base64: &str| value(&format!(r#"{{"type":"blob","base64":"{base64}"}}"#));
    for base64 in ["+/8", "+/8=", r"+\/8", r"\u002b\u002f8="] {
        assert_eq!(blob(base64), Ok(Value::Blob(vec![0xfb, 0xff])), "{base64}");
    }
    for base64 in ["AA", "AA=", "AA=="] {
        assert_eq!(blob(base64), Ok(Value::Blob(vec![0])), "{base64}");
    }
    assert_eq!(blob(""), Ok(Value::Blob(vec![])));
    assert_eq!(value(r#"{"type":"blob"}"#), Ok(Value::Blob(vec![])));
    // The other alphabet, a space, half a byte, too much padding, padding in the middle.
    for wrong in ["-_8", "AA AA", "A", "AA===", "AA==AA"] {
        assert!(message(blob(wrong)).starts_with("stmt.args[0]: the `base64`"), "{wrong}");
    }
    message(value(r#"{"type":"blob","value":"AA"}"#));
}

#[test]
fn other_values_are_read() {
    assert_eq!(value(r#"{"type":"null"}"#), Ok(Value::Null));
    let text = |json: &str| value(&format!(r#"{{"type":"text","value":{json}}}"#));
    assert_eq!(text(r#""a\u0000\"\n\ud83d\ude00ß""#), Ok(Value::Text("a\0\"\n😀ß".into())));
    // Half of a surrogate pair has no UTF-8.
    for wrong in ["1", "null", r#""\ud83d""#] {
        assert!(message(text(wrong)).starts_with("stmt.args[0]"), "{wrong}");
    }
    assert!(message(value(r#"{"type":"date","value":"x"}"#)).contains("unknown type `date`"));
    assert!(message(value("{}")).contains("missing field `type`"));
}

#[test]
fn rows_are_wanted_unless_refused() {
    for (fields, wanted) in [
        ("", true),
        (r#","want_rows":null"#, true),
        (r#","want_rows":true"#, true),
        (r#","want_rows":false"#, false),
    ] {
        assert_eq!(stmt(fields).unwrap().want_rows, wanted, "{fields}");
    }
    // execute { stmt {} }, and the same with want_rows.
    for (bytes, wanted) in [
        (&[0x12, 4, 0x12, 2, 0x0a, 0][..], true),
        (&[0x12, 6, 0x12, 4, 0x0a, 2, 0x28, 1], true),
        (&[0x12, 6, 0x12, 4, 0x0a, 2, 0x28, 0], false),
    ] {
        let request =
            PipelineRequest::decode(bytes, Encoding::Protobuf).unwrap().requests.remove(0);
        let StreamRequest::Execute(stmt) = request else { panic!("{request:?}") };
        assert_eq!(stmt.want_rows, wanted, "{bytes:?}");
    }
}

#[test]
fn names_keep_their_sigils_and_both_kinds_of_arguments_are_read() {
    let named = r#","args":[{"type":"null"}],"named_args":[{"name":"$a","value":{"type":"null"}},
        {"value":{"type":"text","value":"x"},"name":"b"}]"#;
    let stmt = stmt(named).unwrap();
    let expected = [("$a".into(), Value::Null), ("b".into(), Value::Text("x".into()))];
    assert_eq!((stmt.args, stmt.named_args), (vec![Value::Null], expected.to_vec()));
}

#[test]
fn replication_index_of_a_client_is_ignored() {
    for index in ["5", "null", r#""5""#, "18446744073709551615"] {
        stmt(&format!(r#","replication_index":{index}"#)).unwrap();
    }
}

#[test]
fn what_is_not_known_is_ignored() {
    // Also where it is deeper than any stack.
    let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
    let json = format!(r#"{{"x":{deep},"requests":[{{"type":"close","y":{{"a":{deep}}}}}]}}"#);
    assert_eq!(pipeline(&json).unwrap().requests, [StreamRequest::Close]);
}

#[test]
fn depth_is_refused_where_it_is_read() {
    let deep = 100_000;
    for (open, inner, close) in [
        ("[", "", "]"),
        (r#"{"type":"not","cond":"#, r#"{"type":"is_autocommit"}"#, "}"),
        (r#"{"conds":["#, r#"{"type":"ok","step":0}"#, r#"],"type":"or"}"#),
    ] {
        message(condition(2, &(open.repeat(deep) + inner + &close.repeat(deep))));
        message(value(&(open.repeat(deep) + inner + &close.repeat(deep))));
    }
    // Each length in three bytes.
    let inside = |inner: &[u8], tag: u8| {
        let len = inner.len() as u32;
        let head = [tag, len as u8 | 0x80, (len >> 7) as u8 | 0x80, (len >> 14) as u8 & 0x7f];
        [&head, inner].concat()
    };
    let not = 0x1a;
    let condition = (0..deep / 20).fold(vec![0x32, 0], |inner, _| inside(&inner, not));
    let steps = inside(&inside(&condition, 0x0a), 0x0a);
    let pipeline = inside(&inside(&inside(&steps, 0x0a), 0x1a), 0x12);
    for error in [
        message(PipelineRequest::decode(&pipeline, Encoding::Protobuf)),
        message(CursorRequest::decode(&inside(&steps, 0x12), Encoding::Protobuf)),
    ] {
        assert!(error.ends_with("the conditions are nested too deep"), "{error}");
    }
}

#[test]
fn close_is_the_last_request_or_rejects_the_pipeline() {
    let close = r#"{"type":"close"}"#;
    let get = r#"{"type":"get_autocommit"}"#;
    let both = pipeline(&format!(r#"{{"requests":[{get},{close}]}}"#)).unwrap();
    assert_eq!(both.requests, [StreamRequest::GetAutocommit, StreamRequest::Close]);
    for wrong in [format!("{close},{get}"), format!("{get},{close},{close}")] {
        let error = message(pipeline(&format!(r#"{{"requests":[{wrong}]}}"#)));
        assert!(error.contains("`close` must be the last request"), "{error}");
    }
    let protobuf = [0x12, 2, 0x0a, 0, 0x12, 2, 0x42, 0];
    message(PipelineRequest::decode(&protobuf, Encoding::Protobuf));
    PipelineRequest::decode(&protobuf[..4], Encoding::Protobuf).unwrap();
}

#[test]
fn unknown_type_is_an_error_of_its_request_alone() {
    let get = r#"{"type":"get_autocommit"}"#;
    for unknown in [
        r#"{"type":"vacuum"}"#,
        r#"{"stmt":[1],"batch":7,"type":"vacuum","sql_id":"x"}"#,
        r#"{"type":"open_stream","stream_id":1}"#,
    ] {
        let json = format!(r#"{{"baton":"b","requests":[{get},{unknown},{get}]}}"#);
        let read = pipeline(&json).unwrap();
        assert_eq!(read.baton.as_deref(), Some("b"));
        let [StreamRequest::GetAutocommit, StreamRequest::Invalid(error), last] = &*read.requests
        else {
            panic!("{read:?}")
        };
        assert_eq!(*last, StreamRequest::GetAutocommit);
        assert!(error.message.starts_with("unknown request type `"), "{error:?}");
    }
    for unknown in [
        r#"{"type":"vacuum","stream_id":1}"#,
        r#"{"stream_id":"x","type":"vacuum"}"#,
        r#"{"type":"close","stream_id":1}"#,
    ] {
        let request = socket(unknown).unwrap();
        assert!(matches!(request, SocketRequest::Invalid(_)), "{request:?}");
    }
    // Field 15 of a request, and none.
    for bytes in [&[0x12, 3, 0x7a, 1, 0xff, 0x12, 2, 0x42, 0][..], &[0x12, 0, 0x12, 2, 0x42, 0]] {
        let read = PipelineRequest::decode(bytes, Encoding::Protobuf).unwrap();
        let [StreamRequest::Invalid(_), StreamRequest::GetAutocommit] = &*read.requests else {
            panic!("{read:?}")
        };
    }
    let unknown = ClientMessage::decode(&[0x12, 5, 8, 9, 0x7a, 1, 0], Encoding::Protobuf).unwrap();
    let ClientMessage::Request { request_id: 9, request: SocketRequest::Invalid(_) } = unknown
    else {
        panic!("{unknown:?}")
    };
}

#[test]
fn known_type_with_wrong_fields_rejects_all() {
    for (request, path) in [
        (r#"{"type":"execute"}"#, "requests[1]: missing field `stmt`"),
        (r#"{"type":"store_sql","sql":""}"#, "requests[1]: missing field `sql_id`"),
        (r#"{"type":"execute","stmt":{"sql":1}}"#, "requests[1].stmt.sql: invalid type"),
        (
            r#"{"type":"batch","batch":{"steps":[{"stmt":{"args":[{"type":"float"}]}}]}}"#,
            "requests[1].batch.steps[0].stmt.args[0]: the `value`",
        ),
        (r#"{"sql":"x"}"#, "requests[1]: missing field `type`"),
        ("7", "requests[1]: invalid type"),
    ] {
        let json = format!(r#"{{"requests":[{{"type":"close_sql","sql_id":1}},{request}]}}"#);
        let error = message(pipeline(&json));
        assert!(error.starts_with(path), "{error}");
        if request.contains("type") {
            assert!(socket(&request.replacen('{', r#"{"stream_id":1,"#, 1)).is_err(), "{request}");
        }
    }
    for body in ["", "{", "{}", "[]", "null", r#"{"requests":null}"#, r#"{"requests":[]} x"#] {
        message(pipeline(body));
    }
    // An unfinished field, a text that is no UTF-8, a group, a number of 70 bits.
    let texts: [&[u8]; 4] = [&[0x12, 9], &[0x0a, 1, 0xff], &[0x0b], &[0x08, 0xff, 0xff, 0xff]];
    for body in texts.into_iter().chain([&[&[0x08][..], &[0xff; 10], &[1]].concat()[..]]) {
        message(PipelineRequest::decode(body, Encoding::Protobuf));
    }
    let error = message(PipelineRequest::decode(&[0x12, 0, 0x12, 2, 0x12, 0], Encoding::Protobuf));
    assert_eq!(error, "requests[1]: missing field `stmt`");
    let arg = [0x12, 0, 0x12, 6, 0x12, 4, 0x0a, 2, 0x1a, 0];
    let error = message(PipelineRequest::decode(&arg, Encoding::Protobuf));
    assert_eq!(error, "requests[1].stmt.args[0]: a value of no known type");
}

#[test]
fn text_of_a_statement_is_by_itself_or_by_number() {
    let read = pipeline(
        r#"{"requests":[{"type":"sequence","sql":"a"},{"type":"describe","sql_id":3},
        {"type":"store_sql","sql_id":-3,"sql":"b"},{"type":"close_sql","sql_id":4}]}"#,
    );
    let expected = [
        StreamRequest::Sequence(Sql { sql: Some("a".into()), sql_id: None }),
        StreamRequest::Describe(Sql { sql: None, sql_id: Some(3) }),
        StreamRequest::StoreSql { sql_id: -3, sql: "b".into() },
        StreamRequest::CloseSql { sql_id: 4 },
    ];
    assert_eq!(read.unwrap(), PipelineRequest { baton: None, requests: expected.to_vec() });
}

#[test]
fn condition_asks_for_earlier_steps_alone() {
    for kind in ["ok", "error"] {
        condition(3, &format!(r#"{{"type":"{kind}","step":1}}"#)).unwrap();
        for step in ["2", "3", "4294967295"] {
            let wrong = format!(r#"{{"type":"{kind}","step":{step}}}"#);
            for wrong in [
                wrong.clone(),
                format!(r#"{{"type":"not","cond":{wrong}}}"#),
                format!(r#"{{"type":"and","conds":[{{"type":"is_autocommit"}},{wrong}]}}"#),
                format!(r#"{{"type":"or","conds":[{wrong}]}}"#),
            ] {
                let error = message(condition(3, &wrong));
                let begin = format!("batch.steps[2].condition: step {step} is not before");
                assert!(error.starts_with(&begin), "{error}");
                let batch = batch_of(3, &wrong);
                let request = format!(r#"{{"type":"batch","batch":{batch}}}"#);
                let error = message(pipeline(&format!(r#"{{"requests":[{request}]}}"#)));
                assert!(error.starts_with("requests[0].batch.steps[2].condition"), "{error}");
                let cursor = format!(r#"{{"batch":{batch}}}"#);
                message(CursorRequest::decode(cursor.as_bytes(), Encoding::Json));
                // Over WebSocket other streams go on.
                for kind in [r#""batch""#, r#""open_cursor","cursor_id":2"#] {
                    let request = format!(r#"{{"type":{kind},"stream_id":1,"batch":{batch}}}"#);
                    let request = socket(&request).unwrap();
                    assert!(matches!(request, SocketRequest::Invalid(_)), "{request:?}");
                }
            }
        }
    }
    for wrong in [r#"{"type":"ok","step":-1}"#, r#"{"type":"ok"}"#, r#"{"type":"nor"}"#, "{}"] {
        message(condition(3, wrong));
    }
}

#[test]
fn conditions_are_32_deep_at_most() {
    let nested = |depth: usize, open: &str, close: &str| {
        let inner = r#"{"type":"ok","step":0}"#;
        condition(2, &(open.repeat(depth - 1) + inner + &close.repeat(depth - 1)))
    };
    for (open, close) in [(r#"{"type":"not","cond":"#, "}"), (r#"{"type":"or","conds":["#, "]}")] {
        nested(32, open, close).unwrap();
        let error = message(nested(33, open, close));
        assert!(error.ends_with("more than 32 conditions are inside each other"), "{error}");
    }
}

#[test]
fn error_of_a_step_is_that_it_is_not_ok() {
    // Step 0 succeeded, 1 failed, 2 was skipped: both are told as no success.
    let holds = |json: &str| condition(4, json).unwrap().holds(&[true, false, false], false);
    for (step, ok) in [(0, true), (1, false), (2, false)] {
        assert_eq!(holds(&format!(r#"{{"type":"ok","step":{step}}}"#)), ok);
        assert_eq!(holds(&format!(r#"{{"type":"error","step":{step}}}"#)), !ok);
        let not = format!(r#"{{"type":"not","cond":{{"type":"ok","step":{step}}}}}"#);
        assert_eq!(holds(&not), !ok);
    }
    assert!(holds(r#"{"type":"and","conds":[]}"#));
    assert!(!holds(r#"{"type":"or","conds":[]}"#));
    let mixed = r#"[{"type":"ok","step":0},{"type":"ok","step":1}]"#;
    assert!(!holds(&format!(r#"{{"type":"and","conds":{mixed}}}"#)));
    assert!(holds(&format!(r#"{{"conds":{mixed},"type":"or"}}"#)));
    let autocommit = condition(1, r#"{"type":"is_autocommit"}"#).unwrap();
    assert!(autocommit.holds(&[], true) && !autocommit.holds(&[], false));
}

#[test]
fn counts_are_bounded() {
    let get = r#"{"type":"get_autocommit"}"#;
    let many =
        |count: usize| format!(r#"{{"requests":[{}{get}]}}"#, format!("{get},").repeat(count - 1));
    assert_eq!(pipeline(&many(1_000)).unwrap().requests.len(), 1_000);
    let error = message(pipeline(&many(1_001)));
    assert!(error.starts_with("requests: invalid length 1001, expected at most 1000"), "{error}");
    let autocommit = r#"{"type":"is_autocommit"}"#;
    condition(10_000, autocommit).unwrap();
    let error = message(condition(10_001, autocommit));
    assert!(error.starts_with("batch.steps: invalid length 10001"), "{error}");
    // Found before the end, which is wrong, too.
    let requests = [[0x12, 0].repeat(1_001), vec![0x12, 9]].concat();
    let error = message(PipelineRequest::decode(&requests, Encoding::Protobuf));
    assert_eq!(error, "requests: more than 1000 entries");
    let steps = [0x0a, 2, 0x12, 0].repeat(10_001);
    let len = steps.len() as u32;
    let head = [0x12, len as u8 | 0x80, (len >> 7) as u8 | 0x80, (len >> 14) as u8];
    let error = message(CursorRequest::decode(&[&head, &*steps].concat(), Encoding::Protobuf));
    assert_eq!(error, "batch.steps: more than 10000 entries");
    // Several batches have no more together.
    let step = r#"{"stmt":{"sql":""}}"#;
    let batch = |steps: usize| {
        let steps = vec![step; steps].join(",");
        format!(r#"{{"type":"batch","batch":{{"steps":[{steps}]}}}}"#)
    };
    let two = |steps: usize| format!(r#"{{"requests":[{},{}]}}"#, batch(5_000), batch(steps));
    assert_eq!(pipeline(&two(5_000)).unwrap().requests.len(), 2);
    let much = "requests: its batches have 10001 steps; 10000 are allowed together";
    assert_eq!(message(pipeline(&two(5_001))), much);
    let batch = [0x0a, 2, 0x12, 0].repeat(10_001 / 3);
    let bytes = |tag: u8, bytes: &[u8]| {
        let len = bytes.len();
        [&[tag, len as u8 | 0x80, (len >> 7) as u8 | 0x80, (len >> 14) as u8], bytes].concat()
    };
    let request = bytes(0x12, &bytes(0x1a, &bytes(0x0a, &batch)));
    // Found before the end, which is wrong, too.
    let requests = [request.repeat(4), vec![0x12, 9]].concat();
    let error = message(PipelineRequest::decode(&requests, Encoding::Protobuf));
    assert_eq!(error, "requests: its batches have 13332 steps; 10000 are allowed together");
}

#[test]
fn messages_over_websocket_are_read() {
    let hello = |json: &str| ClientMessage::decode(json.as_bytes(), Encoding::Json);
    for json in [r#"{"type":"hello"}"#, r#"{"type":"hello","jwt":null}"#] {
        assert_eq!(hello(json), Ok(ClientMessage::Hello { jwt: None }));
    }
    let jwt = Some("x".into());
    assert_eq!(hello(r#"{"jwt":"x","type":"hello"}"#), Ok(ClientMessage::Hello { jwt }));
    assert!(message(hello(r#"{"type":"bye"}"#)).contains("unknown message type `bye`"));
    for wrong in [
        "",
        "{}",
        r#"{"type":"request"}"#,
        r#"{"type":"request","request_id":1}"#,
        r#"{"type":"request","request":{"type":"open_stream","stream_id":1}}"#,
        r#"{"type":"request","request_id":2147483648,"request":{"type":"x"}}"#,
        r#"{"type":"request","request_id":1,"request":{"type":"open_stream"}}"#,
        r#"{"type":"request","request_id":1,"request":{"type":"execute","stmt":{}}}"#,
    ] {
        message(hello(wrong));
    }
    let batch = r#"{"steps":[]}"#;
    let on = |stream_id, request| SocketRequest::Stream { stream_id, request };
    for (json, expected) in [
        (r#""open_stream","stream_id":1"#, SocketRequest::OpenStream { stream_id: 1 }),
        (r#""close_stream","stream_id":-1"#, SocketRequest::CloseStream { stream_id: -1 }),
        (
            r#""store_sql","sql_id":2,"sql":""#,
            SocketRequest::StoreSql { sql_id: 2, sql: "".into() },
        ),
        (r#""close_sql","sql_id":2"#, SocketRequest::CloseSql { sql_id: 2 }),
        (r#""close_cursor","cursor_id":3"#, SocketRequest::CloseCursor { cursor_id: 3 }),
        (
            r#""fetch_cursor","cursor_id":3,"max_count":4294967295"#,
            SocketRequest::FetchCursor { cursor_id: 3, max_count: u32::MAX },
        ),
        (
            &*format!(r#""open_cursor","stream_id":1,"cursor_id":3,"batch":{batch}"#),
            SocketRequest::OpenCursor { stream_id: 1, cursor_id: 3, batch: Batch::default() },
        ),
        (
            &*format!(r#""batch","stream_id":5,"batch":{batch}"#),
            on(5, StreamRequest::Batch(Batch::default())),
        ),
        (r#""sequence","stream_id":5,"sql":null"#, on(5, StreamRequest::Sequence(Sql::default()))),
        (r#""describe","stream_id":5"#, on(5, StreamRequest::Describe(Sql::default()))),
        (r#""get_autocommit","stream_id":5"#, on(5, StreamRequest::GetAutocommit)),
    ] {
        let json = if json.ends_with(r#""sql":""#) { format!("{json}\"") } else { json.to_owned() };
        assert_eq!(socket(&format!(r#"{{"type":{json}}}"#)), Ok(expected), "{json}");
    }
}
