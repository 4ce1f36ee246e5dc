//! Owns Monolite as a subject: opens a database for a path and runs transactions on it.
//!
//! # Algorithm
//! A statement that stands alone is a transaction of its own, and a block is one transaction. A
//! statement's error is noted and the transaction goes on, as a script does in the shell; a block
//! that the script rolls back ends with an error of its own.

mod closures;
mod interactive;

use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Result, bail};
use monolite::{Database, Durability, Error, ErrorKind, InteractiveOptions, Options, Sharing};
use monolite_testkit::blocking::locked;

use super::content::{Content, content};
use super::path::{Carrier, Path};
use super::plain;
use super::said::{Fault, Said};
use super::script::Unit;
use super::subject::{Ran, Subject};

/// How long a statement may take: many times what any takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The error by which a transaction is rolled back that is not to be kept.
const ROLLED_BACK: &str = "the runner rolls it back";

/// A database of Monolite, used in the way of one path.
pub(crate) struct Ours {
    db: Database,
    file: PathBuf,
    path: &'static Path,
}

impl Ours {
    /// Opens a new database at `file`.
    ///
    /// # Errors
    /// Those of the engine, and an option that is not known.
    pub(crate) fn open(
        file: &FilePath,
        path: &'static Path,
        options: &[(String, u64)],
    ) -> Result<Ours> {
        let sharing = match path.carrier {
            Carrier::Shared => Sharing::Shared,
            _ => Sharing::Exclusive,
        };
        let mut opened = Options::new()
            .durability(Durability::Buffered)
            .sharing(sharing)
            .readers(2)
            .reader_cache_bytes(1 << 20)
            .writer_cache_bytes(8 << 20)
            .write_time_limit(PATIENCE)
            .read_time_limit(PATIENCE);
        let mut interactive = InteractiveOptions::default().time_limit(PATIENCE);
        for (name, number) in options {
            (opened, interactive) = with_option(opened, interactive, name, *number)?;
        }
        opened = opened.interactive(interactive);
        Ok(Ours { db: opened.open(file)?, file: file.to_owned(), path })
    }
}

/// An option that a script asks for.
fn with_option(
    options: Options,
    interactive: InteractiveOptions,
    name: &str,
    number: u64,
) -> Result<(Options, InteractiveOptions)> {
    let count = usize::try_from(number)?;
    let time = Duration::from_millis(number);
    Ok(match name {
        "write_time_limit" => (options.write_time_limit(time), interactive),
        "read_time_limit" => (options.read_time_limit(time), interactive),
        "max_bytes" => (options, interactive.max_bytes(count)),
        "max_statements" => (options, interactive.max_statements(count)),
        "wal_limit_bytes" => (options.wal_limit_bytes(number), interactive),
        _ => bail!("a script asks for the option {name}, which the runner does not know"),
    })
}

impl Subject for Ours {
    fn run(&mut self, unit: &Arc<Unit>) -> Ran {
        match self.path.carrier {
            Carrier::Write => self.write(unit),
            Carrier::Once => self.write_once(unit),
            Carrier::Reads => self.read_or_write(unit),
            Carrier::Interactive | Carrier::Shared => self.transaction(unit),
            Carrier::Blocking => self.transact_waited(unit),
            Carrier::Awaited => self.transact(unit),
        }
    }

    fn content(&self) -> Content {
        let read = self.db.read(|tx| Ok::<_, Error>(content(tx)));
        read.wait().unwrap_or_else(|error| vec![("a read".into(), Said::failed(&error))])
    }

    fn close(&mut self) -> Result<Content> {
        self.db.close()?;
        plain::content_of_file(&self.file)
    }
}

/// What the statements of a transaction said, seen from outside of its closure.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Said>>>);

impl Heard {
    fn lock(&self) -> MutexGuard<'_, Vec<Said>> {
        locked(&self.0)
    }

    /// The closure is started, perhaps again.
    fn begin(&self) {
        self.lock().clear();
    }

    fn hear(&self, said: Said) {
        self.lock().push(said);
    }

    /// What was heard, and how the transaction of `unit` ended.
    fn ran(&self, unit: &Unit, result: Result<(), Error>) -> Ran {
        let mut said = std::mem::take(&mut *self.lock());
        let end = result.err().filter(|error| !is_rollback(error));
        // An engine that never ran the closure has answered for all of its statements.
        if let Some(error) = end.as_ref().filter(|_| said.len() < unit.statements.len()) {
            said.resize(unit.statements.len(), Said::failed(error));
        }
        Ran { said, awaited: None, end: end.as_ref().map(Fault::from) }
    }
}

/// How a closure ends: as its block does in the script.
fn outcome(unit: &Unit) -> Result<(), Error> {
    if unit.commits() { Ok(()) } else { Err(rollback()) }
}

fn rollback() -> Error {
    Error::aborted(ROLLED_BACK)
}

fn is_rollback(error: &Error) -> bool {
    error.kind() == ErrorKind::Aborted && error.to_string() == ROLLED_BACK
}
