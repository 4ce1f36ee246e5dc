//! Stores keep what their trait promises, also to many at once; and machines run over a bad one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, SystemTime};

use monolite_archive::{
    DirectoryStore, Epoch, ErrorKind, Fetched, Layout, Lineage, Listing, MemoryStore, Part, Store,
    Tag,
    internals::{
        Call, Candidate, Claim, ClaimOutcome, Fault, FaultyStore, Filled, Grounds, Holder, Primary,
        Replicated, Reply, Request, SlotId, Unrecorded, carry_out, run,
    },
};
use monolite_ltx::{PageSize, Timestamp, Txid};

use crate::archive::{Archive, TestPace, scratch};
use crate::world::group;

/// What holds of every store.
pub(crate) fn keeps_its_promises(store: &dyn Store, prefix: &str) {
    let at = |key: &str| format!("{prefix}{key}");
    let exists = |result: monolite_archive::Result<_>| result.unwrap_err().kind();
    assert_eq!(store.get(&at("a/b/one"), Part::Whole(10)).unwrap(), None);
    assert!(store.list(&at("a/b"), None).unwrap().objects.is_empty());
    let tag = store.create(&at("a/b/one"), b"first", None).unwrap();
    assert_eq!(exists(store.create(&at("a/b/one"), b"other", None)), ErrorKind::Exists);
    let object = store.get(&at("a/b/one"), Part::Whole(5)).unwrap().unwrap();
    assert_eq!((&object.bytes[..], object.len, &object.tag), (&b"first"[..], 5, &tag));
    let parts = [(Part::Range(1..3), "ir"), (Part::Range(3..99), "st"), (Part::Range(9..99), "")];
    for (part, bytes) in parts.into_iter().chain([(Part::End(2), "st"), (Part::End(99), "first")]) {
        let object = store.get(&at("a/b/one"), part.clone()).unwrap().unwrap();
        assert_eq!((&object.bytes[..], object.len), (bytes.as_bytes(), 5), "{part:?}");
    }
    let long = store.get(&at("a/b/one"), Part::Whole(4));
    assert_eq!(long.unwrap_err().kind(), ErrorKind::Corrupt);
    let next = store.swap(&at("a/b/one"), b"second", &tag).unwrap();
    assert_eq!(exists(store.swap(&at("a/b/one"), b"third", &tag)), ErrorKind::Exists);
    assert_eq!(exists(store.swap(&at("a/b/none"), b"third", &tag)), ErrorKind::Exists);
    let object = store.get(&at("a/b/one"), Part::Whole(99)).unwrap().unwrap();
    assert_eq!((&object.bytes[..], &object.tag), (&b"second"[..], &next));
    for number in 0..250 {
        store.create(&at(&format!("a/c/{number:03}")), b"x", None).unwrap();
    }
    store.create(&at("a/c/below/this"), b"x", None).unwrap();
    let (mut keys, mut after) = (Vec::new(), None::<String>);
    loop {
        let listing = store.list(&at("a/c"), after.as_deref()).unwrap();
        keys.extend(listing.objects.iter().map(|object| object.key.clone()));
        after = keys.last().cloned();
        if !listing.is_cut {
            break;
        }
    }
    assert_eq!(keys, (0..250).map(|number| at(&format!("a/c/{number:03}"))).collect::<Vec<_>>());
    store.delete(&at("a/c/007")).unwrap();
    store.delete(&at("a/c/007")).unwrap();
    assert_eq!(store.get(&at("a/c/007"), Part::Whole(9)).unwrap(), None);
    let drawn = Holder::from_bits(3);
    monolite_archive::internals::probe(store, &Layout::directory(), drawn).unwrap();
    assert!(store.list("monolite", None).unwrap().objects.is_empty(), "nothing is left of it");
    let failed = store.create_from(&at("a/d"), 9, None, &mut |output| {
        std::io::Write::write_all(output, b"half").unwrap();
        Err(monolite_archive::Error::new(ErrorKind::Lost, "broke off"))
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(store.get(&at("a/d"), Part::Whole(9)).unwrap(), None, "it is whole or not there");
}

/// A store that does whatever it is asked.
struct Compliant(MemoryStore);

impl Store for Compliant {
    fn create(
        &self,
        key: &str,
        body: &[u8],
        _: Option<Timestamp>,
    ) -> monolite_archive::Result<Tag> {
        Ok(self.0.overwrite(key, body))
    }

    fn swap(&self, key: &str, body: &[u8], _: &Tag) -> monolite_archive::Result<Tag> {
        Ok(self.0.overwrite(key, body))
    }

    fn get(&self, key: &str, part: Part) -> monolite_archive::Result<Option<Fetched>> {
        self.0.get(key, part)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> monolite_archive::Result<Listing> {
        self.0.list(prefix, after)
    }

    fn delete(&self, key: &str) -> monolite_archive::Result<()> {
        self.0.delete(key)
    }
}

#[test]
fn store_that_refuses_nothing_is_found_out() {
    let store = Compliant(MemoryStore::new());
    let drawn = Holder::from_bits(3);
    let error =
        monolite_archive::internals::probe(&store, &Layout::directory(), drawn).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(store.0.is_empty());
}

#[test]
fn verdict_on_a_store_is_given_though_it_deletes_nothing() {
    fn of(store: impl Store) -> monolite_archive::Result<()> {
        let store = FaultyStore::new(store, |call| match call {
            Call::Delete(_) => Fault::LostRequest,
            _ => Fault::None,
        });
        monolite_archive::internals::probe(&store, &Layout::directory(), Holder::from_bits(3))
    }
    let error = of(Compliant(MemoryStore::new())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(of(MemoryStore::new()).is_ok());
}

#[test]
fn memory_keeps_its_promises() {
    keeps_its_promises(&MemoryStore::new(), "");
}

#[test]
fn directory_keeps_its_promises() {
    let directory = scratch();
    let root = directory.path().join("not/there/yet");
    let store = DirectoryStore::new(&root);
    keeps_its_promises(&store, "");
    // No temporary file is left, and none is listed.
    std::fs::write(root.join("a/c/half.tmp"), "half").unwrap();
    assert_eq!(store.list("a/c", None).unwrap().objects.len(), 249);
    std::fs::remove_file(root.join("a/c/half.tmp")).unwrap();
    let mut names = BTreeSet::new();
    for folder in ["a", "a/b", "a/c"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap();
        names.extend(entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()));
    }
    assert!(!names.iter().any(|name| name.ends_with(".tmp")), "{names:?}");
}

#[test]
fn key_cannot_leave_the_directory() {
    let directory = scratch();
    let store = DirectoryStore::new(directory.path().join("root"));
    for key in ["../out", "/out", "a/../../out", "a//b", "", ".", "a/b.tmp", "a\0b"] {
        let refused = store.create(key, b"x", None);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid, "{key:?}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn file_has_the_time_of_what_is_in_it() {
    let directory = scratch();
    let store = DirectoryStore::new(directory.path());
    for millis in [1_700_000_000_123, 0, -5000] {
        let key = format!("t/{millis}");
        store.create(&key, b"x", Some(Timestamp::from_millis(millis))).unwrap();
        let time = std::fs::metadata(directory.path().join(&key)).unwrap().modified().unwrap();
        let distance = Duration::from_millis(millis.unsigned_abs());
        let expected = match millis {
            0.. => SystemTime::UNIX_EPOCH + distance,
            _ => SystemTime::UNIX_EPOCH - distance,
        };
        assert_eq!(time, expected);
    }
}

#[test]
fn of_many_that_create_one_file_one_does() {
    let directory = scratch();
    let barrier = Barrier::new(8);
    let won = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (barrier, won, root) = (&barrier, &won, directory.path());
            scope.spawn(move || {
                let store = DirectoryStore::new(root);
                for round in 0..40 {
                    barrier.wait();
                    let (key, body) = (format!("race/{round}"), [thread; 3000]);
                    match store.create(&key, &body, None) {
                        Ok(_) => won.fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Exists);
                            // What is there is whole.
                            let there = store.get(&key, Part::Whole(3000)).unwrap().unwrap();
                            assert!(there.bytes.iter().all(|byte| *byte == there.bytes[0]));
                            assert_eq!(there.len, 3000);
                            0
                        }
                    };
                }
            });
        }
    });
    assert_eq!(won.into_inner(), 40);
}

#[test]
fn of_many_that_swap_none_is_overwritten() {
    let directory = scratch();
    let store = DirectoryStore::new(directory.path());
    store.create("count", b"0", None).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let store = DirectoryStore::new(directory.path());
                let mut left = 30;
                while left > 0 {
                    let object = store.get("count", Part::Whole(99)).unwrap().unwrap();
                    let count: u64 = String::from_utf8(object.bytes).unwrap().parse().unwrap();
                    let next = (count + 1).to_string();
                    match store.swap("count", next.as_bytes(), &object.tag) {
                        Ok(_) => left -= 1,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Exists),
                    }
                }
            });
        }
    });
    let object = store.get("count", Part::Whole(99)).unwrap().unwrap();
    assert_eq!(object.bytes, b"180");
}

#[test]
fn swap_waits_for_who_has_the_lock() {
    let directory = scratch();
    let store = DirectoryStore::new(directory.path());
    let tag = store.create("record", b"one", None).unwrap();
    let lock = std::fs::File::create(directory.path().join("lock")).unwrap();
    lock.lock().unwrap();
    let begun = Barrier::new(2);
    std::thread::scope(|scope| {
        let swap = scope.spawn(|| {
            begun.wait();
            DirectoryStore::new(directory.path()).swap("record", b"two", &tag)
        });
        begun.wait();
        // Without the lock it would be done by now.
        let turns = (0..20_000).take_while(|_| !swap.is_finished());
        turns.for_each(|_| std::thread::yield_now());
        std::fs::write(directory.path().join("record"), b"another's").unwrap();
        drop(lock);
        assert_eq!(swap.join().unwrap().unwrap_err().kind(), ErrorKind::Exists);
    });
}

/// Threads as processes that take over from each other, again and again, in one directory.
#[test]
fn processes_that_fight_over_a_directory_lose_nothing() {
    let directory = scratch();
    let acknowledged: Mutex<Vec<(Txid, SlotId)>> = Mutex::default();
    std::thread::scope(|scope| {
        for process in 0..4_u64 {
            let (root, acknowledged) = (directory.path(), &acknowledged);
            scope.spawn(move || {
                let store = DirectoryStore::new(root);
                for start in 0..5 {
                    fight(&store, process * 100 + start, acknowledged);
                }
            });
        }
    });
    let store = DirectoryStore::new(directory.path());
    let acknowledged = acknowledged.into_inner().unwrap();
    // Claims fence each other at any point; only the last one is sure to write all its groups.
    assert!(acknowledged.len() >= 9);
    for (slot, id) in acknowledged {
        let Reply::Slot(Some(found)) =
            carry_out(&store, &Layout::directory(), &Request::Look(slot))
        else {
            panic!("slot {slot} is not there");
        };
        assert_eq!(found.id, id, "slot {slot}");
    }
}

fn claim(holder: u128) -> Claim {
    let candidate = Candidate {
        holder: Holder::from_bits(holder),
        lineage: Lineage::from_bits(1),
        lease: None,
        address: String::new(),
        stream: String::new(),
        page_size: PageSize::MIN,
        commit: 1,
        time: Timestamp::from_millis(0),
        unrecorded: Unrecorded::Refuse,
        replicated: Replicated::Nothing,
    };
    Claim::new(candidate, Grounds::Known)
}

/// Takes over and fills slots until fenced, or ten of them.
fn fight(store: &DirectoryStore, start: u64, acknowledged: &Mutex<Vec<(Txid, SlotId)>>) {
    let (layout, mut pace) = (Layout::directory(), TestPace::default());
    let mut claim = claim(u128::from(start));
    let outcome = run(&mut claim, store, &layout, &mut pace).unwrap().unwrap();
    let ClaimOutcome::Taken(claimed) = outcome else { return };
    let mut primary = Primary::new(*claimed).unwrap();
    let updated =
        run(&mut primary.serve("", None).unwrap(), store, &layout, &mut pace).unwrap().unwrap();
    primary.updated(&updated);
    for number in 1..10 {
        if primary.is_fenced() {
            return;
        }
        let slot = group(start * 100 + number, primary.epoch(), primary.next());
        let id = slot.id();
        let mut fill = primary.fill(slot).unwrap();
        let txid = fill.slot().txid();
        let filled = run(&mut fill, store, &layout, &mut pace).unwrap().unwrap();
        primary.filled(&filled);
        if filled == Filled::Done {
            acknowledged.lock().unwrap().push((txid, id));
        }
    }
}

/// Of a hundred requests ten get 503, five 409, five no answer though they are done, five are lost,
/// and three arrive later.
#[test]
fn bad_store_makes_no_gap() {
    let mut rng = fastrand::Rng::with_seed(11);
    let store = FaultyStore::new(MemoryStore::new(), move |call| {
        let draw = rng.u8(..100);
        match (call, draw) {
            // The snapshot that the test begins with.
            (Call::Create(key), _) if key.starts_with("ltx/9/") => Fault::None,
            (_, 0..10) => Fault::Busy,
            (_, 10..15) => Fault::Conflict,
            (_, 15..20) => Fault::LostAnswer,
            (_, 20..25) => Fault::LostRequest,
            (_, 25..28) => Fault::Late,
            _ => Fault::None,
        }
    });
    let mut archive = Archive::new(store, 12, false);
    archive.live(300);
    while archive.store.under_way() > 0 {
        assert!(archive.store.deliver(0));
    }
    let proof =
        monolite_archive::internals::verify(archive.store.inner(), &archive.layout, &mut |_| {})
            .unwrap();
    assert!(proof.problems.is_empty(), "{:?}", proof.problems);
    let catalog =
        monolite_archive::internals::Catalog::read(archive.store.inner(), &archive.layout).unwrap();
    assert_eq!(catalog.newest(), Some(archive.newest().0));
}

/// A group is looked at by two requests, between which it may become another.
#[test]
fn look_is_at_one_content_of_a_slot() {
    let (inner, layout) = (MemoryStore::new(), Layout::directory());
    let (slot, epoch) = (Txid::new(5).unwrap(), Epoch(1));
    let (first, other) = (group(1, epoch, slot), group(2, Epoch(2), slot));
    inner.create(&layout.slot(slot), first.bytes(), None).unwrap();
    let (behind, body, mut reads) = (inner.clone(), other.bytes().to_vec(), 0);
    let store = FaultyStore::new(inner, move |call| {
        reads += 1;
        if let (Call::Get(key), 2) = (call, reads) {
            behind.overwrite(key, &body);
        }
        Fault::None
    });
    match carry_out(&store, &layout, &Request::Look(slot)) {
        Reply::Slot(Some(found)) => {
            assert_eq!((found.id, found.epoch()), (other.id(), Epoch(2)));
        }
        reply => panic!("{reply:?}"),
    }
}

/// A cache in front of a bucket may give one object another tag each time.
#[test]
fn slot_that_is_another_one_at_each_request_is_given_up() {
    let (inner, layout) = (MemoryStore::new(), Layout::directory());
    let (slot, epoch) = (Txid::new(5).unwrap(), Epoch(1));
    let body = group(1, epoch, slot).bytes().to_vec();
    inner.create(&layout.slot(slot), &body, None).unwrap();
    let (behind, mut reads) = (inner.clone(), 0);
    let store = FaultyStore::new(inner, move |call| {
        reads += 1;
        assert!(reads < 1_000, "it is read for ever");
        if let Call::Get(key) = call {
            behind.overwrite(key, &body);
        }
        Fault::None
    });
    match carry_out(&store, &layout, &Request::Look(slot)) {
        Reply::Failed(error) => {
            assert!(error.is_transient() && error.to_string().contains("cache"), "{error}");
        }
        reply => panic!("{reply:?}"),
    }
}

/// Time that passes when somebody waits, for an hour.
struct Hour {
    now: Duration,
    rests: Vec<Duration>,
}

impl monolite_archive::internals::Pace for Hour {
    fn now(&self) -> Duration {
        self.now
    }

    fn wait(&mut self, until: Duration) -> bool {
        self.rests.push(until - self.now);
        self.now = until;
        self.now < Duration::from_secs(3600)
    }
}

/// Claims an archive for an hour, and returns the rests and how often the store was asked.
fn asked_in_an_hour(mut is_lost: impl FnMut(Call<'_>) -> bool + Send + 'static) -> (Hour, u64) {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = asked.clone();
    let store = FaultyStore::new(MemoryStore::new(), move |call| {
        counter.fetch_add(1, Ordering::Relaxed);
        if is_lost(call) { Fault::LostRequest } else { Fault::None }
    });
    let mut hour = Hour { now: Duration::ZERO, rests: Vec::new() };
    let mut claim = claim(1);
    assert!(run(&mut claim, &store, &Layout::directory(), &mut hour).is_none());
    (hour, asked.load(Ordering::Relaxed))
}

/// An hour away: the machine rests for longer and longer, and ends when it is told to.
#[test]
fn store_that_is_away_is_asked_less_and_less() {
    let (hour, asked) = asked_in_an_hour(|_| true);
    assert_eq!(hour.rests[..3], [50, 100, 200].map(Duration::from_millis));
    assert!(hour.rests.iter().all(|rest| *rest <= Duration::from_secs(10)));
    assert!((360..400).contains(&asked), "{asked}");
}

/// The same where reads succeed, of which one lies between any two attempts to write.
#[test]
fn store_that_takes_no_writes_is_asked_less_and_less() {
    let (hour, asked) = asked_in_an_hour(|call| matches!(call, Call::Create(_) | Call::Swap(_)));
    assert_eq!(hour.rests[..3], [50, 100, 200].map(Duration::from_millis));
    assert!((720..800).contains(&asked), "{asked}");
}

/// A directory that was moved away, or whose file system is not mounted any more: nothing is made
/// in its place, and what is not there says nothing.
#[test]
fn directory_that_was_there_is_not_made_again() {
    let scratch = scratch();
    let (root, away) = (scratch.path().join("archive"), scratch.path().join("away"));
    let store = DirectoryStore::new(&root);
    assert_eq!(store.get("a/b", Part::Whole(9)).unwrap(), None, "there is none yet");
    let tag = store.create("a/b", b"first", None).unwrap();
    std::fs::rename(&root, &away).unwrap();
    let says_nothing = || {
        let errors = [
            store.get("a/c", Part::Whole(9)).map(drop),
            store.list("a", None).map(drop),
            store.create("b/c", b"second", None).map(drop),
            store.swap("a/b", b"second", &tag).map(drop),
        ];
        for error in errors {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        }
    };
    says_nothing();
    assert!(!root.exists());
    std::fs::create_dir_all(root.join("a")).unwrap();
    std::fs::write(root.join("a/c"), "of another").unwrap();
    says_nothing();
    std::fs::remove_dir_all(&root).unwrap();
    std::fs::rename(&away, &root).unwrap();
    store.create("b/c", b"second", None).unwrap();
    assert_eq!(store.list("a", None).unwrap().objects.len(), 1);
}
