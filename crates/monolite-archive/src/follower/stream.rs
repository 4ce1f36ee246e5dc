//! Owns how a follower streams from its primary ([`crate::streaming`]).
//!
//! # Algorithm
//! 1. With all that the archive has, connect, and say which slot that is, or the last part.
//! 2. Parts that are there are applied as one commit, whose [marker](super::marker) says where the
//!    file is then. A seal says that a slot is among them.
//! 3. Meanwhile look at the archive as a follower that does not stream: who is the primary, and
//!    whether there is a slot that is not sealed here.
//! 4. When the stream ends, go on by the archive. A slot says where in the WAL it ends: one that is
//!    among the parts is passed, and the one that reaches beyond them is applied. Where that cannot
//!    be told, all slots up to the bound are applied as one commit; where the leader record says
//!    that the parts are not in history, a full copy is.
//!
//! # Invariants
//! - No part of an epoch is applied when a later one is known.
//! - No slot that is older than a part is applied over it.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{self, Builder};
use std::time::Instant;

use monolite::archive::{ArchiveToken, WalPosition};
use monolite_ltx::{PageSize, Txid};

use super::Shared;
use super::following::Following;
use super::marker::Marker;
use super::pages::IN_MEMORY;
use super::streamed::{Standing, Streamed};
use crate::archiver::position::Place;
use crate::error::{Error, ErrorKind, Result};
use crate::file::ArchivedFile;
use crate::random::drawn;
use crate::record::{Epoch, ReplicaId};
use crate::requests::leader;
use crate::slot::Slot;
use crate::store;
use crate::streaming::{Hello, Line, Message, PATIENCE, Part, Peer, Wait};

impl Following {
    /// Streams for as long as that goes; whether something came of it. There must be nothing in the
    /// archive that is not here.
    ///
    /// # Errors
    /// Those of the connection, and of what is applied.
    pub(super) fn stream(&mut self, peer: &Peer) -> Result<bool> {
        let Some(lineage) = self.place.lineage.filter(|_| self.is_known()) else {
            return Ok(false);
        };
        let replica = self.replica()?;
        let slot = self.next.get() - 1;
        let at = self.streamed.as_ref().map(|streamed| (streamed.epoch.0, streamed.at));
        let mut line = Line::connect(peer, Hello { lineage: lineage.bits(), replica, slot, at })?;
        let epoch = loop {
            match line.receive(Wait::ATick)? {
                Some(Message::Welcome { epoch }) => break Epoch(epoch),
                Some(Message::Behind) => {
                    if self.is_certain() {
                        self.streamed = None;
                    }
                    return Ok(false);
                }
                Some(other) => return Err(unexpected(other)),
                None if line.silence() > PATIENCE || self.shared.is_ending() => {
                    return Err(is_silent());
                }
                None => {}
            }
        };
        if epoch < self.shared.epoch() {
            let message = format!("the stream is of epoch {epoch}, and has a successor");
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        self.shared.streams(None);
        let ended = self.stream_and_look(&mut line, epoch);
        self.shared.streams_no_more();
        ended.map(|()| true)
    }

    /// Whether it is known which state the file has.
    pub(super) fn is_known(&self) -> bool {
        self.is_certain() || self.streamed.is_some() && !self.place.is_spoiled
    }

    fn stream_and_look(&mut self, line: &mut Line, epoch: Epoch) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let (streaming, ended) = channel::<()>();
        thread::scope(|scope| {
            // A store that does not answer holds up no part.
            let looks = move || {
                let interval = shared.archive.interval;
                while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                    shared.look();
                }
            };
            let looking = Builder::new().name("monolite-follow".into()).spawn_scoped(scope, looks);
            looking.map_err(|error| Error::of_io("begin a thread", error))?;
            let applied = self.take_parts(line, epoch);
            drop(streaming);
            applied
        })
    }

    fn take_parts(&mut self, line: &mut Line, epoch: Epoch) -> Result<()> {
        let (mut parts, mut bytes) = (Vec::new(), 0);
        while !self.shared.is_ending() && self.shared.epoch() <= epoch {
            let wait = if parts.is_empty() { Wait::ATick } else { Wait::Never };
            let other = match line.receive(wait)? {
                Some(Message::Part(part)) => {
                    let fits = PageSize::new(part.page_bytes);
                    self.must_fit(fits.map_err(|error| Error::of_ltx("a part", error))?)?;
                    bytes += part.pages.len();
                    parts.push(part);
                    if bytes < IN_MEMORY {
                        continue;
                    }
                    None
                }
                other => other,
            };
            if let Some(at) = self.apply_parts(epoch, std::mem::take(&mut parts))? {
                line.say(at)?;
            }
            bytes = 0;
            match other {
                Some(Message::Sealed { txid, at }) => self.seal(txid, at)?,
                Some(Message::Behind) => return Ok(()),
                None | Some(Message::Alive) if line.silence() > PATIENCE => return Err(is_silent()),
                None | Some(Message::Alive) => {}
                Some(other) => return Err(unexpected(other)),
            }
        }
        Ok(())
    }

    /// Which replica this is. One that is not yet is from now on, and its place on disk says so.
    fn replica(&mut self) -> Result<ReplicaId> {
        if let Some(replica) = self.place.replica {
            return Ok(replica);
        }
        let replica = ReplicaId::from_bits(drawn()?);
        self.place.replica = Some(replica);
        self.place.write(&self.path)?;
        self.tells_who();
        Ok(replica)
    }

    /// Applies parts as one commit; up to where everything is on disk now.
    fn apply_parts(&mut self, epoch: Epoch, parts: Vec<Part>) -> Result<Option<WalPosition>> {
        let Some(last) = parts.last() else { return Ok(None) };
        let (size, at) = (last.commit, last.to);
        let bound = parts.iter().map(|part| part.bound).max().unwrap_or(0);
        let (from, to) = (self.place.from, bound.max(self.place.from + 1).max(self.place.to));
        if !self.place.has_parts() {
            self.notes.write(Marker::of_slot(from), None)?;
            self.place.streams(&self.path)?;
        }
        let none = Streamed { epoch, at: WalPosition::default(), generations: Vec::new() };
        let mut streamed = self.streamed.clone().unwrap_or(none);
        parts.iter().for_each(|part| streamed.take(part));
        let marker = Marker { from, to, streamed: Some(streamed) };
        marker.encode(self.shared.page_size)?;
        // Where this fails, it is not known what the file has while it is open.
        self.streamed = None;
        (self.place.to, self.place.epoch) = (to, Some(epoch));
        let count = parts.len() as u64;
        self.repeat(parts.into_iter().map(|part| Box::new(part) as _).collect(), size, &marker)?;
        self.streamed = marker.streamed;
        self.shared.progress().stats.parts += count;
        Ok(Some(at))
    }

    /// The slot `txid` is among the parts, and ends at `at`.
    fn seal(&mut self, txid: Txid, at: WalPosition) -> Result<()> {
        let Some(streamed) = self.streamed.as_mut().filter(|streamed| at <= streamed.at) else {
            return Err(Error::corrupt("the stream: a slot ends behind its last part"));
        };
        streamed.generations.retain(|(number, _)| *number >= at.generation);
        let is_all = streamed.at == at;
        self.has_slot(txid, is_all);
        Ok(())
    }

    /// The slot `txid` is among the parts; whether they end with it.
    pub(super) fn has_slot(&mut self, txid: Txid, is_all: bool) {
        self.place.from = self.place.from.max(txid.get());
        self.place.to = if is_all { self.place.from } else { self.place.to.max(self.place.from) };
        self.passes_to(txid);
        self.looked = Some(Instant::now());
    }

    /// How a slot stands to what was streamed. One of a later epoch may be of a clone of the
    /// primary: it counts where the leader record says that it carries on.
    pub(super) fn standing(&self, file: ArchivedFile) -> Result<Standing> {
        let archive = &self.shared.archive;
        let header = file.header(&*archive.store, &archive.layout)?;
        let place = header.wal.and_then(Place::of_span);
        let Some((streamed, place)) = self.streamed.as_ref().zip(place) else {
            return Ok(Standing::Unknown);
        };
        if Epoch(header.node_id) != streamed.epoch && self.bound()?.is_none() {
            return Ok(Standing::Unknown);
        }
        Ok(streamed.standing(place))
    }

    /// Where in history all is that the file may have, by the leader record; `None` when it has
    /// something that is not in history.
    pub(super) fn bound(&self) -> Result<Option<u64>> {
        let (to, record) = (self.place.to, self.record.as_ref());
        let epoch = self.place.epoch.filter(|_| !self.is_certain());
        let (Some(record), Some(epoch)) = (record, epoch) else { return Ok(Some(to)) };
        let token = ArchiveToken { lineage: record.lineage.bits(), epoch: epoch.0, txid: to };
        match record.look_for(token) {
            Ok(Some(txid)) => Ok(Some(txid.get())),
            Ok(None) => {
                let message = "the primary has not archived yet what its predecessor had streamed; \
                               this waits until it has";
                Err(Error::new(ErrorKind::Gap, message))
            }
            Err(_) => Ok(None),
        }
    }
}

impl Shared {
    /// The latest epoch that it knows of.
    fn epoch(&self) -> Epoch {
        Epoch(self.progress().stats.epoch)
    }

    /// It streams, or does not for this reason.
    pub(super) fn streams(&self, error: Option<&Error>) {
        let mut progress = self.progress();
        progress.stats.is_streaming = error.is_none();
        progress.stats.stream_error = error.map(Error::to_string);
    }

    fn streams_no_more(&self) {
        self.progress().stats.is_streaming = false;
    }

    /// Looks at the archive while the primary streams. What fails is told when that ends.
    fn look(&self) {
        let (store, layout) = (&*self.archive.store, &self.archive.layout);
        let then = Instant::now();
        let lineage = self.progress().record.as_ref().map(|record| record.lineage);
        match leader(store, layout) {
            Ok(Some(record)) if Some(record.lineage) == lineage => self.note_record(Some(&record)),
            _ => return,
        }
        let Some(next) = Txid::new(self.progress().reached + 1) else { return };
        match store.get(&layout.slot(next), store::Part::End(Slot::FENCE_LEN)) {
            Ok(None) => self.had_all(then),
            Ok(Some(end)) => self.note_newest(next, end.len),
            Err(_) => {}
        }
    }
}

fn unexpected(message: Message) -> Error {
    match message {
        Message::Refused(why) => Error::new(ErrorKind::Denied, format!("the stream: {why}")),
        other => Error::corrupt(format!("the stream: {other:?} is unexpected")),
    }
}

fn is_silent() -> Error {
    Error::new(ErrorKind::Lost, format!("the stream: nothing was heard for {PATIENCE:?}"))
}
