//! Runs a schedule on something that answers like an engine, and judges what everybody saw.

use anyhow::Result;
use monolite::ErrorKind;

use super::{Call, Ending, Gave, IoFault, Member, Plan, Schedule, Step, Told, find_numbers};
use crate::checkers::serial::{self, Contents, Op, Record};

/// Something that runs transactions: the engine, or a stand-in with a known flaw.
pub trait Subject {
    /// Runs these in one go, and tells what each caller was told. After a fault the power is cut.
    fn batch(&mut self, members: &[Member], fault: Option<&IoFault>) -> Result<Vec<Told>>;

    /// Begins an interactive transaction that a later batch will commit, and runs the first half of
    /// its steps.
    fn begin(&mut self, plan: &Plan) -> Result<()>;

    /// Runs a read; tells the last number that it contains and what it saw.
    fn read(&mut self, ops: &[Op], durable: bool) -> Result<(i64, Vec<i64>)>;

    /// Closes and opens again.
    fn reopen(&mut self) -> Result<()>;

    /// Cuts the power, which comes back.
    fn cut_power(&mut self, seed: u64) -> Result<()>;

    /// Everything that the database holds.
    fn contents(&mut self) -> Result<Contents>;
}

/// What came of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Transactions and reads that were checked.
    pub checked: u64,
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Those among them that were interactive.
    pub interactive: u64,
    /// Acknowledged writes that are gone.
    pub lost: u64,
    /// What a promise rules out, if anything.
    pub wrong: Option<String>,
}

/// Runs a schedule to its end, or up to the first step that cannot be done.
pub fn execute(schedule: &Schedule, subject: &mut dyn Subject) -> Ran {
    let mut run = Run::default();
    for (at, step) in schedule.steps.iter().enumerate() {
        if let Err(error) = run.step(schedule, step, subject) {
            run.complaints.push(format!("step {at}: {error:#}"));
            break;
        }
    }
    let judged = match subject.contents() {
        Ok(end) => run.judge(&end),
        Err(error) => Err(format!("the database cannot be read: {error:#}")),
    };
    let wrong = run.complaints.first().cloned().or(judged.err());
    let acknowledged = run.history.iter().filter(|it| matches!(it, Record::Wrote { .. })).count();
    Ran {
        checked: run.history.len() as u64,
        acknowledged: acknowledged as u64,
        interactive: run.interactive,
        lost: run.lost,
        wrong,
    }
}

#[derive(Default)]
struct Run {
    history: Vec<Record>,
    complaints: Vec<String>,
    /// The highest number that anybody was told of.
    told: i64,
    interactive: u64,
    lost: u64,
}

impl Run {
    fn step(&mut self, schedule: &Schedule, step: &Step, subject: &mut dyn Subject) -> Result<()> {
        match step {
            Step::Begin { id } => {
                // A schedule that was made smaller may not have it any more.
                if let Some(plan) = schedule.plan(*id) {
                    subject.begin(plan)?;
                }
            }
            Step::Batch { members, fault } => {
                let floor = self.told;
                let told = subject.batch(members, fault.as_ref())?;
                for (member, told) in members.iter().zip(told) {
                    self.note(member, told, floor, fault.is_some());
                }
            }
            Step::Read { ops, durable } => {
                let (number, saw) = subject.read(ops, *durable)?;
                let floor = self.told;
                self.told = floor.max(number);
                self.history.push(Record::Read { number, floor, ops: ops.clone(), saw });
            }
            Step::Reopen => subject.reopen()?,
            Step::PowerCut { seed } => subject.cut_power(*seed)?,
        }
        Ok(())
    }

    fn note(&mut self, member: &Member, told: Told, floor: i64, has_fault: bool) {
        let (id, ops, ending) = (member.plan.id, member.plan.ops.clone(), member.plan.ending);
        let is_interactive = member.call == Call::Interactive;
        let judged = match (has_fault, is_interactive) {
            (true, _) => judge_fault(ending, &told),
            (false, true) => ending.judge_interactive(&told, true),
            (false, false) => ending.judge(&told),
        };
        if let (Err(complaint), false) = (judged, member.is_dropped) {
            self.complaints.push(format!("transaction {id}: {complaint}"));
        }
        let is_open = match &told {
            Told::Nothing => true,
            Told::Refused(kind, _) => {
                matches!(kind, ErrorKind::CommitUnknown | ErrorKind::Poisoned)
            }
            _ => false,
        };
        self.history.push(match told {
            Told::Committed(Gave { number, saw }) => {
                self.told = self.told.max(number);
                self.interactive += u64::from(is_interactive);
                Record::Wrote { id, number, floor, ops, saw }
            }
            _ if is_open && ending.commits() => Record::Untold { id, number: None, floor, ops },
            _ => Record::Failed { id },
        });
    }

    fn judge(&mut self, end: &Contents) -> Result<(), String> {
        find_numbers(&mut self.history, end);
        self.lost = count_lost(&self.history, end);
        serial::check(&self.history, end)
    }
}

/// Acknowledged writes of `history` that the database does not have.
pub fn count_lost(history: &[Record], end: &Contents) -> u64 {
    let kept: std::collections::HashSet<i64> = end.done().collect();
    let lost =
        history.iter().filter(|it| matches!(it, Record::Wrote { id, .. } if !kept.contains(id)));
    lost.count() as u64
}

/// What a caller may be told while files fail: anything but that what had to fail succeeded, or
/// that its closure gave up.
fn judge_fault(ending: Ending, told: &Told) -> Result<(), String> {
    match told {
        Told::Committed(_) => ending.judge(told),
        Told::GaveUp | Told::Panicked if ending.commits() => ending.judge(told),
        _ => Ok(()),
    }
}
