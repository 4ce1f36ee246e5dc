//! The graph of dependencies: its cycles, found as strongly connected components and named by the
//! edges that they need.
//!
//! # Algorithm
//! 1. Transactions are nodes; so are the moments at which transactions ended, in a chain. Edges are
//!    packed by source.
//! 2. Tarjan's algorithm, without recursion, finds the components. Nearly all are single nodes.
//! 3. In each other one cycles are sought that need ever more kinds of edges: the first kind found
//!    names the anomaly. Each search runs on the component restricted to the edges allowed, in
//!    which an edge lies on a cycle if and only if both ends are in one component.

use std::collections::VecDeque;

use super::{Anomaly, Fate, Kind, Transaction};

/// Cycles that are told; a broken engine has thousands.
const TOLD: usize = 20;
/// Edges that are tried for a cycle with a single anti-dependency.
const TRIED: usize = 2_000;

/// Why one transaction must come before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum EdgeKind {
    /// It appended the value before.
    Ww = 1,
    /// The other one read what it appended.
    Wr = 2,
    /// It did not see what the other one appended.
    Rw = 4,
    /// It ended before the other one began.
    Rt = 8,
}

/// A dependency.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) kind: EdgeKind,
    pub(super) key: u64,
}

const WRITES: u8 = EdgeKind::Ww as u8;
const INFORMATION: u8 = WRITES | EdgeKind::Wr as u8;
const DEPENDENCIES: u8 = INFORMATION | EdgeKind::Rw as u8;
const ALL: u8 = DEPENDENCIES | EdgeKind::Rt as u8;

/// Edges packed by their source.
struct Graph {
    starts: Vec<usize>,
    edges: Vec<Edge>,
}

fn index(node: u32) -> usize {
    node as usize
}

impl Graph {
    fn new(nodes: usize, unsorted: &[Edge]) -> Graph {
        let mut starts = vec![0; nodes + 1];
        for edge in unsorted {
            starts[index(edge.from) + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut edges = unsorted.to_vec();
        for edge in unsorted {
            edges[next[index(edge.from)]] = *edge;
            next[index(edge.from)] += 1;
        }
        Graph { starts, edges }
    }

    fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    fn from(&self, node: u32) -> &[Edge] {
        &self.edges[self.starts[index(node)]..self.starts[index(node) + 1]]
    }

    /// The component of each node, by Tarjan's algorithm.
    fn components(&self) -> Vec<u32> {
        const NEW: u32 = u32::MAX;
        let nodes = self.nodes();
        let (mut number, mut low) = (vec![NEW; nodes], vec![0; nodes]);
        let mut component = vec![NEW; nodes];
        let (mut open, mut path) = (Vec::new(), Vec::new());
        let (mut numbers, mut components) = (0, 0);
        for root in 0..u32::try_from(nodes).unwrap_or(NEW) {
            if number[index(root)] != NEW {
                continue;
            }
            path.push((root, 0));
            while let Some((node, done)) = path.pop() {
                let at = index(node);
                if done == 0 {
                    (number[at], low[at]) = (numbers, numbers);
                    numbers += 1;
                    open.push(node);
                }
                let next = self.from(node)[done..]
                    .iter()
                    .position(|edge| number[index(edge.to)] == NEW)
                    .map(|further| done + further);
                let end = next.unwrap_or(self.from(node).len());
                for edge in &self.from(node)[done..end] {
                    if component[index(edge.to)] == NEW {
                        low[at] = low[at].min(number[index(edge.to)]);
                    }
                }
                if let Some(next) = next {
                    path.push((node, next + 1));
                    path.push((self.from(node)[next].to, 0));
                    continue;
                }
                if low[at] == number[at] {
                    while let Some(member) = open.pop() {
                        component[index(member)] = components;
                        if member == node {
                            break;
                        }
                    }
                    components += 1;
                }
                if let Some((parent, _)) = path.last() {
                    low[index(*parent)] = low[index(*parent)].min(low[at]);
                }
            }
        }
        component
    }

    /// The shortest path from `from` to `to`.
    fn path(&self, from: u32, to: u32) -> Option<Vec<Edge>> {
        let mut came_by: Vec<Option<Edge>> = vec![None; self.nodes()];
        let mut waiting = VecDeque::from([from]);
        while let Some(node) = waiting.pop_front() {
            if node == to {
                let mut path = Vec::new();
                let mut at = to;
                while at != from {
                    let edge = came_by[index(at)]?;
                    path.push(edge);
                    at = edge.from;
                }
                path.reverse();
                return Some(path);
            }
            for edge in self.from(node) {
                if edge.to != from && came_by[index(edge.to)].is_none() {
                    came_by[index(edge.to)] = Some(*edge);
                    waiting.push_back(edge.to);
                }
            }
        }
        None
    }
}

/// Adds the real-time order: a chain of moments after the transactions. Returns the number of
/// nodes.
fn add_real_time(history: &[Transaction], edges: &mut Vec<Edge>) -> usize {
    let number = |at: usize| u32::try_from(at).expect("a segment has fewer nodes than that");
    let mut ends: Vec<(u64, usize)> = (0..)
        .zip(history)
        .filter(|(_, it)| it.fate == Fate::Committed)
        .map(|(at, it)| (it.end, at))
        .collect();
    ends.sort_unstable();
    let first = history.len();
    let mut add = |from, to| {
        edges.push(Edge { from: number(from), to: number(to), kind: EdgeKind::Rt, key: 0 });
    };
    for (moment, (_, at)) in ends.iter().enumerate() {
        add(*at, first + moment);
        if moment > 0 {
            add(first + moment - 1, first + moment);
        }
    }
    for (at, transaction) in history.iter().enumerate() {
        let before = ends.partition_point(|(end, _)| *end < transaction.begin);
        if before > 0 && transaction.fate != Fate::Failed {
            add(first + before - 1, at);
        }
    }
    first + ends.len()
}

/// Finds cycles of dependencies.
pub(super) fn find_cycles(
    history: &[Transaction],
    mut edges: Vec<Edge>,
    anomalies: &mut Vec<Anomaly>,
) {
    let nodes = add_real_time(history, &mut edges);
    let component = Graph::new(nodes, &edges).components();
    let mut inner: Vec<(u32, Edge)> = edges
        .into_iter()
        .filter(|edge| component[index(edge.from)] == component[index(edge.to)])
        .map(|edge| (component[index(edge.from)], edge))
        .collect();
    inner.sort_by_key(|(component, _)| *component);
    for cyclic in inner.chunk_by(|(a, _), (b, _)| a == b).take(TOLD) {
        let edges: Vec<Edge> = cyclic.iter().map(|(_, edge)| *edge).collect();
        anomalies.extend(name_cycle(history.len(), &edges));
    }
}

/// Names the worst cycle of a component.
fn name_cycle(transactions: usize, edges: &[Edge]) -> Option<Anomaly> {
    let (edges, names) = renumber(edges);
    let cycle = cycle_with(&edges, WRITES, WRITES, usize::MAX)
        .or_else(|| cycle_with(&edges, EdgeKind::Wr as u8, INFORMATION, usize::MAX))
        .or_else(|| cycle_with(&edges, EdgeKind::Rw as u8, INFORMATION, TRIED))
        .or_else(|| cycle_with(&edges, EdgeKind::Rw as u8, DEPENDENCIES, usize::MAX))
        .or_else(|| cycle_with(&edges, DEPENDENCIES, ALL, usize::MAX))?;
    let name = |node: u32| index(names[index(node)]);
    let steps: Vec<String> = cycle
        .iter()
        .filter(|edge| name(edge.from) < transactions)
        .map(|edge| match edge.kind {
            EdgeKind::Rt => format!("T{} ended before", name(edge.from)),
            kind => {
                let kind = format!("{kind:?}").to_lowercase();
                format!("T{} -{kind}({})->", name(edge.from), edge.key)
            }
        })
        .collect();
    let first = cycle.iter().map(|edge| name(edge.from)).find(|it| *it < transactions)?;
    Some(Anomaly { kind: kind_of(&cycle), what: format!("{} T{first}", steps.join(" ")) })
}

/// Gives the nodes of a component the numbers from 0; also returns their old ones.
fn renumber(edges: &[Edge]) -> (Vec<Edge>, Vec<u32>) {
    let mut names: Vec<u32> = edges.iter().flat_map(|edge| [edge.from, edge.to]).collect();
    names.sort_unstable();
    names.dedup();
    let number = |node: u32| {
        let at = names.partition_point(|it| *it < node);
        u32::try_from(at).expect("there are no more names than nodes")
    };
    let renumbered =
        edges.iter().map(|edge| Edge { from: number(edge.from), to: number(edge.to), ..*edge });
    (renumbered.collect(), names)
}

/// A shortest cycle through an edge of a kind in `first`, otherwise of kinds in `rest`.
fn cycle_with(edges: &[Edge], first: u8, rest: u8, tries: usize) -> Option<Vec<Edge>> {
    let is_in = |edge: &&Edge, mask: u8| edge.kind as u8 & mask != 0;
    let nodes = edges.iter().map(|edge| index(edge.from.max(edge.to)) + 1).max()?;
    let allowed: Vec<Edge> = edges.iter().filter(|it| is_in(it, first | rest)).copied().collect();
    let component = Graph::new(nodes, &allowed).components();
    let inside = |edge: &&Edge| component[index(edge.from)] == component[index(edge.to)];
    let others: Vec<Edge> =
        allowed.iter().filter(inside).filter(|it| is_in(it, rest)).copied().collect();
    let graph = Graph::new(nodes, &others);
    let candidates = allowed.iter().filter(inside).filter(|it| is_in(it, first));
    candidates.take(tries).find_map(|edge| {
        let mut cycle = vec![*edge];
        cycle.extend(graph.path(edge.to, edge.from)?);
        Some(cycle)
    })
}

fn kind_of(cycle: &[Edge]) -> Kind {
    let count = |kind| cycle.iter().filter(|edge| edge.kind == kind).count();
    let adjacent = |(a, b): (&Edge, &Edge)| a.kind == EdgeKind::Rw && b.kind == EdgeKind::Rw;
    let next = cycle.iter().cycle().skip(1);
    let (rw, transactions) = (count(EdgeKind::Rw), cycle.len());
    if count(EdgeKind::Rt) > 0 {
        let is_stale = rw == 1 && count(EdgeKind::Ww) + count(EdgeKind::Wr) == 0;
        return if is_stale { Kind::StaleRead } else { Kind::RealTimeOrder };
    }
    match rw {
        0 if count(EdgeKind::Wr) == 0 => Kind::DirtyWrite,
        0 => Kind::CircularInformation,
        1 if transactions == 2 && count(EdgeKind::Ww) == 1 && cycle[0].key == cycle[1].key => {
            Kind::LostUpdate
        }
        1 => Kind::ReadSkew,
        2 if transactions == 2 => Kind::WriteSkew,
        _ if !cycle.iter().zip(next).any(adjacent) => Kind::LongFork,
        _ => Kind::AntiDependencyCycle,
    }
}
