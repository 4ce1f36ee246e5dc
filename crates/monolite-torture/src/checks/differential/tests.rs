//! The parts of the check. That each control is noticed, each run of the check shows.

use super::excuses::{REFUSED, is_of_view};
use super::oracle::Flaw;
use super::record::{Call, Ending, History, How, Member, Op, Setup, Step, Write};
use super::shrink::{Budget, shrink};
use super::source::Source;
use super::stage::Stage;
use super::text::text;
use super::*;
use monolite::{Database, Error, ErrorKind, ReadTx};
use monolite_testkit::child::Program;
use monolite_testkit::random::SeededRng;
use std::sync::Arc;
use std::time::Duration;

const SERVER: &str = "run::tests::plays_the_role_it_was_started_for";

fn write(sqls: &[&str]) -> Write {
    let steps = sqls.iter().map(|sql| Step::plain(*sql, How::Cached)).collect();
    Write { call: Call::Once, steps, ending: Ending::Commits }
}

fn history(ops: Vec<Op>) -> History {
    History { seed: 7, setup: Setup { readers: 2, ..Setup::SIMPLE }, ops }
}

#[test]
fn a_failing_history_shrinks_to_what_it_takes() {
    let noise = || Op::Write(write(&["SELECT 1", "SELECT 2"]));
    let mut ops: Vec<Op> = (0..40).map(|_| noise()).collect();
    ops[11] = Op::Batch(vec![
        Member::Commit { slot: 1, key: None },
        Member::Write(write(&["SELECT 3", "DROP TABLE t1", "SELECT 4"])),
    ]);
    ops[29] = Op::Read { is_durable: true, steps: write(&["SELECT 5", "SELECT * FROM t1"]).steps };
    let fails = |history: &History| {
        let printed = text(history);
        let dropped = printed.find("DROP TABLE t1");
        dropped.is_some_and(|at| printed[at..].contains("SELECT * FROM t1"))
    };
    let budget = Budget { tries: 1_000, time: Duration::from_secs(60) };
    let small = shrink(&history(ops), budget, &mut |it| fails(it));
    assert_eq!(text(&small), "options gives_ids: false\nw DROP TABLE t1\nr SELECT * FROM t1\n");
}

#[test]
fn a_saved_history_is_the_same_again() {
    let mut source = Source::new(SeededRng::new().seed(), 300, false);
    let setup = source.setup();
    let schema = Arc::default();
    let ops = std::iter::from_fn(|| source.next(&schema, [true; driver::SLOTS])).collect();
    let saved = History { seed: 3, setup, ops };
    let path = tempfile::NamedTempFile::new().unwrap();
    saved.save(path.path()).unwrap();
    assert_eq!(History::load(path.path()).unwrap(), Some(saved));
}

#[test]
fn a_file_that_is_no_history_is_none() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "{\"seed\":1,\"max_batch\":2}\n").unwrap();
    assert_eq!(History::load(file.path()).unwrap(), None);
}

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
    let mut stage = Stage::with_patience(&program, Duration::from_millis(300)).unwrap();
    let hangs = history(vec![Op::Rest { ms: 60_000 }]);
    let ran = stage.repeat(&hangs, Flaw::None).unwrap();
    assert_eq!(ran.difference.unwrap().class, difference::Class::Hang);
    let ran = stage.repeat(&history(Vec::new()), Flaw::None).unwrap();
    assert!(ran.difference.is_none(), "{ran:?}");
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
