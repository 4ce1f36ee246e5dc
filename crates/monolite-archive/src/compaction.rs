//! Owns the levels: files merged into fewer, and snapshots made of files.
//!
//! # Algorithm
//! A file of a level is made of the files of the level below that begin after its end, as
//! Litestream's are, so that either continues the other's. They must follow each other from there
//! on. Its name is created only if absent; an existing one was made of the same files.
//!
//! Two compactors that listed at different times make files that overlap (`2-20` and `2-25`), and a
//! level that begins after a snapshot meets a file across the snapshot's end. So, as in a restore,
//! of the files that begin at most one TXID after what is reached the one is taken that reaches
//! furthest, and what reaches no further is passed over. What two files have both is equal.
//!
//! Where files are missing, a level goes on up to the hole; and then, if a later snapshot ends
//! behind the hole, with what follows that. What lies in between leads to nothing any more.
//!
//! The copy of a whole database that a primary has put behind its fence may differ in any page from
//! the state below: history has a gap there, and what was before must not be applied behind it. So
//! files end before such a fence, and begin anew behind it ([`Gaps`]). No snapshot is made of the
//! state at a fence: its name is the primary's.
//!
//! # Invariants
//! No file is made across a gap.
//! Of one compactor levels stay aligned: no file of a level reaches across the end of one above it.

use std::collections::HashSet;
use std::thread;

use monolite_ltx::{Timestamp, Txid, TxidRange, compact as merge_files};

use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::file::{ArchivedFile, vanished};
use crate::layout::{Layout, Level};
use crate::plan::Plan;
use crate::source::FileSource;
use crate::store::{Part, Store};

/// How many files are merged at a time: 64 KiB and two pages of memory each, but for a snapshot
/// among them, which takes 20 MiB. Those of 30 seconds are 30.
const INPUTS: usize = 256;

/// The time that a file of levels 1 to 3 covers, in milliseconds. They are Litestream's.
pub(crate) const SPANS: [(Level, u32); 3] =
    [(Level::FIRST, 30_000), (Level::SECOND, 300_000), (Level::THIRD, 3_600_000)];

/// When the span began that `time` is in.
fn span_start(span: u32, time: Timestamp) -> Timestamp {
    let span = i64::from(span);
    Timestamp::from_millis(time.millis().div_euclid(span).saturating_mul(span))
}

/// Merges into levels 1 to 3 what is of an earlier span than the newest file, by the times of the
/// files: no clock is read, so every process makes the same files. Returns the files that were
/// made. `catalog` says which files there are, and gets the new ones. Nothing is listed.
///
/// # Errors
/// Those of [`compact_level`], and of reading the newest file. Files that were made stay, and
/// another call goes on.
///
/// # Cancellation
/// An error of the store ends it, and nothing is left of the file that was being made.
pub fn compact(
    store: &dyn Store,
    layout: &Layout,
    catalog: &mut Catalog,
) -> Result<Vec<ArchivedFile>> {
    let mut made = Vec::new();
    for (level, span) in SPANS {
        while let Some(file) = compact_span(store, layout, catalog, level, span, None)? {
            made.push(file);
        }
    }
    Ok(made)
}

/// Merges files of the level below `level` into the next file of `level`: those of one span, by
/// their times, if it is over. It is when a file of a later span is there; and for what is not
/// behind `over`, whatever the times say.
pub(crate) fn compact_span(
    store: &dyn Store,
    layout: &Layout,
    catalog: &mut Catalog,
    level: Level,
    span: u32,
    over: Option<Txid>,
) -> Result<Option<ArchivedFile>> {
    let newest = catalog.files().iter().max_by_key(|file| file.txids.max());
    let Some(newest) = newest else { return Ok(None) };
    let newest = span_start(span, newest.header(store, layout)?.timestamp);
    let mut taken: Vec<ArchivedFile> = Vec::new();
    let mut first = None;
    for file in inputs(catalog, level)? {
        let start = span_start(span, file.header(store, layout)?.timestamp);
        let is_over = start < newest || over.is_some_and(|over| file.txids.max() <= over);
        if !is_over || start != *first.get_or_insert(start) {
            break;
        }
        taken.push(file);
    }
    put(store, layout, catalog, level, &taken)
}

/// Merges files of the level below `level` into the next file of `level`: those with a time before
/// `before`, or all. `None` when there are none; more may be left. `catalog` says which files there
/// are, and gets the new one. Nothing is listed.
///
/// # Errors
/// [`NotFound`](ErrorKind::NotFound) when a file is gone that `catalog` has, as another process
/// deletes, too; read it anew. [`Invalid`](ErrorKind::Invalid) for a level that is not made of the
/// one below; [`Gap`](ErrorKind::Gap) when files do not follow each other, and no snapshot ends
/// behind the hole; those of reading and of the store, after which the file may be there.
pub fn compact_level(
    store: &dyn Store,
    layout: &Layout,
    catalog: &mut Catalog,
    level: Level,
    before: Option<Timestamp>,
) -> Result<Option<ArchivedFile>> {
    let mut taken = inputs(catalog, level)?;
    if let Some(before) = before {
        for (at, file) in taken.iter().enumerate() {
            if file.header(store, layout)?.timestamp >= before {
                taken.truncate(at);
                break;
            }
        }
    }
    put(store, layout, catalog, level, &taken)
}

/// The files that are to be merged next into `level`.
pub(crate) fn inputs(catalog: &Catalog, level: Level) -> Result<Vec<ArchivedFile>> {
    let below = level.below().ok_or_else(|| {
        Error::invalid(format!("level {level} is not made of the level below it"))
    })?;
    let newest = |level| catalog.level(level).iter().map(|file| file.txids.max()).max();
    // A level that begins needs nothing that a snapshot has.
    let mut end = newest(level).or_else(|| newest(Level::SNAPSHOTS));
    let gaps = Gaps::of(catalog);
    let mut inputs = loop {
        match following(catalog.level(below), end) {
            (none, Some(behind)) if none.is_empty() => end = Some(closing(catalog, &behind)?),
            (inputs, _) => break inputs,
        }
    };
    let gap = inputs.iter().skip(1).position(|file| gaps.are_before(file));
    inputs.truncate(gap.map_or(inputs.len(), |at| at + 1));
    Ok(inputs)
}

/// Makes the next file of a level, if there is something to make it of.
fn put(
    store: &dyn Store,
    layout: &Layout,
    catalog: &mut Catalog,
    level: Level,
    inputs: &[ArchivedFile],
) -> Result<Option<ArchivedFile>> {
    if inputs.is_empty() {
        return Ok(None);
    }
    let made = merge(store, layout, level, inputs)?;
    catalog.insert(made);
    Ok(Some(made))
}

/// Merges what is needed for the state after `txid` into a snapshot. At a fence that is the state
/// below it, unless the fence has a snapshot: under its name the primary may be about to bring a
/// copy of the database. Where that is more than 256 files, as when levels were not made, it is
/// done in steps: each makes a snapshot of an earlier TXID, which stays as any does. `catalog` says
/// which files there are, and gets the new ones. Nothing is listed.
///
/// # Errors
/// Those of [`Plan::new`], of reading and of the store, after which it may be there.
/// [`NotFound`](ErrorKind::NotFound), also when a file is gone that `catalog` has: read it anew.
pub fn snapshot(
    store: &dyn Store,
    layout: &Layout,
    catalog: &mut Catalog,
    txid: Txid,
) -> Result<ArchivedFile> {
    let plan = Plan::to(catalog, snapshot_at(catalog, txid))?;
    let Some((base, mut rest)) = plan.split_first() else {
        return Err(Error::invalid("a plan without files"));
    };
    let mut made = *base;
    loop {
        let (some, later) = rest.split_at(rest.len().min(INPUTS - 1));
        let inputs: Vec<ArchivedFile> = [made].into_iter().chain(some.iter().copied()).collect();
        made = merge(store, layout, Level::SNAPSHOTS, &inputs)?;
        catalog.insert(made);
        if later.is_empty() {
            return Ok(made);
        }
        rest = later;
    }
}

/// Of which TXID the snapshot is that [`snapshot`] makes for `txid`: the newest up to it that is no
/// fence, or has a snapshot.
pub fn snapshot_at(catalog: &Catalog, mut txid: Txid) -> Txid {
    let has_snapshot =
        |txid| catalog.level(Level::SNAPSHOTS).iter().any(|it| it.txids.max() == txid);
    while catalog.has_fence(txid)
        && !has_snapshot(txid)
        && let Some(below) = Txid::new(txid.get() - 1)
    {
        txid = below;
    }
    txid
}

/// Where history may have gaps: at a fence that has a copy by the record, or a snapshot; or that
/// may have had one of before the record said so, and it was deleted. Snapshots are deleted from
/// the oldest on, so such a fence is not behind the oldest that is there.
struct Gaps<'a> {
    catalog: &'a Catalog,
    snapshots: HashSet<Txid>,
    oldest: Option<Txid>,
}

impl Gaps<'_> {
    fn of(catalog: &Catalog) -> Gaps<'_> {
        let snapshots: HashSet<_> =
            catalog.level(Level::SNAPSHOTS).iter().map(|file| file.txids.max()).collect();
        Gaps { catalog, oldest: snapshots.iter().min().copied(), snapshots }
    }

    /// Whether there may be one right before `file`, or it is right behind the fence of one, which
    /// stays alone: the copy may even have pages of another size.
    fn are_before(&self, file: &ArchivedFile) -> bool {
        let begin = file.txids.min();
        let below = Txid::new(begin.get() - 1);
        self.are_at(begin) || below.is_some_and(|below| self.are_at(below))
    }

    fn are_at(&self, txid: Txid) -> bool {
        let may_have_one = self.oldest.is_none_or(|oldest| txid <= oldest);
        let has_one = may_have_one || self.snapshots.contains(&txid);
        self.catalog.has_copy(txid) || has_one && self.catalog.has_fence(txid)
    }
}

/// The files of a level that lead on from `end`, or from the first of them, as many as are merged
/// at a time; and the one behind a hole, if they end at one.
fn following(
    files: &[ArchivedFile],
    end: Option<Txid>,
) -> (Vec<ArchivedFile>, Option<ArchivedFile>) {
    let before_first = || files.first().map_or(0, |first| first.txids.min().get() - 1);
    let mut reached = end.map_or_else(before_first, Txid::get);
    let further = files.iter().filter(|file| end.is_none_or(|end| file.txids.max() > end));
    let mut further = further.peekable();
    let mut following = Vec::new();
    while following.len() < INPUTS {
        let begins = |file: &&ArchivedFile| file.txids.min().get() - 1 <= reached;
        let begun = std::iter::from_fn(|| further.next_if(begins));
        let furthest = begun.max_by_key(|file| file.txids.max());
        let Some(file) = furthest.filter(|file| file.txids.max().get() > reached) else { break };
        reached = file.txids.max().get();
        following.push(*file);
    }
    let behind = (following.len() < INPUTS).then(|| further.next().copied()).flatten();
    (following, behind)
}

/// Where the oldest snapshot ends that closes the hole before `behind`.
fn closing(catalog: &Catalog, behind: &ArchivedFile) -> Result<Txid> {
    let ends = catalog.level(Level::SNAPSHOTS).iter().map(|file| file.txids.max());
    let closing = ends.filter(|end| end.get() >= behind.txids.min().get() - 1).min();
    closing.ok_or_else(|| {
        let message = format!(
            "level {} lacks the files before {}, and no later snapshot is there: a database that \
             is open with this archive uploads one when it finds that",
            behind.level, behind.txids
        );
        Error::new(ErrorKind::Gap, message)
    })
}

/// Writes one file of all `inputs`, which follow each other.
fn merge(
    store: &dyn Store,
    layout: &Layout,
    level: Level,
    inputs: &[ArchivedFile],
) -> Result<ArchivedFile> {
    let (Some(first), Some(last)) = (inputs.first(), inputs.last()) else {
        return Err(Error::invalid("no files to merge"));
    };
    let txids = TxidRange::new(first.txids.min(), last.txids.max());
    let txids = txids.map_err(|error| Error::of_ltx("a merged file", error))?;
    let time = last.header(store, layout)?.timestamp;
    let key = layout.file(level, txids);
    // Pages that several have are in it once; only its index may take more.
    let about = inputs.iter().fold(0, |sum: u64, file| sum.saturating_add(file.len));
    let created = store.create_from(&key, about, Some(time), &mut |output| {
        thread::scope(|scope| {
            let sources = inputs.iter().map(|file| {
                let source = FileSource::new(store, layout, *file);
                // One of all pages among many of some.
                if file.txids.is_snapshot() { source.reading_ahead(scope) } else { source }
            });
            let merged = merge_files(sources, output)
                .map_err(|error| Error::of_ltx(format!("merge into {key}"), error))?;
            // The names are trusted when files are deleted.
            if merged.header.txids != txids {
                let is = merged.header.txids;
                let message = format!("merge into {key}: the files have the TXIDs {is}");
                return Err(Error::corrupt(message));
            }
            Ok(())
        })
    });
    match created {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::Exists => {}
        Err(error) => return Err(error),
    }
    let object = store.get(&key, Part::End(0))?;
    let len = object.ok_or_else(|| vanished(&key))?.len;
    Ok(ArchivedFile { level, txids, len })
}
