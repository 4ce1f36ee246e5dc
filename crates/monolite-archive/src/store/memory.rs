//! Owns a store in memory, for tests and simulations.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use monolite_ltx::Timestamp;

use super::{Fetched, Listed, Listing, Part, Store, Tag, in_memory};
use crate::error::{Error, ErrorKind, Result};

/// How many objects a list has at most, so that tests meet lists in parts. S3 gives 1,000.
const LISTED: usize = 100;

/// Objects in memory. A clone is the same store.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Mutex<Objects>>);

#[derive(Debug, Default)]
struct Objects {
    by_key: BTreeMap<String, Object>,
    /// The tag of the next object.
    next: u64,
}

#[derive(Debug)]
struct Object {
    body: Arc<[u8]>,
    tag: u64,
}

impl MemoryStore {
    /// An empty one.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// Puts an object whatever is there: what an archive never does, and a stray program might.
    pub fn overwrite(&self, key: &str, body: &[u8]) -> Tag {
        self.lock().put(key, body)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.lock().by_key.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Only a lack of memory can panic while it is held; the objects are whole then, too.
    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Objects {
    fn put(&mut self, key: &str, body: &[u8]) -> Tag {
        self.next += 1;
        let object = Object { body: body.into(), tag: self.next };
        self.by_key.insert(key.to_owned(), object);
        tag(self.next)
    }
}

fn tag(number: u64) -> Tag {
    Tag::new(number.to_string())
}

impl Store for MemoryStore {
    fn create(&self, key: &str, body: &[u8], _time: Option<Timestamp>) -> Result<Tag> {
        let mut objects = self.lock();
        if objects.by_key.contains_key(key) {
            return Err(Error::new(ErrorKind::Exists, format!("{key:?} is there already")));
        }
        Ok(objects.put(key, body))
    }

    fn swap(&self, key: &str, body: &[u8], expected: &Tag) -> Result<Tag> {
        let mut objects = self.lock();
        let is = objects.by_key.get(key).map(|object| tag(object.tag));
        if is.as_ref() != Some(expected) {
            return Err(Error::new(ErrorKind::Exists, format!("{key:?} is another by now")));
        }
        Ok(objects.put(key, body))
    }

    fn get(&self, key: &str, part: Part) -> Result<Option<Fetched>> {
        let objects = self.lock();
        let Some(Object { body, tag: number }) = objects.by_key.get(key) else { return Ok(None) };
        let len = body.len() as u64;
        let range = part.of(len);
        let range = range.ok_or_else(|| Error::corrupt(format!("{key:?} has {len} bytes")))?;
        let bytes = body[in_memory(range.start)?..in_memory(range.end)?].to_vec();
        Ok(Some(Fetched { bytes, len, tag: tag(*number) }))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Listing> {
        let objects = self.lock();
        let prefix = format!("{prefix}/");
        let start = match after.filter(|after| **after >= *prefix) {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(prefix.as_str()),
        };
        let listed = objects.by_key.range::<str, _>((start, Bound::Unbounded));
        let below = listed.take_while(|(key, _)| key.starts_with(&prefix));
        let mut of_folder = below.filter(|(key, _)| !key[prefix.len()..].contains('/'));
        let objects = of_folder.by_ref().take(LISTED);
        let objects =
            objects.map(|(key, object)| Listed { key: key.clone(), len: object.body.len() as u64 });
        let objects = objects.collect();
        Ok(Listing { objects, is_cut: of_folder.next().is_some() })
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.lock().by_key.remove(key);
        Ok(())
    }
}
