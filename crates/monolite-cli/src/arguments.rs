//! What may be said on the command line.

mod archive;
mod export;
mod files;
mod lint;
mod serve;
mod sql;

pub(crate) use archive::{Adopt, Archive, Archived, Compact, Follow, Promote, Restore, Status};
pub(crate) use export::{Export, ExportPostgres};
pub(crate) use files::{Backup, Check, Migrate, Migrated, Up};
pub(crate) use lint::Lint;
pub(crate) use serve::{Serve, Token};
pub(crate) use sql::{Mode, Sql};

use crate::developer::arguments as developer;
use clap::{Parser, Subcommand};

/// Looks after databases of Monolite: SQLite files with many writers at once.
#[derive(Debug, Parser)]
#[command(name = "monolite", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy a database that no process has open, into one file, whole and on disk
    #[command(long_about = files::BACKUP_HELP)]
    Backup(Backup),

    /// Look for damage in a database that no process has open: pages, rows, indexes, foreign keys
    #[command(long_about = files::CHECK_HELP)]
    Check(Check),

    /// Change a database's schema step by step, each step once
    #[command(subcommand, long_about = files::MIGRATE_HELP)]
    Migrate(Migrate),

    /// Carry a database to a bigger engine, with a report of what is not the same there
    #[command(subcommand)]
    Export(Export),

    /// List what of a schema and of statements another engine would treat otherwise
    #[command(long_about = lint::LINT_HELP)]
    Lint(Lint),

    /// Serve databases over the network, for the clients of libSQL
    #[command(long_about = serve::SERVE_HELP)]
    Serve(Serve),

    /// Run SQL on a database of a server, or in a file
    #[command(long_about = sql::SQL_HELP)]
    Sql(Sql),

    /// Make a token for a client of `monolite serve`
    #[command(long_about = serve::TOKEN_HELP)]
    Token(Token),

    /// Look at a database's history in a directory or a bucket, or tend it
    #[command(subcommand, long_about = archive::ARCHIVE_HELP)]
    Archive(Archive),

    /// Restore a database from an archive, as it is now or as it was
    #[command(long_about = archive::RESTORE_HELP)]
    Restore(Restore),

    /// Keep a file up to date with an archive, for reads
    #[command(long_about = archive::FOLLOW_HELP)]
    Follow(Follow),

    /// Have a file that follows be the primary's
    #[command(long_about = archive::PROMOTE_HELP)]
    Promote(Promote),

    /// Measure on this machine what is promised, beside the alternatives (feature `developer`)
    #[cfg_attr(feature = "developer", command(subcommand))]
    Bench(developer::Bench),

    /// Try to break every promise on this machine's own disk (feature `developer`)
    #[command(long_about = developer::TORTURE_HELP)]
    Torture(developer::Torture),

    /// Run SQL scripts on plain SQLite and on all paths of Monolite (feature `developer`)
    #[command(long_about = developer::CONFORM_HELP, after_help = developer::CONFORM_EXAMPLE)]
    Conform(developer::Conform),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn migrations_have_a_database_and_a_directory() {
        let migrate = |arguments: &[&str]| {
            Arguments::try_parse_from(["monolite", "migrate"].iter().chain(arguments)).is_ok()
        };
        assert!(migrate(&["up", "shop.db", "--dir", "migrations"]) && migrate(&["up", "shop.db"]));
        assert!(migrate(&["up", "shop.db", "--dry-run"]) && !migrate(&["plan", "x", "--dry-run"]));
        assert!(!migrate(&["up"]) && !migrate(&["down", "shop.db", "--dir", "x"]));
    }
}
