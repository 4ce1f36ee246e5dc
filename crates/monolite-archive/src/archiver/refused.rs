//! Owns the errors of a file that is not, or no longer, its archive's primary.

use std::path::Path;

use monolite::ErrorKind as Kind;
use monolite::archive::Refusal;

use super::position::Position;
use crate::error::{Error, ErrorKind};
use crate::record::{Record, State};

/// Another primary has the epoch, by this record if it could be read.
pub(crate) fn fenced(record: Option<&Record>) -> Error {
    let message = match record {
        Some(Record { address, epoch, .. }) if !address.is_empty() => {
            format!("another primary has taken over: {address} (epoch {epoch})")
        }
        _ => "another primary has taken over".into(),
    };
    Error::new(ErrorKind::Fenced, message)
}

/// Why an engine acknowledges nothing more.
pub(super) fn not_ours(error: &Error) -> String {
    format!("the archive is not this database's any more: {error}")
}

/// What is archived is not of this file.
pub(super) fn another_history() -> Error {
    Error::new(
        ErrorKind::Fenced,
        "another process has been its primary since, and this file lacks what it wrote; restore \
         the archive to a new file and open that, or archive this file instead with \
         Archive::take_over",
    )
}

/// The file lacks what is archived.
pub(super) fn behind() -> Error {
    Error::new(
        ErrorKind::Fenced,
        "it has commits that this file lacks: the disk went back in time, or lost acknowledged \
         writes; restore the archive to a new file, or archive this file instead with \
         Archive::take_over",
    )
}

/// The file at `path` is not the one that was archived.
pub(super) fn replaced(path: &Path) -> Error {
    let message = format!(
        "another file was put in place of {}, perhaps an older state; put the archived file back, \
         restore the archive to a new file, or archive this file instead with Archive::take_over",
        path.display()
    );
    Error::new(ErrorKind::Fenced, message)
}

/// The archive is gone, or another directory is in its place.
pub(super) fn nothing_there(archive: &str, position: &Position) -> Error {
    let message = format!(
        "there is no leader record at {archive}, though this file was archived (epoch {}); check \
         that the right directory is mounted; if the archive is lost, or a new one is to begin, \
         archive this file with Archive::take_over",
        position.epoch
    );
    Error::new(ErrorKind::Fenced, message)
}

/// Another file holds the record.
pub(super) fn of_another(record: &Record, position: &Position) -> Error {
    if record.lineage != position.lineage {
        return Error::invalid(format!(
            "it has the history of another database, {}: name another directory or prefix, or \
             restore it and open the restored file; if it is this file's, as after a restore, use \
             `monolite archive adopt URL --database FILE` or Archive::take_over",
            record.lineage
        ));
    }
    if record.state == State::Released {
        return Error::new(
            ErrorKind::Fenced,
            format!(
                "it was taken over since (epoch {}), as by `monolite archive adopt`, and not for \
                 this file: restore the archive to a new file and adopt it for that, or archive \
                 this file instead with Archive::take_over",
                record.epoch
            ),
        );
    }
    let who = if record.address.is_empty() { "another process" } else { &record.address };
    Error::new(
        ErrorKind::Fenced,
        format!(
            "{who} is its primary (epoch {}), and not this file: close it there; if it is gone, \
             or this file is to replace it, use Archive::take_over",
            record.epoch
        ),
    )
}

/// As the engine takes it.
pub(crate) fn refusal(error: Error) -> Refusal {
    let kind = match error.kind() {
        ErrorKind::Fenced => Kind::Fenced,
        ErrorKind::Corrupt | ErrorKind::Gap => Kind::Corrupt,
        ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::Denied => Kind::Invalid,
        _ => Kind::Storage,
    };
    Refusal { kind, message: format!("the archive: {error}") }
}
