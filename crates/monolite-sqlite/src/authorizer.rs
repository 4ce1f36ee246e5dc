//! Owns the authorizer, which judges each statement when it is prepared and says what it is like.
//!
//! # Invariants
//! - Only a statement that is prepared inside of [`Authorizer::as_engine`] passes unseen. The
//!   engine's statements are never found by a text that a user can say (`statements`).

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock};

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

use crate::added::Added;
use crate::depth::Selects;
use crate::drops::Drops;
use crate::flag::Flag;
use crate::locked::locked;
use crate::traits::{Notes, Traits};
use crate::untrusted::QueryRules;
use crate::virtual_tables::VirtualTables;
use crate::{names, rules};

/// Judges the statements of one connection.
#[derive(Default)]
pub struct Authorizer {
    /// What statements were like.
    pub(crate) notes: Notes,
    /// What a query may name, where SQL is not trusted.
    pub(crate) query_rules: Option<QueryRules>,
    /// What the application has added to the connection.
    pub(crate) added: OnceLock<Added>,
    pub(crate) virtual_tables: VirtualTables,
    pub(crate) drops: Drops,
    pub(crate) selects: Selects,
    /// Whether the statement may call the function that numbers rows ([`crate::rowids`]).
    pub(crate) numbering: Flag,
    /// Whether SQLite may have been told to defer foreign keys, see
    /// [`ForeignKeys::end_deferral`](crate::ForeignKeys::end_deferral).
    pub(crate) deferring: Flag,
    engine: Flag,
    /// What the engine's statements read, while it is asked.
    reads: Mutex<Option<Reads>>,
    denial: Mutex<Option<String>>,
}

/// Columns, each with its table, in small letters.
pub(crate) type Reads = BTreeSet<(String, String)>;

impl Authorizer {
    /// That of a connection with rules for queries, if its SQL is not trusted.
    pub(crate) fn new(query_rules: Option<QueryRules>) -> Authorizer {
        Authorizer { query_rules, ..Authorizer::default() }
    }

    /// Lets the engine's own statements pass while `run` runs.
    pub(crate) fn as_engine<T>(&self, run: impl FnOnce() -> T) -> T {
        self.engine.during(run)
    }

    /// What the engine's statements read that `run` prepares, whether they can be or not.
    pub(crate) fn reads_of<T>(&self, run: impl FnOnce() -> T) -> (T, Reads) {
        *locked(&self.reads) = Some(Reads::new());
        let done = self.as_engine(run);
        (done, locked(&self.reads).take().unwrap_or_default())
    }

    /// A statement may use a virtual table, whose module may keep what it likes in memory.
    pub(crate) fn note_virtual_table(&self) {
        self.virtual_tables.mark_used();
        self.notes.add(Traits::VIRTUAL | Traits::BEYOND_PAGES);
    }

    /// Takes the reason of the last refusal.
    pub fn take_denial(&self) -> Option<String> {
        locked(&self.denial).take()
    }

    pub(crate) fn judge(&self, context: &AuthContext<'_>) -> Authorization {
        let action = &context.action;
        if names::is_left_out(action) {
            self.notes.add(Traits::STATISTICS);
            return Authorization::Ignore;
        }
        if self.engine.is_up() {
            if let AuthAction::Read { table_name, column_name } = action
                && let Some(reads) = &mut *locked(&self.reads)
            {
                reads.insert((table_name.to_ascii_lowercase(), column_name.to_ascii_lowercase()));
            }
            return Authorization::Allow;
        }
        if names::is_of_our_trigger(action, context.accessor) {
            return Authorization::Allow;
        }
        let traits = rules::traits(action, context.database_name);
        self.notes.add(traits);
        if traits.has(Traits::SCHEMA) {
            self.virtual_tables.forget();
        }
        if self.virtual_tables.may_be_in(action) {
            self.note_virtual_table();
        }
        self.drops.note(context);
        if let Some(added) = self.added.get() {
            self.notes.add(added.traits(action));
        }
        match self.refusal(action, context.database_name) {
            None => {
                if traits.has(Traits::DEFERS) {
                    self.deferring.set(true);
                }
                Authorization::Allow
            }
            Some(reason) => {
                *locked(&self.denial) = Some(reason);
                Authorization::Deny
            }
        }
    }

    fn refusal(&self, action: &AuthAction<'_>, database: Option<&str>) -> Option<String> {
        let of_migrations = || rules::refusal_in_migration(action);
        let of_queries = |rules: &QueryRules| {
            let of_functions = || self.added.get()?.refusal(action);
            rules.refusal(action).or_else(of_functions)
        };
        self.drops
            .is_migrating()
            .then(of_migrations)
            .flatten()
            .or_else(|| rules::refusal(action, database))
            .or_else(|| names::refusal(action, self.numbering.is_up()))
            .or_else(|| self.selects.refusal(action))
            .or_else(|| self.query_rules.as_ref().and_then(of_queries))
    }
}
