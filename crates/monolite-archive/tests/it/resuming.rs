//! A restore that was stopped: the next one goes on, and what it makes is the same.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use monolite_archive::{
    Error, ErrorKind, Fetched, Layout, Listing, MemoryStore, Part, Restored, Result, Store, Tag,
    Target,
    internals::{Level, restore, restore_noting},
};
use monolite_ltx::{
    BaseChecksum, DatabaseChecksum, Encoder, Header, PageSize, Pgno, Timestamp, Txid, TxidRange,
};

use crate::archive::scratch;
use crate::world::txid;

const PAGES: u32 = 12_000;

/// An archive of a snapshot of 47 MiB, which is read in twelve parts, and changes.
struct Archive {
    store: MemoryStore,
    layout: Layout,
    /// Its newest state.
    database: Vec<u8>,
}

fn page_size() -> PageSize {
    PageSize::new(4096).unwrap()
}

fn put(
    store: &MemoryStore,
    key: &str,
    txids: TxidRange,
    pages: &[(u32, Vec<u8>)],
    sum: Option<monolite_ltx::Checksum>,
) {
    let base = if txids.is_snapshot() { BaseChecksum::Snapshot } else { BaseChecksum::Untracked };
    let header = Header {
        page_size: page_size(),
        commit: PAGES,
        txids,
        timestamp: Timestamp::from_millis(1_700_000_000_000),
        base,
        wal: None,
        node_id: 0,
    };
    let mut encoder = Encoder::new(Vec::new(), header).unwrap();
    for (number, page) in pages {
        encoder.page(Pgno::new(*number).unwrap(), page).unwrap();
    }
    store.overwrite(key, &encoder.finish(sum).unwrap().output);
}

fn random_page(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut page = vec![0; 4096];
    rng.fill(&mut page);
    page
}

impl Archive {
    fn new(seed: u64) -> Archive {
        Archive::with(seed, 10, 41)
    }

    /// One that no test changes: it takes seconds to make.
    fn shared() -> &'static Archive {
        static SHARED: LazyLock<Archive> = LazyLock::new(|| Archive::new(1));
        &SHARED
    }

    /// With so many slots that have each so-many-th page.
    fn with(seed: u64, slots: u64, each: usize) -> Archive {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (store, layout) = (MemoryStore::new(), Layout::directory());
        let mut pages: Vec<(u32, Vec<u8>)> =
            (1..=PAGES).map(|number| (number, random_page(&mut rng))).collect();
        let mut sum = DatabaseChecksum::empty(page_size());
        for (number, page) in &pages {
            sum.toggle(Pgno::new(*number).unwrap(), page);
        }
        let snapshot = layout.file(Level::SNAPSHOTS, TxidRange::single(Txid::FIRST));
        put(&store, &snapshot, TxidRange::single(Txid::FIRST), &pages, Some(sum.value()));
        for at in 2..2 + slots {
            let numbers = (at as u32..PAGES).step_by(each);
            let changed: Vec<_> = numbers.map(|number| (number, random_page(&mut rng))).collect();
            for (number, page) in &changed {
                pages[*number as usize - 1].1.clone_from(page);
            }
            put(&store, &layout.slot(txid(at)), TxidRange::single(txid(at)), &changed, None);
        }
        let database = pages.into_iter().flat_map(|(_, page)| page).collect();
        Archive { store, layout, database }
    }

    fn bytes(&self) -> u64 {
        let keys = ["ltx/0", "ltx/9"].map(|prefix| self.store.list(prefix, None).unwrap().objects);
        keys.iter().flatten().map(|object| object.len).sum()
    }

    fn restore(&self, store: &dyn Store, output: &Path) -> Result<Restored> {
        restore_noting(store, &self.layout, Target::Latest, output, Duration::ZERO)
    }

    fn must_be(&self, output: &Path) {
        assert!(std::fs::read(output).unwrap() == self.database, "it is another database");
        let name = output.file_name().unwrap().to_str().unwrap();
        assert!(!output.with_file_name(format!("{name}.monolite-part")).exists());
    }
}

/// A store that fails after so many answers, counts the bytes that it gives, and may look at
/// something at each request.
struct Watched<'a> {
    inner: &'a MemoryStore,
    answers: AtomicU64,
    error: ErrorKind,
    bytes: AtomicU64,
    look: &'a (dyn Fn(u64) + Sync),
}

impl<'a> Watched<'a> {
    fn new(inner: &'a MemoryStore, answers: u64, look: &'a (dyn Fn(u64) + Sync)) -> Watched<'a> {
        let (answers, bytes) = (AtomicU64::new(answers), AtomicU64::new(0));
        Watched { inner, answers, error: ErrorKind::Lost, bytes, look }
    }

    fn ask<T>(&self, answer: impl FnOnce() -> Result<T>) -> Result<T> {
        let left = self.answers.fetch_sub(1, Ordering::SeqCst);
        if left == 0 {
            self.answers.store(0, Ordering::SeqCst);
            return Err(Error::new(self.error, "no more"));
        }
        (self.look)(left);
        answer()
    }
}

impl Store for Watched<'_> {
    fn create(&self, _: &str, _: &[u8], _: Option<Timestamp>) -> Result<Tag> {
        unreachable!("a restore writes nothing")
    }

    fn swap(&self, _: &str, _: &[u8], _: &Tag) -> Result<Tag> {
        unreachable!("a restore writes nothing")
    }

    fn get(&self, key: &str, part: Part) -> Result<Option<Fetched>> {
        let fetched = self.ask(|| self.inner.get(key, part))?;
        let bytes = fetched.as_ref().map_or(0, |fetched| fetched.bytes.len() as u64);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(fetched)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Listing> {
        self.ask(|| self.inner.list(prefix, after))
    }

    fn delete(&self, _: &str) -> Result<()> {
        unreachable!("a restore writes nothing")
    }
}

/// How many requests a restore makes: as many of each archive, whatever its pages have.
fn requests(archive: &Archive) -> u64 {
    static REQUESTS: OnceLock<u64> = OnceLock::new();
    *REQUESTS.get_or_init(|| {
        let directory = scratch();
        let store = Watched::new(&archive.store, u64::MAX, &|_| ());
        archive.restore(&store, &directory.path().join("db")).unwrap();
        u64::MAX - store.answers.load(Ordering::SeqCst)
    })
}

#[test]
fn restore_whose_store_fails_again_and_again_reads_little_twice() {
    let archive = Archive::shared();
    let directory = scratch();
    let output = directory.path().join("db");
    let (mut read, mut failures, mut answers) = (0, 0, 20);
    loop {
        let store = Watched::new(&archive.store, answers, &|_| ());
        let made = archive.restore(&store, &output);
        read += store.bytes.load(Ordering::Relaxed);
        match made {
            Ok(_) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Lost),
        }
        assert!(!output.exists());
        failures += 1;
        assert!(failures < 20, "it gets no further");
        // To list, to plan and to look at the files takes 24, and four parts are read at a time.
        answers = 29;
    }
    archive.must_be(&output);
    assert!(failures > 2, "{failures}");
    let once = archive.bytes();
    assert!(read < once * 2, "{read} bytes were read of {once}, with {failures} failures");
}

/// What a kill leaves: the part as it is at any request.
#[test]
fn restore_that_was_killed_at_any_request_is_gone_on_with() {
    let archive = Archive::shared();
    let directory = scratch();
    let path = |name: String| directory.path().join(name);
    let part = path("db.monolite-part".into());
    let image = |left: u64| {
        // Some requests come from several threads at once, before there is a part.
        let Ok(file) = std::fs::File::open(&part) else { return };
        // It is written meanwhile. The notes first: of what they speak the pages are there by then.
        let (mut pages, mut notes) = (vec![0; archive.database.len()], Vec::new());
        (&file).seek(SeekFrom::Start(pages.len() as u64)).unwrap();
        (&file).read_to_end(&mut notes).unwrap();
        if file.read_exact_at(&mut pages, 0).is_ok() {
            let image = path(format!("image-{}.monolite-part", u64::MAX - left));
            std::fs::write(&image, [pages, notes].concat()).unwrap();
            let owners_alone = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&image, owners_alone).unwrap();
        }
    };
    let store = Watched::new(&archive.store, u64::MAX, &image);
    archive.restore(&store, &path("db".into())).unwrap();
    archive.must_be(&path("db".into()));
    let mut gone_on = 0;
    for at in (0..requests(archive)).step_by(5) {
        let output = path(format!("image-{at}"));
        let store = Watched::new(&archive.store, u64::MAX, &|_| ());
        archive.restore(&store, &output).unwrap();
        archive.must_be(&output);
        gone_on += u64::from(store.bytes.load(Ordering::Relaxed) < archive.bytes());
        std::fs::remove_file(output).unwrap();
    }
    assert!(gone_on > 0);
}

/// Leaves a part from which another one would go on.
fn stopped(archive: &Archive, output: &Path) -> std::path::PathBuf {
    let store = Watched::new(&archive.store, requests(archive) - 2, &|_| ());
    assert_eq!(archive.restore(&store, output).unwrap_err().kind(), ErrorKind::Lost);
    let part = output.with_file_name("db.monolite-part");
    assert!(std::fs::metadata(&part).unwrap().len() > archive.database.len() as u64);
    part
}

/// Each of many small files takes a request, however few pages it has.
#[test]
fn restore_that_was_stopped_among_small_files_is_gone_on_with() {
    let archive = Archive::with(8, 100, 12_000);
    let scratch = scratch();
    let output = scratch.path().join("restored.db");
    let store = Watched::new(&archive.store, 40, &|_| {});
    archive.restore(&store, &output).unwrap_err();
    let part = scratch.path().join("restored.db.monolite-part");
    assert!(part.exists(), "nothing is left to be gone on with");
    archive.restore(&archive.store, &output).unwrap();
    archive.must_be(&output);
}

#[test]
fn another_archive_with_the_same_names_and_lengths_is_begun_anew() {
    let (one, other) = (Archive::shared(), Archive::new(4));
    assert_eq!(one.bytes(), other.bytes());
    let directory = scratch();
    let output = directory.path().join("db");
    stopped(one, &output);
    // Tags of a store in memory are numbers, and these have been given.
    let key = other.layout.slot(txid(2));
    let slot = other.store.get(&key, Part::Whole(u64::MAX)).unwrap().unwrap();
    other.store.overwrite(&key, &slot.bytes);
    let store = Watched::new(&other.store, u64::MAX, &|_| ());
    other.restore(&store, &output).unwrap();
    other.must_be(&output);
    assert!(store.bytes.load(Ordering::Relaxed) >= other.bytes());
}

#[test]
fn archive_that_has_grown_is_begun_anew() {
    let mut archive = Archive::new(5);
    let directory = scratch();
    let output = directory.path().join("db");
    stopped(&archive, &output);
    let page = vec![7; 4096];
    put(
        &archive.store,
        &archive.layout.slot(txid(12)),
        TxidRange::single(txid(12)),
        &[(5, page.clone())],
        None,
    );
    archive.database[4 * 4096..5 * 4096].copy_from_slice(&page);
    archive.restore(&archive.store, &output).unwrap();
    archive.must_be(&output);
}

#[test]
fn torn_notes_are_none_and_one_of_two_is_enough() {
    let archive = Archive::shared();
    let directory = scratch();
    let output = directory.path().join("db");
    for torn in [[false, true], [true, false], [true, true]] {
        let part = stopped(archive, &output);
        let mut bytes = std::fs::read(&part).unwrap();
        let start = archive.database.len();
        let room = (32 + 4096 + 11 * 1024 + (PAGES as usize / 64 + 1) * 8).next_multiple_of(4096);
        for (at, is_torn) in torn.into_iter().enumerate() {
            if is_torn {
                bytes[start + at * room + 100] ^= 1;
            }
        }
        std::fs::write(&part, &bytes).unwrap();
        let store = Watched::new(&archive.store, u64::MAX, &|_| ());
        archive.restore(&store, &output).unwrap();
        archive.must_be(&output);
        let is_anew = store.bytes.load(Ordering::Relaxed) >= archive.bytes();
        assert_eq!(is_anew, torn == [true, true], "{torn:?}");
        std::fs::remove_file(&output).unwrap();
    }
}

#[test]
fn only_a_store_that_fails_leaves_something() {
    let archive = Archive::shared();
    let directory = scratch();
    let output = directory.path().join("db");
    for error in [ErrorKind::Corrupt, ErrorKind::NotFound, ErrorKind::Invalid] {
        let answers = requests(archive) - 2;
        let store = Watched { error, ..Watched::new(&archive.store, answers, &|_| ()) };
        assert_eq!(archive.restore(&store, &output).unwrap_err().kind(), error);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{error:?}");
    }
    // Within its first seconds nothing is noted, so nothing is left.
    let store = Watched::new(&archive.store, requests(archive) - 2, &|_| ());
    restore(&store, &archive.layout, Target::Latest, &output).unwrap_err();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn part_that_others_may_read_is_not_gone_on_with() {
    use std::os::unix::fs::PermissionsExt as _;
    let archive = Archive::shared();
    let directory = scratch();
    let output = directory.path().join("db");
    let part = stopped(archive, &output);
    std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o644)).unwrap();
    archive.restore(&archive.store, &output).unwrap();
    archive.must_be(&output);
    let mode = std::fs::metadata(&output).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
