//! Guards that are revoked at any moment, while the WAL restarts over what they pinned: an
//! overlay shows their snapshot or fails.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use super::*;
use crate::Revoker;

const ROWS: i64 = 3_000;

/// What has come of the reads in overlays.
#[derive(Default)]
struct Seen {
    right: AtomicU64,
    refused: AtomicU64,
    wrong: AtomicU64,
}

/// The sum that tells of all rows, and their version.
fn try_sum(connection: &Connection) -> Result<(i64, i64)> {
    let sql = "SELECT sum(value * id), max(value) FROM item";
    connection.with_statement(sql, |statement| {
        statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
    })?
}

/// Reads in overlays of a guard that others revoke while they have the `gate`, until `stop`.
fn read(
    guard: &mut Connection,
    gate: &Mutex<()>,
    overlay: &Connection,
    seen: &Seen,
    stop: &AtomicBool,
) {
    while !stop.load(Relaxed) {
        let closed = gate.lock().unwrap();
        guard.restore_after_revocation().unwrap();
        guard.begin_read().unwrap();
        let expected = try_sum(guard).unwrap();
        let snapshot = guard.snapshot().unwrap();
        drop(closed);
        if overlay.begin_on(&snapshot).is_err() {
            assert!(!snapshot.is_pinned());
            continue;
        }
        // Long enough to be revoked in the middle.
        for _ in 0..50 {
            match try_sum(overlay) {
                Ok(sum) if sum == expected => seen.right.fetch_add(1, Relaxed),
                Err(error) if extended_code(&error) == ffi::SQLITE_IOERR_BLOCKED => {
                    seen.refused.fetch_add(1, Relaxed);
                    break;
                }
                Ok(_) | Err(_) => seen.wrong.fetch_add(1, Relaxed),
            };
        }
        overlay.rollback().unwrap();
    }
}

fn revoke(guards: &[(Revoker, Mutex<()>)], stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        for (revoker, gate) in guards {
            std::thread::park_timeout(Duration::from_micros(700));
            let _closed = gate.lock().unwrap();
            revoker.revoke();
        }
    }
}

/// Runs for so long, or until something wrong was seen.
fn race(rig: &Rig, limit: Duration) -> Seen {
    let (seen, stop, start) = (Seen::default(), AtomicBool::new(false), Instant::now());
    let guards = [rig.reader(), rig.reader()];
    let gates = guards.each_ref().map(|guard| (guard.revoker(), Mutex::new(())));
    std::thread::scope(|scope| {
        for (mut guard, (_, gate)) in guards.into_iter().zip(&gates) {
            // So few pages are kept that most are read from the files.
            let few = Settings { cache_kib: 20, ..settings(&rig.overlay_vfs, 0) };
            let overlay = Connection::open(&rig.path, Role::Overlay, &few).unwrap();
            let (seen, stop) = (&seen, &stop);
            scope.spawn(move || read(&mut guard, gate, &overlay, seen, stop));
        }
        scope.spawn(|| revoke(&gates, &stop));
        // When this thread panics, too, so that the others end and the panic is shown.
        let _stop = OnDrop(&stop);
        let mut round = 0;
        while start.elapsed() < limit && seen.wrong.load(Relaxed) == 0 {
            round += 1;
            rig.write(&format!("UPDATE item SET value = {round}"));
            rig.checkpoint(CheckpointMode::Restart);
        }
    });
    seen
}

/// Sets the flag when it is dropped.
struct OnDrop<'f>(&'f AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn rig_with_items() -> Rig {
    let rig = Rig::new();
    rig.write(&format!(
        "CREATE TABLE item(id INTEGER PRIMARY KEY, value INTEGER, text TEXT);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
         INSERT INTO item SELECT i, 0, hex(zeroblob(30)) FROM n"
    ));
    rig
}

#[test]
fn an_overlay_whose_guard_leaves_at_any_moment_sees_the_snapshot_or_fails() {
    let seen = race(&rig_with_items(), Duration::from_secs(3));
    assert_eq!(seen.wrong.into_inner(), 0);
    let (right, refused) = (seen.right.into_inner(), seen.refused.into_inner());
    assert!(right > 10 && refused > 10, "{right} right, {refused} refused");
}
