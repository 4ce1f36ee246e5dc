//! Allocations that fail: every one of a scenario in turn, alone and with all that follow.
//!
//! # Algorithm
//! 1. A child process puts a wrapper around SQLite's allocator before SQLite starts. For N = 1, 2
//!    and so on it copies a database, lets the N-th allocation of the scenario fail, and ends when
//!    the scenario needed fewer.
//! 2. A transaction puts the same number into two tables. Afterwards the database is opened anew
//!    with everything working: a number in one table is half a transaction, an acknowledged one
//!    that is not there is lost, one that failed and is there is wrong.
//! 3. The child says where it is, so that the parent knows what killed it.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use monolite::{Database, Error, ErrorKind, Options, Tx, Write, rusqlite};
use monolite_sqlite::allocations::{self, Failing};
use monolite_testkit::child::{say, variable};
use monolite_testkit::scratch::in_memory;

use super::wrong::keep_files;
use crate::{Finding, Outcome, Setting};

/// The role of the child.
pub(super) const ROLE: &str = "allocations";

const DIRECTORY: &str = "MONOLITE_DIRECTORY";
const SCENARIO: &str = "MONOLITE_SCENARIO";
const MODE: &str = "MONOLITE_MODE";

/// No scenario needs as many; a loop that does is a finding.
const MAX_ALLOCATIONS: u64 = 100_000;

type Run = fn(&Path) -> Seen;

/// What is run with failing allocations. Each makes its own use of a prepared database.
const SCENARIOS: &[(&str, Run)] = &[
    ("open", open),
    ("batch", batch),
    ("write-once", write_once),
    ("schema", schema),
    ("checkpoint", checkpoint),
    ("read", read),
];

const MODES: [&str; 2] = ["once", "from-then-on"];

/// What the engine answered.
#[derive(Default)]
struct Seen {
    acknowledged: Vec<i64>,
    failed: Vec<i64>,
    complaints: Vec<String>,
}

/// Runs every scenario in both modes, each in a child of its own, and adds to `outcome`.
///
/// # Errors
/// When a child cannot be started.
pub(super) fn run(setting: &Setting<'_>, outcome: &mut Outcome) -> Result<()> {
    let mut noticed = 0;
    for (scenario, _) in SCENARIOS {
        for mode in MODES {
            if setting.watch.is_stopped() {
                return Ok(());
            }
            noticed += one(setting, outcome, scenario, mode)?;
        }
    }
    let how = format!("{noticed} transactions were refused because memory was short");
    outcome.control("allocations fail and somebody notices", noticed > 0, how);
    Ok(())
}

/// Runs one scenario in a child; returns how many transactions failed.
fn one(setting: &Setting<'_>, outcome: &mut Outcome, scenario: &str, mode: &str) -> Result<u64> {
    let directory = in_memory(setting.scratch()).context("no scratch directory")?;
    let text = directory.path().to_string_lossy();
    let variables = [(DIRECTORY, &*text), (SCENARIO, scenario), (MODE, mode)];
    let mut child = setting.program.spawn(ROLE, &variables)?;
    let (mut at, mut ended, mut noticed) = (0_u64, false, 0);
    while let Some(line) = child.next_line() {
        let mut words = line.splitn(2, ' ');
        let (word, rest) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let number = || rest.parse::<u64>().unwrap_or(0);
        match word {
            "at" => {
                at = number();
                outcome.attempted += 1;
            }
            "acknowledged" => outcome.acknowledged += number(),
            "refused" => noticed += number(),
            "lost" => outcome.lost += number(),
            "partial" => outcome.partial += number(),
            "wrong" | "failed" => {
                let what = format!("allocation {at} of scenario {scenario}, {mode}: {rest}");
                report(setting, outcome, what)?;
            }
            "ended" => ended = true,
            _ => {}
        }
    }
    if !ended {
        let what = format!(
            "the process died at allocation {at} of scenario {scenario}, {mode}: {}",
            child.end()?
        );
        let evidence = report(setting, outcome, what)?;
        keep_files(directory.path(), &evidence, "")?;
    }
    Ok(noticed)
}

/// Keeps what was seen. The files are kept only of a child that died: others go on.
fn report(setting: &Setting<'_>, outcome: &mut Outcome, what: String) -> Result<PathBuf> {
    outcome.anomalies += 1;
    let seed = setting.case_seed(0);
    let evidence = setting.evidence(seed)?;
    let mut notes = File::options().create(true).append(true).open(evidence.join("allocations"))?;
    writeln!(notes, "{what}")?;
    let reproduce = setting.reproduce(1, seed);
    outcome.found(Finding { what, evidence: Some(evidence.clone()), reproduce });
    Ok(evidence)
}

/// The role of the child.
pub(super) fn play() -> Result<()> {
    allocations::install().map_err(anyhow::Error::msg)?;
    let (directory, scenario, mode): (PathBuf, String, String) =
        (variable(DIRECTORY)?, variable(SCENARIO)?, variable(MODE)?);
    let Some((_, run)) = SCENARIOS.iter().find(|(name, _)| **name == scenario) else {
        bail!("no such scenario: {scenario}");
    };
    let (good, path) = (directory.join("good"), directory.join("db"));
    prepare(&good)?;
    for number in 1..=MAX_ALLOCATIONS {
        say(&format!("at {number}"));
        take_copy(&good, &path)?;
        let failing = if mode == MODES[0] { Failing::Once(number) } else { Failing::From(number) };
        ARM.with(|arm| arm.set(Some(failing)));
        let seen = run(&path);
        let counted = allocations::disarm();
        judge(&path, &seen)?;
        if counted < number {
            say("ended");
            return Ok(());
        }
    }
    bail!("the scenario makes more than {MAX_ALLOCATIONS} allocations")
}

thread_local! {
    static ARM: std::cell::Cell<Option<Failing>> = const { std::cell::Cell::new(None) };
}

/// Lets allocations fail from here on.
fn begin() {
    if let Some(failing) = ARM.with(std::cell::Cell::take) {
        allocations::arm(failing);
    }
}

fn options() -> Options {
    let options = Options::new().readers(1).writer_cache_bytes(1 << 20);
    // A slow machine must not divide a batch: the same allocations are to fail everywhere.
    options.reader_cache_bytes(1 << 20).max_batch_time(Duration::from_secs(60))
}

/// Numbers that are there before anything fails.
const PREPARED: std::ops::Range<i64> = 1..40;

fn prepare(path: &Path) -> Result<()> {
    let db = options().open(path)?;
    db.write(|tx| {
        tx.execute_batch(
            "CREATE TABLE a(id INTEGER PRIMARY KEY, x); CREATE TABLE b(id INTEGER PRIMARY KEY, x);
             CREATE INDEX by_x ON a(x)",
        )?;
        PREPARED.into_iter().try_for_each(|id| put(tx, id))
    })
    .wait()?;
    db.close()?;
    Ok(())
}

fn take_copy(good: &Path, path: &Path) -> Result<()> {
    for suffix in ["-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match std::fs::remove_file(PathBuf::from(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    std::fs::copy(good, path).context("cannot copy the prepared database")?;
    Ok(())
}

fn put(tx: &Tx<'_>, id: i64) -> Result<(), Error> {
    tx.execute("INSERT INTO a VALUES (?1, printf('%.*c', 300, 'x') || ?1)", [id])?;
    tx.execute("INSERT INTO b VALUES (?1, zeroblob(2000))", [id])?;
    Ok(())
}

impl Seen {
    fn note(&mut self, id: i64, write: Write<(), Error>) {
        match write.wait() {
            Ok(()) => self.acknowledged.push(id),
            Err(error) => {
                if error.kind() != ErrorKind::CommitUnknown {
                    self.failed.push(id);
                }
                self.refused(&error);
            }
        }
    }

    /// An answer must say what is the matter.
    fn refused(&mut self, error: &Error) {
        let kinds = [ErrorKind::Storage, ErrorKind::CommitUnknown, ErrorKind::Poisoned];
        if !kinds.contains(&error.kind()) || !error.to_string().contains("memory") {
            self.complaints.push(format!("the error is not clear: {error:?}"));
        }
        say("refused 1");
    }
}

/// Opens the prepared database with everything working, and runs `body` with failing allocations.
fn opened(path: &Path, body: impl FnOnce(&Database, &mut Seen)) -> Seen {
    let mut seen = Seen::default();
    match options().open(path) {
        Ok(db) => {
            body(&db, &mut seen);
            drop(db);
        }
        Err(error) => seen.complaints.push(format!("a good database did not open: {error}")),
    }
    seen
}

fn open(path: &Path) -> Seen {
    let mut seen = Seen::default();
    begin();
    match options().open(path) {
        Ok(db) => seen.note(100, db.write(|tx| put(tx, 100))),
        Err(error) => seen.refused(&error),
    }
    seen
}

/// Six writes of one batch, whatever the speed of the machine: they gather behind one that waits.
fn batch(path: &Path) -> Seen {
    opened(path, |db, seen| {
        let ((says, began), (go_on, waits)) = (mpsc::channel(), mpsc::channel::<()>());
        let first = db.write(move |_| {
            let _ = says.send(());
            // Ends when the other side is dropped, again if it is run again.
            let _ = waits.recv();
            Ok::<_, Error>(())
        });
        // From here on the writer takes none before the first has ended.
        let _ = began.recv();
        let writes: Vec<_> = (100..106)
            .map(|id| {
                let write = db.write(move |tx| {
                    put(tx, id)?;
                    if id == 103 { Err(Error::aborted("of memory, on purpose")) } else { Ok(()) }
                });
                (id, write)
            })
            .collect();
        begin();
        drop(go_on);
        // It wrote nothing, so that nothing depends on how it ends.
        let _ = first.wait();
        for (id, write) in writes {
            if id == 103 {
                seen.failed.push(id);
                let _ = write.wait();
            } else {
                seen.note(id, write);
            }
        }
    })
}

fn write_once(path: &Path) -> Seen {
    opened(path, |db, seen| {
        begin();
        let writes = (100..103).map(|id| (id, db.write_once(move |tx| put(tx, id))));
        writes.collect::<Vec<_>>().into_iter().for_each(|(id, write)| seen.note(id, write));
    })
}

fn schema(path: &Path) -> Seen {
    opened(path, |db, seen| {
        begin();
        let write = db.write(|tx| {
            tx.execute_batch(
                "CREATE TABLE c(x); CREATE INDEX c_x ON c(x); ALTER TABLE c ADD COLUMN y;
                 CREATE TRIGGER t AFTER INSERT ON a BEGIN INSERT INTO c(x) VALUES (new.id); END",
            )?;
            put(tx, 100)
        });
        seen.note(100, write);
        seen.note(101, db.write(|tx| put(tx, 101)));
    })
}

fn checkpoint(path: &Path) -> Seen {
    opened(path, |db, seen| {
        for id in 100..130 {
            seen.note(id, db.write(move |tx| put(tx, id)));
        }
        begin();
        if let Err(error) = db.close() {
            seen.refused(&error);
        }
    })
}

fn read(path: &Path) -> Seen {
    opened(path, |db, seen| {
        let query = "SELECT count(*) || ',' || max(length(x)) FROM (SELECT a.id, a.x FROM a JOIN b
                     USING (id) ORDER BY hex(b.x) || a.x DESC), json_each('[1,2]')";
        let ask = |comment: i64| {
            let sql = format!("{query} /* {comment} */");
            db.read(|tx| tx.query_row(&sql, (), |row| row.get::<_, String>(0))).wait()
        };
        let right = ask(0).ok();
        begin();
        for comment in 1..3 {
            match ask(comment) {
                Ok(answer) if Some(&answer) == right.as_ref() => {}
                Ok(answer) => seen.complaints.push(format!("a wrong answer: {answer}")),
                Err(error) => seen.refused(&error),
            }
        }
    })
}

/// Looks at what is there, with everything working and through SQLite alone.
fn judge(path: &Path, seen: &Seen) -> Result<()> {
    let db = rusqlite::Connection::open(path)?;
    db.execute_batch("PRAGMA synchronous = OFF")?;
    let (a, b) = (ids(&db, "a")?, ids(&db, "b")?);
    let integrity: String = db.query_row("PRAGMA integrity_check", (), |row| row.get(0))?;
    let partial = a.symmetric_difference(&b).count();
    let expected = PREPARED.chain(seen.acknowledged.iter().copied());
    let lost: Vec<_> = expected.filter(|id| !a.contains(id) && !b.contains(id)).collect();
    let undead: Vec<_> = seen.failed.iter().filter(|id| a.contains(id)).collect();
    say(&format!("acknowledged {}", seen.acknowledged.len()));
    for (word, count) in [("partial", partial), ("lost", lost.len())] {
        if count > 0 {
            say(&format!("{word} {count}"));
            say(&format!("wrong {count} transactions {word}"));
        }
    }
    if !undead.is_empty() {
        say(&format!("wrong transactions that failed are there: {undead:?}"));
    }
    if integrity != "ok" {
        say(&format!("wrong integrity: {}", integrity.replace('\n', " ")));
    }
    for complaint in &seen.complaints {
        say(&format!("wrong {}", complaint.replace('\n', " ")));
    }
    Ok(())
}

fn ids(db: &rusqlite::Connection, table: &str) -> rusqlite::Result<BTreeSet<i64>> {
    let mut query = db.prepare(&format!("SELECT id FROM {table}"))?;
    query.query_map((), |row| row.get(0))?.collect()
}
