//! Owns a follower: a database that has what an archive has, a moment later, and only reads.
//!
//! # Algorithm
//! 1. [`Follower::open`] restores the newest state to the file, unless that follows the archive
//!    already, and opens it.
//! 2. A thread looks for what comes next and applies it ([`following`]): a file of the archive is a
//!    commit of the database, of whole pages. Readers keep their snapshots.
//! 3. What is there is noted beside the file ([`place`]), so that a kill at any moment is safe.
//!
//! # Threads and locks
//! `monolite-follow` makes all requests and applies. The lock of the progress is held for a few
//! instructions. An exclusive lock on `<database>-archive/follows.lock` keeps out another follower
//! of the same file.

mod following;
mod marker;
mod pages;
mod place;
mod rejoin;
mod stream;
mod streamed;
mod succession;

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use monolite::archive::ArchiveToken;
use monolite::archive::Refusal;
use monolite::rusqlite::{Connection, OpenFlags};
use monolite::{Database, ErrorKind as Kind, Options, ReadTx, Replica};
use monolite_ltx::{PageSize, Txid};
use serde::Serialize;

use crate::archiver::position::{Position, directory_of, make};
use crate::archiver::{Archive, refusal};
use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::file::ArchivedFile;
use crate::plan::Target;
use crate::record::{Epoch, Record, ReplicaId};
use crate::requests::leader;
use crate::restore::restore;
use crate::streaming::{PATIENCE, Peer};
use following::{Following, newest_of};
use marker::Notes;
use place::Place;
use rejoin::{rejoin, successor};
pub use succession::{Succession, Takeover};

/// Why a follower may not take over.
const BARRED: &str = "it may not take over: the leader record lists others, which have all that \
                      was acknowledged; it may once it streams from the primary and has that, too";

/// Why a follower that waits for its turn never gets it, in words.
const NO_LEASE: &str = "it does not take over by itself: the archive's primary has no lease, so \
                        nothing tells that it is gone; give it one, or monolite promote a file";

/// A database that follows an archive: what its primary has archived is here a moment later, in a
/// file of its own, for reads.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let (url, path) = (directory.path().join("archive"), directory.path().join("ledger.db"));
/// # let url = url.to_str().expect("it is text");
/// # let copy = directory.path().join("copy.db");
/// use monolite::Options;
/// use monolite_archive::{Archive, Follower};
///
/// let primary = Options::new().archive(Archive::at(url)?).open(&path)?;
/// primary.write(|tx| tx.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (7)")).wait()?;
/// let token = primary.archive_token()?;
///
/// let follower = Follower::open(url, &copy)?;
/// let sum = "SELECT sum(x) FROM t";
/// // What the primary had at the token, or later.
/// let seen: i64 = follower.read_at(token, |tx| tx.query_row(sum, (), |row| row.get(0)))?;
/// assert_eq!(seen, 7);
/// let refused = follower.database().write(|tx| tx.execute("DELETE FROM t", ())).wait();
/// assert!(refused.unwrap_err().to_string().contains(url));
/// follower.close()?;
/// # Ok(primary.close()?)
/// # }
/// ```
///
/// Dropping it closes it.
pub struct Follower {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Following>>,
    /// Of the file, for as long as it is followed.
    lock: File,
}

/// How far a [`Follower`] is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FollowerStats {
    /// The number of what was applied last (the TXID): at least that of the last opening.
    pub txid: u64,
    /// The newest number that it knows of; `txid` while that has everything.
    pub newest: u64,
    /// Bytes of the archive's files that lead from one to the other, when it last planned.
    pub lag_bytes: u64,
    /// How long it has known of something newer than what it has, in milliseconds by a clock that
    /// is not set; 0 when it knows of nothing newer. It looks once in an
    /// [interval](Archive::interval).
    pub lag_ms: u64,
    /// How long ago it last had everything that the archive had, by the same clock: what is read
    /// here is no older than that, and than what the primary had not archived then. `None` before
    /// that is so for the first time since it was opened.
    pub age_ms: Option<u64>,
    /// Files of the archive that were applied since it was opened.
    pub files: u64,
    /// Full copies that were put in place since it was opened.
    pub copies: u64,
    /// Why the last one was due.
    pub copied_because: Option<String>,
    /// Where the pages are that the file alone had, if it was a primary's before: for
    /// [`Archive::restore_orphan`].
    pub orphan: Option<PathBuf>,
    /// The term of the archive's primary; 0 without one.
    pub epoch: u64,
    /// Where clients find the primary ([`Archive::address`]), as the follower read it last.
    pub primary: String,
    /// Whether a follower may take over from it by itself ([`Archive::lease`]).
    pub has_lease: bool,
    /// Whether it streams from the primary ([`Archive::stream_from`]).
    pub is_streaming: bool,
    /// Which of the record's [`replicas`](Record::replicas) this one is, or would be, while it is
    /// known what the file has: 32 hexadecimal digits. `None` before it first streams.
    pub replica: Option<String>,
    /// Why it may not take over, if that has been so for 5 s: the leader record lists replicas, and
    /// not this one, or the primary that it waits to replace has no lease. Or why its last attempt
    /// failed, if nothing was heard of a primary since.
    pub barred: Option<String>,
    /// Parts that were applied of streams since it was opened.
    pub parts: u64,
    /// Why the last stream ended, or did not begin, unless the archive had to go before.
    pub stream_error: Option<String>,
    /// What went wrong last, if nothing has succeeded since.
    pub last_error: Option<String>,
    /// Whether it follows no more: `last_error` says why.
    pub is_over: bool,
}

/// What the thread and the handle share.
struct Shared {
    archive: Archive,
    replica: Replica,
    page_size: PageSize,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    stats: FollowerStats,
    /// Everything up to here is applied, or a fence.
    reached: u64,
    /// Since when something newer is known.
    behind_since: Option<Instant>,
    /// When it last had everything.
    had_all: Option<Instant>,
    record: Option<Record>,
    /// Which replica this is, while it is known what the file has.
    replica: Option<ReplicaId>,
    /// Since when it may not take over, and why.
    barred_since: Option<(Instant, &'static str)>,
    /// Whether it takes over when there is no primary.
    waits: bool,
    /// Why its last attempt failed, and over which record.
    failed_claim: Option<(Record, String)>,
    /// Why it follows no more.
    over: Option<Error>,
    is_ending: bool,
}

impl Follower {
    /// Follows the archive at `url` ([`Archive::at`]) with the file at `path`: one that has
    /// followed it before goes on, and one that is not there is restored first.
    ///
    /// # Errors
    /// Those of [`Archive::follow`]; `Invalid` for a wrong address.
    pub fn open(url: &str, path: impl AsRef<Path>) -> monolite::Result<Follower> {
        Archive::at(url).map_err(of)?.follow(Options::new(), path)
    }

    /// The database, for reads, streams, backups and statistics. Its writes fail with `Invalid`,
    /// and say of which archive it is.
    pub fn database(&self) -> &Database {
        self.shared.replica.database()
    }

    /// Runs `body` as a read of [`Follower::database`] on a snapshot that has everything which
    /// `token` names ([`Database::archive_token`] on the primary). Waits for that up to
    /// [`Archive::time_limit`]. Blocks.
    ///
    /// # Errors
    /// Those of [`Follower::wait_for`] and of the read.
    pub fn read_at<T>(
        &self,
        token: ArchiveToken,
        body: impl FnOnce(&ReadTx<'_>) -> monolite::Result<T>,
    ) -> monolite::Result<T> {
        self.wait_for(token, self.shared.archive.time_limit)?;
        self.database().read(body).wait()
    }

    /// Waits up to `limit` until the follower has everything that `token` names: reads that begin
    /// afterwards see it. Blocks.
    ///
    /// # Errors
    /// `Timeout` when it has not come; `Invalid` for a token of another history, or of an epoch
    /// that it does not have; `Storage` when what it names may be lost
    /// ([`Record::locate`]), or a request fails; why it follows no more, if it does not.
    pub fn wait_for(&self, token: ArchiveToken, limit: Duration) -> monolite::Result<()> {
        let start = Instant::now();
        let mut progress = self.shared.progress();
        loop {
            let known = progress.has(token);
            if known == Some(true) {
                return Ok(());
            }
            if let Some(error) = &progress.over {
                return Err(of(error.clone()));
            }
            if known.is_none() {
                drop(progress);
                let is_there = self.shared.look_for(token).map_err(of)?;
                progress = self.shared.progress();
                if is_there {
                    return Ok(());
                }
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(late(token, limit, &progress.stats));
            }
            let most = left.min(self.shared.archive.interval);
            progress = self.shared.wait(progress, most);
        }
    }

    /// Whether it has everything that `token` names, by what it knows. `None` where only the leader
    /// record as it is now can tell ([`Follower::look_for`]). Never blocks.
    pub fn has(&self, token: ArchiveToken) -> Option<bool> {
        self.shared.progress().has(token)
    }

    /// Asks the leader record whether everything that `token` names is here. What is returned
    /// blocks for that one request, and may outlive the follower.
    ///
    /// # Errors
    /// Of what is returned: [`Invalid`](ErrorKind::Invalid) for a token of another history, or of
    /// an epoch that it does not have; [`NotFound`](ErrorKind::NotFound) when what it names may be
    /// lost; those of a request.
    pub fn look_for(&self, token: ArchiveToken) -> impl FnOnce() -> Result<bool> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.look_for(token)
    }

    /// How far it is.
    pub fn stats(&self) -> FollowerStats {
        let progress = self.shared.progress();
        let behind = progress.behind_since.map_or(0, |since| since.elapsed().as_millis());
        let age = progress.had_all.map(|since| since.elapsed().as_millis());
        let whole = |ms| u64::try_from(ms).unwrap_or(u64::MAX);
        let (lag_ms, age_ms) = (whole(behind), age.map(whole));
        let replica = progress.replica.map(|replica| replica.to_string());
        let barred = progress.barred_since.filter(|(since, _)| since.elapsed() >= PATIENCE);
        let failed = || {
            let (record, why) = progress.failed_claim.as_ref()?;
            let is_over_it = progress.record.as_ref() == Some(record);
            is_over_it.then(|| format!("it cannot take over: {why}"))
        };
        let barred = barred.map(|(_, why)| why.to_owned()).or_else(failed);
        let FollowerStats { txid, newest, .. } = progress.stats;
        // All behind it are fences, which have nothing to apply.
        let newest = if progress.reached < newest { newest } else { txid };
        FollowerStats { newest, lag_ms, age_ms, replica, barred, ..progress.stats.clone() }
    }

    /// Stops following, and closes the database. Waits for a request that is under way.
    ///
    /// # Errors
    /// Those of [`Database::close`].
    pub fn close(mut self) -> monolite::Result<()> {
        self.end()
    }

    fn end(&mut self) -> monolite::Result<()> {
        match self.stop() {
            Some(following) => self.close_at(following),
            None => self.database().close(),
        }
    }

    /// Follows no more; `None` when the thread has panicked.
    fn stop(&mut self) -> Option<Following> {
        self.shared.progress().is_ending = true;
        self.shared.changed.notify_all();
        self.thread.take()?.join().ok()
    }

    /// Closes the database, and notes what the file is.
    fn close_at(&self, following: Following) -> monolite::Result<()> {
        let Following { mut place, path, .. } = following;
        self.database().close()?;
        place.settle(&path).map_err(of)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // Without the note of a clean end the next opening applies the last group again.
            let _ = self.end();
        }
        // A child process that is being started has a copy of it until it runs its program.
        let _ = self.lock.unlock();
    }
}

impl Archive {
    /// Follows this archive with the file at `path`, as [`Follower::open`]. Of `options` those hold
    /// that concern reads. With [`Sharing::Shared`](monolite::Sharing) other programs may read the
    /// file meanwhile, and none may write to it: that is noticed, and undone.
    /// [`Archive::interval`] is how often it looks for what is new.
    ///
    /// A file that was a primary's follows its successor from then on. The pages that it alone had
    /// are written to `<file>.orphan-<epoch>-<TXID>.ltx` before it is changed, and
    /// [`FollowerStats::orphan`] says so; [`Archive::restore_orphan`] restores them. So are those
    /// of a replica that another program has opened after a kill, and perhaps changed: it does not
    /// know any more what it has, and begins anew.
    ///
    /// # Errors
    /// `Invalid` when the file is there and follows nothing, or is the database of the primary, or
    /// has commits that were not archived and no successor;
    /// `Overloaded` when another process follows with it, or has it open; `Fenced` for the archive
    /// of another database; those of [`Archive::restore`] for a new file, and of [`Options::open`].
    pub fn follow(&self, options: Options, path: impl AsRef<Path>) -> monolite::Result<Follower> {
        self.stream_from.as_ref().map_or(Ok(()), Peer::check).map_err(of_file)?;
        let path = std::path::absolute(path.as_ref());
        let path = path.map_err(|error| of(Error::of_io("use the path", error)))?;
        let beside = directory_of(&path);
        make(&beside)
            .map_err(|error| of(Error::of_io(format!("make {}", beside.display()), error)))?;
        let lock_path = beside.join("follows.lock");
        let has_locked = lock_path.exists();
        let lock = lock(&lock_path, &path)?;
        let begun = self.begin(&path).inspect_err(|_| {
            // What is refused leaves nothing behind; a directory that has something stays.
            if !has_locked {
                let _ = fs::remove_file(&lock_path);
                let _ = fs::remove_dir(&beside);
            }
        });
        let (mut place, page_size, mut orphan) = begun.map_err(of_file)?;
        let why = format!("this database follows {}: only its primary may write", self.name);
        let open = || {
            let notes = Arc::new(Notes::of(&path).map_err(of)?);
            let replica = Replica::open(options.clone(), &path, &why, Arc::clone(&notes) as _)?;
            Ok::<_, monolite::Error>((replica, notes))
        };
        let (mut replica, mut notes) = open()?;
        if place.has_parts() && notes.found().is_none() {
            replica.database().close()?;
            orphan = rejoin::without_marker(self, &path, &place).map_err(of)?;
            (replica, notes) = open()?;
        }
        let marker = notes.found();
        place.is_marked(marker.as_ref());
        let txid = place.from;
        let stats = FollowerStats { txid, newest: txid, orphan, ..FollowerStats::default() };
        let progress = Progress { stats, reached: txid, ..Progress::default() };
        let (progress, changed) = (Mutex::new(progress), Condvar::new());
        let archive = self.clone();
        let shared = Arc::new(Shared { archive, replica, page_size, progress, changed });
        let next = Txid::new(txid + 1).unwrap_or(Txid::FIRST);
        let theirs = Arc::clone(&shared);
        let mut following = Following {
            shared: theirs,
            path,
            place,
            record: None,
            notes,
            streamed: marker.and_then(|marker| marker.streamed),
            next,
            looked: None,
            lists: 0,
        };
        if following.place.is_spoiled {
            following.turn().map_err(of)?;
        }
        let thread = Builder::new().name("monolite-follow".into()).spawn(|| following.run());
        let thread = thread.map_err(|error| of(Error::of_io("begin a thread", error)))?;
        Ok(Follower { shared, thread: Some(thread), lock })
    }

    /// Has the file at `path` be one that follows: where in history it is, and how large its pages
    /// are.
    fn begin(&self, path: &Path) -> Result<(Place, PageSize, Option<PathBuf>)> {
        let primary = Position::read(&directory_of(path))?;
        let orphan = match &primary {
            Some(position) if position.epoch > Epoch(0) => rejoin(self, path, position)?,
            _ => None,
        };
        // Made by an opening that another one was ahead of, when the archive began.
        let is_new = primary.is_some_and(|position| position.epoch == Epoch(0));
        let is_there = path.symlink_metadata().is_ok() && !(is_new && is_empty(path)?);
        let mut place = match Place::read(path)? {
            Some(place) if is_there && place.from > 0 => place,
            None if is_there => {
                let message = format!(
                    "{} is there, and follows nothing: name a new file, or move it away and keep \
                     it, as it may have what the archive has not",
                    path.display()
                );
                return Err(Error::invalid(message));
            }
            _ => self.copy(path)?,
        };
        place.take_up(path)?;
        Ok((place, page_size_of(path)?, orphan))
    }

    /// Restores the newest state to a new file.
    fn copy(&self, path: &Path) -> Result<Place> {
        let (store, layout) = (&*self.store, &self.layout);
        let catalog = Catalog::read(store, layout)?;
        let record = leader(store, layout)?;
        if catalog.newest().is_none() {
            return Err(nothing_at(&self.name, path));
        }
        let (target, at) = newest_of(&catalog, record.as_ref())?;
        let mut place = Place::nowhere(record.map(|record| record.lineage));
        place.write(path)?;
        // One whose record was not written any more.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::of_io(format!("remove {}", path.display()), error));
            }
            _ => {}
        }
        restore(store, layout, Target::Txid(target), path)?;
        (place.from, place.to) = (at.get(), at.get());
        place.write(path)?;
        Ok(place)
    }
}

impl Progress {
    /// Notes whether the record keeps it from taking over.
    fn look_for_bars(&mut self) {
        let listed = self.record.as_ref().map_or(&[][..], |record| &record.replicas);
        let is_listed = self.replica.is_some_and(|replica| listed.contains(&replica));
        let has_lease = self.record.as_ref().is_none_or(|record| record.has_lease);
        let why = match () {
            () if !listed.is_empty() && !is_listed => Some(BARRED),
            () if self.waits && !has_lease => Some(NO_LEASE),
            () => None,
        };
        let before = self.barred_since.filter(|before| Some(before.1) == why);
        self.barred_since = before.or(why.map(|why| (Instant::now(), why)));
    }

    /// As [`Follower::has`].
    fn has(&self, token: ArchiveToken) -> Option<bool> {
        match self.record.as_ref()?.look_for(token) {
            Ok(Some(txid)) if txid.get() <= self.stats.txid => Some(true),
            // A copy behind a fence is in a newer record, as is an epoch that began since.
            Ok(Some(txid)) if txid.get() <= self.reached => None,
            Ok(_) => Some(false),
            Err(_) => None,
        }
    }
}

impl Shared {
    /// As [`Follower::look_for`].
    fn look_for(&self, token: ArchiveToken) -> Result<bool> {
        let record = leader(&*self.archive.store, &self.archive.layout)?;
        let none = || Error::invalid(format!("{token} says nothing: there is no leader record"));
        let record = record.ok_or_else(none)?;
        let Some(txid) = record.look_for(token)? else { return Ok(false) };
        let mut progress = self.progress();
        let applied = Txid::new(progress.stats.txid);
        let is_whole = applied.is_some_and(|applied| !record.needs_copy(applied, txid));
        let is_reached = txid.get() <= progress.reached && is_whole;
        progress.record = Some(record);
        Ok(is_reached)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'p>(
        &self,
        progress: MutexGuard<'p, Progress>,
        most: Duration,
    ) -> MutexGuard<'p, Progress> {
        self.changed.wait_timeout(progress, most).unwrap_or_else(PoisonError::into_inner).0
    }

    fn is_ending(&self) -> bool {
        self.progress().is_ending
    }

    /// Rests, unless it is to end.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut progress = self.progress();
        while !progress.is_ending && Instant::now() < until {
            progress = self.wait(progress, until.saturating_duration_since(Instant::now()));
        }
    }

    fn note_record(&self, record: Option<&Record>) {
        let mut progress = self.progress();
        progress.stats.epoch = record.map_or(0, |record| record.epoch.0);
        progress.stats.primary = record.map_or_else(String::new, |record| record.address.clone());
        progress.stats.has_lease = record.is_some_and(|record| record.has_lease);
        progress.record = record.cloned();
        progress.look_for_bars();
    }

    /// There is something newer, to which files of so many bytes lead.
    fn note_newest(&self, newest: Txid, bytes: u64) {
        let mut progress = self.progress();
        if newest.get() <= progress.reached {
            return;
        }
        progress.stats.newest = progress.stats.newest.max(newest.get());
        progress.stats.lag_bytes = bytes;
        if bytes > 0 {
            progress.behind_since.get_or_insert_with(Instant::now);
        }
    }

    /// What is read from now on has these files; without any, a copy of everything.
    fn note_applied(&self, files: &[ArchivedFile]) {
        let mut progress = self.progress();
        progress.stats.files += files.len() as u64;
        progress.stats.copies += u64::from(files.is_empty());
        let bytes: u64 = files.iter().map(|file| file.len).sum();
        progress.stats.lag_bytes = progress.stats.lag_bytes.saturating_sub(bytes);
    }

    /// The file is that of `applied`, and all behind it up to `reached` are fences.
    fn reached(&self, applied: u64, reached: Txid) {
        let mut progress = self.progress();
        progress.stats.txid = applied;
        progress.reached = progress.reached.max(reached.get());
        progress.stats.newest = progress.stats.newest.max(reached.get());
        if progress.stats.newest == reached.get() {
            progress.behind_since = None;
            progress.stats.lag_bytes = 0;
        }
        drop(progress);
        self.changed.notify_all();
    }

    /// It had everything that the archive had `then`.
    fn had_all(&self, then: Instant) {
        self.progress().had_all = Some(then);
    }

    fn copies(&self, why: &str) {
        self.progress().stats.copied_because = Some(why.to_owned());
    }

    fn succeeded(&self) {
        self.progress().stats.last_error = None;
    }

    /// Whether it cannot go on after that.
    fn failed(&self, error: &Error) -> bool {
        let mut progress = self.progress();
        progress.stats.last_error = Some(error.to_string());
        let is_over = error.kind() == ErrorKind::Fenced;
        if is_over {
            progress.stats.is_over = true;
            progress.over = Some(error.clone());
        }
        drop(progress);
        self.changed.notify_all();
        is_over
    }
}

/// Keeps other followers from the file at `path`.
fn lock(lock: &Path, path: &Path) -> monolite::Result<File> {
    let failed = |error| of(Error::of_io(format!("lock {}", lock.display()), error));
    let file = File::options().create(true).truncate(false).write(true).open(lock);
    let file = file.map_err(failed)?;
    match file.try_lock() {
        // One that was refused has removed it.
        Ok(()) if !is_at(&file, lock) => self::lock(lock, path),
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let message = format!("another follower has {}", path.display());
            Err(Refusal { kind: Kind::Overloaded, message }.into())
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Whether the file at `path` is this one.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(is), Ok(there)) = (file.metadata(), fs::metadata(path)) else { return false };
    (is.dev(), is.ino()) == (there.dev(), there.ino())
}

/// Whether the database at `path` has no table. What is in its WAL is in the file then.
fn is_empty(path: &Path) -> Result<bool> {
    let count = |connection: Connection| {
        let sql = "SELECT NOT EXISTS(SELECT 1 FROM sqlite_schema)";
        let is_empty = connection.query_row(sql, (), |row| row.get(0))?;
        connection.close().map(|()| is_empty).map_err(|(_, error)| error)
    };
    let failed = |error| Error::new(ErrorKind::Lost, format!("{}: {error}", path.display()));
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .and_then(count)
        .map_err(failed)
}

/// Nothing is archived where the file at `path` is to follow, or does.
fn nothing_at(archive: &str, path: &Path) -> Error {
    let mut message = format!(
        "there is nothing at {archive}: check that the store is mounted and a primary has begun"
    );
    if place::record_of(path).exists() {
        let (path, beside) = (path.display(), directory_of(path));
        let beside = beside.display();
        message +=
            &format!("; if a new archive is to begin here, move {path} and {beside} away first");
    }
    Error::new(ErrorKind::NotFound, message)
}

/// Whether the file at `path` follows an archive, or did when it was closed last. One that a kill
/// left with both records is a primary's: promoting it writes that one first, and a former primary
/// that rejoins begins again.
pub fn follows(path: &Path) -> bool {
    let position = Position::read(&directory_of(path));
    let is_primary = position.is_ok_and(|it| it.is_some_and(|it| it.epoch > Epoch(0)));
    !is_primary && place::record_of(path).exists()
}

/// How a file is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It was the last primary's by the leader record, so that it goes on when it is opened with
    /// the archive; or nothing is archived there yet, and it does not follow.
    Leads,
    /// With [`Archive::follow`].
    Follows,
    /// It was a primary's, and one of this epoch took over that has not said yet where it begins:
    /// try again.
    Unclear(Epoch),
}

/// Whose turn it is by the leader record, as the file at `path` sees it.
///
/// # Errors
/// Those of a request, and of the record beside the file.
pub fn turn(archive: &Archive, path: &Path) -> Result<Turn> {
    let Some(record) = archive.leader()? else {
        return Ok(if follows(path) { Turn::Follows } else { Turn::Leads });
    };
    let position = Position::read(&directory_of(path))?;
    let Some(position) = position.filter(|it| it.epoch > Epoch(0) && path.exists()) else {
        return Ok(Turn::Follows);
    };
    if position.is_held_by(&record) {
        return Ok(Turn::Leads);
    }
    let is_unclear =
        successor(&record, &position, path).is_err_and(|error| error.kind() == ErrorKind::Lost);
    Ok(if is_unclear { Turn::Unclear(record.epoch) } else { Turn::Follows })
}

/// The size of the pages of the database at `path`, which is not open.
fn page_size_of(path: &Path) -> Result<PageSize> {
    let mut bytes = [0; 2];
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(16))?;
        file.read_exact(&mut bytes)
    });
    read.map_err(|error| Error::of_io(format!("read {}", path.display()), error))?;
    let size = u32::from(u16::from_be_bytes(bytes));
    PageSize::new(if size == 1 { 65_536 } else { size })
        .map_err(|error| Error::of_ltx(path.display(), error))
}

/// As an error of the engine.
fn of(error: Error) -> monolite::Error {
    refusal(error).into()
}

/// As [`of`], of an error of a beginning: what is refused is a file, and not the archive.
fn of_file(error: Error) -> monolite::Error {
    if error.kind() == ErrorKind::Invalid {
        return Refusal { kind: Kind::Invalid, message: error.to_string() }.into();
    }
    of(error)
}

fn late(token: ArchiveToken, limit: Duration, stats: &FollowerStats) -> monolite::Error {
    let why = stats.last_error.as_ref().map_or(String::new(), |error| format!("; {error}"));
    let message = format!(
        "the follower has not reached {token} within {limit:.1?}: it has TXID {:016x}{why}",
        stats.txid
    );
    Refusal { kind: Kind::Timeout, message }.into()
}
