//! Owns the list of what is open, so that it can be looked at; it keeps nothing open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Values by their addresses, from their making to their drop.
pub(crate) struct Registry<T>(Mutex<HashMap<usize, Weak<T>>>);

impl<T> Default for Registry<T> {
    fn default() -> Registry<T> {
        Registry(Mutex::default())
    }
}

impl<T> Registry<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Weak<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, value: &Arc<T>) {
        self.lock().insert(Arc::as_ptr(value) as usize, Arc::downgrade(value));
    }

    /// To be called by the drop of `value`.
    pub(crate) fn remove(&self, value: &T) {
        self.lock().remove(&(std::ptr::from_ref(value) as usize));
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        // Each is dropped by the caller, without the lock: it may be the last.
        self.lock().values().filter_map(Weak::upgrade).collect()
    }
}
