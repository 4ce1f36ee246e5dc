//! Owns what an interactive transaction did so far, step by step, and what the application saw of
//! each: enough to do it again and to tell whether it would see the same.
//!
//! # Algorithm
//! A [`Step`] is a statement with its parameters, the time and the chance it found, and a digest of
//! what it answered: rows, number of changed rows, error. [`Steps::replay`] runs the steps on
//! another connection, in the same surroundings, and compares the digests. When all are equal, the
//! transaction has just executed there with the very answers upon which the application acted.
//! Steps that only read can be left out when the pages they read are known to be unchanged
//! ([`Extent::Writes`]): their answers are a function of those pages.
//!
//! # Invariants
//! - The digest covers everything the application can know from the step: of a query that was read
//!   in part, the rows that were read.
//! - An answer that says nothing about the data (a time limit, an I/O error) is never a step.
//!
//! # Source of the digest
//! SipHash-2-4 with 128 bits and a key drawn once per process: two different answers have the same
//! digest with a probability of 2^-128, also when somebody chooses the data.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, OnceLock};

use monolite_sqlite::{Surroundings, rusqlite};
use rusqlite::types::ValueRef;
use rusqlite::{Row, Statement};
use siphasher::sip128::{Hasher128, SipHasher24};

use super::parameters::Parameters;
use crate::error::{Error, ErrorKind, Result};
use crate::tx::Tx;

/// Bytes of a step beside its text and its parameters.
const STEP_BYTES: usize = size_of::<Step>();

/// Longest piece of a statement in a message.
const SHOWN_SQL: usize = 200;

/// What a step does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Runs a statement and counts the rows it changed.
    Change,
    /// Runs a statement and reads its rows.
    Query,
    /// Runs several statements.
    Batch,
    /// Opens a savepoint; the text is its name.
    Savepoint,
    /// Undoes everything since the savepoint.
    RollbackTo,
    /// Closes the savepoint.
    Release,
    /// Reads the rowid of the last insert.
    LastInsertRowid,
}

/// What is to be done, before it was.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) action: Action,
    /// The statement, or the name of a savepoint.
    pub(crate) text: Arc<str>,
    pub(crate) parameters: Parameters,
}

/// What the application saw of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// Rows that were read.
    rows: u64,
    /// Whether it was seen, too, that no row comes after them, be it for an error.
    ended: bool,
    digest: u128,
}

/// Which steps are done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    All,
    /// Those that only read are known to answer the same.
    Writes,
}

/// Something that was done, and what was seen.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    request: Request,
    surroundings: Surroundings,
    seen: Seen,
    only_reads: bool,
}

impl Step {
    /// Whether the pages that were read may not say everything about its answer: of several
    /// statements in one text nobody looks at each.
    pub(crate) fn is_opaque(&self) -> bool {
        matches!(self.request.action, Action::Batch)
    }

    /// Whether it is one statement that changes rows and shows none.
    pub(crate) fn is_change(&self) -> bool {
        matches!(self.request.action, Action::Change) && !self.only_reads
    }

    fn bytes(&self) -> usize {
        STEP_BYTES + self.request.text.len() + self.request.parameters.bytes()
    }
}

/// Gathers what is seen.
struct Observer {
    hasher: SipHasher24,
    rows: u64,
    ended: bool,
    bytes: usize,
    only_reads: bool,
}

impl Observer {
    fn new() -> Observer {
        static KEY: OnceLock<(u64, u64)> = OnceLock::new();
        let (a, b) = *KEY.get_or_init(|| {
            let random = RandomState::new();
            (random.hash_one(0), random.hash_one(1))
        });
        let hasher = SipHasher24::new_with_keys(a, b);
        Observer { hasher, rows: 0, ended: false, bytes: 0, only_reads: false }
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.hasher.write_u8(tag);
        self.hasher.write_usize(bytes.len());
        self.hasher.write(bytes);
        self.bytes += bytes.len();
    }

    fn number(&mut self, tag: u8, number: u64) {
        self.tagged(tag, &number.to_le_bytes());
    }

    fn row(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        // A change of the schema shows only once the statement has been started.
        let columns = AsRef::<Statement<'_>>::as_ref(row).column_count();
        self.number(b'R', columns as u64);
        for i in 0..columns {
            match row.get_ref(i)? {
                ValueRef::Null => self.tagged(b'0', &[]),
                ValueRef::Integer(number) => self.number(b'i', number.cast_unsigned()),
                ValueRef::Real(number) => self.number(b'r', number.to_bits()),
                ValueRef::Text(text) => self.tagged(b't', text),
                ValueRef::Blob(blob) => self.tagged(b'b', blob),
            }
        }
        self.rows += 1;
        Ok(())
    }

    fn end(&mut self) {
        self.hasher.write_u8(b'.');
        self.ended = true;
    }

    fn error(&mut self, error: &Error) {
        // Whoever reads these rows again has to go on until the error, not only to the last row.
        self.ended = true;
        self.number(b'E', error.kind() as u64);
        self.number(b'e', u64::from(error.extended_code().unwrap_or(0).cast_unsigned()));
        self.tagged(b'm', error.to_string().as_bytes());
    }

    fn seen(&self) -> Seen {
        let digest = self.hasher.finish128().as_u128();
        Seen { rows: self.rows, ended: self.ended, digest }
    }
}

/// Reads the rows of a query for the application, as long as it wants more.
pub(crate) trait Reader {
    /// # Errors
    /// The application's own, such as a column of another type than it expects; no more rows are
    /// read then.
    fn row(&mut self, row: &Row<'_>) -> Result<More>;
}

/// Whether a reader wants another row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    Wanted,
    Enough,
}

impl<F: FnMut(&Row<'_>) -> Result<More>> Reader for F {
    fn row(&mut self, row: &Row<'_>) -> Result<More> {
        self(row)
    }
}

/// How a step ended that was done for the first time.
pub(crate) struct Done {
    /// The number of changed rows, or the rowid.
    pub(crate) number: Result<i64>,
    /// What to remember; `None` when the transaction cannot go on after this error.
    pub(crate) step: Option<Step>,
}

/// Does `request` for the first time and shows its rows to `reader`.
pub(crate) fn perform(
    tx: &Tx<'_>,
    request: Request,
    most_bytes: usize,
    reader: &mut dyn Reader,
) -> Done {
    let surroundings = Surroundings::now();
    let mut observer = Observer::new();
    let show = &mut |observer: &mut Observer, row: &Row<'_>| {
        if observer.bytes > most_bytes {
            return Err(too_much(most_bytes));
        }
        reader.row(row)
    };
    let (number, is_answer) = surroundings.during(|| run(tx, &request, &mut observer, show));
    let step = is_answer.then(|| {
        let only_reads = observer.only_reads || matches!(request.action, Action::LastInsertRowid);
        Step { request, surroundings, seen: observer.seen(), only_reads }
    });
    Done { number, step }
}

type Show<'s> = &'s mut dyn FnMut(&mut Observer, &Row<'_>) -> Result<More>;

/// Runs a request; the second value tells whether the outcome is an answer about the data.
fn run(
    tx: &Tx<'_>,
    request: &Request,
    observer: &mut Observer,
    show: Show<'_>,
) -> (Result<i64>, bool) {
    let text = &*request.text;
    let result = match request.action {
        Action::Change | Action::Query => {
            let parameters = &request.parameters;
            return statement(tx, text, parameters, &request.action, observer, show);
        }
        Action::Batch => tx.execute_batch(text).map(|()| 0),
        Action::Savepoint => tx.user_savepoint("SAVEPOINT", text).map(|()| 0),
        Action::RollbackTo => tx.user_savepoint("ROLLBACK TO", text).map(|()| 0),
        Action::Release => tx.user_savepoint("RELEASE", text).map(|()| 0),
        Action::LastInsertRowid => Ok(tx.last_insert_rowid()),
    };
    note(observer, &result);
    let is_answer = result.as_ref().err().is_none_or(|error| is_answer(tx, error));
    (result, is_answer)
}

/// Adds what a step without rows tells.
fn note(observer: &mut Observer, result: &Result<i64>) {
    match result {
        Ok(number) => observer.number(b'C', number.cast_unsigned()),
        Err(error) => observer.error(error),
    }
}

fn statement(
    tx: &Tx<'_>,
    sql: &str,
    parameters: &Parameters,
    action: &Action,
    observer: &mut Observer,
    show: Show<'_>,
) -> (Result<i64>, bool) {
    // An error of the application's reader comes after everything that was seen.
    let mut refused = None;
    let total = tx.total_changes();
    let ran = tx.with_statement(sql, |statement| -> Result<i64> {
        observer.only_reads = statement.readonly();
        parameters.bind(statement)?;
        match action {
            Action::Change => {
                let changed = statement.raw_execute()?;
                // One that changes no rows leaves the number of the statement before, on whatever
                // connection that was.
                let changed = if tx.total_changes() == total { 0 } else { changed };
                Ok(i64::try_from(changed).unwrap_or(i64::MAX))
            }
            _ => {
                refused = read(statement, observer, show)?;
                Ok(0)
            }
        }
    });
    note(observer, &ran);
    let is_answer = ran.as_ref().err().is_none_or(|error| is_answer(tx, error));
    let result = match refused {
        Some(error) if ran.is_ok() => Err(error),
        _ => ran,
    };
    (result, is_answer)
}

/// Reads rows until there are none, or `show` has enough or fails; gives its error.
fn read(
    statement: &mut Statement<'_>,
    observer: &mut Observer,
    show: Show<'_>,
) -> Result<Option<Error>> {
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        observer.row(row)?;
        match show(observer, row) {
            Ok(More::Wanted) => {}
            Ok(More::Enough) => return Ok(None),
            Err(error) => return Ok(Some(error)),
        }
    }
    observer.end();
    Ok(None)
}

/// Whether an error tells something about the data and the statement, so that it would come again
/// while neither changes.
fn is_answer(tx: &Tx<'_>, error: &Error) -> bool {
    tx.is_open() && matches!(error.kind(), ErrorKind::Constraint | ErrorKind::Invalid)
}

/// Whether answers are compared; off only to show that tests notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validation {
    On,
    Off,
}

/// The steps of a transaction in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps {
    steps: Vec<Step>,
    bytes: usize,
    reads: usize,
    changes: usize,
    has_savepoints: bool,
}

impl Steps {
    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, step: Step) {
        self.bytes += step.bytes();
        self.reads += usize::from(step.only_reads);
        self.changes += usize::from(step.is_change());
        self.has_savepoints |= matches!(step.request.action, Action::Savepoint);
        self.steps.push(step);
    }

    /// Whether a savepoint may be open after them.
    pub(crate) fn have_savepoints(&self) -> bool {
        self.has_savepoints
    }

    /// Whether there are steps that only read.
    pub(crate) fn have_reads(&self) -> bool {
        self.reads > 0
    }

    /// Whether each is one statement that changes rows and shows none.
    pub(crate) fn are_changes(&self) -> bool {
        self.changes == self.steps.len()
    }

    /// Does again what `extent` says, and compares.
    ///
    /// # Errors
    /// `Conflict`, naming the statement, when one gave another answer than the first time; errors
    /// that are no answers, as they came.
    pub(crate) fn replay(&self, tx: &Tx<'_>, extent: Extent, validation: Validation) -> Result<()> {
        self.replay_and_note(tx, extent, validation, &mut || {})
    }

    /// As [`Steps::replay`]; calls `before_write` before the first step that may write.
    pub(crate) fn replay_and_note(
        &self,
        tx: &Tx<'_>,
        extent: Extent,
        validation: Validation,
        before_write: &mut dyn FnMut(),
    ) -> Result<()> {
        let first_write = self.steps.iter().position(|step| !step.only_reads);
        for (i, step) in self.steps.iter().enumerate() {
            if first_write == Some(i) {
                before_write();
            }
            if extent == Extent::Writes && step.only_reads {
                continue;
            }
            let seen = replay_step(tx, step)?;
            if seen != step.seen && validation == Validation::On {
                return Err(conflict(i + 1, &step.request.text));
            }
        }
        Ok(())
    }
}

fn replay_step(tx: &Tx<'_>, step: &Step) -> Result<Seen> {
    let mut observer = Observer::new();
    let Seen { rows, ended, .. } = step.seen;
    let show = &mut |observer: &mut Observer, _: &Row<'_>| {
        // A row beyond those that were seen makes the digest another one.
        let is_last = if ended { observer.rows > rows } else { observer.rows >= rows };
        Ok(if is_last { More::Enough } else { More::Wanted })
    };
    let run = || run(tx, &step.request, &mut observer, show);
    match step.surroundings.during(run) {
        (Err(error), false) => Err(error),
        _ => Ok(observer.seen()),
    }
}

fn conflict(number: usize, sql: &str) -> Error {
    let shown: String = sql.chars().take(SHOWN_SQL).collect();
    let message = format!(
        "another transaction has changed what statement {number} of this one saw ({shown}); \
         nothing was changed, run the transaction again"
    );
    Error::new(ErrorKind::Conflict, message)
}

fn too_much(most_bytes: usize) -> Error {
    let message = format!(
        "the result is larger than {most_bytes} bytes (option transaction_max_bytes); read it in \
         smaller pieces, with Database::read, or raise the option"
    );
    Error::new(ErrorKind::Invalid, message)
}
