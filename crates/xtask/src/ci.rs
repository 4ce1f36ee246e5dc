//! What is run when: `cargo xtask check` after each change, `test` by a newcomer, `gate` behind it
//! by CI, `trust` before a release. Every step is run even when an earlier one failed, so that one
//! run shows all there is to mend.
//!
//! # Skipped tests
//! libtest cannot skip a test while it runs. A test that finds it cannot run here (no root, no loop
//! device) appends one line to the file named by `MONOLITE_SKIPS` and returns; this module counts
//! those lines as skipped, not as passed, and prints them.
//!
//! # Tests that hang
//! One that does not end within [`slow::LIMIT`] is named and ends the run, as does a run that is
//! not done within [`LIMIT`]. Tests that take over a minute are listed at the end.

mod failures;
mod slow;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context as _, bail};

use crate::command::{cargo_path, succeed};
use crate::torture::Amounts;
use crate::{
    clients, conform, fuzz, models, mutants, originals, package, planted, range, tidy, torture,
};
use failures::Failures;
use slow::SlowTests;

/// The feature of the command that has the verbs of developers.
const DEVELOPER: &str = "monolite-cli/developer";

/// What the tests are built with, and what clippy sees: all features of the engine. The examples
/// that would turn `serde` on are not built with the tests, and nothing turns `tracing` on.
const FEATURES: &str = "monolite-cli/developer,monolite/serde,monolite/tracing";

/// Examples that the gate alone builds and tests: their web frameworks and clients are a third of
/// all packages.
const WEB_EXAMPLES: [&str; 3] = ["actix", "ledger", "shop"];

/// The variable that names the file in which tests write why they were skipped.
const SKIPS: &str = "MONOLITE_SKIPS";

/// The variable that gives the tests their seed, and its default: what a change is judged by is the
/// same for every change. The torture draws others each time.
const SEED: (&str, &str) = ("MONOLITE_SEED", "20261124");

/// The variable by which libtest takes how many tests run at once.
const THREADS: &str = "RUST_TEST_THREADS";

/// After this, a run of CI that is not done hangs.
const LIMIT: Duration = Duration::from_secs(35 * 60);

/// Outcomes of one or several test binaries.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Long tests that `make test` leaves to the gate.
    left: u64,
}

/// A finished step of the gate.
struct Step {
    name: &'static str,
    took: Duration,
    failure: Option<String>,
}

/// What is under way: the name of the step, and those of its tests that take long.
struct UnderWay {
    step: &'static str,
    tests: SlowTests,
}

type Watched = Arc<Mutex<UnderWay>>;

fn lock(watched: &Watched) -> MutexGuard<'_, UnderWay> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the tests of all steps came to.
struct Tested {
    tally: Tally,
    under_way: Watched,
}

/// Steps, and what their tests came to.
struct Run {
    steps: Vec<Step>,
    tested: Tested,
}

/// Which tests are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tests {
    /// Those beside the code that they test.
    Unit,
    All,
    /// Those that take long, which the others leave out.
    Long,
    /// Those of [`WEB_EXAMPLES`], which the others leave out.
    WebExamples,
}

/// Runs what finds most mistakes in the least time.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let mut run = Run::new(Some(LIMIT));
    run.step("fmt", |_| cargo(root, &["fmt", "--all", "--check"]));
    run.step("tidy", |_| tidy::run(root));
    run.step("clippy", |_| clippy(root));
    run.step("unit tests", |tested| tests(root, Tests::Unit, tested));
    run.report()
}

/// Runs the tests.
pub(crate) fn test(root: &Path) -> anyhow::Result<()> {
    let mut run = Run::new(Some(LIMIT));
    run.step("fmt", |_| cargo(root, &["fmt", "--all", "--check"]));
    run.step("tidy", |_| tidy::run(root));
    run.step("test", |tested| tests(root, Tests::All, tested));
    let ran = run.report();
    failures::keep(root, &ran).context("cannot keep what failed")?;
    ran
}

/// Runs the models whose names contain `name`.
pub(crate) fn models(root: &Path, name: &str) -> anyhow::Result<()> {
    let mut run = Run::new(Some(LIMIT));
    run.step("models", |tested| counted(&mut models::command(root, name)?, tested));
    run.report()
}

/// Runs everything else that a change must pass.
pub(crate) fn gate(root: &Path) -> anyhow::Result<()> {
    let mut run = Run::new(Some(LIMIT));
    run.step("clippy", |_| clippy(root));
    run.step("docs", |_| docs(root));
    run.step("command", |tested| command_of_users(root, tested));
    run.step("packages", |tested| packages(root, tested));
    run.step("originals", |_| {
        if let Some(missing) = originals::build(root)? {
            println!("no Litestream, so its tests are skipped: {missing}");
        }
        Ok(())
    });
    run.step("long tests", |tested| tests(root, Tests::Long, tested));
    run.step("web examples", |tested| tests(root, Tests::WebExamples, tested));
    run.step("models", |tested| counted(&mut models::command(root, models::ALL)?, tested));
    run.step("rusqlite range", |_| range::run(root, range::Depth::Check));
    run.step("conform", |_| conform::run(root));
    run.step("torture", |tested| {
        tested.tally.skipped += torture::run(root, Amounts::Gate)?;
        Ok(())
    });
    run.step("fuzz", |tested| {
        if let Some(missing) = fuzz::run(root, fuzz::SECONDS, fuzz::Sanitizer::None)? {
            println!("skipped: fuzz: {missing}");
            tested.tally.skipped += 1;
        }
        Ok(())
    });
    run.step("clients", |tested| {
        let ran = clients::run(root)?;
        tested.tally.passed += ran.passed;
        tested.tally.skipped += ran.skipped;
        Ok(())
    });
    let ran = run.report();
    let failed = failures::of_the_last_tests(root);
    if !failed.is_empty() {
        println!("`make test`, when it last ran here: {failed}");
    }
    ran
}

/// Runs what takes too long for every change.
pub(crate) fn trust(root: &Path) -> anyhow::Result<()> {
    let mut run = Run::new(None);
    run.step("torture", |tested| {
        tested.tally.skipped += torture::run(root, Amounts::Release)?;
        Ok(())
    });
    run.step("planted bugs", |_| planted::run(root, ""));
    run.step("mutants", |_| mutants::run(root, &mutants::ROOMS));
    run.report()
}

impl Run {
    fn new(limit: Option<Duration>) -> Run {
        let under_way = UnderWay { step: "begin", tests: SlowTests::default() };
        let under_way = Arc::new(Mutex::new(under_way));
        end_what_hangs(Arc::clone(&under_way), limit);
        Run { steps: Vec::new(), tested: Tested { tally: Tally::default(), under_way } }
    }

    fn step(&mut self, name: &'static str, work: impl FnOnce(&mut Tested) -> anyhow::Result<()>) {
        lock(&self.tested.under_way).step = name;
        println!("\n==> {name}");
        let start = Instant::now();
        let failure = work(&mut self.tested).err().map(|error| format!("{error:#}"));
        let took = start.elapsed();
        match &failure {
            None => println!("==> {name}: ok in {:.1} s", took.as_secs_f64()),
            Some(why) => println!("==> {name}: FAILED in {:.1} s: {why}", took.as_secs_f64()),
        }
        self.steps.push(Step { name, took, failure });
    }

    /// Prints the table of steps and at the end the sum of all tests, and what failed.
    fn report(&self) -> anyhow::Result<()> {
        println!("\n==> summary");
        for step in &self.steps {
            let word = if step.failure.is_some() { "FAILED" } else { "ok" };
            println!("{:<16} {word:<7} {:>7.1} s", step.name, step.took.as_secs_f64());
        }
        let total: Duration = self.steps.iter().map(|step| step.took).sum();
        println!("{:<16} {:<7} {:>7.1} s\n", "all", "", total.as_secs_f64());
        for (test, took) in lock(&self.tested.under_way).tests.slowest() {
            println!("slow: {test} took {:.0} s", took.as_secs_f64());
        }
        let Tally { passed, failed, skipped, left } = self.tested.tally;
        println!("{passed} passed, {failed} failed, {skipped} skipped, {left} left to the gate");
        let failures: Vec<String> = self
            .steps
            .iter()
            .filter_map(|step| step.failure.as_ref().map(|why| format!("{}: {why}", step.name)))
            .collect();
        if !failures.is_empty() {
            bail!("failed:\n{}", failures.join("\n"));
        }
        Ok(())
    }
}

/// Ends this program, and says what was under way, when a test hangs or everything takes longer
/// than `limit`.
fn end_what_hangs(under_way: Watched, limit: Option<Duration>) {
    let start = Instant::now();
    thread::spawn(move || {
        loop {
            thread::sleep(Duration::from_secs(1));
            let (under_way, now) = (lock(&under_way), Instant::now());
            let (step, hanging) = (under_way.step, under_way.tests.hanging(now));
            if !hanging.is_empty() {
                let minutes = slow::LIMIT.as_secs() / 60;
                println!("\n==> {step}: not ended after {minutes} minutes: {}", hanging.join(", "));
                process::exit(1);
            }
            if let Some(limit) = limit.filter(|limit| now - start > *limit) {
                let minutes = limit.as_secs() / 60;
                println!(
                    "\n==> {step}: gave up {minutes} minutes after the start; on a busy machine, \
                     run it again: what is built is kept"
                );
                process::exit(1);
            }
        }
    });
}

fn clippy(root: &Path) -> anyhow::Result<()> {
    let most = ["--workspace", "--features", FEATURES];
    for what in [&most[..], &["--package", "monolite-cli"]] {
        let rest = ["--all-targets", "--locked", "--", "-D", "warnings"];
        cargo(root, &[&["clippy"], what, &rest].concat())?;
    }
    Ok(())
}

/// Documents programs first: `monolite` is both a library and a command, and the library's pages
/// are the ones to leave behind.
fn docs(root: &Path) -> anyhow::Result<()> {
    for targets in [&["--bins", "--exclude", "monolite"][..], &["--lib"][..]] {
        let mut command = Command::new(cargo_path());
        command.current_dir(root).env("RUSTDOCFLAGS", "-D warnings");
        command.args(["doc", "--workspace", "--no-deps", "--locked"]).args(targets);
        command.args(["--features", DEVELOPER]);
        succeed(&mut command)?;
    }
    Ok(())
}

/// Tests the command as users install it, without the verbs of developers.
fn command_of_users(root: &Path, tested: &mut Tested) -> anyhow::Result<()> {
    let mut command = Command::new(cargo_path());
    command.current_dir(root).args(["test", "--locked", "--package", "monolite-cli"]);
    counted(command.args(["--test", "it", "--", "verbs_of_developers"]), tested)
}

/// Installs the packages of a build without optimisations: it is there, and takes no minutes.
fn packages(root: &Path, tested: &mut Tested) -> anyhow::Result<()> {
    if let Some(missing) = package::missing() {
        println!("skipped: packages: {missing}");
        tested.tally.skipped += 1;
        return Ok(());
    }
    package::installed::check(&package::build(root, "dev")?)
}

/// Runs the tests and counts them, also when some fail.
fn tests(root: &Path, which: Tests, tested: &mut Tested) -> anyhow::Result<()> {
    let skips = root.join("target/skipped-tests.txt");
    fs::create_dir_all(root.join("target"))?;
    fs::write(&skips, "").context("cannot clear the list of skipped tests")?;
    let mut command = Command::new(cargo_path());
    command.current_dir(root).args(["test", "--locked", "--no-fail-fast"]);
    let examples = |word| WEB_EXAMPLES.iter().flat_map(move |example| [word, *example]);
    match which {
        Tests::WebExamples => command.args(examples("--package")),
        Tests::Unit | Tests::All | Tests::Long => {
            let rest = ["--workspace", "--features", FEATURES];
            command.args(rest).args(examples("--exclude"))
        }
    };
    command
        .args(match which {
            Tests::Unit => &["--lib", "--bins"][..],
            Tests::All => &[],
            Tests::WebExamples => &["--", "--include-ignored"],
            Tests::Long => &["--lib", "--bins", "--tests", "--", "--ignored"],
        })
        .env(SKIPS, &skips);
    if env::var_os(SEED.0).is_none() {
        command.env(SEED.0, SEED.1);
    }
    if env::var_os(THREADS).is_none() {
        // Most tests wait for the disk or for a thread rather than for a core.
        let cores = thread::available_parallelism().map_or(1, usize::from);
        command.env(THREADS, (2 * cores).to_string());
    }
    if which == Tests::Long {
        command.env("PATH", originals::path(root)?);
    }
    let ran = counted(&mut command, tested);
    tested.tally.count_skips(&fs::read_to_string(&skips)?);
    ran
}

/// Runs `command`, which runs tests, and counts them, also when some fail.
fn counted(command: &mut Command, tested: &mut Tested) -> anyhow::Result<()> {
    // Errors go into the same pipe, so that a program that died is seen between the others.
    let (output, input) = std::io::pipe().context("cannot make a pipe")?;
    command
        .stdin(Stdio::null())
        .stderr(input.try_clone().context("cannot share a pipe")?)
        .stdout(input);
    let mut child = command.spawn().context("cannot start the tests")?;
    // Our ends of the pipe, which would keep it open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (mut ran, mut failures) = (Tally::default(), Failures::default());
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        ran.add(&line);
        lock(&tested.under_way).tests.add(&line, Instant::now());
        failures.add(&line);
    }
    let status = child.wait()?;
    tested.tally.join(ran);
    ran.check_that_some_passed()?;
    if !status.success() || ran.failed > 0 {
        bail!("{} tests failed ({status})\n{}", ran.failed, failures.told());
    }
    Ok(())
}

impl Tally {
    /// Adds one line of output if it is libtest's closing line.
    fn add(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else { return };
        let counts = rest.split_once(". ").map_or("", |(_, counts)| counts);
        for part in counts.split("; ") {
            match part.split_once(' ').map(|(n, what)| (n.parse::<u64>(), what)) {
                Some((Ok(n), "passed")) => self.passed += n,
                Some((Ok(n), "failed")) => self.failed += n,
                Some((Ok(n), "ignored")) => self.left += n,
                _ => {}
            }
        }
    }

    fn join(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.left += other.left;
    }

    fn check_that_some_passed(&self) -> anyhow::Result<()> {
        if self.passed == 0 {
            bail!("no test ran");
        }
        Ok(())
    }

    /// Moves tests that said they could not run here from passed to skipped.
    fn count_skips(&mut self, reasons: &str) {
        for reason in reasons.lines().filter(|line| !line.trim().is_empty()) {
            println!("skipped: {reason}");
            self.skipped += 1;
            self.passed = self.passed.saturating_sub(1);
        }
    }
}

fn cargo(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    succeed(Command::new(cargo_path()).current_dir(root).args(words))
}

#[cfg(test)]
mod tests;
