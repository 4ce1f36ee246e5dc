//! Owns which files a restore needs.
//!
//! # Algorithm
//! The newest snapshot that does not go past the target; then again and again, among the files that
//! begin at most one TXID after what is reached, the one that reaches furthest without passing the
//! target; of several the one that begins earlier, then the one of the higher level. It is
//! Litestream's.
//!
//! # Invariants
//! A plan ends exactly at its target. A hole is an error, and so is a target that only exists
//! within a merged file; there is never a shorter result.

use std::cmp::Reverse;

use monolite_ltx::{Timestamp, Txid};

use crate::catalog::{ArchivedFile, Catalog};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::store::Store;

/// What is to be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything.
    Latest,
    /// The state after this TXID.
    Txid(Txid),
    /// The state just before this time: after the last TXID with an earlier one.
    Before(Timestamp),
}

/// Files that give a state, when applied in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    files: Vec<ArchivedFile>,
    txid: Txid,
}

impl Plan {
    /// The files for `target`.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) when there is no such state, or no longer exactly;
    /// [`Gap`](ErrorKind::Gap); those of [`Catalog::newest_before`].
    pub fn new(
        catalog: &Catalog,
        target: Target,
        store: &dyn Store,
        layout: &Layout,
    ) -> Result<Plan> {
        let not_found = |what: &str| Error::new(ErrorKind::NotFound, what);
        let txid = match target {
            Target::Txid(txid) => txid,
            Target::Latest => catalog.newest().ok_or_else(|| not_found("no files are there"))?,
            Target::Before(time) => {
                let newest = catalog.newest_before(time, store, layout)?;
                newest.ok_or_else(|| not_found(&format!("nothing is older than {time}")))?
            }
        };
        Plan::to(catalog, txid)
    }

    /// The files for the state after `txid`.
    pub(crate) fn to(catalog: &Catalog, txid: Txid) -> Result<Plan> {
        let mut files: Vec<&ArchivedFile> =
            catalog.files().iter().filter(|file| file.txids.max() <= txid).collect();
        let snapshots = files.iter().filter(|file| file.txids.is_snapshot());
        let Some(base) = snapshots.max_by_key(|file| (file.txids.max(), file.level)) else {
            let message = format!("no snapshot up to {txid}");
            return Err(Error::new(ErrorKind::NotFound, message));
        };
        let (mut plan, mut reached) = (vec![**base], base.txids.max());
        files.sort_by_key(|file| file.txids.min());
        let mut rest = files.into_iter().peekable();
        let mut best: Option<&ArchivedFile> = None;
        while reached < txid {
            let begins = |file: &&ArchivedFile| file.txids.min().get() - 1 <= reached.get();
            while let Some(file) = rest.next_if(begins) {
                let reach =
                    |file: &ArchivedFile| (file.txids.max(), Reverse(file.txids.min()), file.level);
                best = Some(best.filter(|best| reach(best) >= reach(file)).unwrap_or(file));
            }
            match best.filter(|best| best.txids.max() > reached) {
                Some(best) => {
                    reached = best.txids.max();
                    plan.push(*best);
                }
                None => return Err(lacking(catalog, reached, txid)),
            }
        }
        Ok(Plan { files: plan, txid })
    }

    /// The files, oldest first.
    pub fn files(&self) -> &[ArchivedFile] {
        &self.files
    }

    /// The TXID that is reached.
    pub fn txid(&self) -> Txid {
        self.txid
    }
}

/// Why nothing leads from `reached` to `target`.
fn lacking(catalog: &Catalog, reached: Txid, target: Txid) -> Error {
    let passes = |file: &&ArchivedFile| {
        file.txids.min().get() - 1 <= reached.get() && file.txids.max() > target
    };
    if let Some(file) = catalog.files().iter().find(passes) {
        let (from, to) = (reached, file.txids.max());
        let message = format!("TXID {target} is not kept by itself any more; {from} and {to} are");
        return Error::new(ErrorKind::NotFound, message);
    }
    if catalog.newest().is_none_or(|newest| newest < target) {
        return Error::new(ErrorKind::NotFound, format!("TXID {target} is not there yet"));
    }
    Error::new(ErrorKind::Gap, format!("nothing continues TXID {reached} towards {target}"))
}
