//! Runs the candidates of a group in turn, round after round, and checks what they did.
//!
//! # Algorithm
//! 1. Draw the round's transfers; every candidate gets the same ones.
//! 2. Run each candidate once: A B C; before each, the file system is synced, so that none waits
//!    for what another one left unwritten. The first round is a third as long and is dropped.
//! 3. After each, book what it acknowledged in the ledger; after its last round, compare every
//!    touched account with what it must be.
//! 4. Repeat for each counted round: A B C A B C. Report median, smallest and largest. There are
//!    fewer rounds where the budget is short ([`crate::plan`]).
//! 5. Compare the sum over all accounts with what it must be: a full scan, once a group.
//!
//! # Not here
//! Which candidates there are: [`crate::tps`].

use crate::dataset::Dataset;
use crate::drivers::contention::Contention;
use crate::drivers::traffic::Traffic;
use crate::drivers::{Absent, Candidate, Outcome, Profile, Round, Store, Work};
use crate::ledger::Ledger;
use crate::machine::{self, CpuTime, Processes};
use crate::plan::{Pace, Planned};
use crate::progress::{Interrupt, Progress};
use crate::report::record::{Cell, Measurement, RoundFigures, Verification};
use crate::statistics::{Latencies, Spread};
use crate::workload::{Draw, Transfer, draw_transfers};
use anyhow::{Context, Result, ensure};
use std::time::Instant;

/// Share of its length that the dropped first round has.
pub const DROPPED_SHARE: f64 = 1.0 / 3.0;

/// From this many accounts on, the sum is taken once at the end and not after each group: a full
/// scan of a billion accounts takes minutes.
const SUM_PER_GROUP_BELOW_ROWS: u64 = 100_000_000;

/// What a run of groups shares.
pub struct Bench<'a> {
    /// The loaded accounts.
    pub dataset: &'a Dataset,
    pub draw: Draw,
    pub rounds: usize,
    /// Transfers at most that warm the caches of a candidate.
    pub warm_up_transfers: usize,
    pub progress: &'a dyn Progress,
    /// Checked between rounds and within them.
    pub interrupt: &'a Interrupt,
    /// Expected balances so far.
    pub ledger: Ledger,
    /// Checks made so far.
    pub verifications: Vec<Verification>,
    /// What candidates are for.
    pub purpose: Purpose,
}

/// Candidates in turn, round after round: A B C A B C.
pub struct Turns<'t> {
    /// Decides how many rounds there is time for.
    pub pace: &'t mut Pace,
    pub planned: &'t [Planned],
    /// Counted rounds, where there is time.
    pub wanted: usize,
    pub progress: &'t dyn Progress,
}

impl Turns<'_> {
    /// Returns the counted rounds of each candidate, or why it is absent. `run` gets a round's
    /// number, 0 for the one that is dropped, the candidate's, and the number of the last round.
    pub fn run(
        &mut self,
        name: impl Fn(usize, usize) -> String,
        mut run: impl FnMut(usize, usize, usize) -> Result<Round>,
    ) -> Result<Vec<Result<Vec<Round>, Absent>>> {
        let candidates = self.planned.len();
        let rounds = self.pace.begin_group(self.planned, self.wanted, Instant::now());
        let mut outcomes: Vec<Result<Vec<Round>, Absent>> = vec![Ok(Vec::new()); candidates];
        for number in 0..=rounds {
            for (position, planned) in self.planned.iter().enumerate() {
                let Ok(counted) = &mut outcomes[position] else { continue };
                let steps = ((rounds + 1) * candidates) as u64;
                self.progress.begin(&name(number, position), Some(steps));
                self.progress.advance_to((number * candidates + position) as u64);
                let begin = Instant::now();
                match run(number, position, rounds) {
                    Ok(round) if number > 0 => counted.push(round),
                    Ok(_) => {}
                    Err(error) => outcomes[position] = Err(error.downcast::<Absent>()?),
                }
                self.pace.finish_round(planned, number == 0, begin.elapsed());
                self.progress.time_left(self.pace.time_left(self.wanted));
            }
        }
        Ok(outcomes)
    }
}

/// The cell of a candidate with these rounds.
pub fn outcome_cell(profile: &Profile, outcome: Result<Vec<Round>, Absent>) -> Cell {
    match outcome {
        Ok(rounds) => cell(profile, &rounds),
        Err(Absent(reason)) => Cell::missing(profile, &reason),
    }
}

/// What a pass over all groups is for.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// To know what there would be to measure: nothing runs, and no cells come back.
    Plan(Vec<Planned>),
    /// To measure it.
    Measure(Pace),
}

impl Bench<'_> {
    /// Measures a group of candidates, `transfers` drawn for each round, and verifies their work.
    pub fn interleave(
        &mut self,
        group: &str,
        transfers: usize,
        candidates: Vec<Candidate<'_>>,
    ) -> Result<Vec<Cell>> {
        let planned: Vec<Planned> = candidates.iter().map(|c| Planned::of(&c.profile)).collect();
        let mut pace = match &mut self.purpose {
            Purpose::Plan(plan) => {
                plan.extend(planned);
                return Ok(Vec::new());
            }
            Purpose::Measure(pace) => pace.clone(),
        };
        let (progress, rounds) = (self.progress, self.rounds);
        let mut drawn = (usize::MAX, Vec::new());
        let mut turns = Turns { pace: &mut pace, planned: &planned, wanted: rounds, progress };
        let outcomes = turns.run(
            |number, position| {
                let name = &candidates[position].profile.name;
                format!("{group}, {}: {name}", round_name(number))
            },
            |number, position, rounds| {
                let candidate = &candidates[position];
                if drawn.0 != number {
                    drawn = (number, draw_transfers(&self.draw, seed(group, number), transfers));
                }
                let round = self.round(candidate, &drawn.1, number)?;
                if number == rounds && candidate.profile.store == Store::Dataset {
                    self.verify(&candidate.profile.id)?;
                }
                Ok(round)
            },
        )?;
        progress.finish();
        let begin = Instant::now();
        let local = candidates.iter().any(|candidate| candidate.profile.store == Store::Dataset);
        if local && self.dataset.identity.rows < SUM_PER_GROUP_BELOW_ROWS {
            self.check_sum(&format!("all of {group}"))?;
        }
        pace.spend(begin.elapsed());
        self.purpose = Purpose::Measure(pace);
        let profiles = candidates.iter().map(|candidate| &candidate.profile);
        Ok(profiles
            .zip(outcomes)
            .map(|(profile, outcome)| outcome_cell(profile, outcome))
            .collect())
    }

    /// Makes the checks that are left to the end.
    pub fn finish(&mut self) -> Result<()> {
        if self.dataset.identity.rows < SUM_PER_GROUP_BELOW_ROWS {
            return Ok(());
        }
        self.progress.begin("summing all balances", None);
        self.check_sum("the whole run")
    }

    fn round(
        &mut self,
        candidate: &Candidate<'_>,
        drawn: &[Transfer],
        number: usize,
    ) -> Result<Round> {
        let profile = &candidate.profile;
        let local = profile.store == Store::Dataset;
        if local {
            self.ledger.learn(&self.dataset.path, drawn)?;
        }
        machine::settle(&self.dataset.path)?;
        let share = if number == 0 { DROPPED_SHARE } else { 1.0 };
        let work = Work {
            transfers: drawn,
            share,
            warm_up_transfers: self.warm_up_transfers,
            interrupt: self.interrupt,
        };
        let outcome = candidate.run(&work).map_err(|error| match error.is::<Absent>() {
            true => error,
            false => error.context(format!("{} failed", profile.id)),
        })?;
        self.interrupt.check()?;
        if local {
            self.book(&work, &outcome, |index| profile.fails(index));
        }
        let due = (0..outcome.round.taken).filter(|&index| profile.fails(index)).count() as u64;
        ensure!(
            outcome.round.failed == due,
            "{}: {} transactions failed where {due} had to",
            profile.id,
            outcome.round.failed
        );
        Ok(outcome.round)
    }

    fn book(&mut self, work: &Work<'_>, outcome: &Outcome, fails: impl Fn(u64) -> bool) {
        let warmed = work.warm_up().iter().take(outcome.warmed as usize);
        warmed.for_each(|transfer| self.ledger.book(transfer));
        for index in (0..outcome.round.taken).filter(|&index| !fails(index)) {
            self.ledger.book(&work.transfer(index));
        }
    }

    fn verify(&mut self, id: &str) -> Result<()> {
        let accounts = self.ledger.verify(&self.dataset.path).with_context(|| id.to_owned())?;
        self.verifications.push(Verification {
            after: id.to_owned(),
            check: "every touched account has the balance its acknowledged transfers add up to"
                .into(),
            accounts,
        });
        Ok(())
    }

    fn check_sum(&mut self, after: &str) -> Result<()> {
        let (found, expected) = (self.dataset.total()?, self.dataset.expected_total());
        ensure!(found == expected, "{after}: money was lost or invented: {found} != {expected}");
        self.verifications.push(Verification {
            after: after.to_owned(),
            check: format!("sum of all balances is {expected}, as loaded"),
            accounts: self.dataset.identity.rows,
        });
        Ok(())
    }
}

fn round_name(number: usize) -> String {
    if number == 0 { "warm-up round".into() } else { format!("round {number}") }
}

/// Gives each group and round its own work, the same in every run (FNV-1a).
fn seed(group: &str, number: usize) -> u64 {
    let hash = group.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.wrapping_add(number as u64)
}

/// What there is to know of each round, by its place; nothing at all when there is nothing of any.
fn notes(rounds: &[Round]) -> Vec<String> {
    if rounds.iter().all(|round| round.note.is_none()) {
        return Vec::new();
    }
    rounds.iter().map(|round| round.note.clone().unwrap_or_default()).collect()
}

/// Sums up the counted rounds of a candidate.
fn cell(profile: &Profile, rounds: &[Round]) -> Cell {
    let mut latencies = Latencies::default();
    rounds.iter().for_each(|round| latencies.merge(&round.latencies));
    let mut contention = Contention::default();
    rounds.iter().for_each(|round| contention.add(&round.contention));
    let cpu = rounds.iter().filter_map(|round| round.cpu).reduce(CpuTime::plus);
    let figures: Vec<RoundFigures> = rounds.iter().map(RoundFigures::of).collect();
    let measurement = Measurement {
        per_second: Spread::of(figures.iter().map(|round| round.per_second)),
        reads_per_second: Spread::of(figures.iter().map(|round| round.reads_per_second)),
        latency: latencies.percentiles(),
        failed: rounds.iter().map(|round| round.failed).sum(),
        retries: rounds.iter().map(|round| round.retries).sum(),
        wal_bytes_max: rounds.iter().map(|round| round.wal_bytes_max).max().unwrap_or(0),
        checkpoints: rounds.iter().map(|round| round.checkpoints).sum(),
        contention,
        unchanged_share: contention.unchanged_share(),
        cpu,
        processes: rounds.iter().filter_map(|round| round.processes).reduce(Processes::plus),
        traffic: rounds.iter().filter_map(|round| round.traffic).reduce(Traffic::plus),
        wal: rounds.last().map(|round| round.wal.clone()).unwrap_or_default(),
        notes: notes(rounds),
        rounds: figures,
    };
    Cell::measured(profile, measurement)
}
