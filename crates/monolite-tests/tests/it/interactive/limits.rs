//! The bounds of interactive transactions, each with its own clear error.

use monolite::{ErrorKind, InteractiveOptions, Options, Sharing};

use super::{ADD, BALANCE, accounts, balance};

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
