//! Owns what is read in the texts of a schema, token by token, and what is written in them: other
//! names. Whether a text is right SQL, SQLite says.

use crate::names::quoted;
use crate::scan::{Scan, Token, TokenKind};

/// The names of a rowid that has none.
pub(super) const ROWID: [&str; 3] = ["rowid", "_rowid_", "oid"];

/// A statement that creates a table of the main database.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::connection) struct Creation<'s> {
    sql: &'s str,
    /// The name of the table.
    pub(in crate::connection) table: String,
    /// Which of the tokens it is.
    place: usize,
    /// Whether its columns are those of a query.
    pub(super) is_of_query: bool,
}

impl Creation<'_> {
    /// Reads `sql`; `None` if it creates no such table.
    pub(in crate::connection) fn read(sql: &str) -> Option<Creation<'_>> {
        let tokens = tokens(sql);
        let is = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.is_word(word));
        if !is(0, "CREATE") || !is(1, "TABLE") {
            return None;
        }
        let mut place = if is(2, "IF") && is(3, "NOT") && is(4, "EXISTS") { 5 } else { 2 };
        if is_dot(tokens.get(place + 1)) {
            if !tokens[place].name()?.eq_ignore_ascii_case("main") {
                return None;
            }
            place += 2;
        }
        let table = tokens.get(place)?.name()?;
        Some(Creation { sql, table, place, is_of_query: is(place + 1, "AS") })
    }

    /// What SQLite keeps of it in the schema.
    pub(super) fn definition(&self) -> String {
        let tokens = tokens(self.sql);
        let end = tokens.last().map_or(self.sql.len(), Token::end);
        format!("CREATE TABLE {}", &self.sql[tokens[self.place].at..end])
    }

    /// The same of a table with the name `to`.
    pub(super) fn renamed(&self, to: &str) -> String {
        renamed(self.sql, &self.table, to, |at| (at == self.place).then(|| to.to_owned()))
    }
}

/// The definition `sql` of an index on `table`, as that of an index `name` on the table `to`.
pub(super) fn index_on(sql: &str, table: &str, to: &str, name: &str) -> String {
    let place = tokens(sql).iter().position(|it| it.is_word("INDEX")).unwrap_or(0);
    renamed(sql, table, to, |at| match at.checked_sub(place) {
        Some(1) => Some(name.to_owned()),
        Some(3) => Some(to.to_owned()),
        _ => None,
    })
}

/// What SQLite keeps of the index on `table` that `sql` creates, with its name; `None` if it
/// creates none, or only if there is none yet.
pub(super) fn index_of(sql: &str, table: &str) -> Option<(String, String)> {
    let tokens = tokens(sql);
    let place = tokens.iter().take(3).position(|it| it.is_word("INDEX"))?;
    let name = tokens.get(place + 1)?;
    let is_on = tokens.get(place + 2)?.is_word("ON")
        && tokens.get(place + 3)?.name()?.eq_ignore_ascii_case(table);
    if !tokens[0].is_word("CREATE") || !is_on {
        return None;
    }
    let kind = if place == 2 { "UNIQUE INDEX" } else { "INDEX" };
    let definition = format!("CREATE {kind} {}", &sql[name.at..tokens.last()?.end()]);
    Some((name.name()?, definition))
}

/// Where `FROM` is in `sql`, a SELECT of nothing but `table` that gives something of each row;
/// `None` if it may be another one. Whether it groups rows, SQLite says.
pub(super) fn from_alone(sql: &str, table: &str) -> Option<usize> {
    let tokens = tokens(sql);
    let is = |at: usize, words: &[&str]| {
        tokens.get(at).is_some_and(|it| words.iter().any(|word| it.is_word(word)))
    };
    let selects = tokens.iter().filter(|it| it.is_word("SELECT")).count();
    let from = tokens.iter().rposition(|it| it.is_word("FROM"))?;
    if !is(0, &["SELECT"]) || selects != 1 || is(1, &["DISTINCT", "ALL"]) {
        return None;
    }
    let at = if is_dot(tokens.get(from + 2)) { from + 3 } else { from + 1 };
    if !tokens.get(at)?.name()?.eq_ignore_ascii_case(table) {
        return None;
    }
    let alias = if is(at + 1, &["AS"]) { at + 2 } else { at + 1 };
    let clauses = ["WHERE", "GROUP", "ORDER", "LIMIT", "JOIN", "NATURAL", "INDEXED", "NOT"];
    let is_end = alias >= tokens.len() || alias + 1 == tokens.len() && !is(alias, &clauses);
    is_end.then(|| tokens[from].at)
}

/// The columns that `sql`, a SELECT of one table, gives as they are, under their own names.
pub(super) fn columns_alone(sql: &str) -> Vec<String> {
    // A value, whatever columns there are: a number, NULL, or one of the words for a time.
    let is_value = |it: &Token<'_>| {
        let begins =
            |with: &str| it.text.get(..with.len()).is_some_and(|it| it.eq_ignore_ascii_case(with));
        it.text.starts_with(|first: char| first.is_ascii_digit())
            || it.is_word("NULL")
            || begins("CURRENT_")
    };
    let tokens = tokens(sql);
    let from = tokens.iter().rposition(|it| it.is_word("FROM")).unwrap_or(0);
    let (mut depth, mut items) = (0_u32, vec![Vec::new()]);
    for token in tokens.iter().take(from).skip(1) {
        match token.kind {
            TokenKind::Sign(b'(') => depth += 1,
            TokenKind::Sign(b')') => depth = depth.saturating_sub(1),
            TokenKind::Sign(b',') if depth == 0 => {
                items.push(Vec::new());
                continue;
            }
            _ => {}
        }
        items.last_mut().expect("there is one").push(token);
    }
    let alone = |item: &Vec<&Token<'_>>| match item[..] {
        [one] if one.kind != TokenKind::Text && !is_value(one) => one.name(),
        _ => None,
    };
    items.iter().filter_map(alone).collect()
}

/// The definition `sql` of a table without its foreign keys: in place of each is a name of a
/// constraint without one, which SQLite takes wherever a constraint may be.
pub(super) fn without_references(sql: &str) -> String {
    let tokens = tokens(sql);
    let is = |at: usize, word: &str| tokens.get(at).is_some_and(|it| it.is_word(word));
    let behind_list = |mut at: usize| {
        if tokens.get(at).is_some_and(|it| it.kind == TokenKind::Sign(b'(')) {
            let is_end = |it: &Token<'_>| it.kind == TokenKind::Sign(b')');
            at += tokens[at..].iter().position(is_end).map_or(1, |end| end + 1);
        }
        at
    };
    let (mut text, mut written, mut at) = (String::new(), 0, 0);
    while at < tokens.len() {
        let first = at;
        if is(at, "FOREIGN") && is(at + 1, "KEY") {
            at = behind_list(at + 2);
        }
        if !is(at, "REFERENCES") {
            at = first + 1;
            continue;
        }
        at = behind_list(at + 2);
        loop {
            at += match () {
                () if is(at, "ON") && (is(at + 2, "SET") || is(at + 2, "NO")) => 4,
                () if is(at, "ON") => 3,
                () if is(at, "MATCH") || is(at, "INITIALLY") => 2,
                () if is(at, "NOT") && is(at + 1, "DEFERRABLE") => 2,
                () if is(at, "DEFERRABLE") => 1,
                () => break,
            };
        }
        text.push_str(&sql[written..tokens[first].at]);
        text.push_str("CONSTRAINT \"none\"");
        written = tokens[at - 1].end();
    }
    text + &sql[written..]
}

/// The columns that the trigger `sql` names behind `UPDATE OF`.
pub(super) fn updated_columns(sql: &str) -> Vec<String> {
    let tokens = tokens(sql);
    let is_of = |pair: &[Token<'_>]| pair[0].is_word("UPDATE") && pair[1].is_word("OF");
    let event = tokens.windows(2).position(is_of);
    let body = tokens.iter().position(|it| it.is_word("BEGIN")).unwrap_or(tokens.len());
    let Some(first) = event.map(|at| at + 2).filter(|at| *at < body) else { return Vec::new() };
    let names = tokens[first..body].iter().take_while(|it| !it.is_word("ON"));
    names.filter_map(Token::name).collect()
}

/// Whether `sql` may name `column`.
pub(super) fn names_one(sql: &str, column: &str) -> bool {
    let names = tokens(sql).into_iter().filter(|it| it.kind != TokenKind::Text);
    names.filter_map(|it| it.name()).any(|it| it.eq_ignore_ascii_case(column))
}

/// Whether `sql` inserts rows into `table` by the places of its columns.
pub(super) fn inserts_by_place(sql: &str, table: &str) -> bool {
    let tokens = tokens(sql);
    let is_it = |at: usize| {
        let at = if is_dot(tokens.get(at + 1)) { at + 2 } else { at };
        let name = tokens.get(at).and_then(Token::name);
        let has_columns = tokens.get(at + 1).is_some_and(|it| it.kind == TokenKind::Sign(b'('));
        name.is_some_and(|name| name.eq_ignore_ascii_case(table)) && !has_columns
    };
    tokens.iter().enumerate().any(|(at, token)| token.is_word("INTO") && is_it(at + 1))
}

/// Whether `sql` begins with `SELECT`, `WITH` or `VALUES`.
pub(in crate::connection) fn is_query(sql: &str) -> bool {
    let first = tokens(sql).into_iter().next();
    first.is_some_and(|it| ["SELECT", "WITH", "VALUES"].iter().any(|word| it.is_word(word)))
}

/// Whether the index `sql` has one of `names` where SQLite gives a name another meaning if no
/// column has it: in double quotes that of a text, and some names that of the rowid.
pub(super) fn may_mean_else(sql: &str, names: &[String]) -> bool {
    let is_one = |name: String| names.iter().any(|it| it.eq_ignore_ascii_case(&name));
    // What is before has the names of the index and its table.
    let columns = tokens(sql).into_iter().skip_while(|it| it.kind != TokenKind::Sign(b'('));
    let mut may_be = columns
        .filter(|it| it.kind == TokenKind::Quoted || ROWID.iter().any(|name| it.is_word(name)));
    may_be.any(|it| it.name().is_some_and(is_one))
}

/// `sql` with what `named` gives for the tokens at these places, and with `to` where `table`
/// qualifies a column.
fn renamed(sql: &str, table: &str, to: &str, named: impl Fn(usize) -> Option<String>) -> String {
    let tokens = tokens(sql);
    let (mut text, mut written) = (String::new(), 0);
    for (at, token) in tokens.iter().enumerate() {
        let qualifies = || {
            let is_it = token.name().is_some_and(|name| name.eq_ignore_ascii_case(table));
            (is_it && is_dot(tokens.get(at + 1))).then(|| to.to_owned())
        };
        if let Some(name) = named(at).or_else(qualifies) {
            text.push_str(&sql[written..token.at]);
            text.push_str(&quoted(&name));
            written = token.end();
        }
    }
    text + &sql[written..]
}

fn is_dot(token: Option<&Token<'_>>) -> bool {
    token.is_some_and(|it| it.kind == TokenKind::Sign(b'.'))
}

/// The tokens of one statement that say something.
fn tokens(sql: &str) -> Vec<Token<'_>> {
    let says = |it: &Token<'_>| !matches!(it.kind, TokenKind::Blank | TokenKind::Sign(b';'));
    Scan::of(sql).filter(says).collect()
}

#[test]
fn a_creation_is_read_and_renamed() {
    let of = |sql| Creation::read(sql).map(|it| (it.definition(), it.renamed("n")));
    let is = |one: &str, other: &str| Some((one.to_owned(), other.to_owned()));
    assert_eq!(
        of(
            " create table if not exists main . \"A b\"(x CHECK ([a B] . x <> 'a b.')) STRICT; -- y"
        ),
        is(
            "CREATE TABLE \"A b\"(x CHECK ([a B] . x <> 'a b.')) STRICT",
            " create table if not exists main . \"n\"(x CHECK (\"n\" . x <> 'a b.')) STRICT; -- y",
        )
    );
    for sql in ["CREATE TEMP TABLE t(v)", "CREATE TABLE temp.t(v)", "CREATE VIEW t AS SELECT 1"] {
        assert_eq!(of(sql), None, "{sql}");
    }
    assert!(Creation::read("CREATE TABLE t AS SELECT 1").unwrap().is_of_query);
}

#[test]
fn an_index_is_renamed_with_what_qualifies_columns() {
    assert_eq!(
        index_on("CREATE UNIQUE INDEX \"by t\" ON \"T\"(t) WHERE t.b > 't.b'", "t", "n", "i"),
        "CREATE UNIQUE INDEX \"i\" ON \"n\"(t) WHERE \"n\".b > 't.b'"
    );
}

#[test]
fn an_insert_by_place_has_no_columns() {
    for (sql, is_one) in [
        ("INSERT INTO T VALUES (1)", true),
        ("REPLACE INTO \"main\".[t] SELECT 1", true),
        ("INSERT OR IGNORE INTO t (a) VALUES (1)", false),
        ("INSERT INTO u VALUES ('into t')", false),
    ] {
        assert_eq!(inserts_by_place(sql, "t"), is_one, "{sql}");
    }
}

#[test]
fn the_columns_of_an_event_are_those_before_the_body() {
    let of = |event: &str, body: &str| {
        updated_columns(&format!("CREATE TRIGGER r {event} ON t BEGIN {body}; END"))
    };
    assert_eq!(of("AFTER UPDATE OF a, \"b c\"", "SELECT 1"), ["a", "b c"]);
    assert_eq!(of("AFTER UPDATE", "SELECT update_of, of FROM t"), [] as [&str; 0]);
}

#[test]
fn a_select_that_an_online_rebuild_takes_is_of_its_table_alone() {
    let from = |sql: &str| from_alone(sql, "t").map(|at| sql[at..].to_owned());
    assert_eq!(from("SELECT id, a IS DISTINCT FROM 1 AS a FROM t;").as_deref(), Some("FROM t;"));
    assert!(
        from("select id from main.\"T\" as x").is_some() && from("SELECT id FROM t x").is_some()
    );
    for sql in [
        "SELECT id FROM u",
        "SELECT id FROM t, u",
        "SELECT id FROM t WHERE id > 1",
        "SELECT DISTINCT id FROM t",
        "SELECT id, (SELECT 1 FROM u) FROM t",
        "SELECT id FROM t UNION SELECT 1 FROM t",
        "WITH t AS (SELECT 1) SELECT id FROM t",
        "SELECT id FROM t LIMIT 1",
    ] {
        assert_eq!(from(sql), None, "{sql}");
    }
}

#[test]
fn columns_are_given_as_they_are_by_their_name_alone() {
    let of = "SELECT id, \"A b\", [c], 'd', e + 1 AS e, (f), g AS g, t.h, max(i, j), 1, NULL, \
              current_day, \"current_day\", k /* all */ FROM t AS l";
    assert_eq!(columns_alone(of), ["id", "A b", "c", "current_day", "k"]);
    assert_eq!(columns_alone("SELECT * FROM t"), [] as [&str; 0]);
}

#[test]
fn foreign_keys_are_left_out_of_a_definition() {
    assert_eq!(
        without_references(
            "CREATE TABLE t(a INT CONSTRAINT k REFERENCES p(x) ON DELETE SET NULL ON UPDATE \
                CASCADE \
             NOT DEFERRABLE INITIALLY IMMEDIATE NOT NULL, b REFERENCES p, c DEFAULT 'REFERENCES', \
             FOREIGN KEY (a, b) REFERENCES q(a, b) MATCH FULL DEFERRABLE, CHECK (a > 1)) STRICT"
        ),
        "CREATE TABLE t(a INT CONSTRAINT k CONSTRAINT \"none\" NOT NULL, b CONSTRAINT \"none\", c \
         DEFAULT 'REFERENCES', CONSTRAINT \"none\", CHECK (a > 1)) STRICT"
    );
}

#[test]
fn an_index_has_the_text_that_is_kept() {
    assert_eq!(
        index_of(" create unique index \"i\" on T(a) ; -- x", "t"),
        Some(("i".into(), "CREATE UNIQUE INDEX \"i\" on T(a)".into()))
    );
    assert_eq!(index_of("CREATE INDEX IF NOT EXISTS i ON t(a)", "t"), None);
    assert_eq!(index_of("CREATE INDEX i ON u(a)", "t"), None);
}
