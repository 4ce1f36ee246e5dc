//! Owns the way into the writer: its queue, which knows of which database it is and why it refuses.

#[cfg(all(test, shuttle))]
mod models;

use std::sync::Arc;

use monolite_sqlite::rusqlite;

use crate::activity::Caller;
use crate::call::inside::DatabaseId;
use crate::call::member::{ArchiveWait, ForeignKeys, Member, Terms};
use crate::call::queue::{Entered, Queue, Rejected};
use crate::error::{Error, ErrorKind, Result};
use crate::primitives::sync::atomic::{AtomicBool, Ordering};
use crate::primitives::sync::{Mutex, PoisonError};
use crate::progress::Progress;

/// The queue of the writer, as it is used under some terms.
#[derive(Clone)]
pub(crate) struct WriteQueue {
    queue: Arc<Queue<Box<dyn Member>>>,
    terms: Terms,
    database: DatabaseId,
    progress: Arc<Progress>,
    /// Why nothing may be submitted under these terms.
    refusal: Option<Arc<Error>>,
    /// Why its users may only read, if they may.
    read_only: Option<Arc<str>>,
    /// The message of a refusal, made once: overload is no time to format text.
    full: Arc<str>,
    holder: Arc<Holder>,
}

/// The call that has had the writer for long, if one has.
#[derive(Default)]
struct Holder {
    is_there: AtomicBool,
    /// For how long, and by whom, it is held.
    held: Mutex<String>,
}

impl std::ops::Deref for WriteQueue {
    type Target = Queue<Box<dyn Member>>;

    fn deref(&self) -> &Self::Target {
        &self.queue
    }
}

impl WriteQueue {
    pub(crate) fn new(
        database: DatabaseId,
        capacity: usize,
        progress: Arc<Progress>,
    ) -> WriteQueue {
        let full = format!(
            "the write queue is full ({capacity} transactions wait); try again later, or let \
             write() wait for room"
        );
        let queue = Arc::new(Queue::new(capacity));
        WriteQueue {
            queue,
            terms: Terms::default(),
            database,
            progress,
            refusal: None,
            read_only: None,
            full: full.into(),
            holder: Arc::default(),
        }
    }

    /// The same queue as `principal` uses it.
    pub(crate) fn of(&self, principal: u64) -> WriteQueue {
        let terms = Terms { principal: Some(principal), ..self.terms };
        WriteQueue { terms, ..self.clone() }
    }

    /// The same queue as work of this name uses it.
    pub(crate) fn named(&self, name: &'static str) -> WriteQueue {
        let caller = Caller { name: Some(name), ..self.terms.caller };
        WriteQueue { terms: self.terms.of(caller), ..self.clone() }
    }

    /// The same queue for those who wait so long for the archive, or who do not.
    pub(crate) fn awaiting_archive(&self, archive_wait: Option<ArchiveWait>) -> WriteQueue {
        let terms = Terms { archive_wait, ..self.terms };
        WriteQueue { terms, ..self.clone() }
    }

    /// The same queue for work that runs without foreign keys.
    pub(crate) fn without_foreign_keys(&self) -> WriteQueue {
        let terms = Terms { foreign_keys: ForeignKeys::Off, ..self.terms };
        WriteQueue { terms, ..self.clone() }
    }

    /// The same queue for terms that the database does not have, if there is an error that says so.
    pub(crate) fn refusing(&self, refusal: Option<Error>) -> WriteQueue {
        WriteQueue { refusal: refusal.map(Arc::new), ..self.clone() }
    }

    /// The same queue for users who may only read, because of `why`, unless they may not already.
    pub(crate) fn read_only(&self, why: &str) -> WriteQueue {
        let read_only = self.read_only.clone().unwrap_or_else(|| why.into());
        WriteQueue { read_only: Some(read_only), ..self.clone() }
    }

    /// Why its users may only read, if they may: nothing that they submit gets into the queue.
    pub(crate) fn why_read_only(&self) -> Option<&Arc<str>> {
        self.read_only.as_ref()
    }

    fn check_write(&self) -> Result<()> {
        self.check_use()?;
        self.read_only.as_ref().map_or(Ok(()), |why| Err(read_only(why)))
    }

    /// # Errors
    /// `Invalid` where nothing may be submitted: in a forked process, and under terms that the
    /// database does not have.
    pub(crate) fn check_use(&self) -> Result<()> {
        self.database.check_process()?;
        self.refusal.as_ref().map_or(Ok(()), |refusal| Err(refusal.repeated()))
    }

    /// The terms of what is submitted here.
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    pub(crate) fn database(&self) -> DatabaseId {
        self.database
    }

    /// Appends a member, or has it wait for room; answers it when it came too late.
    pub(crate) fn submit(&self, mut member: Box<dyn Member>) -> Entered {
        if let Err(error) = self.check_write() {
            member.overrule(error);
            member.answer();
            return Entered::In;
        }
        self.enter(member).unwrap_or_else(|member| {
            self.refuse(member);
            Entered::In
        })
    }

    /// As [`Queue::push`], with the reason of the refusal.
    pub(crate) fn try_push(&self, member: Box<dyn Member>) -> Result<()> {
        self.check_write()?;
        match self.push(member) {
            Ok(()) => Ok(()),
            Err(Rejected::Closed(_)) => {
                Err(self.progress.check_poison().err().unwrap_or_else(Error::closed))
            }
            Err(Rejected::Full(_)) if !self.is_full() => Err(no_share_left()),
            Err(Rejected::Full(_)) => Err(self.overloaded()),
        }
    }

    /// Refuses early, before a member is made that [`WriteQueue::try_push`] would refuse.
    pub(crate) fn check_room(&self) -> Result<()> {
        self.check_write()?;
        if self.is_full() { Err(self.overloaded()) } else { Ok(()) }
    }

    /// Accepts nothing more. The writer still gets each write that was submitted before.
    pub(crate) fn close(&self) {
        self.queue.finish();
    }

    /// Answers a member that came too late: the database is poisoned or closed.
    pub(crate) fn refuse(&self, mut member: Box<dyn Member>) {
        member.overrule(self.progress.check_poison().err().unwrap_or_else(Error::closed));
        member.answer();
    }

    fn overloaded(&self) -> Error {
        if !self.holder.is_there.load(Ordering::Relaxed) {
            return Error::new(ErrorKind::Overloaded, &*self.full);
        }
        let held = self.holder.held.lock().unwrap_or_else(PoisonError::into_inner);
        let message = format!("the writer has been held {held}, and {}", self.full);
        Error::new(ErrorKind::Overloaded, message)
    }

    /// Notes for how long the writer has been held and by whom, or that it is free, for refusals.
    pub(crate) fn note_holder(&self, held: Option<String>) {
        self.holder.is_there.store(held.is_some(), Ordering::Relaxed);
        if let Some(held) = held {
            *self.holder.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
        }
    }
}

/// Why a handle that was asked for may only read.
pub(crate) const READ_ONLY: &str =
    "the handle may only read (Database::read_only); use another handle to write";

/// The refusal of a change because of `why`, with SQLite's code for it.
pub(crate) fn read_only(why: &str) -> Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY);
    rusqlite::Error::SqliteFailure(code, Some(why.into())).into()
}

fn no_share_left() -> Error {
    let message = "as many transactions of this principal wait as there are places left in the \
                   write queue; try again later, or let write() wait for room";
    Error::new(ErrorKind::Overloaded, message)
}
