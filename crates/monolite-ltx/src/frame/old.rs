//! Reads the LZ4 frames in which pages were stored before they were stored as blocks.
//!
//! # Format
//! Integers are little-endian. The magic number 0x184D2204; FLG: the version 01 in bits 7 and 6,
//! then independent blocks, sums of blocks, length of the content, sum of the content, reserved, a
//! dictionary; BD: the largest block in bits 6 to 4, the others 0; if FLG says so 8 bytes, the
//! length; bits 15 to 8 of the xxHash-32 of these bytes. Blocks, each after its length, whose
//! bit 31 says that it is not compressed, and before its sum if FLG says so. A length of 0. The
//! xxHash-32 of the content, if FLG says so. (LZ4 Frame Format Description, v1.6.4.)
//!
//! `pierrec/lz4` with the options of `superfly/ltx` v0.5.1 writes FLG 0x64, BD 0x40, one block and
//! the sum of the content, so the two sums cover everything but the lengths.
//!
//! # Algorithm
//! No library: one that reads ahead would read into the next page, and one that believes BD would
//! allocate 4 MiB. Here a block is no longer than a page can become, and each gives at least a
//! byte, so the work is bounded by the size of a page.

use std::io::Read;

use twox_hash::XxHash32;

use crate::error::{Error, ErrorKind, Result};
use crate::source::Source;

const MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();

const VERSION_MASK: u8 = 0b1100_0000;
const VERSION: u8 = 0b0100_0000;
const INDEPENDENT: u8 = 0b0010_0000;
const BLOCK_SUMS: u8 = 0b0001_0000;
const CONTENT_LENGTH: u8 = 0b0000_1000;
const CONTENT_SUM: u8 = 0b0000_0100;
const RESERVED: u8 = 0b0000_0010;
const DICTIONARY: u8 = 0b0000_0001;

/// Bit of a block's length: it is not compressed.
const STORED: u32 = 1 << 31;

const HEADER: &str = "the header of an LZ4 frame";

/// Reads a frame whose content is `page`, of which all is filled. `scratch` is room for a block.
pub(super) fn read<R: Read>(
    source: &mut Source<R>,
    page: &mut [u8],
    scratch: &mut [u8],
) -> Result<()> {
    let flags = read_header(source, page.len())?;
    let mut filled = 0;
    loop {
        let at = source.offset();
        let length = u32::from_le_bytes(source.take("the length of an LZ4 block")?);
        if length == 0 {
            break;
        }
        let rest = &mut page[filled..];
        if filled > 0 && flags & INDEPENDENT == 0 {
            let message = "blocks that depend on the one before, which no known writer makes";
            return Err(Error::new(ErrorKind::Unsupported, message).at(at));
        }
        let block = usize::try_from(length & !STORED).ok();
        let Some(block) = block.and_then(|length| scratch.get_mut(..length)) else {
            return Err(Error::corrupt(at, format!("a block of {} bytes", length & !STORED)));
        };
        source.fill(block, "an LZ4 block")?;
        if flags & BLOCK_SUMS != 0 {
            check_sum(source, block, "a block")?;
        }
        filled += match fill(block, length & STORED != 0, rest) {
            Ok(0) => Err(Error::corrupt(at, "an empty block")),
            Ok(n) => Ok(n),
            Err(why) => Err(Error::corrupt(at, why)),
        }?;
    }
    if filled != page.len() {
        let message = format!("{filled} bytes for a page of {}", page.len());
        return Err(Error::corrupt(source.offset(), message));
    }
    if flags & CONTENT_SUM != 0 {
        check_sum(source, page, "the content")?;
    }
    Ok(())
}

/// Reads what is before the blocks and returns the flags.
fn read_header<R: Read>(source: &mut Source<R>, page_len: usize) -> Result<u8> {
    let start = source.offset();
    let magic = source.take::<4>(HEADER)?;
    if magic != MAGIC {
        return Err(Error::corrupt(start, format!("it begins with {}", magic.escape_ascii())));
    }
    let [flags, bounds] = source.take::<2>(HEADER)?;
    if flags & VERSION_MASK != VERSION || flags & (RESERVED | DICTIONARY) != 0 {
        let message = format!("the flags {flags:#04x}");
        return Err(Error::new(ErrorKind::Unsupported, message).at(start + 4));
    }
    let mut descriptor = vec![flags, bounds];
    if flags & CONTENT_LENGTH != 0 {
        let length = source.take::<8>(HEADER)?;
        descriptor.extend_from_slice(&length);
        let length = u64::from_le_bytes(length);
        if length != page_len as u64 {
            let message = format!("{length} bytes for a page of {page_len}");
            return Err(Error::corrupt(start + 6, message));
        }
    }
    let at = source.offset();
    let [sum] = source.take::<1>(HEADER)?;
    let [_, expected, ..] = XxHash32::oneshot(0, &descriptor).to_le_bytes();
    if sum != expected {
        let message = format!("the sum {sum:02x} of its header, which is {expected:02x}");
        return Err(Error::corrupt(at, message));
    }
    Ok(flags)
}

fn check_sum<R: Read>(source: &mut Source<R>, bytes: &[u8], what: &str) -> Result<()> {
    let at = source.offset();
    let sum = u32::from_le_bytes(source.take("a sum of an LZ4 frame")?);
    let expected = XxHash32::oneshot(0, bytes);
    if sum != expected {
        let message = format!("the sum {sum:08x} of {what}, which is {expected:08x}");
        return Err(Error::corrupt(at, message));
    }
    Ok(())
}

/// Writes what a block holds to the beginning of `rest` and returns how much that is.
fn fill(block: &[u8], is_stored: bool, rest: &mut [u8]) -> Result<usize, String> {
    if !is_stored {
        let filled = lz4_flex::block::decompress_into(block, rest);
        return filled.map_err(|error| format!("no LZ4 block of {} bytes: {error}", rest.len()));
    }
    let room = rest.len();
    let rest = rest.get_mut(..block.len());
    rest.ok_or_else(|| format!("{} bytes for the last {room}", block.len()))?
        .copy_from_slice(block);
    Ok(block.len())
}
