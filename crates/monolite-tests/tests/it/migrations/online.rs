//! The online rebuild of a table: nothing that is written meanwhile is lost or doubled, whatever
//! ends it.

mod changed;
mod kept;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use monolite::rusqlite::Connection;
use monolite::{Database, ErrorKind, Migrations};

use monolite_testkit::mounts::{Mount, say_skipped};

use super::rebuild::{dump, is_sound, plain};

const SCHEMA: &str = "CREATE TABLE p(id INTEGER PRIMARY KEY, name TEXT);
    CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, p INTEGER REFERENCES p(id) ON DELETE \
        CASCADE, u TEXT UNIQUE COLLATE NOCASE, n INTEGER, CONSTRAINT both UNIQUE (n, p));
    CREATE TABLE c(t INTEGER REFERENCES t(id) ON DELETE CASCADE, u TEXT);
    CREATE TABLE log(what TEXT);
    CREATE INDEX t_p ON t(p);
    CREATE UNIQUE INDEX t_up ON t(u COLLATE BINARY DESC, p);
    CREATE INDEX t_n ON t(n DESC) WHERE n > 5;
    CREATE INDEX t_e ON t(lower(u));
    CREATE VIEW v AS SELECT id, u FROM t;
    CREATE TRIGGER t_log AFTER DELETE ON T BEGIN INSERT INTO log VALUES (OLD.u); END;
    CREATE TRIGGER t_more AFTER INSERT ON t WHEN NEW.n % 7 = 0 BEGIN
        UPDATE t SET n = NEW.n + 1000000 WHERE id = NEW.id; END;";

const REBUILD: &str = "CREATE TABLE t(
        id INTEGER PRIMARY KEY AUTOINCREMENT, p INTEGER REFERENCES p(id) ON DELETE CASCADE,
        u TEXT UNIQUE COLLATE NOCASE, n INTEGER NOT NULL CHECK (n >= 0), more TEXT DEFAULT 'x',
        twice INTEGER AS (n * 2), CONSTRAINT both UNIQUE (n, p));
    SELECT id, p, u, coalesce(n, 0) AS n FROM t;
    CREATE INDEX t_twice ON t(\"twice\");";

fn online(body: &str) -> Migrations {
    of("-- monolite: rebuild=t online\n", body)
}

fn of(head: &str, body: &str) -> Migrations {
    Migrations::new().with("0001_rebuild.sql", &format!("{head}{body}")).unwrap()
}

fn fill(db: &Database, rows: i64) {
    let insert = format!(
        "INSERT INTO p WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x LIMIT 50)
         SELECT i, 'p' || i FROM x;
         INSERT INTO t(p, u, n) WITH RECURSIVE x(i) AS
         (SELECT 1 UNION ALL SELECT i + 1 FROM x LIMIT {rows})
         SELECT 1 + i % 50, 'u' || i, i FROM x;
         INSERT INTO c SELECT id, u FROM t WHERE id % 3 = 0;"
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
            "UPDATE t SET u = 'swap' WHERE id = {a};
             UPDATE OR IGNORE t SET u = 'u{a}' WHERE id = {b};
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
    let rows = 12_000;
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
        assert!(made.len() > 20, "{} changes", made.len());
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

/// A database whose online rebuild has begun and is cancelled, and its migrations. The `SELECT`
/// gives what `body` says.
fn paused(path: &Path, rows: i64, all: &Migrations) -> Database {
    let db = Database::open(path).unwrap();
    fill(&db, rows);
    pause(&db, all);
    db
}

/// Begins an online rebuild, and cancels it once it has copied rows.
fn pause(db: &Database, all: &Migrations) {
    let (up, begun) = (all.up(db), std::time::Instant::now());
    while all.status(db).unwrap().rebuilding.is_none_or(|it| it.rows == 0) {
        assert!(begun.elapsed().as_secs() < 60, "it has ended before, or copies nothing");
    }
    up.cancel();
    assert_eq!(up.wait().unwrap_err().kind(), ErrorKind::Aborted);
}

fn write(db: &Database, sql: &str) -> monolite::Result<()> {
    let sql = sql.to_owned();
    db.write(move |tx| tx.execute_batch(&sql)).wait()
}

#[test]
fn one_that_is_paused_goes_on_or_leaves_no_trace() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let all = online(REBUILD);
    let db = paused(&path, 20_000, &all);
    let at = all.status(&db).unwrap().rebuilding.unwrap();
    assert_eq!((&*at.migration, &*at.table, at.total), ("0001_rebuild.sql", "t", 20_000));
    assert!(all.plan(&db).unwrap()[0].rebuilds[0].is_online);
    // What changes in between is not lost, in another process either.
    write(&db, "DELETE FROM t WHERE id % 100 = 0; INSERT INTO t(u, n) VALUES ('more', 1)").unwrap();
    db.close().unwrap();
    {
        let plain = plain(&path);
        plain
            .execute_batch("UPDATE t SET n = n + 1 WHERE id < 1000; DELETE FROM t WHERE id = 7")
            .unwrap();
    }
    let db = Database::open(&path).unwrap();
    assert_eq!(all.up(&db).wait().unwrap(), ["0001_rebuild.sql"]);
    assert_eq!(all.status(&db).unwrap().rebuilding, None);
    let of = |sql: &str| {
        let sql = sql.to_owned();
        db.read(move |tx| tx.query_row(&sql, (), |row| row.get::<_, i64>(0))).wait().unwrap()
    };
    assert_eq!(of("SELECT count(*) FROM t WHERE more = 'x'"), 20_000 - 200);
    assert_eq!(of("SELECT count(*) FROM t WHERE id IN (7, 100)"), 0);
    assert_eq!(of("SELECT twice FROM t WHERE id = 1"), 4);
    db.close().unwrap();
    assert!(is_sound(&plain(&path)) && ours(&plain(&path)) == 0);

    let path = directory.path().join("aborted.db");
    let before = {
        let db = Database::open(&path).unwrap();
        fill(&db, 20_000);
        db.close().unwrap();
        dump(&plain(&path), "")
    };
    std::fs::remove_file(&path).unwrap();
    let db = paused(&path, 20_000, &all);
    assert_eq!(Migrations::abort(&db).wait().unwrap().as_deref(), Some("0001_rebuild.sql"));
    assert_eq!(Migrations::abort(&db).wait().unwrap(), None);
    assert_eq!(all.status(&db).unwrap().pending, ["0001_rebuild.sql"]);
    db.close().unwrap();
    assert_eq!(ours(&plain(&path)), 0);
    assert!(is_sound(&plain(&path)) && before == dump(&plain(&path), ""));
}

/// Changes what the engine has noted in the file, so that it does not see it, as a defect of its
/// own would.
fn break_trigger(path: &Path, name: &str) {
    let plain = plain(path);
    let find = format!("SELECT sql FROM sqlite_schema WHERE name = 'monolite_rebuild_{name}'");
    let sound: String = plain.query_row(&find, (), |row| row.get(0)).unwrap();
    let broken = sound.replace(" BEGIN ", " WHEN 0 BEGIN ");
    plain.execute_batch(&format!("DROP TRIGGER monolite_rebuild_{name}; {broken}")).unwrap();
    let note = "UPDATE monolite_rebuild_state SET value = replace(value, ?1, ?2) WHERE name = \
                'schema' OR name GLOB 'object *'";
    plain.execute(note, [sound, broken]).unwrap();
}

#[test]
fn a_trigger_that_misses_a_change_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    // The comparison notices each that is not there. `inserted` is for keys that are drawn once all
    // rows are copied.
    for (at, (name, change)) in [
        ("insert", "REPLACE INTO t(id, u, n) VALUES (100000, 'U1', 77)"),
        ("update", "UPDATE t SET u = 'fresh', n = 771 WHERE id = 1"),
        ("delete", "DELETE FROM t WHERE id = 1"),
        ("update", "UPDATE OR REPLACE t SET u = 'U1' WHERE id = 2"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = directory.path().join(format!("{at}.db"));
        let all = online(REBUILD);
        let db = paused(&path, 20_000, &all);
        db.close().unwrap();
        break_trigger(&path, name);
        let db = Database::open(&path).unwrap();
        write(&db, change).unwrap();
        let error = all.up(&db).wait().unwrap_err();
        // A row that is there no more may be in the way of another one.
        let words = ["is not what it shall be", "cannot be in the new table (id"];
        assert!(words.iter().any(|it| error.to_string().contains(it)), "{name}: {error}");
        assert_eq!(all.status(&db).unwrap().pending.len(), 1, "{name}");
        db.close().unwrap();
    }
}

#[test]
fn rows_are_noted_whose_statement_ends_before_triggers_behind_it_run() {
    let directory = tempfile::tempdir().unwrap();
    for (name, refers, second, change, left) in [
        // Row 2 goes without a trigger, and takes row 1 along before that is updated.
        ("replaced", "DELETE", "2, NULL", "UPDATE OR REPLACE t SET id = 2 WHERE id = 1", [3, 4]),
        // Row 2 follows row 1, and its trigger fails.
        ("moved", "UPDATE", "2, 1", "UPDATE t SET id = 0 WHERE id = 1", [0, 2]),
        ("deleted", "DELETE", "2, 1", "DELETE FROM t WHERE id = 1", [3, 4]),
    ] {
        let path = directory.path().join(name);
        let db = Database::open(&path).unwrap();
        let up = format!("up INTEGER REFERENCES t(id) ON {refers} CASCADE");
        let first = if name == "replaced" { "1, 2" } else { "1, NULL" };
        let schema = format!(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, {up});
             INSERT INTO t VALUES ({first}), ({second});
             INSERT INTO t WITH RECURSIVE x(i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM x LIMIT
             20000) SELECT i, NULL FROM x;
             CREATE TRIGGER u AFTER UPDATE ON t WHEN NEW.id = 2
             BEGIN SELECT RAISE(FAIL, 'two'); END;
             CREATE TRIGGER d AFTER DELETE ON t WHEN OLD.id = 2
             BEGIN SELECT RAISE(FAIL, 'two'); END"
        );
        write(&db, &schema).unwrap();
        let all = online(&format!("CREATE TABLE t(id INTEGER PRIMARY KEY, {up}, e DEFAULT 'n')"));
        pause(&db, &all);
        let ended = db.write(move |tx| Ok(tx.execute(change, ()).is_ok())).wait().unwrap();
        assert_eq!(ended, name == "replaced", "{name}");
        assert_eq!(all.up(&db).wait().unwrap(), ["0001_rebuild.sql"], "{name}");
        let rows = "SELECT id FROM t ORDER BY id LIMIT 2";
        let rows = db.read(|tx| tx.query_map(rows, (), |row| row.get::<_, i64>(0)));
        assert_eq!(rows.wait().unwrap(), left, "{name}");
        db.close().unwrap();
    }
}

#[test]
fn all_rows_that_the_new_table_does_not_take_are_named_and_it_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let all = online(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, p INTEGER REFERENCES p(id), u TEXT UNIQUE \
         COLLATE NOCASE, n INTEGER CHECK (n <> 19000), UNIQUE (n, p))",
    );
    let db = paused(&directory.path().join("db"), 20_000, &all);
    // The application is not held to it.
    let wrong = |id: i64| format!("UPDATE t SET n = 19000, p = NULL WHERE id = {id}");
    write(&db, &wrong(3)).unwrap();
    for rows in [["id 3:", "id 19000:"], ["id 5:", "1 row "], ["id 5:", "1 row "]] {
        let error = all.up(&db).wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Constraint, "{error}");
        let told = error.to_string();
        assert!(rows.iter().all(|it| told.contains(it)) && told.contains("goes on"), "{told}");
        assert!(!told.contains("monolite_"), "{told}");
        let refused = all.status(&db).unwrap().rebuilding.unwrap().refused.unwrap();
        assert!(rows.iter().all(|it| refused.contains(it)), "{refused}");
        // Those that are left are known when it goes on.
        write(&db, "UPDATE t SET n = 1 WHERE id IN (3, 19000)").unwrap();
        write(&db, &wrong(5)).unwrap();
    }
    write(&db, "DELETE FROM t WHERE id = 5").unwrap();
    all.up(&db).wait().unwrap();
    let found = write(&db, "UPDATE t SET n = 19000 WHERE id = 3").unwrap_err();
    assert_eq!(found.kind(), ErrorKind::Constraint);
    db.close().unwrap();

    // A declaration that no row is for ends early; a dry run tells the number.
    let all = online(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, p INTEGER REFERENCES p(id), u TEXT, n CHECK (n < \
         0))",
    );
    let path = directory.path().join("all.db");
    let db = Database::open(&path).unwrap();
    fill(&db, 20_000);
    let told = all.dry_run(&db).wait().unwrap_err().to_string();
    assert!(told.contains("20000 rows") && told.contains("and 19990 more"), "{told}");
    let told = all.up(&db).wait().unwrap_err().to_string();
    assert!(told.contains("id 1:") && !told.contains("20000 rows"), "{told}");
    Migrations::abort(&db).wait().unwrap();
    db.close().unwrap();
    assert!(is_sound(&plain(&path)) && ours(&plain(&path)) == 0);
}

#[test]
fn rows_that_do_not_fit_and_those_that_would_lose_something_are_listed_together() {
    let directory = tempfile::tempdir().unwrap();
    for (at, all) in [online, |body: &str| of("-- monolite: rebuild=t\n", body)].iter().enumerate()
    {
        let db = Database::open(directory.path().join(format!("{at}.db"))).unwrap();
        write(
            &db,
            "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b);
             INSERT INTO t VALUES (1, '1', 1), (2, '007', 1), (3, '3', NULL), (4, 'x', 1)",
        )
        .unwrap();
        let strict = "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, b INT NOT NULL) STRICT";
        let told = all(strict).up(&db).wait().unwrap_err().to_string();
        let rows = ["3 rows cannot be", "id 2: a: '007' would become 7", "id 3:", "id 4:"];
        assert!(rows.iter().all(|it| told.contains(it)), "{told}");
        let kept = db.read(|tx| {
            tx.query_row("SELECT a FROM t WHERE id = 2", (), |it| it.get::<_, String>(0))
        });
        assert_eq!(kept.wait().unwrap(), "007");
        write(&db, "DELETE FROM t WHERE id > 1").unwrap();
        all(strict).up(&db).wait().unwrap();
        db.close().unwrap();
    }
}

#[test]
fn no_statement_of_the_application_fails_or_reads_what_is_noted() {
    let directory = tempfile::tempdir().unwrap();
    let all = online(REBUILD);
    let db = paused(&directory.path().join("db"), 20_000, &all);
    // The clause of the statement would be that of the trigger's, too.
    for how in ["FAIL", "ABORT", "ROLLBACK", "REPLACE", "IGNORE"] {
        for _ in 0..2 {
            write(&db, &format!("UPDATE OR {how} t SET n = n + 1 WHERE id = 5")).unwrap();
            write(&db, &format!("INSERT OR {how} INTO t(u) VALUES (NULL)")).unwrap();
        }
    }
    for sql in [
        "SELECT * FROM monolite_rebuild_dirty",
        "WITH monolite_x AS (SELECT * FROM monolite_rebuild_dirty) SELECT * FROM monolite_x",
        "INSERT INTO monolite_rebuild_dirty VALUES (1)",
        "WITH monolite_x AS (SELECT 1) INSERT INTO monolite_rebuild_dirty SELECT * FROM monolite_x",
        "DELETE FROM monolite_rebuild_state",
        "DROP TRIGGER monolite_rebuild_delete",
        "CREATE TRIGGER monolite_y AFTER INSERT ON p BEGIN SELECT 1; END",
        "CREATE TABLE x(a REFERENCES monolite_rebuild(id))",
        "ALTER TABLE t RENAME TO s",
    ] {
        assert_eq!(write(&db, sql).unwrap_err().kind(), ErrorKind::Invalid, "{sql}");
    }
    // No trigger notes what a blob changes.
    let written = db.write(|tx| tx.blob_open_mut("t", "u", 1).map(drop)).wait();
    assert!(written.unwrap_err().to_string().contains("rebuilt online"));
    let dropped = write(&db, "DROP TABLE c; DROP TABLE t").unwrap_err();
    assert!(dropped.to_string().contains("rebuilt online"), "{dropped}");
    all.up(&db).wait().unwrap();
    db.close().unwrap();
}

#[test]
fn values_in_a_column_without_a_type_become_texts_as_in_one_transaction() {
    let made = [" online", ""].map(|how| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let db = Database::open(&path).unwrap();
        let values = "(5), (5.5), (1e300), ('5'), (x'01'), (NULL)";
        let create = "CREATE TABLE t(id INTEGER PRIMARY KEY, w); INSERT INTO t(w) VALUES";
        write(&db, &format!("{create} {values}")).unwrap();
        let head = format!("-- monolite: rebuild=t{how}\n");
        let texts = of(&head, "CREATE TABLE t(id INTEGER PRIMARY KEY, w TEXT)");
        texts.up(&db).wait().unwrap();
        db.close().unwrap();
        dump(&plain(&path), "")
    });
    assert_eq!(made[0], made[1]);
}

#[test]
fn changes_of_rows_that_are_not_copied_yet_do_not_hold_up_the_copy() {
    let directory = tempfile::tempdir().unwrap();
    let db = Database::open(directory.path().join("db")).unwrap();
    fill(&db, 20_000);
    let all = online(REBUILD);
    let job = all.up(&db);
    let is_half_done = || all.status(&db).unwrap().rebuilding.is_some_and(|it| it.rows > 10_000);
    // By each write more than a step copies.
    let writes = (0..500).take_while(|_| {
        write(&db, "UPDATE t SET p = p WHERE id > 15000").unwrap();
        !is_half_done()
    });
    assert!(writes.count() < 500);
    job.wait().unwrap();
    db.close().unwrap();
}

#[test]
fn a_table_that_was_changed_meanwhile_is_not_exchanged() {
    let directory = tempfile::tempdir().unwrap();
    let again = format!("CREATE TABLE other AS SELECT * FROM t; DROP TABLE c; DROP TABLE t; {}", {
        let table = SCHEMA.split_once("CREATE TABLE t(").unwrap().1.split_once(';').unwrap().0;
        format!(
            "CREATE TABLE t({table}; CREATE INDEX t_p ON t(p); CREATE INDEX t_n ON t(n DESC) \
             WHERE n > 5; CREATE INDEX t_e ON t(lower(u))"
        )
    });
    let trigger = "CREATE TRIGGER late BEFORE INSERT ON t BEGIN SELECT RAISE(IGNORE); END";
    let index = "CREATE INDEX late ON t(n)";
    for (at, change) in
        ["ALTER TABLE t ADD late", index, trigger, "DROP INDEX t_p", "DROP TRIGGER t_log", &again]
            .into_iter()
            .enumerate()
    {
        let (all, path) = (online(REBUILD), directory.path().join(format!("{at}.db")));
        paused(&path, 20_000, &all).close().unwrap();
        // Another program: the engine refuses some of it.
        plain(&path).execute_batch(change).unwrap();
        let db = Database::open(&path).unwrap();
        let error = all.up(&db).wait().unwrap_err();
        assert!(error.to_string().contains("was changed"), "{change}: {error}");
        Migrations::abort(&db).wait().unwrap();
        db.close().unwrap();
    }
    // Neither is another migration than the one that began it.
    let db = paused(&directory.path().join("edited.db"), 20_000, &online(REBUILD));
    let edited = online(&format!("{REBUILD} -- edited"));
    for error in [edited.up(&db).wait().unwrap_err(), edited.plan(&db).unwrap_err()] {
        assert!(error.to_string().contains("monolite migrate abort"), "{error}");
    }
    assert_eq!(online(REBUILD).plan(&db).unwrap().len(), 1);
    db.close().unwrap();
}

#[test]
fn what_another_program_renames_or_drops_leaves_the_abort() {
    let directory = tempfile::tempdir().unwrap();
    let changes = [
        "ALTER TABLE t RENAME TO s",
        // It has other quotes then.
        "ALTER TABLE t RENAME TO x; ALTER TABLE x RENAME TO t",
        "ALTER TABLE t RENAME COLUMN id TO k",
        "ALTER TABLE t RENAME COLUMN u TO w",
        "DROP TABLE monolite_rebuild",
        "DROP TABLE monolite_rebuild_dirty",
        "DROP TABLE monolite_rebuild_state",
        "DROP TABLE monolite_rebuild_state; DROP TABLE monolite_rebuild",
        "ALTER TABLE t RENAME TO s; DROP TABLE monolite_rebuild_state; DROP TABLE \
         monolite_rebuild_dirty",
        "DROP TRIGGER monolite_rebuild_insert; DROP TABLE monolite_rebuild",
        // Its indexes keep their names, and keys are noted in the other one.
        "ALTER TABLE monolite_rebuild RENAME TO other",
        "ALTER TABLE monolite_rebuild_dirty RENAME TO other",
        "ALTER TABLE monolite_rebuild_state RENAME TO other",
        "DROP TABLE monolite_rebuild; CREATE TABLE monolite_rebuild(a PRIMARY KEY) WITHOUT ROWID",
        "CREATE INDEX monolite_rebuild_more ON t(n)",
        // It is another one of the indexes, by number.
        "DROP INDEX t_p; CREATE INDEX t_p ON t(p)",
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let (all, path) = (online(REBUILD), directory.path().join(format!("{at}.db")));
        paused(&path, 2_000, &all).close().unwrap();
        plain(&path).execute_batch(change).unwrap();
        let db = Database::open(&path).unwrap();
        let obstacle = all.status(&db).unwrap().rebuilding.unwrap().obstacle;
        assert!(obstacle.is_some_and(|it| it.contains("was changed")), "{change}");
        let error = all.up(&db).wait().unwrap_err();
        let told = error.to_string();
        assert!(told.contains("was changed") && told.contains("abort"), "{change}: {error}");
        assert!(Migrations::abort(&db).wait().unwrap().is_some(), "{change}");
        assert_eq!(all.status(&db).unwrap().rebuilding, None, "{change}");
        write(&db, "CREATE TABLE late(x)").unwrap();
        db.close().unwrap();
        let plain = plain(&path);
        assert!(is_sound(&plain) && ours(&plain) == 0, "{change}");
        let rows = if change.contains("TO s") { "s" } else { "t" };
        let count = format!("SELECT count(*) FROM {rows}");
        assert_eq!(plain.query_row(&count, (), |row| row.get::<_, i64>(0)), Ok(2_000), "{change}");
    }
}

#[test]
fn what_is_left_of_a_rebuild_is_deleted_also_where_another_program_has_renamed_it() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["monolite_rebuild", "monolite_rebuild_dirty"] {
        let (all, path) = (online(REBUILD), directory.path().join(format!("{name}.db")));
        paused(&path, 2_000, &all).close().unwrap();
        let change = format!(
            "INSERT INTO monolite_rebuild_state VALUES ('removing', 1); ALTER TABLE {name} RENAME \
             TO other"
        );
        plain(&path).execute_batch(&change).unwrap();
        let db = Database::open(&path).unwrap();
        assert_eq!(all.up(&db).wait().unwrap(), ["0001_rebuild.sql"], "{change}");
        db.close().unwrap();
        assert!(is_sound(&plain(&path)) && ours(&plain(&path)) == 0, "{change}");
    }
}

#[test]
fn no_other_object_may_have_a_name_of_a_rebuild_or_name_one() {
    let directory = tempfile::tempdir().unwrap();
    for sql in [
        "CREATE VIEW monolite_rebuild_x AS SELECT 1",
        "CREATE TABLE monolite_rebuild_dirty(key)",
        "CREATE VIRTUAL TABLE monolite_rebuild USING fts5(x)",
        "CREATE TABLE x(y REFERENCES monolite_rebuild)",
    ] {
        let path = directory.path().join("foreign.db");
        plain(&path).execute_batch(sql).unwrap();
        let error = Database::open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{sql}");
        assert!(error.to_string().contains("drop it there"), "{error}");
        std::fs::remove_file(&path).unwrap();
    }
}

const TABLE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)";

/// A schema, a rebuild that cannot be done online, and a word of the refusal.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "CREATE TABLE t(a TEXT PRIMARY KEY)",
        "CREATE TABLE t(a TEXT PRIMARY KEY, b)",
        "INTEGER PRIMARY KEY",
    ),
    (
        "CREATE TABLE t(a TEXT PRIMARY KEY) WITHOUT ROWID",
        "CREATE TABLE t(a PRIMARY KEY)",
        "INTEGER PRIMARY KEY",
    ),
    (TABLE, "CREATE TABLE t(id INT, a INTEGER PRIMARY KEY, b)", "INTEGER PRIMARY KEY"),
    (TABLE, "CREATE TABLE t(id INTEGER PRIMARY KEY, a REFERENCES t(id), b)", "a foreign key to t"),
    (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); \
         CREATE UNIQUE INDEX i ON t(a) WHERE a > 1",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)",
        "unique index i",
    ),
    (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); CREATE UNIQUE INDEX i ON t(lower(a))",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)",
        "unique index i",
    ),
    // A trigger before an INSERT sees no affinity, no key and no default.
    (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a AS (id % 3)); CREATE UNIQUE INDEX i ON t(a)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a AS (id % 3), b)",
        "unique index i",
    ),
    (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a NOT NULL DEFAULT 1); \
         CREATE UNIQUE INDEX i ON t(a)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a NOT NULL DEFAULT 1, b)",
        "unique index i",
    ),
    // It changes the row that REPLACE compares, once the row was noted.
    (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b, UNIQUE(a, b)); CREATE TRIGGER z BEFORE \
         UPDATE OF a ON t BEGIN UPDATE t SET b = 7 WHERE id = OLD.id; END",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b, UNIQUE(a, b))",
        "the trigger z",
    ),
    (
        TABLE,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); SELECT id, a, b FROM t WHERE a > 1",
        "SELECT",
    ),
    (
        TABLE,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); SELECT max(id) AS id, a, b FROM t",
        "groups",
    ),
    (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); CREATE TABLE u(a)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); SELECT id, a IN u AS a, b FROM t",
        "reads another table",
    ),
    (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); INSERT INTO t VALUES (1, 2, 3)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); SELECT id + 1 AS id, a, b FROM t",
        "another key",
    ),
    (
        "CREATE TABLE q(a UNIQUE); INSERT INTO q VALUES (1); \
         CREATE TABLE t(id INTEGER PRIMARY KEY, a REFERENCES q(a)); INSERT INTO t VALUES (1, 1)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a REFERENCES q(a)); \
         SELECT id, a + 1 AS a FROM t",
        "gets another a",
    ),
    (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT UNIQUE); \
         CREATE TABLE c(a TEXT REFERENCES t(a))",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT COLLATE NOCASE UNIQUE)",
        "another type",
    ),
    (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); CREATE VIEW v AS SELECT a FROM t",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, b)",
        "the view v",
    ),
    (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); \
         CREATE VIEW v AS SELECT lower(a) AS b FROM t WHERE b = 'a'",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)",
        "the view v (b in it would mean t.b): drop each",
    ),
    (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a ANY UNIQUE); \
         CREATE TABLE c(a REFERENCES t(a))",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a ANY UNIQUE) STRICT",
        "a, which a foreign key uses, as another type",
    ),
    (TABLE, "DELETE FROM t; CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)", "DELETE FROM t"),
    ("CREATE TABLE x(a)", "CREATE TABLE t(id INTEGER PRIMARY KEY)", "no such table"),
    (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); CREATE TABLE s(x);
         CREATE INDEX there ON s(x)",
        "CREATE INDEX There ON t(b)",
        "the index There exists already",
    ),
    (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)",
        "CREATE INDEX a ON t(a); CREATE INDEX A ON t(b)",
        "the index A exists already",
    ),
];

#[test]
fn what_cannot_be_done_online_is_refused_and_nothing_is_changed() {
    let directory = tempfile::tempdir().unwrap();
    for (at, (schema, body, told)) in REFUSED.iter().enumerate() {
        let path = directory.path().join(format!("{at}.db"));
        let db = Database::open(&path).unwrap();
        write(&db, schema).unwrap();
        let all = online(body);
        let tried = all.dry_run(&db).wait().unwrap_err().to_string();
        let error = all.up(&db).wait().unwrap_err().to_string();
        assert!(error.contains(told) && tried.contains(told), "{body}: {error}, {tried}");
        // The values are only found while they are copied.
        let is_begun = all.status(&db).unwrap().rebuilding.is_some();
        assert_eq!(is_begun, told.contains("another key") || told.contains("gets"), "{body}");
        let is_planned = all.plan(&db).is_ok();
        let is_known = told.contains("DELETE") || told.contains("INTEGER") && at < 2;
        assert_eq!(is_planned, !is_known, "{body}");
        Migrations::abort(&db).wait().unwrap();
        write(&db, schema).unwrap_err();
        db.close().unwrap();
        assert_eq!(ours(&plain(&path)), 0, "{body}");
    }
}

#[test]
fn a_table_with_foreign_keys_becomes_strict() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Database::open(&path).unwrap();
    let schema = "CREATE TABLE p(id INTEGER PRIMARY KEY, code TEXT UNIQUE);
        CREATE TABLE t(id INTEGER PRIMARY KEY, p INTEGER REFERENCES p(id), code TEXT REFERENCES
            p(code));
        CREATE TABLE c(t INTEGER REFERENCES t(id));
        INSERT INTO p VALUES (1, '007'); INSERT INTO t VALUES (5, 1, '007'), (6, NULL, NULL);
        INSERT INTO c VALUES (5);";
    write(&db, schema).unwrap();
    let all = online(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, p INTEGER REFERENCES p(id), code TEXT REFERENCES
            p(code)) STRICT",
    );
    all.up(&db).wait().unwrap();
    let error = write(&db, "UPDATE t SET p = 'x'").unwrap_err();
    assert!(error.to_string().contains("cannot store TEXT"), "{error}");
    db.close().unwrap();
    let plain = plain(&path);
    let sql = "SELECT count(*) FROM t JOIN p ON p.id = t.p AND p.code = t.code";
    assert_eq!(plain.query_row(sql, (), |row| row.get::<_, i64>(0)), Ok(1));
    assert!(is_sound(&plain) && ours(&plain) == 0);
}

#[test]
fn an_index_alone_is_created_online_and_open_transactions_conflict() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Database::open(&path).unwrap();
    fill(&db, 5_000);
    let all = online("CREATE UNIQUE INDEX t_late ON t(n, u)");
    assert_eq!(all.dry_run(&db).wait().unwrap(), ["0001_rebuild.sql"]);
    let open = db.transaction().unwrap();
    let more = |row: &monolite::rusqlite::Row<'_>| Ok(row.as_ref().column_count());
    assert_eq!(open.query_row("SELECT * FROM t WHERE id = 1", (), more).wait().unwrap(), 4);
    open.execute("INSERT INTO t(u, n) VALUES ('open', 1)", ()).wait().unwrap();
    all.up(&db).wait().unwrap();
    // What it has read is as it was; a transaction to which another table answers has a conflict.
    open.commit().wait().unwrap();
    let open = db.transaction().unwrap();
    open.query_row("SELECT * FROM t WHERE id = 1", (), more).wait().unwrap();
    open.execute("INSERT INTO t(u, n) VALUES ('late', 1)", ()).wait().unwrap();
    let sql = format!("-- monolite: rebuild=t online\n{REBUILD}");
    all.with("0002_rebuild.sql", &sql).unwrap().up(&db).wait().unwrap();
    assert_eq!(open.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
    db.close().unwrap();
    let plain = plain(&path);
    let sql = "SELECT sql FROM sqlite_schema WHERE name = 't_late'";
    let text: String = plain.query_row(sql, (), |row| row.get(0)).unwrap();
    assert_eq!(text, "CREATE UNIQUE INDEX t_late ON t(n, u)");
    assert!(is_sound(&plain) && ours(&plain) == 0);
}

#[test]
fn without_room_for_a_copy_it_does_not_begin() {
    let mount = match Mount::small("128m") {
        Ok(mount) => mount,
        Err(error) => {
            return say_skipped("an online rebuild without room", &error.to_string()).unwrap();
        }
    };
    let path = mount.path().join("db");
    let db = Database::open(&path).unwrap();
    fill(&db, 60_000);
    db.checkpoint().wait().unwrap();
    let files = std::fs::read_dir(mount.path()).unwrap().map(|it| it.unwrap().metadata().unwrap());
    let used: u64 = files.map(|it| it.blocks() / 2).sum();
    // Less than the table, and enough for the engine.
    mount.resize(&format!("{}k", used + 2_000)).unwrap();
    let all = online(REBUILD);
    let error = all.up(&db).wait().unwrap_err();
    assert!(error.to_string().contains("the copy takes up to"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Storage);
    assert_eq!(all.status(&db).unwrap().rebuilding, None);
    mount.resize("128m").unwrap();
    all.up(&db).wait().unwrap();
    db.close().unwrap();
}
