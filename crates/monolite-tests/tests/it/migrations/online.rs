//! The online rebuild of a table: nothing that is written meanwhile is lost or doubled, whatever
//! ends it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use monolite::rusqlite::{self, Connection};
use monolite::{Database, ErrorKind, Migrations, RebuildPhase};

use super::rebuild::{dump, is_sound, plain};

const SCHEMA: &str = "CREATE TABLE p(id INTEGER PRIMARY KEY, name TEXT);
    CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, p INTEGER REFERENCES p(id) ON DELETE \
        CASCADE, u TEXT UNIQUE COLLATE NOCASE, n INTEGER, CONSTRAINT both UNIQUE (n, p));
    CREATE TABLE c(t INTEGER REFERENCES t(id) ON DELETE CASCADE, u TEXT);
    CREATE TABLE log(what TEXT);
    CREATE INDEX t_p ON t(p);
    CREATE INDEX t_n ON t(n DESC) WHERE n > 5;
    CREATE INDEX t_e ON t(lower(u));
    CREATE VIEW v AS SELECT id, u FROM t;
    CREATE TRIGGER t_log AFTER DELETE ON t BEGIN INSERT INTO log VALUES (OLD.u); END;
    CREATE TRIGGER t_more AFTER INSERT ON t WHEN NEW.n % 7 = 0 BEGIN
        UPDATE t SET n = NEW.n + 1000000 WHERE id = NEW.id; END;";

const REBUILD: &str = "CREATE TABLE t(
        id INTEGER PRIMARY KEY AUTOINCREMENT, p INTEGER REFERENCES p(id) ON DELETE CASCADE,
        u TEXT UNIQUE COLLATE NOCASE, n INTEGER NOT NULL CHECK (n >= 0), more TEXT DEFAULT 'x',
        twice INTEGER AS (n * 2), CONSTRAINT both UNIQUE (n, p));
    SELECT id, p, u, coalesce(n, 0) AS n FROM t;
    CREATE INDEX t_twice ON t(twice);";

fn online(body: &str) -> Migrations {
    of("-- monolite: rebuild=t online\n", body)
}

fn of(head: &str, body: &str) -> Migrations {
    Migrations::new().with("0001_rebuild.sql", &format!("{head}{body}")).unwrap()
}

fn fill(db: &Database, rows: i64) {
    let insert = format!(
        "INSERT INTO p SELECT value, 'p' || value FROM generate_series(1, 50);
         INSERT INTO t(p, u, n) SELECT 1 + i % 50, 'u' || i, i FROM \
         (WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x LIMIT {rows}) SELECT i FROM x);
         INSERT INTO c SELECT id, u FROM t WHERE id % 3 = 0;"
    );
    let insert = insert.replace(
        "SELECT value, 'p' || value FROM generate_series(1, 50)",
        "WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x LIMIT 50) SELECT i, 'p' || i \
         FROM x",
    );
    db.write(move |tx| tx.execute_batch(SCHEMA).and_then(|()| tx.execute_batch(&insert)))
        .wait()
        .unwrap();
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A statement that changes rows in one of the ways that there are.
fn change(random: &mut Random, rows: u64) -> String {
    let (a, b) = (1 + random.below(rows + rows / 10), 1 + random.below(rows));
    let p = 1 + random.below(60);
    match random.below(14) {
        0 => format!("INSERT OR IGNORE INTO t(p, u, n) VALUES (NULL, 'u{a}', {a})"),
        1 => format!("INSERT OR REPLACE INTO t(p, u, n) VALUES (NULL, 'U{a}', {b})"),
        2 => format!("REPLACE INTO t(id, u, n) VALUES ({a}, 'u{b}', {b})"),
        3 => format!("UPDATE OR REPLACE t SET u = 'u{a}' WHERE id = {b}"),
        4 => format!(
            "UPDATE OR REPLACE t SET id = {a} WHERE id = {b} AND id NOT IN (SELECT t FROM c)"
        ),
        5 => format!("DELETE FROM t WHERE id BETWEEN {a} AND {a} + 3"),
        6 => format!("DELETE FROM p WHERE id = {p}"),
        7 => format!("INSERT OR IGNORE INTO p VALUES ({p}, 'again')"),
        8 => format!(
            "INSERT INTO t(id, u, n) VALUES ({a}, 'n{a}', {b}) ON CONFLICT DO UPDATE SET n = n + 1"
        ),
        9 => format!("UPDATE t SET n = n + 1 WHERE id BETWEEN {a} AND {a} + 20"),
        10 => format!("UPDATE OR REPLACE t SET p = NULL, n = {b} WHERE id IN ({a}, {b})"),
        // It is the other one's, until both are changed.
        11 => format!(
            "UPDATE t SET u = 'swap' WHERE id = {a}; UPDATE OR IGNORE t SET u = 'u{a}' WHERE id = {b}; \
             UPDATE OR IGNORE t SET u = 'u{b}' WHERE u = 'swap'"
        ),
        12 => format!("INSERT OR FAIL INTO t(u, n) VALUES ('f{a}-{b}', {a}), ('g{a}-{b}', {b})"),
        _ => format!("UPDATE OR FAIL t SET n = {a} WHERE id = {b}"),
    }
}

/// Changes rows until `is_over`; gives what was acknowledged, in order.
fn changes(db: &Database, seed: u64, rows: u64, is_over: &AtomicBool) -> Vec<String> {
    let (mut random, mut made) = (Random(seed), Vec::new());
    while !is_over.load(Ordering::Acquire) {
        let sql = change(&mut random, rows);
        let (text, fails) = (sql.clone(), sql.contains("OR FAIL") || sql.contains("swap"));
        match db.write(move |tx| tx.execute_batch(&text)).wait() {
            Ok(()) => made.push(sql),
            Err(error) => assert!(
                error.kind() == ErrorKind::Constraint
                    && (fails || sql.contains("ON CONFLICT") || sql.contains("SET n = n + 1")),
                "{sql}: {error}"
            ),
        }
    }
    made
}

/// What the file has after the same changes, and a rebuild in one transaction.
fn offline(path: &Path, rows: i64, made: &[String]) -> String {
    let db = Database::open(path).unwrap();
    fill(&db, rows);
    for sql in made {
        let sql = sql.clone();
        db.write(move |tx| tx.execute_batch(&sql)).wait().unwrap();
    }
    of("-- monolite: rebuild=t\n", REBUILD).up(&db).wait().unwrap();
    db.close().unwrap();
    dump(&plain(path), "")
}

#[test]
fn it_gives_what_a_rebuild_of_the_same_history_in_one_transaction_gives() {
    let rows = 8_000;
    for seed in 1..=3 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("online.db");
        let db = Database::open(&path).unwrap();
        fill(&db, rows);
        let is_over = Arc::new(AtomicBool::new(false));
        let writer = {
            let (db, is_over) = (db.clone(), Arc::clone(&is_over));
            std::thread::spawn(move || changes(&db, seed, rows.unsigned_abs(), &is_over))
        };
        let up = online(REBUILD).up(&db).wait();
        is_over.store(true, Ordering::Release);
        let made = writer.join().unwrap();
        assert_eq!(up.unwrap(), ["0001_rebuild.sql"], "seed {seed}");
        db.close().unwrap();
        let (plain, expected) = (plain(&path), directory.path().join("offline.db"));
        assert!(is_sound(&plain), "seed {seed}");
        let expected = offline(&expected, rows, &made);
        assert!(dump(&plain, "") == expected, "seed {seed}, {} changes", made.len());
        assert_eq!(ours(&plain), 0, "seed {seed}");
    }
}

/// Objects of an online rebuild.
fn ours(plain: &Connection) -> i64 {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%monolite_rebuild%' OR sql LIKE \
               '%monolite_rebuild%'";
    plain.query_row(sql, (), |row| row.get(0)).unwrap()
}
