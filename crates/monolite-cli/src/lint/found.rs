//! Owns what was found, and how it is told.

use crate::out::stdout;
use crate::{json, words};
use anyhow::Result;
use serde::Serialize;
use std::borrow::Cow;
use std::io::Write as _;

/// The rule for what SQLite itself does not understand.
pub(super) const NOT_UNDERSTOOD: &str = "not understood";

/// Something was found.
#[derive(Debug)]
pub(crate) struct Found {
    differences: u64,
    faults: u64,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = words::count(self.differences, "place");
        let faults = words::count(self.faults, "statement");
        match (self.differences, self.faults) {
            (0, _) => write!(f, "{faults} not understood"),
            (_, 0) => write!(f, "PostgreSQL treats {places} otherwise"),
            _ => write!(f, "PostgreSQL treats {places} otherwise; {faults} not understood"),
        }
    }
}

impl std::error::Error for Found {}

/// A place that PostgreSQL treats otherwise.
#[derive(Serialize)]
pub(super) struct Finding {
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) rule: &'static str,
    pub(super) text: String,
    pub(super) difference: Cow<'static, str>,
    pub(super) remedy: &'static str,
}

pub(super) fn show(findings: &[Finding], as_json: bool) -> Result<()> {
    let mut out = stdout();
    if as_json {
        return json::print(&mut out, &findings);
    }
    for Finding { file, line, column, rule, text, difference, remedy } in findings {
        writeln!(out, "{file}:{line}:{column}: {rule}: {text}: {difference}; write: {remedy}")?;
    }
    Ok(out.flush()?)
}

/// What the verb ends with.
pub(super) fn result(findings: &[Finding]) -> Result<()> {
    let (faults, differences): (Vec<_>, Vec<_>) =
        findings.iter().partition(|it| it.rule == NOT_UNDERSTOOD);
    match (differences.len() as u64, faults.len() as u64) {
        (0, 0) => Ok(()),
        (differences, faults) => Err(Found { differences, faults }.into()),
    }
}
