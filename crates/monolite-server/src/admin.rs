//! Owns what an operator sees and does, on an address of its own: figures, what runs now, and which
//! databases there are.

mod migrations;

use std::cmp::Reverse;
use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Collected, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use monolite::archive::ArchiveStats;
use monolite::{Activity, Stats, TransactionActivity};
use monolite_archive::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Shared;
use crate::answers::{Body, Failure, failed, with_type};
use crate::databases::{OpenNow, WAL_LIMIT};
use crate::hrana::ProtocolError;
use crate::life::Phase;
use crate::replicas::Replica;
use crate::roles;

/// One page, which asks for [`Now`] once a second.
const PAGE: &str = include_str!("admin/page.html");

/// Most databases that are shown whole. The page asks for up to 20 by name.
const MOST_DATABASES: usize = 40;

/// Most calls, and most transactions, of a database that are shown.
const MOST_CALLS: usize = 20;

/// Most bytes of the body of a fork.
const BODY_BYTES: usize = 4_096;

/// How far an archive may be behind if no limit was set: that of the alarms for embedded databases.
const LAG_LIMIT: Duration = Duration::from_secs(60);

/// How an open database is.
#[derive(Serialize)]
struct Health {
    database: String,
    /// Those that are on, by their names in the guide.
    alarms: Vec<&'static str>,
    archive: Option<ArchiveStats>,
    /// What it is, if it follows a primary.
    replica: Option<Replica>,
}

/// The body of a fork, which is that of sqld.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fork {
    timestamp: String,
}

/// What is under way in the open databases: all of it in some, and how much in the rest. So the
/// answer has 0.2 MB with a thousand databases, and below 2 MB if the most runs in them.
#[derive(Serialize)]
struct Now {
    databases: Vec<Whole>,
    others: Vec<Load>,
}

/// How much is under way in a database.
#[derive(Serialize)]
struct Load {
    database: String,
    /// Writes that wait for the writer.
    waiting: u64,
    running_calls: usize,
    /// Interactive transactions.
    open: u64,
    /// Transactions and reads since the opening.
    calls: u64,
}

#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    load: Load,
    file_bytes: u64,
    wal_limit_bytes: u64,
    running: Vec<Activity>,
    open_transactions: Vec<TransactionActivity>,
    stats: Stats,
    replica: Option<Replica>,
}

impl Whole {
    fn of(open: OpenNow) -> Whole {
        let OpenNow { name: database, path, database: db, replica, .. } = open;
        let (mut running, mut open_transactions) = (db.running(), db.open_transactions());
        let stats = db.stats();
        let load = Load {
            database,
            waiting: stats.queue_depth,
            running_calls: running.len(),
            open: stats.open_transactions,
            calls: stats.transactions + stats.reads,
        };
        // What has the writer first, then what has run longest.
        running.sort_by_key(|it| (!it.has_writer, Reverse(it.time)));
        running.truncate(MOST_CALLS);
        open_transactions.truncate(MOST_CALLS);
        let file_bytes = std::fs::metadata(path).map_or(0, |file| file.len());
        let wal_limit_bytes = WAL_LIMIT;
        Whole { load, file_bytes, wal_limit_bytes, running, open_transactions, stats, replica }
    }
}

/// Answers one request of an operator.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    Ok(route(&shared, request).await.unwrap_or_else(failed))
}

async fn route(shared: &Shared, request: Request<Incoming>) -> Result<Response<Body>, Failure> {
    refuse_other_sites(&request)?;
    let path = request.uri().path().to_owned();
    let of_names = path.strip_prefix("/v1/namespaces/");
    let of_names: Vec<&str> = of_names.map_or_else(Vec::new, |rest| rest.split('/').collect());
    match (request.method(), &*path, &of_names[..]) {
        (&Method::GET, "/", _) => {
            let mut page = with_type(StatusCode::OK, "text/html; charset=utf-8", PAGE);
            page.headers_mut().insert(CONTENT_SECURITY_POLICY, policy());
            page.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            Ok(page)
        }
        (&Method::GET, "/metrics", _) => {
            Ok(with_type(StatusCode::OK, "text/plain; version=0.0.4", metrics(shared)))
        }
        (&Method::GET, "/now", _) => json(&now(shared, request.uri().query())),
        (&Method::GET, "/health", _) => health(shared),
        (&Method::GET, "/v1/namespaces", _) => json(&shared.databases.list()?),
        (&Method::POST, _, [name, "create"]) => {
            let entered = shared.life.enter(Phase::Stops).await?;
            shared.life.unless_cut(shared.databases.create(name, entered)).await??;
            json(&())
        }
        (&Method::POST, _, [from, "fork", to]) => {
            // It may take long, and is not waited for when the server stops.
            drop(shared.life.enter(Phase::Stops).await?);
            let time = time_of_fork(request).await?;
            let restored = shared.databases.fork(from, to, time).await?;
            let time = restored.as_ref().map(|restored| restored.time.to_string());
            let is_exact = restored.is_none_or(|restored| restored.is_exact);
            json(&serde_json::json!({ "time": time, "is_exact": is_exact }))
        }
        (&Method::POST, _, [name, "migrations", verb]) => {
            migrations::answer(shared, name, verb, request).await
        }
        (&Method::DELETE, _, [name]) => {
            let entered = shared.life.enter(Phase::Stops).await?;
            shared.databases.delete(name, entered).await?;
            json(&())
        }
        (method, path, _) => {
            let message = format!("there is nothing at {method} {path}");
            Err(ProtocolError::new("NOT_FOUND", message).into())
        }
    }
}

/// A page of another site, open in the operator's browser, must not reach this address; nor may it
/// by a name of its own that leads here.
fn refuse_other_sites(request: &Request<Incoming>) -> Result<(), ProtocolError> {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let host = header("host").unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let is_local = matches!(name, "localhost" | "127.0.0.1" | "[::1]");
    let is_own = header("origin").is_none_or(|origin| origin == format!("http://{host}"));
    if is_local && is_own {
        return Ok(());
    }
    let message = "this address is for a browser or program on the same machine; ask for it as \
                   localhost";
    Err(ProtocolError::new("SQLITE_AUTH", message))
}

fn json(value: &impl Serialize) -> Result<Response<Body>, Failure> {
    let text = serde_json::to_string(value).map_err(|error| {
        Failure::from(ProtocolError::new("INTERNAL", format!("the answer is no JSON: {error}")))
    })?;
    Ok(with_type(StatusCode::OK, "application/json", text))
}

/// The body of a request, of at most `most` bytes.
async fn body_of(request: Request<Incoming>, most: usize) -> Result<Bytes, ProtocolError> {
    let body = Limited::new(request.into_body(), most).collect().await;
    body.map(Collected::to_bytes).map_err(|error| invalid(format!("the body: {error}")))
}

fn invalid(message: String) -> ProtocolError {
    ProtocolError::new("BODY_INVALID", message)
}

/// The time that the body of a fork names, if it names one. Without a zone, as sqld takes it, it is
/// in UTC.
async fn time_of_fork(request: Request<Incoming>) -> Result<Option<Timestamp>, ProtocolError> {
    let body = body_of(request, BODY_BYTES).await?;
    if body.is_empty() {
        return Ok(None);
    }
    let fork = serde_json::from_slice(&body);
    let Fork { timestamp } = fork.map_err(|error| {
        let expected = r#"{"timestamp": "2026-11-25T07:00:00Z"}"#;
        invalid(format!("the body is no fork: {error}; send {expected}, or no body"))
    })?;
    let time = timestamp.parse().or_else(|_| format!("{timestamp}Z").parse());
    time.map(Some).map_err(|error: <Timestamp as FromStr>::Err| invalid(error.to_string()))
}

/// How the open databases are; unavailable while an archive is too far behind.
fn health(shared: &Shared) -> Result<Response<Body>, Failure> {
    let limit = shared.databases.lag_limit().unwrap_or(LAG_LIMIT);
    let mut is_behind = false;
    let of = |OpenNow { name: database, database: db, replica, .. }: OpenNow| {
        let archive = db.stats().archive;
        let mut alarms = archive.as_ref().map_or_else(Vec::new, |archive| {
            let lags = Duration::from_millis(archive.lag_ms) > limit;
            is_behind |= lags;
            let all = [
                ("ArchiveBehind", lags),
                ("ArchiveNotRestorable", !archive.is_restorable),
                ("ArchiveFailing", archive.last_error.is_some()),
            ];
            all.into_iter().filter_map(|(name, is_on)| is_on.then_some(name)).collect()
        });
        if let Some(Replica { is_fresh, stats, .. }) = &replica {
            is_behind |= !is_fresh;
            let all = [
                ("ReplicaBehind", !is_fresh),
                ("ReplicaFailing", stats.last_error.is_some()),
                ("ReplicaBarred", stats.barred.is_some()),
            ];
            alarms.extend(all.into_iter().filter_map(|(name, is_on)| is_on.then_some(name)));
        }
        Health { database, alarms, archive, replica }
    };
    let all: Vec<Health> = shared.databases.open_now().into_iter().map(of).collect();
    let mut response = json(&all)?;
    if is_behind {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    Ok(response)
}

fn metrics(shared: &Shared) -> String {
    let open = shared.databases.open_now();
    let stats: Vec<_> = open.iter().map(|it| (it.name.as_str(), it.database.stats())).collect();
    shared.metrics.text(shared.streams.count())
        + &roles::prometheus(&open, shared.databases.follow())
        + &monolite::prometheus(&stats)
}

/// Those that `of=one,two` names are whole, then those in which most waits or runs.
fn now(shared: &Shared, query: Option<&str>) -> Now {
    let named = query.and_then(|query| query.strip_prefix("of=")).unwrap_or_default();
    let named: Vec<&str> = named.split(',').take(MOST_DATABASES).collect();
    let mut all: Vec<_> = shared.databases.open_now().into_iter().map(Whole::of).collect();
    all.sort_by_cached_key(|Whole { load, .. }| {
        let is_named = named.contains(&&*load.database);
        Reverse((is_named, load.waiting, load.running_calls as u64 + load.open, load.calls))
    });
    let others = all.split_off(all.len().min(MOST_DATABASES));
    Now { databases: all, others: others.into_iter().map(|it| it.load).collect() }
}

/// What the page may load and run: its own script and style, and the figures of this address. Texts
/// of clients can become no elements.
fn policy() -> HeaderValue {
    let hash = |open, close| {
        let (_, rest) = PAGE.split_once(open).expect("the page has it");
        let (text, _) = rest.split_once(close).expect("it ends");
        STANDARD.encode(ring::digest::digest(&ring::digest::SHA256, text.as_bytes()))
    };
    let (script, style) = (hash("<script>", "</script>"), hash("<style>", "</style>"));
    let policy = format!(
        "default-src 'none'; connect-src 'self'; img-src data:; script-src 'sha256-{script}'; \
         style-src 'sha256-{style}'; require-trusted-types-for 'script'; trusted-types 'none'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    policy.parse().expect("base64 fits in a header")
}
