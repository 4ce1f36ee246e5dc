//! Owns one connection on which interactive transactions run, one transaction at a time: its
//! snapshot, what is remembered of the pages that were read and changed on it, and the run of one
//! statement.
//!
//! # Invariants
//! - Foreign keys are off from the beginning of a snapshot to its end, for a transaction without
//!   them, and at no other time. While it is parked no other transaction has the connection.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use monolite_sqlite::rusqlite::Statement;
use monolite_sqlite::vfs::{Changes, CommitSequence, Version};
use monolite_sqlite::{PageSet, Traits};

use super::pins::Pin;
use crate::activity::slow::SlowLog;
use crate::activity::{Slowest, events};
use crate::call::member::ForeignKeys;
use crate::call::watch::Watch;
use crate::call::work::{self, Attached};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{BatchNumber, Progress};
use crate::read::readers::Reader;
use crate::stats::names;
use crate::tx::Tx;

/// The connection of one transaction at a time.
pub(crate) struct PooledConnection {
    reader: Reader,
    is_overlay: bool,
    /// Keeps the snapshot of an overlay.
    pin: RefCell<Option<Arc<Pin>>>,
    watch: Arc<Watch>,
    foreign_keys: Cell<ForeignKeys>,
    leading: RefCell<Leading>,
    /// The latest batch that its snapshot may contain.
    seen: Cell<BatchNumber>,
    /// How long the latest run took.
    took: Cell<Duration>,
}

/// The pages that the leading reads of a transaction have read on this snapshot: the queries before
/// its first step of another kind.
#[derive(Default)]
enum Leading {
    /// They are being gathered by the connection.
    #[default]
    GoOn,
    /// `None` when they are not known.
    Ended(Option<PageSet>),
}

/// Pages that a transaction may read before it is not worth to look at each.
const MAX_PAGES: usize = 4_096;

/// The pages that the leading reads of a transaction hang on, and the state they were in.
pub(crate) struct ReadSet {
    pages: PageSet,
    sequence: CommitSequence,
}

impl ReadSet {
    /// Whether one of the pages, or the schema, may have changed since, by a commit or in the open
    /// batch of the writer, whose transaction `tx` is.
    pub(crate) fn has_changed(&self, changes: &Changes, tx: &Tx<'_>) -> bool {
        changes.any_changed_since(&self.pages, self.sequence) || tx.batch_changed(&self.pages)
    }
}

impl PooledConnection {
    pub(super) fn new(
        reader: Reader,
        is_overlay: bool,
        clock: &Arc<dyn Clock>,
    ) -> PooledConnection {
        PooledConnection {
            watch: Arc::new(Watch::new(reader.connection.revoker(), Arc::clone(clock))),
            reader,
            is_overlay,
            pin: RefCell::default(),
            foreign_keys: Cell::default(),
            leading: RefCell::default(),
            seen: Cell::default(),
            took: Cell::default(),
        }
    }

    /// The number of the latest commit of this process that its snapshot is known to contain;
    /// `None` when that is not known.
    pub(crate) fn sequence(&self) -> Option<CommitSequence> {
        self.pin.borrow().as_ref().map(|pin| pin.snapshot.sequence())
    }

    /// What its snapshot shows; `None` when that is not known.
    pub(crate) fn version(&self) -> Option<Version> {
        self.pin.borrow().as_ref().map(|pin| pin.snapshot.version())
    }

    /// What others may see of its snapshot.
    pub(super) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    /// How long the latest run took.
    pub(crate) fn took(&self) -> Duration {
        self.took.get()
    }

    /// Whether the transaction's own writes can run here.
    pub(crate) fn is_overlay(&self) -> bool {
        self.is_overlay
    }

    /// Whether `sql` only reads; `None` when it cannot be prepared, or is refused before it is.
    pub(crate) fn only_reads(&self, sql: &str) -> Option<bool> {
        let reads = |statement: &mut Statement<'_>, traits: Traits| {
            statement.readonly() && !traits.has(Traits::MAY_CHANGE)
        };
        let connection = &self.reader.connection;
        let prepare = || connection.with_statement_and_traits(sql, reads).ok();
        // Where it is run next, it says then what has to be made good behind it. Before it, that
        // would have virtual tables write what they have to write while it runs, and be counted.
        if self.is_overlay { connection.unnoted(prepare) } else { prepare() }
    }

    /// To be called when a statement that [`PooledConnection::only_reads`] has prepared is not run
    /// here: it may have changed what the connection remembers of the schema all the same.
    pub(crate) fn note_not_run(&self) {
        self.reader.connection.note_failure();
    }

    /// The latest batch that its snapshot may contain.
    pub(crate) fn seen(&self) -> BatchNumber {
        self.seen.get()
    }

    /// Has foreign keys be as the transaction has them whose snapshot is about to begin.
    pub(super) fn set_foreign_keys(&self, keys: ForeignKeys) -> Result<()> {
        assert_eq!(self.foreign_keys.get(), ForeignKeys::On, "they are on between transactions");
        if keys == ForeignKeys::Off {
            self.reader.connection.foreign_keys().suspend()?;
            self.foreign_keys.set(keys);
        }
        Ok(())
    }

    /// Takes the snapshot of `pin`.
    pub(super) fn begin_on(&self, pin: Arc<Pin>) -> Result<()> {
        self.reader.connection.begin_on(&pin.snapshot)?;
        // Nothing but the schema has been read before.
        self.reader.connection.pages().track(MAX_PAGES);
        self.seen.set(pin.seen);
        self.watch.take_snapshot(pin.committed, pin.taken);
        self.pin.replace(Some(pin));
        Ok(())
    }

    /// Takes a snapshot of its own.
    pub(super) fn begin(&self, progress: &Progress, now: Duration) -> Result<()> {
        let committed = progress.committed();
        self.reader.connection.begin_read()?;
        self.seen.set(progress.exposed());
        self.watch.take_snapshot(committed, now);
        Ok(())
    }

    /// Ends the snapshot and everything that was written over it.
    pub(super) fn end(&self) {
        // Fails only on a broken connection, whose next statement reports it.
        let _ = self.reader.connection.rollback();
        if self.foreign_keys.take() == ForeignKeys::Off {
            self.reader.connection.foreign_keys().resume();
        }
        self.pin.take();
        self.leading.take();
        self.watch.end_snapshot();
    }

    /// Keeps apart the pages that the leading reads have read, from those of what follows. Does so
    /// once: a later call changes nothing.
    pub(crate) fn end_leading_reads(&self) {
        let mut leading = self.leading.borrow_mut();
        if let Leading::GoOn = *leading {
            *leading = Leading::Ended(self.reader.connection.pages().take());
        }
    }

    /// What the leading reads have read; `None` when that is not known.
    pub(super) fn read_set(&self) -> Option<ReadSet> {
        let sequence = self.sequence()?;
        match self.leading.take() {
            Leading::Ended(pages) => Some(ReadSet { pages: pages?, sequence }),
            Leading::GoOn => None,
        }
    }

    /// Whether a page that the leading reads have read is known to have been changed since.
    pub(super) fn have_leading_reads_changed(&self, changes: &Changes) -> bool {
        let Some(sequence) = self.sequence() else { return false };
        match &*self.leading.borrow() {
            Leading::Ended(Some(pages)) => changes.any_changed_since(pages, sequence),
            Leading::Ended(None) => false,
            Leading::GoOn => {
                let is_changed = |pgno| changes.changed_since(pgno, sequence);
                self.reader.connection.pages().has_fetched(is_changed)
            }
        }
    }

    /// When the snapshot was taken on which it is an overlay.
    pub(super) fn taken(&self) -> Option<Duration> {
        self.pin.borrow().as_ref().map(|pin| pin.taken)
    }

    /// Runs `body` for `limit` at most; `failure` says whether what it returned is one.
    ///
    /// # Errors
    /// `Timeout` when it took longer, or its snapshot was revoked. The transaction cannot go on
    /// then.
    pub(super) fn run<T>(
        &self,
        clock: &dyn Clock,
        slow: &SlowLog,
        limit: Duration,
        body: impl FnOnce(&Tx<'_>) -> T,
        failure: impl FnOnce(&T) -> Option<&Error>,
    ) -> Result<T> {
        let Reader { connection, deadline } = &self.reader;
        let attached = work::attach(&self.watch);
        let start = clock.now();
        deadline.set(start, limit);
        let tx = Tx::new(connection, 1, self.watch.trace());
        let ran = catch_unwind(AssertUnwindSafe(|| (body(&tx), tx.settle_at_end())));
        deadline.clear();
        let (end, queued) = (clock.now(), attached.as_ref().map(Attached::queued));
        let took = end - start;
        self.took.set(took);
        let held = || self.watch.running_for(end).unwrap_or_default();
        let since = || queued.map_or_else(held, |queued| queued.elapsed());
        let wait = || since().saturating_sub(took);
        let caller = self.watch.trace().caller();
        names::of(caller).into_iter().for_each(|named| named.record_read(wait(), took));
        slow.note(caller, took, wait, || tx.slowest());
        let times = || [wait(), took, Duration::ZERO];
        let (result, settled) = ran.unwrap_or_else(|payload| {
            events::call(caller, times, None, events::panicked);
            resume_unwind(payload)
        });
        let ended = if connection.interruption().is_revoked() {
            // The time limit counts from when the connection was taken, before a replay and a
            // moment without a core.
            let time = self.watch.running_for(clock.now()).unwrap_or_else(|| self.took());
            let is_late = time > limit;
            Err(if is_late { late(limit, &tx.slowest()) } else { revoked(time) })
        } else if connection.interruption().take_late() {
            Err(late(limit, &tx.slowest()))
        } else {
            settled.map(|()| result)
        };
        let outcome = || events::outcome(true, ended.as_ref().map_or_else(Some, failure));
        events::call(caller, times, None, outcome);
        ended
    }

    pub(super) fn restore_after_revocation(&mut self) {
        // Fails only on a broken connection, whose next statement reports it.
        let _ = self.reader.connection.restore_after_revocation();
    }
}

fn revoked(age: Duration) -> Error {
    let message = format!(
        "the statement was ended after {age:.1?}: its snapshot kept the WAL from restarting \
         near its limit; read in smaller pieces or raise the option wal_limit_bytes"
    );
    Error::new(ErrorKind::Timeout, message)
}

fn late(limit: Duration, slowest: &Slowest) -> Error {
    let message = format!(
        "the statement was ended: it may take {limit:.1?} (the option read_time_limit, \
         Database::with_time_limit, or what was left of InteractiveOptions::time_limit), and \
         took longer or would have; {slowest}"
    );
    Error::new(ErrorKind::Timeout, message)
}
