//! `--follow`: an application that goes on while its database is exported.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use monolite::rusqlite::Connection;
use monolite::rusqlite::config::DbConfig;
use monolite::{Database, ErrorKind, Options, Sharing, Tx};

use monolite_testkit::postgres_proxy::{Profile, Proxy};

use super::{Ground, export};
use crate::{complaint, monolite};

const SCHEMA: &str = "
    CREATE TABLE parent(id INTEGER PRIMARY KEY, name TEXT UNIQUE, n INTEGER DEFAULT 7) STRICT;
    CREATE TABLE child(id INTEGER PRIMARY KEY AUTOINCREMENT,
        parent INTEGER REFERENCES parent(id) ON DELETE CASCADE, v NUMERIC, twice AS (v * 2));
    CREATE TABLE word(k TEXT PRIMARY KEY, email TEXT, is_live INTEGER NOT NULL
        CHECK (is_live >= 0));
    CREATE UNIQUE INDEX word_email ON word(email) WHERE is_live > 0;
    CREATE TABLE pair(a TEXT, b BLOB, c TEXT COLLATE NOCASE, PRIMARY KEY(a, b), UNIQUE(c))
        WITHOUT ROWID;
    CREATE TABLE code(id INTEGER PRIMARY KEY, a INTEGER UNIQUE, g TEXT AS ('g' || a));
    CREATE VIEW big AS SELECT id FROM parent WHERE n > 10;
    CREATE VIEW texts AS SELECT q || '' AS w FROM (SELECT n > 10 AS q FROM parent) AS z;
    WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x WHERE i < 2000)
    INSERT INTO parent SELECT i, 'p' || i, i FROM x;
    INSERT INTO child(parent, v) SELECT id, id / 2.0 FROM parent;
    INSERT INTO word SELECT name, name || '@x', id % 2 FROM parent WHERE id < 500;
    INSERT INTO pair SELECT name, zeroblob(id % 7), 'C' || id FROM parent;";

/// What an application may do to its rows; `?1` is a number below 300, `?2` is a new one.
const CHANGES: &[&str] = &[
    "INSERT INTO parent VALUES (?2 + 100000, 'p' || ?2 || 'n', ?1)",
    "DELETE FROM parent WHERE id = ?1",
    "REPLACE INTO parent VALUES (?1, 'p' || (?1 + 1), ?2)",
    "UPDATE OR REPLACE parent SET name = 'p' || (?1 + 7) WHERE id = ?1",
    "UPDATE parent SET id = 200000 + ?2 WHERE id = (SELECT max(id) FROM parent) AND ?1 IS ?1",
    // Values that move between rows.
    "UPDATE parent SET name = name || '-' WHERE id IN (?1, ?1 + 1);
     UPDATE parent SET name = 'p' || (?1 + ?1 + 1 - id) || 's' WHERE id IN (?1, ?1 + 1)",
    "INSERT INTO parent VALUES (?1, 'u' || ?2, 1) ON CONFLICT (id) DO UPDATE SET n = n + 1",
    "INSERT INTO child(parent, v) SELECT id, ?2 FROM parent WHERE id >= ?1 LIMIT 3",
    "UPDATE child SET v = v + 1 WHERE id % 300 = ?1",
    "DELETE FROM child WHERE id % 300 = ?1 AND id % 7 = ?2 % 7",
    "REPLACE INTO word VALUES ('w' || ?2, 'p' || ?1 || '@x', 1)",
    "UPDATE OR REPLACE word SET email = 'p' || (?1 + 1) || '@x', is_live = 1 WHERE k = 'p' || ?1",
    "UPDATE word SET k = 'v' || ?2 WHERE k = (SELECT max(k) FROM word) AND ?1 IS ?1",
    // By the hidden rowid.
    "REPLACE INTO word(rowid, k, is_live) VALUES (?1, 'r' || ?2, 0)",
    "UPDATE OR REPLACE word SET rowid = ?1 WHERE k = (SELECT max(k) FROM word)",
    "REPLACE INTO pair VALUES ('p' || ?2, x'00', 'c' || ?1)",
    "UPDATE OR REPLACE pair SET c = 'c' || (?1 + 1) WHERE a = 'p' || ?1",
    "REPLACE INTO code(id, a) VALUES (?2, ?1)",
    "UPDATE OR REPLACE code SET a = a + 1 WHERE id IN (SELECT max(id) FROM code) AND ?1 IS ?1",
    "DELETE FROM word WHERE ?2 % 50 = 0 AND ?1 IS ?1",
];

fn change(tx: &Tx<'_>, number: i64) -> monolite::Result<()> {
    let mut random = number.unsigned_abs();
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (random >> 33) % below
    };
    for _ in 0..=next(3) {
        let sql = CHANGES[usize::try_from(next(CHANGES.len() as u64)).expect("it works")];
        let one = i64::try_from(next(300)).expect("it works") + 1;
        for sql in sql.split(';') {
            match sql.contains("?2") {
                true => tx.execute(sql, [one, number])?,
                false => tx.execute(sql, [one])?,
            };
        }
    }
    Ok(())
}

/// An export that follows.
struct Follower {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
    said: String,
}

impl Follower {
    fn of(source: &Path, url: &str) -> Follower {
        Follower::with(source, url, &[])
    }

    fn with(source: &Path, url: &str, words: &[&str]) -> Follower {
        let mut child = Command::new(env!("CARGO_BIN_EXE_monolite"))
            .args([
                "export",
                "postgres",
                source.to_str().expect("it works"),
                "--to",
                url,
                "--follow",
            ])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it works");
        let lines = BufReader::new(child.stderr.take().expect("it works")).lines();
        Follower { child, lines, said: String::new() }
    }

    /// Waits for a line that has `part`.
    fn wait_for(&mut self, part: &str) {
        for line in self.lines.by_ref() {
            let line = line.expect("it works");
            self.said.push_str(&line);
            if line.contains(part) {
                return;
            }
        }
        panic!("not said: {part}: {}", self.said);
    }

    fn switch(&mut self) {
        self.child
            .stdin
            .as_mut()
            .expect("it works")
            .write_all(b"swich\nSwitch\n")
            .expect("it works");
    }

    fn signal(&self, name: &str) {
        let kill = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(kill.expect("it works").success());
    }

    /// Its exit code, and all that it has said.
    fn end(mut self) -> (Option<i32>, String) {
        for line in self.lines.by_ref() {
            self.said.push_str(&line.expect("it works"));
        }
        let mut report = self.child.stdout.take().expect("it works");
        report.read_to_string(&mut self.said).expect("it works");
        (self.child.wait().expect("it works").code(), self.said)
    }
}

/// Ends the writer, also if an assertion fails.
struct EndsIt<'o>(&'o AtomicBool);

impl Drop for EndsIt<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn schema_of(file: &Path) -> Vec<String> {
    let plain = Connection::open(file).expect("it works");
    let mut find = plain
        .prepare("SELECT coalesce(sql, name) FROM sqlite_schema ORDER BY 1")
        .expect("it works");
    find.query_map((), |row| row.get(0))
        .expect("it works")
        .collect::<Result<_, _>>()
        .expect("it works")
}

const TABLES: &str = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";

#[test]
fn no_change_before_the_switch_is_lost_or_doubled_and_none_is_made_after_it() {
    let Some(ground) = Ground::of("export: follow") else { return };
    let url = ground.database("followed");
    let source = ground.source("followed.db", SCHEMA);
    let before = schema_of(&source);
    let db = Options::new().sharing(Sharing::Shared).open(&source).unwrap();
    let made = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let wait = |count: u64| {
        let until = made.load(Ordering::Relaxed) + count;
        while made.load(Ordering::Relaxed) < until && !is_over.load(Ordering::Relaxed) {
            thread::park_timeout(Duration::from_millis(1));
        }
    };
    let refusal = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let over = EndsIt(&is_over);
            let mut number = 0;
            while !over.0.load(Ordering::Relaxed) {
                number += 1;
                match db.write(move |tx| change(tx, number)).wait() {
                    Ok(()) => _ = made.fetch_add(1, Ordering::Relaxed),
                    Err(error) if error.to_string().contains("moved") => return error.to_string(),
                    // Two values that are equal in a unique index, now and then.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Constraint, "{error}"),
                }
            }
            String::new()
        });
        let _over = EndsIt(&is_over);
        wait(20);
        let mut follower = Follower::of(&source, &url);
        follower.wait_for("all rows were compared");
        wait(300);
        follower.switch();
        follower.wait_for("switched: PostgreSQL has all");
        let (code, said) = follower.end();
        assert!(said.contains("\"swich\" is not known; enter switch"), "{said}");
        wait(1_000);
        is_over.store(true, Ordering::Relaxed);
        let refusal = writer.join().unwrap();
        // A collation is not carried.
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains("view texts: it answers otherwise"), "{said}");
        refusal
    });
    assert!(refusal.contains("this database has moved to PostgreSQL"), "{refusal}");
    db.close().unwrap();
    let ask = |sql: &str| ground.ask("followed", sql).unwrap();
    assert_eq!(ask("SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND convalidated"), "1");
    let next = "INSERT INTO child(parent) VALUES (NULL) RETURNING
                id > (SELECT max(id) FROM child) AND (SELECT count(*) > 0 FROM big)";
    assert_eq!(ask(next), "t");
    ask("DELETE FROM child WHERE id = (SELECT max(id) FROM child)");
    let compared = export(&source, &url, &["--verify"]);
    assert_eq!(compared.status.code(), Some(0), "{}", complaint(&compared));

    let left = schema_of(&source);
    assert_eq!(left.len(), before.len() + 15, "what refuses writes alone is left: {left:?}");
    let file = source.to_str().unwrap();
    assert!(monolite(&["export", "postgres", file, "--abort"]).status.success());
    assert_eq!(schema_of(&source), before);
    Connection::open(&source).unwrap().execute("DELETE FROM word", ()).unwrap();
}

#[test]
fn a_source_whose_commit_was_not_answered_refuses_writes() {
    let Some(ground) = Ground::of("export: a lost COMMIT") else { return };
    let proxy = Proxy::start(ground.server.port()).unwrap();
    let url = ground.database("unanswered");
    let url = url.replace(&ground.server.port().to_string(), &proxy.port().to_string());
    let source = ground.source("unanswered.db", SCHEMA);
    let mut follower = Follower::of(&source, &url);
    follower.wait_for("all rows were compared");
    proxy.set(Profile::CutsEachCommit);
    follower.switch();
    let (code, said) = follower.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("SOURCE refuses writes now: if PostgreSQL has the tables"), "{said}");
    assert_eq!(ground.ask("unanswered", "SELECT count(*) FROM parent").unwrap(), "2000");
    let delete = || Connection::open(&source).unwrap().execute("DELETE FROM word", ());
    assert!(delete().unwrap_err().to_string().contains("moved to PostgreSQL"));
    let file = source.to_str().unwrap();
    assert!(monolite(&["export", "postgres", file, "--abort"]).status.success());
    delete().unwrap();
}

#[test]
fn a_table_that_is_being_rebuilt_is_not_followed() {
    let Some(ground) = Ground::of("export: follow a rebuild") else { return };
    let source = ground.source("rebuilt.db", SCHEMA);
    let db = Database::open(&source).unwrap();
    let text = "-- monolite: rebuild=parent online
        CREATE TABLE parent(id INTEGER PRIMARY KEY, name TEXT UNIQUE, n INTEGER) STRICT;";
    let all = monolite::Migrations::new().with("0001_n.sql", text).unwrap();
    let up = all.up(&db);
    while all.status(&db).unwrap().rebuilding.is_none() {
        assert!(!all.status(&db).unwrap().pending.is_empty(), "it was too fast");
    }
    up.cancel();
    up.wait().unwrap_err();
    db.close().unwrap();
    let before = schema_of(&source);
    let (code, said) = Follower::of(&source, &ground.database("rebuilt")).end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("rebuilt online") && schema_of(&source) == before, "{said}");
}

#[test]
fn a_change_that_no_trigger_noted_is_found_by_the_comparison() {
    let Some(ground) = Ground::of("export: follow without triggers") else { return };
    for (name, is_early, sql, said) in [
        ("missed", false, "DELETE FROM parent WHERE id = 7", "parent has"),
        ("other", false, "UPDATE parent SET n = -1 WHERE id = 7", "parent: its rows"),
        ("unfit", false, "INSERT INTO parent VALUES (9999, char(0), 1)", "row id=9999, name"),
        ("tampered", true, "DROP TRIGGER \"monolite export 0 delete\"", "0 delete"),
    ] {
        let (url, file) = (ground.database(name), format!("{name}.db"));
        let source = ground.source(&file, SCHEMA);
        let app = Connection::open(&source).unwrap();
        app.busy_timeout(Duration::from_secs(60)).unwrap();
        let mut follower = Follower::of(&source, &url);
        follower.wait_for("all rows were compared");
        app.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).unwrap();
        app.execute_batch(sql).unwrap();
        if !is_early {
            follower.switch();
        }
        let (code, all) = follower.end();
        assert_eq!(code, Some(1), "{all}");
        assert!(all.contains(said), "{all}");
        assert_eq!(all.contains("SOURCE refuses writes until --abort"), !is_early, "{all}");
    }
}

#[test]
fn rows_are_compared_beside_an_application_that_writes_without_a_pause() {
    let Some(ground) = Ground::of("export: follow under load") else { return };
    let url = ground.database("loaded");
    let source = ground.source(
        "loaded.db",
        "PRAGMA journal_mode = WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER);
         WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x WHERE i < 100000)
         INSERT INTO t SELECT i, i FROM x;",
    );
    let before = schema_of(&source);
    let (is_over, start) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        let write = || {
            let app = Connection::open(&source).unwrap();
            app.busy_timeout(Duration::from_secs(60)).unwrap();
            app.pragma_update(None, "synchronous", "NORMAL").unwrap();
            let mut from = 0_i64;
            // Long enough for the line that is waited for, and no longer.
            while start.elapsed() < Duration::from_secs(120) && !is_over.load(Ordering::Relaxed) {
                let some = "UPDATE t SET v = v + 1 WHERE id > ?1 AND id <= ?1 + 1000";
                app.execute(some, [from]).unwrap();
                from = (from + 1_000) % 100_000;
            }
            is_over.store(true, Ordering::Relaxed);
        };
        for _ in 0..3 {
            scope.spawn(write);
        }
        let _over = EndsIt(&is_over);
        let mut follower = Follower::of(&source, &url);
        follower.wait_for("all rows were compared");
        assert!(!is_over.load(Ordering::Relaxed), "not before it paused: {}", follower.said);
        follower.signal("INT");
        let (code, said) = follower.end();
        assert!(code == Some(130) && said.contains("its triggers are removed"), "{said}");
    });
    assert_eq!(schema_of(&source), before);
}

/// A change that PostgreSQL does not take, how it is undone, and what is said of it.
const NOT_CARRIED: [(&str, &str, &str); 5] = [
    ("CREATE INDEX later ON child(v)", "DROP INDEX later", "(index later)"),
    (
        "UPDATE child SET v = 'text' WHERE id = 3",
        "UPDATE child SET v = 1 WHERE id = 3",
        "correct them:  child row id=3, v: the text \"text\", and the column is double precision",
    ),
    (
        "INSERT INTO pair VALUES ('a', 7, 'new')",
        "DELETE FROM pair WHERE c = 'new'",
        "pair row a=\"a\", b=7, b: the integer 7, and the column is bytea",
    ),
    (
        "UPDATE child SET v = 9007199254740993 WHERE id = 3",
        "UPDATE child SET v = 1 WHERE id = 3",
        "child row id=3, v: the integer 9007199254740993",
    ),
    (
        "UPDATE parent SET name = 'a' || char(0) WHERE id = 3",
        "UPDATE parent SET name = 'a' WHERE id = 3",
        "parent row id=3, name: a text with a NUL",
    ),
];

#[test]
fn an_export_that_does_not_come_to_the_switch_leaves_nothing() {
    let Some(ground) = Ground::of("export: follow, given up") else { return };
    let url = ground.database("given_up");
    let source = ground.source("given_up.db", SCHEMA);
    let before = schema_of(&source);
    let app = Connection::open(&source).unwrap();
    app.busy_timeout(Duration::from_secs(60)).unwrap();
    let file = source.to_str().unwrap();
    let begun = || {
        let mut follower = Follower::of(&source, &url);
        follower.wait_for("all rows were compared");
        follower
    };

    app.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut follower = Follower::of(&source, &url);
    follower.wait_for("waiting until a write there ends");
    app.execute_batch("COMMIT").unwrap();
    follower.wait_for("all rows were compared");
    let second = Follower::of(&source, &ground.database("second")).end();
    assert!(second.0 == Some(1) && second.1.contains("--abort"), "{}", second.1);
    follower.signal("INT");
    let (code, said) = follower.end();
    assert_eq!(code, Some(130), "{said}");
    assert_eq!(schema_of(&source), before);

    for (sql, undo, part) in NOT_CARRIED {
        let follower = begun();
        app.execute_batch(sql).unwrap();
        let (code, said) = follower.end();
        assert!(code == Some(1) && said.contains(part), "{sql}: {said}");
        app.execute_batch(undo).unwrap();
        assert_eq!(schema_of(&source), before, "{sql}");
    }

    let mut follower = begun();
    drop(follower.child.stdin.take());
    let (code, said) = follower.end();
    assert!(code == Some(1) && said.contains("standard input has ended"), "{said}");
    assert_eq!(schema_of(&source), before);

    let follower = begun();
    follower.signal("KILL");
    follower.end();
    assert_ne!(schema_of(&source), before);
    app.execute("DELETE FROM child WHERE id = 9", ()).unwrap();
    let (code, said) = Follower::of(&source, &url).end();
    assert!(code == Some(1) && said.contains("--abort removes what it has made"), "{said}");
    let aborted = monolite(&["export", "postgres", file, "--abort"]);
    assert!(aborted.status.success(), "{}", complaint(&aborted));
    assert_eq!(schema_of(&source), before);
    assert_eq!(ground.ask("given_up", TABLES), Ok("0".into()));
    drop(app);

    let held = Database::open(&source).unwrap();
    let (code, said) = Follower::of(&source, &url).end();
    assert!(code == Some(1) && said.contains("Sharing::Shared"), "{said}");
    held.close().unwrap();
    let made = export(&source, &url, &[]);
    assert_eq!(made.status.code(), Some(3), "{}", complaint(&made));
}

#[test]
fn rows_that_cannot_be_told_apart_are_refused_before_anything_is_done() {
    let Some(ground) = Ground::of("export: follow without keys") else { return };
    let url = ground.database("keyless");
    let source = ground.source(
        "keyless.db",
        "CREATE TABLE a(x); CREATE TABLE b(k TEXT COLLATE NOCASE PRIMARY KEY);
         CREATE TABLE c(k TEXT PRIMARY KEY, v); INSERT INTO c VALUES (NULL, 1);
         CREATE TABLE e(k INTEGER PRIMARY KEY, v, low AS (lower(v)) UNIQUE);
         CREATE TABLE f(k INTEGER PRIMARY KEY, v); CREATE UNIQUE INDEX g ON f(v + 0);
         CREATE TABLE h(k INTEGER PRIMARY KEY, v TEXT NOT NULL DEFAULT 'x' UNIQUE);
         CREATE TABLE i(k INTEGER PRIMARY KEY, v NOT NULL UNIQUE, w DEFAULT 1, x UNIQUE);
         CREATE UNIQUE INDEX j ON i(w) WHERE v > 1;
         CREATE TABLE l(k TEXT DEFAULT 'x' PRIMARY KEY) WITHOUT ROWID;
         CREATE TABLE m(a, b, PRIMARY KEY(a, b));
         CREATE TRIGGER n BEFORE UPDATE OF a ON M BEGIN UPDATE m SET b = 7; END;
         CREATE TABLE o(k INTEGER PRIMARY KEY, v);
         CREATE TRIGGER p BEFORE UPDATE ON o BEGIN SELECT 1; END;",
    );
    let before = schema_of(&source);
    let (code, said) = Follower::of(&source, &url).end();
    assert_eq!(code, Some(1), "{said}");
    for part in [
        "a has no primary key",
        "b has a primary key with a collation",
        "c has rows with NULL",
        "e has a unique index with an expression",
        "f has a unique index with",
        "h has a unique index with",
        "l has a unique index with",
        "m has a trigger before an UPDATE",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!said.contains("i has") && !said.contains("o has"), "{said}");
    assert_eq!(schema_of(&source), before);
    let mixed = ground.source(
        "mixed_key.db",
        "CREATE TABLE d(k PRIMARY KEY) WITHOUT ROWID; INSERT INTO d VALUES (1), ('x');",
    );
    let before = schema_of(&mixed);
    let (code, said) = Follower::with(&mixed, &url, &["--mixed", "text"]).end();
    assert!(code == Some(1) && said.contains("k holds values of several types"), "{said}");
    assert_eq!(schema_of(&mixed), before);
}
