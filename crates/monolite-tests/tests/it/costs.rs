//! What takes SQLite long without looking at the clock is foreseen under the profile for untrusted
//! SQL: a statement ends within twice its limit and 100 ms of the time for which it had a core.

use std::path::Path;
use std::time::Duration;

use monolite::{Database, Error, ErrorKind, Options, Untrusted, rusqlite};
use rustix::time::{ClockId, clock_gettime};

const LIMIT: Duration = Duration::from_millis(300);

/// The processor time of this thread, on which a read runs that is waited for.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

fn open(path: impl AsRef<Path>) -> Option<Database> {
    open_for(path, LIMIT)
}

/// One whose refusals are asked for, however busy the machine is.
fn open_for(path: impl AsRef<Path>, limit: Duration) -> Option<Database> {
    let options = Options::new().read_time_limit(limit).write_time_limit(limit);
    let opened = options.untrusted(Untrusted::new()).open(path);
    if rusqlite::version_number() < 3_054_000 { None } else { Some(opened.unwrap()) }
}

/// Asserts that `run` takes no more processor time than a statement may.
fn in_time<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let before = processor_time();
    let result = run();
    let took = processor_time() - before;
    assert!(took <= 2 * LIMIT + Duration::from_millis(100), "{what} took {took:?}");
    result
}

#[test]
fn calls_in_each_other_in_views_of_views_are_prepared_in_time() {
    let Some(db) = open(":memory:") else { return };
    db.write(|tx| tx.execute_batch("CREATE TABLE t(a)")).wait().unwrap();
    for (call, parts) in [("abs(", 60), ("abs(", 70), ("abs(", 75), ("max(0,", 70)] {
        let expression = format!("{}a{}", call.repeat(95), ")".repeat(95));
        let part = |i: usize| {
            let from = if i == 0 { "t".into() } else { format!("c{}", i - 1) };
            format!("c{i} AS (SELECT {expression} AS a FROM {from})")
        };
        let parts_of_it: Vec<_> = (0..parts).map(part).collect();
        let sql = format!("WITH {} SELECT a FROM c{}", parts_of_it.join(","), parts - 1);
        // Whether it is prepared is not the question.
        let _ = in_time(&format!("{parts} times {call}"), || {
            db.read(move |tx| tx.prepare(&sql).map(|_| ())).wait()
        });
    }
    db.close().unwrap();
}

#[test]
fn an_interactive_transaction_prepares_nothing_that_is_refused_by_its_text() {
    let Some(db) = open(":memory:") else { return };
    db.write(|tx| tx.execute_batch("CREATE TABLE t(a)")).wait().unwrap();
    let arguments = vec!["abs(1)"; 95].join(", ");
    let sums: Vec<_> = (0..1_000).map(|at| format!("sum(max({arguments}, {at}))")).collect();
    let sql = format!("SELECT {} FROM t", balanced(&sums, "+"));
    for _ in 0..3 {
        let tx = db.transaction().unwrap();
        let error = tx.query_row(&sql, (), |_| Ok(())).wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("12000 names"), "{error}");
    }
}

#[test]
fn a_sort_of_texts_in_utf_16_ends_in_time() {
    // The first use of SQLite is that of the engine.
    let Some(first) = open(":memory:") else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("utf16.db");
    let columns: Vec<String> = (0..480).map(|i| format!("c{i}")).collect();
    let plain = rusqlite::Connection::open(&path).unwrap();
    let table = format!(
        "PRAGMA encoding = 'UTF-16le'; CREATE TABLE s(id INTEGER PRIMARY KEY, {});
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 4000)
         INSERT INTO s SELECT i, {}, CAST(i * 7919 % 6001 AS TEXT) FROM n",
        columns.join(","),
        vec!["'ab'"; 479].join(",")
    );
    plain.execute_batch(&table).unwrap();
    drop(plain);
    let db = open(&path).unwrap();
    let keys: Vec<String> = columns.iter().map(|c| format!("{c} COLLATE NOCASE")).collect();
    for rows in [500, 1_000, 2_000, 3_000, 4_000] {
        let sql = format!("SELECT id FROM s WHERE id < {rows} ORDER BY {}", keys.join(","));
        let _ = in_time(&format!("a sort of {rows} rows"), || {
            db.read(move |tx| tx.query_map(&sql, (), |row| row.get::<_, i64>(0))).wait()
        });
    }
    db.close().unwrap();
    first.close().unwrap();
}

/// A trigger with so many qualified names.
fn trigger(name: &str, names: usize) -> String {
    let term = vec!["t.c"; 80].join("+");
    let select = format!("SELECT {} FROM t;", vec![term; 25].join(","));
    format!("CREATE TRIGGER {name} AFTER INSERT ON w BEGIN {} END", select.repeat(names / 2_000))
}

#[test]
fn definitions_that_would_make_alter_table_slow_are_refused() {
    let Some(db) = open_for(":memory:", 100 * LIMIT) else { return };
    let refused = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("ALTER TABLE"), "{error}");
    };
    let tables = "CREATE TABLE w(a); CREATE TABLE t(c);";
    db.write(move |tx| tx.execute_batch(tables)).wait().unwrap();
    let large = trigger("x", 20_000);
    refused(db.write(move |tx| tx.execute_batch(&large)).wait());
    // Neither in pieces, nor before it is looked at, nor through a view or a table.
    let many: Vec<_> = (0..20).map(|i| trigger(&format!("x{i}"), 2_000)).collect();
    let many = many.join(";");
    refused(db.write(move |tx| tx.execute_batch(&many)).wait());
    let both = format!("{}; ALTER TABLE w RENAME TO w2", trigger("x", 20_000));
    refused(db.write(move |tx| tx.execute_batch(&both)).wait());
    let checks = vec![format!("CHECK ({})", vec!["d.c"; 80].join("+")); 60].join(",");
    let table = format!("CREATE TABLE d(c, {checks})");
    refused(db.write(move |tx| tx.execute_batch(&table)).wait());
    // What is ordinary stays.
    let small = format!("{}; ALTER TABLE w RENAME TO w2", trigger("x", 2_000));
    db.write(move |tx| tx.execute_batch(&small)).wait().unwrap();
    db.close().unwrap();
}

#[test]
fn alter_table_is_refused_in_a_file_from_elsewhere_that_would_make_it_slow() {
    let Some(first) = open_for(":memory:", 100 * LIMIT) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("elsewhere.db");
    let plain = rusqlite::Connection::open(&path).unwrap();
    plain.execute_batch("CREATE TABLE w(a); CREATE TABLE t(c)").unwrap();
    plain.execute_batch(&trigger("x", 20_000)).unwrap();
    drop(plain);
    let db = open_for(&path, 100 * LIMIT).unwrap();
    for sql in ["ALTER TABLE w RENAME TO w2", "ALTER TABLE w RENAME COLUMN a TO b"] {
        for result in [
            db.write(move |tx| tx.execute_batch(sql)).wait(),
            db.write(move |tx| tx.execute(sql, ()).map(|_| ())).wait(),
            db.write(move |tx| Ok::<_, Error>(tx.prepare(sql)?.execute(()).map(|_| ())?)).wait(),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("the trigger x takes longest"), "{error}");
        }
    }
    // Rows do not care.
    db.write(|tx| tx.execute("INSERT INTO t VALUES (1)", ())).wait().unwrap();
    db.close().unwrap();
    first.close().unwrap();
}

#[test]
fn indexes_that_would_make_the_planner_slow_are_refused() {
    let Some(db) = open_for(":memory:", Duration::from_secs(20)) else { return };
    db.write(|tx| tx.execute_batch("CREATE TABLE t(a, b, c, d)")).wait().unwrap();
    let make = |from: usize, to: usize, definition: fn(usize) -> String| {
        db.write(move |tx| (from..to).try_for_each(|i| tx.execute_batch(&definition(i)))).wait()
    };
    let expressions = |i: usize| {
        let parts: Vec<_> = (0..10).map(|j| format!("a + {}", 10 * i + j)).collect();
        format!("CREATE INDEX e{i} ON t({})", parts.join(", "))
    };
    make(0, 1_000, |i| format!("CREATE INDEX p{i} ON t(a, b COLLATE nocase DESC)")).unwrap();
    make(0, 40, expressions).unwrap();
    for (from, definition) in [
        (40, expressions as fn(usize) -> String),
        (0, |i| format!("CREATE INDEX w{i} ON t(a) WHERE b = 1 OR b = 2")),
    ] {
        let refused = make(from, from + 1, definition).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(refused.to_string().contains("400 expressions and conditions"), "{refused}");
    }
    db.close().unwrap();
}

#[test]
fn conditions_are_compared_with_what_indexes_are_made_of_in_time() {
    let Some(db) = open(":memory:") else { return };
    db.write(|tx| tx.execute_batch("CREATE TABLE t(a, b, c, d)")).wait().unwrap();
    let tables: Vec<_> = (0..60).map(|i| format!("t AS x{i}")).collect();
    let mut made = 0;
    let mut make_up_to = |terms: usize| {
        for i in std::mem::replace(&mut made, terms)..terms {
            db.write(move |tx| tx.execute_batch(&format!("CREATE INDEX e{i} ON t(a + {i})")))
                .wait()
                .unwrap();
        }
    };
    for (terms, most) in [(0, 5_000), (10, 3_200), (100, 320), (400, 80)] {
        make_up_to(terms);
        let statement = |uses: usize| {
            let one = |i: usize| format!("x{}.a + -1 + {i} = 0", i % 60);
            let conditions: Vec<_> = (0..uses).map(one).collect();
            format!("SELECT 1 FROM {} WHERE {}", tables.join(", "), balanced(&conditions, "AND"))
        };
        let (sql, too_much) = (statement(most), statement(most + 1));
        let what = format!("{most} conditions, {terms} expressions in indexes");
        // Whether it is prepared is not the question.
        let _ = in_time(&what, || db.read(move |tx| tx.prepare(&sql).map(|_| ())).wait());
        let refused =
            in_time(&what, || db.read(move |tx| tx.prepare(&too_much).map(|_| ())).wait());
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{what}: {refused}");
        assert!(refused.to_string().contains(&format!("more than {most} uses")), "{refused}");
    }
    db.close().unwrap();
}

/// All of `terms` in a tree of `operator` that is not deep.
fn balanced(terms: &[String], operator: &str) -> String {
    match terms {
        [] => "1".into(),
        [one] => one.clone(),
        many => {
            let (left, right) = many.split_at(many.len() / 2);
            format!("({} {operator} {})", balanced(left, operator), balanced(right, operator))
        }
    }
}

#[test]
fn comparing_many_large_values_in_one_call_ends_in_time() {
    let Some(db) = open(":memory:") else { return };
    let call = format!("length(max(x COLLATE nocase{}))", ", x".repeat(98));
    let sql = format!(
        "WITH v(x) AS MATERIALIZED (SELECT hex(zeroblob(490000))) SELECT {} FROM v",
        vec![call; 40].join(", ")
    );
    let ended = in_time("max() of 99 large texts", || {
        db.read(move |tx| tx.query_row(&sql, (), |_| Ok(()))).wait()
    });
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Timeout);
    db.close().unwrap();
}
