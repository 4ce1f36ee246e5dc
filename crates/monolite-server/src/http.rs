//! Owns the endpoints of HTTP: which request runs what, and how an error is said.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::mpsc;

use crate::Shared;
use crate::auth::{Principal, Right};
use crate::databases::InUse;
use crate::hrana::request::{decode_v1_batch, decode_v1_execute};
use crate::hrana::response::encode_cursor_head;
use crate::hrana::{
    CursorRequest, Encoding, PipelineRequest, PipelineResponse, ProtocolError, StreamRequest,
    StreamResponse,
};
use crate::stream::cursor::AHEAD;
use crate::stream::{Stored, Stream};
use crate::streams::{Held, NO_STATE};
use crate::websocket;

/// Largest body of a request.
const BODY_BYTES: usize = 16 << 20;

/// Entries of a cursor are sent in pieces of about this size.
const PIECE_BYTES: usize = 64 << 10;

/// How long a client may take to send it.
const BODY_TIME: Duration = Duration::from_secs(30);

pub(crate) type Body = BoxBody<Bytes, Infallible>;

/// An error that ends a request over HTTP, with its status.
pub(crate) struct Failure(StatusCode, ProtocolError);

impl From<ProtocolError> for Failure {
    /// What is said of a request that has begun nothing.
    fn from(error: ProtocolError) -> Failure {
        let status = match &*error.code {
            "STREAM_EXPIRED" | "DATABASE_NOT_FOUND" | "NOT_FOUND" => StatusCode::NOT_FOUND,
            "SQLITE_AUTH" => StatusCode::FORBIDDEN,
            code if code.starts_with("AUTH_") => StatusCode::UNAUTHORIZED,
            "OVERLOADED" | "DRAINING" => StatusCode::SERVICE_UNAVAILABLE,
            "BODY_TOO_LARGE" => StatusCode::PAYLOAD_TOO_LARGE,
            "BODY_TOO_SLOW" => StatusCode::REQUEST_TIMEOUT,
            "DATABASE_NOT_OPENED" | "INTERNAL" => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Failure(status, error)
    }
}

/// Answers one request.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let answered = route(&shared, request).await;
    Ok(answered.unwrap_or_else(|Failure(status, error)| {
        // Exactly this type: JavaScript reads no body of a type with parameters.
        let mut response = with_type(status, "application/json", error.body());
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }))
}

fn with_type(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn text(body: &'static str) -> Response<Body> {
    with_type(StatusCode::OK, "text/plain", body)
}

async fn route(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let path = folded(request.uri().path());
    let (database, path) = match path.strip_prefix("/db/") {
        Some(rest) => {
            let (name, rest) = rest.split_once('/').ok_or_else(|| {
                ProtocolError::new("NOT_FOUND", format!("end the URL with a slash: {path}/"))
            })?;
            (Some(name.to_owned()), format!("/{rest}"))
        }
        None => (namespace(&request), path),
    };
    if request.method() == Method::GET && websocket::is_asked_for(request.headers()) {
        return websocket::upgrade(shared, request, database);
    }
    match (request.method().clone(), &*path) {
        (Method::GET, "/v1" | "/v2" | "/v3" | "/v3-protobuf") => {
            Ok(text("This server speaks Hrana over HTTP."))
        }
        (Method::GET, "/health") => Ok(text("ok")),
        (Method::GET, "/version") => Ok(text(concat!("monolite ", env!("CARGO_PKG_VERSION")))),
        (Method::POST, "/v2/pipeline" | "/v3/pipeline") => {
            pipeline(shared, request, database, Encoding::Json).await
        }
        (Method::POST, "/v3-protobuf/pipeline") => {
            pipeline(shared, request, database, Encoding::Protobuf).await
        }
        (Method::POST, "/v3/cursor") => cursor(shared, request, database, Encoding::Json).await,
        (Method::POST, "/v3-protobuf/cursor") => {
            cursor(shared, request, database, Encoding::Protobuf).await
        }
        (Method::POST, "/v1/execute") => execute(shared, request, database).await,
        (Method::POST, "/v1/batch") => batch(shared, request, database).await,
        (_, path) if path == "/info" || path.starts_with("/sync/") => {
            let message = "this server does not serve embedded replicas; use a remote connection, \
                           or a follower of the archive";
            Err(ProtocolError::new("NOT_FOUND", message).into())
        }
        _ => {
            let message = format!("there is nothing at {} {path}", request.method());
            Err(ProtocolError::new("NOT_FOUND", message).into())
        }
    }
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
    database: InUse,
}

async fn enter(
    shared: &Shared,
    request: &Request<Incoming>,
    database: Option<&str>,
) -> Result<Session, Failure> {
    let token = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| {
        let (kind, token) = value.split_once(' ')?;
        kind.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let principal = shared.authenticator.authenticate(token, SystemTime::now());
    let principal =
        principal.map_err(|refusal| ProtocolError::new(refusal.code(), refusal.to_string()))?;
    let name = database.unwrap_or(crate::databases::ONLY);
    let right = principal.right(name).ok_or_else(|| {
        ProtocolError::new("SQLITE_AUTH", "the token gives no right to this database")
    })?;
    let database = shared.databases.get(database).await?;
    Ok(Session { principal, right, database })
}

async fn body(request: Request<Incoming>) -> Result<Bytes, Failure> {
    let whole = Limited::new(request.into_body(), BODY_BYTES).collect();
    match tokio::time::timeout(BODY_TIME, whole).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!("the body has over {BODY_BYTES} bytes; send less at once");
            Err(ProtocolError::new("BODY_TOO_LARGE", message).into())
        }
        Ok(Err(error)) => {
            Err(ProtocolError::new("BODY_INCOMPLETE", format!("the body ended early: {error}"))
                .into())
        }
        Err(_) => {
            let message = format!("the body took over {} s", BODY_TIME.as_secs());
            Err(ProtocolError::new("BODY_TOO_SLOW", message).into())
        }
    }
}

/// The stream of `baton`, or a new one.
fn stream(
    shared: &Shared,
    session: Session,
    baton: Option<&str>,
) -> Result<(Held, Principal), Failure> {
    let Session { principal, right, database } = session;
    let held = match baton.filter(|baton| *baton != NO_STATE) {
        Some(baton) => shared.streams.resume(baton, &database.name, &principal.name)?,
        None => {
            let stream = Stream::new(&database.database().with_principal(principal.id), right);
            shared.streams.open(stream, database)?
        }
    };
    Ok((held, principal))
}

async fn pipeline(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    database: Option<String>,
    encoding: Encoding,
) -> Result<Response<Body>, Failure> {
    let session = enter(shared, &request, database.as_deref()).await?;
    let body = body(request).await?;
    let pipeline = PipelineRequest::decode(&body, encoding)?;
    let (mut held, principal) = stream(shared, session, pipeline.baton.as_deref())?;
    let mut results = Vec::with_capacity(pipeline.requests.len());
    let mut is_closed = false;
    for request in pipeline.requests {
        is_closed |= matches!(request, StreamRequest::Close);
        let crate::streams::Session { stream, stored, .. } = &mut *held;
        results.push(stream.run(request, stored, encoding).await);
    }
    let baton = match (is_closed, held.has_state()) {
        (true, _) => None,
        (false, false) => Some(NO_STATE.to_owned()),
        (false, true) => {
            let baton = shared.streams.next_baton(&mut held, &principal.name);
            held.keep();
            Some(baton)
        }
    };
    let bytes = PipelineResponse { baton, results }.encode(encoding);
    let kind = match encoding {
        Encoding::Json => "application/json",
        Encoding::Protobuf => "application/x-protobuf",
    };
    Ok(with_type(StatusCode::OK, kind, bytes))
}

/// Sends the entries of a batch as they come. The stream is kept, whatever the batch does.
async fn cursor(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    database: Option<String>,
    encoding: Encoding,
) -> Result<Response<Body>, Failure> {
    let session = enter(shared, &request, database.as_deref()).await?;
    let body = body(request).await?;
    let CursorRequest { baton, batch } = CursorRequest::decode(&body, encoding)?;
    let (mut held, principal) = stream(shared, session, baton.as_deref())?;
    let mut head = Vec::new();
    let baton = shared.streams.next_baton(&mut held, &principal.name);
    encode_cursor_head(Some(&baton), encoding, &mut head);
    let (send, sent) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let crate::streams::Session { stream, stored, .. } = &mut *held;
        stream.cursor(batch, stored, encoding, &send).await;
        if !send.is_closed() {
            held.keep();
        }
    });
    let frame = |bytes: Vec<u8>| Ok::<_, Infallible>(Frame::data(Bytes::from(bytes)));
    let head = futures_util::stream::iter([frame(head)]);
    let entries = futures_util::stream::unfold(sent, move |mut sent| async move {
        let mut bytes = Vec::new();
        sent.recv().await?.encode(encoding, &mut bytes);
        // What is ready goes in one piece.
        while bytes.len() < PIECE_BYTES
            && let Ok(entry) = sent.try_recv()
        {
            entry.encode(encoding, &mut bytes);
        }
        Some((frame(bytes), sent))
    });
    let body = StreamBody::new(futures_util::StreamExt::chain(head, entries));
    let mut response = Response::new(body.boxed());
    let kind = match encoding {
        Encoding::Json => "text/plain",
        Encoding::Protobuf => "application/x-protobuf",
    };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

/// One statement, without a stream: version 1.
async fn execute(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    database: Option<String>,
) -> Result<Response<Body>, Failure> {
    let session = enter(shared, &request, database.as_deref()).await?;
    let body = body(request).await?;
    let request = StreamRequest::Execute(decode_v1_execute(&body)?);
    match run_alone(session, request).await? {
        StreamResponse::Execute(result) => {
            Ok(with_type(StatusCode::OK, "application/json", result.v1_body()))
        }
        _ => unreachable!("a statement was run"),
    }
}

/// One batch, without a stream: version 1.
async fn batch(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    database: Option<String>,
) -> Result<Response<Body>, Failure> {
    let session = enter(shared, &request, database.as_deref()).await?;
    let body = body(request).await?;
    let request = StreamRequest::Batch(decode_v1_batch(&body)?);
    match run_alone(session, request).await? {
        StreamResponse::Batch(result) => {
            Ok(with_type(StatusCode::OK, "application/json", result.v1_body()))
        }
        _ => unreachable!("a batch was run"),
    }
}

/// Runs `request` on a stream of its own. An error has a status, since version 1 has no other place
/// for it.
async fn run_alone(session: Session, request: StreamRequest) -> Result<StreamResponse, Failure> {
    let handle = session.database.database().with_principal(session.principal.id);
    let mut stream = Stream::new(&handle, session.right);
    let ran = stream.run(request, &mut Stored::default(), Encoding::Json).await;
    ran.map_err(|error| {
        let status = match &*error.code {
            "SQLITE_BUSY" => StatusCode::SERVICE_UNAVAILABLE,
            "SQLITE_IOERR" | "SQLITE_FULL" | "SQLITE_CORRUPT" | "SQLITE_NOMEM" => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            _ => StatusCode::BAD_REQUEST,
        };
        Failure(status, error)
    })
}
