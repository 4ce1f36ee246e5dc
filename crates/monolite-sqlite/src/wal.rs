//! Owns the reading of a WAL file as a file: what SQLite's recovery leaves of it unused.
//!
//! # Format
//! A header of [`WAL_HEADER_BYTES`], then frames, each a header of [`FRAME_HEADER_BYTES`] and a
//! page. Numbers are big-endian. The WAL header: magic (its last bit tells the order of the summed
//! words), version, page size, sequence number, two salts, and the sums over those 24 bytes. A
//! frame header: page number, database size (not zero in the last frame of a commit), the two
//! salts, and the sums over everything before it in the WAL that is summed, its first eight bytes
//! and its page. Salts tell the frames of this generation from those of earlier ones, which are
//! overwritten from the start; each generation's first salt is the one before plus one.
//!
//! # Algorithm
//! Recovery accepts frames up to the last commit before the first one that is wrong. What lies
//! behind is read here, one slot of a frame after another:
//! 1. While frames are right they are followed; a commit among them was accepted, too (another
//!    process may have written it meanwhile).
//! 2. Of the rest, a slot of zeros was never written, and one with an older salt belongs to an
//!    earlier generation. Everything else counts as discarded.
//!
//! # Not here
//! A judgement. The file looks the same after a power cut that tore an unacknowledged commit as
//! after damage to an acknowledged one.

mod frames;
mod marker;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

pub use frames::{Frame, Frames, WalReader};
pub use marker::MARKER_BYTES;
pub(crate) use marker::marker_page;

use crate::fletcher::{Order, Sums};

/// The size of the header of a WAL file.
pub const WAL_HEADER_BYTES: u64 = 32;

/// The size of the header of each frame in it.
pub const FRAME_HEADER_BYTES: u64 = 24;

/// A WAL's first bytes; the next one tells the order of the summed words.
const MAGIC: [u8; 3] = [0x37, 0x7f, 0x06];

/// How far behind a salt may be to be that of an earlier generation.
const OLD_GENERATIONS: u32 = 1 << 20;

/// What recovery leaves unused of a WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// So many frames of the current generation, behind the last commit that was accepted.
    Frames(u64),
    /// All of it: its header is damaged, and there are frames behind it.
    DamagedHeader,
}

/// Looks at what follows the first `accepted` frames of the WAL `file`, those that SQLite's
/// recovery took. The file must not be written meanwhile.
///
/// # Errors
/// Those of reading the file.
pub fn leftover(file: &File, accepted: u32) -> io::Result<Leftover> {
    let mut header = [0; WAL_HEADER_BYTES as usize];
    if !read_whole(file, &mut header, 0)? {
        return Ok(Leftover::Frames(0));
    }
    let (order, page_bytes) = (order_of(&header), page_bytes_of_wal(&header));
    let is_valid = page_bytes.is_some() && is_summed(&header);
    if accepted == 0 && !is_valid {
        let is_empty = is_zero_behind_header(file)?;
        return Ok(if is_empty { Leftover::Frames(0) } else { Leftover::DamagedHeader });
    }
    let Some(page_bytes) = page_bytes else { return Ok(Leftover::Frames(0)) };
    let mut tail = Tail {
        file,
        order,
        salts: salts_at(&header, 16),
        sums: Some(sums_at(&header, 24)),
        slot: vec![0; FRAME_HEADER_BYTES as usize + page_bytes],
    };
    if let Some(last) = u64::from(accepted).checked_sub(1) {
        if !tail.load(last)? {
            return Ok(Leftover::Frames(0));
        }
        tail.salts = salts_at(&tail.slot, 8);
        tail.sums = Some(sums_at(&tail.slot, 16));
    }
    tail.count(u64::from(accepted)).map(Leftover::Frames)
}

/// The frames behind those that were accepted.
struct Tail<'f> {
    file: &'f File,
    order: Order,
    /// Those of this generation.
    salts: [u32; 2],
    /// The sums up to the slot that is looked at, while every frame was right.
    sums: Option<Sums>,
    /// That slot.
    slot: Vec<u8>,
}

impl Tail<'_> {
    /// Reads slot `number`; `false` when the file ends before its end.
    fn load(&mut self, number: u64) -> io::Result<bool> {
        let at = WAL_HEADER_BYTES + number * self.slot.len() as u64;
        read_whole(self.file, &mut self.slot, at)
    }

    fn count(&mut self, from: u64) -> io::Result<u64> {
        let mut discarded = 0;
        for number in from.. {
            if !self.load(number)? {
                break;
            }
            let follows = self.follow();
            let is_right = follows && salts_at(&self.slot, 8) == self.salts;
            if is_right && number_at(&self.slot, 4) != 0 {
                discarded = 0;
            } else if follows || self.counts() {
                discarded += 1;
            }
            if !is_right {
                self.sums = None;
            }
        }
        Ok(discarded)
    }

    /// Whether the sums of the frame in the slot are right. They do not include the salts.
    fn follow(&mut self) -> bool {
        let (header, page) = self.slot.split_at(FRAME_HEADER_BYTES as usize);
        let sums = self.sums.map(|sums| sums.over(&header[..8], self.order).over(page, self.order));
        self.sums = sums;
        sums == Some(sums_at(&self.slot, 16))
    }

    /// Whether the slot holds something that is not of an earlier generation.
    fn counts(&self) -> bool {
        let age = self.salts[0].wrapping_sub(number_at(&self.slot, 8));
        !(1..OLD_GENERATIONS).contains(&age) && self.slot.iter().any(|byte| *byte != 0)
    }
}

pub(crate) fn number_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn salts_at(bytes: &[u8], at: usize) -> [u32; 2] {
    [number_at(bytes, at), number_at(bytes, at + 4)]
}

fn sums_at(bytes: &[u8], at: usize) -> Sums {
    Sums::from_wal(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The size of the pages in a WAL with this header.
pub(crate) fn page_bytes_of_wal(header: &[u8]) -> Option<usize> {
    let bytes = number_at(header, 8) as usize;
    (bytes.is_power_of_two() && (512..=65_536).contains(&bytes)).then_some(bytes)
}

fn order_of(header: &[u8]) -> Order {
    if header[3] & 1 == 0 { Order::Little } else { Order::Big }
}

/// Whether it is the header of a WAL, and its sums are right.
fn is_summed(header: &[u8]) -> bool {
    let sums = Sums::default().over(&header[..24], order_of(header));
    header[..3] == MAGIC && sums == sums_at(header, 24)
}

/// `false` when the file ends first.
fn read_whole(file: &File, buf: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(buf, at) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_zero_behind_header(file: &File) -> io::Result<bool> {
    let mut piece = [0; 8_192];
    let mut at = WAL_HEADER_BYTES;
    loop {
        match file.read_at(&mut piece, at)? {
            0 => return Ok(true),
            len if piece[..len].iter().any(|byte| *byte != 0) => return Ok(false),
            len => at += len as u64,
        }
    }
}
