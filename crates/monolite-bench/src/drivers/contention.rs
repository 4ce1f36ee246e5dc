//! Owns the figures of how interactive transactions got in each other's way.

use serde::{Deserialize, Serialize};

/// How interactive transactions got in each other's way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contention {
    /// Commits of which the engine's writer replayed and compared everything.
    pub replayed: u64,
    /// Commits of which it replayed the writes alone: no page that they had read was changed.
    #[serde(default)]
    pub unchanged: u64,
    /// Commits of the engine that changed nothing.
    #[serde(default)]
    pub read_only: u64,
    /// Statements before which a transaction of the engine moved to a newer snapshot.
    pub resumed: u64,
    /// Rests in the busy handler of raw SQLite.
    pub busy_waits: u64,
}

impl Contention {
    pub(crate) fn is_none(&self) -> bool {
        *self == Contention::default()
    }

    /// Share of the engine's commits, those that ended in a conflict among them, whose reads the
    /// page check found valid, so that the writer replayed none of them. `None` where the engine's
    /// interactive transactions have committed nothing.
    pub fn unchanged_share(&self) -> Option<f64> {
        let commits = self.replayed + self.unchanged + self.read_only;
        (commits > 0).then(|| self.unchanged as f64 / commits as f64)
    }

    /// Adds another client's or round's.
    pub fn add(&mut self, other: &Contention) {
        self.replayed += other.replayed;
        self.unchanged += other.unchanged;
        self.read_only += other.read_only;
        self.resumed += other.resumed;
        self.busy_waits += other.busy_waits;
    }
}
