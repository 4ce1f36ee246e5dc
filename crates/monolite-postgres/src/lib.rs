//! The same code on a bigger engine: the interactive transactions of Monolite on PostgreSQL, or on
//! a database that speaks its protocol.
//!
//! [`Engine`] and [`EngineTransaction`] are implemented by `monolite::Database` and by
//! [`Database`] here, so an application can be generic. `docs/guides/outgrow.md` says what differs
//! between engines, and which of them are serializable.
//!
//! ```
//! use monolite_postgres::{Engine, EngineTransaction as _};
//!
//! async fn withdraw<D>(db: &D, id: i64, cents: i64) -> monolite::Result<i64>
//! where
//!     D: Engine<Error = monolite::Error>,
//! {
//!     db.transact(async |tx| {
//!         let sql = "SELECT cents FROM account WHERE id = ?1";
//!         let left = tx.query_row(sql, [id], |row| row.get::<i64>(0)).await? - cents;
//!         if left < 0 {
//!             return Err(monolite::Error::aborted("not enough"));
//!         }
//!         tx.execute("UPDATE account SET cents = ?2 WHERE id = ?1", [id, left]).await?;
//!         Ok(left)
//!     })
//!     .await
//! }
//!
//! # fn main() -> monolite::Result<()> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it starts");
//! # runtime.block_on(async {
//! let db = monolite::Database::open(":memory:")?; // or monolite_postgres::Database::connect(url)
//! # let sql = "CREATE TABLE account(id INTEGER PRIMARY KEY, cents);
//! #            INSERT INTO account VALUES (1, 9)";
//! # db.write(move |tx| tx.execute_batch(sql)).await?;
//! assert_eq!(withdraw(&db, 1, 4).await?, 5);
//! # Ok(()) })
//! # }
//! ```

#![forbid(unsafe_code)]

mod database;
mod engine;
mod error;
mod keys;
mod on_monolite;
mod row;
mod sql;
mod transaction;
mod values;

/// The program in the guide compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/outgrow.md")]
struct Outgrow;

pub use database::{Database, Options};
pub use engine::{Engine, EngineTransaction};
pub use row::{Column, Row};
pub use transaction::Transaction;
