//! Owns what is known of the parts in a file that streams, and how a slot stands to them.

use std::io;
use std::time::Duration;

use monolite::archive::{Pages, WalPosition};
use serde::{Deserialize, Serialize};

use crate::archiver::position::Place;
use crate::record::Epoch;
use crate::streaming::{PATIENCE, Part};

/// What was streamed into the file, and is all in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Streamed {
    pub(super) epoch: Epoch,
    /// Where the last part ends.
    #[serde(with = "At")]
    pub(super) at: WalPosition,
    /// The generations of parts that are not sealed, by number, and their salts; the last is that
    /// of `at`.
    pub(super) generations: Vec<(u64, [u32; 2])>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "WalPosition")]
struct At {
    generation: u64,
    offset: u64,
}

/// How a slot stands to what was streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is among the parts; whether they end with it.
    IsAmong {
        is_all: bool,
    },
    /// It has all that the parts have, and more.
    LeadsOn,
    Unknown,
}

impl Streamed {
    pub(super) fn take(&mut self, part: &Part) {
        self.at = part.to;
        let first = part.generations.first().map_or(part.to.generation, |(number, _)| *number);
        self.generations.retain(|(number, _)| *number < first);
        self.generations.extend(&part.generations);
    }

    /// Of a slot that ends at `place`.
    pub(super) fn standing(&self, place: Place) -> Standing {
        let (_, earlier) = self.generations.split_last().unzip();
        match self.generations.last() {
            Some((_, salts)) if *salts == place.salts && place.end <= self.at.offset => {
                Standing::IsAmong { is_all: place.end == self.at.offset }
            }
            Some((_, salts)) if *salts == place.salts => Standing::LeadsOn,
            _ if earlier.unwrap_or(&[]).iter().any(|(_, salts)| *salts == place.salts) => {
                Standing::IsAmong { is_all: false }
            }
            _ => Standing::Unknown,
        }
    }
}

impl Pages for Part {
    fn each(&mut self, give: &mut dyn FnMut(u32, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut each = self.pages.chunks_exact(4 + self.page_bytes as usize);
        each.try_for_each(|page| {
            let (pgno, page) = page.split_first_chunk().ok_or(io::ErrorKind::InvalidData)?;
            give(u32::from_le_bytes(*pgno), page)
        })
    }
}

/// How long to wait before the next attempt, after one that failed behind a rest of so long.
pub(super) fn pause(before: Duration, interval: Duration) -> Duration {
    (before * 2).clamp(interval, PATIENCE.max(interval))
}

#[cfg(test)]
mod tests;
