//! Owns what SQL takes from outside of the database, time and random values, so that a statement
//! which is run again is given the same once more.
//!
//! # Algorithm
//! While [`Surroundings::during`] runs, SQLite's clock on this thread stands still (our VFS tells
//! it the time), and `random()` and `randomblob()` draw from a generator that starts at a given
//! seed. At any other time they are what SQLite's own functions are. Everything that SQL calls
//! *now* comes from the clock of the VFS: `datetime('now')` and its relatives,
//! `CURRENT_TIMESTAMP`, defaults of columns.
//!
//! # Not here
//! The rowid that SQLite draws at random once a table has used the largest one.

use std::cell::Cell;
use std::ffi::c_int;
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Result, ffi};

use crate::functions;

/// Milliseconds from noon of 24 November 4714 BC, where SQLite's clock begins, to 1970.
const UNIX_EPOCH_JULIAN_MS: i64 = 210_866_760_000_000;

/// Time and random values as one run of a statement finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surroundings {
    julian_ms: i64,
    seed: u64,
}

impl Surroundings {
    /// The time now, by the system's clock, and a seed from SQLite's generator.
    pub fn now() -> Surroundings {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX - UNIX_EPOCH_JULIAN_MS);
        Surroundings { julian_ms: UNIX_EPOCH_JULIAN_MS + unix_ms, seed: drawn() }
    }

    /// Runs `run` in these surroundings.
    pub fn during<R>(self, run: impl FnOnce() -> R) -> R {
        let _outer = Restore(CURRENT.replace(Some(self)));
        run()
    }

    /// Runs `run`, which is none of the statement's, as though there were no surroundings.
    pub fn outside<R>(run: impl FnOnce() -> R) -> R {
        let _inner = Restore(CURRENT.replace(None));
        run()
    }

    /// The next number of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
    /// Generators, 2014).
    fn next(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

thread_local! {
    static CURRENT: Cell<Option<Surroundings>> = const { Cell::new(None) };
}

/// Puts the surroundings of before back, after a panic, too.
struct Restore(Option<Surroundings>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// The time at which the clock of this thread stands, as SQLite counts it; `None` when it runs.
pub(crate) fn frozen_julian_ms() -> Option<i64> {
    CURRENT.get().map(|current| current.julian_ms)
}

/// Puts the functions that draw from the surroundings in place of SQLite's.
pub(crate) fn replace_on(connection: &rusqlite::Connection) -> Result<()> {
    functions::add(connection, c"random", 0, ffi::SQLITE_INNOCUOUS, |call| {
        let drawn = drawn().cast_signed();
        // The least integer has no absolute value; SQLite's own function never returns it either.
        call.return_integer(if drawn < 0 { -(drawn & i64::MAX) } else { drawn });
    })?;
    functions::add(connection, c"randomblob", 1, ffi::SQLITE_INNOCUOUS, |call| {
        call.return_blob(call.integer(0).max(1).cast_unsigned(), fill);
    })
}

fn drawn() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// Fills `bytes` from the surroundings, or from SQLite's own generator.
fn fill(bytes: &mut [u8]) {
    let Some(mut current) = CURRENT.get() else {
        let count = c_int::try_from(bytes.len()).expect("a value's length is an int");
        // SAFETY: the pointer and the length are those of a live slice.
        return unsafe { ffi::sqlite3_randomness(count, bytes.as_mut_ptr().cast()) };
    };
    for piece in bytes.chunks_mut(8) {
        piece.copy_from_slice(&current.next().to_le_bytes()[..piece.len()]);
    }
    CURRENT.set(Some(current));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::vfs::{Direct, Lower, Vfs, WalControl};

    fn open() -> (tempfile::TempDir, Vfs, rusqlite::Connection) {
        let directory = tempfile::tempdir().unwrap();
        let vfs =
            Vfs::register(Lower::Unix, Arc::new(Direct::new(Arc::new(WalControl::new(1 << 30)))));
        let vfs = vfs.unwrap();
        let path = directory.path().join("t.db");
        let flags = rusqlite::OpenFlags::default();
        let connection =
            rusqlite::Connection::open_with_flags_and_vfs(path, flags, vfs.name()).unwrap();
        replace_on(&connection).unwrap();
        (directory, vfs, connection)
    }

    const OUTSIDE: &str = "SELECT random() || ' ' || hex(randomblob(20)) || ' ' || random() || ' ' \
                           || datetime('now', 'subsec') || ' ' || CURRENT_TIMESTAMP || ' ' || \
                           julianday('now')";

    fn outside(connection: &rusqlite::Connection) -> String {
        connection.query_row(OUTSIDE, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_statement_that_is_run_again_finds_the_same_time_and_random_values() {
        let (_directory, _vfs, connection) = open();
        let then = Surroundings::now();
        let first = then.during(|| outside(&connection));
        std::thread::sleep(std::time::Duration::from_millis(3));
        assert_eq!(then.during(|| outside(&connection)), first);
        assert_ne!(outside(&connection), first);
        assert_ne!(Surroundings::now().during(|| outside(&connection)), first);
    }

    #[test]
    fn without_surroundings_time_goes_on_and_random_values_are_random() {
        let (_directory, _vfs, connection) = open();
        let sql = "SELECT unixepoch('now'), random() <> random(), length(randomblob(1000)), \
                   length(randomblob(-1)), typeof(randomblob(3))";
        let row = connection.query_row(sql, [], |row| {
            let facts: (i64, bool, i64, i64, String) = row.try_into()?;
            Ok(facts)
        });
        let (now, differs, long, short, kind) = row.unwrap();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(now.abs_diff(unix.cast_signed()) <= 1);
        assert_eq!((differs, long, short, kind.as_str()), (true, 1_000, 1, "blob"));
        let huge = connection.query_row("SELECT randomblob(3000000000)", [], |_| Ok(()));
        assert_eq!(huge.unwrap_err().sqlite_error_code(), Some(rusqlite::ErrorCode::TooBig));
    }
}
