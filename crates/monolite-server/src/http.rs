//! Owns the endpoints of HTTP: which request runs what, and how an error is said.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderValue, ORIGIN};
use hyper::{Method, Request, Response, StatusCode};

use crate::Shared;
use crate::answers::{Body, Failure, failed, with_type};
use crate::auth::{Principal, Right};
use crate::databases::ONLY;
use crate::hrana::{
    Batch, CursorRequest, Encoding, PipelineRequest, PipelineResponse, ProtocolError, Stmt,
    StreamRequest, StreamResponse, encode_cursor_head,
};
use crate::life::{Phase, draining};
use crate::memory::{End, SMALL, Taken, charged, no_memory};
use crate::replicas::{self, TOKEN, not_open};
use crate::roles;
use crate::stream::cursor::Entries;
use crate::stream::keyed::{Key, Record};
use crate::stream::{Answer, Stored, Stream};
use crate::streams::{Held, NO_STATE};
use crate::websocket;

/// Largest body of a request.
const BODY_BYTES: usize = 16 << 20;

/// Entries of a cursor are sent in pieces of about this size.
const PIECE_BYTES: usize = 64 << 10;

/// How long a client may take to send it.
const BODY_TIME: Duration = Duration::from_secs(30);

/// The header with a key: the request commits once, however often it is sent.
const KEY: &str = "idempotency-key";

/// The header of an answer that was given before.
const REPLAYED: &str = "idempotent-replayed";

/// A request, with what was read of its body, and the memory of that.
struct Asked {
    request: Request<Incoming>,
    body: Vec<u8>,
    taken: Vec<Taken>,
}

/// Answers one request.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let began = Instant::now();
    let endpoint = endpoint(request.uri().path());
    let mut asked = Asked { request, body: Vec::new(), taken: Vec::new() };
    let answer = match route(&shared, &mut asked).await {
        Err(failure) if failure.1.code == "DRAINING" => relay(&shared, asked, failure).await,
        answer => answer,
    };
    let mut answer = answer.unwrap_or_else(failed);
    if shared.life.phase() >= Phase::Moved {
        // HTTP/2 leaves it out, and has a frame for it.
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    shared.metrics.answered(endpoint, answer.status().as_u16(), began.elapsed());
    Ok(answer)
}

/// Answers what was refused here by the process that serves now, if there is one. A WebSocket comes
/// again by itself.
async fn relay(
    shared: &Shared,
    mut asked: Asked,
    refused: Failure,
) -> Result<Response<Body>, Failure> {
    match shared.life.successor() {
        Some(successor) if !websocket::is_asked_for(asked.request.headers()) => {
            body(shared, &mut asked).await?;
            let head = asked.request.into_parts().0;
            Ok(successor.answer(head, asked.body).await?)
        }
        _ => Err(refused),
    }
}

/// The endpoint of a path, for figures: one of few.
fn endpoint(path: &str) -> &'static str {
    let known = ["/pipeline", "/cursor", "/execute", "/batch", "/health", "/primary", "/version"];
    known.into_iter().find(|end| path.ends_with(end)).unwrap_or("other")
}

fn text(body: &'static str) -> Response<Body> {
    with_type(StatusCode::OK, "text/plain", body)
}

async fn route(shared: &Arc<Shared>, asked: &mut Asked) -> Result<Response<Body>, Failure> {
    if shared.life.phase() == Phase::Moved {
        return Err(draining().into());
    }
    let request = &mut asked.request;
    let path = folded(request.uri().path());
    let (database, path) = match path.strip_prefix("/db/") {
        Some(rest) => {
            let (name, rest) = rest.split_once('/').unwrap_or((rest, ""));
            (Some(name.to_owned()), format!("/{rest}"))
        }
        None => (namespace(request), path),
    };
    refuse_web_pages(shared, request)?;
    if request.method() == Method::GET && websocket::is_asked_for(request.headers()) {
        if shared.life.phase() >= Phase::Stops {
            return Err(draining().into());
        }
        return websocket::upgrade(shared, request, database);
    }
    match (request.method().clone(), &*path) {
        (Method::GET, "/v1" | "/v2" | "/v3" | "/v3-protobuf") => {
            Ok(text("This server speaks Hrana over HTTP."))
        }
        (Method::GET, "/health" | "/primary") if shared.life.phase() >= Phase::Stops => {
            Err(draining().into())
        }
        (Method::GET, "/health" | "/primary") => Ok(role(shared, database, &path)?),
        (Method::GET, "/version") => Ok(text(concat!("monolite ", env!("CARGO_PKG_VERSION")))),
        (Method::POST, "/v2/pipeline" | "/v3/pipeline") => {
            pipeline(shared, asked, database, Encoding::Json).await
        }
        (Method::POST, "/v3-protobuf/pipeline") => {
            pipeline(shared, asked, database, Encoding::Protobuf).await
        }
        (Method::POST, "/v3/cursor") => cursor(shared, asked, database, Encoding::Json).await,
        (Method::POST, "/v3-protobuf/cursor") => {
            cursor(shared, asked, database, Encoding::Protobuf).await
        }
        (Method::POST, "/v1/execute") => {
            let decode = |body: &[u8]| Stmt::decode_v1(body).map(StreamRequest::Execute);
            alone(shared, asked, database, decode).await
        }
        (Method::POST, "/v1/batch") => {
            let decode = |body: &[u8]| Batch::decode_v1(body).map(StreamRequest::Batch);
            alone(shared, asked, database, decode).await
        }
        (_, path) if path == "/info" || path.starts_with("/sync/") => {
            let message = "this server does not serve embedded replicas; use a remote connection, \
                           or a follower of the archive";
            Err(ProtocolError::new("NOT_FOUND", message).into())
        }
        _ => {
            let mut message =
                format!("there is nothing at {} {}", request.method(), request.uri().path());
            if request.uri().path().starts_with("/db/") {
                // Without it, clients replace the name by the version of the protocol.
                message += "; the URL of a database ends with a slash: /db/NAME/";
            }
            Err(ProtocolError::new("NOT_FOUND", message).into())
        }
    }
}

/// What a load balancer asks, of one database or of all.
fn role(
    shared: &Shared,
    database: Option<String>,
    path: &str,
) -> Result<Response<Body>, ProtocolError> {
    let (follows, mut open) = (shared.databases.follow(), shared.databases.open_now());
    if let Some(name) = database {
        shared.databases.must_have(&name)?;
        open.retain(|open| open.name == name);
    }
    if open.is_empty() && shared.databases.has_turns() {
        return Err(not_open());
    }
    let say = if path == "/health" { roles::health } else { roles::primary };
    Ok(say(&open, follows))
}

/// Without tokens, a page of any site that is open in a browser of this machine could write here:
/// browsers send a POST of text without asking. Only they send the header.
fn refuse_web_pages(shared: &Shared, request: &Request<Incoming>) -> Result<(), ProtocolError> {
    if !shared.authenticator.is_open() || !request.headers().contains_key(ORIGIN) {
        return Ok(());
    }
    let message = "a web page cannot use a server without tokens; set [auth], and give the page a \
                   token";
    Err(ProtocolError::new("SQLITE_AUTH", message))
}

/// With runs of slashes as one: some clients append to a URL that ends in a slash.
fn folded(path: &str) -> String {
    let mut folded = String::with_capacity(path.len());
    for sign in path.chars() {
        if sign != '/' || !folded.ends_with('/') {
            folded.push(sign);
        }
    }
    folded
}

/// The Rust client names the database so.
fn namespace(request: &Request<Incoming>) -> Option<String> {
    request.headers().get("x-namespace")?.to_str().ok().map(str::to_owned)
}

/// Who asks, and with what right to which database.
struct Session {
    principal: Principal,
    right: Right,
    database: Option<String>,
    /// What the database must have.
    token: Option<HeaderValue>,
}

fn enter(
    shared: &Shared,
    request: &Request<Incoming>,
    database: Option<String>,
) -> Result<Session, Failure> {
    let token = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| {
        let (kind, token) = value.split_once(' ')?;
        kind.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let principal = shared.authenticate(token)?;
    let name = database.as_deref().unwrap_or(ONLY);
    let right = principal.right(name).ok_or_else(|| {
        ProtocolError::new("SQLITE_AUTH", "the token gives no right to this database")
    })?;
    let token = request.headers().get(TOKEN).cloned();
    Ok(Session { principal, right, database, token })
}

/// Reads what is left of a request's body.
async fn body(shared: &Shared, asked: &mut Asked) -> Result<(), Failure> {
    let Asked { request, body: bytes, taken } = asked;
    let incoming = request.body_mut();
    let whole = async {
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(|error| {
                ProtocolError::new("BODY_INCOMPLETE", format!("the body ended early: {error}"))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > BODY_BYTES {
                let message = format!("the body has over {BODY_BYTES} bytes; send less at once");
                return Err(ProtocolError::new("BODY_TOO_LARGE", message));
            }
            // As it comes: a client that promises much and sends little takes little.
            if bytes.len() + data.len() > SMALL {
                taken.push(shared.memory.take(data.len()).await?);
            }
            bytes.extend_from_slice(&data);
        }
        Ok(())
    };
    let whole = tokio::time::timeout(BODY_TIME, whole).await.map_err(|_| {
        let message = format!("the body took over {} s", BODY_TIME.as_secs());
        ProtocolError::new("BODY_TOO_SLOW", message)
    })?;
    Ok(whole?)
}

/// Takes memory for a request that was decoded, and takes `weight` beside its texts. A large one
/// does not wait for it: it is in memory already.
async fn admit(shared: &Shared, asked: &mut Asked, weight: usize) -> Result<Answer, ProtocolError> {
    let taken = match asked.body.len() + weight {
        small @ 0..=SMALL => shared.small.take(small).await?,
        large => shared.memory.take_now(large).ok_or_else(no_memory)?,
    };
    asked.taken.push(taken);
    Ok(Answer::to(std::mem::take(&mut asked.taken), &shared.memory))
}

/// The answer `bytes`. One that is large keeps what it takes, and its request took, until it is
/// sent: results without rows are in no figure, and a request weighs more than they do.
fn charge(asked: &Asked, kind: &'static str, bytes: Vec<u8>, answer: Answer) -> Response<Body> {
    let bytes = match bytes.len() {
        0..=SMALL => bytes.into(),
        _ => charged(bytes, answer, asked.request.extensions().get::<End>()),
    };
    with_type(StatusCode::OK, kind, bytes)
}

/// The stream of `baton`, or a new one.
async fn stream(
    shared: &Shared,
    session: &Session,
    baton: Option<&str>,
) -> Result<(Held, String), Failure> {
    let Session { principal, right, database, token } = session;
    let proof = principal.proof(*right);
    let held = match baton.filter(|baton| *baton != NO_STATE) {
        // It has entered before, and its transaction may end also while the server stops.
        Some(baton) => {
            shared.streams.resume(baton, database.as_deref().unwrap_or(ONLY), &proof).await?
        }
        None => {
            let database = shared.database(database.as_deref(), Phase::Stops).await?;
            let stream = Stream::new(&database, principal, *right);
            shared.streams.open(stream, database, &shared.kept, principal.holder())?
        }
    };
    match shared.wait_for(&held.database, token.as_ref()).await {
        Ok(()) => Ok((held, proof)),
        Err(error) => {
            // Its transaction goes on, with the same baton.
            if held.has_state() {
                held.keep();
            }
            Err(error.into())
        }
    }
}

async fn pipeline(
    shared: &Arc<Shared>,
    asked: &mut Asked,
    database: Option<String>,
    encoding: Encoding,
) -> Result<Response<Body>, Failure> {
    let session = enter(shared, &asked.request, database)?;
    body(shared, asked).await?;
    let pipeline = PipelineRequest::decode(&asked.body, encoding)?;
    // What only reads can be repeated without a key.
    let key = asked.request.headers().get(KEY).filter(|_| session.right == Right::ReadWrite);
    let (baton, proof) = (pipeline.baton.as_deref(), session.principal.proof(session.right));
    let key = key.map(|key| Key::of(key.as_bytes(), &proof, &asked.body, baton)).transpose()?;
    let weight = pipeline.requests.iter().map(StreamRequest::weight).sum();
    let answer = admit(shared, asked, weight).await?;
    let kept = answer.clone();
    let ((answer, written), is_repeated) = match key {
        Some(key) => {
            // It goes on if the client leaves: a repetition waits for its end.
            let shared = Arc::clone(shared);
            let ran = tokio::spawn(async move {
                once(&shared, &session, pipeline, encoding, answer, key).await
            });
            let panicked = |_| Err(ProtocolError::new("INTERNAL", "the request panicked").into());
            ran.await.unwrap_or_else(panicked)?
        }
        None => {
            let held = stream(shared, &session, baton).await?;
            (run(shared, held, pipeline.requests, encoding, answer, None).await?, false)
        }
    };
    let bytes = answer.encode(encoding);
    let kind = match encoding {
        Encoding::Json => "application/json",
        Encoding::Protobuf => "application/x-protobuf",
    };
    let mut answer = with_token(charge(asked, kind, bytes, kept), written);
    if is_repeated {
        answer.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(answer)
}

/// Runs a pipeline with a key, or answers it as the one that it repeats; says whether it did.
async fn once(
    shared: &Shared,
    session: &Session,
    pipeline: PipelineRequest,
    encoding: Encoding,
    answer: Answer,
    key: Key,
) -> Result<((PipelineResponse, Option<HeaderValue>), bool), Failure> {
    let name = session.database.as_deref();
    let _turn = shared.keys.turn(name.unwrap_or(ONLY), key.text()).await?;
    let mut held = stream(shared, session, pipeline.baton.as_deref()).await;
    let known = match &held {
        Ok((held, _)) => key.find(&held.database).await,
        // A repetition has a baton that is spent.
        Err(_) => key.find(&shared.database(name, Phase::Stops).await?).await,
    }?;
    let is_repeated = known.is_some();
    if is_repeated {
        // Before: who ends all work waits for it, and the new one behind that.
        drop(held);
        held = stream(shared, session, None).await;
    }
    let once = Some((key, known));
    let answer = run(shared, held?, pipeline.requests, encoding, answer, once).await?;
    Ok((answer, is_repeated))
}

/// `answer` with the token of what was written, if it was.
fn with_token(mut answer: Response<Body>, token: Option<HeaderValue>) -> Response<Body> {
    token.map(|token| answer.headers_mut().insert(TOKEN, token));
    answer
}

/// Runs the requests of a pipeline; gives the token of what they wrote, too. The stream ends before
/// the answer is sent: what a client does not read is not its work.
async fn run(
    shared: &Shared,
    (mut held, proof): (Held, String),
    requests: Vec<StreamRequest>,
    encoding: Encoding,
    answer: Answer,
    key: Option<(Key, Option<Record>)>,
) -> Result<(PipelineResponse, Option<HeaderValue>), ProtocolError> {
    let crate::streams::Session { stream, stored, database, .. } = &mut *held;
    let mut has_written = false;
    if let Some((key, known)) = key {
        has_written = known.is_some();
        stream.begin_once(key, known, &answer);
    }
    let ran = stream.run_all(requests, stored, encoding, &answer);
    let (results, is_closed) = shared.life.unless_cut(ran).await?;
    has_written |= stream.take_written();
    let written = if has_written { database.written().await } else { None };
    let baton = match (is_closed, held.has_state()) {
        (true, _) => None,
        (false, false) => Some(NO_STATE.to_owned()),
        (false, true) => {
            let baton = shared.streams.next_baton(&mut held, &proof);
            held.keep();
            Some(baton)
        }
    };
    Ok((PipelineResponse { baton, results }, written))
}

/// A client must not take itself for protected where it is not.
fn refuse_key(request: &Request<Incoming>) -> Result<(), ProtocolError> {
    if request.headers().contains_key(KEY) {
        let message = "only a pipeline takes an Idempotency-Key";
        return Err(ProtocolError::new("IDEMPOTENCY_KEY_INVALID", message));
    }
    Ok(())
}

/// Sends the entries of a batch as they come. The stream is kept, whatever the batch does.
async fn cursor(
    shared: &Arc<Shared>,
    asked: &mut Asked,
    database: Option<String>,
    encoding: Encoding,
) -> Result<Response<Body>, Failure> {
    let session = enter(shared, &asked.request, database)?;
    refuse_key(&asked.request)?;
    body(shared, asked).await?;
    let CursorRequest { baton, batch } = CursorRequest::decode(&asked.body, encoding)?;
    let answer = admit(shared, asked, batch.weight()).await?;
    let (mut held, proof) = stream(shared, &session, baton.as_deref()).await?;
    // What it writes is not known before it is answered.
    let writes = held.database.has_archive && held.stream.may_write_by(&batch);
    let written = writes.then(replicas::unknown);
    let mut head = Vec::new();
    let baton = shared.streams.next_baton(&mut held, &proof);
    encode_cursor_head(Some(&baton), encoding, &mut head);
    let (send, sent) = Entries::new(&shared.memory);
    let end = asked.request.extensions().get::<End>().cloned();
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let crate::streams::Session { stream, stored, .. } = &mut *held;
        let runs = stream.cursor(batch, stored, encoding, &answer, &send);
        let ran = shared.life.unless_cut(runs).await;
        drop(answer);
        if let Err(error) = ran {
            send.fail(error);
        }
        // Also if the client left before the last row: it has the baton, and goes on.
        held.keep();
    });
    let frame = |bytes: Bytes| Ok::<_, std::io::Error>(Frame::data(bytes));
    let head = futures_util::stream::iter([frame(head.into())]);
    let entries = futures_util::stream::unfold((sent, end), move |(mut sent, end)| async move {
        let (mut bytes, mut all_taken) = (Vec::new(), Vec::new());
        let mut next = Some(sent.recv().await?);
        // What is ready goes in one piece.
        while let Some((entry, _ahead, taken)) = next {
            entry.encode(encoding, &mut bytes);
            all_taken.extend(taken);
            next = if bytes.len() < PIECE_BYTES { sent.try_recv().ok() } else { None };
        }
        Some((frame(charged(bytes, all_taken, end.as_ref())), (sent, end)))
    });
    let body = StreamBody::new(futures_util::StreamExt::chain(head, entries));
    let mut response = Response::new(body.boxed());
    let kind = match encoding {
        Encoding::Json => "text/plain",
        Encoding::Protobuf => "application/x-protobuf",
    };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(with_token(response, written))
}

/// One statement or batch, without a stream: version 1.
async fn alone(
    shared: &Arc<Shared>,
    asked: &mut Asked,
    database: Option<String>,
    decode: fn(&[u8]) -> Result<StreamRequest, ProtocolError>,
) -> Result<Response<Body>, Failure> {
    let session = enter(shared, &asked.request, database)?;
    refuse_key(&asked.request)?;
    body(shared, asked).await?;
    let request = decode(&asked.body)?;
    let answer = admit(shared, asked, request.weight()).await?;
    let (ran, written) = run_alone(shared, session, request, &answer).await?;
    let bytes = match ran {
        StreamResponse::Execute(result) => result.encode_v1(),
        StreamResponse::Batch(result) => result.encode_v1(),
        _ => unreachable!("a statement or a batch was run"),
    };
    Ok(with_token(charge(asked, "application/json", bytes, answer), written))
}

/// Runs `request` on a stream of its own. An error has a status, since version 1 has no other place
/// for it.
async fn run_alone(
    shared: &Shared,
    session: Session,
    request: StreamRequest,
    answer: &Answer,
) -> Result<(StreamResponse, Option<HeaderValue>), Failure> {
    let database = shared.database(session.database.as_deref(), Phase::Stops).await?;
    shared.wait_for(&database, session.token.as_ref()).await?;
    let mut stream = Stream::new(&database, &session.principal, session.right);
    let stored = &mut Stored::default();
    let ran = stream.run(request, stored, Encoding::Json, answer);
    let ran = shared.life.unless_cut(ran).await?.map_err(|error| {
        let status = match &*error.code {
            "SQLITE_BUSY" | "OVERLOADED" => StatusCode::SERVICE_UNAVAILABLE,
            "SQLITE_IOERR" | "SQLITE_FULL" | "SQLITE_CORRUPT" | "SQLITE_NOMEM" => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            _ => StatusCode::BAD_REQUEST,
        };
        Failure(status, error)
    })?;
    let written = if stream.take_written() { database.written().await } else { None };
    Ok((ran, written))
}
