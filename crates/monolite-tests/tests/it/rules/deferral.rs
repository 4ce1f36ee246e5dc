//! `PRAGMA defer_foreign_keys`: it lasts as long as the transaction that says it, and is nobody
//! else's.

use monolite::{Database, Error, ErrorKind, Options, Sharing, Tx};

use crate::patience::as_one_batch;

const DEFER: &str = "PRAGMA defer_foreign_keys = ON";
const KID: &str = "INSERT INTO kid VALUES (?1, ?2)";
const PARENT: &str = "INSERT INTO parent VALUES (?1)";

const SCHEMA: &str = "CREATE TABLE parent(id INTEGER PRIMARY KEY) STRICT;
     CREATE TABLE kid(id INTEGER PRIMARY KEY, parent INTEGER NOT NULL
         REFERENCES parent(id) ON DELETE RESTRICT) STRICT;";

fn create(db: &Database) {
    db.write(|tx| tx.execute_batch(SCHEMA)).wait().unwrap();
}

fn database() -> Database {
    let db = Database::open(":memory:").unwrap();
    create(&db);
    db
}

fn kids(db: &Database) -> Vec<i64> {
    let sql = "SELECT id FROM kid ORDER BY id";
    db.read(|tx| tx.query_map(sql, (), |row| row.get(0))).wait().unwrap()
}

/// Children first, which only a deferred check allows.
fn children_first(tx: &Tx<'_>, id: i64) -> Result<(), Error> {
    tx.execute(DEFER, ())?;
    tx.execute(KID, (id, id))?;
    tx.execute(PARENT, [id])?;
    Ok(())
}

/// A child whose parent never comes, as the latest of `id`.
fn orphan(tx: &Tx<'_>, id: i64) -> Result<(), Error> {
    tx.execute_batch("SELECT 1; PRAGMA Defer_Foreign_Keys(yes);")?;
    tx.execute(KID, (id, -id)).map(drop)
}

/// What a transaction that has deferred nothing is told of a child without its parent.
fn refused(tx: &Tx<'_>, id: i64) -> Result<String, Error> {
    let asked: i64 = tx.query_row("PRAGMA defer_foreign_keys", (), |row| row.get(0))?;
    let error = tx.execute(KID, (id, -id)).unwrap_err();
    Ok(format!("{asked} {:?} {}", error.kind(), error.is_foreign_key_violation()))
}

const REFUSED: &str = "0 Constraint true";

#[test]
fn what_is_deferred_is_checked_at_the_end_and_only_for_who_has_deferred_it() {
    let db = database();
    for round in [100, 200] {
        let (first, mended, before, violating, between, once, after, failing, last) =
            as_one_batch(&db, || {
                (
                    db.write(move |tx| tx.execute(PARENT, [round]).map(drop)),
                    db.write(move |tx| children_first(tx, round + 1)),
                    db.write(move |tx| refused(tx, round + 2)),
                    db.write(move |tx| orphan(tx, round + 3)),
                    db.write(move |tx| refused(tx, round + 4)),
                    db.write_once(move |tx| children_first(tx, round + 5)),
                    db.write(move |tx| refused(tx, round + 6)),
                    db.write(move |tx| {
                        children_first(tx, round + 7)?;
                        orphan(tx, round + 8)?;
                        Err::<(), _>(Error::aborted("on purpose"))
                    }),
                    db.write(move |tx| refused(tx, round + 9)),
                )
            });
        first.wait().unwrap();
        mended.wait().unwrap();
        once.wait().unwrap();
        for other in [before, between, after, last] {
            assert_eq!(other.wait().unwrap(), REFUSED);
        }
        let error = violating.wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Constraint, "{error}");
        assert!(error.is_foreign_key_violation(), "{error}");
        assert!(error.to_string().contains("kid refers to rows that are not in parent"), "{error}");
        assert_eq!(failing.wait().unwrap_err().kind(), ErrorKind::Aborted);
        let once = db.write_once(move |tx| orphan(tx, round + 10)).wait().unwrap_err();
        assert!(once.is_foreign_key_violation(), "{once}");
    }
    assert_eq!(kids(&db), [101, 105, 201, 205]);
}

#[test]
fn interactive_transactions_defer_what_their_commit_checks() {
    let directory = tempfile::tempdir().unwrap();
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let path = directory.path().join(format!("{sharing:?}"));
        let db = Options::new().sharing(sharing).open(path).unwrap();
        create(&db);
        let asks = "PRAGMA defer_foreign_keys";
        let tx = db.transaction().unwrap();
        let kids_seen = tx.query_row("SELECT count(*) FROM kid", (), |row| row.get::<_, i64>(0));
        assert_eq!(kids_seen.wait().unwrap(), 0);
        tx.execute(DEFER, ()).wait().unwrap();
        tx.execute(KID, (1, 1)).wait().unwrap();
        // It is replayed on another snapshot, with the deferral.
        db.write(|tx| tx.execute(PARENT, [7])).wait().unwrap();
        let other = db.transaction().unwrap();
        let refused = other.execute(KID, (2, -2)).wait().unwrap_err();
        assert!(refused.is_foreign_key_violation(), "{refused}");
        tx.execute(KID, (2, 1)).wait().unwrap();
        let on = tx.query_row(asks, (), |row| row.get::<_, i64>(0)).wait().unwrap();
        let off = other.query_row(asks, (), |row| row.get::<_, i64>(0)).wait().unwrap();
        assert_eq!((on, off), (1, 0), "{sharing:?}");
        tx.execute(PARENT, [1]).wait().unwrap();
        tx.commit().wait().unwrap();
        other.rollback();

        let violating = db.transaction().unwrap();
        violating.execute_batch(DEFER).wait().unwrap();
        violating.execute("DELETE FROM parent", ()).wait().unwrap();
        let error = violating.commit().wait().unwrap_err();
        assert!(error.is_foreign_key_violation(), "{sharing:?}: {error}");

        let transacted = db.transact(async |tx| {
            tx.execute(DEFER, ()).wait()?;
            let seen = "SELECT max(id) FROM parent";
            let last: i64 = tx.query_row(seen, (), |row| row.get(0)).wait()?;
            if tx.attempt() == 1 {
                db.write(|tx| tx.execute(PARENT, [8])).wait()?;
            }
            tx.execute(KID, (3, last + 1)).wait()?;
            tx.execute(PARENT, [last + 1]).wait()?;
            Ok::<_, Error>(tx.attempt())
        });
        assert_eq!(transacted.wait().unwrap(), 2, "{sharing:?}");
        assert_eq!(kids(&db), [1, 2, 3]);
        db.close().unwrap();
    }
}

/// What SQLite has prepared while keys were deferred opens no transaction for one statement, so it
/// would leave its row behind.
#[test]
fn a_kept_statement_of_the_deferral_leaves_nothing_behind_when_it_fails_later() {
    let db = database();
    let swallowing = |tx: &Tx<'_>| refused(tx, 2);
    let (deferring, swallowed) =
        as_one_batch(&db, || (db.write(|tx| children_first(tx, 1)), db.write(swallowing)));
    deferring.wait().unwrap();
    assert_eq!(swallowed.wait().unwrap(), REFUSED);
    assert_eq!(db.write(swallowing).wait().unwrap(), REFUSED);
    // Behind one that rolled everything back, too.
    let lost = db.write(|tx| {
        children_first(tx, 3)?;
        tx.execute("INSERT OR ROLLBACK INTO parent VALUES (3)", ())
    });
    lost.wait().unwrap_err();
    assert_eq!(db.write(swallowing).wait().unwrap(), REFUSED);
    assert_eq!(kids(&db), [1]);
    // The same on the connections of interactive transactions, which are rolled back.
    for round in 10..14 {
        let tx = db.transaction().unwrap();
        tx.execute(DEFER, ()).wait().unwrap();
        tx.execute(KID, (round, round)).wait().unwrap();
        tx.rollback();
        let tx = db.transaction().unwrap();
        tx.execute(KID, (round, -round)).wait().unwrap_err();
        tx.execute(PARENT, [round]).wait().unwrap();
        tx.commit().wait().unwrap();
    }
    assert_eq!(kids(&db), [1]);
    db.close().unwrap();
}
