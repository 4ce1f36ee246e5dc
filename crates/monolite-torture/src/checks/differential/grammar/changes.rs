//! Owns the productions of changes: `INSERT`, `UPDATE` and `DELETE` with all their clauses.

use super::values::Domain;
use super::{Draft, Source, source_of};
use crate::checks::differential::schema::{Column, Index, Kind, Table};

const CONFLICTS: &[&str] = &["OR ABORT ", "OR FAIL ", "OR IGNORE ", "OR REPLACE ", "OR ROLLBACK "];
/// Above so many rows a table is more often emptied than filled.
const MANY_ROWS: u64 = 50;

impl<'d> Draft<'d> {
    /// A change of rows.
    pub(super) fn change(&mut self) {
        let Some(table) = self.target() else { return self.definition() };
        if table.rows > MANY_ROWS && self.one_in(2) {
            return self.thin_out(table);
        }
        if self.one_in(14) {
            self.leading_common_table();
        }
        match self.rng.u8(..60) {
            0..26 => self.insert(table),
            26 if table.rows < MANY_ROWS => self.fill(table),
            27..44 => self.update(table),
            44 => self.turn(table),
            45..49 => self.count_up(table),
            _ => self.delete(table),
        }
    }

    /// A table, or now and then a view, which takes a trigger or fails.
    fn target(&mut self) -> Option<&'d Table> {
        let views = self.schema.of_kind(Kind::View);
        if !views.is_empty() && self.one_in(10) { Some(self.pick(&views)) } else { self.stored() }
    }

    fn leading_common_table(&mut self) {
        self.form("WITH before a change");
        self.put("WITH w0(x) AS (");
        self.subquery(1);
        self.put(") ");
    }

    fn conflict_clause(&mut self) {
        if self.one_in(6) {
            // One that ends the whole transaction is rarer.
            let list = if self.one_in(4) { CONFLICTS } else { &CONFLICTS[..4] };
            self.put_one(list);
        }
    }

    fn insert(&mut self, table: &Table) {
        if self.one_in(12) {
            self.put_form("REPLACE ");
        } else {
            self.put_form("INSERT ");
            self.conflict_clause();
        }
        self.put(&format!("INTO {}", table.name));
        if self.one_in(16) {
            self.put_form(" DEFAULT VALUES");
            return self.returning(table);
        }
        let settable: Vec<Column> = table.settable().into_iter().cloned().collect();
        let columns = self.listed_columns(&settable);
        let has_query = self.one_in(8);
        if has_query {
            self.insert_source(table, &columns);
        } else {
            self.put_form(" VALUES ");
            let rows = if self.one_in(5) { self.rng.usize(2..4) } else { 1 };
            self.listed(rows, |draft| draft.row(&columns));
        }
        if self.one_in(6) && table.is_stored() {
            self.upsert(table);
        }
        self.returning(table);
    }

    /// Names all columns, or some, or none.
    fn listed_columns(&mut self, settable: &[Column]) -> Vec<Column> {
        let mut columns = settable.to_vec();
        match self.rng.u8(..4) {
            0 => return columns,
            1 if columns.len() > 1 => {
                self.rng.shuffle(&mut columns);
                let some = self.rng.usize(1..columns.len());
                columns.truncate(some);
                self.form("INSERT of some columns");
            }
            2 => columns.retain(|column| !column.is_key || !column.type_name.contains("INT")),
            _ => {}
        }
        if !columns.is_empty() {
            self.form("INSERT of columns");
            let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
            self.put(&format!("({})", names.join(", ")));
            return columns;
        }
        settable.to_vec()
    }

    fn row(&mut self, columns: &[Column]) {
        self.put("(");
        for (at, column) in columns.iter().enumerate() {
            self.put(if at == 0 { "" } else { ", " });
            self.suitable(column);
        }
        self.put(")");
    }

    /// A value that a column takes.
    fn suitable(&mut self, column: &Column) {
        if column.is_key && column.type_name.contains("INT") {
            match self.rng.u8(..8) {
                0 => self.put("NULL"),
                _ => self.value(Domain::Key),
            }
        } else if self.one_in(14) {
            self.scoped(Vec::new(), Self::expression);
        } else {
            let domain = Domain::of(&column.type_name, self.rng);
            self.value(domain);
        }
    }

    fn insert_source(&mut self, table: &Table, columns: &[Column]) {
        self.form("INSERT SELECT");
        let from = self.readable().unwrap_or(table);
        self.put(" SELECT ");
        self.scoped(vec![source_of(from)], |draft| {
            draft.listed(columns.len(), |draft| match draft.rng.u8(..4) {
                0 => draft.value(Domain::Small),
                1 => draft.put("NULL"),
                _ => {
                    let _ = draft.column();
                }
            });
            draft.put(&format!(" FROM {} WHERE ", from.name));
            draft.comparison();
        });
        self.put(" LIMIT 3");
        // The grammar would take the ON of an upsert for that of a join.
    }

    fn upsert(&mut self, table: &Table) {
        let unique: Vec<&Index> = self
            .schema
            .indexes
            .iter()
            .filter(|index| index.table == table.name && index.is_unique && !index.is_partial)
            .filter(|index| !index.columns.is_empty())
            .collect();
        let clauses = if self.one_in(4) { 2 } else { 1 };
        for number in 0..clauses {
            self.put_form(" ON CONFLICT ");
            let key = table.columns.iter().find(|column| column.is_key);
            match (key, unique.is_empty()) {
                (_, false) if self.rng.bool() => {
                    let columns = self.pick(&unique).columns.join(", ");
                    self.put(&format!("({columns}) "));
                }
                (Some(key), _) => self.put(&format!("({}) ", key.name)),
                _ => {}
            }
            if number + 1 < clauses {
                self.form("several upsert clauses");
            }
            if self.one_in(2) {
                self.put_form("DO NOTHING");
            } else {
                self.put_form("DO UPDATE SET ");
                self.assignments(table, true);
                if self.one_in(3) {
                    self.form("DO UPDATE WHERE");
                    self.put(" WHERE ");
                    let excluded = Source { alias: "excluded".into(), ..source_of(table) };
                    self.scoped(vec![source_of(table), excluded], Self::comparison);
                }
            }
        }
    }

    /// `a = 1, b = b + 1`, with the row that was refused in an upsert.
    fn assignments(&mut self, table: &Table, is_upsert: bool) {
        let settable = table.settable();
        if settable.is_empty() {
            return self.put("nothing = 1");
        }
        let count = self.rng.usize(1..3);
        let scope = vec![source_of(table)];
        self.listed(count, |draft| {
            let column = draft.pick(&settable).clone();
            if draft.one_in(12) {
                draft.form("SET (a, b) =");
                draft.put(&format!("({0}, {1}) = (", column.name, settable[0].name));
                draft.value(Domain::Small);
                draft.put(", ");
                draft.value(Domain::Small);
                return draft.put(")");
            }
            draft.put(&format!("{} = ", column.name));
            match draft.rng.u8(..6) {
                0 if is_upsert => {
                    draft.form("excluded.");
                    draft.put(&format!("excluded.{}", column.name));
                }
                0 | 1 => draft.put(&format!("{}.{} + 1", table.name, column.name)),
                2 => draft.scoped(scope.clone(), Self::expression),
                _ => draft.suitable(&column),
            }
        });
    }

    fn returning(&mut self, table: &Table) {
        if !self.one_in(4) {
            return;
        }
        self.put_form(" RETURNING ");
        match self.rng.u8(..4) {
            0 => self.put("*"),
            1 if table.kind == Kind::Rows => self.put("rowid"),
            _ => {
                self.scoped(vec![source_of(table)], |draft| {
                    let _ = draft.column();
                    draft.put(", ");
                    draft.leaf();
                });
            }
        }
        self.change_returns_rows();
    }

    fn update(&mut self, table: &Table) {
        self.put_form("UPDATE ");
        self.conflict_clause();
        self.put(&table.name);
        self.hint(table);
        self.put(" SET ");
        self.assignments(table, false);
        let mut scope = vec![source_of(table)];
        if self.one_in(8)
            && let Some(from) = self.readable()
            && from.name != table.name
        {
            self.put_form(" FROM ");
            self.form("UPDATE FROM");
            self.put(&format!("{} AS u", from.name));
            scope.push(Source { alias: "u".into(), ..source_of(from) });
            self.put(" WHERE ");
            self.scoped(vec![scope[0].clone()], |draft| {
                draft.put(&format!("{}.", table.name));
                draft.bare_column();
            });
            self.put(" = u.");
            self.scoped(vec![scope[1].clone()], Self::bare_column);
            self.put(" AND ");
        } else {
            self.put(" WHERE ");
        }
        self.scoped(
            scope,
            |draft| {
                if draft.one_in(3) { draft.condition() } else { draft.comparison() }
            },
        );
        self.returning(table);
    }

    fn bare_column(&mut self) {
        let columns = &self.scope[0].columns;
        if !columns.is_empty() {
            let name = columns[self.rng.usize(..columns.len())].name.clone();
            self.put(&name);
        }
    }

    fn delete(&mut self, table: &Table) {
        self.put_form("DELETE FROM ");
        self.put(&table.name);
        self.hint(table);
        if self.one_in(14) {
            self.form("DELETE of all rows");
            return self.returning(table);
        }
        self.put(" WHERE ");
        self.scoped(vec![source_of(table)], |draft| {
            draft.comparison();
            if draft.one_in(2) {
                draft.put(" AND ");
                draft.condition();
            }
        });
        self.returning(table);
    }

    /// Most rows go, so that no table grows for ever.
    fn thin_out(&mut self, table: &Table) {
        self.form("thin out");
        self.put(&format!("DELETE FROM {} WHERE ", table.name));
        self.scoped(vec![source_of(table)], |draft| {
            let _ = draft.column();
        });
        self.put(" IS NOT ");
        self.value(Domain::Small);
    }

    /// Some dozen rows at once, each column with a distribution of its own.
    pub(super) fn fill(&mut self, table: &Table) {
        let settable = table.settable();
        let columns: Vec<_> = settable
            .iter()
            .filter(|column| !column.is_key || !column.type_name.contains("INT"))
            .collect();
        if columns.is_empty() {
            return self.insert(table);
        }
        self.form("fill");
        let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
        self.put(&format!("INSERT OR IGNORE INTO {}({})", table.name, names.join(", ")));
        self.put(" WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ");
        self.value(Domain::Many);
        self.put(") SELECT ");
        let kinds: Vec<bool> = columns.iter().map(|column| column.is_text()).collect();
        for (at, is_text) in kinds.into_iter().enumerate() {
            self.put(if at == 0 { "" } else { ", " });
            self.distribution("i", is_text);
        }
        self.put(" FROM n");
    }

    /// One value for all, few values, or a value for each.
    fn distribution(&mut self, number: &str, is_text: bool) {
        let text = match self.rng.u8(..6) {
            0 => "1".to_owned(),
            1 => number.to_owned(),
            2 => format!("-{number}"),
            3 => format!("{number} % 2"),
            4 => format!("{number} / 9"),
            _ => format!("{number} % 7"),
        };
        if is_text { self.put(&format!("'k' || ({text})")) } else { self.put(&text) }
    }

    /// The distributions of some columns change.
    pub(super) fn turn(&mut self, table: &Table) {
        let settable = table.settable();
        let columns: Vec<_> =
            settable.iter().filter(|column| !column.is_key).map(|it| (*it).clone()).collect();
        if table.kind != Kind::Rows || columns.is_empty() {
            return self.update(table);
        }
        self.form("turn");
        self.put(&format!("UPDATE OR IGNORE {} SET ", table.name));
        for (at, column) in columns.iter().enumerate().take(3) {
            self.put(if at == 0 { "" } else { ", " });
            self.put(&format!("{} = ", column.name));
            self.distribution("rowid", column.is_text());
        }
    }

    /// A change that answers the same whatever the value is.
    fn count_up(&mut self, table: &Table) {
        let settable = table.settable();
        if settable.is_empty() {
            return self.delete(table);
        }
        let column = self.pick(&settable).name.clone();
        self.form("count up");
        self.put(&format!("UPDATE {} SET {column} = {column} + 1 WHERE ", table.name));
        self.scoped(vec![source_of(table)], Self::comparison);
    }
}
