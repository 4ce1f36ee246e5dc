//! Owns the making of a slot out of commits.

use std::collections::BTreeMap;

use monolite::archive::Frames;
use monolite_ltx::{
    BaseChecksum, Encoder, Header, PageSize, Pgno, Timestamp, Txid, TxidRange, WalSpan,
};

use crate::error::{Error, Result};
use crate::record::Epoch;
use crate::slot::Slot;

/// What a slot says besides its pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) epoch: Epoch,
    pub(super) txid: Txid,
    pub(super) time: Timestamp,
    /// Size of the database in pages before it.
    pub(super) pages_before: u32,
}

/// The slot of these commits: of each page the last version, as far as the database still has the
/// page.
///
/// # Errors
/// [`Corrupt`](crate::ErrorKind::Corrupt) when the commits do not have all pages by which the
/// database has grown, so that no chain with them could be restored.
pub(super) fn encode(frames: &Frames, about: About) -> Result<Slot> {
    let wrong = |error| Error::of_ltx(format!("slot {}", about.txid), error);
    let page_bytes = u32::try_from(frames.page_bytes()).unwrap_or(0);
    let page_size = PageSize::new(page_bytes).map_err(wrong)?;
    let (commit, lock) = (frames.commit(), page_size.lock_page());
    let mut pages = BTreeMap::new();
    for frame in frames.iter() {
        if let Some(pgno) = Pgno::new(frame.pgno).filter(|_| frame.pgno <= commit) {
            pages.insert(pgno, frame.page);
        }
    }
    pages.remove(&lock);
    let grown = (about.pages_before.saturating_add(1)..=commit).filter_map(Pgno::new);
    if let Some(missing) = grown.filter(|pgno| *pgno != lock).find(|it| !pages.contains_key(it)) {
        let message = format!("the commits do not have the new page {missing}");
        return Err(Error::corrupt(message));
    }
    let header = Header {
        page_size,
        commit,
        txids: TxidRange::single(about.txid),
        timestamp: about.time,
        base: BaseChecksum::Untracked,
        wal: Some(WalSpan {
            offset: frames.from(),
            size: frames.to() - frames.from(),
            salts: frames.salts(),
        }),
        node_id: about.epoch.0,
    };
    let mut encoder = Encoder::new(Vec::new(), header).map_err(wrong)?;
    for (pgno, page) in pages {
        encoder.page(pgno, page).map_err(wrong)?;
    }
    Slot::new(encoder.finish(None).map_err(wrong)?.output)
}
