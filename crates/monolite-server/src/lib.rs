//! Databases of Monolite over the network, for the unmodified clients of libSQL: the protocol
//! Hrana, versions 1, 2 and 3, over HTTP and WebSocket.

#![forbid(unsafe_code)]

mod config;
mod handover;
mod life;
mod server;

mod admin;
mod http;
mod local;
mod websocket;

mod archives;
mod auth;
mod databases;
mod keys;
mod metrics;
mod names;
mod replicas;
mod roles;
mod streams;
mod tls;
mod turns;

mod stream;

mod answers;
mod control;
mod errors;
mod files;
pub mod hrana;
mod log;
mod memory;
mod places;
mod relay;

pub use archives::ArchiveConfig;
pub use auth::{AuthConfig, Right, issue_token};
pub use config::{Config, TlsConfig};
pub use files::ConfigError;
pub use local::Local;
pub use replicas::FollowConfig;
pub use server::{Listening, Server};

use std::sync::Arc;

use hrana::ProtocolError;
use life::Phase;

/// What all connections share.
struct Shared {
    databases: databases::Databases,
    streams: Arc<streams::Streams>,
    keys: keys::Keys,
    authenticator: auth::Authenticator,
    metrics: metrics::Metrics,
    /// For requests and answers, which end by themselves.
    memory: memory::Memory,
    /// For small requests, so that they do not wait for large ones.
    small: memory::Memory,
    /// For what clients keep as long as they like.
    kept: memory::Memory,
    life: life::Life,
}

impl Shared {
    /// The database of that name, for new work; waits while another process takes over, and refuses
    /// it from the phase `refused` on.
    async fn database(
        &self,
        name: Option<&str>,
        refused: Phase,
    ) -> Result<databases::InUse, ProtocolError> {
        let entered = self.life.enter(refused).await?;
        // It may wait for a fork, which no end waits for.
        self.life.unless_cut(self.databases.get(name, Some(entered))).await?
    }

    /// Waits until `database` has what a client's `token` names. A primary has it, unless another
    /// one has taken over.
    async fn wait_for(
        &self,
        database: &databases::InUse,
        token: Option<&hyper::header::HeaderValue>,
    ) -> Result<(), ProtocolError> {
        let Some(token) = token else { return Ok(()) };
        let Some(follower) = database.follower() else {
            return replicas::must_be_of(database.database(), token);
        };
        let waits = replicas::wait_for(follower, token, &self.databases.asking);
        self.life.unless_cut(waits).await?
    }
}

impl Shared {
    /// Who `token` belongs to. Its use is counted, or the refusal.
    fn authenticate(&self, token: Option<&str>) -> Result<auth::Principal, hrana::ProtocolError> {
        let principal = self.authenticator.authenticate(token).map_err(|refusal| {
            self.metrics.refused(refusal.code());
            hrana::ProtocolError::new(refusal.code(), refusal.to_string())
        })?;
        if let Some(kind) = principal.kind() {
            self.metrics.used(kind, &principal.counted);
        }
        Ok(principal)
    }
}
