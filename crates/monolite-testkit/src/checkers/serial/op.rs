//! The steps that transactions of a checked history are made of: enough kinds to meet every way in
//! which SQLite reads and writes, few enough rows that transactions get in each other's way.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Accounts, numbered from 0.
pub const ACCOUNTS: i64 = 8;
/// What each account holds in the beginning.
pub const OPENING_BALANCE: i64 = 1_000;
/// Keys of items are below this.
pub const ITEMS: i64 = 24;

const WORDS: i64 = 10;
const LARGE: i64 = 6;
const PARENTS: i64 = 6;
const CHILDREN: i64 = 16;
/// A value that fills several overflow pages of the usual 4 KiB, and one that fits none.
const LARGE_BYTES: [std::ops::Range<i64>; 3] = [0..60, 300..3_000, 5_000..14_000];

/// One step of a transaction. All that it tells is a list of numbers.
#[allow(missing_docs, reason = "each step says what its fields are for")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Moves money, as much as is there: tells the old balance and both new ones (`RETURNING`).
    Transfer { from: i64, to: i64, most: i64 },
    /// Reads the sum of all balances (aggregate).
    Total,
    /// Reads every balance.
    Balances,
    /// Adds to an item, or makes it (upsert): tells the new value.
    Add { key: i64, value: i64 },
    /// Makes an item unless there is one: tells how many rows changed.
    Insert { key: i64, value: i64 },
    /// Deletes an item: tells how many rows changed.
    Delete { key: i64 },
    /// Overwrites items of a range without looking (blind): tells how many rows changed.
    Blind { low: i64, high: i64, value: i64 },
    /// Reads one item and makes another of it (dependent): tells what it read.
    Dependent { from: i64, to: i64 },
    /// Reads one item (point).
    Point { key: i64 },
    /// Reads the items of a range, which is often empty.
    Range { low: i64, high: i64 },
    /// Reads the greatest key (aggregate at the end of a B-tree).
    Max,
    /// Appends a line to the log: tells its place, by `RETURNING` or by the last rowid.
    Append { returning: bool },
    /// Reads how many lines the log has, and who wrote the last.
    Log,
    /// Counts a word in a table `WITHOUT ROWID` (upsert): tells the new count.
    Count { word: i64, by: i64 },
    /// Reads all counts of words.
    Counts,
    /// Writes a value that may need overflow pages: tells how many rows changed.
    Fill { key: i64, bytes: i64, with: u8 },
    /// Reads such a value: tells its length and a digest.
    Filled { key: i64 },
    /// Makes a parent unless there is one; a trigger counts births. Tells how many rows changed.
    Parent { id: i64 },
    /// Makes a child. Tells 1, or -1 if it has no parent or there is one: that statement is
    /// refused (foreign key, primary key), and the transaction goes on.
    Child { id: i64, parent: i64 },
    /// Deletes a parent with its children (cascade); a trigger counts deaths. Tells how many
    /// parents there were.
    Disown { id: i64 },
    /// Reads the children of a parent (join).
    Family { id: i64 },
    /// Reads what triggers counted.
    Tally,
    /// Moves money without looking (blind): tells 1, or -1 where a constraint refuses the first
    /// half; then the second is not tried.
    Pay { from: i64, to: i64, amount: i64 },
    /// Adds to an item, if there is one, without looking at it: tells how many rows changed.
    Raise { key: i64, by: i64 },
    /// Counts a word as [`Op::Count`] does, and does not ask for the count: tells how many rows
    /// changed.
    Tick { word: i64, by: i64 },
    /// Appends a line to the log and does not ask for its place: tells how many rows changed.
    Note,
    /// Reads the first item from a key on, and stops there although there may be more.
    First { low: i64 },
    /// Opens a savepoint. Only interactive transactions can.
    Open,
    /// Undoes what was done since the last open savepoint, which stays open: tells 1, or -1 if none
    /// is open.
    Undo,
    /// Closes the last open savepoint: tells 1, or -1 if none is open.
    Keep,
}

impl Op {
    /// Whether it changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Op::Total
                | Op::Balances
                | Op::Point { .. }
                | Op::Range { .. }
                | Op::Max
                | Op::Log
                | Op::Counts
                | Op::Filled { .. }
                | Op::Family { .. }
                | Op::Tally
                | Op::First { .. }
        )
    }

    /// A step of any kind.
    pub fn random(rng: &mut Rng) -> Op {
        if rng.u8(..3) == 0 { Op::random_read(rng) } else { Op::random_write(rng) }
    }

    /// A step that changes nothing.
    pub fn random_read(rng: &mut Rng) -> Op {
        let low = rng.i64(0..ITEMS);
        match rng.u8(..13) {
            0 => Op::Total,
            1 => Op::Balances,
            2..5 => Op::Point { key: low },
            5..7 => Op::Range { low, high: low + rng.i64(0..5) },
            7 => Op::Max,
            8 => Op::Log,
            9 => Op::Counts,
            10 => Op::Filled { key: rng.i64(0..LARGE) },
            11 => Op::Family { id: rng.i64(0..PARENTS) },
            _ => Op::Tally,
        }
    }

    fn random_write(rng: &mut Rng) -> Op {
        let (key, value) = (rng.i64(0..ITEMS), rng.i64(1..100));
        match rng.u8(..20) {
            0..5 => {
                let from = rng.i64(0..ACCOUNTS);
                let to = (from + rng.i64(1..ACCOUNTS)) % ACCOUNTS;
                Op::Transfer { from, to, most: rng.i64(0..500) }
            }
            5..7 => Op::Add { key, value },
            7 => Op::Insert { key, value },
            8 => Op::Delete { key },
            9 => Op::Blind { low: key, high: key + rng.i64(0..4), value },
            10..12 => Op::Dependent { from: key, to: rng.i64(0..ITEMS) },
            12..14 => Op::Append { returning: rng.bool() },
            14..16 => Op::Count { word: rng.i64(0..WORDS), by: value },
            16 => {
                // The longest are the rarest: they cost as much as a hundred other steps.
                let class = [0, 0, 0, 0, 0, 0, 0, 1, 1, 2][rng.usize(..10)];
                let bytes = rng.i64(LARGE_BYTES[class].clone());
                Op::Fill { key: rng.i64(0..LARGE), bytes, with: rng.u8(..) }
            }
            17 => Op::Parent { id: rng.i64(0..PARENTS) },
            18 => Op::Child { id: rng.i64(0..CHILDREN), parent: rng.i64(0..PARENTS) },
            _ => Op::Disown { id: rng.i64(0..PARENTS) },
        }
    }

    /// A step that writes and learns as little as possible, so that interactive transactions which
    /// are made of these seldom conflict.
    fn random_blind(rng: &mut Rng) -> Op {
        let (key, by) = (rng.i64(0..ITEMS), rng.i64(1..100));
        match rng.u8(..8) {
            0..3 => {
                let from = rng.i64(0..ACCOUNTS);
                let to = (from + rng.i64(1..ACCOUNTS)) % ACCOUNTS;
                Op::Pay { from, to, amount: rng.i64(0..150) }
            }
            3 => Op::Raise { key, by },
            4..6 => Op::Tick { word: rng.i64(0..WORDS), by },
            _ => Op::Note,
        }
    }

    /// The steps of an interactive transaction: some read and then write, some write blindly
    /// alone, some are of any kind, and some have savepoints.
    pub fn random_interactive(rng: &mut Rng) -> Vec<Op> {
        if rng.u8(..3) == 0 {
            let (reads, writes) = (rng.usize(1..3), rng.usize(1..3));
            let step = |at| if at < reads { Op::random_read(rng) } else { Op::random_blind(rng) };
            return (0..reads + writes).map(step).collect();
        }
        let blind = rng.u8(..8);
        let count = rng.usize(1..6);
        let step = |_| match rng.u8(..8) {
            part if part < blind => Op::random_blind(rng),
            7 if rng.bool() => Op::First { low: rng.i64(0..ITEMS) },
            _ => Op::random(rng),
        };
        let mut ops: Vec<Op> = (0..count).map(step).collect();
        while rng.u8(..4) == 0 {
            let open = rng.usize(..=ops.len());
            ops.insert(open, Op::Open);
            for _ in 0..rng.u8(1..3) {
                let end = rng.usize(open + 1..=ops.len());
                ops.insert(end, if rng.bool() { Op::Undo } else { Op::Keep });
            }
        }
        ops
    }
}
