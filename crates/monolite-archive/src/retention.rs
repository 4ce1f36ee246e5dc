//! Owns what may be deleted.
//!
//! # Algorithm
//! The caller names the TXIDs up to which everything is older than it is kept ([`Horizon`]), by
//! time that was seen to pass; no clock is looked at. The oldest moment that is kept has a
//! **base**: the newest snapshot up to that TXID, or the oldest of all. What ends at the base or
//! before it goes, but for the base itself. Of slots those go that are older than slots are kept
//! and that a file of a level, or the base, covers. Of those up to the base the first level may
//! not have all yet, and goes on where it ends: what lies behind its end stays. Once the level has
//! no files it begins behind the newest snapshot.
//!
//! # Invariants
//! After a plan is made it is tried: without what it deletes, the base and the newest TXID can
//! still be restored. Neither the newest snapshot nor a fence is ever in a plan. Slots are deleted
//! by the primary alone, after a renewal ([`Primary::delete`](crate::internals::Primary::delete));
//! deleting the rest needs no fence.

use std::time::Duration;

use monolite_ltx::Txid;

use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::file::ArchivedFile;
use crate::layout::{Layout, Level};
use crate::plan::Plan;
use crate::protocol::Covered;
use crate::slot::Slot;
use crate::store::Store;

/// For how long things are kept, in time during which the database was open with its archive. While
/// it is closed nothing grows older, and the wall clock says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Slots, and with them every TXID by itself. Must be longer than a process can be suspended
    /// and go on.
    pub slots: Duration,
    /// Snapshots, and with them what follows them.
    pub snapshots: Duration,
}

impl Default for Keep {
    /// An hour and 30 days.
    fn default() -> Keep {
        let hour = Duration::from_secs(3600);
        Keep { slots: hour, snapshots: hour * 24 * 30 }
    }
}

/// Up to which TXIDs things are older than they are kept; `None` where nothing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Horizon {
    /// Slots.
    pub slots: Option<Txid>,
    /// Snapshots, and what follows them.
    pub snapshots: Option<Txid>,
}

/// What may be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Files of levels and snapshots, from the highest level down and the oldest of each first: a
    /// level goes on where it ends, so the files behind its end must not go before it has.
    pub files: Vec<ArchivedFile>,
    /// Slots, for [`Primary::delete`](crate::internals::Primary::delete).
    pub slots: Vec<Covered>,
}

impl Retention {
    /// Returns which files of `catalog` may go. Nothing is read or listed;
    /// [remove](Catalog::remove) deleted files from it. Where another process or an operator may
    /// have deleted files, read it anew before: this trusts that its files are there.
    ///
    /// **A process that is copied and sleeps for longer than slots are kept** (a virtual machine
    /// set back to an old state) can fill a slot that was filled and deleted since, and acknowledge
    /// it. Do not bring such copies back, or keep slots for longer than that takes.
    ///
    /// # Errors
    /// [`Gap`](ErrorKind::Gap) when the chain has a hole, in which case nothing may be deleted.
    pub fn new(catalog: &Catalog, horizon: Horizon) -> Result<Retention> {
        let count_old = |files: &[ArchivedFile], until: Option<Txid>| {
            files.partition_point(|file| until.is_some_and(|until| file.txids.max() <= until))
        };
        let snapshots = catalog.level(Level::SNAPSHOTS);
        if snapshots.is_empty() {
            return Ok(Retention::default());
        }
        let base = snapshots[count_old(snapshots, horizon.snapshots).saturating_sub(1)];
        let slots = catalog.level(Level::SLOTS);
        let old = count_old(slots, horizon.slots);
        let level_end = catalog.level(Level::FIRST).iter().map(|file| file.txids.max()).max();
        let until = level_end.map_or(base.txids.max(), |end| end.min(base.txids.max()));
        let covering = |slot: &ArchivedFile| covering(catalog, &base, until, slot);
        let may_go = |slot: &ArchivedFile| {
            let (txid, len) = (slot.txids.min(), slot.len);
            let by = covering(slot).filter(|_| len > Slot::FENCE_LEN)?.txids;
            Some(Covered { txid, len, by })
        };
        let slots: Vec<Covered> = slots[..old].iter().filter_map(may_go).collect();
        let are_covered = slots.iter().all(|slot| slot.by.contains(slot.txid));
        assert!(are_covered, "a slot goes when another file has its pages");
        let is_over = |file: &&ArchivedFile| {
            file.level != Level::SLOTS && file.txids.max() <= base.txids.max() && **file != base
        };
        let levels = Level::all().rev().flat_map(|level| catalog.level(level));
        let files = levels.filter(is_over).copied().collect();
        let retention = Retention { files, slots };
        retention.try_without(catalog, &base)?;
        Ok(retention)
    }

    /// Whether what is left can be restored.
    fn try_without(&self, catalog: &Catalog, base: &ArchivedFile) -> Result<()> {
        let goes = |file: &ArchivedFile| match file.level {
            Level::SLOTS => {
                self.slots.binary_search_by_key(&file.txids.min(), |slot| slot.txid).is_ok()
            }
            _ => file.txids.max() <= base.txids.max() && file != base,
        };
        let left = catalog.files().iter().filter(|file| !goes(file)).copied().collect();
        let left = catalog.with(left);
        let newest = catalog.newest().unwrap_or(base.txids.max());
        for txid in [base.txids.max(), newest] {
            Plan::to(&left, txid).map_err(|error| {
                let message = format!("nothing may be deleted: without it, {error}");
                Error::new(ErrorKind::Gap, message)
            })?;
        }
        Ok(())
    }

    /// Deletes the files, not the slots; returns how many.
    ///
    /// # Errors
    /// Those of the store. Some may be deleted then; another plan finds the rest.
    pub fn delete_files(&self, store: &dyn Store, layout: &Layout) -> Result<usize> {
        for file in &self.files {
            store.delete(&file.key(layout))?;
        }
        Ok(self.files.len())
    }
}

/// A file that has what the slot has, and stays: of a level above the base, or the base itself for
/// slots up to `until`.
fn covering<'a>(
    catalog: &'a Catalog,
    base: &'a ArchivedFile,
    until: Txid,
    slot: &ArchivedFile,
) -> Option<&'a ArchivedFile> {
    let txid = slot.txids.max();
    if txid <= until {
        return Some(base);
    }
    (Level::FIRST.get()..=Level::LAST.get()).filter_map(Level::new).find_map(|level| {
        let files = catalog.level(level);
        let at = files.partition_point(|file| file.txids.max() < txid);
        files.get(at).filter(|file| file.txids.contains(slot.txids.min()))
    })
}
