//! A client of `monolite serve` (and of other servers that speak Hrana), for the shell, the
//! benchmarks and the torture: requests by HTTP, in JSON, version 3.

#![forbid(unsafe_code)]

mod wire;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use monolite::Value;
use rustls::{ClientConfig, RootCertStore};

/// What a statement gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// The names of the columns, also when there are no rows.
    pub columns: Vec<String>,
    /// The rows, each as long as `columns`.
    pub rows: Vec<Vec<Value>>,
    /// How many rows an `INSERT`, `UPDATE` or `DELETE` changed.
    pub changes: u64,
    /// The rowid of the last row that it inserted.
    pub last_rowid: Option<i64>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The server refused the request or the statement.
    Refused {
        /// As the protocol has it: `SQLITE_BUSY`, `AUTH_JWT_INVALID`.
        code: String,
        /// The server's text.
        message: String,
    },
    /// The URL or the token cannot be used.
    Unusable(String),
    /// The server was not reached, or the connection broke: whether the statement ran is not known.
    Unreachable(String),
    /// What came back is no answer of Hrana.
    NotHrana(String),
}

impl Error {
    /// The protocol's code, if the server refused.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Error::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Whether the transaction changed nothing and may be run again: it met another one.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.code() == Some("SQLITE_BUSY")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused { message, .. } | Error::Unusable(message) => f.write_str(message),
            Error::Unreachable(why) => write!(f, "the server is not reached: {why}"),
            Error::NotHrana(why) => write!(f, "the answer is not that of a database server: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// A client of one database. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    way: Way,
}

/// How requests reach the database.
#[derive(Clone)]
enum Way {
    Network(Arc<Network>),
    InProcess(Arc<dyn Fn(Vec<u8>) -> Answering + Send + Sync>),
}

struct Network {
    http: Connections,
    pipeline: Uri,
    authorization: Option<HeaderValue>,
}

type Connections = Http<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The answer to the body of a request, to come: its status and body.
pub type Answering = Pin<Box<dyn Future<Output = (u16, Vec<u8>)> + Send>>;

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// One of the database at `url`: `http://HOST:PORT/`, `https://…` or `libsql://…`, with
    /// `db/NAME/` behind it where a server has several. It connects at its first request.
    ///
    /// # Errors
    /// [`Error::Unusable`] when `url` or `token` cannot be used, or the system has no
    /// certificates for `https`.
    pub fn new(url: &str, token: Option<&str>) -> Result<Client, Error> {
        let (http, pipeline) = connections(url, "v3/pipeline")?;
        let authorization = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
        let authorization = authorization.transpose().map_err(|it| unusable("the token", &it))?;
        Ok(Client { way: Way::Network(Arc::new(Network { http, pipeline, authorization })) })
    }

    /// One of a database in this process: `answer` takes the body of a pipeline.
    pub fn in_process(answer: impl Fn(Vec<u8>) -> Answering + Send + Sync + 'static) -> Client {
        Client { way: Way::InProcess(Arc::new(answer)) }
    }

    /// Runs one statement in a transaction of its own. `Ok` means that it is on disk.
    ///
    /// # Errors
    /// As [`Stream::execute`].
    pub async fn execute(&self, sql: &str, parameters: &[Value]) -> Result<Answer, Error> {
        let requests = [wire::execute(sql, parameters), wire::close()];
        let (_, mut responses) = self.send(None, &requests).await?;
        responses.swap_remove(0)?.answer()
    }

    /// Runs statements in one transaction and one request: all of them, or none. `Ok` means that
    /// they are on disk.
    ///
    /// # Errors
    /// As [`Stream::execute`]; that of the first statement which failed.
    pub async fn batch(&self, statements: &[(&str, &[Value])]) -> Result<Vec<Answer>, Error> {
        let requests = [wire::batch(statements), wire::close()];
        let (_, mut responses) = self.send(None, &requests).await?;
        responses.swap_remove(0)?.answers()
    }

    /// A new stream: a connection, as other databases call it, which can have a transaction.
    #[must_use]
    pub fn stream(&self) -> Stream {
        Stream { client: self.clone(), baton: None, is_lost: false }
    }

    async fn send(
        &self,
        baton: Option<&str>,
        requests: &[wire::Request<'_>],
    ) -> Result<(Option<String>, wire::Responses), Error> {
        let body = serde_json::to_vec(&wire::Pipeline { baton, requests });
        let body = body.map_err(|error| Error::NotHrana(error.to_string()))?;
        let (status, body) = match &self.way {
            Way::Network(network) => {
                let Network { http, pipeline, authorization } = &**network;
                let mut request = Request::new(Full::from(body));
                *request.method_mut() = Method::POST;
                *request.uri_mut() = pipeline.clone();
                if let Some(authorization) = authorization {
                    request.headers_mut().insert(AUTHORIZATION, authorization.clone());
                }
                ask(http, request).await?
            }
            Way::InProcess(answer) => answer(body).await,
        };
        if (200..300).contains(&status) {
            wire::responses(&body, requests.len())
        } else {
            Err(wire::refusal(status, &body))
        }
    }
}

/// What a server's address for operators answers, in JSON, to a GET of `path`, or to a POST of
/// `body` to it.
///
/// # Errors
/// As [`Client::new`]; [`Error::Refused`] with what the server says, and [`Error::Unreachable`].
///
/// # Cancellation
/// The server ends what it does for the request.
pub async fn operate(
    admin: &str,
    path: &str,
    body: Option<Vec<u8>>,
) -> Result<serde_json::Value, Error> {
    let (http, uri) = connections(admin, path)?;
    let mut request = Request::new(Full::default());
    *request.uri_mut() = uri;
    if let Some(body) = body {
        *request.method_mut() = Method::POST;
        *request.body_mut() = Full::from(body);
    }
    match ask(&http, request).await? {
        (200, body) => serde_json::from_slice(&body).map_err(wire::not_hrana),
        (status, body) => Err(wire::refusal(status, &body)),
    }
}

fn unusable(what: &str, why: &dyn fmt::Display) -> Error {
    Error::Unusable(format!("{what} cannot be used: {why}"))
}

/// Connections to the server of `url`, and the URL of `path` below it.
fn connections(url: &str, path: &str) -> Result<(Connections, Uri), Error> {
    let base = url.trim_end_matches('/').replacen("libsql://", "https://", 1);
    let uri: Uri = format!("{base}/{path}").parse().map_err(|error| unusable(url, &error))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(unusable(url, &"begin it with http:// or https://"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls.map_err(|error| unusable("TLS", &error))?;
    // The system's certificates are read, and must be there, only where they are needed.
    let tls = if uri.scheme_str() == Some("https") {
        tls.with_native_roots().map_err(|error| unusable("TLS", &error))?
    } else {
        tls.with_root_certificates(RootCertStore::empty())
    };
    let mut http = HttpConnector::new();
    http.set_nodelay(true);
    http.enforce_http(false);
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls.with_no_client_auth());
    let connector = builder.https_or_http().enable_http1().wrap_connector(http);
    Ok((Http::builder(TokioExecutor::new()).build(connector), uri))
}

async fn ask(http: &Connections, request: Request<Full<Bytes>>) -> Result<(u16, Vec<u8>), Error> {
    let answer = http.request(request).await.map_err(|error| unreachable(&error))?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.map_err(|error| unreachable(&error))?;
    Ok((status, body.to_bytes().into()))
}

/// The innermost cause says most: "Connection refused".
fn unreachable(error: &dyn std::error::Error) -> Error {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    Error::Unreachable(cause.to_string())
}

/// Statements that belong together: what was begun on it is its transaction.
#[derive(Debug)]
pub struct Stream {
    client: Client,
    baton: Option<String>,
    /// Whether the server may not have it any more.
    is_lost: bool,
}

impl Stream {
    /// Runs one statement. Outside of a transaction, `Ok` means that it is on disk.
    ///
    /// # Errors
    /// [`Error::Refused`] when the statement failed, [`Error::Unreachable`] when it is not known
    /// whether it ran; [`Error::Unusable`] for all that follows a request which failed as a whole:
    /// it was meant for a transaction that is lost.
    pub async fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<Answer, Error> {
        self.run(&[(sql, parameters)]).await?.swap_remove(0)
    }

    /// Runs statements one after the other in one request, also behind one that fails.
    ///
    /// # Errors
    /// As [`Stream::execute`], when the request failed as a whole.
    pub async fn run(
        &mut self,
        statements: &[(&str, &[Value])],
    ) -> Result<Vec<Result<Answer, Error>>, Error> {
        let requests = statements.iter().map(|(sql, values)| wire::execute(sql, values));
        let responses = self.send(&requests.collect::<Vec<_>>()).await?;
        Ok(responses.into_iter().map(|response| response?.answer()).collect())
    }

    /// Runs a script of statements, to the first error.
    ///
    /// # Errors
    /// As [`Stream::execute`].
    pub async fn run_script(&mut self, sql: &str) -> Result<(), Error> {
        self.send(&[wire::sequence(sql)]).await?.swap_remove(0).map(drop)
    }

    /// Whether no transaction is open.
    ///
    /// # Errors
    /// As [`Stream::execute`].
    pub async fn is_autocommit(&mut self) -> Result<bool, Error> {
        self.send(&[wire::get_autocommit()]).await?.swap_remove(0)?.autocommit()
    }

    /// Whether a request failed as a whole, so that nothing more can be run.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Ends the stream, and rolls back a transaction that is open. A stream that is dropped instead
    /// is ended by the server after a while.
    ///
    /// # Errors
    /// As [`Stream::execute`].
    pub async fn close(mut self) -> Result<(), Error> {
        self.send(&[wire::close()]).await.map(drop)
    }

    async fn send(&mut self, requests: &[wire::Request<'_>]) -> Result<wire::Responses, Error> {
        if self.is_lost {
            return Err(Error::Unusable("the stream is lost; begin a new one".into()));
        }
        // It is, unless an answer comes: also when this future is dropped.
        self.is_lost = true;
        let (next, responses) = self.client.send(self.baton.as_deref(), requests).await?;
        (self.baton, self.is_lost) = (next, false);
        Ok(responses)
    }
}
