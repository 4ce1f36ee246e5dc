//! Owns cursors: a batch whose rows are sent as they come.
//!
//! # Algorithm
//! Outside of a transaction the rows of a `SELECT` go from the reader's thread into a channel that
//! holds [`AHEAD`] bytes, or one row; the reader waits for the client, [`STALL`] at most. The rows
//! of any other statement are gathered first, up to the limit of a response, so that neither the
//! writer nor a transaction waits for a client. Large rows take of the memory of all requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Answer, Prepared, Reading, Stored, Stream, column, column_bytes, columns_of, prepare};
use crate::control::Control;
use crate::errors::{Own, protocol_error};
use crate::hrana::{Batch, CursorEntry, EncodedRow, Encoding, ProtocolError, Step, StmtResult};
use crate::memory::{Memory, SMALL, Taken, part};

/// Bytes of the entries that are ready before the client takes them; an entry counts for a KiB at
/// least.
const AHEAD: usize = 256 << 10;

/// How long a reader waits for a client that takes no entry.
const STALL: Duration = Duration::from_secs(5);

/// An entry, with its part of [`AHEAD`], and what a large one takes until it is sent.
pub(crate) type Entry = (CursorEntry, Taken, Option<Taken>);

/// Where the entries go.
#[derive(Clone)]
pub(crate) struct Entries {
    send: mpsc::UnboundedSender<Entry>,
    ahead: Memory,
    /// That of all requests.
    memory: Memory,
}

/// The client takes no more entries.
struct Gone;

impl Entries {
    pub(crate) fn new(memory: &Memory) -> (Entries, mpsc::UnboundedReceiver<Entry>) {
        let (send, sent) = mpsc::unbounded_channel();
        (Entries { send, ahead: Memory::of(AHEAD), memory: memory.clone() }, sent)
    }

    /// Sends `entry`, for which `taken` was taken, when there is room.
    async fn send(&self, entry: CursorEntry, taken: Option<Taken>) -> Result<(), Gone> {
        let bytes = match &entry {
            CursorEntry::Row(row) => row.bytes(),
            CursorEntry::StepBegin { cols, .. } => column_bytes(cols),
            CursorEntry::StepError { error, .. } => error.message.len(),
            _ => 0,
        };
        let ahead = self.ahead.take_for_answer(bytes.max(1)).await;
        self.send.send((entry, ahead, taken)).map_err(|_| Gone)
    }

    /// Sends the error that ends the batch, now.
    pub(crate) fn fail(&self, error: ProtocolError) {
        if let Some(ahead) = self.ahead.take_now(0) {
            let _ = self.send.send((CursorEntry::Error { error }, ahead, None));
        }
    }
}

impl Stream {
    /// Whether `batch` may write, or commit what was written before.
    pub(crate) fn may_write_by(&self, batch: &Batch) -> bool {
        let reads = |sql: &str| Reading::of(sql) == Reading::Yes || Control::of(sql).is_some();
        let reads = |step: &Step| step.stmt.sql.as_deref().is_some_and(reads);
        self.refusal.is_none() && !(self.is_autocommit() && batch.steps.iter().all(reads))
    }

    /// Runs a batch, and sends what it gives to `entries` until their receiver is gone.
    pub(crate) async fn cursor(
        &mut self,
        batch: Batch,
        stored: &Stored,
        encoding: Encoding,
        answer: &Answer,
        entries: &Entries,
    ) {
        let mut succeeded = Vec::with_capacity(batch.steps.len());
        for (number, Step { condition, stmt }) in batch.steps.into_iter().enumerate() {
            let step = number as u32;
            let is_due = condition.is_none_or(|it| it.holds(&succeeded, self.is_autocommit()));
            if !is_due {
                succeeded.push(false);
                continue;
            }
            // Its answer is sent piece by piece.
            let done = match prepare(stmt, stored, encoding, &answer.apart()) {
                Ok(what) => self.cursor_step(step, Arc::new(what), entries).await,
                Err(error) => Err(error),
            };
            succeeded.push(done.is_ok());
            let last = match done {
                Ok(Some(end)) => end,
                Ok(None) => return,
                Err(error) => CursorEntry::StepError { step, error: self.explained(error) },
            };
            if entries.send(last, None).await.is_err() {
                return;
            }
        }
        let _ = entries.send(CursorEntry::ReplicationIndex, None).await;
    }

    /// The end of a step; `None` if the receiver is gone.
    async fn cursor_step(
        &mut self,
        step: u32,
        what: Arc<Prepared>,
        entries: &Entries,
    ) -> Result<Option<CursorEntry>, ProtocolError> {
        let streams = self.is_autocommit()
            && what.control.is_none()
            && Reading::of(&what.sql) == Reading::Yes;
        if streams {
            return self.stream_rows(step, what, entries.clone()).await.map(Some);
        }
        let answer = what.answer.clone();
        let StmtResult { cols, rows, affected_row_count, last_insert_rowid, .. } =
            self.execute(what).await?;
        let mut taken = answer.release();
        if entries.send(CursorEntry::StepBegin { step, cols }, None).await.is_err() {
            return Ok(None);
        }
        for row in rows.into_rows() {
            let of_row = taken.as_mut().filter(|_| row.bytes() > SMALL);
            let of_row = of_row.map(|all| part(all, row.bytes()));
            if entries.send(CursorEntry::Row(row), of_row).await.is_err() {
                return Ok(None);
            }
        }
        Ok(Some(CursorEntry::StepEnd { affected_row_count, last_insert_rowid }))
    }

    async fn stream_rows(
        &self,
        step: u32,
        what: Arc<Prepared>,
        entries: Entries,
    ) -> Result<CursorEntry, ProtocolError> {
        let runtime = Handle::current();
        let read = self.db.read_durable(move |tx| {
            let mut has_begun = false;
            let send = |entry, bytes| {
                // The timer is made inside: it looks for the runtime of its thread.
                let sent = async {
                    let taken = match bytes {
                        0..=SMALL => None,
                        large => Some(entries.memory.take(large).await?),
                    };
                    let sent = timeout(STALL, entries.send(entry, taken)).await;
                    sent.ok().and_then(Result::ok).ok_or_else(|| {
                        let message = format!("the client took no row for {} s", STALL.as_secs());
                        ProtocolError::new("CURSOR_STALLED", message)
                    })
                };
                runtime.block_on(sent).map_err(Own::as_sqlite)
            };
            let ran = tx.run(&what.sql, &what.parameters, (), |(), row| {
                if !has_begun {
                    send(CursorEntry::StepBegin { step, cols: columns_of(row) }, 0)?;
                    has_begun = true;
                }
                if what.wants_rows {
                    let count = row.as_ref().column_count();
                    let row = EncodedRow::new(what.encoding, row, count);
                    let row = row.map_err(|invalid| Own::as_sqlite(invalid.into()))?;
                    let bytes = row.bytes();
                    send(CursorEntry::Row(row), bytes)?;
                }
                Ok(())
            })?;
            if !has_begun {
                let cols = ran.columns.into_iter().map(column).collect();
                send(CursorEntry::StepBegin { step, cols }, 0)?;
            }
            Ok(())
        });
        read.await.map_err(|error| protocol_error(&error))?;
        Ok(CursorEntry::StepEnd { affected_row_count: 0, last_insert_rowid: None })
    }
}
