//! Owns which closures of which databases a thread is inside of, so that a closure that would wait
//! for its own end is told so.
//!
//! Only what a thread does itself is known. A closure that waits for another thread which waits for
//! the closure is ended by the limits of time ([`crate::watchdog`]).
//!
//! A thread that is ending, and drops the values of its thread-locals, is inside of nothing.
//!
//! A process that was forked from the one which opened a database has none of its threads, so
//! waiting for them would never end: calls there are refused, too.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use monolite_sqlite::forks;

use crate::error::{Error, ErrorKind, Result};
use crate::primitives::thread_local;

/// One open database of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseId {
    number: u64,
    /// How often the process had been forked when it was opened.
    forks: u64,
}

impl DatabaseId {
    /// One that no other database of this process has.
    pub(crate) fn new() -> DatabaseId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        DatabaseId { number: NEXT.fetch_add(1, Ordering::Relaxed), forks: forks() }
    }

    /// # Errors
    /// `Invalid` in a process that was forked from the one that has opened the database. Nothing of
    /// it may be locked then: who held the lock may be gone.
    pub(crate) fn check_process(self) -> Result<()> {
        if self.forks == forks() {
            return Ok(());
        }
        let message = "the database was opened before this process was forked, and belongs to the \
                       parent: nothing was done; open databases after fork(), or start another \
                       program";
        Err(Error::new(ErrorKind::Invalid, message))
    }

    /// Whether the thread is inside of `place` of this database.
    pub(crate) fn is_inside(self, place: Place) -> bool {
        inside(|inside| inside.contains(&(self, place)))
    }

    /// Whether the thread is inside of what has the writer: the next write comes after its end.
    pub(crate) fn has_writer(self) -> bool {
        self.is_inside(Place::Write)
    }

    /// Whether the thread is inside of any closure of this database.
    pub(crate) fn is_around(self) -> bool {
        inside(|inside| inside.iter().any(|(database, _)| *database == self))
    }

    /// How many reads of this database the thread is inside of.
    pub(crate) fn reads_around(self) -> usize {
        let is_read = |at: &&(DatabaseId, Place)| **at == (self, Place::Read);
        inside(|inside| inside.iter().filter(is_read).count())
    }
}

/// What kind of closure a thread is inside of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// That of a write, or anything else that the writer, or a thread which answers for it, runs:
    /// the drop of a closure, a waker.
    Write,
    /// That of a read.
    Read,
    /// The mapping closure of a statement of an interactive transaction.
    Statement,
}

thread_local! {
    static INSIDE: RefCell<Vec<(DatabaseId, Place)>> = const { RefCell::new(Vec::new()) };
}

fn inside<R>(ask: impl Fn(&[(DatabaseId, Place)]) -> R) -> R {
    INSIDE.try_with(|inside| ask(&inside.borrow())).unwrap_or_else(|_| ask(&[]))
}

/// The thread is inside of a closure until this is dropped.
pub(crate) struct Inside {
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Inside {
    pub(crate) fn enter(database: DatabaseId, place: Place) -> Inside {
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().push((database, place)));
        Inside { _not_send: std::marker::PhantomData }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().pop());
    }
}

#[test]
fn a_thread_knows_what_it_is_inside_of() {
    let (a, b) = (DatabaseId::new(), DatabaseId::new());
    assert!(!a.is_around());
    let outer = Inside::enter(a, Place::Write);
    assert!(a.is_inside(Place::Write) && !a.is_inside(Place::Read) && !b.is_around());
    let inner = Inside::enter(b, Place::Read);
    let innermost = Inside::enter(b, Place::Read);
    assert_eq!((b.reads_around(), a.reads_around()), (2, 0));
    std::thread::spawn(move || assert!(!a.is_around() && !b.is_around())).join().unwrap();
    drop((innermost, inner, outer));
    assert!(!a.is_around() && !b.is_around());
}
