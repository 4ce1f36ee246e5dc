//! The parts of the check. That each control is noticed, each run of the check shows.

use std::time::Duration;

use super::driver::Driver;
use super::excuses::{REFUSED, is_of_view};
use super::record::{Call, Ending, How, Op, Setup, Step, Write};
use super::*;
use monolite::{Database, Error, ErrorKind, ReadTx};
use monolite_testkit::child::Program;

const SERVER: &str = "run::tests::plays_the_role_it_was_started_for";

#[test]
fn what_is_taken_for_refused_is_refused() {
    let db = Database::open(":memory:").unwrap();
    for sql in REFUSED {
        let ask = |tx: &ReadTx<'_>| tx.query_row(sql, (), |_| Ok(()));
        let written = db.write(move |tx| Ok::<_, Error>(ask(tx).unwrap_err().kind())).wait();
        let read = db.read(|tx| Ok::<_, Error>(ask(tx).unwrap_err().kind())).wait();
        let tx = db.transaction().unwrap();
        let interactive = tx.query_map(sql, (), |_| Ok(())).wait().unwrap_err().kind();
        let kinds = (written.unwrap(), read.unwrap(), interactive);
        let invalid = ErrorKind::Invalid;
        assert_eq!(kinds, (invalid, invalid, invalid), "{sql}");
    }
}

#[test]
fn a_hang_is_noticed_and_the_next_history_runs() {
    let program = Program::this_test(SERVER).unwrap();
    let mut stage = Stage::new(&program).unwrap();
    stage.patience = Duration::ZERO;
    let job = Job { seed: 7, most: 40, is_calm: true, flaw: Flaw::None };
    let ran = stage.run(job).unwrap();
    assert!(ran.difference.unwrap().told.starts_with("nothing for"));
    stage.patience = stage::PATIENCE;
    let ran = stage.run(job).unwrap();
    assert!(ran.difference.is_none() && ran.counts.statements > 0, "{ran:?}");
}

#[test]
fn a_history_that_fails_is_kept_with_its_record_and_reported_once() {
    let program = Program::this_test(SERVER).unwrap();
    Setting::with(&CHECK, 7, &program, |setting| {
        let mut stage = Stage::new(&program).unwrap();
        let (mut outcome, mut seen) = (CHECK.outcome(), Signatures::new());
        let job = Job { seed: 0, most: 300, is_calm: true, flaw: Flaw::SkippedChange };
        let mut run = |seed| stage.run(Job { seed, ..job }).unwrap().difference;
        let (seed, found) = (0..50).find_map(|seed| Some((seed, run(seed)?))).unwrap();
        for _ in 0..2 {
            take_up(setting, &stage, seed, &found, &mut seen, &mut outcome).unwrap();
        }
        assert_eq!(outcome.findings.len(), 1);
        let kept = outcome.findings[0].evidence.as_ref().unwrap().join("history.txt");
        let record = fs::read_to_string(kept).unwrap();
        assert!(record.starts_with("Setup") && record.lines().count() > 9, "{record}");
    });
}

#[test]
fn one_of_two_errors_of_a_view_is_excused_and_no_other() {
    let of_view = "Invalid 1: cannot modify v1 because it is a view";
    let of_index = "Invalid 1: no such index: i1";
    for (sql, text, is_excused) in [
        ("DELETE FROM v1", of_view, true),
        ("UPDATE v1 SET a = 1", of_index, true),
        ("SELECT a FROM v1", of_index, false),
        ("DROP INDEX i1", of_index, false),
        ("DELETE FROM t1 INDEXED BY i1", of_index, false),
        ("DELETE FROM v1", "Invalid 1: no such table: t1", false),
    ] {
        assert_eq!(is_of_view(sql, text), is_excused, "{sql}: {text}");
    }
}

#[test]
fn rowids_that_each_side_draws_end_the_judgement_and_no_others() {
    monolite_sqlite::initialize().unwrap();
    let setup = Setup::random(&mut fastrand::Rng::with_seed(7));
    let setup = Setup { is_in_memory: true, renews_oracle: false, ..setup };
    for (id, is_drawn) in [("9223372036854775805", false), ("'99999999999999999999' | 1", true)] {
        let mut driver = Driver::open(setup, Flaw::None, "unused".as_ref()).unwrap();
        let insert = format!("INSERT INTO t1 SELECT {id} UNION ALL SELECT NULL");
        let sqls = ["CREATE TABLE t1(id INTEGER PRIMARY KEY)", &*insert];
        let steps = sqls.map(|sql| Step::plain(sql, How::Execute)).into();
        let write = Write { call: Call::Write, steps, ending: Ending::Commits };
        driver.carry_out(&Op::Write(write)).unwrap();
        assert_eq!(driver.carry_out(&Op::Compare).is_err(), is_drawn);
        assert_eq!(driver.oracle.has_given_up(), is_drawn);
    }
}
