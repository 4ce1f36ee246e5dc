//! Owns the reference: stock SQLite of the same build, on a file of its own, without Monolite.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use monolite::rusqlite::Connection;
use monolite_sqlite::{GivenRowids, PlainNumbers};

use super::ask::{Way, ask};
use super::content::{Content, content};
use super::said::Said;
use super::statement::Statement;

/// Plain SQLite with one connection.
pub(crate) struct Plain {
    connection: Connection,
    /// Has it choose the numbers that Monolite has given out.
    numbers: PlainNumbers,
    path: PathBuf,
    way: Way,
    /// The statements of the open block so far, with the numbers of their rows.
    block: Option<Vec<(Statement, Option<GivenRowids>)>>,
}

impl Plain {
    /// Creates an empty database at `path`.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn create(path: &Path, way: Way) -> Result<Plain> {
        let connection = connect(path)?;
        // A database of Monolite has its first page from the start, as every one in WAL mode.
        connection.execute_batch("PRAGMA user_version = 0")?;
        let numbers = PlainNumbers::install(&connection)?;
        Ok(Plain { connection, numbers, path: path.to_owned(), way, block: None })
    }

    /// Runs a statement that stands alone, or in the block that is open.
    pub(crate) fn say(&mut self, statement: &Statement) -> Said {
        self.say_numbered(statement, None)
    }

    /// As [`Plain::say`], with the numbers that its rows were given.
    pub(crate) fn say_numbered(
        &mut self,
        statement: &Statement,
        given: Option<GivenRowids>,
    ) -> Said {
        if let Some(block) = &mut self.block {
            block.push((statement.clone(), given));
        }
        ask_numbered((&self.connection, &self.numbers), statement, given, self.way)
    }

    /// Opens a block; `begin` is missing when a savepoint opens it.
    pub(crate) fn begin(&mut self, begin: Option<&Statement>) -> Said {
        self.block = Some(Vec::new());
        begin.map_or_else(Said::default, |begin| self.say(begin))
    }

    /// Ends the block. When that fails, or the script has no end for it, it is rolled back.
    pub(crate) fn end(&mut self, end: Option<&Statement>) -> Said {
        self.block = None;
        let said = end.map_or_else(Said::default, |end| self.say(end));
        if !self.connection.is_autocommit() {
            // A rollback that fails leaves the transaction open, which the next block reports.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        said
    }

    /// What it would say to `statement`, asked of a copy that is then thrown away.
    ///
    /// # Errors
    /// When the copy cannot be made.
    pub(crate) fn would_say(&self, statement: &Statement) -> Result<Said> {
        let path = self.path.with_extension("aside");
        fs::copy(&self.path, &path).context("cannot copy the reference")?;
        let connection = connect(&path)?;
        let numbers = PlainNumbers::install(&connection)?;
        for (earlier, given) in self.block.iter().flatten() {
            ask_numbered((&connection, &numbers), earlier, *given, self.way);
        }
        let said = ask(&connection, statement, self.way);
        drop(connection);
        fs::remove_file(&path).context("cannot remove the copy of the reference")?;
        Ok(said)
    }

    /// Everything that it holds.
    pub(crate) fn content(&self) -> Content {
        content(&self.connection)
    }
}

fn ask_numbered(
    (connection, numbers): (&Connection, &PlainNumbers),
    statement: &Statement,
    given: Option<GivenRowids>,
    way: Way,
) -> Said {
    numbers.with(connection, &statement.sql, given, |sql| {
        if sql == &*statement.sql {
            return ask(connection, statement, way);
        }
        ask(connection, &Statement::new(statement.line, sql), way)
    })
}

/// What plain SQLite finds in the file at `path`.
///
/// # Errors
/// When it cannot be opened.
pub(crate) fn content_of_file(path: &Path) -> Result<Content> {
    Ok(content(&Connection::open(path)?))
}

fn connect(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    // The reference may lose what it likes in a crash. Without spills the file holds what was
    // committed last, so that it can be copied.
    connection.execute_batch(
        "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA cache_spill = OFF",
    )?;
    Ok(connection)
}
