//! Owns the one error type: a kind to act upon, and a sentence that says what is wrong and where.

use std::error::Error as StdError;
use std::fmt;
use std::io;

/// Result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The reader or writer underneath failed; [`Error::io`] is its error. Try again, or mend it.
    Io,
    /// The file ends before it is whole. Fetch it again; if it stays so, take another copy.
    Truncated,
    /// The file is LTX of a version or with a feature that this crate does not know. Read it with
    /// newer software.
    Unsupported,
    /// The bytes are no LTX file, or one that was changed since it was written. Take another copy.
    Corrupt,
    /// An argument breaks a rule of the format. Nothing was written; correct the program.
    Invalid,
}

/// What went wrong, and at which byte of the file.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    offset: Option<u64>,
    message: String,
    source: Option<io::Error>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Box::new(Inner { kind, offset: None, message: message.into(), source: None }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn corrupt(offset: u64, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupt, message).at(offset)
    }

    pub(crate) fn truncated(offset: u64, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Truncated, message).at(offset)
    }

    /// Of a failed read or write at `offset` of the file.
    pub(crate) fn of_io(offset: u64, doing: &str, source: io::Error) -> Error {
        let mut error = Error::new(ErrorKind::Io, format!("cannot {doing}")).at(offset);
        error.0.source = Some(source);
        error
    }

    /// The same at `offset`, unless it already says where.
    pub(crate) fn at(mut self, offset: u64) -> Error {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// The same with words before it that say what it is about.
    pub(crate) fn about(mut self, what: &str) -> Error {
        self.0.message = format!("{what}: {}", self.0.message);
        self
    }

    /// What the data is to blame for and not the caller.
    pub(crate) fn of_data(mut self) -> Error {
        if self.0.kind == ErrorKind::Invalid {
            self.0.kind = ErrorKind::Corrupt;
        }
        self
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The byte of the file, counted from 0, where what is wrong begins or was noticed; `None` when
    /// it is no matter of one place.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// The error of the reader or writer underneath, if one is the cause.
    pub fn io(&self) -> Option<&io::Error> {
        self.0.source.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.message)?;
        if let Some(offset) = self.0.offset {
            write!(out, ", at byte {offset}")?;
        }
        match &self.0.source {
            Some(source) => write!(out, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}: {self}", self.0.kind)
    }
}

impl StdError for Error {
    /// What its own cause has come of: that one is in the text already.
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().and_then(StdError::source)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match error.kind() {
            ErrorKind::Io => error.io().map_or(io::ErrorKind::Other, io::Error::kind),
            ErrorKind::Truncated => io::ErrorKind::UnexpectedEof,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::Corrupt => io::ErrorKind::InvalidData,
            ErrorKind::Invalid => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}
