//! Owns how many may wait for the archive, and who has a place there.
//!
//! # Invariants
//! - No more places are taken than there are. One is given back when it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// The places of those who wait for the archive.
pub(crate) struct Places {
    taken: Arc<AtomicUsize>,
    capacity: usize,
    /// The message of a refusal, made once: overload is no time to format text.
    full: Arc<str>,
}

/// One of them.
pub(crate) struct Place(Arc<AtomicUsize>);

impl Places {
    pub(crate) fn new(capacity: usize) -> Places {
        let full = format!(
            "{capacity} transactions and reads wait for the archive, and the option \
             queue_capacity allows no more: nothing was done; try again when the archive answers \
             (Stats::archive)"
        );
        Places { taken: Arc::default(), capacity, full: full.into() }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// # Errors
    /// `Overloaded` when every place is taken.
    pub(crate) fn take(&self) -> Result<Place> {
        let one_more = |taken| (taken < self.capacity).then_some(taken + 1);
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more) {
            Ok(_) => Ok(Place(Arc::clone(&self.taken))),
            Err(_) => Err(Error::new(ErrorKind::Overloaded, &*self.full)),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a place is given back once");
    }
}

#[test]
fn a_place_is_free_again_when_it_is_dropped() {
    let places = Places::new(2);
    let (first, _second) = (places.take().ok(), places.take().ok());
    assert!(first.is_some());
    let refused = places.take().err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Overloaded, "{refused}");
    drop(first);
    assert!(places.take().is_ok());
}
