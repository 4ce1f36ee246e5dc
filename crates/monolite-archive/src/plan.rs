//! Owns which files a restore needs.
//!
//! # Algorithm
//! The newest snapshot that does not go past the target; then again and again, among the files that
//! begin at most one TXID after what is reached, the one that reaches furthest without passing the
//! target; of several the one that begins earlier, then the one of the higher level. It is
//! Litestream's.
//!
//! # Invariants
//! A plan ends exactly at its target; fences, which have no pages, are left out at its end. A hole
//! is an error, and so is a TXID that only exists within a merged file; there is never a shorter
//! result. A time that lies within a merged file leads to the state before that file; the plan says
//! so, with the next state that is kept. Nothing is taken from below a fence that has a copy of the
//! whole database for what comes behind it, unless that has all pages of the copy, too.

use std::cmp::Reverse;

use monolite::archive::ArchiveToken;
use monolite_ltx::{Timestamp, Txid};

use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::file::ArchivedFile;
use crate::layout::{Layout, Level};
use crate::record::Record;
use crate::requests::leader;
use crate::slot::Slot;
use crate::store::Store;

/// What is to be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything.
    Latest,
    /// The state after this TXID.
    Txid(Txid),
    /// The state just before this time: after the last TXID with an earlier one that is kept by
    /// itself. [`Restored::is_exact`](crate::Restored::is_exact) says whether later ones
    /// may have been before that time, too.
    Before(Timestamp),
    /// The same, and an error unless it is exact.
    ExactlyBefore(Timestamp),
    /// The state that has everything which a token names, as [`Record::locate`] finds it.
    Token(ArchiveToken),
}

/// A state that is kept by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The state after this TXID.
    pub txid: Txid,
    /// Of when it is: the time of its last TXID.
    pub time: Timestamp,
}

/// Files that give a state, when applied in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    files: Vec<ArchivedFile>,
    kept: Kept,
    next: Option<Kept>,
    is_exact: bool,
}

impl Plan {
    /// The files for `target`.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) when there is no such state, or no longer exactly;
    /// [`Gap`](ErrorKind::Gap); those of [`ArchivedFile::header`]; and of [`Record::locate`] for a
    /// token, which is [`Invalid`](ErrorKind::Invalid) where there is no leader record.
    pub fn new(
        catalog: &Catalog,
        target: Target,
        store: &dyn Store,
        layout: &Layout,
    ) -> Result<Plan> {
        Plan::around(catalog, &[], target, store, layout)
    }

    /// The files for the same state, without those that are `lost`.
    pub(crate) fn around(
        catalog: &Catalog,
        lost: &[ArchivedFile],
        target: Target,
        store: &dyn Store,
        layout: &Layout,
    ) -> Result<Plan> {
        let not_found = |what: &str| Error::new(ErrorKind::NotFound, what);
        let txid = match target {
            Target::Txid(txid) => txid,
            Target::Token(token) => located(token, store, layout)?,
            Target::Latest => catalog.newest().ok_or_else(|| not_found("no files are there"))?,
            Target::Before(time) | Target::ExactlyBefore(time) => {
                let dated = catalog.without(&undated(lost, store, layout)?);
                let states = dated.states();
                let earlier = dated.count_before(&states, time, store, layout)?;
                match states[..earlier].last() {
                    Some(state) => state.txids.max(),
                    None => return Err(too_early(&dated, time, store, layout)?),
                }
            }
        };
        let sound = catalog.without(lost);
        let files = Plan::to(&sound, txid)?;
        let from = |states: Vec<ArchivedFile>| {
            let mut from = states.into_iter().skip_while(|state| state.txids.max() < txid);
            (from.next(), from.next())
        };
        // One whose time cannot be read any more may be of before that time.
        let (_, follower) = from(catalog.states());
        let (Some(state), next) = from(sound.states()) else {
            return Err(not_found("the state is in no file"));
        };
        let kept = |file: &ArchivedFile| {
            let time = file.header(store, layout)?.timestamp;
            Ok(Kept { txid: file.txids.max(), time })
        };
        let follows = |next: &ArchivedFile| {
            let is_copy = catalog.is_copy(next) || catalog.has_copy(next.txids.max());
            Some(next.txids.max()) == txid.next() && !is_copy && !lost.contains(next)
        };
        let is_by_time = matches!(target, Target::Before(_) | Target::ExactlyBefore(_));
        let is_exact = !is_by_time || follower.is_none_or(|it| follows(&it));
        let next = next.as_ref().map(kept).transpose()?;
        let plan = Plan { files, kept: kept(&state)?, next, is_exact };
        match target {
            Target::ExactlyBefore(time) if !is_exact => Err(plan.inexact(time)),
            _ => Ok(plan),
        }
    }

    /// The files for the state after `txid`, oldest first.
    pub(crate) fn to(catalog: &Catalog, txid: Txid) -> Result<Vec<ArchivedFile>> {
        let files: Vec<&ArchivedFile> =
            catalog.files().iter().filter(|file| file.txids.max() <= txid).collect();
        let snapshots = files.iter().filter(|file| file.txids.is_snapshot());
        let Some(base) = snapshots.max_by_key(|file| (file.txids.max(), file.level)) else {
            let message = format!("no snapshot up to {txid}; {}", reach(catalog));
            return Err(Error::new(ErrorKind::NotFound, message));
        };
        let base = **base;
        let mut plan = vec![base];
        match chain(files, base.txids.max(), txid) {
            Ok(files) => plan.extend(files),
            Err(reached) => return Err(lacking(catalog, reached, txid)),
        }
        let reached = plan.last().map(|last| last.txids.max());
        assert!(base.txids.is_snapshot(), "a chain begins with a snapshot");
        let links = plan.windows(2).all(|pair| pair[1].txids.continues(pair[0].txids));
        assert!(links, "each file of a chain continues the one before");
        assert_eq!(reached, Some(txid), "a chain ends at its target");
        if let Some(fence) = catalog.copy_between(base.txids.max(), txid) {
            return Err(lost_copy(fence));
        }
        while plan.len() > 1 && plan.last().is_some_and(|last| is_fence(catalog, last)) {
            plan.pop();
        }
        Ok(plan)
    }

    /// The files that lead on from the state after `reached` to that after `txid`, oldest first,
    /// without fences at their end: none, when nothing else is behind it. No snapshot is among
    /// them.
    ///
    /// # Errors
    /// As [`Plan::to`], for what only a copy of the whole database leads to.
    pub(crate) fn onward(
        catalog: &Catalog,
        reached: Txid,
        txid: Txid,
    ) -> Result<Vec<ArchivedFile>> {
        let leads = |file: &&ArchivedFile| !file.txids.is_snapshot() && file.txids.max() <= txid;
        let files = catalog.files().iter().filter(leads).collect();
        let plan = chain(files, reached, txid);
        let mut plan = plan.map_err(|reached| lacking(catalog, reached, txid))?;
        if let Some(fence) = catalog.copy_between(reached, txid) {
            return Err(lost_copy(fence));
        }
        while plan.last().is_some_and(|last| is_fence(catalog, last)) {
            plan.pop();
        }
        Ok(plan)
    }

    /// That the state of a time is not kept by itself.
    fn inexact(&self, time: Timestamp) -> Error {
        let Kept { txid, time: of } = self.kept;
        let next = match self.next {
            Some(Kept { txid, time }) => format!("{txid} of {time}"),
            None => "none".into(),
        };
        let message = format!(
            "the state just before {time} is not kept by itself: TXID {txid} of {of} is, and then \
             {next}"
        );
        Error::new(ErrorKind::NotFound, message)
    }

    /// The files, oldest first.
    pub fn files(&self) -> &[ArchivedFile] {
        &self.files
    }

    /// The TXID that is reached.
    pub fn txid(&self) -> Txid {
        self.kept.txid
    }

    /// The state that is reached.
    pub fn kept(&self) -> Kept {
        self.kept
    }

    /// The next state that is kept by itself; `None` when this is the newest.
    pub fn next(&self) -> Option<Kept> {
        self.next
    }

    /// Whether no state was between this one and the [next](Plan::next) that may be the one of the
    /// time that was asked for. Where TXIDs were merged there were some, and before a copy of the
    /// whole database there may have been.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }
}

/// Of `files`, those that lead from `reached` to `txid`, oldest first; or how far they lead.
fn chain(
    mut files: Vec<&ArchivedFile>,
    mut reached: Txid,
    txid: Txid,
) -> Result<Vec<ArchivedFile>, Txid> {
    files.sort_by_key(|file| file.txids.min());
    let mut rest = files.into_iter().peekable();
    let (mut chain, mut best) = (Vec::new(), None::<&ArchivedFile>);
    while reached < txid {
        let begins = |file: &&ArchivedFile| file.txids.min().get() - 1 <= reached.get();
        while let Some(file) = rest.next_if(begins) {
            let reach =
                |file: &ArchivedFile| (file.txids.max(), Reverse(file.txids.min()), file.level);
            best = Some(best.filter(|best| reach(best) >= reach(file)).unwrap_or(file));
        }
        let next = best.filter(|best| best.txids.max() > reached).ok_or(reached)?;
        reached = next.txids.max();
        chain.push(*next);
    }
    Ok(chain)
}

/// Whether it is a fence, which says the state below it again. It may have been set before that was
/// a copy, and say another size.
fn is_fence(catalog: &Catalog, file: &ArchivedFile) -> bool {
    let is_one = file.txids.min() == file.txids.max();
    file.len == Slot::FENCE_LEN && is_one && catalog.has_fence(file.txids.max())
}

/// Those of the lost files that do not say of when they are: the state before is kept, and the time
/// of the next is not known.
fn undated(lost: &[ArchivedFile], store: &dyn Store, layout: &Layout) -> Result<Vec<ArchivedFile>> {
    let mut undated = Vec::new();
    for file in lost {
        match file.header(store, layout) {
            Err(error) if error.lost_file().is_some() => undated.push(*file),
            header => drop(header?),
        }
    }
    Ok(undated)
}

fn located(token: ArchiveToken, store: &dyn Store, layout: &Layout) -> Result<Txid> {
    let record: Option<Record> = leader(store, layout)?;
    let unknown =
        || Error::invalid(format!("{token} says nothing here: there is no leader record"));
    record.ok_or_else(unknown)?.locate(token)
}

/// The oldest state and the newest one that there are.
fn ends(catalog: &Catalog) -> Option<[&ArchivedFile; 2]> {
    let last = |file: &&ArchivedFile| file.txids.max();
    let snapshots = catalog.files().iter().filter(|file| file.txids.is_snapshot());
    Some([snapshots.min_by_key(last)?, catalog.files().iter().max_by_key(last)?])
}

/// What there is instead of a TXID.
fn reach(catalog: &Catalog) -> String {
    match ends(catalog) {
        Some(ends) => {
            let [oldest, newest] = ends.map(|file| file.txids.max());
            format!("the oldest is {oldest}, the newest {newest}")
        }
        None => "no snapshot is there at all, so nothing can be restored".into(),
    }
}

/// That no state from before `time` can be had, and of when those are that can.
fn too_early(
    catalog: &Catalog,
    time: Timestamp,
    store: &dyn Store,
    layout: &Layout,
) -> Result<Error> {
    let kept = match ends(catalog) {
        Some([oldest, newest]) => {
            let time = |file: &ArchivedFile| Ok(file.header(store, layout)?.timestamp);
            format!("the oldest is of {}, the newest of {}", time(oldest)?, time(newest)?)
        }
        None => reach(catalog),
    };
    let message = format!("no state from before {time} is kept; {kept}");
    Ok(Error::new(ErrorKind::NotFound, message))
}

/// That the copy of the database is gone which belongs to this fence.
fn lost_copy(fence: Txid) -> Error {
    let message = format!(
        "the snapshot {}-{fence}.ltx (level {}) is gone: it is a copy of the whole database, and \
         closes a gap in history; bring it back, restore a TXID before {fence}, or open the \
         database with this archive: it uploads a copy of itself",
        Txid::FIRST,
        Level::SNAPSHOTS
    );
    Error::new(ErrorKind::Gap, message)
}

/// Why nothing leads from `reached` to `target`.
fn lacking(catalog: &Catalog, reached: Txid, target: Txid) -> Error {
    let passes = |file: &&ArchivedFile| {
        file.txids.min().get() - 1 <= reached.get() && file.txids.max() > target
    };
    let ends = |file: &&ArchivedFile| file.txids.max() == target;
    let merged = catalog.files().iter().filter(|file| !file.txids.is_snapshot()).find(passes);
    let gap = || {
        let message =
            format!("nothing continues TXID {reached}, which can be restored, towards {target}");
        Error::new(ErrorKind::Gap, message)
    };
    if merged.is_none() && catalog.files().iter().any(|file| ends(&file)) {
        return gap();
    }
    if let Some(file) = merged.or_else(|| catalog.files().iter().find(passes)) {
        let (from, to) = (reached, file.txids.max());
        let message = format!("TXID {target} is not kept by itself any more; {from} and {to} are");
        return Error::new(ErrorKind::NotFound, message);
    }
    if catalog.newest().is_none_or(|newest| newest < target) {
        let message = format!("TXID {target} is not there yet; {}", reach(catalog));
        return Error::new(ErrorKind::NotFound, message);
    }
    gap()
}
