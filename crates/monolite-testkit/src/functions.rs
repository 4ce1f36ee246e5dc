//! Functions of an application, which checked transactions call: a deterministic scalar and an
//! aggregate, a collation, and a function that cannot be repeated.
//!
//! What they give is what SQLite's own would, so the models of the checkers know nothing of them.
//! One that promises to be deterministic and is not ([`Promise::Broken`]) must be noticed.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use monolite::rusqlite::functions::{Aggregate, Context, FunctionFlags};
use monolite::rusqlite::{Connection, Result};
use monolite::{Function, Options};

/// Whether `plus` is as deterministic as it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promise {
    /// It is.
    #[default]
    Kept,
    /// One call in this many gives something else.
    Broken(i64),
}

impl Promise {
    fn plus(self, calls: &AtomicI64, a: i64, b: i64) -> i64 {
        let call = calls.fetch_add(1, Relaxed);
        let is_wrong = matches!(self, Promise::Broken(rate) if call % rate == rate - 1);
        a + b + i64::from(is_wrong)
    }
}

/// The sum of integers; of none it is 0.
struct SumOf;

impl Aggregate<i64, i64> for SumOf {
    fn init(&self, _: &mut Context<'_>) -> Result<i64> {
        Ok(0)
    }

    fn step(&self, call: &mut Context<'_>, sum: &mut i64) -> Result<()> {
        *sum += call.get::<i64>(0)?;
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, sum: Option<i64>) -> Result<i64> {
        Ok(sum.unwrap_or(0))
    }
}

/// Texts in the order of the numbers that they are.
fn by_number(a: &str, b: &str) -> Ordering {
    a.parse::<i64>().ok().cmp(&b.parse().ok()).then_with(|| a.cmp(b))
}

/// A statement that no interactive transaction may run, as what it gives cannot be repeated.
pub const VOLATILE: &str = "SELECT drawn()";

/// `options` with the functions on every connection.
pub fn with_functions(options: Options, promise: Promise) -> Options {
    let calls = Arc::new(AtomicI64::new(0));
    options.connection_setup(move |connection| {
        let (kind, calls) = (Function::DETERMINISTIC, Arc::clone(&calls));
        let drawn = Arc::clone(&calls);
        connection.scalar("plus", 2, kind, move |call| {
            Ok(promise.plus(&calls, call.get(0)?, call.get(1)?))
        })?;
        connection.aggregate("sum_of", 1, kind, SumOf)?;
        connection
            .scalar("drawn", 0, Function::VOLATILE, move |_| Ok(drawn.fetch_add(1, Relaxed)))?;
        connection.collation("by_number", by_number)
    })
}

/// The same on a plain connection.
pub fn add_to_plain(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("plus", 2, flags, |call| {
        Ok(call.get::<i64>(0)? + call.get::<i64>(1)?)
    })?;
    connection.create_aggregate_function("sum_of", 1, flags, SumOf)?;
    connection.create_collation("by_number", by_number)
}
