//! Writers that go on while a backup is made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::{self, JoinHandle};

use monolite::Database;

use super::transfer;
use crate::patience::eventually;

/// How many writes each thread has under way.
const AHEAD: usize = 64;

pub(super) struct Load {
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    begun: AtomicI64,
    acknowledged: AtomicI64,
}

impl Load {
    pub(super) fn start(db: &Database, threads: usize) -> Load {
        let shared = Arc::new(Shared::default());
        let threads = (0..threads).map(|_| {
            let (db, shared) = (db.clone(), Arc::clone(&shared));
            thread::spawn(move || {
                while !shared.is_over.load(Ordering::Relaxed) {
                    let writes: Vec<_> = (0..AHEAD)
                        .map(|_| {
                            let seed = shared.begun.fetch_add(1, Ordering::SeqCst);
                            db.write(move |tx| transfer(tx, seed))
                        })
                        .collect();
                    for write in writes {
                        write.wait().unwrap();
                        shared.acknowledged.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        });
        Load { threads: threads.collect(), shared }
    }

    /// Transfers that were begun.
    pub(super) fn begun(&self) -> i64 {
        self.shared.begun.load(Ordering::SeqCst)
    }

    /// Transfers that were acknowledged.
    pub(super) fn acknowledged(&self) -> i64 {
        self.shared.acknowledged.load(Ordering::SeqCst)
    }

    pub(super) fn wait_for(&self, acknowledged: i64) {
        eventually("transfers go on", || self.acknowledged() >= acknowledged);
    }

    pub(super) fn stop(self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
