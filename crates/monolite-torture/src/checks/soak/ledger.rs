//! What a soaking client does in a transaction, what the parent remembers of it in bounded memory,
//! and how a file is judged by it.
//!
//! # Algorithm
//! 1. Each client counts its transactions. Number `n` writes itself to `whole` and three times to
//!    `part`, removes what is [`WINDOW`] numbers older, moves money between two accounts, and adds
//!    one to the client's `done` and to both accounts' `moves`.
//! 2. The parent remembers, per client, how many numbers were acknowledged and the latest of them.
//! 3. A file holds its promise when SQLite finds nothing wrong with it, each number is there wholly
//!    or not at all, the sums agree, each client has done at least what was acknowledged, and the
//!    acknowledged numbers that no later transaction has removed are there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use monolite::rusqlite::Connection;
use monolite::rusqlite::config::DbConfig;
use monolite::{Error, Transaction, rusqlite};
use monolite_testkit::markers;
use monolite_testkit::schedule::sql::{Rows as _, Sql};
use monolite_testkit::schedule::{Interactive, Pace};

use super::super::wrong::Wrong;

/// Numbers that a client leaves in the file, which bounds its size.
pub(super) const WINDOW: i64 = 2_000;

/// Accounts between which money moves.
pub(super) const ACCOUNTS: i64 = 1_000;

/// The sum of all balances.
pub(super) const TOTAL: i64 = 1_000 * ACCOUNTS;

/// Creates and fills the tables where there are none.
pub(super) const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS account(
        id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, moves INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS client(
        id INTEGER PRIMARY KEY, latest INTEGER NOT NULL, done INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS whole(
        client INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (client, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS part(
        client INTEGER NOT NULL, number INTEGER NOT NULL, part INTEGER NOT NULL, filling BLOB,
        PRIMARY KEY (client, number, part)) STRICT;
    CREATE TABLE IF NOT EXISTS big(id INTEGER PRIMARY KEY, filling BLOB) STRICT;
    CREATE TABLE IF NOT EXISTS wide(id INTEGER PRIMARY KEY, n INTEGER) STRICT;
    WITH RECURSIVE ids(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < 1000)
        INSERT OR IGNORE INTO account SELECT id, 1000, 0 FROM ids;
    WITH RECURSIVE ids(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < 100)
        INSERT OR IGNORE INTO wide (id, n) SELECT id, 0 FROM ids;
";

/// One numbered transaction of a client, drawn before it runs so that each run of it is the same.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) client: i64,
    pub(super) number: i64,
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) amount: i64,
    pub(super) filling: usize,
    /// Bytes of a big value that it replaces; 0 for none.
    pub(super) big: usize,
}

impl Work {
    pub(super) fn draw(client: i64, number: i64, rng: &mut fastrand::Rng) -> Work {
        let big = if rng.u32(..200) == 0 { rng.usize(1..300_000) } else { 0 };
        Work {
            client,
            number,
            from: rng.i64(1..=ACCOUNTS),
            to: rng.i64(1..=ACCOUNTS),
            amount: rng.i64(1..100),
            filling: rng.usize(..300),
            big,
        }
    }

    pub(super) fn run(&self, tx: &impl Sql) -> Result<(), Error> {
        let Work { client, number, from, to, amount, .. } = *self;
        let filling = vec![7_u8; self.filling];
        let part = "INSERT INTO part VALUES (?1, ?2, ?3, ?4)";
        tx.change(part, &[&client, &number, &1, &filling])?;
        let pay = "UPDATE account SET balance = balance + ?2, moves = moves + 1 WHERE id = ?1";
        tx.change(pay, &[&from, &-amount])?;
        tx.change("INSERT INTO whole VALUES (?1, ?2)", &[&client, &number])?;
        tx.change(part, &[&client, &number, &2, &filling])?;
        tx.change(part, &[&client, &number, &3, &filling])?;
        tx.change(pay, &[&to, &amount])?;
        if self.big > 0 {
            let (id, bytes) = (client * 16 + number % 16, i64::try_from(self.big).unwrap_or(1));
            let put = "INSERT OR REPLACE INTO big VALUES (?1, zeroblob(?2))";
            tx.change(put, &[&id, &bytes])?;
        }
        let old = number - WINDOW;
        tx.change("DELETE FROM whole WHERE client = ?1 AND number <= ?2", &[&client, &old])?;
        tx.change("DELETE FROM part WHERE client = ?1 AND number <= ?2", &[&client, &old])?;
        let done = "INSERT INTO client VALUES (?1, ?2, 1) ON CONFLICT (id)
                    DO UPDATE SET latest = max(latest, ?2), done = done + 1";
        tx.change(done, &[&client, &number])?;
        Ok(())
    }

    /// Runs as an interactive transaction whose application takes its time, and looks at the
    /// account that pays before it decides.
    pub(super) fn interact(&self, tx: &Transaction, pace: Pace) -> Result<(), Error> {
        let tx = Interactive::new(tx, pace);
        tx.rows("SELECT balance FROM account WHERE id = ?1", &[self.from])?;
        self.run(&tx)
    }
}

/// What was acknowledged on one file.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    clients: BTreeMap<i64, Acknowledged>,
}

#[derive(Clone, Debug, Default)]
struct Acknowledged {
    count: i64,
    latest: BTreeSet<i64>,
}

impl Ledger {
    pub(super) fn acknowledge(&mut self, client: i64, number: i64) {
        let of_client = self.clients.entry(client).or_default();
        of_client.count += 1;
        of_client.latest.insert(number);
        while of_client.latest.len() > usize::try_from(WINDOW).unwrap_or(usize::MAX) {
            of_client.latest.pop_first();
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.clients.values().map(|client| client.count.unsigned_abs()).sum()
    }

    /// Judges the file that nobody has open, through stock SQLite, which leaves the WAL for the
    /// next child to recover when it is told to.
    pub(super) fn judge(&self, path: &Path, leaves_wal: bool) -> Result<(), Wrong> {
        let other = |error: rusqlite::Error| Wrong::Other(format!("{error}"));
        let connection = Connection::open(path).map_err(other)?;
        let keep_wal =
            |keeps| connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keeps);
        // Until it is found sound, the file stays as it is, for whoever looks into it.
        keep_wal(true).map_err(other)?;
        markers::check_integrity(&connection)
            .map_err(|error| Wrong::Other(format!("{error:#}")))?;
        let tables = "SELECT COUNT(*) FROM sqlite_schema WHERE name = 'wide'";
        let created: i64 = connection.query_row(tables, [], |row| row.get(0)).map_err(other)?;
        if created == 0 {
            return if self.count() == 0 {
                Ok(())
            } else {
                Err(Wrong::Lost(1, "everything: there are no tables".into()))
            };
        }
        whole_or_not_at_all(&connection).map_err(other)??;
        self.all_there(&connection).map_err(other)??;
        keep_wal(leaves_wal).map(drop).map_err(other)
    }

    fn all_there(&self, connection: &Connection) -> rusqlite::Result<Result<(), Wrong>> {
        let mut find =
            connection.prepare("SELECT 1 FROM whole WHERE client = ?1 AND number = ?2")?;
        for (client, acknowledged) in &self.clients {
            let row = "SELECT max(latest), max(done) FROM client WHERE id = ?1";
            let (latest, done): (Option<i64>, Option<i64>) =
                connection.query_row(row, [client], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let (latest, done) = (latest.unwrap_or(0), done.unwrap_or(0));
            for number in acknowledged.latest.range(latest - WINDOW + 1..) {
                if !find.exists((client, number))? {
                    let what = format!("number {number} of client {client}; it is at {latest}");
                    return Ok(Err(Wrong::Lost(1, what)));
                }
            }
            if done < acknowledged.count {
                let what = format!("client {client} has {done} of {}", acknowledged.count);
                return Ok(Err(Wrong::Lost(1, what)));
            }
        }
        Ok(Ok(()))
    }
}

fn whole_or_not_at_all(connection: &Connection) -> rusqlite::Result<Result<(), Wrong>> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let partial = number(
        "SELECT COUNT(*) FROM (SELECT client, number, COUNT(*) AS n FROM part GROUP BY 1, 2) AS p
         FULL JOIN whole AS w ON w.client = p.client AND w.number = p.number
         WHERE n IS NOT 3 OR w.client IS NULL",
    )?;
    let undone = number("SELECT COUNT(*) FROM whole WHERE number < 0")?;
    let moves = number("SELECT SUM(moves) FROM account")?;
    let done = number("SELECT COALESCE(SUM(done), 0) FROM client")?;
    let total = number("SELECT SUM(balance) FROM account")?;
    if partial + undone > 0 || moves != 2 * done || total != TOTAL {
        return Ok(Err(Wrong::Partial(format!(
            "{partial} partial, {undone} of those that failed; {moves} moves of {done} \
             transactions; {total} in all accounts instead of {TOTAL}"
        ))));
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (tempfile::TempDir, std::path::PathBuf, Ledger) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let db = monolite::Database::open(&path).unwrap();
        db.write(|tx| tx.execute_batch(SCHEMA)).wait().unwrap();
        let (mut rng, mut ledger) = (fastrand::Rng::with_seed(1), Ledger::default());
        for number in 1..=WINDOW + 10 {
            let work = Work::draw(1, number, &mut rng);
            db.write(move |tx| work.run(tx)).wait().unwrap();
            ledger.acknowledge(1, number);
        }
        db.close().unwrap();
        (directory, path, ledger)
    }

    #[test]
    fn a_lost_a_partial_and_an_undone_transaction_are_noticed() {
        let (_directory, path, mut ledger) = file();
        assert_eq!(ledger.judge(&path, true), Ok(()));
        let change = |sql| Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        change("DELETE FROM part WHERE number = 2000 AND part = 2");
        assert!(matches!(ledger.judge(&path, false), Err(Wrong::Partial(_))));
        change("DELETE FROM part WHERE number = 2000; DELETE FROM whole WHERE number = 2000");
        assert!(matches!(ledger.judge(&path, false), Err(Wrong::Lost(..))));
        change("UPDATE account SET balance = balance + 1 WHERE id = 7");
        assert!(matches!(ledger.judge(&path, false), Err(Wrong::Partial(_))));
        change("UPDATE account SET balance = balance - 1 WHERE id = 7");
        ledger.acknowledge(1, WINDOW + 11);
        assert!(matches!(ledger.judge(&path, false), Err(Wrong::Lost(..))));
    }
}
