//! Owns the paths on which a transaction is a closure: writes, and reads.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use monolite::{Error, ReadTx, Tx, Write};
use monolite_testkit::blocking::{block_on, locked};

use super::super::ask::{Way, ask, query};
use super::super::content::{Content, Extent, content};
use super::super::path::{Carrier, Errors};
use super::super::said::Said;
use super::super::script::Unit;
use super::super::statement::Statement;
use super::super::subject::Ran;
use super::{Heard, Ours, READERS, outcome, rollback};

/// Tables that a neighbour empties: its failure has to bring all of them back.
const HURT: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 \
                    AND name NOT LIKE 'sqlite%' LIMIT 3";

impl Ours {
    /// The closure of a transaction.
    fn body(
        &self,
        unit: &Arc<Unit>,
        heard: &Heard,
    ) -> impl FnMut(&Tx<'_>) -> Result<(), Error> + Send + 'static {
        let (unit, heard, heart, way) =
            (Arc::clone(unit), heard.clone(), self.heart.clone(), self.path.way);
        let (ran_again, errors) = (Arc::clone(&self.ran_again), self.path.errors);
        move |tx| {
            ran_again.fetch_or(tx.attempt() > 1, Ordering::Relaxed);
            heard.begin();
            for statement in &unit.statements {
                heart.beat(statement);
                let said = ask(tx, statement, way);
                let has_failed = said.fault.is_some();
                heard.hear(said);
                if has_failed && errors == Errors::Returned {
                    return Err(rollback());
                }
            }
            outcome(&unit)
        }
    }

    pub(super) fn write(&self, unit: &Arc<Unit>) -> Ran {
        let heard = Heard::default();
        let result = self.db.write(self.body(unit, &heard)).wait();
        heard.ran(unit, result)
    }

    pub(super) fn write_once(&self, unit: &Arc<Unit>) -> Ran {
        let heard = Heard::default();
        let result = self.db.write_once(self.body(unit, &heard)).wait();
        heard.ran(unit, result)
    }

    /// A write that is held up until its neighbours are in the queue, too. The one before it and
    /// the one behind it change what they can and fail.
    pub(super) fn write_among_neighbours(&self, unit: &Arc<Unit>) -> Ran {
        let heard = Heard::default();
        let (open, gate) = channel::<()>();
        let first = self.db.write(wait_for(gate));
        let before = self.db.write(hurt);
        let ours = self.db.write(self.body(unit, &heard));
        let after = self.db.write(hurt);
        drop(open);
        let result = ours.wait();
        for neighbour in [first, before, after] {
            // What becomes of them shows in the content.
            let _: Result<(), Error> = Write::wait(neighbour);
        }
        heard.ran(unit, result)
    }

    /// A question that stands alone is a read; everything else is a write.
    pub(super) fn read_or_write(&self, unit: &Arc<Unit>) -> Ran {
        let [statement] = unit.statements.as_slice() else { return self.write(unit) };
        if unit.is_block || !statement.only_asks() {
            return self.write(unit);
        }
        self.heart.beat(statement);
        let way = self.path.way;
        let mut also = Vec::new();
        let said = if self.path.carrier == Carrier::Readers {
            let mut said = self.ask_readers(&|tx| ask(tx, statement, way)).into_iter();
            let first = said.next().unwrap_or_default();
            also.extend(said.enumerate().map(|(at, said)| (format!("reader {}", at + 2), said)));
            first
        } else {
            also.push(("an awaited read".into(), self.read_awaited(statement, way)));
            let read = self.db.read(|tx| Ok::<_, Error>(ask(tx, statement, way)));
            read.wait().unwrap_or_else(|error| Said::failed(&error))
        };
        Ran { said: vec![said], also, end: None }
    }

    fn read_awaited(&self, statement: &Statement, way: Way) -> Said {
        let statement = statement.clone();
        let read = self.db.read(move |tx| Ok::<_, Error>(ask(tx, &statement, way)));
        block_on(read).unwrap_or_else(|error| Said::failed(&error))
    }

    /// What every reader says: while one is busy with this, the next is another one.
    fn ask_readers<T>(&self, ask: &dyn Fn(&ReadTx<'_>) -> T) -> Vec<T>
    where
        T: Default,
    {
        let mut said = Vec::new();
        self.nest(READERS, &mut |tx| said.push(ask(tx)));
        said
    }

    fn nest(&self, depth: usize, each: &mut dyn FnMut(&ReadTx<'_>)) {
        if depth == 0 {
            return;
        }
        let read = self.db.read(|tx| {
            each(tx);
            self.nest(depth - 1, each);
            Ok::<_, Error>(())
        });
        // A read that fails has said nothing, which the comparison notices.
        let _ = read.wait();
    }

    pub(super) fn on_readers(&self, extent: Extent, plans: &[String]) -> Vec<Content> {
        self.heart.tell(0, &"looking at everything on all readers".into());
        let mut contents = self.ask_readers(&|tx| {
            let mut found = content(tx, extent);
            found.extend(plans.iter().map(|sql| (sql.clone(), query(tx, sql))));
            found
        });
        contents.resize(READERS, Content::new());
        contents
    }
}

/// Keeps the writer busy until the others have been handed over.
fn wait_for(gate: Receiver<()>) -> impl FnMut(&Tx<'_>) -> Result<(), Error> + Send + 'static {
    let gate = Mutex::new(gate);
    move |tx| {
        if tx.attempt() == 1 {
            // Ends when the other side is dropped.
            let _ = locked(&gate).recv();
        }
        Ok(())
    }
}

/// Changes what it can, and fails.
fn hurt(tx: &Tx<'_>) -> Result<(), Error> {
    let mut tables = tx.prepare(HURT)?;
    let names =
        tables.query_map((), |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    for name in names {
        // A trigger or a foreign key may refuse.
        let _ = tx.execute(&format!("DELETE FROM \"{}\"", name.replace('"', "\"\"")), ());
    }
    tx.execute("CREATE TABLE \"conform neighbour\"(x)", ())?;
    Err(Error::aborted("a neighbour fails on purpose"))
}
