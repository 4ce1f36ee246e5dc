//! Owns the comparison of views: whether both engines answer the same over the same rows. What an
//! expression means there is known for some, and the rest is seen here.

use super::Progress;
use super::postgres::Postgres;
use super::report::{Item, Report, Verdict, joined};
use super::rows::{self, Sum};
use super::translate::quoted;
use anyhow::Result;
use monolite::rusqlite::types::ValueRef;
use monolite::{Database, ReadTx};
use std::time::Duration;

/// How long each side may take for a view.
const PATIENCE: Duration = Duration::from_secs(60);

/// Compares the views that `report` has as carried, and notes there which differ. `db` has the rows
/// that PostgreSQL has, and none is written meanwhile.
pub(super) fn compare(
    db: &Database,
    postgres: &Postgres,
    report: &mut Report,
    progress: &mut Progress<'_>,
) -> Result<()> {
    for Item { name, note, verdict, .. } in report.0.iter_mut().filter(|it| it.is_view()) {
        progress.at(name, 0)?;
        let Some(types) = postgres.types(name)? else {
            (*verdict, *note) = (Verdict::Lost, "PostgreSQL does not have it".into());
            continue;
        };
        let there = postgres.answers(name, &query(name, &types), add, PATIENCE, progress)?;
        let db = db.with_time_limit(PATIENCE).with_error();
        let here = || db.read(|tx| answers(tx, name, &types)).wait();
        let seen = match there {
            Err(error) => format!("not compared: PostgreSQL does not answer it: {error:#}"),
            Ok(there) => match here() {
                Err(error) => format!("not compared: SQLite does not answer it: {error:#}"),
                Ok(here) if here == there => continue,
                Ok(Sum { rows, .. }) if rows == there.rows => {
                    format!("it answers otherwise: {rows} rows, some with other values")
                }
                Ok(Sum { rows, .. }) => {
                    let there = there.rows;
                    format!("it answers otherwise: {rows} rows here, and {there} in PostgreSQL")
                }
            },
        };
        (*verdict, *note) = (Verdict::Changed, joined(note, &seen));
    }
    Ok(())
}

/// Asks PostgreSQL for the values of a view as texts, behind a letter for what they are.
fn query(view: &str, types: &str) -> String {
    let values = types.split(',').enumerate().map(|(at, name)| match name {
        "boolean" => format!("'n' || c{at}::int"),
        name if is_integer(name) => format!("'n' || c{at}::text"),
        "numeric" | "double precision" | "real" => format!("'r' || c{at}::text"),
        "bytea" => format!("'b' || encode(c{at}, 'hex')"),
        _ => format!("'t' || c{at}::text"),
    });
    let values: Vec<String> = values.collect();
    let names: Vec<String> = (0..values.len()).map(|at| format!("c{at}")).collect();
    format!("SELECT {} FROM {} AS v({})", values.join(", "), quoted(view), names.join(", "))
}

/// Adds a row as PostgreSQL gives it.
fn add(sum: &mut Sum, tuple: &[u8]) {
    let mut row = Vec::new();
    for field in rows::fields(tuple) {
        match field.and_then(<[u8]>::split_first) {
            Some((b'r', text)) => {
                let value = String::from_utf8_lossy(text).parse().unwrap_or(f64::NAN);
                put(&mut row, b'n', real(value).as_bytes());
            }
            Some((kind, value)) => put(&mut row, *kind, value),
            None => put(&mut row, b'0', b""),
        }
    }
    sum.add(&row);
}

/// Whether PostgreSQL's type has integers alone, which are compared exactly.
fn is_integer(kind: &str) -> bool {
    matches!(kind, "bigint" | "integer" | "smallint")
}

#[expect(clippy::cast_precision_loss, reason = "PostgreSQL has a fraction there")]
fn answers(tx: &ReadTx<'_>, view: &str, types: &str) -> Result<Sum> {
    let are_exact: Vec<bool> = types.split(',').map(is_integer).collect();
    let mut statement = tx.prepare(&format!("SELECT * FROM {}", quoted(view)))?;
    let (count, mut sum, mut tuple) = (statement.column_count(), Sum::default(), Vec::new());
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        tuple.clear();
        for at in 0..count {
            match row.get_ref(at)? {
                ValueRef::Null => put(&mut tuple, b'0', b""),
                ValueRef::Integer(value) => {
                    let is_exact = are_exact.get(at).is_none_or(|exact| *exact);
                    let text = if is_exact { value.to_string() } else { real(value as f64) };
                    put(&mut tuple, b'n', text.as_bytes());
                }
                ValueRef::Real(value) => put(&mut tuple, b'n', real(value).as_bytes()),
                ValueRef::Text(value) => put(&mut tuple, b't', value),
                ValueRef::Blob(value) => {
                    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
                    put(&mut tuple, b'b', hex.as_bytes());
                }
            }
        }
        sum.add(&tuple);
    }
    Ok(sum)
}

fn put(row: &mut Vec<u8>, kind: u8, value: &[u8]) {
    row.push(kind);
    row.extend((value.len() as u64).to_be_bytes());
    row.extend_from_slice(value);
}

/// A real has twelve digits: the order of a sum changes the last ones. One that is an integer then
/// is written as one.
#[expect(clippy::cast_possible_truncation, reason = "it is in the range")]
fn real(value: f64) -> String {
    let text = format!("{value:.11e}");
    let rounded: f64 = text.parse().unwrap_or(value);
    let is_whole = rounded.trunc() == rounded && rounded.abs() < 1e12;
    if is_whole { (rounded as i64).to_string() } else { text }
}
