//! One database under random load on a simulated disk, and the crashes that are taken from it.
//!
//! # Algorithm
//! 1. Clients send bursts of transactions of several sizes; some fail on purpose. What was
//!    acknowledged goes into a ledger at once.
//! 2. A client only looks, in durable reads and in interactive transactions that change nothing:
//!    when it has its answer, what it saw goes into the ledger, too.
//! 3. Before each call of the disk a random number decides whether a crash is taken. It notes the
//!    length of the ledger first, so that everything up to there must survive. Calls of a
//!    checkpoint and of the restart of the WAL are chosen more often than there are any.
//!
//! The bad arrangements break one rule each. They leave the engine as it is: what is broken is the
//! disk, the durability, or the moment at which a client counts a transaction as acknowledged.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use monolite::vfs::FileKind;
use monolite::{Database, Durability, Error, ErrorKind, Options, Write};
use monolite_testkit::blocking::{block_on_within, locked};
use monolite_testkit::storage::{Call, Crash, Disk, Fault, Operation, RealSyncs};

use crate::checks::survivors::{create, perform, perform_large};

/// The smallest that is allowed, so that the WAL restarts often.
const WAL_LIMIT_BYTES: u64 = 8 << 20;

/// Longer than any closure waits for the examiners.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// A write that has no answer after this time will never have one.
const PATIENCE: Duration = Duration::from_secs(120);

/// Failed writes after which a life on a broken disk is over.
const MAX_FAILED: u64 = 1_000;

/// The simulated syncs take up to this long, so that batches grow meanwhile.
const SYNC_MICROSECONDS: u64 = 400;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrangement {
    Good,
    Buffered,
    CountsWhatIsVisible,
    DiskLies,
    FramesGarbled,
}

impl Arrangement {
    pub(super) const BAD: [(Arrangement, &'static str); 4] = [
        (Arrangement::Buffered, "buffered durability loses acknowledged writes"),
        (Arrangement::CountsWhatIsVisible, "a write counts as acknowledged before the sync"),
        (Arrangement::DiskLies, "the disk reports syncs that it did not make"),
        (Arrangement::FramesGarbled, "WAL frames are written in the wrong order"),
    ];
}

/// What kind of life.
pub(super) struct Life {
    pub(super) seed: u64,
    /// Images that are wanted of it.
    pub(super) images: u64,
    pub(super) arrangement: Arrangement,
}

/// A crash, and what must survive it.
pub(super) struct Taken {
    pub(super) crash: Crash,
    pub(super) ledger: Arc<Mutex<Vec<i64>>>,
    /// How much of the ledger was acknowledged before the crash.
    pub(super) acknowledged: usize,
    pub(super) seed: u64,
    /// For its record of calls.
    pub(super) disk: Disk,
}

/// What came of it.
pub(super) struct Lived {
    pub(super) acknowledged: u64,
    /// How often the WAL was copied whole and restarted.
    pub(super) wal_starts: u64,
    pub(super) complaints: Vec<String>,
}

/// What clients and hook share.
struct Shared {
    arrangement: Arrangement,
    ledger: Arc<Mutex<Vec<i64>>>,
    next: AtomicI64,
    has_ended: AtomicBool,
    /// Writes that failed and should not have.
    failed: AtomicU64,
    complaints: Mutex<Vec<String>>,
}

/// Takes crashes at random calls.
struct Taker {
    shared: Arc<Shared>,
    disk: Disk,
    state: Mutex<(Rng, Option<SyncSender<Taken>>)>,
}

/// Lives until `goes_on` says no.
pub(super) fn live(
    life: &Life,
    path: &Path,
    sender: SyncSender<Taken>,
    goes_on: &dyn Fn() -> bool,
) -> Result<Lived> {
    let mut rng = Rng::with_seed(life.seed);
    let disk = Disk::empty(RealSyncs::Skipped);
    disk.record();
    let durability = match life.arrangement {
        Arrangement::Buffered => Durability::Buffered,
        _ => Durability::Synced,
    };
    let options = Options::new()
        .readers(2)
        .durability(durability)
        .wal_limit_bytes(WAL_LIMIT_BYTES)
        .write_time_limit(TIME_LIMIT)
        .read_time_limit(TIME_LIMIT)
        .max_batch(1 << rng.u32(0..9));
    let db = disk.under(options).open(path)?;
    db.write(create).wait()?;
    let shared = Arc::new(Shared {
        arrangement: life.arrangement,
        ledger: Arc::default(),
        next: AtomicI64::new(1),
        has_ended: AtomicBool::new(false),
        failed: AtomicU64::new(0),
        complaints: Mutex::default(),
    });
    let state = Mutex::new((rng.fork(), Some(sender)));
    let taker = Arc::new(Taker { shared: Arc::clone(&shared), disk: disk.clone(), state });
    let hook = Arc::clone(&taker);
    disk.set_hook(move |call| hook.before(call));
    thread::scope(|scope| {
        for _ in 0..rng.usize(1..=6) {
            let (mut rng, db, shared) = (rng.fork(), &db, &shared);
            scope.spawn(move || write_until_the_end(db, shared, &mut rng));
        }
        scope.spawn(|| read_until_the_end(&db, &shared));
        scope.spawn(|| witness_until_the_end(&db, &shared));
        while goes_on() && !shared.has_ended.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(2));
        }
        shared.has_ended.store(true, Ordering::SeqCst);
        // The hook may be waiting for an examiner; from now on it sends nothing.
        taker.end();
    });
    disk.clear_hook();
    let wal_starts = db.stats().checkpoints_completed;
    drop(db);
    let acknowledged = locked(&shared.ledger).iter().collect::<BTreeSet<_>>().len() as u64;
    let complaints = std::mem::take(&mut *locked(&shared.complaints));
    Ok(Lived { acknowledged, wal_starts, complaints })
}

impl Taker {
    fn before(&self, call: &Call) -> Option<Fault> {
        if self.shared.has_ended.load(Ordering::SeqCst) {
            return None;
        }
        let mut state = locked(&self.state);
        let (rng, sender) = &mut *state;
        let pause = rng.u64(..SYNC_MICROSECONDS);
        let harm = rng.u8(..8) == 0;
        let taken = (rng.u32(..chance_of(call)) == 0).then(|| self.take(rng.u64(..)));
        let sender = sender.clone();
        drop(state);
        if let Some((taken, sender)) = taken.zip(sender) {
            // Nobody listens any more when something was found; the life is about to end.
            let _ = sender.send(taken);
        }
        if call.operation == Operation::SyncWal {
            thread::sleep(Duration::from_micros(pause));
        }
        let writes_frames = call.operation == Operation::Write && call.kind == FileKind::Wal;
        match self.shared.arrangement {
            Arrangement::DiskLies if call.operation.is_sync() => Some(Fault::Unreported),
            Arrangement::FramesGarbled if writes_frames && harm => Some(Fault::Garbled),
            _ => None,
        }
    }

    /// First what is acknowledged, then what is on disk.
    fn take(&self, seed: u64) -> Taken {
        let acknowledged = locked(&self.shared.ledger).len();
        let crash = self.disk.capture();
        let (ledger, disk) = (Arc::clone(&self.shared.ledger), self.disk.clone());
        Taken { crash, ledger, acknowledged, seed, disk }
    }

    /// Lets the examiners end.
    fn end(&self) {
        locked(&self.state).1 = None;
    }
}

/// A crash is taken before one in so many calls like this.
fn chance_of(call: &Call) -> u32 {
    match (call.operation, call.kind) {
        (Operation::Write, FileKind::Wal) if call.at == 0 => 2,
        (Operation::Truncate, _) => 2,
        (Operation::Sync | Operation::SyncWal, _) => 6,
        (Operation::Write, FileKind::Wal) => 12,
        (Operation::Write, _) => 150,
        _ => 1_000,
    }
}

/// What a client does next.
#[derive(Clone, Copy)]
enum Deed {
    Small,
    Filled(usize),
    Large(usize),
    Once,
    Fails,
    ViolatesConstraint,
}

impl Deed {
    fn random(rng: &mut Rng) -> Deed {
        match rng.u16(..1_000) {
            0..600 => Deed::Small,
            600..750 => Deed::Filled(rng.usize(..2_500)),
            750..765 => Deed::Large(rng.usize(20_000..200_000)),
            // Some need more room than the WAL keeps free.
            765..770 => Deed::Large(rng.usize(200_000..1_500_000)),
            770..840 => Deed::Once,
            840..940 => Deed::Fails,
            _ => Deed::ViolatesConstraint,
        }
    }

    fn send(self, db: &Database, id: i64) -> Write<(), Error> {
        match self {
            Deed::Small => db.write(move |tx| perform(tx, id, &[])),
            Deed::Filled(bytes) => db.write(move |tx| perform(tx, id, &vec![5; bytes])),
            Deed::Large(bytes) => db.write(move |tx| perform_large(tx, id, bytes)),
            Deed::Once => db.write_once(move |tx| perform(tx, id, &[])),
            Deed::Fails => db.write(move |tx| {
                perform(tx, -id, &[6; 300])?;
                Err(Error::aborted("on purpose"))
            }),
            Deed::ViolatesConstraint => db.write(move |tx| {
                perform(tx, -id, &[])?;
                tx.execute("INSERT INTO whole VALUES (?1)", [-id]).map(drop)
            }),
        }
    }

    fn may_end_with(self, kind: ErrorKind) -> bool {
        match self {
            Deed::Fails => kind == ErrorKind::Aborted,
            Deed::ViolatesConstraint => kind == ErrorKind::Constraint,
            // It and its neighbours changed more than was left of the WAL, and it cannot run again.
            Deed::Once => kind == ErrorKind::Overloaded,
            _ => false,
        }
    }
}

fn write_until_the_end(db: &Database, shared: &Shared, rng: &mut Rng) {
    let most = 1 << rng.u32(0..6);
    while !shared.has_ended.load(Ordering::SeqCst) {
        let burst: Vec<_> = (0..rng.u32(1..=most))
            .map(|_| {
                let id = shared.next.fetch_add(1, Ordering::SeqCst);
                let deed = Deed::random(rng);
                (id, deed, deed.send(db, id))
            })
            .collect();
        for (id, deed, write) in burst {
            if shared.arrangement == Arrangement::CountsWhatIsVisible {
                count_once_visible(db, shared, id);
            }
            match block_on_within(write, PATIENCE) {
                Some(Ok(())) => acknowledge(shared, id),
                Some(Err(error)) => complain(shared, deed, &error),
                None => end_with(shared, format!("a write has no answer after {PATIENCE:?}")),
            }
        }
    }
}

fn acknowledge(shared: &Shared, id: i64) {
    if shared.arrangement != Arrangement::CountsWhatIsVisible {
        locked(&shared.ledger).push(id);
    }
}

fn complain(shared: &Shared, deed: Deed, error: &Error) {
    if deed.may_end_with(error.kind()) {
        return;
    }
    // Where the disk is broken on purpose the engine may fail in any way, and then nothing more
    // will come of this life.
    let failed = shared.failed.fetch_add(1, Ordering::SeqCst) + 1;
    if shared.arrangement == Arrangement::Good || failed >= MAX_FAILED {
        end_with(shared, format!("a write failed on a good disk: {error:?}"));
    }
}

fn end_with(shared: &Shared, complaint: String) {
    locked(&shared.complaints).push(complaint);
    shared.has_ended.store(true, Ordering::SeqCst);
}

/// What a client does that takes a commit for an acknowledgement.
fn count_once_visible(db: &Database, shared: &Shared, id: i64) {
    for _ in 0..100 {
        let is_there = "SELECT EXISTS (SELECT 1 FROM whole WHERE id = ?1)";
        let seen = db.read(|tx| tx.query_row(is_there, [id], |row| row.get::<_, bool>(0))).wait();
        if matches!(seen, Ok(true)) {
            return locked(&shared.ledger).push(id);
        }
    }
}

/// Reads keep snapshots, which checkpoints have to respect.
fn read_until_the_end(db: &Database, shared: &Shared) {
    while !shared.has_ended.load(Ordering::SeqCst) {
        let counts = db.read(|tx| {
            let count = || {
                let sql = "SELECT n, (SELECT COUNT(*) FROM whole) FROM total";
                tx.query_row(sql, (), |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
            };
            let first = count()?;
            thread::sleep(Duration::from_millis(3));
            Ok::<_, Error>((first, count()?))
        });
        match counts.wait() {
            Ok((first, second)) if first == second && first.0 == first.1 => {}
            // Its snapshot was in the way of a WAL near its limit.
            Err(error) if error.kind() == ErrorKind::Timeout => {}
            told if shared.arrangement == Arrangement::Good => {
                end_with(shared, format!("a read of one snapshot got {told:?}"));
            }
            _ => {}
        }
    }
}

/// Sees writes with a promise that they are on disk, before their own clients are told.
fn witness_until_the_end(db: &Database, shared: &Shared) {
    const LATEST: &str = "SELECT max(id) FROM whole";
    let durable = || db.read_durable(|tx| tx.query_row(LATEST, (), |row| row.get(0))).wait();
    let interactive = || -> Result<Option<i64>, Error> {
        let tx = db.transaction()?;
        let latest = tx.query_row(LATEST, (), |row| row.get(0)).wait()?;
        tx.commit().wait()?;
        Ok(latest)
    };
    while !shared.has_ended.load(Ordering::SeqCst) {
        for seen in [durable(), interactive()] {
            match seen {
                Ok(seen) => locked(&shared.ledger).extend(seen),
                // Its snapshot was in the way of a WAL near its limit.
                Err(error) if error.kind() == ErrorKind::Timeout => {}
                Err(error) if shared.arrangement == Arrangement::Good => {
                    end_with(shared, format!("a look was refused: {error:?}"));
                }
                Err(_) => {}
            }
        }
        thread::sleep(Duration::from_micros(200));
    }
}
