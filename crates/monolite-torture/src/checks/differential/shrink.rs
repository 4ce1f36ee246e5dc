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
        let before = size(&mut it.best);
        for level in [Level::Ops, Level::Members, Level::Steps] {
            it.leave_out(level);
        }
        it.simplify_setup();
        it.simplify_ops();
        if size(&mut it.best) == before || it.is_spent() {
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
        let mut count = units(&mut self.best, level).len().div_ceil(2);
        while count > 0 && !self.is_spent() {
            let mut at = 0;
            loop {
                let units = units(&mut self.best, level);
                if at >= units.len() || self.is_spent() {
                    break;
                }
                let mut candidate = self.best.clone();
                for unit in units[at..units.len().min(at + count)].iter().rev() {
                    cut(&mut candidate, level, *unit);
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

/// One thing that can be left out: an operation; a member of it; or a list of steps of it and one
/// of them.
type Unit = (usize, usize, usize);

fn units(history: &mut History, level: Level) -> Vec<Unit> {
    let mut found = Vec::new();
    for (at, op) in history.ops.iter_mut().enumerate() {
        match (level, op) {
            (Level::Ops, _) => found.push((at, 0, 0)),
            (Level::Members, Op::Batch(members)) => {
                found.extend((0..members.len()).map(|member| (at, member, 0)));
            }
            (Level::Members, _) => {}
            (Level::Steps, op) => {
                for (list, steps) in lists(op).into_iter().enumerate() {
                    found.extend((0..steps.len()).map(|step| (at, list, step)));
                }
            }
        }
    }
    found
}

fn cut(history: &mut History, level: Level, (op, inner, step): Unit) {
    match (level, &mut history.ops[op]) {
        (Level::Members, Op::Batch(members)) => drop(members.remove(inner)),
        (Level::Steps, op) => drop(lists(op)[inner].remove(step)),
        _ => drop(history.ops.remove(op)),
    }
}

fn writes<'o>(op: &'o mut Op) -> Vec<&'o mut Write> {
    match op {
        Op::Write(write) => vec![write],
        Op::Batch(members) => {
            let of_member = |member: &'o mut Member| match member {
                Member::Write(write) => Some(write),
                Member::Commit { .. } => None,
            };
            members.iter_mut().filter_map(of_member).collect()
        }
        _ => Vec::new(),
    }
}

/// The lists of steps of which some can be left out.
fn lists(op: &mut Op) -> Vec<&mut Vec<Step>> {
    match op {
        Op::Read { steps, .. } | Op::Transact { steps, .. } => vec![steps],
        op => writes(op).into_iter().map(|write| &mut write.steps).collect(),
    }
}

fn steps(op: &mut Op) -> Vec<&mut Step> {
    match op {
        Op::Step { step, .. } => vec![step],
        op => lists(op).into_iter().flatten().collect(),
    }
}

/// Every way to say the operation more simply.
fn simpler(op: &Op) -> Vec<Op> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Op)| {
        let mut simpler = op.clone();
        change(&mut simpler);
        if simpler != *op {
            all.push(simpler);
        }
    };
    with(&|op| match op {
        Op::Batch(members) => match members.as_slice() {
            [Member::Write(write)] => *op = Op::Write(write.clone()),
            [Member::Commit { slot, key }] => *op = Op::Commit { slot: *slot, key: key.clone() },
            _ => {}
        },
        Op::Read { is_durable, .. } => *is_durable = false,
        Op::Commit { key, .. } => *key = None,
        Op::Transact { meanwhile, .. } => *meanwhile = None,
        _ => {}
    });
    let mut copy = op.clone();
    for at in 0..writes(&mut copy).len() {
        with(&|op| writes(op)[at].call = Call::Write);
        with(&|op| writes(op)[at].ending = Ending::Commits);
    }
    for (at, step) in steps(&mut copy).into_iter().enumerate() {
        with(&|op| steps(op)[at].is_handled = true);
        if matches!(step.how, How::Cached | How::Part(_) | How::Row) {
            with(&|op| steps(op)[at].how = How::All);
        }
        let parts: Vec<&str> = step.sql.split(";\n").collect();
        if step.how == How::Batch && parts.len() > 1 {
            for part in 0..parts.len() {
                let left = [&parts[..part], &parts[part + 1..]].concat().join(";\n");
                with(&|op| steps(op)[at].sql.clone_from(&left));
            }
        }
    }
    all
}

/// Everything that can be left out.
fn size(history: &mut History) -> usize {
    let levels = [Level::Ops, Level::Members, Level::Steps];
    levels.into_iter().map(|level| units(history, level).len()).sum()
}
