//! Owns that a redirect's target never answers a change of the bucket.
//!
//! The client follows redirects by itself, and of one to another place (303) it makes a GET: what
//! is found there would say that the change is done. So an answer to anything but a GET or a HEAD
//! that comes from another address than was asked says nothing. Which address it comes from is what
//! `reqwest` has `tower-http` note; where it does not, nothing is seen, which a test would.

use std::io;

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use tower_http::follow_redirect::RequestUri;
use url::Url;

/// The usual client, whose changes are not redirected.
#[derive(Debug, Default)]
pub(super) struct Direct(ReqwestConnector);

impl HttpConnector for Direct {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Checked(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct Checked(HttpClient);

#[async_trait]
impl HttpService for Checked {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let reads = ["GET", "HEAD"].contains(&request.method().as_str());
        // As the client writes it.
        let asked = Url::parse(&request.uri().to_string()).ok();
        let response = self.0.execute(request).await?;
        if reads || response.status().is_redirection() {
            return Ok(response);
        }
        let from = response.extensions().get::<RequestUri>();
        let from = from.and_then(|RequestUri(uri)| Url::parse(&uri.to_string()).ok());
        match from {
            Some(from) if Some(&from) != asked.as_ref() => {
                let (from, query) = (from.host_str().unwrap_or_default(), from.path());
                let message = format!(
                    "a change was redirected to {from}{query}, whose answer says nothing; name \
                     the bucket's own endpoint"
                );
                Err(HttpError::new(HttpErrorKind::Unknown, io::Error::other(message)))
            }
            _ => Ok(response),
        }
    }
}
