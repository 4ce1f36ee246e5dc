//! Owns the store of an open database's archive, which can be left while a request is under way.
//!
//! # Why a close may leave a thread behind
//! A request that never returns cannot be ended. Its thread is then as that of a process that was
//! killed in the middle of it, after which a file is opened again, too:
//! - The request may arrive at any later time. What keeps history whole is the protocol: slots and
//!   the record are written by conditional requests of this epoch, and the next opening takes
//!   another one and sets its fence before it reads.
//! - No other request follows it, so the thread claims nothing back from the next opening, and
//!   there are no two who upload.
//! - It has no part any more in the files beside the database ([`Feed::let_go`]), which the next
//!   opening has.
//! - It keeps what it has of the engine, which is closed, and a descriptor of the WAL, on which
//!   there are no locks. The database's own files and locks are let go by the engine.
//!
//! [`Feed::let_go`]: super::feed::Feed::let_go

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use monolite_ltx::Timestamp;

use crate::error::{Error, ErrorKind, Result};
use crate::store::{Fetched, Listing, Part, Store, Tag};

/// A store that nothing is asked of any more once it was left.
pub(super) struct Leavable {
    store: Arc<dyn Store>,
    is_left: AtomicBool,
}

impl Leavable {
    pub(super) fn new(store: Arc<dyn Store>) -> Leavable {
        Leavable { store, is_left: AtomicBool::new(false) }
    }

    pub(super) fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    fn call<T>(&self, call: impl FnOnce(&dyn Store) -> Result<T>) -> Result<T> {
        if self.is_left.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Lost, "the database was closed"));
        }
        call(self.store.as_ref())
    }
}

impl Store for Leavable {
    fn create(&self, key: &str, body: &[u8], time: Option<Timestamp>) -> Result<Tag> {
        self.call(|store| store.create(key, body, time))
    }

    fn create_from(
        &self,
        key: &str,
        about: u64,
        time: Option<Timestamp>,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<Tag> {
        self.call(|store| store.create_from(key, about, time, write))
    }

    fn swap(&self, key: &str, body: &[u8], expected: &Tag) -> Result<Tag> {
        self.call(|store| store.swap(key, body, expected))
    }

    fn get(&self, key: &str, part: Part) -> Result<Option<Fetched>> {
        self.call(|store| store.get(key, part))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Listing> {
        self.call(|store| store.list(prefix, after))
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.call(|store| store.delete(key))
    }
}
