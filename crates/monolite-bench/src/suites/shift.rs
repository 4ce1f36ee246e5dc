//! Threads that begin together, work for a while, and count what they did.

use super::Turn;
use crate::drivers::{Round, WalSample};
use crate::raw_connection;
use crate::statistics::Latencies;
use anyhow::{Result, anyhow};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};

/// Time between two looks at the WAL.
const LOOK: Duration = Duration::from_millis(10);

/// How a round is worked through.
#[derive(Clone, Copy, Debug)]
pub struct Crew<'t> {
    /// Threads.
    pub threads: usize,
    /// Operations per recorded latency: more where one takes about as long as two clock reads.
    pub sample: u64,
    /// The round.
    pub turn: &'t Turn<'t>,
}

impl Crew<'_> {
    /// Has every thread run `worker`, which prepares, calls [`Shift::begin`], and works while
    /// [`Shift::goes_on`].
    pub fn work(
        &self,
        worker: impl Fn(usize, &mut Shift<'_>) -> Result<()> + Sync,
    ) -> Result<Round> {
        let barrier = Barrier::new(self.threads);
        let stop = AtomicBool::new(false);
        let shifts = std::thread::scope(|scope| {
            let (barrier, stop, worker) = (&barrier, &stop, &worker);
            let threads: Vec<_> = (0..self.threads)
                .map(|number| {
                    scope.spawn(move || {
                        let mut shift = Shift::new(self, barrier, stop);
                        worker(number, &mut shift)?;
                        self.turn.interrupt.check()?;
                        Ok(shift.done())
                    })
                })
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Done>>| {
                thread.join().unwrap_or_else(|_| Err(anyhow!("a client panicked")))
            };
            threads.into_iter().map(join).collect::<Result<Vec<Done>>>()
        })?;
        Ok(round(&shifts))
    }

    /// As [`Crew::work`], and looks at the WAL of `database` meanwhile.
    pub fn work_watching(
        &self,
        database: &Path,
        worker: impl Fn(usize, &mut Shift<'_>) -> Result<()> + Sync,
    ) -> Result<Round> {
        let (end, ended) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let watch = scope.spawn(move || {
                let (mut samples, begin) = (Vec::new(), Instant::now());
                // The sender is dropped when the work is over.
                while ended.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
                    let bytes = raw_connection::wal_bytes(database);
                    samples.push(WalSample { seconds: begin.elapsed().as_secs_f64(), bytes });
                }
                samples
            });
            let round = self.work(worker);
            drop(end);
            let mut wal: Vec<WalSample> =
                watch.join().map_err(|_| anyhow!("the watch panicked"))?;
            // The last connection that closes removes the file.
            while wal.last().is_some_and(|sample| sample.bytes == 0) {
                wal.pop();
            }
            let largest = wal.iter().map(|sample| sample.bytes).max().unwrap_or(0);
            Ok(Round { wal, wal_bytes_max: largest, ..round? })
        })
    }
}

fn round(shifts: &[Done]) -> Round {
    let mut round = Round::default();
    let begin = shifts.iter().filter_map(|shift| shift.begin).min();
    let end = shifts.iter().filter_map(|shift| shift.end).max();
    for shift in shifts {
        round.operations += shift.operations;
        round.retries += shift.retries;
        round.failed += shift.refused;
        round.latencies.merge(&shift.latencies);
    }
    round.taken = round.operations;
    round.elapsed = begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin);
    round
}

/// The part of a thread.
pub struct Shift<'s> {
    barrier: Option<&'s Barrier>,
    stop: &'s AtomicBool,
    length: Duration,
    sample: u64,
    deadline: Option<Instant>,
    start: Option<Instant>,
    done: Done,
}

#[derive(Default)]
struct Done {
    operations: u64,
    retries: u64,
    refused: u64,
    latencies: Latencies,
    begin: Option<Instant>,
    end: Option<Instant>,
}

impl<'s> Shift<'s> {
    fn new(crew: &Crew<'_>, barrier: &'s Barrier, stop: &'s AtomicBool) -> Shift<'s> {
        Shift {
            barrier: Some(barrier),
            stop,
            length: crew.turn.length,
            sample: crew.sample,
            deadline: None,
            start: None,
            done: Done::default(),
        }
    }

    fn done(mut self) -> Done {
        std::mem::take(&mut self.done)
    }

    /// Waits until all threads are ready.
    pub fn begin(&mut self) {
        if let Some(barrier) = self.barrier.take() {
            barrier.wait();
        }
        let now = Instant::now();
        self.done.begin = Some(now);
        self.deadline = Some(now + self.length);
    }

    /// Begins, and has operations done and counted until the time is over.
    pub fn repeat(&mut self, mut operate: impl FnMut() -> Result<()>) -> Result<()> {
        self.begin();
        while self.goes_on() {
            operate()?;
            self.acknowledged();
        }
        Ok(())
    }

    /// Whether to do another operation, one at least; its time begins.
    pub fn goes_on(&mut self) -> bool {
        if self.done.operations.is_multiple_of(self.sample) {
            let now = Instant::now();
            let late = self.deadline.is_none_or(|deadline| now >= deadline);
            if (late && self.done.operations > 0) || self.stop.load(Ordering::Relaxed) {
                self.done.end = Some(now);
                return false;
            }
            self.start = Some(now);
        }
        true
    }

    /// Counts the operation as acknowledged.
    pub fn acknowledged(&mut self) {
        if let Some(start) = self.start.take() {
            self.done.latencies.record(start.elapsed());
        }
        self.done.operations += 1;
    }

    /// The same of one that was submitted earlier than its turn to be waited for came.
    pub fn acknowledged_since(&mut self, submitted: Instant) {
        self.start = self.start.map(|_| submitted);
        self.acknowledged();
    }

    /// Counts an attempt that has to be repeated.
    pub fn repeated(&mut self) {
        self.done.retries += 1;
    }

    /// Counts a transaction that a constraint refused.
    pub fn refused(&mut self) {
        self.done.refused += 1;
    }

    /// Whether the time is over, whatever was done.
    pub fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
            || self.stop.load(Ordering::Relaxed)
    }

    /// Ends the thread's work in the middle of an operation, which does not count.
    pub fn give_up(&mut self) {
        self.done.end = Some(Instant::now());
    }
}

impl Drop for Shift<'_> {
    /// A worker that failed before it began lets the others begin, and end at once.
    fn drop(&mut self) {
        if let Some(barrier) = self.barrier.take() {
            self.stop.store(true, Ordering::Relaxed);
            barrier.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Interrupt;
    use anyhow::ensure;

    #[test]
    fn operations_of_all_threads_are_counted_and_one_at_least() {
        let interrupt = Interrupt::default();
        let turn = Turn { length: Duration::ZERO, seed: 1, interrupt: &interrupt };
        let round = Crew { threads: 3, sample: 1, turn: &turn }
            .work(|_, shift| {
                shift.begin();
                while shift.goes_on() {
                    shift.repeated();
                    shift.acknowledged();
                }
                Ok(())
            })
            .unwrap();
        assert_eq!((round.operations, round.retries), (3, 3));
        assert_eq!(round.latencies.percentiles().samples, 3);
    }

    #[test]
    fn a_worker_that_fails_before_the_others_begin_ends_the_round() {
        let interrupt = Interrupt::default();
        let turn = Turn { length: Duration::from_secs(3600), seed: 1, interrupt: &interrupt };
        let failed = Crew { threads: 2, sample: 1, turn: &turn }.work(|number, shift| {
            ensure!(number == 0, "not ready");
            shift.begin();
            while shift.goes_on() {
                shift.acknowledged();
            }
            Ok(())
        });
        assert_eq!(failed.unwrap_err().to_string(), "not ready");
    }
}
