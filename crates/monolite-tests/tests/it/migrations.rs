//! Migrations: each once, whole, in order, by one process or several.

mod online;
mod rebuild;

use std::path::Path;
use std::time::Duration;

use monolite::{Database, ErrorKind, Migrations, Options, Sharing, rusqlite};
use monolite_testkit::child::{say, variable};

use crate::child::spawn;
use crate::patience::one;

fn of(all: &[(&str, &str)]) -> Migrations {
    all.iter().fold(Migrations::new(), |all, (name, sql)| all.with(name, sql).unwrap())
}

const TABLES: (&str, &str) = (
    "0001_tables.sql",
    "CREATE TABLE parent(id INTEGER PRIMARY KEY, name TEXT);
     CREATE TABLE child(id INTEGER PRIMARY KEY,
         parent INTEGER NOT NULL REFERENCES parent(id) ON DELETE CASCADE);
     INSERT INTO parent VALUES (1, 'one'), (2, 'two');
     INSERT INTO child VALUES (10, 1), (20, 2), (21, 2);",
);

/// The twelve steps of <https://sqlite.org/lang_altertable.html>.
const REBUILD: (&str, &str) = (
    "0002_rebuild.sql",
    "-- monolite: foreign_keys=off
     CREATE TABLE new_parent(id INTEGER PRIMARY KEY, name TEXT NOT NULL CHECK (name <> ''));
     INSERT INTO new_parent SELECT id, name FROM parent;
     DROP TABLE parent;
     ALTER TABLE new_parent RENAME TO parent;",
);

fn planned(migrations: &Migrations, db: &Database) -> Vec<String> {
    migrations.plan(db).unwrap().into_iter().map(|it| it.name).collect()
}

#[test]
fn each_is_made_once_in_order_and_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let first = of(&[TABLES]);
    let both = of(&[("0003_index.sql", "CREATE INDEX names ON parent(name)"), TABLES]);
    let db = Database::open(&path).unwrap();
    assert!(first.verify(&db).unwrap_err().to_string().contains("0001_tables.sql is pending"));
    assert_eq!(first.up(&db).wait().unwrap(), ["0001_tables.sql"]);
    first.verify(&db).unwrap();
    assert_eq!(planned(&both, &db), ["0003_index.sql"]);
    db.close().unwrap();
    let db = Database::open(&path).unwrap();
    let up = both.up(&db);
    assert_eq!(up.wait().unwrap(), ["0003_index.sql"]);
    let status = both.status(&db).unwrap();
    assert_eq!(status.applied.iter().map(|it| it.number).collect::<Vec<_>>(), [1, 3]);
    assert!(status.applied[0].applied > 1_700_000_000 && status.problems.is_empty());
    // One of an older program: nothing is made by it.
    let error = first.up(&db).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error.to_string().contains("0003_index.sql was applied to this database and is missing")
    );
    let error = Migrations::new().up(&db).wait().unwrap_err();
    assert!(error.to_string().contains("0001_tables.sql"), "{error}");
    let edited = of(&[(TABLES.0, "SELECT 1"), ("0004_x.sql", "CREATE TABLE x(v)")]);
    let error = edited.up(&db).wait().unwrap_err();
    assert!(error.to_string().contains("0001_tables.sql was edited"), "{error}");
    assert_eq!(one(&db, "SELECT count(*) FROM sqlite_schema WHERE name = 'x'"), 0);
}

#[test]
fn one_that_fails_is_undone_and_those_before_it_stay() {
    let db = Database::open(":memory:").unwrap();
    let all = of(&[
        TABLES,
        ("0002_wrong.sql", "CREATE TABLE x(v); INSERT INTO nowhere VALUES (1);"),
        ("0003_never.sql", "CREATE TABLE y(v)"),
    ]);
    let error = all.up(&db).wait().unwrap_err();
    assert!(error.to_string().starts_with("migration 0002_wrong.sql:1:20: "), "{error}");
    assert_eq!(planned(&all, &db), ["0002_wrong.sql", "0003_never.sql"]);
    assert_eq!(one(&db, "SELECT count(*) FROM sqlite_schema WHERE name IN ('x', 'y')"), 0);
    // What would end the transaction is refused.
    let all = of(&[TABLES, ("0002_commits.sql", "CREATE TABLE x(v); COMMIT; BEGIN;")]);
    let error = all.up(&db).wait().unwrap_err();
    assert!(error.to_string().contains("delete BEGIN, COMMIT"), "{error}");
    assert_eq!(one(&db, "SELECT count(*) FROM sqlite_schema WHERE name = 'x'"), 0);
}

#[test]
fn a_table_that_others_refer_to_is_rebuilt_and_loses_no_child() {
    let db = Database::open(":memory:").unwrap();
    of(&[TABLES]).up(&db).wait().unwrap();
    // With foreign keys the children would go with their parents.
    let with_keys = REBUILD.1.replace("-- monolite: foreign_keys=off", "");
    let error = of(&[TABLES, ("0002_rebuild.sql", &with_keys)]).up(&db).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let told = "migration 0002_rebuild.sql:4:6: DROP TABLE parent is refused: child references it";
    assert!(error.to_string().starts_with(told), "{error}");
    assert!(error.to_string().contains("`-- monolite: foreign_keys=off`"), "{error}");
    assert_eq!(one(&db, "SELECT count(*) FROM child"), 3);

    of(&[TABLES, REBUILD]).up(&db).wait().unwrap();
    assert_eq!(one(&db, "SELECT count(*) FROM child"), 3);
    assert_keys_are_enforced(&db);
}

#[test]
fn a_drop_that_would_delete_rows_of_other_tables_is_refused() {
    let refused =
        ["DROP TABLE parent", "drop table if exists main.PARENT", "/* why */ DROP TABLE [Parent]"];
    let passes = [
        "DROP TABLE child",
        "DROP TABLE IF EXISTS missing",
        "DROP TABLE child; DROP TABLE parent;",
        "CREATE TABLE tree(id INTEGER PRIMARY KEY, up REFERENCES tree(id) ON DELETE CASCADE);
         INSERT INTO tree VALUES (1, NULL), (2, 1); DROP TABLE tree",
        "CREATE TABLE other(v); DROP TABLE other; DELETE FROM parent WHERE id = 1",
        "ALTER TABLE parent RENAME TO mother",
    ];
    for (sql, passes) in
        refused.map(|it| (it, false)).into_iter().chain(passes.map(|it| (it, true)))
    {
        let db = Database::open(":memory:").unwrap();
        of(&[TABLES]).up(&db).wait().unwrap();
        let applied = of(&[TABLES, ("0002_x.sql", sql)]).up(&db).wait();
        assert_eq!(applied.is_ok(), passes, "{sql}: {applied:?}");
        if !passes {
            assert_eq!(one(&db, "SELECT count(*) FROM child"), 3, "{sql}");
            assert_eq!(applied.unwrap_err().kind(), ErrorKind::Invalid, "{sql}");
        }
    }
    // A child that the same migration has created, and a rename that took a reference along.
    for sql in [
        "CREATE TABLE late(v REFERENCES Parent(id) ON DELETE SET NULL);
         DROP TABLE child; DROP TABLE parent",
        "ALTER TABLE parent RENAME TO old;
         CREATE TABLE parent(id INTEGER PRIMARY KEY); DROP TABLE old",
    ] {
        let db = Database::open(":memory:").unwrap();
        let error = of(&[TABLES, ("0002_x.sql", sql)]).up(&db).wait().unwrap_err();
        assert!(error.to_string().contains("is refused"), "{sql}: {error}");
    }
}

#[test]
fn a_rebuild_that_takes_references_along_is_refused_even_if_no_row_has_one() {
    let db = Database::open(":memory:").unwrap();
    let tables = (
        TABLES.0,
        "CREATE TABLE parent(id INTEGER PRIMARY KEY);
         CREATE TABLE child(v REFERENCES parent(id));
         CREATE TABLE early(v REFERENCES later(id));",
    );
    let sql = "-- monolite: foreign_keys=off
        ALTER TABLE parent RENAME TO old;
        CREATE TABLE parent(id INTEGER PRIMARY KEY, name TEXT);
        INSERT INTO parent SELECT id, '' FROM old;
        DROP TABLE old;";
    let error = of(&[tables, ("0002_x.sql", sql)]).up(&db).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Constraint);
    assert!(error.to_string().contains("child references old, which does not exist"), "{error}");
    // What led nowhere before is no fault of it.
    of(&[tables, ("0002_x.sql", "-- monolite: foreign_keys=off\nDROP TABLE child")])
        .up(&db)
        .wait()
        .unwrap();
}

#[test]
fn what_is_wrong_in_a_migration_is_told_with_its_place_and_a_remedy() {
    let db = Database::open(":memory:").unwrap();
    for (sql, told) in [
        (
            "CREATE TABLE x(v);\n\n  CREATE TABL y(v);",
            "0002_x.sql:3:10: near \"TABL\": syntax error",
        ),
        ("-- ö\nSELECT 1; /* ö */ SELECT missing", "0002_x.sql:2:26: no such column: missing"),
        ("SELECT 1;\n\n-- why\nINSERT INTO child VALUES (1, 9);", "0002_x.sql:4:1: FOREIGN KEY"),
        (
            "SELECT 1; BEGIN",
            "0002_x.sql:1:11: BEGIN is refused: a migration already is one transaction",
        ),
        ("SAVEPOINT s", "a migration already is one transaction"),
        ("PRAGMA foreign_keys=OFF", "begin the file with `-- monolite: foreign_keys=off`"),
        ("PRAGMA foreign_keys = on", "delete this statement"),
        ("\nINSERT INTO parent VALUES (3, ?1)", "0002_x.sql:2:1: the parameter ?1 is refused"),
        ("INSERT INTO parent VALUES (3, :name)", "the parameter :name is refused"),
    ] {
        let error = of(&[TABLES, ("0002_x.sql", sql)]).up(&db).wait().unwrap_err();
        assert!(error.to_string().contains(told), "{sql}: {error}");
    }
    // Outside of migrations it is told, too.
    let error = db.write(|tx| tx.execute_batch("PRAGMA foreign_keys = off")).wait().unwrap_err();
    assert!(error.to_string().contains("`-- monolite: foreign_keys=off`"), "{error}");
    let error = db.write(|tx| tx.execute_batch("COMMIT")).wait().unwrap_err();
    assert!(error.to_string().contains("the closure is the transaction"), "{error}");
}

/// As they always are behind a migration, however it ended.
fn assert_keys_are_enforced(db: &Database) {
    let error = db.write(|tx| tx.execute("INSERT INTO child VALUES (90, 9)", ())).wait();
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Constraint);
    let cascade = |tx: &monolite::Tx<'_>| {
        tx.execute("DELETE FROM parent WHERE id = 2", ())?;
        let left =
            tx.query_row("SELECT count(*) FROM child WHERE parent = 2", (), |row| row.get(0));
        Err::<(), _>(monolite::Error::aborted(left.map(|left: i64| left.to_string())?))
    };
    assert_eq!(db.write(cascade).wait().unwrap_err().to_string(), "0");
}

#[test]
fn foreign_keys_are_on_again_whatever_came_of_a_migration_without_them() {
    let off = "-- monolite: foreign_keys=off\n";
    let slow = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c) \
                INSERT INTO parent SELECT i + 100, 'x' FROM c";
    let large = "CREATE TABLE large(v); WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 \
                 FROM c LIMIT 20000) INSERT INTO large SELECT zeroblob(1000) FROM c";
    for (sql, kind) in [
        ("INSERT INTO nowhere VALUES (1)", Some(ErrorKind::Invalid)),
        ("INSERT INTO child VALUES (50, 50)", Some(ErrorKind::Constraint)),
        ("DROP TABLE parent", Some(ErrorKind::Constraint)),
        ("INSERT OR ROLLBACK INTO parent VALUES (1, 'again')", Some(ErrorKind::Constraint)),
        (slow, Some(ErrorKind::Timeout)),
        (large, Some(ErrorKind::Invalid)),
        ("INSERT INTO parent VALUES (3, 'three')", None),
    ] {
        let db = Options::new().wal_limit_bytes(8 << 20).open(":memory:").unwrap();
        of(&[TABLES]).up(&db).wait().unwrap();
        let all = of(&[TABLES, ("0002_x.sql", &format!("{off}{sql}"))]);
        let all = all.time_limit(Duration::from_millis(700)).unwrap();
        // Others write meanwhile, with foreign keys.
        let (up, beside) =
            (all.up(&db), db.write(|tx| tx.execute("INSERT INTO child VALUES (90, 9)", ())));
        let made = up.wait();
        assert_eq!(made.as_ref().err().map(|error| error.kind()), kind, "{sql}: {made:?}");
        assert_eq!(beside.wait().unwrap_err().kind(), ErrorKind::Constraint, "{sql}");
        assert_keys_are_enforced(&db);
        db.close().unwrap();
    }
}

#[test]
fn violated_foreign_keys_are_named_and_nothing_is_made() {
    let db = Database::open(":memory:").unwrap();
    of(&[TABLES]).up(&db).wait().unwrap();
    let lost = "-- monolite: foreign_keys=off\nDELETE FROM parent WHERE id = 2;";
    let error = of(&[TABLES, ("0002_lost.sql", lost)]).up(&db).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Constraint);
    assert!(error.to_string().contains("row 20 of child has no parent in parent"), "{error}");
    assert_eq!(one(&db, "SELECT count(*) FROM parent"), 2);
}

#[test]
fn a_migration_that_leaves_a_deferred_key_violated_is_named_with_the_tables() {
    let db = Database::open(":memory:").unwrap();
    let sql = "PRAGMA defer_foreign_keys = ON; INSERT INTO child VALUES (99, 98);";
    let error = of(&[TABLES, ("0002_orphan.sql", sql)]).up(&db).wait().unwrap_err();
    assert!(error.is_foreign_key_violation(), "{error}");
    assert!(error.to_string().starts_with("migration 0002_orphan.sql: "), "{error}");
    assert!(error.to_string().contains("child refers to rows that are not in parent"), "{error}");
    assert_eq!(one(&db, "SELECT count(*) FROM child WHERE parent = 98"), 0);
}

#[test]
fn a_migration_has_a_time_limit_of_its_own() {
    let options = Options::new().write_time_limit(Duration::from_millis(60));
    let db = options.open(":memory:").unwrap();
    let count = |rows: u64| {
        format!(
            "CREATE TABLE t{rows}(v); WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM \
             c LIMIT {rows}) INSERT INTO t{rows} SELECT count(*) FROM c"
        )
    };
    let long = count(3_000_000);
    let shared = long.clone();
    let error = db.write(move |tx| tx.execute_batch(&shared)).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    of(&[("1_long.sql", &long)]).up(&db).wait().unwrap();
    let short = of(&[("1_long.sql", &long), ("2_endless.sql", &count(u64::MAX >> 1))]);
    let short = short.time_limit(Duration::from_millis(50)).unwrap();
    let error = short.up(&db).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("2_endless.sql") || error.to_string().contains("its own"));
}

#[test]
fn the_table_of_migrations_is_out_of_reach() {
    let db = Database::open(":memory:").unwrap();
    of(&[TABLES]).up(&db).wait().unwrap();
    for sql in [
        "SELECT * FROM monolite_migrations",
        "DELETE FROM monolite_migrations",
        "DROP TABLE monolite_migrations",
        "CREATE TABLE x(v REFERENCES monolite_migrations(number))",
        "CREATE TRIGGER x AFTER INSERT ON parent BEGIN DELETE FROM monolite_migrations; END",
    ] {
        let error = db.write(move |tx| tx.execute_batch(sql)).wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{sql}: {error}");
    }
    let all = of(&[TABLES, ("2_forges.sql", "DELETE FROM monolite_migrations")]);
    assert!(all.up(&db).wait().is_err());
    of(&[TABLES]).verify(&db).unwrap();
    // It is there beside idempotency keys, and the file opens again.
    let keyed = db.transaction().unwrap();
    keyed.execute("INSERT INTO parent VALUES (5, 'five')", ()).wait().unwrap();
    keyed.commit_once("key", b"outcome".to_vec()).wait().unwrap();
    of(&[TABLES]).verify(&db).unwrap();
}

#[test]
fn a_directory_has_them_by_their_names() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write(TABLES.0, TABLES.1);
    write("README.md", "no migration");
    let db = Database::open(":memory:").unwrap();
    let all = Migrations::from_directory(directory.path()).unwrap();
    assert_eq!(all.up(&db).wait().unwrap(), ["0001_tables.sql"]);
    write("next.sql", "SELECT 1");
    let error = Migrations::from_directory(directory.path()).unwrap_err();
    assert!(error.to_string().contains("\"next.sql\" is no name of a migration"), "{error}");
    std::fs::remove_file(directory.path().join("next.sql")).unwrap();
    std::fs::write(directory.path().join("2_latin.sql"), b"-- \xfc").unwrap();
    let error = Migrations::from_directory(directory.path()).unwrap_err();
    assert!(error.to_string().contains("save it as UTF-8"), "{error}");
    std::fs::remove_file(directory.path().join("2_latin.sql")).unwrap();
    std::fs::create_dir(directory.path().join("2_x.sql")).unwrap();
    let error = Migrations::from_directory(directory.path()).unwrap_err();
    assert!(error.to_string().contains("only files may have"), "{error}");
    let error = Migrations::from_directory(directory.path().join("missing")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Storage);
}

/// The child: makes migrations beside others.
pub(crate) fn migrate_beside() -> anyhow::Result<()> {
    let db = Options::new().sharing(Sharing::Shared).open(variable::<String>("FILE")?)?;
    let made = many().up(&db).wait()?;
    say(&format!("made {}", made.len()));
    Ok(())
}

fn many() -> Migrations {
    (1..=20).fold(Migrations::new(), |all, number| {
        let sql = format!("CREATE TABLE t{number}(v); INSERT INTO t{number} VALUES (1);");
        all.with(&format!("{number}_t.sql"), &sql).unwrap()
    })
}

#[test]
fn processes_that_migrate_at_once_take_turns() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    Options::new().sharing(Sharing::Shared).open(&path).unwrap().close().unwrap();
    let file = path.to_str().unwrap();
    let children: Vec<_> = (0..3).map(|_| spawn("migrates beside", &[("FILE", file)])).collect();
    let made = children.into_iter().map(|mut child| {
        let made = child.await_word("made ").unwrap();
        made.parse::<i64>().unwrap()
    });
    assert_eq!(made.sum::<i64>(), 20, "each is made by one of them");
    assert_all_are_made(&path);
}

fn assert_all_are_made(path: &Path) {
    let plain = rusqlite::Connection::open(path).unwrap();
    let count = |sql: &str| plain.query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM monolite_migrations"), 20);
    (1..=20).for_each(|it| assert_eq!(count(&format!("SELECT count(*) FROM t{it}")), 1));
}

#[test]
fn a_program_has_them_in_itself() {
    let db = Database::open(":memory:").unwrap();
    let all = monolite::migrations!["migrations/0001_first.sql", "migrations/0002_second.sql"];
    assert_eq!(all.unwrap().up(&db).wait().unwrap(), ["0001_first.sql", "0002_second.sql"]);
    assert!(monolite::migrations![].unwrap().up(&db).wait().is_err());
}

#[test]
fn a_table_without_a_name_is_no_rebuild_under_way() {
    let db = Database::open(":memory:").unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE \"\"(x)")).wait().unwrap();
    assert_eq!(of(&[TABLES]).up(&db).wait().unwrap(), ["0001_tables.sql"]);
}
