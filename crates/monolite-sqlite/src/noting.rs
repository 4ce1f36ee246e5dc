//! Owns the triggers that note which rows of a table change, for those who copy them meanwhile.

use crate::names::quoted;

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
