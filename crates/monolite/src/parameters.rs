//! Owns the parameters of a statement: as `rusqlite` takes them, and as values that are kept,
//! because a statement of an interactive transaction is run again at commit.

use std::hash::Hasher;

use monolite_sqlite::rusqlite;
use rusqlite::types::{ToSql, ToSqlOutput, Value};
use rusqlite::{Params, Rows, Statement};

use crate::error::{Error, Result};

/// Values bound to a statement, by position or by name.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// use monolite::{Parameters, Value};
/// # let db = monolite::Database::open(":memory:")?;
/// // Made at run time, as a filter that a user has composed.
/// let (sql, values) = ("SELECT ?1 + ?2", vec![Value::Integer(40), Value::Integer(2)]);
/// let parameters = Parameters::Positional(values);
/// let sum: i64 = db.read(|tx| tx.query_row(sql, &parameters, |row| row.get(0))).wait()?;
/// assert_eq!(sum, 42);
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Parameters {
    /// The first value is bound to `?1`.
    Positional(Vec<Value>),
    /// Each value is bound to the parameter of that name: `:id`, or `id` for `:id`, `@id` or `$id`.
    /// Every parameter needs a value, and every value a parameter. `?3` has the name `3`, `?` none.
    Named(Vec<(String, Value)>),
    /// As `Named`, and there may be values that the statement has no parameter for.
    Fields(Vec<(String, Value)>),
}

impl Parameters {
    /// Bytes that keeping them takes, about.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Parameters::Positional(values) => values.iter().map(value_bytes).sum(),
            Parameters::Named(values) | Parameters::Fields(values) => {
                values.iter().map(|(name, value)| name.len() + value_bytes(value)).sum()
            }
        }
    }

    /// Has `hasher` take them up.
    pub(crate) fn hash(&self, hasher: &mut impl Hasher) {
        let values: &mut dyn Iterator<Item = (&str, &Value)> = match self {
            Parameters::Positional(values) => &mut values.iter().map(|value| ("", value)),
            Parameters::Named(values) | Parameters::Fields(values) => {
                &mut values.iter().map(|(name, value)| (name.as_str(), value))
            }
        };
        for (name, value) in values {
            hasher.write(name.as_bytes());
            match value {
                Value::Null => hasher.write_u8(0),
                Value::Integer(number) => hasher.write_i64(*number),
                Value::Real(number) => hasher.write_u64(number.to_bits()),
                Value::Text(text) => hasher.write(text.as_bytes()),
                Value::Blob(blob) => hasher.write(blob),
            }
        }
    }

    /// Binds them; the names and the number of parameters must be those of the statement.
    pub(crate) fn bind(&self, statement: &mut Statement<'_>) -> rusqlite::Result<()> {
        match self {
            Parameters::Positional(values) => {
                let expected = statement.parameter_count();
                if values.len() != expected {
                    let given = values.len();
                    return Err(rusqlite::Error::InvalidParameterCount(given, expected));
                }
                for (i, value) in values.iter().enumerate() {
                    statement.raw_bind_parameter(i + 1, value)?;
                }
            }
            Parameters::Named(values) => {
                let is_used = bind_by_name(statement, values)?;
                if let Some(unknown) = is_used.iter().position(|is_used| !is_used) {
                    return Err(rusqlite::Error::InvalidParameterName(values[unknown].0.clone()));
                }
            }
            Parameters::Fields(values) => drop(bind_by_name(statement, values)?),
        }
        Ok(())
    }
}

/// Binds to each parameter the value of its name; which of the values were used. A parameter
/// without a value would be NULL, in a `WHERE` without a word.
fn bind_by_name(
    statement: &mut Statement<'_>,
    values: &[(String, Value)],
) -> rusqlite::Result<Vec<bool>> {
    let mut is_used = vec![false; values.len()];
    for index in 1..=statement.parameter_count() {
        let is_it = |(given, _): &(String, Value)| {
            let name = statement.parameter_name(index);
            name.is_some_and(|name| *given == name || Some(given.as_str()) == name.get(1..))
        };
        let Some(at) = values.iter().position(is_it) else {
            return Err(not_given(statement, index));
        };
        statement.raw_bind_parameter(index, &values[at].1)?;
        is_used[at] = true;
    }
    Ok(is_used)
}

fn not_given(statement: &Statement<'_>, index: usize) -> rusqlite::Error {
    let name = statement.parameter_name(index);
    let name = name.map_or_else(|| format!("number {index}, which has no name"), str::to_owned);
    let text = format!("the statement has a parameter {name}, and no value is given for it");
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_RANGE);
    rusqlite::Error::SqliteFailure(code, Some(text))
}

fn value_bytes(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::Text(text) => text.len(),
            Value::Blob(blob) => blob.len(),
            Value::Null | Value::Integer(_) | Value::Real(_) => 0,
        }
}

/// What can be the parameters of a statement in a closure ([`Tx`](crate::Tx)): every
/// `rusqlite::Params`, and [`Parameters`].
///
/// `()`, an array of one type, a tuple of up to sixteen, `&[&dyn ToSql]` (what
/// [`params!`](crate::params) makes), `&[(&str, &dyn ToSql)]` (what
/// [`named_params!`](crate::named_params) makes), and with the feature `serde` a struct by its
/// fields (`Parameters::from_struct`).
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// use monolite::{named_params, params};
/// # let db = monolite::Database::open(":memory:")?;
/// let sum: i64 = db
///     .read(|tx| {
///         let one: i64 = tx.query_row("SELECT ?1", [1], |row| row.get(0))?;
///         let two: i64 = tx.query_row("SELECT length(?1) + ?2", ("a", 1), |row| row.get(0))?;
///         let three: i64 = tx.query_row("SELECT ?1", params![3], |row| row.get(0))?;
///         let four = named_params! { ":n": 4 };
///         Ok(one + two + three + tx.query_row("SELECT :n", four, |row| row.get::<_, i64>(0))?)
///     })
///     .wait()?;
/// assert_eq!(sum, 10);
/// # db.close()
/// # }
/// ```
pub trait Bind {
    /// Binds the values and runs a statement that returns no rows; gives how many it changed.
    ///
    /// # Errors
    /// Those of `rusqlite`.
    fn execute(self, statement: &mut Statement<'_>) -> rusqlite::Result<usize>;

    /// Binds the values and runs a query.
    ///
    /// # Errors
    /// Those of `rusqlite`.
    fn query<'s>(self, statement: &'s mut Statement<'_>) -> rusqlite::Result<Rows<'s>>;
}

impl<P: Params> Bind for P {
    fn execute(self, statement: &mut Statement<'_>) -> rusqlite::Result<usize> {
        statement.execute(self)
    }

    fn query<'s>(self, statement: &'s mut Statement<'_>) -> rusqlite::Result<Rows<'s>> {
        statement.query(self)
    }
}

impl Bind for &Parameters {
    fn execute(self, statement: &mut Statement<'_>) -> rusqlite::Result<usize> {
        self.bind(statement)?;
        statement.raw_execute()
    }

    fn query<'s>(self, statement: &'s mut Statement<'_>) -> rusqlite::Result<Rows<'s>> {
        self.bind(statement)?;
        Ok(statement.raw_query())
    }
}

impl Bind for Parameters {
    fn execute(self, statement: &mut Statement<'_>) -> rusqlite::Result<usize> {
        (&self).execute(statement)
    }

    fn query<'s>(self, statement: &'s mut Statement<'_>) -> rusqlite::Result<Rows<'s>> {
        (&self).query(statement)
    }
}

/// What can be the parameters of a statement in a [`Transaction`](crate::Transaction): the same
/// forms as those of `rusqlite::Params`, copied, since the statement is run again at commit.
///
/// `()`, an array, a vector of one type, a tuple of up to twelve, `&[&dyn ToSql]` (what
/// [`params!`](crate::params) makes), and `&[(&str, &dyn ToSql)]` (what
/// [`named_params!`](crate::named_params) makes).
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// let sum = db.transact(async |tx| {
///     let one: i64 = tx.query_row("SELECT ?1", [1], |row| row.get(0)).await?;
///     let two = tx.query_row("SELECT length(?1) + ?2", ("a", 1), |row| row.get(0));
///     let two: i64 = two.await?;
///     Ok(one + two)
/// });
/// assert_eq!(sum.wait()?, 3);
/// # db.close()
/// # }
/// ```
pub trait IntoParameters {
    /// Copies the values.
    ///
    /// # Errors
    /// `Invalid` when a value cannot be put into a column.
    fn into_parameters(self) -> Result<Parameters>;
}

fn owned(value: &(impl ToSql + ?Sized)) -> Result<Value> {
    match value.to_sql().map_err(Error::from)? {
        ToSqlOutput::Owned(value) => Ok(value),
        ToSqlOutput::Borrowed(value) => {
            Value::try_from(value).map_err(|error| rusqlite::Error::from(error).into())
        }
        _ => {
            let message = "a parameter is neither a value nor borrowed from one".into();
            Err(rusqlite::Error::ToSqlConversionFailure(message).into())
        }
    }
}

fn positional<V: ToSql>(values: impl IntoIterator<Item = V>) -> Result<Parameters> {
    let values = values.into_iter().map(|value| owned(&value)).collect::<Result<_>>()?;
    Ok(Parameters::Positional(values))
}

impl IntoParameters for Parameters {
    fn into_parameters(self) -> Result<Parameters> {
        Ok(self)
    }
}

impl IntoParameters for () {
    fn into_parameters(self) -> Result<Parameters> {
        Ok(Parameters::Positional(Vec::new()))
    }
}

impl<V: ToSql, const N: usize> IntoParameters for [V; N] {
    fn into_parameters(self) -> Result<Parameters> {
        positional(self)
    }
}

impl<V: ToSql> IntoParameters for Vec<V> {
    fn into_parameters(self) -> Result<Parameters> {
        positional(self)
    }
}

impl IntoParameters for &[&dyn ToSql] {
    fn into_parameters(self) -> Result<Parameters> {
        positional(self)
    }
}

impl IntoParameters for &[(&str, &dyn ToSql)] {
    fn into_parameters(self) -> Result<Parameters> {
        let named = |(name, value): &(&str, &dyn ToSql)| Ok(((*name).to_owned(), owned(*value)?));
        Ok(Parameters::Named(self.iter().map(named).collect::<Result<_>>()?))
    }
}

impl<const N: usize> IntoParameters for &[(&str, &dyn ToSql); N] {
    fn into_parameters(self) -> Result<Parameters> {
        self.as_slice().into_parameters()
    }
}

macro_rules! tuples {
    ($(($($name:ident)+))+) => {$(
        impl<$($name: ToSql),+> IntoParameters for ($($name,)+) {
            fn into_parameters(self) -> Result<Parameters> {
                #[expect(non_snake_case, reason = "a name for each type and its value")]
                let ($($name,)+) = self;
                Ok(Parameters::Positional(vec![$(owned(&$name)?),+]))
            }
        }
    )+};
}

tuples! {
    (A)
    (A B)
    (A B C)
    (A B C D)
    (A B C D E)
    (A B C D E F)
    (A B C D E F G)
    (A B C D E F G H)
    (A B C D E F G H I)
    (A B C D E F G H I J)
    (A B C D E F G H I J K)
    (A B C D E F G H I J K L)
}

#[cfg(test)]
mod tests {
    use rusqlite::{named_params, params};

    use super::*;

    #[test]
    fn every_form_is_copied_in_order() {
        let expected =
            Parameters::Positional(vec![Value::Integer(1), Value::Text("a".into()), Value::Null]);
        assert_eq!((1, "a", None::<i64>).into_parameters().unwrap(), expected);
        assert_eq!(params![1, "a", None::<i64>].into_parameters().unwrap(), expected);
        assert_eq!(expected.clone().into_parameters().unwrap(), expected);
        let two = Parameters::Positional(vec![Value::Integer(1), Value::Integer(2)]);
        assert_eq!([1, 2].into_parameters().unwrap(), two);
        assert_eq!(vec![1, 2].into_parameters().unwrap(), two);
        assert_eq!(().into_parameters().unwrap(), Parameters::Positional(vec![]));
        let named = named_params! {":id": 7}.into_parameters().unwrap();
        assert_eq!(named, Parameters::Named(vec![(":id".into(), Value::Integer(7))]));
    }
}
