//! Disks that are full, and directories that cannot be written to. Both need root to be mounted.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use monolite::{Database, Error, ErrorKind, Options, Sharing};
use monolite_testkit::markers;
use monolite_testkit::mounts::Mount;

use super::Case;
use crate::checks::lanes::as_one_batch;

/// From less than an empty database takes up to some hundred transactions.
const SIZES: [&str; 14] = [
    "4k", "8k", "16k", "24k", "32k", "48k", "64k", "96k", "128k", "256k", "512k", "1m", "2m", "4m",
];

/// What there is once there is room again.
const ROOMY: &str = "64m";

/// Bytes of each transaction, and how many certainly fill any of the disks.
const FILLING: usize = 5_000;
const ENOUGH: i64 = 10_000;

/// Disks of many sizes are filled; then there is room again.
pub(super) fn fills_up(case: &mut Case<'_>) -> Result<()> {
    let mut opened = 0;
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        for size in SIZES {
            let mount = match Mount::small(size) {
                Ok(mount) => mount,
                Err(error) => {
                    case.skip(format!("a small tmpfs: {error:#}"));
                    return Ok(());
                }
            };
            case.tried += 1;
            opened += u32::from(fill(case, &mount, size, sharing)?);
        }
    }
    let all = SIZES.len() * 2;
    case.note(format!("{all} disks from 4 KiB to 4 MiB filled, {opened} could hold a database"));
    Ok(())
}

/// Fills one disk and makes room again; whether a database could be opened before.
fn fill(case: &mut Case<'_>, mount: &Mount, size: &str, sharing: Sharing) -> Result<bool> {
    let path = mount.path().join("db");
    let options = || Options::new().sharing(sharing).readers(1);
    let is_clear = |error: &Error| error.kind() == ErrorKind::Storage;
    let mut acknowledged = BTreeSet::new();
    let opened = options().open(&path);
    let could_open = opened.is_ok();
    match opened {
        Err(error) => case.expect(is_clear(&error), || format!("{size}: opening gave {error:?}")),
        Ok(db) => {
            if let Err(error) = markers::create(&db) {
                case.expect(is_clear(&error), || format!("{size}: the schema gave {error:?}"));
            } else {
                fill_until_full(case, &db, size, &mut acknowledged)?;
            }
            mount.resize(ROOMY)?;
            for id in [ENOUGH + 1, ENOUGH + 2] {
                markers::create(&db)?;
                match db.write(move |tx| markers::put_filled(tx, id, &[2; FILLING])).wait() {
                    Ok(()) => _ = acknowledged.insert(id),
                    Err(error) => {
                        case.broken(format!("{size}: with room again, writing gave {error:?}"));
                    }
                }
            }
            if let Err(error) = db.close() {
                case.broken(format!("{size}: with room again, closing gave {error:?}"));
            }
        }
    }
    mount.resize(ROOMY)?;
    let db = options().open(&path).with_context(|| format!("{size}: with room again"))?;
    markers::create(&db)?;
    db.close()?;
    case.verify(&path, &acknowledged);
    Ok(could_open)
}

fn fill_until_full(
    case: &mut Case<'_>,
    db: &Database,
    size: &str,
    acknowledged: &mut BTreeSet<i64>,
) -> Result<()> {
    for id in 1..ENOUGH {
        let Err(error) = db.write(move |tx| markers::put_filled(tx, id, &[9; FILLING])).wait()
        else {
            acknowledged.insert(id);
            continue;
        };
        let is_clear = error.kind() == ErrorKind::Storage;
        case.expect(is_clear, || format!("{size}: the full disk gave {error:?}"));
        let count = db.read(|tx| tx.query_row("SELECT n FROM total", (), |row| row.get(0)));
        let seen: i64 = count.wait().with_context(|| format!("{size}: a read on a full disk"))?;
        case.expect(seen == acknowledged.len() as i64, || {
            format!("{size}: a read saw {seen} of {} transactions", acknowledged.len())
        });
        return Ok(());
    }
    case.broken(format!("{size}: the disk never became full"));
    Ok(())
}

/// A member that does not fit on the disk fails alone.
pub(super) fn one_member_too_large(case: &mut Case<'_>) -> Result<()> {
    let mount = match Mount::small("4m") {
        Ok(mount) => mount,
        Err(error) => {
            case.skip(format!("a small tmpfs: {error:#}"));
            return Ok(());
        }
    };
    case.tried += 1;
    let path = mount.path().join("db");
    let db = Database::open(&path)?;
    markers::create(&db)?;
    let small = |id| db.write(move |tx| markers::put_filled(tx, id, &[1; 100]));
    let (before, large, after) = as_one_batch(&db, || {
        let before: Vec<_> = (1..10).map(|id| (id, small(id))).collect();
        let large = db.write(|tx| markers::put_filled(tx, 100, &[2; 3_000_000]));
        let after: Vec<_> = (11..20).map(|id| (id, small(id))).collect();
        (before, large, after)
    })?;
    let mut acknowledged = BTreeSet::new();
    for (id, write) in before.into_iter().chain(after) {
        match write.wait() {
            Ok(()) => _ = acknowledged.insert(id),
            Err(error) => case.broken(format!("neighbour {id} failed, too: {error:?}")),
        }
    }
    match large.wait() {
        Ok(()) => case.broken("9 MB were written to a disk of 4 MB"),
        Err(error) => {
            case.expect(error.kind() == ErrorKind::Storage, || format!("it gave {error:?}"));
            case.note(format!("its {} neighbours were acknowledged", acknowledged.len()));
        }
    }
    mount.resize(ROOMY)?;
    db.close()?;
    case.verify(&path, &acknowledged);
    Ok(())
}

/// A directory in which nothing can be created, with a database and without.
pub(super) fn read_only(case: &mut Case<'_>) -> Result<()> {
    let prepare = |directory: &Path| -> Result<()> {
        let db = Database::open(directory.join("db"))?;
        markers::create(&db)?;
        db.write(|tx| markers::put(tx, 1)).wait()?;
        Ok(db.close()?)
    };
    let mut prepared = Ok(());
    let mount = match Mount::read_only(|directory| prepared = prepare(directory)) {
        Ok(mount) => mount,
        Err(error) => {
            case.skip(format!("a read-only mount: {error:#}"));
            return Ok(());
        }
    };
    prepared?;
    for name in ["db", "new"] {
        case.tried += 1;
        match Database::open(mount.path().join(name)) {
            Ok(_) => case.broken("a database was opened in it"),
            Err(error) => {
                let names_it = error.to_string().contains(&*mount.path().to_string_lossy());
                case.expect(error.kind() == ErrorKind::Storage && names_it, || {
                    format!("it gave {error:?}")
                });
            }
        }
    }
    let copy = case.directory().join("db");
    fs::copy(mount.path().join("db"), &copy)?;
    case.verify(&copy, &BTreeSet::from([1]));
    Ok(())
}
