//! Owns the differences to plain SQLite that are by design, and how one is recognised.
//!
//! Each [`Difference`] of the [`LIST`] is as narrow as it can be: a kind of statement, and either
//! the words of Monolite's refusal or a condition on both answers. Whatever is not on the list is
//! reported. The page `docs/differences.md` tells of each, and every entry has to be exercised by a
//! script of ours.
//!
//! A statement that Monolite refuses by design is not run in plain SQLite either, so that both hold
//! the same afterwards; what plain SQLite says to it is asked of a copy.

mod list;

use monolite::ErrorKind;

use super::path::Path;
use super::said::{Aspect, Said};
use super::statement::Statement;

pub(crate) use list::LIST;

/// Something that Monolite does on purpose otherwise than plain SQLite.
pub(crate) struct Difference {
    pub(crate) id: &'static str,
    pub(crate) paths: Paths,
    pub(crate) sign: Sign,
}

/// Where a difference shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paths {
    All,
    /// Closures of `write`, `write_once` and `read`.
    Closures,
    Interactive,
}

impl Difference {
    /// Whether plain SQLite is asked what it says to a refused statement. What runs into a limit of
    /// time would take it long to answer.
    pub(crate) fn asks_plain(&self) -> bool {
        self.id != "time-limits"
    }
}

impl Paths {
    pub(crate) fn have(self, path: &Path) -> bool {
        match self {
            Paths::All => true,
            Paths::Closures => !path.is_interactive(),
            Paths::Interactive => path.is_interactive(),
        }
    }
}

/// How a difference is recognised.
pub(crate) enum Sign {
    /// Monolite fails a statement of this kind with a text that contains some of these words. Plain
    /// SQLite is not told the statement.
    Refusal(fn(&Statement) -> bool, &'static [&'static str]),
    /// Both have run it, and the answers differ in this way.
    Answers(fn(&Case<'_>) -> bool),
    /// The end of a block differs in this way.
    End(fn(&Case<'_>) -> bool),
    /// No statement shows it; the runner itself sees it happen.
    Observed(Observation),
}

/// What the runner sees beside answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observation {
    /// A closure was started more than once for one result.
    RanAgain,
    /// A transaction moved to another snapshot.
    Moved,
    /// A commit was refused with `Conflict` and the closure was run again.
    Conflicted,
    /// A closure returned the error of a statement that keeps rows in plain SQLite.
    UndoneWhole,
    /// Two inserts got their rowids in the order of the commits.
    RowidsInOrderOfCommits,
    /// The number of a row that was undone was not used again.
    IdsWithGaps,
}

/// Two answers that differ.
pub(crate) struct Case<'c> {
    pub(crate) statement: &'c Statement,
    pub(crate) aspect: Aspect,
    pub(crate) plain: &'c Said,
    pub(crate) ours: &'c Said,
}

impl Case<'_> {
    /// Whether Monolite failed with this kind and a text that contains `words`.
    pub(crate) fn ours_failed(&self, kind: ErrorKind, words: &str) -> bool {
        self.ours.fault.as_ref().is_some_and(|it| it.kind == kind && it.text.contains(words))
    }

    /// Whether plain SQLite failed with a text that contains `words`.
    pub(crate) fn plain_failed(&self, words: &str) -> bool {
        self.plain.fault.as_ref().is_some_and(|fault| fault.text.contains(words))
    }

    /// Whether both failed, with the same code.
    pub(crate) fn same_code(&self) -> bool {
        match (&self.plain.fault, &self.ours.fault) {
            (Some(plain), Some(ours)) => plain.code == ours.code && plain.kind == ours.kind,
            _ => false,
        }
    }
}

/// The entry by which Monolite refused `statement`, if that is what it `said`.
pub(crate) fn refusal(
    path: &Path,
    statement: &Statement,
    said: &Said,
) -> Option<&'static Difference> {
    let fault = said.fault.as_ref()?;
    LIST.iter().filter(|it| it.paths.have(path)).find(|it| match it.sign {
        Sign::Refusal(is_kind, words) => {
            is_kind(statement) && words.iter().any(|words| fault.text.contains(words))
        }
        _ => false,
    })
}

/// The entry that covers two answers to a statement which differ.
pub(crate) fn answers(path: &Path, case: &Case<'_>) -> Option<&'static Difference> {
    LIST.iter().filter(|it| it.paths.have(path)).find(|it| match it.sign {
        Sign::Answers(covers) => covers(case),
        _ => false,
    })
}

/// The entry that covers two ends of a block which differ.
pub(crate) fn ends(path: &Path, case: &Case<'_>) -> Option<&'static Difference> {
    LIST.iter().filter(|it| it.paths.have(path)).find(|it| match it.sign {
        Sign::End(covers) => covers(case),
        _ => false,
    })
}

/// The entry for what the runner itself saw.
pub(crate) fn observed(observation: Observation) -> Option<&'static Difference> {
    LIST.iter().find(|it| matches!(it.sign, Sign::Observed(other) if other == observation))
}

#[cfg(test)]
mod tests;
