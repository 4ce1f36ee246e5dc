//! Owns the statements in which a random number or the time decides: rowids beyond the largest,
//! `random()`, `datetime('now')`. They keep to tables of their own, in which each row has a mark by
//! which it is found, so that plain SQLite can be given the value that the engine has drawn.

use super::{Draft, Style};
use crate::checks::differential::record::{How, Judged, RandomValue};
use crate::checks::differential::schema::Kind;
use crate::checks::grammar::Writer as _;

impl Draft<'_> {
    pub(super) fn random(&mut self) {
        self.style = Style::Numbered;
        let is_there = self.take(|table| table.kind == Kind::RandomValue);
        if !is_there || self.pen.one_in(12) {
            (self.how, self.judged) = (How::All, Judged::Success);
            self.pen.put("SELECT ");
            return self.rule("random_value");
        }
        let table = self.table.name.as_str();
        match self.pen.rng.u8(..12) {
            0..5 if table == "c3" => self.drawn_value(table),
            0..4 => self.drawn_rowid(table, if table == "c1" { "id" } else { "rowid" }),
            4 => self.rule("largest_taken"),
            _ => self.rule("marks"),
        }
    }

    fn drawn_rowid(&mut self, table: &str, key: &str) {
        let (columns, before, behind) = match self.pen.rng.u8(..3) {
            0 => ("mark", "", ""),
            1 if key == "id" => ("id, mark", "NULL, ", ""),
            _ => ("mark, v", "", ", 5"),
        };
        self.pen.put(&format!("INSERT INTO {table}({columns}) VALUES ({before}"));
        self.word("own new_mark");
        self.pen.put(&format!("{behind})"));
        let columns = columns.trim_start_matches("id, ");
        let with_value = format!("INSERT INTO {table}({key}, {columns}) VALUES (?2, ?1{behind})");
        let only_when = format!("SELECT max({key}) = 9223372036854775807 FROM {table}");
        self.drawn(table, key, with_value, Some(only_when));
    }

    /// In a table where no random number decides about a rowid.
    fn drawn_value(&mut self, table: &str) {
        let is_default = self.pen.one_in(3);
        let column = if is_default { "d" } else { "v" };
        let columns = if is_default { "mark" } else { "mark, d, v" };
        self.pen.put(&format!("INSERT INTO {table}({columns}) VALUES ("));
        self.word("own new_mark");
        if !is_default {
            self.pen.put(", 0, ");
            self.rule("random_value");
        }
        self.pen.put(")");
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
        if self.pen.one_in(2) {
            let returning = format!(" RETURNING {column}");
            self.pen.put(&returning);
            with_value.push_str(&returning);
            self.word("as_rows");
        }
        let look = format!("SELECT {column} FROM {table} WHERE mark = ?1");
        self.random = Some(Box::new(RandomValue { only_when, look, with_value }));
    }
}
