//! An error of SQL names its statement and the place in it, on every way to run one, and says what
//! to do, once.

use std::error::Error as _;

use monolite::{Database, Error, ErrorKind, UntrustedLimits};

const WRONG: &str = "SELECT nme FROM user";
const PLACE: usize = 7;

fn open() -> Database {
    let db = Database::open(":memory:").unwrap();
    let sql = "CREATE TABLE user(id INTEGER PRIMARY KEY, name TEXT UNIQUE, age INTEGER NOT NULL);
               INSERT INTO user VALUES (1, 'ann', 7)";
    db.write(move |tx| tx.execute_batch(sql)).wait().unwrap();
    db
}

type Way = fn(&Database, &'static str) -> Result<(), Error>;

/// Each runs one statement.
const WAYS: [(&str, Way); 11] = [
    ("write", |db, sql| db.write(move |tx| tx.execute(sql, ()).map(drop)).wait()),
    ("write_once", |db, sql| {
        db.write_once(move |tx| tx.query_map(sql, (), |_| Ok(()))).wait().map(drop)
    }),
    ("batch", |db, sql| db.write(move |tx| tx.execute_batch(sql)).wait()),
    ("prepare", |db, sql| {
        let ask = move |tx: &monolite::ReadTx<'_>| {
            let mut statement = tx.prepare(sql)?;
            statement.query_map((), |_| Ok(()))?.collect::<Result<(), _>>()?;
            Ok(())
        };
        db.read(ask).wait()
    }),
    ("prepare_cached", |db, sql| db.read(move |tx| tx.prepare_cached(sql).map(drop)).wait()),
    ("read", |db, sql| db.read(move |tx| tx.query_row(sql, (), |_| Ok(()))).wait()),
    ("read, awaited", |db, sql| {
        smol::block_on(db.read(move |tx| tx.query_row(sql, (), |_| Ok(()))))
    }),
    ("stream", |db, sql| db.read_stream(sql, (), |_| Ok(())).wait().collect()),
    ("transaction", |db, sql| {
        let tx = db.transaction()?;
        let told = tx.execute(sql, ()).wait().map(drop);
        let awaited = smol::block_on(tx.query_map(sql, (), |_| Ok(()))).map(drop);
        assert_eq!(told.as_ref().err().map(Error::sql), awaited.as_ref().err().map(Error::sql));
        told
    }),
    ("transaction, batch", |db, sql| db.transaction()?.execute_batch(sql).wait()),
    ("transact", |db, sql| {
        let run = |tx: &monolite::Transaction| tx.query_row(sql, (), |_| Ok(())).wait();
        db.transact(async |tx| run(&tx)).wait()
    }),
];

#[test]
fn an_error_has_its_statement_and_the_place_on_every_way() {
    let db = open();
    for (name, way) in WAYS {
        // Twice, as the statement may be known the second time.
        for _ in 0..2 {
            let error = way(&db, WRONG).unwrap_err();
            assert_eq!(error.message(), "no such column: nme", "{name}");
            assert_eq!((error.sql(), error.sql_offset()), (Some(WRONG), Some(PLACE)), "{name}");
            let shown = "no such column: nme (in `SELECT nme FROM user`, at byte 7)";
            assert_eq!(error.to_string(), shown, "{name}");
        }
        let error = way(&db, "SELECT id FRM user").unwrap_err();
        assert_eq!(error.sql_offset(), Some(14), "{name}: {error}");
        // SQLite gives no place of what is missing, and what is refused has none.
        let error = way(&db, "SELECT id FROM usr").unwrap_err();
        let told = (error.sql(), error.sql_offset());
        assert_eq!(told, (Some("SELECT id FROM usr"), None), "{name}");
        let error = way(&db, "ATTACH 'other' AS other").unwrap_err();
        let told = (error.sql(), error.sql_offset());
        assert_eq!(told, (Some("ATTACH 'other' AS other"), None), "{name}");
    }
}

#[test]
fn an_error_of_a_statement_that_runs_has_it() {
    let db = open();
    let twice = "INSERT INTO user VALUES (2, 'ann', 8)";
    for (name, way) in WAYS {
        if name.starts_with("read") || name.starts_with("prepare") || name == "stream" {
            continue;
        }
        let error = way(&db, twice).unwrap_err();
        assert_eq!((error.kind(), error.sql()), (ErrorKind::Constraint, Some(twice)), "{name}");
        assert!(error.is_unique_violation(), "{name}");
        let shown = format!("UNIQUE constraint failed: user.name (in `{twice}`)");
        assert_eq!(error.to_string(), shown, "{name}");
    }
    let none = "SELECT id FROM user WHERE id = 9";
    for (name, way) in WAYS {
        match way(&db, none) {
            Err(error) if error.is_no_rows() => assert_eq!(error.sql(), Some(none), "{name}"),
            Err(error) => assert!(error.message().starts_with("the statement returns rows")),
            Ok(()) => {}
        }
    }
}

#[test]
fn the_place_is_in_bytes_of_the_text_as_it_was_given() {
    const SQL: &str = "/* größe */ -- 🦀\n  SELECT 'ü🦀', nme FROM user";
    let db = open();
    let at = |error: &Error| {
        let (sql, place) = (error.sql().unwrap(), error.sql_offset().unwrap());
        assert!(sql[place..].starts_with("nme FROM user"), "{error}");
        (sql.to_owned(), place)
    };
    let place = SQL.find("nme").unwrap();
    for (name, way) in WAYS {
        let (sql, found) = at(&way(&db, SQL).unwrap_err());
        if !name.ends_with("batch") {
            assert_eq!((sql.as_str(), found), (SQL, place), "{name}");
        }
    }
    let limits = UntrustedLimits::default();
    let untrusted = |sql: &str| db.query_untrusted(sql, (), &limits).wait().unwrap_err();
    assert_eq!(at(&untrusted(SQL)), (SQL.to_owned(), place));
    let syntax = untrusted("SELECT 'ü' FRM user WHERE 1");
    assert_eq!((syntax.kind(), syntax.sql_offset()), (ErrorKind::Invalid, Some(16)), "{syntax}");
    assert_eq!(untrusted("SELECT id FROM usr").sql_offset(), None);
}

#[test]
fn a_batch_tells_which_of_its_statements_has_failed() {
    const INSERTS: &str = "-- six of them
        INSERT INTO user VALUES (2, 'bob', 8);
        INSERT INTO user VALUES (3, 'cem', 9);
        CREATE TRIGGER old AFTER UPDATE ON user BEGIN SELECT 1; SELECT 2; END;
        /* the age */ INSERT INTO user VALUES (4, 'dan', NULL);
        INSERT INTO user VALUES (5, 'eva', 8);
        INSERT INTO user VALUES (6, 'fay', 8)";
    let db = open();
    let failed = "INSERT INTO user VALUES (4, 'dan', NULL);";
    for (name, way) in WAYS.iter().filter(|(name, _)| name.ends_with("batch")) {
        let error = way(&db, INSERTS).unwrap_err();
        assert_eq!((error.kind(), error.sql()), (ErrorKind::Constraint, Some(failed)), "{name}");
        let error = way(&db, "DELETE FROM user; \n SELECT nme FROM user; SELECT 1").unwrap_err();
        let told = (error.sql(), error.sql_offset());
        assert_eq!(told, (Some("SELECT nme FROM user;"), Some(7)), "{name}");
        let error = way(&db, "DELETE FROM user; COMMIT; SELECT 1").unwrap_err();
        assert_eq!((error.sql(), error.sql_offset()), (Some("COMMIT;"), None), "{name}");
    }
}

#[test]
fn what_is_called_in_the_wrong_way_is_told_the_right_one() {
    let db = open();
    let wrong = [
        ("", "no statement"),
        ("-- only a comment", "no statement"),
        ("SELECT age FROM user", "query_row"),
        ("INSERT INTO user(age) VALUES (1) RETURNING id", "query_row"),
        ("DELETE FROM user; DELETE FROM user", "execute_batch"),
    ];
    for (sql, says) in wrong {
        let by_write = db.write(move |tx| tx.execute(sql, ())).wait().unwrap_err();
        let by_transaction = db.transaction().unwrap().execute(sql, ()).wait().unwrap_err();
        for error in [by_write, by_transaction] {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{sql}: {error}");
            assert!(error.to_string().contains(says), "{sql}: {error}");
        }
    }
    let none = "SELECT sum(age) FROM user WHERE age < 0";
    let null = db.read(|tx| tx.query_row(none, (), |row| row.get::<_, i64>(0)));
    let error = null.wait().unwrap_err();
    assert!(error.to_string().contains("Option"), "{error}");
}

#[test]
fn an_error_says_everything_once() {
    let db = open();
    for sql in ["SELECT * FROM missing", "INSERT INTO user VALUES (1, 'bob', 1)", "COMMIT"] {
        let error: Error = db.write(move |tx| tx.execute_batch(sql)).wait().unwrap_err();
        let mut said = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            let text = next.to_string();
            assert!(!said.contains(&text), "{sql}: {said}: {text}");
            said.push_str(&text);
            cause = next.source();
        }
        assert_eq!(format!("{:#}", anyhow::Error::from(error)), said);
    }
}
