//! The arguments of `monolite export`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

const POSTGRES_HELP: &str = "\
Carry schema and rows to PostgreSQL, and compare both sides.

All rows are of one snapshot. With a URL, everything is done in one transaction: tables, rows, \
then constraints, indexes and views; then both sides' rows are counted and compared by a \
checksum, which reads all of them once more. The transaction is committed if they are equal. The \
schema of the database must be empty; ?options=-csearch_path%3DNAME in the URL names another. With \
a directory, files for psql are written: psql -f DIR/load.sql. Constraints that PostgreSQL refuses \
are warnings of psql then.

No other process may have SOURCE open; export a backup of a database that is in use, or use \
--follow.

With --follow the application goes on meanwhile, in another process: on plain SQLite, or on \
Monolite with Sharing::Shared. Triggers in SOURCE note the keys of rows that change, and each \
second PostgreSQL gets these rows, in the same transaction. When all rows were compared, that is \
said. The word switch, a line of standard input, ends it: SOURCE refuses writes from then on \
(triggers say so), the last changes are carried and the transaction is committed. That is the \
pause; its end is said. Then the application may begin on PostgreSQL. All rows are compared once \
more, as of the switch, and foreign keys are validated. Each table needs a primary key. If it \
fails before the switch, or is stopped by Ctrl-C, nothing is left in SOURCE or PostgreSQL; if it \
is killed, --abort removes what is left in SOURCE. It also lets SOURCE take writes again after a \
switch.

A column of a table that is not STRICT gets the type of the values in its rows. The report lists \
all that is changed or not carried.

Exit code 0 means that everything is there; 3 that all rows are, and some of the schema is not; 1 \
that nothing was exported, or that a comparison after the switch failed. Ctrl-C stops, and leaves \
nothing.";

#[derive(Debug, Subcommand)]
pub(crate) enum Export {
    /// Carry schema and rows to PostgreSQL, and compare both sides
    #[command(long_about = POSTGRES_HELP)]
    Postgres(ExportPostgres),
}

#[derive(Args, Debug)]
pub(crate) struct ExportPostgres {
    /// The database
    #[arg(value_name = "SOURCE", value_parser = super::files::file())]
    pub(crate) source: PathBuf,

    /// URL of an empty database (postgres://user@host/name?sslmode=require; the password may be in
    /// PGPASSWORD), or a directory to make
    #[arg(long, value_name = "URL|DIR", required_unless_present = "abort")]
    pub(crate) to: Option<String>,

    /// What becomes of columns whose rows hold values of several types [default: refused]
    #[arg(long)]
    pub(crate) mixed: Option<Mixed>,

    /// Write nothing, and compare SOURCE with what is there from an export
    #[arg(long)]
    pub(crate) verify: bool,

    /// Go on with changes of an application that has SOURCE open, until the line "switch" on
    /// standard input
    #[arg(long, conflicts_with = "verify")]
    pub(crate) follow: bool,

    /// Remove from SOURCE what --follow has made or left there, and do nothing else
    #[arg(long, conflicts_with_all = ["to", "follow", "verify", "mixed", "json"])]
    pub(crate) abort: bool,

    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The type of a column with values of several types.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Mixed {
    /// Texts, as CAST makes them; blobs as \\x and hexadecimal digits
    Text,
}
