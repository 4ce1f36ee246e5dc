//! The page check before the replay: which way a commit took, and that no change slips past it.

use monolite::{Database, ErrorKind, InteractiveOptions, Sharing, Transaction};

use super::{ADD, BALANCE, accounts, still};
use crate::patience::as_one_batch;

/// Commits that replayed their writes alone, and those that replayed everything.
fn ways(db: &Database) -> (u64, u64) {
    let stats = db.stats();
    (stats.transactions_unchanged, stats.transactions_replayed)
}

fn reader(db: &Database, sql: &str) -> Transaction {
    let tx = db.transaction().unwrap();
    tx.query_map(sql, (), |_| Ok(())).wait().unwrap();
    tx.execute("INSERT INTO entry(text) VALUES ('decided')", ()).wait().unwrap();
    tx
}

fn write(db: &Database, sql: &'static str) {
    db.write(move |tx| tx.execute_batch(sql)).wait().unwrap();
}

const ONE: &str = "SELECT balance FROM account WHERE id = 1";

#[test]
fn reads_of_unchanged_pages_are_not_done_again() {
    let (_directory, db) = accounts(still());
    let tx = reader(&db, ONE);
    tx.commit().wait().unwrap();
    assert_eq!(ways(&db), (1, 0));
    // Of another table, a change does no harm.
    let tx = reader(&db, ONE);
    write(&db, "CREATE TABLE other(x)");
    tx.commit().wait().unwrap();
    assert_eq!(ways(&db), (1, 1), "a change of the schema may change what every statement means");
    let tx = reader(&db, ONE);
    write(&db, "INSERT INTO other VALUES (1)");
    tx.commit().wait().unwrap();
    assert_eq!(ways(&db), (2, 1));
}

#[test]
fn reads_of_changed_pages_are_done_again() {
    let (_directory, db) = accounts(still());
    let tx = reader(&db, ONE);
    write(&db, "UPDATE account SET balance = 5 WHERE id = 2");
    tx.commit().wait().unwrap();
    assert_eq!(ways(&db), (0, 1), "the other row is on the same page");
    let tx = reader(&db, ONE);
    write(&db, "UPDATE account SET balance = 5 WHERE id = 1");
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn a_change_in_the_same_batch_is_noticed() {
    let (_directory, db) = accounts(still());
    let tx = reader(&db, ONE);
    let (write, commit) = as_one_batch(&db, || {
        let write = db.write(|tx| tx.execute(ADD, (1, 1)));
        (write, tx.commit())
    });
    write.wait().unwrap();
    assert_eq!(commit.wait().unwrap_err().kind(), ErrorKind::Conflict);
    let tx = reader(&db, ONE);
    let (write, commit) =
        as_one_batch(&db, || (db.write(|tx| tx.execute("CREATE TABLE x(y)", ())), tx.commit()));
    write.wait().unwrap();
    commit.wait().unwrap();
    assert_eq!(ways(&db), (0, 2));
}

#[test]
fn a_change_of_an_overflow_page_is_noticed() {
    let (_directory, db) = accounts(still());
    write(&db, "CREATE TABLE long(id INTEGER PRIMARY KEY, x BLOB)");
    write(&db, "INSERT INTO long VALUES (1, zeroblob(100000))");
    let last = "SELECT substr(x, 99999, 1) FROM long";
    reader(&db, last).commit().wait().unwrap();
    assert_eq!(ways(&db), (1, 0));
    let tx = reader(&db, last);
    db.write(|tx| -> monolite::Result<()> {
        let mut blob = tx.blob_open_mut("long", "x", 1)?;
        blob.write_at(b"!", 99_998)?;
        Ok(())
    })
    .wait()
    .unwrap();
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn what_is_read_behind_own_writes_is_always_done_again() {
    let (_directory, db) =
        accounts(still().interactive(InteractiveOptions::default().ids_given_out_ahead(false)));
    let behind = || {
        let tx = db.transaction().unwrap();
        tx.execute("INSERT INTO entry(text) VALUES ('first')", ()).wait().unwrap();
        tx.query_row(BALANCE, [1], |row| row.get::<_, i64>(0)).wait().unwrap();
        tx
    };
    behind().commit().wait().unwrap();
    assert_eq!(ways(&db), (0, 1));
    let tx = behind();
    write(&db, "UPDATE account SET balance = 5 WHERE id = 1");
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
    let tx = db.transaction().unwrap();
    tx.execute("INSERT INTO entry(text) VALUES ('first')", ()).wait().unwrap();
    tx.last_insert_rowid().wait().unwrap();
    write(&db, "INSERT INTO entry(text) VALUES ('faster')");
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn what_was_read_before_a_move_to_a_newer_snapshot_is_still_looked_at() {
    let (_directory, db) =
        accounts(still().interactive(InteractiveOptions::default().connections(1)));
    let tx = db.transaction().unwrap();
    tx.query_row(BALANCE, [1], |row| row.get::<_, i64>(0)).wait().unwrap();
    db.transaction().unwrap().query_row(BALANCE, [2], |_| Ok(())).wait().unwrap();
    tx.execute("INSERT INTO entry(text) VALUES ('x')", ()).wait().unwrap();
    assert_eq!(db.stats().transactions_resumed, 1);
    write(&db, "UPDATE account SET balance = 5 WHERE id = 1");
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn more_open_transactions_than_connections_have_their_pages_looked_at() {
    let (_directory, db) =
        accounts(still().interactive(InteractiveOptions::default().connections(1)));
    let _idle = db.transaction().unwrap();
    let tx = reader(&db, ONE);
    tx.execute("INSERT INTO entry(text) VALUES ('twice')", ()).wait().unwrap();
    tx.commit().wait().unwrap();
    assert_eq!((ways(&db), db.stats().transactions_resumed), ((1, 0), 2));
    let tx = reader(&db, ONE);
    write(&db, "UPDATE account SET balance = 5 WHERE id = 1");
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn what_hangs_on_more_than_pages_is_done_again() {
    let (_directory, db) = accounts(still());
    let tx = reader(&db, "SELECT * FROM pragma_user_version");
    write(&db, "PRAGMA user_version = 7");
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
    let tx = reader(&db, "SELECT * FROM pragma_user_version");
    tx.query_row(BALANCE, [1], |row| row.get::<_, i64>(0)).wait().unwrap();
    write(&db, "PRAGMA user_version = 8");
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
    write(&db, "CREATE VIRTUAL TABLE word USING fts5(x)");
    let found = "SELECT count(*) FROM word WHERE word MATCH 'apple'";
    let tx = reader(&db, found);
    write(&db, "INSERT INTO word VALUES ('an apple')");
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(ways(&db).0, 0);
}

const WORDS: &str = "
    CREATE VIRTUAL TABLE word USING fts5(x);
    CREATE VIEW apple AS SELECT rowid AS id FROM word WHERE word MATCH 'apple';
    CREATE TRIGGER worded AFTER INSERT ON entry BEGIN
        INSERT INTO word(rowid, x) VALUES (-new.id, new.text);
    END;";

#[test]
fn reads_of_full_text_search_are_done_again_by_whatever_way() {
    let (_directory, db) = accounts(still());
    write(&db, WORDS);
    for (number, found) in [
        "SELECT count(*) FROM word WHERE word MATCH 'apple'",
        "SELECT count(*) FROM apple",
        "SELECT balance FROM account WHERE id IN (SELECT id FROM apple)",
        "SELECT a.balance FROM account a JOIN (SELECT rowid AS id FROM word) USING (id)",
    ]
    .into_iter()
    .enumerate()
    {
        let replayed = ways(&db).1;
        reader(&db, found).commit().wait().unwrap();
        assert_eq!(ways(&db), (0, replayed + 1), "{found}");
        let tx = reader(&db, found);
        let apple = "INSERT INTO word(rowid, x) VALUES (?1, 'an apple')";
        db.write(move |tx| tx.execute(apple, [number as i64 + 1])).wait().unwrap();
        assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict, "{found}");
    }
    assert_eq!(ways(&db).0, 0);
}

#[test]
fn a_shared_database_replays_everything_and_keeps_its_promises() {
    let (_directory, db) = accounts(still().sharing(Sharing::Shared));
    let tx = reader(&db, ONE);
    write(&db, "UPDATE account SET balance = 5 WHERE id = 2");
    tx.commit().wait().unwrap();
    let tx = reader(&db, ONE);
    let own = "SELECT count(*) FROM entry";
    assert_eq!(tx.query_row(own, (), |row| row.get::<_, i64>(0)).wait().unwrap(), 2);
    write(&db, "UPDATE account SET balance = 5 WHERE id = 1");
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(ways(&db).0, 0);
    assert!(db.stats().statements_tried_in_writer > 0);
    let tx = reader(&db, ONE);
    tx.savepoint("s").wait().unwrap();
    tx.execute(ADD, (1, 1)).wait().unwrap();
    tx.rollback_to("s").wait().unwrap();
    tx.commit().wait().unwrap();
    assert_eq!(super::balance(&db, 1), 5);
}

#[test]
fn reads_beside_full_text_search_are_not_done_again() {
    let (_directory, db) = accounts(still());
    write(&db, WORDS);
    // What follows writes to the index of words, by a trigger, and is always done again.
    reader(&db, ONE).commit().wait().unwrap();
    assert_eq!(ways(&db), (1, 0));
    let tx = reader(&db, ONE);
    write(&db, "INSERT INTO word VALUES ('of others')");
    tx.commit().wait().unwrap();
    assert_eq!(ways(&db), (2, 0));
    let tx = reader(&db, ONE);
    write(&db, "UPDATE account SET balance = 5 WHERE id = 1");
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn what_full_text_search_writes_in_the_same_batch_is_noticed_by_its_pages() {
    let (_directory, db) = accounts(still());
    write(&db, WORDS);
    // The index itself is held back until the end of its member.
    for shadow in ["SELECT id, hex(block) FROM word_data", "SELECT c0 FROM word_content"] {
        reader(&db, shadow).commit().wait().unwrap();
        let tx = reader(&db, shadow);
        let (write, commit) = as_one_batch(&db, || {
            let write = db.write(|tx| tx.execute("INSERT INTO word VALUES ('a pear')", ()));
            (write, tx.commit())
        });
        write.wait().unwrap();
        assert_eq!(commit.wait().unwrap_err().kind(), ErrorKind::Conflict, "{shadow}");
    }
    assert_eq!(ways(&db).0, 2);
}

#[test]
fn a_statement_that_is_found_again_still_has_full_text_search_write_for_its_own_member() {
    let (_directory, db) = accounts(still());
    write(&db, WORDS);
    let insert = "INSERT INTO word VALUES ('a plum')";
    let cached = move |tx: &monolite::Tx<'_>| {
        Ok::<_, monolite::Error>(tx.prepare_cached(insert)?.execute(())?)
    };
    let kept = move |tx: &monolite::Tx<'_>| tx.execute(insert, ());
    db.write(cached).wait().unwrap();
    db.write(kept).wait().unwrap();
    for is_cached in [true, false] {
        let shadow = "SELECT id, hex(block) FROM word_data";
        let tx = reader(&db, shadow);
        let (write, commit) = as_one_batch(&db, || {
            let write = if is_cached { db.write(cached) } else { db.write(kept) };
            (write, tx.commit())
        });
        write.wait().unwrap();
        assert_eq!(commit.wait().unwrap_err().kind(), ErrorKind::Conflict, "{is_cached}");
    }
}
