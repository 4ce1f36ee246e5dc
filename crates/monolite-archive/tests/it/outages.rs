//! A real bucket behind a network: what an archive costs, what happens while the store is away, and
//! a first copy of a large database under load.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use monolite::rusqlite::Connection;
use monolite::{Database, Durability, Options};
use monolite_archive::{
    Archive, Reading, Target,
    internals::{Level, restore},
};

use crate::archive::scratch;
use crate::gateway::Gateway;
use crate::network::{Network, Proxy};
use crate::programs::{Site, programs, wait_for};

/// How large the WAL may become.
const WAL: u64 = 16 << 20;

fn open(site: &Site, path: &Path, interval: Duration) -> Database {
    let archive = Archive::at(&site.ours).unwrap().interval(interval);
    let archive = archive.close_time(Duration::from_secs(300));
    let options = Options::new().readers(1).wal_limit_bytes(WAL);
    options.archive(archive).durability(Durability::Synced).open(path).unwrap()
}

fn create(db: &Database) {
    let sql = "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)";
    db.write(move |tx| tx.execute_batch(sql)).wait().unwrap();
}

fn insert(db: &Database, bytes: u32) -> monolite::Write<usize, monolite::Error> {
    let sql = "INSERT INTO t(v) VALUES (randomblob(?1))";
    db.write(move |tx| tx.execute(sql, [bytes]))
}

fn has_all(db: &Database) -> bool {
    let stats = db.stats().archive.unwrap();
    stats.is_restorable && stats.copies_because.is_none() && stats.lag_ms == 0
}

/// Whether the closed file and what is restored are the same bytes.
fn is_the_same(site: &Site, path: &Path) {
    let ((store, layout), directory) = (site.open(), tempfile::tempdir().unwrap());
    let output = directory.path().join("restored.db");
    restore(store.as_ref(), &layout, Target::Latest, &output, Reading::Whole).unwrap();
    assert_eq!(fs::metadata(&output).unwrap().len(), fs::metadata(path).unwrap().len());
    let mut files = [&output, path].map(|it| fs::File::open(it).unwrap());
    let mut bytes = [vec![0; 1 << 20], vec![0; 1 << 20]];
    loop {
        let read = files[0].read(&mut bytes[0]).unwrap();
        files[1].read_exact(&mut bytes[1][..read]).unwrap();
        assert!(bytes[0][..read] == bytes[1][..read], "another content");
        if read == 0 {
            return;
        }
    }
}

fn snapshots(site: &Site) -> usize {
    site.catalog().level(Level::SNAPSHOTS).len()
}

fn wal_bytes(path: &Path) -> u64 {
    let wal = format!("{}-wal", path.display());
    fs::metadata(wal).map_or(0, |meta| meta.len())
}

/// How much memory this process has, in KiB.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn idle_database_makes_no_request_and_a_busy_one_few() {
    let test = "idle_database_makes_no_request_and_a_busy_one_few";
    let Some([gateway]) = programs(test, ["versitygw"]) else { return };
    let seconds = crate::schedules::number("MONOLITE_IDLE_SECONDS").unwrap_or(3);
    let (gateway, directory) = (Gateway::start(&gateway), scratch());
    let proxy = Proxy::start(gateway.port);
    let site = gateway.site("any/ledger", proxy.port);
    let path = directory.path().join("ledger.db");
    let db = open(&site, &path, Duration::from_secs(1));
    create(&db);
    wait_for("it has all", 60, || has_all(&db));
    let before = proxy.passed();
    std::thread::sleep(Duration::from_secs(seconds));
    assert_eq!(proxy.passed(), before, "nothing happened");
    let (start, mut bytes) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(seconds) {
        insert(&db, 10_000).wait().unwrap();
        bytes += 10_000;
        std::thread::sleep(Duration::from_millis(10));
    }
    wait_for("it has all", 60, || has_all(&db));
    let took = start.elapsed().as_secs_f64();
    let (requests, sent) = (proxy.passed().0 - before.0, proxy.passed().1 - before.1);
    let committed = bytes as f64 / 1e6;
    println!(
        "idle for {seconds} s: 0 requests; {committed:.1} MB committed in {took:.1} s: {requests} \
         requests, {:.2} a MB, {:.3} MB sent a MB",
        requests as f64 / committed,
        sent as f64 / 1e6 / committed
    );
    // One an interval, and up to two where the WAL begins anew.
    assert!((requests as f64) < took + 3.0 + committed, "{requests} in {took} s");
    db.close().unwrap();
    is_the_same(&site, &path);
}

/// Where a traced child works: the archive's address, the database, and whether it waits for the
/// archive.
const CHILD: &str = "MONOLITE_OUTAGES_CHILD";

/// No test: what is traced.
#[test]
fn child() {
    let Ok(words) = std::env::var(CHILD) else { return };
    let [url, path, durability] = words.split('|').collect::<Vec<_>>()[..] else { panic!() };
    let durability =
        if durability == "archived" { Durability::Archived } else { Durability::Synced };
    let archive = Archive::at(url).unwrap().interval(Duration::from_millis(20));
    let options = Options::new().readers(1).wal_limit_bytes(WAL).durability(durability);
    let db = options.archive(archive).open(path).unwrap();
    create(&db);
    wait_for("it has all", 60, || has_all(&db));
    for _ in 0..500 {
        insert(&db, 40_000).wait().unwrap();
    }
    db.close().unwrap();
}

/// How many bytes were written to each kind of file, by the traces of all threads.
fn written(traces: &Path) -> BTreeMap<&'static str, u64> {
    let mut written = BTreeMap::new();
    for trace in fs::read_dir(traces).unwrap() {
        let bytes = fs::read(trace.unwrap().path()).unwrap();
        for line in String::from_utf8_lossy(&bytes).lines() {
            let Some((_, rest)) = line.split_once('<') else { continue };
            let Some((path, _)) = rest.split_once('>') else { continue };
            let Some((_, result)) = line.rsplit_once(") = ") else { continue };
            let result = result.split(' ').next().unwrap_or_default();
            let Ok(bytes) = result.parse::<u64>() else { continue };
            let kind = match path {
                path if path.ends_with("-wal") => "WAL",
                path if path.ends_with("ledger.db") => "database",
                path if path.contains("-archive/copy.db") => "first copy",
                path if path.contains("-archive/position.json") => "position",
                path if path.contains("-archive/") => "staged",
                path if path.contains("socket:") || path.contains("TCP") => "network",
                _ => "other",
            };
            *written.entry(kind).or_default() += bytes;
        }
    }
    written
}

/// What a child writes, by the kind of file; `None` where no process may be traced.
fn traced(test: &str, durability: &str) -> Option<BTreeMap<&'static str, u64>> {
    let [gateway, strace] = programs(test, ["versitygw", "strace"])?;
    let (gateway, directory) = (Gateway::start(&gateway), scratch());
    let site = gateway.site("any/ledger", gateway.port);
    let (path, traces) = (directory.path().join("ledger.db"), directory.path().join("traces"));
    fs::create_dir(&traces).unwrap();
    let done = std::process::Command::new(strace)
        .args(["-ff", "-qq", "-y", "-s", "1", "-e"])
        .arg("trace=write,pwrite64,writev,pwritev,sendto,sendfile,copy_file_range")
        .arg("-o")
        .arg(traces.join("trace"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "outages::child", "--nocapture"])
        .env(CHILD, format!("{}|{}|{durability}", site.ours, path.display()))
        .output()
        .unwrap();
    if String::from_utf8_lossy(&done.stderr).contains("ptrace") {
        crate::originals::skip(test, "no process may be traced here");
        return None;
    }
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    is_the_same(&site, &path);
    let written = written(&traces);
    assert!(written["WAL"] > 20 << 20 && written["database"] > 15 << 20, "{written:?}");
    assert!(written["network"] > 15 << 20, "{written:?}");
    // Some hundred bytes for each generation of the WAL.
    assert!(written["position"] < 32 << 10, "{written:?}");
    Some(written)
}

#[test]
fn nothing_but_the_database_and_its_wal_is_written_while_the_store_keeps_up() {
    let test = "nothing_but_the_database_and_its_wal_is_written_while_the_store_keeps_up";
    let Some(written) = traced(test, "archived") else { return };
    println!("{written:?}");
    // But for uploads that took longer than is waited for them, where the machine is busy.
    let staged = written.get("staged").copied().unwrap_or_default();
    assert!(staged * 100 < written["WAL"], "{written:?}");
}

/// What is under way when the WAL begins anew is staged.
#[test]
fn what_nobody_waits_for_is_written_once_more_at_most_where_the_wal_begins_anew() {
    let test = "what_nobody_waits_for_is_written_once_more_at_most_where_the_wal_begins_anew";
    let Some(written) = traced(test, "synced") else { return };
    println!("{written:?}");
    let staged = written.get("staged").copied().unwrap_or_default();
    assert!(staged < written["WAL"], "{written:?}");
}

#[test]
fn store_that_is_away_stops_no_write_and_leaves_no_gap() {
    let test = "store_that_is_away_stops_no_write_and_leaves_no_gap";
    let Some([gateway]) = programs(test, ["versitygw"]) else { return };
    let recorded = crate::schedules::number("MONOLITE_AWAY_SECONDS");
    let (seconds, gateway) = (recorded.unwrap_or(4), Gateway::start(&gateway));
    let directory = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(gateway.port);
    let site = gateway.site("any/ledger", proxy.port);
    let path = directory.path().join("ledger.db");
    let db = open(&site, &path, Duration::from_millis(100));
    create(&db);
    wait_for("it has all", 60, || has_all(&db));
    let (before, mut most, mut staged, mut written) = (memory(), [0; 2], 0, 0);
    // A load that a disk can keep for as long as that, and that has the WAL begin anew.
    let pause = Duration::from_millis(if recorded.is_some() { 200 } else { 20 });
    proxy.set(Network::Cut);
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    while start.elapsed() < Duration::from_secs(seconds) {
        let since = Instant::now();
        let writes: Vec<_> = (0..10).map(|_| insert(&db, 10_000)).collect();
        for write in writes {
            write.wait().unwrap();
        }
        slowest = slowest.max(since.elapsed());
        written += 10;
        most = [most[0].max(wal_bytes(&path)), most[1].max(memory())];
        staged = db.stats().archive.unwrap().staged_bytes;
        std::thread::sleep(pause.saturating_sub(since.elapsed()));
    }
    let stats = db.stats().archive.unwrap();
    assert!(stats.lag_ms > seconds * 900 && stats.last_error.is_some(), "{stats:?}");
    proxy.set(Network::Open);
    let start = Instant::now();
    wait_for("it has caught up", 300, || has_all(&db));
    let (lasted, stats) = (start.elapsed(), db.stats().archive.unwrap());
    assert!(staged > 0, "the WAL did not begin anew");
    assert_eq!((stats.staged_bytes, &stats.last_error), (0, &None));
    println!(
        "away for {seconds} s: {written} writes of 10 kB, the slowest ten in {slowest:?}; WAL at \
         most {} bytes, staged {staged}; memory {before} KiB before, at most {}; {} requests \
         failed; caught up in {lasted:?}",
        most[0], most[1], stats.failed_requests
    );
    // The header, and a batch that is being written.
    assert!(most[0] <= WAL + (1 << 20), "the WAL has {} bytes", most[0]);
    if recorded.is_some() {
        // The writer's page cache, and those of the others.
        assert!(most[1] < before + (384 << 10), "{} KiB of memory", most[1]);
    }
    db.close().unwrap();
    assert_eq!(snapshots(&site), 1, "no copy had to close a gap");
    site.is_whole();
    is_the_same(&site, &path);
}

/// Updates in bursts until it is told to end; how many there were.
fn burst(db: &Database, rows: i64, is_over: &AtomicBool, done: &AtomicU64) {
    let mut under_way = VecDeque::new();
    while !is_over.load(Ordering::SeqCst) || !under_way.is_empty() {
        while under_way.len() < 500 && !is_over.load(Ordering::SeqCst) {
            let id = fastrand::i64(1..=rows);
            let sql = "UPDATE t SET v = randomblob(70) WHERE id = ?1";
            under_way.push_back(db.write(move |tx| tx.execute(sql, [id])));
        }
        if let Some(write) = under_way.pop_front() {
            write.wait().unwrap();
            done.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[test]
fn first_copy_of_a_large_database_lets_writes_go_on_and_the_wal_keeps_its_limit() {
    let test = "first_copy_of_a_large_database_lets_writes_go_on_and_the_wal_keeps_its_limit";
    let Some([gateway]) = programs(test, ["versitygw"]) else { return };
    let rows = crate::schedules::number("MONOLITE_ROWS").unwrap_or(200_000) as i64;
    let (gateway, directory) = (Gateway::start(&gateway), tempfile::tempdir().unwrap());
    let site = gateway.site("any/ledger", gateway.port);
    let path = directory.path().join("ledger.db");
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)").unwrap();
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
               INSERT INTO t SELECT i, randomblob(70) FROM n";
    other.execute(sql, [rows]).unwrap();
    drop(other);
    let bytes = fs::metadata(&path).unwrap().len();
    let db = open(&site, &path, Duration::from_millis(200));
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut most, mut copied) = (0, None);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| burst(&db, rows, &is_over, &done));
        }
        let mut during = 0;
        wait_for("the copy is there, and two seconds have passed since", 1_200, || {
            most = most.max(wal_bytes(&path));
            if copied.is_none() && db.stats().archive.unwrap().is_restorable {
                copied = Some(start.elapsed());
                during = done.load(Ordering::SeqCst);
            }
            copied.is_some_and(|copied| start.elapsed() > copied + Duration::from_secs(2))
        });
        is_over.store(true, Ordering::SeqCst);
        // One that is small is there when the database is open, before the first write.
        let is_beside = copied.is_some_and(|copied| copied > Duration::from_millis(100));
        assert!(during > 0 || !is_beside, "writes go on while it is made");
        assert!(done.load(Ordering::SeqCst) > during, "writes go on");
    });
    wait_for("it has caught up", 600, || has_all(&db));
    println!(
        "{rows} rows, {bytes} bytes: copied in {copied:?} beside {} writes; WAL at most {most} \
         bytes; all of it archived after {:?}",
        done.load(Ordering::SeqCst),
        start.elapsed()
    );
    assert!(most <= WAL + (1 << 20), "the WAL has {most} bytes");
    db.close().unwrap();
    let since = Instant::now();
    is_the_same(&site, &path);
    println!("restored and compared in {:?}; {} snapshots", since.elapsed(), snapshots(&site));
    site.is_whole();
}
