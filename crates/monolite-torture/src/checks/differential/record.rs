//! Owns what a history is made of: the options it opens the database with, and what its one client
//! does, as data that can be written down.

use std::time::Duration;

use fastrand::Rng;
use monolite::rusqlite::types::Value;
use monolite::{Durability, InteractiveOptions, Options, Sharing};
use monolite_sqlite::GivenRowids;

/// What a write, a read or a statement of an interactive transaction may take: several of them one
/// after another less than a process may be silent.
const TIME_LIMIT: Duration = Duration::from_secs(3);

/// The options that a database is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) connections: usize,
    pub(super) snapshot_age_ms: u64,
    pub(super) attempts: u32,
    pub(super) readers: usize,
    pub(super) max_batch: usize,
    pub(super) wal_limit_mib: u64,
    pub(super) is_shared: bool,
    pub(super) has_checksums: bool,
    pub(super) is_buffered: bool,
    pub(super) is_in_memory: bool,
    /// Whether what was seen by transactions that were not committed is looked for in each state.
    pub(super) explains_all: bool,
    /// Whether each transaction is judged by a new connection.
    pub(super) renews_oracle: bool,
    /// Whether ids are given out ahead.
    pub(super) gives_ids: bool,
}

/// What the client does next. A slot is where it keeps an interactive transaction, which begins
/// with its first statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    Write(Write),
    /// The writer is held up while these writes and commits are submitted, so that they share a
    /// batch.
    Batch(Vec<Op>),
    Read {
        is_durable: bool,
        steps: Vec<Step>,
    },
    /// A statement of the interactive transaction in a slot.
    Step {
        slot: usize,
        step: Step,
    },
    Commit {
        slot: usize,
        key: Option<String>,
    },
    Rollback {
        slot: usize,
    },
    /// `transact`. In the first attempts another client writes behind one of its steps.
    Transact {
        steps: Vec<Step>,
        ending: Ending,
        meanwhile: Option<Meanwhile>,
    },
    Rest {
        ms: u64,
    },
    /// The database is closed and opened again.
    Reopen,
    /// The content is compared.
    Compare,
}

/// A transaction that is a closure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    pub(super) call: Call,
    pub(super) steps: Vec<Step>,
    pub(super) ending: Ending,
}

/// How a closure is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Write,
    Once,
    Try,
}

/// What a closure does after its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Commits,
    Fails,
    Panics,
}

/// A write between two steps of a transaction that is tried again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Meanwhile {
    pub(super) behind: usize,
    pub(super) attempts: u32,
    pub(super) write: Write,
}

/// One call with SQL, or one that stands for some.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    /// The statement, or the name of the savepoint.
    pub(super) sql: String,
    pub(super) parameters: Parameters,
    pub(super) how: How,
    /// A closure goes on when it fails; it gives up otherwise.
    pub(super) is_handled: bool,
    pub(super) judged: Judged,
    pub(super) random: Option<Box<RandomValue>>,
    /// The numbers that its rows were given by the engine, once it has run.
    pub(super) given: Option<GivenRowids>,
}

/// The call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Execute,
    Batch,
    /// `query_row`: the first row.
    Row,
    /// All rows: `prepare` in a closure, `query_map` in an interactive transaction.
    All,
    /// As `All`, by `prepare_cached` in a closure.
    Cached,
    /// So many rows, and no more.
    Part(usize),
    LastInsertRowid,
    Savepoint,
    RollbackTo,
    Release,
}

/// What of its answer is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// All of it.
    Whole,
    /// Whether it fails, and how.
    Success,
    /// A figure about the connection: compared once the transaction has changed something itself.
    Figures,
    /// A figure about the connection that cannot be compared.
    Connection,
    /// The engine refuses the statement, and plain SQLite is not asked.
    Refused,
}

/// How plain SQLite does what the engine has left to a random number or time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RandomValue {
    /// A query of one boolean: whether a random number decides at all.
    pub(super) only_when: Option<String>,
    /// The query, with the parameters of the step, that finds the value in the database.
    pub(super) look: String,
    /// The statement that takes the value as one more parameter.
    pub(super) with_value: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Parameters {
    Positional(Vec<Value>),
    Named(Vec<(String, Value)>),
}

impl Parameters {
    pub(super) const NONE: Parameters = Parameters::Positional(Vec::new());

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Parameters::Positional(values) => values.is_empty(),
            Parameters::Named(values) => values.is_empty(),
        }
    }
}

impl Step {
    /// A statement without parameters, judged as a whole, whose failure is handled.
    pub(super) fn plain(sql: impl Into<String>, how: How) -> Step {
        Step {
            sql: sql.into(),
            parameters: Parameters::NONE,
            how,
            is_handled: true,
            judged: Judged::Whole,
            random: None,
            given: None,
        }
    }

    /// How many statements it counts as.
    pub(super) fn statements(&self) -> u64 {
        match self.how {
            How::Batch => self.sql.matches(";\n").count() as u64 + 1,
            _ => 1,
        }
    }
}

impl Setup {
    pub(super) fn random(rng: &mut Rng) -> Setup {
        Setup {
            connections: [1, 2, 3, 64][rng.usize(..4)],
            snapshot_age_ms: [1, 1, 20, 1_000][rng.usize(..4)],
            attempts: [1, 2, 3, 10][rng.usize(..4)],
            readers: rng.usize(1..3),
            max_batch: [1, 2, 7, 10_000, 10_000][rng.usize(..5)],
            wal_limit_mib: [8, 1_024][rng.usize(..2)],
            is_shared: rng.u8(..14) == 0,
            has_checksums: rng.u8(..8) == 0,
            is_buffered: rng.bool(),
            is_in_memory: rng.bool(),
            explains_all: rng.u8(..10) == 0,
            renews_oracle: rng.bool(),
            gives_ids: rng.u8(..4) != 0,
        }
    }

    pub(super) fn options(&self) -> Options {
        let age = Duration::from_millis(self.snapshot_age_ms);
        let durability = if self.is_buffered { Durability::Buffered } else { Durability::Synced };
        let sharing = if self.is_shared { Sharing::Shared } else { Sharing::Exclusive };
        Options::new()
            .write_time_limit(TIME_LIMIT)
            .read_time_limit(TIME_LIMIT)
            .interactive(
                InteractiveOptions::default()
                    .connections(self.connections)
                    .snapshot_age(age)
                    .attempts(self.attempts)
                    .ids_given_out_ahead(self.gives_ids),
            )
            .readers(self.readers)
            .max_batch(self.max_batch)
            .wal_limit_bytes(self.wal_limit_mib << 20)
            .page_checksums(self.has_checksums)
            .durability(durability)
            .sharing(sharing)
            // A whole history is in memory at once, and none of them needs more.
            .reader_cache_bytes(256 << 10)
            .writer_cache_bytes(1 << 20)
    }
}

impl Op {
    /// How many statements it counts as.
    pub(super) fn statements(&self) -> u64 {
        let sum = |steps: &[Step]| steps.iter().map(Step::statements).sum();
        match self {
            Op::Write(write) => sum(&write.steps),
            Op::Batch(members) => members.iter().map(Op::statements).sum(),
            Op::Read { steps, .. } | Op::Transact { steps, .. } => sum(steps),
            Op::Step { step, .. } => step.statements(),
            _ => 0,
        }
    }

    /// Whether a statement may drop a table.
    pub(super) fn drops_a_table(&self) -> bool {
        let drops = |step: &Step| step.sql.contains("DROP TABLE");
        match self {
            Op::Write(write) => write.steps.iter().any(drops),
            Op::Batch(members) => members.iter().any(Op::drops_a_table),
            Op::Transact { steps, .. } => steps.iter().any(drops),
            Op::Step { step, .. } => drops(step),
            _ => false,
        }
    }
}
