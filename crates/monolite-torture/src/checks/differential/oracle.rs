//! Owns the oracle: plain SQLite of the same build, on which every transaction that was committed
//! is run again, whole, at its place in the order of the commits.
//!
//! # Algorithm
//! 1. [`Oracle::replay`] begins a transaction, asks each step and compares. Its caller then knows
//!    whether the transaction had to commit, and says [`Oracle::commit`] or [`Oracle::roll_back`].
//! 2. What was committed is remembered, so that [`Oracle::explain`] can build each earlier state
//!    once more, and look whether the answers of a transaction that was not committed hold in one
//!    of those that it may have seen.
//!
//! # Invariants
//! - Between two calls of its users but for `replay` no transaction is open.
//! - What SQLite keeps in memory of a schema or of statistics that were undone is forgotten.
//! - A history is judged by one connection throughout or, where its setup says so, by a new one for
//!   each transaction: what a connection remembers of those before, the engine's connections may,
//!   too, and then only a new one tells.

use std::ffi::c_int;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use anyhow::Result;
use monolite::rusqlite::Connection;
use monolite::rusqlite::types::Value;
use monolite::{Error, ErrorKind};
use monolite_sqlite::PlainNumbers;
use serde::{Deserialize, Serialize};

use super::answer::Said;
use super::asking::{ask_plain, changes_rows, changes_schema};
use super::dump::{Part, dump_plain};
use super::record::{How, Judged, Parameters, Step};
use super::schema::leaves_to_random;

/// A rowid that no history uses: what `last_insert_rowid()` gives before a transaction's own
/// insert.
const NO_INSERT: i64 = -987_654_321;

/// Statements that are kept: more than a history runs again.
const STATEMENTS: usize = 64;

/// What is wrong with the oracle or its client on purpose, so that it can be seen whether the check
/// would notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Flaw {
    #[default]
    None,
    /// The engine commits interactive transactions whatever they saw.
    NoValidation,
    /// The oracle skips a committed change.
    SkippedChange,
    /// The oracle keeps the statistics that it knew first.
    StaleStatistics,
    /// Two commits of a batch are taken in each other's place.
    SwappedCommits,
    /// Reads are compared with a later state than theirs.
    LateReads,
    /// A commit is taken for a conflict.
    InventedConflict,
    /// Rowids that the engine has drawn are drawn again.
    OtherRowid,
    /// Ids that the engine has given out ahead are chosen by plain SQLite.
    OwnIds,
}

/// Whose steps are replayed: they end differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// A closure gives up at the first failure that it does not handle.
    Closure,
    /// As `Closure`, on a connection that may not write.
    Read,
    /// The client of an interactive transaction goes on.
    Interactive,
}

/// Steps, what the application was told, and which random numbers the engine drew.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) steps: &'a [Step],
    pub(super) told: &'a [Said],
    pub(super) drawn: &'a [Option<Value>],
}

/// The first answer that was another one.
#[derive(Clone, Debug)]
pub(super) struct Wrong {
    pub(super) at: usize,
    pub(super) told: Said,
    pub(super) expected: Said,
}

/// How a replay went. Its transaction is still open, if it is not over.
#[derive(Debug, Default)]
pub(super) struct Replay {
    pub(super) wrong: Option<Wrong>,
    /// A statement has rolled the transaction back.
    pub(super) is_over: bool,
    /// The closure gave up at a failure.
    pub(super) gave_up: bool,
    /// It has changed rows or the schema.
    pub(super) has_changed: bool,
    /// A change has failed: SQLite does not always undo all of one, and does not count it then.
    pub(super) has_failed_change: bool,
    /// It asked for figures about the connection.
    pub(super) has_figures: bool,
    /// It had to do with what the oracle cannot know.
    pub(super) has_random: bool,
}

impl Replay {
    pub(super) fn is_uncertain(&self) -> bool {
        self.has_figures || self.has_random
    }
}

/// Answers of a transaction that was not committed, and the states in one of which they must hold.
pub(super) struct Claim {
    pub(super) steps: Vec<Step>,
    pub(super) told: Vec<Said>,
    pub(super) first: usize,
    pub(super) last: usize,
    /// It was committed, and must have changed nothing.
    pub(super) is_committed: bool,
    /// The number of the operation that ended it.
    pub(super) op: usize,
    pub(super) wrong: Wrong,
}

pub(super) struct Oracle {
    plain: Connection,
    /// Has it choose the numbers that the engine has given out.
    numbers: PlainNumbers,
    /// The file of which each transaction gets a new connection, if they do.
    renewed_on: Option<PathBuf>,
    /// On the same file, to analyze behind the other's back.
    other: Option<Connection>,
    log: Vec<Vec<Step>>,
    flaw: Flaw,
    effort: Arc<Effort>,
}

/// What the statement that is asked has cost.
#[derive(Default)]
pub(super) struct Effort {
    looks: AtomicU32,
    is_too_much: AtomicBool,
    /// Whether what runs now is no statement of the history.
    is_free: AtomicBool,
}

impl Effort {
    /// Instructions of SQLite's between two looks.
    const PERIOD: c_int = 100_000;

    /// Looks at one statement; a tenth of a second or two, so that the engine has done it within
    /// its limits on the busiest machine.
    const MAX_LOOKS: u32 = 30;

    pub(super) fn begin(&self) {
        self.looks.store(0, Ordering::Relaxed);
    }

    /// Ends the statements of this connection that take too much.
    pub(super) fn watch(self: &Arc<Effort>, plain: &mut Connection) -> Result<()> {
        let effort = Arc::clone(self);
        Ok(plain.progress_handler(Effort::PERIOD, Some(move || effort.look()))?)
    }

    /// Whether the statement is to be ended.
    fn look(&self) -> bool {
        if self.is_free.load(Ordering::Relaxed) {
            return false;
        }
        let is_too_much = self.looks.fetch_add(1, Ordering::Relaxed) >= Effort::MAX_LOOKS;
        if is_too_much {
            self.is_too_much.store(true, Ordering::Relaxed);
        }
        is_too_much
    }
}

impl Oracle {
    /// An empty one, on the file at `path` if its connection is renewed or the flaw needs two.
    pub(super) fn open(flaw: Flaw, is_renewed: bool, path: &Path) -> Result<Oracle> {
        let effort = Arc::new(Effort::default());
        let has_two = flaw == Flaw::StaleStatistics;
        let plain = connect((has_two || is_renewed).then_some(path), &effort)?;
        let numbers = PlainNumbers::install(&plain)?;
        let other = if has_two {
            plain.execute_batch("PRAGMA journal_mode = WAL")?;
            Some(Connection::open(path)?)
        } else {
            None
        };
        let renewed_on = (is_renewed && !has_two).then(|| path.to_owned());
        Ok(Oracle { plain, numbers, renewed_on, other, log: Vec::new(), flaw, effort })
    }

    fn begin(&mut self, steps: &[Step], flow: Flow) -> Result<()> {
        if let Some(path) = &self.renewed_on {
            self.plain = connect(Some(path), &self.effort)?;
            self.numbers = PlainNumbers::install(&self.plain)?;
        }
        let plain = self.in_transaction(steps);
        if steps.iter().any(|step| step.judged == Judged::Figures) {
            plain.execute("REPLACE INTO temp.inserted VALUES (?1)", [NO_INSERT])?;
        }
        if self.other.is_none() {
            // So that `changes()` tells a trigger nothing of the transaction before.
            plain.execute("DELETE FROM temp.inserted WHERE 0", ())?;
        }
        if flow == Flow::Read {
            plain.execute_batch("PRAGMA query_only = ON")?;
        }
        Ok(plain.execute_batch("BEGIN")?)
    }

    /// The connection that has, or gets, the transaction of `steps`.
    fn in_transaction(&self, steps: &[Step]) -> &Connection {
        match &self.other {
            Some(other) if is_analyze(steps) => other,
            _ => &self.plain,
        }
    }

    /// Whether a statement was without end, such as a `DELETE` whose trigger inserts what it goes
    /// on to delete, and the engine ended it by its limits; or whether SQLite may have drawn rowids
    /// at random, behind the largest, in a table of ordinary statements: the history has no judge.
    pub(super) fn has_given_up(&self) -> bool {
        self.effort.is_too_much.load(Ordering::Relaxed)
    }

    /// Everything that is committed, however long that takes to read.
    pub(super) fn dump(&self) -> Result<Vec<Part>, Error> {
        self.effort.is_free.store(true, Ordering::Relaxed);
        let parts = dump_plain(&self.plain);
        self.effort.is_free.store(false, Ordering::Relaxed);
        parts
    }

    /// To look at what is committed.
    pub(super) fn plain(&self) -> &Connection {
        &self.plain
    }

    /// How many transactions have been committed.
    pub(super) fn version(&self) -> usize {
        self.log.len()
    }

    /// Begins a transaction, asks each step in it, and compares.
    pub(super) fn replay(&mut self, asked: Asked<'_>, flow: Flow) -> Result<Replay> {
        self.begin(asked.steps, flow)?;
        let plain = self.in_transaction(asked.steps);
        let mut replay = Replay::default();
        let before = state(plain, asked.steps)?;
        let (mut has_own_change, mut has_analyzed) = (false, false);
        // Behind a random number that the engine alone has drawn, nothing can be known.
        let mut is_blind = false;
        for (at, step) in asked.steps.iter().enumerate() {
            let Some(told) = asked.told.get(at) else { break };
            // What is there behind a step that failed was drawn by another one.
            let has_drawn = told.failed.is_none();
            let drawn = asked.drawn.get(at).and_then(Option::as_ref).filter(|_| has_drawn);
            is_blind |=
                has_drawn && drawn.is_none() && step.random.is_some() && decides(plain, step);
            let figures = || (plain.changes(), plain.last_insert_rowid());
            let figures_before = figures();
            let expected = (!replay.is_over).then(|| self.ask(plain, step, drawn));
            replay.is_over |= plain.is_autocommit();
            if !replay.is_over && may_define(step) {
                self.reload_inside(plain, flow);
                // Full-text search writes its tables at the savepoints of ours that a change of the
                // schema is put into, and is counted.
                has_own_change &= figures() == figures_before;
            }
            replay.has_figures |= matches!(step.judged, Judged::Figures | Judged::Connection);
            replay.has_random |= step.judged == Judged::Success || step.random.is_some();
            let is_same = match &expected {
                _ if is_blind => true,
                _ if flow == Flow::Interactive && is_report(step, told) => true,
                _ if flow == Flow::Read && step.sql == "REINDEX" => true,
                None => is_after_the_end(step, told, flow),
                Some(expected) => agrees(step, told, expected, has_own_change, flow),
            };
            let expected = expected.unwrap_or_else(after_the_end);
            has_own_change |= expected.failed.is_none() && changes_rows(&step.sql);
            replay.has_failed_change |= expected.failed.is_some();
            // SQLite counts the changes of an explained change: none.
            has_own_change &= !step.sql.starts_with("EXPLAIN");
            has_analyzed |= expected.failed.is_none() && analyzes(step);
            if !is_same && replay.wrong.is_none() {
                replay.wrong = Some(Wrong { at, told: told.clone(), expected });
            }
            if flow != Flow::Interactive && told.failed.is_some() && !step.is_handled {
                replay.gave_up = true;
                break;
            }
        }
        replay.has_changed = state(plain, asked.steps)? != before || has_analyzed;
        Ok(replay)
    }

    fn ask(&self, plain: &Connection, step: &Step, drawn: Option<&Value>) -> Said {
        if step.judged == Judged::Refused {
            let text = "Invalid: refused by the engine".into();
            return Said { text, failed: Some(ErrorKind::Invalid) };
        }
        self.effort.begin();
        let by_value = drawn.and_then(|value| with_value(plain, step, value));
        let by_value = if self.flaw == Flaw::OtherRowid { None } else { by_value };
        let asked = by_value.as_ref().unwrap_or(step);
        Said::of(&step.sql, &self.ask_numbered(plain, asked))
    }

    /// As [`ask_plain`], with the numbers that the rows were given.
    fn ask_numbered(&self, plain: &Connection, step: &Step) -> Result<String, Error> {
        if step.given.is_none() || self.flaw == Flaw::OwnIds {
            return ask_plain(plain, step);
        }
        self.numbers.with(plain, &step.sql, step.given, |sql| {
            ask_plain(plain, &Step { sql: sql.into(), ..step.clone() })
        })
    }

    /// Commits what was replayed; rolls it back when SQLite refuses. What has changed nothing makes
    /// no new state.
    pub(super) fn commit(
        &mut self,
        replay: &Replay,
        steps: Vec<Step>,
        drawn: &[Option<Value>],
    ) -> Result<(), Error> {
        let is_skipped = self.flaw == Flaw::SkippedChange
            && self.log.len() > 8
            && steps.iter().any(|step| step.sql.starts_with("INSERT"));
        if is_skipped {
            self.flaw = Flaw::None;
            self.roll_back(&steps);
            self.log.push(steps);
            return Ok(());
        }
        if let Err(error) = self.in_transaction(&steps).execute_batch("COMMIT") {
            self.roll_back(&steps);
            return Err(error.into());
        }
        if steps.iter().any(|step| step.how == How::Batch || changes_schema(&step.sql)) {
            self.reload();
        }
        let settle = |(at, step): (usize, Step)| {
            let value = drawn.get(at).and_then(Option::as_ref);
            value.and_then(|value| appended(&step, value)).unwrap_or(step)
        };
        if replay.has_changed || replay.has_failed_change {
            self.log.push(steps.into_iter().enumerate().map(settle).collect());
        }
        Ok(())
    }

    /// Undoes what was replayed.
    pub(super) fn roll_back(&self, steps: &[Step]) {
        for plain in self.other.iter().chain([&self.plain]) {
            if !plain.is_autocommit() {
                plain.execute_batch("ROLLBACK").expect("an open transaction can be rolled back");
            }
        }
        self.plain.execute_batch("PRAGMA query_only = OFF").expect("the pragma takes no lock");
        if steps.iter().any(|step| analyzes(step) || may_define(step)) {
            self.reload();
        }
    }

    /// Ends the history without a verdict.
    pub(super) fn give_up(&self) {
        self.effort.is_too_much.store(true, Ordering::Relaxed);
    }

    /// Has SQLite read schema and statistics again. The connection that has changed them may know
    /// them otherwise than one that reads them: after an `ALTER`, and after an `ANALYZE` that was
    /// undone. An undone change of the schema makes it forget everything.
    fn reload(&self) {
        if self.flaw != Flaw::StaleStatistics && self.renewed_on.is_none() {
            let reload = "BEGIN; CREATE TABLE reload_schema(x); ROLLBACK";
            self.plain.execute_batch(reload).expect("a table can be created and undone");
        }
    }

    /// As [`Oracle::reload`], in the middle of a transaction.
    fn reload_inside(&self, plain: &Connection, flow: Flow) {
        if self.flaw != Flaw::StaleStatistics {
            let reload = match flow {
                Flow::Read => "PRAGMA writable_schema = RESET",
                _ => {
                    "SAVEPOINT reload_schema; CREATE TABLE reload_schema(x);
                     ROLLBACK TO reload_schema; RELEASE reload_schema"
                }
            };
            plain.execute_batch(reload).expect("SQLite forgets the schema");
        }
    }

    /// The first claim whose answers hold in none of the states that its transaction may have seen;
    /// none when a statement was too much for the judge.
    pub(super) fn explain(&self, mut claims: Vec<Claim>, path: &Path) -> Result<Option<Claim>> {
        let Some(end) = claims.iter().map(|claim| claim.last).max() else { return Ok(None) };
        let mut past = Oracle::open(Flaw::None, false, path)?;
        for version in 0..=end {
            for at in (0..claims.len()).rev() {
                let Claim { steps, told, first, last, is_committed, .. } = &claims[at];
                if !(*first..=*last).contains(&version) {
                    continue;
                }
                let asked = Asked { steps, told, drawn: &[] };
                let replay = past.replay(asked, Flow::Interactive)?;
                past.roll_back(steps);
                if past.has_given_up() {
                    return Ok(None);
                }
                match replay.wrong {
                    None if !(*is_committed && replay.has_changed) => {
                        claims.swap_remove(at);
                        continue;
                    }
                    // The state that explains most.
                    Some(wrong) if wrong.at > claims[at].wrong.at => claims[at].wrong = wrong,
                    _ => {}
                }
                if version == claims[at].last {
                    return Ok(Some(claims.swap_remove(at)));
                }
            }
            if let Some(steps) = self.log.get(version) {
                past.repeat(steps)?;
                if past.has_given_up() {
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// Does again what was committed, comparing nothing; it may give up.
    fn repeat(&mut self, steps: &[Step]) -> Result<()> {
        self.begin(steps, Flow::Interactive)?;
        for step in steps.iter().filter(|step| step.judged != Judged::Refused) {
            self.effort.begin();
            let has_failed = self.ask_numbered(&self.plain, step).is_err();
            if self.has_given_up() {
                self.roll_back(steps);
                return Ok(());
            }
            if has_failed && !step.is_handled {
                break;
            }
        }
        Ok(self.commit(&Replay::default(), steps.to_vec(), &[])?)
    }
}

/// A connection to the file, or to a database in memory.
fn connect(path: Option<&Path>, effort: &Arc<Effort>) -> Result<Connection> {
    let mut plain = match path {
        Some(path) => Connection::open(path)?,
        None => Connection::open_in_memory()?,
    };
    plain.set_prepared_statement_cache_capacity(STATEMENTS);
    plain.execute_batch(
        "PRAGMA foreign_keys = ON; PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY;
         CREATE TEMP TABLE inserted(id INTEGER PRIMARY KEY);",
    )?;
    effort.watch(&mut plain)?;
    let own = Arc::clone(effort);
    plain.update_hook(Some(move |_, _: &str, table: &str, rowid| {
        if rowid == i64::MAX && !leaves_to_random(table) {
            own.is_too_much.store(true, Ordering::Relaxed);
        }
    }))?;
    Ok(plain)
}

/// What differs once one of the steps has changed something.
fn state(plain: &Connection, steps: &[Step]) -> Result<[i64; 5], Error> {
    let mut state = [plain.total_changes().cast_signed(), 0, 0, 0, 0];
    if steps.iter().any(|step| step.sql.contains("INSERT")) {
        // An `INSERT` that is ignored takes a rowid of an `AUTOINCREMENT` table all the same. There
        // may be no such table.
        let sequences = "SELECT group_concat(name || ' ' || seq) FROM sqlite_sequence";
        let query = plain.prepare_cached(sequences);
        let noted = query.and_then(|mut query| query.query_row([], |row| row.get(0)));
        let noted: Option<String> = noted.unwrap_or_default();
        state[4] = BuildHasherDefault::<DefaultHasher>::default().hash_one(noted).cast_signed();
    }
    let is_counted = |step: &Step| {
        step.how != How::Batch && !changes_schema(&step.sql) && !step.sql.starts_with("PRAGMA")
    };
    if !steps.iter().all(is_counted) {
        for (at, name) in ["schema_version", "user_version", "application_id"].iter().enumerate() {
            state[at + 1] = plain.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))?;
        }
    }
    Ok(state)
}

/// Whether a step may change the schema, or have tried to.
fn may_define(step: &Step) -> bool {
    let defines = |sql: &str| changes_schema(sql) || sql.starts_with("EXPLAIN CREATE");
    step.sql.split(";\n").any(defines)
}

/// Statistics are written without being counted as changes.
fn analyzes(step: &Step) -> bool {
    step.sql.contains("ANALYZE")
}

fn is_analyze(steps: &[Step]) -> bool {
    steps.iter().all(|step| step.sql.starts_with("ANALYZE"))
}

/// Whether a random number decides what a step does.
fn decides(plain: &Connection, step: &Step) -> bool {
    match step.random.as_ref().and_then(|random| random.only_when.as_ref()) {
        None => step.random.is_some(),
        Some(query) => plain.query_row(query, [], |row| row.get(0)).unwrap_or(false),
    }
}

/// The step that takes the value which the engine drew, if it drew one.
fn with_value(plain: &Connection, step: &Step, value: &Value) -> Option<Step> {
    if decides(plain, step) { appended(step, value) } else { None }
}

fn appended(step: &Step, value: &Value) -> Option<Step> {
    let random = step.random.as_ref()?;
    let Parameters::Positional(mut values) = step.parameters.clone() else { return None };
    values.push(value.clone());
    let parameters = Parameters::Positional(values);
    Some(Step { sql: random.with_value.clone(), parameters, random: None, ..step.clone() })
}

/// Whether an answer tells of the connection that gave it, which a commit does not compare.
fn is_report(step: &Step, told: &Said) -> bool {
    step.sql.starts_with("EXPLAIN") && told.failed.is_none()
}

fn agrees(step: &Step, told: &Said, expected: &Said, has_own_change: bool, flow: Flow) -> bool {
    match step.judged {
        // The engine gives savepoints names of its own, and tells them.
        _ if matches!(step.how, How::RollbackTo | How::Release) => told.failed == expected.failed,
        Judged::Whole => told == expected,
        Judged::Success | Judged::Connection | Judged::Refused => told.failed == expected.failed,
        Judged::Figures => {
            let is_foreign = expected.text.contains(&NO_INSERT.to_string());
            if is_foreign && step.how == How::LastInsertRowid && flow == Flow::Interactive {
                return told.text == "rowid 0";
            }
            told.failed == expected.failed
                && (is_foreign || !has_own_change || told.text == expected.text)
        }
    }
}

/// Nothing runs in a transaction that a statement has rolled back.
fn is_after_the_end(step: &Step, told: &Said, flow: Flow) -> bool {
    match flow {
        // The one method of a closure that asks nobody and cannot fail.
        Flow::Closure if step.how == How::LastInsertRowid => true,
        Flow::Closure | Flow::Read => told.failed == Some(ErrorKind::Aborted),
        Flow::Interactive => told.failed.is_some() && told.failed != Some(ErrorKind::Conflict),
    }
}

fn after_the_end() -> Said {
    let text = "an error, as the transaction was rolled back".into();
    Said { text, failed: Some(ErrorKind::Aborted) }
}
