//! Owns what the authorizer says a statement is like ([`Traits`]), and what it has said since that
//! was last taken ([`Notes`]).

use std::ops::BitOr;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use crate::verb::Verb;

/// What the authorizer tells of a statement: a set of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits(u16);

impl Traits {
    /// None.
    pub(crate) const NONE: Traits = Traits(0);
    /// Its results depend on more than pages, or it changes the schema, see
    /// [`Pages::take`](crate::Pages::take).
    pub(crate) const BEYOND_PAGES: Traits = Traits(1);
    /// It changes the schema.
    pub(crate) const SCHEMA: Traits = Traits(2);
    /// It changes the statistics by which SQLite plans.
    pub(crate) const STATISTICS: Traits = Traits(4);
    /// It is a pragma that reports on the connection or the file: it says nothing about the data,
    /// and answers otherwise on another connection.
    pub const REPORT: Traits = Traits(8);
    /// It may change the database although SQLite calls it one that only reads (`PRAGMA optimize`,
    /// which runs `ANALYZE` when it finds that necessary).
    pub const MAY_CHANGE: Traits = Traits(16);
    /// It is `CREATE`, `DROP`, `ALTER`, `ANALYZE` or `REINDEX`.
    pub const DEFINES: Traits = Traits(32);
    /// It calls `changes()`, or a trigger that it fires does.
    pub(crate) const ASKS_CHANGES: Traits = Traits(64);
    /// SQLite gives the number of rows that it has changed, even if there are none: what `INSERT`,
    /// `REPLACE`, `UPDATE` and `DELETE` are compiled to sets it (`sqlite3VdbeCountChanges`),
    /// whatever they change, and nothing else does.
    pub const CHANGES_ROWS: Traits = Traits(256);
    /// It calls a function of the application that may give something else when it is run again.
    pub const VOLATILE: Traits = Traits(2_048);
    /// It defers foreign keys: the statements behind it answer otherwise.
    pub const DEFERS: Traits = Traits(1_024);
    /// It may use a virtual table.
    pub(crate) const VIRTUAL: Traits = Traits(4_096);
    /// What has to be made good before the next statement is prepared.
    pub(crate) const UNSETTLED: Traits = Traits(Traits::SCHEMA.0 | Traits::STATISTICS.0);

    /// These, which the authorizer told while a statement was prepared or run, without those that
    /// are not its own: virtual tables prepare statements meanwhile, pragmas, too. None of those
    /// defers foreign keys, which an explained pragma does.
    pub(crate) fn of_statement(self, verb: Verb) -> Traits {
        let of_pragmas = Traits::REPORT | Traits::MAY_CHANGE | Traits::DEFERS;
        match verb {
            Verb::Pragma => self,
            Verb::Define => Traits(self.0 & !of_pragmas.0) | Traits::DEFINES,
            Verb::Change => Traits(self.0 & !of_pragmas.0) | Traits::CHANGES_ROWS,
            Verb::Other => Traits(self.0 & !of_pragmas.0 | self.0 & Traits::DEFERS.0),
        }
    }

    /// These if it `applies`, or none.
    pub(crate) fn when(self, applies: bool) -> Traits {
        if applies { self } else { Traits::NONE }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it has any of `traits`.
    #[inline]
    pub fn has(self, traits: Traits) -> bool {
        self.0 & traits.0 != 0
    }
}

impl BitOr for Traits {
    type Output = Traits;

    fn bitor(self, other: Traits) -> Traits {
        Traits(self.0 | other.0)
    }
}

/// What statements were like since that was last taken. As a [`Flag`](crate::Flag), nothing swaps
/// it.
#[derive(Debug, Default)]
pub(crate) struct Notes(AtomicU16);

impl Notes {
    /// Takes those of `which`.
    #[inline]
    pub(crate) fn take(&self, which: Traits) -> Traits {
        let all = self.0.load(Relaxed);
        if all & which.0 != 0 {
            self.0.store(all & !which.0, Relaxed);
        }
        Traits(all & which.0)
    }

    /// Takes all, for those of one statement to be told apart.
    #[inline]
    pub(crate) fn take_all(&self) -> Traits {
        self.take(Traits(u16::MAX))
    }

    /// Those of `which`, which stay.
    #[inline]
    pub(crate) fn seen(&self, which: Traits) -> Traits {
        Traits(self.0.load(Relaxed) & which.0)
    }

    #[inline]
    pub(crate) fn add(&self, traits: Traits) {
        self.0.store(self.0.load(Relaxed) | traits.0, Relaxed);
    }

    /// A statement came to nothing. One that changes the schema leaves other estimates of the rows
    /// of a table in memory when it is prepared.
    #[inline]
    pub(crate) fn add_failure(&self) {
        self.add(Traits::STATISTICS.when(!self.seen(Traits::SCHEMA).is_empty()));
    }
}
