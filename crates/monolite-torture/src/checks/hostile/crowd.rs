//! The child that runs untrusted queries one after another, in a database with neighbours that work
//! all the time.
//!
//! # Algorithm
//! A writer, a reader and an interactive transaction each work, rest for a moment, and note how
//! long the slowest of their calls took, without what the machine took of it
//! ([`machine`](super::machine)). Behind each query that is compared with what they may take. At
//! the end contents, settings and files are compared with those before.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use monolite::rusqlite::Connection;
use monolite::{Database, Error, ErrorKind, Options, ReadTx, UntrustedLimits};
use monolite_testkit::child::{say, variable};

use super::grammar;
use super::machine::{Route, Start};
use super::{Fault, grammar::forbidden};
use crate::checks::differential::Statements;

/// The child's role.
pub(in crate::checks) const ROLE: &str = "hostile-crowd";

pub(super) const DIRECTORY: &str = "MONOLITE_DIRECTORY";
pub(super) const CASES: &str = "MONOLITE_CASES";
pub(super) const FAULT: &str = "MONOLITE_FAULT";
/// Milliseconds by which a call may be late.
pub(super) const SLACK: &str = "MONOLITE_SLACK";

/// The bit that tells a seed from the number of a forbidden statement.
const DRAWN: u64 = 1 << 63;

/// How long a caller waits.
const LIMIT: Duration = Duration::from_millis(200);

/// What a query may allocate beside its page cache.
const MEMORY: u64 = 16 << 20;

/// What the process may grow by while a query runs: the budgets of both threads, their stacks, and
/// what the neighbours do.
const GROWTH_KIB: u64 = 2 * (MEMORY >> 10) + 64 * 1_024;

/// The rest of a neighbour between two calls.
const MOMENT: Duration = Duration::from_millis(2);

/// The case that a seed draws.
pub(super) fn drawn(seed: u64) -> u64 {
    seed | DRAWN
}

/// The slowest calls of the neighbours since this was last looked at, in microseconds, and how many
/// calls they have made.
#[derive(Default)]
struct Slowest {
    micros: [AtomicU64; 3],
    calls: [AtomicU64; 3],
}

impl Slowest {
    const NAMES: [&'static str; 3] = ["a write", "a read", "an interactive transaction"];

    fn note(&self, which: usize, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.micros[which].fetch_max(micros, Ordering::Relaxed);
        self.calls[which].fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until the call that each neighbour is in has ended, and one more: a call that is held
    /// up is noted at its end.
    fn wait_for_calls(&self) {
        let calls = || self.calls.each_ref().map(|it| it.load(Ordering::Relaxed));
        let (before, start) = (calls(), Instant::now());
        let is_missing = || calls().iter().zip(before).any(|(now, before)| *now < before + 2);
        while is_missing() && start.elapsed() < Duration::from_secs(60) {
            thread::sleep(MOMENT);
        }
    }

    fn beyond(&self, most: Duration) -> Vec<String> {
        let times =
            self.micros.iter().map(|it| Duration::from_micros(it.swap(0, Ordering::Relaxed)));
        let late = times.zip(Slowest::NAMES).filter(|(time, _)| *time > most);
        late.map(|(time, name)| format!("{name} took {time:.1?}")).collect()
    }
}

pub(in crate::checks) fn play() -> Result<()> {
    std::env::set_current_dir(variable::<String>(DIRECTORY)?)?;
    let slack = Duration::from_millis(variable(SLACK)?);
    let fault: String = variable(FAULT)?;
    let (_, fault) = Fault::ALL.into_iter().find(|it| it.0 == fault).context("no such fault")?;
    let list: String = variable(CASES)?;
    let cases: Vec<u64> = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let db = Options::new().readers(2).wal_limit_bytes(16 << 20).open("db")?;
    db.write(|tx| {
        tx.execute_batch(&grammar::tables())?;
        tx.execute_batch("CREATE TABLE bystander(n); INSERT INTO bystander VALUES (0)")
    })
    .wait()?;
    let plain = Connection::open_in_memory()?;
    plain.execute_batch(&grammar::tables())?;
    let others = Statements::of(&plain)?;
    let before = (contents(&db)?, files()?);
    let (slowest, is_over) = (Slowest::default(), AtomicBool::new(false));
    let (last, others_of_them) = cases.split_last().context("a child has a case")?;
    thread::scope(|scope| -> Result<()> {
        for which in 0..Slowest::NAMES.len() {
            let (db, slowest, is_over) = (&db, &slowest, &is_over);
            scope.spawn(move || work(db, which, slowest, is_over));
        }
        let crowd = Crowd { db: &db, others: &others, slowest: &slowest, slack, fault };
        for case in others_of_them {
            say(&format!("case {case}"));
            tell(&crowd.attempt(*case));
            say("done");
        }
        say(&format!("case {last}"));
        tell(&crowd.attempt(*last));
        is_over.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    if (contents(&db)?, files()?) != before {
        tell(&["contents, settings or files changed".into()]);
    }
    close(db, Path::new("db"))?;
    say("done");
    Ok(())
}

fn tell(wrong: &[String]) {
    wrong.iter().for_each(|what| say(&format!("escape {}", what.replace('\n', " "))));
}

/// What a neighbour does until it is over.
fn work(db: &Database, which: usize, slowest: &Slowest, is_over: &AtomicBool) {
    let change = "UPDATE bystander SET n = n + 1";
    while !is_over.load(Ordering::Relaxed) {
        let start = Start::now(if which == 1 { Route::Caller } else { Route::Writer });
        let ended = match which {
            0 => db.write(move |tx| tx.execute(change, ())).wait().map(drop),
            1 => db.read(|tx| tx.query_row("SELECT n FROM bystander", (), |_| Ok(()))).wait(),
            _ => db.transaction().and_then(|tx| {
                tx.execute(change, ()).wait()?;
                tx.commit().wait().map(drop)
            }),
        };
        slowest.note(which, start.elapsed());
        // Neighbours may be in each other's way; nothing else is.
        if let Err(error) = ended
            && error.kind() != ErrorKind::Conflict
        {
            say(&format!("escape {} failed: {error:.300}", Slowest::NAMES[which]));
        }
        thread::sleep(MOMENT);
    }
}

struct Crowd<'c> {
    db: &'c Database,
    others: &'c Statements,
    slowest: &'c Slowest,
    slack: Duration,
    fault: Fault,
}

impl Crowd<'_> {
    /// Runs a case, and says what is wrong with it.
    fn attempt(&self, case: u64) -> Vec<String> {
        let is_drawn = case & DRAWN != 0;
        let sql = if is_drawn { self.statement(case & !DRAWN) } else { told(case) };
        match self.fault {
            Fault::None => {}
            Fault::HoldsWriter => {
                let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
                               WHERE i < 3000000) SELECT max(i) FROM n";
                let _ = self.db.write(|tx| tx.query_row(endless, (), |_| Ok(()))).wait();
            }
            Fault::Writes => {
                let _ = self.db.write(|tx| tx.execute("DELETE FROM texts", ())).wait();
            }
        }
        reset_peak();
        let peak = peak_kib();
        let start = Start::now(Route::Caller);
        let limits = UntrustedLimits::new().time(LIMIT).memory_bytes(MEMORY);
        let ended = self.db.query_untrusted(&*sql, (), &limits).wait();
        let waited = start.elapsed();
        self.slowest.wait_for_calls();
        let mut wrong = self.slowest.beyond(self.slack);
        if waited > LIMIT + self.slack {
            wrong.push(format!("its caller waited {waited:.1?}"));
        }
        let grown = peak_kib().saturating_sub(peak);
        if grown > GROWTH_KIB {
            wrong.push(format!("the process grew by {grown} KiB"));
        }
        match ended {
            Ok(_) if !is_drawn => wrong.push("it was answered".into()),
            Ok(_) => {}
            // Both threads are busy with what came before.
            Err(error) if error.kind() == ErrorKind::Overloaded => self.wait_for_a_thread(),
            Err(error) => {
                let kinds = [ErrorKind::Invalid, ErrorKind::Timeout];
                if !kinds.contains(&error.kind()) {
                    wrong.push(format!("the error is {:?}: {error:.300}", error.kind()));
                }
            }
        }
        if !wrong.is_empty() {
            wrong.push(format!("{sql:.500}"));
        }
        wrong
    }

    fn statement(&self, seed: u64) -> String {
        let mut rng = Rng::with_seed(seed);
        match rng.u8(..4) {
            0 => self.others.draw(&mut rng),
            _ => grammar::statement(&mut rng),
        }
    }

    fn wait_for_a_thread(&self) {
        let limits = UntrustedLimits::new();
        let is_busy = || {
            let ended = self.db.query_untrusted("SELECT 1", (), &limits).wait();
            ended.is_err_and(|error| error.kind() == ErrorKind::Overloaded)
        };
        let start = Instant::now();
        while is_busy() && start.elapsed() < Duration::from_secs(60) {
            thread::sleep(MOMENT);
        }
    }
}

fn told(case: u64) -> String {
    let number = usize::try_from(case).unwrap_or(usize::MAX);
    forbidden().get(number).cloned().unwrap_or_default()
}

/// What no query may change: the schema, a sum of all rows, and the settings of two connections.
fn contents(db: &Database) -> Result<String, Error> {
    let ask = |tx: &ReadTx<'_>| {
        let one = |sql: &str| tx.query_row(sql, (), |row| row.get::<_, String>(0));
        let mut all =
            vec![one("SELECT count(*) || ' ' || group_concat(sql, ';') FROM sqlite_schema \
             WHERE name NOT GLOB 'monolite_*'")?];
        for sum in [
            "SELECT count(*) || ' ' || sum(length(quote(t))) FROM texts",
            "SELECT count(*) || ' ' || sum(x) FROM big",
            "SELECT count(*) || ' ' || sum(c0) FROM wide",
        ] {
            all.push(one(sum)?);
        }
        for name in ["foreign_keys", "journal_mode", "query_only", "synchronous", "user_version"] {
            let sql = format!("SELECT group_concat({name}) FROM pragma_{name}");
            all.push(format!("{:?}", one(&sql)));
        }
        Ok(all.join("|"))
    };
    Ok(format!("{} {}", db.write(move |tx| ask(tx)).wait()?, db.read(ask).wait()?))
}

/// What the directory holds besides the database's own files.
fn files() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(".")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !["db", "db-wal", "db-shm"].contains(&&*name) {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

/// Closes the database when SQLite has returned from what it may be in the midst of, and looks at
/// the file with SQLite alone.
fn close(db: Database, path: &Path) -> Result<()> {
    loop {
        match db.close() {
            Err(error) if error.kind() == ErrorKind::Timeout => {}
            closed => break closed?,
        }
    }
    let db = Connection::open(path)?;
    let text: String = db.query_row("PRAGMA integrity_check", (), |row| row.get(0))?;
    ensure!(text == "ok", "integrity: {text}");
    Ok(())
}

/// Lets the system measure the peak of memory anew, where it can.
fn reset_peak() {
    // Without it the peak so far is taken, which finds less.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|it| it.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
