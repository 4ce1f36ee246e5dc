//! SQL from somebody who means harm, through the profile for untrusted SQL: nothing gets out of the
//! database, nobody else notices, and everything ends.
//!
//! # Algorithm
//! 1. A child process ([`victim`]) tries one case after another, each in a database of its own and
//!    in each [`Way`], and says what it sees. When it dies, or when a case does not end and its
//!    watchman ends the process, the case is an escape and another child goes on with the next.
//! 2. An **escape** is: a case that was not refused or did not fail as it must; a file that
//!    appeared; a neighbour in the same batch that failed, or whose row is missing; a changed
//!    setting of any connection; a deadline exceeded by more than [`victim::SLACK`]; memory above
//!    the limit; a change of what the case did not name, or of an idempotency key; broken
//!    integrity; a dead process.
//! 3. Other children ([`crowd`]) run statements drawn at random from a grammar with sizes at the
//!    limits ([`grammar`]), and an escape is also a statement that ends later than twice its limit
//!    and 100 ms, a neighbour that waits longer, and memory beyond the budget and 32 MiB.
//! 4. Controls: SQLite without the engine, and the engine without the profile, must let some cases
//!    escape.

mod cases;
mod crowd;
mod grammar;
mod machine;
#[cfg(test)]
mod tests;
mod victim;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;

use anyhow::Result;
use monolite_testkit::child::Program;
use monolite_testkit::scratch::in_memory;

use crate::{Amount, Check, Finding, Outcome, Setting};

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "hostile",
    about: "Run SQL from somebody who means harm: the named cases, and N that are drawn at \
            random (an hour: some 70000)",
    unit: "cases",
    amount: Amount::NumberIfSaid,
    modest: 300,
    total,
    run,
    roles: &[(victim::ROLE, victim::play), (crowd::ROLE, crowd::play)],
};

/// Who runs the SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    /// The engine with the profile.
    Profile,
    /// The engine without it, and with other limits.
    Engine,
    /// SQLite alone.
    Nobody,
}

impl Guard {
    const ALL: [(&'static str, Guard); 3] =
        [("profile", Guard::Profile), ("engine", Guard::Engine), ("nobody", Guard::Nobody)];

    fn name(self) -> &'static str {
        Guard::ALL.iter().find(|(_, guard)| *guard == self).map_or("", |(name, _)| name)
    }
}

/// How a case is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Write,
    WriteOnce,
    /// As `Write`, by a closure that goes on after the error and returns `Ok`.
    Swallow,
    Read,
    /// An interactive transaction.
    Transaction,
}

impl Way {
    const ALL: [(&'static str, Way); 5] = [
        ("write", Way::Write),
        ("write_once", Way::WriteOnce),
        ("write that swallows errors", Way::Swallow),
        ("read", Way::Read),
        ("transaction", Way::Transaction),
    ];

    fn name(self) -> &'static str {
        Way::ALL.iter().find(|(_, way)| *way == self).map_or("", |(name, _)| name)
    }
}

/// Cases that must escape somebody, for the controls: by their names.
const ESCAPE_SQLITE: &[&str] = &["ATTACH 'new.db' AS n", "VACUUM INTO 'new.db'", "COMMIT"];
const ESCAPE_ENGINE: &[&str] = &["PRAGMA integrity_check", "endless count"];
const ESCAPE_MEMORY: &str = "small sort of blobs";

/// Milliseconds by which a drawn statement may end later than twice its limit.
const SLACK_MS: u64 = 100;

/// Seeds that are given to one child at once.
const SEEDS: u64 = 100;

/// One escape.
struct Escape {
    /// The number of the case, or the seed of what was drawn.
    case: u64,
    what: String,
}

/// How many cases there are, in all ways, when so many are drawn.
fn total(drawn: u64) -> u64 {
    (cases::all().len() * Way::ALL.len()) as u64 + drawn
}

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let mut outcome = CHECK.outcome();
    draw(setting, amount, &mut outcome)?;
    tell_all(setting, &mut outcome)?;
    if !setting.watch.is_stopped() {
        controls(setting.program, &mut outcome)?;
    }
    Ok(outcome)
}

/// Runs what is drawn at random, `amount` times.
fn draw(setting: &Setting<'_>, amount: u64, outcome: &mut Outcome) -> Result<()> {
    let mut next = 0;
    while next < amount && !setting.watch.is_stopped() {
        let count = SEEDS.min(amount - next);
        let seeds: Vec<u64> = (next..next + count).map(|it| setting.case_seed(it)).collect();
        next += count;
        let mut done = |count| {
            outcome.attempted += count;
            setting.watch.done(count);
            setting.watch.is_stopped()
        };
        for escape in attempt(setting.program, &Part::drawn(SLACK_MS), &seeds, &mut done)? {
            outcome.anomalies += 1;
            outcome.found(Finding {
                what: format!("seed {}: {}", escape.case, escape.what),
                evidence: None,
                reproduce: format!("monolite torture --hostile 1 --seed {}", escape.case),
            });
        }
    }
    outcome.notes.push(format!("{next} statements or transactions were drawn"));
    Ok(())
}

fn tell_all(setting: &Setting<'_>, outcome: &mut Outcome) -> Result<()> {
    let cases = cases::all();
    for (_, way) in Way::ALL {
        let numbers: Vec<u64> = (0..cases.len() as u64).collect();
        let mut done = |count| {
            outcome.attempted += count;
            setting.watch.done(count);
            setting.watch.is_stopped()
        };
        let part = Part::told(Guard::Profile, way);
        for escape in attempt(setting.program, &part, &numbers, &mut done)? {
            let case = &cases[usize::try_from(escape.case)?];
            report(setting, outcome, way, case, &escape.what)?;
        }
    }
    let names: BTreeSet<_> = cases.iter().map(|case| case.name.as_str()).collect();
    outcome.notes.push(format!("{} named cases in {} ways", names.len(), Way::ALL.len()));
    Ok(())
}

/// What children are told besides the numbers of their cases.
struct Part {
    role: &'static str,
    variables: Vec<(&'static str, String)>,
}

impl Part {
    fn told(guard: Guard, way: Way) -> Part {
        let variables =
            vec![(victim::GUARD, guard.name().into()), (victim::WAY, way.name().into())];
        Part { role: victim::ROLE, variables }
    }

    fn drawn(slack_ms: u64) -> Part {
        Part { role: crowd::ROLE, variables: vec![(crowd::SLACK, slack_ms.to_string())] }
    }
}

fn report(
    setting: &Setting<'_>,
    outcome: &mut Outcome,
    way: Way,
    case: &cases::Case,
    what: &str,
) -> Result<()> {
    outcome.anomalies += 1;
    let seed = setting.case_seed(0);
    let evidence = setting.evidence(seed)?;
    let mut notes = File::options().create(true).append(true).open(evidence.join("escapes"))?;
    writeln!(notes, "case {}, {}: {what}\n{}\n{}\n", case.name, way.name(), case.setup, case.sql)?;
    outcome.found(Finding {
        what: format!("case {:.200}, {}: {what}", case.name, way.name()),
        evidence: Some(evidence),
        reproduce: format!("monolite torture --hostile 0 --seed {seed}"),
    });
    Ok(())
}

/// Runs the cases with these numbers, in as many children as it takes; `done` is told of each and
/// says whether to stop.
fn attempt(
    program: &Program,
    part: &Part,
    numbers: &[u64],
    done: &mut dyn FnMut(u64) -> bool,
) -> Result<Vec<Escape>> {
    let (mut escapes, mut next) = (Vec::new(), 0);
    while next < numbers.len() {
        let list: Vec<_> = numbers[next..].iter().map(u64::to_string).collect();
        let directory = in_memory(&std::env::temp_dir())?;
        let path = directory.path().to_string_lossy();
        let list = list.join(",");
        let mut variables = vec![(victim::DIRECTORY, &*path), (victim::CASES, list.as_str())];
        variables.extend(part.variables.iter().map(|(name, value)| (*name, value.as_str())));
        let mut child = program.spawn(part.role, &variables)?;
        let (mut running, mut escaped, mut failed) = (None, false, String::new());
        while let Some(line) = child.next_line() {
            if let Some(number) = line.strip_prefix("case ") {
                running = number.parse().ok();
                escaped = false;
            } else if let (Some(case), Some(what)) = (running, line.strip_prefix("escape ")) {
                escapes.push(Escape { case, what: what.into() });
                escaped = true;
            } else if let Some(why) = line.strip_prefix("failed ") {
                failed = format!(": {why}");
            } else if line == "done" {
                running = None;
                next += 1;
                if done(1) {
                    return Ok(escapes);
                }
            }
        }
        if let Some(case) = running {
            if !escaped {
                let what = format!("the process died: {}{failed}", child.end()?);
                escapes.push(Escape { case, what });
            }
            next += 1;
            done(1);
        } else if next < numbers.len() {
            let ended = child.end()?;
            anyhow::bail!("the child ended before it had tried every case: {ended}{failed}");
        }
    }
    Ok(escapes)
}

/// Without the profile, or without the engine, something must escape.
fn controls(program: &Program, outcome: &mut Outcome) -> Result<()> {
    let cases = cases::all();
    let number = |name: &&str| cases.iter().position(|case| case.name == **name);
    let mut control = |name: &str, guard, way, names: &[&str]| -> Result<()> {
        let numbers: Vec<_> = names.iter().filter_map(number).map(|it| it as u64).collect();
        let escapes = attempt(program, &Part::told(guard, way), &numbers, &mut |_| false)?;
        let escaped: BTreeSet<_> = escapes.iter().map(|escape| escape.case).collect();
        let is_detected = !numbers.is_empty() && escaped.len() == names.len();
        let seen: Vec<_> = escapes.iter().map(|escape| escape.what.as_str()).collect();
        let how = format!("{} of {} escaped: {:.300}", escaped.len(), names.len(), seen.join("; "));
        outcome.control(name, is_detected, how);
        Ok(())
    };
    control("SQLite alone", Guard::Nobody, Way::Write, ESCAPE_SQLITE)?;
    control("no profile and a long deadline", Guard::Engine, Way::Read, ESCAPE_ENGINE)?;
    control("no profile and no memory limit", Guard::Engine, Way::Read, &[ESCAPE_MEMORY])
}
