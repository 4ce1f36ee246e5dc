//! Makes a failing schedule smaller while it still fails, so that a person can read it.
//!
//! # Algorithm
//! Delta debugging (Zeller and Hildebrandt, 2002), simplified: runs of steps are left out, from
//! half of them down to single ones; then members of batches in the same way; then the steps of
//! each transaction. It ends when nothing can be left out, or when the tries are used up.

use super::{Schedule, Step};

/// The smallest schedule found that still `fails`, within so many tries.
pub fn shrink(
    schedule: &Schedule,
    tries: usize,
    mut fails: impl FnMut(&Schedule) -> bool,
) -> Schedule {
    let mut left = tries;
    let mut best = schedule.clone();
    loop {
        let before = size(&best);
        let mut try_out = |candidate: Schedule, best: &mut Schedule| {
            let is_smaller = left > 0 && {
                left -= 1;
                fails(&candidate)
            };
            if is_smaller {
                *best = candidate;
            }
            is_smaller
        };
        leave_out(
            &mut best,
            |it| it.steps.len(),
            |it, at, count| {
                it.steps.drain(at..at + count);
            },
            &mut try_out,
        );
        for step in 0..best.steps.len() {
            leave_out(
                &mut best,
                |it| members(it, step),
                |it, at, count| {
                    if let Step::Batch { members, .. } = &mut it.steps[step] {
                        members.drain(at..at + count);
                    }
                },
                &mut try_out,
            );
            for member in 0..members(&best, step) {
                leave_out(
                    &mut best,
                    |it| ops(it, step, member),
                    |it, at, count| {
                        if let Step::Batch { members, .. } = &mut it.steps[step] {
                            members[member].plan.ops.drain(at..at + count);
                        }
                    },
                    &mut try_out,
                );
            }
        }
        if size(&best) == before || left == 0 {
            return best;
        }
    }
}

/// Leaves out runs of what `length` counts, ever shorter ones.
fn leave_out(
    best: &mut Schedule,
    length: impl Fn(&Schedule) -> usize,
    cut: impl Fn(&mut Schedule, usize, usize),
    try_out: &mut impl FnMut(Schedule, &mut Schedule) -> bool,
) {
    let mut count = length(best).div_ceil(2);
    while count > 0 {
        let mut at = 0;
        while at < length(best) {
            let mut candidate = best.clone();
            cut(&mut candidate, at, count.min(length(best) - at));
            if !try_out(candidate, best) {
                at += count;
            }
        }
        count /= 2;
    }
}

fn members(schedule: &Schedule, step: usize) -> usize {
    match &schedule.steps[step] {
        Step::Batch { members, .. } => members.len(),
        _ => 0,
    }
}

fn ops(schedule: &Schedule, step: usize, member: usize) -> usize {
    match &schedule.steps[step] {
        Step::Batch { members, .. } => members[member].plan.ops.len(),
        _ => 0,
    }
}

/// Everything that can be left out.
fn size(schedule: &Schedule) -> usize {
    let steps = 0..schedule.steps.len();
    let inner = steps.map(|step| {
        let members = 0..members(schedule, step);
        1 + members.map(|member| 1 + ops(schedule, step, member)).sum::<usize>()
    });
    inner.sum()
}
