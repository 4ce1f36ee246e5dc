//! What happens to a database, drawn at random, and a model of it in plain SQLite.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use monolite::Database;
use monolite::rusqlite::{Connection, OpenFlags};

/// How many tables there are at most.
const TABLES: usize = 5;

/// How large the content of a table may become, in bytes, before much of it is deleted.
const ENOUGH: i64 = 200_000;

const SCHEMA: &str =
    "SELECT type, name, sql FROM sqlite_schema WHERE name GLOB '[it]*' ORDER BY 1, 2";

/// Draws what happens, does it to a database and to the model, and knows what must be there.
pub(crate) struct Story {
    pub(crate) rng: fastrand::Rng,
    model: Connection,
    names: u32,
}

impl Story {
    pub(crate) fn new(seed: u64) -> Story {
        let model = Connection::open_in_memory().unwrap();
        Story { rng: fastrand::Rng::with_seed(seed), model, names: 0 }
    }

    /// The digest of what there must be.
    pub(crate) fn digest(&self) -> u64 {
        digest(&self.model)
    }

    /// One more thing happens.
    pub(crate) fn step(&mut self, db: &Database) {
        match self.rng.u8(..40) {
            // Not when its content does not fit in the WAL.
            0 => drop(db.vacuum().wait().unwrap()),
            1 => drop(db.checkpoint().wait().unwrap()),
            _ => {
                let sql = self.told();
                db.write(move |tx| tx.execute_batch(&sql)).wait().unwrap();
            }
        }
    }

    /// What another program is to do; the model has done it.
    pub(crate) fn told(&mut self) -> String {
        let sql = self.statement();
        self.model.execute_batch(&sql).unwrap();
        sql
    }

    /// What a transaction does.
    fn statement(&mut self) -> String {
        let names = names(&self.model, "table");
        let wants_table = names.len() < TABLES && self.rng.u8(..20) == 0;
        if names.is_empty() || wants_table {
            self.names += 1;
            let name = self.names;
            return format!("CREATE TABLE t{name}(id INTEGER PRIMARY KEY, v BLOB)");
        }
        let table = &names[self.rng.usize(..names.len())];
        let bytes = format!("SELECT total(length(v)) FROM {table}");
        let bytes: f64 = self.model.query_row(&bytes, (), |row| row.get(0)).unwrap();
        let (divisor, rest) = (self.rng.u32(2..6), self.rng.u32(..2));
        if bytes as i64 > ENOUGH {
            return format!("DELETE FROM {table} WHERE id % {divisor} >= 1");
        }
        match self.rng.u8(..60) {
            0 => format!("DROP TABLE {table}"),
            1 => {
                self.names += 1;
                format!("ALTER TABLE {table} ADD COLUMN c{} DEFAULT 7", self.names)
            }
            2 => {
                self.names += 1;
                format!("CREATE INDEX i{} ON {table}(v)", self.names)
            }
            3 => match names_of_index(&self.model) {
                Some(index) => format!("DROP INDEX {index}"),
                None => format!("DELETE FROM {table}"),
            },
            4..8 => format!("DELETE FROM {table} WHERE id % {divisor} = {rest}"),
            8..20 => {
                let blob = self.blob(200);
                format!("UPDATE {table} SET v = {blob} WHERE id % {divisor} = {rest}")
            }
            _ => {
                let rows: Vec<String> =
                    (0..self.rng.usize(1..4)).map(|_| format!("({})", self.blob(6_000))).collect();
                format!("INSERT INTO {table}(v) VALUES {}", rows.join(", "))
            }
        }
    }

    fn blob(&mut self, most: usize) -> String {
        let len = self.rng.usize(..most);
        let digits = (0..len).map(|_| format!("{:02x}", self.rng.u8(..)));
        format!("x'{}'", digits.collect::<String>())
    }
}

fn names(db: &Connection, kind: &str) -> Vec<String> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = ?1 AND name GLOB '[it]*' ORDER BY 1";
    let mut statement = db.prepare(sql).unwrap();
    let names = statement.query_map([kind], |row| row.get(0)).unwrap();
    names.map(Result::unwrap).collect()
}

fn names_of_index(db: &Connection) -> Option<String> {
    names(db, "index").pop()
}

/// A digest of the schema and of every row, without the tables that Litestream adds.
pub(crate) fn digest(db: &Connection) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut statement = db.prepare(SCHEMA).unwrap();
    let mut rows = statement.query(()).unwrap();
    while let Some(row) = rows.next().unwrap() {
        for column in 0..3 {
            format!("{:?}", row.get_ref(column).unwrap()).hash(&mut hasher);
        }
    }
    for table in names(db, "table") {
        let mut statement = db.prepare(&format!("SELECT * FROM {table} ORDER BY id")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query(()).unwrap();
        while let Some(row) = rows.next().unwrap() {
            for column in 0..columns {
                match row.get_ref(column).unwrap() {
                    monolite::rusqlite::types::ValueRef::Blob(bytes) => bytes.hash(&mut hasher),
                    other => format!("{other:?}").hash(&mut hasher),
                }
            }
        }
    }
    hasher.finish()
}

/// The digest of a file that nobody writes to; `None` when it is damaged.
pub(crate) fn digest_of(path: &Path) -> Option<u64> {
    let uri = format!("file:{}?immutable=1", path.display());
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags(uri, flags).unwrap();
    let sound: String = db.query_row("PRAGMA integrity_check", (), |row| row.get(0)).ok()?;
    (sound == "ok").then(|| digest(&db))
}
