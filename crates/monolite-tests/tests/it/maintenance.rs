//! Checkpoints by hand, checks, statistics, free pages, and a WAL that gets smaller.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use monolite::{Checked, Database, ErrorKind, Function, Options, Sharing, rusqlite};
use monolite_testkit::mounts::{Mount, say_skipped};
use monolite_testkit::storage::wal_beside;

use crate::patience::{ends, eventually, one};

/// Some MB of rows.
fn fill(db: &Database) {
    let fill = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB); \
                WITH c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c LIMIT 4000) \
                INSERT INTO t(v) SELECT zeroblob(2000) FROM c";
    db.write(move |tx| tx.execute_batch(fill)).wait().unwrap();
}

fn wal_file_bytes(path: &Path) -> u64 {
    fs::metadata(wal_beside(path)).unwrap().len()
}

#[test]
fn a_checkpoint_moves_everything_into_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Database::open(&path).unwrap();
    fill(&db);
    let done = db.checkpoint().wait().unwrap();
    assert_eq!((done.pages_left, done.restarts), (0, true));
    assert!(fs::metadata(&path).unwrap().len() > 8_000_000);
    // A read that needs the older state keeps what is newer in the WAL.
    let (held, hold) = channel::<()>();
    let (begun, begins) = channel();
    let reading = db.clone();
    let reader = thread::spawn(move || {
        reading
            .read(|tx| {
                let seen =
                    tx.query_row("SELECT count(*) FROM t", (), |row| row.get::<_, i64>(0))?;
                begun.send(()).unwrap();
                hold.recv().unwrap();
                Ok::<_, monolite::Error>(seen)
            })
            .wait()
    });
    begins.recv().unwrap();
    fill(&db);
    let done = db.checkpoint().wait().unwrap();
    assert!(!done.restarts);
    held.send(()).unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), 4_000);
    assert!(db.checkpoint().wait().unwrap().restarts);
    db.close().unwrap();
}

#[test]
fn a_wal_that_nobody_writes_gets_small_and_nothing_is_lost() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let db = Options::new().sharing(sharing).open(&path).unwrap();
        fill(&db);
        assert!(wal_file_bytes(&path) > 8_000_000);
        // What rests in the middle of something keeps it from nothing.
        let resting = db.transaction().unwrap();
        resting.execute("INSERT INTO t(id, v) VALUES (-1, 'rests')", ()).wait().unwrap();
        assert_eq!(one(&db, "SELECT count(*) FROM t"), 4_000);
        eventually("the WAL gets small", || wal_file_bytes(&path) <= 4 << 20);
        assert_eq!(one(&db, "SELECT count(*) FROM t"), 4_000);
        resting.commit().wait().unwrap();
        db.write(|tx| tx.execute("INSERT INTO t(id, v) VALUES (-2, 'last')", ())).wait().unwrap();
        // What a crash would leave: the file and its WAL as they are now.
        let copy = directory.path().join("copy");
        fs::copy(&path, &copy).unwrap();
        fs::copy(wal_beside(&path), wal_beside(&copy)).unwrap();
        let crashed = rusqlite::Connection::open(&copy).unwrap();
        let count = |sql: &str| crashed.query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(count("SELECT count(*) FROM t"), 4_002);
        let said: String =
            crashed.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
        assert_eq!(said, "ok");
        db.close().unwrap();
    }
}

/// What an application has to add for a table to be checked.
fn with_additions() -> Options {
    Options::new().connection_setup(|connection| {
        connection.scalar(
            "half",
            1,
            Function::DETERMINISTIC,
            |call| Ok(call.get::<i64>(0)? / 2),
        )?;
        connection.collation("backwards", |a, b| b.cmp(a))
    })
}

#[test]
fn a_table_that_needs_what_is_not_there_does_not_hide_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let db = with_additions().open(&path).unwrap();
    db.write(|tx| {
        tx.execute_batch(
            "CREATE TABLE halves(v); CREATE INDEX by_half ON halves(half(v));
             CREATE TABLE texts(v TEXT COLLATE backwards UNIQUE);
             CREATE TABLE parent(id INTEGER PRIMARY KEY);
             CREATE TABLE child(id INTEGER PRIMARY KEY, parent REFERENCES parent(id));
             INSERT INTO halves VALUES (1), (7); INSERT INTO texts VALUES ('a'), ('b');",
        )
    })
    .wait()
    .unwrap();
    assert!(db.check().wait().unwrap().is_sound());
    db.close().unwrap();
    let plain = rusqlite::Connection::open(&path).unwrap();
    let orphan = "PRAGMA foreign_keys = OFF; INSERT INTO child VALUES (7, 70)";
    plain.execute_batch(orphan).unwrap();
    drop(plain);

    let found = checked(&path).unwrap();
    assert!(!found.is_sound());
    assert_eq!(found.violations, ["row 7 of child has no parent in parent"]);
    assert!(found.problems.is_empty(), "{found:?}");
    assert_eq!(found.unchecked.len(), 2, "{found:?}");
    assert!(found.unchecked.iter().all(|it| it.contains("Options::connection_setup")), "{found:?}");
    assert!(found.unchecked[0].starts_with("table halves: unknown function: half()"), "{found:?}");
    let missing = "table texts: no such collation sequence: backwards";
    assert!(found.unchecked[1].starts_with(missing), "{found:?}");
    let db = Database::open(&path).unwrap();
    assert_eq!(db.check().wait().unwrap(), found);
    db.close().unwrap();

    let whole = with_additions().check_file(&path).wait().unwrap();
    assert!(whole.unchecked.is_empty() && whole.problems.is_empty(), "{whole:?}");
    assert_eq!((whole.tables, whole.violations), (found.tables, found.violations));
    let wrong = with_additions().readers(0).check_file(&path).wait().unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Invalid, "{wrong}");
}

#[test]
fn an_index_that_does_not_fit_its_table_is_to_be_rebuilt() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let db = Database::open(&path).unwrap();
    db.write(|tx| {
        tx.execute_batch(
            "CREATE VIRTUAL TABLE kept USING fts5(text); INSERT INTO kept VALUES ('green tea')",
        )
    })
    .wait()
    .unwrap();
    db.close().unwrap();
    // An index that cannot be read, and one that does not fit.
    for damage in
        ["UPDATE kept_data SET block = x'00' WHERE id > 10", "UPDATE kept_content SET c0 = 'other'"]
    {
        let plain = rusqlite::Connection::open(&path).unwrap();
        plain.execute_batch(damage).unwrap();
        drop(plain);
        let problems = checked(&path).unwrap().problems;
        assert_eq!(problems.len(), 1, "{problems:?}");
        let rebuild = r#"INSERT INTO "kept"("kept") VALUES ('rebuild')"#;
        assert!(problems[0].ends_with(rebuild), "{problems:?}");
        let db = Database::open(&path).unwrap();
        db.write(move |tx| tx.execute(rebuild, ())).wait().unwrap();
        assert!(db.check().wait().unwrap().is_sound());
        db.close().unwrap();
    }
}

#[test]
fn an_index_whose_texts_are_in_another_table_is_compared_with_them() {
    const SCHEMA: &str = "CREATE TABLE product(id INTEGER PRIMARY KEY, name, deleted);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
        INSERT INTO product SELECT i * 3, 'tea of number ' || i, iif(i % 9 = 0, 1, NULL) FROM n;
        CREATE VIEW live AS SELECT id, name FROM product WHERE deleted IS NULL;";
    let indexes = [
        "name, content = product, content_rowid = id",
        "name, deleted UNINDEXED, content='product', tokenize='porter', prefix='2 3'",
        "name, content=product, detail=none, columnsize=0",
        "name, content=live, content_rowid=id, detail=column",
    ];
    for (index, sharing) in indexes.into_iter().zip([
        Sharing::Exclusive,
        Sharing::Shared,
        Sharing::Exclusive,
        Sharing::Shared,
    ]) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.db");
        let db = Options::new().sharing(sharing).open(&path).unwrap();
        let create = format!("{SCHEMA} CREATE VIRTUAL TABLE words USING fts5({index})");
        db.write(move |tx| tx.execute_batch(&create)).wait().unwrap();
        let rebuild = r#"INSERT INTO "words"("words") VALUES ('rebuild')"#;
        let problems = || db.check().wait().unwrap().problems;
        let agree = |problems: Vec<String>, is_sound: bool| {
            assert_eq!(problems.is_empty(), is_sound, "{index}: {problems:?}");
            assert!(is_sound || problems[0].ends_with(rebuild), "{index}: {problems:?}");
        };
        agree(problems(), false);
        for change in [
            "UPDATE product SET name = 'coffee' WHERE id = 3000",
            "REPLACE INTO product(id, name) VALUES (600, 'white tea of number 200')",
            "UPDATE product SET id = 4000 WHERE id = 3",
            "DELETE FROM product WHERE id = 3000",
        ] {
            db.write(move |tx| tx.execute(rebuild, ())).wait().unwrap();
            assert!(db.check().wait().unwrap().is_sound(), "{index}");
            db.write(move |tx| tx.execute(change, ())).wait().unwrap();
            agree(problems(), false);
        }
        db.close().unwrap();
        let before = content(directory.path());
        agree(checked(&path).unwrap().problems, false);
        assert!(content(directory.path()) == before, "a file was changed, or made");
        let db = Database::open(&path).unwrap();
        db.write(move |tx| tx.execute(rebuild, ())).wait().unwrap();
        db.close().unwrap();
        assert!(checked(&path).unwrap().is_sound(), "{index}");
    }
}

fn checked(path: &Path) -> monolite::Result<Checked> {
    Database::check_file(path).wait()
}

/// The names and contents of all files in `directory`.
fn content(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn a_file_that_is_checked_is_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    // SQLite would take the name for the end of a URI's path, and for bytes in hexadecimal.
    let path = directory.path().join("closed?mode=rw#%41.db");
    let db = Database::open(&path).unwrap();
    fill(&db);
    db.backup(directory.path().join("backup.db")).wait().unwrap();
    db.close().unwrap();
    let before = content(directory.path());
    assert_eq!(before.len(), 2);
    for (path, bytes) in &before {
        let is_backup = path.ends_with("backup.db");
        assert_eq!(&bytes[18..20], if is_backup { &[1, 1] } else { &[2, 2] });
        for mode in [0o644, 0o444] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            let found = checked(path).unwrap();
            assert!(found.is_sound() && found.tables > 0, "{found:?}");
        }
    }
    assert!(content(directory.path()) == before, "a file was changed, or made");
}

/// The words of an index are counted in a second one, which goes on in a file beyond the cache.
#[test]
fn a_check_of_a_medium_that_cannot_be_written_has_its_temporary_files_elsewhere() {
    let mount = Mount::read_only(|directory| {
        let db = Database::open(directory.join("db")).unwrap();
        let fill = "CREATE TABLE text(id INTEGER PRIMARY KEY, v);
            INSERT INTO text(v) SELECT replace(hex(randomblob(4000)), '0', ' ')
                FROM generate_series(1, 500);
            CREATE VIRTUAL TABLE word USING fts5(v, content = text, content_rowid = id);
            INSERT INTO word(word) VALUES ('rebuild')";
        db.write(|tx| tx.execute_batch(fill)).wait().unwrap();
        db.close().unwrap();
    });
    let options = Options::new().reader_cache_bytes(64 << 10).writer_cache_bytes(64 << 10);
    match mount {
        Ok(mount) => {
            let path = mount.path().join("db");
            let found = options.clone().check_file(&path).wait().unwrap();
            assert!(found.is_sound() && found.unchecked.is_empty(), "{found:?}");
            // It does need such files.
            let found = options.temp_limit_bytes(1 << 20).check_file(&path).wait().unwrap();
            assert!(found.unchecked[0].contains("temp_limit_bytes"), "{found:?}");
        }
        Err(error) => say_skipped("checks on a read-only medium", &format!("{error:#}")).unwrap(),
    }
}

#[test]
fn what_a_crash_has_left_is_recovered_by_a_check() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("db"), directory.path().join("copy.db"));
    let db = Database::open(&path).unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(v)")).wait().unwrap();
    fs::copy(&path, &copy).unwrap();
    fs::copy(wal_beside(&path), wal_beside(&copy)).unwrap();
    let tables = db.check().wait().unwrap().tables;
    db.close().unwrap();
    assert_eq!(checked(&copy).unwrap().tables, tables);
    assert!(!wal_beside(&copy).exists());
    // What was begun and not committed with a journal.
    let plain = rusqlite::Connection::open(&copy).unwrap();
    plain.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; BEGIN").unwrap();
    let grow = "WITH c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c LIMIT 900) \
                INSERT INTO t SELECT randomblob(900) FROM c";
    plain.execute_batch(grow).unwrap();
    let crashed = directory.path().join("crashed.db");
    fs::copy(&copy, &crashed).unwrap();
    let journal = |path: &Path| PathBuf::from(format!("{}-journal", path.display()));
    fs::copy(journal(&copy), journal(&crashed)).unwrap();
    assert!(checked(&crashed).unwrap().is_sound());
    assert!(!journal(&crashed).exists());
}

#[test]
fn what_is_no_database_is_not_checked_and_becomes_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let refused = |kind, said: &str| {
        let before = content(directory.path());
        let error = checked(&path).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(said), "{error}");
        assert!(content(directory.path()) == before, "a file was changed, or made");
    };
    refused(ErrorKind::Invalid, "does not exist; is this the right path?");
    for length in [0, 1, 99] {
        fs::write(&path, &b"SQLite format 3\0".repeat(7)[..length]).unwrap();
        refused(ErrorKind::Invalid, &format!("has {length} bytes"));
    }
    fs::write(&path, "a text of some length ".repeat(100)).unwrap();
    refused(ErrorKind::Corrupt, "not a database");
    fs::remove_file(&path).unwrap();
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let db = Options::new().sharing(sharing).open(&path).unwrap();
        assert_eq!(checked(&path).unwrap_err().kind(), ErrorKind::Invalid);
        db.write(|tx| tx.execute_batch("CREATE TABLE IF NOT EXISTS t(v)")).wait().unwrap();
        db.close().unwrap();
        assert!(checked(&path).unwrap().is_sound());
    }
}

#[test]
fn a_table_that_is_malformed_does_not_hide_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let plain = rusqlite::Connection::open(&path).unwrap();
    plain
        .execute_batch(
            "CREATE TABLE parent(id INTEGER PRIMARY KEY);
             CREATE TABLE broken(id INTEGER PRIMARY KEY, parent REFERENCES parent(id));
             CREATE TABLE child(id INTEGER PRIMARY KEY, parent REFERENCES parent(id));
             PRAGMA foreign_keys = OFF;
             INSERT INTO broken VALUES (1, NULL); INSERT INTO child VALUES (7, 70);",
        )
        .unwrap();
    let page: u32 = plain
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'broken'", (), |r| r.get(0))
        .unwrap();
    drop(plain);
    let mut bytes = fs::read(&path).unwrap();
    bytes[(page as usize - 1) * 4096..][..4096].fill(0xff);
    fs::write(&path, &bytes).unwrap();
    let found = checked(&path).unwrap();
    assert_eq!((found.tables, found.violations.len()), (3, 1), "{found:?}");
    assert!(!found.problems.is_empty());
    let db = Database::open(&path).unwrap();
    assert_eq!(db.check().wait().unwrap(), found);
    db.close().unwrap();
    // A schema that cannot be read is damage.
    bytes[100..4096].fill(0xff);
    fs::write(&path, &bytes).unwrap();
    let found = checked(&path).unwrap();
    assert_eq!((found.tables, found.problems.len()), (0, 1), "{found:?}");
}

#[test]
fn a_check_that_is_cancelled_or_closed_ends_soon() {
    let db = Database::open(":memory:").unwrap();
    for _ in 0..2 {
        fill(&db);
    }
    db.write(|tx| tx.execute_batch("CREATE INDEX i ON t(hex(v), v)")).wait().unwrap();
    let check = db.check();
    check.cancel();
    let error = ends("the check", move || check.wait().unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Aborted, "{error:?}");
    let check = db.check();
    eventually("it has begun", || check.progress().total > 0);
    let closing = db.clone();
    ends("the close", move || closing.close().unwrap());
    let ended = check.wait();
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::Closed));
}

#[test]
fn statistics_are_gathered_by_hand_and_by_the_clock() {
    let db = Database::open(":memory:").unwrap();
    fill(&db);
    db.write(|tx| tx.execute_batch("CREATE INDEX i ON t(v)")).wait().unwrap();
    db.optimize().wait().unwrap();
    assert_eq!(one(&db, "SELECT count(*) FROM sqlite_stat1 WHERE tbl = 't'"), 1);
    db.close().unwrap();

    let db = Options::new().optimize_every(Duration::from_secs(1)).open(":memory:").unwrap();
    fill(&db);
    db.write(|tx| tx.execute_batch("CREATE INDEX i ON t(v)")).wait().unwrap();
    let count = "SELECT count(*) FROM sqlite_schema WHERE name = 'sqlite_stat1'";
    eventually("statistics are gathered", || one(&db, count) == 1);
    db.close().unwrap();
    let error = Options::new().optimize_every(Duration::ZERO).open(":memory:").unwrap_err();
    assert!(error.to_string().contains("option optimize_every is"), "{error}");
}

#[test]
fn free_pages_are_given_back_in_steps() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let plain = rusqlite::Connection::open(&path).unwrap();
    plain.execute_batch("PRAGMA auto_vacuum = INCREMENTAL; CREATE TABLE x(v)").unwrap();
    drop(plain);
    let db = Options::new().wal_limit_bytes(16 << 20).open(&path).unwrap();
    (0..5).for_each(|_| fill(&db));
    db.checkpoint().wait().unwrap();
    let before = fs::metadata(&path).unwrap().len();
    db.write(|tx| tx.execute("DELETE FROM t WHERE id > 1000", ())).wait().unwrap();
    let commits = db.stats().commits;
    let vacuum = db.vacuum();
    // Others write in between.
    let beside = db.write(|tx| tx.execute("INSERT INTO x VALUES (1)", ()));
    let vacuumed = vacuum.wait().unwrap();
    beside.wait().unwrap();
    assert!(vacuumed.pages > 5_000, "{vacuumed:?}");
    assert!(db.stats().commits - commits > 10, "in steps");
    db.checkpoint().wait().unwrap();
    let after = fs::metadata(&path).unwrap().len();
    assert!(after < before / 3, "{before} to {after}");
    assert_eq!(db.vacuum().wait().unwrap().pages, 0);
    assert_eq!(one(&db, "SELECT count(*) FROM t"), 1_000);
    assert!(db.check().wait().unwrap().is_sound());
    assert!(db.stats().wal_bytes_max <= 16 << 20);
    db.close().unwrap();
}

#[test]
fn a_file_that_keeps_its_pages_is_rewritten_beside_readers_and_transactions() {
    let directory = tempfile::tempdir().unwrap();
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let path = directory.path().join(format!("{sharing:?}"));
        let limit = 32 << 20;
        let db = Options::new().wal_limit_bytes(limit).sharing(sharing).open(&path).unwrap();
        (0..5).for_each(|_| fill(&db));
        let extra = "CREATE TABLE named(name TEXT UNIQUE); INSERT INTO named VALUES ('a'), ('b');
                     CREATE VIRTUAL TABLE words USING fts5(v); INSERT INTO words VALUES ('one');
                     DELETE FROM named WHERE name = 'a'";
        db.write(move |tx| tx.execute_batch(extra)).wait().unwrap();
        db.checkpoint().wait().unwrap();
        let before = fs::metadata(&path).unwrap().len();
        db.write(|tx| tx.execute("DELETE FROM t WHERE id > 1000", ())).wait().unwrap();
        // Some that began before it: what they have seen is still true.
        let rowid = "SELECT rowid FROM named WHERE name = 'b'";
        let (reads, writes) = (db.transaction().unwrap(), db.transaction().unwrap());
        let seen = reads.query_row(rowid, (), |row| row.get::<_, i64>(0)).wait().unwrap();
        writes.execute("INSERT INTO t(id, v) VALUES (-1, 'x')", ()).wait().unwrap();
        let inside = db.read(|tx| {
            let count = "SELECT count(*) FROM t";
            let seen: i64 = tx.query_row(count, (), |row| row.get(0))?;
            let vacuumed = db.vacuum().wait()?;
            assert!(vacuumed.pages > 5_000, "{vacuumed:?}");
            assert_eq!(tx.query_row(count, (), |row| row.get::<_, i64>(0))?, seen);
            Ok(seen)
        });
        assert_eq!(inside.wait().unwrap(), 1_000);
        let again = reads.query_row(rowid, (), |row| row.get::<_, i64>(0)).wait().unwrap();
        assert_eq!((seen, again), (2, 2), "a table with an index keeps its rowids");
        reads.commit().wait().unwrap();
        writes.commit().wait().unwrap();
        db.write(|tx| tx.execute("INSERT INTO words VALUES ('two')", ())).wait().unwrap();
        assert_eq!(one(&db, "SELECT count(*) FROM words WHERE words MATCH 'one OR two'"), 2);
        // A reader that has returned may still be on its way out of what it read.
        eventually("a smaller file", || {
            db.checkpoint().wait().unwrap();
            fs::metadata(&path).unwrap().len() < before / 3
        });
        assert_eq!(db.vacuum().wait().unwrap().pages, 0);
        assert_eq!(one(&db, "SELECT count(*) FROM t"), 1_001);
        assert!(db.check().wait().unwrap().is_sound());
        assert!(db.stats().wal_bytes_max <= limit);
        db.close().unwrap();
        let plain = rusqlite::Connection::open(&path).unwrap();
        let sound: String =
            plain.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
    }
}

#[test]
fn a_file_that_does_not_fit_in_the_wal_is_not_rewritten_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Options::new().wal_limit_bytes(16 << 20).open(&path).unwrap();
    (0..3).for_each(|_| fill(&db));
    db.write(|tx| tx.execute("DELETE FROM t WHERE id <= 2000", ())).wait().unwrap();
    let error = db.vacuum().wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    for said in ["auto_vacuum is NONE", "wal_limit_bytes", "Database::backup"] {
        assert!(error.to_string().contains(said), "{error}");
    }
    assert_eq!(one(&db, "SELECT count(*) FROM t"), 10_000);
    db.write(|tx| tx.execute("INSERT INTO t(v) VALUES (1)", ())).wait().unwrap();
    db.close().unwrap();
}
