//! The messages of Hrana: what clients trip over, how others read and write them, and any bytes.

mod fuzzed;
mod noise;
pub(crate) mod others;
mod requests;
mod responses;

use std::sync::Once;

use monolite::rusqlite::{Connection, Params, Row};
use monolite_server::hrana::{Encoding, InvalidText, Rows};

const BOTH: [Encoding; 2] = [Encoding::Json, Encoding::Protobuf];

/// Calls `with` for each row of a query.
fn query<P: Params>(sql: &str, params: P, mut with: impl FnMut(&Row<'_>, usize)) {
    static ENGINE: Once = Once::new();
    ENGINE.call_once(|| monolite::Database::open(":memory:").unwrap().close().unwrap());
    let connection = Connection::open_in_memory().unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    let mut rows = statement.query(params).unwrap();
    while let Some(row) = rows.next().unwrap() {
        with(row, columns);
    }
}

/// The rows of a query, and the last error.
fn rows<P: Params>(sql: &str, params: P, encoding: Encoding) -> (Rows, Option<InvalidText>) {
    let mut rows = Rows::new(encoding);
    let mut invalid = None;
    query(sql, params, |row, columns| invalid = rows.push(row, columns).err().or(invalid.take()));
    (rows, invalid)
}
