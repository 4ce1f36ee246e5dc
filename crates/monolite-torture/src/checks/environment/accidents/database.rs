//! What happens to the database file.

use monolite::{Options, Sharing};

use super::acts;
use super::scene::FileTrial;
use super::{Fate, Row, Trial, When};

/// While somebody has it open.
pub(super) const WHILE_OPEN: &[When] = &[When::Idle, When::Open, When::Load];

pub(super) fn shared() -> Options {
    Options::new().sharing(Sharing::Shared)
}

fn checksums() -> Options {
    Options::new().page_checksums(true)
}

pub(super) const ROWS: &[Row] = &[
    Row {
        accident: "deleted",
        when: WHILE_OPEN,
        fate: Fate::Detected,
        says: "the database file was deleted or renamed",
        what: "writes and `close` fail with `Poisoned`; the WAL is kept under another name, which \
               the error tells, so that no other database finds it",
        instead: "before the process ends, copy the file from `/proc/PID/fd` and put the kept WAL \
                  beside it; or restore a backup",
        trial: Trial::File(
            FileTrial::of(acts::delete_database).before_the_close(acts::save_what_is_open),
        ),
    },
    Row {
        accident: "deleted",
        when: &[When::Close],
        fate: Fate::Lost,
        says: "the database file was deleted or renamed",
        what: "`close` fails with `Poisoned`, and the file is gone with the process; the WAL that \
               is kept has only what came after the last checkpoint",
        instead: "restore a backup",
        trial: Trial::File(FileTrial::of(acts::delete_database)),
    },
    Row {
        accident: "deleted",
        when: &[When::Crashed],
        fate: Fate::Lost,
        says: "put it back, or move the WAL away",
        what: "opening is refused with `Storage`, as there is a WAL without its database",
        instead: "restore a backup, and move the WAL away first: it belongs to no other file",
        trial: Trial::File(FileTrial::of(acts::delete_database)),
    },
    Row {
        accident: "deleted",
        when: &[When::Closed],
        fate: Fate::Unseen,
        says: "",
        what: "a new, empty database is made: nothing tells it from one that never was. Programs \
               that create their tables when they are missing see nothing",
        instead: "restore a backup; let the program that deploys create the database, and the \
                  service refuse to start without a table of its own",
        trial: Trial::File(FileTrial::of(acts::delete_database)),
    },
    Row {
        accident: "renamed, or moved without its WAL",
        when: &[When::Idle, When::Open, When::Load, When::Close],
        fate: Fate::Detected,
        says: "the database file was deleted or renamed",
        what: "writes and `close` fail with `Poisoned`; the WAL is kept under another name, which \
               the error tells",
        instead: "put the file back, and the kept WAL beside it under its old name",
        trial: Trial::File(FileTrial::of(acts::rename_database).afterwards(acts::put_back)),
    },
    Row {
        accident: "renamed, or moved without its WAL",
        when: &[When::Crashed],
        fate: Fate::Refused,
        says: "put it back, or move the WAL away",
        what: "opening the old path is refused with `Storage`, as there is a WAL without its \
               database. (Opening the new path would show the last checkpoint.)",
        instead: "bring both together again",
        trial: Trial::File(FileTrial::of(acts::rename_database).afterwards(acts::put_back)),
    },
    Row {
        accident: "renamed together with its WAL",
        when: WHILE_OPEN,
        fate: Fate::Detected,
        says: "renamed",
        what: "writes and `close` fail with `Poisoned`",
        instead: "open it at its new path. With two commands the WAL may have been given another \
                  name in between, which the error says: put it beside the new path first",
        trial: Trial::File(FileTrial::of(acts::rename_all).afterwards(acts::use_moved)),
    },
    Row {
        accident: "replaced by a copy of itself (`sed -i`, `rsync`, an editor)",
        when: WHILE_OPEN,
        fate: Fate::Detected,
        says: "the database file was replaced",
        what: "writes and `close` fail with `Poisoned`; the WAL is kept under another name. The \
               copy has what the last checkpoint had",
        instead: "before the process ends, copy the file from `/proc/PID/fd` and put the kept WAL \
                  beside it; or go on with the copy",
        trial: Trial::File(
            FileTrial::of(acts::replace_database).before_the_close(acts::save_what_is_open),
        ),
    },
    Row {
        accident: "moved, with a symbolic link in its place",
        when: WHILE_OPEN,
        fate: Fate::Detected,
        says: "replaced by a link",
        what: "writes and `close` fail with `Poisoned`: at its new place the file would have \
               another WAL",
        instead: "put the file back, and the kept WAL beside it; move it once it is closed",
        trial: Trial::File(
            FileTrial::of(acts::link_database_away).afterwards(acts::put_back_from_link),
        ),
    },
    Row {
        accident: "moved, with a symbolic link in its place",
        when: &[When::Closed],
        fate: Fate::Survived,
        says: "",
        what: "it is opened where the link leads, and has its WAL there",
        instead: "nothing",
        trial: Trial::File(FileTrial::of(acts::link_database_away)),
    },
    Row {
        accident: "a symbolic link that leads nowhere is in its place (a disk that is not mounted)",
        when: &[When::Closed],
        fate: Fate::Refused,
        says: "which is not there",
        what: "opening is refused with `Invalid`, and creates nothing behind the link",
        instead: "mount the disk",
        trial: Trial::File(
            FileTrial::of(acts::dangling_link).afterwards(acts::remove_what_is_there),
        ),
    },
    Row {
        accident: "emptied (`> db`)",
        when: WHILE_OPEN,
        fate: Fate::Lost,
        says: "the database file was cut",
        what: "writes and `close` fail with `Poisoned`, and nothing more is written into it",
        instead: "restore a backup",
        trial: Trial::File(FileTrial::of(acts::empty_database)),
    },
    Row {
        accident: "cut to one byte",
        when: WHILE_OPEN,
        fate: Fate::Lost,
        says: "the database file was cut",
        what: "as when it is emptied",
        instead: "restore a backup",
        trial: Trial::File(FileTrial::of(acts::cut_database_to_a_byte)),
    },
    Row {
        accident: "cut in half",
        when: WHILE_OPEN,
        fate: Fate::Lost,
        says: "the database file was cut",
        what: "as when it is emptied. With `Sharing::Shared` it is not noticed until somebody \
               needs what is gone, as others may make the file shorter",
        instead: "restore a backup",
        trial: Trial::File(FileTrial::of(acts::cut_database)),
    },
    Row {
        accident: "emptied, or cut to one byte",
        when: &[When::Crashed],
        fate: Fate::Lost,
        says: "put it back, or move the WAL away",
        what: "opening is refused with `Storage`; the WAL stays as it is",
        instead: "restore a backup, and move the WAL away first",
        trial: Trial::File(FileTrial::of(acts::cut_database_to_a_byte)),
    },
    Row {
        accident: "emptied, or cut to one byte",
        when: &[When::Closed],
        fate: Fate::Unseen,
        says: "",
        what: "it is taken for a new database, as SQLite takes an empty file",
        instead: "restore a backup",
        trial: Trial::File(FileTrial::of(acts::empty_database)),
    },
    Row {
        accident: "cut in half",
        when: &[When::Closed, When::Crashed],
        fate: Fate::Lost,
        says: "Corrupt",
        what: "opening, or who needs what is gone, fails with `Corrupt`",
        instead: "restore a backup",
        trial: Trial::File(FileTrial::of(acts::cut_database)),
    },
    Row {
        accident: "a page written over",
        when: &[When::Closed],
        fate: Fate::Lost,
        says: "malformed",
        what: "who needs the page fails with `Corrupt`, if it is no page any more; a page that \
               still looks like one is an answer",
        instead: "restore a backup; open it with `page_checksums`, which notices each",
        trial: Trial::File(FileTrial::of(acts::write_over_page)),
    },
    Row {
        accident: "a page written over, with `page_checksums`",
        when: &[When::Closed],
        fate: Fate::Lost,
        says: "checksum",
        what: "who needs the page fails with `Corrupt`, and the error names it",
        instead: "restore a backup; without the option what else there is can be read",
        trial: Trial::File(FileTrial::of(acts::write_over_page).with(checksums)),
    },
    Row {
        accident: "pages written over by another program",
        when: &[When::Open],
        fate: Fate::Lost,
        says: "malformed",
        what: "who needs one of them fails with `Corrupt`, if it is not in a cache yet",
        instead: "restore a backup",
        trial: Trial::File(FileTrial::of(acts::write_over_pages)),
    },
    Row {
        accident: "its first bytes written over",
        when: &[When::Closed],
        fate: Fate::Lost,
        says: "not a database",
        what: "opening is refused with `Corrupt`, and leaves the file as it is",
        instead: "restore a backup",
        trial: Trial::File(FileTrial::of(acts::write_over_header)),
    },
    Row {
        accident: "something else is in its place (a text)",
        when: &[When::Closed],
        fate: Fate::Refused,
        says: "not a database",
        what: "opening is refused with `Corrupt`, and leaves the file as it is",
        instead: "put the database there",
        trial: Trial::File(
            FileTrial::of(acts::letter_for_database).afterwards(acts::remove_what_is_there),
        ),
    },
    Row {
        accident: "`chmod 000`, or given to another user",
        when: WHILE_OPEN,
        fate: Fate::Survived,
        says: "",
        what: "what is open goes on; connections that are opened later, and the next process, are \
               refused with `Storage` unless they are root's",
        instead: "give it back",
        trial: Trial::File(FileTrial::of(acts::forbid_database)),
    },
    Row {
        accident: "nobody can write to it any more (`chattr +i`)",
        when: WHILE_OPEN,
        fate: Fate::Detected,
        says: "Storage",
        what: "writes go on into the WAL; what copies it into the file fails, the close with \
               `Storage`. The WAL stays",
        instead: "make it writable (`chattr -i`), and open it again",
        trial: Trial::File(FileTrial::of(acts::freeze_database).afterwards(acts::thaw_all)),
    },
    Row {
        accident: "nobody can write to it (`chattr +i`)",
        when: &[When::Closed, When::Crashed],
        fate: Fate::Refused,
        says: "must be readable and writable",
        what: "opening is refused with `Storage`",
        instead: "make it writable (`chattr -i`)",
        trial: Trial::File(FileTrial::of(acts::freeze_database).afterwards(acts::thaw_all)),
    },
    Row {
        accident: "a hard link to it is made",
        when: WHILE_OPEN,
        fate: Fate::Survived,
        says: "",
        what: "what is open goes on; the next opening is refused, as each name would have its own \
               WAL",
        instead: "remove the link",
        trial: Trial::File(FileTrial::of(acts::hard_link).afterwards(acts::remove_link)),
    },
    Row {
        accident: "a hard link to it is made",
        when: &[When::Closed, When::Crashed],
        fate: Fate::Refused,
        says: "hard links",
        what: "opening is refused with `Invalid`, under either name",
        instead: "remove the link that is not wanted: not the name beside the WAL",
        trial: Trial::File(FileTrial::of(acts::hard_link).afterwards(acts::remove_link)),
    },
    Row {
        accident: "a symbolic link to it is made",
        when: &[When::Closed, When::Crashed, When::Idle, When::Open, When::Load],
        fate: Fate::Survived,
        says: "",
        what: "through the link it is the same file with the same WAL",
        instead: "nothing",
        trial: Trial::File(FileTrial::of(acts::soft_link)),
    },
];
