//! Ids given out ahead: transactions that insert into the same tables and ask for the ids of their
//! rows do not conflict, and each row is the one that SQLite would have inserted under that number.

use std::collections::BTreeSet;

use monolite::{Database, ErrorKind, Options, Sharing, Transaction};

const SCHEMA: &str = "
    CREATE TABLE parent(id INTEGER PRIMARY KEY, name TEXT UNIQUE, note TEXT DEFAULT 'none');
    CREATE TABLE child(id INTEGER PRIMARY KEY AUTOINCREMENT, parent INTEGER NOT NULL
        REFERENCES parent(id), text TEXT);
    CREATE TABLE named(name TEXT PRIMARY KEY, value);";

fn open(options: Options) -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let db = options.open(directory.path().join("db")).unwrap();
    db.write(|tx| tx.execute_batch(SCHEMA)).wait().unwrap();
    (directory, db)
}

fn id(tx: &Transaction, sql: &str) -> i64 {
    tx.query_row(sql, (), |row| row.get(0)).wait().unwrap()
}

fn all(db: &Database, sql: &'static str) -> Vec<i64> {
    let read = db.read(move |tx| {
        let mut statement = tx.prepare(sql)?;
        let rows = statement.query_map((), |row| row.get(0))?;
        Ok::<_, monolite::Error>(rows.collect::<Result<Vec<i64>, _>>()?)
    });
    read.wait().unwrap()
}

const PARENT: &str = "INSERT INTO parent(name) VALUES (NULL) RETURNING id";

#[test]
fn parents_and_children_of_many_transactions_do_not_conflict() {
    for connections in [4, 64] {
        let (_directory, db) = open(Options::new().transaction_connections(connections));
        let open: Vec<Transaction> = (0..200).map(|_| db.transaction().unwrap()).collect();
        let parents: Vec<i64> = open.iter().map(|tx| id(tx, PARENT)).collect();
        let child = "INSERT INTO child(parent, text) VALUES (?1, 'x')";
        let mut children = Vec::new();
        for (tx, parent) in open.iter().zip(&parents) {
            tx.execute(child, [parent]).wait().unwrap();
            children.push(tx.last_insert_rowid().wait().unwrap());
        }
        // The last that has begun is the first that commits.
        for tx in open.into_iter().rev() {
            tx.commit().wait().unwrap();
        }
        assert_eq!(db.stats().transaction_conflicts, 0);
        assert_eq!(parents.iter().collect::<BTreeSet<_>>().len(), 200);
        assert_eq!(all(&db, "SELECT id FROM parent ORDER BY id"), parents);
        assert_eq!(all(&db, "SELECT id FROM child ORDER BY id"), children);
        let strange = "SELECT count(*) FROM child WHERE parent NOT IN (SELECT id FROM parent)";
        assert_eq!(all(&db, strange), [0]);
        assert_eq!(db.stats().ids_given_out, 400);
    }
}

#[test]
fn without_the_option_the_second_conflicts() {
    let (_directory, db) = open(Options::new().ids_given_out_ahead(false));
    let (one, other) = (db.transaction().unwrap(), db.transaction().unwrap());
    assert_eq!((id(&one, PARENT), id(&other, PARENT)), (1, 1));
    one.commit().wait().unwrap();
    assert_eq!(other.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(db.stats().ids_given_out, 0);
}

#[test]
fn a_hidden_rowid_is_given_out_too() {
    let (_directory, db) = open(Options::new());
    let (one, other) = (db.transaction().unwrap(), db.transaction().unwrap());
    let insert = |tx: &Transaction, name: &str| {
        tx.execute("INSERT INTO named VALUES (?1, 1)", [name]).wait().unwrap();
        tx.last_insert_rowid().wait().unwrap()
    };
    assert_eq!((insert(&one, "a"), insert(&other, "b")), (1, 2));
    other.commit().wait().unwrap();
    one.commit().wait().unwrap();
    assert_eq!(all(&db, "SELECT rowid FROM named ORDER BY name"), [1, 2]);
}

#[test]
fn a_number_is_not_given_again_behind_a_rollback() {
    let (_directory, db) = open(Options::new());
    let tx = db.transaction().unwrap();
    assert_eq!(id(&tx, PARENT), 1);
    tx.rollback();
    let tx = db.transaction().unwrap();
    assert_eq!(id(&tx, PARENT), 2);
    tx.commit().wait().unwrap();
    assert_eq!(all(&db, "SELECT id FROM parent"), [2]);
}

#[test]
fn plain_writes_pass_by_numbers_that_are_promised() {
    let (_directory, db) = open(Options::new());
    let open: Vec<Transaction> = (0..5).map(|_| db.transaction().unwrap()).collect();
    let promised: Vec<i64> = open.iter().map(|tx| id(tx, PARENT)).collect();
    assert_eq!(promised, [1, 2, 3, 4, 5]);
    let insert = || {
        let sql = "INSERT INTO parent(name) VALUES (NULL)";
        let write = db.write(move |tx| {
            tx.execute(sql, ())?;
            Ok::<_, monolite::Error>(tx.last_insert_rowid())
        });
        write.wait().unwrap()
    };
    assert_eq!([insert(), insert(), insert()], [6, 7, 8]);
    for tx in open {
        tx.commit().wait().unwrap();
    }
    assert_eq!(db.stats().transaction_conflicts, 0);
    assert_eq!(insert(), 9);
}

#[test]
fn another_process_may_take_a_number() {
    let (directory, db) = open(Options::new().sharing(Sharing::Shared));
    let tx = db.transaction().unwrap();
    assert_eq!(id(&tx, PARENT), 1);
    let other = monolite::rusqlite::Connection::open(directory.path().join("db")).unwrap();
    other.execute("INSERT INTO parent(name) VALUES ('other')", ()).unwrap();
    drop(other);
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
    let tx = db.transaction().unwrap();
    let next = id(&tx, PARENT);
    assert!(next > 1);
    tx.commit().wait().unwrap();
    assert_eq!(all(&db, "SELECT id FROM parent ORDER BY id"), [1, next]);
}
