//! The alarms of `docs/guides/monitoring.md`: they fire and end as the page says.
//!
//! A database lives through an hour in which each cause comes and goes. The rules are read from the
//! page, and judged by the text that Prometheus would read; the function of the page judges the
//! same readings.
//!
//! # Not here
//! The whole of PromQL: only what the rules use. `increase` does not extrapolate, which does not
//! matter to a comparison with zero.

mod alarms;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use monolite::archive::ArchiveStats;
use monolite::{Options, Stats, prometheus};
use monolite_testkit::clock::HandClock;
use monolite_testkit::storage::{Disk, Operation, RealSyncs};
use prometheus_parse::{HistogramCount, Scrape, Value};

use self::alarms::alarms;

const PAGE: &str = include_str!("../../../../docs/guides/monitoring.md");

/// How often figures are read, and how many times in an hour.
const READING: Duration = Duration::from_secs(30);
const READINGS: usize = 120;

/// How many readings the page's five minutes are.
const WINDOW: usize = 10;

/// In which readings each cause is there.
const CAUSES: [(&str, Range<usize>); 10] = [
    ("ClosureStuck", 15..16),
    ("WriterHeld", 17..20),
    ("WalFull", 20..35),
    ("ReadsRevoked", 30..31),
    ("SyncsSlow", 45..55),
    ("QueueLong", 50..52),
    ("TransactionsLeftOpen", 60..80),
    ("ArchiveBehind", 65..75),
    ("ArchiveNotRestorable", 70..95),
    ("ArchiveFailing", 75..100),
];

fn is_caused(alarm: &str, reading: usize) -> bool {
    CAUSES.iter().any(|(name, when)| *name == alarm && when.contains(&reading))
}

/// A rule of the page.
struct Rule {
    alarm: &'static str,
    expr: &'static str,
    /// How many readings it has to be true for before it fires.
    patience: usize,
}

fn rules() -> Vec<Rule> {
    let yaml = PAGE.split_once("```yaml\n").unwrap().1.split_once("```").unwrap().0;
    let rule = |text: &'static str| {
        let mut lines = text.trim().lines().map(str::trim);
        let alarm = lines.next().unwrap();
        let expr = lines.next().unwrap().strip_prefix("expr: ").unwrap();
        let patience = lines.next().map_or(0, |line| readings(line.strip_prefix("for: ").unwrap()));
        Rule { alarm, expr, patience }
    };
    yaml.split("- alert: ").skip(1).map(rule).collect()
}

/// How many readings are in a time of whole minutes.
fn readings(text: &str) -> usize {
    let minutes: u64 = text.strip_suffix('m').unwrap().parse().unwrap();
    (minutes * 60 / READING.as_secs()) as usize
}

/// What was read, oldest first.
#[derive(Default)]
struct History(Vec<Scrape>);

impl History {
    fn read(&mut self, text: &str) {
        let lines = text.lines().map(|line| Ok(line.to_owned()));
        self.0.push(Scrape::parse(lines).unwrap());
    }

    /// The oldest and the newest value of a figure in the window of a name like `name[5m]`.
    fn ends(&self, name: &str) -> [&Value; 2] {
        let (name, window) = match name.split_once('[') {
            Some((name, window)) => (name, readings(window.strip_suffix(']').unwrap())),
            None => (name, 1),
        };
        let window = &self.0[self.0.len().saturating_sub(window)..];
        [&window[0], window.last().unwrap()].map(|scrape| {
            let found = scrape.samples.iter().find(|sample| sample.metric == name);
            &found.unwrap_or_else(|| panic!("{name} is not in the text")).value
        })
    }

    /// Whether an expression in the words of the page is true now.
    fn is_true(&self, expr: &str) -> bool {
        let (left, comparison, right) = match *expr.rsplitn(3, ' ').collect::<Vec<_>>() {
            [right, comparison, left] => (left, comparison, right.parse::<f64>().unwrap()),
            _ => panic!("{expr} is no comparison"),
        };
        let within = |name: &'static str, end| left.strip_prefix(name)?.strip_suffix(end);
        let value = if let Some(name) = within("increase(", ")") {
            let [oldest, newest] = self.ends(name).map(number);
            newest - oldest
        } else if let Some(inner) = within("histogram_quantile(", "))") {
            let (q, name) = inner.split_once(", rate(").unwrap();
            let [oldest, newest] = self.ends(&name.replace("_bucket[", "[")).map(buckets);
            quantile(q.parse().unwrap(), oldest, newest)
        } else {
            number(self.ends(left)[1])
        };
        match comparison {
            ">" => value > right,
            "==" => value == right,
            _ => panic!("{comparison} is not known here"),
        }
    }
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Counter(number) | Value::Gauge(number) => *number,
        _ => panic!("{value:?} is no number"),
    }
}

fn buckets(value: &Value) -> &[HistogramCount] {
    let Value::Histogram(buckets) = value else { panic!("{value:?} is no histogram") };
    buckets
}

/// `histogram_quantile` of PromQL.
fn quantile(q: f64, oldest: &[HistogramCount], newest: &[HistogramCount]) -> f64 {
    let counts: Vec<f64> =
        newest.iter().zip(oldest).map(|(newest, oldest)| newest.count - oldest.count).collect();
    let rank = q * counts.last().unwrap();
    let at = counts.iter().position(|count| *count >= rank && *count > 0.0);
    let Some(at) = at else { return f64::NAN };
    let (lower, before) =
        if at == 0 { (0.0, 0.0) } else { (newest[at - 1].less_than, counts[at - 1]) };
    if at + 1 == counts.len() {
        return lower;
    }
    lower + (newest[at].less_than - lower) * (rank - before) / (counts[at] - before)
}

/// The figures of a healthy database, and the causes of a reading.
fn with_causes(mut stats: Stats, reading: usize) -> Stats {
    let is = |alarm| is_caused(alarm, reading);
    let times = |alarm| (0..=reading).filter(|reading| is_caused(alarm, *reading)).count() as u64;
    stats.refused_behind_stuck = times("ClosureStuck");
    stats.writer_busy_seconds = if is("WriterHeld") { 1.5 } else { 1.0 };
    stats.wal_stalls = times("WalFull");
    stats.revoked_readers = times("ReadsRevoked");
    stats.queue_depth = if is("QueueLong") { 16_384 } else { 8_000 };
    stats.open_transactions = if is("TransactionsLeftOpen") { 10_000 } else { 5_000 };
    let mut archive = ArchiveStats::default();
    archive.lag_ms = if is("ArchiveBehind") { 60_001 } else { 1_000 };
    archive.is_restorable = !is("ArchiveNotRestorable");
    archive.last_error = is("ArchiveFailing").then(|| "the store is away".to_owned());
    stats.archive = Some(archive);
    stats
}

/// Lives through an hour, with a write each second, and gives each reading to `look`.
fn live(mut look: impl FnMut(Stats)) {
    let directory = tempfile::tempdir().unwrap();
    let (clock, disk) = (HandClock::new(), Disk::empty(RealSyncs::Skipped));
    let options = disk.under(Options::new().clock(clock.clone()));
    let db = options.open(directory.path().join("db")).unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(x)")).wait().unwrap();
    let is_slow = Arc::new(AtomicBool::new(false));
    disk.set_hook({
        let (is_slow, clock) = (Arc::clone(&is_slow), Arc::clone(&clock));
        move |call| {
            if call.operation == Operation::SyncWal {
                let is_slow = is_slow.load(Ordering::Relaxed);
                clock.advance(Duration::from_millis(if is_slow { 120 } else { 1 }));
            }
            None
        }
    });
    for reading in 0..READINGS {
        is_slow.store(is_caused("SyncsSlow", reading), Ordering::Relaxed);
        for _ in 0..READING.as_secs() {
            db.write(|tx| tx.execute("INSERT INTO t VALUES (1)", ())).wait().unwrap();
            clock.advance(Duration::from_secs(1));
        }
        look(with_causes(db.stats(), reading));
    }
    db.close().unwrap();
}

/// That an alarm fired while there was its cause, `patience` readings late, and not for long after.
fn check(alarm: &str, patience: usize, fired: &[usize]) {
    let (_, cause) = CAUSES.iter().find(|(name, _)| *name == alarm).expect("a cause for each");
    let (first, last) = match fired {
        [first, .., last] => (*first, *last),
        _ => panic!("{alarm} fired only in {fired:?}"),
    };
    assert_eq!(last - first + 1, fired.len(), "{alarm} paused: {fired:?}");
    assert_eq!(first, cause.start + patience, "{alarm}");
    assert!((cause.end - 1..cause.end + WINDOW).contains(&last), "{alarm} ended at {last}");
}

#[test]
fn alarms_of_the_page_fire_and_end_as_it_says() {
    let rules = rules();
    let (mut history, mut readings) = (History::default(), Vec::new());
    let mut since: BTreeMap<&str, usize> = BTreeMap::new();
    let mut fired: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut fired_in_program: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    live(|stats| {
        let reading = readings.len();
        history.read(&prometheus(&[("shop", stats.clone())]));
        for Rule { alarm, expr, patience } in &rules {
            if !history.is_true(expr) {
                since.remove(alarm);
            } else if *since.entry(alarm).or_insert(reading) + patience <= reading {
                fired.entry(alarm).or_default().push(reading);
            }
        }
        readings.push(stats);
        let before = &readings[reading.saturating_sub(WINDOW)];
        for alarm in alarms(before, &readings[reading]) {
            fired_in_program.entry(alarm).or_default().push(reading);
        }
    });
    assert_eq!(rules.len(), CAUSES.len());
    for Rule { alarm, patience, .. } in &rules {
        assert!(PAGE.contains(&format!("| `{alarm}` |")), "the page does not explain {alarm}");
        for fired in [&fired, &fired_in_program] {
            check(alarm, *patience, fired.get(alarm).map_or(&[], |fired| fired));
        }
    }
}

#[test]
fn function_of_the_page_is_the_one_tested_here() {
    let tested = include_str!("monitoring/alarms.rs").replace("pub(super) fn", "fn");
    let (_, tested) = tested.split_once("\n\n").unwrap();
    let remedy = "copy the function of tests/it/monitoring/alarms.rs to docs/guides/monitoring.md";
    assert!(PAGE.contains(tested), "{remedy}");
}
