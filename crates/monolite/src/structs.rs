//! Owns rows as structs, structs as parameters and outcomes of keys as values, by their `serde`
//! implementations (feature `serde`): [`row`], [`fields`] and [`outcome`].
//!
//! # Format
//! | in Rust | in a column |
//! |---|---|
//! | integers, `f32`, `f64`, `String`, `char` | a number or a text; an integer is a float, too |
//! | `bool` | 0 and 1 |
//! | `Option` | NULL, or what it holds |
//! | a unit variant of an enum | its name, as a text |
//! | bytes (`serde_bytes`), also those of a text | a blob |
//! | a newtype | what it holds |
//!
//! Nothing else is in a column: a sequence or a struct in a struct is an error (`Invalid`).

mod fields;
mod outcome;
mod row;

use std::fmt;

use monolite_sqlite::rusqlite;
use rusqlite::Row;
use rusqlite::types::Type;
use serde::de::DeserializeOwned;
use serde::{Serialize, de, ser};

use crate::error::Result;
use crate::parameters::Parameters;
pub use outcome::{from_outcome, to_outcome};

/// Makes a struct of a row, by the names of its columns; a tuple by their order; and anything else
/// of the only column. It is a mapping for whatever takes one:
/// [`ReadTx::query_map`](crate::ReadTx::query_map),
/// [`Transaction::query_row`](crate::Transaction::query_row),
/// [`Database::read_stream`](crate::Database::read_stream).
///
/// Columns that the struct has no field for are left out. A field that has no column is an error,
/// unless it has `#[serde(default)]` or is an `Option`.
///
/// ```
/// use monolite::{Parameters, from_row};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct User {
///     id: i64,
///     name: String,
///     mail: Option<String>,
/// }
///
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// # let create = "CREATE TABLE user(id INTEGER PRIMARY KEY, name, mail)";
/// # db.write(move |tx| tx.execute_batch(create)).wait()?;
/// let ann = User { id: 1, name: "ann".into(), mail: None };
/// let row = Parameters::from_struct(&ann)?;
/// db.write(move |tx| tx.execute("INSERT INTO user VALUES (:id, :name, :mail)", &row)).wait()?;
/// let users: Vec<User> = db.read(|tx| tx.query_map("SELECT * FROM user", (), from_row)).wait()?;
/// assert_eq!(users, [ann]);
/// # db.close()
/// # }
/// ```
///
/// # Errors
/// A value that is of another type than the field, naming the column.
pub fn from_row<T: DeserializeOwned>(row: &Row<'_>) -> rusqlite::Result<T> {
    T::deserialize(row::RowDeserializer::new(row)).map_err(|problem| {
        // Which column it was is in the text.
        rusqlite::Error::FromSqlConversionFailure(usize::MAX, Type::Null, Box::new(problem))
    })
}

impl Parameters {
    /// The fields of a struct (or of a map with names for keys) as named parameters: a field `id`
    /// is bound to `:id`, `@id` and `$id`. The statement need not use every field; each of its
    /// parameters must be one.
    ///
    /// # Errors
    /// `Invalid` for a value that cannot be in a column, and for what is no struct.
    pub fn from_struct<S: Serialize + ?Sized>(of: &S) -> Result<Parameters> {
        let fields = of.serialize(fields::FieldsSerializer);
        let refused =
            |problem| rusqlite::Error::ToSqlConversionFailure(Box::<Problem>::new(problem));
        Ok(Parameters::Fields(fields.map_err(refused)?))
    }
}

/// What `serde` and the two here complain about.
#[derive(Debug)]
struct Problem(String);

impl Problem {
    fn new(message: impl fmt::Display) -> Problem {
        Problem(message.to_string())
    }

    /// With the column, or the field, in front.
    fn of(self, what: &str, name: &str) -> Problem {
        Problem(format!("{what} {name:?}: {}", self.0))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Problem {}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Problem {
        Problem::new(message)
    }

    fn missing_field(field: &'static str) -> Problem {
        Problem(format!(
            "the query has no column `{field}`; select it, or give the field #[serde(default)]"
        ))
    }
}

impl ser::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Problem {
        Problem::new(message)
    }
}

#[cfg(test)]
mod tests;
