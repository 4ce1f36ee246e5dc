//! Owns the functions that the engine adds to SQLite's own, as the `sqlite3` shell does:
//! mathematical ones where the library is built without them, `generate_series`, and `regexp` with
//! the feature `regexp`.
//!
//! All of them are functions of their arguments alone. The mathematical ones answer as SQLite's do:
//! NULL for what is no number, and where there is no result.

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Result, ffi};

const SERIES: &str = "generate_series";

/// A mathematical function of one number.
type Of1 = fn(f64) -> f64;

const OF_1: &[(&str, Of1)] = &[
    ("acos", f64::acos),
    ("acosh", f64::acosh),
    ("asin", f64::asin),
    ("asinh", f64::asinh),
    ("atan", f64::atan),
    ("atanh", f64::atanh),
    ("cos", f64::cos),
    ("cosh", f64::cosh),
    ("degrees", |x| x * (180.0 / std::f64::consts::PI)),
    ("exp", f64::exp),
    ("ln", logarithm_e),
    ("log", logarithm_10),
    ("log10", logarithm_10),
    ("log2", logarithm_2),
    ("radians", |x| x * (std::f64::consts::PI / 180.0)),
    ("sin", f64::sin),
    ("sinh", f64::sinh),
    ("sqrt", f64::sqrt),
    ("tan", f64::tan),
    ("tanh", f64::tanh),
];

/// Those that leave an integer as it is.
const ROUNDING: &[(&str, Of1)] =
    &[("ceil", f64::ceil), ("ceiling", f64::ceil), ("floor", f64::floor), ("trunc", f64::trunc)];

/// A mathematical function of two numbers.
type Of2 = fn(f64, f64) -> f64;

const OF_2: &[(&str, Of2)] = &[
    ("atan2", f64::atan2),
    ("log", |base, x| logarithm_e(x) / if base > 0.0 { base.ln() } else { f64::NAN }),
    ("mod", |x, y| x % y),
    ("pow", f64::powf),
    ("power", f64::powf),
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

/// Adds them. Where SQL is not trusted, which may use `modules`, `generate_series` is one of those,
/// and there is no `regexp`: one call of it can take seconds.
///
/// # Errors
/// Those of SQLite.
pub(crate) fn add_to(connection: &Connection, modules: Option<&[String]>) -> Result<()> {
    // SAFETY: the name is a C string, and SQLite only compares it.
    let has_mathematics =
        unsafe { ffi::sqlite3_compileoption_used(c"ENABLE_MATH_FUNCTIONS".as_ptr()) } != 0;
    if !has_mathematics {
        add_mathematics(connection)?;
    }
    let is_kept = |kept: &[String]| kept.iter().any(|known| known.eq_ignore_ascii_case(SERIES));
    if modules.is_none_or(is_kept) {
        rusqlite::vtab::series::load_module(connection)?;
    }
    #[cfg(feature = "regexp")]
    if modules.is_none() {
        connection.create_scalar_function("regexp", 2, pure(), regexp)?;
    }
    Ok(())
}

fn pure() -> FunctionFlags {
    FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS
}

fn add_mathematics(connection: &Connection) -> Result<()> {
    for (name, of) in OF_1 {
        let body = move |call: &Context<'_>| Ok(number(call, 0).map(of));
        connection.create_scalar_function(*name, 1, pure(), body)?;
    }
    for (name, of) in ROUNDING {
        let body = move |call: &Context<'_>| {
            Ok(match value(call, 0) {
                Value::Real(x) => Value::Real(of(x)),
                integer_or_null => integer_or_null,
            })
        };
        connection.create_scalar_function(*name, 1, pure(), body)?;
    }
    for (name, of) in OF_2 {
        let body = move |call: &Context<'_>| {
            let both = number(call, 0).zip(number(call, 1));
            Ok(both.map(|(x, y)| of(x, y)))
        };
        connection.create_scalar_function(*name, 2, pure(), body)?;
    }
    connection.create_scalar_function("pi", 0, pure(), |_| Ok(std::f64::consts::PI))
}

/// The argument as a number; NULL when it is none.
fn value(call: &Context<'_>, index: usize) -> Value {
    match call.get_raw(index) {
        ValueRef::Integer(x) => Value::Integer(x),
        ValueRef::Real(x) => Value::Real(x),
        ValueRef::Text(text) => std::str::from_utf8(text).map_or(Value::Null, numeric),
        ValueRef::Null | ValueRef::Blob(_) => Value::Null,
    }
}

fn number(call: &Context<'_>, index: usize) -> Option<f64> {
    match value(call, index) {
        #[expect(clippy::cast_precision_loss, reason = "as SQLite does")]
        Value::Integer(x) => Some(x as f64),
        Value::Real(x) => Some(x),
        _ => None,
    }
}

/// A text that is a number, as SQLite's literals are.
fn numeric(text: &str) -> Value {
    let text = text.trim_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    if !is_plain {
        return Value::Null;
    }
    let integer = text.parse().map(Value::Integer);
    integer.or_else(|_| text.parse().map(Value::Real)).unwrap_or(Value::Null)
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
