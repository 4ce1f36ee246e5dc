//! Owns requests with idempotency keys: each is sent again until it is answered.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use monolite_client::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::{Habit, PATIENCE, Rest};

/// A way to a server that sends each request until it is answered, or may rest.
pub(in super::super) struct Repeating {
    pub(in super::super) url: String,
    pub(in super::super) rest: Rest,
    pub(in super::super) habit: Habit,
    /// A number that no other has.
    pub(in super::super) number: u64,
    /// Counts the answers that were given before.
    pub(in super::super) replayed: Arc<AtomicU64>,
    pub(in super::super) requests: AtomicU64,
    pub(in super::super) connection: Mutex<Option<TcpStream>>,
}

impl Repeating {
    pub(in super::super) fn client(self) -> Client {
        let this = Arc::new(self);
        Client::in_process(move |body| {
            let this = Arc::clone(&this);
            Box::pin(async move { this.ask(body).await })
        })
    }

    async fn ask(&self, body: Vec<u8>) -> (u16, Vec<u8>) {
        let mut key = self.key();
        while !self.rest.has_begun() {
            let mut connection = self.connection.lock().await;
            match tokio::time::timeout(PATIENCE, self.post(&mut connection, &key, &body)).await {
                // What came of the request is not known while another one is under way, or where
                // the server has failed.
                Ok(Ok((status, answer))) if status < 500 => return (status, answer),
                Ok(Ok(_)) => {}
                _ => *connection = None,
            }
            if self.habit == Habit::Renews {
                key = self.key();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        (503, Vec::new())
    }

    fn key(&self) -> String {
        format!("{}-{}", self.number, self.requests.fetch_add(1, Relaxed))
    }

    async fn post(
        &self,
        connection: &mut Option<TcpStream>,
        key: &str,
        body: &[u8],
    ) -> io::Result<(u16, Vec<u8>)> {
        // Where it is cut off, it is not used again.
        let mut stream = match connection.take() {
            Some(stream) => stream,
            None => TcpStream::connect(self.url.trim_start_matches("http://")).await?,
        };
        let head = format!(
            "POST /v3/pipeline HTTP/1.1\r\nhost: a\r\nidempotency-key: {key}\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).await?;
        let mut read = Vec::new();
        loop {
            if let Some((status, length, at)) = head_of(&read)
                && read.len() >= at + length
            {
                let head = String::from_utf8_lossy(&read[..at]);
                if head.contains("idempotent-replayed") {
                    self.replayed.fetch_add(1, Relaxed);
                }
                if !head.contains("connection: close") {
                    *connection = Some(stream);
                }
                return Ok((status, read[at..at + length].to_vec()));
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The status of an answer, how long its body is, and where that begins.
fn head_of(read: &[u8]) -> Option<(u16, usize, usize)> {
    let at = read.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&read[..at]).ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    Some((head.split(' ').nth(1)?.parse().ok()?, length.parse().ok()?, at))
}
