//! Databases of Monolite over the network, for the unmodified clients of libSQL: the protocol Hrana,
//! versions 1, 2 and 3.

#![forbid(unsafe_code)]

mod auth;
mod control;
mod databases;
mod errors;
pub mod hrana;
mod http;
mod log;
mod stream;
mod streams;
mod websocket;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;

pub use auth::{AuthConfig, Authenticator};
pub use databases::Data;

use databases::Databases;
use streams::Streams;

/// How long a client may take for the head of a request.
const HEADER_TIME: Duration = Duration::from_secs(5);

/// Largest head of a request.
const HEADER_BYTES: usize = 16 << 10;

/// How long requests under way may take when the server stops.
const DRAIN: Duration = Duration::from_secs(5);

/// How often what is unused is looked for.
const UPKEEP: Duration = Duration::from_secs(1);

/// What all connections share.
struct Shared {
    databases: Databases,
    streams: Arc<Streams>,
    authenticator: Authenticator,
    /// Whether the server stops.
    stops: tokio::sync::watch::Sender<bool>,
}

/// A server, before it serves.
pub struct Server {
    shared: Arc<Shared>,
}

impl Server {
    /// One for these databases and those whom `authenticator` lets in.
    pub fn new(data: Data, authenticator: Authenticator) -> Server {
        let databases = Databases::new(data);
        let streams = Arc::new(Streams::new());
        let stops = tokio::sync::watch::Sender::new(false);
        Server { shared: Arc::new(Shared { databases, streams, authenticator, stops }) }
    }

    /// Serves the connections of `listener` until `stop` is done. Then it accepts no more, gives
    /// requests under way five seconds, and closes the databases.
    ///
    /// # Errors
    /// Those of the listener.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let connections = GracefulShutdown::new();
        let upkeep = tokio::spawn(upkeep(Arc::clone(&self.shared)));
        tokio::pin!(stop);
        loop {
            let (socket, _) = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        // No descriptors are left: those of others that end give some.
                        log::error(&format!("a connection was not accepted: {error}"));
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                },
                () = &mut stop => break,
            };
            // An answer is one write; the next must not wait for its acknowledgement.
            let _ = socket.set_nodelay(true);
            let shared = Arc::clone(&self.shared);
            let service = service_fn(move |request| http::answer(Arc::clone(&shared), request));
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder
                .http1()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIME)
                .max_buf_size(HEADER_BYTES.max(8 << 10));
            builder.http2().timer(TokioTimer::new()).max_header_list_size(HEADER_BYTES as u32);
            let connection =
                builder.serve_connection_with_upgrades(TokioIo::new(socket), service).into_owned();
            let connection = connections.watch(connection);
            tokio::spawn(async move {
                // What a client breaks off is its own affair.
                let _ = connection.await;
            });
        }
        drop(listener);
        self.shared.stops.send_replace(true);
        let _ = tokio::time::timeout(DRAIN, connections.shutdown()).await;
        upkeep.abort();
        self.shared.streams.end_all();
        self.shared.databases.close_all().await;
        Ok(())
    }
}

async fn upkeep(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(UPKEEP);
    loop {
        ticks.tick().await;
        shared.streams.end_expired();
        shared.databases.close_idle().await;
    }
}
