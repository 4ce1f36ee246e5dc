//! Allocations that fail: every one of a scenario in turn, alone and with all that follow.
//!
//! # Algorithm
//! 1. A child process puts a wrapper around SQLite's allocator before SQLite starts. For N = 1, 2
//!    and so on it copies a database, lets the N-th allocation of the scenario fail, and ends when
//!    the scenario needed fewer.
//! 2. Afterwards the database is opened anew with everything working: what was acknowledged is
//!    there, what failed is not, and nothing is there in part.
//! 3. The child says where it is, so that the parent knows what killed it.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use monolite::{Database, Error, ErrorKind, Options, Tx, Write};
use monolite_sqlite::allocations::{self, Failing};
use monolite_testkit::child::{say, variable};
use monolite_testkit::markers;
use monolite_testkit::scratch::in_memory;

use super::writing::{Ledger, Look};
use super::wrong::{Wrong, keep_files};
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
    /// What failed is refused in it.
    ledger: Ledger,
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
        judge(&path, &seen);
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
        tx.execute_batch(markers::SCHEMA)?;
        tx.execute_batch("CREATE INDEX by_number ON part(number)")?;
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
    markers::put_filled(tx, id, &[7; 700])
}

impl Seen {
    fn note(&mut self, id: i64, write: Write<(), Error>) {
        match write.wait() {
            Ok(()) => _ = self.ledger.acknowledged.insert(id),
            Err(error) => {
                if error.kind() != ErrorKind::CommitUnknown {
                    self.ledger.refused.insert(id);
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
                seen.ledger.refused.insert(id);
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
                 CREATE TRIGGER t AFTER INSERT ON whole
                     BEGIN INSERT INTO c(x) VALUES (new.id); END",
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
        let query = "SELECT count(*) || ',' || max(length(filling)) FROM (SELECT id, filling FROM
                     part JOIN whole USING (id) ORDER BY hex(filling) || id DESC),
                     json_each('[1,2]')";
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
fn judge(path: &Path, seen: &Seen) {
    let mut ledger = seen.ledger.clone();
    say(&format!("acknowledged {}", ledger.acknowledged.len()));
    ledger.acknowledged.extend(PREPARED);
    let wrong = ledger.judge(path, Look::Thorough, false).err();
    match wrong {
        Some(Wrong::Lost(count, _)) => say(&format!("lost {count}")),
        Some(Wrong::Partial(_)) => say("partial 1"),
        Some(Wrong::Other(_)) | None => {}
    }
    let wrong = wrong.map(|wrong| wrong.to_string());
    for complaint in wrong.iter().chain(&seen.complaints) {
        say(&format!("wrong {}", complaint.replace('\n', " ")));
    }
}
