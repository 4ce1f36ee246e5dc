//! Owns what an interactive transaction did so far, step by step, and what the application saw of
//! each: enough to do it again and to tell whether it would see the same.
//!
//! # Algorithm
//! A [`Step`] is a statement with its parameters, the time and the random values it found, the
//! numbers that its rows were given, and a digest of what it answered: rows, number of changed
//! rows, error. [`Steps::replay`] runs the steps on another connection, in the same surroundings,
//! and compares the digests. When all are equal, the transaction has just executed there with the
//! very answers upon which the application acted. The queries before the first step of another
//! kind can be left out when the pages they read are known to be unchanged
//! ([`Extent::AfterLeadingReads`]). On what an answer can depend, and why this is all that is ever
//! left out: `docs/decisions/what-answers-depend-on.md`.
//!
//! # Invariants
//! - The digest covers everything the application can know from the step: of a query that was read
//!   in part, the rows that were read, and the names of their columns; of one that was described,
//!   the description.
//! - Nothing is in the digest that another connection would answer otherwise on the same data: of
//!   an error, not where in the text it was found, nor which index is missing; of a report on the
//!   connection, nothing.
//! - An answer that says nothing about the data (a time limit, an I/O error) is never a step.
//! - A step behind one that may have changed something is never left out.
//!
//! # Source of the digest
//! SipHash-2-4 with 128 bits and a key drawn once per process: two different answers have the same
//! digest with a probability of 2^-128, also for chosen data.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use monolite_sqlite::{GivenRowids, Numbering, Surroundings, Traits, UserSavepoint, rusqlite};
use rusqlite::types::ValueRef;
use rusqlite::{Row, Statement};
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::call::write_queue::read_only;
use crate::error::{Error, ErrorKind, Result, excerpt};
use crate::options::Validation;
use crate::parameters::Parameters;
use crate::tx::{Column, Description, Ran, Tx};

/// Bytes of a step beside its text and its parameters.
const STEP_BYTES: usize = size_of::<Step>();

/// What a step does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Runs a statement and counts the rows it changed.
    Change,
    /// Runs a statement and reads its rows.
    Query,
    /// Runs a statement, reads its rows, and notes all that it did.
    Run,
    /// Notes what a statement would be.
    Describe,
    /// Runs several statements.
    Batch,
    /// Opens, undoes or closes a savepoint that is inside of so many others.
    Savepoint(UserSavepoint, usize),
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
    /// Why a statement that would change something is refused, if it is.
    pub(crate) read_only: Option<Arc<str>>,
}

impl Request {
    /// A number for the text and the parameters, as a rule one that no others have.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = keyed();
        hasher.write(self.text.as_bytes());
        self.parameters.hash(&mut hasher);
        hasher.finish()
    }
}

/// A number for a text, as a rule one that no other has.
pub(crate) fn fingerprint(text: &str) -> u64 {
    let mut hasher = keyed();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// With a key of this process.
fn keyed() -> SipHasher24 {
    static KEY: OnceLock<(u64, u64)> = OnceLock::new();
    let (a, b) = *KEY.get_or_init(|| {
        let random = RandomState::new();
        (random.hash_one(0), random.hash_one(1))
    });
    SipHasher24::new_with_keys(a, b)
}

/// What a step answers beside its rows.
pub(crate) enum Answer {
    /// The number of changed rows, or the rowid.
    Number(i64),
    Ran(Ran<()>),
    Described(Description),
}

impl Answer {
    /// Of a step that is neither run nor described.
    pub(crate) fn number(self) -> i64 {
        let Answer::Number(number) = self else { unreachable!("it answers with a number") };
        number
    }
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
    /// All but the leading reads, which are known to answer the same.
    AfterLeadingReads,
}

/// What a step can have done, and what its answer tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    /// A query that was answered: nothing was changed, and the answer is a function of the pages
    /// that were read, the schema, the statistics, and what is given again.
    Query,
    /// It tells about the connection rather than the data, and nothing was changed. Not compared,
    /// and not done again, unless it `counts` for those behind it: an explained change sets
    /// `changes()` to 0, and an explained `PRAGMA defer_foreign_keys` has deferred them, as SQLite
    /// obeys that when it prepares it.
    Report { counts: bool },
    /// Nothing was changed, but more is not known of it: a statement that failed, a question about
    /// the statements before, or one upon which the answers of those behind it hang
    /// (`PRAGMA defer_foreign_keys`).
    Harmless,
    /// It may have changed something.
    Change,
}

/// Something that was done, and what was seen.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    request: Request,
    surroundings: Surroundings,
    /// Numbers that its rows were given.
    rowids: Option<GivenRowids>,
    seen: Seen,
    nature: Nature,
}

impl Step {
    /// Whether it can be left out when it is among the leading ones and no page that it read has
    /// changed.
    pub(crate) fn is_query(&self) -> bool {
        self.nature == Nature::Query
    }

    /// Numbers that its rows were given.
    pub(super) fn rowids(&self) -> Option<GivenRowids> {
        self.rowids
    }

    /// As [`Request::fingerprint`].
    pub(crate) fn fingerprint(&self) -> u64 {
        self.request.fingerprint()
    }

    /// The digest of what it answered.
    pub(crate) fn digest(&self) -> u128 {
        self.seen.digest
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
    nature: Nature,
    /// How rows are numbered for which SQLite may choose, and which numbers they have.
    numbering: Numbering,
    rowids: Option<GivenRowids>,
}

impl Observer {
    fn new(action: &Action, numbering: Numbering) -> Observer {
        let hasher = keyed();
        let nature = match action {
            // Until it is prepared; one that cannot be has changed nothing.
            Action::Change
            | Action::Query
            | Action::Run
            | Action::Describe
            | Action::LastInsertRowid => Nature::Harmless,
            Action::Batch | Action::Savepoint(..) => Nature::Change,
        };
        let (rows, bytes, ended, rowids) = (0, 0, false, None);
        Observer { hasher, rows, ended, bytes, nature, numbering, rowids }
    }

    /// Notes what the statement is that is about to run.
    fn prepared(&mut self, statement: &Statement<'_>, traits: Traits) {
        // An explained statement does not run, and counts as one that writes if the other does.
        let is_report = traits.has(Traits::REPORT) || statement.is_explain() != 0;
        self.nature = match statement.readonly() {
            reads if is_report => Nature::Report { counts: !reads || traits.has(Traits::DEFERS) },
            _ if traits.has(Traits::DEFERS) => Nature::Harmless,
            true if !traits.has(Traits::MAY_CHANGE) => Nature::Query,
            _ => Nature::Change,
        };
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
        let statement: &Statement<'_> = row.as_ref();
        // A change of the schema shows only once the statement has been started.
        let columns = statement.column_count();
        if self.rows == 0 {
            for i in 0..columns {
                self.tagged(b'n', without_number(statement.column_name(i)?).as_bytes());
            }
        }
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

    fn answer(&mut self, answer: &Answer) {
        match answer {
            Answer::Number(number) => self.number(b'C', number.cast_unsigned()),
            Answer::Ran(Ran { rows: (), columns, changes, last_insert_rowid }) => {
                self.number(b'C', *changes);
                self.optional(b'I', last_insert_rowid.map(i64::to_le_bytes));
                self.columns(columns);
            }
            Answer::Described(description) => {
                let Description { parameters, columns, is_explain, is_read_only } = description;
                self.number(b'P', parameters.len() as u64);
                parameters.iter().for_each(|name| self.optional(b'p', name.as_deref()));
                self.columns(columns);
                self.tagged(b'f', &[u8::from(*is_explain), u8::from(*is_read_only)]);
            }
        }
    }

    fn columns(&mut self, columns: &[Column]) {
        for Column { name, declared_type } in columns {
            self.tagged(b'n', without_number(name).as_bytes());
            self.optional(b'd', declared_type.as_deref());
        }
    }

    fn optional(&mut self, tag: u8, bytes: Option<impl AsRef<[u8]>>) {
        match bytes {
            Some(bytes) => self.tagged(tag, bytes.as_ref()),
            None => self.hasher.write_u8(b'-'),
        }
    }

    fn error(&mut self, error: &Error) {
        // A replay of these rows has to go on until the error, not only to the last row.
        self.ended = true;
        if self.nature == Nature::Query {
            self.nature = Nature::Harmless;
        }
        self.number(b'E', error.kind() as u64);
        self.number(b'e', u64::from(error.extended_code().unwrap_or(0).cast_unsigned()));
        let said = error.said();
        self.tagged(b'm', if hangs_on_memory(said) { b"" } else { said.as_bytes() });
    }

    fn seen(&self) -> Seen {
        let digest = self.hasher.finish128().as_u128();
        Seen { rows: self.rows, ended: self.ended, digest }
    }
}

/// The name of a column without the number by which SQLite has made it unique in a subquery: after
/// the third it is drawn at random.
fn without_number(name: &str) -> &str {
    match name.trim_end_matches(|end: char| end.is_ascii_digit()).strip_suffix(':') {
        Some(rest) if !name.ends_with(':') => rest,
        _ => name,
    }
}

/// Reads the rows of a query for the application, as long as it wants more.
pub(crate) trait RowReader {
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

impl<F: FnMut(&Row<'_>) -> Result<More>> RowReader for F {
    fn row(&mut self, row: &Row<'_>) -> Result<More> {
        self(row)
    }
}

/// How a step ended that was done for the first time.
pub(crate) struct Done {
    pub(crate) answer: Result<Answer>,
    /// What to remember; `None` when the transaction cannot go on after this error.
    pub(crate) step: Option<Step>,
}

/// Does `request` for the first time and shows its rows to `reader`.
pub(crate) fn perform(
    tx: &Tx<'_>,
    request: Request,
    most_bytes: usize,
    reader: &mut dyn RowReader,
) -> Done {
    let surroundings = Surroundings::now();
    let mut observer = Observer::new(&request.action, Numbering::New);
    let show = &mut |observer: &mut Observer, row: &Row<'_>| {
        if observer.bytes > most_bytes {
            return Err(too_much(most_bytes));
        }
        // The application's own work, and other databases', is none of the statement's.
        Surroundings::outside(|| reader.row(row))
    };
    let (answer, is_answer) = surroundings.during(|| run(tx, &request, &mut observer, show));
    let (seen, nature, rowids) = (observer.seen(), observer.nature, observer.rowids);
    let step = is_answer.then_some(Step { request, surroundings, rowids, seen, nature });
    Done { answer, step }
}

type Show<'s> = &'s mut dyn FnMut(&mut Observer, &Row<'_>) -> Result<More>;

/// Runs a request; the second value tells whether the outcome is an answer about the data.
fn run(
    tx: &Tx<'_>,
    request: &Request,
    observer: &mut Observer,
    show: Show<'_>,
) -> (Result<Answer>, bool) {
    let text = &*request.text;
    let number = |()| Answer::Number(0);
    let result = match request.action {
        Action::Change | Action::Query | Action::Run => {
            return statement(tx, request, observer, show);
        }
        Action::Describe => tx.describe_with_traits(text).map(|(description, traits)| {
            // Being prepared is all that some pragmas need to have their effect.
            if !traits.has(Traits::DEFERS) {
                observer.nature = Nature::Query;
            }
            Answer::Described(description)
        }),
        Action::Batch => tx.execute_batch(text).map(number),
        Action::Savepoint(what, depth) => tx.user_savepoint(what, depth).map(number),
        Action::LastInsertRowid => Ok(Answer::Number(tx.last_insert_rowid())),
    };
    note(observer, &result);
    let is_answer = result.as_ref().err().is_none_or(|error| is_answer(tx, error));
    (result, is_answer)
}

/// Adds what a step tells beside its rows.
fn note(observer: &mut Observer, result: &Result<Answer>) {
    match result {
        Ok(answer) => observer.answer(answer),
        Err(error) => observer.error(error),
    }
}

fn statement(
    tx: &Tx<'_>,
    request: &Request,
    observer: &mut Observer,
    show: Show<'_>,
) -> (Result<Answer>, bool) {
    let Request { action, text: sql, parameters, read_only: why } = request;
    let mut is_refused = false;
    // An error of the application's reader comes after everything that was seen.
    let mut refused = None;
    let before = tx.total_changes();
    let numbering = observer.numbering;
    let run = |statement: &mut Statement<'_>, traits: Traits| -> Result<Answer> {
        observer.prepared(statement, traits);
        if let Some(why) = why.as_ref().filter(|_| observer.nature == Nature::Change) {
            is_refused = true;
            observer.nature = Nature::Harmless;
            return Err(read_only(why).in_statement(sql));
        }
        if traits.has(Traits::VOLATILE) {
            return Err(volatile().in_statement(sql));
        }
        parameters.bind(statement).map_err(|error| tx.explain(sql, error))?;
        match action {
            Action::Change => {
                let run = || statement.raw_execute().map_err(|error| tx.explain(sql, error));
                let changed = tx.count_changes(traits, run)?;
                Ok(Answer::Number(i64::try_from(changed).unwrap_or(i64::MAX)))
            }
            Action::Run => {
                let ran = tx.note_run(sql, statement, traits, |statement| {
                    refused = read(tx, sql, statement, observer, show)?;
                    Ok(())
                });
                Ok(Answer::Ran(ran?))
            }
            _ => {
                refused = read(tx, sql, statement, observer, show)?;
                Ok(Answer::Number(0))
            }
        }
    };
    let ran = tx.with_numbered_statement(sql, numbering, run);
    observer.rowids = tx.given_rowids();
    note(observer, &ran);
    // What is explained or refused has not run, though SQLite may have prepared a change of the
    // schema.
    let has_run = !is_refused && !matches!(observer.nature, Nature::Report { .. });
    let has_changed = has_run && tx.has_changed_since(before);
    if has_changed {
        // Whatever SQLite has said of the statement.
        observer.nature = Nature::Change;
    }
    let is_answer = ran.as_ref().err().is_none_or(|error| is_answer(tx, error));
    let is_of_sqlite = ran.as_ref().is_err_and(|error| error.extended_code().is_some());
    let result = match refused {
        Some(error) if ran.is_ok() => Err(error),
        _ => ran,
    };
    match result {
        // It has changed all that it changes, and its caller would take it for not done.
        Err(error) if has_changed && !is_of_sqlite => (Err(unseen(error)), false),
        result => (result, is_answer),
    }
}

/// Reads rows until there are none, or `show` has enough or fails; gives its error.
fn read(
    tx: &Tx<'_>,
    sql: &str,
    statement: &mut Statement<'_>,
    observer: &mut Observer,
    show: Show<'_>,
) -> Result<Option<Error>> {
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().map_err(|error| tx.explain(sql, error))? {
        observer.row(row)?;
        match show(observer, row) {
            Ok(More::Wanted) => {}
            Ok(More::Enough) => return Ok(None),
            Err(error) => return Ok(Some(error.in_statement(sql))),
        }
    }
    observer.end();
    Ok(None)
}

/// Whether it is one of two errors of which either can answer a change of a view without triggers
/// whose query names an index that is gone: SQLite reads that query once for each connection, and
/// dropping an index does not make it forget (`sqlite3ViewGetColumnNames`, called before
/// `sqlite3IsReadOnly`). Both have the same code, and refuse the same statement.
fn hangs_on_memory(said: &str) -> bool {
    said.starts_with("no such index: ")
        || said.starts_with("cannot modify ") && said.ends_with(" because it is a view")
}

/// Whether an error tells something about the data and the statement, so that it would come again
/// while neither changes.
fn is_answer(tx: &Tx<'_>, error: &Error) -> bool {
    tx.is_open() && error.kind().leaves_transaction()
}

/// What the steps of a transaction are, taken together: on it hangs what need not be done again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shape {
    /// There is none.
    #[default]
    Empty,
    /// Queries that were answered.
    Queries,
    /// Anything else.
    Mixed,
}

impl Shape {
    /// With `step` behind it.
    fn with(self, step: &Step) -> Shape {
        match self {
            Shape::Empty | Shape::Queries if step.is_query() => Shape::Queries,
            _ => Shape::Mixed,
        }
    }
}

/// The steps of a transaction in order.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    steps: Vec<Step>,
    bytes: usize,
    shape: Shape,
    /// Bytes of all transactions, of which `bytes` are a part.
    total: Option<Arc<AtomicUsize>>,
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(total) = &self.total {
            let before = total.fetch_sub(self.bytes, Ordering::Relaxed);
            assert!(before >= self.bytes, "bytes that are freed were counted");
        }
    }
}

impl Steps {
    /// None yet; the bytes of those to come are counted in `total`.
    pub(crate) fn counted_in(total: &Arc<AtomicUsize>) -> Steps {
        let (steps, bytes, shape) = (Vec::new(), 0, Shape::Empty);
        Steps { steps, bytes, shape, total: Some(Arc::clone(total)) }
    }

    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter()
    }

    pub(crate) fn push(&mut self, step: Step) {
        self.bytes += step.bytes();
        if let Some(total) = &self.total {
            total.fetch_add(step.bytes(), Ordering::Relaxed);
        }
        self.shape = self.shape.with(&step);
        self.steps.push(step);
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// What the steps will be when `step` follows them.
    pub(crate) fn shape_with(&self, step: &Step) -> Shape {
        self.shape.with(step)
    }

    /// Whether there are queries that can be left out when no page that they read has changed:
    /// those before the first step of another kind.
    pub(crate) fn have_leading_reads(&self) -> bool {
        self.steps.first().is_some_and(Step::is_query)
    }

    /// Whether one may have changed something.
    pub(crate) fn may_have_changed(&self) -> bool {
        self.steps.iter().any(|step| step.nature == Nature::Change)
    }

    fn have_savepoints(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.request.action, Action::Savepoint(..)))
    }

    /// Does again what `extent` says, and compares.
    ///
    /// # Errors
    /// `Conflict`, naming the statement, when one gave another answer than the first time; errors
    /// that are no answers, as they came.
    pub(crate) fn replay(&self, tx: &Tx<'_>, extent: Extent, validation: Validation) -> Result<()> {
        self.replay_and_note(tx, extent, validation, &mut || {})
    }

    /// As [`Steps::replay`], and closes the savepoints that the steps leave open: in the writer the
    /// next member must not find one of this transaction.
    ///
    /// # Errors
    /// As [`Steps::replay`].
    pub(crate) fn replay_in_writer(
        &self,
        tx: &Tx<'_>,
        extent: Extent,
        validation: Validation,
    ) -> Result<()> {
        let replay = || self.replay(tx, extent, validation);
        if self.have_savepoints() { tx.closing_user_savepoints(replay) } else { replay() }
    }

    /// As [`Steps::replay`]; calls `after_leading_reads` when they are done and others follow.
    pub(crate) fn replay_and_note(
        &self,
        tx: &Tx<'_>,
        extent: Extent,
        validation: Validation,
        after_leading_reads: &mut dyn FnMut(),
    ) -> Result<()> {
        let leading_reads = self.steps.iter().take_while(|step| step.is_query()).count();
        for (i, step) in self.steps.iter().enumerate() {
            if i == leading_reads {
                after_leading_reads();
            }
            let is_left_out = match step.nature {
                Nature::Report { counts } => !counts,
                _ => extent == Extent::AfterLeadingReads && i < leading_reads,
            };
            if is_left_out {
                continue;
            }
            let is_report = matches!(step.nature, Nature::Report { .. });
            let is_same = match replay_step(tx, step) {
                Ok(seen) => is_report || seen == step.seen,
                // It has ended the transaction, which it had not.
                Err(error) if error.kind().leaves_transaction() => false,
                Err(error) => return Err(error),
            };
            if !is_same && validation == Validation::On {
                return Err(conflict(i + 1, &step.request.text));
            }
        }
        Ok(())
    }
}

fn replay_step(tx: &Tx<'_>, step: &Step) -> Result<Seen> {
    let mut observer = Observer::new(&step.request.action, Numbering::Again(step.rowids));
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
    let shown = excerpt(sql, 0);
    let message = format!(
        "another transaction has changed what statement {number} of this one saw ({shown}); \
         nothing was changed, run the transaction again"
    );
    Error::new(ErrorKind::Conflict, message).at_statement(number)
}

fn volatile() -> Error {
    let message = "the statement calls a function that was added as Function::VOLATILE, and an \
                   interactive transaction runs its statements again at commit; call it in the \
                   program and give the value as a parameter, or use Database::write";
    Error::new(ErrorKind::Invalid, message)
}

/// Of a change that was done, and whose caller could not see it to its end.
fn unseen(error: Error) -> Error {
    error.context("the transaction is rolled back: rows of a change were left unread")
}

fn too_much(most_bytes: usize) -> Error {
    let message = format!(
        "the result is larger than {most_bytes} bytes (InteractiveOptions::max_bytes); read it in \
         smaller pieces, with Database::read, or raise the option"
    );
    Error::new(ErrorKind::Invalid, message)
}

#[cfg(test)]
pub(super) mod tests;
