//! A store that answers after some time, and counts what it is asked.

use monolite_archive::{Fetched, Listing, Part, Result, Store, Tag};
use monolite_ltx::Timestamp;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    Swap,
    Get,
    List,
    Delete,
}

impl Kind {
    /// All of them, by their numbers, each with what it is called.
    pub(super) const ALL: [(Kind, &str); 5] = [
        (Kind::Create, "creating"),
        (Kind::Swap, "replacing"),
        (Kind::Get, "reading"),
        (Kind::List, "listing"),
        (Kind::Delete, "deleting"),
    ];
}

/// What a store was asked since it was made.
#[derive(Debug, Default)]
pub(super) struct Counts {
    requests: [AtomicU64; Kind::ALL.len()],
    sent: AtomicU64,
}

impl Counts {
    /// Requests by their kind, and the bytes that were sent with them.
    pub(super) fn look(&self) -> ([u64; Kind::ALL.len()], u64) {
        let requests = self.requests.each_ref().map(|it| it.load(Ordering::Relaxed));
        (requests, self.sent.load(Ordering::Relaxed))
    }

    fn sends(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// A store that answers later.
pub(super) struct Observed {
    pub(super) inner: Box<dyn Store>,
    /// How long a request takes; longer if its work does.
    pub(super) rest: Duration,
    pub(super) counts: Arc<Counts>,
}

impl Observed {
    fn answer<T>(&self, kind: Kind, ask: impl FnOnce(&dyn Store) -> T) -> T {
        let start = Instant::now();
        self.counts.requests[kind as usize].fetch_add(1, Ordering::Relaxed);
        let answer = ask(&*self.inner);
        sleep(self.rest.saturating_sub(start.elapsed()));
        answer
    }
}

impl Store for Observed {
    fn create(&self, key: &str, body: &[u8], time: Option<Timestamp>) -> Result<Tag> {
        self.counts.sends(body.len());
        self.answer(Kind::Create, |store| store.create(key, body, time))
    }

    fn create_from(
        &self,
        key: &str,
        about: u64,
        time: Option<Timestamp>,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<Tag> {
        let mut counted = |output: &mut dyn Write| {
            let counts = &self.counts;
            write(&mut Sending { output, counts })
        };
        self.answer(Kind::Create, |store| store.create_from(key, about, time, &mut counted))
    }

    fn swap(&self, key: &str, body: &[u8], expected: &Tag) -> Result<Tag> {
        self.counts.sends(body.len());
        self.answer(Kind::Swap, |store| store.swap(key, body, expected))
    }

    fn get(&self, key: &str, part: Part) -> Result<Option<Fetched>> {
        self.answer(Kind::Get, |store| store.get(key, part))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Listing> {
        self.answer(Kind::List, |store| store.list(prefix, after))
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.answer(Kind::Delete, |store| store.delete(key))
    }
}

/// A body whose bytes are counted.
struct Sending<'a> {
    output: &'a mut dyn Write,
    counts: &'a Counts,
}

impl Write for Sending<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.output.write(bytes)?;
        self.counts.sends(written);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_what_they_send_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let counts = Arc::<Counts>::default();
        let inner = Box::new(monolite_archive::DirectoryStore::new(directory.path()));
        let rest = Duration::from_millis(5);
        let store = Observed { inner, rest, counts: Arc::clone(&counts) };
        let start = Instant::now();
        store.create("a/b", b"12345", None).unwrap();
        let mut write = |out: &mut dyn Write| {
            out.write_all(b"678").unwrap();
            Ok(())
        };
        store.create_from("a/c", 0, None, &mut write).unwrap();
        assert_eq!(store.list("a", None).unwrap().objects.len(), 2);
        store.swap("a/b", b"9", &store.get("a/b", Part::Whole(9)).unwrap().unwrap().tag).unwrap();
        store.delete("a/c").unwrap();
        assert_eq!(counts.look(), ([2, 1, 1, 1, 1], 9));
        assert!(Kind::ALL.iter().enumerate().all(|(number, it)| it.0 as usize == number));
        assert!(start.elapsed() >= 6 * rest);
    }
}
