//! `SIGKILL` in the middle of online rebuilds: each is resumed or aborted, and the table has
//! exactly what was acknowledged.
//!
//! # Algorithm
//! 1. A child changes rows of a table from several threads, in all ways that there are (`REPLACE`,
//!    cascades, changed keys), and in the same transaction those of its mirror. Meanwhile it
//!    rebuilds the table online, again and again, into one of two forms, or aborts that.
//! 2. It is killed at a random moment. Stock SQLite compares the table with its mirror, and looks
//!    for each number that the child has acknowledged.
//! 3. Now and then the engine aborts what is under way, of which nothing may be left.
//!
//! The broken arrangement: between two children a trigger of the rebuild comes to miss deletes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use monolite::rusqlite::Connection;
use monolite::{Database, Error, ErrorKind, Migrations};
use monolite_testkit::child::{Child, say, variable};

use super::lanes::{self, book, side_by_side};
use super::wrong::{Wrong, keep, verdict};
use crate::{Amount, Check, Outcome, Setting};

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "rebuilds",
    about: "Kill the process with SIGKILL N times while it rebuilds a table online",
    unit: "SIGKILLs",
    amount: Amount::Number,
    modest: 60,
    total: |amount| amount,
    run,
    roles: &[(ROLE, play)],
};

const ROLE: &str = "rebuilds a table online";

const CYCLES_A_FILE: u64 = 15;

/// A child works on one core, and waits for the disk.
const AT_ONCE: u64 = 3;

/// Files within which the broken trigger has to be noticed.
const CONTROL_FILES: u64 = 6;

/// Threads of a child that change rows.
const WRITERS: i64 = 3;

/// Numbers of one child.
const NUMBERS: i64 = 1_000_000;

/// The time within which a child is killed, in milliseconds: some rebuilds.
const LIFE: u64 = 600;

/// Rows that there are at first, and keys that rows are given.
const ROWS: i64 = 12_000;

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS done(number INTEGER PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS parent(id INTEGER PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS rows(id INTEGER PRIMARY KEY, u TEXT UNIQUE, n INTEGER, \
        parent REFERENCES parent(id) ON DELETE CASCADE);
    CREATE INDEX IF NOT EXISTS by_n ON rows(n DESC, parent);
    CREATE UNIQUE INDEX IF NOT EXISTS by_parent ON rows(parent, u);
    CREATE TABLE IF NOT EXISTS mirror(id INTEGER PRIMARY KEY, u TEXT UNIQUE, n INTEGER, \
        parent REFERENCES parent(id) ON DELETE CASCADE);";

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let outcome = Mutex::new(CHECK.outcome());
    let name = "a trigger of the rebuild misses deletes";
    lanes::control(setting, name, CONTROL_FILES, &outcome, |number| {
        let mut case = Case::new(setting, u64::MAX - number)?;
        for cycle in 0..CYCLES_A_FILE {
            if let Err(wrong) = verdict(case.cycle(cycle, true))? {
                return Ok(Some(format!("kill {}: {wrong:?}", cycle + 1)));
            }
        }
        Ok(None)
    })?;
    side_by_side(AT_ONCE, amount.div_ceil(CYCLES_A_FILE), |number| {
        let cycles = CYCLES_A_FILE.min(amount - number * CYCLES_A_FILE);
        Case::new(setting, number)?.run(cycles, &outcome)
    })?;
    outcome.into_inner().map_err(|_| anyhow!("a lane panicked"))
}

/// One file.
struct Case<'s> {
    setting: &'s Setting<'s>,
    seed: u64,
    rng: fastrand::Rng,
    directory: tempfile::TempDir,
    file: PathBuf,
    acknowledged: BTreeSet<i64>,
}

impl<'s> Case<'s> {
    fn new(setting: &'s Setting<'s>, number: u64) -> Result<Case<'s>> {
        let seed = setting.case_seed(number);
        let directory = tempfile::tempdir_in(setting.scratch()).context("no directory")?;
        let file = directory.path().join("db");
        let rng = fastrand::Rng::with_seed(seed);
        Ok(Case { setting, seed, rng, directory, file, acknowledged: BTreeSet::new() })
    }

    fn run(&mut self, cycles: u64, outcome: &Mutex<Outcome>) -> Result<()> {
        for cycle in 0..cycles {
            if self.setting.watch.is_stopped() {
                break;
            }
            let before = self.acknowledged.len();
            let verdict = verdict(self.cycle(cycle, false))?;
            self.setting.watch.done(1);
            let mut outcome = book(outcome)?;
            outcome.attempted += 1;
            outcome.acknowledged += (self.acknowledged.len() - before) as u64;
            if let Err(wrong) = verdict {
                let evidence = self.setting.evidence(self.seed)?;
                keep(self.directory.path(), &evidence, "rebuilds", &format!("{wrong:?}\n"))?;
                wrong.book(&mut outcome, Some(evidence), self.setting.reproduce(cycles, self.seed));
                break;
            }
        }
        Ok(())
    }

    /// One child, and what is wrong after it.
    fn cycle(&mut self, cycle: u64, misses_deletes: bool) -> Result<()> {
        let first = (1 + NUMBERS * i64::try_from(cycle)?).to_string();
        let (seed, file) = (self.rng.u64(..).to_string(), self.file.display().to_string());
        let variables = [("FILE", &*file), ("FIRST", &*first), ("SEED", &*seed)];
        let mut child = self.setting.program.spawn(ROLE, &variables)?;
        thread::sleep(Duration::from_millis(self.rng.u64(..LIFE)));
        child.kill()?;
        self.hear(&mut child)?;
        if !self.file.exists() {
            return Ok(());
        }
        if self.rng.u8(..4) == 0 {
            self.abort()?;
        }
        self.judge()?;
        if misses_deletes { break_trigger(&self.file) } else { Ok(()) }
    }

    fn hear(&mut self, child: &mut Child) -> Result<()> {
        while let Some(line) = child.next_line() {
            match line.strip_prefix("acknowledged ").map(str::parse) {
                Some(Ok(number)) => drop(self.acknowledged.insert(number)),
                _ => return Err(Wrong::Other(format!("a child said: {line}")).into()),
            }
        }
        Ok(())
    }

    /// Has the engine abort what is under way, of which nothing may be left.
    fn abort(&self) -> Result<()> {
        let db = Database::open(&self.file).map_err(|it| Wrong::Other(it.to_string()))?;
        Migrations::abort(&db).wait().map_err(|it| Wrong::Other(it.to_string()))?;
        db.close()?;
        let sql = "SELECT count(*) FROM sqlite_schema WHERE sql LIKE '%monolite_rebuild%'";
        match Connection::open(&self.file)?.query_row(sql, (), |row| row.get::<_, i64>(0))? {
            0 => Ok(()),
            left => Err(Wrong::Other(format!("{left} objects are left of a rebuild")).into()),
        }
    }

    /// Looks at the file with stock SQLite.
    fn judge(&self) -> Result<()> {
        let plain = Connection::open(&self.file)?;
        let has_tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'mirror'";
        if plain.query_row(has_tables, (), |row| row.get::<_, i64>(0))? == 0 {
            let lost = self.acknowledged.len() as u64;
            let wrong = Wrong::Lost(lost, "all is gone".into());
            return if lost == 0 { Ok(()) } else { Err(wrong.into()) };
        }
        let text = |sql: &str| plain.query_row(sql, (), |row| row.get::<_, String>(0));
        let check = text("PRAGMA integrity_check")?;
        let differs = "SELECT coalesce(group_concat(id), '') FROM (SELECT id FROM \
                       (SELECT id, u, n, parent FROM rows EXCEPT SELECT * FROM mirror UNION ALL \
                       SELECT * FROM (SELECT * FROM mirror EXCEPT \
                       SELECT id, u, n, parent FROM rows)) LIMIT 5)";
        let differs = text(differs)?;
        if check != "ok" || !differs.is_empty() {
            let what = format!("integrity: {check}; rows that are not their mirror: {differs:?}");
            return Err(Wrong::Other(what).into());
        }
        let mut numbers = plain.prepare("SELECT number FROM done")?;
        let there: BTreeSet<i64> =
            numbers.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
        let lost: Vec<_> = self.acknowledged.difference(&there).collect();
        match lost.first() {
            None => Ok(()),
            Some(first) => Err(Wrong::Lost(lost.len() as u64, format!("{first} is gone")).into()),
        }
    }
}

/// Has the trigger that notes deletes note none, so that the engine does not see it.
fn break_trigger(file: &Path) -> Result<()> {
    let plain = Connection::open(file)?;
    let find = "SELECT sql FROM sqlite_schema WHERE name = 'monolite_rebuild_delete'";
    let Ok(sound) = plain.query_row(find, (), |row| row.get::<_, String>(0)) else { return Ok(()) };
    if sound.contains(" WHEN 0 ") {
        // It still is: the child was killed before it went on.
        return Ok(());
    }
    let broken = sound.replace(" BEGIN ", " WHEN 0 BEGIN ");
    plain.execute_batch(&format!("DROP TRIGGER monolite_rebuild_delete; {broken}"))?;
    let note = "UPDATE monolite_rebuild_state SET value = replace(value, ?1, ?2) WHERE name = \
                'schema' OR name GLOB 'object *'";
    plain.execute(note, [sound, broken])?;
    Ok(())
}

/// What the child does.
fn play() -> Result<()> {
    let db = Database::open(variable::<String>("FILE")?)?;
    let (first, seed) = (variable::<i64>("FIRST")?, variable::<u64>("SEED")?);
    let fill = format!(
        "WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x LIMIT {ROWS}) INSERT INTO \
         mirror SELECT i, 'u' || i, i, NULL FROM x; INSERT INTO rows SELECT * FROM mirror"
    );
    db.write(move |tx| {
        tx.execute_batch(SCHEMA)?;
        let is_filled: bool =
            tx.query_row("SELECT EXISTS(SELECT 1 FROM done)", (), |it| it.get(0))?;
        if !is_filled {
            tx.execute_batch(&fill)?;
            tx.execute("INSERT INTO done VALUES (0)", ())?;
        }
        Ok::<_, Error>(())
    })
    .wait()?;
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, numbers) = (&db, (first + writer..first + NUMBERS).step_by(3));
            scope.spawn(move || change_rows(db, numbers, seed ^ writer.cast_unsigned()));
        }
        scope.spawn(|| match rebuild(&db, seed) {
            Ok(()) => {}
            Err(error) => say(&format!("failed {error}")),
        });
    });
    Ok(())
}

fn change_rows(db: &Database, numbers: impl Iterator<Item = i64>, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    for number in numbers {
        let (a, b) = (rng.i64(1..ROWS + 300), rng.i64(1..ROWS));
        let change = match rng.u8(..9) {
            0 => format!("DELETE FROM % WHERE id = {a}"),
            1 => format!("DELETE FROM % WHERE id BETWEEN {a} AND {a} + 5"),
            2 => format!("REPLACE INTO %(id, u, n, parent) VALUES ({a}, 'u{b}', {number}, NULL)"),
            3 => format!("UPDATE OR REPLACE % SET u = 'u{a}' WHERE id = {b}"),
            4 => format!("UPDATE OR REPLACE % SET id = {a} WHERE id = {b}"),
            5 => format!("UPDATE % SET n = {number} WHERE id BETWEEN {a} AND {a} + 9"),
            6 => format!(
                "INSERT OR IGNORE INTO %(id, u, n, parent) VALUES ({a}, 'u{b}', {number}, NULL)"
            ),
            7 => format!("UPDATE % SET parent = {} WHERE id = {a}", a % 50),
            _ => format!(
                "INSERT OR IGNORE INTO %(id, u, n, parent) SELECT {a}, u || 'x', n, NULL FROM % \
                    WHERE id = {b}"
            ),
        };
        let (one, other) = (change.replace('%', "rows"), change.replace('%', "mirror"));
        let parents = match rng.u8(..8) {
            0 => format!("DELETE FROM parent WHERE id = {}", a % 50),
            _ => format!("INSERT OR IGNORE INTO parent VALUES ({})", a % 50),
        };
        let is_split = rng.bool();
        let written = db
            .write(move |tx| {
                tx.execute_batch(&parents)?;
                let (first, second) = if is_split { (&one, &other) } else { (&other, &one) };
                tx.execute_batch(first)?;
                tx.execute_batch(second)?;
                tx.execute("INSERT INTO done VALUES (?1)", [number])
            })
            .wait();
        match written {
            Ok(_) => say(&format!("acknowledged {number}")),
            Err(error) if error.kind() == ErrorKind::Constraint => {}
            Err(error) => return say(&format!("failed {number}: {error}")),
        }
    }
}

/// Rebuilds the table into one form after the other.
fn rebuild(db: &Database, seed: u64) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let more = [", more TEXT NOT NULL DEFAULT 'x'", ""];
    let index = ["CREATE INDEX more ON rows(more, n);", "CREATE INDEX n ON rows(n);"];
    let mut all = Migrations::new();
    for number in 1..=2_000_usize {
        let (more, index) = (more[number % 2], index[number % 2]);
        let index = index.replacen("INDEX ", &format!("INDEX i{number}_"), 1);
        let sql = format!(
            "-- monolite: rebuild=rows online\nCREATE TABLE rows(id INTEGER PRIMARY KEY, u TEXT \
             UNIQUE, n INTEGER, parent REFERENCES parent(id) ON DELETE CASCADE{more}); {index}"
        );
        let drops = format!("DROP INDEX i{number}_{}", if more.is_empty() { "n" } else { "more" });
        all = all.with(&format!("{:04}_rebuild.sql", 2 * number), &sql)?;
        all = all.with(&format!("{:04}_drop.sql", 2 * number + 1), &drops)?;
        if !all.status(db)?.pending.is_empty() {
            if rng.u8(..4) == 0 {
                let up = all.up(db);
                thread::sleep(Duration::from_millis(rng.u64(..40)));
                up.cancel();
                // Cancelled, or over before that.
                let _ = up.wait();
                Migrations::abort(db).wait()?;
            }
            all.up(db).wait()?;
        }
    }
    Ok(())
}
