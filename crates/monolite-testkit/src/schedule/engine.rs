//! The engine as the subject of a schedule: on a simulated disk, one submitting thread, batches
//! composed by holding up the writer.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use monolite::{
    Committed, Database, Durability, Error, ErrorKind, InteractiveOptions, Options, Transaction,
    Write,
};

use super::{
    Call, Gave, Half, Interactive, IoFault, IoFaultKind, Member, Pace, Plan, SCHEMA, Schedule,
    Stopped, Subject, TIME_LIMIT, Told, sql,
};
use crate::checkers::serial::{Contents, Op};
use crate::clock::HandClock;
use crate::functions::{Promise, with_functions};
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
    /// Interactive transactions that were begun in earlier steps.
    begun: HashMap<i64, Begun>,
    validation: Validation,
    /// `None` only while it is opened again.
    db: Option<Database>,
}

/// Whether the engine compares what interactive transactions saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    /// As it does.
    On,
    /// Not, which a check must notice.
    Off,
}

/// An open interactive transaction.
struct Begun {
    tx: Transaction,
    saw: Vec<i64>,
    /// How its first half ended.
    outcome: Result<Result<(), Stopped>, Box<dyn Any + Send>>,
}

/// A member that was handed to the writer.
enum Handed {
    Closure(Write<Gave, Stopped>),
    Commit(Write<Committed>, Vec<i64>),
    /// It is over before.
    Answered(Told),
}

impl Handed {
    fn wait(self) -> Told {
        match self {
            Handed::Closure(handle) => Told::by(catch_unwind(AssertUnwindSafe(|| handle.wait()))),
            Handed::Commit(handle, saw) => {
                let committed = handle.wait().map_err(Stopped::from);
                Told::by(Ok(committed.map(|_| Gave { number: Gave::LATER, saw })))
            }
            Handed::Answered(told) => told,
        }
    }
}

impl Engine {
    /// A new database in `directory`, opened as `schedule` asks.
    pub fn new(directory: &Path, schedule: &Schedule) -> Result<Engine> {
        Engine::with(directory, schedule, Durability::Synced, Validation::On)
    }

    /// As [`Engine::new`]; with [`Durability::Buffered`] a power cut takes acknowledged writes, and
    /// without validation interactive transactions commit whatever they saw.
    pub fn with(
        directory: &Path,
        schedule: &Schedule,
        durability: Durability,
        validation: Validation,
    ) -> Result<Engine> {
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
            begun: HashMap::new(),
            validation,
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
            // So few that transactions which wait for their batch have to move to a new snapshot.
            .interactive(InteractiveOptions::default().connections(2))
            .write_time_limit(TIME_LIMIT)
            // All run on this thread, so nobody could end what another one waits for.
            .without_turns()
            .clock(Arc::clone(&self.clock) as _);
        let options = with_functions(options, Promise::Kept);
        let options = match self.validation {
            Validation::On => options,
            Validation::Off => options.without_validation(),
        };
        self.db = Some(self.disk.under(options).open(&self.path).context("cannot open")?);
        Ok(())
    }

    fn db(&self) -> Result<&Database> {
        self.db.as_ref().context("the database could not be opened again")
    }

    fn submit(&mut self, member: &Member) -> Result<Handed> {
        if member.call == Call::Interactive {
            return self.submit_commit(&member.plan);
        }
        let (plan, clock) = (member.plan.clone(), Arc::clone(&self.clock));
        let db = self.db()?.with_error();
        let handle = match member.call {
            Call::WriteOnce => db.write_once(move |tx| plan.run(tx, &clock)),
            Call::TryWrite => match db.try_write(move |tx| plan.run(tx, &clock)) {
                Ok(handle) => handle,
                Err(error) => {
                    return Ok(Handed::Answered(Told::Refused(error.kind(), error.to_string())));
                }
            },
            _ => db.write(move |tx| plan.run(tx, &clock)),
        };
        Ok(Handed::Closure(handle))
    }

    /// Hands an interactive transaction to the writer whose statements have run.
    fn submit_commit(&mut self, plan: &Plan) -> Result<Handed> {
        let begun = self.begun.remove(&plan.id);
        let Begun { tx, saw, outcome } = begun.context("a commit was not prepared")?;
        Ok(match outcome {
            Ok(Ok(())) => Handed::Commit(tx.commit(), saw),
            Ok(Err(stopped)) => Handed::Answered(Told::by(Ok(Err(stopped)))),
            Err(panic) => Handed::Answered(Told::by(Err(panic))),
        })
    }

    /// Runs what an interactive transaction does, up to its commit.
    fn run_to_commit(&mut self, plan: &Plan) -> Result<()> {
        if !self.begun.contains_key(&plan.id) {
            self.begin(plan)?;
        }
        let clock = Arc::clone(&self.clock);
        let begun = self.begun.get_mut(&plan.id).context("it was not begun")?;
        if matches!(begun.outcome, Ok(Ok(()))) {
            let tx = Interactive::new(&begun.tx, Pace::steady());
            begun.outcome = catch_unwind(AssertUnwindSafe(|| {
                plan.interact_half(&tx, Half::Second, &mut begun.saw)?;
                plan.ending.act(&tx, &clock)
            }));
        }
        Ok(())
    }

    /// Runs the interactive members up to their commits; some faults happen meanwhile, too.
    fn prepare(&mut self, members: &[Member], fault: Option<&IoFault>) -> Result<()> {
        if let Some(fault) = fault.filter(|fault| !fault.number.is_multiple_of(2)) {
            if self.has_dropped {
                // It is to meet these members, and not what is still to be synced of those before.
                self.db()?.write(|_| Ok(())).wait()?;
            }
            self.arm(*fault);
        }
        for member in members.iter().filter(|it| it.call == Call::Interactive) {
            self.run_to_commit(&member.plan)?;
        }
        self.disk.clear_hook();
        Ok(())
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
        self.prepare(members, fault)?;
        let db = self.db()?;
        let (arrives, arrival) = channel();
        let (opens, gate) = channel::<()>();
        let holding = db.write(move |_| {
            let _ = arrives.send(());
            // An error says that the submitting thread is gone, and then nobody holds the writer.
            let _ = gate.recv();
            Ok::<_, Error>(())
        });
        if arrival.recv().is_err() {
            let refused = holding.wait().map_or_else(|error| error.to_string(), |()| "?".into());
            bail!("the writer does not run anything: {refused}");
        }
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
        let told = members.iter().zip(handles).map(|(member, handed)| match handed {
            // What was answered before was answered at once.
            Handed::Closure(_) | Handed::Commit(..) if member.is_dropped => Told::Nothing,
            handed => handed.wait(),
        });
        let told = told.collect();
        self.has_dropped |= members.iter().any(|member| member.is_dropped);
        if let Some(fault) = fault {
            self.cut_power(fault.seed)?;
        }
        Ok(told)
    }

    fn begin(&mut self, plan: &Plan) -> Result<()> {
        let tx = self.db()?.transaction()?;
        let mut saw = Vec::new();
        let interactive = Interactive::new(&tx, Pace::steady());
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            plan.interact_half(&interactive, Half::First, &mut saw)
        }));
        self.begun.insert(plan.id, Begun { tx, saw, outcome });
        Ok(())
    }

    fn read(&mut self, ops: &[Op], durable: bool) -> Result<(i64, Vec<i64>)> {
        let body = |tx: &monolite::ReadTx<'_>| {
            let mut saw = Vec::new();
            for op in ops {
                assert!(sql::ask(tx, op, &mut saw)?, "a read runs steps that ask");
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
        self.begun.clear();
        self.open()
    }

    fn cut_power(&mut self, seed: u64) -> Result<()> {
        let mut rng = Rng::with_seed(seed);
        let crash = self.disk.capture();
        self.disk.clear_hook();
        // What it still writes into the files is overwritten by what the cut left.
        self.begun.clear();
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
