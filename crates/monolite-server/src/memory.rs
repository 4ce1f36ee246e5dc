//! Owns how much memory requests and answers may take together, and how long a client may leave
//! its answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::hrana::ProtocolError;

/// Bytes of all requests, and of all answers.
const MOST: usize = 256 << 20;

/// Memory is given out in pieces of this size.
const PIECE: usize = 1 << 10;

/// How long a request waits for memory.
const WAIT: Duration = Duration::from_secs(5);

/// How long a client may take nothing of an answer.
const STALL: Duration = Duration::from_secs(30);

/// A budget of memory.
pub(crate) struct Memory(Arc<Semaphore>);

/// Memory that is given back when this is dropped.
pub(crate) type Taken = OwnedSemaphorePermit;

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory(Arc::new(Semaphore::new(MOST / PIECE)))
    }

    /// Takes `bytes` as soon as they are there.
    pub(crate) async fn take(&self, bytes: usize) -> Result<Taken, ProtocolError> {
        let pieces = bytes.div_ceil(PIECE).min(MOST / PIECE) as u32;
        match timeout(WAIT, Arc::clone(&self.0).acquire_many_owned(pieces)).await {
            Ok(taken) => Ok(taken.expect("it is never closed")),
            Err(_) => {
                let message = "requests and answers of others take all memory; try again later";
                Err(ProtocolError::new("OVERLOADED", message))
            }
        }
    }
}

/// `bytes`, with the memory that they take until they are sent.
pub(crate) fn charged(bytes: Vec<u8>, taken: Taken) -> Bytes {
    struct Charged(Vec<u8>, #[expect(dead_code, reason = "it is dropped with the bytes")] Taken);
    impl AsRef<[u8]> for Charged {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Charged(bytes, taken))
}

/// A socket that fails when the other side has taken nothing for [`STALL`].
pub(crate) struct Patient<S> {
    socket: S,
    /// Since when it takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> Patient<S> {
    pub(crate) fn new(socket: S) -> Patient<S> {
        Patient { socket, stalled: None }
    }

    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let written = write(Pin::new(&mut self.socket), context);
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(STALL)));
        ready!(stalled.as_mut().poll(context));
        // For one who polls again.
        stalled.as_mut().reset(Instant::now() + STALL);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
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
        self.written(context, |socket, context| socket.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.written(context, |socket, context| socket.poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, duplex};

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
    async fn memory_is_given_back_and_a_wait_for_it_ends() {
        let memory = Memory::new();
        let all = memory.take(MOST).await.expect("it is there");
        assert_eq!(memory.take(1).await.expect_err("none is left").code, "OVERLOADED");
        drop(charged(vec![1, 2, 3], all));
        drop(memory.take(MOST).await.expect("it was given back"));
    }
}
