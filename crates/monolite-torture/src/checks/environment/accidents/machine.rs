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
use super::{Fate, Row, Trial, When};
use crate::checks::{archive, cuts, flips, images, overload, sweeps};

/// How long a disk stands still.
const STILL: Duration = Duration::from_millis(300);

/// Room for the database and its WAL, and some more that is filled.
const SMALL: &str = "3m";

pub(super) const ROWS: &[Row] = &[
    Row {
        accident: "the disk becomes full",
        when: &[When::Opening, When::Load],
        fate: Fate::Detected,
        says: "",
        what: "what does not fit fails with `Storage`, its neighbours do not, and reads go on. \
               Rows can still be deleted, and their pages are used again: the file's space and 4 \
               MiB of the WAL are set aside while there is room, where the file system can do that \
               (`fallocate`). Backups to another disk can be made. All is well once there is room",
        instead: "make room; or delete rows, in transactions that change less than 4 MiB",
        trial: Trial::Case("a disk that is full"),
    },
    Row {
        accident: "one transaction fills the disk",
        when: &[When::Load],
        fate: Fate::Detected,
        says: "",
        what: "it alone fails",
        instead: "make room, or do less in one transaction",
        trial: Trial::Case("a batch in which one member fills the disk"),
    },
    Row {
        accident: "the disk is full when the WAL is copied",
        when: &[When::Close],
        fate: Fate::Survived,
        says: "",
        what: "the file's space was set aside with each commit; where the file system cannot do \
               that, `close` fails with `Storage`, and the WAL stays",
        instead: "nothing; or make room, and open it again",
        trial: Trial::Scene(full_at_the_close),
    },
    Row {
        accident: "the disk is full",
        when: &[When::Crashed],
        fate: Fate::Survived,
        says: "",
        what: "the file's space was set aside with each commit; where the file system cannot do \
               that, opening is refused with `Storage` if the WAL that the crash left needs room \
               in the file, and both stay as they are",
        instead: "nothing; or make room, or copy both files to another disk and open them there",
        trial: Trial::Scene(full_after_a_crash),
    },
    Row {
        accident: "a sync fails",
        when: &[When::Load],
        fate: Fate::Detected,
        says: "",
        what: "nothing more is acknowledged (`Poisoned`): the kernel tells of a failed sync once, \
               and then calls the pages clean",
        instead: "mend the disk, and open it again",
        trial: Trial::Case("a sync that fails in the kernel"),
    },
    Row {
        accident: "any other call of the file system fails, once or for good",
        when: &[When::Opening, When::Load, When::Close],
        fate: Fate::Detected,
        says: "",
        what: "who needed it fails with `Storage`, `CommitUnknown` or `Poisoned`",
        instead: "mend the disk, and open it again",
        trial: Trial::Check(&sweeps::CHECK),
    },
    Row {
        accident: "the disk stands still (`fsfreeze`, a network disk that is away)",
        when: &[When::Open],
        fate: Fate::Survived,
        says: "",
        what: "what has to be synced waits, without a limit; reads go on",
        instead: "nothing",
        trial: Trial::Scene(frozen),
    },
    Row {
        accident: "the file system is mounted read-only",
        when: &[When::Opening],
        fate: Fate::Refused,
        says: "",
        what: "opening is refused with `Storage`",
        instead: "mount it writable: the WAL needs it",
        trial: Trial::Case("a directory that is read-only"),
    },
    Row {
        accident: "power is cut",
        when: &[When::Opening, When::Load, When::Close],
        fate: Fate::Survived,
        says: "",
        what: "with `Synced` everything acknowledged is there; with `Buffered` the last moments \
               are gone",
        instead: "nothing",
        trial: Trial::Check(&cuts::CHECK),
    },
    Row {
        accident: "power is cut, and the disk has torn or reordered what was not synced",
        when: &[When::Load],
        fate: Fate::Survived,
        says: "",
        what: "as above",
        instead: "nothing",
        trial: Trial::Check(&images::CHECK),
    },
    Row {
        accident: "a snapshot of the disk or the machine is taken, and restored",
        when: &[When::Load],
        fate: Fate::Survived,
        says: "",
        what: "as after a power cut at that moment, if both files are in the same snapshot",
        instead: "nothing",
        trial: Trial::Check(&cuts::CHECK),
    },
    Row {
        accident: "power is cut under a disk that says \"synced\" and lies",
        when: &[When::Load],
        fate: Fate::Unseen,
        says: "",
        what: "what the disk had not written is gone; if it wrote in another order, the file may \
               be damaged",
        instead: "another disk",
        trial: Trial::Untried("no check here reaches a disk's own cache"),
    },
    Row {
        accident: "a bit flips on the disk, with `page_checksums`",
        when: &[When::Closed, When::Crashed],
        fate: Fate::Detected,
        says: "",
        what: "who needs the page fails with `Corrupt`; no answer comes from it",
        instead: "restore a backup",
        trial: Trial::Check(&flips::CHECK),
    },
    Row {
        accident: "a bit flips on the disk, without `page_checksums`",
        when: &[When::Closed, When::Open],
        fate: Fate::Unseen,
        says: "",
        what: "it may be an answer: pages of SQLite have no checksums by themselves",
        instead: "`Options::add_page_checksums`; a file system with checksums",
        trial: Trial::Untried("it is a control of `--flips`"),
    },
    Row {
        accident: "the wall clock jumps, by a day or ten years, both ways",
        when: &[When::Load],
        fate: Fate::Survived,
        says: "",
        what: "nothing depends on it but the time that SQL asks for: time limits and idempotency \
               keys count time that passes",
        instead: "nothing",
        trial: Trial::Case("the wall clock jumps a day"),
    },
    Row {
        accident: "the wall clock jumps with an archive, or is set after the start of a machine \
                   that began in 1976",
        when: &[When::Opening, When::Load, When::Closed],
        fate: Fate::Survived,
        says: "",
        what: "nothing is done twice under a key, and each moment that was archived is restored; \
               a moment that a user restores by its time is found by what the clock said then",
        instead: "restore by TXID or token where the clock was wrong",
        trial: Trial::Check(&archive::CHECK),
    },
    Row {
        accident: "the clock for time limits stands still, or jumps a day",
        when: &[When::Load],
        fate: Fate::Survived,
        says: "",
        what: "who was in a transaction then is out of time (`Timeout`); nobody else is",
        instead: "run it again",
        trial: Trial::Case("a clock that stands still, and one that jumps"),
    },
    Row {
        accident: "more load than the machine can take",
        when: &[When::Load],
        fate: Fate::Survived,
        says: "",
        what: "what is too much is refused with `Overloaded`",
        instead: "try later, slower",
        trial: Trial::Check(&overload::CHECK),
    },
    Row {
        accident: "the file is on a file system of another machine or program (NFS, SMB, FUSE, \
                   virtiofs, 9p, Ceph, AFS, a folder shared by VirtualBox or VMware)",
        when: &[When::Opening],
        fate: Fate::Refused,
        says: "",
        what: "opening is refused with `Invalid`: locks of two machines, or of both sides of a \
               mount, may not know of each other, and the WAL needs memory that both share",
        instead: "put it on a disk of this machine (in a container: a volume); one process opens \
                  it, and serves the others",
        trial: Trial::Untried("tried by `a_database_behind_fuse_is_refused`"),
    },
    Row {
        accident: "the file is on one that is not known as such, and opened on both of its sides",
        when: &[When::Open],
        fate: Fate::Unseen,
        says: "",
        what: "two processes take themselves for the only one: writes of one are lost, or the file \
               is damaged",
        instead: "open it on one side",
        trial: Trial::Untried("it is not known which"),
    },
    Row {
        accident: "the file is opened in an overlay file system and, at the same time, in the \
                   directory underneath it (`upperdir`: from the host, below a container)",
        when: &[When::Open],
        fate: Fate::Unseen,
        says: "",
        what: "they are two files to the kernel, with locks of their own: both are opened, and \
               writes of one are lost",
        instead: "keep databases in a volume, and open them from one of both sides",
        trial: Trial::Untried("tried by hand"),
    },
    Row {
        accident: "the program is linked with an SQLite older than 3.51.3",
        when: &[When::Opening],
        fate: Fate::Refused,
        says: "",
        what: "opening is refused with `Invalid`: it can damage a WAL database",
        instead: "another SQLite",
        trial: Trial::Case("an SQLite that is too old"),
    },
];

/// Has the scene on a small disk of its own; `None` where that cannot be mounted.
fn on_a_small_disk(scene: &mut Scene<'_>) -> Option<Mount> {
    match Mount::small(SMALL) {
        Ok(mount) => {
            move_to(scene, mount.path());
            Some(mount)
        }
        Err(error) => {
            scene.skipped = Some(format!("a small tmpfs: {error:#}"));
            None
        }
    }
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

fn full_at_the_close(scene: &mut Scene<'_>, _when: When) -> Result<()> {
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

fn full_after_a_crash(scene: &mut Scene<'_>, _when: When) -> Result<()> {
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

fn frozen(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    let directory = scene.place.home.clone();
    let disk = match Disk::new(&directory, FileSystem::Ext4) {
        Ok(disk) => disk,
        Err(error) => {
            scene.skipped = Some(format!("a file system of its own: {error:#}"));
            return Ok(());
        }
    };
    move_to(scene, disk.path());
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
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
