//! Owns the numbers that are given out ahead to rows whose key is left to SQLite, so that a
//! statement which is run again inserts the same row under the same number.
//!
//! # Algorithm
//! 1. Such an `INSERT` is run in a second form ([`insert`]), in which the key is the value of
//!    [`FUNCTION`]. What the function gives is told to it before the statement runs
//!    ([`Giver::during`]): new numbers, or those of the first run, again.
//! 2. New numbers come from a [`Counter`], one for each table: the next one is behind all that it
//!    has given, behind every rowid that the writer has inserted since there is a counter (a hook
//!    tells), and behind every rowid of the table as the connection sees it.
//! 3. A number is given once, whatever becomes of the transaction.
//! 4. When a table was dropped and no interactive transaction is open or commits, its counter
//!    begins anew.
//!
//! Why it is done like this, and what that depends on: `docs/decisions/ids-given-out-ahead.md`.
//!
//! # Invariants
//! - No counter goes back while a transaction may have a promise.
//! - [`FUNCTION`] gives NULL, for which SQLite chooses, unless it was told otherwise; no definition
//!   in a schema can call it, and no statement of a user.

mod insert;
pub(crate) mod plain;
pub(crate) mod table;
pub(crate) mod taken;

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use hashbrown::{HashMap, HashSet};
use rusqlite::{MAIN_DB, Result, ffi};

use crate::functions;
use crate::locked::locked;
use table::Second;
use taken::{Journal, Pending, Taken};

/// The function that stands for a key in the second form of an `INSERT`.
pub(crate) const FUNCTION: &str = "monolite_rowid";

/// [`FUNCTION`], for SQLite.
const FUNCTION_NAME: &CStr = c"monolite_rowid";

/// Forms that are kept; more than most applications have statements.
const MAX_FORMS: usize = 1_024;

/// Tables that have a counter. Those behind have none, and SQLite chooses for them: counters are
/// kept for names that were dropped, too.
const MAX_TABLES: usize = 100_000;

/// How far above all others a row's number may be to raise a counter. Its insert may be rolled
/// back, and all later numbers would be up there for good. So many numbers are not given out before
/// the counter meets the row; if it does, the transaction that was promised the number has a
/// conflict.
const FAR: i64 = 1 << 32;

/// Above this SQLite chooses: it looks for numbers that are free when the last one is taken.
const LAST: i64 = i64::MAX - (1 << 40);

/// Numbers that were given to one run of a statement, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenRowids {
    first: i64,
    count: u32,
}

impl GivenRowids {
    /// So many from `first` on; `None` when they would be beyond the largest.
    pub(crate) fn new(first: i64, count: u32) -> Option<GivenRowids> {
        first.checked_add(i64::from(count) - 1).map(|_| GivenRowids { first, count })
    }

    /// The first one.
    pub fn first(self) -> i64 {
        self.first
    }

    /// The last one.
    pub fn last(self) -> i64 {
        self.first + (i64::from(self.count) - 1)
    }
}

/// How the rows of a statement get their numbers, where SQLite may choose them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// As SQLite would; as `New` in a table of which numbers were given out ahead.
    Plain,
    /// Each has a number of its own from now on.
    New,
    /// It has the number it was given; without one, or if another row has it, SQLite chooses.
    Again(Option<GivenRowids>),
}

/// The numbers of one table.
#[derive(Debug)]
pub(crate) struct Counter {
    /// The largest that was given or inserted.
    last: AtomicI64,
    has_given: AtomicBool,
    /// Whether the table has `AUTOINCREMENT`.
    never_reuses: AtomicBool,
    /// What others have had of a table that never reuses any.
    taken: Mutex<Taken>,
}

impl Counter {
    fn new() -> Counter {
        Counter {
            last: AtomicI64::new(i64::MIN),
            has_given: AtomicBool::new(false),
            never_reuses: AtomicBool::new(false),
            taken: Mutex::default(),
        }
    }

    /// Whether a number was ever given out.
    pub(crate) fn has_given(&self) -> bool {
        self.has_given.load(Ordering::Acquire)
    }

    /// Takes `count` numbers that were never given and are not below `least`; `None` when there are
    /// not so many, or they would be [`FAR`] above all others or behind [`LAST`].
    fn take(&self, least: i64, count: u32) -> Option<GivenRowids> {
        let after = |last: i64| {
            let first = last.checked_add(1)?.max(least);
            let given = GivenRowids::new(first, count)?;
            (given.last() <= LAST && !is_far(first, last)).then_some(given)
        };
        self.has_given.store(true, Ordering::Release);
        let taken = self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| {
            after(last).map(GivenRowids::last)
        });
        let last = taken.ok()?;
        let given = after(last)?;
        assert!(given.first() > last, "a number is given out once");
        Some(given)
    }

    /// Forgets all that it gave and saw. No promise may be left.
    fn begin_anew(&self) {
        self.last.store(i64::MIN, Ordering::Release);
        self.has_given.store(false, Ordering::Release);
        *locked(&self.taken) = Taken::default();
    }

    fn raise(&self, rowid: i64) {
        let _ = self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| {
            (rowid > last && rowid <= LAST && !is_far(rowid, last)).then_some(rowid)
        });
    }

    /// Whether `rowid` may have been promised in a table that gives none a second time.
    fn may_be_promised(&self, rowid: i64) -> bool {
        self.has_given()
            && self.never_reuses.load(Ordering::Acquire)
            && rowid <= self.last.load(Ordering::Acquire)
    }

    /// Whether others have had one of these, in a table that gives none a second time.
    pub(crate) fn has_lost(&self, given: GivenRowids) -> bool {
        self.never_reuses.load(Ordering::Acquire) && locked(&self.taken).has_any_of(given)
    }
}

/// Whether a number is so far above the last one that it says nothing of those that will follow.
fn is_far(rowid: i64, last: i64) -> bool {
    last != i64::MIN && rowid.saturating_sub(last.max(0)) > FAR
}

/// An `INSERT` in its second form, with the counter that gives its numbers.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) second: Second,
    pub(crate) counter: Arc<Counter>,
}

/// What is known of a text with the schema of this cookie.
type Known = (u32, Option<Arc<Form>>);

/// The counters of a database, and the statements that use them; shared by its connections.
#[derive(Debug, Default)]
pub struct Rowids {
    counters: Mutex<HashMap<Box<str>, Arc<Counter>>>,
    forms: Mutex<HashMap<Box<str>, Known>>,
    is_used: AtomicBool,
    given: AtomicU64,
    /// How many transactions are open that may have a promise.
    open: Arc<AtomicUsize>,
    /// Bytes of the steps that they have taken, also of those whose commit is still to run.
    steps: Arc<AtomicUsize>,
}

impl Rowids {
    /// None given out.
    pub fn new() -> Rowids {
        Rowids::default()
    }

    /// How many numbers were given out ahead.
    pub fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    /// Counts the transactions that may have a promise; kept by those who begin and end them.
    pub fn open_transactions(&self) -> &Arc<AtomicUsize> {
        &self.open
    }

    /// Counts the bytes of their steps, until the commit of each has run; kept in the same way.
    pub fn step_bytes(&self) -> &Arc<AtomicUsize> {
        &self.steps
    }

    pub(crate) fn count(&self, given: Option<GivenRowids>) {
        let count = given.map_or(0, |given| u64::from(given.count));
        self.given.fetch_add(count, Ordering::Relaxed);
    }

    /// Whether there is any counter.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// The counter of `table`, also of one that was dropped and made again.
    pub(crate) fn counter(&self, table: &str, never_reuses: bool) -> Option<Arc<Counter>> {
        let (name, mut counters) = (folded(table), locked(&self.counters));
        let known = counters.get(&*name).map(Arc::clone);
        if known.is_none() && counters.len() >= MAX_TABLES {
            return None;
        }
        let counter = known.unwrap_or_else(|| {
            let counter = Arc::new(Counter::new());
            counters.insert(name.into(), Arc::clone(&counter));
            self.is_used.store(true, Ordering::Release);
            counter
        });
        counter.never_reuses.store(never_reuses, Ordering::Release);
        Some(counter)
    }

    /// The transaction that dropped `tables` is committed.
    fn dropped(&self, tables: &HashSet<String>) {
        // A promise of a table that never reuses a number counts on its counter. A statement that
        // is given one runs in an open transaction, and is a step of it until its commit has run.
        let is_left = || [&self.open, &self.steps].iter().any(|it| it.load(Ordering::SeqCst) > 0);
        if !tables.is_empty() && !is_left() {
            tables.iter().filter_map(|table| self.find(table)).for_each(|it| it.begin_anew());
        }
    }

    fn find(&self, table: &str) -> Option<Arc<Counter>> {
        locked(&self.counters).get(&*folded(table)).map(Arc::clone)
    }

    /// What is known of `sql` with the schema of `cookie`; `None` when nothing is.
    pub(crate) fn known(&self, sql: &str, cookie: u32) -> Option<Option<Arc<Form>>> {
        let forms = locked(&self.forms);
        forms.get(sql).filter(|(of, _)| *of == cookie).map(|(_, form)| form.clone())
    }

    pub(crate) fn remember(&self, sql: &str, cookie: u32, form: Option<Arc<Form>>) {
        let mut forms = locked(&self.forms);
        if forms.len() >= MAX_FORMS {
            forms.clear();
        }
        forms.insert(sql.into(), (cookie, form));
    }
}

/// A name as SQLite compares it.
fn folded(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

/// Which numbers a statement is run with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Numbers {
    /// New ones, not below `least`, of which there are `rows` at most.
    New { least: i64, rows: u32 },
    /// Those that its rows were given before.
    Again(GivenRowids),
}

/// What [`FUNCTION`] gives to rows of the table that has the counter.
#[derive(Debug)]
struct Giving {
    counter: Arc<Counter>,
    numbers: Numbers,
    /// Those that were given so far are among these.
    given: Option<GivenRowids>,
    used: u32,
}

impl Giving {
    /// Whether this number is given to a row of that counter's table.
    fn has_given(&self, of: &Arc<Counter>, rowid: i64) -> bool {
        let is_among = |given: GivenRowids| (given.first()..=given.last()).contains(&rowid);
        Arc::ptr_eq(&self.counter, of) && self.given.is_some_and(is_among)
    }

    fn next(&mut self) -> Option<i64> {
        if self.given.is_none() {
            self.given = match self.numbers {
                Numbers::New { least, rows } => self.counter.take(least, rows),
                Numbers::Again(given) => Some(given),
            };
        }
        let given = self.given?;
        let number = (self.used < given.count).then(|| given.first + i64::from(self.used));
        self.used = self.used.saturating_add(1);
        number
    }
}

/// Where a connection's [`FUNCTION`] and its user talk to each other.
#[derive(Debug)]
pub(crate) struct Giver {
    rowids: Arc<Rowids>,
    giving: Mutex<Option<Giving>>,
    /// What the writer's open transaction has taken of others.
    journal: Mutex<Journal>,
}

impl Giver {
    /// Gives `connection` its [`FUNCTION`], and if it is that of the `writer`, has each row that it
    /// inserts raise a counter.
    pub(crate) fn install(
        connection: &rusqlite::Connection,
        rowids: &Arc<Rowids>,
        is_writer: bool,
    ) -> Result<Arc<Giver>> {
        let rowids = Arc::clone(rowids);
        let (giving, journal) = (Mutex::default(), Mutex::default());
        let giver = Arc::new(Giver { rowids, giving, journal });
        let own = Arc::clone(&giver);
        functions::add(connection, FUNCTION_NAME, 1, ffi::SQLITE_DIRECTONLY, move |call| {
            if !call.is_null(0) {
                call.return_argument(0);
            } else if let Some(number) = locked(&own.giving).as_mut().and_then(Giving::next) {
                call.return_integer(number);
            }
        })?;
        if is_writer {
            let own = Arc::as_ptr(&giver).cast_mut().cast::<c_void>();
            // SAFETY: the handle is open; the function above keeps what is pointed at until the
            // connection is closed, and no row is inserted then.
            unsafe { ffi::sqlite3_update_hook(connection.handle(), Some(updated), own) };
        }
        Ok(giver)
    }

    pub(crate) fn rowids(&self) -> &Rowids {
        &self.rowids
    }

    /// A row has been inserted by the writer.
    fn inserted(&self, table: &str, rowid: i64) {
        let Some(counter) = self.rowids.find(table) else { return };
        let is_own =
            || locked(&self.giving).as_ref().is_some_and(|it| it.has_given(&counter, rowid));
        if counter.may_be_promised(rowid) && !is_own() {
            let table = table.into();
            locked(&self.journal).pending.push(Pending {
                counter: Arc::clone(&counter),
                table,
                rowid,
            });
        }
        counter.raise(rowid);
    }

    /// A transaction begins, or was rolled back.
    pub(crate) fn begin(&self) {
        locked(&self.journal).clear();
    }

    /// What the open transaction has taken, for its savepoints.
    pub(crate) fn journal(&self) -> MutexGuard<'_, Journal> {
        locked(&self.journal)
    }

    pub(crate) fn has_pending(&self) -> bool {
        !locked(&self.journal).pending.is_empty()
    }

    /// Forgets those of the open transaction that are above the `last_of` their table, which were
    /// taken by a statement that has failed since: what a table never gives again is not above it.
    pub(crate) fn settle(&self, last_of: impl Fn(&str) -> Option<i64>) {
        locked(&self.journal)
            .pending
            .retain(|it| last_of(&it.table).is_none_or(|last| it.rowid <= last));
    }

    /// The transaction is committed, with all that is pending; it may have dropped `tables`.
    pub(crate) fn committed(&self, dropped: &HashSet<String>) {
        let mut journal = locked(&self.journal);
        for Pending { counter, rowid, .. } in journal.pending.drain(..) {
            locked(&counter.taken).add(rowid, counter.last.load(Ordering::Acquire));
        }
        journal.clear();
        self.rowids.dropped(dropped);
    }

    /// Runs `run`, in which [`FUNCTION`] gives `numbers` to rows of the table that has `counter`,
    /// and says which it gave. Puts what it gave before back, after a panic, too; that is NULL
    /// outside of any such run.
    pub(crate) fn during<R>(
        &self,
        counter: &Arc<Counter>,
        numbers: Numbers,
        run: impl FnOnce() -> R,
    ) -> (R, Option<GivenRowids>) {
        struct Restore<'g>(&'g Giver, Option<Giving>);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                std::mem::swap(&mut *locked(&self.0.giving), &mut self.1);
            }
        }
        let giving = Giving { counter: Arc::clone(counter), numbers, given: None, used: 0 };
        let before = locked(&self.giving).replace(giving);
        let mut restore = Restore(self, before);
        let result = run();
        let done = std::mem::replace(&mut *locked(&self.giving), restore.1.take());
        std::mem::forget(restore);
        (result, done.and_then(|giving| giving.given))
    }
}

unsafe extern "C" fn updated(
    giver: *mut c_void,
    what: c_int,
    database: *const c_char,
    table: *const c_char,
    rowid: i64,
) {
    // SAFETY: SQLite called with what `install` gave it, and C strings that are valid for the call.
    unsafe {
        let giver = &*giver.cast::<Giver>();
        let is_used = what == ffi::SQLITE_INSERT && giver.rowids().is_used();
        if is_used && CStr::from_ptr(database) == MAIN_DB {
            giver.inserted(&CStr::from_ptr(table).to_string_lossy(), rowid);
        }
    }
}

#[cfg(test)]
mod tests;
