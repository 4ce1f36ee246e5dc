//! Owns grammars of SQL that are written as text, and how a statement is drawn from one.
//!
//! # Format
//! - `NAME:` begins a rule. The indented lines below it are its forms; several in a line have a bar
//!   with two spaces on each side between them. `~` is the empty form, and `#` begins a comment.
//! - `8* TEXT` is drawn eight times as often as `TEXT`. SQLite refuses what begins with `!`.
//! - `{WORDS}` is the rule of that name, or else what the [`Writer`] makes of the words.
//!   `{?6 TEXT}` is the text one time in six. `{1-3 WORDS}` is one to three of them, with commas.
//!   Every other brace is itself.
//! - A rule whose name ends with `+` nests: at the bottom its first form is taken.

use std::collections::BTreeMap;

use fastrand::Rng;

/// Rules by their names.
pub(super) struct Grammar(BTreeMap<&'static str, Rule>);

#[derive(Default)]
struct Rule {
    nests: bool,
    forms: Vec<Form>,
}

struct Form {
    weight: u32,
    #[cfg(test)]
    is_refused: bool,
    text: &'static str,
    parts: Vec<Part>,
}

enum Part {
    Text(&'static str),
    Words(&'static str),
    Maybe(u32, Vec<Part>),
    List(usize, usize, &'static str),
}

/// What is written with: the text so far, and how deep in it.
pub(super) struct Pen<'r> {
    pub(super) rng: &'r mut Rng,
    pub(super) sql: String,
    pub(super) depth: u32,
    /// The deepest that rules nest.
    pub(super) bottom: u32,
    /// The forms that were drawn, for tests.
    pub(super) forms: Vec<&'static str>,
}

/// Who knows the words that are no rules.
pub(super) trait Writer<'r> {
    fn pen(&mut self) -> &mut Pen<'r>;
    fn word(&mut self, words: &'static str);
}

impl<'r> Pen<'r> {
    pub(super) fn new(rng: &'r mut Rng, bottom: u32) -> Pen<'r> {
        Pen { rng, sql: String::with_capacity(128), depth: 0, bottom, forms: Vec::new() }
    }

    pub(super) fn put(&mut self, text: &str) {
        self.sql.push_str(text);
    }

    pub(super) fn one_in(&mut self, many: u32) -> bool {
        self.rng.u32(..many) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.rng.usize(..list.len())]
    }
}

impl Grammar {
    /// Reads a grammar.
    pub(super) fn new(text: &'static str) -> Grammar {
        let (mut rules, mut name) = (BTreeMap::new(), "");
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(forms) = line.strip_prefix("    ") {
                let rule: &mut Rule = rules.entry(name).or_insert_with(Rule::default);
                rule.forms.extend(forms.split("  |  ").map(Form::new));
                continue;
            }
            let head = line.trim_end_matches(':');
            name = head.trim_end_matches('+');
            rules.insert(name, Rule { nests: head != name, forms: Vec::new() });
        }
        Grammar(rules)
    }

    /// Writes a form of the rule.
    pub(super) fn write<'r>(&self, writer: &mut impl Writer<'r>, name: &str) {
        let rule = &self.0[name];
        let pen = writer.pen();
        let form = rule.draw(pen);
        if cfg!(test) {
            pen.forms.push(form.text);
        }
        pen.depth += u32::from(rule.nests);
        self.write_parts(writer, &form.parts);
        writer.pen().depth -= u32::from(rule.nests);
    }

    fn write_parts<'r>(&self, writer: &mut impl Writer<'r>, parts: &[Part]) {
        for part in parts {
            match part {
                Part::Text(text) => writer.pen().put(text),
                Part::Words(words) => self.write_words(writer, words),
                Part::Maybe(many, parts) => {
                    if writer.pen().one_in(*many) {
                        self.write_parts(writer, parts);
                    }
                }
                Part::List(least, most, words) => {
                    for number in 0..writer.pen().rng.usize(*least..=*most) {
                        writer.pen().put(if number == 0 { "" } else { ", " });
                        self.write_words(writer, words);
                    }
                }
            }
        }
    }

    fn write_words<'r>(&self, writer: &mut impl Writer<'r>, words: &'static str) {
        if self.0.contains_key(words) { self.write(writer, words) } else { writer.word(words) }
    }

    /// The texts of a rule's forms.
    pub(super) fn texts(&self, name: &str) -> Vec<&'static str> {
        self.0[name].forms.iter().map(|form| form.text).collect()
    }

    /// The forms that SQLite accepts, of all rules but some.
    #[cfg(test)]
    pub(super) fn accepted(&self, but: &[&str]) -> std::collections::BTreeSet<&'static str> {
        let rules = self.0.iter().filter(|(name, _)| !but.contains(name));
        let forms = rules.flat_map(|(_, rule)| &rule.forms).filter(|form| !form.is_refused);
        forms.map(|form| form.text).collect()
    }
}

impl Rule {
    fn draw(&self, pen: &mut Pen<'_>) -> &Form {
        if self.nests && pen.depth >= pen.bottom {
            return &self.forms[0];
        }
        let total: u32 = self.forms.iter().map(|form| form.weight).sum();
        let mut drawn = pen.rng.u32(..total);
        let is_it = |form: &&Form| {
            let is_it = drawn < form.weight;
            drawn = drawn.saturating_sub(form.weight);
            is_it
        };
        self.forms.iter().find(is_it).expect("what is drawn is below the sum of the weights")
    }
}

impl Form {
    fn new(text: &'static str) -> Form {
        let (weight, text) = match text.split_once("* ") {
            Some((number, rest)) => match number.parse() {
                Ok(weight) => (weight, rest),
                Err(_) => (1, text),
            },
            None => (1, text),
        };
        #[cfg(test)]
        let is_refused = text.starts_with("! ");
        let text = text.trim_start_matches("! ");
        let (parts, _) = parts(if text == "~" { "" } else { text });
        Form {
            weight,
            #[cfg(test)]
            is_refused,
            text,
            parts,
        }
    }
}

/// The parts of a text up to its closing brace, and what is behind it.
fn parts(mut text: &'static str) -> (Vec<Part>, &'static str) {
    let (mut parts, mut from, mut own) = (Vec::new(), 0, 0);
    while let Some(at) = text[from..].find(['{', '}']).map(|at| from + at) {
        let behind = &text[at + 1..];
        let is_open = text[at..].starts_with('{');
        let is_ours =
            |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '?';
        if is_open && behind.starts_with(is_ours) {
            parts.push(Part::Text(&text[..at]));
            let (part, rest) = special(behind);
            parts.push(part);
            (text, from) = (rest, 0);
        } else if !is_open && own == 0 {
            parts.push(Part::Text(&text[..at]));
            return (parts, behind);
        } else {
            own = if is_open { own + 1 } else { own - 1 };
            from = at + 1;
        }
    }
    parts.push(Part::Text(text));
    (parts, "")
}

/// The part behind an opening brace, and what is behind that.
fn special(text: &'static str) -> (Part, &'static str) {
    let number = |text: &str| text.parse().expect("a number stands there");
    if let Some((many, inner)) = text.strip_prefix('?').and_then(|text| text.split_once(' ')) {
        let (inner, rest) = parts(inner);
        return (Part::Maybe(many.parse().expect("a number stands there"), inner), rest);
    }
    let (words, rest) = text.split_once('}').expect("a brace is closed");
    let counts =
        words.split_once(' ').and_then(|(counts, rest)| Some((counts.split_once('-')?, rest)));
    match counts {
        Some(((least, most), words)) if words_are_counted(text) => {
            (Part::List(number(least), number(most), words), rest)
        }
        _ => (Part::Words(words), rest),
    }
}

fn words_are_counted(text: &str) -> bool {
    text.starts_with(|sign: char| sign.is_ascii_digit())
}
