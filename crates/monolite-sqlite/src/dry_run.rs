//! Owns the dry run of statements of untrusted SQL: what is not light ([`crate::light`]) is
//! prepared elsewhere first.
//!
//! # Why
//! SQLite asks nobody while it plans. How long that takes grows with products, up to the third
//! power, of what the statement and the schema have of conditions, tables, indexes and their
//! expressions: 22 KB of `(a = 1 OR a = 2)` on an indexed column take 2.3 s. Each formula that
//! bounded one of these products has had a neighbour that it did not bound, and refused what was
//! quick. So the one thread that everybody waits for prepares nothing large that was not seen to be
//! prepared in time.
//!
//! # Algorithm
//! 1. What only defines something plans nothing, and what is light little: that is prepared at
//!    once.
//! 2. Any other statement is first prepared by [`DryRuns`], on another thread and connection with
//!    the same profile and the same schema, which its cookie tells. That is waited for until the
//!    statement's deadline.
//! 3. If it has come back by then, and twice as long again is left, the statement is prepared here,
//!    and once more to ask what it does ([`crate::program`]). Otherwise it ends as one that takes
//!    too long, and never was on this thread.
//!
//! A change of the schema that is not committed is not there for others, so a statement behind one
//! that is not light is refused. Those of migrations come from the program, and need no dry run.
//!
//! # What a dry run depends on
//! The time to plan depends on the text, the schema and the statistics (which are read with the
//! schema, and which untrusted SQL cannot change), the limits of the profile, and the functions,
//! collations and modules of the connection, which all connections have in common; not on rows.
//! Values of parameters may let SQLite plan once more with them, which is as long again. Virtual
//! tables are asked for their plans, and do what they like: a module that is named is trusted so
//! far.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Result, ffi};

use crate::look::{Look, Rest};

/// How often what had a dry run is prepared behind it: to be run, and to be explained.
const TIMES: u32 = 2;

/// What a dry run is to do with a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Form {
    /// Whether it is an `INSERT` in its second form, in which the key is said.
    pub numbers: bool,
    /// Whether it is explained: what has had a dry run cannot be asked what it does in a
    /// transaction that would notice.
    pub explains: bool,
}

/// How a dry run has ended.
#[derive(Debug)]
pub enum DryRun {
    /// The statement was prepared, and that took so long.
    Prepared(Duration),
    /// It was explained: how often its program can pass over a value.
    Explained(u32),
    /// It cannot be prepared, for this reason, and this one of the profile.
    Refused(rusqlite::Error, Option<String>),
    /// The schema is not the one that was asked for.
    OtherSchema,
    /// It was given up.
    GivenUp,
}

/// Prepares statements on another connection of the same database, which has the same profile.
pub trait DryRuns: Send + Sync {
    /// Prepares the first statement of `sql` on the schema with this `cookie`, and drops it.
    /// Given up as soon as `goes_on`, which is asked every few milliseconds, says so.
    fn run(&self, sql: &str, cookie: u32, form: Form, goes_on: &dyn Fn() -> bool) -> DryRun;
}

/// What a connection has to ask for dry runs, and until when it waits for them.
pub(crate) struct Rehearsing {
    pub(crate) runs: Arc<dyn DryRuns>,
    pub(crate) look: Arc<Look>,
}

impl Rehearsing {
    /// Waits until the first statement of `sql` was prepared elsewhere.
    ///
    /// # Errors
    /// Those of preparing it, with the reason of the profile; `SQLITE_INTERRUPT` when it has to
    /// end; `SQLITE_AUTH` where nobody else has this schema.
    pub(crate) fn wait_for(
        &self,
        sql: &str,
        cookie: u32,
        numbers: bool,
    ) -> Result<(), (rusqlite::Error, Option<String>)> {
        let failed = |code, text| rusqlite::Error::SqliteFailure(ffi::Error::new(code), text);
        let form = Form { numbers, explains: false };
        match self.runs.run(sql, cookie, form, &|| self.look.goes_on()) {
            DryRun::Prepared(time) if self.look.goes_on_for(Rest::Measured(time * TIMES)) => Ok(()),
            DryRun::Refused(error, reason) => Err((error, reason)),
            DryRun::Prepared(_) | DryRun::Explained(_) | DryRun::GivenUp => {
                Err((failed(ffi::SQLITE_INTERRUPT, None), None))
            }
            DryRun::OtherSchema => {
                let text = "a statement of this size is prepared elsewhere first where SQL is not \
                            trusted, and the schema was changed in this transaction, or just now \
                            by another one: commit the change first, or run the transaction again";
                Err((failed(ffi::SQLITE_AUTH, Some(text.into())), None))
            }
        }
    }

    /// How often the program of the first statement of `sql` can pass over a value; `None` where
    /// nobody else has this schema, or tells in time.
    pub(crate) fn passes(&self, sql: &str, cookie: u32, numbers: bool) -> Option<u32> {
        let form = Form { numbers, explains: true };
        match self.runs.run(sql, cookie, form, &|| self.look.goes_on()) {
            DryRun::Explained(passes) => Some(passes),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::Signals;

    /// Has prepared everything in a tenth of a second.
    struct Quick;

    impl DryRuns for Quick {
        fn run(&self, _: &str, _: u32, _: Form, _: &dyn Fn() -> bool) -> DryRun {
            DryRun::Prepared(Duration::from_millis(100))
        }
    }

    #[test]
    fn what_is_left_must_do_for_preparing_twice() {
        for (left, is_enough) in [(190, false), (210, true)] {
            let left = Duration::from_millis(left);
            let overdue: crate::look::Overdue =
                Arc::new(move |rest| matches!(rest, Rest::Measured(time) if time > left));
            let look = Arc::new(Look::new(&overdue, &Arc::new(Signals::default())));
            let rehearsing = Rehearsing { runs: Arc::new(Quick), look };
            assert_eq!(rehearsing.wait_for("SELECT 1", 1, false).is_ok(), is_enough, "{left:?}");
        }
    }
}
