//! Owns what is said of a failure beyond SQLite's own words, looked up when it has happened.

use rusqlite::Result;

use super::Connection;

/// Violations that are looked at to find the tables of a foreign key.
const VIOLATIONS_SEEN: usize = 100;

/// Pairs of tables that are named.
const PAIRS_NAMED: usize = 3;

impl Connection {
    /// Says which tables have rows that violate foreign keys, a few of them, and those that did
    /// before the open transaction, too. Looks until
    /// [`Settings::overdue`](super::Settings::overdue) ends that.
    pub fn violated_keys(&self) -> Vec<String> {
        let mut pairs = Vec::new();
        // What was found until it was ended, or failed, is found.
        let _ = self.as_engine(|| self.find_violated_keys(&mut pairs));
        self.interruption.take_late();
        pairs
    }

    fn find_violated_keys(&self, pairs: &mut Vec<String>) -> Result<()> {
        let mut check = self.raw().prepare("PRAGMA foreign_key_check")?;
        let mut rows = check.query([])?;
        for _ in 0..VIOLATIONS_SEEN {
            let Some(row) = rows.next()? else { break };
            let (child, parent) = (row.get::<_, String>(0)?, row.get::<_, String>(2)?);
            let pair = format!("{child} refers to rows that are not in {parent}");
            if !pairs.contains(&pair) {
                pairs.push(pair);
            }
            if pairs.len() == PAIRS_NAMED {
                break;
            }
        }
        Ok(())
    }
}
