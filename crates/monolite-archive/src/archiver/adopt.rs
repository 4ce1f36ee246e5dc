//! Owns how an operator takes over an archive whose primary is gone, or that another program has
//! written, without opening a database.
//!
//! # Algorithm
//! 1. See who has it: the record must be released or not there, unless the operator says that the
//!    primary is gone. A database that is to be next must be the newest state, page by page: what
//!    it lacks would be undone.
//! 2. Take the next epoch, and set its fence: from here on no other claimant fills a slot. If one
//!    filled a slot since the database was compared, adopting fails.
//! 3. Release the record, which lists the fence: the next primary is one that says `take_over`.
//! 4. Where a database is named that is to be next, write its position record: it is right behind
//!    the fence, and a copy of it comes first.
//!
//! # Not here
//! A look at what Litestream does: its writes are unconditional, and nothing stops it.

use std::fs;
use std::path::{Path, PathBuf};

use monolite_ltx::Txid;

use super::position::{Position, directory_of};
use crate::catalog::Catalog;
use crate::comparison::difference;
use crate::error::{Error, ErrorKind, Result};
use crate::file::ArchivedFile;
use crate::layout::{Layout, Level};
use crate::plan::{Plan, Target};
use crate::protocol::{
    Candidate, Claim, ClaimOutcome, Grounds, Primary, Replicated, Unrecorded, Updated,
};
use crate::random::drawn;
use crate::record::{Epoch, Holder, Lineage, Record, State};
use crate::requests::{Pace, leader, run};
use crate::store::Store;
use crate::wall_clock;

/// What [`adopt`] does about a primary that has not released the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Present {
    /// Leave the archive to it.
    Refuse,
    /// An operator says that it is gone. One that lives on is fenced, and learns so at its next
    /// upload.
    TakeOver,
    /// Likewise, and writes that were acknowledged as replicated and are not archived may be lost.
    TakeOverUnreplicated,
}

/// What came of [`adopt`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The leader record, which is released.
    pub record: Record,
    /// The fence: slots below it are history, and no earlier primary writes behind it.
    pub fence: Txid,
    /// The record before; `None` when another program wrote the archive, or it was lost.
    pub before: Option<Record>,
}

/// Takes over an archive for the next primary. `database` is the file that it will have, which was
/// restored from the archive: opened with it, it is taken for the history's next state without
/// further words, and a copy of it is uploaded first. It is compared with the newest state before,
/// for which the archive is read as for a restore. Without one, who comes next says
/// [`Archive::take_over`](crate::Archive::take_over), the file that was the primary's included.
///
/// **Stop every other writer first**: this fences a Monolite primary, but not Litestream.
///
/// `None` when `pace` wants no more of it; then an epoch may have been taken, which stops a primary
/// and does no other harm.
///
/// # Errors
/// [`NotFound`](ErrorKind::NotFound) when there are no files; [`Fenced`](ErrorKind::Fenced) when
/// there is a primary, or another one came in the same moment; [`Invalid`](ErrorKind::Invalid) when
/// `database` is not there, was archived already, or is not the newest state, with nothing done;
/// those of [`Plan::new`], likewise; `Invalid` when another program wrote while it was compared,
/// with the archive taken over and released; [`Io`](ErrorKind::Io) when its position record cannot
/// be written, with the archive taken over; those of the store that stay.
///
/// # Durability
/// The fence and the record are in the archive, and the position record is on disk.
pub fn adopt(
    store: &dyn Store,
    layout: &Layout,
    present: Present,
    database: Option<&Path>,
    pace: &mut dyn Pace,
) -> Result<Option<Adopted>> {
    let database = database.map(must_be_new).transpose()?;
    let before = leader(store, layout)?;
    if let Some(record) = before.as_ref().filter(|_| present == Present::Refuse) {
        must_be_released(record)?;
    }
    let catalog = Catalog::read(store, layout)?;
    let newest = catalog.files().iter().max_by_key(|file| file.txids.max());
    let newest = newest.ok_or_else(|| {
        let message = "there are no files to take over; check the address";
        Error::new(ErrorKind::NotFound, message)
    })?;
    let compared = newest.txids.max();
    if let Some(database) = &database {
        must_be_newest(store, layout, &catalog, database)?;
    }
    let newest = newest.header(store, layout)?;
    let drawn_lineage = Lineage::from_bits(drawn()?);
    let candidate = Candidate {
        holder: Holder::from_bits(drawn()?),
        lineage: before.as_ref().map_or(drawn_lineage, |record| record.lineage),
        lease: None,
        address: String::new(),
        stream: String::new(),
        page_size: newest.page_size,
        commit: newest.commit.max(1),
        time: wall_clock::now(),
        unrecorded: Unrecorded::Adopt,
        replicated: match present {
            Present::TakeOverUnreplicated => Replicated::MayBeLost,
            Present::Refuse | Present::TakeOver => Replicated::Nothing,
        },
    };
    let claimed = match run(&mut Claim::new(candidate, Grounds::Known), store, layout, pace) {
        None => return Ok(None),
        Some(Ok(ClaimOutcome::Taken(claimed))) => claimed,
        Some(Ok(ClaimOutcome::Lost)) => return Err(lost()),
        Some(Err(error)) => return Err(error),
    };
    let fence = claimed.fence();
    let is_newest = match &database {
        Some(_) => Catalog::read(store, layout)
            .and_then(|catalog| must_be_newest_still(&catalog, compared, fence)),
        None => Ok(()),
    };
    // Of a primary that has not released it something may be left that is not archived.
    let is_next = |before: &Record| before.epoch.0 + 1 == claimed.epoch().0;
    let has_all = before.as_ref().is_none_or(|it| it.state == State::Released && is_next(it));
    let mut primary = Primary::new(*claimed)?;
    primary.carries_to(if has_all { Some(fence) } else { Txid::new(fence.get() - 1) });
    match run(&mut primary.release()?, store, layout, pace) {
        None => Ok(None),
        Some(updated) => match updated? {
            Updated::Done { record, .. } => {
                is_newest?;
                let adopted = Adopted { record: *record, fence, before };
                database.map_or(Ok(()), |database| note(&database, &adopted))?;
                Ok(Some(adopted))
            }
            Updated::Fenced => Err(lost()),
        },
    }
}

fn must_be_released(record: &Record) -> Result<()> {
    if record.state == State::Released {
        return Ok(());
    }
    let who = if record.address.is_empty() { "another process" } else { &record.address };
    let message = format!(
        "{who} is its primary (epoch {}): close it there; or take it over if it is gone for good",
        record.epoch
    );
    Err(Error::new(ErrorKind::Fenced, message))
}

/// The path of a database that is there and was never archived.
fn must_be_new(database: &Path) -> Result<PathBuf> {
    let path = fs::canonicalize(database).ok().filter(|path| path.is_file());
    let path = path.ok_or_else(|| {
        Error::invalid(format!("{} is no file; restore it first", database.display()))
    })?;
    let beside = directory_of(&path);
    // An opening that was refused has left a record as well.
    let was_archived = Position::read(&beside)?.is_none_or(|position| position.epoch > Epoch(0));
    if was_archived && beside.symlink_metadata().is_ok() {
        let message = format!(
            "{} is there: {} is archived already; move it away if that is over",
            beside.display(),
            database.display()
        );
        return Err(Error::invalid(message));
    }
    Ok(path)
}

/// Whether a database is the newest state, and nothing is in a WAL beside it.
fn must_be_newest(
    store: &dyn Store,
    layout: &Layout,
    catalog: &Catalog,
    database: &Path,
) -> Result<()> {
    let mut lost = Vec::new();
    let (plan, difference) = loop {
        let compared = Plan::around(catalog, &lost, Target::Latest, store, layout)
            .and_then(|plan| difference(store, layout, &plan, database).map(|is| (plan, is)));
        match compared {
            // As a restore does.
            Err(error) if error.lost_file().is_some_and(|file| !lost.contains(&file)) => {
                lost.extend(error.lost_file());
            }
            compared => break compared?,
        }
    };
    let mut wal = database.as_os_str().to_owned();
    wal.push("-wal");
    let has_wal = fs::metadata(wal).is_ok_and(|wal| wal.len() > 0);
    let why = match difference {
        None if has_wal => "it has a -wal beside it".to_owned(),
        None => return Ok(()),
        Some(why) => why,
    };
    let message = format!(
        "{} is not the archive's newest state, TXID {}: {why}; restore that to a new file, or \
         open this one with Archive::take_over, which undoes what it lacks",
        database.display(),
        plan.txid()
    );
    Err(Error::invalid(message))
}

/// Whether nothing but fences has come since it was compared, up to our own.
fn must_be_newest_still(catalog: &Catalog, compared: Txid, fence: Txid) -> Result<()> {
    let is_newer = |file: &ArchivedFile| {
        let last = file.txids.max();
        let says_it_again = file.level == Level::SLOTS && catalog.has_fence(last);
        last > compared && last < fence && !says_it_again
    };
    match catalog.files().iter().find(|file| is_newer(file)) {
        Some(file) => {
            let message = format!(
                "another process has written TXID {} meanwhile, and is fenced now: restore the \
                 newest state to a new file, and adopt it for that",
                file.txids.max()
            );
            Err(Error::invalid(message))
        }
        None => Ok(()),
    }
}

/// Writes down that the database comes right behind the fence.
fn note(database: &Path, adopted: &Adopted) -> Result<()> {
    let Adopted { record: Record { lineage, holder, epoch, .. }, fence, .. } = adopted;
    let position = Position::behind_fence(*lineage, *holder, *epoch, *fence, database, None)?;
    position.write(&directory_of(database))
}

fn lost() -> Error {
    Error::new(ErrorKind::Fenced, "another process took the archive in the same moment")
}
