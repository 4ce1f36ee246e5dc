//! Schedules of batches that are committed and synced, and of those who wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering as Of};

use shuttle::sync::mpsc;
use shuttle::thread;

use super::{BatchNumber, Ordering, Progress};
use crate::error::ErrorKind;
use crate::models::{SCHEDULES, check, maybe};

const BATCHES: u64 = 3;

/// Commits all batches, and syncs some of them, as the writer does; hands on the others.
fn commit(progress: &Progress, committed: &mpsc::Sender<BatchNumber>) {
    for _ in 0..BATCHES {
        let number = progress.start_commit();
        progress.expose();
        progress.finish_commit(number);
        if maybe() {
            progress.finish_sync(number);
        } else {
            committed.send(number).unwrap();
        }
    }
}

fn start(progress: &Arc<Progress>) -> [thread::JoinHandle<()>; 2] {
    let (sends, committed) = mpsc::channel();
    let (writer, syncer) = (Arc::clone(progress), Arc::clone(progress));
    let writer = thread::spawn(move || commit(&writer, &sends));
    let syncer = thread::spawn(move || {
        while let Ok(number) = committed.recv() {
            syncer.finish_sync(number);
        }
    });
    [writer, syncer]
}

#[test]
fn who_waits_for_a_batch_is_told_once_and_not_before_it_is_durable() {
    check(SCHEDULES, || {
        let progress = Arc::<Progress>::default();
        let told = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
        let mut threads: Vec<_> = start(&progress).into();
        for (number, told) in (2..).zip(&told) {
            let (progress, told) = (Arc::clone(&progress), Arc::clone(told));
            threads.push(thread::spawn(move || {
                let seen = Arc::clone(&progress);
                progress.when_durable(BatchNumber(number), move |verdict| {
                    verdict.unwrap();
                    assert!(seen.durable().number >= BatchNumber(number));
                    told.fetch_add(1, Of::Relaxed);
                });
            }));
        }
        progress.wait_durable(BatchNumber(BATCHES)).unwrap();
        assert_eq!(progress.durable().number, BatchNumber(BATCHES));
        threads.into_iter().for_each(|it| it.join().unwrap());
        assert!(told.iter().all(|told| told.load(Of::Relaxed) == 1));
    });
}

#[test]
fn what_is_durable_is_committed_and_what_is_committed_is_exposed() {
    check(SCHEDULES, || {
        let progress = Arc::<Progress>::default();
        let threads = start(&progress);
        let mut last = BatchNumber::default();
        while last < BatchNumber(BATCHES) {
            let durable = progress.durable().number;
            let committed = progress.committed();
            let exposed = progress.exposed();
            let committing = progress.committing.load(Ordering::Acquire);
            assert!(durable <= committed && committed <= exposed && exposed <= committing);
            assert!(last <= durable, "something was taken back");
            last = durable;
            thread::yield_now();
        }
        threads.into_iter().for_each(|it| it.join().unwrap());
    });
}

#[test]
fn who_waits_for_a_batch_hears_of_the_poison_that_comes_before_it() {
    check(SCHEDULES, || {
        let progress = Arc::<Progress>::default();
        progress.finish_commit(progress.start_commit());
        let told = Arc::new(AtomicU32::new(0));
        let mut threads: Vec<_> = Vec::new();
        let one = Arc::clone(&progress);
        threads.push(thread::spawn(move || one.finish_sync(BatchNumber(1))));
        for number in 1..=2 {
            let (waits, asks) = (Arc::clone(&progress), Arc::clone(&progress));
            let told = Arc::clone(&told);
            let check = move |verdict: crate::Result<()>| match verdict.map_err(|it| it.kind()) {
                Ok(()) => assert_eq!(number, 1, "nobody has synced it"),
                Err(kind) => assert_eq!(kind, ErrorKind::Poisoned),
            };
            threads.push(thread::spawn(move || check(waits.wait_durable(BatchNumber(number)))));
            threads.push(thread::spawn(move || {
                asks.when_durable(BatchNumber(number), move |verdict| {
                    check(verdict);
                    told.fetch_add(1, Of::Relaxed);
                });
            }));
        }
        progress.poison("it is broken on purpose".into());
        threads.into_iter().for_each(|it| it.join().unwrap());
        assert_eq!(told.load(Of::Relaxed), 2);
        assert!(progress.wait_durable(BatchNumber(2)).is_err());
    });
}
