//! The soaking child: opens the database and does everything at once until it is killed or told to
//! close.
//!
//! It says `open`, `a CLIENT NUMBER` for each acknowledged transaction, `d` for each change of the
//! schema, `r` for each long read, `s WAL FAILED REVOKED CHECKPOINTS` every second, `wrong …` for
//! what must not be, and `closed`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use monolite::{Database, Error, ErrorKind, Options, Sharing};
use monolite_testkit::child::{await_parent, say, variable};
use monolite_testkit::schedule::Pace;

use super::ledger::{SCHEMA, TOTAL, Work};
use super::{FILE, LIVES, SAYS, SEED, SHARING, WAL_LIMIT_BYTES};

/// Threads that write one transaction at a time.
const SINGLE: i64 = 8;

/// Threads that write many before they wait for the first.
const IN_BULK: i64 = 2;

/// How long a child that closes and opens again keeps the database open.
const LIFE: Duration = Duration::from_secs(45);

/// Plays the role.
pub(in crate::checks) fn play() -> Result<()> {
    let is_over = Arc::new(AtomicBool::new(false));
    // Not waited for: a child that fails says so while its parent still listens.
    let told = Arc::clone(&is_over);
    thread::spawn(move || {
        await_parent();
        told.store(true, Ordering::Relaxed);
    });
    let many_lives = variable::<String>(LIVES)? == "many";
    let mut life = 0;
    while life == 0 || (many_lives && !is_over.load(Ordering::Relaxed)) {
        live(life, many_lives, &is_over)?;
        life += 1;
    }
    say("closed");
    Ok(())
}

/// From opening to closing.
fn live(life: u64, many_lives: bool, is_over: &AtomicBool) -> Result<()> {
    let born = Instant::now();
    let shared = variable::<String>(SHARING)? == "shared";
    let db = Options::new()
        .sharing(if shared { Sharing::Shared } else { Sharing::Exclusive })
        .wal_limit_bytes(WAL_LIMIT_BYTES)
        .writer_cache_bytes(16 << 20)
        .readers(6)
        .reader_cache_bytes(2 << 20)
        .open(variable::<String>(FILE)?)?;
    db.write(|tx| tx.execute_batch(SCHEMA)).wait()?;
    say(&format!("open {}", born.elapsed().as_millis()));
    let seed: u64 = variable(SEED)?;
    let says_early = variable::<String>(SAYS)? == "early";
    let ends = AtomicBool::new(false);
    let soak = Soak { db: &db, says_early, ends: &ends };
    thread::scope(|scope| {
        let mut rng = fastrand::Rng::with_seed(seed ^ life);
        for client in 0..SINGLE {
            let mut rng = rng.fork();
            scope.spawn(move || soak.report(soak.write_singly(client, &mut rng)));
        }
        for client in SINGLE..SINGLE + IN_BULK {
            let mut rng = rng.fork();
            scope.spawn(move || soak.report(soak.write_in_bulk(client, &mut rng)));
        }
        for _ in 0..2 {
            let mut rng = rng.fork();
            scope.spawn(move || soak.report(soak.read_long(&mut rng)));
        }
        let mut ddl = rng.fork();
        scope.spawn(move || soak.report(soak.change_schema(&mut ddl)));
        let mut told = Instant::now();
        while !is_over.load(Ordering::Relaxed) && (!many_lives || born.elapsed() < LIFE) {
            thread::sleep(Duration::from_millis(10));
            if told.elapsed() > Duration::from_secs(1) {
                told = Instant::now();
                soak.tell();
            }
        }
        ends.store(true, Ordering::Relaxed);
    });
    soak.tell();
    db.close()?;
    Ok(())
}

/// What the threads of a child share.
#[derive(Clone, Copy)]
struct Soak<'a> {
    db: &'a Database,
    says_early: bool,
    ends: &'a AtomicBool,
}

impl Soak<'_> {
    fn ends(self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    fn tell(self) {
        let stats = self.db.stats();
        say(&format!(
            "s {} {} {} {}",
            stats.wal_bytes_max,
            stats.failed_transactions,
            stats.revoked_readers,
            stats.checkpoints_completed
        ));
    }

    fn report(self, done: Result<(), Error>) {
        if let Err(error) = done {
            say(&format!("wrong {:?}: {error}", error.kind()));
        }
    }

    fn pause(self, rng: &mut fastrand::Rng, most: u64) {
        let until = Instant::now() + Duration::from_micros(rng.u64(..most * 1_000));
        while !self.ends() && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// The first number that the file does not have.
    fn next_number(self, client: i64) -> Result<i64, Error> {
        let latest = "SELECT COALESCE(max(latest), 0) FROM client WHERE id = ?1";
        self.db
            .read(|tx| tx.query_row(latest, [client], |row| Ok(row.get::<_, i64>(0)? + 1)))
            .wait()
    }

    fn write_singly(self, client: i64, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let mut number = self.next_number(client)?;
        while !self.ends() {
            let work = Work::draw(client, number, rng);
            match rng.u32(..20) {
                0 => self.fail(work)?,
                1 => self.panic(work)?,
                choice => {
                    if self.says_early {
                        say(&format!("a {client} {number}"));
                    }
                    let wrote = match choice {
                        2..6 => self.db.write_once(move |tx| work.run(tx)).wait(),
                        6..10 => {
                            let pace = Pace { longest_pause: 2_000, ..Pace::random(rng) };
                            self.db.transact(async |tx| work.interact(&tx, pace.clone())).wait()
                        }
                        _ => self.db.write(move |tx| work.run(tx)).wait(),
                    };
                    if is_done(wrote)? {
                        if !self.says_early {
                            say(&format!("a {client} {number}"));
                        }
                        number += 1;
                    }
                }
            }
            self.pause(rng, 20);
        }
        Ok(())
    }

    /// A member that gives up after it has written.
    fn fail(self, work: Work) -> Result<(), Error> {
        let work = Work { number: -work.number, ..work };
        let gave_up = self
            .db
            .write(move |tx| work.run(tx).and_then(|()| Err::<(), _>(Error::aborted("on purpose"))))
            .wait();
        if gave_up.is_ok() {
            say("wrong: a transaction that gave up was acknowledged");
        }
        is_done(gave_up).map(drop)
    }

    /// A member that panics after it has written.
    fn panic(self, work: Work) -> Result<(), Error> {
        let work = Work { number: -work.number, ..work };
        let write = self.db.write(move |tx| {
            work.run(tx)?;
            std::panic::resume_unwind(Box::new("on purpose"));
            #[expect(unreachable_code, reason = "says the closure's type")]
            Ok::<(), Error>(())
        });
        match catch_unwind(AssertUnwindSafe(|| write.wait())) {
            Ok(Ok(())) => say("wrong: a transaction that panicked was acknowledged"),
            Ok(failed) => drop(is_done(failed)?),
            Err(_) => {}
        }
        Ok(())
    }

    fn write_in_bulk(self, client: i64, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let mut number = self.next_number(client)?;
        while !self.ends() {
            let count = rng.i64(1..200);
            let works = (number..number + count).map(|number| Work::draw(client, number, rng));
            let writes: Vec<_> = works
                .map(|work| {
                    let number = work.number;
                    (number, self.db.write(move |tx| work.run(tx)))
                })
                .collect();
            for (number, write) in writes {
                if is_done(write.wait())? {
                    say(&format!("a {client} {number}"));
                }
            }
            number += count;
            self.pause(rng, 1_000);
        }
        Ok(())
    }

    /// One snapshot, looked at twice.
    fn read_long(self, rng: &mut fastrand::Rng) -> Result<(), Error> {
        while !self.ends() {
            let sums = "SELECT (SELECT SUM(balance) FROM account), SUM(done),
                        (SELECT SUM(moves) FROM account) FROM client";
            let seen = self.db.read(|tx| {
                let look = || {
                    tx.query_row(sums, (), |row| {
                        Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?))
                    })
                };
                let first: (i64, Option<i64>, Option<i64>) = look()?;
                self.pause(rng, 4_000);
                Ok::<_, Error>((first, look()?))
            });
            match seen.wait() {
                Ok((first, second)) if first == second && first.0 == TOTAL => say("r"),
                Ok((first, second)) => say(&format!("wrong: a snapshot had {first:?}, {second:?}")),
                Err(error) => drop(is_done(Err::<(), _>(error))?),
            }
            self.pause(rng, 300);
        }
        Ok(())
    }

    fn change_schema(self, rng: &mut fastrand::Rng) -> Result<(), Error> {
        while !self.ends() {
            let sql = match rng.u32(..6) {
                0 => "CREATE INDEX IF NOT EXISTS by_balance ON account(balance)",
                1 => "DROP INDEX IF EXISTS by_balance",
                2 => {
                    "CREATE TABLE IF NOT EXISTS extra(id INTEGER PRIMARY KEY, t TEXT) STRICT;
                     INSERT INTO extra(t) SELECT hex(randomblob(100)) FROM wide"
                }
                3 => "DROP TABLE IF EXISTS extra",
                4 => {
                    "ALTER TABLE wide ADD COLUMN further INTEGER NOT NULL DEFAULT 7;
                     UPDATE wide SET n = n + further"
                }
                _ => "ALTER TABLE wide DROP COLUMN further",
            };
            // A column that is there already, or is not there, is refused: a failure of its kind.
            match self.db.write(move |tx| tx.execute_batch(sql)).wait() {
                Err(error) if error.kind() == ErrorKind::Invalid => {}
                changed => {
                    if is_done(changed)? {
                        say("d");
                    }
                }
            }
            self.pause(rng, 400);
        }
        Ok(())
    }
}

/// Whether it was done; refusals that a user has to expect are no errors.
fn is_done(result: Result<(), Error>) -> Result<bool, Error> {
    use ErrorKind::{Aborted, Closed, Overloaded, Timeout};
    match result {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), Aborted | Closed | Overloaded | Timeout) => Ok(false),
        Err(error) => Err(error),
    }
}
