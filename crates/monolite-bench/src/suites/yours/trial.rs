//! A round of the user's statements on SQLite: raw connections, and the engine in two ways.

use super::{Drawn, Kind, Shared, fresh};
use crate::drivers::Round;
use crate::raw_connection::open_bare;
use crate::suites::shift::{Crew, Shift};
use crate::suites::{Turn, on_engine};
use anyhow::{Result, ensure};
use monolite::{Database, ErrorKind, Options, ReadTx, rusqlite};
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, params_from_iter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// How long a raw connection waits for its turn to write.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who runs the statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Raw,
    Write,
    Interactive,
}

/// All of them: line and name.
pub(super) const WAYS: [(How, &str, &str); 3] = [
    (How::Raw, "raw", "raw, BEGIN IMMEDIATE, FULL"),
    (How::Write, "monolite", "monolite, write and read"),
    (How::Interactive, "monolite-interactive", "monolite, interactive"),
];

/// A round's work.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) shared: Arc<Shared>,
    pub(super) kind: Kind,
    pub(super) clients: usize,
    pub(super) base: PathBuf,
}

impl Work {
    pub(super) fn run(&self, how: How, turn: &Turn<'_>) -> Result<Round> {
        let path = fresh(&self.base)?;
        let serial = AtomicI64::new(self.shared.next.load(Ordering::Relaxed));
        let crew = Crew { threads: self.clients, sample: 1, turn };
        let round = if how == How::Raw {
            crew.work(|number, shift| {
                let mut connection = connect(&path)?;
                self.client(turn, number, &serial, shift, |kind, drawn| {
                    raw(&mut connection, kind, drawn)
                })
            })?
        } else {
            on_engine(Options::new(), &path, |db| {
                crew.work(|number, shift| {
                    self.client(turn, number, &serial, shift, |kind, drawn| match how {
                        How::Interactive => interactive(db, kind, drawn),
                        _ => closures(db, kind, drawn),
                    })
                })
            })?
        };
        verify(&path)?;
        Ok(round)
    }

    /// Runs transactions one after another until the round is over.
    fn client(
        &self,
        turn: &Turn<'_>,
        number: usize,
        serial: &AtomicI64,
        shift: &mut Shift<'_>,
        mut run: impl FnMut(Kind, &Drawn<'_>) -> Result<u32>,
    ) -> Result<()> {
        let mut random = turn.random(number);
        shift.begin();
        while shift.goes_on() {
            let (kind, drawn) = self.shared.draw(self.kind, &mut random, serial);
            match run(kind, &drawn) {
                Ok(attempts) => {
                    (1..attempts).for_each(|_| shift.repeated());
                    shift.acknowledged();
                }
                Err(error) if is_refused(&error) => {
                    shift.refused();
                    if shift.is_over() {
                        shift.give_up();
                        return Ok(());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn connect(path: &Path) -> Result<Connection> {
    let connection = open_bare(path)?;
    connection.busy_timeout(PATIENCE)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON",
    )?;
    Ok(connection)
}

/// Runs statements on a connection or in a transaction, and returns how many rows they found or
/// changed.
pub(super) fn statements(connection: &Connection, drawn: &Drawn<'_>) -> Result<u64> {
    let before = connection.total_changes();
    let mut found = 0;
    for (statement, values) in drawn {
        let mut prepared = connection.prepare_cached(&statement.sqlite)?;
        let mut rows = prepared.query(params_from_iter(values))?;
        while rows.next()?.is_some() {
            found += 1;
        }
    }
    Ok(found + (connection.total_changes() - before))
}

fn raw(connection: &mut Connection, kind: Kind, drawn: &Drawn<'_>) -> Result<u32> {
    let begin = if kind == Kind::Reads { "BEGIN" } else { "BEGIN IMMEDIATE" };
    connection.prepare_cached(begin)?.execute([])?;
    let done = statements(connection, drawn)
        .and_then(|_| Ok(connection.prepare_cached("COMMIT")?.execute([])?));
    if done.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    done.map(|_| 1)
}

fn closures(db: &Database, kind: Kind, drawn: &Drawn<'_>) -> Result<u32> {
    let borrowed = drawn.iter().map(|(statement, values)| (&statement.sqlite, values));
    if kind == Kind::Reads {
        db.read(|tx| each(tx, borrowed.clone())).wait()?;
    } else {
        let own: Vec<(String, Vec<Value>)> =
            borrowed.map(|(sql, values)| (sql.clone(), values.clone())).collect();
        db.write(move |tx| each(tx, own.iter().map(|(sql, values)| (sql, values)))).wait()?;
    }
    Ok(1)
}

/// Runs statements with their values, and reads all of their rows.
fn each<'d>(
    tx: &ReadTx<'_>,
    drawn: impl Iterator<Item = (&'d String, &'d Vec<Value>)>,
) -> Result<(), monolite::Error> {
    for (sql, values) in drawn {
        let mut prepared = tx.prepare_cached(sql)?;
        let mut rows = prepared.query(params_from_iter(values))?;
        while rows.next()?.is_some() {}
    }
    Ok(())
}

fn interactive(db: &Database, kind: Kind, drawn: &Drawn<'_>) -> Result<u32> {
    // An application reads alone where it only reads.
    if kind == Kind::Reads {
        return closures(db, kind, drawn);
    }
    let transacted = db.transact(async |tx| {
        for (statement, values) in drawn {
            tx.query_map(&statement.sqlite, values.clone(), |_| Ok(())).wait()?;
        }
        Ok::<_, monolite::Error>(tx.attempt())
    });
    Ok(transacted.wait()?)
}

/// Whether a constraint of the user's refused a transaction.
pub(super) fn is_refused(error: &anyhow::Error) -> bool {
    let raw = error.downcast_ref::<rusqlite::Error>();
    let ours = error.downcast_ref::<monolite::Error>();
    raw.is_some_and(|error| error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation))
        || ours.is_some_and(|error| error.kind() == ErrorKind::Constraint)
}

fn verify(path: &Path) -> Result<()> {
    let connection = open_bare(path)?;
    let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    ensure!(sound == "ok", "integrity_check found: {sound}");
    let orphans: i64 =
        connection
            .query_row("SELECT count(*) FROM pragma_foreign_key_check()", [], |row| row.get(0))?;
    ensure!(orphans == 0, "foreign_key_check found {orphans} rows without their parents");
    Ok(())
}
