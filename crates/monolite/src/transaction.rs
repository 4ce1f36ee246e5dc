//! Owns the handle of an interactive transaction, and the handle of a statement in it.
//!
//! In reading order: [`state`] is what the transaction is, [`open`] runs and ends it, [`steps`] is
//! what it remembers and how that is done again and compared, [`connection`], [`pool`] and [`pins`]
//! where its statements run, [`savepoints`] the names of its savepoints, [`replay`] what the writer
//! does of it, [`contention`] who waits for whom where transactions collide, [`transact`] the
//! retries, [`keys`] the commits that can be repeated.

mod connection;
mod contention;
mod keys;
mod limits;
mod open;
mod pins;
mod pool;
mod refusals;
mod registry;
mod replay;
mod savepoints;
mod state;
mod steps;
mod transact;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use monolite_sqlite::{UserSavepoint, rusqlite};
use rusqlite::Row;

use crate::call::blocked::{block_on, runs_here};
use crate::call::inside::Place;
use crate::call::work::Work;
use crate::call::write::Write;
use crate::error::{Error, ErrorKind, Result};
use crate::parameters::{IntoParameters, Parameters};
use crate::tx::{Description, Ran};
use steps::{Action, Answer, More, Request, RowReader};

pub(crate) use contention::Contention;
pub use keys::Committed;
pub(crate) use keys::Key;
pub(crate) use limits::Limits;
use open::BoxedWait;
pub(crate) use open::{OpenTransaction, Transactions};
pub(crate) use pool::{Pool, PoolOpener};
pub use transact::Transact;
pub(crate) use transact::{Attempts, transact};

/// A transaction that may live as long as the application needs, across awaits and threads, without
/// holding a lock. From [`Database::transaction`](crate::Database::transaction), or in the closure
/// of [`Database::transact`](crate::Database::transact).
///
/// Its statements see a snapshot and the transaction's own changes. At [`Transaction::commit`] the
/// writer runs them all again and compares: if each statement answers as it did the first time, the
/// transaction commits, as if it had run alone at that moment; else the commit fails with
/// [`ErrorKind::Conflict`] and changes nothing.
///
/// Between statements it may move to a newer snapshot, on which everything it has seen still holds;
/// without such a snapshot, the next statement fails with `Conflict`.
///
/// `random()`, `randomblob()`, `datetime('now')` and their relatives return the same values at
/// commit. So do the ids of inserted rows, which are given out ahead (the option
/// [`ids_given_out_ahead`](crate::InteractiveOptions::ids_given_out_ahead); the guide lists the
/// statements). A rowid that SQLite chose and the application has seen (`RETURNING`,
/// [`Transaction::last_insert_rowid`]) is compared, so it conflicts with the transaction that
/// inserts first.
///
/// Dropping it rolls it back.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// # let sql = "CREATE TABLE item(stock); INSERT INTO item VALUES (1)";
/// # db.write(move |tx| tx.execute_batch(sql)).wait()?;
/// let tx = db.transaction()?;
/// let stock: i64 = tx.query_row("SELECT stock FROM item", (), |row| row.get(0)).wait()?;
/// tx.execute("UPDATE item SET stock = ?1", [stock - 1]).wait()?;
/// // Another transaction changes what was read.
/// db.write(|tx| tx.execute("UPDATE item SET stock = 5", ())).wait()?;
/// let error = tx.commit().wait().unwrap_err();
/// assert_eq!(error.kind(), monolite::ErrorKind::Conflict); // Database::transact begins again
/// # db.close()
/// # }
/// ```
pub struct Transaction {
    open: Arc<OpenTransaction>,
    /// Whether the closure's caller ends it.
    is_managed: bool,
    attempt: u32,
}

impl Transaction {
    pub(crate) fn new(open: Arc<OpenTransaction>) -> Transaction {
        Transaction { open, is_managed: false, attempt: 1 }
    }

    fn managed(open: Arc<OpenTransaction>, attempt: u32) -> Transaction {
        Transaction { open, is_managed: true, attempt }
    }

    /// How often the closure of [`Database::transact`](crate::Database::transact) has been started
    /// for this one result: 1 the first time.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The numbers that rows of the latest statement were given ahead, for a check that has plain
    /// SQLite give them, too.
    #[doc(hidden)]
    pub fn given_rowids(&self) -> Option<monolite_sqlite::GivenRowids> {
        self.open.given_rowids()
    }

    /// Runs one statement that returns no rows; gives how many rows it changed.
    ///
    /// # Errors
    /// See [`Execution::wait`].
    pub fn execute(&self, sql: &str, parameters: impl IntoParameters) -> Execution<'_, usize> {
        let request = request(Action::Change, sql, parameters.into_parameters());
        self.start(request, NoRows, |answer, _| {
            Ok(usize::try_from(answer.number()).unwrap_or(usize::MAX))
        })
    }

    /// Runs several statements separated by semicolons, without parameters.
    ///
    /// # Errors
    /// See [`Execution::wait`]; the statements before the one that failed have been run.
    pub fn execute_batch(&self, sql: &str) -> Execution<'_, ()> {
        self.start(request(Action::Batch, sql, ().into_parameters()), NoRows, |_, _| Ok(()))
    }

    /// Runs a query, or a statement with `RETURNING`, and maps its first row.
    ///
    /// # Errors
    /// See [`Execution::wait`]; `NoRows` when there is no row.
    pub fn query_row<T, F>(
        &self,
        sql: &str,
        parameters: impl IntoParameters,
        map: F,
    ) -> Execution<'_, T>
    where
        F: FnOnce(&Row<'_>) -> rusqlite::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let reader = FirstRow { map: Some(map), value: None };
        let request = request(Action::Query, sql, parameters.into_parameters());
        self.start(request, reader, |_, reader| reader.value.ok_or_else(no_rows))
    }

    /// As [`Transaction::query_row`], and `None` when there is no row.
    ///
    /// # Errors
    /// See [`Execution::wait`].
    pub fn query_optional<T, F>(
        &self,
        sql: &str,
        parameters: impl IntoParameters,
        map: F,
    ) -> Execution<'_, Option<T>>
    where
        F: FnOnce(&Row<'_>) -> rusqlite::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let reader = FirstRow { map: Some(map), value: None };
        let request = request(Action::Query, sql, parameters.into_parameters());
        self.start(request, reader, |_, reader| Ok(reader.value))
    }

    /// Runs a query, or a statement with `RETURNING`, and maps all its rows.
    ///
    /// # Errors
    /// See [`Execution::wait`]; `Invalid` when the result is larger than
    /// `InteractiveOptions::max_bytes`.
    pub fn query_map<T, F>(
        &self,
        sql: &str,
        parameters: impl IntoParameters,
        mut map: F,
    ) -> Execution<'_, Vec<T>>
    where
        F: FnMut(&Row<'_>) -> rusqlite::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let request = request(Action::Query, sql, parameters.into_parameters());
        let gather = move |rows: &mut Vec<T>, row: &Row<'_>| {
            rows.push(map(row)?);
            Ok(())
        };
        self.start(request, Gather { rows: Vec::new(), gather }, |_, reader| Ok(reader.rows))
    }

    /// Runs one statement of any kind to its end, has `gather` add each row to `rows`, and gives
    /// what it did, as [`ReadTx::run`](crate::ReadTx::run) does. All of that is compared at commit:
    /// the rowid conflicts as that of [`Transaction::last_insert_rowid`].
    ///
    /// ```
    /// # fn main() -> monolite::Result<()> {
    /// # let db = monolite::Database::open(":memory:")?;
    /// # db.write(|tx| tx.execute("CREATE TABLE user(id INTEGER PRIMARY KEY, name)", ())).wait()?;
    /// let tx = db.transaction()?;
    /// let ran = tx.run("INSERT INTO user(name) VALUES ('ann')", (), (), |_, _| Ok(())).wait()?;
    /// assert_eq!((ran.changes, ran.last_insert_rowid), (1, Some(1)));
    /// let read = tx.run("SELECT name FROM user", (), Vec::new(), |names, row| {
    ///     names.push(row.get::<_, String>(0)?);
    ///     Ok(())
    /// });
    /// assert_eq!(read.wait()?.rows, ["ann"]);
    /// tx.commit().wait()?;
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::query_map`].
    pub fn run<S, F>(
        &self,
        sql: &str,
        parameters: impl IntoParameters,
        rows: S,
        gather: F,
    ) -> Execution<'_, Ran<S>>
    where
        F: FnMut(&mut S, &Row<'_>) -> rusqlite::Result<()> + Send + 'static,
        S: Send + 'static,
    {
        let request = request(Action::Run, sql, parameters.into_parameters());
        self.start(request, Gather { rows, gather }, |answer, reader| match answer {
            Answer::Ran(ran) => Ok(ran.with(reader.rows)),
            _ => unreachable!("it was run"),
        })
    }

    /// Tells what a statement would be, without running it. It is compared at commit, as the
    /// application acts upon it.
    ///
    /// # Errors
    /// See [`Execution::wait`].
    pub fn describe(&self, sql: &str) -> Execution<'_, Description> {
        let request = request(Action::Describe, sql, ().into_parameters());
        self.start(request, NoRows, |answer, _| match answer {
            Answer::Described(description) => Ok(description),
            _ => unreachable!("it was described"),
        })
    }

    /// The rowid of the last row that this transaction inserted; 0 before it has inserted any.
    ///
    /// After this call, the transaction conflicts with one that changes this rowid, unless it was
    /// given out ahead.
    ///
    /// # Errors
    /// See [`Execution::wait`].
    pub fn last_insert_rowid(&self) -> Execution<'_, i64> {
        let request = request(Action::LastInsertRowid, "", ().into_parameters());
        self.start(request, NoRows, |answer, _| Ok(answer.number()))
    }

    /// Opens a savepoint. Savepoints nest; a reused name hides the earlier one. As in SQL, `a` and
    /// `A` are one name.
    ///
    /// # Errors
    /// See [`Execution::wait`].
    pub fn savepoint(&self, name: &str) -> Execution<'_, ()> {
        self.run_savepoint(UserSavepoint::Open, name)
    }

    /// Undoes everything since the savepoint was opened, and keeps it open.
    ///
    /// # Errors
    /// See [`Execution::wait`]; `Invalid` when there is no such savepoint, and the transaction can
    /// go on.
    pub fn rollback_to(&self, name: &str) -> Execution<'_, ()> {
        self.run_savepoint(UserSavepoint::Undo, name)
    }

    /// Closes the savepoint and those inside it, and keeps what was done.
    ///
    /// # Errors
    /// As [`Transaction::rollback_to`].
    pub fn release(&self, name: &str) -> Execution<'_, ()> {
        self.run_savepoint(UserSavepoint::Close, name)
    }

    fn run_savepoint(&self, what: UserSavepoint, name: &str) -> Execution<'_, ()> {
        // Its place among those that are open is known when it runs.
        let request = request(Action::Savepoint(what, 0), name, ().into_parameters());
        self.start(request, NoRows, |_, _| Ok(()))
    }

    /// Commits: the writer runs everything again, compares, and keeps it.
    ///
    /// The transaction goes to the writer at once, or as soon as its queue has room. A transaction
    /// without changes does not, and waits only until everything it saw is on disk.
    ///
    /// # Durability
    /// As that of [`Database::write`](crate::Database::write): `Ok` means on disk, by default; for
    /// a transaction without changes, that everything it saw is.
    ///
    /// # Errors
    /// `Conflict` when a statement would answer differently now: run the transaction again.
    /// `Invalid` when one would although nothing was changed, since its answer cannot be repeated.
    /// The error that ended the transaction earlier, if one did. Those of [`Write::wait`]; after
    /// `CommitUnknown` the transaction may have been committed: use [`Transaction::commit_once`]
    /// for a commit that can be repeated safely.
    pub fn commit(self) -> Write<Committed> {
        self.commit_with(None)
    }

    /// As [`Transaction::commit`], at most once for a key: if a commit with `key` has happened
    /// before, this one changes nothing and returns the outcome stored by the first.
    ///
    /// The client that may repeat the request chooses `key`: 1 to 1,024 bytes, different for each
    /// transaction. `outcome` is stored with it, in the transaction itself; both expire after the
    /// option `idempotency_lifetime`, which no jump of the wall clock shortens. They are in a table
    /// of the engine, `monolite_idempotency`, which users' statements cannot read or change.
    ///
    /// # Errors
    /// As [`Transaction::commit`]; `Invalid` for a key that is empty or too long.
    pub fn commit_once(
        self,
        key: impl Into<String>,
        outcome: impl Into<Vec<u8>>,
    ) -> Write<Committed> {
        let lifetime = self.open.engine().limits.idempotency_lifetime;
        self.commit_with(Some(Key { text: key.into(), outcome: outcome.into(), lifetime }))
    }

    fn commit_with(self, key: Option<Key>) -> Write<Committed> {
        if self.is_managed {
            let message = "transact commits the transaction itself; return Ok from the closure";
            return open::answered(Err(Error::new(ErrorKind::Invalid, message)));
        }
        self.open.commit(key)
    }

    /// Rolls the transaction back, as dropping it does. Its changes were never visible to others.
    ///
    /// In [`Database::transact`](crate::Database::transact), return an error from the closure
    /// instead: if it calls this and returns `Ok`, nothing is committed, and `transact` fails with
    /// `Invalid`.
    pub fn rollback(self) {
        if self.is_managed {
            self.open.roll_back_in_closure();
        }
    }

    fn start<R, T>(
        &self,
        request: Result<Request>,
        reader: R,
        finish: impl FnOnce(Answer, R) -> Result<T> + Send + 'static,
    ) -> Execution<'_, T>
    where
        R: RowReader + Send + 'static,
        T: Send + 'static,
    {
        let turn = request.as_ref().ok().and_then(|request| self.open.turn_for(request));
        let body = move |open: &OpenTransaction| {
            let request = request?;
            let text = Arc::clone(&request.text);
            let (answer, reader) = open.execute(request, reader)?;
            finish(answer, reader).map_err(|error| error.in_statement(&text))
        };
        Execution { open: &self.open, turn, work: Work::new(Box::new(body)), is_awaited: false }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.is_managed {
            self.open.roll_back();
        }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

fn request(action: Action, text: &str, parameters: Result<Parameters>) -> Result<Request> {
    let parameters = parameters.map_err(|error| error.in_statement(text))?;
    Ok(Request { action, text: text.into(), parameters, read_only: None })
}

fn no_rows() -> Error {
    rusqlite::Error::QueryReturnedNoRows.into()
}

/// Expects no rows.
struct NoRows;

impl RowReader for NoRows {
    fn row(&mut self, _: &Row<'_>) -> Result<More> {
        Ok(More::Wanted)
    }
}

struct FirstRow<T, F> {
    map: Option<F>,
    value: Option<T>,
}

impl<T, F: FnOnce(&Row<'_>) -> rusqlite::Result<T>> RowReader for FirstRow<T, F> {
    fn row(&mut self, row: &Row<'_>) -> Result<More> {
        let map = self.map.take().expect("no row is asked for behind the first");
        self.value = Some(map(row)?);
        Ok(More::Enough)
    }
}

struct Gather<S, F> {
    rows: S,
    gather: F,
}

impl<S, F: FnMut(&mut S, &Row<'_>) -> rusqlite::Result<()>> RowReader for Gather<S, F> {
    fn row(&mut self, row: &Row<'_>) -> Result<More> {
        (self.gather)(&mut self.rows, row)?;
        Ok(More::Wanted)
    }
}

type Body<T> = Box<dyn FnOnce(&OpenTransaction) -> Result<T> + Send>;

/// A statement of a [`Transaction`] that has not run yet: call [`Execution::wait`], or await it.
///
/// # Cancellation
/// Dropping one that was never waited for or polled does nothing. Dropping an awaited one before it
/// is done ends the statement, and the transaction with it, because it is not known whether the
/// statement ran: all that follows fails with [`ErrorKind::Aborted`].
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// let tx = db.transaction()?;
/// tx.execute("CREATE TABLE t(x)", ()).wait()?; // on this thread
/// smol::block_on(async { tx.execute("INSERT INTO t VALUES (1)", ()).await })?; // or awaited
/// tx.commit().wait()?;
/// # db.close()
/// # }
/// ```
#[must_use = "a statement does nothing until it is waited for or awaited"]
pub struct Execution<'t, T> {
    open: &'t Arc<OpenTransaction>,
    /// What has to happen before.
    turn: Option<BoxedWait>,
    work: Work<Body<T>, T, Error>,
    /// Whether it was polled, and has not been answered yet.
    is_awaited: bool,
}

impl<T> Execution<'_, T> {
    /// Runs the statement on the calling thread and returns its result.
    ///
    /// # Errors
    /// `Constraint`, `NoRows`, `Invalid` (wrong SQL or parameters, a statement that belongs to the
    /// engine, a limit of the transaction): the transaction can go on, unless the message says that
    /// it is rolled back. After every other kind it is over and rolled back: `Conflict`, `Timeout`,
    /// `Aborted`, `Storage`, `Corrupt`, `Closed`. An error of the mapping closure comes back as it
    /// is, converted; after a change (`RETURNING`) the transaction is over.
    ///
    /// # Panics
    /// With the mapping closure's panic, after which the transaction is over; and when the
    /// statement was polled before.
    pub fn wait(mut self) -> Result<T> {
        self.check_place()?;
        if let Some(turn) = self.turn.take() {
            block_on(turn);
        }
        let result = (self.work.take("statement"))(self.open);
        result.inspect_err(|error| self.open.end_after(error))
    }

    /// # Errors
    /// `Invalid` in a write closure of the same database.
    fn check_place(&self) -> Result<()> {
        if !self.open.engine().database.is_inside(Place::Write) {
            return Ok(());
        }
        let message = "a write closure waited for a statement of an interactive transaction of \
                       the same database, which may have to wait for the closure; use the \
                       closure's own transaction";
        Err(Error::new(ErrorKind::Invalid, message))
    }
}

impl<T: Send + 'static> Future for Execution<'_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.check_place()?;
        let open = self.open;
        open.engine().database.check_process()?;
        self.is_awaited = true;
        if let Some(turn) = &mut self.turn {
            ready!(turn.as_mut().poll(context));
            self.turn = None;
        }
        if runs_here()
            && let Some(body) = self.work.take_new()
        {
            self.is_awaited = false;
            return Poll::Ready(body(open).inspect_err(|error| open.end_after(error)));
        }
        let bind = |body: Body<T>| {
            let open = Arc::clone(open);
            move || body(&open)
        };
        let outcome =
            ready!(self.work.poll(&open.engine().threads.queue, context, open.caller(), bind));
        self.is_awaited = false;
        Poll::Ready(outcome.unwrap_for_caller().inspect_err(|error| open.end_after(error)))
    }
}

impl<T> Drop for Execution<'_, T> {
    fn drop(&mut self) {
        self.work.leave(&self.open.engine().threads.queue);
        if self.is_awaited {
            self.open.abandon();
        }
    }
}

impl<T> fmt::Debug for Execution<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution").finish_non_exhaustive()
    }
}
