//! Tests of how differences are recognised: as told, and not beyond.

use super::*;
use crate::conform::said::{Cell, Fault};

fn path(name: &str) -> &'static Path {
    Path::named(name).unwrap()
}

fn statement(sql: &str) -> Statement {
    Statement::new(1, sql)
}

fn failed(kind: ErrorKind, text: &str) -> Said {
    let fault = Fault { kind, code: None, text: text.into() };
    Said { fault: Some(fault), ..Said::default() }
}

fn row(cell: Cell) -> Said {
    Said { rows: vec![vec![cell]], ..Said::default() }
}

fn covering(sql: &str, plain: &Said, ours: &Said) -> Option<&'static str> {
    let statement = statement(sql);
    let aspect = plain.differs(ours).unwrap();
    let case = Case { statement: &statement, aspect, plain, ours };
    answers(path("write"), &case).map(|entry| entry.id)
}

#[test]
fn the_page_tells_of_each_difference_and_of_no_other() {
    let page = include_str!("../../../../../docs/differences.md");
    let told = page.split("\n\n`").skip(1).filter_map(|part| part.split_once("`, "));
    let told = told.map(|(id, rest)| (id, rest.split('.').next().unwrap()));
    let name = |paths| match paths {
        Paths::All => "on all paths",
        Paths::Closures => "in closures",
        Paths::Interactive => "in interactive transactions",
    };
    let mut listed: Vec<_> = LIST.iter().map(|entry| (entry.id, name(entry.paths))).collect();
    let mut told: Vec<_> = told.collect();
    listed.sort_unstable();
    told.sort_unstable();
    assert_eq!(listed, told);
}

#[test]
fn a_refusal_is_recognised_by_its_statement_and_its_words() {
    let said = failed(ErrorKind::Invalid, "ATTACH and DETACH are refused: …");
    let id =
        |sql, path_name| refusal(path(path_name), &statement(sql), &said).map(|entry| entry.id);
    assert_eq!(id("ATTACH 'x' AS y", "write"), Some("attach"));
    assert_eq!(id("SELECT 1", "write"), None);
    let other = failed(ErrorKind::Invalid, "near \"ATTACH\": syntax error");
    assert!(refusal(path("write"), &statement("ATTACH 'x'"), &other).is_none());
    assert!(refusal(path("write"), &statement("ATTACH 'x'"), &Said::default()).is_none());
}

#[test]
fn a_refusal_counts_on_its_paths_only() {
    let said = failed(ErrorKind::Invalid, "SAVEPOINT, RELEASE and ROLLBACK TO belong to …");
    let savepoint = statement("SAVEPOINT a");
    assert!(refusal(path("write"), &savepoint, &said).is_some());
    assert!(refusal(path("transaction"), &savepoint, &said).is_none());
}

#[test]
fn answers_are_covered_by_their_kind_only() {
    let (one, two) = (row(Cell::Integer(1)), row(Cell::Integer(2)));
    assert_eq!(covering("SELECT changes()", &one, &two), Some("connection-functions"));
    assert_eq!(covering("SELECT 'changes()'", &one, &two), None);
    assert_eq!(covering("SELECT count(*) FROM t", &one, &two), None);
    assert_eq!(covering("PRAGMA page_count", &one, &two), Some("connection-pragmas"));
    assert_eq!(covering("SELECT * FROM pragma_page_count", &one, &two), Some("connection-pragmas"));
    assert_eq!(covering("PRAGMA user_version", &one, &two), None);
    assert_eq!(covering("EXPLAIN QUERY PLAN SELECT 1", &one, &two), None);
    assert_eq!(covering("EXPLAIN SELECT 1", &one, &two), None);
    let error = failed(ErrorKind::Invalid, "no such function");
    assert_eq!(covering("SELECT changes()", &one, &error), None);
}

#[test]
fn numbers_of_changed_rows_are_covered_for_other_statements_only() {
    let number = |changes| Said { changes: Some(changes), ..Said::default() };
    let id = |sql| covering(sql, &number(1), &number(0));
    assert_eq!(id("CREATE TABLE t(a)"), Some("numbers-of-no-change"));
    for change in ["INSERT INTO t VALUES (1)", "UPDATE t SET a = 1", "DELETE FROM t"] {
        assert_eq!(id(change), None, "{change}");
    }
    assert_eq!(id("WITH a AS (SELECT 1) DELETE FROM t"), None);
}

#[test]
fn a_program_may_differ_in_the_versions_of_the_schema_only() {
    let program = |opcode: &str, version: i64| {
        row(Cell::Null)
            .rows
            .into_iter()
            .chain([vec![Cell::Integer(1), Cell::Text(opcode.into()), Cell::Integer(version)]])
            .collect::<Vec<_>>()
    };
    let said = |opcode, version| Said { rows: program(opcode, version), ..Said::default() };
    let id = |opcode| covering("EXPLAIN SELECT 1", &said(opcode, 1), &said(opcode, 2));
    assert_eq!(id("Transaction"), Some("explain"));
    assert_eq!(id("OpenRead"), None);
}

#[test]
fn an_end_is_covered_only_where_nothing_is_left_to_end() {
    let statement = statement("COMMIT");
    let id = |plain: &Said, ours: &Said| {
        let aspect = plain.differs(ours).unwrap();
        let case = Case { statement: &statement, aspect, plain, ours };
        ends(path("transaction"), &case).map(|entry| entry.id)
    };
    let none_active = failed(ErrorKind::Invalid, "cannot rollback - no transaction is active");
    assert_eq!(id(&none_active, &Said::default()), Some("end-after-rollback"));
    let conflict = failed(ErrorKind::Conflict, "another transaction has changed");
    assert_eq!(id(&Said::default(), &conflict), None);
    let is_over = failed(ErrorKind::Conflict, "the transaction is over: another transaction");
    assert_eq!(id(&Said::default(), &is_over), None);
}
