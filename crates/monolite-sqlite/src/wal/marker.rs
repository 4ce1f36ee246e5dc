//! Owns how the marker of a commit is found in a WAL: bytes that were committed with it, and belong
//! to no page of the database (`vfs::append` writes them, and says why that is safe).
//!
//! # Format
//! The first frame of the commit, for a page behind the size that its last frame has. The page:
//! [`MAGIC`], how many bytes the marker has (4, little-endian), and those.

use std::io;

use super::frames::WalReader;
use super::{FRAME_HEADER_BYTES, WAL_HEADER_BYTES};

const MAGIC: [u8; 8] = *b"monomark";

/// How many bytes of a page a marker leaves to itself.
pub const MARKER_BYTES: usize = MAGIC.len() + 4;

/// The beginning of the page of a marker; `None` for one that no page has room for.
pub(crate) fn marker_page(marker: &[u8]) -> Option<Vec<u8>> {
    let len = u32::try_from(marker.len()).ok()?;
    Some([&MAGIC[..], &len.to_le_bytes(), marker].concat())
}

fn marker_of(page: &[u8]) -> Option<&[u8]> {
    let (len, rest) = page.strip_prefix(&MAGIC)?.split_first_chunk()?;
    rest.get(..u32::from_le_bytes(*len) as usize)
}

impl WalReader {
    /// The marker of the commit that ends at `end`; `None` when it has none.
    ///
    /// # Errors
    /// Those of reading the file; `InvalidData` when no commit that is right ends there.
    pub fn marker(&self, end: u64) -> io::Result<Option<Vec<u8>>> {
        let frame_bytes = FRAME_HEADER_BYTES + self.page_bytes() as u64;
        let mut from = end;
        while from > WAL_HEADER_BYTES {
            let before = from.saturating_sub(frame_bytes);
            if from < end && self.is_commit(before)? {
                break;
            }
            from = before;
        }
        let frames = self.commits(from, end, u64::MAX)?;
        let first = frames.iter().next().filter(|frame| frame.pgno > frames.commit());
        Ok(first.and_then(|frame| marker_of(frame.page)).map(<[u8]>::to_vec))
    }
}

#[cfg(test)]
mod tests;
