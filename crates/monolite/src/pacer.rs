//! Leaves most of the disk and of the processor to those who write while something large is copied.

use std::time::Duration;

use crate::clock::{self, Stopwatch};

/// How long the copier rests after a slice while others write, in times of what the slice took: it
/// takes a quarter of the disk's time, and of a core.
const RESTS: u32 = 3;

/// It rests no longer: a cancelled copy ends soon.
const MAX_REST: Duration = Duration::from_millis(200);

/// Others write for so long after a commit. A batch of thousands takes longer than a slice.
const WRITING: Duration = Duration::from_secs(1);

/// Rests after each slice of a long work while others write.
///
/// ```
/// use monolite::archive::Pacer;
///
/// let commits = 7; // whatever changes with each
/// let mut pacer = Pacer::new(commits);
/// for slice in 0..3 {
///     // copy some megabytes
///     pacer.keep(commits); // no commits: it does not rest
/// }
/// ```
#[derive(Debug)]
pub struct Pacer<T> {
    last: T,
    /// Since `last` was another one; `None` if it never was.
    since: Option<Stopwatch>,
    slice: Stopwatch,
}

impl<T: PartialEq> Pacer<T> {
    /// Begins the first slice. `last` tells one commit from another.
    pub fn new(last: T) -> Pacer<T> {
        Pacer { last, since: None, slice: Stopwatch::start() }
    }

    /// Ends a slice, and begins the next after a rest of at most 0.2 s if others write: if there
    /// was another commit in the last second.
    pub fn keep(&mut self, last: T) {
        if last != self.last {
            (self.last, self.since) = (last, Some(Stopwatch::start()));
        }
        if self.since.is_some_and(|since| since.elapsed() < WRITING) {
            clock::rest((self.slice.elapsed() * RESTS).min(MAX_REST));
        }
        self.slice = Stopwatch::start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a rest of a millisecond's slice was taken.
    fn rests(commits: &[u64], pacer: &mut Pacer<u64>) -> usize {
        let rests = |commit: &u64| {
            clock::rest(Duration::from_millis(1));
            let before = Stopwatch::start();
            pacer.keep(*commit);
            before.elapsed() >= Duration::from_millis(1) * RESTS
        };
        commits.iter().map(rests).filter(|it| *it).count()
    }

    #[test]
    fn it_rests_while_others_write_and_for_a_second_after_that() {
        let mut pacer = Pacer::new(1);
        assert_eq!(rests(&[1, 1, 1], &mut pacer), 0, "nobody writes");
        // A batch takes longer than these slices.
        assert_eq!(rests(&[2, 2, 2, 3, 3], &mut pacer), 5);
        clock::rest(WRITING);
        assert_eq!(rests(&[3, 3], &mut pacer), 0, "nobody writes any more");
    }
}
