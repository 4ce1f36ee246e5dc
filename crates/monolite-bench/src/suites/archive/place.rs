//! A database with an archive, opened and closed by each round, and what the archive took of it.

use super::store::{Counts, Kind, Observed};
use crate::drivers::Round;
use crate::drivers::traffic;
use anyhow::{Context, Result, ensure};
use monolite::{Database, Durability, Options};
use monolite_archive::{
    Archive, Layout, Store, Target,
    internals::{Level, restore},
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

const TABLE: &str = "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, \
                     holder TEXT NOT NULL)";
const FILL: &str = "WITH RECURSIVE n(i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2) \
                    INSERT INTO account SELECT i, 1000, substr(printf('account %d is held by \
                    somebody who lives in the street of %s', i, hex(randomblob(16))), 1, ?3) \
                    FROM n";
const MOVE: &str = "UPDATE account SET balance = balance + ?2 WHERE id = ?1";
const SUM: &str = "SELECT count(*), total(balance), total(abs(balance - 1000)) FROM account";

/// How long the first copy may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);

/// How many rows are made in a transaction.
const AT_ONCE: u64 = 100_000;

/// Time between two looks at the archive's figures.
const LOOK: Duration = Duration::from_millis(5);

/// What a candidate has: a database of its own, and an archive of that if it is to have one.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) database: PathBuf,
    /// Its address.
    pub(super) archive: String,
    pub(super) rows: u64,
    /// How many bytes of text a row has.
    pub(super) text: u32,
    /// After how long its store answers; `None` for a database without an archive.
    pub(super) rest: Option<Duration>,
    pub(super) durability: Durability,
}

/// A database that was opened.
pub(super) struct Opened {
    pub(super) db: Database,
    pub(super) counts: Arc<Counts>,
    before: State,
}

/// Deletes what is in the archive at an address.
pub(super) fn forget(address: &str) -> Result<()> {
    let (store, layout) = monolite_archive::internals::open(address)?;
    for level in Level::all() {
        loop {
            let listing = store.list(&layout.level(level), None)?;
            for object in &listing.objects {
                store.delete(&object.key)?;
            }
            if !listing.is_cut {
                break;
            }
        }
    }
    Ok(store.delete(&layout.leader())?)
}

impl Place {
    /// Its archive's store and the keys there.
    pub(super) fn store(&self) -> Result<(Box<dyn Store>, Layout)> {
        Ok(monolite_archive::internals::open(&self.archive)?)
    }

    /// Opens it, made if it is not there, with all of it in the archive.
    pub(super) fn open(&self) -> Result<Opened> {
        let opened = self.begin(None)?;
        archived(&opened.db)?;
        Ok(opened)
    }

    /// Opens it, made if it is not there, whatever of it the archive has. For so long the opening
    /// waits for a copy.
    pub(super) fn begin(&self, wait: Option<Duration>) -> Result<Opened> {
        let is_new = !self.database.exists();
        let mut options = Options::new().durability(self.durability);
        let counts = Arc::<Counts>::default();
        if let Some(rest) = self.rest {
            let (inner, layout) = self.store()?;
            let store = Observed { inner, rest, counts: Arc::clone(&counts) };
            let archive = Archive::of(Arc::new(store), layout);
            options = options.archive(match wait {
                Some(wait) => archive.opening_wait(wait),
                None => archive,
            });
        }
        let db = options.open(&self.database).context("cannot open the engine")?;
        if is_new {
            db.write(|tx| tx.execute_batch(TABLE)).wait()?;
            for first in (1..=self.rows).step_by(AT_ONCE as usize) {
                let last = (first + AT_ONCE - 1).min(self.rows);
                let (first, last, text) = (first as i64, last as i64, self.text);
                db.write(move |tx| tx.execute(FILL, (first, last, text))).wait()?;
            }
        }
        let before = state(&db)?;
        Ok(Opened { db, counts, before })
    }

    /// Closes it, and sees that it has what was acknowledged, and the archive has what it has.
    pub(super) fn close(&self, opened: Opened, moved: u64) -> Result<()> {
        let Opened { db, before, .. } = opened;
        let now = state(&db)?;
        // A close waits for some seconds, and a burst can have left more than that.
        archived(&db)?;
        db.close()?;
        let expected = before.balances + moved as f64;
        ensure!(now.rows == self.rows, "{} of {} rows are there", now.rows, self.rows);
        ensure!(
            (now.balances - expected).abs() < 0.5,
            "the balances are {} and not {expected}",
            now.balances
        );
        if self.rest.is_none() {
            return Ok(());
        }
        let copy = self.database.with_extension("restored");
        let (store, layout) = self.store()?;
        restore(&*store, &layout, Target::Latest, &copy)?;
        let restored = Options::new().readers(1).open(&copy)?;
        let there = state(&restored)?;
        restored.close()?;
        std::fs::remove_file(&copy)?;
        ensure!(there == now, "the archive has {there:?} and the database {now:?}");
        Ok(())
    }
}

impl Opened {
    /// Has `work` done, and notes what the archive took meanwhile.
    pub(super) fn noting(&self, work: impl FnOnce() -> Result<Round>) -> Result<Round> {
        let (requests, sent) = self.counts.look();
        let syncs = self.db.stats().syncs;
        let ((round, worst), wal) = traffic::watching(&self.db, || self.looking(work));
        let Some(worst) = worst else { return round };
        let megabytes = (wal as f64 / 1e6).max(f64::MIN_POSITIVE);
        let now = self.counts.look();
        let stats = self.db.stats();
        let each = |count: u64| count as f64 / megabytes;
        let kinds: String = Kind::ALL
            .iter()
            .map(|(kind, name)| (now.0[*kind as usize] - requests[*kind as usize], name))
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{:.2} {name}, ", each(count)))
            .collect();
        let note = format!(
            "requests a MB of WAL: {kinds}with {:.2} MB sent and {:.2} syncs of the WAL; \
             {megabytes:.0} MB in all, at most {:.1} MB staged, at most {} ms behind, {} at the \
             end",
            each(now.1 - sent) / 1e6,
            each(stats.syncs - syncs),
            worst.staged as f64 / 1e6,
            worst.lag_ms,
            stats.archive.map_or(0, |it| it.lag_ms),
        );
        round.map(|round| Round { note: Some(note), ..round })
    }

    /// Has `work` done while the archive's figures are looked at; `None` without an archive.
    fn looking<T>(&self, work: impl FnOnce() -> T) -> (T, Option<Worst>) {
        let (end, ended) = channel::<()>();
        std::thread::scope(|scope| {
            let watch = scope.spawn(move || {
                let mut worst = self.db.stats().archive.map(|_| Worst::default());
                // The sender is dropped when the work is over.
                while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                    if let (Some(worst), Some(now)) = (&mut worst, self.db.stats().archive) {
                        worst.staged = worst.staged.max(now.staged_bytes);
                        worst.lag_ms = worst.lag_ms.max(now.lag_ms);
                    }
                }
                worst
            });
            let done = work();
            drop(end);
            (done, watch.join().expect("a look does not panic"))
        })
    }
}

/// The worst that an archive was at any look.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    staged: u64,
    lag_ms: u64,
}

/// Waits until all of it is in its archive, if it has one.
fn archived(db: &Database) -> Result<()> {
    let start = Instant::now();
    while let Some(stats) = db.stats().archive
        && (!stats.is_restorable || stats.lag_ms > 0)
    {
        let said = stats.last_error.as_deref().unwrap_or("nothing");
        ensure!(
            start.elapsed() < PATIENCE,
            "the archive does not get the database; what went wrong last: {said}"
        );
        sleep(LOOK);
    }
    Ok(())
}

/// What tells one content from another.
#[derive(Clone, Copy, Debug, PartialEq)]
struct State {
    rows: u64,
    balances: f64,
    moves: f64,
}

fn state(db: &Database) -> Result<State> {
    let row = |row: &rusqlite::Row<'_>| {
        Ok(State {
            rows: row.get::<_, i64>(0)?.unsigned_abs(),
            balances: row.get(1)?,
            moves: row.get(2)?,
        })
    };
    Ok(db.read(move |tx| tx.query_row(SUM, (), row)).wait()?)
}

/// Adds to two accounts; the sum of all grows by 1.
pub(super) fn transfer(db: &Database, from: i64, to: i64) -> monolite::Write<(), monolite::Error> {
    db.write(move |tx| {
        tx.execute(MOVE, [from, -10])?;
        tx.execute(MOVE, [to, 11])?;
        Ok(())
    })
}

/// Two of so many; some are wanted more often than others.
pub(super) fn accounts(random: &mut fastrand::Rng, rows: u64) -> (i64, i64) {
    let hot = random.f64().powi(3);
    let one = (hot * rows as f64) as i64 + 1;
    (one.min(rows as i64), random.i64(1..=rows as i64))
}

#[cfg(test)]
impl Place {
    /// One in a directory, whose store answers at once.
    pub(super) fn within(directory: &std::path::Path, rows: u64, text: u32) -> Place {
        Place {
            database: directory.join("db"),
            archive: directory.join("archive").display().to_string(),
            rows,
            text,
            rest: Some(Duration::ZERO),
            durability: Durability::Synced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_archive_lacks_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::within(directory.path(), 10, 0);
        let place = Place { durability: Durability::Archived, ..place };
        let opened = place.open().unwrap();
        transfer(&opened.db, 1, 2).wait().unwrap();
        place.close(opened, 1).unwrap();
        let opened = place.open().unwrap();
        transfer(&opened.db, 1, 2).wait().unwrap();
        assert!(place.close(opened, 2).is_err(), "one more than there was");
        let opened = place.open().unwrap();
        transfer(&opened.db, 1, 2).wait().unwrap();
        let slots = directory.path().join("archive/ltx/0");
        let newest = std::fs::read_dir(&slots).unwrap().map(|it| it.unwrap().path()).max().unwrap();
        std::fs::remove_file(newest).unwrap();
        assert!(place.close(opened, 1).is_err(), "the archive lacks one");
        forget(&place.archive).unwrap();
        let (store, layout) = place.store().unwrap();
        let left = monolite_archive::internals::Catalog::read(&*store, &layout).unwrap();
        assert!(left.files().is_empty());
        assert!(store.list("monolite", None).unwrap().objects.is_empty());
    }
}
