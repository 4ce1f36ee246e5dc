//! Owns the one error type: a kind to act upon, and a sentence that says what is wrong.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

use monolite_ltx::TxidRange;

/// Result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an [`Error`].
///
/// The first four are of a store. **Of a write each of them leaves open whether it was done**: an
/// answer can be lost, and a request that was sent twice is refused the second time because of the
/// first. Read what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The object is there already, or is no longer the one that was to be replaced (412).
    Exists,
    /// Another conditional request was under way (409). Read, then try again.
    Conflict,
    /// The store asks for patience (429, 503). Try again later.
    Busy,
    /// No answer, or one that says nothing: a time-out, a reset connection, 500. Try again.
    Lost,
    /// The store does not know the credentials, or they do not allow this. Correct them.
    Denied,
    /// A local file cannot be read or written; [`Error::io`] is its error. Mend the system.
    Io,
    /// What is asked for is not in the archive, or no longer.
    NotFound,
    /// The chain of files has a hole: what lies behind it cannot be restored. A database that is
    /// open with the archive uploads a whole copy when it finds that; or take another copy of the
    /// archive.
    Gap,
    /// Bytes in the archive are not what was written there. Likewise.
    Corrupt,
    /// The archive has a form that this crate does not know. Use newer software.
    Unsupported,
    /// Another process is the primary. Go to the new one; nothing more may be written from here.
    Fenced,
    /// An argument or the order of calls breaks a rule. Nothing was done; correct the program.
    Invalid,
}

/// What went wrong. A clone is the same error.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<Source>,
    /// The level, TXIDs and length of the file of the archive that was being read.
    file: Option<(u8, TxidRange, u64)>,
}

enum Source {
    Io(io::Error),
    Ltx(monolite_ltx::Error),
}

impl Error {
    /// An error of `kind`, as a [`Store`](crate::Store) of one's own gives it.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::with(kind, message, None)
    }

    fn with(kind: ErrorKind, message: impl Into<String>, source: Option<Source>) -> Error {
        Error(Arc::new(Inner { kind, message: message.into(), source, file: None }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupt, message)
    }

    /// Of a failed call of the file system.
    pub(crate) fn of_io(doing: impl fmt::Display, source: io::Error) -> Error {
        Error::with(ErrorKind::Io, format!("cannot {doing}"), Some(Source::Io(source)))
    }

    /// Of a file of the archive, named by `what`. Whatever broke off the reading is kept as it was.
    pub(crate) fn of_ltx(what: impl fmt::Display, source: monolite_ltx::Error) -> Error {
        use monolite_ltx::ErrorKind as Ltx;
        let below = source.io().and_then(|error| error.get_ref()?.downcast_ref::<Error>());
        let kind = match (source.kind(), below) {
            (Ltx::Io, Some(below)) => below.kind(),
            (Ltx::Io, None) => ErrorKind::Io,
            (Ltx::Unsupported, _) => ErrorKind::Unsupported,
            (Ltx::Invalid, _) => ErrorKind::Invalid,
            _ => ErrorKind::Corrupt,
        };
        Error::with(kind, what.to_string(), Some(Source::Ltx(source)))
    }

    /// The same, of reading a file of this level, TXIDs and length.
    pub(crate) fn reading(mut self, file: (u8, TxidRange, u64)) -> Error {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.file = Some(file);
        }
        self
    }

    /// The file that was read, if what is wrong is that it is damaged or gone.
    pub(crate) fn lost(&self) -> Option<(u8, TxidRange, u64)> {
        let is_lost = self.is_about_content() || self.kind() == ErrorKind::NotFound;
        self.0.file.filter(|_| is_lost)
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        use ErrorKind::{Busy, Conflict, Exists, Io, Lost};
        matches!(self.kind(), Exists | Conflict | Busy | Lost | Io)
    }

    /// Whether it is about bytes that were read from the archive, and not about the reading.
    pub(crate) fn is_about_content(&self) -> bool {
        match &self.0.source {
            Some(Source::Ltx(error)) => error.io().is_none(),
            Some(Source::Io(_)) => false,
            None => self.kind() == ErrorKind::Corrupt,
        }
    }

    /// The error of the file system, if one is the cause.
    pub fn io(&self) -> Option<&io::Error> {
        match &self.0.source {
            Some(Source::Io(error)) => Some(error),
            Some(Source::Ltx(error)) => error.io(),
            None => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.message)?;
        match &self.0.source {
            Some(Source::Io(source)) if source.kind() == io::ErrorKind::PermissionDenied => {
                write!(
                    out,
                    ": {source}; give it to the user who runs this, or run this as its owner"
                )
            }
            Some(Source::Io(source)) => write!(out, ": {source}"),
            Some(Source::Ltx(source)) => write!(out, ": {source}"),
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
        match &self.0.source {
            Some(Source::Io(source)) => source.source(),
            Some(Source::Ltx(source)) => source.source(),
            None => None,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::other(error)
    }
}
