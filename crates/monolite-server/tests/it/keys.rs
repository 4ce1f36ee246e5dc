//! Requests with an idempotency key, sent again after their answer was lost: what they do is done
//! once.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use libsql_hrana::proto as theirs;
use monolite::Options;
use monolite_archive::{Archive, Takeover};
use monolite_server::{AuthConfig, Right, issue_token};
use prost::Message as _;
use serde_json::{Value, json};

use crate::hrana::others::{Execute, PipelineReq, StreamReq};
use crate::replica::primary_with;
use crate::served::{Client, Served};

/// Neither a counter nor a generated id protects itself.
const SCHEMA: &str = "CREATE TABLE counter(n); INSERT INTO counter VALUES (0);
    CREATE TABLE row(id INTEGER PRIMARY KEY, x);";
const COUNT: &str = "UPDATE counter SET n = n + 1 RETURNING n";
const INSERT: &str = "INSERT INTO row(x) VALUES ('a') RETURNING id";

/// Requests are cut at one in so many bytes: none of those that are cut is run.
const STRIDE: usize = 16;

fn with_tables() -> Served {
    let served = Served::one();
    served.stream().one(json!({ "type": "sequence", "sql": SCHEMA })).unwrap();
    served
}

fn execute(sql: &str) -> Value {
    json!({ "type": "execute", "stmt": { "sql": sql } })
}

fn pipeline(baton: Option<&str>, requests: &[Value]) -> Value {
    json!({ "baton": baton, "requests": requests })
}

/// As clients send one.
fn transaction(steps: &[&str]) -> Value {
    let ok = |step: usize| json!({ "type": "ok", "step": step });
    let mut batch = vec![json!({ "stmt": { "sql": "BEGIN IMMEDIATE" } })];
    for (before, sql) in steps.iter().chain(&["COMMIT"]).enumerate() {
        batch.push(json!({ "stmt": { "sql": sql }, "condition": ok(before) }));
    }
    let committed = json!({ "type": "not", "cond": ok(batch.len() - 1) });
    batch.push(json!({ "stmt": { "sql": "ROLLBACK" }, "condition": committed }));
    json!({ "type": "batch", "batch": { "steps": batch } })
}

fn close() -> Value {
    json!({ "type": "close" })
}

/// The bytes of a request.
fn asked(path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("content-length: {}\r\n\r\n", body.len());
    [text.as_bytes(), body].concat()
}

#[derive(Debug, Clone, PartialEq)]
struct Answer {
    status: u16,
    is_repeated: bool,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The code of the error that ended the request.
    fn code(&self) -> (u16, String) {
        (self.status, self.json()["code"].as_str().unwrap_or_default().to_owned())
    }

    /// The results, without their times: a commit does not know its own.
    fn results(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        let mut body = self.json();
        forget_times(&mut body);
        body["results"].clone()
    }
}

fn forget_times(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(forget_times),
        Value::Object(fields) => {
            fields.remove("query_duration_ms");
            fields.values_mut().for_each(forget_times);
        }
        _ => {}
    }
}

fn connect(served: &Served) -> TcpStream {
    let stream = TcpStream::connect(served.url.trim_start_matches("http://")).unwrap();
    stream.set_nodelay(true).unwrap();
    // A test that waits for ever says nothing.
    stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    stream
}

fn answer(served: &Served, request: &[u8]) -> Answer {
    let mut stream = connect(served);
    stream.write_all(request).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let is_repeated = head.contains("idempotent-replayed: true");
    Answer { status, is_repeated, body: bytes[end + 4..].to_vec() }
}

fn keyed(served: &Served, key: &str, body: &Value) -> Answer {
    let body = body.to_string().into_bytes();
    answer(served, &asked("/v2/pipeline", &[("Idempotency-Key", key)], &body))
}

/// The counter, and how many rows there are.
fn done(served: &Served) -> [i64; 2] {
    ["SELECT n FROM counter", "SELECT count(*) FROM row"]
        .map(|sql| served.stream().value(sql).as_str().unwrap().parse().unwrap())
}

/// Each cuts a request, or its answer, at `bytes`.
fn cut(served: &Served, request: &[u8], bytes: usize, is_request: bool) {
    let mut stream = connect(served);
    let sent = if is_request { bytes } else { request.len() };
    stream.write_all(&request[..sent]).unwrap();
    if is_request {
        stream.shutdown(Shutdown::Write).unwrap();
    } else {
        let _is_short = stream.read_exact(&mut vec![0; bytes]);
    }
}

/// Sends requests that `make` gives with a new key for each cut, one in `stride` bytes of the
/// answer, and judges what is left.
fn cut_everywhere(stride: usize, make: impl Fn(&Served) -> Value) {
    let served = with_tables();
    let mut sessions = 0;
    let mut session = |bytes: usize, is_request: bool| {
        sessions += 1;
        let body = make(&served).to_string().into_bytes();
        let key = format!("{sessions:05}");
        let request = asked("/v2/pipeline", &[("Idempotency-Key", &key)], &body);
        cut(&served, &request, bytes.min(request.len() - 1), is_request);
        let first = answer(&served, &request);
        let again = answer(&served, &request);
        // A client that leaves before the answer begins may have left before the request did.
        let must_be_repeated = !is_request && bytes > 0;
        assert!(again.is_repeated && (first.is_repeated || !must_be_repeated), "cut at {bytes}");
        let (first, results) = (first.results(), again.results());
        assert_eq!(first, results, "cut at {bytes}");
        assert!(results.as_array().unwrap().iter().all(|it| it["type"] == "ok"), "{results}");
        assert_eq!(done(&served), [sessions, sessions], "cut at {bytes}: {results}");
        (request.len(), again.body.len())
    };
    let (request, body) = session(0, true);
    for bytes in (0..request).step_by(STRIDE) {
        session(bytes, true);
    }
    // The head of an answer has fewer bytes than this.
    for bytes in (0..body + 160).step_by(stride) {
        session(bytes, false);
    }
}

#[test]
fn a_batch_that_is_cut_anywhere_is_done_once() {
    cut_everywhere(5, |_| pipeline(None, &[transaction(&[COUNT, INSERT]), close()]));
}

#[test]
fn a_script_that_is_cut_anywhere_is_done_once() {
    let script = json!({ "type": "sequence", "sql": format!("{COUNT}; {INSERT}") });
    cut_everywhere(5, |_| pipeline(None, &[script.clone(), close()]));
}

#[test]
fn a_commit_that_is_cut_anywhere_is_done_once() {
    cut_everywhere(1, |served| {
        let mut client = served.stream();
        client.execute("BEGIN").unwrap();
        client.execute(COUNT).unwrap();
        client.execute(INSERT).unwrap();
        pipeline(client.baton.as_deref(), &[execute("COMMIT"), close()])
    });
}

#[test]
fn a_statement_that_is_cut_anywhere_is_done_once() {
    let insert = "INSERT INTO row(x) SELECT 'a' FROM counter RETURNING id, x";
    let trigger = "CREATE TRIGGER IF NOT EXISTS counts AFTER INSERT ON row BEGIN UPDATE counter SET
        n = n + 1; END";
    cut_everywhere(3, |served| {
        served.stream().execute(trigger).unwrap();
        pipeline(None, &[execute(insert), close()])
    });
}

#[test]
fn a_repetition_by_protobuf_and_after_a_restart_has_the_first_answer() {
    let served = with_tables();
    let stmt = Some(theirs::Stmt::new(COUNT, true));
    let requests = vec![StreamReq { execute: Some(Execute { stmt }), ..StreamReq::default() }];
    let body = PipelineReq { baton: None, requests }.encode_to_vec();
    let headers = [("Idempotency-Key", "k")];
    let request = asked("/v3-protobuf/pipeline", &headers, &body);
    let first = answer(&served, &request);
    assert!(first.status == 200 && !first.is_repeated);
    let directory = served.end();
    let served = Served::with(|_, config| config.file = Some(directory.path().join("one.db")));
    let again = answer(&served, &request);
    assert_eq!(again, Answer { is_repeated: true, ..first });
    assert_eq!(done(&served), [1, 0]);
}

const SLOW: &str = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n LIMIT 1000000)
    SELECT sum(i) FROM n";

/// What operators see.
fn now(served: &Served) -> Value {
    let mut answer = ureq::get(format!("{}/now", served.admin)).call().unwrap();
    serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap()
}

#[test]
fn a_key_and_its_change_are_one_commit() {
    let served = with_tables();
    let commits = || now(&served)["databases"][0]["stats"]["commits"].as_u64().unwrap();
    let mut client = served.stream();
    client.execute("BEGIN").unwrap();
    client.execute(INSERT).unwrap();
    let bodies = [
        pipeline(None, &[execute(COUNT)]),
        pipeline(None, &[transaction(&[COUNT])]),
        pipeline(client.baton.as_deref(), &[execute("COMMIT")]),
    ];
    for (number, body) in bodies.iter().enumerate() {
        let before = commits();
        assert_eq!(keyed(&served, &number.to_string(), body).status, 200);
        assert!(keyed(&served, &number.to_string(), body).is_repeated);
        assert_eq!(commits() - before, 1, "{body}");
    }
    assert_eq!(done(&served), [2, 1]);
}

#[test]
fn a_request_goes_on_without_its_client() {
    let served = with_tables();
    let body = pipeline(None, &["BEGIN", SLOW, COUNT, "COMMIT"].map(execute)).to_string();
    let request = asked("/v2/pipeline", &[("Idempotency-Key", "k")], body.as_bytes());
    let mut left = connect(&served);
    left.write_all(&request).unwrap();
    while !now(&served).to_string().contains("RECURSIVE") {}
    drop(left);
    let again = answer(&served, &request);
    assert!(again.is_repeated && again.results()[3]["type"] == "ok", "{again:?}");
    assert_eq!(done(&served), [1, 0]);
}

#[test]
fn a_repetition_waits_for_the_first() {
    let served = with_tables();
    let steps = ["BEGIN", SLOW, COUNT, INSERT, "COMMIT"].map(execute);
    let body = pipeline(None, &steps);
    let both = std::thread::scope(|scope| {
        let ask = || scope.spawn(|| keyed(&served, "k", &body));
        [ask(), ask()].map(|asked| asked.join().unwrap())
    });
    assert_ne!(both[0].is_repeated, both[1].is_repeated, "{both:?}");
    assert_eq!(both[0].results(), both[1].results());
    assert_eq!(done(&served), [1, 1]);
}

#[test]
fn a_repetition_holds_no_hand_over_up() {
    let directory = tempfile::tempdir().unwrap();
    let [file, socket] = ["one.db", "next.sock"].map(|name| directory.path().join(name));
    let begin = move || {
        Served::with(|_, config| {
            (config.listen, config.admin) =
                ("127.0.0.1:0".parse().unwrap(), Some("127.0.0.1:0".parse().unwrap()));
            (config.file, config.handover) = (Some(file.clone()), Some(socket.clone()));
        })
    };
    let old = begin();
    old.stream().one(json!({ "type": "sequence", "sql": SCHEMA })).unwrap();
    let commit = |client: &Client<'_>| pipeline(client.baton.as_deref(), &[execute("COMMIT")]);
    let attempt = || {
        let mut client = old.stream();
        client.execute("BEGIN").unwrap();
        client.execute(COUNT).unwrap();
        client
    };
    let [first, second] = [attempt(), attempt()];
    assert!(!keyed(&old, "k", &commit(&first)).is_repeated);
    let (url, new) = (format!("{}/v2", old.url), std::thread::spawn(begin));
    let quick = std::time::Duration::from_millis(300);
    let agent = ureq::Agent::config_builder().timeout_global(Some(quick)).build().new_agent();
    let read = pipeline(None, &[execute("SELECT 1")]);
    while agent.post(format!("{url}/pipeline")).send_json(&read).is_ok() {}
    assert!(keyed(&old, "k", &commit(&second)).is_repeated);
    let new = new.join().unwrap();
    assert_eq!(done(&new), [1, 0]);
}

#[test]
fn what_was_refused_was_not_done_and_has_no_key() {
    let served = with_tables();
    let refer = "CREATE TABLE refers(x REFERENCES row DEFERRABLE INITIALLY DEFERRED)";
    served.stream().execute(refer).unwrap();
    let refers = "INSERT INTO refers VALUES (1)";
    let bodies = [
        pipeline(None, &[execute(refers), close()]),
        pipeline(None, &[transaction(&[COUNT, refers]), close()]),
        pipeline(None, &[json!({ "type": "sequence", "sql": format!("{COUNT}; {refers}") })]),
    ];
    for (number, body) in bodies.iter().enumerate() {
        let refused = keyed(&served, &number.to_string(), body);
        assert!(refused.json().to_string().contains("\"code\":\"SQLITE_"), "{refused:?}");
        assert_eq!(done(&served), [0, 0], "{body}");
    }
    // Half of it would be left.
    let half = pipeline(None, &[execute("INSERT OR FAIL INTO row VALUES (7, 'a'), (7, 'b')")]);
    assert_eq!(keyed(&served, "h", &half).results()[0]["error"]["code"], "SQLITE_CONSTRAINT");
    assert_eq!(done(&served), [0, 0]);
    served.stream().execute(INSERT).unwrap();
    for (number, body) in bodies.iter().enumerate() {
        let first = keyed(&served, &number.to_string(), body);
        let again = keyed(&served, &number.to_string(), body);
        assert!(!first.is_repeated && again.is_repeated);
        assert_eq!(first.results(), again.results());
    }
    assert_eq!(done(&served), [2, 1]);
    assert_eq!(served.stream().value("SELECT count(*) FROM refers"), "3");
}

#[test]
fn a_key_is_for_one_commit() {
    let served = with_tables();
    let steps = [COUNT, "SELECT changes()", COUNT, "BEGIN", COUNT, "COMMIT"].map(execute);
    for is_repeated in [false, true] {
        let asked = keyed(&served, "k", &pipeline(None, &steps));
        assert_eq!(asked.is_repeated, is_repeated);
        let results = asked.results();
        assert_eq!(results[1]["response"]["result"]["rows"][0][0]["value"], "1", "{results}");
        for second in [2, 5] {
            assert_eq!(results[second]["error"]["code"], "IDEMPOTENCY_KEY_SPENT", "{results}");
        }
        assert_eq!(done(&served), [1, 0]);
    }
    // The key is the request's, not the stream's.
    let mut client = served.stream();
    client.execute("BEGIN").unwrap();
    let commit = pipeline(client.baton.as_deref(), &["COMMIT", "BEGIN"].map(execute));
    client.baton = keyed(&served, "s", &commit).json()["baton"].as_str().map(str::to_owned);
    client.execute(COUNT).unwrap();
    client.execute("COMMIT").unwrap();
    assert_eq!(done(&served), [2, 0]);
}

#[test]
fn a_transaction_without_its_commit_is_lost_with_its_baton() {
    let served = with_tables();
    let begun = keyed(&served, "b", &pipeline(None, &["BEGIN", COUNT].map(execute)));
    let next = pipeline(begun.json()["baton"].as_str(), &[execute(INSERT)]);
    let baton = keyed(&served, "n", &next).json()["baton"].clone();
    let reused = keyed(&served, "n", &next);
    assert_eq!(reused.code(), (400, "BATON_REUSED".into()), "nothing of it is committed");
    let commit = |baton: &Value| pipeline(baton.as_str(), &[execute("COMMIT"), close()]);
    assert!(!keyed(&served, "c", &commit(&baton)).is_repeated);
    assert_eq!(keyed(&served, "d", &commit(&baton)).code(), (404, "STREAM_EXPIRED".into()));
    // The whole transaction again, with the key of the one that was committed.
    let again = keyed(&served, "a", &pipeline(None, &["BEGIN", COUNT].map(execute)));
    assert!(keyed(&served, "c", &commit(&again.json()["baton"])).is_repeated);
    assert_eq!(done(&served), [1, 1]);
}

#[test]
fn a_key_of_another_request_is_refused() {
    let served = Served::with(|directory, config| {
        let file = directory.join("tokens.toml");
        let issue = |name, right| issue_token(&file, name, right, None, None).unwrap();
        let tokens = [("a", Right::ReadWrite), ("b", Right::ReadWrite), ("r", Right::ReadOnly)];
        let tokens = tokens.map(|(name, right)| issue(name, right));
        std::fs::write(directory.join("issued"), tokens.join("\n")).unwrap();
        let mut auth = AuthConfig::default();
        auth.token_file = Some(file);
        (config.file, config.auth) = (Some(directory.join("one.db")), Some(auth));
    });
    let tokens = std::fs::read_to_string(served.directory.path().join("issued")).unwrap();
    let tokens: Vec<String> = tokens.lines().map(|token| format!("Bearer {token}")).collect();
    let ask = |token: usize, key: &str, body: &Value| {
        let headers = [("Idempotency-Key", key), ("authorization", &*tokens[token])];
        answer(&served, &asked("/v2/pipeline", &headers, body.to_string().as_bytes()))
    };
    let script = json!({ "type": "sequence", "sql": SCHEMA });
    let create = pipeline(None, &[script, close()]);
    assert!(!ask(0, "k", &create).is_repeated && ask(0, "k", &create).is_repeated);
    for (token, body) in [(0, pipeline(None, &[execute(COUNT)])), (1, create.clone())] {
        assert_eq!(ask(token, "k", &body).code(), (422, "IDEMPOTENCY_KEY_REUSED".into()));
    }
    // A key gives no right; and what reads needs none.
    let count = pipeline(None, &[execute(COUNT)]);
    assert_eq!(ask(2, "r", &count).results()[0]["error"]["code"], "SQLITE_READONLY");
    let read = pipeline(None, &[execute("SELECT n FROM counter")]);
    assert_eq!(ask(2, "k", &read).results()[0]["type"], "ok");
}

#[test]
fn a_repetition_leaves_foreign_keys_off_as_the_first_did() {
    let served = with_tables();
    let schema = "CREATE TABLE parent(id INTEGER PRIMARY KEY); INSERT INTO parent VALUES (1);
        CREATE TABLE child(p REFERENCES parent ON DELETE CASCADE); INSERT INTO child VALUES (1);";
    served.stream().one(json!({ "type": "sequence", "sql": schema })).unwrap();
    let steps = ["PRAGMA foreign_keys = OFF", COUNT].map(execute);
    for is_repeated in [false, true] {
        let asked = keyed(&served, "k", &pipeline(None, &steps));
        assert_eq!(asked.is_repeated, is_repeated);
        let mut client = served.stream();
        client.baton = asked.json()["baton"].as_str().map(str::to_owned);
        client.execute("BEGIN").unwrap();
        client.execute("DELETE FROM parent").unwrap();
        let left = client.execute("SELECT count(*) FROM child").unwrap();
        assert_eq!(left["rows"][0][0]["value"], "1", "repeated: {is_repeated}");
        client.execute("ROLLBACK").unwrap();
    }
    assert_eq!(done(&served), [1, 0]);
}

#[test]
fn what_reads_spends_no_key() {
    let served = with_tables();
    let with = "WITH one(n) AS (VALUES (1)) SELECT n FROM one";
    let read = ["BEGIN READONLY", "SELECT 1", "COMMIT", with, "PRAGMA table_info(row)"];
    let steps: Vec<Value> = read.iter().chain(&[COUNT]).map(|sql| execute(sql)).collect();
    let first = keyed(&served, "k", &pipeline(None, &steps));
    let again = keyed(&served, "k", &pipeline(None, &steps));
    assert!(first.results().as_array().unwrap().iter().all(|it| it["type"] == "ok"), "{first:?}");
    assert_eq!(first.results(), again.results());
    assert_eq!(done(&served), [1, 0]);
}

#[test]
fn keys_have_limits() {
    let served = with_tables();
    let count = pipeline(None, &[execute(COUNT)]);
    let invalid = (400, "IDEMPOTENCY_KEY_INVALID".to_owned());
    assert_eq!(keyed(&served, "", &count).code(), invalid);
    assert_eq!(keyed(&served, &"k".repeat(1_025), &count).code(), invalid);
    assert_eq!(keyed(&served, &"k".repeat(1_024), &count).status, 200);
    // One that is ignored would protect nothing.
    let body = json!({ "batch": { "steps": [] } }).to_string().into_bytes();
    for path in ["/v3/cursor", "/v1/batch"] {
        let refused = answer(&served, &asked(path, &[("Idempotency-Key", "c")], &body));
        assert_eq!(refused.code(), invalid, "{path}");
    }
    // An answer that is too large is not kept: what was done is said.
    let large = execute("INSERT INTO row(x) VALUES (zeroblob(60000)) RETURNING x");
    let large = pipeline(None, &[large]);
    assert_eq!(keyed(&served, "l", &large).results()[0]["type"], "ok");
    assert_eq!(keyed(&served, "l", &large).code(), (409, "COMMITTED_BEFORE".into()));
    assert_eq!(done(&served), [1, 1]);
}

#[test]
fn repetition_is_not_answered_before_the_first_is_archived() {
    let archive = tempfile::tempdir().unwrap();
    let primary = primary_with(archive.path(), |it| it.archived_writes = true);
    let body = pipeline(None, &[execute("INSERT INTO t VALUES (7)"), close()]);
    assert!(!keyed(&primary, "before", &body).is_repeated);
    assert!(keyed(&primary, "before", &body).is_repeated);
    // Another process takes over: what comes from here on is in no archive.
    let next = Archive::at(archive.path().to_str().unwrap()).unwrap();
    let follower = next.follow(Options::new(), archive.path().join("next.db")).unwrap();
    let claimed = follower.claim(Takeover::Now, &|| true).unwrap().unwrap();
    let refused = |answer: Answer| {
        assert!(!answer.is_repeated, "{answer:?}");
        let body = answer.json();
        let error = if answer.status == 200 { &body["results"][0]["error"] } else { &body };
        error["code"].as_str().unwrap().to_owned()
    };
    let first = refused(keyed(&primary, "k", &body));
    assert!(["SQLITE_IOERR", "NOT_PRIMARY"].contains(&&*first), "{first}");
    assert_eq!(refused(keyed(&primary, "k", &body)), "NOT_PRIMARY");
    follower.promote(claimed).unwrap();
}
