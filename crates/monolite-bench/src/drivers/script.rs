//! What an application does in the middle of a transfer, the same for every database.
//!
//! - *Blind* is the transaction as published: two updates that compute the new balance in SQL, and
//!   the application's time between them. With a third statement, the second account's balance is
//!   read between them, with the application's time after it as well.
//! - *Decide* is what an application does that cannot say its rule in SQL: it reads both balances,
//!   takes its time to decide, and writes two balances that it computed. With a third statement it
//!   also takes its time between the two reads. The account with the smaller id is read and written
//!   first, as an application would do against deadlocks.

use super::asked::Asked;
use crate::workload::{BALANCE_SQL, DEPOSIT_SQL, Transfer, WITHDRAW_SQL};
use anyhow::{Result, ensure};
use std::time::Duration;

/// Writes a balance that the application computed.
pub const SET_SQL: &str = "UPDATE account SET balance = ?1 WHERE id = ?2";

/// Who computes the new balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// The database.
    Blind,
    /// The application, from the balances that it read.
    Decide,
}

impl Workload {
    pub const ALL: [Workload; 2] = [Workload::Blind, Workload::Decide];

    /// Returns the beginning of a cell's name.
    pub fn key(self) -> &'static str {
        match self {
            Workload::Blind => "delay",
            Workload::Decide => "decide",
        }
    }
}

/// A transfer as the application drives it.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// Who computes.
    pub workload: Workload,
    /// The application's time between two statements.
    pub delay: Duration,
    /// Whether there is one more place at which it takes its time, see the header.
    pub third_statement: bool,
}

impl Script {
    /// Two updates, and nothing between them.
    pub const PLAIN: Script =
        Script { workload: Workload::Blind, delay: Duration::ZERO, third_statement: false };
}

/// An account and the amount that is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The account.
    pub id: i64,
    /// What is added; negative where it is taken.
    pub amount: i64,
}

/// Returns both sides of a transfer, the account with the smaller id first.
pub fn changes(transfer: Transfer) -> [Change; 2] {
    let from = Change { id: transfer.from, amount: -transfer.amount };
    let to = Change { id: transfer.to, amount: transfer.amount };
    if from.id <= to.id { [from, to] } else { [to, from] }
}

/// The application's decision: the new balances, from those that were read. Nothing moves where
/// the money does not suffice, or within one account.
pub fn decide(changes: [Change; 2], balances: [i64; 2]) -> [i64; 2] {
    let decided = [balances[0] + changes[0].amount, balances[1] + changes[1].amount];
    let suffices = decided.iter().all(|balance| *balance >= 0);
    if suffices && changes[0].id != changes[1].id { decided } else { balances }
}

/// Does everything of a transfer but the commit.
pub async fn perform(tx: &impl Asked, transfer: Transfer, script: Script) -> Result<()> {
    let Transfer { from, to, amount } = transfer;
    match script.workload {
        Workload::Blind => {
            change(tx, WITHDRAW_SQL, amount, from).await?;
            pause(script.delay).await;
            if script.third_statement {
                tx.row(BALANCE_SQL, &[to]).await?;
                pause(script.delay).await;
            }
            change(tx, DEPOSIT_SQL, amount, to).await
        }
        Workload::Decide => {
            let sides = changes(transfer);
            let first = tx.to_decide_on(BALANCE_SQL, &[sides[0].id]).await?;
            if script.third_statement {
                pause(script.delay).await;
            }
            let balances = [first, tx.to_decide_on(BALANCE_SQL, &[sides[1].id]).await?];
            pause(script.delay).await;
            for (side, balance) in sides.iter().zip(decide(sides, balances)) {
                change(tx, SET_SQL, balance, side.id).await?;
            }
            Ok(())
        }
    }
}

/// Takes the application's time.
pub(crate) async fn pause(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

async fn change(tx: &impl Asked, sql: &str, amount: i64, id: i64) -> Result<()> {
    ensure!(tx.execute(sql, &[amount, id]).await? == 1, "there is no account {id}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_id_comes_first_and_the_money_stays() {
        let sides = changes(Transfer { from: 7, to: 3, amount: 5 });
        assert_eq!(sides, [Change { id: 3, amount: 5 }, Change { id: 7, amount: -5 }]);
        assert_eq!(decide(sides, [10, 10]), [15, 5]);
        assert_eq!(decide(sides, [10, 4]), [10, 4]);
        let alone = changes(Transfer { from: 3, to: 3, amount: 5 });
        assert_eq!(decide(alone, [10, 10]), [10, 10]);
    }
}
