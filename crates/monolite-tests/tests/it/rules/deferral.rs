//! `PRAGMA defer_foreign_keys`: it lasts as long as the transaction that says it, and is nobody
//! else's.

use monolite::{Database, Error, ErrorKind, Options, ReadTx, Sharing, Tx, rusqlite};

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

/// SQLite itself leaves the row behind: what it has prepared while keys were deferred opens no
/// transaction for one statement.
#[test]
fn a_kept_statement_of_the_deferral_leaves_nothing_behind_when_it_fails_later() {
    let plain = rusqlite::Connection::open_in_memory().unwrap();
    plain.execute_batch(&format!("PRAGMA foreign_keys = ON; {SCHEMA} BEGIN; {DEFER}")).unwrap();
    let mut kept = plain.prepare(KID).unwrap();
    kept.execute((1, 1)).unwrap();
    plain.execute("INSERT INTO parent VALUES (1)", ()).unwrap();
    plain.execute_batch("COMMIT; BEGIN").unwrap();
    kept.execute((2, -2)).unwrap_err();
    plain.execute_batch("COMMIT").unwrap();
    let left = |sql: &str| plain.query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap();
    if left("SELECT count(*) FROM kid WHERE parent < 0") == 0 {
        eprintln!("this SQLite has mended it");
    }
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

/// SQLite obeys it when it prepares it, so that explaining it is saying it.
#[test]
fn an_explained_deferral_is_said_again_at_commit() {
    for (first, explain) in [(1, "EXPLAIN "), (10, "EXPLAIN QUERY PLAN ")] {
        let explained = format!("{explain}{DEFER}");
        let db = database();
        for id in first..first + 3 {
            let tx = db.transaction().unwrap();
            tx.query_map(explained.as_str(), (), |_| Ok(())).wait().unwrap();
            tx.execute(KID, (id, id)).wait().unwrap();
            // It is replayed on another snapshot.
            db.write(move |tx| tx.execute(PARENT, [id + 100])).wait().unwrap();
            let seen = tx.query_row("SELECT count(*) FROM kid", (), |row| row.get::<_, i64>(0));
            assert_eq!(seen.wait().unwrap(), id - first + 1);
            tx.execute(PARENT, [id]).wait().unwrap();
            tx.commit().wait().unwrap_or_else(|error| panic!("{explained}: {error}"));
        }
        assert_eq!(kids(&db), [first, first + 1, first + 2]);
        db.close().unwrap();
    }
}

#[test]
fn a_read_and_a_savepoint_may_say_it_and_it_ends_with_the_transaction() {
    let db = database();
    let asks = "PRAGMA defer_foreign_keys";
    let ask = |tx: &ReadTx<'_>| tx.query_row(asks, (), |row| row.get::<_, i64>(0));
    let said = db.read(move |tx| {
        tx.prepare(DEFER)?.execute(())?;
        ask(tx)
    });
    assert_eq!(said.wait().unwrap(), 1);
    for _ in 0..20 {
        assert_eq!(db.read(ask).wait().unwrap(), 0);
    }
    let in_savepoint = db.write(|tx| {
        let undone = tx.savepoint(|tx| {
            orphan(tx, 1)?;
            Err::<(), _>(Error::aborted("undone"))
        });
        assert!(undone.is_err());
        // As in SQLite, undoing it does not end the deferral.
        tx.savepoint(|tx| tx.execute(KID, (2, 2)))?;
        tx.execute(PARENT, [2])
    });
    in_savepoint.wait().unwrap();
    assert_eq!(db.write(|tx| refused(tx, 3)).wait().unwrap(), REFUSED);
    assert_eq!(kids(&db), [2]);
}

/// The same steps give the same answers on plain SQLite, and the same content.
#[test]
fn it_does_what_plain_sqlite_does() {
    let scripts: &[(&[&str], bool)] = &[
        (&["INSERT INTO kid VALUES (1, 1)", "INSERT INTO parent VALUES (1)"], true),
        (&["INSERT INTO kid VALUES (2, 2)"], false),
        (&["DELETE FROM parent WHERE id = 1"], false),
        (&["DELETE FROM parent WHERE id = 1", "DELETE FROM kid WHERE parent = 1"], true),
        (&["INSERT INTO kid VALUES (3, 3), (4, 4)", "DELETE FROM kid WHERE id = 3"], false),
        (&["INSERT INTO kid VALUES (5, 5)", "UPDATE kid SET parent = 6 WHERE id = 5"], false),
        (&["INSERT INTO parent VALUES (6)", "UPDATE parent SET id = 7 WHERE id = 6"], true),
        (
            &[
                "DROP TABLE parent",
                "CREATE TABLE parent(id INTEGER PRIMARY KEY) STRICT",
                "INSERT INTO parent VALUES (7)",
                "INSERT INTO kid VALUES (8, 7)",
            ],
            true,
        ),
    ];
    let db = database();
    let plain = rusqlite::Connection::open_in_memory().unwrap();
    plain.execute_batch(&format!("PRAGMA foreign_keys = ON; {SCHEMA}")).unwrap();
    for (script, commits) in scripts {
        plain.execute_batch(&format!("BEGIN; {DEFER}")).unwrap();
        let wanted: Vec<_> = script.iter().map(|sql| plain.execute(sql, ()).is_ok()).collect();
        let committed = plain.execute_batch("COMMIT").is_ok();
        if !committed {
            plain.execute_batch("ROLLBACK").unwrap();
        }
        assert_eq!(committed, *commits, "{script:?}");
        let run = move |tx: &Tx<'_>| {
            tx.execute(DEFER, ())?;
            Ok(script.iter().map(|sql| tx.execute(sql, ()).is_ok()).collect::<Vec<_>>())
        };
        match db.write(run).wait() {
            Ok(answers) => assert_eq!((answers, committed), (wanted, true), "{script:?}"),
            Err(error) => assert!(!committed && error.is_foreign_key_violation(), "{error}"),
        }
        let mut ours = plain.prepare("SELECT id FROM kid ORDER BY id").unwrap();
        let theirs: Vec<i64> = ours.query_map((), |row| row.get(0)).unwrap().flatten().collect();
        assert_eq!(kids(&db), theirs, "{script:?}");
    }
}
