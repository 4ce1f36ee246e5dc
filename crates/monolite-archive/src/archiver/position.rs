//! Owns the position record: what is known beside the database of where in its history the file is.
//!
//! # Format
//! JSON, `<database>-archive/position.json`, replaced by a rename. Fields that are not known are no
//! error; another `format` is.
//!
//! # Algorithm
//! History is a chain of *generations* of the WAL, each of which SQLite gives two salts. The record
//! has the chain since what was archived for certain: `ends` are generations that are over, and
//! where their last commits ended; `current` is the one being written. It is written before a
//! generation begins, and when one is over and the database file has everything
//! ([`Position::settled`]).
//!
//! When the file is opened again, it continues the chain ([`Position::follows`]) if
//! - its WAL has the salts of `current`: whatever was written since that began is in this WAL, and
//!   the database file had everything before it when it began;
//! - or its WAL has the salts of the last of `ends` and is as long: the next generation has not
//!   begun, and whatever was written since is in this WAL;
//! - or the file is the one that was settled, unchanged since, in which case its WAL, if it has
//!   one, began right there.
//!
//! The second salt of a generation is drawn at random, so another program's WAL does not have it.
//! Anything else (another program wrote and put its WAL into the file, an image was restored) is
//! not looked into: the next thing archived is a copy of the whole database.
//!
//! # Invariants
//! - A settled file has not changed in the 20 ms before its times were noted: a write in the same
//!   tick of the file system's clock would leave them as they are.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use monolite::archive::WAL_HEADER_BYTES;
use monolite::archive::names::{ARCHIVE, with_ending};
use monolite_ltx::{Txid, WalSpan};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::owner::give_to_owner_of;
use crate::record::{Epoch, Holder, Lineage, Record};
use crate::store::sync_directory;
use crate::wall_clock;

const FORMAT: u32 = 1;
const NAME: &str = "position.json";

/// How old the last change of a file must be before its times tell whether it changes again.
const TICK: Duration = Duration::from_millis(20);

/// A place in history: the end of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The generation of the WAL.
    pub(crate) salts: [u32; 2],
    /// Where in it the commit ends, in bytes.
    pub(crate) end: u64,
}

impl Place {
    /// That of a slot; `None` where that was of an empty WAL.
    pub(crate) fn of_span(wal: WalSpan) -> Option<Place> {
        let is_known = wal.salts != [0; 2];
        is_known.then_some(Place { salts: wal.salts, end: wal.offset + wal.size })
    }

    /// How a copy of the database says it. Litestream, taking over, fails for ever on a place of 0.
    pub(super) fn span(place: Option<Place>) -> WalSpan {
        let place = place.unwrap_or(Place { salts: [0; 2], end: WAL_HEADER_BYTES });
        WalSpan { offset: place.end, size: 0, salts: place.salts }
    }
}

/// What a file system says of a file, and says otherwise of any that was written to since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    pub(crate) fn of(meta: &Metadata) -> Identity {
        Identity {
            inode: meta.ino(),
            bytes: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// The identity of the file at `path`, once its last change is old enough. It must not be
    /// written meanwhile.
    pub(crate) fn settled(path: &Path) -> io::Result<Identity> {
        loop {
            let meta = fs::metadata(path)?;
            let newest = meta.modified()?;
            match wall_clock::system_time().duration_since(newest) {
                Ok(age) if age < TICK => std::thread::sleep(TICK - age),
                // A clock that was set back says nothing; the times are what they are.
                _ => return Ok(Identity::of(&meta)),
            }
        }
    }
}

/// What tells a directory from a copy of it, and from one that has its number later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Home {
    inode: u64,
    /// When it was made, in milliseconds, where the file system knows it.
    made: Option<u64>,
}

impl Home {
    fn of(directory: &Path) -> Option<Home> {
        let meta = fs::metadata(directory).ok()?;
        Some(Home { inode: meta.ino(), made: made(&meta) })
    }
}

fn made(meta: &Metadata) -> Option<u64> {
    let since = meta.created().ok().and_then(|it| it.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| u64::try_from(since.as_millis()).ok())
}

/// Where the history of a file is archived, and how far the file is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    format: u32,
    pub(super) lineage: Lineage,
    /// Who has had the file since an epoch was taken for it: the first of them took it, the others
    /// may have taken a later one, of which nothing came.
    pub(super) holders: Vec<Holder>,
    /// The inode of the file then: a copy of file and record has another. And when it was made, as
    /// for a [`Home`].
    inode: u64,
    #[serde(default)]
    made: Option<u64>,
    /// The directory of this record then: a copy of both has another, and where a file was put in
    /// place of the database it is the same.
    #[serde(default)]
    home: Option<Home>,
    /// The last epoch in which something could be archived; 0 before the first.
    pub(crate) epoch: Epoch,
    /// The slot of its fence, and the place in history that is archived below it; `None` where the
    /// chain begins.
    pub(super) fence: Option<u64>,
    pub(super) base: Option<Place>,
    /// Whether the file no longer continues what is archived.
    pub(super) needs_copy: bool,
    /// Whether it is not known that the file has what the epochs before had committed and not
    /// archived, and no leader record says so yet.
    #[serde(default)]
    pub(super) may_lack: bool,
    /// Generations that are over, oldest first.
    pub(super) ends: Vec<Place>,
    /// The salts of the generation being written.
    pub(super) current: Option<[u32; 2]>,
    /// What the database file was when it had everything.
    pub(super) settled: Option<Identity>,
}

impl Position {
    /// Of a file that was never archived.
    pub(super) fn new(lineage: Lineage, file: &Metadata) -> Position {
        Position {
            format: FORMAT,
            lineage,
            holders: Vec::new(),
            inode: file.ino(),
            made: made(file),
            home: None,
            epoch: Epoch(0),
            fence: None,
            base: None,
            needs_copy: true,
            may_lack: false,
            ends: Vec::new(),
            current: None,
            settled: None,
        }
    }

    /// Of the file at `path` that has the state below a fence, which `holder` has set for it. It is
    /// uploaded as a whole unless it is known what the file was then.
    pub(crate) fn behind_fence(
        lineage: Lineage,
        holder: Holder,
        epoch: Epoch,
        fence: Txid,
        path: &Path,
        settled: Option<Identity>,
    ) -> Result<Position> {
        let file = fs::metadata(path);
        let file =
            file.map_err(|error| Error::of_io(format!("look at {}", path.display()), error))?;
        let mut position = Position::new(lineage, &file);
        position.is_of(&file, &directory_of(path))?;
        position.holders.push(holder);
        (position.epoch, position.fence) = (epoch, Some(fence.get()));
        (position.needs_copy, position.settled) = (settled.is_none(), settled);
        Ok(position)
    }

    /// The record in `directory`; `None` when there is none.
    pub(crate) fn read(directory: &Path) -> Result<Option<Position>> {
        let path = directory.join(NAME);
        let failed = |error| Error::of_io(format!("read {}", path.display()), error);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let wrong = |error| {
            Error::corrupt(format!(
                "{}: {error}; move it away, and archive this file with Archive::take_over",
                path.display()
            ))
        };
        let position: Position =
            serde_json::from_slice(&text).map_err(|it| wrong(it.to_string()))?;
        if position.format != FORMAT {
            return Err(wrong(format!("format {}; this reads {FORMAT}", position.format)));
        }
        Ok(Some(position))
    }

    /// Whether another file was put in place of the one that it is of: neither that one, nor a copy
    /// of both.
    pub(super) fn is_of_another(&self, file: &Metadata, directory: &Path) -> bool {
        !self.is_file(file) && self.home.is_some() && self.home == Home::of(directory)
    }

    /// Whether it is of this file, and not of one that has its number later.
    pub(super) fn is_file(&self, file: &Metadata) -> bool {
        let is_known = self.made.is_some() && made(file).is_some();
        self.inode == file.ino() && (!is_known || self.made == made(file))
    }

    /// It is of this file from now on, and of this directory, which is made.
    pub(super) fn is_of(&mut self, file: &Metadata, directory: &Path) -> Result<()> {
        make(directory)
            .map_err(|error| Error::of_io(format!("make {}", directory.display()), error))?;
        (self.inode, self.made, self.home) = (file.ino(), made(file), Home::of(directory));
        Ok(())
    }

    /// Whether the file was a part of the history that a leader record is of.
    pub(crate) fn is_of_history(&self, record: &Record) -> bool {
        self.lineage == record.lineage
    }

    /// Whether the file had the epoch of a leader record.
    pub(crate) fn is_held_by(&self, record: &Record) -> bool {
        self.is_of_history(record) && self.holders.contains(&record.holder)
    }

    /// The file beside `directory` is no primary's any more.
    pub(crate) fn forget(directory: &Path) -> Result<()> {
        let path = directory.join(NAME);
        let removed = fs::remove_file(&path);
        removed.map_err(|error| Error::of_io(format!("remove {}", path.display()), error))?;
        sync_directory(directory)
    }

    /// Puts it into `directory`, which is made, in place of the one before.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        write(directory, NAME, self)
    }

    /// Whether a file of this identity, with this WAL, is what comes right behind the chain.
    pub(super) fn follows(&self, file: &Metadata, wal: Option<Place>) -> bool {
        // A generation in which something was committed has a WAL.
        let is_settled =
            self.settled == Some(Identity::of(file)) && (self.current.is_none() || wal.is_some());
        let goes_on = |wal: Place| {
            let last = self.ends.last();
            self.current == Some(wal.salts)
                || last.is_some_and(|it| it.salts == wal.salts && it.end <= wal.end)
        };
        is_settled || wal.is_some_and(goes_on)
    }

    /// Whether the file may lack what was committed: it is not what comes right behind the chain,
    /// and not that of a crash either which came when its WAL was emptied, and before the file that
    /// has everything then was noted.
    pub(super) fn may_lack(&self, file: &Metadata, wal: Option<Place>) -> bool {
        let is_emptied = self.current.is_none() && self.settled.is_none() && wal.is_none();
        !(self.follows(file, wal) || is_emptied && self.is_file(file))
    }

    /// The WAL is about to be emptied, with everything in the database file.
    pub(super) fn empties(&mut self) {
        self.current = None;
        self.settled = None;
    }

    /// The chain goes on with this generation, of which that much is known.
    pub(super) fn end_at(&mut self, place: Place) {
        self.ends.retain(|end| end.salts != place.salts);
        self.ends.push(place);
        self.current = None;
    }

    /// The generation being written is over, and its end is unknown. A part of it may be archived.
    pub(super) fn leaves_current(&mut self) {
        if let Some(salts) = self.current {
            self.end_at(Place { salts, end: WAL_HEADER_BYTES });
        }
    }

    /// Forgets generations before the one that is archived up to `place`.
    pub(super) fn forget_before(&mut self, place: Place) {
        if let Some(at) = self.ends.iter().position(|end| end.salts == place.salts) {
            self.ends.drain(..at);
        } else if self.current == Some(place.salts) {
            self.ends.clear();
        }
    }

    /// What is behind `place` in the chain, generation by generation; `None` when the chain has no
    /// such place.
    pub(super) fn behind(&self, place: Option<Place>) -> Option<Vec<(Place, u64)>> {
        const START: u64 = WAL_HEADER_BYTES;
        let Some(place) = place else {
            return Some(self.ends.iter().map(|end| (*end, START)).collect());
        };
        let at = self.ends.iter().position(|end| end.salts == place.salts);
        let at = at.filter(|at| self.ends[*at].end >= place.end)?;
        let first = (self.ends[at].end > place.end).then_some((self.ends[at], place.end));
        let rest = self.ends[at + 1..].iter().map(|end| (*end, START));
        Some(first.into_iter().chain(rest).collect())
    }
}

/// Puts `record` into the file `name` in `directory`, which is made, in place of the one before.
pub(crate) fn write(directory: &Path, name: &str, record: &impl Serialize) -> Result<()> {
    let put = || {
        make(directory)?;
        let temporary = directory.join(format!("{name}.new"));
        let mut file = File::create(&temporary)?;
        give_to_owner_of(directory, &file);
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        fs::rename(temporary, directory.join(name))
    };
    put().map_err(|error: io::Error| {
        Error::of_io(format!("write {}/{name}", directory.display()), error)
    })?;
    sync_directory(directory)
}

/// Makes the directory beside a database, for the owner of the database alone.
pub(crate) fn make(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => {
            made?;
            give_to_owner_of(&database_of(directory), &File::open(directory)?);
            let parent = directory.parent().unwrap_or(Path::new("/"));
            File::open(parent)?.sync_all()
        }
    }
}

/// What is kept beside the database at `path`.
pub(crate) fn directory_of(path: &Path) -> PathBuf {
    with_ending(path, ARCHIVE)
}

/// The database beside which `directory` is.
fn database_of(directory: &Path) -> PathBuf {
    let name = directory.as_os_str().as_bytes();
    PathBuf::from(OsStr::from_bytes(name.strip_suffix(ARCHIVE.as_bytes()).unwrap_or(name)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn file_without_the_wal_of_its_generation_does_not_follow() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let meta = file.as_file().metadata().unwrap();
        let mut position = Position::new(Lineage::from_bits(1), &meta);
        position.settled = Some(Identity::of(&meta));
        let says = |position: &Position, wal| {
            (position.follows(&meta, wal), position.may_lack(&meta, wal))
        };
        assert_eq!(says(&position, None), (true, false), "it is as it was settled");
        // A generation was begun since; its WAL was removed.
        position.current = Some([1, 2]);
        assert_eq!(says(&position, None), (false, true));
        let wal = Place { salts: [1, 2], end: 4_152 };
        assert_eq!(says(&position, Some(wal)), (true, false));
        // It was being emptied when the process died: the file has everything, if it is that one.
        position.empties();
        assert_eq!(says(&position, None), (false, false));
        position.made = Some(1);
        assert_eq!(says(&position, None), (false, true), "its number is used again");
        (position.inode, position.made) = (position.inode + 1, None);
        assert_eq!(says(&position, None), (false, true));
    }
}
