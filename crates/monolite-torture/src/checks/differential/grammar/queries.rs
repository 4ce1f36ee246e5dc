//! Owns the productions of queries: joins, compound selects, common table expressions, aggregates,
//! windows, and those whose plan decides the answer.

use super::values::Domain;
use super::{Draft, Source, source_of};
use crate::checks::differential::schema::{Column, Index, Table};

/// Of a table with more, few rows are asked for.
const FEW_ROWS: u64 = 8;

const JOINS: &[&str] = &[
    " JOIN ",
    " LEFT JOIN ",
    " RIGHT JOIN ",
    " FULL JOIN ",
    " INNER JOIN ",
    " CROSS JOIN ",
    " NATURAL JOIN ",
    " NATURAL LEFT JOIN ",
    ", ",
];
const COMPOUNDS: &[&str] = &[" UNION ", " UNION ALL ", " INTERSECT ", " EXCEPT "];
const AGGREGATES: &[&str] = &[
    "count(",
    "sum(",
    "total(",
    "avg(",
    "min(",
    "max(",
    "group_concat(",
    "json_group_array(",
    "string_agg(",
];
const WINDOWS: &[&str] = &[
    "row_number(",
    "rank(",
    "dense_rank(",
    "percent_rank(",
    "cume_dist(",
    "ntile(",
    "lag(",
    "lead(",
    "first_value(",
    "last_value(",
    "nth_value(",
    "sum(",
    "count(",
    "group_concat(",
];
const FRAMES: &[&str] = &[
    " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
    " ROWS UNBOUNDED PRECEDING",
    " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    " RANGE BETWEEN 2 PRECEDING AND 2 FOLLOWING",
    " GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW",
    " GROUPS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE TIES",
    " ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING EXCLUDE GROUP",
];

impl<'d> Draft<'d> {
    /// A query by itself.
    pub(super) fn query_statement(&mut self) {
        self.query_returns_rows();
        match self.rng.u8(..40) {
            0..19 => self.point_query(),
            19..21 => self.whole_table(),
            21..24 => self.select(),
            24..26 => self.aggregate_query(),
            26 => self.window_query(),
            27 => self.compound(),
            28 => self.common_tables(),
            29 => self.rarer_query(),
            30..36 => self.by_rowid(),
            _ => self.counts(),
        }
    }

    fn rarer_query(&mut self) {
        match self.rng.u8(..4) {
            0 => self.recursive(),
            1 => self.json_table(),
            2 => {
                self.put_form("VALUES (");
                self.value(Domain::Any);
                self.put(", ");
                self.expression();
                self.put(")");
            }
            _ => {
                self.form("SELECT without FROM");
                self.put("SELECT ");
                self.listed(2, Self::expression);
            }
        }
    }

    /// A row, or some, by what an index may know.
    fn point_query(&mut self) {
        let Some(table) = self.readable() else { return self.put("SELECT 1") };
        self.put_form("SELECT ");
        self.scope = vec![source_of(table)];
        self.result_columns();
        self.put(&format!(" FROM {}", table.name));
        self.hint(table);
        self.put_form(" WHERE ");
        self.comparison();
        if self.one_in(2) {
            self.put(" AND ");
            self.comparison();
        }
        self.order_and_limit(2);
    }

    fn whole_table(&mut self) {
        let Some(table) = self.readable() else { return self.put("SELECT 1") };
        self.scope = vec![source_of(table)];
        self.put_form("SELECT *");
        self.put(&format!(" FROM {}", table.name));
        self.order_and_limit(if table.rows > FEW_ROWS { 1 } else { 2 });
    }

    fn by_rowid(&mut self) {
        let Some(table) = self.stored() else { return self.put("SELECT 1") };
        self.put_form("SELECT rowid");
        self.put(&format!(", * FROM {} WHERE ", table.name));
        self.put_one(&["rowid = ", "_rowid_ > ", "oid < "]);
        self.value(Domain::Key);
        self.scope = vec![source_of(table)];
        self.order_and_limit(3);
    }

    fn counts(&mut self) {
        let Some(table) = self.readable() else { return self.put("SELECT 1") };
        self.scope = vec![source_of(table)];
        self.put_form("SELECT count(*)");
        self.put(", max(");
        let _ = self.column();
        self.put(&format!(") FROM {}", table.name));
        if self.one_in(2) {
            self.put(" WHERE ");
            self.comparison();
        }
    }

    /// Everything that a `SELECT` may have.
    pub(super) fn select(&mut self) {
        self.put("SELECT ");
        if self.one_in(4) {
            self.put_one(&["DISTINCT ", "ALL "]);
        }
        let at = self.sql.len();
        self.from();
        self.insert_at(at, Self::result_columns);
        if self.one_in(2) {
            self.put_form(" WHERE ");
            self.condition();
        }
        self.order_and_limit(1);
    }

    /// Writes at an earlier place; parameters that count themselves would come out of order.
    fn insert_at(&mut self, at: usize, write: impl FnOnce(&mut Self)) {
        let rest = self.sql.split_off(at);
        self.literally(write);
        self.put(&rest);
    }

    fn result_columns(&mut self) {
        if self.scope.is_empty() || self.one_in(5) {
            return self.put_form("*");
        }
        let count = self.rng.usize(1..4);
        self.listed(count, |draft| match draft.rng.u8(..8) {
            0 => {
                let at = draft.rng.usize(..draft.scope.len());
                let alias = draft.scope[at].alias.clone();
                draft.form("table.*");
                draft.put(&alias);
                draft.put(".*");
            }
            1..5 => {
                let _ = draft.column();
            }
            5 => {
                draft.leaf();
                draft.put_form(" AS ");
                let name = draft.rng.u8(b'x'..=b'z') as char;
                draft.put(&name.to_string());
            }
            _ => draft.expression(),
        });
    }

    /// `FROM` with up to three sources, which are in scope then.
    fn from(&mut self) {
        let Some(first) = self.readable() else { return };
        self.put_form(" FROM ");
        self.source(first, 0);
        for number in 1..=[0, 0, 0, 1, 1, 1, 1, 2][self.rng.usize(..8)] {
            let Some(next) = self.readable() else { return };
            self.joined(next, number);
        }
    }

    fn source(&mut self, table: &Table, number: usize) {
        let alias = format!("s{number}");
        if self.one_in(6) {
            self.form("FROM (SELECT");
            self.put(&format!("(SELECT * FROM {} WHERE ", table.name));
            self.scoped(vec![source_of(table)], Self::comparison);
            self.put(&format!(") AS {alias}"));
        } else {
            self.put(&format!("{} AS {alias}", table.name));
            self.hint(table);
        }
        self.scope.push(Source { alias, columns: table.columns.clone() });
    }

    fn joined(&mut self, table: &Table, number: usize) {
        let join = self.pick(JOINS);
        self.put_form(join);
        self.source(table, number);
        if join.contains("NATURAL") || join == ", " {
            return;
        }
        let left = self.rng.usize(..number);
        let shared = shared_column(&self.scope[left], &self.scope[number]);
        match shared {
            Some(column) if self.one_in(4) => self.put_join_using(&column),
            _ => {
                self.put_form(" ON ");
                let sides = [number, left].map(|at| self.scope[at].clone());
                let [right, left] = sides;
                self.scoped(vec![right], |draft| {
                    draft.qualified();
                });
                self.put(" = ");
                self.scoped(vec![left], |draft| {
                    draft.qualified();
                });
            }
        }
    }

    fn put_join_using(&mut self, column: &str) {
        self.put_form(" USING (");
        self.put(column);
        self.put(")");
    }

    /// A column of the one source in scope, with its name before it.
    fn qualified(&mut self) {
        let Source { alias, columns } = self.scope[0].clone();
        let column = &columns[self.rng.usize(..columns.len())];
        self.put(&format!("{alias}.{}", column.name));
    }

    /// `INDEXED BY`, `NOT INDEXED`, or mostly nothing.
    pub(super) fn hint(&mut self, table: &Table) {
        if !table.is_stored() || !self.one_in(12) {
            return;
        }
        let indexes: Vec<&Index> =
            self.schema.indexes.iter().filter(|index| index.table == table.name).collect();
        match self.rng.usize(..3) {
            0 => self.put_form(" NOT INDEXED"),
            _ if indexes.is_empty() => {}
            _ => {
                let name = self.pick(&indexes).name.clone();
                self.put_form(" INDEXED BY ");
                self.put(&format!("\"{name}\""));
            }
        }
    }

    /// `ORDER BY` and `LIMIT`, each one time in so many; one that may be large always gets a limit.
    fn order_and_limit(&mut self, many: u32) {
        if self.one_in(2) {
            self.put_form(" ORDER BY ");
            let count = self.rng.usize(1..3);
            self.listed(count, |draft| {
                if draft.column().is_none() {
                    draft.put("1");
                }
                if draft.one_in(8) {
                    draft.put_form(" COLLATE NOCASE");
                }
                if draft.one_in(3) {
                    draft.put_one(&[" DESC", " ASC", " NULLS LAST", " DESC NULLS FIRST"]);
                }
            });
        }
        if self.scope.len() > 1 || self.one_in(many) {
            self.limit();
        }
    }

    fn limit(&mut self) {
        self.put_form(" LIMIT ");
        self.value(Domain::Count);
        if self.one_in(4) {
            self.put_form(" OFFSET ");
            self.value(Domain::Small);
        }
    }

    fn aggregate_query(&mut self) {
        let Some(table) = self.readable() else { return self.put("SELECT 1") };
        self.scope = vec![source_of(table)];
        self.put("SELECT ");
        let has_groups = self.one_in(2);
        let mut group = None;
        if has_groups {
            group = self.column().map(|column| column.name);
            self.put(", ");
        }
        let count = self.rng.usize(1..3);
        self.listed(count, Self::aggregate);
        self.put(&format!(" FROM {}", table.name));
        if self.one_in(2) {
            self.put(" WHERE ");
            self.condition();
        }
        if let Some(group) = group {
            self.put_form(" GROUP BY ");
            self.put(&group);
            if self.one_in(3) {
                self.put_form(" HAVING ");
                self.put("count(*) > ");
                self.value(Domain::Small);
            }
            self.order_and_limit(3);
        }
    }

    fn aggregate(&mut self) {
        let name = self.pick(AGGREGATES);
        self.put_form(name);
        let has_separator = name.starts_with("string_agg");
        if !has_separator && self.one_in(4) {
            self.put_form("DISTINCT ");
        }
        self.leaf();
        if has_separator {
            self.put(", '-'");
        }
        if self.one_in(5) {
            self.form("aggregate ORDER BY");
            self.put(" ORDER BY ");
            let _ = self.column();
        }
        self.put(")");
        if self.one_in(4) {
            self.put_form(" FILTER (WHERE ");
            self.comparison();
            self.put(")");
        }
    }

    fn window_query(&mut self) {
        let Some(table) = self.readable() else { return self.put("SELECT 1") };
        self.scope = vec![source_of(table)];
        self.put("SELECT ");
        let _ = self.column();
        self.put(", ");
        let name = self.pick(WINDOWS);
        self.put_form(name);
        match name {
            "row_number(" | "rank(" | "dense_rank(" | "percent_rank(" | "cume_dist(" => {}
            "ntile(" => self.put("3"),
            "nth_value(" => {
                let _ = self.column();
                self.put(", 2");
            }
            _ => {
                let _ = self.column();
            }
        }
        self.put(")");
        if self.one_in(4) && ["sum(", "count(", "group_concat("].contains(&name) {
            self.form("window FILTER");
            self.put(" FILTER (WHERE ");
            self.comparison();
            self.put(")");
        }
        let is_named = self.one_in(4);
        self.put_form(" OVER ");
        if is_named {
            self.put("w");
        } else {
            self.window();
        }
        self.put(&format!(" FROM {}", table.name));
        if is_named {
            self.put_form(" WINDOW ");
            self.put("w AS ");
            self.window();
        }
        self.order_and_limit(2);
    }

    fn window(&mut self) {
        self.put("(");
        if self.one_in(2) {
            self.put_form("PARTITION BY ");
            let _ = self.column();
        }
        self.put_form(" ORDER BY ");
        let _ = self.column();
        if self.one_in(2) {
            self.put_one(FRAMES);
        }
        self.put(")");
    }

    pub(super) fn compound(&mut self) {
        for number in 0..self.rng.usize(2..4) {
            if number > 0 {
                self.put_one(COMPOUNDS);
            }
            self.form("compound SELECT");
            self.scope.clear();
            let Some(table) = self.readable() else { return self.put("SELECT 1, 2") };
            self.scope = vec![source_of(table)];
            self.put("SELECT ");
            self.listed(2, |draft| {
                let _ = draft.column();
            });
            self.put(&format!(" FROM {} WHERE ", table.name));
            self.comparison();
        }
        self.put_one(&[" ORDER BY 1", " ORDER BY 2 DESC, 1", ""]);
        self.limit();
    }

    fn common_tables(&mut self) {
        self.put_form("WITH ");
        let name = "w1";
        self.put(name);
        if self.one_in(2) {
            self.put("(p, q)");
        } else {
            self.put("(q, p)");
        }
        self.put_one(&[" AS (", " AS MATERIALIZED (", " AS NOT MATERIALIZED ("]);
        self.subquery(2);
        self.put(")");
        let columns = ["p", "q"].map(|name| Column {
            name: name.into(),
            type_name: String::new(),
            is_key: false,
            is_generated: false,
        });
        let source = Source { alias: name.into(), columns: columns.into() };
        self.put(" SELECT ");
        self.scope = vec![source];
        self.result_columns();
        self.put(" FROM w1");
        if self.one_in(3) {
            self.put(", w1 AS again");
        }
        if self.one_in(2) {
            self.put(" WHERE w1.");
            let name = self.pick(&["p = ", "q > "]);
            self.put(name);
            self.value(Domain::Small);
        }
        self.limit();
    }

    fn recursive(&mut self) {
        self.put_form("WITH RECURSIVE ");
        let union = self.pick(&["UNION ALL", "UNION"]);
        self.form(union);
        self.put("n(i, j) AS (SELECT 1, ");
        self.value(Domain::Small);
        self.put(&format!(" {union} SELECT i + 1, j + "));
        self.value(Domain::Small);
        self.put(" FROM n WHERE i < ");
        self.value(Domain::Many);
        self.put_one(&["", " LIMIT 20", " ORDER BY 1 DESC LIMIT 9"]);
        self.put(") SELECT ");
        match self.readable() {
            Some(table) if self.one_in(2) => {
                self.scope = vec![source_of(table)];
                self.put("i, ");
                let _ = self.column();
                self.put(&format!(" FROM n JOIN {} ON i = ", table.name));
                let _ = self.column();
                self.limit();
            }
            _ => self.put("count(*), max(i), sum(j) FROM n"),
        }
    }

    fn json_table(&mut self) {
        self.put("SELECT key, value, type, fullkey FROM ");
        self.put_one(&["json_each(", "json_tree("]);
        match self.readable() {
            Some(table) if self.one_in(2) => {
                self.form("json_each of rows");
                self.scope = vec![source_of(table)];
                self.put("(SELECT json_group_array(");
                let _ = self.column();
                self.put(&format!(") FROM {}))", table.name));
                self.scope.clear();
            }
            _ => self.put("'{\"a\":[1,2.5,\"x\"],\"b\":null}')"),
        }
        self.limit();
    }

    /// A query, or a change, that takes the first row which the plan comes to.
    pub(super) fn choice(&mut self) {
        let Some((table, pair)) = self.pair_of_indexed_columns() else {
            return self.query_statement();
        };
        match self.rng.u8(..6) {
            0..3 => {
                self.query_returns_rows();
                self.form("choose a row");
                self.put("SELECT ");
                self.scope = vec![source_of(table)];
                let _ = self.column();
                self.put(&format!(", {} FROM {} WHERE ", key_of(table), table.name));
                self.both(&pair);
                self.put(" LIMIT 1");
            }
            3 => {
                self.form("EXPLAIN QUERY PLAN of a choice");
                self.query_returns_rows();
                self.put(&format!("EXPLAIN QUERY PLAN SELECT * FROM {} WHERE ", table.name));
                self.both(&pair);
                self.put(" LIMIT 1");
            }
            4 => {
                self.form("take a row");
                let settable = table.settable();
                let column = self.pick(&settable).name.clone();
                self.put(&format!("UPDATE {} SET {column} = ", table.name));
                self.value(Domain::Small);
                self.chosen(table, &pair);
            }
            _ => {
                self.form("remove a row");
                self.put(&format!("DELETE FROM {}", table.name));
                self.chosen(table, &pair);
            }
        }
    }

    fn chosen(&mut self, table: &Table, pair: &[String; 2]) {
        let key = key_of(table);
        self.put(&format!(" WHERE {key} = (SELECT {key} FROM {} WHERE ", table.name));
        self.both(pair);
        self.put(" LIMIT 1)");
        if self.one_in(2) {
            self.form("RETURNING of a choice");
            self.put(&format!(" RETURNING {key}"));
            self.change_returns_rows();
        }
    }

    fn both(&mut self, [first, second]: &[String; 2]) {
        self.put(&format!("{first} = "));
        self.value(Domain::Small);
        self.put(&format!(" AND {second} = "));
        self.value(Domain::Small);
    }

    /// A table, and two columns of it that begin indexes.
    fn pair_of_indexed_columns(&mut self) -> Option<(&'d Table, [String; 2])> {
        let mut found = Vec::new();
        for table in self.schema.tables.iter().filter(|table| table.is_stored()) {
            let indexes = self.schema.indexes.iter();
            let mut first: Vec<&String> = indexes
                .filter(|index| index.table == table.name && !index.is_partial)
                .filter_map(|index| index.columns.first())
                .collect();
            first.dedup();
            if first.len() > 1 {
                found.push((table, first));
            }
        }
        if found.is_empty() {
            return None;
        }
        let (table, mut columns) = found.swap_remove(self.rng.usize(..found.len()));
        self.rng.shuffle(&mut columns);
        Some((table, [columns[0].clone(), columns[1].clone()]))
    }
}

/// What a row of it is found by.
fn key_of(table: &Table) -> &str {
    let key = table.columns.iter().find(|column| column.is_key);
    match key {
        Some(column) => &column.name,
        None => "rowid",
    }
}

fn shared_column(left: &Source, right: &Source) -> Option<String> {
    let is_shared = |column: &&Column| right.columns.iter().any(|it| it.name == column.name);
    left.columns.iter().find(is_shared).map(|column| column.name.clone())
}
