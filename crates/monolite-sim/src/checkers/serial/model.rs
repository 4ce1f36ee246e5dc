//! The plain model: what the database holds after some transactions, in ordinary collections.

use std::collections::{BTreeMap, BTreeSet};

use super::op::{ACCOUNTS, OPENING_BALANCE, Op};

/// What a database should hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Who wrote each number, from 1.
    done: Vec<i64>,
    accounts: Vec<i64>,
    items: BTreeMap<i64, i64>,
    log: Vec<i64>,
    words: BTreeMap<i64, i64>,
    /// Length and filling.
    large: BTreeMap<i64, (i64, u8)>,
    parents: BTreeSet<i64>,
    /// The parent of each child.
    children: BTreeMap<i64, i64>,
    births: i64,
    deaths: i64,
}

impl Default for State {
    fn default() -> State {
        let accounts = (0..ACCOUNTS).map(|_| OPENING_BALANCE).collect();
        State {
            done: Vec::new(),
            accounts,
            items: BTreeMap::new(),
            log: Vec::new(),
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

    /// What the accounts hold.
    pub fn balances(&self) -> &[i64] {
        self.tables.get(1).map_or(&[], Vec::as_slice)
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
        let large = self.large.iter().flat_map(|(key, (bytes, with))| {
            [*key, *bytes, Contents::digest(&filling(*bytes, *with))]
        });
        Contents::new(vec![
            numbered(&self.done),
            self.accounts.clone(),
            pairs(&self.items),
            numbered(&self.log),
            pairs(&self.words),
            large.collect(),
            self.parents.iter().copied().collect(),
            pairs(&self.children),
            vec![self.births, self.deaths],
        ])
    }

    fn apply(&mut self, op: &Op, id: i64, saw: &mut Vec<i64>) {
        match *op {
            Op::Transfer { from, to, most } => {
                let balance = self.accounts[index(from)];
                let amount = most.min(balance);
                self.accounts[index(from)] -= amount;
                self.accounts[index(to)] += amount;
                saw.extend([balance, balance - amount, self.accounts[index(to)]]);
            }
            Op::Add { key, value } => saw.push(add(&mut self.items, key, value)),
            Op::Insert { key, value } => {
                let is_new = !self.items.contains_key(&key);
                self.items.entry(key).or_insert(value);
                saw.push(i64::from(is_new));
            }
            Op::Delete { key } => saw.push(i64::from(self.items.remove(&key).is_some())),
            Op::Blind { low, high, value } => {
                let mut changed = 0;
                for (_, item) in self.items.range_mut(low..=high.max(low)) {
                    *item = value;
                    changed += 1;
                }
                saw.push(changed);
            }
            Op::Dependent { from, to } => {
                let read = self.item(from);
                self.items.insert(to, read + 1);
                saw.push(read);
            }
            Op::Append { .. } => {
                self.log.push(id);
                saw.push(count(self.log.len()));
            }
            Op::Count { word, by } => saw.push(add(&mut self.words, word, by)),
            Op::Fill { key, bytes, with } => {
                self.large.insert(key, (bytes, with));
                saw.push(1);
            }
            Op::Parent { .. } | Op::Child { .. } | Op::Disown { .. } => self.relate(op, saw),
            _ => self.see(op, saw),
        }
    }

    fn relate(&mut self, op: &Op, saw: &mut Vec<i64>) {
        match *op {
            Op::Parent { id } => {
                let is_new = self.parents.insert(id);
                self.births += i64::from(is_new);
                saw.push(i64::from(is_new));
            }
            Op::Child { id, parent } => {
                let fits = self.parents.contains(&parent) && !self.children.contains_key(&id);
                if fits {
                    self.children.insert(id, parent);
                }
                saw.push(if fits { 1 } else { -1 });
            }
            Op::Disown { id } => {
                let before = self.children.len();
                self.children.retain(|_, parent| *parent != id);
                self.deaths += count(before - self.children.len());
                saw.push(i64::from(self.parents.remove(&id)));
            }
            _ => {}
        }
    }

    /// What a reading step tells.
    fn see(&self, op: &Op, saw: &mut Vec<i64>) {
        match *op {
            Op::Total => saw.push(self.accounts.iter().sum()),
            Op::Balances => saw.extend(&self.accounts),
            Op::Point { key } => saw.push(self.item(key)),
            Op::Range { low, high } => saw.extend(pairs(self.items.range(low..=high.max(low)))),
            Op::Max => saw.push(self.items.keys().next_back().copied().unwrap_or(-1)),
            Op::Log => {
                saw.extend([count(self.log.len()), self.log.last().copied().unwrap_or(-1)]);
            }
            Op::Counts => saw.extend(pairs(&self.words)),
            Op::Filled { key } => {
                if let Some((bytes, with)) = self.large.get(&key) {
                    saw.extend([*bytes, Contents::digest(&filling(*bytes, *with))]);
                }
            }
            Op::Family { id } => {
                let mine = self.children.iter().filter(|(_, parent)| **parent == id);
                saw.extend(mine.map(|(child, _)| child));
            }
            Op::Tally => saw.extend([self.births, self.deaths]),
            _ => {}
        }
    }

    fn item(&self, key: i64) -> i64 {
        self.items.get(&key).copied().unwrap_or(-1)
    }
}

fn add(rows: &mut BTreeMap<i64, i64>, key: i64, by: i64) -> i64 {
    let sum = rows.entry(key).or_default();
    *sum += by;
    *sum
}
