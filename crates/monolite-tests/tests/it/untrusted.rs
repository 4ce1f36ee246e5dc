//! SQL from somebody who is not trusted stays within the profile, and ordinary SQL does not notice
//! it.

use std::time::{Duration, Instant};

use monolite::{Database, Error, ErrorKind, Options, Tx, Untrusted, Value, rusqlite};
use monolite_testkit::clock::HandClock;

use crate::costs::close_behind_plan;
use crate::patience::as_one_batch;

/// How long a transaction may take in these tests.
const LIMIT: Duration = Duration::from_millis(300);

/// By how much it may be late on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

fn open(profile: Untrusted) -> Option<Database> {
    open_with(Options::new().write_time_limit(LIMIT).read_time_limit(LIMIT), profile)
}

fn open_with(options: Options, profile: Untrusted) -> Option<Database> {
    let opened = options.untrusted(profile).open(":memory:");
    if rusqlite::version_number() < 3_054_000 {
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("3.54.0"), "{error}");
        return None;
    }
    let db = opened.unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")).wait().unwrap();
    Some(db)
}

fn run(db: &Database, sql: &'static str) -> Result<(), Error> {
    db.write(move |tx| tx.execute_batch(sql)).wait()
}

fn value(db: &Database, sql: &str) -> Result<Value, Error> {
    db.read(|tx| tx.query_row(sql, (), |row| row.get(0))).wait()
}

#[test]
fn ordinary_sql_does_not_notice_the_profile() {
    let Some(db) = open(Untrusted::new()) else { return };
    let script = "
        CREATE TABLE a(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, n INT DEFAULT 0,
                       upper TEXT AS (upper(trim(name, ' '))) STORED, CHECK (length(name) < 100));
        CREATE INDEX by_name ON a(replace(name, 'a', 'b'));
        CREATE TABLE b(a INTEGER REFERENCES a(id) ON DELETE CASCADE, note ANY) STRICT;
        CREATE VIEW v AS SELECT a.name, count(*) AS c FROM a JOIN b ON b.a = a.id GROUP BY 1;
        CREATE TRIGGER tr AFTER INSERT ON a BEGIN INSERT INTO b VALUES (new.id, 'made'); END;
        INSERT INTO a(name) VALUES ('one'), ('two'), (' three ');
        ALTER TABLE a RENAME TO c;
        ALTER TABLE c ADD COLUMN extra;
        ALTER TABLE c DROP COLUMN extra;
        CREATE TABLE d(x, y AS (x + 1));
        ALTER TABLE d ADD COLUMN z DEFAULT 1 CHECK (z < y OR y IS NULL);
        UPDATE c SET n = n + 1 WHERE name LIKE '%e%' RETURNING id;
        INSERT INTO c(name) VALUES ('four') ON CONFLICT DO NOTHING;
        REINDEX;
        DELETE FROM c WHERE id = 2;
        CREATE TABLE gone(x INTEGER PRIMARY KEY AUTOINCREMENT);
        INSERT INTO gone DEFAULT VALUES;
        DROP TABLE gone;
        PRAGMA user_version = 3;";
    run(&db, script).unwrap();
    let query = "WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 10)
                 SELECT json_group_array(c) || (SELECT sum(value) FROM json_each('[1,2]'))
                        || (SELECT count(*) FROM k) || (SELECT max(rank) FROM
                           (SELECT rank() OVER (ORDER BY id) AS rank FROM c))
                        || (SELECT user_version FROM pragma_user_version)
                        || (SELECT count(*) FROM pragma_table_info('v')) FROM v";
    assert_eq!(value(&db, query).unwrap(), Value::Text("[1,1,1]310332".into()));
}

#[test]
fn what_the_profile_refuses_says_so() {
    let Some(db) = open(Untrusted::new()) else { return };
    let refused = [
        ("ANALYZE", "without the profile"),
        ("PRAGMA integrity_check", "refused to untrusted SQL"),
        ("PRAGMA optimize", "refused to untrusted SQL"),
        ("PRAGMA cell_size_check = OFF", "PRAGMA"),
        ("SELECT * FROM pragma_quick_check()", "refused to untrusted SQL"),
        ("SELECT name FROM Pragma_Table_List", "use PRAGMA table_list"),
        (
            "SELECT 1 FROM pragma_table_list JOIN pragma_table_list x USING (name)",
            "use PRAGMA table_list",
        ),
        ("SELECT * FROM dbstat", "no such table"),
        ("SELECT json_patch('{}', '{}')", "json_set"),
        ("SELECT jsonb_patch('{}', '{}')", "json_set"),
        ("SELECT fts3_tokenizer('simple')", "addresses"),
        ("SELECT sqlite_log(1, 'x')", "log"),
        ("SELECT unhex('00', ' ')", "one argument"),
        ("CREATE VIRTUAL TABLE f USING fts5(x)", "no such module"),
        ("CREATE VIRTUAL TABLE f USING fts3(x)", "no such module"),
        ("CREATE VIRTUAL TABLE f USING rtree(a, b, c)", "no such module"),
        ("CREATE VIRTUAL TABLE f USING dbstat", "no such module"),
        ("SELECT \"nothing\"", "no such column"),
        ("CREATE TABLE q(x CHECK (x <> \"nothing\"))", "no such column"),
        (
            "CREATE TABLE s(x INTEGER PRIMARY KEY AUTOINCREMENT);
          INSERT INTO sqlite_sequence VALUES ('t', 9)",
            "relies on",
        ),
        (
            "CREATE TABLE s(x INTEGER PRIMARY KEY AUTOINCREMENT);
          INSERT INTO s DEFAULT VALUES; UPDATE sqlite_sequence SET seq = 9",
            "relies on",
        ),
        (
            "CREATE TABLE s(x INTEGER PRIMARY KEY AUTOINCREMENT);
          INSERT INTO s DEFAULT VALUES; UPDATE sqlite_sequence SET name = 'other'",
            "relies on",
        ),
        (
            "CREATE TABLE s(x INTEGER PRIMARY KEY AUTOINCREMENT); DELETE FROM sqlite_sequence",
            "relies on",
        ),
        (
            "CREATE TABLE s(x INTEGER PRIMARY KEY AUTOINCREMENT); DROP TABLE s;
          WITH n AS (SELECT 's') DELETE FROM main.SQLITE_Sequence WHERE name IN n RETURNING name",
            "relies on",
        ),
        (
            "CREATE TABLE s(x INTEGER PRIMARY KEY AUTOINCREMENT);
          CREATE TRIGGER z AFTER INSERT ON s BEGIN DELETE FROM sqlite_sequence; END;
          INSERT INTO s DEFAULT VALUES",
            "relies on",
        ),
        ("SELECT zeroblob(2000000)", "too big"),
        ("SELECT 'a' LIKE printf('%.*c', 101, 'a')", "LIKE or GLOB pattern too complex"),
    ];
    for (sql, names) in refused {
        let error = run(&db, sql).expect_err(sql);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{sql}: {error}");
        assert!(error.to_string().contains(names), "{sql}: {error}");
    }
}

#[test]
fn analyze_of_nothing_is_refused_as_any_other_is() {
    let Some(db) = open(Untrusted::new()) else { return };
    run(&db, "DROP TABLE t; CREATE VIEW v AS SELECT 1").unwrap();
    for sql in ["ANALYZE", "ANALYZE main", "ANALYZE sqlite_schema", "ANALYZE v"] {
        for error in [run(&db, sql), db.write(move |tx| tx.execute(sql, ()).map(drop)).wait()] {
            let error = error.expect_err(sql);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{sql}: {error}");
            assert!(error.to_string().starts_with("ANALYZE is refused"), "{sql}: {error}");
        }
    }
    let statistics = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'sqlite_stat%'";
    assert_eq!(value(&db, statistics).unwrap(), Value::Integer(0));
}

#[test]
fn a_module_that_was_left_out_is_told_from_one_that_there_is_not() {
    let create = |db: &Database, module: &str| {
        let sql = format!("CREATE VIRTUAL TABLE f USING {module}(x)");
        let closure = sql.clone();
        let told = db.write(move |tx| tx.execute(&closure, ()).map(drop)).wait().unwrap_err();
        let asked = db.transaction().unwrap().execute(&sql, ()).wait().unwrap_err();
        assert_eq!((told.kind(), asked.kind()), (ErrorKind::Invalid, ErrorKind::Invalid));
        assert_eq!(told.to_string(), asked.to_string());
        told.message().to_string()
    };
    let trusted = Database::open(":memory:").unwrap();
    assert_eq!(create(&trusted, "absent"), "no such module: absent", "in SQLite's words");
    let profile = Untrusted::new().module("rtree").module("absent");
    let Some(db) = open(profile) else { return };
    let told = create(&db, "fts5");
    assert!(told.starts_with("no such module: fts5; the profile for untrusted SQL"), "{told}");
    let known = "all but json_each, json_tree, rtree, absent on purpose";
    assert!(told.contains(known) && told.contains("Untrusted::module"), "{told}");
    let told = create(&db, "absent");
    assert!(told.contains("this program is built without it"), "{told}");
}

#[test]
fn functions_of_modules_need_their_module() {
    let calls = [
        ("fts5(0)", "fts5"),
        ("fts5_source_id()", "fts5"),
        ("FTS5_locale('en', 'a')", "fts5"),
        ("fts5_insttoken('a')", "fts5"),
        ("bm25('t')", "fts5"),
        ("highlight('t', 0, 'a', 'b')", "fts5"),
        ("snippet('a')", "fts3"),
        ("offsets('a')", "fts4"),
        ("matchinfo('a', 'b')", "fts3"),
        ("optimize('a')", "fts4"),
        ("rtreecheck('t')", "rtree"),
        ("rtreedepth(x'0001')", "rtree"),
        ("rtreenode(2, x'00')", "rtree_i32"),
        ("'a' MATCH 'b'", "fts5"),
        ("match('a', 'b')", "rtree"),
    ];
    for (call, module) in calls {
        let sql = format!("SELECT {call}");
        for named in [None, Some(module)] {
            let profile = named.into_iter().fold(Untrusted::new(), Untrusted::module);
            let Some(db) = open(profile) else { return };
            let told = value(&db, &sql).err().map(|error| (error.kind(), error.to_string()));
            let is_refused = told.is_some_and(|(kind, text)| {
                assert_eq!(kind, ErrorKind::Invalid, "{sql}: {text}");
                text.contains("module that was left out") || text.contains("no such function")
            });
            assert_eq!(is_refused, named.is_none(), "{sql} with {named:?}");
        }
    }
}

#[test]
fn names_that_take_long_to_find_are_refused_by_their_number() {
    let Some(db) = open(Untrusted::new()) else { return };
    let many = |count: usize| vec!["id"; count].join(", ");
    let ask = |sql: &str| {
        let one = db.read(|tx| tx.execute_batch(sql)).wait();
        let tx = db.transaction().unwrap();
        let batch = tx.execute_batch(sql).wait().map(drop);
        let sql = sql.to_owned();
        let in_write = db.write(move |tx| tx.execute_batch(&sql)).wait();
        assert_eq!(one.is_ok(), batch.is_ok());
        assert_eq!(one.is_ok(), in_write.is_ok());
        one
    };
    ask(&format!("SELECT 1 FROM t WHERE 1 IN ({})", many(1_900))).unwrap();
    ask("SELECT count(*) FROM t NATURAL JOIN t AS b NATURAL JOIN t AS c NATURAL JOIN t AS d")
        .unwrap();
    let natural = vec!["t"; 20].join(" NATURAL JOIN ");
    for sql in [
        format!("SELECT 1 FROM t WHERE 1 IN ({})", many(20_000)),
        format!("SELECT (SELECT (SELECT 1 FROM t WHERE 1 IN ({})) FROM t) FROM t", many(7_000)),
        format!("SELECT 1 FROM t AS a JOIN t AS b USING ({})", many(20_000)),
        format!("SELECT count(*) FROM {natural}"),
        format!("CREATE VIEW v AS SELECT count(*) FROM {natural}"),
    ] {
        let error = ask(&sql).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("12000 names"), "{error}");
    }
}

/// Names with one sum and one beginning, which SQLite compares nearly to their ends.
fn made_up(count: usize, length: usize) -> Vec<String> {
    let beginning = "p".repeat(length - 6);
    (0..count).map(|at| format!("{beginning}{at:03}{:03}", 999 - at)).collect()
}

#[test]
fn names_that_take_long_to_tell_apart_are_refused() {
    let Some(db) = open(Untrusted::new()) else { return };
    let names = made_up(400, 200).join(",");
    let ones = vec!["1"; 400].join(",");
    let tables = (0..60).map(|at| format!("w AS w{at}")).collect::<Vec<_>>().join(",");
    for sql in [
        format!("CREATE TABLE w({names})"),
        format!("WITH w({names}) AS (SELECT {ones}) SELECT count(*) FROM {tables}"),
        format!("CREATE VIEW v AS WITH w({names}) AS (SELECT {ones}) SELECT 1 FROM {tables}"),
    ] {
        let error = db.write(move |tx| tx.execute_batch(&sql)).wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("begin alike"), "{error}");
    }
    // One by one, and each in a short text.
    db.write(|tx| tx.execute_batch("CREATE TABLE grown(x)")).wait().unwrap();
    let refused = made_up(20, 200).into_iter().position(|name| {
        let sql = format!("ALTER TABLE grown ADD COLUMN {name}");
        db.write(move |tx| tx.execute_batch(&sql)).wait().is_err_and(|error| {
            assert!(error.to_string().contains("begin alike"), "{error}");
            true
        })
    });
    // Eight have 195 characters in common with the one before, or 7 times that; nine are too many.
    assert_eq!(refused, Some(8));
}

#[test]
fn the_text_of_a_schema_is_bounded() {
    let Some(db) = open(Untrusted::new().memory_limit_bytes(16 << 20)) else { return };
    let comment = "x".repeat(200_000);
    let made = (0..20).position(|n| {
        let sql = format!("CREATE VIEW v{n} AS SELECT 1 /* {comment} */");
        let made = db.write(move |tx| tx.execute_batch(&sql)).wait();
        made.is_err_and(|error| {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("bytes of SQL text"), "{error}");
            true
        })
    });
    // A sixteenth of 16 MiB.
    assert_eq!(made, Some(5));
}

#[test]
fn the_number_of_what_a_schema_has_is_bounded() {
    // However busy the machine is.
    let options = Options::new().write_time_limit(Duration::from_secs(30));
    let Some(db) = open_with(options, Untrusted::new()) else { return };
    let create = |numbers: std::ops::Range<usize>| {
        let views: Vec<_> = numbers.map(|n| format!("CREATE VIEW v{n} AS SELECT 1")).collect();
        db.write(move |tx| tx.execute_batch(&views.join(";"))).wait()
    };
    let count = |tx: &Tx<'_>| {
        tx.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get::<_, u32>(0))
    };
    let there = db.read(count).wait().unwrap() as usize;
    create(there..4_000).unwrap();
    let error = create(4_000..4_001).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("4000 are allowed"), "{error}");
}

#[test]
fn a_schema_that_takes_long_to_load_is_refused() {
    // However busy the machine is.
    let options = Options::new().write_time_limit(Duration::from_secs(30));
    let Some(db) = open_with(options, Untrusted::new()) else { return };
    let columns: Vec<_> = (0..499).map(|k| format!("c{k}")).collect();
    let columns = columns.join(",");
    let keyed = format!("({columns}, PRIMARY KEY({columns})) WITHOUT ROWID");
    let indexed = columns[..columns.len() / 2].rsplit_once(',').unwrap().0;
    let fill = |what: &dyn Fn(usize) -> String| {
        let made = (0..).map_while(|number| {
            let sql = what(number);
            let made = db.write(move |tx| tx.execute_batch(&sql)).wait();
            made.map_err(|error| {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
                assert!(error.to_string().contains("100 ms to read"), "{error}");
            })
            .ok()
        });
        made.count()
    };
    let narrow = "CREATE TABLE narrow(a, b); DROP TABLE narrow";
    assert!((40..60).contains(&fill(&|number| format!("CREATE TABLE t{number} {keyed}"))));
    for number in 0..20 {
        db.write(move |tx| tx.execute_batch(&format!("DROP TABLE t{number}"))).wait().unwrap();
    }
    // It has fewer commas than its table has columns, and must not stand for it.
    let quiet = "CREATE TRIGGER quiet AFTER INSERT ON t30 BEGIN SELECT 1; END";
    db.write(move |tx| tx.execute_batch(quiet)).wait().unwrap();
    let indexes = fill(&|number| format!("CREATE INDEX i{number} ON t30({indexed})"));
    assert!((20..60).contains(&indexes), "{indexes}");
    for number in 0..10 {
        db.write(move |tx| tx.execute_batch(&format!("DROP INDEX i{number}"))).wait().unwrap();
    }
    db.write(move |tx| tx.execute_batch(narrow)).wait().unwrap();
}

#[test]
fn a_schema_that_was_made_can_be_read_by_everybody() {
    let directory = tempfile::tempdir().unwrap();
    let options = || {
        let profile = Untrusted::new().memory_limit_bytes(2 << 20);
        Options::new().untrusted(profile).readers(2)
    };
    if rusqlite::version_number() < 3_054_000 {
        return;
    }
    let db = options().open(directory.path().join("db")).unwrap();
    let columns: Vec<_> = (0..100).map(|k| format!("c{k}")).collect();
    let columns = columns.join(",");
    let make = |name: &str| {
        let sql = format!("CREATE TABLE {name}({columns})");
        db.write(move |tx| tx.execute_batch(&sql)).wait()
    };
    let made = (0..2_000).map(|i| make(&format!("t{i}"))).position(|made| {
        made.is_err_and(|error| {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("memory_limit_bytes"), "{error}");
            true
        })
    });
    // A quarter of 2 MiB, some 5 KB each.
    let made = made.expect("the schema is bounded");
    assert!((20..500).contains(&made), "{made}");
    // Not in any other way either, nor by one who takes no error for an answer.
    let tx = db.transaction().unwrap();
    let more = format!("CREATE TABLE more({columns})");
    let asked = tx.execute(&more, ()).wait().map(drop).and_then(|()| tx.commit().wait().map(drop));
    assert_eq!(asked.unwrap_err().kind(), ErrorKind::Invalid);
    let stubborn = db.write(move |tx| {
        let _ = tx.execute(&more, ());
        let _ = tx.execute("SELECT 1", ());
        Ok::<_, Error>(())
    });
    assert_eq!(stubborn.wait().unwrap_err().kind(), ErrorKind::Invalid);
    db.close().unwrap();

    let db = options().open(directory.path().join("db")).unwrap();
    let count = "SELECT count(*) FROM sqlite_schema";
    assert_eq!(value(&db, count).unwrap(), Value::Integer(made.try_into().unwrap()));
    assert_eq!(value(&db, "SELECT count(*) FROM t1").unwrap(), Value::Integer(0));
    run(&db, "INSERT INTO t1(c1) VALUES (1)").unwrap();
    let tx = db.transaction().unwrap();
    tx.execute("INSERT INTO t1(c1) VALUES (1)", ()).wait().unwrap();
    tx.commit().wait().unwrap();
    run(&db, "DROP TABLE t1").unwrap();
    run(&db, "CREATE TABLE small(x)").unwrap();
}

#[test]
fn what_never_ends_is_ended() {
    let Some(db) = open(Untrusted::new()) else { return };
    let endless = [
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n), s(a, p) AS MATERIALIZED
             (SELECT printf('%.*c', 1000000, 'a'), '%' || printf('%.*c', 98, 'a') || 'b')
         SELECT count(*) FROM n, s WHERE a || i LIKE p",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
         SELECT sum(instr(printf('%.*c', 1000000, 'a') || i, printf('%.*c', 999, 'a') || 'b'))
         FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
         SELECT sum(length(hex(randomblob(500000)))) FROM n",
    ];
    for sql in endless {
        for way in [|db, sql| value(db, sql).map(|_| ()), run] {
            let start = Instant::now();
            let error = way(&db, sql).unwrap_err();
            let time = start.elapsed();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{sql}: {error}");
            assert!(time < LIMIT + SLACK, "{sql}: {time:?}");
        }
    }
}

#[test]
fn what_calls_functions_for_minutes_without_a_jump_is_ended() {
    let Some(db) = open(Untrusted::new()) else { return };
    // Those that take time alone, and those that take memory, too.
    let calls = [
        ("j LIKE '%' || p || '{i}'", true),
        ("j GLOB '*' || p || '{i}'", true),
        ("('{i}' || j) LIKE '%!%' || p || 'b' ESCAPE '!'", false),
        ("instr(j, p || p || p || p || 'b{i}')", true),
        ("d + {i}", true),
        ("length(hex(zeroblob(400000 + {i})))", false),
        ("length(upper(j || {i}))", false),
        ("length(json_quote(j || {i}))", false),
        ("length(printf('%.{i}f%s', 1.5, j))", false),
    ];
    for (call, takes_time) in calls {
        // More would have too many names.
        let columns: Vec<_> = (0..180)
            .map(|column| {
                let written = |i: i32| format!("({})", call.replace("{i}", &i.to_string()));
                let calls: Vec<_> = (0..10).map(|i| written(column * 10 + i)).collect();
                format!("max({})", calls.join(","))
            })
            .collect();
        let sql = format!(
            "WITH m(j) AS MATERIALIZED (SELECT printf('%.*c', 900000, 'a')),
                  q(p) AS MATERIALIZED (SELECT printf('%.*c', 90, 'a')),
                  r(d) AS MATERIALIZED (SELECT printf('%.*c', 900000, '1'))
             SELECT {} FROM m, q, r",
            columns.join(",")
        );
        for (way, ended) in ways(&db, &sql).into_iter().enumerate() {
            let error = ended.expect_err(call);
            let is_starved = !takes_time && error.to_string().contains("memory_limit_bytes");
            assert!(
                error.kind() == ErrorKind::Timeout || is_starved,
                "{call}, {way}: {error:.300}"
            );
        }
        let start = Instant::now();
        assert!(value(&db, &sql).is_err());
        assert!(start.elapsed() < LIMIT + SLACK, "{call}: {:?}", start.elapsed());
    }
}

/// The ways in which a statement is run that gives one row.
fn ways(db: &Database, sql: &str) -> [Result<Value, Error>; 4] {
    let text = sql.to_owned();
    let tx = db.transaction().unwrap();
    [
        value(db, sql),
        db.write(move |tx| tx.query_row(&text, (), |row| row.get(0))).wait(),
        tx.query_row(sql, (), |row| row.get(0)).wait(),
        {
            let text = sql.to_owned();
            let read = db.read(move |tx| tx.query_row(&text, (), |row| row.get(0)));
            smol::block_on(read)
        },
    ]
}

#[test]
fn an_expression_that_views_and_columns_make_deep_ends_no_process() {
    let Some(db) = open(Untrusted::new()) else { return };
    let deeper = "+1".repeat(95);
    let mut chain = String::from("WITH v0(x) AS (SELECT value FROM json_each('[1]'))");
    let mut views = String::from("CREATE VIEW w0 AS SELECT id AS x FROM t;");
    for i in 1..=90 {
        chain += &format!(", v{i}(x) AS (SELECT x{deeper} FROM v{})", i - 1);
        views += &format!("CREATE VIEW w{i} AS SELECT x{deeper} AS x FROM w{};", i - 1);
    }
    chain += " SELECT x FROM v90";
    db.write(move |tx| tx.execute_batch(&views)).wait().unwrap();
    let mut columns = String::from("CREATE TABLE g(c0");
    (1..=200).for_each(|i| columns += &format!(", c{i} AS (c{}{deeper})", i - 1));
    columns += "); INSERT INTO g(c0) VALUES (1)";
    // A thread with less than others have.
    let small = std::thread::Builder::new().stack_size(256 << 10);
    let run = move || {
        for sql in [chain.as_str(), "SELECT x FROM w90 LIMIT 1"] {
            for ended in ways(&db, sql) {
                // Whether it is done in time is not the question.
                assert!(ended.is_ok() || ended.unwrap_err().kind() != ErrorKind::Internal);
            }
        }
        let ended = db.write(move |tx| tx.execute_batch(&columns)).wait();
        assert!(ended.is_ok() || ended.unwrap_err().kind() != ErrorKind::Internal);
        assert_eq!(value(&db, "SELECT 6 * 7").unwrap(), Value::Integer(42));
        close_behind_plan(&db);
    };
    small.spawn(run).unwrap().join().unwrap();
}

#[test]
fn a_statement_of_too_many_parts_is_refused() {
    // For its size, however busy the machine is.
    let limit = Duration::from_secs(30);
    let options = Options::new().write_time_limit(limit).read_time_limit(limit);
    let Some(db) = open_with(options, Untrusted::new()) else { return };
    let list = |part: &str, count: usize| vec![part; count].join(", ");
    let conditions = |count: usize| {
        let some = vec!["x = 1"; 60].join(" AND ");
        format!("SELECT count(*) FROM t WHERE {}", vec![format!("({some})"); count].join(" OR "))
    };
    for (sql, is_refused) in [
        (format!("SELECT {}", list("(SELECT 1)", 390)), false),
        (format!("SELECT {}", list("(SELECT 1)", 410)), true),
        (conditions(20), false),
        (conditions(32), false),
    ] {
        for (way, ended) in ways(&db, &sql).into_iter().enumerate() {
            match ended {
                Ok(_) => assert!(!is_refused, "{way}"),
                Err(error) => {
                    assert!(is_refused, "{way}: {error}");
                    assert_eq!(error.kind(), ErrorKind::Invalid, "{way}: {error}");
                    assert!(error.to_string().contains("more than"), "{way}: {error}");
                }
            }
        }
    }
    // A tree as flat as it can be.
    let mut tree = vec!["x = 1".to_owned(); 10_100];
    while tree.len() > 1 {
        tree = tree.chunks(2).map(|pair| format!("({})", pair.join(" OR "))).collect();
    }
    let wide = format!("SELECT count(*) FROM t WHERE {}", tree[0]);
    for (way, ended) in ways(&db, &wide).into_iter().enumerate() {
        let error = ended.unwrap_err();
        assert!(error.to_string().contains("more than 2000 uses"), "{way}: {error}");
    }
    let literals: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
    let long = format!("SELECT count(*) FROM t WHERE x IN ({})", literals.join(","));
    for (way, ended) in ways(&db, &long).into_iter().enumerate() {
        let error = ended.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{way}: {error}");
        assert!(error.to_string().contains("250,000"), "{way}: {error}");
    }
    // Each statement of a batch counts alone.
    let many = format!("SELECT {};", list("(SELECT 1)", 390)).repeat(3);
    db.write(move |tx| tx.execute_batch(&many)).wait().unwrap();
}

#[test]
fn an_interactive_transaction_has_one_budget_and_prepares_within_its_time() {
    let options = Options::new().writer_cache_bytes(1 << 20).reader_cache_bytes(1 << 20);
    let profile = Untrusted::new().memory_limit_bytes(8 << 20);
    let Some(db) = open_with(options, profile) else { return };
    let tx = db.transaction().unwrap();
    let fill = "INSERT INTO t(x) SELECT randomblob(500000) FROM json_each('[1,2]')";
    let filled: Vec<_> = (0..20).map(|_| tx.execute(fill, ()).wait()).collect();
    let refused = filled.iter().position(Result::is_err).expect("20 MB are more than 8");
    let error = filled[refused].as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("memory_limit_bytes"), "{error}");
    assert!(refused >= 4, "{refused}");
    // The next transaction has all of it.
    let tx = db.transaction().unwrap();
    tx.execute(fill, ()).wait().unwrap();
    tx.commit().wait().unwrap();

    let Some(db) = open(Untrusted::new()) else { return };
    let mut views = String::from("CREATE VIEW b0 AS SELECT 1 AS x;");
    let columns: Vec<String> = (0..100).map(|k| format!("max(a.x) + {k} AS x{k}")).collect();
    let columns = columns.join(", ");
    for i in 1..=14 {
        let below = i - 1;
        views += &format!(
            "CREATE VIEW b{i} AS SELECT max(a.x) AS x, {columns} FROM b{below} a, b{below} b \
             GROUP BY a.x;"
        );
    }
    let error = db.write(move |tx| tx.execute_batch(&views)).wait().unwrap_err();
    assert!(error.to_string().contains("ALTER TABLE take too long"), "{error}");
    let start = Instant::now();
    let tx = db.transaction().unwrap();
    let chained: String =
        (1..=14).map(|i| format!(", c{i} AS (SELECT x FROM c{0}, c{0})", i - 1)).collect();
    let chained = format!("WITH c0(x) AS (SELECT {columns}){chained} SELECT * FROM c14");
    let error = tx.query_map(&chained, (), |_| Ok(())).wait().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Invalid), "{error}");
    assert!(start.elapsed() < 2 * LIMIT + SLACK, "{:?}", start.elapsed());
}

#[test]
fn the_longest_set_of_characters_is_trimmed_in_no_time() {
    let Some(db) = open(Untrusted::new()) else { return };
    let trimmed =
        "SELECT length(trim(printf('%.*c', 1000000, 'a'), printf('%.*c', 999, 'b') || 'a'))
                          || trim('xyabcyx', 'yx') || ltrim('éèaé', 'èé') || rtrim('aéb', 'éb')";
    let start = Instant::now();
    assert_eq!(value(&db, trimmed).unwrap(), Value::Text("0abcaéa".into()));
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
}

#[test]
fn many_short_statements_are_ended() {
    let options = Options::new().write_time_limit(Duration::from_millis(50));
    let Some(db) = open_with(options, Untrusted::new()) else { return };
    let error = db.write(|tx| tx.execute_batch(&"SELECT 1;".repeat(100_000))).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert_eq!(db.stats().timed_out_transactions, 1);
}

#[test]
fn many_paths_into_a_long_document_are_foreseen() {
    let paths = vec!["'$[#-100]'"; 99].join(",");
    let calls = vec![format!("json_extract(d, {paths})"); 30].join(", ");
    let document = "(SELECT jsonb('[' || replace(printf('%.*c', 200000, '1'), '1', '1,') || '1]'))";
    let sql = format!("WITH j(d) AS MATERIALIZED (SELECT {document}) SELECT {calls} FROM j");
    let Some(told) = foreseen(Duration::from_millis(200), &sql) else { return };
    assert_eq!(told.unwrap_err(), ErrorKind::Timeout);
}

#[test]
fn a_transaction_beyond_its_memory_fails_alone() {
    let options = Options::new().writer_cache_bytes(1 << 20).reader_cache_bytes(1 << 20);
    let Some(db) = open_with(options, Untrusted::new().memory_limit_bytes(4 << 20)) else { return };
    let hungry = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
                  SELECT max(x) FROM (SELECT randomblob(900000) || i AS x FROM n ORDER BY 1)";
    let assert_starved = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("memory_limit_bytes"), "{error}");
    };
    assert_starved(value(&db, hungry).unwrap_err());
    let put = |id: i64| db.write(move |tx| tx.execute("INSERT INTO t VALUES (?1, 0)", [id]));
    let (before, sorting, filling, after) = as_one_batch(&db, || {
        let before = put(1);
        let sorting = db.write(move |tx| {
            tx.execute("INSERT INTO t VALUES (2, 0)", ())?;
            tx.query_row(hungry, (), |_| Ok(()))
        });
        let filling = db.write(move |tx| {
            let rows = "INSERT INTO t(x) SELECT randomblob(900000) FROM json_each(?1)";
            tx.execute(rows, [format!("[{}1]", "1,".repeat(9))])
        });
        (before, sorting, filling, put(3))
    });
    assert_starved(sorting.wait().unwrap_err());
    assert_starved(filling.wait().unwrap_err());
    let _ = (before.wait().unwrap(), after.wait().unwrap());
    assert_eq!(value(&db, "SELECT group_concat(id) FROM t").unwrap(), Value::Text("1,3".into()));
}

#[test]
fn a_transaction_changes_as_many_pages_as_fit_into_its_cache_and_its_memory() {
    for (cache_mib, fits) in [(2, false), (16, true)] {
        let options = Options::new().writer_cache_bytes(cache_mib << 20);
        let profile = Untrusted::new().memory_limit_bytes(4 << 20);
        let Some(db) = open_with(options.write_time_limit(SLACK), profile) else { return };
        let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
                    INSERT INTO t(x) SELECT zeroblob(3000) FROM n";
        for _ in 0..4 {
            run(&db, rows).unwrap();
        }
        // Twelve MB.
        let changed = run(&db, "UPDATE t SET x = randomblob(3000)");
        match changed {
            Ok(()) => assert!(fits, "{cache_mib} MiB"),
            Err(error) => {
                assert!(!fits, "{cache_mib} MiB: {error}");
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
                assert!(error.to_string().contains("writer_cache_bytes"), "{error}");
            }
        }
        run(&db, "DROP TABLE t").unwrap();
    }
}

/// With a clock that stands still, nothing is late but what is foreseen.
fn foreseen(limit: Duration, sql: &str) -> Option<Result<Value, ErrorKind>> {
    let options = Options::new().read_time_limit(limit).clock(HandClock::new());
    let db = open_with(options, Untrusted::new())?;
    Some(value(&db, sql).map_err(|error| error.kind()))
}

#[test]
fn copies_of_pages_in_a_savepoint_are_not_taken_for_rows_that_wait_for_a_sort() {
    let options = Options::new().write_time_limit(Duration::from_millis(200));
    let Some(db) = open_with(options.clock(HandClock::new()), Untrusted::new()) else { return };
    let fill = "CREATE TABLE wide(k, x);
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
                INSERT INTO wide SELECT i, printf('%.*c', 2000, 'a') FROM n";
    db.write(move |tx| tx.execute_batch(fill)).wait().unwrap();
    let change = |tx: &Tx<'_>| tx.execute("UPDATE wide SET k = k + 1", ()).map(drop);
    db.write(change).wait().unwrap();
    let failing = |tx: &Tx<'_>| {
        tx.execute("UPDATE wide SET k = k + 1 WHERE rowid = 1", ())?;
        tx.execute("SELECT x FROM missing", ()).map(drop)
    };
    db.write(failing).wait().unwrap_err();
    // Groups of members have savepoints from now on.
    db.write(change).wait().unwrap();
    let batched = "DELETE FROM wide WHERE k < 0; UPDATE wide SET k = k + 1";
    db.write(move |tx| tx.execute_batch(batched)).wait().unwrap();
    // The same statement sorts once there is a trigger, and is not known to do so before it runs.
    let sorting = "CREATE TABLE sorted(x);
                   CREATE TRIGGER sorts AFTER UPDATE ON wide WHEN NEW.rowid = 9000 BEGIN
                       INSERT INTO sorted SELECT x FROM wide ORDER BY x || 'b';
                   END";
    db.write(move |tx| tx.execute_batch(sorting)).wait().unwrap();
    assert_eq!(db.write(change).wait().unwrap_err().kind(), ErrorKind::Timeout);
    let batched = db.write(move |tx| tx.execute_batch(batched)).wait();
    assert_eq!(batched.unwrap_err().kind(), ErrorKind::Timeout);
    db.write(|tx| tx.execute_batch("DROP TRIGGER sorts")).wait().unwrap();
    db.write(change).wait().unwrap();
}

#[test]
fn a_statement_ends_before_walks_over_expressions_that_others_made_deep() {
    let nested = |chained: usize, term: &str| {
        let added = format!("{}x{}", format!("{term} + (").repeat(96), ")".repeat(96));
        let mut sql = String::from("WITH v0(x) AS (SELECT value FROM json_each('[1]'))");
        for number in 1..=chained {
            sql += &format!(", v{number}(x) AS (SELECT {added} FROM v{})", number - 1);
        }
        sql + &format!(" SELECT x FROM v{chained}")
    };
    let limit = Duration::from_millis(500);
    // Preparing 97 of them took 3.3 s, during which nothing looked at the clock.
    let Some(deep) = foreseen(limit, &nested(60, "max(1,1,1,1,1,1,1,1)")) else { return };
    assert_eq!(deep, Err(ErrorKind::Timeout));
    assert_eq!(foreseen(limit, &nested(10, "max(1,2)")), Some(Ok(Value::Integer(1_921))));
    assert_eq!(foreseen(limit, &nested(20, "1")), Some(Ok(Value::Integer(1_921))));
}

#[test]
fn a_statement_ends_before_a_sort_of_long_rows_that_would_make_it_late() {
    let sorted = |rows: u32, bytes: u32| {
        format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             SELECT i FROM n ORDER BY printf('%.*c', {bytes}, 'a') || i COLLATE nocase"
        )
    };
    let limit = Duration::from_millis(100);
    let Some(long) = foreseen(limit, &sorted(5_000, 10_000)) else { return };
    assert_eq!(long, Err(ErrorKind::Timeout));
    assert_eq!(foreseen(limit, &sorted(500, 10_000)), Some(Ok(Value::Integer(1))));
    assert_eq!(foreseen(limit * 4, &sorted(5_000, 10_000)), Some(Ok(Value::Integer(1))));
}

/// SQLite can empty a table in one instruction, which looks at no clock: a table of 8 GB was late
/// by seconds.
#[test]
fn all_rows_of_a_table_are_deleted_one_by_one_and_a_drop_drops() {
    let Some(db) = open(Untrusted::new()) else { return };
    let at_once = |sql: &'static str| {
        let opcodes = db.write(move |tx| {
            let mut told = tx.prepare_cached(sql)?;
            let opcodes = told.query_map((), |row| row.get::<_, String>("opcode"))?;
            Ok::<_, Error>(opcodes.collect::<rusqlite::Result<Vec<_>>>()?)
        });
        opcodes.wait().unwrap().iter().any(|opcode| opcode == "Clear")
    };
    run(
        &db,
        "CREATE TRIGGER emptied AFTER UPDATE ON t BEGIN DELETE FROM other; END;
              CREATE TABLE other(y UNIQUE); CREATE VIEW shown AS SELECT * FROM t;
              CREATE TABLE child(of REFERENCES t(id)); INSERT INTO t VALUES (1, 1), (2, 2)",
    )
    .unwrap();
    for sql in ["EXPLAIN DELETE FROM t", "EXPLAIN DELETE FROM other", "EXPLAIN UPDATE t SET x = 0"]
    {
        assert!(!at_once(sql), "{sql}");
    }
    let deleted = db.write(|tx| tx.execute("DELETE FROM t", ())).wait();
    assert_eq!(deleted.unwrap(), 2);
    run(&db, "DROP VIEW shown; DROP TABLE t; DROP TABLE other; DROP TABLE child").unwrap();
    let left = "SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' AND \
                name NOT LIKE 'monolite_%'";
    assert_eq!(value(&db, left).unwrap(), Value::Integer(0));
}

#[test]
fn a_module_that_was_named_may_be_used() {
    let Some(db) = open(Untrusted::new().module("fts5")) else { return };
    run(&db, "CREATE VIRTUAL TABLE f USING fts5(x); INSERT INTO f VALUES ('some words')").unwrap();
    let found = value(&db, "SELECT count(*) FROM f WHERE f MATCH 'words'");
    assert_eq!(found.unwrap(), Value::Integer(1));
    let shadow = run(&db, "DELETE FROM f_data").unwrap_err();
    assert_eq!(shadow.kind(), ErrorKind::Invalid, "{shadow}");
    run(&db, "DELETE FROM f; DROP TABLE f").unwrap();
    let left = value(&db, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'f%'");
    assert_eq!(left.unwrap(), Value::Integer(0));
}

#[test]
fn values_out_of_range_are_refused_at_open() {
    for profile in [Untrusted::new().value_limit_bytes(1), Untrusted::new().memory_limit_bytes(1)] {
        let error = Options::new().untrusted(profile).open(":memory:").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("must be from"), "{error}");
    }
}

#[test]
fn statements_are_told_how_many_rows_were_changed_as_anybody_is() {
    let Some(db) = open_with(Options::new(), Untrusted::new()) else { return };
    let setup = "CREATE TABLE w(x);
                 CREATE TABLE told(by, n);
                 CREATE TABLE defaulted(n DEFAULT (changes()), x);
                 CREATE TABLE quiet(x);
                 CREATE VIEW counted AS SELECT changes() AS n;
                 CREATE TRIGGER tells AFTER INSERT ON quiet BEGIN
                     UPDATE w SET x = x WHERE 0;
                     INSERT INTO told VALUES ('trigger', changes());
                 END";
    db.write(move |tx| tx.execute_batch(setup)).wait().unwrap();
    // Each for the first time behind a change, and once more.
    let asking = [
        "INSERT INTO told VALUES ('values', changes())",
        "INSERT INTO told SELECT 'view', n FROM counted",
        "INSERT INTO told SELECT 'sorted', changes() FROM w GROUP BY 2 ORDER BY 1 DESC",
        "INSERT INTO defaulted(x) VALUES (1)",
        "INSERT INTO quiet VALUES (1)",
        "INSERT INTO told SELECT 'three', count(*) FROM w WHERE x <= changes()",
        "DELETE FROM w WHERE x > 1 + changes()",
    ];
    let run = move |tx: &Tx<'_>| {
        for sql in asking {
            tx.execute("INSERT INTO w VALUES (1), (2), (3)", ())?;
            tx.execute(sql, ())?;
            // Not run, so that it changes nothing of what is told.
            tx.execute("INSERT INTO w VALUES (1), (2)", ())?;
            tx.execute("UPDATE w SET x = ?1 WHERE x = ?2", [1]).unwrap_err();
            tx.execute("-- nothing", ()).unwrap_err();
            tx.execute_batch("; /* nothing */ ;")?;
            tx.execute("INSERT INTO told VALUES ('behind an error', changes())", ())?;
        }
        let told = "SELECT by || ' ' || n FROM told UNION ALL SELECT 'default ' || n FROM defaulted
                    UNION ALL SELECT 'left ' || count(*) FROM w";
        let mut rows = tx.prepare(told)?;
        let rows = rows.query_map((), |row| row.get::<_, String>(0))?;
        Ok::<_, Error>(rows.collect::<Result<Vec<_>, _>>()?)
    };
    let mut plain = Vec::new();
    for _ in 0..2 {
        let told = db.write(run).wait().unwrap();
        if plain.is_empty() {
            let trusted = Options::new().open(":memory:").unwrap();
            trusted.write(move |tx| tx.execute_batch(setup)).wait().unwrap();
            for _ in 0..2 {
                plain.push(trusted.write(run).wait().unwrap());
            }
        }
        assert_eq!(told, plain.remove(0));
    }
}

#[test]
fn a_text_for_which_there_is_no_memory_is_an_error_and_no_panic() {
    let Some(first) = open(Untrusted::new()) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("utf16.db");
    let plain = monolite::rusqlite::Connection::open(&path).unwrap();
    plain.execute_batch("PRAGMA encoding = 'UTF-16le'; CREATE TABLE t(a)").unwrap();
    drop(plain);
    let options = Options::new().reader_cache_bytes(1 << 16).writer_cache_bytes(1 << 20);
    let db = options.untrusted(Untrusted::new().memory_limit_bytes(4 << 20)).open(&path).unwrap();
    // Each is made UTF-8 when it is asked for, which takes as much again.
    let columns: Vec<_> = (0..8).map(|i| format!("x || '{i}'")).collect();
    let sql = format!(
        "WITH f(x) AS MATERIALIZED (SELECT replace(hex(zeroblob(150000)), '00', 'a'))
         SELECT {} FROM f",
        columns.join(", ")
    );
    let look = |row: &monolite::rusqlite::Row<'_>| {
        (0..8).try_fold(0, |sum, i| Ok(sum + row.get::<_, String>(i)?.len()))
    };
    let in_write = sql.clone();
    let tx = db.transaction().unwrap();
    for ended in [
        db.read(|tx| tx.query_one(&sql, (), look)).wait(),
        db.write(move |tx| tx.query_one(&in_write, (), look)).wait(),
        tx.query_one(&sql, (), look).wait(),
        db.read_stream(&sql, (), look).wait().next().unwrap(),
    ] {
        let error = ended.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("memory_limit_bytes"), "{error}");
    }
    // Nor in a function of ours.
    let sql = format!(
        "WITH f(x) AS MATERIALIZED (SELECT replace(hex(zeroblob(480000)), '00', 'a'))
         SELECT sum(ln(lower(x))) FROM f, json_each('[{}]')",
        vec!["1"; 5_000].join(",")
    );
    let ended = db.read(|tx| tx.query_one(&sql, (), |row| row.get::<_, Option<f64>>(0))).wait();
    let error = ended.unwrap_err();
    assert!(!error.to_string().contains("panic"), "{error}");
    db.close().unwrap();
    first.close().unwrap();
}

#[test]
fn passes_of_which_neither_text_nor_authorizer_tells_are_foreseen() {
    let limit = Duration::from_millis(500);
    let options = Options::new().read_time_limit(limit).write_time_limit(limit);
    let Some(db) = open_with(options.clock(HandClock::new()), Untrusted::new()) else { return };
    let run = |sql: &str| {
        let sql = sql.to_owned();
        db.write(move |tx| tx.execute_batch(&sql)).wait()
    };
    let value = |sql: &str| {
        let sql = sql.to_owned();
        db.read(move |tx| tx.query_row(&sql, (), |row| row.get::<_, Value>(0))).wait()
    };
    let cases = |count: usize| {
        let whens = (0..count).map(|at| format!(" WHEN {at} THEN 1")).collect::<String>();
        format!("CASE x{whens} END")
    };
    let checks = |count: usize| {
        (0..count).map(|at| format!(", CHECK (x + 0 IS NOT {at})")).collect::<String>()
    };
    run("CREATE TABLE n(x INTEGER); INSERT INTO n VALUES (printf('%.*c', 900000, '1') || 'a')")
        .unwrap();
    run(&format!("CREATE VIEW v AS SELECT {} AS y FROM n", cases(1_500))).unwrap();
    run(&format!("CREATE TABLE few(x{}); CREATE TABLE many(x{})", checks(20), checks(900)))
        .unwrap();
    // Four times 2,500 cases took 3.1 s of a core.
    let sql = "SELECT y, y, y FROM v";
    let ended =
        |ended: Result<(), Error>| assert_eq!(ended.unwrap_err().kind(), ErrorKind::Timeout);
    ended(value(sql).map(drop));
    ended(db.read(|tx| Ok(tx.prepare(sql)?.query_row((), |_| Ok(()))?)).wait());
    for _ in 0..2 {
        ended(db.read(|tx| Ok(tx.prepare_cached(sql)?.query_row((), |_| Ok(()))?)).wait());
    }
    // Held, with another statement before it runs.
    let held = db.read(|tx| {
        let mut held = tx.prepare(sql)?;
        tx.execute_batch("SELECT 1")?;
        Ok(held.query_row((), |_| Ok(()))?)
    });
    ended(held.wait());
    let insert = |table: &str| format!("INSERT INTO {table} SELECT x FROM n");
    ended(run(&insert("many")));
    // Behind a change SQLite does not tell what another one does.
    let update = format!("UPDATE n SET x = {}", cases(3_000));
    ended(run(&format!("UPDATE few SET x = 1; {}; {}", insert("few"), update)));
    assert_eq!(value(&format!("SELECT {} FROM n", cases(20))).unwrap(), Value::Null);
    let literal = format!("INSERT INTO few VALUES ('{}')", "1".repeat(800_000));
    run(&format!("{}; {literal}; {literal}", insert("few"))).unwrap();
}

#[test]
fn a_text_without_a_statement_does_no_harm_in_whatever_way_it_is_prepared() {
    let Some(db) = open_with(Options::new(), Untrusted::new()) else { return };
    for sql in ["", ";", "-- nothing", "/* nothing */ ;"] {
        db.read(move |tx| tx.prepare_cached(sql).map(drop)).wait().unwrap();
        db.write(move |tx| tx.prepare_cached(sql).map(drop)).wait().unwrap();
        db.read(move |tx| tx.prepare(sql).map(drop)).wait().unwrap();
        db.write(move |tx| tx.execute_batch(sql)).wait().unwrap();
    }
}

#[test]
fn a_statement_that_is_held_across_a_change_of_the_schema_is_not_planned_while_it_runs() {
    let options = Options::new().read_time_limit(SLACK).write_time_limit(SLACK);
    let Some(db) = open_with(options, Untrusted::new()) else { return };
    run(&db, "CREATE TABLE u(a); CREATE INDEX i ON u(a); CREATE VIEW v AS SELECT a FROM u")
        .unwrap();
    // A view of 900 such conditions takes 20 s to plan.
    let either = (0..90).map(|at| format!("(a = {at} OR a = -{at})")).collect::<Vec<_>>();
    let view =
        format!("DROP VIEW v; CREATE VIEW v AS SELECT a FROM u WHERE {}", either.join("AND"));
    let sql = "SELECT a FROM v";
    let held = db.write(move |tx| {
        let mut held = tx.prepare(sql)?;
        tx.execute_batch(&view)?;
        Ok(held.query(())?.next()?.is_some())
    });
    let error = held.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let cached = db.write(move |tx| {
        let held = tx.prepare_cached(sql)?;
        tx.execute_batch("DROP VIEW v; CREATE VIEW v AS SELECT a + 0 AS a FROM u")?;
        drop(held);
        // Prepared behind the change, and so are those that the engine keeps.
        tx.prepare_cached(sql)?.query(())?.next()?;
        tx.query_optional(sql, (), |_| Ok(())).map(drop)
    });
    cached.wait().unwrap();
    // What was held is not found by the next one.
    let next = db.write(move |tx| {
        let mut found = tx.prepare_cached(sql)?;
        Ok(found.query(())?.next()?.is_some())
    });
    assert!(!next.wait().unwrap());
    // Other statements than queries are of the same kind, and pragmas of none.
    let held = db.write(|tx| {
        let mut pragma = tx.prepare("SELECT count(*) FROM pragma_table_info('u')")?;
        let mut insert = tx.prepare("INSERT INTO u VALUES (1)")?;
        insert.execute(())?;
        pragma.query_row((), |row| row.get::<_, i64>(0))?;
        tx.execute_batch("CREATE TABLE other(x)")?;
        Ok(insert.execute(())?)
    });
    assert_eq!(held.wait().unwrap_err().kind(), ErrorKind::Invalid);
}
