//! Owns replacements for SQL functions whose time is the product of the lengths of two arguments:
//! inside of one call of SQLite's nothing can interrupt them.
//!
//! # Algorithm
//! The results are those of SQLite's own functions, byte for byte, for a second argument of up to
//! [`MAX_PATTERN_BYTES`] bytes; a longer one is an error. `unhex` with two arguments is refused.
//! Each call counts its work, and is interrupted when the statement has to end ([`Look`]).
//!
//! `LIKE` and `GLOB`: [`crate::like`]. `json_patch` is refused by [`crate::untrusted`].

use std::ffi::{CStr, c_char, c_int, c_void};
use std::slice;
use std::sync::Arc;

use hashbrown::HashMap;
use rusqlite::{Result, ffi};

use crate::look::Look;

/// Longest text to look for, or set of characters to trim, in bytes. With a value of 1 MiB the
/// worst case is 10^9 bytes compared, tenths of a second.
const MAX_PATTERN_BYTES: usize = 1_000;

/// Bytes that are compared in about a nanosecond.
const COMPARED: usize = 16;

/// Places that are tried between two countings of the work.
const PIECE: usize = 1_024;

/// What came of looking for a pattern.
enum Search {
    At(usize),
    Nowhere,
    /// The statement has to end.
    Late,
}

type Callback =
    unsafe extern "C" fn(*mut ffi::sqlite3_context, c_int, *mut *mut ffi::sqlite3_value);

const REPLACED: &[(&CStr, c_int, Callback)] = &[
    (c"instr", 2, instr),
    (c"replace", 3, replace),
    (c"trim", 2, trim),
    (c"ltrim", 2, trim_start),
    (c"rtrim", 2, trim_end),
    (c"unhex", 2, unhex),
];

/// Puts the replacements in place of SQLite's functions on this connection.
pub(crate) fn replace_on(connection: &rusqlite::Connection, look: &Arc<Look>) -> Result<()> {
    let flags = ffi::SQLITE_UTF8 | ffi::SQLITE_DETERMINISTIC | ffi::SQLITE_INNOCUOUS;
    for (name, arguments, callback) in REPLACED {
        // SAFETY: the handle is open, the name is a C string, and SQLite owns a share of the look,
        // which it hands to `forget` when the function is not needed any more, also when this call
        // fails.
        let code = unsafe {
            ffi::sqlite3_create_function_v2(
                connection.handle(),
                name.as_ptr(),
                *arguments,
                flags,
                Arc::into_raw(Arc::clone(look)).cast_mut().cast(),
                Some(*callback),
                None,
                None,
                Some(forget),
            )
        };
        if code != ffi::SQLITE_OK {
            return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        }
    }
    Ok(())
}

unsafe extern "C" fn forget(look: *mut c_void) {
    // SAFETY: the pointer came from `Arc::into_raw`, and SQLite hands it back once.
    drop(unsafe { Arc::from_raw(look.cast::<Look>()) });
}

/// The call under way: its arguments and where its result goes.
pub(crate) struct Call<'c> {
    context: *mut ffi::sqlite3_context,
    arguments: &'c [*mut ffi::sqlite3_value],
}

/// A value's text that is freed with it.
struct Copy(*mut ffi::sqlite3_value);

impl Drop for Copy {
    fn drop(&mut self) {
        // SAFETY: the value came from sqlite3_value_dup, and is freed once.
        unsafe { ffi::sqlite3_value_free(self.0) };
    }
}

impl<'c> Call<'c> {
    /// # Safety
    /// The arguments are those SQLite called a function with, and `'c` ends before that call does.
    pub(crate) unsafe fn new(
        context: *mut ffi::sqlite3_context,
        count: c_int,
        arguments: *mut *mut ffi::sqlite3_value,
    ) -> Call<'c> {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: SQLite hands `count` valid values, which live as long as the call.
        Call { context, arguments: unsafe { slice::from_raw_parts(arguments, count) } }
    }

    pub(crate) fn count(&self) -> usize {
        self.arguments.len()
    }

    fn kind(&self, number: usize) -> c_int {
        // SAFETY: the value is an argument of the running call.
        unsafe { ffi::sqlite3_value_type(self.arguments[number]) }
    }

    /// The argument as text; `None` for NULL and when there is no memory.
    pub(crate) fn text(&self, number: usize) -> Option<&'c [u8]> {
        // SAFETY: the value lives as long as the call, and so does its text: each argument is
        // converted in one way only.
        unsafe { text_of(self.arguments[number]) }
    }

    /// The argument as a number; `None` when it is none. Takes no memory.
    pub(crate) fn real(&self, number: usize) -> Option<f64> {
        let value = self.arguments[number];
        // SAFETY: the value is an argument of the running call.
        unsafe {
            let is_number = matches!(
                ffi::sqlite3_value_numeric_type(value),
                ffi::SQLITE_INTEGER | ffi::SQLITE_FLOAT
            );
            is_number.then(|| ffi::sqlite3_value_double(value))
        }
    }

    /// Whether the argument is an integer, or a text of one.
    pub(crate) fn is_integer(&self, number: usize) -> bool {
        // SAFETY: the value is an argument of the running call.
        let kind = unsafe { ffi::sqlite3_value_numeric_type(self.arguments[number]) };
        kind == ffi::SQLITE_INTEGER
    }

    /// Bytes of the argument as text, or as the blob that it is.
    pub(crate) fn length(&self, number: usize) -> usize {
        // SAFETY: the value is an argument of the running call.
        let bytes = unsafe { ffi::sqlite3_value_bytes(self.arguments[number]) };
        usize::try_from(bytes).unwrap_or(0)
    }

    fn blob(&self, number: usize) -> &'c [u8] {
        // SAFETY: as above; an empty blob is a null pointer.
        unsafe {
            let bytes = ffi::sqlite3_value_blob(self.arguments[number]);
            let length = ffi::sqlite3_value_bytes(self.arguments[number]);
            match usize::try_from(length) {
                Ok(length) if !bytes.is_null() => slice::from_raw_parts(bytes.cast(), length),
                _ => &[],
            }
        }
    }

    /// Refuses a pattern that is too long.
    fn short(&self, pattern: &[u8]) -> bool {
        if pattern.len() > MAX_PATTERN_BYTES {
            self.fail(
                c"the second argument may have 1000 bytes here; cut it, or do it in the program",
            );
        }
        pattern.len() <= MAX_PATTERN_BYTES
    }

    /// Whether the statement may go on behind so many bytes looked at; it is interrupted if not.
    fn may_go_on(&self, bytes: usize) -> bool {
        // SAFETY: the user data of the functions here is the look of `replace_on`, which lives as
        // long as they do.
        let look = unsafe { &*ffi::sqlite3_user_data(self.context).cast::<Look>() };
        let goes_on = look.goes_on_behind(bytes);
        if !goes_on {
            self.interrupt();
        }
        goes_on
    }

    pub(crate) fn interrupt(&self) {
        // SAFETY: the context is that of the running call.
        unsafe { ffi::sqlite3_result_error_code(self.context, ffi::SQLITE_INTERRUPT) };
    }

    fn lack_memory(&self) {
        // SAFETY: the context is that of the running call.
        unsafe { ffi::sqlite3_result_error_nomem(self.context) };
    }

    pub(crate) fn fail(&self, message: &CStr) {
        // SAFETY: the context is that of the running call; SQLite copies the message.
        unsafe { ffi::sqlite3_result_error(self.context, message.as_ptr(), -1) };
    }

    fn return_text(&self, text: &[u8]) {
        // SAFETY: as above; SQLite copies the text, and refuses it beyond its limit of length.
        unsafe {
            ffi::sqlite3_result_text64(
                self.context,
                text.as_ptr().cast::<c_char>(),
                text.len() as u64,
                ffi::SQLITE_TRANSIENT(),
                ffi::SQLITE_UTF8 as u8,
            );
        }
    }

    pub(crate) fn return_real(&self, number: f64) {
        // SAFETY: the context is that of the running call.
        unsafe { ffi::sqlite3_result_double(self.context, number) };
    }

    pub(crate) fn return_argument(&self, number: usize) {
        // SAFETY: the context and the value are those of the running call.
        unsafe { ffi::sqlite3_result_value(self.context, self.arguments[number]) };
    }

    pub(crate) fn return_number(&self, number: usize) {
        // SAFETY: the context is that of the running call.
        unsafe { ffi::sqlite3_result_int64(self.context, number as i64) };
    }

    /// A limit of the connection, such as `SQLITE_LIMIT_LENGTH`.
    pub(crate) fn limit(&self, limit: c_int) -> usize {
        // SAFETY: the context is that of the running call; -1 asks and changes nothing.
        let limit = unsafe {
            let db = ffi::sqlite3_context_db_handle(self.context);
            ffi::sqlite3_limit(db, limit, -1)
        };
        usize::try_from(limit).unwrap_or(0)
    }

    /// `trim` at the start, the end or both.
    fn trim(&self, start: bool, end: bool) {
        let (Some(mut text), Some(set)) = (self.text(0), self.text(1)) else { return };
        if !self.short(set) {
            return;
        }
        if !self.may_go_on(text.len() * 4 + set.len() * 16) {
            return;
        }
        let set = Characters::of(set);
        while start && let Some(length) = set.first(|length| text.get(..length)) {
            text = &text[length..];
        }
        let tail = |text: &'c [u8], length| text.get(text.len().checked_sub(length)?..);
        while end && let Some(length) = set.first(|length| tail(text, length)) {
            text = &text[..text.len() - length];
        }
        self.return_text(text);
    }

    fn replace(&self) {
        let (Some(text), Some(old)) = (self.text(0), self.text(1)) else { return };
        if old.first().is_none_or(|first| *first == 0) {
            return self.return_text(text);
        }
        let Some(new) = self.text(2) else { return };
        if !self.short(old) {
            return;
        }
        let limit = self.limit(ffi::SQLITE_LIMIT_LENGTH);
        let (mut rest, mut out) = (text, Vec::with_capacity(text.len()));
        loop {
            let at = match self.find(rest, old) {
                Search::At(at) => at,
                Search::Nowhere => break,
                Search::Late => return,
            };
            out.extend_from_slice(&rest[..at]);
            out.extend_from_slice(new);
            rest = &rest[at + old.len()..];
            if out.len() > limit {
                // SAFETY: the context is that of the running call.
                return unsafe { ffi::sqlite3_result_error_toobig(self.context) };
            }
        }
        out.extend_from_slice(rest);
        self.return_text(&out);
    }

    /// Where `pattern` begins, if it is there and there is time to find it.
    fn find(&self, text: &[u8], pattern: &[u8]) -> Search {
        let steps = 1 + pattern.len() / COMPARED;
        let mut passed = 0;
        for piece in text.windows(pattern.len()) {
            if piece == pattern {
                return Search::At(passed);
            }
            passed += 1;
            if passed % PIECE == 0 && !self.may_go_on(PIECE * steps) {
                return Search::Late;
            }
        }
        if self.may_go_on(passed % PIECE * steps) { Search::Nowhere } else { Search::Late }
    }

    fn instr(&self) {
        let (hay, needle) = (self.kind(0), self.kind(1));
        if hay == ffi::SQLITE_NULL || needle == ffi::SQLITE_NULL {
            return;
        }
        let blobs = [hay, needle].map(|kind| kind == ffi::SQLITE_BLOB);
        if blobs == [true, true] {
            return self.position(self.blob(0), self.blob(1), |_| true);
        }
        let starts_character = |byte: u8| byte & 0xc0 != 0x80;
        if blobs == [false, false] {
            let (Some(hay), Some(needle)) = (self.text(0), self.text(1)) else { return };
            return self.position(hay, needle, starts_character);
        }
        // SAFETY: the values are arguments of the running call; the copies are freed by `Copy`.
        let copies = [0, 1].map(|i| Copy(unsafe { ffi::sqlite3_value_dup(self.arguments[i]) }));
        // SAFETY: the copies live until the end of this function; `text_of` takes a null one.
        let texts = unsafe { (text_of(copies[0].0), text_of(copies[1].0)) };
        let (Some(hay), Some(needle)) = texts else { return self.lack_memory() };
        self.position(hay, needle, starts_character);
    }

    /// Returns the number of the character, counted from 1, at which `needle` begins; else 0.
    fn position(&self, hay: &[u8], needle: &[u8], starts_character: impl Fn(u8) -> bool) {
        if !self.short(needle) {
            return;
        }
        let mut number = 1;
        for at in 0..=hay.len() {
            if !self.may_go_on(1 + needle.len() / COMPARED) {
                return;
            }
            if at > 0 && !hay.get(at).is_none_or(|byte| starts_character(*byte)) {
                continue;
            }
            if hay[at..].starts_with(needle) {
                return self.return_number(number);
            }
            number += 1;
        }
        self.return_number(0);
    }
}

/// The text of a value; `None` of a null pointer, which stands for no memory, and when there is no
/// memory for the text.
///
/// # Safety
/// The value is valid for `'v` and is not converted to anything else in that time.
unsafe fn text_of<'v>(value: *mut ffi::sqlite3_value) -> Option<&'v [u8]> {
    // SAFETY: said by the caller, and SQLite's answer to a null pointer is one; the length is asked
    // after the conversion, as SQLite wants it, and of a value that is there.
    unsafe {
        let text = ffi::sqlite3_value_text(value);
        if text.is_null() {
            return None;
        }
        let length = usize::try_from(ffi::sqlite3_value_bytes(value)).ok()?;
        Some(slice::from_raw_parts(text.cast(), length))
    }
}

/// A set of characters, in the order in which SQLite compares them.
struct Characters<'t> {
    places: HashMap<&'t [u8], usize>,
    lengths: Vec<usize>,
}

impl<'t> Characters<'t> {
    fn of(text: &'t [u8]) -> Characters<'t> {
        let mut places = HashMap::new();
        for (place, character) in characters(text).into_iter().enumerate() {
            places.entry(character).or_insert(place);
        }
        let mut lengths: Vec<usize> = places.keys().map(|character| character.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        Characters { places, lengths }
    }

    /// The length of the first of them that `piece`, given its length, is equal to.
    fn first(&self, piece: impl Fn(usize) -> Option<&'t [u8]>) -> Option<usize> {
        let place = |length: &usize| Some((*self.places.get(piece(*length)?)?, *length));
        self.lengths.iter().filter_map(place).min().map(|(_, length)| length)
    }
}

/// The characters of a text up to its first NUL, as SQLite splits it.
fn characters(text: &[u8]) -> Vec<&[u8]> {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let mut rest = &text[..end];
    let mut found = Vec::new();
    while let Some((first, others)) = rest.split_first() {
        let is_continued = |byte: &&u8| **byte & 0xc0 == 0x80;
        let more = if *first < 0xc0 { 0 } else { others.iter().take_while(is_continued).count() };
        let (character, after) = rest.split_at(1 + more);
        found.push(character);
        rest = after;
    }
    found
}

/// Runs a body on the call; a panic, which none of them has, must not unwind into SQLite.
pub(crate) fn call_safely(call: &Call<'_>, body: impl FnOnce(&Call<'_>)) {
    let run = std::panic::AssertUnwindSafe(|| body(call));
    if std::panic::catch_unwind(run).is_err() {
        call.fail(c"the function failed");
    }
}

/// Makes a function that SQLite calls from what is done with a call.
macro_rules! callback {
    ($name:ident, $body:expr) => {
        unsafe extern "C" fn $name(
            context: *mut ffi::sqlite3_context,
            count: c_int,
            arguments: *mut *mut ffi::sqlite3_value,
        ) {
            // SAFETY: SQLite calls this with the arguments of a call, which ends after it.
            let call = unsafe { Call::new(context, count, arguments) };
            let body: fn(&Call<'_>) = $body;
            call_safely(&call, body);
        }
    };
}

callback!(instr, |call| call.instr());
callback!(replace, |call| call.replace());
callback!(trim, |call| call.trim(true, true));
callback!(trim_start, |call| call.trim(true, false));
callback!(trim_end, |call| call.trim(false, true));
callback!(unhex, |call| call.fail(c"unhex() takes one argument here"));

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: &[&str] = &[
        "NULL",
        "''",
        "'a'",
        "'aXa'",
        "'é'",
        "'éaé'",
        "' a '",
        "12",
        "1.5",
        "x''",
        "x'6161'",
        "x'c3a9'",
        "x'c361'",
        "x'a9c3'",
        "'abab'",
        "'ba'",
        "char(97,0,98)",
        "x'006100'",
        "-3e300",
        "'ééé'",
        "x'ff'",
        "'aaaaab'",
        "char(0)",
    ];

    fn plain_and_replaced() -> [rusqlite::Connection; 2] {
        crate::initialize().unwrap();
        let [plain, ours] = [(), ()].map(|()| rusqlite::Connection::open_in_memory().unwrap());
        replace_on(&ours, &Look::never()).unwrap();
        [plain, ours]
    }

    #[test]
    fn a_value_for_which_there_was_no_memory_has_no_text() {
        crate::initialize().unwrap();
        // What `sqlite3_value_dup` returns then.
        // SAFETY: a null pointer is allowed.
        assert_eq!(unsafe { text_of(std::ptr::null_mut()) }, None);
    }

    #[test]
    fn results_are_those_of_sqlite() {
        let both = plain_and_replaced();
        for a in TEXTS {
            for b in TEXTS {
                let calls = [
                    format!("quote(instr({a}, {b}))"),
                    format!("quote(hex(trim({a}, {b}))) || typeof(trim({a}, {b}))"),
                    format!("quote(hex(ltrim({a}, {b}))) || quote(hex(rtrim({a}, {b})))"),
                    format!("quote(hex(replace({a}, {b}, 'zé'))) || typeof(replace({a}, {b}, 1))"),
                    format!(
                        "quote(hex(replace({a}, {b}, NULL))) || quote(hex(replace({a}, {b}, '')))"
                    ),
                ];
                for call in calls {
                    let sql = format!("SELECT {call}");
                    let [plain, ours] = both
                        .each_ref()
                        .map(|it| it.query_row(&sql, (), |row| row.get::<_, String>(0)));
                    assert_eq!(ours.unwrap(), plain.unwrap(), "{sql}");
                }
            }
        }
    }

    #[test]
    fn a_long_pattern_is_refused() {
        let [_, ours] = plain_and_replaced();
        for call in ["instr('a', ?1)", "trim('a', ?1)", "replace('a', ?1, 'b')", "unhex('a', ?1)"] {
            let sql = format!("SELECT {call}");
            let long = "a".repeat(MAX_PATTERN_BYTES + 1);
            assert!(ours.query_row(&sql, [long], |_| Ok(())).is_err(), "{call}");
        }
    }

    #[test]
    fn a_replacement_beyond_the_limit_of_length_is_too_big() {
        let [_, ours] = plain_and_replaced();
        // SAFETY: the handle is open.
        unsafe { ffi::sqlite3_limit(ours.handle(), ffi::SQLITE_LIMIT_LENGTH, 10_000) };
        let sql = "SELECT replace(printf('%9000c', 'a'), ' ', printf('%9000c', 'b'))";
        let error = ours.query_row(sql, (), |_| Ok(())).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::TooBig));
    }
}
