//! Backups of a database that other processes write, too, and within a small WAL.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use monolite::vfs::{self, Direct, File, FileKind, LowerFile, Storage};
use monolite::{Database, Options, Sharing, rusqlite};
use monolite_testkit::child::{heard, say, variable};

use super::load::Load;
use super::{check, create, places};
use crate::child::spawn;
use crate::patience::{eventually, one};

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

/// Large reads of the database file, as only a copy makes them, take their time until `is_cut`.
struct SlowCopy {
    direct: Direct,
    marks: Arc<Marks>,
}

#[derive(Default)]
struct Marks {
    is_copying: AtomicBool,
    is_cut: AtomicBool,
}

struct SlowFile(Arc<Marks>);

impl Storage for SlowCopy {
    fn open(
        &self,
        kind: FileKind,
        path: Option<&Path>,
        lower: &mut LowerFile,
    ) -> vfs::Result<Box<dyn File>> {
        match kind {
            FileKind::Database => Ok(self.direct.around(kind, SlowFile(Arc::clone(&self.marks)))),
            _ => self.direct.open(kind, path, lower),
        }
    }
}

impl File for SlowFile {
    fn read(&mut self, lower: &mut LowerFile, buf: &mut [u8], at: u64) -> vfs::Result {
        let until = Instant::now() + Duration::from_millis(100);
        while buf.len() > 65_536 && !self.0.is_cut.load(SeqCst) && Instant::now() < until {
            self.0.is_copying.store(true, SeqCst);
            std::thread::park_timeout(Duration::from_millis(1));
        }
        lower.read(buf, at)
    }
}

#[test]
fn a_shared_backup_whose_snapshot_was_ended_begins_again() {
    let (_directory, path, target) = places();
    let plain = rusqlite::Connection::open(&path).unwrap();
    let create = "PRAGMA auto_vacuum = FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB)";
    plain.execute_batch(create).unwrap();
    drop(plain);
    let marks = Arc::new(Marks::default());
    let seen = Arc::clone(&marks);
    let options = Options::new().sharing(Sharing::Shared).wal_limit_bytes(8 << 20);
    let db = options
        .storage(move |direct| Arc::new(SlowCopy { direct, marks: Arc::clone(&seen) }))
        .open(&path)
        .unwrap();
    let put = |id: i64| {
        db.write(move |tx| tx.execute("REPLACE INTO t VALUES (?1, zeroblob(1000000))", [id]))
    };
    (1..=32).for_each(|id| _ = put(id).wait().unwrap());
    db.checkpoint().wait().unwrap();
    let backup = db.backup(&target);
    eventually("pages are copied", || marks.is_copying.load(SeqCst));
    // The WAL needs to restart, so the snapshot is ended; then the file is cut.
    (1..=16).for_each(|id| _ = put(id).wait().unwrap());
    db.write(|tx| tx.execute("DELETE FROM t WHERE id > 1", ())).wait().unwrap();
    eventually("the file is cut", || {
        db.checkpoint().wait().unwrap();
        fs::metadata(&path).unwrap().len() < 4 << 20
    });
    assert!(db.stats().revoked_readers > 0);
    marks.is_cut.store(true, SeqCst);
    backup.wait().unwrap();
    let copy = Database::open(&target).unwrap();
    let rows = one(&copy, "SELECT count(*) FROM t");
    assert_eq!(rows, 1);
    db.close().unwrap();
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
    let sum = one(&db, "SELECT sum(balance) FROM account");
    assert_eq!(sum, super::TOTAL);
    db.close().unwrap();
}
