//! Makes a failing history smaller while it still fails in the same way, so that a person can read
//! it.
//!
//! # Algorithm
//! Delta debugging as in [`monolite_testkit::schedule::shrink`], on three levels: operations,
//! members of batches, steps. In between each operation is made simpler in every way there is, and
//! so are the options. It ends when nothing can be left out, or when tries or time are used up.

use std::time::{Duration, Instant};

use super::record::{Call, Ending, History, How, Member, Op, Setup, Step, Write};

/// What can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Ops,
    Members,
    Steps,
}

/// How much may be spent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) tries: usize,
    pub(super) time: Duration,
}

struct Shrinking<'f> {
    best: History,
    fails: &'f mut dyn FnMut(&History) -> bool,
    tries: usize,
    until: Instant,
}

/// The smallest history found that still `fails`.
pub(super) fn shrink(
    history: &History,
    budget: Budget,
    fails: &mut dyn FnMut(&History) -> bool,
) -> History {
    let until = Instant::now() + budget.time;
    let mut it = Shrinking { best: history.clone(), fails, tries: budget.tries, until };
    it.attempt(History { setup: Setup::SIMPLE, ..it.best.clone() });
    loop {
        let before = size(&it.best);
        for level in [Level::Ops, Level::Members, Level::Steps] {
            it.leave_out(level);
        }
        it.simplify_setup();
        it.simplify_ops();
        if size(&it.best) == before || it.is_spent() {
            return it.best;
        }
    }
}

impl Shrinking<'_> {
    fn is_spent(&self) -> bool {
        self.tries == 0 || Instant::now() > self.until
    }

    fn attempt(&mut self, candidate: History) -> bool {
        if self.is_spent() {
            return false;
        }
        self.tries -= 1;
        let fails = (self.fails)(&candidate);
        if fails {
            self.best = candidate;
        }
        fails
    }

    /// Leaves out runs of units, ever shorter ones.
    fn leave_out(&mut self, level: Level) {
        let mut count = units(&self.best, level).len().div_ceil(2);
        while count > 0 && !self.is_spent() {
            let mut at = 0;
            loop {
                let units = units(&self.best, level);
                if at >= units.len() || self.is_spent() {
                    break;
                }
                let mut candidate = self.best.clone();
                for unit in units[at..units.len().min(at + count)].iter().rev() {
                    cut(&mut candidate, *unit);
                }
                if !self.attempt(candidate) {
                    at += count;
                }
            }
            count /= 2;
        }
    }

    fn simplify_setup(&mut self) {
        for setup in self.best.setup.simpler() {
            self.attempt(History { setup, ..self.best.clone() });
        }
    }

    fn simplify_ops(&mut self) {
        for at in 0..self.best.ops.len() {
            // Each success makes the operation simpler, so this ends.
            while !self.is_spent() && self.simplify_op(at) {}
        }
    }

    fn simplify_op(&mut self, at: usize) -> bool {
        simpler(&self.best.ops[at]).into_iter().any(|simpler| {
            let mut candidate = self.best.clone();
            candidate.ops[at] = simpler;
            self.attempt(candidate)
        })
    }
}

/// One thing that can be left out: an operation, a member of it, a step of one of those.
type Unit = (usize, Option<usize>, Option<usize>);

fn units(history: &History, level: Level) -> Vec<Unit> {
    let mut found = Vec::new();
    for (at, op) in history.ops.iter().enumerate() {
        if level == Level::Ops {
            found.push((at, None, None));
            continue;
        }
        if let Op::Batch(members) = op {
            for (number, member) in members.iter().enumerate() {
                match (level, member) {
                    (Level::Members, _) => found.push((at, Some(number), None)),
                    (_, Member::Write(write)) => {
                        let steps = 0..write.steps.len();
                        found.extend(steps.map(|step| (at, Some(number), Some(step))));
                    }
                    _ => {}
                }
            }
        } else if level == Level::Steps {
            found.extend((0..steps(op).len()).map(|step| (at, None, Some(step))));
        }
    }
    found
}

fn steps(op: &Op) -> &[Step] {
    match op {
        Op::Write(write) => &write.steps,
        Op::Read { steps, .. } | Op::Transact { steps, .. } => steps,
        _ => &[],
    }
}

fn cut(history: &mut History, (op, member, step): Unit) {
    match (&mut history.ops[op], member, step) {
        (Op::Batch(members), Some(member), Some(step)) => {
            if let Member::Write(write) = &mut members[member] {
                write.steps.remove(step);
            }
        }
        (Op::Batch(members), Some(member), None) => {
            members.remove(member);
        }
        (Op::Write(write), _, Some(step)) => {
            write.steps.remove(step);
        }
        (Op::Read { steps, .. } | Op::Transact { steps, .. }, _, Some(step)) => {
            steps.remove(step);
        }
        _ => {
            history.ops.remove(op);
        }
    }
}

/// Every way to say the operation more simply.
fn simpler(op: &Op) -> Vec<Op> {
    match op {
        Op::Batch(members) => match members.as_slice() {
            [Member::Write(write)] => vec![Op::Write(write.clone())],
            [Member::Commit { slot, key }] => {
                vec![Op::Commit { slot: *slot, key: key.clone() }]
            }
            _ => members.iter().enumerate().flat_map(simpler_members(members)).collect(),
        },
        Op::Write(write) => simpler_writes(write).into_iter().map(Op::Write).collect(),
        Op::Read { is_durable, steps } => {
            let plain = Op::Read { is_durable: false, steps: steps.clone() };
            let mut all = if *is_durable { vec![plain] } else { Vec::new() };
            all.extend(
                simpler_steps(steps)
                    .into_iter()
                    .map(|steps| Op::Read { is_durable: *is_durable, steps }),
            );
            all
        }
        Op::Step { slot, step } => {
            simpler_step(step).into_iter().map(|step| Op::Step { slot: *slot, step }).collect()
        }
        Op::Commit { slot, key: Some(_) } => vec![Op::Commit { slot: *slot, key: None }],
        Op::Transact { steps, ending, meanwhile: Some(_) } => {
            vec![Op::Transact { steps: steps.clone(), ending: *ending, meanwhile: None }]
        }
        _ => Vec::new(),
    }
}

fn simpler_members(members: &[Member]) -> impl Fn((usize, &Member)) -> Vec<Op> {
    move |(at, member)| {
        let with = |write| {
            let mut members = members.to_vec();
            members[at] = Member::Write(write);
            Op::Batch(members)
        };
        match member {
            Member::Write(write) => simpler_writes(write).into_iter().map(with).collect(),
            Member::Commit { .. } => Vec::new(),
        }
    }
}

fn simpler_writes(write: &Write) -> Vec<Write> {
    let mut all = Vec::new();
    if write.call != Call::Write {
        all.push(Write { call: Call::Write, ..write.clone() });
    }
    if write.ending != Ending::Commits {
        all.push(Write { ending: Ending::Commits, ..write.clone() });
    }
    let with = |steps| Write { steps, ..write.clone() };
    all.extend(simpler_steps(&write.steps).into_iter().map(with));
    all
}

fn simpler_steps(steps: &[Step]) -> Vec<Vec<Step>> {
    let mut all = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        for simpler in simpler_step(step) {
            let mut steps = steps.to_vec();
            steps[at] = simpler;
            all.push(steps);
        }
    }
    all
}

fn simpler_step(step: &Step) -> Vec<Step> {
    let mut all = Vec::new();
    if !step.is_handled {
        all.push(Step { is_handled: true, ..step.clone() });
    }
    if matches!(step.how, How::Cached | How::Part(_) | How::Row) {
        all.push(Step { how: How::All, ..step.clone() });
    }
    let parts: Vec<&str> = step.sql.split(";\n").collect();
    if step.how == How::Batch && parts.len() > 1 {
        for at in 0..parts.len() {
            let mut parts = parts.clone();
            parts.remove(at);
            all.push(Step { sql: parts.join(";\n"), ..step.clone() });
        }
    }
    all
}

/// Everything that can be left out.
fn size(history: &History) -> usize {
    let levels = [Level::Ops, Level::Members, Level::Steps];
    levels.into_iter().map(|level| units(history, level).len()).sum()
}
