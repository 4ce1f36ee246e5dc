//! Owns what can be in a slot: a group, or a fence.
//!
//! # Invariants
//! A slot is told from another by its length and the sum of its file: the sum covers the epoch, the
//! time, the TXID and every page, so no number of the upload is needed.

use std::sync::Arc;

use monolite_ltx::{
    BaseChecksum, Checksum, Encoder, Footer, Header, PageSize, Timestamp, Txid, TxidRange, WalSpan,
};

use crate::error::{Error, Result};
use crate::file::{ArchivedFile, header};
use crate::layout::Level;
use crate::record::Epoch;

/// What tells the content of one slot from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId {
    /// Length of the file in bytes.
    pub len: u64,
    /// The sum at its end.
    pub sum: Checksum,
}

/// A file for a slot, encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    bytes: Arc<[u8]>,
    header: Header,
    id: SlotId,
}

impl Slot {
    /// Length of a fence in bytes, the shortest that a file can have: it has no pages.
    pub const FENCE_LEN: u64 = 131;

    /// A file that was just encoded. Header and trailer are read, the sum is not computed again.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when it is no file of one TXID from 2 on.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Result<Slot> {
        let bytes = bytes.into();
        let found = Found::read("a slot", &bytes, &bytes, bytes.len() as u64)?;
        let txids = found.header.txids;
        if txids.is_snapshot() || txids != TxidRange::single(txids.min()) {
            return Err(Error::invalid(format!(
                "{txids} is no slot, which has one TXID from 2 on"
            )));
        }
        Ok(Slot { bytes, header: found.header, id: found.id })
    }

    /// The fence of `epoch`: a file without pages, which says the size of the database again.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when there cannot be such a file.
    pub fn fence(epoch: Epoch, txid: Txid, place: Place) -> Result<Slot> {
        let header = Header {
            page_size: place.page_size,
            commit: place.commit,
            txids: TxidRange::single(txid),
            timestamp: place.time,
            base: BaseChecksum::Untracked,
            // Litestream, taking over, fails for ever on a place of 0.
            wal: Some(WalSpan { offset: 32, size: 0, salts: [0; 2] }),
            node_id: epoch.0,
        };
        let encoder = Encoder::new(Vec::new(), header);
        let written = encoder.and_then(|encoder| encoder.finish(None));
        let written = written.map_err(|error| Error::of_ltx(format!("fence {txid}"), error))?;
        assert_eq!(written.len, Slot::FENCE_LEN, "a fence is known by its length");
        Slot::new(written.output)
    }

    /// The file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What it begins with.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Its number.
    pub fn txid(&self) -> Txid {
        self.header.txids.min()
    }

    /// Who wrote it.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.header.node_id)
    }

    /// What tells it from others.
    pub fn id(&self) -> SlotId {
        self.id
    }

    /// The file that it is once it is filled, for
    /// [`Catalog::insert`](crate::internals::Catalog::insert).
    pub fn file(&self) -> ArchivedFile {
        ArchivedFile { level: Level::SLOTS, txids: self.header.txids, len: self.id.len }
    }
}

/// The state that a fence says again: that after the slot below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Size of the database's pages.
    pub page_size: PageSize,
    /// Size of the database in pages.
    pub commit: u32,
    /// The time of the fence.
    pub time: Timestamp,
}

impl Place {
    /// After a file of this header, at a time later than its own and not before `now`.
    pub(crate) fn after(header: &Header, now: Timestamp) -> Place {
        let later = header.timestamp.millis().saturating_add(1).max(now.millis());
        let (page_size, commit) = (header.page_size, header.commit);
        Place { page_size, commit, time: Timestamp::from_millis(later) }
    }
}

/// What was found in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it begins with.
    pub header: Header,
    /// What tells it from others.
    pub id: SlotId,
}

impl Found {
    /// By the first bytes of the file `key`, its last ones, and its length.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) when they are of no file.
    pub(crate) fn read(key: &str, first: &[u8], last: &[u8], len: u64) -> Result<Found> {
        let header = header(key, first)?;
        let short = || Error::corrupt(format!("{key:?} has {len} bytes and is no file"));
        let footer = last.last_chunk().ok_or_else(short)?;
        let footer = Footer::decode(footer, &header, len);
        let footer = footer.map_err(|error| Error::of_ltx(key, error))?;
        Ok(Found { header, id: SlotId { len, sum: footer.trailer().file } })
    }

    /// Who wrote it.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.header.node_id)
    }

    /// Whether it has no pages.
    pub fn is_fence(&self) -> bool {
        self.id.len == Slot::FENCE_LEN
    }
}

#[cfg(test)]
mod tests;
