//! The commands that change an archive: `adopt` and `compact`.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use monolite_archive::{
    Error, ErrorKind, Layout, Record, Store,
    internals::{
        Adopted, ArchivedFile, Catalog, Level, Pace, Present, adopt, compact, leader, snapshot,
        snapshot_at,
    },
};
use serde::Serialize;

use super::{FileEntry, STOPPED, Watched, bytes_of, catalog};
use crate::arguments::{Adopt, Compact};
use crate::interrupt::Stopped;
use crate::json;
use crate::out::stdout;
use crate::words::count;

/// For how long an archive that does not answer is asked again.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a rest is before it is seen whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(100);

/// The time in which an archive is taken over.
struct Patience<'a> {
    archive: &'a Watched,
    start: Instant,
    error: Option<Error>,
}

impl Pace for Patience<'_> {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wait(&mut self, until: Duration) -> bool {
        while self.now() < until.min(PATIENCE) && !self.archive.is_stopped() {
            std::thread::sleep(LOOK.min(until.saturating_sub(self.now())));
        }
        self.now() < PATIENCE && !self.archive.is_stopped()
    }

    fn failed(&mut self, error: &Error) {
        self.error = Some(error.clone());
    }
}

/// What `adopt --json` prints.
#[derive(Serialize)]
struct Taken<'a> {
    url: &'a str,
    epoch: u64,
    lineage: String,
    fence: String,
    /// None where no Monolite wrote, as with Litestream.
    before: Option<Record>,
}

/// What a stop may leave.
const HALF: &str = "stopped; it may be taken over or not, and a primary that was there may have \
                    ended for it: the same command goes on";

/// Carries out `monolite archive adopt`.
pub(super) fn take(arguments: &Adopt) -> Result<()> {
    let archive = Watched::open(&arguments.archive)?;
    let url = &arguments.archive.url;
    let present = match (arguments.take_over, arguments.lose_replicated) {
        (false, _) => Present::Refuse,
        (true, false) => Present::TakeOver,
        (true, true) => Present::TakeOverUnreplicated,
    };
    let mut pace = Patience { archive: &archive, start: Instant::now(), error: None };
    let database = arguments.database.as_deref();
    let adopted = archive
        .reading("taking it over", 0, || {
            adopt(&archive, &archive.layout, present, database, &mut pace)
        })
        .map_err(|error| match error.downcast_ref::<Error>().map(Error::kind) {
            Some(ErrorKind::Fenced) if present == Present::Refuse => {
                error.context("not taken over; with --take-over it is")
            }
            _ if error.is::<Stopped>() => error.context(HALF),
            _ => error,
        })?;
    let Some(adopted) = adopted else {
        if archive.is_stopped() {
            return Err(anyhow::Error::from(STOPPED).context(HALF));
        }
        let error = pace.error.map_or_else(|| STOPPED.into(), anyhow::Error::from);
        return Err(error.context("no answer for a minute; it may be taken over or not: try again"));
    };
    show_taken(url, &adopted, arguments)
}

fn show_taken(url: &str, adopted: &Adopted, arguments: &Adopt) -> Result<()> {
    let taken = Taken {
        url,
        epoch: adopted.record.epoch.0,
        lineage: adopted.record.lineage.to_string(),
        fence: adopted.fence.to_string(),
        before: adopted.before.clone(),
    };
    let mut out = stdout();
    if arguments.archive.json {
        return json::print(&mut out, &taken);
    }
    let Taken { epoch, fence, .. } = &taken;
    writeln!(out, "{url}: taken over in epoch {epoch}, and fenced at TXID {fence}")?;
    match &arguments.database {
        Some(file) => writeln!(out, "{} goes on when it is opened with it", file.display())?,
        None => writeln!(
            out,
            "to go on with another file: monolite promote {url} FILE, or open it with \
             Archive::take_over"
        )?,
    }
    Ok(out.flush()?)
}

/// What `compact --json` prints.
#[derive(Serialize)]
struct Merged<'a> {
    url: &'a str,
    made: Vec<FileEntry>,
    seconds: f64,
}

/// Carries out `monolite archive compact`.
pub(super) fn merge(arguments: &Compact) -> Result<()> {
    let archive = Watched::open(&arguments.archive)?;
    let url = &arguments.archive.url;
    let catalog = catalog(&archive, url)?;
    let record = archive.reading("reading", 0, || leader(&archive, &archive.layout))?;
    ensure!(
        record.is_some(),
        "{url} has no leader record: Litestream may be writing there, which merges by itself; when \
         it has stopped for good, `monolite archive adopt` it first"
    );
    let (store, layout): (&dyn Store, _) = (&archive, &archive.layout);
    let total = bytes_of(unmerged(&catalog));
    let mut made = archive.reading("merging", total, || {
        repeated(store, layout, &catalog, |it| compact(store, layout, it))
    })?;
    if arguments.snapshot {
        let catalog = super::catalog(&archive, url)?;
        let newest = catalog.newest().context("an archive without files")?;
        let newest = snapshot_at(&catalog, newest);
        let is_there = catalog.level(Level::SNAPSHOTS).iter().any(|it| it.txids.max() == newest);
        if !is_there {
            let total = bytes_of(catalog.files()) / 2;
            let file = archive.reading("making a snapshot", total, || {
                repeated(store, layout, &catalog, |it| snapshot(store, layout, it, newest))
            })?;
            made.push(file);
        }
    }
    let entries: Vec<FileEntry> = made.iter().map(|file| FileEntry::of(file, None)).collect();
    let merged = Merged { url, made: entries, seconds: archive.seconds() };
    let mut out = stdout();
    if arguments.archive.json {
        return json::print(&mut out, &merged);
    }
    for FileEntry { level, first_txid, last_txid, bytes, .. } in &merged.made {
        writeln!(out, "{level}  {first_txid}-{last_txid}  {bytes:>12}")?;
    }
    writeln!(out, "{url}: {} made", count(merged.made.len() as u64, "file"))?;
    Ok(out.flush()?)
}

/// Slots that no file of the first level has.
fn unmerged(catalog: &Catalog) -> &[ArchivedFile] {
    let end = catalog.level(Level::FIRST).iter().map(|file| file.txids.max()).max();
    let slots = catalog.level(Level::SLOTS);
    &slots[slots.partition_point(|slot| end.is_some_and(|end| slot.txids.max() <= end))..]
}

/// Does `body`; once more with another list if a file has vanished meanwhile, which the primary has
/// deleted.
fn repeated<T>(
    store: &dyn Store,
    layout: &Layout,
    catalog: &Catalog,
    body: impl Fn(&mut Catalog) -> monolite_archive::Result<T>,
) -> monolite_archive::Result<T> {
    match body(&mut catalog.clone()) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            body(&mut Catalog::read(store, layout)?)
        }
        done => done,
    }
}
