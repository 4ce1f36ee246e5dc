//! Owns a script: its statements in order, and how they are gathered into transactions.
//!
//! # Format
//! A `.sql` file holds statements that end with semicolons. The reference decides what each should
//! say, so nothing else is needed. One kind of comment line means something:
//! `-- option: NAME NUMBER` has the database opened with this option (milliseconds or a count).

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};

use super::split::split;
use super::statement::{Control, Statement};

/// A script, read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    /// How it is called in reports.
    pub(crate) name: String,
    pub(crate) statements: Vec<Statement>,
    pub(crate) options: Vec<(String, u64)>,
}

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    Rollback,
}

/// What is one transaction: a statement alone, or a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unit {
    /// The `BEGIN` of a block; a block that a `SAVEPOINT` opens has none.
    pub(crate) begin: Option<Statement>,
    pub(crate) statements: Vec<Statement>,
    /// The end of a block, which is missing when the script ends before.
    pub(crate) end: Option<(End, Statement)>,
    pub(crate) is_block: bool,
}

impl Unit {
    fn alone(statement: Statement) -> Unit {
        Unit { statements: vec![statement], ..Unit::default() }
    }

    pub(crate) fn commits(&self) -> bool {
        !self.is_block || matches!(self.end, Some((End::Commit, _)))
    }

    pub(crate) fn line(&self) -> usize {
        self.begin
            .iter()
            .chain(&self.statements)
            .map(|statement| statement.line)
            .next()
            .unwrap_or(0)
    }
}

impl Script {
    /// Reads a `.sql` file; `name` is how it is called in reports.
    ///
    /// # Errors
    /// When it cannot be read or is not in its format.
    pub(crate) fn read(path: &Path, name: &str) -> Result<Script> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let script = Script::parse(&text).context(name.to_owned())?;
        Ok(Script { name: name.to_owned(), ..script })
    }

    /// Reads the text of a `.sql` file.
    ///
    /// # Errors
    /// When a comment line that means something is wrong.
    pub(crate) fn parse(text: &str) -> Result<Script> {
        let mut script = Script::default();
        for piece in split(text) {
            script.statements.push(Statement::new(piece.line, piece.sql));
        }
        for (at, line) in text.lines().enumerate() {
            if let Some(value) = line.strip_prefix("-- option: ") {
                script.options.push(option(value, at + 1)?);
            }
        }
        Ok(script)
    }

    /// Its transactions in order. Where there are no savepoints, `SAVEPOINT` opens none.
    pub(crate) fn units(&self, savepoints: Savepoints) -> Vec<Arc<Unit>> {
        let mut gathering = Gathering { savepoints, ..Gathering::default() };
        for statement in &self.statements {
            gathering.take(statement.clone());
        }
        gathering.finish()
    }

    /// As [`Script::units`], with up to `most` statements that stand alone put into one block.
    pub(crate) fn grouped_units(&self, savepoints: Savepoints, most: usize) -> Vec<Arc<Unit>> {
        let mut grouped: Vec<Unit> = Vec::new();
        let mut is_open = false;
        for unit in self.units(savepoints) {
            let can_join = !unit.is_block && unit.statements.iter().all(Statement::can_be_grouped);
            let statements = unit.statements.clone();
            match grouped.last_mut().filter(|it| is_open && it.statements.len() < most) {
                Some(block) if can_join => block.statements.extend(statements),
                _ if can_join => {
                    let line = unit.line();
                    let commit = (End::Commit, Statement::new(line, "COMMIT"));
                    let begin = Some(Statement::new(line, "BEGIN"));
                    grouped.push(Unit { begin, statements, end: Some(commit), is_block: true });
                }
                _ => grouped.push(Unit::clone(&unit)),
            }
            is_open = can_join;
        }
        grouped.into_iter().map(Arc::new).collect()
    }
}

fn option(value: &str, line: usize) -> Result<(String, u64)> {
    let words: Vec<&str> = value.split_whitespace().collect();
    let [name, number] = words.as_slice() else {
        bail!("line {line}: say `-- option: NAME NUMBER`")
    };
    let number = number.parse().with_context(|| format!("line {line}: {number} is no number"))?;
    Ok(((*name).to_owned(), number))
}

/// Whether a path has savepoints of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Savepoints {
    Methods,
    #[default]
    None,
}

/// Gathers statements into transactions.
#[derive(Default)]
struct Gathering {
    savepoints: Savepoints,
    done: Vec<Arc<Unit>>,
    block: Option<Unit>,
    /// Names of the open savepoints of the block, if one of them has opened it.
    names: Option<Vec<String>>,
}

impl Gathering {
    fn take(&mut self, statement: Statement) {
        let has_methods = self.savepoints == Savepoints::Methods;
        let Some(block) = &mut self.block else {
            match &statement.control {
                Some(Control::Begin) => {
                    let begin = Some(statement);
                    self.block = Some(Unit { begin, is_block: true, ..Unit::default() });
                }
                Some(Control::Savepoint(name)) if has_methods => {
                    self.names = Some(vec![name.to_ascii_lowercase()]);
                    self.block = Some(Unit { is_block: true, ..Unit::alone(statement) });
                }
                _ => self.done.push(Arc::new(Unit::alone(statement))),
            }
            return;
        };
        let end = match &statement.control {
            Some(Control::Commit) => Some(End::Commit),
            Some(Control::Rollback) => Some(End::Rollback),
            Some(control) => {
                let closes = self.names.as_mut().is_some_and(|names| closes_last(names, control));
                closes.then_some(End::Commit)
            }
            None => None,
        };
        match end {
            None => block.statements.push(statement),
            Some(end) => {
                block.end = Some((end, statement));
                self.close();
            }
        }
    }

    fn close(&mut self) {
        self.names = None;
        self.done.extend(self.block.take().map(Arc::new));
    }

    fn finish(mut self) -> Vec<Arc<Unit>> {
        self.close();
        self.done
    }
}

/// Follows the stack of savepoints; whether `control` closes the last of them.
fn closes_last(names: &mut Vec<String>, control: &Control) -> bool {
    match control {
        Control::Savepoint(name) => names.push(name.to_ascii_lowercase()),
        Control::Release(name) => {
            let at = names.iter().rposition(|open| open.eq_ignore_ascii_case(name));
            names.truncate(at.unwrap_or(names.len()));
        }
        Control::RollbackTo(name) => {
            let at = names.iter().rposition(|open| open.eq_ignore_ascii_case(name));
            names.truncate(at.map_or(names.len(), |at| at + 1));
        }
        Control::Begin | Control::Commit | Control::Rollback => {}
    }
    names.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statements of each unit, with `+` for a commit and `-` for a rollback.
    fn shape(units: &[Arc<Unit>]) -> Vec<String> {
        let told = |unit: &Arc<Unit>| {
            let texts: Vec<_> =
                unit.statements.iter().map(|it| it.sql.trim_end_matches(';')).collect();
            let end = match &unit.end {
                Some((End::Commit, _)) => " +",
                Some((End::Rollback, _)) => " -",
                None if unit.is_block => " ?",
                None => "",
            };
            format!("{}{end}", texts.join(","))
        };
        units.iter().map(told).collect()
    }

    fn script(text: &str) -> Script {
        Script::parse(text).unwrap()
    }

    #[test]
    fn a_block_is_one_unit_and_ends_as_it_says() {
        let text = "A; BEGIN; B; C; COMMIT; BEGIN; D; ROLLBACK; END; BEGIN; E; BEGIN; F";
        let units = script(text).units(Savepoints::None);
        assert_eq!(shape(&units), ["A", "B,C +", "D -", "END", "E,BEGIN,F ?"]);
    }

    #[test]
    fn a_savepoint_opens_a_block_where_there_are_methods_for_it() {
        let text = "SAVEPOINT a; SAVEPOINT b; X; ROLLBACK TO A; RELEASE b; RELEASE a; Y; \
                    BEGIN; SAVEPOINT a; RELEASE a; COMMIT";
        let units = script(text).units(Savepoints::Methods);
        let first = "SAVEPOINT a,SAVEPOINT b,X,ROLLBACK TO A,RELEASE b +";
        assert_eq!(shape(&units), [first, "Y", "SAVEPOINT a,RELEASE a +"]);
        let units = script(text).units(Savepoints::None);
        assert_eq!(units.iter().filter(|unit| unit.is_block).count(), 1);
        assert_eq!(units.len(), 8);
    }

    #[test]
    fn statements_that_stand_alone_are_grouped() {
        let text = "A; B; C; PRAGMA x; D; BEGIN; E; COMMIT; F";
        let units = script(text).grouped_units(Savepoints::None, 2);
        assert_eq!(shape(&units), ["A,B +", "C +", "PRAGMA x", "D +", "E +", "F +"]);
    }

    #[test]
    fn options_are_read() {
        assert_eq!(script("A;\n-- option: readers 2\n").options, [("readers".to_owned(), 2)]);
        assert!(Script::parse("-- option: readers many\n").is_err());
    }
}
