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

/// A snapshot with checksums of the database, and a file of a few pages without.
fn some_files() -> [Vec<u8>; 2] {
    let page = |number: u32| [number as u8; 512];
    let number = |number| Pgno::new(number).unwrap();
    let first = TxidRange::single(Txid::FIRST);
    let snapshot = Header { commit: 40, txids: first, base: BaseChecksum::Snapshot, ..header() };
    let mut sum = DatabaseChecksum::empty(snapshot.page_size);
    let mut encoder = Encoder::new(Vec::new(), snapshot).unwrap();
    for at in 1..=40 {
        encoder.page(number(at), &page(at)).unwrap();
        sum.toggle(number(at), &page(at));
    }
    let snapshot = encoder.finish(Some(sum.value())).unwrap().output;
    let mut encoder = Encoder::new(Vec::new(), Header { commit: 40, ..header() }).unwrap();
    for at in [2, 3, 17, 40] {
        encoder.page(number(at), &page(at + 100)).unwrap();
    }
    [snapshot, encoder.finish(None).unwrap().output]
}

/// Goes on at each position by a decoder of its own, which reads nothing before it.
fn read_by_pieces(file: &[u8]) -> crate::Result<(Vec<u32>, Trailer)> {
    let mut position = Decoder::new(file)?.position().unwrap();
    let mut pages = Vec::new();
    loop {
        let position_of_next = {
            let start = usize::try_from(position.offset()).unwrap();
            let mut decoder = Decoder::resume(&file[start..], &position);
            match decoder.next_page()? {
                Some(page) => pages.push(page.pgno.get()),
                None => return Ok((pages, *decoder.trailer().unwrap())),
            }
            decoder.position().unwrap().encode()?
        };
        position = Position::decode(&position_of_next)?;
    }
}

#[test]
fn a_file_is_read_on_from_any_page() {
    for (file, pages) in some_files().iter().zip([(1..=40).collect(), vec![2, 3, 17, 40]]) {
        let mut decoder = Decoder::new(&file[..]).unwrap();
        while decoder.next_page().unwrap().is_some() {}
        assert_eq!(decoder.position(), None, "it is over");
        let whole = *decoder.trailer().unwrap();
        assert_eq!(read_by_pieces(file).unwrap(), (pages, whole));
    }
}

#[test]
fn a_change_before_the_position_or_behind_it_is_noticed_at_the_end() {
    for file in some_files() {
        for at in (0..file.len()).step_by(7) {
            let mut changed = file.clone();
            changed[at] ^= 0x10;
            let read = read_by_pieces(&changed);
            let is_same_page = read.as_ref().is_ok_and(|_| crate::verify(&changed[..]).is_ok());
            assert!(read.is_err() || is_same_page, "byte {at}");
        }
    }
}

#[test]
fn what_is_no_position_is_refused() {
    let file = &some_files()[0];
    let position = Decoder::new(&file[..]).unwrap().position().unwrap();
    let bytes = position.encode().unwrap();
    assert_eq!(Position::decode(&bytes).unwrap(), position);
    let mut without_sum = bytes;
    without_sum[Header::LEN + 32..Header::LEN + 40].fill(0);
    assert_eq!(Position::decode(&without_sum).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut of_nothing = bytes;
    of_nothing[0] ^= 1;
    assert!(Position::decode(&of_nothing).is_err());
}
