//! `monolite serve` beside other processes: it hands over to a new one, and has its socket of a
//! service manager. The clients here repeat nothing: a request without an answer of success is a
//! failure.

#![allow(clippy::print_stderr, reason = "a run tells its figures")]

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Clients of the load.
const CLIENTS: u64 = 12;

/// Hand-overs of one run, unless `HANDOVERS` says otherwise.
const HANDOVERS: usize = 4;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(40);

/// A process that serves.
struct Serving {
    child: Child,
    address: String,
}

fn start(directory: &Path, file: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_monolite"));
    command.args(["serve", file, "--listen", "127.0.0.1:0"]).current_dir(directory);
    command.env("MONOLITE_HANDOVER", "handover.sock").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

impl Serving {
    /// The first, or one that takes over; once it serves.
    fn new(directory: &TempDir) -> Serving {
        let mut child = start(directory.path(), "a.db");
        let mut line = String::new();
        let out = child.stdout.take().expect("it is read");
        BufReader::new(out).read_line(&mut line).expect("it says where it serves");
        let address = line.trim().strip_prefix("serving http://").expect("its first line");
        Serving { address: address.to_owned(), child }
    }

    /// Waits for its end by itself, or by SIGTERM. Gives what it has complained about.
    fn end(mut self, stops: bool) -> String {
        if stops {
            let id = self.child.id().to_string();
            assert!(Command::new("kill").args(["-TERM", &id]).status().expect("it runs").success());
        }
        let (has_succeeded, said) = end_of(&mut self.child);
        assert!(has_succeeded, "{said}");
        said
    }
}

/// Waits for the end of `child`: whether it succeeded, and what it has complained about.
fn end_of(child: &mut Child) -> (bool, String) {
    let end = Instant::now() + PATIENCE;
    while child.try_wait().expect("it is a child").is_none() {
        if Instant::now() > end {
            let _ = child.kill();
        }
        thread::sleep(Duration::from_millis(10));
    }
    let status = child.wait().expect("it has ended");
    let (mut said, mut error) = (String::new(), child.stderr.take().expect("it is read"));
    error.read_to_string(&mut said).expect("it is text");
    (status.success(), said)
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client of HTTP/1.1 that keeps its connection as long as the server does.
struct Client {
    address: String,
    socket: Option<BufReader<TcpStream>>,
    baton: Value,
}

impl Client {
    fn new(address: &str) -> Client {
        Client { address: address.to_owned(), socket: None, baton: Value::Null }
    }

    fn connect(&mut self) -> std::io::Result<()> {
        let socket = TcpStream::connect(&self.address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        self.socket = Some(BufReader::new(socket));
        Ok(())
    }

    /// The answer to a request, or why there is none.
    fn ask(&mut self, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
        if self.socket.is_none() {
            self.connect()?;
        }
        let mut socket = self.socket.take().expect("it is connected");
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}", body.len());
        socket.get_mut().write_all(format!("{head}\r\n\r\n{body}").as_bytes())?;
        let (mut status, mut length, mut closes) = (None, 0, false);
        loop {
            let mut line = String::new();
            socket.read_line(&mut line)?;
            let line = line.trim_end().to_ascii_lowercase();
            if status.is_none() {
                let code = line.split(' ').nth(1).and_then(|code| code.parse().ok());
                status = Some(code.ok_or(ErrorKind::UnexpectedEof)?);
            } else if let Some(bytes) = line.strip_prefix("content-length: ") {
                length = bytes.parse().map_err(std::io::Error::other)?;
            } else if line.is_empty() {
                break;
            } else {
                closes |= line == "connection: close";
            }
        }
        let mut bytes = vec![0; length];
        socket.read_exact(&mut bytes)?;
        self.socket = (!closes).then_some(socket);
        Ok((status.expect("it was read"), String::from_utf8(bytes).expect("it is text")))
    }

    /// Runs statements, and gives the result of the last. Panics when one fails.
    fn run(&mut self, statements: &[String]) -> Value {
        let stmt = |sql: &String| json!({ "type": "execute", "stmt": { "sql": sql } });
        let requests: Vec<Value> = statements.iter().map(stmt).collect();
        let body = json!({ "baton": self.baton, "requests": requests }).to_string();
        let (status, text) = self.ask("POST", "/v2/pipeline", &body).expect("an answer");
        assert_eq!(status, 200, "{text}");
        let mut answer: Value = serde_json::from_str(&text).expect("it is JSON");
        self.baton = answer["baton"].take();
        let results = answer["results"].as_array_mut().expect("a list");
        assert!(results.iter().all(|result| result["type"] == "ok"), "{text}");
        results.pop().expect("one each")["response"]["result"].take()
    }
}

fn sql(text: &str) -> [String; 1] {
    [text.to_owned()]
}

/// What the clients of a load share.
#[derive(Default)]
struct Load {
    stops: AtomicBool,
    requests: AtomicU64,
    /// Microseconds of the slowest request since the last look.
    slowest: AtomicU64,
}

impl Load {
    fn slowest(&self) -> f64 {
        self.slowest.swap(0, Ordering::Relaxed) as f64 / 1e3
    }

    /// Writes, and reads what it has written, one request after the other. Gives how many rows were
    /// acknowledged.
    fn run(&self, address: &str, client: u64) -> u64 {
        let mut connection = Client::new(address);
        let mut rows = 0;
        while !self.stops.load(Ordering::Relaxed) {
            let insert = |row| format!("INSERT INTO t VALUES ({client}, {row})");
            let count = format!("SELECT count(*) FROM t WHERE client = {client}");
            let (statements, more): (&[String], _) = match self.requests.load(Ordering::Relaxed) % 3
            {
                0 => (&[insert(rows)], 1),
                1 => (&[insert(rows), insert(rows + 1), count], 2),
                _ => (&[count], 0),
            };
            let began = Instant::now();
            let result = connection.run(statements);
            self.slowest.fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
            self.requests.fetch_add(1, Ordering::Relaxed);
            rows += more;
            if more != 1 {
                assert_eq!(result["rows"][0][0]["value"], rows.to_string(), "of {client}");
            }
        }
        rows
    }
}

/// Runs `during` under load, and looks whether each acknowledged row is there once.
fn under_load(during: impl FnOnce(&TempDir, Serving, &Load) -> Serving) {
    let directory = tempfile::tempdir().expect("a directory");
    let first = Serving::new(&directory);
    let mut client = Client::new(&first.address);
    client.run(&sql("CREATE TABLE t(client INT, n INT)"));
    client.run(&sql("CREATE INDEX t_client ON t(client)"));
    drop(client);
    let (load, address) = (Load::default(), first.address.clone());
    let (last, rows) = thread::scope(|scope| {
        let run = |client| {
            let (load, address) = (&load, &address);
            scope.spawn(move || load.run(address, client))
        };
        let clients: Vec<_> = (0..CLIENTS).map(run).collect();
        let last = during(&directory, first, &load);
        load.stops.store(true, Ordering::Relaxed);
        let rows = clients.into_iter().map(|it| it.join().expect("no request fails")).sum::<u64>();
        (last, rows)
    });
    let mut client = Client::new(&address);
    let found = client.run(&sql("SELECT count(*), count(DISTINCT client * 1000000 + n) FROM t"));
    let found = [0, 1].map(|at| found["rows"][0][at]["value"].as_str().expect("text").to_owned());
    assert_eq!(found, [rows.to_string(), rows.to_string()], "acknowledged and different");
    let requests = load.requests.into_inner();
    eprintln!("{requests} requests of {CLIENTS} clients, 0 failed, {rows} rows, each there once");
    last.end(true);
}

#[test]
fn a_new_process_takes_over_and_no_request_fails() {
    let handovers = std::env::var("HANDOVERS").ok().and_then(|it| it.parse().ok());
    under_load(|directory, mut serving, load| {
        let mut gaps = Vec::new();
        for _ in 0..handovers.unwrap_or(HANDOVERS) {
            thread::sleep(Duration::from_millis(200));
            let usual = load.slowest();
            let new = Serving::new(directory);
            assert_eq!(new.address, serving.address, "its socket was handed over");
            let old = std::mem::replace(&mut serving, new);
            assert_eq!(old.end(false), "", "it ends by itself");
            gaps.push((load.slowest(), usual));
        }
        for (gap, usual) in &gaps {
            eprintln!("slowest request: {gap:.0} ms in a hand-over, {usual:.0} ms before it");
        }
        serving
    });
}

#[test]
fn a_new_process_that_fails_leaves_the_old_one_serving() {
    under_load(|directory, serving, _| {
        std::fs::write(directory.path().join("no.db"), "no database ".repeat(1_000))
            .expect("a file");
        // It has the old one close its database, and cannot open its own.
        let (has_succeeded, said) = end_of(&mut start(directory.path(), "no.db"));
        assert!(!has_succeeded && said.contains("no.db"), "{said}");
        // Another fails before that.
        let mut wrong = Command::new(env!("CARGO_BIN_EXE_monolite"));
        wrong.args(["serve", "--dir", "missing"]).current_dir(directory.path());
        let wrong = wrong.env("MONOLITE_HANDOVER", "handover.sock").output().expect("it ends");
        assert!(!wrong.status.success());
        assert!(Client::new(&serving.address).ask("GET", "/health", "").is_ok());
        serving
    });
}

/// Asks a database for something until it has to wait: the old process does not serve any more.
fn wait_for_hand_over(address: &str) -> mpsc::Receiver<Value> {
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "the old process serves on");
        let (send, answered) = mpsc::channel();
        let mut client = Client::new(address);
        thread::spawn(move || send.send(client.run(&sql("SELECT count(*) FROM t"))));
        match answered.recv_timeout(Duration::from_millis(300)) {
            Ok(_) => thread::sleep(Duration::from_millis(10)),
            Err(_) => return answered,
        }
    }
}

#[test]
fn an_open_transaction_may_commit_before_the_hand_over() {
    let directory = tempfile::tempdir().expect("a directory");
    let old = Serving::new(&directory);
    let mut client = Client::new(&old.address);
    client.run(&sql("CREATE TABLE t(x)"));
    client.run(&["BEGIN".to_owned(), "INSERT INTO t VALUES (1)".to_owned()]);
    let mut idle = Client::new(&old.address);
    idle.run(&sql("SELECT 1"));

    // One that dies meanwhile changes nothing.
    let mut dies = start(directory.path(), "a.db");
    let waits = wait_for_hand_over(&old.address);
    dies.kill().expect("it runs");
    dies.wait().expect("it has ended");
    client.run(&sql("INSERT INTO t VALUES (2)"));
    client.run(&sql("COMMIT"));
    let count = waits.recv_timeout(PATIENCE).expect("the old process serves again");
    assert_eq!(count["rows"][0][0]["value"], "2");

    client.run(&["BEGIN".to_owned(), "INSERT INTO t VALUES (3)".to_owned()]);
    let new = start(directory.path(), "a.db");
    let waits = wait_for_hand_over(&old.address);
    client.run(&sql("COMMIT"));
    let count = waits.recv_timeout(PATIENCE).expect("the new process serves");
    assert_eq!(count["rows"][0][0]["value"], "3");
    let new = Serving { child: new, address: old.address.clone() };
    // The old process has this connection still.
    assert!(idle.socket.is_some());
    idle.run(&sql("INSERT INTO t VALUES (4)"));
    assert!(idle.socket.is_none(), "its last answer says so");
    client.run(&sql("SELECT 1"));
    drop((client, idle));
    let said = old.end(false);
    assert!(said.contains("no hand-over") && said.lines().count() == 1, "{said}");
    new.end(true);
}

/// The steps of the new process, up to `step`: 1 is the sockets, 2 `READY`, 3 `CLOSED`.
fn ask_up_to(directory: &TempDir, step: u8) -> UnixStream {
    let mut old = UnixStream::connect(directory.path().join("handover.sock")).expect("it listens");
    let mut byte = [0];
    if step >= 1 {
        old.read_exact(&mut byte).expect("the sockets");
    }
    if step >= 2 {
        old.write_all(&[2]).expect("it reads");
    }
    if step >= 3 {
        old.read_exact(&mut byte).expect("that the databases are closed");
        assert_eq!(byte, [3]);
    }
    old
}

#[test]
fn a_new_process_that_dies_at_any_step_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let serving = Serving::new(&directory);
    let mut client = Client::new(&serving.address);
    client.run(&sql("CREATE TABLE t(x)"));
    for step in 0..=3 {
        drop(ask_up_to(&directory, step));
        client.run(&sql("INSERT INTO t VALUES (1)"));
        let mut wrong = ask_up_to(&directory, step);
        let _ = wrong.write_all(&[9]);
        client.run(&sql("INSERT INTO t VALUES (1)"));
    }
    assert_eq!(client.run(&sql("SELECT count(*) FROM t"))["rows"][0][0]["value"], "8");
    // Its end in the middle is not the end of the new one, which has the files.
    let _new = ask_up_to(&directory, 3);
    let said = serving.end(true);
    assert_eq!(said.matches("no hand-over").count(), 8, "{said}");
}

/// One that has its socket of a service manager, which hears how it does.
#[test]
fn a_service_manager_listens_and_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = UnixDatagram::bind(directory.path().join("notify")).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("it may wait");
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("it has one").to_string();
    let activate = |listen: &str| {
        let socket = OwnedFd::from(socket.try_clone().expect("descriptors are left"));
        let mut command = Command::new("sh");
        // The manager's sockets begin at descriptor 3.
        command.args(["-c", "exec 3<&0 </dev/null \"$0\" \"$@\""]).stdin(socket);
        command.args([env!("CARGO_BIN_EXE_monolite"), "serve", "a.db", "--listen", listen]);
        command.env("LISTEN_FDS", "1").env("NOTIFY_SOCKET", directory.path().join("notify"));
        command.current_dir(directory.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it starts")
    };
    let heard = || {
        let mut bytes = [0; 64];
        let length = manager.recv(&mut bytes).expect("it says something");
        String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
    };
    // It would listen where the configuration was not checked for.
    let (has_succeeded, said) = end_of(&mut activate("127.0.0.2:0"));
    assert!(!has_succeeded && said.contains(&address), "{said}");

    // Before it runs, a connection waits.
    let mut early = Client::new(&address);
    early.connect().expect("the manager listens");
    let child = activate(&address);
    assert_eq!(heard(), "READY=1");
    assert_eq!(early.ask("GET", "/health", "").expect("an answer").0, 200);
    Serving { child, address }.end(true);
    assert_eq!(heard(), "STOPPING=1");
}
