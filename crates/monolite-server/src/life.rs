//! Owns whether the server serves, and waits for the end of its work.
//!
//! # Invariants
//! - Whatever uses a database has entered, and holds [`Entered`] until it has ended: a request, a
//!   stream with its transaction. So no database is closed under it, and none is opened after. Only
//!   a fork, which can take long, has not: its database stays open, and no hand-over is made.
//! - What was refused as `DRAINING` has begun nothing: another process may run it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, watch};
use tokio::time::{Instant, timeout};

use crate::Shared;
use crate::hrana::ProtocolError;
use crate::relay::Successor;

/// How long work under way may take when the server stops or hands over.
pub(crate) const DRAIN: Duration = Duration::from_secs(5);

/// How often streams that came to rest are looked for meanwhile.
const LOOK: Duration = Duration::from_millis(5);

/// What the server does, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum Phase {
    Serving,
    /// Another process asks for the databases, or the file changes its role: new requests wait, and
    /// new connections do so in the backlog. Back to `Serving` if that process fails, or the file
    /// has its role.
    HandsOver,
    /// The other process serves; requests on old connections are relayed to it.
    Moved,
    /// New work is refused.
    Stops,
    /// All work has ended.
    Ends,
}

/// A piece of work under way. [`Shared::end_work`] waits for all of them, and new ones wait for it.
pub(crate) type Entered = OwnedRwLockReadGuard<Option<Successor>>;

/// That there is no work.
pub(crate) type Ended = OwnedRwLockWriteGuard<Option<Successor>>;

pub(crate) struct Life {
    phase: watch::Sender<Phase>,
    /// Whether what is under way is broken off.
    cuts: watch::Sender<bool>,
    gate: Arc<RwLock<Option<Successor>>>,
}

impl Life {
    pub(crate) fn new() -> Life {
        let (phase, cuts) = (watch::Sender::new(Phase::Serving), watch::Sender::new(false));
        Life { phase, cuts, gate: Arc::default() }
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(crate) fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    pub(crate) fn set(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Goes on to `to` if it is in `from`, and says whether it was.
    pub(crate) fn change(&self, from: Phase, to: Phase) -> bool {
        self.phase.send_if_modified(|phase| {
            let is_from = *phase == from;
            *phase = if is_from { to } else { *phase };
            is_from
        })
    }

    /// Begins work, or refuses it from the phase `refused` on. In between it waits.
    pub(crate) async fn enter(&self, refused: Phase) -> Result<Entered, ProtocolError> {
        let mut phase = self.phases();
        let entered = tokio::select! {
            biased;
            _ = phase.wait_for(|phase| *phase >= refused) => return Err(draining()),
            entered = Arc::clone(&self.gate).read_owned() => entered,
        };
        if entered.is_some() { Err(draining()) } else { Ok(entered) }
    }

    /// The process that serves in the place of this one.
    pub(crate) fn successor(&self) -> Option<Successor> {
        self.gate.try_read().ok()?.clone()
    }

    /// Done when what is under way is broken off.
    pub(crate) async fn is_cut(&self) {
        let mut cuts = self.cuts.subscribe();
        let _ = cuts.wait_for(|cuts| *cuts).await;
    }

    /// Runs `work`, or breaks it off.
    pub(crate) async fn unless_cut<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, ProtocolError> {
        tokio::select! {
            biased;
            result = work => Ok(result),
            () = self.is_cut() => {
                let message = "the server ended before the request did; if it writes, look \
                               whether it was done";
                Err(ProtocolError::new("BROKEN_OFF", message))
            }
        }
    }
}

impl Shared {
    /// Ends all work: what is under way and open transactions have [`DRAIN`], streams at rest end.
    /// Then closes the databases. New work waits until the result is dropped.
    pub(crate) async fn end_work(&self) -> Ended {
        let ended = self.end_work_within(DRAIN).await;
        self.databases.close_all().await;
        ended
    }

    /// The same within this time, and closes nothing.
    pub(crate) async fn end_work_within(&self, time: Duration) -> Ended {
        let mut ended = std::pin::pin!(Arc::clone(&self.life.gate).write_owned());
        let deadline = Instant::now() + time;
        let ended = loop {
            self.streams.end_idle();
            if let Ok(ended) = timeout(LOOK, ended.as_mut()).await {
                break ended;
            }
            if Instant::now() > deadline {
                self.streams.end_all();
                self.life.cuts.send_replace(true);
            }
        };
        self.life.cuts.send_replace(false);
        ended
    }
}

pub(crate) fn draining() -> ProtocolError {
    ProtocolError::new("DRAINING", "the server stops; try again")
}
