//! Owns what a primary and its followers say to each other over TCP.
//!
//! # Format
//! Both sides send [`MAGIC`] and a nonce of 16 bytes. Everything behind that is messages: the
//! length of the body (4 bytes), the body, and a tag of 32 bytes. All numbers are little-endian.
//!
//! | body | from | says |
//! |---|---|---|
//! | [`Hello`] | follower | which history it has, and up to where; once, as the first message |
//! | position | follower | everything up to there is on its disk |
//! | `0` epoch | primary | parts of this epoch follow; the first answer, or one of the last two |
//! | `1` [`Part`] | primary | pages that changed |
//! | `2` TXID, position | primary | this slot is in the archive, and ends at this position |
//! | `3` | primary | nothing; it is alive |
//! | `4` | primary | it cannot go on from there, the archive can; the last message |
//! | `5` text | primary | why it never can; the last message |
//!
//! # Algorithm
//! The tag is an HMAC-SHA-256 over direction, number and body of the message. Its key is the HMAC
//! of both nonces under the secret. So each side proves the secret by its first message, and a
//! message that was changed, left out, repeated or sent back ends the connection.
//!
//! # Invariants
//! - Before the first right tag, at most [`HELLO_BYTES`] are held of a follower.
//! - Nothing that is received panics or takes more memory than [`MESSAGE_BYTES`] and one piece.
//!
//! # Not here
//! Encryption: who can read the network can read the database. Use a private network or a tunnel.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit as _, Mac as _};
use monolite::archive::WalPosition;
use monolite_ltx::Txid;
use sha2::Sha256;

use crate::error::{Error, ErrorKind, Result};
use crate::random::drawn;
use crate::record::ReplicaId;

const MAGIC: [u8; 8] = *b"monolst1";
const GREETING_BYTES: usize = MAGIC.len() + 16;
const TAG_BYTES: usize = 32;
/// The numbers in front of a part's generations, and those of one of them.
const PART_BYTES: usize = 37;
const GENERATION_BYTES: usize = 16;

/// How many bytes a secret has at least: fewer can be guessed.
const SECRET_BYTES: usize = 16;

/// The longest message, and the most that a primary keeps for followers: what a follower applies
/// as one commit is in memory on both sides.
pub(crate) const MESSAGE_BYTES: usize = 32 << 20;

const HELLO_BYTES: usize = 64;

const SAID_BYTES: usize = 16;

/// How long the other side may take for what it has to say at the beginning, and to take a message.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How often a primary that has nothing to say says so.
pub(crate) const ALIVE: Duration = Duration::from_secs(1);

/// How often it is looked whether a connection is to end.
const TICK: Duration = Duration::from_millis(50);

/// How much is read at once.
const PIECE_BYTES: usize = 256 << 10;

/// Where the primary is, and what both sides know alone.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) address: Arc<str>,
    secret: Arc<[u8]>,
}

impl Peer {
    pub(crate) fn new(address: &str, secret: &[u8]) -> Peer {
        Peer { address: address.into(), secret: secret.into() }
    }

    /// The same at another address.
    pub(crate) fn at(&self, address: &str) -> Peer {
        Peer { address: address.into(), secret: Arc::clone(&self.secret) }
    }

    /// Its address.
    pub(crate) fn name(&self) -> String {
        self.address.to_string()
    }

    /// Whether its secret may be used.
    pub(crate) fn check(&self) -> Result<()> {
        let is = self.secret.len();
        if is >= SECRET_BYTES {
            return Ok(());
        }
        let message =
            format!("the secret of the stream has {is} bytes; use {SECRET_BYTES} random ones");
        Err(Error::invalid(message))
    }
}

/// Where a follower is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) lineage: u128,
    pub(crate) replica: ReplicaId,
    /// Everything up to this slot is applied, or a fence.
    pub(crate) slot: u64,
    /// The last part that was applied: its epoch and end. None where the file is that of the slot.
    pub(crate) at: Option<(u64, WalPosition)>,
}

impl Hello {
    fn encode(&self) -> Vec<u8> {
        let (epoch, at) = self.at.unwrap_or_default();
        let mut body = [self.lineage, self.replica.bits()].map(u128::to_le_bytes).concat();
        for number in [self.slot, epoch, at.generation, at.offset] {
            body.extend(number.to_le_bytes());
        }
        body
    }

    fn decode(body: &[u8]) -> Result<Hello> {
        let mut rest = Rest(body);
        let mut drawn = || Ok::<_, Error>(u128::from_le_bytes(rest.take()?));
        let (lineage, replica) = (drawn()?, ReplicaId::from_bits(drawn()?));
        let (slot, epoch, at) = (rest.number()?, rest.number()?, rest.position()?);
        rest.ends()?;
        Ok(Hello { lineage, replica, slot, at: (epoch > 0).then_some((epoch, at)) })
    }
}

/// Whole pages, as they are at a position of the primary's WAL: all that have changed since some
/// position before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) to: WalPosition,
    /// The numbers and salts of the WAL's generations of which it has something; the last is that
    /// of `to`.
    pub(crate) generations: Vec<(u64, [u32; 2])>,
    /// The TXID in which all of it is archived, at the latest.
    pub(crate) bound: u64,
    /// Size of the database in pages.
    pub(crate) commit: u32,
    pub(crate) page_bytes: u32,
    /// Page number and page, one after the other.
    pub(crate) pages: Vec<u8>,
}

/// What a primary says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Welcome { epoch: u64 },
    Part(Part),
    Sealed { txid: Txid, at: WalPosition },
    Alive,
    Behind,
    Refused(String),
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let position = |at: &WalPosition| [at.generation.to_le_bytes(), at.offset.to_le_bytes()];
        match self {
            Message::Welcome { epoch } => [&[0][..], &epoch.to_le_bytes()].concat(),
            Message::Part(part) => {
                let generations = part.generations.len();
                let numbers = PART_BYTES + GENERATION_BYTES * generations;
                let mut body = Vec::with_capacity(numbers + part.pages.len());
                body.push(1);
                body.extend(position(&part.to).concat());
                body.extend(part.bound.to_le_bytes());
                for number in [part.commit, part.page_bytes, generations as u32] {
                    body.extend(number.to_le_bytes());
                }
                for (number, salts) in &part.generations {
                    body.extend(number.to_le_bytes());
                    body.extend(salts.map(u32::to_le_bytes).concat());
                }
                body.extend_from_slice(&part.pages);
                body
            }
            Message::Sealed { txid, at } => {
                [&[2][..], &txid.get().to_le_bytes(), &position(at).concat()].concat()
            }
            Message::Alive => vec![3],
            Message::Behind => vec![4],
            Message::Refused(why) => [&[5], why.as_bytes()].concat(),
        }
    }

    fn decode(body: &[u8]) -> Result<Message> {
        let mut rest = Rest(body);
        let [kind] = rest.take()?;
        let message = match kind {
            0 => Message::Welcome { epoch: rest.number()? },
            1 => {
                let (to, bound) = (rest.position()?, rest.number()?);
                let (commit, page_bytes, count) = (rest.half()?, rest.half()?, rest.half()?);
                let mut generation =
                    || Ok::<_, Error>((rest.number()?, [rest.half()?, rest.half()?]));
                let generations = (0..count).map(|_| generation()).collect::<Result<Vec<_>>>()?;
                let pages = std::mem::take(&mut rest.0).to_vec();
                let one = 4 + page_bytes as usize;
                let is_whole = page_bytes > 0 && pages.len().is_multiple_of(one);
                let of_database = |page: &[u8]| {
                    let pgno = page.first_chunk().map_or(0, |it| u32::from_le_bytes(*it));
                    (1..=commit).contains(&pgno)
                };
                let is_last = generations.last().is_some_and(|(it, _)| *it == to.generation);
                if !is_last || !is_whole || pages.is_empty() || !pages.chunks(one).all(of_database)
                {
                    return Err(malformed());
                }
                Message::Part(Part { to, generations, bound, commit, page_bytes, pages })
            }
            2 => {
                let txid = Txid::new(rest.number()?).ok_or_else(malformed)?;
                Message::Sealed { txid, at: rest.position()? }
            }
            3 => Message::Alive,
            4 => Message::Behind,
            5 => {
                let why = String::from_utf8_lossy(std::mem::take(&mut rest.0));
                Message::Refused(why.into_owned())
            }
            _ => return Err(malformed()),
        };
        rest.ends()?;
        Ok(message)
    }
}

/// What is left of a body.
struct Rest<'b>(&'b [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn half(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn number(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn position(&mut self) -> Result<WalPosition> {
        Ok(WalPosition { generation: self.number()?, offset: self.number()? })
    }

    fn ends(&self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(malformed()) }
    }
}

fn malformed() -> Error {
    Error::corrupt("the stream: a message that this does not know; use one version on both sides")
}

fn lost(error: io::Error) -> Error {
    Error::new(ErrorKind::Lost, format!("the stream: {error}"))
}

/// The tags of one direction.
#[derive(Clone)]
struct Tags {
    key: Hmac<Sha256>,
    direction: u8,
    number: u64,
}

impl Tags {
    fn next(&mut self, body: &[u8]) -> Hmac<Sha256> {
        let mut tag = self.key.clone();
        tag.update(&[self.direction]);
        tag.update(&self.number.to_le_bytes());
        tag.update(body);
        self.number += 1;
        tag
    }
}

/// Whether it is waited for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// For [`TICK`].
    ATick,
    Never,
}

/// A connection to the other side.
pub(crate) struct Line {
    tcp: TcpStream,
    ours: Tags,
    theirs: Tags,
    received: Vec<u8>,
    heard: Instant,
}

const FOLLOWER: u8 = 1;
const PRIMARY: u8 = 2;

impl Line {
    /// Connects to a primary, and says where the follower is.
    pub(crate) fn connect(peer: &Peer, hello: Hello) -> Result<Line> {
        let named = |error| {
            let address = &peer.address;
            Error::new(ErrorKind::Lost, format!("the stream from {address}: {error}"))
        };
        let mut found = peer.address.to_socket_addrs().map_err(named)?;
        let none = || named(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        let address = found.next().ok_or_else(none)?;
        let tcp = TcpStream::connect_timeout(&address, ALIVE).map_err(named)?;
        let mut line = Line::begin(tcp, peer, [FOLLOWER, PRIMARY])?;
        line.send(&hello.encode())?;
        Ok(line)
    }

    /// Takes a follower's connection, and hears where it is.
    pub(crate) fn accept(tcp: TcpStream, peer: &Peer) -> Result<(Line, Hello)> {
        let mut line = Line::begin(tcp, peer, [PRIMARY, FOLLOWER])?;
        while line.silence() < PATIENCE {
            if let Some(body) = line.body(Wait::ATick, HELLO_BYTES)? {
                return Ok((line, Hello::decode(&body)?));
            }
        }
        Err(lost(io::ErrorKind::TimedOut.into()))
    }

    fn begin(mut tcp: TcpStream, peer: &Peer, directions: [u8; 2]) -> Result<Line> {
        tcp.set_nodelay(true).map_err(lost)?;
        tcp.set_write_timeout(Some(PATIENCE)).map_err(lost)?;
        tcp.set_read_timeout(Some(PATIENCE)).map_err(lost)?;
        let ours = [&MAGIC[..], &drawn()?.to_le_bytes()].concat();
        tcp.write_all(&ours).map_err(lost)?;
        let mut theirs = [0; GREETING_BYTES];
        tcp.read_exact(&mut theirs).map_err(lost)?;
        if !theirs.starts_with(&MAGIC) {
            return Err(Error::invalid("the stream: what is at the address speaks otherwise"));
        }
        tcp.set_read_timeout(Some(TICK)).map_err(lost)?;
        let mut greetings = [(directions[0], &ours[..]), (directions[1], &theirs)];
        greetings.sort();
        let any = |_| Error::invalid("the secret of the stream cannot be a key");
        let mut key = Hmac::<Sha256>::new_from_slice(&peer.secret).map_err(any)?;
        greetings.iter().for_each(|(_, greeting)| key.update(greeting));
        let key = key.finalize().into_bytes();
        let key = Hmac::<Sha256>::new_from_slice(&key).map_err(any)?;
        let tags = |direction| Tags { key: key.clone(), direction, number: 0 };
        let [ours, theirs] = directions.map(tags);
        Ok(Line { tcp, ours, theirs, received: Vec::new(), heard: Instant::now() })
    }

    /// The same connection for a thread that hears what the follower says. This one sends.
    pub(crate) fn hearing(&mut self) -> Result<Line> {
        let tcp = self.tcp.try_clone().map_err(lost)?;
        let (ours, theirs) = (self.ours.clone(), self.theirs.clone());
        let received = std::mem::take(&mut self.received);
        Ok(Line { tcp, ours, theirs, received, heard: Instant::now() })
    }

    /// Ends the connection, for all that use it.
    pub(crate) fn hang_up(&self) {
        let _ = self.tcp.shutdown(Shutdown::Both);
    }

    /// Says to the primary that everything up to `at` is on this disk.
    ///
    /// # Errors
    /// As [`Line::send`].
    pub(crate) fn say(&mut self, at: WalPosition) -> Result<()> {
        self.send(&[at.generation, at.offset].map(u64::to_le_bytes).concat())
    }

    /// What a follower says next, if that comes within a [`TICK`].
    ///
    /// # Errors
    /// As [`Line::receive`].
    pub(crate) fn hear(&mut self) -> Result<Option<WalPosition>> {
        let Some(body) = self.body(Wait::ATick, SAID_BYTES)? else { return Ok(None) };
        let mut rest = Rest(&body);
        let at = rest.position()?;
        rest.ends().map(|()| Some(at))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Those of the connection; it is of no use any more.
    pub(crate) fn send(&mut self, body: &[u8]) -> Result<()> {
        let tag = self.ours.next(body).finalize().into_bytes();
        let len = u32::try_from(body.len()).map_err(|_| malformed())?;
        if body.len() < PIECE_BYTES {
            // One packet, where it fits.
            let whole = [&len.to_le_bytes(), body, &tag].concat();
            return self.tcp.write_all(&whole).map_err(lost);
        }
        let mut send = |piece: &[u8]| self.tcp.write_all(piece).map_err(lost);
        send(&len.to_le_bytes())?;
        send(body)?;
        send(&tag)
    }

    /// The primary's next message, if it is there in time.
    ///
    /// # Errors
    /// Those of the connection, and of what is not the primary's; it is of no use any more.
    pub(crate) fn receive(&mut self, wait: Wait) -> Result<Option<Message>> {
        self.body(wait, MESSAGE_BYTES)?.map(|body| Message::decode(&body)).transpose()
    }

    /// How long nothing was heard.
    pub(crate) fn silence(&self) -> Duration {
        self.heard.elapsed()
    }

    fn body(&mut self, wait: Wait, most: usize) -> Result<Option<Vec<u8>>> {
        loop {
            let lacks = self.lacks(most)?;
            if lacks == 0 {
                return self.taken().map(Some);
            }
            let len = self.received.len();
            self.received.reserve_exact(lacks);
            let waits = self.tcp.set_nonblocking(wait == Wait::Never);
            let mut rest = (&self.tcp).take(lacks as u64);
            let read = waits.and_then(|()| rest.read_to_end(&mut self.received));
            if self.received.len() > len {
                self.heard = Instant::now();
            }
            match read {
                Ok(read) if read == lacks => {}
                Ok(_) if self.theirs.number == 0 => {
                    let message = "the stream: the other side has hung up: give both sides the \
                                   same secret, and the address of the primary";
                    return Err(Error::new(ErrorKind::Denied, message));
                }
                Ok(_) => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
                Err(error) if is_late(&error) => {
                    self.tcp.set_nonblocking(false).map_err(lost)?;
                    return Ok(None);
                }
                Err(error) => return Err(lost(error)),
            }
        }
    }

    /// How many bytes are to come of the next message, or of its length.
    fn lacks(&self, most: usize) -> Result<usize> {
        let Some(len) = self.received.first_chunk() else { return Ok(4 - self.received.len()) };
        let len = u32::from_le_bytes(*len) as usize;
        if len > most {
            return Err(Error::corrupt(format!("the stream: a message of {len} bytes")));
        }
        Ok(4 + len + TAG_BYTES - self.received.len())
    }

    /// The message that has been received.
    fn taken(&mut self) -> Result<Vec<u8>> {
        let mut body = std::mem::take(&mut self.received).split_off(4);
        let tag = body.split_off(body.len() - TAG_BYTES);
        if self.theirs.next(&body).verify_slice(&tag).is_err() {
            let message = "the stream: a message that is not the other side's: give both sides \
                           the same secret";
            return Err(Error::new(ErrorKind::Denied, message));
        }
        Ok(body)
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests;
