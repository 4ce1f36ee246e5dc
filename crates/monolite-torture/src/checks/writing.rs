//! The child that is killed or cut off: it writes numbered transactions from several threads and
//! says each number once it is acknowledged; and the judging of the file that it leaves.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Error, Result};
use monolite::rusqlite::Connection;
use monolite::rusqlite::config::DbConfig;
use monolite::{Database, Durability, ErrorKind, Options, Sharing};
use monolite_testkit::child::{Child, Program, await_parent, say, variable};
use monolite_testkit::markers;
use monolite_testkit::schedule::{Interactive, Pace};

use super::wrong::Wrong;

/// The child's role.
pub(super) const ROLE: &str = "writes numbered transactions";

/// Numbers that a child may use.
pub(super) const NUMBERS: i64 = 1_000_000;

/// The smallest that the engine allows, so that checkpoints and fresh starts of the WAL are often
/// what is interrupted.
const WAL_LIMIT_BYTES: u64 = 8 << 20;

/// Threads that write one transaction at a time.
const SINGLE: i64 = 4;

/// Threads that write several before they wait for the first.
const IN_BULK: i64 = 2;

/// One in this many numbers of a thread that writes one at a time is an interactive transaction.
const INTERACTIVE: i64 = 5;

/// Transactions that such a thread writes before it waits.
const BULK: usize = 16;

/// The same for a child that says numbers early. Its parent needs a moment to cut the power, and
/// the broken arrangement has to last as long.
const EARLY_BULK: usize = 500;

/// How long a thread that was refused rests.
const REFUSED_PAUSE: Duration = Duration::from_millis(2);

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
    /// It says numbers before they are acknowledged.
    SaysEarly,
    /// The engine acknowledges before the sync.
    Buffered,
}

impl Arrangement {
    fn name(self) -> &'static str {
        match self {
            Arrangement::Sound => "sound",
            Arrangement::SaysEarly => "says early",
            Arrangement::Buffered => "buffered",
        }
    }
}

impl Orders<'_> {
    /// Starts a child.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub(super) fn spawn(&self, program: &Program) -> Result<Child> {
        let file = self.file.to_str().context("the directory's name is not text")?;
        let (first, filling) = (self.first.to_string(), self.filling.to_string());
        let arrangement = self.arrangement.name();
        let variables =
            [("FILE", file), ("FIRST", &first), ("FILLING", &filling), ("HOW", arrangement)];
        program.spawn(ROLE, &variables)
    }
}

/// The number in a line with which a child acknowledges.
pub(super) fn acknowledged(line: &str) -> Option<i64> {
    line.strip_prefix("acknowledged ")?.parse().ok()
}

/// The number in a line that says that there was no room.
pub(super) fn refused(line: &str) -> Option<i64> {
    line.strip_prefix("refused ")?.parse().ok()
}

/// Whether a child says that something did not succeed.
pub(super) fn is_complaint(line: &str) -> bool {
    line.starts_with("failed") || line.starts_with("refused")
}

/// Plays the role: says what [`Work::run`] says until it is told to close, and `closed`.
/// Every fourth life of a file shares it.
pub(super) fn play() -> Result<()> {
    let how: String = variable("HOW")?;
    let is_buffered = how == Arrangement::Buffered.name();
    let durability = if is_buffered { Durability::Buffered } else { Durability::Synced };
    let first = variable("FIRST")?;
    let is_fourth = first / NUMBERS % 4 == 3;
    let sharing = if is_fourth { Sharing::Shared } else { Sharing::Exclusive };
    let options = Options::new().wal_limit_bytes(WAL_LIMIT_BYTES).durability(durability);
    let db = options.sharing(sharing).open(variable::<String>("FILE")?)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_over);
    let work = Work {
        first,
        filling: variable("FILLING")?,
        says_early: how == Arrangement::SaysEarly.name(),
    };
    thread::spawn(move || {
        await_parent();
        told.store(true, Ordering::Relaxed);
    });
    work.run(&db, &is_over)?;
    close(&db)
}

/// What a child writes to its open database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// See [`Orders`].
    pub(super) first: i64,
    pub(super) filling: usize,
    /// Whether it says numbers before they are acknowledged.
    pub(super) says_early: bool,
}

impl Work {
    /// Creates the tables and says `open`; then `acknowledged N`, `refused N` or `failed …` until
    /// it is over.
    ///
    /// # Errors
    /// When the tables cannot be created.
    pub(super) fn run(self, db: &Database, is_over: &AtomicBool) -> Result<()> {
        markers::create(db)?;
        say("open");
        let filling = vec![7; self.filling];
        let writer = Writer { db, is_over, says_early: self.says_early, filling: &filling };
        thread::scope(|scope| {
            for number in 0..SINGLE + IN_BULK {
                let step = usize::try_from(SINGLE + IN_BULK).expect("a handful");
                let ids = (self.first + number..self.first + NUMBERS).step_by(step);
                let bulk = if self.says_early { EARLY_BULK } else { BULK };
                let at_once = if number < SINGLE { 1 } else { bulk };
                scope.spawn(move || writer.write_all(ids, at_once));
            }
        });
        Ok(())
    }
}

/// Closes the database, and says `closed`.
///
/// # Errors
/// Those of the close.
pub(super) fn close(db: &Database) -> Result<()> {
    db.close()?;
    say("closed");
    Ok(())
}

#[derive(Clone, Copy)]
struct Writer<'a> {
    db: &'a Database,
    is_over: &'a AtomicBool,
    says_early: bool,
    filling: &'a [u8],
}

impl Writer<'_> {
    fn write_all(self, ids: impl Iterator<Item = i64>, at_once: usize) {
        let mut ids = ids.peekable();
        while !self.is_over.load(Ordering::Relaxed) {
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
    markers::check_all_there(acknowledged, &found)
        .map_err(|error| Wrong::Lost(1, error.to_string()))?;
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
    Connection::open(&file).unwrap().execute_batch("DELETE FROM part WHERE number = 2").unwrap();
    assert!(matches!(judge(&[1]), Err(Wrong::Partial(_))));
}
