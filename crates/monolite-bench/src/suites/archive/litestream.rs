//! The articles' way, where Litestream is found: one writer that commits batches with SQLite
//! itself, and a process beside it that streams them.

use super::{Shift, accounts, place};
use crate::drivers::Round;
use crate::raw_connection::{self, Durability, Settings};
use crate::suites::Turn;
use crate::suites::shift::Crew;
use anyhow::{Context, Result, bail, ensure};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Transactions in a batch, which are a commit: none can fail alone.
const BATCH: u64 = 1_000;

/// How long Litestream may take to have everything, at each end of a round.
const PATIENCE: Duration = Duration::from_secs(120);

const LOOK: Duration = Duration::from_millis(20);

/// Lines and names of the candidates, with Litestream's program for those that need it, whose
/// archives are of a kind. None without that: raw batches are what it is compared with.
pub(super) fn candidates(kind: &str) -> Vec<(&'static str, String, Option<PathBuf>)> {
    let Some(program) = program() else { return Vec::new() };
    vec![
        ("raw", "raw SQLite, one writer, batches of 1,000".into(), None),
        ("litestream", format!("raw SQLite, the same, and Litestream: {kind}"), Some(program)),
    ]
}

/// As `MONOLITE_LITESTREAM` says, or the first of that name in `PATH`.
fn program() -> Option<PathBuf> {
    let said = std::env::var_os("MONOLITE_LITESTREAM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut named = std::env::split_paths(&path).map(|it| it.join("litestream"));
    said.or_else(|| named.find(|it| it.is_file()))
}

/// A database that is written in batches.
pub(super) struct Batches {
    pub(super) directory: PathBuf,
    /// Address of Litestream's archive.
    pub(super) archive: String,
    pub(super) rows: u64,
    /// Litestream, if it is to stream them.
    pub(super) program: Option<PathBuf>,
}

/// A process that ends with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Batches {
    pub(super) fn burst(&self, turn: &Turn<'_>) -> Result<Round> {
        // Each round begins with a database and an archive of its own.
        if self.directory.exists() {
            std::fs::remove_dir_all(&self.directory)?;
            place::forget(&self.archive)?;
        }
        std::fs::create_dir_all(&self.directory)?;
        let database = self.directory.join("db");
        let checkpoint_wal_bytes = if self.program.is_some() { 0 } else { 4 << 20 };
        let settings = Settings {
            durability: Durability::Durable,
            cache_bytes: 64 << 20,
            checkpoint_wal_bytes,
        };
        let connection = raw_connection::open_beside_others(&database, settings)?;
        connection.busy_timeout(Duration::from_secs(10))?;
        fill(&connection, self.rows)?;
        let stream = self.program.as_ref().map(|program| self.stream(program, &database));
        let stream = stream.transpose()?;
        let connection = std::sync::Mutex::new(connection);
        let round = Crew { threads: 1, sample: BATCH, turn }.work(|_, shift| {
            let connection = connection.lock().expect("one thread has it");
            batches(&connection, self.rows, turn.seed, shift)
        })?;
        let end = Instant::now();
        let connection = connection.into_inner().expect("nobody panicked");
        ensure!(sum(&connection)? == 1000 * self.rows + round.operations, "not all is there");
        let note = match stream {
            None => None,
            Some(stream) => {
                self.wait_for(round.operations)?;
                drop(stream);
                Some(format!("all of it was there {} ms later", end.elapsed().as_millis()))
            }
        };
        Ok(Round { note, ..round })
    }

    /// Starts Litestream, and waits until it has the database.
    fn stream(&self, program: &Path, database: &Path) -> Result<Running> {
        let config = self.directory.join("litestream.yml");
        let (replica, variables) = theirs(&self.archive);
        let text = format!("dbs:\n  - path: {}\n    replica:\n{replica}", database.display());
        std::fs::write(&config, text)?;
        let mut command = Command::new(program);
        command.arg("replicate").arg("-config").arg(&config).envs(variables);
        let log = std::fs::File::create(self.log())?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let running = Running(command.spawn().context("cannot start Litestream")?);
        self.wait_for(0)?;
        Ok(running)
    }

    fn log(&self) -> PathBuf {
        self.directory.join("litestream.log")
    }

    /// Waits until what is restored of its archive has so many transactions.
    fn wait_for(&self, operations: u64) -> Result<()> {
        let begin = Instant::now();
        while self.restored()? != Some(1000 * self.rows + operations) {
            if begin.elapsed() > PATIENCE {
                let said = std::fs::read_to_string(self.log()).unwrap_or_default();
                let said = said.lines().last().unwrap_or("nothing");
                bail!("Litestream does not have all of it; it said last: {said}");
            }
            sleep(LOOK);
        }
        Ok(())
    }

    /// The sum of all balances in its archive; `None` where nothing can be restored yet.
    fn restored(&self) -> Result<Option<u64>> {
        use monolite_archive::{Reading, Target, restore};
        let (store, layout) = monolite_archive::open(&self.archive)?;
        let copy = self.directory.join("restored");
        if restore(&*store, &layout, Target::Latest, &copy, Reading::Whole).is_err() {
            return Ok(None);
        }
        let sum = sum(&raw_connection::open_bare(&copy)?)?;
        for ending in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(self.directory.join(format!("restored{ending}")));
        }
        Ok(Some(sum))
    }
}

/// What Litestream's configuration has for an address, and the variables with its keys. Options
/// that both have by the same name are taken over.
fn theirs(address: &str) -> (String, Vec<(&'static str, String)>) {
    let Some((place, query)) =
        address.split_once("://").map(|_| address.split_once('?').unwrap_or((address, "")))
    else {
        return (format!("      type: file\n      path: {address}\n"), Vec::new());
    };
    let (mut kept, mut variables) = (String::new(), Vec::new());
    for option in query.split('&') {
        match option.split_once('=') {
            Some(("endpoint" | "region", _)) => kept = format!("{kept}{option}&"),
            Some(("access_key_id", key)) => variables.push(("AWS_ACCESS_KEY_ID", key.to_owned())),
            Some(("secret_access_key", key)) => {
                variables.push(("AWS_SECRET_ACCESS_KEY", key.to_owned()));
            }
            _ => {}
        }
    }
    (format!("      url: {place}?{kept}forcePathStyle=true\n"), variables)
}

fn fill(connection: &Connection, rows: u64) -> Result<()> {
    connection
        .execute_batch("CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)")?;
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
                INSERT INTO account SELECT i, 1000 FROM n";
    connection.execute(fill, [rows as i64])?;
    Ok(())
}

fn sum(connection: &Connection) -> Result<u64> {
    let sum: i64 =
        connection.query_row("SELECT sum(balance) FROM account", (), |row| row.get(0))?;
    Ok(sum.unsigned_abs())
}

/// Commits batches of what the engine is given one by one.
fn batches(connection: &Connection, rows: u64, seed: u64, shift: &mut Shift<'_>) -> Result<()> {
    let mut change =
        connection.prepare("UPDATE account SET balance = balance + ?2 WHERE id = ?1")?;
    let mut random = fastrand::Rng::with_seed(seed);
    shift.begin();
    while shift.goes_on() {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for _ in 0..BATCH {
            let (from, to) = accounts(&mut random, rows);
            change.execute([from, -10])?;
            change.execute([to, 11])?;
        }
        connection.execute_batch("COMMIT")?;
        (0..BATCH).for_each(|_| shift.acknowledged());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_counted_by_transactions() {
        let directory = tempfile::tempdir().unwrap();
        let interrupt = crate::progress::Interrupt::default();
        let turn = Turn { length: Duration::from_millis(20), seed: 1, interrupt: &interrupt };
        let batches = Batches {
            directory: directory.path().join("raw"),
            archive: "unused".into(),
            rows: 100,
            program: None,
        };
        let round = batches.burst(&turn).unwrap();
        assert!(round.operations >= BATCH && round.operations.is_multiple_of(BATCH));
    }

    #[test]
    fn what_is_compared_is_what_the_archive_gives() {
        use crate::suites::archive::place::{Place, transfer};
        let directory = tempfile::tempdir().unwrap();
        let archive = format!("{}/archive", directory.path().display());
        let batches =
            Batches { directory: directory.path().to_owned(), archive, rows: 10, program: None };
        assert_eq!(batches.restored().unwrap(), None, "there is nothing");
        let place = Place::within(directory.path(), 10, 0);
        let place = Place { durability: monolite::Durability::Archived, ..place };
        let opened = place.open().unwrap();
        assert_eq!(batches.restored().unwrap(), Some(10_000));
        transfer(&opened.db, 1, 2).wait().unwrap();
        assert_eq!(batches.restored().unwrap(), Some(10_001));
    }
}
