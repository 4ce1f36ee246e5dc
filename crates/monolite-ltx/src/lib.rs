//! LTX, the format in which [Litestream](https://litestream.io) v0.5 keeps the history of a SQLite
//! database: reads and writes version 3, and merges files.
//!
//! A file has the pages that some transactions changed, as they were after the last of them, and
//! the size of the database then. A file that begins with transaction 1 is a *snapshot*: it has all
//! pages. Applied in order, files give the database of any moment between two of them.
//!
//! Nothing here opens a file or a socket, waits, or starts a thread: bytes come from a
//! [`Read`](std::io::Read) and go to a [`Write`](std::io::Write). No input makes it panic or
//! allocate more than a few pages.
//!
//! ```
//! use monolite_ltx::{BaseChecksum, Decoder, Encoder, Header, PageSize, Pgno, Timestamp, Txid};
//! use monolite_ltx::{TxidRange, compact, verify};
//!
//! # fn main() -> monolite_ltx::Result<()> {
//! let header = |txid, commit| Header {
//!     page_size: PageSize::new(4096).unwrap(),
//!     commit,
//!     txids: TxidRange::single(Txid::new(txid).unwrap()),
//!     timestamp: Timestamp::from_millis(1_700_000_000_000),
//!     base: BaseChecksum::Untracked,
//!     wal: None,
//!     node_id: 0,
//! };
//! let page = |number| Pgno::new(number).unwrap();
//!
//! // Transaction 1 made a database of two pages, 2 changed one and added another.
//! let mut encoder = Encoder::new(Vec::new(), header(1, 2))?;
//! encoder.page(page(1), &[1; 4096])?;
//! encoder.page(page(2), &[2; 4096])?;
//! let snapshot = encoder.finish(None)?.output;
//! let mut encoder = Encoder::new(Vec::new(), header(2, 3))?;
//! encoder.page(page(2), &[20; 4096])?;
//! encoder.page(page(3), &[30; 4096])?;
//! let change = encoder.finish(None)?.output;
//! assert_eq!(verify(&change[..])?.pages, 2);
//!
//! // Both in one file, and the database in it.
//! let merged = compact([&snapshot[..], &change[..]], Vec::new())?;
//! assert_eq!(merged.header.txids.file_name(), "0000000000000001-0000000000000002.ltx");
//! let mut decoder = Decoder::new(&merged.output[..])?;
//! let mut database = Vec::new();
//! while let Some(page) = decoder.next_page()? {
//!     database.push(page.data[0]);
//! }
//! assert_eq!(database, [1, 20, 30]);
//! # Ok(())
//! # }
//! ```
//!
//! # Format
//! The headers of the modules have it to the byte: a [`Header`] of 100 bytes, pages as LZ4 blocks
//! in the order of their numbers, six zeros, an index of the pages, a [`Trailer`] of 16 bytes. The
//! source is [`superfly/ltx`](https://github.com/superfly/ltx) v0.5.2, the version in Litestream
//! v0.5.18, against which the tests compare in both ways.
//!
//! # Not here
//! Where files lie and which of them a restore needs; locks and leases; version 4, which is not
//! released and is refused by name; version 2, which no Litestream of v0.5 wrote and which its
//! first bytes do not tell apart (its pages have no flags, so reading one fails).

#![forbid(unsafe_code)]

// From above to below: what is done with files, the parts of one, and numbers.
mod compaction;

mod decoder;
mod encoder;
mod source;

mod frame;
mod header;
mod index;

mod checksum;
mod error;
mod page;
mod timestamp;
mod txid;

pub use checksum::{Checksum, DatabaseChecksum};
pub use compaction::compact;
pub use decoder::{Decoder, Page, Position, Verified, verify};
pub use encoder::{Encoder, Written};
pub use error::{Error, ErrorKind, Result};
pub use header::{BaseChecksum, Header, Trailer, WalSpan};
pub use index::Footer;
pub use page::{PageSize, Pgno};
pub use timestamp::Timestamp;
pub use txid::{Txid, TxidRange};
