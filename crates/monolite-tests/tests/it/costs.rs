//! What takes SQLite long without looking at the clock is foreseen under the profile for untrusted
//! SQL: a statement ends within twice its limit and 100 ms of the time for which it had a core.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use monolite::{Database, Error, ErrorKind, Options, Result, Tx, Untrusted, rusqlite};
use rustix::time::{ClockId, clock_gettime};

use crate::patience::as_one_batch;

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
    // Cores of a virtual machine differ by a third from day to day.
    assert!(took <= 2 * LIMIT + Duration::from_millis(300), "{what} took {took:?}");
    result
}

/// What `run` gives. One `Timeout` may be that of a machine that has more to do than cores; who
/// waits for a plan that takes a second has two.
fn in_two_attempts<T>(run: impl Fn() -> Result<T>) -> T {
    match run() {
        Err(error) if error.kind() == ErrorKind::Timeout => run().unwrap(),
        result => result.unwrap(),
    }
}

/// Closes it when SQLite has returned from the plan that it is in the midst of.
pub(crate) fn close_behind_plan(db: &Database) {
    while db.close().is_err_and(|error| error.kind() == ErrorKind::Timeout) {}
    db.close().unwrap();
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
    close_behind_plan(&db);
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
    let table = |name: &str| {
        let sum = vec![format!("{name}.c"); 80].join("+");
        format!("CREATE TABLE {name}(c, {})", vec![format!("CHECK ({sum})"); 24].join(","))
    };
    let tables = ["d", "e", "f"].map(table).join(";");
    refused(db.write(move |tx| tx.execute_batch(&tables)).wait());
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
    make(0, 100, expressions).unwrap();
    for (from, definition) in [
        (100, expressions as fn(usize) -> String),
        (0, |i| format!("CREATE INDEX w{i} ON t(a) WHERE b = 1 OR b = 2")),
    ] {
        let refused = make(from, from + 1, definition).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(refused.to_string().contains("1000 expressions and conditions"), "{refused}");
    }
    db.close().unwrap();
}

/// A schema, and a statement for it with which SQLite plans for seconds.
fn slow_plans() -> Vec<(&'static str, String, String)> {
    let list =
        |count: usize, one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<Vec<_>>();
    let either = balanced(&list(800, &|i| format!("(a = {i} OR a = -{i})")), "AND");
    let query = format!("SELECT 1 FROM t WHERE {either}");
    let indexed = "CREATE TABLE t(a); CREATE INDEX i ON t(a)";
    let sum = |last: usize| format!("a + {}{last}", "1 + ".repeat(60));
    let groups = list(300, &sum).join(", ");
    let having = balanced(&list(800, &|i| format!("{} > 0", sum(i + 1_000))), "AND");
    let unique = list(120, &|i| format!("CREATE UNIQUE INDEX u{i} ON t(a{})", [", b", ""][i % 2]));
    let unique = unique.join(";");
    let tables = list(60, &|i| format!("t AS x{i}")).join(", ");
    let order = list(60, &|i| format!("x{i}.a")).join(", ");
    let parameters = list(32_766, &|i| format!("(?{})", i + 1)).join(", ");
    vec![
        ("conditions", indexed.into(), query.clone()),
        ("conditions of a change", indexed.into(), format!("DELETE FROM t WHERE {either}")),
        (
            "conditions of a view",
            format!("{indexed}; CREATE VIEW v AS {query}"),
            "SELECT count(*) FROM v".into(),
        ),
        (
            "conditions of a trigger",
            format!(
                "{indexed}; CREATE TABLE u(a); \
                 CREATE TRIGGER r AFTER INSERT ON u BEGIN DELETE FROM t WHERE {either}; END"
            ),
            "INSERT INTO u VALUES (1)".into(),
        ),
        (
            "conditions of groups",
            "CREATE TABLE t(a)".into(),
            format!("SELECT 1 FROM t GROUP BY {groups} HAVING {having}"),
        ),
        ("conditions behind a mark", indexed.into(), format!("CREATE \u{feff}TABLE u AS {query}")),
        (
            "conditions of a view in values",
            format!("{indexed}; CREATE VIEW v AS {query}"),
            "CREATE TABLE u AS VALUES (1 IN v)".into(),
        ),
        (
            "tables in order",
            format!("CREATE TABLE t(a NOT NULL, b NOT NULL); {unique}"),
            format!("SELECT 1 FROM {tables} ORDER BY {order}"),
        ),
        (
            "numbered parameters",
            "CREATE TABLE t(a)".into(),
            format!("INSERT INTO t VALUES {parameters}, {}", vec!["(?32766)"; 30_000].join(", ")),
        ),
    ]
}

#[test]
fn no_statement_is_planned_for_long_where_others_wait() {
    for (name, schema, sql) in slow_plans() {
        let Some(db) = open(":memory:") else { return };
        db.write(move |tx| tx.execute_batch(&schema)).wait().unwrap();
        let sql: &'static str = sql.leak();
        if !sql.starts_with("INSERT") {
            let ended = in_time(name, || db.read(|tx| tx.prepare(sql).map(|_| ())).wait());
            assert_eq!(ended.expect_err(name).kind(), ErrorKind::Timeout, "{name}");
        }
        for run in [
            (|tx, sql| tx.execute_batch(sql)) as fn(&Tx<'_>, &str) -> Result<()>,
            |tx, sql| tx.prepare_cached(sql).map(|_| ()),
            |tx, sql| tx.query_map(sql, (), |_| Ok(())).map(|_: Vec<()>| ()),
        ] {
            let (told, heard) = mpsc::channel();
            let ended = db.write(move |tx| {
                let ended = in_time(name, || run(tx, sql));
                told.send(()).unwrap();
                ended
            });
            assert_eq!(ended.wait().expect_err(name).kind(), ErrorKind::Timeout, "{name}");
            // Not on the writer, which would panic.
            heard.recv().unwrap();
        }
        let tx = db.transaction().unwrap();
        let ended = tx.execute(sql, ()).wait();
        assert_eq!(ended.expect_err(name).kind(), ErrorKind::Timeout, "{name}");
        drop(tx);
        // Nobody else notices.
        in_two_attempts(|| db.write(|tx| tx.execute_batch("CREATE TABLE other(a)")).wait());
        close_behind_plan(&db);
    }
}

/// A table `p` with so many indexes, of which none is the key that many foreign keys refer to: each
/// column is looked for among all of the others.
fn keyed() -> Vec<String> {
    let columns: Vec<_> = (0..90).map(|i| format!("c{i}")).collect();
    let (all, own) = (columns.join(", "), columns[1..].join(", "));
    let index = |i: usize| format!("CREATE UNIQUE INDEX u{i} ON p({own}, id)");
    let referring = vec!["a"; 90].join(", ");
    let reversed = columns.into_iter().rev().collect::<Vec<_>>().join(", ");
    let child = |i: usize| {
        format!("CREATE TABLE k{i}(a, FOREIGN KEY ({referring}) REFERENCES p({reversed}))")
    };
    let children: Vec<_> = (0..1_000).map(child).collect();
    let indexes: Vec<_> = (0..30).map(index).collect();
    [vec![format!("CREATE TABLE p(id INTEGER PRIMARY KEY, {all})")], vec![indexes.join(";")]]
        .concat()
        .into_iter()
        .chain(children.chunks(100).map(|some| some.join(";")))
        .collect()
}

/// Schemas, each of statements of their own, and a statement that is small or plans nothing and
/// takes SQLite seconds.
fn slow_lookups() -> Vec<(&'static str, Vec<String>, String)> {
    let list =
        |count: usize, one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<Vec<_>>();
    let not = "~".repeat(95);
    let virtuals = list(490, &|i| format!("g{i} AS ({not}(a + {i}))")).join(", ");
    let names = list(490, &|i| format!("g{i}")).join(", ");
    let virtuals = vec![
        format!("CREATE TABLE t(a, b, {virtuals})"),
        format!("CREATE INDEX i ON t(b, {names})"),
    ];
    let terms = list(490, &|i| format!("{}(a + {i})", "~".repeat(92))).join(", ");
    let expressions =
        vec!["CREATE TABLE t(a, b)".into(), format!("CREATE INDEX i ON t(b, {terms})")];
    let read = |tables: usize| {
        let columns = vec![format!("{not}x.a"); 34].join(", ");
        format!("SELECT {columns} FROM t x INDEXED BY i{}", ", t INDEXED BY i".repeat(tables - 1))
    };
    let wide = format!("CREATE TABLE w({})", list(500, &|i| format!("c{i}")).join(", "));
    let trues = |count: usize| vec!["true"; count].join(",");
    let nested = |inner: &str, uses: usize| {
        let within = format!("SELECT 1 FROM {}", vec![inner; uses].join(","));
        let around = vec!["w"; 60].join(",");
        (0..7).fold(within, |query, _| format!("SELECT ({query}) FROM {around}"))
    };
    let many = format!("CREATE VIEW u AS SELECT 1 WHERE 1 IN ({})", trues(4_900));
    let common = format!("WITH u AS (SELECT 1 WHERE 1 IN ({})) {}", trues(420), nested("u", 59));
    let qualified = |count: usize| vec!["t.a"; count].join(",");
    let listed = vec![
        "CREATE TABLE t(a, b, d)".into(),
        format!("CREATE VIEW inn AS SELECT 1 AS z FROM t WHERE 1 IN ({})", qualified(1_000)),
        format!("CREATE VIEW mid AS SELECT 1 FROM {}", vec!["inn"; 50].join(",")),
        format!(
            "CREATE VIEW outr AS SELECT 1 AS z FROM t,mid,mid,mid,mid WHERE 1 IN ({})",
            qualified(1_900)
        ),
    ];
    let deep = format!("CREATE VIEW deep AS {}", nested("u", 22));
    let alter = "ALTER TABLE other RENAME COLUMN a TO b";
    let either = list(1_150, &|_| "(x = 1 OR x = 2)".into());
    let indexed = "CREATE TABLE t(a, b); CREATE INDEX i ON t(a)";
    let triggered = vec![
        format!("{indexed}; CREATE TABLE z(a)"),
        format!(
            "CREATE TRIGGER r AFTER INSERT ON z BEGIN SELECT 1 FROM (SELECT a x FROM t) \
             WHERE {}; END",
            balanced(&either, "AND")
        ),
    ];
    let conditions = balanced(&list(950, &|i| format!("(a = {i} OR a = -{i})")), "AND");
    let hidden = format!(
        "CREATE INDEX IF NOT EXISTS i ON t($a(/*)); SELECT count(*) FROM t WHERE {conditions}"
    );
    let open = format!("WITH c AS(SELECT 1)SELECT {}{}", "(".repeat(90_000), "c,".repeat(90_000));
    vec![
        ("columns of a subquery in a trigger", triggered, "INSERT INTO z VALUES (1)".into()),
        ("behind a parameter", vec![indexed.into()], hidden),
        ("parentheses that are not closed", vec![], open),
        ("virtual columns of an index", virtuals, read(6)),
        ("expressions of an index", expressions, read(6)),
        ("names in views", vec![wide.clone(), many.clone()], nested("u", 59)),
        ("names in common table expressions", vec![wide.clone()], common),
        ("lists of views of views", listed, alter.into()),
        ("names in views of views", vec![wide.clone(), many, deep], alter.into()),
        (
            "columns that are returned",
            vec![wide],
            format!("INSERT INTO w DEFAULT VALUES RETURNING {}", vec!["*"; 400_000].join(",")),
        ),
    ]
}

/// The same, of what the authorizer is not asked.
fn slow_without_a_question() -> Vec<(&'static str, Vec<String>, String)> {
    let list =
        |count: usize, one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<Vec<_>>();
    let indexed = "CREATE TABLE t(a, b); CREATE INDEX i ON t(a); CREATE INDEX j ON t(b)";
    let one_of = balanced(&list(20, &|i| format!("a={}", i % 10)), "OR");
    let repeated = balanced(&vec!["x".into(); 470], "AND");
    let either = balanced(&list(950, &|i| format!("(a = {i} OR a = -{i})")), "AND");
    let inner = balanced(&list(1_150, &|_| "(x = 1 OR x = 2)".into()), "AND");
    vec![
        (
            "copies of a result column",
            vec![indexed.into()],
            format!("SELECT {one_of} x FROM t WHERE {repeated}"),
        ),
        ("keys of a table that changes", keyed(), "REPLACE INTO p(id) VALUES (1)".into()),
        (
            "views in a list",
            vec![indexed.into(), format!("CREATE VIEW v AS SELECT 1 FROM t WHERE {either}")],
            "SELECT count(*) FROM pragma_table_list JOIN pragma_table_list x USING (name)".into(),
        ),
        (
            "behind a pragma",
            vec![indexed.into()],
            format!("PRAGMA user_version; SELECT 1 FROM (SELECT a x FROM t) WHERE {inner}"),
        ),
    ]
}

#[test]
fn no_small_statement_looks_for_long_where_others_wait() {
    for (name, schema, sql) in slow_lookups().into_iter().chain(slow_without_a_question()) {
        let Some(db) = open(":memory:") else { return };
        db.write(|tx| tx.execute_batch("CREATE TABLE other(a)")).wait().unwrap();
        for sql in schema {
            // Some of it may be refused.
            let made = db.write(move |tx| in_time(name, || tx.execute_batch(&sql))).wait();
            let kinds = [ErrorKind::Invalid, ErrorKind::Timeout];
            assert!(made.is_ok() || kinds.contains(&made.unwrap_err().kind()), "{name}");
        }
        let sql: &'static str = sql.leak();
        let _ = in_time(name, || db.read(|tx| tx.prepare(sql).map(|_| ())).wait());
        let (told, heard) = mpsc::channel();
        let ended = db.write(move |tx| {
            let ended = in_time(name, || tx.execute_batch(sql));
            told.send(()).unwrap();
            ended
        });
        let _ = ended.wait();
        // Not on the writer, which would panic.
        heard.recv().unwrap();
        in_two_attempts(|| db.write(|tx| tx.execute_batch("CREATE TABLE another(a)")).wait());
        close_behind_plan(&db);
    }
}

#[test]
fn no_trigger_is_planned_where_the_figure_of_changes_is_set_back() {
    let conditions: Vec<_> = (0..900).map(|i| format!("(a = {i} OR a = -{i})")).collect();
    let conditions = balanced(&conditions, "AND");
    let slow = |table: &str| {
        format!(
            "CREATE TRIGGER slow_{table} AFTER DELETE ON {table} BEGIN \
             SELECT 1 FROM t WHERE {conditions}; END;"
        )
    };
    let tables = "CREATE TABLE t(a); CREATE INDEX i ON t(a); CREATE TABLE z(a);
        CREATE TABLE seen(changes);
        CREATE TRIGGER asks AFTER INSERT ON z BEGIN INSERT INTO seen VALUES (changes()); END;";
    // Once with a table that has no trigger, and once without.
    for more in [String::new(), slow("seen") + &slow("z")] {
        let Some(db) = open(":memory:") else { return };
        let schema = format!("{tables} {} {more}", slow("t"));
        db.write(move |tx| tx.execute_batch(&schema)).wait().unwrap();
        db.write(|tx| tx.execute_batch("INSERT INTO t VALUES (1), (2)")).wait().unwrap();
        for _ in 0..3 {
            let (told, heard) = mpsc::channel();
            let insert = |tx: &Tx<'_>| tx.execute("INSERT INTO z VALUES (1), (2)", ());
            let ended = db.write(move |tx| {
                told.send(in_time("a change", || insert(tx).map(drop))).unwrap();
                Ok::<_, Error>(())
            });
            let _ = ended.wait();
            // Not on the writer, which would panic.
            heard.recv().unwrap().unwrap();
        }
        let seen = "SELECT group_concat(changes) FROM seen";
        let seen = db.read(|tx| tx.query_row(seen, (), |row| row.get::<_, String>(0)));
        assert_eq!(seen.wait().unwrap(), "0,0,0,0,0,0");
        close_behind_plan(&db);
    }
}

#[test]
fn a_large_statement_that_changes_the_schema_is_prepared_once() {
    let Some(db) = open_for(":memory:", Duration::from_secs(20)) else { return };
    let columns = (0..500).map(|i| format!("{i} AS c{i}")).collect::<Vec<_>>().join(", ");
    let script = format!("CREATE TABLE u AS SELECT {columns}; INSERT INTO u DEFAULT VALUES; -- ;");
    db.write(move |tx| tx.execute_batch(&script)).wait().unwrap();
    db.close().unwrap();
}

#[test]
fn a_schema_of_tables_that_refer_to_each_other_is_made_and_used_at_once() {
    let Some(db) = open_for(":memory:", Duration::from_secs(20)) else { return };
    let table = |i: usize| {
        let parent = i.saturating_sub(1) / 3;
        format!(
            "CREATE TABLE t{i}(id INTEGER PRIMARY KEY, parent REFERENCES t{parent}(id) \
             ON DELETE CASCADE, owner REFERENCES t0 ON DELETE SET NULL, name TEXT, made, \
             UNIQUE (owner, name), FOREIGN KEY (owner, name) REFERENCES t{i}(owner, name));
             CREATE INDEX p{i} ON t{i}(parent); CREATE INDEX o{i} ON t{i}(owner, made DESC);"
        )
    };
    let schema: String = (0..50).map(table).collect();
    let script = format!(
        "{schema} INSERT INTO t0(id, parent, name) VALUES (1, 1, 'a'), (2, 1, 'b');
         INSERT INTO t1(id, parent, owner, name) SELECT id, id, 1, name FROM t0;
         UPDATE t1 SET name = name || 'x', owner = NULL WHERE id = 1;
         SELECT a.name AS name, count(*) AS n, b.name AS other
             FROM t0 AS a JOIN t1 AS b USING (id) LEFT JOIN t2 AS c ON c.parent = b.id
             WHERE a.id IN (1, 2) GROUP BY a.name, b.name HAVING n > 0
             ORDER BY n DESC, name LIMIT 9;
         DELETE FROM t5 WHERE id = 2; DROP TABLE t49; ALTER TABLE t1 RENAME TO renamed;"
    );
    db.write(move |tx| tx.execute_batch(&script)).wait().unwrap();
    db.close().unwrap();
}

#[test]
fn ordinary_statements_run_beside_many_expressions_in_indexes() {
    let Some(db) = open_for(":memory:", Duration::from_secs(20)) else { return };
    let columns = (0..150).map(|i| format!("c{i}")).collect::<Vec<_>>().join(", ");
    let tables = format!("CREATE TABLE t0({columns}); ");
    let more = |i: usize| {
        format!(
            "CREATE TABLE IF NOT EXISTS t{i}(c0, c1); CREATE INDEX e{i} ON t{i}(lower(c0)); \
             CREATE INDEX p{i} ON t{i}(c1) WHERE c0 = 1 AND c1 = 2;"
        )
    };
    let schema = tables + &(0..60).map(more).collect::<String>();
    db.write(move |tx| tx.execute_batch(&schema)).wait().unwrap();
    let terms: Vec<_> = (0..150).map(|i| format!("c{i} = {i}")).collect();
    let sql = format!("SELECT {columns} FROM t0 WHERE {}", balanced(&terms, "AND"));
    let parameters: &'static str = sql.leak();
    for _ in 0..3 {
        db.read(|tx| tx.prepare(parameters).map(|_| ())).wait().unwrap();
        db.write(|tx| tx.query_map(parameters, (), |_| Ok(())).map(|_: Vec<()>| ()))
            .wait()
            .unwrap();
        let tx = db.transaction().unwrap();
        tx.query_map(parameters, (), |_| Ok(())).wait().unwrap();
    }
    db.close().unwrap();
}

#[test]
fn a_large_statement_behind_a_change_of_the_schema_says_what_to_do() {
    let Some(db) = open_for(":memory:", Duration::from_secs(20)) else { return };
    let names = (0..300).map(|i| format!("c{i}")).collect::<Vec<_>>().join(", ");
    let rows = vec![format!("({})", vec!["1"; 300].join(", ")); 50].join(", ");
    let (table, insert) =
        (format!("CREATE TABLE t({names})"), format!("INSERT INTO t VALUES {rows}"));
    let query = format!("SELECT {names} FROM t");
    let script = format!("{table}; {insert}; {query};");
    let refused = db.write(move |tx| tx.execute_batch(&script)).wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(refused.to_string().contains("commit the change first"), "{refused}");
    // Rows that are said need no plan.
    db.write(move |tx| tx.execute_batch(&format!("{table}; {insert}"))).wait().unwrap();
    db.write(move |tx| tx.execute_batch(&query)).wait().unwrap();
    db.close().unwrap();
}

#[test]
fn a_large_statement_does_not_notice_that_a_neighbour_changes_the_schema() {
    let Some(db) = open_for(":memory:", Duration::from_secs(20)) else { return };
    let names = (0..300).map(|i| format!("c{i}")).collect::<Vec<_>>().join(", ");
    let table = format!("CREATE TABLE t({names})");
    db.write(move |tx| tx.execute_batch(&table)).wait().unwrap();
    let query: &'static str = format!("SELECT {names} FROM t").leak();
    let writes = as_one_batch(&db, || {
        let change = |i: usize| {
            let sql = format!("CREATE TABLE n{i}(a)");
            db.write(move |tx| tx.execute_batch(&sql))
        };
        let both = |i| [change(i), db.write(move |tx| tx.execute_batch(query))];
        (0..20).flat_map(both).collect::<Vec<_>>()
    });
    writes.into_iter().for_each(|write| write.wait().unwrap());
    db.close().unwrap();
}

#[test]
fn what_others_have_in_the_schema_makes_no_small_statement_wait_for_a_dry_run() {
    for (name, schema, sql) in slow_plans() {
        let Some(db) = open(":memory:") else { return };
        let one = |i: usize| format!("CREATE INDEX e{i} ON t(a + {i});");
        let schema = format!("{schema}; {}", (0..100).map(one).collect::<String>());
        db.write(move |tx| tx.execute_batch(&schema)).wait().unwrap();
        let own = "CREATE TABLE own(id INTEGER PRIMARY KEY, b); INSERT INTO own VALUES (0, 0)";
        db.write(move |tx| tx.execute_batch(own)).wait().unwrap();
        // It has the thread of dry runs from now on.
        let slow = db.write(move |tx| tx.execute_batch(&sql));
        assert_eq!(slow.wait().expect_err(name).kind(), ErrorKind::Timeout, "{name}");
        for i in 1..10 {
            let sql = format!("INSERT OR IGNORE INTO own VALUES ({i}, {i})");
            let sql: &'static str = sql.leak();
            in_two_attempts(|| db.write(|tx| tx.execute(sql, ())).wait());
            let sql = format!("SELECT b FROM own WHERE id = {i}");
            let ask = || db.read(|tx| tx.query_row(&sql, (), |row| row.get::<_, i64>(0))).wait();
            assert_eq!(in_two_attempts(ask), i);
        }
        close_behind_plan(&db);
    }
}

#[test]
fn a_script_is_run_statement_by_statement() {
    let Some(db) = open(":memory:") else { return };
    let script = "CREATE TABLE t(a); -- ;\n CREATE TRIGGER r AFTER INSERT ON t WHEN new.a < 3 BEGIN
                      INSERT INTO t VALUES (new.a + 1); SELECT CASE WHEN 1 THEN 2 END;
                  END; /* ; */ INSERT INTO t VALUES (1), (';'); ; UPDATE t SET a = 7 WHERE a = 2";
    db.write(move |tx| tx.execute_batch(script)).wait().unwrap();
    let found: String = db
        .read(|tx| {
            tx.query_row(
                "SELECT group_concat(a, '|') FROM (SELECT a FROM t ORDER BY rowid)",
                (),
                |row| row.get(0),
            )
        })
        .wait()
        .unwrap();
    assert_eq!(found, "1|7|;");
    let failed = db.write(|tx| tx.execute_batch("SELECT 1; SELEC 2")).wait().unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Invalid, "{failed}");
    assert!(failed.to_string().contains("SELEC"), "{failed}");
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

/// Runs `sql` behind a change of the same transaction; it must end as one that takes too long, and
/// not late.
fn ends_in_time_behind(db: &Database, change: &'static str, sql: String) {
    let (told, heard) = mpsc::channel();
    let ended = db.write(move |tx| {
        tx.execute(change, ())?;
        let before = processor_time();
        let result = tx.execute(&sql, ());
        told.send(processor_time() - before).unwrap();
        result
    });
    assert_eq!(ended.wait().unwrap_err().kind(), ErrorKind::Timeout);
    let took = heard.recv().unwrap();
    assert!(took <= 2 * LIMIT + Duration::from_millis(100), "behind a change it took {took:?}");
}

#[test]
fn passing_very_often_over_a_value_of_60_kb_ends_in_time() {
    let Some(db) = open(":memory:") else { return };
    db.write(|tx| tx.execute_batch("CREATE TABLE t(a)")).wait().unwrap();
    let array = "jsonb('[' || replace(printf('%.*c', 30000, '1'), '1', '1,') || '1]')";
    let query = |column: &str, columns: usize| {
        format!(
            "WITH m(j) AS MATERIALIZED (SELECT {array}) SELECT {} FROM m",
            vec![column; columns].join(", ")
        )
    };
    let slow = query(&format!("json_extract(j{})", ", '$[#-9]'".repeat(99)), 180);
    let ended = in_time("99 paths, 180 times", || {
        let slow = slow.clone();
        db.read(move |tx| tx.query_row(&slow, (), |_| Ok(()))).wait()
    });
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Timeout);
    // Handed out, and behind a change, when nobody may ask.
    let ended = in_time("the same, prepared", || {
        db.read(move |tx| tx.prepare(&slow)?.query_row((), |_| Ok(())).map_err(Error::from)).wait()
    });
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Timeout);
    let call = format!("length(json_extract(j{}))", ", '$[#-9]'".repeat(99));
    let calls: Vec<_> = (0..180).map(|_| call.clone()).collect();
    let insert = format!("INSERT INTO t {}", query(&balanced(&calls, "+"), 1));
    ends_in_time_behind(&db, "INSERT INTO t VALUES (1)", insert);
    // What has many calls, and few paths in each, is no such statement.
    let fast = query("json_extract(j, '$[0]')", 180);
    db.read(move |tx| tx.query_row(&fast, (), |_| Ok(()))).wait().unwrap();
    db.close().unwrap();
}

/// Behind a change nobody may ask in the transaction itself, and a long text hides how large the
/// program is.
#[test]
fn a_padded_text_behind_a_change_hides_no_passes() {
    let Some(db) = open(":memory:") else { return };
    let call = format!("json_extract(j{})", ", '$[#-9]'".repeat(99));
    let columns: Vec<_> = (0..12).map(|at| format!("g{at} AS ({call}) STORED")).collect();
    let table = format!("CREATE TABLE g(j, {}); CREATE TABLE o(n)", columns.join(", "));
    db.write(move |tx| tx.execute_batch(&table)).wait().unwrap();
    let array = "jsonb('[' || replace(printf('%.*c', 480000, '1'), '1', '1,') || '1]')";
    let padding = "a".repeat(100_000);
    for insert in [
        format!("INSERT INTO g(j) SELECT {array} /*{padding}*/"),
        format!("INSERT INTO g(j) SELECT {array} WHERE 1 OR '{padding}'"),
    ] {
        ends_in_time_behind(&db, "INSERT INTO o VALUES (1)", insert);
    }
    // A long text that does little is none of those, also when it is found again.
    let insert = format!("INSERT INTO o SELECT length('{padding}')");
    for _ in 0..2 {
        let insert = insert.clone();
        let both = db.write(move |tx| {
            tx.execute("INSERT INTO o VALUES (1)", ())?;
            tx.execute(&insert, ())
        });
        both.wait().unwrap();
    }
    db.close().unwrap();
}
