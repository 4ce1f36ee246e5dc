//! Owns what a primary streams to its followers: whole pages that have changed, as soon as they are
//! on this disk ([`crate::streaming`]).
//!
//! # Algorithm
//! 1. While a follower is there, or was just now, `monolite-parts` reads commits from the WAL as
//!    they become durable, into *parts*: of each page the last version. The first begins at the
//!    last seal, or where that is gone, with what comes next; each goes on where the one before
//!    ended. The newest parts are kept, up to [`MESSAGE_BYTES`].
//! 2. Before the WAL begins anew, the rest of it is read, unless that is too much.
//! 3. Each slot that is filled leaves a *seal*: its number, and the position at which it ends.
//! 4. A follower says which slot it has, or the last part. From there on it gets the parts, each
//!    seal that it has reached, and a sign of life. One that is too slow, or comes from a place
//!    that the parts do not reach back to, is told to go on by the archive.
//!
//! # Invariants
//! - A part may be applied to the state of any position from its beginning to its end.
//! - It is on this disk before it is kept, and says the TXID by which it will be archived, as a
//!   token of that moment does.
//! - A part has all pages by which the database has grown in it.
//!
//! # Threads and locks
//! `monolite-parts` accepts, one more of that name reads, and one for each follower sends. The
//! ring's lock is taken behind the feed's, and never held during I/O. A follower that does not read
//! holds up only its own thread, for [`PATIENCE`](crate::streaming::PATIENCE).

use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Builder, Thread};
use std::time::{Duration, Instant};

use monolite::archive::{ArchiveToken, Frames, WalPosition};
use monolite_ltx::Txid;

use super::feed::{Feed, Onward};
use super::replicas::{Connection, Replicas};
use super::{Archive, GROUP_BYTES, Shared};
use crate::error::{Error, Result};
use crate::streaming::{ALIVE, Hello, Line, MESSAGE_BYTES, Message, Part, Peer};

/// How many bytes of commits a part has at most, unless one has more.
const PART_BYTES: u64 = 4 << 20;

/// For how long parts are made for a follower that is not there: it may be fetching slots.
const KEPT: Duration = Duration::from_secs(30);

/// How many seals are kept.
const SEALS: usize = 256;

/// How many connections there may be.
const CONNECTIONS: usize = 32;

/// The end of a slot.
#[derive(Clone, Copy, Debug)]
struct Seal {
    txid: Txid,
    at: WalPosition,
    /// Size of the database in pages.
    pages: u32,
}

/// A part that is kept.
struct Kept {
    from: WalPosition,
    to: WalPosition,
    body: Vec<u8>,
}

#[derive(Default)]
struct Ring {
    epoch: u64,
    parts: VecDeque<Arc<Kept>>,
    bytes: usize,
    seals: VecDeque<Seal>,
    /// How far the WAL was read, and the size of the database there.
    read: Option<(WalPosition, u32)>,
    /// When a follower was there last.
    wanted: Option<Instant>,
    is_over: bool,
}

/// What is streamed of one database.
pub(super) struct Parts {
    peer: Peer,
    pub(super) replicas: Replicas,
    ring: Mutex<Ring>,
    changed: Condvar,
    listens: OnceLock<SocketAddr>,
    reader: OnceLock<Thread>,
    is_wanted: AtomicBool,
    followers: AtomicUsize,
}

/// What a follower gets next.
enum Next {
    Part(Arc<Kept>),
    Seal(Seal),
    Nothing,
    Gone,
}

impl Ring {
    fn forgets_parts(&mut self) {
        self.parts.clear();
        (self.bytes, self.read) = (0, None);
    }

    fn begins(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.forgets_parts();
            self.seals.clear();
            self.epoch = epoch;
        }
    }

    fn keep(&mut self, kept: Kept, pages: u32) {
        self.read = Some((kept.to, pages));
        self.bytes += kept.body.len();
        self.parts.push_back(Arc::new(kept));
        while self.bytes > MESSAGE_BYTES && self.parts.len() > 1 {
            self.bytes -= self.parts.pop_front().map_or(0, |oldest| oldest.body.len());
        }
    }

    /// Whether what is kept leads on from `at`.
    fn leads_from(&self, at: WalPosition) -> bool {
        let Some((read, _)) = self.read else { return false };
        self.parts.front().map_or(read, |first| first.from) <= at
    }

    /// What comes behind `at` for a follower that knows of `slot`.
    fn next(&self, epoch: u64, slot: u64, at: WalPosition) -> Next {
        if self.epoch != epoch || !self.leads_from(at) {
            return Next::Gone;
        }
        let is_new = |seal: &&Seal| seal.txid.get() > slot && seal.at <= at;
        if let Some(seal) = self.seals.iter().find(is_new) {
            return Next::Seal(*seal);
        }
        let part = self.parts.get(self.parts.partition_point(|part| part.to <= at));
        part.map_or(Next::Nothing, |part| Next::Part(Arc::clone(part)))
    }
}

impl Parts {
    pub(super) fn new(peer: Peer) -> Parts {
        Parts {
            peer,
            replicas: Replicas::default(),
            ring: Mutex::default(),
            changed: Condvar::new(),
            listens: OnceLock::new(),
            reader: OnceLock::new(),
            is_wanted: AtomicBool::new(false),
            followers: AtomicUsize::new(0),
        }
    }

    /// Listens.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a secret that is too short; those of the address.
    pub(super) fn listen(&self) -> Result<TcpListener> {
        self.peer.check()?;
        let failed = |error| Error::of_io(format!("listen on {}", self.peer.address), error);
        let listener = TcpListener::bind(&*self.peer.address).map_err(failed)?;
        let _ = self.listens.set(listener.local_addr().map_err(failed)?);
        Ok(listener)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many followers are there.
    pub(super) fn followers(&self) -> usize {
        self.followers.load(Ordering::Relaxed)
    }

    /// More is durable.
    pub(super) fn wake(&self) {
        if let Some(reader) = self.reader.get().filter(|_| self.is_wanted.load(Ordering::Relaxed)) {
            reader.unpark();
        }
    }

    /// Nothing more comes: followers get what is there.
    pub(super) fn end(&self) {
        self.ring().is_over = true;
        self.changed.notify_all();
        self.reader.get().into_iter().for_each(Thread::unpark);
        // The listener looks when something comes.
        if let Some(address) = self.listens.get() {
            let _ = TcpStream::connect_timeout(address, ALIVE);
        }
    }

    /// Waits for what comes next, as long as a sign of life may take; whether it is over.
    fn next(&self, epoch: u64, slot: u64, at: WalPosition) -> (Next, bool) {
        let mut ring = self.ring();
        let until = Instant::now() + ALIVE;
        loop {
            ring.wanted = Some(Instant::now());
            let next = ring.next(epoch, slot, at);
            let left = until.saturating_duration_since(Instant::now());
            if !matches!(next, Next::Nothing) || ring.is_over || left.is_zero() {
                return (next, ring.is_over);
            }
            let waited = self.changed.wait_timeout(ring, left);
            ring = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Archive {
    /// Has the primary listen at `address`, as `db1.internal:7001`, for [followers that
    /// stream](Archive::stream_from): they have what is on this disk some milliseconds later.
    /// `secret` is the same on both sides, 16 random bytes or more. It proves who is there and that
    /// nothing was changed. **Nothing is encrypted**: listen in a private network, or use a tunnel.
    /// Default: no. An opening fails with `Storage` where it cannot listen.
    #[must_use]
    pub fn stream_to(mut self, address: &str, secret: &[u8]) -> Archive {
        self.stream_to = Some(Peer::new(address, secret));
        self
    }

    /// Has [`Follower`](crate::Follower) stream from the primary at `address`, or where the leader
    /// record says that it listens, whenever it has what
    /// the archive has and the primary is there. Otherwise it goes on by the archive. Reads then
    /// see what is on the disk of the primary: where that dies, it may be lost before it is
    /// archived, and the follower goes back to what is in history. Default: no.
    #[must_use]
    pub fn stream_from(mut self, address: Option<&str>, secret: &[u8]) -> Archive {
        self.stream_from = Some(Peer::new(address.unwrap_or_default(), secret));
        self
    }
}

impl Shared {
    /// What everything durable is archived as, or will be. Of one moment: the feed is held when
    /// the number of the last group is noted.
    pub(super) fn token(&self, feed: &Feed) -> Option<ArchiveToken> {
        let stats = self.stats();
        if feed.broken.is_some() || !stats.is_restorable {
            return None;
        }
        let txid = stats.txid + feed.groups_ahead(self.archive.group);
        Some(ArchiveToken { lineage: feed.position.lineage.bits(), epoch: stats.epoch, txid })
    }

    /// A slot is filled that ends at `at`, if that is of this process.
    pub(super) fn seals(&self, feed: &Feed, txid: Txid, at: Option<WalPosition>, pages: u32) {
        let (Some(parts), Some(token)) = (&self.parts, self.token(feed)) else { return };
        let mut ring = parts.ring();
        ring.begins(token.epoch);
        let Some(at) = at else { return };
        ring.seals.push_back(Seal { txid, at, pages });
        let old = ring.seals.len().saturating_sub(SEALS);
        ring.seals.drain(..old);
        drop(ring);
        parts.changed.notify_all();
    }

    /// Keeps what has become durable, if a follower wants it. Where the WAL was let go just now,
    /// this is the last moment for it.
    pub(super) fn keep_parts(&self, feed: &Feed) {
        let Some(parts) = self.parts.as_ref().filter(|it| it.is_wanted.load(Ordering::Relaxed))
        else {
            return;
        };
        let mut ring = parts.ring();
        match self.token(feed) {
            Some(token) => ring.begins(token.epoch),
            // A copy of the database is due, or nothing has begun.
            None => ring.begins(0),
        }
        if ring.wanted.is_none_or(|wanted| wanted.elapsed() > KEPT) {
            parts.is_wanted.store(false, Ordering::Relaxed);
            ring.forgets_parts();
        }
        drop(ring);
        while self.keep_part(parts, feed) {
            parts.changed.notify_all();
        }
        parts.changed.notify_all();
    }

    /// Keeps the next part, if there is one.
    fn keep_part(&self, parts: &Parts, feed: &Feed) -> bool {
        let (read, sealed) = {
            let ring = parts.ring();
            (ring.read, ring.seals.back().map(|seal| (seal.at, seal.pages)))
        };
        let sealed = sealed.filter(|(at, _)| feed.onward(*at) != Onward::Gone);
        let Some((from, pages)) = read.or(sealed).or_else(|| self.beginning(feed)) else {
            return false;
        };
        let part = match feed.onward(from) {
            Onward::Nothing => {
                parts.ring().read = Some((from, pages));
                return false;
            }
            range => {
                let frames = self.frames(range, MESSAGE_BYTES as u64, PART_BYTES);
                frames.zip(self.token(feed)).and_then(|((number, frames), token)| {
                    part_of(&frames, number, token.txid, pages)
                })
            }
        };
        let mut ring = parts.ring();
        let Some(part) = part else {
            ring.forgets_parts();
            return false;
        };
        let (to, pages) = (part.to, part.commit);
        ring.keep(Kept { from, to, body: Message::Part(part).encode() }, pages);
        true
    }

    /// Where parts may begin though no slot ends in what is left of the WAL, and the size of the
    /// database there: a slot that ends later leads to them.
    fn beginning(&self, feed: &Feed) -> Option<(WalPosition, u32)> {
        let (generation, frames) = self.frames(feed.unarchived(), GROUP_BYTES, GROUP_BYTES)?;
        Some((WalPosition { generation, offset: frames.to() }, frames.commit()))
    }

    /// Commits of a range that has `limit` bytes at most: so many bytes of them, or one.
    fn frames(&self, range: Onward, limit: u64, most: u64) -> Option<(u64, Frames)> {
        let Onward::Range { number, salts, from, to } = range else { return None };
        let wal = self.wal().ok()?.filter(|wal| wal.salts() == salts && to - from <= limit)?;
        Some((number, wal.commits(from, to, most).ok()?))
    }

    /// Accepts followers until it ends.
    pub(super) fn stream(&self, listener: &TcpListener) {
        let Some(parts) = &self.parts else { return };
        let connections = &AtomicUsize::new(0);
        thread::scope(|scope| {
            let named = || Builder::new().name("monolite-parts".into());
            let reading = named().spawn_scoped(scope, || self.read_parts(parts));
            if let Ok(reading) = reading {
                let _ = parts.reader.set(reading.thread().clone());
            }
            for tcp in listener.incoming() {
                if parts.ring().is_over {
                    break;
                }
                let (Ok(tcp), true) = (tcp, connections.load(Ordering::Relaxed) < CONNECTIONS)
                else {
                    // As without descriptors.
                    thread::sleep(Duration::from_millis(10));
                    continue;
                };
                connections.fetch_add(1, Ordering::Relaxed);
                let attended = named().spawn_scoped(scope, move || {
                    // The follower says why it has ended.
                    let _ = self.attend(parts, tcp);
                    connections.fetch_sub(1, Ordering::Relaxed);
                });
                if attended.is_err() {
                    connections.fetch_sub(1, Ordering::Relaxed);
                }
            }
        });
    }

    fn read_parts(&self, parts: &Parts) {
        while !parts.ring().is_over {
            // One that is wanted is woken; it looks whether it still is.
            thread::park_timeout(KEPT);
            if parts.is_wanted.load(Ordering::Relaxed) {
                self.keep_parts(&self.feed());
            }
        }
    }

    /// Streams to a follower until it is gone or cannot go on.
    fn attend(&self, parts: &Parts, tcp: TcpStream) -> Result<()> {
        let (mut line, hello) = Line::accept(tcp, &parts.peer)?;
        if self.feed().position.lineage.bits() != hello.lineage {
            let why = "the primary there has another database";
            return line.send(&Message::Refused(why.into()).encode());
        }
        let Some((epoch, at)) = self.join(parts, &hello) else {
            return line.send(&Message::Behind.encode());
        };
        line.send(&Message::Welcome { epoch }.encode())?;
        let _counted = Counted::of(&parts.followers);
        let connection = parts.replicas.connected(hello.replica, at);
        let mut hearing = line.hearing()?;
        thread::scope(|scope| {
            let heard = Builder::new().name("monolite-parts".into()).spawn_scoped(scope, || {
                let _ = self.hear(&mut hearing, &connection);
                hearing.hang_up();
            });
            heard.map_err(|error| Error::of_io("begin a thread", error))?;
            let sent = send(parts, &mut line, &connection, (epoch, hello.slot, at));
            line.hang_up();
            sent
        })
    }

    /// Hears what a follower has, until it is gone, says nothing in time, or comes again.
    fn hear(&self, line: &mut Line, connection: &Connection<'_>) -> Result<()> {
        while connection.is_current() {
            let Some(at) = line.hear()? else { continue };
            let had = connection.has(at);
            if let Some(((to, count), engine)) = had.zip(self.primary.get()) {
                engine.replicated(to, count);
            }
        }
        Ok(())
    }

    /// Where a follower goes on, and in which epoch; `None` where it cannot.
    fn join(&self, parts: &Parts, hello: &Hello) -> Option<(u64, WalPosition)> {
        let feed = self.feed();
        parts.ring().wanted = Some(Instant::now());
        parts.is_wanted.store(true, Ordering::Relaxed);
        self.keep_parts(&feed);
        drop(feed);
        parts.wake();
        let ring = parts.ring();
        let at = match hello.at {
            Some((epoch, at)) => (epoch == ring.epoch).then_some(at),
            None => {
                ring.seals.iter().find(|seal| seal.txid.get() == hello.slot).map(|seal| seal.at)
            }
        };
        at.filter(|at| ring.leads_from(*at)).map(|at| (ring.epoch, at))
    }
}

/// Sends to a follower that has `slot`, and everything up to `at`, until it is gone or cannot go on.
fn send(
    parts: &Parts,
    line: &mut Line,
    connection: &Connection<'_>,
    (epoch, mut slot, mut at): (u64, u64, WalPosition),
) -> Result<()> {
    loop {
        match parts.next(epoch, slot, at) {
            (Next::Part(part), _) => {
                connection.sent(part.to);
                line.send(&part.body)?;
                at = part.to;
            }
            (Next::Seal(Seal { txid, at, .. }), _) => {
                line.send(&Message::Sealed { txid, at }.encode())?;
                slot = txid.get();
            }
            (Next::Nothing, false) => line.send(&Message::Alive.encode())?,
            (Next::Nothing, true) | (Next::Gone, _) => {
                return line.send(&Message::Behind.encode());
            }
        }
    }
}

/// Counts one for as long as it is there.
struct Counted<'c>(&'c AtomicUsize);

impl Counted<'_> {
    fn of(counter: &AtomicUsize) -> Counted<'_> {
        counter.fetch_add(1, Ordering::Relaxed);
        Counted(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The part of these commits; `None` when they do not have all pages by which the database has
/// grown since it had `pages_before`, or it is too long for a message.
fn part_of(frames: &Frames, generation: u64, bound: u64, pages_before: u32) -> Option<Part> {
    let (commit, page_bytes) = (frames.commit(), u32::try_from(frames.page_bytes()).ok()?);
    let lock = monolite_ltx::PageSize::new(page_bytes).ok()?.lock_page().get();
    let is_kept = |pgno: u32| (1..=commit).contains(&pgno) && pgno != lock;
    let pages: BTreeMap<u32, &[u8]> =
        frames.iter().filter(|it| is_kept(it.pgno)).map(|it| (it.pgno, it.page)).collect();
    let mut grown = (pages_before.saturating_add(1)..=commit).filter(|pgno| *pgno != lock);
    if !grown.all(|pgno| pages.contains_key(&pgno)) || pages.is_empty() {
        return None;
    }
    let pages: Vec<u8> = pages
        .into_iter()
        .flat_map(|(pgno, page)| [&pgno.to_le_bytes()[..], page].concat())
        .collect();
    let to = WalPosition { generation, offset: frames.to() };
    let part = Part { to, salts: frames.salts(), bound, commit, page_bytes, pages };
    (part.pages.len() < MESSAGE_BYTES - 64).then_some(part)
}
