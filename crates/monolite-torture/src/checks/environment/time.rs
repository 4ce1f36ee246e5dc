//! The engine's own clock, which decides about time limits, stands still or jumps. What becomes of
//! wall clocks that jump: the part `clocks` of the check of archives.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use monolite::{Clock, Database, Error, ErrorKind, Options};
use monolite_testkit::markers;

use super::Case;
use super::load::under_load;
use crate::checks::lanes::as_one_batch;

const DAY: Duration = Duration::from_secs(86_400);

/// A clock that moves when it is told to.
#[derive(Debug, Default)]
pub(super) struct Hand(AtomicU64);

impl Hand {
    pub(super) fn advance(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

/// The engine's own clock stands still, then jumps a day, then jumps inside of a member.
pub(super) fn own_clock(case: &mut Case<'_>) -> Result<()> {
    let path = case.directory().join("db");
    let clock = Arc::new(Hand::default());
    let options = Options::new().wal_limit_bytes(8 << 20).clock(Arc::clone(&clock) as _);
    let db = options.open(&path)?;
    markers::create(&db)?;
    case.tried += 3;
    let mut still = under_load(&db, 1, 9_000, 600, |_| Ok(()))?;
    case.expect(still.goes_on && still.refusals.is_empty(), || {
        format!("while it stood still: {:?}", still.refusals)
    });
    let moves = Arc::clone(&clock);
    let jumping = under_load(&db, 100_000, 9_000, 600, move |load| {
        for _ in 0..3 {
            moves.advance(DAY);
            load.await_more(100);
        }
        Ok(())
    })?;
    // Whoever was inside of a transaction at the jump has been in it for a day.
    let others = jumping.refusals.keys().filter(|kind| *kind != "Timeout").count();
    case.expect(jumping.goes_on && others == 0, || format!("{:?}", jumping.refusals));
    still.acknowledged.extend(jumping.acknowledged);
    still.acknowledged.extend(jump_inside(case, &db, &clock)?);
    db.close()?;
    case.note("writes and checkpoints went on; only who was in a transaction timed out");
    case.verify(&path, &still.acknowledged);
    Ok(())
}

/// The clock jumps while one member of a batch runs: it alone times out.
fn jump_inside(case: &mut Case<'_>, db: &Database, clock: &Arc<Hand>) -> Result<BTreeSet<i64>> {
    let moves = Arc::clone(clock);
    let (before, jumped, after) = as_one_batch(db, || {
        let put = |id| db.write(move |tx| markers::put_filled(tx, id, &[]));
        let jumped = db.write(move |tx| {
            markers::put_filled(tx, 200_002, &[])?;
            moves.advance(DAY);
            Ok::<_, Error>(())
        });
        (put(200_001), jumped, put(200_003))
    })?;
    let kind = jumped.wait().err().map(|error| error.kind());
    case.expect(kind == Some(ErrorKind::Timeout), || format!("the member: {kind:?}"));
    before.wait()?;
    after.wait()?;
    Ok(BTreeSet::from([200_001, 200_003]))
}
