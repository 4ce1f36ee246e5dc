//! Queries from a source that means harm, through `Database::query_untrusted`: they change nothing,
//! and no other call waits for them.
//!
//! # Algorithm
//! 1. A child process ([`crowd`]) runs one case after another in a database in which a writer, a
//!    reader and an interactive transaction work all the time. A case is a statement of a list that
//!    must be refused, or one that its seed draws from a grammar with sizes at the
//!    limits and beyond ([`grammar`]).
//! 2. An **escape** is: a forbidden statement that is answered; a caller that waits for longer than
//!    its limit; a write, a read or an interactive transaction that takes longer than [`SLACK_MS`];
//!    memory beyond the budget; a file that appeared; changed contents or settings; a dead process.
//! 3. Controls: a statement that runs on the writer without a limit must hold up a neighbour, and
//!    one that runs as a write must change the contents.

mod crowd;
mod grammar;
mod machine;

use anyhow::Result;
use monolite_testkit::child::Program;
use monolite_testkit::scratch::in_memory;

use crate::{Amount, Check, Finding, Outcome, Setting};
use grammar::forbidden;

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "hostile",
    about: "Run queries from a source that means harm: those that must be refused, and N that are \
            drawn at random (an hour: some 70000)",
    unit: "cases",
    amount: Amount::NumberIfSaid,
    modest: 300,
    total,
    run,
    roles: &[(crowd::ROLE, crowd::play)],
};

/// Milliseconds by which a caller, or a neighbour, may be late: the promise is 100.
const SLACK_MS: u64 = 100;

/// Cases that are given to one child at once.
const CASES: u64 = 100;

/// What a child does besides its cases, for the controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A statement without a limit runs on the writer.
    HoldsWriter,
    /// A statement that must be refused runs as a write.
    Writes,
}

impl Fault {
    const ALL: [(&'static str, Fault); 3] =
        [("none", Fault::None), ("holds-writer", Fault::HoldsWriter), ("writes", Fault::Writes)];

    fn name(self) -> &'static str {
        Fault::ALL.iter().find(|(_, fault)| *fault == self).map_or("", |(name, _)| name)
    }
}

/// One escape: the case's number or seed, and what happened.
struct Escape {
    case: u64,
    what: String,
}

fn total(drawn: u64) -> u64 {
    forbidden().len() as u64 + drawn
}

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let mut outcome = CHECK.outcome();
    let drawn = (0..amount).map(|number| crowd::drawn(setting.case_seed(number)));
    let cases: Vec<u64> = (0..forbidden().len() as u64).chain(drawn).collect();
    for some in cases.chunks(CASES as usize) {
        if setting.watch.is_stopped() {
            break;
        }
        let mut done = || {
            outcome.attempted += 1;
            setting.watch.done(1);
            setting.watch.is_stopped()
        };
        for escape in attempt(setting.program, (Fault::None, SLACK_MS), some, &mut done)? {
            outcome.anomalies += 1;
            outcome.found(Finding {
                what: format!("case {}: {}", escape.case, escape.what),
                evidence: None,
                reproduce: format!("monolite torture --hostile {amount} --seed {}", setting.seed),
            });
        }
    }
    if !setting.watch.is_stopped() {
        for (name, fault) in [
            ("a statement without a limit on the writer", Fault::HoldsWriter),
            ("a forbidden statement as a write", Fault::Writes),
        ] {
            let escapes = attempt(setting.program, (fault, SLACK_MS), &[0], &mut || false)?;
            let seen: Vec<_> = escapes.iter().map(|escape| escape.what.as_str()).collect();
            outcome.control(name, !seen.is_empty(), format!("{:.300}", seen.join("; ")));
        }
    }
    Ok(outcome)
}

/// Runs these cases, in as many children as it takes; `done` is told of each and says whether to
/// stop.
fn attempt(
    program: &Program,
    (fault, slack_ms): (Fault, u64),
    cases: &[u64],
    done: &mut dyn FnMut() -> bool,
) -> Result<Vec<Escape>> {
    let (mut escapes, mut next) = (Vec::new(), 0);
    while next < cases.len() {
        let list: Vec<_> = cases[next..].iter().map(u64::to_string).collect();
        let directory = in_memory(&std::env::temp_dir())?;
        let variables = [
            (crowd::DIRECTORY, &*directory.path().to_string_lossy()),
            (crowd::CASES, &*list.join(",")),
            (crowd::FAULT, fault.name()),
            (crowd::SLACK, &*slack_ms.to_string()),
        ];
        let mut child = program.spawn(crowd::ROLE, &variables)?;
        let mut running = None;
        while let Some(line) = child.next_line() {
            if let Some(number) = line.strip_prefix("case ") {
                running = number.parse().ok();
            } else if let (Some(case), Some(what)) = (running, line.strip_prefix("escape ")) {
                escapes.push(Escape { case, what: what.into() });
            } else if line == "done" {
                running = None;
                next += 1;
                if done() {
                    return Ok(escapes);
                }
            }
        }
        let ended = child.end()?;
        if let Some(case) = running {
            escapes.push(Escape { case, what: format!("the process died: {ended}") });
            next += 1;
            done();
        } else if next < cases.len() {
            anyhow::bail!("the child ended before it had tried every case: {ended}");
        }
    }
    Ok(escapes)
}

#[cfg(test)]
mod tests {
    use monolite_testkit::child;

    use super::*;

    /// Does nothing in an ordinary test run.
    #[test]
    fn plays_the_role_it_was_started_for() {
        child::play(CHECK.roles);
    }

    fn program() -> Program {
        let role = "checks::hostile::tests::plays_the_role_it_was_started_for";
        Program::this_test(role).unwrap()
    }

    #[test]
    fn a_sample_does_not_escape() {
        assert!(forbidden().len() >= 100, "{}", forbidden().len());
        let all = 0..forbidden().len() as u64;
        let cases: Vec<_> = all.step_by(5).chain((1..=12).map(crowd::drawn)).collect();
        // On a busy machine everything takes longer.
        let escapes = attempt(&program(), (Fault::None, 20_000), &cases, &mut || false).unwrap();
        let told: Vec<_> = escapes.iter().map(|it| (it.case, &it.what)).collect();
        assert!(told.is_empty(), "{told:?}");
    }

    #[test]
    #[ignore = "long: the gate runs it"]
    fn what_is_drawn_is_accepted_by_sqlite_and_large() {
        let mut rng = fastrand::Rng::with_seed(5);
        let drawn: Vec<_> = (0..400).map(|_| grammar::statement(&mut rng)).collect();
        assert!(drawn.iter().any(|sql| sql.len() > 10_000));
        let plain = monolite::rusqlite::Connection::open_in_memory().unwrap();
        plain.execute_batch(&grammar::tables()).unwrap();
        let accepted = drawn.iter().filter(|sql| plain.prepare(sql).is_ok()).count();
        assert!(accepted >= 60, "{accepted} of {}", drawn.len());
    }
}
