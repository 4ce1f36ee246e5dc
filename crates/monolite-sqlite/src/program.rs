//! Owns what is asked of the program of a statement: whether it can sort in memory, where no clock
//! is looked at ([`crate::look`]), and how often it can pass over a value between two looks. What a
//! statement without a sort allocates in small pieces is no row that waits for one: an `UPDATE`
//! inside of a savepoint keeps a copy of each page that it changes.
//!
//! # Algorithm
//! `EXPLAIN` lists the instructions of the program, those of its triggers and foreign keys, too.
//! Rows are sorted by a sorter or a set of rowids, and virtual tables and changes of the schema run
//! statements of their own. Each comparison, calculation and call of a function can be a pass over
//! a value (to make a number of a text, to compare it), also those of `CASE`, of views and of
//! expressions in the schema, of which the authorizer is not asked. SQLite looks at the clock where
//! a program jumps back, and passes between two such places are foreseen by their number.
//!
//! To explain a change has SQLite say that no row was changed, as if it had run: `changes()` is 0
//! then. So a change is explained only where the transaction would be told that anyway, as it has
//! changed nothing yet, or its last change has changed no rows. Otherwise it may sort, for all that
//! is known, and the memory of its program tells how many instructions there can be
//! ([`most_passes`]). Nothing else that SQL can see hangs on it: an explained statement takes no
//! lock, draws no number and runs no instruction.
//!
//! # Invariants
//! - While SQLite prepares a statement it sorts no rows: the programs that it runs then read the
//!   schema, and what virtual tables have stored of themselves, in the order of a key. So memory is
//!   no row then either, also while other statements are in the middle of theirs.
//! - The answer is that of one program, prepared under the same authorizer. Whoever keeps it has to
//!   know when SQLite makes another program of the same statement: the authorizer is asked for each
//!   ([`crate::signals::Signals`]).

use rusqlite::{Connection, Result, Statement, StatementStatus};

use crate::untrusted::passes_of_call;

/// Instructions of a program that sorts, or may run another one that does.
const SORTING: &[&str] = &["SorterOpen", "RowSetAdd", "RowSetTest", "SqlExec", "ParseSchema"];

/// Instructions that can each be a pass over a value, besides calls of functions.
const PASSING: &[&str] = &[
    "Add",
    "Affinity",
    "And",
    "BitAnd",
    "BitNot",
    "BitOr",
    "Cast",
    "Compare",
    "Concat",
    "Divide",
    "Eq",
    "Ge",
    "Gt",
    "If",
    "IfNot",
    "IsTrue",
    "Le",
    "Lt",
    "Multiply",
    "MustBeInt",
    "Ne",
    "Not",
    "Or",
    "Remainder",
    "ShiftLeft",
    "ShiftRight",
    "Subtract",
];

/// Instructions that call the function which their fourth operand names.
const CALLING: &[&str] =
    &["AggFinal", "AggInverse", "AggStep", "AggStep1", "AggValue", "Function", "PureFunc"];

/// Bytes of an instruction, at least.
const INSTRUCTION_BYTES: usize = 24;

/// In a program of so many instructions what the authorizer has counted is nearly all.
const FEW: usize = 500;

/// The most passes for an instruction. `EXPLAIN` does not tell how many arguments a call has;
/// `json_extract` makes two passes for each path, `max` and `min` one for each value, and each of
/// them is put into its place by an instruction.
const PASSES_OF_INSTRUCTION: u32 = 2;

/// In one of so many there is not much more, as long as nobody may ask: one that inserts a hundred
/// rows that are said has more instructions than that has passes.
const MANY: usize = 3_000;

/// What a program is known to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Whether it can sort.
    pub(crate) may_sort: bool,
    /// How often it can pass over a value, without its loops.
    pub(crate) passes: u32,
}

impl Program {
    /// One of which nothing is asked.
    pub(crate) const UNASKED: Program = Program { may_sort: true, passes: 0 };

    /// That of `sql`, one statement; `None` if SQLite does not tell.
    pub(crate) fn of(connection: &Connection, sql: &str) -> Option<Program> {
        Program::explained(connection, sql).ok()
    }

    fn explained(connection: &Connection, sql: &str) -> Result<Program> {
        let mut program = connection.prepare(&format!("EXPLAIN {sql}"))?;
        let mut instructions = program.raw_query();
        let mut found = Program { may_sort: false, passes: 0 };
        let mut number = 0_u32;
        while let Some(instruction) = instructions.next()? {
            let name = instruction.get_ref(1)?.as_str()?;
            found.may_sort |= is_sorting(name);
            let passes = if PASSING.contains(&name) {
                1
            } else if CALLING.contains(&name) {
                let called = instruction.get_ref(5)?.as_str().unwrap_or_default();
                passes_of_call(called.split('(').next().unwrap_or_default())
            } else {
                0
            };
            found.passes = found.passes.saturating_add(passes);
            number = number.saturating_add(1);
        }
        found.passes = found.passes.min(number.saturating_mul(PASSES_OF_INSTRUCTION));
        Ok(found)
    }
}

/// Whether the program of `statement`, whose text is `sql`, is so large that it has to be asked
/// how often it passes over a value.
pub(crate) fn is_large(statement: &Statement<'_>, sql: &str) -> bool {
    most_instructions(statement, sql) > FEW
}

/// How many passes over a value the program of `statement`, whose text is `sql`, can have for its
/// size, where it cannot be asked and the authorizer has `counted` so many.
pub(crate) fn most_passes(statement: &Statement<'_>, sql: &str, counted: u32) -> u32 {
    let most = most_instructions(statement, sql);
    let many = if most > MANY { u32::try_from(most).unwrap_or(u32::MAX) } else { 0 };
    let all = u32::try_from(bytes_of(statement) / INSTRUCTION_BYTES).unwrap_or(u32::MAX);
    counted.min(all.saturating_mul(PASSES_OF_INSTRUCTION)).max(many)
}

/// What a program has of literals is in its text, and in the copy of that.
fn most_instructions(statement: &Statement<'_>, sql: &str) -> usize {
    bytes_of(statement).saturating_sub(2 * sql.len()) / INSTRUCTION_BYTES
}

fn bytes_of(statement: &Statement<'_>) -> usize {
    if is_empty(statement) {
        return 0;
    }
    usize::try_from(statement.get_status(StatementStatus::MemUsed)).unwrap_or(0)
}

/// Whether there is no statement in the text of `statement`, of which nothing can be asked then.
pub(crate) fn is_empty(statement: &Statement<'_>) -> bool {
    statement.column_count() == 0 && statement.readonly() && statement.expanded_sql().is_none()
}

fn is_sorting(instruction: &str) -> bool {
    let is_virtual = instruction.starts_with('V') && instruction != "Variable";
    is_virtual || SORTING.contains(&instruction)
}

#[test]
fn what_can_sort_is_told_from_what_cannot() {
    let connection = Connection::open_in_memory().unwrap();
    let setup = "CREATE TABLE t(id INTEGER PRIMARY KEY, x, y UNIQUE);
                 CREATE TABLE u(x);
                 CREATE TABLE w(a, b, c);
                 CREATE INDEX wa ON w(a);
                 CREATE INDEX wb ON w(b);
                 CREATE TRIGGER sorts AFTER INSERT ON u BEGIN
                     INSERT INTO t(x) SELECT x FROM t ORDER BY x;
                 END;
                 CREATE VIEW v AS SELECT x FROM t ORDER BY x;
                 CREATE VIRTUAL TABLE f USING fts5(x);";
    connection.execute_batch(setup).unwrap();
    for (sql, expected) in [
        ("SELECT ?1", false),
        ("SELECT x FROM t WHERE id = 1", false),
        ("SELECT x FROM t ORDER BY id", false),
        ("SELECT x FROM t ORDER BY y", false),
        ("UPDATE t SET y = y + 1", false),
        ("UPDATE t SET x = 1 WHERE y = ?1 RETURNING id", false),
        ("DELETE FROM t WHERE x = 1", false),
        ("INSERT INTO t(x) VALUES (1) ON CONFLICT DO NOTHING", false),
        ("INSERT INTO t(x) SELECT x FROM u", false),
        ("INSERT INTO u VALUES (1)", true),
        ("SELECT x FROM t ORDER BY x", true),
        ("SELECT x FROM v", true),
        ("SELECT x, count(*) FROM t GROUP BY x", true),
        ("SELECT row_number() OVER (ORDER BY x) FROM t", true),
        ("SELECT (SELECT count(*) FROM u GROUP BY x) FROM t", true),
        ("SELECT (SELECT x FROM u ORDER BY x) FROM t", false),
        ("SELECT * FROM w WHERE a = 1 OR b = 2", true),
        ("CREATE INDEX i ON t(x)", true),
        ("ALTER TABLE t RENAME x TO z", true),
        ("SELECT * FROM f WHERE f MATCH 'a'", true),
        ("SELECT value FROM json_each('[1]')", true),
        ("no SQL", true),
    ] {
        let may_sort = Program::of(&connection, sql).is_none_or(|program| program.may_sort);
        assert_eq!(may_sort, expected, "{sql}");
    }
}

#[test]
fn passes_are_those_of_views_triggers_and_the_schema_too() {
    let connection = Connection::open_in_memory().unwrap();
    let cases =
        |from: &str| (0..50).map(|at| format!("WHEN {at} THEN 1 ")).collect::<String>() + from;
    let checks = (0..50).map(|at| format!(", CHECK (x + 0 <> {at})")).collect::<String>();
    let setup = format!(
        "CREATE TABLE t(x);
         CREATE VIEW v AS SELECT CASE x {} AS y FROM t;
         CREATE TABLE c(x{checks});
         CREATE TABLE u(x);
         CREATE TRIGGER r AFTER INSERT ON u BEGIN INSERT INTO c VALUES (NEW.x); END;",
        cases("END")
    );
    connection.execute_batch(&setup).unwrap();
    for (sql, least, most) in [
        ("SELECT x FROM t", 0, 2),
        ("SELECT y FROM v", 50, 60),
        ("SELECT y, y FROM v", 100, 110),
        ("INSERT INTO c VALUES (?1)", 100, 120),
        ("INSERT INTO u VALUES (?1)", 100, 120),
        ("INSERT INTO t VALUES (?1)", 0, 2),
        // No more than it has instructions to put arguments into their places, whatever a call of
        // such a function can be.
        ("SELECT abs(x), json_extract(x, '$.a'), max(x, 1) FROM t", 5, 40),
        ("SELECT max(x) FROM t", 2, 40),
        (&format!("SELECT json_extract(x{}) FROM t", ", '$.a'".repeat(99)), 198, 240),
    ] {
        let passes = Program::of(&connection, sql).unwrap().passes;
        assert!((least..=most).contains(&passes), "{sql}: {passes}");
    }
}

#[test]
fn the_size_of_a_program_tells_the_most_passes_it_has() {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch("CREATE TABLE t(x)").unwrap();
    let most = |sql: &str| most_passes(&connection.prepare(sql).unwrap(), sql, 0);
    let cases = (0..2_000).map(|at| format!("WHEN {at} THEN 1 ")).collect::<String>();
    let sql = format!("UPDATE t SET x = CASE x {cases} END");
    let passes = Program::of(&connection, &sql).unwrap().passes;
    assert!(passes >= 2_000 && most(&sql) >= passes, "{passes}, {}", most(&sql));
    // Rows that are said pass over nothing, and a literal is no instruction.
    let rows = vec!["(1)"; 200].join(",");
    assert_eq!(most(&format!("INSERT INTO t VALUES {rows}")), 0);
    let long = format!("UPDATE t SET x = '{}'", "a".repeat(500_000));
    for sql in ["", ";", "-- nothing", "PRAGMA user_version = 1", "SELECT 1", &long] {
        assert_eq!(most(sql), 0, "{sql:.20}");
    }
}

#[test]
fn a_text_without_a_statement_is_told_from_one_with_any() {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch("CREATE TABLE t(x)").unwrap();
    for (sql, expected) in [
        ("", true),
        (" ; ", true),
        ("/* nothing */", true),
        ("PRAGMA foreign_keys = ON", false),
        ("SELECT 1", false),
        ("INSERT INTO t VALUES (1)", false),
    ] {
        assert_eq!(is_empty(&connection.prepare(sql).unwrap()), expected, "{sql}");
    }
}
