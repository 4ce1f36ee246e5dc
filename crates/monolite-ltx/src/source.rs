//! Reads exact lengths, counts bytes, and says where a file ends too early.

use std::io::{ErrorKind as IoErrorKind, Read};

use crate::error::{Error, Result};

/// A reader that knows where it is.
#[derive(Debug)]
pub(crate) struct Source<R> {
    reader: R,
    offset: u64,
}

impl<R: Read> Source<R> {
    /// `reader` stands at byte `offset` of the file.
    pub(crate) fn new(reader: R, offset: u64) -> Source<R> {
        Source { reader, offset }
    }

    pub(crate) fn reader(&self) -> &R {
        &self.reader
    }

    /// The byte of the file that comes next.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Fills `buffer`; `what` is the part of the file that it is.
    pub(crate) fn fill(&mut self, buffer: &mut [u8], what: &str) -> Result<()> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.reader.read(rest) {
                Ok(0) => {
                    let message = format!("the file ends within {what}");
                    return Err(Error::truncated(self.offset, message));
                }
                Ok(n) => {
                    filled += n;
                    self.offset = self.offset.saturating_add(n as u64);
                }
                Err(error) if error.kind() == IoErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Error::of_io(self.offset, &format!("read {what}"), error));
                }
            }
        }
        Ok(())
    }

    /// The next bytes, as an array.
    pub(crate) fn take<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    /// Fails unless nothing follows.
    pub(crate) fn end(&mut self) -> Result<()> {
        let offset = self.offset;
        match self.take::<1>("nothing") {
            Ok(_) => Err(Error::corrupt(offset, "bytes behind the end of the file")),
            Err(error) if error.kind() == crate::ErrorKind::Truncated => Ok(()),
            Err(error) => Err(error),
        }
    }
}
