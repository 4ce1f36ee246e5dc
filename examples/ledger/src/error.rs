//! What can go wrong in the ledger: the error of its transactions, and the answer a client gets.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use monolite::ErrorKind;
use serde_json::json;

/// Seconds after which a client that was turned away may come back.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Why a request was not done. The variants that a closure returns roll its transaction back.
#[derive(Debug)]
pub enum LedgerError {
    /// The request makes no sense, whatever the accounts look like.
    Invalid(String),
    /// No page has this address.
    NoSuchPage,
    /// The page is there and does not know this method.
    NoSuchMethod,
    /// There is no account of this number.
    UnknownAccount(i64),
    /// The account would fall below zero.
    InsufficientFunds {
        /// From which more was to be taken.
        account: i64,
        /// What it holds.
        balance: i64,
        /// What was to be taken.
        amount: i64,
    },
    /// The account would rise above the largest balance.
    BalanceTooLarge(i64),
    /// A transfer of this id, with other accounts or another amount, was made before.
    TransferIdTaken(String),
    /// Another ledger is the primary: where, or empty where that is not known.
    NotPrimary(String),
    /// The database could not do it.
    Database(monolite::Error),
}

/// Allows `?` on the database inside a closure.
impl From<monolite::Error> for LedgerError {
    fn from(error: monolite::Error) -> Self {
        LedgerError::Database(error)
    }
}

impl LedgerError {
    fn status(&self) -> StatusCode {
        match self {
            LedgerError::Invalid(_) => StatusCode::BAD_REQUEST,
            LedgerError::NoSuchPage | LedgerError::UnknownAccount(_) => StatusCode::NOT_FOUND,
            LedgerError::NoSuchMethod => StatusCode::METHOD_NOT_ALLOWED,
            LedgerError::InsufficientFunds { .. }
            | LedgerError::BalanceTooLarge(_)
            | LedgerError::TransferIdTaken(_) => StatusCode::CONFLICT,
            LedgerError::NotPrimary(_) => StatusCode::SERVICE_UNAVAILABLE,
            LedgerError::Database(error) if is_passing(error.kind()) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            LedgerError::Database(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// A word for programs.
    fn code(&self) -> &'static str {
        match self {
            LedgerError::Invalid(_) => "invalid_request",
            LedgerError::NoSuchPage => "no_such_page",
            LedgerError::NoSuchMethod => "no_such_method",
            LedgerError::UnknownAccount(_) => "unknown_account",
            LedgerError::InsufficientFunds { .. } => "insufficient_funds",
            LedgerError::BalanceTooLarge(_) => "balance_too_large",
            LedgerError::TransferIdTaken(_) => "transfer_id_taken",
            LedgerError::NotPrimary(_) => "not_primary",
            LedgerError::Database(error) if is_passing(error.kind()) => "unavailable",
            LedgerError::Database(_) => "internal",
        }
    }

    /// A sentence for people. The database's own words stay in the log.
    fn message(&self) -> String {
        match self {
            LedgerError::Invalid(why) => why.clone(),
            LedgerError::NoSuchPage => "there is nothing at this address".into(),
            LedgerError::NoSuchMethod => "this address does not know this method".into(),
            LedgerError::UnknownAccount(id) => format!("there is no account {id}"),
            LedgerError::InsufficientFunds { account, balance, amount } => {
                format!("account {account} holds {balance}, which is less than {amount}")
            }
            LedgerError::BalanceTooLarge(id) => format!("account {id} cannot hold that much"),
            LedgerError::TransferIdTaken(id) => {
                format!("transfer {id:?} was made before, with other accounts or amount")
            }
            LedgerError::NotPrimary(address) => {
                format!("this ledger is not the primary, which is at {address:?}")
            }
            LedgerError::Database(error) if is_passing(error.kind()) => {
                "not possible right now; send the same request again".into()
            }
            LedgerError::Database(_) => "the ledger cannot do this; see its log".into(),
        }
    }
}

/// Whether the same request may succeed later, here or in the process that takes over.
fn is_passing(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Conflict
            | ErrorKind::Overloaded
            | ErrorKind::Timeout
            | ErrorKind::CommitUnknown
            | ErrorKind::Fenced
            | ErrorKind::Poisoned
            | ErrorKind::Closed
    )
}

impl IntoResponse for LedgerError {
    fn into_response(self) -> Response {
        if let LedgerError::Database(error) = &self {
            log(error);
        }
        let status = self.status();
        let body = json!({ "error": { "code": self.code(), "message": self.message() } });
        let mut response = (status, Json(body)).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}

/// Overload and shutdown are reported to the client, and not logged.
#[allow(clippy::print_stderr, reason = "the log of this program is its standard error")]
fn log(error: &monolite::Error) {
    if !matches!(error.kind(), ErrorKind::Overloaded | ErrorKind::Closed) {
        eprintln!("ledger: {error}");
    }
}
