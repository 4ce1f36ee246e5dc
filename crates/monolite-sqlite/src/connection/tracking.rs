//! Owns what a connection says about pages: those that its transaction has read, and which of them
//! were changed in the transaction that it has open.
//!
//! # Algorithm
//! The results of queries are a function of the schema and of the contents of the pages that they
//! fetched: which page comes next is read from the pages before, from the root on. If neither the
//! schema cookie nor any of these pages has changed, the same queries give the same results. So
//! that this holds:
//! 1. Every page has to pass through the page cache (`pcache`). Memory mapping is refused by the
//!    VFS seam, and so are reads of less than a page, by which SQLite would read long values from
//!    the file (`SQLITE_IOCAP_SUBPAGE_READ`); a file that offers them is not tracked.
//! 2. Of page 1 queries use the schema cookie alone: `sqlite_schema`, whose root it is, does not
//!    change without it. Change counter, size and free list are no input of a query, but of
//!    pragmas, so a transaction that uses a pragma cannot be tracked.
//! 3. Other inputs than pages of the main database make a transaction untrackable: other schemas,
//!    pragmas, functions that tell of the statements before, and virtual tables, whose modules may
//!    keep what they like in memory. The authorizer notices them when a statement is prepared
//!    (`beyond_pages`, `virtual_tables`), and `statements` remembers it with the statement.
//!
//! A page that is freed and used again for something else is no gap: a reader that followed a
//! reference to it has read the page with that reference, which has changed.
//!
//! # Not here
//! Values of functions (`random()`, the clock, functions of the application): their caller has to
//! see to them. Changes by other transactions: [`crate::vfs::Changes`].

use std::ffi::c_int;

use rusqlite::{MAIN_DB, TransactionState, ffi};

use super::Connection;
use crate::pages::PageSet;
use crate::pcache::MainCache;
use crate::traits::Traits;
use crate::vfs::of_database;

#[cfg(test)]
mod tests;

/// Where the schema cookie is on page 1.
const COOKIE_AT: usize = 40;

/// What a connection says about pages, from [`Connection::pages`].
#[derive(Clone, Copy)]
pub struct Pages<'c>(pub(super) &'c Connection);

impl Pages<'_> {
    /// Notes from now on which pages of the main database are fetched, up to `limit` of them; to be
    /// called while no statement is running. `false` when that is not possible, because another
    /// library has initialised SQLite before, or the files were not opened through
    /// [`Direct`](crate::vfs::Direct).
    pub fn track(self, limit: usize) -> bool {
        let Some(mut cache) = MainCache::of(self.0.raw()) else { return false };
        let is_trackable = self.is_trackable();
        if is_trackable {
            self.0.authorizer.notes.take(Traits::BEYOND_PAGES);
            cache.start_recording(limit);
        }
        is_trackable
    }

    /// Whether one of the pages that were fetched since [`Pages::track`] is such a page;
    /// the tracking goes on. `false` also when nothing is tracked.
    pub fn has_fetched(self, is_such: impl Fn(u32) -> bool) -> bool {
        MainCache::of(self.0.raw()).is_some_and(|mut cache| cache.has_recorded(is_such))
    }

    /// The pages fetched since [`Pages::track`], which ends with this; to be called
    /// before the end of the transaction, while no statement is running.
    ///
    /// `None` when they do not say everything about the results of the transaction: there were more
    /// than the limit, something else than pages of the main database was read (a pragma,
    /// `changes()`, a virtual table, another schema), the schema was changed, or no transaction is
    /// open. Only statements that were run by [`Connection::with_statement`] are looked at for
    /// this.
    pub fn take(self) -> Option<PageSet> {
        let (pages, cookie) = {
            let mut cache = MainCache::of(self.0.raw())?;
            let pages = cache.stop_recording();
            (pages?, self.cookie(&mut cache)?)
        };
        let is_beyond = !self.0.authorizer.notes.take(Traits::BEYOND_PAGES).is_empty();
        (!is_beyond).then(|| PageSet::new(pages, cookie))
    }

    /// Whether the transaction that this connection has open may have changed one of `pages`, or
    /// the schema; to be called while no statement is running. `true` also when that is not known.
    ///
    /// A page counts as changed as soon as SQLite made it writable, even if its content is what it
    /// was, or was restored by a rollback to a savepoint. Pages taken into use since the beginning
    /// count, too. Once changed pages did not fit in the cache, all count.
    pub fn batch_changed(self, pages: &PageSet) -> bool {
        let Some(mut cache) = MainCache::of(self.0.raw()) else { return true };
        self.spills() != self.0.spills_before.get()
            || self.cookie(&mut cache) != Some(pages.cookie())
            || pages.pages().iter().any(|pgno| cache.is_pinned(*pgno))
    }

    /// How many changed pages this connection has ever written before the commit, as its cache was
    /// full. Those are not pinned any more.
    pub(super) fn spills(self) -> c_int {
        self.0.status(ffi::SQLITE_DBSTATUS_CACHE_SPILL)
    }

    /// The schema cookie as the open transaction sees it; `None` when there is no transaction.
    fn cookie(self, cache: &mut MainCache<'_>) -> Option<u32> {
        let state = self.0.raw().transaction_state(Some(MAIN_DB)).ok()?;
        if state == TransactionState::None { None } else { cache.header_field(COOKIE_AT) }
    }

    /// The schema cookie as the open transaction sees it, when that is known.
    pub(crate) fn open_cookie(self) -> Option<u32> {
        self.cookie(&mut MainCache::of(self.0.raw())?)
    }

    /// Whether every page that is read passes through the page cache.
    fn is_trackable(self) -> bool {
        let known = self.0.is_trackable.get();
        known.unwrap_or_else(|| {
            let mut offers = ffi::SQLITE_IOCAP_SUBPAGE_READ;
            let ask = |file, methods: &ffi::sqlite3_io_methods| {
                // SAFETY: `of_database` gives the methods of an open file.
                offers = unsafe { methods.xDeviceCharacteristics.expect("every file says")(file) };
                ffi::SQLITE_OK
            };
            let is_known = of_database(self.0.raw(), ask) == Ok(true);
            let is_trackable = is_known && offers & ffi::SQLITE_IOCAP_SUBPAGE_READ == 0;
            self.0.is_trackable.set(Some(is_trackable));
            is_trackable
        })
    }
}
