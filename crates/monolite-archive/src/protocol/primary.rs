//! Owns what a primary may do next: one thing at a time, in the order that the protocol asks for.

use std::time::Duration;

use monolite_ltx::Txid;

use super::claim::Claimed;
use super::deletion::{Covered, Deleted, Deletion};
use super::fill::{Fill, Filled};
use super::update::{Update, Updated};
use crate::error::{Error, ErrorKind, Result};
use crate::record::{Epoch, Fence, Record, State};
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
    /// Fences that the record does not list yet.
    unlisted: Vec<Fence>,
    next: Txid,
    /// When the last change of the record that succeeded was begun.
    renewed: Duration,
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
        let fence = claimed.fence.txid();
        let next = fence.next().ok_or_else(|| Error::corrupt("the last TXID there can be"))?;
        let ours = Fence { epoch: claimed.record.epoch, slot: fence, carried_to: None };
        let mut unlisted = claimed.climbed;
        unlisted.push(ours);
        Ok(Primary {
            record: claimed.record,
            tag: claimed.tag,
            unlisted,
            next,
            renewed: claimed.began,
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

    /// Whether somebody else is the primary.
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

    /// Serves from now on, at `address`; what was below the fence has been read. `carried_to` says
    /// up to which TXID of its own the last primary's tail was carried over.
    ///
    /// # Errors
    /// [`Fenced`](ErrorKind::Fenced); [`Invalid`](ErrorKind::Invalid) while the record changes.
    pub fn serve(&mut self, address: &str, carried_to: Option<Txid>) -> Result<Update> {
        let ours = self.epoch();
        for fence in self.unlisted.iter_mut().filter(|fence| fence.epoch == ours) {
            fence.carried_to = carried_to;
        }
        let address = address.to_owned();
        self.update(|record| {
            record.state = State::Serving;
            record.address = address;
        })
    }

    /// Shows life. To be done every third of the TTL.
    ///
    /// # Errors
    /// Those of [`serve`](Primary::serve).
    pub fn renew(&mut self) -> Result<Update> {
        self.update(|_| {})
    }

    /// Gives the epoch up, after the last upload.
    ///
    /// # Errors
    /// Those of [`serve`](Primary::serve), and [`Invalid`](ErrorKind::Invalid) while a slot is in
    /// flight.
    pub fn release(&mut self) -> Result<Update> {
        if self.fill != Filling::Idle {
            return Err(Error::invalid("a slot is in flight"));
        }
        self.update(|record| record.state = State::Released)
    }

    fn update(&mut self, change: impl FnOnce(&mut Record)) -> Result<Update> {
        self.check()?;
        if std::mem::replace(&mut self.is_updating, true) {
            return Err(Error::invalid("a change of the leader record is in flight"));
        }
        let mut record = (*self.record).clone();
        change(&mut record);
        record.add_fences(self.unlisted.iter().copied());
        Ok(Update::new(record, self.tag.clone()))
    }

    /// Takes note of what came of a change of the record.
    pub fn updated(&mut self, updated: &Updated) {
        self.is_updating = false;
        match updated {
            Updated::Done { record, tag, began } => {
                self.unlisted.retain(|fence| !record.lists(fence.epoch, fence.slot));
                (self.record, self.tag, self.renewed) = (record.clone(), tag.clone(), *began);
            }
            Updated::Fenced => self.is_fenced = true,
        }
    }

    /// Begins to fill the next slot.
    ///
    /// # Errors
    /// [`Fenced`](ErrorKind::Fenced). [`Invalid`](ErrorKind::Invalid) when it does not serve yet,
    /// a slot is in flight, a fence that was met is not listed yet, or `slot` is not the next one
    /// or of another epoch.
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

    /// Begins to delete those of `slots` that may go.
    ///
    /// # Errors
    /// Those of [`serve`](Primary::serve).
    pub fn delete(&mut self, slots: &[Covered]) -> Result<Deletion> {
        // The slot before the next one is filled: it was answered, or is the fence.
        let newest = Txid::new(self.next.get() - 1).unwrap_or(Txid::FIRST);
        let renewal = self.renew()?;
        Ok(Deletion::new(renewal, newest, slots))
    }

    /// Takes note of what came of a deletion.
    pub fn deleted(&mut self, deleted: &Deleted) {
        self.updated(&deleted.renewed);
    }

    fn check(&self) -> Result<()> {
        if self.is_fenced {
            let message = format!("epoch {} has ended; another primary serves", self.epoch());
            return Err(Error::new(ErrorKind::Fenced, message));
        }
        Ok(())
    }
}
