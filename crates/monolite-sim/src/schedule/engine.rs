//! The engine as the subject of a schedule: on a simulated disk, one submitting thread, batches
//! composed by holding up the writer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use monolite::{Database, Durability, Error, ErrorKind, Options, Write};

use super::{Call, Gave, IoFault, IoFaultKind, Member, SCHEMA, Stopped, Subject, TIME_LIMIT, Told};
use super::{Schedule, sql};
use crate::checkers::serial::{Contents, Op};
use crate::clock::HandClock;
use crate::storage::{Disk, Fault, Left, Operation, RealSyncs, remove};

/// A database of the engine in a directory of its own.
pub struct Engine {
    path: PathBuf,
    max_batch: usize,
    durability: Durability,
    clock: Arc<HandClock>,
    disk: Disk,
    /// Whether handles were dropped whose transactions may still be under way.
    has_dropped: bool,
    /// `None` only while it is opened again.
    db: Option<Database>,
}

impl Engine {
    /// A new database in `directory`, opened as `schedule` asks.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn new(directory: &Path, schedule: &Schedule) -> Result<Engine> {
        Engine::with(directory, schedule, Durability::Synced)
    }

    /// As [`Engine::new`]; with [`Durability::Buffered`] a power cut takes acknowledged writes.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn with(directory: &Path, schedule: &Schedule, durability: Durability) -> Result<Engine> {
        let path = directory.join("schedule.db");
        remove(&path).context("cannot remove the last database")?;
        let disk = Disk::empty(RealSyncs::Skipped);
        let clock = HandClock::new();
        let mut engine = Engine {
            path,
            max_batch: schedule.max_batch,
            durability,
            clock,
            disk,
            has_dropped: false,
            db: None,
        };
        engine.open()?;
        engine.db()?.write(|tx| tx.execute_batch(SCHEMA)).wait()?;
        Ok(engine)
    }

    fn open(&mut self) -> Result<()> {
        let options = Options::new()
            .max_batch(self.max_batch)
            .durability(self.durability)
            .readers(2)
            .write_time_limit(TIME_LIMIT)
            .clock(Arc::clone(&self.clock) as _);
        self.db = Some(self.disk.under(options).open(&self.path).context("cannot open")?);
        Ok(())
    }

    fn db(&self) -> Result<&Database> {
        self.db.as_ref().context("the database could not be opened again")
    }

    fn submit(&self, member: &Member) -> Result<Result<Write<Gave, Stopped>, Error>> {
        let (plan, clock) = (member.plan.clone(), Arc::clone(&self.clock));
        let db = self.db()?;
        Ok(match member.call {
            Call::Write => Ok(db.write(move |tx| plan.run(tx, &clock))),
            Call::WriteOnce => Ok(db.write_once(move |tx| plan.run(tx, &clock))),
            Call::TryWrite => db.try_write(move |tx| plan.run(tx, &clock)),
        })
    }

    /// Arms the disk with a fault.
    fn arm(&self, fault: IoFault) {
        let calls = AtomicU64::new(0);
        self.disk.set_hook(move |call| {
            let fits = match fault.kind {
                IoFaultKind::Read => call.operation == Operation::Read,
                IoFaultKind::Sync => call.operation.is_sync(),
                _ => call.operation == Operation::Write,
            };
            if !fits {
                return None;
            }
            let number = calls.fetch_add(1, Ordering::SeqCst) + 1;
            let happens = number == fault.number || (fault.goes_on && number > fault.number);
            happens.then_some(match fault.kind {
                IoFaultKind::ShortWrite => Fault::Short,
                IoFaultKind::Full => Fault::Full,
                _ => Fault::Error,
            })
        });
    }
}

impl Subject for Engine {
    fn batch(&mut self, members: &[Member], fault: Option<&IoFault>) -> Result<Vec<Told>> {
        let db = self.db()?;
        let (arrives, arrival) = channel();
        let (opens, gate) = channel::<()>();
        let holding = db.write(move |_| {
            let _ = arrives.send(());
            // An error says that the submitting thread is gone, and then nobody holds the writer.
            let _ = gate.recv();
            Ok::<_, Error>(())
        });
        arrival.recv().context("the writer does not run anything")?;
        let handles: Vec<_> =
            members.iter().map(|member| self.submit(member)).collect::<Result<_>>()?;
        if let Some(fault) = fault {
            self.arm(*fault);
        }
        drop(opens);
        let held = holding.wait();
        if fault.is_none() {
            held?;
        }
        let told = members.iter().zip(handles).map(|(member, handle)| match handle {
            Ok(handle) if member.is_dropped => {
                drop(handle);
                Told::Nothing
            }
            Ok(handle) => Told::by(catch_unwind(AssertUnwindSafe(|| handle.wait()))),
            Err(error) => Told::Refused(error.kind(), error.to_string()),
        });
        let told = told.collect();
        self.has_dropped |= members.iter().any(|member| member.is_dropped);
        if let Some(fault) = fault {
            self.cut_power(fault.seed)?;
        }
        Ok(told)
    }

    fn read(&mut self, ops: &[Op], durable: bool) -> Result<(i64, Vec<i64>)> {
        let body = |tx: &monolite::Tx<'_>| {
            let mut saw = Vec::new();
            for op in ops {
                sql::run(tx, op, 0, &mut saw)?;
            }
            Ok::<_, Error>((sql::last_number(tx)?, saw))
        };
        if !durable {
            // It might see a commit that is not on disk yet, which a power cut may take back.
            self.wait_for_dropped()?;
        }
        let db = self.db()?;
        Ok(if durable { db.read_durable(body).wait()? } else { db.read(body).wait()? })
    }

    fn reopen(&mut self) -> Result<()> {
        self.wait_for_dropped()?;
        self.db()?.close().context("cannot close")?;
        self.open()
    }

    fn cut_power(&mut self, seed: u64) -> Result<()> {
        let mut rng = Rng::with_seed(seed);
        let crash = self.disk.capture();
        self.disk.clear_hook();
        // What it still writes into the files is overwritten by what the cut left.
        drop(self.db.take());
        self.has_dropped = false;
        crash.image(Left::random(&mut rng), &mut rng).write_to(&self.path)?;
        self.disk = Disk::holding(&self.path, RealSyncs::Skipped)?;
        self.open()
    }

    fn contents(&mut self) -> Result<Contents> {
        self.wait_for_dropped()?;
        Ok(self.db()?.read(|tx| sql::contents(tx)).wait()?)
    }
}

impl Engine {
    /// Transactions whose handles were dropped run on; one behind them is answered after them.
    fn wait_for_dropped(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.has_dropped) {
            return Ok(());
        }
        match self.db()?.write(|_| Ok::<_, Error>(())).wait() {
            Err(error) if error.kind() != ErrorKind::Poisoned => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.db.take());
        // Scratch that is left behind goes with its directory.
        let _ = remove(&self.path);
    }
}
