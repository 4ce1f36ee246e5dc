//! The record of changed pages: complete before a commit is visible, counted only after.

use std::collections::BTreeSet;

use super::*;

/// What a [`Watched`] WAL saw of the record when a commit was about to be written.
#[derive(Default)]
struct Watch {
    /// Sequence before the commit that is under way, and the pages it must change.
    expected: Mutex<Option<(CommitSequence, Vec<u32>)>>,
    commits: AtomicU64,
    fail: AtomicBool,
}

struct Watching {
    direct: Direct,
    control: Arc<WalControl>,
    watch: Arc<Watch>,
}

struct Watched {
    control: Arc<WalControl>,
    watch: Arc<Watch>,
}

impl Storage for Watching {
    fn open(&self, kind: FileKind, _: Option<&Path>, _: &mut LowerFile) -> Result<Box<dyn File>> {
        Ok(match kind {
            FileKind::Wal => {
                let (control, watch) = (Arc::clone(&self.control), Arc::clone(&self.watch));
                self.direct.around(kind, Watched { control, watch })
            }
            _ => self.direct.around(kind, Forward),
        })
    }
}

impl File for Watched {
    /// Everything but a WAL header ends with a commit frame here, whose page is the last to come.
    fn write(&mut self, lower: &mut LowerFile, data: &[u8], at: u64) -> Result {
        if let (Some((before, pages)), 24..) = (&*self.watch.expected.lock().unwrap(), data.len()) {
            let changes = self.control.changes();
            if at > 0 {
                assert_eq!(changes.sequence(), *before, "counted before it was visible");
                for pgno in pages {
                    assert!(changes.changed_since(*pgno, *before), "page {pgno} not recorded");
                }
                self.watch.commits.fetch_add(1, SeqCst);
            }
        }
        if self.watch.fail.load(SeqCst) {
            return Err(IoError::FULL);
        }
        lower.write(data, at)
    }
}

struct WatchedRig {
    rig: Rig,
    watch: Arc<Watch>,
}

impl WatchedRig {
    fn new() -> WatchedRig {
        let control = Arc::new(WalControl::default());
        let watch = Arc::new(Watch::default());
        let direct = Direct::new(Arc::clone(&control));
        let (of, seen) = (Arc::clone(&control), Arc::clone(&watch));
        let vfs =
            Vfs::register(Lower::UnixExcl, Arc::new(Watching { direct, control: of, watch: seen }));
        let vfs = vfs.unwrap();
        let rig = Rig { control, vfs, ..Rig::new(Lower::UnixExcl) };
        WatchedRig { rig, watch }
    }

    fn changes(&self) -> &Changes {
        self.rig.control.changes()
    }

    fn changed(&self, since: CommitSequence) -> BTreeSet<u32> {
        (1..100).filter(|pgno| self.changes().changed_since(*pgno, since)).collect()
    }
}

/// The root page of a table.
fn root(connection: &Connection, name: &str) -> u32 {
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    connection.query_row(sql, [name], |row| row.get(0)).unwrap()
}

#[test]
fn a_commit_is_recorded_before_it_is_written_and_counted_after_it_is_visible() {
    let watched = WatchedRig::new();
    let writer = watched.rig.open_with_table();
    writer.execute_batch("CREATE TABLE u(x); INSERT INTO u VALUES(1)").unwrap();
    let (t, u) = (root(&writer, "t"), root(&writer, "u"));
    for number in 0..20 {
        let before = watched.changes().sequence();
        *watched.watch.expected.lock().unwrap() = Some((before, vec![u]));
        writer.execute("UPDATE u SET x = ?1", [number]).unwrap();
        assert!(watched.changes().sequence() > before, "visible, and not counted");
        assert!(watched.changed(before).contains(&u));
        assert!(!watched.changed(before).contains(&t));
        assert!(watched.changed(watched.changes().sequence()).is_empty());
    }
    assert_eq!(watched.watch.commits.load(SeqCst), 20);
}

#[test]
fn a_rollback_and_a_checkpoint_change_nothing() {
    let watched = WatchedRig::new();
    let writer = watched.rig.open_with_table();
    insert(&writer, 10).unwrap();
    let before = watched.changes().sequence();
    writer.execute_batch("BEGIN; DELETE FROM t; ROLLBACK").unwrap();
    writer.execute_batch("PRAGMA cache_spill=1; PRAGMA cache_size=4; BEGIN").unwrap();
    insert(&writer, 200).unwrap();
    assert!(watched.rig.wal_file_bytes() > 0, "frames were written");
    writer.execute_batch("ROLLBACK; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    assert_eq!(watched.changes().sequence(), before);
    assert!(watched.changed(before).is_empty());
    // The first commit of the next transaction does not take over what was rolled back.
    writer.execute_batch("CREATE TABLE u(x)").unwrap();
    assert_eq!(watched.changed(before), [1, root(&writer, "u")].into());
}

#[test]
fn a_failed_commit_leaves_the_record_on_the_safe_side() {
    let watched = WatchedRig::new();
    let writer = watched.rig.open_with_table();
    insert(&writer, 1).unwrap();
    let reader = watched.rig.open();
    for refused in [true, false] {
        let before = watched.changes().sequence();
        watched.rig.control.set_limit_bytes(if refused { 0 } else { u64::MAX });
        watched.watch.fail.store(!refused, SeqCst);
        insert(&writer, 1).unwrap_err();
        watched.watch.fail.store(false, SeqCst);
        watched.rig.control.set_limit_bytes(u64::MAX);
        let rows = count(&reader).unwrap();
        insert(&writer, 1).unwrap();
        assert_eq!(count(&reader).unwrap(), rows + 1);
        assert!(watched.changed(before).contains(&root(&writer, "t")));
        assert!(watched.changed(watched.changes().sequence()).is_empty());
    }
}

#[test]
fn a_commit_larger_than_what_is_held_is_recorded_whole() {
    let watched = WatchedRig::new();
    let writer = watched.rig.open_with_table();
    let before = watched.changes().sequence();
    insert(&writer, 3000).unwrap();
    assert_eq!(watched.changed(before).len(), 99);
    let pages: u32 = writer.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    assert!((2..=pages).all(|pgno| watched.changes().changed_since(pgno, before)));
    assert!(!watched.changes().changed_since(pages + 1, before));
}

#[test]
fn every_connection_of_the_database_records() {
    let watched = WatchedRig::new();
    let first = watched.rig.open_with_table();
    let second = watched.rig.open();
    for writer in [&second, &first, &second] {
        let before = watched.changes().sequence();
        insert(writer, 1).unwrap();
        assert!(watched.changed(before).contains(&root(&first, "t")));
        assert!(watched.changed(watched.changes().sequence()).is_empty());
    }
}
