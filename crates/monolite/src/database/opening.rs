//! Owns what options do with a path: open the database there, also for a replica, check it, or give
//! its pages checksums.

use std::path::Path;
use std::time::Duration;

use super::Database;
use crate::activity::Caller;
use crate::call::inside::DatabaseId;
use crate::error::{Error, ErrorKind, Result};
use crate::files::open as files;
use crate::jobs::{Job, JobContext, Jobs};
use crate::maintenance::{self, Checked};
use crate::options::{Durability, Options};

impl Database {
    /// Another handle on the same database, whose writes are refused because of `why`.
    pub(crate) fn reading_only(&self, why: &str) -> Database {
        self.with_writes(self.handle.writes.read_only(why))
    }
}

impl Options {
    /// Opens the database at `path`, and creates it where there is none.
    ///
    /// `":memory:"` opens a new empty database that is removed when it is closed, with the same
    /// behaviour except for durability; it is meant for tests. Any other path is taken literally:
    /// `file:shop.db?mode=ro` is the name of a file and no URI (what its parameters say are methods
    /// of [`Options`]), and `~` is a directory of that name (the home directory is
    /// [`std::env::home_dir`]).
    ///
    /// The last step of a close in this process is waited for, up to 5 seconds. While a closure or
    /// another call still uses the old handle, as after a `Timeout` of `close`, the path is open.
    ///
    /// # Errors
    /// `Invalid` for an option out of its range, a path that is open in this process already, and a
    /// file in a format that is newer than the SQLite in this program;
    /// `Overloaded` when another process holds the file (the message says which);
    /// `Storage` when the file or its directory cannot be used; `Corrupt` when it is no database.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database> {
        self.check()?;
        Database::open_with(self, path.as_ref(), Duration::ZERO)
    }

    /// As [`Options::open`], and waits up to `patience` for another process to let go of the file:
    /// a new version of a program can start while the old one still finishes.
    ///
    /// # Errors
    /// Those of [`Options::open`]; `Overloaded` only after `patience`.
    pub fn open_wait(self, path: impl AsRef<Path>, patience: Duration) -> Result<Database> {
        self.check()?;
        Database::open_with(self, path.as_ref(), patience)
    }

    /// As [`Database::check`] for a file at `path` that is not open anywhere, such as a backup. The
    /// file is only read, so it may be on a read-only medium. Of the options,
    /// [`Options::connection_setup`] holds. Only when a crash has left content in its WAL or
    /// journal is the file opened with all options, which recovers it, checked, and closed. `path`
    /// is taken literally.
    ///
    /// # Errors
    /// Those of [`Database::check`]. From the handle also: `Invalid` for an option out of its
    /// range, when there is no file, or one too short for a database, and when it is open in this
    /// process; `Overloaded` when another one has it (the message says which); `Corrupt` when it is
    /// no database; `Storage` when it cannot be read, was written by another program meanwhile, or
    /// cannot be written and needs recovery.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("backup.db");
    /// use monolite::{Database, Options};
    ///
    /// let db = Database::open(":memory:")?;
    /// db.backup(&path).wait()?;
    /// let before = std::fs::read(&path)?;
    /// assert!(Options::new().check_file(&path).wait()?.is_sound());
    /// assert_eq!(std::fs::read(&path)?, before);
    /// # Ok(db.close()?)
    /// # }
    /// ```
    pub fn check_file(self, path: impl AsRef<Path>) -> Job<Checked> {
        // The working directory may be another one later.
        let path = std::path::absolute(path.as_ref()).map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("the path cannot be used: {error}"))
        });
        Jobs::new(DatabaseId::new()).start(Caller::default(), move |job| {
            let path = path?;
            self.check()?;
            match maintenance::check_closed(&path, &self, job)? {
                Some(checked) => Ok(checked),
                None => self.check_recovered(&path, job),
            }
        })
    }

    /// Opens the file at `path`, checks and closes it.
    fn check_recovered(self, path: &Path, job: &JobContext) -> Result<Checked> {
        let alone = Options { archive: None, durability: Durability::Synced, ..self };
        let db = match alone.open(path) {
            Err(error) if maintenance::is_damage(&error) => {
                return Ok(Checked { problems: vec![error.to_string()], ..Checked::default() });
            }
            opened => opened?,
        };
        let checked = db.handle.engine.maintenance().check(job);
        db.close()?;
        checked
    }

    /// Rewrites the database at `path` so that each page has a checksum, for
    /// [`Options::page_checksums`]. Also for a database whose checksums another program has not
    /// kept. What is there is taken to be right, so look at it first (`PRAGMA integrity_check`).
    /// Takes about as long as copying the file twice, and as much space.
    ///
    /// # Durability
    /// A crash leaves the file as it was, or with checksums.
    ///
    /// # Errors
    /// Those of [`Options::open`]; `Storage` when there is no such file, or too little space.
    pub fn add_page_checksums(self, path: impl AsRef<Path>) -> Result<()> {
        self.check()?;
        files::add_page_checksums(&self, path.as_ref())
    }
}
