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
    // The database file.
    ("deleted", GONE, saved(delete_database)),
    ("deleted", GONE, file(delete_database)),
    ("renamed, or moved without", GONE, mended(rename_database, put_back)),
    ("renamed, or moved without", BACK, mended(rename_database, put_back)),
    ("renamed with its WAL", "renamed", mended(rename_all, use_moved)),
    ("replaced by a copy", REPLACED, saved(replace_database)),
    ("moved, a symlink", "replaced by a link", mended(link_database_away, put_back_from_link)),
    ("moved, a symlink", "", file(link_database_away)),
    ("replaced by a link to", "which is not there", mended(dangling_link, remove_what_is_there)),
    ("emptied (`> db`)", CUT, file(empty_database)),
    ("cut to one byte", CUT, file(cut_database_to_a_byte)),
    ("cut in half", CUT, file(cut_database)),
    ("deleted", BACK, file(delete_database)),
    ("emptied, or cut to one", BACK, file(cut_database_to_a_byte)),
    ("deleted", "", file(delete_database)),
    ("emptied, or cut to one", "", file(empty_database)),
    ("cut in half", "Corrupt", file(cut_database)),
    ("a page overwritten", "malformed", file(write_over_page)),
    ("a page overwritten, with", "checksum", with(checksums, write_over_page)),
    ("pages overwritten by", "malformed", file(write_over_pages)),
    ("its first bytes", "not a database", file(write_over_header)),
    ("replaced by something", "not a database", mended(letter_for_database, remove_what_is_there)),
    ("`chmod 000`, or given to", "", file(forbid_database)),
    ("immutable", "Storage", mended(freeze_database, thaw_all)),
    ("immutable", WRITABLE, mended(freeze_database, thaw_all)),
    ("hard-linked", "", mended(hard_link, remove_link)),
    ("hard-linked", "hard links", mended(hard_link, remove_link)),
    ("symlinked", "", file(soft_link)),
    // The WAL.
    ("deleted", KEPT, file(delete_wal)),
    ("renamed", KEPT, file(rename_wal)),
    ("replaced by a copy", KEPT, file(replace_wal)),
    ("deleted, `Sharing::Shared`", WAL_GONE, saved_with(shared, delete_wal)),
    ("deleted, and the process", WAL_GONE, scene!(deleted_wal_and_killed)),
    ("moved, a symlink", "replaced by a link", mended(link_wal_away, wal_back_from_link)),
    ("emptied", WAL_CUT, file(empty_wal)),
    ("cut to one byte, or", WAL_CUT, file(cut_wal)),
    ("deleted, or moved away", "", file(delete_wal)),
    ("emptied, or cut", "", file(cut_wal_to_a_byte)),
    ("cut in half", "", file(cut_wal)),
    ("the header overwritten", "is damaged", file(write_over_wal_header)),
    ("a page overwritten", "", file(write_over_frame)),
    ("the end overwritten", "", file(write_over_last_frame)),
    ("a page overwritten", "", file(write_over_frame)),
    ("`chmod 000`", "", file(forbid_wal)),
    ("immutable", "", mended(freeze_wal, thaw_all)),
    ("immutable", WRITABLE, mended(freeze_wal, thaw_all)),
    ("a directory in its place", "Storage", mended(directory_for_wal, remove_wal_directory)),
    ("hard-linked", "", file(hard_link_wal)),
    ("hard-linked", "has hard links", mended(hard_link_wal, remove_link)),
    // The `-shm` file.
    ("deleted or renamed", "", file(delete_shm)),
    ("emptied", "", file(empty_shm)),
    ("deleted, `Sharing::Shared`", "", with(shared, delete_shm)),
    ("cut, `Sharing::Shared`", "signal", scene!(cut_shm)),
    ("deleted", "", scene!(deleted_shm_after_a_crash)),
    // Directories, copies and backups.
    ("the directory renamed", GONE, mended(rename_home, use_moved_home)),
    ("another directory in its", "the database file was", mended(exchange_home, use_moved_home)),
    ("the directory moved", "", file(link_home)),
    ("the directory removed", "was deleted or renamed", saved(remove_home)),
    ("the directory immutable", "", mended(freeze_home, thaw_all)),
    ("the directory immutable", "as the WAL is created there", mended(freeze_home, thaw_all)),
    ("the file copied alone", "", mended(copy_alone, use_copy)),
    ("the file copied with its", "", mended(copy_with_wal, use_copy)),
    ("the file copied", "", scene!(copied_while_closed)),
    ("both files copied", "", scene!(copied_after_a_crash)),
    ("a backup restored by `mv", REPLACED, saved(backup_in_its_place)),
    ("a backup restored by `mv`", OPEN, scene!(opened_beside_a_lost_file)),
    ("a backup restored by `cp", CUT, file(backup_over_it)),
    ("a copy restored beside", "malformed", file(backup_in_its_place)),
    // Opened a second time.
    ("here, at the same path", OPEN, scene!(at_its_path)),
    ("here, as `./db`", OPEN, scene!(in_a_roundabout_way)),
    ("here, by a symlink", OPEN, scene!(through_a_link)),
    ("here, by a hard link", "hard links", scene!(through_a_hard_link)),
    ("here, in a directory", "is open in this process already, as", scene!(mounted_directory)),
    ("here, at its new path", OPEN, scene!(renamed)),
    ("here, to add page", OPEN, scene!(converted)),
    ("through a mount of the", "mount its directory", scene!(mounted_file)),
    ("elsewhere", "is held by pid", scene!(another_process, Exclusive, "exclusive", &[])),
    ("elsewhere, with `open_wait`", "is held by pid", scene!(waited_for)),
    ("elsewhere, with", "Overloaded", scene!(another_process, Exclusive, "shared", &[])),
    ("shared here, elsewhere", "Overloaded", scene!(another_process, Shared, "exclusive", &[])),
    ("elsewhere, to add page", "Overloaded", scene!(converted_elsewhere)),
    ("elsewhere, without the", "Overloaded", scene!(without_shm)),
    ("elsewhere, in another", "is held by", scene!(in_a_container)),
    ("elsewhere, while stopped", "is held by pid", scene!(stopped_and_opened)),
    ("plain SQLite elsewhere", LOCKED, scene!(plain_elsewhere, Exclusive, "")),
    ("plain SQLite elsewhere", LOCKED, scene!(plain_elsewhere, Exclusive, WRITE)),
    ("plain SQLite here", LOCKED, scene!(plain_here, Exclusive)),
    (
        "shared here and elsewhere",
        "",
        scene!(another_process, Shared, "shared", &["put 80 85", "close"]),
    ),
    ("shared with plain SQLite", "", scene!(plain_elsewhere, Shared, WRITE)),
    ("shared with plain SQLite", "", scene!(plain_here, Shared)),
    ("shared, the file read", "", scene!(slurped_shared)),
    ("a copy elsewhere", "has hard links", scene!(copied_with_link)),
    ("elsewhere, the file read", "is held by pid", scene!(slurped, &[""])),
    ("elsewhere, the file and", "Poisoned", scene!(slurped, &["", "-shm"])),
    // The process.
    ("`kill -9`", "", scene!(killed, when, "-KILL")),
    ("`kill` (SIGTERM), not", "", scene!(killed, when, "-TERM")),
    ("ends without a close", "", scene!(exits, when, "exit")),
    ("stopped for seconds", "", scene!(stopped)),
    ("the last handle dropped", "", scene!(dropped)),
    ("the last handle dropped", "", scene!(told, &["thread-local"])),
    ("forked, and used", "forked", scene!(told, &["fork write", "put 70 75", "close"])),
    ("forked, and opened", "forked", scene!(forked_and_opened)),
    ("a program that it started", "", scene!(outlived)),
    // Limits of the process.
    ("no more descriptors", "Storage", scene!(limited, "ulimit -n 5", &[])),
    ("no more descriptors", "Storage", scene!(told, &["hog", "put 70 75", "read", "close"])),
    ("no more threads", "cannot be started", scene!(without_threads)),
    (
        "file size",
        "ulimit -f",
        scene!(limited, "trap '' XFSZ && ulimit -f 1000", &["put 100 250", "read", "close"]),
    ),
    ("file size", "signal", scene!(limited, "ulimit -f 1000", &["put 100 250"])),
    // The disk and the machine.
    ("the disk is full when", "", scene!(full_at_the_close)),
    ("the disk is full", "", scene!(full_after_a_crash)),
    ("the disk stands still", "", scene!(frozen)),
];
