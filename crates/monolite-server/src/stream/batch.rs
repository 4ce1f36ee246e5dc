//! Owns batches: several statements in one request, each with a condition.
//!
//! # Algorithm
//! The steps run one after the other. Outside of a transaction, though, those that are next to each
//! other are tried as one closure of the engine: one commit and one sync in place of many, and for
//! a whole transaction neither replay nor conflict. There are two such pieces:
//! - statements without `BEGIN`: each is atomic by itself, a failure stays in its step, and to run
//!   next to each other is an order that autocommit allows;
//! - from `BEGIN` to `COMMIT`, with a `ROLLBACK` behind it.
//!
//! Neither goes across a pragma of foreign keys.
//!
//! Where the closure cannot do what the steps would have done (a deferred foreign key, a statement
//! that rolls back, a transaction left open), it changes nothing, and the steps of the piece run
//! one after the other.
//!
//! # Invariants
//! - A piece gives the same answers in a closure and step by step.
//! - A piece of which it is not known whether it was committed is not run again.

use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use monolite::{Error, ErrorKind, ReadTx, Tx};

use super::keyed::{Outcome, may_be_committed};
use super::{Answer, Last, Prepared, Reading, Stored, Stream, nothing, prepare, run, told};
use crate::control::Control;
use crate::errors::{protocol_error, sqlite_error};
use crate::hrana::{Batch, BatchResult, Condition, Encoding, ProtocolError, Step, Stmt};

/// A step that is ready to run.
struct ReadyStep {
    condition: Option<Condition>,
    what: Result<Arc<Prepared>, ProtocolError>,
}

impl ReadyStep {
    fn is_due(&self, succeeded: &[bool], is_autocommit: bool) -> bool {
        self.condition.as_ref().is_none_or(|condition| condition.holds(succeeded, is_autocommit))
    }

    fn control(&self) -> Option<&Control> {
        self.what.as_ref().ok()?.control.as_ref()
    }

    fn is_plain(&self) -> bool {
        self.what.as_ref().is_ok_and(|what| what.control.is_none())
    }
}

impl Stream {
    pub(super) async fn batch(
        &mut self,
        batch: Batch,
        stored: &Stored,
        encoding: Encoding,
        answer: &Answer,
    ) -> Result<BatchResult, ProtocolError> {
        let ready = |Step { condition, stmt }| ReadyStep {
            condition,
            what: prepare(stmt, stored, encoding, answer).map(Arc::new),
        };
        let steps: Arc<[ReadyStep]> = batch.steps.into_iter().map(ready).collect();
        let outcomes = self.steps(&steps, answer).await;
        let mut result = BatchResult { step_results: Vec::new(), step_errors: Vec::new() };
        for outcome in outcomes {
            let (done, failed) = match outcome {
                Outcome::Skipped => (None, None),
                Outcome::Done(done) => (Some(done), None),
                Outcome::Failed(error) => (None, Some(self.explained(error))),
            };
            result.step_results.push(done);
            result.step_errors.push(failed);
        }
        Ok(result)
    }

    /// Runs the statements of a script up to the first that fails.
    pub(super) async fn sequence(
        &mut self,
        script: &str,
        answer: &Answer,
    ) -> Result<(), ProtocolError> {
        let step = |(number, sql): (usize, &str)| {
            let before = number.checked_sub(1).map(|before| Condition::Ok(before as u32));
            let sql = Some(sql.to_owned());
            let (args, named_args) = (Vec::new(), Vec::new());
            let stmt = Stmt { sql, sql_id: None, args, named_args, want_rows: false };
            let stored = Stored::default();
            let what = prepare(stmt, &stored, Encoding::Json, answer).map(Arc::new);
            ReadyStep { condition: before, what }
        };
        let steps: Arc<[ReadyStep]> = monolite::statements(script).enumerate().map(step).collect();
        let outcomes = self.steps(&steps, answer).await;
        let failed = outcomes.into_iter().find_map(|outcome| match outcome {
            Outcome::Failed(error) => Some(error),
            _ => None,
        });
        failed.map_or(Ok(()), Err)
    }

    async fn steps(&mut self, steps: &Arc<[ReadyStep]>, answer: &Answer) -> Vec<Outcome> {
        let mut succeeded: Vec<bool> = Vec::with_capacity(steps.len());
        // Of the batch that this one repeats.
        succeeded.extend(self.record.steps.iter().map(Outcome::is_done));
        // No piece is tried before here.
        let mut one_by_one_up_to = 0;
        while let Some(step) = steps.get(succeeded.len()) {
            let at = succeeded.len();
            if at >= one_by_one_up_to
                && self.is_autocommit()
                && let Some(end) = piece(steps, at)
            {
                let before = answer.bytes();
                if let Some(done) = self.together(steps, at, end, &succeeded, answer).await {
                    succeeded.extend(done.iter().map(Outcome::is_done));
                    self.last = last_behind(&steps[at..end], &done, self.last);
                    self.record.steps.extend(done);
                    continue;
                }
                answer.set_back(before);
                one_by_one_up_to = end;
            }
            let outcome = self.step(step, &succeeded).await;
            succeeded.push(outcome.is_done());
            self.record.steps.push(outcome);
        }
        take(&mut self.record.steps)
    }

    async fn step(&mut self, step: &ReadyStep, succeeded: &[bool]) -> Outcome {
        if !step.is_due(succeeded, self.is_autocommit()) {
            return Outcome::Skipped;
        }
        Outcome::of(match &step.what {
            Ok(what) => self.execute(Arc::clone(what)).await,
            Err(error) => Err(error.clone()),
        })
    }

    /// Runs the piece from `at` to `end` in one closure; `None` if nothing was changed and it has
    /// to run step by step.
    async fn together(
        &mut self,
        steps: &Arc<[ReadyStep]>,
        at: usize,
        end: usize,
        succeeded: &[bool],
        answer: &Answer,
    ) -> Option<Vec<Outcome>> {
        let all = &steps[at..end];
        let only_reads = |step: &ReadyStep| {
            step.control().is_some()
                || step.what.as_ref().is_ok_and(|what| Reading::of(&what.sql) == Reading::Yes)
        };
        let reads = self.refusal.is_some() || all.iter().all(only_reads);
        let keyed = if reads { None } else { self.keyed().ok()? };
        let (is_keyed, known, last) = (keyed.is_some(), succeeded.to_vec(), self.last);
        let left = Arc::new(Mutex::new(None));
        let (of_piece, answer) = (Arc::clone(steps), (answer.clone(), answer.bytes()));
        let piece =
            Piece { steps: of_piece, at, end, known, answer, last, left: Arc::clone(&left) };
        let ended = if reads {
            self.db.read_durable(move |tx| piece.run(tx)).await
        } else {
            let (steps, left) = (Arc::clone(steps), Arc::clone(&left));
            let answered = move |(): &()| {
                let left: MutexGuard<'_, Option<Left>> = lock(&left);
                let outcomes = left.as_ref().map_or_else(Vec::new, |left| left.outcomes.clone());
                let last = last_behind(&steps[at..end], &outcomes, last);
                (outcomes, last)
            };
            self.write(keyed, move |tx: &Tx<'_>| piece.run(tx), answered).await
        };
        let left = lock(&left).take();
        match ended {
            Ok(()) => Some(left.expect("a piece that ends well leaves its outcomes").outcomes),
            // It has undone its own changes, as it was asked to.
            Err(_) if left.as_ref().is_some_and(|left| left.is_rolled_back) => {
                left.map(|left| left.outcomes)
            }
            Err(error) => failed(all, left, &error, is_keyed),
        }
    }
}

fn lock<T>(left: &Mutex<T>) -> MutexGuard<'_, T> {
    left.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The outcomes of a piece whose closure or commit has failed with `error`; `None` if the steps can
/// run one by one instead. With a key, statements without `BEGIN` cannot: each would be a commit.
fn failed(
    steps: &[ReadyStep],
    left: Option<Left>,
    error: &Error,
    is_keyed: bool,
) -> Option<Vec<Outcome>> {
    let is_transaction = steps.first().is_some_and(|step| step.control().is_some());
    let is_of_steps = matches!(error.kind(), ErrorKind::Constraint | ErrorKind::Aborted);
    let can_be_split = if is_transaction { is_of_steps } else { !is_keyed };
    if can_be_split && !may_be_committed(error) {
        return None;
    }
    let mut outcomes = left.map_or_else(Vec::new, |left| left.outcomes);
    let error = || Outcome::Failed(protocol_error(error));
    if is_transaction {
        let commits = |step: &ReadyStep| step.control() == Some(&Control::Commit);
        let commit = steps.iter().position(commits).unwrap_or(0);
        outcomes.truncate(commit);
        outcomes.push(error());
    } else {
        outcomes.iter_mut().for_each(|outcome| *outcome = error());
        if outcomes.is_empty() {
            outcomes.push(error());
        }
    }
    outcomes.resize_with(steps.len(), || Outcome::Skipped);
    Some(outcomes)
}

/// What the steps with these outcomes leave.
fn last_behind(steps: &[ReadyStep], outcomes: &[Outcome], last: Last) -> Last {
    steps.iter().zip(outcomes).fold(last, |last, step| match step {
        (ReadyStep { what: Ok(what), .. }, Outcome::Done(result)) if what.control.is_none() => {
            last.behind(what, result)
        }
        _ => last,
    })
}

/// Where the piece that begins with the step `at` ends, if it has two steps or more.
fn piece(steps: &[ReadyStep], at: usize) -> Option<usize> {
    let plain_from = |from: usize| {
        steps[from..].iter().position(|step| !step.is_plain()).map_or(steps.len(), |n| from + n)
    };
    let end = match steps[at].control() {
        Some(Control::Begin { is_read_only: false }) => {
            let commit = plain_from(at + 1);
            if steps.get(commit)?.control() != Some(&Control::Commit) {
                return None;
            }
            let is_rollback = |step: &ReadyStep| step.control() == Some(&Control::Rollback);
            let behind = steps[commit + 1..].iter().take_while(|step| is_rollback(step)).count();
            commit + 1 + behind
        }
        _ => plain_from(at),
    };
    (end >= at + 2).then_some(end)
}

/// Some steps of a batch, as a closure runs them.
struct Piece {
    steps: Arc<[ReadyStep]>,
    at: usize,
    end: usize,
    /// Which steps before were done.
    known: Vec<bool>,
    /// The answer that it is a part of, and how much was in it before.
    answer: (Answer, usize),
    last: Last,
    left: Arc<Mutex<Option<Left>>>,
}

/// What a run of a piece leaves, also when it changes nothing.
struct Left {
    /// Up to the step at which the closure gave up, if it did.
    outcomes: Vec<Outcome>,
    is_rolled_back: bool,
}

impl Piece {
    /// Runs the steps; an error has the engine undo them.
    fn run(&self, tx: &ReadTx<'_>) -> monolite::Result<()> {
        *lock(&self.left) = None;
        self.answer.0.set_back(self.answer.1);
        let mut running = Running { tx, is_open: false, is_rolled_back: false, last: self.last };
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(self.end - self.at);
        let mut succeeded = self.known.clone();
        for step in &self.steps[self.at..self.end] {
            let is_due = step.is_due(&succeeded, !running.is_open);
            let outcome = match is_due.then(|| running.step(step)).transpose() {
                Ok(outcome) => outcome.unwrap_or(Outcome::Skipped),
                Err(error) => {
                    self.leave(outcomes, false);
                    return Err(error);
                }
            };
            if !running.is_open && tx.has_deferred_violation() {
                // In autocommit the step would have failed; a later one may hide that.
                return Err(Error::aborted("a step violates a deferred foreign key"));
            }
            succeeded.push(outcome.is_done());
            outcomes.push(outcome);
        }
        if running.is_open {
            return Err(Error::aborted("the batch leaves its transaction open"));
        }
        let is_rolled_back = running.is_rolled_back;
        self.leave(outcomes, is_rolled_back);
        if is_rolled_back { Err(Error::aborted("the batch rolls back")) } else { Ok(()) }
    }
}

impl Piece {
    fn leave(&self, outcomes: Vec<Outcome>, is_rolled_back: bool) {
        let left = Left { outcomes, is_rolled_back };
        *lock(&self.left) = Some(left);
    }
}

struct Running<'t, 'c> {
    tx: &'t ReadTx<'c>,
    is_open: bool,
    is_rolled_back: bool,
    last: Last,
}

impl Running<'_, '_> {
    /// An error has the whole piece undone.
    fn step(&mut self, step: &ReadyStep) -> monolite::Result<Outcome> {
        let what = match &step.what {
            Ok(what) => what,
            Err(error) => return Ok(Outcome::Failed(error.clone())),
        };
        let began = Instant::now();
        let done = match &what.control {
            None => match run(self.tx, what, self.last) {
                Ok(result) => {
                    self.last = self.last.behind(what, &result);
                    return Ok(Outcome::Done(result));
                }
                Err(error) => return told(error).map(Outcome::Failed),
            },
            Some(Control::Begin { .. }) => {
                self.is_open = true;
                Ok(())
            }
            Some(Control::Commit) => self.end("commit"),
            Some(Control::Rollback) => {
                let ended = self.end("rollback");
                self.is_rolled_back |= ended.is_ok();
                ended
            }
            Some(_) => unreachable!("a piece has no other control"),
        };
        Ok(match done {
            Ok(()) => Outcome::Done(nothing(what.encoding, began)),
            Err(error) => Outcome::Failed(error),
        })
    }

    fn end(&mut self, what: &str) -> Result<(), ProtocolError> {
        if !self.is_open {
            return Err(sqlite_error(&format!("cannot {what} - no transaction is active")));
        }
        self.is_open = false;
        Ok(())
    }
}
