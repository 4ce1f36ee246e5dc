//! Pages that are kept from one snapshot to the next show nothing but the snapshot: connections
//! that keep them read the same rows as connections that do not, whichever snapshot comes after
//! which.
//!
//! # Algorithm
//! Some snapshots are each pinned by two readers, of which one keeps pages. While the writer
//! commits random batches, and checkpoints and restarts the WAL where it can, an overlay that
//! keeps pages goes from one snapshot to another, newer or older, and every query is compared with
//! the reader that keeps none. Now and then the overlay changes something of its own, and rolls it
//! back.

use super::soundness::{Run, change, execute, query};
use super::*;

/// A snapshot, pinned by a reader that keeps pages and by one that does not.
struct Pinned {
    keeping: Connection,
    plain: Connection,
}

impl Pinned {
    fn new(rig: &Rig) -> Pinned {
        Pinned { keeping: rig.open_keeping(Role::Reader), plain: rig.open(Role::Reader) }
    }

    fn renew(&self) {
        for reader in [&self.keeping, &self.plain] {
            reader.rollback().unwrap();
            reader.begin_read().unwrap();
        }
    }

    fn release(&self) {
        for reader in [&self.keeping, &self.plain] {
            reader.rollback().unwrap();
        }
    }
}

/// How many queries were compared after a snapshot as new as this, newer, or older.
#[derive(Debug, Default)]
struct Compared {
    newer: u64,
    older: u64,
}

fn compare(seed: u64, steps: u64, compared: &mut Compared) -> Result<(), String> {
    let mut run = Run::new(seed);
    let overlay = run.rig.open_keeping(Role::Overlay);
    let pinned = [(); 3].map(|()| Pinned::new(&run.rig));
    pinned.iter().for_each(Pinned::renew);
    let mut last = crate::vfs::CommitSequence::UNKNOWN;
    for step in 0..steps {
        if run.random.below(20) == 0 {
            // So that the WAL can restart.
            pinned.iter().for_each(Pinned::release);
            run.foreign_commits();
            pinned.iter().for_each(Pinned::renew);
        }
        run.foreign_commits();
        let pin = &pinned[run.random.below(3) as usize];
        if run.random.below(3) == 0 {
            pin.renew();
        }
        let snapshot = pin.keeping.snapshot().unwrap();
        match snapshot.sequence().cmp(&last) {
            std::cmp::Ordering::Less => compared.older += 1,
            _ => compared.newer += 1,
        }
        last = snapshot.sequence();
        overlay.begin_on(&snapshot).unwrap();
        for _ in 0..run.random.below(6) {
            let sql = query(&mut run.random);
            let expected = rows(&pin.plain, &sql);
            if rows(&pin.keeping, &sql) != expected || rows(&overlay, &sql) != expected {
                return Err(format!("seed {seed}, step {step}: {sql} shows another snapshot"));
            }
        }
        for _ in 0..run.random.below(3) {
            execute(&overlay, &change(&mut run.random));
        }
        overlay.rollback().unwrap();
    }
    Ok(())
}

#[test]
#[ignore = "long: the gate runs it"]
fn kept_pages_show_their_snapshot_and_no_other() {
    let mut compared = Compared::default();
    for seed in 0..10 {
        compare(seed, 300, &mut compared).unwrap();
    }
    assert!(compared.newer > 500 && compared.older > 500, "{compared:?}");
}

#[test]
fn pages_that_no_commit_has_changed_are_not_read_again() {
    let rig = Rig::new();
    let writer = rig.filled(SCHEMA);
    let (keeping, plain) = (rig.open_keeping(Role::Reader), rig.open(Role::Reader));
    let overlay = rig.open_keeping(Role::Overlay);
    let read = |connection: &Connection| -> usize {
        rig.read.lock().unwrap().clear();
        let value = rows(connection, "SELECT v FROM t WHERE id = 3000");
        assert_eq!(value.len(), 1);
        rig.read.lock().unwrap().len()
    };
    let transaction = |connection: &Connection| {
        connection.begin_read().unwrap();
        let pages = read(connection);
        connection.rollback().unwrap();
        pages
    };
    // The first use of a connection finds the page size, and makes another cache for it.
    transaction(&keeping);
    for round in 0..3 {
        let [kept, all] = [&keeping, &plain].map(transaction);
        keeping.begin_read().unwrap();
        overlay.begin_on(&keeping.snapshot().unwrap()).unwrap();
        let on_overlay = read(&overlay);
        overlay.rollback().unwrap();
        keeping.rollback().unwrap();
        assert!(all >= 2, "the root and a leaf");
        assert_eq!((kept, on_overlay == 0), (0, round > 0), "round {round}");
        // Another leaf.
        write(&writer, &format!("UPDATE t SET v = 'new' WHERE id = {round} + 1"));
    }
}

#[test]
fn a_beginning_that_is_refused_makes_no_page_newer() {
    let rig = Rig::new();
    let writer = rig.filled(SCHEMA);
    let keeping = rig.open_keeping(Role::Reader);
    let read = || rows(&keeping, "SELECT v FROM t WHERE id = 1");
    for round in 0..3 {
        keeping.begin_read().unwrap();
        let before = read();
        write(&writer, &format!("UPDATE t SET v = 'new {round}' WHERE id = 1"));
        assert!(keeping.begin_read().is_err(), "a transaction is open");
        assert_eq!(read(), before);
        keeping.rollback().unwrap();
        keeping.begin_read().unwrap();
        assert_ne!(read(), before, "round {round}");
        keeping.rollback().unwrap();
    }
}
