//! Owns the leader record: who is the primary, and where the terms of all primaries begin.
//!
//! # Format
//! JSON, one object, at most [`Record::LIMIT`] bytes. Unknown fields are no error and are dropped
//! at the next write; another `format` is an error.
//!
//! | field | |
//! |---|---|
//! | `format` | 1, or 2 with `replicas`, which a reader of 1 would drop; others are refused |
//! | `lineage` | 32 hexadecimal digits, drawn when the archive began: which history it is |
//! | `epoch` | of the present primary or of who is about to be, from 1 on |
//! | `holder` | 32 hexadecimal digits, drawn at each start: who that is |
//! | `state` | `taking`, `serving`, `released` |
//! | `address` | where clients find it, as it likes |
//! | `stream` | where the holder streams to followers; missing where it does not |
//! | `ttl_ms` | for how long a record that does not change must be left alone |
//! | `has_lease` | the holder changes it more often than that while it lives; missing if not |
//! | `counter` | of changes within the epoch: a record that changes is alive |
//! | `fences` | `epoch`, `slot`, and `carried_to` and `copied_at` ([`Fence`]) once they are known |
//! | `seen` | the time that primaries have seen pass ([`Seen`]); missing where none has |
//! | `replicas` | who may be the next primary ([`Record::replicas`]); missing where any may |
//!
//! # Invariants
//! It changes by compare-and-swap alone. Each epoch has one holder. Fences are in the order of
//! their slots; the newest [`Record::FENCES`] are kept.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use monolite::archive::ArchiveToken;
use monolite_ltx::Txid;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::{Error, ErrorKind, Result};
use crate::seen::{Seen, txid};

/// One term of one primary, from 1 on.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A number of 128 bits that was drawn at random, written as 32 hexadecimal digits.
macro_rules! drawn {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(u128);

        impl $name {
            /// Of bits that were drawn at random.
            pub const fn from_bits(bits: u128) -> $name {
                $name(bits)
            }

            /// The same bits.
            pub const fn bits(self) -> u128 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "{:032x}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            /// # Errors
            /// [`Invalid`](ErrorKind::Invalid) unless it is what `Display` writes.
            fn from_str(text: &str) -> Result<$name> {
                let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                let bits = u128::from_str_radix(text, 16).ok();
                let bits = bits.filter(|_| text.len() == 32 && text.bytes().all(is_digit));
                let wrong = || Error::invalid(format!("{text:?} is not 32 hexadecimal digits"));
                bits.map($name).ok_or_else(wrong)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                String::deserialize(from)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

drawn! {
    /// Which history an archive has: that of one database since its archive began.
    Lineage
}
drawn! {
    /// Who holds an epoch: one start of one process.
    Holder
}
drawn! {
    /// The file of one follower, from one full copy to the next.
    ReplicaId
}

/// What the holder of a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It has the epoch and does not serve yet.
    Taking,
    /// It is the primary.
    Serving,
    /// It has uploaded everything and is gone; any process may be next.
    Released,
}

/// Where an epoch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fence {
    /// The epoch that begins here, or that was given up and climbed over.
    pub epoch: Epoch,
    /// The slot of its fence.
    #[serde(with = "txid")]
    pub slot: Txid,
    /// At which TXID at the latest all is in history that the primary before had committed and not
    /// uploaded. One below `slot` says that it may be lost. `None` while that is not known, and for
    /// an epoch that never served.
    #[serde(with = "some_txid", default, skip_serializing_if = "Option::is_none")]
    pub carried_to: Option<Txid>,
    /// Says that history has a gap below the fence, which a copy of the whole database closes: the
    /// snapshot of `slot`. Where this is behind `slot`, the slot of this TXID has all pages of the
    /// copy, too. `None` where no copy was uploaded, or by a version that did not say so.
    #[serde(with = "some_txid", default, skip_serializing_if = "Option::is_none")]
    pub copied_at: Option<Txid>,
}

impl Fence {
    /// A fence of which nothing more is known.
    pub fn new(epoch: Epoch, slot: Txid) -> Fence {
        Fence { epoch, slot, carried_to: None, copied_at: None }
    }
}

/// The leader record of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    format: u32,
    /// Which history this is.
    pub lineage: Lineage,
    /// The present epoch.
    pub epoch: Epoch,
    /// Who holds it.
    #[doc(hidden)]
    pub holder: Holder,
    /// What the holder is about.
    pub state: State,
    /// Where clients find the holder.
    pub address: String,
    /// Where the holder streams to followers; empty where it does not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stream: String,
    ttl_ms: u64,
    /// Whether the holder renews the record for as long as it lives. Without it silence says
    /// nothing: versions that do not know the field write the record once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_lease: bool,
    /// How often the record was changed in this epoch.
    #[doc(hidden)]
    pub counter: u64,
    /// Where epochs begin, in the order of slots.
    #[doc(hidden)]
    pub fences: Vec<Fence>,
    /// The time that primaries have seen pass.
    #[serde(default, skip_serializing_if = "Seen::is_empty")]
    pub(crate) seen: Seen,
    /// Who may be the next primary without the loss of a write that was acknowledged as replicated;
    /// none where any may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaId>,
}

impl Record {
    /// How many bytes a record may have: twice what [`FENCES`](Record::FENCES) and the longest
    /// address take.
    #[doc(hidden)]
    pub const LIMIT: u64 = 1 << 20;
    /// How many fences are kept, which is how many starts. An older one would tell whether a commit
    /// of its time was certainly lost, which is not asked any more.
    #[doc(hidden)]
    pub const FENCES: usize = 4096;
    /// How many bytes an address may have.
    #[doc(hidden)]
    pub const ADDRESS: usize = 1024;

    const FORMAT: u32 = 1;
    const REPLICATED: u32 = 2;

    /// The record of an archive that had none: of the epoch after `before`, which is 0 where an
    /// archive begins. `None` after the last there can be.
    pub(crate) fn first(
        before: Epoch,
        lineage: Lineage,
        holder: Holder,
        ttl: Duration,
    ) -> Option<Record> {
        Some(Record {
            format: Record::FORMAT,
            lineage,
            epoch: Epoch(before.0.checked_add(1)?),
            holder,
            state: State::Taking,
            address: String::new(),
            stream: String::new(),
            ttl_ms: millis(ttl),
            has_lease: false,
            counter: 0,
            fences: Vec::new(),
            seen: Seen::default(),
            replicas: Vec::new(),
        })
    }

    /// The record by which `holder` takes the next epoch; `None` after the last there can be.
    pub(crate) fn taken_by(&self, holder: Holder, ttl: Duration) -> Option<Record> {
        let epoch = Epoch(self.epoch.0.checked_add(1)?);
        let (state, address) = (State::Taking, String::new());
        let (ttl_ms, has_lease, counter) = (millis(ttl), false, 0);
        Some(Record { epoch, holder, state, address, ttl_ms, has_lease, counter, ..self.clone() })
    }

    /// For how long a record that does not change must be left alone.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// Whether history has a gap behind `from` that what leads on to `to` does not close: only a
    /// copy of the whole database does.
    pub(crate) fn needs_copy(&self, from: Txid, to: Txid) -> bool {
        let passed = self.fences.iter().filter(|fence| from < fence.slot && fence.slot <= to);
        passed
            .filter_map(|fence| Some((fence.slot, fence.copied_at?)))
            .any(|(fence, at)| at == fence || at > to)
    }

    /// The TXID of the state after `txid` that no copy of the database changes which comes later:
    /// fences at the end are left out.
    pub(crate) fn below_fences(&self, txid: Txid) -> Txid {
        let is_fence = |txid: &Txid| self.fences.binary_search_by_key(txid, |it| it.slot).is_ok();
        let below = |txid: &Txid| Txid::new(txid.get() - 1);
        std::iter::successors(Some(txid), below).find(|txid| !is_fence(txid)).unwrap_or(txid)
    }

    /// Who has all that was acknowledged as replicated, from now on.
    pub(crate) fn has_replicas(&mut self, replicas: Vec<ReplicaId>) {
        self.format = if replicas.is_empty() { Record::FORMAT } else { Record::REPLICATED };
        self.replicas = replicas;
    }

    /// Adds fences, in the order of their slots; of two of one slot the later one stays.
    pub(crate) fn add_fences(&mut self, fences: impl IntoIterator<Item = Fence>) {
        for fence in fences {
            self.fences.retain(|known| known.slot != fence.slot);
            self.fences.push(fence);
        }
        self.fences.sort_by_key(|fence| fence.slot);
        let old = self.fences.len().saturating_sub(Record::FENCES);
        self.fences.drain(..old);
    }

    /// Whether the fence of `epoch` in `slot` is one of history.
    #[doc(hidden)]
    pub fn lists(&self, epoch: Epoch, slot: Txid) -> bool {
        self.fences.iter().any(|fence| fence.epoch == epoch && fence.slot == slot)
    }

    /// The epoch that TXID `txid` belongs to: the largest of those that began before it, unless it
    /// is a fence itself. `None` before the first fence that is known.
    #[doc(hidden)]
    pub fn owner(&self, txid: Txid) -> Option<Epoch> {
        let below = &self.fences[..self.fences.partition_point(|fence| fence.slot <= txid)];
        match below.last() {
            Some(last) if last.slot == txid => Some(last.epoch),
            _ => below.iter().map(|fence| fence.epoch).max(),
        }
    }

    /// The TXID whose state has everything that a token names. It may not be there yet.
    ///
    /// What was not archived when an epoch ended comes behind the fence of the next one, which says
    /// up to where; and a fence of a claimant that gave up may have come between.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a token of another history, or of an epoch that the
    /// record does not have (any more); [`NotFound`](ErrorKind::NotFound) when what it names may
    /// be lost, or is not carried over yet.
    pub fn locate(&self, token: ArchiveToken) -> Result<Txid> {
        self.look_for(token)?.ok_or_else(|| {
            let message = format!(
                "{token} was not archived when its primary ended, and the next primary has not \
                 uploaded it yet; try again once it has"
            );
            Error::new(ErrorKind::NotFound, message)
        })
    }

    /// As [`Record::locate`]; `None` for what is not carried over yet.
    pub(crate) fn look_for(&self, token: ArchiveToken) -> Result<Option<Txid>> {
        if token.lineage != self.lineage.bits() {
            let is = self.lineage;
            return Err(Error::invalid(format!("{token} is of another history; this is {is}")));
        }
        let of_epoch = |fence: &Fence| fence.epoch.0 == token.epoch;
        let is_own = self.fences.iter().position(of_epoch);
        let unknown = || Error::invalid(format!("{token} is of an epoch that is not known here"));
        let mut own = is_own.ok_or_else(unknown)?;
        let mut txid = token.txid;
        let mut is_pending = false;
        for (at, fence) in self.fences.iter().enumerate().skip(own + 1) {
            if fence.epoch < self.fences[own].epoch {
                txid = txid.saturating_add(u64::from(fence.slot.get() <= txid));
                continue;
            }
            if !is_pending && txid < fence.slot.get() {
                break;
            }
            match fence.carried_to {
                Some(to) if to < fence.slot => return Err(may_be_lost(token, fence.epoch)),
                Some(to) => (own, txid, is_pending) = (at, to.get(), false),
                None => is_pending = true,
            }
        }
        if is_pending {
            return Ok(None);
        }
        let none = || Error::invalid(format!("{token} has no TXID"));
        Txid::new(txid).map(Some).ok_or_else(none)
    }

    /// Whether a record may have this address.
    pub(crate) fn check_address(address: &str) -> Result<()> {
        let (is, most) = (address.len(), Record::ADDRESS);
        if is > most {
            let message = format!("an address of {is} bytes; it may have {most}");
            return Err(Error::invalid(message));
        }
        Ok(())
    }

    /// The text of the record.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when the address is too long.
    #[doc(hidden)]
    pub fn encode(&self) -> Result<Vec<u8>> {
        Record::check_address(&self.address)?;
        serde_json::to_vec(self).map_err(|error| Error::invalid(format!("a record: {error}")))
    }

    /// The record that `text` is.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt), [`Unsupported`](ErrorKind::Unsupported) when it is one of
    /// another format.
    #[doc(hidden)]
    pub fn decode(text: &[u8]) -> Result<Record> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let wrong = |error| {
            Error::corrupt(format!(
                "the leader record is damaged ({error}): bring it back, or move it away and take \
                 the archive over"
            ))
        };
        if text.len() as u64 > Record::LIMIT {
            return Err(Error::corrupt(format!("a leader record of {} bytes", text.len())));
        }
        let Format { format } = serde_json::from_slice(text).map_err(wrong)?;
        if ![Record::FORMAT, Record::REPLICATED].contains(&format) {
            let message = format!("a leader record of format {format}; this reads 1 and 2");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let record: Record = serde_json::from_slice(text).map_err(wrong)?;
        let has_copy_behind = |fence: &Fence| fence.copied_at.is_none_or(|at| fence.slot <= at);
        let is_in_order = record.fences.is_sorted_by(|one, other| one.slot < other.slot)
            && record.fences.iter().all(has_copy_behind)
            && record.seen.is_in_order()
            && record.replicas.is_empty() == (format == Record::FORMAT);
        if record.epoch.0 == 0 || !is_in_order || record.address.len() > Record::ADDRESS {
            return Err(Error::corrupt("a leader record whose parts contradict each other"));
        }
        Ok(record)
    }
}

fn may_be_lost(token: ArchiveToken, epoch: Epoch) -> Error {
    let message = format!(
        "{token} may be lost: it was not archived when its primary ended and epoch {epoch} took \
         over; look whether it is there, or in that primary's file"
    );
    Error::new(ErrorKind::NotFound, message)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// TXIDs as in names of files, where there may be none.
mod some_txid {
    use monolite_ltx::Txid;
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(txid: &Option<Txid>, to: S) -> Result<S::Ok, S::Error> {
        match txid {
            Some(txid) => to.collect_str(txid),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Txid>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests;
