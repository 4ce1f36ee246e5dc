//! Owns how much memory requests and answers may take together, and how long a client may leave
//! its answer.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Sleep, sleep, timeout};

use crate::hrana::ProtocolError;

/// Memory is given out in pieces of this size.
const PIECE: usize = 1 << 10;

/// How long a request waits for memory.
const WAIT: Duration = Duration::from_secs(5);

/// How long a client may take for [`ENOUGH`] of an answer.
const STALL: Duration = Duration::from_secs(30);

/// Bytes; some 16 KiB a second, which a bad connection has.
const ENOUGH: usize = 512 << 10;

/// What a request or an answer takes without asking: connections are few enough for it, and a small
/// request does not wait for large ones.
pub(crate) const SMALL: usize = 64 << 10;

/// Most bytes that are read of a client before it is let in: a small message, and what one read
/// takes of the messages behind it.
const OF_STRANGER: usize = 4 * SMALL;

/// A budget of memory; a clone is the same one.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pieces: Arc<Semaphore>,
    most: usize,
}

/// Memory that is given back when this is dropped.
pub(crate) type Taken = OwnedSemaphorePermit;

impl Memory {
    /// One of `bytes`.
    pub(crate) fn of(bytes: usize) -> Memory {
        let most = bytes / PIECE;
        Memory { pieces: Arc::new(Semaphore::new(most)), most }
    }

    fn pieces(&self, bytes: usize) -> u32 {
        bytes.div_ceil(PIECE).min(self.most) as u32
    }

    /// Takes `bytes` for a request, of which nothing was done yet.
    pub(crate) async fn take(&self, bytes: usize) -> Result<Taken, ProtocolError> {
        timeout(WAIT, self.take_for_answer(bytes)).await.map_err(|_| no_memory())
    }

    /// Takes `bytes` for what was done, however long that takes: it cannot be refused any more.
    pub(crate) async fn take_for_answer(&self, bytes: usize) -> Taken {
        let taken = Arc::clone(&self.pieces).acquire_many_owned(self.pieces(bytes)).await;
        taken.expect("it is never closed")
    }

    /// Has `taken` be `bytes` at least, if they are there.
    pub(crate) fn top_up(
        &self,
        taken: &mut Option<Taken>,
        bytes: usize,
    ) -> Result<(), ProtocolError> {
        let has = taken.as_ref().map_or(0, |taken| taken.num_permits() * PIECE);
        if bytes > has {
            // Not for each row.
            let more = self.take_now((bytes - has).max(SMALL)).ok_or_else(no_memory)?;
            match taken {
                Some(taken) => taken.merge(more),
                None => *taken = Some(more),
            }
        }
        Ok(())
    }

    /// Takes `bytes` if they are there.
    pub(crate) fn take_now(&self, bytes: usize) -> Option<Taken> {
        Arc::clone(&self.pieces).try_acquire_many_owned(self.pieces(bytes)).ok()
    }
}

pub(crate) fn no_memory() -> ProtocolError {
    let message = "requests and answers of others take all memory; try again later";
    ProtocolError::new("OVERLOADED", message)
}

/// Gives back all of `taken` but what `bytes` need.
pub(crate) fn keep_only(taken: &mut Taken, bytes: usize) {
    let kept = part(taken, bytes);
    *taken = kept;
}

/// Of `taken` what `bytes` need, or all of it if that is less.
pub(crate) fn part(taken: &mut Taken, bytes: usize) -> Taken {
    let pieces = bytes.div_ceil(PIECE).min(taken.num_permits());
    taken.split(pieces).expect("it has as many")
}

/// Ends a connection.
pub(crate) type End = Arc<Notify>;

/// `bytes`, with the memory that they take (`kept`) until they are sent. A client that takes them
/// slower than [`ENOUGH`] in [`STALL`] is given up, by `end`: in HTTP/2 the bytes can wait for the
/// client while nothing waits to be written, of which [`Patient`] would know.
pub(crate) fn charged<K>(bytes: Vec<u8>, kept: K, end: Option<&End>) -> Bytes
where
    K: Send + Sync + 'static,
{
    struct Charged<K> {
        bytes: Vec<u8>,
        _kept: K,
        given_up: Option<AbortHandle>,
    }
    impl<K> AsRef<[u8]> for Charged<K> {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    impl<K> Drop for Charged<K> {
        fn drop(&mut self) {
            self.given_up.iter().for_each(AbortHandle::abort);
        }
    }
    let time = STALL * (1 + bytes.len() / ENOUGH) as u32;
    let given_up = end.cloned().map(|end| {
        let waits = async move {
            sleep(time).await;
            end.notify_one();
        };
        tokio::spawn(waits).abort_handle()
    });
    Bytes::from_owner(Charged { bytes, _kept: kept, given_up })
}

/// Memory of the message that a socket is in the middle of; a clone is of the same one.
#[derive(Clone, Default)]
pub(crate) struct Unfinished(Arc<Mutex<Read>>);

#[derive(Default)]
struct Read {
    bytes: usize,
    taken: Vec<Taken>,
    /// Of which a message that is not small takes, once the client is let in.
    memory: Option<Memory>,
}

impl Unfinished {
    /// The client may send large messages from here on, which take of `memory`.
    pub(crate) fn let_in(&self, memory: &Memory) {
        self.read().memory = Some(memory.clone());
    }

    /// It is whole, and takes nothing here any more.
    pub(crate) fn end(&self) {
        let mut read = self.read();
        (read.bytes, read.taken) = (0, Vec::new());
    }

    /// A frame of `bytes` was read that is no part of it.
    pub(crate) fn leave_out(&self, bytes: usize) {
        let mut read = self.read();
        read.bytes = read.bytes.saturating_sub(bytes);
    }

    fn read(&self) -> MutexGuard<'_, Read> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `bytes` more were read. They take twice their length, as the buffer that they are put into
    /// doubles.
    fn add(&self, bytes: usize) -> io::Result<()> {
        let mut read = self.read();
        read.bytes += bytes;
        let taken = match &read.memory {
            Some(memory) if read.bytes > SMALL => memory.take_now(2 * bytes),
            None if read.bytes > OF_STRANGER => None,
            _ => return Ok(()),
        };
        read.taken.push(taken.ok_or(io::ErrorKind::OutOfMemory)?);
        Ok(())
    }
}

/// A socket whose messages take memory as they come. It fails when none is left.
pub(crate) struct Metered<S>(pub(crate) S, pub(crate) Unfinished);

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.0).poll_read(context, buffer))?;
        Poll::Ready(self.1.add(buffer.filled().len() - before))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// A socket that fails when the other side has taken less than [`ENOUGH`] in [`STALL`].
pub(crate) struct Patient<S> {
    socket: S,
    /// Until when it has to take how much more, while it does not take all at once.
    slow: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<S: AsyncWrite + Unpin> Patient<S> {
    pub(crate) fn new(socket: S) -> Patient<S> {
        Patient { socket, slow: None }
    }

    fn written(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let written = write(Pin::new(&mut self.socket), context);
        if let Poll::Ready(Ok(bytes)) = &written {
            self.slow = self.slow.take().filter(|(_, left)| left > bytes);
            if let Some((_, left)) = &mut self.slow {
                *left -= bytes;
            }
        }
        if written.is_ready() {
            return written;
        }
        let (end, _) = self.slow.get_or_insert_with(|| (Box::pin(sleep(STALL)), ENOUGH));
        ready!(end.as_mut().poll(context));
        self.slow = None;
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Flushes or ends the socket, behind which nothing is left to be taken.
    fn ended(
        &mut self,
        context: &mut Context<'_>,
        end: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        let ended = end(Pin::new(&mut self.socket), context);
        if ended.is_ready() {
            self.slow = None;
            return ended;
        }
        self.written(context, |_, _| Poll::Pending).map_ok(|_| ())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written(context, |socket, context| socket.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.written(context, |socket, context| socket.poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ended(context, |socket, context| socket.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ended(context, |socket, context| socket.poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up() {
        let (socket, _kept) = duplex(10);
        let mut patient = Patient::new(socket);
        let began = Instant::now();
        let error = patient.write_all(&[0; 11]).await.expect_err("only 10 fit");
        assert_eq!((error.kind(), began.elapsed()), (io::ErrorKind::TimedOut, STALL));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_takes_a_byte_at_a_time_is_given_up_too() {
        let (socket, mut other) = duplex(10);
        let mut patient = Patient::new(socket);
        tokio::spawn(async move {
            while other.read_u8().await.is_ok() {
                sleep(STALL / 2).await;
            }
        });
        let began = Instant::now();
        let error = patient.write_all(&[0; 100]).await.expect_err("it takes too long");
        assert_eq!((error.kind(), began.elapsed()), (io::ErrorKind::TimedOut, STALL));
    }

    #[tokio::test]
    async fn a_message_takes_memory_before_it_is_whole() {
        let memory = Memory::of(4 * SMALL);
        let unfinished = Unfinished::default();
        unfinished.let_in(&memory);
        let (socket, mut other) = duplex(8 * SMALL);
        let mut metered = Metered(socket, unfinished.clone());
        other.write_all(&[0; 8 * SMALL]).await.expect("it fits");
        let mut bytes = [0; SMALL];
        for _ in 0..2 {
            for _ in 0..3 {
                metered.read_exact(&mut bytes).await.expect("it fits");
            }
            unfinished.leave_out(SMALL);
            unfinished.end();
        }
        metered.read_exact(&mut bytes).await.expect("a small one takes nothing");
        let other_message = memory.take_now(3 * SMALL);
        let error = metered.read_exact(&mut bytes).await.expect_err("another one has the rest");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        drop(other_message);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_given_back_and_a_wait_for_it_ends() {
        const MOST: usize = 1 << 20;
        let memory = Memory::of(MOST);
        let mut all = memory.take(MOST).await.expect("it is there");
        assert_eq!(memory.take(1).await.expect_err("none is left").code, "OVERLOADED");
        keep_only(&mut all, MOST / 2);
        drop(memory.take_now(MOST / 2).expect("half of it was given back"));
        drop(charged(vec![1, 2, 3], vec![all], None));
        drop(memory.take(MOST).await.expect("it was given back"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_whose_answer_stays_is_given_up() {
        let (end, began) = (End::default(), Instant::now());
        let answer = |bytes| charged(vec![0; bytes], (), Some(&end));
        drop(answer(1));
        let kept = answer(ENOUGH);
        end.notified().await;
        assert_eq!(began.elapsed(), 2 * STALL);
        drop(kept);
    }

    #[tokio::test]
    async fn a_stranger_sends_no_large_message() {
        let unfinished = Unfinished::default();
        let (socket, mut other) = duplex(2 * OF_STRANGER);
        let mut metered = Metered(socket, unfinished.clone());
        other.write_all(&[0; 2 * OF_STRANGER]).await.expect("it fits");
        let mut bytes = [0; SMALL];
        for _ in 0..OF_STRANGER / SMALL {
            metered.read_exact(&mut bytes).await.expect("it is a little");
        }
        let error = metered.read_exact(&mut bytes).await.expect_err("it is too much");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    }
}
