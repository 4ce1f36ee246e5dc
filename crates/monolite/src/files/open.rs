//! Owns the opening of a database's files: the path, who else has it, recovery, and the
//! connections in the order in which they must be opened.
//!
//! # Algorithm
//! 1. Make the path absolute and canonical (SQLite would read `file:…` as a URI, and two names of
//!    one file would have two WALs); refuse a second opening in this process, hard links, and file
//!    systems on which others have locks of their own.
//! 2. Open the writer, waiting for another process to let go of the file if that was asked for.
//!    With `Sharing::Exclusive` the `-shm` file is locked as soon as the database is, and before
//!    SQLite looks at the WAL ([`Hold`]). SQLite recovers the WAL of a crash.
//!    One beside a file that has none, as a backup, is refused before.
//! 3. Look at what recovery left out ([`monolite_sqlite::wal`]): it is counted, and a WAL that is
//!    unreadable for its header is an error, as recovery takes it for an empty one.
//! 4. While the WAL still holds every frame that was recovered, report it ([`RecoveredWal`]). An
//!    archive takes the frames here, and a replica the last commit's marker: the next step empties
//!    the WAL.
//! 5. Checkpoint what was recovered, so that it is on disk before anyone reads it.
//! 6. Sync the directory, and open the engine's own descriptor of the WAL. All other connections
//!    are opened when they are used.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use monolite_sqlite::rusqlite::{self, ffi};
use monolite_sqlite::vfs::{
    ChecksumUse, Checksummed, Direct, Lower, PageChecksums, RESERVED_BYTES, Spill, Storage, Vfs,
    WalControl,
};
use monolite_sqlite::wal::{Leftover, WalReader, leftover};
use monolite_sqlite::{
    CheckpointMode, Connection, KeyTime, MAX_VALUE_BYTES, Overdue, Role, Rowids, Settings,
    allow_page_caches, initialize, lock_holder, sees_pages, test_overlay,
};
use rustix::fs::{Access, AtFlags, CWD, StatxAttributes, StatxFlags, accessat, statx};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::archive::{Archiving, Found};
use crate::clock::{self, Deadline, Patience};
use crate::error::{Error, ErrorKind, Result};
use crate::files::hold::Hold;
use crate::files::identity::{canonical, check_existence, check_file_system, check_wal, io_error};
use crate::files::registry::Registration;
use crate::files::wal::{WalFile, sync_directory, wal_path};
use crate::names::with_ending;
use crate::options::{Durability, Options, Sharing};
use crate::read::readers::{OpenReader, Reader};
use crate::transaction::PoolOpener;

/// The name that asks for a database which is gone when it is closed.
const MEMORY: &str = ":memory:";

/// How often a file that another process holds is tried again.
const RETRY: Duration = Duration::from_millis(10);

/// How long a shared database waits for another process's lock within one statement.
const SHARED_BUSY: Duration = Duration::from_secs(5);

/// Page cache of the checkpointer, which reads pages from the WAL past any cache.
const CHECKPOINTER_CACHE_KIB: u64 = 256;

/// Page cache of a connection for interactive transactions. It holds the inner pages of the
/// tables in use, and what a few statements need; changed pages are held beside it.
const POOLED_CACHE_KIB: u64 = 2_048;

/// Page cache of a connection for untrusted queries.
pub(crate) const UNTRUSTED_CACHE_KIB: u64 = 2_048;

/// What must outlive every connection, in the order of its end.
pub(crate) struct Files {
    /// Let go of before the writer, see [`Files::let_go`].
    hold: Option<Arc<Hold>>,
    vfs: Vfs,
    overlays: Option<Vfs>,
    registration: Registration,
    temporary: Option<TempDir>,
}

impl Files {
    /// Gives up the second lock. Called while the writer is open, which keeps the first.
    pub(crate) fn let_go(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.remove();
        }
    }

    /// The last connection is about to be closed.
    pub(crate) fn closes(&self) {
        self.registration.closes();
    }

    /// Ends the use of the files, behind the last connection.
    ///
    /// # Errors
    /// `Invalid` when a connection could not be closed, as statements are left on it that cannot be
    /// dropped any more: SQLite keeps the files open, and so their locks.
    pub(crate) fn close(self) -> Result<()> {
        let is_open =
            self.vfs.has_open_files() || self.overlays.as_ref().is_some_and(Vfs::has_open_files);
        if is_open && self.temporary.is_none() {
            return Err(self.registration.keep());
        }
        Ok(())
    }
}

/// Everything the engine starts with.
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) writer: Connection,
    pub(crate) writer_deadline: Arc<Deadline>,
    /// Opens the connections of reads.
    pub(crate) open_reader: OpenReader,
    pub(crate) pool: PoolOpener,
    /// Opens that of the checkpointer.
    pub(crate) open_checkpointer: OpenReader,
    pub(crate) wal: Arc<WalControl>,
    pub(crate) wal_file: Arc<WalFile>,
    pub(crate) spill: Arc<Spill>,
    /// The numbers that are given out ahead, if they are.
    pub(crate) rowids: Option<Arc<Rowids>>,
    /// Opens the connections of untrusted queries.
    pub(crate) open_untrusted: OpenReader,
    pub(crate) durability: Durability,
    pub(crate) is_exclusive: bool,
    pub(crate) is_tracking_pages: bool,
    pub(crate) recovered: RecoveredWal,
    /// What keeps a copy elsewhere, if something does.
    pub(crate) archiving: Option<Arc<dyn Archiving>>,
    pub(crate) files: Files,
}

/// What the page caches of one database may take together. A `vacuum` has a second one as large as
/// that of the writer, streams have readers of their own, and interactive transactions up to four
/// connections for each that is set.
fn page_cache_bytes(options: &Options) -> u64 {
    let readers = options.reader_cache_bytes * options.readers as u64;
    let pooled = 4 * options.interactive.connections + options.untrusted_threads;
    2 * (options.writer_cache_bytes + readers) + (pooled as u64 * (POOLED_CACHE_KIB << 10))
}

/// Opens the database at `path`, waiting up to `patience` for another process that holds it.
pub(crate) fn open(options: &Options, path: &Path, patience: Duration) -> Result<Opened> {
    initialize().map_err(|refusal| Error::new(ErrorKind::Invalid, refusal))?;
    allow_page_caches(page_cache_bytes(options));
    let temporary = (path == Path::new(MEMORY)).then(temporary_directory).transpose()?;
    let path = match &temporary {
        Some(_) if options.archive.is_some() => return Err(no_archive_in_memory()),
        Some(directory) => directory.path().join("memory.db"),
        None => canonical(path)?,
    };
    check_file_system(&path)?;
    check_access(&path)?;
    check_wal(&path, &wal_path(&path))?;
    if options.must_exist && temporary.is_none() {
        check_existence(&path)?;
    }
    let mut registration = Registration::new(&path)?;
    let is_exclusive = options.sharing == Sharing::Exclusive;
    let lower = if is_exclusive { Lower::UnixExcl } else { Lower::Unix };
    let wal = Arc::new(wal_control(options, &path, temporary.is_none()));
    let purpose = if options.page_checksums { ChecksumUse::Verify } else { ChecksumUse::Keep };
    let checksums = Arc::new(PageChecksums::new(purpose));
    let storage = storage_of(options, &wal, &checksums);
    let vfs = Vfs::register(lower, Arc::clone(&storage))?;
    let spill = spill_beside(&vfs, &path, options.temp_limit_bytes);
    let hold = (is_exclusive && temporary.is_none()).then(|| hold_with(&vfs, &path));
    let overlays = is_exclusive.then(|| vfs.register_overlays(Arc::clone(&storage))).transpose()?;
    let opener = Opener::new(options, &path, &vfs, &wal, temporary.is_none());
    let Recovered { connection: writer, deadline: writer_deadline, wal: recovered, archiving } =
        opener.writer(hold.as_deref(), patience)?;
    let lacks_checksums =
        options.page_checksums && checksums.reserved_bytes() != Some(RESERVED_BYTES);
    let refusal = if lacks_checksums { Some(no_checksums(&path)) } else { schema_refused(&writer) };
    if let Some(refusal) = refusal {
        remove_companions(hold.as_deref(), &writer);
        return Err(refusal);
    }
    registration.is_database();
    let clean = |_: &Error| remove_companions(hold.as_deref(), &writer);
    let wal_file = opener.open_wal(storage, &wal).inspect_err(clean)?;
    let opener = Arc::new(opener);
    let more = Arc::clone(&opener);
    let cache_kib = options.reader_cache_bytes >> 10;
    let open_reader = Arc::new(move || more.reader(cache_kib));
    let checkpointer = Arc::clone(&opener);
    let open_checkpointer = Arc::new(move || checkpointer.checkpointer());
    let untrusted = Arc::clone(&opener);
    let open_untrusted = Arc::new(move || untrusted.untrusted_reader());
    let rowids = opener.rowids.clone();
    let pool = pool_opener(opener, overlays.as_ref());
    let durability = if temporary.is_some() { Durability::Buffered } else { options.durability };
    Ok(Opened {
        path,
        writer,
        writer_deadline,
        open_reader,
        pool,
        open_checkpointer,
        wal,
        wal_file,
        spill,
        rowids,
        open_untrusted,
        durability,
        is_exclusive,
        is_tracking_pages: is_exclusive && sees_pages(),
        recovered,
        archiving,
        files: Files { hold, vfs, overlays, registration, temporary },
    })
}

/// The record of the WAL of the database at `path`, which is on a disk or in memory.
fn wal_control(options: &Options, path: &Path, is_on_disk: bool) -> WalControl {
    let limit = options.wal_limit_bytes;
    let wal = match options.sharing {
        Sharing::Exclusive => WalControl::keeping_frames(limit),
        Sharing::Shared => WalControl::new(limit),
    };
    // A WAL in memory has no file system below that would have to note how long it is.
    if is_on_disk { wal.writing_ahead(path.parent().unwrap_or(Path::new("/"))) } else { wal }
}

/// Has a database that is not opened after all leave nothing beside its file, behind which
/// everything is in it.
fn remove_companions(hold: Option<&Hold>, writer: &Connection) {
    hold.into_iter().for_each(Hold::remove);
    // Files that stay do no harm.
    let _ = writer.remove_wal_on_close();
}

/// What opens the connections of interactive transactions. The first overlay is tested; where they
/// cannot be, transactions do without.
fn pool_opener(opener: Arc<Opener>, overlays: Option<&Vfs>) -> PoolOpener {
    let overlays = overlays.map(|vfs| vfs.name().to_owned());
    let readers = Arc::clone(&opener);
    let works = OnceLock::new();
    let overlay = move || {
        let Some(vfs) = overlays.as_ref().filter(|_| *works.get().unwrap_or(&true)) else {
            return Ok(None);
        };
        let opened = opener.open_with(vfs, Role::Overlay, POOLED_CACHE_KIB);
        let (connection, deadline) = opened.map_err(|error| opener.name(error))?;
        if works.get().is_none() {
            let guard = opener.reader(POOLED_CACHE_KIB)?;
            match test_overlay(&guard.connection, &connection) {
                // A moment's shortage is not to cost speed for good.
                Err(unfit) if unfit.may_pass() => {
                    return Err(Error::new(ErrorKind::Storage, unfit.to_string()));
                }
                tested => works.set(tested.is_ok()).unwrap_or_default(),
            }
        }
        Ok((*works.get().unwrap_or(&false)).then_some(Reader { connection, deadline }))
    };
    let reader = move || readers.reader(POOLED_CACHE_KIB);
    PoolOpener { reader: Arc::new(reader), overlay: Box::new(overlay) }
}

/// Gives every page of the database at `path` a checksum, see [`Options::add_page_checksums`].
pub(crate) fn add_page_checksums(options: &Options, path: &Path) -> Result<()> {
    initialize().map_err(|refusal| Error::new(ErrorKind::Invalid, refusal))?;
    fs::metadata(path).map_err(|error| io_error(path, &error))?;
    let path = canonical(path)?;
    check_file_system(&path)?;
    check_access(&path)?;
    check_wal(&path, &wal_path(&path))?;
    let _registration = Registration::new(&path)?;
    // Every page changes: what is archived begins anew.
    let options = &Options { archive: None, ..options.clone() };
    let checksums = Arc::new(PageChecksums::new(ChecksumUse::Stamp));
    // The WAL is only read here.
    let wal = Arc::default();
    let storage = storage_of(options, &wal, &checksums);
    let vfs = Vfs::register(Lower::UnixExcl, Arc::clone(&storage))?;
    // The copy takes as much as the file, whatever else may.
    spill_beside(&vfs, &path, u64::MAX);
    let hold = hold_with(&vfs, &path);
    let opener = Opener::new(options, &path, &vfs, &wal, true);
    let Recovered { connection, .. } = opener.writer(Some(&hold), Duration::ZERO)?;
    let rewritten = connection.maintenance().rewrite(RESERVED_BYTES, || checksums.begin_rewrite());
    hold.remove();
    drop(connection);
    rewritten.map_err(|error| opener.name(error.into()))?;
    sync_directory(&path, storage.as_ref()).map_err(|error| io_error(&path, &error))
}

/// The time by which keys expire: the engine's own.
fn key_time(options: &Options) -> Arc<KeyTime> {
    let clock = Arc::clone(&options.clock);
    let now = move || clock.now();
    match options.sharing {
        Sharing::Exclusive => KeyTime::alone(now),
        Sharing::Shared => KeyTime::shared(now),
    }
}

/// Why a file is refused for its schema.
fn schema_refused(connection: &Connection) -> Option<Error> {
    let rename = "rename it with plain SQLite before it is opened here";
    let convert = "write the database anew, from Latin-1 so: sqlite3 OLD .dump | iconv -f LATIN1 \
                   -t UTF-8 | sqlite3 NEW";
    let names = connection.check_names_of_file().map_err(|error| (error, rename));
    let texts = || connection.check_texts().map_err(|error| (error, convert));
    let (error, remedy) = names.and_then(|()| texts()).err()?;
    let refused = Error::from(error);
    let text = format!("{refused}: {remedy}");
    // A schema that cannot be read is reported by its first reader.
    (refused.kind() == ErrorKind::Invalid).then(|| Error::new(ErrorKind::Invalid, text))
}

/// The engine's storage, what a user has put around it, and checksums around all.
fn storage_of(
    options: &Options,
    wal: &Arc<WalControl>,
    checksums: &Arc<PageChecksums>,
) -> Arc<dyn Storage> {
    let direct = Direct::new(Arc::clone(wal));
    let inner = match &options.storage {
        Some(decorate) => decorate.0(direct),
        None => Arc::new(direct),
    };
    Arc::new(Checksummed::new(inner, Arc::clone(checksums)))
}

/// A writer connection behind which everything is in the database file.
struct Recovered {
    connection: Connection,
    deadline: Arc<Deadline>,
    wal: RecoveredWal,
    archiving: Option<Arc<dyn Archiving>>,
}

/// What was in the WAL when the file was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecoveredWal {
    /// Frames of what was committed.
    pub(crate) frames: u64,
    /// Frames behind those, which recovery left out.
    pub(crate) discarded: u64,
}

/// Opens connections of one database, at any time of its life.
struct Opener {
    options: Options,
    path: PathBuf,
    /// The name of the VFS.
    vfs: String,
    /// What records all changes, if only this process makes any.
    control: Option<Arc<WalControl>>,
    sync: bool,
    /// The numbers that are given out ahead, if they are.
    rowids: Option<Arc<Rowids>>,
    /// By which the keys of all connections expire.
    key_time: Arc<KeyTime>,
    /// The files that the writer has open, once it has.
    files: OnceLock<Arc<WalFile>>,
}

impl Opener {
    fn new(options: &Options, path: &Path, vfs: &Vfs, wal: &Arc<WalControl>, sync: bool) -> Opener {
        let is_exclusive = options.sharing == Sharing::Exclusive;
        let control = is_exclusive.then(|| Arc::clone(wal));
        let (options, path, vfs) = (options.clone(), path.into(), vfs.name().into());
        let rowids = options.interactive.ids_given_out_ahead.then(Arc::default);
        let (key_time, files) = (key_time(&options), OnceLock::new());
        Opener { options, path, vfs, control, sync, rowids, key_time, files }
    }

    /// Has every other connection be one of these files.
    fn watch(&self, files: &Arc<WalFile>) {
        let _ = self.files.set(Arc::clone(files));
    }

    /// Sees whether a connection that is opened now, or was just now, is one of the writer's files.
    fn check_files(&self) -> Result<()> {
        let seen = self.files.get().map_or(Ok(()), |files| files.check_for_connection());
        seen.map_err(|error| Error::new(ErrorKind::Storage, error.to_string()))
    }

    fn open(&self, role: Role, cache_kib: u64) -> Result<(Connection, Arc<Deadline>)> {
        self.open_with(&self.vfs, role, cache_kib)
    }

    fn open_with(
        &self,
        vfs: &str,
        role: Role,
        cache_kib: u64,
    ) -> Result<(Connection, Arc<Deadline>)> {
        self.opened(vfs, cache_kib, |settings| Connection::open(&self.path, role, settings))
    }

    /// What `open` opens, and the deadline of what is run on it.
    fn opened(
        &self,
        vfs: &str,
        cache_kib: u64,
        open: impl FnOnce(&Settings) -> rusqlite::Result<Connection>,
    ) -> Result<(Connection, Arc<Deadline>)> {
        let deadline = Deadline::new(Arc::clone(&self.options.clock));
        let watched = Arc::clone(&deadline);
        let settings = self.settings(vfs, cache_kib, Arc::new(move || watched.is_past()));
        self.check_files()?;
        let mut connection = open(&settings)?;
        self.check_files()?;
        connection.count_time_of_keys(Arc::clone(&self.key_time));
        Ok((connection, deadline))
    }

    fn settings(&self, vfs: &str, cache_kib: u64, overdue: Overdue) -> Settings {
        Settings {
            cache_kib,
            busy_timeout: match self.options.sharing {
                Sharing::Exclusive => Duration::ZERO,
                Sharing::Shared => SHARED_BUSY,
            },
            sync: self.sync,
            value_bytes: i32::try_from(self.options.value_limit_bytes).unwrap_or(MAX_VALUE_BYTES),
            reserved_bytes: if self.options.page_checksums { RESERVED_BYTES } else { 0 },
            overdue,
            rowids: self.rowids.clone(),
            control: self.control.clone(),
            setup: self.options.setup.clone().map(|setup| setup.0),
            ..Settings::new(vfs)
        }
    }

    /// A connection for untrusted queries.
    fn untrusted_reader(&self) -> Result<Reader> {
        self.connection(Role::Untrusted, UNTRUSTED_CACHE_KIB)
    }

    fn writer(&self, hold: Option<&Hold>, patience: Duration) -> Result<Recovered> {
        let patience = Patience::of(patience);
        loop {
            match self.try_writer(hold) {
                Err(error) if error.kind() == ErrorKind::Overloaded => {
                    if patience.left().is_zero() {
                        return Err(self.held(hold, &error));
                    }
                    clock::rest(RETRY);
                }
                result => return result.map_err(|error| self.name(error)),
            }
        }
    }

    fn try_writer(&self, hold: Option<&Hold>) -> Result<Recovered> {
        let cache_kib = self.options.writer_cache_bytes >> 10;
        let tidy = || hold.into_iter().for_each(Hold::undo);
        let open = |settings: &Settings| Connection::open_writer(&self.path, settings, tidy);
        let opened = self.opened(&self.vfs, cache_kib, open);
        let (connection, deadline) = opened.map_err(|error| not_opened(hold, error))?;
        let recovered = self.recover(&connection);
        match recovered {
            Ok((wal, archiving)) => Ok(Recovered { connection, deadline, wal, archiving }),
            Err(error) => {
                connection.give_up(tidy);
                Err(error)
            }
        }
    }

    /// Has what recovery found in the database file, after the archive has seen it, and tells what
    /// it was.
    fn recover(&self, writer: &Connection) -> Result<(RecoveredWal, Option<Arc<dyn Archiving>>)> {
        let file = fs::metadata(&self.path).map_err(|error| io_error(&self.path, &error))?;
        let found = self.found(writer)?;
        let archiving = self.archive(file, found.frames)?;
        if let Some(last) = &self.options.replica {
            let found = last.find(self.wal()?.as_ref(), found.frames);
            found.map_err(|error| io_error(&self.path, &error))?;
        }
        // What a crash left in the WAL may not be on disk yet, and is about to be readable.
        writer.checkpoint(CheckpointMode::Truncate)?;
        archiving.iter().for_each(|archiving| archiving.settled());
        Ok((found, archiving))
    }

    /// Begins with the archive, if there is one, while the WAL has all its frames.
    fn archive(&self, file: fs::Metadata, frames: u64) -> Result<Option<Arc<dyn Archiving>>> {
        let Some(archive) = &self.options.archive else { return Ok(None) };
        let wal = self.wal()?.map(|reader| {
            let end = reader.end_of(frames);
            (reader, end)
        });
        Ok(Some(archive.open(Found { database: &self.path, file, wal })?))
    }

    fn wal(&self) -> Result<Option<WalReader>> {
        let wal = File::open(wal_path(&self.path)).and_then(WalReader::open);
        wal.map_err(|error| io_error(&self.path, &error))
    }

    /// What recovery took of the WAL, and what it did not, before the WAL is emptied: a passive
    /// checkpoint copies the frames and leaves them where they are.
    ///
    /// The write lock keeps other processes from writing meanwhile; when one has written just
    /// before, it has the WAL in use and there was nothing to recover.
    fn found(&self, writer: &Connection) -> Result<RecoveredWal> {
        let copied = writer.checkpoint(CheckpointMode::Passive)?;
        if copied.is_kept_out() {
            // By a process that has the WAL in use.
            return Ok(RecoveredWal { frames: 0, discarded: 0 });
        }
        let accepted = copied.wal_frames;
        writer.begin_immediate()?;
        let leftover = File::open(wal_path(&self.path)).and_then(|wal| leftover(&wal, accepted));
        writer.rollback()?;
        let is_settled = writer.checkpoint(CheckpointMode::Passive)?.wal_frames == accepted;
        let discarded = match leftover.map_err(|error| io_error(&self.path, &error))? {
            _ if !is_settled => 0,
            Leftover::Frames(discarded) => discarded,
            Leftover::DamagedHeader => return Err(damaged_wal(&self.path)),
        };
        Ok(RecoveredWal { frames: accepted.into(), discarded })
    }

    /// Opens the engine's own descriptor of the WAL.
    fn open_wal(&self, storage: Arc<dyn Storage>, wal: &Arc<WalControl>) -> Result<Arc<WalFile>> {
        let fail = |error: io::Error| io_error(&self.path, &error);
        let is_exclusive = self.options.sharing == Sharing::Exclusive;
        sync_directory(&self.path, storage.as_ref()).map_err(fail)?;
        let wal_file = WalFile::open(&self.path, storage, Arc::clone(wal), is_exclusive);
        let wal_file = Arc::new(wal_file.map_err(fail)?);
        // A database in memory is synced nowhere, and its disk is not that of others.
        if self.sync {
            wal_file.set_aside();
        }
        self.watch(&wal_file);
        Ok(wal_file)
    }

    fn checkpointer(&self) -> Result<Reader> {
        self.connection(Role::Checkpointer, CHECKPOINTER_CACHE_KIB)
    }

    fn reader(&self, cache_kib: u64) -> Result<Reader> {
        self.connection(Role::Reader, cache_kib)
    }

    fn connection(&self, role: Role, cache_kib: u64) -> Result<Reader> {
        let opened = self.open(role, cache_kib);
        let (connection, deadline) = opened.map_err(|error| self.name(error))?;
        Ok(Reader { connection, deadline })
    }

    fn name(&self, error: Error) -> Error {
        let path = self.path.display();
        let odd = oddity(&self.path);
        if error.extended_code() == Some(ffi::SQLITE_READONLY) {
            let message = format!(
                "{path} cannot be opened: a file beside it must be readable and writable and is \
                 not: {path}-wal or {path}-shm (see their owner, permissions and attributes){odd}"
            );
            return Error::new(ErrorKind::Storage, message);
        }
        error.context(format!("{path} cannot be opened{odd}"))
    }

    fn held(&self, hold: Option<&Hold>, error: &Error) -> Error {
        let of_second = || hold.and_then(|hold| lock_holder(hold.path()));
        let holder = lock_holder(&self.path).or_else(of_second);
        let holder = holder.unwrap_or_else(|| "another process".into());
        let message = format!(
            "{} is held by {holder} ({error}); close it there, or use Options::open_wait to wait \
             for it",
            self.path.display()
        );
        Error::new(ErrorKind::Overloaded, message)
    }
}

/// The error of an open, with what kept the second file from being locked, if that did.
fn not_opened(hold: Option<&Hold>, error: Error) -> Error {
    match hold.and_then(|hold| Some((hold.path(), hold.take_failure()?))) {
        Some((path, failure)) => error.context(format!("{}: {failure}", path.display())),
        None => error,
    }
}

/// What is locked beside the database at `path`, before anything of it is read.
fn hold_with(vfs: &Vfs, path: &Path) -> Arc<Hold> {
    let hold = Arc::new(Hold::new(path));
    let locked = Arc::clone(&hold);
    vfs.lock_also(move || locked.lock());
    hold
}

/// Has temporary files of the database at `path` be beside it.
fn spill_beside(vfs: &Vfs, path: &Path, limit_bytes: u64) -> Arc<Spill> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let spill = Arc::new(Spill::new(directory, limit_bytes));
    vfs.spill_into(&spill);
    spill
}

/// A directory in memory where the system has one.
fn temporary_directory() -> Result<TempDir> {
    let shared_memory = Path::new("/dev/shm");
    let made = tempfile::Builder::new().prefix("monolite-").tempdir_in(shared_memory);
    made.or_else(|_| TempDir::with_prefix("monolite-"))
        .map_err(|error| io_error(Path::new(MEMORY), &error))
}

/// Sees whether the files can be read and written: SQLite's own errors do not say what is missing.
fn check_access(path: &Path) -> Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    for (place, wanted, why) in [
        (path, Access::READ_OK | Access::WRITE_OK, ""),
        (directory, Access::WRITE_OK | Access::EXEC_OK, ", as the WAL is created there"),
    ] {
        // What else may go wrong, SQLite finds.
        if let Err(error @ (Errno::ACCESS | Errno::ROFS | Errno::PERM)) =
            accessat(CWD, place, wanted, AtFlags::EACCESS)
        {
            let odd = oddity(path);
            let message = format!(
                "{} cannot be opened: {} must be readable and writable{why}: {error}{odd}",
                path.display(),
                place.display()
            );
            return Err(Error::new(ErrorKind::Storage, message));
        }
    }
    Ok(())
}

/// What is odd about the files of the database at `path` or their directory, of which SQLite's
/// errors say nothing, to be added to one; nothing where they are in order.
fn oddity(path: &Path) -> String {
    let files = ["", "-wal", "-shm"].map(|ending| with_ending(path, ending));
    let directory = path.parent().map(Path::to_path_buf);
    let odd = files.into_iter().chain(directory).find_map(|file| {
        let name = file.display();
        // Its own name is canonical.
        if fs::symlink_metadata(&file).is_ok_and(|meta| meta.is_symlink()) {
            return Some(format!(
                "{name} is a symbolic link, which SQLite does not follow there; put the file in \
                 its place"
            ));
        }
        // Not by a descriptor: closing one would drop SQLite's locks.
        let seen = statx(CWD, &file, AtFlags::empty(), StatxFlags::empty()).ok()?;
        let has = |attribute| seen.stx_attributes.contains(attribute);
        let (word, letter) = if has(StatxAttributes::IMMUTABLE) {
            ("immutable", 'i')
        } else if has(StatxAttributes::APPEND) {
            ("append-only", 'a')
        } else {
            return None;
        };
        Some(format!("{name} is {word}; make it writable with chattr -{letter}"))
    });
    odd.map_or_else(String::new, |odd| format!(" ({odd})"))
}

fn no_archive_in_memory() -> Error {
    let message = "a database in memory has no archive: its file is gone when it is closed";
    Error::new(ErrorKind::Invalid, message)
}

fn no_checksums(path: &Path) -> Error {
    let message = format!(
        "{} has no page checksums, which the option page_checksums is to verify; add them with \
         Options::add_page_checksums, or open it without the option; if it should have them, its \
         beginning is damaged, and a backup is needed",
        path.display()
    );
    Error::new(ErrorKind::Invalid, message)
}

fn damaged_wal(path: &Path) -> Error {
    let wal = wal_path(path);
    let message = format!(
        "the header of {} is damaged, and what was committed since the last checkpoint cannot be \
         read; restore a backup, or move that file away to open the database as of the last \
         checkpoint",
        wal.display()
    );
    Error::new(ErrorKind::Corrupt, message)
}
