//! Owns the productions of expressions: scalars, conditions, subqueries, functions.

use super::values::Domain;
use super::{DEPTH, Draft, Source};
use crate::checks::differential::schema::Column;

const ARITHMETIC: &[&str] = &[" + ", " - ", " * ", " / ", " % ", " & ", " | ", " << ", " >> "];
const COMPARISON: &[&str] =
    &[" = ", " <> ", " < ", " <= ", " > ", " >= ", " IS ", " IS NOT ", " IS DISTINCT FROM "];
const UNARY: &[&str] = &["-", "+", "~", "NOT "];
const TYPES: &[&str] = &["INTEGER", "TEXT", "REAL", "BLOB", "NUMERIC"];
pub(super) const COLLATIONS: &[&str] = &["BINARY", "NOCASE", "RTRIM"];

/// Functions of one argument.
const ONE: &[&str] = &[
    "abs",
    "hex",
    "length",
    "lower",
    "upper",
    "quote",
    "round",
    "sign",
    "trim",
    "ltrim",
    "typeof",
    "unicode",
    "octet_length",
    "likely",
    "unlikely",
    "json_quote",
    "json_valid",
    "soundex",
];
/// Functions of two arguments.
const TWO: &[&str] = &[
    "coalesce",
    "ifnull",
    "nullif",
    "instr",
    "max",
    "min",
    "substr",
    "json_array",
    "concat",
    "glob",
    "like",
];
/// Functions of three arguments.
const THREE: &[&str] = &["iif", "replace", "substr", "coalesce", "concat_ws", "max"];

impl<'d> Draft<'d> {
    /// Any scalar expression.
    pub(super) fn expression(&mut self) {
        if self.depth >= DEPTH {
            return self.leaf();
        }
        self.depth += 1;
        match self.rng.u8(..32) {
            0..8 => self.leaf(),
            8..12 => {
                self.put("(");
                self.expression();
                self.put_one(ARITHMETIC);
                self.expression();
                self.put(")");
            }
            12 => self.concatenation(),
            13 => {
                self.put_one(UNARY);
                self.leaf();
            }
            14..17 => self.case(),
            17 => self.cast(),
            18..24 => self.function(),
            24 => self.json(),
            25 => self.scalar_subquery(),
            26 => {
                self.put("(");
                self.condition();
                self.put(")");
            }
            27 => {
                self.leaf();
                self.collate();
            }
            _ => self.leaf(),
        }
        self.depth -= 1;
    }

    /// A column or a value.
    pub(super) fn leaf(&mut self) {
        match self.column() {
            Some(_) if self.rng.u8(..3) > 0 => {}
            Some(_) => {
                // Behind the column, so that the value suits it.
                self.put_one(&[" + ", " || ", " - "]);
                self.value(Domain::Small);
            }
            None => self.value(Domain::Any),
        }
    }

    /// Names a column in scope, and tells which.
    pub(super) fn column(&mut self) -> Option<Column> {
        let sources: Vec<usize> =
            (0..self.scope.len()).filter(|at| !self.scope[*at].columns.is_empty()).collect();
        if sources.is_empty() {
            return None;
        }
        let at = self.pick(&sources);
        let Source { alias, columns } = &self.scope[at];
        let column = columns[self.rng.usize(..columns.len())].clone();
        if self.scope.len() > 1 || self.rng.u8(..6) == 0 {
            let alias = alias.clone();
            self.put(&alias);
            self.put(".");
        }
        self.put(&column.name);
        Some(column)
    }

    fn concatenation(&mut self) {
        self.put("(");
        self.expression();
        self.put_form(" || ");
        self.leaf();
        self.put(")");
    }

    fn collate(&mut self) {
        self.put_form(" COLLATE ");
        self.put_one(COLLATIONS);
    }

    fn case(&mut self) {
        let is_simple = self.one_in(2);
        self.put_form("CASE ");
        if is_simple {
            self.form("CASE x WHEN");
            self.leaf();
            self.put(" ");
        }
        for _ in 0..self.rng.usize(1..3) {
            self.put("WHEN ");
            if is_simple {
                self.value(Domain::Small);
            } else {
                self.condition();
            }
            self.put(" THEN ");
            self.expression();
            self.put(" ");
        }
        if self.one_in(2) {
            self.put_form("ELSE ");
            self.leaf();
            self.put(" ");
        }
        self.put("END");
    }

    fn cast(&mut self) {
        self.put_form("CAST(");
        self.expression();
        self.put(" AS ");
        self.put_one(TYPES);
        self.put(")");
    }

    fn function(&mut self) {
        match self.rng.u8(..8) {
            0..4 => self.call(ONE, 1),
            4 | 5 => self.call(TWO, 2),
            6 => self.call(THREE, 3),
            _ => match self.rng.u8(..4) {
                0 => {
                    self.put_form("printf(");
                    let format = self.pick(&["'%d-%s'", "'%05.2f|%q'", "'%x%%%s'"]);
                    self.put(format);
                    self.put(", ");
                    self.leaf();
                    self.put(", ");
                    self.leaf();
                    self.put(")");
                }
                1 => {
                    self.put_form("char(");
                    let number = self.rng.u8(60..70);
                    self.put(&format!("{number})"));
                }
                2 => {
                    self.put_form("zeroblob(");
                    let number = self.rng.u8(..9);
                    self.put(&format!("{number})"));
                }
                _ => self.put_one(&["missing()", "sqlite_version()", "strftime('%Y', 0)"]),
            },
        }
    }

    fn call(&mut self, names: &[&'static str], arguments: usize) {
        self.put_one(names);
        self.put("(");
        self.listed(arguments, Self::leaf);
        self.put(")");
    }

    fn json(&mut self) {
        let path = self.pick(&["'$'", "'$.a'", "'$[0]'", "'$.b[1]'"]);
        let object = self.pick(&[
            "'{\"a\":1,\"b\":[2,3]}'",
            "'[1,{\"a\":null},\"x\"]'",
            "'{\"a\":{\"b\":[]}}'",
        ]);
        match self.rng.u8(..8) {
            0 => {
                self.put_form("json_object(");
                self.put("'a', ");
                self.leaf();
                self.put(")");
            }
            1 => self.put_with("json_extract(", &format!("{object}, {path})")),
            2 => self.put_with("json_type(", &format!("{object}, {path})")),
            3 => self.put_with("json_array_length(", &format!("{object}, {path})")),
            4 => {
                self.put_form("json_set(");
                self.put(&format!("{object}, {path}, "));
                self.leaf();
                self.put(")");
            }
            5 => self.put_with("json_patch(", &format!("{object}, '{{\"a\":null}}')")),
            6 => {
                self.put(object);
                self.put_form(" ->> ");
                self.put(path);
            }
            _ => {
                self.put(object);
                self.put_form(" -> ");
                self.put(path);
            }
        }
    }

    fn put_with(&mut self, form: &'static str, rest: &str) {
        self.put_form(form);
        self.put(rest);
    }

    /// What a `WHERE` may say.
    pub(super) fn condition(&mut self) {
        if self.depth >= DEPTH {
            return self.comparison();
        }
        self.depth += 1;
        match self.rng.u8(..32) {
            0..14 => self.comparison(),
            14..17 => {
                self.comparison();
                self.put_form(" AND ");
                self.condition();
            }
            17..19 => {
                self.put("(");
                self.comparison();
                self.put_form(" OR ");
                self.condition();
                self.put(")");
            }
            19 => {
                self.put_form("NOT (");
                self.condition();
                self.put(")");
            }
            20 | 21 => self.between(),
            22 | 23 => self.inside(),
            24 => self.exists(),
            25 | 26 => self.pattern(),
            27 => {
                self.leaf();
                self.put_one(&[" ISNULL", " NOTNULL", " IS NULL", " IS NOT NULL"]);
            }
            28 => self.row_value(),
            29 => {
                self.expression();
                self.put_one(COMPARISON);
                self.expression();
            }
            30 => self.put_one(&["TRUE", "FALSE", "1 = 1"]),
            _ => self.expression(),
        }
        self.depth -= 1;
    }

    /// A column and a value that suits it: what indexes are for.
    pub(super) fn comparison(&mut self) {
        let Some(column) = self.column() else { return self.value(Domain::Small) };
        if column.is_text() && self.one_in(6) {
            self.collate();
        }
        match self.rng.u8(..10) {
            0..6 => self.put_form(" = "),
            _ => self.put_one(COMPARISON),
        }
        let domain =
            if column.is_key { Domain::Key } else { Domain::of(&column.type_name, self.rng) };
        self.value(domain);
    }

    fn between(&mut self) {
        self.leaf();
        self.put_one(&[" BETWEEN ", " NOT BETWEEN "]);
        self.value(Domain::Small);
        self.put(" AND ");
        self.value(Domain::Small);
    }

    fn inside(&mut self) {
        let _ = self.column();
        if self.scope.is_empty() {
            self.value(Domain::Small);
        }
        self.put_one(&[" IN (", " NOT IN ("]);
        if self.one_in(2) {
            let count = self.rng.usize(..4);
            self.listed(count, |draft| draft.value(Domain::Small));
        } else {
            self.form("IN (SELECT");
            self.subquery(1);
        }
        self.put(")");
    }

    fn exists(&mut self) {
        self.put_one(&["EXISTS (", "NOT EXISTS ("]);
        self.subquery(1);
        self.put(")");
    }

    fn scalar_subquery(&mut self) {
        self.put_form("(SELECT ");
        match self.readable() {
            None => self.value(Domain::Small),
            Some(table) => {
                let alias = format!("q{}", self.scope.len());
                let source = Source { alias: alias.clone(), columns: table.columns.clone() };
                if self.one_in(2) {
                    self.put_one(&["max(", "min(", "count("]);
                    self.scoped(vec![source.clone()], |draft| {
                        let _ = draft.column();
                    });
                    self.put(")");
                } else {
                    self.scoped(vec![source.clone()], |draft| {
                        let _ = draft.column();
                    });
                }
                self.put(&format!(" FROM {} AS {alias} WHERE ", table.name));
                self.correlated(source);
                self.put_form(" LIMIT 1");
            }
        }
        self.put(")");
    }

    /// A condition on `source` that may name what is in scope around it.
    fn correlated(&mut self, source: Source) {
        if self.scope.is_empty() || self.one_in(2) {
            self.scoped(vec![source], Self::comparison);
        } else {
            self.form("correlated subquery");
            self.scoped(vec![source], |draft| {
                let _ = draft.column();
            });
            self.put(" = ");
            let _ = self.column();
        }
    }

    /// `SELECT … FROM … WHERE …` of so many columns.
    pub(super) fn subquery(&mut self, columns: usize) {
        let Some(table) = self.readable() else {
            self.put("SELECT ");
            self.listed(columns, |draft| draft.value(Domain::Small));
            return;
        };
        let alias = format!("q{}", self.scope.len());
        let source = Source { alias: alias.clone(), columns: table.columns.clone() };
        self.put("SELECT ");
        self.scoped(vec![source.clone()], |draft| {
            draft.listed(columns, |draft| {
                let _ = draft.column();
            });
        });
        self.put(&format!(" FROM {} AS {alias} WHERE ", table.name));
        self.correlated(source);
    }

    fn pattern(&mut self) {
        let _ = self.column();
        if self.scope.is_empty() {
            self.value(Domain::Text);
        }
        self.put_one(&[" LIKE ", " GLOB ", " NOT LIKE "]);
        self.value(Domain::Pattern);
        if self.one_in(6) && !self.sql.contains(" GLOB ") {
            self.put_form(" ESCAPE '!'");
        }
    }

    fn row_value(&mut self) {
        self.form("row value");
        self.put("(");
        self.listed(2, Self::leaf);
        self.put(")");
        if self.one_in(2) {
            self.put_one(&[" = (", " < (", " IS ("]);
            self.listed(2, |draft| draft.value(Domain::Small));
        } else {
            self.form("row value IN (SELECT");
            self.put(" IN (");
            self.subquery(2);
        }
        self.put(")");
    }
}
