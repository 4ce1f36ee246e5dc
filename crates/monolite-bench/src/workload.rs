//! The transaction everyone runs: which accounts it draws and what it says to the database.
//!
//! # Algorithm
//! Accounts are drawn from a Pareto-like curve, as published: with `p` = [`PARETO_P`],
//! `a = ln(1-p)/ln(p)` and `x` uniform in [0, 1),
//!
//! 1. `y = (x^a + 1 - (1-x)^(1/a)) / 2`
//! 2. `id = floor(R * y)` with `R` = [`DRAW_RANGE`], whatever the size of the table
//! 3. the id is folded into the table: `id mod rows`
//!
//! Step 2 matters: with R equal to the rows of a small table the hot set shrinks with the table
//! (10 million rows: a mean id of about 330 in the bulk) and every candidate looks faster.
//!
//! # Not here
//! How rows get into a database: [`crate::dataset`] for SQLite, `drivers::postgres` for PostgreSQL.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Range of the draw before it is folded into the table: the billion accounts of the article.
pub const DRAW_RANGE: u64 = 1_000_000_000;

/// Skew of the published curve: 99.95 % of the accesses go to 0.05 % of the accounts.
pub const PARETO_P: f64 = 0.9995;

/// What every account holds when it is loaded.
pub const INITIAL_BALANCE: i64 = 1_000_000_000;

/// First update of a transfer: takes `?1` from account `?2`.
pub const WITHDRAW_SQL: &str = "UPDATE account SET balance = balance - ?1 WHERE id = ?2";

/// Second update of a transfer: gives `?1` to account `?2`.
pub const DEPOSIT_SQL: &str = "UPDATE account SET balance = balance + ?1 WHERE id = ?2";

/// The point read of the read scenarios.
pub const BALANCE_SQL: &str = "SELECT balance FROM account WHERE id = ?1";

/// Money on all accounts together.
pub const TOTAL_SQL: &str = "SELECT SUM(balance) FROM account";

/// How the SQLite table is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schema {
    /// As in the article: no `INTEGER`, so the table and its primary key are two B-trees.
    Published,
    /// `INTEGER PRIMARY KEY` and `STRICT`: one B-tree.
    Tuned,
}

impl Schema {
    /// Returns the statement that creates the table.
    pub fn create_sql(self) -> &'static str {
        match self {
            Schema::Published => "CREATE TABLE account(id PRIMARY KEY, balance INT)",
            Schema::Tuned => {
                "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL) STRICT"
            }
        }
    }

    /// Bytes of database file per row, rounded up (31 measured for the two B-trees, 14 for one).
    pub fn bytes_per_row(self) -> u64 {
        match self {
            Schema::Published => 33,
            Schema::Tuned => 16,
        }
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Schema::Published => "published",
            Schema::Tuned => "tuned",
        })
    }
}

/// How accounts are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Skew {
    /// The published curve.
    Pareto,
    /// Every account equally likely.
    Uniform,
}

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Skew::Pareto => "pareto",
            Skew::Uniform => "uniform",
        })
    }
}

/// Turns uniform numbers into account ids in `0..rows`.
#[derive(Clone, Debug)]
pub struct Draw {
    skew: Skew,
    rows: u64,
    range: f64,
    exponent: f64,
}

impl Draw {
    /// A draw over a table of `rows` accounts, from the range [`DRAW_RANGE`].
    pub fn new(skew: Skew, rows: u64) -> Draw {
        Draw::with_range(skew, rows, DRAW_RANGE)
    }

    /// A draw from another range; only of use to show what the range does to the hot set.
    pub fn with_range(skew: Skew, rows: u64, range: u64) -> Draw {
        assert!(rows > 0, "a draw needs at least one account");
        let exponent = (1.0 - PARETO_P).ln() / PARETO_P.ln();
        Draw { skew, rows, range: range as f64, exponent }
    }

    /// Returns the account for `x`, uniform in [0, 1).
    pub fn id(&self, x: f64) -> i64 {
        let id = match self.skew {
            Skew::Uniform => (x * self.rows as f64) as u64,
            Skew::Pareto => {
                let a = self.exponent;
                let y = (x.powf(a) + 1.0 - (1.0 - x).powf(1.0 / a)) / 2.0;
                (self.range * y) as u64
            }
        };
        (id % self.rows) as i64
    }

    fn next(&self, random: &mut fastrand::Rng) -> i64 {
        self.id(random.f64())
    }
}

/// One transaction: `amount` moves from one account to another, both drawn independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The account that the first update takes from.
    pub from: i64,
    /// The account that the second update gives to; may be the same.
    pub to: i64,
    /// Units moved, 1 to 100.
    pub amount: i64,
}

/// Draws `count` transfers; the same seed gives every candidate of a round the same work.
pub fn draw_transfers(draw: &Draw, seed: u64, count: usize) -> Vec<Transfer> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count)
        .map(|_| Transfer {
            from: draw.next(&mut random),
            to: draw.next(&mut random),
            amount: random.i64(1..=100),
        })
        .collect()
}

/// How hot the hot set is: what a burst of transfers touches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotSet {
    /// Transfers the figures are for.
    pub transfers: u64,
    /// Accounts drawn, two per transfer.
    pub draws: u64,
    /// Different accounts among them.
    pub distinct_ids: u64,
    /// Different leaf pages that hold them, over all B-trees of the table.
    pub distinct_leaf_pages: u64,
    /// How the pages were counted.
    pub method: String,
}

/// Counts distinct accounts and leaf pages; `rows_per_leaf` has one entry per B-tree.
pub fn hot_set(transfers: &[Transfer], rows_per_leaf: &[f64]) -> HotSet {
    let mut ids: Vec<i64> = transfers.iter().flat_map(|t| [t.from, t.to]).collect();
    let draws = ids.len() as u64;
    ids.sort_unstable();
    ids.dedup();
    let pages = |per_leaf: f64| {
        let mut pages: Vec<u64> = ids.iter().map(|&id| (id as f64 / per_leaf) as u64).collect();
        pages.dedup();
        pages.len() as u64
    };
    HotSet {
        transfers: transfers.len() as u64,
        draws,
        distinct_ids: ids.len() as u64,
        distinct_leaf_pages: rows_per_leaf.iter().map(|&per_leaf| pages(per_leaf)).sum(),
        method: "distinct (id / rows per leaf page), summed over the table's B-trees; rows per \
                 leaf page from dbstat on the first leaves of each"
            .into(),
    }
}

#[cfg(test)]
mod tests;
