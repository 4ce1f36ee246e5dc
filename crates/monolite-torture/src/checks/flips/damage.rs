//! Owns what is done to a file: which bytes of it change, drawn from a case's seed.
//!
//! # Algorithm
//! Nine cases of ten flip one bit, in a place drawn by region: the headers of the database, of its
//! pages, of the WAL and of its frames, and the checksums are small and would hardly be met by
//! chance. One case of ten does what disks do besides: some bits, eight bytes, or a sector of 512
//! that is zeroed, or has the content of another one, or is noise.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use monolite_testkit::storage::wal_beside;

use super::sample::Image;

const PAGE: usize = 4_096;
const FRAME: usize = PAGE + 24;
const WAL_HEADER: usize = 32;
const SECTOR: usize = 512;

/// Of so many cases one does more than flip a bit.
const OTHERS: u64 = 10;

/// What is done to which file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) image: Image,
    in_wal: bool,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// Bits of the file, by their number.
    Flip(Vec<usize>),
    /// Bytes that are put somewhere.
    Put { at: usize, bytes: Vec<u8>, why: &'static str },
}

/// Whether the case with this seed flips a single bit.
pub(super) fn is_single(seed: u64) -> bool {
    seed % OTHERS != OTHERS - 1
}

impl Damage {
    /// Draws what the case with this seed does to the image at one of `paths`.
    pub(super) fn draw(seed: u64, path: impl Fn(Image) -> PathBuf) -> Result<Damage> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (image, in_wal) = match rng.u8(..20) {
            0..9 => (Image::Closed, false),
            9..12 => (Image::Live, false),
            _ => (Image::Live, true),
        };
        let bytes = fs::read(file(&path(image), in_wal))?;
        let place = if in_wal { place_in_wal } else { place_in_database };
        let what = if is_single(seed) {
            What::Flip(vec![place(&mut rng, bytes.len()) * 8 + rng.usize(..8)])
        } else {
            other(&mut rng, &bytes, place)
        };
        Ok(Damage { image, in_wal, what })
    }

    /// Does it to the copy of the image at `path`.
    pub(super) fn apply(&self, path: &Path) -> Result<()> {
        let path = file(path, self.in_wal);
        let mut bytes = fs::read(&path)?;
        match &self.what {
            What::Flip(bits) => bits.iter().for_each(|bit| bytes[bit / 8] ^= 1 << (bit % 8)),
            What::Put { at, bytes: new, .. } => bytes[*at..at + new.len()].copy_from_slice(new),
        }
        Ok(fs::write(path, bytes)?)
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = if self.in_wal { "the WAL" } else { "the database file" };
        match &self.what {
            What::Flip(bits) => {
                let of = |bit: &usize| format!("bit {} of byte {}", bit % 8, bit / 8);
                let bits: Vec<String> = bits.iter().map(of).collect();
                write!(f, "{} flipped in {file}", bits.join(", "))?;
            }
            What::Put { at, bytes, why } => {
                write!(f, "{} bytes at {at} of {file} are {why}", bytes.len())?;
            }
        }
        write!(f, " ({})", self.image.name())
    }
}

fn file(path: &Path, in_wal: bool) -> PathBuf {
    if in_wal { wal_beside(path) } else { path.to_owned() }
}

fn place_in_database(rng: &mut fastrand::Rng, len: usize) -> usize {
    let page = rng.usize(..len / PAGE) * PAGE;
    match rng.u8(..20) {
        0..2 => rng.usize(..100),
        // The header of a page, its cell pointers, or the number of an overflow page's successor.
        2..7 => page + rng.usize(..64),
        7..9 => page + PAGE - 1 - rng.usize(..8),
        _ => rng.usize(..len),
    }
}

fn place_in_wal(rng: &mut fastrand::Rng, len: usize) -> usize {
    let frame = WAL_HEADER + rng.usize(..(len - WAL_HEADER) / FRAME) * FRAME;
    match rng.u8(..20) {
        0..2 => rng.usize(..WAL_HEADER),
        2..9 => frame + rng.usize(..24),
        _ => rng.usize(..len),
    }
}

fn other(
    rng: &mut fastrand::Rng,
    bytes: &[u8],
    place: fn(&mut fastrand::Rng, usize) -> usize,
) -> What {
    let at = place(rng, bytes.len());
    let sector = at.min(bytes.len() - SECTOR) / SECTOR * SECTOR;
    let noise = |rng: &mut fastrand::Rng, len| (0..len).map(|_| rng.u8(..)).collect();
    match rng.u8(..5) {
        0 => {
            let bits = 2 + rng.usize(..7);
            What::Flip((0..bits).map(|_| place(rng, bytes.len()) * 8 + rng.usize(..8)).collect())
        }
        1 => {
            let at = at.min(bytes.len() - 8);
            What::Put { at, bytes: noise(rng, 8), why: "noise" }
        }
        2 => What::Put { at: sector, bytes: vec![0; SECTOR], why: "zeroed" },
        3 => {
            let from = rng.usize(..bytes.len() / SECTOR) * SECTOR;
            let copied = bytes[from..from + SECTOR].to_vec();
            What::Put { at: sector, bytes: copied, why: "those of another sector" }
        }
        _ => What::Put { at: sector, bytes: noise(rng, SECTOR), why: "noise" },
    }
}
