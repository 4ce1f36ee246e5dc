//! Tokens: every endpoint, with each kind of token.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::{SinkExt as _, StreamExt as _};
use libsql_hrana::proto as theirs;
use monolite_server::{AuthConfig, Right, issue_token};
use prost::Message as _;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::{self, client::IntoClientRequest as _};

use crate::hrana::others::{
    BatchStep, ClientMsg, CursorReq, Execute, Hello, Id, PipelineReq, RequestMsg, SocketExecute,
    Steps, StreamReq,
};
use crate::served::Served;

/// Where the table of the guide begins and ends.
const GUIDE: &str = include_str!("../../../../docs/guides/server-security.md");
const TABLE: [&str; 2] = ["<!-- the table of tests/it/auth.rs -->\n", "<!-- end -->"];

const CREATE: &str = "CREATE TABLE IF NOT EXISTS t(x)";

/// One who signs JWTs.
struct Signer(Ed25519KeyPair);

impl Signer {
    fn new() -> Signer {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Signer(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
    }

    /// The public key, as a file has it.
    fn public(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.public_key())
    }

    fn sign(&self, claims: &Value) -> String {
        self.sign_as("EdDSA", claims)
    }

    /// With a header that names another algorithm than that of the signature.
    fn sign_as(&self, algorithm: &str, claims: &Value) -> String {
        let signed = unsigned(algorithm, claims);
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(self.0.sign(signed.as_bytes())))
    }
}

fn unsigned(algorithm: &str, claims: &Value) -> String {
    let part = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    format!("{}.{}", part(&json!({ "alg": algorithm })), part(claims))
}

/// A heading, and the tokens below it.
type Column = (&'static str, Vec<Option<String>>);

/// A server with the databases `shop` and `log`, and tokens by the columns of the table.
fn guarded() -> (Served, Vec<Column>) {
    let (signer, stranger) = (Signer::new(), Signer::new());
    let mut issued = Vec::new();
    let served = Served::with(|directory, config| {
        for name in ["shop", "log"] {
            std::fs::write(directory.join(format!("{name}.db")), "").unwrap();
        }
        let mut auth = AuthConfig::default();
        let (tokens, keys) = (directory.join("tokens.toml"), directory.join("keys"));
        for (name, right, database, lasts) in [
            ("late", Right::ReadWrite, "shop", Some(Duration::ZERO)),
            ("other", Right::ReadWrite, "log", None),
            ("reader", Right::ReadOnly, "shop", None),
            ("writer", Right::ReadWrite, "shop", None),
        ] {
            let database = Some(vec![database.to_owned()]);
            issued.push(issue_token(&tokens, name, right, database, lasts).unwrap());
        }
        std::fs::write(&keys, signer.public()).unwrap();
        (auth.token_file, auth.jwt_key_file) = (Some(tokens), Some(keys));
        (config.directory, config.auth) = (Some(directory), Some(auth));
    });
    let [late, other, reader, writer] = <[String; 4]>::try_from(issued).unwrap();
    let all = json!({ "a": "rw" });
    let secret = hmac::Key::new(hmac::HMAC_SHA256, signer.public().as_bytes());
    let by_hmac = unsigned("HS256", &all);
    let mac = URL_SAFE_NO_PAD.encode(hmac::sign(&secret, by_hmac.as_bytes()));
    let signature = signer.sign(&all).rsplit_once('.').unwrap().1.to_owned();
    let some = |tokens: Vec<String>| tokens.into_iter().map(Some).collect();
    let columns = vec![
        ("no token", vec![None]),
        (
            "bad token",
            some(vec![
                "mono_wrong".into(),
                "a.b.c".into(),
                stranger.sign(&all),
                format!("{}.{signature}", unsigned("EdDSA", &json!({ "a": "rw", "id": "shop" }))),
            ]),
        ),
        ("expired", some(vec![late, signer.sign(&json!({ "a": "rw", "exp": 1_000_000 }))])),
        (
            "other algorithm",
            some(vec![
                format!("{by_hmac}.{mac}"),
                format!("{}.", unsigned("none", &all)),
                signer.sign_as("RS256", &all),
            ]),
        ),
        (
            "other database",
            some(vec![
                other,
                signer.sign(&json!({ "a": "rw", "id": "log" })),
                signer.sign(&json!({ "p": { "rw": { "ns": ["log"] } } })),
            ]),
        ),
        (
            "may only read",
            some(vec![
                reader,
                signer.sign(&json!({ "a": "ro" })),
                signer.sign(&json!({ "p": { "ro": { "ns": ["shop"] }, "rw": { "ns": ["log"] } } })),
                signer.sign(&json!({ "sub": "no right" })),
            ]),
        ),
        ("may write", some(vec![writer, signer.sign(&all)])),
    ];
    (served, columns)
}

/// The code of an error in an answer, in whatever encoding.
fn code(answer: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(answer);
    let words = text.split(|sign: char| sign != '_' && !sign.is_ascii_uppercase());
    let mut codes = words.filter(|word| word.starts_with("AUTH_") || word.starts_with("SQLITE_"));
    codes.next().map(str::to_owned)
}

fn cell(status: impl std::fmt::Display, answer: &[u8], token: Option<&str>) -> String {
    let says = |token: &str| String::from_utf8_lossy(answer).contains(token);
    assert!(!token.is_some_and(says), "the token is in the answer");
    code(answer).map_or(format!("{status}"), |code| format!("{status} `{code}`"))
}

/// The status and the code of the answer to a request over HTTP.
fn ask(method: &str, url: &str, token: Option<&str>, body: Vec<u8>) -> String {
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let mut request = ureq::http::Request::builder().method(method).uri(url);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let mut answer = agent.run(request.body(body).unwrap()).unwrap();
    let said = answer.body_mut().read_to_vec().unwrap();
    // Figures name codes.
    let said = if method == "GET" && answer.status() == 200 { &[] } else { &*said };
    cell(answer.status().as_u16(), said, token)
}

/// What a WebSocket answers: to hello, or to a write behind it.
async fn ask_socket(served: &Served, protocol: &str, token: Option<&str>) -> String {
    let url = format!("{}/db/shop/", served.url.replace("http://", "ws://"));
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", protocol.parse().unwrap());
    let (mut socket, _) = connect_async(request).await.unwrap();
    let jwt = token.map(str::to_owned);
    let messages = if protocol == "hrana3-protobuf" {
        let stmt = Some(theirs::Stmt::new(CREATE, true));
        let hello = ClientMsg { hello: Some(Hello { jwt }), request: None };
        let requests = [
            RequestMsg { open_stream: Some(Id { id: 1 }), ..RequestMsg::default() },
            RequestMsg {
                execute: Some(SocketExecute { stream_id: 1, stmt }),
                ..RequestMsg::default()
            },
        ];
        let requests = requests.map(|it| ClientMsg { hello: None, request: Some(it) });
        let messages = [hello].into_iter().chain(requests);
        messages.map(|it| tungstenite::Message::binary(it.encode_to_vec())).collect()
    } else {
        let open = json!({ "type": "open_stream", "stream_id": 1 });
        let execute = json!({ "type": "execute", "stream_id": 1, "stmt": { "sql": CREATE } });
        let requests =
            [open, execute].map(|it| json!({ "type": "request", "request_id": 1, "request": it }));
        let messages = [json!({ "type": "hello", "jwt": jwt })].into_iter().chain(requests);
        messages.map(|it| tungstenite::Message::text(it.to_string())).collect::<Vec<_>>()
    };
    for message in messages {
        // The server may have closed it.
        let _ = socket.send(message).await;
    }
    let mut said = Vec::new();
    let (mut answers, mut status) = (0, "open".to_owned());
    while answers < 3 {
        match socket.next().await.unwrap().unwrap() {
            tungstenite::Message::Close(frame) => {
                status = format!("closed {}", u16::from(frame.unwrap().code));
                break;
            }
            message if message.is_text() || message.is_binary() => {
                said.extend_from_slice(&message.into_data());
                answers += 1;
            }
            _ => {}
        }
    }
    cell(status, &said, token)
}

type Ask<'s> = Box<dyn Fn(Option<&str>) -> String + 's>;

/// An endpoint.
struct Door<'s> {
    /// Where it is, unless at the clients' address.
    place: &'static str,
    name: &'static str,
    /// What it answers to a token.
    ask: Ask<'s>,
}

impl<'s> Door<'s> {
    fn new(name: &'static str, ask: impl Fn(Option<&str>) -> String + 's) -> Door<'s> {
        Door { place: "", name, ask: Box::new(ask) }
    }

    fn has_a_write(&self) -> bool {
        self.place != "`admin`: " && !self.name.starts_with("GET")
    }
}

/// All endpoints, each with a write where it has one.
fn doors(served: &Served) -> Vec<Door<'_>> {
    let stmt = json!({ "sql": CREATE });
    let batch = json!({ "steps": [{ "stmt": stmt }] });
    let cursor = json!({ "batch": batch });
    let pipeline = json!({ "requests": [{ "type": "execute", "stmt": stmt }] });
    let of_json = |body: &Value| body.to_string().into_bytes();
    let stmt_message = || Some(theirs::Stmt::new(CREATE, true));
    let execute = Some(Execute { stmt: stmt_message() });
    let requests = vec![StreamReq { execute, ..StreamReq::default() }];
    let pipeline_message = PipelineReq { baton: None, requests };
    let steps = vec![BatchStep { condition: None, stmt: stmt_message() }];
    let cursor_message = CursorReq { baton: None, batch: Some(Steps { steps }) };
    let mut doors: Vec<Door<'_>> = Vec::new();
    for (name, body) in [
        ("POST /v1/execute", of_json(&json!({ "stmt": stmt }))),
        ("POST /v1/batch", of_json(&json!({ "batch": batch }))),
        ("POST /v2/pipeline", of_json(&pipeline)),
        ("POST /v3/pipeline", of_json(&pipeline)),
        ("POST /v3-protobuf/pipeline", pipeline_message.encode_to_vec()),
        ("POST /v3/cursor", of_json(&cursor)),
        ("POST /v3-protobuf/cursor", cursor_message.encode_to_vec()),
    ] {
        let url = name.replace("POST ", &format!("{}/db/shop", served.url));
        doors.push(Door::new(name, move |token| ask("POST", &url, token, body.clone())));
    }
    for protocol in ["hrana1", "hrana2", "hrana3", "hrana3-protobuf"] {
        let ask = move |token: Option<&str>| {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(ask_socket(served, protocol, token))
        };
        doors.push(Door { place: "WebSocket: ", ..Door::new(protocol, ask) });
    }
    for name in [
        "GET /v1",
        "GET /v2",
        "GET /v3",
        "GET /v3-protobuf",
        "GET /health",
        "GET /primary",
        "GET /version",
    ] {
        let url = name.replace("GET ", &served.url);
        doors.push(Door::new(name, move |token| ask("GET", &url, token, Vec::new())));
    }
    for name in [
        "GET /",
        "GET /now",
        "GET /metrics",
        "GET /v1/namespaces",
        "POST /v1/namespaces/new/create",
        "DELETE /v1/namespaces/new",
    ] {
        let (method, path) = name.split_once(' ').unwrap();
        let url = format!("{}{path}", served.admin);
        let ask = move |token: Option<&str>| ask(method, &url, token, Vec::new());
        doors.push(Door { place: "`admin`: ", ..Door::new(name, ask) });
    }
    doors
}

/// The table: a line for all endpoints that answer alike.
fn table(columns: &[Column], doors: &[Door<'_>], rows: &[Vec<String>]) -> String {
    let mut table = String::from("| endpoint |");
    columns.iter().for_each(|(column, _)| table += &format!(" {column} |"));
    table += &format!("\n{}|\n", "|---".repeat(columns.len() + 1));
    let keys: Vec<_> = doors.iter().map(|door| door.place).zip(rows).collect();
    for (at, key) in keys.iter().enumerate() {
        if keys[..at].contains(key) {
            continue;
        }
        let alike = keys.iter().zip(doors).filter(|(other, _)| *other == key);
        let names: Vec<String> = alike.map(|(_, door)| format!("`{}`", door.name)).collect();
        let (place, row) = key;
        table += &format!("| {place}{} | {} |\n", names.join(", "), row.join(" | "));
    }
    table
}

#[test]
fn every_endpoint_answers_each_token_as_the_guide_says() {
    let (served, columns) = guarded();
    let doors = doors(&served);
    let mut rows: Vec<Vec<String>> = vec![Vec::new(); doors.len()];
    let writer = columns.last().unwrap().1[0].clone();
    let run = |sql: &str| {
        let stmt = json!({ "stmt": { "sql": sql } });
        let (status, answer) = served.post_as(writer.as_deref(), "/db/shop/v1/execute", &stmt);
        assert_eq!(status, 200, "{answer}");
        answer["result"]["rows"][0][0]["value"].clone()
    };
    for (column, tokens) in &columns {
        let mut answers: Vec<Vec<String>> = vec![Vec::new(); doors.len()];
        for token in tokens {
            for (door, answers) in doors.iter().zip(&mut answers) {
                answers.push((door.ask)(token.as_deref()));
                if *column == "may write" && door.has_a_write() {
                    assert_eq!(run("SELECT count(*) FROM t"), "0", "{} has made it", door.name);
                    run("DROP TABLE t");
                }
            }
            assert_eq!(run("SELECT count(*) FROM sqlite_schema"), "0", "{column}: {token:?}");
        }
        for ((mut answers, row), door) in answers.into_iter().zip(&mut rows).zip(&doors) {
            answers.dedup();
            assert_eq!(answers.len(), 1, "{} with {column}: {answers:?}", door.name);
            row.extend(answers);
        }
    }
    let (before, rest) = GUIDE.split_once(TABLE[0]).unwrap();
    let (_, after) = rest.split_once(TABLE[1]).unwrap();
    let table = table(&columns, &doors, &rows);
    let guide = format!("{before}{}{table}{}{after}", TABLE[0], TABLE[1]);
    if std::env::var_os("MONOLITE_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/server-security.md");
        std::fs::write(path, &guide).unwrap();
        return;
    }
    assert_eq!(guide, GUIDE, "run this test with MONOLITE_BLESS=1");
}

#[test]
fn a_transaction_is_its_tokens_own() {
    let (served, columns) = guarded();
    let [.., (_, readers), (_, writers)] = &columns[..] else { unreachable!() };
    let (reader, writer) = (readers[0].as_deref(), writers[0].as_deref());
    let stmt = json!({ "stmt": { "sql": CREATE } });
    assert_eq!(served.post_as(writer, "/db/shop/v1/execute", &stmt).0, 200);
    let begin = json!({ "requests": [
        { "type": "execute", "stmt": { "sql": "BEGIN" } },
        { "type": "execute", "stmt": { "sql": "INSERT INTO t VALUES (1)" } },
    ] });
    let (_, answer) = served.post_as(writer, "/db/shop/v2/pipeline", &begin);
    let next = json!({ "baton": answer["baton"], "requests": [] });
    let (status, error) = served.post_as(reader, "/db/shop/v2/pipeline", &next);
    assert_eq!((status, &error["code"]), (404, &json!("STREAM_EXPIRED")));
    assert_eq!(served.post_as(writer, "/db/shop/v2/pipeline", &next).0, 200);
}

#[test]
fn a_refused_write_says_where_the_right_comes_from() {
    let (served, columns) = guarded();
    let [.., (_, readers), _] = &columns[..] else { unreachable!() };
    let sql = |sql: &str| json!({ "stmt": { "sql": sql } });
    let (create, begin) = (sql(CREATE), sql("BEGIN"));
    let execute = |it: &Value| json!({ "type": "execute", "stmt": it["stmt"] });
    let [two, in_transaction] =
        [[&create, &create], [&begin, &create]].map(|steps| json!({ "steps": steps }));
    let requests = [
        ("/v1/execute", create.clone()),
        ("/v1/batch", json!({ "batch": two })),
        ("/v2/pipeline", json!({ "requests": [execute(&begin), execute(&create)] })),
        ("/v2/pipeline", json!({ "requests": [{ "type": "sequence", "sql": CREATE }] })),
        ("/v3/cursor", json!({ "batch": in_transaction })),
    ];
    for (path, body) in requests {
        for (token, remedy) in [
            (&readers[0], "the token gives the right to read only"),
            (&readers[3], "token_default"),
        ] {
            let url = format!("{}/db/shop{path}", served.url);
            let mut answer = ureq::post(url)
                .config()
                .http_status_as_error(false)
                .build()
                .header("authorization", format!("Bearer {}", token.as_deref().unwrap()))
                .send_json(&body)
                .unwrap();
            let said = answer.body_mut().read_to_string().unwrap();
            assert!(said.contains("SQLITE_READONLY") && said.contains(remedy), "{path} {said}");
        }
    }
}

/// The system resets a connection that is closed with unread bytes.
#[test]
fn a_client_that_sends_on_sees_why_it_is_refused() {
    let (served, _) = guarded();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let said = runtime.block_on(async {
        let url = served.url.replace("http://", "ws://");
        let (mut socket, _) = connect_async(url).await.unwrap();
        let hello = json!({ "type": "hello", "jwt": "wrong" }).to_string();
        socket.feed(tungstenite::Message::text(hello)).await.unwrap();
        for _ in 0..64 {
            socket.feed(tungstenite::Message::text(" ".repeat(16 << 10))).await.unwrap();
        }
        socket.flush().await.unwrap();
        let mut said = Vec::new();
        while !said.last().is_some_and(tungstenite::Message::is_close) {
            said.push(socket.next().await.unwrap().unwrap());
        }
        said
    });
    let is_why = |message: &tungstenite::Message| {
        message.to_text().is_ok_and(|text| text.contains("AUTH_JWT_INVALID"))
    };
    assert!(said.iter().any(is_why), "{said:?}");
}

#[test]
fn uses_of_each_token_are_counted() {
    let (served, columns) = guarded();
    let [.., (_, expired), _, _, (_, readers), (_, writers)] = &columns[..] else { unreachable!() };
    let uses = || {
        let text = ureq::get(format!("{}/metrics", served.admin)).call().unwrap();
        let text = text.into_body().read_to_string().unwrap();
        let of = |kind: &str, token: &str| {
            let labels = format!("{{kind=\"{kind}\",token=\"{token}\"}} ");
            let line = format!("monolite_server_token_uses_total{labels}");
            let line = text.lines().find_map(|it| it.strip_prefix(&line).map(str::to_owned));
            line.map_or(0, |count| count.parse().unwrap())
        };
        [
            of("issued", "writer"),
            of("issued", "reader"),
            of("issued", "late"),
            of("signed", "key 1"),
        ]
    };
    assert_eq!(uses(), [0, 0, 0, 0]);
    let read = json!({ "stmt": { "sql": "SELECT 1" } });
    // One that has `sub` counts for its key: who signs may name as many as there are users.
    for token in [&writers[0], &writers[0], &readers[0], &expired[0], &writers[1], &readers[3]] {
        served.post_as(token.as_deref(), "/db/shop/v1/execute", &read);
    }
    assert_eq!(uses(), [2, 1, 0, 2]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(ask_socket(&served, "hrana2", readers[0].as_deref()));
    assert!(uses()[1] > 1, "a hello");
}

#[test]
fn what_clients_probe_needs_no_token() {
    let served = Served::with(|directory, config| {
        let file = directory.join("tokens.toml");
        issue_token(&file, "one", Right::ReadOnly, None, None).unwrap();
        let mut auth = AuthConfig::default();
        auth.token_file = Some(file);
        (config.file, config.auth) = (Some(directory.join("a.db")), Some(auth));
    });
    for path in ["/v2", "/v3", "/v3-protobuf", "/health", "/version"] {
        let mut answer = ureq::get(format!("{}{path}", served.url)).call().unwrap();
        assert_eq!(answer.headers()["content-type"], "text/plain", "{path}");
        assert!(!answer.body_mut().read_to_string().unwrap().is_empty());
    }
    let (status, _) = served.post("/v2/pipeline", &Value::Null);
    assert_eq!(status, 401, "nothing of a body is read before");
}

#[test]
fn a_web_page_cannot_use_a_server_without_tokens() {
    let served = Served::one();
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let body = json!({ "stmt": { "sql": "CREATE TABLE t(x)" } }).to_string();
    let post = || agent.post(format!("{}/v1/execute", served.url)).content_type("text/plain");
    assert_eq!(post().header("origin", &served.url).send(&body).unwrap().status(), 403);
    assert_eq!(served.stream().value("SELECT count(*) FROM sqlite_schema"), "0");
    let upgrade = agent
        .get(&served.url)
        .header("upgrade", "websocket")
        .header("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==")
        .header("origin", "http://localhost");
    assert_eq!(upgrade.call().unwrap().status(), 403);
    assert_eq!(post().send(&body).unwrap().status(), 200);
}
