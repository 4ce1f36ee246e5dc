//! Changes of the schema, and who learns of them when.

use monolite::{Database, Error, ErrorKind, Options, ReadTx, Sharing, rusqlite};

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

/// Preparing `CREATE INDEX` raises the estimated rows of its table in the memory of its connection.
#[test]
fn an_index_that_was_not_made_leaves_no_other_plan() {
    let plan = "EXPLAIN QUERY PLAN SELECT * FROM a WHERE v = 1";
    let index = "CREATE INDEX other ON a(id)";
    type Try = fn(&ReadTx<'_>, &str);
    let tries: [(&str, Try); 6] = [
        ("run", |tx, sql| assert!(tx.query_row(sql, (), number).is_err())),
        ("prepared", |tx, sql| drop(tx.prepare(sql).unwrap())),
        ("prepared, and run", |tx, sql| assert!(tx.prepare(sql).unwrap().execute(()).is_err())),
        ("prepared, and kept", |tx, sql| drop(tx.prepare_cached(sql).unwrap())),
        ("explained", |tx, sql| {
            let explain = format!("EXPLAIN {sql}");
            assert!(tx.query_map(&explain, (), |_| Ok(())).is_ok());
        }),
        ("prepared, and explained", |tx, sql| {
            let mut explain = tx.prepare(&format!("EXPLAIN {sql}")).unwrap();
            assert!(explain.exists(()).unwrap());
        }),
    ];
    let (_directory, _, db) = database(Options::new().readers(1));
    write(&db, "CREATE INDEX on_v ON a(v); ANALYZE");
    let told = |tx: &ReadTx<'_>| tx.query_row(plan, (), |row| row.get::<_, String>(3));
    for (how, attempt) in tries {
        let attempted = db.read(move |tx| {
            attempt(tx, index);
            Ok::<_, Error>(())
        });
        attempted.wait().unwrap();
        assert_eq!(db.read(move |tx| told(tx)).wait().unwrap(), "SCAN a", "{how}");
        let again = db.read(move |tx| {
            attempt(tx, index);
            told(tx)
        });
        assert_eq!(again.wait().unwrap(), "SCAN a", "{how}, in one read");
    }
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

/// As a program makes one that has its texts in Latin-1.
#[test]
fn a_schema_that_is_not_utf8_is_refused() {
    for of in ["menu", "list", "by_drink"] {
        let (_directory, path, db) = database(Options::new());
        write(
            &db,
            "CREATE TABLE menu(drink brew); CREATE VIEW list AS SELECT 1 AS brew;
             CREATE INDEX by_drink ON menu(drink) WHERE drink <> 'brew'",
        );
        db.close().unwrap();
        let plain = rusqlite::Connection::open(&path).unwrap();
        plain.execute_batch("PRAGMA writable_schema = ON").unwrap();
        let sql = "UPDATE sqlite_schema SET sql = CAST(replace(CAST(sql AS BLOB), CAST('brew' \
                   AS BLOB), x'636166e9') AS TEXT) WHERE name = ?1";
        assert_eq!(plain.execute(sql, [of]).unwrap(), 1);
        plain.close().unwrap();
        let error = Database::open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(&format!("not UTF-8, of {of}: write")), "{error}");
        let error = Database::check_file(&path).wait().unwrap_err();
        assert!(error.to_string().contains(&format!("not UTF-8, of {of}")), "{error}");
    }
}
