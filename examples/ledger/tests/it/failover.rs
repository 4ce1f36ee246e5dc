//! For how long nothing is written when the leader is killed: of a PostgreSQL pair that Patroni
//! keeps, and of a follower of ours that takes over, in one table. The same transactions by as many
//! writers, acknowledged when another machine could go on with them. Theirs live on, and connect
//! again; ours die with the leader, as the engine is in their process. `MONOLITE_FAILOVERS` says
//! how often each is killed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use ledger::create_schema;
use monolite::{Durability, Error};
use monolite_archive::{Archive, Takeover, Target};
use monolite_postgres::{Engine, EngineTransaction as _};
use monolite_testkit::child::{Program, play, say, variable};
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Runtime;

use crate::patroni::{Pair, Programs, find_programs};
use crate::postgresql::{or_skip, url_of_pair};

/// More than one, so that some have sent COMMIT when the leader is killed.
const WRITERS: usize = 16;

/// How long the primary may be silent: what the guide to failover proposes.
const LEASE: Duration = Duration::from_secs(3);

/// How long is written before the leader is killed, and behind the failover.
const WRITTEN: Duration = Duration::from_secs(3);

/// Much longer than a failover.
const PATIENCE: Duration = Duration::from_secs(120);

/// The keys that were acknowledged and when, and those that are there at the end.
type Seen = (Vec<(String, Instant)>, Vec<String>);

#[test]
#[ignore = "long: the gate runs it"]
fn nothing_acknowledged_is_lost_beside_patroni_and_the_time_without_writes_is_told() {
    let Some(programs) = or_skip("a takeover beside Patroni", find_programs()) else { return };
    let often = std::env::var("MONOLITE_FAILOVERS").ok().and_then(|it| it.parse().ok());
    let often = often.unwrap_or(1);
    println!(
        "| of {often} failovers | acknowledged | lost | doubled | without writes: p50 | max |"
    );
    println!("|---|---|---|---|---|---|");
    let patroni = || by_patroni(&programs);
    for (name, fails_over) in [("Patroni", &patroni as &dyn Fn() -> Seen), ("Monolite", &takeover)]
    {
        let (mut gaps, mut counts) = (Vec::new(), [0; 3]);
        for (acknowledged, rows) in (0..often).map(|_| fails_over()) {
            gaps.push(acknowledged.windows(2).map(|two| two[1].1 - two[0].1).max().unwrap());
            let different: BTreeSet<_> = rows.iter().collect();
            let lost = acknowledged.iter().filter(|it| !different.contains(&it.0)).count();
            let these = [acknowledged.len(), lost, rows.len() - different.len()];
            counts = [0, 1, 2].map(|at| counts[at] + these[at]);
        }
        gaps.sort_unstable();
        let [acknowledged, lost, doubled] = counts;
        let (median, most) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
        println!("| {name} | {acknowledged} | {lost} | {doubled} | {median:.1?} | {most:.1?} |");
        assert_eq!((lost, doubled), (0, 0));
    }
}

/// Hears what is acknowledged; the leader is killed in the middle.
fn hear(heard: &Receiver<String>, kill: impl FnOnce()) -> Vec<(String, Instant)> {
    let mut acknowledged = Vec::new();
    let mut hear_for = |long: Duration| {
        let start = Instant::now();
        while let Ok(key) = heard.recv_timeout(long.saturating_sub(start.elapsed())) {
            acknowledged.push((key, Instant::now()));
        }
    };
    hear_for(WRITTEN);
    kill();
    // What was under way.
    hear_for(LEASE / 4);
    let next = (heard.recv_timeout(PATIENCE).expect("it fails over"), Instant::now());
    hear_for(WRITTEN);
    acknowledged.push(next);
    acknowledged.sort_by_key(|it| it.1);
    acknowledged
}

fn by_patroni(programs: &Programs) -> Seen {
    let (mut pair, runtime) = (Pair::start(programs), Runtime::new().unwrap());
    let (said, heard) = channel();
    let url = url_of_pair(pair.ports());
    let db = runtime.block_on(monolite_postgres::Database::connect(&url)).unwrap();
    runtime.block_on(create_schema(&db, TABLE)).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (db, said, is_over) = (db.clone(), said.clone(), Arc::clone(&is_over));
            runtime.spawn(write(db, format!("{writer}"), move |key| {
                said.send(key).unwrap();
                !is_over.load(Ordering::Relaxed)
            }))
        })
        .collect();
    let mut acknowledged = hear(&heard, || pair.kill_leader());
    is_over.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|it| runtime.block_on(it).unwrap());
    acknowledged.extend(heard.try_iter().map(|key| (key, Instant::now())));
    (acknowledged, runtime.block_on(rows(&db)))
}

fn takeover() -> Seen {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let (said, heard) = channel();
    let start = |name: &str| {
        let program = Program::this_test("failover::node").unwrap();
        let variables = [("PLACE", place.to_str().unwrap()), ("NAME", name)];
        let mut node = program.spawn(NODE, &variables).unwrap();
        let (id, said) = (node.id(), said.clone());
        let ends = thread::spawn(move || {
            while let Some(line) = node.next_line() {
                let key = line.strip_prefix("acknowledged ").map(str::to_owned);
                key.into_iter().for_each(|key| said.send(key).unwrap());
            }
        });
        move || {
            kill_process(Pid::from_raw(id.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
            ends.join().unwrap();
        }
    };
    let kill_first = start("first");
    heard.recv_timeout(PATIENCE).expect("it has an archive");
    let kill_second = start("second");
    let mut acknowledged = hear(&heard, kill_first);
    kill_second();
    acknowledged.extend(heard.try_iter().map(|key| (key, Instant::now())));
    let restored = place.join("restored.db");
    archive(place).restore(Target::Latest, &restored).unwrap();
    let db = monolite::Database::open(restored).unwrap();
    (acknowledged, Runtime::new().unwrap().block_on(rows(&db)))
}

/// No constraint keeps a row from being there twice.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS written (what TEXT NOT NULL)";

const NODE: &str = "leads, or follows until it does";

/// No test: one of our two.
#[test]
fn node() {
    play(&[(NODE, || {
        let (place, name): (PathBuf, String) = (variable("PLACE")?, variable("NAME")?);
        let (archive, file) = (archive(&place), place.join(&name).with_extension("db"));
        if name == "second" {
            let follower = archive.follow(monolite::Options::new(), &file)?;
            let claimed = follower.claim(Takeover::WhenVacant, &|| true)?;
            follower.promote(claimed.expect("nothing stops it"))?;
        }
        let options = monolite::Options::new().archive(archive).durability(Durability::Archived);
        let (db, runtime) = (options.open(&file)?, Runtime::new()?);
        runtime.block_on(create_schema(&db, TABLE))?;
        let acknowledged = |key: String| {
            say(&format!("acknowledged {key}"));
            true
        };
        let writer = |writer| {
            let writer = format!("{name} {writer}");
            runtime.spawn(write(db.clone(), writer, acknowledged))
        };
        let writers: Vec<_> = (0..WRITERS).map(writer).collect();
        writers.into_iter().try_for_each(|it| Ok(runtime.block_on(it)?))
    })]);
}

fn archive(place: &Path) -> Archive {
    let archive = Archive::at(place.join("archive").to_str().expect("it is text"));
    archive.expect("it can be there").lease(Some(LEASE))
}

/// Commits one row after the other with a key, each until it is acknowledged.
async fn write<D: Engine<Error = Error>>(
    db: D,
    writer: String,
    acknowledged: impl Fn(String) -> bool,
) {
    for number in 0.. {
        let (key, start) = (format!("{writer} {number}"), Instant::now());
        loop {
            let row = |tx: D::Transaction| {
                let key = key.clone();
                async move {
                    tx.execute("INSERT INTO written VALUES (?1)", [key]).await?;
                    Ok(((), Vec::new()))
                }
            };
            match db.transact_once(&key, row).await {
                Ok(_) => break,
                Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
            }
        }
        if !acknowledged(key) {
            return;
        }
    }
}

async fn rows(db: &impl Engine<Error = Error>) -> Vec<String> {
    let sql = "SELECT what FROM written";
    db.read(async |tx| tx.query_map(sql, (), |row| row.get(0)).await).await.unwrap()
}
