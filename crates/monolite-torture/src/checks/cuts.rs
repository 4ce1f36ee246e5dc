//! Real power cuts of real file systems: what was acknowledged before the cut is there after it.
//!
//! # Algorithm
//! 1. Half of the cuts are made on ext4, half on XFS, side by side. A case is one fresh file system
//!    (see [`Disk`]) and up to [`CUTS_A_DISK`] cuts of it.
//! 2. Between two cuts a child writes (see [`super::writing`]) to the database that the last cut
//!    left, or to a new one. The power is cut at a random moment: while it opens or creates the
//!    file, writes, checkpoints, or closes. Only what the parent had read before counts as
//!    acknowledged.
//! 3. The child is killed, the file system mounted again, and the database judged, now and then
//!    after the engine has opened and closed it.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use monolite_testkit::child::Child;
use monolite_testkit::mounts::{Disk, FileSystem};

use super::lanes::{self, book, on_both};
use super::writing::{self, Arrangement, Ledger, Look, NUMBERS, Orders};
use super::wrong::{Wrong, keep, verdict};
use crate::{Amount, Check, Outcome, Setting};

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "cuts",
    about: "Cut the power of real file systems N times, ext4 and xfs in turn; needs root",
    unit: "power cuts",
    amount: Amount::Number,
    modest: 40,
    total: |amount| amount,
    run,
    roles: &[(writing::ROLE, writing::play)],
};

/// Cuts of one file system; then a new one is made.
const CUTS_A_DISK: u64 = 50;

/// Databases that have grown larger are not kept for the next cut: judging them takes long.
const LARGE_BYTES: u64 = 24 << 20;

/// Cuts within which a broken arrangement has to be noticed.
const CONTROL_CUTS: u64 = 20;

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let outcome = Mutex::new(CHECK.outcome());
    on_both(setting, amount, &outcome, |kind, cuts| lane(setting, kind, cuts, &outcome))?;
    outcome.into_inner().map_err(|_| anyhow!("a lane panicked"))
}

/// All that is done on one kind of file system.
fn lane(
    setting: &Setting<'_>,
    kind: FileSystem,
    cuts: u64,
    outcome: &Mutex<Outcome>,
) -> Result<()> {
    control(setting, kind, Arrangement::Buffered, "buffered durability", outcome)?;
    control(setting, kind, Arrangement::SaysEarly, "acknowledges before the sync", outcome)?;
    let (mut done, start) = (0, Instant::now());
    for number in 0.. {
        if done == cuts || setting.watch.is_stopped() {
            break;
        }
        let mut case = Case::new(setting, kind, number, Arrangement::Sound)?;
        for _ in 0..CUTS_A_DISK.min(cuts - done) {
            if setting.watch.is_stopped() {
                break;
            }
            let verdict = verdict(case.cut_once())?;
            done += 1;
            setting.watch.done(1);
            let mut outcome = book(outcome)?;
            outcome.attempted += 1;
            outcome.acknowledged += case.count;
            if let Err(wrong) = verdict {
                case.book(wrong, &mut outcome)?;
                break;
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64() / done.max(1) as f64;
    book(outcome)?.notes.push(format!("{}: {done} cuts, {seconds:.2} s each", kind.name()));
    Ok(())
}

/// A broken arrangement, which has to lose something that was acknowledged.
fn control(
    setting: &Setting<'_>,
    kind: FileSystem,
    arrangement: Arrangement,
    name: &str,
    outcome: &Mutex<Outcome>,
) -> Result<()> {
    // Numbers that no case of the run has.
    let mut case = Case::new(setting, kind, u64::MAX, arrangement)?;
    let name = format!("{name}, {}", kind.name());
    lanes::control(setting, &name, CONTROL_CUTS, outcome, |_| {
        Ok(match verdict(case.cut_once())? {
            Err(Wrong::Lost(_, what)) => Some(what),
            _ => None,
        })
    })
}

/// One file system.
struct Case<'s> {
    setting: &'s Setting<'s>,
    kind: FileSystem,
    arrangement: Arrangement,
    seed: u64,
    rng: fastrand::Rng,
    disk: Disk,
    file: PathBuf,
    files: u32,
    cuts: i64,
    ledger: Ledger,
    /// What was acknowledged before the last cut, since the one before.
    count: u64,
}

impl<'s> Case<'s> {
    fn new(
        setting: &'s Setting<'s>,
        kind: FileSystem,
        number: u64,
        arrangement: Arrangement,
    ) -> Result<Case<'s>> {
        let seed = setting.case_seed(number);
        let disk = Disk::new(setting.scratch(), kind)?;
        Ok(Case {
            setting,
            kind,
            arrangement,
            seed,
            rng: fastrand::Rng::with_seed(seed),
            file: disk.path().join("0").join("db"),
            disk,
            files: 0,
            cuts: 0,
            ledger: Ledger { may_refuse: true, ..Ledger::default() },
            count: 0,
        })
    }

    /// Writes, cuts, and judges.
    fn cut_once(&mut self) -> Result<()> {
        let is_large = self.file.metadata().is_ok_and(|file| file.len() > LARGE_BYTES);
        let is_sound = self.arrangement == Arrangement::Sound;
        if self.cuts == 0 || is_large || !is_sound || self.rng.u8(..4) == 0 {
            self.begin_anew()?;
        }
        let filling = [0, 100, 1_000, 8_000][self.rng.usize(..4)];
        let orders = Orders {
            file: &self.file,
            first: 1 + NUMBERS * self.cuts,
            filling: if is_sound { filling } else { 4_000 },
            arrangement: self.arrangement,
        };
        self.cuts += 1;
        let before = self.ledger.acknowledged.len();
        let mut child = orders.spawn(self.setting.program)?;
        let written = self.write_until_cut(&mut child);
        self.count = (self.ledger.acknowledged.len() - before) as u64;
        written?;
        child.kill()?;
        drop(child);
        self.disk.restart()?;
        self.judge()
    }

    /// A new database. Its directory is on disk, as a user's is; its own name is not yet.
    fn begin_anew(&mut self) -> Result<()> {
        let of_the_last = self.disk.path().join(self.files.to_string());
        if of_the_last.exists() {
            std::fs::remove_dir_all(&of_the_last).context("cannot remove the last database")?;
        }
        self.files += 1;
        let directory = self.disk.path().join(self.files.to_string());
        std::fs::create_dir(&directory).context("cannot create a directory")?;
        let root = std::fs::File::open(self.disk.path()).context("cannot open the directory")?;
        root.sync_all().context("cannot sync the directory")?;
        self.file = directory.join("db");
        self.ledger.acknowledged.clear();
        self.ledger.refused.clear();
        Ok(())
    }

    /// Hears the child until a random moment and cuts the power.
    fn write_until_cut(&mut self, child: &mut Child) -> Result<()> {
        let choice = self.rng.u8(..16);
        let is_sound = self.arrangement == Arrangement::Sound;
        let most = if is_sound && choice < 3 { 0..30_000 } else { 30_000..300_000 };
        let cutter = self.disk.arm()?;
        let in_microseconds = |time| Instant::now() + Duration::from_micros(time);
        self.ledger.hear_until(child, in_microseconds(self.rng.u64(most)))?;
        if is_sound && (3..5).contains(&choice) {
            child.go_on();
            self.ledger.hear_until(child, in_microseconds(self.rng.u64(..20_000)))?;
        }
        cutter.cut()
    }

    fn judge(&mut self) -> Result<()> {
        if !self.file.exists() {
            let count = self.ledger.acknowledged.len();
            let gone = format!("the file is gone, and {count} acknowledged with it");
            return if count == 0 { Ok(()) } else { Err(Wrong::Lost(1, gone).into()) };
        }
        if self.rng.u8(..4) == 0 {
            writing::open_and_close(&self.file)?;
        }
        let look = if self.rng.u8(..8) == 0 { Look::Thorough } else { Look::Quick };
        self.ledger.judge(&self.file, look, self.rng.bool())?;
        Ok(())
    }

    /// Keeps the files and books what is wrong.
    fn book(&self, wrong: Wrong, outcome: &mut Outcome) -> Result<()> {
        let evidence = self.setting.evidence(self.seed)?;
        let history = format!("cut {}: {wrong:?}\n{:?}\n", self.cuts, self.ledger);
        if let Some(directory) = self.file.parent().filter(|directory| directory.exists()) {
            keep(directory, &evidence, self.kind.name(), &history)?;
        }
        let reproduce = self.setting.reproduce(2 * CUTS_A_DISK, self.seed);
        wrong.book(outcome, Some(evidence), reproduce);
        Ok(())
    }
}
