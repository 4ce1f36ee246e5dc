//! A follower that becomes the primary: when it may, when not, and what a kill or a store that
//! fails leaves at each step. The torture does it with processes.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use monolite::{Database, Durability, ErrorKind, Options, ReadTx, Sharing};
use monolite_archive::{
    Archive, Follower, Layout, Store as _, Takeover, Target, Timestamp,
    internals::{Call, Catalog, Fault, FaultyStore, Turn, follows, turn},
};

use crate::archive::snapshot;
use crate::archiving::{Bench, count, create, insert, wait_until};

const LEASE: Duration = Duration::from_secs(1);

fn open(archive: Archive, file: &Path) -> Database {
    let options = Options::new().readers(1).archive(archive).durability(Durability::Archived);
    options.open(file).unwrap()
}

/// A primary with a lease, whose store can be away, with ten rows.
fn primary(bench: &Bench) -> (Database, Arc<AtomicBool>) {
    let (archive, is_away) = bench.archive_that_goes_away();
    let archive = archive.lease(Some(LEASE)).address("first").time_limit(Duration::from_secs(2));
    fs::create_dir_all(bench.file().parent().unwrap()).unwrap();
    let db = open(archive.close_time(Duration::ZERO), &bench.file());
    create(&db);
    for _ in 0..10 {
        insert(&db, 2_000).unwrap();
    }
    (db, is_away)
}

fn standby(bench: &Bench, name: &str) -> (Archive, PathBuf) {
    let archive = bench.archive().lease(Some(LEASE)).address(name);
    (archive, bench.directory.path().join(format!("{name}.db")))
}

fn snapshots(bench: &Bench) -> usize {
    fs::read_dir(bench.directory.path().join("archive/ltx/9")).unwrap().count()
}

fn rows(db: &Database) -> i64 {
    db.read(|tx| tx.query_row("SELECT count(*) FROM t", (), |row| row.get(0))).wait().unwrap()
}

/// The file of `follower` becomes the primary's.
fn take_over(archive: Archive, follower: Follower, when: Takeover, file: &Path) -> Database {
    let claimed = follower.claim(when, &|| true).unwrap().unwrap();
    follower.promote(claimed).unwrap();
    open(archive, file)
}

/// It was the last primary's file when it was closed. The archive is away until another one is.
#[test]
fn primary_that_opens_without_its_archive_learns_that_it_has_been_replaced() {
    let bench = Bench::new();
    let (db, _) = primary(&bench);
    let own = db.archive_token().unwrap();
    db.close().unwrap();
    let (archive, is_away) = bench.archive_that_goes_away();
    is_away.store(true, Ordering::Relaxed);
    let db = open(archive.opening_wait(Duration::from_millis(100)), &bench.file());
    let (archive, file) = standby(&bench, "second");
    let follower = archive.follow(Options::new().readers(1), &file).unwrap();
    wait_until("it has all", || rows(follower.database()) == 10);
    let next = take_over(archive, follower, Takeover::Now, &file);
    insert(&next, 100).unwrap();
    let later = next.archive_token().unwrap();
    assert!(db.may_lack(own).is_none());
    let late = db.may_lack(later).expect("what it lacks is known before the archive answers");
    assert!(late.contains("another primary"), "{late}");
    assert_eq!(db.stats().archive.unwrap().successor, None);
    is_away.store(false, Ordering::Relaxed);
    wait_until("it is told", || db.stats().archive.unwrap().successor.is_some());
    assert_eq!(insert(&db, 100).unwrap_err().kind(), ErrorKind::Fenced);
    next.close().unwrap();
    let _ = db.close();
}

/// Two are started together with a new archive. What one has made before it lost is no database.
#[test]
fn file_of_an_opening_that_lost_the_beginning_follows_the_winner() {
    let bench = Bench::new();
    let (first, file) = standby(&bench, "first");
    let winner = Mutex::new(None);
    let store = FaultyStore::new(bench.store(), move |call: Call<'_>| {
        let mut winner = winner.lock().unwrap();
        if matches!(call, Call::Create(_)) && winner.is_none() {
            let db = open(first.clone(), &file);
            create(&db);
            *winner = Some(db);
        }
        Fault::None
    });
    let archive = Archive::of(Arc::new(store), Layout::directory()).lease(Some(LEASE));
    let file = bench.directory.path().join("second.db");
    let options = || Options::new().readers(1);
    let lost = options().archive(archive.clone()).open(&file).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Invalid, "{lost}");
    assert!(file.exists() && !follows(&file), "it has left a file");
    let follower = archive.follow(options(), &file).unwrap();
    wait_until("it has the table", || {
        let count = |tx: &ReadTx<'_>| tx.query_row("SELECT count(*) FROM t", (), |_| Ok(()));
        follower.database().read(count).wait().is_ok()
    });
}

/// By a restore over it, or by mistake. It would take over with what it has.
#[test]
fn another_file_in_the_place_of_one_that_follows_is_refused() {
    let bench = Bench::new();
    let (db, _) = primary(&bench);
    let (archive, file) = standby(&bench, "second");
    let aside = bench.directory.path().join("aside");
    let follow = || archive.follow(Options::new().readers(1), &file);
    let has_followed = || {
        let follower = follow().unwrap();
        wait_until("it has all", || rows(follower.database()) == 10);
    };
    let is_refused = || {
        let refused = follow().err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("another file was put in place"), "{refused}");
    };
    has_followed();
    fs::rename(&file, &aside).unwrap();
    fs::copy(&aside, &file).unwrap();
    is_refused();
    fs::rename(&aside, &file).unwrap();
    has_followed();
    // A file system gives its inode to the next one.
    fs::copy(&file, &aside).unwrap();
    fs::remove_file(&file).unwrap();
    fs::copy(&aside, &file).unwrap();
    is_refused();
    let _ = db.close();
}

/// The primary is stopped, or cut off, by the time of day of two machines that are a day apart.
#[test]
fn silent_primary_is_replaced_without_a_copy_and_names_its_successor() {
    let bench = Bench::new();
    let (db, is_away) = primary(&bench);
    let (archive, file) = standby(&bench, "second");
    let day = 86_400_000;
    let archive = archive.clock(move || {
        Timestamp::from_millis(monolite_archive::internals::wall_clock_now().millis() - day)
    });
    let follower = archive.follow(Options::new().readers(1), &file).unwrap();
    follower.wait_for(db.archive_token().unwrap(), Duration::from_secs(20)).unwrap();
    wait_until("it knows the primary", || {
        let stats = follower.stats();
        stats.primary == "first" && stats.has_lease
    });
    is_away.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let next = take_over(archive.clone(), follower, Takeover::WhenVacant, &file);
    let taken = start.elapsed();
    assert!(taken > LEASE / 2 && taken < LEASE * 4, "{taken:?}");
    let stats = next.stats().archive.unwrap();
    assert_eq!((rows(&next), stats.copies_because, snapshots(&bench)), (10, None, 1));
    insert(&next, 500).unwrap();
    is_away.store(false, Ordering::Relaxed);
    let synced = db.with_durability(Durability::Synced);
    wait_until("it is fenced", || insert(&synced, 10).is_err());
    for fenced in [
        insert(&synced, 10).unwrap_err(),
        insert(&db, 10).unwrap_err(),
        db.read_archived(|_| Ok(())).wait().unwrap_err(),
    ] {
        assert_eq!(fenced.kind(), ErrorKind::Fenced, "{fenced}");
        assert!(fenced.to_string().contains("second (epoch "), "{fenced}");
    }
    let _ = db.close();
    insert(&next, 500).unwrap();
    next.close().unwrap();
    assert_eq!(count(&bench.restored()), 12);
    assert_eq!(fs::read(&file).unwrap(), fs::read(bench.restored()).unwrap());
    // It is a primary's as any other.
    let next = open(archive, &file);
    insert(&next, 500).unwrap();
    next.close().unwrap();
    assert_eq!((count(&bench.restored()), snapshots(&bench)), (13, 1));
}

#[test]
fn primary_in_the_middle_of_a_long_upload_keeps_its_lease() {
    let bench = Bench::new();
    let takes = Arc::new(AtomicU64::new(0));
    let slots_take = Arc::clone(&takes);
    let slow = FaultyStore::new(bench.store(), move |call: Call<'_>| match call {
        Call::Create(_) => Fault::Slow(Duration::from_millis(slots_take.load(Ordering::Relaxed))),
        _ => Fault::None,
    });
    let archive = Archive::of(Arc::new(slow), Layout::directory()).lease(Some(LEASE));
    fs::create_dir_all(bench.file().parent().unwrap()).unwrap();
    let db = open(archive.interval(Duration::from_millis(5)), &bench.file());
    create(&db);
    let (archive, file) = standby(&bench, "second");
    let follower = archive.follow(Options::new().readers(1), &file).unwrap();
    takes.store(4_000, Ordering::Relaxed);
    thread::scope(|scope| {
        let written = scope.spawn(|| insert(&db, 100));
        let until = Instant::now() + LEASE * 3;
        let claimed = follower.claim(Takeover::WhenVacant, &|| Instant::now() < until).unwrap();
        assert!(claimed.is_none(), "it lives");
        assert_eq!(written.join().unwrap().unwrap(), 1);
    });
    takes.store(0, Ordering::Relaxed);
    // A clean close hands over at once.
    db.close().unwrap();
    let start = Instant::now();
    let next = take_over(archive, follower, Takeover::WhenVacant, &file);
    assert!(start.elapsed() < LEASE, "{:?}", start.elapsed());
    assert_eq!((rows(&next), snapshots(&bench)), (1, 1));
    next.close().unwrap();
}

#[test]
fn of_two_candidates_one_takes_over_and_the_other_follows_it() {
    let bench = Bench::new();
    let (db, is_away) = primary(&bench);
    let token = db.archive_token().unwrap();
    let standbys = [standby(&bench, "second"), standby(&bench, "third")];
    let is_taken = AtomicBool::new(false);
    let took = thread::scope(|scope| {
        let race = standbys.each_ref().map(|(archive, file)| {
            let follower = archive.follow(Options::new().readers(1), file).unwrap();
            follower.wait_for(token, Duration::from_secs(20)).unwrap();
            let is_taken = &is_taken;
            scope.spawn(move || {
                let goes_on = || !is_taken.load(Ordering::Relaxed);
                match follower.claim(Takeover::WhenVacant, &goes_on).unwrap() {
                    Some(claimed) => {
                        follower.promote(claimed).unwrap();
                        let next = open(archive.clone(), file);
                        insert(&next, 100).unwrap();
                        // For longer than the other one waits for silence.
                        thread::sleep(LEASE * 2);
                        is_taken.store(true, Ordering::Relaxed);
                        assert_eq!(rows(&next), 11);
                        next.close().unwrap();
                        1
                    }
                    None => {
                        wait_until("it has all", || rows(follower.database()) == 11);
                        follower.close().unwrap();
                        0
                    }
                }
            })
        });
        is_away.store(true, Ordering::Relaxed);
        race.map(|one| one.join().unwrap()).iter().sum::<i32>()
    });
    assert_eq!((took, count(&bench.restored())), (1, 11));
    let _ = db.close();
}

/// As a mount that hangs: the fence is asked for, and never answered.
#[test]
fn claim_that_the_store_does_not_answer_ends_when_it_is_told_to() {
    let bench = Bench::new();
    let (db, _) = primary(&bench);
    let (hangs, is_asked) = (Duration::from_secs(60), Arc::new(AtomicBool::new(false)));
    let asked = Arc::clone(&is_asked);
    let store = FaultyStore::new(bench.store(), move |call: Call<'_>| match call {
        Call::Create(_) => {
            asked.store(true, Ordering::Relaxed);
            Fault::Slow(hangs)
        }
        _ => Fault::None,
    });
    let archive = Archive::of(Arc::new(store), Layout::directory());
    let file = bench.directory.path().join("second.db");
    let follower = archive.follow(Options::new().readers(1), &file).unwrap();
    let start = Instant::now();
    let claimed = follower.claim(Takeover::Now, &|| !is_asked.load(Ordering::Relaxed)).unwrap();
    assert!(claimed.is_none() && is_asked.load(Ordering::Relaxed));
    assert!(start.elapsed() < hangs / 2, "{:?}", start.elapsed());
    let _ = db.close();
}

/// As a kill between any two requests: what is left follows again, and nothing is missing.
#[test]
fn promotion_that_ends_at_any_request_leaves_a_file_that_follows() {
    let bench = Bench::new();
    let (db, is_away) = primary(&bench);
    is_away.store(true, Ordering::Relaxed);
    let file = bench.directory.path().join("second.db");
    // A claim more lists each fence that another one has left.
    for requests in (0..).step_by(2) {
        let done = Arc::new(AtomicU64::new(0));
        let count_down = Arc::clone(&done);
        let left = Arc::new(AtomicU64::new(u64::MAX));
        let most = Arc::clone(&left);
        let store = FaultyStore::new(bench.store(), move |_: Call<'_>| {
            let at = count_down.fetch_add(1, Ordering::SeqCst);
            if at < most.load(Ordering::SeqCst) { Fault::None } else { Fault::LostAnswer }
        });
        let archive = Archive::of(Arc::new(store), Layout::directory());
        let archive = archive.interval(Duration::from_secs(60)).time_limit(LEASE / 10);
        let follower = archive.follow(Options::new().readers(1), &file).unwrap();
        wait_until("it has all", || rows(follower.database()) == 10);
        wait_until("it has listed", || follower.stats().epoch > 0);
        left.store(done.load(Ordering::SeqCst) + requests, Ordering::SeqCst);
        let until = Instant::now() + LEASE / 5;
        let claimed = follower.claim(Takeover::Now, &|| Instant::now() < until).unwrap();
        let Some(claimed) = claimed else { continue };
        match follower.promote(claimed) {
            Err(error) => assert!(requests < 80, "{error}"),
            Ok(()) => {
                assert!(requests > 6, "{requests}");
                break;
            }
        }
    }
    let next = open(bench.archive(), &file);
    insert(&next, 100).unwrap();
    next.close().unwrap();
    assert_eq!((count(&bench.restored()), snapshots(&bench)), (11, 1));
    let _ = db.close();
}

/// Waits for its turn, until it says why it does not come.
fn barred(follower: &Follower) -> String {
    let (until, said) = (Instant::now() + Duration::from_secs(30), RefCell::new(None));
    let goes_on = || {
        said.replace(follower.stats().barred);
        said.borrow().is_none() && Instant::now() < until
    };
    assert!(follower.claim(Takeover::WhenVacant, &goes_on).unwrap().is_none());
    said.take().expect("it says why")
}

#[test]
fn standby_that_waits_for_nothing_says_so() {
    let bench = Bench::new();
    // As with a directory that only reads.
    let store = FaultyStore::new(bench.store(), |call: Call<'_>| match call {
        Call::Get(_) | Call::List(_) => Fault::None,
        _ => Fault::LostRequest,
    });
    let reads = Archive::of(Arc::new(store), Layout::directory()).lease(Some(LEASE));
    let (db, is_away) = primary(&bench);
    let follow = |archive: Archive, name: &str| {
        let file = bench.directory.path().join(name);
        let follower = archive.follow(Options::new().readers(1), &file).unwrap();
        wait_until("it has listed", || follower.stats().epoch > 0);
        follower
    };
    let follower = follow(reads, "second.db");
    is_away.store(true, Ordering::Relaxed);
    let why = barred(&follower);
    assert!(why.starts_with("it cannot take over: "), "{why}");
    follower.close().unwrap();
    let _ = db.close();
    let bench = Bench::new();
    fs::create_dir_all(bench.file().parent().unwrap()).unwrap();
    let db = open(bench.archive().lease(None), &bench.file());
    create(&db);
    let follower = follow(bench.archive().lease(Some(LEASE)), "third.db");
    let why = barred(&follower);
    assert!(why.contains("the archive's primary has no lease"), "{why}");
    follower.close().unwrap();
    db.close().unwrap();
}

/// It reads the leader record, and no slot.
#[test]
fn follower_that_cannot_read_what_is_there_leaves_the_epoch_to_others() {
    let bench = Bench::new();
    let (db, is_away) = primary(&bench);
    let is_blind = Arc::new(AtomicBool::new(false));
    let blind = Arc::clone(&is_blind);
    let store = FaultyStore::new(bench.store(), move |call: Call<'_>| match call {
        Call::Get(key) | Call::List(key)
            if key.contains("ltx") && blind.load(Ordering::Relaxed) =>
        {
            Fault::LostRequest
        }
        _ => Fault::None,
    });
    let archive = Archive::of(Arc::new(store), Layout::directory()).lease(Some(LEASE));
    let archive = archive.interval(Duration::from_millis(5));
    let file = bench.directory.path().join("second.db");
    let follower = archive.follow(Options::new().readers(1), &file).unwrap();
    wait_until("it has listed", || follower.stats().epoch > 0);
    is_blind.store(true, Ordering::Relaxed);
    insert(&db, 100).unwrap();
    wait_until("it is told", || follower.stats().last_error.is_some());
    is_away.store(true, Ordering::Relaxed);
    let until = Instant::now() + LEASE * 3;
    let claimed = follower.claim(Takeover::WhenVacant, &|| Instant::now() < until).unwrap();
    assert!(claimed.is_none());
    assert_eq!(bench.archive().leader().unwrap().unwrap().epoch.0, 1);
    is_blind.store(false, Ordering::Relaxed);
    let next = take_over(archive, follower, Takeover::WhenVacant, &file);
    assert_eq!(rows(&next), 11);
    next.close().unwrap();
    let _ = db.close();
}

/// The follower looks so seldom that it knows nothing of it.
#[test]
fn promotion_applies_all_that_came_last() {
    let bench = Bench::new();
    let (db, is_away) = primary(&bench);
    let (archive, file) = standby(&bench, "second");
    let seldom = archive.clone().interval(Duration::from_secs(600));
    let follower = seldom.follow(Options::new().readers(1), &file).unwrap();
    wait_until("it has listed", || follower.stats().epoch > 0);
    for _ in 0..5 {
        insert(&db, 2_000).unwrap();
    }
    assert_eq!(rows(follower.database()), 10);
    is_away.store(true, Ordering::Relaxed);
    let next = take_over(archive, follower, Takeover::Now, &file);
    assert_eq!((rows(&next), snapshots(&bench)), (15, 1));
    insert(&next, 100).unwrap();
    next.close().unwrap();
    assert_eq!(count(&bench.restored()), 16);
    let _ = db.close();
}

/// The note of the primary is there, and the one of the follower is not removed yet.
#[test]
fn file_whose_promotion_was_killed_between_its_notes_is_the_primarys() {
    let bench = Bench::new();
    let (db, _) = primary(&bench);
    let (archive, file) = standby(&bench, "second");
    let follower = archive.follow(Options::new().readers(1), &file).unwrap();
    follower.wait_for(db.archive_token().unwrap(), Duration::from_secs(20)).unwrap();
    let note = file.with_file_name("second.db-archive").join("follows.json");
    let noted = fs::read(&note).unwrap();
    assert!(follows(&file));
    let claimed = follower.claim(Takeover::Now, &|| true).unwrap().unwrap();
    follower.promote(claimed).unwrap();
    fs::write(&note, noted).unwrap();
    assert!(!follows(&file));
    let next = open(archive, &file);
    insert(&next, 500).unwrap();
    assert_eq!(rows(&next), 11);
    let _ = db.close();
    next.close().unwrap();
}

/// Other programs could have written to it.
#[test]
fn file_that_was_shared_is_uploaded_as_a_whole() {
    let bench = Bench::new();
    let (db, is_away) = primary(&bench);
    let (archive, file) = standby(&bench, "second");
    let shared = Options::new().readers(1).sharing(Sharing::Shared);
    let follower = archive.follow(shared, &file).unwrap();
    is_away.store(true, Ordering::Relaxed);
    let next = take_over(archive, follower, Takeover::Now, &file);
    insert(&next, 100).unwrap();
    next.close().unwrap();
    assert_eq!((count(&bench.restored()), snapshots(&bench)), (11, 2));
    let _ = db.close();
}

/// The file of a former primary follows, once something took over from it.
fn rejoin(bench: &Bench) -> Follower {
    let (archive, _) = standby(bench, "first");
    archive.follow(Options::new().readers(1), bench.file()).unwrap()
}

fn orphans(bench: &Bench) -> Vec<PathBuf> {
    let files = fs::read_dir(bench.file().parent().unwrap()).unwrap();
    let files = files.map(|it| it.unwrap().path());
    files.filter(|it| it.to_str().unwrap().contains(".orphan-")).collect()
}

#[test]
fn former_primary_keeps_what_it_alone_had_and_follows() {
    let bench = Bench::new();
    let (db, is_away) = primary(&bench);
    let (archive, file) = standby(&bench, "second");
    let follower = archive.follow(Options::new().readers(1), &file).unwrap();
    is_away.store(true, Ordering::Relaxed);
    for _ in 0..5 {
        insert(&db.with_durability(Durability::Synced), 3_000).unwrap();
    }
    let alone = rows(&db);
    let refused = rejoin_refused(&bench);
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(refused.to_string().contains("the primary"), "{refused}");
    db.close().unwrap();
    let had = fs::read(bench.file()).unwrap();
    let next = take_over(archive, follower, Takeover::Now, &file);
    insert(&next, 100).unwrap();
    let beside = bench.file().with_file_name("ledger.db-archive/position.json");
    let position = fs::read(&beside).unwrap();
    // As a kill leaves it: before anything, with the orphan written, and before the last step.
    for step in 0..3 {
        fs::write(&beside, &position).unwrap();
        match step {
            0 => {}
            1 => fs::write(bench.file(), &had).unwrap(),
            _ => {
                let name = orphans(&bench)[0].to_str().unwrap().to_owned();
                let common = name.trim_end_matches(".ltx").rsplit('-').next().unwrap().to_owned();
                fs::remove_file(bench.file()).unwrap();
                let target = Target::Txid(common.parse().unwrap());
                bench.archive().restore(target, &bench.file()).unwrap();
            }
        }
        let follower = rejoin(&bench);
        let orphan = follower.stats().orphan.unwrap();
        assert_eq!(orphans(&bench), std::slice::from_ref(&orphan), "it is told");
        wait_until("it has all", || rows(follower.database()) == 11);
        follower.close().unwrap();
        let restored = bench.directory.path().join(format!("orphan-{step}.db"));
        let other = Bench::new();
        other.open(Durability::Archived).unwrap().close().unwrap();
        let refused = other.archive().restore_orphan(&orphan, &restored).unwrap_err();
        assert!(refused.to_string().contains("another database"), "{refused}");
        bench.archive().restore_orphan(&orphan, &restored).unwrap();
        assert!(fs::read(&restored).unwrap() == had, "all that it had");
        assert_eq!(count(&restored), alone);
        let again = bench.archive().restore_orphan(&orphan, &restored).unwrap_err();
        assert!(again.to_string().contains("is there already"), "{again}");
    }
    next.close().unwrap();
    let follower = rejoin(&bench);
    assert_eq!(follower.stats().orphan, None, "it follows for long");
    wait_until("it is one that follows", || rows(follower.database()) == 11);
    follower.close().unwrap();
    assert!(fs::read(bench.file()).unwrap() == fs::read(&file).unwrap());
}

fn rejoin_refused(bench: &Bench) -> monolite::Error {
    let (archive, _) = standby(bench, "first");
    archive.follow(Options::new().readers(1), bench.file()).map(drop).unwrap_err()
}

#[test]
fn former_primary_that_lacks_nothing_follows_as_it_is() {
    let bench = Bench::new();
    let (db, is_away) = primary(&bench);
    let (archive, file) = standby(&bench, "second");
    let follower = archive.follow(Options::new().readers(1), &file).unwrap();
    is_away.store(true, Ordering::Relaxed);
    db.close().unwrap();
    let inode = |file: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(file).unwrap());
    let before = inode(&bench.file());
    let next = take_over(archive, follower, Takeover::Now, &file);
    insert(&next, 100).unwrap();
    let follower = rejoin(&bench);
    wait_until("it has all", || rows(follower.database()) == 11);
    assert_eq!((follower.stats().copies, orphans(&bench)), (0, vec![]));
    // And back: the file that was replaced is the primary's again.
    next.close().unwrap();
    let (archive, _) = standby(&bench, "first");
    let first = take_over(archive, follower, Takeover::WhenVacant, &bench.file());
    insert(&first, 100).unwrap();
    assert_eq!((rows(&first), snapshots(&bench), inode(&bench.file())), (12, 1, before));
    first.close().unwrap();
    assert_eq!(count(&bench.restored()), 12);
}

#[test]
fn orphan_is_of_all_pages_where_the_common_state_is_not_kept_and_is_never_overwritten() {
    let bench = Bench::new();
    let (db, is_away) = primary(&bench);
    let (archive, file) = standby(&bench, "second");
    let follower = archive.follow(Options::new().readers(1), &file).unwrap();
    is_away.store(true, Ordering::Relaxed);
    insert(&db.with_durability(Durability::Synced), 3_000).unwrap();
    db.close().unwrap();
    let had = fs::read(bench.file()).unwrap();
    let next = take_over(archive, follower, Takeover::Now, &file);
    insert(&next, 100).unwrap();
    next.close().unwrap();
    let (store, layout) = (bench.store(), Layout::directory());
    let newest = Catalog::read(&store, &layout).unwrap().newest().unwrap();
    let made = snapshot(&store, &layout, newest).unwrap().txids;
    for old in Catalog::read(&store, &layout).unwrap().files() {
        if old.txids != made && old.len > 131 {
            store.delete(&layout.file(old.level, old.txids)).unwrap();
        }
    }
    let record = bench.archive().leader().unwrap().unwrap();
    let fences = record.fences.iter().filter(|fence| fence.epoch.0 > 1);
    let common = fences.map(|fence| fence.slot.get()).min().unwrap() - 1;
    let name = bench.file().with_file_name(format!("ledger.db.orphan-1-{common:016x}.ltx"));
    fs::write(&name, "of before").unwrap();
    let refused = rejoin_refused(&bench);
    assert!(refused.to_string().contains("move it away"), "{refused}");
    assert!(fs::read(bench.file()).unwrap() == had, "nothing was done");
    fs::remove_file(&name).unwrap();
    fs::create_dir(&name).unwrap();
    let refused = rejoin_refused(&bench).to_string();
    assert!(refused.contains(name.to_str().unwrap()), "{refused}");
    fs::remove_dir(&name).unwrap();
    let follower = rejoin(&bench);
    assert_eq!(follower.stats().orphan.as_ref(), Some(&name));
    wait_until("it has all", || rows(follower.database()) == 11);
    follower.close().unwrap();
    let restored = bench.directory.path().join("orphan.db");
    bench.archive().restore_orphan(&name, &restored).unwrap();
    assert!(fs::read(&restored).unwrap() == had);
}

#[test]
fn primary_that_was_closed_with_commits_left_and_no_successor_does_not_follow() {
    let bench = Bench::new();
    let (db, _) = primary(&bench);
    db.close().unwrap();
    let change = "INSERT INTO t(v) VALUES (randomblob(3000))";
    let plain = monolite::rusqlite::Connection::open(bench.file()).unwrap();
    plain.execute_batch(change).unwrap();
    plain.close().unwrap();
    let refused = rejoin_refused(&bench);
    assert!(refused.to_string().contains("were not archived"), "{refused}");
    assert_eq!(orphans(&bench), [] as [PathBuf; 0]);
    let db = open(bench.archive(), &bench.file());
    assert_eq!(rows(&db), 11);
    db.close().unwrap();
    let follower = rejoin(&bench);
    assert_eq!((rows(follower.database()), orphans(&bench)), (11, vec![]));
    follower.close().unwrap();
}

#[test]
fn follower_that_lacks_fences_alone_has_no_lag() {
    let bench = Bench::new();
    let (db, _) = primary(&bench);
    let [(archive, file), (other, other_file)] = ["second", "third"].map(|it| standby(&bench, it));
    let idle = other.follow(Options::new().readers(1), other_file).unwrap();
    let follower = archive.follow(Options::new().readers(1), &file).unwrap();
    let next = take_over(archive, follower, Takeover::Now, &file);
    idle.wait_for(next.archive_token().unwrap(), Duration::from_secs(30)).unwrap();
    let stats = idle.stats();
    assert_eq!((stats.newest, stats.lag_bytes), (stats.txid, 0), "{stats:?}");
    next.close().unwrap();
    let _ = db.close();
}

#[test]
fn file_that_knows_an_archive_begins_none_in_an_empty_directory() {
    let bench = Bench::new();
    let (db, _) = primary(&bench);
    let file = bench.directory.path().join("second.db");
    let url = bench.directory.path().join("archive").display().to_string();
    let archive = || Archive::at(&url).unwrap().interval(Duration::from_millis(10));
    archive().follow(Options::new(), &file).unwrap().close().unwrap();
    db.close().unwrap();
    fs::rename(&url, bench.directory.path().join("unmounted")).unwrap();
    fs::create_dir(&url).unwrap();
    let says = |error: &str, file: &Path| {
        assert!(error.contains(&url) && error.contains("mounted"), "{error}");
        assert!(error.contains(file.to_str().unwrap()), "{error}");
    };
    // The standby, with its file and without.
    assert_eq!(turn(&archive(), &file).unwrap(), Turn::Follows);
    let follower = archive().follow(Options::new(), &file).unwrap();
    wait_until("it is told", || follower.stats().last_error.is_some());
    says(&follower.stats().last_error.unwrap(), &file);
    follower.close().unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(turn(&archive(), &file).unwrap(), Turn::Follows);
    let refused = archive().follow(Options::new(), &file).map(drop).unwrap_err();
    says(&refused.to_string(), &file);
    // The former primary.
    let refused = Options::new().archive(archive()).open(bench.file()).map(drop).unwrap_err();
    assert!(refused.to_string().contains(&url), "{refused}");
    assert_eq!(fs::read_dir(&url).unwrap().count(), 0, "nothing was begun");
}
