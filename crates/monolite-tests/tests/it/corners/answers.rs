//! Wrong answers that were acknowledged, and data that was lost.

use std::thread;
use std::time::Duration;

use monolite::{Database, Error, ErrorKind, InteractiveOptions, Options, Sharing, Transaction, Tx};

use super::{ask, ask_writer, database, number, write};
use crate::patience::{as_one_batch, one};

/// Has a transaction lose its snapshot: its only connection serves another one.
fn lose_snapshot(db: &Database) {
    ask(&db.transaction().unwrap(), "SELECT 1");
}

fn failing(tx: &Transaction, sql: &str) -> ErrorKind {
    tx.query_row(sql, (), number).wait().unwrap_err().kind()
}

#[test]
fn a_statement_that_cannot_be_prepared_takes_no_check_from_the_commit() {
    for is_first in [true, false] {
        let (_directory, _, db) =
            database(Options::new().interactive(InteractiveOptions::default().connections(1)));
        let tx = db.transaction().unwrap();
        if is_first {
            assert_eq!(failing(&tx, "SELECT v FROM missing"), ErrorKind::Invalid);
        }
        assert_eq!(ask(&tx, "SELECT v FROM a"), 10);
        if !is_first {
            assert_eq!(failing(&tx, "SELECT v FROM missing"), ErrorKind::Invalid);
            ask(&tx, "SELECT v FROM b");
        }
        lose_snapshot(&db);
        tx.execute("UPDATE b SET v = 1", ()).wait().unwrap();
        lose_snapshot(&db);
        tx.execute("UPDATE b SET v = 2", ()).wait().unwrap();
        write(&db, "UPDATE a SET v = 99");
        assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict, "{is_first}");
    }
}

#[test]
fn what_the_application_does_with_a_row_has_its_own_time_and_random_values() {
    let (_directory, _, db) = database(Options::new());
    let (_other_directory, _, other) = database(Options::new());
    write(&db, "INSERT INTO a VALUES (7, 7), (8, 8)");
    let tx = db.transaction().unwrap();
    let asked = other.clone();
    let drawn = "SELECT v, random() FROM a";
    let seen = tx.query_map(drawn, (), move |_| {
        thread::sleep(Duration::from_millis(20));
        let now = "SELECT unixepoch('subsec') * 1000 + 0 * random()";
        Ok(asked.read(move |tx| tx.query_row(now, (), |row| row.get::<_, f64>(0))).wait().unwrap())
    });
    let seen = seen.wait().unwrap();
    assert!(seen.is_sorted_by(|a, b| b - a > 15.0), "ms between rows: {seen:?}");
    // Somebody changes a neighbour of what it read, so it is asked again: with the same random
    // values.
    write(&db, "UPDATE a SET id = id + 0");
    tx.execute("UPDATE b SET v = 1", ()).wait().unwrap();
    tx.commit().wait().unwrap();
}

/// A value that the engine may drop, and must not die of.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("the drop of a value");
        }
    }
}

#[test]
fn a_value_whose_drop_panics_hurts_nobody() {
    let (_directory, _, db) = database(Options::new());
    for _ in 0..3 {
        let (rerun, neighbour, dropped) = as_one_batch(&db, || {
            let rerun = db.write(|tx| {
                tx.execute("UPDATE a SET v = v + 1", ())?;
                Ok::<_, Error>(Bomb)
            });
            let neighbour = db.write(|tx| {
                tx.execute("UPDATE b SET v = v + 1", ())?;
                Err::<(), _>(Error::aborted("never mind"))
            });
            let held = Bomb;
            let dropped = db.write(move |_| {
                let _ = &held;
                Ok::<_, Error>(Bomb)
            });
            (rerun, neighbour, dropped)
        });
        drop(dropped);
        assert_eq!(neighbour.wait().unwrap_err().kind(), ErrorKind::Aborted);
        std::mem::forget(rerun.wait().unwrap());
        // The payload of a panic is such a value, too.
        let panicking = db.write(|_| -> Result<(), Error> { std::panic::panic_any(Bomb) });
        drop(panicking);
        let mut read = Box::pin(db.read(|_| Ok::<_, Error>(Bomb)));
        std::mem::forget(crate::patience::poll_once(&mut read));
        drop(read);
    }
    write(&db, "UPDATE b SET v = 21");
    assert_eq!(one(&db, "SELECT v FROM a"), 13);
    db.close().unwrap();
}

/// SQLite reads the query of a view that is to be changed once for each connection, and dropping an
/// index that the query names does not make it forget. So the writer says "because it is a view",
/// another connection "no such index".
#[test]
fn which_of_two_errors_a_view_gives_is_no_conflict() {
    let (_directory, _, db) = database(Options::new());
    write(&db, "CREATE INDEX by_v ON a(v)");
    write(&db, "CREATE VIEW below AS SELECT v FROM a INDEXED BY by_v WHERE v > 0");
    let change = "DELETE FROM below WHERE v = 1";
    let by_writer = move |tx: &Tx<'_>| {
        tx.execute_batch("DROP INDEX IF EXISTS by_v")?;
        Ok::<_, Error>(tx.execute(change, ()).unwrap_err().to_string())
    };
    db.write(move |tx| Ok(tx.execute(change, ()).unwrap_err().to_string())).wait().unwrap();
    let said = db.write(by_writer).wait().unwrap();
    assert!(said.contains("because it is a view"), "{said}");
    let tx = db.transaction().unwrap();
    let said = tx.execute(change, ()).wait().unwrap_err().to_string();
    assert!(said.contains("no such index"), "{said}");
    tx.execute("UPDATE b SET v = v + 1", ()).wait().unwrap();
    tx.commit().wait().unwrap();
}

#[test]
fn statistics_that_pragma_optimize_makes_are_committed() {
    let (_directory, _, db) = database(Options::new());
    write(&db, "CREATE INDEX on_v ON a(v)");
    let tx = db.transaction().unwrap();
    tx.execute("PRAGMA optimize(0x10002)", ()).wait().unwrap();
    let made = "SELECT count(*) FROM sqlite_stat1 WHERE idx = 'on_v'";
    assert_eq!(ask(&tx, made), 1);
    tx.commit().wait().unwrap();
    assert_eq!(one(&db, made), 1);
}

#[test]
fn no_query_makes_statistics() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let (_directory, _, db) = database(Options::new().sharing(sharing));
        write(&db, "CREATE INDEX by_v ON a(v); ANALYZE; DELETE FROM sqlite_stat1");
        let tx = db.transaction().unwrap();
        for optimize in ["SELECT * FROM pragma_optimize", "SELECT 1 FROM Pragma_Optimize(0x10002)"]
        {
            let asked = tx.query_map(optimize, (), |_| Ok(())).wait().unwrap_err().to_string();
            let run = db.write(move |tx| tx.query_row(optimize, (), |_| Ok(())));
            let run = run.wait().unwrap_err().to_string();
            for said in [asked, run] {
                // Not every SQLite has that function.
                let has = said.contains("use the statement PRAGMA optimize");
                assert!(has || said.contains("no such table: pragma_optimize"), "{said}");
            }
        }
        assert_eq!(ask(&tx, "SELECT count(*) FROM sqlite_stat1"), 0);
        tx.commit().wait().unwrap();
    }
}

#[test]
fn a_change_is_committed_whatever_statements_a_virtual_table_prepares_beside_it() {
    let (_directory, _, db) = database(Options::new());
    for module in ["fts5(x)", "fts5(x, detail=none)", "fts4(x)", "rtree(x, low, high)"] {
        let create = format!("CREATE VIRTUAL TABLE f USING {module}");
        db.write(move |tx| tx.execute_batch(&create)).wait().unwrap();
        let insert = "INSERT INTO f(x) VALUES (NULL)";
        for number in 1..=9 {
            let tx = db.transaction().unwrap();
            if number % 3 == 0 {
                ask(&tx, "SELECT count(*) FROM f");
            }
            assert_eq!(tx.execute(insert, ()).wait().unwrap(), 1);
            if number % 2 == 0 {
                assert_eq!(tx.execute("ANALYZE", ()).wait().unwrap(), 0);
            }
            assert_eq!(ask(&tx, "SELECT count(*) FROM f"), number);
            assert_eq!(tx.last_insert_rowid().wait().unwrap(), number);
            tx.commit().wait().unwrap();
            assert_eq!(ask_writer(&db, "SELECT count(*) FROM f"), number, "{module}");
        }
        write(&db, "DROP TABLE f");
    }
}

#[test]
fn a_check_of_full_text_search_keeps_no_transaction_from_its_commit() {
    let (_directory, _, db) = database(Options::new());
    write(&db, "CREATE VIRTUAL TABLE f USING fts5(x)");
    let tx = db.transaction().unwrap();
    assert_eq!(ask(&tx, "SELECT count(*) FROM f"), 0);
    write(&db, "INSERT INTO f VALUES ('blue red')");
    tx.commit().wait().unwrap();
    for check in ["PRAGMA integrity_check", "PRAGMA quick_check(f)"] {
        let tx = db.transaction().unwrap();
        tx.execute("DELETE FROM a WHERE v < 0", ()).wait().unwrap();
        tx.query_map(check, (), |_| Ok(())).wait().unwrap();
        tx.commit().wait().unwrap();
    }
}
