//! Owns what is said of a database file in a format that is newer than the SQLite at hand.
//!
//! # Format
//! The header of a database (<https://sqlite.org/fileformat2.html#the_database_header>) has three
//! numbers for it: byte 18, what is needed to write the file, and byte 19, what is needed to read
//! it (1 for a rollback journal, 2 for a WAL), and the four bytes at 44, big-endian, the format of
//! the schema (1 to 4). SQLite opens a file with a larger one for reading, takes it for no
//! database, or says "unsupported file format", and in no case which number it was.

use rusqlite::{ErrorCode, MAIN_DB, Result, ffi};

use crate::codes::failure;
use crate::header::{HEADER_BYTES, MAGIC};
use crate::vfs::read_database_at;

/// What byte 18 and byte 19 are at most.
const NEWEST_FILE: u8 = 2;

/// What the number at [`SCHEMA_AT`] is at most.
const NEWEST_SCHEMA: u32 = 4;

const SCHEMA_AT: usize = 44;

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
