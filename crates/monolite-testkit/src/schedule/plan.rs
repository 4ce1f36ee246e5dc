//! What one checked transaction does, how it ends, and how its caller must be told.

use std::any::Any;
use std::time::Duration;

use fastrand::Rng;
use monolite::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

use super::sql::{self, Sql};
use crate::checkers::serial::Op;
use crate::clock::HandClock;

/// The time limit of a transaction, on a clock that only [`Ending::TimeLimit`] moves.
///
/// The turn of an interactive transaction is bounded by it as well, by the time of the machine.
pub const TIME_LIMIT: Duration = Duration::from_millis(50);

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// It returns `Ok`.
    Commits,
    /// It says `COMMIT` and `ROLLBACK`, is refused, does not care, and returns `Ok`.
    IgnoresRefusedCommit,
    /// It says `COMMIT`, and returns the refusal.
    NestedCommit,
    /// It says `ROLLBACK`, and returns the refusal.
    NestedRollback,
    /// It gives up after it wrote.
    OwnError,
    /// It gives up before it writes.
    OwnErrorBeforeWriting,
    /// A constraint refuses its last statement.
    Constraint,
    /// It panics.
    Panic,
    /// A statement `OR ROLLBACK` rolls the outer transaction back.
    OrRollback,
    /// The same, and it goes on as if nothing had happened.
    SwallowedRollback,
    /// A trigger says `RAISE(ROLLBACK)`.
    RaiseRollback,
    /// It leaves a deferred foreign key violated.
    DeferredKey,
    /// It takes too long.
    TimeLimit,
}

impl Ending {
    /// Every way to leave nothing behind.
    pub const FAILING: [Ending; 11] = [
        Ending::NestedCommit,
        Ending::NestedRollback,
        Ending::OwnError,
        Ending::OwnErrorBeforeWriting,
        Ending::Constraint,
        Ending::Panic,
        Ending::OrRollback,
        Ending::SwallowedRollback,
        Ending::RaiseRollback,
        Ending::DeferredKey,
        Ending::TimeLimit,
    ];

    /// Those that an interactive transaction can have: its time is not the writer's.
    pub const INTERACTIVE: [Ending; 10] = [
        Ending::NestedCommit,
        Ending::NestedRollback,
        Ending::OwnError,
        Ending::OwnErrorBeforeWriting,
        Ending::Constraint,
        Ending::Panic,
        Ending::OrRollback,
        Ending::SwallowedRollback,
        Ending::RaiseRollback,
        Ending::DeferredKey,
    ];

    /// Whether what it did must stay.
    pub fn commits(self) -> bool {
        matches!(self, Ending::Commits | Ending::IgnoresRefusedCommit)
    }

    /// One in `failing` fails, in one of these ways.
    fn among(endings: &[Ending], failing: u32, rng: &mut Rng) -> Ending {
        match rng.u32(..failing.max(1) * 4) {
            0..4 => endings[rng.usize(..endings.len())],
            4 => Ending::IgnoresRefusedCommit,
            _ => Ending::Commits,
        }
    }

    /// One in `failing` fails.
    pub fn random(failing: u32, rng: &mut Rng) -> Ending {
        Ending::among(&Ending::FAILING, failing, rng)
    }
}

/// What one transaction does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The client's name of it.
    pub id: i64,
    /// Its steps.
    pub ops: Vec<Op>,
    /// How it ends.
    pub ending: Ending,
}

/// What a transaction tells its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gave {
    /// Its place in the commit order.
    pub number: i64,
    /// What it saw.
    pub saw: Vec<i64>,
}

impl Gave {
    /// The number of a transaction that did not ask for it: it is looked up in the end.
    pub const LATER: i64 = 0;
}

/// Why a closure stopped.
#[derive(Debug)]
pub enum Stopped {
    /// Its plan said so.
    OnPurpose,
    /// The engine's error.
    Engine(Error),
}

/// The engine's errors reach a closure's own error type.
impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped::Engine(error)
    }
}

/// What a caller was told of its transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is committed.
    Committed(Gave),
    /// Its own closure gave up.
    GaveUp,
    /// It panicked with the payload of our panics.
    Panicked,
    /// The engine's error.
    Refused(ErrorKind, String),
    /// Nothing: the caller did not wait.
    Nothing,
}

const PANIC: &str = "a panic on purpose";

impl Plan {
    /// Any transaction; one in `failing` fails.
    pub fn random(id: i64, failing: u32, rng: &mut Rng) -> Plan {
        let ops = (0..rng.u8(1..5)).map(|_| Op::random(rng)).collect();
        Plan { id, ops, ending: Ending::random(failing, rng) }
    }

    /// Any interactive transaction; one in `failing` fails.
    pub fn random_interactive(id: i64, failing: u32, rng: &mut Rng) -> Plan {
        let ending = Ending::among(&Ending::INTERACTIVE, failing, rng);
        Plan { id, ops: Op::random_interactive(rng), ending }
    }

    /// Runs as a closure of the engine, or of what stands in for it.
    ///
    /// # Panics
    /// When its plan says so.
    pub fn run(&self, tx: &impl Sql, clock: &HandClock) -> Result<Gave, Stopped> {
        if self.ending == Ending::OwnErrorBeforeWriting {
            sql::last_number(tx)?;
            return Err(Stopped::OnPurpose);
        }
        let number = sql::number(tx, self.id)?;
        let mut saw = Vec::new();
        for op in &self.ops {
            sql::run(tx, op, self.id, &mut saw)?;
        }
        self.ending.act(tx, clock)?;
        Ok(Gave { number, saw })
    }

    /// Runs in an interactive transaction up to its commit, which decides about its number; tells
    /// what it saw.
    ///
    /// # Panics
    /// When its plan says so.
    pub fn interact(&self, tx: &impl Sql, clock: &HandClock) -> Result<Vec<i64>, Stopped> {
        let mut saw = Vec::new();
        self.interact_half(tx, Half::First, &mut saw)?;
        self.interact_half(tx, Half::Second, &mut saw)?;
        self.ending.act(tx, clock)?;
        Ok(saw)
    }

    /// The steps before, or after, the middle of an interactive transaction. Some enter themselves
    /// first, so that all that follows is theirs alone; others last, so that they only read until
    /// their first own write.
    pub fn interact_half(
        &self,
        tx: &impl Sql,
        half: Half,
        saw: &mut Vec<i64>,
    ) -> Result<(), Stopped> {
        let (before, after) = self.ops.split_at(self.ops.len() / 2);
        let is_entered_first = self.id % 2 == 0;
        if half == Half::First && self.ending == Ending::OwnErrorBeforeWriting {
            sql::last_number(tx)?;
            return Err(Stopped::OnPurpose);
        }
        if half == Half::First && is_entered_first {
            sql::enter(tx, self.id)?;
        }
        for op in if half == Half::First { before } else { after } {
            sql::run(tx, op, self.id, saw)?;
        }
        if half == Half::Second && !is_entered_first {
            sql::enter(tx, self.id)?;
        }
        Ok(())
    }
}

/// A part of an interactive transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Up to the middle.
    First,
    /// From there to the end.
    Second,
}

impl Ending {
    /// The last thing that a transaction does before it returns; `done` must not be empty.
    ///
    /// # Panics
    /// When it is the ending by panic.
    pub fn act(self, tx: &impl Sql, clock: &HandClock) -> Result<(), Stopped> {
        let rolls_back = "INSERT OR ROLLBACK INTO done VALUES (1, 0)";
        match self {
            Ending::Commits => {}
            Ending::OwnError | Ending::OwnErrorBeforeWriting => return Err(Stopped::OnPurpose),
            // Without the hook that would print each of thousands.
            Ending::Panic => std::panic::resume_unwind(Box::new(PANIC)),
            Ending::IgnoresRefusedCommit => {
                let said = [tx.say("COMMIT"), tx.say("ROLLBACK")];
                if said.iter().any(Result::is_ok) {
                    return Err(Error::aborted("COMMIT or ROLLBACK was not refused").into());
                }
            }
            Ending::SwallowedRollback => {
                let refused = tx.refuses_both(rolls_back, "INSERT INTO log(id) VALUES (-1)")?
                    && tx.change("INSERT INTO log(id) VALUES (-2)", &[]).is_err();
                if !refused {
                    return Err(Error::aborted("a lost transaction went on").into());
                }
            }
            Ending::TimeLimit => {
                clock.advance(TIME_LIMIT * 2);
                let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                               INSERT INTO log(id) SELECT i FROM n WHERE i < 0";
                tx.change(endless, &[])?;
            }
            Ending::NestedCommit => tx.say("COMMIT")?,
            Ending::NestedRollback => tx.say("ROLLBACK")?,
            Ending::Constraint => drop(tx.change("INSERT INTO done VALUES (1, 0)", &[])?),
            Ending::OrRollback => drop(tx.change(rolls_back, &[])?),
            Ending::RaiseRollback => drop(tx.change("INSERT INTO tripwire VALUES (1)", &[])?),
            Ending::DeferredKey => drop(tx.change("INSERT INTO debt VALUES (999)", &[])?),
        }
        Ok(())
    }
}

impl Told {
    /// What a waiting caller got: its result, or a panic.
    pub fn by(outcome: Result<Result<Gave, Stopped>, Box<dyn Any + Send>>) -> Told {
        match outcome {
            Ok(Ok(gave)) => Told::Committed(gave),
            Ok(Err(Stopped::OnPurpose)) => Told::GaveUp,
            Ok(Err(Stopped::Engine(error))) => Told::Refused(error.kind(), error.to_string()),
            Err(payload) if payload.downcast_ref::<&str>() == Some(&PANIC) => Told::Panicked,
            Err(payload) => {
                let said = payload.downcast_ref::<String>();
                Told::Refused(ErrorKind::Internal, format!("a panic not ours: {said:?}"))
            }
        }
    }
}

impl Ending {
    /// As [`Ending::judge`], of an interactive transaction: it says why it was rolled back, and a
    /// commit by hand may find a conflict.
    pub fn judge_interactive(self, told: &Told, may_conflict: bool) -> Result<(), String> {
        match told {
            Told::Refused(ErrorKind::Conflict, _) if may_conflict => Ok(()),
            Told::Refused(ErrorKind::Constraint, _) if self == Ending::SwallowedRollback => Ok(()),
            _ => self.judge(told),
        }
    }

    /// Whether a caller was told what it had to be told.
    pub fn judge(self, told: &Told) -> Result<(), String> {
        let expected = match self {
            Ending::Commits | Ending::IgnoresRefusedCommit => {
                return match told {
                    Told::Committed(_) => Ok(()),
                    _ => Err(format!("{self:?}: {told:?}")),
                };
            }
            Ending::OwnError | Ending::OwnErrorBeforeWriting if *told == Told::GaveUp => {
                return Ok(());
            }
            Ending::Panic if *told == Told::Panicked => return Ok(()),
            Ending::NestedCommit | Ending::NestedRollback => ErrorKind::Invalid,
            Ending::Constraint
            | Ending::OrRollback
            | Ending::RaiseRollback
            | Ending::DeferredKey => ErrorKind::Constraint,
            Ending::SwallowedRollback => ErrorKind::Aborted,
            Ending::TimeLimit => ErrorKind::Timeout,
            Ending::OwnError | Ending::OwnErrorBeforeWriting | Ending::Panic => {
                return Err(format!("{self:?}: {told:?}"));
            }
        };
        match told {
            Told::Refused(kind, _) if *kind == expected => Ok(()),
            _ => Err(format!("{self:?}: {told:?}")),
        }
    }
}
