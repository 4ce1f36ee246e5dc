//! Owns which databases there are, and which of them are open: a database opens on its first use,
//! and closes when it has not been used for a while.
//!
//! # Invariants
//! A name of a client is never part of a path before it was found to be one: `a` to `z`, `0` to
//! `9` and `-`, 63 at most.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::header::HeaderValue;
use monolite::archive::{ArchiveStats, names};
use monolite::{Database, Durability, Options};
use monolite_archive::internals::{Turn, follows, may_lack, turn};
use monolite_archive::{Archive, ErrorKind, Follower, Restored, Target, Timestamp};
use serde::Serialize;
use tokio::sync::{OwnedRwLockReadGuard, RwLock, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::archives::ArchiveConfig;
use crate::hrana::ProtocolError;
use crate::life::{DRAIN, Entered, Life, Phase};
use crate::replicas::{ASKING, FollowConfig, Replica, followed, not_primary, unclear, written};

/// The largest value or row. An answer is smaller, but a statement has values in between.
const VALUE_BYTES: u64 = 64 << 20;

/// The most bytes in use in a WAL: the engine's default.
pub(crate) const WAL_LIMIT: u64 = 1 << 30;

/// The name of the database where the server has one file.
pub(crate) const ONLY: &str = "default";

/// Where the databases are.
#[derive(Clone, Debug)]
pub enum Data {
    /// One database: this file, created if it is not there.
    File(PathBuf),
    /// Each `name.db` of this directory, by its name.
    Directory(PathBuf),
}

/// A database that there is.
#[derive(Serialize)]
pub(crate) struct Listed {
    name: String,
    /// Of its file.
    bytes: u64,
    is_open: bool,
}

pub(crate) struct Databases {
    data: Data,
    archive: Option<ArchiveConfig>,
    /// Instead of an archive of its own, or in turn.
    follow: Option<FollowConfig>,
    /// Places for requests that ask the store of what is followed.
    pub(crate) asking: Arc<Semaphore>,
    places: Mutex<HashMap<String, Arc<Place>>>,
}

/// A database, if it is open. A user has the lock to read, and what opens or closes it to write.
struct Place {
    path: PathBuf,
    database: Arc<RwLock<Option<Open>>>,
    last_use: Mutex<Instant>,
}

/// An open database.
enum Open {
    Primary(Database),
    Replica(Follower),
}

impl Open {
    fn database(&self) -> &Database {
        match self {
            Open::Primary(database) => database,
            Open::Replica(follower) => follower.database(),
        }
    }

    fn close(self) -> monolite::Result<()> {
        match self {
            Open::Primary(database) => database.close(),
            Open::Replica(follower) => follower.close(),
        }
    }
}

/// A database that is open now.
pub(crate) struct OpenNow {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) database: Database,
    /// If it follows.
    pub(crate) replica: Option<Replica>,
    /// Where its primary is, if it is not that; empty where that is not known.
    pub(crate) elsewhere: Option<String>,
}

/// Where the primary is, as one of the databases knows; empty if none does.
pub(crate) fn primary_of(open: &[OpenNow]) -> &str {
    let mut all = open.iter().filter_map(|open| open.elsewhere.as_deref());
    all.find(|primary| !primary.is_empty()).unwrap_or_default()
}

/// A database that stays open while this is held.
pub(crate) struct InUse {
    pub(crate) name: String,
    place: Arc<Place>,
    guard: OwnedRwLockReadGuard<Option<Open>, Open>,
    /// Of its own.
    pub(crate) has_archive: bool,
    #[expect(dead_code, reason = "it is held")]
    entered: Option<Entered>,
}

impl InUse {
    pub(crate) fn database(&self) -> &Database {
        self.guard.database()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.place.path
    }

    /// The token of what was written, if it has an archive of its own.
    pub(crate) async fn written(&self) -> Option<HeaderValue> {
        if self.has_archive { Some(written(self.database().clone()).await) } else { None }
    }

    pub(crate) fn follower(&self) -> Option<&Follower> {
        match &*self.guard {
            Open::Primary(_) => None,
            Open::Replica(follower) => Some(follower),
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        *lock(&self.place.last_use) = Instant::now();
    }
}

impl Databases {
    pub(crate) fn new(data: Data, archive: Option<ArchiveConfig>) -> Databases {
        let asking = Arc::new(Semaphore::new(ASKING));
        let follow = archive.as_ref().filter(|archive| archive.takeover);
        let follow = follow.map(|archive| FollowConfig::of(&archive.url));
        Databases { data, archive, follow, asking, places: Mutex::default() }
    }

    /// The same, as replicas of an archive.
    pub(crate) fn following(self, follow: Option<FollowConfig>) -> Databases {
        Databases { follow: follow.or(self.follow), ..self }
    }

    /// Sees that there is a database `name`. One that would follow an archive may be.
    pub(crate) fn must_have(&self, name: &str) -> Result<(), ProtocolError> {
        let (_, path) = self.path_of(Some(name))?;
        let may_be = self.follow() || !self.is_of_several() || path.exists();
        if may_be { Ok(()) } else { Err(unknown()) }
    }

    /// Whether they follow an archive.
    pub(crate) fn follow(&self) -> bool {
        self.follow.is_some()
    }

    /// Whether what is written is archived.
    pub(crate) fn has_archives(&self) -> bool {
        self.archive.is_some()
    }

    /// Whether the only one is the primary's or follows, in turn with those of other servers.
    pub(crate) fn has_turns(&self) -> bool {
        self.archive.as_ref().is_some_and(|archive| archive.takeover)
    }

    /// How long a commit may wait for its archive, if that was said.
    pub(crate) fn lag_limit(&self) -> Option<Duration> {
        self.archive.as_ref().and_then(ArchiveConfig::lag_limit)
    }

    /// The database `name`, or the only one, opened if it is not.
    pub(crate) async fn get(
        &self,
        name: Option<&str>,
        mut entered: Option<Entered>,
    ) -> Result<InUse, ProtocolError> {
        let (name, path) = self.path_of(name)?;
        let mut place = self.place(&name, &path);
        if place.is_err() && self.is_followed(&name).await? {
            place = Ok(self.place_at(&name, &path));
        }
        let place = place?;
        loop {
            let guard = Arc::clone(&place.database).read_owned().await;
            if let Ok(guard) = OwnedRwLockReadGuard::try_map(guard, Option::as_ref) {
                let is_primary = matches!(*guard, Open::Primary(_));
                let has_archive = is_primary && self.archive.is_some();
                return Ok(InUse { name, place, guard, has_archive, entered });
            }
            let mut closed = Arc::clone(&place.database).write_owned().await;
            if closed.is_none() {
                let open = self.opening(&name, &path);
                entered = blocking(move || {
                    let opened = open().map(|database| *closed = Some(database));
                    drop(closed);
                    opened.map(|()| entered)
                })
                .await?;
            }
        }
    }

    /// What opens a database. It runs by [`blocking`], together with the lock.
    fn opening(
        &self,
        name: &str,
        path: &Path,
    ) -> impl FnOnce() -> Result<Open, ProtocolError> + Send + use<> {
        let (path, archive, follow) = (path.to_owned(), self.archive.clone(), self.follow.clone());
        let name = self.is_of_several().then(|| name.to_owned());
        move || {
            let options = Options::new().wal_limit_bytes(WAL_LIMIT).value_limit_bytes(VALUE_BYTES);
            let turns = archive.as_ref().filter(|archive| archive.takeover);
            if let Some(turns) = turns {
                let failed = |error: &dyn std::fmt::Display| not_opened(&path, error);
                let archive = turns.of(None).map_err(|error| failed(&error))?;
                match turn(&archive, &path).map_err(|error| failed(&error))? {
                    Turn::Leads => {}
                    Turn::Follows => {
                        let follower = followed(&archive, options, &path);
                        return follower.map(Open::Replica).map_err(|error| failed(&error));
                    }
                    // Those who try again tell the operator, once.
                    Turn::Unclear(epoch) => return Err(unclear(epoch)),
                }
            } else if let Some(follow) = follow {
                let follower = follow.open(name.as_deref(), options, &path);
                return follower.map(Open::Replica).map_err(|error| not_opened(&path, &error));
            }
            if follows(&path) {
                return Err(not_opened(&path, &"it is a replica's; serve it with [follow]"));
            }
            if !path.exists() {
                if name.is_some() {
                    return Err(unknown());
                }
                // It is created, unless it was lost.
                let free = archive.iter().try_for_each(|archive| archive.must_be_free(None));
                free.map_err(|error| not_opened(&path, &error.message))?;
            }
            let durability = archive.as_ref().map(ArchiveConfig::durability);
            let options = options.durability(durability.unwrap_or(Durability::Synced));
            let options = match archive.map(|archive| archive.of(name.as_deref())).transpose() {
                Ok(Some(archive)) => options.archive(archive),
                Ok(None) => options,
                Err(error) => return Err(not_opened(&path, &error)),
            };
            options.open(&path).map(Open::Primary).map_err(|error| not_opened(&path, &error))
        }
    }

    /// Whether there is an archive of `name` to be followed, though it has no file yet.
    async fn is_followed(&self, name: &str) -> Result<bool, ProtocolError> {
        let Some(follow) = &self.follow else { return Ok(false) };
        let asking = Arc::clone(&self.asking).acquire_owned().await;
        let (archive, url) = (follow.archive(), follow.archive().url_of(Some(name)));
        let name = name.to_owned();
        blocking(move || {
            let _asking = asking;
            let leader = archive.of(Some(&name)).and_then(|archive| archive.leader());
            leader.map(|leader| leader.is_some()).map_err(|error| not_opened(url.as_ref(), &error))
        })
        .await
    }

    fn is_of_several(&self) -> bool {
        matches!(self.data, Data::Directory(_))
    }

    fn place(&self, name: &str, path: &Path) -> Result<Arc<Place>, ProtocolError> {
        let places = lock(&self.places);
        if let Some(place) = places.get(name) {
            return Ok(Arc::clone(place));
        }
        if self.is_of_several() && !path.exists() {
            return Err(unknown());
        }
        drop(places);
        Ok(self.place_at(name, path))
    }

    /// The place of a database, whether it is there or not.
    fn place_at(&self, name: &str, path: &Path) -> Arc<Place> {
        let mut places = lock(&self.places);
        let place = || {
            Arc::new(Place {
                path: path.to_owned(),
                database: Arc::default(),
                last_use: Mutex::new(Instant::now()),
            })
        };
        Arc::clone(places.entry(name.to_owned()).or_insert_with(place))
    }

    fn path_of(&self, name: Option<&str>) -> Result<(String, PathBuf), ProtocolError> {
        match (&self.data, name) {
            (Data::File(path), None | Some(ONLY)) => Ok((ONLY.to_owned(), path.clone())),
            (Data::Directory(directory), Some(name)) if is_name(name) => {
                Ok((name.to_owned(), directory.join(format!("{name}.db"))))
            }
            (Data::Directory(_), None) => Err(ProtocolError::new(
                "DATABASE_NOT_NAMED",
                "the server has several databases; name one by the path /db/NAME/",
            )),
            _ => Err(unknown()),
        }
    }

    /// The databases that are open now, with their names and files.
    pub(crate) fn open_now(&self) -> Vec<OpenNow> {
        let places = lock(&self.places);
        let open = |(name, place): (&String, &Arc<Place>)| {
            let open = place.database.try_read().ok()?;
            let open = open.as_ref()?;
            let replica = match open {
                Open::Primary(_) => None,
                Open::Replica(follower) => Some(Replica::of(follower, self.follow.as_ref()?)),
            };
            let elsewhere = match &replica {
                Some(replica) => Some(replica.stats.primary.clone()),
                None => open.database().stats().archive.and_then(|archive| {
                    // Without a term it does not know of its successor.
                    let may_have = archive.epoch == 0 && self.has_turns();
                    archive.successor.or(may_have.then(String::new))
                }),
            };
            let (name, path) = (name.clone(), place.path.clone());
            Some(OpenNow { name, path, database: open.database().clone(), replica, elsewhere })
        };
        let mut all: Vec<_> = places.iter().filter_map(open).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// All databases, by name.
    pub(crate) fn list(&self) -> Result<Vec<Listed>, ProtocolError> {
        let open = self.open_now();
        let listed = |name: String, path: &Path| {
            let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
            let is_open = open.iter().any(|open| open.name == name);
            Listed { name, bytes, is_open }
        };
        let directory = match &self.data {
            Data::File(path) => return Ok(vec![listed(ONLY.to_owned(), path)]),
            Data::Directory(directory) => directory,
        };
        let of_entry = |entry: std::io::Result<std::fs::DirEntry>| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let name = name.strip_suffix(".db").filter(|name| is_name(name))?;
            Some(listed(name.to_owned(), &entry.path()))
        };
        let entries =
            std::fs::read_dir(directory).map_err(|error| not_opened(directory, &error))?;
        let mut all: Vec<Listed> = entries.filter_map(of_entry).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    /// Creates the database `name`, which is empty.
    pub(crate) async fn create(&self, name: &str, entered: Entered) -> Result<(), ProtocolError> {
        let (name, path) = self.path_in_directory(name)?;
        if path.exists() {
            return Err(exists(&name));
        }
        let place = self.place_at(&name, &path);
        let mut open = Arc::clone(&place.database).write_owned().await;
        let (archive, opening) = (self.archive.clone(), self.opening(&name, &path));
        blocking(move || {
            let _entered = entered;
            must_be_new(archive.as_ref(), &name, &path)?;
            let file = std::fs::File::create_new(&path);
            file.map_err(|error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => exists(&name),
                _ => not_opened(&path, &error),
            })?;
            let opened = opening().map(|database| *open = Some(database));
            if opened.is_err() {
                // It never was there; what is left of it would be in the way of the next attempt.
                remove(&path)?;
            }
            drop(open);
            opened
        })
        .await
    }

    /// Makes the database `to` of what `from` is now, or was just before `time`, which its archive
    /// knows. One that was deleted is in its archive, too. `None` if the archive was not read.
    ///
    /// `to` is whole when it has its name; a fork that is interrupted leaves no database.
    pub(crate) async fn fork(
        &self,
        from: &str,
        to: &str,
        time: Option<Timestamp>,
    ) -> Result<Option<Restored>, ProtocolError> {
        let (from, _) = self.path_in_directory(from)?;
        let (to, path) = self.path_in_directory(to)?;
        // Otherwise it would wait for those who use it, or for itself.
        if from == to || path.exists() {
            return Err(exists(&to));
        }
        let place = self.place_at(&to, &path);
        // Until it is whole its users wait, and no hand-over is made.
        let mut open = Arc::clone(&place.database).write_owned().await;
        blocking({
            let (archive, to, path) = (self.archive.clone(), to.clone(), path.clone());
            move || must_be_new(archive.as_ref(), &to, &path)
        })
        .await?;
        let source = match self.get(Some(&from), None).await {
            Err(error) if error.code != "DATABASE_NOT_FOUND" || self.archive.is_none() => {
                return Err(error);
            }
            source => source.ok(),
        };
        let (archive, opening) = (self.archive.clone(), self.opening(&to, &path));
        blocking(move || {
            let archive = archive.map(|archive| archive.of(Some(&from)));
            let restored = fork_to(&path, source, archive, time).map_err(|error| {
                let lacks = error.downcast_ref().is_some_and(|error: &monolite_archive::Error| {
                    error.kind() == ErrorKind::NotFound
                });
                let code = if lacks { "NOT_FOUND" } else { "DATABASE_NOT_FORKED" };
                ProtocolError::new(code, format!("{from}: {error}"))
            })?;
            // From here on it is archived, too.
            *open = Some(opening()?);
            Ok(restored)
        })
        .await
    }

    /// Deletes the database `name` and its files, but for its archive. It must not be in use.
    pub(crate) async fn delete(&self, name: &str, entered: Entered) -> Result<(), ProtocolError> {
        let (name, path) = self.path_in_directory(name)?;
        let place = self.place(&name, &path)?;
        let Ok(mut open) = Arc::clone(&place.database).try_write_owned() else {
            let message = format!("{name} is in use; end its connections and streams first");
            return Err(ProtocolError::new("DATABASE_IN_USE", message));
        };
        if !path.exists() {
            return Err(unknown());
        }
        // Its place stays: others may wait for it, and two places would be two openings.
        blocking(move || {
            let _entered = entered;
            let closed = open.take().map_or(Ok(()), Open::close);
            let closed = closed.map_err(|error| not_deleted(error.to_string()));
            let removed = closed.and_then(|()| remove(&path));
            drop(open);
            removed
        })
        .await
    }

    fn path_in_directory(&self, name: &str) -> Result<(String, PathBuf), ProtocolError> {
        if matches!(self.data, Data::File(_)) {
            let message = "the server has one file; serve a directory to create databases in";
            return Err(ProtocolError::new("BLOCKED", message));
        }
        if self.follow() {
            return Err(not_primary(primary_of(&self.open_now())));
        }
        self.path_of(Some(name))
    }

    /// Opens the databases whose archives lack something, as after a crash, one after the other.
    pub(crate) async fn catch_up(&self, life: &Life) {
        let all = if self.archive.is_some() { self.list() } else { Ok(Vec::new()) };
        for Listed { name, .. } in all.unwrap_or_default() {
            let Ok((name, path)) = self.path_of(Some(&name)) else { continue };
            // What cannot be told is told by the opening.
            if path.exists() && may_lack(&path).unwrap_or(true) {
                let Ok(entered) = life.enter(Phase::Moved).await else { return };
                let _ = self.get(Some(&name), Some(entered)).await;
            }
        }
    }

    /// Closes those of several databases that have not been used for so long, unless their archives
    /// lack something: closed, they would be seen no more.
    pub(crate) fn close_idle(&self, time: Duration) {
        if !self.is_of_several() {
            return;
        }
        // When that is closed, another machine takes over.
        let has_lease = self.archive.as_ref().is_some_and(|it| it.lease_seconds.is_some());
        let may = |open: &Open| match open {
            Open::Primary(_) if has_lease => false,
            Open::Primary(db) => db.stats().archive.is_none_or(|archive| archive.lag_ms == 0),
            Open::Replica(_) => true,
        };
        self.close_unused(time, may).detach_all();
    }

    /// Copies the WAL of each into its file, so that little is left for its close.
    pub(crate) async fn checkpoint_all(&self) {
        for OpenNow { path, database, .. } in self.open_now() {
            let done = tokio::task::spawn_blocking(move || database.checkpoint().wait()).await;
            if let Ok(Err(error)) = done {
                crate::log::error(&format!("{}: {error}", path.display()));
            }
        }
    }

    /// Opens the database, if there is only one.
    pub(crate) async fn open_only(&self, entered: Entered) -> Result<(), ProtocolError> {
        match &self.data {
            Data::File(_) => self.get(None, Some(entered)).await.map(drop),
            Data::Directory(_) => Ok(()),
        }
    }

    /// The only one, if it is open and follows: it is not open from then on.
    pub(crate) async fn take_follower(&self) -> Option<Follower> {
        let place = lock(&self.places).get(ONLY).cloned()?;
        let mut open = Arc::clone(&place.database).write_owned().await;
        match open.take()? {
            Open::Replica(follower) => Some(follower),
            primary => {
                *open = Some(primary);
                None
            }
        }
    }

    /// Closes those that are open and not in use.
    pub(crate) async fn close_all(&self) {
        let mut closing = self.close_unused(Duration::ZERO, |_| true);
        while closing.join_next().await.is_some() {}
    }

    /// The file of a database that is open, opens or closes. Behind [`Databases::close_all`], a
    /// fork reads or makes it, a call in it does not return, or it was about to close.
    pub(crate) fn still_open(&self) -> Option<PathBuf> {
        let is_open = |place: &Place| !place.database.try_read().is_ok_and(|open| open.is_none());
        let found = lock(&self.places).values().find(|place| is_open(place)).cloned();
        found.map(|place| place.path.clone())
    }

    /// Why another process could not open what is open here, if the store of its archive is away:
    /// an opening asks it. So it is asked before anything is closed.
    pub(crate) async fn away_archive(&self) -> Option<String> {
        let config = self.archive.as_ref()?;
        let open = self.open_now();
        let told = |path: &Path, error: String| {
            format!("the archive of {} is away; try again later: {error}", path.display())
        };
        for OpenNow { path, database, .. } in &open {
            let stats = database.stats().archive?;
            if let Some(error) = stats.last_error.filter(|_| stats.lag_ms > 0) {
                return Some(told(path, error));
            }
        }
        // Where nothing is written, nothing has failed. One store has all archives.
        let OpenNow { name, path, database, .. } = open.into_iter().next()?;
        let has_begun = database.stats().archive?.epoch > 0;
        let (config, name) = (config.clone(), self.is_of_several().then_some(name));
        let asks = tokio::task::spawn_blocking(move || {
            match config.of(name.as_deref()).and_then(|archive| archive.leader()) {
                Ok(None) if has_begun => Err("its leader record is missing".to_owned()),
                asked => asked.map(drop).map_err(|error| error.to_string()),
            }
        });
        let error = match timeout(DRAIN, asks).await {
            Ok(Ok(Ok(()))) => return None,
            Ok(Ok(Err(error))) => error,
            Ok(Err(panicked)) => panicked.to_string(),
            Err(late) => late.to_string(),
        };
        Some(told(&path, error))
    }

    /// Closes them at once: each waits for its archive.
    fn close_unused(&self, time: Duration, may: impl Fn(&Open) -> bool) -> JoinSet<()> {
        let mut closing = JoinSet::new();
        for place in lock(&self.places).values() {
            if lock(&place.last_use).elapsed() < time {
                continue;
            }
            let Ok(mut open) = Arc::clone(&place.database).try_write_owned() else { continue };
            if let Some(closes) = open.take_if(|open| may(open)) {
                let path = place.path.clone();
                closing.spawn_blocking(move || {
                    let database = closes.database().clone();
                    let closed = closes.close();
                    if let Err(error) = &closed {
                        crate::log::error(&format!("{}: {error}", path.display()));
                    }
                    let lags =
                        |archive: &ArchiveStats| archive.lag_ms > 0 && archive.successor.is_none();
                    if database.stats().archive.as_ref().is_some_and(lags) {
                        crate::log::error(&format!(
                            "{}: closed with commits that are not archived: a server that takes \
                             over lacks them; they are uploaded when this file is opened again, \
                             unless one has",
                            path.display()
                        ));
                    }
                    if !is_late(&closed) {
                        return;
                    }
                    // A call does not return, so the file is locked still: it counts as open.
                    tokio::task::spawn_blocking(move || {
                        while is_late(&database.close()) {}
                        drop(open);
                    });
                });
            }
        }
        closing
    }
}

/// Whether a close has not ended yet.
fn is_late(closed: &monolite::Result<()>) -> bool {
    closed.as_ref().is_err_and(|error| error.kind() == monolite::ErrorKind::Timeout)
}

/// Makes the file at `path` of a database, or of what its archive has.
fn fork_to(
    path: &Path,
    source: Option<InUse>,
    archive: Option<monolite_archive::Result<Archive>>,
    time: Option<Timestamp>,
) -> Result<Option<Restored>, Box<dyn std::error::Error>> {
    if let (Some(source), None) = (&source, time) {
        source.database().backup(path).wait()?;
        return Ok(None);
    }
    let archive =
        archive.ok_or("its past would be in an archive, and it has none; set [archive]")??;
    // What the archive lacks could be of before the time.
    if let Some(source) = source {
        source.database().read_archived(|_| Ok(())).wait()?;
    }
    let target = time.map_or(Target::Latest, Target::Before);
    Ok(Some(archive.restore(target, path)?))
}

/// Removes the files of a closed database, but for its archive.
fn remove(path: &Path) -> Result<(), ProtocolError> {
    // The file last: without it, there is no database.
    for ending in [names::ARCHIVE, "-wal", "-shm", ""] {
        let file = names::with_ending(path, ending);
        let removed = match ending {
            names::ARCHIVE => std::fs::remove_dir_all(&file),
            _ => std::fs::remove_file(&file),
        };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(not_deleted(format!("{}: {error}", file.display())));
            }
            _ => {}
        }
    }
    Ok(())
}

fn not_deleted(message: String) -> ProtocolError {
    ProtocolError::new("DATABASE_NOT_DELETED", message)
}

/// Sees that there is no database `name`, and that its archive has none.
fn must_be_new(
    archive: Option<&ArchiveConfig>,
    name: &str,
    path: &Path,
) -> Result<(), ProtocolError> {
    if path.exists() {
        return Err(exists(name));
    }
    archive.map_or(Ok(()), |archive| archive.must_be_free(Some(name)))
}

/// Runs what waits for a disk or an archive. It goes on when the client leaves, so it holds the
/// lock of what it changes: another request must find that whole.
pub(crate) async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, ProtocolError> + Send + 'static,
) -> Result<T, ProtocolError> {
    let panicked = |_| Err(ProtocolError::new("INTERNAL", "the operation ended with a panic"));
    tokio::task::spawn_blocking(run).await.unwrap_or_else(panicked)
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(fits)
}

/// The operator is told why, and where; a client is not told of the server's paths.
fn not_opened(path: &Path, error: &dyn std::fmt::Display) -> ProtocolError {
    crate::log::error(&format!("{}: {error}", path.display()));
    let message = "the database cannot be opened; the server's log says why";
    ProtocolError::new("DATABASE_NOT_OPENED", message)
}

fn exists(name: &str) -> ProtocolError {
    ProtocolError::new("DATABASE_EXISTS", format!("there is a database {name}"))
}

fn unknown() -> ProtocolError {
    ProtocolError::new("DATABASE_NOT_FOUND", "the server has no database of that name")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
impl Databases {
    /// Keeps the database `name` as a fork does that makes it.
    pub(crate) async fn forked(&self, name: &str) -> impl Sized + use<> {
        let place = self.place(name, &self.path_of(Some(name)).expect("a name").1).expect("a file");
        Arc::clone(&place.database).write_owned().await
    }
}

#[cfg(test)]
mod tests;
