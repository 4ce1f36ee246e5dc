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
//! - A statement that changes the schema or the statistics is not kept, so the authorizer sees it
//!   each time, and whoever has to act upon such a change is told of each; not even where it
//!   changes nothing now (`DROP … IF EXISTS`) and so is one that only reads. Nor is one that
//!   explains another: it is not run, and so SQLite does not notice that its plan is out of date.
//!   Nor is a pragma, which SQLite prepares again whenever it runs once more, and while it does.
//! - Nor, on a connection that may not write, one that would: SQLite refuses it before it compares
//!   the schema, and it would not be told that what it names is gone.
//! - Statements are finalized before their connection is closed.
//! - Where SQL is not trusted, no large statement is prepared before its dry run
//!   ([`crate::dry_run`]).
//! - What users say is prepared on the connection's own stack ([`crate::stack`]), and so are
//!   statements run that are not kept.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::Arc;

use hashbrown::HashMap;
use rusqlite::{Result, Statement, StatementStatus};

use crate::counts::Counts;
use crate::definitions;
use crate::depth;
use crate::drops;
use crate::dry_run::Rehearsing;
use crate::light::{Light, Weights};
use crate::names;
use crate::program::{Program, is_empty, is_large, most_passes};
use crate::signals::{Signals, Traits};
use crate::stack::Stack;
use crate::text::{self, Planning};
use crate::untrusted;
use crate::verb::Verb;
#[cfg(test)]
use rusqlite::hooks::AuthContext;

/// Statements of users that are kept; more than most applications have.
const KEPT: usize = 256;

/// Up to so many bytes of text the memory of a program tells how large it is; in a longer one
/// what the text takes of it could hide a large program.
const MEASURED: usize = 1_000;

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
    /// See [`Signals::passes_of_statement`]; of trusted SQL they are not counted.
    counted: u32,
    /// How often its program passes over a value, as far as that is known.
    passes: u32,
    /// Whether its program, if it has not got another one, never sorts; `None` while that could not
    /// be asked.
    never_sorts: Option<bool>,
    /// Of which program that is said, see [`Kept::latest_program`].
    program: i32,
}

impl Kept {
    fn run<R>(
        &mut self,
        signals: &Signals,
        run: impl FnOnce(&mut Statement<'_>, Traits) -> R,
    ) -> R {
        signals.note_passes(self.passes);
        signals.start_run();
        let running = signals.running(self.never_sorts == Some(true));
        let before = signals.take_all();
        // Before it runs: it may not come back.
        if self.traits.has(Traits::VIRTUAL) {
            signals.virtual_tables().mark_used();
        }
        let result = run(&mut *Cleared(&mut self.statement).0, self.traits);
        drop(running);
        // SQLite prepares a statement again when the schema has changed.
        let latest = self.latest_program();
        if self.program != latest {
            self.program = latest;
            self.never_sorts = self.never_sorts.filter(|never_sorts| !never_sorts);
            self.counted = self.counted.max(signals.passes_of_statement());
            self.passes = self.passes.max(self.counted);
        }
        self.traits |= signals.take_all().of_statement(self.verb);
        signals.add(before | self.traits);
        if self.is_explain {
            signals.note_failure();
        }
        result
    }

    /// Takes note of what is known of its program.
    fn note_program(&mut self, program: Option<Program>, sql: &str) {
        self.never_sorts = program.map(|program| !program.may_sort);
        let most = || most_passes(&self.statement, sql, self.counted);
        self.passes = program.map_or_else(most, |it| it.passes);
    }

    /// How often SQLite has prepared it again; of one that is empty nothing can be asked.
    fn latest_program(&self) -> i32 {
        if is_empty(&self.statement) {
            return 0;
        }
        self.statement.get_status(StatementStatus::RePrepare)
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

/// A connection on the heap, with the statements that were prepared on it.
pub(crate) struct Prepared {
    /// Owned; from `Box::into_raw`. The statements below borrow it.
    connection: NonNull<rusqlite::Connection>,
    /// Whether its users may write.
    may_write: bool,
    by_text: RefCell<HashMap<Box<str>, Kept>>,
    /// Statements of users in their second form, which no user can say ([`crate::rowids`]).
    forms: RefCell<HashMap<Box<str>, Kept>>,
    /// The engine's own questions about tables of users.
    questions: RefCell<HashMap<Box<str>, Statement<'static>>>,
    own: RefCell<[Option<Statement<'static>>; Own::COUNT]>,
    stack: Stack,
    /// Where large statements are prepared first, if that is done.
    dry_runs: Option<Rehearsing>,
    /// Those of the schema, as far as they are known.
    weights: RefCell<Option<Weighed>>,
}

/// What is known of a schema, and of texts on it: those that are light as far as a text tells, by
/// which statements that are kept are found without their texts being looked through again. What
/// [`Light::of`] and [`untrusted::refusal_of_text`] say depends on a text and on the weights alone,
/// so it goes with these.
struct Weighed {
    weights: Arc<Weights>,
    light: HashMap<Box<str>, Light>,
}

// SAFETY: a connection may move between threads (`rusqlite::Connection: Send`), and the statements
// move with it, since they never leave this value.
unsafe impl Send for Prepared {}

impl Prepared {
    pub(crate) fn new(
        connection: rusqlite::Connection,
        may_write: bool,
        stack: Stack,
        dry_runs: Option<Rehearsing>,
    ) -> Prepared {
        let connection = NonNull::from(Box::leak(Box::new(connection)));
        Prepared {
            connection,
            may_write,
            by_text: RefCell::default(),
            forms: RefCell::default(),
            questions: RefCell::default(),
            own: RefCell::default(),
            stack,
            dry_runs,
            weights: RefCell::default(),
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

    /// Forgets the users' statements, those that `rusqlite` keeps, too; not while one is used. To
    /// be called whenever the schema may be another one.
    pub(crate) fn forget_users(&self) {
        self.forget_weights();
        for kept in [&self.by_text, &self.forms] {
            if let Ok(mut kept) = kept.try_borrow_mut() {
                kept.clear();
            }
        }
        self.connection().flush_prepared_statement_cache();
    }

    /// Has the schema weighed again.
    pub(crate) fn forget_weights(&self) {
        self.weights.replace(None);
    }

    /// Runs `body`, in which SQLite prepares statements, on the connection's own stack.
    pub(crate) fn deeply<R>(&self, body: impl FnOnce() -> R) -> R {
        self.stack.run(body)
    }

    /// Has SQLite prepare a statement out of `sql`, by `prepare`: as often as it takes to find that
    /// there is enough stack for it.
    ///
    /// # Errors
    /// Those of `prepare`; `SQLITE_AUTH` when the statement is refused for what it would take.
    pub(crate) fn preparing<R>(
        &self,
        sql: &str,
        signals: &Signals,
        mut prepare: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        // What is left of one that could not be prepared, or was although something in it could
        // not: `PRAGMA table_list` goes on where a view is refused.
        signals.take_denial();
        signals.take(Traits::ALTERS);
        signals.take_dropped();
        names::refusal_of_join(sql).map_or(Ok(()), refused)?;
        if signals.virtual_tables().may_join(sql) {
            signals.note_virtual_table();
        }
        let mut prepare = |most| {
            let on_stack = || self.deeply(|| signals.prepared(&mut prepare));
            signals.counting(most, on_stack)
        };
        let prepared = match signals.modules() {
            None => self.preparing_trusted(sql, signals, &mut prepare),
            Some(_) => self.preparing_untrusted(sql, signals, &mut prepare),
        };
        let prepared = prepared?;
        self.refuse_prepared(signals)?;
        Ok(prepared)
    }

    /// `prepare` is told how many `SELECT`s there may be, and says whether there were more.
    fn preparing_trusted<R>(
        &self,
        sql: &str,
        signals: &Signals,
        prepare: &mut dyn FnMut(u32) -> (Result<R>, bool),
    ) -> Result<R> {
        let (prepared, has_too_many) = prepare(depth::FREE_SELECTS);
        if prepared.is_ok() || !has_too_many {
            return prepared;
        }
        let most = signals.as_engine(|| depth::most_selects(self.connection(), sql))?;
        if most <= depth::FREE_SELECTS {
            return prepared;
        }
        forget_attempt(signals);
        prepare(most).0
    }

    /// `prepare` is told how many uses of columns there may be.
    fn preparing_untrusted<R>(
        &self,
        sql: &str,
        signals: &Signals,
        prepare: &mut dyn FnMut(u32) -> (Result<R>, bool),
    ) -> Result<R> {
        let defines = || text::planning(sql) == Planning::Defines && text::is_one(sql);
        let is_free = signals.is_migrating() || defines();
        let Some(dry_runs) = self.dry_runs.as_ref().filter(|_| !is_free) else {
            return prepare(untrusted::MAX_COLUMNS).0;
        };
        if let Some(light) = self.light_of(sql, signals)? {
            let prepare = || prepare(untrusted::MAX_COLUMNS).0;
            let (prepared, light) = signals.while_light(light, prepare);
            if prepared.is_ok() || !light.is_refuted() {
                return prepared;
            }
            forget_attempt(signals);
        }
        let cookie = self.cookie(signals)?;
        let ran = dry_runs.wait_for(sql, cookie, signals.is_numbering());
        ran.map_err(|(error, reason)| {
            signals.put_denial(reason);
            error
        })?;
        prepare(untrusted::MAX_COLUMNS).0
    }

    /// That of the schema.
    fn cookie(&self, signals: &Signals) -> Result<u32> {
        signals.as_engine(|| {
            self.connection().pragma_query_value(None, "schema_version", |row| row.get::<_, u32>(0))
        })
    }

    /// The statement of `sql`, unless it is known not to be light.
    ///
    /// # Errors
    /// `SQLITE_AUTH` when its text is refused.
    pub(crate) fn light_of(&self, sql: &str, signals: &Signals) -> Result<Option<Light>> {
        let is_settled = signals.seen(Traits::UNSETTLED).is_empty();
        if !is_settled || self.weights.borrow().is_none() {
            let weights = Arc::new(signals.as_engine(|| Weights::of(self.connection()))?);
            self.weights.replace(Some(Weighed { weights, light: HashMap::new() }));
        }
        let mut weighed = self.weights.borrow_mut();
        let Some(Weighed { weights, light: known }) = weighed.as_mut() else { return Ok(None) };
        if let Some(light) = known.get(sql) {
            return Ok(Some(light.clone()));
        }
        untrusted::refusal_of_text(sql, weights.views()).map_or(Ok(()), refused)?;
        let light = Light::of(sql, weights);
        if let Some(light) = light.as_ref().filter(|light| light.is_short()) {
            if known.len() >= KEPT {
                known.clear();
            }
            known.insert(sql.into(), light.clone());
        }
        Ok(light)
    }

    /// Looks at what can be said of a statement only when it is prepared, before it runs.
    ///
    /// # Errors
    /// `SQLITE_AUTH` when it is refused: a `DROP TABLE` that would act on the rows of others, and
    /// where SQL is not trusted, an `ALTER TABLE` that would take too long.
    fn refuse_prepared(&self, signals: &Signals) -> Result<()> {
        if let Some(table) = signals.take_dropped() {
            let refusal = || drops::refusal(self.connection(), &table, signals);
            signals.as_engine(refusal)?.map_or(Ok(()), refused)?;
        }
        let traits = signals.take(Traits::ALTERS);
        if traits.has(Traits::ALTERS) && signals.modules().is_some() {
            signals.as_engine(|| definitions::check_before_alter(self.connection()))?;
        }
        Ok(())
    }

    /// Hands the statement of `sql` to `run`, prepared now or earlier, and clears its bindings
    /// afterwards.
    pub(crate) fn with<R>(
        &self,
        sql: &str,
        hooks: (&Signals, &Counts),
        run: impl FnOnce(&mut Statement<'_>, Traits) -> R,
    ) -> Result<R> {
        self.with_kept(&self.by_text, sql, hooks, run)
    }

    /// As [`Prepared::with`], for a statement in its second form.
    pub(crate) fn with_form<R>(
        &self,
        form: &str,
        hooks: (&Signals, &Counts),
        run: impl FnOnce(&mut Statement<'_>, Traits) -> R,
    ) -> Result<R> {
        self.with_kept(&self.forms, form, hooks, run)
    }

    #[inline]
    fn with_kept<R>(
        &self,
        kept: &RefCell<HashMap<Box<str>, Kept>>,
        sql: &str,
        (signals, counts): (&Signals, &Counts),
        run: impl FnOnce(&mut Statement<'_>, Traits) -> R,
    ) -> Result<R> {
        // Borrowed already: called from inside of `run`, by a function that maps rows.
        let Ok(mut kept) = kept.try_borrow_mut() else {
            let mut prepared = self.prepare_kept(sql, signals, counts)?;
            return Ok(self.deeply(|| prepared.run(signals, run)));
        };
        if let Some(statement) = kept.get_mut(sql) {
            if statement.never_sorts.is_none() {
                let program = self.program(&statement.statement, sql, signals, counts);
                statement.note_program(program, sql);
            }
            let result = statement.run(signals, run);
            if statement.is_changing() {
                kept.remove(sql);
            }
            return Ok(result);
        }
        let mut prepared = self.prepare_kept(sql, signals, counts)?;
        if !prepared.may_stay(self.may_write) {
            return Ok(self.deeply(|| prepared.run(signals, run)));
        }
        if kept.len() >= KEPT {
            kept.clear();
        }
        let statement = kept.entry(sql.into()).insert(prepared).into_mut();
        Ok(statement.run(signals, run))
    }

    fn prepare_kept(&self, sql: &str, signals: &Signals, counts: &Counts) -> Result<Kept> {
        let before = signals.take_all();
        signals.start_statement();
        let prepared = self.preparing(sql, signals, || self.prepare(sql));
        let verb = Verb::of(sql);
        let traits = signals.take_all().of_statement(verb);
        signals.add(before | traits);
        let statement = prepared?;
        let is_explain = statement.is_explain() != 0;
        let counted = signals.passes_of_statement();
        let program = self.program(&statement, sql, signals, counts);
        let mut kept = Kept {
            statement,
            traits,
            verb,
            is_explain,
            counted,
            passes: 0,
            never_sorts: None,
            program: 0,
        };
        kept.note_program(program, sql);
        Ok(kept)
    }

    /// What the program of `statement` does, whose text is `sql`. Of trusted SQL it is not asked.
    ///
    /// To explain a change has SQLite say that no row was changed, as if it had run: `None` where
    /// the transaction could be told that, and has changed some.
    pub(crate) fn program(
        &self,
        statement: &Statement<'_>,
        sql: &str,
        signals: &Signals,
        counts: &Counts,
    ) -> Option<Program> {
        if signals.modules().is_none() || statement.is_explain() != 0 {
            return Some(Program::UNASKED);
        }
        let may_ask = statement.readonly() || counts.changes(self.connection()) == 0;
        let explained = match may_ask {
            true => self.explain(sql, signals),
            false if sql.len() <= MEASURED => return None,
            false => self.explained_elsewhere(sql, signals),
        };
        Some(explained.unwrap_or_else(|| Program {
            passes: most_passes(statement, sql, u32::MAX),
            ..Program::UNASKED
        }))
    }

    /// The program of `sql` as far as another connection tells, which may be asked.
    fn explained_elsewhere(&self, sql: &str, signals: &Signals) -> Option<Program> {
        let dry_runs = self.dry_runs.as_ref()?;
        let cookie = self.cookie(signals).ok()?;
        let passes = dry_runs.passes(sql, cookie, signals.is_numbering())?;
        Some(Program { passes, ..Program::UNASKED })
    }

    /// How often the program of `statement`, which was prepared last and whose text is `sql`,
    /// passes over a value at most. A small one is not asked.
    pub(crate) fn passes_of(
        &self,
        statement: &Statement<'_>,
        sql: &str,
        signals: &Signals,
        counts: &Counts,
    ) -> u32 {
        let counted = signals.passes_of_statement();
        let is_large = sql.len() > MEASURED || is_large(statement, sql);
        let program = is_large.then(|| self.program(statement, sql, signals, counts)).flatten();
        program.map_or_else(|| most_passes(statement, sql, counted), |program| program.passes)
    }

    /// The program of `sql`, if SQLite tells. What is noted meanwhile is forgotten.
    pub(crate) fn explain(&self, sql: &str, signals: &Signals) -> Option<Program> {
        let before = signals.take_all();
        signals.start_statement();
        let program = self.deeply(|| signals.prepared(|| Program::of(self.connection(), sql)));
        signals.take_all();
        signals.add(before);
        program
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
            None => slot.insert(self.prepare(own.sql())?),
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
            None => kept.entry(sql.into()).insert(self.prepare(sql)?).into_mut(),
        };
        run(statement)
    }

    fn prepare(&self, sql: &str) -> Result<Statement<'static>> {
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

/// Refuses a statement for this reason.
fn refused(text: String) -> Result<()> {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_AUTH);
    Err(rusqlite::Error::SqliteFailure(code, Some(text)))
}

/// The first attempt to prepare a statement is no refusal of the next.
fn forget_attempt(signals: &Signals) {
    signals.take_denial();
    signals.note_failure();
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
    let (prepared, signals) = (
        Prepared::new(reader, false, Stack::new(crate::stack::TRUSTED).unwrap(), None),
        Signals::new(None),
    );
    let refused = || {
        let change = "INSERT INTO gone VALUES (1)";
        let ran = prepared
            .with(change, (&signals, &Counts::default()), |statement, _| statement.raw_execute());
        ran.and_then(|ran| ran).unwrap_err().to_string()
    };
    assert!(refused().contains("readonly"), "{}", refused());
    writer.execute_batch("ALTER TABLE gone RENAME TO other").unwrap();
    prepared.run_own(Own::Verify).unwrap();
    assert!(refused().contains("no such table"), "{}", refused());
}

#[test]
fn a_statement_that_is_prepared_again_may_sort() {
    let directory = tempfile::tempdir().unwrap();
    let open = || rusqlite::Connection::open(directory.path().join("test.db")).unwrap();
    let (other, mut connection) = (open(), open());
    other.execute_batch("CREATE TABLE t(x); CREATE TABLE u(x)").unwrap();
    let signals = Arc::new(Signals::new(Some(Vec::new())));
    let told = Arc::clone(&signals);
    let authorizer = move |context: AuthContext<'_>| told.authorize(&context, &|| false);
    connection.authorizer(Some(authorizer)).unwrap();
    let (prepared, counts) = (
        Prepared::new(connection, true, Stack::new(crate::stack::TRUSTED).unwrap(), None),
        Counts::default(),
    );
    let may_sort_behind = || {
        let sql = "INSERT INTO t VALUES (1)";
        let ran = prepared.with(sql, (&signals, &counts), |statement, _| {
            statement.raw_execute().unwrap();
            signals.may_sort()
        });
        ran.unwrap()
    };
    assert!(!may_sort_behind());
    assert!(!may_sort_behind());
    let sorts = "CREATE TRIGGER sorts AFTER INSERT ON t BEGIN
                     INSERT INTO u SELECT x FROM t ORDER BY x;
                 END";
    other.execute_batch(sorts).unwrap();
    assert!(may_sort_behind());
    // And from then on.
    assert!(may_sort_behind());
    signals.note_handed_out();
    other.execute_batch("DROP TRIGGER sorts").unwrap();
    prepared.forget_users();
    assert!(may_sort_behind(), "a statement that is handed out may run inside of it");
    signals.forget_passes();
    prepared.forget_users();
    assert!(may_sort_behind(), "behind a change it is not asked");
    assert!(may_sort_behind());
    counts.start(prepared.connection());
    assert!(!may_sort_behind());
}
