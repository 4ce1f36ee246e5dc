//! Transactions as data: what each does, how it ends, and how its caller must be told.

mod plan;
pub mod sql;

pub use plan::{Ending, Gave, Plan, Stopped, TIME_LIMIT, Told};
pub use sql::SCHEMA;
