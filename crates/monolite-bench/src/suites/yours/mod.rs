//! `bench yours`: the user's own statements, on the user's own schema.
//!
//! # Algorithm
//! 1. The statements are cut and their parameters matched with generators; whatever is missing is
//!    an error before anything is loaded.
//! 2. The schema is run and rows are loaded into a database that is kept as it is, and every
//!    transaction is tried on a copy: a statement that SQLite refuses ends the run, with its words.
//! 3. Every trial works on a fresh copy. Afterwards SQLite's own `integrity_check` and
//!    `foreign_key_check` must find nothing.
//! 4. PostgreSQL gets the same texts with `$1` for parameters, in a database that is copied for
//!    every trial. Text that it does not accept is no error: the report says which and why.
//!
//! A transaction that a constraint refuses is rolled back and counted as refused, not as done.

pub mod generators;
mod postgres;
pub mod sql;
mod trial;

use super::stage::Play;
use super::{Bundle, Entry, Ground, Turn, no_postgres};
use crate::drivers::{Absent, Round};
use crate::raw_connection::{open_bare, remove};
use crate::report::record::Section;
use anyhow::{Context, Result, bail, ensure};
use generators::Parameter;
use postgres::Postgres;
use rusqlite::Connection;
use rusqlite::types::Value;
use sql::Statement;
use std::cell::OnceCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Times that each transaction is tried before anything is measured.
const TRIES: u32 = 20;

/// What the user says.
#[derive(Clone, Debug, Default)]
pub struct YoursOptions {
    /// Text of the schema.
    pub schema: String,
    /// Transactions that write; statements of one are separated by semicolons.
    pub writes: Vec<String>,
    /// Transactions that only read.
    pub reads: Vec<String>,
    /// Statements that load rows, as `100000 INSERT …`.
    pub loads: Vec<String>,
    /// Parameters, as `:id uniform(1..1e6)`.
    pub parameters: Vec<String>,
    /// Reads and writes out of a hundred, as `75/25`.
    pub mix: Option<String>,
    /// Clients, each waiting for its transaction.
    pub clients: u64,
}

/// The user's statements, ready to be measured.
#[derive(Clone)]
pub struct Yours {
    shared: Arc<Shared>,
    postgres: Rc<OnceCell<Result<Postgres, String>>>,
}

/// What all trials know.
#[derive(Debug)]
struct Shared {
    schema: String,
    writes: Vec<Transaction>,
    reads: Vec<Transaction>,
    loads: Vec<(u64, Transaction)>,
    /// Reads out of a hundred.
    read_share: u32,
    clients: usize,
    /// What a `serial` begins with after the loads.
    next: AtomicI64,
}

/// Statements that are committed together.
#[derive(Clone, Debug)]
struct Transaction {
    statements: Vec<(Statement, Vec<generators::Generator>)>,
    /// The different parameters, which have one value in all of its statements.
    names: Vec<String>,
    text: String,
}

/// Statements with their values.
type Drawn<'t> = Vec<(&'t Statement, Vec<Value>)>;

impl Transaction {
    fn parse(text: &str, parameters: &[Parameter]) -> Result<Transaction> {
        let (mut statements, mut names) = (Vec::new(), Vec::new());
        for statement in sql::parse(text)? {
            let mut found = Vec::new();
            for name in &statement.names {
                let parameter = parameters.iter().find(|parameter| parameter.name == *name);
                let Some(parameter) = parameter else {
                    bail!(
                        "{text:?} has {name} and nothing says what it is; add --param '{name} \
                           uniform(1..1000)' or another generator"
                    )
                };
                found.push(parameter.generator.clone());
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
            statements.push((statement, found));
        }
        Ok(Transaction { statements, names, text: text.into() })
    }

    fn draw(&self, random: &mut fastrand::Rng, serial: &AtomicI64) -> Drawn<'_> {
        let mut values: Vec<Option<Value>> = vec![None; self.names.len()];
        let mut drawn = Vec::with_capacity(self.statements.len());
        for (statement, generators) in &self.statements {
            let mut its = Vec::with_capacity(generators.len());
            for (name, generator) in statement.names.iter().zip(generators) {
                let at = self.names.iter().position(|known| known == name).expect("it is there");
                let value = values[at].get_or_insert_with(|| generator.draw(random, serial));
                its.push(value.clone());
            }
            drawn.push((statement, its));
        }
        drawn
    }
}

impl Yours {
    /// Reads what the user says.
    pub fn new(options: &YoursOptions) -> Result<Yours> {
        let parameters: Result<Vec<Parameter>> =
            options.parameters.iter().map(|text| Parameter::parse(text)).collect();
        let parameters = parameters.context("--param")?;
        let all = |texts: &[String], option: &'static str| -> Result<Vec<Transaction>> {
            let parse = |text: &String| Transaction::parse(text, &parameters).context(option);
            texts.iter().map(parse).collect()
        };
        let (writes, reads) = (all(&options.writes, "--write")?, all(&options.reads, "--read")?);
        ensure!(
            !writes.is_empty() || !reads.is_empty(),
            "there is nothing to measure; add --write 'INSERT …' or --read 'SELECT …'"
        );
        let loads: Result<Vec<(u64, Transaction)>> =
            options.loads.iter().map(|text| load(text, &parameters).context("--load")).collect();
        let shared = Shared {
            schema: options.schema.clone(),
            read_share: read_share(options.mix.as_deref(), reads.len(), writes.len())?,
            writes,
            reads,
            loads: loads?,
            clients: usize::try_from(options.clients).unwrap_or(0),
            next: AtomicI64::new(1),
        };
        ensure!((1..=1024).contains(&shared.clients), "--clients must be from 1 to 1024");
        Ok(Yours { shared: Arc::new(shared), postgres: Rc::new(OnceCell::new()) })
    }
}

/// Reads `100000 INSERT …`.
fn load(text: &str, parameters: &[Parameter]) -> Result<(u64, Transaction)> {
    let (count, sql) = text.trim().split_once(char::is_whitespace).unwrap_or((text, ""));
    let count = count.replace(['_', ','], "").parse().ok().with_context(|| {
        format!(
            "{text:?} does not begin with a number; write how often it runs, as '1000 INSERT …'"
        )
    })?;
    Ok((count, Transaction::parse(sql, parameters)?))
}

/// Reads `75/25`.
fn read_share(mix: Option<&str>, reads: usize, writes: usize) -> Result<u32> {
    if reads == 0 || writes == 0 {
        let one = if reads == 0 { "--read" } else { "--write" };
        ensure!(mix.is_none(), "--mix needs both --read and --write; add {one}, or leave it out");
        return Ok(if reads == 0 { 0 } else { 100 });
    }
    let mix = mix.unwrap_or("75/25");
    let parts = mix.split_once('/').and_then(|(reads, writes)| {
        Some((reads.trim().parse::<u32>().ok()?, writes.trim().parse::<u32>().ok()?))
    });
    match parts {
        Some((reads, writes)) if reads.checked_add(writes) == Some(100) => Ok(reads),
        _ => bail!("{mix:?} is not a mix; write reads and writes out of a hundred, as 75/25"),
    }
}

impl Shared {
    /// Draws the next transaction of a client.
    fn draw(
        &self,
        kind: Kind,
        random: &mut fastrand::Rng,
        serial: &AtomicI64,
    ) -> (Kind, Drawn<'_>) {
        let kind = match kind {
            Kind::Mix if random.u32(0..100) < self.read_share => Kind::Reads,
            Kind::Mix => Kind::Writes,
            kind => kind,
        };
        let those = if kind == Kind::Reads { &self.reads } else { &self.writes };
        (kind, those[random.usize(0..those.len())].draw(random, serial))
    }
}

/// Which transactions a trial runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mix,
    Reads,
    Writes,
}

const BASE: &str = "yours.db";

impl Play for Yours {
    fn name(&self) -> &'static str {
        "yours"
    }

    fn prepare(&self, ground: &Ground<'_>) -> Result<Vec<String>> {
        let base = ground.dir.join(BASE);
        let mut connection = open_bare(&base)?;
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")?;
        connection.execute_batch(&self.shared.schema).context("the schema is not accepted")?;
        let mut next = 1;
        let mut work = Vec::new();
        for (count, load) in &self.shared.loads {
            next = next.max(fill(&mut connection, *count, load, ground)?);
            work.push(format!("loaded {count} times: {}", load.text));
        }
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
        drop(connection);
        self.shared.next.store(next, Ordering::Relaxed);
        self.try_out(ground, next)?;
        let transactions = self.shared.reads.iter().map(|t| ("read", t));
        let transactions = transactions.chain(self.shared.writes.iter().map(|t| ("write", t)));
        work.extend(transactions.map(|(kind, t)| format!("{kind}: {}", t.text)));
        work.push(format!("{} reads of 100 in the mix", self.shared.read_share));
        work.push(postgres::start(&self.postgres, &self.shared, ground));
        Ok(work)
    }

    fn sections(&self, ground: &Ground<'_>) -> Vec<Bundle> {
        let both = !self.shared.reads.is_empty() && !self.shared.writes.is_empty();
        let mut kinds = Vec::new();
        if both {
            let share = self.shared.read_share;
            kinds.push((Kind::Mix, format!("Your mix, {share} % reads")));
        }
        if !self.shared.writes.is_empty() {
            kinds.push((Kind::Writes, "Your writes alone".to_owned()));
        }
        if !self.shared.reads.is_empty() {
            kinds.push((Kind::Reads, "Your reads alone".to_owned()));
        }
        kinds.into_iter().map(|(kind, title)| self.bundle(ground, kind, title)).collect()
    }
}

impl Yours {
    fn bundle(&self, ground: &Ground<'_>, kind: Kind, title: String) -> Bundle {
        let mut entries = Vec::new();
        let mut counts = vec![1, self.shared.clients];
        counts.dedup();
        for clients in counts {
            for (how, line, name) in trial::WAYS {
                let (shared, base) = (Arc::clone(&self.shared), ground.dir.join(BASE));
                let work = trial::Work { shared, kind, clients, base };
                entries.push(Entry::new(line, name, clients, move |turn| work.run(how, turn)));
            }
            if no_postgres(ground).is_none() {
                let yours = self.clone();
                let trial = move |turn: &Turn<'_>| yours.postgres_round(kind, clients, turn);
                entries.push(Entry::new("postgres", "PostgreSQL", clients, trial));
            }
        }
        let meaning = "Each client waits for its transaction before the next; raw SQLite's clients \
                       take turns at writing, the engine's share commits";
        let key = format!("yours/{}", format!("{kind:?}").to_lowercase());
        let section = Section::new(key, title, meaning, ["clients", "transactions"]);
        let check = "integrity_check and foreign_key_check of every copy found nothing";
        Bundle { section, check, entries }
    }

    fn postgres_round(&self, kind: Kind, clients: usize, turn: &Turn<'_>) -> Result<Round> {
        match self.postgres.get() {
            Some(Ok(postgres)) => postgres.run(&self.shared, kind, clients, turn),
            Some(Err(reason)) => Err(Absent(reason.clone()).into()),
            None => Err(Absent("it was not started".into()).into()),
        }
    }

    /// Runs every transaction some times on a copy.
    fn try_out(&self, ground: &Ground<'_>, next: i64) -> Result<()> {
        let (base, copy) = (ground.dir.join(BASE), ground.dir.join("yours-try.db"));
        std::fs::copy(&base, &copy)?;
        let mut connection = open_bare(&copy)?;
        let serial = AtomicI64::new(next);
        let mut random = fastrand::Rng::with_seed(1);
        for transaction in self.shared.reads.iter().chain(&self.shared.writes) {
            let mut touched = 0;
            for _ in 0..TRIES {
                let batch = connection.transaction()?;
                match trial::statements(&batch, &transaction.draw(&mut random, &serial)) {
                    Ok(rows) => touched += rows,
                    Err(error) if trial::is_refused(&error) => touched += 1,
                    Err(error) => {
                        return Err(error).context(format!(
                            "SQLite does not accept {:?}; correct it, or the schema",
                            transaction.text
                        ));
                    }
                }
                batch.commit()?;
            }
            ensure!(
                touched > 0,
                "{:?} found and changed no row in {TRIES} tries; add rows with --load '1000 \
                 INSERT …', or draw parameters that there are",
                transaction.text
            );
        }
        drop(connection);
        remove(&copy)
    }
}

/// Loads rows, and returns the next number of a `serial`.
fn fill(
    connection: &mut Connection,
    count: u64,
    load: &Transaction,
    ground: &Ground<'_>,
) -> Result<i64> {
    let (serial, mut random) = (AtomicI64::new(1), fastrand::Rng::with_seed(1));
    let batch = connection.transaction()?;
    for number in 0..count {
        if number.is_multiple_of(1024) {
            ground.interrupt.check()?;
        }
        let drawn = load.draw(&mut random, &serial);
        trial::statements(&batch, &drawn)
            .with_context(|| format!("loading, {:?} failed; correct it", load.text))?;
    }
    batch.commit()?;
    Ok(serial.load(Ordering::Relaxed))
}

/// A copy of the base for one trial.
fn fresh(base: &std::path::Path) -> Result<PathBuf> {
    let copy = base.with_file_name("yours-trial.db");
    remove(&copy)?;
    std::fs::copy(base, &copy).context("cannot copy the loaded database")?;
    Ok(copy)
}

#[cfg(test)]
mod tests;
