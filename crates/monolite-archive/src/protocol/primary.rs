//! Owns what a primary may do next: one thing at a time, in the order that the protocol asks for.

use std::time::Duration;

use monolite_ltx::Txid;

use super::claim::Claimed;
use super::deletion::{Covered, Deletion};
use super::fill::{Fill, Filled};
use super::update::{Update, Updated};
use crate::error::{Error, ErrorKind, Result};
use crate::record::{Epoch, Fence, Record, ReplicaId, State};
use crate::seen::Seen;
use crate::slot::Slot;
use crate::store::Tag;

/// Who has an epoch.
///
/// # Invariants
/// One slot is in flight, the next one, and only while it serves; one change of the record is. Once
/// fenced, nothing more is begun.
#[derive(Debug)]
pub struct Primary {
    record: Box<Record>,
    tag: Tag,
    /// The fence of this epoch, which every change of the record lists.
    fence: Fence,
    /// The time that was seen, which every change of the record says.
    seen: Seen,
    /// Fences of others that the record does not list yet.
    unlisted: Vec<Fence>,
    next: Txid,
    /// When the last change of the record that succeeded was begun.
    renewed: Duration,
    /// The newest slot that was filled when that change was begun: a claim that comes after it
    /// finds this slot, or a later one. `None` before the first.
    found_by_claims: Option<Txid>,
    /// The same of the change that is in flight.
    newest_at_update: Txid,
    fill: Filling,
    is_updating: bool,
    is_fenced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filling {
    Idle,
    InFlight,
    /// The last group met a fence and is to be sent to the next slot.
    Again,
}

impl Primary {
    /// Who has made a claim. It serves once everything below the fence was read.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) behind the last TXID there can be.
    pub fn new(claimed: Claimed) -> Result<Primary> {
        let slot = claimed.fence.txid();
        assert_eq!(claimed.fence.epoch(), claimed.epoch(), "a fence is of the epoch it begins");
        let next = slot.next().ok_or_else(|| Error::corrupt("the last TXID there can be"))?;
        Ok(Primary {
            fence: Fence::new(claimed.record.epoch, slot),
            seen: claimed.record.seen.clone(),
            record: claimed.record,
            tag: claimed.tag,
            unlisted: claimed.climbed,
            next,
            renewed: claimed.began,
            found_by_claims: None,
            newest_at_update: slot,
            fill: Filling::Idle,
            is_updating: false,
            is_fenced: false,
        })
    }

    /// The epoch.
    pub fn epoch(&self) -> Epoch {
        self.record.epoch
    }

    /// The number of the next slot.
    pub fn next(&self) -> Txid {
        self.next
    }

    /// The leader record as it was written last.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Whether another process is the primary.
    pub fn is_fenced(&self) -> bool {
        self.is_fenced
    }

    /// Whether writes and leased reads may be answered: the last renewal that succeeded *began*
    /// less than the TTL without `margin` ago. Groups that are in a slot may be, whatever this
    /// says.
    pub fn has_lease(&self, now: Duration, margin: Duration) -> bool {
        let until = self.record.ttl().saturating_sub(margin);
        let is_serving = self.record.state == State::Serving && !self.is_fenced;
        is_serving && now.saturating_sub(self.renewed) < until
    }

    /// For how long claimants leave it alone if it does nothing from `now` on; `None` without a
    /// lease.
    pub fn lease_left(&self, now: Duration) -> Option<Duration> {
        let left = self.record.ttl().saturating_sub(now.saturating_sub(self.renewed));
        (self.record.has_lease && !self.is_fenced).then_some(left)
    }

    /// Serves from now on, at `address`; what was below the fence has been read. `carried_to` says
    /// where what the last primary had not uploaded is in history at the latest
    /// ([`Fence::carried_to`]); `None` leaves what was said before.
    ///
    /// # Errors
    /// [`Fenced`](ErrorKind::Fenced); [`Invalid`](ErrorKind::Invalid) while the record changes (an
    /// [`Update`] that ended with an error is to be gone on with), and when the address has more
    /// than [`Record::ADDRESS`] bytes.
    pub fn serve(&mut self, address: &str, carried_to: Option<Txid>) -> Result<Update> {
        Record::check_address(address)?;
        let before = self.fence.carried_to;
        self.fence.carried_to = carried_to.or(before);
        let update = self.update(|record| {
            record.state = State::Serving;
            address.clone_into(&mut record.address);
        });
        if update.is_err() {
            self.fence.carried_to = before;
        }
        update
    }

    /// What the record says from its next change on, as with [`serve`](Primary::serve), of an epoch
    /// that never serves.
    pub(crate) fn carries_to(&mut self, carried_to: Option<Txid>) {
        self.fence.carried_to = carried_to;
    }

    /// Says in the record that the snapshot of the fence is a copy of the whole database, which
    /// closes a gap in history, and that the slot `at` has all its pages, too, if that is not the
    /// fence. To be done before the next slot.
    ///
    /// # Errors
    /// Those of [`serve`](Primary::serve).
    pub(crate) fn has_copied(&mut self, at: Txid) -> Result<Update> {
        self.fence.copied_at = Some(at);
        self.renew()
    }

    /// What the record says of the time that was seen, from its next change on.
    pub(crate) fn has_seen(&mut self, seen: &Seen) {
        self.seen.clone_from(seen);
    }

    /// Shows life. To be done every third of the TTL, also before it serves when reading takes
    /// longer; and before a deletion: what was filled before it may be deleted after it.
    ///
    /// # Errors
    /// Those of [`serve`](Primary::serve).
    pub fn renew(&mut self) -> Result<Update> {
        self.update(|_| {})
    }

    /// Says in the record who has all that was acknowledged as replicated.
    ///
    /// # Errors
    /// Those of [`serve`](Primary::serve).
    pub fn has_replicas(&mut self, replicas: Vec<ReplicaId>) -> Result<Update> {
        self.update(|record| record.has_replicas(replicas))
    }

    /// Gives the epoch up, after the last upload. A group that met a fence may be left; whether it
    /// is history is unknown then.
    ///
    /// # Errors
    /// Those of [`serve`](Primary::serve), and [`Invalid`](ErrorKind::Invalid) while a slot is in
    /// flight.
    pub fn release(&mut self) -> Result<Update> {
        if self.fill == Filling::InFlight {
            return Err(Error::invalid("a slot is in flight"));
        }
        self.update(|record| {
            record.state = State::Released;
            record.has_replicas(Vec::new());
        })
    }

    fn update(&mut self, change: impl FnOnce(&mut Record)) -> Result<Update> {
        self.check()?;
        if std::mem::replace(&mut self.is_updating, true) {
            return Err(Error::invalid("a change of the leader record is in flight"));
        }
        // The slot before the next one is filled: it was answered, or is the fence.
        self.newest_at_update = Txid::new(self.next.get() - 1).unwrap_or(Txid::FIRST);
        let mut record = (*self.record).clone();
        change(&mut record);
        record.seen.clone_from(&self.seen);
        record.add_fences(self.unlisted.iter().copied().chain([self.fence]));
        Ok(Update::new(record, self.tag.clone()))
    }

    /// Takes note of what came of a change of the record.
    ///
    /// # Panics
    /// When none is in flight, or it is of another epoch.
    pub fn updated(&mut self, updated: &Updated) {
        assert!(std::mem::take(&mut self.is_updating), "one change of the record is in flight");
        match updated {
            Updated::Done { record, tag, began } => {
                assert_eq!(record.epoch, self.epoch(), "a primary keeps its epoch");
                assert!(record.counter >= self.record.counter, "a record's counter rises");
                self.unlisted.retain(|fence| !record.lists(fence.epoch, fence.slot));
                (self.record, self.tag, self.renewed) = (record.clone(), tag.clone(), *began);
                self.found_by_claims = Some(self.newest_at_update);
            }
            Updated::Fenced => self.is_fenced = true,
        }
    }

    /// Begins to fill the next slot.
    ///
    /// # Errors
    /// [`Fenced`](ErrorKind::Fenced). [`Invalid`](ErrorKind::Invalid) when it does not serve yet,
    /// a slot is in flight, a fence that was met is not listed yet, or `slot` is not the next one,
    /// of another epoch, or without pages.
    pub fn fill(&mut self, slot: Slot) -> Result<Fill> {
        self.check()?;
        if self.record.state != State::Serving || !self.unlisted.is_empty() {
            return Err(Error::invalid("the leader record does not say yet that we serve"));
        }
        if self.fill == Filling::InFlight {
            return Err(Error::invalid("a slot is in flight; a second one could land without it"));
        }
        if (slot.epoch(), slot.txid()) != (self.epoch(), self.next) {
            let (is, must) = (slot.txid(), self.next);
            return Err(Error::invalid(format!("slot {is} of epoch {}, not {must}", slot.epoch())));
        }
        if slot.id().len == Slot::FENCE_LEN {
            let message = "a group without pages; it would be taken for an unlisted fence";
            return Err(Error::invalid(message));
        }
        let is_first_place = self.fill == Filling::Idle;
        self.fill = Filling::InFlight;
        Ok(Fill::new(slot, is_first_place))
    }

    /// Takes note of what came of a slot. The last TXID there can be ends the epoch.
    pub fn filled(&mut self, filled: &Filled) {
        self.fill = Filling::Idle;
        match filled {
            Filled::Done => {}
            Filled::Fence(fence) => {
                self.unlisted.push(*fence);
                self.fill = Filling::Again;
            }
            Filled::Fenced(_) => self.is_fenced = true,
        }
        match self.next.next() {
            Some(next) => self.next = next,
            None => self.is_fenced = true,
        }
    }

    /// Begins to delete those of `slots` that may go: no fence, and none but those before the slot
    /// that was the newest when the last [renewal](Primary::renew) was begun.
    ///
    /// # Errors
    /// [`Fenced`](ErrorKind::Fenced). [`Invalid`](ErrorKind::Invalid) when the record was never
    /// changed since the claim.
    pub fn delete(&self, slots: &[Covered]) -> Result<Deletion> {
        self.check()?;
        let newest = self.found_by_claims;
        let newest = newest.ok_or_else(|| Error::invalid("a deletion without a renewal before"))?;
        Ok(Deletion::new(newest, slots))
    }

    fn check(&self) -> Result<()> {
        if self.is_fenced {
            let message = format!("epoch {} has ended; another primary serves", self.epoch());
            return Err(Error::new(ErrorKind::Fenced, message));
        }
        Ok(())
    }
}
