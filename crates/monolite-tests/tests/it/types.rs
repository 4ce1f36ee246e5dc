//! What the first hour is made of: closures whose error is inferred, queries by one call,
//! savepoints, time limits of single calls.

mod savepoints;

use std::time::{Duration, Instant};

use monolite::{Database, Error, ErrorKind, Options, Parameters, Value};

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) \
                       SELECT sum(i) FROM n";

fn database() -> Database {
    let db = Database::open(":memory:").unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")).wait().unwrap();
    db
}

#[derive(Debug)]
enum OwnError {
    Poor,
    Database(Error),
}

impl From<Error> for OwnError {
    fn from(error: Error) -> OwnError {
        OwnError::Database(error)
    }
}

#[test]
fn closures_that_end_in_ok_need_no_type() {
    let db = database();
    let insert = |id: i64| {
        db.write(move |tx| {
            tx.execute("INSERT INTO t(id) VALUES (?1)", (id,))?;
            Ok(())
        })
    };
    insert(1).wait().unwrap();
    smol::block_on(insert(2)).unwrap();
    db.read(|tx| {
        tx.query_row("SELECT count(*) FROM t", (), |row| row.get::<_, i64>(0))?;
        Ok(())
    })
    .wait()
    .unwrap();
    db.transact(async |tx| {
        tx.execute("DELETE FROM t WHERE id = 1", ()).wait()?;
        Ok(())
    })
    .wait()
    .unwrap();
    let own = db.with_error::<OwnError>();
    let poor = own.write(|tx| {
        if tx.execute("UPDATE t SET x = 1 WHERE id = 1", ())? == 0 {
            return Err(OwnError::Poor);
        }
        Ok(())
    });
    assert!(matches!(poor.wait(), Err(OwnError::Poor)));
    let wrong = own.read(|tx| {
        tx.query_row("SELECT nothing", (), |_| Ok(()))?;
        Ok(())
    });
    let Err(OwnError::Database(error)) = wrong.wait() else { panic!("it was no database error") };
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn a_read_that_is_waited_for_borrows_what_it_asks_for() {
    let db = database();
    db.write(|tx| tx.execute("INSERT INTO t VALUES (1, 'a')", ())).wait().unwrap();
    let wanted = String::from("a");
    let (by, mut found) = (wanted.as_str(), Vec::new());
    db.read(|tx| {
        found = tx.query_map("SELECT id FROM t WHERE x = ?1", [by], |row| row.get::<_, i64>(0))?;
        Ok(())
    })
    .wait()
    .unwrap();
    assert_eq!(found, [1]);
    let ids = db
        .transact(async |tx| {
            tx.query_map("SELECT id FROM t WHERE x = ?1", [by], |row| row.get::<_, i64>(0)).wait()
        })
        .wait();
    assert_eq!(ids.unwrap(), [1]);
}

#[test]
fn a_query_gives_all_rows_or_perhaps_one() {
    let db = database();
    db.write(|tx| {
        let inserted =
            tx.query_map("INSERT INTO t(x) VALUES ('a'), ('b') RETURNING id", (), |row| {
                row.get::<_, i64>(0)
            })?;
        assert_eq!(inserted, [1, 2]);
        let x = |id| {
            tx.query_optional("SELECT x FROM t WHERE id = ?1", [id], |row| row.get::<_, String>(0))
        };
        assert_eq!((x(2)?.as_deref(), x(3)?), (Some("b"), None));
        let wrong = tx.query_optional("SELECT x FROM t", (), |row| row.get::<_, i64>(0));
        assert_eq!(wrong.unwrap_err().kind(), ErrorKind::Invalid);
        let none = tx.query_row("SELECT x FROM t WHERE id = 9", (), |row| row.get::<_, i64>(0));
        let error = none.unwrap_err();
        assert_eq!((error.kind(), error.is_no_rows()), (ErrorKind::NoRows, true));
        let first = tx.query_row("SELECT id FROM t ORDER BY id", (), |row| row.get::<_, i64>(0));
        assert_eq!(first?, 1);
        Ok(())
    })
    .wait()
    .unwrap();
    let tx = db.transaction().unwrap();
    let x = |id: i64| {
        tx.query_optional("SELECT x FROM t WHERE id = ?1", [id], |row| row.get::<_, String>(0))
            .wait()
            .unwrap()
    };
    assert_eq!((x(1).as_deref(), x(3)), (Some("a"), None));
    let none = tx.query_row("SELECT x FROM t WHERE id = 9", (), |_| Ok(())).wait();
    assert_eq!(none.unwrap_err().kind(), ErrorKind::NoRows);
    tx.commit().wait().unwrap();
}

#[test]
fn fields_are_bound_by_their_names_whatever_the_sigil() {
    let db = database();
    let value = |number| Value::Integer(number);
    let fields = Parameters::Fields(vec![
        ("id".into(), value(7)),
        ("x".into(), value(8)),
        ("unused".into(), value(9)),
    ]);
    let same = fields.clone();
    db.write(move |tx| {
        tx.execute("INSERT INTO t(id, x) VALUES (:id, $x)", &same)?;
        let missing = tx.execute("UPDATE t SET x = :y WHERE id = @id", &same).unwrap_err();
        assert!(missing.to_string().contains("a parameter :y, and no value"), "{missing}");
        let numbered = tx.execute("UPDATE t SET x = ?1", &same).unwrap_err();
        assert!(numbered.to_string().contains("?1, and no value"), "{numbered}");
        Ok(())
    })
    .wait()
    .unwrap();
    let tx = db.transaction().unwrap();
    let x = tx.query_row("SELECT x FROM t WHERE id = @id", fields, |row| row.get::<_, i64>(0));
    assert_eq!(x.wait().unwrap(), 8);
}

#[test]
fn a_call_may_have_less_time_than_the_options_give_and_not_more() {
    let options = Options::new()
        .write_time_limit(Duration::from_millis(300))
        .read_time_limit(Duration::from_millis(300));
    let db = options.open(":memory:").unwrap();
    for (limit, named, at_most) in [
        (Duration::from_millis(20), "Database::with_time_limit", Duration::from_millis(280)),
        (Duration::from_secs(3_600), "option", Duration::from_secs(60)),
    ] {
        let within = db.with_principal(1).with_time_limit(limit).with_error::<Error>();
        let start = Instant::now();
        let late = [
            within.read(|tx| tx.query_row(ENDLESS, (), |row| row.get::<_, i64>(0))).wait(),
            smol::block_on(within.read(|tx| tx.query_row(ENDLESS, (), |row| row.get(0)))),
            within.write(|tx| tx.query_row(ENDLESS, (), |row| row.get(0))).wait(),
            within.try_write(|tx| tx.query_row(ENDLESS, (), |row| row.get(0))).unwrap().wait(),
            within.transaction().unwrap().query_row(ENDLESS, (), |row| row.get(0)).wait(),
        ];
        assert!(start.elapsed() < at_most * 5, "{:?}", start.elapsed());
        for error in late.into_iter().map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            assert!(error.to_string().contains(named), "{error}");
        }
    }
    db.read(|tx| tx.query_row("SELECT 1", (), |row| row.get::<_, i64>(0))).wait().unwrap();
}
