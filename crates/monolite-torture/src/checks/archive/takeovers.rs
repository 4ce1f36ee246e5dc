//! A primary that is replaced while it stands still, or cannot reach its store: when it goes on, it
//! acknowledges nothing more as archived.
//!
//! # Algorithm
//! 1. A child writes with `Archived`, and is stopped (`SIGSTOP`), or its requests are held up.
//! 2. An operator takes over: the archive is fenced, and then restored. Another child goes on with
//!    what was restored, and acknowledges writes of its own.
//! 3. The first child goes on. Whatever it still acknowledges must be in what was restored: it was
//!    in its slot before the fence. It ends as `Fenced`, and nothing of it comes to history.
//!
//! The controls: a primary that looks whether the record is its own, and fills the slot whatever is
//! there; and an operator who restores first and fences later.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use monolite::Durability;
use monolite_testkit::child::{Child, Heard};

use super::case::{Case, PATIENCE};
use super::child::Arrangement;
use super::weather::Weather;
use super::{control, play_all};
use crate::checks::writing::Look;
use crate::checks::wrong::Wrong;
use crate::{Outcome, Setting};

/// Cases within which a broken arrangement has to be noticed.
const CONTROLS: u64 = 20;

/// How long a stale primary that is not fenced is let write.
const STALE: Duration = Duration::from_millis(300);

/// What those are told who are none any more, whether or not their last writes are in history.
const FENCED: &str = "another primary has taken over";

/// What comes first when an archive is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Fence,
    Restore,
}

/// How the old primary is kept from writing meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// The process stands still.
    Still,
    /// Its requests are lost, or arrive late.
    Off(Weather),
    /// It is not.
    Free,
}

impl Kept {
    pub(super) const ALL: [Kept; 4] =
        [Kept::Still, Kept::Off(Weather::Away), Kept::Off(Weather::Late), Kept::Free];

    pub(super) fn begins(self, old: &mut Child) -> Result<()> {
        match self {
            Kept::Still => old.pause(),
            Kept::Off(weather) => old.tell(weather.word()),
            Kept::Free => Ok(()),
        }
    }

    pub(super) fn ends(self, old: &mut Child) -> Result<()> {
        match self {
            Kept::Still => old.resume(),
            Kept::Off(_) => old.tell(Weather::Fair.word()),
            Kept::Free => Ok(()),
        }
    }
}

pub(super) fn run(setting: &Setting<'_>, amount: u64, outcome: &Mutex<Outcome>) -> Result<()> {
    let name = "a primary that trusts its lease fills slots of the next one";
    control(setting, name, CONTROLS, outcome, &|case| {
        case.replace(Arrangement::LeaseOnly, First::Fence, Kept::Still)
    })?;
    let name = "what is restored before the fence lacks what came between";
    control(setting, name, CONTROLS, outcome, &|case| {
        case.replace(Arrangement::Sound, First::Restore, Kept::Free)
    })?;
    play_all(setting, "takeovers", amount, outcome, &|case| {
        let kept = case.rng.choice(Kept::ALL).unwrap_or(Kept::Still);
        case.replace(Arrangement::Sound, First::Fence, kept)
    })
}

impl Case<'_> {
    fn replace(&mut self, arrangement: Arrangement, first: First, kept: Kept) -> Result<()> {
        let mut orders = self.orders(Durability::Archived);
        orders.arrangement = arrangement;
        let mut old = orders.spawn(self.setting.program)?;
        let count = self.rng.usize(1..200);
        self.hear_some(&mut old, count)?;
        if kept == Kept::Still {
            thread::sleep(Duration::from_millis(self.rng.u64(..60)));
        }
        kept.begins(&mut old)?;
        if first == First::Fence {
            self.fence()?;
        }
        self.restore(Look::Quick)?;
        if first == First::Restore {
            let count = self.rng.usize(1..50);
            self.hear_some(&mut old, count)?;
        }
        // What was restored too early cannot be adopted, so that control has the next one say it.
        if first == First::Fence && self.rng.bool() {
            self.adopt()?;
        }
        let mut new = self.orders(Durability::Archived).spawn(self.setting.program)?;
        let count = self.rng.usize(1..200);
        self.hear_some(&mut new, count)?;
        kept.ends(&mut old)?;
        let is_fenced = self.hear_stale(&mut old)?;
        self.hear_some(&mut new, 1)?;
        self.close(&mut new)?;
        self.is_the_same(Look::Thorough)?;
        let stale = "the old primary goes on, and is not told that it is fenced";
        if is_fenced { Ok(()) } else { Err(Wrong::Other(stale.into()).into()) }
    }

    /// Hears a primary that is none any more until it ends; whether it says that it is fenced.
    pub(super) fn hear_stale(&mut self, child: &mut Child) -> Result<bool> {
        let (start, mut is_fenced) = (Instant::now(), false);
        loop {
            match child.listen(STALE) {
                Heard::Line(line) => {
                    let heard = self.ledger.hear(&line);
                    is_fenced |= heard.is_err_and(|wrong| wrong.to_string().contains(FENCED));
                }
                Heard::End => return Ok(is_fenced),
                Heard::Silence => child.go_on(),
            }
            ensure!(start.elapsed() < PATIENCE, "a stale primary neither ends nor goes on");
        }
    }
}
