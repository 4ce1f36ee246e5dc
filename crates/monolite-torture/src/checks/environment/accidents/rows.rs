//! How each row of `docs/accidents.md` is tried, in the order of the page.

use monolite::Options;
use monolite::Sharing::{Exclusive, Shared};

use super::acts::*;
use super::machine::*;
use super::openings::*;
use super::process::*;
use super::scene::{Act, FileTrial, Mend, Remedy};
use super::{Trial, When};

/// How the accident's name begins, a part of what is told (empty where nothing is), and the trial.
pub(super) type Row = (&'static str, &'static str, Trial);

const GONE: &str = "the database file was deleted or renamed";
const CUT: &str = "the database file was cut";
const BACK: &str = "put it back, or move the WAL away";
const KEPT: &str = "nothing acknowledged is lost";
const WAL_GONE: &str = "the WAL file was deleted or renamed";
const WAL_CUT: &str = "the WAL file was cut";
const REPLACED: &str = "the database file was replaced";
const OPEN: &str = "is open in this process already";
const WRITABLE: &str = "must be readable and writable";
const LOCKED: &str = "database is locked";

fn shared() -> Options {
    Options::new().sharing(Shared)
}

fn checksums() -> Options {
    Options::new().page_checksums(true)
}

/// Something happens to a file, and nothing can be done about it.
const fn file(act: Act) -> Trial {
    with(Options::new, act)
}

const fn with(options: fn() -> Options, act: Act) -> Trial {
    Trial::File(FileTrial { act, mend: Mend::Nothing, options })
}

/// The remedy is used afterwards.
const fn mended(act: Act, remedy: Remedy) -> Trial {
    Trial::File(FileTrial { act, mend: Mend::Afterwards(remedy), options: Options::new })
}

/// What is still open is saved by another process.
const fn saved(act: Act) -> Trial {
    saved_with(Options::new, act)
}

const fn saved_with(options: fn() -> Options, act: Act) -> Trial {
    Trial::File(FileTrial { act, mend: Mend::BeforeTheClose(save_what_is_open), options })
}

/// A scene that is played by a function, perhaps with arguments.
macro_rules! scene {
    ($play:ident) => {
        Trial::Scene(|scene, _| $play(scene))
    };
    ($play:ident, when, $argument:expr) => {
        Trial::Scene(|scene, when| $play(scene, when == When::Load, $argument))
    };
    ($play:ident, $($argument:expr),+) => {
        Trial::Scene(|scene, _| $play(scene, $($argument),+))
    };
}

pub(super) const ROWS: &[Row] = &[
    ("deleted", GONE, saved(delete_database)),
    ("deleted", GONE, file(delete_database)),
    ("deleted", BACK, file(delete_database)),
    ("deleted", "", file(delete_database)),
    ("renamed, or moved without", GONE, mended(rename_database, put_back)),
    ("renamed, or moved without", BACK, mended(rename_database, put_back)),
    ("renamed together with its", "renamed", mended(rename_all, use_moved)),
    ("replaced by a copy of", REPLACED, saved(replace_database)),
    (
        "moved, with a symbolic",
        "replaced by a link",
        mended(link_database_away, put_back_from_link),
    ),
    ("moved, with a symbolic", "", file(link_database_away)),
    ("replaced by a link that", "which is not there", mended(dangling_link, remove_what_is_there)),
    ("emptied (`> db`)", CUT, file(empty_database)),
    ("cut to one byte", CUT, file(cut_database_to_a_byte)),
    ("cut in half", CUT, file(cut_database)),
    ("emptied, or cut to one", BACK, file(cut_database_to_a_byte)),
    ("emptied, or cut to one", "", file(empty_database)),
    ("cut in half", "Corrupt", file(cut_database)),
    ("a page written over", "malformed", file(write_over_page)),
    ("a page written over, with", "checksum", with(checksums, write_over_page)),
    ("pages written over by", "malformed", file(write_over_pages)),
    ("its first bytes written", "not a database", file(write_over_header)),
    ("replaced by something", "not a database", mended(letter_for_database, remove_what_is_there)),
    ("`chmod 000`, or given to", "", file(forbid_database)),
    ("made immutable (`chattr", "Storage", mended(freeze_database, thaw_all)),
    ("made immutable (`chattr", WRITABLE, mended(freeze_database, thaw_all)),
    ("a hard link to it is made", "", mended(hard_link, remove_link)),
    ("a hard link to it is made", "hard links", mended(hard_link, remove_link)),
    ("a symbolic link to it is", "", file(soft_link)),
    ("the WAL deleted", KEPT, file(delete_wal)),
    ("the WAL deleted,", WAL_GONE, saved_with(shared, delete_wal)),
    ("the WAL deleted, and the", WAL_GONE, scene!(deleted_wal_and_killed)),
    ("the WAL deleted, or moved", "", file(delete_wal)),
    ("the WAL renamed", KEPT, file(rename_wal)),
    ("the WAL replaced by a copy", KEPT, file(replace_wal)),
    ("the WAL moved, with a", "replaced by a link", mended(link_wal_away, wal_back_from_link)),
    ("the WAL emptied", WAL_CUT, file(empty_wal)),
    ("the WAL cut to one byte,", WAL_CUT, file(cut_wal)),
    ("the WAL emptied, or cut", "", file(cut_wal_to_a_byte)),
    ("the WAL cut in half", "", file(cut_wal)),
    ("the header of the WAL", "is damaged", file(write_over_wal_header)),
    ("a page in the WAL written", "", file(write_over_frame)),
    ("the end of the WAL", "", file(write_over_last_frame)),
    ("a page in the WAL written", "", file(write_over_frame)),
    ("`chmod 000` of the WAL", "", file(forbid_wal)),
    ("the WAL made immutable", "", mended(freeze_wal, thaw_all)),
    ("the WAL made immutable", WRITABLE, mended(freeze_wal, thaw_all)),
    ("a directory is in the", "Storage", mended(directory_for_wal, remove_wal_directory)),
    ("a hard link to the WAL is", "", file(hard_link_wal)),
    ("a hard link to the WAL is", "has hard links", mended(hard_link_wal, remove_link)),
    ("the `-shm` file deleted", "", file(delete_shm)),
    ("the `-shm` file deleted,", "", with(shared, delete_shm)),
    ("the `-shm` file emptied", "", file(empty_shm)),
    ("the `-shm` file cut,", "signal", scene!(cut_shm)),
    ("the `-shm` file deleted", "", scene!(deleted_shm_after_a_crash)),
    ("the directory renamed", GONE, mended(rename_home, use_moved_home)),
    ("the directory moved, with", "", file(link_home)),
    ("the directory removed", "was deleted or renamed", saved(remove_home)),
    ("another directory in its", "the database file was", mended(exchange_home, use_moved_home)),
    ("the directory made", "", mended(freeze_home, thaw_all)),
    ("the directory made", "as the WAL is created there", mended(freeze_home, thaw_all)),
    ("the file copied alone", "", mended(copy_alone, use_copy)),
    ("the file copied together", "", mended(copy_with_wal, use_copy)),
    ("the file copied", "", scene!(copied_while_closed)),
    ("both files copied after a", "", scene!(copied_after_a_crash)),
    ("a backup restored by `mv", REPLACED, saved(backup_in_its_place)),
    ("a backup restored by `mv", OPEN, scene!(opened_beside_a_lost_file)),
    ("a backup restored by `cp", CUT, file(backup_over_it)),
    ("a backup restored while", "malformed", file(backup_in_its_place)),
    ("by the same process, at", OPEN, scene!(at_its_path)),
    ("by the same process, in a", OPEN, scene!(in_a_roundabout_way)),
    ("by the same process,", OPEN, scene!(through_a_link)),
    ("by the same process,", "hard links", scene!(through_a_hard_link)),
    ("by the same process, in a", "is open in this process already, as", scene!(mounted_directory)),
    ("through a mount of the", "mount its directory", scene!(mounted_file)),
    ("by the same process, at", OPEN, scene!(renamed)),
    ("by the same process, to", OPEN, scene!(converted)),
    (
        "by another process with",
        "is held by pid",
        scene!(another_process, Exclusive, "exclusive", &[]),
    ),
    ("by another process that", "Overloaded", scene!(another_process, Exclusive, "shared", &[])),
    ("shared here, by another", "Overloaded", scene!(another_process, Shared, "exclusive", &[])),
    (
        "shared here, by another",
        "",
        scene!(another_process, Shared, "shared", &["put 80 85", "close"]),
    ),
    ("by another process that", "is held by pid", scene!(waited_for)),
    ("a copy of it by another", "has hard links", scene!(copied_with_link)),
    ("by another process, to", "Overloaded", scene!(converted_elsewhere)),
    ("read by plain SQLite in", LOCKED, scene!(plain_elsewhere, Exclusive, "")),
    ("written to by plain", LOCKED, scene!(plain_elsewhere, Exclusive, WRITE)),
    ("shared here, read and", "", scene!(plain_elsewhere, Shared, WRITE)),
    ("by plain SQLite in the", LOCKED, scene!(plain_here, Exclusive)),
    ("shared here, by plain", "", scene!(plain_here, Shared)),
    ("by another process, after", "is held by pid", scene!(slurped, &[""])),
    ("by another process, after", "Poisoned", scene!(slurped, &["", "-shm"])),
    ("both with", "", scene!(slurped_shared)),
    ("by another process, after", "Overloaded", scene!(without_shm)),
    ("in a container, by a", "is held by", scene!(in_a_container)),
    ("`kill -9`", "", scene!(killed, when, "-KILL")),
    ("`kill` (SIGTERM), not", "", scene!(killed, when, "-TERM")),
    ("stopped for seconds", "", scene!(stopped)),
    ("stopped, and another", "is held by pid", scene!(stopped_and_opened)),
    ("ends without a close", "", scene!(exits, when, "exit")),
    ("the last handle is", "", scene!(dropped)),
    ("the last handle is", "", scene!(told, &["thread-local"])),
    ("forked, and the child", "forked", scene!(told, &["fork write", "put 70 75", "close"])),
    ("forked, and the child", "forked", scene!(forked_and_opened)),
    ("a program that it has", "", scene!(outlived)),
    ("no more threads", "cannot be started", scene!(without_threads)),
    ("no more descriptors", "Storage", scene!(limited, "ulimit -n 8", &[])),
    ("no more descriptors", "", scene!(told, &["hog", "put 70 75", "read", "close"])),
    (
        "a limit on the size of",
        "ulimit -f",
        scene!(limited, "trap '' XFSZ && ulimit -f 1000", &["put 100 250", "read", "close"]),
    ),
    ("a limit on the size of", "signal", scene!(limited, "ulimit -f 1000", &["put 100 250"])),
    ("the disk is full when the", "", scene!(full_at_the_close)),
    ("the disk is full", "", scene!(full_after_a_crash)),
    ("the disk stands still", "", scene!(frozen)),
];
