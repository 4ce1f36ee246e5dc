//! What messages say.

use std::error::Error as _;

use monolite::{Error, ErrorKind, Options};

use super::{database, number};

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
