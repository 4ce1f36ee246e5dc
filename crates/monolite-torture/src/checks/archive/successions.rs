//! Followers that take over, and primaries that come back as followers.
//!
//! # Algorithm
//! 1. A child writes with `Archived`. Another follows it, and looks in each read whether all
//!    transactions are whole and none has gone. It is killed now and then, and started again. In
//!    one case in three the child writes with `Replicated(1)`, and the other one streams.
//! 2. The primary is killed, stopped or cut off, or goes on. The follower takes over. Until its
//!    file is the primary's it may be killed and started again.
//! 3. That file is judged, and the next child goes on with it. The old primary goes on, too, and
//!    must end as fenced.
//! 4. The old file follows: its orphan, if it has one, is restored, and must be sound. It is the
//!    next to take over.
//! 5. In the end the files of both have the same bytes, and so has what is restored.
//!
//! The controls: a file that has followed is taken before it has all that was acknowledged; and a
//! follower that is no replica takes over.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use monolite::{Database, Durability, Options};
use monolite_archive::{
    Archive, DirectoryStore, Follower, Layout, Takeover,
    internals::{follows, leader},
};
use monolite_testkit::child::{Child, Heard, heard, say, variable};
use monolite_testkit::markers::PARTIAL;

use super::case::{Case, FILE, PATIENCE};
use super::child::SECRET;
use super::takeovers::Kept;
use super::{control, play_all};
use crate::Outcome;
use crate::Setting;
use crate::checks::writing::{Look, judge};
use crate::checks::wrong::Wrong;

/// The role of a follower.
pub(super) const ROLE: &str = "follows an archive";

/// Takeovers of one archive.
const ROUNDS: usize = 3;

/// Cases within which a broken arrangement has to be noticed.
const CONTROLS: u64 = 20;

/// How often a follower looks for what is new.
const INTERVAL: Duration = Duration::from_millis(5);

/// Has a follower take over.
const PROMOTE: &str = "promote";

/// Has a follower take over that may lack what was acknowledged as replicated.
const FORCE: &str = "force";

/// Has a follower close, once it has everything.
const CLOSE: &str = "close";

pub(super) fn run(setting: &Setting<'_>, amount: u64, outcome: &Mutex<Outcome>) -> Result<()> {
    let name = "a follower's file is taken before it has everything";
    control(setting, name, CONTROLS, outcome, &|case| case.succeed_too_early())?;
    let name = "a follower takes over that the leader record does not list";
    control(setting, name, CONTROLS, outcome, &|case| case.succeed_unlisted())?;
    play_all(setting, "successions", amount, outcome, &|case| match case.rng.u8(..3) {
        0 => case.succeed(Durability::Replicated(1)),
        _ => case.succeed(Durability::Archived),
    })
}

/// A follower, as its parent sees it.
struct Standby {
    home: PathBuf,
    child: Child,
    /// What the primary acknowledges: it streams for `Replicated`.
    durability: Durability,
}

impl Case<'_> {
    fn succeed(&mut self, durability: Durability) -> Result<()> {
        let mut primary = self.orders(durability).spawn(self.setting.program)?;
        self.hear_some(&mut primary, 1)?;
        let home = self.new_home()?;
        let mut standby = self.follow_anew(home, durability, &[])?;
        for _ in 0..ROUNDS {
            let count = self.rng.usize(1..200);
            self.hear_more(&mut primary, count)?;
            if self.rng.bool() {
                standby.child.kill()?;
                standby = self.follow(standby.home, durability)?;
            }
            // None is killed.
            let kept = self.rng.choice(Kept::ALL).filter(|_| self.rng.u8(..5) > 0);
            match kept {
                Some(kept) => kept.begins(&mut primary)?,
                None => primary.kill()?,
            }
            let old = self.promote(standby)?;
            self.judge(Look::Quick)?;
            let mut next = self.orders(durability).spawn(self.setting.program)?;
            self.hear_some(&mut next, 1)?;
            if let Some(kept) = kept {
                kept.ends(&mut primary)?;
                if !self.hear_stale(&mut primary)? {
                    bail!(Wrong::Other("the old primary is not told that it is fenced".into()));
                }
            }
            self.ledger.hear_rest(&mut primary)?;
            let listed = self.replicas()?;
            if self.rng.bool() {
                let mut killed = self.spawn_follower(&old, durability)?;
                thread::sleep(Duration::from_millis(self.rng.u64(..120)));
                killed.kill()?;
            }
            standby = self.follow_anew(old, durability, &listed)?;
            primary = next;
        }
        self.close(&mut primary)?;
        standby.child.tell(CLOSE)?;
        self.await_word(&mut standby.child, "closed")?;
        let bytes = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
        if bytes(&self.file())? != bytes(&standby.home.join(FILE))? {
            bail!(Wrong::Other("the follower's file is not the primary's".into()));
        }
        self.is_the_same(Look::Thorough)
    }

    /// The control: nothing fences the primary, which acknowledges more.
    fn succeed_too_early(&mut self) -> Result<()> {
        let mut primary = self.orders(Durability::Archived).spawn(self.setting.program)?;
        self.hear_some(&mut primary, 20)?;
        let home = self.new_home()?;
        let mut standby = self.follow(home, Durability::Archived)?;
        standby.child.tell(CLOSE)?;
        self.await_word(&mut standby.child, "closed")?;
        self.hear_some(&mut primary, 20)?;
        primary.kill()?;
        self.ledger.hear_rest(&mut primary)?;
        self.move_to(standby.home);
        Ok(self.judge(Look::Quick)?)
    }

    /// The control: the replica is not promoted, but a follower that has what is archived.
    fn succeed_unlisted(&mut self) -> Result<()> {
        let durability = Durability::Replicated(1);
        let mut primary = self.orders(durability).spawn(self.setting.program)?;
        self.hear_some(&mut primary, 1)?;
        let home = self.new_home()?;
        let _replica = self.follow_anew(home, durability, &[])?;
        let home = self.new_home()?;
        let mut standby = self.follow(home, Durability::Archived)?;
        self.hear_more(&mut primary, 20)?;
        primary.kill()?;
        self.ledger.hear_rest(&mut primary)?;
        standby.child.tell(FORCE)?;
        self.await_word(&mut standby.child, "promoted")?;
        self.move_to(standby.home);
        Ok(self.judge(Look::Quick)?)
    }

    /// Hears a primary until it has acknowledged so many more. What it said before now does not
    /// count: before it had a replica, the archive acknowledged.
    fn hear_more(&mut self, primary: &mut Child, count: usize) -> Result<()> {
        self.ask(primary)?;
        self.hear_some(primary, count)
    }

    /// Starts a follower where these were `listed`. One that streams is, too, when this returns.
    fn follow_anew(
        &mut self,
        home: PathBuf,
        durability: Durability,
        listed: &[String],
    ) -> Result<Standby> {
        let (standby, start) = (self.follow(home, durability)?, Instant::now());
        while streams(durability) && self.replicas()? == listed {
            if start.elapsed() > PATIENCE {
                bail!(Wrong::Other(format!("a follower is no replica after {PATIENCE:?}")));
            }
            thread::sleep(INTERVAL);
        }
        Ok(standby)
    }

    /// Who may take over.
    fn replicas(&self) -> Result<Vec<String>> {
        let record = leader(&self.store(), &Layout::directory())?;
        Ok(record.iter().flat_map(|it| &it.replicas).map(ToString::to_string).collect())
    }

    /// Starts a follower with the file in `home`, and waits until it follows.
    fn follow(&mut self, home: PathBuf, durability: Durability) -> Result<Standby> {
        let mut child = self.spawn_follower(&home, durability)?;
        let said = self.await_word(&mut child, "follows")?;
        if let Some(orphan) = said.split_once(' ').map(|(_, orphan)| PathBuf::from(orphan)) {
            self.look_at(&orphan)?;
        }
        Ok(Standby { home, child, durability })
    }

    fn spawn_follower(&self, home: &Path, durability: Durability) -> Result<Child> {
        let (file, archive) = (home.join(FILE), self.archive());
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is not text");
        let streams = streams(durability).to_string();
        let variables =
            [("FILE", text(&file)?), ("ARCHIVE", text(&archive)?), ("STREAMS", streams)];
        let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
        self.setting.program.spawn(ROLE, &variables)
    }

    /// Has a follower take over, however often it is killed meanwhile. The database is its file
    /// then; where it was before.
    fn promote(&mut self, mut standby: Standby) -> Result<PathBuf> {
        standby.child.tell(PROMOTE)?;
        while self.rng.u8(..4) == 0 {
            thread::sleep(Duration::from_millis(self.rng.u64(..60)));
            standby.child.kill()?;
            if !follows(&standby.home.join(FILE)) {
                return Ok(self.move_to(standby.home));
            }
            standby = self.follow(standby.home, standby.durability)?;
            standby.child.tell(PROMOTE)?;
        }
        self.await_word(&mut standby.child, "promoted")?;
        Ok(self.move_to(standby.home))
    }

    /// Hears a follower until it says this word; the line.
    fn await_word(&mut self, child: &mut Child, word: &str) -> Result<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            match child.listen(until.saturating_duration_since(Instant::now())) {
                Heard::Line(line) if line.starts_with(word) => return Ok(line),
                Heard::Line(line) => self.ledger.hear(&line)?,
                Heard::Silence => {
                    bail!(Wrong::Other(format!("{word:?} is not heard for {PATIENCE:?}")))
                }
                Heard::End => {
                    bail!(Wrong::Other(format!("a follower has ended: {}", child.end()?)))
                }
            }
        }
    }

    /// What the old primary alone had is a database, with all that came before.
    fn look_at(&self, orphan: &Path) -> Result<()> {
        let restored = orphan.with_extension("db");
        let archive = Archive::of(Arc::new(self.store()), Layout::directory());
        if let Err(error) = archive.restore_orphan(orphan, &restored) {
            bail!(Wrong::Other(format!("an orphan cannot be restored: {error}")));
        }
        judge(&restored, self.history(), Look::Quick, false)?;
        Ok(())
    }
}

/// Whether followers stream from a primary that acknowledges so.
fn streams(durability: Durability) -> bool {
    matches!(durability, Durability::Replicated(_))
}

/// Plays the role.
pub(super) fn play() -> Result<()> {
    let (file, directory): (PathBuf, PathBuf) = (variable("FILE")?, variable("ARCHIVE")?);
    let store = Arc::new(DirectoryStore::new(directory));
    let archive = Archive::of(store, Layout::directory()).interval(INTERVAL);
    let streams: bool = variable("STREAMS")?;
    let archive = if streams { archive.stream_from(None, SECRET) } else { archive };
    let follower = archive.follow(Options::new().readers(2), &file)?;
    match follower.stats().orphan {
        Some(orphan) => say(&format!("follows {}", orphan.display())),
        None => say("follows"),
    }
    let is_over = AtomicBool::new(false);
    let word = thread::scope(|scope| {
        scope.spawn(|| {
            if let Err(error) = read(follower.database(), &is_over) {
                say(&format!("wrong: {error:#}"));
            }
        });
        let word = heard().next();
        is_over.store(true, Ordering::Relaxed);
        word
    });
    match word.as_deref() {
        Some(word @ (PROMOTE | FORCE)) => {
            let when = if word == FORCE { Takeover::Forced } else { Takeover::Now };
            let claimed = follower.claim(when, &|| true)?.context("it was not stopped")?;
            follower.promote(claimed)?;
            say("promoted");
        }
        Some(CLOSE) => {
            has_everything(&follower);
            follower.close()?;
            say("closed");
        }
        _ => {}
    }
    Ok(())
}

/// Reads until it is over: each transaction is whole, and none goes.
fn read(db: &Database, is_over: &AtomicBool) -> Result<()> {
    let sql = format!("SELECT n, (SELECT count(*) FROM whole), ({PARTIAL}) FROM total");
    let mut had = 0;
    while !is_over.load(Ordering::Relaxed) {
        let counts =
            db.read(|tx| tx.query_row(&sql, (), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))));
        let (total, wholes, partial): (i64, i64, i64) = counts.wait()?;
        if partial > 0 || total != wholes || total < had {
            bail!(
                "a read had {partial} partial transactions, and {wholes} of {total}; before {had}"
            );
        }
        had = total;
    }
    Ok(())
}

/// Waits until the follower has had all that the archive had at a moment behind now.
fn has_everything(follower: &Follower) {
    let asked = Instant::now();
    let is_later = |age: u64| u128::from(age) < asked.elapsed().as_millis();
    while !follower.stats().age_ms.is_some_and(is_later) {
        thread::sleep(INTERVAL);
    }
}
