//! Owns how the file of a former primary becomes one that follows, without that anything is lost
//! which it alone has: its *orphan*. A replica that does not know any more what it has leaves one,
//! too.
//!
//! # Format
//! `<database>.orphan-<epoch>-<TXID>.ltx`: an LTX file of the pages that differ from the state
//! after that TXID, which is the last that the file and history have in common; epoch of the
//! primary it was in the header, the TXID behind as its own, and half of the lineage's bits in the
//! place of the salts. Where that state is not kept by itself any more, a snapshot: all pages of
//! the file.
//!
//! # Algorithm
//! 1. The file must not be the primary's by the leader record. All that it has archived is below
//!    the fence of the first later epoch: slots of its own come no later.
//! 2. Bring its WAL into the file, which shows that no process has it open.
//! 3. Restore the state below that fence beside it, and write what differs to the orphan.
//! 4. Put the restored file in place, unless nothing differs; note where it follows from; and
//!    remove the record by which it was a primary's.
//!
//! # Invariants
//! - Nothing is replaced before the orphan is on disk under its name, and no orphan is overwritten.
//! - Until the last step the file is a former primary's, and all of it is done again after a kill.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use monolite::Options;
use monolite::archive::WAL_HEADER_BYTES;
use monolite::archive::names::with_ending;
use monolite_ltx::{
    BaseChecksum, Decoder, Encoder, Header, Pgno, Timestamp, Txid, TxidRange, WalSpan,
};

use super::page_size_of;
use super::place::{Place, scratch_of};
use crate::archiver::Archive;
use crate::archiver::position::{Position, directory_of};
use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::owner::give_to_owner_of;
use crate::plan::Target;
use crate::record::{Epoch, Lineage, Record, State};
use crate::requests::leader;
use crate::restore::{Restored, restore};
use crate::store::sync_directory;

const NO_RECORD: &str = "there is no leader record";
const NO_FILES: &str = "no files are there";

/// Has the file at `path`, which was that of `position`, follow the archive; its orphan, if there
/// is one.
pub(super) fn rejoin(
    archive: &Archive,
    path: &Path,
    position: &Position,
) -> Result<Option<PathBuf>> {
    let (store, layout) = (&*archive.store, &archive.layout);
    let record = leader(store, layout)?;
    let record = record.ok_or_else(|| Error::new(ErrorKind::NotFound, NO_RECORD))?;
    let fence = successor(&record, position, path)?;
    empty_wal(path)?;
    let common = match fence {
        Some(fence) => Txid::new(fence.get() - 1),
        None => Catalog::read(store, layout)?.newest(),
    };
    let common = common.ok_or_else(|| Error::new(ErrorKind::NotFound, NO_FILES))?;
    let base = scratch_of(path);
    let restored = restored(archive, common, &base)?;
    let (epoch, lineage) = (position.epoch, record.lineage);
    let orphan = Orphan { path, epoch, lineage, common, restored: restored.as_ref() };
    let has_orphan = orphan.write(&base)?;
    if has_orphan && fence.is_none() {
        remove(&orphan.name())?;
        let message = format!(
            "{} has commits that were not archived: open it with its archive, which uploads them",
            path.display()
        );
        return Err(Error::invalid(message));
    }
    let mut place = Place::nowhere(Some(record.lineage));
    if restored.is_some() {
        if has_orphan {
            let renamed = fs::rename(&base, path);
            renamed.map_err(|error| Error::of_io(format!("replace {}", path.display()), error))?;
            sync_directory(path.parent().unwrap_or(Path::new("/")))?;
        }
        let from = record.below_fences(common).get();
        (place.from, place.to) = (from, from);
    }
    place.write(path)?;
    Position::forget(&directory_of(path))?;
    remove(&base)?;
    Ok(Some(orphan.name()).filter(|name| name.exists()))
}

/// Keeps what the file at `path` has, which follows and does not know any more what that is: its
/// orphan, if it differs from the newest state. Where the record does not list it as a replica,
/// others have all that was acknowledged, and none is written.
pub(super) fn without_marker(
    archive: &Archive,
    path: &Path,
    place: &Place,
) -> Result<Option<PathBuf>> {
    let (store, layout) = (&*archive.store, &archive.layout);
    let record = leader(store, layout)?
        .filter(|record| place.replica.is_some_and(|replica| record.replicas.contains(&replica)));
    let Some(Record { epoch, lineage, .. }) = record else { return Ok(None) };
    empty_wal(path)?;
    let common = Catalog::read(store, layout)?.newest();
    let common = common.ok_or_else(|| Error::new(ErrorKind::NotFound, NO_FILES))?;
    let base = scratch_of(path);
    let restored = restored(archive, common, &base)?;
    let orphan = Orphan { path, epoch, lineage, common, restored: restored.as_ref() };
    let has_orphan = orphan.write(&base)?;
    remove(&base)?;
    Ok(has_orphan.then(|| orphan.name()))
}

/// Brings the WAL of the file at `path` into it, which shows that no process has it open.
fn empty_wal(path: &Path) -> Result<()> {
    let options = Options::new().readers(1).must_exist();
    let closed = options.open(path).and_then(|database| database.close());
    closed.map_err(|error| Error::invalid(format!("{}: {error}", path.display())))
}

/// Restores the state after `txid` to `base`, where that state is kept.
fn restored(archive: &Archive, txid: Txid, base: &Path) -> Result<Option<Restored>> {
    remove(base)?;
    match restore(&*archive.store, &archive.layout, Target::Txid(txid), base) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Gap) => Ok(None),
        restored => restored.map(Some),
    }
}

/// The first fence behind what the file has archived; `None` where it was released and nothing
/// came.
pub(super) fn successor(record: &Record, position: &Position, path: &Path) -> Result<Option<Txid>> {
    let path = path.display();
    if !position.is_of_history(record) {
        let message = format!("{path} is of another database than the archive, {}", record.lineage);
        return Err(Error::new(ErrorKind::Fenced, message));
    }
    let is_ours = position.is_held_by(record);
    if is_ours && record.state != State::Released {
        let message = format!(
            "{path} is the database of the primary (epoch {}): open it with its archive, or have \
             another file take over first",
            record.epoch
        );
        return Err(Error::invalid(message));
    }
    let later = record.fences.iter().filter(|fence| fence.epoch > position.epoch);
    let fence = later.map(|fence| fence.slot).min();
    if fence.is_none() && !is_ours {
        let message = format!(
            "epoch {} took over from {path} and does not say yet where it begins: try again",
            record.epoch
        );
        return Err(Error::new(ErrorKind::Lost, message));
    }
    Ok(fence)
}

/// What the file at `path` may have alone.
struct Orphan<'a> {
    path: &'a Path,
    /// The last in which it was the primary's.
    epoch: Epoch,
    /// Of the archive.
    lineage: Lineage,
    /// The last state that it and history have in common.
    common: Txid,
    /// That state, where it is kept.
    restored: Option<&'a Restored>,
}

impl Orphan<'_> {
    fn name(&self) -> PathBuf {
        with_ending(self.path, &format!(".orphan-{}-{}.ltx", self.epoch, self.common))
    }

    /// Writes the pages of the file that are not those of `base`; whether there are any.
    fn write(&self, base: &Path) -> Result<bool> {
        let new = directory_of(self.path).join("orphan.new");
        remove(&new)?;
        let failed = |error| Error::of_io(format!("write {}", new.display()), error);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
        let file = file.as_mut().map_err(|error| failed(io::Error::from(error.kind())))?;
        give_to_owner_of(self.path, file);
        if !self.encode(base, file)? {
            remove(&new)?;
            return Ok(false);
        }
        file.sync_all().map_err(failed)?;
        let name = self.name();
        if name.exists() {
            let must = fs::read(&new).map_err(failed)?;
            // A directory, or what may not be read, is something else.
            if !fs::read(&name).is_ok_and(|is| is == must) {
                let message =
                    format!("{} is there, with other pages: move it away", name.display());
                return Err(Error::invalid(message));
            }
        }
        fs::rename(&new, &name).map_err(failed)?;
        sync_directory(self.path.parent().unwrap_or(Path::new("/")))?;
        Ok(true)
    }

    fn encode(&self, base: &Path, output: &mut File) -> Result<bool> {
        let failed = |error| Error::of_io(format!("read {}", self.path.display()), error);
        let wrong = |error| Error::of_ltx("the orphan", error);
        let page_size = page_size_of(self.path)?;
        let file = File::open(self.path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let commit = u32::try_from(bytes / page_size.bytes() as u64).unwrap_or(u32::MAX);
        let has_base = self.restored.is_some_and(|it| it.page_size == page_size);
        let behind = self.common.next().unwrap_or(self.common);
        let first = if has_base { behind } else { Txid::FIRST };
        let header = Header {
            page_size,
            commit,
            txids: TxidRange::new(first, behind).map_err(wrong)?,
            timestamp: self.restored.map_or(Timestamp::from_millis(0), |it| it.time),
            base: BaseChecksum::Untracked,
            wal: Some(name_of(self.lineage)),
            node_id: self.epoch.0,
        };
        let mut base = match has_base {
            true => Some(BufReader::with_capacity(1 << 20, File::open(base).map_err(failed)?)),
            false => None,
        };
        let same_size = self.restored.is_some_and(|it| has_base && it.pages == commit);
        let mut encoder = Encoder::new(io::BufWriter::new(output), header).map_err(wrong)?;
        let mut file = BufReader::with_capacity(1 << 20, file);
        let (mut page, mut other) = (vec![0; page_size.bytes()], vec![0; page_size.bytes()]);
        let mut differ = !same_size;
        for pgno in (1..=commit).filter_map(Pgno::new) {
            file.read_exact(&mut page).map_err(failed)?;
            let is_there = self.restored.is_some_and(|it| pgno.get() <= it.pages);
            if let Some(base) = base.as_mut().filter(|_| is_there) {
                base.read_exact(&mut other).map_err(failed)?;
                if page == other {
                    continue;
                }
            }
            if pgno != page_size.lock_page() {
                encoder.page(pgno, &page).map_err(wrong)?;
                differ = true;
            }
        }
        let mut written = encoder.finish(None).map_err(wrong)?.output;
        written.flush().map_err(failed)?;
        Ok(differ)
    }
}

/// How an orphan says of which database it is.
fn name_of(lineage: Lineage) -> WalSpan {
    let bits = lineage.bits();
    WalSpan { offset: WAL_HEADER_BYTES, size: 0, salts: [bits as u32, (bits >> 32) as u32] }
}

impl Archive {
    /// Restores what the file of a former primary was, of which [`Archive::follow`] has written
    /// `orphan`, to the new file `output`.
    ///
    /// # Errors
    /// Those of [`Archive::restore`] for the state that it is based upon;
    /// [`Invalid`](ErrorKind::Invalid) for an orphan of another database;
    /// [`Corrupt`](ErrorKind::Corrupt) and [`Io`](ErrorKind::Io) of the orphan.
    ///
    /// # Durability
    /// The file gets its name when it is whole and on disk.
    pub fn restore_orphan(&self, orphan: &Path, output: &Path) -> Result<()> {
        let failed = |error| Error::of_io(format!("read {}", orphan.display()), error);
        let wrong = |error| Error::of_ltx(orphan.display(), error);
        let mut decoder = Decoder::new(BufReader::new(File::open(orphan).map_err(failed)?));
        let decoder = decoder.as_mut().map_err(|error| Error::corrupt(error.to_string()))?;
        let Header { txids, page_size, commit, wal, .. } = *decoder.header();
        let record = leader(&*self.store, &self.layout)?;
        let record = record.ok_or_else(|| Error::new(ErrorKind::NotFound, NO_RECORD))?;
        if wal != Some(name_of(record.lineage)) {
            let (orphan, lineage) = (orphan.display(), record.lineage);
            return Err(Error::invalid(format!(
                "{orphan} is of another database than the archive, {lineage}: name the archive \
                 that its file follows"
            )));
        }
        let part = with_ending(output, ".orphan-part");
        remove(&part)?;
        must_be_absent(output)?;
        if !txids.is_snapshot() {
            let base = Txid::new(txids.min().get() - 1).unwrap_or(Txid::FIRST);
            self.restore(Target::Txid(base), &part)?;
        }
        let failed = |error| Error::of_io(format!("write {}", part.display()), error);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(&part);
        let file = file.map_err(failed)?;
        while let Some(page) = decoder.next_page().map_err(wrong)? {
            let at = u64::from(page.pgno.get() - 1) * page_size.bytes() as u64;
            file.write_all_at(page.data, at).map_err(failed)?;
        }
        file.set_len(u64::from(commit) * page_size.bytes() as u64).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        must_be_absent(output)?;
        fs::rename(&part, output).map_err(failed)?;
        sync_directory(output.parent().filter(|it| *it != Path::new("")).unwrap_or(Path::new(".")))
    }
}

fn must_be_absent(output: &Path) -> Result<()> {
    match output.symlink_metadata() {
        Ok(_) => Err(Error::invalid(format!("{} is there already", output.display()))),
        Err(_) => Ok(()),
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::of_io(format!("remove {}", path.display()), error))
        }
        _ => Ok(()),
    }
}
