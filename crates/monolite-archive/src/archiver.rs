//! Owns the archiving of an open database: its engine says how far the disk is, and what is
//! committed goes to the archive, slot by slot, on a thread of its own.
//!
//! # Algorithm
//! 1. When the file is opened, before anything is written to it: see whether it is what comes
//!    right behind what was archived ([`position`]), and keep what a crash has left in its WAL
//!    ([`feed`]).
//! 2. Claim the archive's next epoch. A record with a holder is refused, unless the holder was this
//!    file on this machine (which no other process can have open now), the record was released, or
//!    the operator set [`Archive::take_over`].
//! 3. Find the newest group below the fence. It must be one of ours. If the file continues it, what
//!    lies between is next; otherwise a copy of the whole database, with everything below the fence
//!    as its TXIDs.
//! 4. Serve: take commits, make a slot, fill it, say that they are archived; again ([`upload`]).
//!
//! What is there is merged and deleted beside that ([`upkeep`]).
//!
//! # Invariants
//! - An archive is never ahead of the disk, and history never has two ends: a file that is behind
//!   what was archived is refused.
//! - No slot behind a fence is filled before it is certain what it is filled upon.
//!
//! # Threads and locks
//! `monolite-archive` uploads, `monolite-upkeep` does what need not be done at once, and
//! `monolite-lease` renews the leader record, if it has a lease ([`lease`]).
//! The feed's lock is held while files are read and written, never during a request. The engine's
//! sync does not wait for it. A close leaves them behind in a request that does not return
//! ([`leaving`]).

mod adopt;
mod closed;
mod failures;
mod feed;
mod gathering;
mod group;
mod hooks;
mod lease;
mod leaving;
mod parts;
pub(crate) mod position;
mod refused;
mod replicas;
mod ring;
mod upkeep;
mod upload;
mod waiting;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use monolite::ErrorKind as Kind;
use monolite::archive::{
    ArchiveStats, ArchiveToken, Archiving, Found, Primary, Refusal, WalPosition,
};
use monolite_ltx::Timestamp;

use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::open::open_with;
use crate::random::drawn;
use crate::record::{Holder, Lineage};
use crate::requests::boottime;
use crate::retention::Keep;
use crate::store::Store;
use crate::streaming::Peer;
use crate::wall_clock;
pub use adopt::{Adopted, Present, adopt};
use failures::{Activity, Failures};
use feed::Feed;
use lease::Term;
use lease::host;
use leaving::Leavable;
use parts::Parts;
use position::{Place, Position, directory_of};
pub(crate) use refused::{fenced, refusal};
use upkeep::Noticeboard;
pub use waiting::{has_unarchived, may_lack};

/// How long an opening waits to be told that the archive refuses it, and until a copy that is due
/// is there: a program that runs for a moment leaves an archive that can be restored. What takes
/// longer is waited for in the background.
const OPENING: Duration = Duration::from_secs(10);

/// How old the oldest commit may be when a group is sealed.
const INTERVAL: Duration = Duration::from_secs(1);

/// How many bytes of commits a group has at most, unless one has more. They and their compressed
/// pages are in memory. Of pages that change again and again a longer group sends fewer: bursts of
/// 400,000 writes a second over 50 MB keep 0.90 of their speed with this, and 0.80 with half of it.
const GROUP_BYTES: u64 = 128 << 20;

/// The largest database that fills a slot as a whole: twice what a group has at most, as its pages
/// are in memory once, compressed.
const WHOLE_SLOT_BYTES: u64 = 256 << 20;

/// How long a write or a read waits to be archived: long enough for a request that was lost to be
/// sent again.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// How many bytes may be kept beside the database while the store is away.
const STAGED: u64 = 4 << 30;

/// Nothing waits to be archived.
const UP_TO_DATE: u64 = u64::MAX;

/// How long it is waited, before the WAL begins anew, for an upload of what is in it: an archive
/// that keeps up writes nothing of that on this disk. The writer goes on meanwhile.
const KEEPING_UP: Duration = Duration::from_millis(100);

/// How often it is looked for that, and for the end of threads.
const KEEPING_UP_LOOK: Duration = Duration::from_millis(1);

/// How long a close goes on uploading.
const CLOSING: Duration = Duration::from_secs(10);

/// How long a close waits, after that, for the request that is under way.
const LEAVING: Duration = Duration::from_secs(5);

/// How often it is looked whether something can be merged or deleted: as long as spans of the first
/// level are.
const UPKEEP: Duration = Duration::from_secs(30);

/// Where the time of day comes from.
type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A monotonic clock, from any beginning.
type Passed = Arc<dyn Fn() -> Duration + Send + Sync>;

/// An archive for [`monolite::Options::archive`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let (url, path) = (directory.path().join("archive"), directory.path().join("ledger.db"));
/// # let url = url.to_str().expect("it is text");
/// use monolite::{Durability, Options};
/// use monolite_archive::Archive;
///
/// let options = Options::new().archive(Archive::at(url)?).durability(Durability::Archived);
/// let db = options.open(&path)?;
/// db.write(|tx| tx.execute_batch("CREATE TABLE accounts(id INTEGER PRIMARY KEY, balance)"))
///     .wait()?; // it is on the disk and in the archive
/// # Ok(db.close()?)
/// # }
/// ```
#[derive(Clone)]
pub struct Archive {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) layout: Layout,
    /// How people call it.
    pub(crate) name: Arc<str>,
    pub(crate) interval: Duration,
    staged_limit: u64,
    refuses_gaps: bool,
    lag_limit: Option<Duration>,
    pub(crate) time_limit: Duration,
    close_time: Duration,
    take_over: bool,
    pub(crate) lease: Option<Duration>,
    pub(crate) address: Arc<str>,
    stream_to: Option<Peer>,
    pub(crate) stream_from: Option<Peer>,
    keep: Option<Keep>,
    opening: Duration,
    upkeep: Duration,
    group: u64,
    whole_slot: u64,
    pub(crate) clock: Clock,
    passed: Passed,
}

impl fmt::Debug for Archive {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Archive").field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl Archive {
    /// The archive at `url`: `s3://bucket/prefix?endpoint=…`, `gs://bucket/prefix`,
    /// `az://container/prefix`, `file:///directory`, or a path without `://`, taken literally. No
    /// request is made: an address at which nothing is names an archive without files.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an empty or unknown address, or a service whose feature
    /// is off.
    pub fn at(url: &str) -> Result<Archive> {
        Archive::at_with(url, &[])
    }

    /// The same with options for the client of a bucket, such as `("region", "eu-central-1")` or
    /// `("access_key_id", …)`, by the names that addresses have them under. The address goes before
    /// them, and they go before the environment.
    ///
    /// # Errors
    /// Those of [`Archive::at`], and [`Invalid`](ErrorKind::Invalid) for a name that the service
    /// does not have, or for any when it is a directory. No value is in its text.
    pub fn at_with(url: &str, options: &[(String, String)]) -> Result<Archive> {
        let (store, layout) = open_with(url, options)?;
        Ok(Archive { name: url.into(), ..Archive::of(Arc::from(store), layout) })
    }

    /// The archive in a store of one's own.
    pub fn of(store: Arc<dyn Store>, layout: Layout) -> Archive {
        let (interval, close_time) = (INTERVAL, CLOSING);
        let began = Instant::now();
        Archive {
            store,
            layout,
            name: "an archive".into(),
            interval,
            staged_limit: STAGED,
            refuses_gaps: false,
            lag_limit: None,
            time_limit: TIME_LIMIT,
            close_time,
            take_over: false,
            lease: None,
            address: host().into(),
            stream_to: None,
            stream_from: None,
            keep: Some(Keep::default()),
            opening: OPENING,
            upkeep: UPKEEP,
            group: GROUP_BYTES,
            whole_slot: WHOLE_SLOT_BYTES,
            clock: Arc::new(wall_clock::now),
            passed: Arc::new(move || began.elapsed()),
        }
    }

    /// How long commits are gathered before they are uploaded together, while no write waits for
    /// the upload. Default: 1 s. A lost machine loses the commits of that time, unless the
    /// durability is [`Archived`](monolite::Durability::Archived); each upload is a request that
    /// costs.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Archive {
        self.interval = interval;
        self
    }

    /// How many bytes of commits may be kept beside the database while the store is away and the
    /// WAL begins anew. Default: 4 GiB. Beyond that they are given up, unless
    /// [`Archive::refuse_gaps`] says otherwise: a copy of the whole database is uploaded when the
    /// store is there again, and no moment in between can be restored. Content that an opening
    /// finds in the WAL is kept besides.
    #[must_use]
    pub fn staged_limit_bytes(mut self, bytes: u64) -> Archive {
        self.staged_limit = bytes;
        self
    }

    /// Whether writes are refused with `Overloaded` when the WAL has no room left, and more would
    /// have to be kept beside the database than [`Archive::staged_limit_bytes`], or the disk has no
    /// room for it. Default: no, writes go on, and history gets a gap that a copy of the whole
    /// database closes.
    #[must_use]
    pub fn refuse_gaps(mut self, refuses: bool) -> Archive {
        self.refuses_gaps = refuses;
        self
    }

    /// How long the oldest commit may wait for the archive before writes are refused with
    /// `Overloaded`. This bounds the loss with the machine, without an upload's time in every
    /// write. Default: no limit; writes go on while the store is away. Set it to several times the
    /// [interval](Archive::interval). Until the first full copy is uploaded nothing is archived, so
    /// the lag counts from the opening.
    #[must_use]
    pub fn lag_limit(mut self, limit: Duration) -> Archive {
        self.lag_limit = Some(limit);
        self
    }

    /// Longest time that a write with [`Archived`](monolite::Durability::Archived) waits for the
    /// archive once it is on this disk, and that
    /// [`Database::read_archived`](monolite::Database::read_archived) waits: 1 ms to 24 h. Default:
    /// 30 s, enough to send a lost request again. Then the write ends with `CommitUnknown`, and the
    /// read with `Timeout`.
    /// [`Database::with_time_limit`](monolite::Database::with_time_limit) shortens it for single
    /// calls.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Archive {
        self.time_limit = limit;
        self
    }

    /// How long a close of the database goes on uploading. Default: 10 s, and 5 s more for a
    /// request that is under way. The rest is kept beside the database, and uploaded when that is
    /// opened again.
    #[must_use]
    pub fn close_time(mut self, time: Duration) -> Archive {
        self.close_time = time;
        self
    }

    /// Whether this file takes the archive over, regardless of its primary and content: for a file
    /// that was restored on another machine, or an archive that is to go on with another file.
    /// Default: no; then another primary's archive is refused. A primary that still runs is fenced
    /// at its next upload. This file lacks commits which that primary archived after the restore:
    /// if it may be alive, run `monolite archive adopt` before the restore. It may also lack writes
    /// that were acknowledged as replicated: promote a follower instead, where one lives.
    #[must_use]
    pub fn take_over(mut self, take_over: bool) -> Archive {
        self.take_over = take_over;
        self
    }
}

impl monolite::archive::Archive for Archive {
    fn open(&self, found: Found<'_>) -> Result<Arc<dyn Archiving>, Refusal> {
        let opened = self.open_file(&found);
        opened.map(|running| Arc::new(running) as Arc<dyn Archiving>).map_err(refusal)
    }

    fn lag_limit(&self) -> Option<Duration> {
        self.lag_limit
    }

    fn time_limit(&self) -> Duration {
        self.time_limit
    }

    fn streams(&self) -> bool {
        self.stream_to.is_some()
    }
}

impl Archive {
    fn open_file(&self, found: &Found<'_>) -> Result<Running> {
        let directory = directory_of(found.database);
        let holder = Holder::from_bits(drawn()?);
        let known = Position::read(&directory)?;
        let is_new = known.is_none();
        let position = match known {
            Some(position) => position,
            None => Position::new(Lineage::from_bits(drawn()?), &found.file),
        };
        let wal = found.wal.as_ref();
        let place = wal.map(|(wal, end)| Place { salts: wal.salts(), end: *end });
        let follows = is_new || position.follows(&found.file, place);
        let may_lack = !is_new && position.may_lack(&found.file, place);
        let mut feed = Feed::new(directory, position, self.staged_limit, self.refuses_gaps)?;
        if !follows {
            feed.position.may_lack |= may_lack;
            feed.position.leaves_current();
            feed.breaks("the file has changed since it was last archived".into());
        }
        if let Some((wal, end)) = wal.filter(|_| follows) {
            feed.recovered(wal, *end)?;
        }
        let store = Arc::new(Leavable::new(Arc::clone(&self.store)));
        let shared = Shared {
            archive: Archive { store: Arc::clone(&store) as Arc<dyn Store>, ..self.clone() },
            store,
            database: found.database.to_owned(),
            holder,
            feed: Mutex::new(feed),
            durable: Mutex::default(),
            primary: OnceLock::new(),
            control: Mutex::default(),
            changed: Condvar::new(),
            stats: Mutex::default(),
            failures: Mutex::default(),
            began: Instant::now(),
            behind_since: AtomicU64::new(UP_TO_DATE),
            notices: Noticeboard::default(),
            resting: Condvar::new(),
            kept: OnceLock::new(),
            term: Mutex::default(),
            parts: self.stream_to.clone().map(Parts::new),
        };
        shared.look_back(&shared.feed());
        Ok(Running { shared: Arc::new(shared), threads: Mutex::default() })
    }
}

/// What the thread is to do besides.
#[derive(Clone, Copy, Debug, Default)]
struct Control {
    /// Until when it may go on with what there is.
    closing: Option<Instant>,
    is_hurried: bool,
    /// Whether it waits for the next commit.
    wakes: bool,
    /// Whether nothing more is uploaded.
    is_over: bool,
}

/// What the engine's threads and the archive's share.
struct Shared {
    /// With `store`.
    archive: Archive,
    store: Arc<Leavable>,
    database: PathBuf,
    /// This start of this process.
    holder: Holder,
    feed: Mutex<Feed>,
    /// How far the disk is. Read without the feed's lock.
    durable: Mutex<WalPosition>,
    primary: OnceLock<Arc<dyn Primary>>,
    control: Mutex<Control>,
    changed: Condvar,
    /// But for failures.
    stats: Mutex<ArchiveStats>,
    failures: Mutex<Failures>,
    began: Instant,
    /// Since when the oldest has been waiting that is not archived, in milliseconds since it
    /// `began`; or [`UP_TO_DATE`].
    behind_since: AtomicU64,
    notices: Noticeboard,
    /// For the upkeep.
    resting: Condvar,
    /// What the feed had when the threads were left behind.
    kept: OnceLock<Mutex<Feed>>,
    /// The term that serves.
    term: Mutex<Option<Arc<Term>>>,
    /// What followers stream, if they may.
    parts: Option<Parts>,
}

impl Shared {
    /// The feed, which knows how far the disk is.
    fn feed(&self) -> MutexGuard<'_, Feed> {
        let mut feed = self.feed.lock().unwrap_or_else(PoisonError::into_inner);
        self.advance(&mut feed);
        feed
    }

    /// How far the disk is.
    fn durable(&self) -> WalPosition {
        *self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The feed of the engine, also when the threads were left behind.
    fn engine_feed(&self) -> MutexGuard<'_, Feed> {
        let feed = self.feed();
        match self.kept.get().filter(|_| feed.is_let_go()) {
            Some(kept) => kept.lock().unwrap_or_else(PoisonError::into_inner),
            None => feed,
        }
    }

    /// Where a copy of the whole database lies while it is uploaded.
    fn copy_path(&self) -> PathBuf {
        directory_of(&self.database).join("copy.db")
    }

    /// Removes the copy of the whole database, unless a later opening owns it since this one was
    /// left.
    fn remove_copy(&self, path: &Path) {
        let feed = self.feed();
        if !feed.is_let_go() {
            let _ = fs::remove_file(path);
        }
    }

    /// Has the threads do nothing more, whenever the store answers them: no request, and nothing
    /// with the files beside the database.
    fn leave(&self) {
        let mut feed = self.feed();
        self.store.leave();
        self.parts.iter().for_each(Parts::end);
        let _ = fs::remove_file(self.copy_path());
        if self.kept.set(Mutex::new(feed.let_go())).is_ok() {
            let message = format!(
                "the store has not answered a request for {LEAVING:?} after the close, and is not \
                 waited for; what is not archived is kept beside the database, and uploaded when \
                 it is opened again"
            );
            self.failed(Activity::Upload, &Error::new(ErrorKind::Lost, message));
        }
    }

    fn advance(&self, feed: &mut Feed) {
        self.parts.iter().for_each(Parts::tells_nothing);
        let durable = self.durable();
        // A record that cannot be written is tried again before anything of it is taken.
        let advanced = feed.durable(durable, &|| self.wal());
        self.note(Activity::Position, advanced);
        self.look_back(feed);
        self.tell_parts(feed);
    }

    /// Notes since when the oldest has been waiting.
    fn look_back(&self, feed: &Feed) {
        let since = feed.since().map_or(UP_TO_DATE, |since| {
            let millis = since.saturating_duration_since(self.began).as_millis();
            u64::try_from(millis).unwrap_or(UP_TO_DATE - 1)
        });
        self.behind_since.store(since, Ordering::Release);
    }

    fn lag(&self) -> Duration {
        match self.behind_since.load(Ordering::Acquire) {
            UP_TO_DATE => Duration::ZERO,
            since => {
                let lag = self.began.elapsed().saturating_sub(Duration::from_millis(since));
                lag.max(Duration::from_millis(1))
            }
        }
    }

    fn now(&self) -> Timestamp {
        (self.archive.clock)()
    }

    fn passed(&self) -> Duration {
        (self.archive.passed)()
    }

    fn wal(&self) -> std::io::Result<Option<monolite::archive::WalReader>> {
        self.primary.get().map_or(Ok(None), |primary| primary.wal())
    }

    /// What is durable is to be uploaded at once.
    fn hurries(&self) {
        self.control().is_hurried = true;
        self.changed.notify_one();
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing more is uploaded.
    fn ends(&self) {
        self.control().is_over = true;
        self.resting.notify_all();
        self.parts.iter().for_each(Parts::end);
    }

    /// Whether nothing should be done any more that can be done later.
    fn is_ending(&self) -> bool {
        let control = self.control();
        control.is_over || control.closing.is_some()
    }

    /// Waits until then; `false` when nothing should be done any more.
    fn rest_until(&self, until: Instant) -> bool {
        let mut control = self.control();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if control.is_over || control.closing.is_some() {
                return false;
            }
            if left.is_zero() {
                return true;
            }
            let waited = self.resting.wait_timeout(control, left);
            control = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn stats(&self) -> MutexGuard<'_, ArchiveStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps for those who look why the WAL could not be kept, unless it is for want of room, of
    /// which the store's error says more.
    fn not_kept(&self, error: &Error) {
        if error.kind() != ErrorKind::Busy {
            self.failed(Activity::Staging, error);
        }
    }

    /// The newest state that is archived cannot be restored: a copy of the whole database is next,
    /// and until it is there nothing is acknowledged as archived. What was seen before a copy that
    /// is due or just came says nothing.
    fn is_lost(&self, why: &Error) {
        let mut feed = self.feed();
        if feed.broken.is_none() && !feed.is_let_go() && !self.notices.is_unknown() {
            feed.breaks(format!("the archive has lost files: {why}"));
            self.stats().is_restorable = false;
            self.changed.notify_one();
        }
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what went wrong for those who look, until this activity succeeds.
    fn failed(&self, activity: Activity, error: &Error) {
        self.failures().failed(activity, error);
        if let Some(primary) = self.primary.get() {
            primary.failed(&format!("{activity}: {error}"));
        }
    }

    fn succeeded(&self, activity: Activity) {
        self.failures().succeeded(activity);
    }

    /// Takes note of what came of all of this activity; the value, if it has succeeded.
    fn note<T>(&self, activity: Activity, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => {
                self.succeeded(activity);
                Some(value)
            }
            Err(error) => {
                self.failed(activity, &error);
                None
            }
        }
    }
}

/// The archiving of one open database.
struct Running {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Running {
    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Refusal> {
        let thread = thread::Builder::new().name(name.into()).spawn(run);
        let thread = thread.map_err(|error| Refusal {
            kind: Kind::Storage,
            message: format!("the thread {name} cannot be started: {error}"),
        })?;
        self.threads().push(thread);
        Ok(())
    }
}

impl Running {
    /// Waits, while the store answers, until what is on the disk now is archived.
    fn keep_up(&self) {
        let (shared, until) = (&self.shared, Instant::now() + KEEPING_UP);
        let to = shared.engine_feed().synced();
        while shared.engine_feed().lacks(to)
            && !shared.failures().has(Activity::Upload)
            && shared.control().closing.is_none()
            && Instant::now() < until
        {
            thread::sleep(KEEPING_UP_LOOK);
        }
    }
}

impl Archiving for Running {
    fn start(&self, primary: Arc<dyn Primary>) -> Result<(), Refusal> {
        let _ = self.shared.primary.set(Arc::clone(&primary));
        if let Some(parts) = &self.shared.parts {
            let listener = parts.listen().map_err(refusal)?;
            let shared = Arc::clone(&self.shared);
            self.spawn("monolite-parts", move || shared.stream(&listener))?;
            let (shared, engine) = (Arc::clone(&self.shared), Arc::clone(&primary));
            self.spawn("monolite-replicas", move || replicas::run(&shared, engine.as_ref()))?;
        }
        let shared = Arc::clone(&self.shared);
        // Without a buffer: an error without a receiver stops the engine instead.
        let (tell, told) = mpsc::sync_channel(0);
        let engine = Arc::clone(&primary);
        let run = move || upload::run(&shared, engine.as_ref(), &tell);
        self.spawn("monolite-archive", run)?;
        if let Some(lease) = self.shared.archive.lease {
            let shared = Arc::clone(&self.shared);
            self.spawn("monolite-lease", move || lease::run(&shared, primary.as_ref(), lease))?;
        }
        let shared = Arc::clone(&self.shared);
        self.spawn("monolite-upkeep", move || upkeep::run(&shared))?;
        match told.recv_timeout(self.shared.archive.opening) {
            Ok(verdict) => verdict.map_err(refusal),
            Err(_) => Ok(()),
        }
    }

    fn durable(&self, to: WalPosition) {
        let shared = &self.shared;
        *shared.durable.lock().unwrap_or_else(PoisonError::into_inner) = to;
        // The thread that has the feed looks again before it lets go, or at the next position.
        if let Ok(mut feed) = shared.feed.try_lock() {
            shared.advance(&mut feed);
        }
        if shared.control().wakes {
            shared.changed.notify_one();
        }
        shared.parts.iter().for_each(Parts::wake);
    }

    fn awaited(&self) {
        self.shared.hurries();
    }

    fn replicates(&self) {
        self.shared.parts.iter().for_each(|parts| parts.replicas.ask());
    }

    fn lag(&self) -> Duration {
        self.shared.lag()
    }

    fn token(&self) -> Option<ArchiveToken> {
        self.shared.token(&self.shared.engine_feed())
    }

    fn may_lack(&self, token: ArchiveToken) -> Option<String> {
        let Some(term) = self.shared.term().clone() else {
            let feed = self.shared.engine_feed();
            let (lineage, epoch) = (feed.position.lineage.bits(), feed.position.epoch.0);
            let is_later = token.lineage == lineage && token.epoch > epoch;
            return is_later.then(|| {
                format!(
                    "{token} is of another primary; this file was the primary's until epoch \
                     {epoch}, and its archive has not answered since it was opened"
                )
            });
        };
        let located = term.primary().record().look_for(token);
        // A token of another history is not this one's matter.
        located.err().filter(|it| it.kind() == ErrorKind::NotFound).map(|it| it.to_string())
    }

    fn prepare(&self) {
        let shared = &self.shared;
        shared.hurries();
        self.keep_up();
        let prepared = shared.engine_feed().prepare(&|| shared.wal());
        // Whether all is kept is seen when it must be.
        let _ = prepared.map_err(|error| shared.failed(Activity::Staging, &error));
    }

    fn may_restart(&self, to: WalPosition) -> bool {
        let shared = &self.shared;
        let may = shared.engine_feed().may_restart(to, &|| shared.wal());
        may.inspect_err(|error| shared.not_kept(error)).is_ok()
    }

    fn capture(&self, to: WalPosition, next: Option<[u32; 2]>) -> Result<(), String> {
        let shared = &self.shared;
        let mut feed = shared.engine_feed();
        let captured = feed.capture(to, next, &|| shared.wal());
        shared.keep_parts(&feed);
        drop(feed);
        match &captured {
            Ok(()) => shared.succeeded(Activity::Staging),
            Err(error) => shared.not_kept(error),
        }
        captured.map_err(|error| error.to_string())
    }

    fn settled(&self) {
        let settled = self.shared.engine_feed().settled(&self.shared.database);
        // Without the record a copy of the whole database is made at the next start.
        self.shared.note(Activity::Position, settled);
    }

    fn close(&self) {
        self.shared.control().closing = Some(Instant::now() + self.shared.archive.close_time);
        self.shared.changed.notify_one();
        self.shared.resting.notify_all();
        let threads = std::mem::take(&mut *self.threads());
        let until = Instant::now() + self.shared.archive.close_time + LEAVING;
        while !threads.iter().all(JoinHandle::is_finished) {
            if Instant::now() >= until {
                return self.shared.leave();
            }
            thread::sleep(KEEPING_UP_LOOK);
        }
        // One that has panicked has said so.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }

    fn stats(&self) -> ArchiveStats {
        let mut stats = self.shared.stats().clone();
        {
            let failures = self.shared.failures();
            (stats.failed_requests, stats.last_error) = (failures.count, failures.told());
        }
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let term = self.shared.term().clone();
        let left = term.and_then(|term| term.primary().lease_left(boottime()));
        stats.lease_left_ms = left.map(millis);
        let feed = self.shared.engine_feed();
        stats.lag_ms = millis(self.shared.lag());
        stats.staged_bytes = feed.staged_bytes();
        stats.copies_because.clone_from(&feed.broken);
        stats.followers = self.shared.parts.as_ref().map_or(0, |parts| parts.followers() as u64);
        stats.replicas = self.shared.parts.as_ref().map_or(0, |parts| parts.replicas.listed());
        stats
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.close();
    }
}
