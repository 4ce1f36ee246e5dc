//! The steps of checked transactions in an interactive transaction, with pauses between them.

use std::cell::RefCell;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use monolite::rusqlite::ToSql;
use monolite::{Error, Execution, Transaction};

use super::sql::{Rows, Savepoint, Sql, values};
use crate::blocking::block_on;

/// Name of every savepoint: one that is opened again hides the one before.
const SAVEPOINT: &str = "s";

/// How an application goes through its statements.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Statements are awaited, and run on another thread.
    pub is_awaited: bool,
    /// Longest pause before a statement, in microseconds; 0 is none.
    pub longest_pause: u64,
    /// Decides about pauses.
    pub rng: Rng,
}

impl Pace {
    /// Without pauses.
    pub fn steady() -> Pace {
        Pace { is_awaited: false, longest_pause: 0, rng: Rng::with_seed(0) }
    }

    /// Any pace; half of them without pauses.
    pub fn random(rng: &mut Rng) -> Pace {
        let longest_pause = [0, 0, 100, 500][rng.usize(..4)];
        Pace { is_awaited: rng.u8(..4) == 0, longest_pause, rng: rng.fork() }
    }
}

/// An interactive transaction that runs SQL.
pub struct Interactive<'t> {
    tx: &'t Transaction,
    pace: RefCell<Pace>,
}

impl<'t> Interactive<'t> {
    /// Goes through `tx` at this pace.
    pub fn new(tx: &'t Transaction, pace: Pace) -> Interactive<'t> {
        Interactive { tx, pace: RefCell::new(pace) }
    }

    fn done<T: Send + 'static>(&self, execution: Execution<'_, T>) -> Result<T, Error> {
        let pace = &mut *self.pace.borrow_mut();
        if pace.longest_pause > 0 && pace.rng.bool() {
            thread::sleep(Duration::from_micros(pace.rng.u64(..pace.longest_pause)));
        }
        if pace.is_awaited { block_on(execution) } else { execution.wait() }
    }
}

impl Rows for Interactive<'_> {
    fn rows(&self, sql: &str, parameters: &[i64]) -> Result<Vec<i64>, Error> {
        let rows = self.done(self.tx.query_map(sql, parameters.to_vec(), values))?;
        Ok(rows.into_iter().flatten().collect())
    }
}

impl Sql for Interactive<'_> {
    fn change(&self, sql: &str, parameters: &[&dyn ToSql]) -> Result<i64, Error> {
        let changed = self.done(self.tx.execute(sql, parameters))?;
        Ok(i64::try_from(changed).unwrap_or(i64::MAX))
    }

    fn say(&self, sql: &str) -> Result<(), Error> {
        self.done(self.tx.execute_batch(sql))
    }

    fn first(&self, sql: &str, parameters: &[i64]) -> Result<Vec<i64>, Error> {
        let first = self.done(self.tx.query_optional(sql, parameters.to_vec(), values));
        Ok(first?.unwrap_or_default())
    }

    fn text(&self, sql: &str, parameter: i64) -> Result<Option<String>, Error> {
        self.done(self.tx.query_optional(sql, [parameter], |row| row.get(0)))
    }

    fn refuses_both(&self, rolls_back: &str, later: &str) -> Result<bool, Error> {
        Ok(self.change(rolls_back, &[]).is_err() && self.change(later, &[]).is_err())
    }

    fn last_rowid(&self) -> Result<i64, Error> {
        self.done(self.tx.last_insert_rowid())
    }

    fn savepoint(&self, step: Savepoint) -> Result<(), Error> {
        self.done(match step {
            Savepoint::Open => self.tx.savepoint(SAVEPOINT),
            Savepoint::Undo => self.tx.rollback_to(SAVEPOINT),
            Savepoint::Keep => self.tx.release(SAVEPOINT),
        })
    }
}
