//! Pages against bytes, in both forms, and what is refused of them.

use twox_hash::XxHash32;

use super::*;

/// What is read of `bytes`, which must all be read.
fn read(bytes: &[u8]) -> Result<(Option<Pgno>, Unpacker)> {
    let mut unpacker = Unpacker::new(PageSize::MIN);
    let mut source = Source::new(bytes, 0);
    let pgno = unpacker.read(&mut source, &mut Digest::new())?;
    source.end()?;
    Ok((pgno, unpacker))
}

fn refused(bytes: &[u8]) -> (ErrorKind, Option<u64>, String) {
    let error = read(bytes).map(|(pgno, _)| pgno).unwrap_err();
    (error.kind(), error.offset(), error.to_string())
}

fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    bytes
}

#[test]
fn zeros_end_the_pages() {
    assert_eq!(read(&END).unwrap().0, None);
}

#[test]
fn page_is_read_back_and_its_block_with_it() {
    let mut packer = Packer::new(PageSize::MIN);
    for page in [vec![0; 512], noise(512), [noise(256), vec![7; 256]].concat()] {
        let frame = packer.pack(Pgno::new(0x0102).unwrap(), &page).to_vec();
        assert_eq!(frame[..6], [0, 0, 1, 2, 0, 1]);
        assert_eq!(
            u32::from_be_bytes(*frame[6..].first_chunk().unwrap()) as usize,
            frame.len() - 10
        );
        assert_eq!(covered_header(&frame), &frame[..10]);
        let (pgno, unpacker) = read(&frame).unwrap();
        assert_eq!((pgno, unpacker.page()), (Pgno::new(0x0102), &page[..]));
        let block = unpacker.block().unwrap();
        assert_eq!(packer.pack_block(Pgno::new(0x0102).unwrap(), block), frame);
    }
}

#[test]
fn page_that_does_not_shrink_is_a_block_of_literals() {
    for bytes in [512, 1024, 4096, 65_536] {
        let size = PageSize::new(bytes).unwrap();
        let (mut page, mut packer) = (noise(size.bytes()), Packer::new(size));
        // What is twice in it saves less than the lengths cost.
        page.copy_within(..5, 400);
        let frame = packer.pack(Pgno::MAX, &page);
        assert_eq!(frame.len(), 10 + page.len() + 2 + (page.len() - 15) / 255);
        assert!(frame.ends_with(&page) && frame.len() as u64 <= max_len(size));
        let mut unpacker = Unpacker::new(size);
        unpacker.read(&mut Source::new(frame, 0), &mut Digest::new()).unwrap();
        assert_eq!(unpacker.page(), page);
    }
}

#[test]
fn length_is_checked_before_anything_is_read_for_it() {
    let frame = |length: u32| [&[0, 0, 0, 1, 0, 1][..], &length.to_be_bytes()].concat();
    for length in [0, 531, u32::MAX] {
        let (kind, at, text) = refused(&frame(length));
        assert_eq!((kind, at), (ErrorKind::Corrupt, Some(6)), "{text}");
    }
    assert_eq!(refused(&frame(530)).0, ErrorKind::Truncated);
}

#[test]
fn block_gives_one_page_and_no_more() {
    let block = |block: &[u8]| {
        let length = u32::try_from(block.len()).unwrap().to_be_bytes();
        [&[0, 0, 0, 1, 0, 1][..], &length, block].concat()
    };
    // 16 zeros; a match of 492 from one byte before; 4 literals.
    let whole = [&[0xFF, 1][..], &[0; 16], &[1, 0, 255, 218], &[0x40, 1, 2, 3, 4]].concat();
    assert_eq!(read(&block(&whole)).unwrap().1.page()[507..], [0, 1, 2, 3, 4]);
    let mut short = whole.clone();
    short[21] -= 1;
    assert!(refused(&block(&short)).2.contains("an LZ4 block of 511 bytes for 512"));
    let mut long = whole.clone();
    long[21] += 1;
    assert!(refused(&block(&long)).2.contains("no LZ4 block of 512 bytes"));
    // A match from before the beginning.
    let mut before = whole.clone();
    before[18] = 17;
    assert!(refused(&block(&before)).2.contains("no LZ4 block"));
    assert_eq!(refused(&block(&[0])).0, ErrorKind::Corrupt);
    assert_eq!(refused(&block(&[&whole[..], &[0]].concat())).0, ErrorKind::Corrupt);
}

/// An old page: header, magic, what the descriptor says with its sum, and what follows.
fn old_page(descriptor: &[u8], rest: &[u8]) -> Vec<u8> {
    let sum = XxHash32::oneshot(0, descriptor).to_le_bytes()[1];
    [&[0, 0, 0, 9, 0, 0][..], &[4, 0x22, 0x4D, 0x18], descriptor, &[sum], rest].concat()
}

fn sum(bytes: &[u8]) -> [u8; 4] {
    XxHash32::oneshot(0, bytes).to_le_bytes()
}

#[test]
fn old_frames_of_every_kind_are_read() {
    let page = noise(512);
    let (one, two) = page.split_at(200);
    let stored = |part: &[u8]| {
        let length = u32::try_from(part.len()).unwrap() | 1 << 31;
        [&length.to_le_bytes()[..], part].concat()
    };
    let end = [0; 4];
    let kinds = [
        // As Litestream wrote them: independent blocks, a sum of the content.
        old_page(&[0x64, 0x40], &[&stored(&page)[..], &end, &sum(&page)].concat()),
        // Two blocks; no sum at all.
        old_page(&[0x60, 0x40], &[&stored(one)[..], &stored(two), &end].concat()),
        // With sums of blocks, and the length of the content.
        old_page(
            &[0x7C, 0x70, 0, 2, 0, 0, 0, 0, 0, 0],
            &[&stored(one)[..], &sum(one), &stored(two), &sum(two), &end, &sum(&page)].concat(),
        ),
        // One block that could depend on others and has none.
        old_page(&[0x44, 0x40], &[&stored(&page)[..], &end, &sum(&page)].concat()),
    ];
    for bytes in kinds {
        let (pgno, unpacker) = read(&bytes).unwrap();
        assert_eq!((pgno, unpacker.page()), (Pgno::new(9), &page[..]));
        assert_eq!(unpacker.block(), None);
        for length in 6..bytes.len() {
            assert_eq!(refused(&bytes[..length]).0, ErrorKind::Truncated, "{length}");
        }
    }
}

#[test]
fn other_frames_are_refused() {
    let page = noise(512);
    let stored = |part: &[u8]| {
        let length = u32::try_from(part.len()).unwrap() | 1 << 31;
        [&length.to_le_bytes()[..], part].concat()
    };
    let whole = [&stored(&page)[..], &[0; 4], &sum(&page)].concat();
    let mut wrong_magic = old_page(&[0x64, 0x40], &whole);
    wrong_magic[6] = 5;
    let mut wrong_sum = old_page(&[0x64, 0x40], &whole);
    wrong_sum[12] ^= 1;
    let two = [&stored(&page[..9])[..], &stored(&page[9..]), &[0; 4], &sum(&page)].concat();
    for (bytes, text) in [
        (wrong_magic, "it begins with"),
        (wrong_sum, "of its header"),
        (old_page(&[0x24, 0x40], &whole), "the flags 0x24"),
        (old_page(&[0x65, 0x40], &whole), "the flags 0x65"),
        (old_page(&[0x66, 0x40], &whole), "the flags 0x66"),
        (old_page(&[0x44, 0x40], &two), "depend on the one before"),
        (old_page(&[0x6C, 0x40, 1, 2, 0, 0, 0, 0, 0, 0], &whole), "513 bytes for a page"),
        (old_page(&[0x64, 0x40], &[0; 8]), "0 bytes for a page of 512"),
        (old_page(&[0x64, 0x40], &[0, 0, 0, 0x80, 0, 0, 0, 0]), "an empty block"),
        (
            old_page(&[0x64, 0x40], &[&stored(&page)[..], &whole].concat()),
            "512 bytes for the last 0",
        ),
        (old_page(&[0x64, 0x40], &stored(&noise(531))), "a block of 531 bytes"),
        (old_page(&[0x64, 0x40], &[1, 0, 0, 0, 0]), "an empty block"),
        (old_page(&[0x64, 0x40], &[2, 0, 0, 0, 0xF0, 9]), "no LZ4 block"),
        (old_page(&[0x64, 0x40], &[&whole[..520], &[0; 4]].concat()), "of the content"),
    ] {
        let (kind, _, found) = refused(&bytes);
        assert!([ErrorKind::Corrupt, ErrorKind::Unsupported].contains(&kind), "{found}");
        assert!(found.contains("page 9, an LZ4 frame") && found.contains(text), "{found}: {text}");
    }
}
