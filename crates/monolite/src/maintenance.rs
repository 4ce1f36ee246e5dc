//! Owns what keeps a database in order: checkpoints by hand, checks, statistics for the planner,
//! and free pages given back.
//!
//! # Not here
//! Backups: `backup`. The WAL file that shrinks by itself: `checkpoint`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use monolite_sqlite::rusqlite::{self, ffi};
use monolite_sqlite::{AutoVacuum, Checkpoint, Connection, Violation};

use crate::backup::pins::BackupPins;
use crate::call::between::BetweenBatches;
use crate::call::completion::Completion;
use crate::call::member::{Alone, Around, Body, Repeatable, Submission};
use crate::call::write::Write;
use crate::call::write_queue::WriteQueue;
use crate::checkpoint::Checkpoints;
use crate::clock::Patience;
use crate::error::{Error, ErrorKind, Result};
use crate::files::closed::Closed;
use crate::jobs::JobContext;
use crate::options::Options;
use crate::read::readers::{OpenReader, Reader};
use crate::tx::Tx;

/// Free pages that one transaction gives back: some 10 ms, for which other writes wait.
const STEP_PAGES: u32 = 500;

/// How long it may take to rewrite a file. It fits in the WAL, and what takes an hour of that is
/// stuck.
pub(crate) const REWRITE_LIMIT: Duration = Duration::from_secs(3_600);

/// How often a table is checked again whose snapshot was revoked meanwhile.
const ATTEMPTS: u32 = 3;

/// How long another checkpoint that is under way is waited for: the engine's own copies while the
/// writer goes on, and so may one of another process.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked whether that has ended.
const RETRY: Duration = Duration::from_millis(10);

/// Runs `ANALYZE` on each table that has changed much since the last time, reading some 2,000 rows
/// of each index: the masks 0x02, 0x10 and 0x10000 of
/// <https://sqlite.org/pragma.html#pragma_optimize>. The last is for all tables: the queries are
/// asked on other connections than this.
pub(crate) const OPTIMIZE: &str = "PRAGMA optimize = 0x10012";

/// What a checkpoint has achieved.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// let done = db.checkpoint().wait()?;
/// assert!(done.restarts && done.pages_left == 0); // no read was in the way
/// # db.close()
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpointed {
    /// Pages of the WAL that are not in the database file yet, because a read needs the file's
    /// older content.
    pub pages_left: u64,
    /// Whether the next commit overwrites the WAL from its start.
    pub restarts: bool,
}

/// What a check has found.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// let checked = db.check().wait()?;
/// for line in checked.problems.iter().chain(&checked.violations) {
///     eprintln!("{line}");
/// }
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// How many tables there are, each with its indexes; all but those of `unchecked` were checked.
    pub tables: u64,
    /// Damage, in SQLite's words; up to 100 for each table. A table in which SQLite had to stop
    /// says so; the others are checked all the same.
    pub problems: Vec<String>,
    /// Rows whose foreign keys have no parent; up to 100 for each table. Such a row is whole: a
    /// program without foreign keys wrote it. Correct it.
    pub violations: Vec<String>,
    /// Tables that could not be checked, or not wholly, each with the reason: an index or a
    /// constraint needs a function, collation or module of the application that
    /// [`Options::connection_setup`](crate::Options::connection_setup) did not add.
    pub unchecked: Vec<String>,
}

impl Checked {
    /// Whether everything was checked without a finding: no damage, and no violated foreign key.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty() && self.violations.is_empty() && self.unchecked.is_empty()
    }

    /// Adds what is wrong with one table.
    fn look_at(&mut self, connection: &Connection, table: &str) -> Result<()> {
        let rows = connection.maintenance().check_table(table, &mut self.problems);
        let rows = match rows {
            Ok(()) if self.problems.is_empty() => {
                connection.maintenance().check_full_text(table, &mut self.problems)
            }
            rows => rows,
        };
        let is_of_index = |said: &&mut String| BAD_INDEX.iter().any(|it| said.starts_with(it));
        for said in self.problems.iter_mut().filter(is_of_index) {
            said.push_str(&rebuild(table));
        }
        self.note_obstacle(table, rows)?;
        let violations = &mut self.violations;
        let violated = |(table, row, parent): Violation| {
            violations.push(match row {
                Some(row) => format!("row {row} of {table} has no parent in {parent}"),
                None => format!("a row of {table} has no parent in {parent}"),
            });
        };
        let keys = connection.foreign_keys().each_violation(Some(table), MOST_VIOLATIONS, violated);
        self.note_obstacle(table, keys)
    }

    /// Makes a problem of an error that tells of damage, and takes note of one that tells that the
    /// table cannot be looked at here.
    fn note_obstacle(&mut self, table: &str, looked: rusqlite::Result<()>) -> Result<()> {
        let Err(error) = looked.map_err(Error::from) else { return Ok(()) };
        let notes = match error.kind() {
            ErrorKind::Corrupt if is_damage(&error) => &mut self.problems,
            ErrorKind::Invalid if !is_missing(&error, table) => &mut self.unchecked,
            _ => return Err(error),
        };
        let note = format!("table {table}: {error}");
        // Two of its checks may need the same.
        if notes.last() != Some(&note) {
            notes.push(note);
        }
        Ok(())
    }
}

/// Rows of one table that are told to violate foreign keys, as many as SQLite tells of problems.
const MOST_VIOLATIONS: u32 = 100;

/// What SQLite says of an index of full-text search that does not fit its table, or cannot be read.
const BAD_INDEX: [&str; 2] = ["malformed inverted index for FTS", "fts5: corruption found"];

/// What to do about that, for `table`.
fn rebuild(table: &str) -> String {
    let quoted = table.replace('"', "\"\"");
    format!(
        "; it is made again, of the rows that the table shows, by INSERT INTO \"{quoted}\"\
         (\"{quoted}\") VALUES ('rebuild')"
    )
}

/// Whether `table` itself was not found, rather than another one that it shows.
fn is_missing(error: &Error, table: &str) -> bool {
    error
        .said()
        .strip_prefix("no such table: ")
        .is_some_and(|missing| missing == table || missing.strip_prefix("main.") == Some(table))
}

/// What was given back.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// println!("{} pages given back", db.vacuum().wait()?.pages);
/// # db.close()
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vacuumed {
    /// Pages by which the file is, or will be with the next checkpoint, shorter.
    pub pages: u64,
}

fn kept_out() -> Error {
    let message = format!(
        "nothing was copied: another checkpoint has been under way for {CHECKPOINT_PATIENCE:?}, \
         this database's own or, with Sharing::Shared, that of another process; try again, and \
         end a process that is stopped in one"
    );
    Error::new(ErrorKind::Overloaded, message)
}

/// What is needed of the engine.
#[derive(Clone)]
pub(crate) struct Maintenance {
    pub(crate) open_reader: OpenReader,
    pub(crate) between: Arc<BetweenBatches>,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) pins: Arc<BackupPins>,
}

impl Maintenance {
    /// Copies what the WAL has into the database file.
    pub(crate) fn checkpoint(&self, job: &JobContext) -> Result<Checkpointed> {
        let patience = Patience::of(CHECKPOINT_PATIENCE);
        loop {
            let checkpoints = Arc::clone(&self.checkpoints);
            let finish = move |writer: &monolite_sqlite::Connection| checkpoints.finish(writer);
            let done: Checkpoint = self.between.run(|| job.check(), finish)?;
            if !done.is_kept_out() {
                let pages_left = done.wal_frames.saturating_sub(done.copied_frames).into();
                let restarts = done.is_complete() && !done.blocked;
                return Ok(Checkpointed { pages_left, restarts });
            }
            if patience.left().is_zero() {
                return Err(kept_out());
            }
            job.rest(RETRY);
        }
    }

    /// Checks every table, each on a snapshot of its own.
    pub(crate) fn check(&self, job: &JobContext) -> Result<Checked> {
        // It may know of full-text search what was true before others changed it: a new one knows
        // nothing yet.
        let names =
            self.on_snapshot(job, |reader| Ok(reader.connection.maintenance().table_names()?));
        check_tables(job, names, |name| self.check_table(job, name))
    }

    fn check_table(&self, job: &JobContext, name: &str) -> Result<Checked> {
        let mut outcome = Ok(Checked::default());
        for _ in 0..ATTEMPTS {
            outcome = self.on_snapshot(job, |reader| {
                let mut checked = Checked::default();
                checked.look_at(&reader.connection, name).map(|()| checked)
            });
            match &outcome {
                Err(error) if error.kind() == ErrorKind::Timeout => {}
                // It was dropped meanwhile.
                Err(error) if is_missing(error, name) => return Ok(Checked::default()),
                _ => break,
            }
        }
        outcome.map_err(|error| error.context(format!("table {name}")))
    }

    pub(crate) fn on_snapshot<T>(
        &self,
        job: &JobContext,
        run: impl FnOnce(&Reader) -> Result<T>,
    ) -> Result<T> {
        job.check()?;
        let reader = (self.open_reader)()?;
        let deadline = Arc::clone(&reader.deadline);
        reader.connection.begin_read()?;
        let pin = self.pins.note(reader, job.caller);
        job.when_it_ends(move || deadline.set(Duration::ZERO, Duration::ZERO));
        let ran = run(&pin.reader);
        job.check()?;
        if pin.holds() {
            return ran;
        }
        let message = "the snapshot of the check was ended, as it kept the WAL from restarting \
                       near its limit; raise the option wal_limit_bytes, or check while less is \
                       written";
        Err(Error::new(ErrorKind::Timeout, message))
    }
}

/// Checks the file at `path`, which is not open anywhere, with what `options` add to connections,
/// and changes nothing; `None` when it must be recovered first.
pub(crate) fn check_closed(
    path: &Path,
    options: &Options,
    job: &JobContext,
) -> Result<Option<Checked>> {
    let file = match Closed::open(path, options) {
        Err(error) if is_damage(&error) => {
            let problems = vec![error.to_string()];
            return Ok(Some(Checked { problems, ..Checked::default() }));
        }
        opened => opened?,
    };
    let Some(file) = file else { return Ok(None) };
    let deadline = Arc::clone(&file.deadline);
    job.when_it_ends(move || deadline.set(Duration::ZERO, Duration::ZERO));
    let connection = &file.connection;
    let names = connection.check_texts().and_then(|()| connection.maintenance().table_names());
    let checked = check_tables(job, names.map_err(Error::from), |name| {
        let mut checked = Checked::default();
        let looked = checked.look_at(connection, name);
        job.check()?;
        looked.map_err(|error| error.context(format!("table {name}")))?;
        Ok(checked)
    })?;
    file.check_unchanged()?;
    Ok(Some(checked))
}

/// Looks at all tables of `names`, and at the schema's own, with `check`. A schema that cannot be
/// read is damage, too.
fn check_tables(
    job: &JobContext,
    names: Result<Vec<String>>,
    check: impl Fn(&str) -> Result<Checked>,
) -> Result<Checked> {
    let mut all = Checked::default();
    let mut names = match names {
        Err(error) if is_damage(&error) => {
            all.problems.push(error.to_string());
            return Ok(all);
        }
        names => names?,
    };
    all.tables = names.len() as u64;
    names.insert(0, "sqlite_schema".into());
    for (done, name) in names.iter().enumerate() {
        job.check()?;
        job.tell(done as u64, names.len() as u64);
        let checked = check(name)?;
        all.problems.extend(checked.problems);
        all.violations.extend(checked.violations);
        all.unchecked.extend(checked.unchecked);
    }
    job.tell(names.len() as u64, names.len() as u64);
    Ok(all)
}

/// Whether `error` tells of a database that is damaged, rather than of a file that is none.
pub(crate) fn is_damage(error: &Error) -> bool {
    error.kind() == ErrorKind::Corrupt && error.extended_code() != Some(ffi::SQLITE_NOTADB)
}

/// Submits a write of the engine's own.
fn submit<T: Send + 'static>(
    name: &'static str,
    writes: &Arc<WriteQueue>,
    limit: Option<Duration>,
    body: impl FnMut(&Tx<'_>) -> Result<T> + Send + 'static,
) -> Write<T> {
    fn boxed<B: Body<T, Error> + 'static, T: Send + 'static>(
        name: &'static str,
        body: B,
        limit: Option<Duration>,
        writes: &Arc<WriteQueue>,
    ) -> Write<T> {
        let caller = Completion::new();
        let member = Submission::new(body, writes.terms().of_upkeep(name), Arc::clone(&caller));
        let member = match limit {
            Some(limit) => member.within(limit),
            None => member,
        };
        Write::submit(Box::new(member), caller, writes)
    }
    boxed(name, Repeatable(body), limit, writes)
}

/// Gathers statistics where that is due.
pub(crate) fn optimize(writes: &Arc<WriteQueue>) -> Write<()> {
    submit("optimize", writes, None, |tx| tx.execute_batch(OPTIMIZE))
}

/// Gathers statistics again and again.
pub(crate) fn optimize_every(
    interval: Duration,
    writes: &Arc<WriteQueue>,
    job: &JobContext,
) -> Result<()> {
    loop {
        job.rest(interval);
        job.check()?;
        // One that fails (a full WAL) is made the next time.
        let _ = optimize(writes).wait();
    }
}

/// Gives back all pages that are free: some in each transaction, or all by a rewritten file.
/// None of these transactions takes longer than `limit`, if there is one.
pub(crate) fn vacuum(
    writes: &Arc<WriteQueue>,
    limit: Option<Duration>,
    job: &JobContext,
) -> Result<Vacuumed> {
    let step = |tx: &Tx<'_>| {
        let (mode, before) = tx.free_pages()?;
        if mode == AutoVacuum::Incremental {
            tx.give_back_pages(STEP_PAGES)?;
        }
        Ok((mode, before, tx.free_pages()?.1))
    };
    let mut vacuumed = Vacuumed::default();
    loop {
        job.check()?;
        let (mode, before, after) = submit("vacuum", writes, limit, step).wait()?;
        if mode == AutoVacuum::None && before > 0 {
            job.tell(0, before);
            vacuumed.pages = rewrite(writes, limit).wait()?;
            job.tell(vacuumed.pages, vacuumed.pages);
            return Ok(vacuumed);
        }
        vacuumed.pages += before.saturating_sub(after);
        job.tell(vacuumed.pages, vacuumed.pages + after);
        // Of what others free meanwhile no more is given back than they free.
        if after == 0 || after >= before {
            return Ok(vacuumed);
        }
    }
}

/// Has the writer rewrite the file without its free pages, and tells how many those were.
fn rewrite(writes: &Arc<WriteQueue>, limit: Option<Duration>) -> Write<u64> {
    let limit = limit.unwrap_or(REWRITE_LIMIT).min(REWRITE_LIMIT);
    let alone = Alone { limit, around: Around::Vacuum };
    let body = |tx: &Tx<'_>| Ok::<_, Error>(tx.free_pages()?.1);
    let caller = Completion::new();
    let member =
        Submission::new(Repeatable(body), writes.terms().of_upkeep("vacuum"), Arc::clone(&caller));
    Write::submit(Box::new(member.alone(alone)), caller, writes)
}
