//! A primary and a follower that streams, in processes that are killed at any moment; and who takes
//! over with what was only streamed. `MONOLITE_STREAM_KILLS` says how often.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use monolite::rusqlite::Connection;
use monolite::{Database, Durability, Options, ReadTx};
use monolite_archive::{Archive, Follower, FollowerStats, Takeover, Target};
use rustix::time::{ClockId, clock_gettime};

use crate::archiving::wait_until;
use crate::wire::{SECRET, free_address};

const CHILD: &str = "MONOLITE_STREAMS_CHILD";

/// What a process is told.
struct Told {
    directory: PathBuf,
    address: String,
    interval: u64,
}

impl Told {
    fn new(directory: &Path, interval: u64) -> Told {
        let address = free_address().to_string();
        Told { directory: directory.to_owned(), address, interval }
    }

    fn archive(&self) -> Archive {
        let url = self.directory.join("archive");
        let archive = Archive::at(url.to_str().unwrap()).unwrap();
        let archive = archive.time_limit(Duration::from_secs(60));
        archive.interval(Duration::from_millis(self.interval))
    }

    fn primary(&self) -> Archive {
        self.archive().stream_to(&self.address, SECRET)
    }

    fn follow(&self, name: &str) -> monolite::Result<Follower> {
        let archive = self.archive().interval(Duration::from_millis(30));
        let archive = archive.stream_from(None, SECRET);
        archive.follow(Options::new().readers(1), self.directory.join(name))
    }

    fn start(&self, role: &str) -> Node {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "streams::node", "--nocapture"]).stdout(Stdio::null());
        let Told { directory, address, interval } = self;
        let told = format!("{role} {address} {interval} {}", directory.display());
        Node(child.env(CHILD, told).spawn().unwrap())
    }
}

struct Node(Child);

impl Node {
    fn kill(&mut self) {
        assert!(self.0.try_wait().unwrap().is_none(), "it has ended by itself");
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// No test: one of the processes.
#[test]
fn node() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let told: Vec<&str> = told.splitn(4, ' ').collect();
    let [role, address, interval, directory] = told[..] else { panic!("{told:?}") };
    let (address, interval) = (address.to_owned(), interval.parse().unwrap());
    let told = Told { directory: directory.into(), address, interval };
    if role == "burst" {
        // Also of a thread of the archive.
        std::panic::set_hook(Box::new(|why| {
            eprintln!("{why}");
            std::process::abort();
        }));
        return burst(&told);
    }
    if role.ends_with("primary") {
        let options = Options::new().readers(1).archive(told.primary());
        let db = options.open(told.directory.join("shop.db")).unwrap();
        let mut n = create(&db);
        let replicated = db.with_durability(Durability::Replicated(1));
        let db = if role == "replicating-primary" { replicated } else { db };
        while role == "waiting-primary" && !told.directory.join("go").exists() {
            thread::sleep(Duration::from_millis(1));
        }
        while !told.directory.join("stop").exists() {
            n += 1;
            group(&db, n);
            thread::sleep(Duration::from_millis(fastrand::u64(0..4)));
            if n % 40 == 0 {
                db.checkpoint().wait().unwrap();
            }
        }
        db.close().unwrap();
        return;
    }
    let follower = told.follow("copy.db").unwrap();
    let [seen_file, new] = ["seen", "seen.new"].map(|name| told.directory.join(name));
    let mut last = 0;
    for turn in 1.. {
        let seen = follower.database().read(state).wait().unwrap();
        assert!(seen >= last, "{seen} comes behind {last}");
        last = seen;
        let FollowerStats { copies, files, is_streaming, .. } = follower.stats();
        fs::write(&new, format!("{seen} {copies} {files} {}", u8::from(is_streaming))).unwrap();
        fs::rename(&new, &seen_file).unwrap();
        if role == "checkpoints" && turn % 8 == 0 {
            follower.database().checkpoint().wait().unwrap();
        }
        thread::sleep(Duration::from_millis(3));
    }
}

impl Told {
    /// What a follower of its own process has seen: the group, and how many copies and files of the
    /// archive it has applied; whether it streams.
    fn seen(&self) -> Option<[i64; 4]> {
        let text = fs::read_to_string(self.directory.join("seen")).ok()?;
        let numbers: Vec<i64> = text.split(' ').map(|it| it.parse().unwrap()).collect();
        numbers.try_into().ok()
    }

    /// The group in a copy of a file and its WAL, as they are.
    fn state_of_copy(&self, name: &str) -> i64 {
        for ending in ["", "-wal"] {
            let from = self.directory.join(format!("{name}{ending}"));
            let _ = fs::copy(from, self.directory.join(format!("image{ending}")));
        }
        let n = state_of(&self.directory.join("image"));
        for ending in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(self.directory.join(format!("image{ending}")));
        }
        n
    }
}

/// How many groups there are.
fn create(db: &Database) -> i64 {
    let sql = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v, pad);
               CREATE INDEX IF NOT EXISTS i ON t(v);
               CREATE TABLE IF NOT EXISTS log(n, pad)";
    db.write(move |tx| tx.execute_batch(sql)).wait().unwrap();
    db.read_archived(state).wait().unwrap()
}

/// All rows have the number of the last group, which has added one.
fn group(db: &Database, n: i64) {
    let written = db.write(move |tx| {
        tx.execute("INSERT INTO t VALUES (?1, 0, randomblob(300))", [n])?;
        // Pages that later groups do not change.
        tx.execute("INSERT INTO log VALUES (?1, randomblob(5000))", [n])?;
        tx.execute("UPDATE t SET v = ?1", [n])
    });
    written.wait().unwrap();
}

const STATE: &str = "SELECT count(*), coalesce(min(v), 0), coalesce(max(v), 0), total(id) FROM t";

fn whole([n, min, max, ids]: [i64; 4]) -> i64 {
    assert_eq!([n, min, max, ids], [n, n, n, n * (n + 1) / 2], "a state of no group");
    n
}

fn state(tx: &ReadTx<'_>) -> monolite::Result<i64> {
    let found = tx.query_row(STATE, (), |row| {
        Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, f64>(3)? as i64])
    });
    found.map(whole)
}

/// The group that a file has which nothing has open.
fn state_of(file: &Path) -> i64 {
    let db = Connection::open(file).unwrap();
    let sound: String = db.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    let found = db.query_row(STATE, (), |row| {
        Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, f64>(3)? as i64])
    });
    whole(found.unwrap())
}

fn kills() -> u32 {
    std::env::var("MONOLITE_STREAM_KILLS").ok().and_then(|it| it.parse().ok()).unwrap_or(10)
}

#[test]
fn either_side_is_killed_at_any_moment_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let told = Told::new(directory.path(), 250);
    let (file, copy) = (told.directory.join("shop.db"), told.directory.join("copy.db"));
    let mut primary = told.start("primary");
    let is_there = |it: Follower| it.database().read(state).wait().is_ok();
    wait_until("it is archived", || told.follow("copy.db").is_ok_and(is_there));
    let mut follower = told.start("follower");
    let mut seen = 0;
    for kill in 0..kills() {
        thread::sleep(Duration::from_millis(300 + u64::from(kill * 137 % 500)));
        if kill % 3 == 1 {
            primary.kill();
            thread::sleep(Duration::from_millis(u64::from(kill * 61 % 300)));
            primary = told.start("primary");
            continue;
        }
        follower.kill();
        if kill % 2 == 0 {
            // A stock reader recovers what the kill left, and the next start copies all; or it
            // knows what it has.
            let n = state_of(&copy);
            assert!(n >= seen, "{n} behind {seen}");
            seen = n;
        }
        follower = told.start("follower");
    }
    thread::sleep(Duration::from_millis(500));
    follower.kill();
    let follower = told.follow("copy.db").unwrap();
    wait_until("it streams again", || follower.stats().is_streaming);
    fs::write(told.directory.join("stop"), "").unwrap();
    assert!(primary.0.wait().unwrap().success());
    let last = state_of(&file);
    assert!(last > 100, "{last}");
    wait_until("it has all", || follower.database().read(state).wait().unwrap() == last);
    let record = told.archive().leader().unwrap().unwrap();
    assert_eq!(record.epoch.0, u64::from(kills() + 1) / 3 + 1, "the primary was killed");
    let stats = follower.stats();
    follower.close().unwrap();
    assert!(stats.copies == 0 && stats.parts > 0, "{stats:?}");
    assert!(fs::read(file).unwrap() == fs::read(copy).unwrap(), "byte by byte");
}

#[test]
fn successor_has_what_was_only_streamed_and_others_follow_it() {
    for restarts in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        // Only what is waited for is archived.
        let told = Told::new(directory.path(), 60_000);
        let mut primary = told.start("waiting-primary");
        let is_there = |it: Follower| it.database().read(state).wait().is_ok();
        wait_until("it is archived", || told.follow("next.db").is_ok_and(is_there));
        let next = told.follow("next.db").unwrap();
        let mut other = told.follow("other.db").unwrap();
        let reads = |it: &Follower| it.database().read(state).wait().unwrap();
        for follower in [&next, &other] {
            wait_until("it streams", || follower.stats().is_streaming);
        }
        fs::write(told.directory.join("go"), "").unwrap();
        for follower in [&next, &other] {
            wait_until("it has parts", || reads(follower) > 20);
        }
        let archived = next.stats().txid;
        primary.kill();
        if restarts {
            other.close().unwrap();
            other = told.follow("other.db").unwrap();
        }
        thread::sleep(Duration::from_millis(100));
        let seen = reads(&next);
        assert!(reads(&other) > 20);
        let claimed = next.claim(Takeover::Now, &|| true).unwrap().unwrap();
        next.promote(claimed).unwrap();
        let options = Options::new().readers(1).archive(told.primary());
        let db = options.open(told.directory.join("next.db")).unwrap();
        assert_eq!(create(&db), seen, "what was only streamed is in the file");
        assert!(db.stats().archive.unwrap().txid > archived);
        group(&db, seen + 1);
        assert_eq!(db.read_archived(state).wait().unwrap(), seen + 1);
        wait_until("the other one follows", || reads(&other) == seen + 1);
        group(&db, seen + 2);
        wait_until("it streams", || reads(&other) == seen + 2);
        let stats = other.stats();
        let why = stats.copied_because.clone().unwrap_or_default();
        assert!(stats.copies == 1 && why.contains("was lost with it"), "{restarts}: {stats:?}");
        db.close().unwrap();
        other.close().unwrap();
        let bytes = |name| fs::read(told.directory.join(name)).unwrap();
        assert!(bytes("next.db") == bytes("other.db"), "byte by byte");
    }
}

#[test]
fn file_that_has_lost_its_marker_is_another_replica() {
    let directory = tempfile::tempdir().unwrap();
    let told = Told::new(directory.path(), 600_000);
    let db = Options::new().readers(1).archive(told.primary()).open(told.directory.join("shop.db"));
    let db = db.unwrap();
    create(&db);
    let beside = told.directory.join("copy.db-archive");
    let replicas = [1, 2, 3].map(|n| {
        let follower = told.follow("copy.db").unwrap();
        assert_eq!(follower.stats().orphan, None, "no write has waited for it");
        group(&db, n);
        wait_until("it has it", || follower.database().read(state).wait().unwrap() == n);
        follower.close().unwrap();
        if n == 2 {
            fs::remove_file(beside.join("streamed.json")).unwrap();
        }
        let place = fs::read_to_string(beside.join("follows.json")).unwrap();
        place.split_once("\"replica\":\"").unwrap().1[..32].to_owned()
    });
    assert_eq!(replicas[0], replicas[1]);
    assert_ne!(replicas[1], replicas[2]);
    db.close().unwrap();
}

#[test]
fn replica_that_has_lost_its_marker_leaves_an_orphan() {
    let directory = tempfile::tempdir().unwrap();
    let told = Told::new(directory.path(), 600_000);
    let options = Options::new().readers(1).archive(told.primary());
    let db = options.open(told.directory.join("shop.db")).unwrap();
    create(&db);
    let replicated = db.with_durability(Durability::Replicated(1));
    let beside = told.directory.join("copy.db-archive");
    // A follower that comes has the archive hurry, so that may have the first groups, too.
    let kept = (1..20).find_map(|n| {
        let follower = told.follow("copy.db").unwrap();
        let orphan = follower.stats().orphan;
        group(&replicated, n);
        wait_until("it has it", || follower.database().read(state).wait().unwrap() == n);
        follower.close().unwrap();
        // As where another program has brought the WAL into the file.
        fs::remove_file(beside.join("streamed.json")).unwrap();
        orphan.map(|orphan| (n - 1, orphan))
    });
    let (n, orphan) = kept.expect("the record lists it");
    let restored = told.directory.join("restored.db");
    told.archive().restore_orphan(&orphan, &restored).unwrap();
    assert_eq!(state_of(&restored), n);
    db.close().unwrap();
}

/// The replica of a primary that was killed.
fn replica_alone(told: &Told) -> Follower {
    let mut primary = told.start("replicating-primary");
    let mut follower = None;
    wait_until("it follows", || {
        follower = told.follow("copy.db").ok();
        follower.is_some()
    });
    let follower = follower.unwrap();
    let has = || follower.database().read(state).wait().is_ok_and(|n| n > 5);
    wait_until("it replicates", has);
    primary.kill();
    follower
}

#[test]
fn primary_that_may_lack_what_a_replica_has_is_refused() {
    for may_lose in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let told = Told::new(directory.path(), 600_000);
        let follower = replica_alone(&told);
        fs::remove_file(told.directory.join("shop.db-wal")).unwrap();
        let file = told.directory.join("shop.db");
        let Err(error) = Options::new().archive(told.primary()).open(&file) else {
            panic!("the replica has more")
        };
        assert!(error.to_string().contains("promote the follower"), "{error}");
        if may_lose {
            let archive = told.primary().take_over(true);
            Options::new().archive(archive).open(&file).unwrap().close().unwrap();
            assert!(told.archive().leader().unwrap().unwrap().replicas.is_empty());
            continue;
        }
        let succession = follower.claim(Takeover::Now, &|| true).unwrap().unwrap();
        follower.promote(succession).unwrap();
        assert!(state_of(&told.directory.join("copy.db")) > 5);
    }
}

#[test]
fn listed_replica_is_not_set_back_before_a_successor_has_archived() {
    let directory = tempfile::tempdir().unwrap();
    let told = Told::new(directory.path(), 600_000);
    let follower = replica_alone(&told);
    let had = follower.database().read(state).wait().unwrap();
    follower.close().unwrap();
    let follow = || {
        let archive = told.archive().time_limit(Duration::from_secs(1)).stream_from(None, SECRET);
        archive.follow(Options::new().readers(1), told.directory.join("copy.db")).unwrap()
    };
    // Two that have claimed and not served; a hole has the next one list what is there.
    for _ in 0..2 {
        drop(follow().claim(Takeover::Now, &|| true).unwrap().unwrap());
    }
    let follower = follow();
    let succession = follower.claim(Takeover::Now, &|| true).unwrap().unwrap();
    let slots = told.directory.join("archive/ltx/0");
    let mut names: Vec<_> = fs::read_dir(&slots).unwrap().map(|it| it.unwrap().path()).collect();
    names.sort();
    fs::remove_file(&names[names.len() - 3]).unwrap();
    let error = follower.promote(succession).unwrap_err();
    assert!(error.to_string().contains("this waits until one has"), "{error}");
    let follower = follow();
    assert_eq!(follower.database().read(state).wait().unwrap(), had, "nothing else has it");
    follower.close().unwrap();
}

#[test]
fn figures_of_a_primary_hold_up_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let told = Told::new(directory.path(), 600_000);
    drop(replica_alone(&told));
    // It is looked whether the replica is to be listed on.
    let archive = told.primary();
    let db = Options::new().archive(archive).open(told.directory.join("shop.db")).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = db.stats();
                }
            });
        }
        // The thread that looks at the replicas takes turns with them.
        thread::sleep(Duration::from_secs(2));
        is_over.store(true, Ordering::Relaxed);
    });
    db.close().unwrap();
}

/// Nanoseconds by a clock that all processes of this machine have.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The transaction of `bench tps`: 128 of them at once until it is to stop, `rate` of them a second
/// at most; how many there were. An account is drawn as there, of a smaller table.
fn transfers(db: &Database, rate: Option<f64>, is_over: &AtomicBool) -> u64 {
    let (threads, done) = (4, AtomicU64::new(0));
    let begun = Instant::now();
    let id = || {
        let (p, x) = (0.9995_f64, fastrand::f64());
        let a = (1.0 - p).ln() / p.ln();
        let y = (x.powf(a) + 1.0 - (1.0 - x).powf(1.0 / a)) / 2.0;
        (1e9 * y) as i64 % ACCOUNTS
    };
    let transfer = || {
        let (from, to, sum) = (id(), id(), fastrand::i64(1..100));
        db.write(move |tx| {
            tx.execute("UPDATE account SET balance = balance - ?1 WHERE id = ?2", [sum, from])?;
            tx.execute("UPDATE account SET balance = balance + ?1 WHERE id = ?2", [sum, to])
        })
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let (mut waiting, mut n) = (VecDeque::new(), 0_u32);
                while !is_over.load(Ordering::Relaxed) {
                    if let Some(rate) = rate {
                        let due = Duration::from_secs_f64(f64::from(n) * f64::from(threads) / rate);
                        thread::sleep(due.saturating_sub(begun.elapsed()));
                    }
                    n += 1;
                    waiting.push_back(transfer());
                    if waiting.len() == 128 / threads as usize {
                        waiting.pop_front().unwrap().wait().unwrap();
                    }
                }
                done.fetch_add(n.into(), Ordering::Relaxed);
            });
        }
    });
    done.into_inner()
}

const ACCOUNTS: i64 = 1_000_000;

/// A primary at work, until there is a file `stop`. When it acknowledged which beat is in `beats`.
fn burst(told: &Told) {
    let db = Options::new().archive(told.primary()).open(told.directory.join("shop.db")).unwrap();
    let filled = db.write(|tx| {
        tx.execute_batch(
            "CREATE TABLE account(id PRIMARY KEY, balance INT);
                          CREATE TABLE beat(n); INSERT INTO beat VALUES (0)",
        )?;
        let sql = "WITH RECURSIVE ids(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM ids LIMIT ?1)
                   INSERT INTO account SELECT id, 1000000000 FROM ids";
        tx.execute(sql, [ACCOUNTS])
    });
    filled.wait().unwrap();
    db.read_archived(|_| Ok(())).wait().unwrap();
    let rate = std::env::var("MONOLITE_STREAM_RATE").ok().map(|it| it.parse().unwrap());
    let is_over = AtomicBool::new(false);
    let (mut beats, begun) = (String::new(), Instant::now());
    let done = thread::scope(|scope| {
        let done = scope.spawn(|| transfers(&db, rate, &is_over));
        for n in 1.. {
            db.write(move |tx| tx.execute("UPDATE beat SET n = ?1", [n])).wait().unwrap();
            beats += &format!("{n} {}\n", now());
            if told.directory.join("stop").exists() {
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        is_over.store(true, Ordering::Relaxed);
        done.join().unwrap()
    });
    let rate = format!("{:.0}", done as f64 / begun.elapsed().as_secs_f64());
    fs::write(told.directory.join("rate"), rate).unwrap();
    fs::write(told.directory.join("beats"), beats).unwrap();
}

#[test]
fn follower_that_is_killed_goes_on_with_the_stream_where_it_was() {
    for role in ["follower", "checkpoints"] {
        let directory = tempfile::tempdir().unwrap();
        // Nothing but the first copy is archived.
        let told = Told::new(directory.path(), 600_000);
        let options = Options::new().readers(1).archive(told.primary());
        let db = options.open(told.directory.join("shop.db")).unwrap();
        let mut n = create(&db);
        let is_there = |it: Follower| it.database().read(state).wait().is_ok();
        wait_until("it is archived", || told.follow("copy.db").is_ok_and(is_there));
        for kill in 0..kills() {
            let _ = fs::remove_file(told.directory.join("seen"));
            let mut follower = told.start(role);
            let streams = || told.seen().is_some_and(|[.., streams]| streams == 1);
            wait_until("it streams", streams);
            let until = Instant::now() + Duration::from_millis(u64::from(kill * 61 % 250));
            while Instant::now() < until {
                n += 1;
                group(&db, n);
                thread::sleep(Duration::from_millis(fastrand::u64(0..3)));
            }
            if kill % 3 == 0 {
                wait_until("it has all", || told.seen().is_some_and(|[seen, ..]| seen == n));
            }
            follower.kill();
            let [seen, copies, files, _] = told.seen().unwrap();
            assert_eq!((copies, files), (0, 0), "{role} {kill}");
            let has = told.state_of_copy("copy.db");
            assert!((seen..=n).contains(&has), "{role} {kill}: {has}, seen {seen} of {n}");
        }
        let follower = told.follow("copy.db").unwrap();
        wait_until("it has all", || follower.database().read(state).wait().unwrap() == n);
        let stats = follower.stats();
        assert_eq!((stats.copies, stats.files), (0, 0), "{role}: {stats:?}");
        follower.close().unwrap();
        db.close().unwrap();
        let bytes = |name| fs::read(told.directory.join(name)).unwrap();
        assert!(bytes("shop.db") == bytes("copy.db"), "{role}: byte by byte");
    }
}

#[test]
fn successor_that_was_killed_has_every_part_that_it_had_applied() {
    for role in ["follower", "checkpoints"] {
        let directory = tempfile::tempdir().unwrap();
        let told = Told::new(directory.path(), 600_000);
        let mut primary = told.start("waiting-primary");
        let is_there = |it: Follower| it.database().read(state).wait().is_ok();
        wait_until("it is archived", || told.follow("copy.db").is_ok_and(is_there));
        let mut next = told.start(role);
        wait_until("it streams", || told.seen().is_some_and(|[.., streams]| streams == 1));
        fs::write(told.directory.join("go"), "").unwrap();
        wait_until("it has parts", || told.seen().is_some_and(|[seen, ..]| seen > 40));
        next.kill();
        primary.kill();
        let ([seen, ..], has) = (told.seen().unwrap(), told.state_of_copy("copy.db"));
        assert!(has >= seen, "{has} behind {seen}");
        let next = told.follow("copy.db").unwrap();
        let claimed = next.claim(Takeover::Now, &|| true).unwrap().unwrap();
        assert_eq!(next.stats().copies, 0, "{role}");
        next.promote(claimed).unwrap();
        let options = Options::new().readers(1).archive(told.primary());
        let db = options.open(told.directory.join("copy.db")).unwrap();
        assert_eq!(create(&db), has, "{role}: what was only streamed is in the file");
        group(&db, has + 1);
        db.read_archived(state).wait().unwrap();
        let restored = told.directory.join("restored.db");
        told.archive().restore(Target::Latest, &restored).unwrap();
        assert_eq!(state_of(&restored), has + 1, "{role}: and in the archive");
        db.close().unwrap();
    }
}

#[test]
#[ignore = "long: the gate runs it"]
fn lag_under_a_burst_of_writes() {
    let directory = tempfile::tempdir().unwrap();
    let told = Told::new(directory.path(), 1_000);
    let mut primary = told.start("burst");
    let is_there = |it: Follower| {
        it.database().read(|tx| tx.query_row("SELECT n FROM beat", (), |_| Ok(()))).wait().is_ok()
    };
    wait_until("it is archived", || told.follow("copy.db").is_ok_and(is_there));
    let follower = told.follow("copy.db").unwrap();
    wait_until("it streams", || follower.stats().is_streaming);
    // What there was to be caught up goes on for a moment.
    thread::sleep(Duration::from_secs(1));
    let (begun, files) = (now(), follower.stats().files);
    let (mut seen, mut last, mut away) = (Vec::new(), 0, 0);
    while now() - begun < 15_000_000_000 {
        let n = follower
            .database()
            .read(|tx| tx.query_row("SELECT n FROM beat", (), |row| row.get::<_, i64>(0)));
        let n = n.wait().unwrap();
        if n > last {
            seen.push((n, now()));
            last = n;
        }
        away += u32::from(!follower.stats().is_streaming);
        thread::sleep(Duration::from_millis(1));
    }
    fs::write(told.directory.join("stop"), "").unwrap();
    assert!(primary.0.wait().unwrap().success());
    let beats = fs::read_to_string(told.directory.join("beats")).unwrap();
    let beats = beats.lines().map(|line| line.split_once(' ').unwrap());
    let mut lags = Vec::new();
    for (n, at) in beats.map(|(n, at)| (n.parse::<i64>().unwrap(), at.parse::<u64>().unwrap())) {
        let by = seen.partition_point(|(newest, _)| *newest < n);
        if let Some((_, seen)) = seen.get(by).filter(|_| at > begun) {
            lags.push(Duration::from_nanos(seen.saturating_sub(at)));
        }
    }
    lags.sort();
    let at = |part: f64| lags[((lags.len() - 1) as f64 * part) as usize];
    let stats = follower.stats();
    let rate = fs::read_to_string(told.directory.join("rate")).unwrap();
    println!(
        "{rate} transfers a second, {} beats: lag p50 {:.1?}, p99 {:.1?}, max {:.1?}; {} parts, \
         {} files, away {away}, {:?}",
        lags.len(),
        at(0.5),
        at(0.99),
        at(1.0),
        stats.parts,
        stats.files - files,
        stats.stream_error
    );
}

/// `Replicated(1)` beside `Synced`, in pairs: writes a second of 128 clients.
#[test]
#[ignore = "long: the gate runs it"]
fn replicated_writes_beside_synced_ones() {
    let directory = tempfile::tempdir().unwrap();
    let told = Told::new(directory.path(), 1_000);
    let options = Options::new().readers(1).archive(told.primary());
    let db = options.durability(Durability::Replicated(1)).open(directory.path().join("shop.db"));
    let db = db.unwrap();
    create(&db);
    db.write(|tx| tx.execute_batch("CREATE TABLE other(id INTEGER PRIMARY KEY, pad)"))
        .wait()
        .unwrap();
    let _follower = told.start("follower");
    wait_until("it streams", || db.stats().archive.is_some_and(|archive| archive.followers == 1));
    let rate = |db: &Database| {
        let (count, start) = (AtomicU64::new(0), Instant::now());
        thread::scope(|scope| {
            for _ in 0..128 {
                scope.spawn(|| {
                    while start.elapsed() < Duration::from_secs(4) {
                        let sql = "INSERT INTO other(pad) VALUES (randomblob(100))";
                        db.write(|tx| tx.execute(sql, ())).wait().unwrap();
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        count.into_inner() as f64 / start.elapsed().as_secs_f64()
    };
    let synced = db.with_durability(Durability::Synced);
    for _ in 0..5 {
        let (one, other) = (rate(&synced), rate(&db));
        eprintln!("Synced {one:.0}/s, Replicated(1) {other:.0}/s: {:.2}", other / one);
    }
    db.close().unwrap();
}
