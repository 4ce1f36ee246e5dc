//! What happens to the directory of a database, and how copies of it are made and restored.

use anyhow::Result;
use monolite::Options;

use super::acts;
use super::database::WHILE_OPEN;
use super::scene::{FileTrial, Scene};
use super::{Fate, Row, Trial, When};

pub(super) const ROWS: &[Row] = &[
    Row {
        accident: "the directory renamed",
        when: WHILE_OPEN,
        fate: Fate::Detected,
        says: "the database file was deleted or renamed",
        what: "writes and `close` fail with `Poisoned`",
        instead: "open it at its new path",
        trial: Trial::File(FileTrial::of(acts::rename_home).afterwards(acts::use_moved_home)),
    },
    Row {
        accident: "the directory moved, with a symbolic link in its place",
        when: &[When::Idle, When::Open],
        fate: Fate::Survived,
        says: "",
        what: "the same files are at the same path; a write between the two commands fails with \
               `Poisoned`",
        instead: "nothing",
        trial: Trial::File(FileTrial::of(acts::link_home)),
    },
    Row {
        accident: "the directory removed (`rm -rf`)",
        when: WHILE_OPEN,
        fate: Fate::Detected,
        says: "was deleted or renamed",
        what: "writes and `close` fail with `Poisoned`",
        instead: "before the process ends, copy both files from `/proc/PID/fd`; or restore a \
                  backup",
        trial: Trial::File(
            FileTrial::of(acts::remove_home).before_the_close(acts::save_what_is_open),
        ),
    },
    Row {
        accident: "another directory in its place, with another database of the same name",
        when: WHILE_OPEN,
        fate: Fate::Detected,
        says: "the database file was",
        what: "writes and `close` fail with `Poisoned`, and no transaction answers from the other \
               database",
        instead: "open it at its new path",
        trial: Trial::File(FileTrial::of(acts::exchange_home).afterwards(acts::use_moved_home)),
    },
    Row {
        accident: "another file system is mounted over the directory",
        when: &[When::Idle, When::Open],
        fate: Fate::Detected,
        says: "",
        what: "writes and `close` fail with `Poisoned`; both files stay below the mount",
        instead: "unmount it, and open the database again",
        trial: Trial::Untried("tried by hand: all of 31 commits were there"),
    },
    Row {
        accident: "its file system is unmounted while it is in use (`umount -l`)",
        when: &[When::Idle, When::Open],
        fate: Fate::Detected,
        says: "",
        what: "writes and `close` fail with `Poisoned`; both files stay on the disk. Mounted again \
               at the same place before the next write, it survives",
        instead: "mount it again, and open the database again",
        trial: Trial::Untried("tried by hand: all of 31 commits were there"),
    },
    Row {
        accident: "nothing can be created in the directory or deleted from it (`chattr +i`)",
        when: &[When::Idle, When::Open],
        fate: Fate::Survived,
        says: "",
        what: "what is open goes on; the WAL that is left beside a closed database is empty",
        instead: "make it writable before the next opening",
        trial: Trial::File(FileTrial::of(acts::freeze_home).afterwards(acts::thaw_all)),
    },
    Row {
        accident: "nothing can be created in the directory (`chattr +i`, a read-only mount)",
        when: &[When::Closed],
        fate: Fate::Refused,
        says: "as the WAL is created there",
        what: "opening is refused with `Storage`",
        instead: "make it writable: the WAL needs it",
        trial: Trial::File(FileTrial::of(acts::freeze_home).afterwards(acts::thaw_all)),
    },
    Row {
        accident: "the file copied alone (`cp db copy`)",
        when: WHILE_OPEN,
        fate: Fate::Unseen,
        says: "",
        what: "the database goes on. The copy is no backup: what is in the WAL is missing, and a \
               copy made during a checkpoint is damaged",
        instead: "`Database::backup`; or close the database and copy it",
        trial: Trial::File(FileTrial::of(acts::copy_alone).afterwards(acts::use_copy)),
    },
    Row {
        accident: "the file copied together with its WAL",
        when: &[When::Idle],
        fate: Fate::Survived,
        says: "",
        what: "the copy has everything, if nothing was written or checkpointed meanwhile",
        instead: "better close it before: an idle database is checkpointed after half a second",
        trial: Trial::File(FileTrial::of(acts::copy_with_wal).afterwards(acts::use_copy)),
    },
    Row {
        accident: "the file copied together with its WAL",
        when: &[When::Load],
        fate: Fate::Unseen,
        says: "",
        what: "the copies are of two moments, and can be damaged when taken together",
        instead: "as above",
        trial: Trial::Untried("it is not the same each time"),
    },
    Row {
        accident: "the file copied",
        when: &[When::Closed],
        fate: Fate::Survived,
        says: "",
        what: "the copy is a backup: a closed database is one file",
        instead: "nothing",
        trial: Trial::Scene(copied_while_closed),
    },
    Row {
        accident: "both files copied after a crash",
        when: &[When::Crashed],
        fate: Fate::Survived,
        says: "",
        what: "the copies are a backup, if they have the same names as before: `NAME` and \
               `NAME-wal`",
        instead: "nothing",
        trial: Trial::Scene(copied_after_a_crash),
    },
    Row {
        accident: "a backup restored by `mv backup db`",
        when: WHILE_OPEN,
        fate: Fate::Detected,
        says: "the database file was replaced",
        what: "writes and `close` fail with `Poisoned`; the WAL is kept under another name, so \
               that the backup is opened as it is",
        instead: "nothing, if the backup is what you want; otherwise as when it is replaced by a \
                  copy",
        trial: Trial::File(
            FileTrial::of(acts::backup_in_its_place).before_the_close(acts::save_what_is_open),
        ),
    },
    Row {
        accident: "a backup restored by `mv backup db`, and the database opened again",
        when: &[When::Idle],
        fate: Fate::Refused,
        says: "is open in this process already",
        what: "until the close the path is refused with `Invalid`: whoever opened it would have \
               the old WAL beside the backup",
        instead: "close it first",
        trial: Trial::Scene(opened_beside_a_lost_file),
    },
    Row {
        accident: "a backup restored by `cp backup db`, over the same file",
        when: WHILE_OPEN,
        fate: Fate::Lost,
        says: "the database file was cut",
        what: "the file is the backup: a shorter one is noticed, and writes and `close` fail with \
               `Poisoned`. One that is as long is noticed only by those who need what is damaged, \
               when the WAL was copied into it",
        instead: "close it first; restore by `mv`",
        trial: Trial::File(FileTrial::of(acts::backup_over_it)),
    },
    Row {
        accident: "a backup restored while the WAL of a crash is still there",
        when: &[When::Crashed],
        fate: Fate::Lost,
        says: "malformed",
        what: "the old WAL is replayed over the backup, which damages it: a WAL does not tell \
               which file it belongs to",
        instead: "remove the `-wal` file before, whenever a backup is restored",
        trial: Trial::File(FileTrial::of(acts::backup_in_its_place)),
    },
];

fn copied_while_closed(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    scene.make(&Options::new())?;
    acts::copy_alone(&scene.place)?;
    scene.at = acts::use_copy(&scene.place)?;
    scene.settle();
    Ok(())
}

fn copied_after_a_crash(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    scene.crash("exclusive")?;
    acts::copy_with_wal(&scene.place)?;
    scene.at = acts::use_copy(&scene.place)?;
    scene.settle();
    Ok(())
}

fn opened_beside_a_lost_file(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    let db = scene.open(&Options::new())?;
    acts::backup_in_its_place(&scene.place)?;
    scene.opened(Options::new().open(&scene.place.path));
    scene.at = acts::save_what_is_open(&scene.place)?;
    // Its close tells of the replaced file, which is another row.
    drop(db);
    scene.settle();
    Ok(())
}
