//! Owns the wish of a client to have foreign keys off. It is a setting of one stream, and a client
//! that opens a stream for each statement loses it without a word: what it sends next would drop a
//! table with foreign keys on, and with it the rows that reference it.
//!
//! So a wish is noted for the database until a stream makes use of it. Until then, for
//! [`LASTS`], transactions of other streams are to the engine those of a client that was refused
//! the wish: they may not drop a table that others reference.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use monolite::{Parameters, ReadTx};

/// What the engine refuses in a transaction, and remembers.
pub(crate) const OFF: &str = "PRAGMA foreign_keys = OFF";

/// How long a client has to send its rebuild.
const LASTS: Duration = Duration::from_secs(60);

/// When a stream of the database wished for foreign keys to be off, and has not made use of it.
#[derive(Debug, Default)]
pub(crate) struct Wish(Mutex<Option<Instant>>);

impl Wish {
    pub(crate) fn note(&self) {
        self.set(Some(Instant::now()));
    }

    /// It was made use of, or taken back.
    pub(crate) fn settle(&self) {
        self.set(None);
    }

    pub(crate) fn is_open(&self) -> bool {
        let noted = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.is_some_and(|noted| noted.elapsed() < LASTS)
    }

    fn set(&self, noted: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = noted;
    }
}

/// Tells the engine of the wish in a transaction for which it is not fulfilled.
pub(crate) fn tell(tx: &ReadTx<'_>) {
    let none = Parameters::Positional(Vec::new());
    let _refused = tx.run(OFF, &none, (), |(), _| Ok(()));
}
