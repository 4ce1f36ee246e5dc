//! What a backup contains.

use std::fs;
use std::thread;

use monolite::{Database, Options, rusqlite};

use super::{check, create, others, places, transfer};
use crate::backup::load::Load;
use crate::patience::one;

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
    for round in 0..4 {
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
    let sum = one(&copy, sum);
    assert_eq!(sum, super::TOTAL + super::ACCOUNTS * 200);
    copy.write(|tx| tx.query_row("PRAGMA integrity_check", (), |row| row.get::<_, String>(0)))
        .wait()
        .unwrap();
}
