//! What happens between processes and openings: a database that is open already and opened again,
//! by Monolite or plain SQLite, under every name that a file can have; and copies of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use monolite::rusqlite::Connection;
use monolite::{Database, Options, Sharing};
use monolite_testkit::mounts::{Mount, MountedFile};
use monolite_testkit::storage::wal_beside;

use super::acts;
use super::scene::Scene;
use super::scene::actor::{Actor, Lives};

/// What the holder writes once the other has come and gone.
const STILL: std::ops::RangeInclusive<i64> = 70..=75;

/// How long an opening waits that is told to.
const WAIT: Duration = Duration::from_millis(50);

/// What plain SQLite writes.
pub(super) const WRITE: &str = "INSERT INTO whole VALUES (-7); DELETE FROM whole WHERE id = -7";

type Other = fn(&mut Scene<'_>) -> Result<()>;

/// Holds the database open while somebody else comes, then goes on.
fn held(
    scene: &mut Scene<'_>,
    options: &Options,
    other: impl Fn(&mut Scene<'_>) -> Result<()>,
) -> Result<()> {
    let db = scene.open(options)?;
    other(scene)?;
    if scene.skipped.is_some() {
        return Ok(db.close()?);
    }
    scene.put_each(&db, STILL);
    scene.note(db.close());
    drop(db);
    let _ = fs::remove_file(scene.place.path.with_extension("link"));
    Ok(())
}

fn held_by(scene: &mut Scene<'_>, sharing: Sharing, other: Other) -> Result<()> {
    held(scene, &Options::new().sharing(sharing), other)
}

fn same_process(scene: &mut Scene<'_>, name: fn(&Path) -> Result<PathBuf>) -> Result<()> {
    held(scene, &Options::new(), |scene| {
        let name = name(&scene.place.path)?;
        for sharing in [Sharing::Exclusive, Sharing::Shared] {
            scene.opened(Options::new().sharing(sharing).open(&name));
        }
        Ok(())
    })
}

pub(super) fn at_its_path(scene: &mut Scene<'_>) -> Result<()> {
    same_process(scene, |path| Ok(path.to_owned()))
}

pub(super) fn in_a_roundabout_way(scene: &mut Scene<'_>) -> Result<()> {
    same_process(scene, |path| Ok(path.with_file_name("..").join("home").join(".").join("db")))
}

pub(super) fn through_a_link(scene: &mut Scene<'_>) -> Result<()> {
    same_process(scene, |path| {
        let link = path.with_extension("link");
        std::os::unix::fs::symlink(path, &link)?;
        Ok(link)
    })
}

pub(super) fn through_a_hard_link(scene: &mut Scene<'_>) -> Result<()> {
    same_process(scene, |path| {
        let link = path.with_extension("link");
        fs::hard_link(path, &link)?;
        Ok(link)
    })
}

pub(super) fn converted(scene: &mut Scene<'_>) -> Result<()> {
    held_by(scene, Sharing::Exclusive, |scene| {
        if let Err(error) = Options::new().add_page_checksums(&scene.place.path) {
            scene.refused(&error);
        }
        Ok(())
    })
}

pub(super) fn without_shm(scene: &mut Scene<'_>) -> Result<()> {
    held_by(scene, Sharing::Exclusive, |scene| {
        acts::delete_shm(&scene.place)?;
        elsewhere(scene, "exclusive", &[])
    })
}

pub(super) fn mounted_directory(scene: &mut Scene<'_>) -> Result<()> {
    held_by(scene, Sharing::Exclusive, |scene| {
        let again = Mount::again(&scene.place.home);
        if let Some(again) = scene.had(again, "a directory mounted twice") {
            scene.opened(Database::open(again.path().join("db")));
        }
        Ok(())
    })
}

pub(super) fn mounted_file(scene: &mut Scene<'_>) -> Result<()> {
    held_by(scene, Sharing::Exclusive, |scene| {
        let file = MountedFile::new(&scene.place.path);
        if let Some(file) = scene.had(file, "a file mounted alone") {
            scene.opened(Database::open(file.path()));
        }
        Ok(())
    })
}

/// Renamed, opened, and named as before, so that what is told is about the opening alone.
pub(super) fn renamed(scene: &mut Scene<'_>) -> Result<()> {
    held_by(scene, Sharing::Exclusive, |scene| {
        acts::rename_all(&scene.place)?;
        let moved = acts::use_moved(&scene.place)?;
        for path in [moved.clone(), scene.place.path.clone()] {
            scene.opened(Database::open(path));
        }
        fs::rename(&moved, &scene.place.path)?;
        Ok(fs::rename(wal_beside(&moved), scene.place.wal())?)
    })
}

/// Another process opens it, and does what it is told to.
fn elsewhere(scene: &mut Scene<'_>, sharing: &str, commands: &[&str]) -> Result<()> {
    let mut actor = Actor::start(scene.setting)?;
    let path = scene.file()?.to_owned();
    actor.must(scene, &format!("open {sharing} {path}"))?;
    commands.iter().try_for_each(|command| actor.must(scene, command))
}

pub(super) fn another_process(
    scene: &mut Scene<'_>,
    ours: Sharing,
    theirs: &str,
    commands: &[&str],
) -> Result<()> {
    held(scene, &Options::new().sharing(ours), |scene| elsewhere(scene, theirs, commands))
}

pub(super) fn waited_for(scene: &mut Scene<'_>) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    scene.opened(Options::new().open_wait(&scene.place.path, WAIT));
    actor.must(scene, "put 70 75")?;
    actor.must(scene, "close")?;
    // Now there is nobody to wait for.
    scene.opened(Options::new().open_wait(&scene.place.path, WAIT));
    Ok(())
}

/// Another process opens a copy that has the same WAL.
pub(super) fn copied_with_link(scene: &mut Scene<'_>) -> Result<()> {
    held_by(scene, Sharing::Exclusive, |scene| {
        let copy = scene.place.beside("-copy");
        fs::copy(&scene.place.path, &copy)?;
        fs::hard_link(scene.place.wal(), wal_beside(&copy))?;
        let mut actor = Actor::start(scene.setting)?;
        actor.must(scene, &format!("open exclusive {}", copy.display()))?;
        fs::remove_file(wal_beside(&copy))?;
        Ok(fs::remove_file(copy)?)
    })
}

pub(super) fn converted_elsewhere(scene: &mut Scene<'_>) -> Result<()> {
    held_by(scene, Sharing::Exclusive, |scene| {
        let path = scene.file()?.to_owned();
        Actor::start(scene.setting)?.must(scene, &format!("convert {path}"))
    })
}

pub(super) fn plain_elsewhere(scene: &mut Scene<'_>, ours: Sharing, sql: &str) -> Result<()> {
    held(scene, &Options::new().sharing(ours), |scene| {
        let path = scene.file()?.to_owned();
        Actor::start(scene.setting)?.must(scene, &format!("plain {path} {sql}"))
    })
}

pub(super) fn plain_here(scene: &mut Scene<'_>, ours: Sharing) -> Result<()> {
    held(scene, &Options::new().sharing(ours), |scene| {
        let plain = Connection::open(&scene.place.path)?;
        plain.busy_timeout(Duration::ZERO)?;
        if let Err(error) = plain.execute_batch(WRITE) {
            scene.refusals.push(error.to_string());
        }
        Ok(())
    })
}

/// The holder is another process, which reads files itself; this one opens the database.
pub(super) fn slurped(scene: &mut Scene<'_>, endings: &[&str]) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    let path = scene.file()?.to_owned();
    for ending in endings {
        actor.must(scene, &format!("slurp {path}{ending}"))?;
    }
    scene.opened(Database::open(&path));
    actor.must(scene, "put 70 75")?;
    actor.must(scene, "close")?;
    Ok(())
}

pub(super) fn slurped_shared(scene: &mut Scene<'_>) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "shared")?;
    let path = scene.file()?.to_owned();
    actor.must(scene, &format!("slurp {path}"))?;
    let db = Options::new().sharing(Sharing::Shared).open(&path)?;
    scene.put_each(&db, 80..=85);
    actor.must(scene, "put 70 75")?;
    scene.note(db.close());
    actor.must(scene, "put 76 79")?;
    actor.must(scene, "close")?;
    Ok(())
}

pub(super) fn in_a_container(scene: &mut Scene<'_>) -> Result<()> {
    held_by(scene, Sharing::Exclusive, |scene| {
        let words = ["unshare", "--pid", "--fork", "--mount-proc"];
        let program = scene.setting.program.clone().under(&words);
        let path = scene.file()?.to_owned();
        let actor = Actor::start_as(&program);
        match scene.had(actor, "unshare (needs root)") {
            Some(mut actor) => actor.must(scene, &format!("open exclusive {path}")),
            None => Ok(()),
        }
    })
}

pub(super) fn deleted_wal_and_killed(scene: &mut Scene<'_>) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    std::fs::remove_file(scene.place.wal())?;
    scene.hurry();
    actor.must(scene, "put 100 100")?;
    actor.kill()?;
    Ok(())
}

pub(super) fn cut_shm(scene: &mut Scene<'_>) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "shared")?;
    acts::empty_shm(&scene.place)?;
    if actor.ask(scene, "put 100 110")? == Lives::No {
        let ended = actor.end(scene)?;
        scene.errors.push(ended);
    }
    Ok(())
}

pub(super) fn deleted_shm_after_a_crash(scene: &mut Scene<'_>) -> Result<()> {
    scene.crash("shared")?;
    std::fs::remove_file(scene.place.shm())?;
    Ok(())
}

pub(super) fn copied_while_closed(scene: &mut Scene<'_>) -> Result<()> {
    scene.make(&Options::new())?;
    acts::copy_alone(&scene.place)?;
    scene.at = acts::use_copy(&scene.place)?;
    Ok(())
}

pub(super) fn copied_after_a_crash(scene: &mut Scene<'_>) -> Result<()> {
    scene.crash("exclusive")?;
    acts::copy_with_wal(&scene.place)?;
    scene.at = acts::use_copy(&scene.place)?;
    Ok(())
}

pub(super) fn opened_beside_a_lost_file(scene: &mut Scene<'_>) -> Result<()> {
    let db = scene.open(&Options::new())?;
    acts::backup_in_its_place(&scene.place)?;
    scene.opened(Options::new().open(&scene.place.path));
    scene.at = acts::save_what_is_open(&scene.place)?;
    // Its close tells of the replaced file, which is another row.
    drop(db);
    Ok(())
}
