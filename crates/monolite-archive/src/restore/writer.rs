//! Owns the thread that writes the pages of a restore, while those that come next are decoded.
//!
//! # Algorithm
//! Pages are gathered in batches of [`GATHERED`] bytes, each with where its runs of neighbours go.
//! [`BATCHES`] go round between the two threads: one is filled, the others wait or are written.
//!
//! # Invariants
//! What [`settle`](Writer::settle) has said is written was written: of each batch it is told how it
//! went, in their order, and after an error the writer is not asked again.

use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope};

use crate::error::{Error, ErrorKind, Result};

/// How many bytes of pages go to the thread at once.
const GATHERED: usize = 1 << 20;

/// How many batches there are.
const BATCHES: usize = 4;

/// Writes pages to a file.
#[derive(Debug)]
pub(super) struct Writer {
    /// What is filled.
    batch: Batch,
    batches: SyncSender<Batch>,
    written: Receiver<io::Result<Batch>>,
    /// How many the thread has.
    under_way: usize,
}

/// Pages, and where they go.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Of each run of neighbours: where it begins in the file, and its length.
    runs: Vec<(u64, usize)>,
}

impl Writer {
    /// # Errors
    /// [`Io`](ErrorKind::Io) when no thread can be begun.
    pub(super) fn begin<'scope>(
        scope: &'scope Scope<'scope, '_>,
        file: &'scope File,
    ) -> Result<Writer> {
        let (batches, to_write) = sync_channel::<Batch>(BATCHES);
        let (to_tell, written) = sync_channel(BATCHES);
        let write = move || {
            for batch in to_write {
                if to_tell.send(batch.write(file)).is_err() {
                    return;
                }
            }
        };
        let begun = Builder::new().name("monolite-restore".into()).spawn_scoped(scope, write);
        begun.map_err(|error| Error::of_io("begin a thread that writes", error))?;
        Ok(Writer { batch: Batch::default(), batches, written, under_way: 0 })
    }

    /// Takes a page that goes to byte `offset`.
    pub(super) fn put(&mut self, offset: u64, page: &[u8]) -> Result<()> {
        self.batch.put(offset, page);
        if self.batch.bytes.len() >= GATHERED {
            self.hand_over()?;
        }
        Ok(())
    }

    /// Waits until everything was written that was [`put`](Writer::put).
    pub(super) fn settle(&mut self) -> Result<()> {
        self.hand_over()?;
        while self.under_way > 0 {
            self.take_back()?;
        }
        Ok(())
    }

    /// Gives the batch to the thread, and takes another one to be filled.
    fn hand_over(&mut self) -> Result<()> {
        let next = match self.under_way {
            0..BATCHES => Batch::default(),
            _ => self.take_back()?,
        };
        let batch = mem::replace(&mut self.batch, next);
        self.batches.send(batch).map_err(|_| gone())?;
        self.under_way += 1;
        Ok(())
    }

    /// Waits for the batch that the thread has had for longest.
    fn take_back(&mut self) -> Result<Batch> {
        let written = self.written.recv().map_err(|_| gone())?;
        self.under_way -= 1;
        written.map_err(|error| Error::of_io("write the output", error))
    }
}

impl Batch {
    fn put(&mut self, offset: u64, page: &[u8]) {
        match self.runs.last_mut() {
            Some((start, len)) if *start + *len as u64 == offset => *len += page.len(),
            _ => self.runs.push((offset, page.len())),
        }
        self.bytes.extend_from_slice(page);
    }

    /// Writes it. The result is an empty one with the same memory.
    fn write(mut self, file: &File) -> io::Result<Batch> {
        let mut rest = &self.bytes[..];
        for (offset, len) in self.runs.drain(..) {
            let (run, others) = rest.split_at(len);
            file.write_all_at(run, offset)?;
            rest = others;
        }
        self.bytes.clear();
        Ok(self)
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Lost, "the thread that writes the output is gone")
}

#[cfg(test)]
mod tests;
