//! The anomalies by name: what a weaker isolation would allow is refused, and what harms nobody is
//! not.

use monolite::{Database, Error, ErrorKind, InteractiveOptions, Transaction};

use super::{ADD, BALANCE, SET, accounts, balance, still};

fn read(tx: &Transaction, id: i64) -> i64 {
    tx.query_row(BALANCE, [id], |row| row.get(0)).wait().unwrap()
}

fn conflicts(tx: Transaction) {
    let error = tx.commit().wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

fn write(db: &Database, sql: &'static str) {
    db.write(move |tx| tx.execute(sql, ())).wait().unwrap();
}

#[test]
fn a_lost_update_is_refused() {
    let (_directory, db) = accounts(still());
    let (one, two) = (db.transaction().unwrap(), db.transaction().unwrap());
    let (a, b) = (read(&one, 1), read(&two, 1));
    one.execute(SET, (1, a + 1)).wait().unwrap();
    two.execute(SET, (1, b + 1)).wait().unwrap();
    one.commit().wait().unwrap();
    conflicts(two);
    assert_eq!(balance(&db, 1), 101);
}

#[test]
fn write_skew_is_refused() {
    let (_directory, db) = accounts(still());
    let (one, two) = (db.transaction().unwrap(), db.transaction().unwrap());
    // Each leaves one of the two accounts alone, as long as both together hold enough.
    assert_eq!(read(&one, 1) + read(&one, 2), 200);
    assert_eq!(read(&two, 1) + read(&two, 2), 200);
    one.execute(ADD, (1, -100)).wait().unwrap();
    two.execute(ADD, (2, -100)).wait().unwrap();
    one.commit().wait().unwrap();
    conflicts(two);
    assert_eq!(balance(&db, 1) + balance(&db, 2), 100);
}

#[test]
fn a_phantom_is_refused() {
    let (_directory, db) = accounts(still());
    let (one, two) = (db.transaction().unwrap(), db.transaction().unwrap());
    let none = "SELECT count(*) FROM entry WHERE text = 'taken'";
    for tx in [&one, &two] {
        assert_eq!(tx.query_row(none, (), |row| row.get::<_, i64>(0)).wait().unwrap(), 0);
        tx.execute("INSERT INTO entry(text) VALUES ('taken')", ()).wait().unwrap();
    }
    one.commit().wait().unwrap();
    conflicts(two);
}

/// What a transaction asks or changes, and another write that gives it another answer.
const ANSWERS: [(&str, &str); 6] = [
    ("SELECT id FROM account WHERE id > 1000", "INSERT INTO account VALUES (2000, 1)"),
    ("SELECT max(id) FROM account", "INSERT INTO account VALUES (11, 1)"),
    (
        "UPDATE account SET balance = balance - 1 WHERE balance >= 100",
        "UPDATE account SET balance = 1 WHERE id = 1",
    ),
    ("INSERT INTO account VALUES (1, 0)", "DELETE FROM account WHERE id = 1"),
    (
        "SELECT * FROM account WHERE id = 1",
        "ALTER TABLE account ADD COLUMN note TEXT DEFAULT 'new'",
    ),
    ("UPDATE entry SET text = 'x'", "DROP TABLE entry"),
];

#[test]
fn an_answer_that_would_be_another_by_now_is_a_conflict() {
    for (asked, meanwhile) in ANSWERS {
        let (_directory, db) = accounts(still());
        let tx = db.transaction().unwrap();
        if asked.starts_with("SELECT") {
            tx.query_map(asked, (), |_| Ok(())).wait().unwrap();
        } else {
            let _ = tx.execute(asked, ()).wait();
        }
        tx.execute(ADD, (2, 1)).wait().unwrap();
        write(&db, meanwhile);
        let error = tx.commit().wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{asked}: {error}");
        assert_eq!(balance(&db, 2), 100, "{asked}");
    }
}

#[test]
fn two_reads_of_one_transaction_never_disagree() {
    let (_directory, db) = accounts(still());
    let tx = db.transaction().unwrap();
    assert_eq!(read(&tx, 1), 100);
    db.write(|tx| {
        tx.execute_batch(
            "UPDATE account SET balance = balance - 50 WHERE id = 1;
             UPDATE account SET balance = balance + 50 WHERE id = 2",
        )
    })
    .wait()
    .unwrap();
    // On its snapshot the money is still where it was; a newer one would be a conflict.
    assert_eq!(read(&tx, 2), 100);
}

#[test]
fn a_moved_transaction_learns_of_its_conflict_at_the_next_statement() {
    let (_directory, db) =
        accounts(still().interactive(InteractiveOptions::default().connections(1)));
    let tx = db.transaction().unwrap();
    assert_eq!(read(&tx, 1), 100);
    write(&db, "UPDATE account SET balance = 7 WHERE id = 1");
    let other = db.transaction().unwrap();
    assert_eq!(read(&other, 1), 7);
    let error = tx.query_row(BALANCE, [2], |row| row.get::<_, i64>(0)).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    conflicts(tx);
}

#[test]
fn blind_updates_of_one_row_never_conflict() {
    let (_directory, db) = accounts(still());
    let open: Vec<_> = (0..10).map(|_| db.transaction().unwrap()).collect();
    open.iter().for_each(|tx| assert_eq!(tx.execute(ADD, (1, -1)).wait().unwrap(), 1));
    open.into_iter().for_each(|tx| drop(tx.commit().wait().unwrap()));
    assert_eq!(balance(&db, 1), 90);
    assert_eq!(db.stats().transaction_conflicts, 0);
}

#[test]
fn a_value_that_came_back_is_no_conflict() {
    let (_directory, db) = accounts(still());
    let tx = db.transaction().unwrap();
    assert_eq!(read(&tx, 1), 100);
    tx.execute(ADD, (2, 1)).wait().unwrap();
    write(&db, "UPDATE account SET balance = 0 WHERE id = 1");
    write(&db, "UPDATE account SET balance = 100 WHERE id = 1");
    tx.commit().wait().unwrap();
}

#[test]
fn appends_conflict_only_where_the_rowid_was_seen_that_sqlite_chose() {
    let (_directory, db) =
        accounts(still().interactive(InteractiveOptions::default().ids_given_out_ahead(false)));
    let insert = "INSERT INTO entry(text) VALUES ('x')";
    let (one, two) = (db.transaction().unwrap(), db.transaction().unwrap());
    one.execute(insert, ()).wait().unwrap();
    two.execute(insert, ()).wait().unwrap();
    one.commit().wait().unwrap();
    two.commit().wait().unwrap();
    let (one, two, three) =
        (db.transaction().unwrap(), db.transaction().unwrap(), db.transaction().unwrap());
    let returning = "INSERT INTO entry(text) VALUES ('x') RETURNING id";
    for tx in [&one, &two] {
        assert_eq!(tx.query_row(returning, (), |row| row.get::<_, i64>(0)).wait().unwrap(), 3);
    }
    three.execute(insert, ()).wait().unwrap();
    assert_eq!(three.last_insert_rowid().wait().unwrap(), 3);
    one.commit().wait().unwrap();
    conflicts(two);
    conflicts(three);
}

#[test]
fn without_validation_a_lost_update_happens() {
    let (_directory, db) = accounts(still().without_validation());
    let (one, two) = (db.transaction().unwrap(), db.transaction().unwrap());
    let (a, b) = (read(&one, 1), read(&two, 1));
    one.execute(SET, (1, a + 1)).wait().unwrap();
    two.execute(SET, (1, b + 1)).wait().unwrap();
    one.commit().wait().unwrap();
    two.commit().wait().unwrap();
    assert_eq!(balance(&db, 1), 101, "both had read 100, so one of the two is lost");
}

#[test]
fn a_closure_that_conflicts_is_run_again() {
    let (_directory, db) = accounts(still());
    let result: Result<(i64, u32), Error> = db
        .transact(async |tx| {
            let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
            if tx.attempt() == 1 {
                write(&db, "UPDATE account SET balance = 7 WHERE id = 1");
            }
            tx.execute(SET, (1, seen + 1)).wait()?;
            Ok((seen, tx.attempt()))
        })
        .wait();
    assert_eq!((result.unwrap(), balance(&db, 1)), ((7, 2), 8));
    let stats = db.stats();
    assert_eq!((stats.transaction_conflicts, stats.transaction_retries), (1, 1));
}
