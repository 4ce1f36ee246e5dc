//! Owns the requests that come to this process when another one serves in its place.

use std::io;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper::http::request::Parts;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;

use crate::answers::Body;
use crate::hrana::ProtocolError;
use crate::log;

/// What is taken of an answer before its client takes it.
const AHEAD: u32 = 256 << 10;

/// The most that the protocol allows, and more than all answers have ahead: one that its client
/// does not read must not hold up the others.
const ALL_AHEAD: u32 = (1 << 31) - 1;

/// The process that serves in the place of this one.
#[derive(Clone)]
pub(crate) struct Successor(http2::SendRequest<Full<Bytes>>);

impl Successor {
    /// Over the socket by which it took over.
    pub(crate) async fn new(socket: UnixStream) -> io::Result<Successor> {
        let made = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(AHEAD)
            .initial_connection_window_size(ALL_AHEAD)
            .handshake(TokioIo::new(socket))
            .await;
        let (send, connection) = made.map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(Successor(send))
    }

    /// What it answers to a request that came to this process.
    pub(crate) async fn answer(
        mut self,
        head: Parts,
        body: Vec<u8>,
    ) -> Result<Response<Body>, ProtocolError> {
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let uri = format!("http://relayed{path}").parse();
        let uri =
            uri.map_err(|_| ProtocolError::new("NOT_FOUND", "the path is no part of a URL"))?;
        let mut request = Request::from_parts(head, Full::new(body.into()));
        (*request.uri_mut(), *request.version_mut()) = (uri, Version::HTTP_2);
        match self.0.send_request(request).await {
            Ok(response) => Ok(response.map(|body| body.map_err(io::Error::other).boxed())),
            Err(error) => {
                log::error(&format!("the process that took over did not answer: {error}"));
                let message = "the server was stopped; if the request writes, look whether it was \
                               done";
                Err(ProtocolError::new("BROKEN_OFF", message))
            }
        }
    }
}
