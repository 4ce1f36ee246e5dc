//! What may be said to the verbs of the feature `developer`.

mod checks;

pub(crate) use checks::Checks;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use monolite_bench::tps;
use monolite_torture::conform;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Transfers a second between millions of accounts: monolite, raw SQLite, PostgreSQL
    #[command(long_about = TPS_HELP)]
    Tps(Tps),
    /// Ways to begin a transaction, by many threads: DEFERRED, IMMEDIATE, monolite
    Begin(SuiteRun),
    /// What an archive costs those who write, and how long they wait for it
    Archive(OfArchives),
    /// Your own statements on your own schema: raw SQLite, monolite, PostgreSQL
    #[command(long_about = YOURS_HELP, after_help = YOURS_EXAMPLE)]
    Yours(Yours),
    /// `monolite serve` over loopback beside PostgreSQL, with clients in several languages
    #[command(long_about = SERVER_HELP)]
    Server(OfServers),
    /// tps and begin, one after the other: one record, one report
    #[command(long_about = ALL_HELP)]
    All(All),
    /// Print the tables of recorded runs
    Report(Report),
}

const TPS_HELP: &str = "\
Transfers a second between millions of accounts: monolite, raw SQLite, PostgreSQL.

Loads accounts, then measures every candidate in turn, round after round, on the same work: raw \
SQLite in a tight loop (the limit), monolite (isolated and acknowledged one by one), and a private \
PostgreSQL that is started from the installed binaries and removed afterwards. Every operation \
counts when it is acknowledged; checkpoints are in the timed window; the money is verified account \
by account. The default run takes five minutes with PostgreSQL on 2 cores, --quick under one, \
--full about 35. Each says first how long it will take, and ends in a summary; all tables are \
printed with --tables, and are in the record that stays in --data.

The work is that of Anders Murphy's article \"100000 TPS over a billion rows: the unreasonable \
effectiveness of SQLite\" (2025).

Beside bursts, waiting clients and reads, there are transactions in the middle of which the \
application takes 0, 1, 5 or 10 ms: monolite's interactive transactions, a raw BEGIN IMMEDIATE \
held meanwhile, and PostgreSQL with pools of 8, 64 and 256. --only delay/ runs them with updates \
computed in SQL, --only decide/ with balances that the application reads and writes, --only \
sleepers/ and cost/ the rest of what interactive transactions promise. --only mixed/, hot-rows/, \
hot-row/ and parent-child/ run transactions that want the same rows, by 12 to 1,024 clients and as \
many connections of PostgreSQL. --only uniform/ runs a burst on accounts each of which is equally \
likely: data larger than the cache. --only \
backup/ runs what no other run does: a burst with and without backups beside it.

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

    /// Measure every cell: buffered commits, all numbers of clients, all delays, sleepers, CPU
    #[arg(long, conflicts_with = "quick")]
    pub(crate) full: bool,

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

    /// Transactions of a burst, per round [default: 200000, with --quick 60000, with --full 300000]
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

    #[command(flatten)]
    pub(crate) output: Output,

    /// Run only scenarios whose name contains FILTER, e.g. `burst/durable` or `monolite-128`
    #[arg(long, value_name = "FILTER")]
    pub(crate) only: Option<String>,

    /// Limit of the engine's WAL in MiB; raw SQLite checkpoints at the same size as the engine does
    #[arg(long, value_name = "MIB", default_value_t = tps::WAL_LIMIT_BYTES >> 20)]
    pub(crate) wal_limit_mib: u64,
}

#[derive(Args, Debug)]
pub(crate) struct SuiteRun {
    /// Finish in under a minute: little data, one short round; figures are rough
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,

    /// Measure every cell, on more data
    #[arg(long)]
    pub(crate) full: bool,

    /// Directory on the disk to measure; what is loaded is removed, the record stays
    #[arg(long, value_name = "DIR", default_value = "./bench-data")]
    pub(crate) data: PathBuf,

    /// Rows to load, of the suites that have one number of them
    #[arg(long, value_name = "N", value_parser = whole_number)]
    pub(crate) rows: Option<u64>,

    /// Counted rounds, after one that is dropped [default: 3, or 1 with --quick]
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,

    /// Leave PostgreSQL out
    #[arg(long)]
    pub(crate) no_postgres: bool,

    /// Run only scenarios whose name contains FILTER, as `disk-10-0` or `monolite`
    #[arg(long, value_name = "FILTER")]
    pub(crate) only: Option<String>,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// What becomes of a record.
#[derive(Args, Clone, Debug)]
pub(crate) struct Output {
    /// Print all tables before the summary; `tps --full` does
    #[arg(long)]
    pub(crate) tables: bool,

    /// Print the record as JSON instead of a summary
    #[arg(long)]
    pub(crate) json: bool,

    /// Write a record of the run into DIR/DATE-SUITE: README.md, raw.json, summary.md
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
}

const ALL_HELP: &str = "\
The suites tps and begin, one after the other.

Each says first how long it takes, and leaves its own latest-SUITE.json in --data when it is done. \
--quick takes two minutes, the default ten, and --full, with every cell, 45. At the end there are \
latest-all.json and latest-all.md; `bench report` takes the former as it takes the record of one \
suite. A run that was stopped leaves the record of the suite that was done.";

#[derive(Args, Debug)]
pub(crate) struct All {
    /// Finish each suite in under a minute; figures are rough
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,

    /// Measure every cell
    #[arg(long)]
    pub(crate) full: bool,

    /// Directory on the disk to measure; loaded accounts and records stay in it
    #[arg(long, value_name = "DIR", default_value = "./bench-data")]
    pub(crate) data: PathBuf,

    /// Leave PostgreSQL out
    #[arg(long)]
    pub(crate) no_postgres: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

const YOURS_HELP: &str = "\
Your own statements on your own schema: raw SQLite, monolite, PostgreSQL.

Each --write and each --read is a transaction, of one statement or of several separated by \
semicolons. A client draws one of them, runs it, waits until it is acknowledged (on disk), and \
draws the next. A parameter, :name, has one value in a transaction, from the generator that \
--param gives it:

  :id uniform(1..1e6)   a whole number, each equally likely
  :id zipf(1e6)         from 1 on, number n in proportion to 1/n; zipf(1e6, 1.2) to n^-1.2
  :id pareto(1..1e6)    as published: almost all draws go to few numbers
  :id serial            1, 2, 3 …, for new rows; goes on where --load has stopped
  :t text(20)           letters, digits and spaces
  :b blob(1KiB)         random bytes
  :t now                the time, as RFC 3339

Every trial works on a fresh copy of what --schema and --load have made, and SQLite's own checks \
must find nothing afterwards. PostgreSQL gets the same texts, SERIALIZABLE; what it does not \
accept is said in its words.";

const YOURS_EXAMPLE: &str = "\
Example:
  monolite bench yours --schema schema.sql \\
    --load '100000 INSERT INTO post (id, title, likes) VALUES (:n, :title, 0)' \\
    --write 'UPDATE post SET likes = likes + 1 WHERE id = :id' \\
    --read 'SELECT title, likes FROM post WHERE id = :id' \\
    --param ':n serial' --param ':title text(60)' --param ':id zipf(1e5)' \\
    --mix 75/25 --clients 64";

const SERVER_HELP: &str = "\
`monolite serve` over loopback beside PostgreSQL, with clients in several languages.

Both servers are processes of their own on this machine, durable, with the same tables and the same \
number of connections. Autocommit reads and updates, batches, interactive transactions with 0 and 5 \
ms of the application's time by 1 to 1,000 clients, a parent and its child, one row that all want, \
many databases, idle connections. Tables show the CPU of the server and of its clients, which share \
the machine.

@libsql/client, libsql-client-go and libsql-client of Python take part if their packages are \
installed: see the guide `clients`. A client that is missing is reported as such.";

#[derive(Args, Debug)]
pub(crate) struct OfServers {
    /// Directory of the programs in other languages
    #[arg(long, value_name = "DIR", default_value = "examples/clients")]
    pub(crate) examples: PathBuf,

    #[command(flatten)]
    pub(crate) run: SuiteRun,
}

#[derive(Args, Debug)]
pub(crate) struct OfArchives {
    /// Bucket for the archives, as s3://bucket/prefix?region=REGION, instead of directories on the
    /// disk that is measured; they are deleted at the end
    #[arg(long, value_name = "URL")]
    pub(crate) archive: Option<String>,

    #[command(flatten)]
    pub(crate) run: SuiteRun,
}

#[derive(Args, Debug)]
pub(crate) struct Yours {
    /// SQL that makes the tables, and anything else that must be there
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: PathBuf,

    /// A transaction that writes; may be given several times, each is drawn equally often
    #[arg(long, value_name = "SQL")]
    pub(crate) write: Vec<String>,

    /// A transaction that only reads; may be given several times
    #[arg(long, value_name = "SQL")]
    pub(crate) read: Vec<String>,

    /// Statements that load rows, N times; may be given several times, in order
    #[arg(long, value_name = "N SQL")]
    pub(crate) load: Vec<String>,

    /// What a parameter becomes, as ':id uniform(1..1e6)'
    #[arg(long = "param", value_name = "NAME GENERATOR")]
    pub(crate) parameters: Vec<String>,

    /// Reads and writes out of a hundred [default: 75/25]
    #[arg(long, value_name = "READS/WRITES")]
    pub(crate) mix: Option<String>,

    /// Clients that wait at the same time, beside a run with one alone
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) clients: u64,

    #[command(flatten)]
    pub(crate) run: SuiteRun,
}

#[derive(Args, Debug)]
pub(crate) struct Report {
    /// Records: raw.json, or the latest-SUITE.json that a run leaves in --data; latest-all.json has
    /// those of all suites
    #[arg(required = true, value_name = "RECORD")]
    pub(crate) files: Vec<PathBuf>,

    /// Print them as Markdown, as in summary.md
    #[arg(long)]
    pub(crate) markdown: bool,
}

pub(crate) const TORTURE_HELP: &str = "\
Try to break every promise on this machine's own disk, and count what was lost.

Runs the checks that are named, each with its amount, or all of them with their defaults (some \
15 minutes on 2 cores). Every check also runs known-bad arrangements (controls) that it must \
notice; one that goes unnoticed breaks the verdict. Power cuts need root: they mount small file \
systems of their own from image files and shut those down. Everything else runs as any user. \
What cannot run here is reported as skipped.

A failure keeps its evidence and prints the command that repeats it. Exit code 0 means that every \
promise was kept, 1 that one was not. Ctrl-C stops, and reports what was found until then.";

#[derive(Args, Debug)]
pub(crate) struct Torture {
    #[command(flatten)]
    pub(crate) checks: Checks,

    /// Run again a schedule that --history has kept as evidence
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub(crate) replay: Option<PathBuf>,

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

pub(crate) const CONFORM_HELP: &str = "\
Run SQL scripts on plain SQLite and on all paths of Monolite, and show where they differ.

Takes every .sql file (statements as for the sqlite3 shell) below the directories, and runs each \
on every path: writes, reads and interactive transactions, by every call that takes SQL. Plain \
SQLite of the same build runs beside it and decides what is right: rows with their types, column \
names, numbers of changed rows, errors with their codes, at the end everything that the database \
holds, and the file that is left. A `BEGIN ... COMMIT` of a script is one transaction.

What differs by design is told in docs/differences.md and does not count. Exit code 0 means that \
nothing else differs, 1 that something does. Ctrl-C stops, and reports what was found until then.";

pub(crate) const CONFORM_EXAMPLE: &str = "\
Example:
  $ echo \"CREATE TABLE t(a UNIQUE); INSERT INTO t VALUES (1), (1); SELECT * FROM t;\" > my.sql
  $ monolite conform my.sql
  $ monolite conform conform --path write --path transaction";

#[derive(Args, Debug)]
pub(crate) struct Conform {
    /// Directories with scripts, or scripts
    #[arg(value_name = "DIR", required = true)]
    pub(crate) scripts: Vec<PathBuf>,

    /// Take this path only; can be repeated [default: all]
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
}

/// The paths by their names, each with what it is.
fn paths() -> impl TypedValueParser<Value = &'static conform::Path> {
    let values = conform::PATHS.iter().map(|path| PossibleValue::new(path.name).help(path.about));
    PossibleValuesParser::new(values)
        .map(|name| conform::Path::named(&name).expect("the parser has the names from there"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaArgument {
    /// `account(id PRIMARY KEY, balance INT)`: two B-trees, as in Murphy's article
    Published,
    /// `account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL) STRICT`: one B-tree
    Tuned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SkewArgument {
    /// A Pareto-like curve over a billion ids, folded into the table, as in Murphy's article
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
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    fn tps(arguments: &[&str]) -> Result<Tps, clap::Error> {
        let line = ["monolite", "bench", "tps"].iter().chain(arguments);
        Arguments::try_parse_from(line).map(|arguments| match arguments.command {
            Command::Bench(Bench::Tps(tps)) => tps,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn defaults_are_the_run_of_five_minutes() {
        let tps = tps(&[]).unwrap();
        assert_eq!((tps.rows, tps.rounds, tps.quick, tps.full), (None, None, false, false));
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
        assert!(conform(&["scripts", "--path", "shared"]));
        assert!(!conform(&[]) && !conform(&["scripts", "--path", "found"]));
    }

    #[test]
    fn a_postgres_cannot_be_both_named_and_left_out() {
        assert!(tps(&["--postgres", "postgres://x", "--no-postgres"]).is_err());
    }
}
