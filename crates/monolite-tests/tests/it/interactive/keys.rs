//! How long a key is remembered: by the time that the engine sees pass, whatever the wall clock
//! says. (The wall clock itself is moved by the torture: `environment` and `archive`.)

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use monolite::{Committed, Database, Error, InteractiveOptions, Options, rusqlite};
use monolite_testkit::clock::HandClock;

const LIFETIME: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// Opens the database in `directory`, with a clock that stands still.
fn open(directory: &Path) -> (Database, Arc<HandClock>) {
    let clock = HandClock::new();
    let options = Options::new()
        .interactive(InteractiveOptions::default().idempotency_lifetime(LIFETIME))
        .clock(clock.clone());
    let db = options.open(directory.join("db")).unwrap();
    let create = "CREATE TABLE IF NOT EXISTS payment(key TEXT)";
    db.write(move |tx| tx.execute(create, ())).wait().unwrap();
    (db, clock)
}

/// Whether a payment with this key was made before; makes it otherwise.
fn is_repeated(db: &Database, key: &'static str) -> bool {
    let pay = db
        .transact_once(key, async |tx| {
            tx.execute("INSERT INTO payment VALUES (?1)", [key]).wait()?;
            Ok::<_, Error>(((), key))
        })
        .wait();
    pay.unwrap().is_repeated()
}

fn knows(db: &Database, key: &'static str) -> bool {
    db.read(move |tx| tx.outcome_of(key)).wait().unwrap().is_some()
}

/// What stock SQLite does with the file of a database that is closed.
fn plain(directory: &Path, work: impl FnOnce(&rusqlite::Connection)) {
    work(&rusqlite::Connection::open(directory.join("db")).unwrap());
}

fn count(directory: &Path, sql: &str) -> i64 {
    let mut count = 0;
    plain(directory, |db| count = db.query_row(sql, (), |row| row.get(0)).unwrap());
    count
}

#[test]
fn a_key_expires_by_the_engines_clock() {
    let directory = tempfile::tempdir().unwrap();
    let (db, clock) = open(directory.path());
    assert!(!is_repeated(&db, "a"));
    clock.advance(LIFETIME);
    assert!(is_repeated(&db, "a") && knows(&db, "a"));
    clock.advance(SECOND);
    assert!(!knows(&db, "a"));
    assert!(!is_repeated(&db, "a"));
    assert!(is_repeated(&db, "a"));
    clock.advance(LIFETIME + SECOND);
    assert!(!is_repeated(&db, "b"));
    db.close().unwrap();
    let kept = "SELECT count(*) FROM monolite_idempotency WHERE key <> ''";
    assert_eq!(count(directory.path(), kept), 1, "what has expired is removed");
}

#[test]
fn a_commit_by_hand_asks_the_engines_clock_too() {
    let directory = tempfile::tempdir().unwrap();
    let (db, clock) = open(directory.path());
    let once = || {
        let tx = db.transaction().unwrap();
        tx.execute("INSERT INTO payment VALUES ('k')", ()).wait().unwrap();
        tx.commit_once("k", "").wait().unwrap().is_repeated()
    };
    assert_eq!([once(), once()], [false, true]);
    clock.advance(LIFETIME + SECOND);
    assert_eq!([once(), once()], [false, true]);
}

#[test]
fn a_closure_with_a_key_changes_something_once() {
    let directory = tempfile::tempdir().unwrap();
    let (db, _) = open(directory.path());
    let pay = |key: &str, fails: bool| {
        db.write_keyed(key, move |tx| {
            tx.execute("INSERT INTO payment VALUES ('k')", ())?;
            if fails { Err(Error::aborted("changed its mind")) } else { Ok((7, "paid")) }
        })
    };
    // All are queued before one is done.
    let all = [pay("k", true), pay("k", false), pay("k", false), pay("k", true)];
    let [undone, first, second, third] = all.map(monolite::Write::wait);
    assert!(undone.is_err());
    assert_eq!(first.unwrap(), Committed::Now { value: 7, outcome: b"paid".to_vec() });
    assert!(second.unwrap().is_repeated() && third.unwrap().is_repeated());
    assert!(pay("", false).wait().is_err());
    db.close().unwrap();
    assert_eq!(count(directory.path(), "SELECT count(*) FROM payment"), 1);
}

#[test]
fn time_without_a_process_is_no_time_for_a_key() {
    let directory = tempfile::tempdir().unwrap();
    let (db, clock) = open(directory.path());
    assert!(!is_repeated(&db, "a"));
    clock.advance(LIFETIME / 2);
    assert!(!is_repeated(&db, "b"));
    db.close().unwrap();
    // The clock of the next process begins anywhere.
    let (db, clock) = open(directory.path());
    assert!(is_repeated(&db, "a") && is_repeated(&db, "b"));
    clock.advance(LIFETIME / 2);
    assert!(is_repeated(&db, "a") && is_repeated(&db, "b"));
    clock.advance(SECOND);
    assert!(!knows(&db, "a") && knows(&db, "b"));
    clock.advance(LIFETIME / 2);
    assert!(!knows(&db, "b"));
}

#[test]
fn keys_of_an_earlier_version_live_on_and_then_for_a_lifetime() {
    let directory = tempfile::tempdir().unwrap();
    let (db, _) = open(directory.path());
    for key in ["over", "now", "far"] {
        assert!(!is_repeated(&db, key));
    }
    db.close().unwrap();
    // They had Unix times: of a clock that was behind, right, or ten years ahead.
    plain(directory.path(), |db| {
        let old = "DELETE FROM monolite_idempotency WHERE key = '';
                   UPDATE monolite_idempotency SET expires = CASE key WHEN 'over' THEN 86400
                       WHEN 'now' THEN unixepoch() + 3600 ELSE unixepoch() + 315360000 END";
        db.execute_batch(old).unwrap();
    });
    let (db, clock) = open(directory.path());
    for key in ["over", "now", "far"] {
        assert!(is_repeated(&db, key), "{key}");
    }
    clock.advance(LIFETIME * 2);
    assert!(knows(&db, "over") && !is_repeated(&db, "a"));
    clock.advance(SECOND);
    assert!(!is_repeated(&db, "b"));
    clock.advance(LIFETIME - SECOND);
    for key in ["over", "now", "far"] {
        assert!(knows(&db, key), "{key}");
    }
    clock.advance(SECOND);
    for key in ["over", "now", "far"] {
        assert!(!is_repeated(&db, key), "{key}");
    }
}
