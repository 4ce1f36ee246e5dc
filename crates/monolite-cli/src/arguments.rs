//! What may be said on the command line.

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
mixed/, sleepers/ and cost/ the rest of what interactive transactions promise. --only profile/ \
runs what no other run does: the same reads and writes with the profile for untrusted SQL and \
without it.

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
    /// Compare N statements of every form, run in every way, with plain SQLite
    #[arg(long, value_name = "N", value_parser = amount)]
    pub(crate) differential: Option<u64>,

    /// Kill the process with SIGKILL N times under load
    #[arg(long, value_name = "N", value_parser = amount)]
    pub(crate) kills: Option<u64>,

    /// Cut the power of real file systems N times, ext4 and xfs in turn; needs root
    #[arg(long, value_name = "N", value_parser = amount)]
    pub(crate) cuts: Option<u64>,

    /// Open N crash images made from unsynced writes: dropped, reordered, torn
    #[arg(long, value_name = "N", value_parser = amount)]
    pub(crate) images: Option<u64>,

    /// Fail every single I/O of N scenarios, once and for good
    #[arg(long, value_name = "N", value_parser = amount)]
    pub(crate) sweeps: Option<u64>,

    /// Check N transactions against a serial model, with faults on
    #[arg(long, value_name = "N", value_parser = amount)]
    pub(crate) history: Option<u64>,

    /// Flip N single bits in database and WAL files
    #[arg(long, value_name = "N", value_parser = amount)]
    pub(crate) flips: Option<u64>,

    /// Run SQL from somebody who means harm: the named cases, and N that are drawn at random (an
    /// hour: some 20000)
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "300")]
    pub(crate) hostile: Option<u64>,

    /// Run N rounds of closures that block, nest, panic, close and sleep, beside honest work
    #[arg(long, value_name = "N", value_parser = amount)]
    pub(crate) closures: Option<u64>,

    /// Offer ten times the load it can take, in limited memory, for a time, as 20s
    #[arg(long, value_name = "T", value_parser = seconds, num_args = 0..=1,
          default_missing_value = "20s")]
    pub(crate) overload: Option<u64>,

    /// Have every accident of docs/accidents.md; fill disks, fail syncs and allocations, turn the
    /// clock
    #[arg(long)]
    pub(crate) environment: bool,

    /// Run mixed load with kills and schema changes for a time, as 90s, 30m or 2h
    #[arg(long, value_name = "T", value_parser = seconds)]
    pub(crate) soak: Option<u64>,

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

/// A check that is to do nothing would find nothing.
fn amount(text: &str) -> Result<u64, String> {
    match whole_number(text)? {
        0 => Err("it is at least 1; leave the option out to leave the check out".into()),
        amount => Ok(amount),
    }
}

/// Reads a time as `90`, `90s`, `30m` or `2h` into seconds.
fn seconds(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(digits) if text.ends_with('m') => (digits, 60),
        Some(digits) if text.ends_with('h') => (digits, 3_600),
        Some(digits) => (digits, 1),
        None => (text, 1),
    };
    let wrong = || format!("{text} is not a time such as 90s, 30m or 2h");
    let number = whole_number(digits).map_err(|_| wrong())?;
    number.checked_mul(unit).filter(|seconds| *seconds > 0).ok_or_else(wrong)
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
    fn times_have_units() {
        let read: Vec<_> = ["90", "90s", "30m", "2h"].into_iter().map(seconds).collect();
        assert_eq!(read, [Ok(90), Ok(90), Ok(1_800), Ok(7_200)]);
        for wrong in ["", "h", "0s", "-1s", "1d", "99999999999999999999h", "9999999999999999999h"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_check_that_does_nothing_is_refused() {
        let torture = |arguments: &[&str]| {
            Arguments::try_parse_from(["monolite", "torture"].iter().chain(arguments))
        };
        for check in ["differential", "kills", "cuts", "images", "sweeps", "history", "flips"] {
            let option = format!("--{check}");
            let told = torture(&[&option, "0"]).unwrap_err().to_string();
            assert!(told.contains("at least 1"), "{told}");
            assert!(torture(&[&option, "1", "--seed", "0"]).is_ok());
        }
        for option in ["--closures", "--overload", "--soak"] {
            assert!(torture(&[option, "0"]).is_err(), "{option}");
        }
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
