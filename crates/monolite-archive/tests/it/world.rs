//! Owns the simulated world of several processes that all want to be the primary of one archive,
//! over a store that loses answers and lets requests arrive at any later time.
//!
//! # Algorithm
//! Each process runs the machines of the protocol. In a turn one process, drawn at random, has its
//! pending request done, or lost, or left under way; is told the answer; and says what it asks
//! next. So any number of turns of others lie between what a process decides and what it does.
//! Processes pause, restart, and are cloned; requests of dead ones arrive. A deletion is left off
//! again and again, and its primary renews and fills before it goes on with it.
//!
//! Some archives have a history when they begin, and no record, which was lost: slots of large
//! epochs, or the files of a level alone. Processes adopt them.
//!
//! In a schedule in which a process was cloned nothing more is deleted: slots must be kept for
//! longer than a copy may sleep (`copy_that_sleeps_through_retention_is_not_fenced` shows why).
//!
//! # Invariants
//! What is checked, in every turn:
//! - **no fork**: a slot that had a group never gets another one, whatever was deleted;
//! - **no loss**: what was acknowledged is the first content that its slot ever had, is in what
//!   every later primary has read below its fence, and lies before the fence of every later epoch;
//! - **no partial history**: below a fence there is no hole, neither in slots nor where they were
//!   compacted, and everything is what it was when it was first there;
//! - who is told that a group is certainly not in history is told the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use monolite_archive::{
    Epoch, Fetched, Layout, Lineage, Listing, MemoryStore, Part, Record, Result, State, Store, Tag,
    internals::{
        Candidate, Certainty, Claim, ClaimOutcome, Claimed, Covered, Deletion, Fault, FaultyStore,
        Fill, Filled, Found, Grounds, Holder, Level, Machine, Place, Primary, Replicated, Reply,
        Request, Slot, SlotId, Step, Unrecorded, Update, Updated, carry_out,
    },
};
use monolite_ltx::{
    BaseChecksum, Encoder, Header, PageSize, Pgno, Timestamp, Txid, TxidRange, WalSpan,
};

/// A rule that is left out, to see that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Slots are put whatever is there.
    UnconditionalPut,
    /// The same, after a look whether the record still is ours.
    LeaseOnly,
    /// What is there is read first, and fenced later.
    RestoreBeforeFence,
    /// 412 is taken for success.
    RefusedIsSuccess,
    /// Fences are deleted like other slots.
    FencesDeleted,
    /// Slots are deleted without a renewal before it.
    DeletionWithoutRenewal,
    /// A slot is sent while the one before it is not answered.
    TwoInFlight,
}

pub(crate) fn txid(number: u64) -> Txid {
    Txid::new(number).unwrap()
}

/// A group of one page, made of a template, as encoding one takes longer than a turn. Its sum is no
/// sum but its number, which nobody computes again here.
pub(crate) fn group(number: u64, epoch: Epoch, slot: Txid) -> Slot {
    static TEMPLATE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let header = Header {
            page_size: PageSize::MIN,
            commit: 1,
            txids: TxidRange::single(txid(2)),
            timestamp: Timestamp::from_millis(0),
            base: BaseChecksum::Untracked,
            wal: Some(WalSpan { offset: 32, size: 0, salts: [0; 2] }),
            node_id: 1,
        };
        let mut encoder = Encoder::new(Vec::new(), header).unwrap();
        encoder.page(Pgno::new(1).unwrap(), &[7; 512]).unwrap();
        encoder.finish(None).unwrap().output
    });
    let mut bytes = TEMPLATE.clone();
    bytes[16..24].copy_from_slice(&slot.get().to_be_bytes());
    bytes[24..32].copy_from_slice(&slot.get().to_be_bytes());
    bytes[72..80].copy_from_slice(&epoch.0.to_be_bytes());
    let sum = 1 << 63 | number << 20 | slot.get();
    let at = bytes.len() - 8;
    bytes[at..].copy_from_slice(&sum.to_be_bytes());
    Slot::new(bytes).unwrap()
}

/// The number of the group that a slot has.
fn number(id: SlotId) -> u64 {
    (id.sum.bits() & !(1 << 63)) >> 20
}

/// Notes the first content of every slot, and lets controls overwrite.
pub(crate) struct Recording {
    pub(crate) inner: MemoryStore,
    seen: Arc<Mutex<Seen>>,
    overwrites: bool,
}

#[derive(Default)]
struct Seen {
    /// The first content that each slot had.
    history: BTreeMap<Txid, SlotId>,
    groups: BTreeSet<u64>,
    /// Fences that landed where something had been deleted.
    garbage: u64,
    violation: Option<String>,
}

impl Seen {
    fn note(&mut self, slot: &Slot) {
        let (txid, id) = (slot.txid(), slot.id());
        let is_group = id.len > Slot::FENCE_LEN;
        match self.history.get(&txid) {
            Some(first) if *first != id && is_group => {
                let message = format!("fork: slot {txid} had {first:?} and got {id:?}");
                self.violation.get_or_insert(message);
            }
            Some(first) if *first != id => self.garbage += 1,
            Some(_) => {}
            None => {
                self.history.insert(txid, id);
            }
        }
        if is_group {
            self.groups.insert(number(id));
        }
    }
}

impl Store for Recording {
    fn create(&self, key: &str, body: &[u8], time: Option<Timestamp>) -> Result<Tag> {
        let slot = Slot::new(body).ok();
        let tag = match &slot {
            Some(_) if self.overwrites => self.inner.overwrite(key, body),
            _ => self.inner.create(key, body, time)?,
        };
        if let Some(slot) = slot {
            self.seen.lock().unwrap().note(&slot);
        }
        Ok(tag)
    }

    fn swap(&self, key: &str, body: &[u8], expected: &Tag) -> Result<Tag> {
        self.inner.swap(key, body, expected)
    }

    fn get(&self, key: &str, part: Part) -> Result<Option<Fetched>> {
        self.inner.get(key, part)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Listing> {
        self.inner.list(prefix, after)
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.inner.delete(key)
    }
}

/// What a process is in the middle of.
enum Doing {
    /// It has just started.
    Idle,
    Claim(Claim),
    /// It has fenced and is to read what lies below.
    Read(Box<Claimed>),
    Update(Update),
    /// A group, by its number.
    Fill(Fill, u64),
    Delete(Deletion),
    /// Only with a control: look whether the record is ours, then fill.
    Check(Fill, u64),
    /// Only with a control: slots to be sent, and slots to be deleted.
    Raw(Vec<Request>),
}

struct Process {
    doing: Doing,
    primary: Option<Primary>,
    request: Option<Request>,
    holder: u128,
    until: Duration,
    /// Only with a control: up to where was read before the fence was set.
    early: Option<u64>,
    /// A group that met a fence and goes to the next slot.
    again: Option<u64>,
    /// A deletion that is gone on with later.
    left_off: Option<Deletion>,
}

/// What an archive has when a schedule begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    Nothing,
    /// Slots, and no record.
    Slots,
    /// One file of the first level, no slots, and no record.
    Level,
}

/// What was done in a schedule.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) acknowledged: u64,
    pub(crate) takeovers: u64,
    pub(crate) deleted: u64,
    pub(crate) garbage: u64,
    pub(crate) fenced_certain: u64,
    pub(crate) fenced_unknown: u64,
    pub(crate) clones: u64,
    /// Whether a history was adopted.
    pub(crate) adopted: u64,
}

/// A broken rule, in words.
pub(crate) type Violation = String;

pub(crate) struct World {
    rng: fastrand::Rng,
    control: Option<Control>,
    beginning: Beginning,
    pub(crate) store: FaultyStore<Recording>,
    layout: Layout,
    seen: Arc<Mutex<Seen>>,
    processes: Vec<Process>,
    now: Duration,
    next_group: u64,
    next_holder: u128,
    acknowledged: Vec<(Epoch, Txid, SlotId)>,
    /// Where epochs that served began.
    fences: BTreeMap<Txid, Epoch>,
    /// What higher levels have.
    compacted: BTreeMap<Txid, SlotId>,
    pub(crate) figures: Figures,
}

const LINEAGE: Lineage = Lineage::from_bits(1);
/// Short, so that it ends within a schedule of some hundred turns of a millisecond.
const TTL: Duration = Duration::from_millis(40);
const MARGIN: Duration = Duration::from_millis(10);

impl World {
    pub(crate) fn new(seed: u64, processes: usize, control: Option<Control>) -> World {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let overwrites = matches!(control, Some(Control::UnconditionalPut | Control::LeaseOnly));
        let recording = Recording { inner: MemoryStore::new(), seen: seen.clone(), overwrites };
        let mut faults = fastrand::Rng::with_seed(seed ^ 0x5eed);
        let store = FaultyStore::new(recording, move |call| decide(&mut faults, call));
        let process = |holder| Process {
            doing: Doing::Idle,
            primary: None,
            request: None,
            holder,
            until: Duration::ZERO,
            early: None,
            again: None,
            left_off: None,
        };
        let beginning = match seed % 7 {
            1 => Beginning::Slots,
            2 => Beginning::Level,
            _ => Beginning::Nothing,
        };
        let mut world = World {
            rng: fastrand::Rng::with_seed(seed),
            control,
            beginning,
            store,
            layout: Layout::directory(),
            seen,
            processes: (0..processes).map(|at| process(at as u128)).collect(),
            now: Duration::ZERO,
            next_group: 0,
            next_holder: 100,
            acknowledged: Vec::new(),
            fences: BTreeMap::new(),
            compacted: BTreeMap::new(),
            figures: Figures::default(),
        };
        world.begin();
        world
    }

    /// What was before the record was lost: three epochs from 50 on, of four slots each, or what
    /// was merged of such, whose epochs nobody knows.
    fn begin(&mut self) {
        const END: u64 = 13;
        for number in 2..=END {
            let slot = txid(number);
            let (epoch, is_fence) = match self.beginning {
                Beginning::Nothing => return,
                Beginning::Slots => (Epoch(50 + (number - 2) / 4), (number - 2).is_multiple_of(4)),
                Beginning::Level => (Epoch(0), false),
            };
            let file = if is_fence {
                self.fences.insert(slot, epoch);
                let time = Timestamp::from_millis(number as i64);
                Slot::fence(epoch, slot, Place { page_size: PageSize::MIN, commit: 1, time })
                    .unwrap()
            } else {
                self.next_group += 1;
                group(self.next_group, epoch, slot)
            };
            if self.beginning == Beginning::Slots {
                self.store.inner().create(&self.layout.slot(slot), file.bytes(), None).unwrap();
            } else {
                self.seen.lock().unwrap().note(&file);
                self.compacted.insert(slot, file.id());
            }
            self.acknowledged.push((epoch, slot, file.id()));
        }
        if self.beginning == Beginning::Level {
            let mut file = group(0, Epoch(0), txid(2)).bytes().to_vec();
            file[24..32].copy_from_slice(&END.to_be_bytes());
            let txids = TxidRange::new(txid(2), txid(END)).unwrap();
            let key = self.layout.file(Level::FIRST, txids);
            self.store.inner().create(&key, &file, None).unwrap();
        }
    }

    /// So many turns, and a takeover without faults at their end, which must find everything.
    pub(crate) fn run(&mut self, turns: u64) -> Result<(), Violation> {
        for _ in 0..turns {
            self.turn()?;
        }
        self.last_takeover()
    }

    fn turn(&mut self) -> Result<(), Violation> {
        self.now += Duration::from_millis(1);
        let under_way = self.store.under_way();
        if under_way > 0 && self.rng.u8(..10) == 0 {
            self.store.deliver(self.rng.usize(..under_way));
        }
        let at = self.rng.usize(..self.processes.len());
        if self.processes[at].until > self.now {
            return self.violation();
        }
        match self.rng.u8(..250) {
            0..5 => {
                let pause = [5, 50, 300][self.rng.usize(..3)];
                self.processes[at].until = self.now + Duration::from_millis(pause);
            }
            5..8 => self.restart(at),
            _ => self.go_on(at)?,
        }
        self.violation()
    }

    fn violation(&self) -> Result<(), Violation> {
        self.seen.lock().unwrap().violation.take().map_or(Ok(()), Err)
    }

    /// A process dies and begins anew. What it was about to ask may still arrive.
    fn restart(&mut self, at: usize) {
        self.next_holder += 1;
        let process = &mut self.processes[at];
        let request = process.request.take().filter(|_| self.rng.bool());
        process.doing = Doing::Idle;
        process.primary = None;
        process.holder = self.next_holder;
        (process.early, process.again, process.left_off) = (None, None, None);
        if let Some(request) = request {
            carry_out(&self.store, &self.layout, &request);
        }
    }

    /// The pending request of a process is done, and it says what comes next.
    fn go_on(&mut self, at: usize) -> Result<(), Violation> {
        let request = self.processes[at].request.take();
        let reply = request.map(|request| {
            let reply = carry_out(&self.store, &self.layout, &request);
            self.bend(at, &request, reply)
        });
        let doing = std::mem::replace(&mut self.processes[at].doing, Doing::Idle);
        match doing {
            Doing::Idle => self.idle(at),
            Doing::Claim(claim) => self.claim(at, claim, reply),
            Doing::Read(claimed) => self.read(at, claimed),
            Doing::Update(update) => self.update(at, update, reply),
            Doing::Fill(fill, group) => self.fill(at, fill, group, reply),
            Doing::Delete(deletion) => self.delete(at, deletion, reply),
            Doing::Check(fill, group) => self.check(at, fill, group, reply),
            Doing::Raw(requests) => self.raw(at, requests, reply),
        }
    }

    /// What a control makes of an answer.
    fn bend(&self, at: usize, request: &Request, reply: Reply) -> Reply {
        let doing = &self.processes[at].doing;
        match (self.control, doing, request, &reply) {
            (
                Some(Control::RefusedIsSuccess),
                Doing::Fill(..),
                Request::Put(_),
                Reply::Failed(error),
            ) if error.kind() == monolite_archive::ErrorKind::Exists => Reply::Done,
            _ => reply,
        }
    }

    /// Puts a machine's next request down; its outcome, if it has ended.
    fn asks<T>(&mut self, at: usize, step: Step<T>) -> Option<T> {
        match step {
            Step::Ask(request) => self.processes[at].request = Some(request),
            Step::Wait(until) => self.processes[at].until = until,
            Step::Ended(outcome) => return Some(outcome),
        }
        None
    }

    fn idle(&mut self, at: usize) -> Result<(), Violation> {
        if self.processes[at].primary.is_some() {
            return self.serve_on(at);
        }
        // How patient a process is, is not what keeps history whole.
        if self.rng.u8(..5) > 0 {
            return Ok(());
        }
        let grounds = if self.rng.bool() { Grounds::Known } else { Grounds::Silence(MARGIN) };
        let claim = Claim::new(self.candidate(self.processes[at].holder), grounds);
        self.claim(at, claim, None)
    }

    pub(crate) fn candidate(&self, holder: u128) -> Candidate {
        Candidate {
            holder: Holder::from_bits(holder),
            lineage: LINEAGE,
            lease: Some(TTL),
            address: String::new(),
            stream: String::new(),
            page_size: PageSize::MIN,
            commit: 1,
            time: Timestamp::from_millis(self.now.as_millis() as i64),
            unrecorded: match self.beginning {
                Beginning::Nothing => Unrecorded::Refuse,
                Beginning::Slots | Beginning::Level => Unrecorded::Adopt,
            },
            replicated: Replicated::Nothing,
        }
    }

    fn claim(
        &mut self,
        at: usize,
        mut claim: Claim,
        reply: Option<Reply>,
    ) -> Result<(), Violation> {
        let step = claim.step(reply, self.now);
        if let Step::Ask(Request::Put(fence)) = &step {
            let early = &mut self.processes[at].early;
            early.get_or_insert(fence.txid().get());
        }
        self.processes[at].doing = match self.asks(at, step) {
            None => Doing::Claim(claim),
            Some(Ok(ClaimOutcome::Lost)) => {
                self.processes[at].early = None;
                Doing::Idle
            }
            Some(Ok(ClaimOutcome::Taken(claimed))) => {
                if self.rng.u8(..80) == 0 {
                    self.clone_to_another(at, &claimed);
                }
                Doing::Read(claimed)
            }
            Some(Err(error)) => return Err(format!("a claim ends with {error:?}")),
        };
        Ok(())
    }

    /// A virtual machine is cloned: another process goes on from the same state.
    fn clone_to_another(&mut self, at: usize, claimed: &Claimed) {
        let other = (at + 1) % self.processes.len();
        self.restart(other);
        self.processes[other].doing = Doing::Read(Box::new(claimed.clone()));
        self.processes[other].early = self.processes[at].early;
        self.processes[other].holder = self.processes[at].holder;
        self.figures.clones += 1;
    }

    /// Reads everything below the fence, and is about to serve.
    fn read(&mut self, at: usize, claimed: Box<Claimed>) -> Result<(), Violation> {
        let early = self.processes[at].early.take();
        let end = match early {
            Some(early) if self.control == Some(Control::RestoreBeforeFence) => early,
            _ => claimed.fence().get(),
        };
        self.check_base(&claimed, end)?;
        let mut primary = Primary::new(*claimed).unwrap();
        // What takes longer than the TTL to read is renewed before it is served.
        let is_long = self.rng.u8(..4) == 0;
        let update = if is_long { primary.renew() } else { primary.serve("here", None) };
        self.processes[at].primary = Some(primary);
        self.update(at, update.unwrap(), None)
    }

    /// Whether what lies below the fence, up to before `end`, has everything acknowledged.
    fn check_base(&mut self, claimed: &Claimed, end: u64) -> Result<(), Violation> {
        let (epoch, fence) = (claimed.epoch(), claimed.fence());
        let view = self.view(claimed, end)?;
        let epochs = self.acknowledged.iter().filter(|(of, ..)| *of < epoch);
        for (of, slot, id) in epochs {
            if view.get(slot) != Some(id) {
                return Err(format!(
                    "loss: slot {slot} of epoch {of} was acknowledged, and epoch {epoch} with its \
                     fence at {fence} has {:?}",
                    view.get(slot)
                ));
            }
        }
        Ok(())
    }

    /// What a reader finds below a fence: slots, but for those that their epoch does not own, and
    /// what was compacted.
    fn view(&self, claimed: &Claimed, end: u64) -> Result<BTreeMap<Txid, SlotId>, Violation> {
        let record = claimed.record();
        let is_ours = |found: &Found, slot| {
            let climbed = claimed.climbed().iter().any(|fence| fence.slot == slot);
            // Which fences there were before the record was lost, nobody knows.
            let is_older = self.beginning == Beginning::Slots && record.owner(slot).is_none();
            climbed || is_older || !found.is_fence() || record.lists(found.epoch(), slot)
        };
        let mut view = BTreeMap::new();
        for slot in (2..end).map(txid) {
            let found = self.look(slot).filter(|found| is_ours(found, slot));
            let id = found.map(|found| found.id).or_else(|| self.compacted.get(&slot).copied());
            let id = id.ok_or_else(|| {
                format!("partial: nothing in slot {slot} below the fence at {}", claimed.fence())
            })?;
            let first = self.seen.lock().unwrap().history.get(&slot).copied();
            if first != Some(id) {
                return Err(format!("fork: slot {slot} is read as {id:?}, and was {first:?}"));
            }
            view.insert(slot, id);
        }
        Ok(view)
    }

    /// Into a slot, without faults.
    fn look(&self, slot: Txid) -> Option<Found> {
        match carry_out(self.store.inner(), &self.layout, &Request::Look(slot)) {
            Reply::Slot(found) => found,
            other => panic!("a look without faults gives {other:?}"),
        }
    }

    fn update(
        &mut self,
        at: usize,
        mut update: Update,
        reply: Option<Reply>,
    ) -> Result<(), Violation> {
        let step = update.step(reply, self.now);
        let Some(updated) = self.asks(at, step) else {
            self.processes[at].doing = Doing::Update(update);
            return Ok(());
        };
        let updated = updated.map_err(|error| format!("an update ends with {error:?}"))?;
        self.updated(at, &updated)
    }

    fn updated(&mut self, at: usize, updated: &Updated) -> Result<(), Violation> {
        let primary = self.processes[at].primary.as_mut().unwrap();
        primary.updated(updated);
        if let Updated::Done { record, .. } = updated
            && record.state == State::Serving
            && !self.fences.values().any(|epoch| *epoch == record.epoch)
        {
            self.note_fence(record)?;
        }
        self.end_if_fenced(at);
        Ok(())
    }

    /// An epoch serves from now on.
    fn note_fence(&mut self, record: &Record) -> Result<(), Violation> {
        let fence = record.fences.iter().find(|fence| fence.epoch == record.epoch).unwrap();
        let first = self.seen.lock().unwrap().history[&fence.slot];
        let is = self.look(fence.slot);
        let is_first = is.is_some_and(|is| is.id == first && is.epoch() == record.epoch);
        if !is_first && self.control.is_none() {
            return Err(format!(
                "epoch {} serves behind a fence at {} that is not the first content there",
                record.epoch, fence.slot
            ));
        }
        self.fences.insert(fence.slot, record.epoch);
        self.figures.takeovers += 1;
        Ok(())
    }

    fn end_if_fenced(&mut self, at: usize) {
        let process = &mut self.processes[at];
        if process.primary.as_ref().is_some_and(Primary::is_fenced) {
            self.next_holder += 1;
            process.primary = None;
            (process.again, process.left_off) = (None, None);
            process.holder = self.next_holder;
        }
    }

    /// What a primary does next.
    fn serve_on(&mut self, at: usize) -> Result<(), Violation> {
        if self.control == Some(Control::TwoInFlight) && self.rng.bool() {
            return self.two_in_flight(at);
        }
        let draw = self.rng.u8(..100);
        let process = &mut self.processes[at];
        let primary = process.primary.as_mut().unwrap();
        let must_list = process.again.is_some() && primary.record().owner(primary.next()).is_some();
        match draw {
            0..4 if process.again.is_none() => {
                let update = primary.release().unwrap();
                self.update(at, update, None)
            }
            4..20 => {
                let update = primary.renew().unwrap();
                self.update(at, update, None)
            }
            20..40 if self.figures.clones == 0 => match process.left_off.take() {
                Some(deletion) => self.delete(at, deletion, None),
                None => self.begin_deletion(at),
            },
            _ if must_list && draw < 60 => Ok(()),
            _ => self.begin_fill(at),
        }
    }

    fn begin_fill(&mut self, at: usize) -> Result<(), Violation> {
        let process = &mut self.processes[at];
        let primary = process.primary.as_mut().unwrap();
        let number = process.again.take().unwrap_or_else(|| {
            self.next_group += 1;
            self.next_group
        });
        let slot = group(number, primary.epoch(), primary.next());
        let fill = match primary.fill(slot) {
            Ok(fill) => fill,
            Err(error) => {
                // Released, or a fence is to be listed first.
                assert_eq!(error.kind(), monolite_archive::ErrorKind::Invalid);
                process.again = Some(number);
                let update = primary.serve("here", None).unwrap();
                return self.update(at, update, None);
            }
        };
        if self.control == Some(Control::LeaseOnly) {
            process.request = Some(Request::ReadRecord);
            process.doing = Doing::Check(fill, number);
            return Ok(());
        }
        self.fill(at, fill, number, None)
    }

    fn fill(
        &mut self,
        at: usize,
        mut fill: Fill,
        number: u64,
        reply: Option<Reply>,
    ) -> Result<(), Violation> {
        let step = fill.step(reply, self.now);
        let Some(filled) = self.asks(at, step) else {
            self.processes[at].doing = Doing::Fill(fill, number);
            return Ok(());
        };
        let filled = filled.map_err(|error| format!("a fill ends with {error:?}"))?;
        let process = &mut self.processes[at];
        let primary = process.primary.as_mut().unwrap();
        primary.filled(&filled);
        match filled {
            Filled::Done => {
                let (epoch, slot) = (fill.slot().epoch(), fill.slot());
                let (slot, id) = (slot.txid(), slot.id());
                self.acknowledge(epoch, slot, id)?;
            }
            Filled::Fence(_) => process.again = Some(number),
            Filled::Fenced(Certainty::Unknown) => self.figures.fenced_unknown += 1,
            Filled::Fenced(Certainty::NotInHistory) => {
                self.figures.fenced_certain += 1;
                if self.seen.lock().unwrap().groups.contains(&number) {
                    return Err(format!("group {number} was said not to be in history, and is"));
                }
            }
        }
        self.end_if_fenced(at);
        Ok(())
    }

    pub(crate) fn acknowledge(
        &mut self,
        epoch: Epoch,
        slot: Txid,
        id: SlotId,
    ) -> Result<(), Violation> {
        let first = self.seen.lock().unwrap().history.get(&slot).copied();
        if first != Some(id) {
            return Err(format!("loss: {id:?} acknowledged in slot {slot}, which has {first:?}"));
        }
        if let Some((fence, later)) = self.fences.range(..=slot).find(|(_, later)| **later > epoch)
        {
            return Err(format!(
                "loss: slot {slot} of epoch {epoch} acknowledged behind the fence of {later} at \
                 {fence}"
            ));
        }
        self.acknowledged.push((epoch, slot, id));
        self.figures.acknowledged += 1;
        Ok(())
    }

    /// Only with a control: the lease was looked at, which is all that is done.
    fn check(
        &mut self,
        at: usize,
        fill: Fill,
        number: u64,
        reply: Option<Reply>,
    ) -> Result<(), Violation> {
        match reply {
            Some(Reply::Record(Some((record, _)))) if record.epoch == fill.slot().epoch() => {
                self.fill(at, fill, number, None)
            }
            Some(Reply::Record(_)) => {
                self.restart(at);
                Ok(())
            }
            _ => {
                self.processes[at].request = Some(Request::ReadRecord);
                self.processes[at].doing = Doing::Check(fill, number);
                Ok(())
            }
        }
    }

    /// Compacts some of what is below the newest slot, and begins to delete it.
    fn begin_deletion(&mut self, at: usize) -> Result<(), Violation> {
        let primary = self.processes[at].primary.as_ref().unwrap();
        let (newest, record) = (primary.next().get() - 1, primary.record().clone());
        let from = newest.saturating_sub(12).max(2);
        let mut slots = Vec::new();
        for slot in (from..newest).map(txid) {
            let Some(found) = self.look(slot) else { continue };
            let is_owned = !found.is_fence() || record.lists(found.epoch(), slot);
            if is_owned {
                self.compact(slot, found.id)?;
            }
            if self.rng.u8(..5) < 3 {
                let by = TxidRange::new(txid(from), txid(newest)).unwrap();
                slots.push(Covered { txid: slot, len: found.id.len, by });
            }
        }
        if self.control == Some(Control::DeletionWithoutRenewal) {
            let may_go = slots.iter().filter(|slot| slot.len > Slot::FENCE_LEN);
            let requests = may_go.map(|slot| Request::Delete(slot.txid)).collect();
            return self.raw(at, requests, None);
        }
        if self.control == Some(Control::FencesDeleted) {
            for slot in &mut slots {
                slot.len = slot.len.max(Slot::FENCE_LEN + 1);
            }
        }
        let primary = self.processes[at].primary.as_ref().unwrap();
        let deletion = primary.delete(&slots).unwrap();
        self.delete(at, deletion, None)
    }

    /// A slot becomes part of a higher level: created if absent, of equal content otherwise.
    fn compact(&mut self, slot: Txid, id: SlotId) -> Result<(), Violation> {
        let known = *self.compacted.entry(slot).or_insert(id);
        let first = self.seen.lock().unwrap().history[&slot];
        if known != first {
            return Err(format!("fork: slot {slot} compacted as {known:?}, and was {first:?}"));
        }
        Ok(())
    }

    fn delete(
        &mut self,
        at: usize,
        mut deletion: Deletion,
        reply: Option<Reply>,
    ) -> Result<(), Violation> {
        let was_asked = reply.is_some();
        let step = deletion.step(reply, self.now);
        let Some(deleted) = self.asks(at, step) else {
            let process = &mut self.processes[at];
            if was_asked && self.rng.bool() {
                process.request = None;
                process.left_off = Some(deletion);
            } else {
                process.doing = Doing::Delete(deletion);
            }
            return Ok(());
        };
        self.figures.deleted +=
            deleted.map_err(|error| format!("a deletion ends with {error:?}"))?;
        Ok(())
    }

    /// Only with a control: two slots are sent, the second one whatever came of the first.
    fn two_in_flight(&mut self, at: usize) -> Result<(), Violation> {
        let primary = self.processes[at].primary.as_ref().unwrap();
        let (epoch, first) = (primary.epoch(), primary.next());
        let slots = [(1, first), (2, first.next().unwrap())];
        let slots = slots.map(|(add, slot)| group(self.next_group + add, epoch, slot));
        self.next_group += 2;
        let [one, other] = slots;
        self.raw(at, vec![Request::Put(other), Request::Put(one)], None)
    }

    /// Only with a control: requests one after the other, whatever comes of them.
    fn raw(
        &mut self,
        at: usize,
        mut requests: Vec<Request>,
        reply: Option<Reply>,
    ) -> Result<(), Violation> {
        if let Some(reply) = reply {
            let sent = requests.pop().unwrap();
            match (sent, reply) {
                (Request::Put(slot), Reply::Done) => {
                    self.acknowledge(slot.epoch(), slot.txid(), slot.id())?;
                    let primary = self.processes[at].primary.as_mut().unwrap();
                    primary.filled(&Filled::Done);
                }
                // The process dies of it.
                (Request::Put(_), _) if requests.is_empty() => {
                    self.restart(at);
                    return Ok(());
                }
                (Request::Put(_), _) => {
                    let primary = self.processes[at].primary.as_mut().unwrap();
                    primary.filled(&Filled::Done);
                }
                _ => {}
            }
        }
        if let Some(next) = requests.last() {
            self.processes[at].request = Some(next.clone());
            self.processes[at].doing = Doing::Raw(requests);
        }
        Ok(())
    }

    /// At the end of a schedule one more process takes over, over a store without faults.
    fn last_takeover(&mut self) -> Result<(), Violation> {
        let candidate = self.candidate(u128::MAX);
        let mut claim = Claim::new(candidate, Grounds::Known);
        let outcome = self.complete(&mut claim).map_err(|error| format!("{error:?}"))?;
        let ClaimOutcome::Taken(claimed) = outcome else {
            return Err("nobody else is there, and the last claim is lost".to_owned());
        };
        let end = claimed.fence().get();
        self.check_base(&claimed, end)?;
        self.figures.garbage = self.seen.lock().unwrap().garbage;
        self.figures.adopted = u64::from(self.beginning != Beginning::Nothing);
        self.violation()
    }

    /// Runs a machine to its end, over the store without faults.
    pub(crate) fn complete<M: Machine>(&mut self, machine: &mut M) -> M::Outcome {
        let mut reply = None;
        loop {
            match machine.step(reply.take(), self.now) {
                Step::Ask(request) => {
                    reply = Some(carry_out(self.store.inner(), &self.layout, &request));
                }
                Step::Wait(until) => self.now = until,
                Step::Ended(outcome) => return outcome,
            }
        }
    }
}

/// A quarter of the writes gets no answer, of which one half arrives later or never; a tenth of the
/// reads fails.
fn decide(rng: &mut fastrand::Rng, call: monolite_archive::internals::Call<'_>) -> Fault {
    use monolite_archive::internals::Call;
    let draw = rng.u8(..100);
    match (call, draw) {
        (Call::Get(_) | Call::List(_), 0..5) => Fault::Busy,
        (Call::Get(_) | Call::List(_), 5..10) => Fault::LostRequest,
        (Call::Get(_) | Call::List(_), _) => Fault::None,
        (_, 0..10) => Fault::Late,
        (_, 10..22) => Fault::LostAnswer,
        (_, 22..24) => Fault::LostRequest,
        (_, 24..27) => Fault::Conflict,
        (_, 27..30) => Fault::Busy,
        _ => Fault::None,
    }
}
