//! Owns the values: SQLite's to PostgreSQL's parameters, and back from its columns.
//!
//! # Format
//! PostgreSQL infers the type of each parameter from the statement.
//!
//! | value | sent as | for parameters of type |
//! |---|---|---|
//! | integer, float, text | text, which PostgreSQL reads as its type | any but `bytea` |
//! | blob | bytes | `bytea` alone |
//! | NULL | NULL | any |
//!
//! So texts are JSON, UUIDs, timestamps and `numeric` where the column is; booleans are 0 and 1.
//! A text for an integer is refused by PostgreSQL unless it is a number.
//!
//! | column | value |
//! |---|---|
//! | `smallint`, `integer`, `bigint`, `oid`; `boolean` | integer; 0 and 1 |
//! | `real`, `double precision` | float |
//! | `text`, `varchar`, `char`, `name`, enums, `json`, `jsonb` | text |
//! | `bytea` | blob |
//! | `void` | NULL |
//!
//! All others are refused before the statement runs: `numeric` (what `sum` of `bigint` gives),
//! UUIDs, dates and times, arrays. `CAST(x AS TEXT)`, or `AS BIGINT`, says what the program wants.

use std::error::Error as StdError;

use monolite::Value;
use tokio_postgres::Statement;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{Format, FromSql, IsNull, Kind, ToSql, Type, to_sql_checked};

use crate::error::Failure;

/// A value as a parameter.
#[derive(Debug)]
pub(crate) struct Sent(pub(crate) Value);

/// A value out of a column.
pub(crate) struct Read(pub(crate) Value);

/// Checks what is known before a statement runs: its parameters and its columns.
///
/// # Errors
/// `Invalid`, with the remedy.
pub(crate) fn check(statement: &Statement, values: &[Sent]) -> Result<(), Failure> {
    for (number, (ty, value)) in statement.params().iter().zip(values).enumerate() {
        let is_bytes = *base(ty) == Type::BYTEA;
        let message = match &value.0 {
            Value::Blob(_) if !is_bytes => "is a blob, and the statement wants",
            Value::Integer(_) | Value::Real(_) | Value::Text(_) if is_bytes => {
                "is no blob, and the statement wants"
            }
            _ => continue,
        };
        return Err(Failure::not_sent(format!("parameter {} {message} {ty}", number + 1)));
    }
    match statement.columns().iter().find(|column| !Read::accepts(column.type_())) {
        Some(column) => Err(Failure::not_sent(format!(
            "the column {} is of type {}; CAST it to TEXT, BIGINT or DOUBLE PRECISION",
            column.name(),
            column.type_()
        ))),
        None => Ok(()),
    }
}

/// What a domain is of.
fn base(ty: &Type) -> &Type {
    match ty.kind() {
        Kind::Domain(inner) => base(inner),
        _ => ty,
    }
}

impl ToSql for Sent {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match &self.0 {
            Value::Null => return Ok(IsNull::Yes),
            Value::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
            // As many digits as tell it from its neighbours. PostgreSQL knows NaN and inf, too.
            Value::Real(number) => out.extend_from_slice(format!("{number:?}").as_bytes()),
            Value::Text(text) => out.extend_from_slice(text.as_bytes()),
            Value::Blob(bytes) => out.extend_from_slice(bytes),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        if matches!(self.0, Value::Blob(_)) { Format::Binary } else { Format::Text }
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Read {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Read, Box<dyn StdError + Sync + Send>> {
        let ty = base(ty);
        Ok(Read(match *ty {
            Type::BOOL => Value::Integer(bool::from_sql(ty, raw)?.into()),
            Type::INT2 => Value::Integer(i16::from_sql(ty, raw)?.into()),
            Type::INT4 => Value::Integer(i32::from_sql(ty, raw)?.into()),
            Type::INT8 => Value::Integer(i64::from_sql(ty, raw)?),
            Type::OID => Value::Integer(u32::from_sql(ty, raw)?.into()),
            Type::FLOAT4 => Value::Real(f32::from_sql(ty, raw)?.into()),
            Type::FLOAT8 => Value::Real(f64::from_sql(ty, raw)?),
            Type::BYTEA => Value::Blob(raw.to_vec()),
            Type::VOID => Value::Null,
            // A byte with the version of the format comes first.
            Type::JSONB => {
                Value::Text(std::str::from_utf8(raw.get(1..).unwrap_or_default())?.into())
            }
            _ => Value::Text(std::str::from_utf8(raw)?.into()),
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Read, Box<dyn StdError + Sync + Send>> {
        Ok(Read(Value::Null))
    }

    fn accepts(ty: &Type) -> bool {
        let ty = base(ty);
        let is_plain = matches!(
            *ty,
            Type::BOOL
                | Type::INT2
                | Type::INT4
                | Type::INT8
                | Type::OID
                | Type::FLOAT4
                | Type::FLOAT8
                | Type::BYTEA
                | Type::VOID
                | Type::JSON
                | Type::JSONB
                | Type::TEXT
                | Type::VARCHAR
                | Type::BPCHAR
                | Type::NAME
                | Type::UNKNOWN
        );
        is_plain || matches!(ty.kind(), Kind::Enum(_))
    }
}
