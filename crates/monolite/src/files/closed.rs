//! Owns the reading of a database file that is not open anywhere: it changes nothing, and creates
//! no file beside it.
//!
//! # Algorithm
//! 1. See whether there is a file that can be a database, and that it is not open in this process.
//! 2. Lock it against all others, by a descriptor of our own: SQLite takes no locks here. Where the
//!    file cannot be written, the lock lets others read, as no other is to be had.
//! 3. When there is something in a WAL or a rollback journal, the file alone is not the database:
//!    recovery has to write it, and it is not opened here.
//! 4. Open it as a file that never changes ([`Role::Inspector`]). Temporary files are beside it, or
//!    where the system has such files when its directory cannot be written.
//! 5. Look afterwards whether that was so: a program that could not be locked out may have written.
//!
//! # Not here
//! The opening of a database that is to be used: `open`.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use monolite_sqlite::vfs::{Direct, Lower, Spill, Vfs};
use monolite_sqlite::{Connection, Role, Settings, initialize, lock_holder};
use rustix::fs::{FlockOperation, fcntl_lock};

use crate::clock::{Deadline, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::files::identity::{WAL_WITHOUT_FRAMES, canonical, check_wal, io_error};
use crate::files::registry::Registration;
use crate::names::with_ending;
use crate::options::Options;

/// What every database has at its beginning.
const HEADER_BYTES: u64 = 100;

/// Each page is read once, but those of an index are looked up in the order of the table's rows.
const CACHE_KIB: u64 = 16 << 10;

/// A database file that is read as it is.
pub(crate) struct Closed {
    // Closed before the VFS and the lock go.
    pub(crate) connection: Connection,
    _vfs: Vfs,
    pub(crate) deadline: Arc<Deadline>,
    path: PathBuf,
    seen: Seen,
    _lock: File,
    _registration: Registration,
}

/// What tells that a file was written.
#[derive(PartialEq, Eq)]
struct Seen {
    file: (u64, u64),
    length: u64,
    modified: (i64, i64),
    has_more: bool,
}

impl Closed {
    /// Opens the file at `path` with what `options` add to connections; none when its WAL or
    /// journal has to be recovered before.
    ///
    /// # Errors
    /// `Invalid` when there is none, it is too short for a database, or it is open in this process;
    /// `Overloaded` when another one has it; those of reading it.
    pub(crate) fn open(path: &Path, options: &Options) -> Result<Option<Closed>> {
        initialize().map_err(|refusal| Error::new(ErrorKind::Invalid, refusal))?;
        let meta = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(no_database(path, "does not exist"));
            }
            meta => meta.map_err(|error| io_error(path, &error))?,
        };
        let path = canonical(path)?;
        check_wal(&path, &with_ending(&path, "-wal"))?;
        if meta.len() < HEADER_BYTES {
            let length = meta.len();
            let why = format!("has {length} bytes, and a database begins with {HEADER_BYTES}");
            return Err(no_database(&path, &why));
        }
        let registration = Registration::new(&path)?;
        let lock = lock(&path)?;
        if has_more(&path) {
            return Ok(None);
        }
        let seen = Seen::at(&path)?;
        let deadline = Deadline::new(Arc::new(SystemClock::default()));
        let watched = Arc::clone(&deadline);
        // Nothing of the file is written, and no lock is taken.
        let vfs = Vfs::register(Lower::Unix, Arc::new(Direct::new(Arc::default())))?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        vfs.spill_into(&Arc::new(Spill::new(directory, options.temp_limit_bytes)));
        let settings = Settings {
            cache_kib: CACHE_KIB,
            overdue: Arc::new(move || watched.is_past()),
            setup: options.setup.clone().map(|setup| setup.0),
            ..Settings::new(vfs.name())
        };
        let connection = Connection::open(&path, Role::Inspector, &settings).map_err(|error| {
            Error::from(error).context(format!("{} cannot be opened", path.display()))
        })?;
        let (_vfs, _lock, _registration) = (vfs, lock, registration);
        Ok(Some(Closed { connection, _vfs, deadline, path, seen, _lock, _registration }))
    }

    /// Sees whether the file is as it was when it was opened.
    ///
    /// # Errors
    /// `Storage` when it was written.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        if Seen::at(&self.path)? == self.seen {
            return Ok(());
        }
        let message = format!(
            "{} was written by another program meanwhile; stop that program, or do this on a copy",
            self.path.display()
        );
        Err(Error::new(ErrorKind::Storage, message))
    }
}

impl Seen {
    fn at(path: &Path) -> Result<Seen> {
        let meta: Metadata = fs::metadata(path).map_err(|error| io_error(path, &error))?;
        Ok(Seen {
            file: (meta.dev(), meta.ino()),
            length: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            has_more: has_more(path),
        })
    }
}

/// Whether something of the database at `path` is in its WAL, or has to be undone by its journal.
fn has_more(path: &Path) -> bool {
    let wal = fs::metadata(with_ending(path, "-wal")).map_or(0, |meta| meta.len());
    // SQLite ends a journal by deleting it, cutting it to nothing, or zeros at its beginning.
    let mut first = [0];
    let journal = File::open(with_ending(path, "-journal"));
    let begins = journal.and_then(|mut journal| journal.read(&mut first));
    wal > WAL_WITHOUT_FRAMES || (begins.is_ok() && first != [0])
}

/// Locks the file at `path`, which this process does not have open otherwise.
fn lock(path: &Path) -> Result<File> {
    let fail = |error: io::Error| io_error(path, &error);
    let (file, kind) = match File::options().read(true).write(true).open(path) {
        Err(error) if is_unwritable(&error) => {
            (File::open(path).map_err(fail)?, FlockOperation::NonBlockingLockShared)
        }
        file => (file.map_err(fail)?, FlockOperation::NonBlockingLockExclusive),
    };
    let is_refused = match fcntl_lock(&file, kind).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => true,
        // The file system has none.
        Ok(()) | Err(_) => false,
    };
    let holder = lock_holder(path).or_else(|| lock_holder(&with_ending(path, "-shm")));
    if !is_refused && holder.is_none() {
        return Ok(file);
    }
    let message = format!(
        "{} is held by {}; close it there",
        path.display(),
        holder.as_deref().unwrap_or("another process")
    );
    Err(Error::new(ErrorKind::Overloaded, message))
}

fn is_unwritable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn no_database(path: &Path, why: &str) -> Error {
    let message = format!("{} {why}; is this the right path?", path.display());
    Error::new(ErrorKind::Invalid, message)
}
