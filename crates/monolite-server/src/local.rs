//! Owns a database of this process, for a client that needs no connection.

use std::sync::{Mutex, PoisonError};

use monolite::Database;

use crate::auth::Right;
use crate::hrana::{Encoding, PipelineRequest, PipelineResponse, ProtocolError};
use crate::stream::{Answer, Stored, Stream};
use crate::streams::expired;

/// The baton of the stream that is kept.
const KEPT: &str = "kept";

/// A database that answers requests as a server does, in the process and without a limit of time of
/// its own: the engine's hold.
pub struct Local {
    db: Database,
    right: Right,
    /// The stream whose next request may come.
    kept: Mutex<Option<Stream>>,
}

impl Local {
    /// One of `db`, whose requests have `right`.
    pub fn new(db: Database, right: Right) -> Local {
        Local { db, right, kept: Mutex::default() }
    }

    /// Answers the body of a pipeline of JSON: a status and a body. It keeps one stream, that of
    /// the last pipeline without `close`.
    ///
    /// # Cancellation
    /// The stream of a request that is dropped has ended, and its transaction with it.
    pub async fn pipeline(&self, body: &[u8]) -> (u16, Vec<u8>) {
        match self.answer(body).await {
            Ok(body) => (200, body),
            Err(error) => (400, error.body()),
        }
    }

    async fn answer(&self, body: &[u8]) -> Result<Vec<u8>, ProtocolError> {
        let PipelineRequest { baton, requests } = PipelineRequest::decode(body, Encoding::Json)?;
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stream = match baton {
            Some(_) => kept().take().ok_or_else(expired)?,
            None => Stream::of(self.db.clone(), self.right),
        };
        let (stored, answer) = (&mut Stored::default(), Answer::default());
        let (results, is_closed) = stream.run_all(requests, stored, Encoding::Json, &answer).await;
        let baton = (!is_closed).then(|| KEPT.to_owned());
        if !is_closed {
            *kept() = Some(stream);
        }
        Ok(PipelineResponse { baton, results }.encode(Encoding::Json))
    }
}
