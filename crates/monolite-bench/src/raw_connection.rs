//! Raw SQLite connections, opened the way the benchmark compares with: the limit to reach.
//!
//! They get what the engine gives itself: process-private locks (`unix-excl`, so the wal-index is
//! in the heap and an autocommit read takes no file lock), a page cache of the same size, WAL, and
//! checkpoints inside the timed window at the same WAL size.

use anyhow::{Context, Result};
use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Page cache of the one writing connection, raw or ours: the engine's default. The hot set of the
/// published draw is about 10 MiB, so both hold all of it; the rest takes a batch's dirty pages.
pub const WRITER_CACHE_BYTES: u64 = 256 << 20;

/// Page cache of a reading connection, raw or ours: the engine's default.
pub const READER_CACHE_BYTES: u64 = 16 << 20;

/// A checkpoint begins when the WAL has this share of the engine's limit, for the engine by its own
/// rule and for raw connections by `wal_autocheckpoint`, so that both write a hot page to the
/// database equally seldom. SQLite's default of 1,000 pages would checkpoint after every batch, and
/// would make raw slower than it can be.
pub const CHECKPOINT_SHARE: u64 = 4;

/// However large the limit, the engine begins to checkpoint at this size of the WAL.
pub const CHECKPOINT_MOST: u64 = 128 << 20;

const PAGE_BYTES: u64 = 4096;

/// What an acknowledgement means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The transaction was synced to the device before it was acknowledged.
    Durable,
    /// The transaction was committed, and is synced some time later.
    Buffered,
}

impl Durability {
    pub const ALL: [Durability; 2] = [Durability::Durable, Durability::Buffered];

    /// Returns what an acknowledgement means, as a report says it.
    pub fn meaning(self) -> &'static str {
        match self {
            Durability::Durable => "committed and synced to the device",
            Durability::Buffered => "committed, not yet synced (survives a crash of the process)",
        }
    }

    /// Returns the setting of the engine that means the same.
    pub fn of_engine(self) -> monolite::Durability {
        match self {
            Durability::Durable => monolite::Durability::Synced,
            Durability::Buffered => monolite::Durability::Buffered,
        }
    }

    /// Returns SQLite's setting of that name.
    pub fn synchronous(self) -> &'static str {
        match self {
            Durability::Durable => "FULL",
            Durability::Buffered => "NORMAL",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Durable => "durable",
            Durability::Buffered => "buffered",
        })
    }
}

/// How a raw connection is set.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What a commit means.
    pub durability: Durability,
    /// Page cache.
    pub cache_bytes: u64,
    /// Size of the WAL at which a commit checkpoints.
    pub checkpoint_wal_bytes: u64,
}

impl Settings {
    /// Returns the settings as pragmas.
    pub fn pragmas(self) -> String {
        format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {}; PRAGMA cache_size = -{}; \
             PRAGMA wal_autocheckpoint = {}",
            self.durability.synchronous(),
            self.cache_bytes / 1024,
            self.checkpoint_wal_bytes / PAGE_BYTES,
        )
    }
}

/// Opens a raw connection with these settings.
pub fn open(path: &Path, settings: Settings) -> Result<Connection> {
    set(open_bare(path)?, path, settings)
}

/// Opens a database with these settings where another process has it open, too.
pub fn open_beside_others(path: &Path, settings: Settings) -> Result<Connection> {
    let connection = Connection::open(path);
    set(connection.with_context(|| format!("cannot open {}", path.display()))?, path, settings)
}

fn set(connection: Connection, path: &Path, settings: Settings) -> Result<Connection> {
    connection
        .execute_batch(&settings.pragmas())
        .with_context(|| format!("cannot set pragmas on {}", path.display()))?;
    Ok(connection)
}

/// Returns how often the WAL was restarted since it was made, which is how often a checkpoint was
/// completed and written over: the checkpoint sequence number in the WAL's header.
pub fn wal_restarts(database: &Path) -> u64 {
    let mut header = [0; 16];
    let read = File::open(wal_path(database)).and_then(|mut wal| wal.read_exact(&mut header));
    let [.., a, b, c, d] = header;
    read.map_or(0, |()| u64::from(u32::from_be_bytes([a, b, c, d])))
}

/// Opens a raw connection on `unix-excl` and sets nothing.
pub fn open_bare(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags_and_vfs(path, flags, c"unix-excl")
        .with_context(|| format!("cannot open {}", path.display()))
}

/// Returns the path of a database's write-ahead log.
pub fn wal_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Returns the size of the WAL file. SQLite restarts a WAL without truncating it, so this is also
/// its largest size since it was opened.
pub fn wal_bytes(database: &Path) -> u64 {
    std::fs::metadata(wal_path(database)).map_or(0, |file| file.len())
}

/// Removes a database and what is beside it, so that a trial begins with none.
pub fn remove(database: &Path) -> Result<()> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = database.as_os_str().to_owned();
        name.push(suffix);
        match std::fs::remove_file(&name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).context("cannot remove a database");
            }
            _ => {}
        }
    }
    Ok(())
}
