//! Owns the table without rows: by a `DELETE` from it SQLite sets its figure of `changes()` to 0.
//!
//! SQLite has no call for that. A table of a user can have triggers and foreign keys. SQLite plans
//! them although none runs, and prepares every statement again when they are switched off. So this
//! is the table of a module: it is in no schema, can have neither, and the authorizer refuses its
//! name to users (`names`).
//!
//! # Invariants
//! - No cursor is opened, as the condition comes before it: the methods of cursors are missing.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use rusqlite::{Result, ffi};

use crate::codes::check;

const NAME: &CStr = c"monolite_no_rows";

/// What does nothing else than to change no rows.
pub(crate) const CHANGE: &str = "DELETE FROM main.monolite_no_rows WHERE 0";

static MODULE: ffi::sqlite3_module = ffi::sqlite3_module {
    iVersion: 1,
    // Without `xCreate` it is no module of `CREATE VIRTUAL TABLE`.
    xConnect: Some(connect),
    xBestIndex: Some(plan),
    xDisconnect: Some(disconnect),
    xOpen: Some(open),
    xUpdate: Some(update),
    // SAFETY: numbers and functions that are not there; other versions of SQLite have more.
    ..unsafe { MaybeUninit::zeroed().assume_init() }
};

/// Adds the table to a connection.
///
/// # Errors
/// Those of SQLite.
pub(crate) fn add_to(connection: &rusqlite::Connection) -> Result<()> {
    // SAFETY: the handle is open and used by this thread alone, the name is a C string, and the
    // module lives for ever.
    check(unsafe {
        let module = &raw const MODULE;
        ffi::sqlite3_create_module_v2(
            connection.handle(),
            NAME.as_ptr(),
            module,
            ptr::null_mut(),
            None,
        )
    })
}

unsafe extern "C" fn connect(
    db: *mut ffi::sqlite3,
    _: *mut c_void,
    _: c_int,
    _: *const *const c_char,
    table: *mut *mut ffi::sqlite3_vtab,
    _: *mut *mut c_char,
) -> c_int {
    // SAFETY: SQLite calls this with its handle, and with a place for the table, which it fills in.
    unsafe {
        let code = ffi::sqlite3_declare_vtab(db, c"CREATE TABLE no_rows(x)".as_ptr());
        if code == ffi::SQLITE_OK {
            *table = Box::into_raw(Box::new(MaybeUninit::zeroed().assume_init()));
        }
        code
    }
}

unsafe extern "C" fn disconnect(table: *mut ffi::sqlite3_vtab) -> c_int {
    // SAFETY: `connect` made it from a box and gave it away.
    drop(unsafe { Box::from_raw(table) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn plan(_: *mut ffi::sqlite3_vtab, _: *mut ffi::sqlite3_index_info) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vtab,
    _: *mut *mut ffi::sqlite3_vtab_cursor,
) -> c_int {
    ffi::SQLITE_MISUSE
}

unsafe extern "C" fn update(
    _: *mut ffi::sqlite3_vtab,
    _: c_int,
    _: *mut *mut ffi::sqlite3_value,
    _: *mut ffi::sqlite3_int64,
) -> c_int {
    ffi::SQLITE_READONLY
}

#[test]
fn a_change_of_no_rows_sets_the_figure_and_has_no_statement_prepared_again() {
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    add_to(&connection).unwrap();
    connection.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (1), (2)").unwrap();
    let mut kept = connection.prepare("SELECT count(*) FROM t").unwrap();
    let mut count = || {
        let rows = kept.query_row([], |row| row.get::<_, i64>(0)).unwrap();
        (rows, kept.get_status(rusqlite::StatementStatus::RePrepare))
    };
    assert_eq!((count(), connection.changes()), ((2, 0), 2));
    connection.execute(CHANGE, []).unwrap();
    assert_eq!((count(), connection.changes(), connection.total_changes()), ((2, 0), 0, 2));
    for other in [
        "SELECT * FROM monolite_no_rows",
        "INSERT INTO monolite_no_rows VALUES (1)",
        "CREATE VIRTUAL TABLE v USING monolite_no_rows",
        "CREATE TRIGGER g AFTER DELETE ON monolite_no_rows BEGIN SELECT 1; END",
    ] {
        let ran = connection.prepare(other).and_then(|mut it| it.query([])?.next().map(drop));
        assert!(ran.is_err(), "{other}");
    }
}
