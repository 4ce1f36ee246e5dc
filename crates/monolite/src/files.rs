//! Owns the opening of a database's files: the path, who else has it, recovery, and the
//! connections in the order in which they must be opened.
//!
//! # Algorithm
//! 1. Make the path absolute and canonical (SQLite would read `file:…` as a URI, and two names of
//!    one file would have two WALs); refuse a second opening in this process and hard links.
//! 2. Open the writer, waiting for another process to let go of the file if that was asked for.
//!    SQLite recovers the WAL of a crash.
//! 3. Checkpoint what was recovered, so that it is on disk before anyone reads it.
//! 4. Sync the directory, open the engine's own descriptor of the WAL, then the other connections.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use monolite_sqlite::vfs::{Direct, Lower, Vfs, WalControl};
use monolite_sqlite::{
    CheckpointMode, Connection, Role, Settings, accept_untrusted, initialize, lock_holder,
};
use tempfile::TempDir;

use crate::clock::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::options::{Durability, Options, Sharing};
use crate::readers::Reader;
use crate::registry::Registration;
use crate::untrusted::Untrusted;
use crate::wal::{WalFile, sync_directory};

/// The name that asks for a database which is gone when it is closed.
const MEMORY: &str = ":memory:";

/// How often a file that another process holds is tried again.
const RETRY: Duration = Duration::from_millis(10);

/// How long a shared database waits for another process's lock within one statement.
const SHARED_BUSY: Duration = Duration::from_secs(5);

/// Page cache of the checkpointer, which reads pages from the WAL past any cache.
const CHECKPOINTER_CACHE_KIB: u64 = 256;

/// What must outlive every connection, in the order of its end.
pub(crate) struct Files {
    _vfs: Vfs,
    _registration: Registration,
    _temporary: Option<TempDir>,
}

/// Everything the engine starts with.
pub(crate) struct Opened {
    pub(crate) writer: Connection,
    pub(crate) writer_deadline: Arc<Deadline>,
    pub(crate) readers: Vec<Reader>,
    pub(crate) checkpointer: Connection,
    pub(crate) wal: Arc<WalControl>,
    pub(crate) wal_file: WalFile,
    pub(crate) durability: Durability,
    pub(crate) is_exclusive: bool,
    pub(crate) files: Files,
}

/// Opens the database at `path`, waiting up to `patience` for another process that holds it.
pub(crate) fn open(options: &Options, path: &Path, patience: Duration) -> Result<Opened> {
    let refused = |refusal| Error::new(ErrorKind::Invalid, refusal);
    initialize().map_err(refused)?;
    if options.untrusted.is_some() {
        accept_untrusted().map_err(refused)?;
    }
    let temporary = (path == Path::new(MEMORY)).then(temporary_directory).transpose()?;
    let path = match &temporary {
        Some(directory) => directory.path().join("memory.db"),
        None => canonical(path)?,
    };
    let registration = Registration::new(&path)?;
    let wal = Arc::new(WalControl::new(options.wal_limit_bytes));
    let lower = match options.sharing {
        Sharing::Exclusive => Lower::UnixExcl,
        Sharing::Shared => Lower::Unix,
    };
    let direct = Direct::new(Arc::clone(&wal));
    let files = match &options.storage {
        Some(decorate) => decorate.0(direct),
        None => Arc::new(direct),
    };
    let vfs = Vfs::register(lower, Arc::clone(&files))?;
    let opener = Opener { options, path: &path, vfs: &vfs, sync: temporary.is_none() };
    let (writer, writer_deadline) = opener.writer(patience)?;
    let fail = |error: io::Error| storage(&path, &error);
    sync_directory(&path, files.as_ref()).map_err(fail)?;
    let wal_file = WalFile::open(&path, files).map_err(fail)?;
    let readers = (0..options.readers).map(|_| opener.reader()).collect::<Result<_>>()?;
    let (checkpointer, _) =
        opener.open(Role::Checkpointer, CHECKPOINTER_CACHE_KIB).map_err(|e| opener.name(e))?;
    let durability = if temporary.is_some() { Durability::Buffered } else { options.durability };
    Ok(Opened {
        writer,
        writer_deadline,
        readers,
        checkpointer,
        wal,
        wal_file,
        durability,
        is_exclusive: options.sharing == Sharing::Exclusive,
        files: Files { _vfs: vfs, _registration: registration, _temporary: temporary },
    })
}

struct Opener<'a> {
    options: &'a Options,
    path: &'a Path,
    vfs: &'a Vfs,
    sync: bool,
}

impl Opener<'_> {
    fn open(&self, role: Role, cache_kib: u64) -> Result<(Connection, Arc<Deadline>)> {
        let deadline = Deadline::new(Arc::clone(&self.options.clock));
        let watched = Arc::clone(&deadline);
        let settings = Settings {
            vfs: self.vfs.name().to_owned(),
            cache_kib,
            busy_timeout: match self.options.sharing {
                Sharing::Exclusive => Duration::ZERO,
                Sharing::Shared => SHARED_BUSY,
            },
            sync: self.sync,
            overdue: Arc::new(move || watched.is_past()),
            untrusted: self.options.untrusted.as_ref().map(Untrusted::profile),
        };
        Ok((Connection::open(self.path, role, &settings)?, deadline))
    }

    fn writer(&self, patience: Duration) -> Result<(Connection, Arc<Deadline>)> {
        let give_up = Instant::now() + patience;
        loop {
            match self.try_writer() {
                Err(error) if error.kind() == ErrorKind::Overloaded => {
                    if Instant::now() >= give_up {
                        return Err(self.held(&error));
                    }
                    thread::sleep(RETRY);
                }
                result => return result.map_err(|error| self.name(error)),
            }
        }
    }

    fn try_writer(&self) -> Result<(Connection, Arc<Deadline>)> {
        let writer = self.open(Role::Writer, self.options.writer_cache_bytes >> 10)?;
        // What a crash left in the WAL may not be on disk yet, and is about to be readable.
        writer.0.checkpoint(CheckpointMode::Truncate)?;
        Ok(writer)
    }

    fn reader(&self) -> Result<Reader> {
        let opened = self.open(Role::Reader, self.options.reader_cache_bytes >> 10);
        let (connection, deadline) = opened.map_err(|error| self.name(error))?;
        Ok(Reader { connection, deadline })
    }

    fn name(&self, error: Error) -> Error {
        error.context(format!("{} cannot be opened", self.path.display()))
    }

    fn held(&self, error: &Error) -> Error {
        let holder = lock_holder(self.path).unwrap_or_else(|| "another process".into());
        let message = format!(
            "{} is held by {holder} ({error}); close it there, or use Options::open_wait to wait \
             for it",
            self.path.display()
        );
        Error::new(ErrorKind::Overloaded, message)
    }
}

/// A directory in memory where the system has one.
fn temporary_directory() -> Result<TempDir> {
    let shared_memory = Path::new("/dev/shm");
    let made = tempfile::Builder::new().prefix("monolite-").tempdir_in(shared_memory);
    made.or_else(|_| TempDir::with_prefix("monolite-"))
        .map_err(|error| storage(Path::new(MEMORY), &error))
}

fn canonical(path: &Path) -> Result<PathBuf> {
    let fail = |error: io::Error| storage(path, &error);
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Err(unusable(path, "it is a directory")),
        Ok(meta) if meta.nlink() > 1 => {
            return Err(unusable(path, "it has hard links, and each name would have its own WAL"));
        }
        Ok(_) => return fs::canonicalize(path).map_err(fail),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(fail(error)),
    }
    let name = path.file_name().ok_or_else(|| unusable(path, "it names no file"))?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = fs::canonicalize(directory).map_err(|error| {
        storage(path, &error).context(format!("directory {}", directory.display()))
    })?;
    Ok(directory.join(name))
}

fn unusable(path: &Path, reason: &str) -> Error {
    let message = format!("{} cannot be a database: {reason}", path.display());
    Error::new(ErrorKind::Invalid, message)
}

fn storage(path: &Path, error: &io::Error) -> Error {
    let message = format!("{} cannot be opened: {error}", path.display());
    Error::new(ErrorKind::Storage, message)
}
