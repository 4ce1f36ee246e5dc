//! Moments of real files, while a writer goes on and checkpoints at random.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::*;
use crate::vfs::{
    ChecksumUse, Checksummed, Direct, Guarded, Lower, PageChecksums, Vfs, WalControl,
};
use crate::{Role, Settings};

/// A database with a writer, whose other connections are opened as needed.
struct Rig {
    writer: Connection,
    control: Arc<WalControl>,
    path: PathBuf,
    vfs: Vfs,
    reserved_bytes: u8,
    directory: tempfile::TempDir,
}

/// An image in memory.
#[derive(Clone, Default)]
struct InMemory {
    pages: Arc<Mutex<BTreeMap<u64, Vec<u8>>>>,
    saves: Arc<Mutex<u32>>,
}

impl Images for InMemory {
    fn save(&self, pages: &[u8], at: u64) -> io::Result<()> {
        *self.saves.lock().unwrap() += 1;
        let twice = self.pages.lock().unwrap().insert(at, pages.to_vec());
        assert!(twice.is_none(), "each page is saved once");
        Ok(())
    }
}

impl InMemory {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (at, pages) in &*self.pages.lock().unwrap() {
            let end = *at as usize + pages.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[*at as usize..end].copy_from_slice(pages);
        }
        bytes
    }
}

impl Rig {
    fn new(reserved_bytes: u8) -> Rig {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        let control = Arc::new(WalControl::keeping_frames(u64::MAX));
        let direct = Direct::new(Arc::clone(&control));
        let purpose = if reserved_bytes > 0 { ChecksumUse::Verify } else { ChecksumUse::Keep };
        let checksums = Arc::new(PageChecksums::new(purpose));
        let storage = Arc::new(Checksummed::new(Arc::new(direct), checksums));
        let vfs = Vfs::register(Lower::UnixExcl, storage).unwrap();
        let set = settings(&vfs, reserved_bytes);
        if reserved_bytes == 0 {
            // The file gets shorter when rows are deleted.
            let plain = rusqlite::Connection::open(&path).unwrap();
            plain.execute_batch("PRAGMA auto_vacuum = FULL; CREATE TABLE x(y)").unwrap();
        }
        let writer = Connection::open(&path, Role::Writer, &set).unwrap();
        let rig = Rig { writer, control, path, vfs, reserved_bytes, directory };
        rig.write("CREATE TABLE t(id INTEGER PRIMARY KEY, v, fill BLOB); CREATE INDEX i ON t(v)");
        rig.write(&fill(120));
        rig
    }

    fn write(&self, sql: &str) {
        self.writer.begin_immediate().unwrap();
        self.writer.raw().execute_batch(sql).unwrap();
        self.writer.commit().unwrap();
    }

    fn reader(&self) -> Connection {
        let settings = settings(&self.vfs, self.reserved_bytes);
        Connection::open(&self.path, Role::Reader, &settings).unwrap()
    }

    /// What the image says, opened by stock SQLite.
    fn content_of(&self, image: &InMemory) -> Result<Vec<(i64, i64, i64)>> {
        let path = self.directory.path().join("image.db");
        let mut bytes = image.bytes();
        leave_wal_mode(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        let image = rusqlite::Connection::open(&path)?;
        let said: String = image.query_row("PRAGMA integrity_check", (), |row| row.get(0))?;
        let seen = content(&image)?;
        drop(image);
        std::fs::remove_file(&path).unwrap();
        Ok(if said == "ok" { seen } else { Vec::new() })
    }
}

fn settings(vfs: &Vfs, reserved_bytes: u8) -> Settings {
    Settings { reserved_bytes, sync: false, ..Settings::new(vfs.name()) }
}

fn fill(rows: i64) -> String {
    format!(
        "WITH c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c LIMIT {rows})
         INSERT INTO t(v, fill) SELECT i, zeroblob(900) FROM c"
    )
}

fn content(connection: &rusqlite::Connection) -> Result<Vec<(i64, i64, i64)>> {
    let sql = "SELECT id, v, length(fill) FROM t NOT INDEXED ORDER BY id";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    rows.collect()
}

/// Numbers that look random, the same for each seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        // Knuth's MMIX generator.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
        (self.0 >> 33) % bound
    }
}

/// The writer, checkpoints and other readers, one step after the other.
struct Life<'r> {
    rig: &'r Rig,
    dice: Dice,
    old: Option<Connection>,
}

impl Life<'_> {
    fn step(&mut self) {
        let (rig, row) = (self.rig, self.dice.below(200));
        match self.dice.below(12) {
            0..4 => rig.write(&format!("UPDATE t SET v = v + 1 WHERE id % 17 = {}", row % 17)),
            4 => rig.write(&fill(30)),
            5 => rig.write(&format!("DELETE FROM t WHERE id > {row}")),
            6 | 7 => {
                let old = rig.reader();
                old.begin_read().unwrap();
                self.old = Some(old);
            }
            8 => self.old = None,
            9 => _ = rig.writer.checkpoint(CheckpointMode::Restart).unwrap(),
            _ => _ = rig.writer.checkpoint(CheckpointMode::Passive).unwrap(),
        }
    }
}

/// Copies a moment while life goes on; whether the image has what a reader saw at the moment.
fn is_right(seed: u64, reserved_bytes: u8) -> bool {
    let rig = Rig::new(reserved_bytes);
    let mut life = Life { rig: &rig, dice: Dice(seed), old: None };
    for _ in 0..life.dice.below(30) {
        life.step();
    }
    let (reader, checkpointer) = (rig.reader(), rig.reader());
    let start = Start::take(&reader, &checkpointer).unwrap();
    let expected = content(reader.raw()).unwrap();
    // Until here nobody commits.
    for _ in 0..life.dice.below(6) {
        life.step();
    }
    let image = InMemory::default();
    let place = image.clone();
    let is_verified = reserved_bytes > 0;
    let moment = start.moment(&reader, is_verified, |_| Ok(Box::new(place)), |_| true);
    let Ok(moment) = moment else { return false };
    let moment = Arc::new(moment);
    for _ in 0..life.dice.below(6) {
        life.step();
    }
    let guarded = Guarded::new(&rig.control, &moment);
    reader.rollback().unwrap();
    let (mut next, mut buffer) = (Some(1), Vec::new());
    while let Some(pgno) = next {
        for _ in 0..life.dice.below(4) {
            life.step();
        }
        match moment.copy(reader.raw(), pgno, &mut buffer) {
            Ok(more) => next = more,
            Err(_) => return false,
        }
    }
    drop(guarded);
    let saves = *image.saves.lock().unwrap();
    (0..5).for_each(|_| life.step());
    assert_eq!(*image.saves.lock().unwrap(), saves, "nothing is saved when the copy has ended");
    moment.check().is_ok()
        && image.bytes().len() as u64 == moment.bytes()
        && rig.content_of(&image).is_ok_and(|seen| seen == expected)
}

#[test]
fn an_image_has_the_content_of_its_moment() {
    for seed in 0..60 {
        let reserved_bytes = if seed % 3 == 0 { RESERVED_BYTES } else { 0 };
        assert!(is_right(seed, reserved_bytes), "seed {seed}");
    }
}

thread_local! {
    /// What happens when a snapshot is about to be taken.
    static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

pub(super) fn meanwhile() {
    if let Some(happens) = MEANWHILE.take() {
        happens();
    }
}

/// Takes a moment while an old snapshot keeps the WAL from being copied, and ends just then, so
/// that it is copied; then the WAL restarts. Whether the image is right.
fn is_right_when_the_wal_is_copied_meanwhile() -> bool {
    let rig = Rig::new(0);
    let (old, elsewhere) = (rig.reader(), rig.reader());
    old.begin_read().unwrap();
    rig.write("UPDATE t SET v = v + 1");
    MEANWHILE.set(Some(Box::new(move || {
        drop(old);
        assert!(elsewhere.checkpoint(CheckpointMode::Passive).unwrap().is_complete());
    })));
    let (reader, checkpointer) = (rig.reader(), rig.reader());
    let start = Start::take(&reader, &checkpointer).unwrap();
    let expected = content(reader.raw()).unwrap();
    // The snapshot needs nothing of the WAL, and so does not keep it.
    rig.write("UPDATE t SET v = v + 100");
    let image = InMemory::default();
    let place = image.clone();
    let moment = start.moment(&reader, false, |_| Ok(Box::new(place)), |_| true);
    let Ok(moment) = moment else { return false };
    let (mut next, mut buffer) = (Some(1), Vec::new());
    while let Some(pgno) = next {
        next = moment.copy(reader.raw(), pgno, &mut buffer).unwrap();
    }
    rig.content_of(&image).is_ok_and(|seen| seen == expected)
}

#[test]
fn where_the_content_is_is_found_out_behind_the_snapshot() {
    assert!(is_right_when_the_wal_is_copied_meanwhile());
}

#[test]
fn a_damaged_page_is_no_part_of_an_image() {
    let rig = Rig::new(RESERVED_BYTES);
    rig.writer.checkpoint(CheckpointMode::Truncate).unwrap();
    let mut bytes = std::fs::read(&rig.path).unwrap();
    bytes[4_096 * 20 + 99] ^= 1;
    let file = std::fs::File::options().write(true).open(&rig.path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    let (reader, checkpointer) = (rig.reader(), rig.reader());
    let moment = || {
        let start = Start::take(&reader, &checkpointer).unwrap();
        let images = |_| -> io::Result<Box<dyn Images>> { Ok(Box::new(InMemory::default())) };
        let moment = Arc::new(start.moment(&reader, true, images, |_| true).unwrap());
        let guarded = Guarded::new(&rig.control, &moment);
        reader.rollback().unwrap();
        (moment, guarded)
    };
    // Read by the copier.
    let (copied, guarded) = moment();
    let (mut next, mut buffer) = (Ok(Some(1)), Vec::new());
    while let Ok(Some(pgno)) = next {
        next = copied.copy(reader.raw(), pgno, &mut buffer);
    }
    assert!(matches!(next, Err(Fault::Read(IoError::DATA))), "{next:?}");
    drop(guarded);
    // Overwritten by a checkpoint: its content is not noticed there by SQLite.
    let (written, _guarded) = moment();
    rig.write("UPDATE t SET v = v + 1, fill = zeroblob(901)");
    rig.writer.checkpoint(CheckpointMode::Passive).unwrap();
    assert!(matches!(written.check(), Err(Fault::Damaged { pgno: 21 })));
}

#[test]
fn a_header_is_that_of_a_rollback_journal_and_a_checksum_stays_what_it_was() {
    let rig = Rig::new(RESERVED_BYTES);
    rig.writer.checkpoint(CheckpointMode::Truncate).unwrap();
    let page = std::fs::read(&rig.path).unwrap()[..4_096].to_vec();
    assert_eq!(page[18..20], [2, 2]);
    let is_intact = |page: &[u8]| {
        let (content, sums) = page.split_at(4_088);
        Sums::default().over(content, Order::Little).to_page() == sums
    };
    let mut left = page.clone();
    leave_wal_mode(&mut left);
    assert_eq!(left[18..20], [1, 1]);
    assert!(is_intact(&page) && is_intact(&left));
    let mut damaged = page;
    damaged[2_000] ^= 1;
    leave_wal_mode(&mut damaged);
    assert!(!is_intact(&damaged));
    // What is no database stays what it is.
    let mut other = vec![7; 4_096];
    leave_wal_mode(&mut other);
    assert_eq!(other, [7; 4_096]);
    leave_wal_mode(&mut []);
}
