//! Owns what keeps a database in order: checkpoints by hand, checks, statistics for the planner,
//! and free pages given back.
//!
//! # Not here
//! Backups: `backup`. The WAL file that shrinks by itself: `checkpoint`.

use std::sync::Arc;
use std::time::Duration;

use monolite_sqlite::{AutoVacuum, Checkpoint, rusqlite};

use crate::backup::pins::Pins;
use crate::call::between::BetweenBatches;
use crate::call::completion::Completion;
use crate::call::member::{Body, Repeatable, Submission};
use crate::call::write::Write;
use crate::call::write_queue::WriteQueue;
use crate::checkpoint::Checkpoints;
use crate::error::{Error, ErrorKind, Result};
use crate::jobs::JobContext;
use crate::read::readers::{OpenReader, Reader};
use crate::tx::Tx;

/// Free pages that one transaction gives back: some 10 ms, for which other writes wait.
const STEP_PAGES: u32 = 500;

/// How often a table is checked again whose snapshot was revoked meanwhile.
const ATTEMPTS: u32 = 3;

/// Runs `ANALYZE` on each table that has changed much since the last time, reading some 2,000 rows
/// of each index: the masks 0x02, 0x10 and 0x10000 of
/// <https://sqlite.org/pragma.html#pragma_optimize>. The last is for all tables: the queries are
/// asked on other connections than this.
pub(crate) const OPTIMIZE: &str = "PRAGMA optimize = 0x10012";

/// What a checkpoint has achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpointed {
    /// Pages in the WAL that are not in the database file yet, as a read needs what the file has.
    pub pages_left: u64,
    /// Whether the next commit overwrites the WAL from its start.
    pub restarts: bool,
}

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// How many tables were checked, each with its indexes.
    pub tables: u64,
    /// What is wrong, in SQLite's words; up to 100 for each table.
    pub problems: Vec<String>,
}

/// What was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vacuumed {
    /// Pages by which the file is, or will be with the next checkpoint, shorter.
    pub pages: u64,
}

/// What is needed of the engine.
#[derive(Clone)]
pub(crate) struct Maintenance {
    pub(crate) open_reader: OpenReader,
    pub(crate) between: Arc<BetweenBatches>,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) pins: Arc<Pins>,
}

impl Maintenance {
    /// Copies what the WAL has into the database file.
    pub(crate) fn checkpoint(&self, job: &JobContext) -> Result<Checkpointed> {
        let checkpoints = Arc::clone(&self.checkpoints);
        let finish = move |writer: &monolite_sqlite::Connection| checkpoints.finish(writer);
        let done: Checkpoint = self.between.run(|| job.check(), finish)?;
        let pages_left = done.wal_frames.saturating_sub(done.copied_frames).into();
        Ok(Checkpointed { pages_left, restarts: done.is_complete() && !done.blocked })
    }

    /// Checks every table, each on a snapshot of its own.
    pub(crate) fn check(&self, job: &JobContext) -> Result<Checked> {
        // It may know of full-text search what was true before others changed it: a new one knows
        // nothing yet.
        let names = self.on_snapshot(job, |reader| reader.connection.table_names())?;
        let mut checked = Checked::default();
        for (done, name) in names.iter().enumerate() {
            job.tell(done as u64, names.len() as u64);
            let problems = self.check_table(job, name)?;
            checked.problems.extend(problems);
            checked.tables += 1;
        }
        job.tell(names.len() as u64, names.len() as u64);
        Ok(checked)
    }

    fn check_table(&self, job: &JobContext, name: &str) -> Result<Vec<String>> {
        let mut outcome = Ok(Vec::new());
        for _ in 0..ATTEMPTS {
            outcome = self.on_snapshot(job, |reader| reader.connection.check_table(name));
            match &outcome {
                Err(error) if error.kind() == ErrorKind::Timeout => {}
                // It was dropped meanwhile.
                Err(error) if error.to_string().contains("no such table") => return Ok(Vec::new()),
                _ => return outcome.map_err(|error| error.context(format!("table {name}"))),
            }
        }
        outcome.map_err(|error| error.context(format!("table {name}")))
    }

    fn on_snapshot<T>(
        &self,
        job: &JobContext,
        run: impl FnOnce(&Reader) -> rusqlite::Result<T>,
    ) -> Result<T> {
        job.check()?;
        let reader = (self.open_reader)()?;
        let deadline = Arc::clone(&reader.deadline);
        reader.connection.begin_read()?;
        let pin = self.pins.note(reader);
        job.when_it_ends(move || deadline.set(Duration::ZERO, Duration::ZERO));
        let ran = run(&pin.reader).map_err(Error::from);
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

/// Submits a write of the engine's own.
fn submit<T: Send + 'static>(
    writes: &Arc<WriteQueue>,
    body: impl FnMut(&Tx<'_>) -> Result<T> + Send + 'static,
) -> Write<T> {
    fn boxed<B: Body<T, Error> + 'static, T: Send + 'static>(
        body: B,
        writes: &Arc<WriteQueue>,
    ) -> Write<T> {
        let caller = Completion::new();
        let member = Submission::new(body, writes.principal(), Arc::clone(&caller));
        Write::submit(Box::new(member), caller, writes)
    }
    boxed(Repeatable(body), writes)
}

/// Gathers statistics where that is due.
pub(crate) fn optimize(writes: &Arc<WriteQueue>) -> Write<()> {
    submit(writes, |tx| tx.execute_batch(OPTIMIZE))
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

/// Gives back all pages that are free, some in each transaction.
pub(crate) fn vacuum(writes: &Arc<WriteQueue>, job: &JobContext) -> Result<Vacuumed> {
    let step = |tx: &Tx<'_>| {
        let (mode, before) = tx.free_pages()?;
        match mode {
            AutoVacuum::Incremental => tx.give_back_pages(STEP_PAGES)?,
            AutoVacuum::Full => {}
            AutoVacuum::None => return Err(keeps_its_pages(before)),
        }
        Ok((before, tx.free_pages()?.1))
    };
    let mut vacuumed = Vacuumed::default();
    loop {
        job.check()?;
        let (before, after) = submit(writes, step).wait()?;
        vacuumed.pages += before.saturating_sub(after);
        job.tell(vacuumed.pages, vacuumed.pages + after);
        // Of what others free meanwhile no more is given back than they free.
        if after == 0 || after >= before {
            return Ok(vacuumed);
        }
    }
}

fn keeps_its_pages(free: u64) -> Error {
    let message = format!(
        "the file does not give back its {free} free pages (auto_vacuum is NONE), which are used \
         again by what is written later; to make it smaller, back it up (Database::backup), close \
         the database, run VACUUM on the backup with plain SQLite, and put it in place; PRAGMA \
         auto_vacuum = INCREMENTAL before that VACUUM lets later ones go on while the database is \
         open"
    );
    Error::new(ErrorKind::Invalid, message)
}
