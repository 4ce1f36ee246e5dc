//! Owns the list of what is open, so that it can be looked at; it keeps nothing open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Values by their addresses, from their making to their drop.
pub(crate) struct Registry<T> {
    values: Mutex<HashMap<usize, Weak<T>>>,
    /// Held by a look, which keeps the values for as long.
    looking: Mutex<()>,
}

impl<T> Default for Registry<T> {
    fn default() -> Registry<T> {
        Registry { values: Mutex::default(), looking: Mutex::default() }
    }
}

impl<T> Registry<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Weak<T>>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, value: &Arc<T>) {
        self.lock().insert(Arc::as_ptr(value) as usize, Arc::downgrade(value));
    }

    /// To be called by the drop of `value`.
    pub(crate) fn remove(&self, value: &T) {
        self.lock().remove(&(std::ptr::from_ref(value) as usize));
    }

    /// What `look` says of each.
    pub(crate) fn look<R>(&self, look: impl Fn(&T) -> Option<R>) -> Vec<R> {
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        // Each is dropped here, without the lock of the values: it may be the last.
        let all: Vec<Arc<T>> = self.lock().values().filter_map(Weak::upgrade).collect();
        all.iter().filter_map(|it| look(it)).collect()
    }

    /// Waits for a look that is under way, and so for the drop of all that only it keeps.
    pub(crate) fn settle(&self) {
        drop(self.looking.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[test]
fn a_settled_registry_has_dropped_all_that_a_look_kept() {
    struct Counted<'c>(&'c std::sync::atomic::AtomicUsize);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let dropped = std::sync::atomic::AtomicUsize::new(0);
    let registry = Registry::default();
    let (looks, looked) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    let value = Arc::new(Counted(&dropped));
    registry.insert(&value);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            registry.look(|_| {
                looks.wait();
                looked.wait();
                Some(())
            })
        });
        looks.wait();
        drop(value);
        assert_eq!(dropped.load(std::sync::atomic::Ordering::SeqCst), 0);
        looked.wait();
        registry.settle();
        assert_eq!(dropped.load(std::sync::atomic::Ordering::SeqCst), 1);
    });
}
