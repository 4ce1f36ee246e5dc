//! `SIGKILL` at any moment, and the disk is gone: what was acknowledged as archived is restored.
//!
//! # Algorithm
//! 1. A case is one archive and up to [`LIVES`] lives of its database, in one weather.
//! 2. In a life a child writes and is killed: while it opens the file and uploads the first copy,
//!    at work, or while it closes. Then its whole directory goes.
//! 3. What is restored from the archive is judged, and is the next life's database. Either that
//!    takes over, or an operator does before.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use monolite::Durability;
use monolite_testkit::child::Child;

use super::case::Case;
use super::weather::Weather;
use super::{AT_ONCE, control, count_one};
use crate::checks::lanes::{book, side_by_side};
use crate::checks::writing::Look;
use crate::checks::wrong::verdict;
use crate::{Outcome, Setting};

/// Lives of one database; many make its check slow.
const LIVES: u64 = 10;

/// Archives within which one whose writes wait for nothing has to lose some.
const CONTROLS: u64 = 20;

pub(super) fn run(setting: &Setting<'_>, amount: u64, outcome: &Mutex<Outcome>) -> Result<()> {
    let name = "writes that do not wait for the archive are lost with the disk";
    control(setting, name, CONTROLS, outcome, &|case| {
        case.life(Durability::Synced, Weather::Fair)?;
        case.restore(Look::Quick)
    })?;
    side_by_side(AT_ONCE, amount.div_ceil(LIVES), |number| {
        let mut case = Case::new(setting, number, None)?;
        let weathers = [Weather::Fair, Weather::Fair, Weather::Slow, Weather::Bad];
        let weather = case.rng.choice(weathers).unwrap_or(Weather::Fair);
        let lives = LIVES.min(amount - number * LIVES);
        for life in 1..=lives {
            if setting.watch.is_stopped() {
                return Ok(());
            }
            let before = case.ledger.acknowledged.len();
            let verdict = verdict(case.live_and_restore(weather, life == lives))?;
            count_one(setting, outcome, case.ledger.acknowledged.len() - before)?;
            if let Err(wrong) = verdict {
                return case.book(wrong, ("kills", lives), outcome);
            }
        }
        Ok(())
    })?;
    book(outcome)?.notes.push(format!("{amount} SIGKILLs, each with its disk thrown away"));
    Ok(())
}

impl Case<'_> {
    /// A life, and what is restored after it; an operator may adopt that, unless it is the last.
    fn live_and_restore(&mut self, weather: Weather, is_last: bool) -> Result<()> {
        self.life(Durability::Archived, weather)?;
        self.restore(if is_last { Look::Thorough } else { Look::Quick })?;
        match (is_last, self.rng.bool()) {
            (true, _) => self.proves_itself()?,
            (false, true) => self.adopt()?,
            (false, false) => {}
        }
        Ok(())
    }

    /// A child writes and is killed, and its disk is gone.
    fn life(&mut self, durability: Durability, weather: Weather) -> Result<()> {
        let mut child = self.orders(durability).spawn(self.setting.program)?;
        self.torment(&mut child, weather)?;
        child.kill()?;
        self.ledger.hear_rest(&mut child)?;
        self.lose_disk()
    }

    /// Hears a child until a random moment, and may have it close.
    fn torment(&mut self, child: &mut Child, weather: Weather) -> Result<()> {
        // A claim makes many requests, and rests after each that fails: bad weather comes later.
        let is_bad = weather == Weather::Bad;
        if !is_bad {
            child.tell(weather.word())?;
        }
        let choice = self.rng.u8(..16);
        if choice < 2 {
            thread::sleep(Duration::from_micros(self.rng.u64(..120_000)));
            return Ok(());
        }
        let count = self.rng.usize(..120);
        if is_bad {
            self.hear_some(child, 1)?;
            child.tell(weather.word())?;
        }
        self.hear_some(child, count)?;
        if choice == 2 {
            child.go_on();
            thread::sleep(Duration::from_micros(self.rng.u64(..20_000)));
        }
        Ok(())
    }
}
