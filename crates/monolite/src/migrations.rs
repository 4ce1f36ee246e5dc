//! Owns migrations: changes of the schema in an order, each applied once, and each in one
//! transaction.
//!
//! # Format
//! A migration is a text in a file called `NNNN_name.sql`, and has the number that its name begins
//! with. A comment before its first statement may say how it is applied (`directives`). What was
//! applied is noted in a table of the file (`monolite_migrations`: number, name, checksum, time),
//! in the transaction that applies it. The checksum is a SipHash-2-4 of 128 bits, with a key of
//! zeros, over the text with `\n` for each `\r\n`, in hexadecimal digits.
//!
//! # Algorithm
//! Each migration is a transaction of its own in the writer, which looks first what was applied,
//! under the write lock. So of two processes that migrate at once each applies what the other has
//! not applied yet. One for which foreign keys are off has them off from before its transaction
//! until after it: SQLite does not switch them in the middle of one.
//!
//! # Invariants
//! - A migration is applied whole and noted, or nothing of it is.
//! - Nothing is applied after one that was edited, is missing, or was skipped.
//! - No migration deletes rows that it does not name: one with foreign keys on drops no table that
//!   another one references.
//!
//! # Not here
//! How a table is rebuilt: `monolite-sqlite`, `connection/rebuild`.

mod directives;
mod directory;
mod online;
mod rehearsal;
#[cfg(test)]
mod tests;

use std::hash::Hasher as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use monolite_sqlite::{AppliedMigration, Rebuilding};
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::activity::Caller;
use crate::call::completion::Completion;
use crate::call::member::{Alone, Around, ForeignKeys, Repeatable, Submission, Terms};
use crate::call::write::Write;
use crate::call::write_queue::WriteQueue;
use crate::database::Database;
use crate::error::{Error, ErrorKind, Result, within};
use crate::jobs::Job;
use crate::tx::Tx;
use directives::Directives;
use online::Online;
pub use online::OnlineRebuild;
pub use rehearsal::{Planned, PlannedRebuild};

/// What a migration may take unless it is said otherwise: an index on 100 million rows.
const TIME_LIMIT: Duration = Duration::from_secs(3_600);

/// How many violated foreign keys an error names.
const NAMED: usize = 5;

/// The changes of a schema, in their order.
///
/// Each is SQL in a file called `NNNN_name.sql`, applied once, in the order of the numbers, in one
/// transaction each. What was applied is remembered in the database with its checksum, so that one
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
    directives: Directives,
}

/// Which of some migrations were applied to a database, and which are pending.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// let migrations = monolite::Migrations::new().with("0001_users.sql", "CREATE TABLE user(id)")?;
/// let status = migrations.status(&db)?;
/// assert_eq!(status.pending, ["0001_users.sql"]);
/// assert!(status.applied.is_empty() && status.problems.is_empty());
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct MigrationStatus {
    /// Those that were applied, in order.
    pub applied: Vec<Applied>,
    /// The names of those that are pending, in order.
    pub pending: Vec<String>,
    /// What is wrong: a migration that was edited after it was applied, is missing, or comes before
    /// one that was applied. Nothing is applied then.
    pub problems: Vec<String>,
    /// The online rebuild that is under way: of a pending migration, or one whose old rows are
    /// still to be deleted. Two looks at it tell its rate.
    pub rebuilding: Option<OnlineRebuild>,
}

/// A migration that was applied.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// let migrations = monolite::Migrations::new().with("0001_users.sql", "CREATE TABLE user(id)")?;
/// migrations.up(&db).wait()?;
/// let applied = &migrations.status(&db)?.applied[0];
/// assert_eq!((applied.number, applied.name.as_str()), (1, "0001_users.sql"));
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Applied {
    /// Its number.
    pub number: i64,
    /// The name of its file.
    pub name: String,
    /// The checksum of its text, in hexadecimal digits.
    pub checksum: String,
    /// When it was applied, in seconds since 1970 (UTC).
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
    /// already, a comment that looks like a directive and is none, or does not end, and a text with
    /// a NUL.
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
    /// As [`Migrations::with`], also for a name that ends with `.SQL`; `Storage` when the directory
    /// or a file cannot be read.
    pub fn from_directory(directory: impl AsRef<Path>) -> Result<Migrations> {
        let files = directory::read(directory.as_ref())?;
        files.iter().try_fold(Migrations::new(), |all, (name, sql)| all.with(name, sql))
    }

    /// The names and the texts of their files, in order: what another process needs to apply them,
    /// as a server does for `monolite migrate`.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.list.iter().map(|it| (&*it.name, &*it.sql))
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

    /// Which of them were applied to `db`, which are pending, and what is wrong. Blocks while it
    /// reads.
    ///
    /// # Errors
    /// Those of [`Read::wait`](crate::Read::wait).
    pub fn status<E>(&self, db: &Database<E>) -> Result<MigrationStatus> {
        let db = db.with_error::<Error>();
        let (applied, rebuilding) =
            db.read(|tx| Ok((tx.migrations()?, tx.rebuilding()?))).wait()?;
        let with = |it: Rebuilding| Rebuilding { obstacle: self.obstacle(&it), ..it }.into();
        let rebuilding = rebuilding.map(with);
        Ok(MigrationStatus { rebuilding, ..self.compared_with(&applied) })
    }

    /// Sees whether all of them were applied to `db`, and no others, as they are now: what a
    /// program does at its start when others migrate. Blocks while it reads.
    ///
    /// # Errors
    /// `Invalid`, with the name of what is wrong; those of [`Read::wait`](crate::Read::wait).
    pub fn verify<E>(&self, db: &Database<E>) -> Result<()> {
        let status = self.status(db)?;
        let pending = status.problems.first().map_or(Ok(status.pending), |it| Err(wrong(it)))?;
        match pending.first() {
            None => Ok(()),
            Some(name) => Err(wrong(&format!(
                "the migration {name} is pending; apply it (Migrations::up, or monolite migrate \
                 up) before the database is used"
            ))),
        }
    }

    /// Applies those that are pending, and gives their names. Each is a transaction of its own, for
    /// which all other writes wait, and reads do not. The handle's progress counts migrations.
    ///
    /// One that rebuilds a table online is many transactions, and other writes go on between them;
    /// the handle's progress counts its rows. It goes on where an earlier call was cancelled, has
    /// failed, or ended with its process.
    ///
    /// # Errors
    /// From the handle: `Invalid` when one that was applied has been edited, is missing or comes
    /// after one that is pending, and for SQL that is refused in a migration (`BEGIN`, a parameter,
    /// with foreign keys on a `DROP TABLE` of a table that another one references), and for a
    /// declared rebuild with all that does not work with the new table; `Constraint` with the keys
    /// of the rows that it does not take; those of the SQL. The migration's name, the line and the
    /// column come before. What was applied before stays. `Storage` when the disk has no room for
    /// the copy of an online rebuild.
    ///
    /// # Cancellation
    /// One that is under way is applied; those after it are not. An online rebuild is paused.
    ///
    /// # Durability
    /// As that of [`Database::write`]; it does not wait for an archive.
    pub fn up<E>(&self, db: &Database<E>) -> Job<Vec<String>> {
        let (all, writes, maintenance) = (self.clone(), Arc::clone(db.writes()), db.maintenance());
        db.jobs().start(Caller::default(), move |job| {
            let time_limit = all.time_limit;
            let online = Online { writes: &writes, maintenance: &maintenance, job, time_limit };
            online.settle(&all)?;
            let mut applied = Vec::new();
            for (done, migration) in all.list.iter().enumerate() {
                job.tell(done as u64, all.list.len() as u64);
                job.check()?;
                let applied_it = match &migration.directives.online {
                    Some(table) => online.apply(&all, migration, table),
                    None => all.apply(migration, &writes).wait().flatten(),
                };
                if applied_it.map_err(|error| migration.named_in(error))? {
                    applied.push(migration.name.clone());
                }
            }
            job.tell(all.list.len() as u64, all.list.len() as u64);
            if all.list.is_empty() {
                all.check_none(&writes).wait()?;
            }
            Ok(applied)
        })
    }

    /// Applies one unless it was applied; tells whether it did, or what is wrong with those that
    /// were.
    fn apply(&self, migration: &Arc<Migration>, writes: &Arc<WriteQueue>) -> Write<Result<bool>> {
        let (all, migration) = (self.clone(), Arc::clone(migration));
        let alone = Alone { limit: self.time_limit, around: Around::Nothing };
        let terms = writes.terms().of_upkeep("migrations");
        let terms = Terms { foreign_keys: migration.directives.foreign_keys, ..terms };
        let body = move |tx: &Tx<'_>| {
            let status = all.compared_with(&tx.migrations()?);
            if let Some(problem) = status.problems.first() {
                return Ok(Err(wrong(problem)));
            }
            if !status.pending.contains(&migration.name) {
                return Ok(Ok(false));
            }
            migration.run(tx)?;
            Ok(Ok(true))
        };
        let caller = Completion::new();
        let member = Submission::new(Repeatable(body), terms, Arc::clone(&caller));
        Write::submit(Box::new(member.alone(alone)), caller, writes)
    }

    /// Sees whether none was applied, where there are none.
    fn check_none(&self, writes: &Arc<WriteQueue>) -> Write<()> {
        let all = self.clone();
        let body = move |tx: &Tx<'_>| {
            let status = all.compared_with(&tx.migrations()?);
            status.problems.first().map_or(Ok(()), |problem| Err(wrong(problem)))
        };
        let caller = Completion::new();
        let member = Submission::new(
            Repeatable(body),
            writes.terms().of_upkeep("migrations"),
            Arc::clone(&caller),
        );
        Write::submit(Box::new(member), caller, writes)
    }

    fn compared_with(&self, applied: &[AppliedMigration]) -> MigrationStatus {
        let last = applied.last().map(|it| it.number);
        let mut status = MigrationStatus::default();
        for it in applied {
            let known = self.list.iter().find(|known| known.number == it.number);
            status.problems.extend(match known {
                None => Some(format!(
                    "the migration {} was applied to this database and is missing here; this \
                     program is older than the database, or its file was removed or renumbered: \
                     bring it back",
                    it.name
                )),
                Some(known) if known.checksum != it.checksum => Some(format!(
                    "the migration {} was edited after it was applied to this database{}; undo \
                     that, and make the change in a new migration",
                    known.name,
                    if known.name == it.name {
                        String::new()
                    } else {
                        format!(" (as {})", it.name)
                    }
                )),
                Some(known) if known.name != it.name => Some(format!(
                    "the migration {} was called {} when it was applied to this database; give it \
                     that name again",
                    known.name, it.name
                )),
                Some(_) => None,
            });
            let AppliedMigration { number, name, checksum, applied } = it.clone();
            status.applied.push(Applied { number, name, checksum, applied });
        }
        let is_applied = |it: &&Arc<Migration>| applied.iter().any(|old| old.number == it.number);
        for it in self.list.iter().filter(|it| !is_applied(it)) {
            if last.is_some_and(|last| it.number < last) {
                status.problems.push(format!(
                    "the migration {} is pending and comes before {}, which was applied; give it a \
                     number after that",
                    it.name,
                    applied.last().map_or("", |last| &last.name)
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
        if sql.contains('\0') {
            return Err(wrong(&format!(
                "the migration {name} has a NUL, after which SQLite reads nothing; save the file \
                 as UTF-8, and remove it"
            )));
        }
        let text = sql.replace("\r\n", "\n");
        let mut hasher = SipHasher24::new();
        hasher.write(text.as_bytes());
        let checksum = format!("{:032x}", u128::from(hasher.finish128()));
        let directives = directives::read(name, &text)?;
        Ok(Migration { number, name: name.into(), sql: sql.into(), checksum, directives })
    }

    /// Says of which migration an error is, unless it says so.
    fn named_in(&self, error: Error) -> Error {
        let named = format!("migration {}", self.name);
        if error.to_string().starts_with(&named) { error } else { error.context(named) }
    }

    /// Applies and notes it in the open transaction.
    fn run(&self, tx: &Tx<'_>) -> Result<()> {
        let of_it = |error: Error| self.named_in(error);
        let run = || match &self.directives.online {
            Some(table) => self.rebuild_at_once(tx, table).map_err(of_it),
            None => tx.run_migration(&self.name, &self.sql, &self.directives.rebuilds),
        };
        match self.directives.foreign_keys {
            ForeignKeys::On => run()?,
            ForeignKeys::Off => {
                let dangling = tx.dangling_foreign_keys().map_err(of_it)?;
                run()?;
                check_foreign_keys(tx, &dangling).map_err(of_it)?;
            }
        }
        tx.note_migration(self.number, &self.name, &self.checksum).map_err(of_it)
    }
}

/// The number in a name of the form `NNNN_name.sql`.
fn number_of(name: &str) -> Option<i64> {
    let (digits, rest) = name.strip_suffix(".sql")?.split_once('_')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && !rest.is_empty() { digits.parse().ok() } else { None }
}

/// Sees whether a migration without foreign keys has left all of them whole. `before` are those
/// that led to no table before it.
fn check_foreign_keys(tx: &Tx<'_>, before: &[(String, String)]) -> Result<()> {
    let (violated, count) = tx.foreign_key_violations(NAMED)?;
    if count > 0 {
        return Err(violations(&violated, count));
    }
    let dangling = tx.dangling_foreign_keys()?;
    match dangling.iter().find(|key| !before.contains(key)) {
        Some((child, parent)) => Err(violation(format!(
            "{child} references {parent}, which does not exist after it; nothing was applied: to \
             rebuild {parent}, create the new table under another name, drop the old one, and \
             rename the new one (a table that is renamed takes the references along)"
        ))),
        None => Ok(()),
    }
}

fn violations(violated: &[(String, Option<i64>, String)], count: usize) -> Error {
    let mut named: Vec<_> = violated
        .iter()
        .map(|(table, row, parent)| match row {
            Some(row) => format!("row {row} of {table} has no parent in {parent}"),
            None => format!("a row of {table} has no parent in {parent}"),
        })
        .collect();
    if count > named.len() {
        named.push(format!("and {} more", count - named.len()));
    }
    violation(format!(
        "foreign keys are violated after it: {}; nothing was applied: correct these rows in the \
         migration",
        named.join(", ")
    ))
}

fn violation(text: String) -> Error {
    let code = monolite_sqlite::rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY;
    let code = monolite_sqlite::rusqlite::ffi::Error::new(code);
    monolite_sqlite::rusqlite::Error::SqliteFailure(code, Some(text)).into()
}

fn wrong(message: &str) -> Error {
    Error::new(ErrorKind::Invalid, message)
}
