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

use monolite::{Database, Options};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use crate::hrana::ProtocolError;
use crate::life::Entered;

/// How long an unused database stays open.
const IDLE: Duration = Duration::from_secs(300);

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

pub(crate) struct Databases {
    data: Data,
    places: Mutex<HashMap<String, Arc<Place>>>,
}

/// A database, if it is open. A user has the lock to read, and what opens or closes it to write.
struct Place {
    path: PathBuf,
    database: Arc<RwLock<Option<Database>>>,
    last_use: Mutex<Instant>,
}

/// A database that stays open while this is held.
pub(crate) struct InUse {
    pub(crate) name: String,
    guard: OwnedRwLockReadGuard<Option<Database>, Database>,
    #[expect(dead_code, reason = "it is held")]
    entered: Entered,
}

impl InUse {
    pub(crate) fn database(&self) -> &Database {
        &self.guard
    }
}

impl Databases {
    pub(crate) fn new(data: Data) -> Databases {
        Databases { data, places: Mutex::default() }
    }

    /// The database `name`, or the only one, opened if it is not.
    pub(crate) async fn get(
        &self,
        name: Option<&str>,
        entered: Entered,
    ) -> Result<InUse, ProtocolError> {
        let (name, path) = self.path_of(name)?;
        let place = self.place(&name, &path)?;
        loop {
            let guard = Arc::clone(&place.database).read_owned().await;
            *lock(&place.last_use) = Instant::now();
            if let Ok(guard) = OwnedRwLockReadGuard::try_map(guard, Option::as_ref) {
                return Ok(InUse { name, guard, entered });
            }
            let mut closed = Arc::clone(&place.database).write_owned().await;
            if closed.is_none() {
                *closed = Some(self.open(&path).await?);
            }
        }
    }

    async fn open(&self, path: &Path) -> Result<Database, ProtocolError> {
        let (path, is_created) = (path.to_owned(), matches!(self.data, Data::File(_)));
        let shown = path.clone();
        let opened = tokio::task::spawn_blocking(move || {
            if !is_created && !path.exists() {
                return Err(None);
            }
            Options::new().wal_limit_bytes(WAL_LIMIT).open(&path).map_err(Some)
        });
        match opened.await {
            Ok(Ok(database)) => Ok(database),
            Ok(Err(Some(error))) => Err(not_opened(&shown, &error)),
            Ok(Err(None)) => Err(unknown()),
            Err(_) => Err(ProtocolError::new("INTERNAL", "the opening ended with a panic")),
        }
    }

    fn place(&self, name: &str, path: &Path) -> Result<Arc<Place>, ProtocolError> {
        let places = lock(&self.places);
        if let Some(place) = places.get(name) {
            return Ok(Arc::clone(place));
        }
        if matches!(self.data, Data::Directory(_)) && !path.exists() {
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
    pub(crate) fn open_now(&self) -> Vec<(String, PathBuf, Database)> {
        let places = lock(&self.places);
        let open = |(name, place): (&String, &Arc<Place>)| {
            let database = place.database.try_read().ok()?;
            Some((name.clone(), place.path.clone(), database.as_ref()?.clone()))
        };
        let mut all: Vec<_> = places.iter().filter_map(open).collect();
        all.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        all
    }

    /// The names of all databases.
    pub(crate) fn list(&self) -> Result<Vec<String>, ProtocolError> {
        let Data::Directory(directory) = &self.data else { return Ok(vec![ONLY.to_owned()]) };
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.strip_suffix(".db").filter(|name| is_name(name)).map(str::to_owned)
        };
        let entries =
            std::fs::read_dir(directory).map_err(|error| not_opened(directory, &error))?;
        let mut names: Vec<String> = entries.filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    /// Creates the database `name`, which is empty.
    pub(crate) async fn create(&self, name: &str) -> Result<(), ProtocolError> {
        let (name, path) = self.path_in_directory(name)?;
        let exists =
            || ProtocolError::new("DATABASE_EXISTS", format!("there is a database {name}"));
        let place = self.place_at(&name, &path);
        let mut open = Arc::clone(&place.database).write_owned().await;
        let file = std::fs::File::create_new(&path);
        file.map(drop).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => exists(),
            _ => not_opened(&path, &error),
        })?;
        *open = Some(self.open(&path).await?);
        Ok(())
    }

    /// Deletes the database `name` and its files. It must not be in use.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), ProtocolError> {
        let (name, path) = self.path_in_directory(name)?;
        let place = self.place(&name, &path)?;
        let Ok(mut open) = Arc::clone(&place.database).try_write_owned() else {
            let message = format!("{name} is in use; end its connections and streams first");
            return Err(ProtocolError::new("DATABASE_IN_USE", message));
        };
        if !path.exists() {
            return Err(unknown());
        }
        let database = open.take();
        let deleted = tokio::task::spawn_blocking(move || {
            database.map_or(Ok(()), |database| database.close()).map_err(|it| it.to_string())?;
            // The file last: without it, there is no database.
            for ending in ["-wal", "-shm", ""] {
                let mut file = path.clone().into_os_string();
                file.push(ending);
                match std::fs::remove_file(&file) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(format!("{}: {error}", file.to_string_lossy()));
                    }
                    _ => {}
                }
            }
            Ok(())
        });
        let deleted = deleted.await.unwrap_or_else(|_| Err("the deletion panicked".into()));
        deleted.map_err(|message| ProtocolError::new("DATABASE_NOT_DELETED", message))?;
        // Its place stays: others may wait for it, and two places would be two openings.
        Ok(())
    }

    fn path_in_directory(&self, name: &str) -> Result<(String, PathBuf), ProtocolError> {
        if matches!(self.data, Data::File(_)) {
            let message = "the server has one file; serve a directory to create databases in";
            return Err(ProtocolError::new("BLOCKED", message));
        }
        self.path_of(Some(name))
    }

    /// Closes the databases that have not been used for a while.
    pub(crate) async fn close_idle(&self) {
        self.close_unused_for(IDLE).await;
    }

    /// Copies the WAL of each into its file, so that little is left for its close.
    pub(crate) async fn checkpoint_all(&self) {
        for (_, path, database) in self.open_now() {
            let done = tokio::task::spawn_blocking(move || database.checkpoint().wait()).await;
            if let Ok(Err(error)) = done {
                crate::log::error(&format!("{}: {error}", path.display()));
            }
        }
    }

    /// Opens the database, if there is only one.
    pub(crate) async fn open_only(&self, entered: Entered) -> Result<(), ProtocolError> {
        match &self.data {
            Data::File(_) => self.get(None, entered).await.map(drop),
            Data::Directory(_) => Ok(()),
        }
    }

    /// Closes those that are open and not in use.
    pub(crate) async fn close_all(&self) {
        self.close_unused_for(Duration::ZERO).await;
    }

    async fn close_unused_for(&self, time: Duration) {
        let all: Vec<_> = lock(&self.places).values().cloned().collect();
        for place in all {
            if lock(&place.last_use).elapsed() < time {
                continue;
            }
            let Ok(mut open) = Arc::clone(&place.database).try_write_owned() else { continue };
            if let Some(database) = open.take() {
                let closed = tokio::task::spawn_blocking(move || database.close()).await;
                if let Ok(Err(error)) = closed {
                    crate::log::error(&format!("{}: {error}", place.path.display()));
                }
            }
        }
    }
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

fn unknown() -> ProtocolError {
    ProtocolError::new("DATABASE_NOT_FOUND", "the server has no database of that name")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
