//! Judges a bank: transfers between accounts neither make nor lose money.
//!
//! # Algorithm
//! 1. Every balance that anybody reads in one snapshot is summed up: the total never changes, and
//!    no balance is negative.
//! 2. Acknowledged transfers are entered into a ledger of our own. In the end the table must hold
//!    what the ledger says.

/// What acknowledged transfers have left in the accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bank {
    balances: Vec<i64>,
    total: i64,
}

impl Bank {
    /// Accounts numbered from 0, each with the same opening balance.
    pub fn new(accounts: usize, opening_balance: i64) -> Bank {
        let balances = vec![opening_balance; accounts];
        Bank { total: balances.iter().sum(), balances }
    }

    /// Enters a transfer that was acknowledged.
    ///
    /// # Errors
    /// What is wrong: an account that does not exist, or a negative amount.
    pub fn acknowledge(&mut self, from: usize, to: usize, amount: i64) -> Result<(), String> {
        let accounts = self.balances.len();
        if from >= accounts || to >= accounts || amount < 0 {
            return Err(format!("a transfer of {amount} from {from} to {to} cannot be"));
        }
        self.balances[from] -= amount;
        self.balances[to] += amount;
        Ok(())
    }

    /// Judges all balances, as seen in one snapshot.
    ///
    /// # Errors
    /// Which rule the snapshot breaks.
    pub fn check_snapshot(&self, seen: &[i64]) -> Result<(), String> {
        if seen.len() != self.balances.len() {
            return Err(format!("{} accounts of {}: {seen:?}", seen.len(), self.balances.len()));
        }
        self.check_total(seen.iter().sum())?;
        match seen.iter().position(|balance| *balance < 0) {
            Some(at) => Err(format!("account {at} is overdrawn: {seen:?}")),
            None => Ok(()),
        }
    }

    /// Judges a sum of all balances, as seen in one snapshot.
    ///
    /// # Errors
    /// When it is not the total.
    pub fn check_total(&self, seen: i64) -> Result<(), String> {
        if seen == self.total {
            return Ok(());
        }
        Err(format!("the accounts held {seen} in all, and must hold {}", self.total))
    }

    /// Judges the table when every transfer has been answered and entered.
    ///
    /// # Errors
    /// Which account differs from the ledger.
    pub fn check_end(&self, table: &[i64]) -> Result<(), String> {
        self.check_snapshot(table)?;
        let differs = |at: &usize| table[*at] != self.balances[*at];
        match (0..table.len()).find(differs) {
            Some(at) => Err(format!(
                "account {at} holds {}, and its acknowledged transfers make it {}",
                table[at], self.balances[at]
            )),
            None => Ok(()),
        }
    }
}

#[test]
fn transfers_that_were_acknowledged_and_kept_are_fine() {
    let mut bank = Bank::new(3, 100);
    bank.acknowledge(0, 2, 30).unwrap();
    bank.check_snapshot(&[100, 100, 100]).unwrap();
    bank.check_end(&[70, 100, 130]).unwrap();
}

#[test]
fn every_way_to_make_or_lose_money_is_noticed() {
    let mut bank = Bank::new(3, 100);
    bank.acknowledge(0, 2, 30).unwrap();
    let half_a_transfer = bank.check_snapshot(&[70, 100, 100]).unwrap_err();
    assert!(half_a_transfer.contains("270"), "{half_a_transfer}");
    assert!(bank.check_snapshot(&[-10, 110, 200]).unwrap_err().contains("overdrawn"));
    assert!(bank.check_snapshot(&[300, 0]).unwrap_err().contains("2 accounts of 3"));
    let lost = bank.check_end(&[100, 100, 100]).unwrap_err();
    assert!(lost.contains("account 0 holds 100"), "{lost}");
    assert!(bank.check_end(&[70, 90, 140]).is_err(), "one that nobody was told of");
    assert!(bank.acknowledge(0, 3, 1).is_err());
}
