//! Real power cuts below a database with an archive, and either its disk is gone or what the cut
//! has left of it is opened again.
//!
//! # Algorithm
//! 1. Half of the cuts are made on ext4, half on XFS, side by side. A case is one fresh file system
//!    and up to [`CUTS`] cuts of it; its archive is elsewhere.
//! 2. Between two cuts a child writes. What the parent had read before a cut counts as
//!    acknowledged.
//! 3. Every other time the database is thrown away, and what is restored is judged. Else the
//!    database is opened as the cut has left it, and closed once all of it is archived: what is
//!    restored then is the file, byte by byte, and is judged.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use monolite::{Database, Durability, Options};
use monolite_archive::Archive;
use monolite_testkit::mounts::{Disk, FileSystem};

use super::case::{Case, PATIENCE};
use super::count_one;
use crate::checks::lanes::{self, book, on_both};
use crate::checks::writing::{Look, WAL_LIMIT_BYTES};
use crate::checks::wrong::{Wrong, verdict};
use crate::{Outcome, Setting};

/// Cuts of one file system; then a new one is made.
const CUTS: u64 = 10;

/// Cuts within which writes that do not wait for the archive have to be lost with the disk.
const CONTROL_CUTS: u64 = 20;

pub(super) fn run(setting: &Setting<'_>, amount: u64, outcome: &Mutex<Outcome>) -> Result<()> {
    on_both(setting, amount, outcome, |kind, cuts| lane(setting, kind, cuts, outcome))
}

/// All that is done on one kind of file system.
fn lane(
    setting: &Setting<'_>,
    kind: FileSystem,
    cuts: u64,
    outcome: &Mutex<Outcome>,
) -> Result<()> {
    control(setting, kind, outcome)?;
    let (mut done, mut kept) = (0, 0);
    for number in 0.. {
        if done == cuts || setting.watch.is_stopped() {
            break;
        }
        let mut disk = Disk::new(setting.scratch(), kind)?;
        let homes = disk.path().to_owned();
        let mut case = Case::new(setting, number, Some(&homes))?;
        let of_this = CUTS.min(cuts - done);
        for _ in 0..of_this {
            let (before, is_kept) = (case.ledger.acknowledged.len(), case.rng.bool());
            let verdict = verdict(case.cut_once(&mut disk, Durability::Archived, is_kept))?;
            (done, kept) = (done + 1, kept + u64::from(is_kept));
            count_one(setting, outcome, case.ledger.acknowledged.len() - before)?;
            if let Err(wrong) = verdict {
                case.book(wrong, (kind.name(), 5 * 2 * CUTS), outcome)?;
                break;
            }
            if setting.watch.is_stopped() {
                break;
            }
        }
    }
    let told = format!(
        "{}: {done} power cuts, {} with the disk thrown away, {kept} opened again",
        kind.name(),
        done - kept
    );
    book(outcome)?.notes.push(told);
    Ok(())
}

/// Writes that do not wait for the archive have to be lost with the disk.
fn control(setting: &Setting<'_>, kind: FileSystem, outcome: &Mutex<Outcome>) -> Result<()> {
    let name = format!("what did not wait for the archive is lost with the power, {}", kind.name());
    lanes::control(setting, &name, CONTROL_CUTS, outcome, |cut| {
        let mut disk = Disk::new(setting.scratch(), kind)?;
        let homes = disk.path().to_owned();
        let mut case = Case::new(setting, u64::MAX - cut, Some(&homes))?;
        Ok(match verdict(case.cut_once(&mut disk, Durability::Synced, false))? {
            Err(Wrong::Lost(_, what)) => Some(what),
            _ => None,
        })
    })
}

impl Case<'_> {
    /// A child writes until the power is cut at a random moment; then what is left is judged.
    fn cut_once(&mut self, disk: &mut Disk, durability: Durability, is_kept: bool) -> Result<()> {
        let mut child = self.orders(durability).spawn(self.setting.program)?;
        let (is_early, cutter) = (self.rng.u8(..4) == 0, disk.arm()?);
        let range = if is_early { 0..100_000 } else { 100_000..600_000 };
        let until = Instant::now() + Duration::from_micros(self.rng.u64(range));
        self.ledger.hear_until(&mut child, until)?;
        cutter.cut()?;
        child.kill()?;
        drop(child);
        disk.restart()?;
        let look = if self.rng.u8(..8) == 0 { Look::Thorough } else { Look::Quick };
        if !is_kept {
            self.lose_disk()?;
            return self.restore(look);
        }
        self.open_again()?;
        self.is_the_same(look)
    }

    /// Opens what a cut has left, and closes it once nothing is to be copied.
    fn open_again(&self) -> Result<(), Wrong> {
        let other = |what: String| Wrong::Other(format!("after a power cut {what}"));
        let archive = self.archive();
        let archive = archive.to_str().ok_or_else(|| other("its path is no text".into()))?;
        let archive = Archive::at(archive).map_err(|error| other(error.to_string()))?;
        // A takeover that was cut off is said once more.
        let archive = archive.take_over(self.is_taking_over && !self.ledger.is_open);
        let options = Options::new().wal_limit_bytes(WAL_LIMIT_BYTES);
        let options = options.archive(archive).durability(Durability::Archived);
        let opened = options.open(self.file());
        let db: Database =
            opened.map_err(|error| other(format!("the engine cannot open it: {error}")))?;
        let start = Instant::now();
        let is_done = || {
            let stats = db.stats().archive.unwrap_or_default();
            stats.is_restorable && stats.copies_because.is_none()
        };
        while !is_done() {
            if start.elapsed() > PATIENCE {
                let stats = db.stats().archive;
                return Err(other(format!("it is not archived within {PATIENCE:?}: {stats:?}")));
            }
            thread::sleep(Duration::from_millis(2));
        }
        db.close().map_err(|error| other(format!("it cannot be closed: {error}")))
    }
}
