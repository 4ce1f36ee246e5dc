//! Owns the productions of `CREATE TABLE`, and the tables that a history begins with.

use fastrand::Rng;

use super::expressions::COLLATIONS;
use super::values::Domain;
use super::{Draft, Style, Template};
use crate::checks::differential::record::How;
use crate::checks::differential::schema::{Kind, Schema, Table};

const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
const TYPES: &[&str] =
    &["INT", "INTEGER", "TEXT", "REAL", "BLOB", "NUMERIC", "VARCHAR(9)", "ANY", ""];
const STRICT_TYPES: &[&str] = &["INT", "INTEGER", "TEXT", "REAL", "BLOB", "ANY"];
const ON_CONFLICT: &[&str] = &[
    " ON CONFLICT ABORT",
    " ON CONFLICT FAIL",
    " ON CONFLICT IGNORE",
    " ON CONFLICT REPLACE",
    " ON CONFLICT ROLLBACK",
];
const ACTIONS: &[&str] = &["CASCADE", "SET NULL", "SET DEFAULT", "RESTRICT", "NO ACTION"];
const DEFERRED: &[&str] = &[
    " DEFERRABLE INITIALLY DEFERRED",
    " DEFERRABLE INITIALLY IMMEDIATE",
    " NOT DEFERRABLE",
    "",
    "",
];
/// The most tables there are at a time, so that statements meet in the same ones.
const MAX_TABLES: usize = 5;

/// How the rows of a new table are found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Integer,
    Autoincrement,
    /// A key that is no rowid.
    Other,
    /// Of two columns, at the end of the definition.
    Two,
    None,
}

impl<'d> Draft<'d> {
    pub(super) fn create_table(&mut self) {
        let stored = self.schema.tables.iter().filter(|table| table.is_stored()).count();
        let name = self.name('t', 6);
        let is_there = self.schema.table(&name).is_some();
        if stored >= MAX_TABLES && !is_there {
            return self.drop_object();
        }
        self.put_form("CREATE TABLE ");
        if is_there || self.one_in(6) {
            self.put_form("IF NOT EXISTS ");
        }
        self.put(&name);
        if self.one_in(8) {
            return self.create_table_as();
        }
        self.literally(|draft| draft.table_body(&name));
    }

    fn create_table_as(&mut self) {
        self.form("CREATE TABLE AS");
        self.put(" AS ");
        let Some(table) = self.readable() else { return self.put("SELECT 1 AS a, 2 AS b") };
        let names: Vec<_> = table.columns.iter().map(|it| it.name.as_str()).take(3).collect();
        self.put(&format!("SELECT {} FROM {} LIMIT 9", names.join(", "), table.name));
    }

    fn table_body(&mut self, name: &str) {
        let is_strict = self.one_in(4);
        let is_keyed = self.one_in(5);
        let key = match self.rng.u8(..8) {
            0 if !is_keyed => Key::Autoincrement,
            1 => Key::Other,
            2 => Key::Two,
            3 if !is_keyed => Key::None,
            _ => Key::Integer,
        };
        self.put("(");
        if matches!(key, Key::Integer | Key::Autoincrement) {
            self.form("INTEGER PRIMARY KEY");
            self.put("id INTEGER PRIMARY KEY");
            match key {
                Key::Autoincrement => self.put_form(" AUTOINCREMENT"),
                _ if self.one_in(12) => self.put_form(" DESC"),
                _ => {}
            }
            self.put(", ");
        }
        let count = self.rng.usize(2..5);
        for (at, name) in NAMES.into_iter().enumerate().take(count) {
            self.put(if at == 0 { "" } else { ", " });
            self.table_column(name, is_strict, key == Key::Other && at == 0);
        }
        if self.one_in(7) {
            self.generated_column(is_strict);
        }
        if key == Key::Two {
            self.put_form(", PRIMARY KEY (a, b");
            self.put_one(&["", " DESC", " COLLATE NOCASE"]);
            self.put(")");
            self.on_conflict();
        }
        self.table_constraint(name);
        self.put(")");
        match (is_strict, is_keyed) {
            (true, true) => self.put_form(" STRICT, WITHOUT ROWID"),
            (true, false) => self.put_form(" STRICT"),
            (false, true) => self.put_form(" WITHOUT ROWID"),
            _ => {}
        }
    }

    /// A column's type and constraints, as `ALTER TABLE` takes them, too.
    pub(super) fn table_column(&mut self, name: &str, is_strict: bool, is_key: bool) {
        let type_name = if is_strict {
            self.pick(STRICT_TYPES)
        } else if self.one_in(2) {
            self.pick(&["INT", "TEXT"])
        } else {
            self.pick(TYPES)
        };
        self.put(name);
        self.put(if type_name.is_empty() { "" } else { " " });
        self.put_form(type_name);
        if is_key {
            self.put_form(" PRIMARY KEY");
            self.on_conflict();
        }
        let domain = Domain::of(type_name, self.rng);
        if self.one_in(8) {
            self.put_form(" NOT NULL");
            self.on_conflict();
            if self.one_in(2) {
                self.put_form(" DEFAULT ");
                self.put(if type_name == "TEXT" { "'n'" } else { "0" });
            }
        } else if self.one_in(8) {
            self.put_form(" DEFAULT (");
            self.value(domain);
            self.put(" || 'd')");
        }
        if self.one_in(12) {
            self.put_form(" UNIQUE");
            self.on_conflict();
        }
        if self.one_in(12) {
            self.put_one(&[" CHECK (", " CONSTRAINT named CHECK ("]);
            self.put(&format!("{name} IS NOT "));
            self.value(Domain::Small);
            self.put(")");
        }
        if self.one_in(12) {
            self.put_form(" COLLATE ");
            self.put_one(COLLATIONS);
        }
        if self.one_in(14) {
            self.references();
        }
    }

    fn on_conflict(&mut self) {
        if self.one_in(4) {
            let list = if self.one_in(4) { ON_CONFLICT } else { &ON_CONFLICT[..4] };
            self.put_one(list);
        }
    }

    fn references(&mut self) {
        let with_key = |table: &&Table| table.columns.iter().any(|column| column.is_key);
        let parents: Vec<&Table> =
            self.schema.of_kind(Kind::Rows).into_iter().filter(with_key).collect();
        if parents.is_empty() {
            return;
        }
        let parent = self.pick(&parents);
        let key = parent.columns.iter().find(|column| column.is_key);
        self.put_form(" REFERENCES ");
        self.put(&parent.name);
        if let Some(key) = key {
            self.put(&format!("({})", key.name));
        }
        for event in [" ON DELETE ", " ON UPDATE "] {
            if self.one_in(2) {
                self.put_form(event);
                self.put_one(ACTIONS);
            }
        }
        self.put_one(DEFERRED);
    }

    fn generated_column(&mut self, is_strict: bool) {
        self.put(if is_strict { ", z ANY" } else { ", z" });
        self.put_one(&[" GENERATED ALWAYS AS (", " AS ("]);
        self.put_one(&["a || b", "coalesce(a, b)", "typeof(a)", "length(b)"]);
        self.put_one(&[") STORED", ") VIRTUAL", ")"]);
    }

    fn table_constraint(&mut self, name: &str) {
        match self.rng.u8(..12) {
            0 => {
                self.put_form(", UNIQUE (a, b)");
                self.on_conflict();
            }
            1 => {
                self.put_one(&[", CHECK (", ", CONSTRAINT whole CHECK ("]);
                self.put("a IS NOT b OR a IS NULL)");
            }
            2 => {
                self.form("FOREIGN KEY to itself or another");
                self.put(", FOREIGN KEY (b)");
                if self.one_in(2) {
                    self.references();
                    if self.sql.ends_with(')') && !self.sql.contains("REFERENCES") {
                        self.put(&format!(" REFERENCES {name}"));
                    }
                } else {
                    self.put(&format!(" REFERENCES {name}"));
                    self.put_one(DEFERRED);
                }
            }
            _ => {}
        }
    }
}

/// What a history begins with: ordinary tables, those that are left to a random number, and some
/// rows.
pub(super) fn first_tables(rng: &mut Rng, is_wide: bool) -> Vec<Template> {
    let mut sqls: Vec<String> = Vec::new();
    let tail = if rng.u8(..6) == 0 { " STRICT" } else { "" };
    if is_wide {
        sqls.push(format!(
            "CREATE TABLE t1(id INTEGER PRIMARY KEY, a INT, b INT, c INT, d INT, e TEXT){tail}"
        ));
        sqls.push("CREATE INDEX i1 ON t1(a, c)".into());
        sqls.push("CREATE INDEX i2 ON t1(b, d)".into());
        let rows = rng.u32(20..32);
        let numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <";
        sqls.push(format!(
            "INSERT INTO t1(a, b, c, d) {numbers} {rows}) SELECT 1, i % 20, i, -i FROM n"
        ));
        sqls.push("ANALYZE".into());
    } else {
        sqls.push(format!("CREATE TABLE t1(id INTEGER PRIMARY KEY, a INT, b TEXT, c INT){tail}"));
        sqls.push("INSERT INTO t1 VALUES (1, 1, 'a', 0), (2, 2, 'b', 0), (3, 3, NULL, 5)".into());
    }
    sqls.push(
        ["CREATE TABLE t2(a, b, c)", "CREATE TABLE t2(a INT, b INT, c TEXT)"][rng.usize(..2)]
            .into(),
    );
    sqls.push("INSERT INTO t2 VALUES (1, 10, 'x'), (2, 20, 'y'), (3, 30, 'z')".into());
    if rng.u8(..3) == 0 {
        sqls.push("CREATE TABLE c1(id INTEGER PRIMARY KEY, mark TEXT UNIQUE, v)".into());
        sqls.push("CREATE TABLE c2(mark TEXT UNIQUE, v)".into());
        sqls.push("CREATE TABLE c3(mark TEXT UNIQUE, v, d DEFAULT CURRENT_TIMESTAMP)".into());
    }
    let schema = Schema::default();
    let plain = |sql: String| {
        let draft = Draft::new(rng, &schema, Style::Literal);
        Template { sql, how: How::Execute, ..draft.finish() }
    };
    sqls.into_iter().map(plain).collect()
}
