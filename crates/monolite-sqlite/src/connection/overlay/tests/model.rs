//! Random transactions in many overlays at once, beside a writer and checkpoints, compared with
//! what their guards see and with maps in memory.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use super::*;

const ROWS: i64 = 2_000;
const THREADS: u64 = 4;

type Rows = BTreeMap<i64, (i64, String)>;

/// Marsaglia's xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as i64
    }

    /// Long enough now and then to need pages of its own.
    fn text(&mut self) -> String {
        let len = if self.below(10) == 0 { self.below(9_000) } else { self.below(40) };
        "x".repeat(len as usize)
    }
}

fn try_rows(connection: &Connection) -> Result<Rows> {
    connection.with_statement("SELECT id, value, text FROM item", |statement| {
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, (row.get(1)?, row.get(2)?)));
        statement.query_map([], row).and_then(Iterator::collect)
    })?
}

fn rows(connection: &Connection) -> Rows {
    try_rows(connection).unwrap()
}

fn execute(connection: &Connection, sql: &str, arguments: impl rusqlite::Params) -> usize {
    connection.with_statement(sql, |statement| statement.execute(arguments)).unwrap().unwrap()
}

/// Does something random, and the same to `rows`.
fn change(connection: &Connection, rows: &mut Rows, random: &mut Random) {
    let id = random.below(ROWS);
    match random.below(5) {
        0 => {
            let sql = "UPDATE item SET value = value + 1 WHERE id = ?1";
            let changed = execute(connection, sql, [id]);
            assert_eq!(changed, usize::from(rows.contains_key(&id)));
            rows.entry(id).and_modify(|row| row.0 += 1);
        }
        1 => {
            let text = random.text();
            let sql = "INSERT INTO item VALUES (?1, 7, ?2) ON CONFLICT DO UPDATE SET text = ?2";
            execute(connection, sql, (id, &text));
            rows.entry(id).or_insert((7, String::new())).1 = text;
        }
        2 => {
            let changed = execute(connection, "DELETE FROM item WHERE id = ?1", [id]);
            assert_eq!(changed, usize::from(rows.remove(&id).is_some()));
        }
        3 => {
            let end = id + random.below(50);
            let sql = "UPDATE item SET value = -value WHERE id > ?1 AND id <= ?2";
            execute(connection, sql, [id, end]);
            for (_, row) in
                rows.range_mut((Excluded(id), Unbounded)).take_while(|(id, _)| **id <= end)
            {
                row.0 = -row.0;
            }
        }
        _ => {
            connection.savepoint(Savepoint::Member).unwrap();
            change_in_one(connection, &mut rows.clone(), random);
            connection.rollback_to(Savepoint::Member).unwrap();
            connection.release(Savepoint::Member).unwrap();
        }
    }
}

/// A change inside of a savepoint, which is not nested any further.
fn change_in_one(connection: &Connection, rows: &mut Rows, random: &mut Random) {
    let id = random.below(ROWS);
    let text = random.text();
    execute(connection, "REPLACE INTO item VALUES (?1, 1, ?2)", (id, &text));
    rows.insert(id, (1, text));
}

/// Transactions in one overlay until `stop`; returns how many.
fn transact(
    guard: &Connection,
    overlay: &Connection,
    random: &mut Random,
    stop: &AtomicBool,
) -> u64 {
    let mut done = 0;
    while !stop.load(Relaxed) {
        guard.begin_read().unwrap();
        let seen = rows(guard);
        let snapshot = guard.snapshot().unwrap();
        for _ in 0..1 + random.below(3) {
            overlay.begin_on(&snapshot).unwrap();
            let mut expected = seen.clone();
            for _ in 0..random.below(8) {
                change(overlay, &mut expected, random);
            }
            assert!(rows(overlay) == expected, "the overlay's own changes, on the snapshot");
            overlay.rollback().unwrap();
            done += 1;
        }
        if random.below(4) == 0 {
            overlay.begin_on(&snapshot).unwrap();
            assert!(rows(overlay) == seen && rows(guard) == seen, "one snapshot");
            overlay.rollback().unwrap();
        }
        guard.rollback().unwrap();
    }
    done
}

/// Commits and copies pages until `stop`; returns how many commits there were.
fn write(rig: &Rig, expected: &mut Rows, random: &mut Random, stop: &AtomicBool) -> u64 {
    let mut done = 0;
    while !stop.load(Relaxed) {
        rig.writer.begin_immediate().unwrap();
        let before = expected.clone();
        for _ in 0..1 + random.below(30) {
            change(&rig.writer, expected, random);
        }
        if random.below(10) == 0 {
            rig.writer.rollback().unwrap();
            *expected = before;
        } else {
            rig.writer.commit().unwrap();
            done += 1;
        }
        match random.below(60) {
            0 => drop(rig.checkpoint(CheckpointMode::Restart)),
            1..6 => drop(rig.checkpoint(CheckpointMode::Passive)),
            _ => {}
        }
    }
    done
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

#[test]
fn many_overlays_beside_a_writer_see_what_their_guards_see() {
    let seed = from_environment("MONOLITE_OVERLAY_SEED", 1 + u64::from(std::process::id()));
    let limit = Duration::from_secs(from_environment("MONOLITE_OVERLAY_SECONDS", 4));
    println!("MONOLITE_OVERLAY_SEED={seed}");
    let random = |number: u64| Random((seed + number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let rig = Rig::new();
    rig.write("CREATE TABLE item(id INTEGER PRIMARY KEY, value INTEGER, text TEXT)");
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut expected = Rows::new();
    let commits = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (guard, overlay) = (rig.reader(), rig.overlay());
            let (stop, done, mut random) = (&stop, &done, random(thread + 1));
            scope.spawn(move || {
                let _stopper = Stopper(stop);
                done.fetch_add(transact(&guard, &overlay, &mut random, stop), Relaxed);
            });
        }
        scope.spawn(|| {
            let start = Instant::now();
            while !stop.load(Relaxed) && start.elapsed() < limit {
                std::thread::park_timeout(Duration::from_millis(20));
            }
            stop.store(true, Relaxed);
        });
        let _stopper = Stopper(&stop);
        write(&rig, &mut expected, &mut random(0), &stop)
    });
    let done = done.into_inner();
    println!("{done} transactions in overlays, {commits} commits");
    assert!(done > 10 && commits > 10);
    assert!(rows(&rig.reader()) == expected, "nothing of an overlay is in the database");
    let sound: String =
        rig.reader().raw().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

/// Ends the other threads when its own panics.
struct Stopper<'s>(&'s AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
