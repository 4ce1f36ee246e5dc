//! Tests of the runner as a whole: how each path maps transactions, and subjects that are broken on
//! purpose, which it must notice.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use monolite::rusqlite::Connection;
use tempfile::TempDir;

use super::ask::{Way, ask};
use super::content::{Content, content};
use super::lockstep::{Lockstep, Outcome};
use super::path::{Errors, PATHS};
use super::plain::{self, Plain};
use super::script::{Script, Unit};
use super::subject::{Ran, Subject};
use super::{Path, compare};

/// What is wrong with a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    Nothing,
    /// Says that an `UPDATE` was done, and does not do it.
    DropsStatement,
    /// A column has another name.
    RenamesColumn,
    /// A block that is rolled back stays.
    KeepsRolledBack,
    /// An integer comes back as text.
    ChangesType,
    /// Says nothing to the last statement.
    ForgetsAnswer,
    /// Loses the last row when the database is closed.
    LosesAtClose,
}

/// Plain SQLite as a subject, with a flaw.
struct Flawed {
    connection: Connection,
    flaw: Flaw,
    dir: TempDir,
}

impl Flawed {
    fn open(flaw: Flaw) -> Flawed {
        monolite_sqlite::initialize().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("flawed.db");
        let connection = Connection::open(&file).unwrap();
        Flawed { connection, flaw, dir }
    }

    fn file(&self) -> std::path::PathBuf {
        self.dir.path().join("flawed.db")
    }
}

impl Subject for Flawed {
    fn run(&mut self, unit: &Arc<Unit>) -> Ran {
        let mut ran = Ran::default();
        let do_it = |sql: &str| self.connection.execute_batch(sql);
        if unit.is_block {
            do_it("BEGIN").unwrap();
        }
        for statement in &unit.statements {
            let mut said = if self.flaw == Flaw::DropsStatement && statement.verb() == "UPDATE" {
                super::said::Said { changes: Some(1), ..Default::default() }
            } else {
                ask(&self.connection, statement, Way::Execute)
            };
            if self.flaw == Flaw::RenamesColumn
                && let Some(name) = said.columns.as_mut().and_then(|names| names.first_mut())
            {
                name.push('_');
            }
            if self.flaw == Flaw::ChangesType
                && let Some(cell) = said.rows.first_mut().and_then(|row| row.first_mut())
            {
                *cell = super::said::Cell::Text(cell.to_string().into_bytes());
            }
            ran.said.push(said);
        }
        if self.flaw == Flaw::ForgetsAnswer {
            ran.said.pop();
        }
        if unit.is_block {
            let keeps = unit.commits() || self.flaw == Flaw::KeepsRolledBack;
            do_it(if keeps { "COMMIT" } else { "ROLLBACK" }).unwrap();
        }
        ran
    }

    fn content(&self) -> Content {
        content(&self.connection)
    }

    fn close(&mut self) -> Result<Content> {
        if self.flaw == Flaw::LosesAtClose {
            self.connection.execute_batch("DELETE FROM t WHERE a = (SELECT max(a) FROM t)")?;
        }
        plain::content_of_file(&self.file())
    }
}

const SCRIPT: &str = "
    CREATE TABLE t(a INTEGER PRIMARY KEY, b INT, c INT);
    INSERT INTO t VALUES (1, 1, 1), (2, 2, 2);
    SELECT a, b FROM t;
    UPDATE t SET b = 3;
    BEGIN; INSERT INTO t VALUES (3, 3, 3); ROLLBACK;
    BEGIN; INSERT INTO t VALUES (4, 4, 4); COMMIT;
";

fn run(flaw: Flaw) -> Outcome {
    let script = Script::parse(SCRIPT).unwrap();
    let mut subject = Flawed::open(flaw);
    let plain = subject.dir.path().join("plain.db");
    Lockstep {
        script: &script,
        path: Path::named("write").unwrap(),
        plain: Plain::create(&plain, Way::Execute).unwrap(),
        subject: &mut subject,
        is_stopped: &|| false,
        outcome: Outcome::default(),
    }
    .run()
    .unwrap()
}

#[test]
fn a_subject_without_a_flaw_differs_in_nothing() {
    let outcome = run(Flaw::Nothing);
    assert!(outcome.found.is_empty(), "{:#?}", outcome.found);
    assert!(outcome.run >= 6);
}

#[test]
fn every_flaw_is_noticed() {
    for flaw in [
        Flaw::DropsStatement,
        Flaw::RenamesColumn,
        Flaw::KeepsRolledBack,
        Flaw::ChangesType,
        Flaw::ForgetsAnswer,
        Flaw::LosesAtClose,
    ] {
        assert!(!run(flaw).found.is_empty(), "{flaw:?} goes unnoticed");
    }
}

#[test]
fn a_flaw_is_told_where_it_is() {
    let found = &run(Flaw::RenamesColumn).found[0];
    assert_eq!((found.line, found.sql.as_str()), (4, "SELECT a, b FROM t;"));
    assert!(found.plain.contains("\"a\"") && found.ours.contains("\"a_\""), "{found:?}");
}

/// Every way in which a script begins, ends and nests transactions.
const TRANSACTIONS: &str = "
    CREATE TABLE t(a INTEGER PRIMARY KEY);
    INSERT INTO t VALUES (1);
    BEGIN; INSERT INTO t VALUES (2); COMMIT;
    BEGIN IMMEDIATE; INSERT INTO t VALUES (3); ROLLBACK;
    BEGIN; INSERT INTO t VALUES (4); INSERT INTO t VALUES (1); END TRANSACTION;
    SAVEPOINT a;
    INSERT INTO t VALUES (5);
    SAVEPOINT b;
    RELEASE a;
    BEGIN;
    INSERT INTO t VALUES (6);
    SAVEPOINT c;
    INSERT INTO t VALUES (7);
    ROLLBACK TO c;
    COMMIT;
    SELECT a FROM t ORDER BY a;
    BEGIN; INSERT INTO t VALUES (8);
";

fn on(path: &'static Path, text: &str) -> Outcome {
    monolite_sqlite::initialize().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let script = Script::parse(text).unwrap();
    compare(&script, path, dir.path(), &AtomicBool::new(false)).unwrap()
}

#[test]
fn every_path_maps_transactions_and_savepoints() {
    for path in &PATHS {
        let outcome = on(path, TRANSACTIONS);
        assert!(outcome.found.is_empty(), "{}: {:#?}", path.name, outcome.found);
        // On the others they are refused, as the list says; an error that is returned is the last.
        let skipped = match path.errors {
            _ if path.is_interactive() => 0,
            Errors::Kept => 5,
            Errors::Returned => 4,
        };
        assert_eq!(outcome.skipped, skipped, "{}", path.name);
    }
}

#[test]
fn a_closure_that_returns_an_error_has_done_nothing() {
    let text = "CREATE TABLE t(a UNIQUE); INSERT OR FAIL INTO t VALUES (1), (2), (1); \
                BEGIN; INSERT INTO t VALUES (5); INSERT INTO t VALUES (5); \
                INSERT INTO t VALUES (6); COMMIT; SELECT a FROM t;";
    for name in ["returned", "returned_grouped", "write"] {
        let outcome = on(Path::named(name).unwrap(), text);
        assert!(outcome.found.is_empty(), "{name}: {:#?}", outcome.found);
    }
}

#[test]
fn what_plain_sqlite_would_do_is_not_done_where_monolite_refuses() {
    let text = "CREATE TABLE t(a); CREATE TEMP TABLE t(a); INSERT INTO t VALUES (1); \
                PRAGMA foreign_keys = OFF; CREATE TABLE c(x REFERENCES t(a)); \
                INSERT INTO c VALUES (5); BEGIN; INSERT INTO t VALUES (2); \
                INSERT INTO t VALUES (2); ATTACH ':memory:' AS m; CREATE TABLE m.x(a); COMMIT;";
    for name in ["write", "transaction"] {
        let outcome = on(Path::named(name).unwrap(), text);
        assert!(outcome.found.is_empty(), "{name}: {:#?}", outcome.found);
        assert_eq!(outcome.used.get("temporary-objects"), Some(&1));
        assert_eq!(outcome.used.get("attach"), Some(&1));
    }
}

#[test]
fn a_run_that_cannot_begin_is_a_finding() {
    let (script, path) = (Script::parse("SELECT 1;").unwrap(), Path::named("write").unwrap());
    let missing = FilePath::new("/no/such/directory");
    let outcome = super::run_one(&script, path, missing, &AtomicBool::new(false));
    assert!(outcome.found[0].ours.contains("no directory can be made"), "{:?}", outcome.found);
}

#[test]
fn what_takes_two_transactions_is_seen() {
    let seen = super::program::observe().unwrap();
    assert_eq!(seen.len(), 5, "{seen:?}");
}

#[test]
fn options_of_a_script_reach_the_database() {
    let text = "-- option: max_statements 2\nCREATE TABLE t(a);\nBEGIN;\nSELECT 1;\n\
                SELECT 2;\nSELECT 3;\nCOMMIT;";
    let outcome = on(Path::named("transaction").unwrap(), text);
    assert_eq!(outcome.used.get("transaction-limits"), Some(&1));
    let script = Script::parse("-- option: nothing 5\nSELECT 1;").unwrap();
    let (dir, path) = (FilePath::new("."), Path::named("write").unwrap());
    assert!(compare(&script, path, dir, &AtomicBool::new(false)).is_err());
}

#[test]
fn a_scratch_directory_that_is_not_there_is_refused_once() {
    let directory = TempDir::new().unwrap();
    let script = directory.path().join("one.sql");
    std::fs::write(&script, "SELECT 1;").unwrap();
    let plan = super::Plan {
        scripts: vec![script],
        paths: PATHS.iter().collect(),
        scratch: directory.path().join("missing"),
        threads: 1,
    };
    let watch = super::Watch { tell: &|_| {}, stop: Arc::default() };
    let told = super::run(&plan, &watch).unwrap_err().to_string();
    assert!(told.contains("missing; create the directory"), "{told}");
}
