//! A query from a source that is not trusted reads within its limits, and nothing else waits for
//! it.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use monolite::{
    Database, ErrorKind, Function, Options, ToSql, UntrustedLimits, UntrustedRows, Value, rusqlite,
};
use monolite_testkit::blocking::block_on;

use crate::patience::{Gate, eventually};

/// How long a call may take on a busy machine.
const SLACK: Duration = Duration::from_secs(10);

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                       SELECT max(i) FROM n";

/// Calls the gate while it is planned, as SQLite compares the result with its statistics.
const HELD_IN_PLANNER: &str = "SELECT count(*) FROM t WHERE x > held(1)";

/// Calls the gate when it runs, with a snapshot.
const HELD_IN_STEP: &str = "SELECT held(id) FROM t";

/// A database in a file in which untrusted SQL can call the gate, with statistics.
fn open_with_gate(options: Options) -> Option<(tempfile::TempDir, Database, Arc<Gate>)> {
    if rusqlite::version_number() < 3_054_000 {
        return None;
    }
    let gate = Arc::new(Gate::default());
    let calls = Arc::clone(&gate);
    let options = options.connection_setup(move |setup| {
        let gate = Arc::clone(&calls);
        setup.scalar("held", 1, Function::DETERMINISTIC.for_untrusted(), move |_| {
            gate.pass();
            Ok(1)
        })
    });
    let directory = tempfile::tempdir().unwrap();
    let db = options.open(directory.path().join("db")).unwrap();
    let setup = "CREATE TABLE t(id INTEGER PRIMARY KEY, x); CREATE INDEX i ON t(x);
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100)
                 INSERT INTO t SELECT i, i % 10 FROM n; ANALYZE; CREATE TABLE filled(x)";
    db.write(move |tx| tx.execute_batch(setup)).wait().unwrap();
    Some((directory, db, gate))
}

/// Starts a query that comes to the gate, and ends it when `count` calls are there.
fn hold(db: &Database, sql: &str, gate: &Gate, count: u32) {
    let query = db.query_untrusted(sql, (), &UntrustedLimits::new().time(SLACK * 6));
    eventually("the calls come", || gate.arrivals() >= count);
    drop(query);
}

/// Writes several times as much as the WAL may hold ([`SMALL_WAL`]).
fn fill(db: &Database) -> monolite::Result<()> {
    (0..150).try_for_each(|_| {
        let fill = "INSERT INTO filled SELECT randomblob(100000)";
        db.write(move |tx| tx.execute(fill, ())).wait().map(drop)
    })
}

const SMALL_WAL: u64 = 8 << 20;

fn count_of(db: &Database, table: &'static str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    db.read(move |tx| tx.query_row(&sql, (), |row| row.get(0))).wait().unwrap()
}

fn open(options: Options) -> Option<Database> {
    if rusqlite::version_number() < 3_054_000 {
        return None;
    }
    let db = options.open(":memory:").unwrap();
    let setup =
        "CREATE TABLE t(id INTEGER PRIMARY KEY, x); INSERT INTO t VALUES (1, 'a'), (2, 'b');
                 CREATE TABLE secret(s); INSERT INTO secret VALUES ('hidden');
                 CREATE VIEW v AS SELECT x FROM t";
    db.write(move |tx| tx.execute_batch(setup)).wait().unwrap();
    Some(db)
}

fn ask(db: &Database, sql: &str) -> monolite::Result<UntrustedRows> {
    db.query_untrusted(sql, (), &UntrustedLimits::new().time(SLACK)).wait()
}

fn kind(db: &Database, sql: &str, limits: &UntrustedLimits) -> (ErrorKind, String) {
    let error = db.query_untrusted(sql, (), limits).wait().expect_err(sql);
    (error.kind(), error.to_string())
}

#[test]
fn rows_come_with_their_names_and_parameters_by_name() {
    let Some(db) = open(Options::new()) else { return };
    let limits = UntrustedLimits::new().time(SLACK);
    let sql = "SELECT id, x AS name FROM t WHERE x >= :least ORDER BY id";
    let query = db.query_untrusted(sql, &[(":least", &"a" as &dyn ToSql)], &limits);
    let answer = block_on(query).unwrap();
    assert_eq!(answer.columns, ["id", "name"]);
    let row = |id, name: &str| vec![Value::Integer(id), Value::Text(name.into())];
    assert_eq!(answer.rows, [row(1, "a"), row(2, "b")]);
    let value = |sql| ask(&db, sql).unwrap().rows[0][0].clone();
    assert_eq!(value("VALUES (NULL)"), Value::Null);
    assert_eq!(value("SELECT 1.5"), Value::Real(1.5));
    assert_eq!(value("SELECT x'00ff'"), Value::Blob(vec![0, 255]));
    assert_eq!(value("SELECT count(*) FROM json_each('[1, 2]')"), Value::Integer(2));
    assert_eq!(value("SELECT name FROM pragma_table_info('t') LIMIT 1"), Value::Text("id".into()));
    assert_eq!(value("EXPLAIN QUERY PLAN SELECT 1"), value("EXPLAIN QUERY PLAN SELECT 1"));
}

#[test]
fn a_write_that_was_acknowledged_is_seen() {
    let Some(db) = open(Options::new()) else { return };
    for number in 3..50 {
        db.write(move |tx| tx.execute("INSERT INTO t VALUES (?1, 'c')", [number])).wait().unwrap();
        let seen = ask(&db, "SELECT max(id) FROM t").unwrap();
        assert_eq!(seen.rows[0][0], Value::Integer(number));
    }
    db.write(|tx| tx.execute_batch("ALTER TABLE t RENAME COLUMN x TO y")).wait().unwrap();
    assert_eq!(ask(&db, "SELECT y FROM t WHERE id = 1").unwrap().rows.len(), 1);
    assert_eq!(ask(&db, "SELECT x FROM t").unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn all_but_a_query_is_refused_and_changes_nothing() {
    let Some(db) = open(Options::new()) else { return };
    for sql in [
        "INSERT INTO t VALUES (3, 'c')",
        "DELETE FROM t RETURNING id",
        "CREATE TEMP TABLE z(x)",
        "ATTACH ':memory:' AS z",
        "VACUUM INTO 'z.db'",
        "PRAGMA user_version = 7",
        "PRAGMA database_list",
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('z')",
        "SELECT * FROM generate_series(1, 2)",
        "SELECT * FROM monolite_idempotency",
        "BEGIN",
        "COMMIT",
        "SELECT 1; SELECT 2",
        "",
    ] {
        let error = ask(&db, sql).expect_err(sql);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{sql}: {error}");
    }
    // By the list of what is allowed, before anything else finds out.
    for (sql, word) in [
        ("INSERT INTO t VALUES (3, 'c')", "may only query"),
        ("CREATE TABLE z(x)", "may only query"),
        ("ANALYZE", "may only query"),
        ("PRAGMA user_version", "PRAGMA user_version is refused"),
        ("SELECT * FROM pragma_compile_options", "PRAGMA compile_options is refused"),
        ("SELECT sqlite_log(1, 'x')", "sqlite_log() is refused"),
        ("SELECT randomblob(1)", "randomblob() is refused"),
        ("SELECT 1\0; DELETE FROM t", "NUL byte"),
    ] {
        let text = ask(&db, sql).expect_err(sql).to_string();
        assert!(text.contains(word), "{sql}: {text}");
    }
    assert_eq!(ask(&db, "SELECT count(*) FROM t").unwrap().rows[0][0], Value::Integer(2));
}

#[test]
fn tables_that_are_not_named_cannot_be_read_in_any_way() {
    let Some(db) = open(Options::new()) else { return };
    let limits = UntrustedLimits::new().time(SLACK).tables(["t"]);
    for sql in [
        "SELECT x FROM T WHERE id = 1",
        "SELECT 'natural' AS using_it, x AS \"using\" FROM t WHERE id = 1 -- using",
    ] {
        let answer = db.query_untrusted(sql, (), &limits).wait().unwrap();
        assert_eq!(answer.rows.len(), 1, "{sql}");
    }
    for sql in [
        "SELECT s FROM secret",
        "SELECT count(*) FROM secret",
        "SELECT 1 FROM t, secret",
        "SELECT x FROM t WHERE EXISTS (SELECT 1 FROM secret)",
        "SELECT x FROM t WHERE x IN secret",
        // A common table expression takes the name of a table that is allowed.
        "WITH t AS (SELECT s FROM secret) SELECT * FROM t",
        "SELECT * FROM t NATURAL JOIN secret",
        "SELECT 1 FROM t LEFT JOIN (SELECT s AS x FROM secret) USING (x)",
        "SELECT x FROM v",
        "SELECT sql FROM sqlite_schema",
        "PRAGMA table_info(secret)",
        "SELECT * FROM pragma_table_info('secret')",
        "SELECT * FROM pragma_table_list",
    ] {
        let (kind, text) = kind(&db, sql, &limits);
        assert_eq!(kind, ErrorKind::Invalid, "{sql}: {text}");
    }
    let both = UntrustedLimits::new().time(SLACK).tables(["v", "t"]);
    assert_eq!(db.query_untrusted("SELECT x FROM v", (), &both).wait().unwrap().rows.len(), 2);
    for view in
        ["n AS SELECT x FROM t NATURAL JOIN secret", "u AS SELECT x FROM t JOIN secret USING(id)"]
    {
        db.write(move |tx| tx.execute_batch(&format!("CREATE VIEW {view}"))).wait().unwrap();
        let limits = UntrustedLimits::new().time(SLACK).tables([&view[..1], "t"]);
        let (kind, text) = kind(&db, &format!("SELECT x FROM {}", &view[..1]), &limits);
        assert_eq!(kind, ErrorKind::Invalid, "{text}");
        assert!(text.contains("USING or NATURAL"), "{text}");
    }
    // The next query has its own.
    assert_eq!(ask(&db, "SELECT s FROM secret").unwrap().rows.len(), 1);
}

#[test]
fn more_than_a_limit_allows_is_an_error_that_names_it() {
    let Some(db) = open(Options::new()) else { return };
    let limits = || UntrustedLimits::new().time(SLACK);
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 11)
                SELECT i FROM n";
    let sort = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5000)
                SELECT group_concat(hex(zeroblob(1000))) FROM n";
    let empty = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 200)
                 SELECT '' FROM n";
    let ordered = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9000)
                   SELECT i FROM n ORDER BY hex(zeroblob(500))";
    for (sql, limits, name) in [
        (many, limits().rows(10), "UntrustedLimits::rows"),
        ("SELECT zeroblob(600), zeroblob(600)", limits().bytes(1_024), "UntrustedLimits::bytes"),
        ("SELECT length(zeroblob(1025))", limits().bytes(1_024), "UntrustedLimits::bytes"),
        (empty, limits().bytes(1_024), "UntrustedLimits::bytes"),
        (ordered, limits().memory_bytes(1 << 20), "UntrustedLimits::memory_bytes"),
        (sort, limits().bytes(64 << 20).memory_bytes(1 << 20), "UntrustedLimits::memory_bytes"),
        ("SELECT 1", limits().rows(0), "UntrustedLimits::rows"),
        ("SELECT 1", limits().time(Duration::ZERO), "UntrustedLimits::time"),
    ] {
        let (kind, text) = kind(&db, sql, &limits);
        assert_eq!(kind, ErrorKind::Invalid, "{sql}: {text}");
        assert!(text.contains(name), "{sql}: {text}");
    }
    assert_eq!(db.query_untrusted(many, (), &limits().rows(11)).wait().unwrap().rows.len(), 11);
    let long = format!("SELECT {}1", " ".repeat(70_000));
    assert_eq!(ask(&db, &long).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn an_endless_query_ends_at_its_time_and_its_thread_serves_the_next() {
    let Some(db) = open(Options::new().untrusted_threads(1)) else { return };
    let limits = UntrustedLimits::new().time(Duration::from_millis(50));
    for _ in 0..3 {
        let start = Instant::now();
        assert_eq!(kind(&db, ENDLESS, &limits).0, ErrorKind::Timeout);
        assert!(start.elapsed() < SLACK);
        until_free(&db);
    }
    db.close().unwrap();
}

/// Waits until a thread for untrusted queries is free.
fn until_free(db: &Database) {
    eventually("a thread is free", || {
        !ask(db, "SELECT 1").is_err_and(|error| error.kind() == ErrorKind::Overloaded)
    });
}

#[test]
fn a_query_is_overloaded_when_all_threads_are_busy_and_others_do_not_wait() {
    let Some(db) = open(Options::new().untrusted_threads(2)) else { return };
    let limits = UntrustedLimits::new().time(SLACK * 6);
    let running: Vec<_> = (0..2).map(|_| db.query_untrusted(ENDLESS, (), &limits)).collect();
    let (refused, text) = kind(&db, "SELECT 1", &limits);
    assert_eq!(refused, ErrorKind::Overloaded);
    assert!(text.contains("untrusted_threads"), "{text}");
    let insert = "INSERT INTO t VALUES (3, 'c')";
    db.write(move |tx| tx.execute(insert, ())).wait().unwrap();
    let tx = db.transaction().unwrap();
    tx.execute("UPDATE t SET x = 'd' WHERE id = 3", ()).wait().unwrap();
    tx.commit().wait().unwrap();
    assert_eq!(count_of(&db, "t"), 3);
    // Dropping a handle ends its query.
    drop(running);
    until_free(&db);
}

#[test]
fn a_statement_that_the_planner_keeps_holds_nothing_but_its_thread() {
    let options = Options::new().untrusted_threads(2).wal_limit_bytes(SMALL_WAL);
    let Some((_directory, db, gate)) = open_with_gate(options) else { return };
    let limits = UntrustedLimits::new().time(Duration::from_millis(500));
    let query = db.query_untrusted(HELD_IN_PLANNER, (), &limits);
    eventually("the call comes", || gate.arrivals() > 0);
    assert_eq!(query.wait().unwrap_err().kind(), ErrorKind::Timeout);
    // Neither the WAL nor a reader, a transaction or the other thread waits for it.
    fill(&db).unwrap();
    assert_eq!(count_of(&db, "filled"), 150);
    let tx = db.transaction().unwrap();
    tx.execute("UPDATE t SET x = 0 WHERE id = 1", ()).wait().unwrap();
    tx.commit().wait().unwrap();
    assert_eq!(ask(&db, "SELECT count(*) FROM filled").unwrap().rows[0][0], Value::Integer(150));
    // The next one has the last thread.
    hold(&db, HELD_IN_PLANNER, &gate, 2);
    assert_eq!(kind(&db, "SELECT 1", &limits).0, ErrorKind::Overloaded);
    fill(&db).unwrap();
    gate.open();
    until_free(&db);
    assert_eq!(ask(&db, "SELECT x FROM t WHERE id = 1").unwrap().rows[0][0], Value::Integer(0));
    db.close().unwrap();
}

#[test]
fn a_call_that_does_not_return_keeps_its_snapshot_and_stalls_no_writer() {
    let options = Options::new()
        .untrusted_threads(1)
        .wal_limit_bytes(SMALL_WAL)
        .write_time_limit(Duration::from_millis(300));
    let Some((_directory, db, gate)) = open_with_gate(options) else { return };
    hold(&db, HELD_IN_STEP, &gate, 1);
    // There is no room beside the snapshot, and the writer says so.
    assert_eq!(fill(&db).unwrap_err().kind(), ErrorKind::Overloaded);
    assert!(count_of(&db, "filled") > 0);
    gate.open();
    until_free(&db);
    fill(&db).unwrap();
    db.close().unwrap();
}

#[test]
fn a_snapshot_that_keeps_the_wal_is_taken_away() {
    let options = Options::new().wal_limit_bytes(SMALL_WAL);
    let Some((_directory, db, _)) = open_with_gate(options) else { return };
    let limits = UntrustedLimits::new().time(SLACK * 6);
    let endless = format!("{ENDLESS}, t");
    let running = db.query_untrusted(endless, (), &limits);
    fill(&db).unwrap();
    let error = running.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("wal_limit_bytes"), "{error}");
    until_free(&db);
}

#[test]
fn a_close_ends_although_the_planner_keeps_a_statement() {
    let Some((directory, db, gate)) = open_with_gate(Options::new()) else { return };
    hold(&db, HELD_IN_PLANNER, &gate, 1);
    let other = db.clone();
    let error = db.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let text = error.to_string();
    assert!(text.contains("(running for ") && text.contains("untrusted.rs:"), "{text}");
    // All that was written is in the database file.
    let copy = directory.path().join("copy");
    eventually("the copy has it", || {
        std::fs::copy(directory.path().join("db"), &copy).unwrap();
        let copy = rusqlite::Connection::open(&copy).unwrap();
        copy.query_row("SELECT count(*) FROM t", (), |row| row.get(0)) == Ok(100)
    });
    gate.open();
    other.close().unwrap();
    let db = Database::open(directory.path().join("db")).unwrap();
    assert_eq!(count_of(&db, "t"), 100);
}

/// A waker that closes a database, and tells what came of it.
struct Closing(Database, Sender<ErrorKind>);

impl Wake for Closing {
    fn wake(self: Arc<Self>) {
        self.1.send(self.0.close().unwrap_err().kind()).unwrap();
    }
}

#[test]
fn a_waker_that_closes_the_database_does_not_wait_for_itself() {
    // The thread of the query wakes the one, that of the time the other.
    for (sql, time) in [(HELD_IN_STEP, SLACK * 6), (ENDLESS, Duration::from_millis(50))] {
        let Some((_directory, db, gate)) = open_with_gate(Options::new()) else { return };
        let (tell, told) = channel();
        let waker = Waker::from(Arc::new(Closing(db.clone(), tell)));
        let mut query = db.query_untrusted(sql, (), &UntrustedLimits::new().time(time));
        let polled = Pin::new(&mut query).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending(), "{sql}");
        gate.open();
        assert_eq!(told.recv_timeout(SLACK), Ok(ErrorKind::Invalid), "{sql}");
        drop(query);
        db.close().unwrap();
    }
}

#[test]
fn a_closed_database_refuses_and_a_close_ends_what_runs() {
    let Some(db) = open(Options::new()) else { return };
    let limits = UntrustedLimits::new().time(SLACK * 6);
    let running = db.query_untrusted(ENDLESS, (), &limits);
    let other = db.clone();
    db.close().unwrap();
    assert_eq!(running.wait().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(ask(&other, "SELECT 1").unwrap_err().kind(), ErrorKind::Closed);
}
