//! Owns the productions in which a random number or the time decides: rowids beyond the largest,
//! `random()`, `datetime('now')`. They keep to tables of their own, in which each row has a mark by
//! which it is found, so that plain SQLite can be given the value that the engine has drawn.

use super::values::Domain;
use super::{Draft, Style};
use crate::checks::differential::record::{How, Judged, RandomValue};
use crate::checks::differential::schema::Kind;

const VALUES: &[&str] = &[
    "random()",
    "hex(randomblob(4))",
    "datetime('now')",
    "julianday('now')",
    "CURRENT_TIMESTAMP",
    "strftime('%f', 'now')",
    "unixepoch('subsec')",
];

impl<'d> Draft<'d> {
    pub(super) fn random(&mut self) {
        self.style = Style::Numbered;
        let tables = self.schema.of_kind(Kind::RandomValue);
        if tables.is_empty() || self.one_in(12) {
            return self.random_alone();
        }
        let table = self.pick(&tables).name.clone();
        let key = if table == "c1" { "id" } else { "rowid" };
        match self.rng.u8(..12) {
            0..5 if table == "c3" => self.drawn_value(&table),
            0..4 => self.drawn_rowid(&table, key),
            4 => {
                self.form("the largest rowid is taken");
                self.put(&format!("INSERT INTO {table}({key}, mark) VALUES ("));
                self.put_one(&["9223372036854775807", "9223372036854775806"]);
                self.put(", ");
                self.own(Domain::NewMark);
                self.put(")");
            }
            5..8 => {
                self.form("look for a mark");
                self.query_returns_rows();
                self.put(&format!("SELECT {key}, mark FROM {table} WHERE mark = "));
                self.own(Domain::OldMark);
            }
            8 => {
                self.form("look at all marks");
                self.query_returns_rows();
                self.put(&format!("SELECT max({key}), count(*), max(mark) FROM {table}"));
            }
            9 => {
                self.form("look at the smallest rowids");
                self.query_returns_rows();
                self.put(&format!("SELECT {key}, * FROM {table} ORDER BY {key} LIMIT 3"));
            }
            _ => {
                self.form("ask for the rowid");
                self.how = How::LastInsertRowid;
                self.judged = Judged::Figures;
            }
        }
    }

    /// RandomValue that is only told.
    fn random_alone(&mut self) {
        self.form("random numbers in a query");
        self.how = How::All;
        self.judged = Judged::Success;
        self.put("SELECT ");
        self.put_one(VALUES);
    }

    /// As `value`, always a parameter.
    fn own(&mut self, domain: Domain) {
        self.domains.push(domain);
        self.parameter(self.domains.len());
    }

    fn drawn_rowid(&mut self, table: &str, key: &str) {
        self.form("a rowid is drawn");
        let (columns, before, behind) = match self.rng.u8(..3) {
            0 => ("mark", "", ""),
            1 if key == "id" => ("id, mark", "NULL, ", ""),
            _ => ("mark, v", "", ", 5"),
        };
        self.put(&format!("INSERT INTO {table}({columns}) VALUES ({before}"));
        self.own(Domain::NewMark);
        self.put(&format!("{behind})"));
        let columns = columns.trim_start_matches("id, ");
        let with_value = format!("INSERT INTO {table}({key}, {columns}) VALUES (?2, ?1{behind})");
        let only_when = format!("SELECT max({key}) = 9223372036854775807 FROM {table}");
        self.drawn(table, key, with_value, Some(only_when));
    }

    /// In a table where no random number decides about a rowid.
    fn drawn_value(&mut self, table: &str) {
        self.form("a value is drawn");
        let is_default = self.one_in(3);
        let value = self.pick(VALUES);
        let column = if is_default { "d" } else { "v" };
        if is_default {
            self.form("a time by default");
            self.put(&format!("INSERT INTO {table}(mark) VALUES ("));
            self.own(Domain::NewMark);
            self.put(")");
        } else {
            self.put(&format!("INSERT INTO {table}(mark, d, v) VALUES ("));
            self.own(Domain::NewMark);
            self.put(", 0, ");
            self.put_form(value);
            self.put(")");
        }
        let with_value = if is_default {
            format!("INSERT INTO {table}(mark, d) VALUES (?1, ?2)")
        } else {
            format!("INSERT INTO {table}(mark, d, v) VALUES (?1, 0, ?2)")
        };
        self.drawn(table, column, with_value, None);
    }

    /// Notes how plain SQLite is given the value of `column`, which is returned now and then.
    fn drawn(
        &mut self,
        table: &str,
        column: &str,
        mut with_value: String,
        only_when: Option<String>,
    ) {
        if self.one_in(2) {
            self.form("what was drawn is returned");
            let returning = format!(" RETURNING {column}");
            self.put(&returning);
            with_value.push_str(&returning);
            self.query_returns_rows();
        }
        let look = format!("SELECT {column} FROM {table} WHERE mark = ?1");
        self.random = Some(Box::new(RandomValue { only_when, look, with_value }));
    }
}
