//! Owns what a query from an untrusted source may do: a connection for [`Role::Untrusted`] asks
//! [`QueryRules`] about each action of a statement, beyond the rules of every transaction
//! ([`crate::rules`]), and has lower limits ([`apply`]).
//!
//! # Invariants
//! - The list of actions is one of what is allowed: an action that SQLite adds one day is refused.
//! - Virtual table modules are removed from the connection, those of the application too.
//!   `json_each`, `json_tree` and the pragmas that describe the schema stay.
//!
//! # Not here
//! Memory: [`crate::memory`]. Time: the progress handler of [`crate::Connection`]. SQLite calls it
//! while a statement runs and not while one is planned.
//!
//! [`Role::Untrusted`]: crate::Role::Untrusted

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::Mutex;

use rusqlite::config::DbConfig;
use rusqlite::hooks::AuthAction;
use rusqlite::{Result, ffi};

use crate::codes::check;
use crate::locked::locked;
use crate::names::begins;
use crate::rules::is_one_of;
use crate::verb::may_join_by_names;

/// The most instructions that a query may be compiled to. SQLite reports more of them as
/// `SQLITE_NOMEM`.
pub const QUERY_INSTRUCTIONS: i32 = 100_000;

/// Limits that are generous for a query written by hand or by a library; see
/// <https://sqlite.org/c3ref/c_limit_attached.html>.
const LIMITS: &[(c_int, c_int)] = &[
    (ffi::SQLITE_LIMIT_SQL_LENGTH, 64 << 10),
    (ffi::SQLITE_LIMIT_COLUMN, 500),
    (ffi::SQLITE_LIMIT_EXPR_DEPTH, 50),
    (ffi::SQLITE_LIMIT_COMPOUND_SELECT, 50),
    (ffi::SQLITE_LIMIT_VDBE_OP, QUERY_INSTRUCTIONS),
    (ffi::SQLITE_LIMIT_FUNCTION_ARG, 100),
    (ffi::SQLITE_LIMIT_ATTACHED, 0),
    (ffi::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100),
    (ffi::SQLITE_LIMIT_VARIABLE_NUMBER, 1_000),
    (ffi::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
    (ffi::SQLITE_LIMIT_WORKER_THREADS, 0),
];

/// Pragmas that describe the schema, each also a table `pragma_…` that can be selected from.
const PRAGMAS: &[&str] = &[
    "foreign_key_list",
    "index_info",
    "index_list",
    "index_xinfo",
    "table_info",
    "table_list",
    "table_xinfo",
];

const PRAGMA_TABLE: &str = "pragma_";

/// Functions of SQLite that act on more than their arguments, and those of modules that were
/// removed, by how their names begin. `randomblob` fills its result under the lock of the whole
/// process's random numbers, for which other calls would wait.
const FUNCTIONS: &[&str] = &[
    "bm25",
    "fts",
    "geopoly",
    "highlight",
    "load_extension",
    "match",
    "offsets",
    "optimize",
    "randomblob",
    "rtree",
    "snippet",
    "sqlite_log",
];

/// Tables that show the file or the library underneath, where they are compiled in.
const INTERNAL: &[&str] =
    &["bytecode", "dbstat", "sqlite_db", "sqlite_mem", "sqlite_stmt", "tables_used"];

/// The schema, under each of its names.
const SCHEMA: &[&str] =
    &["sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_temp_schema"];

/// Tables that are functions, of which the application may have no say.
const JSON: &[&str] = &["json_each", "json_tree", "jsonb_each", "jsonb_tree"];

/// What the query that runs on a connection may name.
#[derive(Debug, Default)]
pub(crate) struct QueryRules {
    /// The tables that it may read; all of the application's when `None`.
    tables: Mutex<Option<Vec<String>>>,
}

impl QueryRules {
    /// Sets the tables that the next query may read.
    pub(crate) fn set_tables(&self, tables: Option<Vec<String>>) {
        *locked(&self.tables) = tables;
    }

    /// Says why `action`, which the general rules allow, is refused.
    pub(crate) fn refusal(&self, action: &AuthAction<'_>) -> Option<String> {
        match action {
            AuthAction::Select | AuthAction::Recursive => None,
            AuthAction::Read { table_name, .. } => self.refusal_of_table(table_name),
            AuthAction::Function { function_name } => {
                let is_refused = FUNCTIONS.iter().any(|known| begins(function_name, known));
                is_refused.then(|| format!("{function_name}() is refused to untrusted SQL"))
            }
            AuthAction::Pragma { pragma_name, .. } => self.refusal_of_pragma(pragma_name),
            _ => Some("untrusted SQL may only query: use SELECT or VALUES".into()),
        }
    }

    /// Says why `sql` is refused before it is prepared, with the definitions of the views that it
    /// may read if `views` finds them. SQLite does not ask about the columns of `USING` and
    /// `NATURAL`, which would let a query compare with a table that it may not read.
    ///
    /// # Errors
    /// Those of `views`.
    pub(crate) fn refusal_of_text(
        &self,
        sql: &str,
        views: impl FnOnce() -> Result<Vec<(String, String)>>,
    ) -> Result<Option<String>> {
        if sql.contains('\0') {
            return Ok(Some("the text has a NUL byte, where SQLite stops reading".into()));
        }
        // They do not hold for our own look at the views.
        let Some(tables) = locked(&self.tables).take() else { return Ok(None) };
        let views = views();
        self.set_tables(Some(tables.clone()));
        let views = views?;
        let is_allowed = |name: &str| tables.iter().any(|known| known.eq_ignore_ascii_case(name));
        let what = if may_join_by_names(sql) {
            Some("the query".to_owned())
        } else {
            let mut views = views.into_iter();
            let found = views.find(|(name, text)| is_allowed(name) && may_join_by_names(text));
            found.map(|(name, _)| format!("the view {name}"))
        };
        Ok(what.map(|what| {
            format!(
                "{what} uses USING or NATURAL, which is refused to a query that may read some \
                 tables only: join with ON"
            )
        }))
    }

    fn refusal_of_table(&self, table: &str) -> Option<String> {
        if INTERNAL.iter().any(|known| begins(table, known)) {
            return Some(format!(
                "{table} is refused to untrusted SQL: it shows the file or SQLite"
            ));
        }
        if begins(table, PRAGMA_TABLE) {
            return self.refusal_of_pragma(&table[PRAGMA_TABLE.len()..]);
        }
        if is_one_of(JSON, table) {
            return None;
        }
        let tables = locked(&self.tables);
        let allowed = tables.as_ref()?;
        let is_allowed = allowed.iter().any(|known| known.eq_ignore_ascii_case(table));
        // The schema describes the other tables.
        (!is_allowed || is_one_of(SCHEMA, table)).then(|| {
            let list = allowed.join(", ");
            format!("the table {table} is refused to this query, which may read: {list}")
        })
    }

    fn refusal_of_pragma(&self, pragma: &str) -> Option<String> {
        if !is_one_of(PRAGMAS, pragma) {
            let list = PRAGMAS.join(", ");
            return Some(format!(
                "PRAGMA {pragma} is refused to untrusted SQL, which may use {list}"
            ));
        }
        locked(&self.tables).is_some().then(|| {
            format!("PRAGMA {pragma} is refused to a query that may read some tables only")
        })
    }
}

/// Gives a connection that was just opened and set up the limits of untrusted SQL.
///
/// # Errors
/// Those of SQLite.
pub(crate) fn apply(connection: &rusqlite::Connection) -> Result<()> {
    for &(limit, value) in LIMITS {
        set_limit(connection, limit, value);
    }
    for switch in [
        DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA,
        DbConfig::SQLITE_DBCONFIG_DQS_DML,
        DbConfig::SQLITE_DBCONFIG_DQS_DDL,
        DbConfig::SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER,
        DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA,
    ] {
        connection.set_db_config(switch, false)?;
    }
    connection.execute_batch("PRAGMA cell_size_check = ON")?;
    remove_modules(connection)
}

/// Sets the longest value and row, in bytes.
pub(crate) fn limit_values(connection: &rusqlite::Connection, bytes: u64) {
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    set_limit(connection, ffi::SQLITE_LIMIT_LENGTH, bytes);
}

pub(crate) fn set_limit(connection: &rusqlite::Connection, limit: c_int, value: c_int) {
    // SAFETY: the handle is open and used by this thread alone.
    unsafe { ffi::sqlite3_limit(connection.handle(), limit, value) };
}

fn remove_modules(connection: &rusqlite::Connection) -> Result<()> {
    let mut kept: [*const c_char; 1] = [ptr::null()];
    // SAFETY: the handle is open and used by this thread alone; the list ends with a null pointer
    // and outlives the call.
    check(unsafe { ffi::sqlite3_drop_modules(connection.handle(), kept.as_mut_ptr()) })
}
