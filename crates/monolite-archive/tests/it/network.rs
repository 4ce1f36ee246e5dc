//! A network between a program and its store, which can be cut, and counts what passes.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// How often a connection looks whether the network is another.
const LOOK: Duration = Duration::from_millis(10);

/// What the network does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Network {
    Open,
    /// Connections are cut, and there are no new ones.
    Cut,
    /// What was sent arrives when it is open again.
    Stalled,
    /// Requests arrive; their connections are cut in place of the answers.
    Mute,
}

#[derive(Default)]
struct State {
    network: AtomicU8,
    requests: AtomicU64,
    sent: AtomicU64,
    is_over: AtomicBool,
}

impl State {
    fn network(&self) -> Network {
        let all = [Network::Open, Network::Cut, Network::Stalled, Network::Mute];
        all[usize::from(self.network.load(Ordering::SeqCst))]
    }

    fn is_cut(&self) -> bool {
        self.network() == Network::Cut || self.is_over.load(Ordering::SeqCst)
    }
}

/// A port that leads to another one.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<State>,
}

impl Proxy {
    pub(crate) fn start(to: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let accepting = Arc::clone(&state);
        thread::spawn(move || accept(&listener, to, &accepting));
        Proxy { port, state }
    }

    pub(crate) fn set(&self, network: Network) {
        self.state.network.store(network as u8, Ordering::SeqCst);
    }

    /// How many requests have passed, and bytes of them.
    pub(crate) fn passed(&self) -> (u64, u64) {
        let load = |it: &AtomicU64| it.load(Ordering::SeqCst);
        (load(&self.state.requests), load(&self.state.sent))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        // So that it is seen by who accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn accept(listener: &TcpListener, to: u16, state: &Arc<State>) {
    for client in listener.incoming() {
        if state.is_over.load(Ordering::SeqCst) {
            return;
        }
        let Ok(client) = client else { continue };
        if state.is_cut() {
            continue;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
        let (requests, answers) = (Arc::clone(state), Arc::clone(state));
        let (from, back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || pass(from, server, &requests, true));
        thread::spawn(move || pass(back, client, &answers, false));
    }
}

/// Passes bytes on until one side ends or the network is cut.
fn pass(mut from: TcpStream, mut to: TcpStream, state: &State, are_requests: bool) {
    from.set_read_timeout(Some(LOOK)).unwrap();
    let mut buffer = vec![0; 64 << 10];
    while !state.is_cut() {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => break,
        };
        while state.network() == Network::Stalled && !state.is_cut() {
            thread::sleep(LOOK);
        }
        if state.is_cut() || (state.network() == Network::Mute && !are_requests) {
            break;
        }
        if are_requests {
            let ends = buffer[..read].windows(11).filter(|it| it == b" HTTP/1.1\r\n").count();
            state.requests.fetch_add(ends as u64, Ordering::SeqCst);
            state.sent.fetch_add(read as u64, Ordering::SeqCst);
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
