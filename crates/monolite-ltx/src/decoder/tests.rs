//! Bounds of a page in the old form, which no golden file comes near.

use twox_hash::XxHash32;

use super::*;
use crate::page::PageSize;
use crate::timestamp::Timestamp;
use crate::txid::{Txid, TxidRange};
use crate::{Encoder, ErrorKind, compact};

fn header() -> Header {
    Header {
        page_size: PageSize::MIN,
        commit: 2,
        txids: TxidRange::single(Txid::new(2).unwrap()),
        timestamp: Timestamp::from_millis(0),
        base: BaseChecksum::Untracked,
        wal: None,
        node_id: 0,
    }
}

/// Page `number` in the old form, in stored blocks of `part` bytes each.
fn old_page(number: u8, page: &[u8], part: usize) -> Vec<u8> {
    let descriptor = [0x60, 0x40];
    let [_, sum, ..] = XxHash32::oneshot(0, &descriptor).to_le_bytes();
    let mut frame = vec![0, 0, 0, number, 0, 0, 4, 0x22, 0x4D, 0x18, 0x60, 0x40, sum];
    for block in page.chunks(part) {
        let length = u32::try_from(block.len()).unwrap() | 1 << 31;
        frame.extend_from_slice(&length.to_le_bytes());
        frame.extend_from_slice(block);
    }
    frame.extend_from_slice(&[0; 4]);
    frame
}

#[test]
fn old_page_is_not_much_longer_than_a_new_one() {
    let page: Vec<u8> = (0..512).map(|at| at as u8).collect();
    let read = |part| {
        let frame = old_page(1, &page, part);
        let file = [&header().encode().unwrap()[..], &frame].concat();
        let mut decoder = Decoder::new(&file[..]).unwrap();
        decoder.next_page().map(|read| assert_eq!(read.unwrap().data, page))
    };
    // The 6 bytes of the page's header, the frame's 7, its blocks, and the zero behind them.
    read(64).unwrap();
    let error = read(16).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupt, Some(100)));
    assert!(error.to_string().starts_with("page 1 in 657 bytes"), "{error}");
}

#[test]
fn pages_of_both_forms_in_one_file_are_not_taken_for_each_other() {
    let (one, two) = ([1; 512], [2; 512]);
    let mut encoder = Encoder::new(Vec::new(), header()).unwrap();
    encoder.page(Pgno::new(1).unwrap(), &one).unwrap();
    let frame_len = encoder.offset() as usize - 100;
    encoder.page(Pgno::new(2).unwrap(), &two).unwrap();
    let new = encoder.finish(None).unwrap().output;
    // The same file with its second page in the old form, and all that follows from it.
    let mut file = new[..100 + frame_len].to_vec();
    let old = old_page(2, &two, 512);
    file.extend_from_slice(&old);
    let mut index = crate::index::IndexWriter::default();
    index.add(Pgno::new(1).unwrap(), 100, frame_len as u64);
    index.add(Pgno::new(2).unwrap(), 100 + frame_len as u64, old.len() as u64);
    let tail = [&[0; 6][..], &index.finish(), &[0; 8]].concat();
    let mut digest = Digest::new();
    for part in [&file[..110], &one, &old[..6], &two, &tail] {
        digest.update(part);
    }
    file.extend_from_slice(&tail);
    file.extend_from_slice(&digest.sum().bits().to_be_bytes());
    let merged = compact([&file[..]], Vec::new()).unwrap();
    assert_eq!(merged.output, new);
}
