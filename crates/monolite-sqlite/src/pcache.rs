//! Owns a wrapper around SQLite's page cache that sees which pages a connection fetches and which
//! ones it keeps pinned, that keeps pages from one snapshot to the next, and that keeps all caches
//! of the process within one budget.
//!
//! # Format
//! What SQLite takes for its cache handle is a [`Cache`] of ours, which has that of the cache
//! underneath. Each page has [`OWN_BYTES`] more than SQLite asked for at the end of its `pExtra`: a
//! [`Note`].
//!
//! # Algorithm
//! - The pager asks the cache for every page that it uses, whether it has it in use already or not
//!   (`sqlite3PcacheFetch`). While a cache is recording, each number asked for is noted.
//! - The pager unpins a clean page once nothing refers to it (`sqlite3PcacheRelease`,
//!   `sqlite3PcacheMakeClean`). A changed page therefore stays pinned until it is written at the
//!   commit, or dropped by the rollback: as long as no statement is running, the pages that are
//!   pinned are page 1 and those that the open transaction has changed, but for those that it has
//!   written before the commit, as the cache was full ([`Pages::batch_changed`]).
//! - Which cache is that of a connection's main database? `sqlite3_db_release_memory` calls
//!   `xShrink` on each of its caches, main first. A thread that only wants to know has [`PROBE`]
//!   set, and then nothing is released.
//! - SQLite empties the cache when a read transaction begins and anything was committed since the
//!   last one (`pagerBeginReadTransaction`). A connection that has said which commits its next
//!   snapshot contains at least ([`MainCache::keep_until_changed`]) keeps its pages instead; each
//!   is looked up in the record of changes when it is fetched for the first time on the new
//!   snapshot, and dropped if a commit may have changed it since the older of the two snapshots. So
//!   a page whose content differs is never handed out, whichever snapshot is the newer one.
//!
//! # The budget of all caches
//! - Each cache adds the pages that it has to [`ALL`]. It looks at their number when a page was
//!   added and after calls that free some: a fetch that finds its page pays nothing.
//! - When a page was added and all caches have more than the budget, the limit of this cache
//!   becomes the number of its pages, so that SQLite's cache uses its oldest unpinned page for the
//!   next one. Once they have less, its own limit is back.
//! - *Fairness.* A cache always has room for [`FLOOR`] pages. One that has more than an equal part
//!   of the budget gives back a 64th of its pages with each page that it adds, until the others
//!   have room. One that finds all its pages keeps them; an idle database gives all back.
//! - While the transaction has changed pages, nothing is given back. When they are nine tenths of
//!   the limit, SQLite's cache refuses a page; then the limit is raised, up to the cache's own.
//!   SQLite hears of a refusal at that limit only. So a budget never has it write pages before the
//!   commit.
//! - The storage of in-memory databases is a cache, too, of which no page can be dropped. It is not
//!   counted.
//!
//! # Invariants
//! - The wrapper is installed before SQLite has created any cache, so every handle is one of ours.
//! - A `Cache` is used under the mutex of its connection, by SQLite and by [`MainCache`] alike.
//! - Only the emptying at the beginning of a transaction is withheld, never one after an error: the
//!   first fetch of the transaction ends the permission.
//! - No page is in use or changed when a transaction begins, so every page that is kept can be
//!   dropped.
//! - The limit of a cache is never more than its own. A smaller one is one that SQLite could have
//!   set itself: only clean pages that are not in use are dropped or used for another page. Such a
//!   page is not pinned, so it is none that the open transaction has changed, and its note is
//!   written anew when it is fetched again.
//! - [`ALL`] has the sum of [`Cache::pages`]; a cache takes off its part when it is destroyed.
//!
//! # Not here
//! Reads that go around the page cache: `vfs::Published` and the VFS seam keep SQLite from them.
//!
//! [`Pages::batch_changed`]: crate::Pages::batch_changed

use std::cell::Cell;
use std::ffi::{c_int, c_uint};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rusqlite::ffi::{self, sqlite3_pcache, sqlite3_pcache_methods2, sqlite3_pcache_page};

use crate::pages::PageRecorder;
use crate::vfs::{CommitSequence, WalControl};

/// What we add to each page, a multiple of eight to keep SQLite's part of the next one aligned.
const OWN_BYTES: usize = size_of::<Note>();

const _: () = assert!(OWN_BYTES.is_multiple_of(8) && align_of::<Note>() <= 8);

/// What we know of a page that is in a cache.
struct Note {
    /// [`Cache::epoch`] when it was last fetched.
    epoch: u64,
    /// The newest [`Cache::sequence`] of the snapshots that have this content.
    sequence: CommitSequence,
    is_pinned: bool,
}

/// Asks for a page that may be refused: some are changed, and could be written to make room.
const CREATE_IF_EASY: c_int = 1;

type Fetch = unsafe extern "C" fn(*mut sqlite3_pcache, c_uint, c_int) -> *mut sqlite3_pcache_page;
type Unpin = unsafe extern "C" fn(*mut sqlite3_pcache, *mut sqlite3_pcache_page, c_int);

/// The methods of SQLite's own cache that are wrapped.
struct Lower {
    create: unsafe extern "C" fn(c_int, c_int, c_int) -> *mut sqlite3_pcache,
    cache_size: unsafe extern "C" fn(*mut sqlite3_pcache, c_int),
    page_count: unsafe extern "C" fn(*mut sqlite3_pcache) -> c_int,
    fetch: Fetch,
    unpin: Unpin,
    rekey: unsafe extern "C" fn(*mut sqlite3_pcache, *mut sqlite3_pcache_page, c_uint, c_uint),
    truncate: unsafe extern "C" fn(*mut sqlite3_pcache, c_uint),
    destroy: unsafe extern "C" fn(*mut sqlite3_pcache),
    shrink: unsafe extern "C" fn(*mut sqlite3_pcache),
}

static LOWER: OnceLock<Lower> = OnceLock::new();

/// Puts the wrapper around SQLite's page cache; whether it is there. It cannot be put there once
/// another library has initialised SQLite.
pub(crate) fn install() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| try_install().is_some())
}

fn try_install() -> Option<()> {
    let mut methods = MaybeUninit::<sqlite3_pcache_methods2>::zeroed();
    // SAFETY: GETPCACHE2 writes a whole structure through this pointer, or nothing when SQLite is
    // initialised; all zero is a valid value of it (no functions).
    let mut methods = unsafe {
        ffi::sqlite3_config(ffi::SQLITE_CONFIG_GETPCACHE2, methods.as_mut_ptr());
        methods.assume_init()
    };
    let found = Lower {
        create: methods.xCreate?,
        cache_size: methods.xCachesize?,
        page_count: methods.xPagecount?,
        fetch: methods.xFetch?,
        unpin: methods.xUnpin?,
        rekey: methods.xRekey?,
        truncate: methods.xTruncate?,
        destroy: methods.xDestroy?,
        shrink: methods.xShrink?,
    };
    LOWER.set(found).ok()?;
    methods.xCreate = Some(create);
    methods.xCachesize = Some(cache_size);
    methods.xPagecount = Some(page_count);
    methods.xFetch = Some(fetch);
    methods.xUnpin = Some(unpin);
    methods.xRekey = Some(rekey);
    methods.xTruncate = Some(truncate);
    methods.xDestroy = Some(destroy);
    methods.xShrink = Some(shrink);
    // SAFETY: SQLite copies the structure; its functions keep the contract of those they wrap, and
    // they live as long as the process. When SQLite is initialised already, nothing is changed.
    let code = unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_PCACHE2, &raw const methods) };
    (code == ffi::SQLITE_OK).then_some(())
}

fn lower() -> &'static Lower {
    // Set before SQLite learned of the functions that call this.
    LOWER.get().expect("the wrapper is installed after the cache underneath is known")
}

/// Pages that each cache may have whatever the others have: the inner pages of some trees, so that
/// not every statement reads them again.
const FLOOR: u32 = 64;

/// What all caches of the process have together.
#[repr(align(128))]
struct All {
    bytes: AtomicU64,
    /// How many of them have pages.
    caches: AtomicU64,
    budget: AtomicU64,
    /// Whether the budget was set by the program.
    is_set: Mutex<bool>,
}

/// Figures alone: no other memory depends on them.
static ALL: All = All {
    bytes: AtomicU64::new(0),
    caches: AtomicU64::new(0),
    budget: AtomicU64::new(1 << 30),
    is_set: Mutex::new(false),
};

/// Sets what the page caches of all databases of this process may take together, in bytes.
///
/// The default is 1 GiB, or what the options allow to the page caches of a single database, if that
/// is more: of those opened so far, the one that may have the most. So it binds only where several
/// databases are in use at once. 0 is as little as possible, [`u64::MAX`] is without a limit.
///
/// Beyond it, a cache that needs a page uses its own oldest one that is not in use. It always has
/// those that are in use, with the changed ones of an open transaction, and 64 others. What is
/// beyond a new budget is given back step by step, as the caches read other pages. A smaller budget
/// costs time, never a result. It counts all connections of the process to SQLite, except in-memory
/// databases of other libraries; it has no effect if one of these initialised SQLite first.
pub fn limit_page_caches(bytes: u64) {
    let mut is_set = ALL.is_set.lock().unwrap_or_else(PoisonError::into_inner);
    *is_set = true;
    ALL.budget.store(bytes, Ordering::Relaxed);
}

/// Has the budget be no less than `bytes`, which one database may take, unless the program has set
/// another one.
pub fn allow_page_caches(bytes: u64) {
    let is_set = ALL.is_set.lock().unwrap_or_else(PoisonError::into_inner);
    if !*is_set {
        ALL.budget.fetch_max(bytes, Ordering::Relaxed);
    }
}

/// Whether all caches together have more than they may.
pub(crate) fn is_over_budget() -> bool {
    page_cache_bytes() > ALL.budget.load(Ordering::Relaxed)
}

/// What the pages in all caches of this process take now, in bytes.
pub fn page_cache_bytes() -> u64 {
    ALL.bytes.load(Ordering::Relaxed)
}

/// A page cache as SQLite knows it.
struct Cache {
    lower: *mut sqlite3_pcache,
    /// Those of `lower()`, where the two frequent calls find them without another look-up.
    fetch: Fetch,
    unpin: Unpin,
    /// Where in `pExtra` the [`Note`] is.
    note_at: usize,
    /// What a page takes, as SQLite counts it.
    page_bytes: u64,
    /// Whether pages can be dropped.
    is_purgeable: bool,
    /// How many pages it had when it was last looked at.
    pages: u32,
    /// How many it may have as long as the budget allows it.
    own_limit: u32,
    /// How many SQLite's cache was told that it may have.
    limit: u32,
    /// The limit to go back to once no page is changed.
    kept_limit: Option<u32>,
    /// Whether the next page is added after SQLite has tried to write a changed one.
    was_refused: bool,
    is_recording: bool,
    recorder: PageRecorder,
    /// Counts the snapshots for which pages were kept.
    epoch: u64,
    /// Number of a commit that the current snapshot contains, with all before it.
    sequence: CommitSequence,
    /// That of the next snapshot, from when pages may be kept until the next call decides.
    upcoming: Option<CommitSequence>,
    control: Option<Arc<WalControl>>,
}

impl Cache {
    /// Where the note of `page` is; written by the first fetch of the page.
    ///
    /// # Safety
    /// `page` must be a page of this cache.
    unsafe fn note(&self, page: *mut sqlite3_pcache_page) -> *mut Note {
        // SAFETY: a page of this cache has `OWN_BYTES` at this place, see `create`; it is aligned
        // to 8, as `pExtra` is.
        unsafe { (*page).pExtra.byte_add(self.note_at).cast::<Note>() }
    }

    /// Whether a page that was kept has the content that the current snapshot has.
    fn is_unchanged(&self, note: &Note, pgno: c_uint) -> bool {
        let oldest = note.sequence.min(self.sequence);
        let control = self.control.as_ref();
        control.is_some_and(|it| !it.changes().changed_since(pgno, oldest))
    }

    /// A page as SQLite asked for it, null if there is none.
    ///
    /// # Safety
    /// SQLite's own rules for `xFetch`.
    #[inline(always)]
    unsafe fn fetch_current(&mut self, pgno: c_uint, how: c_int) -> *mut sqlite3_pcache_page {
        // SAFETY: the page is of this cache. One of an older epoch is not in use (see the
        // invariants), so it is not pinned and can be dropped.
        unsafe {
            let page = (self.fetch)(self.lower, pgno, how);
            // SQLite's own mark of a page that has just been added.
            if page.is_null() || (*page).pExtra.cast::<*const u8>().read().is_null() {
                return self.added(page, pgno, how);
            }
            let note = &mut *self.note(page);
            if note.epoch == self.epoch || self.is_unchanged(note, pgno) {
                let sequence = note.sequence.max(self.sequence);
                *note = Note { epoch: self.epoch, sequence, is_pinned: true };
                return page;
            }
            (self.unpin)(self.lower, page, 1);
            let page = (self.fetch)(self.lower, pgno, how);
            self.added(page, pgno, how)
        }
    }

    /// A page that the cache underneath has just added, or that it has refused, null.
    ///
    /// # Safety
    /// SQLite's own rules for `xFetch`.
    #[inline(never)]
    unsafe fn added(
        &mut self,
        mut page: *mut sqlite3_pcache_page,
        pgno: c_uint,
        how: c_int,
    ) -> *mut sqlite3_pcache_page {
        // SAFETY: those rules, and the page is of this cache.
        unsafe {
            while page.is_null() && how == CREATE_IF_EASY && self.makes_room() {
                page = (self.fetch)(self.lower, pgno, how);
            }
            if !page.is_null() {
                let note = Note { epoch: self.epoch, sequence: self.sequence, is_pinned: true };
                self.note(page).write(note);
                self.page_was_added(how);
            }
            page
        }
    }

    /// Raises the limit because of changed pages, up to the cache's own.
    fn makes_room(&mut self) -> bool {
        self.was_refused = self.limit >= self.own_limit;
        if self.was_refused {
            return false;
        }
        self.kept_limit.get_or_insert(self.limit);
        self.set_limit(self.limit.saturating_add(self.limit / 4).saturating_add(FLOOR));
        true
    }

    /// Keeps to the budget after a page was added.
    fn page_was_added(&mut self, how: c_int) {
        self.count();
        let has_changes = std::mem::take(&mut self.was_refused) || how == CREATE_IF_EASY;
        if !has_changes {
            return self.keep_to_budget();
        }
        if is_over_budget() && self.kept_limit.is_none() {
            self.kept_limit = Some(self.limit.min(self.pages.max(FLOOR)));
            self.set_limit(self.pages.max(FLOOR));
        }
    }

    /// Sets the limit that the budget allows while no page is changed.
    fn keep_to_budget(&mut self) {
        let kept = self.kept_limit.take();
        if !is_over_budget() || !self.is_purgeable {
            if self.limit < self.own_limit {
                self.set_limit(self.own_limit);
            }
            return;
        }
        let mut limit = self.limit.min(self.pages).min(kept.unwrap_or(self.limit));
        let caches = ALL.caches.load(Ordering::Relaxed).max(1);
        let part = ALL.budget.load(Ordering::Relaxed) / caches / self.page_bytes;
        if u64::from(limit) > part {
            limit -= limit.div_ceil(64);
        }
        self.set_limit(limit.max(FLOOR));
    }

    /// Has the cache underneath have no more than `limit` pages, and its own limit.
    fn set_limit(&mut self, limit: u32) {
        self.limit = limit.min(self.own_limit);
        // SAFETY: the cache underneath is this one's own, and in no other call.
        unsafe { (lower().cache_size)(self.lower, self.limit as c_int) }
        self.count();
    }

    fn set_own_limit(&mut self, pages: c_int) {
        self.own_limit = pages.try_into().unwrap_or(0);
        self.set_limit(self.own_limit);
    }

    /// # Safety
    /// `page` must be a page of this cache that is in use; it is no longer.
    #[inline(never)]
    unsafe fn drop_page(&mut self, page: *mut sqlite3_pcache_page) {
        // SAFETY: the caller's.
        unsafe { (self.unpin)(self.lower, page, 1) }
        self.count();
    }

    /// Looks at the number of its pages.
    fn count(&mut self) {
        // SAFETY: the cache underneath is this one's own.
        let pages = unsafe { (lower().page_count)(self.lower) };
        self.has_pages(if self.is_purgeable { pages.try_into().unwrap_or(0) } else { 0 });
    }

    fn has_pages(&mut self, pages: u32) {
        let before = std::mem::replace(&mut self.pages, pages);
        match (before, pages) {
            _ if before == pages => return,
            (0, _) => ALL.caches.fetch_add(1, Ordering::Relaxed),
            (_, 0) => ALL.caches.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        let more = u64::from(pages).wrapping_sub(before.into()).wrapping_mul(self.page_bytes);
        ALL.bytes.fetch_add(more, Ordering::Relaxed);
    }
}

/// # Safety
/// `cache` must have been made by `create` and not been destroyed, and no other reference to it may
/// be in use.
unsafe fn ours<'a>(cache: *mut sqlite3_pcache) -> &'a mut Cache {
    // SAFETY: `create` made it from a `Box<Cache>`; the caller says that no other reference is in
    // use.
    unsafe { &mut *cache.cast::<Cache>() }
}

unsafe extern "C" fn create(page: c_int, extra: c_int, purgeable: c_int) -> *mut sqlite3_pcache {
    let Lower { create, fetch, unpin, .. } = *lower();
    let note_at = (extra as usize).next_multiple_of(align_of::<Note>());
    // SAFETY: SQLite's arguments are handed on, with room for our bytes.
    let lower = unsafe { create(page, (note_at + OWN_BYTES) as c_int, purgeable) };
    if lower.is_null() {
        return ptr::null_mut();
    }
    let cache = Cache {
        lower,
        fetch,
        unpin,
        note_at,
        page_bytes: (page as u64).saturating_add(extra as u64).max(1),
        is_purgeable: purgeable != 0,
        pages: 0,
        own_limit: 0,
        limit: 0,
        kept_limit: None,
        was_refused: false,
        is_recording: false,
        recorder: PageRecorder::default(),
        epoch: 0,
        sequence: CommitSequence::UNKNOWN,
        upcoming: None,
        control: None,
    };
    Box::into_raw(Box::new(cache)).cast()
}

unsafe extern "C" fn cache_size(cache: *mut sqlite3_pcache, pages: c_int) {
    // SAFETY: SQLite passes a cache of ours.
    unsafe { ours(cache).set_own_limit(pages) }
}

unsafe extern "C" fn page_count(cache: *mut sqlite3_pcache) -> c_int {
    // SAFETY: SQLite passes a cache of ours.
    unsafe { (lower().page_count)(ours(cache).lower) }
}

unsafe extern "C" fn fetch(
    cache: *mut sqlite3_pcache,
    pgno: c_uint,
    how: c_int,
) -> *mut sqlite3_pcache_page {
    // SAFETY: SQLite passes a cache of ours, and the page is of that cache.
    unsafe {
        let cache = ours(cache);
        if cache.is_recording && pgno != 1 {
            cache.recorder.insert(pgno);
        }
        if let Some(sequence) = cache.upcoming.take() {
            // The snapshot is the one before, which so contains these commits, too.
            cache.sequence = cache.sequence.max(sequence);
        }
        cache.fetch_current(pgno, how)
    }
}

unsafe extern "C" fn unpin(
    cache: *mut sqlite3_pcache,
    page: *mut sqlite3_pcache_page,
    discard: c_int,
) {
    // SAFETY: SQLite passes a cache of ours and a page of it.
    unsafe {
        let cache = ours(cache);
        (*cache.note(page)).is_pinned = false;
        // The cache underneath drops the page, too, while it has more than its limit.
        if discard != 0 || cache.pages > cache.limit {
            return cache.drop_page(page);
        }
        let (unpin, lower) = (cache.unpin, cache.lower);
        unpin(lower, page, discard);
    }
}

unsafe extern "C" fn rekey(
    cache: *mut sqlite3_pcache,
    page: *mut sqlite3_pcache_page,
    old: c_uint,
    new: c_uint,
) {
    // SAFETY: SQLite passes a cache of ours and a page of it.
    unsafe { (lower().rekey)(ours(cache).lower, page, old, new) }
}

unsafe extern "C" fn truncate(cache: *mut sqlite3_pcache, from: c_uint) {
    // SAFETY: SQLite passes a cache of ours.
    let cache = unsafe { ours(cache) };
    match cache.upcoming.take() {
        // All pages; page 1 is not in use either, so it need not stay.
        Some(sequence) if from <= 1 => {
            cache.epoch += 1;
            cache.sequence = sequence;
        }
        _ => {
            // SAFETY: as above.
            unsafe { (lower().truncate)(cache.lower, from) }
            cache.count();
        }
    }
}

unsafe extern "C" fn destroy(cache: *mut sqlite3_pcache) {
    // SAFETY: SQLite passes a cache of ours and does not use it again.
    unsafe {
        let mut cache = Box::from_raw(cache.cast::<Cache>());
        (lower().destroy)(cache.lower);
        cache.has_pages(0);
    }
}

unsafe extern "C" fn shrink(cache: *mut sqlite3_pcache) {
    match PROBE.get() {
        Probe::Off => {
            // SAFETY: SQLite passes a cache of ours.
            let cache = unsafe { ours(cache) };
            // SAFETY: as above.
            unsafe { (lower().shrink)(cache.lower) }
            cache.count();
        }
        Probe::Awaits => PROBE.set(Probe::Found(cache.cast())),
        Probe::Found(_) => {}
    }
}

#[derive(Clone, Copy)]
enum Probe {
    Off,
    Awaits,
    Found(*mut Cache),
}

thread_local! {
    static PROBE: Cell<Probe> = const { Cell::new(Probe::Off) };
}

/// The cache of a connection's main database, with the connection's mutex held.
pub(crate) struct MainCache<'c> {
    cache: NonNull<Cache>,
    mutex: *mut ffi::sqlite3_mutex,
    _connection: &'c rusqlite::Connection,
}

impl Drop for MainCache<'_> {
    fn drop(&mut self) {
        // SAFETY: entered by `of` on this thread (the value is not `Send`).
        unsafe { ffi::sqlite3_mutex_leave(self.mutex) };
    }
}

impl<'c> MainCache<'c> {
    /// `None` when the wrapper is not installed.
    pub(crate) fn of(connection: &'c rusqlite::Connection) -> Option<MainCache<'c>> {
        if !install() {
            return None;
        }
        // SAFETY: the handle is open for as long as the borrow, and its mutex (null, and then
        // without effect, in a connection without one) may be entered from any thread.
        let (mutex, probe) = unsafe {
            let db = connection.handle();
            let mutex = ffi::sqlite3_db_mutex(db);
            ffi::sqlite3_mutex_enter(mutex);
            PROBE.set(Probe::Awaits);
            ffi::sqlite3_db_release_memory(db);
            (mutex, PROBE.replace(Probe::Off))
        };
        let Probe::Found(cache) = probe else {
            // SAFETY: entered above.
            unsafe { ffi::sqlite3_mutex_leave(mutex) };
            return None;
        };
        let cache = NonNull::new(cache)?;
        Some(MainCache { cache, mutex, _connection: connection })
    }

    fn cache(&mut self) -> &mut Cache {
        // SAFETY: the cache lives as long as its database is open, or until its page size changes;
        // both need the mutex that is held here, and so does every other use.
        unsafe { self.cache.as_mut() }
    }

    /// Keeps the pages that no commit has changed when the next transaction begins. Its snapshot
    /// has to contain every commit up to number `sequence` of the record in `control`, which has to
    /// have every commit to this database. To be called before the transaction's first statement.
    pub(crate) fn keep_until_changed(
        &mut self,
        control: &Arc<WalControl>,
        sequence: CommitSequence,
    ) {
        let cache = self.cache();
        cache.upcoming = Some(sequence);
        cache.control.get_or_insert_with(|| Arc::clone(control));
    }

    /// Has it keep pages of `bytes` together, and not as many as SQLite has asked for.
    pub(crate) fn resize(&mut self, bytes: u64) {
        let cache = self.cache();
        cache.set_own_limit(c_int::try_from(bytes / cache.page_bytes).unwrap_or(c_int::MAX));
    }

    /// Gives back what the changed pages of a transaction took beyond the budget, after its end.
    pub(crate) fn keep_to_budget(&mut self) {
        let cache = self.cache();
        if cache.kept_limit.is_some() {
            cache.keep_to_budget();
        }
    }

    /// Records the pages that are fetched from now on, up to `limit` of them.
    pub(crate) fn start_recording(&mut self, limit: usize) {
        let cache = self.cache();
        cache.recorder.start(limit);
        cache.is_recording = true;
    }

    /// Ends the recording; `None` when there is none in this cache, or more pages than the limit.
    pub(crate) fn stop_recording(&mut self) -> Option<Box<[u32]>> {
        let cache = self.cache();
        std::mem::take(&mut cache.is_recording).then(|| cache.recorder.pages()).flatten()
    }

    /// Whether one of the pages that were recorded so far is such a page; the recording goes on.
    pub(crate) fn has_recorded(&mut self, is_such: impl Fn(u32) -> bool) -> bool {
        let cache = self.cache();
        cache.is_recording && cache.recorder.has(is_such)
    }

    /// Whether `pgno` is in the cache and pinned. Neither recorded nor changed by asking.
    pub(crate) fn is_pinned(&mut self, pgno: u32) -> bool {
        let cache = self.cache();
        // SAFETY: the page is of this cache, and 0 creates none. The fetch pinned it in the cache
        // underneath; if it was not pinned before, that is undone.
        unsafe {
            let page = (cache.fetch)(cache.lower, pgno, 0);
            if page.is_null() {
                return false;
            }
            let is_pinned = (*cache.note(page)).is_pinned;
            if !is_pinned {
                (cache.unpin)(cache.lower, page, 0);
            }
            is_pinned
        }
    }

    /// The four bytes at `at` of page 1, in big-endian order. Only while a transaction is open,
    /// which keeps page 1 pinned.
    pub(crate) fn header_field(&mut self, at: usize) -> Option<u32> {
        let cache = self.cache();
        // SAFETY: the page is of this cache and pinned, so that asking changes nothing; its buffer
        // has at least 512 bytes and every `at` is in the header of 100.
        unsafe {
            let page = (cache.fetch)(cache.lower, 1, 0);
            if page.is_null() {
                return None;
            }
            let bytes = (*page).pBuf.cast::<[u8; 4]>().byte_add(at.min(96)).read();
            Some(u32::from_be_bytes(bytes))
        }
    }
}
