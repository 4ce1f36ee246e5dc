//! Owns what a history can end with: a difference between the engine and the oracle, with a
//! signature that is the same for the same cause, as far as that can be told.

use monolite::Error;
use serde::{Deserialize, Serialize};

use super::answer::normal;
use super::oracle::Wrong;
use super::record::Step;

/// What kind of thing must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Class {
    /// A closure was told something else.
    Write,
    /// A read was told something else.
    Read,
    /// A committed interactive transaction was told something else than what it did.
    Commit,
    /// What an interactive transaction saw was never so.
    Unexplained,
    /// A conflict with nobody.
    NeedlessConflict,
    /// Committed, although it had to fail.
    Committed,
    /// Refused, although it had to succeed.
    Refused,
    /// It failed in another way.
    Failed,
    /// What is in the database.
    Content,
    /// Nothing happens any more.
    Hang,
    /// The process has ended.
    Crash,
    Panic,
}

/// Something that must not be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Difference {
    pub(super) class: Class,
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
        class: Class,
        way: &str,
        told: impl Into<String>,
        expected: impl Into<String>,
    ) -> Difference {
        let (told, expected) = (told.into(), expected.into());
        let way = way.into();
        Difference { class, way, subject: String::new(), told, expected }
    }

    /// The engine failed where nothing can.
    pub(super) fn engine(way: &str, error: &Error) -> Difference {
        let told = format!("{:?}: {error}", error.kind());
        Difference::new(Class::Refused, way, told, "success")
    }

    /// An answer that was another one.
    pub(super) fn answer(class: Class, way: &str, steps: &[Step], wrong: &Wrong) -> Difference {
        let subject = steps.get(wrong.at).map_or_else(String::new, |step| step.sql.clone());
        let Wrong { told, expected, .. } = wrong;
        Difference { subject, ..Difference::new(class, way, &told.text, &expected.text) }
    }

    /// The same for the same cause, as far as that can be told.
    pub(super) fn signature(&self) -> String {
        let sides = [&self.told, &self.expected].map(|text| self.shape(text));
        let subject = match self.class {
            // Where a conflict comes to light has nothing to do with its cause.
            Class::NeedlessConflict => String::new(),
            _ => normal(&verb_of(&self.subject)),
        };
        format!("{:?}, {subject}: {} / {}", self.class, sides[0], sides[1])
    }

    /// Errors by their text, rows by being rows.
    fn shape(&self, text: &str) -> String {
        let is_error = text.split(':').next().is_some_and(|kind| {
            kind.starts_with(|sign: char| sign.is_ascii_uppercase()) && !kind.contains('(')
        });
        if self.class == Class::Content {
            "content".into()
        } else if is_error {
            normal(text).chars().take(90).collect()
        } else {
            "an answer".into()
        }
    }

    /// For a person to read.
    pub(super) fn text(&self) -> String {
        let Difference { class, way, subject, told, expected } = self;
        let brief = |text: &str| -> String {
            let mut short: String = text.chars().take(600).collect();
            if short.len() < text.len() {
                short.push('…');
            }
            short
        };
        let subject = if subject.is_empty() { String::new() } else { format!("{subject}: ") };
        format!("{class:?}, {way}: {subject}{}; expected {}", brief(told), brief(expected))
    }
}

/// What kind of statement it is.
fn verb_of(sql: &str) -> String {
    let words = if sql.starts_with("SELECT") || sql.starts_with("INSERT") { 1 } else { 2 };
    let words: Vec<_> = sql.split_ascii_whitespace().take(words).collect();
    words.join(" ")
}
