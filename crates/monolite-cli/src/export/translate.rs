//! Owns the translation of expressions and queries into PostgreSQL's words.
//!
//! Only what means the same there is let through: operators and [`SAME`] functions, and some
//! that have another name. The rest is refused with its reason. PostgreSQL judges the outcome; it
//! refuses what has a type that it does not take. What it takes and may mean otherwise, by a
//! column's collation or affinity or by a text that looks like a number, is a doubt.

use super::clauses;
use super::kind::Kind;
use super::value::{self, Given, KEYWORDS, is_in};
use monolite_sqlite::{Scan, Token, TokenKind};
use std::collections::{BTreeSet, HashMap};

/// Functions with the same meaning on the types that PostgreSQL takes for them.
const SAME: &str = "abs avg coalesce count dense_rank first_value lag last_value lead length lower \
    ltrim max min ntile nullif nth_value rank replace row_number rtrim substr sum trim upper";

/// The text that SQLite's CURRENT_TIMESTAMP is.
pub(super) fn moment(format: &str) -> String {
    format!("to_char(timezone('UTC', statement_timestamp()), '{format}')")
}

/// The same in the time zone of the session.
fn here(format: &str) -> String {
    format!("to_char(statement_timestamp(), '{format}')")
}

const TIMESTAMP: &str = "YYYY-MM-DD HH24:MI:SS";
const DATE: &str = "YYYY-MM-DD";
const TIME: &str = "HH24:MI:SS";

/// A name as PostgreSQL takes it literally.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as PostgreSQL takes it.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A translated text.
#[derive(Debug, Default)]
pub(super) struct Translated {
    pub(super) sql: String,
    /// What is otherwise there all the same.
    pub(super) notes: Vec<String>,
    /// By what it may have other values there.
    pub(super) doubts: BTreeSet<String>,
}

impl Translated {
    /// All that is to be said.
    pub(super) fn said(&self) -> String {
        let all: Vec<&str> = self.notes.iter().chain(&self.doubts).map(String::as_str).collect();
        all.join("; ")
    }

    /// Refuses it if it may have other values.
    pub(super) fn without_doubt(self) -> Result<Translated, String> {
        let doubts: Vec<String> = self.doubts.iter().cloned().collect();
        if doubts.is_empty() { Ok(self) } else { Err(doubts.join("; ")) }
    }
}

/// What is known of a column that a name may stand for.
#[derive(Clone)]
pub(super) struct Meant {
    pub(super) kind: Kind,
    /// One other than BINARY.
    pub(super) collation: Option<String>,
    /// Whether it is compared as a text with all texts.
    pub(super) is_text: bool,
    /// Whether some of its numbers are integers here, and none there.
    pub(super) has_integers: bool,
}

/// What a name stands for.
#[derive(Clone, Default)]
struct Named {
    sql: String,
    columns: Vec<Meant>,
}

/// Names that a text may use in any case, and as they are written in the schema.
#[derive(Clone, Default)]
pub(super) struct Names(HashMap<String, Named>);

impl Names {
    /// Lets `name` stand for the column `column`, if it stands for none.
    pub(super) fn alias(&mut self, name: &str, column: &str) {
        self.named(name, column);
    }

    /// Likewise; it may be the column of several tables.
    pub(super) fn column(&mut self, name: &str, column: &str, of: Meant) {
        self.named(name, column).columns.push(of);
    }

    fn named(&mut self, name: &str, column: &str) -> &mut Named {
        let named = || Named { sql: quoted(column), columns: Vec::new() };
        self.0.entry(name.to_lowercase()).or_insert_with(named)
    }

    fn find(&self, name: &str) -> Option<&Named> {
        self.0.get(&name.to_lowercase())
    }
}

/// Translates an expression or a query, or says what in it has no counterpart.
pub(super) fn translate(sql: &str, names: &Names) -> Result<Translated, String> {
    if let Some(now) = of_now(sql) {
        let note = "in the session's time zone, not the machine's";
        let notes = Vec::from_iter(sql.contains("localtime").then(|| note.to_owned()));
        return Ok(Translated { sql: now, notes, ..Translated::default() });
    }
    let all: Vec<Token<'_>> = Scan::of(sql).collect();
    let out = Translated { sql: String::with_capacity(sql.len()), ..Translated::default() };
    let mut work = Work {
        all,
        names: names.clone(),
        out,
        columns: Vec::new(),
        texts: Vec::new(),
        cast_to: Vec::new(),
        casts: Vec::new(),
        orders: Vec::new(),
        depth: 0,
    };
    let mut at = 0;
    while at < work.all.len() {
        at = work.token(at)?;
    }
    work.end_term();
    work.doubt();
    work.out.notes.sort_unstable();
    work.out.notes.dedup();
    Ok(work.out)
}

/// Calls of date functions that give the present.
fn of_now(sql: &str) -> Option<String> {
    let bare: String = sql.chars().filter(|sign| !sign.is_whitespace()).collect();
    let mut call = bare.as_str();
    while let Some(inner) = call.strip_prefix('(').and_then(|call| call.strip_suffix(')')) {
        call = inner;
    }
    let (function, arguments) = call.strip_suffix(')')?.split_once('(')?;
    const EPOCH: &str = "floor(extract(epoch FROM statement_timestamp()))::bigint";
    Some(match (function.to_ascii_lowercase().as_str(), arguments) {
        ("datetime", "'now'" | "") => moment(TIMESTAMP),
        ("date", "'now'" | "") => moment(DATE),
        ("time", "'now'" | "") => moment(TIME),
        ("datetime", "'now','localtime'") => here(TIMESTAMP),
        ("date", "'now','localtime'") => here(DATE),
        ("time", "'now','localtime'") => here(TIME),
        ("unixepoch", "'now'" | "") => EPOCH.into(),
        ("strftime", "'%s','now'") => format!("{EPOCH}::text"),
        ("strftime", "'%Y-%m-%dT%H:%M:%fZ','now'") => moment("YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\""),
        ("strftime", "'%Y-%m-%dT%H:%M:%SZ','now'") => moment("YYYY-MM-DD\"T\"HH24:MI:SS\"Z\""),
        _ => return None,
    })
}

struct Work<'s> {
    all: Vec<Token<'s>>,
    names: Names,
    out: Translated,
    /// The columns that were named.
    columns: Vec<Meant>,
    /// The texts that may be compared with something.
    texts: Vec<String>,
    /// The types of CASTs.
    cast_to: Vec<&'static str>,
    /// The depths of open CASTs.
    casts: Vec<usize>,
    orders: Vec<Order>,
    depth: usize,
}

/// An ORDER BY that is open, and its term.
struct Order {
    depth: usize,
    is_descending: bool,
    has_nulls: bool,
}

impl<'s> Work<'s> {
    /// The number of the next token behind `at` that is no blank.
    fn next(&self, at: usize) -> Option<usize> {
        (at + 1..self.all.len()).find(|at| self.all[*at].kind != TokenKind::Blank)
    }

    fn before(&self, at: usize) -> Option<&Token<'s>> {
        self.all[..at].iter().rev().find(|token| token.kind != TokenKind::Blank)
    }

    fn is_next(&self, at: usize, word: &str) -> Option<usize> {
        self.next(at).filter(|next| self.all[*next].is_word(word))
    }

    fn follows(&self, at: usize, word: &str) -> bool {
        self.before(at).is_some_and(|token| token.is_word(word))
    }

    fn push(&mut self, text: &str) {
        self.out.sql.push_str(text);
    }

    fn note(&mut self, note: &str) {
        self.out.notes.push(note.to_owned());
    }

    /// Translates the token at `at`, and returns the number of the next.
    fn token(&mut self, at: usize) -> Result<usize, String> {
        let token = self.all[at];
        match token.kind {
            TokenKind::Blank => self.push(" "),
            TokenKind::Word => return self.word(at),
            TokenKind::Quoted | TokenKind::Text if self.follows(at, "as") => self.alias(&token),
            TokenKind::Text => self.literal(at, token.name().unwrap_or_default()),
            TokenKind::Quoted => {
                let name = token.name().unwrap_or_default();
                match self.names.find(&name).cloned() {
                    Some(known) => self.known(at, &known),
                    // SQLite takes double quotes around no name for a string.
                    None if token.text.starts_with('"') => self.literal(at, name),
                    None => self.push(&quoted(&name)),
                }
            }
            TokenKind::Number => {
                let digits = token.text.replace('_', "");
                match digits.to_ascii_lowercase().strip_prefix("0x") {
                    Some(hex) => {
                        let number = u64::from_str_radix(hex, 16).map_err(|e| e.to_string())?;
                        self.push(&number.cast_signed().to_string());
                    }
                    // It would be numeric.
                    None if digits.contains(['.', 'e', 'E']) => {
                        self.push(&format!("{digits}::double precision"));
                    }
                    None => self.push(&digits),
                }
            }
            TokenKind::Parameter | TokenKind::Unended => return Err("a parameter".into()),
            TokenKind::Sign(sign) => return self.sign(at, sign),
        }
        Ok(at + 1)
    }

    fn alias(&mut self, token: &Token<'_>) {
        let name = token.name().unwrap_or_default();
        self.out.sql.push_str(&self.names.named(&name, &name).sql);
    }

    /// A name of the schema at `at`.
    fn known(&mut self, at: usize, known: &Named) {
        self.push(&known.sql);
        // Neither has a collation: the result of a function, and a question for NULL.
        let solid = |it: &&Token<'_>| it.kind != TokenKind::Blank;
        let behind: Vec<_> = self.all[at + 1..].iter().filter(solid).take(3).collect();
        let is_null = behind.first().is_some_and(|it| it.is_word("is"))
            && behind.iter().any(|it| it.is_word("null"));
        let mut before = self.all[..at].iter().rev().filter(solid);
        let is_bare = is_null
            || before.next().is_some_and(|it| it.kind == TokenKind::Sign(b'('))
                && before
                    .next()
                    .is_some_and(|it| is_in("lower upper length", &it.text.to_ascii_lowercase()));
        for column in &known.columns {
            if let Some(collation) = column.collation.as_ref().filter(|_| !is_bare) {
                let doubt = format!("{} is compared by its bytes, not by {collation}", known.sql);
                self.out.doubts.insert(doubt);
            }
        }
        self.columns.extend(known.columns.iter().cloned());
    }

    /// What the types of all columns say of the texts and divisions beside them.
    fn doubt(&mut self) {
        let is = |is_it: fn(&Meant) -> bool| self.columns.iter().any(is_it);
        let numbers = self.texts.iter().filter(|text| text.trim().parse::<f64>().is_ok());
        let mut doubts = Vec::new();
        // PostgreSQL refuses other texts where a number is.
        if self.columns.is_empty() || is(|column| !column.is_text) {
            doubts.extend(
                numbers.map(|text| format!("{} may be compared as another type", literal(text))),
            );
        }
        if !self.texts.is_empty() && is(|column| column.kind == Kind::Bytea) {
            doubts.push("a text may be compared as a blob".to_owned());
        }
        let has = |signs: &[u8]| {
            self.all
                .iter()
                .any(|it| matches!(it.kind, TokenKind::Sign(sign) if signs.contains(&sign)))
        };
        let tokens = self.solid();
        let has_mixture = self.has_mixture(&tokens);
        if (has_mixture || is(|column| column.has_integers)) && has(b"/%") {
            doubts.push("a division of integers leaves out the fraction in SQLite".to_owned());
        }
        let casts = |to: &str| self.cast_to.contains(&to);
        let (mut is_from_text, mut texts) = (false, Vec::from_iter(value::joined(&tokens)));
        for (value, to) in value::casts(&tokens) {
            match cast(&to) {
                Ok("text") => texts.push(value),
                _ => is_from_text |= value.iter().any(|it| it.kind == TokenKind::Text),
            }
        }
        let gives =
            |is_it: fn(&Given) -> bool| texts.iter().any(|it| is_it(&value::given(it, &|_| false)));
        if (has(b"|") || casts("text"))
            && is(|column| !matches!(column.kind, Kind::Text | Kind::Bigint))
            || gives(|it| it.is_real_or_blob)
        {
            doubts.push("a real or blob is another text: 2, not 2.0".to_owned());
        }
        if gives(|it| it.is_boolean) {
            doubts.push("a comparison is another text: true, not 1".to_owned());
        }
        let has_text =
            (casts("double precision") || casts("numeric")) && is(|it| it.kind == Kind::Text);
        if has_text || is_from_text {
            doubts.push("a CAST of a text that is no number fails".to_owned());
        }
        let has_several_rows = value::has_several_rows(&tokens);
        self.out.doubts.extend(doubts);
        if has_mixture {
            self.note("integers beside reals are reals");
        }
        if has_several_rows {
            self.note("a subquery of several rows fails, and is the first of them in SQLite");
        }
    }

    /// The tokens that are no blanks.
    fn solid(&self) -> Vec<Token<'s>> {
        self.all.iter().filter(|it| it.kind != TokenKind::Blank).copied().collect()
    }

    /// Whether something gives an integer or a real. What a view's columns are is not known.
    fn has_mixture(&self, tokens: &[Token<'s>]) -> bool {
        let of = |token: &Token<'_>| {
            let columns = token.name().and_then(|name| Some(&self.names.find(&name)?.columns));
            columns.map_or((false, false), |columns| {
                let is =
                    |is_it: fn(&Meant) -> bool| columns.is_empty() || columns.iter().any(is_it);
                (
                    is(|it| it.kind == Kind::Bigint || it.has_integers),
                    is(|it| matches!(it.kind, Kind::Double | Kind::Numeric)),
                )
            })
        };
        !clauses::mixtures(tokens, of).is_empty()
    }

    fn literal(&mut self, at: usize, content: String) {
        self.push(&literal(&content));
        let mut before =
            self.all[..at].iter().rev().filter(|it| it.kind != TokenKind::Blank).skip(1);
        if before.next().is_some_and(|it| it.is_word("upper") || it.is_word("lower")) {
            // The database's collation would be that of a constant.
            self.push(" COLLATE \"C\"");
        }
        let is_joined =
            |it: Option<&Token<'_>>| it.is_some_and(|it| it.kind == TokenKind::Sign(b'|'));
        let next = self.next(at).map(|next| &self.all[next]);
        if !is_joined(self.before(at)) && !is_joined(next) && !self.follows(at, "like") {
            self.texts.push(content);
        }
    }

    fn sign(&mut self, at: usize, sign: u8) -> Result<usize, String> {
        let second = self.all.get(at + 1).map(|token| token.kind);
        match (sign, second) {
            (b'=', Some(TokenKind::Sign(b'='))) => {
                self.push("=");
                return Ok(at + 2);
            }
            (b'|', Some(TokenKind::Sign(b'|'))) if self.is_beside_arithmetic(at) => {
                return Err("|| beside an operator that binds tighter there".into());
            }
            (b'-', Some(TokenKind::Sign(b'>'))) => return Err("-> on JSON in a text".into()),
            (b'<' | b'>', Some(TokenKind::Sign(second))) if second == sign => {
                return self.shift(at);
            }
            (b'~', _) => {
                let (tokens, place) = self.solid_at(at);
                let then = tokens.get(value::end(&tokens, place)).map(|it| it.kind);
                if let Some(TokenKind::Sign(b'+' | b'-' | b'*' | b'/' | b'%')) = then {
                    return Err("~ beside an operator that binds tighter there".into());
                }
            }
            (b'/' | b'%', _) => {
                self.note("a division by zero fails, and is NULL in SQLite");
            }
            (b'(', _) => self.depth += 1,
            (b',', _) => self.end_term(),
            (b')', _) => {
                self.end_order();
                self.casts.retain(|depth| *depth < self.depth);
                self.depth = self.depth.saturating_sub(1);
            }
            _ => {}
        }
        self.push(self.all[at].text);
        Ok(at + 1)
    }

    /// Whether an operand of `||` at `at` is one of an operator that does not bind tighter, too.
    fn is_beside_arithmetic(&self, at: usize) -> bool {
        let (tokens, at) = self.solid_at(at);
        let is_in = |at: usize, signs: &[u8]| {
            let kind = tokens.get(at).map(|it| it.kind);
            matches!(kind, Some(TokenKind::Sign(sign)) if signs.contains(&sign))
        };
        let before = value::start(&tokens, at).wrapping_sub(1);
        let earlier = before.wrapping_sub(1);
        is_in(before, b"+-*/%&")
            || is_in(before, b"|") && !is_in(earlier, b"|")
            || is_in(before, b"<") && is_in(earlier, b"<")
            || is_in(before, b">") && is_in(earlier, b">")
            || is_in(value::end(&tokens, at + 2), b"+-*/%")
    }

    /// Shifts by what SQLite and PostgreSQL take alike, of 64 bits.
    fn shift(&mut self, at: usize) -> Result<usize, String> {
        let (tokens, place) = self.solid_at(at);
        let by = tokens.get(place + 2).filter(|it| it.text.parse().is_ok_and(|by: u8| by < 64));
        let then = tokens.get(place + 3).map(|it| it.kind);
        if by.is_none() || matches!(then, Some(TokenKind::Sign(b'+' | b'-' | b'*' | b'/' | b'%'))) {
            return Err("a shift by no number from 0 to 63".into());
        }
        let known = tokens[..place].last().filter(|it| it.kind != TokenKind::Text);
        let known = known.and_then(|it| self.names.find(&it.name()?));
        let is_bigint = known.is_some_and(|known| {
            !known.columns.is_empty() && known.columns.iter().all(|it| it.kind == Kind::Bigint)
        });
        // A shift before this one has made it so.
        let is_shifted = place > 2
            && [place - 3, place - 2]
                .iter()
                .all(|at| matches!(tokens[*at].kind, TokenKind::Sign(b'<' | b'>')));
        // Literals and length() have 32 bits there.
        self.push(if is_bigint || is_shifted { "" } else { "* 1::bigint " });
        self.push(&self.all[at].text.repeat(2));
        Ok(at + 2)
    }

    /// The tokens that are no blanks, and the place of the one at `at` among them.
    fn solid_at(&self, at: usize) -> (Vec<Token<'s>>, usize) {
        let place = self.all[..at].iter().filter(|it| it.kind != TokenKind::Blank).count();
        (self.solid(), place)
    }

    fn word(&mut self, at: usize) -> Result<usize, String> {
        let token = self.all[at];
        let word = token.text.to_ascii_lowercase();
        let next = self.next(at).map(|next| self.all[next]);
        let is_call = next.is_some_and(|next| next.kind == TokenKind::Sign(b'('));
        let is_text = self.all.get(at + 1).is_some_and(|next| next.kind == TokenKind::Text);
        if word == "x" && is_text {
            let digits = self.all[at + 1].text.trim_matches('\'');
            self.push(&format!("'\\x{digits}'::bytea"));
            return Ok(at + 2);
        }
        if self.follows(at, "as") && self.casts.last() == Some(&self.depth) {
            let to = cast(&word)?;
            self.cast_to.push(to);
            self.push(to);
            return Ok(at + 1);
        }
        let is_part = self.before(at).is_some_and(|token| token.kind == TokenKind::Sign(b'.'));
        if is_call && !is_part && !is_in(KEYWORDS, &word) {
            return self.call(at, &word);
        }
        if self.follows(at, "as") && !is_call && word != "select" && word != "materialized" {
            self.alias(&token);
            return Ok(at + 1);
        }
        if self.names.find(&word).is_none() {
            self.ordering(&word);
        }
        match word.as_str() {
            "is" => return Ok(self.is(at)),
            "intersect"
                if self.all.iter().any(|it| it.is_word("union") || it.is_word("except")) =>
            {
                return Err("INTERSECT, which binds tighter there".into());
            }
            "limit" if next.is_some_and(|it| it.kind == TokenKind::Sign(b'-')) => {
                return Err("a negative LIMIT".into());
            }
            "not" if self.is_next(at, "null").is_some() => self.push("IS NOT"),
            "like" => return self.like(at),
            "glob" | "match" | "regexp" | "indexed" | "raise" => {
                return Err(word.to_ascii_uppercase());
            }
            "collate" => {
                let name = next.and_then(|next| next.name()).unwrap_or_default();
                if !name.eq_ignore_ascii_case("binary") {
                    return Err(format!("COLLATE {name}"));
                }
                self.push("COLLATE \"C\"");
                return Ok(self.next(at).unwrap_or(at) + 1);
            }
            "current_timestamp" => self.push(&moment(TIMESTAMP)),
            "current_date" => self.push(&moment(DATE)),
            "current_time" => self.push(&moment(TIME)),
            "true" | "false" if self.follows(at, "is") || self.follows(at, "not") => {
                return Err(format!("IS {word} of a number"));
            }
            "true" => self.push("1"),
            "false" => self.push("0"),
            word if is_in(KEYWORDS, word) => self.push(token.text),
            _ => match self.names.find(&word).cloned() {
                Some(known) => self.known(at, &known),
                None if ["rowid", "_rowid_", "oid"].contains(&word.as_str()) => return Err(word),
                None => self.push(token.text),
            },
        }
        Ok(at + 1)
    }

    /// What a word does to ORDER BY.
    fn ordering(&mut self, word: &str) {
        let depth = self.depth;
        match (word, self.order()) {
            ("order", _) => {
                self.orders.push(Order { depth, is_descending: false, has_nulls: false });
            }
            ("limit" | "rows" | "range" | "groups", _) => self.end_order(),
            ("desc", Some(order)) => order.is_descending = true,
            ("nulls", Some(order)) => order.has_nulls = true,
            _ => {}
        }
    }

    /// The ORDER BY whose term is here.
    fn order(&mut self) -> Option<&mut Order> {
        let depth = self.depth;
        self.orders.last_mut().filter(|order| order.depth == depth)
    }

    /// Sorts NULLs as SQLite does.
    fn end_term(&mut self) {
        let Some(order) = self.order() else { return };
        let new = Order { depth: order.depth, is_descending: false, has_nulls: false };
        let nulls = match std::mem::replace(order, new) {
            Order { has_nulls: true, .. } => "",
            Order { is_descending: true, .. } => " NULLS LAST ",
            _ => " NULLS FIRST ",
        };
        self.push(nulls);
    }

    fn end_order(&mut self) {
        if self.order().is_some() {
            self.end_term();
            self.orders.pop();
        }
    }

    /// `IS` compares any two values.
    fn is(&mut self, at: usize) -> usize {
        let not = self.is_next(at, "not");
        let last = not.unwrap_or(at);
        let is_distinct = self.is_next(last, "distinct").is_some();
        let text = match (self.is_next(last, "null").is_some() || is_distinct, not.is_some()) {
            (true, false) => "IS",
            (true, true) => "IS NOT",
            (false, false) => "IS NOT DISTINCT FROM",
            (false, true) => "IS DISTINCT FROM",
        };
        self.push(text);
        last + 1
    }

    /// `LIKE` takes no notice of the case of ASCII, and has no escape.
    fn like(&mut self, at: usize) -> Result<usize, String> {
        let pattern = self.next(at).map(|next| self.all[next]);
        let is_plain =
            pattern.is_some_and(|it| it.kind == TokenKind::Text && !it.text.contains('\\'));
        if !is_plain {
            return Err("LIKE with a pattern that is no plain text".into());
        }
        self.push("ILIKE");
        Ok(at + 1)
    }

    fn call(&mut self, at: usize, name: &str) -> Result<usize, String> {
        match name {
            "cast" => {
                self.casts.push(self.depth + 1);
                self.push("CAST");
            }
            "ifnull" => self.push("coalesce"),
            "instr" => self.push("strpos"),
            "substring" => return self.call(at, "substr"),
            "max" | "min" if self.arguments(at).len() > 1 => {
                return Err(format!("{name}() of several values, which is NULL if one is"));
            }
            // PostgreSQL does not count from the end.
            "substr" if self.arguments(at).get(1).is_none_or(|place| !is_positive(place)) => {
                return Err("substr() from a place that is no positive number".into());
            }
            _ if is_in(SAME, name) => {
                if name == "substr" {
                    self.has_length(at)?;
                }
                if name == "sum" || name == "avg" {
                    self.note("sums and means of integers are numeric");
                }
                self.push(name);
            }
            _ if self.names.find(name).is_some() || self.is_table_list(at) => {
                let known = self.names.find(name).map(|known| known.sql.clone());
                self.push(&known.unwrap_or_else(|| name.to_owned()));
            }
            _ => return Err(format!("the function {name}()")),
        }
        Ok(at + 1)
    }

    /// Looks at how many letters the substr() at `at` gives.
    fn has_length(&mut self, at: usize) -> Result<(), String> {
        let length = self.arguments(at).get(2).filter(|it| it.contains('-')).cloned();
        if length.as_deref().is_some_and(|it| it.replace(' ', "").parse::<i64>().is_ok()) {
            return Err("substr() of a negative length".into());
        }
        if length.is_some() {
            self.note("substr() of a negative length fails, and counts backwards in SQLite");
        }
        Ok(())
    }

    /// Whether the name with parentheses at `at` is a common table expression with its columns.
    fn is_table_list(&self, at: usize) -> bool {
        let is_comma = self.before(at).is_some_and(|token| token.kind == TokenKind::Sign(b','));
        let is_first = self.follows(at, "with") || self.follows(at, "recursive");
        let starts = self.all.iter().find(|token| token.kind != TokenKind::Blank);
        let is_with = starts.is_some_and(|token| token.is_word("with"));
        is_first || (is_comma && is_with && self.depth == 0)
    }

    /// The texts of a call's arguments.
    fn arguments(&self, at: usize) -> Vec<String> {
        let (mut depth, mut arguments) = (0_usize, vec![String::new()]);
        for token in &self.all[at + 1..] {
            match token.kind {
                TokenKind::Sign(b'(') => depth += 1,
                TokenKind::Sign(b')') if depth == 1 => break,
                TokenKind::Sign(b')') => depth -= 1,
                TokenKind::Sign(b',') if depth == 1 => {
                    arguments.push(String::new());
                    continue;
                }
                _ => {}
            }
            arguments.last_mut().expect("it has one").push_str(token.text);
        }
        arguments
    }
}

fn is_positive(place: &str) -> bool {
    place.trim().parse::<u32>().is_ok_and(|place| place > 0)
}

fn cast(kind: &str) -> Result<&'static str, String> {
    Ok(match kind {
        "text" | "varchar" | "char" => "text",
        "real" | "double" | "float" => "double precision",
        "numeric" | "decimal" => "numeric",
        // SQLite cuts off what PostgreSQL rounds, and makes 0 of a text without a number.
        _ => return Err(format!("CAST AS {}", kind.to_ascii_uppercase())),
    })
}
