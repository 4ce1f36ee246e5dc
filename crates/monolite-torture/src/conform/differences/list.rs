//! Owns the list itself. A difference that is a defect is not here: it is mended.

use monolite::ErrorKind;

use super::Observation::*;
use super::Paths::{All, Closures, Interactive};
use super::{Case, Difference, Observation, Paths, Sign};
use crate::conform::said::{Aspect, Cell};
use crate::conform::statement::{Control, Statement};

/// Every difference that is by design, by its name on the page `docs/differences.md`.
pub(crate) const LIST: &[Difference] = &[
    refusal(
        "transaction-control",
        All,
        is_transaction_control,
        &["is refused: the closure is the transaction"],
    ),
    refusal(
        "savepoint-as-sql",
        Closures,
        is_savepoint,
        &["SAVEPOINT, RELEASE and ROLLBACK TO belong"],
    ),
    refusal("attach", All, is_attach, &["ATTACH and DETACH are refused"]),
    refusal(
        "temporary-objects",
        All,
        |it| it.verb() == "CREATE",
        &["temporary tables, views and triggers are refused"],
    ),
    refusal("pragma-settings", All, is_pragma, &["inside a transaction: ", "not authorized"]),
    refusal(
        "vacuum",
        All,
        |it| it.verb() == "VACUUM",
        &["VACUUM is refused", "cannot VACUUM from within a transaction"],
    ),
    refusal("shadow-tables", All, is_of_shadow_table, &[" may not be "]),
    // Before the next one, whose words it has, too.
    refusal(
        "fts-optimize-function",
        All,
        |it| it.has_word("OPTIMIZE"),
        &["the function optimize() of FTS3 and FTS4 is refused", "authorization denied"],
    ),
    refusal("engine-names", All, |_| true, &["belong to the engine", "belongs to the engine"]),
    refusal(
        "load-extension",
        All,
        |it| it.has_word("LOAD_EXTENSION"),
        &["load_extension() is refused"],
    ),
    refusal(
        "fts3-tokenizer",
        All,
        |it| it.has_word("FTS3_TOKENIZER"),
        &["fts3_tokenizer() is refused"],
    ),
    refusal(
        "drop-of-a-parent",
        All,
        |it| it.verb() == "DROP",
        &["SQLite would delete the rows of"],
    ),
    refusal(
        "read-only-reads",
        Closures,
        |it| it.only_asks(),
        &["attempt to write a readonly database"],
    ),
    // Before others that cover what follows it, since plain SQLite is not to be asked.
    refusal(
        "time-limits",
        All,
        |_| true,
        &["was ended: it may take", "interrupted", "was rolled back after"],
    ),
    refusal(
        "after-rollback",
        All,
        |_| true,
        &["the transaction was rolled back by an earlier statement"],
    ),
    refusal("transaction-is-over", Interactive, |_| true, &["the transaction is over: "]),
    end("end-after-rollback", All, has_no_transaction_left),
    end("deferred-violation", All, is_deferred_violation),
    answers("deferred-violation-alone", All, is_deferred_violation),
    answers("connection-functions", All, asks_of_earlier_changes),
    answers("connection-pragmas", All, reports_settings),
    answers("explain", All, is_program),
    answers("failed-changes-of-the-schema", All, |it| {
        it.statement.verb() == "ALTER" && it.plain_failed("duplicate column name")
    }),
    answers("deferral-alone", All, |it| {
        it.aspect == Aspect::Rows && it.statement.pragma() == Some("DEFER_FOREIGN_KEYS")
    }),
    answers("fts-content-is-gone", All, |it| {
        it.same_code()
            && it.plain_failed("SQL logic error")
            && it.ours_failed(ErrorKind::Invalid, "no such table: main.")
    }),
    answers("unknown-savepoints", Interactive, |it| {
        it.plain_failed("no such savepoint") && it.ours_failed(ErrorKind::Invalid, "no savepoint")
    }),
    answers("numbers-of-no-change", All, |it| {
        it.aspect == Aspect::Changes && !it.statement.counts_changes()
    }),
    answers("more-functions", All, |it| {
        let is_missing = it.plain_failed("no such function: ")
            || it.plain_failed("no such table: generate_series");
        is_missing && it.ours.fault.is_none()
    }),
    end("time-limits-at-the-end", All, |it| it.ours_failed(ErrorKind::Timeout, "")),
    refusal("transaction-limits", Interactive, |_| true, &["max_statements", "max_bytes"]),
    refusal("deep-expressions", All, |_| true, &["deep, for which there is no stack"]),
    observed("closures-run-again", Closures, RanAgain),
    observed("errors-undo-all", Closures, UndoneWhole),
    observed("snapshots-move", Interactive, Moved),
    observed("conflicts", Interactive, Conflicted),
    observed("ids-ahead", Interactive, IdsWithGaps),
    observed("rowids-by-commit", Interactive, RowidsInOrderOfCommits),
];

const fn refusal(
    id: &'static str,
    paths: Paths,
    is_kind: fn(&Statement) -> bool,
    words: &'static [&'static str],
) -> Difference {
    Difference { id, paths, sign: Sign::Refusal(is_kind, words) }
}

const fn answers(id: &'static str, paths: Paths, covers: fn(&Case<'_>) -> bool) -> Difference {
    Difference { id, paths, sign: Sign::Answers(covers) }
}

const fn end(id: &'static str, paths: Paths, covers: fn(&Case<'_>) -> bool) -> Difference {
    Difference { id, paths, sign: Sign::End(covers) }
}

const fn observed(id: &'static str, paths: Paths, observation: Observation) -> Difference {
    Difference { id, paths, sign: Sign::Observed(observation) }
}

fn is_transaction_control(statement: &Statement) -> bool {
    let is_explained = || {
        let verb = statement.words().find(|word| !["EXPLAIN", "QUERY", "PLAN"].contains(word));
        statement.verb() == "EXPLAIN" && matches!(verb, Some("BEGIN" | "COMMIT" | "ROLLBACK"))
    };
    matches!(statement.control, Some(Control::Begin | Control::Commit | Control::Rollback))
        || is_explained()
}

fn is_savepoint(statement: &Statement) -> bool {
    statement.control.as_ref().is_some_and(Control::is_savepoint)
}

fn is_pragma(statement: &Statement) -> bool {
    statement.verb() == "PRAGMA" || statement.words().any(|word| word.starts_with("PRAGMA_"))
}

fn is_attach(statement: &Statement) -> bool {
    ["ATTACH", "DETACH"].contains(&statement.verb())
}

/// A table of FTS or R-Tree, by the names that their modules give.
fn is_of_shadow_table(statement: &Statement) -> bool {
    const PARTS: [&str; 11] = [
        "_CONTENT",
        "_DATA",
        "_IDX",
        "_DOCSIZE",
        "_CONFIG",
        "_SEGMENTS",
        "_SEGDIR",
        "_STAT",
        "_NODE",
        "_ROWID",
        "_PARENT",
    ];
    statement.words().any(|word| PARTS.iter().any(|part| word.ends_with(part)))
}

fn has_no_transaction_left(case: &Case<'_>) -> bool {
    let ended = "a statement of the transaction rolled all of it back";
    let is_over = |kind| case.ours_failed(kind, "the transaction is over: ");
    case.ours_failed(ErrorKind::Aborted, ended)
        || is_over(ErrorKind::Constraint)
        || is_over(ErrorKind::Storage)
        || is_over(ErrorKind::Corrupt)
        || is_over(ErrorKind::Overloaded)
        // The script rolls back, which has been done.
        || (case.ours.fault.is_none() && case.plain_failed("no transaction is active"))
}

fn is_deferred_violation(case: &Case<'_>) -> bool {
    case.same_code()
        && case.ours_failed(ErrorKind::Constraint, "a deferred foreign key was still violated")
}

fn asks_of_earlier_changes(case: &Case<'_>) -> bool {
    case.aspect == Aspect::Rows && case.statement.asks_connection()
}

/// The instructions `Transaction` and `SetCookie` name versions of the schema; all others are the
/// same.
fn is_program(case: &Case<'_>) -> bool {
    let is_same = |(plain, ours): (&Vec<Cell>, &Vec<Cell>)| {
        let is = |name: &[u8]| plain.get(1) == Some(&Cell::Text(name.to_vec()));
        plain == ours || is(b"Transaction") || is(b"SetCookie")
    };
    let (plain, ours) = (case.plain, case.ours);
    let rows =
        plain.rows.len() == ours.rows.len() && plain.rows.iter().zip(&ours.rows).all(is_same);
    case.statement.is_program() && (rows || case.ours_failed(ErrorKind::Conflict, "EXPLAIN"))
}

/// What is not the same in two files of different history, or on connections with other settings.
const SETTINGS: [&str; 14] = [
    "ANALYSIS_LIMIT",
    "AUTO_VACUUM",
    "CACHE_SIZE",
    "DATA_VERSION",
    "DATABASE_LIST",
    "FREELIST_COUNT",
    "FUNCTION_LIST",
    "JOURNAL_MODE",
    "PAGE_COUNT",
    "QUERY_ONLY",
    "SCHEMA_VERSION",
    "SYNCHRONOUS",
    "TEMP_STORE",
    "WAL_AUTOCHECKPOINT",
];

fn reports_settings(case: &Case<'_>) -> bool {
    let is_setting = |name: &str| SETTINGS.contains(&name);
    let as_table = || case.statement.words().filter_map(|word| word.strip_prefix("PRAGMA_"));
    case.aspect == Aspect::Rows
        && (case.statement.pragma().is_some_and(is_setting) || as_table().any(is_setting))
}
