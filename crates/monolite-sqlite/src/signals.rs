//! Owns the flags through which a connection's hooks and the engine talk to each other, and the
//! authorizer, which judges each statement when it is prepared and says what it is like.
//!
//! # Invariants
//! - Only a statement that is prepared inside of [`Signals::as_engine`] passes the authorizer
//!   unseen. The engine's statements are never found by a text that a user can say (`statements`).
//! - The switches of `as_engine` and `allowing_commit` go back when their body panics, too.

use std::ops::{BitOr, BitOrAssign};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

use crate::added::Added;
use crate::untrusted::QueryRules;
use crate::verb::Verb;
use crate::virtual_tables::VirtualTables;
use crate::{depth, names, rules};

/// What the authorizer tells of a statement: a set of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits(u16);

impl Traits {
    /// Its results depend on more than pages, or it changes the schema, see
    /// [`Connection::take_pages`](crate::Connection::take_pages).
    pub(crate) const BEYOND_PAGES: Traits = Traits(1);
    /// It changes the schema.
    pub(crate) const SCHEMA: Traits = Traits(2);
    /// It changes the statistics by which SQLite plans.
    pub(crate) const STATISTICS: Traits = Traits(4);
    /// It reports on the connection or the file rather than on the data.
    const REPORT: Traits = Traits(8);
    /// It may change the database although SQLite calls it one that only reads.
    const MAY_CHANGE: Traits = Traits(16);
    /// It is `CREATE`, `DROP`, `ALTER`, `ANALYZE` or `REINDEX`.
    pub(crate) const DEFINES: Traits = Traits(32);
    /// It calls `changes()`, or a trigger that it fires does.
    pub(crate) const ASKS_CHANGES: Traits = Traits(64);
    /// Its first word says that it changes rows.
    const CHANGES_ROWS: Traits = Traits(256);
    /// It calls a function of the application that may give something else when it is run again.
    const VOLATILE: Traits = Traits(2_048);
    /// It defers foreign keys: the statements behind it answer otherwise.
    pub(crate) const DEFERS: Traits = Traits(1_024);
    /// It may use a virtual table.
    pub(crate) const VIRTUAL: Traits = Traits(4_096);
    /// What has to be made good before the next statement is prepared.
    pub(crate) const UNSETTLED: Traits = Traits(Traits::SCHEMA.0 | Traits::STATISTICS.0);

    /// These, which the authorizer told while a statement was prepared or run, without those that
    /// are not its own: virtual tables prepare statements meanwhile, pragmas, too. None of those
    /// defers foreign keys, which an explained pragma does.
    pub(crate) fn of_statement(self, verb: Verb) -> Traits {
        let of_pragmas = Traits::REPORT | Traits::MAY_CHANGE | Traits::DEFERS;
        match verb {
            Verb::Pragma => self,
            Verb::Define => Traits(self.0 & !of_pragmas.0) | Traits::DEFINES,
            Verb::Change => Traits(self.0 & !of_pragmas.0) | Traits::CHANGES_ROWS,
            Verb::Other => Traits(self.0 & !of_pragmas.0 | self.0 & Traits::DEFERS.0),
        }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it has any of `traits`.
    #[inline]
    pub(crate) fn has(self, traits: Traits) -> bool {
        self.0 & traits.0 != 0
    }

    /// Whether the statement is a pragma that reports on the connection or the file: it says
    /// nothing about the data, and answers otherwise on another connection.
    pub fn is_report(self) -> bool {
        self.has(Traits::REPORT)
    }

    /// Whether the statement may change the database although SQLite calls it one that only reads
    /// (`PRAGMA optimize`, which runs `ANALYZE` when it finds that necessary).
    pub fn may_change(self) -> bool {
        self.has(Traits::MAY_CHANGE)
    }

    /// Whether the statement defers foreign keys, and so has those behind it answer otherwise.
    pub fn defers_foreign_keys(self) -> bool {
        self.has(Traits::DEFERS)
    }

    /// Whether the statement, or a trigger that it fires, calls `changes()`.
    pub(crate) fn asks_changes(self) -> bool {
        self.has(Traits::ASKS_CHANGES)
    }

    /// Whether the statement calls a function of the application that may give something else when
    /// it is run again.
    pub fn is_volatile(self) -> bool {
        self.has(Traits::VOLATILE)
    }

    /// Whether the statement changes something else than rows, and so has no number of them: SQLite
    /// gives that of the statement before, or of what a virtual table did meanwhile.
    pub fn counts_no_rows(self) -> bool {
        self.has(Traits::DEFINES | Traits::MAY_CHANGE)
    }

    /// Whether it is one for which SQLite gives the number of rows that it has changed, even if
    /// there are none: what `INSERT`, `REPLACE`, `UPDATE` and `DELETE` are compiled to sets it
    /// (`sqlite3VdbeCountChanges`), whatever they change, and nothing else does.
    #[inline]
    pub fn counts_rows(self) -> bool {
        self.has(Traits::CHANGES_ROWS)
    }

    fn of(action: &AuthAction<'_>, database: Option<&str>) -> Traits {
        let mut traits = Traits::default();
        let mut add = |applies: bool, one: Traits| {
            if applies {
                traits |= one;
            }
        };
        add(rules::beyond_pages(action, database), Traits::BEYOND_PAGES);
        add(rules::changes_schema(action), Traits::SCHEMA);
        add(rules::changes_statistics(action), Traits::STATISTICS);
        add(rules::is_report(action), Traits::REPORT);
        add(rules::may_change(action), Traits::MAY_CHANGE);
        add(rules::asks_changes(action), Traits::ASKS_CHANGES);
        add(rules::defers_foreign_keys(action), Traits::DEFERS);
        traits
    }
}

impl BitOr for Traits {
    type Output = Traits;

    fn bitor(self, other: Traits) -> Traits {
        Traits(self.0 | other.0)
    }
}

impl BitOrAssign for Traits {
    fn bitor_assign(&mut self, other: Traits) {
        *self = *self | other;
    }
}

/// Flags through which a connection's hooks and the engine talk to each other.
#[derive(Default)]
pub struct Signals {
    /// What a query may name, where SQL is not trusted.
    query_rules: Option<QueryRules>,
    engine_statement: AtomicBool,
    may_commit: AtomicBool,
    /// Whether the statement is one in its second form ([`crate::rowids`]).
    is_numbering: AtomicBool,
    interrupted: AtomicBool,
    revoked: AtomicBool,
    /// Who rests in the middle of a statement, to be told of a revocation.
    resting: Mutex<Option<Waker>>,
    traits: AtomicU16,
    /// `SELECT`s of the statement that is being prepared.
    selects: AtomicU32,
    /// How many of them it may have, see [`crate::depth`]; 0 while they are not counted.
    most_counted: AtomicU32,
    /// Whether SQLite may have been told to defer foreign keys, see
    /// [`Connection::end_deferral`](crate::Connection::end_deferral).
    is_deferring: AtomicBool,
    denial: Mutex<Option<String>>,
    /// Whether the statements are those of a migration.
    is_migrating: AtomicBool,
    /// Whether the transaction has asked for foreign keys to be off, and was refused it.
    wants_no_keys: AtomicBool,
    /// The table that the statement drops which was prepared last.
    dropped: Mutex<Option<String>>,
    /// What the application has added to the connection.
    added: OnceLock<Added>,
    /// Whether a collation of the application panicked.
    panicked: AtomicBool,
    virtual_tables: VirtualTables,
}

impl Signals {
    /// Those of a connection with rules for queries, if its SQL is not trusted.
    pub(crate) fn new(query_rules: Option<QueryRules>) -> Signals {
        Signals { query_rules, ..Signals::default() }
    }

    /// What a query may name, where SQL is not trusted.
    pub(crate) fn query_rules(&self) -> Option<&QueryRules> {
        self.query_rules.as_ref()
    }

    /// Whether a statement was interrupted by [`Settings::overdue`](crate::Settings::overdue)
    /// since the last call.
    #[inline]
    pub fn take_interrupted(&self) -> bool {
        // No swap, see `Signals::take`.
        let was_interrupted = self.interrupted.load(Ordering::Relaxed);
        if was_interrupted {
            self.interrupted.store(false, Ordering::Relaxed);
        }
        was_interrupted
    }

    pub(crate) fn mark_interrupted(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
    }

    /// Takes note of what the application has added.
    pub(crate) fn know_added(&self, added: Added) {
        // A connection is set up once.
        let _ = self.added.set(added);
    }

    pub(crate) fn mark_panicked(&self) {
        self.panicked.store(true, Ordering::Relaxed);
    }

    /// Whether a collation of the application panicked since the last call: what was compared by it
    /// is in no order, and must not be kept.
    #[inline]
    pub fn take_panicked(&self) -> bool {
        // No swap, see `Signals::take`.
        let has_panicked = self.panicked.load(Ordering::Relaxed);
        if has_panicked {
            self.panicked.store(false, Ordering::Relaxed);
        }
        has_panicked
    }

    /// Whether a collation of the application panicked since [`Signals::take_panicked`].
    pub fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Relaxed)
    }

    /// The virtual tables that statements can use.
    pub(crate) fn virtual_tables(&self) -> &VirtualTables {
        &self.virtual_tables
    }

    /// A statement may use a virtual table, whose module may keep what it likes in memory.
    pub(crate) fn note_virtual_table(&self) {
        self.virtual_tables.mark_used();
        self.add(Traits::VIRTUAL | Traits::BEYOND_PAGES);
    }

    fn add_those_of_virtual_tables(&self, action: &AuthAction<'_>) {
        if rules::changes_schema(action) {
            self.virtual_tables.forget();
        }
        if self.virtual_tables.may_be_in(action) {
            self.note_virtual_table();
        }
    }

    fn add_those_of_additions(&self, added: &Added, action: &AuthAction<'_>) {
        if added.is_used_by(action) {
            self.add(Traits::BEYOND_PAGES);
        }
        if added.is_volatile(action) {
            self.add(Traits::VOLATILE);
        }
    }

    /// Whether the connection's snapshot was revoked, see [`Revoker`](crate::Revoker).
    #[inline]
    pub fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    pub(crate) fn mark_revoked(&self) {
        self.revoked.store(true, Ordering::Release);
        // After the mark: who wakes looks at it. Without the lock: waking runs code of others.
        let resting = self.resting().take();
        resting.into_iter().for_each(Waker::wake);
    }

    /// Has `waker` woken when the snapshot is revoked; `None` ends that. The caller asks
    /// [`Signals::is_revoked`] after this, as the revocation may have come before.
    pub fn wake_when_revoked(&self, waker: Option<Waker>) {
        *self.resting() = waker;
    }

    fn resting(&self) -> MutexGuard<'_, Option<Waker>> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets also that a statement was interrupted: the same one may have been ended twice, and
    /// who was told of the one end has not asked for the other.
    pub(crate) fn forget_revocation(&self) {
        self.interrupted.store(false, Ordering::Relaxed);
        self.revoked.store(false, Ordering::Release);
    }

    /// Whether SQLite may have been told to defer foreign keys, which is asked once for each time.
    #[inline]
    pub(crate) fn take_deferring(&self) -> bool {
        // No swap, see `Signals::take`.
        let is_deferring = self.is_deferring.load(Ordering::Relaxed);
        if is_deferring {
            self.is_deferring.store(false, Ordering::Relaxed);
        }
        is_deferring
    }

    pub(crate) fn mark_deferring(&self) {
        self.is_deferring.store(true, Ordering::Relaxed);
    }

    fn denial(&self) -> MutexGuard<'_, Option<String>> {
        self.denial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the statements that are prepared are those of a migration.
    pub(crate) fn is_migrating(&self) -> bool {
        self.is_migrating.load(Ordering::Relaxed)
    }

    /// Whether the statement that is prepared may number rows ([`Signals::numbering`]).
    pub(crate) fn is_numbering(&self) -> bool {
        self.is_numbering.load(Ordering::Relaxed)
    }

    /// The statements that are prepared are those of a migration until the switch is dropped.
    pub(crate) fn migrating(&self) -> Switch<'_> {
        Switch::turn_on(&self.is_migrating)
    }

    /// Takes the name of the table that the statement drops which was prepared last.
    pub(crate) fn take_dropped(&self) -> Option<String> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether the transaction has asked for foreign keys to be off, and was refused it.
    pub(crate) fn wants_no_keys(&self) -> bool {
        self.wants_no_keys.load(Ordering::Relaxed)
    }

    /// A transaction begins, which has not asked for anything.
    #[inline]
    pub(crate) fn forget_wishes(&self) {
        self.wants_no_keys.store(false, Ordering::Relaxed);
    }

    fn note_keys_and_drops(&self, action: &AuthAction<'_>) {
        if let AuthAction::DropTable { table_name } = action {
            let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
            *dropped = Some((*table_name).to_owned());
        } else if let Some(is_on) = rules::sets_foreign_keys(action) {
            self.wants_no_keys.store(!is_on, Ordering::Relaxed);
        }
    }

    /// Takes the reason of the authorizer's last refusal.
    pub fn take_denial(&self) -> Option<String> {
        self.denial().take()
    }

    /// Takes those of `which` that statements had since this was last asked.
    #[inline]
    pub(crate) fn take(&self, which: Traits) -> Traits {
        // Not a swap, which costs ten times as much: the connection's user alone is here.
        let all = self.traits.load(Ordering::Relaxed);
        if all & which.0 != 0 {
            self.traits.store(all & !which.0, Ordering::Relaxed);
        }
        Traits(all & which.0)
    }

    /// Those of `which` that statements had since they were last taken.
    #[inline]
    pub(crate) fn seen(&self, which: Traits) -> Traits {
        Traits(self.traits.load(Ordering::Relaxed) & which.0)
    }

    /// Takes all traits, for those of one statement to be told apart.
    #[inline]
    pub(crate) fn take_all(&self) -> Traits {
        self.take(Traits(u16::MAX))
    }

    /// Notes that a statement came to nothing. One that changes the schema leaves other estimates
    /// of the rows of a table in memory when it is prepared.
    #[inline]
    pub(crate) fn note_failure(&self) {
        if !self.seen(Traits::SCHEMA).is_empty() {
            self.add(Traits::STATISTICS);
        }
    }

    #[inline]
    pub(crate) fn add(&self, traits: Traits) {
        let all = self.traits.load(Ordering::Relaxed);
        self.traits.store(all | traits.0, Ordering::Relaxed);
    }

    /// Has `prepare` prepare a statement that may have `most` `SELECT`s, and says whether it was
    /// refused for having more. Of what SQLite prepares by itself, for a virtual table or again,
    /// none are counted.
    pub(crate) fn counting<R>(&self, most: u32, prepare: impl FnOnce() -> R) -> (R, bool) {
        self.selects.store(0, Ordering::Relaxed);
        self.most_counted.store(most, Ordering::Relaxed);
        let prepared = prepare();
        self.most_counted.store(0, Ordering::Relaxed);
        (prepared, self.selects.load(Ordering::Relaxed) > most)
    }

    /// Counts the `SELECT`s of a statement, and says so when there are too many.
    fn count_selects(&self, action: &AuthAction<'_>) -> Option<String> {
        let most = self.most_counted.load(Ordering::Relaxed);
        if most == 0 || !matches!(action, AuthAction::Select) {
            return None;
        }
        let counted = self.selects.load(Ordering::Relaxed).saturating_add(1);
        self.selects.store(counted, Ordering::Relaxed);
        (counted > most).then(|| depth::refusal(most))
    }

    /// Lets the engine's own statements pass the authorizer while `run` runs.
    pub(crate) fn as_engine<T>(&self, run: impl FnOnce() -> T) -> T {
        let _switch = Switch::turn_on(&self.engine_statement);
        run()
    }

    /// Lets the statement that is prepared or runs in `run` call the function that numbers rows.
    pub(crate) fn numbering<T>(&self, run: impl FnOnce() -> T) -> T {
        let _switch = Switch::turn_on(&self.is_numbering);
        run()
    }

    /// Lets the commit hook pass a commit while `run` runs.
    pub(crate) fn allowing_commit<T>(&self, run: impl FnOnce() -> T) -> T {
        let _switch = Switch::turn_on(&self.may_commit);
        run()
    }

    pub(crate) fn may_commit(&self) -> bool {
        self.may_commit.load(Ordering::Relaxed)
    }

    pub(crate) fn authorize(&self, context: &AuthContext<'_>) -> Authorization {
        if names::is_left_out(&context.action) {
            self.add(Traits::STATISTICS);
            return Authorization::Ignore;
        }
        if self.engine_statement.load(Ordering::Relaxed) {
            return Authorization::Allow;
        }
        self.add(Traits::of(&context.action, context.database_name));
        self.add_those_of_virtual_tables(&context.action);
        self.note_keys_and_drops(&context.action);
        let added = self.added.get();
        if let Some(added) = added {
            self.add_those_of_additions(added, &context.action);
        }
        let general = || {
            let migration = self.is_migrating().then_some(&context.action);
            let rule = migration.and_then(rules::refusal_in_migration);
            let rule = rule.or_else(|| rules::refusal(&context.action, context.database_name));
            let numbers = self.is_numbering();
            let rule = rule.or_else(|| names::refusal(&context.action, numbers));
            rule.or_else(|| self.count_selects(&context.action))
        };
        let of_queries = || {
            let refused = self.query_rules()?.refusal(&context.action);
            refused.or_else(|| added?.refusal(&context.action))
        };
        match general().or_else(of_queries) {
            None => {
                if rules::defers_foreign_keys(&context.action) {
                    self.mark_deferring();
                }
                Authorization::Allow
            }
            Some(reason) => {
                *self.denial() = Some(reason);
                Authorization::Deny
            }
        }
    }
}

/// A flag that is as it was put until this is dropped.
pub(crate) struct Switch<'s> {
    flag: &'s AtomicBool,
    before: bool,
}

impl Switch<'_> {
    fn turn_on(flag: &AtomicBool) -> Switch<'_> {
        // No swap, see `Signals::take`.
        let before = flag.load(Ordering::Relaxed);
        flag.store(true, Ordering::Relaxed);
        Switch { flag, before }
    }
}

impl Drop for Switch<'_> {
    fn drop(&mut self) {
        self.flag.store(self.before, Ordering::Relaxed);
    }
}
