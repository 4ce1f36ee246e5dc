//! Owns the list itself. A difference that is a defect is not here: it is mended.

use monolite::ErrorKind;

use super::{Case, Difference, Observation, Paths, Sign, Topic};
use crate::conform::said::{Aspect, Cell};
use crate::conform::statement::{Control, Statement};

/// Every difference that is by design.
pub(crate) const LIST: &[Difference] = &[
    Difference {
        id: "transaction-control",
        topic: Topic::Refused,
        what: "`BEGIN`, `COMMIT`, `END`, `ROLLBACK` inside a transaction",
        sqlite: "begins or ends a transaction, or says that there is one, or none",
        monolite: "`Invalid`, code 23 (`SQLITE_AUTH`)",
        why: "transactions share a commit: one that could say `COMMIT` would make its neighbours' \
              work durable before they were asked",
        instead: "the closure is the transaction: `Ok` commits, an error rolls back; an \
                  interactive one has `commit` and `rollback`",
        paths: Paths::All,
        sign: Sign::Refusal(
            is_transaction_control,
            &["is refused: the closure is the transaction"],
        ),
    },
    Difference {
        id: "savepoint-as-sql",
        topic: Topic::Refused,
        what: "`SAVEPOINT`, `RELEASE`, `ROLLBACK TO`",
        sqlite: "nests transactions",
        monolite: "`Invalid`, code 23",
        why: "a savepoint that a closure left open would take in its neighbours",
        instead: "`Transaction::savepoint`, `rollback_to` and `release` of an interactive \
                  transaction; return an error from a closure to undo all of it",
        paths: Paths::Closures,
        sign: Sign::Refusal(is_savepoint, &["SAVEPOINT, RELEASE and ROLLBACK TO belong"]),
    },
    Difference {
        id: "attach",
        topic: Topic::Refused,
        what: "`ATTACH`, `DETACH`",
        sqlite: "opens another file beside the first",
        monolite: "`Invalid`, code 23",
        why: "in WAL mode a transaction over two files is not atomic in a crash",
        instead: "open the other file as a `Database` of its own",
        paths: Paths::All,
        sign: Sign::Refusal(is_attach, &["ATTACH and DETACH are refused"]),
    },
    Difference {
        id: "temporary-objects",
        topic: Topic::Refused,
        what: "temporary tables, views, triggers, indexes",
        sqlite: "makes an object that lives as long as the connection",
        monolite: "`Invalid`, code 23",
        why: "the connection is shared: it would be seen by other transactions, or by none",
        instead: "a common table expression, `VALUES`, or an ordinary table",
        paths: Paths::All,
        sign: Sign::Refusal(
            |it| it.verb() == "CREATE",
            &["temporary tables, views and triggers are refused"],
        ),
    },
    Difference {
        id: "pragma-settings",
        topic: Topic::Refused,
        what: "pragmas that change a setting or run maintenance",
        sqlite: "changes the connection or the file",
        monolite: "`Invalid`, code 23, for a setting and for every pragma that is not known to \
                   report only; `user_version` and `application_id` can be set",
        why: "the engine owns the settings of its connections, on which durability and \
              isolation depend",
        instead: "what the error says: mostly an option of `monolite::Options`",
        paths: Paths::All,
        sign: Sign::Refusal(is_pragma, &["inside a transaction: ", "not authorized"]),
    },
    Difference {
        id: "vacuum",
        topic: Topic::Refused,
        what: "`VACUUM`, `VACUUM INTO`",
        sqlite: "rewrites the database, or copies it into another file",
        monolite: "`Invalid`: it cannot run inside a transaction, and every statement is in one",
        why: "it needs the file for itself, and everybody else would wait",
        instead: "`Database::backup` for a copy; `Database::vacuum` for a smaller file, or the \
                  `sqlite3` shell while it is closed",
        paths: Paths::All,
        sign: Sign::Refusal(
            |it| it.verb() == "VACUUM",
            &["VACUUM is refused", "cannot VACUUM from within a transaction"],
        ),
    },
    Difference {
        id: "shadow-tables",
        topic: Topic::Refused,
        what: "changing or dropping the tables in which FTS and R-Tree keep their content",
        sqlite: "does it, and may leave a damaged index behind",
        monolite: "fails as SQLite does with `SQLITE_DBCONFIG_DEFENSIVE` on, which it always is",
        why: "plain SQL could make a file that SQLite itself takes for damaged",
        instead: "write to the virtual table",
        paths: Paths::All,
        sign: Sign::Refusal(is_of_shadow_table, &[" may not be "]),
    },
    // Before the next one, whose words it has, too.
    Difference {
        id: "fts-optimize-function",
        topic: Topic::Refused,
        what: "the function `optimize()` of FTS3 and FTS4",
        sqlite: "merges the index, and says whether there was anything to do",
        monolite: "`Invalid`, code 23; a table without rows has nothing to call it for",
        why: "it needs a savepoint of its own, and those belong to the engine",
        instead: "the command: `INSERT INTO t(t) VALUES ('optimize')`",
        paths: Paths::All,
        sign: Sign::Refusal(
            |it| it.has_word("OPTIMIZE"),
            &["the function optimize() of FTS3 and FTS4 is refused", "authorization denied"],
        ),
    },
    Difference {
        id: "engine-names",
        topic: Topic::Refused,
        what: "tables, views, indexes and triggers whose names begin with `monolite_`, and \
               whatever in the schema mentions `monolite_idempotency`",
        sqlite: "takes them for any other",
        monolite: "`Invalid`; the transaction can go on, except after a rename",
        why: "the engine acts upon what it keeps there: an idempotency key that somebody has \
              forged is a payment that is not made",
        instead: "choose another name; `Transaction::commit_once` for the keys",
        paths: Paths::All,
        sign: Sign::Refusal(|_| true, &["belong to the engine", "belongs to the engine"]),
    },
    Difference {
        id: "load-extension",
        topic: Topic::Refused,
        what: "`load_extension()`",
        sqlite: "loads a library, or says that loading is switched off",
        monolite: "`Invalid`, when the statement is prepared",
        why: "a library can do anything to the process",
        instead: "`Options::connection_setup` for functions in Rust; or link the extension into \
                  the program, and call `sqlite3_auto_extension` only after a first \
                  `Database::open` (`:memory:` will do, kept open): an earlier call initialises \
                  SQLite, so `Stats::is_tracking_pages` is `false` and transactions are replayed \
                  whole",
        paths: Paths::All,
        sign: Sign::Refusal(|it| it.has_word("LOAD_EXTENSION"), &["load_extension() is refused"]),
    },
    Difference {
        id: "read-only-reads",
        topic: Topic::Refused,
        what: "statements that write, in a `read`",
        sqlite: "writes",
        monolite: "`Invalid`, code 8 (`SQLITE_READONLY`)",
        why: "a read runs beside the writer, on a snapshot",
        instead: "`Database::write`",
        paths: Paths::Closures,
        sign: Sign::Refusal(|it| it.only_asks(), &["attempt to write a readonly database"]),
    },
    // Before others that cover what follows it, since plain SQLite is not to be asked.
    Difference {
        id: "time-limits",
        topic: Topic::Limits,
        what: "statements and transactions that take longer than a limit",
        sqlite: "runs on, and everybody who wants to write waits",
        monolite: "`Timeout`; the transaction is rolled back alone",
        why: "there is one writer, and nobody may stop it",
        instead: "the options `write_time_limit`, `read_time_limit`, `transaction_time_limit`; \
                  shorter transactions",
        paths: Paths::All,
        sign: Sign::Refusal(
            |_| true,
            &["was ended: it may take", "interrupted", "was rolled back after"],
        ),
    },
    Difference {
        id: "after-rollback",
        topic: Topic::Transactions,
        what: "statements after one that has rolled the whole transaction back (`OR ROLLBACK`, \
               `RAISE(ROLLBACK)`)",
        sqlite: "runs each by itself, outside of any transaction",
        monolite: "refuses them: `Aborted` in a closure, the first error's kind in an interactive \
                   transaction; of one that a closure had prepared before, a query answers and a \
                   change is refused as `Constraint`",
        why: "half of the transaction would be done, and nobody has asked for that",
        instead: "return the error; use `OR ABORT` (the default) to go on after it",
        paths: Paths::All,
        sign: Sign::Refusal(|_| true, &["the transaction was rolled back by an earlier statement"]),
    },
    Difference {
        id: "transaction-is-over",
        topic: Topic::Transactions,
        what: "statements after one that has ended an interactive transaction: `OR ROLLBACK`, \
               `SQLITE_FULL`, which `AUTOINCREMENT` also says when the largest rowid is used, \
               `SQLITE_CORRUPT_VTAB`, by which FTS says that an index does not fit its content, \
               `SQLITE_CORRUPT` of a view that SQLite cannot read back (`CREATE VIEW IF NOT \
               EXISTS IF AS …`), and `SQLITE_LOCKED` of a virtual table that is its own content \
               (`CREATE VIRTUAL TABLE x USING fts4(content=x)`)",
        sqlite: "goes on in the transaction, or outside of it after a rollback",
        monolite: "refuses them with the kind of the first error",
        why: "whether it would answer so again at commit does not follow from the data alone",
        instead: "begin a new transaction; `write` goes on after `SQLITE_CORRUPT_VTAB`, and after \
                  `SQLITE_FULL` where SQLite has not rolled back all of it (it does that for \
                  `AUTOINCREMENT`, too)",
        paths: Paths::Interactive,
        sign: Sign::Refusal(|_| true, &["the transaction is over: "]),
    },
    Difference {
        id: "end-after-rollback",
        topic: Topic::Transactions,
        what: "the end of a transaction that one of its statements has ended",
        sqlite: "says that no transaction is active, or commits what it went on with",
        monolite: "`Aborted`, or the kind of the error that has ended it; nothing of it is done",
        why: "an `Ok` would say that it was committed",
        instead: "return the statement's error",
        paths: Paths::All,
        sign: Sign::End(has_no_transaction_left),
    },
    Difference {
        id: "deferred-violation",
        topic: Topic::Transactions,
        what: "a deferred foreign key that is violated at the end",
        sqlite: "`COMMIT` fails with code 787 and leaves the transaction open",
        monolite: "rolls the transaction back with the same kind and code, and a text of its own",
        why: "its neighbours' commit cannot wait until somebody corrects it",
        instead: "correct it before the end of the closure",
        paths: Paths::All,
        sign: Sign::End(is_deferred_violation),
    },
    Difference {
        id: "deferred-violation-alone",
        topic: Topic::Transactions,
        what: "a single statement that violates a deferred foreign key",
        sqlite: "fails with code 787: `FOREIGN KEY constraint failed`",
        monolite: "the transaction fails with the same kind and code, and a text of its own",
        why: "it is found when the closure has returned",
        instead: "go by the kind or the code",
        paths: Paths::All,
        sign: Sign::Answers(is_deferred_violation),
    },
    Difference {
        id: "connection-functions",
        topic: Topic::Connection,
        what: "`changes()`, `total_changes()` and `last_insert_rowid()` of transactions before",
        sqlite: "tells about the statements that the connection ran before",
        monolite: "tells about whatever ran on the connection at hand: of another transaction, or \
                   nothing. In an interactive transaction, asking before it has changed anything \
                   may end in `Conflict`. What full-text search writes for itself at a savepoint \
                   or after a change of the schema is left out; SQLite counts it, and tells of \
                   no rowid then",
        why: "a transaction gets some connection, and shares it with others",
        instead: "ask in the transaction that has changed something, after the change; \
                  `RETURNING`; the number that `execute` gives",
        paths: Paths::All,
        sign: Sign::Answers(asks_of_earlier_changes),
    },
    Difference {
        id: "connection-pragmas",
        topic: Topic::Connection,
        what: "pragmas that report settings of the connection or figures of the file",
        sqlite: "reports its defaults, and the pages of a file of its own history",
        monolite: "reports the engine's settings (`journal_mode` is `wal`, `synchronous` is \
                   `NORMAL`, since the engine syncs itself), and other figures where the engine \
                   has written something of its own; `function_list` has functions of the \
                   engine's beside those of SQLite's that they stand for, such as `changes`. \
                   `PRAGMA optimize` looks at the tables that the connection at hand has queried, \
                   as in SQLite: queries on readers do not count",
        why: "the settings are what the engine is made of",
        instead: "`monolite::Options` and `monolite::Stats`; `Options::optimize_every`, or `PRAGMA \
                  optimize(0x10002)`, which looks at all tables",
        paths: Paths::All,
        sign: Sign::Answers(reports_settings),
    },
    Difference {
        id: "explain",
        topic: Topic::Connection,
        what: "`EXPLAIN` and `EXPLAIN QUERY PLAN`",
        sqlite: "`EXPLAIN` shows the program of the statement",
        monolite: "shows the same program, with the numbers that the connection at hand has given \
                   to its copy of the schema. In an interactive transaction neither is compared \
                   at commit: its plan may be older. After a change of the statistics in the same \
                   transaction (`ANALYZE`, `DELETE FROM sqlite_stat1`), and where there are \
                   statistics after any change of the schema, also a failed one, statements are \
                   planned as by a connection that has just read the statistics and the schema; \
                   SQLite's own goes on with what it had in memory. What SQLite leaves to the \
                   plan (the order of rows without `ORDER BY`, which of several rows an `UPDATE … \
                   FROM` takes) follows it",
        why: "the program names the connection's own state, and neither says anything about the \
              data",
        instead: "`EXPLAIN QUERY PLAN`; except in such a transaction, its answer is the same",
        paths: Paths::All,
        sign: Sign::Answers(is_program),
    },
    Difference {
        id: "failed-changes-of-the-schema",
        topic: Topic::Connection,
        what: "what a change of the schema that has failed leaves in memory",
        sqlite: "the connection may go on with it (`duplicate column name` of a column that there \
                 is not) until the schema changes",
        monolite: "nothing",
        why: "the connection is shared",
        instead: "nothing",
        paths: Paths::All,
        sign: Sign::Answers(|it| {
            it.statement.verb() == "ALTER" && it.plain_failed("duplicate column name")
        }),
    },
    Difference {
        id: "deferral-alone",
        topic: Topic::Connection,
        what: "`PRAGMA defer_foreign_keys = ON` as a transaction of its own",
        sqlite: "holds for the next transaction",
        monolite: "ends with its own",
        why: "the next transaction may be somebody else's",
        instead: "say it in the transaction that needs it",
        paths: Paths::All,
        sign: Sign::Answers(|it| {
            it.aspect == Aspect::Rows && it.statement.pragma() == Some("DEFER_FOREIGN_KEYS")
        }),
    },
    Difference {
        id: "fts-content-is-gone",
        topic: Topic::Connection,
        what: "the error for an FTS4 table whose `content` table was dropped",
        sqlite: "`SQL logic error`, or `no such table: main.t` on a connection that has not used \
                 it before; both have the code 1",
        monolite: "either; an interactive transaction that was told the one and has changed \
                   something may fail with `Conflict` or `Invalid` for the other",
        why: "a transaction gets some connection, and shares it with others",
        instead: "drop the FTS4 table, too",
        paths: Paths::All,
        sign: Sign::Answers(|it| {
            it.same_code()
                && it.plain_failed("SQL logic error")
                && it.ours_failed(ErrorKind::Invalid, "no such table: main.")
        }),
    },
    Difference {
        id: "unknown-savepoints",
        topic: Topic::Connection,
        what: "the error for a savepoint that is not open",
        sqlite: "`no such savepoint: missing`, code 1",
        monolite: "`Invalid`, with other words and no code",
        why: "the engine gives savepoints names of its own",
        instead: "nothing",
        paths: Paths::Interactive,
        sign: Sign::Answers(|it| {
            it.plain_failed("no such savepoint")
                && it.ours_failed(ErrorKind::Invalid, "no savepoint")
        }),
    },
    Difference {
        id: "numbers-of-no-change",
        topic: Topic::Connection,
        what: "the number that `execute` gives for a statement that changes no rows (`CREATE`, \
               `ANALYZE`); a statement from `prepare` is `rusqlite`'s own, and gives SQLite's",
        sqlite: "that of the last statement on the connection that changed some (`rusqlite`)",
        monolite: "0",
        why: "a transaction gets some connection, and shares it with others",
        instead: "look at the number of `INSERT`, `UPDATE` and `DELETE` only",
        paths: Paths::All,
        sign: Sign::Answers(|it| it.aspect == Aspect::Changes && !it.statement.counts_changes()),
    },
    Difference {
        id: "more-functions",
        topic: Topic::Connection,
        what: "mathematical functions, `REGEXP` and `generate_series` where SQLite is built \
               without them",
        sqlite: "`no such function`, `no such table`",
        monolite: "answers, as the `sqlite3` shell does",
        why: "most programs need some of them",
        instead: "functions of your own in their place, by `Options::connection_setup`",
        paths: Paths::All,
        sign: Sign::Answers(|it| {
            let is_missing = it.plain_failed("no such function: ")
                || it.plain_failed("no such table: generate_series");
            is_missing && it.ours.fault.is_none()
        }),
    },
    Difference {
        id: "time-limits-at-the-end",
        topic: Topic::Limits,
        what: "the end of a transaction that ran into a limit of time",
        sqlite: "commits it",
        monolite: "`Timeout`; nothing of it is done",
        why: "an `Ok` would say that it was committed",
        instead: "the same options",
        paths: Paths::All,
        sign: Sign::End(|it| it.ours_failed(ErrorKind::Timeout, "")),
    },
    Difference {
        id: "transaction-limits",
        topic: Topic::Limits,
        what: "interactive transactions of more than 10,000 statements (an `execute_batch` is one, \
               whatever is in it), with more than 64 MiB of statements and parameters in all, or \
               with a result of one statement of more than 64 MiB",
        sqlite: "has no such limit",
        monolite: "`Invalid`; the transaction can go on or be committed",
        why: "everything is remembered, to be run again at commit",
        instead: "the options `transaction_max_statements` and `transaction_max_bytes`; `write`, \
                  which has neither",
        paths: Paths::Interactive,
        sign: Sign::Refusal(|_| true, &["transaction_max_statements", "transaction_max_bytes"]),
    },
    Difference {
        id: "deep-expressions",
        topic: Topic::Limits,
        what: "statements of more than 60 `SELECT`s, those of views and common table expressions \
               included, whose expressions can become more than 60,000 levels deep when they are \
               put together",
        sqlite: "runs them, or overflows the stack of its thread, which ends the process",
        monolite: "`Invalid`",
        why: "there is a stack of 64 MiB for them",
        instead: "write it in parts, or keep a part of the result in a table",
        paths: Paths::All,
        sign: Sign::Refusal(|_| true, &["deep, for which there is no stack"]),
    },
    Difference {
        id: "closures-run-again",
        topic: Topic::Program,
        what: "a closure of `write` or `transact` may be run more than once",
        sqlite: "a program runs its statements once",
        monolite: "only the changes of one run stay, and its result is the one that is delivered",
        why: "a neighbour in the same commit that fails is undone together with it",
        instead: "change nothing but the database in it; `write_once`; `Tx::attempt`",
        paths: Paths::Closures,
        sign: Sign::Observed(Observation::RanAgain),
    },
    Difference {
        id: "errors-undo-all",
        topic: Topic::Program,
        what: "a closure that returns the error of its statement",
        sqlite: "a statement by itself keeps what `OR FAIL` and `RAISE(FAIL)` say to keep",
        monolite: "undoes the whole transaction",
        why: "an error is how a closure says that nothing shall stay",
        instead: "look at the error and return `Ok`",
        paths: Paths::Closures,
        sign: Sign::Observed(Observation::UndoneWhole),
    },
    Difference {
        id: "snapshots-move",
        topic: Topic::Program,
        what: "the snapshot of an interactive transaction",
        sqlite: "stays the same to the end of the transaction",
        monolite: "may be exchanged between two statements for a newer one, on which every answer \
                   that was given would be given again",
        why: "a transaction that waits for its client must not keep the WAL from restarting",
        instead: "nothing: what was read is what is true at the commit",
        paths: Paths::Interactive,
        sign: Sign::Observed(Observation::Moved),
    },
    Difference {
        id: "conflicts",
        topic: Topic::Program,
        what: "an interactive transaction of which an answer would be another one now",
        sqlite: "`SQLITE_BUSY` at once, or when a read transaction begins to write",
        monolite: "`Conflict`, at the next statement or at the commit",
        why: "it holds no lock, so others may change what it has read",
        instead: "`transact`, which runs it again and in the end alone",
        paths: Paths::Interactive,
        sign: Sign::Observed(Observation::Conflicted),
    },
    Difference {
        id: "ids-ahead",
        topic: Topic::Program,
        what: "ids that are left to SQLite, in simple `INSERT`s of interactive transactions, and \
               in those of `write` behind them",
        sqlite: "are the largest one in the table and one",
        monolite: "are given out ahead, as sequences do: no number twice, gaps where a transaction \
                   failed, and a row that is committed first may have the larger one",
        why: "two transactions that insert into one table and ask for the id would conflict",
        instead: "give the ids yourself; `Options::ids_given_out_ahead(false)`",
        paths: Paths::Interactive,
        sign: Sign::Observed(Observation::IdsWithGaps),
    },
    Difference {
        id: "rowids-by-commit",
        topic: Topic::Program,
        what: "rowids that nobody has asked for, of other `INSERT`s (`INSERT … SELECT`)",
        sqlite: "are given when the row is inserted",
        monolite: "are given in the order of the commits. A rowid that the transaction has seen \
                   (`RETURNING`, `last_insert_rowid()`) stays, or the commit fails with `Conflict`",
        why: "the statements run again at commit",
        instead: "ask for the rowid if it is needed before the commit",
        paths: Paths::Interactive,
        sign: Sign::Observed(Observation::RowidsInOrderOfCommits),
    },
];

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
