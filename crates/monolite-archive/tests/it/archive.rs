//! Owns an archive made by a history drawn at random, and the model that it must agree with.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use monolite_archive::{
    Keep, Layout, Lineage, Store, Target,
    internals::{
        ArchivedFile, Candidate, Catalog, Claim, ClaimOutcome, Filled, Grounds, Holder, Horizon,
        Level, Machine, Pace, Primary, Replicated, Retention, Slot, Unrecorded, restore, run,
    },
};
use monolite_ltx::{
    BaseChecksum, Checksum, DatabaseChecksum, Encoder, Header, PageSize, Pgno, Timestamp, Txid,
    TxidRange, WalSpan,
};

use crate::world::txid;

pub(crate) const PAGE_SIZE: PageSize = PageSize::MIN;

/// Merges with a catalog that is read for it.
pub(crate) fn compact_level(
    store: &dyn Store,
    layout: &Layout,
    level: Level,
    before: Option<Timestamp>,
) -> monolite_archive::Result<Option<ArchivedFile>> {
    let mut catalog = Catalog::read(store, layout)?;
    monolite_archive::internals::compact_level(store, layout, &mut catalog, level, before)
}

/// The same of a snapshot.
pub(crate) fn snapshot(
    store: &dyn Store,
    layout: &Layout,
    txid: Txid,
) -> monolite_archive::Result<ArchivedFile> {
    monolite_archive::internals::snapshot(store, layout, &mut Catalog::read(store, layout)?, txid)
}

/// The same of what may be deleted at `now`, where files are as old as their times say.
pub(crate) fn what_may_go(
    store: &dyn Store,
    layout: &Layout,
    keep: Keep,
    now: Timestamp,
) -> monolite_archive::Result<Retention> {
    let catalog = Catalog::read(store, layout)?;
    let older_than = |age: Duration| {
        let horizon = now.millis() - age.as_millis() as i64;
        let is_old =
            |it: &&ArchivedFile| it.header(store, layout).unwrap().timestamp.millis() < horizon;
        catalog.files().iter().filter(is_old).map(|file| file.txids.max()).max()
    };
    let (slots, snapshots) = (older_than(keep.slots), older_than(keep.snapshots));
    Retention::new(&catalog, Horizon { slots, snapshots })
}

/// A directory in memory where there is such a thing.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = PathBuf::from("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.unwrap()
}

/// Time that passes when somebody waits.
#[derive(Default)]
pub(crate) struct TestPace(Duration);

impl Pace for TestPace {
    fn now(&self) -> Duration {
        self.0
    }

    fn wait(&mut self, until: Duration) -> bool {
        self.0 = until;
        true
    }
}

/// A state of the database: which TXID wrote each page last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) pages: Vec<u64>,
    pub(crate) time: Timestamp,
}

impl Moment {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let pages = self.pages.iter().enumerate();
        pages.flat_map(|(at, version)| page(at as u32 + 1, *version)).collect()
    }

    fn sum(&self) -> Checksum {
        let mut sum = DatabaseChecksum::empty(PAGE_SIZE);
        for (at, version) in self.pages.iter().enumerate() {
            let number = at as u32 + 1;
            sum.toggle(Pgno::new(number).unwrap(), &page(number, *version));
        }
        sum.value()
    }
}

/// What a TXID writes into a page: some of it text that shrinks, some of it noise.
pub(crate) fn page(number: u32, version: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(version << 32 | u64::from(number));
    let mut page = vec![0; PAGE_SIZE.bytes()];
    let noise = rng.usize(..128);
    rng.fill(&mut page[..noise]);
    page[500..508].copy_from_slice(&version.to_be_bytes());
    page[508..].copy_from_slice(&number.to_be_bytes());
    page
}

fn header(base: BaseChecksum, txid: Txid, after: &Moment, epoch: u64) -> Header {
    Header {
        page_size: PAGE_SIZE,
        commit: after.pages.len() as u32,
        txids: TxidRange::single(txid),
        timestamp: after.time,
        base,
        wal: Some(WalSpan { offset: 32, size: 0, salts: [0; 2] }),
        node_id: epoch,
    }
}

/// An archive that grows, and what it must give.
pub(crate) struct Archive<S> {
    pub(crate) store: S,
    pub(crate) layout: Layout,
    pub(crate) moments: BTreeMap<Txid, Moment>,
    pub(crate) rng: fastrand::Rng,
    pub(crate) clock: i64,
    is_tracked: bool,
    pace: TestPace,
    primary: Option<Primary>,
    holder: u128,
    seed: u64,
}

impl<S> Drop for Archive<S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let line = format!("MONOLITE_SEED={} repeats this\n", self.seed);
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}

impl<S: Store> Archive<S> {
    /// With a snapshot of TXID 1.
    pub(crate) fn new(store: S, seed: u64, is_tracked: bool) -> Archive<S> {
        Archive::in_layout(store, Layout::directory(), seed, is_tracked)
    }

    pub(crate) fn in_layout(store: S, layout: Layout, seed: u64, is_tracked: bool) -> Archive<S> {
        let mut archive = Archive {
            store,
            layout,
            moments: BTreeMap::new(),
            rng: fastrand::Rng::with_seed(seed),
            clock: 1_700_000_000_000,
            is_tracked,
            pace: TestPace::default(),
            primary: None,
            holder: 0,
            seed,
        };
        let time = Timestamp::from_millis(archive.clock);
        let moment = Moment { pages: vec![1; 5], time };
        let file = archive.file(None, txid(1), &moment, 0, &[1, 2, 3, 4, 5]);
        let key = archive.layout.file(Level::SNAPSHOTS, TxidRange::single(Txid::FIRST));
        archive.store.create(&key, &file, Some(time)).unwrap();
        archive.moments.insert(Txid::FIRST, moment);
        archive
    }

    fn file(
        &self,
        before: Option<&Moment>,
        txid: Txid,
        after: &Moment,
        epoch: u64,
        pages: &[u32],
    ) -> Vec<u8> {
        let base = match (self.is_tracked, before) {
            (false, _) => BaseChecksum::Untracked,
            (true, None) => BaseChecksum::Snapshot,
            (true, Some(before)) => BaseChecksum::Database(before.sum()),
        };
        let header = header(base, txid, after, epoch);
        let mut encoder = Encoder::new(Vec::new(), header).unwrap();
        for number in pages {
            let version = after.pages[*number as usize - 1];
            encoder.page(Pgno::new(*number).unwrap(), &page(*number, version)).unwrap();
        }
        encoder.finish(self.is_tracked.then(|| after.sum())).unwrap().output
    }

    /// A file for a slot that says what it said, but for page 1, and has the right sum for it.
    pub(crate) fn forged(&self, at: Txid) -> Vec<u8> {
        let (before, after) = (&self.moments[&txid(at.get() - 1)], &self.moments[&at]);
        let header = header(BaseChecksum::Database(before.sum()), at, after, 1);
        let mut encoder = Encoder::new(Vec::new(), header).unwrap();
        for (number, version) in (1..).zip(&after.pages) {
            let version = if number == 1 { 1 << 20 } else { *version };
            encoder.page(Pgno::new(number).unwrap(), &page(number, version)).unwrap();
        }
        encoder.finish(Some(after.sum())).unwrap().output
    }

    pub(crate) fn newest(&self) -> (Txid, Moment) {
        let (txid, moment) = self.moments.last_key_value().unwrap();
        (*txid, moment.clone())
    }

    fn run<M: Machine>(&mut self, machine: &mut M) -> M::Outcome {
        run(machine, &self.store, &self.layout, &mut self.pace).unwrap()
    }

    /// A process starts: its fence is a TXID that changes nothing.
    pub(crate) fn take_over(&mut self) {
        let (_, moment) = self.newest();
        self.holder += 1;
        let time = Timestamp::from_millis(self.clock.max(moment.time.millis() + 1));
        let candidate = Candidate {
            holder: Holder::from_bits(self.holder),
            lineage: Lineage::from_bits(5),
            lease: None,
            address: String::new(),
            stream: String::new(),
            page_size: PAGE_SIZE,
            commit: moment.pages.len() as u32,
            time,
            // The snapshot that it begins with is there before the first record.
            unrecorded: Unrecorded::Adopt,
            replicated: Replicated::Nothing,
        };
        let outcome = self.run(&mut Claim::new(candidate, Grounds::Known)).unwrap();
        let ClaimOutcome::Taken(claimed) = outcome else { panic!("nobody else is there") };
        let mut primary = Primary::new(*claimed).unwrap();
        let mut update = primary.serve("here", None).unwrap();
        let updated = self.run(&mut update).unwrap();
        primary.updated(&updated);
        let fence = txid(primary.next().get() - 1);
        self.moments.insert(fence, Moment { time, ..moment });
        self.primary = Some(primary);
    }

    /// A group: the database grows or shrinks, and some pages change.
    pub(crate) fn commit(&mut self) -> ArchivedFile {
        let (_, before) = self.newest();
        let mut primary = self.primary.take().unwrap();
        let number = primary.next();
        let old = before.pages.len();
        let size = match self.rng.u8(..10) {
            0 => self.rng.usize(1..60),
            1..4 => old + self.rng.usize(..4),
            _ => old,
        };
        let mut pages = before.pages.clone();
        pages.resize(size, number.get());
        let mut changed: Vec<u32> = (old as u32 + 1..=size as u32).collect();
        for _ in 0..self.rng.usize(1..5) {
            changed.push(self.rng.u32(1..=size as u32));
        }
        changed.sort_unstable();
        changed.dedup();
        for changed in &changed {
            pages[*changed as usize - 1] = number.get();
        }
        let time = self.clock.max(before.time.millis() + 1);
        let after = Moment { pages, time: Timestamp::from_millis(time) };
        let file = self.file(Some(&before), number, &after, primary.epoch().0, &changed);
        let mut fill = primary.fill(Slot::new(file).unwrap()).unwrap();
        let filled = self.run(&mut fill).unwrap();
        assert_eq!(filled, Filled::Done);
        primary.filled(&filled);
        self.primary = Some(primary);
        self.moments.insert(number, after);
        fill.slot().file()
    }

    /// So many TXIDs, with starts among them and a clock that jumps by up to a day.
    pub(crate) fn live(&mut self, txids: u64) {
        let end = self.newest().0.get() + txids;
        while self.newest().0.get() < end {
            self.clock += match self.rng.u8(..50) {
                0 => self.rng.i64(-86_400_000..86_400_000),
                _ => self.rng.i64(0..2000),
            };
            if self.primary.is_none() || self.rng.u8(..30) == 0 {
                self.take_over();
            } else {
                self.commit();
            }
        }
    }

    pub(crate) fn primary(&mut self) -> &mut Primary {
        self.primary.as_mut().unwrap()
    }

    pub(crate) fn delete(&mut self, slots: &[monolite_archive::internals::Covered]) -> u64 {
        let mut renewal = self.primary().renew().unwrap();
        let updated = self.run(&mut renewal).unwrap();
        self.primary().updated(&updated);
        let mut deletion = self.primary().delete(slots).unwrap();
        self.run(&mut deletion).unwrap()
    }

    /// What a restore gives.
    pub(crate) fn restored(&self, target: Target) -> monolite_archive::Result<(Txid, Vec<u8>)> {
        let directory = scratch();
        let output = directory.path().join("restored.db");
        let restored = restore(&self.store, &self.layout, target, &output);
        let left = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(left, usize::from(restored.is_ok()), "nothing but the output is left");
        let restored = restored?;
        Ok((restored.txid, std::fs::read(output).unwrap()))
    }
}
