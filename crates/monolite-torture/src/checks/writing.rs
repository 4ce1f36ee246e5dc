//! The child that is killed or cut off: it writes numbered transactions from several threads and
//! says each number once it is acknowledged; and the judging of the file that it leaves.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result};
use monolite::rusqlite::Connection;
use monolite::rusqlite::config::DbConfig;
use monolite::{Database, Durability, ErrorKind, Options, Sharing};
use monolite_testkit::child::{Child, Heard, Program, await_parent, say, variable};
use monolite_testkit::markers;
use monolite_testkit::schedule::{Interactive, Pace};

use super::survivors::compare;
use super::wrong::Wrong;

/// The child's role.
pub(super) const ROLE: &str = "writes numbered transactions";

/// Numbers that a child may use for one file.
pub(super) const NUMBERS: i64 = 10_000_000;

/// The smallest that the engine allows, so that checkpoints and fresh starts of the WAL are often
/// what is interrupted.
pub(super) const WAL_LIMIT_BYTES: u64 = 8 << 20;

/// Threads that write one transaction at a time.
const SINGLE: i64 = 4;

/// Threads that write several before they wait for the first.
const IN_BULK: i64 = 2;

/// One more does all that other members of a batch do.
const WRITERS: i64 = SINGLE + IN_BULK + 1;

/// One in this many numbers of a thread that writes one at a time is an interactive transaction.
const INTERACTIVE: i64 = 5;

/// Transactions that such a thread writes before it waits.
const BULK: usize = 16;

/// The same for a child that says numbers early. Its parent needs a moment to cut the power, and
/// the broken arrangement has to last as long.
const EARLY_BULK: usize = 500;

/// How long a thread that was refused rests.
const REFUSED_PAUSE: Duration = Duration::from_millis(2);

/// How long a child of many lives keeps one file open.
const LIFE: Duration = Duration::from_secs(15);

/// The longest that a read keeps its snapshot, in milliseconds, and that a thread rests which
/// changes the schema.
const LONG: u64 = 1_000;

/// What a child is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orders<'p> {
    pub(super) file: &'p Path,
    /// The first of its numbers.
    pub(super) first: i64,
    /// Bytes in each of the three parts of a transaction.
    pub(super) filling: usize,
    pub(super) arrangement: Arrangement,
}

/// How a child writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrangement {
    /// As the engine promises.
    Sound,
    /// The same in one process that opens file after file, each [`beside`] the first.
    ManyLives,
    /// It says numbers before they are acknowledged.
    SaysEarly,
    /// The engine acknowledges before the sync.
    Buffered,
}

impl Arrangement {
    const ALL: [(Arrangement, &'static str); 4] = [
        (Arrangement::Sound, "sound"),
        (Arrangement::ManyLives, "many lives"),
        (Arrangement::SaysEarly, "says early"),
        (Arrangement::Buffered, "buffered"),
    ];
}

impl Orders<'_> {
    /// Starts a child.
    pub(super) fn spawn(&self, program: &Program) -> Result<Child> {
        let file = self.file.to_str().context("the directory's name is not text")?;
        let (first, filling) = (self.first.to_string(), self.filling.to_string());
        let arrangement = Arrangement::ALL[self.arrangement as usize].1;
        let variables =
            [("FILE", file), ("FIRST", &first), ("FILLING", &filling), ("HOW", arrangement)];
        program.spawn(ROLE, &variables)
    }
}

/// The file of a life of a child that has many.
pub(super) fn beside(file: &Path, life: i64) -> PathBuf {
    file.with_file_name(format!("db-{life}"))
}

/// What was heard of the children of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    pub(super) acknowledged: BTreeSet<i64>,
    /// What was refused as there was no room, and whether that may be.
    pub(super) refused: BTreeSet<i64>,
    pub(super) may_refuse: bool,
    /// Whether the last child has said that the database is open.
    pub(super) is_open: bool,
}

impl Ledger {
    /// Takes note of what a child said.
    ///
    /// # Errors
    /// What is wrong with that.
    pub(super) fn hear(&mut self, line: &str) -> Result<(), Wrong> {
        self.is_open |= line == "open";
        let number = |word: &str| line.strip_prefix(word)?.parse::<i64>().ok();
        if let Some(number) = number("acknowledged ") {
            self.acknowledged.insert(number);
        } else if let Some(number) = number("refused ").filter(|_| self.may_refuse) {
            self.refused.insert(number);
        } else if ["failed", "refused", "wrong"].iter().any(|word| line.starts_with(word)) {
            return Err(Wrong::Other(format!("a child said: {line}")));
        }
        Ok(())
    }

    /// Hears a child until then.
    ///
    /// # Errors
    /// What is wrong with what it says.
    pub(super) fn hear_until(&mut self, child: &mut Child, until: Instant) -> Result<(), Wrong> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match child.listen(left) {
                Heard::Line(line) => self.hear(&line)?,
                Heard::End => thread::sleep(left),
                Heard::Silence => {}
            }
            if left.is_zero() {
                return Ok(());
            }
        }
    }

    /// Hears what a child has said that is gone.
    ///
    /// # Errors
    /// The first thing that is wrong with that.
    pub(super) fn hear_rest(&mut self, child: &mut Child) -> Result<(), Wrong> {
        let mut first = Ok(());
        while let Some(line) = child.next_line() {
            let heard = self.hear(&line);
            first = first.and(heard);
        }
        first
    }

    /// Judges a file, see [`judge`].
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn judge(
        &self,
        file: &Path,
        look: Look,
        leaves_wal: bool,
    ) -> Result<BTreeSet<i64>, Wrong> {
        let found = judge(file, &self.acknowledged, look, leaves_wal)?;
        match self.refused.intersection(&found).next() {
            Some(id) => Err(Wrong::Other(format!("transaction {id} was refused and is there"))),
            None => Ok(found),
        }
    }
}

/// Has the engine open a file that a child has left, and close it.
///
/// # Errors
/// When it cannot.
pub(super) fn open_and_close(file: &Path) -> Result<(), Wrong> {
    let opened = Database::open(file).and_then(|db| db.close());
    opened.map_err(|error| Wrong::Other(format!("the engine cannot open it: {error}")))
}

/// Plays the role: says what [`Work::run`] says until it is told to close; then `wal` and the most
/// bytes that the WAL had, and `closed`. Every fourth life of a file shares it.
pub(super) fn play() -> Result<()> {
    let how: String = variable("HOW")?;
    let how = Arrangement::ALL.into_iter().find(|(_, name)| *name == how).context(how)?.0;
    let durability = match how {
        Arrangement::Buffered => Durability::Buffered,
        _ => Durability::Synced,
    };
    let (file, filling): (PathBuf, usize) = (variable("FILE")?, variable("FILLING")?);
    let (mut first, is_told) = (variable("FIRST")?, Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&is_told);
    thread::spawn(move || {
        await_parent();
        told.store(true, Ordering::Relaxed);
    });
    loop {
        let (has_many, born) = (how == Arrangement::ManyLives, Instant::now());
        let is_fourth = first / NUMBERS % 4 == 3;
        let options = Options::new()
            .wal_limit_bytes(WAL_LIMIT_BYTES)
            .durability(durability)
            .sharing(if is_fourth { Sharing::Shared } else { Sharing::Exclusive })
            .writer_cache_bytes(16 << 20)
            .reader_cache_bytes(2 << 20);
        let life = if has_many { beside(&file, first / NUMBERS) } else { file.clone() };
        let db = options.open(life)?;
        let says_early = how == Arrangement::SaysEarly;
        let is_mixed = has_many || how == Arrangement::Sound;
        let work = Work { first, filling, says_early, is_mixed };
        let has_told = || is_told.load(Ordering::Relaxed);
        work.run(&db, &|| has_told() || has_many && born.elapsed() > LIFE)?;
        say(&format!("wal {}", db.stats().wal_bytes_max));
        close(&db)?;
        if !has_many || has_told() {
            return Ok(());
        }
        first += NUMBERS;
    }
}

/// Whether it is over.
pub(super) type IsOver<'a> = &'a (dyn Fn() -> bool + Sync);

/// What a child writes to its open database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// See [`Orders`].
    pub(super) first: i64,
    pub(super) filling: usize,
    /// Whether it says numbers before they are acknowledged.
    pub(super) says_early: bool,
    /// Whether others fail, read for long, and change the schema meanwhile.
    pub(super) is_mixed: bool,
}

impl Work {
    /// Creates the tables and says `open`; then `acknowledged N`, `refused N`, `failed …` or
    /// `wrong …` until it is over.
    pub(super) fn run(self, db: &Database, is_over: IsOver<'_>) -> Result<()> {
        markers::create(db)?;
        say("open");
        let filling = vec![7; self.filling];
        let writer = Writer { db, is_over, says_early: self.says_early, filling: &filling };
        thread::scope(|scope| {
            for number in 0..WRITERS {
                let step = usize::try_from(WRITERS).expect("a handful");
                let ids = (self.first + number..self.first + NUMBERS).step_by(step);
                let bulk = if self.says_early { EARLY_BULK } else { BULK };
                let at_once = if number < SINGLE { 1 } else { bulk };
                if number < SINGLE + IN_BULK {
                    scope.spawn(move || writer.write_all(ids, at_once));
                } else if self.is_mixed {
                    scope.spawn(move || writer.report(writer.misbehave(ids)));
                    scope.spawn(move || writer.report(writer.read_long()));
                    scope.spawn(move || writer.report(writer.change_schema()));
                }
            }
        });
        Ok(())
    }
}

/// Closes the database, and says `closed`.
pub(super) fn close(db: &Database) -> Result<()> {
    db.close()?;
    say("closed");
    Ok(())
}

#[derive(Clone, Copy)]
struct Writer<'a> {
    db: &'a Database,
    is_over: IsOver<'a>,
    says_early: bool,
    filling: &'a [u8],
}

impl Writer<'_> {
    fn write_all(self, ids: impl Iterator<Item = i64>, at_once: usize) {
        let mut ids = ids.peekable();
        while !(self.is_over)() {
            if at_once == 1
                && let Some(id) = ids.next_if(|id| id % INTERACTIVE == 0)
            {
                match self.interact(id) {
                    Ok(()) => {}
                    // Its snapshot stood in the way of the WAL near its limit: rolled back.
                    Err(error) if error.kind() == ErrorKind::Timeout => {}
                    Err(error) if error.kind() == ErrorKind::Overloaded => say_refused(id),
                    Err(error) => return say_failed(id, &error),
                }
                continue;
            }
            let writes: Vec<_> =
                ids.by_ref().take(at_once).map(|id| (id, self.write(id))).collect();
            for (id, write) in writes {
                match write.wait() {
                    Ok(()) if !self.says_early => say(&format!("acknowledged {id}")),
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::Overloaded => say_refused(id),
                    // A file system that was cut off refuses everything.
                    Err(error) => return say_failed(id, &error),
                }
            }
        }
    }

    /// An interactive transaction whose application takes its time.
    fn interact(self, id: i64) -> Result<(), monolite::Error> {
        if self.says_early {
            say(&format!("acknowledged {id}"));
        }
        let rng = fastrand::Rng::with_seed(id.cast_unsigned());
        let pace = Pace { is_awaited: id % 2 == 0, longest_pause: 300, rng };
        self.db
            .transact(async |tx| {
                markers::put_filled(&Interactive::new(&tx, pace.clone()), id, self.filling)
            })
            .wait()?;
        if !self.says_early {
            say(&format!("acknowledged {id}"));
        }
        Ok(())
    }

    fn write(self, id: i64) -> monolite::Write<()> {
        let filling = self.filling.to_vec();
        let write = self.db.write(move |tx| markers::put_filled(tx, id, &filling));
        if self.says_early {
            say(&format!("acknowledged {id}"));
        }
        write
    }

    fn report(self, done: Result<(), monolite::Error>) {
        if let Err(error) = done {
            say(&format!("failed {:?}: {error}", error.kind()));
        }
    }

    fn pause(self, most: u64) {
        let until = Instant::now() + Duration::from_micros(fastrand::u64(..most * 1_000));
        while !(self.is_over)() && Instant::now() < until {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Members that give up or panic after they have written, under numbers below zero; and large
    /// ones, and some that may run once only.
    fn misbehave(self, ids: impl Iterator<Item = i64>) -> Result<(), monolite::Error> {
        for id in ids {
            if (self.is_over)() {
                break;
            }
            let (deed, filling) = (fastrand::u8(..4), vec![6; fastrand::usize(..100_000)]);
            let put = move |tx: &monolite::Tx<'_>| markers::put_filled(tx, id, &filling);
            let write = match deed {
                0 => self.db.write_once(put),
                1 => self.db.write(put),
                _ => self.db.write(move |tx| {
                    markers::put(tx, -id)?;
                    match deed {
                        2 => Err(monolite::Error::aborted("on purpose")),
                        // Without the hook that prints: it is no news.
                        _ => resume_unwind(Box::new("on purpose")),
                    }
                }),
            };
            // A closure that panics does so here, too.
            let ended = catch_unwind(AssertUnwindSafe(|| is_done(write.wait())));
            match (ended.unwrap_or(Ok(false))?, deed) {
                (true, 0 | 1) => say(&format!("acknowledged {id}")),
                (true, _) => say(&format!("wrong: the failed transaction {id} was acknowledged")),
                (false, _) => {}
            }
            self.pause(20);
        }
        Ok(())
    }

    /// One snapshot, looked at twice.
    fn read_long(self) -> Result<(), monolite::Error> {
        let counts =
            "SELECT n, (SELECT COUNT(*) FROM whole), (SELECT max(id) FROM part) FROM total";
        while !(self.is_over)() {
            let seen = self.db.read(|tx| {
                let look = || {
                    let row = tx.query_row(counts, (), |row| {
                        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get(2)?))
                    });
                    row.map(|row: (i64, i64, Option<i64>)| row)
                };
                let first = look()?;
                self.pause(LONG);
                Ok::<_, monolite::Error>((first, look()?))
            });
            match seen.wait() {
                Ok((first, second)) if first == second && first.0 == first.1 => {}
                Ok((first, second)) => say(&format!("wrong: a snapshot had {first:?}, {second:?}")),
                Err(error) => drop(is_done(Err(error))?),
            }
            self.pause(LONG / 10);
        }
        Ok(())
    }

    fn change_schema(self) -> Result<(), monolite::Error> {
        const CHANGES: [&str; 6] = [
            "CREATE INDEX IF NOT EXISTS by_size ON part(length(filling))",
            "DROP INDEX IF EXISTS by_size",
            "CREATE TABLE IF NOT EXISTS extra(id INTEGER PRIMARY KEY, t TEXT) STRICT;
             INSERT INTO extra(t) SELECT hex(randomblob(100)) FROM whole LIMIT 100",
            "DROP TABLE IF EXISTS extra",
            "ALTER TABLE extra ADD COLUMN further INTEGER NOT NULL DEFAULT 7",
            "ALTER TABLE extra DROP COLUMN further",
        ];
        while !(self.is_over)() {
            let sql = CHANGES[fastrand::usize(..CHANGES.len())];
            match self.db.write(move |tx| tx.execute_batch(sql)).wait() {
                // A column that is there already, or is not there.
                Err(error) if error.kind() == ErrorKind::Invalid => {}
                changed => drop(is_done(changed)?),
            }
            self.pause(LONG / 5);
        }
        Ok(())
    }
}

/// Whether it was done; refusals that a user has to expect are no errors.
fn is_done(result: Result<(), monolite::Error>) -> Result<bool, monolite::Error> {
    use ErrorKind::{Aborted, Overloaded, Timeout};
    match result {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), Aborted | Overloaded | Timeout) => Ok(false),
        Err(error) => Err(error),
    }
}

fn say_failed(id: i64, error: &monolite::Error) {
    say(&format!("failed {id}: {:?}: {error}", error.kind()));
}

/// There is no room for it now.
fn say_refused(id: i64) {
    say(&format!("refused {id}"));
    thread::sleep(REFUSED_PAUSE);
}

/// How thoroughly a file is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// `quick_check`.
    Quick,
    /// `integrity_check`.
    Thorough,
}

/// Judges a file that nobody has open, through stock SQLite, and says which transactions it has. A
/// file that is found sound loses its WAL to the database unless `leaves_wal`.
pub(super) fn judge(
    file: &Path,
    acknowledged: &BTreeSet<i64>,
    look: Look,
    leaves_wal: bool,
) -> Result<BTreeSet<i64>, Wrong> {
    let other = |error: Error| Wrong::Other(format!("{error:#}"));
    let keep_wal = |connection: &Connection, keeps| {
        let set = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keeps);
        set.map(drop).map_err(|error| other(error.into()))
    };
    let connection = Connection::open(file).map_err(|error| other(error.into()))?;
    keep_wal(&connection, true)?;
    match look {
        Look::Quick => quick_check(&connection).map_err(other)?,
        Look::Thorough => markers::check_integrity(&connection).map_err(other)?,
    }
    let found =
        markers::found_whole(&connection).map_err(|error| Wrong::Partial(format!("{error:#}")))?;
    compare(&found, acknowledged)?;
    keep_wal(&connection, leaves_wal)?;
    Ok(found)
}

fn quick_check(connection: &Connection) -> Result<()> {
    let said: String =
        connection.query_row("PRAGMA quick_check", [], |row| row.get(0)).context("quick_check")?;
    anyhow::ensure!(said == "ok", "quick_check: {said}");
    Ok(())
}

#[test]
fn a_lost_and_a_partial_transaction_are_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("db");
    let db = Database::open(&file).unwrap();
    markers::create(&db).unwrap();
    db.write(|tx| markers::put(tx, 1)).wait().unwrap();
    db.close().unwrap();
    let judge = |ids: &[i64]| judge(&file, &ids.iter().copied().collect(), Look::Quick, false);
    assert_eq!(judge(&[1]), Ok(BTreeSet::from([1])));
    assert!(matches!(judge(&[1, 2]), Err(Wrong::Lost(..))));
    let change = |sql| Connection::open(&file).unwrap().execute_batch(sql).unwrap();
    change("UPDATE whole SET id = -1; UPDATE part SET id = -1");
    assert!(matches!(judge(&[]), Err(Wrong::Partial(text)) if text.contains("failed")));
    change("DELETE FROM part WHERE number = 2");
    assert!(matches!(judge(&[]), Err(Wrong::Partial(_))));
}
