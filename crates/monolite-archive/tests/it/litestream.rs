//! Litestream and the archive of an open database, both ways: each restores, follows and takes over
//! what the other has archived, in a directory and in a bucket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use monolite::rusqlite::Connection;
use monolite::{Database, Durability, Options};
use monolite_archive::{
    Archive, Target,
    internals::{Level, Present, adopt, restore},
};
use monolite_ltx::{Timestamp, Txid};

use crate::archive::{TestPace, compact_level, scratch, snapshot};
use crate::programs::{Running, Site, program, programs, wait_for};
use crate::story::{Story, digest_of};

/// Runs a test on a directory, and on a bucket where there is a gateway.
fn on_each_site(test: &str, names: &[&str], run: impl Fn(&Site, &Path, &[PathBuf])) {
    let mut found = Vec::new();
    for name in names {
        let Some([program]) = programs(test, [name]) else { return };
        found.push(program);
    }
    let directory = scratch();
    run(&Site::directory(&directory.path().join("archive")), directory.path(), &found);
    #[cfg(feature = "s3")]
    if let Some([gateway]) = programs(&format!("{test} in a bucket"), ["versitygw"]) {
        let gateway = crate::gateway::Gateway::start(&gateway);
        let directory = scratch();
        run(&gateway.site("any/ledger", gateway.port), directory.path(), &found);
    }
    #[cfg(not(feature = "s3"))]
    crate::programs::skip(&format!("{test} in a bucket"), "built without the feature s3");
}

fn open(site: &Site, path: &Path) -> Database {
    let archive = Archive::at(&site.ours).unwrap().interval(Duration::from_millis(1));
    let options = Options::new().readers(1).wal_limit_bytes(8 << 20);
    options.archive(archive).durability(Durability::Archived).open(path).unwrap()
}

/// What we restore.
fn restored(site: &Site, target: Target) -> Vec<u8> {
    let ((store, layout), directory) = (site.open(), scratch());
    let output = directory.path().join("restored.db");
    restore(store.as_ref(), &layout, target, &output).unwrap();
    std::fs::read(output).unwrap()
}

fn merge(site: &Site) {
    let (store, layout) = site.open();
    let newest = site.catalog().newest().unwrap();
    compact_level(store.as_ref(), &layout, Level::FIRST, None).unwrap().unwrap();
    compact_level(store.as_ref(), &layout, Level::new(2).unwrap(), None).unwrap().unwrap();
    snapshot(store.as_ref(), &layout, newest).unwrap();
}

/// The original of the format accepts every file that is there.
fn ltx_accepts(site: &Site, ltx: &Path) {
    let paths = site.paths();
    assert!(paths.len() > 20, "{} files", paths.len());
    for some in paths.chunks(200) {
        let output = std::process::Command::new(ltx).arg("verify").args(some).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == b"ok\n", "{said}");
    }
}

/// Some moments, restored by both, are the same bytes.
fn both_restore_the_same(site: &Site, litestream: &Path, rng: &mut fastrand::Rng) {
    let ((store, layout), catalog) = (site.open(), site.catalog());
    let slots = catalog.level(Level::SLOTS);
    // What is before the first copy cannot be restored, and Litestream refuses times behind all.
    let first = catalog.level(Level::SNAPSHOTS)[0].txids.max();
    let slots: Vec<_> = slots.iter().filter(|it| it.txids.max() > first).collect();
    for _ in 0..10 {
        let slot = slots[rng.usize(..slots.len() / 2)];
        let at = slot.txids.max();
        let theirs = site.restored_by(litestream, &["-txid", &at.to_string()]);
        assert!(theirs.unwrap() == restored(site, Target::Txid(at)), "TXID {at}");
        let time = slot.header(store.as_ref(), &layout).unwrap().timestamp;
        let time = Timestamp::from_millis(time.millis() + 1);
        let theirs = site.restored_by(litestream, &["-timestamp", &time.to_string()]);
        assert!(theirs.unwrap() == restored(site, Target::Before(time)), "before {time}");
    }
}

#[test]
fn litestream_restores_and_follows_an_open_database() {
    let test = "litestream_restores_and_follows_an_open_database";
    on_each_site(test, &["litestream", "ltx"], |site, directory, programs| {
        let [litestream, ltx] = programs else { panic!("two were asked for") };
        let path = directory.join("ledger.db");
        let mut story = Story::new(fastrand::u64(..));
        let db = open(site, &path);
        for _ in 0..40 {
            story.step(&db);
        }
        let follower = directory.join("follower.db");
        let mut follow = site.litestream(litestream);
        follow.args(["restore", "-f", "-follow-interval", "50ms", "-o"]);
        let following = Running::start(follow.arg(&follower).arg(&site.theirs));
        wait_for("it follows", 30, || follower.exists());
        for round in 0..120 {
            story.step(&db);
            if round == 60 {
                merge(site);
            }
        }
        // In a bucket Litestream refuses times of the last second, which it reads off uploads.
        let last = std::time::Instant::now();
        wait_for("two seconds are over", 5, || last.elapsed() > Duration::from_secs(2));
        (0..3).for_each(|_| story.step(&db));
        db.close().unwrap();
        let closed = std::fs::read(&path).unwrap();
        assert!(restored(site, Target::Latest) == closed);
        assert!(site.restored_by(litestream, &[]).unwrap() == closed);
        wait_for("the follower has all", 60, || digest_of(&follower) == Some(story.digest()));
        drop(following);
        both_restore_the_same(site, litestream, &mut story.rng);
        ltx_accepts(site, ltx);
        site.is_whole();
    });
}

/// Litestream archives a database once, and has ended.
fn replicate_once(site: &Site, litestream: &Path, path: &Path) {
    let mut command = site.litestream(litestream);
    let done = command.args(["replicate", "-once"]).arg(path).arg(&site.theirs).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Another program writes, and Litestream archives it, some times.
fn replicated(site: &Site, litestream: &Path, path: &Path, story: &mut Story) {
    for _ in 0..6 {
        let other = Connection::open(path).unwrap();
        other.pragma_update(None, "journal_mode", "wal").unwrap();
        for _ in 0..5 {
            other.execute_batch(&story.told()).unwrap();
        }
        replicate_once(site, litestream, path);
    }
}

#[test]
fn litestream_takes_over_from_an_engine() {
    let test = "litestream_takes_over_from_an_engine";
    on_each_site(test, &["litestream", "ltx"], |site, directory, programs| {
        let [litestream, ltx] = programs else { panic!("two were asked for") };
        let mut story = Story::new(fastrand::u64(..));
        let db = open(site, &directory.join("ledger.db"));
        (0..40).for_each(|_| story.step(&db));
        db.close().unwrap();
        let before = site.catalog().newest().unwrap();
        let path = directory.join("theirs.db");
        std::fs::write(&path, site.restored_by(litestream, &[]).unwrap()).unwrap();
        replicated(site, litestream, &path, &mut story);
        assert!(site.catalog().newest().unwrap() > before, "Litestream went on");
        let theirs = site.restored_by(litestream, &[]).unwrap();
        assert!(restored(site, Target::Latest) == theirs);
        let output = directory.join("restored.db");
        std::fs::write(&output, theirs).unwrap();
        assert_eq!(digest_of(&output), Some(story.digest()));
        // Whose slots these are is seen.
        let problems = site.problems();
        assert!(problems.iter().all(|it| it.to_string().contains("is of epoch 0")), "{problems:?}");
        assert_eq!(problems.len() as u64, site.catalog().newest().unwrap().get() - before.get());
        ltx_accepts(site, ltx);
    });
}

#[test]
fn an_engine_takes_over_from_litestream() {
    let test = "an_engine_takes_over_from_litestream";
    on_each_site(test, &["litestream", "ltx"], |site, directory, programs| {
        let [litestream, ltx] = programs else { panic!("two were asked for") };
        let mut story = Story::new(fastrand::u64(..));
        replicated(site, litestream, &directory.join("theirs.db"), &mut story);
        let theirs = site.restored_by(litestream, &[]).unwrap();
        assert!(restored(site, Target::Latest) == theirs);
        for file in site.catalog().files() {
            let at = file.txids.max();
            let theirs = site.restored_by(litestream, &["-txid", &at.to_string()]);
            assert!(theirs.unwrap() == restored(site, Target::Txid(at)), "TXID {at}");
        }
        let path = directory.join("ours.db");
        std::fs::write(&path, theirs).unwrap();
        assert_eq!(digest_of(&path), Some(story.digest()));
        let (store, layout) = site.open();
        let mut pace = TestPace::default();
        let adopted = adopt(store.as_ref(), &layout, Present::Refuse, Some(&path), &mut pace);
        let fence: Txid = adopted.unwrap().unwrap().fence;
        let db = open(site, &path);
        (0..40).for_each(|_| story.step(&db));
        db.close().unwrap();
        let closed = std::fs::read(&path).unwrap();
        assert_eq!(digest_of(&path), Some(story.digest()));
        assert!(site.catalog().newest().unwrap() > fence);
        assert!(site.restored_by(litestream, &[]).unwrap() == closed);
        assert!(restored(site, Target::Latest) == closed);
        site.is_whole();
        ltx_accepts(site, ltx);
    });
}

/// Who asks for a program that is not there is told so.
#[test]
fn a_program_that_is_not_there_is_not_found() {
    assert_eq!(program("no-such-program"), None);
}
