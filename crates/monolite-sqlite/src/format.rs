//! Owns what is said of a database file in a format that is newer than the SQLite at hand.
//!
//! # Format
//! The header of a database (<https://sqlite.org/fileformat2.html#the_database_header>) has three
//! numbers for it: byte 18, what is needed to write the file, and byte 19, what is needed to read
//! it (1 for a rollback journal, 2 for a WAL), and the four bytes at 44, big-endian, the format of
//! the schema (1 to 4). SQLite opens a file with a larger one for reading, takes it for no
//! database, or says "unsupported file format", and in no case which number it was.

use std::fs;
use std::path::Path;

use rusqlite::{ErrorCode, MAIN_DB, Result, ffi};

use crate::codes::failure;
use crate::header::{HEADER_BYTES, MAGIC};
use crate::vfs::read_database_at;
use crate::wal::{FRAME_HEADER_BYTES, WAL_HEADER_BYTES};

/// What byte 18 and byte 19 are at most.
const NEWEST_FILE: u8 = 2;

/// What the number at [`SCHEMA_AT`] is at most.
const NEWEST_SCHEMA: u32 = 4;

const SCHEMA_AT: usize = 44;

/// What byte 18 and byte 19 are in a file that has no WAL.
const ROLLBACK_JOURNAL: [u8; 2] = [1, 1];

/// The smallest page of a database.
const LEAST_PAGE_BYTES: u64 = 512;

/// Looks whether the file of a writer or inspector that was `set` up is in a newer format: where
/// SQLite has refused it, and where it would only read it.
///
/// # Errors
/// `SQLITE_ERROR` with the reason, when it is; that of `set` otherwise.
pub(crate) fn check(connection: &rusqlite::Connection, set: Result<()>) -> Result<()> {
    let is_doubtful = match &set {
        Ok(()) => connection.is_readonly(MAIN_DB)?,
        Err(error) => matches!(
            error.sqlite_error_code(),
            Some(
                ErrorCode::NotADatabase
                    | ErrorCode::ReadOnly
                    | ErrorCode::CannotOpen
                    | ErrorCode::Unknown
            )
        ),
    };
    let mut header = [0; HEADER_BYTES];
    if is_doubtful
        && read_database_at(connection, &mut header, 0).is_ok()
        && let Some(newer) = newer(&header)
    {
        return Err(failure(ffi::SQLITE_ERROR, newer));
    }
    set
}

/// Sees whether a WAL with frames can be that of the file at `path`, which `connection` has opened
/// and not read: SQLite's first look would replay it.
///
/// A file whose header says "rollback journal", as every copy of `copy` does, has no
/// WAL. To enter WAL mode, SQLite writes the header through the rollback journal, and puts no frame
/// in a WAL before that is committed. To leave it, it copies all frames into the file and deletes
/// the WAL before it writes the header (`OP_JournalMode`, `sqlite3BtreeSetVersion`). A crash within
/// leaves a hot journal for the header, and no frame that the file lacks. So frames beside such a
/// file are another database's, or copied already, with or without a journal.
///
/// # Errors
/// `SQLITE_CANTOPEN` when it is not.
pub(crate) fn check_wal(connection: &rusqlite::Connection, path: &Path) -> Result<()> {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    let wal = Path::new(&wal);
    let least = WAL_HEADER_BYTES + FRAME_HEADER_BYTES + LEAST_PAGE_BYTES;
    let has_frames = || fs::metadata(wal).is_ok_and(|meta| meta.len() >= least);
    let mut header = [0; HEADER_BYTES];
    let is_foreign = has_frames()
        && read_database_at(connection, &mut header, 0).is_ok()
        && header.starts_with(MAGIC)
        && header[18..20] == ROLLBACK_JOURNAL
        // Another process may just have left WAL mode.
        && has_frames();
    if !is_foreign {
        return Ok(());
    }
    let (path, wal) = (path.display(), wal.display());
    let text = format!(
        "the WAL {wal} is of another database than {path}, which has none, as a backup: to use \
         {path}, delete or move {wal}; if the WAL has what you need, put the database it belongs \
         to back in place"
    );
    Err(failure(ffi::SQLITE_CANTOPEN, text))
}

/// Says what is newer in a database header than this SQLite knows, if anything is.
fn newer(header: &[u8; HEADER_BYTES]) -> Option<String> {
    let schema = header[SCHEMA_AT..SCHEMA_AT + 4].try_into().map_or(0, u32::from_be_bytes);
    let found = match (header[18], header[19]) {
        _ if !header.starts_with(MAGIC) => return None,
        (_, read) if read > NEWEST_FILE => {
            format!("read version (byte 19) is {read}, and {NEWEST_FILE}")
        }
        (write, _) if write > NEWEST_FILE => {
            format!("write version (byte 18) is {write}, and {NEWEST_FILE}")
        }
        _ if schema > NEWEST_SCHEMA => {
            format!("schema format (byte 44) is {schema}, and {NEWEST_SCHEMA}")
        }
        _ => return None,
    };
    Some(format!(
        "it is in a newer file format: its {found} is the newest that SQLite {} supports; open it \
         with a newer SQLite, or dump it with the one that wrote it (if none did, its header is \
         damaged: restore a backup)",
        rusqlite::version()
    ))
}

#[test]
fn only_numbers_beyond_the_newest_are_newer() {
    let mut header = [0; HEADER_BYTES];
    header[..16].copy_from_slice(MAGIC);
    (header[18], header[19], header[47]) = (2, 2, 4);
    assert_eq!(newer(&header), None);
    for (at, found) in [
        (18, "write version (byte 18) is 3, and 2"),
        (19, "read version (byte 19) is 3, and 2"),
        (47, "schema format (byte 44) is 5, and 4"),
    ] {
        let mut newer_one = header;
        newer_one[at] += 1;
        let said = newer(&newer_one).expect("it is newer");
        assert!(said.contains(found), "{said}");
        newer_one[0] = 0;
        assert_eq!(newer(&newer_one), None, "it is no database");
    }
}
