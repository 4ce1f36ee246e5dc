//! Owns the reading of migrations from a directory.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};

/// The names and the texts of all files in `directory` whose names end with `.sql`, in whatever
/// case: one that ends with `.SQL` is refused by its name rather than left out.
///
/// # Errors
/// `Storage` when it, or one of them, cannot be read.
pub(super) fn read(directory: &Path) -> Result<Vec<(String, String)>> {
    let failed = |path: &Path, error: &io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::IsADirectory => "; only files may have a name that ends with .sql",
            io::ErrorKind::InvalidData => "; save it as UTF-8",
            io::ErrorKind::NotFound => "; create it, or name another directory",
            _ => "",
        };
        let message =
            format!("the migrations in {} cannot be read: {error}{remedy}", path.display());
        Error::new(ErrorKind::Storage, message)
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| failed(directory, &error))? {
        let path = entry.map_err(|error| failed(directory, &error))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.to_ascii_lowercase().ends_with(".sql") {
            let sql = fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
            files.push((name, sql));
        }
    }
    files.sort();
    Ok(files)
}
