//! Owns how several statements in one text are run, and which of them has failed.
//!
//! # Algorithm
//! The text is cut into its statements first ([`scan::statements`]), and each is prepared by
//! itself: SQLite would copy all that is behind it. Should a piece be more than one statement all
//! the same, all of them are run.

use rusqlite::fallible_iterator::FallibleIterator as _;
use rusqlite::{Batch, Result, Statement};

use super::Connection;
use crate::scan;

/// A statement of several that failed, and where it is.
#[derive(Debug)]
pub struct FailedStatement {
    /// Its text.
    pub sql: String,
    /// The line in the whole text, from 1 on.
    pub line: usize,
    /// The character in that line, from 1 on.
    pub column: usize,
    /// Why it failed.
    pub error: rusqlite::Error,
}

impl FailedStatement {
    /// `sql` is a part of `all`.
    pub(super) fn new(all: &str, sql: &str, error: rusqlite::Error) -> FailedStatement {
        let start = scan::first(sql).map_or(sql.len(), |first| first.at);
        let at = match &error {
            // What SQLite was given may begin behind the beginning of `sql`.
            rusqlite::Error::SqlInputError { sql: given, offset, .. } => {
                sql.len().saturating_sub(given.len()) + usize::try_from(*offset).unwrap_or(0)
            }
            _ => start,
        };
        let at = sql.as_ptr().addr() - all.as_ptr().addr() + at;
        let before = all.get(..at).unwrap_or(all);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        FailedStatement { sql: sql[start..].trim_end().to_owned(), line, column, error }
    }
}

impl Connection {
    /// Runs each statement of `sql` to its first row or its end.
    ///
    /// # Errors
    /// Those of SQLite, with the statement; those before it have been run.
    pub fn execute_batch(&self, sql: &str) -> Result<(), FailedStatement> {
        scan::statements(sql).try_for_each(|piece| {
            let ran = self.execute_piece(piece, || (), |_| Ok(()));
            ran.map_err(|error| FailedStatement::new(sql, piece, error))
        })
    }

    /// Runs `piece`, which is one statement, to its first row or its end, if it `may_run`; while it
    /// is prepared, what `preparing` gives is there.
    pub(super) fn execute_piece<G>(
        &self,
        piece: &str,
        preparing: impl Fn() -> G,
        may_run: impl Fn(&Statement<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut batch = Batch::new(self.raw(), piece);
        loop {
            let next = {
                let _guard = preparing();
                self.prepared.prepare(piece, || batch.next())?
            };
            let Some(mut statement) = next else { return Ok(()) };
            may_run(&statement)?;
            self.prepared.deeply(|| statement.raw_query().next().map(|_| ()))?;
        }
    }
}
