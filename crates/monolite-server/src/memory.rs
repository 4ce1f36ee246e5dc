//! Owns how much memory requests and answers may take together, and how long a client may leave
//! its answer.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
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

/// What a request or an answer takes without asking: connections are few enough for it, and one
/// who wants little does not wait for those who take much.
pub(crate) const SMALL: usize = 64 << 10;

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
        timeout(WAIT, self.take_for_answer(bytes)).await.map_err(|_| {
            let message = "requests and answers of others take all memory; try again later";
            ProtocolError::new("OVERLOADED", message)
        })
    }

    /// Takes `bytes` for what was done, however long that takes: it cannot be refused any more.
    pub(crate) async fn take_for_answer(&self, bytes: usize) -> Taken {
        let taken = Arc::clone(&self.pieces).acquire_many_owned(self.pieces(bytes)).await;
        taken.expect("it is never closed")
    }

    /// As [`Memory::take_for_answer`], but nothing for a small one.
    pub(crate) async fn take_if_large(&self, bytes: usize) -> Option<Taken> {
        if bytes <= SMALL { None } else { Some(self.take_for_answer(bytes).await) }
    }

    /// Takes `bytes` if they are there.
    pub(crate) fn take_now(&self, bytes: usize) -> Option<Taken> {
        Arc::clone(&self.pieces).try_acquire_many_owned(self.pieces(bytes)).ok()
    }
}

/// Gives back all of `taken` but what `bytes` need.
pub(crate) fn keep_only(taken: &mut Taken, bytes: usize) {
    let unused = taken.num_permits().saturating_sub(bytes.div_ceil(PIECE));
    drop(taken.split(unused));
}

/// `bytes`, with the memory that they take until they are sent.
pub(crate) fn charged(bytes: Vec<u8>, taken: Option<Taken>) -> Bytes {
    struct Charged(
        Vec<u8>,
        #[expect(dead_code, reason = "it is dropped with the bytes")] Option<Taken>,
    );
    impl AsRef<[u8]> for Charged {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Charged(bytes, taken))
}

/// Memory of the message that a socket is in the middle of; a clone is of the same one.
#[derive(Clone)]
pub(crate) struct Unfinished {
    memory: Memory,
    /// Its bytes, and what they take.
    read: Arc<Mutex<(usize, Vec<Taken>)>>,
}

impl Unfinished {
    /// Of a message that takes of `memory` when it is not small.
    pub(crate) fn new(memory: &Memory) -> Unfinished {
        Unfinished { memory: memory.clone(), read: Arc::default() }
    }

    /// It is whole, and takes nothing here any more.
    pub(crate) fn end(&self) {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Default::default();
    }

    /// A frame of `bytes` was read that is no part of it.
    pub(crate) fn leave_out(&self, bytes: usize) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.0 = read.0.saturating_sub(bytes);
    }

    /// `bytes` more were read. They take twice their length, as the buffer that they are put into
    /// doubles.
    fn add(&self, bytes: usize) -> io::Result<()> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.0 += bytes;
        if read.0 > SMALL {
            let taken = self.memory.take_now(2 * bytes);
            read.1.push(taken.ok_or(io::ErrorKind::OutOfMemory)?);
        }
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
        let unfinished = Unfinished::new(&memory);
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
        drop(charged(vec![1, 2, 3], Some(all)));
        drop(memory.take(MOST).await.expect("it was given back"));
    }
}
