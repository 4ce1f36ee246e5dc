//! Two primaries of one bucket, each a process of its own: the first is stopped, or its network is
//! cut, while a second one takes over, and comes back then. Nothing that was acknowledged is lost,
//! and there is one history.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use monolite::rusqlite::Connection;
use monolite::{Database, Durability, Options};
use monolite_archive::{
    Archive, Reading, Target,
    internals::{Present, adopt, restore},
};
use rustix::process::{Pid, Signal, kill_process};

use crate::archive::{TestPace, scratch};
use crate::gateway::Gateway;
use crate::network::{Network, Proxy};
use crate::programs::{Running, Site, programs, wait_for};

/// What a child is to do: where the archive is, the database, the name, and whether it takes over.
const CHILD: &str = "MONOLITE_TAKEOVERS_CHILD";

/// How many acknowledgements are enough.
const ENOUGH: usize = 30;

fn insert(db: &Database, name: &str, n: i64) -> monolite::Write<usize, monolite::Error> {
    let name = name.to_owned();
    let sql = "INSERT INTO t(name, n) VALUES (?1, ?2)";
    db.write(move |tx| tx.execute(sql, (name.as_str(), n)))
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever reads it may be gone.
    let _ = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
}

/// No test: a primary that writes until its input ends, or it may not any more.
#[test]
fn child() {
    let Ok(words) = std::env::var(CHILD) else { return };
    let [url, path, name, takes] = words.split('|').collect::<Vec<_>>()[..] else { panic!() };
    let archive = Archive::at(url).unwrap().interval(Duration::from_millis(1));
    let options = Options::new().readers(1).archive(archive.take_over(takes == "takes"));
    let db = match options.durability(Durability::Archived).open(path) {
        Ok(db) => db,
        Err(error) => return say(&format!("refused {:?}", error.kind())),
    };
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        over.store(true, Ordering::SeqCst);
    });
    let sql = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, name TEXT, n INTEGER)";
    if let Err(error) = db.write(move |tx| tx.execute_batch(sql)).wait() {
        return say(&format!("ended {:?}", error.kind()));
    }
    say("opened");
    for first in (1..).step_by(4) {
        let writes: Vec<_> = (first..first + 4).map(|n| (n, insert(&db, name, n))).collect();
        let mut failed = false;
        for (n, write) in writes {
            match write.wait() {
                Ok(_) => say(&format!("acknowledged {n}")),
                Err(error) => {
                    say(&format!("failed {n} {:?}", error.kind()));
                    failed = true;
                }
            }
        }
        if failed {
            let error = insert(&db, name, 0).wait().unwrap_err();
            say(&format!("ended {:?}", error.kind()));
            let _ = db.close();
            return;
        }
        if is_over.load(Ordering::SeqCst) {
            db.close().unwrap();
            return say("closed");
        }
    }
}

/// A primary in a process of its own.
struct Primary {
    process: Running,
    input: Option<ChildStdin>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Primary {
    fn start(site: &Site, path: &Path, name: &str, takes: &str) -> Primary {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "takeovers::child", "--nocapture"])
            .env(CHILD, format!("{}|{}|{name}|{takes}", site.ours, path.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                heard.lock().unwrap().push(line);
            }
        });
        Primary { process: Running(child), input, lines }
    }

    /// What it has said behind a word, each time.
    fn said(&self, word: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter_map(|it| it.strip_prefix(word)).map(str::to_owned).collect()
    }

    fn acknowledged(&self) -> Vec<i64> {
        self.said("acknowledged ").iter().map(|it| it.parse().unwrap()).collect()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.0.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn has_enough(&self) {
        let begun = self.acknowledged().len();
        wait_for(&format!("it acknowledges: {:?}", self.lines.lock().unwrap()), 60, || {
            self.acknowledged().len() >= begun + ENOUGH
        });
    }

    fn close(mut self) -> Vec<i64> {
        drop(self.input.take());
        wait_for("it is closed", 60, || !self.said("closed").is_empty());
        self.acknowledged()
    }
}

/// What happens to the first primary.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Stopped,
    Network(Network),
}

/// The rows of what is restored, by name.
fn history(site: &Site, directory: &Path) -> BTreeMap<String, Vec<i64>> {
    let output = restored(site, directory);
    let db = Connection::open(output).unwrap();
    let sound: String = db.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    let mut statement = db.prepare("SELECT name, n FROM t ORDER BY id").unwrap();
    let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let mut history: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (name, n) in rows.map(Result::unwrap) {
        history.entry(name).or_default().push(n);
    }
    history
}

fn restored(site: &Site, directory: &Path) -> PathBuf {
    let (store, layout) = site.open();
    let output = directory.join(format!("restored-{}.db", fastrand::u64(..)));
    restore(store.as_ref(), &layout, Target::Latest, &output, Reading::Whole).unwrap();
    output
}

/// The operator's way: fence, restore, go on.
fn take_over(site: &Site, directory: &Path, name: &str) -> Primary {
    let (store, layout) = site.open();
    let mut pace = TestPace::default();
    adopt(store.as_ref(), &layout, Present::TakeOver, None, &mut pace).unwrap().unwrap();
    Primary::start(site, &restored(site, directory), name, "takes")
}

/// Everything that was acknowledged is there once, in order, and what else is there was sent just
/// before.
fn has_all(rows: &[i64], acknowledged: &[i64]) {
    let expected: Vec<i64> = (1..=rows.len() as i64).collect();
    assert_eq!(rows, expected, "in order, and none twice");
    let last = acknowledged.iter().max().unwrap();
    assert!(rows.len() as i64 >= *last, "{} rows, {last} were acknowledged", rows.len());
}

/// What there was, in words; nothing where the test is skipped.
fn survives(test: &str, trouble: Trouble) -> String {
    let Some([gateway]) = programs(test, ["versitygw"]) else { return String::new() };
    let (gateway, directory) = (Gateway::start(&gateway), scratch());
    let proxy = Proxy::start(gateway.port);
    let site = gateway.site("any/ledger", gateway.port);
    let first = directory.path().join("first.db");
    let first = Primary::start(&gateway.site("any/ledger", proxy.port), &first, "first", "");
    first.has_enough();
    match trouble {
        Trouble::Stopped => first.signal(Signal::STOP),
        Trouble::Network(network) => proxy.set(network),
    }
    let second = take_over(&site, directory.path(), "second");
    second.has_enough();
    let before = first.acknowledged().len();
    match trouble {
        Trouble::Stopped => first.signal(Signal::CONT),
        Trouble::Network(_) => proxy.set(Network::Open),
    }
    wait_for("the first one has ended", 90, || !first.said("ended ").is_empty());
    assert_eq!(first.said("ended "), ["Fenced"]);
    second.has_enough();
    let acknowledged = [first.acknowledged(), second.close()];
    let history = history(&site, directory.path());
    has_all(&history["first"], &acknowledged[0]);
    has_all(&history["second"], &acknowledged[1]);
    site.is_whole();
    format!(
        "{trouble:?}: {before} acknowledged by the first one, {} when it was back, failed: {:?}; \
         {} by the second one; {} and {} rows in history",
        acknowledged[0].len() - before,
        first.said("failed "),
        acknowledged[1].len(),
        history["first"].len(),
        history["second"].len()
    )
}

#[test]
fn stopped_primary_loses_nothing_and_is_fenced() {
    let test = "stopped_primary_loses_nothing_and_is_fenced";
    println!("{}", survives(test, Trouble::Stopped));
}

#[test]
fn primary_without_a_network_loses_nothing_and_is_fenced() {
    let test = "primary_without_a_network_loses_nothing_and_is_fenced";
    println!("{}", survives(test, Trouble::Network(Network::Cut)));
}

#[test]
fn primary_whose_requests_arrive_late_loses_nothing_and_is_fenced() {
    let test = "primary_whose_requests_arrive_late_loses_nothing_and_is_fenced";
    println!("{}", survives(test, Trouble::Network(Network::Stalled)));
}

#[test]
fn primary_that_hears_no_answers_loses_nothing_and_is_fenced() {
    let test = "primary_that_hears_no_answers_loses_nothing_and_is_fenced";
    println!("{}", survives(test, Trouble::Network(Network::Mute)));
}

#[test]
fn cloned_directory_is_refused() {
    let Some([gateway]) = programs("cloned_directory_is_refused", ["versitygw"]) else { return };
    let (gateway, directory) = (Gateway::start(&gateway), scratch());
    let site = gateway.site("any/ledger", gateway.port);
    let [original, clone] = ["original", "clone"].map(|it| directory.path().join(it));
    std::fs::create_dir(&original).unwrap();
    let first = Primary::start(&site, &original.join("ledger.db"), "first", "");
    first.has_enough();
    first.signal(Signal::STOP);
    let copied = Command::new("cp").arg("-a").args([&original, &clone]).status().unwrap();
    assert!(copied.success());
    let refused = |when: &str| {
        let second = Primary::start(&site, &clone.join("ledger.db"), "second", "");
        wait_for("the clone is refused", 60, || !second.said("refused ").is_empty());
        assert_eq!(second.said("refused "), ["Fenced"], "{when}");
    };
    refused("the first one is stopped");
    first.signal(Signal::CONT);
    first.has_enough();
    let acknowledged = first.acknowledged();
    drop(first);
    refused("the first one was killed");
    let again = Primary::start(&site, &original.join("ledger.db"), "again", "");
    again.has_enough();
    let closed = again.close();
    let history = history(&site, directory.path());
    has_all(&history["first"], &acknowledged);
    has_all(&history["again"], &closed);
    site.is_whole();
}

/// The rows of a name in what Litestream restores.
fn rows_by(
    site: &Site,
    litestream: &Path,
    directory: &Path,
    name: &str,
) -> Result<Vec<i64>, String> {
    let output = directory.join(format!("{}.db", fastrand::u64(..)));
    std::fs::write(&output, site.restored_by(litestream, &[])?).unwrap();
    let db = Connection::open(output).unwrap();
    let wrong = |error: monolite::rusqlite::Error| error.to_string();
    let sound: String =
        db.query_row("PRAGMA integrity_check", (), |row| row.get(0)).map_err(wrong)?;
    if sound != "ok" {
        return Err(sound);
    }
    let mut statement = db.prepare("SELECT n FROM t WHERE name = ?1").map_err(wrong)?;
    let rows = statement.query_map([name], |row| row.get(0)).map_err(wrong)?;
    Ok(rows.map(Result::unwrap).collect())
}

/// Two of Litestream under the same script: what is found is that history has two ends.
#[test]
fn two_of_litestream_lose_what_they_uploaded() {
    let names = ["versitygw", "litestream"];
    let test = "two_of_litestream_lose_what_they_uploaded";
    let Some([gateway, litestream]) = programs(test, names) else { return };
    let (gateway, directory) = (Gateway::start(&gateway), scratch());
    let site = gateway.site("any/ledger", gateway.port);
    let replicate = |path: &Path| {
        let mut command = site.litestream(&litestream);
        Running::start(command.arg("replicate").arg(path).arg(&site.theirs))
    };
    let open = |path: &Path| {
        let db = Connection::open(path).unwrap();
        db.pragma_update(None, "journal_mode", "wal").unwrap();
        db.busy_timeout(Duration::from_secs(10)).unwrap();
        db
    };
    let write = |db: &Connection, name: &str, n: i64| {
        db.execute("INSERT INTO t(name, n) VALUES (?1, ?2)", (name, n)).unwrap();
        db.execute("UPDATE u SET v = randomblob(3000) WHERE id = ?1 % 50", [n]).unwrap();
    };
    let rows = |name: &str| rows_by(&site, &litestream, directory.path(), name);
    let [one, other] = ["one.db", "other.db"].map(|it| directory.path().join(it));
    let db = open(&one);
    db.execute_batch(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, n INTEGER);
         CREATE TABLE u(id INTEGER PRIMARY KEY, v BLOB);
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 49)
             INSERT INTO u SELECT i, randomblob(3000) FROM n",
    )
    .unwrap();
    let first = replicate(&one);
    (1..=100).for_each(|n| write(&db, "first", n));
    wait_for("the first one has uploaded", 60, || rows("first").is_ok_and(|it| it.len() == 100));
    let pid = Pid::from_raw(first.0.id() as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    std::fs::write(&other, site.restored_by(&litestream, &[]).unwrap()).unwrap();
    let _second = replicate(&other);
    let taken = open(&other);
    (1..=100).for_each(|n| write(&taken, "second", n));
    wait_for("the second one has uploaded", 60, || rows("second").is_ok_and(|it| it.len() == 100));
    kill_process(pid, Signal::CONT).unwrap();
    (101..=400).for_each(|n| {
        write(&db, "first", n);
        write(&taken, "second", n);
        std::thread::sleep(Duration::from_millis(10));
    });
    let mut found = Vec::new();
    wait_for("it is seen what has become of it", 30, || {
        found = vec![rows("first").map(|it| it.len()), rows("second").map(|it| it.len())];
        found.iter().any(|it| it.as_ref().is_ok_and(|len| *len == 400))
            || found.iter().any(Result::is_err)
    });
    let kept = found.iter().all(|it| it == &Ok(400));
    println!("{found:?}");
    assert!(!kept, "two of Litestream keep what both wrote");
}
