//! Three ledgers that take turns behind the proxy, under load: the primary is handed over, killed,
//! paused and cut off. No request fails, and whatever was acknowledged is there, once, at all
//! three. `MONOLITE_TURNS` says how often each happens; the times without writes are printed.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::client::Client;
use crate::money::{Load, Money, Progress};
use crate::server::Program;

const LOAD: Load = Load { clients: 8, requests: 50 };

/// For how long the primary may be silent.
const LEASE: Duration = Duration::from_secs(2);

/// Longer than any change of the primary takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// What becomes of the primary.
#[derive(Debug, Clone, Copy)]
enum Fate {
    HandedOver,
    Killed,
    /// Until another one has taken over.
    Paused,
    /// From the proxy, and not from the store: no other one may take over.
    CutOff,
}

/// What is between the proxy and a ledger.
#[derive(Default)]
struct Wire {
    ledger: Mutex<String>,
    is_cut: AtomicBool,
}

impl Wire {
    /// A wire to nowhere yet, and where the proxy finds it.
    fn start() -> (Arc<Wire>, String) {
        let (wire, listener) = (Arc::<Wire>::default(), TcpListener::bind("127.0.0.1:0").unwrap());
        let (theirs, address) = (Arc::clone(&wire), listener.local_addr().unwrap().to_string());
        thread::spawn(move || {
            for proxy in listener.incoming().map(Result::unwrap) {
                let address = theirs.ledger.lock().unwrap().clone();
                let Ok(ledger) = TcpStream::connect(address) else { continue };
                let back = (ledger.try_clone().unwrap(), proxy.try_clone().unwrap());
                let is_dead = Arc::<AtomicBool>::default();
                for (from, to) in [(proxy, ledger), back] {
                    let (wire, is_dead) = (Arc::clone(&theirs), Arc::clone(&is_dead));
                    thread::spawn(move || wire.carry(from, to, &is_dead));
                }
            }
        });
        (wire, address)
    }

    /// A connection that was cut carries nothing afterwards either, and neither side hears of it.
    fn carry(&self, mut from: TcpStream, mut to: TcpStream, is_dead: &AtomicBool) {
        let mut bytes = [0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            is_dead.fetch_or(self.is_cut.load(Ordering::Relaxed), Ordering::Relaxed);
            if !is_dead.load(Ordering::Relaxed) && to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        if !is_dead.load(Ordering::Relaxed) {
            let _ = to.shutdown(Shutdown::Write);
        }
    }
}

/// Three ledgers with one archive.
struct Turns {
    programs: Vec<Program>,
    wires: Vec<Arc<Wire>>,
    proxy: Program,
    directory: TempDir,
}

impl Turns {
    fn start() -> Turns {
        let (wires, addresses): (Vec<_>, Vec<_>) = (0..3).map(|_| Wire::start()).unzip();
        let (directory, proxy) = (tempfile::tempdir().unwrap(), Program::proxy(&addresses));
        let mut turns = Turns { programs: Vec::new(), wires, proxy, directory };
        for at in 0..3 {
            let program = turns.begin(at);
            turns.programs.push(program);
        }
        turns
    }

    fn archive(&self) -> PathBuf {
        self.directory.path().join("archive")
    }

    fn base(&self, at: usize) -> String {
        format!("http://{}", self.wires[at].ledger.lock().unwrap())
    }

    /// Starts a ledger; again, when the archive does not say yet where its successor begins.
    fn begin(&self, at: usize) -> Program {
        let (archive, lease) = (self.archive(), LEASE.as_secs().to_string());
        let more = ["--archive", archive.to_str().unwrap(), "--lease", &lease];
        let database = self.directory.path().join(format!("{at}.db"));
        let start = || {
            let mut program = Program::start_with(&database, "127.0.0.1:0", &more);
            Some((program.listens()?, program))
        };
        let (base, program) = (0..100).find_map(|_| start()).expect("it starts");
        *self.wires[at].ledger.lock().unwrap() = base.replace("http://", "");
        program
    }

    /// Starts those that have ended, as a service manager does; the primary, once the others follow
    /// it.
    fn settled(&mut self) -> usize {
        let start = Instant::now();
        loop {
            for at in 0..3 {
                if self.programs[at].has_ended() {
                    self.programs[at] = self.begin(at);
                }
            }
            let roles = [0, 1, 2].map(|at| Client::new(&self.base(at)).get("/primary"));
            let roles = roles.map(|role| role.map_or(0, |role| role.status));
            let primary = roles.iter().position(|role| *role == 200);
            if let Some(primary) = primary.filter(|_| roles.iter().sum::<u16>() == 200 + 2 * 503) {
                return primary;
            }
            assert!(start.elapsed() < PATIENCE, "{roles:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Has the primary meet its fate, and hears what is acknowledged.
    fn meets(&self, primary: usize, fate: Fate, progress: &Progress) -> Vec<Instant> {
        let mut made: Vec<_> = progress.iter().take(LOAD.all() / 2).flatten().collect();
        let mut hear_for = |time: Duration| {
            let end = Instant::now() + time;
            while let Ok(ended) = progress.recv_timeout(end - Instant::now().min(end)) {
                made.extend(ended);
            }
        };
        let program = &self.programs[primary];
        match fate {
            Fate::HandedOver => program.tell_to_stop(),
            Fate::Killed => program.signal(Signal::KILL),
            Fate::Paused => {
                // Not where it has the lock of the directory's record.
                let lock = File::options().write(true).open(self.archive().join("monolite/lock"));
                let lock = lock.unwrap();
                lock.lock().unwrap();
                program.signal(Signal::STOP);
                hear_for(LEASE / 4);
                drop(lock);
                let next = progress.recv_timeout(PATIENCE).expect("another one takes over");
                made.extend(next);
                program.signal(Signal::CONT);
            }
            Fate::CutOff => {
                self.wires[primary].is_cut.store(true, Ordering::Relaxed);
                hear_for(LEASE * 3 / 2);
                self.wires[primary].is_cut.store(false, Ordering::Relaxed);
            }
        }
        made.extend(progress.iter().flatten());
        made
    }
}

#[test]
fn the_proxy_sends_again_only_what_has_an_id() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut proxy = Program::proxy(&[listener.local_addr().unwrap().to_string()]);
    let (tell, told) = channel();
    // A primary that never answers but for the second transfer.
    thread::spawn(move || {
        let mut transfers = 0;
        for mut proxy in listener.incoming().map(Result::unwrap) {
            let mut request = [0; 4 << 10];
            let count = proxy.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..count]);
            let what = request.split(' ').nth(1).unwrap_or_default().to_owned();
            let is_transfer = what == "/transfers";
            transfers += u8::from(is_transfer);
            if what == "/primary" || is_transfer && transfers == 2 {
                let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 11";
                let _ = write!(proxy, "{head}\r\n\r\n{{\"epoch\":1}}");
            }
            let _ = tell.send(what);
        }
    });
    let client = Client::new(&proxy.listening());
    let answers = ["/transfers", "/accounts"].map(|path| client.post(path, "{}").unwrap().status);
    assert_eq!(answers, [200, 502]);
    let sent = told.try_iter().filter(|what| what != "/primary");
    assert_eq!(sent.collect::<Vec<_>>(), ["/transfers", "/transfers", "/accounts"]);
}

#[test]
fn no_request_fails_and_nothing_is_lost_whatever_becomes_of_the_primary() {
    let often = std::env::var("MONOLITE_TURNS").ok().and_then(|it| it.parse().ok()).unwrap_or(1);
    let fates = [Fate::HandedOver, Fate::Killed, Fate::Paused, Fate::CutOff];
    let mut gaps = [const { Vec::new() }; 4];
    for _ in 0..often {
        let mut turns = Turns::start();
        let base = turns.proxy.listening();
        turns.settled();
        let mut money = Money::new(&base, LOAD);
        for (fate, gaps) in fates.into_iter().zip(&mut gaps) {
            let (primary, mut made) = (turns.settled(), Vec::new());
            let failed = money.run(&base, |progress| made = turns.meets(primary, fate, progress));
            assert_eq!((failed, money.audit(&base)), (0, Ok(())), "{fate:?}");
            made.sort_unstable();
            gaps.push(made.windows(2).map(|two| two[1] - two[0]).max().unwrap());
            println!("{fate:?}: {:.2?} without writes", gaps[gaps.len() - 1]);
        }
        let primary = turns.settled();
        let primary = turns.base(primary);
        for at in 0..3 {
            let start = Instant::now();
            while let Err(difference) = money.audit(&turns.base(at)) {
                assert!(start.elapsed() < PATIENCE, "ledger {at}: {difference}");
            }
            let refused = Client::new(&turns.base(at)).post("/accounts", "{}").unwrap();
            let says_where = refused.body.to_string().contains(&primary);
            assert_eq!(says_where, turns.base(at) != primary, "{refused:?}");
        }
    }
    println!("| of {often} each | without writes: p50 | max |\n|---|---|---|");
    for (fate, gaps) in fates.iter().zip(&mut gaps) {
        gaps.sort_unstable();
        println!("| {fate:?} | {:.2?} | {:.2?} |", gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    }
}
