//! Owns how an epoch is taken: at every start, and for a takeover.
//!
//! # Algorithm
//! 1. Read the record. Where none is and there are no files at all, create it: epoch 1. Files of a
//!    record that was lost may be adopted: it begins with the epoch after that of the newest file,
//!    or every claim would find itself behind a larger one.
//! 2. A record of another holder is left alone unless there are [`Grounds`]. So is one of a later
//!    epoch than the grounds are for, as a store may be away for hours in between. Silence is one
//!    only of a holder with a lease, and counts from a read that was answered: a store that was
//!    away for both says nothing of the holder. One that names replicas is taken by a claimant
//!    alone that has what they have ([`Replicated`]): the swap fails if they have changed.
//! 3. Swap it for one of the next epoch. Lost: back to 1.
//! 4. Find the newest slot and look at it: of a larger epoch, and the claim is lost. Put the fence
//!    behind it. Where something is, look: of a smaller epoch it is history, climb over it; the
//!    fence itself, done; anything else, and the claim is lost.
//! 5. List what was climbed over, and fences right below that no record lists: their claimants died
//!    before they served. Readers pass over a fence that is not listed, and would find a hole.
//! 6. Read the record: still ours, or the claim is lost. The fence stays; readers pass over it, as
//!    no record lists it, until a later claimant climbs over it.
//!
//! Where there are no slots (a rule of the store has them expire, or they were never brought
//! along), the fence goes behind the newest file of the other levels: slots below it would not
//! count. Slots are looked for once more then, as a primary may have made both meanwhile.
//!
//! The newest slot may be a fence with a copy of a database behind it, a snapshot of its TXID, of
//! another size than the slots below; the next fence says the copy's. Or the slots behind it were
//! lost, and merged files have their TXIDs: the next fence goes behind those, too.
//!
//! A newest slot that is gone when it is looked at was deleted, and a newer one is there: find the
//! newest again. To go on would put a fence into slots that a larger epoch fills.

use std::time::Duration;

use monolite_ltx::{Header, PageSize, Timestamp, Txid};

use super::swap::{Swap, Swapped};
use super::{Machine, Reply, Request, Step};
use crate::error::{Error, ErrorKind};
use crate::record::{Epoch, Fence, Holder, Lineage, Record, ReplicaId, State as RecordState};
use crate::slot::{Found, Place, Slot};
use crate::store::Tag;

/// How often the record is looked at while it is another's, in parts of its TTL.
const LOOKS: u32 = 4;

/// The TTL in the record of a holder without a lease, which does not renew it.
const WITHOUT_LEASE: Duration = Duration::from_secs(60);

/// Who wants to be the primary.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Drawn at this start.
    pub holder: Holder,
    /// That of the database. The archive must have it; one that begins gets it.
    pub lineage: Lineage,
    /// For how long the others leave the record alone when it does not change; `None` for one that
    /// is not renewed, which they leave alone for ever.
    pub lease: Option<Duration>,
    /// Where clients will find it.
    pub address: String,
    /// Where it streams to followers; empty where it does not.
    pub stream: String,
    /// Size of the database's pages; a fence says it where no file is below it.
    pub page_size: PageSize,
    /// Size of the database in pages, at least 1; likewise.
    pub commit: u32,
    /// The time of day, and later than that of what was archived last, if that is known: times rise
    /// with TXIDs. A fence is later than the slot below it in any case.
    pub time: Timestamp,
    /// What to do about files without a record.
    pub unrecorded: Unrecorded,
    /// What it has of writes that were acknowledged as replicated.
    pub replicated: Replicated,
}

/// What a claimant has of the writes that were acknowledged as replicated and are not archived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicated {
    /// All: its file is the one that has acknowledged them.
    All,
    /// What this follower has acknowledged.
    By(ReplicaId),
    /// Nothing.
    Nothing,
    /// An operator says that they may be lost.
    MayBeLost,
}

/// What allows a claimant to take another holder's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grounds {
    /// None but that a holder with a lease releases it, or shows no life for its TTL and so much
    /// more, by our own clock.
    Silence(Duration),
    /// It is known to be gone: the lock of the database on this machine is ours, or an operator
    /// says so. A holder that lives on is fenced.
    Known,
}

/// What to do about files without a leader record: Litestream's, or a record that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrecorded {
    /// Refuse the archive.
    Refuse,
    /// Begin a record: an operator says that no other program writes.
    Adopt,
}

/// An epoch that was taken. Everything below its fence is history; read it, then serve
/// ([`Primary`](super::Primary)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub(super) record: Box<Record>,
    pub(super) tag: Tag,
    pub(super) fence: Slot,
    pub(super) climbed: Vec<Fence>,
    pub(super) began: Duration,
    is_handed_over: bool,
}

impl Claimed {
    /// The epoch.
    pub fn epoch(&self) -> Epoch {
        self.record.epoch
    }

    /// Its fence. What lies below is to be read.
    pub fn fence(&self) -> Txid {
        self.fence.txid()
    }

    /// The leader record as it is now, fences of this epoch not yet in it.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Whether the holder before had released the record: all that it had committed is archived.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.is_handed_over
    }

    /// Fences of others that the claim climbed over; they are history.
    pub fn climbed(&self) -> &[Fence] {
        &self.climbed
    }
}

/// What came of a [`Claim`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The epoch is ours.
    Taken(Box<Claimed>),
    /// Another claimant took a later one meanwhile. Another claim may follow.
    Lost,
}

/// Takes the next epoch of an archive.
#[derive(Clone, Debug)]
pub struct Claim {
    candidate: Candidate,
    grounds: Grounds,
    state: Stage,
    /// Since when the record of another has not changed.
    watched: Option<(Epoch, u64, Duration)>,
    began: Duration,
    /// Whether the record that is taken was released.
    is_handed_over: bool,
    climbed: Vec<Fence>,
    /// The slot below the lowest fence that is to be listed.
    below: Option<Txid>,
    /// The epoch behind which there must be none but ours, if that is known.
    seen: Option<Epoch>,
}

#[derive(Clone, Debug)]
enum Stage {
    ReadRecord,
    /// No record: whether there are slots.
    FindSlots,
    /// No record and no slots: whether there are other files.
    FindFiles,
    /// There are files: whether the record is still absent, or another claimant began it meanwhile.
    ReadAgain(Txid),
    /// There are slots, which are adopted: which epoch the newest one is of.
    Adopt(Txid),
    Write(Swap),
    FindNewest(Box<Record>),
    /// No slots: whether there are other files.
    FindMerged(Box<Record>),
    /// There are: whether there still are no slots.
    FindBehind(Box<Record>, Header),
    LookAtNewest(Box<Record>, Txid),
    /// The newest slot is this fence: whether a copy, or a merged file, reaches as far.
    FindCopy(Box<Record>, Found),
    Put(Box<Record>, Slot),
    /// Whether the fence was put, where the answer said nothing but for an error that stays.
    Look(Box<Record>, Slot, Option<Error>),
    /// The fence is set: whether the slot below is a fence that no record lists.
    LookBelow(Box<Record>, Slot, Txid),
    Confirm(Box<Record>, Slot),
}

type Outcome = Result<ClaimOutcome, Error>;

impl Claim {
    /// Nothing is asked of the store yet.
    pub fn new(candidate: Candidate, grounds: Grounds) -> Claim {
        let (watched, climbed) = (None, Vec::new());
        let (state, began) = (Stage::ReadRecord, Duration::ZERO);
        let (is_handed_over, below, seen) = (false, None, None);
        Claim { candidate, grounds, state, watched, began, is_handed_over, climbed, below, seen }
    }

    /// The same, but lost when another claimant has taken an epoch later than `seen`, the latest
    /// that the grounds are about.
    pub fn behind(self, seen: Epoch) -> Claim {
        Claim { seen: Some(seen), ..self }
    }

    fn request(&self) -> Request {
        match &self.state {
            Stage::ReadRecord | Stage::ReadAgain(_) | Stage::Confirm(..) => Request::ReadRecord,
            Stage::FindSlots | Stage::FindNewest(_) | Stage::FindBehind(..) => Request::FindNewest,
            Stage::FindFiles | Stage::FindMerged(_) | Stage::FindCopy(..) => Request::FindMerged,
            Stage::Write(swap) => swap.request(),
            Stage::Adopt(slot) | Stage::LookAtNewest(_, slot) | Stage::LookBelow(_, _, slot) => {
                Request::Look(*slot)
            }
            Stage::Put(_, fence) => Request::Put(fence.clone()),
            Stage::Look(_, fence, _) => Request::Look(fence.txid()),
        }
    }

    /// Goes on with what was asked for. An error ends the claim.
    fn answered(&mut self, reply: Reply, now: Duration) -> Result<Option<Step<Outcome>>, Error> {
        match (self.state.clone(), reply) {
            (Stage::ReadRecord, Reply::Record(None)) => self.state = Stage::FindSlots,
            (Stage::ReadAgain(newest), Reply::Record(None)) => return Err(unrecorded(newest)),
            (Stage::ReadRecord | Stage::ReadAgain(_), Reply::Record(Some((record, tag)))) => {
                return self.found(&record, tag, now);
            }
            (Stage::FindSlots, Reply::Newest(None)) => self.state = Stage::FindFiles,
            (Stage::FindSlots, Reply::Newest(Some(newest))) => {
                self.state = self.adopts(newest, Stage::Adopt(newest));
            }
            (Stage::Adopt(_), Reply::Slot(None)) => self.state = Stage::FindSlots,
            (Stage::Adopt(_), Reply::Slot(Some(found))) => {
                self.state = self.begin(found.epoch(), now)?;
            }
            (Stage::FindFiles, Reply::Merged(None)) => self.state = self.begin(Epoch(0), now)?,
            (Stage::FindFiles, Reply::Merged(Some(found))) => {
                let begin = self.begin(Epoch(found.node_id), now)?;
                self.state = self.adopts(found.txids.max(), begin);
            }
            (Stage::Write(swap), reply) => self.written(swap, reply)?,
            (Stage::FindNewest(record), Reply::Newest(newest)) => {
                self.state = match newest {
                    Some(newest) => Stage::LookAtNewest(record, newest),
                    None => Stage::FindMerged(record),
                };
            }
            (Stage::FindMerged(record), Reply::Merged(found)) => {
                self.state = match found {
                    Some(found) => Stage::FindBehind(record, found),
                    None => self.first_fence(record)?,
                };
            }
            (Stage::FindBehind(record, merged), Reply::Newest(newest)) => {
                self.state = match newest {
                    Some(newest) => Stage::LookAtNewest(record, newest),
                    None => self.fence_behind(record, &merged)?,
                };
            }
            (Stage::LookAtNewest(record, newest), Reply::Slot(found)) => {
                return self.looked_at_newest(record, newest, found);
            }
            (Stage::FindCopy(record, fence), Reply::Merged(found)) => {
                self.state = self.fence_behind_all(record, &fence, found)?;
            }
            (Stage::Put(record, fence), Reply::Done) => self.state = self.is_set(record, fence),
            (Stage::Put(record, fence), reply) => {
                self.state = Stage::Look(record, fence, reply.lasting_error());
            }
            (Stage::Look(record, fence, error), Reply::Slot(found)) => {
                return self.looked(record, fence, found, error);
            }
            (Stage::LookBelow(record, fence, slot), Reply::Slot(found)) => {
                self.below = None;
                if let Some(found) = found {
                    self.list(&record, slot, &found);
                }
                self.state = self.is_set(record, fence);
            }
            (Stage::Confirm(record, fence), Reply::Record(found)) => {
                return Ok(Some(self.confirmed(record, fence, found)));
            }
            (Stage::LookAtNewest(..), Reply::Failed(error)) if error.is_about_content() => {
                return Err(damaged_newest(&error));
            }
            (_, Reply::Failed(error)) if !error.is_transient() => return Err(error),
            _ => self.watched = None,
        }
        Ok(None)
    }

    /// What comes behind a fence that is the newest slot, or behind the newest merged file where
    /// that reaches as far: a copy of the database, or what is left of slots that were lost.
    fn fence_behind_all(
        &self,
        record: Box<Record>,
        fence: &Found,
        merged: Option<Header>,
    ) -> Result<Stage, Error> {
        let reaches = |it: &Header| it.txids.max() >= fence.header.txids.max();
        self.fence_behind(record, merged.filter(reaches).as_ref().unwrap_or(&fence.header))
    }

    /// The newest slot was looked into, if it is still there.
    fn looked_at_newest(
        &mut self,
        record: Box<Record>,
        newest: Txid,
        found: Option<Found>,
    ) -> Result<Option<Step<Outcome>>, Error> {
        self.state = match found {
            None => Stage::FindNewest(record),
            Some(found) if found.epoch() > record.epoch => return Ok(Some(lost())),
            Some(found) => {
                self.list(&record, newest, &found);
                match found.is_fence() {
                    true => Stage::FindCopy(record, found),
                    false => self.fence_behind(record, &found.header)?,
                }
            }
        };
        Ok(None)
    }

    /// There is a record: whether it may be taken.
    fn found(
        &mut self,
        record: &Record,
        tag: Tag,
        now: Duration,
    ) -> Result<Option<Step<Outcome>>, Error> {
        if record.lineage != self.candidate.lineage {
            let (is, must) = (record.lineage, self.candidate.lineage);
            return Err(Error::invalid(format!("the archive of {is}, not of {must}")));
        }
        let is_later = self.seen.is_some_and(|seen| record.epoch > seen);
        if is_later && record.holder != self.candidate.holder {
            return Ok(Some(lost()));
        }
        self.is_handed_over = record.state == RecordState::Released;
        let is_free = self.is_handed_over && record.has_lease || self.grounds == Grounds::Known;
        if !is_free && let Some(until) = self.silent_at(record, now) {
            return Ok(Some(Step::Wait(until)));
        }
        let may_lack = match self.candidate.replicated {
            Replicated::All | Replicated::MayBeLost => false,
            Replicated::By(replica) => !record.replicas.contains(&replica),
            Replicated::Nothing => true,
        };
        if may_lack && !record.replicas.is_empty() {
            return match self.grounds {
                Grounds::Silence(_) => Ok(Some(Step::Wait(look_at(record, now)))),
                Grounds::Known => Err(not_replicated(record)),
            };
        }
        let taken = record.taken_by(self.candidate.holder, self.ttl());
        let mut taken = self.signed(taken.ok_or_else(last_epoch)?);
        if self.candidate.replicated == Replicated::MayBeLost {
            taken.has_replicas(Vec::new());
        }
        assert!(taken.epoch > record.epoch, "an epoch is taken once");
        self.began = now;
        self.state = Stage::Write(Swap::new(taken, Some(tag)));
        Ok(None)
    }

    fn ttl(&self) -> Duration {
        self.candidate.lease.unwrap_or(WITHOUT_LEASE)
    }

    /// A record that says where the candidate is, and whether it has a lease.
    fn signed(&self, mut record: Record) -> Record {
        record.has_lease = self.candidate.lease.is_some();
        record.address.clone_from(&self.candidate.address);
        record.stream.clone_from(&self.candidate.stream);
        record
    }

    /// When to look again at a record that is another's; `None` when it has been silent for long
    /// enough.
    fn silent_at(&mut self, record: &Record, now: Duration) -> Option<Duration> {
        let Grounds::Silence(margin) = self.grounds else { return None };
        let seen = (record.epoch, record.counter);
        let since = match self.watched {
            Some((epoch, counter, since)) if (epoch, counter) == seen => since,
            _ => now,
        };
        self.watched = Some((seen.0, seen.1, since));
        let end = since.saturating_add(record.ttl()).saturating_add(margin);
        let look = look_at(record, now);
        if !record.has_lease {
            return Some(look);
        }
        (now < end).then(|| look.min(end))
    }

    /// There is no record, and there are files up to `newest`: `then`, if they are adopted.
    fn adopts(&self, newest: Txid, then: Stage) -> Stage {
        match self.candidate.unrecorded {
            Unrecorded::Refuse => Stage::ReadAgain(newest),
            Unrecorded::Adopt => then,
        }
    }

    /// There is no record, and what is there is of the epoch `newest` and smaller ones.
    fn begin(&mut self, newest: Epoch, now: Duration) -> Result<Stage, Error> {
        let Candidate { lineage, holder, .. } = self.candidate;
        let record = Record::first(newest, lineage, holder, self.ttl()).ok_or_else(last_epoch)?;
        let record = self.signed(record);
        assert!(record.epoch > newest, "an epoch is behind those of the files that are there");
        self.began = now;
        Ok(Stage::Write(Swap::new(record, None)))
    }

    /// What came of the write of the record.
    fn written(&mut self, mut swap: Swap, reply: Reply) -> Result<(), Error> {
        let swapped = swap.answered(reply);
        self.state = match &swapped {
            Ok(Some(Swapped::Done(record, _))) => Stage::FindNewest(record.clone()),
            Ok(Some(Swapped::Another)) => Stage::ReadRecord,
            Ok(None) | Err(_) => Stage::Write(swap),
        };
        swapped.map(drop)
    }

    /// Slots begin at 2: a file of TXID 1 is a snapshot.
    fn first_fence(&self, record: Box<Record>) -> Result<Stage, Error> {
        let Candidate { page_size, commit, time, .. } = self.candidate;
        let place = Place { page_size, commit, time };
        let fence = Slot::fence(record.epoch, after(Txid::FIRST)?, place)?;
        Ok(Stage::Put(record, fence))
    }

    /// Behind a file of this header.
    fn fence_behind(&self, record: Box<Record>, below: &Header) -> Result<Stage, Error> {
        let place = Place::after(below, self.candidate.time);
        let fence = Slot::fence(record.epoch, after(below.txids.max())?, place)?;
        Ok(Stage::Put(record, fence))
    }

    /// Where the fence was to be.
    fn looked(
        &mut self,
        record: Box<Record>,
        fence: Slot,
        found: Option<Found>,
        error: Option<Error>,
    ) -> Result<Option<Step<Outcome>>, Error> {
        self.state = match found {
            None => {
                self.state = Stage::Put(record, fence);
                return error.map_or(Ok(None), Err);
            }
            Some(found) if found.id == fence.id() => self.is_set(record, fence),
            // The same epoch and other content is a copy of this very process.
            Some(found) if found.epoch() >= record.epoch => return Ok(Some(lost())),
            Some(found) => {
                let slot = fence.txid();
                if found.is_fence() {
                    let epoch = found.epoch();
                    self.climbed.push(Fence::new(epoch, slot));
                }
                self.fence_behind(record, &found.header)?
            }
        };
        Ok(None)
    }

    /// Of a slot below the fence: if it is a fence that is not listed yet, it is to be, and the
    /// slot below it may be another.
    fn list(&mut self, record: &Record, slot: Txid, found: &Found) {
        let epoch = found.epoch();
        if found.is_fence() && !record.lists(epoch, slot) {
            self.climbed.push(Fence::new(epoch, slot));
            self.below = Txid::new(slot.get() - 1).filter(|slot| *slot > Txid::FIRST);
        }
    }

    /// The fence is there.
    fn is_set(&self, record: Box<Record>, fence: Slot) -> Stage {
        match self.below {
            Some(slot) => Stage::LookBelow(record, fence, slot),
            None => Stage::Confirm(record, fence),
        }
    }

    fn confirmed(
        &mut self,
        record: Box<Record>,
        fence: Slot,
        found: Option<(Box<Record>, Tag)>,
    ) -> Step<Outcome> {
        match found {
            Some((found, tag)) if found == record => {
                assert_eq!(fence.epoch(), record.epoch, "the fence is of the epoch it begins");
                let climbed = std::mem::take(&mut self.climbed);
                let (began, is_handed_over) = (self.began, self.is_handed_over);
                let claimed = Claimed { record, tag, fence, climbed, began, is_handed_over };
                Step::Ended(Ok(ClaimOutcome::Taken(Box::new(claimed))))
            }
            _ => lost(),
        }
    }
}

/// When to look again at a record that is another's.
fn look_at(record: &Record, now: Duration) -> Duration {
    // A TTL of nothing must not become a loop without a rest.
    now.saturating_add((record.ttl() / LOOKS).max(Duration::from_millis(1)))
}

fn not_replicated(record: &Record) -> Error {
    let names: Vec<String> = record.replicas.iter().map(ReplicaId::to_string).collect();
    let message = format!(
        "writes were acknowledged as replicated that the archive and this file may lack: promote \
         the follower {} instead, which has them; `monolite promote --lose-replicated` with this \
         file goes on without them",
        names.join(" or ")
    );
    Error::invalid(message)
}

fn lost() -> Step<Outcome> {
    Step::Ended(Ok(ClaimOutcome::Lost))
}

fn unrecorded(newest: Txid) -> Error {
    Error::invalid(format!(
        "files up to {newest} and no leader record; take another prefix, or stop every other \
         writer and adopt them"
    ))
}

fn damaged_newest(error: &Error) -> Error {
    Error::corrupt(format!(
        "the newest slot is damaged, and nothing can be put behind it: {error}; bring it back \
         from another copy; or, when its primary is gone, move it away and take the archive over"
    ))
}

fn last_epoch() -> Error {
    Error::corrupt("the last epoch there can be")
}

fn after(slot: Txid) -> Result<Txid, Error> {
    let message = "the last TXID there can be";
    slot.next().ok_or_else(|| Error::new(ErrorKind::Corrupt, message))
}

impl Machine for Claim {
    type Outcome = Outcome;

    fn step(&mut self, reply: Option<Reply>, now: Duration) -> Step<Self::Outcome> {
        let next = match reply {
            None => Ok(None),
            Some(reply) => self.answered(reply, now),
        };
        match next {
            Ok(None) => Step::Ask(self.request()),
            Ok(Some(step)) => step,
            Err(error) => Step::Ended(Err(error)),
        }
    }
}
