//! One database and its archive through many lives, as the parent of the children sees it: what was
//! acknowledged, what was restored, and what is wrong about that.
//!
//! # Invariants
//! - Each life has numbers of its own, so that of what a restore gives it is known which life wrote
//!   it. What earlier lives left is history once it was restored: none of it goes, and nothing
//!   comes to it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use monolite::Durability;
use monolite_archive::{
    DirectoryStore, ErrorKind, Layout, Target,
    internals::{Catalog, Level, Pace, Present, adopt, restore, verify},
};
use monolite_testkit::child::{Child, Heard};
use tempfile::TempDir;

use super::child::{Arrangement, Orders, Status, TELL};
use crate::checks::lanes::book;
use crate::checks::writing::{self, Ledger, Look, NUMBERS};
use crate::checks::wrong::{Wrong, keep, keep_files};
use crate::{Outcome, Setting};

/// Nothing that a child does takes longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is asked how far it is.
const ASKING: Duration = Duration::from_millis(5);

/// States that are restored of an archive, besides the last one.
const MOMENTS: usize = 4;

/// The name of each database.
pub(super) const FILE: &str = "db";

/// See the module.
pub(super) struct Case<'s> {
    pub(super) setting: &'s Setting<'s>,
    pub(super) seed: u64,
    pub(super) rng: Rng,
    scratch: TempDir,
    /// Where the directories of databases are.
    homes: PathBuf,
    lives: i64,
    restores: u64,
    takes_over: bool,
    /// Whether the last child was to take over.
    pub(super) is_taking_over: bool,
    home: PathBuf,
    pub(super) ledger: Ledger,
    /// What was restored last, and the first number of lives that were not over by then.
    history: BTreeSet<i64>,
    open: i64,
}

impl<'s> Case<'s> {
    /// Its databases are below `homes`, or else beside its archive.
    pub(super) fn new(
        setting: &'s Setting<'s>,
        number: u64,
        homes: Option<&Path>,
    ) -> Result<Case<'s>> {
        let seed = setting.case_seed(number);
        let scratch = tempfile::tempdir_in(setting.scratch())
            .with_context(|| format!("no directory in {}", setting.scratch().display()))?;
        let homes = homes.unwrap_or(scratch.path()).to_owned();
        let mut case = Case {
            setting,
            seed,
            rng: Rng::with_seed(seed),
            scratch,
            home: PathBuf::new(),
            homes,
            lives: 0,
            restores: 0,
            takes_over: false,
            is_taking_over: false,
            ledger: Ledger::default(),
            history: BTreeSet::new(),
            open: 0,
        };
        case.move_house()?;
        Ok(case)
    }

    fn move_house(&mut self) -> Result<()> {
        self.home = self.new_home()?;
        Ok(())
    }

    /// A directory for another database, on the disk as a user's is.
    pub(super) fn new_home(&mut self) -> Result<PathBuf> {
        let home = self.homes.join(format!("home-{}", self.restores));
        self.restores += 1;
        fs::create_dir(&home).context("cannot create a directory")?;
        let synced = fs::File::open(&self.homes).and_then(|directory| directory.sync_all());
        synced.context("cannot sync the directory")?;
        Ok(home)
    }

    /// The database is in this directory from now on; where it was.
    pub(super) fn move_to(&mut self, home: PathBuf) -> PathBuf {
        std::mem::replace(&mut self.home, home)
    }

    pub(super) fn file(&self) -> PathBuf {
        self.home.join(FILE)
    }

    pub(super) fn archive(&self) -> PathBuf {
        self.scratch.path().join("archive")
    }

    pub(super) fn store(&self) -> DirectoryStore {
        DirectoryStore::new(self.archive())
    }

    /// What the next child is told.
    pub(super) fn orders(&mut self, durability: Durability) -> Orders {
        self.lives += 1;
        self.ledger.is_open = false;
        self.is_taking_over = std::mem::replace(&mut self.takes_over, false);
        Orders {
            file: self.file(),
            archive: self.archive(),
            first: self.first(),
            filling: self.rng.choice([0, 100, 1_000, 8_000]).unwrap_or(0),
            durability,
            takes_over: self.is_taking_over,
            staged_limit: u64::MAX,
            refuses_gaps: false,
            arrangement: Arrangement::Sound,
        }
    }

    /// The first number of the life that goes on.
    fn first(&self) -> i64 {
        1 + NUMBERS * (self.lives - 1)
    }

    /// Hears a child until it has acknowledged so many more.
    pub(super) fn hear_some(&mut self, child: &mut Child, count: usize) -> Result<()> {
        let (start, mut since) = (self.ledger.acknowledged.len(), Instant::now());
        while self.ledger.acknowledged.len() < start + count {
            match child.listen(ASKING) {
                Heard::Line(line) => {
                    self.ledger.hear(&line)?;
                    since = Instant::now();
                }
                Heard::Silence if since.elapsed() < PATIENCE => {}
                Heard::Silence => {
                    let is = self.ask(child)?;
                    let text = format!("a child does nothing for {PATIENCE:?}, and is at {is:?}");
                    bail!(Wrong::Other(text));
                }
                Heard::End => bail!(Wrong::Other("a child has ended by itself".into())),
            }
        }
        Ok(())
    }

    /// Asks a child until `is_so`.
    pub(super) fn await_status(
        &mut self,
        child: &mut Child,
        what: &str,
        is_so: impl Fn(&Status) -> bool,
    ) -> Result<()> {
        let start = Instant::now();
        loop {
            let status = self.ask(child)?;
            if is_so(&status) {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                let text = format!("for {PATIENCE:?} it was not so that {what}: {status:?}");
                bail!(Wrong::Other(text));
            }
            std::thread::sleep(ASKING);
        }
    }

    /// How far a child is.
    pub(super) fn ask(&mut self, child: &mut Child) -> Result<Status> {
        // One that has ended says why below.
        let _ = child.tell(TELL);
        let until = Instant::now() + PATIENCE;
        loop {
            match child.listen(until.saturating_duration_since(Instant::now())) {
                Heard::Line(line) => match line.strip_prefix("status ") {
                    Some(text) => return text.parse(),
                    None => self.ledger.hear(&line)?,
                },
                Heard::End => bail!(Wrong::Other("a child has ended by itself".into())),
                Heard::Silence => bail!(Wrong::Other("a child says nothing".into())),
            }
        }
    }

    /// Has a child close, and hears that it did.
    pub(super) fn close(&mut self, child: &mut Child) -> Result<(), Wrong> {
        child.go_on();
        let mut is_closed = false;
        while let Some(line) = child.next_line() {
            is_closed |= line == "closed";
            self.ledger.hear(&line)?;
        }
        let unclosed = || Wrong::Other("a child has ended and not closed".into());
        if is_closed { Ok(()) } else { Err(unclosed()) }
    }

    /// Throws the database away with all that is beside it.
    pub(super) fn lose_disk(&self) -> Result<()> {
        fs::remove_dir_all(&self.home).context("cannot remove the database")
    }

    /// Restores the archive alone to another directory, and judges it. The next child takes over.
    pub(super) fn restore(&mut self, look: Look) -> Result<()> {
        self.move_house()?;
        self.takes_over = true;
        let output = self.file();
        let layout = Layout::directory();
        match restore(&self.store(), &layout, Target::Latest, &output) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let count = self.ledger.acknowledged.len();
                let gone = format!("nothing can be restored of {count} acknowledged: {error}");
                if count == 0 { Ok(()) } else { Err(Wrong::Lost(count as u64, gone).into()) }
            }
            Err(error) => bail!(Wrong::Other(format!("it cannot be restored: {error}"))),
            Ok(_) => Ok(self.judge(look)?),
        }
    }

    /// What the file had that was judged last.
    pub(super) fn history(&self) -> &BTreeSet<i64> {
        &self.history
    }

    /// Judges a file that is history and that no process has open.
    pub(super) fn judge(&mut self, look: Look) -> Result<(), Wrong> {
        let found = self.ledger.judge(&self.file(), look, false)?;
        let end = self.first() + NUMBERS;
        if let Some(id) = found.range(end..).next() {
            return Err(Wrong::Other(format!("transaction {id} is there, which nobody wrote")));
        }
        if let Some(id) = self.history.difference(&found).next() {
            let text = format!("transaction {id} is gone, which was restored before");
            return Err(Wrong::Lost(1, text));
        }
        if let Some(id) = found.range(..self.open).find(|id| !self.history.contains(id)) {
            let text = format!("transaction {id} of an earlier life has come to history later");
            return Err(Wrong::Other(text));
        }
        (self.history, self.open) = (found, end);
        Ok(())
    }

    /// Has an operator take over for what was restored, instead of the next child. It is fenced.
    pub(super) fn adopt(&mut self) -> Result<(), Wrong> {
        let file = self.file();
        // Where nothing could be restored there is nothing to adopt.
        if file.exists() {
            self.take_over(Some(&file))?;
            self.takes_over = false;
        }
        Ok(())
    }

    /// Has an operator fence whoever is there.
    pub(super) fn fence(&self) -> Result<(), Wrong> {
        self.take_over(None)
    }

    fn take_over(&self, next: Option<&Path>) -> Result<(), Wrong> {
        let (store, layout, mut clock) = (self.store(), Layout::directory(), Clock(Instant::now()));
        match adopt(&store, &layout, Present::TakeOver, next, &mut clock) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(Wrong::Other(format!("it is not taken over within {PATIENCE:?}"))),
            Err(error) => Err(Wrong::Other(format!("it cannot be taken over: {error}"))),
        }
    }

    /// Of a database that is closed: whether the archive has its very bytes, and all moments
    /// before.
    pub(super) fn is_the_same(&mut self, look: Look) -> Result<()> {
        let file = self.file();
        self.restore(look)?;
        let restored = std::mem::replace(&mut self.home, file.parent().unwrap_or(&file).into());
        self.takes_over = false;
        let bytes = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
        let (ours, theirs) = (bytes(&file)?, bytes(&restored.join(FILE))?);
        if ours != theirs {
            let at = ours.iter().zip(&theirs).position(|(one, other)| one != other);
            let (one, other) = (ours.len(), theirs.len());
            bail!(Wrong::Other(format!(
                "the file has {one} bytes, what was restored {other}; they differ at {at:?}"
            )));
        }
        fs::remove_dir_all(restored).context("cannot remove what was restored")?;
        self.proves_itself()?;
        Ok(self.moments()?)
    }

    /// Reads every file of the archive to its end.
    pub(super) fn proves_itself(&self) -> Result<(), Wrong> {
        let proof = verify(&self.store(), &Layout::directory(), &mut |_| {});
        let proof = proof.map_err(|error| Wrong::Other(format!("it cannot be read: {error}")))?;
        match proof.problems.first() {
            Some(problem) => Err(Wrong::Other(format!("the archive is not whole: {problem}"))),
            None => Ok(()),
        }
    }

    /// Restores some of the moments that the archive has. Each must be whole, and have nothing that
    /// the last one lacks: nothing is ever deleted.
    fn moments(&mut self) -> Result<(), Wrong> {
        let other = |error: &dyn std::fmt::Display| Wrong::Other(format!("a moment: {error}"));
        let (store, layout) = (self.store(), Layout::directory());
        let catalog = Catalog::read(&store, &layout).map_err(|error| other(&error))?;
        let from = catalog.level(Level::SNAPSHOTS).first().map(|file| file.txids.max());
        let slots = catalog.level(Level::SLOTS).iter().map(|file| file.txids.max());
        let slots: Vec<_> = slots.filter(|txid| Some(*txid) >= from).collect();
        let mut chosen: Vec<_> = (0..MOMENTS).filter_map(|_| self.rng.choice(&slots)).collect();
        chosen.sort();
        let mut last = BTreeSet::new();
        let output = self.scratch.path().join("moment");
        for txid in chosen {
            let target = Target::Txid(*txid);
            restore(&store, &layout, target, &output)
                .map_err(|error| other(&format!("{txid}: {error}")))?;
            let found = writing::judge(&output, &last, Look::Quick, false)?;
            if let Some(id) = found.iter().find(|id| !self.history.contains(id)) {
                return Err(Wrong::Other(format!("{id} is there at {txid}, and later is not")));
            }
            last = found;
            fs::remove_file(&output).map_err(|error| other(&error))?;
        }
        Ok(())
    }

    /// Copies of the whole database that the archive has.
    pub(super) fn copies(&self) -> Result<usize> {
        let catalog = Catalog::read(&self.store(), &Layout::directory())?;
        Ok(catalog.level(Level::SNAPSHOTS).len())
    }

    /// Keeps the files and books what is wrong.
    pub(super) fn book(
        &self,
        wrong: Wrong,
        (part, amount): (&str, u64),
        outcome: &Mutex<Outcome>,
    ) -> Result<()> {
        let evidence = self.setting.evidence(self.seed)?;
        let history = format!("life {}: {wrong:?}\n{:?}\n", self.lives, self.ledger);
        if self.home.exists() {
            keep(&self.home, &evidence, part, &history)?;
        }
        let layout = Layout::directory();
        for level in [Level::SLOTS, Level::SNAPSHOTS] {
            let folder = self.archive().join(layout.level(level));
            if folder.exists() {
                keep_files(&folder, &evidence, &format!("{part}-level-{}-", level.get()))?;
            }
        }
        let reproduce = self.setting.reproduce(amount, self.seed);
        let mut outcome = book(outcome)?;
        wrong.book(&mut outcome, Some(evidence), reproduce);
        Ok(())
    }
}

/// The time of an operator, who loses patience.
struct Clock(Instant);

impl Pace for Clock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn wait(&mut self, until: Duration) -> bool {
        std::thread::sleep(until.saturating_sub(self.now()));
        self.now() < PATIENCE
    }
}
