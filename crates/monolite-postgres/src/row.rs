//! Owns a row that was taken out of its engine.

use std::sync::Arc;

use monolite::rusqlite;
use monolite::{FromSql, Result, Value};
use rusqlite::types::{FromSqlError, ValueRef};

/// A row: the values of SQLite, with the names of their columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    names: Arc<[String]>,
    values: Vec<Value>,
}

impl Row {
    pub(crate) fn new(names: &Arc<[String]>, values: Vec<Value>) -> Row {
        Row { names: Arc::clone(names), values }
    }

    /// The value of a column, by its number from 0 or by its name, as `rusqlite` converts it.
    ///
    /// # Errors
    /// `Invalid` when there is no such column, or its value is none of type `T`.
    pub fn get<T: FromSql>(&self, column: impl Column) -> Result<T> {
        let at = column.find(&self.names)?;
        let value = &self.values[at];
        T::column_result(ValueRef::from(value)).map_err(|error| {
            let (name, of) = (self.names[at].clone(), value.data_type());
            let error = match error {
                FromSqlError::OutOfRange(number) => {
                    rusqlite::Error::IntegralValueOutOfRange(at, number)
                }
                FromSqlError::Other(error) => {
                    rusqlite::Error::FromSqlConversionFailure(at, of, error)
                }
                _ => rusqlite::Error::InvalidColumnType(at, name, of),
            };
            error.into()
        })
    }

    /// The names of the columns.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The values, as many as names.
    pub fn values(&self) -> &[Value] {
        &self.values
    }
}

/// What a column is named by: its number from 0, or its name.
pub trait Column {
    /// Its number among `names`.
    ///
    /// # Errors
    /// `Invalid` when it is not there.
    fn find(&self, names: &[String]) -> Result<usize>;
}

impl Column for usize {
    fn find(&self, names: &[String]) -> Result<usize> {
        let is_there = *self < names.len();
        is_there.then_some(*self).ok_or_else(|| rusqlite::Error::InvalidColumnIndex(*self).into())
    }
}

impl Column for &str {
    fn find(&self, names: &[String]) -> Result<usize> {
        let at = names.iter().position(|name| name.eq_ignore_ascii_case(self));
        at.ok_or_else(|| rusqlite::Error::InvalidColumnName((*self).to_owned()).into())
    }
}
