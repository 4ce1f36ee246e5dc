//! Interleavings that were thought of, each by its row in the notes on fencing: what happens, and
//! what saves us.

use std::time::Duration;

use monolite_archive::{
    Epoch, Error, ErrorKind, Layout, Lineage, MemoryStore, Record, State, Store,
    internals::{
        Candidate, Certainty, Claim, ClaimOutcome, Claimed, Covered, Fence, Fill, Filled, Grounds,
        Holder, Level, Machine, Primary, ReplicaId, Replicated, Reply, Request, Slot, Step,
        Unrecorded, Updated, carry_out, leader,
    },
};
use monolite_ltx::{BaseChecksum, Encoder, Header, PageSize, Pgno, Timestamp, TxidRange};

use crate::world::{group, txid};

const TTL: Duration = Duration::from_secs(10);
const MARGIN: Duration = Duration::from_secs(2);

/// A store without faults, in which machines are moved by hand.
struct Scene {
    store: MemoryStore,
    layout: Layout,
    now: Duration,
}

impl Scene {
    fn new() -> Scene {
        Scene { store: MemoryStore::new(), layout: Layout::directory(), now: Duration::ZERO }
    }

    fn done(&self, request: &Request) -> Reply {
        carry_out(&self.store, &self.layout, request)
    }

    /// Moves a machine until it asks for something that `is_it`, which is not done.
    fn until<M: Machine>(
        &self,
        machine: &mut M,
        mut reply: Option<Reply>,
        is_it: impl Fn(&Request) -> bool,
    ) -> Request {
        loop {
            match machine.step(reply.take(), self.now) {
                Step::Ask(request) if is_it(&request) => return request,
                Step::Ask(request) => reply = Some(self.done(&request)),
                _ => panic!("it ends or waits before"),
            }
        }
    }

    /// Moves a machine to its end, from a reply on.
    fn to_end<M: Machine>(&self, machine: &mut M, mut reply: Option<Reply>) -> M::Outcome {
        loop {
            match machine.step(reply.take(), self.now) {
                Step::Ask(request) => reply = Some(self.done(&request)),
                Step::Wait(_) => panic!("it waits"),
                Step::Ended(outcome) => return outcome,
            }
        }
    }

    fn candidate(holder: u128) -> Candidate {
        Candidate {
            holder: Holder::from_bits(holder),
            lineage: Lineage::from_bits(9),
            lease: Some(TTL),
            address: String::new(),
            stream: String::new(),
            page_size: PageSize::MIN,
            commit: 1,
            time: Timestamp::from_millis(1000),
            unrecorded: Unrecorded::Refuse,
            replicated: Replicated::Nothing,
        }
    }

    fn claim(holder: u128) -> Claim {
        Claim::new(Scene::candidate(holder), Grounds::Known)
    }

    fn taken(&self, holder: u128) -> Claimed {
        taken(self.to_end(&mut Scene::claim(holder), None))
    }

    /// A process takes over and serves.
    fn primary(&self, holder: u128) -> Primary {
        self.serve(self.taken(holder))
    }

    fn serve(&self, claimed: Claimed) -> Primary {
        self.serving(Primary::new(claimed).unwrap())
    }

    fn serving(&self, mut primary: Primary) -> Primary {
        let updated = self.to_end(&mut primary.serve("there", None).unwrap(), None).unwrap();
        primary.updated(&updated);
        primary
    }

    /// Fills so many slots; the groups' numbers are those of the slots.
    fn fill(&self, primary: &mut Primary, count: u64) {
        for _ in 0..count {
            let mut fill = begin(primary, primary.next().get());
            let filled = self.to_end(&mut fill, None).unwrap();
            assert_eq!(filled, Filled::Done);
            primary.filled(&filled);
        }
    }

    /// Those of the slots `min` to `max` that are there, as a file of the next level has them.
    fn covered(&self, min: u64, max: u64) -> Vec<Covered> {
        let by = TxidRange::new(txid(min), txid(max)).unwrap();
        let covered = |slot| {
            let found = self.look(slot)?;
            Some(Covered { txid: txid(slot), len: found, by })
        };
        (min..=max).filter_map(covered).collect()
    }

    fn renew(&self, primary: &mut Primary) {
        let updated = self.to_end(&mut primary.renew().unwrap(), None).unwrap();
        primary.updated(&updated);
    }

    /// Renews, and deletes the slots `min` to `max`; returns how many that were.
    fn delete(&self, primary: &mut Primary, min: u64, max: u64) -> u64 {
        let slots = self.covered(min, max);
        self.renew(primary);
        self.to_end(&mut primary.delete(&slots).unwrap(), None).unwrap()
    }

    /// A file of TXIDs `min` to `max` in the first level, or a snapshot of three pages.
    fn merged(&self, min: u64, max: u64) {
        let txids = TxidRange::new(txid(min), txid(max)).unwrap();
        let header = Header {
            page_size: PageSize::MIN,
            commit: 3,
            txids,
            timestamp: Timestamp::from_millis(7000),
            base: BaseChecksum::Untracked,
            wal: None,
            node_id: 0,
        };
        let mut encoder = Encoder::new(Vec::new(), header).unwrap();
        for number in 1..=3 {
            encoder.page(Pgno::new(number).unwrap(), &[1; 512]).unwrap();
        }
        let file = encoder.finish(None).unwrap().output;
        let level = if txids.is_snapshot() { Level::SNAPSHOTS } else { Level::FIRST };
        self.store.create(&self.layout.file(level, txids), &file, None).unwrap();
    }

    /// The length of what is in a slot.
    fn look(&self, slot: u64) -> Option<u64> {
        match self.done(&Request::Look(txid(slot))) {
            Reply::Slot(found) => found.map(|found| found.id.len),
            other => panic!("{other:?}"),
        }
    }

    fn record(&self) -> Record {
        leader(&self.store, &self.layout).unwrap().unwrap()
    }
}

fn taken(outcome: Result<ClaimOutcome, Error>) -> Claimed {
    match outcome {
        Ok(ClaimOutcome::Taken(claimed)) => *claimed,
        other => panic!("{other:?}"),
    }
}

fn begin(primary: &mut Primary, number: u64) -> Fill {
    primary.fill(group(number, primary.epoch(), primary.next())).unwrap()
}

/// A fence that nobody here has made.
fn fence_of(epoch: Epoch, slot: monolite_ltx::Txid) -> Slot {
    let time = Timestamp::from_millis(123_456);
    let place = monolite_archive::internals::Place { page_size: PageSize::MIN, commit: 1, time };
    Slot::fence(epoch, slot, place).unwrap()
}

fn is_put(request: &Request) -> bool {
    matches!(request, Request::Put(_))
}

fn lost() -> Option<Reply> {
    Some(Reply::Failed(Error::new(ErrorKind::Lost, "no answer")))
}

fn refused(kind: ErrorKind) -> Option<Reply> {
    Some(Reply::Failed(Error::new(kind, "no")))
}

#[test]
fn first_start_makes_the_record_and_its_fence_is_slot_2() {
    let scene = Scene::new();
    let mut primary = scene.primary(1);
    assert_eq!((primary.epoch(), primary.next()), (Epoch(1), txid(3)));
    let record = scene.record();
    assert_eq!((record.state, &*record.address), (State::Serving, "there"));
    assert_eq!(record.fences, [Fence::new(Epoch(1), txid(2))]);
    scene.fill(&mut primary, 2);
    assert_eq!(scene.look(2), Some(Slot::FENCE_LEN));
    assert!(scene.look(4).unwrap() > Slot::FENCE_LEN);
}

/// Who sees that the record is its own, and reads it again hours later, has no grounds against
/// whoever took it meanwhile.
#[test]
fn epoch_that_was_taken_since_it_was_looked_at_is_left_alone() {
    let scene = Scene::new();
    scene.primary(1);
    let seen = scene.record().epoch;
    let mut other = scene.primary(2);
    let record = scene.record();
    let outcome = scene.to_end(&mut Scene::claim(3).behind(seen), None).unwrap();
    assert_eq!(outcome, ClaimOutcome::Lost);
    assert_eq!(scene.record(), record);
    scene.fill(&mut other, 2);
    let own = scene.to_end(&mut Scene::claim(2).behind(seen), None).unwrap();
    assert!(matches!(own, ClaimOutcome::Taken(_)), "its own one is no reason");
}

/// Row 1.
#[test]
fn holder_that_slept_through_a_takeover_and_retention_is_refused() {
    let scene = Scene::new();
    let mut old = scene.primary(1);
    scene.fill(&mut old, 3);
    let mut fill = begin(&mut old, 77);
    let put = scene.until(&mut fill, None, is_put);
    let mut new = scene.primary(2);
    scene.fill(&mut new, 20);
    assert!(scene.delete(&mut new, 2, 20) > 10);
    // Its group was for the slot that has the fence.
    assert_eq!(scene.look(6), Some(Slot::FENCE_LEN));
    let reply = scene.done(&put);
    let filled = scene.to_end(&mut fill, Some(reply)).unwrap();
    assert_eq!(filled, Filled::Fenced(Certainty::NotInHistory));
    old.filled(&filled);
    assert!(old.is_fenced());
    assert_eq!(old.renew().unwrap_err().kind(), ErrorKind::Fenced);
}

/// Row 2.
#[test]
fn request_that_lands_before_the_fence_is_climbed_over_and_read() {
    let scene = Scene::new();
    let mut old = scene.primary(1);
    scene.fill(&mut old, 1);
    let mut fill = begin(&mut old, 77);
    let put = scene.until(&mut fill, None, is_put);
    let mut claim = Scene::claim(2);
    let fence = scene.until(&mut claim, None, is_put);
    // It lands where the claimant wants its fence.
    let reply = scene.done(&put);
    let refused = scene.done(&fence);
    let claimed = taken(scene.to_end(&mut claim, Some(refused)));
    assert_eq!(claimed.fence(), txid(5), "the group in slot 4 is history");
    // The old primary may acknowledge it, and nothing after it.
    let filled = scene.to_end(&mut fill, Some(reply)).unwrap();
    assert_eq!(filled, Filled::Done);
    old.filled(&filled);
    let mut next = begin(&mut old, 78);
    let filled = scene.to_end(&mut next, None).unwrap();
    assert_eq!(filled, Filled::Fenced(Certainty::Unknown), "the fence is not listed yet");
}

/// Row 3.
#[test]
fn what_is_below_the_fence_can_be_read_only_when_it_is_set() {
    let scene = Scene::new();
    scene.fill(&mut scene.primary(1), 2);
    let mut claim = Scene::claim(2);
    let (mut order, mut reply) = (Vec::new(), None);
    loop {
        match claim.step(reply.take(), scene.now) {
            Step::Ask(request) => {
                reply = Some(scene.done(&request));
                order.push(request);
            }
            Step::Ended(outcome) => {
                assert_eq!(taken(outcome).fence(), txid(5));
                break;
            }
            Step::Wait(_) => panic!("it waits"),
        }
    }
    let is_in_order = matches!(
        &order[..],
        [
            Request::ReadRecord,
            Request::WriteRecord(..),
            Request::FindNewest,
            Request::Look(_),
            Request::Put(_),
            Request::ReadRecord
        ]
    );
    assert!(is_in_order, "{order:?}");
}

/// Row 4.
#[test]
fn slower_claimant_meets_the_larger_epoch() {
    let scene = Scene::new();
    scene.fill(&mut scene.primary(1), 2);
    let mut slow = Scene::claim(2);
    let fence = scene.until(&mut slow, None, is_put);
    let mut fast = scene.primary(3);
    scene.fill(&mut fast, 3);
    let reply = scene.done(&fence);
    let outcome = scene.to_end(&mut slow, Some(reply)).unwrap();
    assert_eq!(outcome, ClaimOutcome::Lost);
    scene.fill(&mut fast, 1);
}

/// Row 4, where the slower one's fence is first.
#[test]
fn fence_of_who_gave_up_is_climbed_over_and_listed() {
    let scene = Scene::new();
    scene.fill(&mut scene.primary(1), 2);
    let mut slow = Scene::claim(2);
    let fence = scene.until(&mut slow, None, is_put);
    let mut fast = Scene::claim(3);
    let behind = scene.until(&mut fast, None, is_put);
    let reply = scene.done(&fence);
    assert_eq!(scene.to_end(&mut slow, Some(reply)).unwrap(), ClaimOutcome::Lost);
    let reply = scene.done(&behind);
    let claimed = taken(scene.to_end(&mut fast, Some(reply)));
    assert_eq!(claimed.fence(), txid(6));
    let mut fast = scene.serve(claimed);
    let record = scene.record();
    assert!(record.lists(Epoch(2), txid(5)) && record.lists(Epoch(3), txid(6)));
    scene.fill(&mut fast, 1);
}

/// What the model in the notes does not have: fences of claimants who died are the newest slots.
#[test]
fn fences_of_the_dead_below_are_listed() {
    let scene = Scene::new();
    scene.fill(&mut scene.primary(1), 2);
    for holder in 2..5 {
        assert_eq!(scene.taken(holder).epoch(), Epoch(holder as u64));
    }
    let primary = scene.primary(5);
    let listed: Vec<u64> = primary.record().fences.iter().map(|fence| fence.slot.get()).collect();
    assert_eq!(listed, [2, 5, 6, 7, 8]);
}

/// Row 5.
#[test]
fn lost_answer_and_a_second_attempt_that_is_refused_are_success() {
    for lands in [true, false] {
        let scene = Scene::new();
        let mut primary = scene.primary(1);
        let mut fill = begin(&mut primary, 77);
        let put = scene.until(&mut fill, None, is_put);
        if lands {
            scene.done(&put);
            assert_eq!(scene.to_end(&mut fill, lost()).unwrap(), Filled::Done);
            continue;
        }
        // Nothing is there: the same bytes again; meanwhile the first request lands.
        let again = scene.until(&mut fill, lost(), is_put);
        assert_eq!(again, put);
        scene.done(&put);
        let reply = scene.done(&again);
        let Reply::Failed(error) = &reply else { panic!("{reply:?}") };
        assert_eq!(error.kind(), ErrorKind::Exists);
        assert_eq!(scene.to_end(&mut fill, Some(reply)).unwrap(), Filled::Done);
    }
}

/// Row 6.
#[test]
fn conflict_says_nothing() {
    for kind in [ErrorKind::Conflict, ErrorKind::Exists, ErrorKind::Busy, ErrorKind::Lost] {
        let scene = Scene::new();
        let mut primary = scene.primary(1);
        let mut fill = begin(&mut primary, 77);
        let put = scene.until(&mut fill, None, is_put);
        let again = scene.until(&mut fill, refused(kind), is_put);
        assert_eq!(again, put, "{kind:?}: nothing is there");
        scene.done(&Request::Put(group(5, Epoch(1), primary.next())));
        let filled = scene.to_end(&mut fill, refused(kind)).unwrap();
        assert_eq!(filled, Filled::Fenced(Certainty::Unknown), "{kind:?}: it is another's");
    }
}

#[test]
fn machine_that_ended_with_an_error_goes_on_where_it_was() {
    let scene = Scene::new();
    let mut primary = scene.primary(1);
    let mut fill = begin(&mut primary, 77);
    let put = scene.until(&mut fill, None, is_put);
    let look = scene.until(&mut fill, lost(), Request::is_read);
    assert_eq!(look, Request::Look(txid(3)));
    let denied = Reply::Failed(Error::new(ErrorKind::Denied, "who are you"));
    let Step::Ended(Err(error)) = fill.step(Some(denied), scene.now) else {
        panic!("it does not end")
    };
    assert_eq!(error.kind(), ErrorKind::Denied);
    // Mended; the request has landed meanwhile.
    scene.done(&put);
    assert_eq!(scene.until(&mut fill, None, |_| true), look);
    let reply = scene.done(&look);
    assert_eq!(scene.to_end(&mut fill, Some(reply)).unwrap(), Filled::Done);
}

/// No permission to write: once the read has said that nothing was done, that is the answer.
#[test]
fn write_that_is_refused_for_good_ends_with_the_refusal() {
    let scene = Scene::new();
    let mut primary = scene.primary(1);
    let mut fill = begin(&mut primary, 77);
    let put = scene.until(&mut fill, None, is_put);
    let look = scene.until(&mut fill, refused(ErrorKind::Denied), Request::is_read);
    let reply = scene.done(&look);
    let Step::Ended(Err(error)) = fill.step(Some(reply), scene.now) else { panic!("it goes on") };
    assert_eq!(error.kind(), ErrorKind::Denied);
    // The permission is given: the same bytes again.
    assert_eq!(scene.until(&mut fill, None, |_| true), put);
    // Refused, and yet it was done: an earlier request has landed.
    scene.done(&put);
    let filled = scene.to_end(&mut fill, refused(ErrorKind::Denied)).unwrap();
    assert_eq!(filled, Filled::Done);
    primary.filled(&filled);
    let is_write = |request: &Request| matches!(request, Request::WriteRecord(..));
    let mut renewal = primary.renew().unwrap();
    scene.until(&mut renewal, None, is_write);
    let error = scene.to_end(&mut renewal, refused(ErrorKind::Denied)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    let updated = scene.to_end(&mut renewal, None).unwrap();
    assert!(matches!(updated, Updated::Done { .. }), "it is gone on with");
    for is_it in [is_write as fn(&Request) -> bool, is_put] {
        let mut claim = Scene::claim(2);
        scene.until(&mut claim, None, is_it);
        let error = scene.to_end(&mut claim, refused(ErrorKind::Denied)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
    }
}

#[test]
fn address_that_is_too_long_is_refused_before_anything_is_written() {
    let scene = Scene::new();
    let mut primary = Primary::new(scene.taken(1)).unwrap();
    let long = "x".repeat(Record::ADDRESS + 1);
    assert_eq!(primary.serve(&long, None).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(primary.serve(&long[1..], None).is_ok(), "no change of the record is in flight");
}

/// Row 7.
#[test]
fn second_attempt_into_a_deleted_slot_makes_the_same_history() {
    let scene = Scene::new();
    let mut old = scene.primary(1);
    let mut fill = begin(&mut old, 77);
    let put = scene.until(&mut fill, None, is_put);
    scene.done(&put);
    let mut new = scene.primary(2);
    scene.fill(&mut new, 3);
    assert_eq!(scene.delete(&mut new, 3, 6), 3);
    assert_eq!(scene.look(3), None);
    // It was history and is again, of equal content.
    let filled = scene.to_end(&mut fill, lost()).unwrap();
    assert_eq!(filled, Filled::Done);
    assert!(scene.look(3).is_some());
    old.filled(&filled);
    let filled = scene.to_end(&mut begin(&mut old, 78), None).unwrap();
    assert_eq!(filled, Filled::Fenced(Certainty::NotInHistory));
}

/// Row 8.
#[test]
fn fence_into_a_deleted_slot_is_none() {
    let scene = Scene::new();
    let mut old = scene.primary(1);
    scene.fill(&mut old, 1);
    let mut paused = Scene::claim(2);
    let fence = scene.until(&mut paused, None, is_put);
    // The slot is filled by the old primary, then read, compacted and deleted by the next one.
    scene.fill(&mut old, 1);
    let mut new = scene.primary(3);
    scene.fill(&mut new, 3);
    assert!(scene.delete(&mut new, 3, 7) > 0);
    assert_eq!(scene.look(4), None);
    let reply = scene.done(&fence);
    assert!(matches!(reply, Reply::Done), "the store cannot know");
    assert_eq!(scene.look(4), Some(Slot::FENCE_LEN));
    assert_eq!(scene.to_end(&mut paused, Some(reply)).unwrap(), ClaimOutcome::Lost);
    let record = scene.record();
    assert!(!record.lists(Epoch(2), txid(4)));
    assert_eq!(record.owner(txid(4)), Some(Epoch(1)), "readers pass over it");
}

/// Row 8, a step later: the newest slot was deleted between the list and the look.
#[test]
fn newest_slot_that_vanished_is_looked_for_again() {
    let scene = Scene::new();
    let mut old = scene.primary(1);
    scene.fill(&mut old, 2);
    let mut paused = Scene::claim(2);
    let look = scene.until(&mut paused, None, |request| matches!(request, Request::Look(_)));
    assert_eq!(look, Request::Look(txid(4)));
    let mut new = scene.primary(3);
    scene.fill(&mut new, 2);
    scene.delete(&mut new, 3, 5);
    let reply = scene.done(&look);
    assert_eq!(scene.to_end(&mut paused, Some(reply)).unwrap(), ClaimOutcome::Lost);
    assert!([3, 4, 8].iter().all(|slot| scene.look(*slot).is_none()), "it has left no fence");
}

#[test]
fn claimant_that_finds_a_slot_of_a_larger_epoch_leaves_no_fence() {
    let scene = Scene::new();
    scene.fill(&mut scene.primary(1), 2);
    let mut slow = Scene::claim(2);
    let find = scene.until(&mut slow, None, |request| *request == Request::FindNewest);
    scene.fill(&mut scene.primary(3), 2);
    let reply = scene.done(&find);
    assert_eq!(scene.to_end(&mut slow, Some(reply)).unwrap(), ClaimOutcome::Lost);
    assert_eq!(scene.look(8), None);
}

/// Row 9: of a file of a higher level the test is `restoring::stale_compactor_changes_nothing`.
#[test]
fn stale_primary_deletes_nothing() {
    let scene = Scene::new();
    let mut old = scene.primary(1);
    scene.fill(&mut old, 5);
    scene.primary(2);
    let slots = scene.covered(3, 6);
    scene.renew(&mut old);
    assert!(old.is_fenced());
    assert_eq!(old.delete(&slots).unwrap_err().kind(), ErrorKind::Fenced);
    assert!((3..8).all(|slot| scene.look(slot).is_some()));
}

/// What was filled since the last renewal may be what a claimant has found.
#[test]
fn deletion_goes_no_further_than_the_last_renewal() {
    let scene = Scene::new();
    let mut primary = Primary::new(scene.taken(1)).unwrap();
    assert_eq!(primary.delete(&[]).unwrap_err().kind(), ErrorKind::Invalid, "never renewed");
    scene.renew(&mut primary);
    let mut primary = scene.serving(primary);
    scene.fill(&mut primary, 3);
    scene.renew(&mut primary);
    scene.fill(&mut primary, 3);
    // A renewal that is not answered counts for nothing.
    let mut renewal = primary.renew().unwrap();
    let mut deletion = primary.delete(&scene.covered(2, 8)).unwrap();
    assert_eq!(scene.to_end(&mut deletion, None).unwrap(), 2);
    let left: Vec<u64> = (2..9).filter(|slot| scene.look(*slot).is_some()).collect();
    assert_eq!(left, [2, 5, 6, 7, 8]);
    let updated = scene.to_end(&mut renewal, None).unwrap();
    scene.fill(&mut primary, 1);
    primary.updated(&updated);
    let mut deletion = primary.delete(&scene.covered(2, 9)).unwrap();
    assert_eq!(scene.to_end(&mut deletion, None).unwrap(), 3, "up to when it was begun");
}

/// 3,600 slots at 40 ms each take 2.4 minutes.
#[test]
fn lease_is_renewed_and_slots_are_filled_while_a_deletion_goes_on() {
    let mut scene = Scene::new();
    let mut primary = scene.primary(1);
    scene.fill(&mut primary, 6);
    scene.renew(&mut primary);
    let mut deletion = primary.delete(&scene.covered(3, 8)).unwrap();
    let mut reply = None;
    for _ in 0..5 {
        let Step::Ask(request) = deletion.step(reply.take(), scene.now) else { panic!("it ends") };
        scene.now += TTL / 2;
        scene.renew(&mut primary);
        scene.fill(&mut primary, 1);
        assert!(primary.has_lease(scene.now, MARGIN));
        reply = Some(scene.done(&request));
    }
    // It may not delete the last one, and nobody waits for it.
    let denied = Reply::Failed(Error::new(ErrorKind::Denied, "you may not"));
    let Step::Ended(Ok(5)) = deletion.step(reply, scene.now) else { panic!("it goes on") };
    let mut denies = primary.delete(&scene.covered(8, 9)).unwrap();
    scene.until(&mut denies, None, |_| true);
    assert!(matches!(denies.step(Some(denied), scene.now), Step::Ended(Err(_))));
    scene.renew(&mut primary);
    assert!(scene.to_end(&mut primary.release().unwrap(), None).is_ok());
}

#[test]
fn deletion_spares_fences_the_newest_slot_and_what_is_not_covered() {
    let scene = Scene::new();
    scene.fill(&mut scene.primary(1), 2);
    let mut primary = scene.primary(2);
    scene.fill(&mut primary, 3);
    assert_eq!(scene.delete(&mut primary, 3, 8), 4);
    let left: Vec<u64> = (2..9).filter(|slot| scene.look(*slot).is_some()).collect();
    assert_eq!(left, [2, 5, 8]);
    let slot = Covered { txid: txid(8), len: 500, by: TxidRange::single(txid(9)) };
    scene.fill(&mut primary, 1);
    scene.renew(&mut primary);
    let deleted = scene.to_end(&mut primary.delete(&[slot]).unwrap(), None).unwrap();
    assert_eq!(deleted, 0, "the file does not cover it");
}

/// Row 10.
#[test]
fn cloned_process_is_fenced_at_the_first_difference() {
    let scene = Scene::new();
    let claimed = scene.taken(1);
    let mut one = Primary::new(claimed.clone()).unwrap();
    let mut other = Primary::new(claimed).unwrap();
    for primary in [&mut one, &mut other] {
        // Equal content: the second one finds its own record there.
        let mut serve = primary.serve("there", None).unwrap();
        let updated = scene.to_end(&mut serve, None).unwrap();
        assert!(matches!(updated, Updated::Done { .. }));
        primary.updated(&updated);
        let filled = scene.to_end(&mut begin(primary, 5), None).unwrap();
        assert_eq!(filled, Filled::Done);
        primary.filled(&filled);
    }
    let filled = scene.to_end(&mut begin(&mut one, 6), None).unwrap();
    assert_eq!(filled, Filled::Done);
    let filled = scene.to_end(&mut begin(&mut other, 7), None).unwrap();
    assert_eq!(filled, Filled::Fenced(Certainty::Unknown), "though the epoch is its own");
}

/// Row 10, and an hour later: what the notes do not have. The slot that the copy goes on with was
/// filled by the other one, and is deleted; nothing tells the copy. So slots must be kept for
/// longer than a copy may sleep.
#[test]
fn copy_that_sleeps_through_retention_is_not_fenced() {
    let scene = Scene::new();
    let claimed = scene.taken(1);
    let mut copy = scene.serve(claimed.clone());
    let mut put = begin(&mut copy, 99);
    let mut stays = scene.serve(claimed);
    scene.fill(&mut stays, 3);
    assert_eq!(scene.delete(&mut stays, 3, 5), 2);
    assert_eq!(scene.to_end(&mut put, None).unwrap(), Filled::Done, "this is a fork");
}

/// Row 10, of claimants: the fence of the same epoch with another time is not ours.
#[test]
fn cloned_claimant_gives_up_at_a_fence_of_its_own_epoch() {
    let scene = Scene::new();
    scene.fill(&mut scene.primary(1), 1);
    let mut claim = Scene::claim(2);
    let put = scene.until(&mut claim, None, is_put);
    let Request::Put(fence) = &put else { panic!("{put:?}") };
    let theirs = fence_of(fence.epoch(), fence.txid());
    scene.done(&Request::Put(theirs));
    let reply = scene.done(&put);
    assert_eq!(scene.to_end(&mut claim, Some(reply)).unwrap(), ClaimOutcome::Lost);
}

/// Row 11.
#[test]
fn second_slot_in_flight_another_number_and_a_range_are_refused() {
    let scene = Scene::new();
    let mut primary = scene.primary(1);
    let next = primary.next();
    let ahead = group(1, primary.epoch(), next.next().unwrap());
    assert_eq!(primary.fill(ahead).unwrap_err().kind(), ErrorKind::Invalid);
    let others = group(1, Epoch(7), next);
    assert_eq!(primary.fill(others).unwrap_err().kind(), ErrorKind::Invalid);
    let _fill = begin(&mut primary, 1);
    let second = group(2, primary.epoch(), next);
    assert_eq!(primary.fill(second).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(primary.release().unwrap_err().kind(), ErrorKind::Invalid);
    let mut range = group(1, Epoch(1), next).bytes().to_vec();
    range[31] += 1;
    assert_eq!(Slot::new(range).unwrap_err().kind(), ErrorKind::Invalid);
}

/// Reading takes longer than the TTL, so the record is renewed before it says that we serve.
#[test]
fn what_was_carried_over_is_listed_though_the_record_was_renewed_before() {
    let scene = Scene::new();
    scene.fill(&mut scene.primary(1), 2);
    let mut primary = Primary::new(scene.taken(2)).unwrap();
    scene.renew(&mut primary);
    let slot = group(1, primary.epoch(), primary.next());
    assert_eq!(primary.fill(slot).unwrap_err().kind(), ErrorKind::Invalid, "it does not serve");
    let ours = |carried_to| Fence { carried_to, ..Fence::new(Epoch(2), txid(5)) };
    assert_eq!(scene.record().fences.last(), Some(&ours(None)));
    let mut serve = primary.serve("there", Some(txid(9))).unwrap();
    let updated = scene.to_end(&mut serve, None).unwrap();
    primary.updated(&updated);
    assert_eq!(scene.record().fences.last(), Some(&ours(Some(txid(9)))));
    scene.renew(&mut primary);
    let mut primary = scene.serving(primary);
    assert_eq!(scene.record().fences.last(), Some(&ours(Some(txid(9)))), "another address");
    scene.fill(&mut primary, 1);
}

#[test]
fn nothing_is_filled_before_the_record_says_that_we_serve() {
    let scene = Scene::new();
    let mut primary = Primary::new(scene.taken(1)).unwrap();
    let slot = group(1, primary.epoch(), primary.next());
    assert_eq!(primary.fill(slot.clone()).unwrap_err().kind(), ErrorKind::Invalid);
    let mut serve = primary.serve("there", None).unwrap();
    assert_eq!(primary.renew().unwrap_err().kind(), ErrorKind::Invalid, "one change at a time");
    let updated = scene.to_end(&mut serve, None).unwrap();
    primary.updated(&updated);
    assert!(primary.fill(slot).is_ok());
}

/// Row 11, of a stranger: no slot has the last of its TXIDs.
#[test]
fn range_among_the_slots_ends_a_claim() {
    let scene = Scene::new();
    scene.fill(&mut scene.primary(1), 2);
    let range = scene.layout.file(Level::SLOTS, TxidRange::new(txid(3), txid(5)).unwrap());
    scene.store.create(&range, b"any", None).unwrap();
    let Reply::Failed(error) = scene.done(&Request::FindNewest) else { panic!("it is found") };
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(&range), "{error}");
    let error = scene.to_end(&mut Scene::claim(2), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    // Where there is a slot of its last TXID, that one is looked at.
    scene.done(&Request::Put(group(1, Epoch(1), txid(5))));
    assert_eq!(scene.taken(3).fence(), txid(6));
}

/// Row 12: who writes whatever is there is not ours to fence, but is noticed where we meet it.
#[test]
fn stray_file_in_our_slot_ends_the_epoch() {
    for body in [&b""[..], &[0; 600], group(9, Epoch(0), txid(3)).bytes()] {
        let scene = Scene::new();
        let mut primary = scene.primary(1);
        scene.store.overwrite(&scene.layout.slot(txid(3)), body);
        let filled = scene.to_end(&mut begin(&mut primary, 1), None).unwrap();
        assert_eq!(filled, Filled::Fenced(Certainty::Unknown));
    }
}

/// A proxy drops the tags of objects: that says nothing about what is in the slot.
#[test]
fn look_that_the_store_cannot_do_does_not_end_the_epoch() {
    let scene = Scene::new();
    let mut primary = scene.primary(1);
    let mut fill = begin(&mut primary, 1);
    let put = scene.until(&mut fill, None, is_put);
    scene.until(&mut fill, lost(), Request::is_read);
    let Step::Ended(Err(error)) = fill.step(refused(ErrorKind::Unsupported), scene.now) else {
        panic!("it goes on")
    };
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    scene.done(&put);
    assert_eq!(scene.to_end(&mut fill, None).unwrap(), Filled::Done);
    // A file of a later version of the format is somebody else's.
    primary.filled(&Filled::Done);
    let mut later = group(9, Epoch(1), txid(4)).bytes().to_vec();
    later[..4].copy_from_slice(b"LTX4");
    scene.store.overwrite(&scene.layout.slot(txid(4)), &later);
    let filled = scene.to_end(&mut begin(&mut primary, 2), None).unwrap();
    assert_eq!(filled, Filled::Fenced(Certainty::Unknown));
}

/// Row 13: what a lifecycle rule on level 0 does, and why there may be none.
#[test]
fn expired_fence_lets_a_stale_primary_in() {
    let scene = Scene::new();
    let mut old = scene.primary(1);
    let mut fill = begin(&mut old, 77);
    scene.fill(&mut scene.primary(2), 1);
    scene.store.delete(&scene.layout.slot(txid(3))).unwrap();
    assert_eq!(scene.to_end(&mut fill, None).unwrap(), Filled::Done, "this is a fork");
}

/// Row 14.
#[test]
fn holder_whose_clock_says_that_it_slept_answers_nothing_until_it_has_renewed() {
    let mut scene = Scene::new();
    let mut primary = scene.primary(1);
    assert!(primary.has_lease(TTL - MARGIN - Duration::from_millis(1), MARGIN));
    scene.now = TTL - MARGIN;
    assert!(!primary.has_lease(scene.now, MARGIN));
    // The lease counts from when the renewal began, not from its answer.
    let mut renewal = primary.renew().unwrap();
    let write =
        scene.until(&mut renewal, None, |request| matches!(request, Request::WriteRecord(..)));
    let reply = scene.done(&write);
    let began = scene.now;
    scene.now += Duration::from_secs(5);
    let updated = scene.to_end(&mut renewal, Some(reply)).unwrap();
    primary.updated(&updated);
    assert!(primary.has_lease(began + TTL - MARGIN - Duration::from_millis(1), MARGIN));
    assert!(!primary.has_lease(began + TTL - MARGIN, MARGIN));
    scene.primary(2);
    let updated = scene.to_end(&mut primary.renew().unwrap(), None).unwrap();
    assert_eq!(updated, Updated::Fenced);
    primary.updated(&updated);
    assert!(!primary.has_lease(scene.now, MARGIN));
}

#[test]
fn renewal_whose_answer_was_lost_is_found_in_the_record() {
    let scene = Scene::new();
    let mut primary = scene.primary(1);
    let mut renewal = primary.renew().unwrap();
    let write = scene.until(&mut renewal, None, |request| !request.is_read());
    let again = scene.until(&mut renewal, lost(), |request| !request.is_read());
    assert_eq!(again, write, "it is not there");
    scene.done(&write);
    let updated = scene.to_end(&mut renewal, lost()).unwrap();
    assert!(matches!(updated, Updated::Done { .. }));
    primary.updated(&updated);
    scene.fill(&mut primary, 1);
}

#[test]
fn claim_whose_answer_was_lost_is_not_made_twice() {
    let scene = Scene::new();
    scene.fill(&mut scene.primary(1), 1);
    let is_write = |request: &Request| matches!(request, Request::WriteRecord(..));
    let mut claim = Scene::claim(2);
    let write = scene.until(&mut claim, None, is_write);
    let again = scene.until(&mut claim, lost(), is_write);
    assert_eq!(write, again);
    scene.done(&write);
    assert_eq!(taken(scene.to_end(&mut claim, lost())).epoch(), Epoch(2));
    // Another one was faster: from the beginning.
    let mut slow = Scene::claim(3);
    let write = scene.until(&mut slow, None, is_write);
    scene.primary(4);
    let reply = scene.done(&write);
    assert_eq!(taken(scene.to_end(&mut slow, Some(reply))).epoch(), Epoch(4));
}

#[test]
fn record_of_another_is_left_alone_while_it_shows_life() {
    let mut scene = Scene::new();
    let mut primary = scene.primary(1);
    let mut claim = Claim::new(Scene::candidate(2), Grounds::Silence(MARGIN));
    // It looks again and again; each renewal begins the time anew.
    let (mut reply, mut silent_since) = (None, Duration::ZERO);
    let outcome = loop {
        match claim.step(reply.take(), scene.now) {
            Step::Wait(until) => {
                assert!(until > scene.now && until <= scene.now + TTL);
                scene.now = until;
                if scene.now < Duration::from_secs(60) {
                    let updated = scene.to_end(&mut primary.renew().unwrap(), None).unwrap();
                    primary.updated(&updated);
                    silent_since = scene.now;
                }
            }
            Step::Ask(request) => reply = Some(scene.done(&request)),
            Step::Ended(outcome) => break outcome,
        }
    };
    assert_eq!(taken(outcome).epoch(), Epoch(2));
    assert!(scene.now >= silent_since + TTL + MARGIN, "{:?}", scene.now - silent_since);
    assert!(scene.now <= silent_since + TTL * 2 + MARGIN);
}

#[test]
fn released_record_is_taken_at_once() {
    let scene = Scene::new();
    let mut primary = scene.primary(1);
    let updated = scene.to_end(&mut primary.release().unwrap(), None).unwrap();
    primary.updated(&updated);
    let slot = group(1, primary.epoch(), primary.next());
    assert_eq!(primary.fill(slot).unwrap_err().kind(), ErrorKind::Invalid);
    let mut claim = Claim::new(Scene::candidate(2), Grounds::Silence(MARGIN));
    assert_eq!(taken(scene.to_end(&mut claim, None)).epoch(), Epoch(2));
}

/// A claim that waits for silence, from now on for an hour; whether it was ever to be taken.
fn waits_an_hour(scene: &mut Scene, mut fails: impl FnMut(Duration) -> bool) -> bool {
    let mut claim = Claim::new(Scene::candidate(2), Grounds::Silence(MARGIN));
    let (mut reply, end) = (None, scene.now + Duration::from_secs(3_600));
    while scene.now < end {
        match claim.step(reply.take(), scene.now) {
            Step::Wait(until) => scene.now = until,
            Step::Ask(request) if !request.is_read() => return true,
            Step::Ask(_) if fails(scene.now) => {
                reply = Some(Reply::Failed(Error::new(ErrorKind::Lost, "away")));
                scene.now += Duration::from_millis(100);
            }
            Step::Ask(request) => reply = Some(scene.done(&request)),
            Step::Ended(outcome) => panic!("{outcome:?}"),
        }
    }
    false
}

#[test]
fn record_that_lists_replicas_is_taken_by_one_of_them_alone() {
    let scene = Scene::new();
    let mut primary = scene.primary(1);
    let replicas = [7, 8].map(ReplicaId::from_bits);
    let lists = |primary: &mut Primary, replicas: &[ReplicaId]| {
        let mut update = primary.has_replicas(replicas.to_vec()).unwrap();
        let updated = scene.to_end(&mut update, None).unwrap();
        primary.updated(&updated);
    };
    lists(&mut primary, &replicas);
    let with = |replicated| Candidate { replicated, ..Scene::candidate(2) };
    for lacking in [Replicated::Nothing, Replicated::By(ReplicaId::from_bits(9))] {
        let mut known = Claim::new(with(lacking), Grounds::Known);
        let error = scene.to_end(&mut known, None).unwrap_err();
        assert!(error.to_string().contains(&replicas[1].to_string()), "{error}");
        // One that waits looks again and again, however long the primary is silent.
        let mut waiting = Claim::new(with(lacking), Grounds::Silence(Duration::ZERO));
        let mut now = scene.now;
        for _ in 0..100 {
            let Step::Ask(request) = waiting.step(None, now) else { panic!("it reads the record") };
            let step = waiting.step(Some(scene.done(&request)), now);
            let Step::Wait(until) = step else { panic!("it waits, not {step:?}") };
            now = until.max(now + TTL);
        }
    }
    // It read a record that lists it, and is taken off before it swaps that.
    let mut claim = Claim::new(with(Replicated::By(replicas[0])), Grounds::Known);
    let write = scene.until(&mut claim, None, |it| matches!(it, Request::WriteRecord(..)));
    lists(&mut primary, &replicas[1..]);
    assert!(scene.to_end(&mut claim, Some(scene.done(&write))).is_err());
    let mut claim = Claim::new(with(Replicated::By(replicas[1])), Grounds::Known);
    let claimed = taken(scene.to_end(&mut claim, None));
    assert_eq!(claimed.record().replicas, replicas[1..]);
    // The primary of before changes nothing any more.
    let mut update = primary.has_replicas(Vec::new()).unwrap();
    assert_eq!(scene.to_end(&mut update, None).unwrap(), Updated::Fenced);
    // What an operator gives up is given up, and nothing holds up others after it.
    let mut lost = Claim::new(with(Replicated::MayBeLost), Grounds::Known);
    assert!(taken(scene.to_end(&mut lost, None)).record().replicas.is_empty());
}

#[test]
fn record_without_a_lease_is_never_taken_for_silence_nor_for_a_release() {
    let mut scene = Scene::new();
    let without = Candidate { lease: None, ..Scene::candidate(1) };
    let claimed = taken(scene.to_end(&mut Claim::new(without, Grounds::Known), None));
    // As versions wrote it that did not know of leases.
    let text = String::from_utf8(claimed.record().encode().unwrap()).unwrap();
    assert!(!text.contains("lease") && text.contains(r#""ttl_ms":60000"#), "{text}");
    let mut primary = Primary::new(claimed).unwrap();
    assert!(!waits_an_hour(&mut scene, |_| false));
    let updated = scene.to_end(&mut primary.release().unwrap(), None).unwrap();
    primary.updated(&updated);
    assert!(!waits_an_hour(&mut scene, |_| false), "an operator says so");
}

/// The holder could not renew either.
#[test]
fn store_that_was_away_is_no_silence() {
    let mut scene = Scene::new();
    scene.primary(1);
    let is_away = |now: Duration| now.as_millis() % 10_000 > 100;
    assert!(!waits_an_hour(&mut scene, is_away));
    assert!(waits_an_hour(&mut scene, |_| false));
}

#[test]
fn slots_without_a_record_and_another_lineage_are_refused() {
    let scene = Scene::new();
    scene.done(&Request::Put(group(1, Epoch(0), txid(3))));
    let error = scene.to_end(&mut Scene::claim(1), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let adopting = Candidate { unrecorded: Unrecorded::Adopt, ..Scene::candidate(1) };
    let mut claim = Claim::new(adopting, Grounds::Known);
    assert_eq!(taken(scene.to_end(&mut claim, None)).fence(), txid(4));
    let stranger = Candidate { lineage: Lineage::from_bits(8), ..Scene::candidate(2) };
    let error = scene.to_end(&mut Claim::new(stranger, Grounds::Known), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

/// The record was lost. The first claim that adopts goes on from the epoch of the newest slot.
#[test]
fn lost_record_is_begun_anew_after_the_epoch_of_the_newest_slot() {
    let scene = Scene::new();
    for holder in 1..6 {
        scene.fill(&mut scene.primary(holder), 1);
    }
    let mut old = scene.primary(6);
    let mut fill = begin(&mut old, 77);
    let put = scene.until(&mut fill, None, is_put);
    scene.store.delete(&scene.layout.leader()).unwrap();
    let adopting = Candidate { unrecorded: Unrecorded::Adopt, ..Scene::candidate(7) };
    let claimed = taken(scene.to_end(&mut Claim::new(adopting, Grounds::Known), None));
    assert_eq!((claimed.epoch(), claimed.fence()), (Epoch(7), txid(13)));
    scene.fill(&mut scene.serve(claimed), 2);
    // Who is left of the time before is fenced as ever.
    let reply = scene.done(&put);
    let filled = scene.to_end(&mut fill, Some(reply)).unwrap();
    assert_eq!(filled, Filled::Fenced(Certainty::NotInHistory));
}

/// Readers know a fence by its length.
#[test]
fn group_without_pages_is_refused() {
    let scene = Scene::new();
    let mut primary = scene.primary(1);
    let empty = fence_of(primary.epoch(), primary.next());
    assert_eq!(primary.fill(empty).unwrap_err().kind(), ErrorKind::Invalid);
    scene.fill(&mut primary, 1);
}

/// A rule of the store has let the slots expire, or they were never brought along.
#[test]
fn files_of_other_levels_are_below_the_fence_where_there_are_no_slots() {
    let scene = Scene::new();
    scene.merged(2, 500);
    scene.merged(1, 57);
    let error = scene.to_end(&mut Scene::claim(1), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let adopting = Candidate { unrecorded: Unrecorded::Adopt, ..Scene::candidate(1) };
    let claimed = taken(scene.to_end(&mut Claim::new(adopting, Grounds::Known), None));
    assert_eq!(claimed.fence(), txid(501));
    // The same where there is a record.
    scene.store.delete(&scene.layout.slot(txid(501))).unwrap();
    scene.merged(501, 600);
    let claimed = scene.taken(2);
    assert_eq!((claimed.epoch(), claimed.fence()), (Epoch(2), txid(601)));
    let Reply::Slot(Some(fence)) = scene.done(&Request::Look(txid(601))) else {
        panic!("it is not there")
    };
    assert_eq!((fence.header.commit, fence.header.timestamp.millis()), (3, 7001));
}

/// Where no slots are listed another one takes over, fills slots and merges them: what it merged is
/// not the end.
#[test]
fn slots_are_looked_for_again_where_only_other_files_were_found() {
    let scene = Scene::new();
    let mut slow = Scene::claim(1);
    let is_find = |request: &Request| *request == Request::FindMerged;
    // Once before there is a record, and once when it has its epoch.
    let find = scene.until(&mut slow, None, is_find);
    let find = scene.until(&mut slow, Some(scene.done(&find)), is_find);
    let mut fast = scene.primary(2);
    scene.fill(&mut fast, 3);
    scene.merged(2, 5);
    let reply = scene.done(&find);
    assert_eq!(scene.to_end(&mut slow, Some(reply)).unwrap(), ClaimOutcome::Lost);
    assert_eq!(scene.look(6), None, "it has left no fence");
}

/// Two start at once where nothing is: the record appears while the other looks for slots.
#[test]
fn record_that_appears_meanwhile_is_no_missing_one() {
    let scene = Scene::new();
    let mut claim = Scene::claim(2);
    let find = scene.until(&mut claim, None, |request| *request == Request::FindNewest);
    scene.fill(&mut scene.primary(1), 1);
    let reply = scene.done(&find);
    assert_eq!(taken(scene.to_end(&mut claim, Some(reply))).epoch(), Epoch(2));
}

/// A fence of a smaller epoch in the way of a primary: the rule of the notes, which no schedule
/// reaches while claimants look for a newest slot that vanished.
#[test]
fn fence_of_a_smaller_epoch_is_listed_before_the_next_slot_is_filled() {
    let scene = Scene::new();
    scene.primary(1);
    let mut primary = scene.primary(2);
    let stray = fence_of(Epoch(1), primary.next());
    scene.done(&Request::Put(stray));
    let filled = scene.to_end(&mut begin(&mut primary, 7), None).unwrap();
    assert_eq!(filled, Filled::Fence(Fence::new(Epoch(1), txid(4))));
    primary.filled(&filled);
    let slot = group(7, primary.epoch(), primary.next());
    assert_eq!(primary.fill(slot).unwrap_err().kind(), ErrorKind::Invalid, "not listed yet");
    let updated = scene.to_end(&mut primary.renew().unwrap(), None).unwrap();
    primary.updated(&updated);
    assert!(scene.record().lists(Epoch(1), txid(4)));
    // Sent to a second slot, nothing is certain any more: it may be in the first one.
    let mut fill = begin(&mut primary, 7);
    let _later = scene.primary(3);
    let filled = scene.to_end(&mut fill, None).unwrap();
    assert_eq!(filled, Filled::Fenced(Certainty::Unknown));
}

/// A group that met a fence is left: its caller has given up.
#[test]
fn epoch_is_released_though_a_group_that_met_a_fence_is_left() {
    let scene = Scene::new();
    scene.primary(1);
    let mut primary = scene.primary(2);
    let fence = Fence::new(Epoch(1), primary.next());
    let mut fill = begin(&mut primary, 7);
    assert_eq!(primary.release().unwrap_err().kind(), ErrorKind::Invalid, "it is in flight");
    scene.done(&Request::Put(fence_of(fence.epoch, fence.slot)));
    let filled = scene.to_end(&mut fill, None).unwrap();
    assert_eq!(filled, Filled::Fence(fence));
    primary.filled(&filled);
    let updated = scene.to_end(&mut primary.release().unwrap(), None).unwrap();
    primary.updated(&updated);
    let record = scene.record();
    assert_eq!(record.state, State::Released);
    assert!(record.lists(fence.epoch, fence.slot), "readers pass over no hole");
}
