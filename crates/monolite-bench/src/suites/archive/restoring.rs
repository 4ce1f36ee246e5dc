//! How fast an archive is restored, beside what bounds it: its store's client, and the disk.

use super::place::Place;
use crate::drivers::Round;
use anyhow::{Context, Result, ensure};
use monolite_archive::{
    Part, Target,
    internals::{Catalog, Plan, restore},
};
use std::fs::{self, File};
use std::io::Write;
use std::time::Instant;

/// What is read or written at a time, which is what a restore reads at a time.
const PART: u64 = 4 << 20;

/// Makes the archive, if it is not there.
fn archived(place: &Place) -> Result<()> {
    if !place.database.exists() {
        place.close(place.open()?, 0)?;
    }
    Ok(())
}

/// A round of so many bytes of the database: megabytes are its operations.
fn round(bytes: u64, begin: Instant) -> Round {
    let elapsed = begin.elapsed();
    let operations = (bytes / 1_000_000).max(1);
    Round { operations, taken: operations, elapsed, ..Round::default() }
}

/// Restores it, and sees that it is the database.
pub(super) fn whole(place: &Place) -> Result<Round> {
    archived(place)?;
    let copy = place.database.with_extension("restored");
    let (store, layout) = place.store()?;
    let begin = Instant::now();
    restore(&*store, &layout, Target::Latest, &copy)?;
    let bytes = fs::metadata(&copy)?.len();
    let round = round(bytes, begin);
    let is_same = same(&copy, &place.database)?;
    fs::remove_file(&copy)?;
    ensure!(is_same, "what was restored is not the database");
    Ok(round)
}

fn same(one: &std::path::Path, other: &std::path::Path) -> Result<bool> {
    // Its own number of commits is in the first page of the original alone once it was opened.
    let [one, other] = [one, other].map(|path| fs::read(path).context("read a database"));
    let (one, other) = (one?, other?);
    Ok(one.len() == other.len() && one.get(4096..) == other.get(4096..))
}

/// Reads the files that the restore reads, as its store's client does, and does nothing with them.
/// Its figure is of the database's bytes, so that it can be compared.
pub(super) fn client(place: &Place) -> Result<Round> {
    archived(place)?;
    let (store, layout) = place.store()?;
    let database = fs::metadata(&place.database)?.len();
    let begin = Instant::now();
    let catalog = Catalog::read(&*store, &layout)?;
    let plan = Plan::new(&catalog, Target::Latest, &*store, &layout)?;
    for file in plan.files() {
        let key = layout.file(file.level, file.txids);
        for at in (0..file.len).step_by(PART as usize) {
            let part = Part::Range(at..(at + PART).min(file.len));
            let fetched = store.get(&key, part)?.context("a file has vanished")?;
            ensure!(!fetched.bytes.is_empty(), "a file was cut");
        }
    }
    Ok(round(database, begin))
}

/// Writes as many bytes as the database has, and syncs them.
pub(super) fn disk(place: &Place) -> Result<Round> {
    archived(place)?;
    let bytes = fs::metadata(&place.database)?.len();
    let path = place.database.with_extension("written");
    let mut random = fastrand::Rng::with_seed(bytes);
    let mut part = vec![0; 1 << 20];
    random.fill(&mut part);
    let begin = Instant::now();
    let mut file = File::create(&path)?;
    let mut left = bytes;
    while left > 0 {
        let now = left.min(part.len() as u64);
        file.write_all(&part[..now as usize])?;
        left -= now;
    }
    file.sync_all()?;
    let round = round(bytes, begin);
    fs::remove_file(&path)?;
    Ok(round)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_works_and_another_database_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::within(directory.path(), 120_000, 100);
        for trial in [whole, client, disk] {
            assert!(trial(&place).unwrap().operations >= 2);
        }
        let mut bytes = fs::read(&place.database).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&place.database, bytes).unwrap();
        assert!(whole(&place).is_err());
    }
}
