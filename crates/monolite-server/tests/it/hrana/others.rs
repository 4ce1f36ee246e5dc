//! Random requests and responses, read and written by us and by others: the crate `libsql-hrana`,
//! and for what it only reads or only writes, the specification's messages as `prost` has them.

use libsql_hrana::proto as theirs;
use monolite::rusqlite::params_from_iter;
use monolite::rusqlite::types::Value as Sqlite;
use monolite_server::hrana::{
    Batch, BatchResult, ClientMessage, Column, Condition, CursorEntry, CursorRequest,
    DescribeResult, EncodedRow, Encoding, PipelineRequest, PipelineResponse, ProtocolError,
    ServerMessage, SocketRequest, SocketResponse, Sql, Step, Stmt, StmtResult, StreamRequest,
    StreamResponse, Value, encode_cursor_head,
};
use prost::Message;
use serde_json::{Value as Json, json};

use super::{BOTH, query, rows};

const ROUNDS: usize = 400;

/// Declares messages of Protobuf. The fields of a `oneof` are optional ones, as on the wire.
macro_rules! messages {
    ($($name:ident { $($field:ident: $type:ty [$($how:tt)*]),* $(,)? })*) => {
        $(#[derive(Message)]
        pub(crate) struct $name {
            $(#[prost($($how)*)] pub(crate) $field: $type,)*
        })*
    };
}

messages! {
    Empty {}
    Id { id: i32 [int32, tag = "1"] }
    Text {
        sql: Option<String> [string, optional, tag = "1"],
        sql_id: Option<i32> [int32, optional, tag = "2"],
    }
    Store { sql_id: i32 [int32, tag = "1"], sql: String [string, tag = "2"] }
    Execute { stmt: Option<theirs::Stmt> [message, optional, tag = "1"] }
    Cond {
        ok: Option<u32> [uint32, optional, tag = "1"],
        error: Option<u32> [uint32, optional, tag = "2"],
        not: Option<Box<Cond>> [message, optional, boxed, tag = "3"],
        and: Option<Conds> [message, optional, tag = "4"],
        or: Option<Conds> [message, optional, tag = "5"],
        is_autocommit: Option<Empty> [message, optional, tag = "6"],
    }
    Conds { conds: Vec<Cond> [message, repeated, tag = "1"] }
    BatchStep {
        condition: Option<Cond> [message, optional, tag = "1"],
        stmt: Option<theirs::Stmt> [message, optional, tag = "2"],
    }
    Steps { steps: Vec<BatchStep> [message, repeated, tag = "1"] }
    RunBatch { batch: Option<Steps> [message, optional, tag = "1"] }
    StreamReq {
        close: Option<Empty> [message, optional, tag = "1"],
        execute: Option<Execute> [message, optional, tag = "2"],
        batch: Option<RunBatch> [message, optional, tag = "3"],
        sequence: Option<Text> [message, optional, tag = "4"],
        describe: Option<Text> [message, optional, tag = "5"],
        store_sql: Option<Store> [message, optional, tag = "6"],
        close_sql: Option<Id> [message, optional, tag = "7"],
        get_autocommit: Option<Empty> [message, optional, tag = "8"],
    }
    PipelineReq {
        baton: Option<String> [string, optional, tag = "1"],
        requests: Vec<StreamReq> [message, repeated, tag = "2"],
    }
    CursorReq {
        baton: Option<String> [string, optional, tag = "1"],
        batch: Option<Steps> [message, optional, tag = "2"],
    }
    Hello { jwt: Option<String> [string, optional, tag = "1"] }
    SocketExecute {
        stream_id: i32 [int32, tag = "1"],
        stmt: Option<theirs::Stmt> [message, optional, tag = "2"],
    }
    SocketBatch {
        stream_id: i32 [int32, tag = "1"],
        batch: Option<Steps> [message, optional, tag = "2"],
    }
    SocketText {
        stream_id: i32 [int32, tag = "1"],
        sql: Option<String> [string, optional, tag = "2"],
        sql_id: Option<i32> [int32, optional, tag = "3"],
    }
    OpenCursor {
        stream_id: i32 [int32, tag = "1"],
        cursor_id: i32 [int32, tag = "2"],
        batch: Option<Steps> [message, optional, tag = "3"],
    }
    Fetch { cursor_id: i32 [int32, tag = "1"], max_count: u32 [uint32, tag = "2"] }
    RequestMsg {
        request_id: i32 [int32, tag = "1"],
        open_stream: Option<Id> [message, optional, tag = "2"],
        close_stream: Option<Id> [message, optional, tag = "3"],
        execute: Option<SocketExecute> [message, optional, tag = "4"],
        batch: Option<SocketBatch> [message, optional, tag = "5"],
        open_cursor: Option<OpenCursor> [message, optional, tag = "6"],
        close_cursor: Option<Id> [message, optional, tag = "7"],
        fetch_cursor: Option<Fetch> [message, optional, tag = "8"],
        sequence: Option<SocketText> [message, optional, tag = "9"],
        describe: Option<SocketText> [message, optional, tag = "10"],
        store_sql: Option<Store> [message, optional, tag = "11"],
        close_sql: Option<Id> [message, optional, tag = "12"],
        get_autocommit: Option<Id> [message, optional, tag = "13"],
    }
    ClientMsg {
        hello: Option<Hello> [message, optional, tag = "1"],
        request: Option<RequestMsg> [message, optional, tag = "2"],
    }
    Response { execute: Option<theirs::ExecuteStreamResp> [message, optional, tag = "2"] }
    Outcome { ok: Option<Response> [message, optional, tag = "1"] }
    Pipeline { results: Vec<Outcome> [message, repeated, tag = "3"] }
    ResponseOk {
        request_id: i32 [int32, tag = "1"],
        execute: Option<theirs::ExecuteStreamResp> [message, optional, tag = "4"],
        describe: Option<theirs::DescribeStreamResp> [message, optional, tag = "10"],
        get_autocommit: Option<theirs::GetAutocommitStreamResp> [message, optional, tag = "13"],
    }
    ServerMsg { response_ok: Option<ResponseOk> [message, optional, tag = "3"] }
}

fn text(random: &mut fastrand::Rng) -> String {
    let letters = ['a', 'b', ' ', '"', '\\', '/', '\n', '\0', 'ß', '😀', '\u{2028}', '?'];
    (0..random.usize(..12)).map(|_| letters[random.usize(..letters.len())]).collect()
}

fn maybe<T>(random: &mut fastrand::Rng, make: impl FnOnce(&mut fastrand::Rng) -> T) -> Option<T> {
    random.bool().then(|| make(random))
}

fn some<T>(
    random: &mut fastrand::Rng,
    most: usize,
    mut make: impl FnMut(&mut fastrand::Rng) -> T,
) -> Vec<T> {
    (0..random.usize(..=most)).map(|_| make(random)).collect()
}

fn value(random: &mut fastrand::Rng) -> Value {
    match random.u8(..6) {
        0 => Value::Null,
        1 => Value::Integer(random.i64(..)),
        2 => Value::Integer(i64::from(random.i8(..))),
        3 => {
            let float = f64::from_bits(random.u64(..));
            Value::Float(if float.is_finite() { float } else { 0.5 })
        }
        4 => Value::Text(text(random)),
        _ => Value::Blob(some(random, 40, |random| random.u8(..))),
    }
}

fn sql(random: &mut fastrand::Rng) -> Sql {
    Sql { sql: maybe(random, text), sql_id: maybe(random, |random| random.i32(..)) }
}

fn stmt(random: &mut fastrand::Rng) -> Stmt {
    let Sql { sql, sql_id } = sql(random);
    let args = some(random, 3, value);
    let named_args = some(random, 2, |random| (text(random), value(random)));
    Stmt { sql, sql_id, args, named_args, want_rows: random.bool() }
}

fn condition(random: &mut fastrand::Rng, step: u32, depth: u8) -> Condition {
    let kind = if depth == 0 { random.u8(..3) } else { random.u8(..6) };
    match kind {
        0 if step > 0 => Condition::Ok(random.u32(..step)),
        1 if step > 0 => Condition::Error(random.u32(..step)),
        3 => Condition::Not(Box::new(condition(random, step, depth - 1))),
        4 => Condition::And(some(random, 3, |random| condition(random, step, depth - 1))),
        5 => Condition::Or(some(random, 3, |random| condition(random, step, depth - 1))),
        _ => Condition::IsAutocommit,
    }
}

fn batch(random: &mut fastrand::Rng) -> Batch {
    let mut steps = 0..random.u32(..4);
    let step = |step| {
        let condition = maybe(random, |random| condition(random, step, 3));
        Step { condition, stmt: stmt(random) }
    };
    Batch { steps: steps.by_ref().map(step).collect() }
}

fn stream_request(random: &mut fastrand::Rng) -> StreamRequest {
    match random.u8(..7) {
        0 => StreamRequest::Execute(stmt(random)),
        1 => StreamRequest::Batch(batch(random)),
        2 => StreamRequest::Sequence(sql(random)),
        3 => StreamRequest::Describe(sql(random)),
        4 => StreamRequest::StoreSql { sql_id: random.i32(..), sql: text(random) },
        5 => StreamRequest::CloseSql { sql_id: random.i32(..) },
        _ => StreamRequest::GetAutocommit,
    }
}

fn pipeline_request(random: &mut fastrand::Rng) -> PipelineRequest {
    let mut requests = some(random, 4, stream_request);
    if random.bool() {
        requests.push(StreamRequest::Close);
    }
    PipelineRequest { baton: maybe(random, text), requests }
}

fn client_message(random: &mut fastrand::Rng) -> ClientMessage {
    let id = |random: &mut fastrand::Rng| random.i32(..);
    let request = match random.u8(..8) {
        0 => return ClientMessage::Hello { jwt: maybe(random, text) },
        1 => SocketRequest::OpenStream { stream_id: id(random) },
        2 => SocketRequest::CloseStream { stream_id: id(random) },
        3 => SocketRequest::CloseCursor { cursor_id: id(random) },
        4 => SocketRequest::FetchCursor { cursor_id: id(random), max_count: random.u32(..) },
        5 => SocketRequest::OpenCursor {
            stream_id: id(random),
            cursor_id: id(random),
            batch: batch(random),
        },
        _ => match stream_request(random) {
            StreamRequest::StoreSql { sql_id, sql } => SocketRequest::StoreSql { sql_id, sql },
            StreamRequest::CloseSql { sql_id } => SocketRequest::CloseSql { sql_id },
            request => SocketRequest::Stream { stream_id: id(random), request },
        },
    };
    ClientMessage::Request { request_id: id(random), request }
}

fn their_value(value: &Value) -> theirs::Value {
    match value.clone() {
        Value::Null => theirs::Value::Null,
        Value::Integer(value) => theirs::Value::Integer { value },
        Value::Float(value) => theirs::Value::Float { value },
        Value::Text(value) => theirs::Value::Text { value: value.into() },
        Value::Blob(value) => theirs::Value::Blob { value: value.into() },
    }
}

fn their_stmt(stmt: &Stmt) -> theirs::Stmt {
    let named = |(name, value): &(String, Value)| theirs::NamedArg {
        name: name.clone(),
        value: their_value(value),
    };
    theirs::Stmt {
        sql: stmt.sql.clone(),
        sql_id: stmt.sql_id,
        args: stmt.args.iter().map(their_value).collect(),
        named_args: stmt.named_args.iter().map(named).collect(),
        want_rows: Some(stmt.want_rows),
        replication_index: Some(7),
    }
}

fn wire_condition(condition: &Condition) -> Cond {
    let mut cond = Cond::default();
    let all = |conds: &[Condition]| Conds { conds: conds.iter().map(wire_condition).collect() };
    match condition {
        Condition::Ok(step) => cond.ok = Some(*step),
        Condition::Error(step) => cond.error = Some(*step),
        Condition::Not(inner) => cond.not = Some(Box::new(wire_condition(inner))),
        Condition::And(conds) => cond.and = Some(all(conds)),
        Condition::Or(conds) => cond.or = Some(all(conds)),
        Condition::IsAutocommit => cond.is_autocommit = Some(Empty {}),
    }
    cond
}

fn wire_batch(batch: &Batch) -> Option<Steps> {
    let step = |step: &Step| BatchStep {
        condition: step.condition.as_ref().map(wire_condition),
        stmt: Some(their_stmt(&step.stmt)),
    };
    Some(Steps { steps: batch.steps.iter().map(step).collect() })
}

fn wire_request(request: &StreamRequest) -> StreamReq {
    let mut wire = StreamReq::default();
    let text = |text: &Sql| Some(Text { sql: text.sql.clone(), sql_id: text.sql_id });
    match request {
        StreamRequest::Close => wire.close = Some(Empty {}),
        StreamRequest::Execute(stmt) => {
            wire.execute = Some(Execute { stmt: Some(their_stmt(stmt)) });
        }
        StreamRequest::Batch(batch) => wire.batch = Some(RunBatch { batch: wire_batch(batch) }),
        StreamRequest::Sequence(sql) => wire.sequence = text(sql),
        StreamRequest::Describe(sql) => wire.describe = text(sql),
        StreamRequest::StoreSql { sql_id, sql } => {
            wire.store_sql = Some(Store { sql_id: *sql_id, sql: sql.clone() });
        }
        StreamRequest::CloseSql { sql_id } => wire.close_sql = Some(Id { id: *sql_id }),
        StreamRequest::GetAutocommit => wire.get_autocommit = Some(Empty {}),
        StreamRequest::Invalid(error) => panic!("{error:?}"),
    }
    wire
}

fn wire_message(message: &ClientMessage) -> Vec<u8> {
    let (request_id, request) = match message {
        ClientMessage::Hello { jwt } => {
            let hello = Some(Hello { jwt: jwt.clone() });
            return ClientMsg { hello, request: None }.encode_to_vec();
        }
        ClientMessage::Request { request_id, request } => (*request_id, request),
    };
    let mut wire = RequestMsg { request_id, ..RequestMsg::default() };
    match request {
        SocketRequest::OpenStream { stream_id } => wire.open_stream = Some(Id { id: *stream_id }),
        SocketRequest::CloseStream { stream_id } => wire.close_stream = Some(Id { id: *stream_id }),
        SocketRequest::CloseCursor { cursor_id } => wire.close_cursor = Some(Id { id: *cursor_id }),
        SocketRequest::FetchCursor { cursor_id, max_count } => {
            wire.fetch_cursor = Some(Fetch { cursor_id: *cursor_id, max_count: *max_count });
        }
        SocketRequest::OpenCursor { stream_id, cursor_id, batch } => {
            let (stream_id, cursor_id) = (*stream_id, *cursor_id);
            wire.open_cursor = Some(OpenCursor { stream_id, cursor_id, batch: wire_batch(batch) });
        }
        SocketRequest::StoreSql { sql_id, sql } => {
            wire.store_sql = Some(Store { sql_id: *sql_id, sql: sql.clone() });
        }
        SocketRequest::CloseSql { sql_id } => wire.close_sql = Some(Id { id: *sql_id }),
        SocketRequest::Stream { stream_id, request } => {
            let stream_id = *stream_id;
            let text =
                |it: &Sql| Some(SocketText { stream_id, sql: it.sql.clone(), sql_id: it.sql_id });
            match request {
                StreamRequest::Execute(stmt) => {
                    let stmt = Some(their_stmt(stmt));
                    wire.execute = Some(SocketExecute { stream_id, stmt });
                }
                StreamRequest::Batch(batch) => {
                    wire.batch = Some(SocketBatch { stream_id, batch: wire_batch(batch) });
                }
                StreamRequest::Sequence(sql) => wire.sequence = text(sql),
                StreamRequest::Describe(sql) => wire.describe = text(sql),
                StreamRequest::GetAutocommit => wire.get_autocommit = Some(Id { id: stream_id }),
                other => panic!("{other:?}"),
            }
        }
        SocketRequest::Invalid(error) => panic!("{error:?}"),
    }
    ClientMsg { hello: None, request: Some(wire) }.encode_to_vec()
}

fn wire_pipeline(request: &PipelineRequest) -> Vec<u8> {
    let requests = request.requests.iter().map(wire_request).collect();
    PipelineReq { baton: request.baton.clone(), requests }.encode_to_vec()
}

fn wire_cursor(request: &CursorRequest) -> Vec<u8> {
    CursorReq { baton: request.baton.clone(), batch: wire_batch(&request.batch) }.encode_to_vec()
}

/// The JSON that they write of what they read from Protobuf.
fn their_pipeline(protobuf: &[u8]) -> Json {
    serde_json::to_value(theirs::PipelineReqBody::decode(protobuf).unwrap()).unwrap()
}

fn their_cursor(protobuf: &[u8]) -> Json {
    serde_json::to_value(theirs::CursorReqBody::decode(protobuf).unwrap()).unwrap()
}

/// The message in JSON, with the statements and batches that they write.
fn json_message(message: &ClientMessage) -> Json {
    let (request_id, request) = match message {
        ClientMessage::Hello { jwt } => return json!({"type": "hello", "jwt": jwt}),
        ClientMessage::Request { request_id, request } => (request_id, request),
    };
    let one = |request: &StreamRequest| {
        let request = PipelineRequest { baton: None, requests: vec![request.clone()] };
        their_pipeline(&wire_pipeline(&request))["requests"][0].take()
    };
    let request = match request {
        SocketRequest::OpenStream { stream_id } => {
            json!({"type": "open_stream", "stream_id": stream_id})
        }
        SocketRequest::CloseStream { stream_id } => {
            json!({"type": "close_stream", "stream_id": stream_id})
        }
        SocketRequest::CloseCursor { cursor_id } => {
            json!({"type": "close_cursor", "cursor_id": cursor_id})
        }
        SocketRequest::FetchCursor { cursor_id, max_count } => {
            json!({"type": "fetch_cursor", "cursor_id": cursor_id, "max_count": max_count})
        }
        SocketRequest::OpenCursor { stream_id, cursor_id, batch } => {
            let batch = one(&StreamRequest::Batch(batch.clone()))["batch"].take();
            let cursor = "open_cursor";
            json!({"type": cursor, "stream_id": stream_id, "cursor_id": cursor_id, "batch": batch})
        }
        SocketRequest::StoreSql { sql_id, sql } => {
            one(&StreamRequest::StoreSql { sql_id: *sql_id, sql: sql.clone() })
        }
        SocketRequest::CloseSql { sql_id } => one(&StreamRequest::CloseSql { sql_id: *sql_id }),
        SocketRequest::Stream { stream_id, request } => {
            let mut request = one(request);
            request["stream_id"] = json!(stream_id);
            request
        }
        SocketRequest::Invalid(error) => panic!("{error:?}"),
    };
    json!({"type": "request", "request_id": request_id, "request": request})
}

/// Random requests, as bytes.
pub(super) fn request(random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    let pipeline = wire_pipeline(&pipeline_request(random));
    let cursor = wire_cursor(&CursorRequest { baton: None, batch: batch(random) });
    let message = client_message(random);
    vec![
        their_pipeline(&pipeline).to_string().into_bytes(),
        pipeline,
        their_cursor(&cursor).to_string().into_bytes(),
        cursor,
        json_message(&message).to_string().into_bytes(),
        wire_message(&message),
        format!(r#"{{"stmt":{}}}"#, serde_json::to_string(&their_stmt(&stmt(random))).unwrap())
            .into_bytes(),
    ]
}

fn random() -> fastrand::Rng {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    fastrand::Rng::with_seed(seed)
}

#[test]
fn requests_that_others_write_are_read() {
    let mut random = random();
    for _ in 0..ROUNDS {
        let request = pipeline_request(&mut random);
        let protobuf = wire_pipeline(&request);
        let json = their_pipeline(&protobuf).to_string();
        assert_eq!(PipelineRequest::decode(&protobuf, Encoding::Protobuf).as_ref(), Ok(&request));
        let read = PipelineRequest::decode(json.as_bytes(), Encoding::Json);
        assert_eq!(read.as_ref(), Ok(&request), "{json}");

        let request = CursorRequest { baton: maybe(&mut random, text), batch: batch(&mut random) };
        let protobuf = wire_cursor(&request);
        let json = their_cursor(&protobuf).to_string();
        assert_eq!(CursorRequest::decode(&protobuf, Encoding::Protobuf).as_ref(), Ok(&request));
        assert_eq!(CursorRequest::decode(json.as_bytes(), Encoding::Json).as_ref(), Ok(&request));
        assert_eq!(Batch::decode_v1(json.as_bytes()), Ok(request.batch), "{json}");

        let message = client_message(&mut random);
        let protobuf = wire_message(&message);
        let json = json_message(&message).to_string();
        assert_eq!(ClientMessage::decode(&protobuf, Encoding::Protobuf).as_ref(), Ok(&message));
        let read = ClientMessage::decode(json.as_bytes(), Encoding::Json);
        assert_eq!(read.as_ref(), Ok(&message), "{json}");

        let stmt = stmt(&mut random);
        let json = json!({"stmt": serde_json::to_value(their_stmt(&stmt)).unwrap()}).to_string();
        assert_eq!(Stmt::decode_v1(json.as_bytes()), Ok(stmt), "{json}");
    }
}

/// A result of ours in both encodings, and theirs.
struct Pair<O, T> {
    ours: [O; 2],
    theirs: T,
}

fn column(random: &mut fastrand::Rng) -> Column {
    Column { name: text(random) + "!", decltype: maybe(random, text) }
}

fn their_columns(columns: &[Column]) -> Vec<theirs::Col> {
    let column =
        |it: &Column| theirs::Col { name: Some(it.name.clone()), decltype: it.decltype.clone() };
    columns.iter().map(column).collect()
}

fn sqlite_value(value: &Value) -> Sqlite {
    match value.clone() {
        Value::Null => Sqlite::Null,
        Value::Integer(value) => Sqlite::Integer(value),
        Value::Float(value) => Sqlite::Real(value),
        Value::Text(value) => Sqlite::Text(value),
        Value::Blob(value) => Sqlite::Blob(value),
    }
}

/// Rows, the query and parameters that give them, and theirs.
fn random_rows(random: &mut fastrand::Rng) -> (String, Vec<Sqlite>, Vec<theirs::Row>) {
    let columns = random.usize(1..5);
    let all = some(random, 5, |random| (0..columns).map(|_| value(random)).collect::<Vec<_>>());
    let row = format!("({})", vec!["?"; columns].join(","));
    let sql = if all.is_empty() {
        "SELECT 1 WHERE 0".to_owned()
    } else {
        format!("VALUES {}", vec![row; all.len()].join(","))
    };
    let row = |row: &Vec<Value>| theirs::Row { values: row.iter().map(their_value).collect() };
    (sql, all.iter().flatten().map(sqlite_value).collect(), all.iter().map(row).collect())
}

fn stmt_result(random: &mut fastrand::Rng) -> Pair<StmtResult, theirs::StmtResult> {
    let cols = some(random, 4, column);
    let (sql, params, their_rows) = random_rows(random);
    let theirs = theirs::StmtResult {
        cols: their_columns(&cols),
        rows: their_rows,
        affected_row_count: random.u64(..) >> random.u8(..64),
        last_insert_rowid: maybe(random, |random| random.i64(..)),
        replication_index: None,
        rows_read: random.u64(..) >> random.u8(..64),
        rows_written: random.u64(..) >> random.u8(..64),
        query_duration_ms: random.f64() + 1.0,
    };
    let ours = BOTH.map(|encoding| {
        let (rows, invalid) = rows(&sql, params_from_iter(&params), encoding);
        assert_eq!(invalid, None);
        StmtResult {
            cols: cols.clone(),
            rows,
            affected_row_count: theirs.affected_row_count,
            last_insert_rowid: theirs.last_insert_rowid,
            rows_read: theirs.rows_read,
            rows_written: theirs.rows_written,
            query_duration_ms: theirs.query_duration_ms,
        }
    });
    Pair { ours, theirs }
}

fn error(random: &mut fastrand::Rng) -> (ProtocolError, theirs::Error) {
    // They leave out an empty one.
    let (message, code) = (text(random) + "!", text(random) + "!");
    let error = ProtocolError {
        extended_code: maybe(random, text),
        offset: maybe(random, |random| random.usize(..)),
        ..ProtocolError::new(&code, message.clone())
    };
    (error, theirs::Error { message, code })
}

fn batch_result(random: &mut fastrand::Rng) -> Pair<BatchResult, theirs::BatchResult> {
    let mut ours = BOTH.map(|_| BatchResult::default());
    let mut theirs = theirs::BatchResult::default();
    for _ in 0..random.usize(..5) {
        let result = maybe(random, stmt_result);
        let (failure, theirs_failure) = maybe(random, error).unzip();
        let (results, their_result) =
            result.map_or((BOTH.map(|_| None), None), |it| (it.ours.map(Some), Some(it.theirs)));
        for (ours, result) in ours.iter_mut().zip(results) {
            ours.step_results.push(result);
            ours.step_errors.push(failure.clone());
        }
        theirs.step_results.push(their_result);
        theirs.step_errors.push(theirs_failure);
    }
    Pair { ours, theirs }
}

fn describe_result(random: &mut fastrand::Rng) -> (DescribeResult, theirs::DescribeResult) {
    let ours = DescribeResult {
        params: some(random, 3, |random| maybe(random, text)),
        cols: some(random, 3, column),
        is_explain: random.bool(),
        is_readonly: random.bool(),
    };
    let param = |name: &Option<String>| theirs::DescribeParam { name: name.clone() };
    let col =
        |it: &Column| theirs::DescribeCol { name: it.name.clone(), decltype: it.decltype.clone() };
    let theirs = theirs::DescribeResult {
        params: ours.params.iter().map(param).collect(),
        cols: ours.cols.iter().map(col).collect(),
        is_explain: ours.is_explain,
        is_readonly: ours.is_readonly,
    };
    (ours, theirs)
}

type Outcomes = [Result<StreamResponse, ProtocolError>; 2];

fn outcome(random: &mut fastrand::Rng) -> (Outcomes, theirs::StreamResult) {
    let (ours, response) = match random.u8(..9) {
        0 => {
            let (ours, error) = error(random);
            return ([Err(ours.clone()), Err(ours)], theirs::StreamResult::Error { error });
        }
        1 => {
            let Pair { ours, theirs: result } = stmt_result(random);
            let response = theirs::StreamResponse::Execute(theirs::ExecuteStreamResp { result });
            (ours.map(StreamResponse::Execute), response)
        }
        2 => {
            let Pair { ours, theirs: result } = batch_result(random);
            let response = theirs::StreamResponse::Batch(theirs::BatchStreamResp { result });
            (ours.map(StreamResponse::Batch), response)
        }
        3 => {
            let (ours, result) = describe_result(random);
            let response = theirs::StreamResponse::Describe(theirs::DescribeStreamResp { result });
            ([(); 2].map(|()| StreamResponse::Describe(ours.clone())), response)
        }
        4 => {
            let is_autocommit = random.bool();
            let response = theirs::GetAutocommitStreamResp { is_autocommit };
            let ours = [(); 2].map(|()| StreamResponse::GetAutocommit { is_autocommit });
            (ours, theirs::StreamResponse::GetAutocommit(response))
        }
        5 => (
            [(); 2].map(|()| StreamResponse::Close),
            theirs::StreamResponse::Close(theirs::CloseStreamResp {}),
        ),
        6 => (
            [(); 2].map(|()| StreamResponse::Sequence),
            theirs::StreamResponse::Sequence(theirs::SequenceStreamResp {}),
        ),
        7 => (
            [(); 2].map(|()| StreamResponse::StoreSql),
            theirs::StreamResponse::StoreSql(theirs::StoreSqlStreamResp {}),
        ),
        _ => (
            [(); 2].map(|()| StreamResponse::CloseSql),
            theirs::StreamResponse::CloseSql(theirs::CloseSqlStreamResp {}),
        ),
    };
    (ours.map(Ok), theirs::StreamResult::Ok { response })
}

#[test]
fn pipeline_that_we_answer_is_read_by_others() {
    let mut random = random();
    for _ in 0..ROUNDS {
        let (ours, results): (Vec<_>, Vec<_>) = some(&mut random, 4, outcome).into_iter().unzip();
        let baton = maybe(&mut random, text);
        let theirs = theirs::PipelineRespBody { baton: baton.clone(), base_url: None, results };
        let expected = theirs.encode_to_vec();
        let [json, protobuf] = [0, 1].map(|index| {
            let results = ours.iter().map(|both| both[index].clone()).collect();
            PipelineResponse { baton: baton.clone(), results }.encode(BOTH[index])
        });
        assert_eq!(protobuf, expected);
        let read: theirs::PipelineRespBody = serde_json::from_slice(&json).unwrap();
        assert_eq!(read.encode_to_vec(), expected, "{}", String::from_utf8_lossy(&json));
    }
}

#[test]
fn cursor_that_we_answer_is_read_by_others() {
    let mut random = random();
    for _ in 0..ROUNDS {
        let baton = maybe(&mut random, text);
        let head = theirs::CursorRespBody { baton: baton.clone(), base_url: None };
        let mut expected = head.encode_length_delimited_to_vec();
        let mut out = [Vec::new(), Vec::new()];
        for (encoding, out) in BOTH.into_iter().zip(&mut out) {
            encode_cursor_head(baton.as_deref(), encoding, out);
        }
        let mut their_entries = Vec::new();
        for _ in 0..random.usize(..6) {
            let (ours, theirs) = entry(&mut random);
            expected.extend(theirs.encode_length_delimited_to_vec());
            their_entries.push(theirs);
            for ((encoding, out), entry) in BOTH.into_iter().zip(&mut out).zip(ours) {
                entry.encode(encoding, out);
            }
        }
        assert_eq!(out[1], expected);
        let lines: Vec<&str> = str::from_utf8(&out[0]).unwrap().split_terminator('\n').collect();
        assert_eq!(lines.len(), 1 + their_entries.len());
        let read: theirs::CursorRespBody = serde_json::from_str(lines[0]).unwrap();
        assert_eq!(read.baton, baton);
        for (line, theirs) in lines[1..].iter().zip(their_entries) {
            let read: theirs::CursorEntry = serde_json::from_str(line).unwrap();
            assert_eq!(read.encode_to_vec(), theirs.encode_to_vec(), "{line}");
        }
    }
}

fn entry(random: &mut fastrand::Rng) -> ([CursorEntry; 2], theirs::CursorEntry) {
    match random.u8(..5) {
        0 => {
            let (step, cols) = (random.u32(..), some(random, 3, column));
            let theirs = theirs::StepBeginEntry { step, cols: their_columns(&cols) };
            let ours = CursorEntry::StepBegin { step, cols };
            ([ours.clone(), ours], theirs::CursorEntry::StepBegin(theirs))
        }
        1 => {
            let (affected_row_count, last_insert_rowid) =
                (random.u64(..), maybe(random, |random| random.i64(..)));
            let theirs = theirs::StepEndEntry { affected_row_count, last_insert_rowid };
            let ours = CursorEntry::StepEnd { affected_row_count, last_insert_rowid };
            ([ours.clone(), ours], theirs::CursorEntry::StepEnd(theirs))
        }
        2 => {
            let (step, (error, theirs)) = (random.u32(..), error(random));
            let ours = CursorEntry::StepError { step, error };
            let theirs = theirs::StepErrorEntry { step, error: theirs };
            ([ours.clone(), ours], theirs::CursorEntry::StepError(theirs))
        }
        3 => {
            let (error, theirs) = error(random);
            let ours = CursorEntry::Error { error };
            ([ours.clone(), ours], theirs::CursorEntry::Error { error: theirs })
        }
        _ => {
            let values: Vec<Value> = (0..random.usize(1..5)).map(|_| value(random)).collect();
            let sql = format!("SELECT {}", vec!["?"; values.len()].join(","));
            let params: Vec<Sqlite> = values.iter().map(sqlite_value).collect();
            let ours = BOTH.map(|encoding| {
                let mut encoded = None;
                query(&sql, params_from_iter(&params), |row, columns| {
                    encoded = Some(EncodedRow::new(encoding, row, columns).unwrap());
                });
                CursorEntry::Row(encoded.unwrap())
            });
            let row = theirs::Row { values: values.iter().map(their_value).collect() };
            (ours, theirs::CursorEntry::Row { row })
        }
    }
}

#[test]
fn responses_over_websocket_are_read_by_others() {
    let mut random = random();
    for _ in 0..ROUNDS {
        let request_id = random.i32(..);
        let encode = |response| {
            let response = SocketResponse::Stream(response);
            let message = ServerMessage::ResponseOk { request_id, response };
            let bytes = message.encode(Encoding::Protobuf);
            let read = ServerMsg::decode(&*bytes).unwrap().response_ok.unwrap();
            assert_eq!(read.request_id, request_id);
            read
        };
        let Pair { ours: [_, ours], theirs } = stmt_result(&mut random);
        let read = encode(StreamResponse::Execute(ours)).execute.unwrap().result;
        assert_eq!(read.encode_to_vec(), theirs.encode_to_vec());
        let (ours, theirs) = describe_result(&mut random);
        let read = encode(StreamResponse::Describe(ours)).describe.unwrap().result;
        assert_eq!(read.encode_to_vec(), theirs.encode_to_vec());
        let is_autocommit = random.bool();
        let read = encode(StreamResponse::GetAutocommit { is_autocommit }).get_autocommit.unwrap();
        assert_eq!(read.is_autocommit, is_autocommit);
    }
}
