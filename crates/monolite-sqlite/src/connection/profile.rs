//! Owns how a connection gets the profile for untrusted SQL: limits, switches, functions that look
//! at the clock, and the modules that stay.

use std::ffi::{CString, c_int, c_uint};
use std::ptr;
use std::sync::Arc;

use rusqlite::config::DbConfig;
use rusqlite::{Result, ffi};

use crate::look::Look;
use crate::untrusted::{EXPRESSION_LEVELS, Untrusted};
use crate::{functions, like};

/// Limits that are generous for SQL written by hand or by a library, and far below what SQLite
/// allows; see <https://sqlite.org/c3ref/c_limit_attached.html>.
const LIMITS: &[(c_int, c_int)] = &[
    // A thousand rows of a hundred literals.
    (ffi::SQLITE_LIMIT_SQL_LENGTH, 1_000_000),
    (ffi::SQLITE_LIMIT_COLUMN, 500),
    // A chain of 100 ORs has as many levels. It is the limit also of views in views, and the
    // planner takes time with the square of the product, during which nothing looks at the clock.
    (ffi::SQLITE_LIMIT_EXPR_DEPTH, EXPRESSION_LEVELS as c_int),
    (ffi::SQLITE_LIMIT_COMPOUND_SELECT, 100),
    // 6 MB of program.
    (ffi::SQLITE_LIMIT_VDBE_OP, 250_000),
    (ffi::SQLITE_LIMIT_FUNCTION_ARG, 100),
    (ffi::SQLITE_LIMIT_ATTACHED, 0),
    // The time of a match is the product of the lengths of pattern and text, and its depth is the
    // length of the pattern.
    (ffi::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100),
    (ffi::SQLITE_LIMIT_VARIABLE_NUMBER, 32_766),
    (ffi::SQLITE_LIMIT_TRIGGER_DEPTH, 50),
    (ffi::SQLITE_LIMIT_WORKER_THREADS, 0),
];

/// Optimisations of SQLite that are switched off, by its bits (`SQLITE_IndexedExpr`, the same since
/// SQLite 3.41).
///
/// It has each node of each expression compared with each expression and each virtual column of the
/// index that is read, to the last leaf, without asking anybody: 12 s for 3.5 KB.
const SWITCHED_OFF: c_uint = 0x0100_0000;

/// Applies `profile` to a connection that has just been opened and set up. Its functions look at
/// the clock by `look`.
pub(crate) fn apply(
    connection: &rusqlite::Connection,
    profile: &Untrusted,
    look: &Arc<Look>,
) -> Result<()> {
    let value_bytes = c_int::try_from(profile.value_bytes).unwrap_or(c_int::MAX);
    let length = (ffi::SQLITE_LIMIT_LENGTH, value_bytes);
    for (limit, value) in LIMITS.iter().copied().chain([length]) {
        // SAFETY: the handle is open and used by this thread alone.
        unsafe { ffi::sqlite3_limit(connection.handle(), limit, value) };
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
    let switch = ffi::SQLITE_TESTCTRL_OPTIMIZATIONS;
    // SAFETY: the handle is open and used by this thread alone; this control takes a handle and a
    // mask.
    unsafe { ffi::sqlite3_test_control(switch, connection.handle(), SWITCHED_OFF) };
    connection.execute_batch("PRAGMA cell_size_check = ON")?;
    functions::replace_on(connection, look)?;
    like::replace_on(connection, look)?;
    keep_modules(connection, &profile.modules)
}

/// Removes every virtual table module but those in `kept`, for new and for existing tables.
fn keep_modules(connection: &rusqlite::Connection, kept: &[String]) -> Result<()> {
    // A name with a NUL inside is that of no module.
    let names: Vec<CString> =
        kept.iter().filter_map(|name| CString::new(name.as_str()).ok()).collect();
    let mut pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
    pointers.push(ptr::null());
    // SAFETY: the handle is open, and the list of C strings ends with a null pointer and outlives
    // the call.
    let code = unsafe { ffi::sqlite3_drop_modules(connection.handle(), pointers.as_mut_ptr()) };
    if code == ffi::SQLITE_OK {
        return Ok(());
    }
    Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
}

#[test]
fn an_expression_of_an_index_is_not_looked_for_in_a_statement() {
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    connection.execute_batch("CREATE TABLE t(a); CREATE INDEX i ON t(abs(a))").unwrap();
    let calls = || {
        let sql = "EXPLAIN SELECT abs(a) FROM t INDEXED BY i WHERE abs(a) > 1";
        let mut program = connection.prepare(sql).unwrap();
        let names = program.query_map((), |row| row.get::<_, String>(1)).unwrap();
        names.filter(|name| name.as_deref() == Ok("Function")).count()
    };
    assert_eq!(calls(), 0, "it is read from the index");
    let profile = Untrusted { value_bytes: 1_000, memory_bytes: 1 << 20, modules: Vec::new() };
    apply(&connection, &profile, &Look::never()).unwrap();
    assert_ne!(calls(), 0);
}
