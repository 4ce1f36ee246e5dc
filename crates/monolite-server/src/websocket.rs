//! Owns a connection by WebSocket: many streams at once on one socket.
//!
//! # Algorithm
//! One task reads messages and one writes them. Each stream is a task with its requests in order,
//! so that streams do not wait for each other. Texts that a client stores belong to the
//! connection; they are put in place of their numbers when a request is read.
//!
//! # Invariants
//! - No request is read while [`REQUESTS`] are under way: a client that does not read its answers
//!   is not read either.
//! - A connection that breaks the protocol is closed; an error of a request is its answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use hyper::upgrade::Upgraded;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};

use crate::Shared;
use crate::answers::{Body, Failure};
use crate::auth::Principal;
use crate::hrana::{
    Batch, ClientMessage, CursorEntry, Encoding, ProtocolError, ServerMessage, SocketRequest,
    SocketResponse, StreamRequest, StreamResponse,
};
use crate::life::{Phase, draining};
use crate::memory::{Memory, Metered, SMALL, Taken, Unfinished, keep_only};
use crate::places::Place;
use crate::replicas::TOKEN;
use crate::stream::cursor::Entries;
use crate::stream::{ANSWER_BYTES, Answer, Stored, Stream};

/// Requests of a connection that are under way at once.
const REQUESTS: usize = 1_024;

/// Streams of a connection; JavaScript opens one for each transaction.
const STREAMS: usize = 4_096;

/// Memory of a connection for small requests and answers.
const SMALL_BYTES: usize = 4 << 20;

/// Cursors that are open at once on a stream.
const CURSORS: usize = 16;

/// Largest message; the Go client reads no more.
const MESSAGE_BYTES: usize = 16 << 20;

/// What a ping, or the answer to one, has beside its payload: header and mask.
const CONTROL_BYTES: usize = 6;

/// How often the other side is asked whether it is there.
const PING: Duration = Duration::from_secs(20);

/// How long the first message, and an answer to a ping, may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a connection that is ended is read to its end: the system resets one with unread bytes,
/// and the client, which sends requests before it is let in, might not see why.
const LINGER: Duration = Duration::from_secs(1);

/// Whether a request asks for a WebSocket.
pub(crate) fn is_asked_for(headers: &HeaderMap) -> bool {
    let value = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

/// Answers the request for a WebSocket, and serves it behind the answer.
pub(crate) fn upgrade(
    shared: &Arc<Shared>,
    request: &mut Request<Incoming>,
    database: Option<String>,
) -> Result<Response<Body>, Failure> {
    let key = request.headers().get(SEC_WEBSOCKET_KEY);
    let key = key.ok_or_else(|| {
        ProtocolError::new("WEBSOCKET_HANDSHAKE_INVALID", "the header Sec-WebSocket-Key is missing")
    })?;
    if request.headers().contains_key(TOKEN) {
        // A client must not count on what is not waited for.
        let message = "a WebSocket takes no Monolite-Token; connect by HTTP";
        return Err(ProtocolError::new("TOKEN_INVALID", message).into());
    }
    let accept = derive_accept_key(key.as_bytes());
    let (protocol, encoding) = protocol(request.headers())?;
    let place = request.extensions_mut().remove::<Place>();
    let upgraded = hyper::upgrade::on(request);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES))
            .max_frame_size(Some(MESSAGE_BYTES));
        let unfinished = Unfinished::default();
        let socket = Metered(TokioIo::new(upgraded), unfinished.clone());
        let socket = WebSocketStream::from_raw_socket(socket, Role::Server, Some(config)).await;
        serve(shared, socket, unfinished, database, encoding).await;
        drop(place);
    });
    let mut response = Response::new(Body::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let accept = HeaderValue::from_str(&accept).expect("base64 is ASCII");
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(name) = protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    Ok(response)
}

/// The subprotocols, the best first.
const PROTOCOLS: [(&str, Encoding); 4] = [
    ("hrana3-protobuf", Encoding::Protobuf),
    ("hrana3", Encoding::Json),
    ("hrana2", Encoding::Json),
    ("hrana1", Encoding::Json),
];

/// The best subprotocol of those that the client speaks, and its encoding. A client that names none
/// speaks version 1.
fn protocol(headers: &HeaderMap) -> Result<(Option<&'static str>, Encoding), ProtocolError> {
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return Ok((None, Encoding::Json));
    }
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let theirs: Vec<&str> = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    let is_asked_for = |name: &str| theirs.iter().any(|asked| asked.eq_ignore_ascii_case(name));
    let best = PROTOCOLS.into_iter().find(|(name, _)| is_asked_for(name));
    best.map(|(name, encoding)| (Some(name), encoding)).ok_or_else(|| {
        let message = "none of these subprotocols: hrana3-protobuf, hrana3, hrana2, hrana1";
        ProtocolError::new("WEBSOCKET_HANDSHAKE_INVALID", message)
    })
}

type Socket = WebSocketStream<Metered<TokioIo<Upgraded>>>;

async fn serve(
    shared: Arc<Shared>,
    socket: Socket,
    unfinished: Unfinished,
    database: Option<String>,
    encoding: Encoding,
) {
    let (sink, mut source) = socket.split();
    let (say, said) = mpsc::unbounded_channel();
    let is_pinged = Arc::new(AtomicBool::new(true));
    let writer = tokio::spawn(write(sink, said, Arc::clone(&is_pinged)));
    let under_way = Arc::new(Semaphore::new(REQUESTS));
    let (streams, stored) = (HashMap::new(), Stored::new(&shared.kept));
    let principal = None;
    let mut connection = Connection {
        shared,
        database,
        encoding,
        principal,
        streams,
        cursors: HashMap::new(),
        stored,
        under_way,
        unfinished: unfinished.clone(),
        small: Memory::of(SMALL_BYTES),
        open: Arc::default(),
        tasks: JoinSet::new(),
        token: None,
        say,
    };
    let counted = connection.shared.metrics.connected("websocket");
    let farewell = connection.read(&mut source, &is_pinged).await;
    // All was answered, or is broken off.
    let is_away = farewell.as_ref().is_some_and(|farewell| farewell.code == CloseCode::Away);
    // Its streams end with it, and with them their transactions.
    if let Some(farewell) = farewell {
        let _ = connection.say.send((Message::Close(Some(farewell)), None));
    }
    drop(connection);
    let _ = tokio::time::timeout(if is_away { LINGER } else { PATIENCE }, writer).await;
    let unread = async {
        while let Some(Ok(_)) = source.next().await {
            unfinished.end();
        }
    };
    let _ = tokio::time::timeout(LINGER, unread).await;
    drop(counted);
}

/// What a request takes: a place among those under way until its answer is sent, and memory.
type UnderWay = (OwnedSemaphorePermit, Vec<Taken>);

/// A message, with the place of its request, and its own memory.
type Said = (Message, Option<(OwnedSemaphorePermit, Kept)>);

/// The memory of a message.
enum Kept {
    Nothing,
    Taken {
        #[expect(dead_code, reason = "it is held")]
        taken: Taken,
    },
    /// What a large answer takes, and its request took.
    Answer {
        #[expect(dead_code, reason = "it is held")]
        answer: Answer,
    },
}

type Speaker = mpsc::UnboundedSender<Said>;

/// Sends what is said, until the last speaker is gone, and says when a ping was sent. A client that
/// takes nothing is given up below ([`crate::memory::Patient`]).
async fn write(
    mut sink: SplitSink<Socket, Message>,
    mut said: mpsc::UnboundedReceiver<Said>,
    is_pinged: Arc<AtomicBool>,
) {
    while let Some((message, _taken)) = said.recv().await {
        let is_ping = message.is_ping();
        if sink.send(message).await.is_err() {
            break;
        }
        if is_ping {
            is_pinged.store(true, Ordering::Relaxed);
        }
    }
    let _ = sink.close().await;
}

struct Connection {
    shared: Arc<Shared>,
    database: Option<String>,
    encoding: Encoding,
    /// Who it is, once it has said hello.
    principal: Option<Principal>,
    streams: HashMap<i32, Requests>,
    /// The stream of each open cursor.
    cursors: HashMap<i32, i32>,
    stored: Stored,
    under_way: Arc<Semaphore>,
    /// The message that comes.
    unfinished: Unfinished,
    /// For what is small: this connection's own, so that it waits for itself alone.
    small: Memory,
    /// Each of its streams that is in a transaction has a clone.
    open: Arc<()>,
    /// The tasks of the streams, which end with the connection: their reads are in the way of
    /// others.
    tasks: JoinSet<()>,
    /// What hello has shown, to be looked at again: it may be taken back.
    token: Option<String>,
    say: Speaker,
}

/// The requests of a stream, which its task runs in order.
type Requests = mpsc::UnboundedSender<(i32, Ask, UnderWay)>;

/// What the task of a stream is asked to do.
enum Ask {
    Open,
    Run(StreamRequest),
    OpenCursor(i32, Batch),
    FetchCursor(i32, u32),
    CloseCursor(i32),
    Close,
}

fn breach(code: CloseCode, reason: &str) -> CloseFrame {
    CloseFrame { code, reason: reason.to_owned().into() }
}

fn away() -> CloseFrame {
    breach(CloseCode::Away, "the server stops")
}

impl Connection {
    /// Reads messages until the connection ends; says why, if it is this side that ends it.
    async fn read(
        &mut self,
        source: &mut SplitStream<Socket>,
        is_pinged: &AtomicBool,
    ) -> Option<CloseFrame> {
        let mut pings = tokio::time::interval(PING);
        let began = tokio::time::Instant::now();
        let shared = Arc::clone(&self.shared);
        let mut phases = shared.life.phases();
        let mut heard = began;
        // Whether it was in a transaction with no request under way: only a request changes that.
        let mut stays = false;
        loop {
            let leaves = *phases.borrow() != Phase::Serving;
            let message = tokio::select! {
                biased;
                () = self.shared.life.is_cut() => return Some(away()),
                is_at_rest = self.is_at_rest(), if leaves && !stays => {
                    if is_at_rest {
                        return Some(away());
                    }
                    stays = true;
                    continue;
                }
                _ = phases.changed() => continue,
                message = source.next() => message,
                _ = pings.tick() => {
                    if let Some(farewell) = self.overstays(began) {
                        return Some(farewell);
                    }
                    if !is_pinged.swap(false, Ordering::Relaxed) {
                        // It waits behind a message that the client still takes.
                        heard = tokio::time::Instant::now();
                    } else if heard.elapsed() > PATIENCE {
                        return None;
                    } else {
                        let _ = self.say.send((Message::Ping(Default::default()), None));
                    }
                    continue;
                }
            };
            heard = tokio::time::Instant::now();
            stays = false;
            let bytes: Bytes = match message? {
                Ok(Message::Text(text)) if self.encoding == Encoding::Json => text.into(),
                Ok(Message::Binary(bytes)) if self.encoding == Encoding::Protobuf => bytes,
                Ok(Message::Text(_) | Message::Binary(_)) => {
                    let reason = "JSON is text, and Protobuf is binary";
                    return Some(breach(CloseCode::Unsupported, reason));
                }
                Ok(Message::Ping(payload) | Message::Pong(payload)) => {
                    // It may come within a message.
                    self.unfinished.leave_out(CONTROL_BYTES + payload.len());
                    continue;
                }
                Ok(Message::Frame(_)) => continue,
                Ok(Message::Close(_)) => return None,
                Err(tungstenite::Error::Capacity(_)) => {
                    return Some(breach(CloseCode::Size, "a message has 16 MiB at most"));
                }
                Err(_) => return None,
            };
            self.unfinished.end();
            // It may wait for the client to read its answers.
            let taken = shared.life.unless_cut(self.take(bytes)).await;
            if let Err(farewell) = taken.unwrap_or_else(|_| Err(away())) {
                return Some(farewell);
            }
        }
    }

    /// Why a client that came at `began` may stay no longer.
    fn overstays(&self, began: tokio::time::Instant) -> Option<CloseFrame> {
        if self.principal.is_none() && began.elapsed() > PATIENCE {
            return Some(breach(CloseCode::Policy, "say hello first"));
        }
        (!self.is_still_let_in())
            .then(|| breach(CloseCode::Policy, "the token is not good any more"))
    }

    async fn take(&mut self, bytes: Bytes) -> Result<(), CloseFrame> {
        let taken = match bytes.len() {
            small if small <= SMALL => Ok(self.small.take_for_answer(small).await),
            // The memory of all is not for strangers.
            _ if self.principal.is_none() => {
                return Err(breach(CloseCode::Policy, "say hello first"));
            }
            large => self.shared.memory.take(large).await,
        };
        let no_memory = || breach(CloseCode::Again, "no memory is left; try again later");
        let mut taken = vec![taken.map_err(|_| no_memory())?];
        let message = ClientMessage::decode(&bytes, self.encoding)
            .map_err(|error| breach(CloseCode::Invalid, &error.message))?;
        let permit = Arc::clone(&self.under_way).acquire_owned().await;
        let permit = permit.expect("it is never closed");
        match message {
            ClientMessage::Hello { jwt } => self.hello(jwt.as_deref(), permit),
            ClientMessage::Request { request_id, request } => {
                if self.principal.is_none() {
                    return Err(breach(CloseCode::Policy, "say hello first"));
                }
                let weight = request.weight();
                taken.push(match weight {
                    0..=SMALL => self.small.take_for_answer(weight).await,
                    // It does not wait: it is in memory already.
                    _ => self.shared.memory.take_now(weight).ok_or_else(no_memory)?,
                });
                if let Some((result, permit)) = self.request(request_id, request, (permit, taken)) {
                    self.end(request_id, result, permit).await;
                }
                Ok(())
            }
        }
    }

    /// Whether none of its streams is in a transaction, once no request is under way.
    async fn is_at_rest(&self) -> bool {
        let _none = self.under_way.acquire_many(REQUESTS as u32).await;
        Arc::strong_count(&self.open) == 1
    }

    fn is_still_let_in(&self) -> bool {
        let again = || self.shared.authenticate(self.token.as_deref());
        self.principal.is_none() || again().is_ok()
    }

    fn hello(
        &mut self,
        token: Option<&str>,
        place: OwnedSemaphorePermit,
    ) -> Result<(), CloseFrame> {
        match self.shared.authenticate(token) {
            Ok(principal) => {
                self.unfinished.let_in(&self.shared.memory);
                self.principal = Some(principal);
                self.token = token.map(str::to_owned);
                self.answer(&ServerMessage::HelloOk, place);
                Ok(())
            }
            Err(error) => {
                self.answer(&ServerMessage::HelloError(error), place);
                Err(breach(CloseCode::Policy, "the token was refused"))
            }
        }
    }

    fn answer(&self, message: &ServerMessage, place: OwnedSemaphorePermit) {
        // It is small. Where the writer is gone, so is the client.
        let message = frame(message.encode(self.encoding).into(), self.encoding);
        let _ = self.say.send((message, Some((place, Kept::Nothing))));
    }

    /// Answers what needs no stream. It takes its place until the answer is sent, as any other.
    async fn end(
        &self,
        request_id: i32,
        result: Result<SocketResponse, ProtocolError>,
        (place, taken): UnderWay,
    ) {
        let bytes = ended(request_id, result).encode(self.encoding);
        // Before more is taken: those who have some must not wait for each other.
        drop(taken);
        let taken = take(&self.shared, &self.small, bytes.len()).await;
        let message = frame(bytes.into(), self.encoding);
        let _ = self.say.send((message, Some((place, Kept::Taken { taken }))));
    }

    /// Hands `request` to its stream, or gives its result.
    fn request(
        &mut self,
        request_id: i32,
        request: SocketRequest,
        permit: UnderWay,
    ) -> Option<(Result<SocketResponse, ProtocolError>, UnderWay)> {
        let (stream_id, ask) = match request {
            SocketRequest::OpenStream { stream_id } => {
                if let Err(error) = self.open_stream(stream_id) {
                    return Some((Err(error), permit));
                }
                (stream_id, Ask::Open)
            }
            SocketRequest::CloseStream { stream_id } => (stream_id, Ask::Close),
            SocketRequest::Stream { stream_id, mut request } => {
                if let Err(error) = self.stored.resolve(&mut request) {
                    return Some((Err(error), permit));
                }
                (stream_id, Ask::Run(request))
            }
            SocketRequest::StoreSql { sql_id, sql } => {
                let stored = self.stored.store(sql_id, sql);
                let response = SocketResponse::Stream(StreamResponse::StoreSql);
                return Some((stored.map(|()| response), permit));
            }
            SocketRequest::CloseSql { sql_id } => {
                self.stored.close(sql_id);
                let response = SocketResponse::Stream(StreamResponse::CloseSql);
                return Some((Ok(response), permit));
            }
            SocketRequest::OpenCursor { stream_id, cursor_id, batch } => {
                let mut request = StreamRequest::Batch(batch);
                if let Err(error) = self.stored.resolve(&mut request) {
                    return Some((Err(error), permit));
                }
                let StreamRequest::Batch(batch) = request else { unreachable!("it was one") };
                if let Err(error) = self.note_cursor(cursor_id, stream_id) {
                    return Some((Err(error), permit));
                }
                (stream_id, Ask::OpenCursor(cursor_id, batch))
            }
            SocketRequest::FetchCursor { cursor_id, max_count } => {
                let Some(stream_id) = self.cursors.get(&cursor_id) else {
                    return Some((Err(no_such("cursor", cursor_id)), permit));
                };
                (*stream_id, Ask::FetchCursor(cursor_id, max_count))
            }
            SocketRequest::CloseCursor { cursor_id } => {
                let Some(stream_id) = self.cursors.remove(&cursor_id) else {
                    return Some((Err(no_such("cursor", cursor_id)), permit));
                };
                (stream_id, Ask::CloseCursor(cursor_id))
            }
            SocketRequest::Invalid(error) => return Some((Err(error), permit)),
        };
        let closes = matches!(ask, Ask::Close);
        let unsent = match self.streams.get(&stream_id) {
            Some(requests) => {
                let sent = requests.send((request_id, ask, permit));
                sent.err().map(|unsent| unsent.0.2)
            }
            None => Some(permit),
        };
        if closes {
            self.streams.remove(&stream_id);
            self.cursors.retain(|_, of| *of != stream_id);
        }
        unsent.map(|permit| (Err(no_such("stream", stream_id)), permit))
    }

    /// A cursor belongs to a stream that is there.
    fn note_cursor(&mut self, cursor_id: i32, stream_id: i32) -> Result<(), ProtocolError> {
        if self.cursors.len() >= STREAMS * CURSORS {
            let message = "too many cursors are open on this connection; close some";
            return Err(ProtocolError::new("OVERLOADED", message));
        }
        if self.streams.contains_key(&stream_id) {
            self.cursors.insert(cursor_id, stream_id);
        }
        Ok(())
    }

    fn open_stream(&mut self, stream_id: i32) -> Result<(), ProtocolError> {
        if !self.is_still_let_in() {
            let message = "the token is not good any more";
            return Err(ProtocolError::new("AUTH_JWT_INVALID", message));
        }
        if self.streams.contains_key(&stream_id) {
            let message = format!("stream {stream_id} is open already");
            return Err(ProtocolError::new("STREAM_EXISTS", message));
        }
        self.streams.retain(|_, requests| !requests.is_closed());
        if self.streams.len() >= STREAMS {
            let message = format!("{STREAMS} streams are open on this connection; close some");
            return Err(ProtocolError::new("OVERLOADED", message));
        }
        let (ask, asked) = mpsc::unbounded_channel();
        self.streams.insert(stream_id, ask);
        let principal = self.principal.clone().expect("it has said hello");
        let stream = StreamTask {
            shared: Arc::clone(&self.shared),
            database: self.database.clone(),
            principal,
            encoding: self.encoding,
            say: self.say.clone(),
            cursors: HashMap::new(),
            small: self.small.clone(),
            open: Arc::downgrade(&self.open),
        };
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(stream.run(asked));
        Ok(())
    }
}

/// Memory for an answer of `bytes`.
async fn take(shared: &Shared, small: &Memory, bytes: usize) -> Taken {
    let memory = if bytes <= SMALL { small } else { &shared.memory };
    memory.take_for_answer(bytes).await
}

fn no_such(what: &str, number: i32) -> ProtocolError {
    let code = format!("{}_NOT_FOUND", what.to_ascii_uppercase());
    ProtocolError::new(&code, format!("no {what} is open with the number {number}"))
}

fn ended(request_id: i32, result: Result<SocketResponse, ProtocolError>) -> ServerMessage {
    match result {
        Ok(response) => ServerMessage::ResponseOk { request_id, response },
        Err(error) => ServerMessage::ResponseError { request_id, error },
    }
}

fn frame(bytes: Bytes, encoding: Encoding) -> Message {
    match encoding {
        Encoding::Json => {
            let text = Utf8Bytes::try_from(bytes).expect("JSON is UTF-8");
            Message::Text(text)
        }
        Encoding::Protobuf => Message::Binary(bytes),
    }
}

/// A stream of a connection.
struct StreamTask {
    shared: Arc<Shared>,
    database: Option<String>,
    principal: Principal,
    encoding: Encoding,
    say: Speaker,
    small: Memory,
    open: Weak<()>,
    /// What is left of each open cursor.
    cursors: HashMap<i32, (std::vec::IntoIter<CursorEntry>, Taken)>,
}

impl StreamTask {
    /// Runs the requests in order, until the connection has no more.
    async fn run(mut self, mut asked: mpsc::UnboundedReceiver<(i32, Ask, UnderWay)>) {
        // It keeps the database open.
        let mut opened = Err(no_such("stream", 0));
        let mut _in_transaction = None;
        while let Some((request_id, ask, (place, taken))) = asked.recv().await {
            let answer = Answer::to(taken, &self.shared.memory);
            // Its rows were gathered before, and wait in a budget of their own.
            let is_fetched = matches!(ask, Ask::FetchCursor(..));
            let result = match ask {
                Ask::Open => {
                    opened = self.open().await;
                    let failed = opened.as_ref().err().cloned();
                    failed.map_or(Ok(SocketResponse::OpenStream), Err)
                }
                Ask::Close => {
                    _in_transaction = None;
                    Ok(SocketResponse::CloseStream)
                }
                ask => match &mut opened {
                    Ok((stream, _)) => {
                        let result = self.answer(stream, ask, &answer).await;
                        let is_open = !stream.is_autocommit();
                        _in_transaction = is_open.then(|| self.open.upgrade()).flatten();
                        result
                    }
                    Err(error) => Err(error.clone()),
                },
            };
            let bytes = ended(request_id, result).encode(self.encoding);
            let kept = if bytes.len() > SMALL && !is_fetched {
                Kept::Answer { answer }
            } else {
                // Those who have some must not wait for each other.
                drop(answer);
                let taken = take(&self.shared, &self.small, bytes.len()).await;
                Kept::Taken { taken }
            };
            let message = frame(bytes.into(), self.encoding);
            let _ = self.say.send((message, Some((place, kept))));
        }
    }

    async fn open(&self) -> Result<(Stream, crate::databases::InUse), ProtocolError> {
        let name = self.database.as_deref();
        let right =
            self.principal.right(name.unwrap_or(crate::databases::ONLY)).ok_or_else(|| {
                ProtocolError::new("SQLITE_AUTH", "the token gives no right to this database")
            })?;
        let database = self.shared.database(name, Phase::HandsOver).await?;
        Ok((Stream::new(&database, &self.principal, right), database))
    }

    async fn answer(
        &mut self,
        stream: &mut Stream,
        ask: Ask,
        answer: &Answer,
    ) -> Result<SocketResponse, ProtocolError> {
        if stream.is_autocommit() && self.shared.life.phase() != Phase::Serving {
            return Err(draining());
        }
        match ask {
            Ask::Run(request) => {
                let stored = &mut Stored::default();
                let response = stream.run(request, stored, self.encoding, answer).await;
                response.map(SocketResponse::Stream)
            }
            Ask::OpenCursor(cursor_id, batch) => {
                if self.cursors.len() >= CURSORS {
                    let message = format!("{CURSORS} cursors are open on the stream; close some");
                    return Err(ProtocolError::new("OVERLOADED", message));
                }
                let Some(mut taken) = self.shared.kept.take_now(ANSWER_BYTES) else {
                    let message = "the cursors of others take all memory; try again later";
                    return Err(ProtocolError::new("OVERLOADED", message));
                };
                let (encoding, memory) = (self.encoding, &self.shared.memory);
                let (entries, bytes) =
                    whole_cursor(stream, batch, encoding, answer, memory).await?;
                keep_only(&mut taken, bytes);
                self.cursors.insert(cursor_id, (entries.into_iter(), taken));
                Ok(SocketResponse::OpenCursor)
            }
            Ask::FetchCursor(cursor_id, max_count) => {
                let left = self.cursors.get_mut(&cursor_id);
                let (left, _) = left.ok_or_else(|| no_such("cursor", cursor_id))?;
                let entries = left.take(max_count as usize).collect();
                Ok(SocketResponse::FetchCursor { entries, done: left.len() == 0 })
            }
            Ask::CloseCursor(cursor_id) => {
                self.cursors.remove(&cursor_id);
                Ok(SocketResponse::CloseCursor)
            }
            Ask::Open | Ask::Close => unreachable!("the task answers these"),
        }
    }
}

/// All entries of a cursor, and the bytes of its rows. They are fetched piece by piece, between
/// other requests of the stream, so that no snapshot may wait for the client.
async fn whole_cursor(
    stream: &mut Stream,
    batch: Batch,
    encoding: Encoding,
    answer: &Answer,
    memory: &Memory,
) -> Result<(Vec<CursorEntry>, usize), ProtocolError> {
    let (send, mut sent) = Entries::new(memory);
    let stored = Stored::default();
    let runs = async {
        stream.cursor(batch, &stored, encoding, answer, &send).await;
        drop(send);
    };
    let takes = async move {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while let Some((entry, ..)) = sent.recv().await {
            if let CursorEntry::Row(row) = &entry {
                bytes += row.bytes();
            }
            if bytes > ANSWER_BYTES {
                let message =
                    format!("the rows have over {ANSWER_BYTES} bytes; select less at once");
                return Err(ProtocolError::new("RESPONSE_TOO_LARGE", message));
            }
            entries.push(entry);
        }
        Ok((entries, bytes))
    };
    tokio::join!(runs, takes).1
}
