//! Owns the names of the savepoints that an interactive transaction has open, and their places.
//!
//! SQLite is given the places, not the names: the engine's own savepoints are in the same
//! transaction, and no name that a user chooses can be one of theirs. As in SQLite, names are
//! compared without regard to case (of ASCII letters), a name that is used again hides the one
//! before, and one that is undone or closed takes those inside it with it.

use monolite_sqlite::UserSavepoint;

use crate::error::{Error, ErrorKind, Result};

/// The names of the open savepoints, outermost first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Savepoints(Vec<Box<str>>);

impl Savepoints {
    /// How many savepoints the one is inside of that `what` is to be done with.
    ///
    /// # Errors
    /// `Invalid` when there is none of that name.
    pub(crate) fn depth(&self, what: UserSavepoint, name: &str) -> Result<usize> {
        if what == UserSavepoint::Open {
            return Ok(self.0.len());
        }
        self.0.iter().rposition(|open| open.eq_ignore_ascii_case(name)).ok_or_else(|| {
            let message = format!("no savepoint named {name:?} is open in this transaction");
            Error::new(ErrorKind::Invalid, message)
        })
    }

    /// Notes that `what` was done with the savepoint at `depth`.
    pub(crate) fn note(&mut self, what: UserSavepoint, depth: usize, name: &str) {
        let is_open = depth < self.0.len() || what == UserSavepoint::Open;
        assert!(is_open && depth <= self.0.len(), "a savepoint is where its depth says");
        match what {
            UserSavepoint::Open => self.0.push(name.into()),
            UserSavepoint::Undo => self.0.truncate(depth + 1),
            UserSavepoint::Close => self.0.truncate(depth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_sqlite_finds_them() {
        use UserSavepoint::{Close, Open, Undo};
        let mut savepoints = Savepoints::default();
        let mut done = |what, name: &str| {
            let depth = savepoints.depth(what, name).ok()?;
            savepoints.note(what, depth, name);
            Some(depth)
        };
        assert_eq!(done(Undo, "a"), None);
        assert_eq!(done(Open, "a"), Some(0));
        assert_eq!(done(Open, "b"), Some(1));
        assert_eq!(done(Open, "A"), Some(2), "it hides the first");
        assert_eq!(done(Undo, "a"), Some(2));
        assert_eq!(done(Close, "a"), Some(2));
        assert_eq!(done(Undo, "a"), Some(0), "the first again, and what is inside it is gone");
        assert_eq!(done(Close, "b"), None);
        assert_eq!(done(Close, "a"), Some(0));
        assert_eq!(done(Close, "a"), None);
    }
}
