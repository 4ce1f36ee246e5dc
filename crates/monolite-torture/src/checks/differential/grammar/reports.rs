//! Owns the productions that tell about the database: pragmas, plans, figures, and `ANALYZE`.

use super::values::Domain;
use super::{Draft, source_of};
use crate::checks::differential::record::{How, Judged};

const OF_A_TABLE: &[&str] = &[
    "PRAGMA table_info(@)",
    "PRAGMA table_xinfo(@)",
    "PRAGMA index_list(@)",
    "PRAGMA foreign_key_list(@)",
    "PRAGMA foreign_key_check(@)",
    "SELECT * FROM pragma_table_info('@')",
    "SELECT name, type, hidden FROM pragma_table_xinfo('@')",
    "SELECT * FROM pragma_index_list('@')",
    "SELECT l.name, i.* FROM pragma_index_list('@') AS l, pragma_index_info(l.name) AS i",
    "SELECT l.name, i.* FROM pragma_index_list('@') AS l, pragma_index_xinfo(l.name) AS i",
    "SELECT * FROM pragma_foreign_key_list('@')",
    "SELECT type, name, sql FROM sqlite_schema WHERE tbl_name = '@' ORDER BY name",
];
const OF_THE_DATABASE: &[&str] = &[
    "PRAGMA user_version",
    "PRAGMA application_id",
    "PRAGMA integrity_check",
    "PRAGMA quick_check",
    "PRAGMA foreign_key_check",
    "PRAGMA encoding",
    "PRAGMA foreign_keys",
    "PRAGMA collation_list",
    "SELECT name, type, wr, strict FROM pragma_table_list WHERE schema = 'main' \
     AND name NOT LIKE 'monolite!_%' ESCAPE '!' AND name <> 'sqlite_schema' ORDER BY name",
    "SELECT name, sql FROM sqlite_schema WHERE type = 'index' \
     AND tbl_name NOT LIKE 'monolite!_%' ESCAPE '!' ORDER BY name",
    "SELECT name FROM sqlite_schema WHERE type IN ('trigger', 'view') ORDER BY name",
];
const CHANGING: &[&str] = &[
    "PRAGMA defer_foreign_keys = ON",
    "PRAGMA user_version = 1",
    "PRAGMA user_version = 2",
    "PRAGMA user_version = 70000",
    "PRAGMA application_id = 5",
    "PRAGMA application_id = 6",
];

impl<'d> Draft<'d> {
    pub(super) fn report(&mut self) {
        self.how = if self.one_in(2) { How::All } else { How::Cached };
        match self.rng.u8(..16) {
            0..6 => {
                let sql = self.pick(OF_A_TABLE);
                self.form(sql);
                let table = self.stored().map_or("t1", |table| table.name.as_str());
                self.put(&sql.replace('@', table));
            }
            6..8 => self.put_one(OF_THE_DATABASE),
            8 => self.put_one(CHANGING),
            9..13 => self.plan(),
            13 => {
                self.form("EXPLAIN");
                self.put("EXPLAIN ");
                self.judged = Judged::Success;
                let how = self.how;
                self.some_statement();
                self.how = how;
            }
            _ => self.figure(),
        }
    }

    fn plan(&mut self) {
        self.form("EXPLAIN QUERY PLAN");
        self.put("EXPLAIN QUERY PLAN ");
        let how = self.how;
        self.some_statement();
        self.how = how;
    }

    fn some_statement(&mut self) {
        match self.rng.u8(..4) {
            0 => self.change(),
            _ => self.query_statement(),
        }
    }

    fn figure(&mut self) {
        self.judged = Judged::Figures;
        match self.rng.u8(..5) {
            0 => self.put_form("SELECT changes()"),
            1 => self.put_form("SELECT last_insert_rowid()"),
            2 => {
                self.put_form("SELECT total_changes()");
                self.judged = Judged::Connection;
            }
            3 => {
                self.put_form("PRAGMA data_version");
                self.judged = Judged::Connection;
            }
            _ => {
                self.form("last_insert_rowid by its method");
                self.how = How::LastInsertRowid;
            }
        }
    }

    pub(super) fn analyze(&mut self) {
        self.put_form("ANALYZE");
        match self.rng.u8(..6) {
            0 => {
                if let Some(table) = self.stored() {
                    self.form("ANALYZE of a table");
                    self.put(&format!(" {}", table.name));
                }
            }
            1 if !self.schema.indexes.is_empty() => {
                self.form("ANALYZE of an index");
                let index = &self.schema.indexes[self.rng.usize(..self.schema.indexes.len())];
                self.put(&format!(" \"{}\"", index.name));
            }
            2 => self.put_form(" main"),
            _ => {}
        }
    }

    /// A look at what a table holds, for those who want to have seen something.
    pub(super) fn look(&mut self) {
        let Some(table) = self.stored() else { return self.put("SELECT 1") };
        self.query_returns_rows();
        self.scope = vec![source_of(table)];
        self.put(&format!("SELECT * FROM {} WHERE ", table.name));
        let _ = self.column();
        self.put(" = ");
        self.value(Domain::Small);
    }
}
