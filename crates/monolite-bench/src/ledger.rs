//! What the balances must be: the proof that no transfer was lost, halved or done twice.
//!
//! The sum over all accounts alone would not notice a driver that skips whole transfers, since each
//! moves money without making any. The ledger keeps the balance of every account that was touched,
//! as it must be after the transfers that were acknowledged, and compares account by account.

use crate::raw_connection;
use crate::workload::{BALANCE_SQL, Transfer};
use anyhow::{Result, ensure};
use std::collections::HashMap;
use std::path::Path;

/// Expected balances of the accounts touched so far.
#[derive(Debug, Default)]
pub struct Ledger {
    expected: HashMap<i64, i64>,
}

impl Ledger {
    /// Reads the balances of the accounts in `transfers` that are not known yet.
    pub fn learn(&mut self, database: &Path, transfers: &[Transfer]) -> Result<()> {
        let connection = raw_connection::open_bare(database)?;
        connection.execute_batch("BEGIN")?;
        let mut balance = connection.prepare(BALANCE_SQL)?;
        let ids = transfers.iter().flat_map(|transfer| [transfer.from, transfer.to]);
        let mut unknown: Vec<i64> = ids.filter(|id| !self.expected.contains_key(id)).collect();
        // Neighbours are on one page.
        unknown.sort_unstable();
        unknown.dedup();
        for id in unknown {
            self.expected.insert(id, balance.query_row([id], |row| row.get(0))?);
        }
        Ok(())
    }

    /// Books an acknowledged transfer; its accounts must be known.
    pub fn book(&mut self, transfer: &Transfer) {
        for (id, change) in [(transfer.from, -transfer.amount), (transfer.to, transfer.amount)] {
            *self.expected.get_mut(&id).expect("learn() came first") += change;
        }
    }

    /// Compares every touched account, and returns how many there are.
    pub fn verify(&self, database: &Path) -> Result<u64> {
        let connection = raw_connection::open_bare(database)?;
        connection.execute_batch("BEGIN")?;
        let mut balance = connection.prepare(BALANCE_SQL)?;
        let (mut wrong, mut example) = (0_u64, None);
        let mut accounts: Vec<(i64, i64)> =
            self.expected.iter().map(|(id, is)| (*id, *is)).collect();
        accounts.sort_unstable();
        for (id, expected) in accounts {
            let found: i64 = balance.query_row([id], |row| row.get(0))?;
            if found != expected {
                wrong += 1;
                example = example.or(Some((id, expected, found)));
            }
        }
        ensure!(
            wrong == 0,
            "money was lost or invented: {wrong} of {} accounts are wrong, for example \
             (account, expected, found) {example:?}",
            self.expected.len()
        );
        Ok(self.expected.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Dataset;
    use crate::progress::{Interrupt, Silent};
    use crate::workload::Schema;

    #[test]
    fn a_skipped_transfer_is_noticed_although_the_sum_is_right() {
        let dir = tempfile::tempdir().unwrap();
        let stop = Interrupt::default();
        let data = Dataset::prepare(dir.path(), Schema::Tuned, 10, &Silent, &stop).unwrap();
        let transfer = Transfer { from: 1, to: 2, amount: 5 };
        let mut ledger = Ledger::default();
        ledger.learn(&data.path, &[transfer]).unwrap();
        assert_eq!(ledger.verify(&data.path).unwrap(), 2);
        ledger.book(&transfer);
        let error = ledger.verify(&data.path).unwrap_err().to_string();
        assert!(error.contains("2 of 2 accounts are wrong"), "{error}");
        assert_eq!(data.total().unwrap(), data.expected_total());
    }
}
