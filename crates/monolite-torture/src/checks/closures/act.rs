//! What misbehaving closures do: acts drawn at random, which may hold further acts.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use monolite::{Database, Error, ErrorKind, ReadTx, Transaction, Tx, Write};
use monolite_testkit::blocking::{block_on, locked};
use monolite_testkit::markers;
use monolite_testkit::schedule::{Interactive, Pace};

/// What a write and a read may take.
pub(super) const LIMIT: Duration = Duration::from_millis(150);

/// How deep acts are held by acts.
const DEPTH: u32 = 3;

/// After this a waker has been woken, mostly; who waits in another way replaces it.
const UNTIL_WOKEN: Duration = Duration::from_millis(20);

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
    SELECT max(i) FROM n";
const ROWS: &str = "VALUES (1), (2), (3)";

/// The payload of a panic on purpose.
pub(super) enum OnPurpose {
    InClosure,
    /// Or in a waker: it says nothing of the write.
    InDrop,
}

/// A closure, where it runs, and how its result is waited for.
#[derive(Clone, Debug)]
pub(super) struct Act {
    place: Place,
    way: Way,
    deeds: Vec<Deed>,
    at_drop: AtDrop,
    /// Whether it is of the other database.
    is_elsewhere: bool,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Write,
    WriteOnce,
    TryWrite,
    Read,
    ReadDurable,
    /// Between the statements of `transact`.
    Transact,
    /// In the mapping closure of a statement of an interactive transaction.
    Statement,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Wait,
    Await,
    /// Another thread waits, and is joined.
    Join,
    /// Polled once and dropped.
    GiveUp,
    /// Dropped without a look.
    Forget,
    /// First polled with a waker that panics, then waited for.
    BadWaker,
}

#[derive(Clone, Debug)]
enum Deed {
    Work,
    Sleep(Duration),
    SleepBetweenRows(Duration),
    /// A statement without end.
    Endless,
    Panic,
    Fail,
    Close,
    /// Stays until the round lets it go.
    Stay,
    Do(Arc<Act>),
}

/// What the drop of a closure's result does, and, where that panics, the drop of the closure.
#[derive(Clone, Debug)]
enum AtDrop {
    Nothing,
    Panic,
    Sleep(Duration),
    Do(Arc<Act>),
}

impl Act {
    pub(super) fn random(rng: &mut Rng) -> Arc<Act> {
        Act::at_depth(rng, DEPTH)
    }

    fn at_depth(rng: &mut Rng, depth: u32) -> Arc<Act> {
        let deeds = (0..rng.usize(1..4)).map(|_| Deed::random(rng, depth)).collect();
        let at_drop = match rng.u8(..12) {
            0 => AtDrop::Panic,
            1 => AtDrop::Sleep(pause(rng)),
            2 if depth > 1 => AtDrop::Do(Act::at_depth(rng, 1)),
            _ => AtDrop::Nothing,
        };
        let place = match rng.u8(..10) {
            0..3 => Place::Write,
            3 => Place::WriteOnce,
            4 => Place::TryWrite,
            5..7 => Place::Read,
            7 => Place::ReadDurable,
            8 => Place::Transact,
            _ => Place::Statement,
        };
        let way = match rng.u8(..9) {
            0..3 => Way::Wait,
            3..5 => Way::Await,
            5 => Way::Join,
            6 => Way::GiveUp,
            7 => Way::Forget,
            _ => Way::BadWaker,
        };
        Arc::new(Act { place, way, deeds, at_drop, is_elsewhere: rng.u8(..6) == 0 })
    }
}

impl Deed {
    fn random(rng: &mut Rng, depth: u32) -> Deed {
        match rng.u8(..20) {
            0..2 => Deed::Sleep(pause(rng)),
            2 => Deed::SleepBetweenRows(pause(rng)),
            3 => Deed::Endless,
            4 => Deed::Panic,
            5 => Deed::Fail,
            6 => Deed::Close,
            7 => Deed::Stay,
            8..13 if depth > 1 => Deed::Do(Act::at_depth(rng, depth - 1)),
            _ => Deed::Work,
        }
    }
}

/// From nothing to more than any limit.
fn pause(rng: &mut Rng) -> Duration {
    LIMIT * rng.u32(..9) / 4
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Unknown,
    Acknowledged,
    /// What was asked for, and what was told.
    Refused(String),
}

impl Fate {
    /// What an answer means for the write that `asked` for it.
    pub(super) fn told<T>(answer: &Result<T, Error>, asked: &dyn Debug) -> Fate {
        match answer {
            Ok(_) => Fate::Acknowledged,
            Err(error) if error.kind() == ErrorKind::CommitUnknown => Fate::Unknown,
            Err(error) => Fate::Refused(format!("{asked:?} was told {:?}: {error}", error.kind())),
        }
    }
}

/// A database with what its writers were told.
pub(super) struct Stage {
    /// Taken away at the end of the round.
    pub(super) db: Mutex<Option<Database>>,
    pub(super) fates: Mutex<BTreeMap<i64, Fate>>,
}

impl Stage {
    pub(super) fn new(db: Database) -> Stage {
        Stage { db: Mutex::new(Some(db)), fates: Mutex::default() }
    }

    pub(super) fn db(&self) -> Option<Database> {
        locked(&self.db).clone()
    }
}

/// Everything that acts share.
pub(super) struct Scene {
    /// The one, and the other.
    pub(super) stages: [Stage; 2],
    pub(super) gate: Gate,
    pub(super) next: AtomicI64,
    pub(super) acts: AtomicU64,
    pub(super) broken: Mutex<Vec<String>>,
}

impl Scene {
    pub(super) fn broken(&self, what: String) {
        locked(&self.broken).push(what);
    }
}

/// Where closures stay until the round lets them go.
#[derive(Default)]
pub(super) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(super) fn pass(&self) {
        let mut is_open = locked(&self.is_open);
        while !*is_open {
            is_open = self.opened.wait(is_open).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn open(&self) {
        *locked(&self.is_open) = true;
        self.opened.notify_all();
    }
}

/// The result of a closure.
pub(super) struct Left {
    at_drop: AtDrop,
    scene: Arc<Scene>,
}

impl Drop for Left {
    fn drop(&mut self) {
        // A second panic would end the process: that is Rust's rule.
        if thread::panicking() {
            return;
        }
        match &self.at_drop {
            AtDrop::Nothing => {}
            AtDrop::Panic => panic_any(OnPurpose::InDrop),
            AtDrop::Sleep(time) => thread::sleep(*time),
            AtDrop::Do(act) => perform(act, &self.scene),
        }
    }
}

/// Kept by a closure that writes, and dropped with it: by the engine, mostly.
struct Bomb {
    is_live: bool,
}

impl Bomb {
    fn of(act: &Act) -> Bomb {
        let writes = matches!(act.place, Place::Write | Place::WriteOnce | Place::TryWrite);
        Bomb { is_live: writes && matches!(act.at_drop, AtDrop::Panic) }
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.is_live && !thread::panicking() {
            panic_any(OnPurpose::InDrop);
        }
    }
}

/// Does it, and notes what its write was told.
pub(super) fn perform(act: &Arc<Act>, scene: &Arc<Scene>) {
    let stage = usize::from(act.is_elsewhere);
    let Some(db) = scene.stages[stage].db() else { return };
    let id = scene.next.fetch_add(1, Ordering::SeqCst);
    scene.acts.fetch_add(1, Ordering::Relaxed);
    locked(&scene.stages[stage].fates).insert(id, Fate::Unknown);
    let play = Play { act: Arc::clone(act), scene: Arc::clone(scene), db, id };
    let told = catch_unwind(AssertUnwindSafe(|| play.run()));
    let fate = match told {
        Ok(fate) => fate,
        Err(payload) => match payload.downcast_ref() {
            Some(OnPurpose::InClosure) => Fate::Refused(format!("{act:?} panicked")),
            Some(OnPurpose::InDrop) => Fate::Unknown,
            None => {
                scene.broken(format!("{act:?} panicked: {}", words(&*payload)));
                Fate::Unknown
            }
        },
    };
    locked(&scene.stages[stage].fates).insert(id, fate);
}

/// What a panic says.
pub(super) fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "?".into())
}

/// One performance of an act.
#[derive(Clone)]
struct Play {
    act: Arc<Act>,
    scene: Arc<Scene>,
    db: Database,
    id: i64,
}

impl Play {
    fn run(&self) -> Fate {
        let (db, play) = (&self.db, self.clone());
        let bomb = Bomb::of(&self.act);
        let body = move |tx: &Tx<'_>| {
            let _kept = &bomb;
            play.reads(tx)?;
            markers::put(tx, play.id)?;
            Ok(play.left())
        };
        match self.act.place {
            Place::Write => self.see(db.write(body)),
            Place::WriteOnce => self.see(db.write_once(body)),
            Place::TryWrite => match db.try_write(body) {
                Ok(write) => self.see(write),
                Err(error) => self.refused(error),
            },
            Place::Read | Place::ReadDurable => self.read(),
            Place::Transact => self.transact(),
            Place::Statement => self.statement(),
        }
    }

    /// The closure itself, but for the write at its end.
    fn reads(&self, tx: &ReadTx<'_>) -> Result<(), Error> {
        let is_read = matches!(self.act.place, Place::Read | Place::ReadDurable);
        for deed in &self.act.deeds {
            match deed {
                Deed::Work if is_read => {
                    tx.query_row("SELECT n FROM total", (), |row| row.get::<_, i64>(0))?;
                }
                Deed::SleepBetweenRows(time) => {
                    let mut statement = tx.prepare(ROWS)?;
                    let mut rows = statement.query(())?;
                    while rows.next()?.is_some() {
                        thread::sleep(*time);
                    }
                }
                Deed::Endless => {
                    tx.query_row(ENDLESS, (), |row| row.get::<_, i64>(0))?;
                }
                // Once at the end.
                Deed::Work => {}
                deed => self.beside(deed)?,
            }
        }
        Ok(())
    }

    /// A deed that needs no transaction.
    fn beside(&self, deed: &Deed) -> Result<(), Error> {
        match deed {
            Deed::Sleep(time) | Deed::SleepBetweenRows(time) => thread::sleep(*time),
            Deed::Panic => panic_any(OnPurpose::InClosure),
            Deed::Fail => return Err(Error::aborted("on purpose")),
            Deed::Close => match self.db.close() {
                Err(error) if error.kind() == ErrorKind::Invalid => {}
                told => self.scene.broken(format!("close inside of a closure: {told:?}")),
            },
            Deed::Stay => self.scene.gate.pass(),
            Deed::Do(act) => perform(act, &self.scene),
            Deed::Work | Deed::Endless => {}
        }
        Ok(())
    }

    fn left(&self) -> Left {
        Left { at_drop: self.act.at_drop.clone(), scene: Arc::clone(&self.scene) }
    }

    fn read(&self) -> Fate {
        let play = self.clone();
        let body = move |tx: &ReadTx<'_>| {
            play.reads(tx)?;
            Ok(play.left())
        };
        let read = || match self.act.place {
            Place::ReadDurable => self.db.read_durable(body),
            _ => self.db.read(body),
        };
        match self.act.way {
            Way::Wait => drop(read().wait()),
            Way::Join => thread::scope(|scope| {
                let joined = scope.spawn(|| drop(block_on(read()))).join();
                joined.unwrap_or_else(|payload| resume_unwind(payload));
            }),
            _ => drop(self.come_by(read(), block_on)),
        }
        self.wrote_nothing()
    }

    fn transact(&self) -> Fate {
        let play = self.clone();
        let body = move |tx: &Transaction| {
            for deed in &play.act.deeds {
                match deed {
                    Deed::Endless => {
                        tx.query_row(ENDLESS, (), |row| row.get::<_, i64>(0)).wait()?;
                    }
                    // Only the engine's own closures are in its way.
                    Deed::Close => {}
                    deed => play.beside(deed)?,
                }
            }
            markers::put(&Interactive::new(tx, Pace::steady()), play.id)?;
            Ok::<_, Error>(play.left())
        };
        let transact = self.db.transact(async |tx| body(&tx));
        let told = match self.act.way {
            Way::Wait | Way::Join => Some(transact.wait()),
            // It has not begun.
            Way::Forget => return self.wrote_nothing(),
            _ => self.come_by(transact, block_on),
        };
        told.map_or(Fate::Unknown, |told| self.settle(told))
    }

    fn statement(&self) -> Fate {
        let tx = match self.db.transaction() {
            Ok(tx) => Arc::new(tx),
            Err(error) => return self.refused(error),
        };
        let (play, same) = (self.clone(), Arc::downgrade(&tx));
        let asked = tx.query_map(ROWS, (), move |row| {
            for deed in &play.act.deeds {
                // One on the same transaction, whose answer is awaited or not.
                if let (Deed::Work, Some(tx)) = (deed, same.upgrade()) {
                    drop(tx.query_row("SELECT 1", (), |row| row.get::<_, i64>(0)).wait());
                }
                if play.beside(deed).is_err() {
                    return Err(monolite::rusqlite::Error::InvalidQuery);
                }
            }
            row.get::<_, i64>(0)
        });
        let answer = match self.act.way {
            Way::Wait => Some(asked.wait()),
            _ => self.come_by(asked, block_on),
        };
        match answer {
            None => return self.wrote_nothing(),
            Some(Err(error)) => return self.refused(error),
            Some(Ok(_)) => {}
        }
        let put = markers::put(&Interactive::new(&tx, Pace::steady()), self.id);
        if let Err(error) = put {
            return self.refused(error);
        }
        match Arc::into_inner(tx) {
            Some(tx) => self.see(tx.commit()),
            None => self.wrote_nothing(),
        }
    }

    fn see<T: Send + 'static>(&self, write: Write<T>) -> Fate {
        let wait = |write: Pin<Box<Write<T>>>| {
            let write = Pin::into_inner(write);
            match self.act.way {
                Way::Join => {
                    let joined = thread::spawn(move || write.wait()).join();
                    joined.unwrap_or_else(|payload| resume_unwind(payload))
                }
                _ => write.wait(),
            }
        };
        self.come_by(write, wait).map_or(Fate::Unknown, |told| self.settle(told))
    }

    /// Comes by a result in the act's way, if that is to wait for it.
    fn come_by<F: Future>(
        &self,
        future: F,
        wait: impl FnOnce(Pin<Box<F>>) -> F::Output,
    ) -> Option<F::Output> {
        let mut future = Box::pin(future);
        let polled = match self.act.way {
            Way::Wait | Way::Join => return Some(wait(future)),
            Way::Await => return Some(block_on(future)),
            Way::Forget => return None,
            Way::GiveUp => poll(future.as_mut(), Waker::noop()),
            Way::BadWaker => poll(future.as_mut(), &Waker::from(Arc::new(Bad))),
        };
        match polled {
            Poll::Ready(told) => Some(told),
            Poll::Pending if matches!(self.act.way, Way::GiveUp) => None,
            Poll::Pending => {
                thread::sleep(UNTIL_WOKEN);
                Some(wait(future))
            }
        }
    }

    /// What an answer means for the write.
    fn settle<T>(&self, told: Result<T, Error>) -> Fate {
        let fate = self.fate(&told);
        // Not before it is known: the drop may panic.
        locked(&self.scene.stages[usize::from(self.act.is_elsewhere)].fates)
            .insert(self.id, fate.clone());
        let _ = catch_unwind(AssertUnwindSafe(|| drop(told)));
        fate
    }

    fn fate<T>(&self, told: &Result<T, Error>) -> Fate {
        let is_defect = |error: &&Error| {
            matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Internal | ErrorKind::Corrupt)
        };
        if let Some(error) = told.as_ref().err().filter(is_defect) {
            self.scene.broken(format!("{:?} was told {:?}: {error}", self.act, error.kind()));
        }
        Fate::told(told, &self.act)
    }

    fn refused(&self, error: Error) -> Fate {
        self.fate::<()>(&Err(error))
    }

    fn wrote_nothing(&self) -> Fate {
        Fate::Refused(format!("{:?} wrote nothing", self.act))
    }
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// A waker that panics.
struct Bad;

impl Wake for Bad {
    fn wake(self: Arc<Self>) {
        panic_any(OnPurpose::InDrop);
    }
}
