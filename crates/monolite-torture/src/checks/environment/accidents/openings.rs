//! A database that is open already and opened again: in the same process or another, by Monolite or
//! plain SQLite, under every name that a file can have.

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
use super::scene::actor::Actor;
use super::{Fate, Row, Trial, When};

/// While the holder is idle.
const HELD: &[When] = &[When::Idle];

/// What the holder writes once the other has come and gone.
const STILL: std::ops::RangeInclusive<i64> = 70..=75;

/// How long an opening waits that is told to.
const WAIT: Duration = Duration::from_millis(50);

macro_rules! row {
    ($accident:literal, $fate:ident, $says:literal, $what:literal, $instead:literal, $run:expr) => {
        Row {
            accident: $accident,
            when: HELD,
            fate: Fate::$fate,
            says: $says,
            what: $what,
            instead: $instead,
            trial: Trial::Scene($run),
        }
    };
}

pub(super) const ROWS: &[Row] = &[
    row!(
        "by the same process, at the same path",
        Refused,
        "is open in this process already",
        "refused with `Invalid`; the first goes on",
        "clone the `Database`",
        |scene, _| same_process(scene, |path| Ok(path.to_owned()))
    ),
    row!(
        "by the same process, in a roundabout way (`./db`, `dir/../db`)",
        Refused,
        "is open in this process already",
        "as above",
        "as above",
        |scene, _| same_process(scene, |path| {
            let name = path.file_name().unwrap_or_default();
            Ok(path.with_file_name("..").join("home").join(".").join(name))
        })
    ),
    row!(
        "by the same process, through a symbolic link",
        Refused,
        "is open in this process already",
        "as above",
        "as above",
        |scene, _| same_process(scene, |path| {
            let link = path.with_extension("link");
            std::os::unix::fs::symlink(path, &link)?;
            Ok(link)
        })
    ),
    row!(
        "by the same process, through a hard link",
        Refused,
        "hard links",
        "as above",
        "remove the link",
        |scene, _| {
            same_process(scene, |path| {
                let link = path.with_extension("link");
                fs::hard_link(path, &link)?;
                Ok(link)
            })
        }
    ),
    row!(
        "by the same process, in a directory that is mounted twice (`mount --bind`)",
        Refused,
        "is open in this process already, as",
        "as above: a file is known by its device and inode",
        "as above",
        mounted_directory
    ),
    row!(
        "through a mount of the file itself (`docker -v FILE:FILE`)",
        Refused,
        "mount its directory",
        "refused with `Invalid`, where the kernel tells (Linux 5.8): it would have a WAL of its \
         own there",
        "mount the directory of the file",
        mounted_file
    ),
    row!(
        "by the same process, at its new path after a rename",
        Refused,
        "is open in this process already",
        "as above; so is the old path. What was renamed takes no more writes, see there",
        "close the first",
        renamed
    ),
    row!(
        "by the same process, to add page checksums",
        Refused,
        "is open in this process already",
        "as above",
        "close it first",
        |scene, _| held(scene, &Options::new(), |scene| {
            if let Err(error) = Options::new().add_page_checksums(&scene.place.path) {
                scene.refused(&error);
            }
            Ok(())
        })
    ),
    row!(
        "by another process with Monolite",
        Refused,
        "is held by pid",
        "refused with `Overloaded`, and the error names the process",
        "`Options::open_wait` waits for it; `Sharing::Shared` in both lets both in",
        |scene, _| another_process(scene, Sharing::Exclusive, "exclusive", &[])
    ),
    row!(
        "by another process that asks for `Sharing::Shared`",
        Refused,
        "Overloaded",
        "as above",
        "open both with `Sharing::Shared`",
        |scene, _| another_process(scene, Sharing::Exclusive, "shared", &[])
    ),
    row!(
        "shared here, by another process that wants it alone",
        Refused,
        "Overloaded",
        "as above",
        "as above",
        |scene, _| another_process(scene, Sharing::Shared, "exclusive", &[])
    ),
    row!(
        "shared here, by another process that shares it",
        Survived,
        "",
        "both write, one after the other",
        "nothing",
        |scene, _| another_process(scene, Sharing::Shared, "shared", &["put 80 85", "close"])
    ),
    row!(
        "by another process that is told to wait (`open_wait`)",
        Refused,
        "is held by pid",
        "it waits, and is refused when the time is over",
        "wait longer",
        waited_for
    ),
    row!(
        "a copy of it by another process, beside a hard link to its WAL (a copy that shares what \
         it can)",
        Refused,
        "has hard links",
        "the copy is refused with `Invalid`: it would empty the WAL, which is that of both",
        "put a copy of the WAL in the place of the link",
        copied_with_link
    ),
    row!(
        "by another process, to add page checksums",
        Refused,
        "Overloaded",
        "as above",
        "close it first",
        |scene, _| convert_elsewhere(scene)
    ),
    row!(
        "read by plain SQLite in another process",
        Refused,
        "database is locked",
        "it is told `SQLITE_BUSY`",
        "open it with `Sharing::Shared`",
        |scene, _| plain_elsewhere(scene, Sharing::Exclusive, "")
    ),
    row!(
        "written to by plain SQLite in another process",
        Refused,
        "database is locked",
        "as above",
        "as above",
        |scene, _| plain_elsewhere(scene, Sharing::Exclusive, WRITE)
    ),
    row!(
        "shared here, read and written to by plain SQLite in another process",
        Survived,
        "",
        "both see each other's commits",
        "nothing",
        |scene, _| plain_elsewhere(scene, Sharing::Shared, WRITE)
    ),
    row!(
        "by plain SQLite in the same process",
        Refused,
        "database is locked",
        "it is told `SQLITE_BUSY`, although no lock of the process keeps it out",
        "as above",
        |scene, _| plain_here(scene, Sharing::Exclusive)
    ),
    row!(
        "shared here, by plain SQLite in the same process",
        Survived,
        "",
        "both see each other's commits",
        "nothing",
        |scene, _| plain_here(scene, Sharing::Shared)
    ),
    row!(
        "by another process, when this one has read and closed the file itself (`fs::read`, a \
         copy)",
        Refused,
        "is held by pid",
        "SQLite's lock on the database is lost by that; the one on the `-shm` file is not, and is \
         looked at before anything is read",
        "nothing; do not do the same to the `-shm` file",
        |scene, _| slurped(scene, &[""])
    ),
    row!(
        "by another process, when this one has read and closed both the file and its `-shm`",
        Detected,
        "Poisoned",
        "both locks are lost: the other takes itself for the only one, and empties or deletes the \
         WAL. An idle database notices; one that is being written to can lose data, as a control \
         of this check shows",
        "open none of the two files beside SQLite",
        |scene, _| slurped(scene, &["", "-shm"])
    ),
    row!(
        "both with `Sharing::Shared`, when this one has read and closed the file itself",
        Survived,
        "",
        "the locks on the `-shm` file are those that count",
        "nothing",
        |scene, _| slurped_shared(scene)
    ),
    Row {
        accident: "shared here, by plain SQLite in another process, when this one has read and \
                   closed the file itself",
        when: &[When::Load],
        fate: Fate::Lost,
        says: "",
        what: "SQLite's lock on the database is lost by that: plain SQLite takes itself for the \
               last one when it closes, and deletes the WAL. Writes fail with `Poisoned`, and the \
               latest that were acknowledged may be gone",
        instead: "open the file of a shared database by SQLite alone",
        trial: Trial::Untried("tried by hand: one write was gone in 4 of 12 runs"),
    },
    row!(
        "by another process, when the `-shm` file was deleted",
        Refused,
        "Overloaded",
        "the lock on the database is still there",
        "nothing",
        |scene, _| {
            held_by(scene, Sharing::Exclusive, |scene| {
                acts::delete_shm(&scene.place)?;
                elsewhere(scene, "exclusive", &[])
            })
        }
    ),
    row!(
        "in a container, by a process of another (its own process ids)",
        Refused,
        "is held by",
        "as by another process; where the kernel does not show the holder's id, it is named \
         `another process`",
        "as above",
        in_a_container
    ),
];

const WRITE: &str = "INSERT INTO whole VALUES (-7); DELETE FROM whole WHERE id = -7";

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
    scene.settle();
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

fn mounted_directory(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    held_by(scene, Sharing::Exclusive, |scene| match Mount::again(&scene.place.home) {
        Ok(again) => {
            scene.opened(Database::open(again.path().join("db")));
            Ok(())
        }
        Err(error) => {
            scene.skipped = Some(format!("a directory mounted twice: {error:#}"));
            Ok(())
        }
    })
}

fn mounted_file(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    held_by(scene, Sharing::Exclusive, |scene| match MountedFile::new(&scene.place.path) {
        Ok(file) => {
            scene.opened(Database::open(file.path()));
            Ok(())
        }
        Err(error) => {
            scene.skipped = Some(format!("a file mounted alone: {error:#}"));
            Ok(())
        }
    })
}

/// Renamed, opened, and named as before, so that what is told is about the opening alone.
fn renamed(scene: &mut Scene<'_>, _when: When) -> Result<()> {
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

fn another_process(
    scene: &mut Scene<'_>,
    ours: Sharing,
    theirs: &str,
    commands: &[&str],
) -> Result<()> {
    held(scene, &Options::new().sharing(ours), |scene| elsewhere(scene, theirs, commands))
}

fn waited_for(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    scene.opened(Options::new().open_wait(&scene.place.path, WAIT));
    actor.must(scene, "put 70 75")?;
    actor.must(scene, "close")?;
    // Now there is nobody to wait for.
    scene.opened(Options::new().open_wait(&scene.place.path, WAIT));
    scene.settle();
    Ok(())
}

/// Another process opens a copy that has the same WAL.
fn copied_with_link(scene: &mut Scene<'_>, _when: When) -> Result<()> {
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

fn convert_elsewhere(scene: &mut Scene<'_>) -> Result<()> {
    held_by(scene, Sharing::Exclusive, |scene| {
        let path = scene.file()?.to_owned();
        Actor::start(scene.setting)?.must(scene, &format!("convert {path}"))
    })
}

fn plain_elsewhere(scene: &mut Scene<'_>, ours: Sharing, sql: &str) -> Result<()> {
    held(scene, &Options::new().sharing(ours), |scene| {
        let path = scene.file()?.to_owned();
        Actor::start(scene.setting)?.must(scene, &format!("plain {path} {sql}"))
    })
}

fn plain_here(scene: &mut Scene<'_>, ours: Sharing) -> Result<()> {
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
fn slurped(scene: &mut Scene<'_>, endings: &[&str]) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    let path = scene.file()?.to_owned();
    for ending in endings {
        actor.must(scene, &format!("slurp {path}{ending}"))?;
    }
    scene.opened(Database::open(&path));
    actor.must(scene, "put 70 75")?;
    actor.must(scene, "close")?;
    scene.settle();
    Ok(())
}

fn slurped_shared(scene: &mut Scene<'_>) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "shared")?;
    let path = scene.file()?.to_owned();
    actor.must(scene, &format!("slurp {path}"))?;
    let db = Options::new().sharing(Sharing::Shared).open(&path)?;
    scene.put_each(&db, 80..=85);
    actor.must(scene, "put 70 75")?;
    scene.note(db.close());
    actor.must(scene, "put 76 79")?;
    actor.must(scene, "close")?;
    scene.settle();
    Ok(())
}

fn in_a_container(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    held_by(scene, Sharing::Exclusive, |scene| {
        let words = ["unshare", "--pid", "--fork", "--mount-proc"];
        let program = scene.setting.program.clone().under(&words);
        let path = scene.file()?.to_owned();
        match Actor::start_as(&program) {
            Ok(mut actor) => actor.must(scene, &format!("open exclusive {path}")),
            Err(error) => {
                scene.skipped = Some(format!("unshare: {error:#} (needs root)"));
                Ok(())
            }
        }
    })
}
