//! Histories of lists that are known to be good, and known anomalies to plant into them: what a
//! checker must prove itself on before its silence means anything.

use fastrand::Rng;

use super::{Fate, Kind, Step, Transaction};

/// Appends after which a list is left alone.
const LIST_LENGTH: usize = 40;
/// Lists in use at a time.
const LISTS: usize = 12;
/// Ticks from one commit to the next; transactions last for up to ten times as long.
const PACE: u64 = 10;

/// A history of `length` transactions that some serial order explains: they take effect one after
/// another, each at a moment between its begin and its end. Some fail, and of some nobody is told.
pub fn good(length: usize, rng: &mut Rng) -> Vec<Transaction> {
    let mut lists: Vec<(u64, Vec<u64>)> = (0..).zip(vec![Vec::new(); LISTS]).collect();
    let mut next_key = LISTS as u64;
    let mut next_value = 0;
    let mut history = Vec::with_capacity(length);
    for number in 1..=length as u64 {
        let moment = number * PACE + 10 * PACE;
        let fate = match rng.u8(..20) {
            0 => Fate::Failed,
            1 => Fate::Unknown,
            _ => Fate::Committed,
        };
        let stays = fate == Fate::Committed || (fate == Fate::Unknown && rng.bool());
        let mut after = lists.clone();
        let mut steps = Vec::new();
        for _ in 0..rng.u8(1..6) {
            let (key, list) = &mut after[rng.usize(..LISTS)];
            if rng.bool() {
                next_value += 1;
                list.push(next_value);
                steps.push(Step::Append { key: *key, value: next_value });
            } else {
                steps.push(Step::Read { key: *key, list: list.clone() });
            }
        }
        if stays {
            lists = after;
        }
        for (key, list) in lists.iter_mut().filter(|(_, list)| list.len() >= LIST_LENGTH) {
            steps.push(Step::Read { key: *key, list: list.clone() });
            (*key, *list) = (next_key, Vec::new());
            next_key += 1;
        }
        let begin = moment - rng.u64(1..10 * PACE);
        history.push(Transaction { begin, end: moment + rng.u64(1..10 * PACE), fate, steps });
    }
    rng.shuffle(&mut history);
    history
}

/// When a planted transaction takes place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// In the middle of the history, at once with all others of this time.
    Now,
    /// After those have ended.
    Later,
}

/// Plants one anomaly of `kind` into `history`: a few transactions with lists of their own, in its
/// midst.
pub fn plant(history: &mut Vec<Transaction>, kind: Kind, rng: &mut Rng) {
    let moment = history.get(rng.usize(..history.len().max(1))).map_or(0, |it| it.begin);
    // Far beyond every list and value of the history.
    let base = 1 << 40 | u64::from(rng.u32(..)) << 8;
    for (when, fate, steps) in planted(kind, base) {
        let (begin, end) = match when {
            When::Now => (moment, moment + 5),
            When::Later => (moment + 6, moment + 9),
        };
        let at = rng.usize(..=history.len());
        history.insert(at, Transaction { begin, end, fate, steps });
    }
}

type Planted = Vec<(When, Fate, Vec<Step>)>;

fn planted(kind: Kind, base: u64) -> Planted {
    use When::{Later, Now};
    let [x, y] = [base, base + 1];
    let append = |key, value| Step::Append { key, value };
    let read = |key, list: &[u64]| Step::Read { key, list: list.to_vec() };
    let now = |steps| (Now, Fate::Committed, steps);
    let later = |steps| (Later, Fate::Committed, steps);
    match kind {
        Kind::DuplicateAppend => vec![now(vec![append(x, 1)]), now(vec![read(x, &[1, 1])])],
        Kind::UnknownValue => vec![now(vec![append(x, 1)]), later(vec![read(x, &[1, 9])])],
        Kind::AbortedRead => {
            vec![(Now, Fate::Failed, vec![append(x, 1)]), now(vec![read(x, &[1])])]
        }
        Kind::IntermediateRead => vec![
            now(vec![append(x, 1), append(x, 2)]),
            now(vec![read(x, &[1])]),
            later(vec![read(x, &[1, 2])]),
        ],
        Kind::Internal => vec![now(vec![append(x, 1), read(x, &[])])],
        Kind::IncompatibleOrder => vec![
            now(vec![append(x, 1)]),
            now(vec![append(x, 2)]),
            now(vec![read(x, &[1])]),
            later(vec![read(x, &[2, 1])]),
        ],
        Kind::LostAppend => vec![now(vec![append(x, 1)]), later(vec![read(x, &[])])],
        Kind::StaleRead => {
            vec![now(vec![append(x, 1)]), later(vec![read(x, &[])]), later(vec![read(x, &[1])])]
        }
        Kind::DirtyWrite => vec![
            now(vec![append(x, 1), append(y, 1)]),
            now(vec![append(x, 2), append(y, 2)]),
            later(vec![read(x, &[1, 2]), read(y, &[2, 1])]),
        ],
        Kind::RealTimeOrder => {
            vec![now(vec![append(x, 1)]), later(vec![append(x, 2)]), later(vec![read(x, &[2, 1])])]
        }
        _ => planted_cycle(kind, base),
    }
}

fn planted_cycle(kind: Kind, base: u64) -> Planted {
    let [x, y, z] = [base, base + 1, base + 2];
    let append = |key, value| Step::Append { key, value };
    let read = |key, list: &[u64]| Step::Read { key, list: list.to_vec() };
    let now = |steps| (When::Now, Fate::Committed, steps);
    let later = |steps| (When::Later, Fate::Committed, steps);
    match kind {
        Kind::CircularInformation => {
            vec![now(vec![append(x, 1), read(y, &[2])]), now(vec![append(y, 2), read(x, &[1])])]
        }
        Kind::LostUpdate => vec![
            now(vec![read(x, &[]), append(x, 1)]),
            now(vec![read(x, &[]), append(x, 2)]),
            later(vec![read(x, &[1, 2])]),
        ],
        Kind::ReadSkew => vec![
            now(vec![append(x, 1), append(y, 1)]),
            now(vec![read(x, &[]), read(y, &[1])]),
            later(vec![read(x, &[1])]),
        ],
        Kind::WriteSkew => vec![
            now(vec![read(x, &[]), append(y, 1)]),
            now(vec![read(y, &[]), append(x, 2)]),
            later(vec![read(x, &[2]), read(y, &[1])]),
        ],
        Kind::LongFork => vec![
            now(vec![append(x, 1)]),
            now(vec![append(y, 2)]),
            now(vec![read(x, &[1]), read(y, &[])]),
            now(vec![read(x, &[]), read(y, &[2])]),
        ],
        Kind::AntiDependencyCycle => vec![
            now(vec![read(x, &[]), append(y, 1)]),
            now(vec![read(y, &[]), append(z, 2)]),
            now(vec![read(z, &[]), append(x, 3)]),
            later(vec![read(x, &[3]), read(y, &[1]), read(z, &[2])]),
        ],
        _ => Vec::new(),
    }
}
