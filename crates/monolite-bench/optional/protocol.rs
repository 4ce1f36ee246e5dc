//! Part of every optional driver: threads that begin together, work for a while, and say on
//! standard output what they did.
//!
//! # Format
//! Arguments are `key=value`. The answer is one line of JSON: `operations`, `retries`, `seconds`,
//! `wal_bytes_max`, and `latencies` as pairs of nanoseconds, three digits of them, and how often.

// Not every driver uses all of it.
#![allow(dead_code)]

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Error>;

/// What the driver was called with.
pub struct Arguments(HashMap<String, String>);

impl Arguments {
    pub fn new() -> Arguments {
        let pair = |argument: String| {
            let (key, value) = argument.split_once('=').unwrap_or((&argument, ""));
            (key.to_owned(), value.to_owned())
        };
        Arguments(std::env::args().skip(1).map(pair).collect())
    }

    pub fn text(&self, key: &str) -> &str {
        self.0.get(key).unwrap_or_else(|| panic!("there is no {key}"))
    }

    pub fn number<T: FromStr>(&self, key: &str) -> T {
        self.text(key).parse().unwrap_or_else(|_| panic!("{key} is no number"))
    }
}

/// What a thread did.
#[derive(Default)]
pub struct Done {
    pub operations: u64,
    pub retries: u64,
    latencies: HashMap<u64, u64>,
    begin: Option<Instant>,
    end: Option<Instant>,
}

/// The part of a thread.
pub struct Shift<'s> {
    barrier: Option<&'s Barrier>,
    failed: &'s AtomicBool,
    length: Duration,
    sample: u64,
    deadline: Option<Instant>,
    start: Option<Instant>,
    done: Done,
}

impl Shift<'_> {
    /// Waits until all threads are ready.
    pub fn begin(&mut self) {
        if let Some(barrier) = self.barrier.take() {
            barrier.wait();
        }
        let now = Instant::now();
        self.done.begin = Some(now);
        self.deadline = Some(now + self.length);
    }

    /// Whether to do another operation, one at least; its time begins.
    pub fn goes_on(&mut self) -> bool {
        if self.done.operations % self.sample == 0 {
            let now = Instant::now();
            let late = self.deadline.is_none_or(|deadline| now >= deadline);
            if (late && self.done.operations > 0) || self.failed.load(Ordering::Relaxed) {
                self.done.end = Some(now);
                return false;
            }
            self.start = Some(now);
        }
        true
    }

    pub fn acknowledged(&mut self) {
        if let Some(start) = self.start.take() {
            let latency = rounded(start.elapsed().as_nanos() as u64);
            *self.done.latencies.entry(latency).or_default() += 1;
        }
        self.done.operations += 1;
    }

    pub fn repeated(&mut self) {
        self.done.retries += 1;
    }

    /// Whether the time is over, whatever was done.
    pub fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Ends the work in the middle of an operation, which does not count.
    pub fn give_up(&mut self) {
        self.done.end = Some(Instant::now());
    }
}

impl Drop for Shift<'_> {
    fn drop(&mut self) {
        if let Some(barrier) = self.barrier.take() {
            self.failed.store(true, Ordering::Relaxed);
            barrier.wait();
        }
    }
}

/// Three digits of a number.
fn rounded(number: u64) -> u64 {
    let scale = 10_u64.pow(number.max(1).ilog10().saturating_sub(2));
    number / scale * scale
}

/// Has every thread run `worker`, which prepares, calls [`Shift::begin`], and works while
/// [`Shift::goes_on`]; returns what they return.
pub fn crew<T: Send>(
    arguments: &Arguments,
    worker: impl Fn(u64, &mut Shift<'_>) -> Result<T> + Sync,
) -> Result<(Done, Vec<T>)> {
    let threads: u64 = arguments.number("threads");
    let length = Duration::from_nanos(arguments.number("nanoseconds"));
    let sample = arguments.number("sample");
    let (barrier, failed) = (Barrier::new(threads as usize), AtomicBool::new(false));
    let results: Vec<Result<(Done, T)>> = std::thread::scope(|scope| {
        let (barrier, failed, worker) = (&barrier, &failed, &worker);
        let threads: Vec<_> = (0..threads)
            .map(|number| {
                scope.spawn(move || {
                    let mut shift = Shift {
                        barrier: Some(barrier),
                        failed,
                        length,
                        sample,
                        deadline: None,
                        start: None,
                        done: Done::default(),
                    };
                    let value = worker(number, &mut shift)?;
                    Ok((std::mem::take(&mut shift.done), value))
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<(Done, T)>>| {
            thread.join().unwrap_or_else(|_| Err("a client panicked".into()))
        };
        threads.into_iter().map(join).collect()
    });
    let (mut all, mut values) = (Done::default(), Vec::new());
    for result in results {
        let (done, value) = result?;
        all.operations += done.operations;
        all.retries += done.retries;
        done.latencies.iter().for_each(|(ns, n)| *all.latencies.entry(*ns).or_default() += n);
        all.begin = all.begin.into_iter().chain(done.begin).min();
        all.end = all.end.into_iter().chain(done.end).max();
        values.push(value);
    }
    Ok((all, values))
}

/// Says what was done.
pub fn answer(done: &Done, wal_bytes_max: u64) {
    let elapsed = done.begin.zip(done.end).map_or(Duration::ZERO, |(begin, end)| end - begin);
    let pairs: Vec<String> =
        done.latencies.iter().map(|(ns, count)| format!("[{ns},{count}]")).collect();
    println!(
        "{{\"operations\":{},\"retries\":{},\"seconds\":{},\"wal_bytes_max\":{wal_bytes_max},\
         \"latencies\":[{}]}}",
        done.operations,
        done.retries,
        elapsed.as_secs_f64(),
        pairs.join(",")
    );
}
