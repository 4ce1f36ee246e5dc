//! What happens to the disk and the machine under a database.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use monolite::{Database, Options};
use monolite_testkit::mounts::{Disk, FileSystem, Mount};

use super::scene::actor::Actor;
use super::scene::{Place, Scene};

/// How long a disk stands still.
const STILL: Duration = Duration::from_millis(300);

/// Room for the database and its WAL, and some more that is filled.
const SMALL: &str = "3m";

/// Has the scene on a small disk of its own; `None` where that cannot be mounted.
fn on_a_small_disk(scene: &mut Scene<'_>) -> Option<Mount> {
    let mount = scene.had(Mount::small(SMALL), "a small tmpfs")?;
    move_to(scene, mount.path());
    Some(mount)
}

fn move_to(scene: &mut Scene<'_>, home: &Path) {
    let path = home.join("db");
    scene.at.clone_from(&path);
    scene.place = Place { home: home.to_owned(), path };
}

/// Fills the disk to its last byte.
fn fill(home: &Path) -> Result<PathBuf> {
    let ballast = home.join("ballast");
    let mut file = File::create(&ballast)?;
    while file.write_all(&[1; 512]).is_ok() {}
    Ok(ballast)
}

pub(super) fn full_at_the_close(scene: &mut Scene<'_>) -> Result<()> {
    let Some(mount) = on_a_small_disk(scene) else { return Ok(()) };
    let db = scene.open(&Options::new())?;
    let ballast = fill(mount.path())?;
    scene.hurry();
    scene.note(db.close());
    drop(db);
    fs::remove_file(ballast)?;
    scene.settle();
    Ok(())
}

pub(super) fn full_after_a_crash(scene: &mut Scene<'_>) -> Result<()> {
    let Some(mount) = on_a_small_disk(scene) else { return Ok(()) };
    scene.crash("exclusive")?;
    let ballast = fill(mount.path())?;
    scene.opened(Database::open(&scene.place.path));
    fs::remove_file(ballast)?;
    scene.settle();
    Ok(())
}

fn freeze(disk: &Disk, word: &str) -> Result<()> {
    let status = Command::new("fsfreeze").arg(word).arg(disk.path()).status();
    ensure!(status.context("fsfreeze")?.success(), "fsfreeze {word} fails");
    Ok(())
}

pub(super) fn frozen(scene: &mut Scene<'_>) -> Result<()> {
    let directory = scene.place.home.clone();
    let disk = Disk::new(&directory, FileSystem::Ext4);
    let Some(disk) = scene.had(disk, "a file system of its own") else { return Ok(()) };
    move_to(scene, disk.path());
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    // A connection that is opened later waits for the disk.
    actor.must(scene, "read")?;
    freeze(&disk, "--freeze")?;
    let read = actor.ask(scene, "read");
    let waits = actor.tell_later("put 70 75");
    thread::sleep(STILL);
    freeze(&disk, "--unfreeze")?;
    read?;
    waits?;
    actor.finish(scene)?;
    actor.must(scene, "close")?;
    scene.settle();
    Ok(())
}
