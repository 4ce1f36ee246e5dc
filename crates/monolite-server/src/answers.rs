//! Owns how an answer over HTTP is said, and an error among them.

use std::io;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use crate::hrana::ProtocolError;

pub(crate) type Body = BoxBody<Bytes, io::Error>;

/// An error that ends a request over HTTP, with its status.
pub(crate) struct Failure(pub(crate) StatusCode, pub(crate) ProtocolError);

impl From<ProtocolError> for Failure {
    /// What is said of a request that has begun nothing.
    fn from(error: ProtocolError) -> Failure {
        let status = match &*error.code {
            "STREAM_EXPIRED" | "DATABASE_NOT_FOUND" | "NOT_FOUND" => StatusCode::NOT_FOUND,
            "DATABASE_EXISTS" | "DATABASE_IN_USE" | "ARCHIVE_EXISTS" | "COMMITTED_BEFORE"
            | "NOT_PRIMARY" => StatusCode::CONFLICT,
            "IDEMPOTENCY_KEY_REUSED" => StatusCode::UNPROCESSABLE_ENTITY,
            "TOKEN_LOST" => StatusCode::GONE,
            "SQLITE_AUTH" => StatusCode::FORBIDDEN,
            code if code.starts_with("AUTH_") => StatusCode::UNAUTHORIZED,
            "OVERLOADED"
            | "DRAINING"
            | "TOKEN_LATE"
            | "TAKEOVER_UNDER_WAY"
            | "IDEMPOTENCY_KEY_IN_USE" => StatusCode::SERVICE_UNAVAILABLE,
            "BODY_TOO_LARGE" => StatusCode::PAYLOAD_TOO_LARGE,
            "BODY_TOO_SLOW" => StatusCode::REQUEST_TIMEOUT,
            "DATABASE_NOT_OPENED"
            | "DATABASE_NOT_DELETED"
            | "DATABASE_NOT_FORKED"
            | "ARCHIVE_NOT_READ"
            | "INTERNAL"
            | "BROKEN_OFF" => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Failure(status, error)
    }
}

/// The answer that is an error.
pub(crate) fn failed(Failure(status, error): Failure) -> Response<Body> {
    // Exactly this type: JavaScript reads no body of a type with parameters.
    let mut response = with_type(status, "application/json", error.body());
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

pub(crate) fn with_type(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response =
        Response::new(Full::new(body.into()).map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
