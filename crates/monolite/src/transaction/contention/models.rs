//! Schedules of those who wait for turns, have them, and go away. The clock stands still, so no
//! turn is taken away: somebody who is not told of the turn waits for ever.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use shuttle::thread;

use super::*;
use crate::call::blocked::block_on;
use crate::models::{SCHEDULES, check, maybe};
use crate::progress::Observer as _;

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Duration {
        Duration::from_secs(1)
    }
}

const ROWS: [u64; 2] = [1, 2];

/// Some spots at which there was a conflict.
fn contention(rows: &[u64]) -> Arc<Contention> {
    let options = Options::new().clock(Arc::new(Still));
    let contention = Contention::new(DatabaseId::new(), &options, Arc::default());
    for row in rows {
        Visit::new(&contention, None).note_conflict(*row, std::iter::empty());
    }
    contention
}

fn spawn_all(count: usize, body: impl Fn(usize) + Clone + Send + 'static) {
    let threads: Vec<_> = (0..count)
        .map(|number| {
            let body = body.clone();
            thread::spawn(move || body(number))
        })
        .collect();
    threads.into_iter().for_each(|it| it.join().unwrap());
}

/// Begins to wait, and goes away.
fn give_up(visit: &Arc<Visit>, spot: Spot) {
    let mut waiting = pin!(Arc::clone(visit).pass(vec![spot]));
    let _ = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

#[test]
fn one_at_a_time_has_the_turn_and_everybody_gets_it() {
    check(SCHEDULES, || {
        let contention = contention(&ROWS[..1]);
        let inside = Arc::new(AtomicUsize::new(0));
        let spot = Spot::Statement(ROWS[0]);
        spawn_all(4, move |_| {
            let visit = Visit::new(&contention, None);
            if maybe() {
                give_up(&visit, spot);
                if maybe() {
                    return;
                }
                visit.finish(End::Other);
                return;
            }
            block_on(Arc::clone(&visit).pass(vec![spot]));
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            thread::yield_now();
            inside.fetch_sub(1, Ordering::SeqCst);
            if maybe() {
                visit.note_committed();
                contention.visible();
            }
        });
    });
}

#[test]
fn turns_that_are_asked_for_in_any_order_are_no_deadlock() {
    check(SCHEDULES, || {
        let contention = contention(&ROWS);
        spawn_all(3, move |number| {
            let visit = Visit::new(&contention, None);
            let mut spots = ROWS.map(Spot::Statement);
            spots.rotate_left(number % 2);
            for spot in spots {
                block_on(Arc::clone(&visit).pass(vec![spot]));
                thread::yield_now();
            }
        });
    });
}

#[test]
fn who_is_rolled_back_elsewhere_waits_no_longer() {
    check(SCHEDULES, || {
        let contention = contention(&ROWS[..1]);
        let spot = Spot::Statement(ROWS[0]);
        let holder = Visit::new(&contention, None);
        block_on(Arc::clone(&holder).pass(vec![spot]));
        let waiting = Visit::new(&contention, None);
        let other = Arc::clone(&waiting);
        let thread = thread::spawn(move || block_on(other.pass(vec![spot])));
        waiting.finish(End::Other);
        thread.join().unwrap();
        drop(holder);
        block_on(Visit::new(&contention, None).pass(vec![spot]));
    });
}

#[test]
fn a_close_lets_everybody_go() {
    check(SCHEDULES, || {
        let contention = contention(&ROWS);
        let spot = Spot::Statement(ROWS[0]);
        let holder = Visit::new(&contention, None);
        block_on(Arc::clone(&holder).pass(vec![spot]));
        let closes = Arc::clone(&contention);
        spawn_all(3, move |number| match number {
            0 => closes.close(),
            _ => block_on(Visit::new(&closes, None).pass(vec![spot])),
        });
    });
}
