//! Every way in which a transaction can fail, at each of its steps, beside neighbours that must
//! not notice.
//!
//! # Algorithm
//! A member runs the [`STEPS`] of a marked transaction; before one of them, or after the last, a
//! [`Fault`] strikes. It stands in a batch with some neighbours before and after it. The member
//! and its neighbours are then looked for in the database: each neighbour whole, the member whole
//! or not at all, as the fault says.
//!
//! The control runs the same batches the naive way, in stock SQLite: one transaction, a savepoint
//! around each member. `OR ROLLBACK` must take its neighbours with it.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use anyhow::Result;
use monolite::rusqlite::Connection;
use monolite::{Database, Error, ErrorKind, Options, Tx, Write};

use super::batch::as_one_batch;
use super::marks::{self, STEPS};
use super::time::Hand;
use super::{Case, load};

/// What strikes a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It panics.
    Panic,
    /// It returns an error of its own.
    Error,
    /// It returns the error of a violated constraint.
    Constraint,
    /// It ignores that error.
    IgnoredConstraint,
    /// It returns the error of a statement that rolled everything back.
    OrRollback,
    /// It ignores that error and goes on.
    IgnoredOrRollback,
    /// It returns the refusal of a `COMMIT`.
    Commit,
    /// It ignores the refusals of `COMMIT`, `ROLLBACK`, `SAVEPOINT` and `BEGIN`.
    IgnoredCommit,
    /// Its time is over.
    Deadline,
    /// Its time is over inside of a statement, whose error it ignores.
    IgnoredInterrupt,
    /// It violates a deferred foreign key.
    ForeignKey,
}

impl Fault {
    const ALL: [Fault; 11] = [
        Fault::Panic,
        Fault::Error,
        Fault::Constraint,
        Fault::IgnoredConstraint,
        Fault::OrRollback,
        Fault::IgnoredOrRollback,
        Fault::Commit,
        Fault::IgnoredCommit,
        Fault::Deadline,
        Fault::IgnoredInterrupt,
        Fault::ForeignKey,
    ];

    /// The outcome of a member that it strikes; `None` for a panic.
    fn outcome(self) -> Option<Result<(), ErrorKind>> {
        Some(match self {
            Fault::Panic => return None,
            Fault::Error | Fault::IgnoredOrRollback => Err(ErrorKind::Aborted),
            Fault::Constraint | Fault::OrRollback | Fault::ForeignKey => Err(ErrorKind::Constraint),
            Fault::Commit => Err(ErrorKind::Invalid),
            Fault::Deadline | Fault::IgnoredInterrupt => Err(ErrorKind::Timeout),
            Fault::IgnoredConstraint | Fault::IgnoredCommit => Ok(()),
        })
    }

    fn strike(self, tx: &Tx<'_>, clock: &Hand) -> Result<(), Error> {
        let twice = "INSERT INTO total VALUES (1, 0)";
        let rollback = "INSERT OR ROLLBACK INTO total VALUES (1, 0)";
        match self {
            Fault::Panic => resume_unwind(Box::new("on purpose")),
            Fault::Error => return Err(Error::aborted("on purpose")),
            Fault::Constraint => _ = tx.execute(twice, ())?,
            Fault::IgnoredConstraint => _ = tx.execute(twice, ()),
            Fault::OrRollback => _ = tx.execute(rollback, ())?,
            Fault::IgnoredOrRollback => _ = tx.execute(rollback, ()),
            Fault::Commit => tx.execute_batch("COMMIT")?,
            Fault::IgnoredCommit => {
                for sql in ["COMMIT", "ROLLBACK", "SAVEPOINT mine", "END", "BEGIN"] {
                    _ = tx.execute_batch(sql);
                }
            }
            Fault::Deadline => clock.advance(LIMIT * 2),
            Fault::IgnoredInterrupt => {
                clock.advance(LIMIT * 2);
                let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                               SELECT SUM(i) FROM n";
                _ = tx.query_row(endless, (), |_| Ok(()));
            }
            Fault::ForeignKey => _ = tx.execute("INSERT INTO child VALUES (1)", ())?,
        }
        Ok(())
    }
}

/// How the member comes to the writer.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Repeatable,
    Once,
}

/// The time limit of a member, on a clock that moves only when a fault moves it.
const LIMIT: Duration = Duration::from_secs(1);

/// How many neighbours stand before and after the member.
const NEIGHBOURS: [(i64, i64); 4] = [(0, 0), (1, 1), (0, 3), (3, 0)];

const CHILD: &str = "CREATE TABLE parent(id INTEGER PRIMARY KEY) STRICT;
    CREATE TABLE child(
        parent INTEGER NOT NULL REFERENCES parent(id) DEFERRABLE INITIALLY DEFERRED
    ) STRICT;";

/// Every fault at every step, for both kinds of closures and every arrangement.
pub(super) fn every_fault(case: &mut Case<'_>) -> Result<()> {
    let path = case.directory().join("db");
    let clock = Arc::new(Hand::default());
    let options = Options::new().write_time_limit(LIMIT).clock(Arc::clone(&clock) as _);
    let db = options.durability(monolite::Durability::Buffered).open(&path)?;
    marks::create(&db)?;
    db.write(|tx| tx.execute_batch(CHILD)).wait()?;
    let (mut first, mut expected) = (1, std::collections::BTreeSet::new());
    for fault in Fault::ALL {
        for step in 0..=STEPS.len() {
            for kind in [Kind::Repeatable, Kind::Once] {
                for (before, after) in NEIGHBOURS {
                    case.tried += 1;
                    let ids: Vec<i64> = (first..=first + before + after).collect();
                    first += before + after + 1;
                    let batch = Batch { db: &db, clock: &clock, fault, step, kind, ids, before };
                    expected.extend(batch.run(case)?);
                }
            }
        }
    }
    db.close()?;
    let found = marks::look(&path)?;
    let surplus = found.whole.difference(&expected).count();
    case.expect(surplus == 0, || format!("{surplus} failed transactions are in the database"));
    case.compare(&found, &expected);
    case.note(format!(
        "{} faults at {} steps in {} arrangements",
        Fault::ALL.len(),
        STEPS.len() + 1,
        NEIGHBOURS.len() * 2
    ));
    naive(case)
}

struct Batch<'a> {
    db: &'a Database,
    clock: &'a Arc<Hand>,
    fault: Fault,
    step: usize,
    kind: Kind,
    ids: Vec<i64>,
    before: i64,
}

impl Batch<'_> {
    /// Runs it and judges the answers; returns who must be in the database.
    fn run(&self, case: &mut Case<'_>) -> Result<Vec<i64>> {
        let at = usize::try_from(self.before)?;
        let put = |id: &i64| {
            let id = *id;
            self.db.write(move |tx| marks::put(tx, id, &[]))
        };
        let (before, member, after) = as_one_batch(self.db, || {
            let before: Vec<_> = self.ids[..at].iter().map(put).collect();
            let member = self.member(self.ids[at]);
            let after: Vec<_> = self.ids[at + 1..].iter().map(put).collect();
            (before, member, after)
        })?;
        let told = format!("{:?} before step {}, {:?}", self.fault, self.step, self.kind);
        for write in before.into_iter().chain(after) {
            if let Err(error) = write.wait() {
                case.broken(format!("{told}: a neighbour failed: {error:?}"));
            }
        }
        let ended = catch_unwind(AssertUnwindSafe(|| member.wait())).ok();
        let ended = ended.map(|result| result.map_err(|error| error.kind()));
        let must = self.fault.outcome();
        case.expect(ended == must, || format!("{told}: it ended with {ended:?}, not {must:?}"));
        let mut expected = self.ids.clone();
        if must != Some(Ok(())) {
            expected.remove(at);
        }
        let seen = marks::count(self.db)?;
        let known = case.tried;
        case.expect(seen > 0 || known < 3, || format!("{told}: the counter is gone"));
        Ok(expected)
    }

    fn member(&self, id: i64) -> Write<()> {
        let (fault, step, clock) = (self.fault, self.step, Arc::clone(self.clock));
        let body = move |tx: &Tx<'_>| struck(tx, id, fault, step, &clock);
        match self.kind {
            Kind::Repeatable => self.db.write(body),
            Kind::Once => self.db.write_once(body),
        }
    }
}

/// A marked transaction that is struck before its step `at`.
fn struck(tx: &Tx<'_>, id: i64, fault: Fault, at: usize, clock: &Hand) -> Result<(), Error> {
    for (number, sql) in STEPS.iter().enumerate() {
        if number == at {
            fault.strike(tx, clock)?;
        }
        let done = tx.execute(sql, (id, &b""[..]));
        // Whoever ignores that its transaction is gone ignores what that does to the rest.
        if !matches!(fault, Fault::IgnoredOrRollback | Fault::IgnoredInterrupt) {
            done?;
        }
    }
    if at == STEPS.len() {
        fault.strike(tx, clock)?;
    }
    Ok(())
}

/// Batches made the naive way break, and the same look at the database notices.
fn naive(case: &mut Case<'_>) -> Result<()> {
    let connection = Connection::open_in_memory()?;
    marks::create_plain(&connection)?;
    let mut acknowledged = std::collections::BTreeSet::new();
    connection.execute_batch("BEGIN")?;
    for id in 1..=3 {
        let member = || {
            connection.execute_batch("SAVEPOINT member")?;
            for (number, sql) in STEPS.iter().enumerate() {
                if id == 2 && number == 2 {
                    connection.execute_batch("INSERT OR ROLLBACK INTO total VALUES (1, 0)")?;
                }
                connection.execute(sql, (id, &b""[..]))?;
            }
            connection.execute_batch("RELEASE member")
        };
        match member() {
            Ok(()) => _ = acknowledged.insert(id),
            // As a naive batch does, whatever the error was.
            Err(_) => _ = connection.execute_batch("ROLLBACK TO member; RELEASE member"),
        }
    }
    let _ = connection.execute_batch("COMMIT");
    let found = marks::look_through(&connection)?;
    let lost = acknowledged.difference(&found.whole).count();
    let how = format!("{lost} of {} neighbours were lost", acknowledged.len());
    case.controls.push(("naive savepoints break under OR ROLLBACK", lost > 0, how));
    Ok(())
}

/// Futures that are dropped before, while and after their transaction runs: it is whole or was
/// never in the queue.
pub(super) fn dropped_futures(case: &mut Case<'_>) -> Result<()> {
    let path = case.directory().join("db");
    let db = Options::new().queue_capacity(8).open(&path)?;
    marks::create(&db)?;
    let mut acknowledged = std::collections::BTreeSet::new();
    for round in 0..200_i64 {
        case.tried += 1;
        let ids = round * 20 + 1..round * 20 + 19;
        let mut writes: Vec<_> =
            ids.map(|id| (id, db.write(move |tx| marks::put(tx, id, &[1; 200])))).collect();
        let mut context = Context::from_waker(Waker::noop());
        // Some were polled once and some never; some found no room in the queue.
        for (id, write) in writes.iter_mut().filter(|(id, _)| id % 3 == 0) {
            if let std::task::Poll::Ready(result) = Pin::new(write).poll(&mut context) {
                result?;
                acknowledged.insert(*id);
            }
        }
        let kept = writes.split_off(usize::try_from(round % 18)?);
        drop(writes);
        for (id, write) in kept.into_iter().filter(|(id, _)| id % 3 != 0) {
            write.wait()?;
            acknowledged.insert(id);
        }
    }
    let more = load::under_load(&db, 1_000_000, 0, 50, |_| Ok(()))?;
    case.expect(more.goes_on, || format!("afterwards: {:?}", more.refusals));
    acknowledged.extend(more.acknowledged);
    db.close()?;
    case.note("200 rounds of 18 writes, some never polled, some without room in the queue");
    case.verify(&path, &acknowledged)
}
