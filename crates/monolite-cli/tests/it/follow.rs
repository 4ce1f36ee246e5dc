//! `monolite follow` in a process of its own: killed at random moments and started again, beside a
//! primary that writes; and what it says at its end.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use monolite::rusqlite::{Connection, OpenFlags};
use monolite::{Database, Durability, Options};
use monolite_archive::Archive;

use crate::{complaint, monolite};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn primary(directory: &Path) -> Database {
    let url = directory.join("archive");
    let archive = Archive::at(url.to_str().expect("it is text")).expect("it is an address");
    let archive = archive.interval(Duration::from_millis(5)).time_limit(PATIENCE);
    let options = Options::new().archive(archive).durability(Durability::Archived);
    options.open(directory.join("shop.db")).expect("it opens")
}

/// All rows have the number of the last group, which has added one.
fn group(db: &Database, n: i64) {
    let written = db.write(move |tx| {
        tx.execute("INSERT INTO t VALUES (?1, 0, randomblob(300))", [n])?;
        tx.execute("UPDATE t SET v = ?1", [n])?;
        if n % 10 == 0 {
            tx.execute_batch(&format!("CREATE TABLE u{n}(x); INSERT INTO u{n} VALUES ({n})"))?;
        }
        Ok(())
    });
    written.wait().expect("it is archived");
}

/// The group that the file has, if it is one whole.
fn state(file: &Path) -> i64 {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let db = Connection::open_with_flags(file, flags).expect("it opens");
    db.busy_timeout(PATIENCE).expect("it is set");
    let sound: String =
        db.query_row("PRAGMA integrity_check", (), |row| row.get(0)).expect("it is read");
    assert_eq!(sound, "ok");
    let sql = "SELECT count(*), coalesce(min(v), 0), coalesce(max(v), 0), total(id) FROM t";
    let found: [i64; 4] = db
        .query_row(sql, (), |row| {
            Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, f64>(3)? as i64])
        })
        .expect("it is read");
    let n = found[0];
    assert_eq!(found, [n, n, n, n * (n + 1) / 2]);
    n
}

fn start(directory: &Path) -> Child {
    let (url, file) = (directory.join("archive"), directory.join("copy.db"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_monolite"));
    command.arg("follow").args([url, file]).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "it takes too long until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn kills() -> u32 {
    std::env::var("MONOLITE_FOLLOW_KILLS").ok().and_then(|it| it.parse().ok()).unwrap_or(12)
}

#[test]
fn follower_that_is_killed_at_any_moment_goes_on() {
    let directory = tempfile::tempdir().expect("it works");
    let directory = directory.path();
    let db = primary(directory);
    let sql = "CREATE TABLE t(id INTEGER PRIMARY KEY, v, pad); CREATE INDEX i ON t(v)";
    db.write(move |tx| tx.execute_batch(sql)).wait().expect("it is archived");
    let (is_over, written) = (AtomicBool::new(false), AtomicI64::new(0));
    let copy = directory.join("copy.db");
    let last = thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut n = 0;
            while !is_over.load(Ordering::Relaxed) {
                n += 1;
                group(&db, n);
                written.store(n, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(3));
            }
            n
        });
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let ends = Ends(&is_over);
        let mut seen = 0;
        for kill in 0..kills() {
            let mut child = start(directory);
            thread::sleep(Duration::from_millis(40 + u64::from(kill * 37 % 230)));
            child.kill().expect("it is killed");
            child.wait().expect("it has ended");
            // A stock reader recovers and copies what the kill left; or the next start does.
            if copy.exists() && kill % 2 == 0 {
                let n = state(&copy);
                assert!(n >= seen && n <= written.load(Ordering::Relaxed) + 1, "{n} behind {seen}");
                seen = n;
            }
        }
        drop(ends);
        writing.join().expect("it has written")
    });
    let child = start(directory);
    wait_until("it is restored", || copy.exists());
    wait_until("it has all", || state(&copy) == last);
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("it runs").success());
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(0), "{}", complaint(&ended));
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(said.ends_with("up to date\n") && !said.contains("copies"), "{said}");
    db.close().expect("it closes");
    let bytes = |file: PathBuf| std::fs::read(file).expect("it is there");
    assert!(bytes(copy) == bytes(directory.join("shop.db")), "byte by byte");
}

#[test]
fn what_cannot_be_followed_ends_with_an_error() {
    let directory = tempfile::tempdir().expect("it works");
    let directory = directory.path();
    let (url, file) = (directory.join("nothing"), directory.join("copy.db"));
    let ended = monolite(&[Path::new("follow"), &url, &file]);
    assert_eq!(ended.status.code(), Some(1), "{}", complaint(&ended));
    let (complaint, begun) = (complaint(&ended), "has begun\n");
    assert!(complaint.contains("nothing at") && complaint.ends_with(begun), "{complaint}");
    assert!(!file.exists() && !file.with_extension("db-archive").exists());
}

#[test]
fn follower_without_its_store_does_not_say_that_it_is_up_to_date() {
    let directory = tempfile::tempdir().expect("it works");
    let directory = directory.path();
    let db = primary(directory);
    db.write(|tx| tx.execute_batch("CREATE TABLE t(x)")).wait().expect("it is archived");
    db.close().expect("it closes");
    let mut child = start(directory);
    let mut said = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut line = || said.next().expect("it goes on").expect("it is read");
    assert!(line().ends_with("up to date"));
    let place = directory.join("archive");
    std::fs::rename(&place, directory.join("away")).expect("it is moved");
    std::fs::write(place, "no directory").expect("it is free");
    let line = line();
    assert!(line.contains("it was up to date") && line.ends_with("ago"), "{line}");
    child.kill().expect("it is killed");
    child.wait().expect("it has ended");
}

fn rows(file: &Path) -> i64 {
    let db = Connection::open(file).expect("it opens");
    db.query_row("SELECT count(*) FROM t", (), |row| row.get(0)).expect("it is read")
}

/// The program of a promoted file: it writes a row, and uploads no copy.
fn goes_on(directory: &Path, file: &Path) {
    let url = directory.join("archive");
    let archive = Archive::at(url.to_str().expect("it is text")).expect("it is an address");
    let options = Options::new().archive(archive).durability(Durability::Archived);
    let db = options.open(file).expect("it goes on");
    db.write(|tx| tx.execute("INSERT INTO t VALUES (77, 0, 0)", ()))
        .wait()
        .expect("it is archived");
    db.close().expect("it closes");
    let copies = std::fs::read_dir(directory.join("archive/ltx/9")).expect("it is there").count();
    assert_eq!(copies, 1);
}

#[test]
fn file_that_streams_has_what_is_not_archived_yet() {
    let directory = tempfile::tempdir().expect("it works");
    let directory = directory.path();
    let at = |name: &str| directory.join(name).display().to_string();
    let free = TcpListener::bind("127.0.0.1:0").expect("a free one").local_addr();
    let address = free.expect("it has one").to_string();
    for (name, secret) in [("secret", "a secret of tests\n"), ("other", "another one's secret")] {
        std::fs::write(directory.join(name), secret).expect("it is written");
    }
    let archive = Archive::at(&at("archive")).expect("it is an address");
    // What is not waited for is archived in a minute.
    let archive = archive.interval(PATIENCE).stream_to(&address, b"a secret of tests");
    let db = Options::new().archive(archive).open(directory.join("shop.db")).expect("it opens");
    let create = "CREATE TABLE t(id INTEGER PRIMARY KEY, v, pad)";
    db.write(|tx| tx.execute_batch(create)).wait().expect("it is written");
    db.read_archived(|_| Ok(())).wait().expect("it is archived");
    let start = |file: &str, secret: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_monolite"));
        command.args(["follow", &at("archive"), &at(file), "--stream", &at(secret), "--json"]);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let mut stranger = start("other.db", "other");
    let said = BufReader::new(stranger.stdout.take().expect("it is piped")).lines();
    let mut said = said.map(|line| line.expect("it is read"));
    let refused = said.find(|line| line.contains("stream_error\":\""));
    let refused = refused.expect("it goes on by the archive");
    assert!(refused.contains("give both sides the same secret"), "{refused}");
    stranger.kill().expect("it is killed");
    stranger.wait().expect("it has ended");
    let mut child = start("copy.db", "secret");
    let streams = || db.stats().archive.is_some_and(|archive| archive.followers == 1);
    wait_until("it streams", streams);
    let began = Instant::now();
    for n in 1..=10 {
        group(&db, n);
        wait_until("it has it", || rows(&directory.join("copy.db")) == n);
    }
    assert!(began.elapsed() < PATIENCE, "before it is archived");
    child.kill().expect("it is killed");
    child.wait().expect("it has ended");
    db.close().expect("it closes");
}

#[test]
fn closed_primary_is_taken_over_from_and_a_command_runs() {
    let directory = tempfile::tempdir().expect("it works");
    let directory = directory.path();
    let url = directory.join("archive");
    let archive = Archive::at(url.to_str().expect("it is text")).expect("it is an address");
    let archive = archive.lease(Some(Duration::from_secs(1)));
    let options = Options::new().archive(archive).durability(Durability::Archived);
    let db = options.open(directory.join("shop.db")).expect("it opens");
    db.write(|tx| tx.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v, pad)"))
        .wait()
        .expect("it is archived");
    let copy = directory.join("copy.db");
    let mut command = Command::new(env!("CARGO_BIN_EXE_monolite"));
    command.arg("follow").args([&url, &copy]).args(["--takeover", "--lease", "2s"]);
    command.args(["--address", "standby:7", "--exec"]);
    command.arg("echo $MONOLITE_ROLE $MONOLITE_EPOCH $MONOLITE_ADDRESS $MONOLITE_FILE");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("it starts");
    wait_until("it follows", || copy.exists());
    for n in 1..=5 {
        group(&db, n);
        thread::sleep(Duration::from_millis(300));
    }
    db.close().expect("it closes");
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(0), "{}", complaint(&ended));
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    let told = format!("primary 2 standby:7 {}\n", copy.display());
    assert!(said.ends_with(&told) && said.contains("the primary's from now on"), "{said}");
    goes_on(directory, &copy);
    assert_eq!(rows(&copy), 6);
}

#[test]
fn operator_promotes_a_file_and_the_former_primary_keeps_its_orphan() {
    let directory = tempfile::tempdir().expect("it works");
    let directory = directory.path();
    let db = primary(directory);
    db.write(|tx| tx.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v, pad)"))
        .wait()
        .expect("it is archived");
    group(&db, 1);
    let (url, copy) = (directory.join("archive"), directory.join("copy.db"));
    let address = ["--address", "next:1"].map(Path::new);
    let promote = [Path::new("promote"), &url, &copy, address[0], address[1]];
    // Done already, it says the same.
    let told = [(); 2].map(|()| {
        let ended = monolite(&promote);
        assert_eq!(ended.status.code(), Some(0), "{}", complaint(&ended));
        String::from_utf8(ended.stdout).expect("it is text")
    });
    assert!(told[0].contains("the primary's from now on (epoch 2)"), "{told:?}");
    assert_eq!(told[0], told[1]);
    // The primary lives on, and does not know yet.
    let synced = db.with_durability(Durability::Synced);
    let _ = synced.write(|tx| tx.execute("INSERT INTO t VALUES (9, 0, 0)", ())).wait();
    let refused = db.write(|tx| tx.execute("INSERT INTO t VALUES (8, 0, 0)", ())).wait();
    let refused = refused.expect_err("it is fenced");
    assert_eq!(refused.kind(), monolite::ErrorKind::Fenced);
    assert!(refused.to_string().contains("next:1"), "{refused}");
    // What it says of its archive.
    let _ = db.close();
    goes_on(directory, &copy);
    assert_eq!(rows(&copy), 2);
    let file = directory.join("shop.db");
    let mut command = Command::new(env!("CARGO_BIN_EXE_monolite"));
    let child = command.arg("follow").args([&url, &file]).stderr(Stdio::piped()).spawn();
    let child = child.expect("it starts");
    wait_until("it follows", || {
        std::fs::metadata(directory.join("shop.db-archive/position.json")).is_err()
            && rows(&file) == 2
    });
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("it runs").success());
    let ended = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    let orphan = said.split_whitespace().find(|word| word.contains(".orphan-1-")).expect("told");
    let restored = directory.join("orphan.db");
    let ended = monolite(&[
        Path::new("restore"),
        &url,
        Path::new("--orphan"),
        Path::new(orphan),
        Path::new("-o"),
        &restored,
    ]);
    assert_eq!(ended.status.code(), Some(0), "{}", complaint(&ended));
    assert!(rows(&restored) >= 2, "its own row, and not the successor's");
    let db = Connection::open(&restored).expect("it opens");
    let count = |id: i64| {
        let sql = "SELECT count(*) FROM t WHERE id = ?1";
        db.query_row(sql, [id], |row| row.get::<_, i64>(0)).expect("it is read")
    };
    assert_eq!((count(9), count(77)), (1, 0));
}
