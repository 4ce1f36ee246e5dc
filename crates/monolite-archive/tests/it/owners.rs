//! What root makes belongs to the owner of the place: the program that runs as another user goes on
//! with it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::sync::atomic::Ordering;

use monolite::{Durability, Options};
use monolite_archive::{
    Layout,
    internals::{Level, Present, adopt},
};

use crate::archive::{TestPace, compact_level};
use crate::archiving::{Bench, create, insert, wait_until};
use crate::programs::skip;

/// The user of the service. Nobody needs to know it.
const SERVICE: u32 = 51_234;

/// Everything at and below `path` is the service's; how many files that are.
fn belongs_to_the_service(path: &Path) -> usize {
    let there = fs::symlink_metadata(path).unwrap();
    assert_eq!((there.uid(), there.gid()), (SERVICE, SERVICE), "{}", path.display());
    if !there.is_dir() {
        return 1;
    }
    let entries = fs::read_dir(path).unwrap();
    entries.map(|entry| belongs_to_the_service(&entry.unwrap().path())).sum()
}

#[test]
fn what_root_makes_belongs_to_the_owner_of_its_place() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return skip("what_root_makes_belongs_to_the_owner_of_its_place", "root is needed");
    }
    let bench = Bench::new();
    let root = bench.store().root().to_owned();
    let place = bench.file().parent().unwrap().to_owned();
    for directory in [&root, &place] {
        fs::create_dir(directory).unwrap();
        fs::set_permissions(directory, fs::Permissions::from_mode(0o750)).unwrap();
        chown(directory, Some(SERVICE), Some(SERVICE)).unwrap();
    }
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    insert(&db, 2_000).unwrap();
    // The machine is gone.
    let _ = db.close();
    fs::remove_dir_all(&place).unwrap();
    fs::create_dir(&place).unwrap();
    chown(&place, Some(SERVICE), Some(SERVICE)).unwrap();
    let (store, layout) = (bench.store(), Layout::directory());
    compact_level(&store, &layout, Level::FIRST, None).unwrap().unwrap();
    let made = bench.restored();
    assert_eq!(fs::metadata(&made).unwrap().uid(), 0, "its directory is root's");
    let restored = place.join("shop.db");
    let target = monolite_archive::Target::Latest;
    monolite_archive::internals::restore(&store, &layout, target, &restored).unwrap();
    let mut pace = TestPace::default();
    adopt(&store, &layout, Present::TakeOver, Some(&restored), &mut pace).unwrap().unwrap();
    assert!(belongs_to_the_service(&place) >= 2);
    assert!(belongs_to_the_service(&root) > 4);
    let level = fs::metadata(root.join("ltx/1")).unwrap();
    assert_eq!(level.mode() & 0o777, 0o750, "who may read its directory may read it");

    // What is kept while the store is away.
    let (archive, is_away) = bench.archive_that_goes_away();
    let archive = archive.close_time(std::time::Duration::from_millis(100));
    let options = Options::new().readers(1).wal_limit_bytes(8 << 20).archive(archive);
    let db = options.open(&restored).unwrap();
    wait_until("it has all", || db.stats().archive.unwrap().copies_because.is_none());
    is_away.store(true, Ordering::Relaxed);
    for _ in 0..700 {
        insert(&db, 20_000).unwrap();
    }
    db.close().unwrap();
    assert!(belongs_to_the_service(&place.join("shop.db-archive")) > 1);
    assert!(belongs_to_the_service(&root) > 4);
}
