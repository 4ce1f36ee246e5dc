//! Wrong answers that were acknowledged, and data that was lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use monolite::vfs::{self, Direct, File, FileKind, LowerFile, Storage};
use monolite::{
    Database, Error, ErrorKind, InteractiveOptions, Options, Sharing, Transaction, Tx, rusqlite,
};

use super::{ask, ask_writer, database, number, read, write};
use crate::patience::{Gate, as_one_batch, ends, eventually};

/// Has a transaction lose its snapshot: its only connection serves another one.
fn lose_snapshot(db: &Database) {
    ask(&db.transaction().unwrap(), "SELECT 1");
}

fn failing(tx: &Transaction, sql: &str) -> ErrorKind {
    tx.query_row(sql, (), number).wait().unwrap_err().kind()
}

#[test]
fn a_statement_that_cannot_be_prepared_takes_no_check_from_the_commit() {
    for is_first in [true, false] {
        let (_directory, _, db) =
            database(Options::new().interactive(InteractiveOptions::default().connections(1)));
        let tx = db.transaction().unwrap();
        if is_first {
            assert_eq!(failing(&tx, "SELECT v FROM missing"), ErrorKind::Invalid);
        }
        assert_eq!(ask(&tx, "SELECT v FROM a"), 10);
        if !is_first {
            assert_eq!(failing(&tx, "SELECT v FROM missing"), ErrorKind::Invalid);
            ask(&tx, "SELECT v FROM b");
        }
        lose_snapshot(&db);
        tx.execute("UPDATE b SET v = 1", ()).wait().unwrap();
        lose_snapshot(&db);
        tx.execute("UPDATE b SET v = 2", ()).wait().unwrap();
        write(&db, "UPDATE a SET v = 99");
        assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict, "{is_first}");
    }
}

#[test]
fn a_refused_statement_takes_no_check_from_the_commit() {
    let (_directory, _, db) =
        database(Options::new().interactive(InteractiveOptions::default().snapshot_age(RESTS)));
    let tx = db.transaction().unwrap();
    assert_eq!(failing(&tx, "PRAGMA journal_mode = DELETE"), ErrorKind::Invalid);
    assert_eq!(ask(&tx, "SELECT v FROM a"), 10);
    tx.execute("UPDATE b SET v = 1", ()).wait().unwrap();
    thread::sleep(RESTS * 4);
    tx.execute("UPDATE b SET v = 2", ()).wait().unwrap();
    write(&db, "UPDATE a SET v = 99");
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
}

/// The age at which a resting transaction loses its snapshot.
const RESTS: Duration = Duration::from_millis(10);

/// Jobs of which two indexes find one, and statistics that speak for the index `ib`; after that
/// the data are turned round, so that new statistics speak for `ia`.
const JOBS: &str = "
    CREATE TABLE job(id INTEGER PRIMARY KEY, a, p, b, q, owner);
    CREATE INDEX ia ON job(a, p);
    CREATE INDEX ib ON job(b, q);
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1999)
    INSERT INTO job SELECT i, 1, i, i % 500, -i, NULL FROM n;
    ANALYZE;";
const TURN_ROUND: &str = "UPDATE job SET a = id % 500, b = 1;
    UPDATE job SET a = 1 WHERE id % 100 = 0;
    ANALYZE;";
const TAKE_ONE: &str = "UPDATE job SET owner = 42 WHERE id =
    (SELECT id FROM job WHERE a = 1 AND b = 1 AND owner IS NULL LIMIT 1)";
const TAKEN: &str = "SELECT id FROM job WHERE owner = 42";

#[test]
fn a_second_analyze_plans_for_the_transaction_as_for_the_writer() {
    let (_directory, _, db) = database(Options::new());
    write(&db, JOBS);
    let warm = db.transaction().unwrap();
    warm.execute("UPDATE job SET owner = 0 WHERE id = 0", ()).wait().unwrap();
    warm.commit().wait().unwrap();
    write(&db, TURN_ROUND);
    let tx = db.transaction().unwrap();
    assert_eq!(tx.execute(TAKE_ONE, ()).wait().unwrap(), 1);
    let told = ask(&tx, TAKEN);
    tx.commit().wait().unwrap();
    assert_eq!(read(&db, TAKEN), told);
}

#[test]
fn statistics_of_a_transaction_that_failed_plan_for_nobody() {
    let (_directory, _, db) = database(Options::new());
    write(&db, JOBS);
    let plan = "EXPLAIN QUERY PLAN SELECT id FROM job WHERE a = 1 AND b = 1 LIMIT 1";
    let planned = move |db: &Database| -> String {
        let writer = db.write(move |tx| tx.query_row(plan, (), |row| row.get(3)));
        writer.wait().unwrap()
    };
    let before = planned(&db);
    let undone = db.write(|tx| {
        tx.execute_batch(TURN_ROUND)?;
        Err::<(), _>(Error::aborted("never mind"))
    });
    assert_eq!(undone.wait().unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!(planned(&db), before);
}

#[test]
fn a_rowid_drawn_at_random_is_told_as_it_is_or_not_at_all() {
    let (_directory, _, db) = database(Options::new());
    write(&db, "INSERT INTO a VALUES (9223372036854775807, 'last')");
    let insert = "INSERT INTO a(v) VALUES ('mine')";
    let tx = db.transaction().unwrap();
    tx.execute(insert, ()).wait().unwrap();
    tx.last_insert_rowid().wait().unwrap();
    let refused = tx.commit().wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "nobody else was there: {refused}");
    assert!(refused.to_string().contains("draws at random"), "{refused}");
    let told = db
        .transact(async |tx| {
            tx.execute(insert, ()).wait()?;
            tx.last_insert_rowid().wait()
        })
        .wait();
    assert_eq!(told.unwrap_err().kind(), ErrorKind::Invalid, "another attempt would not help");
    assert_eq!(read(&db, "SELECT count(*) FROM a WHERE v = 'mine'"), 0);
    // Who does not look commits.
    let tx = db.transaction().unwrap();
    tx.execute(insert, ()).wait().unwrap();
    tx.commit().wait().unwrap();
    assert_eq!(read(&db, "SELECT count(*) FROM a WHERE v = 'mine'"), 1);
}

#[test]
fn the_text_of_a_statement_reaches_no_savepoint_of_the_engine() {
    let (_directory, _, db) = database(Options::new());
    let tx = db.transaction().unwrap();
    tx.savepoint("sp").wait().unwrap();
    tx.execute("UPDATE b SET v = 1", ()).wait().unwrap();
    tx.rollback_to("sp").wait().unwrap();
    tx.release("sp").wait().unwrap();
    tx.commit().wait().unwrap();
    let names = ["user sp", "monolite_user", "monolite_user_0", "monolite_group", "sp"];
    for name in names {
        let verbs = ["SAVEPOINT", "ROLLBACK TO", "RELEASE"];
        let texts = verbs.map(|verb| format!("{verb} \"{name}\""));
        let (before, victim, after) = as_one_batch(&db, || {
            let run = |sql: &String| {
                let sql = sql.clone();
                db.write(move |tx| tx.execute(&sql, ()))
            };
            let victim = db.write(|tx| tx.execute("UPDATE a SET v = v + 1", ()));
            (run(&texts[0]), victim, texts[1..].iter().map(run).collect::<Vec<_>>())
        });
        assert_eq!(before.wait().unwrap_err().kind(), ErrorKind::Invalid, "{name}");
        assert_eq!(victim.wait().unwrap(), 1);
        for it in after {
            assert_eq!(it.wait().unwrap_err().kind(), ErrorKind::Invalid, "{name}");
        }
    }
    assert_eq!(read(&db, "SELECT v FROM a WHERE id = 1"), 10 + names.len() as i64);
}

#[test]
fn a_plain_connection_of_the_same_process_is_locked_out() {
    let (_directory, path, db) = database(Options::new().readers(1));
    assert_eq!(read(&db, "SELECT v FROM a"), 10);
    let plain = rusqlite::Connection::open(&path).unwrap();
    plain.busy_timeout(Duration::ZERO).unwrap();
    for sql in ["UPDATE a SET v = 200", "SELECT v FROM a", "PRAGMA journal_mode = DELETE"] {
        let error = plain.query_row(sql, [], |_| Ok(())).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy), "{sql}");
    }
    write(&db, "INSERT INTO a VALUES (2, 0)");
    assert_eq!(read(&db, "SELECT sum(v) FROM a"), 10);
    drop(plain);
    db.close().unwrap();
    let plain = rusqlite::Connection::open(&path).unwrap();
    let integrity: String =
        plain.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(integrity, "ok");
    // It has the file now, and the engine is the one who is told.
    plain.query_row("SELECT count(*) FROM a", [], |_| Ok(())).unwrap();
    let mode: String = plain.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    plain.execute("UPDATE a SET v = 1 WHERE id = 2", []).unwrap();
    assert_eq!(Database::open(&path).unwrap_err().kind(), ErrorKind::Overloaded);
    drop(plain);
    let db = Database::open(&path).unwrap();
    assert_eq!(read(&db, "SELECT sum(v) FROM a"), 11);
}

#[test]
fn columns_that_were_renamed_are_another_answer() {
    let (_directory, _, db) = database(Options::new());
    let tx = db.transaction().unwrap();
    let names = tx.query_row("SELECT * FROM a", (), |row| {
        let statement = row.as_ref();
        let name = |at| statement.column_name(at).map(str::to_owned);
        (0..statement.column_count()).map(name).collect::<rusqlite::Result<Vec<_>>>()
    });
    assert_eq!(names.wait().unwrap(), ["id", "v"]);
    write(&db, "ALTER TABLE a RENAME COLUMN v TO w");
    tx.execute("UPDATE b SET v = 1", ()).wait().unwrap();
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn the_same_refusal_in_other_words_is_the_same_answer() {
    // SQLite says where in the text the fault is, but not of a statement that it had prepared
    // before. Only the connection of the transaction has prepared these.
    for (sql, breaks) in [
        ("CREATE TABLE job(id)", "CREATE TABLE job(id)"),
        ("SELECT v FROM a WHERE v > 3", "ALTER TABLE a RENAME COLUMN v TO w"),
        ("UPDATE b SET v = v + 1", "DROP TABLE b"),
    ] {
        let (_directory, _, db) =
            database(Options::new().interactive(InteractiveOptions::default().connections(1)));
        let tx = db.transaction().unwrap();
        tx.query_map(sql, (), |_| Ok(())).wait().unwrap();
        tx.rollback();
        write(&db, breaks);
        write(&db, "CREATE TABLE log(x)");
        let tx = db.transaction().unwrap();
        tx.execute("INSERT INTO log VALUES (1)", ()).wait().unwrap();
        let refused = tx.query_map(sql, (), |_| Ok(())).wait().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        lose_snapshot(&db);
        tx.execute("INSERT INTO log VALUES (2)", ()).wait().unwrap();
        tx.commit().wait().unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

#[test]
fn what_is_told_of_the_connection_is_no_conflict() {
    let (_directory, _, db) =
        database(Options::new().interactive(InteractiveOptions::default().connections(1)));
    write(&db, "UPDATE a SET v = 1; UPDATE b SET v = 2");
    let tx = db.transaction().unwrap();
    let asked = [
        "PRAGMA cache_size",
        "PRAGMA data_version",
        "PRAGMA page_count",
        "PRAGMA freelist_count",
        "PRAGMA module_list",
        "PRAGMA database_list",
        "PRAGMA query_only",
        "SELECT changes()",
        "SELECT total_changes()",
        "SELECT last_insert_rowid()",
        "EXPLAIN QUERY PLAN SELECT * FROM a",
        "EXPLAIN UPDATE a SET v = 1",
        "EXPLAIN CREATE TABLE q(x)",
        "PRAGMA main.data_version = 1",
    ];
    for sql in asked {
        tx.query_map(sql, (), |_| Ok(())).wait().unwrap();
    }
    assert_eq!(ask(&tx, "SELECT changes() + total_changes() + last_insert_rowid()"), 0);
    tx.execute("INSERT INTO a VALUES (7, 7), (8, 8)", ()).wait().unwrap();
    assert_eq!(
        ask(&tx, "SELECT changes() * 100 + total_changes() * 10 + last_insert_rowid()"),
        228
    );
    lose_snapshot(&db);
    assert_eq!(
        ask(&tx, "SELECT changes() * 100 + total_changes() * 10 + last_insert_rowid()"),
        228
    );
    write(&db, "CREATE TABLE more(x); INSERT INTO more VALUES (zeroblob(100000))");
    tx.commit().wait().unwrap();
    // Nor does a closure learn of its neighbours.
    let seen = db.write(|tx| {
        let sql = "SELECT changes() + total_changes() + last_insert_rowid()";
        let said: i64 = tx.query_row(sql, (), number)?;
        Ok::<_, Error>((said, tx.changes(), tx.total_changes(), tx.last_insert_rowid()))
    });
    assert_eq!(seen.wait().unwrap(), (0, 0, 0, 0));
}

#[test]
fn an_explained_change_counts_as_one_of_no_rows_at_commit_too() {
    let (_directory, _, db) =
        database(Options::new().interactive(InteractiveOptions::default().connections(1)));
    for explain in ["EXPLAIN", "EXPLAIN QUERY PLAN"] {
        let tx = db.transaction().unwrap();
        tx.execute("INSERT INTO a VALUES (NULL, 7), (NULL, 8)", ()).wait().unwrap();
        assert_eq!(ask(&tx, "SELECT changes()"), 2);
        tx.query_map(&format!("{explain} UPDATE a SET v = 1"), (), |_| Ok(())).wait().unwrap();
        assert_eq!(ask(&tx, "SELECT changes()"), 0, "as in SQLite");
        lose_snapshot(&db);
        assert_eq!(ask(&tx, "SELECT changes()"), 0);
        // Its program is another one then.
        write(&db, "CREATE INDEX IF NOT EXISTS on_v ON a(v)");
        tx.commit().wait().unwrap();
    }
}

#[test]
fn an_explained_change_of_the_schema_is_not_compared() {
    let (_directory, _, db) =
        database(Options::new().interactive(InteractiveOptions::default().connections(1)));
    for sql in [
        "EXPLAIN CREATE TABLE q(x)",
        "EXPLAIN CREATE INDEX q ON a(v)",
        "EXPLAIN CREATE VIEW q AS SELECT 1",
        "EXPLAIN CREATE TRIGGER q AFTER INSERT ON a BEGIN SELECT 1; END",
        "EXPLAIN DROP TABLE b",
        "EXPLAIN ALTER TABLE a RENAME TO q",
        "EXPLAIN ALTER TABLE a ADD COLUMN q",
        "EXPLAIN ANALYZE",
        "EXPLAIN REINDEX",
    ] {
        let tx = db.transaction().unwrap();
        tx.query_map(sql, (), |_| Ok(())).wait().unwrap();
        tx.commit().wait().unwrap();
        for change in ["SELECT 1", "UPDATE a SET v = v"] {
            let tx = db.transaction().unwrap();
            tx.query_map(sql, (), |_| Ok(())).wait().unwrap();
            tx.execute_batch(change).wait().unwrap();
            write(&db, "CREATE TABLE more(x); DROP TABLE more");
            tx.commit().wait().unwrap();
        }
    }
    let exists = "SELECT count(*) FROM sqlite_schema WHERE name = 'q'";
    assert_eq!(ask(&db.transaction().unwrap(), exists), 0);
}

#[test]
fn figures_behind_a_change_of_full_text_search_are_those_of_sqlite() {
    for (module, insert) in [("fts5", 2), ("fts4", 1)] {
        let (_directory, _, db) = database(Options::new());
        let create = format!("CREATE VIRTUAL TABLE words USING {module}(x)");
        db.write(move |tx| tx.execute_batch(&create)).wait().unwrap();
        let insert =
            format!("INSERT INTO words VALUES {}", vec!["('some words')"; insert].join(","));
        for define in
            ["CREATE TABLE IF NOT EXISTS more(x)", "ANALYZE", "ALTER TABLE b ADD COLUMN w"]
        {
            let figures = "SELECT changes() * 1000 + last_insert_rowid()";
            let plain = rusqlite::Connection::open_in_memory().unwrap();
            let begin = format!(
                "CREATE TABLE b(v); CREATE VIRTUAL TABLE words USING {module}(x); BEGIN; {insert}; \
                 {define}"
            );
            plain.execute_batch(&begin).unwrap();
            let expected = plain.query_row(figures, [], number).unwrap();
            let tx = db.transaction().unwrap();
            tx.execute(&insert, ()).wait().unwrap();
            tx.execute(define, ()).wait().unwrap();
            let told = ask(&tx, figures);
            tx.execute("UPDATE a SET v = v + 1", ()).wait().unwrap();
            tx.commit().wait().unwrap_or_else(|error| panic!("{module}, {define}: {error}"));
            assert_eq!(told / 1000, expected / 1000, "{module}, {define}");
        }
    }
}

#[test]
fn what_the_application_does_with_a_row_has_its_own_time_and_random_values() {
    let (_directory, _, db) = database(Options::new());
    let (_other_directory, _, other) = database(Options::new());
    write(&db, "INSERT INTO a VALUES (7, 7), (8, 8)");
    let tx = db.transaction().unwrap();
    let asked = other.clone();
    let drawn = "SELECT v, random() FROM a";
    let seen = tx.query_map(drawn, (), move |_| {
        thread::sleep(Duration::from_millis(20));
        let now = "SELECT unixepoch('subsec') * 1000 + 0 * random()";
        let now: f64 =
            asked.read(move |tx| tx.query_row(now, (), |row| row.get(0))).wait().unwrap();
        let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        Ok((here.as_secs_f64() * 1000.0 - now).abs())
    });
    for lag in seen.wait().unwrap() {
        assert!(lag < 15.0, "{lag} ms");
    }
    // Somebody changes a neighbour of what it read, so it is asked again: with the same random
    // values.
    write(&db, "UPDATE a SET id = id + 0");
    tx.execute("UPDATE b SET v = 1", ()).wait().unwrap();
    tx.commit().wait().unwrap();
}

/// A disk whose syncs wait.
struct Slow {
    direct: Direct,
    gate: Arc<Gate>,
    is_slow: Arc<AtomicBool>,
}

impl Storage for Slow {
    fn open(
        &self,
        kind: FileKind,
        path: Option<&std::path::Path>,
        lower: &mut LowerFile,
    ) -> vfs::Result<Box<dyn File>> {
        self.direct.open(kind, path, lower)
    }

    fn sync_wal(&self, wal: &std::fs::File) -> std::io::Result<()> {
        if self.is_slow.load(Ordering::SeqCst) {
            self.gate.pass();
        }
        wal.sync_data()
    }
}

#[test]
fn a_read_only_transaction_is_answered_when_what_it_saw_is_on_disk() {
    let (gate, is_slow) = (Arc::new(Gate::default()), Arc::new(AtomicBool::new(false)));
    let shared = (Arc::clone(&gate), Arc::clone(&is_slow));
    let options = Options::new().storage(move |direct| {
        Arc::new(Slow { direct, gate: Arc::clone(&shared.0), is_slow: Arc::clone(&shared.1) })
    });
    let (_directory, _, db) = database(options);
    let untouched = db.transaction().unwrap();
    assert_eq!(ask(&untouched, "SELECT v FROM a"), 10);
    is_slow.store(true, Ordering::SeqCst);
    let unsynced = db.write(|tx| tx.execute("UPDATE a SET v = 11", ()));
    eventually("it is seen", || read(&db, "SELECT v FROM a") == 11);
    // What it saw is on disk.
    untouched.commit().wait().unwrap();
    let tx = db.transaction().unwrap();
    assert_eq!(ask(&tx, "SELECT v FROM a"), 11);
    let (commit, is_done) = (tx.commit(), Arc::new(AtomicBool::new(false)));
    let done = Arc::clone(&is_done);
    let waiting = thread::spawn(move || {
        commit.wait().unwrap();
        done.store(true, Ordering::SeqCst);
    });
    eventually("the sync waits", || gate.arrivals() > 0);
    thread::sleep(Duration::from_millis(50));
    assert!(!is_done.load(Ordering::SeqCst), "it was answered before the sync");
    is_slow.store(false, Ordering::SeqCst);
    gate.open();
    ends("both", move || {
        waiting.join().unwrap();
        unsynced.wait().unwrap();
    });
}

/// A value that the engine may drop, and must not die of.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("the drop of a value");
        }
    }
}

#[test]
fn a_value_whose_drop_panics_hurts_nobody() {
    let (_directory, _, db) = database(Options::new());
    for _ in 0..3 {
        let (rerun, neighbour, dropped) = as_one_batch(&db, || {
            let rerun = db.write(|tx| {
                tx.execute("UPDATE a SET v = v + 1", ())?;
                Ok::<_, Error>(Bomb)
            });
            let neighbour = db.write(|tx| {
                tx.execute("UPDATE b SET v = v + 1", ())?;
                Err::<(), _>(Error::aborted("never mind"))
            });
            let held = Bomb;
            let dropped = db.write(move |_| {
                let _ = &held;
                Ok::<_, Error>(Bomb)
            });
            (rerun, neighbour, dropped)
        });
        drop(dropped);
        assert_eq!(neighbour.wait().unwrap_err().kind(), ErrorKind::Aborted);
        std::mem::forget(rerun.wait().unwrap());
        // The payload of a panic is such a value, too.
        let panicking = db.write(|_| -> Result<(), Error> { std::panic::panic_any(Bomb) });
        drop(panicking);
        let mut read = Box::pin(db.read(|_| Ok::<_, Error>(Bomb)));
        std::mem::forget(crate::patience::poll_once(&mut read));
        drop(read);
    }
    write(&db, "UPDATE b SET v = 21");
    assert_eq!(read(&db, "SELECT v FROM a"), 13);
    db.close().unwrap();
}

#[test]
fn a_name_that_sqlite_makes_unique_at_random_is_no_conflict() {
    let (_directory, _, db) = database(Options::new());
    let tx = db.transaction().unwrap();
    tx.execute("UPDATE b SET v = 1", ()).wait().unwrap();
    let sql = "SELECT * FROM (SELECT 1 AS x, 2 AS x, 3 AS x, 4 AS x, 5 AS x, 6 AS x)";
    tx.query_map(sql, (), |_| Ok(())).wait().unwrap();
    tx.commit().wait().unwrap();
}

#[test]
fn statistics_that_pragma_optimize_makes_are_committed() {
    let (_directory, _, db) = database(Options::new());
    write(&db, "CREATE INDEX on_v ON a(v)");
    let tx = db.transaction().unwrap();
    tx.execute("PRAGMA optimize(0x10002)", ()).wait().unwrap();
    let made = "SELECT count(*) FROM sqlite_stat1 WHERE idx = 'on_v'";
    assert_eq!(ask(&tx, made), 1);
    tx.commit().wait().unwrap();
    assert_eq!(read(&db, made), 1);
}

#[test]
fn a_change_is_committed_whatever_statements_a_virtual_table_prepares_beside_it() {
    let (_directory, _, db) = database(Options::new());
    for module in ["fts5(x)", "fts5(x, detail=none)", "fts4(x)", "rtree(x, low, high)"] {
        let create = format!("CREATE VIRTUAL TABLE f USING {module}");
        db.write(move |tx| tx.execute_batch(&create)).wait().unwrap();
        let insert = "INSERT INTO f(x) VALUES (NULL)";
        for number in 1..=9 {
            let tx = db.transaction().unwrap();
            if number % 3 == 0 {
                ask(&tx, "SELECT count(*) FROM f");
            }
            assert_eq!(tx.execute(insert, ()).wait().unwrap(), 1);
            if number % 2 == 0 {
                assert_eq!(tx.execute("ANALYZE", ()).wait().unwrap(), 0);
            }
            assert_eq!(ask(&tx, "SELECT count(*) FROM f"), number);
            assert_eq!(tx.last_insert_rowid().wait().unwrap(), number);
            tx.commit().wait().unwrap();
            assert_eq!(ask_writer(&db, "SELECT count(*) FROM f"), number, "{module}");
        }
        write(&db, "DROP TABLE f");
    }
}

#[test]
fn a_check_of_full_text_search_keeps_no_transaction_from_its_commit() {
    let (_directory, _, db) = database(Options::new());
    write(&db, "CREATE VIRTUAL TABLE f USING fts5(x)");
    let tx = db.transaction().unwrap();
    assert_eq!(ask(&tx, "SELECT count(*) FROM f"), 0);
    write(&db, "INSERT INTO f VALUES ('blue red')");
    tx.commit().wait().unwrap();
    for check in ["PRAGMA integrity_check", "PRAGMA quick_check(f)"] {
        let tx = db.transaction().unwrap();
        tx.execute("DELETE FROM a WHERE v < 0", ()).wait().unwrap();
        tx.query_map(check, (), |_| Ok(())).wait().unwrap();
        tx.commit().wait().unwrap();
    }
}

#[test]
fn an_r_tree_in_a_transaction_that_a_statement_rolls_back_keeps_no_connection() {
    let (_directory, _, db) =
        database(Options::new().interactive(InteractiveOptions::default().connections(1)));
    write(&db, "CREATE VIRTUAL TABLE r USING rtree(id, low, high); CREATE TABLE u(v UNIQUE)");
    write(&db, "INSERT INTO u VALUES (1)");
    for _ in 0..3 {
        let tx = db.transaction().unwrap();
        tx.execute("INSERT INTO r VALUES (8, 1, 2)", ()).wait().unwrap();
        assert_eq!(failing(&tx, "INSERT OR ROLLBACK INTO u VALUES (1)"), ErrorKind::Constraint);
        drop(tx);
        assert_eq!(ask(&db.transaction().unwrap(), "SELECT count(*) FROM r"), 0);
        let rolled_back = db.write(|tx| {
            tx.execute("INSERT INTO r VALUES (8, 1, 2)", ())?;
            tx.execute("INSERT OR ROLLBACK INTO u VALUES (1)", ())
        });
        assert_eq!(rolled_back.wait().unwrap_err().kind(), ErrorKind::Constraint);
        assert_eq!(ask_writer(&db, "SELECT count(*) FROM r"), 0);
    }
}

#[test]
fn no_query_makes_statistics() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let (_directory, _, db) = database(Options::new().sharing(sharing));
        write(&db, "CREATE INDEX by_v ON a(v); ANALYZE; DELETE FROM sqlite_stat1");
        let tx = db.transaction().unwrap();
        for optimize in ["SELECT * FROM pragma_optimize", "SELECT 1 FROM Pragma_Optimize(0x10002)"]
        {
            let asked = tx.query_map(optimize, (), |_| Ok(())).wait().unwrap_err().to_string();
            let run = db.write(move |tx| tx.query_row(optimize, (), |_| Ok(())));
            let run = run.wait().unwrap_err().to_string();
            for said in [asked, run] {
                // Not every SQLite has that function.
                let has = said.contains("use the statement PRAGMA optimize");
                assert!(has || said.contains("no such table: pragma_optimize"), "{said}");
            }
        }
        assert_eq!(ask(&tx, "SELECT count(*) FROM sqlite_stat1"), 0);
        tx.commit().wait().unwrap();
    }
}

#[test]
fn a_change_that_would_roll_back_by_now_is_a_conflict() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let options = Options::new()
            .interactive(InteractiveOptions::default().snapshot_age(Duration::from_millis(1)))
            .sharing(sharing);
        let (_directory, _, db) = database(options);
        for is_asked in [true, false] {
            let insert = "INSERT OR ROLLBACK INTO a SELECT max(id) + 1, 0 FROM b";
            let [one, other] = [(); 2].map(|()| db.transaction().unwrap());
            for tx in [&one, &other] {
                assert_eq!(tx.execute(insert, ()).wait().unwrap(), 1);
            }
            other.commit().wait().unwrap();
            thread::sleep(Duration::from_millis(5));
            let told = match is_asked {
                true => failing(&one, "SELECT count(*) FROM a"),
                false => one.commit().wait().unwrap_err().kind(),
            };
            assert_eq!(told, ErrorKind::Conflict, "asked: {is_asked}");
            write(&db, "DELETE FROM a WHERE id > 1");
        }
    }
}

/// SQLite reads the query of a view that is to be changed once for each connection, and dropping an
/// index that the query names does not make it forget. So the writer says "because it is a view",
/// another connection "no such index".
#[test]
fn which_of_two_errors_a_view_gives_is_no_conflict() {
    let (_directory, _, db) = database(Options::new());
    write(&db, "CREATE INDEX by_v ON a(v)");
    write(&db, "CREATE VIEW below AS SELECT v FROM a INDEXED BY by_v WHERE v > 0");
    let change = "DELETE FROM below WHERE v = 1";
    let by_writer = move |tx: &Tx<'_>| {
        tx.execute_batch("DROP INDEX IF EXISTS by_v")?;
        Ok::<_, Error>(tx.execute(change, ()).unwrap_err().to_string())
    };
    db.write(move |tx| Ok(tx.execute(change, ()).unwrap_err().to_string())).wait().unwrap();
    let said = db.write(by_writer).wait().unwrap();
    assert!(said.contains("because it is a view"), "{said}");
    let tx = db.transaction().unwrap();
    let said = tx.execute(change, ()).wait().unwrap_err().to_string();
    assert!(said.contains("no such index"), "{said}");
    tx.execute("UPDATE b SET v = v + 1", ()).wait().unwrap();
    tx.commit().wait().unwrap();
}
