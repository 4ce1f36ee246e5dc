//! Owns the productions of the schema's other statements: indexes, views, triggers, `ALTER` and
//! `DROP`.

use super::values::Domain;
use super::{Draft, Source, source_of};
use crate::checks::differential::schema::{Column, Kind, Table};

const MAX_INDEXES: usize = 8;
const MAX_TRIGGERS: usize = 3;
const COLUMN_NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "h"];

impl<'d> Draft<'d> {
    /// A statement that changes the schema.
    pub(super) fn definition(&mut self) {
        match self.rng.u8(..24) {
            0..3 => self.create_table(),
            3..9 => self.create_index(),
            9..11 => self.create_view(),
            11..14 => self.create_trigger(),
            14..20 => self.alter(),
            20 => self.reindex(),
            _ => self.drop_object(),
        }
    }

    fn create_index(&mut self) {
        let Some(table) = self.stored() else { return self.create_table() };
        let name = self.name('i', 9);
        let is_there = self.schema.indexes.iter().any(|index| index.name == name);
        if self.schema.indexes.len() >= MAX_INDEXES && !is_there {
            return self.drop_object();
        }
        self.put_one(&["CREATE INDEX ", "CREATE INDEX ", "CREATE UNIQUE INDEX "]);
        if is_there || self.one_in(6) {
            self.put_form("IF NOT EXISTS ");
        }
        self.put(&format!("{name} ON {}(", table.name));
        let count = self.rng.usize(1..4);
        self.scoped(vec![unnamed(table)], |draft| {
            draft.literally(|draft| {
                draft.listed(count, Self::index_term);
                draft.put(")");
                if draft.one_in(6) {
                    draft.put_form(" WHERE ");
                    draft.comparison();
                }
            });
        });
    }

    fn index_term(&mut self) {
        if self.one_in(8) {
            self.schema_expression();
        } else {
            let _ = self.column();
        }
        if self.one_in(10) {
            self.put_one(&[" COLLATE NOCASE", " COLLATE RTRIM"]);
        }
        if self.one_in(6) {
            self.put_one(&[" DESC", " ASC"]);
        }
    }

    /// An expression that an index may be made of.
    fn schema_expression(&mut self) {
        self.form("expression in an index");
        match self.rng.u8(..4) {
            0 => {
                let _ = self.column();
                self.put(" + 1");
            }
            1 => self.function_of_column("lower("),
            2 => self.function_of_column("length("),
            _ => self.function_of_column("coalesce(0, "),
        }
    }

    fn function_of_column(&mut self, function: &str) {
        self.put(function);
        let _ = self.column();
        self.put(")");
    }

    fn create_view(&mut self) {
        let name = self.name('v', 3);
        let is_there = self.schema.table(&name).is_some();
        self.put_form("CREATE VIEW ");
        if is_there || self.one_in(6) {
            self.put_form("IF NOT EXISTS ");
        }
        self.put(&name);
        self.literally(|draft| match draft.rng.u8(..4) {
            0 => {
                draft.form("CREATE VIEW (columns)");
                draft.put("(a, b) AS ");
                draft.subquery(2);
            }
            1 => {
                draft.put(" AS ");
                draft.compound();
            }
            2 => {
                draft.put(" AS ");
                draft.select();
            }
            _ => match draft.stored() {
                Some(table) => draft.put(&format!(" AS SELECT * FROM {}", table.name)),
                None => draft.put(" AS SELECT 1 AS a, 2 AS b"),
            },
        });
    }

    fn create_trigger(&mut self) {
        if self.schema.triggers.len() >= MAX_TRIGGERS {
            return self.drop_object();
        }
        let views = self.schema.of_kind(Kind::View);
        let view = if views.is_empty() || self.one_in(2) { None } else { Some(self.pick(&views)) };
        let Some(table) = view.or_else(|| self.stored()) else { return self.create_table() };
        self.put_form("CREATE TRIGGER ");
        if self.one_in(6) {
            self.put_form("IF NOT EXISTS ");
        }
        let name = self.name('g', 4);
        self.put(&name);
        if table.kind == Kind::View {
            self.put_form(" INSTEAD OF ");
        } else {
            self.put_one(&[" BEFORE ", " AFTER ", " "]);
        }
        let event = self.pick(&["INSERT", "UPDATE", "DELETE", "UPDATE OF"]);
        self.put_form(event);
        if event == "UPDATE OF" {
            self.put(" ");
            self.scoped(vec![unnamed(table)], |draft| {
                let _ = draft.column();
            });
        }
        self.put(&format!(" ON {}", table.name));
        if self.one_in(3) {
            self.put_form(" FOR EACH ROW");
        }
        let row = |alias: &str| Source { alias: alias.into(), columns: table.columns.clone() };
        let rows = match event {
            "INSERT" => vec![row("NEW")],
            "DELETE" => vec![row("OLD")],
            _ => vec![row("NEW"), row("OLD")],
        };
        self.literally(|draft| draft.trigger_body(table, &rows));
    }

    fn trigger_body(&mut self, table: &Table, rows: &[Source]) {
        if self.one_in(3) {
            self.put_form(" WHEN ");
            self.row_column(rows);
            self.put(" IS NOT ");
            self.value(Domain::Small);
        }
        self.put(" BEGIN ");
        for _ in 0..self.rng.usize(1..3) {
            match self.rng.u8(..8) {
                0 => {
                    self.put_form("SELECT RAISE(");
                    self.put_one(&["ABORT, 'no'", "FAIL, 'no'", "IGNORE", "ROLLBACK, 'no'"]);
                    self.put(") WHERE ");
                    self.row_column(rows);
                    self.put(" = ");
                    self.value(Domain::Small);
                }
                1..3 => self.trigger_update(table, rows),
                3 => self.trigger_delete(rows),
                _ => self.trigger_insert(rows),
            }
            self.put("; ");
        }
        self.put("END");
    }

    fn row_column(&mut self, rows: &[Source]) {
        let row = rows[self.rng.usize(..rows.len())].clone();
        self.put(&format!("{}.", row.alias));
        let columns = &row.columns;
        let name = columns.get(self.rng.usize(..columns.len().max(1)));
        self.put(name.map_or("rowid", |column| column.name.as_str()));
    }

    fn trigger_insert(&mut self, rows: &[Source]) {
        let Some(target) = self.stored() else { return self.put("SELECT 1") };
        self.form("trigger INSERT");
        let settable = target.settable();
        let columns: Vec<&Column> = settable
            .iter()
            .copied()
            .filter(|column| !column.type_name.contains("INTEGER"))
            .collect();
        if columns.is_empty() {
            return self.put("SELECT 1");
        }
        let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
        let or = self.pick(&["", "OR IGNORE ", "OR REPLACE "]);
        self.put(&format!("INSERT {or}INTO {}({}) VALUES (", target.name, names.join(", ")));
        self.listed(columns.len(), |draft| match draft.rng.u8(..12) {
            0 => draft.put_form("changes()"),
            1..6 => draft.value(Domain::Small),
            _ => draft.row_column(rows),
        });
        self.put(")");
    }

    fn trigger_update(&mut self, table: &Table, rows: &[Source]) {
        let Some(target) = self.stored().filter(|target| target.name != table.name) else {
            return self.put("SELECT 1");
        };
        self.form("trigger UPDATE");
        let settable = target.settable();
        if settable.is_empty() {
            return self.put("SELECT 1");
        }
        let column = self.pick(&settable).name.clone();
        self.put(&format!("UPDATE {} SET {column} = ", target.name));
        self.row_column(rows);
        self.put(" WHERE ");
        self.scoped(vec![unnamed(target)], Self::comparison);
    }

    fn trigger_delete(&mut self, rows: &[Source]) {
        let Some(target) = self.stored() else { return self.put("SELECT 1") };
        self.form("trigger DELETE");
        self.put(&format!("DELETE FROM {} WHERE ", target.name));
        self.scoped(vec![unnamed(target)], |draft| {
            let _ = draft.column();
        });
        self.put(" = ");
        self.row_column(rows);
    }

    fn alter(&mut self) {
        let Some(table) = self.stored() else { return self.create_table() };
        self.put_form("ALTER TABLE ");
        self.put(&table.name);
        let columns: Vec<_> = table.columns.iter().filter(|column| !column.is_key).collect();
        match self.rng.u8(..16) {
            0..7 => {
                self.put_one(&[" ADD COLUMN ", " ADD "]);
                let name = self.unused_column(table);
                let is_strict = self.one_in(4);
                self.literally(|draft| draft.table_column(&name, is_strict, false));
            }
            7..10 if columns.len() > 2 => {
                self.put_form(" DROP COLUMN ");
                let name = self.pick(&columns).name.clone();
                self.put(&name);
            }
            10..13 if !columns.is_empty() => {
                self.put_one(&[" RENAME COLUMN ", " RENAME "]);
                let name = self.pick(&columns).name.clone();
                let other = self.unused_column(table);
                self.put(&format!("{name} TO {other}"));
            }
            13 => {
                self.put_form(" RENAME TO ");
                let name = self.name('t', 6);
                self.put(&name);
            }
            14 => {
                self.form("ADD COLUMN AS");
                self.put(" ADD COLUMN z AS (");
                self.scoped(vec![unnamed(table)], |draft| {
                    let _ = draft.column();
                });
                self.put(" || 'z')");
            }
            _ => {
                self.form("ADD COLUMN CHECK of rows");
                let name = self.unused_column(table);
                self.put(&format!(" ADD COLUMN {name} INT CHECK ("));
                self.scoped(vec![unnamed(table)], |draft| {
                    draft.literally(Self::comparison);
                });
                self.put(")");
            }
        }
    }

    /// A name that the table does not have yet, mostly.
    fn unused_column(&mut self, table: &Table) -> String {
        let is_free = |name: &&&str| !table.columns.iter().any(|column| column.name == ***name);
        let free: Vec<_> = COLUMN_NAMES.iter().filter(is_free).collect();
        if free.is_empty() || self.one_in(12) {
            return self.pick(&COLUMN_NAMES).to_owned();
        }
        (*self.pick(&free)).to_owned()
    }

    fn reindex(&mut self) {
        self.put_form("REINDEX");
        match self.rng.u8(..4) {
            0 => {}
            1 => self.put(" NOCASE"),
            2 => {
                let name = self.name('i', 9);
                self.put(&format!(" {name}"));
            }
            _ => {
                if let Some(table) = self.stored() {
                    self.put(&format!(" {}", table.name));
                }
            }
        }
    }

    /// Drops something that is there, mostly.
    pub(super) fn drop_object(&mut self) {
        let views: Vec<String> =
            self.schema.of_kind(Kind::View).iter().map(|view| view.name.clone()).collect();
        let indexes = self.schema.indexes.iter().filter(|it| !it.name.starts_with("sqlite_"));
        let indexes: Vec<String> = indexes.map(|index| index.name.clone()).collect();
        let triggers = self.schema.triggers.clone();
        let stored = self.schema.tables.iter().filter(|table| table.is_stored());
        let tables: Vec<String> = stored.map(|table| table.name.clone()).collect();
        let (form, names, kind) = match self.rng.u8(..8) {
            0..3 => ("DROP INDEX ", indexes, 'i'),
            3 | 4 => ("DROP TRIGGER ", triggers, 'g'),
            5 => ("DROP VIEW ", views, 'v'),
            _ if tables.len() < 3 => ("DROP INDEX ", indexes, 'i'),
            _ => ("DROP TABLE ", tables, 't'),
        };
        self.put_form(form);
        if names.is_empty() || self.one_in(10) {
            self.put_form("IF EXISTS ");
            let name = self.name(kind, 4);
            return self.put(&name);
        }
        let name = names[self.rng.usize(..names.len())].clone();
        self.put(&name);
    }
}

/// The columns of a table, which the schema's own expressions name without it.
fn unnamed(table: &Table) -> Source {
    source_of(table)
}
