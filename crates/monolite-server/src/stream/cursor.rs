//! Owns cursors: a batch whose rows are sent as they come.
//!
//! # Algorithm
//! Outside of a transaction the rows of a `SELECT` go from the reader's thread into a channel that
//! holds [`AHEAD`] entries; the reader waits for the client, [`STALL`] at most. The rows of any
//! other statement are gathered first, up to the limit of a response, so that neither the writer
//! nor a transaction waits for a client.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Answer, Prepared, Reading, Stored, Stream, column, columns_of, prepare};
use crate::errors::{Own, protocol_error};
use crate::hrana::{Batch, CursorEntry, EncodedRow, Encoding, ProtocolError, Step, StmtResult};

/// Entries that are ready before the client takes them.
pub(crate) const AHEAD: usize = 256;

/// How long a reader waits for a client that takes no entry.
const STALL: Duration = Duration::from_secs(5);

/// Where the entries go.
pub(crate) type Entries = mpsc::Sender<CursorEntry>;

impl Stream {
    /// Runs a batch, and sends what it gives to `entries` until their receiver is gone.
    pub(crate) async fn cursor(
        &mut self,
        batch: Batch,
        stored: &Stored,
        encoding: Encoding,
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
            let done = match prepare(stmt, stored, encoding, &Answer::default()) {
                Ok(what) => self.cursor_step(step, Arc::new(what), entries).await,
                Err(error) => Err(error),
            };
            succeeded.push(done.is_ok());
            let last = match done {
                Ok(Some(end)) => end,
                Ok(None) => return,
                Err(error) => CursorEntry::StepError { step, error: self.explained(error) },
            };
            if entries.send(last).await.is_err() {
                return;
            }
        }
        let _ = entries.send(CursorEntry::ReplicationIndex).await;
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
        let StmtResult { cols, rows, affected_row_count, last_insert_rowid, .. } =
            self.execute(what).await?;
        if entries.send(CursorEntry::StepBegin { step, cols }).await.is_err() {
            return Ok(None);
        }
        for row in rows.into_rows() {
            if entries.send(CursorEntry::Row(row)).await.is_err() {
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
            let send = |entry| {
                // The timer is made inside: it looks for the runtime of its thread.
                let sent = async { timeout(STALL, entries.send(entry)).await };
                let sent = runtime.block_on(sent);
                sent.ok().and_then(Result::ok).ok_or_else(|| {
                    let message = format!("the client took no row for {} s", STALL.as_secs());
                    Own::as_sqlite(ProtocolError::new("CURSOR_STALLED", message))
                })
            };
            let ran = tx.run(&what.sql, &what.parameters, (), |(), row| {
                if !has_begun {
                    send(CursorEntry::StepBegin { step, cols: columns_of(row) })?;
                    has_begun = true;
                }
                if what.wants_rows {
                    let count = row.as_ref().column_count();
                    let row = EncodedRow::new(what.encoding, row, count);
                    let row = row.map_err(|invalid| Own::as_sqlite(invalid.into()))?;
                    send(CursorEntry::Row(row))?;
                }
                Ok(())
            })?;
            if !has_begun {
                let cols = ran.columns.into_iter().map(column).collect();
                send(CursorEntry::StepBegin { step, cols })?;
            }
            Ok(())
        });
        read.await.map_err(|error| protocol_error(&error))?;
        Ok(CursorEntry::StepEnd { affected_row_count: 0, last_insert_rowid: None })
    }
}
