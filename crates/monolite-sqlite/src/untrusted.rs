//! Owns the profile for SQL from an untrusted source: what a connection that runs it is allowed,
//! beyond the rules that every transaction keeps ([`crate::rules`]).
//!
//! # Invariants
//! - The profile belongs to a connection from its opening to its end. SQL leaves things behind that
//!   run inside other statements later (triggers, views, generated columns, `CHECK`), so a
//!   connection that changed between trust and distrust would run them with the wrong rights.
//! - No single call of a function, and no allocation, is long behind the deadline: ours count their
//!   work and look ([`Look`]). What SQLite's own do without an allocation is one pass over a value.

use std::ffi::c_int;

use rusqlite::hooks::AuthAction;

use crate::names::begins;
use crate::text::{self, Views};

/// The profile of a connection that runs SQL from an untrusted source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untrusted {
    /// Longest value and longest row, in bytes.
    pub value_bytes: u32,
    /// What a transaction may allocate beyond its connection's page cache, in bytes.
    pub memory_bytes: u64,
    /// Virtual table modules that may be used.
    pub modules: Vec<String>,
}

/// Instructions between two looks at the clock, at the jumps of a program. An instruction can be a
/// pass over a value of a megabyte, so this is far shorter than in general; it costs some percent
/// of a query.
pub(crate) const PROGRESS_INTERVAL: c_int = 20;

/// Levels of an expression as it is written, and views or common table expressions in each other.
pub(crate) const EXPRESSION_LEVELS: u32 = 100;

/// What a statement may have so many of; those of a view or a common table expression count
/// wherever it is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Each can make an expression deeper by [`EXPRESSION_LEVELS`], which takes stack.
    Select,
    /// The planner's time grows with up to the third power of the conditions, each of which names
    /// a column ([`crate::light`]).
    Column,
}

/// The most uses of columns in a statement.
pub(crate) const MAX_COLUMNS: u32 = 2_000;

impl Part {
    /// Says why a statement with `number` of them is refused, if it is. It may have `most_columns`,
    /// or what there may be of them if that is 0.
    pub(crate) fn refusal(self, number: u32, most_columns: u32) -> Option<String> {
        let (most, name) = match (self, most_columns) {
            (Part::Select, _) => (400, "SELECTs"),
            (Part::Column, 0) => (MAX_COLUMNS, "uses of columns"),
            (Part::Column, most) => (most, "uses of columns"),
        };
        (number > most).then(|| {
            format!(
                "a statement with more than {most} {name} is refused to untrusted SQL; those of a \
                 view or a common table expression count wherever it is named"
            )
        })
    }
}

/// The most expressions, and conditions of partial ones, that the indexes of a schema may have
/// together: the planner compares each of them with each use of a column, which takes 24 s in a
/// join of 64 tables with the most of both.
pub(crate) const INDEX_TERMS: u32 = 1_000;

/// How many passes over a value a call of `function` can be: `json_extract` makes one or two for
/// each of up to 99 paths, `max` and `min` compare up to 100.
pub(crate) fn passes_of_call(function: &str) -> u32 {
    let is = |name: &str| function.eq_ignore_ascii_case(name);
    match function {
        _ if is("json_extract") => 200,
        _ if is("max") || is("min") => 100,
        _ => 1,
    }
}

/// Says why `sql`, a statement or several on a schema with these views, is refused before it is
/// prepared, if it is.
pub(crate) fn refusal_of_text(sql: &str, views: &Views) -> Option<String> {
    let too_many = || {
        format!(
            "a statement with more than {} names, each counted once for each SELECT around it, and \
             those of a view or a common table expression wherever it is named, is refused to \
             untrusted SQL, for the time that it takes to find them (a NATURAL join counts as {}: \
             name the columns with USING)",
            text::MAX_NAMES,
            text::NAMES_OF_NATURAL
        )
    };
    (text::names(sql, views) > text::MAX_NAMES).then(too_many).or_else(|| refusal_of_alike(sql))
}

/// Says why a statement, or a definition of the schema, with this text is refused for names that
/// are too much alike, if it is.
pub(crate) fn refusal_of_alike(sql: &str) -> Option<String> {
    let alike = text::alike(sql);
    (alike > text::MAX_ALIKE).then(|| {
        format!(
            "names that begin alike and have the same characters, in another order, are refused to \
             untrusted SQL when it takes long to tell them apart: there are {alike} characters of \
             them in one statement or table, of {} that are allowed; let the names differ in their \
             beginnings, or make them shorter",
            text::MAX_ALIKE
        )
    })
}

/// Why a statement that was handed out is not prepared again behind a change of the schema.
pub(crate) const NOT_AGAIN: &str = "a statement that was prepared before the schema was changed in \
     the same closure is refused where SQL is not trusted, for SQLite would prepare it again while \
     it runs, for however long that takes: prepare it behind the change";

const PATCHES: &str = "its time is the product of its arguments' lengths; use json_set()";

/// Functions that are refused, with the reason.
const FUNCTIONS: &[(&str, &str)] = &[
    ("fts3_tokenizer", "it takes and returns addresses in memory"),
    ("json_patch", PATCHES),
    ("jsonb_patch", PATCHES),
    ("sqlite_log", "it writes to the program's log"),
];

/// Functions that belong to modules, by how their names begin, and the modules.
const OF_MODULES: &[(&[&str], &[&str])] = &[
    (&["fts3", "offsets", "matchinfo", "optimize"], &["fts3", "fts4"]),
    (&["fts5", "bm25", "highlight"], &["fts5"]),
    (&["snippet"], &["fts3", "fts4", "fts5"]),
    (&["rtree"], &["rtree", "rtree_i32", "geopoly"]),
    (&["geopoly"], &["geopoly"]),
];

/// The function behind the operator `MATCH`, which is that of each module.
const MATCH: &str = "match";

/// Says why `action`, which the general rules allow, is refused to untrusted SQL that may use
/// `modules`. `is_sqlites_way` tells that the statement is one with which SQLite itself changes the
/// tables that it keeps.
pub(crate) fn refusal(
    action: &AuthAction<'_>,
    modules: &[String],
    is_sqlites_way: bool,
) -> Option<String> {
    match action {
        AuthAction::Pragma { pragma_name, .. } => pragma(pragma_name),
        AuthAction::Function { function_name } => {
            function(function_name).or_else(|| function_of_module(function_name, modules))
        }
        AuthAction::Unknown { code, .. } => {
            Some(format!("action {code} is refused to untrusted SQL: it is not known here"))
        }
        AuthAction::Analyze { .. } => Some(analyze()),
        // Nobody else makes one. Where there is nothing to analyze, SQLite asks for this alone.
        AuthAction::CreateTable { table_name } if begins(table_name, STATISTICS) => Some(analyze()),
        AuthAction::Read { table_name, .. } if is_internal_view(table_name) => Some(format!(
            "{table_name} is refused to untrusted SQL: it shows the file underneath the tables"
        )),
        AuthAction::Read { table_name, .. } if table_name.eq_ignore_ascii_case(TABLE_LIST.1) => {
            Some(list_of_tables())
        }
        AuthAction::Insert { table_name } if is_kept_by_sqlite(table_name) => {
            Some(statistics(table_name))
        }
        AuthAction::Update { table_name, .. } | AuthAction::Delete { table_name }
            if is_kept_by_sqlite(table_name) && !is_sqlites_way =>
        {
            Some(statistics(table_name))
        }
        _ => None,
    }
}

/// Whether a statement with `action` changes, by itself, the tables that SQLite keeps for itself:
/// `DROP` deletes what they say of a table or index, and the rows of a table or view, for which it
/// asks as for a `DELETE`, and `ALTER TABLE … RENAME` renames it there. SQLite asks for this action
/// before those.
pub(crate) fn changes_tables_itself(action: &AuthAction<'_>) -> bool {
    matches!(
        action,
        AuthAction::AlterTable { .. }
            | AuthAction::DropTable { .. }
            | AuthAction::DropVtable { .. }
            | AuthAction::DropIndex { .. }
            | AuthAction::DropView { .. }
    )
}

/// Says why `action`, of a statement that runs, is refused: a pragma that is selected from is
/// prepared then, and of the columns of `USING` nobody is asked before.
pub(crate) fn refusal_while_running(action: &AuthAction<'_>) -> Option<String> {
    let AuthAction::Pragma { pragma_name, .. } = action else { return None };
    pragma_name.eq_ignore_ascii_case(TABLE_LIST.0).then(list_of_tables)
}

/// Whether `action` is the pragma by which `ALTER TABLE … ADD COLUMN` checks the rows that are
/// there while it runs; it looks at the clock for each page.
pub(crate) fn checks_rows(action: &AuthAction<'_>) -> bool {
    let AuthAction::Pragma { pragma_name, .. } = action else { return false };
    pragma_name.eq_ignore_ascii_case("quick_check")
}

/// Whether a statement with `action` makes the schema larger.
pub(crate) fn adds_to_schema(action: &AuthAction<'_>) -> bool {
    matches!(
        action,
        AuthAction::AlterTable { .. }
            | AuthAction::CreateIndex { .. }
            | AuthAction::CreateTable { .. }
            | AuthAction::CreateTrigger { .. }
            | AuthAction::CreateView { .. }
            | AuthAction::CreateVtable { .. }
    )
}

/// Pragmas that untrusted SQL may say, out of those the general rules allow.
const PRAGMAS: &[&str] = &[
    "application_id",
    "cache_size",
    "collation_list",
    "data_version",
    "encoding",
    "foreign_key_list",
    "foreign_keys",
    "freelist_count",
    "function_list",
    "index_info",
    "index_list",
    "index_xinfo",
    "journal_mode",
    "page_count",
    "page_size",
    "query_only",
    "schema_version",
    "synchronous",
    "table_info",
    "table_list",
    "table_xinfo",
    "temp_store",
    "user_version",
    "wal_autocheckpoint",
];

/// The pragma that has SQLite plan a query of each view, and the table that it is, too.
const TABLE_LIST: (&str, &str) = ("table_list", "pragma_table_list");

fn list_of_tables() -> String {
    format!(
        "{} is refused to untrusted SQL: it plans a query of each view while the statement runs, \
         which nobody can end; select from sqlite_schema, or use PRAGMA {}",
        TABLE_LIST.1, TABLE_LIST.0
    )
}

fn pragma(name: &str) -> Option<String> {
    let is_allowed = PRAGMAS.iter().any(|known| name.eq_ignore_ascii_case(known));
    (!is_allowed).then(|| {
        format!("PRAGMA {name} is refused to untrusted SQL; see monolite::Untrusted for the list")
    })
}

fn function(name: &str) -> Option<String> {
    let (_, reason) = FUNCTIONS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known))?;
    Some(format!("{name}() is refused to untrusted SQL: {reason}"))
}

/// Says why there is no virtual table module `name` for SQL that may use those in `kept`.
pub(crate) fn no_module(name: &str, kept: &[String]) -> String {
    if kept.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return format!(
            "no such module: {name}; it is one that untrusted SQL may use, and this program is \
             built without it"
        );
    }
    let mut there = vec!["json_each", "json_tree"];
    there.extend(kept.iter().map(String::as_str));
    format!(
        "no such module: {name}; the profile for untrusted SQL leaves out all but {} on purpose; \
         see monolite::Untrusted::module to allow another one",
        there.join(", ")
    )
}

/// Says why a function is refused that belongs to modules which were left out.
fn function_of_module(name: &str, modules: &[String]) -> Option<String> {
    let starts =
        |with: &&str| name.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    let is_named = |module: &&str| modules.iter().any(|named| named.eq_ignore_ascii_case(module));
    let refused = |what: &str| {
        format!(
            "{name}() is refused to untrusted SQL: it belongs to a virtual table module that was \
             left out ({what}); see monolite::Untrusted::module"
        )
    };
    if name.eq_ignore_ascii_case(MATCH) && modules.is_empty() {
        return Some(refused("full-text search"));
    }
    let of = |(names, _): &&(&[&str], &[&str])| names.iter().any(starts);
    let (_, owners) = OF_MODULES.iter().find(of)?;
    (!owners.iter().any(is_named)).then(|| refused(&owners.join(", ")))
}

/// Views of the file and of the library, where they are compiled in.
fn is_internal_view(table: &str) -> bool {
    ["dbstat", "sqlite_dbdata", "sqlite_dbpage", "sqlite_dbptr", "sqlite_memstat", "sqlite_stmt"]
        .iter()
        .any(|known| table.eq_ignore_ascii_case(known))
}

/// How the names of the tables begin that `ANALYZE` fills.
const STATISTICS: &str = "sqlite_stat";

/// Tables that SQLite keeps for itself and lets anybody write to.
fn is_kept_by_sqlite(table: &str) -> bool {
    begins(table, STATISTICS) || begins(table, "sqlite_sequence")
}

fn analyze() -> String {
    "ANALYZE is refused to untrusted SQL: it reads everything and changes how every query runs; \
     run it in a database opened without the profile"
        .into()
}

fn statistics(table: &str) -> String {
    format!("writing to {table} is refused to untrusted SQL: SQLite itself relies on what it holds")
}
