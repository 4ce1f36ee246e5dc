//! Many write transactions at once on one SQLite file: each is serializable, and on disk when it is
//! acknowledged.
//!
//! ```
//! use monolite::{Database, Error};
//!
//! # fn main() -> Result<(), Error> {
//! let db = Database::open(":memory:")?;
//! db.write(|tx| {
//!     tx.execute_batch(
//!         "CREATE TABLE account(
//!              id INTEGER PRIMARY KEY,
//!              balance INTEGER NOT NULL CHECK (balance >= 0)
//!          ) STRICT;
//!          INSERT INTO account VALUES (1, 100), (2, 0);",
//!     )
//! })
//! .wait()?;
//!
//! // Any number of threads or tasks may do this at once. Each is a transaction of its own, on disk
//! // when `wait` returns, although many share one commit.
//! db.write(|tx| {
//!     tx.execute("UPDATE account SET balance = balance - ?1 WHERE id = ?2", (30, 1))?;
//!     tx.execute("UPDATE account SET balance = balance + ?1 WHERE id = ?2", (30, 2))?;
//!     Ok(())
//! })
//! .wait()?;
//!
//! let balance: i64 = db
//!     .read(|tx| tx.query_row("SELECT balance FROM account WHERE id = ?1", [2], |row| row.get(0)))
//!     .wait()?;
//! assert_eq!(balance, 30);
//! # db.close()
//! # }
//! ```
//!
//! The handles that [`Database::write`] and [`Database::read`] return are futures, too; no async
//! runtime is needed or assumed.
//!
//! Guides are in `docs/guides`: among them `types.md` for the first hour, `web.md`, `testing.md`,
//! `deploying.md` and `monitoring.md` for a service, `moving.md` from another library, and
//! `when-not.md`.
//!
//! A transaction's life is told in `ARCHITECTURE.md`; the algorithm that makes batches fast and
//! isolated stands in the header of `write/writer.rs`.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods, reason = "time comes from `clock`"))]

// In the order in which a reader may want them: the API, what puts all together, the parts of
// the engine, of which none uses one that stands before it, and what is below.
mod database;
mod error;
mod markers;
mod migrations;
mod options;
mod parameters;
mod replica;
mod stats;
#[cfg(feature = "serde")]
mod structs;
mod tx;
mod untrusted;

mod engine;
mod lookout;
mod watchdog;

pub mod archive;
mod backup;
mod jobs;
mod maintenance;

mod checkpoint;
mod write;

mod files;

mod transaction;

mod read;

mod call;

mod activity;
mod clock;
mod names;
mod pacer;
mod primitives;
mod progress;
mod threads;

#[cfg(all(test, shuttle))]
mod models;

pub use activity::slow::SlowTransaction;
pub use activity::{Activity, CallKind, Caller, TransactionActivity};
pub use backup::Backup;
pub use call::write::Write;
pub use clock::{Clock, SystemClock};
pub use database::Database;
pub use error::{Constraint, ConstraintKind, Error, ErrorKind, Result};
pub use jobs::{Job, JobMonitor, JobProgress};
pub use maintenance::{Checked, Checkpointed, Vacuumed};
#[doc(hidden)]
pub use markers::{Keeper, LastCommit};
pub use migrations::{
    Applied, MigrationStatus, Migrations, OnlineRebuild, Planned, PlannedRebuild,
};
pub use monolite_sqlite::RebuildPhase;
pub use options::{Durability, InteractiveOptions, Options, Sharing};
pub use parameters::{Bind, IntoParameters, Parameters};
pub use read::handle::Read;
pub use read::stream::{RowIterator, RowStream};
pub use replica::Replica;
pub use stats::{Histogram, NameStats, Stats, name_stats, prometheus};
#[cfg(feature = "serde")]
pub use structs::{from_outcome, from_row, to_outcome};
pub use transaction::{Committed, Execution, Transact, Transaction};
pub use tx::{Column, Description, Ran, ReadTx, Tx};
pub use untrusted::{UntrustedLimits, UntrustedQuery, UntrustedRows};

pub use monolite_sqlite::rusqlite;
#[cfg(feature = "testing")]
pub use monolite_sqlite::vfs;
pub use rusqlite::types::{FromSql, ToSql, Value};
pub use rusqlite::{Params, Row, named_params, params};

/// ```
/// use monolite::{ConnectionSetup, Function, Options, rusqlite};
///
/// fn add(connection: &ConnectionSetup<'_>) -> rusqlite::Result<()> {
///     connection.scalar("half", 1, Function::DETERMINISTIC, |call| Ok(call.get::<i64>(0)? / 2))
/// }
///
/// # fn main() -> monolite::Result<()> {
/// let db = Options::new().connection_setup(add).open(":memory:")?;
/// let sql = "SELECT half(84)";
/// assert_eq!(db.read(|tx| tx.query_row(sql, (), |row| row.get::<_, i64>(0))).wait()?, 42);
/// # db.close()
/// # }
/// ```
#[doc(inline)]
pub use monolite_sqlite::ConnectionSetup;

/// ```
/// # fn main() -> monolite::Result<()> {
/// // A service with a database for each customer, in a container with 1 GiB.
/// monolite::limit_page_caches(512 << 20);
/// let db = monolite::Database::open(":memory:")?;
/// db.write(|tx| tx.execute("CREATE TABLE t(x)", ())).wait()?;
/// assert!(db.stats().page_cache_bytes < 512 << 20);
/// # db.close()
/// # }
/// ```
#[doc(inline)]
pub use monolite_sqlite::limit_page_caches;

#[doc(inline)]
pub use monolite_sqlite::Statements;

/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// let script = "CREATE TABLE t(x); -- and a row:
///               INSERT INTO t VALUES (';') RETURNING x;;";
/// let changes = db.write(move |tx| {
///     let mut changes = 0;
///     for sql in monolite::statements(script) {
///         changes += tx.run(sql, (), (), |_, _| Ok(()))?.changes;
///     }
///     Ok(changes)
/// });
/// assert_eq!(changes.wait()?, 1);
/// # db.close()
/// # }
/// ```
#[doc(inline)]
pub use monolite_sqlite::statements;

/// ```
/// use monolite::Function;
///
/// // The same for the same arguments, and untrusted SQL may call it.
/// let price = Function::DETERMINISTIC.for_untrusted();
/// assert_ne!(price, Function::VOLATILE);
/// ```
#[doc(inline)]
pub use monolite_sqlite::Function;

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// So do those in the guides.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/interactive-transactions.md")]
    struct InteractiveTransactions;
    #[doc = include_str!("../../../docs/guides/requests-sent-twice.md")]
    struct RequestsSentTwice;
    #[doc = include_str!("../../../docs/guides/untrusted-sql.md")]
    struct UntrustedSql;
    #[doc = include_str!("../../../docs/guides/backup.md")]
    struct Backup;
    #[doc = include_str!("../../../docs/guides/migrations.md")]
    struct Migrations;
    #[doc = include_str!("../../../docs/guides/looking.md")]
    struct Looking;
    #[doc = include_str!("../../../docs/guides/maintenance.md")]
    struct Maintenance;
    #[cfg(feature = "serde")]
    #[doc = include_str!("../../../docs/guides/types.md")]
    struct Types;
    #[cfg(feature = "serde")]
    #[doc = include_str!("../../../docs/guides/functions.md")]
    struct Functions;
    #[doc = include_str!("../../../docs/guides/full-text-search.md")]
    struct FullTextSearch;
    #[cfg(feature = "serde")]
    #[doc = include_str!("../../../docs/guides/streaming.md")]
    struct Streaming;
    #[doc = include_str!("../../../docs/guides/testing.md")]
    struct Testing;
    #[cfg(feature = "serde")]
    #[doc = include_str!("../../../docs/guides/json.md")]
    struct Json;
    #[doc = include_str!("../../../docs/guides/background-work.md")]
    struct BackgroundWork;
    #[doc = include_str!("../../../docs/guides/expiring.md")]
    struct Expiring;
    #[doc = include_str!("../../../docs/guides/other-libraries.md")]
    struct OtherLibraries;
    #[doc = include_str!("../../../docs/guides/deploying.md")]
    struct Deploying;
    #[doc = include_str!("../../../docs/guides/monitoring.md")]
    struct Monitoring;
    #[doc = include_str!("../../../docs/guides/errors.md")]
    struct Errors;
    #[cfg(feature = "serde")]
    #[doc = include_str!("../../../docs/guides/moving.md")]
    struct Moving;
}
