//! Owns what an error of PostgreSQL means for the caller: its kind among those of Monolite, and
//! whether the same transaction may be run again.

use deadpool_postgres::{PoolError, TimeoutType};
use monolite::rusqlite::{self, ffi};
use monolite::{Error, ErrorKind};
use tokio_postgres::error::{DbError, Severity, SqlState};

/// Why a statement or a transaction failed. Cloned for each later call of the transaction.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: ErrorKind,
    message: String,
    sql: Option<String>,
    /// Of a constraint.
    extended_code: Option<i32>,
    /// Whether the transaction changed nothing, and another attempt may succeed.
    pub(crate) may_repeat: bool,
    /// Whether the server has seen the statement; if not, the transaction goes on.
    pub(crate) was_sent: bool,
    /// Whether the connection is of no more use: gone, or to a server that only follows another.
    pub(crate) ends_connection: bool,
    /// Of a key of a commit: it was there already.
    pub(crate) is_unique_violation: bool,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Failure {
        let (message, may_repeat) = (message.into(), kind == ErrorKind::Conflict);
        Failure {
            kind,
            message,
            sql: None,
            extended_code: None,
            may_repeat,
            was_sent: true,
            ends_connection: false,
            is_unique_violation: false,
        }
    }

    /// Of a statement that is wrong before it is sent.
    pub(crate) fn not_sent(message: impl Into<String>) -> Failure {
        Failure { was_sent: false, ..Failure::new(ErrorKind::Invalid, message) }
    }

    /// Of a statement before COMMIT: whatever happened, nothing of its transaction remains.
    pub(crate) fn of_statement(error: &tokio_postgres::Error) -> Failure {
        match error.as_db_error() {
            Some(error) => Failure::of_server(error),
            None => Failure::lost(format!("the connection was lost: {}", whole(error))),
        }
    }

    /// Of COMMIT. PostgreSQL reports an ERROR only for a transaction that it has undone: once a
    /// commit is in its WAL, what fails is a PANIC, and ends the connection. Distributed databases
    /// have codes for an outcome that they do not know.
    pub(crate) fn of_commit(error: &tokio_postgres::Error) -> Failure {
        let undone = error.as_db_error().filter(|error| {
            let code = error.code().code();
            let is_unknown = code == "40003" || code.starts_with("08") || code.starts_with("XX");
            error.parsed_severity() == Some(Severity::Error) && !is_unknown
        });
        match undone {
            Some(error) => Failure::of_server(error),
            None => {
                let message = format!("the connection was lost after COMMIT: {}", whole(error));
                Failure::new(ErrorKind::CommitUnknown, message)
            }
        }
    }

    /// Of a connection that could not be had.
    pub(crate) fn of_pool(error: &PoolError) -> Failure {
        match error {
            PoolError::Timeout(TimeoutType::Wait) => {
                Failure::new(ErrorKind::Timeout, "all connections of the pool are in use")
            }
            PoolError::Closed => Failure::new(ErrorKind::Closed, "the database was closed"),
            PoolError::Backend(error) => Failure::lost(format!("cannot connect: {}", whole(error))),
            error => Failure::lost(format!("cannot connect: {error}")),
        }
    }

    /// Nothing was committed, and the server may be there again soon.
    fn lost(message: String) -> Failure {
        let failure = Failure::new(ErrorKind::Overloaded, message);
        Failure { may_repeat: true, ends_connection: true, ..failure }
    }

    fn of_server(error: &DbError) -> Failure {
        let code = error.code();
        let message = format!("{} (SQLSTATE {})", error.message(), code.code());
        let constraint = |extended_code| Failure {
            extended_code: Some(extended_code),
            is_unique_violation: *code == SqlState::UNIQUE_VIOLATION,
            ..Failure::new(ErrorKind::Constraint, message.clone())
        };
        let kind = match code.code() {
            "40001" | "40P01" => ErrorKind::Conflict,
            "23505" | "23P01" => return constraint(ffi::SQLITE_CONSTRAINT_UNIQUE),
            "23503" => return constraint(ffi::SQLITE_CONSTRAINT_FOREIGNKEY),
            "23514" => return constraint(ffi::SQLITE_CONSTRAINT_CHECK),
            "23502" => return constraint(ffi::SQLITE_CONSTRAINT_NOTNULL),
            "P0001" => return constraint(ffi::SQLITE_CONSTRAINT_TRIGGER),
            "57014" | "55P03" | "25P03" | "25P04" => ErrorKind::Timeout,
            "53100" => ErrorKind::Storage,
            "XX001" | "XX002" => ErrorKind::Corrupt,
            // A write in a read; or the server has become the follower of another one.
            "25006" => {
                let failure = Failure::new(ErrorKind::Invalid, message);
                return Failure { may_repeat: true, ends_connection: true, ..failure };
            }
            "57P01" | "57P02" | "57P03" => return Failure::lost(message),
            // Of a statement that the connection has prepared before the schema changed.
            "0A000" if message.contains("cached plan") => {
                let failure = Failure::new(ErrorKind::Conflict, message);
                return Failure { ends_connection: true, ..failure };
            }
            it => match &it[..2] {
                "08" => return Failure::lost(message),
                "23" => return constraint(ffi::SQLITE_CONSTRAINT),
                "53" => ErrorKind::Overloaded,
                "58" => ErrorKind::Storage,
                "XX" => ErrorKind::Internal,
                _ => ErrorKind::Invalid,
            },
        };
        Failure::new(kind, message)
    }

    pub(crate) fn in_statement(mut self, sql: &str) -> Failure {
        self.sql.get_or_insert_with(|| sql.to_owned());
        self
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// As the caller gets it.
    pub(crate) fn error(&self) -> Error {
        let error = match self.extended_code {
            Some(code) => {
                let message = Some(self.message.clone());
                rusqlite::Error::SqliteFailure(ffi::Error::new(code), message).into()
            }
            None => Error::new(self.kind, self.message.clone()),
        };
        match &self.sql {
            Some(sql) => error.in_statement(sql),
            None => error,
        }
    }
}

/// An error of the client with its cause, which it does not print.
fn whole(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
