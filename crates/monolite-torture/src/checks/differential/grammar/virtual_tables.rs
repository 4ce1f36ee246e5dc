//! Owns the productions of virtual tables: full-text search (FTS5) and R-trees.

use super::Draft;
use super::values::{Domain, WORDS};
use crate::checks::differential::schema::{Kind, Table};

impl<'d> Draft<'d> {
    pub(super) fn virtual_table(&mut self) {
        let kinds: Vec<_> = [Kind::Text, Kind::Boxes]
            .into_iter()
            .flat_map(|kind| self.schema.of_kind(kind))
            .collect();
        if kinds.is_empty() || self.one_in(20) {
            return self.create_virtual_table();
        }
        let table = self.pick(&kinds);
        if self.one_in(40) {
            self.put_form("DROP TABLE ");
            return self.put(&table.name);
        }
        match table.kind {
            Kind::Text => self.search(table),
            _ => self.boxes(table),
        }
    }

    fn create_virtual_table(&mut self) {
        self.put_form("CREATE VIRTUAL TABLE ");
        if self.one_in(4) {
            self.put_form("IF NOT EXISTS ");
        }
        if self.one_in(2) {
            let name = self.name('f', 2);
            self.put(&name);
            self.form("fts5");
            self.put(" USING fts5(x, y");
            self.put_one(&[
                "",
                "",
                ", prefix='2'",
                ", detail=none",
                ", detail=column",
                ", columnsize=0",
                ", tokenize='porter unicode61'",
                ", tokenize='trigram'",
                ", detail=bogus",
                ", content=''",
            ]);
        } else {
            let name = self.name('r', 2);
            self.put(&name);
            self.put(" USING ");
            self.put_one(&["rtree(", "rtree_i32("]);
            self.put_one(&["id, x0, x1", "id, x0, x1, y0, y1", "id, x0, x1, +note", "id, x0"]);
        }
        self.put(")");
    }

    fn search(&mut self, table: &Table) {
        let name = table.name.clone();
        match self.rng.u8(..16) {
            0..5 => {
                self.form("fts5 INSERT");
                self.put(&format!("INSERT INTO {name}(x, y) VALUES ("));
                self.words();
                self.put(", ");
                self.words();
                self.put(")");
            }
            5..10 => self.matching(&name),
            10 => {
                self.form("fts5 UPDATE");
                self.put(&format!("UPDATE {name} SET x = "));
                self.words();
                self.put(" WHERE rowid = ");
                self.value(Domain::Key);
            }
            11 => {
                self.form("fts5 DELETE");
                self.put(&format!("DELETE FROM {name} WHERE rowid = "));
                self.value(Domain::Key);
            }
            12 => {
                self.form("fts5 command");
                let command = self.pick(&["optimize", "rebuild", "integrity-check", "delete-all"]);
                self.put(&format!("INSERT INTO {name}({name}) VALUES ('{command}')"));
            }
            13 => {
                self.form("fts5 setting");
                let setting = self.pick(&["merge", "automerge", "pgsz", "crisismerge"]);
                self.put(&format!("INSERT INTO {name}({name}, rank) VALUES ('{setting}', 64)"));
            }
            _ => {
                self.form("fts5 rows");
                self.query_returns_rows();
                self.put(&format!("SELECT rowid, * FROM {name} ORDER BY rowid"));
            }
        }
    }

    fn words(&mut self) {
        let (one, two) = (self.pick(&WORDS), self.pick(&WORDS));
        self.put(&format!("'{one} {two}'"));
    }

    fn matching(&mut self, name: &str) {
        self.query_returns_rows();
        self.form("fts5 MATCH");
        self.put("SELECT rowid, ");
        let what =
            self.pick(&["x", "highlight(@, 0, '[', ']')", "snippet(@, 1, '<', '>', '…', 2)"]);
        self.put(&what.replace('@', name));
        self.put(&format!(" FROM {name} WHERE "));
        self.put_one(&["x MATCH ", "y MATCH ", "f MATCH "]);
        if self.sql.ends_with("f MATCH ") {
            self.sql.truncate(self.sql.len() - "f MATCH ".len());
            self.put(&format!("{name} MATCH "));
        }
        self.value(Domain::Match);
        self.put_one(&[" ORDER BY rowid", " ORDER BY rank, rowid", " ORDER BY bm25(f)", ""]);
        if self.sql.ends_with("bm25(f)") {
            self.sql.truncate(self.sql.len() - "f)".len());
            self.put(&format!("{name}), rowid"));
        }
        self.put(" LIMIT 5");
    }

    fn boxes(&mut self, table: &Table) {
        let name = table.name.clone();
        let coordinates: Vec<String> =
            table.columns.iter().skip(1).map(|column| column.name.clone()).collect();
        match self.rng.u8(..10) {
            0..4 => {
                self.form("rtree INSERT");
                let or = self.pick(&["", "", "OR REPLACE ", "OR IGNORE "]);
                self.put(&format!("INSERT {or}INTO {name} VALUES ("));
                if self.one_in(3) {
                    self.put("NULL")
                } else {
                    self.value(Domain::Key)
                }
                for (at, column) in coordinates.iter().enumerate() {
                    self.put(", ");
                    let number = self.rng.i32(..20);
                    // The upper one is less now and then, which is refused.
                    let number =
                        if at % 2 == 1 && self.rng.u8(..8) > 0 { number + 20 } else { number };
                    match column.as_str() {
                        "note" => self.value(Domain::Text),
                        _ => self.put(&number.to_string()),
                    }
                }
                self.put(")");
            }
            4..7 => {
                self.query_returns_rows();
                self.form("rtree range");
                self.put(&format!("SELECT * FROM {name} WHERE x0 <= "));
                self.value(Domain::Place);
                self.put(" AND x1 >= ");
                self.value(Domain::Place);
                self.put(" ORDER BY id");
            }
            7 => {
                self.form("rtree UPDATE");
                self.put(&format!("UPDATE {name} SET x1 = x1 + 1 WHERE id = "));
                self.value(Domain::Key);
            }
            8 => {
                self.form("rtree DELETE");
                self.put(&format!("DELETE FROM {name} WHERE id = "));
                self.value(Domain::Key);
            }
            _ => {
                self.query_returns_rows();
                self.form("rtreecheck");
                self.put(&format!("SELECT rtreecheck('{name}')"));
            }
        }
    }
}
