//! Owns how SQL functions of the engine's own are added to a connection.
//!
//! Not through `rusqlite`, which panics when the memory for a text is refused.

use std::ffi::{CStr, c_int, c_void};
use std::{ptr, slice};

use rusqlite::{Result, ffi};

use crate::codes::check;

/// A call under way: its arguments and where its result goes.
pub(crate) struct Call<'c> {
    context: *mut ffi::sqlite3_context,
    arguments: &'c [*mut ffi::sqlite3_value],
}

/// Gives `connection` a function of so many `arguments`, whose text is UTF-8 and which has `flags`
/// besides. It takes the place of one that has its name. The result is NULL until it is set.
pub(crate) fn add<F: Fn(&Call<'_>) + Send + 'static>(
    connection: &rusqlite::Connection,
    name: &CStr,
    arguments: c_int,
    flags: c_int,
    body: F,
) -> Result<()> {
    let flags = ffi::SQLITE_UTF8 | flags;
    let own = Box::into_raw(Box::new(body)).cast();
    // SAFETY: the handle is open and the name is a C string. SQLite calls `release` with `own`
    // once, when the function goes or could not be made.
    check(unsafe {
        ffi::sqlite3_create_function_v2(
            connection.handle(),
            name.as_ptr(),
            arguments,
            flags,
            own,
            Some(call::<F>),
            None,
            None,
            Some(release::<F>),
        )
    })
}

unsafe extern "C" fn release<F>(own: *mut c_void) {
    // SAFETY: `add` made it from a box and gave it away.
    drop(unsafe { Box::from_raw(own.cast::<F>()) });
}

unsafe extern "C" fn call<F: Fn(&Call<'_>)>(
    context: *mut ffi::sqlite3_context,
    count: c_int,
    arguments: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: SQLite called a function that `add` made with its body, and hands over `count` valid
    // values, which live as long as the call.
    unsafe {
        let arguments = slice::from_raw_parts(arguments, usize::try_from(count).unwrap_or(0));
        let body = &*ffi::sqlite3_user_data(context).cast::<F>();
        body(&Call { context, arguments });
    }
}

// SAFETY, for all of these: context and values are those of the running call.
impl Call<'_> {
    pub(crate) fn is_null(&self, number: usize) -> bool {
        // SAFETY: as said above.
        unsafe { ffi::sqlite3_value_type(self.arguments[number]) == ffi::SQLITE_NULL }
    }

    /// The argument as an integer.
    pub(crate) fn integer(&self, number: usize) -> i64 {
        // SAFETY: as said above.
        unsafe { ffi::sqlite3_value_int64(self.arguments[number]) }
    }

    /// The argument as a number; `None` when it is none.
    pub(crate) fn real(&self, number: usize) -> Option<f64> {
        let is_number = matches!(self.kind(number), ffi::SQLITE_INTEGER | ffi::SQLITE_FLOAT);
        // SAFETY: as said above.
        is_number.then(|| unsafe { ffi::sqlite3_value_double(self.arguments[number]) })
    }

    /// Whether the argument is an integer, or a text of one.
    pub(crate) fn is_integer(&self, number: usize) -> bool {
        self.kind(number) == ffi::SQLITE_INTEGER
    }

    fn kind(&self, number: usize) -> c_int {
        // SAFETY: as said above.
        unsafe { ffi::sqlite3_value_numeric_type(self.arguments[number]) }
    }

    pub(crate) fn return_real(&self, number: f64) {
        // SAFETY: as said above.
        unsafe { ffi::sqlite3_result_double(self.context, number) };
    }

    pub(crate) fn return_integer(&self, number: i64) {
        // SAFETY: as said above.
        unsafe { ffi::sqlite3_result_int64(self.context, number) };
    }

    pub(crate) fn return_argument(&self, number: usize) {
        // SAFETY: as said above.
        unsafe { ffi::sqlite3_result_value(self.context, self.arguments[number]) };
    }

    /// Returns a blob of so many bytes that `fill` writes, or that it would be too long.
    pub(crate) fn return_blob(&self, length: u64, fill: impl FnOnce(&mut [u8])) {
        // SAFETY: as said above; the memory is SQLite's own, and handed over with the function that
        // frees it.
        unsafe {
            let database = ffi::sqlite3_context_db_handle(self.context);
            let longest = ffi::sqlite3_limit(database, ffi::SQLITE_LIMIT_LENGTH, -1);
            if length > u64::from(longest.unsigned_abs()) {
                return ffi::sqlite3_result_error_toobig(self.context);
            }
            let memory = ffi::sqlite3_malloc64(length).cast::<u8>();
            if memory.is_null() {
                return ffi::sqlite3_result_error_nomem(self.context);
            }
            // Written once before it is looked at as bytes.
            ptr::write_bytes(memory, 0, length as usize);
            fill(slice::from_raw_parts_mut(memory, length as usize));
            let free: unsafe extern "C" fn(*mut c_void) = ffi::sqlite3_free;
            ffi::sqlite3_result_blob64(self.context, memory.cast(), length, Some(free));
        }
    }
}
