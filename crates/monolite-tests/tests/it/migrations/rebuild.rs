//! The declared rebuild of a table: each feature of a schema is carried, or named and nothing is
//! changed.

mod features;

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use monolite::rusqlite::{self, Connection};
use monolite::{Database, ErrorKind, Migrations, Options};

use features::{CARRIED, REFUSED};

/// Everything in the file, but what the engine notes: the schema in its order, and each row with
/// its rowid.
pub(super) fn dump(plain: &Connection, without: &str) -> String {
    let mut text = String::new();
    let schema = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE \
                  'monolite\\_%' ESCAPE '\\' AND tbl_name NOT LIKE 'monolite\\_%' ESCAPE '\\'";
    let of = |row: &rusqlite::Row<'_>| {
        Ok((
            row.get::<_, String>(0)?,
            row.get::<_, String>(1)?,
            row.get::<_, String>(2)?,
            row.get(3)?,
        ))
    };
    let mut all: Vec<(String, String, String, Option<String>)> =
        plain.prepare(schema).unwrap().query_map((), of).unwrap().map(Result::unwrap).collect();
    all.sort();
    for (kind, name, table, sql) in &all {
        let is_left_out = kind == "table" && name.eq_ignore_ascii_case(without);
        let is_own = sql.is_none() && table.eq_ignore_ascii_case(without);
        if is_left_out || is_own && !without.is_empty() {
            continue;
        }
        writeln!(text, "{kind} {name} {table} {sql:?}").unwrap();
        let is_virtual = sql.as_ref().is_some_and(|sql| sql.starts_with("CREATE VIRTUAL"));
        // The words of an index that was made anew may lie elsewhere.
        let may_differ = is_of_full_text(name) && !without.is_empty();
        if kind == "table" && !is_virtual && !may_differ {
            text += &rows(plain, name);
        }
    }
    text
}

fn is_of_full_text(name: &str) -> bool {
    ["_data", "_idx", "_docsize", "_stat", "_segdir", "_segments"]
        .iter()
        .any(|it| name.ends_with(it))
}

fn rows(plain: &Connection, table: &str) -> String {
    let table = format!("\"{}\"", table.replace('"', "\"\""));
    let with_rowid = format!("SELECT _rowid_, * FROM {table} ORDER BY 1");
    let without = format!("SELECT * FROM {table} ORDER BY 1, 2");
    let mut select = plain.prepare(&with_rowid).or_else(|_| plain.prepare(&without)).unwrap();
    let count = select.column_count();
    let mut found = select.query(()).unwrap();
    let mut text = String::new();
    while let Some(row) = found.next().unwrap() {
        (0..count).for_each(|at| write!(text, "{:?}|", row.get_ref(at).unwrap()).unwrap());
        text += "\n";
    }
    text
}

/// What the last statement of `script` gives behind all before it, which are undone.
fn probe(plain: &Connection, script: &str) -> String {
    plain.execute_batch("BEGIN").unwrap();
    let (first, last) = script.rsplit_once(';').unwrap_or(("", script));
    let ran = plain.execute_batch(first);
    assert!(ran.is_ok(), "{script}: {ran:?}");
    let mut text = String::new();
    {
        let mut select = plain.prepare(last).unwrap();
        let count = select.column_count();
        let mut found = select.query(()).unwrap();
        while let Some(row) = found.next().unwrap() {
            (0..count).for_each(|at| write!(text, "{:?}|", row.get_ref(at).unwrap()).unwrap());
        }
    }
    plain.execute_batch("ROLLBACK").unwrap();
    assert!(!text.is_empty(), "{script} gives nothing");
    text
}

pub(super) fn plain(path: &Path) -> Connection {
    let plain = Connection::open(path).unwrap();
    plain.execute_batch("PRAGMA foreign_keys = ON").unwrap();
    plain
}

/// A database with `schema`, made by plain SQLite.
fn database(path: &Path, schema: &str) {
    Database::open(path).unwrap().close().unwrap();
    let made = Connection::open(path).unwrap().execute_batch(schema);
    assert!(made.is_ok(), "{schema}: {made:?}");
}

fn migrations(rebuild: &str) -> Migrations {
    let head = if rebuild.starts_with("--") { "" } else { "-- monolite: rebuild=t\n" };
    Migrations::new().with("0001_rebuild.sql", &format!("{head}{rebuild}")).unwrap()
}

pub(super) fn is_sound(plain: &Connection) -> bool {
    let check = |sql: &str| probe(plain, sql);
    let violations: i64 = plain
        .query_row("SELECT count(*) FROM pragma_foreign_key_check", (), |row| row.get(0))
        .unwrap();
    check("PRAGMA integrity_check") == "Text([111, 107])|" && violations == 0
}

/// Runs `check` with each feature and a path of its own, and names all that fail.
fn each<F>(all: impl Iterator<Item = (&'static str, F)>, check: impl Fn(F, &Path)) {
    let directory = tempfile::tempdir().unwrap();
    let mut failed = Vec::new();
    for (at, (name, feature)) in all.enumerate() {
        let path = directory.path().join(format!("{at}.db"));
        let run = AssertUnwindSafe(|| check(feature, &path));
        failed.extend(catch_unwind(run).err().map(|_| name));
    }
    assert!(failed.is_empty(), "failed: {failed:#?}");
}

#[test]
fn each_feature_of_a_schema_is_carried() {
    each(CARRIED.iter().map(|it| (it.name, it)), |feature, path| {
        let name = feature.name;
        database(path, feature.schema);
        let state = || {
            let plain = plain(path);
            let probes: Vec<_> = feature.probes.iter().map(|it| probe(&plain, it)).collect();
            (dump(&plain, feature.table), probes)
        };
        let before = state();
        let db = Database::open(path).unwrap();
        let all = migrations(feature.rebuild);
        // It is tried first, which leaves everything as it was.
        let tried = all.dry_run(&db).wait();
        assert!(tried.is_ok(), "{name}: {tried:?}");
        let made = all.up(&db).wait();
        assert!(made.is_ok(), "{name}: {made:?}");
        // Others that have the database open go on with the new table.
        let count = format!("SELECT count(*) FROM \"{}\"", feature.table.replace('"', "\"\""));
        db.read(move |tx| tx.query_row(&count, (), |row| row.get::<_, i64>(0))).wait().unwrap();
        assert!(db.check().wait().unwrap().is_sound(), "{name}");
        db.close().unwrap();
        let after = state();
        assert_eq!(before.1, after.1, "{name}");
        if feature.adds.is_empty() {
            assert_eq!(before.0, after.0, "{name}");
        }
        for added in feature.adds {
            assert!(after.0.contains(added), "{name}: {added} is in {}", after.0);
        }
        let plain = plain(path);
        assert!(is_sound(&plain), "{name}");
        let sql = "SELECT count(*) FROM sqlite_schema WHERE sql LIKE '%monolite_rebuild%' OR name \
                   LIKE '%monolite_rebuild%'";
        assert_eq!(probe(&plain, sql), "Integer(0)|", "{name}");
    });
}

#[test]
fn a_feature_that_cannot_be_carried_is_named_and_nothing_is_changed() {
    each(REFUSED.iter().map(|it| (it.name, it)), |feature, path| {
        let name = feature.name;
        database(path, feature.schema);
        let before = dump(&plain(path), "");
        let db = Database::open(path).unwrap();
        let all = migrations(feature.rebuild);
        let tried = all.dry_run(&db).wait().unwrap_err();
        let error = all.up(&db).wait().expect_err(name);
        assert_eq!(tried.to_string(), error.to_string(), "{name}");
        assert_eq!(error.kind(), feature.kind, "{name}: {error}");
        let told = error.to_string();
        for word in feature.told {
            assert!(told.contains(word), "{name}: {word:?} is not in: {told}");
        }
        assert!(!told.contains("monolite_rebuild"), "{name}: {told}");
        db.close().unwrap();
        let plain = plain(path);
        assert_eq!(before, dump(&plain, ""), "{name}");
        assert_eq!(probe(&plain, "PRAGMA integrity_check"), "Text([111, 107])|", "{name}");
    });
}

#[test]
fn a_rebuild_that_is_ended_leaves_everything_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    database(
        &path,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); CREATE INDEX i ON t(a); CREATE INDEX j ON \
         t(b); CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT 1; END; CREATE TABLE c(t REFERENCES \
         t); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 60000) INSERT \
         INTO t SELECT i, hex(randomblob(9)), i FROM n; INSERT INTO c SELECT id FROM t",
    );
    let before = dump(&plain(&path), "");
    let all = migrations("CREATE TABLE t(id INTEGER PRIMARY KEY, a, b, c)");
    let mut is_made = false;
    // Somewhere in the copy, in an index, in the checks.
    for milliseconds in [1, 3, 6, 10, 15, 20, 30, 45, 60, 80, 110, 150, 10_000] {
        let db = Options::new().open(&path).unwrap();
        let limited = all.clone().time_limit(Duration::from_millis(milliseconds)).unwrap();
        let made = limited.up(&db).wait();
        let after = db.read(|tx| {
            tx.query_row("SELECT count(*), sum(b) FROM t", (), |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
            })
        });
        assert_eq!(after.wait().unwrap(), (60_000, 60_000 * 60_001 / 2));
        db.close().unwrap();
        match made {
            Ok(_) => {
                is_made = true;
                break;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Timeout, "{error}"),
        }
        assert_eq!(before, dump(&plain(&path), ""), "{milliseconds}");
    }
    assert!(is_made && is_sound(&plain(&path)));
    assert_ne!(before, dump(&plain(&path), ""));
}

#[test]
fn a_rebuild_that_was_refused_is_forgotten() {
    let db = Database::open(":memory:").unwrap();
    let schema = "CREATE TABLE t(id INTEGER PRIMARY KEY, a); CREATE VIEW v AS SELECT a FROM t";
    db.write(move |tx| tx.execute_batch(schema)).wait().unwrap();
    // It is found behind the swap, and on the way to the same version of the schema others follow.
    let all = migrations("CREATE TABLE t(id INTEGER PRIMARY KEY, b)");
    for round in 0..3 {
        let ended = if round < 2 { all.up(&db).wait() } else { all.dry_run(&db).wait() };
        assert!(ended.unwrap_err().to_string().contains("the view v ("));
        for at in 0..12 {
            let columns = db.write(move |tx| {
                tx.execute_batch(&format!("CREATE TABLE x{round}_{at}(v)"))?;
                let sql = "SELECT group_concat(name) FROM pragma_table_info('t')";
                let columns: String = tx.query_row(sql, (), |row| row.get(0))?;
                tx.query_row("SELECT count(a) FROM t", (), |_| Ok(columns))
            });
            assert_eq!(columns.wait().unwrap(), "id,a", "{round}, {at}");
        }
    }
}

#[test]
fn foreign_keys_are_on_behind_a_rebuild_and_a_dry_run() {
    let db = Database::open(":memory:").unwrap();
    let schema = "CREATE TABLE t(id INTEGER PRIMARY KEY, a);
        CREATE TABLE c(t REFERENCES t(id) ON DELETE CASCADE);
        INSERT INTO t VALUES (1, 2); INSERT INTO c VALUES (1)";
    db.write(move |tx| tx.execute_batch(schema)).wait().unwrap();
    let rebuild = "-- monolite: rebuild=t\nCREATE TABLE t(id INTEGER PRIMARY KEY, a, b)";
    // The second has foreign keys on in the same transaction.
    let deletes = ("2_deletes.sql", "DELETE FROM t WHERE id = 1");
    let orphan = ("3_orphan.sql", "INSERT INTO c VALUES (77)");
    let deferred = "PRAGMA defer_foreign_keys = ON; INSERT INTO c VALUES (78)";
    let of = |all: &[(&str, &str)]| {
        let with = |all: Migrations, (name, sql): &(&str, &str)| all.with(name, sql).unwrap();
        all.iter().fold(Migrations::new(), with)
    };
    let rebuild = ("1_rebuild.sql", rebuild);
    let emptied = "SELECT count(*) FROM c";
    let good = of(&[rebuild, deletes, ("3_none.sql", "CREATE TABLE x AS SELECT count(*) FROM c")]);
    assert_eq!(good.dry_run(&db).wait().unwrap().len(), 3);
    let count = |sql: &'static str| {
        db.read(move |tx| tx.query_row(sql, (), |row| row.get::<_, i64>(0))).wait().unwrap()
    };
    assert_eq!(count(emptied), 1);
    assert_eq!(count("SELECT count(*) FROM pragma_table_info('t')"), 2);
    for (bad, told) in [
        (of(&[rebuild, orphan]), "3_orphan.sql:1:1: FOREIGN KEY"),
        (
            of(&[rebuild, ("3_late.sql", deferred)]),
            "3_late.sql: foreign keys are violated after it",
        ),
        (of(&[orphan]), "3_orphan.sql:1:1: FOREIGN KEY"),
    ] {
        let error = bad.dry_run(&db).wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Constraint);
        assert!(error.to_string().contains(told), "{error}");
        let error = db.write(|tx| tx.execute("INSERT INTO c VALUES (79)", ())).wait();
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Constraint);
    }
    good.up(&db).wait().unwrap();
    assert_eq!(count(emptied), 0, "the second has deleted by ON DELETE CASCADE");
    assert!(good.dry_run(&db).wait().unwrap().is_empty());
    let error = of(&[rebuild]).dry_run(&db).wait().unwrap_err();
    assert!(error.to_string().contains("was applied to this database and is missing"), "{error}");
}

#[test]
fn a_plan_tells_rows_indexes_and_time() {
    let db = Database::open(":memory:").unwrap();
    let schema = "CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE); CREATE INDEX i ON t(a);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 4000)
        INSERT INTO t SELECT i, i FROM n";
    db.write(move |tx| tx.execute_batch(schema)).wait().unwrap();
    let sql = "-- monolite: rebuild=T\n-- monolite: rebuild=later\nCREATE TABLE t(a);";
    let all = Migrations::new().with("1_a.sql", "CREATE TABLE later(v)").unwrap();
    let told = all.clone().with("2_b.sql", sql).unwrap().plan(&db).unwrap_err().to_string();
    assert!(told.contains("2_b.sql") && told.contains("no CREATE TABLE later"), "{told}");
    let sql = &format!("{sql} CREATE TABLE later(w)");
    let planned = all.with("2_b.sql", sql).unwrap().plan(&db).unwrap();
    assert!(planned[0].rebuilds.is_empty() && planned[0].name == "1_a.sql");
    let [t, later] = &*planned[1].rebuilds else { panic!("{planned:?}") };
    assert_eq!((t.rows, t.indexes, later.rows), (Some(4_000), 1, None));
    assert!(t.time > Duration::ZERO && t.time < Duration::from_secs(1), "{planned:?}");
    assert_eq!(later.time, Duration::ZERO);
}

#[test]
fn an_open_transaction_meets_a_conflict_with_a_rebuild_or_goes_on_with_the_new_table() {
    let db = Database::open(":memory:").unwrap();
    let schema = "CREATE TABLE t(id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (1, 2)";
    db.write(move |tx| tx.execute_batch(schema)).wait().unwrap();
    let open = db.transaction().unwrap();
    open.execute("UPDATE t SET a = a + 1", ()).wait().unwrap();
    migrations("CREATE TABLE t(id INTEGER PRIMARY KEY, a, b NOT NULL DEFAULT 5)")
        .up(&db)
        .wait()
        .unwrap();
    match open.commit().wait() {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
    }
    let sum = "SELECT sum(b) FROM t";
    let sum = db.read(move |tx| tx.query_row(sum, (), |row| row.get::<_, i64>(0))).wait().unwrap();
    assert_eq!(sum, 5);
}
