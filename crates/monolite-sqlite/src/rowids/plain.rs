//! Owns how a checker has plain SQLite choose the numbers that the engine has given out, so that it
//! can compare all that a statement does and says.

use std::sync::Arc;

use rusqlite::Result;

use super::insert::Insert;
use super::table::Second;
use super::{Counter, GivenRowids, Giver, Numbers, Rowids};

/// The table into which a simple `INSERT` inserts, as SQLite compares its name.
pub fn inserted_into(sql: &str) -> Option<String> {
    Insert::read(sql).map(|insert| insert.table.to_ascii_lowercase())
}

/// The numbers of a connection that is not the engine's.
#[derive(Debug)]
pub struct PlainNumbers {
    giver: Arc<Giver>,
}

impl PlainNumbers {
    /// Gives `connection` the function by which rows are numbered.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn install(connection: &rusqlite::Connection) -> Result<PlainNumbers> {
        let giver = Giver::install(connection, &Arc::new(Rowids::new()), false)?;
        Ok(PlainNumbers { giver })
    }

    /// Has `run` run `sql` as a text that uses the numbers that were `given`. SQLite chooses where
    /// there are none, where another row has one, or with another schema.
    pub fn with<R>(
        &self,
        connection: &rusqlite::Connection,
        sql: &str,
        given: Option<GivenRowids>,
        run: impl FnOnce(&str) -> R,
    ) -> R {
        let second = || Second::of(connection, sql).ok().flatten();
        let Some((given, second)) = given.and_then(|given| Some((given, second()?))) else {
            return run(sql);
        };
        let ends = [given.first(), given.last()];
        match connection.query_row(&second.is_taken, ends, |row| row.get::<_, bool>(0)) {
            // Of an `ON CONFLICT` that cannot come, SQLite looks at the names where there is a key.
            Ok(false) if connection.prepare(&second.text).is_ok() => {
                let unused = Arc::new(Counter::new());
                self.giver.during(&unused, Numbers::Again(given), || run(&second.text)).0
            }
            _ => run(sql),
        }
    }
}
