//! Wall clocks that jump both ways, at boot, while a database is open and between two openings:
//! nothing is done twice under a key, and each moment that was archived is restored.
//!
//! # Algorithm
//! 1. A case is [`BOOTS`] processes in turn on one database with an archive. The wall clock of each
//!    begins anywhere between 1976 and ten years from now. Each opens the database twice, and moves
//!    its clock before and while it is open, [`JUMPS`] times in all. No other clock is moved.
//! 2. Three threads make payments, each under a key of its own, and ask again for earlier ones,
//!    which must be told that they are repeated. Behind each jump one payment more is made, and a
//!    token of the archive is taken. Behind some, a statement without an end is ended by its time
//!    limit, no earlier and not much later than without a jump.
//! 3. In the end the file has each payment once. What each token names is restored: it is whole,
//!    and has the payment before it.
//!
//! The control is an engine whose own clock is the wall clock: a jump ahead has its keys expire.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use monolite::archive::ArchiveToken;
use monolite::rusqlite::Connection;
use monolite::{Clock, Database, Durability, ErrorKind, Options};
use monolite_archive::{Archive, DirectoryStore, Layout, Target, internals::restore};
use monolite_testkit::blocking::locked;
use monolite_testkit::child::{say, variable};

use super::case::{Case, PATIENCE};
use super::{control, play_all};
use crate::checks::faketime;
use crate::checks::lanes::book;
use crate::checks::wrong::Wrong;
use crate::{Outcome, Setting};

/// The child's role.
pub(super) const ROLE: &str = "pays while its clock jumps";

/// Processes of a case, and how often each opens the database.
const BOOTS: u64 = 4;
const OPENINGS: u64 = 2;

/// How often a case moves the wall clock.
const JUMPS: u64 = 100;

/// As often for an engine that lives by it: fewer are enough.
const JUMPS_OF_CONTROL: u64 = 16;

/// Cases within which it has to be noticed.
const CONTROLS: u64 = 5;

/// Threads that pay.
const PAYERS: usize = 3;

/// Payments between two jumps.
const BETWEEN: i64 = 6;

/// By what the clock is ahead or behind.
const SHIFTS: [&str; 9] = ["+0", "+1h", "-1h", "+25h", "-25h", "+40d", "-40d", "+3650d", "-50y"];

/// The time limit of a read, and how late a statement may be ended by it.
const LIMIT: Duration = Duration::from_millis(200);
const LATE: Duration = Duration::from_secs(20);

const ENDLESS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT SUM(i) FROM n";

const SQL: &str = "INSERT INTO payment(key) VALUES (?1) RETURNING id";

pub(super) fn run(setting: &Setting<'_>, amount: u64, outcome: &Mutex<Outcome>) -> Result<()> {
    if faketime::variables("").is_none() {
        let mut outcome = book(outcome)?;
        outcome.skipped.push(format!("clocks that jump: {}", faketime::MISSING));
        return Ok(());
    }
    let name = "keys that expire by the wall clock are paid twice";
    control(setting, name, CONTROLS, outcome, &|case| case.jump(JUMPS_OF_CONTROL, true))?;
    play_all(setting, "clocks", amount, outcome, &|case| case.jump(JUMPS, false))
}

impl Case<'_> {
    /// Plays a case; the engine lives by the wall clock if that is so.
    fn jump(&mut self, jumps: u64, by_wall: bool) -> Result<()> {
        let mut moments = Vec::new();
        for _ in 0..BOOTS {
            self.boot(jumps / BOOTS, by_wall, &mut moments)?;
        }
        if !by_wall && moments.len() as u64 != jumps / BOOTS * BOOTS {
            bail!(Wrong::Other(format!("{} moments of {jumps}", moments.len())));
        }
        judge(&self.file(), &self.ledger.acknowledged)?;
        self.proves_itself()?;
        Ok(self.restore_all(&moments)?)
    }

    /// A process that starts with a clock that says anything.
    fn boot(
        &mut self,
        jumps: u64,
        by_wall: bool,
        moments: &mut Vec<(ArchiveToken, i64)>,
    ) -> Result<()> {
        let clock = self.archive().with_file_name("clock");
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is not text");
        let (file, archive, clock) = (text(&self.file())?, text(&self.archive())?, text(&clock)?);
        fs::write(&clock, self.rng.choice(SHIFTS).unwrap_or("+0"))?;
        let (jumps, seed) = (jumps.to_string(), self.rng.u64(..).to_string());
        let ours = [
            ("FILE", file.as_str()),
            ("ARCHIVE", &archive),
            ("CLOCK", &clock),
            ("JUMPS", &jumps),
            ("SEED", &seed),
            ("BY_WALL", if by_wall { "true" } else { "false" }),
        ];
        let theirs = faketime::variables(&clock).context(faketime::MISSING)?;
        let variables: Vec<_> = ours.into_iter().chain(theirs).collect();
        let mut child = self.setting.program.spawn(ROLE, &variables)?;
        let mut is_closed = false;
        while let Some(line) = child.next_line() {
            match line.split_once(' ') {
                Some(("moment", moment)) => {
                    let (token, key) = moment.split_once(' ').context("a moment has two words")?;
                    moments.push((token.parse()?, key.parse()?));
                }
                _ => self.ledger.hear(&line)?,
            }
            is_closed |= line == "closed";
        }
        let unclosed = || Wrong::Other("a child has ended and not closed".into());
        if is_closed { Ok(()) } else { Err(unclosed().into()) }
    }

    fn restore_all(&self, moments: &[(ArchiveToken, i64)]) -> Result<(), Wrong> {
        let output = self.archive().with_file_name("moment");
        for (token, key) in moments {
            let target = Target::Token(*token);
            restore(&self.store(), &Layout::directory(), target, &output)
                .map_err(|error| Wrong::Lost(1, format!("the moment {token} is gone: {error}")))?;
            judge(&output, &BTreeSet::from([*key]))?;
            fs::remove_file(&output).map_err(|error| Wrong::Other(error.to_string()))?;
        }
        Ok(())
    }
}

/// Whether the file is whole, and has these payments, and each once.
fn judge(file: &Path, keys: &BTreeSet<i64>) -> Result<(), Wrong> {
    let look = || -> Result<(String, Vec<i64>)> {
        let db = Connection::open(file)?;
        let integrity = db.query_row("PRAGMA integrity_check", (), |row| row.get(0))?;
        let mut query = db.prepare("SELECT key FROM payment ORDER BY key")?;
        let found = query.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok((integrity, found))
    };
    let (integrity, found) = look().map_err(|error| Wrong::Other(format!("{error:#}")))?;
    if integrity != "ok" {
        return Err(Wrong::Other(format!("integrity_check: {integrity}")));
    }
    if let Some(twice) = found.windows(2).find(|two| two[0] == two[1]) {
        return Err(Wrong::Other(format!("the payment {} was made twice", twice[0])));
    }
    let found = found.into_iter().collect();
    let lost: Vec<_> = keys.difference(&found).take(10).collect();
    match lost.is_empty() {
        true => Ok(()),
        false => Err(Wrong::Lost(lost.len() as u64, format!("payments are lost: {lost:?}"))),
    }
}

/// The wall clock as one that never goes backwards.
#[derive(Debug, Default)]
struct ByWall(AtomicU64);

impl Clock for ByWall {
    fn now(&self) -> Duration {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.0.fetch_max(now, Ordering::SeqCst).max(now))
    }
}

/// Plays the role.
pub(super) fn play() -> Result<()> {
    let (jumps, by_wall): (u64, bool) = (variable("JUMPS")?, variable("BY_WALL")?);
    let (file, clock): (PathBuf, PathBuf) = (variable("FILE")?, variable("CLOCK")?);
    let store = Arc::new(DirectoryStore::new(variable::<PathBuf>("ARCHIVE")?));
    let mut rng = Rng::with_seed(variable("SEED")?);
    for opening in 0..OPENINGS {
        let archive =
            Archive::of(store.clone(), Layout::directory()).upkeep_every(Duration::from_millis(5));
        let options = Options::new().durability(Durability::Archived).archive(archive);
        let options = options.read_time_limit(LIMIT);
        let options = if by_wall { options.clock(Arc::new(ByWall::default())) } else { options };
        let db = options.open(&file)?;
        let create = "CREATE TABLE IF NOT EXISTS payment(id INTEGER PRIMARY KEY, key INTEGER)";
        db.write(move |tx| tx.execute(create, ())).wait()?;
        let keys = "SELECT key FROM payment ORDER BY key";
        let paid: Vec<i64> = db.read(|tx| tx.query_map(keys, (), |row| row.get(0))).wait()?;
        let next = AtomicI64::new(1 + paid.last().copied().unwrap_or(0));
        let load = Load { db: &db, next, paid: Mutex::new(paid), by_wall };
        let count = (jumps + opening) / OPENINGS;
        load.run(count, &mut rng, |shift| Ok(fs::write(&clock, shift)?))?;
        db.close()?;
        fs::write(&clock, rng.choice(SHIFTS).unwrap_or("+0"))?;
    }
    say("closed");
    Ok(())
}

/// Payments to an open database.
struct Load<'a> {
    db: &'a Database,
    next: AtomicI64,
    /// What was acknowledged.
    paid: Mutex<Vec<i64>>,
    /// Whether a jump has everything time out.
    by_wall: bool,
}

impl Load<'_> {
    fn run(&self, jumps: u64, rng: &mut Rng, shift: impl Fn(&str) -> Result<()>) -> Result<()> {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..PAYERS {
                let mut rng = rng.fork();
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        self.pay_new();
                        self.ask_again(&mut rng);
                    }
                });
            }
            let jumped = (0..jumps).try_for_each(|jump| {
                shift(rng.choice(SHIFTS).unwrap_or("+0"))?;
                if jump == 0 && !self.by_wall {
                    self.end_the_endless();
                }
                self.await_more();
                let key = self.pay_new();
                self.ask_again(rng);
                say(&format!("moment {} {key}", self.token()?));
                Ok(())
            });
            is_over.store(true, Ordering::Relaxed);
            jumped
        })
    }

    /// Has a statement without an end be ended by its time limit.
    fn end_the_endless(&self) {
        let start = Instant::now();
        let ended = self.db.read(|tx| tx.query_row(ENDLESS, (), |_| Ok(()))).wait();
        let (took, is_timeout) = (
            start.elapsed(),
            ended.as_ref().is_err_and(|error| error.kind() == ErrorKind::Timeout),
        );
        if !is_timeout || took < LIMIT || took > LIMIT + LATE {
            say(&format!("wrong: an endless statement ended after {took:?} with {ended:?}"));
        }
    }

    /// Waits until some payments more have begun.
    fn await_more(&self) {
        let (start, enough) = (Instant::now(), self.next.load(Ordering::SeqCst) + BETWEEN);
        while self.next.load(Ordering::SeqCst) < enough && start.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Makes a payment under a new key.
    fn pay_new(&self) -> i64 {
        let key = self.next.fetch_add(1, Ordering::SeqCst);
        match self.pay(key) {
            Ok(false) => {
                say(&format!("acknowledged {key}"));
                locked(&self.paid).push(key);
            }
            Ok(true) => say(&format!("wrong: the new payment {key} is taken for a repeated one")),
            Err(error) => self.failed(key, &error),
        }
        key
    }

    /// Asks once more for a payment that was acknowledged.
    fn ask_again(&self, rng: &mut Rng) {
        let Some(key) = rng.choice(locked(&self.paid).iter()).copied() else { return };
        match self.pay(key) {
            Ok(true) => {}
            Ok(false) => say(&format!("wrong: the payment {key} was made again")),
            Err(error) => self.failed(key, &error),
        }
    }

    /// Whether a payment under this key was made before.
    fn pay(&self, key: i64) -> Result<bool, monolite::Error> {
        let done = self
            .db
            .transact_once(format!("payment {key}"), async |tx| {
                let id: i64 = tx.query_row(SQL, [key], |row| row.get(0)).wait()?;
                Ok((id, id.to_string()))
            })
            .wait();
        Ok(done?.is_repeated())
    }

    fn failed(&self, key: i64, error: &monolite::Error) {
        if !self.by_wall {
            say(&format!("failed the payment {key}: {error}"));
        }
    }

    fn token(&self) -> Result<ArchiveToken> {
        let start = Instant::now();
        loop {
            match self.db.archive_token() {
                Ok(token) => return Ok(token),
                Err(error) if start.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}
