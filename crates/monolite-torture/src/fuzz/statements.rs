//! Sequences of statements through `write`, `write_once`, `read` and interactive transactions,
//! against plain SQLite.
//!
//! # Algorithm
//! 1. The transactions between two reads are submitted at once, so that the engine makes batches of
//!    them, undoes groups and runs members again.
//! 2. Plain SQLite runs the same transactions one after another. Where the engine has rules of its
//!    own, the model has them, too: what it refuses, and that nothing runs after a statement has
//!    rolled the transaction back.
//! 3. Interactive transactions run alone, so that none may conflict. Before the statements of some
//!    another one takes the only connection that there is, so that they move.
//! 4. What every statement returned, how every transaction ended and the final content must agree.

use anyhow::{Context as _, Result, ensure};
use arbitrary::Unstructured;
use monolite::rusqlite::{self, Connection, Row};
use monolite::{Database, Error, ErrorKind, Options, Tx, Write};

use super::grammar::{Kind, SCHEMA, Statement, TABLES, Transaction, Way, transactions};

/// What a statement said: its rows or changes, or the kind of its error.
type Said = Result<String, ErrorKind>;

/// What every statement said, and how the transaction ended.
type Told = (Vec<Said>, Result<(), ErrorKind>);

/// An ended transaction's error, with what its statements had said.
struct Failed(Vec<Said>, Error);

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed(Vec::new(), error)
    }
}

/// Runs the transactions that `data` stands for in both.
///
/// # Errors
/// What disagreed, and the transactions.
pub fn statements(data: &[u8]) -> Result<()> {
    let Ok(transactions) = transactions(&mut Unstructured::new(data)) else { return Ok(()) };
    let db = Options::new().readers(1).transaction_connections(1).open(":memory:")?;
    db.write(|tx| tx.execute_batch(SCHEMA)).wait()?;
    let plain = Connection::open_in_memory()?;
    plain.execute_batch("PRAGMA foreign_keys = ON")?;
    plain.execute_batch(SCHEMA)?;
    let compared = compare(&db, &plain, &transactions);
    compared.with_context(|| format!("{transactions:#?}"))?;
    Ok(db.close()?)
}

fn compare(db: &Database, plain: &Connection, transactions: &[Transaction]) -> Result<()> {
    let mut pending: Vec<(&Transaction, Write<Vec<Said>, Failed>)> = Vec::new();
    for transaction in transactions {
        if transaction.kind == Kind::Read {
            settle(plain, &mut pending)?;
            let read = db.with_error().read(|tx| engine(tx, transaction)).wait();
            agree(transaction, told(read), model(plain, transaction)?)?;
            continue;
        }
        if transaction.kind == Kind::Interactive {
            settle(plain, &mut pending)?;
            let ran = interact(db, transaction);
            agree(transaction, told(ran), model(plain, transaction)?)?;
            continue;
        }
        let own = transaction.clone();
        let write = match transaction.kind {
            Kind::Once => db.with_error().write_once(move |tx| engine(tx, &own)),
            _ => db.with_error().write(move |tx| engine(tx, &own)),
        };
        pending.push((transaction, write));
    }
    settle(plain, &mut pending)?;
    let ours = db.read(|tx| Ok::<_, Error>(dump(|sql| Ok(rows(&mut tx.prepare(sql)?)?)))).wait()?;
    let theirs = dump(|sql| Ok(rows(&mut plain.prepare(sql)?)?));
    let (ours, theirs) = (ours?, theirs?);
    ensure!(ours == theirs, "the content differs:\nengine {ours:#?}\nSQLite {theirs:#?}");
    Ok(())
}

type Pending<'t> = Vec<(&'t Transaction, Write<Vec<Said>, Failed>)>;

fn settle(plain: &Connection, pending: &mut Pending<'_>) -> Result<()> {
    for (transaction, write) in pending.drain(..) {
        agree(transaction, told(write.wait()), model(plain, transaction)?)?;
    }
    Ok(())
}

fn agree(transaction: &Transaction, engine: Told, plain: Told) -> Result<()> {
    // An engine's verdict comes without what the statements said.
    let is_verdict = engine.0.is_empty() && engine.1.is_err();
    let is_same = engine.1 == plain.1 && (is_verdict || engine.0 == plain.0);
    ensure!(is_same, "{transaction:#?}\nengine {engine:?}\nSQLite {plain:?}");
    Ok(())
}

fn told(result: Result<Vec<Said>, Failed>) -> Told {
    match result {
        Ok(said) => (said, Ok(())),
        Err(Failed(said, error)) => (said, Err(error.kind())),
    }
}

/// What the statements of a transaction say, up to the one whose error ends it.
fn each(
    transaction: &Transaction,
    mut run: impl FnMut(&Statement) -> Result<String, Error>,
) -> Result<Vec<Said>, Failed> {
    let mut said = Vec::new();
    for statement in &transaction.statements {
        match run(statement) {
            Ok(text) => said.push(Ok(text)),
            Err(error) => {
                said.push(Err(error.kind()));
                if statement.is_propagated {
                    return Err(Failed(said, error));
                }
            }
        }
    }
    if transaction.gives_up {
        return Err(Failed(said, Error::aborted("on purpose")));
    }
    Ok(said)
}

/// A transaction that is run as an interactive one.
fn interact(db: &Database, transaction: &Transaction) -> Result<Vec<Said>, Failed> {
    let tx = db.transaction()?;
    let said = each(transaction, |statement| {
        if transaction.is_moved {
            db.transaction()?.query_row("SELECT 1", (), |_| Ok(())).wait()?;
        }
        interactively(&tx, statement)
    })?;
    match tx.commit().wait() {
        Ok(_) => Ok(said),
        Err(error) => Err(Failed(said, error)),
    }
}

fn interactively(tx: &monolite::Transaction, statement: &Statement) -> Result<String, Error> {
    let sql = statement.sql.as_str();
    match statement.way {
        Way::Rows => Ok(format!("{:?}", tx.query_map(sql, (), values).wait()?)),
        Way::Execute => Ok(tx.execute(sql, ()).wait()?.to_string()),
        Way::Batch => tx.execute_batch(sql).wait().map(|()| String::new()),
        Way::Savepoint => {
            let (verb, name) = sql.rsplit_once(' ').unwrap_or((sql, ""));
            let done = match verb {
                "SAVEPOINT" => tx.savepoint(name),
                "RELEASE" => tx.release(name),
                _ => tx.rollback_to(name),
            };
            done.wait().map(|()| String::new())
        }
    }
}

/// The closure of a transaction.
fn engine(tx: &Tx<'_>, transaction: &Transaction) -> Result<Vec<Said>, Failed> {
    each(transaction, |statement| in_engine(tx, statement))
}

fn in_engine(tx: &Tx<'_>, statement: &Statement) -> Result<String, Error> {
    let sql = statement.sql.as_str();
    match statement.way {
        Way::Rows => Ok(format!("{:?}", rows(&mut tx.prepare(sql)?)?)),
        Way::Execute => Ok(tx.execute(sql, ())?.to_string()),
        // Savepoints are steps of interactive transactions alone.
        Way::Batch | Way::Savepoint => tx.execute_batch(sql).map(|()| String::new()),
    }
}

/// The same transaction in plain SQLite, with the engine's rules.
fn model(plain: &Connection, transaction: &Transaction) -> Result<Told> {
    let is_read = transaction.kind == Kind::Read;
    // What a statement says after one that has rolled the transaction back.
    let mut after_rollback = ErrorKind::Aborted;
    plain.execute_batch(if is_read {
        "BEGIN; PRAGMA query_only = ON"
    } else {
        "BEGIN IMMEDIATE"
    })?;
    let mut said = Vec::new();
    let mut end = Ok(());
    for statement in &transaction.statements {
        let result = if plain.is_autocommit() {
            Err(after_rollback)
        } else if statement.is_refused {
            Err(ErrorKind::Invalid)
        } else {
            in_plain(plain, statement).map_err(|error| Error::from(error).kind())
        };
        if let (Kind::Interactive, true, Err(kind)) =
            (transaction.kind, plain.is_autocommit(), &result)
        {
            after_rollback = *kind;
        }
        let failed = result.clone().err().filter(|_| statement.is_propagated);
        said.push(result);
        if let Some(kind) = failed {
            end = Err(kind);
            break;
        }
    }
    if end.is_ok() && transaction.gives_up {
        end = Err(ErrorKind::Aborted);
    }
    if plain.is_autocommit() {
        return Ok((said, end.and(Err(after_rollback))));
    }
    if end.is_ok() && !is_read {
        end = plain.execute_batch("COMMIT").map_err(|error| Error::from(error).kind());
    }
    if !plain.is_autocommit() {
        plain.execute_batch("ROLLBACK")?;
    }
    if is_read {
        plain.execute_batch("PRAGMA query_only = OFF")?;
    }
    Ok((said, end))
}

fn in_plain(plain: &Connection, statement: &Statement) -> rusqlite::Result<String> {
    let sql = statement.sql.as_str();
    match statement.way {
        Way::Rows => Ok(format!("{:?}", rows(&mut plain.prepare(sql)?)?)),
        Way::Execute => Ok(plain.prepare(sql)?.execute(())?.to_string()),
        Way::Batch | Way::Savepoint => plain.execute_batch(sql).map(|()| String::new()),
    }
}

/// The rows of a query.
fn rows(statement: &mut rusqlite::Statement<'_>) -> rusqlite::Result<Vec<Vec<String>>> {
    statement.query_map((), values)?.collect()
}

/// Each value of a row as text: what is stored as text need not be UTF-8.
fn values(row: &Row<'_>) -> rusqlite::Result<Vec<String>> {
    let columns = AsRef::<rusqlite::Statement<'_>>::as_ref(row).column_count();
    (0..columns).map(|column| row.get_ref(column).map(|value| format!("{value:?}"))).collect()
}

/// Everything that a database holds, in order.
fn dump(
    mut query: impl FnMut(&str) -> Result<Vec<Vec<String>>>,
) -> Result<Vec<(String, Vec<Vec<String>>)>> {
    let mut content = vec![];
    for sql in [
        "PRAGMA integrity_check",
        "PRAGMA user_version",
        "SELECT type, name, sql FROM sqlite_schema ORDER BY name",
    ] {
        content.push((sql.to_owned(), query(sql)?));
    }
    for name in TABLES {
        if query(&format!("SELECT 1 FROM sqlite_schema WHERE name = '{name}'"))?.is_empty() {
            continue;
        }
        let mut found = query(&format!("SELECT * FROM \"{name}\""))?;
        found.sort();
        content.push((name.to_owned(), found));
    }
    Ok(content)
}
