//! Owns which promised numbers of an `AUTOINCREMENT` table others have had: such a table gives no
//! number a second time, though the row may be deleted again before the promise is kept.
//!
//! The hook tells of each row when it is inserted. It counts when its transaction is committed;
//! what a savepoint or the transaction takes back is forgotten.

use std::sync::Arc;

use hashbrown::HashSet;

use super::{Counter, GivenRowids};

/// Numbers that are remembered of a table.
const MAX_TAKEN: usize = 10_000;

/// Those of one table that were taken in committed transactions.
#[derive(Debug, Default)]
pub(super) struct Taken {
    rowids: HashSet<i64>,
    /// All up to this one count as taken, as there were too many.
    up_to: Option<i64>,
}

impl Taken {
    /// `rowid` was taken, when `last` was the largest that was given or inserted.
    pub(super) fn add(&mut self, rowid: i64, last: i64) {
        if self.rowids.len() >= MAX_TAKEN {
            self.rowids.clear();
            self.up_to = Some(last);
        }
        self.rowids.insert(rowid);
        assert!(self.rowids.len() <= MAX_TAKEN, "numbers are remembered within their limit");
    }

    pub(super) fn has_any_of(&self, given: GivenRowids) -> bool {
        self.up_to.is_some_and(|up_to| given.first() <= up_to)
            || (!self.rowids.is_empty()
                && (given.first()..=given.last()).any(|rowid| self.rowids.contains(&rowid)))
    }
}

/// A savepoint to which what is pending can go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Group,
    Member,
    /// A user's, inside of so many others.
    User(usize),
}

/// A number that the open transaction has taken.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) counter: Arc<Counter>,
    /// As the schema has the table's name.
    pub(super) table: Box<str>,
    pub(super) rowid: i64,
}

/// What the open transaction has taken.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(super) pending: Vec<Pending>,
    /// The savepoints that are open, and how much was pending at each.
    marks: Vec<(Mark, usize)>,
}

impl Journal {
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.marks.clear();
    }

    pub(crate) fn open(&mut self, mark: Mark) {
        self.marks.push((mark, self.pending.len()));
    }

    pub(crate) fn undo(&mut self, mark: Mark) {
        if let Some(at) = self.find(mark) {
            assert!(
                self.marks[at].1 <= self.pending.len(),
                "a savepoint takes back what is behind it"
            );
            self.pending.truncate(self.marks[at].1);
            self.marks.truncate(at + 1);
        }
    }

    pub(crate) fn close(&mut self, mark: Mark) {
        if let Some(at) = self.find(mark) {
            self.marks.truncate(at);
        }
    }

    fn find(&self, mark: Mark) -> Option<usize> {
        self.marks.iter().rposition(|(open, _)| *open == mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(rowid: i64) -> Pending {
        Pending { counter: Arc::new(Counter::new()), table: "t".into(), rowid }
    }

    fn rowids(journal: &Journal) -> Vec<i64> {
        journal.pending.iter().map(|it| it.rowid).collect()
    }

    #[test]
    fn what_a_savepoint_takes_back_is_forgotten() {
        let mut journal = Journal::default();
        journal.open(Mark::Group);
        journal.pending.push(pending(1));
        journal.open(Mark::Member);
        journal.pending.push(pending(2));
        journal.open(Mark::User(0));
        journal.pending.push(pending(3));
        journal.undo(Mark::User(0));
        assert_eq!(rowids(&journal), [1, 2]);
        journal.pending.push(pending(4));
        journal.close(Mark::User(0));
        journal.undo(Mark::User(0));
        assert_eq!(rowids(&journal), [1, 2, 4], "that one is closed");
        journal.undo(Mark::Member);
        journal.close(Mark::Member);
        assert_eq!(rowids(&journal), [1]);
        journal.undo(Mark::Group);
        assert_eq!(rowids(&journal), [0; 0]);
    }

    #[test]
    fn too_many_are_all_that_there_were() {
        let mut taken = Taken::default();
        let one = |rowid| GivenRowids::new(rowid, 1).unwrap();
        taken.add(7, 9);
        assert!(taken.has_any_of(GivenRowids::new(5, 3).unwrap()) && !taken.has_any_of(one(8)));
        for rowid in 0..MAX_TAKEN as i64 {
            taken.add(-rowid, 9);
        }
        assert!(taken.has_any_of(one(8)) && taken.has_any_of(one(9)) && !taken.has_any_of(one(10)));
    }
}
