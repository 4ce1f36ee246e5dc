//! Owns what an operator sees and does, on an address of its own: figures, what runs now, and which
//! databases there are.

use std::cmp::Reverse;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use monolite::{Activity, Database, Stats, TransactionActivity};
use serde::Serialize;

use crate::Shared;
use crate::answers::{Body, Failure, failed, with_type};
use crate::databases::WAL_LIMIT;
use crate::hrana::ProtocolError;
use crate::life::Phase;

/// One page, which asks for [`Now`] once a second.
const PAGE: &str = include_str!("admin/page.html");

/// Most databases that are shown whole. The page asks for up to 20 by name.
const MOST_DATABASES: usize = 40;

/// Most calls, and most transactions, of a database that are shown.
const MOST_CALLS: usize = 20;

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
}

impl Whole {
    fn of((database, path, db): (String, PathBuf, Database)) -> Whole {
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
        Whole { load, file_bytes, wal_limit_bytes: WAL_LIMIT, running, open_transactions, stats }
    }
}

/// Answers one request of an operator.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    Ok(route(&shared, &request).await.unwrap_or_else(failed))
}

async fn route(shared: &Shared, request: &Request<Incoming>) -> Result<Response<Body>, Failure> {
    refuse_other_sites(request)?;
    let path = request.uri().path();
    let name = path.strip_prefix("/v1/namespaces/").unwrap_or_default();
    let created = name.strip_suffix("/create");
    match (request.method(), path) {
        (&Method::GET, "/") => {
            let mut page = with_type(StatusCode::OK, "text/html; charset=utf-8", PAGE);
            page.headers_mut().insert(CONTENT_SECURITY_POLICY, policy());
            page.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            Ok(page)
        }
        (&Method::GET, "/metrics") => {
            Ok(with_type(StatusCode::OK, "text/plain; version=0.0.4", metrics(shared)))
        }
        (&Method::GET, "/now") => json(&now(shared, request.uri().query())),
        (&Method::GET, "/v1/namespaces") => json(&shared.databases.list()?),
        (&Method::POST, _) if created.is_some() => {
            let _entered = shared.life.enter(Phase::Stops).await?;
            shared.databases.create(created.unwrap_or_default()).await?;
            json(&())
        }
        (&Method::DELETE, _) if !name.is_empty() => {
            let _entered = shared.life.enter(Phase::Stops).await?;
            shared.databases.delete(name).await?;
            json(&())
        }
        (method, path) => {
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

fn metrics(shared: &Shared) -> String {
    let open = shared.databases.open_now();
    let stats: Vec<_> = open.iter().map(|(name, _, db)| (name.as_str(), db.stats())).collect();
    shared.metrics.text(shared.streams.count()) + &monolite::prometheus(&stats)
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
