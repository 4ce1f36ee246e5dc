//! Owns what the SQL inside a transaction may not say, and the sentence that tells what to do
//! instead.
//!
//! # Invariants
//! - Only the engine begins, ends or nests transactions: a member that could say `COMMIT` would
//!   make its neighbours' work durable before they were asked.
//! - Nothing a member says outlives it on the connection: no pragma that changes a setting, no
//!   temporary table, no attached database. The one setting that a member has to itself,
//!   `defer_foreign_keys`, is told to [`crate::Authorizer`], and ended with it.
//!
//! # Not here
//! The switch that lets the engine's own statements pass: [`crate::Authorizer`].

use rusqlite::ffi;
use rusqlite::hooks::{AuthAction, TransactionOperation};

use crate::names::begins;
use crate::traits::Traits;

/// Pragmas that only report, whatever their argument is (it names a table or an index).
const REPORTING: &[&str] = &[
    "collation_list",
    "compile_options",
    "data_version",
    "database_list",
    "foreign_key_check",
    "foreign_key_list",
    "freelist_count",
    "function_list",
    "index_info",
    "index_list",
    "index_xinfo",
    "integrity_check",
    "module_list",
    "page_count",
    "pragma_list",
    "quick_check",
    "table_info",
    "table_list",
    "table_xinfo",
];

/// Pragmas that are part of the database's contents: transactional, hence allowed to change.
const CONTENT: &[&str] = &["user_version", "application_id", OPTIMIZE];

/// Runs `ANALYZE` where that is due.
const OPTIMIZE: &str = "optimize";

/// The same as a table that can be selected from.
const OPTIMIZE_TABLE: &str = "pragma_optimize";

/// Pragmas that may be asked and not set, and where the value comes from.
const READ_ONLY: &[(&str, &str)] = &[
    ("analysis_limit", "the engine reads whole indexes for ANALYZE"),
    ("auto_vacuum", OF_THE_FILE),
    ("cache_size", "see the options reader_cache_bytes and writer_cache_bytes"),
    ("encoding", OF_THE_FILE),
    (
        "foreign_keys",
        "foreign keys are enforced; declare one DEFERRABLE to check it late, or rebuild a table \
         with Database::without_foreign_keys, or in a migration whose file begins with `-- \
         monolite: foreign_keys=off`",
    ),
    ("journal_mode", "the engine needs the WAL"),
    ("max_page_count", OF_THE_FILE),
    ("page_size", OF_THE_FILE),
    ("query_only", "use Database::read to be kept from writing"),
    ("schema_version", "SQLite counts it"),
    ("synchronous", "see the option durability"),
    ("temp_store", "the engine has its own files for it, see the option temp_limit_bytes"),
    ("wal_autocheckpoint", "the engine checkpoints by itself, see the option wal_limit_bytes"),
];

const OF_THE_FILE: &str = "it belongs to the file; set it with plain SQLite while the database is \
                           not open here";

/// Pragmas that are refused whole, and what to do instead. Any other one that is in no list would
/// change the connection for everybody who uses it afterwards.
const REFUSED: &[(&str, &str)] = &[
    ("busy_timeout", "the engine bounds waiting for a lock; see the options with a time limit"),
    ("case_sensitive_like", "use GLOB, or compare with a collation"),
    ("locking_mode", "see the option sharing"),
    ("mmap_size", "the engine reads pages through its own caches, see reader_cache_bytes"),
    ("recursive_triggers", "triggers do not fire themselves here"),
    ("wal_checkpoint", "the engine checkpoints by itself, see the option wal_limit_bytes"),
    ("writable_schema", "the schema is changed with CREATE, ALTER and DROP"),
];

/// Has foreign keys be checked at the end of the transaction, and ends with it.
const DEFERS: &str = "defer_foreign_keys";

/// Whether `action` sets foreign keys on or off.
pub(crate) fn sets_foreign_keys(action: &AuthAction<'_>) -> Option<bool> {
    match action {
        AuthAction::Pragma { pragma_name, pragma_value: Some(value) }
            if is_one_of(&["foreign_keys"], pragma_name) =>
        {
            Some(is_on(value))
        }
        _ => None,
    }
}

fn is_on(value: &str) -> bool {
    is_one_of(&["on", "1", "true", "yes"], value)
}

/// Pragmas that report on the connection or the file and say nothing about the data: on another
/// connection, or a moment later, they say something else. The checks compare full-text search with
/// what the connection has in memory of it, and so take what others have changed for damage (SQLite
/// 3.54.1, on two plain connections, too).
const REPORTS: &[&str] = &[
    "analysis_limit",
    "cache_size",
    "data_version",
    "database_list",
    "freelist_count",
    "integrity_check",
    "journal_mode",
    "max_page_count",
    "module_list",
    "page_count",
    "query_only",
    "quick_check",
    "synchronous",
    "temp_store",
    "wal_autocheckpoint",
];

/// Tables of SQLite itself that show something else than their rows.
const INTROSPECTING: &[&str] = &["dbstat", "sqlite_dbpage", "sqlite_stmt", "bytecode"];

/// Functions that tell what the statements before have done on this connection.
const HISTORIC: &[&str] = &["changes", "total_changes", "last_insert_rowid"];

/// What a statement with this `action` on `database` is like.
pub(crate) fn traits(action: &AuthAction<'_>, database: Option<&str>) -> Traits {
    let is_elsewhere = database.is_some_and(|name| !name.eq_ignore_ascii_case("main"));
    let beyond_pages = Traits::BEYOND_PAGES;
    let traits = match action {
        // One with a value that would be set is refused, and others take no notice of it.
        AuthAction::Pragma { pragma_name: name, pragma_value } => {
            let defers = pragma_value.is_some() && is_one_of(&[DEFERS], name);
            beyond_pages
                | Traits::REPORT.when(is_one_of(REPORTS, name))
                | Traits::MAY_CHANGE.when(is_one_of(&[OPTIMIZE], name))
                | Traits::DEFERS.when(defers)
        }
        // It reads the schema again without the statistics.
        AuthAction::AlterTable { .. } => beyond_pages | Traits::SCHEMA | Traits::STATISTICS,
        AuthAction::Analyze { .. } => Traits::STATISTICS,
        // Every CREATE and DROP is reported with what it does to its entry in `sqlite_schema`.
        AuthAction::Insert { table_name: name }
        | AuthAction::Delete { table_name: name }
        | AuthAction::Update { table_name: name, .. } => {
            beyond_pages.when(begins(name, "sqlite_"))
                | Traits::SCHEMA.when(is_one_of(&["sqlite_schema", "sqlite_master"], name))
                | Traits::STATISTICS.when(begins(name, "sqlite_stat"))
        }
        AuthAction::Read { table_name, .. } => {
            // Its pragma is prepared when it runs, and looks into views.
            beyond_pages.when(is_one_of(INTROSPECTING, table_name))
                | Traits::VIRTUAL.when(begins(table_name, "pragma_"))
        }
        AuthAction::Function { function_name } => {
            beyond_pages.when(is_one_of(HISTORIC, function_name))
                | Traits::ASKS_CHANGES.when(is_one_of(&["changes"], function_name))
        }
        _ => Traits::NONE,
    };
    traits | beyond_pages.when(is_elsewhere)
}

pub(crate) fn is_one_of(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Says why `action` on `database` is refused inside a transaction, or `None` where it is allowed.
pub(crate) fn refusal(action: &AuthAction<'_>, database: Option<&str>) -> Option<String> {
    match action {
        // `CREATE TABLE temp.t` is not reported as the creation of a temporary table.
        AuthAction::CreateIndex { .. }
        | AuthAction::CreateTable { .. }
        | AuthAction::CreateTrigger { .. }
        | AuthAction::CreateView { .. }
        | AuthAction::CreateVtable { .. }
            if database.is_some_and(|name| name.eq_ignore_ascii_case("temp")) =>
        {
            Some(temporary())
        }
        // `CREATE TRIGGER temp.t … ON main.t` is reported as a trigger of the main database; only
        // the entry in the schema tells.
        AuthAction::Insert { table_name }
            if ["sqlite_temp_master", "sqlite_temp_schema"].contains(table_name) =>
        {
            Some(temporary())
        }
        AuthAction::Transaction { operation } => Some(transaction(*operation)),
        AuthAction::Savepoint { savepoint_name: "fts3", .. } => Some(
            "the function optimize() of FTS3 and FTS4 is refused: it needs a savepoint of its own, \
             and those belong to the engine; use the command: INSERT INTO t(t) VALUES ('optimize')"
                .into(),
        ),
        AuthAction::Savepoint { .. } => Some(
            "SAVEPOINT, RELEASE and ROLLBACK TO belong to the engine inside a transaction; return \
             an error from the closure to undo all of it, or use the savepoints of an interactive \
             Transaction"
                .into(),
        ),
        // Without a name when it is an expression.
        AuthAction::Attach { .. }
        | AuthAction::Detach { .. }
        | AuthAction::Unknown { code: ffi::SQLITE_ATTACH | ffi::SQLITE_DETACH, .. } => Some(
            "ATTACH and DETACH are refused: a transaction is durable in one file only; open the \
             other file as a Database of its own"
                .into(),
        ),
        AuthAction::Pragma { pragma_name, pragma_value } => pragma(pragma_name, *pragma_value)
            .or_else(|| pragma_value.and_then(|_| pragma_of_temp(pragma_name, database))),
        AuthAction::Read { table_name, .. } if table_name.eq_ignore_ascii_case(OPTIMIZE_TABLE) => {
            Some(
                "pragma_optimize is refused inside a transaction: it would change the statistics \
                 in the midst of a query; use the statement PRAGMA optimize"
                    .into(),
            )
        }
        AuthAction::Function { function_name } if *function_name == "load_extension" => {
            Some("load_extension() is refused: extensions are linked into the program".into())
        }
        AuthAction::Function { function_name } if *function_name == "fts3_tokenizer" => Some(
            "fts3_tokenizer() is refused: it tells, and takes, an address in the process; name a \
             tokenizer in CREATE VIRTUAL TABLE"
                .into(),
        ),
        AuthAction::CreateTempIndex { .. }
        | AuthAction::CreateTempTable { .. }
        | AuthAction::CreateTempTrigger { .. }
        | AuthAction::CreateTempView { .. } => Some(temporary()),
        _ => None,
    }
}

/// Says why `action` is refused in a migration, where something else is to be done about it than in
/// another transaction.
pub(crate) fn refusal_in_migration(action: &AuthAction<'_>) -> Option<String> {
    match action {
        AuthAction::Transaction { operation } => Some(format!(
            "{} is refused: a migration already is one transaction; delete BEGIN, COMMIT and \
             ROLLBACK",
            word_of(*operation)
        )),
        AuthAction::Savepoint { savepoint_name, .. } if *savepoint_name != "fts3" => Some(
            "SAVEPOINT, RELEASE and ROLLBACK TO are refused: a migration already is one \
             transaction, which is undone whole when it fails; delete them"
                .into(),
        ),
        AuthAction::Pragma { pragma_name, pragma_value: Some(value) }
            if is_one_of(&["foreign_keys"], pragma_name) =>
        {
            let advice = if is_on(value) {
                "they are on again by themselves when the migration has ended; delete this \
                 statement"
            } else {
                "begin the file with `-- monolite: foreign_keys=off`, and delete this statement"
            };
            Some(format!("PRAGMA {pragma_name} cannot be set in a migration: {advice}"))
        }
        _ => None,
    }
}

fn temporary() -> String {
    "temporary tables, views and triggers are refused: they would outlive the transaction on a \
     shared connection; use a common table expression or an ordinary table"
        .into()
}

fn word_of(operation: TransactionOperation) -> &'static str {
    match operation {
        TransactionOperation::Begin => "BEGIN",
        TransactionOperation::Rollback => "ROLLBACK",
        _ => "COMMIT",
    }
}

fn transaction(operation: TransactionOperation) -> String {
    let said = word_of(operation);
    format!(
        "{said} is refused: the closure is the transaction; return Ok to commit it and an error \
         to roll it back (an interactive one: Transaction::commit, Transaction::rollback)"
    )
}

/// What `PRAGMA temp.user_version` sets is in the temporary database of the connection.
fn pragma_of_temp(name: &str, database: Option<&str>) -> Option<String> {
    let is_temp = database.is_some_and(|database| database.eq_ignore_ascii_case("temp"));
    (is_temp && is_one_of(CONTENT, name) && !is_one_of(&[OPTIMIZE], name)).then(|| {
        format!(
            "PRAGMA temp.{name} is refused: it would outlive the transaction on a shared \
             connection; set that of the file, main.{name}"
        )
    })
}

fn pragma(name: &str, value: Option<&str>) -> Option<String> {
    let advice = |list: &[(&str, &'static str)]| {
        list.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, advice)| *advice)
    };
    if is_one_of(REPORTING, name) || is_one_of(CONTENT, name) {
        return None;
    }
    if is_one_of(&[DEFERS], name) {
        let is_off = value.is_some_and(|value| !is_on(value));
        return is_off.then(|| {
            "PRAGMA defer_foreign_keys can only be ON inside a transaction, and ends with it: \
             switched off before, SQLite would forget what is violated and never check it; delete \
             this statement"
                .into()
        });
    }
    if let Some(advice) = advice(READ_ONLY) {
        let cannot = || format!("PRAGMA {name} cannot be set inside a transaction: {advice}");
        return value.map(|_| cannot());
    }
    let advice = advice(REFUSED).unwrap_or(
        "it would change the connection for all that use it afterwards, and no option of \
         monolite::Options sets it",
    );
    Some(format!("PRAGMA {name} is refused inside a transaction: {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pragma_allowed(name: &str, value: Option<&str>) -> bool {
        refusal(&AuthAction::Pragma { pragma_name: name, pragma_value: value }, None).is_none()
    }

    #[test]
    fn deferral_is_begun_and_not_ended() {
        for value in [None, Some("1"), Some("on"), Some("TRUE"), Some("yes")] {
            assert!(pragma_allowed("defer_foreign_keys", value), "{value:?}");
        }
        for value in ["0", "off", "no", "false", "256", "full", ""] {
            assert!(!pragma_allowed("Defer_Foreign_Keys", Some(value)), "{value}");
        }
    }

    #[test]
    fn contents_of_the_temporary_database_are_not_changed() {
        let refused = |pragma_name, pragma_value, database| {
            refusal(&AuthAction::Pragma { pragma_name, pragma_value }, Some(database))
        };
        let text = refused("user_version", Some("7"), "temp").unwrap();
        assert!(text.contains("main.user_version"), "{text}");
        assert!(refused("Application_Id", Some("7"), "TEMP").is_some());
        assert_eq!(refused("user_version", None, "temp"), None);
        assert_eq!(refused("user_version", Some("7"), "main"), None);
    }
}
