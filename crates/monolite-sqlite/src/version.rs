//! Owns the process-wide start of SQLite: the version gate and the settings that must precede
//! `sqlite3_initialize`.

use std::sync::OnceLock;

use rusqlite::ffi;

use crate::vfs::JOURNAL_BYTES;
use crate::{forks, memory, pcache};

/// The oldest SQLite that Monolite runs on, as `sqlite3_libversion_number` counts it (3.51.3).
///
/// Versions 3.7.0 to 3.51.2 can corrupt a WAL database when a checkpoint that follows a WAL reset
/// overlaps a commit (the "WAL-reset bug", <https://sqlite.org/wal.html#walresetbug>).
pub const MIN_VERSION: i32 = 3_051_003;

/// The oldest SQLite that is given SQL from an untrusted source (3.54.0): plain SQL can overflow
/// the heap through FTS5 in those before (CVE-2026-119373, CVE-2026-119374).
pub const MIN_VERSION_UNTRUSTED: i32 = 3_054_000;

/// Prepares SQLite for this process, once, and checks its version.
///
/// Memory statistics are switched off when SQLite has not been initialised yet: they cost one
/// process-wide mutex for each allocation; its allocations are counted for [`crate::Budget`], and
/// its page cache is wrapped for [`crate::Pages::track`]; and what undoes a statement is
/// in a file only from [`JOURNAL_BYTES`] on. When another library was first, its settings stay.
///
/// # Errors
/// The text of the refusal when the SQLite linked into this program is older than [`MIN_VERSION`].
pub fn initialize() -> Result<(), String> {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        forks::watch();
        memory::install();
        pcache::install();
        // SAFETY: sqlite3_config is called before this crate opened any connection; when SQLite is
        // already initialised it returns SQLITE_MISUSE and changes nothing, which is accepted.
        unsafe {
            ffi::sqlite3_config(ffi::SQLITE_CONFIG_MEMSTATUS, 0);
            ffi::sqlite3_config(ffi::SQLITE_CONFIG_STMTJRNL_SPILL, JOURNAL_BYTES);
        }
    });
    accept(rusqlite::version_number(), rusqlite::version())
}

/// Whether this crate sees which pages connections of this process read; call [`initialize`] first.
/// Not when another library has initialised SQLite before.
pub fn sees_pages() -> bool {
    pcache::install()
}

/// Whether this process can limit what untrusted SQL takes; call [`initialize`] first.
///
/// # Errors
/// The text of the refusal when SQLite is older than [`MIN_VERSION_UNTRUSTED`], or was initialised
/// by another library before, so that memory cannot be limited.
pub fn accept_untrusted() -> Result<(), String> {
    accept_untrusted_version(rusqlite::version_number(), rusqlite::version())?;
    if memory::install() {
        return Ok(());
    }
    Err("the memory of untrusted SQL cannot be limited, because another library has \
         initialised SQLite in this process before; open the first database through Monolite"
        .into())
}

fn accept_untrusted_version(number: i32, name: &str) -> Result<(), String> {
    if number >= MIN_VERSION_UNTRUSTED {
        return Ok(());
    }
    Err(format!(
        "SQLite {name} is linked into this program, and untrusted SQL can overflow the heap of \
         versions before 3.54.0; build with rusqlite 0.41 or newer and its `bundled` feature"
    ))
}

/// Judges a version by its number, as `sqlite3_libversion_number` counts it; `name` is for the
/// text.
///
/// # Errors
/// The text of the refusal when it is older than [`MIN_VERSION`].
pub fn accept(number: i32, name: &str) -> Result<(), String> {
    if number >= MIN_VERSION {
        return Ok(());
    }
    Err(format!(
        "SQLite {name} is linked into this program, and versions before 3.51.3 can corrupt a WAL \
         database; build with rusqlite 0.39 or newer and its `bundled` feature"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_the_wal_reset_bug_are_refused() {
        assert!(accept(3_051_002, "3.51.2").unwrap_err().contains("3.51.2"));
        assert!(accept(3_040_001, "3.40.1").is_err());
        assert!(accept(3_051_003, "3.51.3").is_ok());
    }

    #[test]
    fn untrusted_sql_needs_a_version_without_the_overflows() {
        assert!(accept_untrusted_version(3_053_002, "3.53.2").unwrap_err().contains("3.54.0"));
        assert!(accept_untrusted_version(3_054_000, "3.54.0").is_ok());
    }

    #[test]
    fn the_bundled_version_is_accepted() {
        initialize().unwrap();
    }
}
