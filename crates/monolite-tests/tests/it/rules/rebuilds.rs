//! The rebuild of a table by a program that has asked for foreign keys to be off, and goes on
//! although that was refused.

use monolite::{Database, Error, ErrorKind, InteractiveOptions, Options, Transaction, Tx};

use crate::patience::as_one_batch;

const OFF: &str = "PRAGMA foreign_keys = OFF";
const DROP: &str = "DROP TABLE users";

const SCHEMA: &str = "CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT);
     CREATE TABLE posts(id INTEGER PRIMARY KEY, u REFERENCES users(id) ON DELETE CASCADE);
     INSERT INTO users VALUES (1, 'a'), (2, 'b'); INSERT INTO posts VALUES (1, 1), (2, 2);";

/// What tools send, one after another.
const REBUILDS: [&[&str]; 2] = [
    &[
        "PRAGMA defer_foreign_keys = ON",
        OFF,
        "CREATE TABLE \"ausers\"(\"id\" integer PRIMARY KEY, \"name\" text NOT NULL)",
        "INSERT INTO \"ausers\"(\"id\", \"name\") SELECT \"id\", \"name\" FROM \"users\"",
        "DROP TABLE \"users\"",
        "CREATE TABLE \"users\"(\"id\" integer PRIMARY KEY, \"name\" text NOT NULL)",
        "INSERT INTO \"users\" SELECT \"id\", \"name\" FROM \"ausers\"",
        "DROP TABLE \"ausers\"",
        "PRAGMA foreign_keys = 1",
    ],
    &[
        "CREATE TABLE \"temporary\"(\"id\" INTEGER PRIMARY KEY, \"name\" TEXT NOT NULL)",
        "INSERT INTO \"temporary\" SELECT id, name FROM users",
        "PRAGMA foreign_keys = 0",
        "drop table if exists main.Users",
        "ALTER TABLE \"temporary\" RENAME TO \"users\"",
        "PRAGMA foreign_keys = 1",
    ],
];

fn database() -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let db = Options::new()
        .interactive(InteractiveOptions::default().connections(1))
        .open(directory.path().join("db"))
        .unwrap();
    db.write(|tx| tx.execute_batch(SCHEMA)).wait().unwrap();
    (directory, db)
}

fn rows(db: &Database) -> (i64, i64) {
    let sql = "SELECT (SELECT count(*) FROM users), (SELECT count(*) FROM posts)";
    db.read(|tx| tx.query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?)))).wait().unwrap()
}

/// What the refusals were, of statements whose errors are looked over.
fn assert_told(errors: &[String]) {
    let told = |error: &&String| {
        let remedies = ["Database::without_foreign_keys", "monolite::Migrations"];
        error.contains("posts references it") && remedies.iter().all(|it| error.contains(it))
    };
    assert_eq!(errors.iter().filter(told).count(), 1, "{errors:?}");
}

/// A way to run a statement.
type Run = fn(&Tx<'_>, &str) -> Result<(), Error>;

const WAYS: [Run; 4] = [
    |tx, sql| tx.execute(sql, ()).map(drop),
    |tx, sql| tx.execute_batch(sql),
    |tx, sql| Ok(tx.prepare(sql)?.execute(()).map(drop)?),
    |tx, sql| Ok(tx.prepare_cached(sql)?.execute(()).map(drop)?),
];

#[test]
fn a_rebuild_whose_errors_are_looked_over_in_a_write_loses_no_child() {
    for (run, list) in WAYS.iter().flat_map(|run| REBUILDS.map(|list| (*run, list))) {
        let (_directory, db) = database();
        let all = move |tx: &Tx<'_>| {
            let errors = list.iter().filter_map(|sql| run(tx, sql).err());
            Ok::<_, Error>(errors.map(|error| error.to_string()).collect::<Vec<_>>())
        };
        assert_told(&db.write(all).wait().unwrap());
        assert_eq!(rows(&db), (2, 2), "{list:?}");
    }
}

#[test]
fn a_rebuild_whose_errors_are_looked_over_in_a_transaction_loses_no_child() {
    let looked_over = |tx: &Transaction, list: &[&str], between: &dyn Fn()| {
        let run = |sql: &&str| {
            between();
            tx.execute(sql, ()).wait().err().map(|error| error.to_string())
        };
        list.iter().filter_map(run).collect::<Vec<_>>()
    };
    for list in REBUILDS {
        // Also with each statement on a connection that another transaction has had meanwhile.
        for is_crowded in [false, true] {
            let (_directory, db) = database();
            let tx = db.transaction().unwrap();
            let between = || {
                let other = db.transaction().unwrap();
                let count = "SELECT count(*) FROM posts";
                other.query_row(count, (), |row| row.get::<_, i64>(0)).wait().unwrap();
            };
            assert_told(&looked_over(&tx, list, if is_crowded { &between } else { &|| () }));
            tx.commit().wait().unwrap();
            assert_eq!(rows(&db), (2, 2), "{list:?}");
        }
        let (_directory, db) = database();
        db.transact(async |tx| {
            assert_told(&looked_over(&tx, list, &|| ()));
            Ok::<_, Error>(())
        })
        .wait()
        .unwrap();
        assert_eq!(rows(&db), (2, 2), "{list:?}");
    }
}

#[test]
fn rows_whose_children_would_go_are_not_replaced_where_foreign_keys_were_to_be_off() {
    const TABLES: &str = "CREATE TABLE likes(u REFERENCES users(id) ON DELETE SET NULL);
        CREATE TABLE tree(id INTEGER PRIMARY KEY, up REFERENCES tree(id) ON DELETE CASCADE);
        CREATE TABLE log(x); INSERT INTO likes VALUES (1); INSERT INTO users VALUES (3, 'c');
        INSERT INTO tree VALUES (1, NULL), (2, 1);
        CREATE TRIGGER logs AFTER INSERT ON log BEGIN DELETE FROM log WHERE x = 1; END;";
    const REFUSED: [&str; 4] = [
        "REPLACE INTO users VALUES (1, 'c')",
        "INSERT OR REPLACE INTO users SELECT id, name FROM users",
        "UPDATE OR REPLACE users SET id = 1 WHERE id = 3",
        "REPLACE INTO tree VALUES (1, NULL)",
    ];
    const ALLOWED: [&str; 6] = [
        "INSERT INTO users VALUES (3, 'd') ON CONFLICT(id) DO UPDATE SET name = excluded.name",
        "INSERT INTO log VALUES (1)",
        "REPLACE INTO posts VALUES (1, 1)",
        "DELETE FROM users WHERE id = 2",
        "CREATE TABLE n(id INTEGER PRIMARY KEY AUTOINCREMENT)",
        "ALTER TABLE n RENAME TO m",
    ];
    let (_directory, db) = database();
    db.write(|tx| tx.execute_batch(TABLES)).wait().unwrap();
    for refused in REFUSED {
        // Known to the connection from before, when it was allowed.
        let before = db.write(move |tx| {
            tx.execute(refused, ())?;
            Err::<(), _>(Error::aborted("on purpose"))
        });
        assert_eq!(before.wait().unwrap_err().kind(), ErrorKind::Aborted, "{refused}");
        let told = move |error: Error| {
            let error = error.to_string();
            assert!(error.contains("is refused: PRAGMA foreign_keys = OFF"), "{refused}: {error}");
        };
        let write = db.write(move |tx| {
            tx.execute_batch(OFF).unwrap_err();
            told(tx.execute(refused, ()).unwrap_err());
            Ok::<_, Error>(())
        });
        write.wait().unwrap();
        let tx = db.transaction().unwrap();
        tx.execute(OFF, ()).wait().unwrap_err();
        told(tx.execute(refused, ()).wait().unwrap_err());
        tx.commit().wait().unwrap();
        // Where they are off, SQLite does no more than was said.
        db.without_foreign_keys()
            .write(move |tx| {
                tx.execute_batch(OFF).unwrap_err();
                tx.execute(refused, ())?;
                Err::<(), _>(Error::aborted("on purpose"))
            })
            .wait()
            .unwrap_err();
    }
    assert_eq!(rows(&db), (3, 2));
    let allowed = |tx: &Tx<'_>| {
        tx.execute_batch(OFF).unwrap_err();
        ALLOWED.iter().try_for_each(|sql| tx.execute(sql, ()).map(drop))
    };
    db.write(allowed).wait().unwrap();
}

/// A table that references `users`, a row of it, and whether `users` may be dropped then.
const REFERENCES: [(&str, &str, bool); 10] = [
    ("u REFERENCES users(id) ON DELETE CASCADE", "(1)", false),
    ("u REFERENCES Users ON DELETE SET NULL", "(2)", false),
    ("u DEFAULT 1 REFERENCES \"users\"(id) ON DELETE SET DEFAULT", "(1)", false),
    ("\"a \"\"b\" REFERENCES users(id) ON DELETE CASCADE", "(1)", false),
    ("u, v, FOREIGN KEY (u, v) REFERENCES users(id, name) ON DELETE CASCADE", "(1, 'a')", false),
    ("u, v, FOREIGN KEY (u, v) REFERENCES users(id, name) ON DELETE CASCADE", "(1, NULL)", true),
    ("u REFERENCES users(id) ON DELETE CASCADE", "(NULL)", true),
    ("u REFERENCES other(id) ON DELETE CASCADE", "(1)", true),
    ("u REFERENCES users(id) ON UPDATE CASCADE", "(NULL)", true),
    ("u", "(1)", true),
];

#[test]
fn dropping_a_table_changes_no_row_of_another() {
    for (columns, row, may_drop) in REFERENCES {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path().join("db")).unwrap();
        let schema = format!(
            "CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT,
                 up REFERENCES users(id) ON DELETE CASCADE, UNIQUE (id, name));
             CREATE TABLE other(id INTEGER PRIMARY KEY); INSERT INTO other VALUES (1);
             INSERT INTO users VALUES (1, 'a', NULL), (2, 'b', 1);
             CREATE TABLE \"it's\"({columns}); INSERT INTO \"it's\" VALUES {row}"
        );
        db.write(move |tx| tx.execute_batch(&schema)).wait().unwrap();
        let judge = |result: Result<(), Error>| {
            let told = result.as_ref().err().map(|error| error.to_string());
            assert_eq!(result.is_ok(), may_drop, "{columns} {row}: {told:?}");
            if let Some(told) = told {
                assert!(told.contains("it's references it"), "{told}");
            }
        };
        for run in WAYS {
            let undone = db.write(move |tx| {
                let result = run(tx, DROP);
                Err::<(), _>(Error::aborted(
                    result.err().map_or("dropped".into(), |it| it.to_string()),
                ))
            });
            let told = undone.wait().unwrap_err().to_string();
            assert_eq!(told.contains("dropped"), may_drop, "{columns} {row}: {told}");
        }
        let tx = db.transaction().unwrap();
        judge(tx.execute(DROP, ()).wait().map(drop));
        drop(tx);
        let without = db.without_foreign_keys().write(|tx| {
            tx.execute_batch(DROP)?;
            Err::<(), _>(Error::aborted("on purpose"))
        });
        assert_eq!(without.wait().unwrap_err().kind(), ErrorKind::Aborted);
        judge(db.write(|tx| tx.execute_batch(DROP)).wait());
    }
    // The tables that reference it may go first.
    let (_directory, db) = database();
    db.write(|tx| tx.execute_batch("DROP TABLE posts; DROP TABLE users")).wait().unwrap();
}

#[test]
fn a_wish_for_foreign_keys_to_be_off_ends_with_its_transaction_or_when_it_is_taken_back() {
    const REPLACE: &str = "REPLACE INTO users VALUES (1, 'c')";
    let asks = |tx: &Tx<'_>| Ok::<_, Error>(tx.execute_batch(OFF).unwrap_err().kind());
    let (_directory, db) = database();
    // A neighbour's, in the same batch.
    let (asked, replaced) =
        as_one_batch(&db, || (db.write(asks), db.write(|tx| tx.execute_batch(REPLACE))));
    assert_eq!(asked.wait().unwrap(), ErrorKind::Invalid);
    replaced.wait().unwrap();
    let (_directory, db) = database();
    let both = db.write(move |tx| {
        asks(tx)?;
        tx.execute_batch("PRAGMA foreign_keys = ON").unwrap_err();
        tx.execute_batch(REPLACE)
    });
    both.wait().unwrap();
}

#[test]
fn a_virtual_table_may_replace_rows_of_its_own_where_foreign_keys_were_to_be_off() {
    let (directory, db) = database();
    let create = "CREATE VIRTUAL TABLE box USING rtree(id, a, b); INSERT INTO box VALUES (1, 0, 1)";
    db.write(move |tx| tx.execute_batch(create)).wait().unwrap();
    db.close().unwrap();
    // It prepares its own statements when it is first used.
    let db = Database::open(directory.path().join("db")).unwrap();
    let write = db.write(|tx| {
        tx.execute_batch(OFF).unwrap_err();
        tx.execute("INSERT INTO box VALUES (2, 0, 1)", ())
    });
    assert_eq!(write.wait().unwrap(), 1);
}
