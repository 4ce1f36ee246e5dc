//! Owns the life of a server: its listeners, its connections, its end.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::answers::Body;
use crate::auth::Authenticator;
use crate::config::Config;
use crate::databases::Databases;
use crate::files::ConfigError;
use crate::memory::{Memory, Patient};
use crate::metrics::Metrics;
use crate::streams::Streams;
use crate::tls::Tls;
use crate::{Shared, admin, http, log};

/// How long a connection may wait for a request, and a client take for its head. Heads that never
/// end hold no place for longer.
const IDLE: Duration = Duration::from_secs(20);

/// Most connections from one address of another machine; a proxy here has as many as it likes.
const OF_ADDRESS: usize = 256;

/// Largest head of a request.
const HEADER_BYTES: usize = 16 << 10;

/// How long a client may take for its part of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Most connections at once.
const CONNECTIONS: usize = 4_096;

/// Memory of all requests and answers.
const REQUEST_BYTES: usize = 256 << 20;

/// Memory of all texts that clients have stored, and of cursors over WebSocket.
const KEPT_BYTES: usize = 128 << 20;

/// How long requests under way may take when the server stops.
const DRAIN: Duration = Duration::from_secs(5);

/// How long an unused database stays open.
const UNUSED: Duration = Duration::from_secs(300);

/// How often what is unused, or has changed, is looked for.
const UPKEEP: Duration = Duration::from_secs(1);

/// A server, before it serves.
pub struct Server {
    shared: Arc<Shared>,
    tls: Option<Arc<Tls>>,
}

impl Server {
    /// One as `config` says.
    ///
    /// # Errors
    /// As [`Config::check`]; when a key, a token or a certificate cannot be read.
    pub fn new(config: &Config) -> Result<Server, ConfigError> {
        let databases = Databases::new(config.check()?, config.archive.clone());
        let authenticator = match &config.auth {
            Some(auth) => Authenticator::load(auth)?,
            None => Authenticator::Open,
        };
        let tls = config.tls.as_ref().map(Tls::load).transpose()?.map(Arc::new);
        let (streams, metrics) = (Arc::new(Streams::new()), Metrics::new());
        let (memory, kept) = (Memory::of(REQUEST_BYTES), Memory::of(KEPT_BYTES));
        let stops = tokio::sync::watch::Sender::new(false);
        let shared = Shared { databases, streams, authenticator, metrics, memory, kept, stops };
        Ok(Server { shared: Arc::new(shared), tls })
    }

    /// Serves clients on `listener`, and operators on `admin`, until `stop` is done. Then it
    /// accepts no more, gives requests under way five seconds, and closes the databases.
    ///
    /// # Panics
    /// Outside of a runtime of tokio with I/O and time.
    pub async fn serve(
        self,
        listener: TcpListener,
        admin: Option<TcpListener>,
        stop: impl Future<Output = ()>,
    ) {
        let Server { shared, tls } = self;
        let connections = Arc::new(GracefulShutdown::new());
        let upkeep = tokio::spawn(upkeep(Arc::clone(&shared), tls.clone()));
        let catching_up = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move { shared.databases.catch_up().await }
        });
        let clients = {
            let (shared, connections) = (Arc::clone(&shared), Arc::clone(&connections));
            async move { accept_clients(listener, &shared, tls, &connections).await }
        };
        let operators = {
            let (shared, connections) = (Arc::clone(&shared), Arc::clone(&connections));
            async move {
                match admin {
                    Some(admin) => accept_operators(admin, &shared, &connections).await,
                    None => std::future::pending().await,
                }
            }
        };
        tokio::select! {
            () = clients => {}
            () = operators => {}
            () = stop => {}
        }
        shared.stops.send_replace(true);
        if let Some(connections) = Arc::into_inner(connections) {
            let _ = timeout(DRAIN, connections.shutdown()).await;
        }
        upkeep.abort();
        catching_up.abort();
        shared.streams.end_all();
        shared.databases.close_all().await;
    }
}

async fn accept(listener: &TcpListener) -> (Patient<TcpStream>, IpAddr) {
    loop {
        match listener.accept().await {
            Ok((socket, from)) => {
                // An answer is one write; the next must not wait for its acknowledgement.
                let _ = socket.set_nodelay(true);
                return (Patient::new(socket), from.ip());
            }
            Err(error) => {
                // No descriptors are left, perhaps: those of connections that end give some.
                log::error(&format!("a connection was not accepted: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// How many connections each address of other machines has.
#[derive(Default)]
struct Addresses(Mutex<HashMap<IpAddr, usize>>);

/// One of them, until it is dropped.
struct OfAddress(Arc<Addresses>, IpAddr);

impl Addresses {
    /// `None` if the address has as many as it may.
    fn enter(self: &Arc<Addresses>, from: IpAddr) -> Option<OfAddress> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(from).or_default();
        if *count >= OF_ADDRESS && !from.is_loopback() {
            return None;
        }
        *count += 1;
        Some(OfAddress(Arc::clone(self), from))
    }
}

impl Drop for OfAddress {
    fn drop(&mut self) {
        let mut all = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.1);
            }
        }
    }
}

async fn accept_clients(
    listener: TcpListener,
    shared: &Arc<Shared>,
    tls: Option<Arc<Tls>>,
    connections: &GracefulShutdown,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let addresses = Arc::new(Addresses::default());
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
        let (socket, from) = accept(&listener).await;
        let Some(of_address) = addresses.enter(from) else { continue };
        let (shared, watcher) = (Arc::clone(shared), connections.watcher());
        let tls = tls.as_ref().map(|tls| tls.acceptor());
        tokio::spawn(async move {
            let _counted = shared.metrics.connected("http");
            let answer = move |request| http::answer(Arc::clone(&shared), request);
            match tls {
                None => serve(TokioIo::new(socket), watcher, answer).await,
                Some(tls) => {
                    if let Ok(Ok(socket)) = timeout(HANDSHAKE, tls.accept(socket)).await {
                        serve(TokioIo::new(socket), watcher, answer).await;
                    }
                }
            }
            drop((place, of_address));
        });
    }
}

async fn accept_operators(
    listener: TcpListener,
    shared: &Arc<Shared>,
    connections: &GracefulShutdown,
) {
    loop {
        let (socket, _) = accept(&listener).await;
        let (shared, watcher) = (Arc::clone(shared), connections.watcher());
        let answer = move |request| admin::answer(Arc::clone(&shared), request);
        tokio::spawn(serve(TokioIo::new(socket), watcher, answer));
    }
}

/// Serves one connection to its end.
async fn serve<S, A, F>(socket: S, watcher: Watcher, answer: A)
where
    S: Read + Write + Unpin + Send + 'static,
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    let http1 = &mut builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(HEADER_BYTES);
    let http2 = &mut builder.http2();
    http2.timer(TokioTimer::new()).max_header_list_size(HEADER_BYTES as u32);
    http2.keep_alive_interval(IDLE);
    let service = service_fn(answer);
    let connection = builder.serve_connection_with_upgrades(socket, service).into_owned();
    // What a client breaks off is its own affair.
    let _ = watcher.watch(connection).await;
}

async fn upkeep(shared: Arc<Shared>, tls: Option<Arc<Tls>>) {
    let mut ticks = tokio::time::interval(UPKEEP);
    loop {
        ticks.tick().await;
        shared.streams.end_expired();
        shared.databases.close_idle(UNUSED);
        shared.authenticator.reload();
        if let Some(tls) = &tls {
            tls.reload();
        }
    }
}
