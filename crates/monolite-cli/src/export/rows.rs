//! Owns the rows: what a table's hold, how they are written, and their checksum.
//!
//! # Format
//! A row is a tuple of PostgreSQL's binary COPY: the count of its fields (16 bits), and for each
//! its length (32 bits, -1 for NULL) and bytes. PostgreSQL gives the same bytes back for the same
//! values, so both sides hash the same. The checksum of a table is the sum of its rows' 128-bit
//! hashes: it does not depend on the order, and a doubled row does not cancel out.

use super::kind::Kind;
use super::schema::Table;
use super::target::Target;
use super::translate::quoted;
use anyhow::Result;
use monolite::rusqlite::types::ValueRef;
use monolite::{ReadTx, Row};
use serde::Serialize;
use siphasher::sip128::{Hasher128 as _, SipHasher13};
use std::hash::Hasher as _;

/// The count of rows, and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) rows: u64,
    pub(super) hashes: u128,
}

impl Sum {
    /// Adds a row: a tuple as it is on the wire.
    pub(super) fn add(&mut self, tuple: &[u8]) {
        let mut hasher = SipHasher13::new();
        hasher.write(tuple);
        self.rows += 1;
        self.hashes = self.hashes.wrapping_add(hasher.finish128().as_u128());
    }
}

/// What the rows of a column hold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) integer: bool,
    pub(super) real: bool,
    pub(super) text: bool,
    pub(super) blob: bool,
    /// An integer that is none as a double.
    pub(super) is_beyond_double: bool,
}

/// 2^53: up to here each integer is a double.
const EXACT: u64 = 1 << 53;

/// Looks at all rows of a table.
pub(super) fn look(tx: &ReadTx<'_>, table: &Table) -> Result<Vec<Found>> {
    let names: Vec<String> = table.columns.iter().map(|column| quoted(&column.name)).collect();
    let mut found = vec![Found::default(); names.len()];
    let sql = format!("SELECT {} FROM {}", names.join(", "), quoted(&table.name));
    let mut statement = tx.prepare(&sql)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        for (at, found) in found.iter_mut().enumerate() {
            match row.get_ref(at)? {
                ValueRef::Null => {}
                ValueRef::Integer(value) => {
                    found.integer = true;
                    found.is_beyond_double |= value.unsigned_abs() > EXACT;
                }
                ValueRef::Real(_) => found.real = true,
                ValueRef::Text(_) => found.text = true,
                ValueRef::Blob(_) => found.blob = true,
            }
        }
    }
    Ok(found)
}

/// A value that PostgreSQL cannot take.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Refused {
    pub(super) table: String,
    pub(super) row: String,
    pub(super) column: String,
    pub(super) why: String,
}

/// How many of them are listed.
pub(super) const MOST_REFUSED: usize = 100;

/// Appends the tuple of a row to `out`, or says which column it cannot take, and why.
pub(super) fn tuple(
    row: &Row<'_>,
    target: &Target,
    out: &mut Vec<u8>,
) -> Result<Result<(), (usize, String)>> {
    let begin = out.len();
    let count = i16::try_from(target.columns.len())?;
    out.extend(count.to_be_bytes());
    for (at, column) in target.columns.iter().enumerate() {
        let value = row.get_ref(at)?;
        if let ValueRef::Text(text) = value
            && let Some(why) = unfit(text)
        {
            out.truncate(begin);
            return Ok(Err((at, why.into())));
        }
        match (column.kind, value) {
            (_, ValueRef::Null) => out.extend((-1_i32).to_be_bytes()),
            (Kind::Bigint, ValueRef::Integer(value)) => field(out, &value.to_be_bytes())?,
            #[expect(clippy::cast_precision_loss, reason = "it is exact up to here")]
            (Kind::Double, ValueRef::Integer(value)) if value.unsigned_abs() <= EXACT => {
                field(out, &(value as f64).to_be_bytes())?;
            }
            (Kind::Double, ValueRef::Real(value)) => field(out, &value.to_be_bytes())?,
            (Kind::Text, ValueRef::Text(value)) | (Kind::Bytea, ValueRef::Blob(value)) => {
                field(out, value)?;
            }
            (kind, value) => {
                out.truncate(begin);
                let held = value.data_type().to_string().to_lowercase();
                let why = format!("the {held} {}, and the column is {}", shown(value), kind.sql());
                return Ok(Err((at, why)));
            }
        }
    }
    Ok(Ok(()))
}

fn field(out: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    out.extend(i32::try_from(bytes.len())?.to_be_bytes());
    out.extend(bytes);
    Ok(())
}

/// Why a text cannot be one in PostgreSQL.
fn unfit(text: &[u8]) -> Option<&'static str> {
    if text.contains(&0) {
        return Some("a text with a NUL byte");
    }
    std::str::from_utf8(text).is_err().then_some("a text that is no UTF-8")
}

/// The fields of a tuple.
pub(super) fn fields(tuple: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = &tuple[2..];
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(i32::from_be_bytes(*length)).ok();
        let (field, behind) = behind.split_at(length.unwrap_or(0));
        rest = behind;
        Some(length.map(|_| field))
    })
}

/// A row's key as a user knows it, from the columns behind the others.
pub(super) fn key(row: &Row<'_>, target: &Target) -> String {
    let part = |(at, name): (usize, &String)| {
        let value = row.get_ref(target.columns.len() + at).unwrap_or(ValueRef::Null);
        format!("{name}={}", shown(value))
    };
    target.key.iter().enumerate().map(part).collect::<Vec<_>>().join(", ")
}

/// A value as a user knows it.
fn shown(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Integer(value) => value.to_string(),
        ValueRef::Real(value) => value.to_string(),
        ValueRef::Text(value) => format!("{:?}", String::from_utf8_lossy(value)),
        ValueRef::Blob(value) => format!("{value:02x?}"),
        ValueRef::Null => "NULL".into(),
    }
}
