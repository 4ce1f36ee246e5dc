//! Crash images: databases that live under load on a simulated disk, and what a power cut at many
//! moments of their lives would leave.
//!
//! # Algorithm
//! 1. A *life* is one database under random load with its own seed, for [`IMAGES_PER_LIFE`] images.
//!    `life` takes a crash at random calls, most of them inside batches and checkpoints.
//! 2. Two threads make images of each crash, open them and look for everything that was
//!    acknowledged before the crash. While they are behind, the disk of the life waits.
//! 3. Most images are opened by plain SQLite, some by Monolite, some by a Monolite that crashes
//!    while it recovers them.

mod life;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use monolite::{Database, Options};
use monolite_testkit::blocking::locked;
use monolite_testkit::scratch::in_memory;
use monolite_testkit::storage::{Disk, Image, Left, Place, RealSyncs};

use super::lanes;
use super::survivors::{compare, examine};
use super::wrong::Wrong;
use crate::{Amount, Check, Finding, Outcome, Setting};
use life::{Arrangement, Life, Taken};

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "images",
    about: "Open N crash images made from unsynced writes: dropped, reordered, torn",
    unit: "crash images",
    amount: Amount::Number,
    modest: 2_000,
    total: |amount| amount,
    run,
    roles: &[],
};

/// Images of one database's life: with more its tables would grow and each image would cost more.
const IMAGES_PER_LIFE: u64 = 150;

/// Images of one crash: choosing again costs less than another crash.
const IMAGES_PER_CRASH: u64 = 2;

/// Threads that look at images.
const EXAMINERS: usize = 2;

/// How often a control may be tried.
const CONTROL_LIVES: u64 = 4;

/// Images after which such a try counts as unnoticed.
const CONTROL_IMAGES: u64 = 400;

/// One image in so many is opened by Monolite, which then crashes while it recovers.
const CRASHES_AGAIN: u64 = 16;

/// One image in so many is opened by Monolite.
const OPENED_BY_US: u64 = 8;

/// Something wrong, with what is needed to look into it.
struct Seen {
    wrong: Wrong,
    image: Image,
    left: Left,
    calls: Vec<String>,
}

/// What came of one life.
#[derive(Default)]
struct Examined {
    images: u64,
    acknowledged: u64,
    wal_starts: u64,
    seen: Vec<Seen>,
    complaints: Vec<String>,
}

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let mut outcome = CHECK.outcome();
    let directory = in_memory(setting.scratch())?;
    let start = std::time::Instant::now();
    let (mut crashes_in_recovery, mut wal_starts) = (0, 0);
    for number in 0..amount.div_ceil(IMAGES_PER_LIFE) {
        if setting.watch.is_stopped() {
            break;
        }
        let seed = setting.case_seed(number);
        let images = IMAGES_PER_LIFE.min(amount - number * IMAGES_PER_LIFE);
        let life = Life { seed, images, arrangement: Arrangement::Good };
        let examined = live(&life, directory.path(), &|| setting.watch.done(1), &|| {
            setting.watch.is_stopped()
        })?;
        crashes_in_recovery += examined.images / CRASHES_AGAIN;
        wal_starts += examined.wal_starts;
        note(setting, &mut outcome, seed, examined)?;
    }
    let rate = outcome.attempted as f64 / start.elapsed().as_secs_f64();
    outcome.notes.push(format!("{rate:.0} images a second"));
    outcome.notes.push(format!("about {crashes_in_recovery} of them crashed again in recovery"));
    outcome.notes.push(format!("the WAL restarted {wal_starts} times"));
    let outcome = Mutex::new(outcome);
    controls(setting, &outcome, directory.path())?;
    Ok(outcome.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn note(setting: &Setting<'_>, outcome: &mut Outcome, seed: u64, examined: Examined) -> Result<()> {
    outcome.attempted += examined.images;
    outcome.acknowledged += examined.acknowledged;
    for complaint in examined.complaints {
        outcome.anomalies += 1;
        let reproduce = setting.reproduce(IMAGES_PER_LIFE, seed);
        outcome.found(Finding { what: complaint, evidence: None, reproduce });
    }
    for (number, Seen { wrong, image, left, calls }) in examined.seen.into_iter().enumerate() {
        wrong.count(outcome);
        if outcome.findings.len() >= 5 {
            continue;
        }
        let what = format!("{wrong} (left of what was not synced: {left:?})");
        let evidence = setting.evidence(seed)?;
        image.write_to(&evidence.join(format!("image-{number}.db")))?;
        let text = format!("{what}\n\ncalls before the crash:\n{}\n", calls.join("\n"));
        std::fs::write(evidence.join(format!("image-{number}.txt")), text)?;
        let reproduce = setting.reproduce(IMAGES_PER_LIFE, seed);
        outcome.found(Finding { what, evidence: Some(evidence), reproduce });
    }
    Ok(())
}

/// Known-bad arrangements, each of which must be noticed in a few images.
fn controls(setting: &Setting<'_>, outcome: &Mutex<Outcome>, directory: &Path) -> Result<()> {
    for (arrangement, name) in Arrangement::BAD {
        // What is acknowledged and not synced at a crash is a matter of timing, too.
        lanes::control(setting, name, CONTROL_LIVES, outcome, |number| {
            let life =
                Life { seed: setting.case_seed(number), images: CONTROL_IMAGES, arrangement };
            let examined = live(&life, directory, &|| {}, &|| setting.watch.is_stopped())?;
            let told = |seen: &Seen| format!("after {} images: {}", examined.images, seen.wrong);
            Ok(examined.seen.first().map(told))
        })?;
    }
    Ok(())
}

/// Lets a database live and examines what its crashes leave. Ends early when something is wrong.
fn live(
    life: &Life,
    directory: &Path,
    done: &(dyn Fn() + Sync),
    is_stopped: &(dyn Fn() -> bool + Sync),
) -> Result<Examined> {
    let scratch = tempfile::tempdir_in(directory).context("no scratch directory")?;
    let (sender, receiver) = sync_channel(EXAMINERS);
    let receiver = Arc::new(Mutex::new(receiver));
    let examined = Mutex::new(Examined::default());
    let images = AtomicU64::new(0);
    let goes_on = || {
        let mut examined = locked(&examined);
        examined.images = images.load(Ordering::SeqCst);
        examined.images < life.images && examined.seen.is_empty() && !is_stopped()
    };
    let lived = thread::scope(|scope| {
        let examiners: Vec<_> = (0..EXAMINERS)
            .map(|number| {
                let mut place = Place::new(scratch.path().join(format!("image-{number}")));
                let receiver = Arc::clone(&receiver);
                let (examined, images) = (&examined, &images);
                scope.spawn(move || {
                    while let Some(taken) = next(&receiver) {
                        look_at(&taken, &mut place, life.images, images, examined, done)?;
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        // Should all examiners fail, the life must not wait for them.
        drop(receiver);
        let lived = life::live(life, &scratch.path().join("db"), sender, &goes_on);
        for examiner in examiners {
            examiner.join().map_err(|_| anyhow::anyhow!("an examiner panicked"))??;
        }
        lived
    })?;
    let mut examined = examined.into_inner().unwrap_or_else(PoisonError::into_inner);
    examined.images = images.load(Ordering::SeqCst);
    examined.acknowledged = lived.acknowledged;
    examined.wal_starts = lived.wal_starts;
    examined.complaints = lived.complaints;
    Ok(examined)
}

fn next(receiver: &Mutex<Receiver<Taken>>) -> Option<Taken> {
    locked(receiver).recv().ok()
}

/// Makes images of one crash and examines them.
fn look_at(
    taken: &Taken,
    place: &mut Place,
    most: u64,
    images: &AtomicU64,
    examined: &Mutex<Examined>,
    done: &(dyn Fn() + Sync),
) -> Result<()> {
    let mut rng = Rng::with_seed(taken.seed);
    for _ in 0..IMAGES_PER_CRASH {
        let number = images.fetch_add(1, Ordering::SeqCst);
        if number >= most {
            images.fetch_sub(1, Ordering::SeqCst);
            return Ok(());
        }
        let left = Left::random(&mut rng);
        let image = taken.crash.image(left, &mut rng);
        let found = if number.is_multiple_of(CRASHES_AGAIN) {
            let (opened, again) = crash_again(&image, place.give(&image)?, &mut rng);
            let path = place.put(&again)?;
            opened.and_then(|()| examine(path))
        } else if number.is_multiple_of(OPENED_BY_US) {
            let path = place.give(&image)?;
            open_by_us(path).and_then(|()| examine(path))
        } else {
            examine(place.put(&image)?)
        };
        let verdict = found.and_then(|found| {
            let acknowledged = locked(&taken.ledger);
            compare(&found, &acknowledged[..taken.acknowledged])
        });
        done();
        if let Err(wrong) = verdict {
            let calls = taken.disk.recorded();
            locked(examined).seen.push(Seen { wrong, image, left, calls });
        }
    }
    Ok(())
}

fn open_by_us(path: &Path) -> Result<(), Wrong> {
    let opened = Options::new().readers(1).open(path).and_then(|db| db.close());
    opened.map_err(|error| Wrong::Other(format!("Monolite cannot open the image: {error}")))
}

/// Opens the image, which is at `path`, on a simulated disk, and makes an image of a crash in the
/// middle of the recovery or soon after it.
fn crash_again(image: &Image, path: &Path, rng: &mut Rng) -> (Result<(), Wrong>, Image) {
    let disk = Disk::with(image.clone(), RealSyncs::Skipped);
    let (at, again) = (rng.u64(1..120), Arc::new(Mutex::new(None)));
    let (slot, capturing) = (Arc::clone(&again), disk.clone());
    disk.set_hook(move |call| {
        if call.number == at {
            *locked(&slot) = Some(capturing.capture());
        }
        None
    });
    let opened = disk.under(Options::new().readers(1)).open(path);
    let closed = opened.and_then(|db: Database| db.close());
    disk.clear_hook();
    let crash = locked(&again).take().unwrap_or_else(|| disk.capture());
    let closed =
        closed.map_err(|error| Wrong::Other(format!("Monolite cannot open the image: {error}")));
    (closed, crash.image(Left::random(rng), rng))
}
