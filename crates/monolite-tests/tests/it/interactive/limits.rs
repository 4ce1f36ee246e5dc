//! The bounds of interactive transactions, each with its own clear error.

use monolite::{Database, Error, ErrorKind, InteractiveOptions, Options, Sharing, Transaction};

use super::{ADD, BALANCE, accounts, balance};
use crate::patience::eventually;

#[test]
fn no_more_are_open_than_may_be() {
    let (_directory, db) =
        accounts(Options::new().interactive(InteractiveOptions::default().max_open(2)));
    let one = db.transaction().unwrap();
    let _two = db.transaction().unwrap();
    let error = db.transaction().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert!(error.to_string().contains("InteractiveOptions::max_open"), "{error}");
    drop(one);
    db.transaction().unwrap();
}

#[test]
fn no_more_bytes_are_remembered_than_may_be() {
    let (_directory, db) =
        accounts(Options::new().interactive(InteractiveOptions::default().max_bytes(100_000)));
    let tx = db.transaction().unwrap();
    let insert = "INSERT INTO entry(text) VALUES (?1)";
    tx.execute(insert, ["x".repeat(60_000)]).wait().unwrap();
    let error = tx.execute(insert, ["x".repeat(60_000)]).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("InteractiveOptions::max_bytes"), "{error}");
    tx.commit().wait().unwrap();
}

#[test]
fn no_more_bytes_are_remembered_of_all_transactions_together_than_may_be() {
    let interactive = InteractiveOptions::default().max_total_bytes(100_000);
    let (_directory, db) = accounts(Options::new().interactive(interactive));
    let insert = "INSERT INTO entry(text) VALUES (?1)";
    let add = |tx: &Transaction| tx.execute(insert, ["x".repeat(40_000)]).wait();
    for ends in [Transaction::rollback, |tx: Transaction| drop(tx.commit().wait().unwrap())] {
        let (one, two) = (db.transaction().unwrap(), db.transaction().unwrap());
        add(&one).unwrap();
        add(&two).unwrap();
        let three = db.transaction().unwrap();
        let error = add(&three).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Overloaded);
        assert!(error.to_string().contains("InteractiveOptions::max_total_bytes"), "{error}");
        assert_eq!(three.commit().wait().unwrap_err().kind(), ErrorKind::Overloaded);
        ends(one);
        let again = || add(&db.transaction().unwrap()).is_ok();
        eventually("what is over is freed", again);
        let error = tx_of_two(&db, insert).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Overloaded);
        ends(two);
    }
    eventually("all is freed", || tx_of_two(&db, insert).is_ok());
}

#[test]
fn one_statement_is_counted_before_it_runs_and_without_its_result() {
    let interactive = InteractiveOptions::default().max_total_bytes(100_000);
    let (_directory, db) = accounts(Options::new().interactive(interactive));
    let insert = "INSERT INTO entry(text) VALUES (?1)";
    let tx = db.transaction().unwrap();
    let result = tx.query_row("SELECT zeroblob(1000000)", (), |row| row.get::<_, Vec<u8>>(0));
    assert_eq!(result.wait().unwrap().len(), 1_000_000);
    tx.execute(insert, ["x".repeat(90_000)]).wait().unwrap();
    tx.commit().wait().unwrap();
    let tx = db.transaction().unwrap();
    let error = tx.execute(insert, ["x".repeat(100_001)]).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded, "alone, too");
}

/// Runs `insert` twice with 40,000 bytes and commits.
fn tx_of_two(db: &Database, insert: &str) -> Result<(), Error> {
    let tx = db.transaction()?;
    for _ in 0..2 {
        tx.execute(insert, ["x".repeat(40_000)]).wait()?;
    }
    tx.commit().wait().map(drop)
}

#[test]
fn a_change_whose_result_is_too_large_is_not_committed() {
    let (_directory, db) =
        accounts(Options::new().interactive(InteractiveOptions::default().max_bytes(100_000)));
    let tx = db.transaction().unwrap();
    tx.execute(ADD, (1, 1)).wait().unwrap();
    let much = "UPDATE account SET balance = 7 WHERE id = 1 RETURNING zeroblob(200000)";
    let error = tx.query_map(much, (), |row| row.get::<_, Vec<u8>>(0)).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("rolled back"), "{error}");
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(balance(&db, 1), 100);
}

#[test]
fn a_handle_that_only_reads_changes_nothing_and_its_transactions_go_on() {
    let directory = tempfile::tempdir().unwrap();
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let db = Options::new().sharing(sharing).open(directory.path().join("db")).unwrap();
        let schema = "CREATE TABLE IF NOT EXISTS t(x); INSERT INTO t VALUES (1)";
        db.write(|tx| tx.execute_batch(schema)).wait().unwrap();
        let sum = "SELECT sum(x) FROM t";
        let before: i64 = db.read(|tx| tx.query_row(sum, (), |row| row.get(0))).wait().unwrap();
        // Also of what is made of it.
        for reads in [db.read_only(), db.read_only().with_principal(7)] {
            let refused = |error: Error| {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{sharing:?}: {error}");
                assert!(error.to_string().contains("Database::read_only"), "{sharing:?}: {error}");
            };
            refused(reads.write(|tx| tx.execute("DELETE FROM t", ())).wait().unwrap_err());
            refused(reads.try_write(|tx| tx.execute("DELETE FROM t", ())).map(drop).unwrap_err());
            refused(reads.vacuum().wait().unwrap_err());
            let tx = reads.transaction().unwrap();
            for sql in ["INSERT INTO t VALUES (2)", "CREATE TABLE u(x)", "DROP TABLE IF EXISTS u"] {
                refused(tx.execute(sql, ()).wait().unwrap_err());
                refused(tx.run(sql, (), (), |(), _| Ok(())).wait().unwrap_err());
            }
            let returning = "UPDATE t SET x = 2 RETURNING x";
            refused(tx.query_row(returning, (), |_| Ok(())).wait().unwrap_err());
            refused(tx.execute_batch("DELETE FROM t").wait().unwrap_err());
            refused(tx.savepoint("s").wait().unwrap_err());
            let seen: i64 = tx.query_row(sum, (), |row| row.get(0)).wait().unwrap();
            assert_eq!(seen, before);
            tx.commit().wait().unwrap();
            refused(reads.transaction().unwrap().commit_once("key", "").wait().unwrap_err());
        }
        db.close().unwrap();
    }
}

/// The writer waited inside of SQLite, for five seconds each time the WAL was to restart, until
/// a resting transaction would let go of its snapshot.
#[test]
fn a_resting_transaction_of_a_shared_database_holds_no_writer_up() {
    let options = Options::new().sharing(Sharing::Shared).wal_limit_bytes(8 << 20);
    let (_directory, db) = accounts(options);
    db.write(|tx| tx.execute_batch("CREATE TABLE large(body BLOB)")).wait().unwrap();
    let tx = db.transaction().unwrap();
    for _ in 0..40 {
        tx.query_row(BALANCE, [1], |row| row.get::<_, i64>(0)).wait().unwrap();
        db.write(|tx| tx.execute("INSERT INTO large VALUES (zeroblob(500000))", ()))
            .wait()
            .unwrap();
    }
    assert!(db.stats().checkpoints_completed > 0);
    let pause = db.stats().writer_pause_seconds.quantile(1.0);
    assert!(pause < 4.0, "{pause} s");
}
