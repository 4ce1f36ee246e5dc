//! Owns idempotency keys: which commit of a pipeline a key goes with, and what is kept with it.
//!
//! # Format
//! The outcome of a key is JSON ([`Kept`]): a digest of the request, and what was answered up to
//! its commit. An answer of more than [`KEPT_BYTES`] is not kept.
//!
//! # Algorithm
//! 1. A pipeline with a key commits once. Its second commit is refused: a repetition could not tell
//!    whether it was done.
//! 2. A repetition takes the kept answers for its own, and runs only what follows the commit, which
//!    cannot commit either.
//!
//! # Invariants
//! - A key is stored in the transaction of its change, or not at all.
//! - A repetition is answered once the first is as durable as its answer says.
//! - Requests with one key run one after the other ([`crate::keys`]). So what is refused while its
//!   key is not stored has changed nothing, and nothing of it is under way.

use monolite::{Committed, Error, ErrorKind, Transaction, Tx};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Answer, Last, Stream};
use crate::databases::InUse;
use crate::errors::{Own, protocol_error};
use crate::hrana::{ProtocolError, StmtResult, StreamResponse};
use crate::replicas::not_primary;

/// Most bytes of answers that are kept with a key: a row of the database has them for a day.
const KEPT_BYTES: usize = 64 << 10;

/// Longest key; the engine's limit.
const KEY_BYTES: usize = 1_024;

/// Longer than any baton, so that a search for one takes no time.
const BATON_BYTES: usize = 128;

/// What has become of a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Outcome {
    Skipped,
    Done(StmtResult),
    Failed(ProtocolError),
}

impl Outcome {
    pub(super) fn of(result: Result<StmtResult, ProtocolError>) -> Outcome {
        result.map_or_else(Outcome::Failed, Outcome::Done)
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self, Outcome::Done(_))
    }

    /// That of a statement outside of a batch.
    pub(super) fn result(self) -> Result<StmtResult, ProtocolError> {
        match self {
            Outcome::Done(result) => Ok(result),
            Outcome::Failed(error) => Err(error),
            Outcome::Skipped => unreachable!("a statement has no condition"),
        }
    }
}

/// What a pipeline has answered so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// To its first requests.
    pub(super) results: Vec<Result<StreamResponse, ProtocolError>>,
    /// To the first steps of the request behind them; a statement is one step.
    pub(super) steps: Vec<Outcome>,
    last: Last,
    /// Whether the stream had set foreign keys off.
    #[serde(default)]
    is_without_keys: bool,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    request: String,
    /// A [`Record`], if it is small. Apart: another version may have kept it.
    record: Option<Box<RawValue>>,
}

/// A key, and of what request.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    text: String,
    request: String,
}

impl Key {
    /// That of the request with this `body`, which names `baton`, by a token with this `proof`.
    pub(crate) fn of(
        text: &[u8],
        proof: &str,
        body: &[u8],
        baton: Option<&str>,
    ) -> Result<Key, ProtocolError> {
        let text = std::str::from_utf8(text).unwrap_or_default();
        if !(1..=KEY_BYTES).contains(&text.len()) {
            let message = format!("Idempotency-Key must be UTF-8 of 1 to {KEY_BYTES} bytes");
            return Err(ProtocolError::new("IDEMPOTENCY_KEY_INVALID", message));
        }
        let baton = baton.map(str::as_bytes).filter(|it| (1..=BATON_BYTES).contains(&it.len()));
        let at = baton.and_then(|it| body.windows(it.len()).position(|part| part == it));
        // A transaction that runs again has another baton, and the same key if the client says so.
        let behind = at.map_or(body.len(), |at| at + baton.map_or(0, <[u8]>::len));
        let mut digest = Context::new(&SHA256);
        for part in [proof.as_bytes(), b"\0", &body[..at.unwrap_or(body.len())], &body[behind..]] {
            digest.update(part);
        }
        let bytes = digest.finish();
        let request = bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Key { text: text.to_owned(), request })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// What was answered up to the commit with this key, if there was one. A replica does not know:
    /// what it has streamed may be lost. It refuses what writes.
    pub(crate) async fn find(&self, database: &InUse) -> Result<Option<Record>, ProtocolError> {
        if database.follower().is_some() {
            return Ok(None);
        }
        let text = self.text.clone();
        let found = database.database().read_as_written(move |tx| tx.outcome_of(&text)).await;
        let found = found.map_err(|error| {
            let archive = database.database().stats().archive;
            not_found_out(&error, archive.and_then(|archive| archive.successor).as_deref())
        })?;
        let Some(outcome) = found else { return Ok(None) };
        let kept = serde_json::from_slice(&outcome).ok();
        let kept = kept.filter(|kept: &Kept| kept.request == self.request).ok_or_else(|| {
            let message = "another request was committed with this Idempotency-Key, or that of \
                           another token; give each its own";
            ProtocolError::new("IDEMPOTENCY_KEY_REUSED", message)
        })?;
        let record = kept.record.and_then(|record| serde_json::from_str(record.get()).ok());
        record.map(Some).ok_or_else(|| {
            let message = "the request was committed before; its answer was too large to be kept";
            ProtocolError::new("COMMITTED_BEFORE", message)
        })
    }
}

/// Why it is not known whether a key was committed with, where another primary is the `successor`.
fn not_found_out(error: &Error, successor: Option<&str>) -> ProtocolError {
    match (error.kind(), successor) {
        (ErrorKind::Fenced, _) => protocol_error(error),
        // What waits for the archive just then may be in it, so its outcome is unknown. The
        // successor knows.
        (_, Some(address)) => not_primary(address),
        (_, None) => {
            let message = format!("it is not known whether this was committed before: {error}");
            ProtocolError::new("INTERNAL", message)
        }
    }
}

/// The key of the pipeline under way.
pub(super) struct Once {
    key: Key,
    answer: Answer,
    /// Whether it was, or may have been, committed with a change.
    is_spent: bool,
}

/// A key on its way into a transaction.
pub(super) struct Keyed {
    key: Key,
    answer: Answer,
    before: Record,
}

impl Keyed {
    /// What is kept when the commit has answered so, and leaves that.
    fn outcome(&self, answered: impl FnOnce() -> (Vec<Outcome>, Last)) -> Vec<u8> {
        let record = (self.answer.bytes() <= KEPT_BYTES).then(|| {
            let (mut record, (steps, last)) = (self.before.clone(), answered());
            record.steps.extend(steps);
            serde_json::value::to_raw_value(&Record { last, ..record }).expect("it is plain data")
        });
        let record = record.filter(|record| record.get().len() <= KEPT_BYTES);
        let kept = Kept { request: self.key.request.clone(), record };
        serde_json::to_vec(&kept).expect("it is plain data")
    }
}

impl Stream {
    /// Has the next pipeline commit with `key`, or go on behind what it repeats.
    pub(crate) fn begin_once(&mut self, key: Key, known: Option<Record>, answer: &Answer) {
        self.once = Some(Once { key, answer: answer.clone(), is_spent: known.is_some() });
        if let Some(known) = &known {
            self.last = known.last;
            self.without_keys = known.is_without_keys.then(|| self.db.without_foreign_keys());
        }
        self.record = known.unwrap_or_default();
    }

    /// The key for a commit, if the pipeline has one. Fails for a second commit.
    pub(super) fn keyed(&self) -> Result<Option<Keyed>, ProtocolError> {
        let Some(Once { key, answer, is_spent }) = &self.once else { return Ok(None) };
        if *is_spent {
            let message = "the request has committed before this, and its Idempotency-Key is for \
                           one commit; send what follows in another request";
            return Err(ProtocolError::new("IDEMPOTENCY_KEY_SPENT", message));
        }
        let is_kept = answer.bytes() <= KEPT_BYTES;
        let mut before = if is_kept { self.record.clone() } else { Record::default() };
        before.is_without_keys = self.without_keys.is_some();
        Ok(Some(Keyed { key: key.clone(), answer: answer.clone(), before }))
    }

    /// Runs `body` as one write. With a key, what it has `answered` is kept.
    pub(super) async fn write<T: Send + 'static>(
        &mut self,
        keyed: Option<Keyed>,
        mut body: impl FnMut(&Tx<'_>) -> monolite::Result<T> + Send + 'static,
        answered: impl Fn(&T) -> (Vec<Outcome>, Last) + Send + 'static,
    ) -> monolite::Result<T> {
        self.has_written = true;
        let Some(keyed) = keyed else { return self.db().write(body).await };
        let write = self.db().write_keyed(keyed.key.text.clone(), move |tx| {
            let value = body(tx)?;
            let outcome = keyed.outcome(|| answered(&value));
            Ok((value, outcome))
        });
        let ended = write.await;
        self.spend(ended)
    }

    /// Commits `tx`. With a key, what it has `answered` is kept.
    pub(super) async fn commit_with(
        &mut self,
        keyed: Option<Keyed>,
        tx: Transaction,
        answered: Outcome,
    ) -> monolite::Result<()> {
        let Some(keyed) = keyed else { return tx.commit().await.map(drop) };
        let outcome = keyed.outcome(|| (vec![answered], self.last));
        let ended = tx.commit_once(keyed.key.text, outcome).await;
        self.spend(ended)
    }

    /// Notes how a commit with the key `ended`.
    fn spend<T>(&mut self, ended: monolite::Result<Committed<T>>) -> monolite::Result<T> {
        if let Some(once) = &mut self.once {
            once.is_spent = ended.as_ref().map_or_else(may_be_committed, |_| true);
        }
        match ended? {
            Committed::Now { value, .. } => Ok(value),
            // By another way into the database: the embedding program, or another process.
            Committed::Before { .. } => {
                let message = "another request has just committed with this Idempotency-Key";
                let error = ProtocolError::new("IDEMPOTENCY_KEY_REUSED", message);
                Err(Own::as_sqlite(error).into())
            }
        }
    }
}

/// Whether a commit that failed with `error` may have happened.
pub(super) fn may_be_committed(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::CommitUnknown | ErrorKind::Poisoned | ErrorKind::Fenced | ErrorKind::Internal
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetition_at_a_primary_that_was_just_replaced_is_sent_to_its_successor() {
        let error = |kind| Error::new(kind, "epoch 2 is the primary");
        let code = |kind, successor| not_found_out(&error(kind), successor).code;
        assert_eq!(code(ErrorKind::Fenced, None), "NOT_PRIMARY");
        let told = not_found_out(&error(ErrorKind::CommitUnknown), Some("https://next"));
        assert_eq!(told.code, "NOT_PRIMARY");
        assert!(told.message.contains("https://next"), "{}", told.message);
        assert_eq!(code(ErrorKind::CommitUnknown, None), "INTERNAL");
    }
}
