//! Owns one file of an archive: where it is and what it begins with; and the list of a level.

use monolite_ltx::{Header, TxidRange};

use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Layout, Level};
use crate::store::{Fetched, Part, Store};

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
    pub(crate) fn key(&self, layout: &Layout) -> String {
        layout.file(self.level, self.txids)
    }

    /// What it begins with.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) when it is gone; [`Corrupt`](ErrorKind::Corrupt) when it
    /// is no file of these TXIDs; those of the store.
    pub fn header(&self, store: &dyn Store, layout: &Layout) -> Result<Header> {
        let key = self.key(layout);
        let read = || {
            let object = beginning(store, &key)?.ok_or_else(|| vanished(&key))?;
            let header = header(&key, &object.bytes)?;
            self.must_have(&header, layout)?;
            Ok(header)
        };
        read().map_err(|error: Error| error.of_file(*self))
    }

    /// Whether its header says the TXIDs that its name says.
    pub(crate) fn must_have(&self, header: &Header, layout: &Layout) -> Result<()> {
        if header.txids != self.txids {
            let (key, is) = (self.key(layout), header.txids);
            return Err(Error::corrupt(format!("{key:?} has the TXIDs {is}")));
        }
        Ok(())
    }
}

impl Error {
    /// The same, of reading this file.
    pub(crate) fn of_file(self, file: ArchivedFile) -> Error {
        self.reading((file.level.get(), file.txids, file.len))
    }

    /// The file of the archive that is damaged or gone, if that is what is wrong.
    pub(crate) fn lost_file(&self) -> Option<ArchivedFile> {
        let (level, txids, len) = self.lost()?;
        Some(ArchivedFile { level: Level::new(level)?, txids, len })
    }
}

/// That a file which was listed is not there.
pub(crate) fn vanished(key: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("{key:?} is gone"))
}

/// The bytes of a file that its header is; `None` when it is not there.
pub(crate) fn beginning(store: &dyn Store, key: &str) -> Result<Option<Fetched>> {
    store.get(key, Part::Range(0..Header::LEN as u64))
}

/// The header of a file that begins with `bytes`; `what` names it.
pub(crate) fn header(what: &str, bytes: &[u8]) -> Result<Header> {
    let short = || Error::corrupt(format!("{what:?} has {} bytes and is no file", bytes.len()));
    let bytes = bytes.first_chunk().ok_or_else(short)?;
    Header::decode(bytes).map_err(|error| Error::of_ltx(what, error))
}

/// Lists the files of a level, in the order of their names. An error of `each` ends it.
pub(crate) fn each_file(
    store: &dyn Store,
    layout: &Layout,
    level: Level,
    mut each: impl FnMut(ArchivedFile) -> Result<()>,
) -> Result<()> {
    let (prefix, mut after) = (layout.level(level), None::<String>);
    loop {
        let listing = store.list(&prefix, after.as_deref())?;
        for object in &listing.objects {
            if let Some(txids) = Layout::txids(&object.key) {
                each(ArchivedFile { level, txids, len: object.len })?;
            }
        }
        after = match listing.objects.last() {
            Some(last) if listing.is_cut => Some(last.key.clone()),
            _ => return Ok(()),
        };
    }
}
