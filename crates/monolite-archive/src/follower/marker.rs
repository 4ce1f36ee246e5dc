//! Owns what a follower that streams knows after a kill: which state its file has.
//!
//! # Format
//! A [`Marker`] is JSON. Each commit has one in the WAL, in a frame that is no page of the
//! database.
//!
//! `<database>-archive/streamed.json`, the *note*, has that of the last commit before the WAL was
//! emptied; it is replaced by a rename, and on disk when it is written:
//!
//! | field | |
//! |---|---|
//! | `format` | 1; others are refused |
//! | `marker` | that of the file, while its WAL has no commit |
//! | `wal` | the salts with which the WAL begins that has none |
//! | `settled` | what the file was, where the WAL was cut |
//!
//! # Algorithm
//! 1. Where the WAL has a commit, its marker tells. SQLite recovers whole commits, so the file has
//!    that state.
//! 2. Where it has none, the note tells, if it is of that WAL by its salts, or of the file as it
//!    is. Before the WAL begins anew, or is cut, the note is written. Nothing is written to the
//!    file between the note and the new header of the WAL.
//! 3. Otherwise something else has written to the file or emptied its WAL: a full copy follows.
//!
//! # Threads and locks
//! The note is written by the thread that commits, and once by the one that follows, which is when
//! that waits for no commit. A lock keeps one from the file of the other.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use monolite::archive::MARKER_BYTES;
use monolite::{Keeper, LastCommit};
use monolite_ltx::PageSize;
use serde::{Deserialize, Serialize};

use super::streamed::Streamed;
use crate::archiver::position::{Identity, directory_of, write};
use crate::error::{Error, ErrorKind, Result};

const FORMAT: u32 = 1;
const NAME: &str = "streamed.json";

/// Which state a file has that follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marker {
    /// It has everything up to this slot.
    pub(super) from: u64,
    /// All that it has is archived in this one, at the latest.
    pub(super) to: u64,
    /// What was streamed into it behind some slot.
    pub(super) streamed: Option<Streamed>,
}

impl Marker {
    /// That of a slot.
    pub(super) fn of_slot(from: u64) -> Marker {
        Marker { from, to: from, streamed: None }
    }

    /// As bytes that have room in a page.
    ///
    /// # Errors
    /// [`Gap`](ErrorKind::Gap) where it has too many generations for one.
    pub(super) fn encode(&self, page_size: PageSize) -> Result<Vec<u8>> {
        let bytes = serde_json::to_vec(self).expect("it has no map");
        let most = page_size.bytes() - MARKER_BYTES;
        if bytes.len() <= most {
            return Ok(bytes);
        }
        let generations = self.streamed.as_ref().map_or(0, |it| it.generations.len());
        let message = format!(
            "the stream has {generations} generations of the WAL that are not archived, of which \
             pages of {most} bytes cannot keep note: it goes on when the archive has them"
        );
        Err(Error::new(ErrorKind::Gap, message))
    }
}

/// What is noted beside a file.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    format: u32,
    marker: Marker,
    wal: Option<[u32; 2]>,
    settled: Option<Identity>,
}

impl Note {
    fn read(path: &Path) -> Option<Note> {
        let text = fs::read(directory_of(path).join(NAME)).ok()?;
        serde_json::from_slice(&text).ok().filter(|note: &Note| note.format == FORMAT)
    }
}

/// Keeps the markers of the file at a path.
pub(super) struct Notes {
    path: PathBuf,
    /// What the file was before it was opened.
    before: Identity,
    found: OnceLock<Marker>,
    writing: Mutex<()>,
}

impl Notes {
    /// Of a file that is not open yet.
    pub(super) fn of(path: &Path) -> Result<Notes> {
        let file = fs::metadata(path);
        let file =
            file.map_err(|error| Error::of_io(format!("look at {}", path.display()), error))?;
        let (found, writing) = (OnceLock::new(), Mutex::default());
        Ok(Notes { path: path.to_owned(), before: Identity::of(&file), found, writing })
    }

    /// Which state the file had when it was opened, if its markers tell.
    pub(super) fn found(&self) -> Option<Marker> {
        self.found.get().cloned()
    }

    /// The file has this state, whose WAL has no commit, or one with this marker.
    pub(super) fn write(&self, marker: Marker, wal: Option<[u32; 2]>) -> Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error| Error::of_io(format!("look at {}", self.path.display()), error);
        let settled = match wal {
            None => Some(Identity::settled(&self.path).map_err(failed)?),
            // Where it was cut before, it may be found without its header.
            Some(_) => {
                let is = Identity::of(&fs::metadata(&self.path).map_err(failed)?);
                Note::read(&self.path).and_then(|note| note.settled).filter(|it| *it == is)
            }
        };
        write(&directory_of(&self.path), NAME, &Note { format: FORMAT, marker, wal, settled })
    }

    /// Nothing is streamed into the file at `path` any more.
    pub(super) fn forget(path: &Path) -> Result<()> {
        let note = directory_of(path).join(NAME);
        match fs::remove_file(&note) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::of_io(format!("remove {}", note.display()), error))
            }
            _ => Ok(()),
        }
    }
}

impl Keeper for Notes {
    fn found(&self, last: LastCommit) -> Option<Vec<u8>> {
        let noted = |salts: Option<[u32; 2]>| {
            let is_of_wal = |note: &Note| salts.is_some() && note.wal == salts;
            let fits = |note: &Note| is_of_wal(note) || note.settled == Some(self.before);
            Note::read(&self.path).filter(fits).map(|note| note.marker)
        };
        let marker = match last {
            LastCommit::Marked(marker) => serde_json::from_slice(&marker).ok()?,
            LastCommit::Nothing(salts) => noted(salts)?,
            LastCommit::Unmarked => return None,
        };
        serde_json::to_vec(self.found.get_or_init(|| marker)).ok()
    }

    fn leaves(&self, marker: &[u8], next: Option<[u32; 2]>) -> std::result::Result<(), String> {
        let marker = serde_json::from_slice(marker).map_err(|error| error.to_string())?;
        self.write(marker, next).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests;
