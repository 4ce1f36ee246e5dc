//! The child that is killed, cut off or made to stand still: it writes numbered transactions, as
//! [`super::super::writing`] does, to a database with an archive under the weather.
//!
//! What its parent says: a [`Weather`](super::weather::Weather); `tell`, upon which it says a
//! [`Status`]; `rest`, upon which it writes no more; and its end, upon which it closes.

use std::fmt;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, anyhow};
use monolite::{Database, Durability, Options};
use monolite_archive::{Archive, Layout};
use monolite_testkit::child::{Child, Program, heard, say, variable};

use super::gateless::Gateless;
use super::weather::{Habit, Outside};
use crate::checks::writing::{WAL_LIMIT_BYTES, Work, close};

/// The child's role.
pub(super) const ROLE: &str = "writes with an archive";

/// Has a child write no more.
pub(super) const REST: &str = "rest";

/// Has a child say how far it is.
pub(super) const TELL: &str = "tell";

/// Page caches that hold far less than is written, so that memory tells what an archive holds.
const CACHE_BYTES: u64 = 2 << 20;

/// How long a close goes on uploading: whatever the weather was, all of it.
const CLOSE: Duration = Duration::from_secs(120);

/// How often a child fills a slot whose followers stream: what they have is mostly not archived.
const INTERVAL: Duration = Duration::from_secs(5);

/// What both sides of a stream know.
pub(super) const SECRET: &[u8] = b"a secret of the torture";

/// What is broken in a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrangement {
    /// Nothing.
    Sound,
    /// The WAL begins anew without having been read.
    WithoutGate,
    /// See [`Habit::TrustsItsLease`].
    LeaseOnly,
}

impl Arrangement {
    fn name(self) -> &'static str {
        match self {
            Arrangement::Sound => "sound",
            Arrangement::WithoutGate => "without gate",
            Arrangement::LeaseOnly => "lease only",
        }
    }
}

/// What a child is told at its start.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    pub(super) file: PathBuf,
    pub(super) archive: PathBuf,
    /// The first of its numbers.
    pub(super) first: i64,
    /// Bytes in each of the three parts of a transaction.
    pub(super) filling: usize,
    pub(super) durability: Durability,
    pub(super) takes_over: bool,
    /// Bytes that may be kept beside the database, and whether writes are refused beyond them.
    pub(super) staged_limit: u64,
    pub(super) refuses_gaps: bool,
    pub(super) arrangement: Arrangement,
}

impl Orders {
    /// Starts a child.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub(super) fn spawn(&self, program: &Program) -> Result<Child> {
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is not text");
        let (file, archive) = (text(&self.file)?, text(&self.archive)?);
        let (first, filling) = (self.first.to_string(), self.filling.to_string());
        let staged_limit = self.staged_limit.to_string();
        let (durability, stream) = match self.durability {
            Durability::Archived => ("archived", String::new()),
            // Each has a port of its own: the one before may live on.
            Durability::Replicated(_) => {
                let free = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
                ("replicated", free.context("no port is free")?.to_string())
            }
            _ => ("synced", String::new()),
        };
        let flag = |is: bool| if is { "true" } else { "false" };
        let variables = [
            ("FILE", file.as_str()),
            ("ARCHIVE", &archive),
            ("FIRST", &first),
            ("FILLING", &filling),
            ("DURABILITY", durability),
            ("STREAM", &stream),
            ("TAKES_OVER", flag(self.takes_over)),
            ("STAGED_LIMIT", &staged_limit),
            ("REFUSES_GAPS", flag(self.refuses_gaps)),
            ("HOW", self.arrangement.name()),
        ];
        program.spawn(ROLE, &variables)
    }
}

/// How far a child is with its archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) staged_bytes: u64,
    pub(super) lag_ms: u64,
    /// Whether a copy of the whole database is due.
    pub(super) copies: bool,
    pub(super) is_restorable: bool,
    /// What went wrong last, if that has not succeeded since.
    pub(super) error: String,
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Status { staged_bytes, lag_ms, copies, is_restorable, error } = self;
        write!(out, "{staged_bytes} {lag_ms} {copies} {is_restorable} {error}")
    }
}

impl FromStr for Status {
    type Err = Error;

    fn from_str(text: &str) -> Result<Status> {
        let mut words = text.splitn(5, ' ');
        let mut next = || words.next().context("a status has five words");
        Ok(Status {
            staged_bytes: next()?.parse()?,
            lag_ms: next()?.parse()?,
            copies: next()?.parse()?,
            is_restorable: next()?.parse()?,
            error: next()?.to_owned(),
        })
    }
}

impl Status {
    fn of(db: &Database) -> Status {
        let stats = db.stats().archive.unwrap_or_default();
        Status {
            staged_bytes: stats.staged_bytes,
            lag_ms: stats.lag_ms,
            copies: stats.copies_because.is_some(),
            is_restorable: stats.is_restorable,
            error: stats.last_error.unwrap_or_default().replace('\n', " "),
        }
    }
}

/// Plays the role.
pub(super) fn play() -> Result<()> {
    let how: String = variable("HOW")?;
    let is_lease_only = how == Arrangement::LeaseOnly.name();
    let habit = if is_lease_only { Habit::TrustsItsLease } else { Habit::Sound };
    let outside = Outside::new(&variable::<PathBuf>("ARCHIVE")?, habit);
    let archive = Archive::of(outside.store.clone(), Layout::directory())
        .close_time(CLOSE)
        .take_over(variable("TAKES_OVER")?)
        .staged_limit_bytes(variable("STAGED_LIMIT")?)
        .refuse_gaps(variable("REFUSES_GAPS")?);
    let (durability, archive) = match variable::<String>("DURABILITY")?.as_str() {
        "archived" => (Durability::Archived, archive),
        "replicated" => {
            let archive = archive.interval(INTERVAL);
            let address: String = variable("STREAM")?;
            (Durability::Replicated(1), archive.stream_to(&address, SECRET))
        }
        _ => (Durability::Synced, archive),
    };
    let options = Options::new()
        .wal_limit_bytes(WAL_LIMIT_BYTES)
        .writer_cache_bytes(CACHE_BYTES)
        .reader_cache_bytes(CACHE_BYTES)
        .durability(durability);
    let options = if how == Arrangement::WithoutGate.name() {
        options.archive(Gateless(archive))
    } else {
        options.archive(archive)
    };
    let (is_over, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::new()));
    let (told, db) = (Arc::clone(&is_over), Arc::clone(&opened));
    let parent = thread::spawn(move || obey(&outside, &db, &told));
    let db = options.open(variable::<String>("FILE")?)?;
    let db = opened.get_or_init(|| db);
    let (first, filling) = (variable("FIRST")?, variable("FILLING")?);
    let work = Work { first, filling, says_early: false, is_mixed: false };
    work.run(db, &|| is_over.load(Ordering::Relaxed))?;
    parent.join().map_err(|_| anyhow!("what the parent says was not understood"))?;
    close(db)
}

/// Does what the parent says, until that has nothing more to say.
fn obey(outside: &Outside, db: &OnceLock<Database>, is_over: &AtomicBool) {
    for line in heard() {
        match (line.as_str(), db.get()) {
            (REST, _) => is_over.store(true, Ordering::Relaxed),
            (TELL, Some(db)) => say(&format!("status {}", Status::of(db))),
            (TELL, None) => say("status 0 0 true false it is not open yet"),
            (weather, _) => outside.turns(weather.parse().expect("nothing else is said")),
        }
    }
    is_over.store(true, Ordering::Relaxed);
}
