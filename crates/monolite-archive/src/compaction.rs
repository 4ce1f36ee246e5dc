//! Owns the levels: files merged into fewer, and snapshots made of files.
//!
//! # Algorithm
//! A file of a level is made of the files of the level below that begin after its end, as
//! Litestream's are, so that either continues the other's. They must follow each other from there
//! on. Its name is created if it is absent; if it is there, somebody made it of the same files.
//!
//! # Invariants
//! Levels stay aligned: no file of a level reaches across the end of one above it.

use monolite_ltx::{Timestamp, Txid, TxidRange, compact};

use crate::catalog::{ArchivedFile, Catalog};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Layout, Level};
use crate::plan::Plan;
use crate::source::{FileSource, Pieces};
use crate::store::{Part, Store};

/// How many files are merged at a time: 64 KiB and two pages of memory each. Those of 30 seconds
/// are 30.
const INPUTS: usize = 256;

/// The time that a file of levels 1 to 3 covers, and a snapshot, in milliseconds. They are
/// Litestream's.
const SPANS: [(u8, i64); 4] = [(1, 30_000), (2, 300_000), (3, 3_600_000), (9, 86_400_000)];

/// When the present span of a level began, at `now`: files before it are to be merged into the
/// level. `None` for levels that are not made by the clock.
pub fn span_start(level: Level, now: Timestamp) -> Option<Timestamp> {
    let (_, span) = SPANS.iter().find(|(of, _)| *of == level.get())?;
    let start = now.millis().div_euclid(*span).saturating_mul(*span);
    Some(Timestamp::from_millis(start))
}

/// Merges files of the level below `level` into the next file of `level`: those with a time before
/// `before`, or all. `None` when there are none; more may be left.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid) for a level that is not made of the one below;
/// [`Gap`](ErrorKind::Gap) when files do not follow each other; those of reading and of the store,
/// after which the file may be there.
pub fn compact_level(
    store: &dyn Store,
    layout: &Layout,
    level: Level,
    before: Option<Timestamp>,
) -> Result<Option<ArchivedFile>> {
    let below = level.below().ok_or_else(|| {
        Error::invalid(format!("level {level} is not made of the level below it"))
    })?;
    let catalog = Catalog::read(store, layout)?;
    let newest = |level| catalog.level(level).iter().map(|file| file.txids.max()).max();
    // A level that begins needs nothing that a snapshot has.
    let end = newest(level).or_else(|| newest(Level::SNAPSHOTS));
    let inputs = following(catalog.level(below), end)?;
    let mut taken = Vec::new();
    for file in inputs {
        if let Some(before) = before
            && file.header(store, layout)?.timestamp >= before
        {
            break;
        }
        taken.push(file);
    }
    if taken.is_empty() { Ok(None) } else { merge(store, layout, level, &taken).map(Some) }
}

/// Merges what is needed for the state after `txid` into a snapshot.
///
/// # Errors
/// Those of [`Plan::new`], of reading and of the store, after which it may be there.
pub fn snapshot(store: &dyn Store, layout: &Layout, txid: Txid) -> Result<ArchivedFile> {
    let plan = Plan::to(&Catalog::read(store, layout)?, txid)?;
    merge(store, layout, Level::SNAPSHOTS, plan.files())
}

/// The files that begin after `end`, as many as are merged at a time.
fn following(files: &[ArchivedFile], end: Option<Txid>) -> Result<Vec<ArchivedFile>> {
    let (mut following, mut before) = (Vec::new(), end);
    for file in files.iter().filter(|file| end.is_none_or(|end| file.txids.max() > end)) {
        let (min, max) = (file.txids.min(), file.txids.max());
        if let Some(before) = before
            && before.next() != Some(min)
        {
            let message = format!("{} does not begin right after {before}", file.txids);
            return Err(Error::new(ErrorKind::Gap, message));
        }
        following.push(*file);
        before = Some(max);
        if following.len() == INPUTS {
            break;
        }
    }
    Ok(following)
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
    let created = store.create_from(&key, Some(time), &mut |output| {
        let sources =
            inputs.iter().map(|file| FileSource::new(store, layout, *file, Pieces::Small));
        compact(sources, output).map_err(|error| Error::of_ltx(&key, error)).map(drop)
    });
    match created {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::Exists => {}
        Err(error) => return Err(error),
    }
    let object = store.get(&key, Part::End(0))?;
    let file = |len| ArchivedFile { level, txids, len };
    object.map(|object| file(object.len)).ok_or_else(|| file(0).vanished(layout))
}
