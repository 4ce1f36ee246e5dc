//! Owns the run of one history, drawn or recorded, and the child that runs them one after another.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use monolite_testkit::child::{heard, say};
use serde::{Deserialize, Serialize};

use super::difference::{Class, Difference, Stop};
use super::driver::{Counts, Driver};
use super::oracle::Flaw;
use super::record::{History, Op};
use super::schema::Schema;
use super::source::Source;

/// The child's role.
pub(in crate::checks) const ROLE: &str = "differential";

/// What the child says before its answer, beside which a test binary says other things.
pub(super) const RAN: &str = "ran ";

/// Operations after which tables are counted again.
const COUNTED_EVERY: usize = 40;

/// What the child is asked to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) what: What,
    pub(super) flaw: Flaw,
    /// Where databases are made.
    pub(super) directory: PathBuf,
    /// Where each operation is written before it is begun.
    pub(super) record: Option<PathBuf>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum What {
    /// The history of this seed, of so many statements at most.
    Draw { seed: u64, most: u64, is_calm: bool },
    /// One that was written down.
    Repeat(PathBuf),
}

/// How a history went.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ran {
    pub(super) counts: Counts,
    pub(super) difference: Option<Difference>,
    /// The one that was drawn, if it shows a difference.
    pub(super) history: Option<History>,
}

/// Where operations come from.
enum Ops {
    Drawn(Box<Source>),
    Recorded(std::vec::IntoIter<Op>),
}

/// The child: runs what it is asked to, until its parent ends.
pub(in crate::checks) fn serve() -> Result<()> {
    monolite_sqlite::initialize().map_err(anyhow::Error::msg)?;
    for line in heard() {
        let job: Job = serde_json::from_str(&line).context("not a job")?;
        say(&format!("{RAN}{}", serde_json::to_string(&run(&job)?)?));
    }
    Ok(())
}

/// Runs a history in this process.
///
/// # Errors
/// When the check itself cannot go on.
pub(super) fn run(job: &Job) -> Result<Ran> {
    let (setup, seed, mut ops) = match &job.what {
        What::Draw { seed, most, is_calm } => {
            let source = Source::new(*seed, *most, *is_calm);
            (source.setup(), *seed, Ops::Drawn(Box::new(source)))
        }
        What::Repeat(path) => {
            let history = History::load(path)?.context("the file holds no history")?;
            (history.setup, history.seed, Ops::Recorded(history.ops.into_iter()))
        }
    };
    let mut begun = History { seed, setup, ops: Vec::new() };
    let mut record = match &job.record {
        Some(path) => Some(BufWriter::new(File::create(path)?)),
        None => None,
    };
    let path = job.directory.join("history.db");
    remove(&path);
    let mut driver = Driver::open(setup, job.flaw, &path)?;
    let note = |op: &Op| -> Result<()> {
        if let Some(out) = &mut record {
            if begun.ops.is_empty() {
                begun.write_header(out)?;
            }
            History::write_op(out, op)?;
            out.flush()?;
        }
        begun.ops.push(op.clone());
        Ok(())
    };
    // What a panic leaves behind is not looked at any more.
    let ended = catch_unwind(AssertUnwindSafe(|| follow(&mut driver, &mut ops, note)));
    let counts = driver.counts;
    let has_given_up = driver.oracle.has_given_up();
    let ended = match ended {
        Ok(Ok(())) if has_given_up => Ok(Ok(counts)),
        Ok(Ok(())) => catch_unwind(AssertUnwindSafe(|| driver.finish())),
        other => other.map(|ended| ended.map(|()| counts)),
    };
    remove(&path);
    let (counts, difference) = match ended {
        Ok(Ok(counts)) => (counts, None),
        Ok(Err(_)) if has_given_up => (counts, None),
        Ok(Err(Stop::Different(difference))) => (counts, Some(*difference)),
        Ok(Err(Stop::Broken(error))) => {
            return Err(error.context(format!("the history with seed {seed}")));
        }
        Err(payload) => {
            let message = text_of(&*payload).unwrap_or_default();
            (counts, Some(Difference::new(Class::Panic, "a thread", message, "no panic")))
        }
    };
    let history = difference.is_some().then_some(begun);
    Ok(Ran { counts, difference, history })
}

fn follow(
    driver: &mut Driver,
    ops: &mut Ops,
    mut note: impl FnMut(&Op) -> Result<()>,
) -> Result<(), Stop> {
    let mut live = Live::default();
    loop {
        let op = match ops {
            Ops::Recorded(ops) => ops.next(),
            Ops::Drawn(source) => {
                live.refresh(driver)?;
                source.next(&live.schema, driver.open_slots())
            }
        };
        let Some(op) = op else { return Ok(()) };
        note(&op)?;
        driver.carry_out(&op)?;
    }
}

/// The schema as the generator knows it.
#[derive(Default)]
struct Live {
    schema: Arc<Schema>,
    version: Option<usize>,
    cookie: i64,
    age: usize,
}

impl Live {
    /// Looks at the schema again if it has changed, and now and then at how many rows there are.
    fn refresh(&mut self, driver: &Driver) -> Result<()> {
        let plain = driver.oracle.plain();
        if self.version != Some(driver.oracle.version()) {
            self.version = Some(driver.oracle.version());
            let cookie = plain.query_row("PRAGMA schema_version", [], |row| row.get(0))?;
            if self.cookie != cookie {
                self.cookie = cookie;
                self.schema = Arc::new(Schema::load(plain)?);
            }
        }
        self.age += 1;
        if self.age.is_multiple_of(COUNTED_EVERY) {
            Arc::make_mut(&mut self.schema).count_rows(plain);
        }
        Ok(())
    }
}

fn text_of(payload: &(dyn std::any::Any + Send)) -> Option<String> {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
}

/// Removes what a database has left. One in memory has left nothing.
fn remove(path: &Path) {
    for ending in ["db", "db-wal", "db-shm", "oracle", "oracle-wal", "oracle-shm"] {
        // Most of them are not there.
        let _ = fs::remove_file(path.with_extension(ending));
    }
}
