//! Owns the productions of what fails: SQL that is wrong, constraints, limits of arithmetic, and
//! what the engine refuses.

use super::values::Domain;
use super::{Draft, Style, source_of};
use crate::checks::differential::excuses::REFUSED;
use crate::checks::differential::record::{How, Judged};

pub(super) const BROKEN: &[&str] = &[
    "SELEC 1",
    "SELECT * FROM missing",
    "SELECT nothing FROM t1",
    "SELECT a FROM t1 WHERE missing = 1",
    "SELECT t9.a FROM t1",
    "SELECT a FROM t1 GROUP BY",
    "SELECT (SELECT 1, 2)",
    "SELECT 1 UNION SELECT 1, 2",
    "SELECT unknown(1)",
    "SELECT abs(1, 2)",
    "SELECT max(count(*)) FROM t1",
    "SELECT 'open",
    "SELECT 1; SELECT 2",
    "INSERT INTO missing VALUES (1)",
    "INSERT INTO t1(missing) VALUES (1)",
    "INSERT INTO t2(a, b) VALUES (1)",
    "INSERT INTO t2 VALUES (1, 2, 3, 4, 5, 6, 7, 8, 9)",
    "UPDATE missing SET a = 1",
    "UPDATE t1 SET missing = 1",
    "UPDATE t2 SET (a, b) = (1)",
    "DELETE FROM missing",
    "DELETE FROM t1 WHERE",
    "DELETE FROM sqlite_schema",
    "DROP TABLE missing",
    "DROP INDEX missing",
    "DROP VIEW t1",
    "DROP TABLE sqlite_schema",
    "ALTER TABLE missing ADD COLUMN a",
    "ALTER TABLE t1 DROP COLUMN missing",
    "ALTER TABLE t1 DROP COLUMN id",
    "ALTER TABLE t1 RENAME TO t2",
    "ALTER TABLE t1 ADD COLUMN p PRIMARY KEY",
    "ALTER TABLE t1 ADD COLUMN u UNIQUE",
    "ALTER TABLE t1 ADD COLUMN n NOT NULL",
    "ALTER TABLE t2 ADD COLUMN a",
    "CREATE TABLE t1(a)",
    "CREATE TABLE t8(a, a)",
    "CREATE TABLE t8(a) WITHOUT ROWID",
    "CREATE TABLE t8(a NOTHING) STRICT",
    "CREATE TABLE sqlite_t(a)",
    "CREATE INDEX i8 ON missing(a)",
    "CREATE INDEX i8 ON t1(missing)",
    "CREATE UNIQUE INDEX i8 ON t1((a IS NULL))",
    "CREATE TRIGGER g8 AFTER INSERT ON missing BEGIN SELECT 1; END",
    "CREATE TRIGGER g8 INSTEAD OF INSERT ON t1 BEGIN SELECT 1; END",
    "CREATE VIRTUAL TABLE f8 USING missing(a)",
    "CREATE VIRTUAL TABLE f8 USING fts5(x, detail=bogus)",
    "CREATE VIRTUAL TABLE r8 USING rtree(id)",
    "REINDEX missing",
    "ANALYZE missing",
    "",
];
/// What fails when it is run.
pub(super) const AT_RUN_TIME: &[&str] = &[
    "SELECT abs(-9223372036854775807 - 1)",
    "SELECT sum(x) FROM (SELECT 9223372036854775807 AS x UNION ALL SELECT 1)",
    "SELECT json('{broken')",
    "SELECT json_extract('{}', '$$')",
    "SELECT * FROM json_each('[1,')",
    "SELECT zeroblob(3000000000)",
    "SELECT substr(1, 2, 3) LIKE 'a' ESCAPE 'bb'",
    "SELECT nth_value(1, 0) OVER () FROM t1",
    "SELECT ntile(0) OVER () FROM t1",
];

impl<'d> Draft<'d> {
    pub(super) fn failure(&mut self) {
        self.how = [How::Execute, How::All, How::Row][self.rng.usize(..3)];
        match self.rng.u8(..16) {
            0..6 => {
                let sql = self.pick(BROKEN);
                self.form(sql);
                self.put(sql);
            }
            6..8 => self.put_one(AT_RUN_TIME),
            8 | 9 => {
                let sql = self.pick(REFUSED);
                self.put(sql);
                self.form("refused");
                self.judged = Judged::Refused;
            }
            10 => self.wrong_parameters(),
            11 => self.wrong_call(),
            _ => self.violation(),
        }
    }

    /// More or fewer parameters than the statement has.
    fn wrong_parameters(&mut self) {
        self.style = Style::Numbered;
        self.form("wrong number of parameters");
        self.put("SELECT ");
        self.value(Domain::Small);
        self.put(", ");
        self.value(Domain::Text);
        self.surplus = if self.one_in(2) { 1 } else { -1 };
    }

    /// Right SQL by the wrong method.
    fn wrong_call(&mut self) {
        match self.rng.u8(..3) {
            0 => {
                self.form("execute of a query");
                self.look();
                self.how = How::Execute;
            }
            1 => {
                self.form("query_row of a change");
                self.change();
                self.how = How::Row;
            }
            _ => {
                self.form("query_one of several rows");
                self.put("SELECT a FROM t1");
                self.how = How::One;
            }
        }
    }

    /// A change that some constraint is likely to refuse.
    fn violation(&mut self) {
        self.how = How::Execute;
        let Some(table) = self.stored() else { return self.put("SELEC") };
        match self.rng.u8(..6) {
            0 | 1 => {
                self.form("the same key again");
                let names: Vec<_> =
                    table.settable().iter().map(|column| column.name.clone()).collect();
                let names = names.join(", ");
                let or = self.pick(&["", "OR FAIL ", "OR ABORT ", "OR ROLLBACK "]);
                self.put(&format!(
                    "INSERT {or}INTO {0}({names}) SELECT {names} FROM {0}",
                    table.name
                ));
                self.put(" LIMIT 2");
            }
            2 => {
                self.form("the same value for all");
                self.put(&format!("UPDATE {} SET ", table.name));
                self.assignment_to_all(table.settable().first().map(|it| it.name.clone()));
            }
            3 => {
                self.form("NULL for all");
                let names: Vec<_> = table.settable().iter().map(|_| "NULL").collect();
                self.put(&format!("INSERT INTO {} VALUES ({})", table.name, names.join(", ")));
            }
            4 => {
                self.form("the wrong type for all");
                let names: Vec<_> = table.settable().iter().map(|_| "'wrong'").collect();
                self.put(&format!("INSERT INTO {} VALUES ({})", table.name, names.join(", ")));
            }
            _ => {
                self.form("a rowid that is no integer");
                self.put(&format!("UPDATE {} SET ", table.name));
                self.scoped(vec![source_of(table)], |draft| {
                    let _ = draft.column();
                });
                // Not a large one: what an expression makes of it may become a rowid, beyond
                // which a random number decides.
                self.put(" = 0.5 + 0.25");
            }
        }
    }

    fn assignment_to_all(&mut self, column: Option<String>) {
        self.put(&column.unwrap_or_else(|| "nothing".into()));
        self.put(" = ");
        self.value(Domain::Small);
    }
}
