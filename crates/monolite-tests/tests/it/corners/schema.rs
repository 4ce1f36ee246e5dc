//! Changes of the schema, and who learns of them when.

use monolite::{Database, Error, ErrorKind, InteractiveOptions, Options, ReadTx, Row, Sharing, Tx};

use super::{ask, ask_writer, database, number, write};

/// Every kind of connection has seen the schema as it is.
fn warm(db: &Database) {
    for _ in 0..2 {
        let tx = db.transaction().unwrap();
        ask(&tx, "SELECT count(*) FROM a");
        tx.execute("UPDATE b SET v = 0", ()).wait().unwrap();
        tx.commit().wait().unwrap();
        db.read(|tx| tx.query_row("SELECT count(*) FROM a", (), number)).wait().unwrap();
    }
}

fn each_sharing(test: impl Fn(&Database)) {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let (_directory, _, db) = database(Options::new().readers(2).sharing(sharing));
        warm(&db);
        test(&db);
    }
}

#[test]
fn a_statement_is_prepared_against_the_schema_of_its_transaction() {
    each_sharing(|db| {
        write(db, "ALTER TABLE a ADD COLUMN c");
        let tx = db.transaction().unwrap();
        tx.execute("INSERT INTO a VALUES (2, 2, 3)", ()).wait().unwrap();
        tx.commit().wait().unwrap();
        write(db, "CREATE UNIQUE INDEX one ON a(v)");
        let tx = db.transaction().unwrap();
        let upsert = "INSERT INTO a VALUES (3, 2, 4) ON CONFLICT(v) DO UPDATE SET c = excluded.c";
        tx.execute(upsert, ()).wait().unwrap();
        tx.commit().wait().unwrap();
        write(db, "CREATE VIEW view AS SELECT v FROM a");
        warm(db);
        write(
            db,
            "CREATE TRIGGER t INSTEAD OF INSERT ON view BEGIN
                 INSERT INTO a(v) VALUES (new.v); END",
        );
        let tx = db.transaction().unwrap();
        tx.execute("INSERT INTO view VALUES (77)", ()).wait().unwrap();
        tx.commit().wait().unwrap();
        write(db, "CREATE INDEX gone ON a(c)");
        warm(db);
        write(db, "DROP INDEX gone");
        let tx = db.transaction().unwrap();
        let by_index = tx.query_row("SELECT v FROM a INDEXED BY gone WHERE c = 4", (), number);
        assert_eq!(by_index.wait().unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(ask(&tx, "SELECT v FROM a WHERE c = 4"), 2);
    });
}

#[test]
fn a_reader_sees_every_acknowledged_change_of_the_schema() {
    let names = |db: &Database, sql: &'static str| {
        db.read(move |tx| {
            let mut query = tx.prepare_cached(sql)?;
            let at = if sql.contains("foreign") { "table" } else { "name" };
            let names = query.query_map((), |row| row.get::<_, String>(at))?;
            Ok::<_, Error>(names.collect::<Result<Vec<_>, _>>()?)
        })
        .wait()
        .unwrap()
    };
    let plan = |db: &Database| -> String {
        let sql = "EXPLAIN QUERY PLAN SELECT * FROM a WHERE v = 5 AND v + 1 = 6";
        db.read(move |tx| tx.query_row(sql, (), |row| row.get(3))).wait().unwrap()
    };
    each_sharing(|db| {
        assert_eq!(plan(db), "SCAN a");
        assert_eq!(names(db, "PRAGMA index_list(a)"), Vec::<String>::new());
        write(db, "CREATE INDEX on_v ON a(v)");
        assert_eq!(names(db, "PRAGMA index_list(a)"), ["on_v"]);
        assert!(plan(db).contains("on_v"), "{}", plan(db));
        write(db, "ALTER TABLE a ADD COLUMN c REFERENCES b(id)");
        assert_eq!(names(db, "PRAGMA table_info(a)"), ["id", "v", "c"]);
        assert_eq!(names(db, "PRAGMA foreign_key_list(a)"), ["b"]);
        write(db, "CREATE INDEX on_sum ON a(v + 1)");
        write(
            db,
            "WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
             INSERT INTO a SELECT i, 5, NULL FROM n; ANALYZE",
        );
        let both = plan(db);
        write(db, "UPDATE a SET v = id; UPDATE a SET v = 5 WHERE id = 50; ANALYZE");
        let again: String = {
            let sql = "EXPLAIN QUERY PLAN SELECT * FROM a WHERE v = 5 AND v + 1 = 6";
            db.write(move |tx| tx.query_row(sql, (), |row| row.get(3))).wait().unwrap()
        };
        assert_eq!(plan(db), again, "before: {both}");
    });
}

#[test]
fn a_change_of_the_schema_that_fails_half_way_poisons_nobody() {
    let half_way = [
        ("ALTER TABLE a ADD COLUMN c CHECK (v <> 10)", "ALTER TABLE a ADD COLUMN c"),
        (
            "CREATE VIRTUAL TABLE words USING fts5(x, detail = bogus)",
            "CREATE VIRTUAL TABLE words USING fts5(x)",
        ),
        ("CREATE UNIQUE INDEX one ON two(x)", "CREATE INDEX one ON two(x)"),
    ];
    for (fails, then) in half_way {
        let (_directory, _, db) = database(Options::new());
        write(&db, "CREATE TABLE two(x); INSERT INTO two VALUES (1), (1)");
        let handled = db.write(move |tx| {
            tx.execute("UPDATE b SET v = 1", ())?;
            for _ in 0..2 {
                tx.execute(fails, ()).unwrap_err();
                tx.execute_batch(fails).unwrap_err();
                tx.prepare(fails)?.execute(()).unwrap_err();
                tx.prepare_cached(fails)?.execute(()).unwrap_err();
            }
            Ok::<_, Error>(())
        });
        handled.wait().unwrap();
        let tx = db.transaction().unwrap();
        tx.execute(fails, ()).wait().unwrap_err();
        tx.execute("UPDATE b SET v = 2", ()).wait().unwrap();
        tx.commit().wait().unwrap();
        let tx = db.transaction().unwrap();
        tx.execute(then, ()).wait().unwrap_or_else(|error| panic!("{then}: {error}"));
        tx.rollback();
        assert_eq!(ask_writer(&db, "SELECT v FROM b"), 2);
        db.write(move |tx| tx.execute_batch(then)).wait().unwrap();
    }
}

#[test]
fn a_change_of_the_schema_that_is_undone_is_forgotten() {
    let (_directory, _, db) = database(Options::new());
    for sql in ["CREATE TABLE c(x)", "ALTER TABLE a RENAME TO c", "DROP TABLE a"] {
        let tx = db.transaction().unwrap();
        tx.savepoint("s").wait().unwrap();
        tx.execute(sql, ()).wait().unwrap();
        tx.rollback_to("s").wait().unwrap();
        assert_eq!(ask(&tx, "SELECT v FROM a"), 10, "{sql}");
        tx.execute("UPDATE b SET v = v + 1", ()).wait().unwrap();
        tx.commit().wait().unwrap();
        assert_eq!(ask_writer(&db, "SELECT v FROM a"), 10, "{sql}");
    }
}

#[test]
fn a_change_of_the_schema_before_one_that_failed_is_forgotten_when_both_are_undone() {
    each_sharing(|db| {
        write(db, "CREATE TABLE strict(v INT) STRICT");
        for _ in 0..3 {
            let told = db.write(|tx| {
                tx.execute("CREATE INDEX one ON strict(v)", ())?;
                let failed = tx.execute("ALTER TABLE strict ADD COLUMN z AS (v)", ());
                assert_eq!(failed.unwrap_err().kind(), ErrorKind::Invalid);
                Err::<(), _>(Error::aborted("both are undone"))
            });
            assert_eq!(told.wait().unwrap_err().kind(), ErrorKind::Aborted);
        }
        let tx = db.transaction().unwrap();
        tx.savepoint("s").wait().unwrap();
        tx.execute("CREATE INDEX one ON strict(v)", ()).wait().unwrap();
        tx.execute("ALTER TABLE strict ADD COLUMN z AS (v)", ()).wait().unwrap_err();
        tx.rollback_to("s").wait().unwrap();
        tx.execute("CREATE INDEX one ON strict(v)", ()).wait().unwrap();
        tx.commit().wait().unwrap();
    });
}

#[test]
fn full_text_search_is_whole_when_the_schema_is_read_again_between_its_changes() {
    // What fails has SQLite forget the schema, too.
    let again = ["ANALYZE", "ALTER TABLE strict ADD COLUMN z AS (v)", "CREATE INDEX once ON a(v)"];
    each_sharing(|db| {
        write(db, "CREATE TABLE strict(v INT) STRICT");
        for change in again {
            for module in ["fts5(x, detail=none)", "fts5(x)", "fts4(x)"] {
                let create = format!("CREATE VIRTUAL TABLE f USING {module}");
                db.write(move |tx| tx.execute_batch(&create)).wait().unwrap();
                let insert = "INSERT INTO f(x) VALUES ('grey red')";
                let write_thrice = db.write(move |tx| {
                    for _ in 0..3 {
                        tx.execute(insert, ())?;
                        let _ = tx.execute(change, ());
                    }
                    Ok::<_, Error>(())
                });
                write_thrice.wait().unwrap();
                let found = "SELECT count(*) FROM f WHERE f MATCH 'grey'";
                assert_eq!(ask_writer(db, found), 3, "{module} beside {change}");
                let tx = db.transaction().unwrap();
                for _ in 0..3 {
                    tx.execute(insert, ()).wait().unwrap();
                    let _ = tx.execute(change, ()).wait();
                }
                tx.commit().wait().unwrap();
                assert_eq!(ask_writer(db, found), 6, "{module} beside {change}");
                let check =
                    db.write(|tx| tx.execute("INSERT INTO f(f) VALUES ('integrity-check')", ()));
                assert_eq!(check.wait().map_err(|error| error.to_string()), Ok(1));
                write(db, "DROP TABLE f; DROP INDEX IF EXISTS once");
            }
        }
    });
}

#[test]
fn a_change_of_the_schema_that_failed_plans_for_nobody() {
    each_sharing(|db| {
        write(
            db,
            "CREATE TABLE few(id INTEGER PRIMARY KEY, v, w);
             CREATE INDEX by_v ON few(v, w);
             INSERT INTO few(v, w) VALUES (1, 3), (1, 2), (1, 1);
             ANALYZE",
        );
        let plan = "EXPLAIN QUERY PLAN SELECT w FROM few WHERE v = 1 AND id < 9";
        let told = move |tx: &ReadTx<'_>| tx.query_row(plan, (), |row| row.get::<_, String>(3));
        let before = db.write(move |tx| told(tx)).wait().unwrap();
        for failing in [
            "CREATE UNIQUE INDEX one ON few(v)",
            "EXPLAIN CREATE INDEX one ON few(w)",
            "ALTER TABLE few ADD COLUMN v",
            "ALTER TABLE few RENAME COLUMN w TO x",
            "ALTER TABLE few RENAME COLUMN x TO w",
        ] {
            for _ in 0..2 {
                let run = move |tx: &Tx<'_>| {
                    // What it says is not the question.
                    let _ = tx.query_row(failing, (), |_| Ok(()));
                    let _ = tx.execute(failing, ());
                    Ok::<_, Error>(())
                };
                db.write(run).wait().unwrap();
                let tx = db.transaction().unwrap();
                let _ = tx.execute(failing, ()).wait();
                tx.commit().wait().unwrap();
            }
            if failing.contains("RENAME") {
                continue;
            }
            assert_eq!(db.write(move |tx| told(tx)).wait().unwrap(), before, "{failing}");
            assert_eq!(db.read(told).wait().unwrap(), before, "{failing}");
        }
        assert_eq!(db.write(move |tx| told(tx)).wait().unwrap(), before);
    });
}

#[test]
fn a_change_of_the_schema_may_come_while_rows_of_a_change_are_read() {
    each_sharing(|db| {
        write(db, "CREATE TABLE kept(v); INSERT INTO kept VALUES ('abc')");
        for (at, change) in ["CREATE TABLE IF NOT EXISTS n(v)", "ANALYZE", "CREATE TABLE n(v)"]
            .into_iter()
            .enumerate()
        {
            let seen = db.write(move |tx| {
                let mut insert = tx.prepare(
                    "INSERT INTO b SELECT id + 7, 7 FROM b UNION SELECT 99, 7 RETURNING 1",
                )?;
                let mut rows = insert.query(())?;
                let mut seen = 0;
                while rows.next()?.is_some() {
                    let told = tx.execute(change, ());
                    assert_eq!(told.is_err(), change == "CREATE TABLE n(v)", "{told:?}");
                    seen += tx.query_row("SELECT count(*) FROM n", (), number)?;
                }
                drop(rows);
                let mut blob = tx.blob_open_mut("kept", "v", 1)?;
                let _ = tx.execute(change, ());
                blob.write_at(b"x", 0)?;
                drop(blob);
                tx.execute("DELETE FROM b WHERE id > 1", ())?;
                // Forgotten half-way.
                let mut update = tx.prepare("UPDATE b SET v = v RETURNING 1")?;
                std::mem::forget(update.query(())?);
                let _ = tx.execute(change, ());
                std::mem::forget(update);
                Ok::<_, Error>(seen)
            });
            assert_eq!(seen.wait().unwrap(), 0, "{at}");
        }
        assert_eq!(ask_writer(db, "SELECT count(*) FROM b"), 1);
    });
}

#[test]
fn a_refused_index_leaves_the_plans_of_its_connection_as_they_were() {
    each_sharing(|db| {
        write(
            db,
            "CREATE TABLE few(v); CREATE TABLE many(v);
             INSERT INTO few VALUES (1), (2), (3);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
             INSERT INTO many SELECT i FROM n; ANALYZE",
        );
        let outer = "EXPLAIN QUERY PLAN SELECT * FROM many, few WHERE few.v > many.v";
        let text = |row: &Row<'_>| row.get::<_, String>(3);
        let index = "CREATE INDEX on_few ON few(v)";
        db.read(move |tx| {
            let before = tx.query_row(outer, (), text)?;
            assert_eq!(before, "SCAN few");
            let refused = tx.prepare(index)?.execute(()).unwrap_err();
            assert!(refused.to_string().contains("readonly"), "{refused}");
            assert_eq!(tx.query_row(outer, (), text)?, before);
            let _ = tx.prepare_cached(index)?.execute(());
            assert_eq!(tx.query_row(outer, (), text)?, before);
            let _ = tx.query_row(index, (), |_| Ok(()));
            Ok::<_, Error>(())
        })
        .wait()
        .unwrap();
        for _ in 0..4 {
            let plan = db.read(move |tx| tx.query_row(outer, (), text)).wait().unwrap();
            assert_eq!(plan, "SCAN few");
        }
        let tx = db.transaction().unwrap();
        tx.query_row("EXPLAIN CREATE INDEX on_few ON few(v)", (), |_| Ok(())).wait().unwrap();
        assert_eq!(tx.query_row(outer, (), text).wait().unwrap(), "SCAN few");
        ask(&tx, "UPDATE a SET v = 11 RETURNING v");
        tx.query_row("EXPLAIN CREATE INDEX on_few ON few(v)", (), |_| Ok(())).wait().unwrap();
        assert_eq!(tx.query_row(outer, (), text).wait().unwrap(), "SCAN few");
    });
}

#[test]
fn an_index_that_is_tried_in_the_writer_leaves_the_plans_of_others_as_they_were() {
    let options = Options::new()
        .interactive(InteractiveOptions::default().connections(1))
        .sharing(Sharing::Shared);
    let (_directory, _, db) = database(options);
    write(
        &db,
        "CREATE TABLE few(v); CREATE TABLE many(v); INSERT INTO few VALUES (1), (2), (3);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
         INSERT INTO many SELECT i FROM n; ANALYZE",
    );
    // The plan decides which row comes first. (An EXPLAIN would be noticed.)
    let first = |sql| ask(&db.transaction().unwrap(), sql);
    assert_eq!(first("SELECT few.v FROM many, few WHERE few.v <> many.v LIMIT 1"), 1);
    let tx = db.transaction().unwrap();
    tx.execute("CREATE INDEX on_few ON few(v)", ()).wait().unwrap();
    drop(tx);
    // Prepared anew.
    assert_eq!(first("SELECT few.v FROM many, few WHERE many.v <> few.v LIMIT 1"), 1);
}

#[test]
fn a_table_that_takes_a_name_with_statistics_is_planned_with_them_by_everybody() {
    const PLAN: &str = "EXPLAIN QUERY PLAN SELECT * FROM t WHERE a = 1 AND b = 1";
    each_sharing(|db| {
        write(
            db,
            "CREATE TABLE t(a, b); CREATE INDEX on_a ON t(a); CREATE INDEX on_b ON t(b);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
             INSERT INTO t SELECT i % 2, i FROM n; ANALYZE;
             DROP INDEX on_a; DROP INDEX on_b;
             INSERT INTO sqlite_stat1 VALUES ('t', 'by_a', '2000 1'), ('t', 'by_b', '2000 1000')",
        );
        let text = |row: &Row<'_>| row.get::<_, String>(3);
        let planned = db.write(move |tx| {
            tx.execute("ALTER TABLE t RENAME TO before", ())?;
            tx.execute("CREATE TABLE t(a, b)", ())?;
            tx.execute("CREATE INDEX by_a ON t(a)", ())?;
            tx.execute("CREATE INDEX by_b ON t(b)", ())?;
            tx.query_row(PLAN, (), text)
        });
        let planned = planned.wait().unwrap();
        assert!(planned.contains("by_a"), "{planned}");
        let afterwards = db.write(move |tx| tx.query_row(PLAN, (), text)).wait().unwrap();
        assert_eq!(afterwards, planned);
        assert_eq!(db.read(move |tx| tx.query_row(PLAN, (), text)).wait().unwrap(), planned);
        let tx = db.transaction().unwrap();
        assert_eq!(tx.query_row(PLAN, (), text).wait().unwrap(), planned);
    });
}

#[test]
fn what_was_not_there_to_be_dropped_may_be_there_now() {
    each_sharing(|db| {
        let drops = [
            ("CREATE TABLE late(v)", "DROP TABLE IF EXISTS late"),
            ("CREATE INDEX late ON a(v)", "DROP INDEX IF EXISTS late"),
            ("CREATE VIEW late AS SELECT 1", "DROP VIEW IF EXISTS late"),
            (
                "CREATE TRIGGER late AFTER INSERT ON a BEGIN SELECT 1; END",
                "DROP TRIGGER IF EXISTS late",
            ),
        ];
        for (create, drop) in drops {
            for _ in 0..2 {
                let tx = db.transaction().unwrap();
                tx.execute(drop, ()).wait().unwrap();
                tx.commit().wait().unwrap();
            }
            write(db, create);
            let tx = db.transaction().unwrap();
            tx.execute(drop, ()).wait().unwrap();
            tx.commit().wait().unwrap();
            write(db, create);
            write(db, drop);
        }
    });
}

#[test]
fn a_table_that_was_renamed_meanwhile_is_missing_in_the_same_words() {
    each_sharing(|db| {
        write(db, "CREATE TABLE old(v)");
        const INSERT: &str = "INSERT INTO old VALUES (1)";
        for name in ["x", "y"] {
            let warm = db.transaction().unwrap();
            warm.execute(INSERT, ()).wait().unwrap();
            drop(warm);
            let rename = format!("ALTER TABLE old RENAME TO {name}");
            db.write(move |tx| tx.execute_batch(&rename)).wait().unwrap();
            let tx = db.transaction().unwrap();
            for _ in 0..2 {
                let told = tx.execute(INSERT, ()).wait().unwrap_err();
                assert_eq!(told.message(), "no such table: old");
            }
            ask(&tx, "SELECT count(*) FROM a");
            tx.commit().wait().unwrap();
            let rename = format!("ALTER TABLE {name} RENAME TO old");
            db.write(move |tx| tx.execute_batch(&rename)).wait().unwrap();
        }
    });
}
