//! Owns what is drawn at random of hostile SQL: statements of every form, with functions, clauses
//! and lists at the sizes that are allowed, just beyond them, and far below.
//!
//! # Algorithm
//! Each production appends to the text and draws how many parts it has ([`Draft::size`]); what the
//! statement may still have of parts is shared by all of them, so that a text ends. Leaves are
//! values at the limit of length as often as small ones. Names are drawn from few, those that
//! earlier statements have made too.
//!
//! # Not here
//! Statements that mean something for the live schema: the differential check's grammar, a part of
//! whose statements is run here as well.

use fastrand::Rng;

/// What the statements find.
const TABLES: &str = "
    CREATE TABLE big(x);
    INSERT INTO big WITH RECURSIVE n(i) AS
        (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) SELECT i FROM n;
    CREATE TABLE texts(id INTEGER PRIMARY KEY, t);
    INSERT INTO texts VALUES
        (1, printf('%.*c', 900000, 'a')), (2, printf('%.*c', 900000, '1')),
        (3, '[' || replace(printf('%.*c', 400000, '1'), '1', '1,') || '1]'),
        (4, printf('%.*c', 900, '[') || printf('%.*c', 900, ']')), (5, zeroblob(900000)),
        (6, replace(printf('%.*c', 400000, 'a'), 'a', 'é')), (7, 'short'), (8, 7), (9, NULL);
    CREATE TABLE wide(WIDE);
    CREATE INDEX wide_i ON wide(c0, c1, c2);
    INSERT INTO wide(c0, c1, c2) SELECT x, x % 7, 'a' || x FROM big LIMIT 50;
    CREATE TABLE keyed(c0, c1 COLLATE nocase, c2 INTEGER, c3 TEXT, c4 NOT NULL, c5);
    CREATE INDEX keyed_0 ON keyed(c0, c1, c2, c3, c4, c5);
    CREATE INDEX keyed_1 ON keyed(c5, c3, c1);
    CREATE INDEX keyed_2 ON keyed(c4, c4, c4, c0);
    CREATE UNIQUE INDEX keyed_3 ON keyed(c2, c0, c1, c5);
    CREATE UNIQUE INDEX keyed_4 ON keyed(c3, c1);
    CREATE INDEX keyed_5 ON keyed(c1)";

/// Columns of the table `wide`.
const WIDE: usize = 200;

/// Columns of the table `keyed`.
const KEYED: usize = 6;

/// Functions of one row, and how many arguments they take.
const FUNCTIONS: &[(&str, usize, usize)] = &[
    ("abs", 1, 1),
    ("char", 1, 4),
    ("coalesce", 2, 100),
    ("concat", 1, 100),
    ("concat_ws", 2, 100),
    ("format", 1, 5),
    ("glob", 2, 2),
    ("hex", 1, 1),
    ("ifnull", 2, 2),
    ("iif", 3, 3),
    ("instr", 2, 2),
    ("length", 1, 1),
    ("like", 2, 3),
    ("lower", 1, 1),
    ("ltrim", 1, 2),
    ("max", 2, 100),
    ("min", 2, 100),
    ("nullif", 2, 2),
    ("octet_length", 1, 1),
    ("printf", 1, 5),
    ("quote", 1, 1),
    ("randomblob", 1, 1),
    ("replace", 3, 3),
    ("round", 1, 2),
    ("rtrim", 1, 2),
    ("sign", 1, 1),
    ("soundex", 1, 1),
    ("substr", 2, 3),
    ("trim", 1, 2),
    ("typeof", 1, 1),
    ("unicode", 1, 1),
    ("unhex", 1, 1),
    ("unistr", 1, 1),
    ("upper", 1, 1),
    ("zeroblob", 1, 1),
    ("date", 1, 4),
    ("datetime", 1, 4),
    ("julianday", 1, 3),
    ("strftime", 2, 4),
    ("timediff", 2, 2),
    ("unixepoch", 1, 2),
    ("json", 1, 1),
    ("jsonb", 1, 1),
    ("json_array", 1, 100),
    ("json_array_length", 1, 2),
    ("json_error_position", 1, 1),
    ("json_extract", 2, 9),
    ("jsonb_extract", 2, 2),
    ("json_insert", 3, 9),
    ("json_object", 2, 2),
    ("json_pretty", 1, 2),
    ("json_quote", 1, 1),
    ("json_remove", 1, 9),
    ("json_replace", 3, 9),
    ("json_set", 3, 9),
    ("json_type", 1, 2),
    ("json_valid", 1, 2),
    ("total_changes", 0, 0),
    ("random", 0, 0),
];

/// Those of many rows, which can be windows, too.
const AGGREGATES: &[&str] = &[
    "avg",
    "count",
    "group_concat",
    "string_agg",
    "max",
    "min",
    "sum",
    "total",
    "json_group_array",
    "jsonb_group_array",
    "json_group_object",
    "row_number",
    "rank",
    "lag",
    "lead",
    "ntile",
    "first_value",
    "nth_value",
];

const OPERATORS: &[&str] = &[
    "+",
    "-",
    "*",
    "/",
    "%",
    "||",
    "<",
    "<=",
    "=",
    "<>",
    "AND",
    "OR",
    "IS",
    "IS NOT",
    "&",
    "|",
    "<<",
    ">>",
    "->",
    "->>",
    "LIKE",
    "GLOB",
    "NOT LIKE",
    "COLLATE nocase =",
    "IS DISTINCT FROM",
];

/// Values, most of them large: what takes long is made of these.
const LEAVES: &[&str] = &[
    "0",
    "1",
    "-1",
    "7",
    "9223372036854775807",
    "1e308",
    "NULL",
    "'a'",
    "'%a%'",
    "'$'",
    "'$[399999]'",
    "'$.a.b'",
    "'[1,2,{\"a\":3}]'",
    "x'00ff'",
    "'%s%d%f'",
    "'%.500000f'",
    "'%*.*s'",
    "printf('%.*c', 1000000, 'a')",
    "printf('%.*c', 999, 'b')",
    "printf('%.*c', 98, '%a')",
    "'%' || printf('%.*c', 98, 'a') || 'b'",
    "replace(printf('%.*c', 24, '1'), '1', '*[a]')",
    "zeroblob(1000000)",
    "randomblob(100000)",
    "printf('%.*c', 1000000, '1')",
    "(SELECT t FROM texts WHERE id = 1)",
    "(SELECT t FROM texts WHERE id = 3)",
    "500000",
    "'localtime'",
];

/// Documents, for functions that take one.
const DOCUMENTS: &[&str] = &[
    "'[1,2,{\"a\":3}]'",
    "(SELECT t FROM texts WHERE id = 3)",
    "(SELECT t FROM texts WHERE id = 4)",
    "json_array(1, printf('%.*c', 400000, 'a'))",
];

/// What can be selected from, and a column of it.
const SOURCES: &[(&str, &str)] = &[
    ("big", "x"),
    ("big", "rowid"),
    ("texts", "t"),
    ("texts", "t"),
    ("wide", "c0"),
    ("wide", "c199"),
    ("json_each('[1,2,3,4,5,6,7,8,9]')", "value"),
    ("json_tree((SELECT t FROM texts WHERE id = 3))", "value"),
    ("pragma_table_info('wide')", "name"),
    ("pragma_table_list", "name"),
];

/// The same of common table expressions.
const COMMON: &[(&str, &str)] = &[("n", "i"), ("n", "i"), ("k0", "t"), ("k1", "t")];

/// Parts that a statement may have at most.
const PARTS: usize = 4_000;

/// Bytes after which no part is added.
const MAX_BYTES: usize = 900_000;

struct Draft<'r> {
    rng: &'r mut Rng,
    sql: String,
    parts: usize,
    depth: usize,
    /// Columns that an expression may name here.
    scope: Vec<String>,
    /// Whether there are common table expressions.
    has_common: bool,
}

/// Makes what the statements find.
pub(super) fn tables() -> String {
    let columns: Vec<_> = (0..WIDE).map(|column| format!("c{column}")).collect();
    TABLES.replace("WIDE", &columns.join(","))
}

/// A statement.
pub(super) fn statement(rng: &mut Rng) -> String {
    let parts = [30, 300, PARTS][rng.usize(..3)];
    let mut draft =
        Draft { rng, sql: String::new(), parts, depth: 0, scope: Vec::new(), has_common: false };
    draft.statement();
    draft.sql
}

/// All of `terms` in a tree of `operator` that is not deep.
fn balanced(terms: &[String], operator: &str) -> String {
    match terms {
        [] => "1".into(),
        [one] => one.clone(),
        many => {
            let (left, right) = many.split_at(many.len() / 2);
            format!("({} {operator} {})", balanced(left, operator), balanced(right, operator))
        }
    }
}

impl Draft<'_> {
    fn put(&mut self, text: &str) {
        self.sql.push_str(text);
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.rng.usize(..list.len())]
    }

    fn one_in(&mut self, many: u32) -> bool {
        self.rng.u32(..many) == 0
    }

    /// A number of parts: few mostly, sometimes what is allowed, and sometimes one more.
    fn size(&mut self, most: usize) -> usize {
        let drawn = match self.rng.u8(..12) {
            0..7 => self.rng.usize(1..4),
            7..9 => self.rng.usize(1..=most.min(12)),
            9 => most / 4,
            10 => most,
            _ => most + usize::from(self.one_in(4)),
        };
        let size = drawn.clamp(1, self.parts.max(1));
        self.parts = self.parts.saturating_sub(size);
        size
    }

    fn listed(&mut self, count: usize, mut write: impl FnMut(&mut Self, usize)) {
        for number in 0..count {
            if number > 0 && self.sql.len() > MAX_BYTES {
                return;
            }
            self.put(if number == 0 { "" } else { ", " });
            write(self, number);
        }
    }

    fn name(&mut self) -> String {
        format!("z{}", self.rng.u8(..8))
    }

    fn statement(&mut self) {
        match self.rng.u8(..27) {
            0..11 => self.query(None),
            11 | 24 => self.join(),
            25 => self.copies(),
            26 => self.join_by_name(),
            12 => {
                self.put("INSERT INTO texts(t) ");
                self.query(Some(1));
            }
            13 => {
                self.put("INSERT INTO big VALUES ");
                let count = self.size(3_000);
                self.listed(count, |draft, _| {
                    draft.put("(");
                    draft.expression();
                    draft.put(")");
                });
            }
            14 => {
                self.scope = vec!["t".into(), "id".into()];
                self.put("UPDATE texts SET t = ");
                self.expression();
                self.condition();
                self.returning();
            }
            15 => {
                self.scope = vec!["c0".into(), "c199".into()];
                self.put("UPDATE wide SET ");
                let count = self.size(WIDE);
                self.listed(count, |draft, column| {
                    draft.put(&format!("c{column} = "));
                    draft.expression();
                });
                self.condition();
            }
            16 => {
                self.scope = vec!["x".into()];
                self.put("DELETE FROM big");
                self.condition();
                self.returning();
            }
            17 => self.upsert(),
            18..21 => self.definition(),
            21 => {
                let name = self.name();
                let what = self.pick(&["TABLE", "VIEW", "INDEX", "TRIGGER"]);
                self.put(&format!("DROP {what} IF EXISTS {name}"));
            }
            22 => {
                let how = self.pick(&["EXPLAIN ", "EXPLAIN QUERY PLAN "]);
                self.put(how);
                self.query(None);
            }
            _ => {
                let name = self.name();
                self.put(&format!("INSERT INTO {name} SELECT * FROM {name}"));
            }
        }
    }

    /// Many ways to read each of many tables: by which index, for which condition.
    fn join(&mut self) {
        let tables = self.size(64);
        let how = self.pick(&[&[", "][..], &[", ", " JOIN ", " LEFT JOIN ", " CROSS JOIN "]]);
        let select = self.pick(&["count(*)", "DISTINCT k0.c0", "1"]);
        self.put(&format!("SELECT {select} FROM keyed k0"));
        for table in 1..tables {
            let with = self.pick(how);
            self.put(&format!("{with}keyed k{table}"));
        }
        // A star, a chain, or anything.
        let shape = self.rng.u8(..3);
        let mut terms = Vec::new();
        for _ in 0..self.size(90) {
            let first = self.rng.usize(..tables);
            let second = match shape {
                0 => 0,
                1 => (first + 1) % tables,
                _ => self.rng.usize(..tables),
            };
            let mut column = |table| format!("k{table}.c{}", self.rng.usize(..KEYED));
            let (one, other, third) = (column(first), column(second), column(first));
            terms.push(match self.rng.u8(..8) {
                0 => format!("({one} = {other} OR {third} = ?)"),
                1 => format!("{one} IN (1, 2, 3)"),
                2 => format!("{one} BETWEEN ? AND {other}"),
                3 => format!("{one} > {other}"),
                _ => format!("{one} = {other}"),
            });
        }
        self.put(&format!(" WHERE {}", balanced(&terms, "AND")));
        if self.one_in(2) {
            let order = self.pick(&["ORDER", "GROUP"]);
            self.put(&format!(" {order} BY k0.c1, k0.c5"));
        }
    }

    /// A result column that is named or numbered again, in few bytes.
    fn copies(&mut self) {
        let (terms, uses) = (self.pick(&[1, 5, 20, 60, 120]), self.pick(&[3, 60, 200, 460, 540]));
        let column = self.rng.usize(..KEYED);
        let one = |at: usize| format!("c{column}={}", at % 10);
        let all: Vec<_> = (0..terms).map(one).collect();
        let by = self.pick(&["OR", "AND", "+"]);
        self.put(&format!("SELECT {} x FROM keyed ", balanced(&all, by)));
        let clause = self.pick(&["WHERE", "GROUP BY", "ORDER BY", "GROUP BY x HAVING"]);
        let text = match clause {
            "GROUP BY" | "ORDER BY" => {
                let term = self.pick(&["x", "1", "x+1"]);
                vec![term; uses].join(",")
            }
            _ => balanced(&vec!["x".into(); uses], self.pick(&["AND", "OR"])),
        };
        self.put(&format!("{clause} {text}"));
    }

    /// A join whose columns the authorizer is not asked for.
    fn join_by_name(&mut self) {
        let tables = self.size(64);
        let columns: Vec<_> = (0..self.rng.usize(1..=KEYED)).map(|at| format!("c{at}")).collect();
        let using = format!(" USING ({})", columns.join(", "));
        self.put("SELECT 1 FROM keyed k0");
        for table in 1..tables {
            let (before, behind) = self.pick(&[("", true), ("LEFT ", true), ("NATURAL ", false)]);
            let behind = if behind { using.as_str() } else { "" };
            self.put(&format!(" {before}JOIN keyed k{table}{behind}"));
        }
    }

    fn upsert(&mut self) {
        self.put("INSERT INTO texts(id, t) SELECT x % 9, ");
        self.scope = vec!["big.x".into()];
        self.expression();
        self.scope = vec!["texts.t".into(), "excluded.t".into()];
        self.put(" FROM big WHERE true ON CONFLICT(id) DO UPDATE SET t = ");
        self.expression();
        self.condition();
    }

    fn returning(&mut self) {
        if self.one_in(3) {
            self.put(" RETURNING ");
            self.expressions(490);
        }
    }

    fn definition(&mut self) {
        let name = self.name();
        match self.rng.u8(..5) {
            0 => {
                self.put(&format!("CREATE TABLE {name}(x, t"));
                let count = self.size(498);
                for column in 0..count {
                    let before = if column == 0 { "x".into() } else { format!("g{}", column - 1) };
                    let kind = self.pick(&["", " STORED"]);
                    let operator = self.pick(&["+", "||", "&", "LIKE"]);
                    let part = match self.rng.u8(..3) {
                        0 => format!(", g{column} AS ({before} {operator} 1){kind}"),
                        1 => format!(", g{column} DEFAULT (hex(randomblob(9)))"),
                        _ => format!(", g{column} CHECK (length(t) + length({before}) IS NOT 5)"),
                    };
                    self.put(&part);
                }
                let strict =
                    self.pick(&[")", ", PRIMARY KEY (x)) WITHOUT ROWID", ", UNIQUE (x, t))"]);
                self.put(strict);
            }
            1 => {
                self.put(&format!("CREATE VIEW {name} AS "));
                self.query(None);
            }
            2 => {
                let (table, column) = self.pick(&[("big", "x"), ("texts", "t"), ("wide", "c0")]);
                self.scope = vec![column.into()];
                self.put(&format!("CREATE INDEX {name} ON {table}("));
                self.expressions(60);
                self.put(")");
                if self.one_in(3) {
                    self.condition();
                }
            }
            3 => {
                let when = self.pick(&["BEFORE", "AFTER"]);
                let what = self.pick(&["INSERT", "UPDATE", "DELETE"]);
                let table = self.pick(&["big", "texts", "wide"]);
                self.put(&format!("CREATE TRIGGER {name} {when} {what} ON {table} BEGIN "));
                let count = self.size(20);
                for _ in 0..count {
                    let text = self.pick(&["INSERT INTO big VALUES (", "SELECT ("]);
                    self.put(text);
                    self.expression();
                    self.put("); ");
                }
                self.put("END");
            }
            _ => {
                let other = self.name();
                let how = self.pick(&["ADD COLUMN q DEFAULT 1", "DROP COLUMN t", "RENAME x TO y"]);
                let renamed = format!("ALTER TABLE {name} RENAME TO {other}");
                let altered = format!("ALTER TABLE {name} {how}");
                let text = if self.one_in(2) { renamed } else { altered };
                self.put(&text);
            }
        }
    }

    /// A query of so many columns, or of any number.
    fn query(&mut self, columns: Option<usize>) {
        if self.depth > 6 {
            let ones = vec!["1"; columns.unwrap_or(1)].join(", ");
            return self.put(&format!("SELECT {ones}"));
        }
        self.depth += 1;
        let (outer, had_common) = (self.scope.clone(), self.has_common);
        if self.one_in(3) {
            self.with();
        }
        let count = if self.one_in(6) { self.size(100) } else { 1 };
        for number in 0..count {
            if number > 0 {
                let how = self.pick(&[" UNION ALL ", " UNION ", " EXCEPT ", " INTERSECT "]);
                self.put(how);
            }
            self.scope.clone_from(&outer);
            self.select(if count > 1 { columns.or(Some(2)) } else { columns });
        }
        if count == 1 && self.one_in(2) {
            self.put(" ORDER BY ");
            // A number alone would be that of a column.
            let count = self.size(490);
            self.listed(count, |draft, _| {
                draft.put("ifnull(");
                draft.expression();
                draft.put(", 0)");
            });
            let order = self.pick(&["", " DESC", " COLLATE nocase"]);
            self.put(order);
        }
        if self.one_in(4) {
            let limit = self.pick(&[" LIMIT 1", " LIMIT 100", " LIMIT -1 OFFSET 100000000"]);
            self.put(limit);
        }
        (self.scope, self.has_common) = (outer, had_common);
        self.depth -= 1;
    }

    /// A list that counts without end, values that are kept, and chains.
    fn with(&mut self) {
        self.put("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n");
        let end = self.pick(&["", " WHERE i < 10", " WHERE i < 60000", " ORDER BY 1 DESC"]);
        self.put(end);
        self.put("), k0(t, x) AS MATERIALIZED (SELECT ");
        self.expression();
        self.put(", 1)");
        let count = self.size(60);
        let outer = self.scope.clone();
        self.scope.push("a.t".into());
        for number in 1..=count {
            let join = self.pick(&["", ", big b", " CROSS JOIN k0 b"]);
            self.put(&format!(", k{number}(t, x) AS (SELECT "));
            self.expression();
            self.put(&format!(", 1 FROM k{} a{join})", number - 1));
        }
        self.put(" ");
        (self.scope, self.has_common) = (outer, true);
    }

    fn select(&mut self, columns: Option<usize>) {
        let tables = if self.one_in(10) { String::new() } else { self.sources() };
        let distinct = self.pick(&["SELECT ", "SELECT ", "SELECT DISTINCT "]);
        self.put(distinct);
        let is_grouped = self.one_in(4);
        let count = columns.unwrap_or_else(|| self.size(490));
        if columns.is_none() && !tables.is_empty() && self.one_in(8) {
            self.put("*");
        } else if is_grouped {
            self.listed(count, |draft, _| draft.aggregate());
        } else {
            self.listed(count, |draft, _| draft.expression());
        }
        if tables.is_empty() {
            return;
        }
        self.put(&format!(" FROM {tables}"));
        self.condition();
        if is_grouped && self.one_in(2) {
            self.put(" GROUP BY ifnull(");
            self.expression();
            self.put(", 0)");
            if self.one_in(4) {
                let columns = self.rng.choice([1, 20, 400]).unwrap_or(1);
                let more: String = (0..columns).map(|at| format!(", 1 + 1 + {at} + 1")).collect();
                let conditions = self.conditions();
                self.put(&format!("{more} HAVING {conditions}"));
            } else if self.one_in(2) {
                self.put(" HAVING count(*) > 0");
            }
        }
    }

    /// Tables to select from, whose columns can be named from here on.
    fn sources(&mut self) -> String {
        let count = if self.one_in(8) { self.size(64) } else { self.rng.usize(1..3) };
        let mut text = String::new();
        for number in 0..count {
            let join = self.pick(&[", ", " JOIN ", " LEFT JOIN ", " CROSS JOIN "]);
            let common = self.has_common && self.one_in(2);
            let (table, column) = self.pick(if common { COMMON } else { SOURCES });
            let alias = format!("a{}", self.scope.len());
            text += &format!("{}{table} {alias}", if number == 0 { "" } else { join });
            self.scope.push(format!("{alias}.{column}"));
        }
        text
    }

    /// Many small conditions, each of which the planner compares with all there is.
    fn conditions(&mut self) -> String {
        let column = match self.rng.choice(&self.scope) {
            Some(column) => column.clone(),
            None => "1".into(),
        };
        let count = self.rng.choice([3, 30, 100, 500]).unwrap_or(3);
        let form = self.rng.u8(..4);
        let one = |at: usize| match form {
            0 => format!("({column} = {at} OR {column} = -{at})"),
            1 => format!("{column} + {}{at} > 0", "1 + ".repeat(at % 60)),
            2 => format!("{}{at} IN ({column}, 1)", "1 + ".repeat(60)),
            _ => format!("{column} BETWEEN -{at} AND {at}"),
        };
        let all: Vec<_> = (0..count).map(one).collect();
        balanced(&all, if self.one_in(4) { "OR" } else { "AND" })
    }

    fn condition(&mut self) {
        if self.one_in(12) {
            let conditions = self.conditions();
            return self.put(&format!(" WHERE {conditions}"));
        }
        if self.one_in(2) {
            self.put(" WHERE ");
            let count = self.size(90);
            let by = self.pick(&[" AND ", " OR "]);
            for number in 0..count {
                self.put(if number == 0 { "" } else { by });
                self.expression();
            }
        }
    }

    fn expressions(&mut self, most: usize) {
        let count = self.size(most);
        self.listed(count, |draft, _| draft.expression());
    }

    fn aggregate(&mut self) {
        let name = self.pick(AGGREGATES);
        let arguments = match name {
            "row_number" | "rank" => 0,
            "string_agg" | "json_group_object" | "nth_value" => 2,
            _ => 1,
        };
        self.put(&format!("{name}("));
        self.listed(arguments, |draft, _| draft.expression());
        self.put(")");
        let is_window =
            arguments == 0 || ["lag", "lead", "ntile", "first_value", "nth_value"].contains(&name);
        if is_window || self.one_in(4) {
            let frame = self.pick(&[
                "",
                " ORDER BY 1 ROWS BETWEEN 80000 PRECEDING AND CURRENT ROW",
                " PARTITION BY x ORDER BY random()",
                " ORDER BY 1 GROUPS BETWEEN 9 PRECEDING AND 9 FOLLOWING EXCLUDE TIES",
            ]);
            self.put(&format!(" OVER ({frame})"));
        }
    }

    fn cases(&mut self) {
        self.put("CASE ");
        let count = self.size(90);
        for _ in 0..count {
            self.put("WHEN ");
            self.expression();
            self.put(" THEN ");
            self.expression();
        }
        self.put(" END");
    }

    fn expression(&mut self) {
        let may_nest = self.depth < 12 && self.parts > 0 && self.sql.len() < MAX_BYTES;
        if !may_nest || self.one_in(3) {
            if !self.scope.is_empty() && self.one_in(2) {
                let column = self.scope[self.rng.usize(..self.scope.len())].clone();
                return self.put(&column);
            }
            let leaf = self.pick(LEAVES);
            return self.put(leaf);
        }
        self.depth += 1;
        self.parts -= 1;
        match self.rng.u8(..12) {
            0..5 => {
                let (name, least, most) = self.pick(FUNCTIONS);
                let count = self.size(most.max(1)).clamp(least, most);
                self.put(&format!("{name}("));
                self.listed(count, |draft, number| match number {
                    0 if name.starts_with("json") => {
                        let document = draft.pick(DOCUMENTS);
                        draft.put(document);
                    }
                    1.. if name.starts_with("json_") && number % 2 == 1 => {
                        let path = draft.pick(&["'$'", "'$[399999]'", "'$[#-1]'", "'$.a.b'"]);
                        draft.put(path);
                    }
                    _ => draft.expression(),
                });
                self.put(")");
            }
            5..8 => {
                let count = self.size(90);
                self.put("(");
                self.expression();
                for _ in 0..count {
                    let operator = self.pick(OPERATORS);
                    self.put(&format!(" {operator} "));
                    self.expression();
                }
                self.put(")");
            }
            8 => {
                self.put("(");
                self.query(Some(1));
                self.put(")");
            }
            9 => self.cases(),
            10 => {
                self.expression();
                self.put(" IN (");
                self.expressions(2_000);
                self.put(")");
            }
            _ => {
                let how = self.pick(&["EXISTS (", "NOT EXISTS (", "1 IN ("]);
                self.put(how);
                self.query(Some(1));
                self.put(")");
            }
        }
        self.depth -= 1;
    }
}
