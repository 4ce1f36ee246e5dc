//! What messages say.

use std::error::Error as _;
use std::thread;
use std::time::Duration;

use monolite::{Error, ErrorKind, Options};

use super::{database, number, write};

#[test]
fn a_refusal_says_what_to_do_and_nothing_that_does_not_help() {
    let (_directory, _, db) = database(Options::new());
    write(&db, "CREATE VIRTUAL TABLE words USING fts4(x)");
    write(&db, "INSERT INTO words VALUES ('one')");
    write(&db, "INSERT INTO words VALUES ('two')");
    let refusals = [
        ("PRAGMA journal_mode = DELETE", "the engine needs the WAL"),
        ("PRAGMA synchronous = OFF", "option durability"),
        ("PRAGMA cache_size = 7", "writer_cache_bytes"),
        ("PRAGMA recursive_triggers = ON", "triggers do not fire themselves"),
        ("PRAGMA reverse_unordered_selects = ON", "no option of monolite::Options"),
        ("VACUUM", "use Database::vacuum"),
        ("VACUUM INTO 'copy.db'", "Database::backup for a copy"),
        ("SELECT optimize(words) FROM words LIMIT 1", "use the command"),
    ];
    for (sql, says) in refusals {
        let by_write = db.write(move |tx| tx.query_row(sql, (), |_| Ok(()))).wait().unwrap_err();
        let by_batch = db.write(move |tx| tx.execute_batch(sql)).wait().unwrap_err();
        let tx = db.transaction().unwrap();
        let by_transaction = tx.query_row(sql, (), |_| Ok(())).wait().unwrap_err();
        for error in [by_write, by_batch, by_transaction] {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{sql}: {error}");
            assert!(error.to_string().contains(says), "{sql}: {error}");
        }
    }
}

#[test]
fn what_is_called_in_the_wrong_way_is_told_the_right_one() {
    let (_directory, _, db) = database(Options::new());
    let wrong = [
        ("", "no statement"),
        ("-- only a comment", "no statement"),
        ("SELECT v FROM a", "query_row"),
        ("INSERT INTO a(v) VALUES (1) RETURNING id", "query_row"),
        ("DELETE FROM a; DELETE FROM b", "execute_batch"),
    ];
    for (sql, says) in wrong {
        let by_write = db.write(move |tx| tx.execute(sql, ())).wait().unwrap_err();
        let by_transaction = db.transaction().unwrap().execute(sql, ()).wait().unwrap_err();
        for error in [by_write, by_transaction] {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{sql}: {error}");
            assert!(error.to_string().contains(says), "{sql}: {error}");
        }
    }
    let null = db.read(|tx| tx.query_row("SELECT sum(v) FROM a WHERE v < 0", (), number));
    let error = null.wait().unwrap_err();
    assert!(error.to_string().contains("Option"), "{error}");
}

#[test]
fn a_savepoint_that_is_not_open_is_named_as_its_user_names_it() {
    let (_directory, _, db) = database(Options::new());
    let tx = db.transaction().unwrap();
    tx.savepoint("outer").wait().unwrap();
    for undone in [tx.rollback_to("gone"), tx.release("gone")] {
        let error = undone.wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("no savepoint named \"gone\""), "{error}");
    }
    tx.release("OUTER").wait().unwrap();
    assert!(tx.release("outer").wait().is_err());
    tx.execute("UPDATE a SET v = 1", ()).wait().unwrap();
    tx.commit().wait().unwrap();
}

#[test]
fn an_error_says_everything_once() {
    let (_directory, _, db) = database(Options::new());
    for sql in ["SELECT * FROM missing", "INSERT INTO a VALUES (1, 1)", "COMMIT"] {
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

#[test]
fn who_ran_no_statement_is_not_told_anothers() {
    let limit = Duration::from_millis(100);
    let options = Options::new().write_time_limit(limit).slow_transaction(limit / 2);
    let (_directory, _, db) = database(options);
    write(&db, "UPDATE a SET v = 4711");
    let late = db.write(move |_| {
        thread::sleep(limit * 2);
        Ok::<_, Error>(())
    });
    let late = late.wait().unwrap_err().to_string();
    assert!(late.contains("it ran no statement") && !late.contains("4711"), "{late}");
    let slow = db.stats().slow_transactions;
    assert!(slow.iter().any(|it| it.last_sql.is_empty()), "{slow:?}");
    assert!(slow.iter().all(|it| !it.last_sql.contains("4711")), "{slow:?}");
}
