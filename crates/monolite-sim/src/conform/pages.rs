//! Owns the pages that are made rather than written: `docs/differences.md` from the list of
//! differences, and `docs/sqlite-features.md` from the scripts.

/// The page of what differs from plain SQLite on purpose.
pub fn differences_page() -> String {
    String::new()
}

/// The page of which features of SQLite the scripts below `places` exercise.
///
/// # Errors
/// When a script cannot be read.
pub fn features_page(_places: &[std::path::PathBuf]) -> anyhow::Result<String> {
    Ok(String::new())
}
