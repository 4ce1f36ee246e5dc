//! Owns the record of where in history a followed file is.
//!
//! # Format
//! JSON, `<database>-archive/follows.json`, replaced by a rename, on disk when it is written.
//!
//! | field | |
//! |---|---|
//! | `format` | 1; 2 where the file may have parts of a stream; others are refused |
//! | `lineage` | of the archive's leader record; none where it has none, as Litestream's |
//! | `from` | the file has everything up to this TXID; 0 while it is not there yet |
//! | `to` | it may have more, up to this one |
//! | `replica` | drawn before the first part: whose acknowledgements the file has |
//! | `is_spoiled` | another program has written to the file |
//! | `settled` | what the file was at a clean end |
//! | `file` | its inode, and its birth in ns since 1970 if that is known: inodes are used again |
//!
//! # Algorithm
//! A group is applied as one commit of SQLite, so after a kill the file has the state of some TXID
//! between `from` and `to`; of which one is not known. Every page of a file in the archive has the
//! content that it has after the file's last TXID, whatever it had before. So everything from
//! `from` on to some TXID not before `to`, applied as **one** commit, gives the state of that TXID,
//! and no reader sees another.
//!
//! What was streamed may be in no slot yet. From the first part on, what the file has is said by
//! [markers](super::marker), and `from` and `to` say nothing. `to` bounds it in memory as a token
//! does: what the leader record says of the token of `epoch` and `to` is where all of it is, or
//! that it is not in history.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use monolite::archive::names::with_ending;
use serde::{Deserialize, Serialize};

use super::marker::{Marker, Notes};
use crate::archiver::position::{Identity, directory_of, write};
use crate::error::{Error, Result};
use crate::record::{Epoch, Lineage, ReplicaId};

const FORMAT: u32 = 1;
/// With parts, of which a reader of 1 would not know.
const STREAMED: u32 = 2;
const NAME: &str = "follows.json";

/// Where a followed file is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    format: u32,
    pub(super) lineage: Option<Lineage>,
    pub(super) from: u64,
    pub(super) to: u64,
    /// The more may be parts that a primary of this epoch has streamed.
    #[serde(skip)]
    pub(super) epoch: Option<Epoch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replica: Option<ReplicaId>,
    pub(super) is_spoiled: bool,
    settled: Option<Identity>,
    #[serde(default)]
    file: Option<(u64, Option<u64>)>,
}

impl Place {
    /// Of a file that is not there.
    pub(super) fn nowhere(lineage: Option<Lineage>) -> Place {
        let (epoch, replica, settled) = (None, None, None);
        Place {
            format: FORMAT,
            lineage,
            from: 0,
            to: 0,
            epoch,
            replica,
            is_spoiled: false,
            settled,
            file: None,
        }
    }

    /// That of the file at `path`; `None` when it follows nothing.
    pub(super) fn read(path: &Path) -> Result<Option<Place>> {
        let record = record_of(path);
        let text = match fs::read(&record) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::of_io(format!("read {}", record.display()), error)),
        };
        let wrong = |why: String| {
            let (record, path) = (record.display(), path.display());
            Error::corrupt(format!("{record}: {why}; delete it and {path}, and follow anew"))
        };
        let place: Place = serde_json::from_slice(&text).map_err(|it| wrong(it.to_string()))?;
        let is_known = [FORMAT, STREAMED].contains(&place.format);
        if !is_known || place.from > place.to {
            return Err(wrong(format!("format {}; this reads {STREAMED}", place.format)));
        }
        Ok(Some(place))
    }

    /// Puts it beside the file at `path`.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        write(&directory_of(path), NAME, self)
    }

    /// The file at `path` follows nothing any more.
    pub(super) fn forget(path: &Path) -> Result<()> {
        Notes::forget(path)?;
        let record = directory_of(path).join(NAME);
        match fs::remove_file(&record) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::of_io(format!("remove {}", record.display()), error))
            }
            _ => Ok(()),
        }
    }

    /// The file at `path` was opened: what it was says nothing any more. A file that has changed
    /// since it was closed is spoiled.
    ///
    /// # Errors
    /// `Invalid` if it is another file, which may have another database.
    pub(super) fn take_up(&mut self, path: &Path) -> Result<()> {
        let file = fs::metadata(path);
        let file =
            file.map_err(|error| Error::of_io(format!("look at {}", path.display()), error))?;
        let born = file.created().ok().and_then(|it| it.duration_since(UNIX_EPOCH).ok());
        let is = (file.ino(), born.and_then(|it| u64::try_from(it.as_nanos()).ok()));
        match self.file {
            None => {
                self.file = Some(is);
                self.write(path)?;
            }
            Some(was) if was != is => {
                let (path, beside) = (path.display(), directory_of(path));
                return Err(Error::invalid(format!(
                    "another file was put in place of {path}, which followed; put that back, or \
                     move {path} and {} away to follow anew",
                    beside.display()
                )));
            }
            Some(_) => {}
        }
        self.is_spoiled |= self.settled.is_some_and(|settled| settled != Identity::of(&file));
        Ok(())
    }

    /// The file at `path` is `from` exactly, and closed; unless others have it open, who will put
    /// what is in the WAL into it.
    pub(super) fn settle(&mut self, path: &Path) -> Result<()> {
        let wal = fs::metadata(with_ending(path, "-wal"));
        if self.from < self.to
            || self.is_spoiled
            || self.has_parts()
            || wal.is_ok_and(|wal| wal.len() > 0)
        {
            return Ok(());
        }
        let settled = Identity::settled(path);
        self.settled = Some(settled.map_err(|error| Error::of_io("look at the file", error))?);
        self.write(path)
    }

    /// The file may be anything from here up to `to` from now on, all of it of slots.
    pub(super) fn begin(&mut self, to: u64, path: &Path) -> Result<()> {
        (self.to, self.epoch, self.settled) = (to.max(self.to), None, None);
        self.write(path)
    }

    /// Whether the file may have parts, so that its markers alone tell what it has.
    pub(super) fn has_parts(&self) -> bool {
        self.format == STREAMED
    }

    /// The file may have parts from now on. The note of its marker is there.
    pub(super) fn streams(&mut self, path: &Path) -> Result<()> {
        (self.format, self.settled) = (STREAMED, None);
        self.write(path)
    }

    /// The file has this state, by its markers. Without one, it is not known what a file with parts
    /// has.
    pub(super) fn is_marked(&mut self, marker: Option<&Marker>) {
        match marker {
            Some(Marker { from, to, streamed }) => {
                (self.from, self.to) = (*from, *to);
                self.epoch = streamed.as_ref().map(|streamed| streamed.epoch);
            }
            None if self.has_parts() => (self.is_spoiled, self.replica) = (true, None),
            None => {}
        }
    }
}

/// Where large pieces of files are kept, and whole ones.
pub(super) fn scratch_of(path: &Path) -> PathBuf {
    directory_of(path).join("follow.db")
}

/// The record of the file at `path`.
pub(super) fn record_of(path: &Path) -> PathBuf {
    directory_of(path).join(NAME)
}
