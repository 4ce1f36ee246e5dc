//! Owns the life of a server: its listeners, its connections, its end.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::answers::Body;
use crate::auth::Authenticator;
use crate::config::Config;
use crate::databases::Databases;
use crate::files::ConfigError;
use crate::keys::Keys;
use crate::life::{DRAIN, Life, Phase};
use crate::memory::{End, Memory, Patient};
use crate::metrics::Metrics;
use crate::places::{Addresses, Place};
use crate::replicas::UNCLEAR;
use crate::roles::Told;
use crate::streams::Streams;
use crate::tls::Tls;
use crate::{Shared, admin, handover, http, log, turns};

/// How long a connection may wait for a request, and a client take for its head. Heads that never
/// end hold no place for longer.
const IDLE: Duration = Duration::from_secs(20);

/// Largest head of a request.
const HEADER_BYTES: usize = 16 << 10;

/// Requests at once on a connection of HTTP/2: the least that its standard recommends.
const REQUESTS: u32 = 100;

/// How long a client may take for its part of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Most connections at once.
const CONNECTIONS: usize = 4_096;

/// Memory of all requests and answers.
const REQUEST_BYTES: usize = 256 << 20;

/// Bytes of small requests.
const SMALL_BYTES: usize = 64 << 20;

/// Memory of all texts that clients have stored, and of cursors over WebSocket.
const KEPT_BYTES: usize = 128 << 20;

/// How long a process that has handed over waits for its clients' connections to end: those without
/// a request end after [`IDLE`].
const RELAY: Duration = Duration::from_secs(60);

/// How long an unused database stays open.
const UNUSED: Duration = Duration::from_secs(300);

/// How often what is unused, or has changed, is looked for.
const UPKEEP: Duration = Duration::from_secs(1);

/// How often, and at what intervals, a file is opened again while other servers may take over.
const TURN_LOOKS: u32 = 5;
const TURN_LOOK: Duration = Duration::from_secs(1);

/// A server, before it serves.
pub struct Server {
    shared: Arc<Shared>,
    tls: Option<Arc<Tls>>,
    config: Config,
}

/// Where a server listens.
#[derive(Debug)]
pub struct Listening {
    clients: TcpListener,
    operators: Option<TcpListener>,
    /// By which the next process takes over.
    next: Option<UnixListener>,
    /// The process from which this one took over, which relays what comes to it.
    before: Option<UnixStream>,
}

impl Listening {
    /// For clients on `clients`, and for operators on `operators`.
    pub fn on(clients: TcpListener, operators: Option<TcpListener>) -> Listening {
        Listening { clients, operators, next: None, before: None }
    }

    /// The address for clients.
    ///
    /// # Errors
    /// Those of the system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.clients.local_addr()
    }

    /// The address for operators, if there is one.
    ///
    /// # Errors
    /// Those of the system.
    pub fn admin_address(&self) -> io::Result<Option<SocketAddr>> {
        self.operators.as_ref().map(TcpListener::local_addr).transpose()
    }
}

impl Server {
    /// One as `config` says.
    ///
    /// # Errors
    /// As [`Config::check`]; when a key, a token or a certificate cannot be read.
    pub fn new(config: &Config) -> Result<Server, ConfigError> {
        let databases = Databases::new(config.check()?, config.archive.clone());
        let databases = databases.following(config.follow.clone());
        let authenticator = match &config.auth {
            Some(auth) => Authenticator::load(auth)?,
            None => Authenticator::Open,
        };
        let tls = config.tls.as_ref().map(Tls::load).transpose()?.map(Arc::new);
        let (streams, metrics) = (Arc::new(Streams::new()), Metrics::new());
        let [memory, small, kept] = [REQUEST_BYTES, SMALL_BYTES, KEPT_BYTES].map(Memory::of);
        let (keys, life) = (Keys::default(), Life::new());
        let shared =
            Shared { databases, streams, keys, authenticator, metrics, memory, small, kept, life };
        Ok(Server { shared: Arc::new(shared), tls, config: config.clone() })
    }

    /// Listens where the configuration says, with the sockets of the service manager, or of a
    /// process that serves by the same [`Config::handover`]: that one hands over, which takes up to
    /// ten seconds. Then the database is opened, if there is only one.
    ///
    /// # Errors
    /// When an address is in use, or the database cannot be opened. A process that was to hand over
    /// serves on.
    pub async fn listen(&self) -> io::Result<Listening> {
        let Config { listen, admin, handover: path, .. } = &self.config;
        let mut inherited = handover::activated()?;
        let ask = async || match path {
            Some(path) => handover::ask(path).await,
            None => Ok(None),
        };
        let (mut before, theirs) = ask().await?.unzip();
        inherited.extend(theirs.into_iter().flatten());
        let of = |key: &'static str, address: &SocketAddr| {
            let address = *address;
            move |error: io::Error| {
                io::Error::new(error.kind(), format!("{key} = {address}: {error}"))
            }
        };
        let clients = handover::listen(&mut inherited, *listen).await;
        let clients = clients.map_err(of("listen", listen))?;
        let operators = match admin {
            Some(admin) => {
                let operators = handover::listen(&mut inherited, *admin).await;
                Some(operators.map_err(of("admin", admin))?)
            }
            None => None,
        };
        if let (None, Some(other)) = (&before, inherited.first()) {
            let address = other.local_addr()?;
            let message = format!("the service manager listens on {address}; set it as `listen`");
            return Err(io::Error::other(message));
        }
        while let Some(serving) = &mut before {
            if handover::wait_for_files(serving).await? {
                break;
            }
            // Unless it has ended, it is asked again.
            before = ask().await?.map(|(serving, _)| serving);
        }
        let opens = async || {
            let entered = self.shared.life.enter(Phase::Stops).await?;
            self.shared.databases.open_only(entered).await
        };
        let mut opened = opens().await;
        if self.config.archive.as_ref().is_some_and(|archive| archive.takeover) {
            // Another server may be taking over at this moment: then this file follows.
            for _ in 0..TURN_LOOKS {
                if opened.as_ref().err().is_none_or(|error| error.code == UNCLEAR) {
                    break;
                }
                sleep(TURN_LOOK).await;
                opened = opens().await;
            }
        }
        // Known to be taking over, it may do so for long: requests get 503 until this file follows.
        let opened =
            opened.or_else(|error| if error.code == UNCLEAR { Ok(()) } else { Err(error) });
        opened.map_err(|error| io::Error::other(error.message))?;
        let next = path.as_deref().map(handover::bind).transpose()?;
        if let Some(before) = &mut before {
            handover::take_over(before).await;
        }
        Ok(Listening { clients, operators, next, before })
    }

    /// Serves until `stop` is done, or another process has taken over and the connections to this
    /// one have ended.
    ///
    /// When `stop` is done, new work is refused with the status 503, requests under way and open
    /// transactions get five seconds, and the databases are closed.
    ///
    /// # Panics
    /// Outside of a runtime of tokio with I/O and time.
    pub async fn serve(self, listening: Listening, stop: impl Future<Output = ()>) {
        let Server { shared, tls, config } = self;
        let Listening { clients, operators, next, before } = listening;
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut tasks = JoinSet::new();
        tasks.spawn(upkeep(Arc::clone(&shared), tls.clone()));
        tasks.spawn({
            let shared = Arc::clone(&shared);
            async move { shared.databases.catch_up(&shared.life).await }
        });
        if let Some(archive) = config.archive.filter(|archive| archive.takeover) {
            tasks.spawn(turns::take(Arc::clone(&shared), archive));
        }
        let all = [Some(&clients), operators.as_ref()].into_iter().flatten();
        let sockets: io::Result<Vec<_>> = all.map(|it| it.as_fd().try_clone_to_owned()).collect();
        tasks.spawn(accept_clients(clients, Arc::clone(&shared), tls, Arc::clone(&places)));
        if let Some(operators) = operators {
            tasks.spawn(accept_operators(operators, Arc::clone(&shared)));
        }
        if let Some(before) = before {
            let (shared, place) = (Arc::clone(&shared), place(&places).await);
            tasks.spawn(async move {
                handover::serve_relayed(shared, before).await;
                drop(place);
            });
        }
        let moved = async {
            let (next, sockets) = match (&next, sockets) {
                (Some(next), Ok(sockets)) => (next, sockets),
                (next, sockets) => {
                    if let (Some(_), Err(error)) = (next, sockets) {
                        log::error(&format!("no hand-over will be made: {error}"));
                    }
                    return std::future::pending().await;
                }
            };
            handover::hand_over(&shared, next, sockets).await;
            tokio::select! {
                _ = timeout(RELAY, places.acquire_many(CONNECTIONS as u32)) => {}
                () = handover::send_on(next) => {}
            }
        };
        let mut moved = Box::pin(moved);
        let mut ended = None;
        tokio::select! {
            () = stop => {
                shared.life.set(Phase::Stops);
                // What waits for a hand-over is refused. The next process waits at the socket.
                drop(moved);
                ended = Some(shared.end_work().await);
            }
            () = &mut moved => {}
        }
        shared.life.set(Phase::Ends);
        let _ = timeout(DRAIN, places.acquire_many(CONNECTIONS as u32)).await;
        drop(ended);
    }
}

async fn place(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(places).acquire_owned().await.expect("it is never closed")
}

/// The next connection. Those that come while another process takes over wait in the backlog, for
/// that one. `None` when no more are to be accepted.
async fn accept(listener: &TcpListener, life: &Life) -> Option<(Patient<TcpStream>, IpAddr)> {
    let mut phases = life.phases();
    loop {
        let phase = phases.wait_for(|phase| *phase != Phase::HandsOver).await.map(|it| *it);
        if matches!(phase, Ok(Phase::Moved | Phase::Ends)) {
            return None;
        }
        let accepted = tokio::select! {
            biased;
            _ = phases.changed() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, from)) => {
                // An answer is one write; the next must not wait for its acknowledgement.
                let _ = socket.set_nodelay(true);
                return Some((Patient::new(socket), from.ip()));
            }
            Err(error) => {
                // No descriptors are left, perhaps: those of connections that end give some.
                log::error(&format!("a connection was not accepted: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn accept_clients(
    listener: TcpListener,
    shared: Arc<Shared>,
    tls: Option<Arc<Tls>>,
    places: Arc<Semaphore>,
) {
    let addresses = Arc::new(Addresses::default());
    loop {
        let place = place(&places).await;
        let Some((socket, from)) = accept(&listener, &shared.life).await else { return };
        let Some(of_address) = addresses.enter(from) else { continue };
        let (shared, place) = (Arc::clone(&shared), Place::new((place, of_address)));
        let tls = tls.as_ref().map(|tls| tls.acceptor());
        tokio::spawn(async move {
            let _counted = shared.metrics.connected("http");
            let of_all = Arc::clone(&shared);
            let answer = move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(Arc::clone(&place));
                http::answer(Arc::clone(&of_all), request)
            };
            match tls {
                None => serve(TokioIo::new(socket), &shared.life, Of::Client, answer).await,
                Some(tls) => {
                    if let Ok(Ok(socket)) = timeout(HANDSHAKE, tls.accept(socket)).await {
                        serve(TokioIo::new(socket), &shared.life, Of::Client, answer).await;
                    }
                }
            }
        });
    }
}

async fn accept_operators(listener: TcpListener, shared: Arc<Shared>) {
    while let Some((socket, _)) = accept(&listener, &shared.life).await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let answer = |request| admin::answer(Arc::clone(&shared), request);
            serve(TokioIo::new(socket), &shared.life, Of::Operator, answer).await;
        });
    }
}

/// Whose a connection is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Client,
    Operator,
}

/// Serves one connection to its end.
///
/// When another process has taken over, those of operators end, and those of HTTP/2, which can say
/// so. A client of HTTP/1 may be sending a request, and would not know what became of it: its
/// connection ends with the next answer.
async fn serve<S, A, F>(socket: S, life: &Life, of: Of, answer: A)
where
    S: Read + Write + Unpin + Send + 'static,
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    let http1 = &mut builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(HEADER_BYTES);
    let http2 = &mut builder.http2();
    http2.timer(TokioTimer::new()).max_header_list_size(HEADER_BYTES as u32);
    http2.keep_alive_interval(IDLE).max_concurrent_streams(REQUESTS);
    let (is_http2, asked) = (AtomicBool::new(false), Notify::new());
    let given_up = End::default();
    let service = service_fn(|mut request: Request<Incoming>| {
        is_http2.store(request.version() == Version::HTTP_2, Ordering::Relaxed);
        asked.notify_one();
        request.extensions_mut().insert(Arc::clone(&given_up));
        answer(request)
    });
    let mut phases = life.phases();
    let ends = phases.wait_for(|phase| match phase {
        Phase::Moved => of == Of::Operator || is_http2.load(Ordering::Relaxed),
        phase => *phase == Phase::Ends,
    });
    // The builder waits without a limit for what tells HTTP/1 from HTTP/2, and HTTP/2 for requests.
    let is_silent = async {
        let mut has_asked = false;
        while timeout(IDLE, asked.notified()).await.is_ok() {
            has_asked = true;
            if !is_http2.load(Ordering::Relaxed) {
                std::future::pending().await
            }
        }
        has_asked
    };
    let connection = builder.serve_connection_with_upgrades(socket, service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // What a client breaks off is its own affair.
        _ = connection.as_mut() => return,
        () = given_up.notified() => return,
        // What is under way in HTTP/2 is answered.
        has_asked = is_silent => if !has_asked { return },
        _ = ends => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = connection => {}
        () = given_up.notified() => {}
    }
}

async fn upkeep(shared: Arc<Shared>, tls: Option<Arc<Tls>>) {
    let (mut ticks, mut told) = (tokio::time::interval(UPKEEP), Told::default());
    loop {
        ticks.tick().await;
        shared.streams.end_expired();
        shared.databases.close_idle(UNUSED);
        if shared.databases.follow() || shared.databases.has_archives() {
            told.tell(shared.databases.open_now());
        }
        shared.authenticator.reload();
        if let Some(tls) = &tls {
            tls.reload();
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::client::conn::http2;
    use monolite::Options;
    use monolite_archive::{Archive, Takeover};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    use super::*;
    use crate::answers::with_type;
    use crate::archives::ArchiveConfig;
    use crate::memory::charged;

    /// Serves a connection in which each request takes so long, and says how long that lasts.
    fn served(socket: DuplexStream, takes: Duration) -> JoinHandle<Duration> {
        tokio::spawn(async move {
            let (life, began) = (Life::new(), Instant::now());
            let answer = move |_| async move {
                tokio::time::sleep(takes).await;
                Ok(Response::new(Body::default()))
            };
            let serves = serve(TokioIo::new(socket), &life, Of::Client, answer);
            let _ = timeout(IDLE * 10, serves).await;
            began.elapsed()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_of_http1_is_given_up_when_it_asks_no_more() {
        let (socket, mut other) = tokio::io::duplex(10_000);
        let lasts = served(socket, IDLE * 2);
        other.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("it fits");
        assert_eq!(lasts.await.expect("it ends"), IDLE * 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_of_http2_is_given_up_when_it_asks_no_more() {
        let (socket, other) = tokio::io::duplex(10_000);
        let lasts = served(socket, IDLE * 2);
        let made = http2::handshake(TokioExecutor::new(), TokioIo::new(other)).await;
        let (mut client, connection) = made.expect("it answers");
        tokio::spawn(connection);
        let empty = || Request::new(http_body_util::Empty::<hyper::body::Bytes>::new());
        let first = client.send_request(empty());
        tokio::time::sleep(IDLE / 2).await;
        let both = tokio::join!(first, client.clone().send_request(empty()));
        assert!(both.0.is_ok() && both.1.is_ok(), "what is under way is answered");
        // `client` could ask.
        assert_eq!(lasts.await.expect("it ends"), IDLE * 5 / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_may_become_either_version_is_given_up() {
        for said in ["", "PRI * HTTP/2"] {
            let (socket, mut other) = tokio::io::duplex(100);
            other.write_all(said.as_bytes()).await.expect("it fits");
            let lasts = served(socket, Duration::ZERO);
            assert_eq!(lasts.await.expect("it ends"), IDLE, "{said}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_of_http_2_that_leaves_its_answer_is_given_up() {
        let (socket, other) = tokio::io::duplex(10_000);
        let (life, began) = (Life::new(), Instant::now());
        let answer = |request: Request<Incoming>| async move {
            // More than the window of the client.
            let bytes = charged(vec![0; 10 << 20], (), request.extensions().get::<End>());
            Ok(with_type(hyper::StatusCode::OK, "text/plain", bytes))
        };
        let client = async {
            let made = http2::handshake(TokioExecutor::new(), TokioIo::new(other)).await;
            let (mut client, connection) = made.expect("it answers");
            tokio::spawn(connection);
            let empty = Request::new(http_body_util::Empty::<hyper::body::Bytes>::new());
            let _unread = client.send_request(empty).await.expect("it is answered");
            std::future::pending().await
        };
        tokio::select! {
            () = client => {}
            () = serve(TokioIo::new(socket), &life, Of::Client, answer) => {}
            () = tokio::time::sleep(Duration::from_secs(3_600)) => {}
        }
        assert_eq!(began.elapsed(), Duration::from_secs(30 * 21));
    }

    /// What `GET path` is answered at `address`.
    async fn get(address: SocketAddr, path: &str) -> String {
        let mut socket = TcpStream::connect(address).await.expect("it listens");
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        socket.write_all(head.as_bytes()).await.expect("it is read");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.expect("it is answered");
        answer
    }

    #[tokio::test]
    async fn a_server_says_that_another_one_is_taking_over_until_it_follows_that() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let url = at("archive").display().to_string();
        let archive = Archive::at(&url).expect("it is an address");
        let db = Options::new().archive(archive.clone()).open(at("one.db")).expect("it opens");
        db.read_archived(|_| Ok(())).wait().expect("it is archived");
        let other = archive.follow(Options::new(), at("two.db")).expect("it follows");
        let claimed = other.claim(Takeover::Now, &|| true).expect("it may").expect("it goes on");
        let _ = db.close();
        let archive = ArchiveConfig { takeover: true, ..ArchiveConfig::of_url(&url) };
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let (file, archive) = (Some(at("one.db")), Some(archive));
        let config = Config { file, archive, listen, ..Config::default() };
        let server = Server::new(&config).expect("it is right");
        let listening = server.listen().await.expect("it listens");
        let address = listening.address().expect("it has one");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let served = tokio::spawn(server.serve(listening, async { drop(stopped.await) }));
        for path in ["/health", "/primary", "/db/default/health"] {
            let answer = get(address, path).await;
            let has = |part: &str| answer.contains(part);
            assert!(answer.starts_with("HTTP/1.1 503 ") && has("retry-after: 1\r\n"), "{answer}");
            assert!(has("TAKEOVER_UNDER_WAY") && has("is taking over"), "{answer}");
        }
        other.promote(claimed).expect("it is the primary's");
        while !get(address, "/health").await.starts_with("HTTP/1.1 200 ") {
            sleep(Duration::from_millis(20)).await;
        }
        stop.send(()).expect("it runs");
        served.await.expect("it ends");
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_a_fork_holds_no_end_up() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("a.db"), "").expect("it is new");
        let config = Config { directory: Some(directory.path().to_owned()), ..Config::default() };
        let shared = Server::new(&config).expect("it is right").shared;
        let _fork = shared.databases.forked("a").await;
        let waits = shared.database(Some("a"), Phase::Stops);
        let ends = async { drop(timeout(2 * DRAIN, shared.end_work()).await.expect("it ends")) };
        let (waited, ()) = tokio::join!(waits, ends);
        assert_eq!(waited.err().expect("it was broken off").code, "BROKEN_OFF");
    }
}
