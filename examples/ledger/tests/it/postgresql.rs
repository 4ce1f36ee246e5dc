//! The same suite on PostgreSQL, of the installed version and of another one: plain, through a
//! proxy that behaves as other databases do, and killed in the middle.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use monolite_postgres::{Database, Engine as _, EngineTransaction as _, Options};
use monolite_testkit::postgres::{Reach, Server, find_binaries, find_other_binaries};
use monolite_testkit::postgres_proxy::{Profile, Proxy};
use tempfile::TempDir;

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
            let tables = "account, transfer, entry, monolite_idempotency";
            let sql = &format!("DROP TABLE IF EXISTS {tables} CASCADE");
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
pub(crate) fn or_skip<T>(test: &str, needed: anyhow::Result<T>) -> Option<T> {
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
pub(crate) fn url_of_pair([one, two]: [u16; 2]) -> String {
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
    let service = Service::on_postgresql(&url_of_pair(pair.ports()), Options::new());
    run_and_audit(&service.base, LOAD, |progress| {
        wait_for(progress, LOAD.all() / 2);
        pair.kill_leader();
    });
}
