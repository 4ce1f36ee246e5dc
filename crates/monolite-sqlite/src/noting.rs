//! Owns the triggers that note which rows of a table change, for those who copy them meanwhile.

use crate::names::quoted;
use crate::scan::{Scan, Token, TokenKind};

/// The definitions of the triggers of `table` that note each change of its rows; their names begin
/// with `prefix`.
///
/// `note` gives the statement that notes the row named `OLD` or `NEW`. `REPLACE` fires no trigger
/// for the rows that it deletes: `replaced`, which is run before each row is written, is to note
/// those that are equal to it in a unique index, and may be empty. Both end with a semicolon.
///
/// They run before the change: what foreign keys and other triggers do with it can end it before
/// those behind it run, by `RAISE` or with the row, and keep it. The key that an insert draws is
/// known behind it alone. A row that is noted and does not change costs a look.
pub fn noting_triggers(
    prefix: &str,
    table: &str,
    note: impl Fn(&str) -> String,
    replaced: &str,
) -> Vec<String> {
    let (old, new) = (note("OLD"), note("NEW"));
    let all = [
        ("insert", "BEFORE INSERT", format!("{replaced} {new}")),
        ("inserted", "AFTER INSERT", new.clone()),
        ("update", "BEFORE UPDATE", format!("{replaced} {old} {new}")),
        ("delete", "BEFORE DELETE", old),
    ];
    let create = |(name, event, body): (&str, &str, String)| {
        let name = quoted(&format!("{prefix}{name}"));
        format!("CREATE TRIGGER {name} {event} ON {} BEGIN {body} END", quoted(table))
    };
    all.into_iter().map(create).collect()
}

/// Whether `sql`, which creates a trigger of a table, has it run before an update. Such a trigger
/// may change the row once [`noting_triggers`] have seen it: SQLite reads it again, and `REPLACE`
/// deletes the rows that are equal to that.
pub fn is_before_update(sql: &str) -> bool {
    let events = ["DELETE", "INSERT", "UPDATE"];
    let is_event = |it: &Token<'_>| events.iter().any(|word| it.is_word(word));
    let is_text = |it: &Token<'_>| it.kind != TokenKind::Blank;
    let tokens: Vec<Token<'_>> = Scan::of(sql).filter(is_text).collect();
    let Some(event) = tokens.iter().position(is_event) else { return false };
    // A trigger can have the name AFTER.
    let is_after = match tokens[..event] {
        [.., before, last] => {
            let is_name = ["TRIGGER", "EXISTS", "."].contains(&before.text.to_uppercase().as_str());
            last.is_word("AFTER") && !is_name
        }
        _ => false,
    };
    tokens[event].is_word("UPDATE") && !is_after
}

#[test]
fn triggers_before_an_update_are_known() {
    for (sql, is) in [
        ("CREATE TRIGGER z BEFORE UPDATE OF a ON t BEGIN SELECT 1; END", true),
        ("create trigger z update on t begin select 1; end", true),
        ("CREATE TRIGGER IF NOT EXISTS after UPDATE ON t BEGIN SELECT 1; END", true),
        ("CREATE TRIGGER \"update\" AFTER UPDATE ON t BEGIN SELECT 1; END", false),
        ("CREATE TRIGGER z AFTER /* BEFORE */ UPDATE ON t BEGIN SELECT 1; END", false),
        ("CREATE TRIGGER z BEFORE INSERT ON t BEGIN UPDATE t SET a = 1; END", false),
    ] {
        assert_eq!(is_before_update(sql), is, "{sql}");
    }
}
