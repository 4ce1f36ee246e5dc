//! Owns the comparison: runs one script on one path beside plain SQLite, transaction by
//! transaction, and notes where they differ.
//!
//! # Algorithm
//! 1. Monolite runs a transaction of the script and tells what each statement said.
//! 2. Plain SQLite is put the same statements in the same way, one by one. One that Monolite has
//!    refused by design is asked of a copy and not run, so that both hold the same afterwards.
//! 3. A difference is looked for on the list; what is not there is reported. After a number of
//!    those the script is left, since what follows hangs on them.
//! 4. At the end both have to hold the same, also the file that Monolite leaves behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use monolite::Error;

use super::content::{Content, first_difference};
use super::differences::{self, Case, Difference, Observation};
use super::path::{Errors, Path};
use super::plain::Plain;
use super::said::{Aspect, Said};
use super::script::{Savepoints, Script, Unit};
use super::statement::Statement;
use super::subject::Subject;

/// Differences after which a script is left.
const MAX_FOUND: usize = 10;

/// A difference that is not on the list.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) line: usize,
    pub(crate) sql: String,
    pub(crate) plain: String,
    pub(crate) ours: String,
}

/// What came of a script on a path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Statements that were run and compared.
    pub(crate) run: u64,
    /// Statements for which the path has no counterpart.
    pub(crate) skipped: u64,
    /// Differences that are on the list.
    pub(crate) excused: u64,
    pub(crate) found: Vec<Found>,
    /// The line after which the script was left, because there were too many differences.
    pub(crate) left_at: Option<usize>,
    /// How often each entry of the list was needed.
    pub(crate) used: BTreeMap<&'static str, u64>,
}

/// Who is put a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Reference,
    /// A copy of the reference, which forgets it.
    Copy,
}

/// One script on one path.
pub(crate) struct Lockstep<'l> {
    pub(crate) script: &'l Script,
    pub(crate) path: &'static Path,
    pub(crate) plain: Plain,
    pub(crate) subject: &'l mut dyn Subject,
    /// Whether the run is to end early.
    pub(crate) is_stopped: &'l dyn Fn() -> bool,
    pub(crate) outcome: Outcome,
}

impl Lockstep<'_> {
    /// Runs the script to its end, or until there are too many differences.
    ///
    /// # Errors
    /// When the comparison itself cannot go on.
    pub(crate) fn run(mut self) -> Result<Outcome> {
        let savepoints = self.path.savepoints();
        let units = match self.path.grouped {
            Some(most) => self.script.grouped_units(savepoints, most),
            None => self.script.units(savepoints),
        };
        for unit in units {
            if (self.is_stopped)() {
                return Ok(self.outcome);
            }
            self.unit(&unit)?;
            if self.outcome.found.len() >= MAX_FOUND {
                self.outcome.left_at = Some(unit.line());
                // What follows hangs on the differences, and so would an error of the close.
                let _ = self.subject.close();
                return Ok(self.outcome);
            }
        }
        let plain = self.plain.content();
        let ours = self.subject.content();
        let line = self.script.statements.last().map_or(0, |statement| statement.line);
        self.compare_content(line, "at the end", &plain, &ours);
        let left = self.subject.close().context("closing the database")?;
        self.compare_content(line, "in the file after close()", &plain, &left);
        Ok(self.outcome)
    }

    fn unit(&mut self, unit: &Arc<Unit>) -> Result<()> {
        let mut ran = self.subject.run(unit);
        let has_failed = ran.said.iter().any(|said| said.fault.is_some());
        let is_undone = has_failed && self.path.errors == Errors::Returned;
        if !is_undone {
            let none = || Said::failed(&Error::aborted("no answer came"));
            ran.said.resize_with(unit.statements.len(), none);
        }
        if unit.is_block {
            self.plain.begin(unit.begin.as_ref());
        }
        for (statement, mut ours) in unit.statements.iter().zip(ran.said) {
            if !unit.is_block && ours.fault.is_none() && ran.end.is_some() {
                // What stands alone has failed when its commit has.
                (ours.fault, ours.changes) = (ran.end.clone(), None);
            }
            // What an error undoes is not done in plain SQLite either (`OR FAIL` keeps rows there).
            let told = if is_undone && !unit.is_block { Told::Copy } else { Told::Reference };
            self.statement(statement, &ours, ran.awaited.as_ref(), told)?;
        }
        if unit.is_block && is_undone {
            self.plain.end(None);
        } else if unit.is_block {
            self.end(unit, Said { fault: ran.end, ..Said::default() })?;
        }
        Ok(())
    }

    fn statement(
        &mut self,
        statement: &Statement,
        ours: &Said,
        awaited: Option<&Said>,
        told: Told,
    ) -> Result<()> {
        if let Some(entry) = differences::refusal(self.path, statement, ours) {
            if !entry.asks_plain() {
                self.excuse(entry, statement);
                return Ok(());
            }
            let plain = self.plain.would_say(statement)?;
            if differ(statement, &plain, ours).is_none() {
                self.outcome.run += 1;
            } else {
                self.excuse(entry, statement);
            }
            return Ok(());
        }
        let plain = match told {
            Told::Reference => self.plain.say_numbered(statement, ours.given),
            Told::Copy => {
                if statement.has_word("FAIL") {
                    self.observe(Observation::UndoneWhole);
                }
                self.plain.would_say(statement)?
            }
        };
        self.outcome.run += 1;
        self.compare(statement, &plain, ours, "");
        if let Some(said) = awaited {
            self.compare(statement, &plain, said, " (an awaited read)");
        }
        Ok(())
    }

    fn compare(&mut self, statement: &Statement, plain: &Said, ours: &Said, label: &str) {
        let Some(aspect) = differ(statement, plain, ours) else { return };
        let case = Case { statement, aspect, plain, ours };
        match differences::answers(self.path, &case) {
            Some(entry) => self.excuse(entry, statement),
            None => {
                let sql = format!("{}{label}", statement.sql);
                self.found(statement.line, &sql, aspect, plain, ours);
            }
        }
    }

    /// A block ends as in plain SQLite. Where it does not by design, Monolite has kept nothing of
    /// it, and so plain SQLite has to forget it, too.
    fn end(&mut self, unit: &Unit, ours: Said) -> Result<()> {
        let synthetic = Statement::new(unit.line(), "ROLLBACK -- the script has ended");
        let statement = unit.end.as_ref().map_or(&synthetic, |(_, statement)| statement);
        self.outcome.run += 1;
        let has_failed = ours.fault.is_some();
        let plain = if has_failed {
            self.plain.would_say(statement)?
        } else {
            self.plain.end(Some(statement))
        };
        let plain = Said { fault: plain.fault, ..Said::default() };
        let mut end = Some(statement);
        if let Some(aspect) = plain.differs(&ours) {
            let case = Case { statement, aspect, plain: &plain, ours: &ours };
            if let Some(entry) = differences::ends(self.path, &case) {
                self.excuse(entry, statement);
                end = None;
            } else {
                self.found(statement.line, &statement.sql, aspect, &plain, &ours);
            }
        }
        if has_failed {
            self.plain.end(end);
        }
        Ok(())
    }

    fn observe(&mut self, observation: Observation) {
        if let Some(entry) = differences::observed(observation) {
            *self.outcome.used.entry(entry.id).or_default() += 1;
        }
    }

    fn excuse(&mut self, entry: &Difference, statement: &Statement) {
        *self.outcome.used.entry(entry.id).or_default() += 1;
        let is_savepoint = statement.control.as_ref().is_some_and(|it| it.is_savepoint());
        if is_savepoint && self.path.savepoints() == Savepoints::None {
            self.outcome.skipped += 1;
        } else {
            self.outcome.excused += 1;
        }
    }

    fn compare_content(&mut self, line: usize, label: &str, plain: &Content, ours: &Content) {
        if let Some((sql, theirs, own)) = first_difference(plain, ours) {
            let (theirs, own) = apart(&theirs, &own);
            let sql = format!("{sql} ({label})");
            self.outcome.found.push(Found { line, sql, plain: theirs, ours: own });
        }
    }

    fn found(&mut self, line: usize, sql: &str, aspect: Aspect, plain: &Said, ours: &Said) {
        let (plain, ours) = match aspect {
            Aspect::Rows => apart(plain, ours),
            Aspect::Columns => {
                let columns = |said: &Said| format!("columns {:?}", said.columns);
                (columns(plain), columns(ours))
            }
            Aspect::Error | Aspect::Changes => (plain.to_string(), ours.to_string()),
        };
        self.outcome.found.push(Found { line, sql: sql.to_owned(), plain, ours });
    }
}

/// In what the answers to a statement differ. Savepoints have no number of changed rows.
fn differ(statement: &Statement, plain: &Said, ours: &Said) -> Option<Aspect> {
    let differs = plain.differs(ours);
    differs.filter(|aspect| *aspect != Aspect::Changes || statement.control.is_none())
}

/// Both answers from the first row on that differs.
fn apart(plain: &Said, ours: &Said) -> (String, String) {
    let same = plain.rows.iter().zip(&ours.rows).take_while(|(a, b)| a == b).count();
    let from = |said: &Said| Said { rows: said.rows[same..].to_vec(), ..said.clone() }.to_string();
    let behind = if same == 0 { String::new() } else { format!("after {same} equal rows: ") };
    (format!("{behind}{}", from(plain)), format!("{behind}{}", from(ours)))
}
