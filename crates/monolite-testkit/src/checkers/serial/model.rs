//! The plain model: what the database holds after some transactions, in ordinary collections.

use std::collections::{BTreeMap, BTreeSet};

use super::op::{ACCOUNTS, OPENING_BALANCE, Op};

/// What a database should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Who wrote each number, from 1.
    done: Vec<i64>,
    log: Vec<i64>,
    tables: Tables,
    /// What undoing leads back to, of each open savepoint: the length of the log, and the rest.
    savepoints: Vec<(usize, Tables)>,
}

/// The tables that stay small.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tables {
    accounts: Vec<i64>,
    items: BTreeMap<i64, i64>,
    words: BTreeMap<i64, i64>,
    /// Length and filling.
    large: BTreeMap<i64, (i64, u8)>,
    parents: BTreeSet<i64>,
    /// The parent of each child.
    children: BTreeMap<i64, i64>,
    births: i64,
    deaths: i64,
}

impl Default for Tables {
    fn default() -> Tables {
        let accounts = (0..ACCOUNTS).map(|_| OPENING_BALANCE).collect();
        Tables {
            accounts,
            items: BTreeMap::new(),
            words: BTreeMap::new(),
            large: BTreeMap::new(),
            parents: BTreeSet::new(),
            children: BTreeMap::new(),
            births: 0,
            deaths: 0,
        }
    }
}

/// Everything that a database holds: for each table the rows in order, as flat lists of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub(super) tables: Vec<Vec<i64>>,
}

impl Contents {
    /// The question for each table, in the order of [`Contents::new`]; a blob is told as its
    /// length and [`digest`](Contents::digest).
    pub const QUERIES: [&'static str; 9] = [
        "SELECT n, id FROM done ORDER BY n",
        "SELECT balance FROM account ORDER BY id",
        "SELECT key, value FROM item ORDER BY key",
        "SELECT at, id FROM log ORDER BY at",
        "SELECT word, n FROM count ORDER BY word",
        "SELECT key, body FROM large ORDER BY key",
        "SELECT id FROM parent ORDER BY id",
        "SELECT id, parent FROM child ORDER BY id",
        "SELECT births, deaths FROM tally",
    ];

    /// The answers to [`Contents::QUERIES`].
    pub fn new(tables: Vec<Vec<i64>>) -> Contents {
        Contents { tables }
    }

    /// Who wrote each number, from 1; what the table `done` holds.
    pub fn done(&self) -> impl Iterator<Item = i64> {
        self.tables.first().into_iter().flatten().copied().skip(1).step_by(2)
    }

    /// A number that tells values apart (FNV-1a).
    pub fn digest(bytes: &[u8]) -> i64 {
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        hash.cast_signed()
    }

    /// Compares what should be there with what is.
    pub(super) fn compare(&self, holds: &Contents) -> Result<(), String> {
        for (at, query) in Contents::QUERIES.iter().enumerate() {
            let (should, is) = (self.tables.get(at), holds.tables.get(at));
            let Some((should, is)) = should.zip(is) else {
                return Err(format!("nothing is known of: {query}"));
            };
            if should == is {
                continue;
            }
            let differs = should.iter().zip(is).position(|(a, b)| a != b);
            let from = differs.unwrap_or(should.len().min(is.len())).saturating_sub(2);
            let excerpt =
                |rows: &[i64]| rows.iter().skip(from).take(8).copied().collect::<Vec<_>>();
            return Err(format!(
                "{query}: from value {from} on the database holds {:?} (of {}), and should hold \
                 {:?} (of {})",
                excerpt(is),
                is.len(),
                excerpt(should),
                should.len()
            ));
        }
        Ok(())
    }
}

/// The bytes of a large value.
pub(crate) fn filling(bytes: i64, with: u8) -> Vec<u8> {
    vec![with; usize::try_from(bytes).unwrap_or(0)]
}

fn pairs<'a>(rows: impl IntoIterator<Item = (&'a i64, &'a i64)>) -> Vec<i64> {
    rows.into_iter().flat_map(|(key, value)| [*key, *value]).collect()
}

fn numbered(rows: &[i64]) -> Vec<i64> {
    (1..).zip(rows).flat_map(|(number, value)| [number, *value]).collect()
}

fn index(account: i64) -> usize {
    usize::try_from(account.rem_euclid(ACCOUNTS)).expect("a remainder is small and not negative")
}

fn count(length: usize) -> i64 {
    i64::try_from(length).expect("a history is shorter than that")
}

impl State {
    /// The number of the last transaction.
    pub fn last_number(&self) -> i64 {
        count(self.done.len())
    }

    /// Runs a transaction, and tells what it sees.
    pub fn run(&mut self, id: i64, ops: &[Op]) -> Vec<i64> {
        self.done.push(id);
        let mut saw = Vec::new();
        ops.iter().for_each(|op| self.apply(op, id, &mut saw));
        self.savepoints.clear();
        saw
    }

    /// Tells what a read sees.
    pub fn look(&self, ops: &[Op]) -> Vec<i64> {
        let mut saw = Vec::new();
        ops.iter().for_each(|op| self.see(op, &mut saw));
        saw
    }

    /// What the database should hold.
    pub fn contents(&self) -> Contents {
        let large = self.tables.large.iter().flat_map(|(key, (bytes, with))| {
            [*key, *bytes, Contents::digest(&filling(*bytes, *with))]
        });
        Contents::new(vec![
            numbered(&self.done),
            self.tables.accounts.clone(),
            pairs(&self.tables.items),
            numbered(&self.log),
            pairs(&self.tables.words),
            large.collect(),
            self.tables.parents.iter().copied().collect(),
            pairs(&self.tables.children),
            vec![self.tables.births, self.tables.deaths],
        ])
    }

    fn apply(&mut self, op: &Op, id: i64, saw: &mut Vec<i64>) {
        match *op {
            Op::Transfer { from, to, most } => {
                let balance = self.tables.accounts[index(from)];
                let amount = most.min(balance);
                self.tables.accounts[index(from)] -= amount;
                self.tables.accounts[index(to)] += amount;
                saw.extend([balance, balance - amount, self.tables.accounts[index(to)]]);
            }
            Op::Add { key, value } => saw.push(add(&mut self.tables.items, key, value)),
            Op::Insert { key, value } => {
                let is_new = !self.tables.items.contains_key(&key);
                self.tables.items.entry(key).or_insert(value);
                saw.push(i64::from(is_new));
            }
            Op::Delete { key } => saw.push(i64::from(self.tables.items.remove(&key).is_some())),
            Op::Blind { low, high, value } => {
                let mut changed = 0;
                for (_, item) in self.tables.items.range_mut(low..=high.max(low)) {
                    *item = value;
                    changed += 1;
                }
                saw.push(changed);
            }
            Op::Dependent { from, to } => {
                let read = self.item(from);
                self.tables.items.insert(to, read + 1);
                saw.push(read);
            }
            Op::Append { .. } => {
                self.log.push(id);
                saw.push(count(self.log.len()));
            }
            Op::Count { word, by } => saw.push(add(&mut self.tables.words, word, by)),
            Op::Fill { key, bytes, with } => {
                self.tables.large.insert(key, (bytes, with));
                saw.push(1);
            }
            Op::Parent { .. } | Op::Child { .. } | Op::Disown { .. } => self.relate(op, saw),
            Op::Open | Op::Undo | Op::Keep => self.mark(op, saw),
            Op::Pay { .. } | Op::Raise { .. } | Op::Tick { .. } | Op::Note => {
                saw.push(self.apply_blind(op, id));
            }
            _ => self.see(op, saw),
        }
    }

    /// Applies a step that tells one number.
    fn apply_blind(&mut self, op: &Op, id: i64) -> i64 {
        match *op {
            Op::Pay { from, to, amount } => {
                if self.tables.accounts[index(from)] < amount {
                    return -1;
                }
                self.tables.accounts[index(from)] -= amount;
                self.tables.accounts[index(to)] += amount;
            }
            Op::Raise { key, by } => {
                let Some(item) = self.tables.items.get_mut(&key) else { return 0 };
                *item += by;
            }
            Op::Tick { word, by } => {
                add(&mut self.tables.words, word, by);
            }
            _ => self.log.push(id),
        }
        1
    }

    fn mark(&mut self, op: &Op, saw: &mut Vec<i64>) {
        let was_open = !self.savepoints.is_empty();
        match op {
            Op::Open => {
                self.savepoints.push((self.log.len(), self.tables.clone()));
                return;
            }
            Op::Undo => {
                if let Some((length, tables)) = self.savepoints.last() {
                    self.log.truncate(*length);
                    self.tables = tables.clone();
                }
            }
            _ => drop(self.savepoints.pop()),
        }
        saw.push(if was_open { 1 } else { -1 });
    }

    fn relate(&mut self, op: &Op, saw: &mut Vec<i64>) {
        match *op {
            Op::Parent { id } => {
                let is_new = self.tables.parents.insert(id);
                self.tables.births += i64::from(is_new);
                saw.push(i64::from(is_new));
            }
            Op::Child { id, parent } => {
                let fits = self.tables.parents.contains(&parent)
                    && !self.tables.children.contains_key(&id);
                if fits {
                    self.tables.children.insert(id, parent);
                }
                saw.push(if fits { 1 } else { -1 });
            }
            Op::Disown { id } => {
                let before = self.tables.children.len();
                self.tables.children.retain(|_, parent| *parent != id);
                self.tables.deaths += count(before - self.tables.children.len());
                saw.push(i64::from(self.tables.parents.remove(&id)));
            }
            _ => {}
        }
    }

    /// What a reading step tells.
    fn see(&self, op: &Op, saw: &mut Vec<i64>) {
        match *op {
            Op::Total => saw.push(self.tables.accounts.iter().sum()),
            Op::Balances => saw.extend(&self.tables.accounts),
            Op::Point { key } => saw.push(self.item(key)),
            Op::Range { low, high } => {
                saw.extend(pairs(self.tables.items.range(low..=high.max(low))))
            }
            Op::Max => saw.push(self.tables.items.keys().next_back().copied().unwrap_or(-1)),
            Op::Log => {
                saw.extend([count(self.log.len()), self.log.last().copied().unwrap_or(-1)]);
            }
            Op::Counts => saw.extend(pairs(&self.tables.words)),
            Op::Filled { key } => {
                if let Some((bytes, with)) = self.tables.large.get(&key) {
                    saw.extend([*bytes, Contents::digest(&filling(*bytes, *with))]);
                }
            }
            Op::Family { id } => {
                let mine = self.tables.children.iter().filter(|(_, parent)| **parent == id);
                saw.extend(mine.map(|(child, _)| child));
            }
            Op::First { low } => saw.extend(pairs(self.tables.items.range(low..).take(1))),
            Op::Tally => saw.extend([self.tables.births, self.tables.deaths]),
            _ => {}
        }
    }

    fn item(&self, key: i64) -> i64 {
        self.tables.items.get(&key).copied().unwrap_or(-1)
    }
}

fn add(rows: &mut BTreeMap<i64, i64>, key: i64, by: i64) -> i64 {
    let sum = rows.entry(key).or_default();
    *sum += by;
    *sum
}
