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
    /// Bytes are lost both ways, and neither side hears of it.
    is_lost: bool,
}

impl Connections {
    fn end(&mut self) {
        for tcp in self.open.drain(..) {
            let _ = tcp.shutdown(Shutdown::Both);
        }
    }
}

pub(crate) struct Wire {
    pub(crate) primary: SocketAddr,
    pub(crate) proxy: SocketAddr,
    connections: Arc<Mutex<Connections>>,
}

/// An address at which nothing listens.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Wire {
    pub(crate) fn new() -> Wire {
        let primary = free_address();
        Wire::leading(primary, move || Some(primary))
    }

    /// For a node that listens at `primary` while it is the primary, and finds another one `there`.
    pub(crate) fn leading(
        primary: SocketAddr,
        there: impl Fn() -> Option<SocketAddr> + Send + 'static,
    ) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap();
        let connections = Arc::new(Mutex::new(Connections::default()));
        let theirs = Arc::clone(&connections);
        thread::spawn(move || {
            for tcp in listener.incoming() {
                let _ = pass_on(tcp, there(), &theirs);
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
        connections.end();
    }

    /// Loses all that is sent. Both sides find their connections open until this is over.
    pub(crate) fn loses(&self, is_lost: bool) {
        let mut connections = self.connections.lock().unwrap();
        connections.is_lost = is_lost;
        if !is_lost {
            connections.end();
        }
    }
}

fn pass_on(
    tcp: io::Result<TcpStream>,
    primary: Option<SocketAddr>,
    all: &Arc<Mutex<Connections>>,
) -> io::Result<()> {
    let (tcp, mut connections) = (tcp?, all.lock().unwrap());
    if connections.is_lost {
        connections.open.push(tcp);
        return Ok(());
    }
    if connections.cut_until.is_some_and(|until| Instant::now() < until) {
        return Ok(());
    }
    let Some(primary) = primary else { return Ok(()) };
    let other = TcpStream::connect(primary)?;
    connections.open.extend([tcp.try_clone()?, other.try_clone()?]);
    let (back, forth) = (tcp.try_clone()?, other.try_clone()?);
    let [one, another] = [Arc::clone(all), Arc::clone(all)];
    thread::spawn(move || copy(tcp, other, &one));
    thread::spawn(move || copy(forth, back, &another));
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream, connections: &Mutex<Connections>) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = from.read(&mut bytes).unwrap_or(0);
        match (count, connections.lock().unwrap().is_lost) {
            (0, true) => return,
            (_, true) => {}
            (0, false) => break,
            (count, false) if to.write_all(&bytes[..count]).is_err() => break,
            _ => {}
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
