//! `SIGKILL` at any moment: what was acknowledged is there, nothing is there in part.
//!
//! # Algorithm
//! A child writes from several threads and says each number once it is acknowledged. The parent
//! kills it after a random number of words, and compares what the pipe held with what the file
//! holds. Files are kept for some cycles, so that recovery works on recovered files, too.
//!
//! `MONOLITE_KILLS` sets the number of cycles.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;

use monolite::{Database, Options};

use crate::child::{Child, await_parent, say, spawn, variable};
use monolite_sim::chance::Dice;
use monolite_sim::markers;

const THREADS: i64 = 6;

/// Cycles on one file; many make the integrity check slow.
const CYCLES_A_FILE: usize = 20;

/// Numbers that a cycle may use.
const NUMBERS_A_CYCLE: i64 = 1_000_000;

/// When the child says that a transaction is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    WhenAcknowledged,
    /// The broken arrangement.
    BeforeItIs,
}

impl Says {
    fn name(self) -> &'static str {
        if self == Says::WhenAcknowledged { "when acknowledged" } else { "before it is" }
    }
}

/// The child.
pub(crate) fn write_until_killed() {
    let path: String = variable("FILE");
    let first: i64 = variable("FIRST");
    let is_early = variable::<String>("SAYS") == Says::BeforeItIs.name();
    // A small limit makes checkpoints and fresh starts of the WAL part of every cycle.
    let db = Options::new().wal_limit_bytes(8 << 20).open(path).unwrap();
    markers::create(&db).unwrap();
    say("open");
    thread::scope(|scope| {
        for number in 0..THREADS {
            let db = &db;
            let ids = (first + number..).step_by(usize::try_from(THREADS).unwrap());
            scope.spawn(move || write_all(db, ids, is_early));
        }
        await_parent();
        std::process::exit(0);
    });
}

fn write_all(db: &Database, ids: impl Iterator<Item = i64>, is_early: bool) {
    let filling = [7; 1_000];
    for id in ids {
        let write = db.write(move |tx| markers::put_filled(tx, id, &filling));
        if is_early {
            say(&format!("acknowledged {id}"));
        }
        write.wait().unwrap();
        if !is_early {
            say(&format!("acknowledged {id}"));
        }
    }
}

/// Lets a child write, kills it, and returns what it said.
fn one_cycle(path: &Path, first: i64, says: Says, rng: &mut fastrand::Rng) -> BTreeSet<i64> {
    let variables =
        [("FILE", path.to_str().unwrap()), ("FIRST", &first.to_string()), ("SAYS", says.name())];
    let mut child = spawn("writes until killed", &variables);
    let mut acknowledged = BTreeSet::new();
    // Now and then it dies while it opens the file.
    if rng.u8(..10) > 0 {
        child.await_word("open");
        listen(&mut child, rng.usize(..120), &mut acknowledged);
    } else {
        for _ in 0..rng.u32(..20_000) {
            thread::yield_now();
        }
    }
    child.kill();
    listen(&mut child, usize::MAX, &mut acknowledged);
    acknowledged
}

/// Takes up to `most` lines from the child.
fn listen(child: &mut Child, most: usize, acknowledged: &mut BTreeSet<i64>) {
    for line in child.lines.by_ref().take(most).map_while(Result::ok) {
        if let Some(number) = line.strip_prefix("acknowledged ") {
            acknowledged.insert(number.parse().unwrap());
        }
    }
}

/// What is wrong with the file, if anything.
fn verdict(path: &Path, acknowledged: &BTreeSet<i64>, by_us: bool) -> anyhow::Result<()> {
    let found = if by_us {
        let db = Database::open(path).unwrap();
        markers::create(&db).unwrap();
        db.close().unwrap();
        markers::in_file(path).unwrap()
    } else {
        // Stock SQLite recovers it as well.
        let connection = monolite::rusqlite::Connection::open(path).unwrap();
        connection.execute_batch(markers::SCHEMA).unwrap();
        markers::whole_ones(&connection)?
    };
    markers::check_all_there(acknowledged, &found)
}

fn cycles(count: usize, says: Says) -> Result<(), String> {
    let mut dice = Dice::new();
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeSet::new();
    for cycle in 0..count {
        if cycle % CYCLES_A_FILE == 0 {
            acknowledged.clear();
        }
        let path = directory.path().join(format!("db-{}", cycle / CYCLES_A_FILE));
        let first = 1 + NUMBERS_A_CYCLE * i64::try_from(cycle).unwrap();
        acknowledged.extend(one_cycle(&path, first, says, &mut dice));
        // Every other time the next child finds the file as the kill left it.
        let is_last = cycle % CYCLES_A_FILE == CYCLES_A_FILE - 1 || cycle == count - 1;
        if dice.bool() || is_last {
            let by_us = dice.bool();
            verdict(&path, &acknowledged, by_us).map_err(|e| format!("cycle {cycle}: {e}"))?;
        }
    }
    Ok(())
}

#[test]
fn a_kill_loses_nothing_acknowledged_and_leaves_nothing_in_part() {
    let count = std::env::var("MONOLITE_KILLS").map_or(200, |text| text.parse().unwrap());
    cycles(count, Says::WhenAcknowledged).unwrap();
}

#[test]
fn an_acknowledgement_that_comes_too_early_is_noticed() {
    let error = cycles(200, Says::BeforeItIs).unwrap_err();
    assert!(error.contains("acknowledged and lost"), "{error}");
}
