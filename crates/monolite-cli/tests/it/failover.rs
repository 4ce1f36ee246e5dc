//! `monolite serve --takeover`: two servers with one archive. The primary is killed and started
//! again, or stopped and goes on; it follows then. Clients go on at the other one.
//! `MONOLITE_TAKEOVERS` says how often.

#![allow(clippy::print_stderr, reason = "a run tells its figures")]

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long a client may be without an answer of success.
const STUCK: Duration = Duration::from_secs(10);

/// Longer than anything else here takes.
const PATIENCE: Duration = Duration::from_secs(60);

const WRITERS: u64 = 4;

fn takeovers() -> usize {
    std::env::var("MONOLITE_TAKEOVERS").ok().and_then(|it| it.parse().ok()).unwrap_or(3)
}

/// What a server says to its operator.
fn log(directory: &Path, name: usize) -> PathBuf {
    directory.join(format!("{name}.log"))
}

fn logs(directory: &Path) -> String {
    [0, 1].map(|name| std::fs::read_to_string(log(directory, name)).unwrap_or_default()).join("\n")
}

/// A server, and where it is now.
struct Node {
    child: Child,
}

impl Node {
    fn start(directory: &Path, name: usize, addresses: &Addresses) -> Node {
        let mut command = Command::new(env!("CARGO_BIN_EXE_monolite"));
        command.args(["serve", &format!("{name}.db"), "--takeover"]);
        command.args(["--lease", "3s", "--address", &format!("node {name}")]);
        command.args(["--listen", "127.0.0.1:0"]).env("MONOLITE_ARCHIVE__ARCHIVED_WRITES", "true");
        command.env("MONOLITE_ARCHIVE__URL", "archive");
        let exec = "echo $MONOLITE_ROLE $MONOLITE_EPOCH $MONOLITE_ADDRESS >> $MONOLITE_FILE.roles";
        command.env("MONOLITE_ARCHIVE__EXEC", exec).current_dir(directory).stdin(Stdio::null());
        let log = File::options().append(true).create(true).open(log(directory, name));
        let log = log.expect("it is made");
        let child = command.stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = child.expect("it starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("it is read");
        BufReader::new(out).read_line(&mut line).expect("it says where it serves");
        let Some(address) = line.trim().strip_prefix("serving http://") else {
            panic!("{line}{}", logs(directory));
        };
        addresses.0[name].lock().expect("no panic").replace_range(.., address);
        Node { child }
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Stops it, but not where it has the lock of the directory's record.
    fn stop(&self, directory: &Path) {
        let lock = File::options().write(true).open(directory.join("archive/monolite/lock"));
        let lock = lock.expect("it is there");
        lock.lock().expect("it is unlocked");
        self.signal("-STOP");
        thread::sleep(Duration::from_millis(50));
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().expect("it runs").success());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Default)]
struct Addresses([Mutex<String>; 2]);

impl Addresses {
    fn ask(&self, name: usize, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
        let address = self.0[name].lock().expect("no panic").clone();
        let mut socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(STUCK / 5))?;
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        write!(socket, "{head}content-length: {}\r\n\r\n{body}", body.len())?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        let status = answer.get(9..12).and_then(|code| code.parse().ok());
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        Ok((status.ok_or(io::ErrorKind::UnexpectedEof)?, body.to_owned()))
    }

    /// The result of a statement; an error of any kind is `None`.
    fn run(&self, name: usize, sql: &str) -> Option<Value> {
        let body = json!({ "requests": [{ "type": "execute", "stmt": { "sql": sql } }] });
        let (status, answer) = self.ask(name, "POST", "/v2/pipeline", &body.to_string()).ok()?;
        let answer: Value = serde_json::from_str(&answer).ok()?;
        let result = &answer["results"][0];
        (status == 200 && result["type"] == "ok").then(|| result["response"]["result"].clone())
    }

    fn is(&self, name: usize, role: &str) -> bool {
        let asked = self.ask(name, "GET", "/primary", "");
        asked.is_ok_and(|(_, body)| body.contains(&format!("\"role\":\"{role}\"")))
    }
}

/// What clients have seen.
#[derive(Default)]
struct Seen {
    ids: AtomicU64,
    acknowledged: Mutex<Vec<u64>>,
    /// When a write was acknowledged last, and the longest time without one.
    gap: Mutex<Option<(Instant, Duration)>>,
    longest: Mutex<Duration>,
}

impl Seen {
    fn count(&self) -> usize {
        self.acknowledged.lock().expect("no panic").len()
    }
}

/// Says the same until it succeeds at one of the servers.
fn until_done(addresses: &Addresses, at: &mut usize, sql: &str, seen: &Seen) {
    let began = Instant::now();
    while addresses.run(*at, sql).is_none() {
        *at = 1 - *at;
        thread::sleep(Duration::from_millis(50));
        assert!(began.elapsed() < PATIENCE, "{sql}: no server answers");
    }
    let mut longest = seen.longest.lock().expect("no panic");
    *longest = began.elapsed().max(*longest);
}

fn write(addresses: &Addresses, seen: &Seen, ends: &AtomicBool) {
    let mut at = 0;
    while !ends.load(Ordering::Relaxed) {
        let id = seen.ids.fetch_add(1, Ordering::Relaxed);
        until_done(addresses, &mut at, &format!("INSERT OR IGNORE INTO t VALUES ({id})"), seen);
        seen.acknowledged.lock().expect("no panic").push(id);
        let (mut gap, now) = (seen.gap.lock().expect("no panic"), Instant::now());
        let (last, most) = gap.unwrap_or((now, Duration::ZERO));
        *gap = Some((now, most.max(now - last)));
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "it takes too long until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Has the primary fail, and come back when the other one has taken over; the time without writes.
fn fail_over(
    directory: &Path,
    addresses: &Addresses,
    seen: &Seen,
    nodes: &mut [Node; 2],
    takeover: usize,
) -> Duration {
    let (old, new) = (takeover % 2, 1 - takeover % 2);
    wait_until("it is the primary", || addresses.is(old, "primary"));
    wait_until("the other one follows", || addresses.is(new, "replica"));
    thread::sleep(Duration::from_millis(500 + takeover as u64 * 37 % 200));
    *seen.gap.lock().expect("no panic") = None;
    let before = seen.count();
    wait_until("it writes", || seen.count() > before + 5);
    let is_killed = takeover % 3 < 2;
    match is_killed {
        true => nodes[old].kill(),
        false => nodes[old].stop(directory),
    }
    wait_until("the other one is the primary", || addresses.is(new, "primary"));
    let before = seen.count();
    wait_until("it writes", || seen.count() > before + 5);
    let gap = seen.gap.lock().expect("no panic").expect("it writes").1;
    match is_killed {
        true => nodes[old] = Node::start(directory, old, addresses),
        false => nodes[old].signal("-CONT"),
    }

    gap
}

#[test]
fn primary_that_fails_has_a_successor_and_follows_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let (addresses, seen, ends) = (Addresses::default(), Seen::default(), AtomicBool::new(false));
    let first = Node::start(directory, 0, &addresses);
    wait_until("it has a table", || addresses.run(0, "CREATE TABLE t(id PRIMARY KEY)").is_some());
    let mut nodes = [first, Node::start(directory, 1, &addresses)];
    let mut gaps = Vec::new();
    thread::scope(|scope| {
        let (addresses, seen, ends) = (&addresses, &seen, &ends);
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let over = Ends(ends);
        (0..WRITERS).for_each(|_| drop(scope.spawn(|| write(addresses, seen, ends))));
        scope.spawn(|| {
            let mut at = 1;
            while !ends.load(Ordering::Relaxed) {
                until_done(addresses, &mut at, "SELECT count(*) FROM t", seen);
                thread::sleep(Duration::from_millis(5));
            }
        });
        for takeover in 0..takeovers() {
            gaps.push(fail_over(directory, addresses, seen, &mut nodes, takeover));
        }
        drop(over);
    });
    let (primary, replica) = (takeovers() % 2, 1 - takeovers() % 2);
    wait_until("the old one follows", || addresses.is(replica, "replica"));
    let found = addresses.run(primary, "SELECT id FROM t").expect("it is the primary");
    let ids: std::collections::BTreeSet<u64> = found["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row[0]["value"].as_str()?.parse().ok())
        .collect();
    let acknowledged = seen.acknowledged.into_inner().expect("no panic");
    let lost = acknowledged.iter().filter(|id| !ids.contains(id)).count();
    gaps.sort();
    let longest = seen.longest.into_inner().expect("no panic");
    eprintln!(
        "{} takeovers of a server: {} acknowledged, {lost} lost; without writes p50 {:.2?}, max \
         {:.2?}; no client waited longer than {longest:.2?}",
        gaps.len(),
        acknowledged.len(),
        gaps[gaps.len() / 2],
        gaps[gaps.len() - 1]
    );
    assert!(lost == 0 && longest < STUCK, "{gaps:?}\n{}", logs(directory));
    let count = |node| Some(addresses.run(node, "SELECT count(*) FROM t")?["rows"].clone());
    wait_until("the replica has all", || count(replica) == count(primary));
    let roles = std::fs::read_to_string(directory.join("1.db.roles")).expect("exec was run");
    assert!(roles.starts_with("replica "), "{roles}");
    assert!(
        roles.lines().any(|it| it.starts_with("primary ") && it.ends_with("node 1")),
        "{roles}"
    );
}
