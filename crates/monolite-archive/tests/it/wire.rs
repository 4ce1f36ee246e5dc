//! The network between a primary and a follower that streams: a proxy that can be cut.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use monolite_archive::Archive;

/// How often a primary that streams fills a slot.
pub(crate) const SLOTS: Duration = Duration::from_millis(200);

pub(crate) const SECRET: &[u8] = b"a secret of tests";

#[derive(Default)]
struct Connections {
    open: Vec<TcpStream>,
    cut_until: Option<Instant>,
}

pub(crate) struct Wire {
    primary: SocketAddr,
    proxy: SocketAddr,
    connections: Arc<Mutex<Connections>>,
}

/// An address at which nothing listens.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Wire {
    pub(crate) fn new() -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (primary, proxy) = (free_address(), listener.local_addr().unwrap());
        let connections = Arc::new(Mutex::new(Connections::default()));
        let theirs = Arc::clone(&connections);
        thread::spawn(move || {
            for tcp in listener.incoming() {
                let _ = pass_on(tcp, primary, &theirs);
            }
        });
        Wire { primary, proxy, connections }
    }

    pub(crate) fn primary(&self, archive: Archive) -> Archive {
        archive.stream_to(&self.primary.to_string(), SECRET)
    }

    pub(crate) fn follower(&self, archive: Archive) -> Archive {
        archive.stream_from(Some(&self.proxy.to_string()), SECRET)
    }

    /// Ends what is open, and lets nothing through for so long.
    pub(crate) fn cut(&self, time: Duration) {
        let mut connections = self.connections.lock().unwrap();
        connections.cut_until = Some(Instant::now() + time);
        for tcp in connections.open.drain(..) {
            let _ = tcp.shutdown(Shutdown::Both);
        }
    }
}

fn pass_on(
    tcp: io::Result<TcpStream>,
    primary: SocketAddr,
    connections: &Mutex<Connections>,
) -> io::Result<()> {
    let (tcp, mut connections) = (tcp?, connections.lock().unwrap());
    if connections.cut_until.is_some_and(|until| Instant::now() < until) {
        return Ok(());
    }
    let other = TcpStream::connect(primary)?;
    connections.open.extend([tcp.try_clone()?, other.try_clone()?]);
    let (back, forth) = (tcp.try_clone()?, other.try_clone()?);
    thread::spawn(move || copy(tcp, other));
    thread::spawn(move || copy(forth, back));
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
