//! Owns the savepoints inside of a transaction: the engine's and those of users, and what has to be
//! forgotten when one is undone.

use rusqlite::Result;

use super::Connection;
use crate::rowids::taken::Mark;
use crate::statements::Own;

/// One of the engine's two nested savepoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Savepoint {
    /// Guards a group of members.
    Group,
    /// Guards one member, inside of a group or alone.
    Member,
}

/// What is done with a savepoint of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserSavepoint {
    /// Opens it.
    Open,
    /// Undoes everything since it was opened, and keeps it open.
    Undo,
    /// Closes it and those inside it, and keeps what was done.
    Close,
}

impl Savepoint {
    /// Which it is for what is promised, and the statements that open, undo and close it.
    #[inline]
    fn parts(self) -> (Mark, [Own; 3]) {
        match self {
            Savepoint::Group => (Mark::Group, [Own::OpenGroup, Own::UndoGroup, Own::CloseGroup]),
            Savepoint::Member => {
                (Mark::Member, [Own::OpenMember, Own::UndoMember, Own::CloseMember])
            }
        }
    }
}

impl Connection {
    /// Opens `savepoint`.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn savepoint(&self, savepoint: Savepoint) -> Result<()> {
        let (mark, [open, ..]) = savepoint.parts();
        self.engine(open)?;
        self.note_taken(|giver| giver.journal().open(mark));
        Ok(())
    }

    /// Undoes everything since `savepoint` was opened, and keeps it open.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn rollback_to(&self, savepoint: Savepoint) -> Result<()> {
        let (mark, [_, undo, _]) = savepoint.parts();
        self.engine(undo)?;
        self.note_taken(|giver| giver.journal().undo(mark));
        self.forget_what_was_undone()
    }

    /// Closes `savepoint` and keeps what was done.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn release(&self, savepoint: Savepoint) -> Result<()> {
        let (mark, [.., close]) = savepoint.parts();
        self.end_statements_if_busy(|| self.engine(close))?;
        self.note_taken(|giver| giver.journal().close(mark));
        Ok(())
    }

    /// Does `what` with the savepoint of a user that is inside of `depth` others. Its name is the
    /// engine's, and no user can say it.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn user_savepoint(&self, what: UserSavepoint, depth: usize) -> Result<()> {
        let verb = match what {
            UserSavepoint::Open => "SAVEPOINT",
            UserSavepoint::Undo => "ROLLBACK TO",
            UserSavepoint::Close => "RELEASE",
        };
        let sql = format!("{verb} monolite_user_{depth}");
        self.as_engine(|| self.raw().execute_batch(&sql))?;
        let mark = Mark::User(depth);
        self.note_taken(|giver| match what {
            UserSavepoint::Open => giver.journal().open(mark),
            UserSavepoint::Undo => giver.journal().undo(mark),
            UserSavepoint::Close => giver.journal().close(mark),
        });
        if what == UserSavepoint::Undo { self.forget_what_was_undone() } else { Ok(()) }
    }

    /// Runs `body`. On success, closes the users' savepoints that it left open, so that the next
    /// member of the transaction does not find them.
    ///
    /// # Errors
    /// Those of `body`, and those of SQLite.
    pub fn closing_user_savepoints<E: From<rusqlite::Error>>(
        &self,
        body: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        // Closing an outer one closes those inside it.
        self.engine(Own::OpenUser)?;
        body()?;
        Ok(self.engine(Own::CloseUser)?)
    }
}
