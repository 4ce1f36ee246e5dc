//! What a backup contains.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use monolite::{Database, Options, rusqlite};

use super::{check, create, others, places, transfer};
use crate::backup::load::Load;

#[test]
fn a_backup_has_what_was_acknowledged_before_it() {
    let (directory, path, target) = places();
    let db = Database::open(&path).unwrap();
    create(&db);
    for seed in 0..100 {
        db.write(move |tx| transfer(tx, seed)).wait().unwrap();
    }
    let made = db.backup(&target).wait().unwrap();
    assert_eq!(check(&target), 100);
    assert_eq!(fs::metadata(&target).unwrap().len(), made.bytes);
    assert_eq!(made.bytes / 4_096, made.pages);
    assert_eq!(others(directory.path()), ["backup.db"]);
    // It can be opened, and goes on.
    db.close().unwrap();
    let copy = Database::open(&target).unwrap();
    copy.write(|tx| transfer(tx, 1)).wait().unwrap();
    copy.close().unwrap();
    assert_eq!(others(directory.path()), ["backup.db"]);
}

#[test]
fn a_backup_during_a_burst_is_of_one_moment() {
    let (_directory, path, target) = places();
    let db = Database::open(&path).unwrap();
    create(&db);
    let load = Load::start(&db, 4);
    load.wait_for(2_000);
    for round in 0..8 {
        let target = target.with_extension(round.to_string());
        let before = load.acknowledged();
        db.backup(&target).wait().unwrap();
        let after = load.begun();
        let last = check(&target);
        assert!(before <= last && last <= after, "{before} <= {last} <= {after}");
    }
    load.stop();
    db.close().unwrap();
    check_with_wal(&path);
}

/// The database itself is well.
fn check_with_wal(path: &std::path::Path) {
    let db = rusqlite::Connection::open(path).unwrap();
    let said: String = db.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(said, "ok");
}

#[test]
fn an_old_snapshot_keeps_no_backup_from_the_newest_commits() {
    // What was committed since is in the WAL alone, and cannot be copied from there.
    let (_directory, path, target) = places();
    let db = Database::open(&path).unwrap();
    create(&db);
    let read = |tx: &monolite::ReadTx<'_>| {
        tx.query_row("SELECT count(*) FROM transfer", (), |row| row.get::<_, i64>(0))?;
        for seed in 0..300 {
            let write = db.write(move |tx| transfer(tx, seed));
            thread::scope(|scope| scope.spawn(|| write.wait()).join().unwrap())?;
        }
        db.backup(&target).wait()
    };
    db.read(read).wait().unwrap();
    assert_eq!(check(&target), 300);
}

#[test]
fn tables_that_come_and_go_meanwhile_leave_a_backup_of_one_moment() {
    let (_directory, path, target) = places();
    let db = Database::open(&path).unwrap();
    create(&db);
    let load = Load::start(&db, 2);
    let changing = db.clone();
    let rounds = Arc::new(AtomicI64::new(0));
    let counted = Arc::clone(&rounds);
    let is_over = load.is_over();
    let changer = thread::spawn(move || {
        while !is_over() {
            let round = counted.fetch_add(1, Ordering::Relaxed);
            let change = move |tx: &monolite::Tx<'_>| {
                tx.execute_batch(&format!(
                    "CREATE TABLE t{round}(v); CREATE INDEX i{round} ON t{round}(v);
                     INSERT INTO t{round} SELECT hex(randomblob(200)) FROM account LIMIT 500;"
                ))?;
                if round > 0 {
                    tx.execute_batch(&format!("DROP TABLE t{}", round - 1))?;
                }
                Ok::<_, monolite::Error>(())
            };
            changing.write(change).wait().unwrap();
        }
    });
    for round in 0..5 {
        let target = target.with_extension(round.to_string());
        load.wait_for(load.acknowledged() + 200);
        db.backup(&target).wait().unwrap();
        check(&target);
        let copy = rusqlite::Connection::open(&target).unwrap();
        let sql = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 't%' AND name != 'transfer'";
        let tables: i64 = copy.query_row(sql, (), |row| row.get(0)).unwrap();
        assert!(tables <= 1, "{tables} of a transaction each that drops the one before");
    }
    load.stop();
    changer.join().unwrap();
}

#[test]
fn a_file_that_gets_shorter_meanwhile_is_copied_whole() {
    for _ in 0..3 {
        let (_directory, path, target) = places();
        let plain = rusqlite::Connection::open(&path).unwrap();
        plain.execute_batch("PRAGMA auto_vacuum = FULL; CREATE TABLE x(v);").unwrap();
        drop(plain);
        let db = Database::open(&path).unwrap();
        create(&db);
        let fill = "CREATE TABLE large(v); INSERT INTO large SELECT randomblob(2000) FROM account";
        db.write(move |tx| tx.execute_batch(fill)).wait().unwrap();
        let backup = db.backup(&target);
        // Whether the moment is before or after it, the copy is whole.
        db.write(|tx| tx.execute_batch("DROP TABLE large")).wait().unwrap();
        let load = Load::start(&db, 1);
        load.wait_for(500);
        backup.wait().unwrap();
        load.stop();
        check(&target);
    }
}

#[test]
fn an_empty_database_has_a_backup() {
    let (_directory, path, target) = places();
    let db = Database::open(&path).unwrap();
    db.backup(&target).wait().unwrap();
    db.close().unwrap();
    let copy = Database::open(&target).unwrap();
    create(&copy);
    copy.close().unwrap();
}

#[test]
fn a_database_in_memory_has_a_backup() {
    let (_directory, _, target) = places();
    let db = Database::open(":memory:").unwrap();
    create(&db);
    db.write(|tx| transfer(tx, 3)).wait().unwrap();
    db.backup(&target).wait().unwrap();
    assert_eq!(check(&target), 1);
}

#[test]
fn pages_of_every_size_are_copied() {
    for bytes in [512, 1_024, 8_192, 65_536] {
        let (_directory, path, target) = places();
        let plain = rusqlite::Connection::open(&path).unwrap();
        let sql = format!("PRAGMA page_size = {bytes}; CREATE TABLE x(v);");
        plain.execute_batch(&sql).unwrap();
        drop(plain);
        let db = Database::open(&path).unwrap();
        create(&db);
        let load = Load::start(&db, 2);
        load.wait_for(200);
        let made = db.backup(&target).wait().unwrap();
        assert_eq!(made.bytes, made.pages * bytes);
        load.stop();
        check(&target);
    }
}

#[test]
fn page_checksums_are_right_in_a_backup() {
    let (_directory, path, target) = places();
    let options = || Options::new().page_checksums(true);
    let db = options().open(&path).unwrap();
    create(&db);
    let load = Load::start(&db, 2);
    load.wait_for(500);
    db.backup(&target).wait().unwrap();
    load.stop();
    check(&target);
    // A wrong checksum would be an error of the first read of its page.
    let copy = options().open(&target).unwrap();
    let sum = "SELECT sum(balance + length(fill)) FROM account";
    let sum: i64 = copy.read(|tx| tx.query_row(sum, (), |row| row.get(0))).wait().unwrap();
    assert_eq!(sum, super::TOTAL + super::ACCOUNTS * 200);
    copy.write(|tx| tx.query_row("PRAGMA integrity_check", (), |row| row.get::<_, String>(0)))
        .wait()
        .unwrap();
}
