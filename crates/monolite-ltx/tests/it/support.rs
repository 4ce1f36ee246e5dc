//! Files drawn at random, the model that they must agree with, and their text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use monolite_ltx::{
    BaseChecksum, Checksum, DatabaseChecksum, Decoder, Encoder, Header, PageSize, Pgno, Result,
    Timestamp, Trailer, Txid, TxidRange, WalSpan,
};

/// A page number that there is.
pub(crate) fn pgno(number: u32) -> Pgno {
    Pgno::new(number).unwrap()
}

/// A TXID that there is.
pub(crate) fn txid(number: u64) -> Txid {
    Txid::new(number).unwrap()
}

/// A random generator of one case; its seed is printed when the case fails, and `MONOLITE_SEED`
/// runs that case alone.
struct Case(u64);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let line = format!("MONOLITE_SEED={} repeats this\n", self.0);
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}

/// Runs a check on `count` generators, with seeds of their own each time.
pub(crate) fn cases(count: u32, check: impl Fn(&mut fastrand::Rng)) {
    let given = std::env::var("MONOLITE_SEED").ok().map(|text| text.parse().expect("a number"));
    for _ in 0..if given.is_some() { 1 } else { count } {
        let case = Case(given.unwrap_or_else(|| fastrand::u64(..)));
        check(&mut fastrand::Rng::with_seed(case.0));
    }
}

/// What a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) header: Header,
    pub(crate) pages: BTreeMap<u32, Vec<u8>>,
    /// The checksum of the database afterwards.
    pub(crate) database: Option<Checksum>,
}

impl Content {
    /// What `file` says, once it was read to its end.
    pub(crate) fn of(file: &[u8]) -> Result<Content> {
        let mut decoder = Decoder::new(file)?;
        let mut pages = BTreeMap::new();
        while let Some(page) = decoder.next_page()? {
            pages.insert(page.pgno.get(), page.data.to_vec());
        }
        let database = decoder.trailer().unwrap().database;
        Ok(Content { header: *decoder.header(), pages, database })
    }

    /// A file that says it.
    pub(crate) fn file(&self) -> (Vec<u8>, Trailer) {
        let mut encoder = Encoder::new(Vec::new(), self.header).unwrap();
        for (number, page) in &self.pages {
            encoder.page(pgno(*number), page).unwrap();
        }
        let written = encoder.finish(self.database).unwrap();
        assert_eq!(written.len, written.output.len() as u64);
        (written.output, written.trailer)
    }
}

/// A database whose commits become files.
pub(crate) struct History {
    pub(crate) page_size: PageSize,
    is_tracked: bool,
    next: Txid,
    pages: BTreeMap<u32, Vec<u8>>,
}

impl History {
    /// Of a page size and kind that are drawn, from the first transaction on or a later one.
    pub(crate) fn new(rng: &mut fastrand::Rng) -> History {
        let size = if rng.u8(..) == 0 { 65_536 } else { 512 << rng.u32(..4) };
        let next = if rng.bool() { Txid::FIRST } else { txid(rng.u64(2..1000)) };
        let page_size = PageSize::new(size).unwrap();
        History { page_size, is_tracked: rng.bool(), next, pages: BTreeMap::new() }
    }

    fn sum(&self) -> Checksum {
        let mut sum = DatabaseChecksum::empty(self.page_size);
        for (number, page) in &self.pages {
            sum.toggle(pgno(*number), page);
        }
        sum.value()
    }

    /// The next commit, of one transaction or several.
    pub(crate) fn commit(&mut self, rng: &mut fastrand::Rng) -> Content {
        let (is_first, before) = (self.next == Txid::FIRST, self.sum());
        let last = txid(self.next.get() + if rng.u8(..4) == 0 { rng.u64(..9) } else { 0 });
        let (old, commit) = (self.size(), rng.u32(1..12));
        let is_changed = |rng: &mut fastrand::Rng, number| is_first || number > old || rng.bool();
        let numbers: Vec<u32> = (1..=commit).filter(|number| is_changed(rng, *number)).collect();
        self.pages.retain(|number, _| *number <= commit);
        let page_size = self.page_size;
        let pages: BTreeMap<u32, Vec<u8>> =
            numbers.into_iter().map(|number| (number, page(rng, page_size))).collect();
        self.pages.extend(pages.clone());
        let base = match (self.is_tracked, is_first) {
            (false, _) => BaseChecksum::Untracked,
            (true, true) => BaseChecksum::Snapshot,
            (true, false) => BaseChecksum::Database(before),
        };
        let header = Header {
            page_size,
            commit,
            txids: TxidRange::new(self.next, last).unwrap(),
            timestamp: Timestamp::from_millis(rng.i64(-1_000_000..4_000_000_000_000)),
            base,
            wal: rng.bool().then(|| WalSpan {
                offset: rng.u64(1..1 << 40),
                size: rng.u64(..1 << 40),
                salts: [rng.u32(..), rng.u32(..)],
            }),
            node_id: rng.u64(..),
        };
        self.next = last.next().unwrap();
        Content { header, pages, database: self.is_tracked.then(|| self.sum()) }
    }

    fn size(&self) -> u32 {
        self.pages.last_key_value().map_or(0, |(number, _)| *number)
    }
}

/// A page of zeros, of text, of noise, of both, or of one of the shapes at which compressors break.
fn page(rng: &mut fastrand::Rng, page_size: PageSize) -> Vec<u8> {
    let mut page = vec![0; page_size.bytes()];
    let part = match rng.u8(..6) {
        0 => return page,
        1 => {
            let text = format!("{}; ", rng.u64(..));
            page.iter_mut().zip(text.bytes().cycle()).for_each(|(byte, sign)| *byte = sign);
            return page;
        }
        2 => 0..page.len(),
        3 => 0..rng.usize(..page.len()),
        4 => page.len() - rng.usize(..32)..page.len(),
        _ => {
            // Few values, so that matches are short and many.
            page.iter_mut().for_each(|byte| *byte = rng.u8(..3));
            return page;
        }
    };
    rng.fill(&mut page[part]);
    page
}

/// The text that the program in `tests/reference` prints for a file.
pub(crate) fn dump(name: &str, file: &[u8]) -> Result<String> {
    let mut decoder = Decoder::new(file)?;
    let header = *decoder.header();
    let mut text = format!("file {name}, {} bytes\n", file.len());
    let Header { page_size, commit, timestamp, node_id, .. } = header;
    let txids = header.txids.file_name();
    let tracked = header.is_tracked();
    let wal = header.wal.unwrap_or(WalSpan { offset: 0, size: 0, salts: [0; 2] });
    let [salt1, salt2] = wal.salts;
    let before = match header.base {
        BaseChecksum::Database(sum) => sum.to_string(),
        BaseChecksum::Untracked | BaseChecksum::Snapshot => "0".repeat(16),
    };
    writeln!(text, "name {txids}").unwrap();
    writeln!(
        text,
        "tracked {tracked}, page size {page_size}, commit {commit}, time {timestamp}\n\
         before {before}, WAL {} {} {salt1:08x} {salt2:08x}, node {node_id}",
        wal.offset, wal.size
    )
    .unwrap();
    // The index is what the pages say: it is compared with that.
    let (mut index, mut offset) = (String::new(), decoder.offset());
    while let Some(page) = decoder.next_page()? {
        let (pgno, sum) = (page.pgno, Checksum::of_page(page.pgno, page.data));
        writeln!(text, "page {pgno} {sum}").unwrap();
        let length = decoder.offset() - offset;
        writeln!(index, "at {offset}: {pgno}, {length} bytes").unwrap();
        offset += length;
    }
    let trailer = *decoder.trailer().unwrap();
    text.push_str(&index);
    let after = trailer.database.map_or("0".repeat(16), |sum| sum.to_string());
    writeln!(text, "after {after}, sum {}\n", trailer.file).unwrap();
    Ok(text)
}

/// A file beside the tests.
pub(crate) fn beside(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(path)
}

/// The files that the original wrote, by name.
pub(crate) fn golden() -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(beside("golden")).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "ltx"));
    let named = |path: PathBuf| {
        (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap())
    };
    files.map(named).collect()
}
