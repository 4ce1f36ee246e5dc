//! Owns the streams that live between two requests over HTTP, and the batons by which clients name
//! them.
//!
//! # Format
//! A baton is base64 without padding of: the stream's number (16 random bytes), how many requests
//! it has had (8, big-endian), and an HMAC-SHA256 (32) over both, the database, and the kind,
//! right and name of the token, with a key drawn at start. That of a stream without state is
//! [`NO_STATE`].
//!
//! # Invariants
//! - A baton is good for one request. The second request with it is refused, and the stream lives
//!   on: a proxy that repeats a request must not end a transaction.
//! - A baton is no credential: each request has shown its token before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use crate::databases::InUse;
use crate::hrana::ProtocolError;
use crate::memory::Memory;
use crate::places::{Share, Shares};
use crate::stream::{Stored, Stream};

/// How long a stream without a transaction waits for its next request; that of sqld.
const IDLE: Duration = Duration::from_secs(10);

/// How long one with a transaction does: the engine has ended the transaction before.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(65);

/// How long a request waits for the one before it on its stream.
const PATIENCE: Duration = Duration::from_secs(6);

/// Most streams that live at once.
const MOST: usize = 10_000;

/// Most of them of one token, so that it leaves some to others.
const OF_TOKEN: usize = MOST / 4;

/// The baton of a stream that has nothing to be kept: the next request with it gets a new stream,
/// however late it comes, also from a server that was started again. The Go client takes the lack
/// of a baton for a dead connection, which it can replace only outside of a `sql.Conn`.
pub(crate) const NO_STATE: &str = "none";

type Number = [u8; 16];

/// A stream, with what belongs to it.
pub(crate) struct Session {
    pub(crate) stream: Stream,
    pub(crate) stored: Stored,
    /// Keeps the database open.
    pub(crate) database: InUse,
    #[expect(dead_code, reason = "it is held")]
    share: Option<Share<u64>>,
    number: Number,
    requests: u64,
    last_use: Instant,
}

impl Session {
    pub(crate) fn has_state(&self) -> bool {
        self.stream.has_state() || !self.stored.is_empty()
    }

    fn is_expired(&self, now: Instant) -> bool {
        let limit = if self.stream.is_autocommit() { IDLE } else { IDLE_IN_TRANSACTION };
        now.duration_since(self.last_use) > limit
    }
}

/// A session during a request; no other request has it. Its stream ends when this is dropped before
/// it was put back: the client went away, and does not know what was done.
pub(crate) struct Held {
    session: OwnedMutexGuard<Session>,
    streams: Arc<Streams>,
    is_kept: bool,
}

impl std::ops::Deref for Held {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl std::ops::DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

impl Held {
    /// Lets the stream live on for the baton that it was given.
    pub(crate) fn keep(mut self) {
        self.last_use = Instant::now();
        self.is_kept = true;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_kept {
            self.streams.live().remove(&self.session.number);
        }
    }
}

pub(crate) struct Streams {
    key: hmac::Key,
    random: SystemRandom,
    holders: Arc<Shares<u64>>,
    live: Mutex<HashMap<Number, Arc<tokio::sync::Mutex<Session>>>>,
}

impl Streams {
    pub(crate) fn new() -> Streams {
        let random = SystemRandom::new();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &random);
        let key = key.expect("the system gives random numbers");
        Streams { key, random, holders: Arc::default(), live: Mutex::default() }
    }

    /// A new stream, of `holder` if there are tokens.
    pub(crate) fn open(
        self: &Arc<Streams>,
        stream: Stream,
        database: InUse,
        memory: &Memory,
        holder: Option<u64>,
    ) -> Result<Held, ProtocolError> {
        let too_many = |message| ProtocolError::new("OVERLOADED", message);
        let take = |holder| {
            self.holders.take(holder, OF_TOKEN).ok_or_else(|| {
                too_many(format!("{OF_TOKEN} streams of this token are open; close some"))
            })
        };
        let share = holder.map(take).transpose()?;
        let mut number = Number::default();
        self.random.fill(&mut number).expect("the system gives random numbers");
        let (stored, last_use) = (Stored::new(memory), Instant::now());
        let session = Session { stream, stored, database, share, number, requests: 0, last_use };
        let session = Arc::new(tokio::sync::Mutex::new(session));
        let mut live = self.live();
        if live.len() >= MOST {
            return Err(too_many(format!("{MOST} streams are open; try again later")));
        }
        live.insert(number, Arc::clone(&session));
        drop(live);
        Ok(self.hold(session.try_lock_owned().expect("it is new")))
    }

    fn hold(self: &Arc<Streams>, session: OwnedMutexGuard<Session>) -> Held {
        Held { session, streams: Arc::clone(self), is_kept: false }
    }

    /// The stream of `baton`, which `principal` has been given for `database`. A request of it
    /// that is under way gets [`PATIENCE`] to end: that may be a cursor that the client has left.
    pub(crate) async fn resume(
        self: &Arc<Streams>,
        baton: &str,
        database: &str,
        principal: &str,
    ) -> Result<Held, ProtocolError> {
        let (number, requests) = self.read(baton, database, principal).ok_or_else(expired)?;
        let session = self.live().get(&number).cloned().ok_or_else(expired)?;
        let session = timeout(PATIENCE, session.lock_owned()).await.map_err(|_| reused())?;
        if !self.live().contains_key(&number) {
            // The request that was under way has ended it.
            return Err(expired());
        }
        if session.requests != requests {
            return Err(reused());
        }
        Ok(self.hold(session))
    }

    /// The baton for the stream's next request. The stream must be kept for it, by [`Held::keep`].
    pub(crate) fn next_baton(&self, held: &mut Held, principal: &str) -> String {
        held.requests += 1;
        let mut bytes = [&held.number[..], &held.requests.to_be_bytes()].concat();
        let mac = hmac::sign(&self.key, &message(&bytes, &held.database.name, principal));
        bytes.extend_from_slice(mac.as_ref());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Ends the streams that have waited too long for their next request.
    pub(crate) fn end_expired(&self) {
        let now = Instant::now();
        self.end_where(|session| session.is_expired(now));
    }

    /// Ends those without a transaction.
    pub(crate) fn end_idle(&self) {
        self.end_where(|session| session.stream.is_autocommit());
    }

    /// No stream is ended during a request.
    fn end_where(&self, is_over: impl Fn(&Session) -> bool) {
        // Their transactions end behind the lock.
        let mut ended = Vec::new();
        self.live().retain(|_, session| {
            let is_over = session.try_lock().is_ok_and(|session| is_over(&session));
            if is_over {
                ended.push(Arc::clone(session));
            }
            !is_over
        });
    }

    pub(crate) fn count(&self) -> usize {
        self.live().len()
    }

    /// Ends all of them.
    pub(crate) fn end_all(&self) {
        let all = std::mem::take(&mut *self.live());
        drop(all);
    }

    fn live(&self) -> std::sync::MutexGuard<'_, HashMap<Number, Arc<tokio::sync::Mutex<Session>>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, baton: &str, database: &str, principal: &str) -> Option<(Number, u64)> {
        let bytes = URL_SAFE_NO_PAD.decode(baton).ok()?;
        let (signed, mac) = bytes.split_at_checked(24)?;
        hmac::verify(&self.key, &message(signed, database, principal), mac).ok()?;
        let (number, requests) = signed.split_at(16);
        Some((number.try_into().ok()?, u64::from_be_bytes(requests.try_into().ok()?)))
    }
}

/// No two triples give one message: the first part has a fixed length, and a name has no NUL.
fn message(signed: &[u8], database: &str, principal: &str) -> Vec<u8> {
    [signed, database.as_bytes(), b"\0", principal.as_bytes()].concat()
}

pub(crate) fn expired() -> ProtocolError {
    let message = "the stream expired, or the server was started again; begin again";
    ProtocolError::new("STREAM_EXPIRED", message)
}

fn reused() -> ProtocolError {
    ProtocolError::new("BATON_REUSED", "the baton was used before; each is good for one request")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Authenticator, Right};
    use crate::databases::{Data, Databases};

    #[tokio::test(flavor = "multi_thread")]
    async fn one_token_leaves_streams_to_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let databases = Databases::new(Data::File(directory.path().join("one.db")), None);
        let principal = Authenticator::Open.authenticate(None).expect("there are no tokens");
        let (streams, memory) = (Arc::new(Streams::new()), Memory::of(1 << 20));
        let open = async |holder| {
            let database = databases.get(None, None).await.expect("it opens");
            let stream = Stream::new(&database, &principal, Right::ReadWrite);
            streams.open(stream, database, &memory, holder)
        };
        let mut all = Vec::new();
        for _ in 0..OF_TOKEN {
            all.push(open(Some(1)).await.expect("it may have them"));
        }
        assert_eq!(open(Some(1)).await.err().expect("it has enough").code, "OVERLOADED");
        all.push(open(Some(2)).await.expect("another has its own"));
        for _ in 0..=OF_TOKEN {
            all.push(open(None).await.expect("without tokens there is no limit"));
        }
        all.remove(0);
        open(Some(1)).await.expect("one was given back");
    }
}
