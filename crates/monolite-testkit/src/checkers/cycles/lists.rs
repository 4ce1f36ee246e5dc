//! What single lists tell: the order of their values, the dependencies that it implies, and
//! everything that contradicts any order.

use std::collections::HashSet;

use hashbrown::HashMap;

use super::graph::{Edge, EdgeKind};
use super::{Anomaly, Fate, Kind, Step, Transaction};

/// Anomalies of one kind that are told; a broken engine breaks every list.
const TOLD: usize = 5;

struct Append {
    by: u32,
    /// The last one of its transaction to this list.
    is_last: bool,
}

/// A read by a committed transaction.
struct Look<'h> {
    by: u32,
    list: &'h [u64],
    /// How many values at its end the reader had appended itself before it looked.
    own: usize,
}

/// All that is known of one list.
#[derive(Default)]
struct Known<'h> {
    appends: HashMap<u64, Append>,
    looks: Vec<Look<'h>>,
    latest_look: u64,
}

/// The dependencies that the lists of a history imply; what is wrong with single lists goes into
/// `anomalies`.
pub(super) fn dependencies(history: &[Transaction], anomalies: &mut Vec<Anomaly>) -> Vec<Edge> {
    let mut lists: HashMap<u64, Known<'_>> = HashMap::new();
    for (by, transaction) in (0..).zip(history) {
        collect(by, transaction, &mut lists, anomalies);
    }
    let mut edges = Vec::new();
    for (key, known) in &lists {
        let judge = Judge { key: *key, known, history };
        judge.look(anomalies, &mut edges);
    }
    edges
}

fn tell(anomalies: &mut Vec<Anomaly>, kind: Kind, what: impl FnOnce() -> String) {
    if anomalies.iter().filter(|it| it.kind == kind).count() < TOLD {
        anomalies.push(Anomaly { kind, what: what() });
    }
}

/// Files a transaction's steps under their lists, and checks it against itself.
fn collect<'h>(
    by: u32,
    transaction: &'h Transaction,
    lists: &mut HashMap<u64, Known<'h>>,
    anomalies: &mut Vec<Anomaly>,
) {
    for (at, step) in transaction.steps.iter().enumerate() {
        match step {
            Step::Append { key, value } => {
                let later = &transaction.steps[at + 1..];
                let is_last =
                    !later.iter().any(|it| matches!(it, Step::Append { key: k, .. } if k == key));
                let known = lists.entry(*key).or_default();
                if known.appends.insert(*value, Append { by, is_last }).is_some() {
                    let what = || format!("{value} is appended to list {key} by two transactions");
                    tell(anomalies, Kind::DuplicateAppend, what);
                }
            }
            Step::Read { key, list } if transaction.fate == Fate::Committed => {
                let own = match own_view(&transaction.steps[..at], *key, list) {
                    Ok(own) => own,
                    Err(expected) => {
                        let what = || {
                            format!("T{by} reads {list:?} from list {key} where {expected} is due")
                        };
                        tell(anomalies, Kind::Internal, what);
                        continue;
                    }
                };
                let known = lists.entry(*key).or_default();
                known.looks.push(Look { by, list, own });
                known.latest_look = known.latest_look.max(transaction.begin);
            }
            Step::Read { .. } => {}
        }
    }
}

/// How many values at the end of `list` are the reader's own, given its steps before; or what it
/// should have read.
fn own_view(before: &[Step], key: u64, list: &[u64]) -> Result<usize, String> {
    let mut read: Option<(&[u64], usize)> = None;
    let mut own = 0;
    for (at, step) in before.iter().enumerate() {
        match step {
            Step::Append { key: k, .. } if *k == key => own += 1,
            Step::Read { key: k, list } if *k == key => read = Some((list, at)),
            _ => {}
        }
    }
    let since = read.map_or(0, |(_, at)| at + 1);
    let appended: Vec<u64> = before[since..]
        .iter()
        .filter_map(|step| match step {
            Step::Append { key: k, value } if *k == key => Some(*value),
            _ => None,
        })
        .collect();
    let fits = match read {
        Some((old, _)) => list.strip_prefix(old).is_some_and(|rest| rest == appended),
        None => list.ends_with(&appended),
    };
    match (fits, read) {
        (true, _) => Ok(own),
        (false, Some((old, _))) => Err(format!("{old:?} and then {appended:?}")),
        (false, None) => Err(format!("something that ends with {appended:?}")),
    }
}

struct Judge<'a, 'h> {
    key: u64,
    known: &'a Known<'h>,
    history: &'h [Transaction],
}

impl Judge<'_, '_> {
    fn look(&self, anomalies: &mut Vec<Anomaly>, edges: &mut Vec<Edge>) {
        let longest = self.known.looks.iter().max_by_key(|look| look.list.len());
        let (order, reader) = longest.map_or((&[][..], 0), |look| (look.list, look.by));
        for look in &self.known.looks {
            if !order.starts_with(look.list) {
                tell(anomalies, Kind::IncompatibleOrder, || {
                    let (key, by, list) = (self.key, look.by, look.list);
                    format!("list {key}: T{by} reads {list:?}, T{reader} reads {order:?}")
                });
                // Its values may be in no other read.
                self.writers(look.list, look.by, anomalies);
            }
            self.intermediate(look, anomalies);
        }
        let writers = self.writers(order, reader, anomalies);
        self.missed(order, &writers, anomalies);
        self.infer(&writers, edges);
    }

    /// The values before the reader's own.
    fn version<'l>(look: &Look<'l>) -> &'l [u64] {
        &look.list[..look.list.len().saturating_sub(look.own)]
    }

    fn intermediate(&self, look: &Look<'_>, anomalies: &mut Vec<Anomaly>) {
        let last = Self::version(look).last();
        let Some((last, append)) = last.and_then(|it| Some((it, self.known.appends.get(it)?)))
        else {
            return;
        };
        if !append.is_last && append.by != look.by {
            tell(anomalies, Kind::IntermediateRead, || {
                let (key, by, writer) = (self.key, look.by, append.by);
                format!("list {key}: T{by} reads up to {last}, not the last append of T{writer}")
            });
        }
    }

    /// Who appended each value of the order.
    fn writers(
        &self,
        order: &[u64],
        reader: u32,
        anomalies: &mut Vec<Anomaly>,
    ) -> Vec<Option<u32>> {
        let mut seen = HashSet::with_capacity(order.len());
        let key = self.key;
        let mut writers = Vec::with_capacity(order.len());
        for value in order {
            if !seen.insert(*value) {
                tell(anomalies, Kind::DuplicateAppend, || {
                    format!("list {key}: T{reader} reads {value} twice: {order:?}")
                });
            }
            let writer = self.known.appends.get(value).map(|append| append.by);
            match writer {
                None => tell(anomalies, Kind::UnknownValue, || {
                    format!("list {key}: T{reader} reads {value}, which nobody appended")
                }),
                Some(by) if self.fate(by) == Fate::Failed => {
                    tell(anomalies, Kind::AbortedRead, || {
                        format!("list {key}: T{reader} reads {value} of T{by}, which failed")
                    });
                }
                Some(_) => {}
            }
            writers.push(writer);
        }
        writers
    }

    fn fate(&self, by: u32) -> Fate {
        self.history[by as usize].fate
    }

    fn end(&self, by: u32) -> u64 {
        let transaction = &self.history[by as usize];
        if transaction.fate == Fate::Committed { transaction.end } else { u64::MAX }
    }

    /// Appends that somebody should have seen.
    fn missed(&self, order: &[u64], writers: &[Option<u32>], anomalies: &mut Vec<Anomaly>) {
        let key = self.key;
        if self.known.appends.len() > order.len() || writers.contains(&None) {
            let order: HashSet<u64> = order.iter().copied().collect();
            for (value, append) in self.known.appends.iter().filter(|it| !order.contains(it.0)) {
                if self.end(append.by) < self.known.latest_look {
                    tell(anomalies, Kind::LostAppend, || {
                        let by = append.by;
                        format!("list {key}: {value} of T{by} is acknowledged and in no later read")
                    });
                }
            }
        }
        // The earliest end among the writers from each place on.
        let mut earliest: Vec<u64> =
            writers.iter().map(|by| by.map_or(u64::MAX, |by| self.end(by))).collect();
        for at in (1..earliest.len()).rev() {
            earliest[at - 1] = earliest[at - 1].min(earliest[at]);
        }
        for look in &self.known.looks {
            let missed = earliest.get(look.list.len());
            if missed.is_some_and(|end| *end < self.history[look.by as usize].begin) {
                tell(anomalies, Kind::StaleRead, || {
                    let (by, list, rest) = (look.by, look.list, order.get(look.list.len()..));
                    format!(
                        "list {key}: T{by} reads {list:?}, and not {rest:?}, of which something \
                         was acknowledged before T{by} began"
                    )
                });
            }
        }
    }

    fn infer(&self, writers: &[Option<u32>], edges: &mut Vec<Edge>) {
        let key = self.key;
        let mut add = |from: Option<u32>, to: Option<u32>, kind| {
            if let Some((from, to)) = from.zip(to)
                && from != to
            {
                edges.push(Edge { from, to, kind, key });
            }
        };
        for pair in writers.windows(2) {
            add(pair[0], pair[1], EdgeKind::Ww);
        }
        for look in &self.known.looks {
            let length = Self::version(look).len();
            let before = length.checked_sub(1).and_then(|at| writers.get(at).copied().flatten());
            add(before, Some(look.by), EdgeKind::Wr);
            add(Some(look.by), writers.get(length).copied().flatten(), EdgeKind::Rw);
        }
    }
}
