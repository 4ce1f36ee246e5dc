//! Random requests of one client, answered as plain SQLite answers the same statements one by one.
//! So a batch that runs as one closure is compared with its steps.

use fastrand::Rng;
use monolite::rusqlite::types::ValueRef;
use monolite::rusqlite::{Connection, ErrorCode, Statement};
use serde_json::{Value, json};

use crate::served::{Client, Served};

/// How many scripts of requests.
const SCRIPTS: u32 = 150;

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, x UNIQUE, n CHECK (n < 5));
    CREATE TABLE c(t REFERENCES t ON DELETE CASCADE, d REFERENCES t DEFERRABLE INITIALLY DEFERRED);
    CREATE TRIGGER r AFTER DELETE ON t BEGIN UPDATE c SET d = NULL WHERE d = old.id; END;";

fn statement(rng: &mut Rng) -> String {
    let (a, b) = (rng.u8(0..6), rng.u8(0..6));
    let or = rng.choice(["", "", "OR IGNORE ", "OR REPLACE ", "OR ABORT ", "OR FAIL "]).unwrap();
    match rng.u8(0..12) {
        0..3 => format!("INSERT {or}INTO t VALUES ({a}, {b}, {b})"),
        3 => format!("INSERT {or}INTO t VALUES ({a}, 1{b}, 1), ({b}, 1{a}, 2) RETURNING id, x"),
        4 => format!("UPDATE {or}t SET x = {b}, n = n + 1 WHERE id >= {a}"),
        5 => format!("DELETE FROM t WHERE id = {a}"),
        6 => format!("INSERT INTO c VALUES ({a}, {b})"),
        7 => format!("INSERT INTO c(t) VALUES ({a})"),
        8 => "DELETE FROM c".to_owned(),
        9 => "SELECT * FROM missing".to_owned(),
        10 => "SELECT t.id, x, n, (SELECT count(*) FROM c) FROM t ORDER BY id".to_owned(),
        _ => "SELECT count(*), total(t), total(d) FROM c".to_owned(),
    }
}

/// A statement, or one that controls the transaction.
fn any(rng: &mut Rng) -> String {
    let control = ["BEGIN", "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK", "END"];
    let nested = ["SAVEPOINT a", "SAVEPOINT b", "RELEASE a", "RELEASE b", "ROLLBACK TO a"];
    match rng.u8(0..10) {
        0..2 => (*rng.choice(control).unwrap()).to_owned(),
        2 => (*rng.choice(nested).unwrap()).to_owned(),
        _ => statement(rng),
    }
}

/// A batch, more often one of those that clients make.
fn steps(rng: &mut Rng) -> Vec<(String, Value)> {
    let ok = |step: usize| json!({ "type": "ok", "step": step });
    let mut steps: Vec<(String, Value)> = Vec::new();
    let is_transaction = rng.bool();
    if is_transaction {
        steps.push(("BEGIN".into(), Value::Null));
    }
    for _ in 0..rng.usize(1..5) {
        let before = steps.len().checked_sub(1);
        let condition = match (before, rng.u8(0..6)) {
            (Some(before), 0..3) => ok(before),
            (Some(before), 3) => json!({ "type": "error", "step": before }),
            (_, 4) => json!({ "type": "not", "cond": { "type": "is_autocommit" } }),
            _ => Value::Null,
        };
        let sql = if rng.u8(0..8) == 0 { any(rng) } else { statement(rng) };
        steps.push((sql, condition));
    }
    if is_transaction && rng.u8(0..6) > 0 {
        let condition = if rng.bool() { ok(steps.len() - 1) } else { Value::Null };
        steps.push(("COMMIT".into(), condition));
        let committed = json!({ "type": "not", "cond": ok(steps.len() - 1) });
        steps.push(("ROLLBACK".into(), committed));
    }
    steps
}

/// What is compared of a step: whether it was skipped or failed, its rows, and what it changed.
#[derive(Debug, PartialEq)]
enum Outcome {
    Skipped,
    Failed,
    Done(Vec<Vec<String>>, u64),
}

impl Outcome {
    fn of(result: &Value, error: &Value) -> Outcome {
        if !error.is_null() {
            return Outcome::Failed;
        }
        if result.is_null() {
            return Outcome::Skipped;
        }
        let value = |value: &Value| match &value["value"] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let row = |row: &Value| row.as_array().unwrap().iter().map(value).collect();
        let rows = result["rows"].as_array().unwrap().iter().map(row).collect();
        Outcome::Done(rows, result["affected_row_count"].as_u64().unwrap())
    }
}

/// Plain SQLite, with what the protocol adds.
struct Oracle(Connection);

impl Oracle {
    fn run(&self, sql: &str) -> Outcome {
        let Ok(mut statement) = self.0.prepare(sql) else { return Outcome::Failed };
        let changes = ["INSERT", "UPDATE", "DELETE"].iter().any(|word| sql.starts_with(word));
        let rows = Oracle::rows(&mut statement);
        drop(statement);
        match rows {
            Ok(rows) => Outcome::Done(rows, if changes { self.0.changes() } else { 0 }),
            Err(error) => {
                // A commit that fails ends the transaction here.
                let ends = ["COMMIT", "END", "RELEASE"].iter().any(|word| sql.starts_with(word));
                let is_constraint =
                    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation);
                if ends && is_constraint && !self.0.is_autocommit() {
                    self.0.execute_batch("ROLLBACK").unwrap();
                }
                Outcome::Failed
            }
        }
    }

    fn rows(statement: &mut Statement<'_>) -> monolite::rusqlite::Result<Vec<Vec<String>>> {
        let columns = statement.column_count();
        let mut rows = statement.raw_query();
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            let value = |column| match row.get_ref(column).unwrap() {
                ValueRef::Null => "null".to_owned(),
                ValueRef::Integer(number) => number.to_string(),
                ValueRef::Real(number) => json!(number).to_string(),
                other => other.as_str().unwrap().to_owned(),
            };
            all.push((0..columns).map(value).collect());
        }
        Ok(all)
    }

    fn holds(&self, condition: &Value, before: &[Outcome]) -> bool {
        let is_done = || {
            let step = condition["step"].as_u64().unwrap() as usize;
            matches!(before[step], Outcome::Done(..))
        };
        match condition["type"].as_str() {
            None => true,
            Some("ok") => is_done(),
            Some("error") => !is_done(),
            Some("not") => !self.holds(&condition["cond"], before),
            Some(_) => self.0.is_autocommit(),
        }
    }

    fn batch(&self, steps: &[(String, Value)]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for (sql, condition) in steps {
            let is_due = self.holds(condition, &outcomes);
            outcomes.push(if is_due { self.run(sql) } else { Outcome::Skipped });
        }
        outcomes
    }
}

fn batch(client: &mut Client<'_>, steps: &[(String, Value)]) -> Vec<Outcome> {
    let steps: Vec<_> = steps.iter().map(|(sql, condition)| (&**sql, condition.clone())).collect();
    let done = client.batch(&steps);
    let outcome = |at| Outcome::of(&done["step_results"][at], &done["step_errors"][at]);
    (0..steps.len()).map(outcome).collect()
}

/// What a client has said, a request in a line.
fn told(said: &[Vec<(String, Value)>]) -> String {
    let step = |(sql, condition): &(String, Value)| match condition {
        Value::Null => sql.clone(),
        condition => format!("{sql} IF {condition}"),
    };
    let request =
        |steps: &Vec<_>| format!("\n{}", steps.iter().map(step).collect::<Vec<_>>().join("; "));
    said.iter().map(request).collect()
}

#[test]
fn answers_are_those_of_plain_sqlite() {
    let seed = std::env::var("MONOLITE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("MONOLITE_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let served = Served::one();
    for number in 0..SCRIPTS {
        let mut client = served.stream();
        let clean = "DROP TABLE IF EXISTS c; DROP TABLE IF EXISTS t;";
        let schema = json!({ "type": "sequence", "sql": format!("{clean}{SCHEMA}") });
        client.one(schema).unwrap();
        let oracle = Oracle(Connection::open_in_memory().unwrap());
        oracle.0.execute_batch(&format!("PRAGMA foreign_keys = ON; {SCHEMA}")).unwrap();
        let mut said = Vec::new();
        for _ in 0..12 {
            let steps =
                if rng.bool() { steps(&mut rng) } else { vec![(any(&mut rng), Value::Null)] };
            let expected = oracle.batch(&steps);
            let found = if steps.len() == 1 && steps[0].1.is_null() {
                let answer = client.execute(&steps[0].0);
                let (result, error) = (answer.clone().unwrap_or_default(), answer.err());
                vec![Outcome::of(&result, &error.unwrap_or_default())]
            } else {
                batch(&mut client, &steps)
            };
            said.push(steps);
            assert_eq!(found, expected, "script {number}: {}", told(&said));
            let open = client.one(json!({ "type": "get_autocommit" })).unwrap();
            let is_autocommit = oracle.0.is_autocommit();
            assert_eq!(open["is_autocommit"], is_autocommit, "script {number}: {}", told(&said));
        }
    }
}
