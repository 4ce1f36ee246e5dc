//! The routes: requests checked, transactions started, outcomes turned into JSON.
//!
//! # Not here
//! SQL, which is in `store.rs`, and status codes of failures, which are in `error.rs`.

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use monolite::archive::ArchiveStats;
use monolite::{Committed, Database, Histogram, Stats};
use monolite_postgres::Engine;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::error::LedgerError;
use crate::store::{self, Account, Made, Statement, Transfer};

type Result<T> = std::result::Result<T, LedgerError>;

/// No request of this service is longer than a few lines.
const MAX_BODY_BYTES: usize = 16 << 10;

/// Entries on a page of a statement unless the client asks otherwise, and at most.
const PAGE: u32 = 100;
const MAX_PAGE: u32 = 1_000;

/// The service on an open database whose schema was created, and whose closures fail with errors of
/// the ledger (`with_error`).
pub fn router<D: Engine<Error = LedgerError>>(db: D) -> Router {
    Router::new()
        .route("/accounts", post(open_account::<D>))
        .route("/accounts/{id}", get(account::<D>))
        .route("/accounts/{id}/statement", get(statement::<D>))
        .route("/transfers", post(transfer::<D>))
        .fallback(async || LedgerError::NoSuchPage)
        .method_not_allowed_fallback(async || LedgerError::NoSuchMethod)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(db)
}

/// What Monolite alone tells, to be merged with [`router`].
pub fn figures(db: Database<LedgerError>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/primary", get(primary))
        .route("/stats", get(stats))
        .with_state(db)
}

/// The service of a ledger that follows: it reads `db`, and says for everything else where the
/// primary is.
pub fn standby(db: Database<LedgerError>, primary: watch::Receiver<String>) -> Router {
    let only_reads = move |request: Request, next: Next| {
        let refused = LedgerError::NotPrimary(primary.borrow().clone());
        async move {
            let is_of_primary = ["/health", "/primary"].contains(&request.uri().path());
            match request.method() {
                &Method::GET if !is_of_primary => next.run(request).await,
                _ => refused.into_response(),
            }
        }
    };
    router(db.clone()).merge(figures(db)).layer(middleware::from_fn(only_reads))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewAccount {
    owner: String,
    #[serde(default)]
    opening_balance: i64,
}

async fn open_account<D: Engine<Error = LedgerError>>(
    State(db): State<D>,
    body: std::result::Result<Json<NewAccount>, JsonRejection>,
) -> Result<(StatusCode, Json<Account>)> {
    let Json(new) = body?;
    let owner = text("owner", new.owner, store::MAX_OWNER_BYTES)?;
    if !(0..=store::MAX_BALANCE).contains(&new.opening_balance) {
        let message = format!("opening_balance must be from 0 to {}", store::MAX_BALANCE);
        return Err(LedgerError::Invalid(message));
    }
    let open = db.transact(async |tx| store::open_account(&tx, &owner, new.opening_balance).await);
    let account = open.await?;
    Ok((StatusCode::CREATED, Json(account)))
}

async fn account<D: Engine<Error = LedgerError>>(
    State(db): State<D>,
    id: std::result::Result<Path<i64>, PathRejection>,
) -> Result<Json<Account>> {
    let Path(id) = id?;
    Ok(Json(db.read(async |tx| store::account(&tx, id).await).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTransfer {
    id: String,
    from: i64,
    to: i64,
    amount: i64,
}

impl NewTransfer {
    fn check(self) -> Result<Transfer> {
        let id = text("id", self.id, store::MAX_ID_BYTES)?;
        if self.from == self.to {
            return Err(LedgerError::Invalid("from and to must be different accounts".into()));
        }
        if !(1..=store::MAX_BALANCE).contains(&self.amount) {
            let message = format!("amount must be from 1 to {}", store::MAX_BALANCE);
            return Err(LedgerError::Invalid(message));
        }
        Ok(Transfer { id, from: self.from, to: self.to, amount: self.amount })
    }
}

async fn transfer<D: Engine<Error = LedgerError>>(
    State(db): State<D>,
    body: std::result::Result<Json<NewTransfer>, JsonRejection>,
) -> Result<(StatusCode, Json<Transfer>)> {
    let Json(new) = body?;
    let transfer = new.check()?;
    // Its id is the key of the commit: a repetition is answered once the first one is as durable
    // as it was to be, which a transaction that only reads would not wait for.
    let receipt = json!(transfer).to_string();
    let body = async |tx| Ok((store::transfer(&tx, &transfer).await?, receipt.clone()));
    let status = match db.transact_once(&transfer.id, body).await? {
        Committed::Now { value: Made::Now, .. } => StatusCode::CREATED,
        Committed::Before { outcome } if outcome != receipt.as_bytes() => {
            return Err(LedgerError::TransferIdTaken(transfer.id));
        }
        // Of a key that has expired the table of transfers knows.
        Committed::Now { value: Made::Before, .. } | Committed::Before { .. } => StatusCode::OK,
    };
    Ok((status, Json(transfer)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    #[serde(default)]
    after: i64,
    limit: Option<u32>,
}

async fn statement<D: Engine<Error = LedgerError>>(
    State(db): State<D>,
    id: std::result::Result<Path<i64>, PathRejection>,
    page: std::result::Result<Query<Page>, QueryRejection>,
) -> Result<Json<Statement>> {
    let (Path(id), Query(page)) = (id?, page?);
    let limit = page.limit.unwrap_or(PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(LedgerError::Invalid(format!("limit must be from 1 to {MAX_PAGE}")));
    }
    let read = db.read(async |tx| store::statement(&tx, id, page.after, limit).await);
    Ok(Json(read.await?))
}

/// 200 if writes are acknowledged. Reads go on even after the disk has failed.
async fn health(State(db): State<Database<LedgerError>>) -> Result<Json<Value>> {
    db.try_write(|tx| Ok(tx.query_row("SELECT 1", (), |row| row.get::<_, i64>(0))?))?.await?;
    Ok(Json(json!({ "status": "ok" })))
}

/// For a proxy: 200 at the primary. Of two that say so the one of the later epoch is.
async fn primary(State(db): State<Database<LedgerError>>) -> Result<Json<Value>> {
    let archive = db.stats().archive;
    match archive.as_ref().and_then(|archive| archive.successor.clone()) {
        Some(successor) => Err(LedgerError::NotPrimary(successor)),
        None => Ok(Json(json!({ "epoch": archive.map_or(0, |archive| archive.epoch) }))),
    }
}

async fn stats(State(db): State<Database<LedgerError>>) -> Json<Value> {
    Json(outline(&db.stats()))
}

fn outline(stats: &Stats) -> Value {
    json!({
        "transactions": stats.transactions,
        "failed_transactions": stats.failed_transactions,
        "commits": stats.commits,
        "syncs": stats.syncs,
        "reads": stats.reads,
        "queue_depth": stats.queue_depth,
        "wal_bytes": stats.wal_bytes,
        "batch_size": percentiles(&stats.batch_size),
        "commit_seconds": percentiles(&stats.commit_seconds),
        "sync_seconds": percentiles(&stats.sync_seconds),
        "archive": stats.archive.as_ref().map(archived),
    })
}

/// Where `lag_ms` grows, `last_error` says why.
fn archived(archive: &ArchiveStats) -> Value {
    json!({
        "epoch": archive.epoch,
        "txid": archive.txid,
        "lag_ms": archive.lag_ms,
        "is_restorable": archive.is_restorable,
        "last_error": archive.last_error,
    })
}

fn percentiles(histogram: &Histogram) -> Value {
    json!({
        "count": histogram.count(),
        "p50": histogram.quantile(0.5),
        "p99": histogram.quantile(0.99),
    })
}

/// A text that is neither empty nor too long.
fn text(name: &str, value: String, max_bytes: usize) -> Result<String> {
    if value.trim().is_empty() || value.len() > max_bytes {
        return Err(LedgerError::Invalid(format!("{name} must have 1 to {max_bytes} bytes")));
    }
    Ok(value)
}

impl From<JsonRejection> for LedgerError {
    fn from(rejection: JsonRejection) -> Self {
        LedgerError::Invalid(rejection.body_text())
    }
}

impl From<PathRejection> for LedgerError {
    fn from(rejection: PathRejection) -> Self {
        LedgerError::Invalid(rejection.body_text())
    }
}

impl From<QueryRejection> for LedgerError {
    fn from(rejection: QueryRejection) -> Self {
        LedgerError::Invalid(rejection.body_text())
    }
}
