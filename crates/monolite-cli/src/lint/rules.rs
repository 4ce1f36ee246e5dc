//! Owns the table of rules: the name of each, what is otherwise, and the remedy.

use super::has;

/// The rules for words; behind an empty line, those for functions.
const RULES: &str = include_str!("rules.txt");

/// A line of them.
pub(super) type Rule = (&'static str, &'static str, &'static str);

/// The first rule of a part whose name `is_it`.
fn rule(part: &'static str, is_it: impl Fn(&str) -> bool) -> Option<Rule> {
    let mut rules = part.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" | ")?;
        let (difference, remedy) = rest.split_once(" | ")?;
        Some((name, difference, remedy))
    });
    rules.find(|(name, ..)| is_it(name))
}

/// The parts for words, and for functions.
fn parts() -> (&'static str, &'static str) {
    RULES.split_once("\n\n").expect("there are two")
}

/// The rule for words that has this name.
pub(super) fn of_words(name: &str) -> Rule {
    rule(parts().0, |it| it == name).expect("it is in the table")
}

/// The rule for a function.
pub(super) fn of_function(name: &str) -> Option<Rule> {
    let (_, difference, remedy) = rule(parts().1, |names| has(names, name))?;
    Some(("function", difference, remedy))
}
