//! Owns the upload of a body of any length: in parts, of which a few are in memory.
//!
//! # Algorithm
//! 1. Bytes are gathered until they are a part. A body that ends before is created by one request,
//!    which fails where the object is, as every other one.
//! 2. Of a longer one each part is sent as soon as it is whole, some at the same time, each again
//!    when it fails, for about a minute. When as many are under way as may be, the writer waits.
//!    All but the last have one length, which some services demand (R2).
//! 3. Before the first part, and when all are there: see whether the object is. If not, have the
//!    service put them together. Then the object is there, all of it at once.
//!
//! # Invariants
//! - No part of a body that breaks off is ever visible. It is given up at the service; where that
//!   fails, or the process dies, the parts stay, unseen and billed, until a rule of the bucket
//!   removes them.
//! - Between the look and the end another one may create the object, and is replaced: services have
//!   no request that all of them know, or the client no call for it. So only files are created like
//!   this whose name says what is in them ([`Store::create_from`](crate::Store::create_from)).
//! - The object has its time beside it, but in Azure: Litestream takes it for as old as its upload
//!   there. We go by what is in it.
//!
//! # Threads and locks
//! Parts are sent by the thread of the store's runtime while the caller's makes the next.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use monolite_ltx::Timestamp;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{Error as ClientError, MultipartId, PutMultipartOptions, PutPayload};
use tokio::task::JoinSet;

use super::{BucketStore, Service, of_client, patience};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Store as _, Tag};

/// The shortest part in bytes. Services demand 5 MiB; each is a request that is billed.
pub(super) const PART: usize = 8 << 20;

/// How many parts an object may have (S3, R2 and GCS), and how many it is planned to have: who
/// says how long a body is about may be wrong by a quarter.
const PARTS: usize = 10_000;
const PLANNED: u64 = 8_000;

/// How many bytes may be under way, if that is more than one part.
const UNDER_WAY: usize = 32 << 20;

/// How often a part is sent, how long the first rest is, and by how much each next one is longer:
/// 68 seconds in all.
const TRIES: u32 = 6;
const REST: Duration = Duration::from_millis(200);
const LONGER: u32 = 4;

/// How long it may take to put parts together.
const COMPLETION: Duration = Duration::from_secs(600);

/// A body that is being written.
pub(super) struct Upload<'a> {
    store: &'a BucketStore,
    key: &'a str,
    path: Path,
    time: Option<Timestamp>,
    part_bytes: usize,
    /// What is no whole part yet.
    gathered: Vec<u8>,
    /// Bytes that were written.
    len: u64,
    parts: Option<Parts>,
}

/// What is known of parts at the service.
struct Parts {
    id: MultipartId,
    sent: usize,
    under_way: JoinSet<(usize, Result<PartId, Failure>)>,
    done: Vec<(usize, PartId)>,
}

enum Failure {
    Client(ClientError),
    Late,
}

impl<'a> Upload<'a> {
    /// Nothing is sent yet.
    pub(super) fn new(
        store: &'a BucketStore,
        key: &'a str,
        about: u64,
        time: Option<Timestamp>,
    ) -> Result<Upload<'a>> {
        let path = super::path(key)?;
        let part_bytes = part_bytes(about);
        let (gathered, len, parts) = (Vec::new(), 0, None);
        Ok(Upload { store, key, path, time, part_bytes, gathered, len, parts })
    }

    /// Creates the object, all of whose bytes were written.
    pub(super) fn finish(mut self) -> Result<Tag> {
        if self.parts.is_none() {
            return self.store.create(self.key, &self.gathered, self.time);
        }
        if !self.gathered.is_empty() {
            self.send()?;
        }
        while self.take_one()? {}
        self.must_be_absent()?;
        let Some(mut parts) = self.parts.take() else {
            return Err(Error::invalid("an upload without parts"));
        };
        parts.done.sort_unstable_by_key(|(number, _)| *number);
        let ids = parts.done.drain(..).map(|(_, id)| id).collect();
        let client = Arc::clone(&self.store.parts);
        let completed = client.complete_multipart(&self.path, &parts.id, ids);
        let completed = self.store.wait(self.key, COMPLETION, completed);
        let tag = completed.and_then(|put| self.store.tag(put.e_tag, put.version));
        tag.or_else(|error| self.answered_by_a_look(error))
    }

    /// An answer that was lost, or has no tag: the object is there, or it is not known.
    fn answered_by_a_look(&self, error: Error) -> Result<Tag> {
        match self.store.head(self.key) {
            Ok(Some(meta)) if meta.size == self.len => self.store.tag(meta.e_tag, meta.version),
            _ if error.kind() == ErrorKind::NotFound => {
                let message = format!("{error}; its parts are gone, or it is not seen yet");
                Err(Error::new(ErrorKind::Lost, message))
            }
            _ => Err(error),
        }
    }

    /// Sends what was gathered, as soon as there is room for it.
    fn send(&mut self) -> Result<()> {
        let next = Vec::with_capacity(self.part_bytes);
        let payload = PutPayload::from(std::mem::replace(&mut self.gathered, next));
        let at_once = (UNDER_WAY / self.part_bytes).max(1);
        if self.parts.is_none() {
            self.parts = Some(self.begin()?);
        }
        while self.parts.as_ref().is_some_and(|parts| parts.under_way.len() >= at_once) {
            self.take_one()?;
        }
        let Some(parts) = &mut self.parts else {
            return Err(Error::invalid("an upload without parts"));
        };
        let number = parts.sent;
        if number == PARTS {
            let message = format!(
                "{:?} has more than {PARTS} parts of {} bytes, more than its announced length",
                self.key, self.part_bytes
            );
            return Err(Error::invalid(message));
        }
        parts.sent += 1;
        let (client, path) = (Arc::clone(&self.store.parts), self.path.clone());
        let sent = send(client, path, parts.id.clone(), number, payload);
        parts.under_way.spawn_on(async move { (number, sent.await) }, self.store.runtime.handle());
        Ok(())
    }

    fn must_be_absent(&self) -> Result<()> {
        match self.store.head(self.key)? {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::Exists, format!("{:?} is there", self.key))),
        }
    }

    fn begin(&self) -> Result<Parts> {
        self.must_be_absent()?;
        // The client knows none for parts in Azure, and refuses them.
        let time = self.time.filter(|_| self.store.service != Service::Azure);
        let attributes = self.store.attributes(time);
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let begun = self.store.parts.create_multipart_opts(&self.path, options);
        let id = self.store.wait(self.key, patience(0), begun)?;
        Ok(Parts { id, sent: 0, under_way: JoinSet::new(), done: Vec::new() })
    }

    /// Waits for a part that is under way; false when none is.
    fn take_one(&mut self) -> Result<bool> {
        let Some(parts) = &mut self.parts else { return Ok(false) };
        let joined = self.store.runtime.block_on(parts.under_way.join_next());
        let lost = |what: &str| Error::new(ErrorKind::Lost, format!("{:?}: {what}", self.key));
        match joined {
            None => Ok(false),
            Some(Ok((number, Ok(id)))) => {
                parts.done.push((number, id));
                Ok(true)
            }
            Some(Ok((_, Err(Failure::Client(error))))) => Err(of_client(self.key, &error)),
            Some(Ok((_, Err(Failure::Late)))) => Err(lost("no answer to a part in time")),
            Some(Err(_)) => Err(lost("a part was given up")),
        }
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        let Some(mut parts) = self.parts.take() else { return };
        self.store.runtime.block_on(parts.under_way.shutdown());
        let given_up = self.store.parts.abort_multipart(&self.path, &parts.id);
        // A rule of the bucket removes what stays.
        let _ = self.store.wait(self.key, patience(0), given_up);
    }
}

impl Write for Upload<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.gathered.len() == self.part_bytes {
            self.send()?;
        }
        let taken = bytes.len().min(self.part_bytes - self.gathered.len());
        self.gathered.extend_from_slice(&bytes[..taken]);
        self.len += taken as u64;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How long parts of a body of about so many bytes are.
fn part_bytes(about: u64) -> usize {
    let mebibytes = about.div_ceil(PLANNED).div_ceil(1 << 20);
    usize::try_from(mebibytes << 20).unwrap_or(usize::MAX).max(PART)
}

/// Sends a part, again and again if need be: it is the same part each time.
async fn send(
    client: Arc<dyn MultipartStore>,
    path: Path,
    id: MultipartId,
    number: usize,
    payload: PutPayload,
) -> Result<PartId, Failure> {
    let limit = patience(payload.content_length());
    let (mut left, mut rest) = (TRIES, REST);
    loop {
        left -= 1;
        let sent = client.put_part(&path, &id, number, payload.clone());
        let failure = match tokio::time::timeout(limit, sent).await {
            Ok(Ok(part)) => return Ok(part),
            Ok(Err(error)) => Failure::Client(error),
            Err(_) => Failure::Late,
        };
        let is_lasting = match &failure {
            Failure::Client(error) => !of_client("", error).is_transient(),
            Failure::Late => false,
        };
        if is_lasting || left == 0 {
            return Err(failure);
        }
        tokio::time::sleep(rest).await;
        rest *= LONGER;
    }
}

#[cfg(test)]
mod tests {
    use super::{PART, PARTS, part_bytes};

    #[test]
    fn parts_are_few_enough_for_a_body_that_is_a_quarter_longer() {
        assert_eq!((part_bytes(0), part_bytes(60 << 30)), (PART, PART));
        for about in [63_u64 << 30, 1 << 40, 5 << 40] {
            let most = about / 4 * 5;
            assert!(most.div_ceil(part_bytes(about) as u64) <= PARTS as u64);
        }
    }
}
