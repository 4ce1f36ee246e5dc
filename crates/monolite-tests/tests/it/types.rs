//! What the first hour is made of: closures whose error is inferred, queries by one call,
//! savepoints, time limits of single calls.

mod savepoints;

use std::time::{Duration, Instant};

use crate::patience::one;
use monolite::{Database, Error, ErrorKind, Options, Parameters, Value};

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) \
                       SELECT sum(i) FROM n";

fn database() -> Database {
    let db = Database::open(":memory:").unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")).wait().unwrap();
    db
}

#[derive(Debug)]
struct Poor;

impl From<Error> for Poor {
    fn from(_: Error) -> Poor {
        Poor
    }
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
    one(&db, "SELECT 1");
}
