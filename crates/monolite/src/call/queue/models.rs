//! Schedules of producers and consumers of a queue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shuttle::sync::{Barrier, Mutex, mpsc};
use shuttle::thread;

use super::lanes::{Principal, Queued, Spent};
use super::{Entered, Queue, Rejected, Taken};
use crate::models::{SCHEDULES, check, maybe};

use std::collections::VecDeque;

/// An item of a principal, with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item(Principal, u32);

impl Queued for Item {
    fn principal(&self) -> Principal {
        self.0
    }
}

const CAPACITY: usize = 3;

/// Hands in items of `principal`, in one way or another; returns those that the queue has.
fn produce(queue: &Queue<Item>, principal: Principal) -> Vec<Item> {
    let mut entered = Vec::new();
    for number in 0..4 {
        let item = Item(principal, number);
        if maybe() {
            match queue.push(item) {
                Ok(()) => entered.push(item),
                Err(Rejected::Full(it) | Rejected::Closed(it)) => assert_eq!(it, item),
            }
        } else {
            match queue.enter(item) {
                Ok(Entered::Waits(ticket)) if maybe() => match queue.withdraw(ticket) {
                    Some(it) => assert_eq!(it, item),
                    None => entered.push(item),
                },
                Ok(_) => entered.push(item),
                Err(it) => assert_eq!(it, item),
            }
        }
        assert!(queue.len() <= CAPACITY);
    }
    entered
}

/// Takes items until the queue is closed and empty.
fn consume(queue: &Queue<Item>, most: usize) -> Vec<Item> {
    let (mut taken, mut items) = (Vec::new(), VecDeque::new());
    while queue.take(most, &mut items, None) != Taken::Closed {
        assert!(items.len() <= most);
        taken.extend(items.drain(..));
    }
    taken
}

fn every_item_that_gets_in_comes_out_once(consumers: usize) {
    let queue = Arc::new(Queue::new(CAPACITY));
    let spawn = |queue: &Arc<Queue<Item>>, work: fn(&Queue<Item>, Principal) -> Vec<Item>, of| {
        let queue = Arc::clone(queue);
        thread::spawn(move || work(&queue, of))
    };
    let producers = [None, Some(1), Some(2)].map(|of| spawn(&queue, produce, of));
    let consumers: Vec<_> =
        (0..consumers).map(|_| spawn(&queue, |queue, _| consume(queue, 2), None)).collect();
    // Whoever is not in by then does not get in.
    let given_back = if maybe() { queue.close() } else { Vec::new() };
    let mut entered: Vec<_> = producers.into_iter().flat_map(|it| it.join().unwrap()).collect();
    while !queue.is_empty() {
        thread::yield_now();
    }
    assert!(queue.close().is_empty(), "somebody waits beside room");
    let is_alone = consumers.len() == 1;
    let taken: Vec<_> = consumers.into_iter().flat_map(|it| it.join().unwrap()).collect();
    if is_alone {
        let mut last = BTreeMap::new();
        for Item(principal, number) in &taken {
            assert!(last.insert(principal, number) < Some(number), "{taken:?}");
        }
    }
    assert!(queue.is_empty() && !queue.is_full());
    let mut came: Vec<_> = [taken, given_back].concat();
    (came.sort_unstable(), entered.sort_unstable());
    assert_eq!(came, entered);
}

#[test]
fn every_item_comes_out_once_and_those_of_a_principal_in_their_order() {
    check(SCHEDULES, || every_item_that_gets_in_comes_out_once(1));
}

#[test]
fn every_item_comes_out_once_of_several_consumers() {
    check(SCHEDULES, || every_item_that_gets_in_comes_out_once(2));
}

#[test]
fn no_item_is_left_behind_by_consumers_that_are_started_and_leave() {
    check(SCHEDULES, || {
        let queue: Arc<Queue<Item>> = Arc::new(Queue::new(CAPACITY));
        let (takes, taken) = mpsc::channel();
        let served = Arc::downgrade(&queue);
        queue.has_consumers_started(2, move || {
            let (queue, takes) = (served.upgrade().unwrap(), takes.clone());
            thread::spawn(move || {
                let mut items = VecDeque::new();
                while !queue.leave() && queue.take(1, &mut items, None) != Taken::Closed {
                    items.drain(..).for_each(|item: Item| takes.send(item).unwrap());
                }
            });
        });
        let producers = [None, Some(1)].map(|of| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || (0..3).for_each(|number| drop(queue.enter(Item(of, number)))))
        });
        assert_eq!((0..6).filter(|_| taken.recv().is_ok()).count(), 6);
        producers.into_iter().for_each(|it| it.join().unwrap());
        // One may have gone to sleep when another took its item.
        assert!(queue.close().is_empty());
    });
}

#[test]
fn a_lonely_item_is_taken_whether_the_consumer_spins_or_sleeps() {
    check(SCHEDULES, || {
        let queue = Arc::new(Queue::new(CAPACITY));
        let (takes, taken) = mpsc::channel();
        let consumed = Arc::clone(&queue);
        let consumer = thread::spawn(move || {
            let mut items = VecDeque::new();
            while consumed.take(CAPACITY, &mut items, None) != Taken::Closed {
                items.drain(..).for_each(|item: Item| takes.send(item).unwrap());
            }
        });
        for number in 0..4 {
            let item = Item(None, number);
            assert!(queue.push(item).is_ok());
            assert_eq!(taken.recv(), Ok(item));
        }
        assert!(queue.close().is_empty());
        consumer.join().unwrap();
    });
}

#[test]
fn consumers_that_sleep_are_all_found_by_items_that_wait_for_each_other() {
    const CONSUMERS: usize = 3;
    check(SCHEDULES, || {
        let queue = Arc::new(Queue::new(CAPACITY));
        let all_work = Arc::new(Barrier::new(CONSUMERS + 1));
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|_| {
                let (queue, all_work) = (Arc::clone(&queue), Arc::clone(&all_work));
                thread::spawn(move || {
                    let mut items: VecDeque<Item> = VecDeque::new();
                    while queue.take(1, &mut items, None) != Taken::Closed {
                        for _ in items.drain(..) {
                            all_work.wait();
                        }
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            for number in 0..CONSUMERS as u32 {
                assert!(queue.push(Item(None, number)).is_ok());
            }
            all_work.wait();
        }
        assert!(queue.close().is_empty());
        consumers.into_iter().for_each(|it| it.join().unwrap());
    });
}

#[test]
fn a_kick_is_seen_between_items_whenever_it_comes() {
    check(SCHEDULES, || {
        let queue = Arc::new(Queue::new(CAPACITY));
        let kicker = Arc::clone(&queue);
        let kicker = thread::spawn(move || kicker.kick());
        let producer = Arc::clone(&queue);
        let producer = thread::spawn(move || produce(&producer, None));
        let (mut items, mut kicks) = (VecDeque::new(), 0);
        while kicks == 0 {
            match queue.take(2, &mut items, None) {
                Taken::Kicked => kicks += 1,
                Taken::Items => items.clear(),
                other => panic!("{other:?}"),
            }
        }
        kicker.join().unwrap();
        let (closed, _) = (queue.close(), producer.join().unwrap());
        drop(closed);
        while queue.take(2, &mut items, None) != Taken::Closed {}
    });
}

#[test]
fn a_principal_waits_for_one_item_of_another_and_not_for_all_before() {
    const ITEMS: u32 = 5;
    check(SCHEDULES, || {
        let queue = Arc::new(Queue::new(2 * ITEMS as usize));
        for number in 0..ITEMS {
            assert!(queue.push(Item(Some(1), number)).is_ok());
        }
        let taken = Arc::new(Mutex::new(Vec::new()));
        let (consumed, takes) = (Arc::clone(&queue), Arc::clone(&taken));
        let consumer = thread::spawn(move || {
            let (mut spent, mut items) = (Spent::default(), VecDeque::new());
            while consumed.take_after(&mut spent, 1, &mut items, None) != Taken::Closed {
                for item in items.drain(..) {
                    takes.lock().unwrap().push(item);
                    spent.add(item.0, Duration::from_secs(1));
                }
            }
        });
        let late = Item(Some(2), 0);
        assert!(queue.push(late).is_ok());
        let before = taken.lock().unwrap().len();
        assert!(queue.close().is_empty());
        consumer.join().unwrap();
        let taken = taken.lock().unwrap();
        let at = taken.iter().position(|it| *it == late).unwrap();
        // One that was taken and not noted yet, and one whose turn it was.
        assert!(at <= before + 2, "behind {before}: {taken:?}");
        assert_eq!(taken.len(), ITEMS as usize + 1);
    });
}
