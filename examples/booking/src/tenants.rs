//! Owns which tenants' databases are open: one file for each, on one of several disks.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use anyhow::{Context as _, Result, bail, ensure};
use monolite::{Database, Migrations, Options};

/// The databases of all tenants. Those that are used are open.
pub struct Tenants {
    disks: Vec<PathBuf>,
    migrations: Migrations,
    places: Mutex<BTreeMap<String, Arc<Place>>>,
    uses: AtomicU64,
}

/// A tenant's database, if it is open. A request reads the lock; what opens, closes or moves the
/// database writes it. The number is that of its last use.
#[derive(Default)]
struct Place(RwLock<Option<Database>>, AtomicU64);

impl Tenants {
    /// Those whose files are on `disks`; new ones get the first.
    pub fn new(disks: Vec<PathBuf>, migrations: Migrations) -> Tenants {
        Tenants { disks, migrations, places: Mutex::default(), uses: AtomicU64::new(0) }
    }

    /// Makes the database of a new `tenant`. All else opens only what exists: a lost file or a
    /// mistyped name is an error and no empty database.
    pub fn create(&self, tenant: &str) -> Result<()> {
        let place = self.place(tenant)?;
        let mut closed = place.0.write().unwrap_or_else(PoisonError::into_inner);
        ensure!(self.files(tenant).is_empty(), "{tenant} exists already");
        let db = Database::open(self.disks[0].join(format!("{tenant}.db")))?;
        self.migrations.up(&db).wait().context(tenant.to_owned())?;
        *closed = Some(db);
        Ok(())
    }

    /// Runs `work`, which waits for its writes, with the database of `tenant`. The first use opens
    /// and migrates it.
    pub fn with<T>(&self, tenant: &str, work: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        let place = self.place(tenant)?;
        loop {
            if let Some(db) = &*place.0.read().unwrap_or_else(PoisonError::into_inner) {
                place.1.store(self.uses.fetch_add(1, Relaxed), Relaxed);
                return work(db);
            }
            let mut closed = place.0.write().unwrap_or_else(PoisonError::into_inner);
            if closed.is_none() {
                let db = Options::new().must_exist().open(self.file(tenant)?)?;
                self.migrations.up(&db).wait().context(tenant.to_owned())?;
                *closed = Some(db);
            }
        }
    }

    /// Closes all but the `most` that were used last; one that is in use stays open. Returns the
    /// first error, and closes the others.
    pub fn close_idle(&self, most: usize) -> Result<()> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_by_key(|(_, place)| std::cmp::Reverse(place.1.load(Relaxed)));
        let mut all = Ok(());
        for (tenant, place) in places.into_iter().skip(most) {
            let Ok(mut idle) = place.0.try_write() else { continue };
            all = all.and(idle.take().map_or(Ok(()), |db| db.close()).context(tenant));
        }
        all
    }

    /// Opens every tenant's database, which migrates it, with `most` open at once; returns those
    /// that failed, which keep their old schema.
    pub fn migrate_all(&self, most: usize) -> Result<Vec<(String, anyhow::Error)>> {
        let mut failed = Vec::new();
        for disk in &self.disks {
            for entry in fs::read_dir(disk)? {
                let name = entry?.file_name();
                let Some(tenant) = name.to_str().and_then(|it| it.strip_suffix(".db")) else {
                    continue;
                };
                let migrated = self.with(tenant, |_| Ok(()));
                if let Err(error) = migrated.and(self.close_idle(most)) {
                    failed.push((tenant.to_owned(), error));
                }
            }
        }
        Ok(failed)
    }

    /// Moves the database of `tenant` to `disk`. Its requests wait, and then find it there.
    pub fn relocate(&self, tenant: &str, disk: &Path) -> Result<()> {
        ensure!(self.disks.iter().any(|it| it == disk), "{} is no disk of ours", disk.display());
        let place = self.place(tenant)?;
        let mut open = place.0.write().unwrap_or_else(PoisonError::into_inner);
        open.take().map_or(Ok(()), |db| db.close())?; // nothing writes behind the copy
        let (from, to) = (self.file(tenant)?, disk.join(format!("{tenant}.db")));
        let db = Options::new().must_exist().open(&from)?;
        let copied = db.backup(&to).wait(); // is on disk under its name, or is not there
        db.close().and(copied)?;
        fs::remove_file(&from)?;
        File::open(from.parent().context("a disk")?)?.sync_all().context("the old file is gone")
    }

    fn place(&self, tenant: &str) -> Result<Arc<Place>> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_name = (1..=60).contains(&tenant.len()) && tenant.chars().all(fits);
        ensure!(is_name, "{tenant:?} is no tenant: a-z, 0-9 and -, 60 at most");
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(places.entry(tenant.to_owned()).or_default()))
    }

    /// Where the tenant's file is.
    fn file(&self, tenant: &str) -> Result<PathBuf> {
        match &self.files(tenant)[..] {
            [] => bail!("there is no {tenant}: create it, or restore its file"),
            [file] => Ok(file.clone()),
            found => bail!("a move of {tenant} was interrupted; delete one of the equal {found:?}"),
        }
    }

    fn files(&self, tenant: &str) -> Vec<PathBuf> {
        let all = self.disks.iter().map(|disk| disk.join(format!("{tenant}.db")));
        all.filter(|file| file.exists()).collect()
    }
}
