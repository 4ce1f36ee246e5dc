//! Owns the prepared statements that a connection keeps: those of its users, by their text, and
//! the engine's own.
//!
//! # Algorithm
//! A lookup hashes the text once and hands out the statement in place; `rusqlite`'s own cache takes
//! it out and puts it back, two hash table operations and an allocation more (measured: 0.25 µs of
//! the 4 µs of a transaction with two updates). When the table is full it is emptied.
//!
//! # Invariants
//! - The engine's statements are kept apart, those for savepoints too: were they found by their
//!   text, a member could run `COMMIT` without the authorizer being asked.
//! - A statement that changes the schema or the statistics is not kept, so the authorizer sees and
//!   reports it each time. This includes one that changes nothing now (`DROP … IF EXISTS`) and so
//!   only reads. Nor is one that explains another: it does not run, so SQLite does not notice that
//!   its plan is out of date. Nor is a pragma, which SQLite prepares again at, and during, each
//!   run.
//! - Nor, on a connection that may not write, one that would: SQLite refuses it before it compares
//!   the schema, and it would not be told that what it names is gone.
//! - Statements are finalized before their connection is closed.
//! - What users say is prepared on the connection's own stack ([`crate::stack`]), and so are
//!   statements run that are not kept, or in whose run SQLite may need it.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::Arc;

use hashbrown::HashMap;
use rusqlite::{Result, Statement};

use crate::authorizer::Authorizer;
use crate::codes::refuse;
use crate::stack::Stack;
use crate::traits::Traits;
use crate::verb::Verb;
use crate::{depth, names, no_rows};

/// Statements of users that are kept; more than most applications have.
const KEPT: usize = 256;

/// The engine's own statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    BeginImmediate,
    Begin,
    Verify,
    Commit,
    Rollback,
    OpenGroup,
    UndoGroup,
    CloseGroup,
    OpenMember,
    UndoMember,
    CloseMember,
    OpenUser,
    CloseUser,
    OpenFlush,
    CloseFlush,
    ChangeNoRows,
    FindNames,
    FindOwner,
    FindTime,
    FindKey,
    AdoptKeys,
    SweepKeys,
    StoreKey,
}

impl Own {
    const COUNT: usize = Own::StoreKey as usize + 1;

    fn sql(self) -> &'static str {
        match self {
            Own::BeginImmediate => "BEGIN IMMEDIATE",
            Own::Begin => "BEGIN",
            // Gives no row, takes the snapshot all the same, and has SQLite compare its schema.
            Own::Verify => "SELECT 1 FROM sqlite_schema WHERE 0",
            Own::Commit => "COMMIT",
            Own::Rollback => "ROLLBACK",
            Own::OpenGroup => "SAVEPOINT monolite_group",
            Own::UndoGroup => "ROLLBACK TO monolite_group",
            Own::CloseGroup => "RELEASE monolite_group",
            Own::OpenMember => "SAVEPOINT monolite_member",
            Own::UndoMember => "ROLLBACK TO monolite_member",
            Own::CloseMember => "RELEASE monolite_member",
            Own::OpenUser => "SAVEPOINT monolite_user",
            Own::CloseUser => "RELEASE monolite_user",
            Own::OpenFlush => "SAVEPOINT monolite_flush",
            Own::CloseFlush => "RELEASE monolite_flush",
            Own::ChangeNoRows => no_rows::CHANGE,
            Own::FindNames => names::FIND,
            Own::FindOwner => {
                "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND rootpage = 0 AND \
                 lower(substr(?1, 1, length(name) + 1)) = lower(name) || '_'"
            }
            Own::FindTime => "SELECT outcome FROM monolite_idempotency WHERE key = ''",
            Own::FindKey => {
                "SELECT outcome FROM monolite_idempotency WHERE key = ?1 AND (expires > ?2 OR \
                 expires < ?3)"
            }
            Own::AdoptKeys => {
                "UPDATE monolite_idempotency SET expires = ?1 WHERE key IN (SELECT key FROM \
                 monolite_idempotency WHERE expires < ?2 ORDER BY expires LIMIT ?3)"
            }
            Own::SweepKeys => {
                "DELETE FROM monolite_idempotency WHERE key IN (SELECT key FROM \
                 monolite_idempotency WHERE expires <= ?1 AND expires >= ?2 ORDER BY expires \
                 LIMIT ?3)"
            }
            Own::StoreKey => {
                "INSERT INTO monolite_idempotency(key, outcome, expires) VALUES (?1, ?2, ?3) \
                 ON CONFLICT(key) DO UPDATE SET outcome = excluded.outcome, expires = \
                 excluded.expires"
            }
        }
    }
}

/// A statement of a user.
struct Kept {
    statement: Statement<'static>,
    /// What the authorizer said of it.
    traits: Traits,
    verb: Verb,
    is_explain: bool,
    /// Whether preparing it may take more stack than a thread has.
    is_heavy: bool,
}

impl Kept {
    fn run<R>(
        &mut self,
        authorizer: &Authorizer,
        run: impl FnOnce(&mut Statement<'_>, Traits) -> R,
    ) -> R {
        let notes = &authorizer.notes;
        let before = notes.take_all();
        // Before it runs: it may not come back.
        if self.traits.has(Traits::VIRTUAL) {
            authorizer.virtual_tables.mark_used();
        }
        let result = run(&mut *Cleared(&mut self.statement).0, self.traits);
        self.traits = self.traits | notes.take_all().of_statement(self.verb);
        notes.add(before | self.traits);
        if self.is_explain {
            notes.add_failure();
        }
        result
    }

    /// Whether it may be found again by its text, unless running it has shown that it
    /// [changes something](Kept::is_changing).
    fn may_stay(&self, may_write: bool) -> bool {
        let is_refused = !may_write && !self.statement.readonly();
        !self.is_changing() && !self.is_explain && !is_refused && self.verb != Verb::Pragma
    }

    /// Whether it changes how others are prepared.
    fn is_changing(&self) -> bool {
        self.traits.has(Traits::SCHEMA | Traits::STATISTICS | Traits::DEFINES | Traits::DEFERS)
    }
}

/// The text of a statement.
#[derive(Clone, Copy)]
pub(crate) enum Text<'t> {
    /// As a user has said it.
    Said(&'t str),
    /// In its second form, which no user can say ([`crate::rowids`]).
    Second(&'t str),
}

/// A connection on the heap, with the statements that were prepared on it.
pub(crate) struct Prepared {
    /// Owned; from `Box::into_raw`. The statements below borrow it.
    connection: NonNull<rusqlite::Connection>,
    authorizer: Arc<Authorizer>,
    /// Whether its users may write.
    may_write: bool,
    by_text: RefCell<HashMap<Box<str>, Kept>>,
    /// Those of [`Text::Second`].
    forms: RefCell<HashMap<Box<str>, Kept>>,
    /// The engine's own questions about tables of users.
    questions: RefCell<HashMap<Box<str>, Statement<'static>>>,
    own: RefCell<[Option<Statement<'static>>; Own::COUNT]>,
    stack: Stack,
}

// SAFETY: a connection may move between threads (`rusqlite::Connection: Send`), and the statements
// move with it, since they never leave this value.
unsafe impl Send for Prepared {}

impl Prepared {
    pub(crate) fn new(
        connection: rusqlite::Connection,
        authorizer: Arc<Authorizer>,
        may_write: bool,
        stack: Stack,
    ) -> Prepared {
        let connection = NonNull::from(Box::leak(Box::new(connection)));
        Prepared {
            connection,
            authorizer,
            may_write,
            by_text: RefCell::default(),
            forms: RefCell::default(),
            questions: RefCell::default(),
            own: RefCell::default(),
            stack,
        }
    }

    pub(crate) fn connection(&self) -> &rusqlite::Connection {
        // SAFETY: the pointer is owned by `self`; `connection_mut` needs `&mut self`.
        unsafe { self.connection.as_ref() }
    }

    /// The connection for a change of its hooks; forgets all statements, which borrow it.
    pub(crate) fn connection_mut(&mut self) -> &mut rusqlite::Connection {
        self.forget();
        // SAFETY: the pointer is owned by `self`, which is borrowed mutably, and the statements
        // that borrowed the connection are gone.
        unsafe { self.connection.as_mut() }
    }

    fn forget(&mut self) {
        self.by_text.get_mut().clear();
        self.forms.get_mut().clear();
        self.questions.get_mut().clear();
        self.own.get_mut().fill_with(|| None);
    }

    /// Forgets all statements, of which none is used, and gives the memory of the stack back.
    pub(crate) fn release(&self) {
        self.forget_users();
        self.questions.borrow_mut().clear();
        self.own.borrow_mut().fill_with(|| None);
        self.stack.release();
    }

    /// Forgets the users' statements, those that `rusqlite` keeps, too; not while one is used. To
    /// be called whenever the schema may be another one.
    pub(crate) fn forget_users(&self) {
        for kept in [&self.by_text, &self.forms] {
            if let Ok(mut kept) = kept.try_borrow_mut() {
                *kept = HashMap::new();
            }
        }
        self.connection().flush_prepared_statement_cache();
    }

    /// Runs `body`, in which SQLite prepares statements, on the connection's own stack.
    pub(crate) fn deeply<R>(&self, body: impl FnOnce() -> R) -> R {
        self.stack.run(body)
    }

    /// The one way in which a statement of a user is prepared: has `make` prepare it out of `sql`,
    /// as often as it takes to find that there is enough stack for it.
    ///
    /// # Errors
    /// Those of `make`; `SQLITE_AUTH` when the statement is refused for its text, for what it would
    /// take, or for what it would drop.
    pub(crate) fn prepare<R>(&self, sql: &str, make: impl FnMut() -> Result<R>) -> Result<R> {
        self.prepare_weighed(sql, make).map(|(prepared, _)| prepared)
    }

    /// As [`Prepared::prepare`]; says also whether it [is heavy](Kept::is_heavy).
    fn prepare_weighed<R>(&self, sql: &str, make: impl FnMut() -> Result<R>) -> Result<(R, bool)> {
        let authorizer = &*self.authorizer;
        // What is left of one that could not be prepared, or was although something in it could
        // not: `PRAGMA table_list` goes on where a view is refused.
        authorizer.take_denial();
        authorizer.drops.take();
        refuse(names::refusal_of_join(sql))?;
        if authorizer.virtual_tables.may_join(sql) {
            authorizer.note_virtual_table();
        }
        let before = authorizer.notes.take(Traits::DEFERS);
        let had_wanted_no_keys = authorizer.drops.wants_no_keys();
        let prepared = self.prepare_counted(sql, make);
        if !authorizer.notes.seen(Traits::DEFERS).is_empty()
            || authorizer.drops.wants_no_keys() != had_wanted_no_keys
        {
            // It has SQLite prepare all others again, or they are judged anew.
            self.forget_users();
        }
        authorizer.notes.add(before);
        let prepared = prepared?;
        let does = authorizer.drops.take();
        let refusal = || authorizer.drops.refusal(self.connection(), &does);
        refuse(authorizer.as_engine(refusal)?)?;
        Ok(prepared)
    }

    fn prepare_counted<R>(
        &self,
        sql: &str,
        mut make: impl FnMut() -> Result<R>,
    ) -> Result<(R, bool)> {
        let authorizer = &*self.authorizer;
        let mut weighed = || {
            let (prepared, is_heavy) = self.stack.run_weighed(&mut make);
            prepared.map(|prepared| (prepared, is_heavy))
        };
        let mut prepare = |most| authorizer.selects.during(most, &mut weighed);
        let (prepared, has_too_many) = prepare(depth::FREE_SELECTS);
        if prepared.is_ok() || !has_too_many {
            return prepared;
        }
        let most = authorizer.as_engine(|| depth::most_selects(self.connection(), sql))?;
        if most <= depth::FREE_SELECTS {
            return prepared;
        }
        // The first attempt is no refusal of the second.
        authorizer.take_denial();
        authorizer.notes.add_failure();
        prepare(most).0
    }

    /// Runs `kept` on the stack of its thread, unless SQLite may prepare something there that takes
    /// too much of it: the statement again, or what a virtual table reads from (a view).
    #[inline]
    fn run<R>(&self, kept: &mut Kept, run: impl FnOnce(&mut Statement<'_>, Traits) -> R) -> R {
        let is_deep = kept.is_heavy || kept.traits.has(Traits::VIRTUAL);
        let run = || kept.run(&self.authorizer, run);
        if is_deep { self.deeply(run) } else { run() }
    }

    /// Hands the statement of `text` to `run`, prepared now or earlier, and clears its bindings
    /// afterwards.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        text: Text<'_>,
        run: impl FnOnce(&mut Statement<'_>, Traits) -> R,
    ) -> Result<R> {
        let (kept, sql) = match text {
            Text::Said(sql) => (&self.by_text, sql),
            Text::Second(sql) => (&self.forms, sql),
        };
        let authorizer = &*self.authorizer;
        // Borrowed already: called from inside of `run`, by a function that maps rows.
        let Ok(mut kept) = kept.try_borrow_mut() else {
            let mut prepared = self.prepare_kept(sql)?;
            return Ok(self.deeply(|| prepared.run(authorizer, run)));
        };
        if let Some(statement) = kept.get_mut(sql) {
            let result = self.run(statement, run);
            if statement.is_changing() {
                kept.remove(sql);
            }
            return Ok(result);
        }
        let mut prepared = self.prepare_kept(sql)?;
        if !prepared.may_stay(self.may_write) {
            if prepared.traits.has(Traits::DEFERS) {
                kept.clear();
            }
            return Ok(self.deeply(|| prepared.run(authorizer, run)));
        }
        if kept.len() >= KEPT {
            kept.clear();
        }
        let statement = kept.entry(sql.into()).insert(prepared).into_mut();
        Ok(self.run(statement, run))
    }

    fn prepare_kept(&self, sql: &str) -> Result<Kept> {
        let notes = &self.authorizer.notes;
        let before = notes.take_all();
        let prepared = self.prepare_weighed(sql, || self.prepare_now(sql));
        let verb = Verb::of(sql);
        let traits = notes.take_all().of_statement(verb);
        notes.add(before | traits);
        let (statement, is_heavy) = prepared?;
        let is_explain = statement.is_explain() != 0;
        Ok(Kept { statement, traits, verb, is_explain, is_heavy })
    }

    /// Runs one of the engine's own statements.
    pub(crate) fn run_own(&self, own: Own) -> Result<()> {
        self.with_own(own, |statement| statement.raw_execute().map(|_| ()))
    }

    /// Hands one of the engine's own statements to `run`.
    pub(crate) fn with_own<R>(
        &self,
        own: Own,
        run: impl FnOnce(&mut Statement<'_>) -> Result<R>,
    ) -> Result<R> {
        let mut kept = self.own.borrow_mut();
        let slot = &mut kept[own as usize];
        let statement = match slot {
            Some(statement) => statement,
            None => slot.insert(self.prepare_now(own.sql())?),
        };
        run(statement)
    }

    /// Hands the statement of `sql`, a question of the engine's own about a table of a user, to
    /// `run`.
    pub(crate) fn with_own_text<R>(
        &self,
        sql: &str,
        run: impl FnOnce(&mut Statement<'_>) -> Result<R>,
    ) -> Result<R> {
        let mut kept = self.questions.borrow_mut();
        if kept.len() >= KEPT {
            kept.clear();
        }
        let statement = match kept.get_mut(sql) {
            Some(statement) => statement,
            None => kept.entry(sql.into()).insert(self.prepare_now(sql)?).into_mut(),
        };
        run(statement)
    }

    fn prepare_now(&self, sql: &str) -> Result<Statement<'static>> {
        // SAFETY: the statement borrows the connection on the heap, which neither moves nor is
        // dropped before `forget` has dropped the statement (see `Drop`, `connection_mut`).
        let connection: &'static rusqlite::Connection = unsafe { self.connection.as_ref() };
        connection.prepare(sql)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.forget();
        // SAFETY: the pointer came from `Box::leak` and nothing borrows the connection any more.
        drop(unsafe { Box::from_raw(self.connection.as_ptr()) });
    }
}

/// A statement whose bindings are cleared when its user is done, or panics.
struct Cleared<'s>(&'s mut Statement<'static>);

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        self.0.clear_bindings();
    }
}

#[test]
fn a_change_that_is_refused_is_told_when_what_it_names_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let open = || rusqlite::Connection::open(directory.path().join("test.db")).unwrap();
    let (writer, reader) = (open(), open());
    writer.execute_batch("CREATE TABLE gone(x)").unwrap();
    reader.execute_batch("PRAGMA query_only = ON").unwrap();
    let prepared = Prepared::new(reader, Arc::default(), false, Stack::new().unwrap());
    let refused = || {
        let change = "INSERT INTO gone VALUES (1)";
        let ran = prepared.with(Text::Said(change), |statement, _| statement.raw_execute());
        ran.and_then(|ran| ran).unwrap_err().to_string()
    };
    assert!(refused().contains("readonly"), "{}", refused());
    writer.execute_batch("ALTER TABLE gone RENAME TO other").unwrap();
    prepared.run_own(Own::Verify).unwrap();
    assert!(refused().contains("no such table"), "{}", refused());
}

#[test]
fn what_sqlite_may_prepare_deep_while_it_runs_is_run_on_the_stack_of_the_connection() {
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    let authorizer = Arc::<Authorizer>::default();
    let prepared = Prepared::new(connection, Arc::clone(&authorizer), true, Stack::new().unwrap());
    let is_on_thread = |sql: &str| {
        let here = 0_u8;
        let there = |_: &mut Statement<'_>, _| {
            let there = 0_u8;
            (&raw const there).addr()
        };
        let there = prepared.with(Text::Said(sql), there).unwrap();
        there.abs_diff((&raw const here).addr()) < 1 << 20
    };
    // Until it is known which tables are virtual, every statement may use one.
    assert!(!is_on_thread("SELECT 2"));
    authorizer.virtual_tables.learn(prepared.connection());
    let heavy = format!("SELECT {}1{}", "abs(".repeat(400), ")".repeat(400));
    for _ in 0..2 {
        assert!(is_on_thread("SELECT 1"));
        assert!(!is_on_thread(&heavy));
    }
}
