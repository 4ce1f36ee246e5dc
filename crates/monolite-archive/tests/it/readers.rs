//! Litestream's own readers beside a primary that writes: `litestream restore -f`, and its VFS.
//! Each read is sound and keeps the sum of all accounts, none goes back, none is older than
//! [`LAG`]. The same judgement notices a hole in the archive.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use monolite::rusqlite::{self, Connection, OpenFlags};
use monolite::{Database, Durability};
use monolite_archive::{
    Layout, Target,
    internals::{Level, restore},
};
use monolite_ltx::{Timestamp, Txid};

use crate::archiving::Bench;
use crate::programs::{Held, Running, Site, programs, wait_for};

/// How long a reader may lack what was committed.
const LAG: Duration = Duration::from_secs(10);

/// How long readers are watched.
const WATCHED: Duration = Duration::from_secs(15);

/// How many accounts there are, of 100 each.
const ACCOUNTS: i64 = 200;

/// How many transfers there were, and all balances and the size of the log behind them.
const STATE: &str = "SELECT n || ' ' || (SELECT total(balance) FROM account) || ' ' ||
    (SELECT group_concat(balance) FROM (SELECT balance FROM account ORDER BY id)) || ' ' ||
    (SELECT total(length(v)) FROM log) FROM transfers";

/// A database that is written to until this is dropped, and when each transfer was committed.
struct Primary {
    db: Database,
    committed: Mutex<Vec<Instant>>,
    ends: AtomicBool,
}

impl Primary {
    fn open(bench: &Bench) -> Primary {
        let archive = bench.archive().interval(Duration::from_millis(250));
        let db = bench.open_with(archive, Durability::Archived).unwrap();
        let sql = format!(
            "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER, v BLOB);
             CREATE INDEX by_balance ON account(balance);
             CREATE TABLE transfers(n INTEGER);
             CREATE TABLE log(v BLOB);
             INSERT INTO transfers VALUES (0);
             WITH RECURSIVE i(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM i LIMIT {ACCOUNTS})
             INSERT INTO account SELECT id, 100, randomblob(1000) FROM i"
        );
        db.write(move |tx| tx.execute_batch(&sql)).wait().unwrap();
        Primary { db, committed: Mutex::default(), ends: AtomicBool::new(false) }
    }

    /// Writes until it is to end. The database grows, and now and then shrinks.
    fn write(&self) {
        let db = self.db.with_durability(Durability::Synced);
        for n in 1.. {
            let [from, to, amount] = [ACCOUNTS, ACCOUNTS, 50].map(|most| fastrand::i64(1..=most));
            let transfer = db.write(move |tx| {
                let sql =
                    "UPDATE account SET balance = balance + ?2, v = randomblob(1000) WHERE id = ?1";
                tx.execute(sql, [from, -amount])?;
                tx.execute(sql, [to, amount])?;
                tx.execute("INSERT INTO log VALUES (randomblob(3000))", ())?;
                tx.execute("DELETE FROM log WHERE ?1 % 1000 = 0", [n])?;
                tx.execute("UPDATE transfers SET n = ?1", [n])
            });
            transfer.wait().unwrap();
            self.committed().push(Instant::now());
            if n % 1_000 == 0 {
                db.vacuum().wait().unwrap();
            }
            if self.ends.load(Ordering::Relaxed) {
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn committed(&self) -> std::sync::MutexGuard<'_, Vec<Instant>> {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `body` beside the transfers.
    fn beside<T>(&self, body: impl FnOnce() -> T) -> T {
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        thread::scope(|scope| {
            scope.spawn(|| self.write());
            let _ends = Ends(&self.ends);
            body()
        })
    }
}

/// What a reader has shown so far.
struct Judged<'a> {
    primary: &'a Primary,
    seen: usize,
    reads: u32,
    lag: Duration,
}

impl<'a> Judged<'a> {
    fn new(primary: &'a Primary) -> Judged<'a> {
        Judged { primary, seen: 0, reads: 0, lag: Duration::ZERO }
    }

    /// Judges one more read.
    fn read(&mut self, read: impl FnOnce() -> Result<String, String>) -> Result<(), String> {
        let since = Instant::now();
        let state = read()?;
        let mut words = state.split(' ');
        let seen = words.next().and_then(|word| word.parse().ok()).ok_or(state.clone())?;
        if words.next() != Some(&format!("{}.0", 100 * ACCOUNTS)) {
            return Err(format!("the sum is not kept: {state}"));
        }
        if seen < self.seen {
            return Err(format!("{seen} comes behind {}", self.seen));
        }
        // The first transfer that it lacks, if that was there when it read.
        let lacks = self.primary.committed().get(seen).copied();
        let lag = lacks.map_or(Duration::ZERO, |lacks| since.saturating_duration_since(lacks));
        (self.seen, self.reads, self.lag) = (seen, self.reads + 1, self.lag.max(lag));
        if lag > LAG { Err(format!("it lags by {lag:?}")) } else { Ok(()) }
    }
}

/// Litestream's two readers of an archive.
struct Readers {
    following: Running,
    /// A connection to the file that is followed.
    follower: Connection,
    held: Held,
}

impl Readers {
    fn open(bench: &Bench, [litestream, extension]: &[PathBuf; 2]) -> Readers {
        let site = Site::directory(bench.store().root());
        let follower = bench.directory.path().join("follower.db");
        let mut follow = site.litestream(litestream);
        follow.args(["restore", "-f", "-o"]).arg(&follower).arg(&site.theirs);
        let following = Running::start(&mut follow);
        wait_for("it follows", 30, || follower.with_file_name("follower.db-txid").exists());
        let follower = Connection::open(follower).unwrap();
        follower.busy_timeout(Duration::from_secs(5)).unwrap();
        // In WAL mode, as it is restored, an open connection would lock the follower out. And
        // cached pages are old: the change counter stays the same.
        let sql = "PRAGMA journal_mode = DELETE; PRAGMA cache_size = 0";
        follower.execute_batch(sql).unwrap();
        Readers { following, follower, held: Held::open(extension, &site) }
    }

    /// Stops both, or has them go on.
    fn signal(&self, signal: &str) {
        let processes = [&self.following.0, &self.held.0].map(|it| it.id().to_string());
        assert!(Command::new("kill").arg(signal).args(processes).status().unwrap().success());
    }
}

/// What a database has, if it is sound.
fn state(db: &Connection) -> Result<String, String> {
    let read = || {
        let sound: String = db.query_row("PRAGMA integrity_check", (), |row| row.get(0))?;
        if sound != "ok" {
            return Ok(Err(sound));
        }
        db.query_row(STATE, (), |row| row.get(0)).map(Ok)
    };
    read().unwrap_or_else(|error: rusqlite::Error| Err(error.to_string()))
}

fn state_of(path: &Path) -> String {
    state(&Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()).unwrap()
}

fn originals(test: &str) -> Option<[PathBuf; 2]> {
    let found = programs(test, ["litestream", "litestream-vfs.so", "sqlite3"]);
    found.map(|[litestream, extension, _]| [litestream, extension])
}

/// Some moments of the archive, as the VFS and as our restore give them. The VFS, when it opens or
/// travels, keeps pages behind the end of a database that has shrunk, which a check calls unused.
fn travels_as_we_restore(bench: &Bench, held: &mut Held) {
    let (store, layout) = (bench.store(), Layout::directory());
    let catalog = Site::directory(store.root()).catalog();
    let slots = catalog.level(Level::SLOTS);
    for slot in slots.iter().skip(slots.len() / 4).step_by(slots.len() / 5) {
        let time = slot.header(&store, &layout).unwrap().timestamp;
        let time = Timestamp::from_millis(time.millis() + 1);
        let output = bench.directory.path().join(format!("restored-{}.db", time.millis()));
        restore(&store, &layout, Target::Before(time), &output).unwrap();
        held.ask(&format!("PRAGMA litestream_time = '{time}';"));
        assert_eq!(held.ask(&format!("{STATE};")), [state_of(&output)], "before {time}");
    }
    held.ask("PRAGMA litestream_time = 'LATEST';");
    assert_eq!(held.ask(&format!("{STATE};")), [state_of(&bench.file())]);
}

#[test]
#[ignore = "long: the gate runs it"]
fn litestreams_readers_see_each_moment_of_a_primary_and_none_twice() {
    let test = "litestreams_readers_see_each_moment_of_a_primary_and_none_twice";
    let Some(originals) = originals(test) else { return };
    let bench = Bench::new();
    let primary = Primary::open(&bench);
    let mut readers = Readers::open(&bench, &originals);
    let (mut followed, mut held) = (Judged::new(&primary), Judged::new(&primary));
    primary.beside(|| {
        let since = Instant::now();
        while since.elapsed() < WATCHED {
            followed.read(|| state(&readers.follower)).expect("the follower");
            held.read(|| readers.held.sound(STATE)).expect("the VFS");
        }
    });
    for (name, judged) in [("follower", &followed), ("VFS", &held)] {
        println!("{name}: {} reads, lag at most {:?}", judged.reads, judged.lag);
        assert!(judged.reads > 20 && judged.seen > 0);
    }
    println!("{} transfers", primary.committed().len());
    primary.db.close().unwrap();
    let last = Ok(state_of(&bench.file()));
    wait_for("the follower has all", LAG.as_secs(), || state(&readers.follower) == last);
    wait_for("the VFS has all", LAG.as_secs(), || readers.held.sound(STATE) == last);
    travels_as_we_restore(&bench, &mut readers.held);
}

#[test]
#[ignore = "long: the gate runs it"]
fn hole_is_noticed_in_what_litestreams_readers_see() {
    let test = "hole_is_noticed_in_what_litestreams_readers_see";
    let Some(originals) = originals(test) else { return };
    let bench = Bench::new();
    let primary = Primary::open(&bench);
    let mut readers = Readers::open(&bench, &originals);
    let (mut followed, mut held) = (Judged::new(&primary), Judged::new(&primary));
    primary.beside(|| {
        let site = Site::directory(bench.store().root());
        let newest = || site.catalog().newest().unwrap();
        readers.signal("-STOP");
        let before = newest();
        wait_for("there are more slots", 10, || newest().get() > before.get() + 3);
        let hole = Layout::directory().slot(Txid::new(before.get() + 1).unwrap());
        std::fs::remove_file(bench.store().root().join(hole)).unwrap();
        readers.signal("-CONT");
        let mut noticed = [None, None];
        let since = Instant::now();
        while noticed.contains(&None) {
            assert!(since.elapsed() < 3 * LAG, "not noticed: {noticed:?}");
            let [of_follower, of_vfs] = &mut noticed;
            let read = of_follower.is_none().then(|| followed.read(|| state(&readers.follower)));
            *of_follower = of_follower.take().or(read.and_then(Result::err));
            let read = of_vfs.is_none().then(|| held.read(|| readers.held.sound(STATE)));
            *of_vfs = of_vfs.take().or(read.and_then(Result::err));
        }
        println!("after {:?}: {noticed:?}", since.elapsed());
    });
}
