//! Owns what a primary streams to its followers: whole pages that have changed, as soon as they are
//! on this disk ([`crate::streaming`]).
//!
//! # Algorithm
//! 1. While a follower is there, or was just now, `monolite-parts` reads commits from the WAL as
//!    they become durable, and keeps of each page the last version ([`Ring`]). The first begin at
//!    the last seal, or where that is gone, with what comes next; each goes on where the one before
//!    ended. It takes the feed for as long as it asks where that is, and does not wait where
//!    another thread has it for longer ([`Parts::told`]).
//! 2. Before the WAL begins anew, the rest of it is read, unless that is too much.
//! 3. Each slot that is filled leaves a *seal*: its number, and the position at which it ends.
//! 4. A follower says which slot it has, or the last part. From there on it gets the parts, each
//!    seal that it has reached, and a sign of life. One that is too slow, or comes from a place
//!    that the pages do not reach back to, is told to go on by the archive.
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

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Builder, Thread};
use std::time::{Duration, Instant};

use monolite::archive::{ArchiveToken, Frames, WalPosition};
use monolite_ltx::Txid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::feed::{Feed, Onward};
use super::replicas::{Connection, Replicas};
use super::ring::{Next, Ring, Seal};
use super::{Archive, GROUP_BYTES, Shared};
use crate::error::{Error, Result};
use crate::streaming::{ALIVE, Hello, Line, MESSAGE_BYTES, Message, Peer};

/// How many bytes of commits are read at once, unless one has more.
const PIECE_BYTES: u64 = 4 << 20;

/// For how long parts are made for a follower that is not there: it may be fetching slots.
const KEPT: Duration = Duration::from_secs(30);

/// How often it is looked whether it is over, while no follower comes.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How many connections there may be.
const CONNECTIONS: usize = 32;

/// What is streamed of one database.
pub(super) struct Parts {
    peer: Peer,
    pub(super) replicas: Replicas,
    ring: Mutex<Ring>,
    changed: Condvar,
    reader: OnceLock<Thread>,
    is_wanted: AtomicBool,
    /// What all up to a position is archived as at the latest. A thread that has the feed stages up
    /// to that position or, once it has looked again how far the disk is, a later one; before it
    /// looks, it says that this is not known. So where it is read after a position of the disk,
    /// what lies between begins at most one group of its own.
    told: Mutex<Option<(ArchiveToken, WalPosition)>>,
    followers: AtomicUsize,
}

/// Commits that are to be kept.
struct Piece {
    epoch: u64,
    bound: u64,
    from: WalPosition,
    range: Onward,
}

/// What is to be kept, by a thread that does not have the feed.
enum Beside {
    Piece(Piece),
    Nothing,
    /// Only the feed can tell.
    Unknown,
}

impl Parts {
    pub(super) fn new(peer: Peer) -> Parts {
        Parts {
            peer,
            replicas: Replicas::default(),
            ring: Mutex::default(),
            changed: Condvar::new(),
            reader: OnceLock::new(),
            is_wanted: AtomicBool::new(false),
            told: Mutex::default(),
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
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(listener)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> MutexGuard<'_, Option<(ArchiveToken, WalPosition)>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the feed says is about to change.
    pub(super) fn tells_nothing(&self) {
        *self.told() = None;
    }

    /// What is to be kept next up to `to`, which was on the disk before the feed was asked for, and
    /// another thread had that. Slots have up to `group` bytes of commits.
    fn beside(&self, to: WalPosition, group: u64) -> Beside {
        let (ring, told) = (self.ring(), *self.told());
        let (Some((token, synced)), Some((from, salts))) = (told, ring.end()) else {
            return Beside::Unknown;
        };
        let WalPosition { generation: number, offset: end } = to;
        let is_here = [from, synced].iter().all(|it| it.generation == number);
        if token.epoch != ring.epoch() || !is_here {
            return Beside::Unknown;
        }
        if to <= from {
            return Beside::Nothing;
        }
        let ahead = end.saturating_sub(synced.offset);
        let groups = if ahead > 0 { 1 + 2 * (ahead / group) } else { 0 };
        let range = Onward::Range { number, salts, from: from.offset, to: end };
        Beside::Piece(Piece { epoch: token.epoch, bound: token.txid + groups, from, range })
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

    /// Whether the secrets of [`Archive::stream_to`] and [`Archive::stream_from`] may be used.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for one that is too short.
    pub fn check_stream(&self) -> Result<()> {
        self.stream_to.iter().chain(&self.stream_from).try_for_each(Peer::check)
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
        ring.seals(Seal { txid, at, pages });
        drop(ring);
        parts.changed.notify_all();
    }

    /// Keeps what has become durable, if a follower wants it. Where the WAL was let go just now,
    /// this is the last moment for it; what takes too long then is given up.
    pub(super) fn keep_parts(&self, feed: &Feed) {
        let Some(parts) = &self.parts else { return };
        while let Some(piece) = self.piece(parts, feed) {
            if !self.keep(parts, piece, MESSAGE_BYTES as u64) {
                break;
            }
        }
        parts.changed.notify_all();
    }

    /// What is to be kept next, if a follower wants it.
    fn piece(&self, parts: &Parts, feed: &Feed) -> Option<Piece> {
        if !parts.is_wanted.load(Ordering::Relaxed) {
            return None;
        }
        let token = self.token(feed);
        let mut ring = parts.ring();
        // Without a token a copy of the database is due, or nothing has begun.
        ring.begins(token.map_or(0, |token| token.epoch));
        if ring.wanted.is_none_or(|wanted| wanted.elapsed() > KEPT) {
            parts.is_wanted.store(false, Ordering::Relaxed);
            ring.forgets_pages();
            return None;
        }
        let ArchiveToken { epoch, txid, .. } = token?;
        let (read, sealed) = (ring.read(), ring.last_seal().map(|seal| (seal.at, seal.pages)));
        drop(ring);
        let sealed = sealed.filter(|(at, _)| at.generation == feed.synced().generation);
        let (from, pages) = read.or(sealed).or_else(|| self.beginning(feed))?;
        let range = feed.onward(from);
        let mut ring = parts.ring();
        match range {
            Onward::Gone => ring.forgets_pages(),
            _ => ring.goes_on_from(from, pages),
        }
        matches!(range, Onward::Range { .. }).then_some(Piece { epoch, bound: txid, from, range })
    }

    /// Keeps a piece of at most [`PIECE_BYTES`], unless its range has more than `limit`; whether
    /// there may be another one. The WAL may begin anew meanwhile: then its rest was kept before.
    fn keep(&self, parts: &Parts, piece: Piece, limit: u64) -> bool {
        let frames = self.frames(piece.range, limit, PIECE_BYTES);
        let mut ring = parts.ring();
        if ring.epoch() != piece.epoch || ring.read().is_none_or(|(read, _)| read != piece.from) {
            return true;
        }
        let is_kept =
            frames.is_some_and(|(generation, frames)| ring.keep(&frames, generation, piece.bound));
        if !is_kept {
            ring.forgets_pages();
        }
        is_kept
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
            let _ = named().spawn_scoped(scope, || self.read_parts(parts));
            while !parts.ring().is_over {
                let mut comes = [PollFd::new(listener, PollFlags::IN)];
                if !matches!(poll(&mut comes, Some(&LOOK)), Ok(1)) {
                    continue;
                }
                let is_room = connections.load(Ordering::Relaxed) < CONNECTIONS;
                let Some((tcp, _)) = is_room.then(|| listener.accept().ok()).flatten() else {
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
        // Before it is looked whether it is over: who ends it wakes this thread.
        let _ = parts.reader.set(thread::current());
        while !parts.ring().is_over {
            // One that is wanted is woken; it looks whether it still is.
            thread::park_timeout(KEPT);
            while self.keep_next(parts) {}
        }
    }

    /// Keeps what comes next, without a lock while it reads; whether there may be more.
    fn keep_next(&self, parts: &Parts) -> bool {
        // Before the feed is asked: see `told`.
        let to = self.durable();
        let has_feed = self.feed.try_lock().ok();
        let piece = match (has_feed, parts.beside(to, self.archive.group)) {
            (None, Beside::Nothing) => None,
            (None, Beside::Piece(piece)) => Some(piece),
            (None, Beside::Unknown) => self.piece(parts, &self.feed()),
            (Some(mut feed), _) => {
                self.advance(&mut feed);
                self.piece(parts, &feed)
            }
        };
        let is_more = piece.is_some_and(|piece| self.keep(parts, piece, u64::MAX));
        parts.changed.notify_all();
        is_more
    }

    /// Tells what parts have to know of the feed, while another thread has it.
    pub(super) fn tell_parts(&self, feed: &Feed) {
        if let Some(parts) = self.parts.as_ref().filter(|it| it.is_wanted.load(Ordering::Relaxed)) {
            *parts.told() = self.token(feed).map(|token| (token, feed.synced()));
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
            // The slot that it can go on from need not wait for the interval.
            self.hurries();
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
        parts.ring().wanted = Some(Instant::now());
        parts.is_wanted.store(true, Ordering::Relaxed);
        if parts.ring().read().is_none() {
            self.keep_next(parts);
        }
        parts.wake();
        let ring = parts.ring();
        let at = match hello.at {
            Some((epoch, at)) => (epoch == ring.epoch()).then_some(at),
            None => ring.end_of(hello.slot),
        };
        at.filter(|at| ring.leads_from(*at)).map(|at| (ring.epoch(), at))
    }
}

/// Sends to a follower that has a slot, and everything up to a position, until it is gone or cannot
/// go on.
fn send(
    parts: &Parts,
    line: &mut Line,
    connection: &Connection<'_>,
    (epoch, mut slot, mut at): (u64, u64, WalPosition),
) -> Result<()> {
    loop {
        match parts.next(epoch, slot, at) {
            (Next::Part(part), _) => {
                at = part.to();
                connection.sent(at);
                line.send(&part.encode())?;
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
