//! Owns the statements by which a database is checked and made smaller.

use rusqlite::{Result, Row};

use super::Connection;
use crate::names::quoted;

/// Problems of one table that are told.
const MOST_PROBLEMS: u32 = 100;

/// See <https://sqlite.org/fileformat2.html#the_write_ahead_log>.
const FRAME_HEADER_BYTES: i64 = 24;

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
    /// Size of the pages in bytes, and how many there are.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn size(&self) -> Result<(u32, u32)> {
        self.as_engine(|| {
            let ask = |sql| self.raw().query_row(sql, (), |row| row.get(0));
            Ok((ask("PRAGMA main.page_size")?, ask("PRAGMA main.page_count")?))
        })
    }

    /// The names of all tables of the main database, those of the engine and of SQLite, too.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn table_names(&self) -> Result<Vec<String>> {
        self.as_engine(|| {
            let sql = "SELECT name FROM main.sqlite_schema WHERE type = 'table' ORDER BY rowid";
            let mut tables = self.raw().prepare(sql)?;
            tables.query_map((), |row| row.get(0))?.collect()
        })
    }

    /// Adds to `problems` what is wrong with the pages, rows and indexes of `table`, in SQLite's
    /// words, up to 100; also what was found before it fails.
    ///
    /// # Errors
    /// Those of SQLite: damage upon which it could not go on; `SQLITE_INTERRUPT` when the
    /// connection's time is over.
    pub fn check_table(&self, table: &str, problems: &mut Vec<String>) -> Result<()> {
        self.as_engine(|| {
            let sql = format!("PRAGMA main.integrity_check({})", quoted(table));
            let mut check = self.raw().prepare(&sql)?;
            for said in check.query_map((), |row| row.get::<_, String>(0))? {
                let said = said?;
                if said != "ok" {
                    problems.push(said);
                }
            }
            Ok(())
        })
    }

    /// Adds to `violations` up to 100 rows of `table` whose foreign keys have no parent; also what
    /// was found before it fails.
    ///
    /// # Errors
    /// As [`Connection::check_table`].
    pub fn check_keys_of(&self, table: &str, violations: &mut Vec<String>) -> Result<()> {
        self.as_engine(|| {
            let sql = "SELECT rowid, parent FROM pragma_foreign_key_check(?1) LIMIT ?2";
            let mut keys = self.raw().prepare(sql)?;
            let row = |row: &Row<'_>| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, String>(1)?));
            for violated in keys.query_map((table, MOST_PROBLEMS), row)? {
                violations.push(match violated? {
                    (Some(row), parent) => {
                        format!("row {row} of {table} has no parent in {parent}")
                    }
                    (None, parent) => format!("a row of {table} has no parent in {parent}"),
                });
            }
            Ok(())
        })
    }

    /// How the file gives back free pages, and how many there are.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn free_pages(&self) -> Result<(AutoVacuum, u64)> {
        self.as_engine(|| {
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

    /// What a WAL holds that has all pages that are not free.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn wal_bytes_of_content(&self) -> Result<u64> {
        self.as_engine(|| {
            let ask = |sql| self.raw().query_row(sql, (), |row| row.get::<_, i64>(0));
            let used = ask("PRAGMA main.page_count")? - ask("PRAGMA main.freelist_count")?;
            let frame = ask("PRAGMA main.page_size")? + FRAME_HEADER_BYTES;
            Ok(u64::try_from(used.saturating_mul(frame)).unwrap_or(0))
        })
    }

    /// Gives back up to `most` free pages of a file that does so when it is told to, in the open
    /// write transaction.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn give_back_pages(&self, most: u32) -> Result<()> {
        self.as_engine(|| {
            let sql = format!("PRAGMA main.incremental_vacuum({most})");
            let mut vacuum = self.raw().prepare(&sql)?;
            // A row for each page.
            let mut pages = vacuum.query(())?;
            while pages.next()?.is_some() {}
            Ok(())
        })
    }
}
