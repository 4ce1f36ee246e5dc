//! Owns the first 100 bytes of a file and the last 16, and what must hold in them.
//!
//! # Format
//! Integers are big-endian.
//!
//! | at | bytes | header |
//! |---|---|---|
//! | 0 | 4 | `LTX1`; nothing on disk says that it is version 3 |
//! | 4 | 4 | flags: 0x2, no database checksums are kept; no other is known |
//! | 8 | 4 | page size |
//! | 12 | 4 | the database's size in pages once the file is applied |
//! | 16, 24 | 8, 8 | first and last TXID |
//! | 32 | 8 | time in milliseconds since 1970, signed |
//! | 40 | 8 | checksum of the database before; 0 if none is kept, and in a snapshot |
//! | 48, 56 | 8, 8 | where in the WAL this was, and how long, signed but never negative |
//! | 64, 68 | 4, 4 | salts of that WAL; they and the length are 0 if the place is |
//! | 72 | 8 | number of the node that wrote it |
//! | 80 | 20 | zero; a reader passes over them |
//!
//! | at | bytes | trailer |
//! |---|---|---|
//! | 0 | 8 | checksum of the database afterwards; 0 if none is kept |
//! | 8 | 8 | checksum of the file |
//!
//! The source is `superfly/ltx` v0.5.2, `ltx.go`: `Header.Validate` and `Trailer.Validate`.

use crate::checksum::Checksum;
use crate::error::{Error, ErrorKind, Result};
use crate::page::{PageOrder, PageSize, Pgno};
use crate::timestamp::Timestamp;
use crate::txid::{Txid, TxidRange};

const MAGIC: &[u8; 4] = b"LTX1";
/// Of the version that encrypts, which `superfly/ltx` has not released yet.
const MAGIC_V4: &[u8; 4] = b"LTX4";

const FLAG_NO_CHECKSUM: u32 = 0x2;
/// Of that version, too.
const FLAG_ENCRYPTED: u32 = 0x4;

/// Whether a file keeps checksums of the whole database, and the one before it.
///
/// Litestream writes [`Untracked`](BaseChecksum::Untracked) files, and compacts no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BaseChecksum {
    /// It keeps none: the flag `NoChecksum`.
    Untracked,
    /// It keeps them and is a snapshot, before which there was no database.
    Snapshot,
    /// It keeps them, and this is that of the database to which it is applied.
    Database(Checksum),
}

/// The part of a WAL that a file was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WalSpan {
    /// Where it begins in the WAL file, in bytes: 1 … 2⁶³ − 1. Litestream goes on from its end, and
    /// demands at least the 32 bytes of a WAL's header.
    pub offset: u64,
    /// Its length in bytes: 0 … 2⁶³ − 1.
    pub size: u64,
    /// The salts in the header of that WAL.
    pub salts: [u32; 2],
}

/// What a file says of itself at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Size of the database's pages.
    pub page_size: PageSize,
    /// Size of the database in pages once the file is applied: 0 … 2³² − 2.
    pub commit: u32,
    /// The transactions of the file. From the first on it is a snapshot, with all pages.
    pub txids: TxidRange,
    /// When the last of them was committed.
    pub timestamp: Timestamp,
    /// Whether the file keeps checksums of the database.
    pub base: BaseChecksum,
    /// What it was made of, if that is known; compaction drops it.
    pub wal: Option<WalSpan>,
    /// Who wrote it, 0 if that does not matter; compaction drops it.
    pub node_id: u64,
}

impl Header {
    /// Length of a header in bytes.
    pub const LEN: usize = 100;

    /// Those that its fields have.
    const FIELDS: usize = 80;

    /// Whether the file has every page of the database: it begins with the first transaction.
    pub fn is_snapshot(&self) -> bool {
        self.txids.is_snapshot()
    }

    /// Whether the file keeps checksums of the database.
    pub fn is_tracked(&self) -> bool {
        self.base != BaseChecksum::Untracked
    }

    /// The header as it is stored.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when its parts contradict each other: a snapshot with the
    /// checksum of a database before it or a file that is none without; a size of more than
    /// 2³² − 2 pages; a [`WalSpan`] out of its ranges.
    pub fn encode(&self) -> Result<[u8; Header::LEN]> {
        self.check().map_err(Error::invalid)?;
        let flags = if self.is_tracked() { 0 } else { FLAG_NO_CHECKSUM };
        let wal = self.wal.unwrap_or(WalSpan { offset: 0, size: 0, salts: [0; 2] });
        let base = match self.base {
            BaseChecksum::Database(checksum) => checksum.bits(),
            BaseChecksum::Untracked | BaseChecksum::Snapshot => 0,
        };
        let mut bytes = Vec::with_capacity(Header::LEN);
        bytes.extend_from_slice(MAGIC);
        for word in [flags, self.page_size.get(), self.commit] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        for long in [self.txids.min().get(), self.txids.max().get()] {
            bytes.extend_from_slice(&long.to_be_bytes());
        }
        bytes.extend_from_slice(&self.timestamp.millis().to_be_bytes());
        for long in [base, wal.offset, wal.size] {
            bytes.extend_from_slice(&long.to_be_bytes());
        }
        for word in wal.salts {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.extend_from_slice(&self.node_id.to_be_bytes());
        assert_eq!(bytes.len(), Header::FIELDS, "the fields are as the format has them");
        let mut header = [0; Header::LEN];
        header[..bytes.len()].copy_from_slice(&bytes);
        Ok(header)
    }

    /// The header that `bytes` are. It proves nothing about the rest of the file.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for the magic of version 4 and for unknown flags,
    /// [`Corrupt`](ErrorKind::Corrupt) for everything that breaks a rule of the format.
    pub fn decode(bytes: &[u8; Header::LEN]) -> Result<Header> {
        let mut fields = Fields { bytes, at: 0 };
        let magic = fields.take::<4>();
        if magic == *MAGIC_V4 {
            let message = "a file of LTX version 4, which may be encrypted; this reads version 3";
            return Err(Error::new(ErrorKind::Unsupported, message).at(0));
        }
        if magic != *MAGIC {
            let message = format!("no LTX file: it begins with {}", magic.escape_ascii());
            return Err(Error::corrupt(0, message));
        }
        let flags = fields.u32();
        known_flags(flags)?;
        let page_size = PageSize::new(fields.u32()).map_err(|error| error.of_data().at(8))?;
        let commit = fields.u32();
        let txids = txids(fields.u64(), fields.u64())?;
        let timestamp = Timestamp::from_millis(i64::from_be_bytes(fields.take()));
        let base = base(flags, txids, fields.u64())?;
        let wal = wal_span(fields.u64(), fields.u64(), [fields.u32(), fields.u32()])?;
        let node_id = fields.u64();
        let header = Header { page_size, commit, txids, timestamp, base, wal, node_id };
        header.check().map_err(|message| Error::corrupt(0, message))?;
        Ok(header)
    }

    /// What must hold between the parts.
    fn check(&self) -> Result<(), String> {
        if self.commit > Pgno::MAX.get() {
            return Err(format!(
                "a size of {} pages; at most {} are possible",
                self.commit,
                Pgno::MAX
            ));
        }
        match self.base {
            BaseChecksum::Snapshot if !self.is_snapshot() => {
                return Err(format!(
                    "{} is no snapshot and needs a checksum before it",
                    self.txids
                ));
            }
            BaseChecksum::Database(_) if self.is_snapshot() => {
                return Err(format!("{} is a snapshot; nothing was before it", self.txids));
            }
            _ => {}
        }
        match self.wal {
            Some(wal) if !(1..1 << 63).contains(&wal.offset) || wal.size >= 1 << 63 => {
                Err(format!("{} bytes of a WAL at its byte {}", wal.size, wal.offset))
            }
            _ => Ok(()),
        }
    }

    /// The order in which the pages must come.
    pub(crate) fn page_order(&self) -> PageOrder {
        PageOrder::new(self.page_size, self.commit, self.is_snapshot())
    }
}

fn known_flags(flags: u32) -> Result<()> {
    let unknown = flags & !FLAG_NO_CHECKSUM;
    let message = match unknown {
        0 => return Ok(()),
        FLAG_ENCRYPTED => format!("the flag {unknown:#x}, an encrypted file; this reads none"),
        _ => format!("the flags {unknown:#x}, which version 3 does not have"),
    };
    Err(Error::new(ErrorKind::Unsupported, message).at(4))
}

fn txids(min: u64, max: u64) -> Result<TxidRange> {
    let range = Txid::new(min).zip(Txid::new(max));
    let range = range.and_then(|(min, max)| TxidRange::new(min, max).ok());
    range.ok_or_else(|| Error::corrupt(16, format!("TXIDs from {min:016x} to {max:016x}")))
}

fn base(flags: u32, txids: TxidRange, bits: u64) -> Result<BaseChecksum> {
    let refused = |why: &str| Err(Error::corrupt(40, format!("the checksum {bits:016x} {why}")));
    match (flags & FLAG_NO_CHECKSUM != 0, txids.is_snapshot(), bits) {
        (true, _, 0) => Ok(BaseChecksum::Untracked),
        (false, true, 0) => Ok(BaseChecksum::Snapshot),
        (true, ..) => refused("of the database before, in a file that keeps none"),
        (false, true, _) => refused("of the database before a snapshot"),
        (false, false, bits) => match Checksum::from_bits(bits) {
            Some(checksum) => Ok(BaseChecksum::Database(checksum)),
            None => refused("of the database before, whose bit 63 is not set"),
        },
    }
}

fn wal_span(offset: u64, size: u64, salts: [u32; 2]) -> Result<Option<WalSpan>> {
    match (offset, size, salts) {
        (0, 0, [0, 0]) => Ok(None),
        (0, ..) => Err(Error::corrupt(48, "a size or salts of a WAL without a place in it")),
        _ => Ok(Some(WalSpan { offset, size, salts })),
    }
}

/// Reads one field after the other. What it reads is within the header by its type.
struct Fields<'a> {
    bytes: &'a [u8; Header::LEN],
    at: usize,
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let field = self.bytes[self.at..].first_chunk::<N>().expect("the fields have 80 bytes");
        self.at += N;
        *field
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }
}

/// What a file says at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Trailer {
    /// The checksum of the database once the file is applied; `None` if none is kept.
    pub database: Option<Checksum>,
    /// The checksum of the file: of its header, the headers and *uncompressed* content of its
    /// pages, its index, and the checksum of the database.
    pub file: Checksum,
}

impl Trailer {
    /// Length of a trailer in bytes.
    pub const LEN: usize = 16;

    pub(crate) fn encode(&self) -> [u8; Trailer::LEN] {
        assert!(Checksum::from_bits(self.file.bits()).is_some(), "a sum has bit 63 set");
        let mut bytes = [0; Trailer::LEN];
        bytes[..8].copy_from_slice(&Checksum::bits_of(self.database).to_be_bytes());
        bytes[8..].copy_from_slice(&self.file.bits().to_be_bytes());
        bytes
    }

    /// The trailer that `bytes` are, of a file that begins with `header` and in which it is at
    /// `offset`.
    pub(crate) fn decode(
        bytes: [u8; Trailer::LEN],
        header: &Header,
        offset: u64,
    ) -> Result<Trailer> {
        let (halves, _) = bytes.as_chunks::<8>();
        let [database, file] = [u64::from_be_bytes(halves[0]), u64::from_be_bytes(halves[1])];
        let refused = |offset, bits: u64, why: &str| {
            Error::corrupt(offset, format!("the checksum {bits:016x} of the {why}"))
        };
        let of_database = Checksum::from_bits(database);
        if header.is_tracked() && of_database.is_none() {
            return Err(refused(offset, database, "database, whose bit 63 is not set"));
        }
        if !header.is_tracked() && database != 0 {
            return Err(refused(offset, database, "database, in a file that keeps none"));
        }
        if header.is_tracked() && header.commit == 0 && database != Checksum::EMPTY_DATABASE.bits()
        {
            return Err(refused(offset, database, "database, which is empty"));
        }
        let Some(file) = Checksum::from_bits(file) else {
            return Err(refused(offset + 8, file, "file, whose bit 63 is not set"));
        };
        Ok(Trailer { database: of_database, file })
    }
}

#[cfg(test)]
mod tests;
