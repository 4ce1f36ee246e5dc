//! Backups of a database that other processes write, too, and within a small WAL.

use std::fs;

use monolite::{Database, ErrorKind, Options, Sharing, rusqlite};
use monolite_testkit::child::{heard, say, variable};

use super::load::Load;
use super::{check, create, places};
use crate::child::spawn;

/// The child: plain SQLite that transfers and checkpoints.
pub(crate) fn transfer_beside() -> anyhow::Result<()> {
    let plain = rusqlite::Connection::open(variable::<String>("FILE")?)?;
    plain.busy_timeout(std::time::Duration::from_secs(30))?;
    let accounts = super::ACCOUNTS;
    plain.pragma_update(None, "wal_autocheckpoint", 50)?;
    let heard = std::thread::spawn(|| heard().next());
    let mut seed = 0_i64;
    while !heard.is_finished() {
        seed += 1;
        let (from, to) = (seed * 7_919 % accounts + 1, seed * 104_729 % accounts + 1);
        plain.execute_batch(&format!(
            "BEGIN IMMEDIATE;
             UPDATE account SET balance = balance - 1 WHERE id = {from};
             UPDATE account SET balance = balance + 1 WHERE id = {to};
             UPDATE last SET number = number + 1;
             INSERT INTO transfer SELECT number, 1 FROM last;
             COMMIT;"
        ))?;
        if seed == 200 {
            say("goes on");
        }
    }
    say(&format!("made {seed}"));
    Ok(())
}

#[test]
fn a_database_that_others_write_has_a_backup_of_one_moment() {
    let (_directory, path, target) = places();
    let db = Options::new().sharing(Sharing::Shared).open(&path).unwrap();
    create(&db);
    let mut child = spawn("transfers beside", &[("FILE", path.to_str().unwrap())]);
    child.await_word("goes on").unwrap();
    let load = Load::start(&db, 1);
    for round in 0..4 {
        load.wait_for(load.acknowledged() + 100);
        let target = target.with_extension(round.to_string());
        db.backup(&target).wait().unwrap();
        check(&target);
    }
    load.stop();
    child.tell("enough").unwrap();
    let made: i64 = child.await_word("made ").unwrap().parse().unwrap();
    assert!(made > 200);
    db.close().unwrap();
}

#[test]
fn a_shared_database_whose_wal_is_too_small_for_a_backup_keeps_its_limit() {
    let (directory, path, target) = places();
    let options = Options::new().sharing(Sharing::Shared).wal_limit_bytes(8 << 20);
    let db = options.open(&path).unwrap();
    create(&db);
    let load = Load::start(&db, 4);
    load.wait_for(500);
    for round in 0..3 {
        let target = target.with_extension(round.to_string());
        match db.backup(&target).wait() {
            Ok(_) => _ = check(&target),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
                assert!(!target.exists());
            }
        }
    }
    load.stop();
    assert!(db.stats().wal_bytes_max <= 8 << 20);
    db.close().unwrap();
    assert!(fs::read_dir(directory.path()).unwrap().count() <= 4);
}

#[test]
fn the_wal_keeps_its_limit_while_backups_are_made() {
    let (_directory, path, target) = places();
    let db = Options::new().wal_limit_bytes(8 << 20).open(&path).unwrap();
    create(&db);
    let load = Load::start(&db, 4);
    for round in 0..6 {
        load.wait_for(load.acknowledged() + 1_000);
        let target = target.with_extension(round.to_string());
        db.backup(&target).wait().unwrap();
        check(&target);
        fs::remove_file(&target).unwrap();
    }
    load.stop();
    let stats = db.stats();
    assert!(stats.wal_bytes_max <= 8 << 20, "{}", stats.wal_bytes_max);
    assert!(stats.checkpoints_completed > 1, "the WAL restarts");
    let sum: i64 = db
        .read(|tx| tx.query_row("SELECT sum(balance) FROM account", (), |row| row.get(0)))
        .wait()
        .unwrap();
    assert_eq!(sum, super::TOTAL);
    db.close().unwrap();
}

#[test]
fn a_backup_of_a_database_on_another_handle_is_that_of_all() {
    let (_directory, path, target) = places();
    let db = Database::open(&path).unwrap();
    create(&db);
    db.for_principal(7).backup(&target).wait().unwrap();
    check(&target);
}
