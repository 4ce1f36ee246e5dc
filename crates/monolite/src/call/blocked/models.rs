//! Schedules of threads that wait, spin and sleep, and of those who wake them.

use std::task::Poll;

use shuttle::sync::mpsc::channel;
use shuttle::thread;

use super::{block_on, wait_until};
use crate::call::completion::{Completion, Outcome};
use crate::error::Error;
use crate::models::{SCHEDULES, check};

#[test]
fn one_wait_after_another_ends_whether_it_spins_or_sleeps() {
    check(SCHEDULES, || {
        let (results, waited_for) = channel();
        let caller = thread::spawn(move || {
            for expected in 0..3_u32 {
                let completion: std::sync::Arc<Completion<u32, Error>> = waited_for.recv().unwrap();
                assert_eq!(completion.wait().unwrap_for_caller().unwrap(), expected);
            }
        });
        for value in 0..3 {
            let completion = Completion::new();
            results.send(std::sync::Arc::clone(&completion)).unwrap();
            completion.deliver(Outcome::Returned(Ok(value)));
        }
        caller.join().unwrap();
    });
}

#[test]
fn a_wait_within_a_wait_leaves_the_outer_one_its_wake_up() {
    check(SCHEDULES, || {
        let (outer, inner) = (Completion::<u32, Error>::new(), Completion::<u32, Error>::new());
        let (for_outer, for_inner) = (outer.clone(), inner.clone());
        let waiting = thread::spawn(move || {
            let mut within = Some(inner);
            wait_until(|waker| {
                let polled = outer.poll(&mut std::task::Context::from_waker(waker));
                if let (Poll::Pending, Some(inner)) = (&polled, within.take()) {
                    let result = block_on(std::future::poll_fn(|context| inner.poll(context)));
                    assert_eq!(result.unwrap_for_caller().unwrap(), 2);
                }
                polled
            })
        });
        let other = thread::spawn(move || for_inner.deliver(Outcome::Returned(Ok(2))));
        for_outer.deliver(Outcome::Returned(Ok(1)));
        other.join().unwrap();
        assert_eq!(waiting.join().unwrap().unwrap_for_caller().unwrap(), 1);
    });
}
