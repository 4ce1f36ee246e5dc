//! Owns how rows become text.
//!
//! # Invariants
//! What a database holds never reaches a terminal as a control character: it could move the cursor,
//! or type for the user. Files and pipes get the values as they are, but for the modes `table` and
//! `line`, which are for eyes.

use std::fmt::Write as _;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use monolite::Value;
use monolite_client::Answer;
use serde_json::json;

use crate::arguments::Mode;

/// `text` with control characters, and those that change the direction of writing, as escapes.
pub(crate) fn printable(text: &str) -> String {
    escaped(text, &[])
}

/// The same with its lines and tabs.
pub(crate) fn printable_lines(text: &str) -> String {
    escaped(text, &['\n', '\t'])
}

fn escaped(text: &str, allowed: &[char]) -> String {
    let turns = |sign| {
        let marks = '\u{200e}'..='\u{200f}';
        marks.contains(&sign) || matches!(sign, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut out = String::with_capacity(text.len());
    for sign in text.chars() {
        if (sign.is_control() || turns(sign)) && !allowed.contains(&sign) {
            out.extend(sign.escape_default());
        } else {
            out.push(sign);
        }
    }
    out
}

/// The rows of `answer` as text in `mode`; a table is at most `width` columns wide.
pub(crate) fn render(answer: &Answer, mode: Mode, width: Option<u16>) -> String {
    let lines = |line: &dyn Fn(&[Value]) -> String| {
        answer.rows.iter().map(|row| line(row) + "\n").collect::<String>()
    };
    match mode {
        Mode::Table => table(answer, width),
        Mode::Csv => {
            let header = answer.columns.iter().map(|name| quoted(name)).collect::<Vec<_>>();
            header.join(",") + "\n" + &lines(&|row| joined(row, ",", csv))
        }
        Mode::Json => {
            let object = |row: &Vec<Value>| {
                // By hand: two columns may have one name.
                let fields = answer.columns.iter().zip(row);
                let fields = fields.map(|(name, it)| format!("{}:{}", json!(name), json(it)));
                format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
            };
            format!("[{}]\n", answer.rows.iter().map(object).collect::<Vec<_>>().join(",\n"))
        }
        Mode::Line => by_line(answer),
        Mode::List => lines(&|row| joined(row, "|", |value| plain(value, ""))),
    }
}

fn joined(row: &[Value], between: &str, text: impl Fn(&Value) -> String) -> String {
    row.iter().map(text).collect::<Vec<_>>().join(between)
}

fn plain(value: &Value, null: &str) -> String {
    match value {
        Value::Null => null.to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => format!("{number:?}"),
        Value::Text(text) => text.clone(),
        Value::Blob(bytes) => {
            let mut text = String::from("x'");
            for byte in bytes {
                let _ = write!(text, "{byte:02x}");
            }
            text + "'"
        }
    }
}

fn table(answer: &Answer, width: Option<u16>) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(answer.columns.iter().map(|it| printable(it)));
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    for row in &answer.rows {
        let cell = |value: &Value| {
            let cell = Cell::new(printable(&plain(value, "NULL")));
            match value {
                Value::Integer(_) | Value::Real(_) => cell.set_alignment(CellAlignment::Right),
                _ => cell,
            }
        };
        let mut row = comfy_table::Row::from(row.iter().map(cell).collect::<Vec<_>>());
        row.max_height(1);
        table.add_row(row);
    }
    format!("{table}\n")
}

fn by_line(answer: &Answer) -> String {
    let names: Vec<String> = answer.columns.iter().map(|name| printable(name)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let row = |row: &Vec<Value>| -> String {
        let line = |(name, value): (&String, &Value)| {
            format!("{name:>width$} = {}\n", printable(&plain(value, "NULL")))
        };
        names.iter().zip(row).map(line).collect()
    };
    answer.rows.iter().map(row).collect::<Vec<_>>().join("\n")
}

fn csv(value: &Value) -> String {
    match value {
        Value::Text(text) if text.is_empty() => "\"\"".to_owned(),
        Value::Text(text) => quoted(text),
        _ => plain(value, ""),
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => json!(null),
        Value::Integer(number) => json!(number),
        Value::Real(number) => json!(number),
        Value::Text(_) | Value::Blob(_) => json!(plain(value, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(rows: &[&[Value]]) -> Answer {
        let columns = ["a", "b"].map(str::to_owned).to_vec();
        Answer { columns, rows: rows.iter().map(|row| row.to_vec()).collect(), ..Answer::default() }
    }

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn csv_quotes_what_needs_it_and_tells_null_from_empty() {
        let rows = [[text("a,\"b\"\n"), Value::Null], [text(""), Value::Blob(vec![0, 255])]];
        let found = render(&answer(&[&rows[0], &rows[1]]), Mode::Csv, None);
        assert_eq!(found, "a,b\n\"a,\"\"b\"\"\n\",\n\"\",x'00ff'\n");
    }

    #[test]
    fn json_keeps_columns_of_one_name() {
        let mut two = answer(&[&[Value::Integer(1), text("\u{1b}\"")]]);
        two.columns = vec!["x".into(), "x".into()];
        assert_eq!(render(&two, Mode::Json, None), "[{\"x\":1,\"x\":\"\\u001b\\\"\"}]\n");
        assert_eq!(render(&answer(&[]), Mode::Json, None), "[]\n");
    }

    #[test]
    fn a_table_is_as_wide_as_the_terminal_and_has_no_control_characters() {
        let long = text(&"wide ".repeat(100));
        let rows: &[&[Value]] = &[&[long, Value::Null], &[text("\u{1b}[2J\n\u{9b}"), text("")]];
        let found = render(&answer(rows), Mode::Table, Some(40));
        assert!(found.lines().all(|line| line.chars().count() <= 40), "{found}");
        assert_eq!(found.lines().count(), 6, "{found}");
        assert!(found.contains("NULL") && found.contains("\\u{1b}[2J\\n\\u{9b}"), "{found}");
        assert!(!found.contains(['\u{1b}', '\u{9b}']), "{found}");
    }

    #[test]
    fn lines_name_the_columns() {
        let found = render(&answer(&[&[Value::Real(1.0), Value::Null]]), Mode::Line, None);
        assert_eq!(found, "a = 1.0\nb = NULL\n");
    }
}
