//! No product reads the wall clock but in a [`ROOMS`] entry: it jumps, both ways, and what was
//! decided by it was decided wrongly. Whatever has to last so long counts time that passes.
//!
//! Found in the token stream: what reads it in Rust, and in the text of SQL.

use proc_macro2::{TokenStream, TokenTree};

use super::Finding;
use super::tree::{File, Tree};

/// What runs at users'.
const PRODUCTS: [&str; 6] = [
    "monolite",
    "monolite-sqlite",
    "monolite-archive",
    "monolite-ltx",
    "monolite-server",
    "monolite-cli",
];

/// Where it is read, and what for.
const ROOMS: [(&str, &str); 6] = [
    ("monolite-cli/src/export/translate.rs", "SQL that gives the time, as PostgreSQL says it"),
    ("monolite-server/src/auth.rs", "whether a token has ended, as those mean it who sign it"),
    ("monolite/src/activity/slow.rs", "when a call was slow, to be shown"),
    ("monolite-sqlite/src/surroundings.rs", "the time that a user's SQL asks for"),
    ("monolite-sqlite/src/connection/migrations.rs", "when a migration was applied, to be shown"),
    ("monolite-archive/src/wall_clock.rs", "times in headers, by which a user restores"),
];

/// Functions, with the types that they are found at.
const READS: [(&str, &str); 8] = [
    ("SystemTime", "now"),
    ("Timestamp", "now"),
    ("Zoned", "now"),
    ("Utc", "now"),
    ("Local", "now"),
    ("OffsetDateTime", "now_utc"),
    ("ClockId", "Realtime"),
    ("UNIX_EPOCH", "elapsed"),
];

/// What SQL reads it by.
const IN_SQL: [&str; 5] =
    ["'now'", "unixepoch()", "current_timestamp", "current_time", "current_date"];

/// Checks the sources of the products, without their tests.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !file.is_test() && is_product(&file.path)) {
        if let Ok(tokens) = file.text.parse::<TokenStream>() {
            look(file, tokens, &mut findings);
        }
    }
    findings
}

fn is_product(path: &str) -> bool {
    let below = path.strip_prefix("crates/").unwrap_or_default();
    let is_in =
        |product: &&str| below.strip_prefix(*product).is_some_and(|rest| rest.starts_with("/src/"));
    PRODUCTS.iter().any(is_in) && ROOMS.iter().all(|room| room.0 != below)
}

fn look(file: &File, stream: TokenStream, findings: &mut Vec<Finding>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        let what = match token {
            TokenTree::Group(group) => {
                look(file, group.stream(), findings);
                None
            }
            TokenTree::Ident(word) => read_at(&word.to_string(), &tokens[at + 1..]),
            TokenTree::Literal(text) if !is_doc(&tokens[..at]) => in_sql(&text.to_string()),
            _ => None,
        };
        if let Some(what) = what {
            let message = format!(
                "{what} reads the wall clock, which jumps; count time that passes (in the engine: \
                 `clock`), or ask in a room of `tidy::wall_clock`"
            );
            findings.push(Finding::new(&file.path, token.span().start().line, message));
        }
    }
}

/// What begins with `word` and reads it.
fn read_at(word: &str, behind: &[TokenTree]) -> Option<String> {
    if word == "chrono" {
        return Some(word.into());
    }
    let next = behind.iter().find_map(|token| match token {
        TokenTree::Punct(punct) if matches!(punct.as_char(), ':' | '.') => None,
        TokenTree::Ident(next) => Some(Some(next.to_string())),
        _ => Some(None),
    });
    let next = next.flatten()?;
    READS.contains(&(word, next.as_str())).then(|| format!("`{word}` … `{next}`"))
}

fn in_sql(text: &str) -> Option<String> {
    let text = text.to_lowercase();
    IN_SQL.iter().find(|it| text.contains(**it)).map(|it| format!("`{it}`"))
}

/// Whether the literal behind these is a comment.
fn is_doc(before: &[TokenTree]) -> bool {
    let [.., TokenTree::Ident(word), TokenTree::Punct(_)] = before else { return false };
    word == "doc"
}

#[cfg(test)]
mod tests;
