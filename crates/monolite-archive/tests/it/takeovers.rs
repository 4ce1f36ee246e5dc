//! Two processes that take over from each other, again and again: the primary is killed, or stopped
//! and goes on when it has a successor. Their clocks are two days apart. What was acknowledged is
//! in the final state, once. `MONOLITE_TAKEOVERS` says how often.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use monolite::{Database, Durability, ErrorKind, Options, rusqlite};
use monolite_archive::{Archive, Follower, Takeover, Target, Timestamp};

const CHILD: &str = "MONOLITE_TAKEOVERS_CHILD";
const NODE: &str = "MONOLITE_TAKEOVERS_NODE";

/// How long one takeover may take on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(120);

fn lease() -> Duration {
    let seconds = std::env::var("MONOLITE_TAKEOVERS_LEASE").ok().and_then(|it| it.parse().ok());
    Duration::from_secs(seconds.unwrap_or(1))
}

fn archive(directory: &Path, node: usize) -> Archive {
    let url = directory.join("archive");
    let archive = Archive::at(url.to_str().unwrap()).unwrap().interval(Duration::from_millis(20));
    let day = 86_400_000 * if node == 0 { 1 } else { -1 };
    archive.lease(Some(lease())).address(&format!("node {node}")).clock(move || {
        Timestamp::from_millis(monolite_archive::internals::wall_clock_now().millis() + day)
    })
}

/// No test: one of the processes.
#[test]
fn node() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let (directory, node) = (PathBuf::from(directory), std::env::var(NODE).unwrap());
    let node: usize = node.parse().unwrap();
    let (archive, file) = (archive(&directory, node), directory.join(format!("{node}.db")));
    let mut last = None;
    let mut is_first = node == 0 && !file.exists();
    loop {
        let follower = match is_first {
            true => None,
            false => Some(archive.follow(Options::new().readers(1), &file)),
        };
        is_first = false;
        match follower {
            Some(Ok(follower)) => lead(&archive, follower),
            // It is the primary's still, or no one is yet.
            Some(Err(error)) if !error.to_string().contains("is the database of the primary") => {
                let error = error.to_string();
                if last.as_ref() != Some(&error) {
                    println!("waits: {error}");
                }
                last = Some(error);
                thread::sleep(Duration::from_millis(50));
                continue;
            }
            _ => {}
        }
        let options = Options::new().readers(1).archive(archive.clone());
        match options.durability(Durability::Archived).open(&file) {
            Ok(db) => serve(&db, node),
            Err(error) => println!("is not the primary: {error}"),
        }
    }
}

fn lead(archive: &Archive, follower: Follower) {
    println!("follows: orphan {:?}, {archive:?}", follower.stats().orphan);
    let claimed = follower.claim(Takeover::WhenVacant, &|| true).unwrap().unwrap();
    if let Err(error) = follower.promote(claimed) {
        println!("is not promoted: {error}");
    }
}

/// Writes until another one has taken over.
fn serve(db: &Database, node: usize) {
    let mut out = std::io::stdout();
    let create = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)";
    if db.write(move |tx| tx.execute_batch(create)).wait().is_err() {
        return;
    }
    loop {
        let ids = [(); 8].map(|()| fastrand::i64(0..1 << 60) * 2 + node as i64);
        let sql = "INSERT INTO t VALUES (?1, randomblob(60))";
        let writes = ids.map(|id| (id, db.write(move |tx| tx.execute(sql, [id]))));
        for (id, write) in writes {
            match write.wait() {
                Ok(_) => writeln!(out, "acknowledged {id}").unwrap(),
                Err(error) => {
                    writeln!(out, "ends: {error}").unwrap();
                    assert!(
                        matches!(error.kind(), ErrorKind::Fenced | ErrorKind::CommitUnknown),
                        "{error}"
                    );
                    let _ = db.close();
                    return;
                }
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// What a process has said: the ids that it acknowledged, and when the last came.
#[derive(Default)]
struct Said {
    acknowledged: BTreeMap<i64, Instant>,
    last: Option<Instant>,
    lines: Vec<String>,
}

struct Node {
    child: Child,
    said: Arc<Mutex<Said>>,
}

impl Node {
    fn start(directory: &Path, node: usize, said: &Arc<Mutex<Said>>) -> Node {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "takeovers::node", "--nocapture"]);
        child.env(CHILD, directory).env(NODE, node.to_string());
        let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let said = Arc::clone(said);
        let theirs = Arc::clone(&said);
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let mut said = theirs.lock().unwrap();
                match line.strip_prefix("acknowledged ").and_then(|it| it.parse().ok()) {
                    Some(id) => {
                        let now = Instant::now();
                        said.acknowledged.insert(id, now);
                        said.last = Some(now);
                    }
                    None => said.lines.push(line),
                }
            }
        });
        Node { child, said }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// When it acknowledged something later than `since` for the first time.
    fn first_after(&self, since: Instant) -> Option<Instant> {
        let said = self.said.lock().unwrap();
        said.acknowledged.values().filter(|at| **at > since).min().copied()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "long: the gate runs it"]
fn nothing_acknowledged_is_lost_however_often_the_primary_changes() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let often = std::env::var("MONOLITE_TAKEOVERS").ok().and_then(|it| it.parse().ok());
    let said: [Arc<Mutex<Said>>; 2] = Default::default();
    let mut nodes = [0, 1].map(|node| Node::start(directory, node, &said[node]));
    let failed = |what: &str| {
        let lines = said.each_ref().map(|said| {
            let lines = &said.lock().unwrap().lines;
            lines[lines.len().saturating_sub(12)..].join("\n")
        });
        panic!("{what}\nnode 0: {}\nnode 1: {}", lines[0], lines[1]);
    };
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_so() {
            if start.elapsed() > PATIENCE {
                failed(what);
            }
            thread::sleep(Duration::from_millis(5));
        }
    };
    let follows = |node: usize| {
        let lines = &said[node].lock().unwrap().lines;
        lines.iter().filter(|line| line.starts_with("follows")).count()
    };
    let (mut primary, mut gaps, mut last) = (0, Vec::new(), [0, 0]);
    for takeover in 0..often.unwrap_or(6) {
        let since = Instant::now();
        wait("it serves", &|| nodes[primary].first_after(since).is_some());
        let other = 1 - primary;
        wait("the other one follows", &|| follows(other) > last[other]);
        last[other] = follows(other);
        thread::sleep(Duration::from_millis(fastrand::u64(0..400)));
        let is_killed = takeover % 2 == 0;
        nodes[primary].signal(if is_killed { "-KILL" } else { "-STOP" });
        let since = Instant::now();
        wait("the other one serves", &|| nodes[other].first_after(since).is_some());
        let before = said[primary].lock().unwrap().last.unwrap_or(since).min(since);
        gaps.push(nodes[other].first_after(since).unwrap() - before);
        if is_killed {
            nodes[primary] = Node::start(directory, primary, &said[primary]);
        } else {
            nodes[primary].signal("-CONT");
        }
        primary = other;
    }
    let since = Instant::now();
    wait("it serves", &|| nodes[primary].first_after(since).is_some());
    drop(nodes);
    let restored = directory.join("restored.db");
    let archive = archive(directory, 0);
    archive.restore(Target::Latest, &restored).unwrap();
    assert!(archive.verify().unwrap().problems.is_empty());
    let db = rusqlite::Connection::open(restored).unwrap();
    let sound: String = db.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    let mut is_there = db.prepare("SELECT count(*) FROM t WHERE id = ?1").unwrap();
    // The threads that read what the processes said have ended with them, or do now.
    thread::sleep(Duration::from_millis(200));
    let (mut acknowledged, mut lost) = (0, Vec::new());
    for said in &said {
        for id in said.lock().unwrap().acknowledged.keys() {
            acknowledged += 1;
            if is_there.query_row([id], |row| row.get::<_, i64>(0)).unwrap() != 1 {
                lost.push(*id);
            }
        }
    }
    gaps.sort();
    println!(
        "{} takeovers at a lease of {:?}: {acknowledged} acknowledged, {} lost; without writes \
         p50 {:.2?}, max {:.2?}",
        gaps.len(),
        lease(),
        lost.len(),
        gaps[gaps.len() / 2],
        gaps[gaps.len() - 1]
    );
    assert!(lost.is_empty(), "{lost:?}");
}
