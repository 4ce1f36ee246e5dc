//! Schedules of a result, of those who deliver it and of whoever waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Wake, Waker};

use shuttle::thread;

use super::{Completion, Outcome};
use crate::error::Error;
use crate::models::{SCHEDULES, check, maybe};

fn deliver(completion: &Completion<u32, Error>, value: u32) {
    completion.deliver(Outcome::Returned(Ok(value)));
}

#[test]
fn whoever_waits_gets_the_first_result_that_is_delivered() {
    check(SCHEDULES, || {
        let completion = Completion::new();
        let caller = Arc::clone(&completion);
        let caller = thread::spawn(move || caller.wait().unwrap_for_caller());
        let other = Arc::clone(&completion);
        let other = maybe().then(|| thread::spawn(move || deliver(&other, 2)));
        deliver(&completion, 1);
        let result = caller.join().unwrap().unwrap();
        assert!(result == 1 || (result == 2 && other.is_some()));
        other.into_iter().for_each(|it| it.join().unwrap());
        assert!(!completion.is_delivered(), "it was delivered twice");
    });
}

/// Counts how often it is called.
#[derive(Default)]
struct Calls(AtomicU32);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_waker_that_was_given_last_is_called_once_unless_the_result_was_there() {
    check(SCHEDULES, || {
        let completion = Completion::new();
        let other = Arc::clone(&completion);
        let other = thread::spawn(move || deliver(&other, 1));
        let calls = [(); 3].map(|()| Arc::new(Calls::default()));
        let mut last = None;
        for call in &calls {
            match completion.poll_with(&Waker::from(Arc::clone(call))) {
                Poll::Pending => last = Some(call),
                Poll::Ready(outcome) => {
                    assert!(matches!(outcome, Outcome::Returned(Ok(1))));
                    break;
                }
            }
        }
        other.join().unwrap();
        for call in &calls {
            let expected = u32::from(last.is_some_and(|last| Arc::ptr_eq(last, call)));
            assert_eq!(call.0.load(Ordering::Relaxed), expected);
        }
    });
}
