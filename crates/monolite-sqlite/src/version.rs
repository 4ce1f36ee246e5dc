//! Owns the process-wide start of SQLite: the version gate and the settings that must precede
//! `sqlite3_initialize`.

use std::sync::OnceLock;

use rusqlite::ffi;

/// The oldest SQLite that Monolite runs on, as `sqlite3_libversion_number` counts it (3.51.3).
///
/// Versions 3.7.0 to 3.51.2 can corrupt a WAL database when a checkpoint that follows a WAL reset
/// overlaps a commit (the "WAL-reset bug", <https://sqlite.org/wal.html#walresetbug>).
pub const MIN_VERSION: i32 = 3_051_003;

/// Prepares SQLite for this process, once, and checks its version.
///
/// Memory statistics are switched off when SQLite has not been initialised yet: they cost one
/// process-wide mutex for each allocation. When another library was first, its settings stay.
///
/// # Errors
/// The text of the refusal when the SQLite linked into this program is older than [`MIN_VERSION`].
pub fn initialize() -> Result<(), String> {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        // SAFETY: sqlite3_config is called before this crate opened any connection; when SQLite is
        // already initialised it returns SQLITE_MISUSE and changes nothing, which is accepted.
        unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MEMSTATUS, 0) };
    });
    accept(rusqlite::version_number(), rusqlite::version())
}

fn accept(number: i32, name: &str) -> Result<(), String> {
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
    fn the_bundled_version_is_accepted() {
        initialize().unwrap();
    }
}
