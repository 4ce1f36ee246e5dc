//! Owns what an operator sees and does, on an address of its own: figures, what runs now, and which
//! databases there are.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Method, Request, Response, StatusCode};
use monolite::{Activity, Stats, TransactionActivity};
use serde::Serialize;

use crate::Shared;
use crate::answers::{Body, Failure, failed, with_type};
use crate::hrana::ProtocolError;

/// One page, which asks for [`Now`] once a second.
const PAGE: &str = include_str!("admin/page.html");

/// What the page may load: itself, and from no other host.
const POLICY: &str = "default-src 'none'; connect-src 'self'; img-src data:; \
                      script-src 'unsafe-inline'; style-src 'unsafe-inline'";

/// What is under way in a database.
#[derive(Serialize)]
struct Now {
    database: String,
    running: Vec<Activity>,
    open_transactions: Vec<TransactionActivity>,
    stats: Stats,
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
            let policy = HeaderValue::from_static(POLICY);
            page.headers_mut().insert("content-security-policy", policy);
            Ok(page)
        }
        (&Method::GET, "/metrics") => {
            Ok(with_type(StatusCode::OK, "text/plain; version=0.0.4", metrics(shared)))
        }
        (&Method::GET, "/now") => json(&now(shared)),
        (&Method::GET, "/v1/namespaces") => json(&shared.databases.list()?),
        (&Method::POST, _) if created.is_some() => {
            shared.databases.create(created.unwrap_or_default()).await?;
            json(&())
        }
        (&Method::DELETE, _) if !name.is_empty() => {
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
    let stats: Vec<_> = open.iter().map(|(name, db)| (name.as_str(), db.stats())).collect();
    shared.metrics.text(shared.streams.count()) + &monolite::prometheus(&stats)
}

fn now(shared: &Shared) -> Vec<Now> {
    let open = shared.databases.open_now();
    let now = |(database, db): (String, monolite::Database)| {
        let mut running = db.running();
        // What holds the writer first, then what has run longest.
        running.sort_by_key(|it| (!it.has_writer, std::cmp::Reverse(it.time)));
        let mut open_transactions = db.open_transactions();
        open_transactions.sort_by_key(|it| std::cmp::Reverse(it.time));
        open_transactions.truncate(MOST_SHOWN);
        running.truncate(MOST_SHOWN);
        Now { database, running, open_transactions, stats: db.stats() }
    };
    open.into_iter().map(now).collect()
}

/// Most calls, and most transactions, of a database that are shown.
const MOST_SHOWN: usize = 100;
