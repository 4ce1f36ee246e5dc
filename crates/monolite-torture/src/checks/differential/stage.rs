//! Owns the run of one history, and the child in which histories are run one after another: one
//! that ends the process, or hangs, is a finding and not the end of the check.

use std::fs::{self, File};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use monolite_testkit::child::{Child, Heard, Program, heard, say, variable};
use monolite_testkit::scratch::in_memory;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::difference::{Difference, Stop};
use super::driver::{Counts, Driver};
use super::oracle::Flaw;
use super::schema::Schema;
use super::source::Source;

/// The child's role.
pub(in crate::checks) const ROLE: &str = "differential";

/// Where the child makes its databases.
const DIRECTORY: &str = "DIRECTORY";

/// In that directory: the options and the operations of the last history, one a line.
const RECORD: &str = "history.txt";

/// What the child says before its answer, beside which a test binary says other things.
const RAN: &str = "ran ";

/// Operations after which tables are counted again.
const COUNTED_EVERY: usize = 40;

/// How long a history may take. Most take a hundredth of a second, those with rests a second, and
/// the one whose triggers cost most, of 90,000, 22 s of a core.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// The history of this seed, of so many statements at most.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) seed: u64,
    pub(super) most: u64,
    pub(super) is_calm: bool,
    pub(super) flaw: Flaw,
}

/// How a history went.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ran {
    pub(super) counts: Counts,
    pub(super) difference: Option<Difference>,
}

/// A child, and where its databases are: in memory, if the system has such a place.
#[derive(Debug)]
pub(super) struct Stage<'p> {
    program: &'p Program,
    directory: TempDir,
    child: Option<Child>,
    pub(super) patience: Duration,
}

impl<'p> Stage<'p> {
    pub(super) fn new(program: &'p Program) -> Result<Stage<'p>> {
        let directory = in_memory(&std::env::temp_dir()).context("cannot create a directory")?;
        Ok(Stage { program, directory, child: None, patience: PATIENCE })
    }

    /// What the last history did: each operation is written before it is begun.
    pub(super) fn record(&self) -> PathBuf {
        self.directory.path().join(RECORD)
    }

    /// Has the child run a history.
    pub(super) fn run(&mut self, job: Job) -> Result<Ran> {
        let directory = self.directory.path().to_string_lossy();
        let mut child = match self.child.take() {
            Some(child) => child,
            None => self.program.spawn(ROLE, &[(DIRECTORY, &*directory)])?,
        };
        child.tell(&serde_json::to_string(&job)?)?;
        loop {
            match child.listen(self.patience) {
                Heard::Line(line) => {
                    if let Some(ran) = line.strip_prefix(RAN) {
                        self.child = Some(child);
                        return serde_json::from_str(ran).context("the child's answer");
                    }
                    if let Some(why) = line.strip_prefix("failed ") {
                        anyhow::bail!("{why}");
                    }
                }
                Heard::Silence => {
                    child.kill()?;
                    return Ok(lost(format!("nothing for {:?}", self.patience)));
                }
                Heard::End => return Ok(lost(child.end()?.to_string())),
            }
        }
    }
}

fn lost(told: String) -> Ran {
    let difference = Difference::new("a process", told, "an answer, and that it lives on");
    Ran { counts: Counts::default(), difference: Some(difference) }
}

/// The child: runs what it is asked to, until its parent ends.
pub(in crate::checks) fn serve() -> Result<()> {
    monolite_sqlite::initialize().map_err(anyhow::Error::msg)?;
    let directory: PathBuf = variable(DIRECTORY)?;
    for line in heard() {
        let job: Job = serde_json::from_str(&line).context("not a job")?;
        say(&format!("{RAN}{}", serde_json::to_string(&run(job, &directory)?)?));
    }
    Ok(())
}

fn run(job: Job, directory: &Path) -> Result<Ran> {
    let mut source = Source::new(job.seed, job.most, job.is_calm);
    let mut record = File::create(directory.join(RECORD))?;
    record.write_all(format!("{:?}\n", source.setup()).as_bytes())?;
    let path = directory.join("history.db");
    remove(&path);
    let mut driver = Driver::open(source.setup(), job.flaw, &path)?;
    // What a panic leaves behind is not looked at any more.
    let ended = catch_unwind(AssertUnwindSafe(|| follow(&mut driver, &mut source, &mut record)));
    let counts = driver.counts;
    let has_given_up = driver.oracle.has_given_up();
    let ended = match ended {
        Ok(Ok(())) if has_given_up => Ok(Ok(counts)),
        Ok(Ok(())) => catch_unwind(AssertUnwindSafe(|| driver.finish())),
        other => other.map(|ended| ended.map(|()| counts)),
    };
    remove(&path);
    Ok(match ended {
        Ok(Ok(counts)) => Ran { counts, difference: None },
        Ok(Err(_)) if has_given_up => Ran { counts, difference: None },
        Ok(Err(Stop::Different(difference))) => Ran { counts, difference: Some(*difference) },
        Ok(Err(Stop::Broken(error))) => {
            return Err(error.context(format!("the history with seed {}", job.seed)));
        }
        Err(payload) => {
            let message = text_of(&*payload).unwrap_or_default();
            let difference = Difference::new("a thread", format!("Panic: {message}"), "no panic");
            Ran { counts, difference: Some(difference) }
        }
    })
}

fn follow(driver: &mut Driver, source: &mut Source, record: &mut File) -> Result<(), Stop> {
    let mut live = Live::default();
    loop {
        live.refresh(driver)?;
        let Some(op) = source.next(&live.schema, driver.open_slots()) else { return Ok(()) };
        record.write_all(format!("{op:?}\n").as_bytes()).map_err(anyhow::Error::from)?;
        driver.carry_out(&op)?;
    }
}

/// The schema as the generator knows it.
#[derive(Default)]
struct Live {
    schema: Arc<Schema>,
    cookie: i64,
    age: usize,
}

impl Live {
    /// Looks at the schema again if it has changed, and now and then at how many rows there are.
    fn refresh(&mut self, driver: &Driver) -> Result<()> {
        let plain = driver.oracle.plain();
        let cookie = plain.query_row("PRAGMA schema_version", [], |row| row.get(0))?;
        if self.cookie != cookie {
            self.cookie = cookie;
            self.schema = Arc::new(Schema::load(plain)?);
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
