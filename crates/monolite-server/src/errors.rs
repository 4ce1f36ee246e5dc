//! Owns what a client is told of an error: the engine's kinds as codes of SQLite, which clients and
//! their frameworks know, and the server's own codes where SQLite has none.

use monolite::ErrorKind;
use monolite_sqlite::rusqlite::ffi;

use crate::hrana::ProtocolError;

/// What SQLite says of a statement that it would not take, in its own words.
pub(crate) fn sqlite_error(message: &str) -> ProtocolError {
    ProtocolError::new("SQLITE_ERROR", message)
}

/// A write by a token that may only read.
pub(crate) fn read_only(remedy: &str) -> ProtocolError {
    ProtocolError::new("SQLITE_READONLY", format!("attempt to write a readonly database; {remedy}"))
}

/// The engine's `error` for a client.
pub(crate) fn protocol_error(error: &monolite::Error) -> ProtocolError {
    if let Some(own) = own_error(error) {
        return own;
    }
    let extended = error.extended_code();
    let name_of_primary = || extended.and_then(|code| name(code & 0xff)).unwrap_or("SQLITE_ERROR");
    let offset = error.sql_offset();
    let (code, extended_code) = match error.kind() {
        ErrorKind::Conflict => ("SQLITE_BUSY", Some("SQLITE_BUSY_SNAPSHOT")),
        ErrorKind::Overloaded => ("SQLITE_BUSY", Some("OVERLOADED")),
        ErrorKind::Timeout => ("SQLITE_INTERRUPT", None),
        ErrorKind::Constraint => ("SQLITE_CONSTRAINT", extended.and_then(name)),
        ErrorKind::Invalid if extended.is_some_and(|code| code & 0xff == ffi::SQLITE_AUTH) => {
            ("BLOCKED", None)
        }
        ErrorKind::Invalid if is_of_arguments(error) => ("ARGS_INVALID", None),
        ErrorKind::Invalid if offset.is_some() => ("SQL_INPUT_ERROR", None),
        ErrorKind::CommitUnknown => ("SQLITE_IOERR", Some("COMMIT_UNKNOWN")),
        // It names the new primary, as a replica's refusal does.
        ErrorKind::Fenced => ("NOT_PRIMARY", None),
        ErrorKind::Poisoned | ErrorKind::Closed => ("SQLITE_IOERR", None),
        ErrorKind::Aborted => ("SQLITE_ABORT", Some("SQLITE_ABORT_ROLLBACK")),
        _ => (name_of_primary(), extended.and_then(name)),
    };
    let said = match error.kind() {
        // It may have words of the client's own.
        ErrorKind::Constraint => error.message().to_owned(),
        _ => for_client(error.message()),
    };
    let message = match (error.kind(), offset) {
        _ if code == "SQLITE_READONLY" => "attempt to write a readonly database".to_owned(),
        // Wrappers that retry match these three words.
        (ErrorKind::Conflict, _) => format!("database is locked: {said}"),
        (_, Some(offset)) => format!("{said} (at offset {offset})"),
        _ => said,
    };
    ProtocolError {
        message,
        code: code.to_owned(),
        extended_code: extended_code.filter(|extended| *extended != code).map(str::to_owned),
        offset,
    }
}

/// What the engine says, without what is for a program in Rust or its operator: the API, options,
/// lines of the source; and without who else runs what.
fn for_client(message: &str) -> String {
    let is_ours = |part: &str| ["::", "closure", "option "].iter().any(|it| part.contains(it));
    // Behind these words there is a caller, with the line of its source, and its SQL.
    let caller = message.find(".rs:").and_then(|at| message[..at].rfind(" by "));
    let mut parts = message[..caller.unwrap_or(message.len())].split("; ");
    let first = parts.next().unwrap_or_default();
    let first = first.split(": the closure").next().unwrap_or(first);
    let parts: Vec<&str> = [first].into_iter().chain(parts.filter(|it| !is_ours(it))).collect();
    let said = parts.join("; ");
    let mut rest = said.split(" (");
    let mut kept = rest.next().unwrap_or_default().to_owned();
    for part in rest {
        match part.split_once(')') {
            Some((inside, behind)) if is_ours(inside) => kept.push_str(behind),
            _ => kept.extend([" (", part]),
        }
    }
    kept
}

/// Whether the values did not fit the statement. Python's client has an exception for that.
fn is_of_arguments(error: &monolite::Error) -> bool {
    use monolite_sqlite::rusqlite::Error::InvalidParameterCount;
    let is_range = error.extended_code() == Some(ffi::SQLITE_RANGE);
    is_range || matches!(error.sqlite(), Some(InvalidParameterCount(..)))
}

/// What a closure of the server's has failed with, which the engine passes on as it is.
pub(crate) fn own_error(error: &monolite::Error) -> Option<ProtocolError> {
    use monolite_sqlite::rusqlite::Error::UserFunctionError;
    match error.sqlite()? {
        UserFunctionError(cause) => cause.downcast_ref::<Own>().map(|own| own.0.clone()),
        _ => None,
    }
}

/// An error of the server's own, on its way through a closure.
#[derive(Debug)]
pub(crate) struct Own(ProtocolError);

impl Own {
    pub(crate) fn as_sqlite(error: ProtocolError) -> monolite_sqlite::rusqlite::Error {
        monolite_sqlite::rusqlite::Error::UserFunctionError(Box::new(Own(error)))
    }
}

impl std::fmt::Display for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Own {}

/// The name of a result code, primary or extended, of those that a client may see.
fn name(code: i32) -> Option<&'static str> {
    macro_rules! names {
        ($($name:ident)*) => {
            match code { $(ffi::$name => Some(stringify!($name)),)* _ => None }
        };
    }
    names!(
        SQLITE_ERROR SQLITE_PERM SQLITE_ABORT SQLITE_BUSY SQLITE_LOCKED SQLITE_NOMEM
        SQLITE_READONLY SQLITE_INTERRUPT SQLITE_IOERR SQLITE_CORRUPT SQLITE_FULL SQLITE_CANTOPEN
        SQLITE_SCHEMA SQLITE_TOOBIG SQLITE_CONSTRAINT SQLITE_MISMATCH SQLITE_MISUSE SQLITE_AUTH
        SQLITE_RANGE SQLITE_NOTADB
        SQLITE_CONSTRAINT_CHECK SQLITE_CONSTRAINT_COMMITHOOK SQLITE_CONSTRAINT_DATATYPE
        SQLITE_CONSTRAINT_FOREIGNKEY SQLITE_CONSTRAINT_FUNCTION SQLITE_CONSTRAINT_NOTNULL
        SQLITE_CONSTRAINT_PRIMARYKEY SQLITE_CONSTRAINT_ROWID SQLITE_CONSTRAINT_TRIGGER
        SQLITE_CONSTRAINT_UNIQUE SQLITE_CONSTRAINT_VTAB SQLITE_BUSY_SNAPSHOT
        SQLITE_ABORT_ROLLBACK SQLITE_CORRUPT_VTAB SQLITE_CORRUPT_INDEX
    )
}

#[cfg(test)]
mod tests {
    use super::for_client;

    #[test]
    fn a_client_is_told_neither_of_the_api_nor_of_others() {
        for (engine, client) in [
            ("no such table: t", "no such table: t"),
            (
                "no such function: f; one of the application is added by \
                 Options::connection_setup, each time that the database is opened",
                "no such function: f",
            ),
            (
                "attempt to write a readonly database; a read changes nothing: use Database::write",
                "attempt to write a readonly database",
            ),
            (
                "BEGIN is refused: the closure is the transaction; return Ok to commit it and an \
                 error to roll it back (an interactive one: Transaction::commit)",
                "BEGIN is refused",
            ),
            (
                "the read was ended: it may take 30.0s (Database::with_time_limit), and took \
                 longer or would have; its slowest statement took 30.0s: SELECT max(x) FROM n",
                "the read was ended: it may take 30.0s, and took longer or would have; its slowest \
                 statement took 30.0s: SELECT max(x) FROM n",
            ),
            (
                "the archive lags 7.0s behind, and may lag 5.0s (Archive::lag_limit): no answer; \
                 nothing was written: try again when the archive has caught up",
                "the archive lags 7.0s behind, and may lag 5.0s: no answer; nothing was written: \
                 try again when the archive has caught up",
            ),
            (
                "no reader connection was free within 5.0s (option read_time_limit): all 8 readers \
                 and their spares are busy, one for 3.0s by web (crates/monolite-server/src/\
                 stream.rs:449), running `SELECT secret; SELECT`; end long reads, or raise the \
                 option readers",
                "no reader connection was free within 5.0s: all 8 readers and their spares are \
                 busy, one for 3.0s",
            ),
        ] {
            assert_eq!(for_client(engine), client);
        }
    }
}
