//! Stand-ins for engines with a known flaw, over a plain SQLite connection: what a checker must
//! notice.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use monolite::Error;
use monolite::rusqlite::Connection;

use super::{IoFault, Member, Plan, SCHEMA, Subject, Told, sql};
use crate::checkers::serial::{Contents, Op};
use crate::clock::HandClock;
use crate::functions::add_to_plain;

/// What a stand-in does not look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blindness {
    /// Whether the transaction still exists after a member, which `OR ROLLBACK` ends.
    LostTransactions,
    /// Whether a member failed: what it wrote stays.
    Failures,
    /// Whether a member was committed: one in this many is acknowledged and undone.
    Commits(usize),
}

/// A batch is one transaction, a member is a savepoint, and something is not looked at.
pub struct Naive {
    connection: Connection,
    blindness: Blindness,
    clock: std::sync::Arc<HandClock>,
    members: usize,
}

impl Naive {
    /// A new database at `path`.
    pub fn new(path: &Path, blindness: Blindness) -> Result<Naive> {
        monolite_sqlite::initialize().map_err(anyhow::Error::msg)?;
        let connection = Connection::open(path).context("cannot open the stand-in's database")?;
        connection.execute_batch("PRAGMA journal_mode = wal; PRAGMA synchronous = off")?;
        connection.execute_batch("PRAGMA foreign_keys = on")?;
        connection.execute_batch(SCHEMA)?;
        add_to_plain(&connection)?;
        Ok(Naive { connection, blindness, clock: HandClock::new(), members: 0 })
    }

    /// A statement whose failure is not looked at.
    fn say(&self, sql: &str) {
        let _ = self.connection.execute_batch(sql);
    }
}

impl Subject for Naive {
    fn batch(&mut self, members: &[Member], _: Option<&IoFault>) -> Result<Vec<Told>> {
        self.say("BEGIN IMMEDIATE");
        let mut all = Vec::new();
        for member in members {
            self.say("SAVEPOINT member");
            let run = AssertUnwindSafe(|| member.plan.run(&self.connection, &self.clock));
            let told = Told::by(catch_unwind(run));
            self.members += 1;
            let is_undone = match self.blindness {
                Blindness::Commits(rate) => self.members.is_multiple_of(rate),
                _ => false,
            };
            let failed = !matches!(told, Told::Committed(_));
            if is_undone || (failed && self.blindness != Blindness::Failures) {
                self.say("ROLLBACK TO member");
            }
            self.say("RELEASE member");
            all.push(told);
        }
        self.say("COMMIT");
        Ok(all)
    }

    /// Everything that a member does happens in its batch.
    fn begin(&mut self, _: &Plan) -> Result<()> {
        Ok(())
    }

    fn read(&mut self, ops: &[Op], _: bool) -> Result<(i64, Vec<i64>)> {
        let mut saw = Vec::new();
        for op in ops {
            sql::run(&self.connection, op, 0, &mut saw)?;
        }
        Ok((sql::last_number(&self.connection)?, saw))
    }

    fn reopen(&mut self) -> Result<()> {
        bail!("a stand-in is not opened again")
    }

    fn cut_power(&mut self, _: u64) -> Result<()> {
        bail!("a stand-in survives no power cut")
    }

    fn contents(&mut self) -> Result<Contents> {
        Ok::<_, Error>(sql::contents(&self.connection)?).map_err(Into::into)
    }
}
