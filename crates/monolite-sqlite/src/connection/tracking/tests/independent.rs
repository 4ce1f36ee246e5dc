//! A change that uses no page that its transaction has changed needs none of the changes before it.
//!
//! # Algorithm
//! An overlay runs random changes one after another. Each is first run on a second overlay of the
//! same snapshot, without those before it. When the pages that it used there are none of those that
//! the changes before it had changed, each of them alone or all that had to be run together, it has
//! to change as many rows, or fail with the same error, as in its place among them. That is what
//! the engine does with transactions whose connection serves somebody else meanwhile.

use super::soundness::{Run, change};
use super::*;

/// Number of changed rows, or the error.
fn outcome(connection: &Connection, sql: &str) -> Result<usize, String> {
    let run = |statement: &mut rusqlite::Statement<'_>| statement.raw_execute();
    connection.with_statement(sql, run).and_then(|it| it).map_err(|error| error.to_string())
}

/// The pages that were used since they were tracked, and which of them were changed.
fn used(overlay: &Connection) -> (PageSet, Vec<u32>) {
    let pages = overlay.take_pages().unwrap();
    let changed = overlay.changed_pages(&pages).unwrap();
    (pages, changed)
}

/// Changes of which one in this many is made to fail.
const FAILING: u64 = 9;

fn any_change(run: &mut Run) -> String {
    if run.random.below(FAILING) > 0 {
        return change(&mut run.random);
    }
    let id = run.random.below(600);
    format!("INSERT INTO t VALUES({id}, {id}, 'there is one already')")
}

fn compare(seed: u64, steps: u64, independent: &mut u64) -> Result<(), String> {
    let mut run = Run::new(seed);
    let [whole, alone] = [(); 2].map(|()| run.rig.open_keeping(Role::Overlay));
    let guard = run.rig.open(Role::Reader);
    for step in 0..steps {
        guard.begin_read().unwrap();
        let snapshot = guard.snapshot().unwrap();
        whole.begin_on(&snapshot).unwrap();
        assert!(whole.track_pages(LIMIT));
        let mut before = BTreeSet::new();
        for _ in 0..2 + run.random.below(4) {
            let sql = any_change(&mut run);
            alone.begin_on(&snapshot).unwrap();
            assert!(alone.track_pages(LIMIT));
            let without = outcome(&alone, &sql);
            let (pages, changed) = used(&alone);
            alone.rollback().unwrap();
            let behind = outcome(&whole, &sql);
            if pages.pages().iter().any(|pgno| before.contains(pgno)) {
                // It would be run behind the others, whose pages are then taken from there.
                before.extend(used(&whole).1);
                assert!(whole.track_pages(LIMIT));
            } else if behind == without {
                *independent += u64::from(!before.is_empty());
                before.extend(changed);
            } else {
                return Err(format!(
                    "seed {seed}, step {step}: {sql}: {behind:?}, without the others {without:?}"
                ));
            }
        }
        whole.rollback().unwrap();
        guard.rollback().unwrap();
        run.foreign_commits();
    }
    Ok(())
}

fn run(seeds: std::ops::Range<u64>, steps: u64) -> Result<u64, String> {
    let mut independent = 0;
    for seed in seeds {
        compare(seed, steps, &mut independent)?;
    }
    Ok(independent)
}

#[test]
fn an_independent_change_does_what_it_would_do_behind_the_others() {
    let independent = run(0..12, 300).unwrap();
    eprintln!("{independent} independent changes");
    assert!(independent > 1000);
}

#[test]
fn what_hangs_on_the_statements_before_is_not_tracked() {
    let rig = Rig::new();
    let writer = rig.filled(
        "CREATE TABLE t(x); CREATE TABLE log(x);
         CREATE VIEW seen AS SELECT total_changes() AS x;
         CREATE TRIGGER noted AFTER INSERT ON t BEGIN
             INSERT INTO log VALUES(last_insert_rowid());
         END;",
    );
    let is_tracked = |sql: &str| is_tracked(&writer, sql);
    for _ in 0..2 {
        assert!(!is_tracked("INSERT INTO log VALUES(changes())"));
        assert!(!is_tracked("INSERT INTO log SELECT Last_Insert_Rowid()"));
        assert!(!is_tracked("INSERT INTO log SELECT x FROM seen"));
        assert!(!is_tracked("INSERT INTO t VALUES(1)"), "by its trigger");
        assert!(is_tracked("INSERT INTO log VALUES(abs(-1))"));
    }
}
