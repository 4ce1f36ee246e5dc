//! Owns what the tables of a run are: what `CREATE TABLE` and `ALTER TABLE … ADD` say of columns.

use super::has;
use crate::export::clauses::{self, split};
use monolite_sqlite::{Token, TokenKind};
use std::collections::{HashMap, HashSet};

/// What the tables of the run are, by their names in lower case.
#[derive(Default)]
pub(super) struct Known {
    tables: HashMap<String, Columns>,
    views: HashSet<String>,
    /// The first columns of tables.
    pub(super) first: HashMap<String, String>,
    /// Names as they were made.
    pub(super) spellings: HashMap<String, Vec<String>>,
}

/// Columns by their names in lower case.
pub(super) type Columns = HashMap<String, Column>;

/// What columns of a name are: in one of the tables, or in all.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) is_text: bool,
    pub(super) is_id: bool,
    pub(super) are_integers: bool,
    pub(super) are_reals: bool,
    pub(super) are_keys: bool,
    pub(super) are_never_null: bool,
}

/// A table's name, the definitions of its columns, and what follows them.
pub(super) type Definitions<'t, 's> = (&'t Token<'s>, Vec<&'t [Token<'s>]>, &'t [Token<'s>]);

/// Those of a `CREATE TABLE`, or of an `ALTER TABLE … ADD`.
pub(super) fn definitions<'t, 's>(tokens: &'t [Token<'s>]) -> Option<Definitions<'t, 's>> {
    let is_temporary = |token: &Token<'_>| token.is_word("temp") || token.is_word("temporary");
    let mut starts = tokens.iter().filter(|token| !is_temporary(token));
    let verb = starts.next()?;
    if !starts.next()?.is_word("table") {
        return None;
    }
    if verb.is_word("alter") {
        let add = tokens.iter().position(|token| token.is_word("add"))?;
        let start = add + 1 + usize::from(tokens.get(add + 1)?.is_word("column"));
        return Some((&tokens[add - 1], vec![&tokens[start..]], &[]));
    }
    let open = tokens.iter().position(|token| token.kind == TokenKind::Sign(b'('))?;
    let close = clauses::closing(tokens, open).min(tokens.len());
    let behind = tokens.get(close + 1..).unwrap_or_default();
    verb.is_word("create").then(|| (&tokens[open - 1], split(&tokens[open + 1..close]), behind))
}

/// The words of the type in a column's definition.
pub(super) fn type_words<'t, 's>(
    definition: &'t [Token<'s>],
) -> impl Iterator<Item = &'t Token<'s>> {
    let ends = "constraint primary not null unique check default collate references generated as \
                deferrable";
    let is_type = move |token: &&Token<'_>| token.kind == TokenKind::Word && !has(ends, token.text);
    definition.iter().skip(1).take_while(is_type)
}

/// The type of a column's definition, in upper case.
pub(super) fn declared(definition: &[Token<'_>]) -> String {
    let words = type_words(definition).map(|token| token.text.to_ascii_uppercase());
    words.collect::<Vec<_>>().join(" ")
}

pub(super) fn is_constraint(definition: &[Token<'_>]) -> bool {
    definition.first().is_none_or(|first| {
        first.kind == TokenKind::Word && has("constraint primary unique check foreign", first.text)
    })
}

/// The name of a token in lower case.
pub(super) fn lower(token: Option<&Token<'_>>) -> String {
    token.and_then(Token::name).unwrap_or_default().to_lowercase()
}

impl Known {
    pub(super) fn learn(&mut self, statement: &str) {
        let tokens = clauses::tokens(statement);
        if let Some(view) = tokens.iter().take(3).position(|token| token.is_word("view")) {
            let is_exists = |token: &&Token<'_>| !has("if not exists", token.text);
            self.views.insert(lower(tokens[view + 1..].iter().find(is_exists)));
        }
        let Some((table, definitions, _)) = definitions(&tokens) else { return };
        let is_column = |it: &&&[Token<'_>]| !is_constraint(it);
        let columns: Vec<_> = definitions.iter().filter(is_column).collect();
        for token in columns.iter().map(|it| &it[0]).chain([table]) {
            self.spellings.entry(lower(Some(token))).or_default().extend(token.name());
        }
        let first = columns.first().map(|definition| lower(definition.first()));
        self.first.extend(first.map(|first| (lower(Some(table)), first)));
        let known = self.tables.entry(lower(Some(table))).or_default();
        for definition in columns {
            let (name, declared) = (lower(definition.first()), declared(definition));
            let is_key = definition.iter().any(|token| token.is_word("primary"));
            let is_id = is_key && declared == "INTEGER";
            let is_not_null =
                definition.windows(2).any(|it| it[0].is_word("not") && it[1].is_word("null"));
            let has = |parts: &[&str]| parts.iter().any(|part| declared.contains(part));
            known.insert(
                name,
                Column {
                    is_text: has(&["CHAR", "CLOB", "TEXT"]),
                    is_id,
                    are_integers: has(&["INT"]),
                    are_reals: has(&["REAL", "FLOA", "DOUB"]) && !has(&["INT"]),
                    are_keys: is_key,
                    are_never_null: is_key || is_not_null,
                },
            );
        }
    }

    /// The columns that a statement may mean: of the tables that it names, or else of all.
    pub(super) fn columns(&self, tokens: &[Token<'_>]) -> Columns {
        let named: HashSet<String> = tokens.iter().map(|token| lower(Some(token))).collect();
        let has_view = named.iter().any(|name| self.views.contains(name));
        let mut columns = Columns::new();
        let is_named = |table: &String| !has_view && named.contains(table);
        for (_, of_table) in self.tables.iter().filter(|(table, _)| is_named(table)) {
            of_table.iter().for_each(|(name, column)| column.join(&mut columns, name));
        }
        let mut others = Columns::new();
        for of_table in self.tables.values() {
            let missing = of_table.iter().filter(|(name, _)| !columns.contains_key(*name));
            missing.for_each(|(name, column)| column.join(&mut others, name));
        }
        columns.extend(others);
        columns
    }
}

impl Column {
    /// Adds it to the columns of the name.
    fn join(&self, columns: &mut Columns, name: &str) {
        let all = columns.entry(name.to_owned()).or_insert(*self);
        all.is_text |= self.is_text;
        all.is_id |= self.is_id;
        all.are_integers &= self.are_integers;
        all.are_reals &= self.are_reals;
        all.are_keys &= self.are_keys;
        all.are_never_null &= self.are_never_null;
    }
}
