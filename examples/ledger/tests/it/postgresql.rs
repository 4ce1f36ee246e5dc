//! The same suite on PostgreSQL, of the installed version and of another one: plain, through a
//! proxy that behaves as other databases do, and killed in the middle.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use monolite_postgres::{Database, Engine as _, EngineTransaction as _, Options, Transaction};
use monolite_testkit::postgres::{Reach, Server, find_binaries, find_other_binaries};
use monolite_testkit::postgres_proxy::{Profile, Proxy};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::answers::{Fixture, SUITE};
use crate::money::{Load, run_and_audit, wait_for};
use crate::patroni::{Pair, find_programs};
use crate::server::Service;
use crate::skew::left_of_two_accounts;

const LOAD: Load = Load { clients: 16, requests: 30 };

/// A server of its own.
struct Ground {
    server: Server,
    _directory: TempDir,
}

impl Ground {
    /// Says in the list of the gate that `test` could not run, where there are no binaries.
    fn of(test: &str, binaries: anyhow::Result<PathBuf>) -> Option<Ground> {
        Ground::reached(test, binaries, Reach::Loopback)
    }

    fn reached(test: &str, binaries: anyhow::Result<PathBuf>, reach: Reach) -> Option<Ground> {
        let binaries = or_skip(test, binaries)?;
        let directory = tempfile::tempdir().unwrap();
        let (place, bytes) = (directory.path(), 1 << 28);
        let server = Server::start_from(&binaries, place, bytes, bytes, reach).unwrap();
        Some(Ground { server, _directory: directory })
    }

    /// Empties the database, and starts the service on it through `port`.
    fn service(&self, port: u16) -> Service {
        self.empty();
        Service::on_postgresql(&url(port), Options::new())
    }

    /// Empties the database, and starts the service on this server and its follower, whichever is
    /// the leader.
    fn service_of_pair(&self, follower: &Server) -> Service {
        self.empty();
        let url = url_of_pair([self.server.port(), follower.port()]);
        Service::on_postgresql(&url, Options::new())
    }

    fn empty(&self) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let db = Database::connect(&url(self.server.port())).await.unwrap();
            let sql = "DROP TABLE IF EXISTS account, transfer, entry CASCADE";
            db.transact(async |tx| tx.execute_batch(sql).await).await.unwrap();
        });
    }

    /// The suite, and what is left by write skew.
    fn run(&self) {
        for (name, test) in SUITE {
            println!("{name}");
            test(&Fixture::on(self.service(self.server.port())));
        }
        run_and_audit(&self.service(self.server.port()).base, LOAD, |_| {});
        assert_eq!(left(Options::new(), self.server.port(), || {}), 100);
    }
}

/// Says in the list of the gate that `test` could not run, where `needed` is not there.
fn or_skip<T>(test: &str, needed: anyhow::Result<T>) -> Option<T> {
    needed
        .inspect_err(|reason| {
            println!("skipped: {test}: {reason}");
            if let Some(list) = std::env::var_os("MONOLITE_SKIPS") {
                let file = OpenOptions::new().append(true).create(true).open(list);
                writeln!(file.unwrap(), "ledger: {test}: {reason}").unwrap();
            }
        })
        .ok()
}

/// What write skew leaves; `then` is called when the database is open.
fn left(options: Options, port: u16, then: impl FnOnce()) -> i64 {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let db = options.open(&url(port)).await.unwrap().with_error();
        then();
        left_of_two_accounts(&db).await
    })
}

/// Without scans of whole tables, which these small ones would get: PostgreSQL would take each
/// change to a table for a conflict with each scan.
fn url(port: u16) -> String {
    format!("postgres://monolite@127.0.0.1:{port}/postgres?options=-c%20enable_seqscan%3Doff")
}

/// Of whichever of two servers is the leader.
fn url_of_pair([one, two]: [u16; 2]) -> String {
    format!(
        "postgres://monolite@127.0.0.1:{one},127.0.0.1:{two}/postgres\
         ?target_session_attrs=read-write&options=-c%20enable_seqscan%3Doff"
    )
}

#[test]
fn the_suite_passes_on_postgresql() {
    let Some(ground) = Ground::of("the suite on PostgreSQL", find_binaries()) else { return };
    ground.run();
}

#[test]
fn the_suite_passes_on_another_postgresql() {
    let Some(ground) = Ground::of("on another version", find_other_binaries()) else { return };
    ground.run();
}

#[test]
fn nothing_acknowledged_is_lost_or_doubled_through_any_profile() {
    let Some(ground) = Ground::of("profiles of the proxy", find_binaries()) else { return };
    let proxy = Proxy::start(ground.server.port()).unwrap();
    for profile in [
        Profile::Conflicts,
        Profile::CommitConflicts,
        Profile::CutsAtCommit,
        Profile::NoSavepoints,
        Profile::Gaps,
        Profile::Snapshot,
    ] {
        proxy.set(Profile::Plain);
        let service = ground.service(proxy.port());
        let before = proxy.faults();
        run_and_audit(&service.base, LOAD, |progress| {
            wait_for(progress, 1);
            proxy.set(profile);
            wait_for(progress, LOAD.all() - LOAD.all() / 8);
            proxy.set(Profile::Plain);
        });
        let faults = proxy.faults() - before;
        println!("{profile:?}: {faults} faults");
        // It has no savepoints that could be refused.
        assert!(faults > 10 || profile == Profile::NoSavepoints);
    }
}

#[test]
fn write_skew_passes_under_snapshot_isolation() {
    let Some(ground) = Ground::of("write skew", find_binaries()) else { return };
    let proxy = Proxy::start(ground.server.port()).unwrap();
    drop(ground.service(proxy.port()));
    let through = |profile| {
        proxy.set(Profile::Plain);
        left(Options::new(), proxy.port(), || proxy.set(profile))
    };
    for profile in [
        Profile::Plain,
        Profile::Conflicts,
        Profile::CommitConflicts,
        Profile::NoSavepoints,
        Profile::Gaps,
    ] {
        assert_eq!(through(profile), 100, "{profile:?}");
    }
    assert_eq!(through(Profile::Snapshot), 0);
    assert_eq!(left(Options::new().snapshot_isolation(), ground.server.port(), || {}), 0);
}

#[test]
fn nothing_acknowledged_is_lost_or_doubled_by_kill_9_of_postgresql() {
    let Some(mut ground) = Ground::of("kill -9 of PostgreSQL", find_binaries()) else { return };
    let service = ground.service(ground.server.port());
    run_and_audit(&service.base, LOAD, |progress| {
        for _ in 0..3 {
            wait_for(progress, LOAD.all() / 4);
            ground.server.kill_and_restart().unwrap();
        }
    });
}

#[test]
fn nothing_acknowledged_is_lost_or_doubled_by_a_failover() {
    let ground = Ground::reached("a failover", find_binaries(), Reach::Followed);
    let Some(mut ground) = ground else { return };
    let follower = ground.server.start_follower().unwrap();
    let service = ground.service_of_pair(&follower);
    run_and_audit(&service.base, LOAD, |progress| {
        wait_for(progress, LOAD.all() / 2);
        let start = Instant::now();
        ground.server.kill().unwrap();
        follower.promote().unwrap();
        let promoted = start.elapsed();
        // What was answered before the leader was gone.
        progress.try_iter().for_each(drop);
        wait_for(progress, 1);
        println!("the follower leads after {promoted:?}, and answers after {:?}", start.elapsed());
    });
}

#[test]
#[ignore = "long: the gate runs it"]
fn nothing_acknowledged_is_lost_or_doubled_when_patroni_fails_over() {
    let Some(programs) = or_skip("a failover by Patroni", find_programs()) else { return };
    let mut pair = Pair::start(&programs);
    let url = url_of_pair(pair.ports());
    let service = Service::on_postgresql(&url, Options::new());
    let runtime = Runtime::new().unwrap();
    let db = runtime.block_on(async {
        let db = Database::connect(&url).await.unwrap();
        // No constraint keeps a row from being there twice.
        let sql = "CREATE TABLE written (what TEXT NOT NULL)";
        db.transact(async |tx| tx.execute_batch(sql).await).await.unwrap();
        db
    });
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = |writer| runtime.spawn(write(db.clone(), writer, Arc::clone(&is_over)));
    let writers: Vec<_> = (0..WRITERS).map(writer).collect();
    run_and_audit(&service.base, LOAD, |progress| {
        wait_for(progress, LOAD.all() / 2);
        pair.kill_leader();
    });
    is_over.store(true, Ordering::Relaxed);
    let written = writers.into_iter().flat_map(|it| runtime.block_on(it).unwrap());
    let (mut at, found): (Vec<Instant>, Vec<bool>) = written.unzip();
    at.sort_unstable();
    let gap = at.windows(2).map(|two| two[1] - two[0]).max().unwrap();
    let acknowledged = i64::try_from(at.len()).unwrap();
    let (rows, different) = runtime.block_on(async {
        let sql = "SELECT count(*), count(DISTINCT what) FROM written";
        let counts = async |tx: Transaction| {
            tx.query_row(sql, (), |row| Ok((row.get::<i64>(0)?, row.get::<i64>(1)?))).await
        };
        db.read(counts).await.unwrap()
    });
    let (lost, doubled) = (acknowledged - different, rows - different);
    let found = found.into_iter().filter(|it| *it).count();
    println!("{acknowledged} acknowledged, {lost} lost, {doubled} doubled, {found} by their key");
    println!("the longest gap without writes: {gap:?}");
    assert_eq!((lost, doubled), (0, 0));
}

/// More than one, so that some have sent COMMIT when the leader is killed.
const WRITERS: usize = 16;

/// Much longer than a failover.
const PATIENCE: Duration = Duration::from_secs(120);

/// Commits one row after the other with a key, each until it is acknowledged. Says when it was, and
/// whether its key has told that a COMMIT with a lost answer happened.
async fn write(db: Database, writer: usize, is_over: Arc<AtomicBool>) -> Vec<(Instant, bool)> {
    let (mut written, start, mut is_open) = (Vec::new(), Instant::now(), false);
    while is_open || !is_over.load(Ordering::Relaxed) {
        let key = format!("{writer} {}", written.len());
        let once = db.transact_once(&key, async |tx| {
            tx.execute("INSERT INTO written VALUES (?1)", [&key]).await?;
            Ok(((), ""))
        });
        let done = once.await;
        is_open = done.is_err();
        match done {
            Ok(done) => written.push((Instant::now(), done.is_repeated())),
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
    }
    written
}
