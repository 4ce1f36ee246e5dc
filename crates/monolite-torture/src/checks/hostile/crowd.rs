//! The child that runs statements drawn at random, one seed after another, in one database with a
//! neighbour that writes all the time.
//!
//! # Algorithm
//! A case is what its seed draws: a way (write, read, interactive transaction), and its statements.
//! Beside it a neighbour writes one row. Time counts without what the machine took of it
//! ([`machine`](super::machine)); what is late by that is an escape at once. So is a neighbour that
//! is refused, unless the writer was held up for as long as the engine says it waits before it
//! refuses ([`patience`]). Every now and then a key is asked for that was stored, and one that was
//! not.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use monolite::rusqlite::Connection;
use monolite::{Database, Error, ErrorKind, Options, Tx, Untrusted};
use monolite_testkit::child::{say, variable};

use super::grammar::{self, TABLES, WIDE};
use super::machine::{Route, Start, patience};
use super::victim::{CASES, DIRECTORY, close, peak_kib, reset_peak};
use crate::checks::differential::Statements;

/// The child's role.
pub(in crate::checks) const ROLE: &str = "hostile-crowd";

/// Milliseconds by which a statement may end later than twice its limit.
pub(super) const SLACK: &str = "MONOLITE_SLACK";

/// How long a transaction may take.
const LIMIT: Duration = Duration::from_millis(500);

/// For how long what the check itself does is tried.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a transaction may allocate beside its page cache.
const MEMORY: u64 = 64 << 20;

/// What the process may grow by while a statement runs: its budget, that of its dry run, what a
/// deep one needs of its stack and Rust of its text, and what the neighbour does.
const GROWTH_KIB: u64 = 2 * (MEMORY >> 10) + 32 * 1_024;

/// An interactive transaction has a budget on its own connection, and meanwhile its commit is run
/// again by the writer, which has one, too.
const GROWTH_OF_TWO_KIB: u64 = GROWTH_KIB + (MEMORY >> 10);

/// Cases after which the keys are looked at, and the database is a new one.
const ROUND: usize = 25;

/// What was seen of a case.
#[derive(Default)]
struct Seen {
    /// The slowest of its statements, and of its neighbour's.
    slowest: Duration,
    neighbour: Duration,
    /// The slowest of its statements by the clock, which the engine goes by.
    on_the_clock: Duration,
    /// The most by which the process grew in one transaction, beyond what it may.
    overgrown_kib: u64,
    /// How the neighbour failed.
    failed: Option<(ErrorKind, String)>,
    wrong: Vec<String>,
}

pub(in crate::checks) fn play() -> Result<()> {
    std::env::set_current_dir(variable::<String>(DIRECTORY)?)?;
    let slack = Duration::from_millis(variable(SLACK)?);
    let list: String = variable(CASES)?;
    let seeds: Vec<&str> = list.split(',').collect();
    for (round, seeds) in seeds.chunks(ROUND).enumerate() {
        let path = format!("db{round}");
        let db = open(&path)?;
        let neighbour = "CREATE TABLE bystander(n); INSERT INTO bystander VALUES (0)";
        in_the_end(|| db.write(|tx| tx.execute_batch(&attacked())).wait())?;
        in_the_end(|| db.write(|tx| tx.execute_batch(neighbour)).wait())?;
        in_the_end(|| pay(&db, "paid"))?;
        let plain = Connection::open_in_memory()?;
        plain.execute_batch(&attacked())?;
        let crowd = Crowd { db, others: Statements::of(&plain)?, slack };
        let (last, others) = seeds.split_last().context("a round has a case")?;
        for seed in others {
            say(&format!("case {seed}"));
            tell(&crowd.attempt(seed.parse()?));
            say("done");
        }
        say(&format!("case {last}"));
        tell(&crowd.attempt(last.parse()?));
        tell(&afterwards(crowd.db, Path::new(&path))?);
        say("done");
    }
    Ok(())
}

fn tell(wrong: &[String]) {
    wrong.iter().for_each(|what| say(&format!("escape {}", what.replace('\n', " "))));
}

/// The database of a round, and what is drawn for it.
struct Crowd {
    db: Database,
    others: Statements,
    slack: Duration,
}

/// The tables that are attacked.
fn attacked() -> String {
    let columns: Vec<_> = (0..WIDE).map(|column| format!("c{column}")).collect();
    TABLES.replace("WIDE", &columns.join(","))
}

fn open(path: &str) -> Result<Database, Error> {
    Options::new()
        .readers(2)
        .writer_cache_bytes(1 << 20)
        .reader_cache_bytes(1 << 20)
        .write_time_limit(LIMIT)
        .read_time_limit(LIMIT)
        .untrusted(Untrusted::new().memory_limit_bytes(MEMORY))
        .open(path)
}

/// What the check itself does beside no attack, again while the machine is too busy for its limit.
fn in_the_end<T>(work: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let start = Instant::now();
    loop {
        match work() {
            Err(error) if error.kind() == ErrorKind::Timeout && start.elapsed() < PATIENCE => {}
            done => return done,
        }
    }
}

/// A payment, which is made once; whether it was made before.
fn pay(db: &Database, key: &str) -> Result<(bool, Vec<u8>), Error> {
    let tx = db.transaction()?;
    tx.execute("UPDATE bystander SET n = n", ()).wait()?;
    let committed = tx.commit_once(key, "receipt").wait()?;
    Ok((committed.is_repeated, committed.outcome))
}

impl Crowd {
    /// Runs the case of a seed, and says what is wrong with it.
    fn attempt(&self, seed: u64) -> Vec<String> {
        self.run(seed).judged(self.slack)
    }

    /// The statements of a seed.
    fn statements(&self, rng: &mut Rng) -> Vec<String> {
        if rng.u8(..40) == 0 {
            return grammar::keys(rng);
        }
        let one = |rng: &mut Rng| match rng.u8(..4) {
            0 => self.others.draw(rng),
            _ => grammar::statement(rng),
        };
        (0..rng.usize(1..4)).map(|_| one(rng)).collect()
    }

    fn run(&self, seed: u64) -> Seen {
        let db = &self.db;
        let mut rng = Rng::with_seed(seed);
        let statements = self.statements(&mut rng);
        let way = rng.u8(..3);
        let mut seen = Seen::default();
        std::thread::scope(|scope| {
            let neighbour = scope.spawn(|| {
                // Behind the attack.
                std::thread::sleep(Duration::from_millis(5));
                let start = Start::now(Route::Writer);
                let wrote = db.write(|tx| tx.execute("UPDATE bystander SET n = n + 1", ())).wait();
                (start.elapsed(), wrote)
            });
            match way {
                0 => write(db, &statements, &mut seen),
                1 => read(db, &statements, &mut seen),
                _ => seen.growing(GROWTH_OF_TWO_KIB, |seen| transact(db, &statements, seen)),
            }
            let (time, wrote) = neighbour.join().expect("a neighbour does not panic");
            seen.neighbour = time;
            if let Err(error) = wrote {
                seen.failed = Some((error.kind(), error.to_string()));
            }
        });
        seen
    }
}

impl Seen {
    /// What is wrong with it.
    fn judged(self, slack: Duration) -> Vec<String> {
        let most = LIMIT * 2 + slack;
        let mut wrong = self.wrong;
        let may_refuse = self.on_the_clock > patience(LIMIT);
        if let Some((kind, error)) = self.failed
            && !(may_refuse && kind == ErrorKind::Overloaded)
        {
            wrong.push(format!("a neighbour failed: {error:.300}"));
        }
        if self.slowest > most {
            wrong.push(format!("a statement ended after {:.1?}", self.slowest));
        }
        // It waits for one statement, and then for its own turn.
        if self.neighbour > most + slack {
            wrong.push(format!("a neighbour waited {:.1?}", self.neighbour));
        }
        if self.overgrown_kib > 0 {
            let most = "what one transaction may take";
            wrong.push(format!("the process grew by {} KiB more than {most}", self.overgrown_kib));
        }
        if !wrong.is_empty() {
            let (slowest, clock) = (self.slowest, self.on_the_clock);
            wrong.push(format!(
                "its slowest statement took {slowest:.1?}, {clock:.1?} by the clock"
            ));
        }
        wrong
    }

    /// Runs a transaction by which the process may grow by `most_kib`. What the allocator has kept
    /// of the one before is none of its growth.
    fn growing(&mut self, most_kib: u64, run: impl FnOnce(&mut Seen)) {
        reset_peak();
        let before = peak_kib();
        run(self);
        let grown = peak_kib().saturating_sub(before);
        self.overgrown_kib = self.overgrown_kib.max(grown.saturating_sub(most_kib));
    }

    fn note<T>(&mut self, start: Start, ended: &Result<T, Error>) {
        self.slowest = self.slowest.max(start.elapsed());
        self.on_the_clock = self.on_the_clock.max(start.on_the_clock());
        let bad =
            [ErrorKind::Internal, ErrorKind::Corrupt, ErrorKind::Poisoned, ErrorKind::Storage];
        if let Err(error) = ended
            && bad.contains(&error.kind())
        {
            self.wrong.push(format!("the error is of kind {:?}: {error:.300}", error.kind()));
        }
    }
}

fn write(db: &Database, statements: &[String], seen: &mut Seen) {
    for sql in statements {
        let sql = sql.clone();
        seen.growing(GROWTH_KIB, |seen| {
            let start = Start::now(Route::Writer);
            seen.note(start, &db.write(move |tx| drain(tx, &sql)).wait());
        });
    }
}

fn read(db: &Database, statements: &[String], seen: &mut Seen) {
    for sql in statements {
        seen.growing(GROWTH_KIB, |seen| {
            let start = Start::now(Route::Caller);
            seen.note(start, &db.read(|tx| drain(tx, sql)).wait());
        });
    }
}

/// Runs the statements of a batch, each to its last row.
fn drain(tx: &Tx<'_>, sql: &str) -> Result<(), Error> {
    if sql.contains(";\n") {
        return tx.execute_batch(sql);
    }
    let mut statement = tx.prepare(sql)?;
    let mut rows = statement.query(())?;
    while rows.next()?.is_some() {}
    Ok(())
}

fn transact(db: &Database, statements: &[String], seen: &mut Seen) {
    let Ok(tx) = db.transaction() else { return };
    for sql in statements {
        let start = Start::now(Route::Caller);
        let ended = match sql.contains(";\n") {
            true => tx.execute_batch(sql).wait().map(drop),
            false => tx.query_map(sql, (), |_| Ok(())).wait().map(drop),
        };
        seen.note(start, &ended);
    }
    let start = Start::now(Route::Writer);
    seen.note(start, &tx.commit().wait());
}

/// Looks at the keys, and at the file with SQLite alone.
fn afterwards(db: Database, path: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (key, expected) in [("paid", true), ("unpaid", false)] {
        let paid = in_the_end(|| pay(&db, key));
        let (is_repeated, outcome) = paid.context("a payment is not made any more")?;
        if is_repeated != expected || outcome != b"receipt" {
            wrong.push(format!("the key {key} was repeated: {is_repeated}, {outcome:?}"));
        }
    }
    close(&db)?;
    let db = Connection::open(path)?;
    let text: String = db.query_row("PRAGMA integrity_check", (), |row| row.get(0))?;
    if text != "ok" {
        wrong.push(format!("integrity: {text}"));
    }
    drop(db);
    std::fs::remove_file(path)?;
    ensure!(!path.exists(), "the database is still there");
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_is_an_escape_at_once_and_a_refusal_only_before_its_time() {
        let slack = Duration::from_millis(100);
        let (on_time, late) = (LIMIT * 2, LIMIT * 2 + 3 * slack);
        let refused = || Some((ErrorKind::Overloaded, "held up".into()));
        let seen = |slowest, on_the_clock, neighbour, failed| Seen {
            slowest,
            on_the_clock,
            neighbour,
            failed,
            ..Seen::default()
        };
        let is_wrong = |seen: Seen| !seen.judged(slack).is_empty();
        assert!(!is_wrong(seen(on_time, late, on_time, refused())));
        assert!(is_wrong(seen(late, late, on_time, None)));
        assert!(is_wrong(seen(on_time, on_time, late, None)));
        assert!(is_wrong(seen(LIMIT, LIMIT, LIMIT, refused())));
        let broken = Some((ErrorKind::Storage, "broken".into()));
        assert!(is_wrong(seen(on_time, late, on_time, broken)));
        assert!(is_wrong(Seen { overgrown_kib: 1, ..Seen::default() }));
        assert!(!is_wrong(Seen::default()));
    }
}
