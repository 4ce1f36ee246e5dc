//! Owns how a new process takes over from the one that serves, without a failed request.
//!
//! # Algorithm
//! The new process connects to the Unix socket of the old one, as the same user. Each step is a
//! byte.
//! 1. The old one sends `VERSION`, with its listening sockets.
//! 2. The new one has read its configuration and tokens: `READY`.
//! 3. The old one checkpoints while it still serves. Then it accepts no more connections, which
//!    wait in the backlog; new requests wait, and what is under way ends. It closes the databases:
//!    `CLOSED`.
//! 4. The new one opens them: `SERVING`. It accepts connections.
//! 5. The old one sends the requests that waited, and those that come on its connections, to the
//!    new one by HTTP/2 over the same socket. It ends when its connections have.
//!
//! If it does not hand over, it sends `REFUSED` and why. If it is gone instead, the new one finds
//! no process at the socket, and serves.
//!
//! # Invariants
//! Before `SERVING` the old process serves again whenever the new one fails; it holds no file in
//! between, so the new one may have begun to open them. From `SERVING` on it opens no database.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use crate::life::Phase;
use crate::relay::Successor;
use crate::{Shared, http, log};

/// Of these steps.
const VERSION: u8 = 1;
const READY: u8 = 2;
const CLOSED: u8 = 3;
const SERVING: u8 = 4;
const REFUSED: u8 = 5;

/// The most bytes of a reason.
const REASON: u64 = 4_096;

/// Listening sockets that are passed on: for clients, and for operators.
const SOCKETS: usize = 2;

/// How long a new process may take for what it does before the databases.
const SETUP: Duration = Duration::from_secs(30);

/// How long what was about to close, because it was unused, may take for it.
const CLOSING: Duration = Duration::from_millis(500);

/// Answers what the process before relays, until its connections have ended.
pub(crate) async fn serve_relayed(shared: Arc<Shared>, socket: UnixStream) {
    let mut phases = shared.life.phases();
    let service =
        service_fn(|request: Request<Incoming>| http::answer(Arc::clone(&shared), request));
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    tokio::select! {
        _ = server.serve_connection(TokioIo::new(socket), service) => {}
        _ = phases.wait_for(|phase| *phase >= Phase::Ends) => {}
    }
}

/// Hands over to a process that asks for it; done when one serves.
pub(crate) async fn hand_over(shared: &Shared, socket: &UnixListener, listeners: Vec<OwnedFd>) {
    loop {
        match attempt(shared, socket, &listeners).await {
            Ok(()) => return,
            Err(error) => {
                log::error(&format!("no hand-over, this process goes on to serve: {error}"));
                // Without descriptors the next attempt would fail at once.
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Breaks off with those that had asked this process before the new one had its socket there: they
/// ask again.
pub(crate) async fn send_on(socket: &UnixListener) {
    loop {
        if socket.accept().await.is_err() {
            sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn attempt(shared: &Shared, socket: &UnixListener, listeners: &[OwnedFd]) -> io::Result<()> {
    let (mut new, _) = socket.accept().await?;
    let user = new.peer_cred()?.uid();
    if user != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("user {user} asked for it")));
    }
    send(&new, listeners).await?;
    timeout(SETUP, expect(&mut new, READY)).await??;
    if let Some(reason) = shared.databases.away_archive().await {
        return Err(refuse(&mut new, reason).await);
    }
    shared.databases.checkpoint_all().await;
    if !shared.life.change(Phase::Serving, Phase::HandsOver) {
        let reason = "the server takes over from another one now; try again".into();
        return Err(refuse(&mut new, reason).await);
    }
    let mut ended = shared.end_work().await;
    match move_to(shared, new).await {
        Ok(successor) => {
            *ended = Some(successor);
            // Requests that have waited find it.
            drop(ended);
            shared.life.set(Phase::Moved);
            Ok(())
        }
        Err(error) => {
            drop(ended);
            shared.life.set(Phase::Serving);
            Err(error)
        }
    }
}

/// Lets `new` have the files, which are closed, or tells it why not.
async fn move_to(shared: &Shared, mut new: UnixStream) -> io::Result<Successor> {
    let mut left = CLOSING.as_millis();
    while left > 0 && shared.databases.still_open().is_some() {
        sleep(Duration::from_millis(1)).await;
        left -= 1;
    }
    if let Some(path) = shared.databases.still_open() {
        let path = path.display();
        let reason = format!("{path} is being forked, or a call in it goes on; try again later");
        return Err(refuse(&mut new, reason).await);
    }
    new.write_u8(CLOSED).await?;
    expect(&mut new, SERVING).await?;
    Successor::new(new).await
}

/// Tells `new` why not. Gives this reason as an error.
async fn refuse(new: &mut UnixStream, reason: String) -> io::Error {
    // One that is gone needs none.
    if new.write_u8(REFUSED).await.is_ok() {
        let _ = new.write_all(reason.as_bytes()).await;
    }
    io::Error::other(reason)
}

async fn expect(socket: &mut UnixStream, step: u8) -> io::Result<()> {
    match socket.read_u8().await? {
        read if read == step => Ok(()),
        other => Err(io::Error::other(format!("step {other} in the place of {step}"))),
    }
}

async fn send(socket: &UnixStream, listeners: &[OwnedFd]) -> io::Result<()> {
    let all: Vec<_> = listeners.iter().map(|it| it.as_fd()).collect();
    let send = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        assert!(rights.push(SendAncillaryMessage::ScmRights(&all)), "there is space for all");
        Ok(sendmsg(socket, &[IoSlice::new(&[VERSION])], &mut rights, SendFlags::NOSIGNAL)?)
    };
    socket.async_io(Interest::WRITABLE, send).await.map(drop)
}

async fn receive(socket: &UnixStream) -> io::Result<Vec<StdListener>> {
    let mut version = [0];
    let receive = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let bytes = &mut [IoSliceMut::new(&mut version)];
        if recvmsg(socket, bytes, &mut rights, RecvFlags::CMSG_CLOEXEC)?.bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut listeners = Vec::new();
        for message in rights.drain() {
            if let RecvAncillaryMessage::ScmRights(all) = message {
                listeners.extend(all.map(StdListener::from));
            }
        }
        Ok(listeners)
    };
    let listeners = socket.async_io(Interest::READABLE, receive).await?;
    if version != [VERSION] {
        let message = "the process that serves hands over in another way; stop it first";
        return Err(io::Error::other(message));
    }
    Ok(listeners)
}

/// The process that serves by the socket at `path`, and its listening sockets. `None` if there is
/// none; one that stops is waited for.
pub(crate) async fn ask(path: &Path) -> io::Result<Option<(UnixStream, Vec<StdListener>)>> {
    let mut has_ended = false;
    loop {
        let socket = match UnixStream::connect(path).await {
            Ok(socket) => socket,
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => return Ok(None),
                _ => return Err(error),
            },
        };
        match receive(&socket).await {
            Ok(listeners) => return Ok(Some((socket, listeners))),
            Err(error) if has_ended => return Err(error),
            Err(_) => has_ended = true,
        }
    }
}

/// Waits until the process before has closed the databases. `false` if it broke off without a word,
/// as one that ends does.
///
/// # Errors
/// Why it serves on.
pub(crate) async fn wait_for_files(before: &mut UnixStream) -> io::Result<bool> {
    let step = async {
        before.write_u8(READY).await?;
        before.read_u8().await
    };
    match step.await {
        Ok(CLOSED) => Ok(true),
        Ok(REFUSED) => {
            let mut reason = String::new();
            before.take(REASON).read_to_string(&mut reason).await?;
            Err(io::Error::other(format!("the process that serves does not hand over: {reason}")))
        }
        Ok(other) => Err(io::Error::other(format!("step {other} in the place of {CLOSED}"))),
        Err(error) => match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                Ok(false)
            }
            _ => Err(error),
        },
    }
}

/// Tells the process before that this one serves.
pub(crate) async fn take_over(before: &mut UnixStream) {
    // If it is gone, nothing is left to be relayed.
    let _ = before.write_u8(SERVING).await;
}

/// The socket at `path` by which the next process asks this one. It takes the place of another, as
/// the configuration was checked for ([`crate::Config::check`]).
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    let mut own = path.as_os_str().to_owned();
    own.push(".new");
    match std::fs::remove_file(&own) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = UnixListener::bind(&own)?;
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&own, path)?;
    Ok(socket)
}

/// Listening sockets of the service manager.
pub(crate) fn activated() -> io::Result<Vec<StdListener>> {
    let mut all = listenfd::ListenFd::from_env();
    let count = all.len();
    (0..count).filter_map(|at| all.take_tcp_listener(at).transpose()).collect()
}

/// That of `inherited` which listens on `address`, or a new one.
pub(crate) async fn listen(
    inherited: &mut Vec<StdListener>,
    address: SocketAddr,
) -> io::Result<TcpListener> {
    let fits = |it: SocketAddr| it.ip() == address.ip() && [0, it.port()].contains(&address.port());
    let at = inherited.iter().position(|it| it.local_addr().is_ok_and(fits));
    let Some(at) = at else { return TcpListener::bind(address).await };
    let listener = inherited.remove(at);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
