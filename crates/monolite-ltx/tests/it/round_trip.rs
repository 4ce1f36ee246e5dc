//! What was written is read, whatever it is and however small the pieces.

use std::io::{self, Read, Write};

use monolite_ltx::{
    BaseChecksum, Checksum, Decoder, Encoder, ErrorKind, Footer, Header, TxidRange, verify,
};

use crate::support::{Content, History, cases, golden, pgno, txid};

#[test]
fn what_is_written_is_read() {
    cases(150, |rng| {
        let mut history = History::new(rng);
        for _ in 0..rng.u8(1..4) {
            let content = history.commit(rng);
            let (file, trailer) = content.file();
            assert_eq!(Content::of(&file).unwrap(), content);
            assert_eq!(content.file().0, file, "the same again");
            let verified = verify(&file[..]).unwrap();
            assert_eq!((verified.header, verified.trailer), (content.header, trailer));
            assert_eq!(verified.pages as usize, content.pages.len());
            assert_eq!(verified.len, file.len() as u64);
        }
    });
}

#[test]
fn file_is_never_larger_than_its_pages_and_a_little() {
    cases(100, |rng| {
        let content = History::new(rng).commit(rng);
        let (file, _) = content.file();
        let size = content.header.page_size.bytes();
        let page = 10 + size + size / 255 + 16;
        assert!(file.len() <= 131 + content.pages.len() * (page + 18), "{}", file.len());
        assert!(file.len() >= 131 - 24 + Footer::LEN);
    });
}

/// Gives one byte after the other, now and then interrupted.
struct Slow<'a>(&'a [u8], bool);

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let most = buffer.len().min(1);
        self.0.read(&mut buffer[..most])
    }
}

#[test]
fn reader_may_give_as_little_as_it_likes() {
    cases(10, |rng| {
        let content = History::new(rng).commit(rng);
        let (file, trailer) = content.file();
        assert_eq!(verify(Slow(&file, false)).unwrap().trailer, trailer);
    });
}

/// Takes so many bytes and fails then.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn writer_that_fails_ends_the_file_at_every_byte() {
    let content = Content::of(&golden()["tracked-3.ltx"]).unwrap();
    let length = content.file().0.len();
    for room in 0..length {
        let write = || {
            let mut encoder = Encoder::new(Full(room), content.header)?;
            for (number, page) in &content.pages {
                if let Err(error) = encoder.page(pgno(*number), page) {
                    let again = encoder.page(pgno(*number), page).unwrap_err();
                    assert!(again.to_string().contains("failed before"), "{again}");
                    return Err(error);
                }
            }
            encoder.finish(content.database).map(|_| ())
        };
        let error = write().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert_eq!(error.io().unwrap().kind(), io::ErrorKind::StorageFull);
        assert!(error.offset().unwrap() <= room as u64);
    }
}

#[test]
fn page_that_may_not_come_is_refused_and_another_may() {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut content = History::new(&mut rng).commit(&mut rng);
    content.header.commit = 3;
    content.header.txids = TxidRange::single(txid(2));
    content.header.base = BaseChecksum::Untracked;
    let size = content.header.page_size.bytes();
    let mut encoder = Encoder::new(Vec::new(), content.header).unwrap();
    encoder.page(pgno(2), &vec![2; size]).unwrap();
    let written = encoder.offset();
    for (number, length) in [(2, size), (1, size), (4, size), (3, size - 1), (3, size * 2)] {
        let error = encoder.page(pgno(number), &vec![0; length]).unwrap_err();
        assert_eq!((error.kind(), encoder.offset()), (ErrorKind::Invalid, written), "{error}");
    }
    encoder.page(pgno(3), &vec![3; size]).unwrap();
    let file = encoder.finish(None).unwrap().output;
    assert_eq!(Content::of(&file).unwrap().pages.keys().collect::<Vec<_>>(), [&2, &3]);
}

#[test]
fn decoder_takes_no_byte_behind_the_file_but_one() {
    let content = History::new(&mut fastrand::Rng::new()).commit(&mut fastrand::Rng::new());
    let (mut file, _) = content.file();
    let length = file.len() as u64;
    let mut decoder = Decoder::new(&file[..]).unwrap();
    while decoder.next_page().unwrap().is_some() {}
    assert_eq!(decoder.offset(), length);
    assert!(decoder.next_page().unwrap().is_none(), "it stays at the end");
    file.push(0);
    let error = verify(&file[..]).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupt, Some(length)), "{error}");
}

#[test]
fn snapshot_that_lacks_a_page_is_not_finished() {
    let content = Content::of(&golden()["untracked-1.ltx"]).unwrap();
    let mut encoder = Encoder::new(Vec::new(), content.header).unwrap();
    for number in 1..5 {
        encoder.page(pgno(number), &content.pages[&number]).unwrap();
    }
    let error = encoder.finish(None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(error.to_string(), "a snapshot of 5 pages without page 5");
}

#[test]
fn empty_database_needs_a_file_with_checksums() {
    let golden = golden();
    let mut header = Content::of(&golden["untracked-3.ltx"]).unwrap().header;
    header.commit = 0;
    let error = Encoder::new(Vec::new(), header).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let mut tracked = Content::of(&golden["tracked-3.ltx"]).unwrap();
    let header = Header { commit: 0, ..tracked.header };
    let write = |database| Encoder::new(Vec::new(), header).unwrap().finish(database);
    let error = write(tracked.database).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let file = write(None).unwrap().output;
    tracked = Content { header, pages: Default::default(), database: None };
    tracked.database = Some(Checksum::EMPTY_DATABASE);
    assert_eq!(Content::of(&file).unwrap(), tracked);
    assert_eq!(write(tracked.database).unwrap().output, file);
}

#[test]
fn checksum_is_given_where_it_is_kept_and_nowhere_else() {
    let golden = golden();
    let [tracked, untracked] = ["tracked-2.ltx", "untracked-2.ltx"].map(|name| {
        let content = Content::of(&golden[name]).unwrap();
        move |database| {
            let mut encoder = Encoder::new(Vec::new(), content.header).unwrap();
            for (number, page) in &content.pages {
                encoder.page(pgno(*number), page).unwrap();
            }
            encoder.finish(database).map(|written| written.trailer.database)
        }
    });
    let sum = Some(Checksum::EMPTY_DATABASE);
    assert_eq!(tracked(sum).unwrap(), sum);
    assert_eq!(untracked(None).unwrap(), None);
    for error in [tracked(None).unwrap_err(), untracked(sum).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}
