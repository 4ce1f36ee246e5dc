//! A store that answers after some time, and counts what it is asked.

use monolite_archive::{DirectoryStore, Fetched, Listing, Part, Result, Store, Tag};
use monolite_ltx::Timestamp;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a store was asked since it was made.
#[derive(Debug, Default)]
pub(super) struct Counts {
    requests: AtomicU64,
    sent: AtomicU64,
}

impl Counts {
    /// Requests, and the bytes that were sent with them.
    pub(super) fn look(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.sent.load(Ordering::Relaxed))
    }

    fn sends(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// A directory as a store that answers later.
pub(super) struct Observed {
    pub(super) inner: DirectoryStore,
    /// How long a request takes; longer if its work does.
    pub(super) rest: Duration,
    pub(super) counts: Arc<Counts>,
}

impl Observed {
    fn answer<T>(&self, ask: impl FnOnce(&DirectoryStore) -> T) -> T {
        let start = Instant::now();
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        let answer = ask(&self.inner);
        sleep(self.rest.saturating_sub(start.elapsed()));
        answer
    }
}

impl Store for Observed {
    fn create(&self, key: &str, body: &[u8], time: Option<Timestamp>) -> Result<Tag> {
        self.counts.sends(body.len());
        self.answer(|store| store.create(key, body, time))
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
        self.answer(|store| store.create_from(key, about, time, &mut counted))
    }

    fn swap(&self, key: &str, body: &[u8], expected: &Tag) -> Result<Tag> {
        self.counts.sends(body.len());
        self.answer(|store| store.swap(key, body, expected))
    }

    fn get(&self, key: &str, part: Part) -> Result<Option<Fetched>> {
        self.answer(|store| store.get(key, part))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Listing> {
        self.answer(|store| store.list(prefix, after))
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.answer(|store| store.delete(key))
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
        let (inner, rest) = (DirectoryStore::new(directory.path()), Duration::from_millis(5));
        let store = Observed { inner, rest, counts: Arc::clone(&counts) };
        let start = Instant::now();
        store.create("a/b", b"12345", None).unwrap();
        let mut write = |out: &mut dyn Write| {
            out.write_all(b"678").unwrap();
            Ok(())
        };
        store.create_from("a/c", 0, None, &mut write).unwrap();
        assert_eq!(store.list("a", None).unwrap().objects.len(), 2);
        assert_eq!(counts.look(), (3, 8));
        assert!(start.elapsed() >= 3 * rest);
    }
}
