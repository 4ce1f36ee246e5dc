//! Owns how a file that follows becomes the primary's.
//!
//! # Algorithm
//! 1. [`Follower::claim`] waits until there are grounds, takes the next epoch and sets its fence.
//!    The file still follows, and is read.
//! 2. [`Follower::promote`] has the leader record list the fence, so that every reader passes it.
//! 3. It applies everything below the fence: no primary of before fills a slot behind it.
//! 4. With all of it in the database file, it closes that, and notes beside it that the file comes
//!    right behind the fence. The next opening with the archive takes an epoch more, finds nothing
//!    but fences of its own above what the file has, and goes on without a copy.
//!
//! # Invariants
//! - Who knows something newer than what it has does not take over by itself: of several followers
//!   one that is up to date does.
//! - A file that was written by others while it followed, or in the moment of its closing, is
//!   uploaded as a whole: its times tell, and nothing else can open it before that.
//! - A kill at any moment leaves a file that follows, or one that is the primary's: the note is one
//!   rename, and goes before the place in which the file followed.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use monolite::archive::names::with_ending;
use monolite_ltx::Txid;

use super::following::Following;
use super::place::Place;
use super::{Follower, of};
use crate::archiver::fenced;
use crate::archiver::position::{Identity, Position, directory_of};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::protocol::{
    Candidate, Claim, ClaimOutcome, Claimed, Grounds, Primary, Replicated, Reply, Request,
    Unrecorded, Update, Updated,
};
use crate::random::drawn;
use crate::record::{Holder, ReplicaId};
use crate::requests::{Pace, boottime, carry_out, leader, run};
use crate::store::Store;

/// How much longer than its lease a primary must have been silent: clocks of two machines do not
/// run equally fast, and the renewals come three times in it.
const MARGIN: Duration = Duration::from_millis(250);

/// How often it is looked whether it may go on.
const LOOK: Duration = Duration::from_millis(20);

/// How long it is waited for readers before a file is closed that has not everything.
const READERS: Duration = Duration::from_secs(5);

/// When a [`Follower`] takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// At once: an operator says that the primary is gone, or is to be stopped by this.
    Now,
    /// When a primary with a [lease](crate::Archive::lease) is closed, or was silent for all of it
    /// by the clock of this machine; one without a lease never is replaced so.
    WhenVacant,
    /// At once, though this follower may lack writes that were acknowledged as replicated, and they
    /// are lost then: an operator says so.
    Forced,
}

/// An epoch that [`Follower::claim`] has taken, for [`Follower::promote`].
#[derive(Debug)]
pub struct Succession {
    claimed: Box<Claimed>,
    /// Which replica has claimed; `None` where it did not matter.
    replica: Option<ReplicaId>,
}

impl Succession {
    /// The number of the term. The opening that follows takes a later one.
    pub fn epoch(&self) -> u64 {
        self.claimed.epoch().0
    }
}

impl Follower {
    /// Waits until it may take over, and takes the archive's next epoch: a primary that lives on is
    /// fenced. The file follows until [`Follower::promote`]. `None` once `goes_on` says no, which
    /// is asked every few milliseconds, also while the store does not answer: what was asked last
    /// may be done later, as after a kill. Blocks.
    ///
    /// With [`Takeover::WhenVacant`] it goes on waiting when another follower was faster.
    ///
    /// # Errors
    /// `Fenced` when another process took the epoch just now; why it follows no more, if it does
    /// not; those of the store that stay.
    pub fn claim(
        &self,
        when: Takeover,
        goes_on: &dyn Fn() -> bool,
    ) -> monolite::Result<Option<Succession>> {
        let mut pace = Standing { follower: self, when, goes_on, replica: None };
        {
            let mut progress = self.shared.progress();
            progress.waits = when == Takeover::WhenVacant;
            progress.look_for_bars();
        }
        while pace.goes_on() {
            let (record, replica) = {
                let progress = self.shared.progress();
                (progress.record.clone(), progress.replica)
            };
            pace.replica = replica;
            // The thread that follows has compared the lineage.
            let Some(record) = record.filter(|_| pace.wait(boottime())) else {
                thread::sleep(LOOK);
                continue;
            };
            let archive = &self.shared.archive;
            let candidate = Candidate {
                holder: Holder::from_bits(drawn().map_err(of)?),
                lineage: record.lineage,
                lease: archive.lease,
                address: archive.address.to_string(),
                stream: String::new(),
                page_size: self.shared.page_size,
                commit: 1,
                time: (archive.clock)(),
                unrecorded: Unrecorded::Refuse,
                replicated: match (when, replica) {
                    (Takeover::Forced, _) => Replicated::MayBeLost,
                    (_, Some(replica)) => Replicated::By(replica),
                    (_, None) => Replicated::Nothing,
                },
            };
            let mut claim = match when {
                Takeover::Now | Takeover::Forced => Claim::new(candidate, Grounds::Known),
                Takeover::WhenVacant => Claim::new(candidate, Grounds::Silence(MARGIN)),
            };
            match run(&mut claim, &*archive.store, &archive.layout, &mut pace) {
                None => {}
                Some(Ok(ClaimOutcome::Taken(claimed))) => {
                    let is_listed = !claimed.record().replicas.is_empty();
                    return Ok(Some(Succession {
                        claimed,
                        replica: replica.filter(|_| is_listed),
                    }));
                }
                Some(Ok(ClaimOutcome::Lost)) if when == Takeover::WhenVacant => {}
                Some(Ok(ClaimOutcome::Lost)) => {
                    let record = leader(&*archive.store, &archive.layout).map_err(of)?;
                    return Err(of(fenced(record.as_ref())));
                }
                Some(Err(error)) => return Err(of(error)),
            }
        }
        let mut progress = self.shared.progress();
        progress.waits = false;
        progress.over.clone().map_or(Ok(None), |error| Err(of(error)))
    }

    /// Has the file be the primary's: applies what the archive has below the fence, and closes the
    /// file. It goes on with the archive when it is opened with
    /// [`Options::archive`](monolite::Options::archive), and until then no write is possible
    /// anywhere. Reads through handles of this follower end. Tries for
    /// [`Archive::time_limit`](crate::Archive::time_limit). Blocks.
    ///
    /// With [`Sharing::Shared`](monolite::Sharing) that opening uploads a copy of the whole
    /// database: other programs could have written to the file. Otherwise nothing is uploaded.
    ///
    /// # Errors
    /// `Fenced` when another process took over meanwhile; those of the store and of the file. The
    /// file follows then as before, when [`Archive::follow`](crate::Archive::follow) opens it.
    pub fn promote(mut self, succession: Succession) -> monolite::Result<()> {
        let Some(mut following) = self.stop() else {
            return Err(of(Error::invalid("the thread that follows has panicked")));
        };
        let (epoch, fence) = (succession.claimed.epoch(), succession.claimed.fence());
        let holder = succession.claimed.record().holder;
        if let Err(error) = self.catch_up(&mut following, succession) {
            let _ = self.close_at(following);
            return Err(of(error));
        }
        let path = following.path.clone();
        // One with parts that are not archived has more than that: it is uploaded as a whole.
        let settled = self.close_settled(&path)?.filter(|_| following.is_certain());
        let lineage = following.place.lineage.ok_or_else(|| of(Error::invalid("no lineage")))?;
        let position = Position::behind_fence(lineage, holder, epoch, fence, &path, settled);
        let noted = position.and_then(|position| position.write(&directory_of(&path)));
        noted.and_then(|()| Place::forget(&path)).map_err(of)
    }

    /// Has the record list the fence, and the file have everything below it.
    fn catch_up(&self, following: &mut Following, succession: Succession) -> Result<()> {
        let Succession { claimed, replica } = succession;
        let fence = claimed.fence();
        let below = if claimed.is_handed_over() { fence.get() } else { fence.get() - 1 };
        let mut primary = Primary::new(*claimed)?;
        primary.carries_to(Txid::new(below));
        let archive = &self.shared.archive;
        let mut pace = Patience { until: Instant::now() + archive.time_limit, error: None };
        let mut listed: Update = primary.renew()?;
        match run(&mut listed, &*archive.store, &archive.layout, &mut pace) {
            Some(Ok(Updated::Done { .. })) => {}
            Some(Ok(Updated::Fenced)) => {
                let record = leader(&*archive.store, &archive.layout)?;
                return Err(fenced(record.as_ref()));
            }
            Some(Err(error)) => return Err(error),
            None => return Err(pace.late()),
        }
        while following.next <= fence {
            // A list has everything that is there, also what a slot would not lead to. Where parts
            // are in the file, the slots say which of them are.
            following.looked = following.looked.filter(|_| following.streamed.is_some());
            let error = match following.turn() {
                Ok(true) => continue,
                Ok(false) => {
                    following.streamed = None;
                    continue;
                }
                Err(error) => error,
            };
            if !error.is_transient() && error.kind() != ErrorKind::Gap {
                return Err(error);
            }
            pace.failed(&error);
            if !pace.wait(boottime() + LOOK) {
                return Err(pace.late());
            }
        }
        if replica.is_some() && following.place.replica != replica {
            let message =
                "the file has lost what it had acknowledged as a replica: promote another";
            return Err(Error::new(ErrorKind::Gap, message));
        }
        let is_below = following.next > fence && following.place.from < fence.get();
        if following.is_known() && is_below {
            return Ok(());
        }
        let message = "the archive has lost what it had when this file took over: start again, or \
                       promote another";
        Err(Error::new(ErrorKind::Gap, message))
    }

    /// Closes the database with everything in its file; what that is then, if nothing else can have
    /// written to it.
    fn close_settled(&self, path: &Path) -> monolite::Result<Option<Identity>> {
        let (database, start) = (self.database(), Instant::now());
        while database.checkpoint().wait()?.pages_left > 0 && start.elapsed() < READERS {
            thread::sleep(LOOK);
        }
        let failed =
            |error: io::Error| of(Error::of_io(format!("look at {}", path.display()), error));
        let before = Identity::settled(path).map_err(failed)?;
        database.close()?;
        let after = Identity::of(&fs::metadata(path).map_err(failed)?);
        let has_wal = fs::metadata(with_ending(path, "-wal")).is_ok_and(|wal| wal.len() > 0);
        let is_ours = self.shared.replica.is_exclusive() && before == after && !has_wal;
        Ok(Some(after).filter(|_| is_ours))
    }
}

/// The time in which a follower waits for its turn.
struct Standing<'a> {
    follower: &'a Follower,
    when: Takeover,
    goes_on: &'a dyn Fn() -> bool,
    /// Which replica claims. One that becomes another claims anew.
    replica: Option<ReplicaId>,
}

impl Standing<'_> {
    fn goes_on(&self) -> bool {
        let is_over = {
            let progress = self.follower.shared.progress();
            progress.over.is_some() || progress.is_ending
        };
        !is_over && (self.goes_on)()
    }

    /// Keeps why an attempt failed: reads fail for the thread that follows, too, which tells it.
    fn note(&self, request: &Request, reply: &Reply) {
        let is_answer =
            |error: &Error| matches!(error.kind(), ErrorKind::Exists | ErrorKind::Conflict);
        if let Reply::Failed(error) = reply
            && !request.is_read()
            && !is_answer(error)
        {
            let mut progress = self.follower.shared.progress();
            let record = progress.record.clone();
            progress.failed_claim = record.map(|record| (record, error.to_string()));
        }
    }
}

impl Pace for Standing<'_> {
    fn now(&self) -> Duration {
        boottime()
    }

    fn wait(&mut self, until: Duration) -> bool {
        loop {
            let (is_another, is_current) = {
                let progress = self.follower.shared.progress();
                let is_current = progress.reached >= progress.stats.newest
                    && progress.stats.last_error.is_none();
                (progress.replica != self.replica, is_current)
            };
            if is_another || !self.goes_on() {
                return false;
            }
            let left = until.saturating_sub(self.now());
            if left.is_zero() && (is_current || self.when != Takeover::WhenVacant) {
                return true;
            }
            thread::sleep(if left.is_zero() { LOOK } else { left.min(LOOK) });
        }
    }

    /// A request may hang for as long as a mount does: one under way at a stop is left to itself.
    fn ask(&mut self, _: &dyn Store, _: &Layout, request: &Request) -> Option<Reply> {
        let (archive, asked) = (self.follower.shared.archive.clone(), request.clone());
        let (answers, answer) = mpsc::sync_channel(1);
        let asks = thread::Builder::new().name("monolite-claim".into()).spawn(move || {
            // After a stop nothing waits for the answer.
            let _ = answers.send(carry_out(&*archive.store, &archive.layout, &asked));
        });
        if let Err(error) = asks {
            return Some(Reply::Failed(Error::of_io("start a thread", error)));
        }
        loop {
            match answer.recv_timeout(LOOK) {
                Ok(reply) => {
                    self.note(request, &reply);
                    return Some(reply);
                }
                Err(RecvTimeoutError::Timeout) if self.goes_on() => {}
                Err(_) => return None,
            }
        }
    }
}

/// For how long a store that does not answer is asked again.
struct Patience {
    until: Instant,
    error: Option<Error>,
}

impl Patience {
    fn late(self) -> Error {
        let late = || Error::new(ErrorKind::Lost, "the store has not answered in time");
        self.error.unwrap_or_else(late)
    }
}

impl Pace for Patience {
    fn now(&self) -> Duration {
        boottime()
    }

    fn wait(&mut self, until: Duration) -> bool {
        let left = self.until.saturating_duration_since(Instant::now());
        thread::sleep(until.saturating_sub(self.now()).min(left));
        Instant::now() < self.until
    }

    fn failed(&mut self, error: &Error) {
        self.error = Some(error.clone());
    }
}
