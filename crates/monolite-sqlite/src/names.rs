//! Owns the names that belong to the engine in every database, and keeps them out of the reach of
//! every user's SQL, trusted or not: what stands in its tables is acted upon, as an idempotency key
//! is a payment that is not made again.
//!
//! # Algorithm
//! 1. The authorizer refuses whatever names one of the engine's tables ([`refusal`]): it sees each
//!    table that a statement reads or changes, in views, triggers and virtual tables, too.
//!    It does not see a table of which nothing but the columns of `USING` or a `NATURAL` join is
//!    read, so those joins are refused by their text ([`refusal_of_join`]).
//! 2. `ANALYZE` leaves the engine's tables out ([`is_left_out`]).
//! 3. The authorizer does not see the new name of `ALTER TABLE … RENAME TO`, the tables that a
//!    virtual table makes for itself, nor the parent of a foreign key. But SQLite keeps all of them
//!    in the schema, as names or in its text, and no name can be spelled there without its letters
//!    standing side by side. So behind each change of the schema, and when a file is opened, that
//!    is searched for them ([`FIND`]): only the engine's own definitions may have them, which a
//!    rename writes otherwise, in quotes.
//!
//! # Invariants
//! - The engine's statements on its tables are its own ([`crate::statements`]): a user cannot find
//!   them by their text.
//! - Each of its tables has a primary key that is no rowid. SQLite 3.53.2 still copies a table
//!   without one (`INSERT INTO a SELECT * FROM b`) and does not ask the authorizer for it.

use rusqlite::ffi;
use rusqlite::hooks::AuthAction;

use crate::codes::failure;
use crate::verb::{has_word, may_join_by_names};

/// Names that begin with this are the engine's, those of tables to come, too.
const PREFIX: &str = "monolite_";

/// Where idempotency keys are kept.
pub(crate) const KEYS: &str = "monolite_idempotency";

/// Where it is kept which migrations were made.
pub(crate) const MIGRATIONS: &str = "monolite_migrations";

/// Where it is kept how far the online rebuild of a table is.
pub(crate) const REBUILD: &str = "monolite_rebuild_state";

/// The keys of rows that were changed, and are still to be copied by an online rebuild.
pub(crate) const DIRTY: &str = "monolite_rebuild_dirty";

/// Makes the table of the keys and its index, that of the migrations, and those of an online
/// rebuild.
pub(crate) const DEFINITIONS: [&str; 5] = [
    "CREATE TABLE monolite_idempotency(key TEXT PRIMARY KEY, outcome BLOB NOT NULL, \
     expires INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE INDEX monolite_idempotency_expires ON monolite_idempotency(expires)",
    "CREATE TABLE monolite_migrations(number INTEGER PRIMARY KEY, name TEXT NOT NULL, \
     checksum TEXT NOT NULL, applied INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE monolite_rebuild_state(name TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, \
     WITHOUT ROWID",
    "CREATE TABLE monolite_rebuild_dirty(key INTEGER PRIMARY KEY) STRICT, WITHOUT ROWID",
];

/// A name as SQL says it, whatever it is.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(crate) fn is_ours(name: &str) -> bool {
    begins(name, PREFIX)
}

/// Whether `name` begins with `prefix`, as SQLite compares names.
pub(crate) fn begins(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Whether `action` is to be left out of a statement that goes on without it: `ANALYZE`, which
/// copies rows of an index to `sqlite_stat4`, where everybody can read them. It comes to the
/// engine's tables with all others, also for the engine itself.
pub(crate) fn is_left_out(action: &AuthAction<'_>) -> bool {
    matches!(action, AuthAction::Analyze { table_name } if is_ours(table_name))
}

/// Says why `action`, which names something of the engine's, is refused; not if it `numbers` rows
/// with the function that is there for it.
pub(crate) fn refusal(action: &AuthAction<'_>, numbers: bool) -> Option<String> {
    if let AuthAction::Function { function_name } = action {
        return (is_ours(function_name) && !numbers).then(|| {
            format!("{function_name}() is refused: it is the engine's own, to number rows with")
        });
    }
    let name = named(action).into_iter().find(|name| is_ours(name))?;
    if let AuthAction::DropTrigger { table_name, .. } = action {
        return Some(format!(
            "dropping {table_name} is refused while it is rebuilt online; abort that first \
             (Migrations::abort)"
        ));
    }
    Some(format!(
        "{name} is refused: names that begin with {PREFIX} belong to the engine, and what it keeps \
         in them can be neither read nor changed (idempotency keys: Transaction::commit_once, \
         migrations: Migrations); choose another name"
    ))
}

/// Says why `sql` is refused, if it may join a table of the engine by columns that both tables
/// have: of those the authorizer is not asked, and an outer join shows what is in them.
pub(crate) fn refusal_of_join(sql: &str) -> Option<String> {
    (has_word(sql, PREFIX) && may_join_by_names(sql)).then(|| {
        format!(
            "a statement with USING or NATURAL is refused that has {PREFIX} in its text: names \
             that begin with that belong to the engine, and what it keeps cannot be joined"
        )
    })
}

/// The names of tables, indexes, triggers and views in `action`.
fn named<'a>(action: &AuthAction<'a>) -> Vec<&'a str> {
    match *action {
        AuthAction::CreateIndex { index_name: name, table_name }
        | AuthAction::CreateTempIndex { index_name: name, table_name }
        | AuthAction::DropIndex { index_name: name, table_name }
        | AuthAction::DropTempIndex { index_name: name, table_name }
        | AuthAction::CreateTrigger { trigger_name: name, table_name }
        | AuthAction::CreateTempTrigger { trigger_name: name, table_name }
        | AuthAction::DropTrigger { trigger_name: name, table_name }
        | AuthAction::DropTempTrigger { trigger_name: name, table_name } => vec![name, table_name],
        AuthAction::CreateTable { table_name }
        | AuthAction::CreateTempTable { table_name }
        | AuthAction::CreateVtable { table_name, .. }
        | AuthAction::DropTable { table_name }
        | AuthAction::DropTempTable { table_name }
        | AuthAction::DropVtable { table_name, .. }
        | AuthAction::AlterTable { table_name, .. }
        | AuthAction::Read { table_name, .. }
        | AuthAction::Insert { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::Delete { table_name } => vec![table_name],
        AuthAction::CreateView { view_name }
        | AuthAction::CreateTempView { view_name }
        | AuthAction::DropView { view_name }
        | AuthAction::DropTempView { view_name } => vec![view_name],
        // REINDEX comes to them, too, and neither shows nor changes what is in a table. ANALYZE:
        // `is_left_out`.
        _ => Vec::new(),
    }
}

/// Whether `action` is what the engine's own trigger does when a statement of a user fires it. A
/// user can give a name of ours to a table of `WITH`, which is an `accessor`, too; but none of
/// those inserts.
pub(crate) fn is_of_our_trigger(action: &AuthAction<'_>, accessor: Option<&str>) -> bool {
    let is_logged = matches!(action, AuthAction::Insert { table_name } if *table_name == DIRTY);
    is_logged && accessor.is_some_and(is_ours)
}

/// Finds what names a table of the engine in the schema and is none of its [`DEFINITIONS`], which
/// are its parameters; what an online rebuild has made, too.
pub(crate) const FIND: &str = "SELECT type || ' ' || name, sql FROM sqlite_schema \
     WHERE (instr(lower(sql), 'monolite_') AND (instr(lower(sql), 'monolite_idempotency') \
     OR instr(lower(sql), 'monolite_migrations') OR instr(lower(sql), 'monolite_rebuild')) \
     OR lower(name) GLOB 'monolite_*') AND sql NOT IN (?1, ?2, ?3, ?4, ?5)";

/// Whether what [`FIND`] has found with this definition is an online rebuild's by its kind and its
/// name. Another program may have changed its text, by a rename, or dropped what is noted of it.
pub(crate) fn is_of_rebuild(found: &str, sql: &str) -> bool {
    match found.split_once(' ') {
        Some(("table", name)) => name == "monolite_rebuild" && sql.starts_with("CREATE TABLE "),
        Some(("trigger" | "index", name)) => begins(name, "monolite_rebuild_"),
        _ => false,
    }
}

/// The refusal of what [`FIND`] has found.
pub(crate) fn refused(found: &str) -> rusqlite::Error {
    let text = format!(
        "the {found} is refused: names that begin with {PREFIX} belong to the engine, and so does \
         whatever names {KEYS}, {MIGRATIONS} or what rebuilds a table; choose another name, or \
         abort the online rebuild first (Migrations::abort, or monolite migrate abort); if \
         another program has made or changed it, drop it there"
    );
    failure(ffi::SQLITE_AUTH, text)
}
