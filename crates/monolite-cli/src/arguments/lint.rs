//! The arguments of `monolite lint`.

use std::path::PathBuf;

use clap::Args;

pub(super) const LINT_HELP: &str = "\
List what of a schema and of statements another engine would treat otherwise.

Each FILE is one of SQL, or a database, whose schema is looked at. Name the schema and the \
statements of an application together: what depends on the type of a column is found where the \
schema is known, and so is what SQLite does not understand, but for errors of syntax, which are \
found in any case. Exit code 0 means that nothing was found, 1 that something was.";

#[derive(Args, Debug)]
pub(crate) struct Lint {
    /// Files of SQL, or databases
    #[arg(value_name = "FILE", required = true, value_parser = super::files::file())]
    pub(crate) files: Vec<PathBuf>,

    /// Compare with PostgreSQL
    #[arg(long, required = true)]
    pub(crate) portable: bool,

    /// Print the places as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
