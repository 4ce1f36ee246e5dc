//! Owns what a transaction on a connection with the profile for untrusted SQL may take: memory, and
//! stack; and how large the schema may become.
//!
//! # The schema
//! Each connection has the schema in memory from its first transaction to its end, whoever made it,
//! and reads it outside of any transaction's budget. So its size is bounded where it grows, in
//! memory, as text, in number, in what its indexes make the planner do, and by the time that it
//! takes to read, which is foreseen: a statement that adds to it is refused when it is larger
//! afterwards. What could be made can be loaded by everybody, always. Views are given their columns
//! when they are used, by each connection for itself; a connection that has too much of that reads
//! the schema again.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Result, ffi};

use super::Connection;
use crate::definitions;
use crate::memory::Budget;
use crate::text::Views;
use crate::untrusted::{self, Untrusted};

/// How many times smaller than what a transaction may allocate the schema is kept in memory.
const SCHEMA_SHARE: u64 = 4;

/// The same of its text, which is read and parsed at some 50 MB/s: in 80 ms with the default of
/// 64 MiB.
const SCHEMA_TEXT_SHARE: u64 = 16;

/// The most tables, indexes, views and triggers in a schema. To read it takes longer than its text
/// says where one table has many of them: 0.6 s for 6,000 indexes, 2.2 s for 12,000.
const SCHEMA_OBJECTS: u64 = 4_000;

/// The longest that it may take to read a schema, as far as that is foreseen ([`time_to_read`]).
const MAX_READ: Duration = Duration::from_millis(100);

/// What transactions on a connection may allocate.
pub(super) struct MemoryLimit {
    /// Within one transaction, its page cache included.
    bytes: u64,
    /// What statements may keep from one transaction to the next.
    kept_bytes: i64,
    /// What transactions have left behind since statements were last forgotten.
    kept: Cell<i64>,
    /// What the statements so far of an overlay's transaction have taken.
    taken: Cell<i64>,
    /// How large the schema may become, in memory and as text.
    schema_bytes: u64,
    schema_text_bytes: u64,
    /// Whether the schema in memory may have grown beyond that.
    must_weigh_schema: Cell<bool>,
}

impl MemoryLimit {
    pub(super) fn new(profile: &Untrusted, cache_kib: u64) -> MemoryLimit {
        let bytes = profile.memory_bytes.saturating_add(cache_kib.saturating_mul(1_024));
        let kept_bytes = i64::try_from(profile.memory_bytes / 4).unwrap_or(i64::MAX);
        MemoryLimit {
            bytes,
            kept_bytes,
            kept: Cell::new(0),
            taken: Cell::new(0),
            schema_bytes: profile.memory_bytes / SCHEMA_SHARE,
            schema_text_bytes: profile.memory_bytes / SCHEMA_TEXT_SHARE,
            must_weigh_schema: Cell::new(false),
        }
    }

    /// A transaction begins.
    pub(super) fn begin(&self) {
        self.taken.set(0);
    }

    /// What its next statement, or all of it, may take.
    fn left(&self) -> u64 {
        self.bytes.saturating_sub(u64::try_from(self.taken.get()).unwrap_or(0))
    }
}

impl Connection {
    /// Runs `body`, which may hand SQL to this connection. Where that is not trusted it finds as
    /// much stack as it can need, whatever `body` does with it.
    ///
    /// # Panics
    /// With the panic of `body`.
    #[inline]
    pub fn on_stack<R>(&self, body: impl FnOnce() -> R) -> R {
        if self.memory.is_some() { self.prepared.deeply(body) } else { body() }
    }

    /// Whether it can only be a program longer than the profile allows when SQLite says that it was
    /// refused memory.
    pub fn has_memory_left(&self) -> bool {
        let is_interrupted = self.signals.is_interrupted();
        self.memory.is_some() && !Budget::was_exceeded() && !is_interrupted
    }

    /// Limits what the transaction that begins now may allocate on this thread, if the connection
    /// has such a limit.
    #[inline]
    pub fn start_budget(&self) -> Option<Budget> {
        let look = || Some(Arc::clone(&self.look));
        if self.signals.has_new_schema() {
            self.forget_cached_statements();
        }
        self.signals.forget_passes();
        self.trim_cached();
        self.memory.as_ref().map(|limit| Budget::start(limit.left(), look()))
    }

    /// Ends what [`Connection::start_budget`] began, and tells whether an allocation was refused.
    /// Prepared statements are forgotten when what was left behind has become too much.
    #[inline]
    pub fn end_budget(&self, budget: Option<Budget>) -> bool {
        let (Some(budget), Some(limit)) = (budget, &self.memory) else { return false };
        let kept = limit.kept.get().saturating_add(budget.in_use()).max(0);
        let is_exceeded = budget.is_exceeded();
        if self.overlay.is_some() {
            // Its transaction has a budget for each statement, and what it changes stays in memory.
            limit.taken.set(limit.taken.get().saturating_add(budget.in_use()));
        }
        drop(budget);
        let is_much = kept > limit.kept_bytes;
        if is_much {
            self.prepared.forget_users();
            self.cached.forget();
            limit.must_weigh_schema.set(true);
        }
        limit.kept.set(if is_much { 0 } else { kept });
        is_exceeded
    }

    /// Says why `sql`, which is to be prepared, is refused to untrusted SQL, if it is: for what it
    /// has in itself.
    #[inline]
    pub fn refusal_of_text(&self, sql: &str) -> Option<String> {
        self.memory.as_ref().and_then(|_| untrusted::refusal_of_text(sql, &Views::default()))
    }

    /// Refuses a statement that has added to the schema, when it is too large now: what it takes in
    /// memory, its text, the number of what it defines, or the time to read it, which each
    /// connection has to do in the time of whoever is the first to need it.
    ///
    /// # Errors
    /// `SQLITE_AUTH`; none where there is no limit.
    pub(super) fn check_schema_size(&self) -> Result<()> {
        const SIZES: &str =
            "SELECT coalesce(sum(octet_length(sql)), 0), count(*) FROM main.sqlite_schema";
        let Some(limit) = &self.memory else { return Ok(()) };
        let sizes = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        let ask = || self.raw().query_row(SIZES, [], sizes);
        let (text, objects) = self.signals.as_engine(ask)?;
        let (text, objects) = (text.unsigned_abs(), objects.unsigned_abs());
        let used = self.schema_bytes();
        let text = if used > limit.schema_bytes {
            format!(
                "the schema would take {used} bytes of memory in each connection, and {} are \
                 allowed (a quarter of memory_limit_bytes of monolite::Untrusted); make it smaller",
                limit.schema_bytes
            )
        } else if text > limit.schema_text_bytes {
            format!(
                "the schema would have {text} bytes of SQL text, and {} are allowed (a sixteenth \
                 of memory_limit_bytes of monolite::Untrusted); make it smaller",
                limit.schema_text_bytes
            )
        } else if objects > SCHEMA_OBJECTS {
            format!(
                "the schema would have {objects} tables, indexes, views and triggers, and \
                 {SCHEMA_OBJECTS} are allowed to untrusted SQL; make it smaller"
            )
        } else if let Some(refusal) = self.signals.as_engine(|| definitions::refusal(self.raw()))? {
            refusal
        } else if self.signals.as_engine(|| definitions::index_terms(self.raw()))?
            > untrusted::INDEX_TERMS
        {
            format!(
                "the indexes of the schema would have more than {} expressions and conditions \
                 (`CREATE INDEX … WHERE`) together, with each of which the planner compares those \
                 of a statement, which is refused to untrusted SQL; make indexes of columns",
                untrusted::INDEX_TERMS
            )
        } else if self.signals.as_engine(|| self.takes_long_to_read())? {
            let most = MAX_READ.as_millis();
            format!(
                "each connection would need more than {most} ms to read the schema, which \
                 untrusted SQL may not make so large; use fewer columns, and fewer of them in \
                 indexes and keys"
            )
        } else {
            return Ok(());
        };
        Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_AUTH), Some(text)))
    }

    /// Whether the schema would take longer to read than it may.
    fn takes_long_to_read(&self) -> Result<bool> {
        // A comma for every second byte is more than there can be, and quickly asked.
        const MOST: &str =
            "SELECT count(*), total(octet_length(sql)), total(octet_length(sql) / 2),
                    total(octet_length(sql) * octet_length(sql) / 16)
                    + total(iif(type = 'index', octet_length(sql) / 2, 0))
                      * coalesce(max(iif(type = 'table', octet_length(sql) / 2, 0)), 0)
             FROM main.sqlite_schema";
        const TEXTS: &str = "SELECT type = 'index', tbl_name, sql FROM main.sqlite_schema
                             WHERE sql IS NOT NULL ORDER BY type <> 'table'";
        let most = self.raw().query_row(MOST, [], |row| {
            Ok(time_to_read(row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?;
        if most <= MAX_READ {
            return Ok(false);
        }
        let (mut objects, mut bytes, mut commas, mut pairs) = (0.0, 0.0, 0.0, 0.0);
        let mut of_tables = HashMap::new();
        let mut texts = self.raw().prepare(TEXTS)?;
        let mut rows = texts.query([])?;
        while let Some(row) = rows.next()? {
            let (is_index, table) =
                (row.get::<_, bool>(0)?, row.get_ref(1)?.as_bytes()?.to_owned());
            let text = row.get_ref(2)?.as_bytes()?;
            let own = text.iter().filter(|byte| **byte == b',').count() as f64;
            objects += 1.0;
            bytes += text.len() as f64;
            commas += own;
            pairs += if is_index {
                (own + 1.0) * of_tables.get(&table).copied().unwrap_or(0.0)
            } else {
                // Tables come first; a trigger has the name of its table, too.
                of_tables.entry(table).or_insert(own + 1.0);
                own * own / 4.0
            };
        }
        Ok(time_to_read(objects, bytes, commas, pairs) > MAX_READ)
    }

    /// Gives back what the schema in memory has gained by use. To be called before a transaction
    /// begins.
    pub(super) fn trim_schema(&self) -> Result<()> {
        let Some(limit) = &self.memory else { return Ok(()) };
        if limit.must_weigh_schema.take() && self.schema_bytes() > limit.schema_bytes {
            return self.forget_schema();
        }
        Ok(())
    }

    /// Bytes that the schema takes in memory.
    fn schema_bytes(&self) -> u64 {
        let (mut current, mut highest): (c_int, c_int) = (0, 0);
        // SAFETY: the handle is open for as long as `self`, and both out-pointers are valid.
        let code = unsafe {
            ffi::sqlite3_db_status(
                self.raw().handle(),
                ffi::SQLITE_DBSTATUS_SCHEMA_USED,
                &raw mut current,
                &raw mut highest,
                0,
            )
        };
        if code == ffi::SQLITE_OK { u64::try_from(current).unwrap_or(0) } else { 0 }
    }
}

/// How long it takes to read a schema of so many objects, whose text has so many bytes and commas,
/// each of which may stand before a column, where each column of an index or a key is looked for
/// among those of its table (`pairs`).
///
/// Somewhat more than was measured (SQLite 3.54.1 on x86-64): 0.44 ms for a table of 499 columns,
/// 1.55 ms with all of them in the key of a `WITHOUT ROWID` table, 15 µs for an index of 20.
fn time_to_read(objects: f64, bytes: f64, commas: f64, pairs: f64) -> Duration {
    let nanoseconds = 10_000.0 * objects + 20.0 * bytes + 600.0 * commas + 5.0 * pairs;
    Duration::from_nanos(nanoseconds as u64)
}
