//! Owns the statements by which a database is checked, rewritten and made smaller.

use std::ffi::c_int;

use rusqlite::types::FromSql;
use rusqlite::{Result, ffi};

use super::{Connection, setup};
use crate::names::quoted;
use crate::wal::FRAME_HEADER_BYTES;

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

/// Gives memory that was freed back to the system, which the C library of GNU does not by itself.
/// Takes about a millisecond for each 100 MB in use.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> c_int;
        }
        // SAFETY: it takes a number, and may be called on any thread at any time.
        unsafe { malloc_trim(0) };
    }
}

/// The upkeep of a connection's database, from [`Connection::maintenance`].
#[derive(Clone, Copy)]
pub struct Maintenance<'c>(pub(super) &'c Connection);

impl Maintenance<'_> {
    /// Frees the prepared statements, the page cache, and what
    /// [`Maintenance::reserve_memory`] reserves, while no statement runs.
    pub fn release_memory(self) {
        self.0.prepared.release();
        // SAFETY: the handle is that of an open connection.
        unsafe { ffi::sqlite3_db_release_memory(self.0.raw().handle()) };
        setup::have_large_error(self.0.raw());
        // It stays where something has a part of it.
        let _ = setup::have_lookaside(self.0.raw(), 0);
    }

    /// Reserves the memory for small pieces again, which an open connection has until it is
    /// released.
    pub fn reserve_memory(self) {
        // It is there already where something has a part of it.
        let _ = setup::have_lookaside(self.0.raw(), setup::PIECES);
    }

    fn ask<T: FromSql>(self, pragma: &str) -> Result<T> {
        let sql = format!("PRAGMA main.{pragma}");
        self.0.as_engine(|| self.0.raw().query_row(&sql, (), |row| row.get(0)))
    }

    /// Size of the pages in bytes, and how many there are.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn size(self) -> Result<(u32, u32)> {
        Ok((self.ask("page_size")?, self.ask("page_count")?))
    }

    /// The names of all tables of the main database, those of the engine and of SQLite, too.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn table_names(self) -> Result<Vec<String>> {
        self.0.as_engine(|| {
            let sql = "SELECT name FROM main.sqlite_schema WHERE type = 'table' ORDER BY rowid";
            let mut tables = self.0.raw().prepare(sql)?;
            tables.query_map((), |row| row.get(0))?.collect()
        })
    }

    /// Adds to `problems` what is wrong with the pages, rows and indexes of `table`, in SQLite's
    /// words, up to 100; also what was found before it fails.
    ///
    /// # Errors
    /// Those of SQLite: damage upon which it could not go on; `SQLITE_INTERRUPT` when the
    /// connection's time is over.
    pub fn check_table(self, table: &str, problems: &mut Vec<String>) -> Result<()> {
        self.0.as_engine(|| {
            let sql = format!("PRAGMA main.integrity_check({})", quoted(table));
            let mut check = self.0.raw().prepare(&sql)?;
            for said in check.query_map((), |row| row.get::<_, String>(0))? {
                let said = said?;
                if said != "ok" {
                    problems.push(said);
                }
            }
            Ok(())
        })
    }

    /// How the file gives back free pages, and how many there are.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn free_pages(self) -> Result<(AutoVacuum, u64)> {
        let mode = match self.ask::<i64>("auto_vacuum")? {
            1 => AutoVacuum::Full,
            2 => AutoVacuum::Incremental,
            _ => AutoVacuum::None,
        };
        Ok((mode, self.ask::<u32>("freelist_count")?.into()))
    }

    /// What a WAL holds that has all pages that are not free.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn wal_bytes_of_content(self) -> Result<u64> {
        let ((page_bytes, pages), (_, free)) = (self.size()?, self.free_pages()?);
        Ok(u64::from(pages).saturating_sub(free) * (u64::from(page_bytes) + FRAME_HEADER_BYTES))
    }

    /// Gives back up to `most` free pages of a file that does so when it is told to, in the open
    /// write transaction.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn give_back_pages(self, most: u32) -> Result<()> {
        self.0.as_engine(|| {
            let sql = format!("PRAGMA main.incremental_vacuum({most})");
            let mut vacuum = self.0.raw().prepare(&sql)?;
            // A row for each page.
            let mut pages = vacuum.query(())?;
            while pages.next()?.is_some() {}
            Ok(())
        })
    }

    /// Rewrites the whole database, which then reserves `bytes` at the end of each page, and leaves
    /// it in the mode of a rollback journal. `begin` is called before the first page is written in
    /// the new layout, and after the last one in the old. Needs space on disk for two copies.
    ///
    /// # Durability
    /// It is one transaction with a rollback journal: a crash leaves the old file or the new one.
    ///
    /// # Errors
    /// Those of SQLite; busy when there is another connection. `SQLITE_MISUSE` on an overlay.
    pub fn rewrite(self, bytes: u8, begin: impl FnOnce()) -> Result<()> {
        self.0.refuse_to_overlay("VACUUM")?;
        let settings = "PRAGMA synchronous = FULL; PRAGMA journal_mode = DELETE";
        self.0.may_commit.during(|| {
            self.0.as_engine(|| self.0.raw().execute_batch(settings))?;
            begin();
            setup::reserve_bytes(self.0.raw(), bytes)?;
            self.vacuum()
        })
    }

    /// Rewrites the whole database without its free pages, as one write transaction of SQLite's
    /// own: others read on their snapshots, and the commit goes through the WAL as any other. The
    /// copy has as much memory as the page cache, and is a temporary file beyond.
    ///
    /// # Errors
    /// Those of SQLite; nothing is changed then. `SQLITE_INTERRUPT` when the connection's time is
    /// over, `SQLITE_ERROR` inside of a transaction, `SQLITE_MISUSE` on an overlay.
    pub fn vacuum(self) -> Result<()> {
        self.0.refuse_to_overlay("VACUUM")?;
        let run = || self.0.as_engine(|| self.0.raw().execute_batch("VACUUM"));
        self.0.may_commit.during(run)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::connection::{Role, Settings};
    use crate::vfs::{Direct, Lower, Vfs, WalControl};

    #[test]
    fn nothing_holds_on_to_the_memory_of_a_connection_at_rest() {
        let directory = tempfile::tempdir().unwrap();
        let direct = Direct::new(Arc::new(WalControl::keeping_frames(u64::MAX)));
        let vfs = Vfs::register(Lower::UnixExcl, Arc::new(direct)).unwrap();
        let settings = Settings::new(vfs.name());
        let path = directory.path().join("db");
        let connection = Connection::open(&path, Role::Writer, &settings).unwrap();
        let cached = || {
            let (mut now, mut most) = (0, 0);
            let op = ffi::SQLITE_DBSTATUS_CACHE_USED;
            // SAFETY: the handle is that of an open connection, and both numbers are there.
            unsafe {
                ffi::sqlite3_db_status(connection.raw().handle(), op, &mut now, &mut most, 0);
            }
            now
        };
        for round in 0..3 {
            connection.maintenance().reserve_memory();
            connection.begin_immediate().unwrap();
            connection.execute_batch("CREATE TABLE IF NOT EXISTS t(v)").unwrap();
            let insert = "INSERT INTO t VALUES (hex(randomblob(2000)))";
            let run = || connection.with_statement(insert, |it| it.execute(()));
            (0..50).for_each(|_| _ = run().unwrap());
            connection.commit().unwrap();
            connection.execute_batch("an error, whose text is kept").unwrap_err();
            assert!(cached() > 100_000, "{round}");
            connection.maintenance().release_memory();
            assert!(cached() < 10_000, "{round}: {}", cached());
            setup::have_lookaside(connection.raw(), 0).expect("no piece is used for good");
        }
    }
}
