//! Every production is reached, and what it writes is accepted by SQLite; what must fail fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use monolite::rusqlite::Connection;
use monolite_testkit::random::SeededRng;

use super::*;
use crate::checks::differential::asking::ask_plain;
use crate::checks::differential::oracle::Effort;
use crate::checks::differential::schema::Schema;

/// Rules of what fails, or means something for a closure or a few tables alone.
const OTHERS: [&str; 6] = ["broken", "at_run_time", "failure", "violation", "wrong_call", "look"];

/// An empty database. SQLite is set up first, as the other tests of this process need it.
fn empty() -> Connection {
    monolite_sqlite::initialize().unwrap();
    Connection::open_in_memory().unwrap()
}

/// An empty database on which a statement that would run for minutes is ended.
fn plain(effort: &Arc<Effort>) -> Connection {
    let mut plain = empty();
    effort.watch(&mut plain).unwrap();
    plain
}

/// Draws statements against a database that they change, and tells the forms that were accepted.
fn draw(
    topics: &[Topic],
    draws: usize,
    rng: &mut SeededRng,
) -> (BTreeSet<&'static str>, BTreeMap<&'static str, String>) {
    let (mut accepted, mut refused) = (BTreeSet::new(), BTreeMap::new());
    for _ in 0..draws / 200 {
        let effort = Arc::default();
        let plain = plain(&effort);
        let wide = rng.bool();
        let mut marks = 0;
        for template in first_tables(rng, wide) {
            ask_plain(&plain, &template.step(rng, &mut marks)).unwrap();
        }
        let mut schema = Arc::new(Schema::load(&plain).unwrap());
        for _ in 0..200 {
            let topic = topics[rng.usize(..topics.len())];
            let template = statement(rng, &schema, topic);
            let step = template.step(rng, &mut marks);
            let forms = template.forms.iter().copied();
            effort.begin();
            match ask_plain(&plain, &step) {
                Ok(_) => accepted.extend(forms),
                Err(error) if error.is_no_rows() => accepted.extend(forms),
                Err(error) => {
                    refused.extend(forms.map(|form| (form, format!("{}: {error}", step.sql))))
                }
            }
            if matches!(topic, Topic::Definition | Topic::VirtualTable) {
                schema = Arc::new(Schema::load(&plain).unwrap());
            }
        }
    }
    (accepted, refused)
}

#[test]
#[ignore = "long: the gate runs it"]
fn every_form_is_reached_and_accepted() {
    let mut rng = SeededRng::new();
    let topics: Vec<_> = Topic::ALL.into_iter().filter(|it| *it != Topic::Failure).collect();
    let mut missing = GRAMMAR.accepted(&OTHERS);
    let mut refused = BTreeMap::new();
    for _ in 0..1_000 {
        let (accepted, others) = draw(&topics, 2_000, &mut rng);
        missing.retain(|form| !accepted.contains(form));
        refused.extend(others);
        if missing.is_empty() {
            return;
        }
    }
    let why = |form: &&'static str| (*form, refused.get(form).cloned());
    panic!("{:#?}", missing.iter().map(why).collect::<Vec<_>>());
}

#[test]
fn most_statements_are_accepted() {
    let mut rng = SeededRng::new();
    let (mut good, mut all) = (0, 0);
    let effort = Arc::default();
    let plain = plain(&effort);
    for template in first_tables(&mut rng, true) {
        ask_plain(&plain, &template.step(&mut rng, &mut 0)).unwrap();
    }
    for _ in 0..4_000 {
        let schema = Schema::load(&plain).unwrap();
        let topic = [Topic::Query, Topic::Change, Topic::Choice, Topic::Definition][rng.usize(..4)];
        let step = statement(&mut rng, &schema, topic).step(&mut rng, &mut 0);
        effort.begin();
        let answer = ask_plain(&plain, &step);
        let is_good = answer.as_ref().map_or_else(
            |error| error.is_no_rows() || error.kind() == monolite::ErrorKind::Constraint,
            |_| true,
        );
        (good, all) = (good + u32::from(is_good), all + 1);
    }
    assert!(good * 4 > all * 3, "{good} of {all}");
}

#[test]
fn what_must_fail_fails() {
    let plain = empty();
    let sql = "CREATE TABLE t1(id INTEGER PRIMARY KEY, a, b); CREATE TABLE t2(a, b, c);
               INSERT INTO t1 VALUES (1, 1, 1), (2, NULL, 2), (3, 1, 3)";
    plain.execute_batch(sql).unwrap();
    let lists = ["broken", "at_run_time"].map(|name| GRAMMAR.texts(name));
    for sql in lists.concat() {
        let sql = sql.trim_start_matches('~');
        plain.execute_batch("BEGIN").unwrap();
        let answer = ask_plain(&plain, &Step::plain(sql, How::All));
        assert!(answer.is_err(), "{sql}: {answer:?}");
        plain.execute_batch("ROLLBACK").unwrap();
    }
}
