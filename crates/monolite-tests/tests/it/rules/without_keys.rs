//! The handle without foreign keys: its transactions rebuild tables that others reference, and all
//! other transactions have their foreign keys meanwhile.

use std::thread;

use monolite::{
    Database, Error, ErrorKind, InteractiveOptions, Options, ReadTx, Sharing, Transaction, Tx,
};

use crate::patience::{as_one_batch, one};

/// What a write does.
type Body = fn(&Tx<'_>) -> Result<(), Error>;

/// A way to write.
type Way = fn(&Database, Body) -> Result<(), Error>;

const ASK: &str = "PRAGMA foreign_keys";

/// `keyed` and `kept` are the tables of the others.
const SCHEMA: &str = "CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT);
     CREATE TABLE posts(id INTEGER PRIMARY KEY, u REFERENCES users ON DELETE CASCADE);
     INSERT INTO users VALUES (1, 'a'), (2, 'b'); INSERT INTO posts VALUES (1, 1), (2, 2);
     CREATE TABLE keyed(id INTEGER PRIMARY KEY);
     CREATE TABLE kept(id INTEGER PRIMARY KEY, k REFERENCES keyed ON DELETE CASCADE);
     INSERT INTO keyed SELECT value FROM generate_series(1, 1000);
     INSERT INTO kept SELECT id, id FROM keyed;";

const REBUILD: [&str; 5] = [
    "CREATE TABLE \"new\"(id INTEGER PRIMARY KEY, name TEXT NOT NULL)",
    "INSERT INTO \"new\" SELECT id, name FROM users",
    "DROP TABLE users",
    "ALTER TABLE \"new\" RENAME TO users",
    "INSERT INTO posts VALUES (9, 99)",
];

fn open(options: Options) -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let db = options.open(directory.path().join("db")).unwrap();
    db.write(|tx| tx.execute_batch(SCHEMA)).wait().unwrap();
    (directory, db)
}

fn database() -> (tempfile::TempDir, Database) {
    open(Options::new())
}

fn asked(tx: &ReadTx<'_>) -> Result<i64, Error> {
    tx.query_row(ASK, (), |row| row.get(0))
}

fn ask(tx: &Transaction, sql: &str) -> i64 {
    tx.query_row(sql, (), |row| row.get(0)).wait().unwrap()
}

/// That `REBUILD` was committed as it was to be, and that foreign keys act in `db` again.
fn assert_rebuilt(db: &Database) {
    let strict = "SELECT count(*) FROM pragma_table_info('users') WHERE \"notnull\"";
    assert_eq!(one(db, strict), 1);
    assert_eq!(
        (one(db, "SELECT count(*) FROM users"), one(db, "SELECT count(*) FROM posts")),
        (2, 3)
    );
    assert_eq!(one(db, "SELECT rowid FROM pragma_foreign_key_check"), 9);
    assert_eq!(db.write(|tx| asked(tx)).wait().unwrap(), 1);
    db.write(|tx| tx.execute("DELETE FROM users WHERE id = 1", ())).wait().unwrap();
    assert_eq!(one(db, "SELECT count(*) FROM posts"), 2);
}

/// What is refused, and what acts, in a transaction of another handle that uses up number `id`.
fn assert_has_keys(tx: &Transaction, id: i64) {
    assert_eq!(ask(tx, ASK), 1);
    let orphan = tx.execute("INSERT INTO kept VALUES (?1, -1)", [2_000 + id]).wait();
    assert!(orphan.unwrap_err().is_foreign_key_violation());
    let before = ask(tx, "SELECT count(*) FROM kept");
    tx.execute("DELETE FROM keyed WHERE id = ?1", [id]).wait().unwrap();
    assert_eq!(ask(tx, "SELECT count(*) FROM kept"), before - 1);
}

#[test]
fn a_write_rebuilds_a_table_and_children_stay() {
    let rebuild = |tx: &Tx<'_>| {
        assert_eq!(asked(tx)?, 0);
        REBUILD.iter().try_for_each(|sql| tx.execute(sql, ()).map(drop))
    };
    let ways: [Way; 3] = [
        |db, body| db.write(body).wait(),
        |db, body| db.write_once(body).wait(),
        |db, body| db.try_write(body)?.wait(),
    ];
    for way in ways {
        let (_directory, db) = database();
        way(&db.without_foreign_keys(), rebuild).unwrap();
        assert_rebuilt(&db);
    }
    // One that fails is undone.
    let (_directory, db) = database();
    let failed = db.without_foreign_keys().write(move |tx| {
        rebuild(tx)?;
        tx.execute("INSERT INTO users VALUES (1, 'again')", ())
    });
    assert_eq!(failed.wait().unwrap_err().kind(), ErrorKind::Constraint);
    assert_eq!(db.write(|tx| asked(tx)).wait().unwrap(), 1);
    assert_eq!(one(&db, "SELECT count(*) FROM posts WHERE id < 9"), 2);
}

#[test]
fn a_transaction_rebuilds_a_table_between_others_that_have_their_keys() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        for connections in [1, 4] {
            let interactive = InteractiveOptions::default().connections(connections);
            let (_directory, db) = open(Options::new().sharing(sharing).interactive(interactive));
            let tx = db.without_foreign_keys().transaction().unwrap();
            let mut beside = db.transaction().unwrap();
            for (id, sql) in (1..).zip(REBUILD) {
                tx.execute(sql, ()).wait().unwrap();
                // On a connection that this one may have left, and that it gets again.
                assert_has_keys(&beside, 2 * id);
                assert_eq!(ask(&tx, ASK), 0);
                beside.commit().wait().unwrap();
                beside = db.transaction().unwrap();
                assert_has_keys(&beside, 2 * id + 1);
            }
            assert_eq!(ask(&tx, "SELECT rowid FROM pragma_foreign_key_check"), 9);
            assert_eq!(ask(&tx, "SELECT count(*) FROM posts"), 3);
            tx.commit().wait().unwrap();
            drop(beside);
            assert_rebuilt(&db);
        }
    }
}

#[test]
fn a_closure_of_transact_rebuilds_a_table() {
    let (_directory, db) = database();
    let off = db.without_foreign_keys();
    let rebuild = off.transact(async |tx| {
        for sql in REBUILD {
            tx.execute(sql, ()).await?;
        }
        Ok::<_, Error>(())
    });
    rebuild.wait().unwrap();
    assert_rebuilt(&db);
}

#[test]
fn leading_reads_are_skipped_and_nothing_acts_at_the_commit() {
    let (_directory, db) = database();
    let tx = db.without_foreign_keys().transaction().unwrap();
    assert_eq!(ask(&tx, "SELECT count(*) FROM posts"), 2);
    tx.execute("DELETE FROM users", ()).wait().unwrap();
    tx.commit().wait().unwrap();
    assert_eq!(db.stats().transactions_unchanged, 1);
    assert_eq!(one(&db, "SELECT count(*) FROM posts"), 2);
    // What tells of the switch is no leading read, and is answered again.
    let tx = db.without_foreign_keys().transaction().unwrap();
    assert_eq!(ask(&tx, "SELECT foreign_keys FROM pragma_foreign_keys"), 0);
    tx.execute("DELETE FROM keyed WHERE id = 1", ()).wait().unwrap();
    tx.commit().wait().unwrap();
    assert_eq!(db.stats().transactions_replayed, 1);
    assert_eq!(one(&db, "SELECT count(*) FROM kept"), 1_000);
}

#[test]
fn a_neighbour_in_the_queue_has_its_keys() {
    let (_directory, db) = database();
    let off = db.without_foreign_keys();
    let orphan = |id: i64| {
        move |tx: &Tx<'_>| Ok((tx.execute("INSERT INTO kept VALUES (?1, -1)", [id])?, asked(tx)?))
    };
    let all = as_one_batch(&db, || {
        let both = |id| (off.write(orphan(id)), db.write(orphan(id + 1)));
        (2_000..2_020).step_by(2).map(both).collect::<Vec<_>>()
    });
    for (without, with) in all {
        assert_eq!(without.wait().unwrap(), (1, 0));
        assert!(with.wait().unwrap_err().is_foreign_key_violation());
    }
    assert_eq!(one(&db, "SELECT count(*) FROM kept WHERE k = -1"), 10);
}

#[test]
fn many_at_once_keep_to_the_keys_of_their_handles() {
    const EACH: i64 = 60;
    let interactive = InteractiveOptions::default().connections(2);
    let (_directory, db) = open(Options::new().interactive(interactive));
    let off = db.without_foreign_keys();
    let orphan = |tx: &Tx<'_>, id: i64| tx.execute("INSERT INTO kept VALUES (?1, -1)", [id]);
    thread::scope(|scope| {
        for thread in 0..2 {
            let (first, db, off) = (2_000 + thread * 1_000, &db, &off);
            scope.spawn(move || {
                for id in first..first + EACH {
                    off.write(move |tx| orphan(tx, id)).wait().unwrap();
                }
            });
            scope.spawn(move || {
                for id in first + 500..first + 500 + EACH {
                    let refused = db.write(move |tx| orphan(tx, id)).wait().unwrap_err();
                    assert!(refused.is_foreign_key_violation());
                    let child =
                        move |tx: &Tx<'_>| tx.execute("INSERT INTO kept VALUES (?1, 999)", [id]);
                    db.write(child).wait().unwrap();
                }
            });
            let without = move || {
                for id in thread * EACH + 1..=(thread + 1) * EACH {
                    let lone = off.transact(async |tx| {
                        tx.execute("DELETE FROM keyed WHERE id = ?1", [id]).await?;
                        let left = "SELECT count(*) FROM kept WHERE k = ?1";
                        assert_eq!(tx.query_row(left, [id], |row| row.get::<_, i64>(0)).await?, 1);
                        Ok::<_, Error>(())
                    });
                    lone.wait().unwrap();
                }
            };
            scope.spawn(without);
            scope.spawn(move || {
                for id in 500 + thread * EACH + 1..=500 + (thread + 1) * EACH {
                    let both = db.transact(async |tx| {
                        tx.execute("DELETE FROM keyed WHERE id = ?1", [id]).await?;
                        let left = "SELECT count(*) FROM kept WHERE k = ?1";
                        assert_eq!(tx.query_row(left, [id], |row| row.get::<_, i64>(0)).await?, 0);
                        Ok::<_, Error>(())
                    });
                    both.wait().unwrap();
                }
            });
        }
    });
    let orphans = "SELECT count(*) FROM kept WHERE NOT EXISTS (SELECT 1 FROM keyed WHERE id = k)";
    assert_eq!(one(&db, orphans), 2 * EACH + 2 * EACH);
    assert_eq!(one(&db, "SELECT count(*) FROM kept WHERE k = 999"), 1 + 2 * EACH);
    assert_eq!(one(&db, "SELECT count(*) FROM kept"), 1_000 + 2 * EACH);
}

#[test]
fn a_handle_that_only_reads_changes_nothing_without_keys_either() {
    let (_directory, db) = database();
    for reads in [db.read_only().without_foreign_keys(), db.without_foreign_keys().read_only()] {
        let refused = reads.write(|tx| tx.execute(REBUILD[4], ())).wait().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        let tx = reads.transaction().unwrap();
        let refused = tx.execute(REBUILD[4], ()).wait().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert_eq!(ask(&tx, "SELECT count(*) FROM posts"), 2);
        tx.commit().wait().unwrap();
    }
}
