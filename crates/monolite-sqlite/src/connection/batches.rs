//! Owns how several statements in one text are run, and which of them has failed.
//!
//! # Algorithm
//! The text is cut into its statements first ([`text::statements`]), and each is prepared by
//! itself: SQLite would copy all that is behind it. Should a piece be more than one statement all
//! the same, all of them are run.

use rusqlite::fallible_iterator::FallibleIterator as _;
use rusqlite::{Batch, Result, Statement};

use super::Connection;
use crate::program::most_passes;
use crate::text;
use crate::verb::without_blanks;

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
    fn new(all: &str, sql: &str, error: rusqlite::Error) -> FailedStatement {
        let text = without_blanks(sql);
        let at = match &error {
            // What SQLite was given may begin behind the beginning of `sql`.
            rusqlite::Error::SqlInputError { sql: given, offset, .. } => {
                sql.len().saturating_sub(given.len()) + usize::try_from(*offset).unwrap_or(0)
            }
            _ => sql.len() - text.len(),
        };
        let at = sql.as_ptr().addr() - all.as_ptr().addr() + at;
        let before = all.get(..at).unwrap_or(all);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        FailedStatement { sql: text.trim_end().to_owned(), line, column, error }
    }
}

impl Connection {
    /// Runs each statement of `sql` to its first row or its end.
    ///
    /// # Errors
    /// Those of SQLite, with the statement; those before it have been run.
    pub fn execute_batch(&self, sql: &str) -> Result<(), FailedStatement> {
        self.execute_each(sql, || (), |_| Ok(()))
    }

    /// As [`Connection::execute_batch`], if each statement `may_run`; while one is prepared, what
    /// `preparing` gives is there.
    pub(super) fn execute_each<G>(
        &self,
        sql: &str,
        preparing: impl Fn() -> G,
        may_run: impl Fn(&Statement<'_>) -> Result<()>,
    ) -> Result<(), FailedStatement> {
        text::statements(sql).try_for_each(|piece| {
            let mut batch = Batch::new(self.raw(), piece);
            let mut run_next = || {
                self.signals.start_statement();
                let next = {
                    let _guard = preparing();
                    self.preparing(piece, || batch.next())?
                };
                let Some(statement) = next else { return Ok(false) };
                may_run(&statement)?;
                self.execute_one(statement).map(|()| true)
            };
            while run_next().map_err(|error| FailedStatement::new(sql, piece, error))? {
                // Where SQL is not trusted, a piece is one statement: what is left of it would be
                // weighed as all of it is, and on the schema that it has left.
                if self.memory.is_some() {
                    break;
                }
            }
            Ok(())
        })
    }

    fn execute_one(&self, mut statement: Statement<'_>) -> Result<()> {
        let never_sorts = self.batched_never_sorts(&statement);
        self.signals.start_run();
        let running = self.signals.running(never_sorts);
        self.prepared.deeply(|| statement.raw_query().next().map(|_| ()))?;
        drop((statement, running));
        Ok(())
    }

    /// Takes note of what the program of `statement`, which was prepared last, does; whether it
    /// never sorts.
    fn batched_never_sorts(&self, statement: &Statement<'_>) -> bool {
        // Of trusted SQL it is not asked, and its text not copied.
        if self.signals.modules().is_none() {
            return false;
        }
        let sql = statement.expanded_sql().unwrap_or_default();
        let counted = self.signals.passes_of_statement();
        let program = self.prepared.program(statement, &sql, &self.signals, &self.counts);
        let most = || most_passes(statement, &sql, counted);
        self.signals.note_passes(program.map_or_else(most, |program| program.passes));
        program.is_some_and(|program| !program.may_sort)
    }
}
