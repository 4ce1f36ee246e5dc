//! A proxy before PostgreSQL that behaves as networks do, and as the documents of other databases
//! with its protocol say.
//!
//! # Algorithm
//! It reads the client's messages up to the next question (a simple query, or what ends with Sync),
//! and sends the server another question instead, as the [`Profile`] says: one that raises the
//! error wanted. So the server's own state is that of a transaction with this error. Answers are
//! copied.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::Result;

/// What the proxy does. Where it is a matter of chance, one question in eight is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Nothing.
    Plain,
    /// 40001 instead of any answer, also to BEGIN and COMMIT.
    Conflicts,
    /// 40001 instead of the answer to COMMIT, as optimistic databases do.
    CommitConflicts,
    /// The connection ends when COMMIT was sent: before the server has it, after, or when the
    /// server has answered.
    CutsAtCommit,
    /// Each connection ends when the server has its COMMIT.
    CutsEachCommit,
    /// SAVEPOINT is refused, as by Aurora DSQL.
    NoSavepoints,
    /// Sequences have gaps, as with CockroachDB's cached ones.
    Gaps,
    /// SERIALIZABLE becomes snapshot isolation (REPEATABLE READ), which Aurora DSQL has alone.
    Snapshot,
}

/// A fault for so many questions.
const ONE_IN: u8 = 8;

/// A running proxy; it ends with the process.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    server: u16,
    profile: Mutex<Profile>,
    faults: AtomicU64,
}

impl Proxy {
    /// Starts one before the server at a port of loopback, without faults.
    pub fn start(server: u16) -> Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let profile = Mutex::new(Profile::Plain);
        let shared = Arc::new(Shared { server, profile, faults: AtomicU64::new(0) });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&of_thread);
                thread::spawn(move || serve(client, &shared));
            }
        });
        Ok(Proxy { port, shared })
    }

    /// Returns the port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Has it behave so from now on.
    pub fn set(&self, profile: Profile) {
        *self.shared.profile.lock().expect("no thread panics while holding it") = profile;
    }

    /// Returns how many questions it has changed.
    pub fn faults(&self) -> u64 {
        self.shared.faults.load(Ordering::Relaxed)
    }
}

/// What becomes of a question.
enum Fate {
    Pass,
    Instead(String),
    CutBefore,
    CutAfter,
    /// When the server has answered.
    CutInstead,
}

/// One client's connection. An error ends it.
fn serve(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.server))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let is_mute = Arc::new(AtomicBool::new(false));
    let (answers, to, of_thread) = (server.try_clone()?, client.try_clone()?, Arc::clone(&is_mute));
    thread::spawn(move || copy(answers, to, &of_thread));
    let done = pass_questions(&mut client, &mut server, shared, &is_mute);
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
    done
}

fn pass_questions(
    client: &mut TcpStream,
    server: &mut TcpStream,
    shared: &Shared,
    is_mute: &AtomicBool,
) -> io::Result<()> {
    // The first message has no type.
    server.write_all(&body(client)?)?;
    let mut question = Vec::new();
    loop {
        let mut kind = [0];
        client.read_exact(&mut kind)?;
        let message = body(client)?;
        let text = (kind[0] == b'Q').then(|| String::from_utf8_lossy(&message[4..]).into_owned());
        question.extend_from_slice(&kind);
        question.extend_from_slice(&message);
        let is_whole = matches!(kind[0], b'Q' | b'S');
        let fate =
            if is_whole { shared.fate(text.as_deref().unwrap_or_default()) } else { Fate::Pass };
        if !is_whole && kind[0] != b'X' {
            continue;
        }
        if !matches!(fate, Fate::Pass) {
            shared.faults.fetch_add(1, Ordering::Relaxed);
        }
        match fate {
            Fate::Pass => server.write_all(&question)?,
            Fate::Instead(sql) => server.write_all(&simple(&sql))?,
            Fate::CutBefore => return Ok(()),
            Fate::CutAfter => return server.write_all(&question),
            Fate::CutInstead => {
                is_mute.store(true, Ordering::Relaxed);
                server.write_all(&question)?;
            }
        }
        question.clear();
    }
}

impl Shared {
    /// Decides about a question; `text` is that of a simple one.
    fn fate(&self, text: &str) -> Fate {
        let is_met = fastrand::u8(..ONE_IN) == 0;
        let text = text.trim_end_matches('\0');
        let (is_commit, is_begin) = (text.starts_with("COMMIT"), text.starts_with("BEGIN"));
        let profile = *self.profile.lock().expect("no thread panics while holding it");
        match profile {
            Profile::Conflicts | Profile::CommitConflicts if is_commit && is_met => {
                Fate::Instead(format!("ROLLBACK; {}", raise("40001")))
            }
            Profile::Conflicts if is_met && !is_commit && !text.starts_with("ROLLBACK") => {
                Fate::Instead(raise("40001"))
            }
            Profile::CutsAtCommit if is_commit && is_met => match fastrand::u8(..3) {
                0 => Fate::CutBefore,
                1 => Fate::CutAfter,
                _ => Fate::CutInstead,
            },
            Profile::CutsEachCommit if is_commit => Fate::CutAfter,
            Profile::NoSavepoints if text.starts_with("SAVEPOINT") => Fate::Instead(raise("0A000")),
            // A transaction that only reads may not take numbers.
            Profile::Gaps if is_begin && is_met => Fate::Instead(format!(
                "{text}; DO $$ BEGIN IF NOT current_setting('transaction_read_only')::bool THEN \
                 PERFORM nextval(oid) FROM pg_class WHERE relkind = 'S'; END IF; END $$"
            )),
            Profile::Snapshot if is_begin => {
                Fate::Instead(text.replace("SERIALIZABLE", "REPEATABLE READ"))
            }
            _ => Fate::Pass,
        }
    }
}

fn raise(code: &str) -> String {
    format!("DO $$ BEGIN RAISE EXCEPTION 'by the proxy' USING ERRCODE = '{code}'; END $$")
}

/// A message without its type: its length, and what is in it.
fn body(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = vec![0; 4];
    from.read_exact(&mut message)?;
    let length = u32::from_be_bytes([message[0], message[1], message[2], message[3]]);
    message.resize((length as usize).max(4), 0);
    from.read_exact(&mut message[4..])?;
    Ok(message)
}

fn simple(sql: &str) -> Vec<u8> {
    let length = u32::try_from(sql.len() + 5).expect("it is short");
    [b"Q", &length.to_be_bytes()[..], sql.as_bytes(), b"\0"].concat()
}

/// Copies answers until one end is gone, or the client is not to have the next one.
fn copy(mut from: TcpStream, mut to: TcpStream, is_mute: &AtomicBool) {
    let mut bytes = [0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        if is_mute.load(Ordering::Relaxed) || to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
