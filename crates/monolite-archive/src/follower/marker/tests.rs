//! Images of a file that follows, at each moment at which something of it changes on the disk.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use monolite::archive::Pages;
use monolite::archive::names::with_ending;
use monolite::rusqlite::Connection;
use monolite::vfs::{Direct, File, FileKind, IoError, LowerFile, Storage, SyncFlags};
use monolite::{Options, Replica};
use tempfile::TempDir;

use super::*;

/// What was there of a file, and what it was.
struct Image {
    directory: TempDir,
    identity: Identity,
    /// The state that was acknowledged.
    acknowledged: u64,
}

const FILES: [&str; 3] = ["", "-wal", "-archive/streamed.json"];

impl Image {
    fn path(&self) -> PathBuf {
        self.directory.path().join("db")
    }

    fn is(&self, contents: &[Option<Vec<u8>>; 3]) -> bool {
        FILES.map(|ending| fs::read(with_ending(&self.path(), ending)).ok()) == *contents
    }
}

#[derive(Default)]
struct Images {
    path: PathBuf,
    taken: Mutex<Vec<Image>>,
    acknowledged: AtomicU64,
    has_begun: AtomicBool,
}

impl Images {
    fn take(&self) {
        if !self.has_begun.load(Ordering::Relaxed) {
            return;
        }
        let contents = FILES.map(|ending| fs::read(with_ending(&self.path, ending)).ok());
        let mut taken = self.taken.lock().unwrap();
        if taken.last().is_some_and(|last| last.is(&contents)) {
            return;
        }
        let image = Image {
            directory: tempfile::tempdir().unwrap(),
            identity: Identity::of(&fs::metadata(&self.path).unwrap()),
            acknowledged: self.acknowledged.load(Ordering::Relaxed),
        };
        fs::create_dir(directory_of(&image.path())).unwrap();
        for (ending, content) in FILES.iter().zip(contents) {
            let path = with_ending(&image.path(), ending);
            content.map_or(Ok(()), |content| fs::write(path, content)).unwrap();
        }
        taken.push(image);
    }
}

struct Imaged(Arc<Images>, Direct);

struct ImagedFile(Arc<Images>, Box<dyn File>);

impl Storage for Imaged {
    fn open(
        &self,
        kind: FileKind,
        path: Option<&Path>,
        lower: &mut LowerFile,
    ) -> Result<Box<dyn File>, IoError> {
        Ok(Box::new(ImagedFile(Arc::clone(&self.0), self.1.open(kind, path, lower)?)))
    }
}

impl File for ImagedFile {
    fn below(&mut self) -> Option<&mut dyn File> {
        Some(&mut *self.1)
    }

    fn write(&mut self, lower: &mut LowerFile, data: &[u8], at: u64) -> Result<(), IoError> {
        let written = self.1.write(lower, data, at);
        self.0.take();
        written
    }

    fn truncate(&mut self, lower: &mut LowerFile, size: u64) -> Result<(), IoError> {
        let cut = self.1.truncate(lower, size);
        self.0.take();
        cut
    }

    fn sync(&mut self, lower: &mut LowerFile, flags: SyncFlags) -> Result<(), IoError> {
        self.0.take();
        self.1.sync(lower, flags)
    }
}

/// Notes, and takes an image before anything else happens.
struct Noting(Arc<Images>, Notes);

impl Keeper for Noting {
    fn found(&self, last: LastCommit) -> Option<Vec<u8>> {
        Keeper::found(&self.1, last)
    }

    fn leaves(&self, marker: &[u8], next: Option<[u32; 2]>) -> Result<(), String> {
        self.0.take();
        let noted = self.1.leaves(marker, next);
        self.0.take();
        noted
    }
}

struct Changed(Vec<(u32, Vec<u8>)>);

impl Pages for Changed {
    fn each(&mut self, give: &mut dyn FnMut(u32, &[u8]) -> io::Result<()>) -> io::Result<()> {
        self.0.iter().try_for_each(|(pgno, page)| give(*pgno, page))
    }
}

/// States of a database of 512-byte pages that grows and shrinks; each says its number.
fn states(directory: &Path) -> Vec<Vec<u8>> {
    let path = directory.join("source");
    let source = Connection::open(&path).unwrap();
    let begin = "PRAGMA page_size = 512; PRAGMA auto_vacuum = FULL; CREATE TABLE n(n);
                 CREATE TABLE t(v); INSERT INTO n VALUES (0); PRAGMA journal_mode = WAL";
    source.execute_batch(begin).unwrap();
    let more =
        "INSERT INTO t VALUES (randomblob(450)); INSERT INTO t SELECT randomblob(450) FROM t";
    let less = "DELETE FROM t WHERE rowid > (SELECT max(rowid) * 2 / 3 FROM t)";
    let state = |n: u32| {
        let sql = if n % 3 == 2 { less } else { more };
        source.execute_batch(&format!("UPDATE n SET n = {n}; {sql}")).unwrap();
        source.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        fs::read(&path).unwrap()
    };
    (1..=10).map(state).collect()
}

fn open(path: &Path, keeper: Arc<dyn Keeper>, options: Options) -> Replica {
    Replica::open(options.readers(1), path, "it follows", keeper).unwrap()
}

fn number(replica: &Replica) -> u64 {
    let read =
        |tx: &monolite::ReadTx<'_>| tx.query_row("SELECT n FROM n", (), |row| row.get::<_, u32>(0));
    replica.database().read(read).wait().unwrap().into()
}

#[test]
fn state_is_known_after_a_kill_at_any_moment() {
    let directory = tempfile::tempdir().unwrap();
    let states = states(directory.path());
    let path = directory.path().join("db");
    fs::write(&path, &states[0]).unwrap();
    fs::create_dir(directory_of(&path)).unwrap();
    let images = Arc::new(Images { path: path.clone(), ..Images::default() });
    let theirs = Arc::clone(&images);
    let storage = move |direct| Arc::new(Imaged(Arc::clone(&theirs), direct)) as _;
    Notes::of(&path).unwrap().write(Marker::of_slot(1), None).unwrap();
    images.acknowledged.store(1, Ordering::Relaxed);
    images.has_begun.store(true, Ordering::Relaxed);
    for opening in 0..3 {
        let keeper = Arc::new(Noting(Arc::clone(&images), Notes::of(&path).unwrap()));
        let replica = open(&path, keeper, Options::new().storage(storage.clone()));
        for at in 3 * opening..3 * (opening + 1) {
            let (before, after) = (&states[at], &states[at + 1]);
            let pages = after.chunks(512).map(<[u8]>::to_vec).zip(1..).map(|(page, at)| (at, page));
            let changed =
                pages.filter(|(at, page)| before.chunks(512).nth(*at as usize - 1) != Some(page));
            let groups = vec![Box::new(Changed(changed.collect())) as _];
            let marker = serde_json::to_vec(&Marker::of_slot(at as u64 + 2)).unwrap();
            replica.repeat(groups, (after.len() / 512) as u32, Some(marker)).unwrap();
            images.acknowledged.store(at as u64 + 2, Ordering::Relaxed);
            images.take();
            if at % 2 == 0 {
                replica.database().checkpoint().wait().unwrap();
            }
        }
        replica.database().close().unwrap();
        images.take();
    }
    images.has_begun.store(false, Ordering::Relaxed);
    let taken = std::mem::take(&mut *images.taken.lock().unwrap());
    let (mut of_note, mut of_wal) = (0, 0);
    for image in &taken {
        let mut notes = Notes::of(&image.path()).unwrap();
        notes.before = image.identity;
        let notes = Arc::new(notes);
        let wal = fs::metadata(with_ending(&image.path(), "-wal")).map_or(0, |it| it.len());
        let replica = open(&image.path(), Arc::clone(&notes) as _, Options::new());
        let n = number(&replica);
        assert_eq!(notes.found(), Some(Marker::of_slot(n)), "a WAL of {wal} bytes");
        assert!(n >= image.acknowledged, "{n} behind {}", image.acknowledged);
        replica.database().close().unwrap();
        *if wal > 32 { &mut of_wal } else { &mut of_note } += 1;
    }
    assert!(of_note > 10 && of_wal > 30, "{of_note} without commits, {of_wal} with");
}

#[test]
fn file_or_wal_of_another_is_not_known() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    fs::write(&path, &states(directory.path())[0]).unwrap();
    fs::create_dir(directory_of(&path)).unwrap();
    let marker = Marker::of_slot(7);
    Notes::of(&path).unwrap().write(marker.clone(), Some([1, 2])).unwrap();
    let found = |last| {
        let notes = Notes::of(&path).unwrap();
        Keeper::found(&notes, last);
        notes.found()
    };
    assert_eq!(found(LastCommit::Nothing(Some([1, 2]))).as_ref(), Some(&marker));
    assert_eq!(found(LastCommit::Nothing(Some([2, 2]))), None, "another WAL has begun");
    assert_eq!(found(LastCommit::Nothing(None)), None, "it was not cut");
    Notes::of(&path).unwrap().write(marker.clone(), None).unwrap();
    assert_eq!(found(LastCommit::Nothing(None)).as_ref(), Some(&marker));
    assert_eq!(found(LastCommit::Unmarked), None, "another program's commit");
    assert_eq!(found(LastCommit::Marked(b"?".to_vec())), None);
    // The WAL begins, and a kill comes before its header is there.
    Notes::of(&path).unwrap().write(marker.clone(), Some([3, 4])).unwrap();
    assert_eq!(found(LastCommit::Nothing(None)), Some(marker));
    fs::write(&path, fs::read(&path).unwrap()).unwrap();
    assert_eq!(found(LastCommit::Nothing(None)), None, "the file was written to");
}

#[test]
fn marker_that_fits_no_page_is_refused() {
    let generations = |n: u64| (0..n).map(|it| (it, [u32::MAX; 2])).collect();
    let at = monolite::archive::WalPosition { generation: 1 << 40, offset: 1 << 40 };
    let of = |n| {
        let streamed = Streamed { epoch: crate::record::Epoch(9), at, generations: generations(n) };
        Marker { from: u64::MAX, to: u64::MAX, streamed: Some(streamed) }
    };
    let [small, usual] = [512, 4_096].map(|bytes| PageSize::new(bytes).unwrap());
    for (marker, page_size) in [(of(8), small), (of(100), usual)] {
        let bytes = marker.encode(page_size).unwrap();
        assert_eq!(serde_json::from_slice::<Marker>(&bytes).unwrap(), marker);
    }
    assert_eq!(of(20).encode(small).unwrap_err().kind(), ErrorKind::Gap);
}
