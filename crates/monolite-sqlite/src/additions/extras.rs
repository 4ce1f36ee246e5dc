//! Owns the functions that the engine adds to SQLite's own, as the `sqlite3` shell does:
//! mathematical ones where the library is built without them, `generate_series`, and `regexp` with
//! the feature `regexp`.
//!
//! All of them are functions of their arguments alone. The mathematical ones answer as SQLite's do:
//! NULL for what is no number, and where there is no result.

use std::ffi::{CStr, c_int};

#[cfg(feature = "regexp")]
use rusqlite::functions::{Context, FunctionFlags};
#[cfg(feature = "regexp")]
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Result, ffi};

use crate::functions::{self, Call};

/// A mathematical function.
enum Of {
    Nothing(f64),
    One(fn(f64) -> f64),
    /// One that leaves an integer as it is.
    Real(fn(f64) -> f64),
    Two(fn(f64, f64) -> f64),
}

impl Of {
    fn arguments(&self) -> c_int {
        match self {
            Of::Nothing(_) => 0,
            Of::One(_) | Of::Real(_) => 1,
            Of::Two(_) => 2,
        }
    }

    fn calculate(&self, call: &Call<'_>) {
        let result = match self {
            Of::Nothing(constant) => Some(*constant),
            Of::Real(_) if call.is_integer(0) => return call.return_argument(0),
            Of::One(of) | Of::Real(of) => call.real(0).map(of),
            Of::Two(of) => call.real(0).zip(call.real(1)).map(|(x, y)| of(x, y)),
        };
        if let Some(result) = result {
            call.return_real(result);
        }
    }
}

static MATHEMATICS: &[(&CStr, Of)] = &[
    (c"acos", Of::One(f64::acos)),
    (c"acosh", Of::One(f64::acosh)),
    (c"asin", Of::One(f64::asin)),
    (c"asinh", Of::One(f64::asinh)),
    (c"atan", Of::One(f64::atan)),
    (c"atan2", Of::Two(f64::atan2)),
    (c"atanh", Of::One(f64::atanh)),
    (c"ceil", Of::Real(f64::ceil)),
    (c"ceiling", Of::Real(f64::ceil)),
    (c"cos", Of::One(f64::cos)),
    (c"cosh", Of::One(f64::cosh)),
    (c"degrees", Of::One(|x| x * (180.0 / std::f64::consts::PI))),
    (c"exp", Of::One(f64::exp)),
    (c"floor", Of::Real(f64::floor)),
    (c"ln", Of::One(logarithm_e)),
    (c"log", Of::One(logarithm_10)),
    (c"log", Of::Two(|base, x| logarithm_e(x) / if base > 0.0 { base.ln() } else { f64::NAN })),
    (c"log10", Of::One(logarithm_10)),
    (c"log2", Of::One(logarithm_2)),
    (c"mod", Of::Two(|x, y| x % y)),
    (c"pi", Of::Nothing(std::f64::consts::PI)),
    (c"pow", Of::Two(f64::powf)),
    (c"power", Of::Two(f64::powf)),
    (c"radians", Of::One(|x| x * (std::f64::consts::PI / 180.0))),
    (c"sin", Of::One(f64::sin)),
    (c"sinh", Of::One(f64::sinh)),
    (c"sqrt", Of::One(f64::sqrt)),
    (c"tan", Of::One(f64::tan)),
    (c"tanh", Of::One(f64::tanh)),
    (c"trunc", Of::Real(f64::trunc)),
];

/// Of nothing that is not positive: SQLite gives NULL, where C gives minus infinity for 0.
fn logarithm_e(x: f64) -> f64 {
    if x > 0.0 { x.ln() } else { f64::NAN }
}

fn logarithm_10(x: f64) -> f64 {
    if x > 0.0 { x.log10() } else { f64::NAN }
}

fn logarithm_2(x: f64) -> f64 {
    if x > 0.0 { x.log2() } else { f64::NAN }
}

/// Adds them; `regexp` only where SQL `is_trusted`: one call of it can take seconds.
///
/// # Errors
/// Those of SQLite.
pub(crate) fn add_to(connection: &Connection, is_trusted: bool) -> Result<()> {
    // SAFETY: the name is a C string, and SQLite only compares it.
    let has_mathematics =
        unsafe { ffi::sqlite3_compileoption_used(c"ENABLE_MATH_FUNCTIONS".as_ptr()) } != 0;
    if !has_mathematics {
        add_mathematics(connection)?;
    }
    rusqlite::vtab::series::load_module(connection)?;
    #[cfg(feature = "regexp")]
    if is_trusted {
        let pure = FunctionFlags::SQLITE_UTF8
            | FunctionFlags::SQLITE_DETERMINISTIC
            | FunctionFlags::SQLITE_INNOCUOUS;
        connection.create_scalar_function("regexp", 2, pure, regexp)?;
    }
    #[cfg(not(feature = "regexp"))]
    let _ = is_trusted;
    Ok(())
}

fn add_mathematics(connection: &Connection) -> Result<()> {
    let flags = ffi::SQLITE_DETERMINISTIC | ffi::SQLITE_INNOCUOUS;
    MATHEMATICS.iter().try_for_each(|(name, of)| {
        functions::add(connection, name, of.arguments(), flags, move |call| of.calculate(call))
    })
}

/// `text REGEXP pattern`, which SQLite calls with the pattern first: whether it is found in the
/// text. The compiled pattern is kept while the statement runs.
#[cfg(feature = "regexp")]
fn regexp(call: &Context<'_>) -> Result<Option<bool>> {
    use regex_lite::{Regex, RegexBuilder};

    /// Bytes of a compiled pattern: far more than one that was written by hand.
    const MOST_BYTES: usize = 1 << 20;

    let text = match call.get_raw(1) {
        ValueRef::Null => return Ok(None),
        ValueRef::Text(text) => String::from_utf8_lossy(text),
        _ => call.get::<Value>(1).map(shown)?.into(),
    };
    let compile = |pattern: ValueRef<'_>| {
        let pattern = pattern.as_str()?;
        let compiled = RegexBuilder::new(pattern).size_limit(MOST_BYTES).build();
        compiled.map_err(|error| format!("the pattern {pattern:?} cannot be used: {error}").into())
    };
    if let ValueRef::Null = call.get_raw(0) {
        return Ok(None);
    }
    let pattern: std::sync::Arc<Regex> = call
        .get_or_create_aux(0, |pattern| -> Result<_, Box<dyn std::error::Error + Send + Sync>> {
            compile(pattern)
        })?;
    Ok(Some(pattern.is_match(&text)))
}

/// A value that is no text as the text that SQLite makes of it.
#[cfg(feature = "regexp")]
fn shown(value: Value) -> String {
    match value {
        Value::Integer(x) => x.to_string(),
        Value::Real(x) => format!("{x:?}"),
        Value::Blob(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::Text(text) => text,
        Value::Null => String::new(),
    }
}
