//! Owns `LIKE` and `GLOB` for untrusted SQL: those of SQLite, which nothing can interrupt within,
//! with looks at the clock.
//!
//! # Algorithm
//! `patternCompare` of SQLite, step by step, so that the meaning is the same for what is no UTF-8,
//! too: each `%` (`*`) searches for the character behind it, and goes on from each that it finds.
//! That is the product of both lengths at worst; the pattern has a limit
//! (`SQLITE_LIMIT_LIKE_PATTERN_LENGTH`), and [`Look`] ends it in between.
//!
//! # Indexes
//! SQLite uses an index for `LIKE 'abc%'` when the function is marked as its own, and no call
//! marks another. [`Pattern::mark`] does so in SQLite's memory, where it has made sure that the
//! record is the one it takes it for, and with the versions that were looked at only. Without the
//! mark the answers are the same, and come without the index.
//!
//! # Source
//! `func.c` of SQLite 3.54.1; wildcards at the start of the user data, as `sqlite3IsLikeFunction`
//! reads them.

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::{Result, ffi};

use crate::functions::{Call, call_safely};
use crate::look::Look;

/// What one of the functions is; SQLite reads the first three bytes.
#[repr(C)]
struct Pattern {
    wildcards: Wildcards,
    /// Whether its record in SQLite's memory was looked at.
    was_marked: AtomicBool,
    arguments: i16,
    look: Arc<Look>,
}

/// The characters with a meaning, 0 for none.
#[repr(C)]
#[derive(Clone, Copy)]
struct Wildcards {
    all: u8,
    one: u8,
    set: u8,
    /// Whether `A` is `a`.
    folds: bool,
}

const LIKE: Wildcards = Wildcards { all: b'%', one: b'_', set: 0, folds: true };
const GLOB: Wildcards = Wildcards { all: b'*', one: b'?', set: b'[', folds: false };

/// Puts the functions in place of SQLite's on this connection.
pub(crate) fn replace_on(connection: &rusqlite::Connection, look: &Arc<Look>) -> Result<()> {
    replace(connection, c"like", 2, LIKE, look)?;
    replace(connection, c"like", 3, LIKE, look)?;
    replace(connection, c"glob", 2, GLOB, look)
}

/// Calls each of the functions once, for it to find its record. This reads the file.
pub(crate) fn mark_on(connection: &rusqlite::Connection) -> Result<()> {
    connection
        .query_row("SELECT 'a' LIKE 'a', 'a' LIKE 'a' ESCAPE 'b', 'a' GLOB 'a'", (), |_| Ok(()))
}

fn replace(
    connection: &rusqlite::Connection,
    name: &CStr,
    arguments: i16,
    wildcards: Wildcards,
    look: &Arc<Look>,
) -> Result<()> {
    let look = Arc::clone(look);
    let pattern = Pattern { wildcards, was_marked: AtomicBool::new(false), arguments, look };
    let flags = ffi::SQLITE_UTF8 | ffi::SQLITE_DETERMINISTIC | ffi::SQLITE_INNOCUOUS;
    // SAFETY: the handle is open, the name is a C string, and SQLite owns the pattern, which it
    // hands to `forget` when the function is not needed any more, also when this call fails.
    let code = unsafe {
        ffi::sqlite3_create_function_v2(
            connection.handle(),
            name.as_ptr(),
            arguments.into(),
            flags,
            Box::into_raw(Box::new(pattern)).cast(),
            Some(like),
            None,
            None,
            Some(forget),
        )
    };
    if code != ffi::SQLITE_OK {
        return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
    }
    Ok(())
}

unsafe extern "C" fn forget(pattern: *mut c_void) {
    // SAFETY: the pointer came from `Box::into_raw` in `replace`, and SQLite hands it back once.
    drop(unsafe { Box::from_raw(pattern.cast::<Pattern>()) });
}

unsafe extern "C" fn like(
    context: *mut ffi::sqlite3_context,
    count: c_int,
    arguments: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: SQLite calls this with the arguments of a call, which ends after it, and the user
    // data is the pattern that lives as long as the function.
    let (call, pattern) = unsafe {
        let pattern = ffi::sqlite3_user_data(context).cast::<Pattern>();
        if !(*pattern).was_marked.swap(true, Ordering::Relaxed) {
            mark(context, pattern);
        }
        (Call::new(context, count, arguments), &*pattern)
    };
    call_safely(&call, |call| pattern.call(call));
}

/// The versions of SQLite whose record of a function was looked at, in thousands.
const KNOWN_VERSION: c_int = 3_054;

/// A candidate for the use of an index.
const FUNC_LIKE: u32 = 0x0004;
/// `A` is not `a`.
const FUNC_CASE: u32 = 0x0008;

/// The start of SQLite's `sqlite3_context`.
#[repr(C)]
struct Context {
    result: *mut c_void,
    function: *mut Function,
}

/// The start of SQLite's `FuncDef`.
#[repr(C)]
struct Function {
    arguments: i16,
    flags: u32,
    user_data: *mut c_void,
}

/// Marks the function of the running call as one for which an index may be used.
///
/// # Safety
/// `context` is that of a running call of the function whose user data is `pattern`.
unsafe fn mark(context: *mut ffi::sqlite3_context, pattern: *mut Pattern) {
    // SAFETY: SQLite's context begins with two pointers to larger records of its own, both of which
    // are set while a function runs. The second is the function's record if its third field is the
    // user data, a pointer that is nowhere else, and the first the number of arguments.
    unsafe {
        let function = (*context.cast::<Context>()).function;
        let is_known = ffi::sqlite3_libversion_number() / 1_000 == KNOWN_VERSION;
        if is_known
            && (*function).user_data == pattern.cast()
            && (*function).arguments == (*pattern).arguments
        {
            let folds = (*pattern).wildcards.folds;
            (*function).flags |= if folds { FUNC_LIKE } else { FUNC_LIKE | FUNC_CASE };
        }
    }
}

/// What came of a comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Match,
    Nothing,
    /// Nothing, and nothing further on in the text either.
    NothingBehindWildcard,
    /// It has to end.
    Late,
}

impl Pattern {
    fn call(&self, call: &Call<'_>) {
        let limit = call.limit(ffi::SQLITE_LIMIT_LIKE_PATTERN_LENGTH);
        if call.length(0) > limit {
            return call.fail(c"LIKE or GLOB pattern too complex");
        }
        let (mut wildcards, mut other) = (self.wildcards, u32::from(self.wildcards.set));
        if call.count() == 3 {
            let Some(escape) = call.text(2) else { return };
            let mut rest = Text(escape);
            other = rest.next();
            if other == 0 || !rest.is_at_end() {
                return call.fail(c"ESCAPE expression must be a single character");
            }
            if other == u32::from(wildcards.all) {
                wildcards.all = 0;
            }
            if other == u32::from(wildcards.one) {
                wildcards.one = 0;
            }
        }
        let (Some(pattern), Some(text)) = (call.text(0), call.text(1)) else { return };
        // For the calls before, too, whose way was long.
        if !self.look.goes_on_behind(8) {
            return call.interrupt();
        }
        let comparison = Comparison { wildcards, other, look: &self.look };
        match comparison.of(Text(pattern), Text(text)) {
            Found::Late => call.interrupt(),
            found => call.return_number((found == Found::Match).into()),
        }
    }
}

/// The rest of a text, which ends at its first NUL, where there is one.
#[derive(Clone, Copy)]
struct Text<'t>(&'t [u8]);

impl Text<'_> {
    fn first(self) -> u8 {
        self.0.first().copied().unwrap_or(0)
    }

    fn is_at_end(self) -> bool {
        self.first() == 0
    }

    fn skip(&mut self, bytes: usize) {
        self.0 = self.0.get(bytes..).unwrap_or_default();
    }

    /// Reads a character, 0 at the end; what is no UTF-8, as SQLite does.
    fn next(&mut self) -> u32 {
        let first = self.first();
        self.skip(1);
        if first < 0xc0 {
            return first.into();
        }
        let mut character = u32::from(match first {
            0xc0..=0xdf => first & 0x1f,
            0xe0..=0xef => first & 0x0f,
            0xf0..=0xf7 => first & 0x07,
            0xf8..=0xfb => first & 0x03,
            0xfc..=0xfd => first & 0x01,
            _ => 0,
        });
        while self.first() & 0xc0 == 0x80 {
            character = character << 6 | u32::from(self.first() & 0x3f);
            self.skip(1);
        }
        let is_none = character < 0x80 || character & 0xffff_f800 == 0xd800;
        if is_none { 0xfffd } else { character }
    }

    fn skip_character(&mut self) {
        let first = self.first();
        self.skip(1);
        while first >= 0xc0 && self.first() & 0xc0 == 0x80 {
            self.skip(1);
        }
    }
}

struct Comparison<'l> {
    wildcards: Wildcards,
    /// The character that escapes, or `[`.
    other: u32,
    look: &'l Look,
}

impl Comparison<'_> {
    fn of(&self, mut pattern: Text<'_>, mut text: Text<'_>) -> Found {
        let (all, one) = (u32::from(self.wildcards.all), u32::from(self.wildcards.one));
        let (mut escaped, mut steps) = (None, 0);
        loop {
            let here = pattern;
            let mut wanted = pattern.next();
            steps += 1;
            if wanted == 0 {
                break;
            }
            if wanted == all {
                return self.behind_wildcard(here, text);
            }
            if wanted == self.other && self.wildcards.set == 0 {
                wanted = pattern.next();
                if wanted == 0 {
                    return Found::Nothing;
                }
                escaped = Some(pattern.0.len());
            } else if wanted == self.other {
                let found = text.next();
                steps += pattern.0.len();
                if found == 0 || !is_in_set(found, &mut pattern) {
                    return self.ended(Found::Nothing, steps);
                }
                continue;
            }
            let found = text.next();
            let is_any = wanted == one && escaped != Some(pattern.0.len()) && found != 0;
            if wanted != found && !self.is_same(wanted, found) && !is_any {
                return self.ended(Found::Nothing, steps);
            }
        }
        self.ended(if text.is_at_end() { Found::Match } else { Found::Nothing }, steps)
    }

    fn ended(&self, found: Found, steps: usize) -> Found {
        if self.look.goes_on_behind(4 + steps) { found } else { Found::Late }
    }

    fn is_same(&self, one: u32, other: u32) -> bool {
        let lower = |character: u32| u8::try_from(character).ok().filter(u8::is_ascii);
        let folded = |character| lower(character).map(|byte| byte.to_ascii_lowercase());
        self.wildcards.folds && folded(one).is_some() && folded(one) == folded(other)
    }

    /// Goes on at the wildcard for any text, with which `pattern` begins.
    fn behind_wildcard(&self, mut pattern: Text<'_>, mut text: Text<'_>) -> Found {
        let (all, one) = (u32::from(self.wildcards.all), u32::from(self.wildcards.one));
        let mut here = pattern;
        let mut wanted = pattern.next();
        while wanted == all || (wanted == one && one != 0) {
            if wanted == one && text.next() == 0 {
                return Found::NothingBehindWildcard;
            }
            here = pattern;
            wanted = pattern.next();
        }
        if wanted == 0 {
            return Found::Match;
        }
        if wanted == self.other {
            if self.wildcards.set != 0 {
                return self.at_any(text, Text::skip_character, |text| self.of(here, text));
            }
            wanted = pattern.next();
            if wanted == 0 {
                return Found::NothingBehindWildcard;
            }
        }
        let go_on = |mut text: Text<'_>| {
            text.skip_character();
            self.of(pattern, text)
        };
        match u8::try_from(wanted).ok().filter(u8::is_ascii) {
            Some(byte) => {
                let stops = match self.wildcards.folds {
                    true => [byte.to_ascii_uppercase(), byte.to_ascii_lowercase()],
                    false => [byte, byte],
                };
                self.find(&mut text, stops);
                let next = |text: &mut Text<'_>| {
                    text.skip(1);
                    self.find(text, stops);
                };
                self.at_any(text, next, go_on)
            }
            None => {
                let check = |text: Text<'_>| {
                    let mut rest = text;
                    if rest.next() == wanted { self.of(pattern, rest) } else { Found::Nothing }
                };
                self.at_any(text, Text::skip_character, check)
            }
        }
    }

    /// Tries each place that `next` comes to.
    fn at_any<'t>(
        &self,
        mut text: Text<'t>,
        next: impl Fn(&mut Text<'t>),
        check: impl Fn(Text<'t>) -> Found,
    ) -> Found {
        while !text.is_at_end() {
            let found = check(text);
            if found != Found::Nothing {
                return found;
            }
            if !self.look.goes_on_behind(1) {
                return Found::Late;
            }
            next(&mut text);
        }
        Found::NothingBehindWildcard
    }

    /// Comes to the next of these bytes, or to the end.
    fn find(&self, text: &mut Text<'_>, stops: [u8; 2]) {
        let is_stop = |byte: &u8| *byte == 0 || *byte == stops[0] || *byte == stops[1];
        let bytes = text.0.iter().position(is_stop).unwrap_or(text.0.len());
        text.skip(bytes);
        self.look.count(bytes / 2);
    }
}

/// Whether a character is in the set whose inside `pattern` begins with; goes on behind it.
fn is_in_set(character: u32, pattern: &mut Text<'_>) -> bool {
    const CARET: u32 = b'^' as u32;
    const CLOSE: u32 = b']' as u32;
    const DASH: u32 = b'-' as u32;
    let (mut is_in, mut before) = (false, 0);
    let mut member = pattern.next();
    let is_inverted = member == CARET;
    if is_inverted {
        member = pattern.next();
    }
    if member == CLOSE {
        is_in = character == CLOSE;
        member = pattern.next();
    }
    while member != 0 && member != CLOSE {
        if member == DASH && pattern.first() != b']' && !pattern.is_at_end() && before > 0 {
            let last = pattern.next();
            is_in |= character >= before && character <= last;
            before = 0;
        } else {
            is_in |= character == member;
            before = member;
        }
        member = pattern.next();
    }
    member != 0 && is_in != is_inverted
}

#[cfg(test)]
mod tests;
