//! The steps of checked transactions as SQL, for anything that runs SQL: a transaction of the
//! engine, or a plain connection that stands in for an engine.

use monolite::rusqlite::types::ValueRef;
use monolite::rusqlite::{
    self, CachedStatement, Connection, OptionalExtension as _, Row, Statement, ToSql,
    params_from_iter,
};
use monolite::{Error, ErrorKind, ReadTx, Tx};

use crate::checkers::serial::{Contents, Op};

/// The tables of a checked history; run again, it changes nothing.
pub const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS done(n INTEGER PRIMARY KEY, id INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS account(
        id INTEGER PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0)
    ) STRICT;
    INSERT OR IGNORE INTO account VALUES
        (0, 1000), (1, 1000), (2, 1000), (3, 1000), (4, 1000), (5, 1000), (6, 1000), (7, 1000);
    CREATE TABLE IF NOT EXISTS item(key INTEGER PRIMARY KEY, value INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS log(at INTEGER PRIMARY KEY, id INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS count(
        word INTEGER PRIMARY KEY, n INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS large(key INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS parent(id INTEGER PRIMARY KEY) STRICT;
    CREATE TABLE IF NOT EXISTS child(
        id INTEGER PRIMARY KEY, parent INTEGER NOT NULL REFERENCES parent(id) ON DELETE CASCADE
    ) STRICT;
    CREATE INDEX IF NOT EXISTS child_of ON child(parent);
    CREATE TABLE IF NOT EXISTS tally(
        one INTEGER PRIMARY KEY CHECK (one = 1), births INTEGER NOT NULL, deaths INTEGER NOT NULL
    ) STRICT;
    INSERT OR IGNORE INTO tally VALUES (1, 0, 0);
    CREATE TRIGGER IF NOT EXISTS born AFTER INSERT ON parent BEGIN
        UPDATE tally SET births = births + 1;
    END;
    CREATE TRIGGER IF NOT EXISTS died AFTER DELETE ON child BEGIN
        UPDATE tally SET deaths = deaths + 1;
    END;
    CREATE TABLE IF NOT EXISTS debt(
        to_whom INTEGER NOT NULL REFERENCES parent(id) DEFERRABLE INITIALLY DEFERRED
    ) STRICT;
    CREATE TABLE IF NOT EXISTS tripwire(x INTEGER) STRICT;
    CREATE TRIGGER IF NOT EXISTS trip BEFORE INSERT ON tripwire BEGIN
        SELECT RAISE(ROLLBACK, 'tripped');
    END;
";

/// Runs queries inside of a transaction.
pub trait Rows {
    /// All values of all rows: a NULL as -1, a blob as its length and digest.
    fn rows(&self, sql: &str, parameters: &[i64]) -> Result<Vec<i64>, Error>;
}

/// Runs SQL inside of a transaction.
pub trait Sql: Rows {
    /// Runs a statement that returns no rows; tells how many rows it changed.
    fn change(&self, sql: &str, parameters: &[&dyn ToSql]) -> Result<i64, Error>;

    /// Runs a statement that is no step of a transaction.
    fn say(&self, sql: &str) -> Result<(), Error>;

    /// The values of the first row, as [`Rows::rows`]; the others are not read.
    fn first(&self, sql: &str, parameters: &[i64]) -> Result<Vec<i64>, Error>;

    /// The text in the first column of the first row, if there is one.
    fn text(&self, sql: &str, parameter: i64) -> Result<Option<String>, Error>;

    /// Runs a statement that rolls the transaction back, and then `later`, which is prepared
    /// before it where that can be: whether both were refused.
    fn refuses_both(&self, rolls_back: &str, later: &str) -> Result<bool, Error>;

    /// The rowid of the last insert.
    fn last_rowid(&self) -> Result<i64, Error>;

    /// Opens, undoes or closes the savepoint of the same name.
    fn savepoint(&self, step: Savepoint) -> Result<(), Error>;
}

/// What can be done with a savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Savepoint {
    /// Opens another one.
    Open,
    /// Undoes what was done since the last one.
    Undo,
    /// Closes the last one.
    Keep,
}

impl Rows for ReadTx<'_> {
    fn rows(&self, sql: &str, parameters: &[i64]) -> Result<Vec<i64>, Error> {
        Ok(flatten(self.prepare_cached(sql)?, parameters)?)
    }
}

impl Rows for Tx<'_> {
    fn rows(&self, sql: &str, parameters: &[i64]) -> Result<Vec<i64>, Error> {
        ReadTx::rows(self, sql, parameters)
    }
}

impl Sql for Tx<'_> {
    fn change(&self, sql: &str, parameters: &[&dyn ToSql]) -> Result<i64, Error> {
        self.execute(sql, parameters).map(signed)
    }

    fn say(&self, sql: &str) -> Result<(), Error> {
        self.execute_batch(sql)
    }

    fn first(&self, sql: &str, parameters: &[i64]) -> Result<Vec<i64>, Error> {
        let mut query = self.prepare_cached(sql)?;
        let mut rows = query.query(params_from_iter(parameters))?;
        Ok(rows.next()?.map(values).transpose()?.unwrap_or_default())
    }

    fn text(&self, sql: &str, parameter: i64) -> Result<Option<String>, Error> {
        let mut query = self.prepare_cached(sql)?;
        Ok(query.query_row([parameter], |row| row.get(0)).optional()?)
    }

    fn refuses_both(&self, rolls_back: &str, later: &str) -> Result<bool, Error> {
        // Outside of a transaction it would commit by itself.
        let mut later = self.prepare(later)?;
        Ok(self.change(rolls_back, &[]).is_err() && later.execute(()).is_err())
    }

    fn last_rowid(&self) -> Result<i64, Error> {
        Ok(self.last_insert_rowid())
    }

    fn savepoint(&self, step: Savepoint) -> Result<(), Error> {
        self.say(step.sql())
    }
}

impl Rows for Connection {
    fn rows(&self, sql: &str, parameters: &[i64]) -> Result<Vec<i64>, Error> {
        Ok(flatten(self.prepare_cached(sql)?, parameters)?)
    }
}

impl Sql for Connection {
    fn change(&self, sql: &str, parameters: &[&dyn ToSql]) -> Result<i64, Error> {
        Ok(signed(self.prepare_cached(sql)?.execute(parameters)?))
    }

    fn say(&self, sql: &str) -> Result<(), Error> {
        Ok(self.execute_batch(sql)?)
    }

    fn first(&self, sql: &str, parameters: &[i64]) -> Result<Vec<i64>, Error> {
        let mut query = self.prepare_cached(sql)?;
        let mut rows = query.query(params_from_iter(parameters))?;
        Ok(rows.next()?.map(values).transpose()?.unwrap_or_default())
    }

    fn text(&self, sql: &str, parameter: i64) -> Result<Option<String>, Error> {
        let mut query = self.prepare_cached(sql)?;
        Ok(query.query_row([parameter], |row| row.get(0)).optional()?)
    }

    fn refuses_both(&self, rolls_back: &str, later: &str) -> Result<bool, Error> {
        // Outside of a transaction it would commit by itself.
        let mut later = self.prepare(later)?;
        Ok(self.change(rolls_back, &[]).is_err() && later.execute(()).is_err())
    }

    fn last_rowid(&self) -> Result<i64, Error> {
        Ok(self.last_insert_rowid())
    }

    fn savepoint(&self, step: Savepoint) -> Result<(), Error> {
        self.say(step.sql())
    }
}

impl Savepoint {
    /// As a statement, which the engine refuses as SQL.
    fn sql(self) -> &'static str {
        match self {
            Savepoint::Open => "SAVEPOINT s",
            Savepoint::Undo => "ROLLBACK TO s",
            Savepoint::Keep => "RELEASE s",
        }
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn flatten(mut query: CachedStatement<'_>, parameters: &[i64]) -> rusqlite::Result<Vec<i64>> {
    let mut all = Vec::new();
    let mut rows = query.query(params_from_iter(parameters))?;
    while let Some(row) = rows.next()? {
        all.extend(values(row)?);
    }
    Ok(all)
}

/// The values of a row as [`Rows::rows`] tells them.
pub(super) fn values(row: &Row<'_>) -> rusqlite::Result<Vec<i64>> {
    let columns = AsRef::<Statement<'_>>::as_ref(row).column_count();
    let mut values = Vec::with_capacity(columns);
    for column in 0..columns {
        match row.get_ref(column)? {
            ValueRef::Null => values.push(-1),
            ValueRef::Blob(body) => values.extend([signed(body.len()), Contents::digest(body)]),
            value => values.push(value.as_i64()?),
        }
    }
    Ok(values)
}

/// Enters a transaction into `done`. Its number is said, and not left to SQLite: that would be one
/// that is given out ahead, and not the place in the order of the commits.
const ENTER: &str = "INSERT INTO done(n, id) SELECT COALESCE(MAX(n), 0) + 1, ?1 FROM done";

/// As [`ENTER`], for a line of the log.
const LOG: &str = "INSERT INTO log(at, id) SELECT COALESCE(MAX(at), 0) + 1, ?1 FROM log";

/// Enters a transaction into `done`; returns its number.
pub fn number(sql: &impl Sql, id: i64) -> Result<i64, Error> {
    let entered = sql.rows(&format!("{ENTER} RETURNING n"), &[id])?;
    Ok(entered.first().copied().unwrap_or(-1))
}

/// Enters a transaction into `done` and does not ask for its number, which the commit decides.
pub fn enter(sql: &impl Sql, id: i64) -> Result<(), Error> {
    sql.change(ENTER, &[&id]).map(drop)
}

/// The number of the last transaction that a snapshot contains.
pub fn last_number(sql: &impl Rows) -> Result<i64, Error> {
    let last = sql.rows("SELECT COALESCE(MAX(n), 0) FROM done", &[])?;
    Ok(last.first().copied().unwrap_or(-1))
}

/// Everything that the database holds.
pub fn contents(sql: &impl Rows) -> Result<Contents, Error> {
    let tables = Contents::QUERIES.iter().map(|query| sql.rows(query, &[]));
    Ok(Contents::new(tables.collect::<Result<_, _>>()?))
}

/// Runs a step that only asks, and appends what it tells to `saw`; false for any other step.
pub fn ask(sql: &impl Rows, op: &Op, saw: &mut Vec<i64>) -> Result<bool, Error> {
    let Some((query, parameters)) = question(op) else { return Ok(false) };
    saw.extend(sql.rows(query, &parameters)?);
    Ok(true)
}

/// Runs a step of transaction `id`, and appends what it tells to `saw`.
pub fn run(sql: &impl Sql, op: &Op, id: i64, saw: &mut Vec<i64>) -> Result<(), Error> {
    if ask(sql, op, saw)? {
        return Ok(());
    }
    match *op {
        Op::Transfer { from, to, most } => {
            let balance = sql.rows("SELECT balance FROM account WHERE id = ?1", &[from])?;
            let amount = most.min(balance.first().copied().unwrap_or(0));
            let change = "UPDATE account SET balance = balance + ?1 WHERE id = ?2 \
                          RETURNING balance";
            saw.extend(balance);
            saw.extend(sql.rows(change, &[-amount, from])?);
            saw.extend(sql.rows(change, &[amount, to])?);
        }
        Op::Dependent { from, to } => {
            let read = sql.rows("SELECT value FROM item WHERE key = ?1", &[from])?;
            let read = read.first().copied().unwrap_or(-1);
            sql.change("INSERT OR REPLACE INTO item VALUES (?1, ?2)", &[&to, &(read + 1)])?;
            saw.push(read);
        }
        Op::Append { returning: false } => {
            sql.change(LOG, &[&id])?;
            saw.push(sql.last_rowid()?);
        }
        Op::Append { returning: true } => {
            saw.extend(sql.rows(&format!("{LOG} RETURNING at"), &[id])?);
        }
        Op::Note => saw.push(sql.change(LOG, &[&id])?),
        Op::Child { id, parent } => {
            let insert = "INSERT INTO child VALUES (?1, ?2)";
            saw.push(or_refused(sql.change(insert, &[&id, &parent]), ErrorKind::Constraint)?);
        }
        Op::Pay { from, to, amount } => {
            let change = "UPDATE account SET balance = balance + ?1 WHERE id = ?2";
            let paid = sql.change(change, &[&-amount, &from]);
            let told = or_refused(paid, ErrorKind::Constraint)?;
            if told == 1 {
                sql.change(change, &[&amount, &to])?;
            }
            saw.push(told);
        }
        Op::First { low } => {
            let query = "SELECT key, value FROM item WHERE key >= ?1 ORDER BY key";
            saw.extend(sql.first(query, &[low])?);
        }
        Op::Open => sql.savepoint(Savepoint::Open)?,
        Op::Undo => {
            let undone = sql.savepoint(Savepoint::Undo);
            saw.push(or_refused(undone.map(|()| 1), ErrorKind::Invalid)?);
        }
        Op::Keep => {
            let kept = sql.savepoint(Savepoint::Keep);
            saw.push(or_refused(kept.map(|()| 1), ErrorKind::Invalid)?);
        }
        _ => saw.push(change(sql, op)?),
    }
    Ok(())
}

/// What a statement told, or -1 when it was refused for a reason of this kind.
fn or_refused(told: Result<i64, Error>, kind: ErrorKind) -> Result<i64, Error> {
    match told {
        Err(error) if error.kind() == kind => Ok(-1),
        told => told,
    }
}

/// The statement of a step that is a question with rows for an answer.
fn question(op: &Op) -> Option<(&'static str, Vec<i64>)> {
    Some(match *op {
        Op::Total => ("SELECT SUM(balance) FROM account", vec![]),
        Op::Balances => ("SELECT balance FROM account ORDER BY id", vec![]),
        Op::Point { key } => ("SELECT (SELECT value FROM item WHERE key = ?1)", vec![key]),
        Op::Range { low, high } => (
            "SELECT key, value FROM item WHERE key BETWEEN ?1 AND ?2 ORDER BY key",
            vec![low, high],
        ),
        Op::Max => ("SELECT MAX(key) FROM item", vec![]),
        Op::Log => {
            ("SELECT COUNT(*), (SELECT id FROM log ORDER BY at DESC LIMIT 1) FROM log", vec![])
        }
        // With functions of the application (`crate::functions`), here and there.
        Op::Counts => {
            ("SELECT word, n FROM count ORDER BY CAST(word AS TEXT) COLLATE by_number", vec![])
        }
        Op::Filled { key } => ("SELECT body FROM large WHERE key = ?1", vec![key]),
        Op::Family { id } => (
            "SELECT child.id FROM parent JOIN child ON child.parent = parent.id \
             WHERE parent.id = ?1 ORDER BY child.id",
            vec![id],
        ),
        Op::Tally => ("SELECT sum_of(births), sum_of(deaths) FROM tally", vec![]),
        Op::Add { key, value } => (
            "INSERT INTO item VALUES (?1, ?2) \
             ON CONFLICT (key) DO UPDATE SET value = value + excluded.value RETURNING value",
            vec![key, value],
        ),
        Op::Count { word, by } => (
            "INSERT INTO count VALUES (?1, ?2) \
             ON CONFLICT (word) DO UPDATE SET n = n + excluded.n RETURNING n",
            vec![word, by],
        ),
        _ => return None,
    })
}

/// Runs a step that tells how many rows it changed.
fn change(sql: &impl Sql, op: &Op) -> Result<i64, Error> {
    match *op {
        Op::Insert { key, value } => {
            sql.change("INSERT OR IGNORE INTO item VALUES (?1, ?2)", &[&key, &value])
        }
        Op::Delete { key } => sql.change("DELETE FROM item WHERE key = ?1", &[&key]),
        Op::Blind { low, high, value } => {
            let update = "UPDATE item SET value = ?3 WHERE key BETWEEN ?1 AND ?2";
            sql.change(update, &[&low, &high, &value])
        }
        Op::Fill { key, bytes, with } => {
            let body = crate::checkers::serial::filling(bytes, with);
            sql.change("INSERT OR REPLACE INTO large VALUES (?1, ?2)", &[&key, &body])
        }
        Op::Raise { key, by } => {
            // Calls of such a function are always run again, so half of them are without.
            let sum = if key % 2 == 0 { "plus(value, ?2)" } else { "value + ?2" };
            sql.change(&format!("UPDATE item SET value = {sum} WHERE key = ?1"), &[&key, &by])
        }
        Op::Tick { word, by } => {
            let upsert = "INSERT INTO count VALUES (?1, ?2) \
                          ON CONFLICT (word) DO UPDATE SET n = n + excluded.n";
            sql.change(upsert, &[&word, &by])
        }
        Op::Parent { id } => sql.change("INSERT OR IGNORE INTO parent VALUES (?1)", &[&id]),
        Op::Disown { id } => sql.change("DELETE FROM parent WHERE id = ?1", &[&id]),
        // Everything else is a question, or handled by the caller.
        _ => Ok(0),
    }
}
