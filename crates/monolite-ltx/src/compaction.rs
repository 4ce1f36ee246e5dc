//! Merges consecutive files into one that says the same.
//!
//! # Algorithm
//! That of Litestream (`superfly/ltx`, `compactor.go`):
//! 1. All headers are read. Page sizes must be equal, and each file must continue the one before.
//! 2. The header written has the first file's first TXID and checksum before it, the last one's
//!    last TXID, size and time. What the files were made of (WAL, node) is dropped.
//! 3. The files are read side by side in the order of page numbers. Of a page that several have the
//!    newest is written, unless it is beyond the size of the database afterwards.
//! 4. When every file has been read to its end and was whole, the index and the trailer follow,
//!    with the last file's checksum of the database.
//!
//! Where it differs: a compressed block is written as it was read (pages in the old form are
//! compressed anew), which is what Litestream makes of its own files, too, and faster. Files with
//! and without checksums may be mixed, the result is without then. Where all have them, each one's
//! checksum before it must be that of the file before; and a snapshot's pages must have the
//! checksum that the last file says.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{Read, Write};

use crate::decoder::Decoder;
use crate::encoder::{Encoder, Written};
use crate::error::{Error, Result};
use crate::header::{BaseChecksum, Header, Trailer};
use crate::page::Pgno;
use crate::txid::TxidRange;

/// Writes to `output` one file that says what all of `inputs` say, oldest first.
///
/// Memory: two pages for each input, and some 9 bytes for each page of the output. All inputs are
/// read at the same time, in small pieces: put files and sockets behind a
/// [`BufReader`](std::io::BufReader).
///
/// **What was written before an error must be thrown away**; it is no whole file.
///
/// ```
/// # use monolite_ltx::*;
/// # fn file(txid: u64, pages: &[(u32, u8)]) -> Result<Vec<u8>> {
/// #     let txids = TxidRange::single(Txid::new(txid).unwrap());
/// #     let header = Header {
/// #         page_size: PageSize::new(512)?,
/// #         commit: 2,
/// #         txids,
/// #         timestamp: Timestamp::from_millis(0),
/// #         base: BaseChecksum::Untracked,
/// #         wal: None,
/// #         node_id: 0,
/// #     };
/// #     let mut encoder = Encoder::new(Vec::new(), header)?;
/// #     for (pgno, byte) in pages {
/// #         encoder.page(Pgno::new(*pgno).unwrap(), &[*byte; 512])?;
/// #     }
/// #     Ok(encoder.finish(None)?.output)
/// # }
/// # let (snapshot, change) = (file(1, &[(1, 1), (2, 2)])?, file(2, &[(2, 3)])?);
/// let merged = monolite_ltx::compact([&snapshot[..], &change[..]], Vec::new())?;
/// assert_eq!(merged.header.txids.file_name(), "0000000000000001-0000000000000002.ltx");
/// # assert_eq!(verify(&merged.output[..])?.pages, 2);
/// # Ok::<(), monolite_ltx::Error>(())
/// ```
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid) when there are no inputs, their page sizes differ, or one
/// does not continue the one before. Those of [`Decoder`]: the message says which input, counted
/// from 0, and the offset is in it. [`Corrupt`](crate::ErrorKind::Corrupt), too, when the inputs do
/// not fit together: checksums, or pages that lack in a snapshot. [`Io`](crate::ErrorKind::Io).
pub fn compact<R, W>(inputs: impl IntoIterator<Item = R>, output: W) -> Result<Written<W>>
where
    R: Read,
    W: Write,
{
    let mut inputs = inputs
        .into_iter()
        .enumerate()
        .map(|(at, input)| Decoder::new(input).map_err(|error| of_input(at, error)))
        .collect::<Result<Vec<_>>>()?;
    let header = merged_header(&inputs)?;
    let mut encoder = Encoder::new(output, header)?;
    merge_pages(&mut inputs, &mut encoder)?;
    let trailer = trailers_in_line(&inputs)?;
    assert_eq!(encoder.header().txids.max(), header.txids.max(), "all TXIDs are merged");
    encoder.finish(trailer.database.filter(|_| header.is_tracked())).map_err(Error::of_data)
}

fn of_input(at: usize, error: Error) -> Error {
    error.about(&format!("input {at}"))
}

fn merged_header<R: Read>(inputs: &[Decoder<R>]) -> Result<Header> {
    let (Some(first), Some(last)) = (inputs.first(), inputs.last()) else {
        return Err(Error::invalid("no files to merge"));
    };
    let (first, last) = (first.header(), last.header());
    for (at, pair) in inputs.windows(2).enumerate() {
        let [before, after] = [pair[0].header(), pair[1].header()];
        if before.page_size != after.page_size {
            let sizes = format!("{} after {}", after.page_size, before.page_size);
            return Err(of_input(at + 1, Error::invalid(format!("a page size of {sizes}"))));
        }
        if !after.txids.continues(before.txids) {
            let message = format!("{} does not continue {}", after.txids, before.txids);
            return Err(of_input(at + 1, Error::invalid(message)));
        }
    }
    let is_tracked = inputs.iter().all(|input| input.header().is_tracked());
    Ok(Header {
        page_size: first.page_size,
        commit: last.commit,
        txids: TxidRange::new(first.txids.min(), last.txids.max())?,
        timestamp: last.timestamp,
        base: if is_tracked { first.base } else { BaseChecksum::Untracked },
        wal: None,
        node_id: 0,
    })
}

/// The inputs that have a page, the lowest page first, and of one page the newest input first.
type Queue = BinaryHeap<Reverse<(Pgno, Reverse<usize>)>>;

fn merge_pages<R: Read, W: Write>(
    inputs: &mut [Decoder<R>],
    encoder: &mut Encoder<W>,
) -> Result<()> {
    let mut queue = Queue::with_capacity(inputs.len());
    for (at, input) in inputs.iter_mut().enumerate() {
        advance(at, input, &mut queue)?;
    }
    let (commit, mut last) = (encoder.header().commit, None);
    while let Some(Reverse((pgno, Reverse(at)))) = queue.pop() {
        let input = &mut inputs[at];
        if last != Some(pgno) && pgno.get() <= commit {
            let (page, block) = input.current();
            encoder.put(pgno, page, block).map_err(Error::of_data)?;
        }
        last = Some(pgno);
        advance(at, input, &mut queue)?;
    }
    Ok(())
}

/// Reads the next page of an input and puts it into the queue; at the end of it, nothing.
fn advance<R: Read>(at: usize, input: &mut Decoder<R>, queue: &mut Queue) -> Result<()> {
    if let Some(pgno) = input.advance().map_err(|error| of_input(at, error))? {
        queue.push(Reverse((pgno, Reverse(at))));
    }
    Ok(())
}

/// The trailer of the last input; that of each other fits the header of the next.
fn trailers_in_line<R: Read>(inputs: &[Decoder<R>]) -> Result<Trailer> {
    let trailer = |input: &Decoder<R>| {
        let trailer = input.trailer().copied();
        trailer.ok_or_else(|| Error::invalid("an input was not read to its end"))
    };
    let mut before: Option<(TxidRange, Trailer)> = None;
    for (at, input) in inputs.iter().enumerate() {
        let (header, after) = (input.header(), trailer(input)?);
        let joins = before.filter(|(txids, _)| txids.max().next() == Some(header.txids.min()));
        if let (Some((_, Trailer { database: Some(was), .. })), BaseChecksum::Database(base)) =
            (joins, header.base)
            && was != base
        {
            let message = format!("made for a database of checksum {base}, after one of {was}");
            return Err(of_input(at, Error::corrupt(40, message)));
        }
        before = Some((header.txids, after));
    }
    before.map(|(_, trailer)| trailer).ok_or_else(|| Error::invalid("no files to merge"))
}
