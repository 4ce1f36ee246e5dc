//! One transaction at a time: its values, its errors, and the connection that it leaves.

use std::sync::atomic::{AtomicU32, Ordering};

use monolite::{Committed, Error, ErrorKind, Parameters, Result, Value};
use monolite_postgres::{Database, Engine, EngineTransaction as _, Options};
use monolite_testkit::postgres::Reach;
use monolite_testkit::postgres_proxy::Profile;

use crate::ground::Ground;

async fn batch(db: &Database, sql: &str) {
    db.transact(async |tx| tx.execute_batch(sql).await).await.unwrap();
}

async fn number(db: &Database, sql: &str) -> i64 {
    db.read(async |tx| tx.query_row(sql, (), |row| row.get(0)).await).await.unwrap()
}

async fn refused(db: &Database, sql: &str) -> Error {
    let done = db.transact(async |tx| tx.execute(sql, ()).await).await;
    done.expect_err(sql)
}

#[test]
fn values_come_back_as_they_went() {
    let Some(ground) = Ground::of("values") else { return };
    let db = ground.open(Options::new(), Profile::Plain);
    ground.runtime.block_on(async {
        batch(
            &db,
            "CREATE TABLE v(i bigint, s smallint, r double precision, t text, b bytea, o boolean,
                 j json, k jsonb, u uuid, n numeric, d timestamptz)",
        )
        .await;
        let floats = [0.1, -0.0, f64::MAX, f64::INFINITY, 5e-324, 3.0];
        let texts = ["", "é'\"\\x41", "?1 :a $1"];
        for (at, float) in floats.into_iter().enumerate() {
            let text = texts[at % texts.len()];
            let blob = vec![0, 255, at as u8];
            let (found, integer) = db
                .transact(async |tx| {
                    tx.execute("DELETE FROM v", ()).await?;
                    tx.execute(
                        "INSERT INTO v(i, s, r, t, b, o) VALUES (?1, 7, ?2, ?3, ?4, ?5)",
                        (i64::MIN, float, text, blob.clone(), true),
                    )
                    .await?;
                    let sql = "SELECT r, t, b, o, i, s FROM v WHERE t = :t AND i < :i";
                    let named = vec![
                        ("i".to_owned(), Value::Integer(0)),
                        (":t".to_owned(), Value::Text(text.into())),
                    ];
                    let named = Parameters::Named(named);
                    tx.query_row(sql, named, |row| {
                        let found: (f64, String, Vec<u8>) =
                            (row.get(0)?, row.get("t")?, row.get(2)?);
                        assert_eq!((row.get("o")?, row.get("s")?), (true, 7));
                        Ok((found, row.get::<i64>("I")?))
                    })
                    .await
                })
                .await
                .unwrap();
            assert_eq!(integer, i64::MIN);
            assert_eq!(found.0.to_bits(), float.to_bits());
            assert_eq!((found.1.as_str(), found.2), (text, blob));
        }
        let uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        let row = db
            .transact(async |tx| {
                tx.execute(
                    "UPDATE v SET j = ?1, k = ?5, u = ?2, n = ?3, d = ?4, t = NULL",
                    (r#"{"a": 1}"#, uuid, "12.50", "2026-11-28T10:00:00Z", r#"{"a": 1}"#),
                )
                .await?;
                let sql = "SELECT j, k, CAST(u AS TEXT), CAST(n AS TEXT), d = ?1, t FROM v";
                tx.query(sql, ["2026-11-28T10:00:00Z"]).await
            })
            .await
            .unwrap();
        let text = |text: &str| Value::Text(text.into());
        let json = text(r#"{"a": 1}"#);
        let expected =
            [json.clone(), json, text(uuid), text("12.50"), Value::Integer(1), Value::Null];
        assert_eq!(row[0].values(), expected);
    });
}

#[test]
fn what_cannot_be_told_is_refused_before_it_runs() {
    let Some(ground) = Ground::of("refusals") else { return };
    let db = ground.open(Options::new(), Profile::Plain);
    ground.runtime.block_on(async {
        batch(&db, "CREATE TABLE v(id bigint, b bytea, n numeric)").await;
        let tx = db.transaction().unwrap();
        tx.execute("INSERT INTO v(id) VALUES (?)", [1]).await.unwrap();
        for (sql, parameters) in [
            ("SELECT n FROM v", vec![]),
            ("INSERT INTO v(n) VALUES (1) RETURNING n", vec![]),
            ("SELECT sum(id) FROM v", vec![]),
            ("SELECT id FROM v WHERE b = ?", vec![Value::Text("\\x41".into())]),
            ("SELECT id FROM v WHERE id = ?", vec![Value::Blob(vec![1])]),
            ("SELECT ?", vec![]),
            ("COMMIT", vec![]),
        ] {
            let error = tx.query(sql, parameters).await.unwrap_err();
            assert_eq!((error.kind(), error.sql()), (ErrorKind::Invalid, Some(sql)), "{error}");
        }
        let error = tx.execute("SELECT id FROM v", ()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        tx.commit().await.unwrap();
        assert_eq!(number(&db, "SELECT count(*) FROM v").await, 1);
    });
}

#[test]
fn errors_have_monolites_kinds() {
    let Some(ground) = Ground::of("kinds of errors") else { return };
    let db = ground.open(Options::new(), Profile::Plain);
    ground.runtime.block_on(async {
        batch(
            &db,
            "CREATE TABLE p(id bigint PRIMARY KEY, c bigint NOT NULL CHECK (c > 0));
             INSERT INTO p VALUES (1, 1);
             CREATE TABLE c(p bigint REFERENCES p DEFERRABLE INITIALLY DEFERRED)",
        )
        .await;
        assert!(refused(&db, "INSERT INTO p VALUES (1, 1)").await.is_unique_violation());
        assert!(refused(&db, "INSERT INTO p VALUES (2, 0)").await.is_check_violation());
        assert!(refused(&db, "INSERT INTO p VALUES (2, NULL)").await.is_not_null_violation());
        // Found by COMMIT.
        assert!(refused(&db, "INSERT INTO c VALUES (9)").await.is_foreign_key_violation());
        assert_eq!(refused(&db, "INSERT INTO q VALUES (9)").await.kind(), ErrorKind::Invalid);
        let none = db.read(async |tx| tx.query_row("SELECT 1 WHERE false", (), |_| Ok(())).await);
        assert_eq!(none.await.unwrap_err().kind(), ErrorKind::NoRows);
        let write = db.read(async |tx| tx.execute("DELETE FROM p", ()).await);
        assert_eq!(write.await.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(number(&db, "SELECT count(*) FROM p").await, 1);
        db.close();
        let closed = db.read(async |tx| tx.execute("DELETE FROM p", ()).await);
        assert_eq!(closed.await.unwrap_err().kind(), ErrorKind::Closed);
    });
}

#[test]
fn a_failed_transaction_commits_nothing_and_its_connection_is_clean() {
    let Some(ground) = Ground::of("failed transactions") else { return };
    let db = ground.open(Options::new().connections(1), Profile::Plain);
    ground.runtime.block_on(async {
        batch(&db, "CREATE TABLE t(id bigint PRIMARY KEY)").await;
        let insert = "INSERT INTO t VALUES (?)";
        // The closure hides an error: there is no commit all the same.
        let hidden = db.transact(async |tx| {
            tx.execute(insert, [1]).await?;
            let _ = tx.execute(insert, [1]).await;
            Ok(())
        });
        assert_eq!(hidden.await.unwrap_err().kind(), ErrorKind::Constraint);
        let own = db.transact(async |tx| {
            tx.execute(insert, [2]).await?;
            Err::<(), _>(Error::aborted("enough"))
        });
        assert_eq!(own.await.unwrap_err().kind(), ErrorKind::Aborted);
        // One that is dropped, and one whose statement is.
        let dropped = db.transaction().unwrap();
        dropped.execute(insert, [3]).await.unwrap();
        drop(dropped);
        let cut = db.transaction().unwrap();
        cut.execute(insert, [4]).await.unwrap();
        let sleep = cut.query("SELECT pg_sleep(60)", ());
        let limit = std::time::Duration::from_millis(50);
        assert!(tokio::time::timeout(limit, sleep).await.is_err());
        assert_eq!(cut.execute(insert, [5]).await.unwrap_err().kind(), ErrorKind::Aborted);
        assert_eq!(cut.commit().await.unwrap_err().kind(), ErrorKind::Aborted);
        assert_eq!(number(&db, "SELECT count(*) FROM t").await, 0);
        let saved = db.transaction().unwrap();
        saved.execute(insert, [6]).await.unwrap();
        saved.savepoint("a \" b").await.unwrap();
        saved.execute(insert, [6]).await.unwrap_err();
        saved.rollback_to("a \" b").await.unwrap();
        saved.release("a \" b").await.unwrap();
        saved.execute(insert, [7]).await.unwrap();
        saved.commit().await.unwrap();
        assert_eq!(number(&db, "SELECT CAST(sum(id) AS BIGINT) FROM t").await, 13);
    });
}

async fn once(db: &Database, key: &str, id: i64) -> Result<Committed<i64>> {
    db.transact_once(key, async |tx| {
        tx.execute("INSERT INTO t VALUES (?)", [id]).await?;
        Ok((id, format!("row {id}")))
    })
    .await
}

#[test]
fn a_key_commits_once() {
    let Some(ground) = Ground::of("keys") else { return };
    let db = ground.open(Options::new(), Profile::Plain);
    ground.runtime.block_on(async {
        batch(&db, "CREATE TABLE t(id bigint)").await;
        let first = once(&db, "a", 1).await.unwrap();
        assert_eq!(first, Committed::Now { value: 1, outcome: b"row 1".to_vec() });
        assert_eq!(
            once(&db, "a", 2).await.unwrap(),
            Committed::Before { outcome: b"row 1".to_vec() }
        );
        assert_eq!(once(&db, "", 3).await.unwrap_err().kind(), ErrorKind::Invalid);
        let tx = db.transaction().unwrap();
        tx.execute("INSERT INTO t VALUES (4)", ()).await.unwrap();
        let before = tx.commit_once("a", "other").await.unwrap();
        assert_eq!(before, Committed::Before { outcome: b"row 1".to_vec() });
        assert_eq!(db.outcome_of("a").await.unwrap(), Some(b"row 1".to_vec()));
        assert_eq!(db.outcome_of("b").await.unwrap(), None);
        // Many with one key at once.
        let all: Vec<_> = (0..8)
            .map(|id| {
                let db = db.clone();
                tokio::spawn(async move { once(&db, "many", id).await })
            })
            .collect();
        let mut now = 0;
        for one in all {
            now += usize::from(!one.await.unwrap().unwrap().is_repeated());
        }
        assert_eq!((now, number(&db, "SELECT count(*) FROM t").await), (1, 2));
    });
}

#[test]
fn a_key_is_found_only_when_a_synchronous_standby_has_it() {
    let Some(mut ground) = Ground::reached("a key on a pair", Reach::Followed) else { return };
    let mut follower = ground.server.start_follower().unwrap();
    let db = ground.open(Options::new(), Profile::Plain);
    let count = |sql| ground.runtime.block_on(number(&db, sql));
    let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    while count(synchronous) == 0 {}
    ground.runtime.block_on(batch(&db, "CREATE TABLE t(id bigint)"));
    follower.kill().unwrap();
    let of_task = db.clone();
    let committing = ground.runtime.spawn(async move {
        let runs = AtomicU32::new(0);
        // The restart may take longer than one call tries.
        loop {
            let once = of_task.transact_once("a", async |tx| {
                runs.fetch_add(1, Ordering::Relaxed);
                tx.execute("INSERT INTO t VALUES (1)", ()).await?;
                Ok(((), "row 1"))
            });
            if let Ok(done) = once.await {
                break (done, runs.into_inner());
            }
        }
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    while count(waiting) == 0 {}
    // The answer is lost, and the leader has the commit.
    ground.server.kill_and_restart().unwrap();
    while count(waiting) == 0 {
        assert!(!committing.is_finished(), "a failover would lose it");
    }
    follower.restart().unwrap();
    let done = ground.runtime.block_on(committing).unwrap();
    // After the lost answer the key is asked for, before anything runs again.
    assert_eq!(done, (Committed::Before { outcome: b"row 1".to_vec() }, 1));
    ground.server.kill().unwrap();
    follower.promote().unwrap();
    let url = format!("postgres://monolite@127.0.0.1:{}/postgres", follower.port());
    let rows = ground.runtime.block_on(async {
        number(&Database::connect(&url).await.unwrap(), "SELECT count(*) FROM t").await
    });
    assert_eq!(rows, 1);
}

#[test]
fn an_error_after_a_lost_answer_does_not_hide_a_commit_that_is_under_way() {
    let Some(ground) = Ground::of("a slow COMMIT") else { return };
    let db = ground.open(Options::new(), Profile::Plain);
    ground.runtime.block_on(async {
        batch(
            &db,
            "CREATE TABLE t(id bigint);
             CREATE FUNCTION rest() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER rests AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION rest()",
        )
        .await;
        ground.proxy.set(Profile::CutsEachCommit);
        let once = db.transact_once("slow", async |tx| {
            if tx.attempt() > 1 {
                return Err(Error::aborted("it thinks otherwise now"));
            }
            tx.execute("INSERT INTO t VALUES (1)", ()).await?;
            Ok(((), "done"))
        });
        assert_eq!(once.await.unwrap(), Committed::Before { outcome: b"done".to_vec() });
        ground.proxy.set(Profile::Plain);
        assert_eq!(number(&db, "SELECT count(*) FROM t").await, 1);
        // Without a key the caller has to know.
        ground.proxy.set(Profile::CutsEachCommit);
        let blind = db.transact(async |tx| {
            assert_eq!(tx.attempt(), 1, "it may have happened already");
            tx.execute("INSERT INTO t VALUES (2)", ()).await
        });
        assert_eq!(blind.await.unwrap_err().kind(), ErrorKind::CommitUnknown);
    });
}

#[test]
fn a_statement_that_was_prepared_before_a_schema_change_runs_after_it() {
    let Some(ground) = Ground::of("schema changes") else { return };
    let db = ground.open(Options::new().connections(2), Profile::Plain);
    ground.runtime.block_on(async {
        batch(&db, "CREATE TABLE t(a bigint); INSERT INTO t VALUES (1)").await;
        let columns = async || {
            let read = db.read(async |tx| tx.query("SELECT * FROM t", ()).await);
            read.await.unwrap()[0].names().len()
        };
        assert_eq!(columns().await, 1);
        batch(&db, "ALTER TABLE t ADD b bigint").await;
        assert_eq!(columns().await, 2);
    });
}
