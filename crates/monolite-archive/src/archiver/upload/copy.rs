//! Owns the copy of the whole database that closes a gap in history, and begins an archive.
//!
//! # Algorithm
//! 1. Copy the database to a file beside it; what is committed from then on is kept.
//! 2. Bring that as the snapshot `1-f` of our fence *f*: restores begin there.
//! 3. Fill the next slot with all its pages, too, if anything was archived before. Who follows the
//!    archive slot by slot, as Litestream does, never looks for a new snapshot: it would put what
//!    comes next on the pages of before the gap.
//! 4. Have the record say that the fence has a copy: without that file, nothing leads from before
//!    the fence to what comes next.
//! 5. Go on with what was kept.
//!
//! A slot is one request, and in memory. So a larger database than
//! [`WHOLE_SLOT_BYTES`](crate::archiver::WHOLE_SLOT_BYTES) gets none, and who follows the archive
//! has to begin anew.

use std::fs::{self, File};
use std::io::{BufReader, Read as _};
use std::path::Path;
use std::time::Instant;

use monolite::archive::{Pacer, WalPosition};
use monolite_ltx::{BaseChecksum, Encoder, Header, PageSize, Pgno, Timestamp, Txid, TxidRange};

use super::{Lost, Put, REST, Serving, Uploader};
use crate::archiver::failures::Activity;
use crate::archiver::group::About;
use crate::archiver::position::Place;
use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::file::{beginning, header as decoded};
use crate::layout::Level;
use crate::slot::Slot;

/// After how many pages of a copy it is seen whether a close waits for it, and rested while others
/// write.
const LOOK_PAGES: u32 = 1_024;

/// What came of a copy of the whole database.
pub(super) enum Copied {
    Done,
    /// Something behind it was missed, or its name has another's file. What was uploaded stays
    /// under that name, so another copy goes behind another fence.
    Again,
    Closed,
}

impl Uploader<'_> {
    /// Brings a copy of the whole database, as the state right behind the fence.
    pub(super) fn copy(&self, serving: &mut Serving) -> Result<Copied, Lost> {
        let scratch = self.shared.copy_path();
        let copied = self.copy_to(serving, &scratch);
        self.shared.remove_copy(&scratch);
        copied
    }

    fn copy_to(&self, serving: &mut Serving, scratch: &Path) -> Result<Copied, Lost> {
        let (shared, fence) = (self.shared, serving.txid);
        let since = Instant::now();
        let Some(at) = self.copy_beside(scratch) else { return Ok(Copied::Closed) };
        let place = shared.feed().place_of(at, &|| shared.wal());
        let Some(place) = shared.note(Activity::Copy, place) else { return Ok(Copied::Again) };
        let header = || self.header_of_copy(scratch, serving.time, fence, place);
        let Some(header) = self.until_answered(Activity::Copy, header)? else {
            return Ok(Copied::Closed);
        };
        match self.until_answered(Activity::Copy, || self.bring(scratch, header))? {
            None => return Ok(Copied::Closed),
            Some(false) => return Ok(Copied::Again),
            Some(true) => {}
        }
        (serving.pages, serving.time) = (header.commit, header.timestamp);
        match self.fill_whole(serving, scratch, header)? {
            Copied::Done => {}
            ended => return Ok(ended),
        }
        let whole = serving.txid;
        if self.update(serving, |primary| primary.has_copied(whole))?.is_none() {
            return Ok(Copied::Closed);
        }
        let mut feed = shared.feed();
        if !feed.copied(at, place, since) {
            return Ok(Copied::Again);
        }
        feed.position.base = place;
        // Under the feed's lock, so that no earlier list passes for the present one.
        shared.notices.copied();
        drop(feed);
        let record = || shared.feed().record();
        let Some(()) = self.until_answered(Activity::Copy, record)? else {
            return Ok(Copied::Closed);
        };
        shared.look_back(&shared.feed());
        self.tell(Some(at));
        Ok(Copied::Done)
    }

    /// Copies the database to a file on this disk; `None` when it is closed.
    fn copy_beside(&self, scratch: &Path) -> Option<WalPosition> {
        while !self.is_over() {
            self.shared.remove_copy(scratch);
            self.shared.feed().copies();
            match self.engine.copy(scratch) {
                Ok(at) => return Some(at),
                Err(error) if error.kind() == monolite::ErrorKind::Closed => return None,
                Err(error) => {
                    self.shared.failed(Activity::Copy, &Error::invalid(error.to_string()));
                }
            }
            if !self.rest(REST) {
                break;
            }
        }
        None
    }

    fn header_of_copy(
        &self,
        scratch: &Path,
        before: Timestamp,
        fence: Txid,
        place: Option<Place>,
    ) -> Result<Header> {
        let (page_bytes, _) = self.size()?;
        let bytes = fs::metadata(scratch).map_err(|error| not_read(scratch, error))?.len();
        Ok(Header {
            page_size: PageSize::new(page_bytes).map_err(wrong)?,
            commit: u32::try_from(bytes / u64::from(page_bytes)).unwrap_or(0),
            txids: TxidRange::new(Txid::FIRST, fence).map_err(wrong)?,
            timestamp: self.later(before),
            base: BaseChecksum::Untracked,
            wal: Some(Place::span(place)),
            node_id: 0,
        })
    }

    /// Uploads the copy; false when it cannot be what continues history: something behind it was
    /// missed meanwhile, or there is another file of its name.
    fn bring(&self, scratch: &Path, header: Header) -> Result<bool> {
        let archive = &self.shared.archive;
        let key = archive.layout.file(Level::SNAPSHOTS, header.txids);
        let bytes = u64::from(header.commit) * header.page_size.bytes() as u64;
        let made = archive.store.create_from(&key, bytes, Some(header.timestamp), &mut |output| {
            let mut encoder = Encoder::new(output, header).map_err(wrong)?;
            let mut pacer = Pacer::new(self.shared.durable());
            each_page(scratch, header, |pgno, page| {
                if pgno.get() % LOOK_PAGES == 0 {
                    if !self.shared.feed().is_hurried() {
                        pacer.keep(self.shared.durable());
                    }
                    if self.is_over() || !self.is_copying() {
                        return Err(Error::new(ErrorKind::Lost, "the copy is of no use any more"));
                    }
                }
                encoder.page(pgno, page).map_err(wrong)
            })?;
            encoder.finish(None).map(drop).map_err(wrong)
        });
        match made {
            Ok(_) => Ok(true),
            Err(_) if !self.is_copying() || !scratch.exists() => Ok(false),
            // An answer was lost, or another process has merged files up to the fence.
            Err(error) if error.kind() == ErrorKind::Exists => {
                let found = beginning(archive.store.as_ref(), &key)?;
                let found = found.map(|found| decoded(&key, &found.bytes)).transpose()?;
                Ok(found == Some(header))
            }
            Err(error) => Err(error),
        }
    }

    /// Fills the next slot with all pages of the copy, if that is due.
    fn fill_whole(
        &self,
        serving: &mut Serving,
        scratch: &Path,
        copy: Header,
    ) -> Result<Copied, Lost> {
        let bytes = u64::from(copy.commit) * copy.page_size.bytes() as u64;
        if bytes > self.shared.archive.whole_slot {
            return Ok(Copied::Done);
        }
        let is_followed = || self.is_followed(copy.txids.max());
        match self.until_answered(Activity::Copy, is_followed)? {
            None => return Ok(Copied::Closed),
            Some(false) => return Ok(Copied::Done),
            Some(true) => {}
        }
        // As before any slot: nothing of a generation that the record does not have.
        let record = || self.shared.feed().record();
        if self.until_answered(Activity::Copy, record)?.is_none() {
            return Ok(Copied::Closed);
        }
        match self.fill(serving, &|about| whole(scratch, copy, about)) {
            Ok(Put::Done) => {
                self.stats(|stats| stats.txid = serving.txid.get());
                Ok(Copied::Done)
            }
            Ok(Put::Closed) => Ok(Copied::Closed),
            Ok(Put::Unfit(error)) => Err(error.into()),
            // The copy cannot be read, which a close removes.
            Err(lost) if lost.error.io().is_some() => {
                self.shared.failed(Activity::Copy, &lost.error);
                Ok(Copied::Again)
            }
            Err(lost) => Err(lost),
        }
    }

    /// Whether a reader may follow the files below `fence`: there is a snapshot to begin with. An
    /// archive that cannot be listed may have one.
    fn is_followed(&self, fence: Txid) -> Result<bool> {
        let archive = &self.shared.archive;
        let is_one = |catalog: Catalog| {
            let mut files = catalog.files().iter();
            files.any(|file| file.txids.is_snapshot() && file.txids.max() < fence)
        };
        match Catalog::read(archive.store.as_ref(), &archive.layout).map(is_one) {
            Err(error) if error.is_about_content() => Ok(true),
            listed => listed,
        }
    }

    fn is_copying(&self) -> bool {
        self.shared.feed().is_copying()
    }
}

/// The slot that has all pages of a copy.
fn whole(scratch: &Path, copy: Header, about: About) -> Result<Slot> {
    let header = Header {
        txids: TxidRange::single(about.txid),
        timestamp: about.time,
        node_id: about.epoch.0,
        ..copy
    };
    let mut encoder = Encoder::new(Vec::new(), header).map_err(wrong)?;
    each_page(scratch, header, |pgno, page| encoder.page(pgno, page).map_err(wrong))?;
    Slot::new(encoder.finish(None).map_err(wrong)?.output)
}

/// Reads the pages of a copy, as a file of the archive has them.
fn each_page(
    scratch: &Path,
    header: Header,
    mut each: impl FnMut(Pgno, &[u8]) -> Result<()>,
) -> Result<()> {
    let failed = |error| not_read(scratch, error);
    let mut file = BufReader::with_capacity(1 << 20, File::open(scratch).map_err(failed)?);
    let mut page = vec![0; header.page_size.bytes()];
    for pgno in (1..=header.commit).filter_map(Pgno::new) {
        file.read_exact(&mut page).map_err(failed)?;
        if pgno != header.page_size.lock_page() {
            each(pgno, &page)?;
        }
    }
    Ok(())
}

fn wrong(error: monolite_ltx::Error) -> Error {
    Error::of_ltx("the copy of the database", error)
}

fn not_read(scratch: &Path, error: std::io::Error) -> Error {
    Error::of_io(format!("read {}", scratch.display()), error)
}
