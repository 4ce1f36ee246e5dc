//! Owns the threads that write the pages of a restore, and bring them to disk, while others are
//! decoded.
//!
//! # Algorithm
//! Pages are gathered in batches of [`GATHERED`] bytes, each with where its runs of neighbours go.
//! [`BATCHES`] go round between the decoder and the thread that writes: one is filled, the others
//! wait or are written. After each [`SYNCED`] bytes the other thread is told to sync the file, so
//! that little is left to be brought to disk at the end.
//!
//! # Invariants
//! [`sync`](Writer::sync) returns success only for data on disk: each batch and each sync reports
//! its result. The kernel reports a disk error once, to the next sync, so no other thread may sync
//! meanwhile; after [`sync`](Writer::sync) that thread is idle until a page is put.

use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{Builder, Scope};

use crate::error::{Error, ErrorKind, Result};

/// How many bytes of pages go to the thread at once.
const GATHERED: usize = 1 << 20;

/// How many batches there are.
const BATCHES: usize = 4;

/// After how many bytes that were written the file is synced, unless it is being synced.
const SYNCED: usize = 32 << 20;

/// Writes pages to a file.
#[derive(Debug)]
pub(super) struct Writer {
    /// What is filled.
    batch: Batch,
    batches: SyncSender<Batch>,
    written: Receiver<io::Result<Batch>>,
    /// How many the thread has that writes.
    under_way: usize,
    syncs: SyncSender<Asked>,
    synced: Receiver<(Asked, io::Result<()>)>,
}

/// Who asked for a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// The thread that writes, in passing.
    Ahead,
    /// The decoder, which waits for it.
    Now,
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
        let (batches, to_write) = sync_channel(BATCHES);
        let (to_tell, written) = sync_channel(BATCHES);
        let (syncs, to_sync) = sync_channel(1);
        let (to_tell_sync, synced) = channel();
        let ahead = syncs.clone();
        let write = move || write(file, &to_write, &to_tell, &ahead);
        let sync = move || {
            for asked in to_sync {
                if to_tell_sync.send((asked, file.sync_data())).is_err() {
                    return;
                }
            }
        };
        let named = |name: &str| Builder::new().name(name.into());
        let writes = named("restore-write").spawn_scoped(scope, write);
        writes.map_err(|error| Error::of_io("begin a thread that writes", error))?;
        let brings = named("restore-sync").spawn_scoped(scope, sync);
        brings.map_err(|error| Error::of_io("begin a thread that syncs", error))?;
        Ok(Writer { batch: Batch::default(), batches, written, under_way: 0, syncs, synced })
    }

    /// Takes a page that goes to byte `offset`.
    pub(super) fn put(&mut self, offset: u64, page: &[u8]) -> Result<()> {
        self.batch.put(offset, page);
        if self.batch.bytes.len() >= GATHERED {
            self.hand_over()?;
        }
        Ok(())
    }

    /// Waits until everything is on disk that was [`put`](Writer::put).
    pub(super) fn sync(&mut self) -> Result<()> {
        self.hand_over()?;
        while self.under_way > 0 {
            self.take_back()?;
        }
        self.syncs.send(Asked::Now).map_err(|_| gone())?;
        loop {
            let (asked, synced) = self.synced.recv().map_err(|_| gone())?;
            synced.map_err(|error| Error::of_io("sync the output", error))?;
            if asked == Asked::Now {
                return Ok(());
            }
        }
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

/// Writes batches until there will be none any more.
fn write(
    file: &File,
    batches: &Receiver<Batch>,
    written: &SyncSender<io::Result<Batch>>,
    syncs: &SyncSender<Asked>,
) {
    let mut unsynced = 0;
    for batch in batches {
        unsynced += batch.bytes.len();
        let is_written = batch.write(file);
        // Before it is told: then it is before what is asked for after that.
        if unsynced >= SYNCED && syncs.try_send(Asked::Ahead).is_ok() {
            unsynced = 0;
        }
        if written.send(is_written).is_err() {
            return;
        }
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
    Error::new(ErrorKind::Lost, "a thread that writes the output is gone")
}

#[cfg(test)]
mod tests;
