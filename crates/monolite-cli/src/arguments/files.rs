//! What may be said of commands that work on a database of the user's.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Subcommand};

pub(super) const BACKUP_HELP: &str = "\
Copy a database that no process has open, into one file, whole and on disk.

Opens FILE (what a crash left in its WAL is recovered), writes the copy beside OUT, and gives it \
its name when it is whole and on disk. Nothing is overwritten. A process that has FILE open is \
named; it makes a backup of its own, while it runs, with Database::backup. Ctrl-C stops, and \
leaves nothing.";

pub(super) const MIGRATE_HELP: &str = "\
Change a database's schema step by step, each step once.

A migration is a file NNNN_name.sql in DIR. Each is applied in one transaction, in the order of \
the numbers, and noted in the database with its checksum: one that is edited afterwards, or \
missing, is an error. A file that begins with `-- monolite: rebuild=TABLE` declares a new CREATE \
TABLE for a table that there is; rows, indexes, triggers, views and foreign keys stay. A \
file must not be open in another process; a program applies its migrations itself with \
monolite::Migrations. Of a server, name the admin address: it applies the migrations of DIR.";

pub(super) const CHECK_HELP: &str = "\
Look for damage in a database that no process has open.

Reads everything: pages, rows, indexes and foreign keys, table by table, on one core. It does not \
see pages that belong to no table, or to two; PRAGMA integrity_check in plain SQLite does. FILE is \
read as it is and not changed, so a backup stays one that can be read from a medium that cannot be \
written, and may be on one. Only where a crash has left something in a WAL or a journal beside \
FILE is it opened, which recovers that and needs to write. Check a backup after it was restored.

Exit code 0 means that the database is sound; 1 that something is damaged, or that foreign keys \
are violated (which is no damage: those rows are to be corrected); 2 that it could not be checked. \
Ctrl-C stops.";

#[derive(Args, Debug)]
pub(crate) struct Backup {
    /// The database
    #[arg(value_name = "FILE", value_parser = file())]
    pub(crate) file: PathBuf,

    /// The copy, which must not exist yet
    #[arg(value_name = "OUT", value_parser = file())]
    pub(crate) out: PathBuf,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The database
    #[arg(value_name = "FILE", value_parser = file())]
    pub(crate) file: PathBuf,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Migrate {
    /// Show which migrations are applied, which are pending, and what is wrong
    Status(Migrated),
    /// Show what `up` would apply, which tables it rebuilds, and for how long writes wait
    Plan(Migrated),
    /// Apply those that are pending; creates FILE when there is none
    Up(Up),
    /// End the online rebuild that is under way, and delete what it has made
    Abort(Migrated),
    /// Fail unless all are applied, as they are now
    Verify(Migrated),
}

#[derive(Args, Debug)]
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) of: Migrated,

    /// Apply them in one transaction, and undo it
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Migrated {
    /// The database, or the admin address of the server that has it: http://127.0.0.1:8081, with
    /// /db/NAME/ behind it if there are several
    #[arg(value_name = "FILE|URL", value_parser = file())]
    pub(crate) place: PathBuf,

    /// The directory with the migrations
    #[arg(long, value_name = "DIR", default_value = "migrations")]
    pub(crate) dir: PathBuf,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A path that can be a file's. What the library opens in memory is gone with the command.
pub(super) fn file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        if path == Path::new(":memory:") {
            Err("a database in memory is gone with this command; name a file (./:memory: is one)")
        } else {
            Ok(path)
        }
    })
}
