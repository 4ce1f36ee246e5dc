//! Memory has a bound: sorts and index builds go on in temporary files, and pages of a large
//! transaction in the WAL.

use std::fs;
use std::path::Path;

use monolite::vfs::FileKind;
use monolite::{Database, Error, ErrorKind, Migrations, Options};

use crate::patience::one;
use monolite_testkit::storage::{Disk, Fault, Operation, RealSyncs};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What sorts in the order of random texts, of 800 bytes each.
const SORT: &str = "SELECT count(*), max(n) FROM (
    SELECT v > lag(v, 1, '') OVER (ORDER BY v) AS n FROM t)";
const INDEX: &str = "CREATE INDEX t_v ON t(v)";

fn small() -> Options {
    Options::new().readers(1).reader_cache_bytes(64 * KIB).writer_cache_bytes(64 * KIB)
}

/// A database with so many rows of 800 bytes.
fn filled(options: &Options, path: &Path, rows: i64) -> Database {
    let db = options.clone().open(path).unwrap();
    let fill = "INSERT INTO t(v) SELECT hex(randomblob(400)) FROM generate_series(1, ?1)";
    let filling = db.write(move |tx| {
        tx.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")?;
        tx.execute(fill, [rows])
    });
    filling.wait().unwrap();
    db
}

fn sort(db: &Database) -> Result<(i64, i64), Error> {
    db.read(|tx| tx.query_row(SORT, (), |row| Ok((row.get(0)?, row.get(1)?)))).wait()
}

fn index(db: &Database) -> Result<(), Error> {
    db.write(|tx| tx.execute_batch(INDEX)).wait()
}

fn in_transaction(db: &Database) -> Result<(), Error> {
    let tx = db.transaction()?;
    tx.execute_batch(INDEX).wait()?;
    tx.commit().wait().map(drop)
}

fn migrate(db: &Database) -> Result<(), Error> {
    Migrations::new().with("0001_index.sql", INDEX)?.up(db).wait().map(drop)
}

type Way = fn(&Database) -> Result<(), Error>;

const WAYS: [(&str, Way); 4] = [
    ("a read", |db| sort(db).map(drop)),
    ("a write", index),
    ("a migration", migrate),
    ("a transaction", in_transaction),
];

#[test]
fn every_connection_sorts_in_files_without_a_name() {
    for (way, run) in WAYS {
        let directory = tempfile::tempdir().unwrap();
        let db = filled(&small(), &directory.path().join("db"), 8_000);
        assert_eq!(db.stats().temp_bytes_max, 0, "{way}");
        run(&db).unwrap();
        assert!(db.stats().temp_bytes_max > 5 * MIB, "{way}: {}", db.stats().temp_bytes_max);
        assert_eq!(db.stats().temp_bytes, 0, "{way}");
        assert_eq!(sort(&db).unwrap(), (8_000, 1), "{way}");
        let check = db.check().wait().unwrap();
        assert_eq!(check.problems.len(), 0, "{way}: {:?}", check.problems);
        let names = fs::read_dir(directory.path()).unwrap().map(|it| it.unwrap().file_name());
        assert!(names.into_iter().all(|name| name.to_string_lossy().starts_with("db")), "{way}");
        db.close().unwrap();
    }
}

#[test]
fn a_small_sort_and_a_small_write_need_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let db = filled(&small(), &directory.path().join("db"), 100);
    sort(&db).unwrap();
    for _ in 0..10 {
        db.write(|tx| tx.execute("UPDATE t SET v = v || '.' WHERE id % 3 = 0", ())).wait().unwrap();
    }
    index(&db).unwrap();
    assert_eq!(db.stats().temp_bytes_max, 0);
}

#[test]
fn temporary_files_beyond_the_limit_are_refused_by_its_name() {
    for (way, run) in WAYS {
        let directory = tempfile::tempdir().unwrap();
        let options = small().temp_limit_bytes(2 * MIB);
        let db = filled(&options, &directory.path().join("db"), 8_000);
        let error = run(&db).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{way}: {error}");
        assert!(error.to_string().contains("temp_limit_bytes"), "{way}: {error}");
        assert!(error.to_string().contains("2097152"), "{way}: {error}");
        let stats = db.stats();
        assert!((MIB..=2 * MIB).contains(&stats.temp_bytes_max), "{way}: {stats:?}");
        assert_eq!(stats.temp_bytes, 0, "{way}");
        db.write(|tx| tx.execute("DELETE FROM t WHERE id > 100", ())).wait().unwrap();
        run(&db).unwrap();
    }
}

#[test]
fn a_disk_without_room_for_a_temporary_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let disk = Disk::empty(RealSyncs::Skipped);
    let db = filled(&disk.under(small()), &path, 8_000);
    disk.set_hook(|call| {
        let is_it = (call.kind, call.operation) == (FileKind::Temp, Operation::Write);
        is_it.then_some(Fault::Full)
    });
    for (way, run) in WAYS {
        let error = run(&db).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Storage, "{way}: {error}");
        assert!(error.to_string().contains("full"), "{way}: {error}");
    }
    disk.clear_hook();
    index(&db).unwrap();
}

#[test]
fn failing_members_of_a_batch_larger_than_the_cache_roll_back_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = filled(&small(), &path, 200);
    let change = "UPDATE t SET v = hex(randomblob(400)) WHERE id % 50 = ?1 % 50";
    let add = "INSERT INTO t(id, v) SELECT ?1 * 1000 + value, hex(randomblob(400))
               FROM generate_series(0, 29)";
    let members: Vec<_> = (1..=100_i64)
        .map(|member| {
            db.write(move |tx| {
                tx.execute(change, [member])?;
                tx.execute(add, [member])?;
                match member % 7 {
                    0 => Err(Error::aborted("it fails")),
                    _ => Ok(()),
                }
            })
        })
        .collect();
    let outcomes: Vec<_> = members.into_iter().map(|member| member.wait()).collect();
    for (outcome, member) in outcomes.iter().zip(1..) {
        assert_eq!(outcome.is_err(), member % 7 == 0, "{member}: {outcome:?}");
    }
    let count = "SELECT count(*), sum(id / 1000 % 7 = 0) FROM t WHERE id >= 1000";
    let found = db.read(|tx| tx.query_row(count, (), |row| Ok((row.get(0)?, row.get(1)?))));
    assert_eq!(found.wait().unwrap(), ((100 - 100 / 7) * 30, 0));
    assert_eq!(db.check().wait().unwrap().problems.len(), 0);
    db.close().unwrap();
}

#[test]
fn a_transaction_larger_than_cache_and_wal_is_refused_and_one_that_fits_gets_room() {
    const LIMIT: u64 = 8 * MIB;
    let directory = tempfile::tempdir().unwrap();
    let options = small().wal_limit_bytes(LIMIT);
    let db = filled(&options, &directory.path().join("db"), 100);
    let add = "INSERT INTO t(v) SELECT hex(randomblob(400)) FROM generate_series(1, ?1)";
    let large = db.write(|tx| tx.execute(add, [14_000])).wait().unwrap_err();
    let once = db.write_once(|tx| tx.execute(add, [14_000])).wait().unwrap_err();
    for error in [large, once] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("wal_limit_bytes"), "{error}");
    }
    for _ in 0..5 {
        db.write(|tx| tx.execute(add, [6_000])).wait().unwrap();
    }
    assert_eq!(one(&db, "SELECT count(*) FROM t"), 30_100);
    assert!(db.stats().wal_bytes_max <= LIMIT);
    assert_eq!(db.check().wait().unwrap().problems.len(), 0);
    db.close().unwrap();
}
