//! Owns the figures that a statistic has for monitoring: their names, and the Prometheus text of
//! them.
//!
//! # Format
//! [Exposition format](https://prometheus.io/docs/instrumenting/exposition_formats/) 0.0.4. Each
//! family has a `HELP` and a `TYPE` line and then the samples of all its sources.

use std::fmt::Write as _;

use super::Histogram;
use crate::archive::ArchiveStats;

const EPOCH: &str = "Number of the primary's term; 0 until it has one.";
const TXID: &str = "Number of the newest archived transaction (TXID).";
const LAG: &str = "How long the oldest commit on this disk has been waiting for the archive.";
const LEASE: &str = "What is left of the primary's lease; nothing without one.";
const STAGED: &str = "Bytes kept beside the database for the archive.";
const RESTORABLE: &str = "Whether the newest archived state can be restored.";
const COPYING: &str = "Whether a full copy is due; the field says why.";
const FOLLOWERS: &str = "How many followers stream.";
const REPLICAS: &str =
    "How many followers a replicated write waits for, or would before the first.";
const FAILED: &str = "Requests of the store that failed.";
const FAILING: &str = "Whether an activity failed and has not succeeded since; the field says why.";
const REPLACED: &str = "Whether another primary has taken over; the field says where it is.";

/// A statistic of the table.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) field: &'static str,
    pub(super) help: &'static str,
    /// Whether it only rises.
    pub(super) is_counter: bool,
}

/// A statistic, or a part of one.
pub(super) struct Figure {
    /// The field of `Stats`.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the page says it"))]
    pub(super) field: String,
    /// What Prometheus calls it.
    pub(super) name: String,
    pub(super) help: &'static str,
    pub(super) value: Value,
}

/// What a figure is now.
pub(super) enum Value {
    Counter(Option<f64>),
    Gauge(Option<f64>),
    Histogram(Box<Histogram>),
    /// For people only.
    Text,
}

impl Value {
    /// The type for Prometheus, if the figure is for it.
    fn kind(&self) -> Option<&'static str> {
        match self {
            Value::Counter(_) => Some("counter"),
            Value::Gauge(_) => Some("gauge"),
            Value::Histogram(_) => Some("histogram"),
            Value::Text => None,
        }
    }
}

/// What a statistic is for monitoring.
pub(super) trait Shown {
    fn figures(&self, row: Row) -> Vec<Figure>;
}

impl Row {
    /// The only figure of this row.
    pub(super) fn figure(self, value: Value) -> Vec<Figure> {
        let Row { field, help, .. } = self;
        let ending = if matches!(value, Value::Counter(_)) { "_total" } else { "" };
        let name = format!("monolite_{field}{ending}");
        vec![Figure { field: field.to_owned(), name, help, value }]
    }
}

impl Shown for u64 {
    fn figures(&self, row: Row) -> Vec<Figure> {
        let is = Some(*self as f64);
        row.figure(if row.is_counter { Value::Counter(is) } else { Value::Gauge(is) })
    }
}

impl Shown for f64 {
    fn figures(&self, row: Row) -> Vec<Figure> {
        row.figure(Value::Gauge(Some(*self)))
    }
}

impl Shown for bool {
    fn figures(&self, row: Row) -> Vec<Figure> {
        row.figure(Value::Gauge(Some(f64::from(*self))))
    }
}

impl Shown for Histogram {
    fn figures(&self, row: Row) -> Vec<Figure> {
        row.figure(Value::Histogram(Box::new(self.clone())))
    }
}

impl Shown for Option<ArchiveStats> {
    fn figures(&self, row: Row) -> Vec<Figure> {
        let is_there = self.is_some();
        // Each field by its name: a new one must get a line here.
        let ArchiveStats {
            epoch,
            txid,
            lag_ms,
            lease_left_ms,
            staged_bytes,
            is_restorable,
            copies_because,
            followers,
            replicas,
            failed_requests,
            last_error,
            successor,
        } = self.clone().unwrap_or_default();
        let lease_left = lease_left_ms.map_or(f64::NAN, |left| left as f64 / 1e3);
        let parts = [
            ("epoch", "epoch", EPOCH, epoch as f64),
            ("txid", "txid", TXID, txid as f64),
            ("lag_ms", "lag_seconds", LAG, lag_ms as f64 / 1e3),
            ("lease_left_ms", "lease_left_seconds", LEASE, lease_left),
            ("staged_bytes", "staged_bytes", STAGED, staged_bytes as f64),
            ("is_restorable", "is_restorable", RESTORABLE, f64::from(is_restorable)),
            ("copies_because", "is_copying", COPYING, f64::from(copies_because.is_some())),
            ("followers", "followers", FOLLOWERS, followers as f64),
            ("replicas", "replicas", REPLICAS, replicas as f64),
            ("failed_requests", "failed_requests_total", FAILED, failed_requests as f64),
            ("last_error", "is_failing", FAILING, f64::from(last_error.is_some())),
            ("successor", "is_replaced", REPLACED, f64::from(successor.is_some())),
        ];
        let figure = |(part, name, help, is): (&str, &str, _, _)| {
            let is = Some(is).filter(|is: &f64| is_there && !is.is_nan());
            let is_counter = name.ends_with("_total");
            Figure {
                field: format!("{}.{part}", row.field),
                name: format!("monolite_{}_{name}", row.field),
                help,
                value: if is_counter { Value::Counter(is) } else { Value::Gauge(is) },
            }
        };
        parts.map(figure).into()
    }
}

/// The figures of several sources, each with its own value of `label`, as text. All have the same
/// figures.
pub(super) fn text(label: &str, sources: &[(&str, Vec<Figure>)]) -> String {
    let mut out = String::new();
    let of_first = sources.first().map_or(&[][..], |(_, figures)| figures);
    for (at, Figure { name, help, value, .. }) in of_first.iter().enumerate() {
        let Some(kind) = value.kind() else { continue };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (source, figures) in sources {
            samples(&mut out, &figures[at], &format!("{label}=\"{}\"", escaped(source)));
        }
    }
    out
}

fn samples(out: &mut String, Figure { name, value, .. }: &Figure, label: &str) {
    let _ = match value {
        Value::Counter(Some(number)) | Value::Gauge(Some(number)) => {
            writeln!(out, "{name}{{{label}}} {number}")
        }
        Value::Histogram(histogram) => {
            for (bound, count) in histogram.buckets() {
                let _ = writeln!(out, "{name}_bucket{{{label},le=\"{bound}\"}} {count}");
            }
            let (count, sum) = (histogram.count(), histogram.sum());
            let _ = writeln!(out, "{name}_bucket{{{label},le=\"+Inf\"}} {count}");
            writeln!(out, "{name}_sum{{{label}}} {sum}\n{name}_count{{{label}}} {count}")
        }
        Value::Counter(None) | Value::Gauge(None) | Value::Text => Ok(()),
    };
}

/// Text as the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
