//! Owns which idempotency keys have a request under way, so that a repetition waits for the request
//! that it repeats: only then is it known what came of that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use crate::hrana::ProtocolError;

/// How long a repetition waits.
const PATIENCE: Duration = Duration::from_secs(6);

/// A database, and a key in it.
type Name = (String, String);

/// The keys with a request.
#[derive(Clone, Default)]
pub(crate) struct Keys(Arc<Mutex<HashMap<Name, Arc<tokio::sync::Mutex<()>>>>>);

/// That no other request with the key runs.
pub(crate) struct Turn {
    keys: Keys,
    name: Name,
    #[expect(dead_code, reason = "it is held")]
    alone: OwnedMutexGuard<()>,
}

impl Keys {
    /// Waits for the requests with this key that came before.
    pub(crate) async fn turn(&self, database: &str, key: &str) -> Result<Turn, ProtocolError> {
        let name = (database.to_owned(), key.to_owned());
        let turns = Arc::clone(self.lock().entry(name.clone()).or_default());
        let alone = timeout(PATIENCE, turns.lock_owned()).await.map_err(|_| {
            self.forget(&name, 0);
            let message = "a request with this Idempotency-Key is under way; repeat it later";
            ProtocolError::new("IDEMPOTENCY_KEY_IN_USE", message)
        })?;
        Ok(Turn { keys: self.clone(), name, alone })
    }

    /// Forgets a key of which only `held` is left.
    fn forget(&self, name: &Name, held: usize) {
        let mut keys = self.lock();
        if keys.get(name).is_some_and(|turns| Arc::strong_count(turns) == 1 + held) {
            keys.remove(name);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Name, Arc<tokio::sync::Mutex<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.keys.forget(&self.name, 1);
    }
}
