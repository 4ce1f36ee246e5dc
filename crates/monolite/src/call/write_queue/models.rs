//! Schedules of callers, the writer and a close, from the queue to the callers' results.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use monolite_sqlite::Connection;
use shuttle::thread;

use super::WriteQueue;
use crate::activity::Trace;
use crate::call::completion::Completion;
use crate::call::inside::DatabaseId;
use crate::call::member::{Once, Submission};
use crate::call::queue::{Entered, Taken};
use crate::clock::hand::HandClock;
use crate::error::{Error, ErrorKind, Result};
use crate::models::{SCHEDULES, check, database, maybe};
use crate::progress::Progress;
use crate::tx::Tx;

const CAPACITY: usize = 2;

/// Writes, and waits for the result if the write is not taken back; tells what came of it.
fn call(queue: &WriteQueue, runs: &Arc<AtomicU32>) -> Option<Result<u32>> {
    let caller = Completion::new();
    let runs = Arc::clone(runs);
    let body = Once(Some(move |_: &Tx<'_>| Ok(runs.fetch_add(1, Ordering::Relaxed) + 1)));
    let member = Box::new(Submission::new(body, queue.terms(), Arc::clone(&caller)));
    if maybe() {
        if let Err(error) = queue.try_push(member) {
            return Some(Err(error));
        }
    } else if let Entered::Waits(ticket) = queue.submit(member)
        && maybe()
        && let Some(member) = queue.withdraw(ticket)
    {
        drop(member);
        assert!(caller.wait().unwrap_for_caller().is_err());
        return None;
    }
    Some(caller.wait().unwrap_for_caller())
}

/// Runs and answers members until the queue is closed and empty.
fn serve(queue: &WriteQueue, connection: &Connection) {
    let (mut members, trace) = (VecDeque::new(), Trace::new(Arc::<HandClock>::default()));
    while queue.take(CAPACITY, &mut members, None) != Taken::Closed {
        for mut member in members.drain(..) {
            member.run(&Tx::new(connection, 1, &trace));
            member.answer();
        }
    }
}

#[test]
fn every_write_is_answered_once_and_run_if_that_is_its_answer() {
    let database = database();
    check(SCHEDULES, move || {
        let progress = Arc::<Progress>::default();
        let queue = WriteQueue::new(DatabaseId::new(), CAPACITY, Arc::clone(&progress));
        let (served, database) = (queue.clone(), Arc::clone(&database));
        let writer = thread::spawn(move || serve(&served, &database.lock().unwrap().writer));
        let runs = Arc::new(AtomicU32::new(0));
        let callers = [None, Some(1), Some(1), Some(2)].map(|principal| {
            let queue = principal.map_or_else(|| queue.clone(), |id| queue.of(id));
            let runs = Arc::clone(&runs);
            thread::spawn(move || call(&queue, &runs))
        });
        let is_poisoned = maybe();
        let closes = maybe();
        if closes {
            if is_poisoned {
                progress.poison("it is broken on purpose".into());
            }
            queue.close();
        }
        let results: Vec<_> = callers.into_iter().filter_map(|it| it.join().unwrap()).collect();
        queue.close();
        writer.join().unwrap();
        let mut answers = Vec::new();
        for result in results {
            match result.as_ref().map_err(Error::kind) {
                Ok(answer) => answers.push(*answer),
                Err(ErrorKind::Overloaded) => {}
                Err(ErrorKind::Poisoned) => assert!(closes && is_poisoned),
                Err(ErrorKind::Closed) => assert!(closes && !is_poisoned),
                Err(_) => panic!("{result:?}"),
            }
        }
        answers.sort_unstable();
        assert!(answers.into_iter().eq(1..=runs.load(Ordering::Relaxed)));
    });
}
