//! Owns the hostile clients: each kind of them, in bytes.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use monolite_testkit::blocking::locked;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use super::Figures;

/// How a client hurts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It says nothing.
    Silent,
    /// It says a part of what HTTP/2 begins with, which could still become HTTP/1.
    Preface,
    /// It sends a head byte by byte.
    SlowHead,
    /// It sends a body byte by byte.
    SlowBody,
    /// It sends a body of 1 GiB.
    Gibibyte,
    /// It sends a message by WebSocket that has no end.
    Fragments,
    Pings,
    /// It takes back each request of HTTP/2 at once.
    RapidReset,
    /// It reads nothing of a long answer.
    Unread,
    /// It uses batons twice, and makes some up.
    Batons,
    /// It asks for conditions within conditions.
    Deep,
    /// It leaves a transaction over HTTP, which the server ends after a minute.
    Leaves,
    /// It stays in a transaction over WebSocket, which ends with the connection.
    Stays,
}

/// How many there are at once. The first four take as many descriptors as there may be. Readers are
/// four at least, and an unread answer has one for 5 s.
const KINDS: [(Kind, usize); 13] = [
    (Kind::Silent, 1_000),
    (Kind::Preface, 500),
    (Kind::SlowHead, 700),
    (Kind::SlowBody, 300),
    (Kind::Gibibyte, 2),
    (Kind::Fragments, 48),
    (Kind::Pings, 4),
    (Kind::RapidReset, 4),
    (Kind::Unread, 2),
    (Kind::Batons, 2),
    (Kind::Deep, 2),
    (Kind::Leaves, 1),
    (Kind::Stays, 8),
];

/// The longest life of a transaction, and some.
const TRANSACTION: Duration = Duration::from_secs(62);

/// How much of a message without an end comes fast: just less than the server takes.
const FAST_BYTES: usize = 15 << 20;

/// What they have seen.
#[derive(Default)]
struct Seen {
    came: [AtomicU64; KINDS.len()],
    held_ms: AtomicU64,
    wrong: Mutex<Option<String>>,
}

/// All of them. They leave when this is dropped.
pub(super) struct Hostile {
    runtime: Runtime,
    seen: Arc<Seen>,
}

impl Hostile {
    /// They come to the server at `address`, for this time.
    pub(super) fn begin(address: SocketAddr, time: Duration) -> Result<Hostile> {
        let limits = fs::read_to_string("/proc/self/limits")?;
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        let files: Option<usize> = files.and_then(|it| it.split_whitespace().next()?.parse().ok());
        let most = files.unwrap_or(1_024) / 2;
        let (runtime, seen) = (Runtime::new()?, Arc::new(Seen::default()));
        let end = Instant::now() + time;
        for (number, (kind, count)) in KINDS.into_iter().enumerate() {
            // Half of them, as a share of the 2,500 of the first four kinds.
            let count = if number < 4 { (count * most / 5_000).min(count) } else { count };
            for _ in 0..count {
                let seen = Arc::clone(&seen);
                runtime.spawn(async move {
                    loop {
                        sleep(Duration::from_millis(fastrand::u64(50..1_000))).await;
                        seen.came[number].fetch_add(1, Relaxed);
                        let _held = Held(Instant::now(), (number < 4).then_some(&*seen));
                        // What the server breaks off is what it should.
                        let _ = kind.attack(address, end, &seen).await;
                    }
                });
            }
        }
        Ok(Hostile { runtime, seen })
    }

    /// They leave, and tell.
    pub(super) fn leave(self, figures: &mut Figures) {
        let Hostile { runtime, seen } = self;
        runtime.shutdown_timeout(Duration::from_secs(5));
        let came = KINDS.iter().zip(&seen.came);
        let told = came.map(|((kind, _), came)| format!("{kind:?} {}", came.load(Relaxed)));
        figures.told = told.collect::<Vec<_>>().join(", ");
        figures.held_ms = seen.held_ms.load(Relaxed);
        figures.wrong = locked(&seen.wrong).take();
    }
}

/// Notes how long a connection lived, also if it is this side that ends it.
struct Held<'s>(Instant, Option<&'s Seen>);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(seen) = self.1 {
            seen.held_ms.fetch_max(self.0.elapsed().as_millis() as u64, Relaxed);
        }
    }
}

impl Kind {
    async fn attack(self, to: SocketAddr, end: Instant, seen: &Seen) -> io::Result<()> {
        match self {
            Kind::Silent => drip(to, "", false).await,
            Kind::Preface => drip(to, "PRI * HTTP/2", false).await,
            Kind::SlowHead => drip(to, "GET /health HTTP/1.1\r\nx-slow: ", true).await,
            Kind::SlowBody => drip(to, &head("/v3/pipeline", 1 << 10), true).await,
            Kind::Gibibyte => {
                let mut socket = TcpStream::connect(to).await?;
                socket.write_all(head("/v3/pipeline", 1 << 30).as_bytes()).await?;
                go_on(socket, || vec![b' '; 64 << 10], 5).await
            }
            Kind::Fragments => fragments(to).await,
            Kind::Pings => {
                let socket = web_socket(to).await?;
                go_on(socket, || frame(0x89, &[0; 125]).repeat(100), 20).await
            }
            Kind::RapidReset => rapid_reset(to).await,
            Kind::Unread => {
                let numbers = "WITH RECURSIVE c(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM c)";
                let sql = format!("SELECT n, hex(zeroblob(500)) FROM ({numbers} SELECT n FROM c)");
                let body = json!({ "batch": { "steps": [{ "stmt": { "sql": sql } }] } });
                let mut socket = TcpStream::connect(to).await?;
                socket.write_all(request("/v3/cursor", &body.to_string()).as_bytes()).await?;
                sleep(Duration::from_secs(20)).await;
                Ok(())
            }
            Kind::Batons => batons(to, seen).await,
            Kind::Deep => {
                let (open, close) =
                    (r#"{"type":"not","cond":"#.repeat(1 << 14), "}".repeat(1 << 14));
                let inner = r#"{"type":"ok","step":0}"#;
                let steps =
                    r#"{"stmt":{"sql":"SELECT 1"}},{"stmt":{"sql":"SELECT 1"},"condition":"#;
                let batch = format!(r#"{{"steps":[{steps}{open}{inner}{close}}}]}}"#);
                let body = format!(r#"{{"requests":[{{"type":"batch","batch":{batch}}}]}}"#);
                expect(seen, "conditions within conditions", ask(to, &body).await?.0 != 200);
                Ok(())
            }
            Kind::Leaves if end.saturating_duration_since(Instant::now()) < TRANSACTION => Ok(()),
            Kind::Leaves => {
                let requests = [execute("BEGIN"), execute(CHANGE)];
                ask(to, &json!({ "requests": requests }).to_string()).await.map(drop)
            }
            Kind::Stays => {
                let mut socket = web_socket(to).await?;
                let open = json!({ "type": "open_stream", "stream_id": 0 });
                for request in [open, execute("BEGIN"), execute(CHANGE)] {
                    let mut request = request;
                    request["stream_id"] = 0.into();
                    let message = json!({ "type": "request", "request_id": 0, "request": request });
                    socket.write_all(&frame(0x81, message.to_string().as_bytes())).await?;
                }
                timeout(Duration::from_secs(30), listen(&mut socket)).await?
            }
        }
    }
}

const CHANGE: &str = "INSERT INTO good(number) SELECT max(number) FROM good";

fn execute(sql: &str) -> Value {
    json!({ "type": "execute", "stmt": { "sql": sql } })
}

fn head(path: &str, bytes: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {bytes}\r\n\r\n")
}

fn request(path: &str, body: &str) -> String {
    head(path, body.len()).replace("host: x", "host: x\r\nconnection: close") + body
}

/// The status and body of the answer to a pipeline.
async fn ask(to: SocketAddr, body: &str) -> io::Result<(u16, Value)> {
    let mut socket = TcpStream::connect(to).await?;
    socket.write_all(request("/v3/pipeline", body).as_bytes()).await?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await?;
    let status = answer.get(9..12).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    Ok((status, serde_json::from_str(body).unwrap_or_default()))
}

fn expect(seen: &Seen, what: &str, is_so: bool) {
    if !is_so {
        locked(&seen.wrong).get_or_insert(format!("the server took {what} for good"));
    }
}

/// Says `first`, and then a byte a second or nothing, until the server ends it.
async fn drip(to: SocketAddr, first: &str, drips: bool) -> io::Result<()> {
    let mut socket = TcpStream::connect(to).await?;
    socket.write_all(first.as_bytes()).await?;
    let mut byte = [0];
    loop {
        if let Ok(read) = timeout(Duration::from_secs(1), socket.read(&mut byte)).await {
            return read.map(drop);
        }
        if drips {
            socket.write_all(b"x").await?;
        }
    }
}

/// Says what `more` gives each so many milliseconds, and reads what comes.
async fn go_on(
    mut socket: TcpStream,
    mut more: impl FnMut() -> Vec<u8>,
    each_ms: u64,
) -> io::Result<()> {
    let mut bytes = [0; 16 << 10];
    loop {
        socket.write_all(&more()).await?;
        match socket.try_read(&mut bytes) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => sleep(Duration::from_millis(each_ms)).await,
        }
    }
}

async fn listen(socket: &mut TcpStream) -> io::Result<()> {
    let mut bytes = [0; 4 << 10];
    while socket.read(&mut bytes).await? > 0 {}
    Ok(())
}

/// A connection by WebSocket that has said hello.
async fn web_socket(to: SocketAddr) -> io::Result<TcpStream> {
    let mut socket = TcpStream::connect(to).await?;
    let head = "GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                sec-websocket-protocol: hrana3\r\n\r\n";
    socket.write_all(head.as_bytes()).await?;
    let _answer = socket.read(&mut [0; 1 << 10]).await?;
    socket.write_all(&frame(0x81, br#"{"type":"hello","jwt":null}"#)).await?;
    Ok(socket)
}

/// A frame that is masked with zeros, which change nothing.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        short @ ..=125 => bytes.push(0x80 | short as u8),
        long => {
            bytes.push(0xff);
            bytes.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(payload);
    bytes
}

async fn fragments(to: SocketAddr) -> io::Result<()> {
    let mut socket = web_socket(to).await?;
    let (mut sent, large, small) = (0, frame(0, &[b' '; 64 << 10]), frame(0, b" "));
    socket.write_all(&frame(0x01, b" ")).await?;
    let mut bytes = [0; 4 << 10];
    loop {
        let (next, pause) = if sent < FAST_BYTES { (&large, 50) } else { (&small, 1_000) };
        socket.write_all(next).await?;
        sent += next.len();
        if let Ok(0) = socket.try_read(&mut bytes) {
            return Ok(());
        }
        sleep(Duration::from_millis(pause)).await;
    }
}

/// CVE-2023-44487.
async fn rapid_reset(to: SocketAddr) -> io::Result<()> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let mut socket = TcpStream::connect(to).await?;
    socket
        .write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &*frame(4, 0, 0, &[])].concat())
        .await?;
    let mut next = 1;
    // `GET http://x/`, of which the server has to answer nothing.
    let headers = [0x82, 0x86, 0x84, 0x41, 1, b'x'];
    let burst = || {
        let mut bytes = Vec::new();
        for _ in 0..100 {
            bytes.extend(frame(1, 5, next, &headers));
            bytes.extend(frame(3, 0, next, &8_u32.to_be_bytes()));
            next += 2;
        }
        bytes
    };
    go_on(socket, burst, 20).await
}

/// A baton is good once, and what no server has signed is none.
async fn batons(to: SocketAddr, seen: &Seen) -> io::Result<()> {
    let pipeline = |baton: &Value, request: Value| {
        json!({ "baton": baton, "requests": [request] }).to_string()
    };
    let store = json!({ "type": "store_sql", "sql_id": 1, "sql": "SELECT 1" });
    let (_, answer) = ask(to, &pipeline(&Value::Null, store)).await?;
    let first = answer["baton"].clone();
    let (status, answer) = ask(to, &pipeline(&first, execute("SELECT 1"))).await?;
    let second = answer["baton"].clone();
    if status != 200 {
        return Ok(());
    }
    let forged = second.as_str().unwrap_or_default();
    let forged = forged.chars().rev().collect::<String>();
    for (what, baton) in [("a baton of before", first), ("a forged baton", forged.into())] {
        let status = ask(to, &pipeline(&baton, execute("SELECT 1"))).await?.0;
        expect(seen, what, status != 200);
    }
    ask(to, &pipeline(&second, json!({ "type": "close" }))).await.map(drop)
}
