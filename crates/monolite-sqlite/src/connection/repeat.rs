//! Owns commits of pages that another database has committed: how a follower repeats them.

use rusqlite::Result;

use super::Connection;
use crate::vfs::{TakePage, append, commits};

impl Connection {
    /// Commits `give`'s pages as one transaction behind which the database has `pages` pages; what
    /// is behind them is left out, and of a page that is given twice the later content counts. To
    /// be called on the writer without a transaction. To readers it is as any other commit.
    ///
    /// With a `marker` those bytes are on disk with the commit, and with no other:
    /// [`WalReader::marker`](crate::wal::WalReader::marker) finds them while its WAL is there. They
    /// fit a page with 12 bytes to spare.
    ///
    /// Returns [`Connection::commits`] behind it. With `after` it is refused where that was another
    /// number before.
    ///
    /// # Durability
    /// As [`Connection::commit`].
    ///
    /// # Errors
    /// Those of `give`, with nothing changed; `SQLITE_BUSY_SNAPSHOT` when another process has
    /// written; `SQLITE_BUSY` while it writes; `SQLITE_FULL`, `SQLITE_IOERR` as of a commit.
    pub fn repeat(
        &self,
        pages: u32,
        after: Option<u32>,
        marker: Option<&[u8]>,
        give: &mut dyn FnMut(&mut TakePage<'_>) -> crate::vfs::Result,
    ) -> Result<u32> {
        assert!(!self.is_in_transaction(), "pages are repeated as a transaction of their own");
        Ok(append(self.raw(), pages, after, marker, give)?)
    }

    /// How many commits of any process the wal-index has counted since it was made.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn commits(&self) -> Result<u32> {
        Ok(commits(self.raw())?)
    }
}
