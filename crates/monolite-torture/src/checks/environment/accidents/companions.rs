//! What happens to the files beside the database.

use super::acts;
use super::database::{WHILE_OPEN, shared};
use super::scene::actor::{Actor, Lives};
use super::scene::{FileTrial, Scene};
use super::{Fate, Row, Trial, When};
use anyhow::Result;

pub(super) const ROWS: &[Row] = &[
    Row {
        accident: "the WAL deleted",
        when: WHILE_OPEN,
        fate: Fate::Detected,
        says: "nothing acknowledged is lost",
        what: "writes fail with `Poisoned`; `close` does, too, and copies what the WAL held into \
               the database",
        instead: "close it, and open it again",
        trial: Trial::File(FileTrial::of(acts::delete_wal)),
    },
    Row {
        accident: "the WAL deleted, `Sharing::Shared`",
        when: &[When::Idle, When::Open, When::Load],
        fate: Fate::Detected,
        says: "the WAL file was deleted or renamed",
        what: "writes and `close` fail with `Poisoned`, and nothing is copied: others may have \
               written since",
        instead: "before the process ends, read out what is there, or copy both files from \
                  `/proc/PID/fd`",
        trial: Trial::File(
            FileTrial::of(acts::delete_wal).with(shared).before_the_close(acts::save_what_is_open),
        ),
    },
    Row {
        accident: "the WAL deleted, and the process killed",
        when: &[When::Open],
        fate: Fate::Lost,
        says: "the WAL file was deleted or renamed",
        what: "the first write after it fails with `Poisoned`; what the WAL held is gone with the \
               process",
        instead: "close what says so, and do not kill it; or restore a backup",
        trial: Trial::Scene(deleted_wal_and_killed),
    },
    Row {
        accident: "the WAL deleted, or moved away",
        when: &[When::Crashed],
        fate: Fate::Unseen,
        says: "",
        what: "the database is opened as of the last checkpoint: nothing tells it from one that \
               was closed",
        instead: "put the WAL back before anybody opens the database",
        trial: Trial::File(FileTrial::of(acts::delete_wal)),
    },
    Row {
        accident: "the WAL renamed",
        when: WHILE_OPEN,
        fate: Fate::Detected,
        says: "nothing acknowledged is lost",
        what: "as when it is deleted",
        instead: "close it, and open it again; the renamed file is of no more use",
        trial: Trial::File(FileTrial::of(acts::rename_wal)),
    },
    Row {
        accident: "the WAL replaced by a copy",
        when: WHILE_OPEN,
        fate: Fate::Detected,
        says: "nothing acknowledged is lost",
        what: "writes fail with `Poisoned`; `close` does, too, and copies what the right WAL held \
               into the database; the other one is kept under another name",
        instead: "close it, and open it again; the copy is of no more use",
        trial: Trial::File(FileTrial::of(acts::replace_wal)),
    },
    Row {
        accident: "the WAL moved, with a symbolic link in its place",
        when: WHILE_OPEN,
        fate: Fate::Detected,
        says: "replaced by a link",
        what: "writes and `close` fail with `Poisoned`",
        instead: "put it back in place of the link, and open the database again",
        trial: Trial::File(FileTrial::of(acts::link_wal_away).afterwards(acts::wal_back_from_link)),
    },
    Row {
        accident: "the WAL emptied",
        // Under load the next write can be faster than whoever looks.
        when: &[When::Idle, When::Open],
        fate: Fate::Lost,
        says: "the WAL file was cut",
        what: "writes and `close` fail with `Poisoned`; what was committed after the last \
               checkpoint is gone",
        instead: "before the process ends, read out what can still be read; or restore a backup",
        trial: Trial::File(FileTrial::of(acts::empty_wal)),
    },
    Row {
        accident: "the WAL cut to one byte, or in half",
        // Under load the next write can be faster than whoever looks.
        when: &[When::Idle, When::Open],
        fate: Fate::Lost,
        says: "the WAL file was cut",
        what: "as when it is emptied, for what was cut off",
        instead: "as when it is emptied",
        trial: Trial::File(FileTrial::of(acts::cut_wal)),
    },
    Row {
        accident: "the WAL emptied, with `Sharing::Shared`, when another process has committed \
                   last",
        when: &[When::Open],
        fate: Fate::Lost,
        says: "",
        what: "others may empty a shared WAL themselves, so it is not told by its name: writes, \
               reads and `close` fail with `Storage`; what was committed behind the last \
               checkpoint is gone",
        instead: "as when it is emptied",
        trial: Trial::Untried("tried by hand: 20 of 40 commits were left"),
    },
    Row {
        accident: "the WAL emptied, or cut to one byte",
        when: &[When::Crashed],
        fate: Fate::Unseen,
        says: "",
        what: "the database is opened as of the last checkpoint",
        instead: "restore a backup",
        trial: Trial::File(FileTrial::of(acts::cut_wal_to_a_byte)),
    },
    Row {
        accident: "the WAL cut in half",
        when: &[When::Crashed],
        fate: Fate::Unseen,
        says: "",
        what: "the database is opened with the commits that are whole: nothing tells the end of a \
               file from its cut",
        instead: "restore a backup",
        trial: Trial::File(FileTrial::of(acts::cut_wal)),
    },
    Row {
        accident: "the header of the WAL written over",
        when: &[When::Crashed],
        fate: Fate::Lost,
        says: "is damaged",
        what: "opening is refused with `Corrupt`, and leaves both files as they are",
        instead: "restore a backup, or move the WAL away to open the database as of the last \
                  checkpoint",
        trial: Trial::File(FileTrial::of(acts::write_over_wal_header)),
    },
    Row {
        accident: "a page in the WAL written over",
        when: &[When::Crashed],
        fate: Fate::Unseen,
        says: "",
        what: "the database is opened with the commits before it: damage cannot be told from a \
               commit that was cut off. `Stats::wal_frames_discarded` counts what was left out",
        instead: "look at that figure; restore a backup",
        trial: Trial::File(FileTrial::of(acts::write_over_frame)),
    },
    Row {
        accident: "the end of the WAL written over",
        when: &[When::Crashed],
        fate: Fate::Unseen,
        says: "",
        what: "the last commit is left out, as one that was cut off by the crash is; \
               `Stats::wal_frames_discarded` counts it",
        instead: "look at that figure",
        trial: Trial::File(FileTrial::of(acts::write_over_last_frame)),
    },
    Row {
        accident: "a page in the WAL, or its header, written over",
        when: &[When::Idle],
        fate: Fate::Survived,
        says: "",
        what: "the last 8 MiB of the WAL are in memory, too, and are copied from there; what is \
               older is not known to be damaged until somebody needs it",
        instead: "nothing",
        trial: Trial::File(FileTrial::of(acts::write_over_frame)),
    },
    Row {
        accident: "a hole in the middle of the WAL (`fallocate -p`), or pages of it written over",
        when: &[When::Load],
        fate: Fate::Lost,
        says: "malformed",
        what: "writes and `close` succeed, as nothing is read back that was not needed; what was \
               copied from there is damaged, and who reads it later is told",
        instead: "restore a backup; `page_checksums` names the pages",
        trial: Trial::Untried("it is not the same each time"),
    },
    Row {
        accident: "an older WAL of the same database put beside it",
        when: &[When::Closed],
        fate: Fate::Unseen,
        says: "",
        what: "it is replayed: pages are again what they were then. A WAL does not tell to which \
               state of a file it belongs",
        instead: "never put a `-wal` file beside a database that was closed",
        trial: Trial::Untried("tried by hand: 1,938 of 2,968 rows were left"),
    },
    Row {
        accident: "a rollback journal of another database put beside it (`db-journal`)",
        when: &[When::Closed],
        fate: Fate::Unseen,
        says: "",
        what: "SQLite rolls it back into the file, as after a crash in its other mode: a journal \
               does not tell to which file it belongs. One that is no journal does no harm",
        instead: "remove it before",
        trial: Trial::Untried("tried by hand: the tables were those of the other one"),
    },
    Row {
        accident: "`chmod 000` of the WAL",
        when: WHILE_OPEN,
        fate: Fate::Survived,
        says: "",
        what: "what is open goes on; who is not root cannot open the database again after a crash",
        instead: "give it back",
        trial: Trial::File(FileTrial::of(acts::forbid_wal)),
    },
    Row {
        accident: "nobody can write to the WAL any more (`chattr +i`)",
        when: &[When::Idle, When::Open],
        fate: Fate::Detected,
        says: "",
        what: "writes fail with `Storage` or `CommitUnknown`, reads go on, and the close fails as \
               it cannot empty the WAL",
        instead: "make it writable (`chattr -i`), and open the database again",
        trial: Trial::File(FileTrial::of(acts::freeze_wal).afterwards(acts::thaw_all)),
    },
    Row {
        accident: "nobody can write to the WAL (`chattr +i`)",
        when: &[When::Crashed],
        fate: Fate::Refused,
        says: "must be readable and writable",
        what: "opening is refused with `Storage`",
        instead: "make it writable (`chattr -i`)",
        trial: Trial::File(FileTrial::of(acts::freeze_wal).afterwards(acts::thaw_all)),
    },
    Row {
        accident: "a directory is in the place of the WAL",
        when: &[When::Closed],
        fate: Fate::Refused,
        says: "Storage",
        what: "opening is refused with `Storage`",
        instead: "remove it",
        trial: Trial::File(
            FileTrial::of(acts::directory_for_wal).afterwards(acts::remove_wal_directory),
        ),
    },
    Row {
        accident: "a hard link to the WAL is made (a backup by links)",
        when: WHILE_OPEN,
        fate: Fate::Survived,
        says: "",
        what: "it goes on; the link shows what is written to it later, and is no backup",
        instead: "nothing",
        trial: Trial::File(FileTrial::of(acts::hard_link_wal)),
    },
    Row {
        accident: "a hard link to the WAL is made (a backup by links)",
        when: &[When::Crashed],
        fate: Fate::Refused,
        says: "has hard links",
        what: "opening is refused with `Invalid`, as another database may have the link for its \
               WAL",
        instead: "put a copy of the WAL in its place, or remove the link",
        trial: Trial::File(FileTrial::of(acts::hard_link_wal).afterwards(acts::remove_link)),
    },
    Row {
        accident: "the `-shm` file deleted or renamed",
        when: WHILE_OPEN,
        fate: Fate::Survived,
        says: "",
        what: "it holds a lock and nothing else; the lock on the database is still there",
        instead: "nothing",
        trial: Trial::File(FileTrial::of(acts::delete_shm)),
    },
    Row {
        accident: "the `-shm` file deleted, `Sharing::Shared`, nobody else there",
        when: WHILE_OPEN,
        fate: Fate::Survived,
        says: "",
        what: "the process goes on with the file that it has mapped",
        instead: "close it before another process opens the database: that would make a file of \
                  its own and not know of our commits",
        trial: Trial::File(FileTrial::of(acts::delete_shm).with(shared)),
    },
    Row {
        accident: "the `-shm` file emptied",
        when: WHILE_OPEN,
        fate: Fate::Survived,
        says: "",
        what: "there is nothing in it",
        instead: "nothing",
        trial: Trial::File(FileTrial::of(acts::empty_shm)),
    },
    Row {
        accident: "the `-shm` file cut, `Sharing::Shared`",
        when: &[When::Open],
        fate: Fate::Detected,
        says: "signal",
        what: "SQLite has it mapped: the kernel ends the process (SIGBUS)",
        instead: "open the database again",
        trial: Trial::Scene(cut_shm),
    },
    Row {
        accident: "nobody can write to the `-shm` file any more (`chattr +i`), `Sharing::Shared`",
        when: &[When::Load],
        fate: Fate::Detected,
        says: "",
        what: "as when it is cut, on ext4",
        instead: "open the database again",
        trial: Trial::Untried("tried by hand"),
    },
    Row {
        accident: "the `-shm` file deleted",
        when: &[When::Crashed],
        fate: Fate::Survived,
        says: "",
        what: "it is made again from the WAL",
        instead: "nothing",
        trial: Trial::Scene(deleted_shm_after_a_crash),
    },
];

fn deleted_wal_and_killed(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "exclusive")?;
    std::fs::remove_file(scene.place.wal())?;
    scene.hurry();
    actor.must(scene, "put 100 100")?;
    actor.kill()?;
    scene.settle();
    Ok(())
}

fn cut_shm(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    let mut actor = Actor::with_a_wal(scene, "shared")?;
    acts::empty_shm(&scene.place)?;
    if actor.ask(scene, "put 100 110")? == Lives::No {
        let ended = actor.end(scene)?;
        scene.errors.push(ended);
    }
    scene.settle();
    Ok(())
}

fn deleted_shm_after_a_crash(scene: &mut Scene<'_>, _when: When) -> Result<()> {
    scene.crash("shared")?;
    std::fs::remove_file(scene.place.shm())?;
    scene.settle();
    Ok(())
}
