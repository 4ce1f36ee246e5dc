//! Owns which tenants' databases are open: one file for each, on one of several disks.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use anyhow::{Context as _, Result, bail, ensure};
use monolite::{Database, Migrations};

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

    /// Runs `work`, which waits for its writes, with the database of `tenant`. The first use opens
    /// and migrates it.
    pub fn with<T>(&self, tenant: &str, work: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_name = (1..=60).contains(&tenant.len()) && tenant.chars().all(fits);
        ensure!(is_name, "{tenant:?} is no tenant: a-z, 0-9 and -, 60 at most");
        let place = self.place(tenant);
        loop {
            if let Some(db) = &*place.0.read().unwrap_or_else(PoisonError::into_inner) {
                place.1.store(self.uses.fetch_add(1, Relaxed), Relaxed);
                return work(db);
            }
            let mut closed = place.0.write().unwrap_or_else(PoisonError::into_inner);
            if closed.is_none() {
                let db = Database::open(self.file(tenant)?)?;
                self.migrations.up(&db).wait().context(tenant.to_owned())?;
                *closed = Some(db);
            }
        }
    }

    /// Closes all but the `most` that were used last; one that is in use stays open.
    pub fn close_idle(&self, most: usize) -> Result<()> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut places: Vec<_> = places.into_values().collect();
        places.sort_by_key(|place| std::cmp::Reverse(place.1.load(Relaxed)));
        for place in places.iter().skip(most) {
            let Ok(mut idle) = place.0.try_write() else { continue };
            idle.take().map_or(Ok(()), |db| db.close())?;
        }
        Ok(())
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
                if let Err(error) = self.with(tenant, |_| Ok(())) {
                    failed.push((tenant.to_owned(), error));
                }
                self.close_idle(most)?;
            }
        }
        Ok(failed)
    }

    /// Moves the database of `tenant` to `disk`. Its requests wait, and then find it there.
    pub fn relocate(&self, tenant: &str, disk: &Path) -> Result<()> {
        ensure!(self.disks.iter().any(|it| it == disk), "{} is no disk of ours", disk.display());
        let place = self.place(tenant);
        let mut open = place.0.write().unwrap_or_else(PoisonError::into_inner);
        open.take().map_or(Ok(()), |db| db.close())?; // nothing writes behind the copy
        let (from, to) = (self.file(tenant)?, disk.join(format!("{tenant}.db")));
        let db = Database::open(&from)?;
        let copied = db.backup(&to).wait(); // is on disk under its name, or is not there
        db.close().and(copied)?;
        fs::remove_file(&from)?;
        File::open(from.parent().context("a disk")?)?.sync_all().context("the old file is gone")
    }

    fn place(&self, tenant: &str) -> Arc<Place> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(places.entry(tenant.to_owned()).or_default())
    }

    /// Where the tenant's file is, or is to be made.
    fn file(&self, tenant: &str) -> Result<PathBuf> {
        let all = self.disks.iter().map(|disk| disk.join(format!("{tenant}.db")));
        let found: Vec<_> = all.filter(|file| file.exists()).collect();
        match &found[..] {
            [] => Ok(self.disks[0].join(format!("{tenant}.db"))),
            [file] => Ok(file.clone()),
            _ => bail!("a move of {tenant} was interrupted; delete one of the equal {found:?}"),
        }
    }
}
