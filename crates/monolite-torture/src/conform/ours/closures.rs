//! Owns the paths on which a transaction is a closure: writes, and reads.

use std::sync::Arc;

use monolite::{Error, Tx};
use monolite_testkit::blocking::block_on;

use super::super::ask::ask;
use super::super::path::Errors;
use super::super::said::Said;
use super::super::script::Unit;
use super::super::subject::Ran;
use super::{Heard, Ours, outcome, rollback};

impl Ours {
    /// The closure of a transaction.
    fn body(
        &self,
        unit: &Arc<Unit>,
        heard: &Heard,
    ) -> impl FnMut(&Tx<'_>) -> Result<(), Error> + Send + 'static {
        let (unit, heard, path) = (Arc::clone(unit), heard.clone(), self.path);
        move |tx| {
            heard.begin();
            for statement in &unit.statements {
                let said = ask(tx, statement, path.way);
                let has_failed = said.fault.is_some();
                heard.hear(said);
                if has_failed && path.errors == Errors::Returned {
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

    /// A question that stands alone is a read, waited for and awaited; all else is a write.
    pub(super) fn read_or_write(&self, unit: &Arc<Unit>) -> Ran {
        let [statement] = unit.statements.as_slice() else { return self.write(unit) };
        if unit.is_block || !statement.only_asks() {
            return self.write(unit);
        }
        let (way, awaiting) = (self.path.way, statement.clone());
        let read = self.db.read(|tx| Ok::<_, Error>(ask(tx, statement, way)));
        let said = read.wait().unwrap_or_else(|error| Said::failed(&error));
        let read = self.db.read(move |tx| Ok::<_, Error>(ask(tx, &awaiting, way)));
        let awaited = block_on(read).unwrap_or_else(|error| Said::failed(&error));
        Ran { said: vec![said], awaited: Some(awaited), end: None }
    }
}
