//! A proxy in front of ledgers that take turns: sends each request to the primary, and holds it
//! while there is none.
//!
//! # Algorithm
//! 1. Each ledger is asked for `/primary` all the time. Of those that say they are, the one of the
//!    latest epoch is.
//! 2. A request is read as a whole and sent there. It is sent again when it has no answer, the
//!    answer is 503, or another ledger is the primary meanwhile; until its time is over.
//!
//! # Invariants
//! - What may have been done is sent again only if that changes nothing: a `GET`, or a transfer,
//!   which has an id. Anything else is sent again only if no connection was made.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command prints")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, Response, StatusCode, Uri, header, request::Parts, uri::Authority};
use axum::response::IntoResponse;
use axum::{Json, Router};
use clap::Parser;
use hyper_util::client::legacy::{Client, Error, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How often each ledger is asked, and how long it may take to answer.
const ASK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_millis(500);

/// How long a request rests before it is sent again.
const PAUSE: Duration = Duration::from_millis(20);

/// The longest request, and the longest answer.
const MAX_BYTES: usize = 1 << 20;

/// Sends each request to that ledger which is the primary.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Where to listen. Port 0 takes any that is free.
    #[arg(long, default_value = "127.0.0.1:8000")]
    listen: SocketAddr,

    /// Seconds after which a request without an answer fails.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    hold: u64,

    /// Where the ledgers listen.
    #[arg(required = true, value_name = "HOST:PORT")]
    ledgers: Vec<Authority>,
}

struct Proxy {
    client: Client<HttpConnector, Body>,
    ledgers: Vec<Authority>,
    /// Of each ledger that says it is the primary, the epoch.
    epochs: watch::Sender<Vec<Option<u64>>>,
    hold: Duration,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { listen, hold, ledgers } = Arguments::parse();
    let client = Client::builder(TokioExecutor::new()).build_http();
    let (epochs, hold) = (watch::Sender::new(vec![None; ledgers.len()]), Duration::from_secs(hold));
    let proxy = Arc::new(Proxy { client, ledgers, epochs, hold });
    for at in 0..proxy.ledgers.len() {
        let proxy = Arc::clone(&proxy);
        tokio::spawn(async move {
            loop {
                let epoch = proxy.epoch(at).await;
                let set = |epochs: &mut Vec<_>| std::mem::replace(&mut epochs[at], epoch) != epoch;
                proxy.epochs.send_if_modified(set);
                sleep(ASK).await;
            }
        });
    }
    let listener = tokio::net::TcpListener::bind(listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {listen}"))?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, Router::new().fallback(forward).with_state(proxy)).await?)
}

async fn forward(State(proxy): State<Arc<Proxy>>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BYTES).await else {
        return refusal(StatusCode::PAYLOAD_TOO_LARGE, "the request is too long, or ended early");
    };
    let repeats = head.method == Method::GET || head.uri.path() == "/transfers";
    let answer = timeout(proxy.hold, proxy.insist(&head, &body, repeats)).await;
    answer.unwrap_or_else(|_| {
        let [later, unknown] = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];
        let why = format!("no primary has answered within {:?}", proxy.hold);
        refusal(if repeats { later } else { unknown }, &why)
    })
}

fn refusal(status: StatusCode, message: &str) -> Response<Body> {
    let later = (status == StatusCode::SERVICE_UNAVAILABLE).then_some([(header::RETRY_AFTER, "1")]);
    let body = json!({ "error": { "code": "proxy", "message": message } });
    (status, later, Json(body)).into_response()
}

/// The ledger that is the primary.
fn primary(epochs: &[Option<u64>]) -> Option<usize> {
    (0..epochs.len()).filter(|at| epochs[*at].is_some()).max_by_key(|at| epochs[*at])
}

impl Proxy {
    /// Sends a request until it has an answer that is none of a change of the primary.
    async fn insist(&self, head: &Parts, body: &Bytes, repeats: bool) -> Response<Body> {
        let mut epochs = self.epochs.subscribe();
        loop {
            let Some(at) = primary(&epochs.borrow_and_update()) else {
                sleep(PAUSE).await;
                continue;
            };
            let answer = tokio::select! {
                answer = self.send(at, head, body.clone()) => answer,
                _ = epochs.wait_for(|epochs| primary(epochs) != Some(at)), if repeats => continue,
            };
            match answer {
                Ok(answer) if !repeats || answer.status() != StatusCode::SERVICE_UNAVAILABLE => {
                    return answer;
                }
                // No connection was made.
                Err(error) if error.downcast_ref().is_some_and(Error::is_connect) => {}
                Err(error) if !repeats => {
                    let why = format!("it may have been done, and there is no answer: {error}");
                    return refusal(StatusCode::BAD_GATEWAY, &why);
                }
                _ => {}
            }
            sleep(PAUSE).await;
        }
    }

    /// Sends a request to one ledger, and reads all of the answer.
    async fn send(&self, at: usize, head: &Parts, body: Bytes) -> anyhow::Result<Response<Body>> {
        let path = head.uri.path_and_query().map_or("/", |it| it.as_str());
        let ledger = self.ledgers[at].clone();
        let uri = Uri::builder().scheme("http").authority(ledger).path_and_query(path).build()?;
        let mut request = Request::new(Body::from(body));
        (*request.method_mut(), *request.uri_mut()) = (head.method.clone(), uri);
        *request.headers_mut() = head.headers.clone();
        let (head, body) = self.client.request(request).await?.into_parts();
        Ok(Response::from_parts(head, to_bytes(Body::new(body), MAX_BYTES).await?.into()))
    }

    /// Of which epoch a ledger is the primary; `None` when it does not say so in time.
    async fn epoch(&self, at: usize) -> Option<u64> {
        let (head, ()) = Request::get("/primary").body(()).ok()?.into_parts();
        let answer = timeout(PATIENCE, self.send(at, &head, Bytes::new())).await.ok()?.ok()?;
        // Anything but 200 has no epoch.
        let body = to_bytes(answer.into_body(), MAX_BYTES).await.ok()?;
        serde_json::from_slice::<Value>(&body).ok()?["epoch"].as_u64()
    }
}
