//! Owns standard output, to which results go, and what happens when its reader is gone.
//!
//! A reader that has seen enough (`monolite archive list … | head -1`) is no failure to be told of:
//! the command ends there, without a word, and with the exit code of a program that the signal has
//! ended ([`READER_GONE`]).

use std::error::Error;
use std::fmt;
use std::io::{self, StdoutLock, Write};

/// As a shell tells it of a program that SIGPIPE has ended: 128 and the number of the signal.
pub(crate) const READER_GONE: u8 = 128 + 13;

/// Standard output, while a result is printed.
pub(crate) struct Out(StdoutLock<'static>);

/// Begins to print a result.
pub(crate) fn stdout() -> Out {
    Out(io::stdout().lock())
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(marked)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(marked)
    }
}

/// The reader of standard output is gone.
#[derive(Debug)]
struct ReaderGone;

impl fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reader of the output is gone")
    }
}

impl Error for ReaderGone {}

/// Another pipe that breaks, as to a server, is an error like others: so this one gets a mark.
fn marked(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(error.kind(), ReaderGone),
        _ => error,
    }
}

/// Whether a command ended because the reader of its output is gone.
pub(crate) fn reader_is_gone(error: &anyhow::Error) -> bool {
    let is_mark = |error: &io::Error| error.get_ref().is_some_and(|inner| inner.is::<ReaderGone>());
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(is_mark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn only_the_pipe_of_standard_output_is_the_reader_s() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let of = |error: io::Error| Err::<(), _>(error).context("telling so failed").unwrap_err();
        assert!(reader_is_gone(&of(marked(broken()))));
        assert!(!reader_is_gone(&of(broken())));
        assert!(!reader_is_gone(&of(marked(io::ErrorKind::StorageFull.into()))));
    }
}
