//! Owns what a history can end with: a difference between the engine and the oracle, with a
//! signature that is the same for the same cause, as far as that can be told.

use monolite::Error;
use serde::{Deserialize, Serialize};

use super::answer::normal;
use super::oracle::Wrong;
use super::record::Step;

/// Something that must not be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Difference {
    /// In what way the transaction was run.
    pub(super) way: String,
    /// The statement or the part of the content.
    pub(super) subject: String,
    pub(super) told: String,
    pub(super) expected: String,
}

/// Why a history does not go on.
#[derive(Debug)]
pub(super) enum Stop {
    Different(Box<Difference>),
    /// The check itself cannot go on.
    Broken(anyhow::Error),
}

impl From<Difference> for Stop {
    fn from(difference: Difference) -> Stop {
        Stop::Different(Box::new(difference))
    }
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Stop {
        Stop::Broken(error)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Broken(error.into())
    }
}

impl Difference {
    pub(super) fn new(
        way: &str,
        told: impl Into<String>,
        expected: impl Into<String>,
    ) -> Difference {
        let (told, expected) = (told.into(), expected.into());
        let way = way.into();
        Difference { way, subject: String::new(), told, expected }
    }

    /// The engine failed where nothing can.
    pub(super) fn engine(way: &str, error: &Error) -> Difference {
        let told = format!("{:?}: {error}", error.kind());
        Difference::new(way, told, "success")
    }

    /// An answer that was another one.
    pub(super) fn answer(way: &str, steps: &[Step], wrong: &Wrong) -> Difference {
        let subject = steps.get(wrong.at).map_or_else(String::new, |step| step.sql.clone());
        let Wrong { told, expected, .. } = wrong;
        Difference { subject, ..Difference::new(way, &told.text, &expected.text) }
    }

    /// The same for the same cause, as far as that can be told.
    pub(super) fn signature(&self) -> String {
        let [told, expected] = [&self.told, &self.expected].map(|text| shape(text));
        format!("{}, {}: {told} / {expected}", self.way, normal(&verb_of(&self.subject)))
    }

    /// For a person to read.
    pub(super) fn text(&self) -> String {
        let Difference { way, subject, told, expected } = self;
        let brief = |text: &str| -> String {
            let mut short: String = text.chars().take(600).collect();
            if short.len() < text.len() {
                short.push('…');
            }
            short
        };
        let subject = if subject.is_empty() { String::new() } else { format!("{subject}: ") };
        format!("{way}: {subject}{}; expected {}", brief(told), brief(expected))
    }
}

/// What kind of statement it is.
fn verb_of(sql: &str) -> String {
    let words = if sql.starts_with("SELECT") || sql.starts_with("INSERT") { 1 } else { 2 };
    let words: Vec<_> = sql.split_ascii_whitespace().take(words).collect();
    words.join(" ")
}

/// Errors by their text, rows and contents by being such.
fn shape(text: &str) -> String {
    let is_error = text.split(':').next().is_some_and(|kind| {
        kind.starts_with(|sign: char| sign.is_ascii_uppercase()) && !kind.contains('(')
    });
    if is_error { normal(text).chars().take(90).collect() } else { "an answer".into() }
}
