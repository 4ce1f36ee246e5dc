//! Owns what the answer to one request takes, and what its request took.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::hrana::{Column, ProtocolError, StmtResult};
use crate::memory::{Memory, SMALL, Taken, no_memory};

/// Most bytes of the rows and columns in the answer to one request.
pub(crate) const ANSWER_BYTES: usize = 10 << 20;

/// What a column takes in an answer beside its texts.
const COLUMN_BYTES: usize = 32;

/// How many bytes the statements of one request have put into its answer, and the memory of both.
/// Each statement has a clone: the engine may have a statement for longer than its client stays.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    bytes: Arc<AtomicUsize>,
    of_request: Arc<Mutex<Vec<Taken>>>,
    /// What an answer that is not small takes, as it grows.
    taken: Arc<Mutex<Option<Taken>>>,
    /// Of which it takes; `None` for a program that embeds the server.
    memory: Option<Memory>,
}

impl Answer {
    /// The answer to a request that takes `of_request`; takes of `memory`.
    pub(crate) fn to(of_request: Vec<Taken>, memory: &Memory) -> Answer {
        let (of_request, memory) = (Arc::new(Mutex::new(of_request)), Some(memory.clone()));
        Answer { of_request, memory, ..Answer::default() }
    }

    /// An answer with figures of its own, to the same request.
    pub(super) fn apart(&self) -> Answer {
        let (of_request, memory) = (Arc::clone(&self.of_request), self.memory.clone());
        Answer { of_request, memory, ..Answer::default() }
    }

    /// Takes `bytes` more for the request.
    pub(super) fn charge(&self, bytes: usize) -> Result<(), ProtocolError> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let taken = memory.take_now(bytes).ok_or_else(no_memory)?;
        self.of_request.lock().unwrap_or_else(PoisonError::into_inner).push(taken);
        Ok(())
    }

    /// What the answer takes, to be kept for what is made of it.
    pub(super) fn release(&self) -> Option<Taken> {
        self.taken().take()
    }

    fn taken(&self) -> MutexGuard<'_, Option<Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees that an answer of `bytes` is not too much, and takes memory for it. It does not wait:
    /// what waits would be in memory already.
    pub(super) fn reserve(&self, bytes: usize) -> Result<(), ProtocolError> {
        if bytes > ANSWER_BYTES {
            return Err(too_large());
        }
        match &self.memory {
            Some(memory) if bytes > SMALL => memory.top_up(&mut self.taken(), bytes),
            _ => Ok(()),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Back to an earlier figure, as the statements since then run again.
    pub(super) fn set_back(&self, bytes: usize) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Adds what a statement gives, unless it is too much.
    pub(super) fn add(&self, result: &StmtResult) -> Result<(), ProtocolError> {
        let bytes = self.bytes() + result.rows.bytes() + column_bytes(&result.cols);
        self.reserve(bytes)?;
        self.bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }
}

pub(super) fn column_bytes(columns: &[Column]) -> usize {
    let texts = |column: &Column| {
        column.name.len() + column.decltype.as_ref().map_or(0, String::len) + COLUMN_BYTES
    };
    columns.iter().map(texts).sum()
}

fn too_large() -> ProtocolError {
    let message = format!("the answer has over {ANSWER_BYTES} bytes; select less at once");
    ProtocolError::new("RESPONSE_TOO_LARGE", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_takes_memory_as_it_grows_and_its_request_keeps_its_own() {
        let memory = Memory::of(1 << 20);
        let of_request = memory.take_now(512 << 10).expect("it is there");
        let answer = Answer::to(vec![of_request], &memory);
        let statement = answer.clone();
        assert_eq!(answer.charge(600 << 10).map_err(|error| error.code), Err("OVERLOADED".into()));
        answer.reserve(SMALL).expect("small ones take nothing");
        answer.reserve(300 << 10).expect("it is there");
        let refused = answer.reserve(900 << 10).expect_err("others have it");
        assert_eq!(refused.code, "OVERLOADED");
        let refused = answer.reserve(ANSWER_BYTES + 1).expect_err("it is too much");
        assert_eq!(refused.code, "RESPONSE_TOO_LARGE");
        // The engine has a statement still.
        drop((answer.release(), answer));
        assert!(memory.take_now(513 << 10).is_none());
        drop(statement);
        assert!(memory.take_now(1 << 20).is_some());
    }
}
