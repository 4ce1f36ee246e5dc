//! Owns the judgement of a file: whether it has what its clients have seen, and whether their
//! transactions have an order in which each could have seen it.
//!
//! # Algorithm
//! A key's versions were raised one after the other, and the file has which task raised which. So
//! one task is before another if it raised the version before (write after write), if it raised the
//! version that the other one read (read after write), or if it read the version before the one
//! that the other raised (write after read). A task of a client is behind its earlier ones. The
//! history is serializable if and only if that graph has no circle (A. Adya, *Weak Consistency*,
//! 1999); the tasks are sorted by it, and what cannot be sorted is on a circle or behind one.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Context as _, Result};
use monolite::rusqlite::Connection;

use super::KEYS;
use super::clients::{End, Seen};
use crate::checks::wrong::Wrong;

/// Creates the tables.
pub(super) fn create(file: &Path) -> Result<()> {
    let connection = Connection::open(file)?;
    connection.execute_batch(
        "CREATE TABLE item(key INTEGER PRIMARY KEY, version INTEGER NOT NULL) STRICT;
         CREATE TABLE raised(key INTEGER, version INTEGER, task INTEGER, attempt INTEGER) STRICT;
         CREATE TABLE done(task INTEGER PRIMARY KEY, attempt INTEGER NOT NULL) STRICT;
         CREATE TABLE once(task INTEGER, attempt INTEGER) STRICT;",
    )?;
    for key in 0..KEYS {
        connection.execute("INSERT INTO item VALUES (?, 0)", [key])?;
    }
    Ok(())
}

/// What the file has.
struct Left {
    /// Tasks that are done, and by which attempt.
    done: HashMap<i64, i64>,
    /// Keys and versions, and which task's attempt raised them.
    raised: HashMap<(i64, i64), (i64, i64)>,
}

/// Says what is wrong with the `file`, given what its clients have `seen`.
pub(super) fn judge(file: &Path, seen: &[Seen]) -> Result<()> {
    let left = read(file)?;
    let name = |seen: &&Seen| format!("{seen:?}");
    let is_there = |seen: &&Seen| left.done.get(&seen.task) == Some(&seen.attempt);
    let of = |end: End| seen.iter().filter(move |it| it.end == end);
    let lost: Vec<&Seen> = of(End::Committed).filter(|it| !is_there(it)).collect();
    if let Some(first) = lost.first() {
        let text = format!("acknowledged, and not there: {}", name(first));
        return Err(Wrong::Lost(lost.len() as u64, text).into());
    }
    if let Some(refused) = of(End::Refused).find(is_there) {
        return Err(Wrong::Other(format!("refused, and there: {}", name(&refused))).into());
    }
    if let Some(absent) = of(End::WasDone).find(|it| !left.done.contains_key(&it.task)) {
        let text = format!("refused as done before, and not there: {}", name(&absent));
        return Err(Wrong::Other(text).into());
    }
    let is_of_none =
        |(_, (task, attempt)): &(&(i64, i64), &(i64, i64))| left.done.get(task) != Some(attempt);
    if let Some((raised, of)) = left.raised.iter().find(is_of_none) {
        let text = format!("key and version {raised:?} are of {of:?}, which was not committed");
        return Err(Wrong::Partial(text).into());
    }
    let circle = unsortable(&left, seen);
    if !circle.is_empty() {
        let some: Vec<String> = circle.iter().take(4).map(name).collect();
        let text = format!("{} tasks have no serial order: {}", circle.len(), some.join("; "));
        return Err(Wrong::Other(text).into());
    }
    Ok(())
}

fn read(file: &Path) -> Result<Left> {
    let connection = Connection::open(file).context("the file cannot be opened")?;
    let sound: String = connection.query_row("PRAGMA integrity_check", (), |row| row.get(0))?;
    if sound != "ok" {
        return Err(Wrong::Other(format!("the file is damaged: {sound}")).into());
    }
    let mut done: HashMap<i64, i64> = HashMap::new();
    let mut notes = connection.prepare("SELECT * FROM done UNION ALL SELECT * FROM once")?;
    let mut rows = notes.query(())?;
    while let Some(row) = rows.next()? {
        let (task, attempt) = (row.get(0)?, row.get(1)?);
        if let Some(other) = done.insert(task, attempt) {
            let text = format!("task {task} was done twice: by its attempts {other} and {attempt}");
            return Err(Wrong::Other(text).into());
        }
    }
    let mut raised = HashMap::new();
    let mut notes = connection.prepare("SELECT key, version, task, attempt FROM raised")?;
    let mut rows = notes.query(())?;
    while let Some(row) = rows.next()? {
        let version: (i64, i64) = (row.get(0)?, row.get(1)?);
        let of: (i64, i64) = (row.get(2)?, row.get(3)?);
        if let Some(other) = raised.insert(version, of) {
            let text = format!("key and version {version:?} were raised by {other:?} and {of:?}");
            return Err(Wrong::Other(text).into());
        }
    }
    let mut items = connection.prepare("SELECT key, version FROM item")?;
    let mut rows = items.query(())?;
    while let Some(row) = rows.next()? {
        let (key, last): (i64, i64) = (row.get(0)?, row.get(1)?);
        if let Some(gap) = (1..=last).find(|version| !raised.contains_key(&(key, *version))) {
            let text = format!("version {gap} of key {key}, which is at {last}, is of no task");
            return Err(Wrong::Partial(text).into());
        }
    }
    Ok(Left { done, raised })
}

/// Attempts that were committed, and have no place in an order.
fn unsortable<'s>(left: &Left, seen: &'s [Seen]) -> Vec<&'s Seen> {
    let committed: HashMap<i64, &Seen> = seen
        .iter()
        .filter(|it| left.done.get(&it.task) == Some(&it.attempt))
        .map(|it| (it.task, it))
        .collect();
    let raiser = |key: i64, version: i64| left.raised.get(&(key, version)).map(|of| of.0);
    let mut before: HashSet<(i64, i64)> = HashSet::new();
    let mut add = |one: Option<i64>, other: Option<i64>| {
        before.extend(one.zip(other).filter(|(one, other)| one != other));
    };
    for (&(key, version), &(task, _)) in &left.raised {
        add(raiser(key, version - 1), Some(task));
    }
    for seen in committed.values() {
        for &(key, version) in &seen.reads {
            // What it has raised itself before it read is its own.
            add(raiser(key, version), Some(seen.task));
            add(Some(seen.task), raiser(key, version + 1));
        }
        if committed.contains_key(&(seen.task - 1)) {
            add(Some(seen.task - 1), Some(seen.task));
        }
    }
    let mut waits: HashMap<i64, usize> = HashMap::new();
    let mut follow: HashMap<i64, Vec<i64>> = HashMap::new();
    for &(one, other) in &before {
        *waits.entry(other).or_default() += 1;
        follow.entry(one).or_default().push(other);
    }
    let mut free: Vec<i64> =
        left.done.keys().copied().filter(|task| !waits.contains_key(task)).collect();
    while let Some(task) = free.pop() {
        for next in follow.remove(&task).unwrap_or_default() {
            let left = waits.entry(next).or_default();
            *left -= 1;
            if *left == 0 {
                waits.remove(&next);
                free.push(next);
            }
        }
    }
    waits.keys().filter_map(|task| committed.get(task).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(done: &[i64], raised: &[(i64, i64, i64)]) -> Left {
        Left {
            done: done.iter().map(|task| (*task, 1)).collect(),
            raised: raised
                .iter()
                .map(|(key, version, task)| ((*key, *version), (*task, 1)))
                .collect(),
        }
    }

    fn seen(task: i64, reads: &[(i64, i64)]) -> Seen {
        Seen { task, attempt: 1, reads: reads.to_vec(), end: End::Committed }
    }

    #[test]
    fn a_write_skew_has_no_order() {
        // Each reads what the other one raises, before that.
        let left = left(&[10, 20], &[(0, 1, 10), (1, 1, 20)]);
        let skew = [seen(10, &[(1, 0)]), seen(20, &[(0, 0)])];
        assert_eq!(unsortable(&left, &skew).len(), 2);
        let serial = [seen(10, &[(1, 0)]), seen(20, &[(0, 1)])];
        assert!(unsortable(&left, &serial).is_empty());
    }

    #[test]
    fn a_client_reads_what_it_has_committed() {
        let left = left(&[10, 11, 30], &[(0, 1, 10), (0, 2, 30)]);
        assert!(unsortable(&left, &[seen(10, &[]), seen(11, &[(0, 1)])]).is_empty());
        assert!(!unsortable(&left, &[seen(10, &[]), seen(11, &[(0, 0)])]).is_empty());
    }
}
