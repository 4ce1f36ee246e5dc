//! Chores of this repository, as `cargo xtask COMMAND`: the CI gate and the checks behind it.
//!
//! Each command is one module: [`ci`] runs them together, [`tidy`] checks what reviewers forget,
//! [`package`](mod@package) makes the files that people install, [`range`] builds both ends of the
//! `rusqlite` versions that Monolite accepts, [`conform`] compares scripts with plain SQLite,
//! [`clients`] runs published clients of the server, [`originals`] builds Litestream, [`count`]
//! weighs the tree, [`models`] checks schedules of the engine's threads, [`torture`] runs
//! `monolite torture` with the amounts that every change must survive, [`planted`] shows that it
//! finds bugs, and [`mutants`] that the tests do.
//!
//! # Not here
//! What needs the operating system's package manager: `scripts/setup`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

mod ci;
mod clients;
mod command;
mod conform;
mod count;
mod fuzz;
mod models;
mod mutants;
mod originals;
mod package;
mod planted;
mod range;
mod tidy;
mod torture;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use torture::Amounts;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  check                          fmt, tidy, clippy, unit tests: what `make check` runs
  test                           fmt, tidy, tests: what `make test` runs
  gate                           clippy, docs, models, rusqlite range, conform, torture, fuzz,
                                 clients: what `make gate`, and so CI, runs behind the tests
  trust                          the torture at the amounts of a release, `planted`, `mutants`
                                 (more than a day): what `make trust` runs
  models [NAME]                  check schedules of the engine's threads (a minute)
  tidy                           the checks of this repository that no other tool makes
  count [CHECKOUT]               lines by crate and kind, words, public names, assertions
  package [--check]              the command as a wheel and as packages of npm, into
                                 target/packages; with --check, install and run them
  conform                        our scripts on plain SQLite and on all of Monolite's paths
  clients                        published clients of libSQL and their suites on our server
  torture                        `monolite torture` with the amounts of the gate (minutes)
  planted [NAME]                 plant bugs into copies of the engine; the torture must find each
  mutants [FILE]...              change the writer and interactive transactions, an expression
                                 at a time; a test must fail (most of a day; needs cargo-mutants)
  rusqlite-range                 check monolite with both ends of its rusqlite range, and
                                 beside sqlx and diesel
  rusqlite-range --resolve-only  only show that the versions resolve (seconds)
  fuzz [SECONDS] [--asan]        run every fuzz target for so long (30); needs nightly and
                                 cargo-fuzz
  rusqlite-range --test          run the two crates' tests at each end as well (minutes)
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["test"] => root().and_then(|root| ci::test(&root)),
        ["check"] => root().and_then(|root| ci::check(&root)),
        ["trust"] => root().and_then(|root| ci::trust(&root)),
        ["gate"] => root().and_then(|root| ci::gate(&root)),
        ["tidy"] => root().and_then(|root| tidy::run(&root)),
        ["models"] => root().and_then(|root| ci::models(&root, models::ALL)),
        ["models", name] => root().and_then(|root| ci::models(&root, name)),
        ["count"] => root().and_then(|root| count::run(&root)),
        ["count", checkout] => count::run(Path::new(checkout)),
        ["package"] => root().and_then(|root| package(&root).map(drop)),
        ["package", "--check"] => {
            root().and_then(|root| package::installed::check(&package(&root)?))
        }
        ["conform"] => root().and_then(|root| conform::run(&root)),
        ["clients"] => root().and_then(|root| clients::run(&root).map(drop)),
        ["torture"] => root().and_then(|root| torture::run(&root, Amounts::Gate).map(drop)),
        ["planted"] => root().and_then(|root| planted::run(&root, "")),
        ["planted", name] => root().and_then(|root| planted::run(&root, name)),
        ["mutants"] => root().and_then(|root| mutants::run(&root, &mutants::ROOMS)),
        ["mutants", files @ ..] => root().and_then(|root| mutants::run(&root, files)),
        ["fuzz", rest @ ..] => root().and_then(|root| fuzz(&root, rest)),
        ["rusqlite-range"] => root().and_then(|root| range::run(&root, range::Depth::Check)),
        ["rusqlite-range", "--resolve-only"] => {
            root().and_then(|root| range::run(&root, range::Depth::Resolve))
        }
        ["rusqlite-range", "--test"] => {
            root().and_then(|root| range::run(&root, range::Depth::Test))
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn package(root: &Path) -> anyhow::Result<package::Packages> {
    match package::missing() {
        Some(missing) => anyhow::bail!("{missing}"),
        None => package::build(root, "release"),
    }
}

fn fuzz(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    let (sanitizer, words) = match words {
        [rest @ .., "--asan"] => (fuzz::Sanitizer::Address, rest),
        all => (fuzz::Sanitizer::None, all),
    };
    let seconds = match words {
        [] => fuzz::SECONDS,
        [seconds] => seconds.parse().context("the seconds are a whole number")?,
        _ => anyhow::bail!("say: cargo xtask fuzz [SECONDS] [--asan]"),
    };
    match fuzz::run(root, seconds, sanitizer)? {
        None => Ok(()),
        Some(missing) => anyhow::bail!("{missing}"),
    }
}

/// The folder of the workspace, two above this crate's manifest.
fn root() -> anyhow::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map(Path::to_owned).context("xtask lies two folders below the root")
}
