//! Owns what a subscriber of `tracing` is told, with the feature of that name. Without it the types
//! are empty, and nothing is done.
//!
//! # Invariants
//! - A parameter is in no event. The text of a statement is only in those of slow calls.
//! - A subscriber that panics ends no thread of the engine.
//!
//! # Threads and locks
//! An event is made on the thread that knows it, which may have the writer's desk and nothing else.
//!
//! # Not here
//! Spans of the engine's own: `docs/decisions/calls-have-callers.md`.

#![cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "nothing is told"))]

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
#[cfg(feature = "tracing")]
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

#[cfg(feature = "tracing")]
use tracing::{Level, Span, event, event_enabled, level_filters::LevelFilter};

use super::{Activity, Caller};
#[cfg(feature = "tracing")]
use crate::clock::Stopwatch;
use crate::error::Error;

/// Makes an event, of a call of `caller` if there is one.
macro_rules! tell {
    ($target:literal, $level:ident, of $caller:expr, $($fields:tt)+) => {
        tell!($target, $level, kind = ?$caller.kind, name = $caller.name,
            place = $caller.place.map(|at| format!("{}:{}", at.file(), at.line())), $($fields)+)
    };
    ($target:literal, $level:ident, $($fields:tt)+) => {
        #[cfg(feature = "tracing")]
        quietly(|| event!(target: $target, Level::$level, $($fields)+));
    };
}

/// Tells of one database; a clone tells of the same.
#[derive(Clone, Default)]
pub(crate) struct Events {
    #[cfg(feature = "tracing")]
    database: Arc<OnceLock<String>>,
}

impl Events {
    /// Says which database it is.
    pub(crate) fn are_of(&self, path: &Path) {
        #[cfg(feature = "tracing")]
        let _ = self.database.set(path.display().to_string());
    }

    /// A call of `caller` was slow: its wait, its run, its sync, and its slowest statement.
    pub(crate) fn slow(&self, caller: Caller, times: [Duration; 3], sql: &str, longest: Duration) {
        tell!("monolite::slow", WARN, of caller, database = self.database.get(),
            wait_seconds = times[0].as_secs_f64(), run_seconds = times[1].as_secs_f64(),
            sync_seconds = times[2].as_secs_f64(), statement = sql,
            statement_seconds = longest.as_secs_f64(), "a call was slow");
    }

    /// `call` holds up others for longer than the limit of `on_slow`.
    pub(crate) fn held(&self, call: &Activity) {
        tell!("monolite::slow", WARN, of call.caller, database = self.database.get(),
            run_seconds = call.time.as_secs_f64(), statement = call.statement.as_deref(),
            statement_seconds = call.statement_time.as_secs_f64(), has_writer = call.has_writer,
            keeps_wal = call.keeps_wal, waiting = call.waiting, "a call holds up others");
    }

    /// A transaction of `caller` ended in a conflict.
    pub(crate) fn conflict(&self, caller: Caller, error: &Error) {
        tell!("monolite::conflict", DEBUG, of caller, database = self.database.get(),
            statement = error.conflicting_statement(), "a transaction conflicted");
    }

    /// Something that an operator should see.
    pub(crate) fn warn(&self, what: &str, detail: impl Display) {
        tell!("monolite::engine", WARN, database = self.database.get(), %detail, "{what}");
    }

    /// Something that an operator must act on.
    pub(crate) fn error(&self, what: &str, detail: impl Display) {
        tell!("monolite::engine", ERROR, database = self.database.get(), %detail, "{what}");
    }
}

/// Tells that a call of `caller` ended: its wait, its run, its sync, and how many rows it changed.
#[inline]
pub(crate) fn call(
    caller: Caller,
    times: impl FnOnce() -> [Duration; 3],
    changed_rows: Option<u64>,
    outcome: impl FnOnce() -> String,
) {
    #[cfg(feature = "tracing")]
    if event_enabled!(target: "monolite::call", Level::DEBUG) {
        let ([wait, run, sync], outcome) = (times().map(|time| time.as_secs_f64()), outcome());
        tell!("monolite::call", DEBUG, of caller, wait_seconds = wait, run_seconds = run,
            sync_seconds = sync, changed_rows, outcome, "a call ended");
    }
}

/// Tells that a call of `caller` was refused with `error`, which is returned.
pub(crate) fn refused(caller: Caller, error: Error) -> Error {
    call(caller, Default::default, None, || outcome(false, Some(&error)));
    error
}

/// How a call ended that succeeded if it `is_ok`, as far as is known, or failed with `error`.
pub(crate) fn outcome(is_ok: bool, error: Option<&Error>) -> String {
    let word = if is_ok { "Ok" } else { "Failed" };
    error.map_or_else(|| word.into(), |error| format!("{:?}", error.kind()))
}

/// How a call ended whose closure panicked.
pub(crate) fn panicked() -> String {
    "Panicked".into()
}

/// A call on its way to the thread that runs it, with the span in which it was made.
pub(crate) struct Call {
    #[cfg(feature = "tracing")]
    made: Option<Box<Made>>,
}

#[cfg(feature = "tracing")]
struct Made {
    caller: Caller,
    span: Span,
    at: Stopwatch,
    /// When its latest run began and ended, since then, and how many rows that changed.
    run: Option<(Duration, Duration, u64)>,
}

impl Call {
    /// One that `caller` makes on this thread.
    #[inline]
    pub(crate) fn new(caller: Caller) -> Call {
        #[cfg(feature = "tracing")]
        let made = || Made { caller, span: Span::current(), at: Stopwatch::start(), run: None };
        Call {
            #[cfg(feature = "tracing")]
            made: (LevelFilter::current() != LevelFilter::OFF).then(|| Box::new(made())),
        }
    }

    /// Runs `body` in the caller's span.
    #[inline]
    pub(crate) fn in_span<T>(&self, body: impl FnOnce() -> T) -> T {
        #[cfg(feature = "tracing")]
        let _entered = self.made.as_ref().map(|made| made.span.enter());
        body()
    }

    /// As [`Call::in_span`], and notes the times, and how many rows it has `changed`; catches its
    /// panic.
    #[inline]
    pub(crate) fn run<T>(
        &mut self,
        body: impl FnOnce() -> T,
        changed: impl FnOnce() -> u64,
    ) -> thread::Result<T> {
        #[cfg(feature = "tracing")]
        let began = self.made.as_ref().map(|made| made.at.elapsed());
        let result = catch_unwind(AssertUnwindSafe(|| self.in_span(body)));
        #[cfg(feature = "tracing")]
        if let Some((made, began)) = self.made.as_mut().zip(began) {
            made.run = Some((began, made.at.elapsed(), changed()));
        }
        result
    }

    /// Tells that it ended, once.
    #[inline]
    pub(crate) fn end(&mut self, outcome: impl FnOnce() -> String) {
        #[cfg(feature = "tracing")]
        if let Some(made) = self.made.take() {
            let times = || {
                let all = made.at.elapsed();
                let (began, ended, _) = made.run.unwrap_or((all, all, 0));
                [began, ended.saturating_sub(began), all.saturating_sub(ended)]
            };
            let rows = made.run.map(|(_, _, rows)| rows);
            quietly(|| made.span.in_scope(|| call(made.caller, times, rows, outcome)));
        }
    }
}

#[cfg(feature = "tracing")]
impl Drop for Call {
    fn drop(&mut self) {
        let made = self.made.take();
        quietly(|| drop(made));
    }
}

/// The panic hook has told of a panic; the engine goes on.
#[cfg(feature = "tracing")]
fn quietly(tell: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(tell));
}
