//! Disks that are full, and directories that cannot be written to. Both need root to be mounted.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use monolite::{Database, Error, ErrorKind, Options, Sharing};

use super::batch::as_one_batch;
use super::{Case, marks};

/// From less than an empty database takes up to some hundred transactions.
const SIZES: [&str; 14] = [
    "4k", "8k", "16k", "24k", "32k", "48k", "64k", "96k", "128k", "256k", "512k", "1m", "2m", "4m",
];

/// What there is once there is room again.
const ROOMY: &str = "64m";

/// Bytes of each transaction, and how many certainly fill any of the disks.
const FILLING: usize = 5_000;
const ENOUGH: i64 = 10_000;

/// A file system mounted for one case.
struct Mount(PathBuf);

impl Mount {
    fn small(path: &Path, size: &str) -> Result<Mount> {
        fs::create_dir_all(path)?;
        mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"], path)?;
        Ok(Mount(path.to_owned()))
    }

    fn read_only(path: &Path) -> Result<Mount> {
        let name = path.to_str().context("the path is text")?;
        mount(&["--bind", name], path)?;
        let bound = Mount(path.to_owned());
        mount(&["-o", "remount,ro,bind"], path)?;
        Ok(bound)
    }

    fn resize(&self, size: &str) -> Result<()> {
        mount(&["-o", &format!("remount,size={size}")], &self.0)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A mount that stays shows when its directory cannot be removed, which is reported.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn mount(words: &[&str], path: &Path) -> Result<()> {
    let output = Command::new("mount").args(words).arg(path).output().context("mount")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Disks of many sizes are filled; then there is room again.
pub(super) fn fills_up(case: &mut Case<'_>) -> Result<()> {
    let mut opened = 0;
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        for size in SIZES {
            let at = case.directory().join(format!("{sharing:?}-{size}"));
            let mount = match Mount::small(&at, size) {
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
    let path = mount.0.join("db");
    let options = || Options::new().sharing(sharing).readers(1);
    let is_clear = |error: &Error| error.kind() == ErrorKind::Storage;
    let mut acknowledged = BTreeSet::new();
    let opened = options().open(&path);
    let could_open = opened.is_ok();
    match opened {
        Err(error) => case.expect(is_clear(&error), || format!("{size}: opening gave {error:?}")),
        Ok(db) => {
            if let Err(error) = marks::create(&db) {
                case.expect(is_clear(&error), || format!("{size}: the schema gave {error:?}"));
            } else {
                fill_until_full(case, &db, size, &mut acknowledged)?;
            }
            mount.resize(ROOMY)?;
            for id in [ENOUGH + 1, ENOUGH + 2] {
                marks::create(&db)?;
                match db.write(move |tx| marks::put(tx, id, &[2; FILLING])).wait() {
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
    marks::create(&db)?;
    db.close()?;
    case.verify(&path, &acknowledged)?;
    Ok(could_open)
}

fn fill_until_full(
    case: &mut Case<'_>,
    db: &Database,
    size: &str,
    acknowledged: &mut BTreeSet<i64>,
) -> Result<()> {
    for id in 1..ENOUGH {
        let Err(error) = db.write(move |tx| marks::put(tx, id, &[9; FILLING])).wait() else {
            acknowledged.insert(id);
            continue;
        };
        let is_clear = error.kind() == ErrorKind::Storage;
        case.expect(is_clear, || format!("{size}: the full disk gave {error:?}"));
        let seen = marks::count(db).with_context(|| format!("{size}: a read on a full disk"))?;
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
    let mount = match Mount::small(&case.directory().join("disk"), "4m") {
        Ok(mount) => mount,
        Err(error) => {
            case.skip(format!("a small tmpfs: {error:#}"));
            return Ok(());
        }
    };
    case.tried += 1;
    let path = mount.0.join("db");
    let db = Database::open(&path)?;
    marks::create(&db)?;
    let small = |id| db.write(move |tx| marks::put(tx, id, &[1; 100]));
    let (before, large, after) = as_one_batch(&db, || {
        let before: Vec<_> = (1..10).map(|id| (id, small(id))).collect();
        let large = db.write(|tx| marks::put(tx, 100, &[2; 3_000_000]));
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
    case.verify(&path, &acknowledged)
}

/// A directory in which nothing can be created, with a database and without.
pub(super) fn read_only(case: &mut Case<'_>) -> Result<()> {
    let at = case.directory().join("directory");
    fs::create_dir_all(&at)?;
    let path = at.join("db");
    let db = Database::open(&path)?;
    marks::create(&db)?;
    db.write(|tx| marks::put(tx, 1, &[])).wait()?;
    db.close()?;
    let mount = match Mount::read_only(&at) {
        Ok(mount) => mount,
        Err(error) => {
            case.skip(format!("a read-only mount: {error:#}"));
            return Ok(());
        }
    };
    for file in [path.clone(), at.join("new")] {
        case.tried += 1;
        match Database::open(&file) {
            Ok(_) => case.broken("a database was opened in it"),
            Err(error) => {
                let names_it = error.to_string().contains(&*at.to_string_lossy());
                case.expect(error.kind() == ErrorKind::Storage && names_it, || {
                    format!("it gave {error:?}")
                });
            }
        }
    }
    drop(mount);
    Database::open(&path)?.close()?;
    case.verify(&path, &BTreeSet::from([1]))
}
