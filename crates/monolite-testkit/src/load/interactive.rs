//! Interactive transactions of a load: run by the engine again until they commit, or by hand; on
//! the client's thread or awaited.
//!
//! # The commit order
//! A transaction that asked for its number in `done` would conflict with every other one. It enters
//! itself without looking, and its number is read after its commit, when it has to be visible.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use fastrand::Rng;
use monolite::{Error, ErrorKind, ReadTx, Transaction};

use super::Shared;
use crate::blocking::block_on;
use crate::checkers::serial::{Op, Record};
use crate::functions::VOLATILE;
use crate::schedule::{Gave, Interactive, Pace, Plan, Stopped, Told, sql};

/// How often a client tries a transaction that it commits by hand.
const TRIES: usize = 20;

impl Shared<'_> {
    /// One interactive transaction from its begin to its end.
    pub(super) fn interact(&self, id: i64, rng: &mut Rng) {
        if rng.u8(..8) == 0 {
            return self.look_interactively(rng);
        }
        if rng.u8(..16) == 0 {
            self.ask_what_cannot_be_repeated();
        }
        let plan = Plan::random_interactive(id, self.load.failing, rng);
        let floor = self.floor();
        if self.load.dropped > 0 && rng.u32(..self.load.dropped) == 0 {
            return self.leave(plan, floor, rng);
        }
        let (by_hand, pace) = (rng.u8(..3) == 0, Pace::random(rng));
        let run = || if by_hand { self.by_hand(&plan, &pace) } else { self.retried(&plan, &pace) };
        let outcome = catch_unwind(AssertUnwindSafe(run));
        let told = Told::by(outcome.map(|ran| ran.map(|saw| Gave { number: Gave::LATER, saw })));
        match plan.ending.judge_interactive(&told, by_hand) {
            Err(_) if matches!(told, Told::Refused(ErrorKind::Timeout, _)) => {
                // Its snapshot stood in the way of the WAL.
                self.late.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) if !by_hand && matches!(told, Told::Refused(ErrorKind::Conflict, _)) => {
                // Plain writes have changed what it reads in each of its attempts.
                self.late.fetch_add(1, Ordering::Relaxed);
            }
            Err(complaint) => {
                self.complain(format!("interactive {id}, by hand {by_hand}: {complaint}"))
            }
            Ok(()) => {}
        }
        let Told::Committed(Gave { saw, .. }) = told else {
            return self.note(Record::Failed { id });
        };
        self.interactive.fetch_add(1, Ordering::Relaxed);
        let Some(number) = self.number_of(id) else {
            return self.complain(format!("interactive {id} is acknowledged and not to be seen"));
        };
        self.tell(number);
        self.note(Record::Wrote { id, number, floor, ops: plan.ops, saw });
    }

    /// A function that says of itself that it is not deterministic is refused.
    fn ask_what_cannot_be_repeated(&self) {
        let asked = self
            .db
            .transaction()
            .and_then(|tx| tx.query_row(VOLATILE, (), |row| row.get::<_, i64>(0)).wait());
        match asked {
            Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Timeout) => {}
            answer => self.complain(format!("a volatile function: {answer:?}")),
        }
    }

    /// Has the engine run it again until it commits.
    fn retried(&self, plan: &Plan, pace: &Pace) -> Result<Vec<i64>, Stopped> {
        if !pace.is_awaited {
            return self
                .db
                .with_error()
                .transact(async |tx| {
                    plan.interact(&Interactive::new(&tx, pace.clone()), &self.clock)
                })
                .wait();
        }
        let body = |tx: Transaction| async move {
            plan.interact(&Interactive::new(&tx, pace.clone()), &self.clock)
        };
        block_on(Box::pin(self.db.with_error().transact(body)))
    }

    /// Commits it, and begins anew after a conflict.
    fn by_hand(&self, plan: &Plan, pace: &Pace) -> Result<Vec<i64>, Stopped> {
        for attempt in 1.. {
            match self.try_once(plan, pace) {
                Err(Stopped::Engine(error))
                    if error.kind() == ErrorKind::Conflict && attempt < TRIES => {}
                outcome => return outcome,
            }
        }
        unreachable!("the last attempt has returned")
    }

    fn try_once(&self, plan: &Plan, pace: &Pace) -> Result<Vec<i64>, Stopped> {
        let tx = self.db.transaction()?;
        let saw = plan.interact(&Interactive::new(&tx, pace.clone()), &self.clock)?;
        let commit = tx.commit();
        if pace.is_awaited {
            block_on(commit)?
        } else {
            commit.wait()?
        };
        Ok(saw)
    }

    /// Commits it and does not listen, or leaves it open and goes.
    fn leave(&self, plan: Plan, floor: i64, rng: &mut Rng) {
        let begun = self.db.transaction().map_err(Stopped::from).and_then(|tx| {
            let interactive = Interactive::new(&tx, Pace::random(rng));
            let run = AssertUnwindSafe(|| plan.interact(&interactive, &self.clock));
            let ran = catch_unwind(run).unwrap_or(Err(Stopped::OnPurpose));
            ran.map(|_| tx)
        });
        self.note(match begun {
            Ok(tx) if rng.u8(..3) > 0 => {
                drop(tx.commit());
                if plan.ending.commits() {
                    Record::Untold { id: plan.id, number: None, floor, ops: plan.ops }
                } else {
                    Record::Failed { id: plan.id }
                }
            }
            _ => Record::Failed { id: plan.id },
        });
    }

    /// One that only reads: its place is behind the last transaction that it has seen.
    fn look_interactively(&self, rng: &mut Rng) {
        let ops: Vec<Op> = (0..rng.usize(1..5)).map(|_| Op::random_read(rng)).collect();
        let (asks_first, pace, floor) = (rng.bool(), Pace::random(rng), self.floor());
        let outcome = self
            .db
            .with_error()
            .transact(async |tx| {
                let tx = Interactive::new(&tx, pace.clone());
                let mut saw = Vec::new();
                let number = if asks_first { Some(sql::last_number(&tx)?) } else { None };
                for op in &ops {
                    sql::run(&tx, op, 0, &mut saw)?;
                }
                let number = number.map_or_else(|| sql::last_number(&tx), Ok)?;
                Ok::<_, Error>((number, saw))
            })
            .wait();
        if outcome.is_ok() {
            self.interactive_reads.fetch_add(1, Ordering::Relaxed);
        }
        self.note_read(outcome, floor, ops);
    }

    /// The place of a transaction that was acknowledged; `None` when it is not there.
    fn number_of(&self, id: i64) -> Option<i64> {
        // From the end, where it is.
        let query = "SELECT n FROM done WHERE id = ?1 ORDER BY n DESC LIMIT 1";
        let look = |tx: &ReadTx<'_>| tx.query_row(query, [id], |row| row.get(0));
        loop {
            match self.db.read(look).wait() {
                Ok(number) => return Some(number),
                // Its snapshot stood in the way of the WAL.
                Err(error) if error.kind() == ErrorKind::Timeout => {}
                Err(error) => {
                    self.complain(format!("the number of {id}: {error}"));
                    return None;
                }
            }
        }
    }
}
