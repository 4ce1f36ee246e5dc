//! Owns what this crate knows of the header of a database file
//! (<https://sqlite.org/fileformat2.html#the_database_header>).

/// Its size.
pub(crate) const HEADER_BYTES: usize = 100;

/// What it begins with.
pub(crate) const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Where it says how many bytes are reserved at the end of each page.
pub(crate) const RESERVED_AT: usize = 20;
