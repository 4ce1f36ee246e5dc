//! The end of a server: what is under way ends in order, and nothing begins.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::served::Served;
use crate::websocket::{Client, execute, run};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// One with a table.
fn begun() -> Served {
    let served = Served::one();
    served.stream().execute("CREATE TABLE t(x)").unwrap();
    served
}

/// Begins the end of `served`, and waits until it can be seen.
fn stop(served: &mut Served) {
    served.begin_stop();
    let end = Instant::now() + PATIENCE;
    while served.health() != 503 {
        assert!(Instant::now() < end, "it serves on");
    }
}

/// The rows that the next server finds.
fn rows(served: Served) -> Value {
    let directory = served.end();
    let next = Served::with(|_, config| config.file = Some(directory.path().join("one.db")));
    next.stream().value("SELECT count(*) FROM t")
}

#[test]
fn an_open_transaction_may_commit_and_no_other_begins() {
    let mut served = begun();
    let mut client = served.stream();
    client.execute("BEGIN").unwrap();
    client.execute("INSERT INTO t VALUES (1)").unwrap();
    let baton = client.baton.clone();
    stop(&mut served);
    let insert = json!([{ "type": "execute", "stmt": { "sql": "INSERT INTO t VALUES (2)" } }]);
    for (path, body) in [
        ("/v2/pipeline", json!({ "requests": insert })),
        ("/v1/execute", json!({ "stmt": { "sql": "INSERT INTO t VALUES (2)" } })),
    ] {
        let (status, answer) = served.post(path, &body);
        assert_eq!((status, &answer["code"]), (503, &json!("DRAINING")), "{path}");
    }
    let commit = json!([{ "type": "execute", "stmt": { "sql": "COMMIT" } }]);
    let (status, answer) =
        served.post("/v2/pipeline", &json!({ "baton": baton, "requests": commit }));
    assert_eq!((status, &answer["results"][0]["type"]), (200, &json!("ok")), "{answer}");
    let began = Instant::now();
    assert_eq!(rows(served), "1");
    assert!(began.elapsed() < Duration::from_secs(3), "nothing is left to wait for");
}

#[test]
fn a_websocket_goes_away_when_it_has_no_transaction() {
    let mut served = begun();
    run(async {
        let mut clients = Vec::new();
        for _ in 0..2 {
            let (mut client, _) = Client::connect(&served, "hrana3").await;
            client.send(json!({ "type": "hello" })).await;
            client.receive().await;
            client.answer(1, json!({ "type": "open_stream", "stream_id": 1 })).await;
            clients.push(client);
        }
        let [mut busy, mut idle] = <[Client; 2]>::try_from(clients).ok().unwrap();
        busy.answer(2, execute(1, "BEGIN")).await;
        busy.answer(3, execute(1, "INSERT INTO t VALUES (1)")).await;
        busy.answer(4, json!({ "type": "open_stream", "stream_id": 2 })).await;
        tokio::task::block_in_place(|| stop(&mut served));
        assert_eq!(idle.receive().await, 1001);
        let refused = busy.answer(5, execute(2, "INSERT INTO t VALUES (2)")).await;
        assert_eq!(refused["error"]["code"], "DRAINING");
        let refused = busy.answer(6, json!({ "type": "open_stream", "stream_id": 3 })).await;
        assert_eq!(refused["error"]["code"], "DRAINING");
        let committed = busy.answer(7, execute(1, "COMMIT")).await;
        assert_eq!(committed["type"], "response_ok");
        assert_eq!(busy.receive().await, 1001);
    });
    assert_eq!(rows(served), "1");
}

#[test]
fn what_takes_too_long_is_broken_off() {
    let mut served = begun();
    let mut client = served.stream();
    client.execute("BEGIN").unwrap();
    client.execute("INSERT INTO t VALUES (1)").unwrap();
    let body = json!({ "requests": [{ "type": "execute", "stmt": { "sql": "WITH RECURSIVE n(x) AS \
        (VALUES (1) UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n" } }] });
    let url = served.url.clone();
    let endless = std::thread::spawn(move || Served::post_to(&url, None, "/v2/pipeline", &body));
    let end = Instant::now() + PATIENCE;
    while !ureq::get(format!("{}/now", served.admin))
        .call()
        .and_then(|mut it| it.body_mut().read_to_string())
        .is_ok_and(|now| now.contains("RECURSIVE"))
    {
        assert!(Instant::now() < end, "it does not run");
    }
    stop(&mut served);
    let began = Instant::now();
    let (status, answer): (u16, Value) = endless.join().unwrap();
    assert_eq!((status, &answer["code"]), (500, &json!("BROKEN_OFF")), "{answer}");
    assert_eq!(rows(served), "0", "the transaction was not committed");
    let took = began.elapsed();
    assert!((3..9).contains(&took.as_secs()), "{took:?}");
}

/// The end of a server whose clients read nothing.
fn ends_unread(served: Served) {
    let began = Instant::now();
    assert_eq!(rows(served), "0");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn answers_that_others_do_not_read_hold_no_end_up() {
    // They take all memory for answers, and some wait for it.
    const CLIENTS: usize = 32;
    let served = begun();
    let select = json!({ "sql": "SELECT hex(zeroblob(4700000))" });
    let close = json!({ "type": "close" });
    let body = json!({ "requests": [{ "type": "execute", "stmt": select }, close] }).to_string();
    let head = format!("POST /v2/pipeline HTTP/1.1\r\nHost: x\r\nContent-Length: {}", body.len());
    let asked = || {
        let address = served.url.trim_start_matches("http://");
        let mut socket = std::net::TcpStream::connect(address).unwrap();
        socket.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
        socket
    };
    let clients: Vec<_> = (0..CLIENTS).map(|_| asked()).collect();
    let end = Instant::now() + PATIENCE;
    let begins = |client: &std::net::TcpStream| {
        client.set_nonblocking(true).unwrap();
        client.peek(&mut [0]).is_ok()
    };
    while clients.iter().filter(|client| begins(client)).count() < CLIENTS * 3 / 4 {
        assert!(Instant::now() < end, "most are answered");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_secs(1));
    ends_unread(served);
}

#[test]
fn a_websocket_that_is_not_read_holds_no_end_up() {
    let served = begun();
    run(async {
        let (mut client, _) = Client::connect(&served, "hrana3").await;
        client.send(json!({ "type": "hello" })).await;
        client.receive().await;
        client.answer(1, json!({ "type": "open_stream", "stream_id": 1 })).await;
        for number in 0..2_000 {
            let request = execute(1, "SELECT hex(zeroblob(30000))");
            let message = json!({ "type": "request", "request_id": number, "request": request });
            client.send(message).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        tokio::task::block_in_place(|| ends_unread(served));
    });
}

#[test]
fn a_connection_of_http_2_is_relayed_and_ended() {
    let begin = |file: PathBuf, socket: PathBuf| {
        Served::with(|_, config| {
            let any = "127.0.0.1:0".parse().unwrap();
            (config.listen, config.admin) = (any, Some(any));
            (config.file, config.handover) = (Some(file), Some(socket));
        })
    };
    let directory = tempfile::tempdir().unwrap();
    let [file, socket] = ["one.db", "next.sock"].map(|name| directory.path().join(name));
    let old = begin(file.clone(), socket.clone());
    old.stream().execute("CREATE TABLE t(x)").unwrap();
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    run(async {
        let tcp = TcpStream::connect(old.url.trim_start_matches("http://")).await.unwrap();
        let connection = http2::handshake(TokioExecutor::new(), TokioIo::new(tcp)).await;
        let (mut send, connection) = connection.unwrap();
        tokio::spawn(connection);
        let mut ask = |baton: Option<&str>, all: &[&str]| {
            let request = |sql: &&str| json!({ "type": "execute", "stmt": { "sql": sql } });
            let requests: Vec<Value> = all.iter().map(request).collect();
            let body = Bytes::from(json!({ "baton": baton, "requests": requests }).to_string());
            let request = Request::post(format!("{}/v2/pipeline", old.url));
            let answer = send.send_request(request.body(Full::new(body)).unwrap());
            async {
                let body = answer.await.unwrap().into_body().collect().await.unwrap().to_bytes();
                serde_json::from_slice::<Value>(&body).unwrap()
            }
        };
        let begun = ask(None, &["BEGIN", "INSERT INTO t VALUES (1)"]).await;
        let new = tokio::task::spawn_blocking(move || begin(file, socket));
        let mut waits = loop {
            let mut answer = Box::pin(ask(None, &["SELECT count(*) FROM t"]));
            if timeout(Duration::from_millis(500), answer.as_mut()).await.is_err() {
                break answer;
            }
        };
        // A WebSocket that comes now waits for the new process.
        let mut comes = Box::pin(Client::connect(&old, "hrana3"));
        assert!(timeout(Duration::from_millis(100), comes.as_mut()).await.is_err());
        let committed = ask(begun["baton"].as_str(), &["COMMIT"]).await;
        assert_eq!(committed["results"][0]["type"], "ok", "{committed}");
        let answer = waits.as_mut().await;
        let result = &answer["results"][0]["response"]["result"];
        assert_eq!(result["rows"][0][0]["value"], "1", "{answer}");
        drop(waits);
        let new = new.await.unwrap();
        let (mut client, _) = comes.await;
        client.send(json!({ "type": "hello" })).await;
        assert_eq!(client.receive().await["type"], "hello_ok");
        timeout(PATIENCE, async {
            while !send.is_closed() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("the old process asks for another connection");
        let now = ureq::get(format!("{}/now", old.admin)).call();
        let now = now.unwrap().body_mut().read_to_string().unwrap();
        assert!(now.contains("\"default\""), "the old process has none open: {now}");
        assert_eq!((&new.url, &new.admin), (&old.url, &old.admin));
    });
}
