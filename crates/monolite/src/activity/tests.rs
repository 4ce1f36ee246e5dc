//! Which statement of a call is shown, and which one is the slowest.

use super::*;
use crate::clock::hand::HandClock;

const MS: Duration = Duration::from_millis(1);

fn trace() -> (Arc<HandClock>, Trace) {
    let clock = Arc::<HandClock>::default();
    clock.advance(MS);
    (Arc::clone(&clock), Trace::new(clock))
}

#[test]
fn the_slowest_statement_is_told_wherever_it_stands() {
    for slow in 0..6 {
        let (clock, trace) = trace();
        let statements = Statements::new(&trace);
        for number in 0..6 {
            // The closure's own time is no statement's.
            clock.advance(50 * MS);
            let running = statements.enter(&format!("SELECT {number}"));
            clock.advance(if number == slow { 9 * MS } else { MS });
            drop(running);
        }
        let slowest = statements.slowest();
        assert_eq!((slowest.text, slowest.time), (format!("SELECT {slow}"), 9 * MS));
    }
}

#[test]
fn a_statement_is_shown_while_it_runs_and_not_behind_it() {
    let (clock, trace) = trace();
    let statements = Statements::new(&trace);
    let shown = || trace.statement(clock.now());
    assert_eq!(shown(), None);
    let running = statements.enter("SELECT 1");
    clock.advance(MS);
    assert_eq!(shown(), Some(("SELECT 1".into(), MS)));
    drop(statements.enter("SELECT 2"));
    assert_eq!(shown(), Some(("SELECT 1".into(), MS)), "it is part of the first");
    drop(running);
    assert_eq!(shown(), None);
    statements.enter("SELECT 3").hand_out();
    clock.advance(2 * MS);
    assert_eq!(shown(), Some(("SELECT 3".into(), 2 * MS)), "it may run until the next");
    drop(statements.enter("SELECT 4"));
    let slowest = statements.slowest();
    assert_eq!((slowest.text.as_str(), slowest.time), ("SELECT 3", 2 * MS));
    let next = Statements::new(&trace);
    assert_eq!(next.slowest().text, "", "nothing is left of the call before");
}

#[test]
fn rows_stepped_behind_another_statement_are_not_said_to_be_fast() {
    let (clock, trace) = trace();
    let statements = Statements::new(&trace);
    statements.enter("SELECT outer").hand_out();
    drop(statements.enter("SELECT inner"));
    clock.advance(900 * MS);
    let told = statements.slowest().to_string();
    assert!(told.starts_with("no slow statement was measured (the rows of a prepared"), "{told}");
}

#[test]
fn a_long_text_is_cut_between_two_characters() {
    let text = format!("{}ä", "x".repeat(KEPT_SQL - 1));
    assert_eq!(truncated(&text).len(), KEPT_SQL - 1);
}
