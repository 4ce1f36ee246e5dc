//! Owns the proof of an archive: that every file is what was written, and that they form a chain.

use std::thread;

use monolite_ltx::{TxidRange, Verified, verify as verify_ltx};

use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::file::ArchivedFile;
use crate::layout::{Layout, Level};
use crate::plan::Plan;
use crate::record::{Epoch, Record};
use crate::requests::leader;
use crate::source::FileSource;
use crate::store::Store;

/// What was found in an archive.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Proof {
    /// How many files were read to their ends.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their pages.
    pub pages: u64,
    /// What is wrong, in the order of levels and TXIDs; holes at the end.
    pub problems: Vec<Error>,
    /// Whether the newest state can be restored all the same: what is wrong is in the past, or in
    /// files that a restore goes around.
    pub is_restorable: bool,
}

/// Reads every file of an archive and compares all its sums and its name, and of each slot the
/// epoch that wrote it with the one that it belongs to; then looks whether each snapshot leads to
/// the newest TXID without a hole. `each` is told before a file is read.
///
/// # Errors
/// Those of [`Catalog::read`] and of the store. What is wrong with the archive is in the answer,
/// and so is each file that the store lists and refuses to give. A file that vanishes meanwhile is
/// passed over.
pub fn verify(
    store: &dyn Store,
    layout: &Layout,
    each: &mut dyn FnMut(&ArchivedFile),
) -> Result<Proof> {
    let catalog = Catalog::read(store, layout)?;
    // After the slots: what was listed is behind fences that it lists.
    let record = leader(store, layout)?;
    let mut proof = Proof::default();
    let (mut lost, mut unread) = (Vec::new(), Vec::new());
    for file in catalog.files() {
        each(file);
        match read(store, layout, *file, record.as_ref()) {
            Ok(pages) => {
                proof.files += 1;
                proof.bytes += file.len;
                proof.pages += pages;
            }
            Err(error) => match error.kind() {
                ErrorKind::NotFound => {}
                ErrorKind::Corrupt | ErrorKind::Unsupported => {
                    lost.push(*file);
                    proof.problems.push(error);
                }
                // Others may be read: it is this file that cannot be.
                ErrorKind::Denied | ErrorKind::Io => {
                    unread.push(*file);
                    proof.problems.push(error);
                }
                _ => return Err(error),
            },
        }
    }
    proof.problems.extend(holes(&catalog));
    // A restore goes around what is damaged, and waits for what the store does not give.
    let sound = catalog.without(&lost);
    let is_read = |plan: Vec<ArchivedFile>| !plan.iter().any(|file| unread.contains(file));
    let is_reached = |newest| Plan::to(&sound, newest).is_ok_and(is_read);
    proof.is_restorable = catalog.newest().is_some_and(is_reached);
    Ok(proof)
}

fn read(
    store: &dyn Store,
    layout: &Layout,
    file: ArchivedFile,
    record: Option<&Record>,
) -> Result<u64> {
    let verified = whole(store, layout, file)?;
    if file.level == Level::SLOTS && !file.txids.is_snapshot() {
        check_slot(layout, file, Epoch(verified.header.node_id), record)?;
    }
    Ok(u64::from(verified.pages))
}

/// Reads a file to its end and compares all its sums.
pub(crate) fn verify_file(store: &dyn Store, layout: &Layout, file: ArchivedFile) -> Result<()> {
    whole(store, layout, file).map(drop)
}

fn whole(store: &dyn Store, layout: &Layout, file: ArchivedFile) -> Result<Verified> {
    let verified = thread::scope(|scope| {
        let source = FileSource::new(store, layout, file);
        verify_ltx(source.reading_ahead(scope))
    });
    let verified = verified.map_err(|error| Error::of_ltx(file.key(layout), error))?;
    file.must_have(&verified.header, layout)?;
    Ok(verified)
}

/// Whether a file of level 0 has one TXID, and the epoch that wrote it is the one that has it.
fn check_slot(
    layout: &Layout,
    file: ArchivedFile,
    epoch: Epoch,
    record: Option<&Record>,
) -> Result<()> {
    let (key, txid) = (file.key(layout), file.txids.min());
    if file.txids != TxidRange::single(txid) {
        let message = format!("{key:?} excludes no other slot, having several TXIDs");
        return Err(Error::corrupt(message));
    }
    match record.and_then(|record| record.owner(txid)) {
        Some(owner) if owner != epoch => {
            let message = format!("{key:?} is of epoch {epoch}, in a slot of epoch {owner}");
            Err(Error::corrupt(message))
        }
        _ => Ok(()),
    }
}

/// For each snapshot, whether it leads to the newest TXID, over the copies that are there.
fn holes(catalog: &Catalog) -> Vec<Error> {
    let Some(newest) = catalog.newest() else { return Vec::new() };
    let is_snapshot = |file: &&ArchivedFile| file.txids.is_snapshot();
    let snapshots: Vec<&ArchivedFile> = catalog.files().iter().filter(is_snapshot).collect();
    if snapshots.is_empty() {
        let message = "no snapshot is there, so nothing can be restored";
        return vec![Error::new(ErrorKind::Gap, message)];
    }
    let leads = |base: &&ArchivedFile| {
        let others = catalog.files().iter().filter(|file| !file.txids.is_snapshot());
        let mut files: Vec<ArchivedFile> = others.copied().collect();
        files.push(**base);
        Plan::to(&catalog.with_but_copies(files), newest).err()
    };
    let mut holes: Vec<Error> = snapshots.iter().filter_map(leads).collect();
    // The same one of several snapshots.
    holes.dedup_by_key(|hole| hole.to_string());
    holes
}
