//! Words that must not be left in the sources, found in the token stream so that strings and
//! comments do not count and the insides of macros do.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::Finding;
use super::tree::{File, Tree};

/// Macros that are notes to oneself.
const NOTES: [&str; 3] = ["dbg", "todo", "unimplemented"];

/// The one crate in which `unsafe` may be written.
const UNSAFE_CRATE: &str = "crates/monolite-sqlite/";

/// The one reason for which `make test` leaves a test out.
const LONG: &str = "long: the gate runs it";

/// Checks every Rust source, and every text for paths of somebody's machine.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        comments(file, &mut findings);
        // A file that does not lex does not parse either, which `shape` reports.
        if let Ok(tokens) = file.text.parse::<TokenStream>() {
            Scan { file, findings: &mut findings }.stream(tokens);
        }
    }
    for file in tree.files() {
        machine_paths(file, &mut findings);
    }
    findings
}

fn comments(file: &File, findings: &mut Vec<Finding>) {
    let word = concat!("FIX", "ME");
    for (at, line) in file.text.lines().enumerate() {
        if line.contains(word) {
            findings.push(Finding::new(&file.path, at + 1, format!("mend it or drop the {word}")));
        }
    }
}

/// Walks the tokens of one file, groups included.
struct Scan<'a> {
    file: &'a File,
    findings: &'a mut Vec<Finding>,
}

impl Scan<'_> {
    fn stream(&mut self, stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        for at in 0..tokens.len() {
            self.token(&tokens, at);
            if let TokenTree::Group(group) = &tokens[at] {
                self.stream(group.stream());
            }
        }
    }

    fn token(&mut self, tokens: &[TokenTree], at: usize) {
        let (here, next) = (&tokens[at], tokens.get(at + 1));
        if let TokenTree::Ident(word) = here {
            let word = word.to_string();
            let is_macro = next.is_some_and(|next| is_punct(next, '!'));
            if is_macro && NOTES.contains(&word.as_str()) {
                self.found(here, format!("`{word}!` is a note to yourself; finish or remove it"));
            }
            if is_macro && word == "matches" && is_statement(tokens, at) {
                self.found(here, "a `matches!` as a statement asserts nothing; say `assert!`");
            }
            if word == "unsafe" && !self.file.path.starts_with(UNSAFE_CRATE) {
                self.found(here, format!("`unsafe` belongs into {UNSAFE_CRATE}"));
            }
        }
        if is_punct(here, '#')
            && next
                .is_some_and(|next| opens_with(next, "ignore") && !next.to_string().contains(LONG))
        {
            self.found(here, format!("only the gate runs an ignored test; ignore = \"{LONG}\""));
        }
    }

    fn found(&mut self, token: &TokenTree, message: impl Into<String>) {
        let line = token.span().start().line;
        self.findings.push(Finding::new(&self.file.path, line, message));
    }
}

fn is_punct(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// Whether a group is `[word …]`.
fn opens_with(token: &TokenTree, word: &str) -> bool {
    let TokenTree::Group(group) = token else { return false };
    let first = group.stream().into_iter().next();
    group.delimiter() == Delimiter::Bracket
        && matches!(first, Some(TokenTree::Ident(ident)) if ident == word)
}

/// Whether the macro call at `at` stands alone between two ends of statements.
fn is_statement(tokens: &[TokenTree], at: usize) -> bool {
    let start = start_of_path(tokens, at);
    let before = match start.checked_sub(1).map(|before| &tokens[before]) {
        None => true,
        Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Brace,
        Some(other) => is_punct(other, ';'),
    };
    before && tokens.get(at + 3).is_some_and(|after| is_punct(after, ';'))
}

/// Where the path begins that ends with the name at `at`: `std::matches!` begins at `std`.
fn start_of_path(tokens: &[TokenTree], mut at: usize) -> usize {
    while at >= 2 && is_punct(&tokens[at - 1], ':') && is_punct(&tokens[at - 2], ':') {
        let named = at >= 3 && matches!(tokens[at - 3], TokenTree::Ident(_));
        at -= if named { 3 } else { 2 };
    }
    at
}

/// A path of the author's machine is of no use on the reader's.
fn machine_paths(file: &File, findings: &mut Vec<Finding>) {
    // Put together here so that this file does not find itself.
    let homes = ["root", "work", "home"].map(|name| format!("/{name}/"));
    for (at, line) in file.text.lines().enumerate() {
        for home in &homes {
            if line.match_indices(home.as_str()).any(|(start, _)| is_absolute(line, start)) {
                let message = format!("`{home}` is a folder of one machine; use a relative path");
                findings.push(Finding::new(&file.path, at + 1, message));
            }
        }
    }
}

/// Whether the slash at `start` begins a path: nothing that could be a folder's name, or `.` or
/// `~`, comes right before it.
fn is_absolute(line: &str, start: usize) -> bool {
    let before = line[..start].chars().next_back();
    !before.is_some_and(|sign| sign.is_alphanumeric() || "_-.~})>$*".contains(sign))
}

#[cfg(test)]
mod tests;
