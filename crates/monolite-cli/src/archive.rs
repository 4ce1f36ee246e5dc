//! `monolite archive` and `monolite restore`: name the archive, show progress, print what is found.

mod changes;
mod health;
pub(crate) mod options;

use crate::arguments::{self, Archived};
use crate::backup::watched;
use crate::bar::Bar;
use crate::interrupt::{self, Stopped};
use crate::out::stdout;
use crate::{json, words};
use anyhow::{Context as _, Result, bail, ensure};
use health::Health;
use monolite::Database;
use monolite_archive::{
    Error, ErrorKind, Fetched, Kept, Layout, Listing, Part, Record, Store, Tag, Target,
    internals::{
        ArchivedFile, Catalog, Level, Plan, leader, open_with, restore, unfinished, verify,
    },
};
use monolite_ltx::Timestamp;
use serde::Serialize;
use std::borrow::Cow;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The user stopped it.
const STOPPED: Stopped = Stopped("the archive has all that it had");

/// Carries out a command of `monolite archive`.
pub(crate) fn run(command: &arguments::Archive) -> Result<()> {
    match command {
        arguments::Archive::Status(command) => status(command),
        arguments::Archive::List(listed) => list(&listed.archive, listed.times),
        arguments::Archive::Verify(archived) => prove(archived),
        arguments::Archive::Drill(drill) => rehearse(&drill.archive, &drill.scratch),
        arguments::Archive::Compact(compact) => changes::merge(compact),
        arguments::Archive::Adopt(adopt) => changes::take(adopt),
    }
}

/// For how long a store that has answered before, and does not now, or is busy, is asked again: a
/// network that is away ends no download of hours.
const AWAY: Duration = Duration::from_secs(300);

/// What helps an archive whose newest state cannot be restored.
const REMEDY: &str = "Keep the archive, and open the database with it, or leave it open: within a \
                      minute it finds that, and uploads a copy of itself";

/// How long the first rest in between is, and the longest.
const RESTS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];

/// An archive that is read, and how far that is.
struct Watched {
    store: Box<dyn Store>,
    layout: Layout,
    bar: Bar,
    start: Instant,
    /// Bytes that were read since the bar began, and how many there will be.
    read: AtomicU64,
    total: AtomicU64,
    has_answered: AtomicBool,
    is_stopped: Arc<AtomicBool>,
}

impl Watched {
    fn open(archived: &Archived) -> Result<Watched> {
        let url = &archived.url;
        let options = archived.config.as_ref().map(|path| options::read(path, url)).transpose()?;
        let (store, layout) = open_with(url, &options.unwrap_or_default())?;
        let is_stopped = interrupt::flag()?;
        let (read, total) = (AtomicU64::new(0), AtomicU64::new(0));
        let (bar, start) = (Bar::patient(), Instant::now());
        let has_answered = AtomicBool::new(false);
        Ok(Watched { store, layout, bar, start, read, total, has_answered, is_stopped })
    }

    /// Does `body`, which reads `total` bytes, about, while the bar says how far that is.
    fn reading<R>(
        &self,
        what: &str,
        total: u64,
        body: impl FnOnce() -> monolite_archive::Result<R>,
    ) -> Result<R> {
        self.read.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.bar.begin(what, Some(total));
        let done = body();
        self.bar.finish();
        done.map_err(|error| self.told(error))
    }

    /// `error`, unless the user is why it failed.
    fn told(&self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        if self.is_stopped() { STOPPED.into() } else { error.into() }
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    fn advance(&self, bytes: u64) {
        let read = self.read.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let total = self.total.load(Ordering::Relaxed);
        self.bar.advance_to(read.min(total));
        let left = total.saturating_sub(read) as f64 / read.max(1) as f64;
        self.bar.time_left(Duration::from_secs_f64((self.seconds() * left).min(1e9)));
    }

    /// Asks until there is an answer, the store has been away for too long, or the user stops.
    fn asking<T>(
        &self,
        ask: impl Fn() -> monolite_archive::Result<T>,
    ) -> monolite_archive::Result<T> {
        let (since, mut rest) = (Instant::now(), RESTS[0]);
        loop {
            self.goes_on()?;
            match ask() {
                Err(error) if self.is_away(&error) && since.elapsed() < AWAY => {
                    let until = Instant::now() + rest;
                    while Instant::now() < until && !self.is_stopped() {
                        std::thread::sleep(RESTS[0]);
                    }
                    rest = (rest * 2).min(RESTS[1]);
                }
                answer => {
                    self.has_answered.fetch_or(answer.is_ok(), Ordering::Relaxed);
                    return answer;
                }
            }
        }
    }

    fn is_away(&self, error: &Error) -> bool {
        let is_away = matches!(error.kind(), ErrorKind::Lost | ErrorKind::Busy);
        is_away && self.has_answered.load(Ordering::Relaxed)
    }

    fn goes_on(&self) -> monolite_archive::Result<()> {
        let stopped = || Error::new(ErrorKind::Lost, "stopped");
        if self.is_stopped() { Err(stopped()) } else { Ok(()) }
    }
}

/// What is read is counted, and asked for again while the store is away: what was read before need
/// not be read again.
impl Store for Watched {
    fn create(
        &self,
        key: &str,
        body: &[u8],
        time: Option<Timestamp>,
    ) -> monolite_archive::Result<Tag> {
        self.store.create(key, body, time)
    }

    fn create_from(
        &self,
        key: &str,
        about: u64,
        time: Option<Timestamp>,
        write: &mut dyn FnMut(&mut dyn Write) -> monolite_archive::Result<()>,
    ) -> monolite_archive::Result<Tag> {
        self.store.create_from(key, about, time, write)
    }

    fn swap(&self, key: &str, body: &[u8], expected: &Tag) -> monolite_archive::Result<Tag> {
        self.store.swap(key, body, expected)
    }

    fn get(&self, key: &str, part: Part) -> monolite_archive::Result<Option<Fetched>> {
        let fetched = self.asking(|| self.store.get(key, part.clone()))?;
        self.advance(fetched.as_ref().map_or(0, |fetched| fetched.bytes.len() as u64));
        Ok(fetched)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> monolite_archive::Result<Listing> {
        self.asking(|| self.store.list(prefix, after))
    }

    fn delete(&self, key: &str) -> monolite_archive::Result<()> {
        self.store.delete(key)
    }
}

/// The files of an archive, which has some.
fn catalog(archive: &Watched, url: &str) -> Result<Catalog> {
    let catalog = archive.reading("listing", 0, || Catalog::read(archive, &archive.layout))?;
    ensure!(!catalog.files().is_empty(), "{url} has no files; is this the right address?");
    Ok(catalog)
}

fn bytes_of(files: &[ArchivedFile]) -> u64 {
    files.iter().map(|file| file.len).sum()
}

/// What `status --json` prints.
#[derive(Serialize)]
struct Status<'a> {
    url: &'a str,
    levels: Vec<LevelStatus>,
    newest_txid: String,
    newest_time: String,
    /// The state after each TXID from here on can be restored, as far as files were not merged.
    oldest_snapshot_txid: Option<String>,
    /// Why the newest state cannot be restored, if it cannot.
    hole: Option<String>,
    /// None where no Monolite writes, as with Litestream.
    primary: Option<Record>,
    /// Whether the archive keeps up, if that was asked.
    health: Option<Health>,
}

#[derive(Serialize)]
struct LevelStatus {
    level: u8,
    files: usize,
    bytes: u64,
    first_txid: String,
    last_txid: String,
}

fn status(command: &arguments::Status) -> Result<()> {
    let archived = &command.archive;
    let archive = Watched::open(archived)?;
    let catalog = catalog(&archive, &archived.url)?;
    let of_level = |level: Level| {
        let files = catalog.level(level);
        let (first, last) = (files.first()?, files.last()?);
        Some(LevelStatus {
            level: level.get(),
            files: files.len(),
            bytes: bytes_of(files),
            first_txid: first.txids.min().to_string(),
            last_txid: last.txids.max().to_string(),
        })
    };
    let newest = catalog.files().iter().max_by_key(|file| file.txids.max());
    let newest = newest.context("an archive without files")?;
    let time =
        archive.reading("reading", 0, || newest.header(&archive, &archive.layout))?.timestamp;
    let snapshots = catalog.files().iter().filter(|file| file.txids.is_snapshot());
    let plan = Plan::new(&catalog, Target::Latest, &archive, &archive.layout);
    let hole = match plan.map_err(|error| (error.kind(), error)) {
        Ok(_) => None,
        // Of a store that does not answer it is not known what it has.
        Err((ErrorKind::Lost | ErrorKind::Busy | ErrorKind::Denied | ErrorKind::Io, error)) => {
            return Err(archive.told(error));
        }
        Err((_, error)) => Some(error),
    };
    let primary = archive.reading("reading", 0, || leader(&archive, &archive.layout))?;
    let database = command.database.as_deref();
    let health = |most| health::judge(&archive, &catalog, time, primary.as_ref(), most, database);
    let health = command.max_lag.map(health).transpose().map_err(|error| archive.told(error))?;
    let status = Status {
        url: &archived.url,
        levels: Level::all().filter_map(of_level).collect(),
        newest_txid: newest.txids.max().to_string(),
        newest_time: time.to_string(),
        oldest_snapshot_txid: snapshots.map(|file| file.txids.max()).min().map(|it| it.to_string()),
        hole: hole.map(|hole| hole.to_string()),
        primary,
        health,
    };
    show_status(archived, &status)?;
    ensure!(
        status.hole.is_none(),
        "the newest state of {} cannot be restored: files are gone. {REMEDY}",
        archived.url
    );
    status.health.map_or(Ok(()), Health::into_result)
}

fn show_status(archived: &Archived, status: &Status<'_>) -> Result<()> {
    let mut out = stdout();
    if archived.json {
        return json::print(&mut out, status);
    }
    writeln!(out, "level  files         bytes  from              to")?;
    for of in &status.levels {
        let LevelStatus { level, files, bytes, first_txid, last_txid } = of;
        writeln!(out, "{level:>5}  {files:>5}  {bytes:>12}  {first_txid}  {last_txid}")?;
    }
    writeln!(out, "newest TXID {}, of {}", status.newest_txid, status.newest_time)?;
    match &status.oldest_snapshot_txid {
        Some(txid) => writeln!(out, "oldest snapshot {txid}")?,
        None => writeln!(out, "no snapshot: nothing can be restored")?,
    }
    if let Some(hole) = &status.hole {
        writeln!(out, "hole: {hole}. {REMEDY}")?;
    }
    if let Some(Record { epoch, state, address, lineage, .. }) = &status.primary {
        let state = serde_json::to_string(state)?;
        writeln!(
            out,
            "epoch {}, {}, {address:?}, lineage {lineage}",
            epoch.0,
            state.trim_matches('"')
        )?;
    }
    if let Some(Health { says, .. }) = &status.health {
        writeln!(out, "{says}")?;
    }
    Ok(out.flush()?)
}

/// What `list --json` prints for each file, and `compact --json`.
#[derive(Serialize)]
struct FileEntry {
    level: u8,
    first_txid: String,
    last_txid: String,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
}

impl FileEntry {
    fn of(file: &ArchivedFile, time: Option<String>) -> FileEntry {
        FileEntry {
            level: file.level.get(),
            first_txid: file.txids.min().to_string(),
            last_txid: file.txids.max().to_string(),
            bytes: file.len,
            time,
        }
    }
}

fn list(archived: &Archived, times: bool) -> Result<()> {
    let archive = Watched::open(archived)?;
    let catalog = catalog(&archive, &archived.url)?;
    let mut files = catalog.files().to_vec();
    files.sort_by_key(|file| (file.txids.max(), file.txids.min(), file.level));
    let header = |file: &ArchivedFile| file.header(&archive, &archive.layout);
    let entry = |file: &ArchivedFile| {
        let time = if times { Some(header(file)?.timestamp.to_string()) } else { None };
        Ok(FileEntry::of(file, time))
    };
    let total = if times { 100 * files.len() as u64 } else { 0 };
    let entries = || files.iter().map(entry).collect::<monolite_archive::Result<Vec<_>>>();
    let entries = archive.reading("reading times", total, entries)?;
    let mut out = stdout();
    if archived.json {
        return json::print(&mut out, &entries);
    }
    for FileEntry { level, first_txid, last_txid, bytes, time } in &entries {
        let time = time.as_ref().map(|time| format!("  {time}")).unwrap_or_default();
        writeln!(out, "{level}  {first_txid}-{last_txid}  {bytes:>12}{time}")?;
    }
    Ok(out.flush()?)
}

/// What `verify --json` prints.
#[derive(Serialize)]
struct Verified<'a> {
    url: &'a str,
    files: u64,
    bytes: u64,
    pages: u64,
    problems: Vec<String>,
    /// Whether the newest state can be restored.
    restorable: bool,
    seconds: f64,
}

fn prove(archived: &Archived) -> Result<()> {
    let archive = Watched::open(archived)?;
    let total = bytes_of(catalog(&archive, &archived.url)?.files());
    let proof = || verify(&archive, &archive.layout, &mut |_| ());
    let proof = archive.reading("verifying", total, proof)?;
    let verified = Verified {
        url: &archived.url,
        files: proof.files,
        bytes: proof.bytes,
        pages: proof.pages,
        problems: proof.problems.iter().map(ToString::to_string).collect(),
        restorable: proof.is_restorable,
        seconds: archive.seconds(),
    };
    let mut out = stdout();
    let Verified { url, files, bytes, pages, problems, restorable, seconds } = &verified;
    if archived.json {
        json::print(&mut out, &verified)?;
    } else {
        for problem in problems {
            writeln!(out, "problem  {problem}")?;
        }
        let files = words::count(*files, "file");
        let pages = words::count(*pages, "page");
        let problems = words::count(problems.len() as u64, "problem");
        let seconds = words::seconds(*seconds);
        writeln!(out, "{url}: {files}, {bytes} bytes, {pages}, {problems}, {seconds}")?;
        out.flush()?;
    }
    if problems.is_empty() {
        return Ok(());
    }
    ensure!(*restorable, "the newest state of {url} cannot be restored. {REMEDY}");
    bail!(
        "{url} has lost a part of its past. Its newest state can be restored, so nothing has to be \
         done; this is told until the snapshots before it expire"
    )
}

/// What `restore --json` and `drill --json` print.
#[derive(Serialize)]
struct Made<'a> {
    url: &'a str,
    file: Option<Cow<'a, str>>,
    restored: bool,
    txid: String,
    /// Of when the state is: the time of its last transaction.
    time: String,
    /// The next state that is kept; none behind the newest.
    next: Option<KeptState>,
    /// Whether it is the state of the time that was asked for, if one was.
    exact: bool,
    /// How much earlier it is than that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    earlier_ms: Option<u64>,
    pages: u32,
    bytes: u64,
    files: usize,
    /// Files that are damaged or gone, in whose place others were read.
    around: Vec<String>,
    seconds: f64,
}

/// A state that is kept by itself.
#[derive(Serialize)]
struct KeptState {
    txid: String,
    time: String,
}

/// What `restore --if-not-exists --json` prints when the file is there.
#[derive(Serialize)]
struct NotMade<'a> {
    url: &'a str,
    file: Cow<'a, str>,
    restored: bool,
}

/// What `restore --orphan --json` prints.
#[derive(Serialize)]
struct OrphanMade<'a> {
    url: &'a str,
    orphan: Cow<'a, str>,
    file: Cow<'a, str>,
}

/// Carries out `monolite restore`.
pub(crate) fn run_restore(arguments: &arguments::Restore) -> Result<()> {
    let output = arguments.output.as_path();
    let url = &arguments.archive.url;
    if arguments.if_not_exists && output.symlink_metadata().is_ok() {
        return tell_there(url, output, arguments.archive.json);
    }
    let target = match (arguments.timestamp, arguments.txid) {
        (Some(time), _) if arguments.exact => Target::ExactlyBefore(time),
        (Some(time), _) => Target::Before(time),
        (_, Some(state)) => state,
        _ => Target::Latest,
    };
    if let Some(orphan) = &arguments.orphan {
        crate::follow::archive(&arguments.archive)?.restore_orphan(orphan, output)?;
        let (orphan, output) = (json::name(orphan), json::name(output));
        if arguments.archive.json {
            return json::print(&mut stdout(), &OrphanMade { url, orphan, file: output });
        }
        return Ok(writeln!(stdout(), "{output}: all that {orphan} had")?);
    }
    let archive = Watched::open(&arguments.archive)?;
    if let Some(part) = unfinished(output) {
        let part = part.display();
        archive.bar.note(&format!("{part} is there: going on with it, if the files are the same"));
    }
    let made = make(&archive, url, target, output, Some(json::name(output)));
    let made = made.map_err(|error| match unfinished(output) {
        Some(part) => error.context(format!(
            "{} is left: the same command goes on with it, if the archive has the same files then \
             (--txid asks for a state that stays), and removing it begins anew",
            part.display()
        )),
        None => error.context(format!("{} was not restored", output.display())),
    })?;
    show(&made, arguments.archive.json)
        .with_context(|| format!("{} was restored, and telling so failed", output.display()))
}

fn tell_there(url: &str, output: &Path, as_json: bool) -> Result<()> {
    let file = json::name(output);
    if as_json {
        return json::print(&mut stdout(), &NotMade { url, file, restored: false });
    }
    Ok(writeln!(std::io::stderr(), "{file} is there already")?)
}

fn make<'a>(
    archive: &Watched,
    url: &'a str,
    target: Target,
    output: &Path,
    name: Option<Cow<'a, str>>,
) -> Result<Made<'a>> {
    let catalog = catalog(archive, url)?;
    // What cannot be planned so may be restored another way.
    let bytes = || {
        let plan = Plan::new(&catalog, target, archive, &archive.layout);
        Ok(plan.map_or(0, |plan| bytes_of(plan.files())))
    };
    let bytes = archive.reading("planning", 0, bytes)?;
    let restored = || restore(archive, &archive.layout, target, output);
    let restored = archive.reading("restoring", bytes, restored)?;
    let earlier_ms = match target {
        Target::Before(time) | Target::ExactlyBefore(time) => {
            Some(time.millis().abs_diff(restored.time.millis()))
        }
        _ => None,
    };
    let state = |kept: Kept| KeptState { txid: kept.txid.to_string(), time: kept.time.to_string() };
    Ok(Made {
        url,
        file: name,
        restored: true,
        txid: restored.txid.to_string(),
        time: restored.time.to_string(),
        next: restored.next.map(state),
        exact: restored.is_exact,
        earlier_ms,
        pages: restored.pages,
        bytes: u64::from(restored.pages) * u64::from(restored.page_size.get()),
        files: restored.files,
        around: restored.around.iter().map(ToString::to_string).collect(),
        seconds: archive.seconds(),
    })
}

fn show(made: &Made<'_>, as_json: bool) -> Result<()> {
    let mut out = stdout();
    if as_json {
        return json::print(&mut out, made);
    }
    let Made { file, txid, time, bytes, files, seconds, .. } = made;
    let file = file.as_deref().unwrap_or("restored, checked and deleted");
    let files = words::count(*files as u64, "file");
    // That of less than a second is that of the start.
    let rate = match *seconds {
        seconds if seconds < 1.0 => String::new(),
        seconds => format!(", {:.0} MB/s", *bytes as f64 / 1e6 / seconds),
    };
    let seconds = words::seconds(*seconds);
    writeln!(out, "{file}: TXID {txid} of {time}, {bytes} bytes out of {files}, {seconds}{rate}")?;
    for lost in &made.around {
        writeln!(out, "went around a file: {lost}")?;
    }
    match &made.next {
        Some(KeptState { txid, time }) => {
            writeln!(out, "the next state that is kept: {txid} of {time}")?
        }
        None => writeln!(out, "it is the newest state")?,
    }
    if let (false, Some(earlier)) = (made.exact, made.earlier_ms) {
        writeln!(
            out,
            "not exact: it is {} earlier than the time that was asked for, and states in between \
             may be lost: they were merged, or history has a gap (--exact refuses that)",
            words::seconds(earlier as f64 / 1e3)
        )?;
    }
    Ok(out.flush()?)
}

fn rehearse(archived: &Archived, scratch: &Path) -> Result<()> {
    let archive = Watched::open(archived)?;
    let made = tempfile::Builder::new().prefix("monolite-drill-").tempdir_in(scratch);
    let scratch = made.with_context(|| {
        let scratch = scratch.display();
        format!("no directory can be made in {scratch} to restore to; name another by --scratch")
    })?;
    let file = scratch.path().join("restored.db");
    let mut made = make(&archive, &archived.url, Target::Latest, &file, None)?;
    let check = Database::check_file(&file);
    let checked = watched("checking", &check.monitor(), &archive.is_stopped, || check.wait());
    let checked = checked.map_err(|error| archive.told(error))?;
    made.seconds = archive.seconds();
    if !checked.is_sound() {
        let first = checked.problems.iter().chain(&checked.violations).next();
        bail!("what was restored is not sound: {}", first.map_or("not all was checked", |it| it));
    }
    drop(scratch);
    show(&made, archived.json)?;
    ensure!(
        made.around.is_empty(),
        "{} has damaged or lost files. Its newest state can be restored all the same; `monolite \
         archive verify` names all of them",
        archived.url
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Watched;
    use crate::bar::Bar;
    use monolite_archive::{
        DirectoryStore, ErrorKind, Layout, MemoryStore, Part, Store,
        internals::{Fault, FaultyStore},
    };
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Instant;

    fn watched(store: impl Store + 'static) -> Watched {
        let (read, total) = (AtomicU64::new(0), AtomicU64::new(0));
        let (bar, start, layout) = (Bar::patient(), Instant::now(), Layout::directory());
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (store, has_answered) = (Box::new(store), AtomicBool::new(false));
        Watched { store, layout, bar, start, read, total, has_answered, is_stopped }
    }

    #[test]
    fn store_that_is_away_for_a_moment_ends_no_download() {
        let inner = MemoryStore::new();
        inner.create("a/b", b"text", None).expect("nobody was first");
        let mut asked = 0;
        let archive = watched(FaultyStore::new(inner, move |_| {
            asked += 1;
            if matches!(asked, 2..5) { Fault::LostAnswer } else { Fault::None }
        }));
        for _ in 0..2 {
            let object = archive.get("a/b", Part::Whole(9)).expect("it is back");
            assert_eq!(object.expect("it is there").bytes, b"text");
        }
        assert_eq!(archive.read.load(Ordering::Relaxed), 8);
    }

    #[test]
    fn store_that_never_answered_is_told_of_at_once() {
        let archive = watched(FaultyStore::new(MemoryStore::new(), |_| Fault::Busy));
        let busy = archive.get("a/b", Part::Whole(9)).expect_err("it is busy");
        assert_eq!(busy.kind(), ErrorKind::Busy);
    }

    #[test]
    fn stop_ends_the_asking_and_an_error_that_stays_does_at_once() {
        let archive = watched(FaultyStore::new(MemoryStore::new(), |_| Fault::LostRequest));
        archive.is_stopped.store(true, Ordering::Relaxed);
        let stopped = archive.get("a/b", Part::Whole(9)).expect_err("it is stopped");
        assert_eq!(stopped.to_string(), "stopped");
        let archive = watched(DirectoryStore::new("/nowhere"));
        let wrong = archive.get("../a", Part::Whole(9)).expect_err("it is no key");
        assert_eq!(wrong.kind(), ErrorKind::Invalid);
    }
}
