//! Bugs planted into scratch copies of the engine, to see that `monolite torture` finds them.
//!
//! # Algorithm
//! 1. Copy what Git tracks to `target/planted`, replace the text of one safety rule by a broken one
//!    and build the command, optimised. What has not changed since the bug before is neither
//!    copied nor compiled again.
//! 2. Run `monolite torture` with its default settings until a check says that something broke, and
//!    ask it to stop.
//!    Bugs in the server are hunted by its check alone, those in the archive's protocol by its
//!    simulation, and those of [`RULES`] by the unit test of the rule, which must fail.
//! 3. Print which check said so and after how long. A bug that was not found within
//!    [`PATIENCE`] fails the command.

mod rules;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::command::{cargo_path, succeed};
use rules::RULES;

/// How long the torture may take to find a bug.
const PATIENCE: Duration = Duration::from_secs(600);

/// What `monolite torture` says on standard error when a check is over that found something.
const SAYS_BROKEN: &str = ": broken: ";

/// Bugs in here are hunted by the simulation of the protocol: the engine deletes no slots yet.
const PROTOCOL: &str = "crates/monolite-archive/src/protocol/";

/// Bugs in here are hunted by the check of the server: the others take most of the patience.
const SERVER: (&str, [&str; 2]) = ("crates/monolite-server/", ["--server", "100"]);

/// The simulation, how many schedules it tries, and what it says of one that broke history.
const SCHEDULES: &str = "schedules::nothing_acknowledged_is_lost_in_any_schedule";
const MANY: &str = "100000";
const SAYS_VIOLATED: &str = " repeats this: ";

/// What `timeout` returns when it has ended a program.
const TIMED_OUT: i32 = 124;

/// A safety rule and how to break it.
struct Bug {
    name: &'static str,
    file: &'static str,
    /// Each text stands once in the file, and is replaced by the other.
    changes: &'static [(&'static str, &'static str)],
}

const BUGS: [Bug; 30] = [
    Bug {
        name: "acknowledge before the sync",
        file: "crates/monolite/src/write/sync.rs",
        changes: &[
            (
                "        let is_durable = self.sync_up_to(last, end);\n        \
                 batches.into_iter().for_each(|batch| self.give(batch, is_durable));\n",
                "        batches.into_iter().for_each(|it| self.give(it, true));\n        \
                 self.sync_up_to(last, end);\n",
            ),
            (
                "            let is_durable = \
                 self.sync_up_to(batch.number, batch.position);\n            \
                 self.give(batch, is_durable);\n",
                "            let (number, to) = (batch.number, batch.position);\n            \
                 self.give(batch, true);\n            self.sync_up_to(number, to);\n",
            ),
        ],
    },
    Bug {
        name: "skip the autocommit check after a member",
        file: "crates/monolite/src/write/writer.rs",
        changes: &[(
            "        let lost = !self.connection.is_in_transaction();",
            "        let lost = false;",
        )],
    },
    Bug {
        name: "publish a commit whose frames are not all written",
        file: "crates/monolite-sqlite/src/vfs/gather.rs",
        changes: &[(
            "            self.changed.shrink_to(KEPT_PAGES);
            self.flush(lower)?;",
            "            self.changed.shrink_to(KEPT_PAGES);
            if self.held.len() < (64 << 10) {
                self.flush(lower)?;
            }",
        )],
    },
    Bug {
        name: "use a descriptor again after a failed sync",
        file: "crates/monolite/src/write/sync.rs",
        changes: &[(
            "        let result = self.wal.sync();",
            "        let result = self.wal.sync().or_else(|_| self.wal.sync());",
        )],
    },
    Bug {
        name: "off by one in the order of WAL frames",
        file: "crates/monolite-sqlite/src/vfs/gather.rs",
        changes: &[(
            "        let written = self.inner.write(lower, &held, self.held_at);",
            "        let frame = (FRAME_HEADER_BYTES + self.page_bytes.unwrap_or(0)) as usize;
        if held.len() >= 3 * frame {
            held[..2 * frame].rotate_left(frame);
        }
        let written = self.inner.write(lower, &held, self.held_at);",
        )],
    },
    Bug {
        name: "the digest of what an interactive transaction saw is not compared",
        file: "crates/monolite/src/transaction/steps.rs",
        changes: &[(
            "                Ok(seen) => is_report || seen == step.seen,",
            "                Ok(seen) => \
             (seen.rows, seen.ended) == (step.seen.rows, step.seen.ended),",
        )],
    },
    Bug {
        name: "a turn that replaces the validation",
        file: "crates/monolite/src/transaction/replay.rs",
        changes: &[(
            "        let replayed = self.steps.replay_in_writer(tx, extent, self.validation);",
            "        let has_turn = self.visit.has_turn();
        let validation = if has_turn { Validation::Off } else { self.validation };
        let replayed = self.steps.replay_in_writer(tx, extent, validation);",
        )],
    },
    Bug {
        name: "half of the pages are forgotten in the read set of an interactive transaction",
        file: "crates/monolite-sqlite/src/pcache.rs",
        changes: &[(
            "        if cache.is_recording && pgno != 1 {",
            "        if cache.is_recording && pgno != 1 && pgno % 2 == 0 {",
        )],
    },
    Bug {
        name: "what leading reads have read is noted again, in place of what was noted before",
        file: "crates/monolite/src/transaction/connection.rs",
        changes: &[(
            "        let mut leading = self.leading.borrow_mut();
        if let Leading::GoOn = *leading {
            *leading = Leading::Ended(self.reader.connection.pages().take());
        }",
            "        let mut leading = self.leading.borrow_mut();
        *leading = Leading::Ended(self.reader.connection.pages().take());
        self.reader.connection.pages().track(MAX_PAGES);",
        )],
    },
    Bug {
        name: "new statistics raise no schema version",
        file: "crates/monolite-sqlite/src/connection/schema.rs",
        changes: &[(
            "                if traits.has(Traits::STATISTICS) || \
             self.may_lack_statistics(traits)? {",
            "                if traits.is_empty() {",
        )],
    },
    Bug {
        name: "whether a statement asks for changes() is known from when it was prepared",
        file: "crates/monolite-sqlite/src/connection/figures.rs",
        changes: &[("(may_ask || self.may_ask_changes())", "may_ask")],
    },
    Bug {
        name: "queries behind a transaction's own writes are left out at its commit",
        file: "crates/monolite/src/transaction/steps.rs",
        changes: &[(
            "                _ => extent == Extent::AfterLeadingReads && i < leading_reads,",
            "                _ => extent == Extent::AfterLeadingReads && step.is_query(),",
        )],
    },
    Bug {
        name: "the engine's savepoints are kept where the text of a user finds them",
        file: "crates/monolite-sqlite/src/connection/savepoints.rs",
        changes: &[(
            "        self.as_engine(|| self.raw().execute_batch(&sql))?;",
            "        let run = || self.with_statement(&sql, |statement| statement.raw_execute());
        self.as_engine(run)??;",
        )],
    },
    Bug {
        name: "a number is given out twice",
        file: "crates/monolite-sqlite/src/rowids.rs",
        changes: &[(
            "            after(last).map(GivenRowids::last)",
            "            after(last).map(|it| it.last() - i64::from(it.last() % 3 == 0))",
        )],
    },
    Bug {
        name: "a number that was given is used again whoever has it by then",
        file: "crates/monolite-sqlite/src/connection/rowids.rs",
        changes: &[("        is_taken == Ok(false)", "        is_taken.is_ok()")],
    },
    Bug {
        name: "the lock that keeps others of the process out is a shared one",
        file: "crates/monolite-sqlite/src/vfs/locks.rs",
        changes: &[(
            "        lower.lock(EXCLUSIVE).and_then(|()|",
            "        lower.lock(SHARED).and_then(|()|",
        )],
    },
    Bug {
        name: "a transaction begins with the schema that its connection happens to know",
        file: "crates/monolite-sqlite/src/connection.rs",
        changes: &[(
            "        let verified = self.verify_schema()",
            "        if own == Own::BeginImmediate {
            return Ok(());
        }
        let verified = self.verify_schema()",
        )],
    },
    Bug {
        name: "the names of columns are no part of an answer",
        file: "crates/monolite/src/transaction/steps.rs",
        changes: &[(
            "        if self.rows == 0 {
            for i in 0..columns {",
            "        if self.rows == 0 {
            for i in 0..0 {",
        )],
    },
    Bug {
        name: "what a change of the schema that failed has left in memory stays there",
        file: "crates/monolite-sqlite/src/connection/schema.rs",
        changes: &[(
            "        if traits.is_empty() || !self.is_in_transaction() {",
            "        if traits.is_empty() || traits.has(Traits::SCHEMA) {",
        )],
    },
    Bug {
        name: "a transaction that only read is answered before what it saw is on disk",
        file: "crates/monolite/src/transaction/open.rs",
        changes: &[(
            "            return self.answer_when_durable(seen);",
            "            return self.answer_when_durable(seen.min(BatchNumber::default()));",
        )],
    },
    Bug {
        name: "a drop or a waker that panics takes a thread of the engine with it",
        file: "crates/monolite/src/call/discards.rs",
        changes: &[(
            "    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // Its drop could panic as well.
        std::mem::forget(payload);
    }",
            "    run();",
        )],
    },
    Bug {
        name: "one way to reach the engine's names is missing from what is refused",
        file: "crates/monolite-sqlite/src/names.rs",
        changes: &[("        | AuthAction::Update { table_name, .. }\n", "")],
    },
    Bug {
        name: "an untrusted query may use any pragma",
        file: "crates/monolite-sqlite/src/untrusted.rs",
        changes: &[(
            "AuthAction::Pragma { pragma_name, .. } => self.refusal_of_pragma(pragma_name),",
            "AuthAction::Pragma { .. } => None,",
        )],
    },
    Bug {
        name: "an untrusted query has more time than its caller allows",
        file: "crates/monolite/src/untrusted/room.rs",
        changes: &[("Patience::of(query.limits.time)", "Patience::of(query.limits.time * 100)")],
    },
    Bug {
        name: "the hold is taken after recovery",
        file: "crates/monolite/src/files/open.rs",
        changes: &[
            (
                "    vfs.lock_also(move || locked.lock());\n",
                "    vfs.lock_also(|| Ok(()));\n    drop(locked);\n",
            ),
            (
                "        let recovered = self.recover(&connection);\n",
                "        let recovered = self.recover(&connection).and_then(|frames| {
            let held = hold.map_or(Ok(()), Hold::lock);
            held.map_err(|error| Error::new(ErrorKind::Overloaded, error.to_string()))?;
            Ok(frames)
        });\n",
            ),
        ],
    },
    Bug {
        name: "the registry compares paths instead of identity",
        file: "crates/monolite/src/files/registry.rs",
        changes: &[(
            "        let Some(used) = open.iter().find(|used| used.file == file) else {",
            "        let Some(used) = open.iter().find(|used| used.path == path) else {",
        )],
    },
    Bug {
        name: "a statement behind a dead transaction of the server runs by itself",
        file: "crates/monolite-server/src/stream.rs",
        changes: &[(
            "        let ran = tx.run(&what.sql, parameters, rows, gather(what)).await;
",
            "        let ran = tx.run(&what.sql, parameters, rows, gather(what)).await;
        let conflicts = |error: &monolite::Error| error.kind() == ErrorKind::Conflict;
        if ran.as_ref().is_err_and(|it| conflicts(it) || what.sql.contains(\"OR ROLLBACK\")) {
            self.close();
        }
",
        )],
    },
    Bug {
        name: "a baton of the server is good for more than one request",
        file: "crates/monolite-server/src/streams.rs",
        changes: &[(
            "        if session.requests != requests {",
            "        if session.requests < requests {",
        )],
    },
    Bug {
        name: "an archive is fenced after it was read",
        file: "crates/monolite-archive/src/archiver/upload.rs",
        changes: &[
            (
                "        let mut claim = Claim::new(candidate, Grounds::Known);\n",
                "        let archive = &self.shared.archive;
        let found = carry_out(archive.store.as_ref(), &archive.layout, &Request::FindNewest);
        let newest = if let Reply::Newest(Some(newest)) = found { newest.get() } else { 1 };
        let below = self.until_answered(Activity::Upload, || self.archived_below(newest))?;
        let Some(below) = below else { return Ok(None) };
        let mut claim = Claim::new(candidate, Grounds::Known);\n",
            ),
            (
                "        let below = || self.archived_below(&claimed);
        let Some(below) = self.until_answered(Activity::Upload, below)? else { return Ok(None) };
        self.stats(",
                "        self.stats(",
            ),
            (
                "fn archived_below(&self, claimed: &Claimed)",
                "fn archived_below(&self, newest: u64)",
            ),
            ("let mut below = claimed.fence().get() - 1;", "let mut below = newest;"),
        ],
    },
    Bug {
        name: "slots are deleted that were filled after the last renewal",
        file: "crates/monolite-archive/src/protocol/primary.rs",
        changes: &[(
            "        let newest = self.found_by_claims;",
            "        let newest = Txid::new(self.next.get() - 1);",
        )],
    },
];

/// Plants every bug whose name contains `filter`, one after another.
pub(crate) fn run(root: &Path, filter: &str) -> anyhow::Result<()> {
    let bugs = BUGS.iter().map(|bug| (bug, None));
    let rules = RULES.iter().map(|(test, bug)| (bug, Some(*test)));
    let chosen: Vec<_> = bugs.chain(rules).filter(|(bug, _)| bug.name.contains(filter)).collect();
    ensure!(!chosen.is_empty(), "no planted bug has {filter:?} in its name");
    let scratch = root.join("target/planted");
    // Files that are gone since the last time would be built, too.
    let copy = scratch.join("copy");
    if copy.exists() {
        fs::remove_dir_all(&copy).context("cannot clear the scratch copy")?;
    }
    let mut missed = Vec::new();
    for (bug, test) in chosen {
        println!("\n==> {}", bug.name);
        plant(root, &copy, bug).with_context(|| bug.name.to_owned())?;
        let found = match test {
            Some(test) => fail(&copy, &scratch, bug, test),
            None if bug.file.starts_with(PROTOCOL) => simulate(&copy, &scratch),
            None => {
                let checks = if bug.file.starts_with(SERVER.0) { &SERVER.1[..] } else { &[] };
                build(&copy, &scratch).and_then(|program| hunt(&program, checks, &scratch))
            }
        };
        match found.with_context(|| bug.name.to_owned())? {
            Some((said, after)) => {
                println!("found after {:.1} s: {said:.200}", after.as_secs_f64())
            }
            None => missed.push(bug.name),
        }
    }
    if !missed.is_empty() {
        bail!("not found: {}", missed.join("; "));
    }
    Ok(())
}

/// Brings what Git tracks to `copy`, with `bug` in it.
fn plant(root: &Path, copy: &Path, bug: &Bug) -> anyhow::Result<()> {
    let listed = Command::new("git").current_dir(root).args(["ls-files", "-z"]).output()?;
    ensure!(listed.status.success(), "git ls-files ended with {}", listed.status);
    let listed = String::from_utf8(listed.stdout).context("a file name is not UTF-8")?;
    for name in listed.split_terminator('\0') {
        let mut bytes = fs::read(root.join(name)).with_context(|| name.to_owned())?;
        if name == bug.file {
            bytes = planted(&String::from_utf8(bytes)?, bug)?.into_bytes();
        }
        write_if_other(&copy.join(name), &bytes).with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// A command that is, or runs, Cargo for the copy.
fn for_copy(program: &str, copy: &Path, scratch: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(copy).stdin(Stdio::null());
    command.env("CARGO_TARGET_DIR", scratch.join("target")).env("CARGO_INCREMENTAL", "1");
    command
}

/// Builds the command.
fn build(copy: &Path, scratch: &Path) -> anyhow::Result<PathBuf> {
    let words = ["build", "--release", "--locked", "--quiet", "--package", "monolite-cli"];
    let words = [&words[..], &["--features", "developer"]].concat();
    succeed(for_copy(&cargo_path(), copy, scratch).args(words))?;
    Ok(scratch.join("target/release/monolite"))
}

/// Simulates the archive's protocol until history is not what was acknowledged; `None` when that
/// did not come in time.
fn simulate(copy: &Path, scratch: &Path) -> anyhow::Result<Option<(String, Duration)>> {
    let words = ["test", "--release", "--locked", "--quiet", "--package", "monolite-archive"];
    let words = [&words[..], &["--test", "it"]].concat();
    succeed(for_copy(&cargo_path(), copy, scratch).args(&words).arg("--no-run"))?;
    let start = Instant::now();
    let mut child = for_copy("timeout", copy, scratch)
        .args([PATIENCE.as_secs().to_string(), cargo_path()])
        .args(&words)
        .args(["--", SCHEDULES])
        .env("MONOLITE_SCHEDULES", MANY)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the simulation")?;
    let said = child.stdout.take().context("its output is piped")?;
    let said = BufReader::new(said).lines().map_while(Result::ok);
    let found = said.filter(|line| line.contains(SAYS_VIOLATED)).last();
    child.wait().context("cannot wait for the simulation")?;
    Ok(found.map(|said| (said, start.elapsed())))
}

/// Runs the unit test `test` of the package that has `bug`; `None` when it does not fail in time.
fn fail(
    copy: &Path,
    scratch: &Path,
    bug: &Bug,
    test: &str,
) -> anyhow::Result<Option<(String, Duration)>> {
    let package = bug.file.split('/').nth(1).context("a package lies in crates")?;
    let words = ["test", "--locked", "--quiet", "--lib", "--package", package];
    succeed(for_copy(&cargo_path(), copy, scratch).args(words).arg("--no-run"))?;
    let start = Instant::now();
    let status = for_copy("timeout", copy, scratch)
        .args([PATIENCE.as_secs().to_string(), cargo_path()])
        .args(words)
        .args(["--", "--exact", test])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot run the test")?;
    let is_found = !status.success() && status.code() != Some(TIMED_OUT);
    Ok(is_found.then(|| (format!("{test} fails"), start.elapsed())))
}

/// Leaves a file as old as it is when it has these bytes already.
fn write_if_other(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if fs::read(file).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    fs::create_dir_all(file.parent().context("a file lies in a folder")?)?;
    Ok(fs::write(file, bytes)?)
}

/// The text of a source file with `bug` in it.
fn planted(text: &str, bug: &Bug) -> anyhow::Result<String> {
    let mut text = text.to_owned();
    for (rule, broken) in bug.changes {
        let count = text.matches(rule).count();
        ensure!(count == 1, "{} has this {count} times: {rule}", bug.file);
        text = text.replace(rule, broken);
    }
    Ok(text)
}

/// Runs `checks`, or all, until one says that something broke; `None` when none did in time.
fn hunt(
    program: &Path,
    checks: &[&str],
    scratch: &Path,
) -> anyhow::Result<Option<(String, Duration)>> {
    let start = Instant::now();
    let mut child = Command::new("timeout")
        .args(["--signal=INT", "--kill-after=30", &PATIENCE.as_secs().to_string()])
        .arg(program)
        .arg("torture")
        .args(checks)
        .args(["--json", "--dir"])
        .arg(scratch)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the torture")?;
    let said = first_broken(&mut child)?.map(|said| (said, start.elapsed()));
    if said.is_some() {
        // `timeout` passes it on, and the torture unmounts and removes what it made.
        succeed(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    }
    child.wait().context("cannot wait for the torture")?;
    Ok(said)
}

fn first_broken(child: &mut Child) -> anyhow::Result<Option<String>> {
    let errors = child.stderr.take().context("standard error is piped")?;
    for line in BufReader::new(errors).lines() {
        let line = line?;
        if line.contains(SAYS_BROKEN) {
            return Ok(Some(line));
        }
    }
    Ok(None)
}

#[test]
fn every_bug_can_still_be_planted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    for bug in BUGS.iter().chain(RULES.iter().map(|(_, bug)| bug)) {
        let text = fs::read_to_string(root.join(bug.file)).unwrap();
        assert_ne!(planted(&text, bug).unwrap(), text, "{}", bug.name);
    }
    for (test, _) in &RULES {
        let declared = format!("fn {}()", test.rsplit("::").next().unwrap());
        let words = ["grep", "--quiet", "--fixed-strings", &declared, "--", "crates"];
        assert!(Command::new("git").current_dir(root).args(words).status().unwrap().success());
    }
}
