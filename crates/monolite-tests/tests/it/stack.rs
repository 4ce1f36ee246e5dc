//! SQL whose expressions become deep when they are put together, with the options as they are: it
//! is answered or refused, and ends no process.

use std::thread;
use std::time::Duration;

use crate::patience::one;
use monolite::{Database, ErrorKind, InteractiveOptions, Options};

/// How long it takes on a busy machine is not the question.
fn open() -> Database {
    let long = Duration::from_secs(600);
    let options = Options::new().read_time_limit(long).write_time_limit(long);
    options.interactive(InteractiveOptions::default().time_limit(long)).open(":memory:").unwrap()
}

/// A query of `parts` common table expressions, each of `calls` in each other.
fn chain(parts: usize, calls: usize) -> String {
    let mut sql = String::from("WITH c0(a) AS (SELECT 1)");
    for i in 1..=parts {
        let (open, close) = ("abs(".repeat(calls), ")".repeat(calls));
        sql += &format!(", c{i}(a) AS (SELECT {open}a{close} FROM c{})", i - 1);
    }
    sql + &format!(" SELECT a FROM c{parts}")
}

/// What `sql` gives in each way to run it.
fn ways(db: &Database, sql: &str) -> Vec<monolite::Result<i64>> {
    let text = || sql.to_owned();
    let of = |sql: String| {
        move |tx: &monolite::ReadTx<'_>| tx.query_row(&sql, (), |row| row.get::<_, i64>(0))
    };
    let by_hand = |sql: String| {
        move |tx: &monolite::ReadTx<'_>| -> monolite::Result<i64> {
            Ok(tx.prepare(&sql)?.query_row((), |row| row.get(0))?)
        }
    };
    let (batch, written) = (text(), of(text()));
    let transaction = db.transaction().unwrap();
    vec![
        db.write(move |tx| written(tx)).wait(),
        db.read(of(text())).wait(),
        db.read(by_hand(text())).wait(),
        smol::block_on(db.read(of(text()))),
        smol::block_on(transaction.query_row(sql, (), |row| row.get::<_, i64>(0))),
        db.write(move |tx| tx.execute_batch(&batch).map(|()| 1)).wait(),
    ]
}

fn small_thread(run: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(256 << 10).spawn(run).unwrap().join().unwrap();
}

#[test]
#[ignore = "long: the gate runs it"]
fn what_sqlite_answers_on_a_main_thread_is_answered_on_every_thread() {
    let db = open();
    small_thread(move || {
        for answer in ways(&db, &chain(50, 90)) {
            assert_eq!(answer.unwrap(), 1);
        }
    });
}

#[test]
#[ignore = "long: the gate runs it"]
fn views_on_views_are_answered_also_when_they_were_made_behind_a_kept_statement() {
    let db = open();
    let view = |i: usize, calls: usize| {
        let (open, close) = ("abs(".repeat(calls), ")".repeat(calls));
        let before =
            if i == 0 { "SELECT 1 AS a".into() } else { format!("SELECT * FROM v{}", i - 1) };
        format!("CREATE VIEW v{i}(a) AS SELECT {open}a{close} FROM ({before});")
    };
    let all = move |calls| (0..=50).map(|i| view(i, calls)).collect::<String>();
    let flat = all(0);
    db.write(move |tx| tx.execute_batch(&flat)).wait().unwrap();
    small_thread(move || {
        let sql = "SELECT a FROM v50";
        ways(&db, sql).into_iter().for_each(|answer| assert_eq!(answer.unwrap(), 1));
        let drops: String = (0..=50).map(|i| format!("DROP VIEW v{i};")).collect();
        let again = drops + &all(90);
        db.write(move |tx| tx.execute_batch(&again)).wait().unwrap();
        ways(&db, sql).into_iter().for_each(|answer| assert_eq!(answer.unwrap(), 1));
    });
}

/// Behind each, SQLite would prepare statements again that were prepared before.
#[test]
#[ignore = "long: the gate runs it"]
fn kept_statements_are_answered_behind_a_switch_of_foreign_keys() {
    const DEFER: &str = "PRAGMA defer_foreign_keys = ON";
    let db = open();
    small_thread(move || {
        let (sql, off) = (chain(50, 90), db.without_foreign_keys());
        let all = || ways(&db, &sql).into_iter().for_each(|answer| assert_eq!(answer.unwrap(), 1));
        let one = |tx: &monolite::ReadTx<'_>, sql: &str| {
            assert_eq!(tx.query_row(sql, (), |row| row.get::<_, i64>(0))?, 1);
            Ok::<_, monolite::Error>(())
        };
        all();
        let text = sql.clone();
        off.write(move |tx| one(tx, &text)).wait().unwrap();
        let transaction = off.transaction().unwrap();
        transaction.query_row(&sql, (), |_| Ok(())).wait().unwrap();
        drop(transaction);
        all();
        let text = sql.clone();
        let deferred = db.write(move |tx| {
            one(tx, &text)?;
            tx.execute(DEFER, ())?;
            one(tx, &text)?;
            tx.execute_batch(DEFER)?;
            one(tx, &text)
        });
        deferred.wait().unwrap();
        let transaction = db.transaction().unwrap();
        transaction.execute(DEFER, ()).wait().unwrap();
        transaction.query_row(&sql, (), |_| Ok(())).wait().unwrap();
        drop(transaction);
        let text = sql.clone();
        let read = db.read(move |tx| {
            tx.query_map(DEFER, (), |_| Ok(()))?;
            one(tx, &text)
        });
        read.wait().unwrap();
        all();
    });
}

#[test]
fn what_there_is_no_stack_for_is_refused_and_many_shallow_selects_are_not() {
    let db = open();
    small_thread(move || {
        // Written deep, and quickly prepared.
        let deep = format!("1{}", " AND 1".repeat(499));
        let mut sql = String::from("WITH c0(a) AS (SELECT 1)");
        for i in 1..=150 {
            sql += &format!(", c{i}(a) AS (SELECT a FROM c{} WHERE {deep})", i - 1);
        }
        for answer in ways(&db, &(sql + " SELECT a FROM c150")) {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("SELECTs"), "{error}");
        }
        let shallow = vec!["SELECT 1"; 400].join(" UNION ALL ");
        ways(&db, &shallow).into_iter().for_each(|answer| assert_eq!(answer.unwrap(), 1));
        let one = one(&db, "SELECT 1");
        assert_eq!(one, 1);
    });
}

/// `chain`, with `end` behind it.
fn deep(end: &str) -> String {
    format!("{} {end}", chain(50, 90))
}

#[test]
#[ignore = "long: the gate runs it"]
fn deep_statements_are_answered_behind_a_parameter_that_plans_them() {
    let db = open();
    let schema =
        "CREATE TABLE name(n TEXT PRIMARY KEY COLLATE NOCASE); INSERT INTO name VALUES ('ab')";
    db.write(move |tx| tx.execute_batch(schema)).wait().unwrap();
    small_thread(move || {
        let sql = deep("WHERE EXISTS (SELECT 1 FROM name WHERE n LIKE ?1)");
        for _ in 0..2 {
            let (read, written) = (sql.clone(), sql.clone());
            let one = |row: &monolite::rusqlite::Row<'_>| row.get::<_, i64>(0);
            assert_eq!(db.read(move |tx| tx.query_row(&read, ("a%",), one)).wait().unwrap(), 1);
            assert_eq!(db.write(move |tx| tx.query_row(&written, ("a%",), one)).wait().unwrap(), 1);
            let transaction = db.transaction().unwrap();
            let found = transaction.query_row(&sql, ("a%",), one);
            assert_eq!(found.wait().unwrap(), 1);
            // Answered or refused: it may be too deep for a query that is not trusted.
            let _ = db.query_untrusted(&sql, ("a%",), &monolite::UntrustedLimits::new()).wait();
        }
    });
}

#[test]
#[ignore = "long: the gate runs it"]
fn deep_statements_are_answered_behind_a_pragma_that_finds_nothing_to_do() {
    let db = open();
    small_thread(move || {
        let sql = chain(50, 90);
        let run = |tx: &monolite::ReadTx<'_>, sql: &str| {
            tx.query_row(sql, (), |_| Ok(()))?;
            tx.query_row("PRAGMA optimize", (), |_| Ok(())).ok();
            tx.query_row(sql, (), |_| Ok(()))
        };
        let text = sql.clone();
        db.read(move |tx| run(tx, &text)).wait().unwrap();
        let text = sql.clone();
        db.write(move |tx| run(tx, &text)).wait().unwrap();
        let transaction = db.transaction().unwrap();
        transaction.query_row(&sql, (), |_| Ok(())).wait().unwrap();
        transaction.execute("PRAGMA optimize", ()).wait().ok();
        transaction.query_row(&sql, (), |_| Ok(())).wait().unwrap();
    });
}

#[test]
#[ignore = "long: the gate runs it"]
fn what_a_virtual_table_prepares_is_answered_too() {
    let db = open();
    let schema = format!(
        "CREATE VIEW deep(rowid, a) AS SELECT 1, a FROM ({});
         CREATE VIRTUAL TABLE f USING fts5(a, content = 'deep')",
        chain(50, 90)
    );
    db.write(move |tx| tx.execute_batch(&schema)).wait().unwrap();
    small_thread(move || {
        let sql = "SELECT a FROM f";
        ways(&db, sql).into_iter().for_each(|answer| assert_eq!(answer.unwrap(), 1));
    });
}

#[test]
fn deep_statements_are_answered_where_a_trigger_asks_for_changes() {
    let db = open();
    // The second is told SQLite's own figure, behind what the first has changed. No table is
    // without triggers.
    let schema = "CREATE TABLE t(a); CREATE TABLE log(n);
         CREATE TRIGGER one AFTER INSERT ON t BEGIN INSERT INTO log VALUES (changes()); END;
         CREATE TRIGGER two AFTER INSERT ON t BEGIN INSERT INTO log VALUES (changes()); END;
         CREATE TRIGGER three AFTER INSERT ON log BEGIN SELECT changes(); END;";
    db.write(move |tx| tx.execute_batch(schema)).wait().unwrap();
    small_thread(move || {
        let sql = chain(50, 90).replacen("WITH", "INSERT INTO t WITH", 1);
        for _ in 0..3 {
            let (text, by_hand, more) = (sql.clone(), sql.clone(), chain(50, 90));
            let written = db.write(move |tx| {
                tx.query_row(&more, (), |_| Ok(()))?;
                tx.execute(&text, ())?;
                tx.query_row(&more, (), |_| Ok(()))
            });
            written.wait().unwrap();
            db.write(|tx| tx.execute("UPDATE log SET n = n", ())).wait().unwrap();
            db.write(move |tx| Ok::<_, monolite::Error>(tx.prepare(&by_hand)?.execute(())?))
                .wait()
                .unwrap();
            let transaction = db.transaction().unwrap();
            transaction.execute("UPDATE log SET n = n", ()).wait().unwrap();
            transaction.commit().wait().unwrap();
            let transaction = db.transaction().unwrap();
            transaction.execute(&sql, ()).wait().unwrap();
            transaction.commit().wait().unwrap();
        }
        let asked = "SELECT sum(n) FROM log";
        assert_eq!(one(&db, asked), 0, "changes() tells of no transaction before");
    });
}

#[test]
#[ignore = "long: the gate runs it"]
fn what_a_pragma_says_of_views_on_views_is_answered() {
    let db = open();
    let view = |i: u32| format!("CREATE VIEW v{i}(a) AS SELECT a FROM v{};", i - 1);
    let all =
        String::from("CREATE VIEW v0(a) AS SELECT 1;") + &(1..900).map(view).collect::<String>();
    db.write(move |tx| tx.execute_batch(&all)).wait().unwrap();
    small_thread(move || {
        let sql = "SELECT count(*) FROM pragma_table_info('v899')";
        let of = |tx: &monolite::ReadTx<'_>| tx.query_row(sql, (), |row| row.get::<_, i64>(0));
        assert_eq!(db.read(of).wait().unwrap(), 1);
        let transaction = db.transaction().unwrap();
        let told = transaction.query_row(sql, (), |row| row.get::<_, i64>(0));
        assert_eq!(told.wait().unwrap(), 1);
    });
}
