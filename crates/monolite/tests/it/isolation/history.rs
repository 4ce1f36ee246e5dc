//! What happened, and whether it could have happened one after another.

use std::collections::BTreeMap;

use monolite::{Error, Tx};

use super::plan::{ACCOUNTS, OPENING_BALANCE, Op, Plan};

/// What became of one transaction or read.
#[derive(Clone, Debug)]
pub(super) enum Record {
    /// `floor` is the highest number that had been acknowledged when it was submitted.
    Wrote {
        number: i64,
        floor: i64,
        plan: Plan,
        saw: Vec<i64>,
    },
    Read {
        number: i64,
        floor: i64,
        keys: Vec<i64>,
        saw: Vec<i64>,
    },
    Failed {
        plan: Plan,
    },
}

/// The plain model: what the database holds after some transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) sequence: i64,
    pub(super) accounts: BTreeMap<i64, i64>,
    pub(super) items: BTreeMap<i64, i64>,
    /// Which plan wrote each line of the log.
    pub(super) log: Vec<i64>,
}

impl Default for State {
    fn default() -> State {
        State {
            sequence: 0,
            accounts: (0..ACCOUNTS).map(|id| (id, OPENING_BALANCE)).collect(),
            items: BTreeMap::new(),
            log: Vec::new(),
        }
    }
}

impl State {
    /// What a database holds.
    pub(super) fn load(tx: &Tx<'_>) -> Result<State, Error> {
        let pairs = |sql| {
            let mut query = tx.prepare(sql)?;
            let rows = query.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok::<_, Error>(rows.collect::<Result<BTreeMap<i64, i64>, _>>()?)
        };
        let log = pairs("SELECT at, plan FROM log")?;
        assert!(log.keys().copied().eq(1..=log.len() as i64), "the log has gaps");
        Ok(State {
            sequence: tx.query_row("SELECT n FROM sequence", (), |row| row.get(0))?,
            accounts: pairs("SELECT id, balance FROM account")?,
            items: pairs("SELECT key, value FROM item")?,
            log: log.into_values().collect(),
        })
    }

    fn apply(&mut self, op: &Op, plan: i64) -> Vec<i64> {
        match *op {
            Op::Transfer { from, to, most } => {
                let balance = self.accounts[&from];
                let amount = most.min(balance);
                *self.accounts.get_mut(&from).unwrap() -= amount;
                *self.accounts.get_mut(&to).unwrap() += amount;
                vec![balance, self.accounts[&from], self.accounts[&to]]
            }
            Op::Add { key, value } => {
                let sum = self.items.entry(key).or_default();
                *sum += value;
                vec![*sum]
            }
            Op::Insert { key, value } => {
                let is_new = !self.items.contains_key(&key);
                self.items.entry(key).or_insert(value);
                vec![i64::from(is_new)]
            }
            Op::Delete { key } => vec![i64::from(self.items.remove(&key).is_some())],
            Op::Look { key } => vec![self.look(key)],
            Op::Append => {
                self.log.push(plan);
                vec![self.log.len() as i64]
            }
            Op::Total => vec![self.accounts.values().sum()],
        }
    }

    fn apply_all(&mut self, plan: &Plan) -> Vec<i64> {
        self.sequence += 1;
        plan.ops.iter().flat_map(|op| self.apply(op, plan.id)).collect()
    }

    fn look(&self, key: i64) -> i64 {
        self.items.get(&key).copied().unwrap_or(-1)
    }

    fn look_around(&self, keys: &[i64]) -> Vec<i64> {
        let mut saw = vec![self.accounts.values().sum(), self.log.len() as i64];
        saw.extend(keys.iter().map(|key| self.look(*key)));
        saw
    }
}

/// A read of several things in one snapshot, and the number of the last transaction in it.
pub(super) fn look_around(tx: &Tx<'_>, keys: &[i64]) -> Result<(i64, Vec<i64>), Error> {
    let one = |sql| tx.query_row(sql, (), |row| row.get::<_, i64>(0));
    let mut saw = vec![one("SELECT SUM(balance) FROM account")?, one("SELECT COUNT(*) FROM log")?];
    let number = one("SELECT n FROM sequence")?;
    for key in keys {
        let sql = "SELECT COALESCE((SELECT value FROM item WHERE key = ?1), -1)";
        saw.push(tx.query_row(sql, [key], |row| row.get(0))?);
    }
    Ok((number, saw))
}

impl Record {
    pub(super) fn is_failure(&self) -> bool {
        matches!(self, Record::Failed { .. })
    }

    pub(super) fn is_write(&self) -> bool {
        matches!(self, Record::Wrote { .. })
    }

    /// The place in the commit order; a read has none of its own.
    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Record::Wrote { number, .. } => Some(*number),
            _ => None,
        }
    }

    /// Applies what this transaction did, or would have done had it not failed.
    pub(super) fn replay_into(&self, state: &mut State) {
        match self {
            Record::Wrote { plan, .. } | Record::Failed { plan } => {
                state.apply_all(plan);
            }
            Record::Read { .. } => {}
        }
    }

    /// Puts a value there that was not seen; `false` when nothing was seen.
    pub(super) fn forge(&mut self) -> bool {
        let (Record::Wrote { saw, .. } | Record::Read { saw, .. }) = self else { return false };
        saw.last_mut().map(|value| *value += 1).is_some()
    }
}

/// Replays `history` in commit order, and compares everything that was seen, and `end`.
pub(super) fn check(history: &[Record], end: &State) -> Result<(), String> {
    let mut in_order: Vec<(i64, &Record)> = history
        .iter()
        .filter_map(|record| match record {
            // A read comes after the last write that it contains.
            Record::Wrote { number, .. } => Some((number * 2, record)),
            Record::Read { number, .. } => Some((number * 2 + 1, record)),
            Record::Failed { .. } => None,
        })
        .collect();
    in_order.sort_by_key(|(at, _)| *at);
    let mut state = State::default();
    for (_, record) in in_order {
        let (floor, number, saw, expected) = match record {
            Record::Wrote { number, floor, plan, saw } => {
                let expected = state.apply_all(plan);
                (floor + 1, number, saw, expected)
            }
            Record::Read { number, floor, keys, saw } => {
                (*floor, number, saw, state.look_around(keys))
            }
            Record::Failed { .. } => continue,
        };
        if *number != state.sequence {
            return Err(format!("{} comes before {record:?}", state.sequence));
        }
        if *number < floor {
            return Err(format!("{floor} was acknowledged before it began: {record:?}"));
        }
        if *saw != expected {
            return Err(format!("expected {expected:?}: {record:?}"));
        }
    }
    if state != *end {
        return Err(format!("the database holds {end:?}, and should hold {state:?}"));
    }
    Ok(())
}
