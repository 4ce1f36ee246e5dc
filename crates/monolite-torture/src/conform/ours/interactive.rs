//! Owns the paths on which a transaction is interactive.

use std::sync::{Arc, Mutex};

use monolite::rusqlite::{self, Row};
use monolite::{Error, ErrorKind, Transaction};
use monolite_testkit::blocking::{block_on, locked};

use super::super::ask::Way;
use super::super::said::Said;
use super::super::script::Unit;
use super::super::statement::{Control, Statement};
use super::super::subject::Ran;
use super::{Heard, Ours, outcome};

impl Ours {
    pub(super) fn transaction(&self, unit: &Arc<Unit>) -> Ran {
        let heard = Heard::default();
        let result = self.db.transaction().and_then(|tx| {
            for statement in &unit.statements {
                heard.hear(numbered(&tx, put(&tx, statement, self.path.way)));
            }
            outcome(unit)?;
            tx.commit().wait().map(|_| ())
        });
        heard.ran(unit, result)
    }

    pub(super) fn transact_waited(&self, unit: &Arc<Unit>) -> Ran {
        let heard = Heard::default();
        let result = self.db.transact(async |tx| self.attempt(&tx, unit, &heard)).wait();
        heard.ran(unit, result)
    }

    fn attempt(&self, tx: &Transaction, unit: &Unit, heard: &Heard) -> Result<(), Error> {
        heard.begin();
        for statement in &unit.statements {
            heard.hear(numbered(tx, put(tx, statement, self.path.way)));
        }
        outcome(unit)
    }

    pub(super) fn transact(&self, unit: &Arc<Unit>) -> Ran {
        let heard = Heard::default();
        let result = block_on(self.db.transact(|tx| {
            let (unit, heard) = (Arc::clone(unit), heard.clone());
            async move {
                heard.begin();
                for statement in &unit.statements {
                    heard.hear(numbered(&tx, put_awaited(&tx, statement).await));
                }
                outcome(&unit)
            }
        }));
        heard.ran(unit, result)
    }
}

/// Rows of a statement, gathered by a closure that the engine keeps.
#[derive(Clone, Default)]
struct Gathered(Arc<Mutex<Said>>);

impl Gathered {
    fn collector(&self) -> impl FnMut(&Row<'_>) -> rusqlite::Result<()> + Send + 'static {
        let said = Arc::clone(&self.0);
        move |row| locked(&said).take(row)
    }

    fn said<T>(&self, result: Result<T, Error>) -> Said {
        std::mem::take(&mut *locked(&self.0)).ended(result)
    }
}

/// What a statement of the transaction has said, with the numbers that its rows were given.
fn numbered(tx: &Transaction, said: Said) -> Said {
    let is_answer = said.fault.as_ref().is_none_or(|it| it.kind == ErrorKind::Constraint);
    Said { given: is_answer.then(|| tx.given_rowids()).flatten(), ..said }
}

/// Runs a statement of the transaction.
fn put(tx: &Transaction, statement: &Statement, way: Way) -> Said {
    let (sql, gathered) = (&*statement.sql, Gathered::default());
    let result = match &statement.control {
        Some(Control::Savepoint(name)) => tx.savepoint(name).wait(),
        Some(Control::RollbackTo(name)) => tx.rollback_to(name).wait(),
        Some(Control::Release(name)) => tx.release(name).wait(),
        _ if way == Way::Batch => tx.execute_batch(sql).wait(),
        _ if statement.has_rows && way == Way::FirstRow => {
            tx.query_row(sql, (), gathered.collector()).wait()
        }
        _ if statement.has_rows => tx.query_map(sql, (), gathered.collector()).wait().map(drop),
        _ => {
            let changed = tx.execute(sql, ()).wait();
            return counted(&gathered, changed);
        }
    };
    gathered.said(result)
}

async fn put_awaited(tx: &Transaction, statement: &Statement) -> Said {
    let (sql, gathered) = (&*statement.sql, Gathered::default());
    let result = match &statement.control {
        Some(Control::Savepoint(name)) => tx.savepoint(name).await,
        Some(Control::RollbackTo(name)) => tx.rollback_to(name).await,
        Some(Control::Release(name)) => tx.release(name).await,
        _ if statement.has_rows => tx.query_map(sql, (), gathered.collector()).await.map(drop),
        _ => return counted(&gathered, tx.execute(sql, ()).await),
    };
    gathered.said(result)
}

fn counted(gathered: &Gathered, changed: Result<usize, Error>) -> Said {
    let changes = changed.as_ref().ok().map(|number| *number as u64);
    Said { changes, ..gathered.said(changed) }
}
