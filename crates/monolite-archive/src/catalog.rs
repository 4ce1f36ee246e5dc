//! Owns the list of an archive's files: which are there, and which of them count.
//!
//! # Algorithm
//! Levels are listed from the slots upwards, and the record after the slots. A file that is merged
//! and deleted meanwhile was listed before, or its successor is; a group that was listed is behind
//! fences that the record lists by then.
//!
//! A fence that the record does not list is passed over: a claimant that gave up left it, perhaps
//! where a slot had been compacted and deleted.

use monolite_ltx::{Header, Timestamp, Txid, TxidRange};

use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Layout, Level};
use crate::record::Record;
use crate::requests::leader;
use crate::slot::Slot;
use crate::store::{Part, Store};

/// The most files of an archive that are listed: some hundred bytes each in memory.
const FILES: usize = 4 << 20;

/// A file of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArchivedFile {
    /// Where it is.
    pub level: Level,
    /// What it has.
    pub txids: TxidRange,
    /// Its length in bytes.
    pub len: u64,
}

impl ArchivedFile {
    /// What it begins with.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) when it is gone; [`Corrupt`](ErrorKind::Corrupt) when it
    /// is no file of these TXIDs; those of the store.
    pub fn header(&self, store: &dyn Store, layout: &Layout) -> Result<Header> {
        let key = layout.file(self.level, self.txids);
        let part = Part::Range(0..Header::LEN as u64);
        let object = store.get(&key, part)?.ok_or_else(|| self.vanished(layout))?;
        let bytes = object.bytes.first_chunk();
        let bytes = bytes.ok_or_else(|| Error::corrupt(format!("{key:?} is too short")))?;
        let header = Header::decode(bytes).map_err(|error| Error::of_ltx(&key, error))?;
        self.must_have(&header, layout)?;
        Ok(header)
    }

    /// Whether its header says the TXIDs that its name says.
    pub(crate) fn must_have(&self, header: &Header, layout: &Layout) -> Result<()> {
        if header.txids != self.txids {
            let (key, is) = (layout.file(self.level, self.txids), header.txids);
            return Err(Error::corrupt(format!("{key:?} has the TXIDs {is}")));
        }
        Ok(())
    }

    pub(crate) fn vanished(&self, layout: &Layout) -> Error {
        let key = layout.file(self.level, self.txids);
        Error::new(ErrorKind::NotFound, format!("{key:?} is gone"))
    }
}

/// The files of an archive that count.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// By level, then by TXIDs.
    files: Vec<ArchivedFile>,
}

impl Catalog {
    /// Lists an archive.
    ///
    /// # Errors
    /// Those of the store; those of [`Record::decode`]; [`Corrupt`](ErrorKind::Corrupt) when there
    /// are too many files.
    pub fn read(store: &dyn Store, layout: &Layout) -> Result<Catalog> {
        let mut files = Vec::new();
        for level in Level::all() {
            list(store, layout, level, &mut files)?;
            if level == Level::SLOTS
                && let Some(record) = leader(store, layout)?
            {
                files.retain(|file| counts(&record, file));
            }
        }
        Ok(Catalog::of(files))
    }

    /// Of files that are known.
    pub(crate) fn of(mut files: Vec<ArchivedFile>) -> Catalog {
        files.sort_by_key(|file| (file.level, file.txids.min(), file.txids.max()));
        Catalog { files }
    }

    /// All, by level and then by TXIDs.
    pub fn files(&self) -> &[ArchivedFile] {
        &self.files
    }

    /// Those of one level, by TXIDs.
    pub fn level(&self, level: Level) -> &[ArchivedFile] {
        let start = self.files.partition_point(|file| file.level < level);
        let end = self.files.partition_point(|file| file.level <= level);
        &self.files[start..end]
    }

    /// The newest TXID; `None` when there are no files.
    pub fn newest(&self) -> Option<Txid> {
        self.files.iter().map(|file| file.txids.max()).max()
    }

    /// The newest TXID whose file has a time *before* `time`, as Litestream takes it; `None` when
    /// all are later. Times rise with TXIDs, so in each level some headers are read.
    ///
    /// # Errors
    /// Those of [`ArchivedFile::header`].
    pub fn newest_before(
        &self,
        time: Timestamp,
        store: &dyn Store,
        layout: &Layout,
    ) -> Result<Option<Txid>> {
        let mut newest = None;
        for level in Level::all() {
            let earlier = count_before(self.level(level), time, store, layout)?;
            let of_level = self.level(level)[..earlier].last();
            newest = newest.max(of_level.map(|file| file.txids.max()));
        }
        Ok(newest)
    }
}

/// How many of `files`, which are of one level, have a time before `time`.
pub(crate) fn count_before(
    files: &[ArchivedFile],
    time: Timestamp,
    store: &dyn Store,
    layout: &Layout,
) -> Result<usize> {
    let (mut low, mut high) = (0, files.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if files[middle].header(store, layout)?.timestamp < time {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// Whether a slot is no fence, or one that is history. Of fences before all that are known nobody
/// knows any more; they are old, and those that were garbage have been covered since.
fn counts(record: &Record, slot: &ArchivedFile) -> bool {
    let txid = slot.txids.min();
    slot.len > Slot::FENCE_LEN
        || record.owner(txid).is_none()
        || record.fences.iter().any(|fence| fence.slot == txid)
}

fn list(
    store: &dyn Store,
    layout: &Layout,
    level: Level,
    files: &mut Vec<ArchivedFile>,
) -> Result<()> {
    let (prefix, mut after) = (layout.level(level), None::<String>);
    loop {
        let listing = store.list(&prefix, after.as_deref())?;
        let of_files = listing.objects.iter().filter_map(|object| {
            let txids = Layout::txids(&object.key)?;
            Some(ArchivedFile { level, txids, len: object.len })
        });
        files.extend(of_files);
        if files.len() > FILES {
            return Err(Error::corrupt(format!("more than {FILES} files in the archive")));
        }
        after = match listing.objects.last() {
            Some(last) if listing.is_cut => Some(last.key.clone()),
            _ => return Ok(()),
        };
    }
}
