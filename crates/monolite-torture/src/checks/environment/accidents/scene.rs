//! Owns the scene of an accident: a database in a directory of its own, what was acknowledged,
//! what everybody was told, and what is there in the end.
//!
//! # Algorithm
//! A database is made, closed and copied (the backup); then it is opened again and written to, so
//! that some of it is in the file and some in the WAL. The accident happens at its moment. Whoever
//! uses the database is asked, it is closed, it is done what helps ([`Mend`]), and then it is
//! opened again as anybody would and looked at through plain SQLite.

pub(super) mod actor;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use monolite::vfs::{self, Direct, File, FileKind, LowerFile, Storage, SyncFlags};
use monolite::{Database, Error, Options};
use monolite_testkit::markers;
use monolite_testkit::storage::wal_beside;

use super::super::load::under_load;
use super::{Fate, When};
use crate::Setting;
use crate::checks::writing::{Look, judge};
use crate::checks::wrong::Wrong;
use actor::Actor;

/// The accident cannot be had on this machine.
#[derive(Debug)]
pub(super) struct CannotBe(pub(super) String);

impl fmt::Display for CannotBe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CannotBe {}

/// Before what is tried has to happen after the last write: the engine copies the WAL of a database
/// that was idle for half a second.
const SOON: Duration = Duration::from_millis(400);

/// What is in the backup and the file, in the file, in the WAL, and what is written after the
/// accident.
const BEFORE_BACKUP: RangeInclusive<i64> = 1..=20;
const AFTER_BACKUP: RangeInclusive<i64> = 21..=40;
pub(super) const IN_WAL: RangeInclusive<i64> = 41..=60;
const AFTERWARDS: RangeInclusive<i64> = 61..=63;
const UNDER_LOAD: i64 = 1_000;
const AT_LAST: i64 = 1_000_000;

/// Bytes of each part of a transaction: all of them are some hundred pages.
const FILLING: usize = 2_000;

/// Transactions that are tried under load once the harm is done.
const MORE: usize = 50;

/// Where it happens.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The directory of the database, in that of the scene.
    pub(super) home: PathBuf,
    /// The database.
    pub(super) path: PathBuf,
}

impl Place {
    pub(super) fn wal(&self) -> PathBuf {
        wal_beside(&self.path)
    }

    pub(super) fn shm(&self) -> PathBuf {
        self.beside("-shm")
    }

    pub(super) fn backup(&self) -> PathBuf {
        self.beside("-backup")
    }

    /// A file in the same directory.
    pub(super) fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(ending);
        name.into()
    }
}

/// What happens to a file.
pub(super) type Act = fn(&Place) -> Result<()>;

/// What is done about it; returns where the database is then.
pub(super) type Remedy = fn(&Place) -> Result<PathBuf>;

/// What an accident is to a file.
#[derive(Clone, Copy)]
pub(super) struct FileTrial {
    pub(super) act: Act,
    pub(super) mend: Mend,
    pub(super) options: fn() -> Options,
}

/// What is done about it.
#[derive(Clone, Copy)]
pub(super) enum Mend {
    /// Nothing.
    Nothing,
    /// Something while the process still has the files open.
    BeforeTheClose(Remedy),
    /// Something afterwards.
    Afterwards(Remedy),
}

/// One accident that is being tried.
pub(super) struct Scene<'a> {
    pub(super) setting: &'a Setting<'a>,
    pub(super) place: Place,
    /// Where the database is in the end.
    pub(super) at: PathBuf,
    pub(super) acknowledged: BTreeSet<i64>,
    /// What was said by openings that were refused.
    pub(super) refusals: Vec<String>,
    /// What else anybody was told.
    pub(super) errors: Vec<String>,
    /// Why it cannot be tried here.
    pub(super) skipped: Option<String>,
    /// What is wrong in the end.
    found: Option<Result<(), Wrong>>,
    last_write: Cell<Option<Instant>>,
    is_late: Cell<bool>,
}

impl<'a> Scene<'a> {
    /// An empty one.
    pub(super) fn new(
        setting: &'a Setting<'a>,
        directory: &Path,
        number: u32,
    ) -> Result<Scene<'a>> {
        let home = directory.canonicalize()?.join(number.to_string()).join("home");
        fs::create_dir_all(&home)?;
        let path = home.join("db");
        Ok(Scene {
            setting,
            at: path.clone(),
            place: Place { home, path },
            acknowledged: BTreeSet::new(),
            refusals: Vec::new(),
            errors: Vec::new(),
            skipped: None,
            found: None,
            last_write: Cell::new(None),
            is_late: Cell::new(false),
        })
    }

    /// What the machine has given, or else notes that it cannot be tried here.
    pub(super) fn had<T>(&mut self, given: Result<T>, what: &str) -> Option<T> {
        given.map_err(|error| self.skipped = Some(format!("{what}: {error:#}"))).ok()
    }

    /// The path, as a child is told it.
    pub(super) fn file(&self) -> Result<&str> {
        self.place.path.to_str().context("the path is text")
    }

    /// Makes the database and its backup, and closes it.
    pub(super) fn make(&mut self, options: &Options) -> Result<()> {
        for (ids, is_last) in [(BEFORE_BACKUP, false), (AFTER_BACKUP, true)] {
            let db = options.clone().open(&self.place.path)?;
            markers::create(&db)?;
            self.put(&db, ids);
            db.close()?;
            if !is_last {
                fs::copy(&self.place.path, self.place.backup())?;
            }
        }
        Ok(())
    }

    /// A database that is open, with something in its WAL.
    pub(super) fn open(&mut self, options: &Options) -> Result<Database> {
        self.make(options)?;
        let db = options.clone().open(&self.place.path)?;
        self.put(&db, IN_WAL);
        Ok(db)
    }

    /// Leaves the database as a process does that is killed.
    pub(super) fn crash(&mut self, sharing: &str) -> Result<()> {
        let actor = Actor::with_a_wal(self, sharing)?;
        actor.kill()?;
        self.hurry();
        Ok(())
    }

    /// Writes transactions, all at once, and notes what came of them.
    pub(super) fn put(&mut self, db: &Database, ids: RangeInclusive<i64>) {
        self.note_write();
        let put = |id| (id, db.write(move |tx| markers::put_filled(tx, id, &[5; FILLING])));
        let writes: Vec<_> = ids.map(put).collect();
        for (id, write) in writes {
            match write.wait() {
                Ok(()) => _ = self.acknowledged.insert(id),
                Err(error) => self.told(&error),
            }
        }
    }

    /// Writes transactions one after another: each is tried when the one before has failed.
    pub(super) fn put_each(&mut self, db: &Database, ids: RangeInclusive<i64>) {
        ids.for_each(|id| self.put(db, id..=id));
    }

    /// From now on there is some time until the engine copies the WAL.
    pub(super) fn note_write(&self) {
        self.last_write.set(Some(Instant::now()));
    }

    /// What has to happen before the engine copies the WAL has happened.
    pub(super) fn hurry(&self) {
        if self.last_write.get().is_some_and(|at| at.elapsed() > SOON) {
            self.is_late.set(true);
        }
    }

    pub(super) fn took_too_long(&self) -> bool {
        self.is_late.get()
    }

    pub(super) fn told(&mut self, error: &Error) {
        self.errors.push(format!("{:?}: {error}", error.kind()));
    }

    pub(super) fn note(&mut self, result: Result<(), Error>) {
        if let Err(error) = result {
            self.told(&error);
        }
    }

    /// Notes what an opening came to; it must be refused, or is closed at once.
    pub(super) fn opened(&mut self, opened: Result<Database, Error>) {
        match opened {
            Ok(db) => self.note(db.close()),
            Err(error) => self.refused(&error),
        }
    }

    pub(super) fn refused(&mut self, error: &Error) {
        self.refusals.push(format!("{:?}: {error}", error.kind()));
    }

    /// Opens the database as anybody would, writes to it, and looks at what is there. What happens
    /// on a disk of its own does so before that is gone.
    pub(super) fn settle(&mut self) {
        if self.found.is_some() {
            return;
        }
        let last = || -> Result<()> {
            let db = Database::open(&self.at)?;
            markers::create(&db)?;
            db.write(|tx| markers::put_filled(tx, AT_LAST, &[])).wait()?;
            Ok(db.close()?)
        };
        let wrong = last().map_err(|error| {
            self.errors.push(format!("opened again: {error}"));
            let text = format!("nothing can be read: {error:#}");
            Wrong::Lost(self.acknowledged.len() as u64, text)
        });
        self.found = Some(wrong.and_then(|()| self.look()));
    }

    fn look(&self) -> Result<(), Wrong> {
        judge(&self.at, &self.acknowledged, Look::Thorough, true).map(drop)
    }

    /// How much of what was acknowledged is not there.
    pub(super) fn lost(&self) -> u64 {
        if let Some(Err(Wrong::Lost(count, _))) = self.found { count } else { 0 }
    }

    pub(super) fn fate(&self) -> Fate {
        let is_told = !self.errors.is_empty();
        match (self.found != Some(Ok(())), is_told, self.refusals.is_empty()) {
            (true, false, true) => Fate::Unseen,
            (true, _, _) => Fate::Lost,
            (false, true, _) => Fate::Detected,
            (false, false, false) => Fate::Refused,
            (false, false, true) => Fate::Survived,
        }
    }

    /// What was seen, in words.
    pub(super) fn account(&self) -> String {
        let found = match &self.found {
            Some(Ok(())) => "all of it there".into(),
            Some(Err(wrong)) => format!("{wrong:.200}"),
            None => "nobody looked".into(),
        };
        let (refusals, errors) = (&self.refusals, &self.errors);
        format!("{} acknowledged, {found}; refused {refusals:?}, told {errors:?}", {
            self.acknowledged.len()
        })
    }
}

impl FileTrial {
    /// Has the accident at its moment, and everything that follows.
    pub(super) fn run(self, scene: &mut Scene<'_>, when: When) -> Result<()> {
        let options = (self.options)();
        match when {
            When::Closed | When::Opening => scene.make(&options)?,
            When::Crashed => scene.crash("exclusive")?,
            When::Close => return self.during_the_close(scene, &options),
            When::Idle | When::Open | When::Load => return self.while_open(scene, when, &options),
        }
        if self.happens(scene)? {
            scene.hurry();
            self.opened(scene, &options)?;
            self.mended_afterwards(scene)?;
        }
        Ok(())
    }

    /// Has the accident; whether it could be had here.
    fn happens(self, scene: &mut Scene<'_>) -> Result<bool> {
        match (self.act)(&scene.place) {
            Ok(()) => Ok(true),
            Err(error) if error.is::<CannotBe>() => {
                scene.skipped = Some(error.to_string());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Somebody opens what was closed, and uses it.
    fn opened(self, scene: &mut Scene<'_>, options: &Options) -> Result<()> {
        match options.clone().open(&scene.place.path) {
            Err(error) => scene.refused(&error),
            Ok(db) => {
                // As a program does that creates what is missing.
                scene.note(markers::create(&db));
                read_all(scene, &db);
                scene.put_each(&db, AFTERWARDS);
                scene.note(db.close());
            }
        }
        Ok(())
    }

    fn while_open(self, scene: &mut Scene<'_>, when: When, options: &Options) -> Result<()> {
        let db = scene.open(options)?;
        let mut happened = Ok(true);
        if when == When::Load {
            let came = under_load(&db, UNDER_LOAD, 0, MORE, |_| {
                happened = self.happens(scene);
                Ok(())
            })?;
            scene.acknowledged.extend(came.acknowledged);
            let refusals = came.refusals.into_iter();
            scene.errors.extend(refusals.map(|(kind, text)| format!("{kind}: {text}")));
        } else {
            happened = self.happens(scene);
        }
        if !happened? {
            return Ok(db.close()?);
        }
        if when != When::Load {
            scene.hurry();
        }
        if when == When::Open {
            read_all(scene, &db);
            scene.put_each(&db, AFTERWARDS);
        }
        if let Mend::BeforeTheClose(mend) = self.mend {
            scene.at = mend(&scene.place)?;
        }
        if when == When::Idle {
            scene.hurry();
        }
        scene.note(db.close());
        drop(db);
        self.mended_afterwards(scene)?;
        Ok(())
    }

    fn mended_afterwards(self, scene: &mut Scene<'_>) -> Result<()> {
        if let Mend::Afterwards(mend) = self.mend {
            scene.at = mend(&scene.place)?;
        }
        Ok(())
    }

    /// The accident happens when the close syncs what it has copied into the database.
    fn during_the_close(self, scene: &mut Scene<'_>, options: &Options) -> Result<()> {
        let is_near = Arc::new(AtomicBool::new(false));
        let (near, place, act) = (Arc::clone(&is_near), scene.place.clone(), self.act);
        let options = options.clone().storage(move |direct| {
            let (is_near, place) = (Arc::clone(&near), place.clone());
            Arc::new(Watched { direct, is_near, place, act })
        });
        let db = scene.open(&options)?;
        is_near.store(true, Ordering::SeqCst);
        scene.note(db.close());
        drop(db);
        if is_near.load(Ordering::SeqCst) {
            bail!("the close synced no database file");
        }
        self.mended_afterwards(scene)?;
        Ok(())
    }
}

/// Reads every row: what is damaged may be found only by who needs it.
fn read_all(scene: &mut Scene<'_>, db: &Database) {
    let sql = "SELECT sum(length(filling)) FROM part, total";
    scene.note(db.read(|tx| tx.query_row(sql, (), |_| Ok(()))).wait());
}

/// A disk on which something happens when the database is synced next.
struct Watched {
    direct: Direct,
    is_near: Arc<AtomicBool>,
    place: Place,
    act: Act,
}

struct WatchedFile {
    is_near: Arc<AtomicBool>,
    place: Place,
    act: Act,
}

impl Storage for Watched {
    fn open(
        &self,
        kind: FileKind,
        path: Option<&Path>,
        lower: &mut LowerFile,
    ) -> vfs::Result<Box<dyn File>> {
        if kind != FileKind::Database {
            return self.direct.open(kind, path, lower);
        }
        let (is_near, place) = (Arc::clone(&self.is_near), self.place.clone());
        Ok(self.direct.around(kind, WatchedFile { is_near, place, act: self.act }))
    }
}

impl File for WatchedFile {
    fn sync(&mut self, lower: &mut LowerFile, flags: SyncFlags) -> vfs::Result {
        if self.is_near.swap(false, Ordering::SeqCst) {
            (self.act)(&self.place).map_err(|_| vfs::IoError::SYNC)?;
        }
        lower.sync(flags)
    }
}

/// Runs a program that has to succeed.
///
/// What opens the database file is done by another process: the locks of this one would go when it
/// closes the file again.
pub(super) fn command(words: &[&std::ffi::OsStr]) -> Result<()> {
    let [program, arguments @ ..] = words else { bail!("no program is named") };
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}", program.display(), said.trim());
    }
    Ok(())
}
