//! Owns what is added to SQLite's own functions, collations and modules on every connection: by the
//! application, and by the engine ([`extras`]).
//!
//! # Invariants
//! - The application has no way to the connection itself: what it adds is called by SQLite, and
//!   changes nothing else of the connection.
//! - What SQLite, or the engine, has already is not replaced: `random()`, `changes()` and the like
//!   are part of what makes a statement repeatable. Extras may be.
//! - The authorizer knows the names of the application's functions and modules ([`Added`]): a
//!   statement that uses one has other inputs than pages.
//! - A collation that panics makes its transaction fail: SQLite has no error for it, and would go
//!   on with rows in some order, in an index, too.

pub(crate) mod extras;

use std::cell::RefCell;
use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::Arc;

use rusqlite::functions::{Aggregate, Context, FunctionFlags, WindowAggregate};
use rusqlite::types::ToSql;
use rusqlite::vtab::{Module, VTab};
use rusqlite::{Result, ffi};

use crate::added::{Added, Function};
use crate::authorizer::Authorizer;
use crate::codes::failure;
use crate::flag::Flag;

/// Adds an application's functions to a connection.
pub type Setup = Arc<dyn Fn(&ConnectionSetup<'_>) -> Result<()> + Send + Sync>;

/// A connection that is being opened, to which an application adds functions, collations and
/// modules.
///
/// Names are compared without regard to case. One that SQLite or the engine has already is refused.
pub struct ConnectionSetup<'c> {
    connection: &'c rusqlite::Connection,
    is_trusted: bool,
    panics: &'c Arc<Flag>,
    taken: Taken,
    added: RefCell<Added>,
}

/// SQLite's own. (`PRAGMA collation_list` also has names that the schema uses and no connection
/// defines.)
const COLLATIONS: [&str; 3] = ["BINARY", "NOCASE", "RTRIM"];

/// Names that are not to be had.
struct Taken {
    functions: Vec<String>,
    modules: Vec<String>,
}

impl Taken {
    fn on(connection: &rusqlite::Connection) -> Result<Taken> {
        let names = |sql: &str| -> Result<Vec<String>> {
            let mut statement = connection.prepare(sql)?;
            statement.query_map([], |row| row.get(0))?.collect()
        };
        Ok(Taken {
            functions: names("PRAGMA function_list")?,
            modules: names("PRAGMA module_list")?,
        })
    }
}

fn check(what: &str, name: &str, taken: &[String]) -> Result<()> {
    let problem = if name.is_empty() || name.contains('\0') {
        "a name is not empty and has no NUL inside"
    } else if taken.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        "SQLite or the engine has one of that name, which is not replaced; take another name"
    } else {
        return Ok(());
    };
    let text = format!("the {what} {name:?} cannot be added: {problem}");
    Err(failure(ffi::SQLITE_MISUSE, text))
}

impl ConnectionSetup<'_> {
    fn note_function(&self, name: &str, function: Function) -> Result<FunctionFlags> {
        check("function", name, &self.taken.functions)?;
        self.added.borrow_mut().note_function(name, function);
        Ok(function.flags(self.is_trusted))
    }

    /// Adds a scalar function of so many arguments, or of any number (-1). A panic in it is an
    /// error of the statement that calls it.
    ///
    /// # Errors
    /// A name that is taken; those of SQLite.
    pub fn scalar<F, T>(&self, name: &str, arguments: i32, kind: Function, body: F) -> Result<()>
    where
        F: Fn(&Context<'_>) -> Result<T> + Send + 'static,
        T: ToSql,
    {
        let flags = self.note_function(name, kind)?;
        // Older versions of `rusqlite` ask for this.
        let body = AssertUnwindSafe(Named { name: name.into(), body });
        let call = move |call: &Context<'_>| {
            let body = &body;
            body.0.catching(|body| body(call))
        };
        self.connection.create_scalar_function(name, arguments, flags, call)
    }

    /// Adds an aggregate function of so many arguments, or of any number (-1).
    ///
    /// # Errors
    /// As [`ConnectionSetup::scalar`].
    pub fn aggregate<A, D, T>(
        &self,
        name: &str,
        arguments: i32,
        kind: Function,
        body: D,
    ) -> Result<()>
    where
        A: RefUnwindSafe + UnwindSafe + Send,
        D: Aggregate<A, T> + Send + 'static,
        T: ToSql,
    {
        let flags = self.note_function(name, kind)?;
        let body = Named { name: name.into(), body };
        self.connection.create_aggregate_function(name, arguments, flags, body)
    }

    /// Adds an aggregate function that can be used with `OVER`, too.
    ///
    /// # Errors
    /// As [`ConnectionSetup::scalar`].
    pub fn window<A, W, T>(&self, name: &str, arguments: i32, kind: Function, body: W) -> Result<()>
    where
        A: RefUnwindSafe + UnwindSafe + Send,
        W: WindowAggregate<A, T> + Send + 'static,
        T: ToSql,
    {
        let flags = self.note_function(name, kind)?;
        let body = Named { name: name.into(), body };
        self.connection.create_window_function(name, arguments, flags, body)
    }

    /// Adds a collation: an order of texts, the same for ever. SQLite keeps indexes in it, so a
    /// database whose index was made in another order is damaged (`REINDEX` mends it), and other
    /// programs can use such an index only if they have the collation. A panic in it makes the
    /// transaction fail.
    ///
    /// # Errors
    /// As [`ConnectionSetup::scalar`].
    pub fn collation<C>(&self, name: &str, order: C) -> Result<()>
    where
        C: Fn(&str, &str) -> Ordering + Send + 'static,
    {
        check("collation", name, &COLLATIONS.map(String::from))?;
        let panics = Arc::clone(self.panics);
        let order = AssertUnwindSafe(order);
        let order = move |a: &str, b: &str| {
            let order = &order;
            let compared = catch_unwind(AssertUnwindSafe(|| (order.0)(a, b)));
            compared.unwrap_or_else(|_| {
                panics.set(true);
                Ordering::Equal
            })
        };
        self.connection.create_collation(name, order)
    }

    /// Adds a module of virtual tables. They are to be read only, and give the same for the same
    /// arguments: what a module keeps is no part of a transaction. A panic in it ends the process.
    /// Untrusted queries cannot use it.
    ///
    /// # Errors
    /// As [`ConnectionSetup::scalar`].
    pub fn module<T>(
        &self,
        name: &str,
        module: &'static Module<'static, T>,
        aux: Option<T::Aux>,
    ) -> Result<()>
    where
        T: VTab<'static>,
    {
        check("module", name, &self.taken.modules)?;
        self.added.borrow_mut().note_module(name);
        self.connection.create_module(name, module, aux)
    }
}

/// A function of the application whose panic is an error that names it.
struct Named<F> {
    name: String,
    body: F,
}

impl<F> Named<F> {
    fn catching<R>(&self, run: impl FnOnce(&F) -> Result<R>) -> Result<R> {
        let ran = catch_unwind(AssertUnwindSafe(|| run(&self.body)));
        ran.unwrap_or_else(|_| {
            let text = format!(
                "the function {}() of the application (Options::connection_setup) panicked, so its \
                 statement has failed; correct it, or have it return an error",
                self.name
            );
            Err(failure(ffi::SQLITE_ERROR, text))
        })
    }
}

impl<A, T, D> Aggregate<A, T> for Named<D>
where
    A: RefUnwindSafe + UnwindSafe,
    T: ToSql,
    D: Aggregate<A, T>,
{
    fn init(&self, call: &mut Context<'_>) -> Result<A> {
        self.catching(|body| body.init(call))
    }

    fn step(&self, call: &mut Context<'_>, so_far: &mut A) -> Result<()> {
        self.catching(|body| body.step(call, so_far))
    }

    fn finalize(&self, call: &mut Context<'_>, so_far: Option<A>) -> Result<T> {
        self.catching(|body| body.finalize(call, so_far))
    }
}

impl<A, T, W> WindowAggregate<A, T> for Named<W>
where
    A: RefUnwindSafe + UnwindSafe,
    T: ToSql,
    W: WindowAggregate<A, T>,
{
    fn value(&self, so_far: Option<&mut A>) -> Result<T> {
        self.catching(|body| body.value(so_far))
    }

    fn inverse(&self, call: &mut Context<'_>, so_far: &mut A) -> Result<()> {
        self.catching(|body| body.inverse(call, so_far))
    }
}

/// Adds the extras and what the application's `setup` adds to a connection that was just opened.
///
/// # Errors
/// Those of `setup`, and those of SQLite.
pub(crate) fn add_to(
    connection: &rusqlite::Connection,
    authorizer: &Authorizer,
    panics: &Arc<Flag>,
    setup: Option<&Setup>,
) -> Result<()> {
    let is_trusted = authorizer.query_rules.is_none();
    let Some(setup) = setup else { return extras::add_to(connection, is_trusted) };
    let taken = Taken::on(connection)?;
    extras::add_to(connection, is_trusted)?;
    let added = RefCell::default();
    let additions = ConnectionSetup { connection, is_trusted, panics, taken, added };
    setup(&additions)?;
    // A connection is set up once.
    let _ = authorizer.added.set(additions.added.into_inner());
    Ok(())
}
