//! pgbench's TPC-B-like script on SQLite: raw, by `write`, and by interactive transactions.

use crate::drivers::Round;
use crate::progress::Interrupt;
use crate::raw_connection::open_bare;
use crate::suites::Turn;
use crate::suites::shift::{Crew, Shift};
use anyhow::{Context, Result, ensure};
use monolite::{Database, Options};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Accounts of a branch, and tellers, as pgbench has them.
const ACCOUNTS: u64 = 100_000;
const TELLERS: u64 = 10;

const SCHEMA: &str = "
    CREATE TABLE pgbench_accounts(aid INTEGER PRIMARY KEY, bid INTEGER, abalance INTEGER,
        filler CHAR(84));
    CREATE TABLE pgbench_tellers(tid INTEGER PRIMARY KEY, bid INTEGER, tbalance INTEGER,
        filler CHAR(84));
    CREATE TABLE pgbench_branches(bid INTEGER PRIMARY KEY, bbalance INTEGER, filler CHAR(88));
    CREATE TABLE pgbench_history(tid INTEGER, bid INTEGER, aid INTEGER, delta INTEGER,
        mtime TEXT, filler CHAR(22));";

/// The script's statements, with SQLite's parameters.
pub(super) const ACCOUNT: &str =
    "UPDATE pgbench_accounts SET abalance = abalance + ?1 WHERE aid = ?2";
pub(super) const BALANCE: &str = "SELECT abalance FROM pgbench_accounts WHERE aid = ?1";
pub(super) const TELLER: &str =
    "UPDATE pgbench_tellers SET tbalance = tbalance + ?1 WHERE tid = ?2";
pub(super) const BRANCH: &str =
    "UPDATE pgbench_branches SET bbalance = bbalance + ?1 WHERE bid = ?2";
pub(super) const HISTORY: &str = "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) \
                                  VALUES (?1, ?2, ?3, ?4, CURRENT_TIMESTAMP)";

/// What must add up, the same for every database: three sums of balances, that of the history, and
/// its rows.
pub(super) const SUMS: &str = "
    SELECT CAST((SELECT sum(abalance) FROM pgbench_accounts) AS BIGINT),
        CAST((SELECT sum(tbalance) FROM pgbench_tellers) AS BIGINT),
        CAST((SELECT sum(bbalance) FROM pgbench_branches) AS BIGINT),
        CAST((SELECT coalesce(sum(delta), 0) FROM pgbench_history) AS BIGINT),
        (SELECT count(*) FROM pgbench_history)";

/// What [`SUMS`] returns.
pub(super) type Sums = [i64; 5];

/// Compares what must add up, and returns the rows of the history.
pub(super) fn check([accounts, tellers, branches, history, rows]: Sums) -> Result<u64> {
    ensure!(
        accounts == tellers && tellers == branches && branches == history,
        "accounts add up to {accounts}, tellers to {tellers}, branches to {branches}, the history \
         to {history}"
    );
    Ok(rows.cast_unsigned())
}

/// Compares the rows that a round added to the history with what it acknowledged.
pub(super) fn check_rows(before: u64, after: u64, acknowledged: u64) -> Result<()> {
    ensure!(
        after - before == acknowledged,
        "the history grew by {} where {acknowledged} were acknowledged",
        after - before
    );
    Ok(())
}

/// Fills the tables as `pgbench -i` does.
pub(super) fn load(connection: &mut Connection, scale: u64, interrupt: &Interrupt) -> Result<()> {
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")?;
    connection.execute_batch(SCHEMA)?;
    let batch = connection.transaction()?;
    let fill = |sql: &str, count: u64, each: u64| -> Result<()> {
        let mut insert = batch.prepare(sql)?;
        for id in 1..=count {
            if id % 10_000 == 0 {
                interrupt.check()?;
            }
            insert.execute([id.cast_signed(), ((id - 1) / each + 1).cast_signed()])?;
        }
        Ok(())
    };
    fill("INSERT INTO pgbench_branches(bid, bbalance) VALUES (?1, 0 * ?2)", scale, 1)?;
    fill(
        "INSERT INTO pgbench_tellers(tid, bid, tbalance) VALUES (?1, ?2, 0)",
        scale * TELLERS,
        TELLERS,
    )?;
    let accounts = "INSERT INTO pgbench_accounts VALUES (?1, ?2, 0, printf('%84s', ''))";
    fill(accounts, scale * ACCOUNTS, ACCOUNTS)?;
    batch.commit()?;
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(())
}

/// The parameters of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    pub(super) aid: i64,
    pub(super) bid: i64,
    pub(super) tid: i64,
    pub(super) delta: i64,
}

impl Drawn {
    pub(super) fn next(random: &mut fastrand::Rng, scale: u64) -> Drawn {
        let mut up_to = |most: u64| random.u64(1..=most).cast_signed();
        Drawn {
            aid: up_to(scale * ACCOUNTS),
            bid: up_to(scale),
            tid: up_to(scale * TELLERS),
            delta: up_to(10_001) - 5_001,
        }
    }
}

/// Who runs the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Raw,
    Write,
    Interactive,
}

/// The tables in a file.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) path: PathBuf,
    pub(super) scale: u64,
}

impl Case {
    /// Works through a round, each client a thread.
    pub(super) fn run(&self, way: Way, clients: usize, turn: &Turn<'_>) -> Result<Round> {
        let before = sums(&self.path)?;
        let crew = Crew { threads: clients, sample: 1, turn };
        let draw = |number: usize| fastrand::Rng::with_seed(turn.seed << 32 | number as u64);
        let round = if way == Way::Raw {
            crew.work(|number, shift| self.raw(draw(number), shift))?
        } else {
            let db = Options::new().open(&self.path).context("cannot open the engine")?;
            let round = crew.work(|number, shift| match way {
                Way::Write => self.write(&db, draw(number), shift),
                _ => self.interactive(&db, draw(number), shift),
            })?;
            db.close()?;
            round
        };
        check_rows(before, sums(&self.path)?, round.operations)?;
        Ok(round)
    }

    fn raw(&self, mut random: fastrand::Rng, shift: &mut Shift<'_>) -> Result<()> {
        let connection = open_bare(&self.path)?;
        connection.busy_timeout(Duration::from_secs(60))?;
        connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA cache_size = -65536")?;
        let mut prepared = Vec::new();
        for sql in ["BEGIN IMMEDIATE", ACCOUNT, BALANCE, TELLER, BRANCH, HISTORY, "COMMIT"] {
            prepared.push(connection.prepare(sql)?);
        }
        let [begin, account, balance, teller, branch, history, commit] = prepared.as_mut_slice()
        else {
            unreachable!("seven were prepared")
        };
        shift.begin();
        while shift.goes_on() {
            let Drawn { aid, bid, tid, delta } = Drawn::next(&mut random, self.scale);
            begin.execute([])?;
            account.execute([delta, aid])?;
            let _: i64 = balance.query_row([aid], |row| row.get(0))?;
            teller.execute([delta, tid])?;
            branch.execute([delta, bid])?;
            history.execute([tid, bid, aid, delta])?;
            commit.execute([])?;
            shift.acknowledged();
        }
        Ok(())
    }

    fn write(&self, db: &Database, mut random: fastrand::Rng, shift: &mut Shift<'_>) -> Result<()> {
        shift.begin();
        while shift.goes_on() {
            let Drawn { aid, bid, tid, delta } = Drawn::next(&mut random, self.scale);
            let done: monolite::Result<i64> = db
                .write(move |tx| {
                    tx.execute(ACCOUNT, [delta, aid])?;
                    let balance = tx.query_row(BALANCE, [aid], |row| row.get(0))?;
                    tx.execute(TELLER, [delta, tid])?;
                    tx.execute(BRANCH, [delta, bid])?;
                    tx.execute(HISTORY, [tid, bid, aid, delta])?;
                    Ok(balance)
                })
                .wait();
            done?;
            shift.acknowledged();
        }
        Ok(())
    }

    fn interactive(
        &self,
        db: &Database,
        mut random: fastrand::Rng,
        shift: &mut Shift<'_>,
    ) -> Result<()> {
        shift.begin();
        while shift.goes_on() {
            let Drawn { aid, bid, tid, delta } = Drawn::next(&mut random, self.scale);
            let mut attempts = 0_u32;
            db.transact_blocking(|tx| {
                attempts += 1;
                tx.execute(ACCOUNT, [delta, aid]).wait()?;
                let _: i64 = tx.query_row(BALANCE, [aid], |row| row.get(0)).wait()?;
                tx.execute(TELLER, [delta, tid]).wait()?;
                tx.execute(BRANCH, [delta, bid]).wait()?;
                tx.execute(HISTORY, [tid, bid, aid, delta]).wait()?;
                Ok::<_, monolite::Error>(())
            })?;
            (1..attempts).for_each(|_| shift.repeated());
            shift.acknowledged();
        }
        Ok(())
    }
}

/// Returns the rows of the history, when everything adds up.
fn sums(path: &Path) -> Result<u64> {
    let connection = open_bare(path)?;
    let sums = connection.query_row(SUMS, [], |row| {
        Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?])
    })?;
    check(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_that_does_not_add_up_is_noticed() {
        assert_eq!(check([5, 5, 5, 5, 2]).unwrap(), 2);
        assert!(check([5, 5, 4, 5, 2]).is_err());
        assert!(check_rows(1, 3, 2).is_ok() && check_rows(1, 3, 3).is_err());
    }

    #[test]
    fn draws_stay_within_the_tables() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1_000 {
            let Drawn { aid, bid, tid, delta } = Drawn::next(&mut random, 2);
            assert!((1..=200_000).contains(&aid) && (1..=2).contains(&bid));
            assert!((1..=20).contains(&tid) && (-5_000..=5_000).contains(&delta));
        }
    }
}
