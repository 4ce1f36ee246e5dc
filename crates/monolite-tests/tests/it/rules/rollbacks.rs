//! Closures that panic, hang, or lose their transaction: each is rolled back, and nobody else.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use monolite::{Clock, Database, Error, ErrorKind, Options};

use super::{create, ids, insert};
use crate::patience::{as_one_batch, one};
use monolite_testkit::clock::HandClock;

const ENDLESS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT SUM(i) FROM n";

#[test]
fn a_panic_in_a_read_leaves_the_reader_usable() {
    let db = Options::new().readers(1).open(":memory:").unwrap();
    create(&db);
    for _ in 0..3 {
        let panic = catch_unwind(AssertUnwindSafe(|| {
            db.read(|tx| {
                tx.query_row("SELECT 1", (), |_| Ok(()))?;
                resume_unwind(Box::new(7_u8));
                #[allow(unreachable_code, reason = "gives the closure its type")]
                Ok::<_, Error>(())
            })
            .wait()
        }));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&7_u8));
        insert(&db, db.stats().transactions as i64).wait().unwrap();
    }
    assert_eq!(ids(&db).len(), 3);
}

#[test]
fn a_swallowed_interrupt_is_a_timeout_all_the_same() {
    let (limit, clock) = (Duration::from_millis(10), HandClock::new());
    let options = Options::new().write_time_limit(limit).clock(Arc::clone(&clock) as _);
    let db = options.open(":memory:").unwrap();
    create(&db);
    let moves = Arc::clone(&clock);
    let swallowing = db.write(move |tx| {
        tx.execute("INSERT INTO t(id) VALUES (1)", ())?;
        moves.advance(limit * 2);
        assert!(tx.query_row(ENDLESS, (), |_| Ok(())).is_err());
        Ok::<_, Error>(())
    });
    assert_eq!(swallowing.wait().unwrap_err().kind(), ErrorKind::Timeout);
    let moves = Arc::clone(&clock);
    let dawdling = db.write_once(move |tx| {
        tx.execute("INSERT INTO t(id) VALUES (2)", ())?;
        moves.advance(limit * 2);
        Ok::<_, Error>(())
    });
    assert_eq!(dawdling.wait().unwrap_err().kind(), ErrorKind::Timeout);
    assert!(ids(&db).is_empty());
}

#[test]
fn an_endless_read_is_interrupted() {
    let db = Options::new()
        .readers(1)
        .read_time_limit(Duration::from_millis(50))
        .open(":memory:")
        .unwrap();
    let endless = db.read(|tx| tx.query_row(ENDLESS, (), |row| row.get::<_, i64>(0)));
    let error = endless.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("read_time_limit"), "{error}");
    assert_eq!(one(&db, "SELECT 1"), 1);
}

/// A clock that goes on by a millisecond whenever somebody looks.
#[derive(Debug, Default)]
struct Looked(AtomicU64);

impl Clock for Looked {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// As [`database`], with `rows` in `child` whose parents are there.
fn database_of(clock: Arc<dyn Clock>, rows: i64) -> Database {
    let hour = Duration::from_secs(3_600);
    let options = Options::new().clock(clock).write_time_limit(hour).max_batch_time(hour / 60);
    let db = options.open(":memory:").unwrap();
    create(&db);
    db.write(move |tx| {
        let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT ?1) ";
        tx.execute(&format!("{many} INSERT INTO parent SELECT i FROM n"), [rows])?;
        tx.execute(&format!("{many} INSERT INTO child SELECT i FROM n"), [rows])
    })
    .wait()
    .unwrap();
    db
}

const ORPHAN: &str = "INSERT INTO child VALUES (-5), (-6)";

#[test]
fn a_violation_that_was_deferred_names_its_tables_and_leaves_no_trace() {
    let db = database_of(HandClock::new(), 10);
    let names = "child refers to rows that are not in parent";
    for once in [false, true] {
        let (violating, after) = as_one_batch(&db, || {
            let body = |tx: &monolite::Tx<'_>| tx.execute(ORPHAN, ());
            let violating = if once { db.write_once(body) } else { db.write(body) };
            let after = db.write(|tx| {
                let before = (tx.changes(), tx.total_changes(), tx.last_insert_rowid());
                tx.execute("INSERT INTO t DEFAULT VALUES", ())?;
                Ok::<_, Error>(before)
            });
            (violating, after)
        });
        let error = violating.wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Constraint);
        assert!(error.to_string().ends_with(&format!("of the transaction: {names}")), "{error}");
        assert_eq!(after.wait().unwrap(), (0, 0, 0));
    }
    let tx = db.transaction().unwrap();
    tx.execute(ORPHAN, ()).wait().unwrap();
    let error = tx.commit().wait().unwrap_err();
    assert!(error.to_string().contains(names), "{error}");
    // The engine's own look is refused to nobody, and allows nobody more.
    assert!(db.write(|tx| tx.execute("PRAGMA foreign_keys = OFF", ())).wait().is_err());
    assert_eq!(ids(&db), [1, 2]);
}

#[test]
fn the_search_for_the_tables_of_a_violation_ends_in_time_and_is_nobodys_delay() {
    let db = database_of(Arc::new(Looked::default()), 50_000);
    let (violating, after) =
        as_one_batch(&db, || (db.write(|tx| tx.execute(ORPHAN, ())), insert(&db, 7)));
    let error = violating.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Constraint, "{error}");
    assert!(error.to_string().ends_with("at the end of the transaction"), "{error}");
    after.wait().unwrap();
    assert_eq!(ids(&db), [7]);
    assert_eq!(db.stats().timed_out_transactions, 0);
}
