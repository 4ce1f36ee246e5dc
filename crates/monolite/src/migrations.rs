//! Owns migrations: changes of the schema in an order, each made once, and each in one transaction.
//!
//! # Format
//! A migration is a text in a file called `NNNN_name.sql`, and has the number that its name begins
//! with. Its first lines may be comments `-- monolite: foreign_keys=off`. What was made is noted in
//! a table of the file (`monolite_migrations`: number, name, checksum, time), in the transaction
//! that makes it. The checksum is a SipHash-2-4 of 128 bits, with a key of zeros, over the text
//! with `\n` for each `\r\n`, in hexadecimal digits.
//!
//! # Algorithm
//! Each migration is a transaction of its own in the writer, which looks first what was made, under
//! the write lock. So of two processes that migrate at once each makes what the other has not made
//! yet. One for which foreign keys are off has them off from before its transaction until behind
//! it: SQLite does not switch them in the middle of one.
//!
//! # Invariants
//! - A migration is made whole and noted, or nothing of it is.
//! - Nothing is made behind one that was edited, is missing, or was skipped.

mod directory;
#[cfg(test)]
mod tests;

use std::hash::Hasher as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use monolite_sqlite::AppliedMigration;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::call::completion::Completion;
use crate::call::member::{Alone, ForeignKeys, Repeatable, Submission};
use crate::call::write::Write;
use crate::call::write_queue::WriteQueue;
use crate::database::Database;
use crate::error::{Error, ErrorKind, Result, within};
use crate::jobs::Job;
use crate::tx::Tx;

/// What a migration may take unless it is said otherwise: an index on 100 million rows.
const TIME_LIMIT: Duration = Duration::from_secs(3_600);

/// What begins a line that says how a migration is made.
const DIRECTIVE: &str = "-- monolite:";

/// How many violated foreign keys an error names.
const NAMED: u32 = 5;

/// The changes of a schema, in their order.
///
/// Each is SQL in a file called `NNNN_name.sql`, made once, in the order of the numbers, in one
/// transaction each. What was made is remembered in the database with its checksum, so that one
/// that was edited afterwards is an error, and so is one that is gone.
///
/// The guide is `docs/guides/migrations.md`.
///
/// ```
/// use monolite::{Database, Migrations};
///
/// # fn main() -> monolite::Result<()> {
/// // In a program: monolite::migrations!["../migrations/0001_accounts.sql", …], or
/// // Migrations::from_directory("migrations")?.
/// let migrations = Migrations::new()
///     .with("0001_accounts.sql", "CREATE TABLE account(id INTEGER PRIMARY KEY, name TEXT);")?
///     .with("0002_balances.sql", "ALTER TABLE account ADD balance INTEGER NOT NULL DEFAULT 0;")?;
/// let db = Database::open(":memory:")?;
/// assert_eq!(migrations.up(&db).wait()?, ["0001_accounts.sql", "0002_balances.sql"]);
/// assert!(migrations.up(&db).wait()?.is_empty());
/// migrations.verify(&db)?;
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Migrations {
    list: Vec<Arc<Migration>>,
    time_limit: Duration,
}

/// One of them.
#[derive(Debug)]
struct Migration {
    number: i64,
    name: String,
    sql: String,
    checksum: String,
    foreign_keys: ForeignKeys,
}

/// What was made of some migrations in a database, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MigrationStatus {
    /// What was made, in order.
    pub applied: Vec<Applied>,
    /// The names of those that are to be made, in order.
    pub pending: Vec<String>,
    /// What is wrong: a migration that was edited after it was made, is missing, or comes before
    /// one that was made. Nothing is made then.
    pub problems: Vec<String>,
}

/// A migration that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Applied {
    /// Its number.
    pub number: i64,
    /// The name of its file.
    pub name: String,
    /// The checksum of its text, in hexadecimal digits.
    pub checksum: String,
    /// When it was made, in seconds since 1970 (UTC).
    pub applied: i64,
}

impl Default for Migrations {
    fn default() -> Migrations {
        Migrations::new()
    }
}

/// Migrations whose texts are part of the program: the paths of their files, as
/// [`include_str!`] takes them. Gives what [`Migrations::with`] does.
///
/// ```ignore
/// let migrations = monolite::migrations![
///     "../migrations/0001_accounts.sql",
///     "../migrations/0002_balances.sql",
/// ]?;
/// ```
#[macro_export]
macro_rules! migrations {
    ($($path:literal),* $(,)?) => {
        ::core::result::Result::Ok::<_, $crate::Error>($crate::Migrations::new())
            $(.and_then(|it| it.with($path, ::core::include_str!($path))))*
    };
}

impl Migrations {
    /// None.
    #[must_use]
    pub fn new() -> Migrations {
        Migrations { list: Vec::new(), time_limit: TIME_LIMIT }
    }

    /// With one more, whose file is at `path` and has the text `sql`. Only the name at the end of
    /// `path` counts; no file is read. They may be given in any order.
    ///
    /// # Errors
    /// `Invalid` for a name that is not of the form `NNNN_name.sql`, a number that there is
    /// already, and a directive that is not known.
    pub fn with(mut self, path: &str, sql: &str) -> Result<Migrations> {
        let migration = Migration::new(path.rsplit('/').next().unwrap_or(path), sql)?;
        match self.list.binary_search_by_key(&migration.number, |it| it.number) {
            Ok(there) => Err(wrong(&format!(
                "the migrations {} and {} have the same number; renumber the later one",
                self.list[there].name, migration.name
            ))),
            Err(place) => {
                self.list.insert(place, Arc::new(migration));
                Ok(self)
            }
        }
    }

    /// Those whose files are in `directory`: all whose names end with `.sql`.
    ///
    /// # Errors
    /// As [`Migrations::with`]; `Storage` when the directory or a file cannot be read.
    pub fn from_directory(directory: impl AsRef<Path>) -> Result<Migrations> {
        let files = directory::read(directory.as_ref())?;
        files.iter().try_fold(Migrations::new(), |all, (name, sql)| all.with(name, sql))
    }

    /// How long each of them may take: an hour unless it is said here. The option
    /// `write_time_limit` does not hold for them.
    ///
    /// # Errors
    /// `Invalid` for less than a millisecond, or more than a week.
    pub fn time_limit(mut self, limit: Duration) -> Result<Migrations> {
        let (least, most) = (Duration::from_millis(1), Duration::from_secs(7 * 86_400));
        within("time_limit of the migrations", limit, least, most)?;
        self.time_limit = limit;
        Ok(self)
    }

    /// What was made of them in `db`, what is to be made, and what is wrong. Blocks while it reads.
    ///
    /// # Errors
    /// Those of [`Read::wait`](crate::Read::wait).
    pub fn status(&self, db: &Database) -> Result<MigrationStatus> {
        let made = db.read(|tx| tx.migrations()).wait()?;
        Ok(self.compared_with(&made))
    }

    /// The names of those that [`Migrations::up`] would make, in order. Blocks while it reads.
    ///
    /// # Errors
    /// `Invalid` when something is wrong with those that were made; those of
    /// [`Read::wait`](crate::Read::wait).
    pub fn plan(&self, db: &Database) -> Result<Vec<String>> {
        let status = self.status(db)?;
        status.problems.first().map_or(Ok(status.pending), |problem| Err(wrong(problem)))
    }

    /// Sees whether all of them were made in `db`, and no others, as they are now: what a program
    /// does at its start when others migrate. Blocks while it reads.
    ///
    /// # Errors
    /// `Invalid`, with the name of what is wrong; those of [`Read::wait`](crate::Read::wait).
    pub fn verify(&self, db: &Database) -> Result<()> {
        match self.plan(db)?.first() {
            None => Ok(()),
            Some(name) => Err(wrong(&format!(
                "the migration {name} was not made yet; make it (Migrations::up, or monolite \
                 migrate up) before the database is used"
            ))),
        }
    }

    /// Makes those that were not made yet, and gives their names. Each is a transaction of its own,
    /// for which all other writes wait, and reads do not. The handle's progress counts migrations.
    ///
    /// # Errors
    /// From the handle: `Invalid` when one that was made has been edited, is missing or comes
    /// before it; those of the SQL, with the migration's name before. What was made before stays
    /// made.
    ///
    /// # Cancellation
    /// One that is being made is made; those behind it are not.
    ///
    /// # Durability
    /// As that of [`Database::write`].
    pub fn up(&self, db: &Database) -> Job<Vec<String>> {
        let (all, writes) = (self.clone(), Arc::clone(db.writes()));
        db.jobs().start(move |job| {
            let mut made = Vec::new();
            for (done, migration) in all.list.iter().enumerate() {
                job.tell(done as u64, all.list.len() as u64);
                job.check()?;
                if all.make(migration, &writes).wait()? {
                    made.push(migration.name.clone());
                }
            }
            job.tell(all.list.len() as u64, all.list.len() as u64);
            if all.list.is_empty() {
                all.check_none(&writes).wait()?;
            }
            Ok(made)
        })
    }

    /// Makes one unless it was made; tells whether it did.
    fn make(&self, migration: &Arc<Migration>, writes: &Arc<WriteQueue>) -> Write<bool> {
        let (all, migration) = (self.clone(), Arc::clone(migration));
        let alone = Alone { limit: self.time_limit, foreign_keys: migration.foreign_keys };
        let body = move |tx: &Tx<'_>| {
            let status = all.compared_with(&tx.migrations()?);
            if let Some(problem) = status.problems.first() {
                return Err(wrong(problem));
            }
            if !status.pending.contains(&migration.name) {
                return Ok(false);
            }
            let of_it = |error: Error| error.context(format!("migration {}", migration.name));
            migration.run(tx).map_err(of_it)?;
            Ok(true)
        };
        let caller = Completion::new();
        let member = Submission::new(Repeatable(body), writes.principal(), Arc::clone(&caller));
        Write::submit(Box::new(member.alone(alone)), caller, writes)
    }

    /// Sees whether none was made, where there are none.
    fn check_none(&self, writes: &Arc<WriteQueue>) -> Write<()> {
        let all = self.clone();
        let body = move |tx: &Tx<'_>| {
            let status = all.compared_with(&tx.migrations()?);
            status.problems.first().map_or(Ok(()), |problem| Err(wrong(problem)))
        };
        let caller = Completion::new();
        let member = Submission::new(Repeatable(body), writes.principal(), Arc::clone(&caller));
        Write::submit(Box::new(member), caller, writes)
    }

    fn compared_with(&self, made: &[AppliedMigration]) -> MigrationStatus {
        let last = made.last().map(|it| it.number);
        let mut status = MigrationStatus::default();
        for it in made {
            let known = self.list.iter().find(|known| known.number == it.number);
            status.problems.extend(match known {
                None => Some(format!(
                    "the migration {} was made in this database and is missing here; this program \
                     is older than the database, or its file was removed or renumbered: bring it \
                     back",
                    it.name
                )),
                Some(known) if known.checksum != it.checksum => Some(format!(
                    "the migration {} was edited after it was made in this database (as {}); undo \
                     that, and make the change in a new migration",
                    known.name, it.name
                )),
                Some(known) if known.name != it.name => Some(format!(
                    "the migration {} was called {} when it was made in this database; give it \
                     that name again",
                    known.name, it.name
                )),
                Some(_) => None,
            });
            let AppliedMigration { number, name, checksum, applied } = it.clone();
            status.applied.push(Applied { number, name, checksum, applied });
        }
        let is_made = |it: &&Arc<Migration>| made.iter().any(|made| made.number == it.number);
        for it in self.list.iter().filter(|it| !is_made(it)) {
            if last.is_some_and(|last| it.number < last) {
                status.problems.push(format!(
                    "the migration {} was not made and comes before {}, which was; give it a \
                     number behind that",
                    it.name,
                    made.last().map_or("", |made| &made.name)
                ));
            }
            status.pending.push(it.name.clone());
        }
        status
    }
}

impl Migration {
    fn new(name: &str, sql: &str) -> Result<Migration> {
        let number = number_of(name).ok_or_else(|| {
            wrong(&format!(
                "{name:?} is no name of a migration: it must be a number, _, a name, and .sql, as \
                 0001_accounts.sql"
            ))
        })?;
        let text = sql.replace("\r\n", "\n");
        let mut hasher = SipHasher24::new();
        hasher.write(text.as_bytes());
        let checksum = format!("{:032x}", u128::from(hasher.finish128()));
        let foreign_keys = foreign_keys_of(name, &text)?;
        Ok(Migration { number, name: name.into(), sql: sql.into(), checksum, foreign_keys })
    }

    /// Makes and notes it in the open transaction.
    fn run(&self, tx: &Tx<'_>) -> Result<()> {
        tx.execute_batch(&self.sql)?;
        if self.foreign_keys == ForeignKeys::Off {
            let violated = tx.foreign_key_violations(NAMED)?;
            if !violated.is_empty() {
                return Err(violations(&violated));
            }
        }
        tx.note_migration(self.number, &self.name, &self.checksum)
    }
}

/// The number in a name of the form `NNNN_name.sql`.
fn number_of(name: &str) -> Option<i64> {
    let (digits, rest) = name.strip_suffix(".sql")?.split_once('_')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && !rest.is_empty() { digits.parse().ok() } else { None }
}

/// What the directives at the beginning of `sql` say.
fn foreign_keys_of(name: &str, sql: &str) -> Result<ForeignKeys> {
    let mut foreign_keys = ForeignKeys::On;
    for line in sql.lines().map(str::trim).take_while(|line| line.starts_with("--")) {
        let Some(said) = line.strip_prefix(DIRECTIVE) else { continue };
        match said.trim() {
            "foreign_keys=off" => foreign_keys = ForeignKeys::Off,
            said => {
                return Err(wrong(&format!(
                    "the migration {name} says {said:?}, which is not known; there is \
                     \"{DIRECTIVE} foreign_keys=off\""
                )));
            }
        }
    }
    Ok(foreign_keys)
}

fn violations(violated: &[(String, Option<i64>, String)]) -> Error {
    let named: Vec<_> = violated
        .iter()
        .map(|(table, row, parent)| match row {
            Some(row) => format!("row {row} of {table} has no parent in {parent}"),
            None => format!("a row of {table} has no parent in {parent}"),
        })
        .collect();
    let code = monolite_sqlite::rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY;
    let code = monolite_sqlite::rusqlite::ffi::Error::new(code);
    let text = format!("foreign keys are violated behind it: {}", named.join(", "));
    monolite_sqlite::rusqlite::Error::SqliteFailure(code, Some(text)).into()
}

fn wrong(message: &str) -> Error {
    Error::new(ErrorKind::Invalid, message)
}
