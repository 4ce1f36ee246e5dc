//! What one random transaction does, how it ends, and how its caller must be told.

use std::any::Any;
use std::time::Duration;

use monolite::{Error, ErrorKind, Tx};

use crate::hand_clock::HandClock;

/// The time limit of a transaction, on a clock that only [`Ending::TimeLimit`] moves.
pub(super) const LIMIT: Duration = Duration::from_millis(1);

pub(super) const ACCOUNTS: i64 = 8;
pub(super) const OPENING_BALANCE: i64 = 1_000;
pub(super) const KEYS: i64 = 12;

pub(super) const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS sequence(
        one INTEGER PRIMARY KEY CHECK (one = 1), n INTEGER NOT NULL
    ) STRICT;
    INSERT OR IGNORE INTO sequence VALUES (1, 0);
    CREATE TABLE IF NOT EXISTS account(
        id INTEGER PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0)
    ) STRICT;
    INSERT OR IGNORE INTO account VALUES
        (0, 1000), (1, 1000), (2, 1000), (3, 1000), (4, 1000), (5, 1000), (6, 1000), (7, 1000);
    CREATE TABLE IF NOT EXISTS item(key INTEGER PRIMARY KEY, value INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS log(at INTEGER PRIMARY KEY, plan INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS parent(id INTEGER PRIMARY KEY) STRICT;
    CREATE TABLE IF NOT EXISTS child(
        parent INTEGER NOT NULL REFERENCES parent(id) DEFERRABLE INITIALLY DEFERRED
    ) STRICT;
    CREATE TABLE IF NOT EXISTS tripwire(x INTEGER) STRICT;
    CREATE TRIGGER IF NOT EXISTS trip BEFORE INSERT ON tripwire BEGIN
        SELECT RAISE(ROLLBACK, 'tripped');
    END;
";

/// One step of a transaction.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Transfer { from: i64, to: i64, most: i64 },
    Add { key: i64, value: i64 },
    Insert { key: i64, value: i64 },
    Delete { key: i64 },
    Look { key: i64 },
    Append,
    Total,
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Commits,
    OwnError,
    OwnErrorBeforeWriting,
    Constraint,
    Panic,
    OrRollback,
    SwallowedRollback,
    RaiseRollback,
    DeferredKey,
    TimeLimit,
}

impl Ending {
    pub(super) const FAILING: [Ending; 9] = [
        Ending::OwnError,
        Ending::OwnErrorBeforeWriting,
        Ending::Constraint,
        Ending::Panic,
        Ending::OrRollback,
        Ending::SwallowedRollback,
        Ending::RaiseRollback,
        Ending::DeferredKey,
        Ending::TimeLimit,
    ];
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) id: i64,
    pub(super) ops: Vec<Op>,
    pub(super) ending: Ending,
}

/// What a transaction tells its caller.
#[derive(Clone, Debug)]
pub(super) struct Gave {
    /// Its place in the commit order.
    pub(super) number: i64,
    pub(super) saw: Vec<i64>,
}

/// Why a transaction failed.
#[derive(Debug)]
pub(super) enum Stopped {
    OnPurpose,
    Engine(Error),
}

const PANIC: &str = "a panic on purpose";

impl Plan {
    pub(super) fn random(id: i64, failing: u32, rng: &mut fastrand::Rng) -> Plan {
        let ending = match rng.u32(..failing) {
            0 => Ending::FAILING[rng.usize(..Ending::FAILING.len())],
            _ => Ending::Commits,
        };
        Plan { id, ops: (0..rng.u8(1..5)).map(|_| Op::random(rng)).collect(), ending }
    }

    pub(super) fn appending(id: i64, ending: Ending) -> Plan {
        Plan { id, ops: vec![Op::Append], ending }
    }
}

impl Op {
    fn random(rng: &mut fastrand::Rng) -> Op {
        let (key, value) = (rng.i64(0..KEYS), rng.i64(1..100));
        match rng.u8(..9) {
            0..3 => {
                let from = rng.i64(0..ACCOUNTS);
                let to = (from + rng.i64(1..ACCOUNTS)) % ACCOUNTS;
                Op::Transfer { from, to, most: rng.i64(0..500) }
            }
            3 => Op::Add { key, value },
            4 => Op::Insert { key, value },
            5 => Op::Delete { key },
            6 => Op::Look { key },
            7 => Op::Append,
            _ => Op::Total,
        }
    }

    fn run(&self, tx: &Tx<'_>, id: i64) -> Result<Vec<i64>, Error> {
        let one = |sql: &str, params: &[i64]| {
            tx.query_row(sql, monolite::rusqlite::params_from_iter(params), |row| row.get(0))
        };
        Ok(match *self {
            Op::Transfer { from, to, most } => {
                let balance: i64 = one("SELECT balance FROM account WHERE id = ?1", &[from])?;
                let amount = most.min(balance);
                let change = "UPDATE account SET balance = balance + ?1 WHERE id = ?2 \
                              RETURNING balance";
                vec![balance, one(change, &[-amount, from])?, one(change, &[amount, to])?]
            }
            Op::Add { key, value } => vec![one(
                "INSERT INTO item VALUES (?1, ?2) \
                 ON CONFLICT (key) DO UPDATE SET value = value + excluded.value RETURNING value",
                &[key, value],
            )?],
            Op::Insert { key, value } => {
                let sql = "INSERT OR IGNORE INTO item VALUES (?1, ?2)";
                vec![tx.execute(sql, (key, value))? as i64]
            }
            Op::Delete { key } => {
                vec![tx.execute("DELETE FROM item WHERE key = ?1", [key])? as i64]
            }
            Op::Look { key } => {
                let sql = "SELECT COALESCE((SELECT value FROM item WHERE key = ?1), -1)";
                vec![one(sql, &[key])?]
            }
            Op::Append => {
                tx.execute("INSERT INTO log(plan) VALUES (?1)", [id])?;
                vec![tx.last_insert_rowid()]
            }
            Op::Total => vec![one("SELECT SUM(balance) FROM account", &[])?],
        })
    }
}

/// Runs `plan` as a closure of the engine would be.
pub(super) fn run(tx: &Tx<'_>, plan: &Plan, clock: &HandClock) -> Result<Gave, Stopped> {
    if plan.ending == Ending::OwnErrorBeforeWriting {
        let _: i64 = tx.query_row("SELECT n FROM sequence", (), |row| row.get(0))?;
        return Err(Stopped::OnPurpose);
    }
    let next = "UPDATE sequence SET n = n + 1 RETURNING n";
    let number = tx.query_row(next, (), |row| row.get(0))?;
    let mut saw = Vec::new();
    for op in &plan.ops {
        saw.extend(op.run(tx, plan.id)?);
    }
    fail(tx, plan.ending, clock)?;
    Ok(Gave { number, saw })
}

fn fail(tx: &Tx<'_>, ending: Ending, clock: &HandClock) -> Result<(), Stopped> {
    let rolls_back = "INSERT OR ROLLBACK INTO sequence VALUES (1, 0)";
    match ending {
        Ending::Commits => {}
        Ending::OwnError | Ending::OwnErrorBeforeWriting => return Err(Stopped::OnPurpose),
        Ending::Constraint => {
            tx.execute("INSERT INTO sequence VALUES (1, 0)", ())?;
        }
        // Without the hook that would print each of hundreds.
        Ending::Panic => std::panic::resume_unwind(Box::new(PANIC)),
        Ending::OrRollback => {
            tx.execute(rolls_back, ())?;
        }
        Ending::SwallowedRollback => {
            let mut before = tx.prepare("INSERT INTO log(plan) VALUES (-1)")?;
            assert!(tx.execute(rolls_back, ()).is_err());
            assert!(before.execute(()).is_err(), "it would have committed by itself");
            assert!(tx.execute("INSERT INTO log(plan) VALUES (-2)", ()).is_err());
        }
        Ending::RaiseRollback => {
            tx.execute("INSERT INTO tripwire VALUES (1)", ())?;
        }
        Ending::DeferredKey => {
            tx.execute("INSERT INTO child VALUES (999)", ())?;
        }
        Ending::TimeLimit => {
            clock.advance(LIMIT * 2);
            let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                           INSERT INTO log(plan) SELECT i FROM n WHERE i < 0";
            tx.execute(endless, ())?;
        }
    }
    Ok(())
}

type Outcome = Result<Result<Gave, Stopped>, Box<dyn Any + Send>>;

impl Ending {
    /// Whether a caller was told what it had to be told; what it was given, if it committed.
    pub(super) fn judge(self, outcome: &Outcome) -> Result<Option<&Gave>, String> {
        let kind = match outcome {
            Ok(Ok(gave)) if self == Ending::Commits => return Ok(Some(gave)),
            Ok(Ok(_)) => return Err("it was acknowledged".into()),
            Err(payload) => {
                let is_ours = payload.downcast_ref::<&str>() == Some(&PANIC);
                return match (self, is_ours) {
                    (Ending::Panic, true) => Ok(None),
                    _ => Err(format!("panicked: {:?}", payload.downcast_ref::<String>())),
                };
            }
            Ok(Err(Stopped::OnPurpose)) => {
                return match self {
                    Ending::OwnError | Ending::OwnErrorBeforeWriting => Ok(None),
                    _ => Err("its closure gave up".into()),
                };
            }
            Ok(Err(Stopped::Engine(error))) => error.kind(),
        };
        let expected = match self {
            Ending::Constraint | Ending::OrRollback | Ending::RaiseRollback => {
                ErrorKind::Constraint
            }
            Ending::DeferredKey => ErrorKind::Constraint,
            Ending::SwallowedRollback => ErrorKind::Aborted,
            Ending::TimeLimit => ErrorKind::Timeout,
            _ => return Err(format!("unexpected {outcome:?}")),
        };
        if kind == expected { Ok(None) } else { Err(format!("{outcome:?}")) }
    }
}
