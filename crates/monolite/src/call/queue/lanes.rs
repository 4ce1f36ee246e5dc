//! Owns what waits in a queue and before it, and the order in which it comes out: items without a
//! principal in order of arrival, and those of principals by the time that each has used.
//!
//! # Algorithm
//! **Order**: start-time fair queueing (Goyal, Vin and Cheng, 1996), with time of the consumer in
//! place of bytes. Each principal has a lane. The next item is that of the lane which has used the
//! least time; a lane that was empty begins where the lane served last began, so that no lane saves
//! up time. What an item will take is not known before it ran: the lane is charged its mean, and
//! what was really used when the consumer comes for more. A turn takes no more than [`TURN`] by
//! these means, so that what is short does not wait in a batch beside what is long. Of a principal
//! that is not known yet it takes one, on trust.
//!
//! **Room**: dynamic thresholds (Choudhury and Hahne, 1998): a principal may have as many items in
//! the queue as there are places left, so that one alone fills half of it, and another always finds
//! some. What finds no room waits before the queue, and gets in in the same order by time.
//!
//! Items without a principal have one lane together, which may fill the queue. While there are no
//! others, everything comes out as it went in, and nothing is counted.
//!
//! # Invariants
//! - Holds at most as many items as there are places, and each comes out once.
//! - An item waits only while its lane has no room.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

/// Who is answerable for an item; none for the application itself.
pub(crate) type Principal = Option<u64>;

/// What may wait here.
pub(crate) trait Queued {
    /// Whose it is.
    fn principal(&self) -> Principal {
        None
    }
}

/// What one turn takes of the consumer's time, as far as it is known: some commits.
const TURN: Duration = Duration::from_millis(5);

/// One part in so many of a mean is the latest figure.
const SMOOTHING: u32 = 4;

/// Lanes without items that are remembered for the time they have used.
const MAX_REMEMBERED: usize = 10_000;

/// The right to take back an item that waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    number: u64,
    principal: Principal,
}

/// Time that items of each principal took which have been taken out.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    own: Usage,
    others: HashMap<u64, Usage>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    items: u32,
    time: Duration,
}

impl Spent {
    /// An item has taken `time`.
    #[inline]
    pub(crate) fn add(&mut self, principal: Principal, time: Duration) {
        self.add_usage(principal, Usage { items: 1, time });
    }

    fn add_usage(&mut self, principal: Principal, more: Usage) {
        let usage = match principal {
            None => &mut self.own,
            Some(id) => self.others.entry(id).or_default(),
        };
        usage.items = usage.items.saturating_add(more.items);
        usage.time += more.time;
    }

    /// Adds what the items of `part` have taken, and their shares of what was done for all of them
    /// in the time `whole`. Empties `part`.
    pub(crate) fn add_whole(&mut self, part: &mut Spent, whole: Duration) {
        let others: Duration = part.others.values().map(|usage| usage.time).sum();
        let alone = (part.own.time + others).as_secs_f64();
        let factor = if alone > 0.0 { (whole.as_secs_f64() / alone).max(1.0) } else { 1.0 };
        for (principal, Usage { items, time }) in part.take() {
            self.add_usage(principal, Usage { items, time: time.mul_f64(factor) });
        }
    }

    fn clear(&mut self) {
        self.own = Usage::default();
        self.others.clear();
    }

    fn take(&mut self) -> impl Iterator<Item = (Principal, Usage)> {
        let own = (None, std::mem::take(&mut self.own));
        let others = self.others.drain().map(|(id, usage)| (Some(id), usage));
        others.chain([own])
    }
}

/// What a principal has used.
#[derive(Debug, Default)]
struct Account {
    used: Duration,
    /// Of one item, once it is known.
    mean: Option<Duration>,
    /// What was charged for items that were taken, and not settled yet.
    charged: Duration,
    /// Whether there are such items.
    is_charged: bool,
}

impl Account {
    /// What the next item is thought to take.
    fn cost(&self) -> Duration {
        match self.mean {
            Some(mean) => mean,
            None if self.is_charged => TURN * 2,
            None => Duration::ZERO,
        }
    }

    fn charge(&mut self, cost: Duration) {
        self.used += cost;
        self.charged += cost;
        self.is_charged = true;
    }

    fn settle(&mut self, usage: Usage) {
        self.used = self.used.saturating_sub(std::mem::take(&mut self.charged)) + usage.time;
        self.is_charged = false;
        if usage.items > 0 {
            let new = usage.time / usage.items;
            let smooth = |mean: Duration| (mean * (SMOOTHING - 1) + new) / SMOOTHING;
            self.mean = Some(self.mean.map_or(new, smooth));
        }
    }
}

struct Lane<T> {
    items: VecDeque<T>,
    /// Those without room, by the numbers of their tickets.
    waiting: BTreeMap<u64, T>,
    account: Account,
}

impl<T> Default for Lane<T> {
    fn default() -> Lane<T> {
        Lane { items: VecDeque::new(), waiting: BTreeMap::new(), account: Account::default() }
    }
}

pub(super) struct Lanes<T> {
    capacity: usize,
    /// The lane of items without a principal.
    own: Lane<T>,
    others: HashMap<u64, Lane<T>>,
    /// Lanes with items, by the time they have used; empty while there are no others.
    order: BTreeSet<(Duration, Principal)>,
    /// Lanes of principals without items, in the same way.
    idle: BTreeSet<(Duration, u64)>,
    /// Where the lane served last began.
    now: Duration,
    len: usize,
    waiting: usize,
    next_ticket: u64,
}

impl<T: Queued> Lanes<T> {
    pub(super) fn new(capacity: usize) -> Lanes<T> {
        Lanes {
            capacity,
            own: Lane::default(),
            others: HashMap::new(),
            order: BTreeSet::new(),
            idle: BTreeSet::new(),
            now: Duration::ZERO,
            len: 0,
            waiting: 0,
            next_ticket: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.len >= self.capacity
    }

    /// Appends `item`, or gives it back when there is no room for it.
    pub(super) fn push(&mut self, item: T) -> Result<(), T> {
        let principal = item.principal();
        if !self.has_room(principal) {
            return Err(item);
        }
        self.append(principal, item);
        Ok(())
    }

    /// Has `item` wait for room.
    pub(super) fn wait(&mut self, item: T) -> Ticket {
        let ticket = Ticket { number: self.next_ticket, principal: item.principal() };
        self.next_ticket += 1;
        self.waiting += 1;
        self.lane(ticket.principal).waiting.insert(ticket.number, item);
        ticket
    }

    pub(super) fn withdraw(&mut self, ticket: Ticket) -> Option<T> {
        let item = match ticket.principal {
            None => self.own.waiting.remove(&ticket.number),
            Some(id) => self.others.get_mut(&id)?.waiting.remove(&ticket.number),
        };
        assert!(self.waiting > 0 || item.is_none(), "what waits for room is counted");
        self.waiting -= usize::from(item.is_some());
        item
    }

    /// Moves up to `most` items into `into`, after those taken before have spent `spent`.
    pub(super) fn take(&mut self, most: usize, into: &mut VecDeque<T>, spent: &mut Spent) {
        if !self.others.is_empty() {
            self.settle(spent);
        }
        if self.others.is_empty() {
            spent.clear();
            self.take_own(most, into);
        } else {
            self.take_in_turn(most, into);
        }
        self.let_in();
    }

    /// Takes everything that has got in.
    pub(super) fn drain(&mut self) -> VecDeque<T> {
        let mut items = std::mem::take(&mut self.own.items);
        self.order.clear();
        for (id, lane) in &mut self.others {
            items.extend(lane.items.drain(..));
            self.idle.insert((lane.account.used, *id));
        }
        assert_eq!(items.len(), self.len, "each item comes out once");
        self.len = 0;
        self.let_in();
        items
    }

    /// Takes everything that waits for room.
    pub(super) fn drain_waiting(&mut self) -> Vec<T> {
        let lanes = std::iter::once(&mut self.own).chain(self.others.values_mut());
        let waiting: Vec<T> =
            lanes.flat_map(|lane| std::mem::take(&mut lane.waiting).into_values()).collect();
        assert_eq!(waiting.len(), self.waiting, "what waits for room is counted");
        self.waiting = 0;
        waiting
    }

    /// Forgets who has used how much, and gives the memory of former items back, when nothing is
    /// here.
    pub(super) fn rest(&mut self) {
        assert!(self.len == 0 && self.waiting == 0, "an item in the queue keeps its place");
        // Tickets of items that got in are still about.
        *self = Lanes { next_ticket: self.next_ticket, ..Lanes::new(self.capacity) };
    }

    fn lane(&mut self, principal: Principal) -> &mut Lane<T> {
        let Some(id) = principal else { return &mut self.own };
        if self.others.is_empty() && !self.own.items.is_empty() {
            self.order.insert((self.own.account.used, None));
        }
        let (now, idle) = (self.now, &mut self.idle);
        self.others.entry(id).or_insert_with(|| {
            idle.insert((now, id));
            Lane { account: Account { used: now, ..Account::default() }, ..Lane::default() }
        })
    }

    fn has_room(&self, principal: Principal) -> bool {
        let left = self.capacity.saturating_sub(self.len);
        let has = |id| self.others.get(&id).map_or(0, |lane| lane.items.len());
        principal.map_or(0, has) < left
    }

    fn append(&mut self, principal: Principal, item: T) {
        assert!(self.len < self.capacity, "a queue holds no more than there are places");
        self.len += 1;
        if principal.is_none() && self.others.is_empty() {
            return self.own.items.push_back(item);
        }
        let now = self.now;
        let lane = self.lane(principal);
        lane.items.push_back(item);
        if lane.items.len() == 1 {
            let before = lane.account.used;
            lane.account.used = before.max(now);
            let used = lane.account.used;
            if let Some(id) = principal {
                self.idle.remove(&(before, id));
            }
            self.order.insert((used, principal));
        }
    }

    fn take_own(&mut self, most: usize, into: &mut VecDeque<T>) {
        let items = &mut self.own.items;
        assert_eq!(items.len(), self.len, "what has got in is in the one lane that there is");
        let count = items.len().min(most);
        if into.is_empty() && count == items.len() {
            std::mem::swap(into, items);
        } else {
            into.extend(items.drain(..count));
        }
        self.len -= count;
    }

    fn take_in_turn(&mut self, most: usize, into: &mut VecDeque<T>) {
        let mut time = Duration::ZERO;
        for taken in 0..most {
            let Some(&(used, principal)) = self.order.first() else { break };
            assert!(self.len > 0, "what has got in is counted");
            let lane = self.lane(principal);
            assert!(!lane.items.is_empty(), "a lane in the order has items");
            let cost = lane.account.cost();
            time += cost;
            if taken > 0 && time > TURN {
                break;
            }
            into.extend(lane.items.pop_front());
            lane.account.charge(cost);
            let (next, is_idle) = (lane.account.used, lane.items.is_empty());
            self.order.pop_first();
            self.now = used;
            self.len -= 1;
            if !is_idle {
                self.order.insert((next, principal));
            } else if let Some(id) = principal {
                self.idle.insert((next, id));
            }
        }
    }

    /// Corrects what was charged.
    fn settle(&mut self, spent: &mut Spent) {
        for (principal, usage) in spent.take() {
            let lane = match principal {
                None => Some(&mut self.own),
                Some(id) => self.others.get_mut(&id),
            };
            let Some(lane) = lane else { continue };
            let before = lane.account.used;
            lane.account.settle(usage);
            let after = lane.account.used;
            if self.order.remove(&(before, principal)) {
                self.order.insert((after, principal));
            }
            if let Some(id) = principal
                && self.idle.remove(&(before, id))
            {
                self.idle.insert((after, id));
            }
        }
        self.forget();
    }

    /// Forgets principals that have nothing here and are not ahead of the others.
    fn forget(&mut self) {
        while let Some(&(used, id)) = self.idle.first() {
            let waits = self.others.get(&id).is_some_and(|lane| !lane.waiting.is_empty());
            if waits || (used > self.now && self.idle.len() <= MAX_REMEMBERED) {
                break;
            }
            self.idle.pop_first();
            self.others.remove(&id);
        }
        if self.others.is_empty() {
            self.order.clear();
            self.own.account = Account::default();
            self.now = Duration::ZERO;
        }
    }

    /// Gives the room that there is to those who wait for it.
    fn let_in(&mut self) {
        if self.waiting == 0 {
            return;
        }
        let ids = self.others.keys().copied().map(Some).chain([None]);
        let mut next: BinaryHeap<_> = ids.filter_map(|it| self.next_to_enter(it)).collect();
        // Those that find no room now find none later: what there is only becomes less.
        while let Some(Reverse((_, _, principal))) = next.pop() {
            if self.has_room(principal)
                && let Some((_, item)) = self.lane(principal).waiting.pop_first()
            {
                assert!(self.waiting > 0, "what waits for room gets in once");
                self.waiting -= 1;
                self.append(principal, item);
                next.extend(self.next_to_enter(principal));
            }
        }
    }

    /// When the item at the head of those that wait in a lane is to get in: after those whose lanes
    /// will have used less, with what they have in the queue already, and after those that came
    /// earlier.
    fn next_to_enter(&self, principal: Principal) -> Option<Reverse<(Duration, u64, Principal)>> {
        let lane = principal.map_or(Some(&self.own), |id| self.others.get(&id))?;
        let (&ticket, _) = lane.waiting.first_key_value()?;
        let account = &lane.account;
        let ahead = u32::try_from(lane.items.len()).unwrap_or(u32::MAX);
        let before = account.mean.unwrap_or(TURN).saturating_mul(ahead);
        Some(Reverse((account.used.max(self.now).saturating_add(before), ticket, principal)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An item of a principal, with its number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Item(Principal, u32);

    impl Queued for Item {
        fn principal(&self) -> Principal {
            self.0
        }
    }

    const SHORT: Duration = Duration::from_micros(10);

    const LONG: Duration = Duration::from_millis(500);

    /// A consumer that takes turns of `lanes`, and what one item of each principal takes.
    struct Consumer<F> {
        lanes: Lanes<Item>,
        spent: Spent,
        takes: F,
    }

    impl<F: Fn(Principal) -> Duration> Consumer<F> {
        fn new(capacity: usize, takes: F) -> Consumer<F> {
            Consumer { lanes: Lanes::new(capacity), spent: Spent::default(), takes }
        }

        fn turn(&mut self) -> Vec<Item> {
            let mut items = VecDeque::new();
            self.lanes.take(1_000, &mut items, &mut self.spent);
            for item in &items {
                self.spent.add(item.0, (self.takes)(item.0));
            }
            items.into()
        }

        fn push(&mut self, principal: Principal, numbers: std::ops::Range<u32>) {
            for number in numbers {
                assert_eq!(self.lanes.push(Item(principal, number)), Ok(()));
            }
        }
    }

    #[test]
    fn the_ticket_of_an_item_that_got_in_before_a_rest_takes_back_no_other() {
        let (mut lanes, mut items, mut spent) = (Lanes::new(1), VecDeque::new(), Spent::default());
        let tickets = [0, 2].map(|number| {
            assert_eq!(lanes.push(Item(Some(1), number)), Ok(()));
            let ticket = lanes.wait(Item(Some(1), number + 1));
            (0..2).for_each(|_| lanes.take(1, &mut items, &mut spent));
            lanes.rest();
            ticket
        });
        assert_eq!(items.len(), 4);
        assert_eq!(lanes.push(Item(Some(1), 4)), Ok(()));
        let _waits = lanes.wait(Item(Some(1), 5));
        assert_eq!(tickets.map(|ticket| lanes.withdraw(ticket)), [None, None]);
    }

    #[test]
    fn who_has_used_the_least_comes_first() {
        let hog_is_long = |principal| if principal == Some(1) { LONG } else { SHORT };
        let mut consumer = Consumer::new(1_000, hog_is_long);
        consumer.push(Some(1), 0..20);
        assert_eq!(consumer.turn(), [Item(Some(1), 0)], "one, on trust");
        for round in 1..20 {
            consumer.push(Some(2), round * 10..round * 10 + 10);
            let first = consumer.turn();
            assert!(first.iter().all(|item| item.0 == Some(2)), "{first:?}");
            let rest = if round == 1 { consumer.turn() } else { Vec::new() };
            assert_eq!(first.len() + rest.len(), 10, "{first:?} {rest:?}");
            assert_eq!(consumer.turn(), [Item(Some(1), round)]);
        }
    }

    #[test]
    fn both_have_the_same_share_of_the_time() {
        let twice = |principal| if principal == Some(1) { SHORT * 2 } else { SHORT };
        let mut consumer = Consumer::new(100_000, twice);
        consumer.push(Some(1), 0..10_000);
        consumer.push(None, 0..10_000);
        let mut counts = [0_u32; 2];
        while counts[0] + counts[1] < 6_000 {
            for item in consumer.turn() {
                counts[usize::from(item.0.is_none())] += 1;
            }
        }
        let ratio = f64::from(counts[1]) / f64::from(counts[0]);
        assert!((1.8..2.2).contains(&ratio), "{counts:?}");
    }

    #[test]
    fn each_keeps_its_order_and_nothing_is_lost() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let mut consumer = Consumer::new(16, |_| SHORT * 100);
            let mut entered: HashMap<Principal, Vec<u32>> = HashMap::new();
            let mut came: HashMap<Principal, Vec<u32>> = HashMap::new();
            let mut tickets = Vec::new();
            for number in 0..300 {
                match random.u32(0..8) {
                    0 => {
                        for item in consumer.turn() {
                            came.entry(item.0).or_default().push(item.1);
                        }
                    }
                    1 if !tickets.is_empty() => {
                        let ticket = tickets.swap_remove(random.usize(0..tickets.len()));
                        if let Some(Item(principal, number)) = consumer.lanes.withdraw(ticket) {
                            entered.entry(principal).or_default().retain(|it| *it != number);
                        }
                    }
                    _ => {
                        let principal = Some(random.u64(0..4)).filter(|id| *id > 0);
                        let item = Item(principal, number);
                        entered.entry(principal).or_default().push(number);
                        if let Err(item) = consumer.lanes.push(item) {
                            tickets.push(consumer.lanes.wait(item));
                        }
                    }
                }
                assert!(consumer.lanes.len() <= 16);
            }
            while !consumer.lanes.is_empty() {
                for item in consumer.turn() {
                    came.entry(item.0).or_default().push(item.1);
                }
            }
            assert!(consumer.lanes.drain_waiting().is_empty(), "somebody waits beside room");
            entered.retain(|_, numbers| !numbers.is_empty());
            assert_eq!(came, entered);
        }
    }

    #[test]
    fn one_principal_leaves_room_for_another() {
        let mut consumer = Consumer::new(100, |_| SHORT);
        consumer.push(Some(1), 0..50);
        let refused = Item(Some(1), 50);
        assert_eq!(consumer.lanes.push(refused), Err(refused));
        let ticket = consumer.lanes.wait(refused);
        consumer.push(Some(2), 0..25);
        assert!(consumer.lanes.push(Item(Some(2), 25)).is_err());
        consumer.push(None, 0..25);
        assert!(consumer.lanes.is_full());
        assert!(consumer.lanes.push(Item(Some(3), 0)).is_err());
        assert_eq!(consumer.lanes.drain().len(), 100);
        assert_eq!(consumer.lanes.withdraw(ticket), None, "it has got in");
        assert_eq!(consumer.lanes.drain(), [refused]);
    }

    #[test]
    fn who_waits_for_room_gets_in_in_turn() {
        for capacity in [1, 2, 7, 16] {
            let mut consumer = Consumer::new(capacity, |_| Duration::from_millis(10));
            let mut counts: HashMap<Principal, u32> = HashMap::new();
            let offer = |consumer: &mut Consumer<_>, principal| {
                if let Err(item) = consumer.lanes.push(Item(principal, 0)) {
                    consumer.lanes.wait(item);
                }
            };
            // Clients that wait for each answer, many of them nobody's.
            for id in 0..5 {
                (0..3).for_each(|_| offer(&mut consumer, Some(id)));
            }
            (0..50).for_each(|_| offer(&mut consumer, None));
            for _ in 0..1_200 {
                for item in consumer.turn() {
                    *counts.entry(item.0).or_default() += 1;
                    offer(&mut consumer, item.0);
                }
            }
            let (least, most) = (counts.values().min(), counts.values().max());
            let is_even = least.zip(most).is_some_and(|(least, most)| least + 30 > *most);
            assert!(is_even && counts.len() == 6, "{capacity}: {counts:?}");
        }
    }

    #[test]
    fn who_has_nothing_here_is_forgotten() {
        let mut consumer = Consumer::new(100, |_| SHORT);
        for id in 0..2 * MAX_REMEMBERED as u64 {
            consumer.push(Some(id), 0..1);
            assert_eq!(consumer.turn().len(), 1);
        }
        assert!(consumer.lanes.others.len() <= MAX_REMEMBERED + 2);
        assert_eq!(consumer.lanes.idle.len(), consumer.lanes.others.len());
    }
}
