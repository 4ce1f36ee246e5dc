//! SQL that the program does not know in advance: all that a statement did is told, or what it
//! would be, and scripts are run statement by statement.

use monolite::{
    Column, Database, Description, Error, ErrorKind, Parameters, Ran, Row, Transaction, Value,
    rusqlite, statements,
};

const SCHEMA: &str = "
    CREATE TABLE named(id INTEGER PRIMARY KEY, name VARCHAR(10) UNIQUE, x);
    CREATE TABLE hidden(name TEXT);
    CREATE TABLE log(id INTEGER PRIMARY KEY, text);
    CREATE TRIGGER logs AFTER UPDATE ON hidden BEGIN INSERT INTO log(text) VALUES (new.name); END;";

fn database() -> Database {
    let db = Database::open(":memory:").unwrap();
    db.write(|tx| tx.execute_batch(SCHEMA)).wait().unwrap();
    db
}

fn count(rows: &mut u64, _: &Row<'_>) -> rusqlite::Result<()> {
    *rows += 1;
    Ok(())
}

fn run(tx: &Transaction, sql: &str) -> Result<Ran<u64>, Error> {
    tx.run(sql, (), 0, count).wait()
}

/// A statement, its rows, how many it changed, the rowid, and its columns with their types.
type Case = (&'static str, u64, u64, Option<i64>, &'static [(&'static str, &'static str)]);

const CASES: [Case; 17] = [
    ("INSERT INTO named(name) VALUES ('a'), ('b')", 0, 2, Some(2), &[]),
    ("SELECT *, x + 1 AS more FROM named WHERE 0", 0, 0, None, NAMED),
    ("SELECT *, x + 1 AS more FROM named", 2, 0, None, NAMED),
    ("INSERT INTO named(id, name) VALUES (7, 'c') RETURNING name", 1, 1, Some(7), RETURNED),
    ("INSERT OR IGNORE INTO named(name) VALUES ('a')", 0, 0, None, &[]),
    ("WITH w AS (SELECT 'd' AS d) INSERT INTO named(name) SELECT d FROM w", 0, 1, Some(8), &[]),
    ("INSERT INTO hidden VALUES ('x'), ('y'), ('z')", 0, 3, Some(3), &[]),
    // The trigger inserts, and the statement does not.
    (
        "UPDATE hidden SET name = 'w' WHERE name <> 'x' RETURNING name",
        2,
        2,
        None,
        &[("name", "TEXT")],
    ),
    ("UPDATE hidden SET name = 'w' WHERE 0", 0, 0, None, &[]),
    ("DELETE FROM hidden WHERE name = 'x'", 0, 1, None, &[]),
    ("SELECT count(*) FROM log", 1, 0, None, &[("count(*)", "")]),
    ("PRAGMA user_version = 3", 0, 0, None, &[]),
    ("PRAGMA user_version", 1, 0, None, &[("user_version", "")]),
    ("CREATE TABLE new(a)", 0, 0, None, &[]),
    ("ALTER TABLE new ADD COLUMN b INT", 0, 0, None, &[]),
    ("INSERT INTO new SELECT id, 1 FROM log", 0, 2, Some(2), &[]),
    ("VALUES (1), (2), (3)", 3, 0, None, &[("column1", "")]),
];

const NAMED: &[(&str, &str)] =
    &[("id", "INTEGER"), ("name", "VARCHAR(10)"), ("x", ""), ("more", "")];
const RETURNED: &[(&str, &str)] = &[("name", "VARCHAR(10)")];

fn columns(columns: &[Column]) -> Vec<(&str, &str)> {
    columns.iter().map(|it| (it.name.as_str(), it.declared_type.as_deref().unwrap_or(""))).collect()
}

fn check(ran: &Ran<u64>, (sql, rows, changes, rowid, expected): &Case) {
    assert_eq!((ran.rows, ran.changes), (*rows, *changes), "{sql}");
    assert_eq!(ran.last_insert_rowid, *rowid, "{sql}");
    assert_eq!(columns(&ran.columns), *expected, "{sql}");
}

#[test]
fn all_that_a_statement_did_is_told_on_every_path() {
    let db = database();
    db.write(|tx| {
        CASES.iter().try_for_each(|case| {
            check(&tx.run(case.0, (), 0, count)?, case);
            Ok(())
        })
    })
    .wait()
    .unwrap();
    let db = database();
    let tx = db.transaction().unwrap();
    CASES.iter().for_each(|case| check(&run(&tx, case.0).unwrap(), case));
    tx.commit().wait().unwrap();
    let read =
        db.read(|tx| tx.run("SELECT name FROM hidden WHERE 0", (), 0, count)).wait().unwrap();
    assert_eq!(columns(&read.columns), [("name", "TEXT")]);
    let refused = db.read(|tx| tx.run("DELETE FROM hidden", (), 0, count)).wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

/// What one transaction finds when it commits behind another one.
fn commit_behind(first: impl Fn(&Transaction), other: &'static str) -> Option<ErrorKind> {
    let db = database();
    let tx = db.transaction().unwrap();
    first(&tx);
    tx.execute("INSERT INTO hidden VALUES (1)", ()).wait().unwrap();
    db.write(move |tx| statements(other).try_for_each(|sql| tx.run(sql, (), 0, count).map(drop)))
        .wait()
        .unwrap();
    tx.commit().wait().err().map(|error| error.kind())
}

#[test]
fn whatever_was_told_of_a_statement_is_compared_at_commit() {
    let conflict = Some(ErrorKind::Conflict);
    let renamed = "ALTER TABLE log RENAME COLUMN text TO line";
    let retyped = "DROP TABLE log; CREATE TABLE log(id INTEGER PRIMARY KEY, text TEXT)";
    for other in [renamed, retyped] {
        for sql in ["SELECT * FROM log", "SELECT * FROM log WHERE 0"] {
            assert_eq!(commit_behind(|tx| drop(run(tx, sql).unwrap()), other), conflict, "{other}");
        }
        let describes = |tx: &Transaction| drop(tx.describe("TABLE log").wait().unwrap_err());
        assert_eq!(commit_behind(describes, other), None);
        let describes = |tx: &Transaction| drop(tx.describe("SELECT * FROM log").wait().unwrap());
        assert_eq!(commit_behind(describes, other), conflict, "{other}");
        // Behind a change it cannot be left out.
        let describes = |tx: &Transaction| {
            run(tx, "INSERT INTO named(name) VALUES ('a')").unwrap();
            tx.describe("SELECT * FROM log").wait().unwrap();
        };
        assert_eq!(commit_behind(describes, other), conflict, "{other}");
    }
    let describes = |tx: &Transaction| drop(tx.describe("SELECT * FROM named").wait().unwrap());
    assert_eq!(commit_behind(describes, renamed), None);
    // The ids that are given out ahead are those of the commit, and others are compared.
    let inserts =
        |tx: &Transaction, sql| assert!(run(tx, sql).unwrap().last_insert_rowid.is_some());
    for sql in ["INSERT INTO log(text) VALUES (1)", "INSERT INTO hidden VALUES (1)"] {
        let other = "INSERT INTO log(text) VALUES (2); INSERT INTO hidden VALUES (2)";
        assert_eq!(commit_behind(|tx| inserts(tx, sql), other), None, "{sql}");
    }
    let sql = "INSERT INTO log(text) SELECT 1";
    let other = "INSERT INTO log(text) VALUES (2)";
    assert_eq!(commit_behind(|tx| inserts(tx, sql), other), conflict);
    let ignores = |tx: &Transaction| assert_eq!(tx.execute(sql, ()).wait().unwrap(), 1);
    assert_eq!(commit_behind(ignores, other), None);
}

/// A statement, its parameters and columns, whether it explains, and whether it only reads.
type Described = (
    &'static str,
    &'static [Option<&'static str>],
    &'static [(&'static str, &'static str)],
    bool,
    bool,
);

#[test]
fn a_statement_is_described_on_every_path_and_does_not_run() {
    let db = database();
    let cases: [Described; 6] = [
        (
            "SELECT name FROM hidden WHERE name > ?2 OR :n",
            &[None, Some("?2"), Some(":n")],
            &[("name", "TEXT")],
            false,
            true,
        ),
        ("INSERT INTO hidden VALUES (?) RETURNING *", &[None], &[("name", "TEXT")], false, false),
        (
            "EXPLAIN QUERY PLAN DELETE FROM hidden",
            &[],
            &[("id", ""), ("parent", ""), ("notused", ""), ("detail", "")],
            true,
            true,
        ),
        ("CREATE TABLE made(a)", &[], &[], false, false),
        ("DROP TABLE hidden", &[], &[], false, false),
        ("PRAGMA optimize", &[], &[("optimize", "")], false, false),
    ];
    let check = |found: Description, (sql, names, shown, is_explain, is_read_only): Described| {
        let parameters: Vec<_> = found.parameters.iter().map(Option::as_deref).collect();
        assert_eq!(parameters, names, "{sql}");
        assert_eq!(columns(&found.columns), shown, "{sql}");
        assert_eq!((found.is_explain, found.is_read_only), (is_explain, is_read_only), "{sql}");
    };
    let tx = db.transaction().unwrap();
    for case in cases {
        let sql = case.0;
        check(db.read(|tx| tx.describe(sql)).wait().unwrap(), case);
        if case.1.is_empty() && case.4 {
            db.read(|tx| tx.run(sql, (), 0, count)).wait().unwrap();
        }
        check(db.write(move |tx| tx.describe(sql)).wait().unwrap(), case);
        check(tx.describe(sql).wait().unwrap(), case);
    }
    assert_eq!(run(&tx, "SELECT * FROM hidden").unwrap().rows, 0);
    assert!(run(&tx, "SELECT * FROM made").is_err());
    let wrong = tx.describe("SELECT nothing FROM hidden").wait().unwrap_err();
    assert_eq!((wrong.kind(), wrong.sql_offset()), (ErrorKind::Invalid, Some(7)));
    assert_eq!(tx.describe("COMMIT").wait().unwrap_err().kind(), ErrorKind::Invalid);
    // Nothing was changed, so that the writer has nothing to do.
    let before = db.stats().transactions_read_only;
    tx.commit().wait().unwrap();
    assert_eq!(db.stats().transactions_read_only, before + 1);
}

#[test]
fn a_script_is_run_statement_by_statement_up_to_the_one_that_fails() {
    const SCRIPT: &str = "CREATE TABLE made(a); -- with a trigger;
        CREATE TRIGGER r AFTER INSERT ON made BEGIN SELECT CASE 1 WHEN 1 THEN 2 END; END;
        INSERT INTO made VALUES (';');; SELECT a FROM made; SELECT b FROM made; DROP TABLE made";
    let db = database();
    let tx = db.transaction().unwrap();
    let (mut script, mut ran) = (statements(SCRIPT), Vec::new());
    let error = script.try_for_each(|sql| {
        ran.push(run(&tx, sql)?.rows);
        Ok::<_, Error>(())
    });
    let error = error.unwrap_err();
    assert_eq!(ran, [0, 0, 0, 1]);
    assert_eq!(script.rest(), " DROP TABLE made");
    // The place in the whole script.
    let sql = error.sql().unwrap();
    let at = SCRIPT.find(sql).unwrap() + error.sql_offset().unwrap();
    assert!(SCRIPT[at..].starts_with("b FROM made"), "{error}");
    tx.commit().wait().unwrap();
}

#[test]
fn named_values_need_no_sigil_and_leave_no_gap() {
    let db = database();
    let run = |sql: &'static str, names: &[&str]| -> Result<Vec<i64>, Error> {
        let value = |(name, value): (&&str, i64)| ((*name).to_owned(), Value::Integer(value));
        let named = Parameters::Named(names.iter().zip(1..).map(value).collect());
        let tx = db.transaction().unwrap();
        let row = |row: &Row<'_>| (0..3).map(|at| row.get(at)).collect();
        let interactive = tx.query_row(sql, named.clone(), row).wait();
        let read = db.read(|tx| tx.query_row(sql, &named, row)).wait();
        match (&interactive, &read) {
            (Ok(one), Ok(other)) => assert_eq!(one, other),
            (Err(one), Err(other)) => assert_eq!(one.message(), other.message()),
            _ => panic!("{interactive:?}, {read:?}"),
        }
        read
    };
    assert_eq!(run("SELECT :a, @b, $c", &["c", "@b", "a"]).unwrap(), [3, 2, 1]);
    assert_eq!(run("SELECT :a, @a, $c", &["a", "c"]).unwrap(), [1, 1, 2]);
    assert_eq!(run("SELECT ?1, $b, ?3", &["b", "3", "?1"]).unwrap(), [3, 1, 2]);
    // `?1` is the place of `$b`.
    assert_eq!(run("SELECT $b, ?1, 7", &["b"]).unwrap(), [1, 1, 7]);
    for (sql, names, problem) in [
        ("SELECT :a, :b, 1", &["a"][..], ":b, and no value"),
        ("SELECT ?3, 1, 1", &["3"], "number 1, which has no name"),
        ("SELECT ?, 1, 1", &["a"], "which has no name"),
        ("SELECT :a, 1, 1", &["a", "b"], "name: b"),
        ("SELECT :a, 1, 1", &["a", ":a"], "name: :a"),
        ("SELECT :a, 1, 1", &["A"], ":a, and no value"),
        ("SELECT :a, 1, 1", &["@a"], ":a, and no value"),
    ] {
        let error = run(sql, names).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(problem), "{sql} {names:?}: {error}");
    }
}
