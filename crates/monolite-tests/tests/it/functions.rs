//! Functions, collations and modules of the application, on every connection; and those that the
//! engine adds.

use std::panic::panic_any;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use monolite::{
    ConnectionSetup, Database, Error, ErrorKind, Function, Options, ReadTx, UntrustedLimits,
    rusqlite,
};
use rusqlite::functions::{Aggregate, Context, WindowAggregate};

/// Of all connections.
static COUNT: AtomicI64 = AtomicI64::new(0);

/// The longest text.
struct Longest;

impl Aggregate<String, String> for Longest {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<String> {
        Ok(String::new())
    }

    fn step(&self, call: &mut Context<'_>, longest: &mut String) -> rusqlite::Result<()> {
        let text: String = call.get(0)?;
        if text.len() > longest.len() {
            *longest = text;
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, longest: Option<String>) -> rusqlite::Result<String> {
        Ok(longest.unwrap_or_default())
    }
}

/// A sum, with `OVER`, too.
struct Sum;

impl Aggregate<i64, i64> for Sum {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<i64> {
        Ok(0)
    }

    fn step(&self, call: &mut Context<'_>, sum: &mut i64) -> rusqlite::Result<()> {
        *sum += call.get::<i64>(0)?;
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, sum: Option<i64>) -> rusqlite::Result<i64> {
        Ok(sum.unwrap_or(0))
    }
}

impl WindowAggregate<i64, i64> for Sum {
    fn value(&self, sum: Option<&mut i64>) -> rusqlite::Result<i64> {
        Ok(sum.map_or(0, |sum| *sum))
    }

    fn inverse(&self, call: &mut Context<'_>, sum: &mut i64) -> rusqlite::Result<()> {
        *sum -= call.get::<i64>(0)?;
        Ok(())
    }
}

/// Panics in the part that its first argument names.
struct FailsAt;

fn fail_at(part: &str, wanted: &str) -> rusqlite::Result<()> {
    if part == wanted { panic_any("on purpose") } else { Ok(()) }
}

impl Aggregate<String, i64> for FailsAt {
    fn init(&self, call: &mut Context<'_>) -> rusqlite::Result<String> {
        call.get(0)
    }

    fn step(&self, _: &mut Context<'_>, part: &mut String) -> rusqlite::Result<()> {
        fail_at(part, "step")
    }

    fn finalize(&self, _: &mut Context<'_>, part: Option<String>) -> rusqlite::Result<i64> {
        fail_at(&part.unwrap_or_default(), "end").map(|()| 0)
    }
}

impl WindowAggregate<String, i64> for FailsAt {
    fn value(&self, part: Option<&mut String>) -> rusqlite::Result<i64> {
        fail_at(part.map_or("", |part| part), "value").map(|()| 0)
    }

    fn inverse(&self, _: &mut Context<'_>, part: &mut String) -> rusqlite::Result<()> {
        fail_at(part, "inverse")
    }
}

fn add(connection: &ConnectionSetup<'_>) -> rusqlite::Result<()> {
    let kind = Function::DETERMINISTIC;
    connection.scalar("double", 1, kind, |call| Ok(2 * call.get::<i64>(0)?))?;
    connection.scalar("safe", 1, kind.for_untrusted(), |call| call.get::<i64>(0))?;
    connection.aggregate("longest", 1, kind, Longest)?;
    connection.window("total_of", 1, kind, Sum)?;
    connection.window("fails_at", 2, kind, FailsAt)?;
    connection
        .scalar("panics", 0, kind, |_| -> rusqlite::Result<i64> { panic_any("on purpose") })?;
    // It lies: it is not deterministic.
    connection.scalar("liar", 0, kind, |_| Ok(COUNT.fetch_add(1, Ordering::Relaxed)))?;
    let volatile = Function::VOLATILE;
    connection.scalar("counts", 0, volatile, |_| Ok(COUNT.fetch_add(1, Ordering::Relaxed)))?;
    connection.collation("by_length", |a, b| a.len().cmp(&b.len()).then(a.cmp(b)))?;
    connection.collation("no_boom", |a, b| {
        if [a, b].contains(&"boom") {
            panic_any("on purpose")
        }
        a.cmp(b)
    })
}

fn database() -> Database {
    let db = Options::new().connection_setup(add).open(":memory:").unwrap();
    db.write(|tx| {
        tx.execute_batch(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, x INTEGER, name TEXT);
             CREATE INDEX names ON t(name COLLATE by_length);
             INSERT INTO t VALUES (1, 10, 'aaa'), (2, 20, 'b'), (3, 30, 'cc');",
        )
    })
    .wait()
    .unwrap();
    db
}

fn number(tx: &ReadTx<'_>, sql: &str) -> Result<i64, Error> {
    tx.query_row(sql, (), |row| row.get(0))
}

fn ask(db: &Database, sql: &'static str) -> Result<i64, Error> {
    db.read(move |tx| number(tx, sql)).wait()
}

#[test]
fn functions_and_collations_are_on_every_connection() {
    let db = database();
    let sql = "SELECT group_concat(name ORDER BY name COLLATE by_length) || double(4) || \
               longest(name) FROM t";
    let expected = "b,cc,aaa8aaa";
    let text = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    assert_eq!(db.write(move |tx| tx.query_row(sql, (), text)).wait().unwrap(), expected);
    assert_eq!(db.read(move |tx| tx.query_row(sql, (), text)).wait().unwrap(), expected);
    assert_eq!(smol::block_on(db.read(move |tx| tx.query_row(sql, (), text))).unwrap(), expected);
    let tx = db.transaction().unwrap();
    tx.execute("UPDATE t SET x = double(x) WHERE id = 1", ()).wait().unwrap();
    assert_eq!(tx.query_row(sql, (), text).wait().unwrap(), expected);
    tx.commit().wait().unwrap();
    let sums = "SELECT total_of(x) OVER (ORDER BY id ROWS 1 PRECEDING) FROM t";
    let sums = db.read(|tx| tx.query_map(sums, (), |row| row.get::<_, i64>(0))).wait().unwrap();
    assert_eq!(sums, [20, 40, 50]);
    assert_eq!(ask(&db, "SELECT total_of(x) FROM t").unwrap(), 70);
}

#[test]
fn a_function_that_lies_about_being_deterministic_costs_a_commit_and_makes_none_wrong() {
    let db = database();
    let tx = db.transaction().unwrap();
    let seen = tx.query_row("SELECT liar() FROM t LIMIT 1", (), |row| row.get::<_, i64>(0));
    let seen = seen.wait().unwrap();
    tx.execute("UPDATE t SET x = ?1 WHERE id = 2", [seen]).wait().unwrap();
    let error = tx.commit().wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("cannot be repeated"), "{error}");
    assert_eq!(ask(&db, "SELECT x FROM t WHERE id = 2").unwrap(), 20);
}

#[test]
fn a_volatile_function_is_refused_where_statements_are_run_again() {
    let db = database();
    db.write(|tx| {
        tx.execute_batch(
            "CREATE TABLE log(n);
             CREATE TRIGGER logs AFTER DELETE ON t BEGIN INSERT INTO log VALUES (counts()); END",
        )?;
        number(tx, "SELECT counts()")
    })
    .wait()
    .unwrap();
    ask(&db, "SELECT counts()").unwrap();
    db.write(|tx| tx.execute("DELETE FROM t WHERE id = 3", ())).wait().unwrap();
    let tx = db.transaction().unwrap();
    for sql in ["SELECT counts() FROM t", "DELETE FROM t", "UPDATE t SET x = counts()"] {
        let error = tx.query_map(sql, (), |_| Ok(())).wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("Function::VOLATILE"), "{error}");
    }
    tx.execute("UPDATE t SET x = 5 WHERE id = 1", ()).wait().unwrap();
    tx.commit().wait().unwrap();
    // Behind the default of a column, too, unless the statement gives that a value.
    let sql = "CREATE TABLE d(id INTEGER PRIMARY KEY, v DEFAULT (counts()), w)";
    db.write(move |tx| tx.execute_batch(sql)).wait().unwrap();
    let tx = db.transaction().unwrap();
    for sql in ["INSERT INTO d(id) VALUES (1)", "UPDATE d SET w = 4"] {
        let error = tx.execute(sql, ()).wait().unwrap_err();
        assert!(error.to_string().contains("Function::VOLATILE"), "{sql}: {error}");
    }
    for sql in ["INSERT INTO d VALUES (2, 3, 4)", "UPDATE d SET v = 4, w = 5", "DELETE FROM d"] {
        assert_eq!(tx.execute(sql, ()).wait().unwrap(), 1, "{sql}");
    }
    tx.rollback();
    let managed = db.transact(async |tx| tx.execute("UPDATE t SET x = counts()", ()).wait()).wait();
    assert_eq!(managed.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(ask(&db, "SELECT x FROM t WHERE id = 1").unwrap(), 5);
}

#[test]
fn a_panic_in_a_function_is_an_error_of_its_statement() {
    let db = database();
    let kept = db.write(|tx| {
        tx.execute("UPDATE t SET x = 11 WHERE id = 1", ())?;
        let error = tx.execute("UPDATE t SET x = panics()", ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        number(tx, "SELECT x FROM t WHERE id = 1")
    });
    assert_eq!(kept.wait().unwrap(), 11);
    for (sql, name) in [
        ("SELECT panics()", "panics"),
        ("SELECT fails_at('step', id) FROM t", "fails_at"),
        ("SELECT fails_at('end', id) FROM t", "fails_at"),
        ("SELECT fails_at('value', id) OVER (ORDER BY id) FROM t", "fails_at"),
    ] {
        let error = ask(&db, sql).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{sql}: {error}");
        let named = format!("the function {name}() of the application");
        assert!(error.to_string().starts_with(&named), "{sql}: {error}");
    }
    assert_eq!(ask(&db, "SELECT x FROM t WHERE id = 2").unwrap(), 20);
}

#[test]
fn nothing_is_kept_of_a_transaction_whose_collation_panicked() {
    let db = database();
    db.write(|tx| {
        tx.execute_batch(
            "CREATE TABLE p(name UNIQUE COLLATE no_boom); INSERT INTO p VALUES ('a'), ('c')",
        )
    })
    .wait()
    .unwrap();
    let insert = "INSERT INTO p VALUES ('boom')";
    let panicked = [
        db.write(move |tx| tx.execute(insert, ()).map(|_| 0)).wait(),
        ask(&db, "SELECT count(*) FROM p WHERE name > 'boom'"),
        db.transact(async |tx| tx.execute(insert, ()).wait().map(|_| 0)).wait(),
    ];
    for error in panicked.into_iter().map(Result::unwrap_err) {
        assert!(error.to_string().contains("a collation of the application"), "{error}");
    }
    assert_eq!(ask(&db, "SELECT count(*) FROM p WHERE name > 'b'").unwrap(), 1);
    db.write(|tx| tx.execute("INSERT INTO p VALUES ('b')", ())).wait().unwrap();
    assert_eq!(ask(&db, "SELECT count(*) FROM p").unwrap(), 3);
}

#[test]
fn what_sqlite_or_the_engine_has_is_not_replaced() {
    type Add = fn(&ConnectionSetup<'_>) -> rusqlite::Result<()>;
    let wrong: [(Add, &str); 4] = [
        (|c| c.scalar("Random", 0, Function::VOLATILE, |_| Ok(4)), "\"Random\""),
        (|c| c.scalar("changes", 0, Function::VOLATILE, |_| Ok(4)), "\"changes\""),
        (|c| c.collation("nocase", |a, b| a.cmp(b)), "\"nocase\""),
        (|c| c.scalar("", 0, Function::VOLATILE, |_| Ok(4)), "\"\""),
    ];
    for (add, name) in wrong {
        let error = Options::new().connection_setup(add).open(":memory:").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    // What the engine adds may be.
    let replaces: Add = |c| c.scalar("sin", 1, Function::DETERMINISTIC, |_| Ok(7));
    let db = Options::new().connection_setup(replaces).connection_setup(add).open(":memory:");
    assert_eq!(ask(&db.unwrap(), "SELECT sin(double(0))").unwrap(), 7);
}

#[test]
fn untrusted_sql_may_call_what_is_meant_for_it() {
    if rusqlite::version_number() < 3_054_000 {
        return;
    }
    let db = Options::new().connection_setup(add).open(":memory:").unwrap();
    let limits = UntrustedLimits::new();
    let ask = |sql: &str| db.query_untrusted(sql, (), &limits).wait();
    let answer = ask("SELECT safe(1) + CAST(sqrt(4) AS INTEGER)").unwrap();
    assert_eq!(answer.rows, [[rusqlite::types::Value::Integer(3)]]);
    for sql in [
        "SELECT double(1)",
        "SELECT longest('a')",
        "SELECT 'a' REGEXP 'a'",
        "SELECT count(*) FROM generate_series(1, 3)",
    ] {
        let error = ask(sql).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let error = ask("SELECT double(1)").unwrap_err().to_string();
    assert!(error.contains("Function::for_untrusted"), "{error}");
}

#[test]
fn mathematics_a_series_and_regexp_are_there() {
    let db = database();
    let sql = "SELECT printf('%.4f %.4f %.4f %.4f', sin(1), log(2, 8), pow(2, '10'), \
               degrees(pi())) || ' ' || ceil(1.2) || ' ' || ceil(3) || ' ' || coalesce(ln(0), \
               sqrt(-1), sqrt('x'), acos(2), mod(1, 0), 'NULL') || ' ' || (SELECT sum(value) \
               FROM generate_series(1, 10, 2))";
    let text = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    let told = db.read(|tx| tx.query_row(sql, (), text)).wait().unwrap();
    assert_eq!(told, "0.8415 3.0000 1024.0000 180.0000 2.0 3 NULL 25");
    let sql = "SELECT sum(name REGEXP '^(a+|c)') FROM t";
    assert_eq!(ask(&db, sql).unwrap(), 2);
    let error = ask(&db, "SELECT 'a' REGEXP '('").unwrap_err();
    assert!(error.to_string().contains("the pattern \"(\" cannot be used"), "{error}");
    let hard = "SELECT replace(hex(zeroblob(10000)), '0', 'a') REGEXP '^(a+)+$b'";
    assert_eq!(ask(&db, hard).unwrap(), 0);
    let within = db.with_time_limit(Duration::from_millis(30));
    let endless = ask(&within, "SELECT count(*) FROM generate_series(1, 1000000000000)");
    assert_eq!(endless.unwrap_err().kind(), ErrorKind::Timeout);
    let tx = db.transaction().unwrap();
    let pure =
        "SELECT count(*) FROM generate_series(1, 3) WHERE sqrt(value) >= 1 AND 'a' REGEXP 'a'";
    assert_eq!(tx.query_row(pure, (), |row| row.get::<_, i64>(0)).wait().unwrap(), 3);
    tx.execute("UPDATE t SET x = pow(x, 2)", ()).wait().unwrap();
    tx.commit().wait().unwrap();
}
