//! An archive that is not asked before the WAL begins anew: what it has not read by then is gone.

use std::sync::Arc;
use std::time::Duration;

use monolite::archive::{
    Archive, ArchiveStats, ArchiveToken, Archiving, Found, Primary, Refusal, WalPosition,
};

/// Another archive, without its gate.
#[derive(Debug)]
pub(super) struct Gateless<A>(pub(super) A);

impl<A: Archive> Archive for Gateless<A> {
    fn open(&self, found: Found<'_>) -> Result<Arc<dyn Archiving>, Refusal> {
        let within = self.0.open(found)?;
        Ok(Arc::new(Without { within }))
    }

    fn lag_limit(&self) -> Option<Duration> {
        self.0.lag_limit()
    }

    fn time_limit(&self) -> Duration {
        self.0.time_limit()
    }

    fn streams(&self) -> bool {
        self.0.streams()
    }
}

struct Without {
    within: Arc<dyn Archiving>,
}

impl Archiving for Without {
    fn start(&self, primary: Arc<dyn Primary>) -> Result<(), Refusal> {
        self.within.start(primary)
    }

    fn durable(&self, to: WalPosition) {
        self.within.durable(to);
    }

    fn awaited(&self) {
        self.within.awaited();
    }

    fn replicates(&self) {
        self.within.replicates();
    }

    fn lag(&self) -> Duration {
        self.within.lag()
    }

    fn token(&self) -> Option<ArchiveToken> {
        self.within.token()
    }

    fn prepare(&self) {}

    fn may_restart(&self, _to: WalPosition) -> bool {
        true
    }

    fn capture(&self, _to: WalPosition, _next: Option<[u32; 2]>) -> Result<(), String> {
        Ok(())
    }

    fn settled(&self) {
        self.within.settled();
    }

    fn close(&self) {
        self.within.close();
    }

    fn stats(&self) -> ArchiveStats {
        self.within.stats()
    }
}
