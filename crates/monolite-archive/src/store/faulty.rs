//! Owns a store that fails as stores do: answers are lost, requests arrive late, some are refused.

use std::fmt;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use monolite_ltx::Timestamp;

use super::{Fetched, Listing, Part, Store, Tag};
use crate::error::{Error, ErrorKind, Result};

/// What is asked of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// [`Store::create`] or [`Store::create_from`] of this key.
    Create(&'a str),
    /// [`Store::swap`] of this key.
    Swap(&'a str),
    /// [`Store::get`] of this key.
    Get(&'a str),
    /// [`Store::list`] of this prefix.
    List(&'a str),
    /// [`Store::delete`] of this key.
    Delete(&'a str),
}

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Nothing, but it takes so long.
    Slow(Duration),
    /// It is not done, and the answer is 409.
    Conflict,
    /// It is not done, and the answer is 503.
    Busy,
    /// It is not done, and the answer is an error of this kind.
    Refused(ErrorKind),
    /// It is never done, and there is no answer.
    LostRequest,
    /// It is done, and there is no answer.
    LostAnswer,
    /// There is no answer, and it is done when [`FaultyStore::deliver`] says so. Neither a read nor
    /// a [`Store::create_from`] is ever done.
    Late,
}

/// Decides what goes wrong with a call.
pub type Decide = dyn FnMut(Call<'_>) -> Fault + Send;

/// A store with faults before it.
pub struct FaultyStore<S> {
    inner: S,
    decide: Mutex<Box<Decide>>,
    late: Mutex<Vec<Late>>,
}

/// A write that is still under way.
#[derive(Debug, Clone)]
enum Late {
    Create { key: String, body: Vec<u8>, time: Option<Timestamp> },
    Swap { key: String, body: Vec<u8>, expected: Tag },
    Delete { key: String },
}

impl<S> fmt::Debug for FaultyStore<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FaultyStore").field("late", &self.late).finish_non_exhaustive()
    }
}

impl<S: Store> FaultyStore<S> {
    /// `decide` is asked before each call.
    pub fn new(inner: S, decide: impl FnMut(Call<'_>) -> Fault + Send + 'static) -> FaultyStore<S> {
        let decide: Box<Decide> = Box::new(decide);
        FaultyStore { inner, decide: Mutex::new(decide), late: Mutex::default() }
    }

    /// The store behind the faults.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// How many writes are under way.
    pub fn under_way(&self) -> usize {
        lock(&self.late).len()
    }

    /// Lets one of the writes that are under way arrive, counted from the oldest one; its result
    /// goes nowhere. False when there are not so many.
    pub fn deliver(&self, which: usize) -> bool {
        let late = {
            let mut late = lock(&self.late);
            if which >= late.len() {
                return false;
            }
            late.remove(which)
        };
        // Its result goes nowhere.
        let _ = match late {
            Late::Create { key, body, time } => self.inner.create(&key, &body, time).map(drop),
            Late::Swap { key, body, expected } => self.inner.swap(&key, &body, &expected).map(drop),
            Late::Delete { key } => self.inner.delete(&key),
        };
        true
    }

    /// Does a call with what goes wrong with it; `late` is what is left of it for later.
    fn call<T>(
        &self,
        call: Call<'_>,
        done: impl FnOnce() -> Result<T>,
        late: impl FnOnce() -> Option<Late>,
    ) -> Result<T> {
        let fault = (lock(&self.decide))(call);
        match fault {
            Fault::None => return done(),
            Fault::Slow(time) => {
                thread::sleep(time);
                return done();
            }
            Fault::Conflict => return Err(Error::new(ErrorKind::Conflict, "409")),
            Fault::Busy => return Err(Error::new(ErrorKind::Busy, "503")),
            Fault::Refused(kind) => return Err(Error::new(kind, format!("{call:?} is refused"))),
            Fault::LostRequest => {}
            Fault::LostAnswer => drop(done()),
            Fault::Late => lock(&self.late).extend(late()),
        }
        Err(Error::new(ErrorKind::Lost, format!("no answer to {call:?}")))
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Store> Store for FaultyStore<S> {
    fn create(&self, key: &str, body: &[u8], time: Option<Timestamp>) -> Result<Tag> {
        let late = || Late::Create { key: key.to_owned(), body: body.to_vec(), time };
        self.call(Call::Create(key), || self.inner.create(key, body, time), || Some(late()))
    }

    fn create_from(
        &self,
        key: &str,
        about: u64,
        time: Option<Timestamp>,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<Tag> {
        let create = || self.inner.create_from(key, about, time, write);
        self.call(Call::Create(key), create, || None)
    }

    fn swap(&self, key: &str, body: &[u8], expected: &Tag) -> Result<Tag> {
        let late =
            || Late::Swap { key: key.to_owned(), body: body.to_vec(), expected: expected.clone() };
        self.call(Call::Swap(key), || self.inner.swap(key, body, expected), || Some(late()))
    }

    fn get(&self, key: &str, part: Part) -> Result<Option<Fetched>> {
        self.call(Call::Get(key), || self.inner.get(key, part), || None)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Listing> {
        self.call(Call::List(prefix), || self.inner.list(prefix, after), || None)
    }

    fn delete(&self, key: &str) -> Result<()> {
        let late = || Late::Delete { key: key.to_owned() };
        self.call(Call::Delete(key), || self.inner.delete(key), || Some(late()))
    }
}
