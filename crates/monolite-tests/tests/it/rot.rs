//! Files whose bytes have changed on the disk: with page checksums a damaged page is an error that
//! names it and never an answer, and what recovery leaves out of a WAL is told.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use monolite::vfs::FileKind;
use monolite::{Database, Error, ErrorKind, Options, Sharing, Tx, rusqlite};

use monolite_testkit::markers;
use monolite_testkit::storage::{Disk, Fault, Operation, RealSyncs, wal_beside};

const PAGE: usize = 4_096;

/// Bytes of a value that needs several pages of its own.
const LONG: usize = 30_000;

fn checked() -> Options {
    Options::new().readers(1).page_checksums(true)
}

/// A database with twenty transactions, the first of which has a long value.
fn fill(db: &Database) {
    markers::create(db).unwrap();
    for id in 1..=20 {
        let filling = vec![id as u8; if id == 1 { LONG } else { 100 }];
        db.write(move |tx| markers::put_filled(tx, id, &filling)).wait().unwrap();
    }
}

fn make(options: Options, path: &Path) {
    let db = options.open(path).unwrap();
    fill(&db);
    db.close().unwrap();
}

/// Everything in the database, as SQL sees it.
fn contents(db: &Database) -> Result<Vec<(i64, i64, Vec<u8>)>, Error> {
    db.read(|tx| {
        let mut query = tx.prepare("SELECT id, number, filling FROM part ORDER BY 1, 2")?;
        let rows = query.query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    })
    .wait()
}

fn open_and_read(options: Options, path: &Path) -> Result<Vec<(i64, i64, Vec<u8>)>, Error> {
    contents(&options.open(path)?)
}

fn flip(path: &Path, bit: usize) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, (bit / 8) as u64).unwrap();
    byte[0] ^= 1 << (bit % 8);
    file.write_all_at(&byte, (bit / 8) as u64).unwrap();
}

/// How many frames the WAL of the database at `path` has; zeros that follow them are none.
fn frames_in_wal(path: &Path) -> usize {
    let wal = fs::read(wal_beside(path)).unwrap();
    let last = wal.iter().rposition(|byte| *byte != 0).unwrap();
    (last - 32).div_ceil(24 + PAGE)
}

/// The numbers of the pages in `bytes` whose checksum is wrong, by the published description.
fn wrong_pages(bytes: &[u8], page_bytes: usize) -> Vec<usize> {
    let is_wrong = |page: &[u8]| {
        let (mut s1, mut s2) = (0_u32, 0_u32);
        let words: Vec<u32> =
            page.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        let (content, stored) = words.split_at(words.len() - 2);
        for pair in content.chunks(2) {
            s1 = s1.wrapping_add(pair[0]).wrapping_add(s2);
            s2 = s2.wrapping_add(pair[1]).wrapping_add(s1);
        }
        stored != [s1, s2]
    };
    let pages = bytes.chunks(page_bytes).zip(1..);
    pages.filter(|(page, _)| is_wrong(page)).map(|(_, pgno)| pgno).collect()
}

#[test]
fn a_file_of_sqlites_checksum_vfs_is_verified_and_kept_right() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    for options in [checked(), Options::new()] {
        // Made with `ext/misc/cksumvfs.c` of SQLite 3.54.1, in pages of 512 bytes.
        let made = include_bytes!("rot/cksumvfs.db");
        assert_eq!(wrong_pages(made, 512), [0; 0]);
        fs::write(&path, made).unwrap();
        let db = options.open(&path).unwrap();
        let sql = "SELECT COUNT(*), SUM(length(name)) FROM part";
        let found = db.read(|tx| tx.query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?))));
        assert_eq!(found.wait().unwrap(), (11, 9 * 6 + 7 + 700));
        let rename = "UPDATE part SET name = name || ' again'";
        db.write(|tx| tx.execute(rename, ())).wait().unwrap();
        db.close().unwrap();
        let written = fs::read(&path).unwrap();
        assert_ne!(written, made);
        assert_eq!(wrong_pages(&written, 512), [0; 0]);
        flip(&path, (written.len() - 300) * 8);
        let error = checked().open(&path).and_then(|db| {
            db.read(|tx| tx.query_row("SELECT SUM(length(name)) FROM part", (), |_| Ok(()))).wait()
        });
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn a_database_without_checksums_is_refused_and_can_be_given_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    make(Options::new(), &path);
    let right = open_and_read(Options::new(), &path).unwrap();
    let error = checked().open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("add_page_checksums"), "{error}");
    assert!(error.to_string().contains("damaged"), "{error}");
    Options::new().add_page_checksums(&path).unwrap();
    assert_eq!(wrong_pages(&fs::read(&path).unwrap(), PAGE), [0; 0]);
    assert_eq!(open_and_read(checked(), &path).unwrap(), right);
    assert_eq!(markers::in_file(&path).unwrap().len(), 20);

    let missing = Options::new().add_page_checksums(directory.path().join("none")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Storage);
}

/// A file without checksums that is larger than the cache of [`converting`], and its rows.
fn make_large(path: &Path) -> Vec<(i64, Vec<u8>)> {
    let stock = rusqlite::Connection::open(path).unwrap();
    let fill = "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB);
                WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 700)
                INSERT INTO t SELECT i, randomblob(1000) FROM n";
    stock.execute_batch(fill).unwrap();
    rows_of_large(path)
}

/// Its rows, as plain SQLite reads them.
fn rows_of_large(path: &Path) -> Vec<(i64, Vec<u8>)> {
    let stock = rusqlite::Connection::open(path).unwrap();
    let sound: String = stock.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    let mut query = stock.prepare("SELECT id, v FROM t ORDER BY id").unwrap();
    let rows = query.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.collect::<rusqlite::Result<_>>().unwrap()
}

fn converting() -> Options {
    Options::new().writer_cache_bytes(64 << 10)
}

#[test]
fn checksums_are_added_to_a_file_larger_than_the_cache() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let right = make_large(&path);
    // The second time over pages that have some.
    for _ in 0..2 {
        converting().add_page_checksums(&path).unwrap();
        assert_eq!(wrong_pages(&fs::read(&path).unwrap(), PAGE), [0; 0]);
        let db = checked().open(&path).unwrap();
        assert_eq!(db.check().wait().unwrap().problems.len(), 0);
        db.close().unwrap();
        assert_eq!(rows_of_large(&path), right);
    }
}

#[test]
fn a_rewrite_that_fails_or_is_cut_off_leaves_the_content_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let right = make_large(&path);
    let intact = fs::read(&path).unwrap();
    let copy = directory.path().join("copy");
    let mut failures = 0;
    for (operation, number) in
        [(Operation::Write, 1), (Operation::Write, 40), (Operation::Write, 170)]
            .into_iter()
            .chain((0..3).map(|number| (Operation::Sync, number)))
    {
        fs::write(&path, &intact).unwrap();
        let disk = Disk::holding(&path, RealSyncs::Skipped).unwrap();
        let calls = AtomicUsize::new(0);
        let (from, to) = (path.clone(), copy.clone());
        disk.set_hook(move |call| {
            let is_such = (call.kind, call.operation) == (FileKind::Database, operation);
            if !is_such || calls.fetch_add(1, Ordering::SeqCst) != number {
                return None;
            }
            // What a process that is killed here would leave.
            for ending in ["", "-journal", "-wal"] {
                let name = |path: &Path| format!("{}{ending}", path.display());
                let _ = fs::remove_file(name(&to));
                let _ = fs::copy(name(&from), name(&to));
            }
            Some(Fault::Error)
        });
        let place = format!("{operation:?} {number}");
        let outcome = disk.under(converting()).add_page_checksums(&path);
        assert_eq!(rows_of_large(&path), right, "{place}");
        if outcome.is_ok() {
            // There were fewer such calls.
            continue;
        }
        failures += 1;
        Options::new().open(&copy).unwrap().close().unwrap();
        assert_eq!(rows_of_large(&copy), right, "{place}");
    }
    assert!(failures >= 3, "{failures}");
}

#[test]
fn a_page_that_is_written_twice_before_the_commit_is_no_damaged_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = checked().writer_cache_bytes(64 << 10).open(&path).unwrap();
    let made = db.write(|tx| {
        tx.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")?;
        let add = "INSERT INTO t(v) SELECT randomblob(1000) FROM generate_series(1, 700)";
        tx.execute(add, ())?;
        for _ in 0..3 {
            tx.execute("UPDATE t SET v = randomblob(1000)", ())?;
        }
        tx.query_row("SELECT count(*) FROM t WHERE length(v) = 1000", (), |row| {
            row.get::<_, i64>(0)
        })
    });
    assert_eq!(made.wait().unwrap(), 700);
    assert_eq!(db.check().wait().unwrap().problems.len(), 0);
    db.close().unwrap();
    assert_eq!(wrong_pages(&fs::read(&path).unwrap(), PAGE), [0; 0]);
    assert_eq!(rows_of_large(&path).len(), 700);
}

#[test]
fn checksums_that_stock_sqlite_has_not_kept_are_reported_and_can_be_renewed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    make(checked(), &path);
    let stock = rusqlite::Connection::open(&path).unwrap();
    stock.execute("UPDATE part SET filling = x'01' WHERE id = 7", ()).unwrap();
    stock.close().unwrap();
    assert_eq!(open_and_read(checked(), &path).unwrap_err().kind(), ErrorKind::Corrupt);
    Options::new().add_page_checksums(&path).unwrap();
    assert_eq!(open_and_read(checked(), &path).unwrap().len(), 60);
}

#[test]
fn a_header_that_lost_its_reserved_bytes_is_corrupt() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    make(checked(), &path);
    for bit in 0..8 {
        flip(&path, 20 * 8 + bit);
        let error = checked().open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        flip(&path, 20 * 8 + bit);
    }
    checked().open(&path).unwrap().close().unwrap();
}

#[test]
fn a_flipped_bit_in_the_wal_of_an_open_database_is_corrupt() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let db = checked().sharing(sharing).open(&path).unwrap();
        fill(&db);
        flip(&wal_beside(&path), (32 + frames_in_wal(&path) * (24 + PAGE)) * 8 - 900);
        // What was written last is read from memory, where nothing is wrong; but not where other
        // processes may write to the file.
        if sharing == Sharing::Exclusive {
            let run = |sql| db.write(move |tx: &Tx<'_>| tx.execute(sql, ())).wait().unwrap();
            run("CREATE TABLE later(filling)");
            (0..10).for_each(|_| _ = run("INSERT INTO later VALUES (zeroblob(1000000))"));
        }
        let error = contents(&db).map(|rows| rows.len()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(error.to_string().contains("WAL"), "{error}");
    }
}

#[test]
fn a_read_that_met_a_damaged_page_does_not_spoil_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    make(checked(), &path);
    let long = fs::read(&path).unwrap();
    let inside = long.windows(64).position(|bytes| bytes == [1; 64]).unwrap() + 6_000;
    flip(&path, inside * 8);
    let db = checked().open(&path).unwrap();
    for _ in 0..3 {
        assert_eq!(contents(&db).unwrap_err().kind(), ErrorKind::Corrupt);
        let sql = "SELECT n FROM total";
        let count = db.read(|tx| tx.query_row(sql, (), |row| row.get::<_, i64>(0))).wait();
        assert_eq!(count.unwrap(), 20);
    }
    // Nor does one in a write spoil its neighbours.
    let sum = "SELECT COUNT(*) FROM part WHERE substr(filling, -1) = x'01'";
    let wrong = db.write(|tx| tx.query_row(sum, (), |_| Ok(())));
    let right = db.write(|tx| markers::put(tx, 30));
    assert_eq!(wrong.wait().unwrap_err().kind(), ErrorKind::Corrupt);
    right.wait().unwrap();
}

/// The files of a database as a `kill -9` would leave them.
fn killed(options: &Options, path: &Path, copy: &Path) {
    let db = options.clone().open(path).unwrap();
    fill(&db);
    fs::copy(path, copy).unwrap();
    fs::copy(wal_beside(path), wal_beside(copy)).unwrap();
}

#[test]
fn a_damaged_wal_header_is_corrupt_and_nothing_is_thrown_away() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("db"), directory.path().join("copy"));
    for options in [Options::new(), checked()] {
        let _ = fs::remove_file(&path);
        killed(&options, &path, &copy);
        let wal = fs::read(wal_beside(&copy)).unwrap();
        for bit in (0..32 * 8).step_by(5) {
            flip(&wal_beside(&copy), bit);
            let error = options.clone().open(&copy).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
            flip(&wal_beside(&copy), bit);
            assert_eq!(fs::read(wal_beside(&copy)).unwrap(), wal);
        }
        assert_eq!(options.open(&copy).unwrap().stats().wal_frames_discarded, 0);
        assert_eq!(markers::in_file(&copy).unwrap().len(), 20);
    }
}

#[test]
fn frames_that_recovery_leaves_out_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("db"), directory.path().join("copy"));
    killed(&Options::new(), &path, &copy);
    let (database, wal) = (fs::read(&copy).unwrap(), fs::read(wal_beside(&copy)).unwrap());
    let frames = frames_in_wal(&copy);
    for frame in (0..frames).step_by(23).chain([frames - 1]) {
        // Page number, database size, salts, sums, page.
        for byte in [2, 6, 8, 11, 13, 19, 24, 3_000] {
            fs::write(&copy, &database).unwrap();
            fs::write(wal_beside(&copy), &wal).unwrap();
            flip(&wal_beside(&copy), (32 + frame * (24 + PAGE) + byte) * 8 + 1);
            let discarded = Database::open(&copy).unwrap().stats().wal_frames_discarded;
            assert!(discarded >= (frames - frame) as u64, "{discarded} of {frames} from {frame}");
        }
    }
}

#[test]
fn a_page_whose_end_was_cut_off_is_corrupt() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Database::open(&path).unwrap();
    let sql = "CREATE TABLE t(v); INSERT INTO t VALUES (randomblob(20000))";
    db.write(|tx| tx.execute_batch(sql)).wait().unwrap();
    db.close().unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let whole = file.metadata().unwrap().len();
    for cut in [1, PAGE as u64 - 1] {
        file.set_len(whole - cut).unwrap();
        assert!(!Database::check_file(&path).wait().unwrap().is_sound());
        let db = Database::open(&path).unwrap();
        let read =
            db.read(|tx| tx.query_row("SELECT v FROM t", (), |row| row.get::<_, Vec<u8>>(0)));
        assert_eq!(read.wait().unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn damage_in_the_tree_of_the_schema_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    make(Options::new(), &path);
    assert!(Database::check_file(&path).wait().unwrap().is_sound());
    // The number of bytes that are free in fragments of the first page.
    flip(&path, 8 * 107);
    let checked = Database::check_file(&path).wait().unwrap();
    assert!(checked.problems[0].contains("on page 1"), "{checked:?}");
    let checked = Database::open(&path).unwrap().check().wait().unwrap();
    assert!(checked.problems[0].contains("on page 1"), "{checked:?}");
}
