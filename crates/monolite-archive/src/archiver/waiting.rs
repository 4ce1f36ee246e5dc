//! Owns one question, asked beside a database: does it have a commit that is not archived?
//!
//! # Not here
//! A commit that was rolled back after its last frame was written looks like one until the WAL
//! begins anew. The question is for reports.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use monolite::archive::{WAL_HEADER_BYTES, WalReader, names::with_ending};
use monolite_ltx::Header;

use super::feed::ENDING;
use super::position::{Place, Position, directory_of};
use crate::error::{Error, Result};
use crate::record::Lineage;

/// Whether the database at `path`, of this history, has commits behind `newest`, the newest slot in
/// its archive, as its files are on this disk.
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid) for a file of another history, or of none;
/// [`Io`](crate::ErrorKind::Io), and [`Corrupt`](crate::ErrorKind::Corrupt) of the position record.
pub fn has_unarchived(path: &Path, lineage: Lineage, newest: &Header) -> Result<bool> {
    let directory = directory_of(path);
    let position = Position::read(&directory)?.filter(|position| position.lineage == lineage);
    let Some(position) = position else {
        let message = format!("{} is not the database of this archive", path.display());
        return Err(Error::invalid(message));
    };
    let waits = || Ok(has_staged(&directory)? || has_wal(path, newest)?);
    let failed = |error| Error::of_io(format!("look at the WAL of {}", path.display()), error);
    Ok(position.needs_copy || waits().map_err(failed)?)
}

/// Whether the database at `path`, which no process has open, may have something that its archive
/// lacks, by its files alone. One that was never archived does.
///
/// # Errors
/// [`Io`](crate::ErrorKind::Io), and [`Corrupt`](crate::ErrorKind::Corrupt) of the position record.
pub fn may_lack(path: &Path) -> Result<bool> {
    let directory = directory_of(path);
    let Some(position) = Position::read(&directory)? else { return Ok(true) };
    let has_wal = fs::metadata(with_ending(path, "-wal")).is_ok_and(|wal| wal.len() > 0);
    let staged = || has_staged(&directory);
    let failed = |error| Error::of_io(format!("look beside {}", path.display()), error);
    Ok(position.needs_copy || has_wal || staged().map_err(failed)?)
}

fn has_staged(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        if entry?.file_name().to_string_lossy().ends_with(ENDING) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_wal(path: &Path, newest: &Header) -> io::Result<bool> {
    let wal = match File::open(with_ending(path, "-wal")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        wal => WalReader::open(wal?)?,
    };
    let Some(wal) = wal else { return Ok(false) };
    let archived = newest.wal.and_then(Place::of_span).filter(|it| it.salts == wal.salts());
    let from = archived.map_or(WAL_HEADER_BYTES, |place| place.end);
    match wal.commits(from, wal.end_of(u64::from(u32::MAX)), 1) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(false),
        Err(error) => Err(error),
    }
}
