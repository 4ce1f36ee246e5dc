//! Statements over a few small tables, drawn from bytes: every kind there is, many of them failing.

use arbitrary::{Result, Unstructured};

/// The tables that every sequence begins with.
pub(super) const SCHEMA: &str = "
    CREATE TABLE a(id INTEGER PRIMARY KEY, x INTEGER, y TEXT UNIQUE ON CONFLICT ROLLBACK);
    CREATE TABLE b(
        id INTEGER PRIMARY KEY, n INTEGER NOT NULL CHECK (n >= 0),
        a INTEGER REFERENCES a(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
    ) STRICT;
    CREATE TABLE c(k TEXT, n INTEGER, PRIMARY KEY (k, n)) WITHOUT ROWID;
    CREATE VIEW v AS SELECT a.id, x, n FROM a JOIN b ON b.a = a.id;
    CREATE TRIGGER raises BEFORE INSERT ON c WHEN new.n > 4 BEGIN
        SELECT CASE new.n WHEN 5 THEN RAISE(IGNORE) WHEN 6 THEN RAISE(FAIL, 'six')
            WHEN 7 THEN RAISE(ABORT, 'seven') ELSE RAISE(ROLLBACK, 'eight') END;
    END;
    CREATE TRIGGER copies AFTER UPDATE ON a BEGIN
        INSERT OR IGNORE INTO c VALUES ('copy', new.id);
    END;";

/// All tables that there can be.
pub(super) const TABLES: [&str; 6] = ["a", "b", "c", "t0", "t1", "t2"];

/// Statements that belong to the engine, refused before they run.
const REFUSED: [&str; 20] = [
    "BEGIN",
    "COMMIT",
    "END",
    "ROLLBACK",
    "SAVEPOINT s",
    "RELEASE s",
    "ROLLBACK TO s",
    "RELEASE monolite_group",
    "ATTACH ':memory:' AS other",
    "DETACH main",
    "CREATE TEMP TABLE t(x)",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA synchronous = OFF",
    "PRAGMA foreign_keys = OFF",
    "PRAGMA writable_schema = ON",
    "PRAGMA wal_checkpoint",
    "PRAGMA query_only = ON",
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA defer_foreign_keys = OFF",
    "SELECT load_extension('x')",
];

/// One statement.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) sql: String,
    /// How it is run.
    pub(super) way: Way,
    /// Whether the engine refuses it; plain SQLite is not asked then.
    pub(super) is_refused: bool,
    /// Whether its error ends its transaction.
    pub(super) is_propagated: bool,
}

/// The ways to run a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Prepared; its rows are read.
    Rows,
    /// As `execute`; changed rows count.
    Execute,
    /// As `execute_batch`.
    Batch,
    /// As a method for savepoints; the SQL says which and of what name.
    Savepoint,
}

/// How a transaction is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `Database::write`.
    Write,
    /// `Database::write_once`.
    Once,
    /// `Database::read`.
    Read,
    /// `Database::transaction`.
    Interactive,
}

/// One transaction.
#[derive(Clone, Debug)]
pub(super) struct Transaction {
    pub(super) kind: Kind,
    pub(super) statements: Vec<Statement>,
    /// Whether it gives up at its end.
    pub(super) gives_up: bool,
    /// Whether an interactive one finds its connection taken before each statement, so that all
    /// before it are run again.
    pub(super) is_moved: bool,
}

/// A sequence of transactions, for as long as there are bytes.
pub(super) fn transactions(bytes: &mut Unstructured<'_>) -> Result<Vec<Transaction>> {
    let mut transactions = Vec::new();
    while !bytes.is_empty() && transactions.len() < 24 {
        let kind = match bytes.int_in_range(0..=7)? {
            0..=3 => Kind::Write,
            4 => Kind::Interactive,
            5..=6 => Kind::Once,
            _ => Kind::Read,
        };
        let count = bytes.int_in_range(1..=6)?;
        let is_interactive = kind == Kind::Interactive;
        let draw = |_| if is_interactive { step(bytes) } else { statement(bytes) };
        let statements = (0..count).map(draw).collect::<Result<_>>()?;
        let gives_up = bytes.ratio(1, 8)?;
        let is_moved = is_interactive && bytes.arbitrary()?;
        transactions.push(Transaction { kind, statements, gives_up, is_moved });
    }
    Ok(transactions)
}

/// A step of an interactive transaction.
fn step(bytes: &mut Unstructured<'_>) -> Result<Statement> {
    if bytes.ratio(3, 4)? {
        return statement(bytes);
    }
    let verb = *bytes.choose(&["SAVEPOINT", "SAVEPOINT", "ROLLBACK TO", "RELEASE"])?;
    let name = *bytes.choose(&["s", "t"])?;
    let (sql, is_propagated) = (format!("{verb} {name}"), bytes.ratio(1, 4)?);
    Ok(Statement { sql, way: Way::Savepoint, is_refused: false, is_propagated })
}

fn statement(bytes: &mut Unstructured<'_>) -> Result<Statement> {
    let is_propagated = bytes.ratio(3, 4)?;
    if bytes.ratio(1, 10)? {
        let sql = (*bytes.choose(&REFUSED)?).to_owned();
        let way = *bytes.choose(&[Way::Rows, Way::Execute, Way::Batch])?;
        return Ok(Statement { sql, way, is_refused: true, is_propagated });
    }
    let (sql, way) = match bytes.int_in_range(0..=9)? {
        0..=3 => (insert(bytes)?, changing(bytes)?),
        4 => (update(bytes)?, changing(bytes)?),
        5 => (delete(bytes)?, changing(bytes)?),
        6..=7 => (query(bytes)?, Way::Rows),
        8 => (definition(bytes)?, Way::Batch),
        _ => (odd(bytes)?, *bytes.choose(&[Way::Rows, Way::Batch])?),
    };
    let returning = way == Way::Rows && !sql.contains("SELECT") && bytes.ratio(1, 2)?;
    let is_changing = ["INSERT", "UPDATE", "DELETE"].iter().any(|word| sql.starts_with(word));
    let sql = if returning && is_changing { format!("{sql} RETURNING *") } else { sql };
    Ok(Statement { sql, way, is_refused: false, is_propagated })
}

fn changing(bytes: &mut Unstructured<'_>) -> Result<Way> {
    Ok(*bytes.choose(&[Way::Execute, Way::Rows, Way::Batch])?)
}

/// A small number, so that keys meet. Never the largest: SQLite draws rowids at random above it.
fn number(bytes: &mut Unstructured<'_>) -> Result<String> {
    Ok(match bytes.int_in_range(0..=11)? {
        9 => "NULL".into(),
        10 => "-1".into(),
        11 => (*bytes.choose(&["1099511627776", "1e300", "x'00ff'", "'text'", "0.5"])?).into(),
        small => format!("{small}"),
    })
}

fn clause(bytes: &mut Unstructured<'_>) -> Result<&'static str> {
    const CLAUSES: [&str; 8] =
        ["", "", "", " OR ABORT", " OR FAIL", " OR IGNORE", " OR REPLACE", " OR ROLLBACK"];
    Ok(bytes.choose(&CLAUSES)?)
}

fn insert(bytes: &mut Unstructured<'_>) -> Result<String> {
    let (clause, p, q, r) = (clause(bytes)?, number(bytes)?, number(bytes)?, number(bytes)?);
    Ok(match bytes.int_in_range(0..=6)? {
        0..=1 => format!("INSERT{clause} INTO a VALUES ({p}, {q}, {r})"),
        2 => format!("INSERT{clause} INTO a VALUES ({p}, 1, NULL), ({q}, 2, 'y'), ({r}, 3, NULL)"),
        3..=4 => format!("INSERT{clause} INTO b VALUES ({p}, {q}, {r})"),
        5 => format!("INSERT{clause} INTO c VALUES ('k', {p}), ('l', {q})"),
        _ => format!("INSERT INTO a(id, x) VALUES ({p}, {q}) ON CONFLICT DO UPDATE SET x = x + 1"),
    })
}

fn update(bytes: &mut Unstructured<'_>) -> Result<String> {
    let (clause, p, q) = (clause(bytes)?, number(bytes)?, number(bytes)?);
    Ok(match bytes.int_in_range(0..=4)? {
        0 => format!("UPDATE{clause} a SET x = {p} WHERE id >= {q}"),
        1 => format!("UPDATE{clause} a SET id = id + {p}"),
        2 => format!("UPDATE{clause} b SET n = n - {p} WHERE id < {q}"),
        3 => format!("UPDATE{clause} b SET a = {p}"),
        _ => format!("UPDATE{clause} a SET y = 'y' || {p} WHERE id = {q}"),
    })
}

fn delete(bytes: &mut Unstructured<'_>) -> Result<String> {
    let (table, p) = (*bytes.choose(&["a", "b", "c", "v", "missing"])?, number(bytes)?);
    let column = if table == "c" { "n" } else { "id" };
    Ok(match bytes.int_in_range(0..=2)? {
        0 => format!("DELETE FROM {table}"),
        1 => format!("DELETE FROM {table} WHERE {column} = {p}"),
        _ => format!("DELETE FROM {table} WHERE {column} > {p}"),
    })
}

fn query(bytes: &mut Unstructured<'_>) -> Result<String> {
    let p = number(bytes)?;
    Ok(match bytes.int_in_range(0..=7)? {
        0 => "SELECT * FROM a ORDER BY id".into(),
        1 => "SELECT * FROM b ORDER BY id".into(),
        2 => "SELECT * FROM v ORDER BY 1, 2, 3".into(),
        3 => format!("SELECT count(*), sum(n) FROM c WHERE n >= {p}"),
        4 => format!("SELECT abs({p}), {p} + 1, typeof({p}), json_array({p})"),
        5 => "PRAGMA user_version".into(),
        6 => "SELECT name FROM sqlite_schema ORDER BY name".into(),
        _ => format!("SELECT abs(-9223372036854775808 + (x = {p})) FROM a ORDER BY id"),
    })
}

fn definition(bytes: &mut Unstructured<'_>) -> Result<String> {
    let n = bytes.int_in_range(0..=2)?;
    Ok(match bytes.int_in_range(0..=9)? {
        0 => format!("CREATE TABLE t{n}(x PRIMARY KEY, y)"),
        1 => format!("DROP TABLE t{n}"),
        2 => format!("CREATE INDEX i{n} ON a(x)"),
        3 => format!("DROP INDEX i{n}"),
        4 => format!("ALTER TABLE a ADD COLUMN z{n} DEFAULT {n}"),
        5 => format!("ALTER TABLE t{n} RENAME TO t{}", (n + 1) % 3),
        6 => format!("CREATE UNIQUE INDEX u{n} ON b(n)"),
        7 => format!("PRAGMA user_version = {n}"),
        8 => format!("CREATE TABLE t{n} AS SELECT * FROM a"),
        _ => "DROP TABLE a".into(),
    })
}

fn odd(bytes: &mut Unstructured<'_>) -> Result<String> {
    let p = number(bytes)?;
    Ok(match bytes.int_in_range(0..=6)? {
        0 => "SELECT * FROM missing".into(),
        1 => "SELEC 1".into(),
        2 => format!("INSERT INTO t0 VALUES ({p}, {p}); INSERT INTO t0 VALUES ({p}, 2)"),
        3 => "VACUUM".into(),
        // A bare REINDEX does nothing on a connection that has not read the schema yet.
        4 => "REINDEX a".into(),
        5 => format!("SELECT zeroblob({p})"),
        _ => "SELECT 1; COMMIT_IS_NO_WORD".into(),
    })
}
