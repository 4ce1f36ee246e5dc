//! Owns the way from clients to a server: a proxy that cuts each connection, each after another
//! number of bytes, and now and then sends a request again, as some proxies do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A connection is cut after fewer bytes than this: those of some forty requests, or of their
/// answers.
const MOST_BYTES: u64 = 24_000;

/// So many bytes more than the connection before, modulo [`MOST_BYTES`], with which it has no
/// factor: each place is cut in turn.
const STRIDE: u64 = 7_411;

/// One in so many requests is sent again.
const REPEATS: u8 = 20;

/// The proxy. It ends with the runtime that it listens in.
#[derive(Default)]
pub(super) struct Proxy {
    server: watch::Sender<Option<SocketAddr>>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    cuts: AtomicU64,
    repeated: AtomicU64,
}

impl Proxy {
    /// Connections that were cut.
    pub(super) fn cuts(&self) -> u64 {
        self.counts.cuts.load(Relaxed)
    }

    /// Requests that were sent again.
    pub(super) fn repeated(&self) -> u64 {
        self.counts.repeated.load(Relaxed)
    }

    /// Where the server is from now on; none has connections wait.
    pub(super) fn lead_to(&self, server: Option<SocketAddr>) {
        self.server.send_replace(server);
    }

    /// Listens; gives the URL for clients.
    pub(super) async fn listen(&self) -> Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("the proxy cannot listen")?;
        let url = format!("http://{}", listener.local_addr()?);
        let (mut server, counts) = (self.server.subscribe(), Arc::clone(&self.counts));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = server.wait_for(Option::is_some).await.map(|it| *it) else {
                    break;
                };
                let counts = Arc::clone(&counts);
                tokio::spawn(async move {
                    if let Some(server) = server {
                        // A connection that breaks is what this is for.
                        let _ = relay(client, server, &counts).await;
                    }
                });
            }
        });
        Ok(url)
    }
}

/// Carries bytes both ways, up to the cut.
async fn relay(mut client: TcpStream, server: SocketAddr, counts: &Counts) -> std::io::Result<()> {
    let mut to_server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    to_server.set_nodelay(true)?;
    let number = counts.cuts.fetch_add(1, Relaxed);
    let (mut asked, mut answered) = ([0; 4_096], [0; 4_096]);
    // Whether requests are cut, or answers; and what may still go through.
    let cuts_requests = number.is_multiple_of(2);
    let mut left = (number / 2 * STRIDE % MOST_BYTES) as usize;
    let mut request = Vec::new();
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let read = read?;
                let sent = if cuts_requests { read.min(left) } else { read };
                to_server.write_all(&asked[..sent]).await?;
                if read == 0 || sent < read {
                    return Ok(());
                }
                left -= if cuts_requests { sent } else { 0 };
                request.extend_from_slice(&asked[..sent]);
            }
            read = to_server.read(&mut answered) => {
                let read = read?;
                let sent = if cuts_requests { read } else { read.min(left) };
                client.write_all(&answered[..sent]).await?;
                if read == 0 || sent < read {
                    return Ok(());
                }
                left -= if cuts_requests { 0 } else { sent };
                if fastrand::u8(..REPEATS) == 0 && !request.is_empty() {
                    counts.repeated.fetch_add(1, Relaxed);
                    tokio::spawn(repeat(std::mem::take(&mut request), server));
                }
                request.clear();
            }
        }
    }
}

/// Sends a request again; the answer is the server's affair.
async fn repeat(request: Vec<u8>, server: SocketAddr) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    server.write_all(&request).await?;
    server.readable().await
}
