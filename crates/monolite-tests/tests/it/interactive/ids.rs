//! Ids given out ahead: transactions that insert into the same tables and ask for the ids of their
//! rows do not conflict, and each row is the one that SQLite would have inserted under that number.

use std::collections::BTreeSet;

use monolite::{Database, ErrorKind, InteractiveOptions, Options, Sharing, Transaction, Tx};

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
        let (_directory, db) = open(
            Options::new().interactive(InteractiveOptions::default().connections(connections)),
        );
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

/// Two transactions run each of these statements at the same time, ask for their ids, and commit;
/// how many conflicted.
fn conflicts(schema: &'static str, statement: &str) -> u64 {
    let (_directory, db) = open(Options::new());
    db.write(move |tx| tx.execute_batch(schema)).wait().unwrap();
    let (one, other) = (db.transaction().unwrap(), db.transaction().unwrap());
    for tx in [&one, &other] {
        let row = tx.query_row(statement, (), |_| Ok(())).wait();
        // One that inserts nothing shows no row.
        row.unwrap_or_else(|error| assert!(error.is_no_rows(), "{statement}: {error}"));
        tx.last_insert_rowid().wait().unwrap();
    }
    let _ = one.commit().wait();
    let _ = other.commit().wait();
    db.stats().transaction_conflicts
}

#[test]
fn every_simple_insert_gets_its_ids_ahead() {
    for statement in [
        "INSERT INTO parent VALUES (NULL, NULL, 'x') RETURNING id",
        "INSERT INTO parent(name) VALUES (NULL), (NULL), (NULL) RETURNING id",
        "INSERT INTO parent(id, note) VALUES (NULL, 1), (NULL, 2) RETURNING id, note",
        "INSERT INTO parent DEFAULT VALUES RETURNING rowid",
        "REPLACE INTO parent(note) VALUES (random()) RETURNING id",
        "INSERT OR IGNORE INTO main.parent AS p (note) VALUES ((SELECT 1)) RETURNING id",
        "INSERT OR ROLLBACK INTO \"PARENT\"(note) VALUES ('VALUES (') RETURNING id;",
        "INSERT INTO parent(note) VALUES (1) ON CONFLICT (id) DO UPDATE SET note = 2 RETURNING id",
        "INSERT INTO parent(rowid, note) VALUES (NULL, 1) RETURNING id",
        "INSERT INTO auto(x) VALUES (1) RETURNING id",
        "INSERT INTO hidden VALUES (random(), 1) RETURNING rowid",
        "INSERT INTO watched(x) VALUES (1) RETURNING id",
        "-- a child\nINSERT INTO strict(x) VALUES (1) RETURNING id, y",
    ] {
        let schema = "CREATE TABLE auto(x, id INTEGER PRIMARY KEY AUTOINCREMENT);
            CREATE TABLE hidden(x TEXT PRIMARY KEY, y);
            CREATE TABLE strict(id INTEGER PRIMARY KEY, x INT, y INT AS (id + x)) STRICT;
            CREATE TABLE watched(id INTEGER PRIMARY KEY, x);";
        let trigger = "CREATE TABLE auto(x, id INTEGER PRIMARY KEY AUTOINCREMENT);
            CREATE TABLE watched(id INTEGER PRIMARY KEY, x);
            CREATE TRIGGER seen AFTER INSERT ON watched BEGIN
                INSERT INTO auto(x) VALUES (NEW.id);
            END;";
        let schema = if statement.contains("watched") { trigger } else { schema };
        assert_eq!(conflicts(schema, statement), 0, "{statement}");
    }
}

/// The guide names them.
#[test]
fn other_inserts_have_their_ids_chosen_by_sqlite() {
    let schema = "CREATE TABLE before_it(id INTEGER PRIMARY KEY, x);
        CREATE TRIGGER before_in BEFORE INSERT ON before_it BEGIN SELECT NEW.id; END;
        CREATE TABLE behind_it(id INTEGER PRIMARY KEY, x);
        CREATE TRIGGER behind_in AFTER INSERT ON behind_it BEGIN SELECT NEW.id; END;";
    for statement in [
        "INSERT INTO parent(note) SELECT 1 RETURNING id",
        "WITH c AS (SELECT 1) INSERT INTO parent(note) VALUES (1) RETURNING id",
        "INSERT INTO before_it(x) VALUES (1) RETURNING id",
        "INSERT INTO behind_it(x) VALUES (1), (2) RETURNING id",
        "REPLACE INTO behind_it(x) VALUES (1) RETURNING id",
    ] {
        assert_eq!(conflicts(schema, statement), 1, "{statement}");
    }
}

#[test]
fn ids_that_the_application_says_in_the_same_transaction_are_passed_by() {
    let (_directory, db) = open(Options::new());
    let tx = db.transaction().unwrap();
    assert_eq!(id(&tx, PARENT), 1);
    tx.execute("INSERT INTO parent(id, note) VALUES (2, 'mine')", ()).wait().unwrap();
    let replace = "INSERT OR REPLACE INTO parent(note) VALUES ('other') RETURNING id";
    assert_eq!(id(&tx, replace), 3);
    tx.commit().wait().unwrap();
    assert_eq!(all(&db, "SELECT id FROM parent ORDER BY id"), [1, 2, 3]);
}

#[test]
fn a_number_that_somebody_took_is_not_taken_from_him() {
    for statement in [
        "INSERT OR REPLACE INTO parent(note) VALUES ('mine')",
        "INSERT INTO parent(note) VALUES ('mine') ON CONFLICT (id) DO UPDATE SET note = 'mine'",
        "INSERT INTO parent(note) VALUES ('mine')",
    ] {
        let (_directory, db) = open(Options::new());
        let (blind, asks) = (db.transaction().unwrap(), db.transaction().unwrap());
        blind.execute(statement, ()).wait().unwrap();
        assert_eq!(id(&asks, &format!("{statement} RETURNING id")), 2);
        let theirs = "INSERT INTO parent(id, note) VALUES (1, 'theirs'), (2, 'theirs')";
        db.write(move |tx| tx.execute(theirs, ())).wait().unwrap();
        blind.commit().wait().unwrap();
        assert_eq!(asks.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
        let kept = "SELECT count(*) FROM parent WHERE note = 'theirs' AND id < 3";
        assert_eq!(all(&db, kept), [2], "{statement}");
        assert_eq!(all(&db, "SELECT id FROM parent WHERE note = 'mine'"), [3], "{statement}");
    }
}

#[test]
fn a_table_that_was_made_anew_is_another_one() {
    let (_directory, db) = open(Options::new());
    let tx = db.transaction().unwrap();
    tx.execute("INSERT INTO named(name) VALUES ('mine')", ()).wait().unwrap();
    let anew = "DROP TABLE named; CREATE TABLE named(name, rowid TEXT, _rowid_ TEXT DEFAULT 'd')";
    db.write(move |tx| tx.execute_batch(anew)).wait().unwrap();
    tx.commit().wait().unwrap();
    let own = "SELECT count(*) FROM named WHERE rowid IS NULL AND _rowid_ = 'd'";
    assert_eq!(all(&db, own), [1]);
}

#[test]
fn ids_of_a_table_that_was_made_anew_begin_anew_unless_some_are_promised() {
    let (_directory, db) = open(Options::new());
    let make_anew = || {
        let anew = "DROP TABLE IF EXISTS child; DROP TABLE Parent; \
                    CREATE TABLE parent(id INTEGER PRIMARY KEY AUTOINCREMENT, name)";
        db.write(move |tx| tx.execute_batch(anew)).wait().unwrap();
    };
    let next = || {
        let tx = db.transaction().unwrap();
        let next = id(&tx, PARENT);
        tx.rollback();
        next
    };
    assert_eq!((next(), next()), (1, 2));
    make_anew();
    assert_eq!(next(), 1);
    // This one has a promise.
    let tx = db.transaction().unwrap();
    assert_eq!(id(&tx, PARENT), 2);
    make_anew();
    assert_eq!(next(), 3);
    tx.rollback();
    make_anew();
    assert_eq!(next(), 1);
    // A table whose DROP was undone keeps its rows, and new ones go behind them.
    let tx = db.transaction().unwrap();
    assert_eq!(id(&tx, PARENT), 2);
    tx.commit().wait().unwrap();
    let undone = db.write(|tx| {
        tx.execute("DROP TABLE parent", ())?;
        tx.execute("SELEC", ())
    });
    undone.wait().unwrap_err();
    assert_eq!(next(), 3);
}

#[test]
fn ids_go_on_from_what_is_committed_when_the_database_is_opened_again() {
    let (directory, db) = open(Options::new());
    let child = "INSERT INTO child(parent) VALUES (1) RETURNING id";
    let (tx, undone) = (db.transaction().unwrap(), db.transaction().unwrap());
    assert_eq!((id(&tx, PARENT), id(&tx, child)), (1, 1));
    tx.commit().wait().unwrap();
    assert_eq!((id(&undone, PARENT), id(&undone, child)), (2, 2));
    db.write(|tx| tx.execute("DELETE FROM child", ())).wait().unwrap();
    undone.rollback();
    db.close().unwrap();
    let db = Database::open(directory.path().join("db")).unwrap();
    let tx = db.transaction().unwrap();
    // The number of a row that was deleted is not used again: that is what AUTOINCREMENT is for.
    assert_eq!((id(&tx, PARENT), id(&tx, child)), (2, 2));
    tx.commit().wait().unwrap();
}

#[test]
fn at_the_largest_rowid_sqlite_has_its_way() {
    let (_directory, db) = open(Options::new());
    let sql = "INSERT INTO parent(id) VALUES (9223372036854775806)";
    db.write(move |tx| tx.execute(sql, ())).wait().unwrap();
    let tx = db.transaction().unwrap();
    assert_eq!(id(&tx, PARENT), i64::MAX);
    tx.commit().wait().unwrap();
    // Drawn at random.
    let tx = db.transaction().unwrap();
    assert!((1..i64::MAX).contains(&id(&tx, PARENT)));
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Invalid);
}

const QUEUES: &str = "
    CREATE TABLE plain(id INTEGER PRIMARY KEY, v);
    CREATE TABLE queue(id INTEGER PRIMARY KEY AUTOINCREMENT, v CHECK (v >= 0));";

/// How a statement for which SQLite chooses takes a promised number, and what becomes of its row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Taker {
    Commits,
    CommitsAndDeletesAtOnce,
    GivesUp,
    UndoesIt,
    FailsInside,
    IsExplicit,
}

fn take(tx: &Tx<'_>, taker: Taker) -> Result<i64, monolite::Error> {
    let choose = "INSERT INTO queue(v) SELECT 0 RETURNING id";
    let ask = |tx: &Tx<'_>, sql: &str| tx.query_row(sql, (), |row| row.get::<_, i64>(0));
    match taker {
        Taker::Commits => ask(tx, choose),
        Taker::CommitsAndDeletesAtOnce => {
            let taken = ask(tx, choose)?;
            tx.execute("DELETE FROM queue WHERE id = ?1", [taken])?;
            Ok(taken)
        }
        Taker::GivesUp => {
            ask(tx, choose)?;
            Err(monolite::Error::aborted("it changes its mind"))
        }
        Taker::UndoesIt => {
            let mut taken = 0;
            let undone: Result<(), monolite::Error> = tx.savepoint(|tx| {
                taken = ask(tx, choose)?;
                Err(monolite::Error::aborted("it changes its mind"))
            });
            assert!(undone.is_err());
            tx.execute("INSERT INTO plain(v) VALUES (0)", ())?;
            Ok(taken)
        }
        Taker::FailsInside => {
            // The first row is inserted and the second refused, and the closure goes on.
            let sql = "INSERT INTO queue(v) SELECT value FROM json_each('[0, -1]')";
            assert!(tx.execute(sql, ()).is_err());
            tx.execute("INSERT INTO plain(v) VALUES (0)", ())?;
            Ok(0)
        }
        Taker::IsExplicit => {
            let taken = ask(tx, "SELECT max(seq) + 1 FROM sqlite_sequence")?;
            tx.execute("INSERT INTO queue(id, v) VALUES (?1, 0)", [taken])?;
            Ok(taken)
        }
    }
}

#[test]
fn a_promised_number_of_autoincrement_is_given_to_nobody_else_whose_row_is_gone_again() {
    use Taker::*;
    for taker in [Commits, CommitsAndDeletesAtOnce, GivesUp, UndoesIt, FailsInside, IsExplicit] {
        let (_directory, db) = open(Options::new());
        db.write(|tx| tx.execute_batch(QUEUES)).wait().unwrap();
        db.write(|tx| tx.execute("INSERT INTO queue(v) VALUES (0)", ())).wait().unwrap();
        let promised = db.transaction().unwrap();
        let mine = id(&promised, "INSERT INTO queue(v) VALUES (0) RETURNING id");
        let taken = db.write(move |tx| take(tx, taker)).wait();
        db.write(move |tx| tx.execute("DELETE FROM queue WHERE id = ?1", [mine])).wait().unwrap();
        let was_taken = matches!(taker, Commits | CommitsAndDeletesAtOnce | IsExplicit);
        if was_taken {
            assert_eq!(taken.unwrap(), mine, "{taker:?} is not the case that was meant");
        }
        let committed = promised.commit().wait().map_err(|error| error.kind());
        let expected = if was_taken { Err(ErrorKind::Conflict) } else { Ok(()) };
        assert_eq!(committed.map(|_| ()), expected, "{taker:?}");
    }
}
