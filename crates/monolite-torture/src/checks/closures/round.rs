//! The child: one round of misbehaviour beside honest work.

use std::collections::{BTreeMap, BTreeSet};
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use fastrand::Rng;
use monolite::rusqlite::Connection;
use monolite::{Database, Error, ErrorKind, InteractiveOptions, Options};
use monolite_testkit::blocking::{block_on, locked};
use monolite_testkit::child::{say, variable};
use monolite_testkit::markers;
use monolite_testkit::schedule::{Interactive, Pace};

use super::act::{Act, Fate, Gate, LIMIT, OnPurpose, Scene, Stage, perform, words};
use super::{ARRANGEMENT, DIRECTORY, SAID, SEED, Said};

/// By how much an answer may be late: the engine's grace, what stands in the queue before it, and a
/// busy machine.
const SLACK: Duration = Duration::from_secs(6);

/// Threads that misbehave, and what each does.
const ACTORS: usize = 3;
const ACTS: usize = 5;

/// When those that stay are let go.
const STAY: Duration = Duration::from_millis(900);

/// What is said of an acknowledged write that is gone.
pub(super) const LOST: &str = "acknowledged and lost";

/// The role of the child.
pub(in crate::checks) fn play() -> Result<()> {
    let (directory, seed) = (variable::<PathBuf>(DIRECTORY)?, variable::<u64>(SEED)?);
    let arrangement = variable::<String>(ARRANGEMENT)?;
    say("");
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<OnPurpose>() {
            usual(info);
        }
    }));
    let mut rng = Rng::with_seed(seed);
    let is_limitless = arrangement == "limitless";
    let limit = if is_limitless { Duration::from_secs(3_600) } else { LIMIT };
    let paths = ["one", "other"].map(|name| directory.join(name));
    let open = |path: &PathBuf, rng: &mut Rng| open(path, rng, limit).map(Stage::new);
    let scene = Arc::new(Scene {
        stages: [open(&paths[0], &mut rng)?, open(&paths[1], &mut rng)?],
        gate: Gate::default(),
        next: AtomicI64::new(1),
        acts: AtomicU64::new(0),
        broken: Mutex::default(),
    });
    let longest = if is_limitless {
        let stuck = scene.stages[0].db().context("it is open")?;
        let at = Arc::clone(&scene);
        drop(stuck.write(move |_| {
            at.gate.pass();
            Ok::<_, Error>(())
        }));
        beside_neighbours(&scene, 0, &mut rng, LIMIT + SLACK * 2)
    } else {
        beside_neighbours(&scene, ACTORS, &mut rng, STAY)
    };
    goes_on(&scene);
    for (stage, path) in scene.stages.iter().zip(&paths) {
        // Without a limit, some ways wait for ever.
        end(&scene, stage, path, if is_limitless { End::Close } else { End::ALL[rng.usize(..5)] });
    }
    if arrangement == "forgetful" {
        forget(&scene, &paths[0])?;
    }
    let acknowledged =
        scene.stages.iter().zip(&paths).map(|(stage, path)| judge(&scene, stage, path));
    let said = Said {
        acknowledged: acknowledged.sum::<usize>() as u64,
        acts: scene.acts.load(Ordering::Relaxed),
        longest_ms: u64::try_from(longest.as_millis())?,
        broken: std::mem::take(&mut *locked(&scene.broken)),
    };
    say(&format!("{SAID}{}", serde_json::to_string(&said)?));
    Ok(())
}

fn open(path: &Path, rng: &mut Rng, limit: Duration) -> Result<Database> {
    let db = Options::new()
        .readers(rng.usize(1..4))
        .queue_capacity([2, 16, 1_024][rng.usize(..3)])
        .max_batch([1, 8, 256][rng.usize(..3)])
        .interactive(
            InteractiveOptions::default()
                .connections(rng.usize(1..4))
                .attempts(rng.u32(1..4))
                .time_limit(limit * 10),
        )
        .write_time_limit(limit)
        .read_time_limit(limit)
        .open(path)?;
    markers::create(&db)?;
    Ok(db)
}

/// Runs actors and neighbours until the actors are done; tells the longest wait of a neighbour.
fn beside_neighbours(scene: &Arc<Scene>, actors: usize, rng: &mut Rng, stay: Duration) -> Duration {
    let stop = AtomicBool::new(false);
    let longest = Mutex::new(Duration::ZERO);
    thread::scope(|scope| {
        for ask in [write as Ask, write_awaited, read, transact] {
            let (stop, longest) = (&stop, &longest);
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let took = neighbour(scene, ask);
                    let mut longest = locked(longest);
                    *longest = took.max(*longest);
                }
            });
        }
        let actors: Vec<_> = (0..actors)
            .map(|_| {
                let acts: Vec<_> = (0..ACTS).map(|_| Act::random(rng)).collect();
                scope.spawn(move || acts.iter().for_each(|act| perform(act, scene)))
            })
            .collect();
        thread::sleep(stay);
        scene.gate.open();
        for actor in actors {
            if let Err(payload) = actor.join() {
                scene.broken(format!("an actor panicked: {}", words(&*payload)));
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
    longest.into_inner().unwrap_or_default()
}

/// What a neighbour asks for.
type Ask = fn(&Database, &Scene) -> Result<(), Error>;

/// Asks once and judges the answer; tells how long it took.
fn neighbour(scene: &Scene, ask: Ask) -> Duration {
    let Some(db) = scene.stages[0].db() else { return Duration::ZERO };
    let start = Instant::now();
    let told = ask(&db, scene);
    let took = start.elapsed();
    if took > LIMIT + SLACK {
        scene.broken(format!("a neighbour waited {took:?}"));
    }
    if let Err(error) = told {
        let may_be = [ErrorKind::Overloaded, ErrorKind::Timeout, ErrorKind::Conflict];
        if !may_be.contains(&error.kind()) {
            scene.broken(format!("a neighbour was told {:?}: {error}", error.kind()));
        }
        // As whoever is told that the engine is overloaded should.
        thread::sleep(Duration::from_millis(1));
    }
    took
}

/// Runs a write of this number and notes what it was told.
fn noted(scene: &Scene, run: impl FnOnce(i64) -> Result<(), Error>) -> Result<(), Error> {
    let id = scene.next.fetch_add(1, Ordering::SeqCst);
    let told = run(id);
    locked(&scene.stages[0].fates).insert(id, Fate::told(&told, &"a neighbour"));
    told
}

fn write(db: &Database, scene: &Scene) -> Result<(), Error> {
    noted(scene, |id| db.write(move |tx| markers::put(tx, id)).wait())
}

fn write_awaited(db: &Database, scene: &Scene) -> Result<(), Error> {
    noted(scene, |id| block_on(db.write_once(move |tx| markers::put(tx, id))))
}

fn read(db: &Database, _: &Scene) -> Result<(), Error> {
    db.read(|tx| tx.query_row("SELECT n FROM total", (), |row| row.get::<_, i64>(0))).wait()?;
    Ok(())
}

fn transact(db: &Database, scene: &Scene) -> Result<(), Error> {
    noted(scene, |id| {
        db.transact(async |tx| markers::put(&Interactive::new(&tx, Pace::steady()), id)).wait()
    })
}

/// After everybody has come back, it serves as ever.
fn goes_on(scene: &Scene) {
    let start = Instant::now();
    for (name, ask) in [("write", write as Ask), ("read", read), ("transact", transact)] {
        loop {
            let Some(db) = scene.stages[0].db() else { return };
            match ask(&db, scene) {
                Ok(()) => break,
                // What nobody waits for any more may still be under way.
                Err(error) if start.elapsed() > LIMIT + SLACK => {
                    scene.broken(format!("afterwards a {name} is refused: {error}"));
                    break;
                }
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

/// How a database ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    Drop,
    /// The last handle is dropped with a write closure.
    DropInWrite,
    /// The last handle is dropped in the mapping closure of a statement.
    DropInMap,
    /// A write closure waits for a thread that closes.
    CloseThroughThread,
}

impl End {
    const ALL: [End; 5] =
        [End::Close, End::Drop, End::DropInWrite, End::DropInMap, End::CloseThroughThread];
}

/// Ends a database, and waits until the file can be opened again.
fn end(scene: &Scene, stage: &Stage, path: &Path, way: End) {
    let Some(db) = locked(&stage.db).take() else { return };
    let start = Instant::now();
    match way {
        End::Close => close(scene, &db, start),
        End::Drop => drop(db),
        End::DropInWrite => {
            let last = db.clone();
            drop(db.write(move |_| {
                let _ = &last;
                Ok::<_, Error>(())
            }));
            drop(db);
        }
        End::DropInMap => {
            let last = db.clone();
            let tx = db.transaction();
            drop(db);
            if let Ok(tx) = tx {
                let asked = tx.query_row("SELECT 1", (), move |row| {
                    drop(last);
                    row.get::<_, i64>(0)
                });
                // What counts is that it ends.
                let _ = asked.wait();
            }
        }
        End::CloseThroughThread => {
            // Each waits for the other, until the limit.
            let inner = db.clone();
            let write = db.write(move |_| {
                let closing = inner.clone();
                Ok::<_, Error>(thread::spawn(move || closing.close().is_ok()).join().is_ok())
            });
            // It may have been refused, and nothing closed.
            let _ = write.wait();
            drop(db);
        }
    }
    loop {
        match Database::open(path) {
            Ok(again) => return close(scene, &again, Instant::now()),
            Err(error) if start.elapsed() > SLACK => {
                return scene.broken(format!("after {way:?} it cannot be opened again: {error}"));
            }
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn close(scene: &Scene, db: &Database, start: Instant) {
    // What nobody waits for any more may still be under way.
    while let Err(error) = db.close() {
        if error.kind() != ErrorKind::Timeout || start.elapsed() > SLACK {
            return scene.broken(format!("close: {error}"));
        }
    }
}

/// Takes an acknowledged write out of the file.
fn forget(scene: &Scene, path: &Path) -> Result<()> {
    let fates = locked(&scene.stages[0].fates);
    let one = fates.iter().find(|(_, fate)| **fate == Fate::Acknowledged);
    let (one, _) = one.context("none was acknowledged")?;
    let connection = Connection::open(path)?;
    connection.execute("DELETE FROM whole WHERE id = ?1", [one])?;
    connection.execute("DELETE FROM part WHERE id = ?1", [one])?;
    connection.execute("UPDATE total SET n = n - 1", [])?;
    Ok(())
}

/// Compares the file with what the writers were told; how many were acknowledged.
fn judge(scene: &Scene, stage: &Stage, path: &Path) -> usize {
    let fates: BTreeMap<i64, Fate> = locked(&stage.fates).clone();
    let is_acknowledged = |of: &(&i64, &Fate)| *of.1 == Fate::Acknowledged;
    let acknowledged: BTreeSet<i64> =
        fates.iter().filter(is_acknowledged).map(|(id, _)| *id).collect();
    match markers::in_file(path) {
        Err(error) => scene.broken(format!("{error:#}")),
        Ok(found) => {
            if let Err(error) = markers::check_all_there(&acknowledged, &found) {
                scene.broken(error.to_string());
            }
            for (id, fate) in fates.iter().filter(|(id, _)| found.contains(id)) {
                if let Fate::Refused(why) = fate {
                    scene.broken(format!("refused and there all the same: {id}: {why}"));
                }
            }
        }
    }
    acknowledged.len()
}
