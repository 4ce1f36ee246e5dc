//! A WAL that begins anew again and again while the store is dead: no group is lost.
//!
//! # Algorithm
//! 1. A child writes with `Synced`. Once it can be restored, the store goes away, and the child
//!    writes several times what its WAL may hold.
//! 2. Then the store is back; before that, every other time, the child is killed, and another goes
//!    on with the file.
//! 3. The child closes, which uploads the rest. The archive must have got the database without a
//!    further copy of it: group by group. What is restored is the file, byte by byte.

use std::sync::Mutex;

use anyhow::Result;
use monolite::Durability;
use monolite_testkit::child::Child;

use super::case::Case;
use super::child::Arrangement;
use super::weather::Weather;
use super::{control, play_all};
use crate::checks::writing::Look;
use crate::checks::wrong::Wrong;
use crate::{Outcome, Setting};

/// Bytes in each of the three parts of a transaction.
const FILLING: usize = 8_000;

/// Transactions before a dead store: five times what the WAL may hold.
const WRITES: usize = 1_800;

/// Databases without a gate within which something has to be missed.
const CONTROLS: u64 = 3;

pub(super) fn run(setting: &Setting<'_>, amount: u64, outcome: &Mutex<Outcome>) -> Result<()> {
    let name = "a WAL that begins anew without the archive having read it";
    control(setting, name, CONTROLS, outcome, &|case| case.starve(Arrangement::WithoutGate))?;
    play_all(setting, "gates", amount, outcome, &|case| case.starve(Arrangement::Sound))
}

impl Case<'_> {
    fn starve(&mut self, arrangement: Arrangement) -> Result<Result<(), Wrong>> {
        let mut child = self.begin(arrangement)?;
        let ready = self.await_status(&mut child, "it can be restored", |status| {
            status.is_restorable && !status.copies
        })?;
        if let Some(wrong) = ready {
            return Ok(Err(wrong));
        }
        let copies = self.copies()?;
        child.tell(Weather::Away.word())?;
        if let Some(wrong) = self.hear_some(&mut child, WRITES)? {
            return Ok(Err(wrong));
        }
        if self.rng.bool() {
            child.kill()?;
            if let Some(wrong) = self.hear_rest(&mut child) {
                return Ok(Err(wrong));
            }
            child = self.begin(arrangement)?;
        }
        child.tell(Weather::Fair.word())?;
        if let Some(wrong) = self.hear_some(&mut child, 1)?.or_else(|| self.close(&mut child)) {
            return Ok(Err(wrong));
        }
        if self.copies()? > copies {
            let why = "groups were missed: the whole database was copied once more";
            return Ok(Err(Wrong::Other(why.into())));
        }
        self.is_the_same(Look::Thorough)
    }

    fn begin(&mut self, arrangement: Arrangement) -> Result<Child> {
        let mut orders = self.orders(Durability::Synced);
        (orders.filling, orders.arrangement) = (FILLING, arrangement);
        orders.spawn(self.setting.program)
    }
}
