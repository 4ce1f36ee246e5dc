//! Overload: ten times the load that the engine sustains, offered to a child in a memory cgroup
//! whose limit is the sum of what the options allow.
//!
//! # Algorithm
//! 1. The child ([`load`]) alternates rounds that keep the queue full, which gives the peak, and
//!    rounds that offer ten times as much through `try_write`.
//! 2. Its figures are judged: no kill, memory within the limit, goodput at least 80 % of the peak
//!    beside it in the median round (a machine can move by more than that from one second to the
//!    next), the 99th percentile of admitted latency within a bound, every refusal `Overloaded`,
//!    nothing acknowledged lost.
//! 3. Where the generators got too little of the machine to offer that load, its figures of speed
//!    say nothing of the engine and are not judged: that is reported as skipped. An engine that
//!    keeps them from offering, as its `try_write` waits, is found by the time that this takes.
//! 4. The control is the same engine with a queue that is as good as unbounded. It must break the
//!    limit.
//!
//! # The limit
//! [`LIMIT`] is [`PROGRAM`] + the page caches + [`IN_FLIGHT`] transactions of [`PAYLOAD`] bytes and
//! [`ENTRY`] bytes around each + twice the pages that a batch changes: once in the cache, which
//! grows until the batch is committed, and once as gathered WAL frames.
//!
//! # The bound on latency
//! An admitted transaction waits for at most [`IN_FLIGHT`] others, which takes as long as the
//! slowest round's goodput says, and a few times for the longest batch, sync and pause.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use monolite_testkit::child::Child;

use self::load::{Figures, TIMES};
use super::cgroup::Temporary;
use crate::{Amount, Check, Finding, Outcome, Setting};

mod load;

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "overload",
    about: "Offer ten times the load it can take, in limited memory, for T, e.g. 20s",
    unit: "seconds",
    amount: Amount::TimeIfSaid,
    modest: 20,
    total: |amount| amount,
    run,
    roles: &[("overload", load::measure), ("overload without a bound", load::flood)],
};

const MIB: u64 = 1 << 20;

/// Bytes that a transaction carries.
const PAYLOAD: usize = 1 << 10;

/// What else a waiting transaction takes: its box, its caller's half and their bookkeeping.
const ENTRY: u64 = 1 << 10;

const CAPACITY: usize = 2_048;
const MAX_BATCH: usize = 1_024;
const WRITER_CACHE: u64 = 8 * MIB;
const READER_CACHE: u64 = MIB;

/// On disk, so no part of the sum.
const WAL_LIMIT: u64 = 64 * MIB;

/// The checkpointer's, which no option sets.
const CHECKPOINT_CACHE: u64 = MIB / 4;

/// Most transactions in the engine's hands: waiting, taken by the writer, committed and unsynced,
/// and the batch that is handed over. The last two are [`CAPACITY`] and [`MAX_BATCH`] at most.
const IN_FLIGHT: u64 = 2 * (CAPACITY as u64 + MAX_BATCH as u64);

/// Pages that one transaction changes: its slot's leaf, the index above it, and a share of a split.
const PAGES: u64 = 3;

/// The program itself: its pages, SQLite, stacks, histograms.
const PROGRAM: u64 = 32 * MIB;

/// What the child may hold, in bytes.
const LIMIT: u64 = PROGRAM
    + WRITER_CACHE
    + READER_CACHE
    + CHECKPOINT_CACHE
    + IN_FLIGHT * (PAYLOAD as u64 + ENTRY)
    + 2 * MAX_BATCH as u64 * PAGES * 4_096;

/// The least goodput under overload, as a share of the peak.
const LEAST: f64 = 0.8;

/// The least offered load that counts as [`TIMES`] the peak; generators tick a little late.
const LEAST_OFFERED: f64 = 0.9;

/// The most that half of the offers may take, in nanoseconds: a hundred times what they do, and no
/// busy machine interrupts every second one.
const MAX_OFFER_NS: u64 = 100_000;

/// What the control says that could not offer its load, and broke no limit.
const NOT_OFFERED: &str = "not offered ";

/// Runs for about `seconds` and a few more for the control.
fn run(setting: &Setting<'_>, seconds: u64) -> Result<Outcome> {
    let mut outcome = CHECK.outcome();
    let cgroup = match Temporary::new(LIMIT) {
        Ok(cgroup) => Some(cgroup),
        Err(error) => {
            outcome.skipped.push(format!("the memory cgroup: {error:#}"));
            None
        }
    };
    let figures = measure(setting, seconds, cgroup.as_ref(), &mut outcome)?;
    let kills = cgroup.as_ref().map_or(0, |it| it.0.kills());
    let Some(figures) = figures else {
        if !setting.watch.is_stopped() {
            let how = if kills > 0 { "was killed as memory ran out" } else { "ended early" };
            outcome.anomalies += 1;
            finding(setting, seconds, &mut outcome, format!("the loaded process {how}"))?;
        }
        return Ok(outcome);
    };
    outcome.attempted = seconds;
    outcome.acknowledged = figures.acknowledged;
    outcome.lost = figures.lost;
    outcome.partial = figures.partial;
    let peak = cgroup.as_ref().map_or(0, |it| it.0.peak_bytes());
    drop(cgroup);
    notes(&figures, peak, &mut outcome);
    if !was_asked(&figures) {
        outcome.skipped.push(format!(
            "goodput and latency under the full load could not be asked: in one round only {:.1} \
             times the peak could be offered on this machine, which has too little time for it",
            figures.least_times
        ));
    }
    for what in judge(&figures) {
        outcome.anomalies += 1;
        finding(setting, seconds, &mut outcome, what)?;
    }
    control(setting, &figures, &mut outcome)?;
    Ok(outcome)
}

fn finding(setting: &Setting<'_>, seconds: u64, outcome: &mut Outcome, what: String) -> Result<()> {
    let seed = setting.case_seed(0);
    let evidence = setting.evidence(seed)?;
    std::fs::write(evidence.join("outcome.txt"), format!("{what}\n{outcome:#?}"))?;
    let reproduce = setting.reproduce(seconds, seed);
    outcome.found(Finding { what, evidence: Some(evidence), reproduce });
    Ok(())
}

/// The child's figures; `None` when it ended without any.
fn measure(
    setting: &Setting<'_>,
    seconds: u64,
    cgroup: Option<&Temporary>,
    outcome: &mut Outcome,
) -> Result<Option<Figures>> {
    let seconds_text = seconds.to_string();
    let variables = [("SECONDS", seconds_text.as_str())];
    let mut child = start(setting, "overload", "measured", cgroup, &variables)?;
    let (mut worked, mut told) = (0.0, 0);
    while let Some(line) = child.next_line() {
        if let Some(text) = line.strip_prefix("figures ") {
            let figures = serde_json::from_str(text).context("the child's figures")?;
            child.succeeds()?;
            return Ok(Some(figures));
        }
        if let Some(round) = line.strip_prefix("round ") {
            worked += round.parse().unwrap_or(0.0);
            let done = (worked as u64).min(seconds);
            setting.watch.done(done - told);
            told = done;
        }
        if let Some(error) = line.strip_prefix("failed ") {
            bail!("the loaded process: {error}");
        }
        if setting.watch.is_stopped() {
            outcome.skipped.push("all of it: stopped before it had its figures".into());
            break;
        }
    }
    Ok(None)
}

fn start(
    setting: &Setting<'_>,
    role: &str,
    name: &str,
    cgroup: Option<&Temporary>,
    more: &[(&str, &str)],
) -> Result<Child> {
    let file = setting.scratch().join(name);
    let text = |path: &Path| path.to_str().map(str::to_owned).context("the path is text");
    let file = text(&file)?;
    let cgroup = cgroup.map_or(Ok(String::new()), |it| text(it.0.path()))?;
    let limit = LIMIT.to_string();
    let mut variables = vec![("FILE", file.as_str()), ("CGROUP", &cgroup), ("LIMIT", &limit)];
    variables.extend(more);
    setting.program.spawn(role, &variables)
}

/// A queue without a bound must break the limit.
fn control(setting: &Setting<'_>, figures: &Figures, outcome: &mut Outcome) -> Result<()> {
    if setting.watch.is_stopped() {
        return Ok(());
    }
    let cgroup = Temporary::new(LIMIT).ok();
    let rate = ((figures.peak * TIMES as f64) as u64).to_string();
    let variables = [("RATE", rate.as_str())];
    let role = "overload without a bound";
    let mut child = start(setting, role, "flooded", cgroup.as_ref(), &variables)?;
    let mut said = None;
    while let Some(line) = child.next_line() {
        said = Some(line).filter(|line| !line.is_empty()).or(said);
    }
    child.kill()?;
    let killed = cgroup.as_ref().is_some_and(|it| it.0.kills() > 0);
    let says = |word: &str| said.as_ref().is_some_and(|line| line.starts_with(word));
    let exceeded = says("exceeded ");
    let name = "an unbounded queue breaks the memory limit";
    if says(NOT_OFFERED) && !killed {
        outcome.skipped.push(format!(
            "the control could not be asked whether {name}: the load could not be offered"
        ));
        return Ok(());
    }
    let how = match (killed, said) {
        (true, _) => "the kernel killed it in its cgroup".to_owned(),
        (false, Some(line)) => format!("it said: {line} bytes"),
        (false, None) => "it ended and said nothing".to_owned(),
    };
    outcome.control(name, killed || exceeded, how);
    Ok(())
}

/// The most that the 99th percentile of admitted latency may be, in nanoseconds.
fn latency_bound_ns(figures: &Figures) -> f64 {
    let wait = IN_FLIGHT as f64 / figures.slowest.max(1.0) * 1e9;
    wait + 4.0 * figures.longest_ns as f64
}

/// Whether the load was offered, in each round.
fn was_asked(figures: &Figures) -> bool {
    figures.least_times >= TIMES as f64 * LEAST_OFFERED
}

/// What the figures say against the promise.
fn judge(figures: &Figures) -> Vec<String> {
    let mut found = if was_asked(figures) { judge_speed(figures) } else { Vec::new() };
    let held = figures.high_water_bytes.max(figures.anonymous_bytes);
    if held > LIMIT {
        found.push(format!("{held} bytes of memory were held, the options allow {LIMIT}"));
    }
    if figures.offer_ns > MAX_OFFER_NS {
        found.push(format!("half of the offers took {} ns and more each", figures.offer_ns));
    }
    if figures.wrong > 0 {
        let first = figures.first_wrong.as_deref().unwrap_or("not answered");
        found.push(format!("{} offers got a wrong answer, first: {first}", figures.wrong));
    }
    if figures.lost + figures.partial > 0 {
        found.push(format!(
            "{} acknowledged transactions were lost, {} found in part",
            figures.lost, figures.partial
        ));
    }
    found
}

/// As [`judge`], of what only the full load shows.
fn judge_speed(figures: &Figures) -> Vec<String> {
    let mut found = Vec::new();
    if figures.share < LEAST {
        found.push(format!(
            "goodput fell to {:.0} % of the peak ({:.0} of {:.0} transactions a second)",
            figures.share * 100.0,
            figures.goodput,
            figures.peak
        ));
    }
    let bound = latency_bound_ns(figures);
    if figures.p99_ns as f64 > bound {
        found.push(format!(
            "the 99th percentile of admitted latency was {:.1} ms, its bound is {:.1} ms",
            figures.p99_ns as f64 / 1e6,
            bound / 1e6
        ));
    }
    if figures.refused == 0 {
        found.push("nothing was refused: there was no overload".into());
    }
    found
}

fn notes(figures: &Figures, peak_bytes: u64, outcome: &mut Outcome) {
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    let ms = |ns: f64| ns / 1e6;
    outcome.notes.push(format!(
        "peak {:.0}/s, goodput {:.0}/s ({:.0} %) with {:.0}/s offered ({:.1} times), {} refused, \
         {} ns a refusal",
        figures.peak,
        figures.goodput,
        figures.share * 100.0,
        figures.offered,
        figures.offered / figures.peak.max(1.0),
        figures.refused,
        figures.refusal_ns
    ));
    outcome.notes.push(format!(
        "admitted latency p50 {:.1} ms, p99 {:.1} ms (bound {:.1} ms)",
        ms(figures.p50_ns as f64),
        ms(figures.p99_ns as f64),
        ms(latency_bound_ns(figures))
    ));
    outcome.notes.push(format!(
        "memory {:.0} MiB (VmHWM) of {:.0} MiB; cgroup {:.0} MiB without page cache, {:.0} MiB \
         with it",
        mib(figures.high_water_bytes),
        mib(LIMIT),
        mib(figures.anonymous_bytes),
        mib(peak_bytes)
    ));
}

#[cfg(test)]
mod tests;
