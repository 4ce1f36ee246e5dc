//! Owns what an error of a constraint tells about the schema: which kind of constraint, and what it
//! is on, read from SQLite's own sentence.
//!
//! # Format
//! SQLite has no other place for it than its text (version 3.54.1):
//!
//! | text | what is read |
//! |---|---|
//! | `UNIQUE constraint failed: t.a, t.b` | table, columns |
//! | `UNIQUE constraint failed: index 'name'` | the index, one on expressions |
//! | `NOT NULL constraint failed: t.a` | table, column |
//! | `CHECK constraint failed: name` | the name, or else the text of the expression |
//! | `cannot store TEXT value in INTEGER column t.a` | table, column |
//! | `FOREIGN KEY constraint failed` | nothing more |
//!
//! Names are in it as they are, without quotes. So a text is read only if it can be read in one
//! way: each column has one dot, and all have the same table.

use monolite_sqlite::rusqlite::ffi;

/// What kind of constraint refused a change.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// use monolite::ConstraintKind;
/// # let db = monolite::Database::open(":memory:")?;
/// # let sql = "CREATE TABLE item(stock INTEGER CHECK (stock >= 0))";
/// # db.write(move |tx| tx.execute_batch(sql)).wait()?;
/// let error = db.write(|tx| tx.execute("INSERT INTO item VALUES (-1)", ())).wait().unwrap_err();
/// let said = match error.constraint().map(|it| it.kind) {
///     Some(ConstraintKind::Unique) => "there is one already",
///     Some(ConstraintKind::Check) => "too few",
///     _ => "no",
/// };
/// assert_eq!(said, "too few");
/// # db.close()
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConstraintKind {
    /// `UNIQUE`, `PRIMARY KEY`, or a rowid that is there already.
    Unique,
    /// `REFERENCES`, at once or at the end of the transaction.
    ForeignKey,
    /// `CHECK`.
    Check,
    /// `NOT NULL`, also that of a `PRIMARY KEY`.
    NotNull,
    /// The type of a column in a `STRICT` table.
    Type,
    /// `RAISE` in a trigger.
    Trigger,
    /// One that is none of these, such as that of a virtual table.
    Other,
}

impl ConstraintKind {
    /// That of SQLite's extended result code; `None` when it tells of no constraint.
    fn of(extended_code: i32) -> Option<ConstraintKind> {
        if extended_code & 0xff != ffi::SQLITE_CONSTRAINT {
            return None;
        }
        Some(match extended_code {
            ffi::SQLITE_CONSTRAINT_UNIQUE
            | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
            | ffi::SQLITE_CONSTRAINT_ROWID => ConstraintKind::Unique,
            ffi::SQLITE_CONSTRAINT_FOREIGNKEY => ConstraintKind::ForeignKey,
            ffi::SQLITE_CONSTRAINT_CHECK => ConstraintKind::Check,
            ffi::SQLITE_CONSTRAINT_NOTNULL => ConstraintKind::NotNull,
            ffi::SQLITE_CONSTRAINT_DATATYPE => ConstraintKind::Type,
            ffi::SQLITE_CONSTRAINT_TRIGGER => ConstraintKind::Trigger,
            _ => ConstraintKind::Other,
        })
    }
}

/// Which constraint of the schema refused a change, see
/// [`Error::constraint`](crate::Error::constraint).
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// # db.write(|tx| tx.execute_batch("CREATE TABLE item(name TEXT NOT NULL)")).wait()?;
/// let error = db.write(|tx| tx.execute("INSERT INTO item VALUES (NULL)", ())).wait().unwrap_err();
/// let constraint = error.constraint().expect("it is one");
/// assert_eq!(constraint.kind, monolite::ConstraintKind::NotNull);
/// assert_eq!((constraint.table, &constraint.columns[..]), (Some("item"), &["name"][..]));
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Constraint<'e> {
    /// What kind of constraint it is.
    pub kind: ConstraintKind,
    /// The table that it is on, where SQLite tells: of [`ConstraintKind::Unique`] except an index
    /// on expressions, [`ConstraintKind::NotNull`] and [`ConstraintKind::Type`]. `None`, too, when
    /// a name in it has a dot, or a comma and a space, by which SQLite's text can be read in more
    /// than one way.
    pub table: Option<&'e str>,
    /// Its columns, in their order; empty where there is no `table`. Of a constraint on several,
    /// all are named, whichever of them was changed.
    pub columns: Vec<&'e str>,
    /// The name of a `CHECK`, or the text of its expression when it has none; the name of a unique
    /// index on expressions; what a trigger has said.
    pub name: Option<&'e str>,
}

impl<'e> Constraint<'e> {
    /// That of which SQLite said `text` with `extended_code`.
    pub(super) fn of(extended_code: i32, text: &'e str) -> Option<Constraint<'e>> {
        let kind = ConstraintKind::of(extended_code)?;
        let behind = |start: &str| text.strip_prefix(start);
        let (mut name, mut on) = (None, None);
        match kind {
            ConstraintKind::Unique => {
                let what = behind("UNIQUE constraint failed: ");
                let index = what.and_then(|it| it.strip_prefix("index '")?.strip_suffix('\''));
                (name, on) = (index, what.filter(|_| index.is_none()));
            }
            ConstraintKind::NotNull => on = behind("NOT NULL constraint failed: "),
            ConstraintKind::Check => name = behind("CHECK constraint failed: "),
            ConstraintKind::Type => on = text.split_once(" column ").map(|(_, column)| column),
            ConstraintKind::Trigger => name = Some(text),
            ConstraintKind::ForeignKey | ConstraintKind::Other => {}
        }
        let (table, columns) = on.and_then(columns).unzip();
        Some(Constraint { kind, table, columns: columns.unwrap_or_default(), name })
    }
}

/// The table and the columns of `t.a, t.b`, if it can be read in one way.
fn columns(list: &str) -> Option<(&str, Vec<&str>)> {
    let mut of_table = None;
    let mut names = Vec::new();
    for item in list.split(", ") {
        let (table, column) = item.split_once('.')?;
        if column.contains('.') || *of_table.get_or_insert(table) != table {
            return None;
        }
        names.push(column);
    }
    Some((of_table?, names))
}

#[cfg(test)]
mod tests {
    use monolite_sqlite::rusqlite;

    use super::*;
    use crate::error::{Error, ErrorKind};

    /// What SQLite says to `sql` behind `schema`.
    fn refused(schema: &str, sql: &str) -> Error {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch(schema).unwrap();
        Error::from(connection.execute_batch(sql).unwrap_err())
    }

    /// Schema and rows, what is refused then, and what is told of it.
    const REFUSED: &[(&str, &str, &str)] = &[
        (
            "CREATE TABLE t(a, b, UNIQUE (b, a)); INSERT INTO t VALUES (1, 2)",
            "INSERT INTO t VALUES (1, 2)",
            r#"Unique Some("t") ["b", "a"] None"#,
        ),
        (
            "CREATE TABLE t(id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1)",
            "INSERT INTO t VALUES (1)",
            r#"Unique Some("t") ["id"] None"#,
        ),
        (
            "CREATE TABLE \"t u\"(k PRIMARY KEY) WITHOUT ROWID; INSERT INTO \"t u\" VALUES (1)",
            "INSERT INTO \"t u\" VALUES (1)",
            r#"Unique Some("t u") ["k"] None"#,
        ),
        (
            "CREATE TABLE t(a); CREATE UNIQUE INDEX low ON t(lower(a)); INSERT INTO t VALUES ('a')",
            "INSERT INTO t VALUES ('A')",
            r#"Unique None [] Some("low")"#,
        ),
        (
            "CREATE TABLE t(a NOT NULL)",
            "INSERT INTO t VALUES (NULL)",
            r#"NotNull Some("t") ["a"] None"#,
        ),
        (
            "CREATE TABLE t(a, CONSTRAINT positive CHECK (a > 0))",
            "INSERT INTO t VALUES (-1)",
            r#"Check None [] Some("positive")"#,
        ),
        (
            "CREATE TABLE t(a CHECK (a > 0))",
            "INSERT INTO t VALUES (-1)",
            r#"Check None [] Some("a > 0")"#,
        ),
        (
            "CREATE TABLE t(a INTEGER) STRICT",
            "INSERT INTO t VALUES ('x')",
            r#"Type Some("t") ["a"] None"#,
        ),
        (
            "CREATE TABLE t(a); CREATE TRIGGER no BEFORE INSERT ON t \
             BEGIN SELECT RAISE(ABORT, 'closed'); END",
            "INSERT INTO t VALUES (1)",
            r#"Trigger None [] Some("closed")"#,
        ),
        (
            "PRAGMA foreign_keys = ON; CREATE TABLE p(id INTEGER PRIMARY KEY); \
             CREATE TABLE c(p REFERENCES p)",
            "INSERT INTO c VALUES (1)",
            "ForeignKey None [] None",
        ),
    ];

    #[test]
    fn each_kind_is_told_with_what_it_is_on() {
        for (schema, sql, expected) in REFUSED {
            let error = refused(schema, sql);
            assert_eq!(error.kind(), ErrorKind::Constraint, "{sql}");
            let Constraint { kind, table, columns, name } = error.constraint().unwrap();
            let told = format!("{kind:?} {table:?} {columns:?} {name:?}");
            assert_eq!(told, *expected, "{schema}: {error}");
            let is = |wanted| kind == wanted;
            assert_eq!(error.is_unique_violation(), is(ConstraintKind::Unique), "{sql}");
            assert_eq!(error.is_foreign_key_violation(), is(ConstraintKind::ForeignKey), "{sql}");
            assert_eq!(error.is_check_violation(), is(ConstraintKind::Check), "{sql}");
            assert_eq!(error.is_not_null_violation(), is(ConstraintKind::NotNull), "{sql}");
        }
    }

    #[test]
    fn a_text_that_can_be_read_in_two_ways_is_not_read() {
        for name in ["\"a.b\"", "\"a, b\"", "\"a, u.b\""] {
            let schema = format!("CREATE TABLE t({name} UNIQUE); INSERT INTO t VALUES (1)");
            let error = refused(&schema, "INSERT INTO t VALUES (1)");
            let constraint = error.constraint().unwrap();
            assert_eq!(constraint.kind, ConstraintKind::Unique, "{error}");
            assert_eq!((constraint.table, constraint.columns), (None, vec![]), "{error}");
        }
    }

    #[test]
    fn other_errors_are_none_of_a_constraint() {
        let error = refused("", "SELECT nothing");
        assert_eq!(error.constraint(), None);
        assert!(!error.is_unique_violation());
        assert_eq!(Error::aborted("UNIQUE constraint failed: t.a").constraint(), None);
    }
}
