//! What may be said on the command line.

mod checks;

pub(crate) use checks::Checks;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use monolite_bench::tps;
use monolite_torture::conform;
use std::path::PathBuf;

/// One SQLite file, made the equal of a production database server.
#[derive(Debug, Parser)]
#[command(name = "monolite", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure on this machine what is promised, beside the alternatives
    #[command(subcommand)]
    Bench(Bench),

    /// Try to break every promise on this machine's own disk, and count what was lost
    #[command(long_about = TORTURE_HELP)]
    Torture(Torture),

    /// Run SQL scripts on plain SQLite and on all paths of Monolite, and show where they differ
    #[command(long_about = CONFORM_HELP, after_help = CONFORM_EXAMPLE)]
    Conform(Conform),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Transfers a second between millions of accounts: monolite, raw SQLite, PostgreSQL
    #[command(long_about = TPS_HELP)]
    Tps(Tps),
    /// Print the tables of a recorded run again
    Report(Report),
}

const TPS_HELP: &str = "\
Transfers a second between millions of accounts: monolite, raw SQLite, PostgreSQL.

Loads accounts, then measures every candidate in turn, round after round, on the same work: raw \
SQLite in a tight loop (the limit), monolite (isolated and acknowledged one by one), and a private \
PostgreSQL that is started from the installed binaries and removed afterwards. Every operation \
counts when it is acknowledged; checkpoints are in the timed window; the money is verified account \
by account. The default run takes about 25 minutes with PostgreSQL on 2 cores, --quick under one.

Beside bursts, waiting clients and reads, there are transactions in the middle of which the \
application takes 0, 1, 5 or 10 ms: monolite's interactive transactions, a raw BEGIN IMMEDIATE \
held meanwhile, and PostgreSQL with pools of 8, 64 and 256. --only delay/ runs them with updates \
computed in SQL, --only decide/ with balances that the application reads and writes, --only \
mixed/, hot-row/, sleepers/ and cost/ the rest of what interactive transactions promise. --only \
profile/ runs what no other run does: the same reads and writes with the profile for untrusted SQL \
and without it.

The loaded accounts stay in --data and are used again by the next run. Ctrl-C stops cleanly.";

#[derive(Args, Debug)]
pub(crate) struct Tps {
    /// Accounts to load: up to 2,000,000,000; a billion take about 31 GB [default: 10000000]
    #[arg(long, value_name = "N", value_parser = whole_number)]
    pub(crate) rows: Option<u64>,

    /// Finish in under a minute: a million accounts, one short round, a cell or two of each kind;
    /// figures are rough
    #[arg(long)]
    pub(crate) quick: bool,

    /// Print the record as JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,

    /// Directory of the loaded accounts, kept between runs; the device under it is measured
    #[arg(long, value_name = "DIR", default_value = "./bench-data")]
    pub(crate) data: PathBuf,

    /// How the SQLite table is declared
    #[arg(long, value_enum, default_value_t = SchemaArgument::Published)]
    pub(crate) schema: SchemaArgument,

    /// How accounts are drawn
    #[arg(long, value_enum, default_value_t = SkewArgument::Pareto)]
    pub(crate) skew: SkewArgument,

    /// Counted rounds, after one that is dropped [default: 3, or 1 with --quick]
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,

    /// Transactions of a burst, per round [default: 300000, or 60000 with --quick]
    #[arg(long, value_name = "N", value_parser = whole_number)]
    pub(crate) transactions: Option<u64>,

    /// Use this PostgreSQL, in a schema `monolite_bench` that is dropped afterwards; no TLS
    #[arg(long, value_name = "URL", conflicts_with = "no_postgres")]
    pub(crate) postgres: Option<String>,

    /// Leave PostgreSQL out
    #[arg(long)]
    pub(crate) no_postgres: bool,

    /// Clients of interactive transactions, a line for each number [default: 64,512,2000, or 512
    /// with --quick]
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = whole_number)]
    pub(crate) clients: Option<Vec<u64>>,

    /// Write a record of the run into DIR/DATE-tps: README.md, raw.json, summary.md
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,

    /// Run only scenarios whose name contains FILTER, as `burst/durable` or `monolite-128`
    #[arg(long, value_name = "FILTER")]
    pub(crate) only: Option<String>,

    /// Add a burst of this many seconds beside a reader that holds a snapshot for ten of them
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(11..=86_400))]
    pub(crate) sustained: Option<u64>,

    /// Limit of the engine's WAL in MiB; raw SQLite checkpoints at the same size as the engine does
    #[arg(long, value_name = "MIB", default_value_t = tps::WAL_LIMIT_BYTES >> 20)]
    pub(crate) wal_limit_mib: u64,
}

#[derive(Args, Debug)]
pub(crate) struct Report {
    /// The raw.json of a record
    pub(crate) file: PathBuf,

    /// Print Markdown, as in summary.md
    #[arg(long)]
    pub(crate) markdown: bool,
}

const TORTURE_HELP: &str = "\
Try to break every promise on this machine's own disk, and count what was lost.

Runs the checks that are named, each with its amount, or all of them with modest amounts (some \
minutes on 2 cores). Every check also runs known-bad arrangements (controls) that it must notice; \
one that goes unnoticed breaks the verdict. Power cuts need root: they mount small file systems \
of their own from image files and shut those down. Everything else runs as anybody. What cannot \
run here is reported as skipped.

A failure keeps its evidence and prints the command that repeats it. Exit code 0 means that every \
promise was kept, 1 that one was not. Ctrl-C stops, and reports what was found until then.";

#[derive(Args, Debug)]
pub(crate) struct Torture {
    #[command(flatten)]
    pub(crate) checks: Checks,

    /// Run what --differential or --history keeps as evidence once more
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub(crate) replay: Option<PathBuf>,

    /// Print what comes of which accident, as docs/accidents.md has it, and run nothing
    #[arg(long, exclusive = true)]
    pub(crate) list_accidents: bool,

    /// Directory on the disk to test; scratch files are made in it and removed
    #[arg(long, value_name = "PATH", default_value = ".")]
    pub(crate) dir: PathBuf,

    /// Repeat the run, or the case, with this seed [default: random]
    #[arg(long, value_name = "SEED", value_parser = whole_number)]
    pub(crate) seed: Option<u64>,

    /// Print the result as JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

const CONFORM_HELP: &str = "\
Run SQL scripts on plain SQLite and on all paths of Monolite, and show where they differ.

Takes every .sql file (statements as for the sqlite3 shell) and every .test file (sqllogictest) \
below the directories, and runs each on every path: writes, reads, batches, interactive \
transactions that lose their connection, and so on. Plain SQLite of the same build runs beside it \
and decides what is right: rows with their types, column names, numbers of changed rows, errors \
with their codes, at the end everything that the database holds, and the file that is left. A \
`BEGIN ... COMMIT` of a script is one transaction.

What differs by design is told in docs/differences.md and does not count. Exit code 0 means that \
nothing else differs, 1 that something does. Ctrl-C stops, and reports what was found until then.";

const CONFORM_EXAMPLE: &str = "\
Example:
  $ echo \"CREATE TABLE t(a UNIQUE); INSERT INTO t VALUES (1), (1); SELECT * FROM t;\" > my.sql
  $ monolite conform my.sql
  $ monolite conform conform --path write --path transaction";

#[derive(Args, Debug)]
pub(crate) struct Conform {
    /// Directories with scripts, or scripts
    #[arg(value_name = "DIR", required_unless_present = "list_differences")]
    pub(crate) scripts: Vec<PathBuf>,

    /// Take this path only; may be said several times [default: all]
    #[arg(long = "path", value_name = "NAME", value_parser = paths())]
    pub(crate) paths: Vec<&'static conform::Path>,

    /// Scripts that run at once [default: the number of cores, at most 8]
    #[arg(long, value_name = "N", value_parser = whole_number)]
    pub(crate) threads: Option<u64>,

    /// Directory in which databases are made and removed [default: that for temporary files]
    #[arg(long, value_name = "PATH")]
    pub(crate) scratch: Option<PathBuf>,

    /// Print the result as JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the list of differences by design, as docs/differences.md has it, and run nothing
    #[arg(long, exclusive = true)]
    pub(crate) list_differences: bool,

    /// Print which features of SQLite the scripts exercise, as docs/sqlite-features.md has it, and
    /// run nothing
    #[arg(long)]
    pub(crate) list_features: bool,
}

/// The paths by their names, each with what it is.
fn paths() -> impl TypedValueParser<Value = &'static conform::Path> {
    let values = conform::PATHS.iter().map(|path| PossibleValue::new(path.name).help(path.about));
    PossibleValuesParser::new(values)
        .map(|name| conform::Path::named(&name).expect("the parser has the names from there"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaArgument {
    /// `account(id PRIMARY KEY, balance INT)`: two B-trees, as in the article
    Published,
    /// `account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL) STRICT`: one B-tree
    Tuned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SkewArgument {
    /// A Pareto-like curve over a billion ids, folded into the table, as in the article
    Pareto,
    /// Every account equally likely
    Uniform,
}

fn whole_number(text: &str) -> Result<u64, String> {
    let digits = text.replace(['_', ','], "");
    digits.parse().map_err(|_| format!("{text} is not a whole number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn tps(arguments: &[&str]) -> Result<Tps, clap::Error> {
        let line = ["monolite", "bench", "tps"].iter().chain(arguments);
        Arguments::try_parse_from(line).map(|arguments| match arguments.command {
            Command::Bench(Bench::Tps(tps)) => tps,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn defaults_are_the_full_run() {
        let tps = tps(&[]).unwrap();
        assert_eq!((tps.rows, tps.rounds, tps.quick), (None, None, false));
        assert_eq!(tps.schema, SchemaArgument::Published);
        assert_eq!(tps.wal_limit_mib, 256);
    }

    #[test]
    fn rows_may_be_grouped() {
        assert_eq!(tps(&["--rows", "1_000_000_000"]).unwrap().rows, Some(1_000_000_000));
        assert!(tps(&["--rows", "many"]).is_err());
    }

    #[test]
    fn a_path_is_one_of_the_list() {
        let conform = |arguments: &[&str]| {
            Arguments::try_parse_from(["monolite", "conform"].iter().chain(arguments)).is_ok()
        };
        assert!(conform(&["scripts", "--path", "lost"]) && conform(&["--list-differences"]));
        assert!(!conform(&[]) && !conform(&["scripts", "--path", "found"]));
    }

    #[test]
    fn a_postgres_cannot_be_both_named_and_left_out() {
        assert!(tps(&["--postgres", "postgres://x", "--no-postgres"]).is_err());
    }
}
