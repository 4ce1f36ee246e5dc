//! Owns the statements by which a database is checked and made smaller.

use rusqlite::{Result, Row};

use super::Connection;

/// Problems of one table that are told.
const MOST_PROBLEMS: u32 = 100;

/// How a file gives back pages that are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoVacuum {
    /// Not at all.
    None,
    /// At each commit.
    Full,
    /// When it is told to.
    Incremental,
}

impl Connection {
    /// The names of all tables of the main database, those of the engine and of SQLite, too.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn table_names(&self) -> Result<Vec<String>> {
        self.signals.as_engine(|| {
            let sql = "SELECT name FROM main.sqlite_schema WHERE type = 'table' ORDER BY rowid";
            let mut tables = self.raw().prepare(sql)?;
            tables.query_map((), |row| row.get(0))?.collect()
        })
    }

    /// What is wrong with the pages, rows and indexes of `table`, and with the foreign keys of its
    /// rows, in SQLite's words, up to 100 of each.
    ///
    /// # Errors
    /// Those of SQLite; `SQLITE_INTERRUPT` when the connection's time is over.
    pub fn check_table(&self, table: &str) -> Result<Vec<String>> {
        self.signals.as_engine(|| {
            let quoted = table.replace('"', "\"\"");
            let sql = format!("PRAGMA main.integrity_check(\"{quoted}\")");
            let mut check = self.raw().prepare(&sql)?;
            let said = check.query_map((), |row| row.get(0))?;
            let mut problems: Vec<String> = said.collect::<Result<_>>()?;
            problems.retain(|said| said != "ok");
            let sql = "SELECT rowid, parent FROM pragma_foreign_key_check(?1) LIMIT ?2";
            let mut keys = self.raw().prepare(sql)?;
            let row = |row: &Row<'_>| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, String>(1)?));
            for violated in keys.query_map((table, MOST_PROBLEMS), row)? {
                problems.push(match violated? {
                    (Some(row), parent) => {
                        format!("row {row} of {table} has no parent in {parent}")
                    }
                    (None, parent) => format!("a row of {table} has no parent in {parent}"),
                });
            }
            Ok(problems)
        })
    }

    /// How the file gives back free pages, and how many there are.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn free_pages(&self) -> Result<(AutoVacuum, u64)> {
        self.signals.as_engine(|| {
            let ask = |sql| self.raw().query_row(sql, (), |row| row.get::<_, i64>(0));
            let mode = match ask("PRAGMA main.auto_vacuum")? {
                1 => AutoVacuum::Full,
                2 => AutoVacuum::Incremental,
                _ => AutoVacuum::None,
            };
            let free = ask("PRAGMA main.freelist_count")?;
            Ok((mode, u64::try_from(free).unwrap_or(0)))
        })
    }

    /// Gives back up to `most` free pages of a file that does so when it is told to, in the open
    /// write transaction.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn give_back_pages(&self, most: u32) -> Result<()> {
        self.signals.as_engine(|| {
            let sql = format!("PRAGMA main.incremental_vacuum({most})");
            let mut vacuum = self.raw().prepare(&sql)?;
            // A row for each page.
            let mut pages = vacuum.query(())?;
            while pages.next()?.is_some() {}
            Ok(())
        })
    }
}
